/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/stars/epochs.h"

#include <stdlib.h>

#include "kernels/base/memory.h"

/* Exposures more than NIGHT_GAP days apart are of different nights.  Exposures of different arms
 * within AT_ONCE days are one: its arms came in several files. */
static const double NIGHT_GAP = 0.5, AT_ONCE = 1e-4;

typedef struct exposure_time {
  double mjd; /* infinite: unknown; such times differ by NaN, so each is an epoch */
  int exposure, epoch;
  unsigned arms; /* bits, of all exposures of the epoch; all: not the first of its epoch */
} exposure_time;

static int by_mjd(const void *a, const void *b)
{
  const exposure_time *x = a, *y = b;
  return x->mjd != y->mjd ? (x->mjd > y->mjd) - (x->mjd < y->mjd)
                          : (x->exposure > y->exposure) - (x->exposure < y->exposure);
}

/* Return an earlier exposure of the same epoch; t: none. */
static exposure_time *partner(exposure_time *time, exposure_time *t, int by_night)
{
  if (by_night)
    return t > time && t->mjd - t[-1].mjd < NIGHT_GAP ? t - 1 : t;
  while (time < t && (!(fabs(t->mjd - time->mjd) < AT_ONCE) || (time->arms & t->arms)))
    time++;
  return time;
}

/* By night: order exposures by time; an epoch begins after a gap of NIGHT_GAP or more. */
int mill_star_number_epochs(mill_star *star, int by_night)
{
  mill_raw_segment *const end = star->segment + star->n_segment;
  MILL_OWNED exposure_time *time = NULL;
  int n = 0;
  MILL_CHECK(MILL_ALLOC(star->n_segment, &time));
  for (const mill_raw_segment *s = star->segment; s < end; s++) {
    if (n == 0 || s->exposure != time[n - 1].exposure)
      time[n++] = (exposure_time){.mjd = isfinite(s->mjd) ? s->mjd : (double)INFINITY,
                                  .exposure = s->exposure};
    time[n - 1].arms |= 1u << s->arm;
  }
  if (by_night)
    qsort(time, (size_t)n, sizeof *time, by_mjd);
  for (exposure_time *t = time; t < time + n; t++) {
    exposure_time *const with = partner(time, t, by_night);
    t->epoch = with < t ? with->epoch : star->n_epoch++;
    with->arms |= t->arms;
    if (with < t)
      t->arms = ~0u;
    for (mill_raw_segment *s = star->segment; s < end; s++)
      if (s->exposure == t->exposure)
        s->epoch = t->epoch;
  }
  return MILL_OK;
}
