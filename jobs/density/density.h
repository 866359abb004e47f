/** `starmill density`: maps of catalogs by kernel density. */
#ifndef MILL_JOB_DENSITY_H
#define MILL_JOB_DENSITY_H

#include "jobs/options/option_table.h"

/** argv[0] is the job's name.  Returns the exit status of the program. */
int mill_job_density(int argc, char **argv);

extern const mill_option_help mill_density_help;

#endif
