/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/medium_hint.h"

#include <math.h>

#include "kernels/base/error.h"
#include "src/system/log.h"

/* (n - 1) c of air: 82.9 km/s at 7000 A, 84.5 at 4000 */
static const double AIR_KM_S = 83.0;
/* How well the median must be known, and how near it must be: the Sun's motion among nearby stars
   alone is some 10 km/s.  Stars of a hot population need some hundred rows. */
static const double MOST_ERROR_KM_S = 10.0, NEAR_KM_S = 10.0;
static const int64_t LEAST_ROWS = 10;
static const double FIRST_KM_S = -200.0;

void mill_velocity_count(mill_velocity_counts *counts, const mill_fit_result *result)
{
  const int64_t bad = MILL_WARN_CHISQ | MILL_WARN_VEL_LIMIT | MILL_WARN_VEL_ERR |
                      MILL_WARN_BAD_SPECTRUM | MILL_WARN_NEGATIVE | MILL_WARN_NOT_CONVERGED |
                      MILL_WARN_NONFINITE;
  if (result->status != MILL_STATUS_FITTED || result->warn & bad || !isfinite(result->vrad_km_s))
    return;
  const double bin = 1.0 + floor(result->vrad_km_s - FIRST_KM_S);
  counts->n[bin < 0.0 ? 0 : bin > MILL_HINT_BINS - 1 ? MILL_HINT_BINS - 1 : (int)bin]++;
}

/* The velocity below which a part of them is. */
static double quantile(const mill_velocity_counts *counts, int64_t n, double part)
{
  double below = 0.0;
  for (int i = 0; i < MILL_HINT_BINS; i++) {
    const double in = (double)counts->n[i], wanted = part * (double)n;
    if (in > 0.0 && below + in >= wanted)
      return FIRST_KM_S + (double)(i - 1) + (wanted - below) / in;
    below += in;
  }
  return -FIRST_KM_S;
}

int mill_medium_shift(const mill_velocity_counts *counts, double *median_km_s, int64_t *n)
{
  *n = 0;
  for (int i = 0; i < MILL_HINT_BINS; i++)
    *n += counts->n[i];
  *median_km_s = quantile(counts, *n, 0.5);
  /* of a normal distribution sigma is 0.741 times the distance of the quartiles, and the error of
     the median 1.253 sigma / sqrt(n) */
  const double sigma = 0.741 * (quantile(counts, *n, 0.75) - quantile(counts, *n, 0.25));
  const double error = 1.253 * sigma / sqrt((double)(*n > 0 ? *n : 1));
  if (*n < LEAST_ROWS || error > MOST_ERROR_KM_S ||
      fabs(fabs(*median_km_s) - AIR_KM_S) > NEAR_KM_S + error)
    return 0;
  return *median_km_s < 0.0 ? -1 : 1;
}

int mill_medium_hint(const mill_mpi *mpi, const mill_velocity_counts *mine)
{
  mill_velocity_counts all = {{0}};
  double median = 0.0;
  int64_t n = 0;
  MILL_CHECK_MPI(MPI_Reduce(mine->n, all.n, MILL_HINT_BINS, MPI_INT64_T, MPI_SUM, 0, mpi->comm));
  const int sign = mpi->rank == 0 ? mill_medium_shift(&all, &median, &n) : 0;
  if (sign != 0)
    mill_log_warning(
        "the median velocity of %lld rows is %.0f km/s, typical of wavelengths in %s that are read "
        "as %s: check the medium of the spectra (--medium %s) and of the library",
        (long long)n, median, sign < 0 ? "air" : "vacuum", sign < 0 ? "vacuum" : "air",
        sign < 0 ? "air" : "vacuum");
  return MILL_OK;
}
