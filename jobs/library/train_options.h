/* SPDX-License-Identifier: BSD-3-Clause */
/** Options of `starmill library train`. */
#pragma once

#include "jobs/options/option_table.h"
#include "src/train/train_arm.h"

/** Kinds of emulators.  C trains networks; starmill/templates/train.py makes all other kinds, and
 *  writes the library of every kind.  C checks all options, and passes them on to Python. */
enum mill_train_emulator {
  MILL_TRAIN_NETWORK = 0,
  MILL_TRAIN_RADIAL,
  MILL_TRAIN_SPLINES,
  MILL_TRAIN_LINEAR
};

typedef struct mill_train_options {
  const char *output, *input;
  int overwrite, help, unfinished, n_thread;
  enum mill_train_emulator emulator;
  int n_error; /**< components of the model error; -1: no model error */
  int n_component, n_guess, hulls;
  double left_out;
  uint64_t seed;
  /* the members below are for networks */
  mill_train_arm_settings arm;
  int backend, is_linear; /**< is_linear: learn flux, not its logarithm */
  const char *checkpoint, *stop_file;
  double interval_s;
  /* the members below are for functions of the labels */
  int gaps, degree;
  double smoothing;
  const char *validation;
} mill_train_options;

extern const mill_option_table mill_library_train_table;

/** Set defaults, read the command line, and check it unless it has --help.  MILL_ERR_USAGE. */
int mill_train_options_parse(int argc, char **argv, mill_train_options *options);
