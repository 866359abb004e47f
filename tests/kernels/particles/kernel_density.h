/* SPDX-License-Identifier: BSD-3-Clause */
/** Kernel densities of an engine are compared with sums over all particles at every point, in
 *  float64.  Rounding may change a value by a relative 1e-9.  Binned densities may be off by
 *  at most the bound that the engine returns. */
#pragma once

#include "tests/mill_test.h"

#include "kernels/particles/particles.h"

enum { N_SAMPLE = 120, N0 = 25, N1 = 9, N2 = 11, N_ALL = N0 * N1 * N2 };

static const double low[] = {-4, -3, -3}, high[] = {4, 2, 5};
static const int n_grid[] = {N0, N1, N2};
static const int at_start[] = {0};

static inline mill_particle_setup setup_of(int n_dim)
{
  mill_particle_setup s = {.n_dim = n_dim,
                           .n_particle = N_SAMPLE,
                           .step = 1,
                           .n_record = 1,
                           .record = at_start,
                           .n_thread = 1};
  for (int a = 0; a < MILL_PARTICLE_DIM; a++) {
    s.n_grid[a] = s.n_node[a] = 1;
    s.grid_low[a] = low[a];
    s.grid_high[a] = high[a];
    if (a < n_dim) {
      s.n_grid[a] = n_grid[a];
      s.n_node[a] = n_dim == 3 ? 64 : 400;
    }
  }
  return s;
}

/* The density of the samples [n_particle][n_dim]; its bound. */
static inline double density_of(mill_particle_setup *s, const mill_particle_ops *ops,
                                const double *sample, double *density)
{
  double moment[MILL_PARTICLE_MOMENTS], bound;
  mill_particle_problem problem = {.id = 1, .start = MILL_START_SAMPLES};
  s->sample = sample;
  mill_particle_result result = {.density = density, .bound = &bound, .moment = moment};
  assert_non_null(ops);
  assert_int_equal(mill_particle_check_setup(s), MILL_OK);
  assert_int_equal(mill_particle_check_problem(s, &problem), MILL_OK);
  assert_int_equal(ops->evolve(s, 1, &problem, &result), MILL_OK);
  assert_int_equal(result.bad_step, -1);
  return bound;
}

/* Correlated normal numbers [N_SAMPLE][n_dim]: the first n_dim of three axes. */
static inline void make_samples(int n_dim, double *sample)
{
  uint64_t state = 20261123;
  for (int i = 0; i < N_SAMPLE; i++) {
    double z[3];
    for (int a = 0; a < 3; a++) {
      z[a] = -6;
      for (int k = 0; k < 12; k++) { /* twelve uniform numbers have the variance 1 */
        state = state * 6364136223846793005u + 1442695040888963407u;
        z[a] += (double)(state >> 11) * 0x1p-53;
      }
    }
    const double x[] = {z[0] + 0.3, 0.4 * z[0] + 0.7 * z[1] - 0.5,
                        -0.2 * z[0] + 0.3 * z[1] + 1.3 * z[2] + 1};
    memcpy(sample + i * n_dim, x, (size_t)n_dim * sizeof *x);
  }
}

/* The lower triangular root of the kernel's covariance.  This is the samples' covariance (with n -
 * 1) times n^(-2 / (d + 4)) (Scott) or (n (d + 2) / 4)^(-2 / (d + 4)) (Silverman). */
static inline void kernel_root(const mill_particle_setup *s, const double *sample,
                               double root[3][3])
{
  const int n_dim = s->n_dim;
  const double base = s->bandwidth == MILL_SCOTT ? N_SAMPLE : N_SAMPLE * (n_dim + 2) / 4.0;
  const double factor = pow(base, -2.0 / (n_dim + 4));
  double mean[3] = {0};
  for (int i = 0; i < N_SAMPLE; i++)
    for (int a = 0; a < n_dim; a++)
      mean[a] += sample[i * n_dim + a] / N_SAMPLE;
  for (int a = 0; a < n_dim; a++)
    for (int e = 0; e <= a; e++) {
      double cov = 0;
      for (int i = 0; i < N_SAMPLE; i++)
        cov += (sample[i * n_dim + a] - mean[a]) * (sample[i * n_dim + e] - mean[e]);
      cov *= factor / (N_SAMPLE - 1);
      if (s->bandwidth == MILL_WIDTH_GIVEN)
        cov = a == e ? s->width[a] * s->width[a] : 0;
      for (int k = 0; k < e; k++)
        cov -= root[a][k] * root[e][k];
      root[a][e] = a == e ? sqrt(cov) : cov / root[e][e];
    }
}

static inline double sum_of_kernels(const mill_particle_setup *s, const double *sample,
                                    double root[3][3], int point)
{
  double at[3], sum = 0, norm = N_SAMPLE;
  for (int a = s->n_dim - 1; a >= 0; point /= s->n_grid[a], a--) {
    at[a] = low[a] + point % s->n_grid[a] * (high[a] - low[a]) / (s->n_grid[a] - 1);
    norm *= root[a][a] * sqrt(2 * M_PI);
  }
  for (int i = 0; i < N_SAMPLE; i++) {
    double u[3], square = 0;
    for (int a = 0; a < s->n_dim; a++) {
      u[a] = at[a] - sample[i * s->n_dim + a];
      for (int e = 0; e < a; e++)
        u[a] -= root[a][e] * u[e];
      u[a] /= root[a][a];
      square += u[a] * u[a];
    }
    sum += exp(-0.5 * square);
  }
  return sum / norm;
}

static inline void check_exact(const mill_particle_ops *ops)
{
  static double density[N_ALL], sample[3 * N_SAMPLE];
  for (int n_dim = 1; n_dim <= 3; n_dim++)
    for (int bandwidth = MILL_SCOTT; bandwidth <= MILL_WIDTH_GIVEN; bandwidth++) {
      double root[3][3];
      mill_particle_setup s = setup_of(n_dim);
      s.bandwidth = bandwidth;
      s.width[0] = 0.03; /* narrower than a tenth of the grid's step */
      s.width[1] = s.width[2] = 0.5;
      make_samples(n_dim, sample);
      kernel_root(&s, sample, root);
      assert_true(density_of(&s, ops, sample, density) == 0);
      for (int i = 0, n = s.n_grid[0] * s.n_grid[1] * s.n_grid[2]; i < n; i++) {
        const double sum = sum_of_kernels(&s, sample, root, i);
        assert_close(density[i], sum, 1e-9 * sum);
      }
    }
}

/* Binned and exact densities differ by no more than the bound that the engine returns. */
static inline void check_binned(const mill_particle_ops *ops)
{
  static double exact[N_ALL], binned[N_ALL], sample[3 * N_SAMPLE];
  for (int n_dim = 1; n_dim <= 3; n_dim++) {
    double worst = 0, peak = 0, bound = 0;
    mill_particle_setup s = setup_of(n_dim);
    s.along_axes = 1;
    make_samples(n_dim, sample);
    density_of(&s, ops, sample, exact);
    s.form = MILL_DENSITY_BINNED;
    bound = density_of(&s, ops, sample, binned);
    for (int i = 0, n = s.n_grid[0] * s.n_grid[1] * s.n_grid[2]; i < n; i++) {
      worst = fmax(worst, fabs(binned[i] - exact[i]));
      peak = fmax(peak, exact[i]);
    }
    assert_true(worst <= bound);
    assert_true(worst > 1e-4 * bound); /* else it would say nothing */
    assert_true(bound < (n_dim == 3 ? 0.3 : 1e-4) * peak);
  }
}

/* With mirrors at its ends an axis has the density of the particles and all their mirror images.  A
 * periodic axis has the density of the particles and their copies in all periods.  A kernel as wide
 * as the axis has images up to 10 lengths away.  Particles at an end lie between two nodes, where
 * the binned form is worst, and their mirror images double its error. */
static inline void check_images(const mill_particle_ops *ops)
{
  enum { N = 3, FAR = 10 };
  static const double samples[2][N] = {{0.05, 0.4, 0.9}, {0, 0, 0}};
  for (int form = 0; form < 2; form++)
    for (int i_case = 0; i_case < 8; i_case++) {
      const int periodic = i_case & 1;
      const double width = i_case & 2 ? 1 : 0.1, *sample = samples[i_case / 4];
      double density[N0];
      mill_particle_setup s = setup_of(1);
      s.n_particle = N;
      s.boundary[0] = periodic ? MILL_PERIODIC : MILL_REFLECTING;
      s.high[0] = s.grid_high[0] = 1;
      s.low[0] = s.grid_low[0] = 0;
      s.bandwidth = MILL_WIDTH_GIVEN;
      s.width[0] = width;
      s.form = form;
      s.n_node[0] = 131;
      const double bound = density_of(&s, ops, sample, density);
      for (int g = 0; g < N0; g++) {
        double sum = 0;
        for (int i = 0; i < N; i++)
          for (int k = -FAR; k <= FAR; k++) {
            const double x = (double)g / (N0 - 1);
            sum += exp(-0.5 * pow((x - sample[i] - (periodic ? 1 : 2) * k) / width, 2));
            if (!periodic)
              sum += exp(-0.5 * pow((x + sample[i] - 2 * k) / width, 2));
          }
        sum /= N * width * sqrt(2 * M_PI);
        /* images beyond 9 widths may be left out: each is below 3e-18 of a peak of 0.4 / width */
        assert_close(density[g], sum, 1e-9 * sum + bound + 1e-17 / width);
      }
    }
}
