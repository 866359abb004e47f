/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/hints.h"

#include "kernels/star/blocks/prepare.h"
#include "src/stars/line_spread.h"
#include "src/system/log.h"
#include "src/config/arms.h"

/* ---- widths of line-spread functions ---- */

/* Segments that a rank examines at most: each costs as much time as loading a segment. */
enum { MOST_SEEN = 1000 };

void mill_narrow_note(mill_narrow_widths *widths, const mill_fit_settings *set,
                      const mill_library *lib, const mill_raw_segment *segment)
{
  const double most = MILL_LSF_NARROW * lib->arm[segment->arm].template_sigma_aa;
  if (!(most > 0.0) || widths->n_seen == MOST_SEEN)
    return;
  widths->n_seen++;
  const double sigma = mill_lsf_width(set, segment);
  if (!(sigma < most))
    return;
  widths->n[segment->arm]++;
  widths->sum_aa[segment->arm] += sigma;
}

void mill_segment_note(mill_segment_counts *counts, const mill_config *config,
                       const mill_library *lib, const mill_raw_segment *segment)
{
  const mill_arm_choice choice = mill_config_arm(config, lib->arm[segment->arm].name);
  counts->n_coarse += segment->resolution && lib->arm[segment->arm].sampling > 1;
  if (!mill_arm_has_width(&choice))
    return;
  const int is_used = segment->sigma_aa && !segment->has_own_lsf;
  counts->n_used += is_used;
  counts->n_unused += !is_used;
}

int mill_segment_hint(const mill_mpi *mpi, const mill_config *config,
                      const mill_segment_counts *mine, int is_whole)
{
  mill_segment_counts all = {0};
  MILL_CHECK_MPI(MPI_Reduce(mine, &all, (int)(sizeof all / sizeof(int64_t)), MPI_INT64_T, MPI_SUM,
                            0, mpi->comm));
  if (mpi->rank == 0 && all.n_used == 0 && all.n_unused > 0 && is_whole)
    mill_log_warning("resolving_power and fwhm are not used: %s",
                     config->lsf == MILL_LSF_OFF
                         ? "lsf is off"
                         : "the spectra have line-spread functions of their own (set lsf "
                           "to resolving_power to override them), or the templates are at the "
                           "instrument's resolution");
  if (mpi->rank == 0 && all.n_coarse > 0)
    mill_log_warning("VRAD and v sin i may be wrong: the key `sampling` skips wavelengths of the "
                     "library, but resolution matrices of %lld spectra need all; remove the key",
                     (long long)all.n_coarse);
  if (mpi->rank == 0 && all.n_untimed > 0)
    mill_log_warning("epochs: %lld spectra have no time: each exposure without one is an epoch, "
                     "even if it is an arm of another, so velocities may seem to vary",
                     (long long)all.n_untimed);
  return MILL_OK;
}

int mill_narrow_hint(const mill_mpi *mpi, const mill_library *lib, const mill_narrow_widths *mine,
                     int64_t n_narrow, int64_t n_fitted)
{
  mill_narrow_widths all = {.n_seen = 0};
  char arms[MILL_MAX_ARM * (MILL_MAX_NAME + 64)] = "";
  size_t n = 0;
  MILL_CHECK_MPI(MPI_Reduce(mine->n, all.n, MILL_MAX_ARM, MPI_DOUBLE, MPI_SUM, 0, mpi->comm));
  MILL_CHECK_MPI(
      MPI_Reduce(mine->sum_aa, all.sum_aa, MILL_MAX_ARM, MPI_DOUBLE, MPI_SUM, 0, mpi->comm));
  if (mpi->rank != 0 || 2 * n_narrow <= n_fitted)
    return MILL_OK;
  for (int a = 0; a < lib->n_arm; a++)
    if (all.n[a] > 0)
      n += (size_t)snprintf(arms + n, sizeof arms - n,
                            "%sarm %s: templates' sigma %.3g A, spectra's %.3g A",
                            n > 0 ? "; " : "", lib->arm[a].name, lib->arm[a].template_sigma_aa,
                            all.sum_aa[a] / all.n[a]);
  if (n > 0)
    mill_log_warning("%lld of %lld fitted rows have LSF_NARROW: in a tenth of their pixels or more "
                     "the templates are broader than the spectra (%s) and have too shallow lines; "
                     "use a library of higher resolution, such as the shipped fgk-hr.h5",
                     (long long)n_narrow, (long long)n_fitted, arms);
  return MILL_OK;
}

/* ---- air or vacuum ---- */

/* Shift of all velocities if air wavelengths are taken for vacuum or the reverse: (n - 1) c,
 * with the refractive index n of air; 82.7 km/s at 7000 A, 84.8 at 4000 A. */
static const double AIR_KM_S = 83.0;
/* Warn only if the median velocity has an error up to MOST_ERROR_KM_S, and differs from +-AIR_KM_S
 * by at most NEAR_KM_S plus this error: the Sun's motion shifts the median by some 10 km/s. */
static const double MOST_ERROR_KM_S = 10.0, NEAR_KM_S = 10.0;
static const int64_t LEAST_ROWS = 10;
static const double FIRST_KM_S = -200.0; /* lower edge of the histogram */

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

/* Return the velocity (km/s) below which the fraction `part` of the n counted velocities lies. */
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
  /* for a normal distribution, sigma is 0.741 times the distance between the quartiles, and the
   * error of the median is 1.253 sigma / sqrt(n) */
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
