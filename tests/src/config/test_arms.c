/* SPDX-License-Identifier: BSD-3-Clause */
/* Arms of a configuration that are parts of a library's only arm. */
#include "tests/src/config/config_fixture.h"

#include "tests/test_library.h"
#include "src/config/arms.h"

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

/* A Gaussian of sigma grid points at each point of flux [n]. */
static double smooth_at(int n, const double *flux, double sigma, int i)
{
  double sum = 0, norm = 0;
  for (int j = i - 40; j <= i + 40; j++) {
    const double w = exp(-0.5 * (j - i) * (j - i) / (sigma * sigma));
    sum += w * flux[j < 0 ? -j : (j < n ? j : 2 * (n - 1) - j)];
    norm += w;
  }
  return sum / norm;
}

/* Templates of random lines, sigma 37 km/s as 0.5 A is at 4060 A, on 24 km/s: what a broad
 * line-spread function sees of every second grid point is what it sees of all. */
MILL_TEST(a_coarser_grid_looks_the_same_through_a_broad_line_spread_function)
{
  enum { N = 800, MARGIN = 60 };
  const double line = 3.1, lsf = 5.0;
  for (int kind = MILL_EMULATOR_MLP; kind <= MILL_EMULATOR_RBF; kind += 2) {
    open_both("arms: [{name: b, sampling: 2}]", 1, kind);
    mill_arm *arm = &lib.arm[0];
    mill_emulator *e = &arm->emulator;
    const int last = e->n_layer - 1, n_in = e->n_in[last];
    double fine[N], coarse[N / 2], worst = 0;
    mill_free(e->weight[last]);
    mill_free(e->bias[last]);
    mill_free(arm->wave_aa);
    assert_int_equal(MILL_ALLOC(N * n_in, &e->weight[last]), MILL_OK);
    assert_int_equal(MILL_ALLOC(N, &e->bias[last]), MILL_OK);
    assert_int_equal(MILL_ALLOC(N, &arm->wave_aa), MILL_OK);
    for (int i = 0; i < N; i++) {
      double y = 0;
      for (int k = 0; k < 60; k++) {
        const double u = (i - (13.37 * k + 3 * sin(7.0 * k))) / line;
        y += log(1 - (0.3 + 0.25 * sin(3.0 * k)) * exp(-0.5 * u * u));
      }
      e->bias[last][i] = (float)(y + 1e-4 * (i % 2)); /* noise that steps of two would keep */
      for (int k = 0; k < n_in; k++)
        e->weight[last][i * n_in + k] = 0;
      arm->wave_aa[i] = exp(arm->ln_wave0 + i * arm->ln_step);
      fine[i] = exp((double)e->bias[last][i]);
    }
    arm->n_pix = e->n_out[last] = N;
    assert_int_equal(test_library_add_error(2, &lib), MILL_OK);
    const float error = arm->error.component[N + 700];
    assert_int_equal(mill_config_cut_arms(&config, &lib), MILL_OK);
    assert_int_equal(arm->n_pix, N / 2);
    assert_int_equal(arm->sampling, 2);
    assert_int_equal(mill_error_points(&arm->error, arm->n_pix), N - 1);
    assert_true(arm->error.component[N - 1 + 700] == error);
    assert_true(arm->wave_aa[100] == exp(arm->ln_wave0 + 200 * 8e-5) && arm->ln_step == 16e-5);
    for (int i = 0; i < N / 2; i++)
      coarse[i] = exp((double)e->bias[last][i]);
    for (int i = MARGIN / 2; i < (N - MARGIN) / 2; i++)
      worst =
          fmax(worst, fabs(smooth_at(N / 2, coarse, lsf / 2, i) - smooth_at(N, fine, lsf, 2 * i)));
    print_message("worst %g\n", worst);
    assert_true(worst < 3e-6);
    close_both();
  }
}

/* Which factor, for templates of 37 km/s on 24 km/s. */
MILL_TEST(the_line_spread_function_s_width_chooses_the_grid)
{
  static const struct {
    const char *arm, *lsf;
    double most_power;
    int sampling;
  } row[] = {{"{name: b, resolving_power: 1000}", "resolving_power", 0, 2},
             {"{name: b, fwhm: 4}", "resolving_power", 0, 2},
             {"{name: b, resolving_power: 1000, sampling: 1}", "resolving_power", 0, 1},
             {"{name: b, resolving_power: 2000}", "resolving_power", 0, 0}, /* too sharp */
             {"{name: b, resolving_power: 1000}", "auto", 0, 0},   /* files may have their own */
             {"{name: b, resolving_power: 1000}", "auto", 900, 2}, /* none of this format has */
             {"{name: b, resolving_power: 1000}", "auto", 3000, 0},
             {"b", "sigma", 900, 2},
             {"b", "matrix", 900, 0}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    char yaml[200];
    snprintf(yaml, sizeof yaml, "arms: [%s]\nguess_vel_step: 100\nlsf: %s", row[i].arm, row[i].lsf);
    open_both(yaml, 1, MILL_EMULATOR_MLP);
    config.arm[0].most_power = row[i].most_power;
    mill_config_choose_sampling(&lib, 1, &config);
    assert_int_equal(config.arm[0].sampling, row[i].sampling);
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
