/* SPDX-License-Identifier: BSD-3-Clause */
/** `starmill library spectra`: a library from labelled spectra. */
#ifndef MILL_JOB_LIBRARY_SPECTRA_H
#define MILL_JOB_LIBRARY_SPECTRA_H

#include "jobs/options/option_table.h"

/** Its options, for `starmill library --help`. */
extern const mill_option_table mill_library_spectra_table;

/** argv[0] is the sub-command.  Called by one rank.  Prints to stdout.
 *  MILL_ERR_USAGE, or what reading, building and writing give. */
int mill_job_library_spectra(int argc, char **argv);

#endif
