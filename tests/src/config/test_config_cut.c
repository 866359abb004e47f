/* SPDX-License-Identifier: BSD-3-Clause */
/* Arms of a configuration that are parts of a library's only arm. */
#include "tests/src/config/config_fixture.h"

#include "tests/test_library.h"

static mill_config config;
static mill_library lib;

static void open_both(const char *yaml, int n_arm, int kind)
{
  mill_config_default(&config);
  must_read(&config, yaml);
  memset(&lib, 0, sizeof lib);
  assert_int_equal(test_library_make(3, n_arm, 5, &lib), MILL_OK);
  if (kind != MILL_EMULATOR_MLP)
    assert_int_equal(test_library_to(&lib, kind), MILL_OK);
}

static void close_both(void)
{
  mill_library_clear(&lib);
  mill_config_clear(&config);
}

/* Arm b has 4000 to 4130 A.  A part has the whole arm's pixels bit for bit, with what is known of
 * their errors, all that its range needs at any velocity and rotation, and not all of them. */
MILL_TEST(a_part_has_the_pixels_of_the_whole)
{
  static const int kind[] = {MILL_EMULATOR_MLP, MILL_EMULATOR_GRID, MILL_EMULATOR_RBF,
                             MILL_EMULATOR_GRID /* a linear one */};
  static const double label[3] = {5400, 3.1, -0.7};
  for (int k = 0; k < 4; k++) {
    /* named in the other order than by wavelength */
    open_both("arms: [{name: red, min: 4065}, {name: blue, max: 4065}]\n"
              "min_vel: -100\nmax_vel: 100\nmax_vsini: 50",
              1, kind[k]);
    if (k == 3)
      test_library_to_linear(&lib.arm[0].emulator.grid);
    const int n_whole = lib.arm[0].n_pix;
    double whole[2048], part[2048], wave[2048];
    float fraction[2048], component[2][2048];
    assert_true(n_whole <= 2048);
    assert_int_equal(test_emulator_eval(&lib, 0, label, whole), MILL_OK);
    memcpy(wave, lib.arm[0].wave_aa, (size_t)n_whole * sizeof *wave);
    assert_int_equal(test_library_add_error(2, &lib), MILL_OK);
    memcpy(fraction, lib.arm[0].error.fraction, (size_t)n_whole * sizeof *fraction);
    for (int c = 0; c < 2; c++)
      memcpy(component[c], lib.arm[0].error.component + c * n_whole,
             (size_t)n_whole * sizeof component[c][0]);
    assert_int_equal(mill_config_cut_arms(&config, &lib), MILL_OK);
    assert_int_equal(lib.n_arm, 2);
    assert_string_equal(lib.arm[0].name, "blue");
    assert_string_equal(lib.arm[1].name, "red");
    assert_int_equal(mill_config_bind(&config, &lib), MILL_OK);
    for (int a = 0; a < 2; a++) {
      const mill_arm *arm = &lib.arm[a];
      const int first = a == 0 ? 0 : n_whole - arm->n_pix;
      assert_true(arm->n_pix < n_whole);
      assert_close(exp(arm->ln_wave0), wave[first], 1e-9);
      assert_memory_equal(arm->wave_aa, wave + first, (size_t)arm->n_pix * sizeof *wave);
      assert_int_equal(test_emulator_eval(&lib, a, label, part), MILL_OK);
      assert_memory_equal(part, whole + first, (size_t)arm->n_pix * sizeof *part);
      assert_int_equal(arm->emulator.grid.linear, k == 3);
      const size_t n_byte = (size_t)arm->n_pix * sizeof *fraction;
      assert_int_equal(arm->error.n_component, 2);
      assert_memory_equal(arm->error.fraction, fraction + first, n_byte);
      for (int c = 0; c < 2; c++)
        assert_memory_equal(arm->error.component + c * arm->n_pix, component[c] + first, n_byte);
    }
    /* 150 km/s beyond the cut on either side, of 24 km/s pixels */
    assert_true(lib.arm[0].wave_aa[lib.arm[0].n_pix - 1] > 4065 * (1 + 150 / MILL_C_KM_S));
    assert_true(lib.arm[1].wave_aa[0] < 4065 * (1 - 150 / MILL_C_KM_S));
    close_both();
  }
}

MILL_TEST(an_arm_with_a_range_is_cut_and_the_others_stay)
{
  /* a range of which too few grid points are left cuts nothing */
  static const char *const yaml[] = {"arms: []", "arms: [b]", "arms: [{name: b, max: 3000}]",
                                     "arms: [{name: b, max: 4065}]"};
  for (int i = 0; i < 4; i++)
    for (int n_arm = 1; n_arm < 3; n_arm++) {
      open_both(yaml[i], n_arm, MILL_EMULATOR_MLP);
      const int n_pix = lib.arm[0].n_pix;
      const double ln_wave0 = lib.arm[0].ln_wave0;
      assert_int_equal(mill_config_cut_arms(&config, &lib), MILL_OK);
      assert_int_equal(lib.n_arm, n_arm);
      assert_string_equal(lib.arm[0].name, "b");
      assert_true(lib.arm[0].ln_wave0 == ln_wave0);
      if (i < 3)
        assert_int_equal(lib.arm[0].n_pix, n_pix);
      else
        assert_true(lib.arm[0].n_pix < n_pix && lib.arm[0].wave_aa[lib.arm[0].n_pix - 1] > 4065);
      close_both();
    }
}

static void refuse(const char *yaml, int n_arm, const char *word)
{
  open_both(yaml, n_arm, MILL_EMULATOR_MLP);
  int err = mill_config_cut_arms(&config, &lib);
  if (err == MILL_OK)
    err = mill_config_bind(&config, &lib);
  assert_fails(err, MILL_ERR_CONFIG, word);
  close_both();
}

MILL_TEST(what_is_no_part_is_refused)
{
  refuse("arms: [blue]", 1, "no arm blue; the library has only b");
  refuse("arms: [{name: blue, channel: z}]", 1, "write {name: b, channel: z}, or {name: blue, min");
  refuse("arms: [{name: blue, max: 4065}, b]", 1, "a range by min or max");
  refuse("arms: [{name: blue, max: 4065}, red]", 1, "a range by min or max");
  refuse("arms: [{name: blue, max: 4065}]", 2, "no arm blue; the library has b, r");
  refuse("arms: [{name: red, min: 8000, max: 9000}]", 1, "red, from 8000 to 9000 A, is not within");
}

MILL_TEST_MAIN(begin, remove_folder)
