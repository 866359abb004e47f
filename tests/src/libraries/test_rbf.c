/* SPDX-License-Identifier: BSD-3-Clause */
/* Smoothing splines of scattered points: against dense linear algebra written out, and each
 * leave-one-out residual against a fit without the point. */
#include "tests/mill_test.h"

#include <lapacke.h>

#include "kernels/base/error.h"
#include "kernels/math/hull.h"
#include "src/libraries/emulator.h"
#include "src/libraries/rbf.h"
#include "tests/rbf_reference.h"
#include "tests/test_library.h"

enum { SEED = 91, N = 40, N_AXIS = 3, N_OUT = 4, MAX_ROW = N + 84 };

typedef struct fixture {
  double x[N * N_AXIS], value[N * N_OUT], weight[N];
  mill_rbf_problem problem;
} fixture;

static const double length[N_AXIS] = {1, 0.7, 1.6};
static const double ladder[] = {1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 100};

static void make(fixture *f)
{
  uint64_t state = SEED;
  for (int i = 0; i < N; i++) {
    double *x = f->x + i * N_AXIS;
    for (int l = 0; l < N_AXIS; l++)
      x[l] = 1.5 * test_library_random(&state);
    for (int k = 0; k < N_OUT; k++)
      f->value[i * N_OUT + k] = sin(x[0] + k) + x[1] * x[2] + 0.1 * k * test_library_random(&state);
    f->weight[i] = 1 + 0.9 * test_library_random(&state);
  }
  f->problem = (mill_rbf_problem){.n_axis = N_AXIS,
                                  .n_point = N,
                                  .n_out = N_OUT,
                                  .degree = 2,
                                  .n_smooth = sizeof ladder / sizeof *ladder,
                                  .x = f->x,
                                  .length = length,
                                  .weight = f->weight,
                                  .value = f->value,
                                  .smooth = ladder};
}

/* Coefficients from the block equations of the definition, (K + s/W) a + P b = y, P' a = 0;
 * points whose `use` is 0 are left out.  out [n_used + n_term]. */
static void solve_dense(const fixture *f, const int *use, double smooth, int k, double *out)
{
  static double matrix[MAX_ROW * MAX_ROW];
  int power[84][MILL_MAX_GRID_AXIS], row[N], n = 0;
  lapack_int pivot[MAX_ROW];
  const int n_term = ref_monomials(N_AXIS, f->problem.degree, power);
  for (int i = 0; i < N; i++)
    if (use[i])
      row[n++] = i;
  const int size = n + n_term;
  memset(matrix, 0, sizeof matrix);
  memset(out, 0, (size_t)size * sizeof *out);
  for (int i = 0; i < n; i++) {
    const double *x = f->x + row[i] * N_AXIS;
    for (int j = 0; j < n; j++) {
      double r2 = 0;
      for (int l = 0; l < N_AXIS; l++)
        r2 += pow((x[l] - f->x[row[j] * N_AXIS + l]) / length[l], 2);
      matrix[i * size + j] = pow(r2, 1.5);
    }
    matrix[i * size + i] += smooth / f->weight[row[i]];
    for (int j = 0; j < n_term; j++) {
      double p = 1;
      for (int l = 0; l < N_AXIS; l++)
        p *= pow(x[l] / length[l], power[j][l]);
      matrix[i * size + n + j] = matrix[(n + j) * size + i] = p;
    }
    out[i] = f->value[row[i] * N_OUT + k];
  }
  assert_int_equal(LAPACKE_dgesv(LAPACK_ROW_MAJOR, size, 1, matrix, size, pivot, out, 1), 0);
}

/* The function of such coefficients at x. */
static double eval_dense(const fixture *f, const int *use, const double *coef, const double *x)
{
  int power[84][MILL_MAX_GRID_AXIS], at = 0;
  const int n_term = ref_monomials(N_AXIS, f->problem.degree, power);
  double sum = 0;
  for (int i = 0; i < N; i++) {
    double r2 = 0;
    for (int l = 0; l < N_AXIS; l++)
      r2 += pow((x[l] - f->x[i * N_AXIS + l]) / length[l], 2);
    sum += use[i] ? coef[at++] * pow(r2, 1.5) : 0;
  }
  for (int j = 0; j < n_term; j++) {
    double p = coef[at + j];
    for (int l = 0; l < N_AXIS; l++)
      p *= pow(x[l] / length[l], power[j][l]);
    sum += p;
  }
  return sum;
}

MILL_TEST(coefficients_solve_the_definition)
{
  fixture f;
  mill_rbf_fit *fit = NULL;
  double coef[MAX_ROW * N_OUT], expected[MAX_ROW];
  int all[N];
  make(&f);
  for (int i = 0; i < N; i++)
    all[i] = 1;
  for (int degree = 1; degree <= 3; degree++) {
    f.problem.degree = degree;
    assert_ok(mill_rbf_fit_create(&f.problem, &fit));
    assert_int_equal(mill_rbf_fit_degree(fit), degree);
    mill_rbf_fit_coef(fit, coef);
    for (int k = 0; k < N_OUT; k++) {
      solve_dense(&f, all, mill_rbf_fit_smooth(fit)[k], k, expected);
      double largest = 0;
      for (int i = 0; i < N + mill_rbf_fit_n_poly(fit); i++)
        largest = fmax(largest, fabs(expected[i]));
      for (int i = 0; i < N + mill_rbf_fit_n_poly(fit); i++)
        /* condition numbers of up to 1e6 for the smallest smoothing */
        assert_close(coef[i * N_OUT + k], expected[i], 1e-9 * largest);
      for (int i = 0; i < N; i++)
        assert_close(mill_rbf_fit_residual(fit, i, k),
                     mill_rbf_fit_smooth(fit)[k] * expected[i] / f.weight[i], 1e-9 * largest);
    }
    mill_rbf_fit_destroy(fit);
  }
}

/* The heart of the matter: closed-form leave-one-out is what a fit without the point gives. */
MILL_TEST(leaving_out_is_fitting_without)
{
  fixture f;
  mill_rbf_fit *fit = NULL;
  double expected[MAX_ROW];
  make(&f);
  assert_ok(mill_rbf_fit_create(&f.problem, &fit));
  for (int i_out = 0; i_out < N; i_out += 3) {
    const double *x = f.x + i_out * N_AXIS;
    int use[N];
    for (int i = 0; i < N; i++)
      use[i] = i != i_out;
    for (int k = 0; k < N_OUT; k++) {
      solve_dense(&f, use, mill_rbf_fit_smooth(fit)[k], k, expected);
      assert_close(mill_rbf_fit_left_out(fit)[i_out * N_OUT + k],
                   f.value[i_out * N_OUT + k] - eval_dense(&f, use, expected, x), 1e-8);
    }
  }
  mill_rbf_fit_destroy(fit);
}

MILL_TEST(smoothing_is_the_best_of_those_offered)
{
  fixture f;
  mill_rbf_fit *fit = NULL, *one = NULL;
  enum { N_SMOOTH = sizeof ladder / sizeof *ladder };
  double sum[N_SMOOTH][N_OUT] = {{0}}, error[N_SMOOTH][N_OUT] = {{0}};
  make(&f);
  for (int s = 0; s < N_SMOOTH; s++) {
    mill_rbf_problem single = f.problem;
    single.n_smooth = 1;
    single.smooth = ladder + s;
    assert_ok(mill_rbf_fit_create(&single, &one));
    for (int k = 0; k < N_OUT; k++) {
      for (int i = 0; i < N; i++)
        sum[s][k] += f.weight[i] * pow(mill_rbf_fit_left_out(one)[i * N_OUT + k], 2);
      for (int i = 0; i < N; i++)
        error[s][k] +=
            pow(f.weight[i] * pow(mill_rbf_fit_left_out(one)[i * N_OUT + k], 2) - sum[s][k] / N, 2);
      error[s][k] = sqrt(error[s][k]);
    }
    mill_rbf_fit_destroy(one);
  }
  int n_different = 0;
  for (int tolerance = 0; tolerance < 2; tolerance++) {
    f.problem.tolerance = tolerance;
    assert_ok(mill_rbf_fit_create(&f.problem, &fit));
    for (int k = 0; k < N_OUT; k++) {
      int best = 0;
      for (int s = 1; s < N_SMOOTH; s++)
        if (sum[s][k] < sum[best][k])
          best = s;
      const double limit = sum[best][k] + tolerance * error[best][k];
      for (int s = best + 1; s < N_SMOOTH; s++)
        if (sum[s][k] <= limit)
          best = s;
      assert_close(mill_rbf_fit_smooth(fit)[k], ladder[best], 0);
      n_different += ladder[best] != mill_rbf_fit_smooth(fit)[0];
    }
    mill_rbf_fit_destroy(fit);
  }
  assert_true(n_different > 0); /* noise differs from output to output: so does the choice */
}

/* Polynomials up to the degree come back exactly, whatever the smoothing; then the exported
 * function, its reference and that of double coefficients are the same. */
MILL_TEST(polynomials_are_reproduced)
{
  fixture f;
  mill_rbf_fit *fit = NULL;
  mill_rbf rbf;
  uint64_t random = 5;
  double coef[MAX_ROW * N_OUT], column[MAX_ROW], exact[N_OUT], narrow[N_OUT];
  int all[N];
  make(&f);
  for (int i = 0; i < N; i++)
    for (int k = 0; k < N_OUT; k++) {
      const double *x = f.x + i * N_AXIS;
      f.value[i * N_OUT + k] = 1 + k * x[0] - x[1] * x[2] + 0.5 * x[0] * x[0];
    }
  assert_ok(mill_rbf_fit_create(&f.problem, &fit));
  assert_ok(mill_rbf_fit_export(fit, &rbf));
  mill_rbf_fit_coef(fit, coef);
  for (int i = 0; i < N; i++)
    all[i] = 1;
  for (int trial = 0; trial < 30; trial++) {
    double x[N_AXIS];
    for (int l = 0; l < N_AXIS; l++)
      x[l] = 2 * test_library_random(&random);
    mill_rbf_eval(&rbf, x, narrow);
    ref_rbf(&rbf, x, -1, exact);
    for (int k = 0; k < N_OUT; k++) {
      for (int i = 0; i < N + mill_rbf_fit_n_poly(fit); i++)
        column[i] = coef[i * N_OUT + k];
      const double h = eval_dense(&f, all, column, x);
      assert_close(h, 1 + k * x[0] - x[1] * x[2] + 0.5 * x[0] * x[0], 1e-9);
      /* coefficients of order 1 rounded to float32 */
      assert_close(narrow[k], h, 1e-5);
      assert_close(narrow[k], exact[k], 1e-12);
    }
  }
  mill_rbf_clear(&rbf);
  mill_rbf_fit_destroy(fit);
}

/* Points on a lattice with two values of a label: squares of it say nothing new. */
MILL_TEST(degree_falls_to_what_the_points_determine)
{
  fixture f;
  mill_rbf_fit *fit = NULL;
  make(&f);
  for (int i = 0; i < N; i++)
    f.x[i * N_AXIS + 1] = i % 2;
  assert_ok(mill_rbf_fit_create(&f.problem, &fit));
  assert_int_equal(mill_rbf_fit_degree(fit), 1);
  assert_int_equal(mill_rbf_fit_n_poly(fit), 4);
  mill_rbf_fit_destroy(fit);
  f.problem.n_point = 8; /* too few for ten terms */
  assert_ok(mill_rbf_fit_create(&f.problem, &fit));
  assert_int_equal(mill_rbf_fit_degree(fit), 1);
  mill_rbf_fit_destroy(fit);
  f.problem.n_point = N;
  for (int i = 0; i < N; i++)
    f.x[i * N_AXIS + 2] = 2 * f.x[i * N_AXIS] - 1;
  assert_fails(mill_rbf_fit_create(&f.problem, &fit), MILL_ERR_RANGE, "plane");
  assert_null(fit);
}

MILL_TEST(points_may_coincide)
{
  fixture f;
  mill_rbf_fit *fit = NULL;
  make(&f);
  for (int i = 0; i < N; i += 2)
    memcpy(f.x + (i + 1) * N_AXIS, f.x + i * N_AXIS, N_AXIS * sizeof *f.x);
  assert_ok(mill_rbf_fit_create(&f.problem, &fit));
  for (int i = 0; i < N * N_OUT; i++)
    assert_true(isfinite(mill_rbf_fit_left_out(fit)[i]));
  mill_rbf_fit_destroy(fit);
}

static void refuse(const mill_rbf_problem *problem, const char *text)
{
  mill_rbf_fit *fit = NULL;
  assert_fails(mill_rbf_fit_create(problem, &fit), MILL_ERR_RANGE, text);
  assert_null(fit);
}

MILL_TEST(wrong_problems_are_refused)
{
  fixture f;
  double smooth = 0, bad[N_AXIS] = {1, 0, 1};
  make(&f);
#define REFUSED(field, wrong, text)                                                                \
  do {                                                                                             \
    mill_rbf_problem p = f.problem;                                                                \
    p.field = wrong;                                                                               \
    refuse(&p, text);                                                                              \
  } while (0)
  REFUSED(n_axis, 0, "labels: expected 1 to 6, got 0");
  REFUSED(n_axis, MILL_MAX_GRID_AXIS + 1, "labels: expected 1 to 6, got 7");
  REFUSED(n_out, 0, "components: expected 1 to 1024, got 0");
  REFUSED(degree, 0, "degree of the polynomial: expected 1 to 3, got 0");
  REFUSED(degree, 4, "polynomial: expected 1 to 3, got 4");
  REFUSED(n_point, 5, "points of radial functions: expected 6 to 65536, got 5");
  REFUSED(n_smooth, 0, "no smoothing");
  REFUSED(smooth, &smooth, "smoothing: expected a number above 0, got 0");
  REFUSED(length, bad, "length along a label: expected a number above 0, got 0");
  REFUSED(tolerance, -1, "tolerance");
#undef REFUSED
  f.x[4] = NAN;
  refuse(&f.problem, "label of point 1");
  make(&f);
  f.value[N_OUT] = INFINITY;
  refuse(&f.problem, "value of point 1");
  make(&f);
  f.weight[7] = 0;
  refuse(&f.problem, "weight of point 7");
}

/* mill_emulator_eval, which makes the templates of the initial guess and mock stars. */
MILL_TEST(emulator_takes_radial_functions)
{
  mill_library lib = {0};
  uint64_t random = SEED;
  assert_ok(test_library_make(3, 3, 4, &lib));
  assert_ok(test_library_to_rbf(&lib));
  double flux[1024], h[64];
  for (int a = 0; a < 3; a++) {
    const mill_emulator *net = &lib.arm[a].emulator;
    assert_int_equal(net->rbf.degree, 1 + a);
    for (int trial = 0; trial < 20; trial++) {
      double x[3], label[3];
      for (int l = 0; l < 3; l++) {
        x[l] = 1.6 * test_library_random(&random);
        label[l] = mill_label_unmap(&lib.label[l], x[l]);
      }
      assert_ok(mill_emulator_eval(&lib, a, label, flux));
      ref_rbf(&net->rbf, x, -1, h);
      for (int p = 0; p < lib.arm[a].n_pix; p++) {
        double y = net->bias[0][p];
        for (int k = 0; k < net->rbf.n_out; k++)
          y += (double)net->weight[0][p * net->rbf.n_out + k] * h[k];
        /* labels go through pow and log10; sums that cancel from some hundred */
        assert_close(flux[p], exp(y), 1e-9 * exp(y));
      }
    }
  }
  mill_library_clear(&lib);
  assert_null(lib.arm[0].emulator.rbf.coef);
}

int main(void)
{
  printf("seed %d\n", SEED);
  return MILL_RUN_TESTS(NULL, NULL);
}
