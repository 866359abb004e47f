/* SPDX-License-Identifier: BSD-3-Clause */
/** Command line of `starmill simulate`. */
#ifndef MILL_SIMULATE_H
#define MILL_SIMULATE_H

#include "jobs/scripts/script.h"

extern const mill_script mill_simulate;

#endif
