/* SPDX-License-Identifier: BSD-3-Clause */
/** The table of inputs after a fit. */
#ifndef MILL_FIT_INPUT_RECORD_H
#define MILL_FIT_INPUT_RECORD_H

#include "jobs/fit/output.h"

/** Append the outcome of the inputs to the table of inputs, if there is one and the result is
 *  finished. */
int mill_fit_record_inputs(const mill_fit_call *call, const mill_inputs *inputs,
                           const mill_fit_output *out);

#endif
