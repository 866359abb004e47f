/** The job `starmill show`: all that a result says of a star. */
#ifndef MILL_SHOW_H
#define MILL_SHOW_H

#include "jobs/options/option_table.h"

/** argv[0] is the job's name.  Returns the exit status of the program. */
int mill_job_show(int argc, char **argv);

extern const mill_option_help mill_show_help;

#endif
