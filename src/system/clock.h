/** Seconds for measuring: of this thread, of the process, and of the wall. */
#ifndef MILL_CLOCK_H
#define MILL_CLOCK_H

/** CPU time, user and system together, since the thread or the process began.  Each call
 *  asks the kernel, which takes a fifth of a microsecond. */
double mill_thread_cpu_s(void);
double mill_process_cpu_s(void);

/** Time since some moment before the program began; never runs backwards. */
double mill_wall_s(void);

#endif
