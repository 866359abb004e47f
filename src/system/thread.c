/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* pthread_timedjoin_np */

#include "src/system/thread.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "kernels/base/clock.h"

int mill_thread_start(pthread_t *thread, void *(*run)(void *), void *context)
{
  static const int crash[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  sigset_t all, before;
  sigfillset(&all);
  /* a blocked crash signal would kill the process silently */
  for (size_t i = 0; i < sizeof crash / sizeof *crash; i++)
    sigdelset(&all, crash[i]);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int rc = pthread_create(thread, NULL, run, context);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return rc;
}

int mill_thread_check_number(int n_thread)
{
  const long n_core = sysconf(_SC_NPROCESSORS_ONLN);
  const long most = n_core > 16 ? 4 * n_core : 64;
  if (n_thread > most)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "threads: %d are too many for a machine with %ld cores; give at most %ld, or "
                      "0 for all cores available to the rank",
                      n_thread, n_core, most);
  return MILL_OK;
}

int mill_thread_join_within(pthread_t thread, int seconds)
{
  const struct timespec until =
      mill_cond_time(mill_unix_s() + seconds); /* by the real-time clock */
  if (pthread_timedjoin_np(thread, NULL, &until) == 0)
    return 1;
  pthread_detach(thread);
  return 0;
}

int mill_cond_init(pthread_cond_t *cond)
{
  pthread_condattr_t attr;
  int rc = pthread_condattr_init(&attr);
  if (rc != 0)
    return rc;
  rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  if (rc == 0)
    rc = pthread_cond_init(cond, &attr);
  pthread_condattr_destroy(&attr);
  return rc;
}

struct timespec mill_cond_time(double wall_s)
{
  const time_t whole = (time_t)wall_s;
  return (struct timespec){.tv_sec = whole, .tv_nsec = (long)(1e9 * (wall_s - (double)whole))};
}

int mill_cond_nap(pthread_cond_t *cond, pthread_mutex_t *mutex, const int *ends, double s)
{
  const struct timespec until = mill_cond_time(mill_wall_s() + s);
  MILL_LOCKED(mutex);
  while (!*ends && pthread_cond_timedwait(cond, mutex, &until) != ETIMEDOUT)
    ;
  return !*ends;
}

void mill_cond_end(pthread_cond_t *cond, pthread_mutex_t *mutex, int *ends)
{
  MILL_LOCKED(mutex);
  *ends = 1;
  pthread_cond_broadcast(cond);
}
