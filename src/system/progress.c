/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/system/progress.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "src/system/log.h"

static const double REDRAW_S = 0.2, LOG_S = 60, SMOOTH_S = 30;
enum { BAR = 20 };

void mill_progress_start(mill_progress *progress, const char *what, int64_t n_total, int quiet)
{
  const double now_s = mill_wall_s();
  *progress = (mill_progress){.active = !quiet,
                              .is_terminal = isatty(STDERR_FILENO),
                              .what = what,
                              .n_total = n_total,
                              .n_first = -1};
  /* a terminal shows the bar at once */
  progress->shown_s = progress->is_terminal ? -INFINITY : now_s;
}

/* Update the rate.  It is the mean since the first call; after SMOOTH_S seconds it becomes an
 * exponential average, since rows end in bursts. */
static void note_rate(mill_progress *p, int64_t n_done, double now_s)
{
  if (p->n_first < 0) {
    p->n_first = p->n_last = n_done;
    p->start_s = p->last_s = now_s;
  }
  const double passed_s = now_s - p->start_s, step_s = now_s - p->last_s;
  if (step_s <= 0.0 || n_done == p->n_first)
    return;
  const double recent = (double)(n_done - p->n_last) / step_s;
  p->rate = passed_s < SMOOTH_S ? (double)(n_done - p->n_first) / passed_s
                                : p->rate + (1.0 - exp(-step_s / SMOOTH_S)) * (recent - p->rate);
  p->n_last = n_done;
  p->last_s = now_s;
}

void mill_progress_update(mill_progress *progress, int64_t n_done, int64_t n_failed)
{
  char bar[BAR + 4] = "", eta[16], text[128];
  if (!progress->active)
    return;
  const double now_s = mill_wall_s();
  const int64_t n_left = progress->n_total - n_done;
  note_rate(progress, n_done, now_s);
  const int is_last = n_left <= 0 && progress->is_terminal;
  if (now_s - progress->shown_s < (progress->is_terminal ? REDRAW_S : LOG_S) && !is_last)
    return;
  progress->shown_s = now_s;
  const double part = progress->n_total > 0 ? (double)n_done / (double)progress->n_total : 1.0;
  if (progress->is_terminal)
    snprintf(bar, sizeof bar, "[%-*.*s] ", BAR, (int)(part * BAR), "====================");
  mill_progress_eta(n_left > 0 ? (double)n_left / progress->rate : 0.0, eta, sizeof eta);
  snprintf(text, sizeof text, "%s%.1f %%  %lld/%lld %s  %lld failed  %.*f/s  %s left", bar,
           100.0 * part, (long long)n_done, (long long)progress->n_total, progress->what,
           (long long)n_failed, progress->rate < 10.0 ? 2 : 0, progress->rate, eta);
  if (progress->is_terminal)
    mill_log_status(text);
  else
    mill_log_info("%s", text);
}

void mill_progress_end(mill_progress *progress)
{
  if (progress->active && progress->is_terminal)
    mill_log_status(NULL);
  progress->active = 0;
}

void mill_progress_eta(double left_s, char *out, int size)
{
  if (!(left_s >= 0.0 && left_s <= 9999.0 * 3600.0)) {
    snprintf(out, (size_t)size, "?");
    return;
  }
  const long s = lround(left_s);
  if (s >= 3600)
    snprintf(out, (size_t)size, "%ldh%02ldm", s / 3600, s % 3600 / 60);
  else if (s >= 60)
    snprintf(out, (size_t)size, "%ldm%02lds", s / 60, s % 60);
  else
    snprintf(out, (size_t)size, "%lds", s);
}
