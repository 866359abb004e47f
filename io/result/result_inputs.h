/* SPDX-License-Identifier: BSD-3-Clause */
/** /catalog/files of a result: the input files as they were, and comparison with the present ones.
 *  One rank alone. */
#ifndef MILL_RESULT_INPUTS_H
#define MILL_RESULT_INPUTS_H

#include <hdf5.h>
#include <limits.h>

#include "io/files/lock_file.h"
#include "io/result/result_file.h"

typedef struct mill_recorded_inputs {
  int n_file;
  char folder[MILL_MAX_PATH]; /**< from which relative paths count; empty: not known */
  mill_input_file *file;      /**< [n_file] */
  char *text;                 /**< to which they point */
} mill_recorded_inputs;

/** Read all columns; *out is zeroed, clear it also after a failure.  MILL_ERR_OUTPUT, and
 *  MILL_ERR_MEMORY. */
int mill_recorded_inputs_read(hid_t file, const char *path, mill_recorded_inputs *out);
void mill_recorded_inputs_clear(mill_recorded_inputs *inputs);

/** Where input i is: its path as given, relative to the folder of the fit.  MILL_ERR_RANGE. */
int mill_recorded_path(const mill_recorded_inputs *inputs, int i, char *out, size_t size);

/** An input of a result: its absolute path, links followed, and what it was. */
typedef struct mill_known_input {
  char *path;
  int64_t size, row_start, n_row;
  double mtime;
} mill_known_input;

/** The inputs of a result, in order of their paths. */
typedef struct mill_known_inputs {
  int n;
  mill_known_input *input;
} mill_known_inputs;

/** Read them from an open result; *out is zeroed, clear it also after a failure. */
int mill_known_inputs_read(hid_t file, const char *path, mill_known_inputs *out);
void mill_known_inputs_clear(mill_known_inputs *inputs);

/** The input at an absolute path, links followed; NULL: none. */
const mill_known_input *mill_known_inputs_find(const mill_known_inputs *inputs, const char *path);

/** The absolute path of a file, links followed where it is there.  MILL_ERR_USAGE: too long. */
int mill_input_absolute(const char *name, char out[PATH_MAX]);

/** Make /catalog/files and fill it. */
int mill_result_inputs_create(hid_t file, const char *path, const mill_run_info *info);

/** MILL_ERR_OUTPUT, and the difference, when the result was made from other inputs than the run
 *  has: first the files are compared, then what was selected in them. */
int mill_result_inputs_check(hid_t file, const char *path, const mill_run_info *info);

/** For --retry-failed: find the input files that were repaired between two runs of one result.
 *
 *  recorded    [n_file]  out  the inputs of the run with the size and time that the open result has
 *                             of them; texts are borrowed from info, for mill_free.  Inputs of
 *                             another number or other names are given as they are.
 *  n_repaired            out  how many have changed since; none of their rows is fitted.  Whether
 *                             their rows are the same stars is not checked here.
 *
 *  Not for rows that were joined from several files.
 *  MILL_ERR_OUTPUT, and what to do, when rows of a changed file are fitted already or it has
 *  another number of rows now; MILL_ERR_MEMORY. */
int mill_result_inputs_repaired(hid_t file, const char *path, const mill_run_info *info,
                                mill_input_file **recorded, int *n_repaired);

/** Record size, time and error of the inputs as they are now. */
int mill_result_inputs_note(hid_t file, const char *path, const mill_run_info *info);

#endif
