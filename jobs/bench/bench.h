/** The job `starmill bench`: what a fit costs on this machine, and what it must cost. */
#ifndef MILL_BENCH_JOB_H
#define MILL_BENCH_JOB_H

/** argv[0] is the job's name.  Returns the exit status of the program. */
int mill_job_bench(int argc, char **argv);

#endif
