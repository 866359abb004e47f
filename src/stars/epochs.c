/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/stars/epochs.h"

#include <stdlib.h>

#include "kernels/base/memory.h"

/* A gap of NIGHT_GAP days or more between successive exposures begins a new night.  Exposures less
 * than AT_ONCE days apart whose spectra do not overlap in wavelength are arms of one exposure. */
static const double NIGHT_GAP = 0.5, AT_ONCE = 1e-4;

typedef struct exposure_time {
  double mjd; /* infinite: unknown; such times differ by NaN, so each is an epoch */
  int epoch, n;
  mill_raw_segment *segment; /* [n] */
} exposure_time;

static int by_mjd(const void *a, const void *b)
{
  const exposure_time *x = a, *y = b;
  return x->mjd != y->mjd ? (x->mjd > y->mjd) - (x->mjd < y->mjd)
                          : (x->segment > y->segment) - (x->segment < y->segment);
}

/* Does s cover the middle of r?  Spectra of neighbouring cameras do not. */
static int covers(const mill_raw_segment *s, const mill_raw_segment *r)
{
  const double middle_aa = r->wave_aa[r->n_pix / 2];
  return s->arm == r->arm && s->wave_aa[0] <= middle_aa && middle_aa <= s->wave_aa[s->n_pix - 1];
}

/* Does an earlier spectrum of this epoch overlap exposure t? */
static int overlaps(const mill_star *star, const exposure_time *t, int epoch)
{
  for (const mill_raw_segment *r = star->segment; r < t->segment; r++)
    for (const mill_raw_segment *s = t->segment; r->epoch == epoch && s < t->segment + t->n; s++)
      if (covers(s, r) || covers(r, s))
        return 1;
  return 0;
}

/* Return the first epoch at the time of exposure t that it does not overlap; -1: none. */
static int find_epoch(const mill_star *star, const exposure_time *t)
{
  for (const mill_raw_segment *r = star->segment; r < t->segment; r++)
    if (fabs(t->mjd - r->mjd) < AT_ONCE && !overlaps(star, t, r->epoch))
      return r->epoch;
  return -1;
}

int mill_star_number_epochs(mill_star *star, int by_night)
{
  MILL_OWNED exposure_time *time = NULL;
  int n = 0;
  MILL_CHECK(MILL_ALLOC(star->n_segment, &time));
  for (mill_raw_segment *s = star->segment; s < star->segment + star->n_segment; s++) {
    if (n == 0 || s->exposure != s[-1].exposure)
      time[n++] =
          (exposure_time){.mjd = isfinite(s->mjd) ? s->mjd : (double)INFINITY, .segment = s};
    time[n - 1].n++;
  }
  if (by_night)
    qsort(time, (size_t)n, sizeof *time, by_mjd);
  for (exposure_time *t = time; t < time + n; t++) {
    int epoch = -1; /* a new epoch */
    if (!by_night)
      epoch = find_epoch(star, t);
    else if (t > time && t->mjd - t[-1].mjd < NIGHT_GAP)
      epoch = t[-1].epoch;
    t->epoch = epoch >= 0 ? epoch : star->n_epoch++;
    for (int i = 0; i < t->n; i++)
      t->segment[i].epoch = t->epoch;
  }
  return MILL_OK;
}
