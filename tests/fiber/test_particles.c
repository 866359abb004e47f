/* SPDX-License-Identifier: BSD-3-Clause */
/* The particle engine with fibers in the place of a block's threads, in random orders between
 * barriers.  Its results must agree with the CPU engine's: only the order of sums differs. */
#include "tests/kernels/particles/evolution.h"

#include "tests/fiber/fiber.h"

static void check(int form, int boundary)
{
  MILL_AT_END(evolution_end) evolution plain, fiber;
  evolution_init(&plain, 2, 5000, 2, 0.05);
  plain.s.n_grid[1] = 5;
  plain.s.n_node[0] = plain.s.n_node[1] = 24;
  plain.s.form = form;
  plain.s.along_axes = form;
  plain.s.boundary[1] = boundary;
  plain.s.low[1] = plain.s.grid_low[1] = -1;
  plain.s.high[1] = plain.s.grid_high[1] = 1;
  plain.problem[0].potential = MILL_HARMONIC;
  plain.problem[0].rate[0] = 1;
  fiber = plain;
  evolution_run(&plain);
  for (unsigned seed = 1; seed <= 3; seed++) {
    mill_fiber_configure(5, seed);
    evolution_run_by(&fiber, &mill_particle_ops_cpu_fiber);
    /* products may be fused in one of the two */
    for (int i = 0; i < 10000; i++)
      if (!isnan(plain.result[0].position[i]))
        assert_close(fiber.result[0].position[i], plain.result[0].position[i], 1e-6);
    for (int i = 0; i < plain.n_grid; i++)
      assert_close(fiber.result[0].density[i], plain.result[0].density[i],
                   1e-6 * (1 + plain.result[0].density[i]));
  }
}

MILL_TEST(orders_decide_nothing)
{
  check(MILL_DENSITY_EXACT, MILL_REFLECTING);
  check(MILL_DENSITY_BINNED, MILL_PERIODIC);
  check(MILL_DENSITY_EXACT, MILL_ABSORBING);
}

MILL_TEST_MAIN(NULL, NULL)
