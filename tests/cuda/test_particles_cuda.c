/* SPDX-License-Identifier: BSD-3-Clause */
/* Particles on a GPU are compared with particles on the CPU, densities with sums of kernels.  Every
 * run gives the same bits.
 *
 * GPU and CPU fuse multiplications and additions differently, also in the Gaussian random numbers,
 * which are float32.  Positions differ by 1e-7 of the random steps; the tolerance is 1e-6. */
#include "tests/cuda/short_evolutions.h"
#include "tests/kernels/particles/kernel_density.h"

#include "kernels/gpu.h"
#ifdef MILL_CUDA_SIMULATOR
enum { N_FEW = 300 };
#else
enum { N_FEW = 5001 };
#endif

static const mill_particle_ops *tested;

MILL_TEST(bits_do_not_depend_on_other_problems)
{
  for (int form = 0; form < 2; form++) {
    MILL_AT_END(evolution_end) evolution all, one;
    problems_of(&all, form);
    one = all;
    evolution_run_by(&all, tested);
    one.n_problem = 1;
    one.problem[0] = all.problem[2];
    evolution_run_by(&one, tested);
    assert_same_bits(&one, 0, &all, 2);
  }
}

/* Three problems of a setup by both engines. */
static void compare(evolution *cpu)
{
  MILL_AT_END(evolution_end) evolution gpu;
  cpu->n_problem = MAX_PROBLEM;
  gpu = *cpu;
  evolution_run(cpu);
  evolution_run_by(&gpu, tested);
  for (int i = 0; i < cpu->n_problem; i++) {
    const mill_particle_result *g = &gpu.result[i], *c = &cpu->result[i];
    double peak = 0;
    assert_int_equal(g->bad_step, c->bad_step);
    for (int k = 0; k < cpu->s.n_particle * cpu->s.n_dim; k++) {
      assert_int_equal(isnan(g->position[k]), isnan(c->position[k]));
      if (!isnan(c->position[k]))
        assert_close(g->position[k], c->position[k], 1e-6);
    }
    for (int k = 0; k < (cpu->s.n_step + 1) * MILL_PARTICLE_MOMENTS; k++)
      assert_close(g->moment[k], c->moment[k], 1e-6);
    for (int k = 0; k < cpu->n_grid; k++)
      peak = fmax(peak, c->density[k]);
    for (int k = 0; k < cpu->n_grid; k++) /* slopes of kernels are some peaks to their width */
      assert_close(g->density[k], c->density[k], 1e-5 * peak);
    assert_close(g->bound[0], c->bound[0], 1e-3 * c->bound[0]);
  }
  evolution_end(cpu);
}

MILL_TEST(named_potentials_and_boundaries_are_the_cpu_s)
{
  for (int boundary = MILL_OPEN; boundary <= MILL_ABSORBING; boundary++)
    for (int n_dim = 1; n_dim <= 3; n_dim++) {
      const int last = n_dim - 1;
      evolution e;
      evolution_init(&e, n_dim, N_FEW, 3, 0.05);
      e.s.scheme = (boundary + n_dim) % 2 ? MILL_HEUN : MILL_EULER;
      e.s.form = (boundary + n_dim) % 2 ? MILL_DENSITY_BINNED : MILL_DENSITY_EXACT;
      e.s.along_axes = e.s.form;
      e.s.boundary[last] = boundary;
      e.s.low[last] = e.s.grid_low[last] = -1;
      e.s.high[last] = e.s.grid_high[last] = 1;
      e.s.n_grid[0] = n_dim == 1 ? 41 : 7;
      for (int a = 0; a < n_dim; a++)
        e.s.n_node[a] = n_dim == 1 ? 512 : n_dim == 2 ? 80 : 24; /* 6400 nodes: not by a block */
      for (int a = 1; a < n_dim; a++)
        e.s.n_grid[a] = a == 1 ? 5 : 18;
      for (int i = 0; i < MAX_PROBLEM; i++) {
        mill_particle_problem *p = &e.problem[i];
        p->potential = i % 3; /* free, harmonic, double well */
        p->diffusion = 0.5 + 0.25 * i;
        for (int a = 0; a < n_dim; a++) {
          p->rate[a] = 1 + a;
          p->barrier[a] = p->half[a] = 1;
          p->start_centre[a] = 0.1 * (a - i);
          p->start_spread[a] = 0.2;
        }
        p->start = i == 1 ? MILL_START_UNIFORM : MILL_START_NORMAL;
      }
      compare(&e);
    }
}

MILL_TEST(gridded_potentials_and_samples_are_the_cpu_s)
{
  enum { N_TIME = 2, N_NODE = 9, N_COEF = N_TIME * (N_NODE + 2) * (N_NODE + 2) };
  static double value[N_TIME * N_NODE * N_NODE], coef[N_COEF], sample[2 * N_FEW];
  static const double time[N_TIME] = {0, 0.2};
  evolution e;
  evolution_init(&e, 2, N_FEW, 3, 0.05);
  e.s.n_grid[0] = 9;
  e.s.n_grid[1] = 6;
  e.s.field = (mill_particle_field){.n_dim = 2,
                                    .n_time = N_TIME,
                                    .n_node = {N_NODE, N_NODE, 1},
                                    .low = {-2, -2},
                                    .spacing = {0.5, 0.5},
                                    .time = time,
                                    .coef = coef};
  for (int i = 0; i < N_TIME * N_NODE * N_NODE; i++)
    value[i] = 0.2 * sin(0.7 * i) + 0.1 * (i / (N_NODE * N_NODE));
  assert_int_equal(mill_particle_field_fit(&e.s.field, value, coef), MILL_OK);
  for (int i = 0; i < 2 * N_FEW; i++)
    sample[i] = sin(1.3 * i);
  e.s.sample = sample;
  for (int i = 0; i < MAX_PROBLEM; i++) { /* the last one has neither */
    e.problem[i].potential = i < 2 ? MILL_GRIDDED : MILL_FREE;
    e.problem[i].start = i < 2 ? MILL_START_SAMPLES : MILL_START_NORMAL;
    e.problem[i].start_spread[0] = e.problem[i].start_spread[1] = 0.5;
  }
  compare(&e);
}

MILL_TEST(a_step_that_leads_nowhere_is_told)
{
  MILL_AT_END(evolution_end) evolution e;
  evolution_init(&e, 1, N_FEW, 3, 0.001);
  e.n_problem = 2;
  e.s.boundary[0] = MILL_REFLECTING;
  e.s.low[0] = -4;
  e.s.high[0] = 4;
  e.problem[0].diffusion = 1e6;
  e.problem[0].potential = MILL_HARMONIC;
  evolution_run_by(&e, tested);
  assert_int_equal(e.result[0].bad_step, 1);
  assert_true(isnan(e.result[0].density[3]));
  assert_true(isnan(e.result[0].bound[0]));
  assert_true(isnan(evolution_moment(&e, LAST)[1]));
  assert_int_equal(e.result[1].bad_step, -1);
  assert_true(e.result[1].density[20] > 0);
}

MILL_TEST(densities_are_sums_of_kernels)
{
  check_exact(tested);
  check_binned(tested);
  check_images(tested);
}

int main(void)
{
  int err = MILL_OK;
  tested = mill_particle_ops_cuda(&err);
  if (!tested) {
    printf("SKIPPED: %s\n", mill_error_message());
    return 77;
  }
  return MILL_RUN_TESTS(NULL, NULL);
}
