/* SPDX-License-Identifier: BSD-3-Clause */
/* The library file: reading, digest, and what a library may not be. */
#include "tests/io/library/library_fixture.h"

#include "tests/reference/library_digest.h"
#include "kernels/base/memory.h"

/* ---- round trip ----------------------------------------------------------------------------- */

static void round_trip(const mill_library *lib)
{
  mill_library *back = new_library();
  char hash[65];
  const char *path = in_folder("round.h5");
  assert_ok(test_library_write(path, lib));
  assert_ok(mill_library_read(path, back));
  assert_same(lib, back);
  assert_string_equal(back->path, path);
  mill_library_digest(lib, hash);
  assert_string_equal(hash, back->hash);
  free_library(back);
}

/* Every kind of emulator, alone and with networks; the last kind is a linear grid. */
MILL_TEST(library_round_trip)
{
  for (int kind = MILL_EMULATOR_MLP; kind <= MILL_EMULATOR_RBF + 1; kind++)
    for (int n_label = 3; n_label <= 4; n_label++)
      for (int n_arm = 1; n_arm <= 3; n_arm++) {
        const int linear = kind > MILL_EMULATOR_RBF;
        mill_library *lib = new_library();
        make_kind(n_label, n_arm, linear ? MILL_EMULATOR_GRID : kind, lib);
        lib->arm[0].template_sigma_aa = -1;
        snprintf(lib->arm[0].source, sizeof lib->arm[0].source, "net.h5");
        snprintf(lib->arm[0].revision, sizeof lib->arm[0].revision, "r1");
        if (n_arm == 2)
          lib->arm[0].emulator.log_flux = 0;
        if (linear)
          test_library_to_linear(&lib->arm[0].emulator.grid);
        round_trip(lib);
        free_library(lib);
      }
}

/* Arms with and without. */
MILL_TEST(model_error_round_trip)
{
  for (int n_component = 0; n_component <= MILL_MAX_COMPONENT; n_component += 8) {
    mill_library *lib = new_library();
    make(4, 3, lib);
    assert_ok(test_library_add_error(n_component, lib));
    mill_model_error_clear(&lib->arm[1].error);
    round_trip(lib);
    free_library(lib);
  }
}

/* ---- digest --------------------------------------------------------------------------------- */

static void copy_to(const void *from, size_t n, void **to)
{
  mill_free(*to);
  assert_ok(mill_alloc_bytes(n, 1, to));
  memcpy(*to, from, n);
}
#define COPY(to, type, ...)                                                                        \
  copy_to((const type[]){__VA_ARGS__}, sizeof((const type[]){__VA_ARGS__}), (void **)&(to))

static void expect_digest(const mill_library *lib, const char *expected)
{
  char hex[65];
  mill_library_digest(lib, hex);
  assert_string_equal(hex, expected);
}

/* A library of exact numbers, whose digests tests/reference/make_library_digest.py has from
   the description in docs/use/formats.md. */
MILL_TEST(library_digest_is_as_documented)
{
  mill_library *lib = new_library();
  lib->n_label = lib->n_hull = lib->n_arm = lib->n_guess = lib->n_guess_vsini = 1;
  lib->label[0] =
      (mill_label){"teff", "TEFF", "K", MILL_MAP_LOG10, 3.75, 0.125, 4000, 7000, 62.5, 2.5, 0, 0};
  lib->hull[0].n_label = 1;
  lib->hull[0].n_facet = 2;
  COPY(lib->hull[0].facet, double, 1, -1.5, -1, -1.25);
  mill_arm *arm = &lib->arm[0];
  mill_emulator *net = &arm->emulator;
  snprintf(arm->name, sizeof arm->name, "b");
  snprintf(arm->setup, sizeof arm->setup, "test_b");
  arm->n_pix = 2;
  arm->ln_wave0 = 8.25;
  arm->ln_step = 0.0009765625;
  arm->template_sigma_aa = 0.5;
  COPY(arm->wave_aa, double, 3827.625, 3831.375);
  net->log_flux = net->n_layer = net->n_in[0] = 1;
  net->n_out[0] = 2;
  COPY(net->weight[0], float, 0.5f, -0.25f, 2, 3);
  COPY(net->bias[0], float, 0.125f, -8);
  COPY(lib->guess_label, double, 5500);
  lib->guess_vsini_km_s[0] = 100;
  expect_digest(lib, REF_DIGEST_MLP);

  net->kind = MILL_EMULATOR_GRID;
  net->n_in[0] = 2;
  net->grid = (mill_spline_grid){.n_axis = 1, .n_node = {5}, .n_out = 2};
  COPY(net->grid.knot[0], double, -1, -1, -1, -1, 0.25, 1, 1, 1, 1);
  COPY(net->grid.coef, float, -2, -1.25f, -0.5f, 0.25f, 1, 1.75f, 2.5f, 3.25f, 4, 4.75f);
  expect_digest(lib, REF_DIGEST_GRID);
  net->grid.linear = 1;
  COPY(net->grid.knot[0], double, -1, -1, -0.5, 0, 0.25, 1, 1);
  expect_digest(lib, REF_DIGEST_LINEAR);

  net->kind = MILL_EMULATOR_RBF;
  net->rbf =
      (mill_rbf){.n_axis = 1, .n_center = 3, .degree = 1, .n_poly = 2, .n_out = 2, .length = {1.5}};
  COPY(net->rbf.center, double, -1, 0.25, 1);
  COPY(net->rbf.coef, float, -2, -1.25f, -0.5f, 0.25f, 1, 1.75f, 2.5f, 3.25f, 4, 4.75f);
  expect_digest(lib, REF_DIGEST_RBF);
  free_library(lib);
}

/* Each of these numbers changes the digest. */
static void sees(const mill_library *lib, size_t n_wide, double *const *wide, size_t n_narrow,
                 float *const *narrow)
{
  char first[65], now[65];
  mill_library_digest(lib, first);
  for (size_t i = 0; i < n_wide; i++) {
    const double before = *wide[i];
    *wide[i] = nextafter(before, 1e9);
    mill_library_digest(lib, now);
    assert_string_not_equal(now, first);
    *wide[i] = before;
  }
  for (size_t i = 0; i < n_narrow; i++) {
    const float before = *narrow[i];
    *narrow[i] = nextafterf(before, 1e9f);
    mill_library_digest(lib, now);
    assert_string_not_equal(now, first);
    *narrow[i] = before;
  }
  expect_digest(lib, first);
}
#define SEES(lib, wide, narrow)                                                                    \
  sees(lib, sizeof wide / sizeof *wide, wide, sizeof narrow / sizeof *narrow, narrow)

/* Names and provenance do not change the digest, everything that a fit sees does. */
MILL_TEST(library_digest)
{
  mill_library *lib = new_library();
  char first[65];
  make(4, 2, lib);
  assert_ok(test_library_add_error(2, lib));
  mill_library_digest(lib, first);
  snprintf(lib->path, sizeof lib->path, "elsewhere.h5");
  snprintf(lib->name, sizeof lib->name, "other");
  snprintf(lib->arm[1].source, sizeof lib->arm[1].source, "other");
  expect_digest(lib, first);
  double *const wide[] = {&lib->label[3].mean,
                          &lib->label[0].std,
                          &lib->label[1].min,
                          &lib->label[1].max,
                          &lib->label[2].scale,
                          &lib->label[2].floor,
                          &lib->hull[1].facet[2],
                          &lib->arm[1].ln_wave0,
                          &lib->arm[0].ln_step,
                          &lib->arm[0].wave_aa[9],
                          &lib->arm[1].template_sigma_aa,
                          &lib->guess_label[11],
                          &lib->guess_vsini_km_s[1],
                          &lib->arm[1].error.sigma[0],
                          &lib->arm[1].error.correlation};
  float *const narrow[] = {&lib->arm[0].emulator.weight[2][100], &lib->arm[1].emulator.bias[1][3],
                           &lib->arm[1].error.fraction[3], &lib->arm[1].error.component[5]};
  SEES(lib, wide, narrow);
  free_library(lib);
}

MILL_TEST(digest_of_grids_and_radial_functions)
{
  mill_library *lib = new_library();
  make_kind(4, 2, MILL_EMULATOR_GRID, lib);
  mill_spline_grid *grid = &lib->arm[0].emulator.grid;
  double *const knot[] = {&grid->knot[0][0], &grid->knot[0][7], &grid->knot[1][4],
                          &grid->knot[3][10]};
  float *const coef[] = {&grid->coef[0], &grid->coef[3000], &grid->coef[7559]};
  SEES(lib, knot, coef);
  free_library(lib);

  lib = new_library();
  make_kind(3, 2, MILL_EMULATOR_RBF, lib);
  mill_rbf *rbf = &lib->arm[0].emulator.rbf;
  double *const wide[] = {&rbf->length[1], &rbf->center[0], &rbf->center[209]};
  float *const narrow[] = {&rbf->coef[0], &rbf->coef[74 * rbf->n_out - 1]};
  SEES(lib, wide, narrow);
  free_library(lib);
}

/* ---- checks --------------------------------------------------------------------------------- */

static void expect_invalid(mill_library *lib, const char *text)
{
  const int err = mill_library_check(lib, "lib");
  if (err != MILL_ERR_LIBRARY)
    fail_msg("code %d instead of a refusal with \"%s\"", err, text);
  assert_says(text);
}

/* One value made wrong at a time. */
#define WITH(lvalue, wrong, text)                                                                  \
  do {                                                                                             \
    __typeof__(lvalue) before_ = (lvalue);                                                         \
    (lvalue) = (wrong);                                                                            \
    expect_invalid(lib, text);                                                                     \
    (lvalue) = before_;                                                                            \
  } while (0)

MILL_TEST(library_check)
{
  mill_library *lib = new_library();
  make(4, 2, lib);
  assert_ok(mill_library_check(lib, "lib"));
  WITH(lib->label[1].name[0], '/', "label 1");
  WITH(lib->label[1].name[0], '\0', "label 1");
  WITH(lib->label[1].mapping, 2, "mapping 2");
  WITH(lib->label[1].std, 0, "std above 0");
  WITH(lib->label[1].mean, NAN, "must be finite");
  WITH(lib->label[1].max, -1, "impossible range");
  WITH(lib->label[0].min, -1, "impossible range");
  WITH(lib->label[1].scale, NAN, "scale");
  WITH(lib->label[1].floor, -1, "floor");
  WITH(lib->n_hull, 1, "label feh is in no hull");
  WITH(lib->hull[0].label[1], 4, "names label 4");
  WITH(lib->hull[0].label[1], 0, "twice");
  WITH(lib->hull[0].n_facet, 2, "2 facets");
  WITH(lib->hull[0].facet[0], -1.001, "facet 0 of hull 0");
  WITH(lib->hull[0].facet[3], NAN, "facet 1 of hull 0");
  WITH(lib->hull[0].facet[2], INFINITY, "finite offset");
  WITH(lib->arm[0].name[0], 'B', "lower case");
  WITH(lib->arm[0].name[0], ' ', "arm 0");
  WITH(lib->arm[0].name[0], 'r', "two arms are called r");
  WITH(lib->arm[0].ln_step, 0, "step of arm b");
  WITH(lib->arm[0].ln_step, -lib->arm[0].ln_step, "step of arm b");
  WITH(lib->arm[0].wave_aa[17], lib->arm[0].wave_aa[17] * (1 + 1e-9), "pixel 17");
  WITH(lib->arm[0].wave_aa[17], NAN, "pixel 17");
  WITH(lib->arm[0].template_sigma_aa, NAN, "template sigma");
  WITH(lib->arm[1].emulator.n_in[0], 3, "takes 3 inputs, expected 4");
  WITH(lib->arm[1].emulator.n_in[2], 10, "takes 10 inputs, expected 9");
  WITH(lib->arm[1].emulator.n_out[2], 99, "gives 99 pixels");
  WITH(lib->arm[1].emulator.weight[2][5], NAN, "layer 2 of arm r");
  WITH(lib->arm[1].emulator.bias[0][5], INFINITY, "layer 0 of arm r");
  WITH(lib->arm[1].emulator.log_flux, 2, "log_flux");
  WITH(lib->guess_label[4], 20000, "template 1");
  WITH(lib->guess_label[4], NAN, "template 1");
  WITH(lib->guess_vsini_km_s[1], -1, "v sin i 1");
  assert_ok(mill_library_check(lib, "lib"));
  snprintf(lib->label[2].name, sizeof lib->label[2].name, "vsini");
  expect_invalid(lib, "vsini");
  snprintf(lib->label[2].name, sizeof lib->label[2].name, "logg");
  expect_invalid(lib, "appears twice");
  free_library(lib);
}

MILL_TEST(grid_check)
{
  mill_library *lib = new_library();
  make_kind(4, 2, MILL_EMULATOR_GRID, lib);
  mill_emulator *net = &lib->arm[0].emulator;
  mill_spline_grid *grid = &net->grid;
  assert_ok(mill_library_check(lib, "lib"));
  WITH(net->kind, MILL_EMULATOR_MLP, "takes 9 inputs, expected 4 (the labels)");
  WITH(net->n_layer, 2, "followed by 2 layers");
  WITH(net->n_layer, 0, "followed by 0 layers");
  WITH(net->n_in[0], 8, "takes 8 inputs, expected 9 (components of the grid)");
  WITH(net->n_out[0], 99, "gives 99 pixels");
  WITH(grid->knot[1][0], NAN, "knot 0 of label logg");
  WITH(grid->knot[1][4], INFINITY, "knot 4 of label logg");
  WITH(grid->knot[1][1], grid->knot[1][0] - 1, "do not ascend");
  WITH(grid->knot[1][0], grid->knot[1][0] - 1, "are not equal");
  WITH(grid->knot[1][8], grid->knot[1][8] + 1, "are not equal");
  WITH(grid->knot[1][4], grid->knot[1][3], "do not ascend");
  WITH(grid->knot[1][4], grid->knot[1][5], "do not ascend");
  WITH(grid->coef[77], NAN, "coefficient that is not finite");
  WITH(grid->coef[0], -INFINITY, "coefficient that is not finite");
  WITH(net->weight[0][5], NAN, "layer 0 of arm b");
  test_library_to_linear(grid);
  assert_ok(mill_library_check(lib, "lib"));
  WITH(grid->knot[0][1], grid->knot[0][1] + 0.5, "the first and the last two knots of label teff");
  assert_ok(mill_library_check(lib, "lib"));
  free_library(lib);
}

MILL_TEST(rbf_check)
{
  mill_library *lib = new_library();
  make_kind(3, 2, MILL_EMULATOR_RBF, lib);
  mill_emulator *net = &lib->arm[0].emulator;
  mill_rbf *rbf = &net->rbf;
  assert_ok(mill_library_check(lib, "lib"));
  WITH(net->n_layer, 2, "followed by 2 layers");
  WITH(net->n_in[0], 8, "takes 8 inputs, expected 9 (components of the radial functions)");
  WITH(rbf->length[2], 0, "length 0 of label feh");
  WITH(rbf->length[2], NAN, "of label feh");
  WITH(rbf->center[5], NAN, "center that is not finite");
  WITH(rbf->coef[77], INFINITY, "coefficient that is not finite");
  assert_ok(mill_library_check(lib, "lib"));
  free_library(lib);
}

MILL_TEST(error_check)
{
  mill_library *lib = new_library();
  make(4, 2, lib);
  assert_ok(test_library_add_error(3, lib));
  mill_model_error *error = &lib->arm[1].error;
  WITH(error->fraction[7], NAN, "arm r is nan of the flux in pixel 7");
  WITH(error->fraction[7], -0.1f, "in pixel 7");
  WITH(error->component[11], INFINITY, "model error of arm r is not finite");
  WITH(error->sigma[1], -1, "component 1 of the model error of arm r");
  WITH(error->correlation, NAN, "arm r is correlated over");
  free_library(lib);
}

/* More labels than a grid can have are no reason to read past its arrays. */
MILL_TEST(grid_of_many_labels_is_refused)
{
  mill_library *lib = new_library();
  make_kind(4, 1, MILL_EMULATOR_GRID, lib);
  for (int i = 4; i < MILL_MAX_LABEL; i++) {
    lib->label[i] = lib->label[3];
    snprintf(lib->label[i].name, sizeof lib->label[i].name, "extra%d", i);
    snprintf(lib->label[i].column, sizeof lib->label[i].column, "EXTRA%d", i);
    lib->hull[i].n_label = 1;
    lib->hull[i].n_facet = 2;
    lib->hull[i].label[0] = i;
    assert_ok(MILL_ALLOC(4, &lib->hull[i].facet));
    memcpy(lib->hull[i].facet, (double[]){1, -1.5, -1, -1.5}, 4 * sizeof(double));
  }
  lib->hull[2] = lib->hull[14];
  lib->hull[3] = lib->hull[15];
  memset(&lib->hull[14], 0, 2 * sizeof lib->hull[14]);
  lib->n_hull = 14;
  lib->n_label = MILL_MAX_LABEL;
  expect_invalid(lib, "is a grid of 16 labels, this program takes 1 to 6");
  free_library(lib);
}

int main(void)
{
  /* HDF5's own complaints about the files made wrong here */
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  return MILL_RUN_TESTS(make_folder, remove_folder);
}
