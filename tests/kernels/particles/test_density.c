/* Kernel densities of the CPU (tests/kernels/particles/kernel_density.h). */
#include "tests/kernels/particles/kernel_density.h"

static void test_exact_form_is_the_sum_of_kernels(void **state)
{
  (void)state;
  check_exact(mill_particle_ops_cpu(NULL));
}

static void test_binned_form_keeps_its_bound(void **state)
{
  (void)state;
  check_binned(mill_particle_ops_cpu(NULL));
}

static void test_density_at_ends_has_images(void **state)
{
  (void)state;
  check_images(mill_particle_ops_cpu(NULL));
}

static void test_particles_in_one_place_have_no_density(void **state)
{
  (void)state;
  double density[N0], sample[N_SAMPLE];
  mill_particle_setup s = setup_of(1);
  for (int i = 0; i < N_SAMPLE; i++)
    sample[i] = 0.25;
  density_of(&s, mill_particle_ops_cpu(NULL), sample, density);
  for (int i = 0; i < N0; i++)
    assert_true(isnan(density[i]));
}

/* Every instruction set that runs here, to what their fused products leave. */
static void test_instruction_sets_agree(void **state)
{
  (void)state;
  static const char *const isa[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};
  for (int k = 0; k < 3; k++)
    if (mill_particle_ops_cpu(isa[k]))
      check_exact(mill_particle_ops_cpu(isa[k]));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_exact_form_is_the_sum_of_kernels),
      cmocka_unit_test(test_binned_form_keeps_its_bound),
      cmocka_unit_test(test_density_at_ends_has_images),
      cmocka_unit_test(test_particles_in_one_place_have_no_density),
      cmocka_unit_test(test_instruction_sets_agree),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
