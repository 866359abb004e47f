/* SPDX-License-Identifier: BSD-3-Clause */
/* The instrument: wavelengths, line-spread functions, throughput, sky and read noise.
 * docs/science/simulator.md gives the formulas and where their constants come from. */
#include <math.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/mock/mock_internal.h"
#include "src/system/select.h"

const mill_mock_arm mill_mock_arm_of[MILL_MOCK_N_ARM] = {
    {"b", 3600.0, 0.8, 2751}, {"r", 5760.0, 0.8, 2326}, {"z", 7520.0, 0.8, 2881}};

/* an exposure of a survey telescope: photons per pixel follow from these */
#define AREA_CM2      8.66e4 /* of the mirror, its obstruction taken off */
#define EXPOSURE_S    1000.0
#define PHOTON_ERG_AA 1.98644586e-8 /* h c: energy of a photon times its wavelength in A */
#define FLUX_UNIT     1e-17
#define READ_VARIANCE 50.0 /* electrons^2 of one extracted pixel: about 4 x 3.5^2 */
#define SKY_RESIDUAL  0.01 /* error of the sky model, relative to the sky */

/** Airglow lines: air wavelength in A and strength in 1e-17 erg/(s cm2) into a fiber.
 *
 *  Wavelengths with three decimals are those of OH in Osterbrock et al. (1996, PASP 108,
 *  277) and of atomic lines; the others are rough places of blends, of the O2 band at
 *  8650 A and of OH beyond 9300 A.  Strengths are round numbers by class, no
 *  measurement: only the noise depends on them. */
static const struct {
  float wave_aa, flux;
} sky_line[] = {
    {4046.563f, 3},  {4358.328f, 6},  {5197.9f, 2},    {5460.735f, 10}, {5577.338f, 130},
    {5889.951f, 20}, {5895.924f, 12}, {5915.301f, 4},  {5932.862f, 5},  {5953.420f, 4},
    {6257.961f, 4},  {6287.434f, 5},  {6300.304f, 50}, {6306.869f, 3},  {6363.780f, 17},
    {6498.729f, 5},  {6533.044f, 6},  {6553.617f, 5},  {6841.945f, 3},  {6863.955f, 12},
    {6870.994f, 4},  {6889.288f, 3},  {6900.833f, 4},  {6912.623f, 6},  {6923.220f, 10},
    {6939.521f, 7},  {6969.930f, 3},  {7003.858f, 3},  {7244.907f, 9},  {7276.405f, 22},
    {7284.439f, 8},  {7316.282f, 24}, {7329.148f, 6},  {7340.885f, 22}, {7358.659f, 5},
    {7369.248f, 8},  {7401.688f, 10}, {7571.746f, 10}, {7712.0f, 3},    {7750.640f, 25},
    {7759.996f, 7},  {7794.112f, 28}, {7808.467f, 10}, {7821.503f, 26}, {7841.266f, 8},
    {7853.3f, 12},   {7913.708f, 40}, {7949.204f, 9},  {7964.650f, 30}, {7993.332f, 36},
    {8014.059f, 10}, {8025.810f, 22}, {8052.020f, 6},  {8062.2f, 12},   {8310.719f, 8},
    {8344.602f, 40}, {8382.392f, 26}, {8399.170f, 60}, {8415.231f, 20}, {8430.174f, 58},
    {8452.250f, 14}, {8465.358f, 36}, {8493.389f, 14}, {8504.840f, 18}, {8548.7f, 6},
    {8625.0f, 6},    {8634.0f, 8},    {8649.0f, 10},   {8658.0f, 9},    {8667.0f, 8},
    {8677.0f, 6},    {8687.0f, 4},    {8757.4f, 6},    {8767.9f, 24},   {8778.333f, 24},
    {8791.186f, 20}, {8827.096f, 66}, {8836.0f, 12},   {8850.0f, 20},   {8867.6f, 20},
    {8885.850f, 68}, {8903.114f, 26}, {8919.640f, 60}, {8943.395f, 22}, {8958.084f, 36},
    {8988.366f, 24}, {9001.346f, 18}, {9038.057f, 14}, {9049.537f, 10}, {9313.0f, 30},
    {9323.0f, 24},   {9337.9f, 36},   {9375.961f, 70}, {9419.729f, 40}, {9439.650f, 80},
    {9458.528f, 34}, {9476.846f, 70}, {9502.815f, 34}, {9519.354f, 50}, {9552.534f, 24},
    {9567.287f, 34}, {9607.726f, 18}, {9620.901f, 20}, {9700.0f, 10},   {9720.0f, 14},
    {9735.0f, 12},   {9752.0f, 12},   {9776.0f, 16},   {9790.0f, 24},   {9799.0f, 18},
    {9809.0f, 14}};

enum { N_SKY_LINE = sizeof sky_line / sizeof *sky_line };

double mill_mock_lsf_sigma(int lsf_group, double wave_aa)
{
  const double x = (wave_aa - 6700.0) / 3100.0;
  const double fwhm_aa = 1.72 + 0.04 * x + 0.10 * x * x;
  return fwhm_aa / 2.3548200450309493 * (0.96 + 0.02 * lsf_group);
}

static double logistic(double x)
{
  return 1.0 / (1.0 + exp(-x));
}

/** Photons at the top of the atmosphere that become electrons. */
static double throughput(int arm, double wave_aa)
{
  static const struct {
    double peak, blue_aa, blue_width_aa, red_aa, red_width_aa;
  } curve[MILL_MOCK_N_ARM] = {{0.26, 3900.0, 180.0, 5780.0, 40.0},
                              {0.34, 5740.0, 40.0, 7640.0, 40.0},
                              {0.36, 7560.0, 40.0, 9700.0, 150.0}};
  return curve[arm].peak * logistic((wave_aa - curve[arm].blue_aa) / curve[arm].blue_width_aa) *
         logistic((curve[arm].red_aa - wave_aa) / curve[arm].red_width_aa);
}

/** Vacuum wavelength of an air wavelength; Ciddor (1996, Appl. Opt. 35, 1566) with the
 *  inverse formula's terms at the air wavelength: good to 1e-3 A, enough for sky lines. */
static double air_to_vacuum(double air_aa)
{
  const double s2 = 1e8 / (air_aa * air_aa);
  return air_aa * (1.0 + 5.792105e-2 / (238.0185 - s2) + 1.67917e-3 / (57.362 - s2));
}

/** Dark sky into one fiber, 1e-17 erg / (s cm2 A), through the line-spread function. */
static void sky_spectrum(int lsf_group, int n_pix, const double *wave_aa, double *sky)
{
  for (int i = 0; i < n_pix; i++)
    sky[i] = 1.2 + 0.9 * (wave_aa[i] - 3600.0) / 6224.0;
  for (int l = 0; l < N_SKY_LINE; l++) {
    const double centre_aa = air_to_vacuum((double)sky_line[l].wave_aa);
    const double sigma_aa = mill_mock_lsf_sigma(lsf_group, centre_aa);
    const double peak = (double)sky_line[l].flux / (sigma_aa * sqrt(2.0 * acos(-1.0)));
    for (int i = 0; i < n_pix; i++) {
      const double u = (wave_aa[i] - centre_aa) / sigma_aa;
      if (fabs(u) < 8.0)
        sky[i] += peak * exp(-0.5 * u * u);
    }
  }
}

/** Rows of a resolution matrix: the Gaussian at the pixels of the diagonals, its sum 1. */
static void resolution_matrix(int lsf_group, int arm, const double *wave_aa, float *out)
{
  const int n = mill_mock_arm_of[arm].n_pix, h = MILL_MOCK_N_DIAG / 2;
  for (int i = 0; i < n; i++) {
    const double sigma = mill_mock_lsf_sigma(lsf_group, wave_aa[i]) / mill_mock_arm_of[arm].step_aa;
    double weight[MILL_MOCK_N_DIAG], sum = 0.0;
    for (int k = -h; k <= h; k++)
      sum += weight[h + k] = exp(-0.5 * k * k / (sigma * sigma));
    for (int k = -h; k <= h; k++)
      /* element (i, j) of the matrix stands in the diagonal of offset j - i, at column j */
      if (i + k >= 0 && i + k < n)
        out[(size_t)(h - k) * (size_t)n + (size_t)(i + k)] = (float)(weight[h + k] / sum);
  }
}

void mill_mock_instrument_clear(mill_mock_instrument *m)
{
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    mill_free(m->wave_aa[a]);
    mill_free(m->gain[a]);
    for (int g = 0; g < MILL_MOCK_N_LSF; g++) {
      mill_free(m->background[g][a]);
      mill_free(m->resolution[g][a]);
    }
  }
  memset(m, 0, sizeof *m);
}

static int arm_create(mill_mock_instrument *m, int arm, double *sky)
{
  const mill_mock_arm *info = &mill_mock_arm_of[arm];
  const int n = info->n_pix;
  MILL_CHECK(MILL_ALLOC(n, &m->wave_aa[arm]));
  MILL_CHECK(MILL_ALLOC(n, &m->gain[arm]));
  for (int i = 0; i < n; i++)
    m->wave_aa[arm][i] = info->wave0_aa + info->step_aa * i;
  for (int g = 0; g < MILL_MOCK_N_LSF; g++) {
    MILL_CHECK(MILL_ALLOC(n, &m->background[g][arm]));
    MILL_CHECK(MILL_ALLOC(MILL_MOCK_N_DIAG * n, &m->resolution[g][arm]));
    resolution_matrix(g, arm, m->wave_aa[arm], m->resolution[g][arm]);
    sky_spectrum(g, n, m->wave_aa[arm], sky);
    for (int i = 0; i < n; i++) {
      const double wave_aa = m->wave_aa[arm][i];
      /* electrons per unit of flux; Poisson: variance of N electrons is N */
      const double electrons = FLUX_UNIT * AREA_CM2 * EXPOSURE_S * info->step_aa * wave_aa /
                               PHOTON_ERG_AA * throughput(arm, wave_aa);
      const double residual = SKY_RESIDUAL * sky[i];
      m->gain[arm][i] = (float)(1.0 / electrons);
      m->background[g][arm][i] = (float)(sky[i] / electrons + residual * residual +
                                         READ_VARIANCE / (electrons * electrons));
    }
  }
  return MILL_OK;
}

int mill_mock_instrument_create(mill_mock_instrument *m)
{
  int err = MILL_OK, most = 0;
  double *sky = NULL;
  float *sorted = NULL;
  memset(m, 0, sizeof *m);
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    most = mill_mock_arm_of[a].n_pix > most ? mill_mock_arm_of[a].n_pix : most;
  MILL_TRY(MILL_ALLOC(most, &sky));
  MILL_TRY(MILL_ALLOC(most, &sorted));
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    MILL_TRY(arm_create(m, a, sky));
  const size_t n_r = (size_t)mill_mock_arm_of[1].n_pix;
  memcpy(sorted, m->gain[1], n_r * sizeof *sorted);
  m->gain_r = mill_mock_median((int)n_r, sorted);
  for (int g = 0; g < MILL_MOCK_N_LSF; g++) {
    memcpy(sorted, m->background[g][1], n_r * sizeof *sorted);
    m->background_r[g] = mill_mock_median((int)n_r, sorted);
  }
done:
  mill_free(sky);
  mill_free(sorted);
  if (err)
    mill_mock_instrument_clear(m);
  return err;
}

double mill_mock_median(int n, float *x)
{
  const double high = (double)mill_select_float(n, x, n / 2);
  if (n % 2)
    return high;
  float low = x[0];
  for (int i = 1; i < n / 2; i++)
    low = x[i] > low ? x[i] : low;
  return 0.5 * (high + (double)low);
}
