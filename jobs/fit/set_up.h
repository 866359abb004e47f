/* SPDX-License-Identifier: BSD-3-Clause */
/** Set-up of a fit before it reads its inputs: settings, library, the table to start from, reasons
 *  to stop. */
#ifndef MILL_FIT_SET_UP_H
#define MILL_FIT_SET_UP_H

#include "jobs/fit/call.h"

/** Read the configuration and apply the options. */
int mill_fit_load_config(const mill_fit_call *call, mill_fit_setup *setup);

/** Check the outputs, open the log, read library and tables by star, agree with the other ranks. */
int mill_fit_set_up(const mill_fit_call *call, mill_fit_setup *setup);

/** Free what it holds.  Not collective. */
void mill_fit_setup_clear(mill_fit_setup *setup);

#endif
