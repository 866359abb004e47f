/* SPDX-License-Identifier: BSD-3-Clause */
/* For LD_PRELOAD: a rank that waits sleeps.  Open MPI has it call sched_yield again and again, and
 * where several tests share the cores it gets its share of them for that. */
#include <sched.h>
#include <time.h>

int sched_yield(void)
{
  nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
  return 0;
}
