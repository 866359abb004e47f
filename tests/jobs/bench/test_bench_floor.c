/* SPDX-License-Identifier: BSD-3-Clause */
/* The counted floor: sizes of small stars, every stage against numbers counted by hand. */
#include "tests/mill_test.h"

#include "jobs/bench/bench_floor.h"
#include "tests/test_library.h"

enum { N_PIX = 100, N_DIAG = 3, N_CONT = 2, N_SLOT = 4, L2 = 1 << 20 };

static mill_library lib;
static mill_fit_settings set;
static float numbers[N_PIX * N_DIAG];
static int32_t mask[N_PIX];
static double wave_aa[N_PIX];

static int setup(void **state)
{
  (void)state;
  /* one arm of 400 pixels, 4 labels, layers 4 - 12 - 9 - 400, log flux */
  memset(&lib, 0, sizeof lib);
  if (test_library_make(4, 1, 1, &lib) != MILL_OK)
    return -1;
  memset(&set, 0, sizeof set);
  set.n_cont = N_CONT;
  set.min_vel_km_s = -1500;
  set.max_vel_km_s = 1500;
  set.guess_vel_step_km_s = 60;
  for (int i = 0; i < N_PIX; i++)
    wave_aa[i] = 4020.0 + 0.8 * i;
  return 0;
}

static int teardown(void **state)
{
  (void)state;
  mill_library_clear(&lib);
  return 0;
}

/** n_star stars of one segment; with_lsf 0: none, 1: a matrix, 2: a sigma. */
static mill_bench_shape shape_of(int n_star, int with_lsf, int with_mask)
{
  mill_bench_shape shape;
  mill_raw_segment segment = {.arm = 0,
                              .n_pix = N_PIX,
                              .n_diag = with_lsf == 1 ? N_DIAG : 0,
                              .wave_aa = wave_aa,
                              .flux = numbers,
                              .ivar = numbers,
                              .mask = with_mask ? mask : NULL,
                              .resolution = with_lsf == 1 ? numbers : NULL,
                              .sigma_aa = with_lsf == 2 ? numbers : NULL};
  const mill_star star = {.n_segment = 1, .segment = &segment};
  memset(&shape, 0, sizeof shape);
  for (int i = 0; i < n_star; i++)
    mill_bench_shape_add(&shape, &lib, &set, &star);
  return shape;
}

static void count(const mill_bench_shape *shape, const mill_timing *timing, size_t l2_bytes,
                  mill_bench_work *work)
{
  mill_bench_floor_count(&lib, &set, shape, timing, N_SLOT, 500, l2_bytes, work);
}

MILL_TEST(stars_are_added_up)
{
  mill_bench_shape shape = shape_of(3, 1, 1);
  assert_int_equal(shape.n_star, 3);
  assert_int_equal(shape.arm[0].n_star, 3);
  assert_int_equal(shape.arm[0].n_segment, 3);
  assert_int_equal(shape.arm[0].n_pix, 300);
  assert_int_equal(shape.arm[0].n_res, 900);
  assert_int_equal(shape.arm[0].raw_bytes, 300 * (12 + 12));
  /* 79.2 A at 4020 A are 5,849 km/s, bins of 60 that need not begin with the spectrum */
  assert_in_range(shape.arm[0].n_guess_bin, 3 * 97, 3 * 99);

  shape = shape_of(1, 0, 0);
  assert_int_equal(shape.arm[0].n_res, 0);
  assert_int_equal(shape.arm[0].raw_bytes, 800);
  shape = shape_of(1, 2, 1);
  assert_int_equal(shape.arm[0].n_res, 500);
  assert_int_equal(shape.arm[0].raw_bytes, 1600);

  set.resolution = MILL_RES_NONE; /* a matrix that is not used is not read either */
  shape = shape_of(1, 1, 1);
  set.resolution = MILL_RES_AUTO;
  assert_int_equal(shape.arm[0].n_res, 0);
  assert_int_equal(shape.arm[0].raw_bytes, 1200);
}

/* Numbers of one value: front 2*4*12 + 3*12 + 2*12*9 + 3*9 = 375; last layer 2*9*400, flux
 * 400, spline 8*400; at the pixels 19*100, resolution 2*3*100; projection 100*(5 + 6 + 4)
 * and 8/3 + 16 for the factor. */
static const double VALUE_F32 = 7200 + 400 + 3200 + 1900 + 600;
static const double VALUE_F64 = 375 + 1500 + 8.0 / 3 + 16;
/* spectrum, weights 8 and rows 12 bytes a pixel, template 1600; of what all four slots share
 * a fourth: continuum 800, layers (10*400 + 5*12 + 13*9)*4 */
static const double VALUE_BYTES = 2000 + 1600 + 0.25 * (800 + 4.0 * (4000 + 60 + 117));

MILL_TEST(value)
{
  const mill_bench_shape shape = shape_of(2, 1, 1);
  mill_bench_work work[MILL_BENCH_N_STAGE];
  mill_timing timing;
  memset(&timing, 0, sizeof timing);
  timing.n_value[MILL_PHASE_SIMPLEX] = 7;
  count(&shape, &timing, L2, work);
  assert_close(work[MILL_BENCH_SIMPLEX].f32, 7 * VALUE_F32, 1e-6);
  assert_close(work[MILL_BENCH_SIMPLEX].f64, 7 * VALUE_F64, 1e-6);
  assert_close(work[MILL_BENCH_SIMPLEX].bytes_cache, 7 * VALUE_BYTES, 1e-6);
  assert_close(work[MILL_BENCH_SIMPLEX].bytes_memory, 0, 0);
  assert_close(work[MILL_BENCH_POLISH].f32 + work[MILL_BENCH_POLISH].f64, 0, 0);

  /* a star that does not stay in the cache comes from memory */
  count(&shape, &timing, 4096, work);
  assert_close(work[MILL_BENCH_SIMPLEX].bytes_cache, 0, 0);
  assert_close(work[MILL_BENCH_SIMPLEX].bytes_memory, 7 * VALUE_BYTES, 1e-6);

  set.precision = MILL_FLOAT64;
  count(&shape, &timing, L2, work);
  set.precision = MILL_FLOAT32;
  assert_close(work[MILL_BENCH_SIMPLEX].f32, 0, 0);
  assert_close(work[MILL_BENCH_SIMPLEX].f64, 7 * (VALUE_F32 + VALUE_F64), 1e-6);
}

MILL_TEST(jacobian)
{
  const mill_bench_shape shape = shape_of(2, 1, 1);
  mill_bench_work work[MILL_BENCH_N_STAGE];
  mill_timing timing;
  memset(&timing, 0, sizeof timing);
  timing.n_jacobian[MILL_PHASE_POLISH] = 3;
  count(&shape, &timing, L2, work);
  /* five rows of the last layer, flux 1 + 4*2, six rows of splines, six rows and the velocity at
   * the pixels, seven resolved */
  const double f32 = 5 * 7200 + 400 * 9 + 6 * 3200 + 100 * (12 + 6 * 7 + 12) + 7 * 600;
  /* front: a row, SiLU 3, its slope 3; in float32 four rows and their products with the slope */
  const double front = 96 + 12 * (3 + 3) + 216 + 9 * (3 + 3);
  const double thin = 4 * (96 + 12 + 216 + 9);
  /* continuum 4, residual 2, rows 7, V^T V 6*7, S^T V 6 + 2*2*6, V^T r 12, determinant 6 + 18 */
  const double curvature = 100 * (4 + 2 + 7 + 42 + 6 + 24 + 12 + 6 + 18) + 6 * (4 + 2 * 7);
  assert_close(work[MILL_BENCH_POLISH].f32, 3 * (f32 + thin), 1e-6);
  assert_close(work[MILL_BENCH_POLISH].f64, 3 * (front + VALUE_F64 - 375 + curvature), 1e-6);
  /* templates: the value's and four tangents' */
  assert_close(work[MILL_BENCH_POLISH].bytes_cache, 3 * (VALUE_BYTES + 4 * 1600), 1e-6);
  /* of one arm, which is all there are here; with an emulator's rows from the store */
  timing.n_led[1] = 2;
  timing.n_stored[0] = timing.n_stored[1] = 1;
  count(&shape, &timing, L2, work);
  assert_close(work[MILL_BENCH_POLISH].f32, 3 * f32 + thin - 2 * 5 * 7200, 1e-6);
  assert_close(work[MILL_BENCH_POLISH].f64, 3 * (VALUE_F64 - 375 + curvature) + front, 1e-6);
}

MILL_TEST(once_a_star)
{
  const mill_bench_shape shape = shape_of(2, 1, 1);
  mill_bench_work work[MILL_BENCH_N_STAGE];
  mill_timing timing;
  memset(&timing, 0, sizeof timing);
  timing.n_value[MILL_PHASE_PROFILE] = 2;
  timing.n_velocity = 80;
  timing.n_value[MILL_PHASE_FINAL] = 2;
  count(&shape, &timing, L2, work);
  assert_close(work[MILL_BENCH_READ].bytes_file, 2 * 2400, 0);
  assert_close(work[MILL_BENCH_LOAD].bytes_memory, 0, 0);
  /* 12 a pixel, 3 for the sum of a row, 1 for its median */
  assert_close(work[MILL_BENCH_PREPARE].f64, 2 * 100 * (12 + 3 + 1), 1e-6);
  assert_close(work[MILL_BENCH_PREPARE].bytes_memory, 2 * (2400 + 2000), 1e-6);
  /* 25 bins and one more on each side of 0, 40 templates: 20 labels, 2 rotations; transforms of
   * 256, of which 204 are bins of the data */
  const double n_bin = (double)shape.arm[0].n_guess_bin / 2, n_block = n_bin / 204;
  assert_close(work[MILL_BENCH_GUESS].f32,
               2 * (5 * 256 * 8 * (n_block + 40) + 8 * 40 * n_block * 256), 1e-3);
  assert_close(work[MILL_BENCH_GUESS].f64, 2 * (1500 + 8.0 / 3 + 16 + 100 * 10), 1e-6);
  assert_close(work[MILL_BENCH_GUESS].bytes_memory, 2 * (800 + 0.25 * 40 * n_block * 256 * 8),
               1e-3);
  /* no emulator: the template is known */
  assert_close(work[MILL_BENCH_PROFILE].f32, 80 * (1900 + 600), 1e-6);
  assert_close(work[MILL_BENCH_PROFILE].f64, 80 * (1500 + 8.0 / 3 + 16), 1e-6);
  assert_close(work[MILL_BENCH_PROFILE].bytes_cache, 2 * (2000 + 0.25 * 800), 1e-6);
  assert_close(work[MILL_BENCH_FINAL].f64, 2 * 100 * 18, 1e-6);
  assert_close(work[MILL_BENCH_WRITE].bytes_memory, 2 * 500, 0);
  assert_close(work[MILL_BENCH_OTHER].f64 + work[MILL_BENCH_OTHER].bytes_memory, 0, 0);
}

MILL_TEST(without_stars_there_is_no_floor)
{
  mill_bench_shape shape;
  mill_bench_work work[MILL_BENCH_N_STAGE];
  mill_timing timing;
  memset(&shape, 0, sizeof shape);
  memset(&timing, 0, sizeof timing);
  memset(work, 0xff, sizeof work);
  count(&shape, &timing, L2, work);
  for (int s = 0; s < MILL_BENCH_N_STAGE; s++)
    assert_close(work[s].f32 + work[s].f64 + work[s].bytes_file + work[s].bytes_memory, 0, 0);
}

MILL_TEST(seconds)
{
  const mill_bench_rates rates = {.f32_gflop_s = 100,
                                  .f64_gflop_s = 50,
                                  .copy_cache_gbyte_s = 80,
                                  .copy_memory_gbyte_s = 10,
                                  .read_gbyte_s = 5};
  int by_traffic = -1;
  /* 2e-9 and 4e-9 of arithmetic, 1e-9 + 2e-9 + 2e-9 of traffic */
  mill_bench_work work = {
      .f32 = 200, .f64 = 200, .bytes_file = 5, .bytes_memory = 20, .bytes_cache = 160};
  assert_close(mill_bench_floor_s(&work, &rates, &by_traffic), 6e-9, 1e-20);
  assert_int_equal(by_traffic, 0);
  work.bytes_memory = 40;
  assert_close(mill_bench_floor_s(&work, &rates, &by_traffic), 7e-9, 1e-20);
  assert_int_equal(by_traffic, 1);
  assert_close(mill_bench_floor_s(&work, &rates, NULL), 7e-9, 1e-20);
}

MILL_TEST_MAIN(setup, teardown)
