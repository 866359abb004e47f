/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/stars/epochs.h"

#include <stdlib.h>

#include "kernels/base/memory.h"

/* Exposures more than NIGHT_GAP days apart are of different nights. */
static const double NIGHT_GAP = 0.5;

typedef struct exposure_time {
  double mjd; /* infinite: unknown */
  int exposure;
} exposure_time;

static int by_mjd(const void *a, const void *b)
{
  const exposure_time *x = a, *y = b;
  return x->mjd != y->mjd ? (x->mjd > y->mjd) - (x->mjd < y->mjd)
                          : (x->exposure > y->exposure) - (x->exposure < y->exposure);
}

/* By night: order exposures by time; an epoch begins after a gap of NIGHT_GAP or more. */
int mill_star_number_epochs(mill_star *star, int by_night)
{
  mill_raw_segment *const end = star->segment + star->n_segment;
  exposure_time *time = NULL;
  int n = 0;
  MILL_CHECK(MILL_ALLOC(star->n_segment, &time));
  for (const mill_raw_segment *s = star->segment; s < end; s++)
    if (n == 0 || s->exposure != time[n - 1].exposure)
      time[n++] = (exposure_time){.mjd = by_night && isfinite(s->mjd) ? s->mjd : (double)INFINITY,
                                  .exposure = s->exposure};
  if (by_night)
    qsort(time, (size_t)n, sizeof *time, by_mjd);
  for (const exposure_time *t = time; t < time + n; t++) {
    /* exposures without a time differ by NaN: each is an epoch */
    star->n_epoch += t == time || !(t->mjd - t[-1].mjd < NIGHT_GAP);
    for (mill_raw_segment *s = star->segment; s < end; s++)
      if (s->exposure == t->exposure)
        s->epoch = star->n_epoch - 1;
  }
  mill_free(time);
  return MILL_OK;
}
