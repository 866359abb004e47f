/** `starmill fit --plan`: what a run would do, without doing it. */
#ifndef MILL_PLAN_H
#define MILL_PLAN_H

#include <stdio.h>

#include "jobs/inputs.h"
#include "jobs/options.h"
#include "kernels/library.h"
#include "src/mpi_context.h"

typedef struct mill_plan {
  const mill_fit_options *options;
  const mill_config *config;
  const mill_library *lib;
  const mill_inputs *inputs; /**< with their index */
  mill_running running;
  const char *backend;
  int n_thread; /**< of a rank */
} mill_plan;

/** Print the plan on rank 0.  Collective, and nothing is written.  MILL_ERR_MPI,
 *  MILL_ERR_MEMORY, MILL_ERR_LIBRARY, MILL_ERR_OUTPUT (out does not take it). */
int mill_plan_print(const mill_mpi *mpi, const mill_plan *plan, FILE *out);

/** Rows of each planned rank [n_rank] when work blocks of n_block rows of one file are dealt
 *  out in turn, as the reader does; n_row [n_file].  Gives the number of blocks. */
int64_t mill_plan_deal(int n_file, const int64_t *n_row, int n_block, int n_rank, int64_t *rows);

#endif
