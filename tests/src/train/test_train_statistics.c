/* SPDX-License-Identifier: BSD-3-Clause */
/* First phase of training: NumPy's singular vectors, spectra that do not all fit in, refusals. */
#include "tests/mill_test.h"

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/train/train_statistics.h"
#include "reference/train.h" /* made in the build folder by tests/reference/make_train.py */

/* as make_train.py has them */
enum { N_SPECTRUM = 24, N_PIX = 40, N_COMPONENT = 5 };

static void make_spectra(float *y)
{
  for (int i = 0; i < N_SPECTRUM; i++)
    for (int p = 0; p < N_PIX; p++) {
      double sum = 2;
      for (int k = 0; k < 12; k++)
        sum += pow(2, -k) * sin(0.7 * (k + 1) * i + k) * cos(0.11 * (k + 1) * p + 0.5 * k * k);
      y[i * N_PIX + p] = (float)sum;
    }
}

static void make_scale(double *scale)
{
  for (int p = 0; p < N_PIX; p++)
    scale[p] = 1 + 0.5 * sin(p);
}

/* Sine of the largest angle between the spaces that n rows span: v orthonormal, the patterns made
   so.  The part of a unit vector of one space that lies outside the other one. */
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
    outside += rest; /* of all k: not below that of the worst combination */
  }
  return sqrt(outside);
}

MILL_TEST(numpy)
{
  mill_train_statistics *s = NULL;
  mill_train_components c;
  float y[N_SPECTRUM * N_PIX];
  double scale[N_PIX], z[N_SPECTRUM * N_COMPONENT], rest[N_SPECTRUM];
  make_spectra(y);
  make_scale(scale);
  assert_ok(mill_train_statistics_create(mill_train_ops_cpu(), N_PIX, 2048, &s));
  assert_ok(mill_train_statistics_add(s, 10, y));
  assert_ok(mill_train_statistics_add(s, N_SPECTRUM - 10, y + 10 * N_PIX));
  assert_ok(mill_train_statistics_pixels(s, &c));
  assert_ok(mill_train_statistics_components(s, scale, N_COMPONENT, 0, &c));
  assert_int_equal(c.n_component, N_COMPONENT);
  for (int p = 0; p < N_PIX; p++) {
    double low = INFINITY, high = -INFINITY, square = 0;
    for (int i = 0; i < N_SPECTRUM; i++) {
      low = fmin(low, (double)y[i * N_PIX + p]);
      high = fmax(high, (double)y[i * N_PIX + p]);
      square += pow((double)y[i * N_PIX + p] - REF_MEAN[p], 2) / N_SPECTRUM;
    }
    assert_close(c.mean[p], REF_MEAN[p], 1e-14);
    assert_close(c.spread[p], sqrt(square), 1e-13);
    assert_true(c.least[p] == low && c.most[p] == high);
  }
  /* eigenvalues of sums of products have the rounding of the largest one, 2e-16 of it */
  assert_close(c.total, REF_TOTAL[0], 1e-13 * REF_TOTAL[0]);
  for (int k = 0; k < N_COMPONENT; k++)
    assert_close(c.variance[k], REF_VARIANCE[k], 1e-13 * REF_VARIANCE[0]);
  const double angle = largest_angle(&c, scale, REF_PATTERN);
  printf("angle to NumPy's singular vectors %.2g\n", angle);
  assert_true(angle < 1e-10);
  /* scores: unit mean square, and with the patterns they give back all but the rest */
  double left = 0;
  assert_ok(mill_train_components_scores(&c, scale, N_SPECTRUM, y, z, rest));
  for (int k = 0; k < N_COMPONENT; k++) {
    double square = 0;
    for (int i = 0; i < N_SPECTRUM; i++)
      square += z[i * N_COMPONENT + k] * z[i * N_COMPONENT + k] / N_SPECTRUM;
    assert_close(square, 1, 1e-10);
  }
  for (int i = 0; i < N_SPECTRUM; i++) {
    double sum = 0;
    for (int p = 0; p < N_PIX; p++) {
      double x = c.mean[p];
      for (int k = 0; k < N_COMPONENT; k++)
        x += z[i * N_COMPONENT + k] * c.pattern[k * N_PIX + p];
      sum += pow(scale[p] * ((double)y[i * N_PIX + p] - x), 2);
    }
    assert_close(rest[i], sum, 1e-12);
    left += sum / N_SPECTRUM;
  }
  double carried = 0;
  for (int k = 0; k < N_COMPONENT; k++)
    carried += c.variance[k];
  assert_close(left, c.total - carried, 1e-12);
  mill_train_components_clear(&c);
  mill_train_statistics_destroy(s);
}

/* 400 spectra of ten patterns in memory for 40: nothing is lost. */
MILL_TEST(more_spectra_than_room)
{
  enum { N = 400, N_PATTERN = 10 };
  mill_train_statistics *s[2];
  mill_train_components c[2];
  float *y = NULL;
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
    assert_close(c[1].mean[p], c[0].mean[p], 1e-12);
    assert_close(c[1].spread[p], c[0].spread[p], 1e-12);
  }
  assert_close(c[1].total, c[0].total, 1e-12 * c[0].total);
  for (int k = 0; k < N_COMPONENT; k++)
    assert_close(c[1].variance[k], c[0].variance[k], 1e-9 * c[0].variance[0]);
  double v[N_COMPONENT * N_PIX];
  for (int k = 0; k < N_COMPONENT; k++)
    for (int p = 0; p < N_PIX; p++)
      v[k * N_PIX + p] = c[0].pattern[k * N_PIX + p] * scale[p] / sqrt(c[0].variance[k]);
  /* rows of float32 have more than ten patterns, of 1e-7 of the others: so much is lost */
  const double angle = largest_angle(&c[1], scale, v);
  printf("angle to the components of all spectra together %.2g\n", angle);
  assert_true(angle < 1e-5);
  for (int k = 0; k < 2; k++) {
    mill_train_components_clear(&c[k]);
    mill_train_statistics_destroy(s[k]);
  }
  mill_free(y);
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
