/* SPDX-License-Identifier: BSD-3-Clause */
/* Compare block functions of a model and of samples with NumPy, SciPy and Qhull.
 * tests/reference/make_blocks.py makes reference/blocks.h in the build folder. */
#include "tests/mill_test.h"

#include "kernels/math/hull.h"
#include "kernels/math/weights.h"
#include "reference/blocks.h"
#include "tests/kernels/math/block_bench.h"
#include "tests/kernels/math/blocks_f32.h"

static void compare_continuum(int kind, int n, const double *expected)
{
  const double *w = ref_continuum_wave;
  for (int k = 0; k < n; k++)
    for (int i = 0; i < REF_CONTINUUM_N; i++) {
      const double x = 2 * (w[i] - w[0]) / (w[REF_CONTINUUM_N - 1] - w[0]) - 1;
      /* values up to 1; a Gaussian exp(-x), x up to 100, is off by x roundings */
      assert_close(mill_continuum(kind, n, k, x), expected[k * REF_CONTINUUM_N + i], 2e-14);
    }
}

MILL_TEST(continuum_functions_match_numpy)
{
  compare_continuum(MILL_CONT_RBF, 1, ref_continuum_rbf_1);
  compare_continuum(MILL_CONT_RBF, 3, ref_continuum_rbf_3);
  compare_continuum(MILL_CONT_RBF, 4, ref_continuum_rbf_4);
  compare_continuum(MILL_CONT_RBF, 10, ref_continuum_rbf_10);
  compare_continuum(MILL_CONT_CHEBYSHEV, 6, ref_continuum_chebyshev_6);
}

/* A segment has npoly functions, a wide one more, but at most half its pixels and MILL_MAX_CONT. */
MILL_TEST(number_of_functions)
{
  mill_fit_settings set = {.n_cont = 10};
  assert_int_equal(mill_continuum_count(&set, 3000, 3400.0), 10);
  set.n_cont_per_1000aa = 6.0;
  assert_int_equal(mill_continuum_count(&set, 3000, 3400.0), 21); /* 20.4 */
  assert_int_equal(mill_continuum_count(&set, 3000, 2000.0), 12);
  assert_int_equal(mill_continuum_count(&set, 3000, 500.0), 10);
  assert_int_equal(mill_continuum_count(&set, 3000, 5000.0), MILL_MAX_CONT);
  assert_int_equal(mill_continuum_count(&set, 3000, 1e12), MILL_MAX_CONT);
  assert_int_equal(mill_continuum_count(&set, 31, 3400.0), 15);
  assert_int_equal(mill_continuum_count(&set, 8, 3400.0), 10); /* the caller refuses it */
}

/* --- hull distance against Qhull's facets, and label mapping --- */

/* the casts drop const only: mill_hull owns its facets elsewhere */
static void reference_hulls(mill_hull *hull)
{
  hull[0] = (mill_hull){.n_label = 2,
                        .label = {0, 1},
                        .n_facet = REF_HULL_N_FACET_01,
                        .facet = (double *)ref_hull_facet_01};
  hull[1] = (mill_hull){.n_label = 2,
                        .label = {2, 3},
                        .n_facet = REF_HULL_N_FACET_23,
                        .facet = (double *)ref_hull_facet_23};
}

MILL_TEST(distance_is_the_largest_facet_of_all_hulls)
{
  mill_hull hull[2];
  reference_hulls(hull);
  for (int i = 0; i < REF_HULL_N_POINT; i++)
    /* three products of numbers below 10 */
    assert_close(mill_hull_distance(2, hull, ref_hull_point + 4 * i), ref_hull_distance[i], 1e-14);
}

MILL_TEST(no_hull_has_no_outside)
{
  assert_close(mill_hull_distance(0, NULL, (double[]){1e9, -1e9, 1e9, 0}), 0, 0);
}

MILL_TEST(nan_labels_have_a_nan_distance)
{
  mill_hull hull[2];
  reference_hulls(hull);
  for (int l = 0; l < 4; l++) {
    double x[4] = {0, 0, 0, 0};
    x[l] = NAN;
    /* a comparison that NaN falls through would call this inside */
    assert_true(isnan(mill_hull_distance(2, hull, x)));
  }
}

MILL_TEST(labels_map_there_and_back)
{
  const mill_label label[2] = {{.mapping = MILL_MAP_LINEAR, .mean = -1.2, .std = 0.7},
                               {.mapping = MILL_MAP_LOG10, .mean = 3.74, .std = 0.07}};
  const double value[2] = {-2.31, 5432.1};
  assert_close(mill_label_map(&label[0], value[0]), (value[0] + 1.2) / 0.7, 1e-15);
  assert_close(mill_label_map(&label[1], value[1]), (log10(value[1]) - 3.74) / 0.07, 1e-13);
  for (int i = 0; i < 2; i++) {
    const mill_label *l = &label[i];
    assert_close(test_label_unmap(l, mill_label_map(l, value[i])), value[i], 1e-13 * value[1]);
    const double h = 1e-4 * fabs(value[i]);
    const double difference =
        (mill_label_map(l, value[i] + h) - mill_label_map(l, value[i] - h)) / (2 * h);
    /* third derivative of the logarithm: h^2 / 3 value^2 */
    assert_close(mill_label_map_slope(l, value[i]), difference, 1e-8 * fabs(difference));
  }
}

/* --- rotation weights and slopes against numerical integrals --- */

static const int kinds[2] = {MILL_ROT_LINEAR, MILL_ROT_SPLINE};

static void compare_rotation(int kind, const int *n, const double *expected,
                             const double *expected_slope)
{
  int at = 0;
  for (int i = 0; i < REF_ROTATION_N; i++)
    for (int k = 0; k < n[i]; k++, at++) {
      const double r = ref_rotation_r[i];
      double weight, slope;
      mill_rotation_weight(kind, r, k, &weight, &slope);
      /* The reference's quadrature is off by 1e-13; in slopes of the smooth kernel this is divided
       * by r, v sin i in grid steps.  The rest is rounding: weights are differences or sums of
       * numbers as large as k + 1 and r, for the k-th grid point. */
      assert_close(weight, expected[at], 1e-13 + 4e-16 * (k + 1 + r));
      assert_close(slope, expected_slope[at], 1e-13 * (kind == MILL_ROT_SPLINE ? 1 + 1 / r : 1));
    }
}

MILL_TEST(weights_match_numerical_integrals)
{
  compare_rotation(MILL_ROT_LINEAR, ref_linear_n, ref_linear_weight, ref_linear_slope);
  compare_rotation(MILL_ROT_SPLINE, ref_smooth_n, ref_smooth_weight, ref_smooth_slope);
}

MILL_TEST(weights_sum_to_one_and_slopes_to_zero)
{
  for (int i = 0; i < 2; i++)
    for (double r = 0; r < 500; r = r * 1.37 + 0.013) {
      const int kind = kinds[i], half = mill_rotation_half_width(kind, r);
      double sum = 0, slopes = 0, weight, slope;
      for (int k = 0; k <= mill_rotation_slope_half_width(kind, r); k++) {
        mill_rotation_weight(kind, r, k, &weight, &slope);
        if (kind == MILL_ROT_LINEAR)
          assert_true(weight >= -1e-15);
        if (k <= half)
          sum += k ? 2 * weight : weight;
        slopes += k ? 2 * slope : slope;
      }
      /* sums are off by half^2 roundings of half + 1 weights, and the smooth kernel's quadrature */
      const double tolerance = 1e-13 + 2.3e-16 * half * half;
      assert_close(sum, 1, tolerance);
      assert_close(slopes, 0, tolerance);
      /* beyond the half width there is nothing */
      mill_rotation_weight(kind, r, half + 1, &weight, &slope);
      if (half > 0)
        assert_close(weight, 0, 1e-15 + 4e-16 * half);
    }
}

MILL_TEST(no_rotation_is_the_identity_with_a_slope_from_above)
{
  double weight, slope, near_weight, near_slope;
  for (int i = 0; i < 2; i++) {
    const int kind = kinds[i], reach = kind == MILL_ROT_LINEAR ? 1 : 3;
    assert_int_equal(mill_rotation_half_width(kind, 0), 0);
    assert_int_equal(mill_rotation_slope_half_width(kind, 0), reach);
    for (int k = 0; k < 5; k++) {
      /* r: v sin i in grid points, below 1.  Weights of the linear kernel are linear in r; those of
       * the smooth kernel have terms in r^2 / 2 and r^4.  The r^4 term is at most 0.05 r^4: the
       * rotation profile's fourth moment / 24, times 28/3 (largest weight of a 4th derivative). */
      const double r = 1e-3, by = kind == MILL_ROT_LINEAR ? r : 0.5 * r * r;
      const double next = kind == MILL_ROT_LINEAR ? 0 : 0.05 * pow(r, 4);
      mill_rotation_weight(kind, 0, k, &weight, &slope);
      assert_close(weight, k == 0, 0);
      assert_true((slope != 0) == (k <= reach));
      mill_rotation_weight(kind, r, k, &near_weight, &near_slope);
      assert_close(slope, near_slope, 1e-12 + 4 * next / (r * r));
      assert_close(weight + by * slope, near_weight, 1e-15 + next);
    }
  }
}

/** Where one way of making the smooth weights hands over to another. */
MILL_TEST(smooth_weights_have_no_steps)
{
  static const double join[] = {MILL_ROTATION_MOMENTS, MILL_ROTATION_QUINTIC};
  for (int i = 0; i < 2; i++)
    for (int k = 0; k <= 6; k++) {
      double below, above, slope_below, slope_above;
      mill_rotation_weight(MILL_ROT_SPLINE, join[i] * (1 - 1e-13), k, &below, &slope_below);
      mill_rotation_weight(MILL_ROT_SPLINE, join[i] * (1 + 1e-13), k, &above, &slope_above);
      assert_close(below, above, 1e-12);
      assert_close(slope_below, slope_above, 1e-12);
    }
}

MILL_TEST(inner_parameter_of_rotation)
{
  for (int i = 0; i < 2; i++) {
    const int kind = kinds[i];
    assert_close(mill_vsini_inner(kind, 0), 0, 0);
    assert_close(mill_vsini_outer(kind, 0), 0, 0);
    for (double v = 1e-6; v < 1000; v *= 1.7) {
      const double u = mill_vsini_inner(kind, v), h = 1e-4 * u;
      assert_close(mill_vsini_outer(kind, u) / v, 1, 1e-14);
      const double slope =
          (mill_vsini_outer(kind, u + h) - mill_vsini_outer(kind, u - h)) / (2 * h);
      /* The difference is off by rounding / h and by the third derivative: a relative
       * (h / u)^2 / 8 where v is proportional to sqrt(u), at u below MILL_VSINI_SOFT. */
      assert_close(mill_vsini_outer_slope(kind, u) / slope, 1, 1e-8);
      /* the chain rule that the Jacobian uses */
      const double per = 0.06, r = v * per, e = 1e-5;
      double weight, slope_r, up, down, unused;
      mill_rotation_weight(kind, r, 0, &weight, &slope_r);
      if (v < 1 || fabs(r - floor(r + 0.5)) < 0.01)
        continue;
      mill_rotation_weight(kind, mill_vsini_outer(kind, u * (1 + e)) * per, 0, &up, &unused);
      mill_rotation_weight(kind, mill_vsini_outer(kind, u * (1 - e)) * per, 0, &down, &unused);
      assert_close(slope_r * mill_rotation_slope_scale(kind, v, per) * u, (up - down) / (2 * e),
                   1e-8);
    }
  }
  assert_close(mill_vsini_outer_slope(MILL_ROT_LINEAR, 0), 1, 0);
  assert_true(isinf(mill_vsini_outer_slope(MILL_ROT_SPLINE, 0)));
}

/* --- the spline by its two-sided filter --- */

static block_bench b;

typedef struct reference {
  const double *grid, *flux, *wave, *value, *slope;
} reference;

static const reference blue = {ref_spline_b_grid, ref_spline_b_flux, ref_spline_b_wave,
                               ref_spline_b_value, ref_spline_b_slope};
static const reference red = {ref_spline_z_grid, ref_spline_z_flux, ref_spline_z_wave,
                              ref_spline_z_value, ref_spline_z_slope};

static void locate(const reference *r, double vel_km_s)
{
  block_bench_init(&b, REF_SPLINE_N, r->grid[0], r->grid[1], REF_SPLINE_N_EVAL, 1, 1);
  for (int i = 0; i < REF_SPLINE_N_EVAL; i++)
    b.ln_wave[i] = log(r->wave[i]) - mill_doppler_ln(vel_km_s);
}

static void compare_f64(const reference *r)
{
  const mill_model_arm *arm = &b.model.arm[0];
  const double vel = 123.4;
  double out[REF_SPLINE_N_EVAL], slope[REF_SPLINE_N_EVAL];
  locate(r, vel);
  mill_block_spline(&b.block, arm, r->flux, b.bend);
  mill_block_locate(&b.block, arm, b.ws.n_pix, b.ws.ln_wave, vel, b.work.index, b.work.frac);
  mill_block_interpolate(&b.block, arm, REF_SPLINE_N_EVAL, r->flux, b.bend, b.work.index,
                         b.work.frac, out, mill_doppler_ln_slope(vel), slope);
  for (int i = 0; i < REF_SPLINE_N_EVAL; i++) {
    /* a position in an interval is off by 3e-8 (float32); values change by 0.2 an interval */
    assert_close(out[i], r->value[i], 2e-8);
    /* dT/dv = dT/dwave dwave/dv; the position's error times a second derivative of 0.1 */
    const double per_km_s = r->slope[i] * r->wave[i] * mill_doppler_ln_slope(vel);
    const double unit = 1 / (MILL_C_KM_S * arm->ln_step);
    assert_close(slope[i] / unit, per_km_s / unit, 5e-8);
  }
  double sampled[REF_SPLINE_N_EVAL], without[REF_SPLINE_N_EVAL]; /* the same otherwise */
  mill_block_sample(&b.block, arm, REF_SPLINE_N_EVAL, b.ws.ln_wave, vel, r->flux, b.bend, sampled);
  assert_memory_equal(sampled, out, sizeof out);
  mill_block_interpolate(&b.block, arm, REF_SPLINE_N_EVAL, r->flux, b.bend, b.work.index,
                         b.work.frac, without, 0, NULL);
  for (int i = 0; i < REF_SPLINE_N_EVAL; i++)
    assert_close(without[i], out[i], 4e-16); /* products may be fused in one and not the other */
}

static void compare_f32(const reference *r)
{
  const mill_model_arm *arm = &b.model.arm[0];
  const double vel = -200;
  float y[REF_SPLINE_N], bend[REF_SPLINE_N];
  float out[REF_SPLINE_N_EVAL], slope[REF_SPLINE_N_EVAL];
  for (int i = 0; i < REF_SPLINE_N; i++)
    y[i] = (float)r->flux[i];
  locate(r, vel);
  blocks_f32.spline(&b.block, arm, y, bend);
  blocks_f32.locate(&b.block, arm, b.ws.n_pix, b.ws.ln_wave, vel, b.work.index, b.work.frac);
  blocks_f32.interpolate(&b.block, arm, REF_SPLINE_N_EVAL, y, bend, b.work.index, b.work.frac, out,
                         mill_doppler_ln_slope(vel), slope);
  for (int i = 0; i < REF_SPLINE_N_EVAL; i++) {
    /* a handful of float32 roundings of numbers below 1 */
    assert_close((double)out[i], r->value[i], 3e-7);
    const double per_km_s = r->slope[i] * r->wave[i] * mill_doppler_ln_slope(vel);
    const double unit = 1 / (MILL_C_KM_S * arm->ln_step);
    assert_close((double)slope[i] / unit, per_km_s / unit, 1e-6);
  }
}

MILL_TEST(spline_matches_scipy)
{
  compare_f64(&blue);
  compare_f64(&red);
  compare_f32(&blue);
  compare_f32(&red);
}

MILL_TEST(positions_beyond_the_ends_stay_inside)
{
  block_bench_init(&b, 64, log(4000.0), 1e-4, 4, 1, 1);
  b.ln_wave[0] = log(3000.0);
  b.ln_wave[1] = log(4000.0) - 1e-9;
  b.ln_wave[2] = log(4000.0) + 63e-4;
  b.ln_wave[3] = log(5000.0);
  mill_block_locate(&b.block, &b.model.arm[0], b.ws.n_pix, b.ws.ln_wave, 0, b.work.index,
                    b.work.frac);
  assert_int_equal(b.index[0], 0);
  assert_int_equal(b.index[1], 0);
  assert_int_equal(b.index[2], 62);
  assert_int_equal(b.index[3], 62);
}

enum { MAX = 8192 };

static mill_block block;
static float ln_w[MAX], tail[MILL_PARETO_TAIL];
static double like[MILL_PARETO_GRID];

static double pareto(int n)
{
  return mill_block_weights_pareto(&block, n, ln_w, tail, like);
}

MILL_TEST(statistics_are_those_of_numpy)
{
  static const double q[5] = {0.025, 0.16, 0.5, 0.84, 0.975};
  const double *ln = ref_weights_ln, *expected = ref_weights_expected;
  for (size_t i = 0; i < sizeof ref_weights_n / sizeof *ref_weights_n; i++, expected += 7) {
    const int n = ref_weights_n[i];
    for (int k = 0; k < n; k++)
      ln_w[k] = (float)*ln++;
    assert_close(mill_block_weights_size(&block, n, ln_w, 1) / expected[0], 1, 1e-10);
    /* excesses are float32 */
    assert_close(pareto(n), expected[1], 1e-5);
    double at[5];
    mill_block_quantiles(&block, n, ln_w, NULL, n, 5, q, at);
    for (int k = 0; k < 5; k++)
      assert_close(at[k], expected[2 + k], 1e-11);
  }
}

MILL_TEST(weights_that_say_nothing)
{
  for (int i = 0; i < 1000; i++)
    ln_w[i] = 0; /* all the same */
  assert_close(mill_block_weights_size(&block, 1000, ln_w, 1), 1000, 1e-9);
  assert_close(pareto(1000), 0, 0);
  for (int i = 1; i < 1000; i++)
    ln_w[i] = -INFINITY; /* one has all */
  assert_close(mill_block_weights_size(&block, 1000, ln_w, 1), 1, 0);
  assert_true(isinf(pareto(1000)));
  assert_true(isinf(pareto(20)));
}

/** Against a sorted list that holds each value as often as its count. */
MILL_TEST(values_are_those_of_a_sorted_list)
{
  enum { N = 70, MOST = 3 };
  static float x[N], count[N], all[N * MOST];
  uint64_t seed = 9;
  for (int n = 1; n < N; n++) {
    int n_all = 0;
    for (int i = 0; i < n; i++) {
      x[i] = floorf((float)(10 * (1 + test_library_random(&seed)))) - 7; /* with repetitions */
      count[i] = i == 0 ? 1 : floorf((float)(0.5 * MOST * (1 + test_library_random(&seed))));
      for (int c = 0; c < (int)count[i]; c++)
        all[n_all++] = x[i];
    }
    mill_sort(n_all, all);
    for (int i = 0; i < n_all; i++) {
      const double k[2] = {i, n_all - 1}, last = (double)all[n_all - 1], one = 1;
      double value[2][2], at;
      assert_true(i == 0 || all[i - 1] <= all[i]);
      mill_block_select(&block, n, x, count, 2, k, value);
      assert_close(value[0][0], (double)all[i], 0);
      assert_close(value[0][1], (double)all[i + 1 < n_all ? i + 1 : i], 0);
      assert_close(value[1][0], last, 0);
      mill_block_quantiles(&block, n, x, count, n_all, 1, &one, &at);
      assert_close(at, last, 0);
    }
  }
}

MILL_TEST_MAIN(NULL, NULL)
