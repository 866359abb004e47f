/* SPDX-License-Identifier: BSD-3-Clause */
/** Stars made from an emulator, and a second, dense likelihood to compare with.
 *
 *  The likelihood is that of docs/science/numerics.md in float64, computed in other ways: the
 *  spline by tridiagonal equations in wavelength, the deconvolved resolution matrix by equations
 *  for each row, the continuum by LAPACK's QR in place of normal equations. */
#pragma once

#include "kernels/math/hull.h"
#include "src/config/config.h"
#include "src/pipeline/pipeline_parts.h"
#include "tests/kernels/star/prepare_reference.h"
#include "tests/test_library.h"

enum { MADE_MAX_PIX = 512, MADE_MAX_SEG = 6, MADE_N_DIAG = 11, MADE_GRID = 1024 };

typedef struct made_segment {
  int arm, exposure, n_pix, n_diag;
  double wave_aa[MADE_MAX_PIX];
  float flux[MADE_MAX_PIX], ivar[MADE_MAX_PIX], res[MADE_N_DIAG * MADE_MAX_PIX];
  int32_t mask[MADE_MAX_PIX];
  int with_sigma;
  double width_error;                    /**< relative, of the line-spread function */
  float sigma_aa[MADE_MAX_PIX];          /**< line-spread function, where with_sigma */
  double row[MADE_MAX_PIX][MADE_N_DIAG]; /**< resolution in row form, prepared, float32 values */
} made_segment;

typedef struct made_star {
  int n_segment;
  made_segment segment[MADE_MAX_SEG];
  mill_raw_segment raw[MADE_MAX_SEG];
} made_star;

/** What the second likelihood says. */
typedef struct made_answer {
  double f; /**< without penalties */
  double chisq[MILL_MAX_ARM], chisq_c[MILL_MAX_ARM];
  double model[MADE_MAX_SEG][MADE_MAX_PIX]; /**< flux */
  int n_good[MILL_MAX_ARM];
} made_answer;

/* Sum of twelve uniform numbers: normal up to 3 sigma.  No libm, so stars are the same anywhere. */
static inline double made_normal(uint64_t *state)
{
  double sum = 0;
  for (int i = 0; i < 12; i++)
    sum += 0.5 * test_library_random(state);
  return sum;
}

/** Defaults of the program, made for the small arms of the test library. */
static inline void made_settings(const mill_library *lib, mill_fit_settings *set)
{
  MILL_AT_END(mill_config_clear) mill_config config;
  mill_config_default(&config);
  assert_ok(mill_config_bind(&config, lib, 1));
  *set = config.fit;
  set->likelihood = MILL_LIKE_MARGINAL; /* also with model error: it computes most */
  set->n_cont = 5;
  set->n_wave_mask = 0;
  set->max_vsini_km_s = 300;
}

static inline void made_resolution_rows(const mill_library *lib, made_segment *s)
{
  const int n = s->n_pix, nd = s->n_diag, h = nd / 2;
  const double sigma = lib->arm[s->arm].template_sigma_aa / (s->wave_aa[1] - s->wave_aa[0]);
  double sum[MADE_MAX_PIX];
  for (int i = 0; i < n; i++) {
    double g[MADE_N_DIAG * MADE_N_DIAG];
    lapack_int pivot[MADE_N_DIAG];
    for (int k = 0; k < nd; k++) {
      const int j = i - h + k;
      /* dia layout: element (i, j) stands in the diagonal of offset j - i, at column j */
      s->row[i][k] = j >= 0 && j < n ? (double)s->res[(h - (j - i)) * n + j] : 0;
      for (int l = 0; l < nd; l++)
        g[k * nd + l] =
            exp(-0.5 * (k - l) * (k - l) / (sigma * sigma)) / (sigma * sqrt(2 * acos(-1.0)));
    }
    if (sigma > 0 && LAPACKE_dgesv(LAPACK_ROW_MAJOR, nd, 1, g, nd, pivot, s->row[i], 1) != 0)
      fail_msg("singular");
    sum[i] = 0;
    for (int k = 0; k < nd; k++) {
      s->row[i][k] = (double)(float)s->row[i][k];
      sum[i] += s->row[i][k];
    }
  }
  double sorted[MADE_MAX_PIX] = {0};
  memcpy(sorted, sum, (size_t)n * sizeof *sum);
  const double median = ref_median(n, sorted);
  for (int i = 0; i < n; i++) {
    double inside = 0;
    for (int k = 0; k < nd; k++)
      inside += i - h + k >= 0 && i - h + k < n ? s->row[i][k] : 0;
    for (int k = 0; k < nd; k++)
      if (i - h + k < 0 || i - h + k >= n)
        s->row[i][k] = 0;
      else if (i < h || i >= n - h)
        s->row[i][k] = (double)(float)(s->row[i][k] * median / inside);
  }
}

/** Sigma of the Gaussian that templates lack at pixel p: 0 if they are too broad, NaN if the pixel
 *  is not fitted (docs/science/numerics.md, "Line-spread function"). */
static inline double made_lack_aa(const mill_library *lib, const made_segment *s, int p)
{
  const double sigma = (double)s->sigma_aa[p], templ = lib->arm[s->arm].template_sigma_aa;
  const double *w = s->wave_aa;
  const int n = s->n_pix;
  if (!(sigma > 0) || isinf(sigma))
    return NAN;
  if (sigma <= templ)
    return 0;
  const double lack = sqrt(sigma * sigma - templ * templ);
  const double pixel =
      p == 0 ? w[1] - w[0] : (p == n - 1 ? w[p] - w[p - 1] : (w[p + 1] - w[p - 1]) / 2);
  if (4 * lack > 15 * pixel || p < 2 || p > n - 3 || w[p] - w[0] < 3 * lack ||
      w[n - 1] - w[p] < 3 * lack)
    return NAN;
  return lack;
}

/** Is the line-spread function of a pixel within `reach` of pixel p unknown, or beyond an end? */
static inline int made_is_lost(const mill_library *lib, const made_segment *s, int p, int reach)
{
  int lost = p < reach || p >= s->n_pix - reach;
  for (int q = p - reach; q <= p + reach && !lost; q++)
    lost = s->with_sigma ? isnan(made_lack_aa(lib, s, q))
                         : s->n_diag && s->res[s->n_diag / 2 * s->n_pix + q] == 0;
  return lost;
}

/** Natural cubic spline at `at`, from y and second derivatives at n knots x, uniform in ln x. */
static inline double made_spline(int n, const double *x, const double *y, const double *second,
                                 double at)
{
  const double position = log(at / x[0]) / log(x[n - 1] / x[0]) * (n - 1);
  int i = position < 0 ? 0 : (position > n - 2 ? n - 2 : (int)position);
  while (i > 0 && at < x[i])
    i--;
  while (i < n - 2 && at >= x[i + 1])
    i++;
  const double h = x[i + 1] - x[i], b = (at - x[i]) / h, a = 1 - b;
  return a * y[i] + b * y[i + 1] +
         ((a * a * a - a) * second[i] + (b * b * b - b) * second[i + 1]) * h * h / 6;
}

/** Variance in A^2 of a further Gaussian that made_template convolves with. */
static double made_more_aa2;

/** Template of one segment at its pixels, after its resolution matrix or sigma; a sigma's Gaussian
 *  is convolved with the spline, not with pixels.  kind: enum mill_rotation_kind. */
static inline void made_template(const mill_library *lib, int kind, const made_segment *s,
                                 const double *theta, double *out)
{
  const mill_arm *arm = &lib->arm[s->arm];
  const int n = arm->n_pix;
  static double flux[MADE_GRID], rotated[MADE_GRID], second[MADE_GRID], c[MADE_GRID];
  static double weight[MADE_GRID];
  double pixel[MADE_MAX_PIX];
  assert_ok(test_emulator_eval(lib, s->arm, theta + 2, flux));
  const double r = theta[1] / (MILL_C_KM_S * arm->ln_step);
  const int half = (int)ceil(r) + 3;
  assert_true(half < MADE_GRID);
  for (int k = 0; k <= half; k++) {
    double slope;
    mill_rotation_weight(kind, r, k, &weight[k], &slope);
  }
  for (int i = 0; i < n; i++) {
    /* ends repeat: no pixel of these stars looks there */
    rotated[i] = 0;
    for (int k = -half; k <= half; k++) {
      const int j = i + k < 0 ? 0 : (i + k >= n ? n - 1 : i + k);
      rotated[i] += weight[k < 0 ? -k : k] * flux[j];
    }
  }
  /* natural spline: forward sweep, back substitution */
  const double *x = arm->wave_aa, *y = rotated;
  second[0] = c[0] = second[n - 1] = 0;
  for (int i = 1; i < n - 1; i++) {
    const double h0 = x[i] - x[i - 1], h1 = x[i + 1] - x[i];
    const double rhs = 6 * ((y[i + 1] - y[i]) / h1 - (y[i] - y[i - 1]) / h0);
    const double pivot = 2 * (h0 + h1) - h0 * c[i - 1];
    c[i] = h1 / pivot;
    second[i] = (rhs - h0 * second[i - 1]) / pivot;
  }
  for (int i = n - 3; i > 0; i--)
    second[i] -= c[i] * second[i + 1];
  const double beta = theta[0] / MILL_C_KM_S, shift = sqrt((1 - beta) / (1 + beta));
  for (int p = 0; p < s->n_pix; p++) {
    const double of_sigma = s->with_sigma ? made_lack_aa(lib, s, p) : 0;
    const double lack = sqrt(of_sigma * of_sigma + made_more_aa2);
    pixel[p] = made_spline(n, x, y, second, s->wave_aa[p] * shift);
    if (!(lack > 0))
      continue;
    double sum = 0, norm = 0;
    for (int k = -60; k <= 60; k++) {
      const double g = exp(-0.005 * k * k);
      sum += g * made_spline(n, x, y, second, (s->wave_aa[p] + 0.1 * k * lack) * shift);
      norm += g;
    }
    pixel[p] = sum / norm;
  }
  for (int p = 0; p < s->n_pix; p++) {
    out[p] = s->n_diag ? 0 : pixel[p];
    for (int k = 0; k < s->n_diag; k++) {
      const int j = p - s->n_diag / 2 + k;
      if (j >= 0 && j < s->n_pix)
        out[p] += s->row[p][k] * pixel[j];
    }
  }
}

/** Make segments of n_exposure exposures of every arm, without flux.  Pixels have random steps of
 *  about step_aa, and begin and end `margin` grid points inside the templates.  with_matrix: steps
 *  are even, and there is a resolution matrix of 11 diagonals. */
static inline void made_star_cut(const mill_library *lib, int n_exposure, double step_aa,
                                 int with_matrix, int margin, uint64_t *random, made_star *star)
{
  memset(star, 0, sizeof *star);
  for (int a = 0; a < lib->n_arm; a++)
    for (int e = 0; e < n_exposure; e++) {
      made_segment *s = &star->segment[star->n_segment];
      const mill_arm *arm = &lib->arm[a];
      const double last = arm->wave_aa[arm->n_pix - margin];
      double at = arm->wave_aa[margin] + 0.3 * e;
      s->arm = a;
      s->exposure = e;
      while (at < last && s->n_pix < MADE_MAX_PIX) {
        s->wave_aa[s->n_pix++] = at;
        at += step_aa * (s->n_pix == 1 ? 1 : 1 + 0.2 * test_library_random(random));
      }
      if (with_matrix) {
        s->n_diag = MADE_N_DIAG;
        const int n = s->n_pix;
        const double first = s->wave_aa[0], even_aa = (s->wave_aa[n - 1] - first) / (n - 1);
        for (int i = 0; i < n; i++)
          s->wave_aa[i] = first + even_aa * i;
        for (int k = 0; k < MADE_N_DIAG; k++)
          for (int j = 0; j < n; j++) {
            const double sigma = 1.1 + 0.2 * j / n, u = (k - 5) / sigma;
            s->res[k * n + j] = (float)(0.43 / sigma * exp(-0.5 * u * u) *
                                        (1 + 0.002 * test_library_random(random)));
          }
        made_resolution_rows(lib, s);
      }
      star->n_segment++;
    }
}

/** The same, with room for any velocity within 1000 km/s. */
static inline void made_star_init(const mill_library *lib, int n_exposure, double step_aa,
                                  int with_matrix, uint64_t *random, made_star *star)
{
  made_star_cut(lib, n_exposure, step_aa, with_matrix, 70, random, star);
}

/** Store theta in out, with an arm's velocity offset added to the velocity.  with_offsets 1: theta
 *  has the arms' offsets after the labels; 0: it has none. */
static inline void made_arm_theta(const mill_library *lib, int with_offsets, int i_arm,
                                  const double *theta, double *out)
{
  memcpy(out, theta, (size_t)(2 + lib->n_label) * sizeof *out);
  if (with_offsets && i_arm > 0)
    out[0] += theta[2 + lib->n_label + i_arm - 1];
}

/** Fill in the template at theta times a smooth continuum, with noise of S/N sn per pixel.  noise
 *  0: no noise, but the same errors.  Rotation uses the kernel MILL_ROT_SPLINE. */
static inline void made_star_fill_offset(const mill_library *lib, int with_offsets,
                                         const double *theta, double sn, int noise,
                                         uint64_t *random, made_star *star)
{
  for (int i = 0; i < star->n_segment; i++) {
    made_segment *s = &star->segment[i];
    double templ[MADE_MAX_PIX], mean = 0, at[MILL_MAX_PAR];
    made_arm_theta(lib, with_offsets, s->arm, theta, at);
    made_template(lib, MILL_ROT_SPLINE, s, at, templ);
    for (int p = 0; p < s->n_pix; p++)
      mean += templ[p] / s->n_pix;
    for (int p = 0; p < s->n_pix; p++) {
      /* within reach of the continuum functions: linear in wavelength */
      const double x =
          2 * (s->wave_aa[p] - s->wave_aa[0]) / (s->wave_aa[s->n_pix - 1] - s->wave_aa[0]) - 1;
      const double flux = 20 * templ[p] / mean * (1 + 0.2 * x - 0.1 * x * x);
      const double sigma = 20 / sn * (1 + 0.3 * sin(0.37 * p));
      s->flux[p] = (float)(flux + (noise ? sigma * made_normal(random) : 0));
      s->ivar[p] = (float)(1 / (sigma * sigma));
    }
  }
}

static inline void made_star_fill(const mill_library *lib, const double *theta, double sn,
                                  int noise, uint64_t *random, made_star *star)
{
  made_star_fill_offset(lib, 0, theta, sn, noise, random, star);
}

/** The star as the pipeline takes it. */
static inline void made_star_raw(int64_t row, made_star *star, mill_star *out)
{
  for (int i = 0; i < star->n_segment; i++) {
    made_segment *s = &star->segment[i];
    star->raw[i] = (mill_raw_segment){.arm = s->arm,
                                      .exposure = s->exposure,
                                      .epoch = s->exposure,
                                      .n_pix = s->n_pix,
                                      .n_diag = s->n_diag,
                                      .wave_aa = s->wave_aa,
                                      .flux = s->flux,
                                      .ivar = s->ivar,
                                      .mask = s->mask,
                                      .resolution = s->n_diag ? s->res : NULL,
                                      .sigma_aa = s->with_sigma ? s->sigma_aa : NULL,
                                      .width_error = s->width_error};
  }
  *out = (mill_star){.row = row, .n_segment = star->n_segment, .segment = star->raw};
}

static inline double made_continuum(const mill_fit_settings *set, const made_segment *s, int k,
                                    int p)
{
  const double *w = s->wave_aa;
  const double x = 2 * (w[p] - w[0]) / (w[s->n_pix - 1] - w[0]) - 1;
  const int n_rbf = set->n_cont - 3;
  double value;
  if (set->continuum == MILL_CONT_CHEBYSHEV)
    value = cos(k * acos(fmax(-1, fmin(1, x))));
  else if (k < 3)
    value = pow(x, k);
  else
    value = exp(-0.5 * pow((x + 1 - (n_rbf > 1 ? 2.0 * (k - 3) / (n_rbf - 1) : 0)) * n_rbf, 2));
  return (double)(float)value; /* as stored */
}

/** Return a segment's -2 ln L by least squares; write its best model / sigma to model [n_pix]. */
static inline double made_project(const mill_fit_settings *set, const made_segment *s,
                                  const ref_prepared *prepared, const double *templ, double *model)
{
  const int n = s->n_pix, nk = set->n_cont;
  static double a[MADE_MAX_PIX * MILL_MAX_CONT], design[MADE_MAX_PIX * MILL_MAX_CONT];
  double b[MADE_MAX_PIX], f = 0;
  for (int p = 0; p < n; p++) {
    /* float32 as stored: that rounding is part of the data */
    const double inv = (double)(float)(1 / prepared->sigma[p]);
    for (int k = 0; k < nk; k++)
      design[p * nk + k] = a[p * nk + k] = made_continuum(set, s, k, p) * templ[p] * inv;
    b[p] = (double)(float)(prepared->flux[p] / prepared->sigma[p]);
    f += 2 * log(prepared->sigma[p]);
  }
  assert_int_equal(LAPACKE_dgels(LAPACK_ROW_MAJOR, 'N', n, nk, 1, a, nk, b, 1), 0);
  /* S = Q R: ln det S^T S is twice the sum of ln |R_kk| */
  for (int k = 0; k < nk && set->likelihood == MILL_LIKE_MARGINAL; k++)
    f += 2 * log(fabs(a[k * nk + k]));
  for (int p = 0; p < n; p++) {
    double sum = 0;
    for (int k = 0; k < nk; k++)
      sum += design[p * nk + k] * b[k];
    model[p] = sum;
    const double r = (double)(float)(prepared->flux[p] / prepared->sigma[p]) - sum;
    f += r * r;
  }
  return f;
}

static inline void made_prepare(const mill_library *lib, const mill_fit_settings *set,
                                const made_segment *s, ref_prepared *out)
{
  unsigned char masked[MADE_MAX_PIX] = {0};
  for (int p = 0; p < s->n_pix; p++) {
    masked[p] = made_is_lost(lib, s, p, 0);
    for (int r = 0; r < set->n_wave_mask; r++)
      masked[p] |=
          s->wave_aa[p] > set->wave_mask[r].min_aa && s->wave_aa[p] < set->wave_mask[r].max_aa;
  }
  const ref_raw raw = {.n = s->n_pix,
                       .flux = s->flux,
                       .ivar = s->ivar,
                       .mask = s->mask,
                       .masked = masked,
                       .ignore = set->mask_ignore,
                       .edge = s->n_diag ? set->edge_pix : 0,
                       .sigma_floor = set->sigma_floor,
                       .bad_factor = set->bad_sigma_factor};
  ref_prepare(&raw, out);
}

/** Hull penalty and priors by hand. */
static inline double made_penalty(const mill_library *lib, const mill_fit_settings *set,
                                  const made_star *star, const double *theta)
{
  double worst = 0, f = 0, n_pix = 0, n_used = 0;
  static ref_prepared prepared;
  for (int h = 0; h < lib->n_hull; h++)
    for (int i = 0; i < lib->hull[h].n_facet; i++) {
      const mill_hull *hull = &lib->hull[h];
      const double *facet = hull->facet + i * (hull->n_label + 1);
      double s = facet[hull->n_label];
      for (int l = 0; l < hull->n_label; l++) {
        const mill_label *label = &lib->label[hull->label[l]];
        const double x = theta[2 + hull->label[l]];
        s += facet[l] * ((label->mapping == MILL_MAP_LOG10 ? log10(x) : x) - label->mean) /
             label->std;
      }
      worst = fmax(worst, s);
    }
  for (int i = 0; i < star->n_segment; i++) {
    made_prepare(lib, set, &star->segment[i], &prepared);
    if (prepared.used) {
      n_pix += star->segment[i].n_pix;
      n_used++;
    }
  }
  for (int j = 0; j < lib->n_label + 2; j++)
    if (set->prior_sigma[j] > 0)
      f += pow((theta[j] - set->prior_mean[j]) / set->prior_sigma[j], 2);
  for (int a = 1; a < lib->n_arm && set->velocity_offsets; a++)
    f += pow(theta[lib->n_label + 1 + a] / set->velocity_offset_sigma_km_s, 2);
  return f + 10 * n_pix * n_used * worst * worst;
}

/** The whole answer at theta by the second implementation. */
static inline void made_evaluate(const mill_library *lib, const mill_fit_settings *set,
                                 const made_star *star, const double *theta, made_answer *out)
{
  memset(out, 0, sizeof *out);
  for (int i = 0; i < star->n_segment; i++) {
    const made_segment *s = &star->segment[i];
    static ref_prepared prepared;
    double templ[MADE_MAX_PIX], flat[MADE_MAX_PIX], model[MADE_MAX_PIX], at[MILL_MAX_PAR];
    made_prepare(lib, set, s, &prepared);
    if (!prepared.used)
      continue;
    made_arm_theta(lib, set->velocity_offsets, s->arm, theta, at);
    made_template(lib, set->rotation, s, at, templ);
    out->f += made_project(set, s, &prepared, templ, model);
    for (int p = 0; p < s->n_pix; p++) {
      const double r = (prepared.flux[p] / prepared.sigma[p] - model[p]);
      out->model[i][p] = model[p] * prepared.sigma[p];
      out->chisq[s->arm] += prepared.good[p] ? r * r : 0;
      flat[p] = s->n_diag ? 0 : 1;
      for (int k = 0; k < s->n_diag; k++)
        flat[p] += s->row[p][k];
    }
    made_project(set, s, &prepared, flat, model);
    for (int p = 0; p < s->n_pix; p++) {
      const double r = (prepared.flux[p] / prepared.sigma[p] - model[p]);
      out->chisq_c[s->arm] += prepared.good[p] ? r * r : 0;
    }
    out->n_good[s->arm] += prepared.n_good;
  }
}

/** Random labels inside `fraction` of the hulls, velocity within +-vel, v sin i up to vsini. */
static inline void made_theta(const mill_library *lib, double fraction, double vel, double vsini,
                              uint64_t *random, double *theta)
{
  theta[0] = vel * test_library_random(random);
  theta[1] = 0.5 * vsini * (1 + test_library_random(random));
  for (int l = 0; l < lib->n_label; l++)
    theta[2 + l] = test_label_unmap(&lib->label[l], 1.6 * fraction * test_library_random(random));
}

/** Stars on their way through mill_pipeline_run: source and sink. */
typedef struct made_run {
  mill_star *star;  /**< [n] */
  const int *order; /**< [n] order in which stars go in; NULL: 0, 1, 2 ... */
  int n, next, n_out;
  mill_fit_result *result;  /**< [n], by row */
  float *model;             /**< [n][MADE_MAX_SEG][MADE_MAX_PIX] or NULL */
  mill_epoch_result *epoch; /**< [n][MADE_MAX_SEG], where stars have epochs */
} made_run;

static inline int made_source(void *context, mill_star **star)
{
  made_run *run = context;
  if (run->next == run->n)
    return 0;
  *star = &run->star[run->order ? run->order[run->next] : run->next];
  run->next++;
  return 1;
}

static inline int made_sink(void *context, mill_star *star)
{
  made_run *run = context;
  const mill_fit_result *result = star->result;
  run->result[result->row] = *result;
  run->result[result->row].epoch = NULL; /* borrowed */
  if (result->epoch)
    memcpy(run->epoch + result->row * MADE_MAX_SEG, result->epoch,
           (size_t)star->n_epoch * sizeof *run->epoch);
  run->n_out++;
  if (star->model && run->model)
    for (int i = 0; i < star->n_segment; i++)
      memcpy(run->model + ((size_t)result->row * MADE_MAX_SEG + (size_t)i) * MADE_MAX_PIX,
             star->model[i].flux, (size_t)star->segment[i].n_pix * sizeof(float));
  return MILL_OK;
}

/** Fit all stars: star i gives result[i] and, with set->epochs, epoch [n][MADE_MAX_SEG]. */
static inline void made_fit_epochs(const mill_library *lib, const mill_fit_settings *set,
                                   const mill_backend *backend, int n_slot, int n_thread, int n,
                                   made_star *star, const int *order, mill_fit_result *result,
                                   float *model, mill_epoch_result *epoch)
{
  MILL_AT_END(mill_pipeline_destroy_at) mill_pipeline *pipeline = NULL;
  MILL_OWNED mill_star *raw = NULL;
  assert_ok(MILL_ALLOC(n, &raw));
  assert_ok(mill_pipeline_create(lib, 1, set, backend, n_slot, n_thread, model != NULL, &pipeline));
  for (int i = 0; i < n; i++) {
    made_star_raw(i, &star[i], &raw[i]);
    for (int k = 0; k < star[i].n_segment && set->epochs; k++)
      if (star[i].segment[k].exposure >= raw[i].n_epoch)
        raw[i].n_epoch = star[i].segment[k].exposure + 1;
  }
  made_run run = {
      .star = raw, .order = order, .n = n, .result = result, .model = model, .epoch = epoch};
  assert_ok(mill_pipeline_run(pipeline, made_source, &run, made_sink, &run));
  assert_int_equal(run.n_out, n);
}

static inline void made_fit(const mill_library *lib, const mill_fit_settings *set,
                            const mill_backend *backend, int n_slot, int n_thread, int n,
                            made_star *star, const int *order, mill_fit_result *result,
                            float *model)
{
  made_fit_epochs(lib, set, backend, n_slot, n_thread, n, star, order, result, model, NULL);
}

/** Parameter j of a result, and its error. */
static inline double made_par(const mill_fit_result *r, int j)
{
  return j == 0 ? r->vrad_km_s : (j == 1 ? r->vsini_km_s : r->label[j - 2]);
}

static inline double made_err(const mill_fit_result *r, int j)
{
  return j == 0 ? r->vrad_err_km_s : (j == 1 ? r->vsini_err_km_s : r->label_err[j - 2]);
}

/** Give the pipeline a star, evaluate it at points and take it back.  eval->f includes the hull
 *  penalty and priors.  eval is only written if prepared->status is NOT_DONE. */
static inline void made_ask(mill_pipeline *p, const mill_star *star, int request, int n_point,
                            const double *theta, mill_evaluation *eval, mill_fit_result *prepared)
{
  double *penalty = NULL;
  assert_ok(MILL_ALLOC(n_point, &penalty));
  assert_ok(mill_pipeline_hold(p, star, prepared));
  const int fix = p->slots.host.fix_error;
  if (p->held.is_ready)
    assert_ok(mill_pipeline_ask(p, request, fix, n_point, theta, eval, penalty));
  for (int i = 0; i < n_point && p->held.is_ready; i++)
    eval[i].f += penalty[i];
  mill_free(penalty);
  mill_pipeline_drop(p);
}
