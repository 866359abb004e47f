/* SPDX-License-Identifier: BSD-3-Clause */
/** Threads, and waits with a time limit on the clock of mill_wall_s. */
#ifndef MILL_THREAD_H
#define MILL_THREAD_H

#include <pthread.h>
#include <time.h>

/** Start a thread that takes no signals but those of its own crashes: the others are the main
 *  thread's.
 *  0, or the number that pthread_create gives (see strerror). */
int mill_thread_start(pthread_t *thread, void *(*run)(void *), void *context);

/** MILL_ERR_CONFIG when a rank asks for implausibly many threads: above 64 and above four per core.
 *  They would take gigabytes and hours before they fit. */
int mill_thread_check_number(int n_thread);

/** Wait for the end of a thread, these seconds at most.  1: it has ended; 0: it has not, and is
 *  detached, so its data must stay. */
int mill_thread_join_within(pthread_t thread, int seconds);

/** A condition whose waits end by the clock of mill_wall_s, which no one can set.
 *  0, or the number of the error. */
int mill_cond_init(pthread_cond_t *cond);

/** That moment of mill_wall_s, for pthread_cond_timedwait on such a condition. */
struct timespec mill_cond_time(double wall_s);

/** Sleep for s seconds at most, or until *ends, which the mutex guards and the condition signals.
 *  Takes the mutex itself.  0 when *ends. */
int mill_cond_nap(pthread_cond_t *cond, pthread_mutex_t *mutex, const int *ends, double s);

/** Set *ends, which the mutex guards, and wake all that wait for the condition. */
void mill_cond_end(pthread_cond_t *cond, pthread_mutex_t *mutex, int *ends);

#endif
