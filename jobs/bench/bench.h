/* SPDX-License-Identifier: BSD-3-Clause */
/** The job `starmill bench`: cost of a fit on this machine, and the size from which a GPU pays. */
#ifndef MILL_BENCH_H
#define MILL_BENCH_H

#include "jobs/options/option_table.h"

/** argv[0] is the job's name.  Returns the exit status of the program. */
int mill_job_bench(int argc, char **argv);

extern const mill_option_help mill_bench_help;

#endif
