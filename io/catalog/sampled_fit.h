/* SPDX-License-Identifier: BSD-3-Clause */
/** The result from which `starmill sample` takes its stars: its configuration, library and rows. */
#pragma once

#include "io/stars/inputs.h"
#include "src/config/config.h"

/** Replace config by the fit's configuration; the sample starts from the fit's parameters.
 *  MILL_ERR_CONFIG: path is no result.  MILL_ERR_OUTPUT: the fit is unfinished. */
int mill_sampled_read_config(const char *path, mill_config *config);

/** Check that the fit used lib.  *code: lib's code in the fit's column LIBRARY; 0: the fit had one
 *  library.  MILL_ERR_CONFIG: the fit did not use lib.  MILL_ERR_USAGE: the caller has more than
 *  one library (n_library), but `sample` takes one. */
int mill_sampled_check_library(const char *path, const mill_library *lib, int n_library, int *code);

/** Fail unless the fit used a file with this hash.
 *  key, file, remedy  for the message: configuration key, file's name, what to do */
int mill_sampled_check_same(const char *path, const char *key, const char *file, const char *hash,
                            const char *remedy);

/** Conditions that a star of the fit must meet to be sampled. */
typedef struct mill_sampled_wish {
  int is_listing;   /**< config->select.star lists the stars, each of which must be in the fit */
  const char *flag; /**< names of flags, with commas: keep stars with any of these; NULL: all */
  double least_sn, most_sn; /**< keep stars with S/N in this range; infinite: all */
  double part;              /**< fraction of the stars, drawn with seed */
  uint64_t seed;
} mill_sampled_wish;
/** Set config to sample the fitted stars that meet wish, as single stars with one velocity.
 *  MILL_ERR_CONFIG: a listed star is missing, or no star is left; MILL_ERR_USAGE: unknown flag. */
int mill_sampled_choose(const char *path, const mill_sampled_wish *wish, mill_config *config);

/** Fail (MILL_ERR_OUTPUT) if an input's size or time differs from the fit's record at path. */
int mill_sampled_check_inputs(const char *path, const mill_inputs *inputs);
