/* SPDX-License-Identifier: BSD-3-Clause */
/** The table of inputs: a text file to which runs append the outcome of their input files.
 *
 *  docs/use/formats.md has its columns.  The last line of an input counts; of a result only the
 *  lines of its last run count, which has replaced earlier ones.
 */
#ifndef MILL_INPUT_TABLE_H
#define MILL_INPUT_TABLE_H

#include <stddef.h>
#include <stdint.h>

enum { MILL_SETTINGS_SIZE = 17 /**< bytes of the digest of settings, with its end */ };

/** One input of a run. */
typedef struct mill_input_entry {
  const char *path;                  /**< absolute */
  int is_done;                       /**< else it failed */
  int64_t size, redrock_size;        /**< as the result has them */
  double mtime, redrock_mtime;       /**< likewise */
  int64_t n_row, n_fitted;           /**< rows of the result, fitted ones */
  char settings[MILL_SETTINGS_SIZE]; /**< digest of science settings and library */
  char time[24];                     /**< UTC, of the run */
  const char *result;                /**< absolute */
  const char *reason;                /**< why it failed; empty: it did not */
} mill_input_entry;

typedef struct mill_input_table mill_input_table;

/** Read it; a missing table is empty.  Lines that cannot be read are skipped with a warning, an
 *  unterminated last one silently: its run reported the failure.  MILL_ERR_USAGE: no table of
 *  inputs. */
int mill_input_table_read(const char *path, mill_input_table **out);
void mill_input_table_free(mill_input_table *table); /* NULL is allowed */

/** The entry of an absolute path that counts, NULL when there is none. */
const mill_input_entry *mill_input_table_find(const mill_input_table *table, const char *path);

/** Is the entry of a path that counts one of this result? */
int mill_input_table_has(const mill_input_table *table, const char *result, const char *path);

/** MILL_ERR_USAGE where something else than a table of inputs, or an empty file, is at path. */
int mill_input_table_check(const char *path);

/** Append entries [n] in one write, and make the file where there is none.  Fails as
 *  mill_input_table_check; MILL_ERR_OUTPUT: no line is half written then, or the next reader drops
 *  it. */
int mill_input_table_append(const char *path, const mill_input_entry *entry, size_t n);

/** Can the path stand in a line: no tab, no end of a line? */
int mill_input_table_takes(const char *path);

#endif
