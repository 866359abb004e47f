/** The folder of a mock survey: what may be written there, and what must go before. */
#ifndef MILL_SIMULATE_FOLDER_H
#define MILL_SIMULATE_FOLDER_H

#include "jobs/simulate/simulate_plan.h"

/** Can the folder be one of a survey?  *is_new: there is none yet.  MILL_ERR_USAGE,
 *  MILL_ERR_OUTPUT. */
int mill_simulate_folder_check(const char *folder, int *is_new);

/** Bytes that are free there.  MILL_ERR_OUTPUT. */
int mill_simulate_folder_free(const char *folder, double *n_byte);

/** From the options to a folder that may be written: it is made where it is missing, rank 0 takes
 *  its lock, what a killed job has left is removed, and with --overwrite the survey that is there.
 *  What is not of starmill simulate is never touched.  *complete: the whole survey is there, and
 *  nothing was done or locked; then the folder need not be writable.  Collective.
 *  MILL_ERR_USAGE, MILL_ERR_OUTPUT, MILL_ERR_MPI. */
int mill_simulate_folder_prepare(const mill_mpi *mpi, const mill_simulate_plan *plan,
                                 mill_lock *lock, mill_simulate_size *size, int *complete);

#endif
