/* SPDX-License-Identifier: BSD-3-Clause */
/** Input files of a run: from command line, catalog and patterns, without those that are done. */
#pragma once

#include "io/catalog/input_table.h"
#include "io/surveys/spectra.h"
#include "src/config/config.h"
#include "src/ranks/mpi_context.h"

/** Options of the command line about inputs; texts are borrowed, NULL: not given. */
typedef struct mill_input_request {
  char *const *input; /**< [n_input] files named on the command line, in order */
  int n_input;
  const char *catalog;  /**< file with one path a line */
  char *const *pattern; /**< [n_pattern] */
  size_t n_pattern;
  const char *numbers, *numbers_file; /**< values of {n} in a pattern */
  const char *input_table;
  const char *output; /**< path of the result */
  int skip_done;      /**< leave out inputs that input_table lists as done */
  int want_models;    /**< 1: the run writes models */
} mill_input_request;

typedef struct mill_input_names {
  int64_t n, n_byte;
  char *text;                        /**< all names, each with its final zero, owned */
  const char **name;                 /**< [n] into text, owned */
  int64_t n_skipped;                 /**< inputs left out because they are done */
  char settings[MILL_SETTINGS_SIZE]; /**< digest of the settings; on rank 0, with --input-table */
  char unmasked[MILL_SETTINGS_SIZE]; /**< as settings, if wave_mask: auto masks nothing */
} mill_input_names;

/** List the inputs on rank 0 and send them to all ranks; n = 0 if all are done.  Collective.
 *
 *  With --skip-done, an output that has fitted rows is continued with its own inputs.
 *  MILL_ERR_USAGE: no input, a bad list or pattern, or new inputs for a finished output. */
int mill_input_names_share(const mill_mpi *mpi, const mill_input_request *request,
                           const mill_config *config, const mill_library *lib,
                           mill_input_names *names);

/** Set *format to the format of the first recognised input; NULL: none.  Call on one rank.
 *  MILL_ERR_USAGE: no input, a bad list or pattern; MILL_ERR_CONFIG: bad name of a format. */
int mill_input_names_format(const mill_input_request *request, const mill_config *config,
                            const mill_format **format);

void mill_input_names_clear(mill_input_names *names);
