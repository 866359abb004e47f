/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/mill_test.h"

#include "kernels/math/linalg.h"
#include "tests/test_library.h"

enum { N_MAX = MILL_MAX_CONT, LDA = MILL_MAX_CONT + 3 };

/* A = B B^T + ridge, both triangles; columns beyond n hold a marker */
static void random_spd(int n, double ridge, uint64_t *seed, double *a)
{
  double b[N_MAX][N_MAX];
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      b[i][j] = test_library_random(seed);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < LDA; ++j) {
      double sum = i == j ? ridge : 0.0;
      for (int k = 0; k < n && j < n; ++k)
        sum += b[i][k] * b[j][k];
      a[i * LDA + j] = j < n ? sum : 7e77;
    }
}

static double max_abs(int n, const double *a)
{
  double largest = 0.0;
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      largest = fmax(largest, fabs(a[i * LDA + j]));
  return largest;
}

MILL_TEST(random_matrices_by_residuals)
{
  uint64_t seed = 20261121;
  printf("seed %llu\n", (unsigned long long)seed);
  for (int n = 1; n <= N_MAX; ++n) {
    double a[N_MAX * LDA], l[N_MAX * LDA], inv[N_MAX * LDA], x[N_MAX], b[N_MAX];
    random_spd(n, 0.5, &seed, a);
    memcpy(l, a, sizeof(double) * (size_t)(n * LDA));
    assert_int_equal(mill_cholesky(n, l, LDA), 0);
    const double scale = max_abs(n, a);
    /* backward stable: L L^T is A within n roundings of its largest element */
    for (int i = 0; i < n; ++i)
      for (int j = 0; j <= i; ++j) {
        double sum = 0.0;
        for (int k = 0; k <= j; ++k)
          sum += l[i * LDA + k] * l[j * LDA + k];
        assert_close(sum, a[i * LDA + j], (n + 1) * DBL_EPSILON * scale);
      }
    double logdet = 0.0;
    for (int i = 0; i < n; ++i)
      logdet += 2.0 * log(l[i * LDA + i]);
    assert_close(mill_cholesky_logdet(n, l, LDA), logdet, 1e-13 * (1.0 + fabs(logdet)));
    /* upper triangle and padding as they were */
    for (int i = 0; i < n; ++i)
      for (int j = i + 1; j < LDA; ++j)
        assert_close(l[i * LDA + j], a[i * LDA + j], 0.0);
    for (int i = 0; i < n; ++i)
      b[i] = x[i] = test_library_random(&seed);
    mill_cholesky_solve(n, l, LDA, x);
    double largest = 0.0;
    for (int i = 0; i < n; ++i)
      largest = fmax(largest, fabs(x[i]));
    for (int i = 0; i < n; ++i) {
      double sum = 0.0;
      for (int j = 0; j < n; ++j)
        sum += a[i * LDA + j] * x[j];
      assert_close(sum, b[i], 10.0 * n * n * DBL_EPSILON * scale * largest);
    }
    /* |L^-1 b|^2 = b^T A^-1 b */
    double form = 0.0, square = 0.0, y[N_MAX];
    memcpy(y, b, sizeof y);
    mill_cholesky_forward(n, l, LDA, y);
    for (int i = 0; i < n; ++i) {
      form += b[i] * x[i];
      square += y[i] * y[i];
    }
    assert_close(square, form, 1e-12 * fabs(form));
    for (int i = 0; i < n * LDA; ++i)
      inv[i] = 7e77;
    mill_cholesky_inverse(n, l, LDA, inv, LDA);
    const double inv_scale = max_abs(n, inv);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        double sum = 0.0;
        for (int k = 0; k < n; ++k)
          sum += a[i * LDA + k] * inv[k * LDA + j];
        assert_close(sum, i == j ? 1.0 : 0.0, 10.0 * n * n * DBL_EPSILON * scale * inv_scale);
        assert_true(inv[i * LDA + j] == inv[j * LDA + i]);
      }
      for (int j = n; j < LDA; ++j)
        assert_close(inv[i * LDA + j], 7e77, 0.0);
    }
    /* det(D A D) = det(A) det(D)^2, with elements whose product would overflow */
    double scaled[N_MAX * LDA];
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j)
        scaled[i * LDA + j] = a[i * LDA + j] * 1e60;
    assert_int_equal(mill_cholesky(n, scaled, LDA), 0);
    assert_close(mill_cholesky_logdet(n, scaled, LDA),
                 mill_cholesky_logdet(n, l, LDA) + 60.0 * n * log(10.0), 1e-11);
  }
}

/* Singular matrices of each size: the last row is the sum of the others, so the last pivot is
 * rounding noise of either sign */
MILL_TEST(singular_fails_at_its_pivot)
{
  uint64_t seed = 4;
  for (int n = 2; n <= N_MAX; ++n) {
    double a[N_MAX * LDA];
    random_spd(n - 1, 0.5, &seed, a);
    double corner = 0.0;
    for (int j = 0; j < n - 1; ++j) {
      double sum = 0.0;
      for (int i = 0; i < n - 1; ++i)
        sum += a[i * LDA + j];
      a[(n - 1) * LDA + j] = sum;
      corner += sum;
    }
    a[(n - 1) * LDA + n - 1] = corner;
    assert_int_equal(mill_cholesky(n, a, LDA), n);
  }
  double zero = 0.0, negative = -1.0;
  assert_int_equal(mill_cholesky(1, &zero, 1), 1);
  assert_int_equal(mill_cholesky(1, &negative, 1), 1);
  double indefinite[] = {1.0, 0.0, 2.0, 1.0};
  assert_int_equal(mill_cholesky(2, indefinite, 2), 2);
}

MILL_TEST(small_pivots_of_well_posed_matrices_pass)
{
  /* scales differ by 1e20 and nothing is correlated: the pivots are exact */
  double a[] = {1e20, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1e-20};
  assert_int_equal(mill_cholesky(3, a, 3), 0);
  assert_close(mill_cholesky_logdet(3, a, 3), 0.0, 1e-12);
  assert_int_equal(mill_cholesky(0, a, 1), 0);
  assert_close(mill_cholesky_logdet(0, a, 1), 0.0, 0.0);
}

MILL_TEST(values_not_finite_are_found)
{
  const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
  for (int i_bad = 0; i_bad < 3; ++i_bad)
    for (int n = 1; n <= N_MAX; n += 7)
      for (int row = 0; row < n; ++row)
        for (int col = 0; col <= row; ++col) {
          uint64_t seed = 1;
          double a[N_MAX * LDA];
          random_spd(n, 1.0, &seed, a);
          a[row * LDA + col] = bad[i_bad];
          /* Cholesky fails at the bad row: rows above do not use it */
          assert_int_equal(mill_cholesky(n, a, LDA), 1 + row);
        }
}

MILL_TEST_MAIN(NULL, NULL)
