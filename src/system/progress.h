/* SPDX-License-Identifier: BSD-3-Clause */
/** Progress on rank 0: done, rate, time left.
 *
 *  On a terminal a bar, redrawn at most five times a second; where standard error is a file or a
 *  pipe, as under mpirun and Slurm, a line of the log each minute.  One thread at a time; log
 *  lines of other threads do not run into the bar (mill_log_status).
 */
#ifndef MILL_PROGRESS_H
#define MILL_PROGRESS_H

#include <stdint.h>

typedef struct mill_progress {
  int active, is_terminal;
  const char *what; /**< of what there are n_total: "stars"; borrowed */
  int64_t n_total, n_first, n_last;
  double start_s, last_s; /**< monotonic clock; of n_first (-1: none yet) and n_last */
  double shown_s;         /**< when it was shown last */
  double rate;            /**< a second, smoothed over half a minute */
} mill_progress;

/** quiet: show nothing. */
void mill_progress_start(mill_progress *progress, const char *what, int64_t n_total, int quiet);
/** n_done of n_total, n_failed of them without a fit; the first call begins the rate. */
void mill_progress_update(mill_progress *progress, int64_t n_done, int64_t n_failed);
/** Ends the line. */
void mill_progress_end(mill_progress *progress);

/** Text of the time left, "1h02m", "3m05s", "12s", "?" (not finite, negative
 *  or above 9999 hours) into out [size]. */
void mill_progress_eta(double left_s, char *out, int size);

#endif
