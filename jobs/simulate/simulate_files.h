/** Making the files of a mock survey. */
#ifndef MILL_SIMULATE_FILES_H
#define MILL_SIMULATE_FILES_H

#include "jobs/simulate/simulate_plan.h"

/** Make what is not there: each rank its files (file f is rank f modulo the ranks'), then rank 0
 *  the catalog and the truth table.  n_row: to be made by this rank, for the progress line.
 *  A file under way when a rank is asked to stop (a signal, or a failure of another rank) is
 *  dropped.  Collective; the same code on every rank, MILL_ERR_STOPPED after such a wish. */
int mill_simulate_files_make(mill_mpi *mpi, const mill_simulate_plan *plan, int n_thread,
                             int64_t n_row);

#endif
