/* SPDX-License-Identifier: BSD-3-Clause */
/** Find a linked backend by name. */
#pragma once

#include "kernels/backend.h"

MILL_EXTERN_C_BEGIN

/** Find the backend of a configuration's word: cpu, cuda, cuda+cpu (the GPU's backend) or auto.
 *  For auto it is the CPU's; a run may change it once its number of rows is known.
 *  MILL_ERR_CONFIG, MILL_ERR_BACKEND. */
int mill_backend_find(const char *choice, const mill_backend **backend);

/** Preferred number of stars at once of a backend with n_thread threads. */
int mill_backend_slots(const mill_backend *backend, int n_thread);

MILL_EXTERN_C_END
