/* SPDX-License-Identifier: BSD-3-Clause */
/** The files of a mock survey, made by all ranks. */
#ifndef MILL_SIMULATE_FILES_H
#define MILL_SIMULATE_FILES_H

#include "jobs/simulate/simulate_plan.h"
#include "src/ranks/mpi_context.h"

/** What was done. */
typedef struct mill_simulate_count {
  int64_t n_file_kept; /**< files that were there already, of all ranks */
  int64_t n_row;       /**< rows made, of all ranks */
} mill_simulate_count;

/** Make missing files: data by the ranks, then catalog and truth table by rank 0.  MILL_ERR_STOPPED
 *  with a message that says how many files are complete.  Collective. */
int mill_simulate_files_make(mill_mpi *mpi, const mill_simulate_plan *plan, int n_thread,
                             mill_simulate_count *count);

#endif
