/* SPDX-License-Identifier: BSD-3-Clause */
/** The table /catalog/files of a result: record the input files, and compare them with the present
 *  input files.  Call on one rank. */
#pragma once

#include <hdf5.h>
#include <limits.h>

#include "io/files/lock_file.h"
#include "io/result/result_file.h"

typedef struct mill_recorded_inputs {
  int n_file;
  char folder[MILL_MAX_PATH]; /**< folder of the fit, base of relative paths; empty: unknown */
  mill_input_file *file;      /**< [n_file] */
  char *text;                 /**< memory of the texts that file points to */
} mill_recorded_inputs;

/** Read the table of inputs.  The caller zeroes *out first, and clears it even after a failure.
 *  MILL_ERR_OUTPUT, MILL_ERR_MEMORY. */
int mill_recorded_inputs_read(hid_t file, const char *path, mill_recorded_inputs *out);
void mill_recorded_inputs_clear(mill_recorded_inputs *inputs);

/** Write the path of input i, after the fit's folder if relative.  MILL_ERR_RANGE: too long. */
int mill_recorded_path(const mill_recorded_inputs *inputs, int i, char *out, size_t size);

/** Is the path `now` the same file as the path `then`, which a fit in `folder` recorded? */
int mill_recorded_is(const char *folder, const char *then, const char *now);

/** An input of a result; path: absolute, with links followed. */
typedef struct mill_known_input {
  char *path;
  int64_t size, row_start, n_row;
  double mtime;
} mill_known_input;

/** Inputs of a result, sorted by path. */
typedef struct mill_known_inputs {
  int n;
  mill_known_input *input;
} mill_known_inputs;

/** Read an open result's inputs.  The caller zeroes *out, and clears it even after a failure. */
int mill_known_inputs_read(hid_t file, const char *path, mill_known_inputs *out);
void mill_known_inputs_clear(mill_known_inputs *inputs);

/** Find an input by its absolute path with links followed; NULL: none. */
const mill_known_input *mill_known_inputs_find(const mill_known_inputs *inputs, const char *path);

/** Make a file's path absolute; follow links if the file exists.  MILL_ERR_USAGE: too long. */
int mill_input_absolute(const char *name, char out[PATH_MAX]);

/** Create /catalog/files and write it. */
int mill_result_inputs_create(hid_t file, const char *path, const mill_run_info *info);

/** Fail if an input that was read when the result `path` was begun cannot be read now, though
 *  unchanged: with MILL_ERR_STOPPED if the result is unfinished, else with MILL_ERR_OUTPUT.
 *  was: the inputs that the result records. */
int mill_result_inputs_lost(const mill_recorded_inputs *was, const char *path,
                            const mill_run_info *info, int finished);

/** Fail with MILL_ERR_OUTPUT, and name the difference, if the result was made from other files than
 *  this run's inputs, or from other rows selected in them. */
int mill_result_inputs_check(const mill_recorded_inputs *was, const char *path,
                             const mill_run_info *info);

/** For --retry-failed: find the input files that were changed since an earlier run of this result.
 *
 *  recorded [n_file]  out  this run's inputs, but with size and time of each file as in the result.
 *                          Free it by mill_free; its texts are borrowed from info
 *  n_repaired         out  number of changed files; 0 if number or names of the inputs differ
 *
 *  Does not check that the rows of a changed file are the same stars.  Not for joined rows.
 *  MILL_ERR_OUTPUT: a changed file has fitted rows or another number of rows.  MILL_ERR_MEMORY. */
int mill_result_inputs_repaired(hid_t file, const char *path, const mill_run_info *info,
                                mill_input_file **recorded, int *n_repaired);

/** Record the inputs' present size, time and error. */
int mill_result_inputs_note(hid_t file, const char *path, const mill_run_info *info);
