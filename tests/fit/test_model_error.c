/* SPDX-License-Identifier: BSD-3-Clause */
/* Model error in the likelihood: value and curvature against a dense covariance matrix in float64,
 * the gradient against differences; without model error nothing changes. */
#include "tests/mill_test.h"

#include <cblas.h>

#include "tests/fit/one_star.h"

enum { SEED = 20261122, N_PAR = 6 };

static double place[MAX_PAR]; /* where the error is fixed, next to the truth */

static void begin(int n_component, int n_exposure, int with_matrix)
{
  clear();
  assert_ok(test_library_make(4, 2, 5, &fx.lib));
  assert_ok(test_library_add_error(n_component, &fx.lib));
  one_star_make(SEED + (uint64_t)(17 * n_component + with_matrix), n_exposure, with_matrix, 60);
  memcpy(place, fx.truth, sizeof place);
  place[0] += 7;
  place[2] += 40;
  fx.star.segment[0].mask[20] = 8;
  fx.star.segment[0].ivar[40] = 0;
}

/** F and derivatives at theta, with the model error computed at `place`. */
static void jacobian(const double *theta, mill_evaluation *eval)
{
  mill_evaluation both[2];
  mill_fit_result prepared;
  double point[2 * N_PAR];
  memcpy(point, place, N_PAR * sizeof *point);
  memcpy(point + N_PAR, theta, N_PAR * sizeof *point);
  made_ask(fx.pipeline, &fx.raw, MILL_REQ_TANGENTS, 2, point, both, &prepared);
  *eval = both[1];
}

/* --- the dense reference --- */

/** A row of the library's grid at a wavelength, by the cubic through four points (Neville). */
static double row_at(const mill_arm *arm, const float *row, double rest_aa)
{
  int k = 0;
  while (k < arm->n_pix - 2 && arm->wave_aa[k + 1] <= rest_aa)
    k++;
  const double u = (rest_aa - arm->wave_aa[k]) / (arm->wave_aa[k + 1] - arm->wave_aa[k]);
  double y[4];
  for (int i = 0; i < 4; i++)
    y[i] = (double)row[k - 1 + i];
  for (int level = 1; level < 4; level++)
    for (int i = 0; i + level < 4; i++)
      y[i] = ((u - (i - 1 + level)) * y[i] - (u - (i - 1)) * y[i + 1]) / -level;
  return y[0];
}

typedef struct dense {
  int n;
  double inverse[MADE_MAX_PIX * MADE_MAX_PIX]; /**< covariance; later without the continuum */
  double ln_det;
  ref_prepared prepared;
} dense;

static dense of_segment[MADE_MAX_SEG];

static void invert(int n, double *a, double *ln_det)
{
  assert_int_equal(LAPACKE_dpotrf(LAPACK_ROW_MAJOR, 'L', n, a, n), 0);
  *ln_det = 0;
  for (int i = 0; i < n; i++)
    *ln_det += 2 * log(a[i * n + i]);
  LAPACKE_dpotri(LAPACK_ROW_MAJOR, 'L', n, a, n);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++)
      a[j * n + i] = a[i * n + j];
}

/** Squared sigma in A of the line-spread function at a pixel. */
static double width2(const made_segment *s, int p)
{
  if (s->with_sigma)
    return (double)s->sigma_aa[p] * (double)s->sigma_aa[p];
  const int h = s->n_diag / 2, n = s->n_pix, i = p < h ? h : (p >= n - h ? n - 1 - h : p);
  double sum = 0, square = 0;
  for (int k = 0; k < s->n_diag; k++) {
    const double x = (double)s->res[k * n + i + h - k];
    sum += x;
    square += x * x;
  }
  const double pixel = 0.5 * (s->wave_aa[i + 1] - s->wave_aa[i - 1]);
  return pow(sum * sum / (2 * sqrt(acos(-1.0)) * square) * pixel, 2);
}

/** What the error of the line-spread function's width adds to the covariance, by differences of
 *  densely convolved templates. */
static void add_width(const made_segment *s, double n_share, const double *templ,
                      const double *model, dense *d)
{
  const int n = s->n_pix;
  double more[MADE_MAX_PIX], row[MADE_MAX_PIX];
  made_more_aa2 = 1e-5;
  made_template(&fx.lib, fx.set.rotation, s, place, more);
  for (int slope = 0; slope < 2; slope++) {
    for (int p = 0; p < n; p++)
      row[p] = made_is_lost(&fx.lib, s, p, 4)
                   ? 0
                   : s->width_error * sqrt(n_share) * (slope ? 2.0 * p / (n - 1) - 1 : 1) * 2 *
                         width2(s, p) * (more[p] - templ[p]) / made_more_aa2 * model[p] *
                         d->prepared.sigma[p] / templ[p];
    cblas_dger(CblasRowMajor, n, n, 1, row, 1, row, 1, d->inverse, n);
  }
  made_more_aa2 = 0;
}

/** Component j of the sky at a segment's pixels. */
static void sky_row(const made_segment *s, int j, double *row)
{
  const mill_sky *sky = &fx.lib.arm[s->arm].sky;
  for (int p = 0; p < s->n_pix; p++) {
    row[p] = 0;
    for (int k = 0; k < sky->n_pix - 1; k++) {
      const double u = (s->wave_aa[p] - sky->wave_aa[k]) / (sky->wave_aa[k + 1] - sky->wave_aa[k]);
      const float *y = sky->component + j * sky->n_pix + k;
      if (u >= 0 && u <= 1)
        row[p] = (1 - u) * (double)y[0] + u * (double)y[1];
    }
  }
}

/** A segment's covariance, with the model error at the parameters `place`, by its definition. */
static void make_dense(const made_segment *s, double n_share, dense *d)
{
  const mill_arm *arm = &fx.lib.arm[s->arm];
  const mill_model_error *error = &arm->error;
  const int n = s->n_pix;
  static made_segment bare;
  double templ[MADE_MAX_PIX], sharp[MADE_MAX_PIX], model[MADE_MAX_PIX], rest[MADE_MAX_PIX],
      seen[MADE_MAX_PIX];
  const double beta = place[0] / MILL_C_KM_S, shift = sqrt((1 - beta) / (1 + beta));
  made_prepare(&fx.lib, &fx.set, s, &d->prepared);
  made_template(&fx.lib, fx.set.rotation, s, place, templ);
  bare = *s;
  bare.n_diag = 0;
  made_template(&fx.lib, fx.set.rotation, &bare, place, sharp);
  made_project(&fx.set, s, &d->prepared, templ, model);
  d->n = n;
  memset(d->inverse, 0, sizeof d->inverse);
  for (int p = 0; p < n; p++) {
    const double sigma = d->prepared.sigma[p], flux = model[p] * sigma;
    const int left = p > 0 ? p - 1 : 0, right = p < n - 1 ? p + 1 : p;
    const double width = log(s->wave_aa[right] / s->wave_aa[left]) / (right - left);
    rest[p] = s->wave_aa[p] * shift;
    int k = 0;
    while (k < arm->n_pix - 2 && arm->wave_aa[k + 1] <= rest[p])
      k++;
    const double u = (rest[p] - arm->wave_aa[k]) / (arm->wave_aa[k + 1] - arm->wave_aa[k]);
    const double fraction =
        error->fraction ? (1 - u) * (double)error->fraction[k] + u * (double)error->fraction[k + 1]
                        : 0;
    d->inverse[p * n + p] = sigma * sigma + n_share * error->correlation * arm->ln_step / width *
                                                fraction * fraction * flux * flux;
  }
  for (int j = 0; j < error->n_component; j++) {
    const float *row = error->component + (size_t)j * (size_t)arm->n_pix;
    for (int p = 0; p < n; p++) {
      double sum = s->n_diag ? 0 : row_at(arm, row, rest[p]) * sharp[p];
      for (int k = 0; k < s->n_diag; k++) {
        const int q = p - s->n_diag / 2 + k;
        if (q >= 0 && q < n)
          sum += s->row[p][k] * row_at(arm, row, rest[q]) * sharp[q];
      }
      seen[p] = error->sigma[j] * sqrt(n_share) * sum * model[p] * d->prepared.sigma[p] / templ[p];
    }
    cblas_dger(CblasRowMajor, n, n, 1, seen, 1, seen, 1, d->inverse, n);
  }
  if (s->width_error > 0)
    add_width(s, n_share, templ, model, d);
  for (int j = 0; j < arm->sky.n_component; j++) {
    sky_row(s, j, seen);
    cblas_dger(CblasRowMajor, n, n, 1, seen, 1, seen, 1, d->inverse, n);
  }
  invert(n, d->inverse, &d->ln_det);
}

/** F of a segment at theta.  left: the inverse covariance with the continuum projected out. */
static double project_dense(const made_segment *s, double n_share, const dense *d,
                            const double *theta, double *left, double *model)
{
  const int n = d->n, nk = fx.set.n_cont;
  static double design[MADE_MAX_PIX * MILL_MAX_CONT], with[MADE_MAX_PIX * MILL_MAX_CONT];
  static double x[MADE_MAX_PIX * MILL_MAX_CONT];
  double templ[MADE_MAX_PIX], normal[MILL_MAX_CONT * MILL_MAX_CONT], ln_det, f = d->ln_det;
  double share[MILL_MAX_CONT] = {0};
  made_template(&fx.lib, fx.set.rotation, s, theta, templ);
  for (int p = 0; p < n; p++)
    for (int k = 0; k < nk; k++)
      design[p * nk + k] = made_continuum(&fx.set, s, k, p) * templ[p];
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, nk, n, 1, d->inverse, n, design, nk, 0,
              with, nk);
  cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, nk, nk, n, 1, design, nk, with, nk, 0,
              normal, nk);
  invert(nk, normal, &ln_det);
  const int kind = fx.set.likelihood;
  if (kind == MILL_LIKE_MARGINAL || (kind == MILL_LIKE_AUTO && !fx.lib.arm[0].error.fraction))
    f += ln_det / (fx.lib.arm[s->arm].error.fraction ? n_share : 1); /* a width has weight 1 */
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, nk, nk, 1, with, nk, normal, nk, 0, x,
              nk);
  memcpy(left, d->inverse, sizeof *left * (size_t)(n * n));
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, nk, -1, x, nk, with, nk, 1, left, n);
  for (int p = 0; p < n; p++)
    for (int q = 0; q < n; q++)
      f += d->prepared.flux[p] * left[p * n + q] * d->prepared.flux[q];
  /* the continuum that fits best */
  cblas_dgemv(CblasRowMajor, CblasTrans, n, nk, 1, x, nk, d->prepared.flux, 1, 0, share, 1);
  for (int p = 0; p < n; p++) {
    model[p] = 0;
    for (int k = 0; k < nk; k++)
      model[p] += share[k] * made_continuum(&fx.set, s, k, p);
  }
  return f;
}

/** About the sum of (S/N)^2 over a segment's good pixels. */
static double weight_of(const made_segment *s)
{
  static ref_prepared prepared;
  made_prepare(&fx.lib, &fx.set, s, &prepared);
  return prepared.n_good * (1 + pow(fmax(prepared.sn, 0), 2));
}

/** Sum of the weights of an arm's segments within the wavelengths of s, over the weight of s. */
static double share_of(const made_segment *s)
{
  double sum = 0;
  for (int k = 0; k < fx.star.n_segment; k++) {
    const made_segment *t = &fx.star.segment[k];
    const double low = fmax(t->wave_aa[0], s->wave_aa[0]), last = t->wave_aa[t->n_pix - 1];
    const double both = log(fmin(last, s->wave_aa[s->n_pix - 1]) / low);
    sum += t->arm == s->arm ? weight_of(t) * fmax(both, 0) / log(last / t->wave_aa[0]) : 0;
  }
  return sum / weight_of(s);
}

/** f_error, hess_error: tolerances of F and of curvatures. */
static void compare_dense(const double *theta, double f_error, double hess_error)
{
  enum { NP = N_PAR };
  static double left[MADE_MAX_PIX * MADE_MAX_PIX];
  double f = 0, hess[NP * NP] = {0};
  mill_evaluation eval;
  jacobian(theta, &eval);
  for (int i = 0; i < fx.star.n_segment; i++) {
    const made_segment *s = &fx.star.segment[i];
    const double n_share = share_of(s);
    double cont[MADE_MAX_PIX];
    static double v[NP][MADE_MAX_PIX];
    make_dense(s, n_share, &of_segment[i]);
    f += project_dense(s, n_share, &of_segment[i], theta, left, cont);
    for (int j = 0; j < NP; j++) {
      double x[MAX_PAR], up[MADE_MAX_PIX], down[MADE_MAX_PIX];
      const double h = 3e-3 / sqrt(eval.hess[j * NP + j]);
      moved(theta, j, h, x);
      made_template(&fx.lib, fx.set.rotation, s, x, up);
      moved(theta, j, -h, x);
      made_template(&fx.lib, fx.set.rotation, s, x, down);
      for (int p = 0; p < s->n_pix; p++)
        v[j][p] = (up[p] - down[p]) / (2 * h) * cont[p];
    }
    for (int j = 0; j < NP; j++)
      for (int l = 0; l < NP; l++)
        for (int p = 0; p < s->n_pix; p++)
          hess[j * NP + l] +=
              v[j][p] * cblas_ddot(s->n_pix, left + (size_t)p * (size_t)s->n_pix, 1, v[l], 1);
  }
  f += made_penalty(&fx.lib, &fx.set, &fx.star, theta);
  /* The prepared data and the rows of the error are float32.  Rounding changes each
   * residual by a relative 1e-6; the residuals' sum of squares is 60^2. */
  assert_close(eval.f, f, f_error);
  for (int j = 0; j < NP; j++)
    for (int l = 0; l < NP; l++) {
      const double unit = sqrt(hess[j * NP + j] * hess[l * NP + l]);
      /* differences of the template: h^2 of a third derivative */
      assert_close(eval.hess[j * NP + l] / unit, hess[j * NP + l] / unit, hess_error);
    }
}

MILL_TEST(value_and_curvature_match_a_dense_covariance)
{
  static const int n_component[] = {0, 1, 8, 0, 1};
  static const int likelihood[] = {MILL_LIKE_MARGINAL, MILL_LIKE_PROFILE, MILL_LIKE_MARGINAL,
                                   MILL_LIKE_AUTO, MILL_LIKE_AUTO};
  for (int i = 0; i < 5; i++)
    for (int with_matrix = 0; with_matrix < 2; with_matrix++) {
      begin(n_component[i], 1 + with_matrix, with_matrix);
      fx.set.likelihood = likelihood[i];
      if (i != 1)
        assert_ok(test_library_add_sky(&fx.lib));
      open_pipeline();
      compare_dense(place, 2e-3, 2e-5);
      compare_dense(fx.truth, 2e-3, 2e-5);
    }
}

/** The halves of an arm have no wavelength in common, so their template errors are independent.
 *  The two exposures of the first half have one template error. */
MILL_TEST(pieces_of_an_arm)
{
  begin(8, 3, 0);
  for (int i = 0; i < fx.star.n_segment; i++) {
    made_segment *s = &fx.star.segment[i];
    s->n_pix /= 2;
    memmove(s->wave_aa, s->wave_aa + s->exposure % 2 * s->n_pix,
            (size_t)s->n_pix * sizeof *s->wave_aa);
  }
  made_star_fill(&fx.lib, fx.truth, 60, 1, &fx.random, &fx.star);
  open_pipeline();
  compare_dense(place, 2e-3, 2e-5);
}

/** Sigmas or matrices have a width error, with and without the library's model error.  The darkest
 *  pixel, in a strong line, has no line-spread function. */
MILL_TEST(width_of_the_line_spread_function)
{
  for (int kind = 0; kind < 4; kind++) {
    begin(kind == 3 ? 3 : 0, 1 + kind % 2, kind % 2);
    if (kind < 2)
      for (int a = 0; a < fx.lib.n_arm; a++)
        mill_model_error_clear(&fx.lib.arm[a].error);
    for (int i = 0; i < fx.star.n_segment; i++) {
      made_segment *s = &fx.star.segment[i];
      const double first = s->wave_aa[0], step = log(s->wave_aa[s->n_pix - 1] / first);
      for (int p = 1; p < s->n_pix; p++)
        s->wave_aa[p] = first * exp(step * p / (s->n_pix - 1));
      if (s->n_diag)
        made_resolution_rows(&fx.lib, s);
      s->width_error = 0.05;
      s->with_sigma = !s->n_diag;
      for (int p = 0; p < s->n_pix && s->with_sigma; p++)
        s->sigma_aa[p] = (float)(0.7 + 0.001 * p);
    }
    made_star_fill(&fx.lib, fx.truth, 60, 1, &fx.random, &fx.star);
    for (int i = 0; i < fx.star.n_segment; i++) {
      made_segment *s = &fx.star.segment[i];
      int p = s->n_pix / 2;
      for (int q = s->n_pix / 4; q < 3 * s->n_pix / 4; q++)
        p = s->flux[q] < s->flux[p] ? q : p;
      s->sigma_aa[p] = NAN;
      for (int k = 0; k < s->n_diag; k++) {
        s->res[k * s->n_pix + p + s->n_diag / 2 - k] = 0;
        s->row[p][k] = k == s->n_diag / 2;
      }
    }
    if (kind > 1)
      assert_ok(test_library_add_sky(&fx.lib));
    open_pipeline();
    /* with matrices the second derivative is good to 1 %, and width errors add a few sigma */
    compare_dense(place, kind % 2 ? 0.1 : 0.01, kind % 2 ? 0.009 : 0.002);
    compare_dense(fx.truth, kind % 2 ? 0.1 : 0.01, kind % 2 ? 0.009 : 0.002);
  }
}

static double value(const double *theta)
{
  mill_evaluation eval;
  jacobian(theta, &eval);
  return eval.f;
}

MILL_TEST(gradient_matches_differences)
{
  for (int likelihood = 0; likelihood < 2; likelihood++)
    for (int with_matrix = 0; with_matrix < 2; with_matrix++) {
      mill_evaluation eval;
      begin(with_matrix ? 8 : 3, 2 - likelihood, with_matrix);
      fx.set.likelihood = likelihood;
      open_pipeline();
      const int np = fx.lib.n_label + 2;
      double theta[MAX_PAR];
      memcpy(theta, fx.truth, sizeof theta);
      theta[1] = 66; /* so that all steps are above 0 */
      jacobian(theta, &eval);
      for (int j = 0; j < np; j++) {
        const double found = richardson(value, theta, j, 0.2 / sqrt(eval.hess[j * np + j]));
        const double unit = fmax(sqrt(eval.hess[j * np + j]), fabs(eval.grad[j]));
        /* as of the likelihood without model error (test_gradient.c) */
        assert_close(eval.grad[j] / unit, found / unit, 2e-5);
      }
    }
}

/** Fit with fixed settings, to compare results with and without model error bit for bit. */
static void fit_once(mill_fit_result *result)
{
  made_fit(&fx.lib, &fx.set, mill_backend_cpu(NULL), 1, 1, 1, &fx.star, NULL, result, NULL);
}

MILL_TEST(off_is_absent)
{
  mill_fit_result with, off, absent;
  begin(8, 1, 1);
  fit_once(&with);
  fx.set.model_error = 0;
  fit_once(&off);
  for (int a = 0; a < fx.lib.n_arm; a++)
    mill_model_error_clear(&fx.lib.arm[a].error);
  fit_once(&absent);
  assert_memory_equal(&off, &absent, sizeof off);
  fx.set.model_error = 1;
  fit_once(&off);
  assert_memory_equal(&off, &absent, sizeof off);
  /* template errors make label errors larger */
  assert_int_equal(with.status, MILL_STATUS_FITTED);
  for (int l = 0; l < fx.lib.n_label; l++)
    assert_true(with.label_err[l] > 0.99 * absent.label_err[l]); /* at another solution */
}

/** A residual that the sky components fit counts neither as noise nor as misfit. */
MILL_TEST(chi_squares_of_the_data_allow_for_the_sky)
{
  mill_fit_result r;
  begin(4, 1, 0);
  assert_ok(test_library_add_sky(&fx.lib));
  for (int i = 0; i < fx.star.n_segment; i++) {
    made_segment *s = &fx.star.segment[i];
    double row[MADE_MAX_PIX];
    sky_row(s, 1, row);
    for (int p = 0; p < s->n_pix; p++)
      s->flux[p] += (float)(3 * row[p]);
  }
  fit_once(&r);
  assert_int_equal(r.status, MILL_STATUS_FITTED);
  assert_int_equal(r.warn & MILL_WARN_NO_STAR, 0);
  /* chi-squares of n pixels: six standard deviations */
  const double n = (double)r.n_pix_tot;
  assert_close(r.chisq_data / n, 1, 6 * sqrt(2 / n));
  assert_close(r.chisq_noise / n, 1, 6 * sqrt(3 / n));
}

/** Noise is measured from the nearest good pixels that are three or more apart.  If these are more
 *  than eight apart, all of chi-square may be noise. */
MILL_TEST(noise_of_sparse_pixels)
{
  for (int apart = 1; apart <= 9; apart++) {
    mill_fit_result r;
    begin(0, 1, 0);
    for (int i = 0; i < fx.star.n_segment; i++)
      for (int p = 0; p < fx.star.segment[i].n_pix; p++)
        fx.star.segment[i].mask[p] = p % apart != 0;
    fit_once(&r);
    assert_int_equal(r.status, MILL_STATUS_FITTED);
    assert_int_equal(r.warn & MILL_WARN_NO_STAR, 0);
    const double n = (double)r.n_pix_tot;
    if (apart < 9)
      assert_close(r.chisq_noise / n, 1, 6 * sqrt(3 / n)); /* six standard deviations */
    else
      assert_close(r.chisq_noise, r.chisq_data, 0);
  }
}

/** The fit's covariance of the model error is the one at its solution: with that covariance the
 *  next step is below 0.1 errors.  Templates are wrong by several times their stated error. */
MILL_TEST(solution_is_that_of_its_own_covariance)
{
  for (int i = 0; i < 12; i++) {
    mill_fit_result r;
    mill_evaluation eval;
    double step[N_PAR], promise = 0;
    begin(1 + i % 8, 1 + i % 2, i % 3 == 0);
    for (int a = 0; a < fx.lib.n_arm; a++) {
      mill_model_error *error = &fx.lib.arm[a].error;
      for (int j = 0; j < error->n_component; j++)
        error->sigma[j] *= 10;
      for (int p = 0; p < fx.lib.arm[a].n_pix; p++)
        error->fraction[p] *= 10;
    }
    made_star_fill(&fx.lib, fx.truth, 1000, 1, &fx.random, &fx.star);
    for (int k = 0; k < fx.star.n_segment; k++)
      for (int p = 0; p < fx.star.segment[k].n_pix; p++)
        fx.star.segment[k].flux[p] *= (float)(1 + 0.02 * sin(0.4 * p));
    fit_once(&r);
    assert_int_equal(r.status, MILL_STATUS_FITTED);
    place[MILL_PAR_VRAD] = r.vrad_km_s;
    place[MILL_PAR_VSINI] = r.vsini_km_s;
    memcpy(place + MILL_PAR_LABEL0, r.label, (size_t)fx.lib.n_label * sizeof *place);
    open_pipeline();
    jacobian(place, &eval);
    if (r.vsini_km_s == 0)
      eval.hess[MILL_PAR_VSINI * (N_PAR + 1)] = 1e30; /* at its limit it stays */
    memcpy(step, eval.grad, sizeof step);
    assert_int_equal(LAPACKE_dposv(LAPACK_ROW_MAJOR, 'L', N_PAR, 1, eval.hess, N_PAR, step, 1), 0);
    for (int j = 0; j < N_PAR; j++)
      promise += 0.25 * eval.grad[j] * step[j];
    assert_true(promise < 0.01);
  }
}

/** A second segment with the spectrum of the first changes no label and no label error.  This also
 *  holds where the second segment is noisier. */
MILL_TEST(exposures_share_the_error)
{
  mill_fit_result one, two;
  begin(4, 1, 0);
  fx.star.n_segment = 1;
  made_star_fill(&fx.lib, fx.truth, 1e4, 0, &fx.random, &fx.star); /* the templates' error alone */
  fit_once(&one);
  fx.star.segment[1] = fx.star.segment[0];
  fx.star.segment[1].exposure = 1;
  fx.star.n_segment = 2;
  for (int is_noisy = 0; is_noisy < 2; is_noisy++) {
    for (int p = 0; p < fx.star.segment[1].n_pix && is_noisy; p++)
      fx.star.segment[1].ivar[p] *= 1e-6f; /* S/N 10 */
    fit_once(&two);
    /* noise is 1e-4 of a pixel's flux, and the model error is 20 to 60 times the noise */
    for (int l = 0; l < fx.lib.n_label; l++) {
      assert_close(two.label_err[l] / one.label_err[l], 1, 0.02);
      assert_close((two.label[l] - one.label[l]) / one.label_err[l], 0, 1e-3);
    }
  }
}

/** Errors too small for float32 count as 1e-4 of the flux, so VRAD_ERR does not change. */
MILL_TEST(errors_below_rounding)
{
  mill_fit_result r[2];
  begin(0, 1, 0);
  fx.set.model_error = 0;
  made_star_fill(&fx.lib, fx.truth, 1e4, 0, &fx.random, &fx.star);
  for (int k = 0; k < 2; k++) {
    for (int i = 0; i < fx.star.n_segment; i++)
      for (int p = 0; p < fx.star.segment[i].n_pix; p++)
        fx.star.segment[i].ivar[p] = (k == 0 ? 1e8f : 1e14f) / powf(fx.star.segment[i].flux[p], 2);
    fit_once(&r[k]);
  }
  assert_int_equal(r[1].warn, r[0].warn);
  assert_true(r[0].vrad_err_km_s > 0);
  assert_close(r[1].vrad_err_km_s / r[0].vrad_err_km_s, 1, 0.01); /* moments are rounded */
}

/* The CPU only computes the part of the grid that a star sees within the velocity limits. */
MILL_TEST(velocity_limits_change_no_bit)
{
  static const int request[] = {MILL_REQ_VALUES, MILL_REQ_TANGENTS, MILL_REQ_MODELS};
  for (int i = 0; i < 4; i++) {
    mill_evaluation eval[2][3];
    mill_fit_result prepared;
    memset(eval, 0, sizeof eval);
    begin(3, 1, i % 2);
    fx.set.precision = i < 2 ? MILL_FLOAT64 : MILL_FLOAT32;
    made_star_cut(&fx.lib, 1, 0.8, i % 2, 160, &fx.random, &fx.star);
    made_star_fill(&fx.lib, fx.truth, 60, 1, &fx.random, &fx.star);
    for (int k = 0; k < 2; k++) {
      fx.set.max_vel_km_s = k == 0 ? 100 : 2000;
      fx.set.min_vel_km_s = -fx.set.max_vel_km_s;
      open_pipeline();
      for (int r = 0; r < 3; r++)
        made_ask(fx.pipeline, &fx.raw, request[r], 1, fx.truth, &eval[k][r], &prepared);
      close_pipeline();
    }
    assert_memory_equal(eval[0], eval[1], sizeof eval[0]);
  }
}

MILL_TEST(too_many_rows_are_refused)
{
  begin(MILL_MAX_COMPONENT, 1, 0);
  fx.set.n_cont = MILL_MAX_CONT;
  assert_ok(mill_device_model_check(&fx.lib, &fx.set)); /* 16 + 24 + 6 */
  fx.lib.n_label = 7;
  assert_fails(mill_device_model_check(&fx.lib, &fx.set), MILL_ERR_CONFIG, "model_error: false");
  fx.set.model_error = 0;
  assert_ok(mill_device_model_check(&fx.lib, &fx.set));
}

MILL_TEST_MAIN(NULL, NULL)
