/* SPDX-License-Identifier: BSD-3-Clause */
/** Threads, and waits with a time limit on the clock of mill_wall_s. */
#pragma once

#include <pthread.h>
#include <time.h>

#include "kernels/base/memory.h"

/** Lock a mutex until the block ends. */
#define MILL_LOCKED(mutex)                                                                         \
  MILL_AT_END(mill_mutex_unlock) pthread_mutex_t *locked_ = mill_mutex_lock(mutex)
static inline pthread_mutex_t *mill_mutex_lock(pthread_mutex_t *mutex)
{
  pthread_mutex_lock(mutex);
  return mutex;
}
static inline void mill_mutex_unlock(pthread_mutex_t *const *mutex)
{
  pthread_mutex_unlock(*mutex);
}

/** Start a thread that blocks all signals except those of crashes; the main thread receives the
 *  blocked signals.  Returns 0 or an error number (see strerror). */
int mill_thread_start(pthread_t *thread, void *(*run)(void *), void *context);

/** MILL_ERR_CONFIG if a rank asks for more than 64 threads and more than four per core: starting
 *  them would take gigabytes and hours. */
int mill_thread_check_number(int n_thread);

/** Wait at most this many seconds for the end of a thread.  Returns 1 if it has ended.  Returns
 *  0 if not: the thread is then detached, and its data must stay. */
int mill_thread_join_within(pthread_t thread, int seconds);

/** Initialise a condition variable whose waits use the monotonic clock of mill_wall_s.
 *  Returns 0 or an error number. */
int mill_cond_init(pthread_cond_t *cond);

/** Convert a time of mill_wall_s for pthread_cond_timedwait on a variable of mill_cond_init. */
struct timespec mill_cond_time(double wall_s);

/** Sleep for s seconds, or until *ends is set (mill_cond_end).  Locks the mutex, which guards
 *  *ends.  Returns 0 if *ends is set. */
int mill_cond_nap(pthread_cond_t *cond, pthread_mutex_t *mutex, const int *ends, double s);

/** Set *ends, which the mutex guards, and wake all threads that wait for the condition variable. */
void mill_cond_end(pthread_cond_t *cond, pthread_mutex_t *mutex, int *ends);
