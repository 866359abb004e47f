/* SPDX-License-Identifier: BSD-3-Clause */
/** The result whose stars `starmill sample` takes: its configuration, its library, its rows. */
#ifndef MILL_SAMPLED_FIT_H
#define MILL_SAMPLED_FIT_H

#include "io/stars/inputs.h"
#include "src/config/config.h"

/** The configuration of the fit over what config holds, with the fit as the table to start from.
 *  MILL_ERR_CONFIG: it is no result. */
int mill_sampled_read_config(const char *path, mill_config *config);

/** Is lib, the only one of n_library, that of the fit, or one of several: its code in LIBRARY, else
 *  0?  MILL_ERR_USAGE, MILL_ERR_CONFIG. */
int mill_sampled_check_library(const char *path, const mill_library *lib, int n_library, int *code);

/** Is this the hash of the fit's table of priors?  MILL_ERR_CONFIG. */
int mill_sampled_check_priors(const char *path, const char *table, const char *hash);

/** Which of the fit's stars are sampled. */
typedef struct mill_sampled_wish {
  int is_listing;   /**< config->select.star lists them, by options */
  const char *flag; /**< names of bits with commas; NULL: any star */
  int has_sn_range; /**< S/N from least_sn to most_sn */
  double least_sn, most_sn;
  double part; /**< fraction of the stars, drawn by this seed */
  uint64_t seed;
} mill_sampled_wish;
/** Narrow config->select down to these fitted stars; those that are listed must be in the fit at
 *  path.  A sample is of one star with one velocity.  MILL_ERR_CONFIG: no such star, or none is
 *  left; MILL_ERR_USAGE: no such flag. */
int mill_sampled_choose(const char *path, const mill_sampled_wish *wish, mill_config *config);

/** MILL_ERR_OUTPUT where an input of the fit at path has another size or time since. */
int mill_sampled_check_inputs(const char *path, const mill_inputs *inputs);

#endif
