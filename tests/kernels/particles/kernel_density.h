/** Kernel densities by an engine against SciPy's gaussian_kde, which sums every particle at every
 *  point: both are float64, so what differs is rounding, and 1e-9 of a value allows for the
 * products along a line of the grid.  The binned form keeps the bound that it states. */
#ifndef KERNEL_DENSITY_H
#define KERNEL_DENSITY_H

#include "tests/mill_test.h"

#include <string.h>

#include "kernels/base/error.h"
#include "kernels/particles/particles.h"
#include "tests/reference/particles.h"

enum { N_SAMPLE = 120, N0 = 25, N1 = 9, N2 = 11, N_ALL = N0 * N1 * N2 };

static const double low[] = {-4, -3, -3}, high[] = {4, 2, 5};
static const int n_grid[] = {N0, N1, N2};
static const int at_start[] = {0};

static inline mill_particle_setup setup_of(int n_dim)
{
  mill_particle_setup s;
  memset(&s, 0, sizeof s);
  s.n_dim = n_dim;
  s.n_particle = N_SAMPLE;
  s.step = 1;
  s.n_record = 1;
  s.record = at_start;
  s.n_thread = 1;
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
static inline double density_of(const mill_particle_setup *s, const mill_particle_ops *ops,
                                const double *sample, double *density)
{
  double moment[MILL_PARTICLE_MOMENTS], bound;
  mill_particle_problem problem = {.id = 1, .start = MILL_START_SAMPLES, .sample = sample};
  mill_particle_result result = {.density = density, .bound = &bound, .moment = moment};
  mill_particle_transfers transfers;
  assert_non_null(ops);
  assert_int_equal(mill_particle_check_setup(s), MILL_OK);
  assert_int_equal(mill_particle_check_problem(s, &problem), MILL_OK);
  assert_int_equal(ops->evolve(s, 1, &problem, &result, &transfers), MILL_OK);
  assert_int_equal(result.bad_step, -1);
  return bound;
}

static inline void first_axes(int n_dim, double *sample)
{
  for (int i = 0; i < N_SAMPLE; i++)
    for (int a = 0; a < n_dim; a++)
      sample[i * n_dim + a] = ref_sample[3 * i + a];
}

static const struct {
  int n_dim, bandwidth;
  const double *value;
} kde[] = {{1, MILL_SCOTT, ref_scott_1},         {1, MILL_SILVERMAN, ref_silverman_1},
           {1, MILL_WIDTH_GIVEN, ref_narrow_1},  {2, MILL_SCOTT, ref_scott_2},
           {2, MILL_SILVERMAN, ref_silverman_2}, {3, MILL_SCOTT, ref_scott_3}};

enum { N_KDE = sizeof kde / sizeof *kde };

static inline double deviation(int n, int stride, const double *x)
{
  double mean = 0, square = 0;
  for (int i = 0; i < n; i++)
    mean += x[i * stride] / n;
  for (int i = 0; i < n; i++)
    square += pow(x[i * stride] - mean, 2);
  return sqrt(square / (n - 1));
}

static inline void check_exact(const mill_particle_ops *ops)
{
  static double density[N_ALL], sample[3 * N_SAMPLE];
  for (int k = 0; k < N_KDE; k++) {
    mill_particle_setup s = setup_of(kde[k].n_dim);
    s.bandwidth = kde[k].bandwidth;
    s.width[0] = 0.03 * deviation(N_SAMPLE, 3, ref_sample);
    first_axes(s.n_dim, sample);
    assert_true(density_of(&s, ops, sample, density) == 0);
    for (int i = 0, n = s.n_grid[0] * s.n_grid[1] * s.n_grid[2]; i < n; i++)
      assert_close(density[i], kde[k].value[i], 1e-9 * kde[k].value[i]);
  }
}

/* A kernel along the axes is the covariances' own where these are taken out of the samples. */
static inline void check_binned(const mill_particle_ops *ops)
{
  static double exact[N_ALL], binned[N_ALL], sample[3 * N_SAMPLE];
  for (int n_dim = 1; n_dim <= 3; n_dim++) {
    double worst = 0, peak = 0, bound = 0;
    mill_particle_setup s = setup_of(n_dim);
    s.along_axes = 1;
    first_axes(n_dim, sample);
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

/* A density at a mirror: twice that of particles and their images without one.  Across a period:
 * one kernel with its neighbours. */
static inline void check_images(const mill_particle_ops *ops)
{
  enum { N = 3 };
  static const double sample[N] = {0.05, 0.4, 0.9};
  for (int form = 0; form < 2; form++)
    for (int periodic = 0; periodic < 2; periodic++) {
      double density[N0];
      mill_particle_setup s = setup_of(1);
      s.n_particle = N;
      s.boundary[0] = periodic ? MILL_PERIODIC : MILL_REFLECTING;
      s.high[0] = s.grid_high[0] = 1;
      s.low[0] = s.grid_low[0] = 0;
      s.bandwidth = MILL_WIDTH_GIVEN;
      s.width[0] = 0.1;
      s.form = form;
      const double bound = density_of(&s, ops, sample, density);
      for (int g = 0; g < N0; g++) {
        double sum = 0;
        for (int i = 0; i < N; i++)
          for (int k = -2; k <= 2; k++) {
            const double x = (double)g / (N0 - 1);
            sum += exp(-50 * pow(x - sample[i] - (periodic ? 1 : 2) * k, 2));
            if (!periodic)
              sum += exp(-50 * pow(x + sample[i] - 2 * k, 2));
          }
        sum /= N * 0.1 * sqrt(2 * M_PI);
        assert_close(density[g], sum, 1e-9 * sum + bound);
      }
    }
}

#endif
