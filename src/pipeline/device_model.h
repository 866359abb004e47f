/* SPDX-License-Identifier: BSD-3-Clause */
/** A library as a mill_model in a backend's memory. */
#ifndef MILL_DEVICE_MODEL_H
#define MILL_DEVICE_MODEL_H

#include "src/pipeline/device_memory.h"
#include "src/pipeline/guess_table.h"

/** Copy a library, with settings, into a backend's memory.
 *
 *  guess     in   the library's guess table
 *  n_thread  in   OpenMP threads; the result does not depend on their number
 *  memory    in   gets all blocks of the model
 *  model     out  host copy; its pointers are the backend's memory
 *  d_model   out  the model in the backend's memory
 *
 *  MILL_ERR_LIBRARY if an arm is too short for its splines, MILL_ERR_MEMORY,
 *  MILL_ERR_BACKEND. */
int mill_device_model_load(const mill_library *lib, const mill_fit_settings *settings,
                           const mill_guess_table *guess, int n_thread, mill_device_memory *memory,
                           mill_model *model, mill_model **d_model);

/** Check that a fit can handle the settings with this library.  MILL_ERR_CONFIG. */
int mill_device_model_check(const mill_library *lib, const mill_fit_settings *settings);

#endif
