/* Libraries whose emulators are radial functions: file, check, digest, description. */
#include "tests/mill_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hdf5.h>

#include "io/library/library_file.h"
#include "kernels/base/error.h"
#include "tests/reference/library_digest.h"
#include "tests/test_library.h"

static char folder[64] = "/tmp/mill-rbf-XXXXXX";
static char path[128];

#define assert_ok(call)                                                                            \
  do {                                                                                             \
    if ((call) != MILL_OK)                                                                         \
      fail_msg("%s", mill_error_message());                                                        \
  } while (0)

static void assert_says(const char *text)
{
  if (!strstr(mill_error_message(), text))
    fail_msg("\"%s\" does not say \"%s\"", mill_error_message(), text);
}

/* Radial functions in two arms, a network in the third. */
static mill_library *make(void)
{
  mill_library *lib = NULL;
  assert_ok(MILL_ALLOC(1, &lib));
  assert_ok(test_library_make(3, 3, 8, lib));
  lib->n_arm = 2;
  assert_ok(test_library_to_rbf(lib));
  lib->n_arm = 3;
  return lib;
}

static void release(mill_library *lib)
{
  mill_library_clear(lib);
  mill_free(lib);
}

static void test_file_gives_back_what_was_written(void **state)
{
  (void)state;
  mill_library *lib = make(), *back = NULL;
  char hex[65];
  assert_ok(MILL_ALLOC(1, &back));
  assert_ok(mill_library_write(path, lib, 1));
  assert_ok(mill_library_read(path, back));
  mill_library_digest(lib, hex);
  assert_string_equal(back->hash, hex);
  for (int a = 0; a < 3; a++) {
    const mill_emulator *m = &lib->arm[a].emulator, *n = &back->arm[a].emulator;
    const mill_rbf *p = &m->rbf, *q = &n->rbf;
    assert_int_equal(n->kind, a < 2 ? MILL_EMULATOR_RBF : MILL_EMULATOR_MLP);
    assert_int_equal(n->n_layer, m->n_layer);
    assert_int_equal(q->n_axis, p->n_axis);
    if (a == 2)
      continue;
    assert_int_equal(q->n_center, p->n_center);
    assert_int_equal(q->degree, 1 + a);
    assert_int_equal(q->n_poly, p->n_poly);
    assert_int_equal(q->n_out, p->n_out);
    assert_memory_equal(q->length, p->length, (size_t)p->n_axis * sizeof(double));
    assert_memory_equal(q->center, p->center, (size_t)(p->n_center * p->n_axis) * sizeof(double));
    assert_memory_equal(q->coef, p->coef,
                        (size_t)((p->n_center + p->n_poly) * p->n_out) * sizeof(float));
    assert_memory_equal(n->weight[0], m->weight[0],
                        (size_t)(m->n_in[0] * m->n_out[0]) * sizeof(float));
  }
  release(lib);
  release(back);
}

/* The digest is that of docs/use/formats.md, written down a second time in Python. */
static void test_digest_is_the_documented_one(void **state)
{
  (void)state;
  char hex[65];
  mill_library *lib = NULL;
  assert_ok(MILL_ALLOC(1, &lib));
  lib->n_label = 1;
  lib->label[0] =
      (mill_label){"teff", "TEFF", "K", MILL_MAP_LOG10, 3.75, 0.125, 4000, 7000, 62.5, 0, 0};
  lib->n_hull = 1;
  lib->hull[0].n_label = 1;
  lib->hull[0].n_facet = 2;
  assert_ok(MILL_ALLOC(4, &lib->hull[0].facet));
  memcpy(lib->hull[0].facet, (double[]){1, -1.5, -1, -1.25}, 4 * sizeof(double));
  lib->n_arm = 1;
  mill_arm *arm = &lib->arm[0];
  mill_emulator *net = &arm->emulator;
  snprintf(arm->name, sizeof arm->name, "b");
  snprintf(arm->setup, sizeof arm->setup, "test_b");
  arm->n_pix = 2;
  arm->ln_wave0 = 8.25;
  arm->ln_step = 0.0009765625;
  arm->template_sigma_aa = 0.5;
  assert_ok(MILL_ALLOC(2, &arm->wave_aa));
  memcpy(arm->wave_aa, (double[]){3827.625, 3831.375}, 2 * sizeof(double));
  net->kind = MILL_EMULATOR_RBF;
  net->log_flux = net->n_layer = 1;
  net->n_in[0] = net->n_out[0] = 2;
  net->rbf = (mill_rbf){.n_axis = 1, .n_center = 3, .degree = 1, .n_poly = 2, .n_out = 2};
  net->rbf.length[0] = 1.5;
  assert_ok(MILL_ALLOC(3, &net->rbf.center));
  memcpy(net->rbf.center, (double[]){-1, 0.25, 1}, 3 * sizeof(double));
  assert_ok(MILL_ALLOC(10, &net->rbf.coef));
  for (int i = 0; i < 10; i++)
    net->rbf.coef[i] = (float)(0.75 * i - 2);
  assert_ok(MILL_ALLOC(4, &net->weight[0]));
  assert_ok(MILL_ALLOC(2, &net->bias[0]));
  memcpy(net->weight[0], (float[]){0.5f, -0.25f, 2, 3}, 4 * sizeof(float));
  memcpy(net->bias[0], (float[]){0.125f, -8}, 2 * sizeof(float));
  lib->n_guess = lib->n_guess_vsini = 1;
  assert_ok(MILL_ALLOC(1, &lib->guess_label));
  lib->guess_label[0] = 5500;
  lib->guess_vsini_km_s[0] = 100;
  mill_library_digest(lib, hex);
  assert_string_equal(hex, REF_DIGEST_RBF);
  release(lib);
}

static void test_digest_sees_every_number(void **state)
{
  (void)state;
  mill_library *lib = make();
  mill_rbf *rbf = &lib->arm[0].emulator.rbf;
  char first[65], now[65];
  mill_library_digest(lib, first);
#define CHANGED(number, other)                                                                     \
  do {                                                                                             \
    const double before = (double)(number);                                                        \
    number = other;                                                                                \
    mill_library_digest(lib, now);                                                                 \
    assert_string_not_equal(now, first);                                                           \
    number = (__typeof__(number))before;                                                           \
  } while (0)
  CHANGED(rbf->length[1], nextafter(rbf->length[1], 9));
  CHANGED(rbf->center[0], nextafter(rbf->center[0], 9));
  CHANGED(rbf->center[209], nextafter(rbf->center[209], 9));
  CHANGED(rbf->coef[0], nextafterf(rbf->coef[0], 9));
  CHANGED(rbf->coef[74 * rbf->n_out - 1], nextafterf(rbf->coef[74 * rbf->n_out - 1], 9));
  CHANGED(lib->arm[0].emulator.kind, MILL_EMULATOR_MLP);
#undef CHANGED
  mill_library_digest(lib, now);
  assert_string_equal(now, first);
  release(lib);
}

static void test_check_refuses(void **state)
{
  (void)state;
  mill_library *lib = make();
  mill_emulator *net = &lib->arm[0].emulator;
  mill_rbf *rbf = &net->rbf;
  assert_ok(mill_library_check(lib, "lib"));
#define WITH(field, wrong, text)                                                                   \
  do {                                                                                             \
    const __typeof__(field) before = field;                                                        \
    field = wrong;                                                                                 \
    assert_int_equal(mill_library_check(lib, "lib"), MILL_ERR_LIBRARY);                            \
    assert_says(text);                                                                             \
    field = before;                                                                                \
  } while (0)
  WITH(net->kind, MILL_EMULATOR_GRID, "the grid of arm b has 0 labels");
  WITH(lib->arm[2].emulator.kind, MILL_EMULATOR_RBF, "arm z have 0 labels");
  WITH(net->n_layer, 2, "followed by 2 layers");
  WITH(net->n_in[0], 8, "takes 8 inputs, expected 9 (components of the radial functions)");
  WITH(rbf->n_axis, 2, "have 2 labels, the library 3");
  WITH(rbf->n_out, 0, "0 components");
  WITH(rbf->n_out, MILL_MAX_WIDTH + 1, "1025 components");
  WITH(rbf->n_center, 0, "0 centers");
  WITH(rbf->n_center, MILL_MAX_RBF_CENTER + 1, "65537 centers");
  WITH(rbf->degree, -1, "degree -1");
  WITH(rbf->degree, MILL_MAX_RBF_DEGREE + 1, "degree 4");
  WITH(rbf->degree, 2, "has 4 terms, one of degree 2 has 10");
  WITH(rbf->length[2], 0, "length 0 of label feh");
  WITH(rbf->length[2], NAN, "of label feh");
  WITH(rbf->center, NULL, "center that is not finite");
  WITH(rbf->center[5], NAN, "center that is not finite");
  WITH(rbf->coef, NULL, "coefficient that is not finite");
  WITH(rbf->coef[77], INFINITY, "coefficient that is not finite");
#undef WITH
  assert_ok(mill_library_check(lib, "lib"));
  release(lib);
}

static hid_t open_good(void)
{
  mill_library *lib = make();
  assert_ok(mill_library_write(path, lib, 1));
  release(lib);
  const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  assert_true(file >= 0);
  return file;
}

static void expect_refused(hid_t file, const char *text)
{
  mill_library *lib = NULL;
  assert_true(H5Fclose(file) >= 0);
  assert_ok(MILL_ALLOC(1, &lib));
  assert_int_equal(mill_library_read(path, lib), MILL_ERR_LIBRARY);
  assert_says(path);
  assert_says(text);
  assert_null(lib->arm[0].emulator.rbf.coef);
  release(lib);
}

/* In the place of a dataset another one of zeros. */
static void replace(hid_t file, const char *name, hid_t type, int n_dim, const hsize_t *dim)
{
  size_t n = H5Tget_size(type);
  for (int i = 0; i < n_dim; i++)
    n *= (size_t)dim[i];
  void *zero = calloc(n, 1);
  assert_non_null(zero);
  assert_true(H5Ldelete(file, name, H5P_DEFAULT) >= 0);
  const hid_t space = H5Screate_simple(n_dim, dim, NULL);
  const hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(set >= 0);
  assert_true(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, zero) >= 0);
  H5Dclose(set);
  H5Sclose(space);
  free(zero);
}

static void set_degree(hid_t file, int degree)
{
  const hid_t group = H5Gopen2(file, "arms/arm0/rbf", H5P_DEFAULT);
  const hid_t space = H5Screate(H5S_SCALAR);
  assert_true(group >= 0 && H5Adelete(group, "degree") >= 0);
  const hid_t attr = H5Acreate2(group, "degree", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(attr >= 0 && H5Awrite(attr, H5T_NATIVE_INT, &degree) >= 0);
  H5Aclose(attr);
  H5Sclose(space);
  H5Gclose(group);
}

static void test_reading_refuses_wrong_files(void **state)
{
  (void)state;
  static const char *const needed[] = {"arms/arm0/rbf/centers", "arms/arm0/rbf/lengths",
                                       "arms/arm0/rbf/coefficients"};
  hid_t file;
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
    char text[80];
    file = open_good();
    assert_true(H5Ldelete(file, needed[i], H5P_DEFAULT) >= 0);
    snprintf(text, sizeof text, "%s is missing", needed[i]);
    expect_refused(file, text);
  }
  file = open_good();
  assert_true(H5Adelete_by_name(file, "arms/arm0/rbf", "degree", H5P_DEFAULT) >= 0);
  expect_refused(file, "attribute degree of arms/arm0/rbf is missing");
  file = open_good();
  set_degree(file, 9);
  expect_refused(file, "degree of arms/arm0/rbf is 9");
  file = open_good();
  set_degree(file, 2);
  expect_refused(file, "expected 80 rows");
  static const struct {
    const char *name;
    int is_float, n_dim;
    hsize_t dim[3];
    const char *text;
  } wrong[] = {{"arms/arm0/rbf/centers", 0, 2, {70, 4}, "centers of 3 labels"},
               {"arms/arm0/rbf/centers", 0, 2, {65537, 3}, "1 to 65536 centers"},
               {"arms/arm0/rbf/centers", 0, 1, {210}, "1 dimensions, expected 2"},
               {"arms/arm0/rbf/centers", 0, 2, {70, 3}, "attribute hash"},
               {"arms/arm0/rbf/lengths", 0, 1, {4}, "4 elements along dimension 0, expected 3"},
               {"arms/arm0/rbf/lengths", 0, 1, {3}, "length 0 of label teff"},
               {"arms/arm0/rbf/coefficients", 1, 2, {70, 9}, "expected 74 rows"},
               {"arms/arm0/rbf/coefficients", 1, 2, {74, 1025}, "1 to 1024 components"},
               {"arms/arm0/rbf/coefficients", 1, 2, {74, 8}, "takes 9 inputs, expected 8"},
               {"arms/arm0/rbf/coefficients", 0, 2, {74, 9}, "8-byte numbers"},
               {"arms/arm0/rbf/coefficients", 1, 2, {74, 9}, "attribute hash"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    file = open_good();
    replace(file, wrong[i].name, wrong[i].is_float ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE,
            wrong[i].n_dim, wrong[i].dim);
    expect_refused(file, wrong[i].text);
  }
}

static void test_description_tells_the_emulator(void **state)
{
  (void)state;
  mill_library *lib = make();
  char text[4096] = "";
  FILE *out = tmpfile();
  assert_non_null(out);
  assert_ok(mill_library_print(lib, out));
  rewind(out);
  assert_true(fread(text, 1, sizeof text - 1, out) > 0);
  fclose(out);
  assert_non_null(strstr(text, "format  2"));
  assert_non_null(strstr(text, "emulator rbf 70+4-9-400, radial functions, log flux"));
  assert_non_null(strstr(text, "polynomial of degree 1; 9 components"));
  assert_non_null(strstr(text, "SiLU"));
  release(lib);
}

static int begin(void **state)
{
  (void)state;
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  if (!mkdtemp(folder))
    return -1;
  snprintf(path, sizeof path, "%s/lib.h5", folder);
  return 0;
}

static int end(void **state)
{
  (void)state;
  unlink(path);
  return rmdir(folder);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_file_gives_back_what_was_written),
      cmocka_unit_test(test_digest_is_the_documented_one),
      cmocka_unit_test(test_digest_sees_every_number),
      cmocka_unit_test(test_check_refuses),
      cmocka_unit_test(test_reading_refuses_wrong_files),
      cmocka_unit_test(test_description_tells_the_emulator),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
