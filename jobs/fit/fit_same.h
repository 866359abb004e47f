/* SPDX-License-Identifier: BSD-3-Clause */
/** Checks that the ranks of a fit are started alike: options and settings are compared before
 *  collective calls depend on them. */
#ifndef MILL_FIT_SAME_H
#define MILL_FIT_SAME_H

#include "jobs/options/options.h"
#include "src/config/config.h"
#include "src/ranks/mpi_context.h"

/** The program, and the options of the table that decide which way a run takes and what it writes:
 *  all but those that may_differ (the log, the paths of library and configuration).
 *  Collective; MILL_ERR_CONFIG names the ranks and the option, MILL_ERR_MEMORY, MILL_ERR_MPI. */
int mill_fit_same_options(const mill_mpi *mpi, const mill_option_table *table,
                          const mill_fit_options *options);

/** The library and the effective settings, once the table to start from is read.
 *  Collective; MILL_ERR_CONFIG names the ranks and the setting, MILL_ERR_MEMORY, MILL_ERR_MPI. */
int mill_fit_same_settings(const mill_mpi *mpi, const mill_config *config, const mill_library *lib);

/** Identity of a run, malloc'd: mill_config_identity, and of a sample its settings and the stars
 *  that it has by name.  MILL_ERR_MEMORY, and what that fails with; *identity is for free then,
 *  too. */
int mill_fit_identity(const mill_fit_options *options, const mill_config *config, char **identity);

#endif
