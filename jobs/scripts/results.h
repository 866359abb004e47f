/* SPDX-License-Identifier: BSD-3-Clause */
/** Command lines of `starmill export`, `merge` and `status`. */
#ifndef MILL_RESULTS_H
#define MILL_RESULTS_H

#include "jobs/scripts/script.h"

extern const mill_script mill_export, mill_merge, mill_status;

#endif
