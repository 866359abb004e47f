/** Input files that were repaired between two runs of one result, for --retry-failed.
 *  For io/result/result_file.c and io/result/result_layout.c. */
#ifndef MILL_RESULT_REPAIR_H
#define MILL_RESULT_REPAIR_H

#include <hdf5.h>

#include "io/result/result_file.h"

/** The inputs of a run with the size and time that the open result has of them: recorded
 *  [n_file], for the caller to free by mill_free; texts are borrowed from info.  *n_repaired
 *  have changed since, of which no row is fitted.  That their rows are the same stars is not
 *  looked at here.  Not for rows that were joined from several files.  Inputs of another number
 *  or other names are given as they are.
 *  MILL_ERR_OUTPUT, and what to do, when rows of a changed file are fitted already or it has
 *  another number of rows now; MILL_ERR_MEMORY.  One rank alone. */
int mill_result_repaired(hid_t file, const char *path, const mill_run_info *info,
                         mill_input_file **recorded, int *n_repaired);

/** Record size, time and error of the inputs as they are now.  One rank alone. */
int mill_result_note_repaired(hid_t file, const char *path, const mill_run_info *info);

#endif
