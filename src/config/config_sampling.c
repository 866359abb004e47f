/* SPDX-License-Identifier: BSD-3-Clause */
/* Arms on a coarser grid than their library's, where line-spread functions are much broader. */
#include <math.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/star/blocks/prepare.h"
#include "src/config/config_internal.h"

enum {
  LEAST_POINTS = 128, /* of an arm */
  N_LOOK = 32,        /* wavelengths at which widths are compared */
  REACH = 12          /* of the filter, in coarse grid points */
};

/* Bins of the guess have at least the first number of grid points; what sampling folds into the
 * lines is below exp(-HIDDEN) of them. */
static const double BIN_POINTS = 2.0, HIDDEN = 7.0;

/* The filter passes frequencies up to the first, and stops from the second on, over 1/coarse step:
 * what it lets through beyond 1/2 folds back to where line-spread functions leave nothing. */
static const double PASS = 0.42, STOP = 0.62;

/* Sigma in ln wavelength that no line-spread function of the arm's spectra is below; 0: unknown. */
static double least_sigma(const mill_config *config, const mill_arm_choice *choice, double wave_aa)
{
  const double power =
      choice->resolving_power > 0.0 ? choice->resolving_power : config->resolving_power;
  const double own = choice->most_power > 0.0 ? 1.0 / (MILL_FWHM_SIGMA * choice->most_power) : 0.0;
  const double set = choice->fwhm_aa > 0.0 ? choice->fwhm_aa / (MILL_FWHM_SIGMA * wave_aa)
                     : power > 0.0         ? 1.0 / (MILL_FWHM_SIGMA * power)
                                           : 0.0;
  switch (config->lsf) {
  case MILL_LSF_RESOLVING_POWER:
    return set;
  case MILL_LSF_SIGMA:
    return own;
  case MILL_LSF_AUTO: /* what is set is for spectra that have none of their own */
    return set > 0.0 ? fmin(own, set) : own;
  default:
    return 0.0;
  }
}

/* May an arm have every factor-th grid point?  With s the line-spread function's sigma, t the
 * templates' and r^2 = s^2 - t^2, a frequency f passes with exp(-2 pi^2 (t^2 + r^2) f^2), and what
 * is sampled at steps d has it as well from 1/d - f with exp(-2 pi^2 (t^2 (1/d - f)^2 + r^2 f^2)),
 * at most exp(-2 pi^2 (t r / (s d))^2).  Splines need templates of MILL_GRID_SIGMA steps, which
 * a part of r makes them. */
static int allows(const mill_config *config, const mill_arm_choice *choice, const mill_arm *arm,
                  int factor)
{
  const double step = factor * arm->ln_step, templ_aa = arm->template_sigma_aa;
  const double first = fmax(choice->min_aa, arm->wave_aa[0]);
  const double last = fmin(choice->max_aa, arm->wave_aa[arm->n_pix - 1]);
  double least = INFINITY;
  if (!(templ_aa > 0.0) || BIN_POINTS * step * MILL_C_KM_S > config->fit.guess_vel_step_km_s ||
      !(log(last / first) > LEAST_POINTS * step))
    return 0;
  for (int i = 0; i < N_LOOK; i++) {
    const double wave = first + (last - first) * i / (N_LOOK - 1), templ = templ_aa / wave;
    const double sigma = least_sigma(config, choice, wave);
    const double rest = sigma * sigma - templ * templ;
    if (!(rest > 0.0) ||
        2.0 * M_PI * M_PI * templ * templ * rest < HIDDEN * step * step * sigma * sigma)
      return 0;
    least = fmin(least, rest);
  }
  const double sharpest = templ_aa / last, wanted = MILL_GRID_SIGMA * step;
  return sharpest * sharpest + MILL_LARGEST_BLUR * least >= wanted * wanted;
}

void mill_config_choose_sampling(const mill_library *lib, int n_lib, mill_config *config)
{
  for (int i = 0; i < config->n_arm; i++) {
    mill_arm_choice *choice = &config->arm[i];
    /* a linear kernel is wrong as the square of the grid step */
    const int chosen = choice->sampling > 0 || config->fit.rotation == MILL_ROT_LINEAR;
    int factor = chosen ? 1 : MILL_MAX_SAMPLING;
    for (int k = 0; k < n_lib; k++) {
      const int a = mill_library_find_arm(&lib[k], choice->arm);
      const mill_arm *arm = &lib[k].arm[a < 0 ? 0 : a];
      while (factor > 1 && !allows(config, choice, arm, factor))
        factor--;
    }
    if (factor > 1)
      choice->sampling = factor;
  }
}

/* I_0(x) by its series. */
static double bessel(double x)
{
  double sum = 1.0, term = 1.0;
  for (int k = 1; term > 1e-17 * sum; k++) {
    term *= 0.25 * x * x / ((double)k * k);
    sum += term;
  }
  return sum;
}

/* Low-pass weights [half + 1] of one side, by Kaiser's window; 80 dB. */
static void make_filter(int factor, int half, double *weight)
{
  const double beta = 7.857, cut = (PASS + STOP) / factor; /* twice the middle */
  double sum = 0.0;
  for (int k = 0; k <= half; k++) {
    const double u = (double)k / half, x = M_PI * cut * k;
    weight[k] = (k == 0 ? 1.0 : sin(x) / x) * bessel(beta * sqrt(1.0 - u * u));
    sum += k == 0 ? weight[k] : 2.0 * weight[k];
  }
  for (int k = 0; k <= half; k++)
    weight[k] /= sum;
}

/* Every factor-th of the rows x [n][n_in], after the filter; beyond the ends they go on as their
 * image in the end point. */
static int thin_rows(int factor, int n, int n_in, float **x)
{
  int err = MILL_OK;
  const int half = REACH * factor, n_out = (n - 1) / factor + 1;
  const size_t pitch = (size_t)n_in;
  float *to = NULL;
  double weight[REACH * MILL_MAX_SAMPLING + 1], *sum = NULL;
  make_filter(factor, half, weight);
  MILL_TRY(MILL_ALLOC((size_t)n_out * pitch, &to));
  MILL_TRY(MILL_ALLOC(n_in, &sum));
  for (int i = 0; i < n_out; i++) {
    memset(sum, 0, pitch * sizeof *sum);
    for (int j = -half; j <= half; j++) {
      const int p = i * factor + j, end = p < 0 ? 0 : n - 1, image = 2 * end - p;
      const double w = weight[j < 0 ? -j : j];
      const float *at = *x + (size_t)(p < 0 || p >= n ? image : p) * pitch;
      const float *mirror = *x + (size_t)end * pitch;
      const double sign = p < 0 || p >= n ? -1.0 : 1.0;
      for (int k = 0; k < n_in; k++)
        sum[k] += w * (sign * (double)at[k] + (1.0 - sign) * (double)mirror[k]);
    }
    for (int k = 0; k < n_in; k++)
      to[(size_t)i * pitch + (size_t)k] = (float)sum[k];
  }
  mill_free(*x);
  *x = to;
  to = NULL;
done:
  MILL_FREE(to, sum);
  return err;
}

int mill_config_thin_arm(int factor, mill_arm *arm)
{
  mill_emulator *e = &arm->emulator;
  mill_model_error *error = &arm->error;
  const int last = e->n_layer - 1, n_whole = arm->n_pix;
  const int n = factor > 1 ? (n_whole - 1) / factor + 1 : 0;
  const size_t n_fine = (size_t)(n - 1) * (size_t)factor + 1;
  if (n < LEAST_POINTS)
    return MILL_OK;
  MILL_CHECK(thin_rows(factor, n_whole, e->n_in[last], &e->weight[last]));
  MILL_CHECK(thin_rows(factor, n_whole, 1, &e->bias[last]));
  for (int i = 0; i < n; i++)
    arm->wave_aa[i] = arm->wave_aa[(size_t)i * (size_t)factor];
  for (int k = 1; k < error->n_component; k++)
    memmove(error->component + (size_t)k * n_fine, error->component + (size_t)k * (size_t)n_whole,
            n_fine * sizeof(float));
  error->finer = factor;
  e->n_out[last] = arm->n_pix = n;
  arm->ln_step *= factor;
  arm->sampling = factor;
  return MILL_OK;
}
