/* SPDX-License-Identifier: BSD-3-Clause */
/* The import of the reference emulators, and its refusals. */
#include "tests/io/library/library_fixture.h"

#define IMPORT_FILES(set)                                                                          \
  mill_test_data(path_b, "emulator/" set "_desi_b.h5");                                            \
  mill_test_data(path_r, "emulator/" set "_desi_r.h5");                                            \
  mill_test_data(path_z, "emulator/" set "_desi_z.h5");                                            \
  const char *const path[] = {path_b, path_r, path_z}

static void check_imported(const mill_library *lib)
{
  assert_int_equal(lib->n_label, 4);
  static const char *const column[] = {"TEFF", "LOGG", "FEH", "ALPHAFE"};
  static const double min[] = {4000, 0.5, -3, 0}, max[] = {7500, 5, 0.5, 0.4};
  static const double scale[] = {60, 0.15, 0.1, 0.05};
  for (int i = 0; i < 4; i++) {
    assert_string_equal(lib->label[i].column, column[i]);
    assert_int_equal(lib->label[i].mapping, i == 0 ? MILL_MAP_LOG10 : MILL_MAP_LINEAR);
    assert_close(lib->label[i].min, min[i], 1e-9 * (1 + fabs(min[i])));
    assert_close(lib->label[i].max, max[i], 1e-9 * (1 + fabs(max[i])));
    assert_close(lib->label[i].scale, scale[i], 0);
  }
  assert_int_equal(lib->n_hull, 2);
  assert_int_equal(lib->hull[0].n_facet, 5);
  assert_int_equal(lib->hull[1].n_facet, 4);
  assert_int_equal(lib->hull[1].label[0], 2);
  assert_int_equal(lib->hull[1].label[1], 3);
  assert_int_equal(lib->n_arm, 3);
  static const int n_pix[] = {6215, 5303, 6449};
  static const double wave0_aa[] = {3488.364069952843, 5641.183038838024, 7395.331828300029};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(lib->arm[i].n_pix, n_pix[i]);
    assert_close(lib->arm[i].wave_aa[0], wave0_aa[i], 1e-11);
    assert_int_equal(lib->arm[i].emulator.n_layer, 5);
    assert_int_equal(lib->arm[i].emulator.log_flux, 1);
  }
  assert_string_equal(lib->arm[0].name, "b");
  assert_string_equal(lib->arm[1].name, "r");
  assert_string_equal(lib->arm[2].setup, "desi_z");
  assert_int_equal(lib->n_guess, 50);
  assert_int_equal(lib->n_guess_vsini, 2);
  assert_close(lib->guess_vsini_km_s[1], 100, 0);
  /* the guess fills the range of every label */
  for (int j = 0; j < 4; j++) {
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < 50; i++) {
      const double *label = lib->guess_label + 4 * i;
      assert_close(mill_library_hull_distance(lib, label), 0, 0);
      low = fmin(low, label[j]);
      high = fmax(high, label[j]);
    }
    const double range = max[j] - min[j];
    assert_true(low < min[j] + 0.1 * range && high > max[j] - 0.1 * range);
  }
}

MILL_TEST(import_matrix_set)
{
  IMPORT_FILES("nnrm");
  mill_library *lib = new_library(), *back = new_library();
  assert_ok(mill_library_import(path, 3, NAN, 50, lib));
  check_imported(lib);
  for (int i = 0; i < 3; i++)
    assert_close(lib->arm[i].template_sigma_aa, 0.5, 0);
  assert_non_null(strstr(lib->arm[0].sigma_origin, "synth1rm"));
  assert_string_equal(lib->arm[0].source, "nnrm_desi_b.h5");
  assert_ok(mill_library_write(in_folder("imported.h5"), lib, 1));
  assert_ok(mill_library_read(in_folder("imported.h5"), back));
  assert_same(lib, back);
  assert_string_equal(lib->hash, back->hash);
  free_library(lib);
  free_library(back);
}

MILL_TEST(import_instrument_set)
{
  IMPORT_FILES("nn");
  mill_library *lib = new_library();
  assert_ok(mill_library_import(path, 3, NAN, 50, lib));
  check_imported(lib);
  for (int i = 0; i < 3; i++)
    assert_close(lib->arm[i].template_sigma_aa, -1, 0);
  mill_library_clear(lib);
  /* what is given goes before what is assumed, and the names too */
  const char *const name[] = {"blue", "Red", "ir"};
  const double sigma[] = {0.25, 0.5, -1};
  assert_ok(mill_library_import_named(path, name, 3, sigma, 7, lib, NULL));
  for (int i = 0; i < 3; i++)
    assert_close(lib->arm[i].template_sigma_aa, sigma[i], 0);
  assert_string_equal(lib->arm[1].name, "red");
  assert_int_equal(lib->n_guess, 7);
  free_library(lib);
}

static void expect_import_refused(const char *const *path, int n_path, double sigma, int code,
                                  const char *text)
{
  mill_library *lib = new_library();
  mill_error_clear();
  const int err = mill_library_import(path, n_path, sigma, 50, lib);
  if (err != code)
    fail_msg("code %d (%s) instead of a refusal with \"%s\"", err, mill_error_message(), text);
  assert_says(text);
  assert_int_equal(lib->n_label, 0);
  free_library(lib);
}

static void copy_file(const char *from, const char *to)
{
  char block[65536];
  FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
  assert_non_null(in);
  assert_non_null(out);
  for (size_t n; (n = fread(block, 1, sizeof block, in)) > 0;)
    assert_int_equal(fwrite(block, 1, n, out), n);
  assert_int_equal(ferror(in), 0);
  fclose(in);
  assert_int_equal(fclose(out), 0);
}

/* A copy with delta added to one element of a dataset. */
static void copy_nudged(const char *from, const char *to, const char *dataset, size_t i_element,
                        double delta)
{
  copy_file(from, to);
  const hid_t file = open_file(to);
  nudge(file, dataset, i_element, delta);
  assert_true(H5Fclose(file) >= 0);
}

MILL_TEST(import_refusals)
{
  IMPORT_FILES("nnrm");
  mill_test_data(path_nn, "emulator/nn_desi_r.h5");
  const char *const twice[] = {path_b, path_b}, *const mixed[] = {path_b, path_nn};
  expect_import_refused(path, 0, NAN, MILL_ERR_USAGE, "0 emulator files");
  expect_import_refused(path, 3, INFINITY, MILL_ERR_USAGE, "finite");
  expect_import_refused(twice, 2, NAN, MILL_ERR_LIBRARY, "--arm-names");
  expect_import_refused(mixed, 2, NAN, MILL_ERR_LIBRARY, "--at-instrument-resolution");
  expect_refused(path_b, "starmill library import");

  static const struct {
    const char *dataset;
    size_t i_element;
    double delta;
    const char *text;
  } change[] = {{"check/spectra", 100, 0.01, "check/spectra, row 0, pixel 100"},
                {"check/outside", 2, 0.001, "check/outside, row 2"},
                {"layer1/weight", 7, 0.5, "check/spectra"},
                {"layer1/weight", 7, NAN, "not finite"},
                {"mapper/mean", 1, 0.1, "check/spectra"},
                {"mapper/std", 1, -5, "std above"},
                {"lam", 10, 0.001, "not uniform"},
                {"lam", 10, NAN, "expected a number above 0"},
                {"outside/points", 5, INFINITY, "outside/points, row 1"},
                {"outside/hull01_equations", 0, 0.5, "facet 0 of hull 0"},
                {"mapper/log_ids", 0, 9, "names label 9"}};
  const char *broken = in_folder("emulator.h5");
  for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
    copy_nudged(path_r, broken, change[i].dataset, change[i].i_element, change[i].delta);
    expect_import_refused(&broken, 1, NAN, MILL_ERR_LIBRARY, change[i].text);
    assert_says(broken);
  }
  static const char *const needed[] = {
      "lam", "layer2/weight", "mapper/std", "mapper/log_ids", "outside/points", "check/spectra"};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
    copy_file(path_r, broken);
    const hid_t file = open_file(broken);
    assert_true(H5Ldelete(file, needed[i], H5P_DEFAULT) >= 0);
    assert_true(H5Fclose(file) >= 0);
    expect_import_refused(&broken, 1, NAN, MILL_ERR_LIBRARY, needed[i]);
  }
  copy_file(path_r, broken);
  const hid_t file = open_file(broken);
  set_attr_int(file, "/", "log_step", 0);
  assert_true(H5Fclose(file) >= 0);
  expect_import_refused(&broken, 1, NAN, MILL_ERR_LIBRARY, "log_step is false");

  /* a hull that is consistent in itself, but other than that of the first arm; the check values
     lie inside both or are left as they are, so the agreement of arms must find it */
  const char *const pair[] = {path_b, broken};
  copy_nudged(path_r, broken, "outside/hull23_equations", 2, -1e-8);
  expect_import_refused(pair, 2, NAN, MILL_ERR_LIBRARY, "hulls are not those of");
  copy_nudged(path_r, broken, "mapper/mean", 1, 1e-8);
  expect_import_refused(pair, 2, NAN, MILL_ERR_LIBRARY, "label logg is mapped otherwise");
}

int main(void)
{
  /* HDF5's own complaints about the files made wrong here */
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  return MILL_RUN_TESTS(make_folder, remove_folder);
}
