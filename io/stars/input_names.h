/* SPDX-License-Identifier: BSD-3-Clause */
/** Input files of a run: those of the command line, of the catalog and of patterns, except those
 *  that are done. */
#ifndef MILL_INPUT_NAMES_H
#define MILL_INPUT_NAMES_H

#include <limits.h>

#include "io/catalog/input_table.h"
#include "io/surveys/spectra.h"
#include "src/config/config.h"
#include "src/ranks/mpi_context.h"

/** The inputs of a command line; texts are borrowed, NULL: not given. */
typedef struct mill_input_request {
  char *const *input; /**< [n_input] files named on the command line, in order */
  int n_input;
  const char *catalog;  /**< file with one path a line */
  char *const *pattern; /**< [n_pattern] */
  size_t n_pattern;
  const char *numbers, *numbers_file; /**< what {n} of a pattern stands for */
  const char *input_table;
  const char *output; /**< the result */
  int skip_done;      /**< leave out what input_table has as done */
  int want_models;    /**< models will be written */
} mill_input_request;

typedef struct mill_input_names {
  int64_t n, n_byte;
  char *text;                        /**< one after the other, each with its final zero, owned */
  const char **name;                 /**< [n] into text, owned */
  int64_t n_skipped;                 /**< skipped because they are done */
  char settings[MILL_SETTINGS_SIZE]; /**< on rank 0, with --input-table: digest of this run's */
} mill_input_names;

/** Gather them on rank 0 and give them to all; none are left where all are done.  Collective.
 *
 *  With --skip-done a result that this output has already keeps the inputs that it was begun with,
 *  so that it can be continued when new files have come.
 *
 *  MILL_ERR_USAGE: no input at all, or a list or pattern is wrong, or the output is finished and
 *  there are inputs that are neither its own nor done. */
int mill_input_names_share(const mill_mpi *mpi, const mill_input_request *request,
                           const mill_config *config, const mill_library *lib,
                           mill_input_names *names);

/** The format of the first input that has a known one; NULL: none has.  One rank alone.  Errors as
 *  above. */
int mill_input_names_format(const mill_input_request *request, const mill_config *config,
                            const mill_format **format);

void mill_input_names_clear(mill_input_names *names);

#endif
