/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernel densities of the CPU (tests/kernels/particles/kernel_density.h). */
#include "tests/kernels/particles/kernel_density.h"

/* By every instruction set that runs here, to what their fused products leave. */
MILL_TEST(exact_form_is_the_sum_of_kernels)
{
  static const char *const isa[] = {NULL, "x86-64-v2", "x86-64-v3", "x86-64-v4"};
  for (int k = 0; k < 4; k++)
    if (mill_particle_ops_cpu(isa[k]))
      check_exact(mill_particle_ops_cpu(isa[k]));
}

MILL_TEST(binned_form_keeps_its_bound)
{
  check_binned(mill_particle_ops_cpu(NULL));
}

MILL_TEST(density_at_ends_has_images)
{
  check_images(mill_particle_ops_cpu(NULL));
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
