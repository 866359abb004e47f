/* SPDX-License-Identifier: BSD-3-Clause */
/** `starmill library build`: spectra with labels in, one grid file out, from which an emulator is
 *  made (docs/use/libraries.md, "A grid of models"). */
#ifndef MILL_JOB_LIBRARY_BUILD_H
#define MILL_JOB_LIBRARY_BUILD_H

#include "jobs/options/option_table.h"

/** Its options, for `starmill library --help`. */
extern const mill_option_table mill_library_build_table;

/** argv[0] is the sub-command.  Called by all ranks; the exit status.  Prints to stdout and
 *  stderr. */
int mill_job_library_build(int argc, char **argv);

#endif
