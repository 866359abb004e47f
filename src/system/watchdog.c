/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/system/watchdog.h"

#include <mpi.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "src/system/stop_signal.h"
#include "src/system/thread.h"

enum { N_SLOT = 64, TEXT = 1300, LOG_WAIT_S = 5, ABORT_WAIT_S = 20 };
static const double BOUND_S = 600.0, TICK_S = 1.0;

/* A call announced by mill_watch_begin. */
typedef struct slot {
  int used;
  enum mill_watch_kind kind;
  pthread_t thread; /* thread that announced the call */
  int64_t number;   /* order of announcement */
  double age_s, extra_s;
  double stop_s; /* seconds of age_s since a stop was requested */
  char what[TEXT];
} slot;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static slot slots[N_SLOT];
static struct {
  int is_on, ends, n_start;
  int64_t n_begun;
  double bound_s;
  void (*log)(const char *text);
  pthread_t thread;
} dog;
/* Message with the reason of an abort; is it logged already? */
static char last_words[TEXT + 200];
static _Atomic int is_logged;

static void *say(void *unused)
{
  (void)unused;
  if (dog.log) {
    dog.log(last_words);
    atomic_store(&is_logged, 1);
  }
  return NULL;
}

static void *say_plainly(void *unused)
{
  (void)unused;
  dprintf(STDERR_FILENO, "starmill: %s\n", last_words);
  return NULL;
}

/* Abort all ranks if MPI runs.  Else do nothing: the launcher sees this process's exit. */
static void *abort_all(void *status)
{
  int has_started = 0, has_ended = 0;
  if (MPI_Initialized(&has_started) == MPI_SUCCESS && MPI_Finalized(&has_ended) == MPI_SUCCESS &&
      has_started && !has_ended)
    MPI_Abort(MPI_COMM_WORLD, *(const int *)status);
  return NULL;
}

/* Call a function that may hang: run it on another thread and wait at most this many seconds. */
static void try_for(void *(*what)(void *), void *context, int seconds)
{
  pthread_t thread;
  if (pthread_create(&thread, NULL, what, context) == 0)
    (void)mill_thread_join_within(thread, seconds);
}

/* Return the seconds that a call of this kind may take after the stop request. */
static double patience_s(enum mill_watch_kind kind)
{
  const int number = mill_stop_signal_seen();
  const int is_urgent = number == SIGTERM || number == SIGINT;
  if (mill_stop_reason() == MILL_STOP_NONE || kind == MILL_WATCH_WORK)
    return INFINITY;
  if (kind == MILL_WATCH_START)
    return 5.0;
  if (!is_urgent) /* no SIGKILL will follow */
    return INFINITY;
  return kind == MILL_WATCH_FILE ? 20.0 : 25.0;
}

static double bound_s(const slot *s)
{
  return s->kind == MILL_WATCH_RANKS ? INFINITY : dog.bound_s + s->extra_s;
}

/* Report the late call, abort all ranks and exit.  Each step has a limit: log and MPI may hang. */
static void end_job(const slot *late)
{
  static int status; /* static, as the aborting thread may outlive this call */
  if (late->age_s > bound_s(late)) {
    status = mill_error_exit_status(MILL_ERR_INTERNAL);
    snprintf(last_words, sizeof last_words,
             "%s has not returned for %.0f s (a rank is gone, or a file system or device hangs): "
             "the job is aborted; the same command continues it",
             late->what, bound_s(late));
  } else {
    char why[64] = "";
    status = mill_error_exit_status(MILL_ERR_STOPPED);
    if (mill_stop_reason() == MILL_STOP_SIGNAL)
      snprintf(why, sizeof why, " by signal %d", mill_stop_signal_seen());
    snprintf(last_words, sizeof last_words,
             "stopped%s: %s has not returned for %.0f s; the same command continues the run", why,
             late->what, late->stop_s);
  }
  try_for(say, NULL, LOG_WAIT_S);
  if (!atomic_load(&is_logged))
    try_for(say_plainly, NULL, 1);
  try_for(abort_all, &status, ABORT_WAIT_S);
  _exit(status);
}

/* With the mutex locked, add step_s to the age of all announced calls.  If no call is late, return
 * NULL.  Else return the innermost (last announced) call that is late now or will be in a tick:
 * calls around it wait for it. */
static const slot *age_calls(double step_s, double tick_s)
{
  const slot *innermost = NULL;
  int is_late = 0;
  for (int i = 0; i < N_SLOT; i++) {
    slot *s = &slots[i];
    if (!s->used)
      continue;
    const double patience = patience_s(s->kind);
    s->age_s += step_s;
    s->stop_s += mill_stop_reason() != MILL_STOP_NONE ? step_s : 0;
    const double over_s = fmax(s->age_s - bound_s(s), s->stop_s - patience); /* above 0: late */
    is_late |= over_s > 0;
    if (over_s > -tick_s && (!innermost || s->age_s < innermost->age_s ||
                             (s->age_s == innermost->age_s && s->number > innermost->number)))
      innermost = s;
  }
  return is_late ? innermost : NULL;
}

/* Thread: look for late calls every tick. */
static void *watch(void *unused)
{
  (void)unused;
  const double tick_s = fmin(TICK_S, dog.bound_s / 4);
  double last_s = mill_wall_s();
  pthread_mutex_lock(&mutex);
  while (!dog.ends) {
    const struct timespec until = mill_cond_time(mill_wall_s() + tick_s);
    pthread_cond_timedwait(&changed, &mutex, &until);
    const double s = mill_wall_s();
    mill_stop_signal_take_waiting();
    /* count two ticks at most: in a longer step the process was suspended or the node overloaded */
    const slot *late = age_calls(fmin(s - last_s, 2 * tick_s), tick_s);
    last_s = s;
    if (late && !dog.ends) {
      const slot copy = *late;
      pthread_mutex_unlock(&mutex);
      end_job(&copy); /* does not return */
    }
  }
  pthread_mutex_unlock(&mutex);
  return NULL;
}

int mill_watchdog_start(void (*log)(const char *text))
{
  const char *text = getenv("STARMILL_WATCHDOG_S");
  char *end = NULL;
  if (dog.is_on) {
    dog.n_start++;
    dog.log = log ? log : dog.log;
    return MILL_OK;
  }
  dog.bound_s = BOUND_S;
  if (text) {
    dog.bound_s = strtod(text, &end);
    if (end == text || *end != '\0' || !(dog.bound_s > 0) || !isfinite(dog.bound_s))
      return MILL_ERROR(
          MILL_ERR_USAGE,
          "the environment variable STARMILL_WATCHDOG_S takes seconds above 0, not '%s'", text);
  }
  dog.log = log;
  dog.ends = 0;
  if (mill_cond_init(&changed) != 0)
    return MILL_ERROR(MILL_ERR_INTERNAL, "cannot make the watchdog's condition variable");
  const int rc = mill_thread_start(&dog.thread, watch, NULL);
  if (rc != 0) {
    pthread_cond_destroy(&changed);
    return MILL_ERROR(MILL_ERR_INTERNAL, "cannot start the watchdog's thread: %s", strerror(rc));
  }
  MILL_LOCKED(&mutex);
  dog.is_on = dog.n_start = 1;
  return MILL_OK;
}

void mill_watchdog_stop(void)
{
  pthread_mutex_lock(&mutex);
  const int is_last = dog.is_on && --dog.n_start == 0;
  if (is_last) {
    dog.is_on = 0;
    dog.ends = 1;
    memset(slots, 0, sizeof slots);
    pthread_cond_signal(&changed);
  }
  pthread_mutex_unlock(&mutex);
  if (!is_last)
    return;
  pthread_join(dog.thread, NULL);
  pthread_cond_destroy(&changed);
}

int mill_watch_begin(enum mill_watch_kind kind, double extra_s, const char *what, ...)
{
  int token = -1;
  MILL_LOCKED(&mutex);
  for (int i = 0; i < N_SLOT && dog.is_on && token < 0; i++)
    if (!slots[i].used)
      token = i;
  if (token >= 0) {
    slot *s = &slots[token];
    va_list args;
    *s = (slot){1, kind, pthread_self(), .number = dog.n_begun++, .extra_s = extra_s};
    va_start(args, what);
    vsnprintf(s->what, sizeof s->what, what, args);
    va_end(args);
  }
  return token;
}

void mill_watch_again(void)
{
  MILL_LOCKED(&mutex);
  for (int i = 0; i < N_SLOT; i++)
    if (slots[i].used && pthread_equal(slots[i].thread, pthread_self()))
      slots[i].age_s = slots[i].stop_s = 0;
}

void mill_watch_end(int token)
{
  if (token < 0)
    return;
  MILL_LOCKED(&mutex);
  slots[token].used = 0;
}
