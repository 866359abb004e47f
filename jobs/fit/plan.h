/* SPDX-License-Identifier: BSD-3-Clause */
/** `starmill fit --plan`: the plan of a run. */
#ifndef MILL_PLAN_H
#define MILL_PLAN_H

#include <stdio.h>

#include "io/stars/inputs.h"
#include "jobs/options/options.h"
#include "io/result/existing_result.h"
#include "kernels/backend.h"
#include "kernels/data/library.h"
#include "src/ranks/mpi_context.h"

typedef struct mill_plan {
  const mill_fit_options *options;
  const mill_config *config;
  const mill_library *lib;
  const mill_inputs *inputs;     /**< with their index */
  const mill_existing *existing; /**< found at the output by rank 0 */
  mill_running running;
  const mill_backend *backend;
  int n_thread;   /**< of a rank */
  int64_t n_held; /**< rows that a rank takes before it finishes its first one */
} mill_plan;

/** Print the plan on rank 0; no file is written.  Collective.  MILL_ERR_MPI, MILL_ERR_MEMORY,
 *  MILL_ERR_LIBRARY, MILL_ERR_OUTPUT: out cannot be written. */
int mill_plan_print(const mill_mpi *mpi, const mill_plan *plan, FILE *out);

#endif
