/* SPDX-License-Identifier: BSD-3-Clause */
/** Command line of `starmill simulate`. */
#ifndef MILL_SIMULATE_OPTIONS_H
#define MILL_SIMULATE_OPTIONS_H

#include "src/mock/mock_survey.h"

enum {
  MILL_SIMULATE_MAX_PER_FILE = 100000, /**< a file's FIBERMAP is held in memory */
  MILL_SIMULATE_MAX_FILE = 1000000
};

/** Values of the command line; texts are borrowed from argv, NULL: not given. */
typedef struct mill_simulate_options {
  int help, overwrite, redrock, quiet;
  const char *output, *library;
  mill_mock_settings mock; /**< with the defaults where nothing was given */
  int per_file;
  int n_thread; /**< 0: this rank's share of the cores */
} mill_simulate_options;

/** Parse and check argv, argv[0] being the job's name; argv is permuted.
 *  MILL_ERR_USAGE names the option, its value and what it takes. */
int mill_simulate_options_parse(int argc, char **argv, mill_simulate_options *options);

#endif
