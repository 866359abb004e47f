/* SPDX-License-Identifier: BSD-3-Clause */
/* From emulator output to templates at pixels: exponential, rotation, resolution matrix. */
#include "tests/mill_test.h"

#include "tests/kernels/math/block_bench.h"
#include "tests/kernels/math/blocks_f32.h"

enum { SEED = 12 };

static block_bench b;

MILL_TEST(expm1f_is_accurate)
{
  double worst = 0;
  /* near 0 at all scales, and densely over the range */
  for (double x = 1e-30; x < 87.9; x *= 1.00013)
    for (int sign = -1; sign <= 1; sign += 2) {
      const float f = (float)(sign * x);
      if (f < -87)
        continue;
      const double off = fabs((double)mill_expm1f(f) / expm1((double)f) - 1);
      worst = off > worst || !(off == off) ? off : worst;
    }
  for (double x = -87; x < 87.9; x += 1e-4) {
    const float f = (float)x;
    if (f == 0)
      continue;
    const double off = fabs((double)mill_expm1f(f) / expm1((double)f) - 1);
    worst = off > worst || !(off == off) ? off : worst;
  }
  printf("largest relative error of mill_expm1f: %.3g\n", worst);
  /* a polynomial to 1e-7 and two or three roundings of 6e-8 */
  assert_true(worst <= 3e-7);
}

MILL_TEST(expm1f_clips_its_argument)
{
  assert_close((double)mill_expm1f(0), 0, 0);
  assert_close((double)mill_expm1f(-1e30f), -1, 1e-30);
  assert_close((double)mill_expm1f(-INFINITY), -1, 1e-30);
  assert_true(isfinite(mill_expm1f(1e30f)) && mill_expm1f(1e30f) > 1e38f);
  assert_true(isfinite(mill_expm1f(INFINITY)));
  assert_true(isnan(mill_expm1f(NAN)));
}

/** A row and a tangent of it, in place. */
static void make_flux(const double *mean)
{
  mill_block_flux(&b.block, &b.model.arm[0], mean[0], b.grid);
  mill_block_flux_tangent(&b.block, &b.model.arm[0], mean[1], b.grid, b.grid + BENCH_PIX);
}

MILL_TEST(log_flux_and_its_tangents)
{
  enum { N = 100 };
  uint64_t random = SEED;
  double y[N], dy[N];
  float narrow[2 * BENCH_PIX];
  block_bench_init(&b, N, log(4000.0), 1e-4, N, 1, 1);
  b.model.arm[0].log_flux = 1;
  const double mean[2] = {1.7, -0.3};
  for (int i = 0; i < N; i++) {
    narrow[i] = (float)(b.grid[i] = y[i] = test_library_random(&random));
    narrow[BENCH_PIX + i] = (float)(b.grid[BENCH_PIX + i] = dy[i] = test_library_random(&random));
  }
  b.grid[7] = y[7] = 400; /* clipped: exp(300) in all */
  make_flux(mean);
  blocks_f32.flux(&b.block, &b.model.arm[0], mean[0], narrow);
  blocks_f32.flux_tangent(&b.block, &b.model.arm[0], mean[1], narrow, narrow + BENCH_PIX);
  for (int i = 0; i < N; i++) {
    const double level = exp(fmin(y[i] + mean[0], 300) - mean[0]);
    assert_close(b.grid[i], level - 1, 1e-13 * level);
    assert_close(b.grid[BENCH_PIX + i], level * (dy[i] + mean[1]), 1e-13 * level);
    if (i == 7)
      continue;
    /* float32 input and result */
    assert_close((double)narrow[i], level - 1, 5e-7);
    assert_close((double)narrow[BENCH_PIX + i], level * (dy[i] + mean[1]), 1e-6);
  }
}

MILL_TEST(plain_flux_is_kept)
{
  const double mean[2] = {5, 0.25};
  block_bench_init(&b, 3, log(4000.0), 1e-4, 3, 1, 1);
  for (int i = 0; i < 3; i++) {
    b.grid[i] = i - 1;
    b.grid[BENCH_PIX + i] = 2 * i;
  }
  make_flux(mean);
  for (int i = 0; i < 3; i++) {
    assert_close(b.grid[i], i - 1, 0);
    assert_close(b.grid[BENCH_PIX + i], 2 * i + 0.25, 0);
  }
}

MILL_TEST(convolution_at_awkward_sizes)
{
  static const int size[] = {1, 2, 31, 33, 63, 64, 65, 129, 300}, width[] = {0, 1, 2, 16, 40, 200};
  uint64_t random = SEED;
  double kernel[201], in[300], out[300];
  float in32[300], out32[300];
  for (int k = 0; k <= 200; k++)
    kernel[k] = (1 + test_library_random(&random)) / 100;
  for (int i = 0; i < 300; i++)
    in32[i] = (float)(in[i] = (double)(float)test_library_random(&random));
  for (size_t s = 0; s < sizeof size / sizeof *size; s++)
    for (size_t w = 0; w < sizeof width / sizeof *width; w++) {
      const int n = size[s], half = width[w];
      mill_block_rotate(&b.block, n, half, kernel, in, out);
      blocks_f32.rotate(&b.block, n, half, kernel, in32, out32);
      for (int i = 0; i < n; i++) {
        double expected = 0;
        for (int k = -half; k <= half; k++)
          if (i + k >= 0 && i + k < n)
            expected += kernel[abs(k)] * in[i + k];
        assert_close(out[i], expected, 1e-14);
        /* 400 products of size 0.01, float32 sums */
        assert_close((double)out32[i], expected, 2e-6);
      }
    }
}

/** Set up a grid row of ln flux and two rows of tangents, pixels of 2.7 grid points, and a Gaussian
 *  kernel of `sigma` grid points that ends at `half`.  grid32 gets the three rows in float32. */
static void bench_of_rows(double ln_step, double sigma, int half, float *grid32)
{
  enum { N_GRID = 400, N_PIX = 100, FIRST = 40 };
  uint64_t random = SEED;
  block_bench_init(&b, N_GRID, log(4000.0), ln_step, N_PIX, 1, 2);
  b.model.arm[0].log_flux = 1;
  for (int i = 0; i < 3 * BENCH_PIX; i++)
    grid32[i] = (float)(b.grid[i] = (double)(float)test_library_random(&random));
  for (int i = 0; i < N_PIX; i++)
    b.ln_wave[i] = log(4000.0) + (FIRST + 2.7 * i) * ln_step;
  for (int k = 0; k <= half; k++) {
    b.kernel[k] = exp(-0.5 * k * k / (sigma * sigma)) / (2.5 * sigma);
    b.kernel_slope[k] = b.kernel[k] * (0.1 * k * k - 0.3);
  }
  b.work.mean[1] = 0.3;
  b.work.mean[2] = -0.2;
}

MILL_TEST(convolved_rows_at_the_pixels_alone)
{
  enum { HALF = 16 };
  static const double step[] = {8e-5, 2e-3}, sigma[] = {0.4, 2.2, 3.0};
  static float grid32[3 * BENCH_PIX], pixel32[5 * BENCH_PIX];
  const double vel = 30.0;
  for (int c = 0; c < 6; c++) {
    mill_workspace work;
    const int half = c % 3 == 0 ? 2 : HALF;
    bench_of_rows(step[c / 3], sigma[c % 3], half, grid32);
    mill_block_locate(&b.block, &b.model.arm[0], b.s.n_pix, b.ln_wave, vel, b.index, b.frac);
    work = b.work;
    work.grid = grid32;
    work.pixel = pixel32;
    assert_true(blocks_f32.pixel_taps(&b.block, &b.model, &b.s, vel, half, &work));
    assert_true(!mill_block_pixel_taps(&b.block, &b.model, &b.s, vel, half, &b.work));
    for (int r = 0; r < 4; r++) {
      mill_block_template_row(&b.block, &b.model, &b.model.arm[0], r, half, &b.work, b.rotated,
                              b.bend);
      mill_block_pixel_row(&b.block, &b.model, &b.s, vel, r, b.rotated, b.bend, &b.work);
    }
    for (int r = 0; r < 5; r++) {
      double largest = 0.0;
      for (int i = 0; i < b.s.n_pix; i++)
        largest = fmax(largest, fabs(b.pixel[r * BENCH_PIX + i]));
      /* Errors come from 33 float32 products and from kernels, which end at 1e-6 of their peak. */
      for (int i = 0; i < b.s.n_pix; i++)
        assert_close((double)pixel32[r * BENCH_PIX + i], b.pixel[r * BENCH_PIX + i],
                     3e-6 * largest);
    }
  }
}

MILL_TEST(rows_at_the_pixels_alone_are_not_for_all)
{
  static float grid32[3 * BENCH_PIX], pixel32[5 * BENCH_PIX];
  static const double sigma[] = {2.2, 9.0, 2.2, 2.2, 2.2};
  static const int half[] = {14, 60, 14, 14, 14};
  for (int c = 0; c < 5; c++) {
    bench_of_rows(8e-5, sigma[c], half[c], grid32);
    mill_workspace work = b.work;
    work.grid = grid32;
    work.pixel = pixel32;
    if (c == 2)
      b.ln_wave[0] = log(4000.0) + 15 * 8e-5;
    if (c == 3)
      b.ln_wave[99] = log(4000.0) + 383 * 8e-5;
    for (int i = 0; c == 4 && i < b.s.n_pix; i++)
      b.ln_wave[i] = log(4000.0) + (40 + 1.5 * i) * 8e-5;
    if (c == 4)
      b.model.arm[0].n_pix = 249;
    mill_block_locate(&b.block, &b.model.arm[0], b.s.n_pix, b.ln_wave, 0.0, b.index, b.frac);
    /* all but case 0 are refused: a broad kernel, pixels near an end, few grid points a pixel */
    assert_int_equal(blocks_f32.pixel_taps(&b.block, &b.model, &b.s, 0.0, half[c], &work), c == 0);
  }
}

MILL_TEST(resolution_rows_times_a_template)
{
  static const int size[] = {3, 11, 63, 64, 65, 75, 200};
  uint64_t random = SEED;
  for (int nd = 1; nd <= 11; nd += 2)
    for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
      const int n = size[s], pitch_res = mill_row_pitch(n);
      enum { N_ROW = 6, PITCH = 210 };
      double in[N_ROW * PITCH], out[N_ROW * PITCH];
      float in32[N_ROW * PITCH], out32[N_ROW * PITCH];
      block_bench_init(&b, 100, log(4000.0), 1e-4, n, 1, 1);
      b.s.res = b.res;
      b.s.n_diag = nd;
      for (int i = 0; i < nd * pitch_res; i++)
        b.res[i] = (float)test_library_random(&random);
      for (int i = 0; i < N_ROW * PITCH; i++)
        in32[i] = (float)(in[i] = (double)(float)test_library_random(&random));
      /* rows are processed in groups, and the last group may be smaller */
      for (int n_row = 1; n_row <= N_ROW; n_row++) {
        memset(out, 0, sizeof out);
        memset(out32, 0, sizeof out32);
        mill_block_resolve(&b.block, &b.s, n_row, PITCH, in, out);
        blocks_f32.resolve(&b.block, &b.s, n_row, PITCH, in32, out32);
        for (int r = 0; r < N_ROW; r++)
          for (int i = 0; i < PITCH; i++) {
            const int p = r * PITCH + i;
            double expected = 0; /* beyond the rows and their ends nothing is written */
            if (r < n_row && i < n)
              for (int k = 0; k < nd; k++)
                if (i - nd / 2 + k >= 0 && i - nd / 2 + k < n)
                  expected += (double)b.res[k * pitch_res + i] * in[p - nd / 2 + k];
            assert_close(out[p], expected, 1e-14);
            /* eleven float32 products of size 1 */
            assert_close((double)out32[p], expected, 2e-6);
          }
      }
      b.s.res = NULL;
      mill_block_resolve(&b.block, &b.s, 2, PITCH, in, out);
      for (int r = 0; r < 2; r++)
        assert_memory_equal(in + r * PITCH, out + r * PITCH, (size_t)n * sizeof *in);
    }
}

MILL_SEEDED_TEST_MAIN(SEED, NULL, NULL)
