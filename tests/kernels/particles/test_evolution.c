/* SPDX-License-Identifier: BSD-3-Clause */
/* Evolutions against solutions of the equations, with a fixed seed.  Tolerances are the error of
 * the scheme plus 5 standard errors of n particles:
 *
 *    mean: sqrt(var / n)
 *    variance of normal particles: var sqrt(2 / n)
 *    kernel density f of width h: sqrt(f / (2 sqrt(pi) h n)) */
#include "tests/kernels/particles/evolution.h"

#define PI 3.14159265358979323846

enum { N = 40000 };

static double normal(double x, double mean, double var)
{
  return exp(-0.5 * (x - mean) * (x - mean) / var) / sqrt(2 * PI * var);
}

/* Compare the first problem's density with the true one, smoothed by a kernel of width h. */
static void check_density(const evolution *e, double h, double (*truth)(double x, double h))
{
  for (int i = 0; i < e->n_grid; i++) {
    const double x =
        e->s.grid_low[0] + (e->s.grid_high[0] - e->s.grid_low[0]) * i / (e->n_grid - 1);
    const double f = truth(x, h);
    /* 1e-5: h from the particles' variance, and float noise, where f is small */
    assert_close(e->result[0].density[i], f, 5 * sqrt(f / (2 * sqrt(PI) * h * N)) + 1e-5);
  }
}

MILL_TEST(axes_are_independent)
{
  MILL_AT_END(evolution_end) evolution e;
  evolution_init(&e, 3, N, 4, 0.125);
  e.s.n_grid[0] = 2;
  evolution_run(&e);
  const double *m = evolution_moment(&e, LAST);
  for (int a = 0, k = 4; a < 3; a++)
    for (int b = a; b < 3; b++, k++)
      assert_close(m[k], a == b, 5 * sqrt((a == b ? 2.0 : 1.0) / N));
}

enum { OU_STEPS = 40 };
static const double ou_rate = 2, ou_centre = 0.5, ou_from = -1, ou_dt = 0.025, ou_d = 0.7;

static double ou_mean(double t)
{
  return ou_centre + (ou_from - ou_centre) * exp(-ou_rate * t);
}

static double ou_variance(double t)
{
  return ou_d / ou_rate * (1 - exp(-2 * ou_rate * t));
}

static double ou_density(double x, double h)
{
  return normal(x, ou_mean(OU_STEPS * ou_dt), ou_variance(OU_STEPS * ou_dt) + h * h);
}

/* A step of Heun's scheme multiplies the mean by 1 - k dt + (k dt)^2 / 2, in place of exp(-k dt).
 * At the end mean and variance are off by 1e-4.  Euler's scheme is off by 2.5 %, so its results
 * are compared with Euler's own recurrence. */
MILL_TEST(ornstein_uhlenbeck)
{
  const double keep = 1 - ou_rate * ou_dt;
  for (int scheme = MILL_EULER; scheme <= MILL_HEUN; scheme++) {
    MILL_AT_END(evolution_end) evolution e;
    const double off = scheme == MILL_HEUN ? 1e-3 : 1e-12;
    double mean = ou_from, var = 0;
    evolution_init(&e, 1, N, OU_STEPS, ou_dt);
    e.s.scheme = scheme;
    e.problem[0].potential = MILL_HARMONIC;
    e.problem[0].rate[0] = ou_rate;
    e.problem[0].centre[0] = ou_centre;
    e.problem[0].start_centre[0] = ou_from;
    e.problem[0].diffusion = ou_d;
    evolution_run(&e);
    for (int step = 0; step <= OU_STEPS; step++) {
      const double *m = evolution_moment(&e, step);
      if (scheme == MILL_HEUN) {
        mean = ou_mean(step * ou_dt);
        var = ou_variance(step * ou_dt);
      }
      assert_close(m[1], mean, 5 * sqrt(var / N) + off);
      assert_close(m[4], var, 5 * var * sqrt(2.0 / N) + off);
      mean = ou_centre + keep * (mean - ou_centre);
      var = keep * keep * var + 2 * ou_d * ou_dt;
    }
    if (scheme == MILL_HEUN)
      check_density(&e, sqrt(ou_variance(1)) * pow(N, -0.2), ou_density); /* Scott's rule */
    else
      assert_true(fabs(mean - ou_mean((OU_STEPS + 1) * ou_dt)) > 5e-3);
  }
}

static const double box_from = 0.3, box_time = 0.06;

static void box_init(evolution *e, int boundary)
{
  evolution_init(e, 1, N, 60, box_time / 60);
  e->s.boundary[0] = boundary;
  e->s.low[0] = e->s.grid_low[0] = 0;
  e->s.high[0] = e->s.grid_high[0] = 1;
  e->s.bandwidth = MILL_WIDTH_GIVEN;
  e->s.width[0] = 0.03;
  e->problem[0].start_centre[0] = box_from;
}

/* A kernel of width h with its images acts as diffusion in the box for a time h^2 / (2 D). */
static double reflected(double x, double h)
{
  double sum = 1;
  for (int k = 1; k < 60; k++)
    sum += 2 * cos(k * PI * box_from) * cos(k * PI * x) *
           exp(-k * k * PI * PI * (box_time + h * h / 2));
  return sum;
}

static double wrapped(double x, double h)
{
  double sum = 1;
  for (int k = 1; k < 60; k++)
    sum +=
        2 * cos(2 * k * PI * (x - box_from)) * exp(-4 * k * k * PI * PI * (box_time + h * h / 2));
  return sum;
}

/* Without forces, reflecting and wrapping of paths are exact.  Runs take 60 steps or one.  In the
 * single step some particles go further than the box is long. */
MILL_TEST(reflecting_and_periodic_boxes)
{
  double mean = 0.5;
  for (int k = 1; k < 60; k += 2)
    mean -= 4 / (k * k * PI * PI) * cos(k * PI * box_from) * exp(-k * k * PI * PI * box_time);
  for (int i_case = 0; i_case < 4; i_case++) {
    MILL_AT_END(evolution_end) evolution e;
    const int periodic = i_case & 1;
    box_init(&e, periodic ? MILL_PERIODIC : MILL_REFLECTING);
    if (i_case & 2) {
      e.s.n_step = e.record[0] = 1;
      e.s.step = box_time;
    }
    evolution_run(&e);
    if (!periodic)
      assert_close(evolution_moment(&e, LAST)[1], mean, 5 * sqrt(1.0 / 12 / N));
    check_density(&e, 0.03, periodic ? wrapped : reflected);
  }
}

/* The share of particles left equals the solution's Fourier series to 5 standard errors.  If
 * crossings within a step were missed, the share would be 4 % too large, 9 standard errors. */
MILL_TEST(absorbing_box)
{
  MILL_AT_END(evolution_end) evolution e;
  double left = 0, n_gone = 0;
  box_init(&e, MILL_ABSORBING);
  evolution_run(&e);
  for (int k = 1; k < 60; k += 2)
    left += 4 / (k * PI) * sin(k * PI * box_from) * exp(-k * k * PI * PI * box_time);
  const double mass = evolution_moment(&e, LAST)[0];
  assert_close(mass, left, 5 * sqrt(left * (1 - left) / N));
  for (int i = 0; i < N; i++)
    n_gone += isnan(e.result[0].position[i]);
  assert_close(n_gone, N * (1 - mass), 0.5);
  for (int step = 1; step <= e.s.n_step; step++)
    assert_true(evolution_moment(&e, step)[0] <= evolution_moment(&e, step - 1)[0]);
  /* the density is of the particles left; the kernel spreads 2 % of it beyond the ends */
  double sum = 0;
  for (int i = 0; i < e.n_grid; i++)
    sum += e.result[0].density[i] / (e.n_grid - 1);
  assert_close(sum, 0.98, 0.03);
}

static double well(double x, double h)
{
  double sum = 0, norm = 0;
  for (int i = -4000; i <= 4000; i++) {
    const double y = i * 1e-3, weight = exp(-(y * y - 1) * (y * y - 1));
    norm += weight;
    sum += weight * normal(x, y, h * h);
  }
  return sum / norm;
}

MILL_TEST(double_well_comes_to_rest)
{
  MILL_AT_END(evolution_end) evolution e;
  evolution_init(&e, 1, N, 400, 0.01);
  e.s.scheme = MILL_HEUN;
  e.s.bandwidth = MILL_WIDTH_GIVEN;
  e.s.width[0] = 0.05;
  e.problem[0].potential = MILL_DOUBLE_WELL;
  e.problem[0].barrier[0] = e.problem[0].half[0] = 1;
  e.problem[0].start_spread[0] = 0.4;
  evolution_run(&e);
  check_density(&e, 0.05, well);
}

MILL_TEST(bits_depend_neither_on_threads_nor_on_other_problems)
{
  for (int form = 0; form < 2; form++) {
    MILL_AT_END(evolution_end) evolution all, one;
    evolution_init(&all, 2, 9001, 3, 0.1);
    all.s.n_grid[1] = 7;
    all.s.n_node[0] = all.s.n_node[1] = 40;
    all.s.form = form;
    all.s.along_axes = form;
    for (int i = 0; i < MAX_PROBLEM; i++) {
      all.problem[i].potential = MILL_HARMONIC;
      all.problem[i].rate[1] = 1 + i;
      all.problem[i].start_spread[0] = 0.1;
    }
    one = all;
    all.n_problem = MAX_PROBLEM;
    all.s.n_thread = 3;
    evolution_run(&all);
    for (int i = 0; i < MAX_PROBLEM; i++) {
      one.problem[0] = all.problem[i];
      evolution_run(&one);
      assert_same_bits(&all, i, &one, 0);
    }
    one.problem[0].id = 99;
    evolution_run(&one);
    assert_memory_not_equal(all.result[2].position, one.result[0].position, 9001 * sizeof(double));
  }
}

MILL_TEST(samples_are_where_they_were_put)
{
  static const double sample[] = {0.5, 1, -0.25, 2, 1.5, -1};
  MILL_AT_END(evolution_end) evolution e;
  evolution_init(&e, 2, 3, 0, 0.1);
  e.s.n_record = 0;
  e.problem[0].start = MILL_START_SAMPLES;
  e.s.sample = sample;
  evolution_run(&e);
  assert_memory_equal(e.result[0].position, sample, sizeof sample);
  const double *m = evolution_moment(&e, 0);
  assert_close(m[1], 1.75 / 3, 1e-15);
  assert_close(m[2], 2.0 / 3, 1e-15);
  /* numpy.cov */
  assert_close(m[4], 0.7708333333333334, 1e-14);
  assert_close(m[5], -1.3333333333333333, 1e-14);
  assert_close(m[7], 2.3333333333333335, 1e-14);
}

MILL_TEST_MAIN(NULL, NULL)
