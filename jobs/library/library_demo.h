/** `starmill library demo`: a library of the built-in line model. */
#ifndef MILL_JOB_LIBRARY_DEMO_H
#define MILL_JOB_LIBRARY_DEMO_H

#include "jobs/options/option_table.h"

/** Its options, for `starmill library --help`. */
extern const mill_option_table mill_library_demo_table;

/** argv[0] is the sub-command.  Called by one rank.  Prints to stdout.
 *  MILL_ERR_USAGE, or what building, measuring and writing give. */
int mill_job_library_demo(int argc, char **argv);

#endif
