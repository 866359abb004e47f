/* SPDX-License-Identifier: BSD-3-Clause */
/** The result whose stars `starmill sample` takes: its configuration, its library, its rows. */
#ifndef MILL_SAMPLED_FIT_H
#define MILL_SAMPLED_FIT_H

#include "io/stars/inputs.h"
#include "jobs/options/options.h"

/** The configuration of the fit over what config holds, with the fit as the table to start from.
 *  MILL_ERR_CONFIG: it is no result. */
int mill_sampled_read_config(const char *path, mill_config *config);

/** Is lib, the only one of n_library, that of the fit, or one of several: its code in LIBRARY, else
 *  0?  MILL_ERR_USAGE, MILL_ERR_CONFIG. */
int mill_sampled_check_library(const char *path, const mill_library *lib, int n_library, int *code);

/** Is this the hash of the fit's table of priors?  MILL_ERR_CONFIG. */
int mill_sampled_check_priors(const char *path, const char *table, const char *hash);

/** Narrow config->select down to the fitted stars with a name, a flag, an S/N or the share asked
 *  for, where any is; targets that are listed must be in the fit.  After
 *  mill_fit_options_apply.  MILL_ERR_CONFIG: no such target, or none is left. */
int mill_sampled_choose(const mill_fit_options *options, mill_config *config);

/** MILL_ERR_OUTPUT where an input of the fit at path has another size or time since. */
int mill_sampled_check_inputs(const char *path, const mill_inputs *inputs);

/** Settings of a sample that are not those of a fit. */
void mill_sampled_print(const mill_fit_options *options, FILE *out);

/** Append them, and the stars that select has by name, to *identity, a text of malloc.
 *  MILL_ERR_MEMORY. */
int mill_sampled_extend(const mill_fit_options *options, const mill_selection *select,
                        char **identity);

#endif
