/* SPDX-License-Identifier: BSD-3-Clause */
/** Progress on rank 0: part done, rate, time left.
 *
 *  On a terminal it is a bar, redrawn at most five times a second.  If standard error is a file
 *  or a pipe, as under mpirun and Slurm, it is a log line each minute.  One thread at a time.
 *  Log lines replace the bar (mill_log_status). */
#pragma once

#include <stdint.h>

typedef struct mill_progress {
  int active, is_terminal;
  const char *what; /**< things counted, "stars"; borrowed */
  int64_t n_total, n_first, n_last;
  double start_s, last_s; /**< times of n_first (-1: none yet) and n_last, by mill_wall_s */
  double shown_s;         /**< time when progress was last shown */
  double rate;            /**< things/s, smoothed over half a minute */
} mill_progress;

/** Start; quiet 1: show nothing. */
void mill_progress_start(mill_progress *progress, const char *what, int64_t n_total, int quiet);
/** Show that n_done are done, n_failed of them failed.  The rate counts from the first call. */
void mill_progress_update(mill_progress *progress, int64_t n_done, int64_t n_failed);
/** On a terminal, end the bar's line. */
void mill_progress_end(mill_progress *progress);

/** Write a time as "1h02m", "3m05s" or "12s" into out [size]; "?" if not 0 s to 9999 h. */
void mill_progress_eta(double left_s, char *out, int size);
