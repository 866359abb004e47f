/* SPDX-License-Identifier: BSD-3-Clause */
/* mill_emulator_lanes, which makes the guess's templates, against references of fronts; the guess's
 * table by one thread and by two. */
#include "tests/mill_test.h"

#include "kernels/math/hull.h"
#include "src/pipeline/guess_table.h"
#include "tests/emulator_reference.h"
#include "tests/test_library.h"

enum { SEED = 515 };

static void compare(int kind)
{
  static mill_library lib;
  uint64_t random = SEED;
  memset(&lib, 0, sizeof lib);
  assert_ok(test_library_make(3, 3, 4, &lib));
  assert_ok(test_library_to(&lib, kind));
  for (int a = 0; a < lib.n_arm; a++) {
    const mill_emulator *net = &lib.arm[a].emulator;
    for (int trial = 0; trial < 20; trial++) {
      double x[3], label[3], flux[1024], h[64];
      for (int l = 0; l < lib.n_label; l++) {
        x[l] = 1.6 * test_library_random(&random);
        label[l] = test_label_unmap(&lib.label[l], x[l]);
      }
      assert_ok(test_emulator_eval(&lib, a, label, flux));
      if (kind == MILL_EMULATOR_GRID)
        ref_spline_grid(&net->grid, x, -1, h);
      else
        ref_rbf(&net->rbf, x, -1, h);
      for (int i = 0; i < lib.arm[a].n_pix; i++) {
        double y = (double)net->bias[0][i];
        for (int k = 0; k < net->n_in[0]; k++)
          y += (double)net->weight[0][i * net->n_in[0] + k] * h[k];
        /* labels go through pow and log10; radial functions cancel from some hundred */
        assert_close(flux[i] / exp(y), 1, 1e-9);
      }
    }
  }
  mill_library_clear(&lib);
  assert_null(lib.arm[0].emulator.grid.coef);
  assert_null(lib.arm[0].emulator.rbf.coef);
}

MILL_TEST(splines_and_radial_functions)
{
  compare(MILL_EMULATOR_GRID);
  compare(MILL_EMULATOR_RBF);
}

/** One thread makes templates without rotation, the other thread templates with rotation.  Both
 *  write neighbouring numbers of the table.  If a thread overwrites the other's numbers, some
 *  tables in a hundred are wrong. */
MILL_TEST(table_by_two_threads)
{
  static mill_library lib;
  static mill_guess_table one, two;
  const mill_fit_settings set = {
      .min_vel_km_s = -10, .max_vel_km_s = 10, .guess_vel_step_km_s = 10};
  assert_ok(test_library_make(3, 1, 4, &lib));
  lib.n_guess = MILL_LANE;
  assert_ok(mill_guess_table_create(&lib, &set, 1, &one));
  const mill_guess_arm *a = &one.arm[0], *b = &two.arm[0];
  for (int trial = 0; trial < 1000; trial++) {
    assert_ok(mill_guess_table_create(&lib, &set, 2, &two));
    assert_memory_equal(b->mean, a->mean,
                        (size_t)(2 * one.n_group * a->n_bin) * sizeof(mill_lanes));
    mill_guess_table_clear(&two);
  }
  mill_guess_table_clear(&one);
  mill_library_clear(&lib);
}

MILL_SEEDED_TEST_MAIN(SEED, NULL, NULL)
