/* SPDX-License-Identifier: BSD-3-Clause */
/** Checks that all ranks of a fit have the same options and settings, before collective calls
 *  depend on them. */
#ifndef MILL_FIT_SAME_H
#define MILL_FIT_SAME_H

#include "jobs/options/options.h"
#include "src/config/config.h"
#include "src/ranks/mpi_context.h"

/** Compare the program's version and the options of the table, except those that may_differ (the
 *  log, the paths of library and configuration).
 *  Collective.  MILL_ERR_CONFIG names the ranks and the option; MILL_ERR_MEMORY, MILL_ERR_MPI. */
int mill_fit_same_options(const mill_mpi *mpi, const mill_option_table *table,
                          const mill_fit_options *options);

/** Compare the library and the effective settings, after the start table is read.
 *  Collective.  MILL_ERR_CONFIG names the ranks and the setting; MILL_ERR_MEMORY, MILL_ERR_MPI. */
int mill_fit_same_settings(const mill_mpi *mpi, const mill_config *config, const mill_library *lib);

/** Identity of a run, for free(), also after a failure: mill_config_identity; for a sample also its
 *  settings and the names of its stars.  MILL_ERR_MEMORY and the codes of mill_config_identity. */
int mill_fit_identity(const mill_fit_options *options, const mill_config *config, char **identity);

#endif
