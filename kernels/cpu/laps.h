/* SPDX-License-Identifier: BSD-3-Clause */
/** Times of a thread that fits. */
#pragma once

#include "kernels/base/clock.h"
#include "kernels/base/timing.h"

/** Seconds since *last; sets *last to now. */
static inline double lap_s(double *last)
{
  const double now = mill_wall_s(), lap = now - *last;
  *last = now;
  return lap;
}

/** lap_s measures wall time, which is cheap to read but includes the time of other programs.  So
 *  laps_end scales the laps since laps_begin to the thread's CPU time. */
typedef struct mill_laps {
  mill_timing before;
  double wall_s, cpu_s;
} mill_laps;

static inline void laps_begin(mill_laps *laps, const mill_timing *timing)
{
  laps->before = *timing;
  laps->cpu_s = mill_thread_cpu_s();
  laps->wall_s = mill_wall_s();
}

static inline void laps_end(const mill_laps *laps, mill_timing *timing)
{
  const double wall_s = mill_wall_s() - laps->wall_s, cpu_s = mill_thread_cpu_s() - laps->cpu_s;
  const double share = cpu_s < wall_s ? cpu_s / wall_s : 1.0;
  for (int p = 0; p < MILL_N_PHASE; p++) {
    timing->emulate_s[p] =
        laps->before.emulate_s[p] + share * (timing->emulate_s[p] - laps->before.emulate_s[p]);
    timing->pixel_s[p] =
        laps->before.pixel_s[p] + share * (timing->pixel_s[p] - laps->before.pixel_s[p]);
  }
}
