/* SPDX-License-Identifier: BSD-3-Clause */
/** The table of inputs: a text file to which runs append the outcome of their input files.
 *
 *  docs/use/formats.md has the columns.  A run replaces its result, so for each result only the
 *  lines of its last run count.  If an input has several lines, the last line counts. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/base/memory.h"

enum { MILL_SETTINGS_SIZE = 17 /**< size of the settings' digest, with the final zero */ };

/** One input of a run. */
typedef struct mill_input_entry {
  const char *path;                  /**< of the input file, absolute */
  int is_done;                       /**< 0: failed */
  int64_t size, redrock_size;        /**< bytes, as stored in the result */
  double mtime, redrock_mtime;       /**< times of last change, as stored in the result */
  int64_t n_row, n_fitted;           /**< rows in the result, and how many were fitted */
  char settings[MILL_SETTINGS_SIZE]; /**< digest of science settings and library */
  char time[24];                     /**< time of the run, UTC */
  const char *result;                /**< path of the result, absolute */
  const char *reason;                /**< why it failed; empty if done */
} mill_input_entry;

typedef struct mill_input_table mill_input_table;

/** Read a table; a missing file gives an empty table.  Unreadable lines are skipped with a
 *  warning.  Fails as mill_input_table_check does. */
int mill_input_table_read(const char *path, mill_input_table **out);
void mill_input_table_free(mill_input_table *table); /* NULL is allowed */
MILL_CLOSER(mill_input_table, mill_input_table_free)

/** The entry of an input's absolute path; NULL: none. */
const mill_input_entry *mill_input_table_find(const mill_input_table *table, const char *path);

/** Check the table's file, which may be missing or empty.  MILL_ERR_USAGE: another kind of file. */
int mill_input_table_check(const char *path);
/** MILL_ERR_OUTPUT: the file cannot be written. */
int mill_input_table_check_output(const char *path);

/** Append entry [n]; create the file if missing.  MILL_ERR_USAGE: not a table of inputs.
 *  MILL_ERR_OUTPUT: the last line may be cut short; readers skip it. */
int mill_input_table_append(const char *path, const mill_input_entry *entry, size_t n);

/** Can a line hold this path, i.e. has it no tab and no line end? */
int mill_input_table_takes(const char *path);
