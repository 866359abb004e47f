/* SPDX-License-Identifier: BSD-3-Clause */
/** Progress on rank 0: done, rate, time left.
 *
 *  A line redrawn at most twice a second on a terminal; nothing when standard
 *  error is no terminal or quiet is set.  One thread at a time; log lines of
 *  other threads do not run into it (mill_log_status).
 */
#ifndef MILL_PROGRESS_H
#define MILL_PROGRESS_H

#include <stdint.h>

typedef struct mill_progress {
  int active;
  int64_t n_total, n_first;
  double start_s, last_s; /**< monotonic clock; last_s: of the last drawing */
} mill_progress;

/** n_done of n_total are done already, which counts nothing for the rate. */
void mill_progress_start(mill_progress *progress, int64_t n_total, int64_t n_done, int quiet);
/** n_done of n_total, n_failed of them without a fit. */
void mill_progress_update(mill_progress *progress, int64_t n_done, int64_t n_failed);
/** Ends the line. */
void mill_progress_end(mill_progress *progress);

/** Text of the time left, "1h02m", "3m05s", "12s", "?" (not finite, negative
 *  or above 9999 hours) into out [size]. */
void mill_progress_eta(double left_s, char *out, int size);

#endif
