/* SPDX-License-Identifier: BSD-3-Clause */
/* Samples of densities with known moments: Gaussians, a Gaussian cut by a limit, and a density
 * with two modes.  The test answers each request in the place of the likelihood. */
#include "tests/mill_test.h"

#include "kernels/star/blocks/sample_weigh.h"
#include "kernels/star/logic/sample.h"
#include "tests/kernels/star/paraboloid.h"

enum { MOST = 20000, N_DRAW = 400 };

static double formal_error; /* of label 1; NaN: none */
static mill_part part[MILL_SAMPLE_PART];
static float point[(MOST + 1) * NP], ln_p[MOST], ln_w[MOST], sorted[MOST];
static struct {
  mill_posterior posterior;
  double draw[N_DRAW * NP];
} out;

/** Set up a star with VRAD, v sin i and three labels without a hull, and a correlated paraboloid F.
 *  ess: effective samples asked for. */
static void make(int ess)
{
  paraboloid(60, 4);
  memset(&out, 0, sizeof out);
  model.set.sample =
      (mill_sample_settings){.max_eval = MOST, .n_draw = N_DRAW, .least_ess = ess, .seed = 7};
  for (int l = 0; l < N_LABEL; l++) {
    model.label[l].min = -5;
    model.label[l].max = 5;
  }
  formal_error = NAN;
  slot.sample.part = part;
  slot.sample.x = point;
  slot.sample.ln_p = ln_p;
  slot.sample.ln_w = ln_w;
  slot.sample.sorted = sorted;
  slot.sample.posterior = &out.posterior;
  slot.sample.identity = 4711;
  for (int j = 0; j < NP; j++)
    slot.free_par[slot.n_free++] = j;
}

static double gaussian(const double *theta)
{
  double f = 0;
  for (int i = 0; i < NP; i++)
    for (int j = 0; j < NP; j++)
      f += (theta[i] - centre[i]) * hess[i * NP + j] * (theta[j] - centre[j]);
  return f;
}

static void look(mill_block *b, void *task)
{
  (void)task;
  mill_block_points_look(b, &model, &slot);
}

/** Sample f from `centre`, moved by `off` in the last label; returns the evaluations. */
static int sample_from(double (*f)(const double *theta), double off)
{
  int n = 0;
  memcpy(slot.best.end, centre, sizeof centre);
  slot.best.end[NP - 1] += off;
  slot.result.m2ll = f(slot.best.end) + mill_penalty(&model, &slot, slot.best.end);
  slot.result.vrad_err_formal_km_s = slot.result.vsini_err_formal_km_s = NAN;
  for (int l = 0; l < N_LABEL; l++)
    slot.result.label_err_formal[l] = l == 1 ? formal_error : NAN;
  while (mill_sample_run(&model, &slot, slot.place) == MILL_IS_ASKING) {
    if (slot.request == MILL_REQ_WEIGH) {
      mill_block_run(look, NULL);
      continue;
    }
    assert_int_equal(slot.request, MILL_REQ_VALUES);
    for (int j = 0; j < NP; j++) { /* nothing is asked for beyond the limits */
      assert_true(slot.theta[j] >= mill_par_min(&model, j));
      assert_true(slot.theta[j] <= mill_par_max(&model, j));
    }
    answer_values(0, f);
    n++;
  }
  assert_int_equal(slot.result.status, MILL_STATUS_FITTED);
  assert_int_equal(out.posterior.n_eval, n);
  return n;
}

/** The same from the solution itself, whose curvature is hess. */
static int sample(double (*f)(const double *theta))
{
  memcpy(slot.best.at.hess, hess, sizeof hess);
  return sample_from(f, 0);
}

static double covar(int i, int j)
{
  return i > j ? covar(j, i) : out.posterior.covar[i * NP - i * (i - 1) / 2 + (j - i)];
}

/** Moments and percentiles against the Gaussian's, within 4 standard errors.  These are, for 4,000
 *  effective samples, 1.6 % of sigma in a mean, 1.1 % in a sigma, 4.2 % in the 2.5th percentile. */
static void check_gaussian(int flag)
{
  static const double quantile[5] = {-1.959963985, -0.994457883, 0, 0.994457883, 1.959963985};
  double l[NP * NP], truth[NP * NP];
  memcpy(l, hess, sizeof hess);
  assert_int_equal(mill_cholesky(NP, l, NP), 0);
  mill_cholesky_inverse(NP, l, NP, truth, NP);
  for (int i = 0; i < NP; i++) {
    const double sigma = sqrt(truth[i * NP + i]);
    assert_close(out.posterior.mean[i], centre[i], 0.064 * sigma);
    assert_close(sqrt(covar(i, i)) / sigma, 1, 0.05);
    for (int j = 0; j < i; j++)
      assert_close(covar(i, j) / sqrt(truth[i * NP + i] * truth[j * NP + j]),
                   truth[i * NP + j] / sqrt(truth[i * NP + i] * truth[j * NP + j]), 0.07);
    for (int q = 0; q < MILL_N_PERCENTILE; q++)
      assert_close((out.posterior.percentile[q][i] - centre[i]) / sigma, quantile[q],
                   q % 4 == 0 ? 0.17 : 0.1);
    assert_true(out.posterior.ess[i] >= 4000);
  }
  assert_int_equal(out.posterior.flag, flag);
  assert_true(out.posterior.pareto < 0.5);
  assert_true(out.posterior.m2ll_least >= 0 && out.posterior.m2ll_least < 0.5);
}

MILL_TEST(a_gaussian_takes_one_proposal)
{
  make(4000);
  const int n = sample(gaussian);
  printf("%d evaluations, Pareto k %.2f\n", n, out.posterior.pareto);
  check_gaussian(0);
  assert_true(n < 1.2 * 4000);
  assert_int_equal(slot.sample.n_part, 1);
}

/** The fit's curvature is 30 times too large or too small, and its end is three deviations off. */
MILL_TEST(proposals_learn)
{
  for (int k = 0; k < 3; k++) {
    make(4000);
    double right[NP * NP];
    memcpy(right, hess, sizeof right);
    for (int e = 0; e < NP * NP; e++)
      slot.best.at.hess[e] = hess[e] * (k == 0 ? 30 : 1 / 30.0);
    if (k == 2)
      memset(slot.best.at.hess, 0, sizeof slot.best.at.hess); /* no minimum at all */
    const int n = sample_from(gaussian, k == 0 ? 3 * 0.05 : 0);
    printf("%d evaluations, %d proposals\n", n, slot.sample.n_part);
    out.posterior.flag &= ~MILL_POST_LOWER; /* as it should */
    check_gaussian(0);
    assert_true(n < 3 * 4000);
  }
}

MILL_TEST(draws_are_of_the_posterior)
{
  make(4000);
  sample(gaussian);
  for (int j = 0; j < NP; j++) {
    double mean = 0, var = 0;
    for (int i = 0; i < N_DRAW; i++)
      mean += out.draw[i * NP + j] / N_DRAW;
    for (int i = 0; i < N_DRAW; i++)
      var += pow(out.draw[i * NP + j] - mean, 2) / N_DRAW;
    const double sigma = sqrt(covar(j, j));
    /* 400 draws: 4 of their errors, 5 % and 3.5 % */
    assert_close(mean, out.posterior.mean[j], 0.2 * sigma);
    assert_close(sqrt(var) / sigma, 1, 0.14);
  }
}

/** Where v sin i is 0 or at its upper limit, the limit cuts off half of a Gaussian. */
MILL_TEST(a_limit_cuts_the_posterior)
{
  const int v = MILL_PAR_VSINI;
  for (int upper = 0; upper < 2; upper++) {
    make(4000);
    centre[v] = upper ? model.set.max_vsini_km_s : 0;
    for (int j = 0; j < NP; j++) /* uncorrelated, so that the half Gaussian is its own marginal */
      if (j != v)
        hess[j * NP + v] = hess[v * NP + j] = 0;
    sample(gaussian);
    const double inwards = (upper ? -1 : 1) * sqrt(hess[v * (NP + 1)]);
    /* mean sqrt(2/pi), deviation sqrt(1 - 2/pi), median 0.6745, each within 4 standard errors */
    assert_close((out.posterior.mean[v] - centre[v]) * inwards, 0.7978845608, 0.04);
    assert_close(sqrt(covar(v, v)) * fabs(inwards), 0.6028102749, 0.035);
    assert_close((out.posterior.percentile[2][v] - centre[v]) * inwards, 0.6744897502, 0.05);
    assert_int_equal(out.posterior.flag, MILL_POST_LIMIT);
  }
}

/** Two modes eight deviations apart; the fit is at the smaller one (weight 1/4). */
static double two_modes(const double *theta)
{
  double other[NP];
  memcpy(other, theta, sizeof other);
  other[4] -= 8 * 0.05;
  return -2 * log(0.25 * exp(-0.5 * gaussian(theta)) + 0.75 * exp(-0.5 * gaussian(other)));
}

MILL_TEST(a_lower_minimum_is_flagged)
{
  make(4000);
  model.set.sample.least_ess = 1000;
  for (int e = 0; e < NP * NP; e++)
    hess[e] /= 16; /* the proposal is four times as wide and so about both */
  sample(two_modes);
  assert_true(out.posterior.flag & MILL_POST_LOWER);
  for (int known = 0; known < 2; known++) { /* the refit found what the fit's row missed */
    make(500);
    slot.starts.has_given = 1;
    slot.starts.given_f = known ? 2 : INFINITY;
    sample(gaussian);
    assert_int_equal(out.posterior.flag, known ? MILL_POST_LOWER : 0);
  }
  make(500);
  slot.starts.has_given = 1; /* F of the fit's row is 0: the refit missed the minimum */
  memcpy(slot.best.at.hess, hess, sizeof hess);
  sample_from(gaussian, 0.075);
  assert_true(out.posterior.flag & MILL_POST_LOWER);
}

/** Standard deviation that the Gaussian of hess has along one axis. */
static double deviation(int j)
{
  double l[NP * NP], covariance[NP * NP];
  memcpy(l, hess, sizeof hess);
  assert_int_equal(mill_cholesky(NP, l, NP), 0);
  mill_cholesky_inverse(NP, l, NP, covariance, NP);
  return sqrt(covariance[j * NP + j]);
}

/** Compare a density with the sum of Gaussians of Scott's width at all samples, mirrored at the
 *  limits.  The program cuts Gaussians at 9 widths, 3e-18 of the peak. */
static void check_density(int j)
{
  const mill_posterior *p = &out.posterior;
  const mill_samples s = mill_sample_set(&slot);
  const double h = sqrt(covar(j, j)) * pow(p->ess[j], -0.2), peak = 1 / (h * sqrt(2 * acos(-1)));
  const double step = (p->density_high[j] - p->density_low[j]) / (MILL_N_DENSITY - 1);
  double integral = 0;
  for (int i = 0; i < MILL_N_DENSITY; i++) {
    const double x = p->density_low[j] + i * step, got = p->density[j * MILL_N_DENSITY + i];
    double want = 0;
    integral += got * step * (i == 0 || i == MILL_N_DENSITY - 1 ? 0.5 : 1);
    if (i % 7 != 0)
      continue;
    for (int e = 0; e < s.n; e++) {
      const double at = centre[j] + (double)s.x[e * NP + j], u = (x - at) / h, v = (x + at) / h;
      want +=
          (double)s.copies[e] * (exp(-0.5 * u * u) + (j == MILL_PAR_VSINI ? exp(-0.5 * v * v) : 0));
    }
    assert_close(got, want * peak / s.n_sample, 1e-13 * peak);
  }
  assert_close(integral, 1, 2e-3); /* the tails beyond the 0.1 % that begin the range */
}

MILL_TEST(densities_are_scotts_sum)
{
  make(4000);
  model.set.sample.least_ess = 1000;
  centre[MILL_PAR_VSINI] = 3; /* less than a deviation from its limit */
  slot.free_par[2] = 3;       /* and one label held */
  slot.free_par[3] = 4;
  slot.n_free = 4;
  sample(gaussian);
  const mill_posterior *p = &out.posterior;
  assert_close(p->density_low[MILL_PAR_VSINI], 0, 0);
  assert_true(isnan(p->density[2 * MILL_N_DENSITY]) && isnan(p->density_low[2]));
  assert_int_equal(p->n_mode, 1);
  assert_close(p->mode_weight[0], 1, 0);
  assert_true(isnan(p->mode_weight[1]) && isnan(p->mode_mean[NP]));
  for (int j = 0; j < NP; j++) {
    assert_close(p->mode_mean[j], p->mean[j], 1e-12 * fabs(p->mean[j]));
    assert_close(p->mode_sigma[j], sqrt(covar(j, j)), 1e-9 * sqrt(covar(j, j)));
  }
  make(4000);
  model.set.sample.least_ess = 1000;
  centre[MILL_PAR_VSINI] = 3;
  sample(gaussian);
  for (int j = 0; j < NP; j++)
    check_density(j);
}

/** Three Gaussians of weights 0.55, 0.3 and 0.15.  The second is 9 deviations off in a label, the
 *  third in the velocity. */
static double far[NP];

static double three_modes(const double *theta)
{
  double label[NP], velocity[NP];
  memcpy(label, theta, sizeof label);
  memcpy(velocity, theta, sizeof velocity);
  label[4] -= far[4];
  velocity[0] += far[0];
  return -2 * log(0.55 * exp(-0.5 * gaussian(theta)) + 0.3 * exp(-0.5 * gaussian(label)) +
                  0.15 * exp(-0.5 * gaussian(velocity)));
}

MILL_TEST(modes_have_weights_and_places)
{
  make(4000);
  for (int j = 0; j < NP; j++)
    far[j] = 9 * deviation(j);
  slot.starts.n_minimum = 2; /* so that the proposal is about each */
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < NP; j++)
      slot.starts.minimum[i][j] =
          centre[j] + (i == 0 && j == 4 ? far[4] : 0) - (i == 1 && j == 0 ? far[0] : 0);
  model.set.sample.least_ess = 2000;
  sample(three_modes);
  const mill_posterior *p = &out.posterior;
  const double weight[3] = {0.55, 0.3, 0.15};
  assert_int_equal(p->n_mode, 3);
  assert_true(p->flag & MILL_POST_MODES);
  for (int a = 0; a < 3; a++) {
    /* 2,000 effective samples: 0.011 for the largest; four of these */
    assert_close(p->mode_weight[a], weight[a], 0.045);
    for (int j = 0; j < NP; j++) {
      const double sigma = deviation(j), shift = (a == 1 && j == 4) - (a == 2 && j == 0);
      /* at least 2,000 x 0.15 samples, 0.058 deviations; four of these */
      assert_close(p->mode_mean[a * NP + j], centre[j] + 9 * shift * sigma, 0.24 * sigma);
      assert_close(p->mode_sigma[a * NP + j] / sigma, 1, 0.17);
    }
  }
  assert_true(isnan(p->mode_weight[3]));
  for (int a = 0; a < 2; a++) { /* each mode's own width, which its kernels widen by 3 % */
    double sum[3] = {0};
    for (int i = 0; i < MILL_N_DENSITY; i++) {
      const double x = p->density_low[4] + (p->density_high[4] - p->density_low[4]) * i / 63;
      const double u = (x - centre[4] - a * far[4]) / deviation(4);
      for (int k = 0; k < 3 && fabs(u) < 4.5; k++)
        sum[k] += p->density[4 * MILL_N_DENSITY + i] * pow(u, k);
    }
    const double spread = sqrt(sum[2] / sum[0] - pow(sum[1] / sum[0], 2));
    assert_close(spread, 1.03, 0.17); /* as above */
  }
}

/** Minima 30 deviations apart, which no proposal finds from the other one. */
MILL_TEST(proposals_are_about_all_minima)
{
  for (int noted = 0; noted < 2; noted++) {
    make(500);
    for (int j = 0; j < NP; j++)
      far[j] = 30 * deviation(j);
    if (noted)
      for (int i = 0; i < 3; i++) { /* the solution, the two others, and one of them again */
        for (int j = 0; j < NP; j++)
          slot.starts.minimum[i][j] =
              centre[j] + (i > 0 && j == 4 ? far[4] * (i == 1 ? 1 : 1.0001) : 0);
        slot.starts.minimum_f[slot.starts.n_minimum++] = i > 0 ? 0.5 : 0;
      }
    sample(three_modes);
    assert_int_equal(out.posterior.n_mode, 1 + noted);
    /* 0.3 of 0.85; 500 effective samples: four errors */
    if (noted)
      assert_close(out.posterior.mode_weight[0], 0.55 / 0.85, 0.09);
  }
}

/** Two Gaussians 12 deviations apart in velocity, in a box of velocities times a Gaussian prior of
 *  the labels: evidence and weights are known. */
static const double width[NP] = {2, 4, 0.1, 0.2, 0.05};

static double two_in_a_box(const double *theta)
{
  double f[2];
  for (int k = 0; k < 2; k++) {
    f[k] = 0;
    for (int j = 0; j < NP; j++) {
      const double u = (theta[j] - centre[j] - (k == 1 && j == 0 ? 24 : 0)) / width[j];
      f[k] += u * u;
    }
  }
  return -2 * log(0.3 * exp(-0.5 * f[0]) + 0.7 * exp(-0.5 * f[1]) + 1e-300);
}

MILL_TEST(the_evidence_is_as_good_as_it_says)
{
  enum { N = 60 };
  const double prior = 2, pi = acos(-1);
  const mill_posterior *p = &out.posterior;
  double sum = 0, sum2 = 0;
  for (int i = 0; i < N; i++) {
    make(500);
    slot.sample.identity = (uint64_t)i;
    for (int l = 0; l < N_LABEL; l++)
      model.set.prior_sigma[MILL_PAR_LABEL0 + l] = prior;
    for (int j = 0; j < NP; j++)
      for (int k = 0; k < NP; k++)
        hess[j * NP + k] = j == k ? 1 / (width[j] * width[j]) : 0;
    memcpy(slot.starts.minimum[0], centre, sizeof centre);
    slot.starts.minimum[0][0] += 24;
    slot.starts.n_minimum = 1;
    sample(two_in_a_box);
    /* evidence: the Gaussians' volume over the velocities' box, times the prior of the labels */
    double ln_z = 0.5 * NP * log(2 * pi) - log(2000.0) - log(500.0);
    for (int j = 0; j < NP; j++)
      ln_z += log(width[j]);
    for (int l = 2; l < NP; l++) {
      const double var = prior * prior + width[l] * width[l];
      ln_z += -0.5 * log(2 * pi * var) - 0.5 * centre[l] * centre[l] / var;
    }
    const double pull = (p->ln_evidence - ln_z) / p->ln_evidence_err;
    sum += pull / N;
    sum2 += pull * pull / N;
    assert_int_equal(p->n_mode, 2);
    assert_close(p->mode_weight[0], 0.7, 4 * sqrt(0.21 / 500));
  }
  printf("ln evidence: mean of pulls %.2f, their size %.2f, last error %.3f\n", sum, sqrt(sum2),
         p->ln_evidence_err);
  assert_close(sum, 0, 4 / sqrt(N));
  assert_close(sqrt(sum2), 1, 4 / sqrt(2.0 * N));
}

/** Flat priors of v sin i change nothing.  VRAD's prior (i = 3) peaks 10 sigma beyond its limit. */
MILL_TEST(the_evidence_has_priors_within_limits)
{
  const double sigma[4] = {0, 1e5, 1e7, 400}, x = (5000 - 12) / 400.0, root = sqrt(2.0);
  double ln_z[4];
  for (int i = 0; i < 4; i++) {
    make(500);
    for (int l = 0; l < N_LABEL; l++)
      model.set.prior_sigma[MILL_PAR_LABEL0 + l] = 2;
    model.set.prior_sigma[i < 3 ? MILL_PAR_VSINI : MILL_PAR_VRAD] = sigma[i];
    model.set.prior_mean[MILL_PAR_VRAD] = 5000;
    sample(gaussian);
    ln_z[i] = out.posterior.ln_evidence;
  }
  assert_true(fabs(ln_z[1] - ln_z[0]) < 1e-4 && fabs(ln_z[2] - ln_z[0]) < 1e-4);
  const double ln_all = log(400 * sqrt(acos(-1) / 2) * (erfc(10 / root) - erfc(15 / root)));
  assert_close(ln_z[3], ln_z[0] + log(2000.0) - 0.5 * x * x - ln_all, 0.02);
}

/** The evidence is NaN if a label has no hull and no prior.  A hull counts as a uniform prior. */
MILL_TEST(the_evidence_knows_hulls)
{
  mill_hull hull[2] = {{.n_label = 1, .label = {0}, .n_facet = 2},
                       {.n_label = 2, .label = {1, 2}, .n_facet = 4}};
  static double interval[] = {1, -4, -1, -4};
  static double diamond[] = {1, 1, -4, 1, -1, -4, -1, 1, -4, -1, -1, -4};
  hull[0].facet = interval;
  hull[1].facet = diamond;
  make(500);
  sample(gaussian);
  assert_true(isnan(out.posterior.ln_evidence));
  make(500);
  model.n_hull = 2;
  model.hull[0] = hull[0];
  model.hull[1] = hull[1];
  slot.hull_weight = 1e9;
  sample(gaussian);
  double ln_z = 0.5 * NP * log(2 * acos(-1)) - log(2000.0 * 500.0 * 8 * 32);
  double l[NP * NP];
  memcpy(l, hess, sizeof hess);
  assert_int_equal(mill_cholesky(NP, l, NP), 0);
  ln_z -= 0.5 * mill_cholesky_logdet(NP, l, NP);
  printf("ln evidence %.3f +- %.3f of %.3f\n", out.posterior.ln_evidence,
         out.posterior.ln_evidence_err, ln_z);
  assert_close(out.posterior.ln_evidence, ln_z, 4 * out.posterior.ln_evidence_err);
}

static double gaussian_less_penalty(const double *theta)
{
  return gaussian(theta) - mill_hull_penalty(&model, &slot, theta);
}

/** The solution is 0.63 (six sigma) beyond a hull: penalty 20.  The posterior is still Gaussian. */
MILL_TEST(a_solution_beyond_a_hull)
{
  make(4000);
  double facet[] = {1, sqrt(20 / 50.0) - centre[MILL_PAR_LABEL0]};
  model.n_hull = 1;
  model.hull[0] = (mill_hull){.n_label = 1, .label = {0}, .n_facet = 1, .facet = facet};
  slot.hull_weight = 50;
  sample(gaussian_less_penalty);
  check_gaussian(MILL_POST_HULL);
}

/** F is not normalised where exposures share an error of the line-spread function's width. */
MILL_TEST(exposures_with_a_shared_error_have_no_evidence)
{
  for (int n = 1; n <= 2; n++) {
    mill_segment shared = {.used = 1, .error_fixed = 1, .n_share = n, .width_error = 0.05};
    make(500);
    for (int l = 0; l < N_LABEL; l++)
      model.set.prior_sigma[MILL_PAR_LABEL0 + l] = 2;
    slot.segment = &shared;
    slot.n_segment = 1;
    sample(gaussian);
    assert_int_equal(isnan(out.posterior.ln_evidence), n == 2);
  }
}

/** NOT_GAUSSIAN compares the posterior with a Gaussian of the fit's formal errors.  It is set for
 *  errors twice the posterior's deviations (i = 1), but not if a label's floor explains them
 *  (i = 2): errors contain the floor, the likelihood does not. */
MILL_TEST(the_shape_is_compared_with_the_fit)
{
  float fraction = 0.01F;
  for (int i = 0; i < 3; i++) {
    make(500);
    model.n_arm = 1;
    model.arm[0].error.fraction = i < 2 ? NULL : &fraction;
    model.label[1].floor = i < 2 ? 0.0 : sqrt(3.0) * deviation(3);
    formal_error = i < 1 ? deviation(3) : 2 * deviation(3);
    sample(gaussian);
    assert_int_equal(out.posterior.flag, i == 1 ? MILL_POST_SHAPE | MILL_POST_RESIZED : 0);
  }
}

MILL_TEST(numbers_depend_on_seed_and_identity_alone)
{
  make(500);
  sample(gaussian);
  const mill_posterior first = out.posterior;
  make(500);
  sample(gaussian);
  assert_memory_equal(&first, &out.posterior, sizeof first);
  for (int k = 0; k < 2; k++) {
    make(500);
    slot.sample.identity += k == 0;
    model.set.sample.seed += k == 1;
    sample(gaussian);
    assert_true(memcmp(first.mean, out.posterior.mean, sizeof first.mean) != 0);
  }
}

MILL_TEST(a_held_parameter_stays)
{
  make(500);
  slot.n_free = 0;
  for (int j = 0; j < NP; j++)
    if (j != 3)
      slot.free_par[slot.n_free++] = j;
  sample(gaussian);
  assert_close(out.posterior.mean[3], centre[3], 0);
  assert_close(out.posterior.percentile[0][3], centre[3], 0);
  for (int j = 0; j < NP; j++)
    assert_close(covar(3, j), 0, 0);
  assert_true(isnan(out.posterior.ess[3]));
  assert_true(out.posterior.ess[4] >= 500);
}

MILL_TEST(nothing_free_is_nothing_to_sample)
{
  make(4000);
  slot.n_free = 0;
  assert_int_equal(sample(gaussian), 0);
  for (int j = 0; j < NP; j++)
    assert_close(out.posterior.mean[j], centre[j], 0);
  assert_int_equal(out.posterior.flag, 0);
}

/** Return NaN in the half of the Gaussian where v sin i is above the centre. */
static double half_nan(const double *theta)
{
  return theta[MILL_PAR_VSINI] > centre[MILL_PAR_VSINI] ? NAN : gaussian(theta);
}

MILL_TEST(what_is_no_number_is_refused)
{
  make(500);
  sample(half_nan);
  assert_true(out.posterior.percentile[4][MILL_PAR_VSINI] <= centre[MILL_PAR_VSINI]);
}

MILL_TEST(the_limit_on_evaluations_is_flagged)
{
  make(4000);
  model.set.sample.max_eval = 1000;
  assert_int_equal(sample(gaussian), 1000);
  assert_true(out.posterior.flag & MILL_POST_NOT_CONVERGED);
}

/** F does not depend on the last label from -5 to 5, so this label fills its range. */
static double flat(const double *theta)
{
  return fabs(theta[4]) < 5 ? gaussian((double[]){theta[0], theta[1], theta[2], theta[3], 0.2})
                            : 1e6;
}

MILL_TEST(a_posterior_as_wide_as_the_range_is_flagged)
{
  make(500);
  for (int j = 0; j < NP; j++)
    if (j != 4)
      hess[4 * NP + j] = hess[j * NP + 4] = 0;
  hess[4 * NP + 4] = 1e-2;
  centre[4] = 0.2;
  sample(flat);
  assert_true(out.posterior.flag & MILL_POST_WIDE);
}

#ifndef SET_UP
#define SET_UP NULL
#endif
MILL_TEST_MAIN(SET_UP, NULL)
