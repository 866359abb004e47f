/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/run/stop_watch.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/base/clock.h"
#include "src/system/log.h"
#include "src/system/stop_signal.h"
#include "src/system/thread.h"
#include "src/system/watchdog.h"

enum { TICK_MS = 200, MAX_PATH = 4096, LAST_WAIT_S = 5 };
/* Wait of ranks other than 0 before they ask all ranks to stop: rank 0 usually asks first. */
static const double OTHERS_WAIT_S = 1.0;

struct mill_stop_watch {
  mill_mpi *mpi;
  char file[MAX_PATH]; /* stop file; empty: none, or not rank 0 */
  double limit_s, start_s;
  _Atomic double star_s, write_s;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int ends;
  pthread_t thread;
};

static void keep_largest(_Atomic double *largest, double s)
{
  double old = atomic_load(largest);
  while (s > old && !atomic_compare_exchange_weak(largest, &old, s))
    ;
}

void mill_stop_watch_star(mill_stop_watch *watch, double s)
{
  if (watch)
    keep_largest(&watch->star_s, s);
}

void mill_stop_watch_write(mill_stop_watch *watch, double s)
{
  if (watch)
    keep_largest(&watch->write_s, s);
}

double mill_stop_margin(double star_s, double write_s)
{
  return 2.0 * (star_s > 0 ? star_s : 2.5) + 3.0 * write_s + 2.0;
}

static double left_s(const mill_stop_watch *watch)
{
  return watch->limit_s - (mill_wall_s() - watch->start_s);
}

static double margin_s(const mill_stop_watch *watch)
{
  return mill_stop_margin(atomic_load(&watch->star_s), atomic_load(&watch->write_s));
}

static int is_there(const char *file)
{
  struct stat status;
  return lstat(file, &status) == 0;
}

int mill_stop_file_absent(const char *file)
{
  MILL_WATCHED(MILL_WATCH_START, 0, "%s: looking for it", file);
  if (is_there(file))
    return MILL_ERROR(MILL_ERR_STOPPED,
                      "not started: the stop file %s exists; remove it and repeat the command",
                      file);
  return MILL_OK;
}

void mill_stop_watch_text(const mill_stop_watch *watch, char *out, size_t size)
{
  switch (mill_stop_reason()) {
  case MILL_STOP_SIGNAL:
    snprintf(out, size, "signal %d", mill_stop_signal_seen());
    break;
  case MILL_STOP_FILE:
    snprintf(out, size, "stop file %s", watch ? watch->file : "");
    break;
  case MILL_STOP_LIMIT:
    snprintf(out, size, "--time-limit: only %.0f s are left, and stopping may take %.0f s",
             watch ? left_s(watch) : 0.0, watch ? margin_s(watch) : 0.0);
    break;
  default:
    snprintf(out, size, "another rank stops");
  }
}

/* Look once for reasons to stop, and tell the other ranks: rank 0 at once, others OTHERS_WAIT_S
 * later.  Returns 0 when the thread may end.  is_there may hang, so it comes before the lock. */
static int look(mill_stop_watch *watch, double *next_file_s, double *first_s)
{
  int found = 0;
  const double now_s = mill_wall_s();
  if (watch->file[0] && now_s >= *next_file_s && mill_stop_reason() == MILL_STOP_NONE) {
    *next_file_s = now_s + MILL_STOP_FILE_S;
    found = is_there(watch->file);
  }
  MILL_LOCKED(&watch->mutex);
  if (watch->ends)
    return 0;
  if (found)
    mill_stop_note(MILL_STOP_FILE);
  if (watch->limit_s > 0 && left_s(watch) <= margin_s(watch))
    mill_stop_note(MILL_STOP_LIMIT);
  if (watch->mpi->size > 1 && mill_mpi_stop_asked(watch->mpi))
    mill_stop_note(MILL_STOP_OTHER);
  if (mill_stop_reason() == MILL_STOP_NONE)
    return 1;
  if (*first_s < 0)
    *first_s = now_s; /* when a reason to stop was first seen */
  if (watch->mpi->rank > 0 && now_s - *first_s < OTHERS_WAIT_S)
    return 1;
  if (mill_mpi_stop_others(watch->mpi) != MILL_OK)
    mill_log_warning("the other ranks cannot be asked to stop: %s", mill_error_message());
  return 0;
}

static void *watch_out(void *context)
{
  mill_stop_watch *watch = context;
  double next_file_s = 0, first_s = -1;
  while (look(watch, &next_file_s, &first_s) &&
         mill_cond_nap(&watch->changed, &watch->mutex, &watch->ends, 1e-3 * TICK_MS))
    ;
  return NULL;
}

int mill_stop_watch_start(mill_mpi *mpi, const char *file, double limit_s, double start_s,
                          mill_stop_watch **out)
{
  MILL_OWNED mill_stop_watch *watch = NULL;
  *out = NULL;
  MILL_CHECK(MILL_ALLOC(1, &watch));
  watch->mpi = mpi;
  watch->limit_s = limit_s;
  watch->start_s = start_s;
  if (file && mpi->rank == 0)
    snprintf(watch->file, sizeof watch->file, "%s", file);
  if (pthread_mutex_init(&watch->mutex, NULL) != 0 || mill_cond_init(&watch->changed) != 0)
    return MILL_ERROR(MILL_ERR_INTERNAL, "no memory to watch for a stop%s", mill_memory_limit());
  const int rc = mill_thread_start(&watch->thread, watch_out, watch);
  if (rc != 0)
    return MILL_ERROR(MILL_ERR_INTERNAL, "cannot start the thread that watches for a stop: %s%s",
                      strerror(rc), mill_memory_limit());
  return MILL_GIVE(&watch, out);
}

void mill_stop_watch_end(mill_stop_watch *watch)
{
  if (!watch)
    return;
  mill_cond_end(&watch->changed, &watch->mutex, &watch->ends);
  if (!mill_thread_join_within(watch->thread, LAST_WAIT_S)) {
    /* the thread hangs in the file system and still uses this memory: do not free it */
    mill_log_warning("stop file %s: the file system hung for %d s", watch->file, LAST_WAIT_S);
    return;
  }
  pthread_mutex_destroy(&watch->mutex);
  pthread_cond_destroy(&watch->changed);
  mill_free(watch);
}
