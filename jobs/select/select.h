/** The job `starmill select`: the stars of a result for which an expression is true. */
#ifndef MILL_SELECT_H
#define MILL_SELECT_H

#include "jobs/options/option_table.h"

/** argv[0] is the job's name.  Returns the exit status of the program. */
int mill_job_select(int argc, char **argv);

extern const mill_option_help mill_select_help;

#endif
