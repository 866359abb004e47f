/* SPDX-License-Identifier: BSD-3-Clause */
/* The spline by its two-sided filter against SciPy's (tests/reference). */
#include "tests/mill_test.h"

#include "tests/kernels/math/block_bench.h"
#include "tests/kernels/math/blocks_f32.h"
#include "reference/blocks.h" /* made in the build folder by tests/reference/make_blocks.py */

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
    /* position in an interval: 3e-8 by float32, and 1e-11 of ln wave over the step; a
     * template changes by up to 0.2 from knot to knot */
    assert_close(out[i], r->value[i], 2e-8);
    /* dT/dv = dT/dwave dwave/dv at the template's wavelength; second derivative up to
     * 0.1 per knot squared, times the same position */
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
  blocks_f32_spline(&b.block, arm, y, bend);
  blocks_f32_locate(&b.block, arm, b.ws.n_pix, b.ws.ln_wave, vel, b.work.index, b.work.frac);
  blocks_f32_interpolate(&b.block, arm, REF_SPLINE_N_EVAL, y, bend, b.work.index, b.work.frac, out,
                         mill_doppler_ln_slope(vel), slope);
  for (int i = 0; i < REF_SPLINE_N_EVAL; i++) {
    /* a handful of float32 roundings of numbers below 1 */
    assert_close((double)out[i], r->value[i], 3e-7);
    const double per_km_s = r->slope[i] * r->wave[i] * mill_doppler_ln_slope(vel);
    const double unit = 1 / (MILL_C_KM_S * arm->ln_step);
    assert_close((double)slope[i] / unit, per_km_s / unit, 1e-6);
  }
}

MILL_TEST(float64_spline_matches_scipy)
{
  compare_f64(&blue);
  compare_f64(&red);
}

MILL_TEST(float32_spline_matches_scipy)
{
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

MILL_TEST_MAIN(NULL, NULL)
