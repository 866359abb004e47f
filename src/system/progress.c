/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/system/progress.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "src/system/log.h"

#define REDRAW_S 0.5

void mill_progress_start(mill_progress *progress, int64_t n_total, int64_t n_done, int quiet)
{
  progress->active = !quiet && isatty(STDERR_FILENO);
  progress->n_total = n_total;
  progress->n_first = n_done;
  progress->start_s = mill_wall_s();
  progress->last_s = -INFINITY; /* the first update draws */
}

void mill_progress_update(mill_progress *progress, int64_t n_done, int64_t n_failed)
{
  char eta[16], text[128];
  if (!progress->active)
    return;
  const double now = mill_wall_s();
  const int64_t n_left = progress->n_total - n_done;
  if (now - progress->last_s < REDRAW_S && n_left > 0)
    return;
  progress->last_s = now;
  const double passed_s = now - progress->start_s;
  /* over the whole run: the fits of a block end in bursts */
  const double rate = passed_s > 0.0 ? (double)(n_done - progress->n_first) / passed_s : 0.0;
  mill_progress_eta(n_left > 0 ? (double)n_left / rate : 0.0, eta, sizeof eta);
  const double percent =
      progress->n_total > 0 ? 100.0 * (double)n_done / (double)progress->n_total : 100.0;
  snprintf(text, sizeof text, "%lld/%lld (%.1f %%)  %lld failed  %.*f/s  %s left",
           (long long)n_done, (long long)progress->n_total, percent, (long long)n_failed,
           rate < 10.0 ? 2 : 0, rate, eta);
  mill_log_status(text);
}

void mill_progress_end(mill_progress *progress)
{
  if (progress->active)
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
