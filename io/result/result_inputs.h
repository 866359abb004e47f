/** /catalog/files of a result: the input files as they were, and whether they still are.
 *  For the other files of this folder.  One rank alone. */
#ifndef MILL_RESULT_INPUTS_H
#define MILL_RESULT_INPUTS_H

#include <hdf5.h>

#include "io/result/result_file.h"

/** Write all columns; the group /catalog/files is there.  path: of the result, for messages. */
int mill_result_inputs_create(hid_t file, const char *path, const mill_run_info *info);

/** MILL_ERR_OUTPUT, and the difference, when the result was made from other inputs than the run
 *  has: first the files are compared, then what was selected in them. */
int mill_result_inputs_check(hid_t file, const char *path, const mill_run_info *info);

/** Input files that were repaired between two runs of one result, for --retry-failed: the inputs
 *  of a run with the size and time that the open result has of them, in recorded [n_file], for the
 *  caller to free by mill_free; texts are borrowed from info.  *n_repaired have changed since, of
 *  which no row is fitted.  Whether their rows are the same stars is not looked at here.  Not for
 *  rows that were joined from several files.  Inputs of another number or other names are given as
 *  they are.
 *  MILL_ERR_OUTPUT, and what to do, when rows of a changed file are fitted already or it has
 *  another number of rows now; MILL_ERR_MEMORY. */
int mill_result_inputs_repaired(hid_t file, const char *path, const mill_run_info *info,
                                mill_input_file **recorded, int *n_repaired);

/** Record size, time and error of the inputs as they are now. */
int mill_result_inputs_note(hid_t file, const char *path, const mill_run_info *info);

#endif
