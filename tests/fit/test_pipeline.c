/* SPDX-License-Identifier: BSD-3-Clause */
/* Fits from spectra to rows: settings, limits, slots and threads do what they must, and errors,
 * chi-squares and models are right. */
#include "tests/mill_test.h"

enum { SEED = 31337, MAX_STAR = 30, N_LABEL = 4, N_ARM = 3 };

#include "tests/fit/made_stars.h"

static double covar(const mill_fit_result *r, int i, int j)
{
  return i > j ? covar(r, j, i) : r->covar[i * N_PAR - i * (i - 1) / 2 + (j - i)];
}

static void compare_runs(void)
{
  make_stars(MAX_STAR, 12, 100);
  /* some that end early or take long */
  for (int i = 0; i < star[3].n_segment; i++)
    memset(star[3].segment[i].ivar, 0, sizeof star[3].segment[i].ivar);
  uint64_t random = SEED;
  made_star_fill(&lib, truth[7], 0.5, 1, &random, &star[7]);
  int backwards[MAX_STAR], mixed[MAX_STAR];
  for (int i = 0; i < MAX_STAR; i++) {
    backwards[i] = MAX_STAR - 1 - i;
    mixed[i] = i * 7 % MAX_STAR;
  }
  const mill_backend *backend = mill_backend_cpu(NULL);
  made_fit(&lib, &set, backend, 1, 1, MAX_STAR, star, NULL, result[0], NULL);
  made_fit(&lib, &set, backend, 7, 2, MAX_STAR, star, backwards, result[1], NULL);
  made_fit(&lib, &set, backend, 64, 1, MAX_STAR, star, mixed, result[2], NULL);
  made_fit(&lib, &set, backend, 64, 2, MAX_STAR, star, NULL, result[3], NULL);
  for (int k = 1; k < 4; k++)
    for (int i = 0; i < MAX_STAR; i++)
      if (memcmp(&result[0][i], &result[k][i], sizeof result[0][i]) != 0)
        fail_msg("run %d: star %d differs: -2 ln L %.17g and %.17g", k, i, result[0][i].m2ll,
                 result[k][i].m2ll);
}

MILL_TEST(results_do_not_depend_on_slots_threads_or_order)
{
  compare_runs();
}

/* One arm has splines, the next radial functions, the third a network. */
MILL_TEST(results_of_other_emulators_do_not_depend_on_slots_threads_or_order)
{
  const mill_library plain = lib;
  set_up(NULL);
  assert_ok(test_library_to_mixed(&lib));
  compare_runs();
  int n_fitted = 0, n_near = 0;
  for (int i = 0; i < MAX_STAR; i++) {
    const mill_fit_result *r = &result[0][i];
    if (r->status != MILL_STATUS_FITTED || i == 3 || i == 7)
      continue;
    n_fitted++;
    for (int j = 0; j < N_PAR; j++)
      n_near += j != 1 && fabs(made_par(r, j) - truth[i][j]) < 3 * made_err(r, j);
  }
  /* The stars are made from these emulators.  Of 140 numbers, 0.4 are expected more than three
   * sigma off; six or more have a probability of 1e-5. */
  assert_int_equal(n_fitted, MAX_STAR - 2);
  assert_true(n_near >= 5 * n_fitted - 5);
  mill_library_clear(&lib);
  lib = plain;
}

MILL_TEST(fixed_parameters_stay)
{
  make_stars(4, 30, 60);
  set.fixed[0] = 1;
  set.fixed_value[0] = 12.5;
  set.fixed[3] = 1;
  set.fixed_value[3] = 3.3;
  for (int o = 0; o < 3; o++) {
    set.optimizer = o;
    fit(4, result[0]);
    for (int i = 0; i < 4; i++) {
      const mill_fit_result *r = &result[0][i];
      assert_int_equal(r->status, MILL_STATUS_FITTED);
      assert_close(r->vrad_km_s, 12.5, 0);
      assert_close(r->label[1], 3.3, 0);
      assert_close(r->vrad_err_km_s, 0, 0);
      assert_close(r->label_err[1], 0, 0);
      for (int j = 0; j < N_PAR; j++) {
        assert_close(covar(r, 0, j), 0, 0);
        assert_close(covar(r, 3, j), 0, 0);
      }
      assert_true(r->label_err[0] > 0);
    }
  }
}

/* One arm, three labels, one of them known: every optimizer finds the stars. */
MILL_TEST(one_arm_and_few_labels)
{
  enum { N = 12, LABEL = 4 };
  const mill_library plain = lib;
  memset(&lib, 0, sizeof lib);
  assert_ok(test_library_make(3, 1, 5, &lib));
  make_stars(N, 400, 80); /* S/N 400, as the arm has few lines */
  set.fixed[LABEL] = 1;
  set.fixed_value[LABEL] = -1;
  for (int i = 0; i < N; i++)
    truth[i][LABEL] = -1;
  fill_again(N, 400);
  int n_near = 0;
  for (int o = 0; o < 3; o++) {
    set.optimizer = o;
    fit(N, result[o]);
    for (int i = 0; i < N; i++) {
      const mill_fit_result *r = &result[o][i];
      assert_int_equal(r->status, MILL_STATUS_FITTED);
      assert_int_equal(r->warn & (MILL_WARN_NOT_CONVERGED | MILL_WARN_BAD_HESSIAN), 0);
      assert_close(r->label[LABEL - 2], -1, 0);
      /* float32: noise of 1e-3, and twice the tolerance of the polish */
      assert_close(r->m2ll, result[0][i].m2ll, 0.02);
      made_answer answer;
      made_evaluate(&lib, &set, &star[i], truth[i], &answer);
      assert_true(r->m2ll <= answer.f + made_penalty(&lib, &set, &star[i], truth[i]) + 0.02);
      for (int j = 0; j < LABEL; j++)
        n_near += j != 1 && fabs(made_par(r, j) - truth[i][j]) < 3 * made_err(r, j);
    }
  }
  /* Of 108 Gaussian numbers 0.3 are expected beyond three sigma.  The seed is fixed. */
  assert_true(n_near >= 108 - 6);
  mill_library_clear(&lib);
  lib = plain;
}

MILL_TEST(priors_pull)
{
  make_stars(6, 30, 60); /* no star is given up after five Jacobians */
  fit(6, result[0]);
  set.prior_mean[2] = 5500;
  set.prior_sigma[2] = 2;
  fit(6, result[1]);
  set.prior_sigma[2] = 1e6;
  fit(6, result[2]);
  for (int i = 0; i < 6; i++) {
    assert_true(result[0][i].label_err[0] > 20); /* the data say much less */
    assert_close(result[1][i].label[0], 5500, 2);
    assert_close(result[1][i].label_err[0], 2, 0.05);
    /* -2 ln L pays for it */
    assert_true(result[1][i].m2ll > result[0][i].m2ll - 1e-3);
    /* so wide a prior changes nothing: two polishes agree, each of tolerance 1e-3 */
    assert_close(result[2][i].m2ll, result[0][i].m2ll, 0.01);
  }
}

/** Wavelengths of arms are off by some km/s, and the prior of the offsets is wide. */
MILL_TEST(velocity_offsets_are_found)
{
  enum { N = 16 };
  static const double shift[] = {0, 12, -17};
  make_stars(N, 200, 60); /* at lower S/N F of these arms, with few lines, is no parabola */
  uint64_t random = SEED;
  for (int i = 0; i < N; i++) {
    double theta[N_PAR + 2];
    memcpy(theta, truth[i], N_PAR * sizeof *theta);
    theta[N_PAR] = shift[1];
    theta[N_PAR + 1] = shift[2];
    made_star_fill_offset(&lib, 1, theta, 200, 1, &random, &star[i]);
  }
  /* the first arm, or the second, has no data */
  for (int lost = 0; lost < 2; lost++)
    for (int s = 0; s < star[lost].n_segment; s++)
      if (star[lost].segment[s].arm == lost)
        memset(star[lost].segment[s].ivar, 0, sizeof star[lost].segment[s].ivar);
  fit(N, result[0]);
  set.velocity_offsets = 1;
  set.velocity_offset_sigma_km_s = 100;
  fit(N, result[1]);
  set.velocity_offset_sigma_km_s = 1e-3;
  fit(N, result[2]);
  double chi2 = 0;
  int n = 0;
  for (int i = 0; i < N; i++) {
    const mill_fit_result *none = &result[0][i], *free = &result[1][i], *stiff = &result[2][i];
    assert_int_equal(free->status, MILL_STATUS_FITTED);
    assert_int_equal(free->warn & (MILL_WARN_NOT_CONVERGED | MILL_WARN_BAD_HESSIAN), 0);
    if (i == 0) {
      /* VRAD is the mean of two arms' velocities, each with its offset's sigma of 100 */
      const double mean = (free->vrad_arm_km_s[1] + free->vrad_arm_km_s[2]) / 2;
      const double err = 100 / sqrt(2);
      assert_close(free->vrad_km_s, mean, 0.05 * err); /* the arms' own errors are a few km/s */
      assert_close(free->vrad_err_km_s, err, 0.05 * err);
      assert_close(sqrt(free->covar[0]), err, 0.05 * err);
    }
    /* With so weak a prior of offsets VRAD is the first arm's velocity, within 0.05 errors.  The
     * errors of both differ by a few per cent, as the velocity profile is no parabola. */
    if (i > 0) {
      assert_close(free->vrad_km_s, free->vrad_arm_km_s[0], 0.05 * free->vrad_err_km_s);
      assert_close(free->vrad_err_km_s / free->vrad_arm_err_km_s[0], 1, 0.05);
    }
    assert_true(free->vrad_err_km_s > none->vrad_err_km_s);
    for (int a = 0; a < 3; a++) {
      const double found = free->vrad_offset_km_s[a], err = free->vrad_offset_err_km_s[a];
      assert_true(isnan(none->vrad_offset_km_s[a]) && isnan(none->vrad_offset_err_km_s[a]));
      if (free->n_pix[a] == 0) {
        assert_true(isnan(found) && isnan(err));
      } else if (a == 0) {
        assert_close(found, 0, 0);
        assert_close(err, 0, 0);
      } else {
        /* VRAD + offset is the arm's velocity, at the labels that fit all arms */
        assert_close(free->vrad_km_s + found, free->vrad_arm_km_s[a], 0.05 * err);
        if (i == 0) /* the prior outweighs the arms */
          continue;
        /* err has both arms' velocity errors in quadrature, and parts from labels and v sin i */
        assert_true(err > 0.98 * hypot(free->vrad_arm_err_km_s[0], free->vrad_arm_err_km_s[a]));
        chi2 += pow((found - (shift[a] - shift[0])) / err, 2);
        n++;
      }
    }
    /* an offset held at 0 gives the fit without offsets, but F of two polishes differs by 1e-3 */
    assert_close(stiff->m2ll, none->m2ll, 0.01);
    assert_close(stiff->vrad_km_s, none->vrad_km_s, 0.05 * none->vrad_err_km_s);
    assert_close(stiff->vrad_err_km_s / none->vrad_err_km_s, 1, 0.01);
    for (int j = 1; j < N_PAR; j++)
      assert_close(made_err(stiff, j), made_err(none, j), 0.02 * made_err(none, j));
  }
  /* 29 offsets, less than 1 in 1000 outside */
  assert_int_equal(n, 29);
  assert_true(chi2 > 10 && chi2 < 59);
}

/** The last arm is so far off that its F has no minimum near the star's velocity.  The common fit
 *  has wrong labels, which move the arm's velocity: the tolerance is a tenth of the shift. */
MILL_TEST(velocity_of_an_arm_far_off_is_found)
{
  enum { N = 8 };
  make_stars(N, 200, 60);
  set.max_vsini_km_s = 60; /* else the lines broaden to cover both */
  uint64_t random = SEED;
  for (int i = 0; i < N; i++) {
    double theta[N_PAR + 2] = {[N_PAR + 1] = i % 2 ? 150 : -150};
    memcpy(theta, truth[i], N_PAR * sizeof *theta);
    made_star_fill_offset(&lib, 1, theta, 200, 1, &random, &star[i]);
  }
  fit(N, result[0]);
  for (int i = 0; i < N; i++) {
    assert_true(result[0][i].warn & MILL_WARN_ARMS);
    assert_close(result[0][i].vrad_arm_km_s[2], truth[i][MILL_PAR_VRAD] + (i % 2 ? 150 : -150), 15);
  }
}

/** The inner parameter u of v sin i, in km/s, in which F is smooth at 0. */
static double inner(double v)
{
  return set.rotation == MILL_ROT_LINEAR ? v : sqrt(v * v + 900) - 30;
}

static double outer(double u)
{
  return set.rotation == MILL_ROT_LINEAR ? u : sqrt(u * u + 60 * u);
}

/** Error of u for which half the interval of v sin i, cut off at 0, is VSINI_ERR `err`. */
static double inner_error(double v, double err)
{
  const double u = inner(v);
  double low = 0, high = 1000;
  for (int i = 0; i < 100; i++) {
    const double s = 0.5 * (low + high);
    *(0.5 * (outer(u + s) - outer(fmax(u - s, 0))) < err ? &low : &high) = s;
  }
  return low;
}

MILL_TEST(rotation_is_never_negative)
{
  static const int kind[] = {MILL_ROT_SPLINE, MILL_ROT_LINEAR};
  for (int k = 0; k < 2; k++) {
    make_stars(20, 30, 0);
    set.rotation = kind[k];
    for (int o = 0; o < 3; o++) {
      set.optimizer = o;
      fit(20, result[o]);
      int n_zero = 0, n_unresolved = 0;
      for (int i = 0; i < 20; i++) {
        const mill_fit_result *r = &result[o][i];
        const int unresolved = (r->info & MILL_INFO_VSINI_ZERO) != 0;
        assert_int_equal(r->status, MILL_STATUS_FITTED);
        assert_true(r->vsini_km_s >= 0);
        n_unresolved += unresolved;
        if (r->vsini_km_s == 0) {
          n_zero++;
          assert_true(unresolved);
          /* an upper limit, and no part of the covariance */
          assert_true(r->vsini_err_km_s > 0 && r->vsini_err_km_s < 120);
          assert_close(covar(r, 1, 1), 0, 0);
        } else {
          assert_close(sqrt(covar(r, 1, 1)), r->vsini_err_km_s, 1e-9 * r->vsini_err_km_s);
          const double sigma = inner_error(r->vsini_km_s, r->vsini_err_km_s);
          const double v = r->vsini_km_s, rise = mill_vsini_rise(kind[k], v);
          assert_int_equal(unresolved, v * v < 2 * 2 * rise * sigma);
        }
      }
      /* stars do not rotate: v sin i is 0 for half of them, above two errors for one in 40 */
      assert_true(n_zero >= 4 && n_zero <= 17);
      assert_true(n_unresolved >= 17);
    }
  }
}

MILL_TEST(hull_is_respected)
{
  make_stars(8, 20, 60);
  for (int i = 0; i < 8; i++) /* stars from outside */
    for (int l = 0; l < 4; l++)
      truth[i][2 + l] = test_label_unmap(&lib.label[l], l == i % 4 ? 1.9 * (i < 4 ? 1 : -1) : 0.5);
  fill_again(8, 20);
  for (int o = 0; o < 3; o++) {
    set.optimizer = o;
    fit(8, result[o]);
    int n_edge = 0;
    for (int i = 0; i < 8; i++) {
      const mill_fit_result *r = &result[o][i];
      assert_int_equal(r->status, MILL_STATUS_FITTED);
      /* Outside the hull, -2 ln L falls by some 50 per unit of hull_dist, before the penalty of
       * 1e4 hull_dist^2 (10 N_pix N_arm = 1e4).  So the sum is least at hull_dist = 50 / 2e4. */
      assert_close(r->hull_dist, 0, 5e-3);
      if (r->hull_dist > 0)
        assert_true(r->warn & MILL_WARN_HULL);
      n_edge += (r->warn & MILL_WARN_HULL) != 0; /* also just inside */
      /* errors come from the data, without the penalty's stiffness */
      for (int l = 0; l < 4; l++)
        assert_true(r->label_err[l] > 1e-3 * lib.label[l].scale);
    }
    assert_true(n_edge >= 4);
  }
}

MILL_TEST(velocity_limit_is_flagged)
{
  make_stars(4, 30, 40);
  set.min_vel_km_s = -50;
  set.max_vel_km_s = 50;
  for (int i = 0; i < 4; i++)
    truth[i][0] = i % 2 ? 80 : -80;
  fill_again(4, 30);
  fit(4, result[0]);
  for (int i = 0; i < 4; i++) {
    assert_true(fabs(result[0][i].vrad_km_s) <= 50);
    assert_true(result[0][i].warn & MILL_WARN_VEL_LIMIT);
  }
}

MILL_TEST(low_sn_stars_get_a_second_start_or_none)
{
  make_stars(6, 40, 60);
  set.second_start_sn = 28;
  fill_again(3, 20);
  fit(6, result[0]);
  for (int i = 0; i < 6; i++) {
    assert_true((result[0][i].info & MILL_INFO_SECOND_START) || i >= 3);
    for (int a = 0; a < 3; a++)
      assert_close(result[0][i].sn[a], i < 3 ? 20 : 40, i < 3 ? 6 : 12);
  }
  set.max_starts = 1;
  fit(6, result[1]);
  for (int i = 0; i < 6; i++)
    assert_false(result[1][i].info & MILL_INFO_SECOND_START);
  set.max_starts = MILL_MAX_GUESS_START;
  set.min_sn = 28;
  fit(6, result[1]);
  for (int i = 0; i < 6; i++) {
    assert_int_equal(result[1][i].status, i < 3 ? MILL_STATUS_LOW_SN : MILL_STATUS_FITTED);
    if (i < 3) {
      assert_true(isnan(result[1][i].vrad_km_s));
      assert_true(result[1][i].warn & MILL_WARN_BAD_SPECTRUM);
    } else {
      assert_close(result[1][i].m2ll, result[0][i].m2ll, 0);
    }
  }
}

MILL_TEST(covariance_is_symmetric_positive_and_holds_the_errors)
{
  make_stars(10, 20, 60);
  fit(10, result[0]);
  for (int i = 0; i < 10; i++) {
    const mill_fit_result *r = &result[0][i];
    double a[N_PAR * N_PAR], w[N_PAR];
    int idx[N_PAR], n = 0;
    for (int j = 0; j < N_PAR; j++)
      if (covar(r, j, j) > 0)
        idx[n++] = j;
    assert_true(n >= N_PAR - 1); /* v sin i at zero has none */
    for (int j = 0; j < n; j++)
      for (int k = 0; k < n; k++)
        a[j * n + k] =
            covar(r, idx[j], idx[k]) / sqrt(covar(r, idx[j], idx[j]) * covar(r, idx[k], idx[k]));
    assert_int_equal(LAPACKE_dsyev(LAPACK_ROW_MAJOR, 'N', 'U', n, a, n, w), 0);
    assert_true(w[0] > 0);
    for (int l = 0; l < 4; l++)
      assert_close(r->label_err[l], sqrt(covar(r, 2 + l, 2 + l)), 1e-12 * r->label_err[l]);
  }
}

/** Write half the second derivatives of -2 ln L at x to a [N_PAR][N_PAR], by differences with
 *  steps `step` [N_PAR].  If `unresolved` is 1, the parameter u of kernels/math/rotation.h replaces
 *  v sin i, and is at least two steps above 0. */
static void curvature(const made_star *s, const double *x, const double *step, int unresolved,
                      double *a)
{
  for (int j = 0; j < N_PAR; j++)
    for (int k = j; k < N_PAR; k++) {
      double sum = 0;
      for (int corner = 0; corner < 4; corner++) {
        double at[N_PAR];
        made_answer answer;
        memcpy(at, x, sizeof at);
        if (unresolved)
          at[1] = fmax(inner(x[1]), 2 * step[1]);
        at[j] += corner & 1 ? -step[j] : step[j];
        at[k] += corner & 2 ? -step[k] : step[k];
        if (unresolved)
          at[1] = outer(at[1]);
        made_evaluate(&lib, &set, s, at, &answer);
        sum += (corner == 0 || corner == 3 ? 1 : -1) * answer.f;
      }
      a[j * N_PAR + k] = a[k * N_PAR + j] = sum / (8 * step[j] * step[k]);
    }
}

/* Stars 0 to 2 rotate so fast that v sin i is resolved.  Where it is not, F has no curvature in
 * v sin i, so differences are taken in u, its inner parameter. */
MILL_TEST(covariance_is_the_inverse_curvature_of_the_likelihood)
{
  enum { N = 6 };
  int n_unresolved = 0;
  make_stars(N, 60, 60);
  set.precision = MILL_FLOAT64;
  set.likelihood = MILL_LIKE_PROFILE;
  for (int i = 0; i < N; i++)
    truth[i][1] = i < 3 ? 150 : 25;
  fill_again(N, 60);
  fit(N, result[0]);
  for (int i = 0; i < N; i++) {
    const mill_fit_result *r = &result[0][i];
    const int unresolved = (r->info & MILL_INFO_VSINI_ZERO) != 0;
    double a[N_PAR * N_PAR], x[N_PAR], error[N_PAR], step[N_PAR];
    lapack_int pivot[N_PAR];
    if (i < 3)
      assert_int_equal(unresolved, 0);
    if (covar(r, 1, 1) == 0) /* pinned: its limit is tested in tests/kernels/star/test_fit.c */
      continue;
    n_unresolved += unresolved;
    for (int j = 0; j < N_PAR; j++) {
      x[j] = made_par(r, j);
      error[j] = sqrt(covar(r, j, j));
    }
    if (unresolved)
      error[1] = inner_error(x[1], error[1]);
    for (int j = 0; j < N_PAR; j++)
      step[j] = 0.15 * error[j];
    curvature(&star[i], x, step, unresolved, a);
    assert_int_equal(LAPACKE_dgetrf(LAPACK_ROW_MAJOR, N_PAR, N_PAR, a, N_PAR, pivot), 0);
    assert_int_equal(LAPACKE_dgetri(LAPACK_ROW_MAJOR, N_PAR, a, N_PAR, pivot), 0);
    for (int j = 0; j < N_PAR; j++)
      /* second derivatives that Gauss-Newton leaves out: a few per cent at S/N 60 */
      assert_close(error[j] / sqrt(a[j * N_PAR + j]), 1, 0.1);
  }
  assert_true(n_unresolved > 0);
}

MILL_TEST(velocity_moments_match_a_dense_integral)
{
  make_stars(6, 15, 60);
  uint64_t random = SEED;
  made_star_fill(&lib, truth[4], 3, 1, &random, &star[4]);
  made_star_fill(&lib, truth[5], 200, 1, &random, &star[5]);
  fit(6, result[0]);
  for (int i = 0; i < 6; i++) {
    const mill_fit_result *r = &result[0][i];
    enum { N = 161 };
    double theta[N_PAR], f[N], least = INFINITY, sum = 0, mean = 0, m[5] = {0};
    made_answer answer;
    for (int j = 0; j < N_PAR; j++)
      theta[j] = made_par(r, j);
    assert_true(r->vrad_err_km_s > 0);
    for (int k = 0; k < N; k++) {
      theta[0] = r->vrad_km_s + (k - N / 2) * 0.15 * r->vrad_err_km_s;
      made_evaluate(&lib, &set, &star[i], theta, &answer);
      f[k] = fabs(theta[0]) > 1000 ? INFINITY : answer.f;
      least = fmin(least, f[k]);
    }
    for (int k = 0; k < N; k++) {
      sum += exp(-0.5 * (f[k] - least));
      mean += exp(-0.5 * (f[k] - least)) * (k - N / 2) * 0.15;
    }
    mean /= sum;
    for (int k = 0; k < N; k++)
      for (int power = 2; power <= 4; power++)
        m[power] += exp(-0.5 * (f[k] - least)) * pow((k - N / 2) * 0.15 - mean, power) / sum;
    /* For a Gaussian the sums are exact to 1e-6; float32 templates move F by 1e-3 at most.  The
     * profile of star 4 is cut by the velocity limits; its steps are 1/20 of the allowed range. */
    const int cut = fabs(r->vrad_km_s) + 4 * r->vrad_err_km_s > 1000;
    assert_int_equal(cut, i == 4);
    assert_close(sqrt(m[2]), 1, cut ? 0.05 : 3e-3);
    if (cut)
      continue;
    assert_close(r->vrad_skew, m[3] / pow(m[2], 1.5), 0.02);
    assert_close(r->vrad_kurt, m[4] / (m[2] * m[2]), 0.04);
  }
}

MILL_TEST(true_chi_squares_and_models)
{
  make_stars(4, 25, 60);
  star[0].segment[0].mask[33] = 1;
  star[0].segment[0].flux[33] = 1e5f;
  static float model[4 * MADE_MAX_SEG * MADE_MAX_PIX];
  made_fit(&lib, &set, mill_backend_cpu(NULL), 3, 1, 4, star, NULL, result[0], model);
  for (int i = 0; i < 4; i++) {
    const mill_fit_result *r = &result[0][i];
    double theta[N_PAR], total = 0, total_c = 0;
    int n = 0;
    made_answer answer;
    for (int j = 0; j < N_PAR; j++)
      theta[j] = made_par(r, j);
    made_evaluate(&lib, &set, &star[i], theta, &answer);
    assert_close(r->m2ll, answer.f + made_penalty(&lib, &set, &star[i], theta), 2e-3);
    for (int a = 0; a < 3; a++) {
      /* float32 templates: 1e-7 of a model of 25 sigma, times twice the residual */
      assert_close(r->chisq[a], answer.chisq[a], 2e-3);
      assert_close(r->chisq_c[a], answer.chisq_c[a], 2e-3 + 1e-5 * answer.chisq_c[a]);
      assert_int_equal(r->n_pix[a], answer.n_good[a]);
      total += r->chisq[a];
      total_c += r->chisq_c[a];
      n += answer.n_good[a];
    }
    assert_close(r->chisq_tot, total, 1e-9 * total);
    assert_close(r->chisq_c_tot, total_c, 1e-9 * total_c);
    assert_int_equal(r->n_pix_tot, n);
    assert_true(r->chisq_tot < 1.3 * n && r->chisq_tot > 0.7 * n);
    for (int s = 0; s < star[i].n_segment; s++)
      for (int p = 0; p < star[i].segment[s].n_pix; p++)
        /* flux of 20: float32 */
        assert_close((double)model[(i * MADE_MAX_SEG + s) * MADE_MAX_PIX + p], answer.model[s][p],
                     2e-5);
  }
}

MILL_SEEDED_TEST_MAIN(SEED, set_up, tear_down)
