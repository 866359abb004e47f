/* SPDX-License-Identifier: BSD-3-Clause */
/* The turns of two stars, on a likelihood that is quadratic in the parameters of both. */
#include "tests/mill_test.h"

#include "kernels/math/linalg.h"
#include "kernels/star/logic/fit_star.h"
#include "tests/kernels/star/paraboloid.h"

/** Parameters of both stars, ln of their ratio in the only arm with data, and its offset. */
enum { OFFSET = 2 * NP + 1, N_ALL, ARM = 1 };
#define OFFSET_SIGMA 2.0

static double both_centre[N_ALL], curve[N_ALL * N_ALL], single_f, peak_km_s = 130;
static int peak_stands = 1;

/** A star at 12 km/s and one at 95, v sin i of both resolved; correlations of 0.3 within a star,
 *  0.2 between stars and -0.4 with the ratio.  One star alone is worse by gain. */
static void make(double gain)
{
  paraboloid(20, 1);
  const double sigma[NP] = {0.5, 0.8, 0.02, 0.03, 0.02};
  double unit[N_ALL];
  for (int i = 0; i < N_ALL; i++) {
    both_centre[i] = i == 2 * NP ? log(0.5) : (i == OFFSET ? 0 : centre[i % NP]);
    unit[i] = i == 2 * NP ? 0.05 : (i == OFFSET ? 0.7 : sigma[i % NP]);
  }
  both_centre[NP] = 95;
  both_centre[NP + 2] = -0.3;
  for (int i = 0; i < N_ALL; i++)
    for (int j = 0; j < N_ALL; j++) {
      const int within = i / NP == j / NP, ratio = i >= 2 * NP || j >= 2 * NP;
      curve[i * N_ALL + j] = (i == j   ? 1
                              : ratio  ? -0.15
                              : within ? 0.3
                                       : 0.1) /
                             (unit[i] * unit[j]);
    }
  model.n_arm = ARM + 1;
  model.n_par = NP + 1;
  model.set.velocity_offset_sigma_km_s = OFFSET_SIGMA;
  model.set.binaries = 1;
  slot.n_segment = 0;
  slot.lead.signal[0] = 2e4;
  slot.result.status = MILL_STATUS_FITTED;
  slot.no_offset[0] = 1;
  slot.result.n_pix[ARM] = slot.result.n_pix_tot = 1000;
  slot.result.chisq_data = 1000;
  slot.result.vrad_err_formal_km_s = 0.5;
  slot.result.n_eval = 9;
  slot.result.n_jac = 7;
  slot.result.m2ll = single_f = gain;
  for (int j = 0; j < NP; j++)
    slot.best.end[j] = centre[j] + (j == 0 ? 15 : 0.1);
  slot.best.end[NP] = 1;
  slot.best.at.hess[0] = 4;
}

/** F and its derivatives, those of a companion apart, with half of what the offset does.  The stars
 *  change places where the second one is the brighter. */
static void answer(void)
{
  mill_pair *p = &slot.pair;
  mill_eval *e = &slot.eval;
  const int turned = p->n_turn >= MILL_PAIR_SWAP && both_centre[2 * NP] > 0;
  const int own = (p->star ^ turned) * NP, other = NP - own, sign = turned ? -1 : 1;
  double d[N_ALL], g[N_ALL];
  memset(e, 0, sizeof *e);
  if (slot.request == MILL_REQ_PEAK) {
    p->peak = 30;
    p->peak_km_s = peak_km_s;
    p->peak_stands = peak_stands;
    return;
  }
  for (int j = 0; j < NP; j++) {
    const double *of[2] = {slot.theta, p->theta[1 - p->star]};
    for (int k = 0; k < 2; k++) {
      const int i = (k == 0 ? own : other) + j;
      d[i] = mill_par_inner(&model, j, of[k][j]) - mill_par_inner(&model, j, both_centre[i]);
    }
  }
  d[2 * NP] = sign * p->ln_ratio[ARM] - both_centre[2 * NP];
  d[OFFSET] = slot.theta[NP];
  for (int i = 0; i < N_ALL; i++) {
    g[i] = 0;
    for (int j = 0; j < N_ALL; j++)
      g[i] += 2 * curve[i * N_ALL + j] * d[j];
    e->f += 0.5 * g[i] * d[i];
  }
  int mine[NP + 1], theirs[NP + 3]; /* by parameter of the star and of its companion */
  double share[NP + 3];
  for (int i = 0; i < NP + 3; i++) {
    theirs[i] = i < NP ? other + i : (i == NP + 2 ? OFFSET : 2 * NP);
    share[i] = i < NP ? 1 : (i == NP + 2 ? 0.5 : (i == NP + ARM ? sign : 0));
  }
  for (int i = 0; i < NP + 1; i++)
    mine[i] = i < NP ? own + i : OFFSET;
  for (int i = 0; i < NP + 3; i++) {
    p->grad[i] = share[i] * g[theirs[i]];
    for (int j = 0; j < NP + 3; j++)
      p->own[i * MILL_MAX_PAR + j] = share[i] * share[j] * curve[theirs[i] * N_ALL + theirs[j]];
    for (int j = 0; j < NP + 1; j++)
      p->cross[i * MILL_MAX_PAR + j] =
          share[i] * (j < NP ? 1 : 0.5) * curve[theirs[i] * N_ALL + mine[j]];
  }
  for (int i = 0; i < NP + 1; i++) {
    e->grad[i] = (i < NP ? 1 : 0.5) * g[mine[i]];
    for (int j = 0; j < NP + 1; j++)
      e->hess[i * (NP + 1) + j] =
          (i < NP ? 1 : 0.5) * (j < NP ? 1 : 0.5) * curve[mine[i] * N_ALL + mine[j]];
  }
  p->flux[ARM][0] = p->star == 0 ? 1 : exp(p->ln_ratio[ARM]);
  p->flux[ARM][1] = p->star == 0 ? exp(p->ln_ratio[ARM]) : 1;
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

MILL_TEST(turns_end_in_the_joint_minimum)
{
  double inverse[N_ALL * N_ALL], factor[N_ALL * N_ALL];
  make(500);
  play();
  const mill_fit_result *r = &slot.result;
  memcpy(factor, curve, sizeof factor);
  factor[N_ALL * N_ALL - 1] += 1 / (OFFSET_SIGMA * OFFSET_SIGMA);
  assert_int_equal(mill_cholesky(N_ALL, factor, N_ALL), 0);
  mill_cholesky_inverse(N_ALL, factor, N_ALL, inverse, N_ALL);
  assert_int_equal(r->pair, 1);
  assert_int_equal(r->info & MILL_INFO_PAIR, MILL_INFO_PAIR);
  /* the polish ends within 1e-2 in F of its minimum, a tenth of an error; a companion that may move
   * by thirty typical uncertainties lessens an error by 1 % at most */
  const double found[] = {r->vrad_km_s, r->pair_vrad_km_s, r->label[0], r->pair_label[0],
                          r->vrad_offset_km_s[ARM]};
  const double err[] = {r->vrad_err_km_s, r->pair_vrad_err_km_s, r->label_err[0],
                        r->pair_label_err[0], r->vrad_offset_err_km_s[ARM]};
  const int of[] = {0, NP, 2, NP + 2, OFFSET};
  for (int i = 0; i < 5; i++) {
    const double sigma = sqrt(inverse[of[i] * N_ALL + of[i]]);
    assert_close(found[i], both_centre[of[i]], 0.15 * sigma);
    assert_close(err[i], sigma, 0.01 * sigma);
  }
  const double sigma = sqrt(inverse[2 * NP * (N_ALL + 1)]);
  assert_close(r->flux_ratio[ARM], 0.5, 0.15 * sigma * 0.5);
  assert_close(r->flux_ratio_err[ARM], 0.5 * sigma, 0.02 * sigma);
  assert_close(r->pair_gain, single_f, 0.1);
  assert_close(r->pair_peak, 30, 0);
}

MILL_TEST(the_brighter_star_is_the_row)
{
  make(500);
  both_centre[2 * NP] = log(2);
  play();
  const mill_fit_result *r = &slot.result;
  assert_int_equal(r->pair, 1);
  assert_close(r->vrad_km_s, 95, 0.2);
  assert_close(r->pair_vrad_km_s, 12, 0.2);
  assert_close(r->flux_ratio[ARM], 0.5, 0.02);
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

MILL_TEST_MAIN(NULL, NULL)
