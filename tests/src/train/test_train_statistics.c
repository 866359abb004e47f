/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics before training: pixels, more spectra than fit into memory, refused input.
 * e2e/test_library_train.py compares components with NumPy's. */
#include "tests/mill_test.h"

#include "src/train/train_statistics.h"

enum { N_PIX = 40, N_COMPONENT = 5 };

static void make_scale(double *scale)
{
  for (int p = 0; p < N_PIX; p++)
    scale[p] = 1 + 0.5 * sin(p);
}

/* Return an upper bound of the sine of the largest angle between two spaces: that of the patterns
 * of c and that of the orthonormal vectors v [N_COMPONENT][N_PIX]. */
static double largest_angle(const mill_train_components *c, const double *scale, const double *v)
{
  double outside = 0;
  for (int k = 0; k < N_COMPONENT; k++) {
    double x[N_PIX], rest = 0;
    for (int p = 0; p < N_PIX; p++)
      x[p] = c->pattern[k * N_PIX + p] * scale[p] / sqrt(c->variance[k]);
    for (int j = 0; j < N_COMPONENT; j++) {
      double dot = 0;
      for (int p = 0; p < N_PIX; p++)
        dot += x[p] * v[j * N_PIX + p];
      for (int p = 0; p < N_PIX; p++)
        x[p] -= dot * v[j * N_PIX + p];
    }
    for (int p = 0; p < N_PIX; p++)
      rest += x[p] * x[p];
    outside += rest; /* the sum over k bounds the worst combination */
  }
  return sqrt(outside);
}

/* 400 spectra of ten patterns in memory for 40: nothing is lost. */
MILL_TEST(more_spectra_than_room)
{
  enum { N = 400, N_PATTERN = 10 };
  mill_train_statistics *s[2];
  mill_train_components c[2];
  MILL_OWNED float *y = NULL;
  double scale[N_PIX];
  make_scale(scale);
  assert_ok(MILL_ALLOC(N * N_PIX, &y));
  for (int i = 0; i < N; i++)
    for (int p = 0; p < N_PIX; p++) {
      double sum = 3 + 0.01 * i; /* a mean that moves */
      for (int k = 0; k < N_PATTERN; k++)
        sum += pow(1.5, -k) * sin(0.37 * (k + 1) * i + k * k) * cos(0.09 * (k + 1) * p + k);
      y[i * N_PIX + p] = (float)sum;
    }
  for (int k = 0; k < 2; k++) {
    assert_ok(mill_train_statistics_create(mill_train_ops_cpu(), N_PIX, k == 0 ? 1000 : 40, &s[k]));
    for (int i = 0; i < N; i += 16)
      assert_ok(mill_train_statistics_add(s[k], 16, y + i * N_PIX));
    assert_ok(mill_train_statistics_pixels(s[k], &c[k]));
    assert_ok(mill_train_statistics_components(s[k], scale, N_COMPONENT, 0, &c[k]));
  }
  for (int p = 0; p < N_PIX; p++) {
    double sum = 0, square = 0;
    for (int i = 0; i < N; i++) {
      const double x = (double)y[i * N_PIX + p];
      sum += x / N;
      square += x * x / N;
    }
    for (int k = 0; k < 2; k++) {
      assert_close(c[k].mean[p], sum, 1e-12);
      assert_close(c[k].spread[p], sqrt(square - sum * sum), 1e-11);
    }
  }
  assert_close(c[1].total, c[0].total, 1e-12 * c[0].total);
  for (int k = 0; k < N_COMPONENT; k++)
    assert_close(c[1].variance[k], c[0].variance[k], 1e-9 * c[0].variance[0]);
  double v[N_COMPONENT * N_PIX];
  for (int k = 0; k < N_COMPONENT; k++)
    for (int p = 0; p < N_PIX; p++)
      v[k * N_PIX + p] = c[0].pattern[k * N_PIX + p] * scale[p] / sqrt(c[0].variance[k]);
  /* float32 rounding adds patterns of 1e-7 beyond the ten; this much is lost */
  const double angle = largest_angle(&c[1], scale, v);
  printf("angle to the components of all spectra together %.2g\n", angle);
  assert_true(angle < 1e-5);
  for (int k = 0; k < 2; k++) {
    mill_train_components_clear(&c[k]);
    mill_train_statistics_destroy(s[k]);
  }
}

MILL_TEST(refusals)
{
  mill_train_statistics *s = NULL;
  mill_train_components c;
  float y[4 * N_PIX];
  double scale[N_PIX];
  make_scale(scale);
  for (int i = 0; i < 4 * N_PIX; i++)
    y[i] = (float)(i % N_PIX);
  assert_ok(mill_train_statistics_create(mill_train_ops_cpu(), N_PIX, 16, &s));
  assert_ok(mill_train_statistics_add(s, 4, y));
  assert_ok(mill_train_statistics_pixels(s, &c));
  assert_fails(mill_train_statistics_components(s, scale, 4, 0, &c), MILL_ERR_INPUT,
               "4 principal components of 4 spectra");
  assert_fails(mill_train_statistics_components(s, scale, 3, 0, &c), MILL_ERR_INPUT,
               "are all equal");
  mill_train_components_clear(&c);
  mill_train_statistics_destroy(s);
}

MILL_TEST_MAIN(NULL, NULL)
