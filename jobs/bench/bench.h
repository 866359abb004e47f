/** The job `starmill bench`: what a fit costs on this machine, and what it must cost. */
#ifndef MILL_BENCH_JOB_H
#define MILL_BENCH_JOB_H

#include "jobs/options/option_table.h"

/** argv[0] is the job's name.  Returns the exit status of the program. */
int mill_job_bench(int argc, char **argv);

/** Of its own tasks, and of those with options of their own. */
extern const mill_option_help mill_bench_help, mill_bench_train_help, mill_bench_particles_help,
    mill_bench_schedule_help;

#endif
