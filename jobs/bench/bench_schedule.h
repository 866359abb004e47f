/** `starmill bench schedule`: how evenly the ranks of a run would be busy, by the scheduler's
 *  own code. */
#ifndef MILL_BENCH_SCHEDULE_H
#define MILL_BENCH_SCHEDULE_H

/** argv[0] is "schedule"; argv is permuted.  Prints on standard output.  MILL_ERR_USAGE,
 *  MILL_ERR_MEMORY, MILL_ERR_OUTPUT. */
int mill_bench_schedule(int argc, char **argv);

#endif
