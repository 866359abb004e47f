/* SPDX-License-Identifier: BSD-3-Clause */
/** What depends on all rows of a fit, once its inputs are known. */
#ifndef MILL_FIT_ROWS_H
#define MILL_FIT_ROWS_H

#include "io/stars/inputs.h"
#include "jobs/fit/call.h"

/** Settle the mask of wavelengths, and which rows the tables by star have.
 *  Collective. */
int mill_fit_settle_rows(const mill_fit_call *call, mill_fit_setup *setup,
                         const mill_inputs *inputs);

#endif
