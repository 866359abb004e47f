/* SPDX-License-Identifier: BSD-3-Clause */
/* Gridded potentials: slopes, and evolutions in them.  Kernel densities of the CPU. */

#include "kernels/particles/potential.h"
#include "tests/kernels/particles/evolution.h"
#include "tests/kernels/particles/kernel_density.h"

static mill_particle_field field_of(int n_dim, int n_time, const int *n_node)
{
  mill_particle_field f = {.n_dim = n_dim, .n_time = n_time};
  for (int a = 0; a < MILL_PARTICLE_DIM; a++)
    f.n_node[a] = a < n_dim ? n_node[a] : 1;
  return f;
}

static double *fit(mill_particle_field *f, const double *value)
{
  double *coef = calloc(mill_particle_n_coef(f), sizeof *coef);
  assert_non_null(coef);
  assert_ok(mill_particle_field_fit(f, value, coef));
  f->coef = coef;
  return coef;
}

static void slopes(const mill_particle_field *f, double time, int n, const double *at, int stride,
                   double out[][MILL_CHUNK])
{
  const mill_particle_problem p = {.potential = MILL_GRIDDED};
  const mill_particle_setup s = {.n_dim = f->n_dim, .field = *f};
  double x[MILL_PARTICLE_DIM][MILL_CHUNK];
  for (int i = 0; i < n; i++)
    for (int a = 0; a < f->n_dim; a++)
      x[a][i] = at[i * stride + a];
  mill_particle_slope(&s, &p, time, n, x, out);
}

/* A cubic polynomial of each axis, and its derivative. */
static double cubic(int a, double x, int derivative)
{
  static const double c[3][4] = {{1, -2, 0.5, 0.3}, {0.2, 1, -1, 0.4}, {2, 0.1, 0.7, -0.6}};
  return derivative ? c[a][1] + x * (2 * c[a][2] + x * 3 * c[a][3])
                    : c[a][0] + x * (c[a][1] + x * (c[a][2] + x * c[a][3]));
}

/* Not-a-knot splines of a product of cubic polynomials are that product. */
MILL_TEST(slopes_of_cubics_are_exact)
{
  static const int n_node[] = {7, 5, 6};
  static const double least[] = {-2, 0, -1}, most[] = {2, 3, 1};
  enum { N_AT = 12 };
  for (int n_dim = 1; n_dim <= 3; n_dim++) {
    double value[7 * 5 * 6], at[3 * N_AT], slope[MILL_PARTICLE_DIM][MILL_CHUNK];
    mill_particle_field f = field_of(n_dim, 1, n_node);
    for (int a = 0; a < n_dim; a++) {
      f.low[a] = least[a];
      f.spacing[a] = (most[a] - least[a]) / (n_node[a] - 1);
      for (int i = 0; i < N_AT; i++)
        at[i * n_dim + a] = least[a] + (most[a] - least[a]) * fmod(0.37 * i + 0.21 * a, 1);
    }
    for (int i = 0; i < f.n_node[0] * f.n_node[1] * f.n_node[2]; i++) {
      value[i] = 1;
      for (int a = n_dim - 1, rest = i; a >= 0; rest /= n_node[a], a--)
        value[i] *= cubic(a, least[a] + rest % n_node[a] * f.spacing[a], 0);
    }
    MILL_OWNED double *coef = fit(&f, value);
    slopes(&f, 0, N_AT, at, n_dim, slope);
    for (int i = 0; i < N_AT; i++)
      for (int a = 0; a < n_dim; a++) {
        double exact = 1;
        for (int e = 0; e < n_dim; e++)
          exact *= cubic(e, at[i * n_dim + e], e == a);
        assert_close(slope[a][i], exact, 1e-10 * (1 + fabs(exact)));
      }
  }
}

/* Slopes s of a periodic cubic spline through f = sin(k x) on a grid of step h, from its condition
 * s(x - h) + 4 s(x) + s(x + h) = 3 (f(x + h) - f(x - h)) / h.
 *  At a node: cos(k x) 3 sin(k h) / (h (2 + cos(k h))).
 *  Half way between nodes: 3 (f(x + h) - f(x)) / (2 h) - (s(x) + s(x + h)) / 4. */
MILL_TEST(slopes_of_a_periodic_spline)
{
  enum { N = 7 };
  const double h = 0.4, k = 2 * M_PI / (N * h);
  const double gain = 3 * sin(k * h) / (h * (2 + cos(k * h)));
  double value[N], at[2 * N], slope[MILL_PARTICLE_DIM][MILL_CHUNK];
  mill_particle_field f = field_of(1, 1, (int[]){N});
  f.low[0] = -1;
  f.spacing[0] = h;
  f.periodic[0] = 1;
  for (int i = 0; i < N; i++) {
    value[i] = sin(k * i * h);
    at[2 * i] = -1 + (i - 2 * N) * h; /* two periods away */
    at[2 * i + 1] = -1 + (i + 0.5) * h;
  }
  MILL_OWNED double *coef = fit(&f, value);
  slopes(&f, 0, 2 * N, at, 1, slope);
  for (int i = 0; i < N; i++) {
    const double s = gain * cos(k * i * h), next = gain * cos(k * (i + 1) * h);
    assert_close(slope[0][2 * i], s, 1e-12);
    assert_close(slope[0][2 * i + 1], 1.5 * (value[(i + 1) % N] - value[i]) / h - (s + next) / 4,
                 1e-12);
  }
}

/* Beyond its grid a field has the slope of the edge.  Between two times the slope is linear. */
MILL_TEST(edges_and_times)
{
  static const double time[] = {1, 3};
  double value[18], slope[MILL_PARTICLE_DIM][MILL_CHUNK];
  static const double at[] = {-9, -1, 1, 9, NAN};
  mill_particle_field f = field_of(1, 2, (int[]){9});
  f.low[0] = -1;
  f.spacing[0] = 0.25;
  f.time = time;
  for (int i = 0; i < 9; i++) {
    const double x = -1 + 0.25 * i;
    value[i] = x * x * x;
    value[9 + i] = 5 * x;
  }
  MILL_OWNED double *coef = fit(&f, value);
  static const struct {
    double time, edge;
  } known[] = {{0, 3}, {1, 3}, {1.5, 3.5}, {3, 5}, {7, 5}};
  for (int k = 0; k < 5; k++) {
    slopes(&f, known[k].time, 5, at, 1, slope);
    for (int i = 0; i < 4; i++)
      assert_close(slope[0][i], known[k].edge, 1e-12);
  }
}

/* Splines reproduce a parabola, so particles move as in the potential MILL_HARMONIC. */
MILL_TEST(parabola_is_the_named_one)
{
  static double value[33 * 33];
  MILL_AT_END(evolution_end) evolution named, gridded;
  evolution_init(&named, 2, 5000, 20, 0.05);
  named.problem[0].potential = MILL_HARMONIC;
  named.problem[0].rate[0] = 2;
  named.problem[0].rate[1] = 1;
  named.problem[0].centre[0] = 0.5;
  named.s.scheme = MILL_HEUN;
  gridded = named;
  mill_particle_field f = field_of(2, 1, (int[]){33, 33});
  for (int a = 0; a < 2; a++) {
    f.low[a] = -8;
    f.spacing[a] = 0.5;
  }
  for (int i = 0; i < 33; i++)
    for (int j = 0; j < 33; j++)
      value[33 * i + j] = pow(-8.5 + 0.5 * i, 2) + 0.5 * pow(-8 + 0.5 * j, 2);
  MILL_OWNED double *coef = fit(&f, value);
  gridded.problem[0].potential = MILL_GRIDDED;
  gridded.s.field = f;
  evolution_run(&named);
  evolution_run(&gridded);
  for (int i = 0; i < 10000; i++)
    assert_close(gridded.result[0].position[i], named.result[0].position[i], 1e-11);
  /* and as steep for the check of the step */
  gridded.s.step = 0.6;
  assert_fails(mill_particle_check_problem(&gridded.s, &gridded.problem[0]), MILL_ERR_CONFIG,
               "give a step of 0.5 or less");
}

MILL_TEST(values_that_are_no_numbers_are_named)
{
  double value[20] = {0}, coef[42];
  mill_particle_field f = field_of(2, 1, (int[]){4, 5});
  f.spacing[0] = f.spacing[1] = 1;
  value[13] = NAN;
  assert_fails(mill_particle_field_fit(&f, value, coef), MILL_ERR_CONFIG,
               "value 13 of the potential");
  value[13] = 0;
  f.n_node[0] = 3;
  assert_fails(mill_particle_field_fit(&f, value, coef), MILL_ERR_CONFIG, "3 points along axis 1");
}

/* --- kernel densities (tests/kernels/particles/kernel_density.h) --- */

/* Check every instruction set that runs here; fused products change the last digits. */
MILL_TEST(exact_form_is_the_sum_of_kernels)
{
  static const char *const isa[] = {NULL, "x86-64-v2", "x86-64-v3", "x86-64-v4"};
  for (int k = 0; k < 4; k++)
    if (mill_particle_ops_cpu(isa[k]))
      check_exact(mill_particle_ops_cpu(isa[k]));
}

MILL_TEST(binned_form_keeps_its_bound_and_ends_have_images)
{
  check_binned(mill_particle_ops_cpu(NULL));
  check_images(mill_particle_ops_cpu(NULL));
}

/* Absorbing ends leave one of 49 particles.  Its count needs rint: (1 / 49) * 49 < 1 in float64. */
MILL_TEST(one_particle_left_has_its_kernel)
{
  double density[N0], sample[49];
  mill_particle_setup s = setup_of(1);
  s.n_particle = 49;
  s.boundary[0] = MILL_ABSORBING;
  s.low[0] = -1;
  s.high[0] = 1;
  s.bandwidth = MILL_WIDTH_GIVEN;
  s.width[0] = 0.5;
  for (int i = 0; i < 49; i++)
    sample[i] = i == 20 ? 0.25 : 2;
  density_of(&s, mill_particle_ops_cpu(NULL), sample, density);
  for (int i = 0; i < N0; i++) {
    const double u = (low[0] + i * (high[0] - low[0]) / (N0 - 1) - 0.25) / 0.5;
    const double kernel = exp(-0.5 * u * u) / (0.5 * sqrt(2 * M_PI));
    assert_close(density[i], kernel, 1e-9 * kernel); /* rounding, as above */
  }
}

MILL_TEST(particles_in_one_place_have_no_density)
{
  double density[N0], sample[N_SAMPLE];
  mill_particle_setup s = setup_of(1);
  for (int i = 0; i < N_SAMPLE; i++)
    sample[i] = 0.25;
  density_of(&s, mill_particle_ops_cpu(NULL), sample, density);
  for (int i = 0; i < N0; i++)
    assert_true(isnan(density[i]));
}

MILL_TEST_MAIN(NULL, NULL)
