/* SPDX-License-Identifier: BSD-3-Clause */
/* Velocities of epochs and arms, and fits of two stars, on likelihoods with known minima. */
#include "tests/mill_test.h"

#include "kernels/star/logic/fit_star.h"
#include "tests/kernels/star/paraboloid.h"

/* --- velocities of epochs and arms --- */

MILL_TEST(probabilities_of_chi_squares)
{
  static const struct {
    double x, n, expected; /* scipy.stats.chi2.sf */
  } of[] = {{0.3, 1, 0.58388242077036501},        {12.5, 1, 0.00040695201744495946},
            {0.7, 2, 0.70468808971871355},        {25.0, 2, 3.7266531720786718e-06},
            {4.2, 3, 0.24066188520961462},        {9.9, 8, 0.27211490927929194},
            {60.0, 13, 5.2534798527057241e-08},   {1.0, 40, 1},
            {900.0, 6, 3.7567160194821417e-191},  {3.0, 0, 1},
            {1600.0, 1601, 0.50235112452095168},  {3300.0, 3000, 8.5138497072716679e-05},
            {1300.0, 1, 1.1303728441493301e-284}, {1400.0, 3, 2.945619361016289e-303}};
  for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) /* sums of terms */
    assert_close(mill_chisq_pval(of[i].x, (int)of[i].n), of[i].expected, 1e-13 * of[i].expected);
}

/** Search epochs whose F has a minimum of depth 400 and width 20 km/s at minimum [n] (km/s); an
 *  epoch with NaN has a flat F.  A continuum alone has F = 0.  An epoch whose minimum is at the
 *  velocity NO_LINES lowers the continuum's chi-square by 10, too little for a velocity (4.5^2).
 *  Returns the number of rounds. */
#define NO_LINES (-180.0)
static int search_epochs(int n, const double *minimum, mill_epoch *epoch)
{
  int n_round = 0;
  paraboloid(60, 8);
  model.set.max_vel_km_s = 251;
  memset(epoch, 0, (size_t)n * sizeof *epoch);
  slot.n_epoch = n;
  slot.n_segment = n + 1;
  slot.epoch = epoch;
  slot.best.end[MILL_PAR_VRAD] = 0.0;
  slot.result.vrad_err_km_s = 1.0;
  slot.result.err_scale = 1.0;
  slot.lead.signal[0] = 400.0;
  for (int i = 0; i < n; i++) {
    segment[i].epoch = i;
    segment[i].used = segment[i].n_good = 1;
    segment[i].sn = 10.0 + i;
  }
  segment[0].n_good = 0;
  segment[n] = (mill_segment){.epoch = 1, .sn = 5}; /* a worse arm, without a good pixel */
  for (; mill_epochs_search(&model, &slot, slot.place) == MILL_IS_ASKING; n_round++) {
    assert_true(n_round < 40 && slot.data_only);
    for (int i = 0; i < n; i++) {
      double *answer = mill_answer_of(&model, &slot, i);
      for (int k = 0; k < slot.n_vel; k++) {
        const double u = (mill_velocities_of(&slot, i)[k] - minimum[i]) / 20.0;
        answer[k] = isnan(minimum[i]) ? 7.0 : -400.0 * exp(-0.5 * u * u);
      }
      if (slot.request == MILL_REQ_MODELS) {
        answer[MILL_ANSWER_CHISQ_DATA] = 900.0 + answer[MILL_ANSWER_F];
        answer[MILL_ANSWER_CHISQ_C_DATA] = minimum[i] == NO_LINES ? 510.0 : 900.0;
      }
    }
  }
  return n_round;
}

MILL_TEST(epochs_are_found_far_away)
{
  /* The epochs: no data, near, far, flat F, near a limit, hardly better than a continuum. */
  static const double minimum[] = {0, 1.5, 120, NAN, 250, NO_LINES};
  enum { N = sizeof minimum / sizeof minimum[0] };
  static const int flag[N] = {MILL_EPOCH_NO_DATA,   0, 0, MILL_EPOCH_NO_MINIMUM, MILL_EPOCH_LIMIT,
                              MILL_EPOCH_NO_MINIMUM};
  static mill_epoch epoch[N];
  search_epochs(N, minimum, epoch);
  assert_true(mill_epochs_shift(&model, &slot));
  mill_epochs_row(&model, &slot);
  for (int i = 0; i < N; i++) {
    const mill_epoch_result *r = &epoch[i].result;
    assert_int_equal(r->flag, flag[i]);
    assert_int_equal(r->epoch, i);
    assert_close(r->sn, 10.0 + i, 0.0);
    /* a parabola through two errors of a Gaussian of 20 */
    assert_true(flag[i] ? isnan(r->vrad_km_s) : fabs(r->vrad_km_s - minimum[i]) < 0.1);
    assert_true(flag[i] ? isnan(r->vrad_err_km_s) : fabs(r->vrad_err_km_s - sqrt(2.0)) < 0.05);
  }
  assert_int_equal(slot.result.n_epoch, 2);
  assert_close(slot.result.vrad_range_km_s, 118.5, 0.2);
  /* their mean by weights that differ by a hundredth */
  assert_close(slot.best.end[MILL_PAR_VRAD], 60.75, 0.4);
  assert_close(epoch[2].shift[0], 120 - slot.best.end[MILL_PAR_VRAD], 0.1);
  assert_close(epoch[3].shift[0], 0.0, 0.0);
  assert_true(slot.result.info & MILL_INFO_EPOCHS);
  assert_false(mill_epochs_shift(&model, &slot)); /* only once */
}

MILL_TEST(epochs_that_agree_are_not_scanned)
{
  static const double minimum[] = {0, 1.5, -1.0, 0.3};
  static mill_epoch epoch[4];
  assert_true(search_epochs(4, minimum, epoch) <= 3);
  assert_false(mill_epochs_shift(&model, &slot));
  assert_false(slot.epochs_shifted);
  slot.n_epoch = 2;
  epoch[0].curve = epoch[1].curve = (mill_curve){.err = 1};
  for (int differ = 0; differ < 2; differ++) { /* scipy.stats.chi2.isf(1e-4, 1) is 15.1367 */
    epoch[1].curve.found = sqrt(2 * (differ ? 15.138 : 15.136));
    assert_int_equal(mill_epochs_shift(&model, &slot), differ);
  }
}

/** F of an arm at 37 km/s, with the shape of a line: far out it is flatter than a parabola. */
static double line_shape(double v, double depth)
{
  return -depth * exp(-0.5 * pow((v - 37) / 60, 2));
}

static double search_max = 1000; /* velocity limit, km/s */

/** Search an arm's velocity from v; n_eval: evaluations beyond the profile. */
static mill_curve search(double v, double err, double depth, double noise, int has_profile,
                         int *n_eval)
{
  paraboloid(60, 8);
  model.set.max_vel_km_s = search_max;
  slot.theta[MILL_PAR_VRAD] = v;
  slot.result.vrad_err_km_s = slot.profile.width = err;
  slot.profile.has_arm = has_profile;
  for (int i = 0; i < MILL_N_PROFILE_FEW; i++)
    slot.arm[0].f[i] =
        line_shape(v + (i - MILL_N_PROFILE_FEW / 2) * MILL_PROFILE_FEW_STEP * err, depth);
  slot.request = MILL_REQ_MODELS;
  mill_ask_point(&model, &slot);
  answers[MILL_ANSWER_F] = line_shape(v, depth);
  mill_arms_begin(&model, &slot);
  *n_eval = 0;
  while (mill_seek_run(&model, &slot, slot.place) == MILL_IS_ASKING) {
    assert_true(*n_eval < 3 * MILL_SEEK_ROUNDS);
    for (int k = 0; k < 3; k++)
      if (!isnan(velocities[k])) {
        answers[k] = line_shape(velocities[k], depth) + (1 - k) * noise;
        ++*n_eval;
      }
  }
  return slot.arm[0];
}

MILL_TEST(velocity_of_an_arm)
{
  /* F'' = depth / 60^2 is twice the curvature */
  static const double depth[] = {3e2, 1e4, 1e6}, err[] = {0.02, 1, 5};
  int n_eval, n_near;
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 6; j++) {
      const double e = err[j % 3], sigma = 60 * sqrt(2 / depth[i]);
      const mill_curve at = search(20, e, depth[i], 0, j / 3, &n_eval);
      /* found is off by at most a tenth of sigma, or of e (it sets the steps) if e is larger */
      assert_close(at.found, 37, 0.1 * fmax(sigma, e));
      assert_close(at.err, sigma, 0.05 * sigma);
      /* Near the solution the quartic of the velocity profile replaces both evaluations of F.  The
       * quartic agrees with F to 1e-3 up to two velocity errors from the solution. */
      const mill_curve plain = search(37 + 0.3 * sigma, sigma, depth[i], 0, 0, &n_eval);
      const mill_curve near = search(37 + 0.3 * sigma, sigma, depth[i], 0, 1, &n_near);
      assert_int_equal(n_eval, 2);
      assert_int_equal(n_near, 0);
      assert_close(near.found, plain.found, 1e-3 * sigma);
      assert_close(near.err, plain.err, 1e-2 * sigma);
    }
  /* nothing there, or rounding alone */
  assert_true(isnan(search(20, 1, 0, 0, 0, &n_eval).found));
  assert_true(isnan(search(20, 1, 0, 0, 1, &n_eval).err));
  assert_true(isnan(search(20, 1, 1e-4, 1e-3, 0, &n_eval).found));
  /* The limit of 43 km/s is less than a step (two errors of 5) from 37.  That of 36 excludes 37. */
  for (int j = 0; j < 2; j++) {
    search_max = 43;
    const double sigma = 60 * sqrt(2 / depth[0]);
    const mill_curve at = search(30, 5, depth[0], 0, j, &n_eval);
    assert_close(at.found, 37, 0.1 * sigma);
    assert_close(at.err, sigma, 0.05 * sigma);
    search_max = 36;
    assert_true(isnan(search(30, 5, depth[0], 0, j, &n_eval).found));
  }
  search_max = 1000;
}

/** The F of an arm 100 km/s off has no minimum near the star's velocity 0.  The scan finds the
 *  arm's lines, 20 km/s wide, unless noise, a wrong template or a continuum alone explains them.
 *  Narrow lines are found even if a prior of offsets makes the error of VRAD large. */
MILL_TEST(arms_are_found_far_away)
{
  static const struct {
    double depth, chisq, lines; /* depth of F's minimum.  Chi-square at the star's velocity is
                                   chisq for the fit, chisq + lines for a continuum alone. */
    int n_pix[2], is_found;
  } of[] = {{400, 1, -300, {1, 1}, 1},    {400, 1, 5000, {1, 1}, 1},    {40, 1, 0, {1, 1}, 0},
            {400, 9, 0, {1, 1}, 0},       {400, 1, -380, {1, 1}, 0},    {400, 1, 0, {1, 0}, 0},
            {400, 1500, 0, {1000, 1}, 1}, {400, 2700, 0, {1000, 1}, 0}, {400, 1, 0, {1, 1}, 1}};
  for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
    const int is_narrow = i == sizeof of / sizeof of[0] - 1;
    const double at = is_narrow ? 71 : 100, width = is_narrow ? 8 : 20;
    paraboloid(60, 8);
    model.n_par += is_narrow;                    /* an offset, whose prior makes VRAD's error 5 */
    slot.best.at.hess[MILL_PAR_VRAD] = 1 / 0.16; /* 0.4: the width over sqrt(800 / 2) */
    slot.best.end[MILL_PAR_VRAD] = slot.theta[MILL_PAR_VRAD] = 0.0;
    slot.result.vrad_err_km_s = is_narrow ? 5 : 1;
    slot.lead.signal[0] = 800.0;
    slot.result.n_pix_tot = 0;
    for (int a = 0; a < 2; a++)
      slot.result.n_pix_tot += slot.result.n_pix[a] = of[i].n_pix[a];
    slot.request = MILL_REQ_MODELS;
    mill_ask_point(&model, &slot);
    answers[MILL_ANSWER_F] = 0.0;
    answers[MILL_ANSWER_CHISQ] = of[i].chisq;
    answers[MILL_ANSWER_CHISQ_C] = of[i].chisq + of[i].lines;
    mill_arms_begin(&model, &slot);
    enum mill_resumed (*run[])(const mill_model *, mill_slot *, int *) = {mill_seek_run,
                                                                          mill_scan_run};
    for (int r = 0; r < 2; r++)
      while (run[r](&model, &slot, slot.place) == MILL_IS_ASKING)
        for (int k = 0; k < slot.n_vel; k++)
          answers[k] = -of[i].depth * exp(-0.5 * pow((velocities[k] - at) / width, 2));
    /* a parabola through half a step of the scan */
    assert_true(of[i].is_found ? fabs(slot.arm[0].found - at) < 0.1 : isnan(slot.arm[0].found));
  }
}

/* --- two stars fitted in turn; the likelihood is quadratic in the parameters of both --- */

/** A segment has the parameters of both stars, then ln of their flux ratio.  The fit has the
 *  parameters of both stars, a ratio for each of two arms, and the second arm's velocity offset. */
enum { RATIO = 2 * NP, N_ROW, OFFSET = RATIO + 2, N_ALL };
#define OFFSET_SIGMA 2.0
#define OFFSET_TRUE  1.5

static double both_centre[N_ROW], curve[N_ROW * N_ROW], single_f, peak_km_s = 130;
static int peak_stands = 1, is_stuck; /* is_stuck: the second star's last turn finds no lower F */

/** Make stars at 12 and 95 km/s.  In units of the errors, F's curvature is 1 on the diagonal, 0.3
 *  between parameters of one star, 0.1 between stars, and -0.15 between a parameter and the flux
 *  ratio.  gain: how much the second star lowers F. */
static void make(double gain)
{
  paraboloid(20, 1);
  const double sigma[NP] = {0.5, 0.8, 0.02, 0.03, 0.02};
  double unit[N_ROW];
  for (int i = 0; i < N_ROW; i++) {
    both_centre[i] = i == RATIO ? log(0.5) : centre[i % NP];
    unit[i] = i == RATIO ? 0.05 : sigma[i % NP];
  }
  both_centre[NP] = 95;
  both_centre[NP + 1] = 26;
  both_centre[NP + 2] = -0.3;
  for (int i = 0; i < N_ROW; i++)
    for (int j = 0; j < N_ROW; j++) {
      const int within = i / NP == j / NP, ratio = i == RATIO || j == RATIO;
      curve[i * N_ROW + j] = (i == j   ? 1
                              : ratio  ? -0.15
                              : within ? 0.3
                                       : 0.1) /
                             (unit[i] * unit[j]);
    }
  model.n_arm = 2;
  model.n_par = NP + 1;
  model.set.velocity_offset_sigma_km_s = OFFSET_SIGMA;
  model.set.binaries = 1;
  slot.n_segment = 2;
  for (int a = 0; a < 2; a++)
    segment[a] = (mill_segment){.arm = a, .used = 1, .n_good = 1};
  slot.lead.signal[0] = 2e4;
  slot.result.status = MILL_STATUS_FITTED;
  slot.no_offset[0] = 1;
  slot.result.n_pix[0] = slot.result.n_pix[1] = 500;
  slot.result.n_pix_tot = 1000;
  slot.result.chisq_data = 1000;
  slot.result.vrad_err_formal_km_s = 0.5;
  slot.result.n_eval = 9;
  slot.result.n_jac = 7;
  slot.result.m2ll = single_f = gain;
  for (int j = 0; j < NP; j++)
    slot.best.end[j] = centre[j] + (j == 0 ? 15 : 0.1);
  slot.best.end[NP] = 1;
  slot.best.at.hess[0] = 4;
  static mill_waveset ws;
  segment[0].ws = segment[1].ws = &ws;
}

/** Return F of a segment of arm a if the star being fitted, p->star, has the velocity vel_km_s.
 *  grad [N_ROW], hess_of [N_ROW][N_ROW]: derivatives, this star's parameters first.  Each of two
 *  arms has half of F.  After MILL_PAIR_SWAP turns (pair_turn.h) the brighter star is the first. */
static double of_segment(int a, double vel_km_s, double *grad, double *hess_of)
{
  const mill_pair *p = &slot.pair;
  const int turned = p->n_turn >= MILL_PAIR_SWAP && both_centre[RATIO] > 0;
  const int own = (p->star ^ turned) * NP, sign = turned ? -1 : 1;
  double d[N_ROW], f = 0;
  int to[N_ROW];
  for (int j = 0; j < NP; j++) {
    double mine = slot.theta[j], theirs = p->theta[1 - p->star][j];
    if (j == MILL_PAR_VRAD) {
      mine = vel_km_s - (a == 1 ? OFFSET_TRUE : 0);
      theirs += a == 1 ? slot.theta[NP] - OFFSET_TRUE : 0;
    }
    to[j] = own + j;
    to[NP + j] = NP - own + j;
    d[to[j]] = mill_par_inner(&model, j, mine) - mill_par_inner(&model, j, both_centre[to[j]]);
    d[to[NP + j]] =
        mill_par_inner(&model, j, theirs) - mill_par_inner(&model, j, both_centre[to[NP + j]]);
  }
  to[RATIO] = RATIO;
  d[RATIO] = sign * p->ln_ratio[a] - both_centre[RATIO];
  for (int i = 0; i < N_ROW; i++) {
    const double i_sign = i == RATIO ? sign : 1;
    grad[i] = 0;
    for (int j = 0; j < N_ROW; j++) {
      const double c = 0.5 * curve[to[i] * N_ROW + to[j]];
      hess_of[i * N_ROW + j] = i_sign * (j == RATIO ? sign : 1) * c;
      grad[i] += 2 * i_sign * c * d[to[j]];
      f += d[to[i]] * c * d[to[j]];
    }
  }
  return f;
}

static void answer(void)
{
  mill_pair *p = &slot.pair;
  double grad[N_ROW], hess_of[N_ROW * N_ROW];
  if (slot.request == MILL_REQ_PEAK) {
    p->peak = 30;
    p->peak_km_s = peak_km_s;
    p->peak_stands = peak_stands;
    return;
  }
  for (int a = 0; a < 2; a++) {
    double *of = mill_answer_of(&model, &slot, a), ratio = exp(p->ln_ratio[a]);
    for (int k = 0; k < slot.n_vel; k++)
      of[k] = of_segment(a, mill_velocities_of(&slot, a)[k], grad, hess_of);
    if (slot.request == MILL_REQ_TANGENTS) {
      double *flux = of + MILL_ANSWER_TANGENTS + N_ROW + N_ROW * (N_ROW + 1) / 2;
      grad[0] += is_stuck && p->n_turn == 4;
      if (is_stuck && p->n_turn == 4 && slot.polish.have)
        of[0] = INFINITY;
      answer_tangents(a, N_ROW, grad, hess_of);
      flux[0] = p->star == 0 ? 1 : ratio;
      flux[1] = p->star == 0 ? ratio : 1;
    }
    for (int k = MILL_ANSWER_CHISQ; k < MILL_ANSWER_END && slot.request == MILL_REQ_MODELS; k++)
      of[k] = 0;
  }
}

static int play(void)
{
  int n = 0;
  while (mill_pair_run(&model, &slot, slot.place) == MILL_IS_ASKING) {
    assert_true(n++ < 200);
    answer();
  }
  return n;
}

/** Set x to the joint minimum less centres, inverse to the covariance; return F at the minimum.
 *  stiff, mean: a penalty stiff (p - mean)^2 of each parameter p, as of priors and hull facets. */
static double joint_minimum(const double *stiff, const double *mean, double *x, double *inverse)
{
  double all[N_ALL * N_ALL] = {0}, rhs[N_ALL], f = 0;
  memset(x, 0, N_ALL * sizeof *x);
  for (int a = 0; a < 2; a++)
    for (int i = 0; i < N_ROW; i++)
      for (int j = 0; j < N_ROW; j++) {
        const double c = 0.5 * curve[i * N_ROW + j];
        const int of[2] = {i == RATIO ? RATIO + a : i, j == RATIO ? RATIO + a : j};
        const int moves[2] = {a == 1 && i < RATIO && i % NP == 0,
                              a == 1 && j < RATIO && j % NP == 0};
        all[of[0] * N_ALL + of[1]] += c;
        if (moves[0])
          all[OFFSET * N_ALL + of[1]] += c;
        if (moves[1]) {
          all[of[0] * N_ALL + OFFSET] += c;
          x[of[0]] += c * OFFSET_TRUE;
        }
        if (moves[0] && moves[1]) {
          all[OFFSET * N_ALL + OFFSET] += c;
          x[OFFSET] += c * OFFSET_TRUE;
          f += OFFSET_TRUE * c * OFFSET_TRUE;
        }
      }
  all[N_ALL * N_ALL - 1] += 1 / (OFFSET_SIGMA * OFFSET_SIGMA);
  for (int i = 0; i < RATIO; i++) {
    all[i * (N_ALL + 1)] += stiff[i];
    x[i] += stiff[i] * (mean[i] - both_centre[i]);
    f += stiff[i] * pow(mean[i] - both_centre[i], 2);
  }
  assert_int_equal(mill_cholesky(N_ALL, all, N_ALL), 0);
  memcpy(rhs, x, sizeof rhs);
  mill_cholesky_solve(N_ALL, all, N_ALL, x);
  mill_cholesky_inverse(N_ALL, all, N_ALL, inverse, N_ALL);
  for (int i = 0; i < N_ALL; i++)
    f -= rhs[i] * x[i];
  return f;
}

/** Fit two stars.  has_priors: both stars have a prior of label 0, the first also of label 1.
 *  has_hull: a facet keeps label 0 of the second star five errors away from its centre. */
static void expect_joint_minimum(int has_priors, int has_hull)
{
  double inverse[N_ALL * N_ALL], off[N_ALL], stiff[RATIO] = {0}, mean[RATIO] = {0};
  double facet[] = {-1, -0.2, 1, -9};
  make(500);
  model.n_hull = has_hull;
  model.hull[0] = (mill_hull){.n_label = 1, .n_facet = 2, .facet = facet};
  slot.hull_weight = 1e8;
  if (has_hull) {
    stiff[NP + 2] = slot.hull_weight;
    mean[NP + 2] = -0.2;
  }
  if (has_priors) {
    model.set.prior_mean[2] = mean[2] = mean[NP + 2] = 0.05;
    model.set.prior_sigma[2] = 0.02;
    stiff[2] = stiff[NP + 2] = 2500;
    slot.prior_mean[3] = mean[3] = -0.2;
    slot.prior_sigma[3] = 0.01;
    stiff[3] = 1e4;
  }
  play();
  const double least = joint_minimum(stiff, mean, off, inverse);
  const mill_fit_result *r = &slot.result;
  assert_int_equal((r->warn & MILL_WARN_HULL) != 0, has_hull);
  assert_int_equal((r->warn & MILL_WARN_NOT_CONVERGED) != 0, is_stuck);
  assert_int_equal((r->info & MILL_INFO_NEAR_HULL) != 0, has_hull);
  assert_close(r->hull_dist, has_hull ? fmax(-0.2 - r->pair_label[0], 0) : 0, 1e-15);
  assert_int_equal(r->pair, 1);
  assert_int_equal(r->info & MILL_INFO_PAIR, MILL_INFO_PAIR);
  /* The polish ends within 1e-2 of the minimum of F, which is 0.1 errors of a parameter.  Priors of
   * the companion are thirty typical errors wide, which lessens its errors by 1 % at most. */
  const double found[] = {r->vrad_km_s,     r->pair_vrad_km_s,      r->label[0],
                          r->pair_label[0], r->vrad_offset_km_s[1], r->pair_vsini_km_s};
  const double err[] = {r->vrad_err_km_s,     r->pair_vrad_err_km_s,      r->label_err[0],
                        r->pair_label_err[0], r->vrad_offset_err_km_s[1], r->pair_vsini_err_km_s};
  const int of[] = {0, NP, 2, NP + 2, OFFSET, NP + 1};
  for (int i = 0; i < 6; i++) {
    const double sigma = sqrt(inverse[of[i] * N_ALL + of[i]]);
    assert_close(found[i], (of[i] == OFFSET ? 0 : both_centre[of[i]]) + off[of[i]], 0.15 * sigma);
    if (!has_hull || of[i] < NP || of[i] == OFFSET) /* a star's own hull is not in its errors */
      assert_close(err[i], sigma, 0.01 * sigma);
  }
  for (int a = 0; a < 2; a++) {
    const double sigma = sqrt(inverse[(RATIO + a) * (N_ALL + 1)]);
    const double ratio = 0.5 * exp(off[RATIO + a]);
    assert_close(r->flux_ratio[a], ratio, 0.15 * sigma * ratio);
    assert_close(r->flux_ratio_err[a], ratio * sigma, 0.02 * sigma);
  }
  assert_close(r->pair_gain, single_f - least, 0.02);
  assert_close(r->pair_peak, 30, 0);
}

MILL_TEST(turns_end_in_the_joint_minimum)
{
  expect_joint_minimum(0, 0);
  expect_joint_minimum(1, 0);
  expect_joint_minimum(0, 1);
  is_stuck = 1;
  expect_joint_minimum(0, 0);
  is_stuck = 0;
}

MILL_TEST(the_brighter_star_is_the_row)
{
  make(500);
  both_centre[RATIO] = log(2);
  play();
  const mill_fit_result *r = &slot.result;
  assert_int_equal(r->pair, 1);
  assert_close(r->vrad_km_s, 95, 0.2);
  assert_close(r->pair_vrad_km_s, 12, 0.2);
  assert_close(r->flux_ratio[1], 0.5, 0.02);
}

MILL_TEST(one_star_keeps_its_row)
{
  static mill_fit_result before;
  static const struct {
    double gain, vsini, velocity, peak_km_s;
    int stands;
  } of[] = {{10, 20, 95, 130, 1},   {500, 200, 95, 130, 1}, {500, 20, 13, 130, 1},
            {500, 20, 700, 130, 1}, {500, 20, 998, 130, 1}, {500, 20, 95, 60, 1},
            {500, 20, 95, 130, 0}};
  for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
    make(of[i].gain);
    both_centre[NP] = of[i].velocity;
    both_centre[NP + 1] = of[i].vsini;
    peak_km_s = of[i].peak_km_s;
    peak_stands = of[i].stands;
    before = slot.result;
    play();
    before.pair_peak = 30;
    assert_memory_equal(&before, &slot.result, sizeof before);
  }
}

/* Epochs: one with both velocities, one without the second star's, one that exchanged stars fit. */
MILL_TEST(epochs_of_a_pair)
{
  enum { N = 3 };
  static const int flag[N] = {0, MILL_EPOCH_NO_MINIMUM, MILL_EPOCH_EXCHANGEABLE};
  static mill_epoch epoch[N];
  mill_pair *p = &slot.pair;
  paraboloid(60, 8);
  slot.n_epoch = N;
  slot.epoch = epoch;
  slot.result.n_pix_tot = 1000;
  slot.result.chisq_data = 1000;
  slot.result.err_scale = 1;
  p->least_apart = 5; /* longest step and largest error are 10 km/s */
  p->theta[0][MILL_PAR_VRAD] = slot.polish.at.theta[MILL_PAR_VRAD] = -50;
  p->theta[1][MILL_PAR_VRAD] = 50;
  for (int i = 0; i < N; i++)
    epoch[i] = (mill_epoch){.shift = {i == 2 ? 90 : 2 * i},
                            .peak = 30,
                            .exchanged = i == 2 ? 8.9 : 9.1, /* the limit is 9 */
                            .moment = {0, 0, 1, i == 1 ? 1.0 / 144 : 1}};
  mill_pair_epochs_move(&model, &slot);
  mill_pair_epochs_row(&model, &slot);
  slot.best.end[MILL_PAR_VRAD] = p->theta[0][MILL_PAR_VRAD];
  mill_epochs_row(&model, &slot);
  for (int i = 0; i < N; i++) {
    assert_int_equal(epoch[i].result.flag, flag[i]);
    assert_close(epoch[i].result.vrad_km_s, i == 2 ? 40 : 2 * i - 50, 1e-9);
    assert_close(epoch[i].result.vrad_err_km_s, 1, 1e-9);
    assert_true(i == 1 ? isnan(epoch[i].result.pair_vrad_km_s)
                       : fabs(epoch[i].result.pair_vrad_km_s - 50) < 1e-9);
  }
  /* only the first two epochs count, with velocities -50 and -48: the third is EXCHANGEABLE */
  assert_int_equal(slot.result.n_epoch, 2);
  assert_close(slot.result.vrad_range_km_s, 2, 1e-9);
  assert_close(slot.result.vrad_chi2, 2, 1e-9);
  assert_close(p->theta[0][MILL_PAR_VRAD], -49, 1e-9);
  assert_close(mill_pair_apart(&slot), 99, 1e-9); /* of the means; the first epoch's is 100 */
  p->is_moving = 1;
  assert_close(mill_pair_apart(&slot), 100, 1e-9);
  /* labels found in the last turns may tell the stars apart: exchanges are tried again */
  p->n_turn = MILL_PAIR_SWAP + MILL_PAIR_MOVING;
  p->theta[0][MILL_PAR_VSINI] = 33;
  mill_pair_epochs_settle(&model, &slot);
  assert_int_equal(p->n_settle, 2 * MILL_PAIR_SETTLE);
  assert_close(p->theta[0][MILL_PAR_VSINI], 33, 0);
  p->peak = 40; /* of all exposures */
  assert_true(mill_pair_is_seen(&model, &slot));
  assert_close(slot.result.pair_peak, sqrt(N * (30 * 30 - 2.7 * 2.7)), 1e-9);
}

/** Errors of an epoch whose velocities obey the relation v2 = c - 0.8 v1.  F = 0.5 v1^2 +
 *  0.3 v2^2 + 0.2 v1 v2 is least at v1 = 0.28 c / 1.064, where half of d2F/dv1^2 is 0.532.  The
 *  variance of c is 4 at the relation's mean v1, and 8 at one spread (30 km/s) from this mean. */
MILL_TEST(velocities_by_the_mass_ratio_have_its_error)
{
  const mill_pair_line line = {{-20, 35}, -0.8, 4, 900};
  const double v[2] = {10, 35 - 0.8 * 30}, rise = 0.28 / 1.064;
  mill_epoch e = {.moment[MILL_MOMENT_BEND] = 0.5,
                  .moment[MILL_MOMENT_BEND + 1] = 0.3,
                  .moment[MILL_MOMENT_BOTH] = 0.1};
  double step[2];
  mill_pair_step_along(&line, v, 100, step, &e);
  assert_close(step[0], 0, 1e-12);
  assert_close(pow(e.pair_err[0], 2), 1 / 0.532 + 8 * rise * rise, 1e-12);
  assert_close(pow(e.pair_err[1], 2), 0.64 / 0.532 + 8 * pow(1 - 0.8 * rise, 2), 1e-12);
}

/* Epochs 0 to 2 give the relation v2 = -v1.  With errors of 3 its variance is (9 + 9) / 3.  With
 * model error, stars 20 km/s apart are blended, so epochs 3 and 4 follow the relation.  Errors of
 * 5.1 km/s leave epoch 4 exchangeable.  The first arm has four of five exposures. */
MILL_TEST(the_mass_ratio_tells_blended_stars)
{
  static const double v[] = {60, -60, 30, 10, 10}, err[] = {3, 3, 3, 4.9, 5.1};
  static mill_epoch epoch[5];
  paraboloid(60, 8);
  slot.n_epoch = slot.n_segment = slot.pair.least_apart = 5;
  slot.epoch = epoch;
  slot.pair.is_moving = 1;
  slot.result.n_pix_tot = slot.result.chisq_data = slot.result.m2ll = 1000;
  model.arm[0].error.fraction = (float[1]){0};
  for (int i = 0; i < 5; i++) {
    segment[i] = (mill_segment){.arm = i / 4, .epoch = i % 2, .used = 1, .n_good = 1};
    epoch[i] = (mill_epoch){.shift = {v[i], -v[i]}, .peak = 30, .exchanged = 1e4};
    epoch[i].pair_err[0] = epoch[i].pair_err[1] = err[i];
  }
  assert_close(mill_pair_unit_at(&slot, 1500, -1), 1 + 4 * 0.5, 0);
  assert_close(mill_pair_unit_at(&slot, 1500, 0), 1 + 2 * 0.5, 0);
  assert_close(mill_pair_line_of(&model, &slot).variance, 6, 1e-12);
  mill_pair_epochs_row(&model, &slot);
  for (int i = 0; i < 5; i++)
    assert_int_equal(epoch[i].result.flag,
                     (i > 2 ? MILL_EPOCH_MASS_RATIO : 0) | (i > 3 ? MILL_EPOCH_EXCHANGEABLE : 0));
}

MILL_TEST_MAIN(NULL, NULL)
