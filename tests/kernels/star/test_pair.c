/* SPDX-License-Identifier: BSD-3-Clause */
/* Two stars: when they are tried; at several epochs eliminated velocities and errors, against the
 * whole curvature. */
#include "tests/mill_test.h"

#include "kernels/math/linalg.h"
#include "kernels/star/logic/pair.h"
#include "tests/kernels/star/paraboloid.h"

/* SHARED: both stars' v sin i and labels, flux ratio.  ALL: also three epochs' velocities.  A
 * fourth epoch has no velocities of its own, as its errors are too large: they follow the means. */
enum { N_FREE = 3, N_ROW = 2 * NP + 1, SHARED = N_ROW - 2, ALL = SHARED + 2 * N_FREE };
static mill_epoch epoch[N_FREE + 1];
static double whole[ALL * ALL], whole_grad[ALL], weight[N_FREE][2];

/** Index in ALL of a segment's row that is no velocity. */
static int shared(int row)
{
  return row < NP ? row - 1 : row - 2;
}

/** Derivative of row r of epoch i's segment by parameter p of ALL. */
static double depends(int i, int r, int p)
{
  if (r % NP != 0 || r == 2 * NP)
    return p == shared(r);
  for (int k = 0; k < N_FREE && i == N_FREE; k++)
    if (p == SHARED + 2 * k + r / NP)
      return weight[k][r / NP];
  return i < N_FREE && p == SHARED + 2 * i + r / NP;
}

/** Make answers of n segments with irregular gradients and curvatures, and sum them.  Rows begin
 *  with the parameters of `star`.  The first n_told epochs tell the stars apart. */
static void make(int n, int star, int n_told)
{
  int seed = 0;
  paraboloid(20, 8);
  memset(epoch, 0, sizeof epoch);
  memset(whole, 0, sizeof whole);
  memset(whole_grad, 0, sizeof whole_grad);
  model.set.binaries = 1;
  slot.n_epoch = slot.n_segment = n;
  slot.epoch = epoch;
  slot.pair.is_fitted = 1;
  slot.pair.star = star;
  slot.pair.least_apart = 1e3;
  slot.result.n_pix[0] = slot.result.n_pix_tot = 500;
  slot.pair.theta[0][MILL_PAR_VSINI] = slot.pair.theta[1][MILL_PAR_VSINI] = 30;
  slot.n_vel = 1;
  slot.request = MILL_REQ_TANGENTS;
  double h[N_FREE + 1][N_ROW * N_ROW], g[N_FREE + 1][N_ROW];
  for (int i = 0; i < n; i++) {
    segment[i] = (mill_segment){.epoch = i, .used = 1, .n_good = 1, .paired = 1};
    velocities[i * MILL_N_PROFILE] = 0;
    double root[N_ROW * N_ROW];
    for (int e = 0; e < N_ROW * N_ROW; e++)
      root[e] = sin(12.9898 * ++seed);
    for (int r = 0; r < N_ROW; r++) {
      g[i][r] = 5 * sin(78.233 * ++seed);
      for (int c = 0; c < N_ROW; c++) {
        h[i][r * N_ROW + c] = r == c ? 0.2 : 0;
        for (int k = 0; k < N_ROW; k++)
          h[i][r * N_ROW + c] += root[r * N_ROW + k] * root[c * N_ROW + k];
      }
    }
    answer_tangents(i, N_ROW, g[i], h[i]);
    mill_answer_of(&model, &slot, i)[MILL_ANSWER_F] = 100 + i;
    const double c00 = h[i][0], c01 = h[i][NP], c11 = h[i][NP * (N_ROW + 1)];
    const double det = c00 * c11 - c01 * c01;
    epoch[i].pair_err[star] = i < N_FREE ? sqrt(c11 / det) : 10;
    epoch[i].pair_err[1 - star] = i < N_FREE ? sqrt(c00 / det) : 10;
    epoch[i].exchanged = i < n_told ? 1e9 : 0;
    epoch[i].shift[1] = 15; /* above the sum of both errors in free epochs alone */
  }
  for (int k = 0; k < 2; k++) {
    double sum = 0;
    for (int i = 0; i < N_FREE; i++)
      sum += weight[i][k] =
          i >= n_told && n_told > 0 ? 0 : pow(epoch[i].pair_err[k == 0 ? star : 1 - star], -2);
    for (int i = 0; i < N_FREE; i++)
      weight[i][k] /= sum;
  }
  for (int i = 0; i < n; i++)
    for (int r = 0; r < N_ROW; r++)
      for (int p = 0; p < ALL; p++) {
        whole_grad[p] += g[i][r] * depends(i, r, p);
        for (int c = 0; c < N_ROW; c++)
          for (int q = 0; q < ALL; q++)
            whole[p * ALL + q] += depends(i, r, p) * h[i][r * N_ROW + c] * depends(i, c, q);
      }
  mill_take_point(&model, &slot);
}

/** Replace a [n][n] by its inverse, and set x to the minimum. Returns what F falls to there. */
static double solve(int n, double *a, const double *grad, double *x)
{
  double factor[ALL * ALL], f = 0;
  memcpy(factor, a, (size_t)(n * n) * sizeof *a);
  assert_int_equal(mill_cholesky(n, factor, n), 0);
  mill_cholesky_inverse(n, factor, n, a, n);
  for (int r = 0; r < n; r++) {
    x[r] = 0;
    for (int c = 0; c < n; c++)
      x[r] -= 0.5 * a[r * n + c] * grad[c];
    f += 0.5 * grad[r] * x[r];
  }
  return f;
}

/** In a turn of a star, the minimum and the covariance of eliminated F must be those of the whole
 *  F, where VRAD is the mean of velocities, without epochs that do not tell the stars apart. */
static void check_turn(int star, int n_told)
{
  double x[ALL], joint[ALL], of[N_ROW][ALL] = {{0}};
  make(N_FREE + 1, star, n_told);
  mill_pair_eliminate(&model, &slot);
  assert_int_equal(NP + mill_pair_n(&model), N_ROW);
  const double f = slot.eval.f + solve(N_ROW, slot.space.joint, slot.space.joint_grad, joint);
  assert_close(f, 406 + solve(ALL, whole, whole_grad, x), 1e-9);
  for (int r = 0; r < N_ROW; r++)
    for (int p = 0; p < ALL; p++)
      of[r][p] = depends(N_FREE, r, p);
  for (int r = 0; r < N_ROW; r++) {
    double at = 0;
    for (int p = 0; p < ALL; p++)
      at += of[r][p] * x[p];
    assert_close(joint[r], at, 1e-9);
    for (int c = 0; c < N_ROW; c++) {
      double covariance = 0;
      for (int p = 0; p < ALL; p++)
        for (int q = 0; q < ALL; q++)
          covariance += of[r][p] * whole[p * ALL + q] * of[c][q];
      assert_close(slot.space.joint[r * N_ROW + c], covariance, 1e-9);
    }
  }
}

MILL_TEST(eliminated_velocities_leave_the_minimum_and_the_covariance)
{
  for (int n_told = 0; n_told < N_FREE; n_told++)
    for (int star = 0; star < 2; star++)
      check_turn(star, n_told);
}

MILL_TEST(errors_of_epochs_are_those_with_all_parameters_free)
{
  double x[ALL];
  make(N_FREE, 0, 0);
  solve(ALL, whole, whole_grad, x);
  assert_true(mill_pair_epochs_errors(&model, &slot));
  for (int i = 0; i < 2 * N_FREE; i++) {
    /* a prior of 1000 units changes errors by less than 1e-4 */
    const double err = sqrt(whole[(SHARED + i) * (ALL + 1)]);
    assert_close(epoch[i / 2].pair_err[i % 2], err, 1e-4 * err);
  }
}

/** The mean difference from the joint fit's velocities is 0; these come back at the end. */
MILL_TEST(epochs_alone_keep_the_joint_zero_point)
{
  make(N_FREE, 0, 0);
  for (int star = 0; star < 2; star++)
    for (int i = 0; i < N_FREE; i++) {
      slot.pair.was.theta[star][MILL_PAR_VRAD] = 50;
      epoch[i].best[star] = 7 * i + star; /* joint velocities 50, 57, 64 and 51, 58, 65 */
      epoch[i].shift[star] = 8 * i;
      epoch[i].pair_err[star] = 3 * (1 + i);
      epoch[i].label_err[star] = 4 * (1 + i);
    }
  mill_pair_alone_shift(&slot);
  for (int star = 0; star < 2; star++) {
    double sum = 0;
    for (int i = 0; i < N_FREE; i++) {
      assert_close(epoch[i].pair_err[star], 5 * (1 + i), 1e-12);
      sum += (50 + 7 * i + star - mill_pair_epoch_vrad(&slot, i, star)) / pow(1 + i, 2);
    }
    assert_close(sum, 0, 1e-10);
  }
  mill_pair_alone_end(&model, &slot);
  for (int star = 0; star < 2; star++)
    for (int i = 0; i < N_FREE; i++)
      assert_close(mill_pair_epoch_vrad(&slot, i, star), 50 + 7 * i + star, 1e-12);
}

/** Two slow stars are tried in place of a fast one whose chi-square exceeds the number of pixels by
 *  80 u (u 1.087 at 1087), even if narrow lines make all residuals look like noise. */
MILL_TEST(a_poorly_fitted_fast_rotator_may_be_two_stars)
{
  paraboloid(70, 4);
  mill_fit_result *r = &slot.result;
  r->n_pix_tot = 1000;
  r->vsini_km_s = 61;
  for (int chisq = 1086; chisq <= 1088; chisq += 2) {
    r->chisq_data = r->chisq_noise = chisq;
    assert_int_equal(mill_pair_is_blend(&model, &slot), chisq == 1088);
  }
  r->vsini_km_s = 59;
  assert_false(mill_pair_is_blend(&model, &slot));
}

MILL_TEST_MAIN(NULL, NULL)
