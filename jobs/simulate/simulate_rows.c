#include "jobs/simulate/simulate_rows.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/math/doppler.h"
#include "src/system/random.h"
#include "src/system/select.h"

enum {
  N_FIBER = 5000,         /* of the instrument, 500 a petal */
  STATUS_BROKEN = 1 << 2, /* a forbidden bit of the fiber status */
  STATUS_REACH = 1 << 3,  /* an allowed one: restricted reach */
  MWS_BROAD = 1 << 0,     /* of MWS_TARGET */
  ZWARN_SKY = 1 << 0,     /* bits of redrock */
  ZWARN_DELTACHI2 = 1 << 2,
  ZWARN_NEGATIVE = 1 << 3,
  ZWARN_NODATA = 1 << 9,
  PURPOSE_REDROCK = 0x7272 /* of the random numbers; the stars' own are small */
};
#define DESI_MWS_ANY    (INT64_C(1) << 61)
#define DESI_SKY        (INT64_C(1) << 32)
#define GAIA_EPOCH      2015.5f
#define GALAXY_Z        0.3
#define MAX_NOISE_Z     1.6
#define NOISE_Z_ERROR   1e-3
#define Z_ERROR_AT_SN10 2e-5 /* 6 km/s */

/* Mean of the elements of ranks below and above (the same, or neighbours) of x [n]. */
static float mean_of_ranks(float *x, int n, int below, int above)
{
  const float upper = mill_select_float(n, x, above);
  float lower = upper;
  if (below < above) {
    lower = x[0];
    for (int i = 1; i < above; i++)
      lower = x[i] > lower ? x[i] : lower;
  }
  return 0.5f * (lower + upper);
}

/* Median of the elements of x [n] that are not NaN; 0 without any.  spare [n] is written.
 * The middle of a sample bounds the few elements among which the median is: one pass without
 * branches finds them, several times faster than partitioning them all. */
static float median(const float *x, int n, float *spare)
{
  enum { N_SAMPLE = 64, MARGIN = 12 };
  float sample[N_SAMPLE], low = -INFINITY, high = INFINITY;
  int n_good = 0, n_sample = 0, n_low = 0, n_inner = 0;
  for (int i = 0; i < n; i++)
    n_good += !isnan(x[i]);
  if (n_good == 0)
    return 0.0f;
  const int below = (n_good - 1) / 2, above = n_good / 2;
  for (int i = 0; i < N_SAMPLE && n > 8 * N_SAMPLE; i++) {
    const float value = x[(int64_t)i * n / N_SAMPLE];
    sample[n_sample] = value;
    n_sample += !isnan(value);
  }
  if (n_sample > 2 * MARGIN) {
    high = mill_select_float(n_sample, sample, n_sample / 2 + MARGIN);
    low = mill_select_float(n_sample, sample, n_sample / 2 - MARGIN);
  }
  for (int pass = 0; pass < 2; pass++) {
    n_low = n_inner = 0;
    for (int i = 0; i < n; i++) {
      spare[n_inner] = x[i];
      n_inner += (x[i] >= low) & (x[i] <= high);
      n_low += x[i] < low;
    }
    if (below >= n_low && above < n_low + n_inner)
      break;
    low = -INFINITY; /* the sample was a strange one: all of them */
    high = INFINITY;
  }
  return mean_of_ranks(spare, n_inner, below - n_low, above - n_low);
}

float mill_simulate_median_snr(int n_pix, const float *flux, const float *ivar, const int32_t *mask,
                               float *scratch)
{
  for (int i = 0; i < n_pix; i++) {
    /* infinity and NaN are not below it */
    const int good =
        (mask[i] == 0) & (fabsf(flux[i]) <= FLT_MAX) & (ivar[i] > 0.0f) & (ivar[i] <= FLT_MAX);
    const float snr = flux[i] * sqrtf(good ? ivar[i] : 0.0f);
    scratch[i] = good ? snr : NAN;
  }
  return median(scratch, n_pix, scratch + n_pix);
}

static float nanomaggies(double magnitude)
{
  return (float)pow(10.0, 0.4 * (22.5 - magnitude));
}

void mill_simulate_fibermap_row(const mill_mock_star *star, const mill_mock_row *row,
                                float *scratch, mill_fibermap_row *out)
{
  const int is_sky = star->kind == MILL_MOCK_SKY;
  /* fibers of one group share a line-spread function, as neighbours in a spectrograph do */
  const int n_group_fiber = N_FIBER / MILL_MOCK_N_LSF;
  memset(out, 0, sizeof *out);
  out->target_id = star->target_id;
  out->fiber = star->lsf_group * n_group_fiber + (int32_t)(star->index % n_group_fiber);
  out->location = out->fiber / 500 * 1000 + out->fiber % 500;
  out->fiber_status = star->kind == MILL_MOCK_BAD_FIBER       ? STATUS_BROKEN
                      : star->kind == MILL_MOCK_ALLOWED_FIBER ? STATUS_REACH
                                                              : 0;
  out->ra_deg = star->ra_deg;
  out->dec_deg = star->dec_deg;
  out->ref_epoch = GAIA_EPOCH;
  out->ref_id = is_sky ? -1 : star->index + 1;
  snprintf(out->ref_cat, sizeof out->ref_cat, "%s", is_sky ? "" : "G2");
  snprintf(out->objtype, sizeof out->objtype, "%s", is_sky ? "SKY" : "TGT");
  out->desi_target = is_sky ? DESI_SKY : DESI_MWS_ANY;
  out->mws_target = is_sky ? 0 : MWS_BROAD;
  if (!is_sky) {
    out->flux_g = nanomaggies(star->mag_g);
    out->flux_r = nanomaggies(star->mag_r);
    out->flux_z = nanomaggies(star->mag_z);
  }
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    out->median_snr[a] = mill_simulate_median_snr(mill_mock_arm_of[a].n_pix, row->flux[a],
                                                  row->ivar[a], row->mask[a], scratch);
}

static const char *subtype(double teff_k)
{
  return !(teff_k < 7500.0) ? "A" : teff_k >= 6000.0 ? "F" : teff_k >= 5200.0 ? "G" : "K";
}

void mill_simulate_redrock_row(const mill_mock_star *star, double teff_k, uint64_t seed,
                               mill_redrock_row *out)
{
  mill_random random;
  int n_pix = 0;
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    n_pix += mill_mock_arm_of[a].n_pix;
  mill_random_begin(&random, seed, (uint64_t)star->index, PURPOSE_REDROCK);
  memset(out, 0, sizeof *out);
  out->target_id = star->target_id;
  out->chi2 = n_pix;
  if (star->kind == MILL_MOCK_SKY || star->kind == MILL_MOCK_NOISE) {
    /* redrock always finds something */
    out->z = MAX_NOISE_Z * mill_random_uniform(&random);
    out->zerr = NOISE_Z_ERROR;
    out->zwarn = ZWARN_DELTACHI2 | (star->kind == MILL_MOCK_SKY ? ZWARN_SKY : 0);
    snprintf(out->spectype, sizeof out->spectype, "GALAXY");
    return;
  }
  out->zerr = Z_ERROR_AT_SN10 * 10.0 / star->sn;
  out->z = expm1(-mill_doppler_ln(star->vrad_km_s)) + out->zerr * mill_random_normal(&random);
  out->delta_chi2 = n_pix * star->sn * star->sn / 100.0;
  snprintf(out->spectype, sizeof out->spectype, "STAR");
  snprintf(out->subtype, sizeof out->subtype, "%s", isnan(teff_k) ? "" : subtype(teff_k));
  switch (star->kind) {
  case MILL_MOCK_GALAXY:
    snprintf(out->spectype, sizeof out->spectype, "GALAXY");
    out->subtype[0] = '\0';
    out->z = GALAXY_Z;
    break;
  case MILL_MOCK_NEGATIVE:
    out->zwarn = ZWARN_NEGATIVE;
    break;
  case MILL_MOCK_NO_ARM:
    out->zwarn = ZWARN_NODATA;
    out->chi2 = 0.0;
    out->delta_chi2 = 0.0;
    break;
  default:
    break;
  }
}

void mill_simulate_truth_row(const mill_mock_star *star, int per_file, mill_truth_row *out)
{
  memset(out, 0, sizeof *out);
  out->target_id = star->target_id;
  memcpy(out->label, star->label, sizeof out->label);
  out->vrad_km_s = star->vrad_km_s;
  out->vsini_km_s = star->vsini_km_s;
  out->sn = star->sn;
  out->lsf_group = star->lsf_group;
  out->template_index = star->template_index;
  out->file = (int32_t)(star->index / per_file);
  out->fits_row = star->index % per_file;
  snprintf(out->kind, sizeof out->kind, "%s", mill_mock_kind_name(star->kind));
}
