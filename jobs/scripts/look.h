/* SPDX-License-Identifier: BSD-3-Clause */
/** Command lines of `starmill show`, `select`, `plot` and `report`. */
#ifndef MILL_LOOK_H
#define MILL_LOOK_H

#include "jobs/scripts/script.h"

extern const mill_script mill_show, mill_select, mill_plot, mill_report;

#endif
