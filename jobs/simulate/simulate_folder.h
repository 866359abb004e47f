/* SPDX-License-Identifier: BSD-3-Clause */
/** The folder of a mock survey: checks and removal of leftovers. */
#ifndef MILL_SIMULATE_FOLDER_H
#define MILL_SIMULATE_FOLDER_H

#include "jobs/simulate/simulate_plan.h"
#include "src/ranks/mpi_context.h"

/** Make the folder where it is missing and take its lock (rank 0); remove what a killed job left,
 *  and with --overwrite the survey that is there.  Files that are not of starmill simulate are
 *  never touched.  *complete: the whole survey is there already, so nothing was done or locked, and
 *  the folder need not be writable.  Collective.  MILL_ERR_USAGE, MILL_ERR_OUTPUT, MILL_ERR_MPI. */
int mill_simulate_folder_prepare(const mill_mpi *mpi, const mill_simulate_plan *plan,
                                 mill_lock *lock, int *complete);

/** Whether a file of the survey is there; after the preparation it is whole and this survey's. */
int mill_simulate_has(const mill_simulate_plan *plan, const char *name);

#endif
