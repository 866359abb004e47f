/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/base/clock.h"

#include <time.h>

static double read_s(clockid_t id)
{
  /* these clocks exist on every system that has pthreads, so no call can fail */
  struct timespec t = {0};
  clock_gettime(id, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double mill_thread_cpu_s(void)
{
  return read_s(CLOCK_THREAD_CPUTIME_ID);
}

double mill_process_cpu_s(void)
{
  return read_s(CLOCK_PROCESS_CPUTIME_ID);
}

double mill_wall_s(void)
{
  return read_s(CLOCK_MONOTONIC);
}

double mill_boot_s(void)
{
  return read_s(CLOCK_BOOTTIME);
}

double mill_unix_s(void)
{
  return read_s(CLOCK_REALTIME);
}
