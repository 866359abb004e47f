/* SPDX-License-Identifier: BSD-3-Clause */
/* Line-spread functions given as a sigma per pixel are compared with the resolution matrix of the
 * same Gaussian, and with densely convolved templates (made_star.h).  Some pixels lack a sigma. */
#include "tests/mill_test.h"

enum { SEED = 90210, MAX_STAR = 3, EDGE = 6, N_LABEL = 3, N_ARM = 2 };

#include "tests/fit/made_survey.h"

static made_star star[MAX_STAR];
static double truth[MAX_STAR][N_PAR];
static mill_fit_result result[2][MAX_STAR];

/** Make a star with pixels of about step_aa, uniform in ln wavelength as in most surveys.  Its
 *  line-spread function is broader than the templates' by a Gaussian of sigma lack_pix(x) pixels;
 *  x runs from 0 to 1 along the arm. */
static void make(double step_aa, double (*lack_pix)(double x), uint64_t *random, made_star *out)
{
  made_star_init(&lib, 1, step_aa, 0, random, out);
  for (int i = 0; i < out->n_segment; i++) {
    made_segment *s = &out->segment[i];
    const double first = s->wave_aa[0], templ = lib.arm[s->arm].template_sigma_aa;
    const double pixel_ln = log(s->wave_aa[s->n_pix - 1] / first) / (s->n_pix - 1);
    s->with_sigma = 1;
    for (int p = 0; p < s->n_pix; p++) {
      s->wave_aa[p] = first * exp(pixel_ln * p);
      const double lack = lack_pix((double)p / s->n_pix) * s->wave_aa[p] * pixel_ln;
      s->sigma_aa[p] = (float)sqrt(lack * lack + (templ > 0 ? templ * templ : 0));
    }
  }
}

static double about_one(double x)
{
  return 1.0 + 0.25 * x;
}

/** Sigma in pixels: from almost 0, through the change of weights (0.6 to 0.8), to 1.65. */
static double through_the_change(double x)
{
  return 0.05 + 1.6 * x;
}

/** With pixels of 1.2 A in the test library's arm b: a blur of 0.8 grid steps. */
static double narrow(double x)
{
  return 0.22 + 0.01 * x;
}

static void evaluate(made_star *s, const double *theta, int request, mill_evaluation *eval,
                     mill_fit_result *prepared)
{
  MILL_AT_END(mill_pipeline_destroy_at) mill_pipeline *pipeline = NULL;
  mill_star raw;
  assert_ok(mill_pipeline_create(&lib, 1, &set, mill_backend_cpu(NULL), 1, 1, 0, &pipeline));
  made_star_raw(0, s, &raw);
  made_ask(pipeline, &raw, request, 1, theta, eval, prepared);
}

static void template_sigma(double sigma_aa)
{
  for (int a = 0; a < lib.n_arm; a++)
    lib.arm[a].template_sigma_aa = sigma_aa;
}

/** The same star with the matrix of its Gaussians, in DESI's layout. */
static void matrix_for_sigma(const made_star *from, made_star *to)
{
  *to = *from;
  for (int i = 0; i < to->n_segment; i++) {
    made_segment *s = &to->segment[i];
    const int n = s->n_pix, h = MADE_N_DIAG / 2;
    s->with_sigma = 0;
    s->n_diag = MADE_N_DIAG;
    memset(s->res, 0, sizeof s->res);
    for (int p = 0; p < n; p++) {
      double weight[MADE_N_DIAG], sum = 0;
      for (int k = 0; k < MADE_N_DIAG; k++) {
        const int j = p - h + k, right = j + 1 < n ? j + 1 : n - 1, left = j > 0 ? j - 1 : 0;
        weight[k] =
            j < 0 || j >= n
                ? 0
                : exp(-0.5 * pow((s->wave_aa[j] - s->wave_aa[p]) / (double)s->sigma_aa[p], 2)) *
                      (s->wave_aa[right] - s->wave_aa[left]) / (right - left);
        sum += weight[k];
      }
      for (int k = 0; k < MADE_N_DIAG; k++)
        if (p - h + k >= 0 && p - h + k < n)
          s->res[(2 * h - k) * n + p - h + k] = (float)(weight[k] / sum);
    }
  }
}

/** Mask more pixels at the ends than a fit leaves out there, with a sigma or with a matrix. */
static void mask_ends(made_star *s)
{
  for (int i = 0; i < s->n_segment; i++)
    for (int p = 0; p < EDGE; p++)
      s->segment[i].mask[p] = s->segment[i].mask[s->segment[i].n_pix - 1 - p] = 1;
}

MILL_TEST(sigma_equals_the_matrix_of_the_same_gaussian)
{
  static made_star with_matrix;
  uint64_t random = SEED;
  made_settings(&lib, &set);
  set.precision = MILL_FLOAT64;
  template_sigma(0);
  make(0.8, about_one, &random, &star[0]);
  made_theta(&lib, 0.5, 150, 60, &random, truth[0]);
  made_star_fill(&lib, truth[0], 40, 1, &random, &star[0]);
  mask_ends(&star[0]);
  matrix_for_sigma(&star[0], &with_matrix);
  for (int trial = 0; trial < 4; trial++) {
    mill_evaluation a, b;
    mill_fit_result ra, rb;
    double theta[N_PAR];
    made_theta(&lib, 0.5, 150, 60, &random, theta);
    const double *at = trial == 0 ? truth[0] : theta;
    evaluate(&star[0], at, MILL_REQ_TANGENTS, &a, &ra);
    evaluate(&with_matrix, at, MILL_REQ_TANGENTS, &b, &rb);
    assert_int_equal(ra.n_pix_tot, rb.n_pix_tot);
    /* Sigma blurs the templates partly on their grid; a matrix blurs their pixels, less exactly.
     * F differs by 1e-3 where residuals are as large as the noise. */
    assert_close(a.f, b.f, 5e-3 + 1e-5 * fabs(b.f));
    for (int j = 0; j < N_PAR; j++) {
      const double size = sqrt(b.hess[j * N_PAR + j]);
      assert_close(a.grad[j], b.grad[j], 2e-3 * size + 1e-5 * fabs(b.grad[j]));
      assert_close(a.hess[j * N_PAR + j], b.hess[j * N_PAR + j], 4e-4 * size * size);
    }
  }
  template_sigma(0.5);
}

static void leave_out(made_segment *s)
{
  const int n_all = s->n_pix;
  s->n_pix = 0;
  for (int p = 0; p < n_all; p++) {
    s->wave_aa[s->n_pix] = s->wave_aa[p];
    s->sigma_aa[s->n_pix] = s->sigma_aa[p];
    s->n_pix += p % 40 > 2;
  }
}

/** chi-square at the truth without noise, with and without the line-spread function. */
static void check_noise_free(double step_aa, double (*lack)(double x), int with_gaps,
                             double chisq_per_pixel)
{
  uint64_t random = SEED;
  make(step_aa, lack, &random, &star[0]);
  for (int i = 0; i < star[0].n_segment && with_gaps; i++)
    leave_out(&star[0].segment[i]);
  made_theta(&lib, 0.5, 150, 0, &random, truth[0]);
  made_star_fill(&lib, truth[0], 100, 0, &random, &star[0]);
  mask_ends(&star[0]);
  mill_evaluation with, without;
  mill_fit_result prepared;
  evaluate(&star[0], truth[0], MILL_REQ_MODELS, &with, &prepared);
  const double n = (double)prepared.n_pix_tot;
  assert_int_equal(prepared.info & MILL_INFO_LSF_UNUSABLE, with_gaps ? MILL_INFO_LSF_UNUSABLE : 0);
  made_star plain = star[0];
  for (int i = 0; i < plain.n_segment; i++)
    plain.segment[i].with_sigma = 0;
  evaluate(&plain, truth[0], MILL_REQ_MODELS, &without, &prepared);
  const double a = (with.chisq[0] + with.chisq[1]) / n;
  const double b = (without.chisq[0] + without.chisq[1]) / n;
  printf("chi-square a pixel at S/N 100: %.2g with, %.2g without the line-spread function\n", a, b);
  assert_true(a < chisq_per_pixel);
  assert_true(b > 1000 * chisq_per_pixel);
}

MILL_TEST(templates_become_what_a_dense_convolution_makes)
{
  made_settings(&lib, &set);
  set.precision = MILL_FLOAT64;
  template_sigma(0.5);
  /* Limits are on chi-square per pixel.  float32 weights are off by 6e-8, at a flux of 100 sigma.
   * At pixels of 1.2 A narrow kernels have only nine weights: the chi-square reaches 1.5e-6. */
  check_noise_free(0.45, about_one, 0, 1e-8);
  check_noise_free(0.45, through_the_change, 0, 1e-8);
  check_noise_free(0.8, about_one, 0, 1e-8);
  check_noise_free(0.8, through_the_change, 0, 1e-6);
  check_noise_free(1.2, about_one, 0, 1e-7);
  check_noise_free(1.2, through_the_change, 0, 5e-6);
  check_noise_free(1.2, narrow, 0, 1e-7);
  /* If the wavelengths skip pixels, no line-spread function crosses the gap, and the pixels next
   * to it keep their width.  The limits are the same as without gaps. */
  check_noise_free(0.8, about_one, 1, 1e-8);
  check_noise_free(0.8, through_the_change, 1, 1e-6);
  check_noise_free(1.2, about_one, 1, 1e-7);
}

static void fit_both(int n, void (*change)(made_segment *))
{
  static made_star changed[MAX_STAR];
  memcpy(changed, star, sizeof changed);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < changed[i].n_segment; k++)
      change(&changed[i].segment[k]);
  const mill_backend *backend = mill_backend_cpu(NULL);
  made_fit(&lib, &set, backend, 4, 1, n, star, NULL, result[0], NULL);
  made_fit(&lib, &set, backend, 4, 1, n, changed, NULL, result[1], NULL);
}

/** Parameters of the changed stars agree with the expected ones within n_error errors. */
static void assert_near(const mill_fit_result *expected, double n_error)
{
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < N_PAR; j++)
      assert_close(made_par(&result[1][i], j), made_par(&expected[i], j),
                   n_error * made_err(&expected[i], j));
}

static void make_few(double sigma_aa)
{
  uint64_t random = SEED;
  made_settings(&lib, &set);
  template_sigma(0.5);
  for (int i = 0; i < 3; i++) {
    make(0.7, about_one, &random, &star[i]);
    for (int k = 0; k < star[i].n_segment && sigma_aa > 0; k++)
      for (int p = 0; p < MADE_MAX_PIX; p++)
        star[i].segment[k].sigma_aa[p] = (float)sigma_aa;
    made_theta(&lib, 0.5, 200, 60, &random, truth[i]);
    made_star_fill(&lib, truth[i], 40, 1, &random, &star[i]);
  }
}

static void spoil_some(made_segment *s)
{
  s->sigma_aa[50] = NAN;
  s->sigma_aa[60] = 0;
  s->sigma_aa[70] = -1;
  s->sigma_aa[80] = INFINITY;
  s->sigma_aa[90] = 1e4f; /* wider than any matrix */
}

static void mask_the_same(made_segment *s)
{
  for (int p = 50; p <= 90; p += 10)
    s->mask[p] = 1;
}

MILL_TEST(pixels_with_an_invalid_sigma_are_not_fitted)
{
  make_few(0);
  fit_both(3, spoil_some);
  for (int i = 0; i < 3; i++) {
    for (int a = 0; a < 2; a++)
      assert_int_equal(result[1][i].n_pix[a], result[0][i].n_pix[a] - 5);
    assert_int_equal(result[1][i].status, MILL_STATUS_FITTED);
    assert_int_equal(result[1][i].info & MILL_INFO_LSF_UNUSABLE, 0);
  }
  assert_near(result[0], 1); /* 10 of 700 pixels change a parameter by little of its error */
  /* masks give nearly the same fit: either way these pixels' errors are 1000 x the median flux */
  static mill_fit_result spoiled[3];
  memcpy(spoiled, result[1], sizeof spoiled);
  fit_both(3, mask_the_same);
  assert_near(spoiled, 0.02);
}

/** Every ninth pixel, or all. */
static int every;

static void spoil_many(made_segment *s)
{
  for (int p = 0; p < s->n_pix; p += every)
    s->sigma_aa[p] = p % 2 || every > 1 ? NAN : 1e5f;
}

MILL_TEST(many_invalid_sigmas_are_told)
{
  make_few(0);
  for (every = 1; every <= 9; every += 8) {
    fit_both(3, spoil_many);
    for (int i = 0; i < 3; i++) {
      assert_int_equal(result[0][i].info & MILL_INFO_LSF_UNUSABLE, 0);
      assert_int_equal(result[1][i].status, every > 1 ? MILL_STATUS_FITTED : MILL_STATUS_BAD_LSF);
      assert_true(result[1][i].info & MILL_INFO_LSF_UNUSABLE);
    }
  }
}

static void narrow_60(made_segment *s)
{
  s->sigma_aa[60] = 0.01f;
}

/* Templates of 0.5 A are broadened for pixels of 0.7 A.  One small sigma must not limit this. */
MILL_TEST(a_single_sigma_does_not_change_the_other_pixels)
{
  for (int how = 0; how < 3; how++) { /* pixel 60 has a mask, has no weight, or is fitted */
    make_few(0);
    for (int i = 0; i < 3; i++)
      for (int k = 0; k < star[i].n_segment; k++) {
        star[i].segment[k].mask[60] = how == 0;
        star[i].segment[k].ivar[60] *= how == 1 ? 0 : 1;
      }
    fit_both(3, narrow_60);
    /* one of 350 pixels moves results by sqrt(1/350) = 0.05 errors; the limit is four times this */
    assert_near(result[0], how < 2 ? 1e-3 : 0.2);
  }
}

static void no_sigma(made_segment *s)
{
  s->with_sigma = 0;
}

/** Everything but FIT_INFO's bit of narrow functions. */
static void assert_same_but_narrow(int n, int narrow)
{
  for (int i = 0; i < n; i++) {
    assert_int_equal((result[0][i].info & MILL_INFO_LSF_NARROW) != 0, narrow);
    result[0][i].info &= ~MILL_INFO_LSF_NARROW;
    assert_memory_equal(&result[0][i], &result[1][i], sizeof result[0][i]);
  }
}

MILL_TEST(a_function_narrower_than_templates_is_told_and_changes_nothing)
{
  make_few(0.4); /* templates carry 0.5 A */
  fit_both(3, no_sigma);
  assert_same_but_narrow(3, 1);
  make_few(0.5); /* the same as templates */
  fit_both(3, no_sigma);
  assert_same_but_narrow(3, 0);
}

static void half_sharp(made_segment *s)
{
  for (int p = 0; p < s->n_pix; p++)
    s->sigma_aa[p] = p < s->n_pix / 2 ? 0.55f : 1.0f;
}

/* Pixels with sigma 0.55 A limit the blur of the arm's templates.  Pixels of 1.2 A sample these
 * sharp templates too coarsely to broaden them to 1 A.  If all sigmas are large, so is the blur. */
MILL_TEST(pixels_too_coarse_for_half_of_the_functions_are_told)
{
  uint64_t random = SEED;
  made_settings(&lib, &set);
  template_sigma(0.5);
  make(1.2, about_one, &random, &star[0]);
  made_theta(&lib, 0.5, 200, 60, &random, truth[0]);
  made_star_fill(&lib, truth[0], 40, 1, &random, &star[0]);
  fit_both(1, half_sharp);
  assert_int_equal(result[0][0].info & MILL_INFO_LSF_COARSE, 0);
  assert_int_equal(result[1][0].info & MILL_INFO_LSF_COARSE, MILL_INFO_LSF_COARSE);
}

/** as_matrix gives a segment the matrix of Gaussians of this sigma (A). */
static double matrix_sigma_aa;

static void as_matrix(made_segment *s)
{
  static made_star one, with_matrix;
  for (int p = 0; p < s->n_pix; p++)
    s->sigma_aa[p] = (float)matrix_sigma_aa;
  one.n_segment = 1;
  one.segment[0] = *s;
  matrix_for_sigma(&one, &with_matrix);
  *s = with_matrix.segment[0];
}

/* Templates of 0.5 A are broader than a matrix of 0.3 A, which then blurs nothing. */
MILL_TEST(a_matrix_narrower_than_templates_is_told_and_changes_nothing)
{
  make_few(0.5);
  for (int i = 0; i < 3; i++)
    mask_ends(&star[i]);
  matrix_sigma_aa = 0.3;
  fit_both(3, as_matrix);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(result[0][i].info & MILL_INFO_LSF_NARROW, 0);
    assert_int_equal(result[1][i].info & MILL_INFO_LSF_NARROW, MILL_INFO_LSF_NARROW);
    assert_int_equal(result[1][i].status, MILL_STATUS_FITTED);
  }
  assert_near(result[0], 0.01); /* rows have one weight, which is 1 within float32 */
  matrix_sigma_aa = 0.6;
  fit_both(3, as_matrix);
  for (int i = 0; i < 3; i++)
    assert_int_equal(result[1][i].info & (MILL_INFO_LSF_NARROW | MILL_INFO_LSF_UNUSABLE), 0);
}

/** as_empty_matrix writes 0 if this is even, else NaN: below 2 to every ninth row, else to all. */
static int empty;

static void as_empty_matrix(made_segment *s)
{
  as_matrix(s);
  for (int e = 0; e < s->n_diag * s->n_pix; e++) /* dia layout: the column, and so the row */
    if (empty > 1 || (e % s->n_pix + e / s->n_pix - s->n_diag / 2) % 9 == 0)
      s->res[e] = empty % 2 ? NAN : 0;
}

MILL_TEST(many_empty_rows_of_a_matrix_are_told)
{
  matrix_sigma_aa = 0.6;
  make_few(0);
  for (empty = 0; empty < 4; empty++) {
    fit_both(3, as_empty_matrix);
    for (int i = 0; i < 3; i++) {
      assert_true(result[1][i].info & MILL_INFO_LSF_UNUSABLE);
      assert_int_equal(result[1][i].status, empty < 2 ? MILL_STATUS_FITTED : MILL_STATUS_BAD_LSF);
    }
  }
}

MILL_TEST(sigma_is_not_used_where_templates_are_at_the_instruments_resolution)
{
  make_few(1.5);
  template_sigma(-1);
  fit_both(3, no_sigma);
  assert_same_but_narrow(3, 0);
  template_sigma(0.5);
  set.resolution = MILL_RES_NONE;
  fit_both(3, no_sigma);
  assert_same_but_narrow(3, 0);
  set.resolution = MILL_RES_AUTO;
  fit_both(3, no_sigma);
  for (int i = 0; i < 3; i++)
    assert_true(fabs(result[0][i].m2ll - result[1][i].m2ll) > 1);
}

MILL_SEEDED_TEST_MAIN(SEED, set_up, tear_down)
