/* The library file: round trip, import of the reference emulators, and every refusal. */
#include "tests/mill_test.h"

#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <hdf5.h>

#include "io/library/library_file.h"
#include "kernels/base/error.h"
#include "tests/reference/library_digest.h"
#include "tests/test_library.h"

static char folder[256];

static int make_folder(void **state)
{
  (void)state;
  const char *base = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/mill-library-XXXXXX", base && *base ? base : "/tmp");
  return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
  (void)state;
  DIR *dir = opendir(folder);
  if (!dir)
    return -1;
  char path[1024];
  for (struct dirent *entry; (entry = readdir(dir));) {
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (entry->d_name[0] != '.')
      unlink(path);
  }
  closedir(dir);
  return rmdir(folder);
}

/* A path in the test's folder; four may be held at once. */
static const char *in_folder(const char *name)
{
  static char path[4][512];
  static int i_path;
  char *out = path[i_path++ % 4];
  snprintf(out, sizeof path[0], "%s/%s", folder, name);
  return out;
}

static mill_library *new_library(void)
{
  mill_library *lib = NULL;
  assert_int_equal(MILL_ALLOC(1, &lib), MILL_OK);
  return lib;
}

static void free_library(mill_library *lib)
{
  mill_library_clear(lib);
  mill_free(lib);
}

#define assert_ok(call)                                                                            \
  do {                                                                                             \
    if ((call) != MILL_OK)                                                                         \
      fail_msg("%s: %s", #call, mill_error_message());                                             \
  } while (0)

static void make(int n_label, int n_arm, mill_library *lib)
{
  assert_int_equal(test_library_make(n_label, n_arm, 7, lib), MILL_OK);
}

/* Arm b with splines over a grid, the others with networks. */
static void make_grid(int n_label, int n_arm, mill_library *lib)
{
  make(n_label, n_arm, lib);
  lib->n_arm = 1;
  assert_ok(test_library_to_grid(lib));
  lib->n_arm = n_arm;
}

/* The message is one line that names what is wrong. */
#define assert_message(text)                                                                       \
  do {                                                                                             \
    if (!strstr(mill_error_message(), text) || strchr(mill_error_message(), '\n'))                 \
      fail_msg("message \"%s\" lacks \"%s\"", mill_error_message(), text);                         \
  } while (0)

static void expect_refused(const char *path, const char *text)
{
  mill_library *lib = new_library();
  mill_error_clear();
  const int err = mill_library_read(path, lib);
  if (err != MILL_ERR_LIBRARY)
    fail_msg("%s: code %d (%s) instead of a refusal with \"%s\"", path, err, mill_error_message(),
             text);
  assert_message(text);
  assert_message(path);
  /* left cleared */
  assert_int_equal(lib->n_label, 0);
  assert_null(lib->arm[0].wave_aa);
  free_library(lib);
}

static int count_files(void)
{
  int n = 0;
  DIR *dir = opendir(folder);
  assert_non_null(dir);
  for (struct dirent *entry; (entry = readdir(dir));)
    n += entry->d_name[0] != '.';
  closedir(dir);
  return n;
}

static void assert_same_grid(const mill_spline_grid *a, const mill_spline_grid *b)
{
  size_t size = (size_t)a->n_out;
  assert_int_equal(a->n_axis, b->n_axis);
  assert_int_equal(a->n_out, b->n_out);
  assert_memory_equal(a->n_node, b->n_node, sizeof a->n_node);
  for (int i = 0; i < a->n_axis; i++) {
    assert_memory_equal(a->knot[i], b->knot[i], (size_t)(a->n_node[i] + 4) * sizeof(double));
    size *= (size_t)a->n_node[i];
  }
  if (a->n_axis > 0)
    assert_memory_equal(a->coef, b->coef, size * sizeof *a->coef);
  else
    assert_null(b->coef);
}

static void assert_same(const mill_library *a, const mill_library *b)
{
  assert_string_equal(a->name, b->name);
  assert_int_equal(a->n_label, b->n_label);
  assert_memory_equal(a->label, b->label, sizeof a->label);
  assert_int_equal(a->n_hull, b->n_hull);
  for (int i = 0; i < a->n_hull; i++) {
    const mill_hull *h = &a->hull[i];
    assert_int_equal(h->n_label, b->hull[i].n_label);
    assert_int_equal(h->n_facet, b->hull[i].n_facet);
    assert_memory_equal(h->label, b->hull[i].label, sizeof h->label);
    assert_memory_equal(h->facet, b->hull[i].facet,
                        (size_t)(h->n_facet * (h->n_label + 1)) * sizeof *h->facet);
  }
  assert_int_equal(a->n_arm, b->n_arm);
  for (int i = 0; i < a->n_arm; i++) {
    const mill_arm *p = &a->arm[i], *q = &b->arm[i];
    assert_string_equal(p->name, q->name);
    assert_string_equal(p->setup, q->setup);
    assert_string_equal(p->sigma_origin, q->sigma_origin);
    assert_string_equal(p->source, q->source);
    assert_string_equal(p->revision, q->revision);
    assert_int_equal(p->n_pix, q->n_pix);
    assert_memory_equal(&p->ln_wave0, &q->ln_wave0, sizeof(double));
    assert_memory_equal(&p->ln_step, &q->ln_step, sizeof(double));
    assert_memory_equal(&p->template_sigma_aa, &q->template_sigma_aa, sizeof(double));
    assert_memory_equal(p->wave_aa, q->wave_aa, (size_t)p->n_pix * sizeof(double));
    const mill_emulator *m = &p->emulator, *n = &q->emulator;
    assert_int_equal(m->log_flux, n->log_flux);
    assert_int_equal(m->kind, n->kind);
    assert_same_grid(&m->grid, &n->grid);
    assert_int_equal(m->n_layer, n->n_layer);
    assert_memory_equal(m->n_in, n->n_in, sizeof m->n_in);
    assert_memory_equal(m->n_out, n->n_out, sizeof m->n_out);
    for (int j = 0; j < m->n_layer; j++) {
      assert_memory_equal(m->weight[j], n->weight[j],
                          (size_t)(m->n_in[j] * m->n_out[j]) * sizeof(float));
      assert_memory_equal(m->bias[j], n->bias[j], (size_t)m->n_out[j] * sizeof(float));
    }
  }
  assert_int_equal(a->n_guess, b->n_guess);
  assert_memory_equal(a->guess_label, b->guess_label,
                      (size_t)(a->n_guess * a->n_label) * sizeof(double));
  assert_int_equal(a->n_guess_vsini, b->n_guess_vsini);
  assert_memory_equal(a->guess_vsini_km_s, b->guess_vsini_km_s, sizeof a->guess_vsini_km_s);
}

/* ---- round trip and digest ------------------------------------------------------------------ */

static void test_library_round_trip(void **state)
{
  (void)state;
  for (int n_label = 3; n_label <= 4; n_label++)
    for (int n_arm = 1; n_arm <= 3; n_arm += 2) {
      mill_library *lib = new_library(), *back = new_library();
      const char *path = in_folder("round.h5");
      make(n_label, n_arm, lib);
      lib->arm[0].template_sigma_aa = -1;
      snprintf(lib->arm[0].source, sizeof lib->arm[0].source, "net.h5");
      snprintf(lib->arm[0].revision, sizeof lib->arm[0].revision, "r1");
      assert_ok(mill_library_write(path, lib, 1));
      assert_ok(mill_library_read(path, back));
      assert_same(lib, back);
      assert_string_equal(back->path, path);
      mill_library_digest(lib, lib->hash);
      assert_string_equal(lib->hash, back->hash);
      free_library(lib);
      free_library(back);
    }
}

static hid_t open_file(const char *path)
{
  const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  assert_true(file >= 0);
  return file;
}

static int get_attr_int(hid_t file, const char *object, const char *name)
{
  int value = -1;
  const hid_t attr = H5Aopen_by_name(file, object, name, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(attr >= 0 && H5Aread(attr, H5T_NATIVE_INT, &value) >= 0);
  H5Aclose(attr);
  return value;
}

/* Every number of labels that a grid may have, alone and beside networks. */
static void test_grid_library_round_trip(void **state)
{
  (void)state;
  for (int n_label = 3; n_label <= 4; n_label++)
    for (int n_arm = 1; n_arm <= 3; n_arm++) {
      mill_library *lib = new_library(), *back = new_library();
      const char *path = in_folder("grid.h5");
      make_grid(n_label, n_arm, lib);
      if (n_arm == 2)
        lib->arm[0].emulator.log_flux = 0;
      assert_ok(mill_library_write(path, lib, 1));
      assert_ok(mill_library_read(path, back));
      assert_same(lib, back);
      mill_library_digest(lib, lib->hash);
      assert_string_equal(lib->hash, back->hash);
      const hid_t file = open_file(path);
      assert_int_equal(get_attr_int(file, "/", "format_version"), 2);
      assert_true(H5Aexists_by_name(file, "arms/arm0", "activation", H5P_DEFAULT) == 0);
      H5Fclose(file);
      free_library(lib);
      free_library(back);
    }
}

/* What older programs know stays in the format that they read. */
static void test_networks_stay_in_format_1(void **state)
{
  (void)state;
  mill_library *lib = new_library();
  const char *path = in_folder("old.h5");
  make(4, 2, lib);
  assert_ok(mill_library_write(path, lib, 1));
  const hid_t file = open_file(path);
  assert_int_equal(get_attr_int(file, "/", "format_version"), 1);
  assert_true(H5Aexists_by_name(file, "arms/arm0", "emulator", H5P_DEFAULT) == 0);
  H5Fclose(file);
  free_library(lib);
}

/* A library of exact numbers, whose digests tests/reference/make_library_digest.py has from
   the description in docs/use/formats.md. */
static void test_library_digest_is_as_documented(void **state)
{
  (void)state;
  char hex[65];
  mill_library *lib = new_library();
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
  arm->wave_aa[0] = 3827.625;
  arm->wave_aa[1] = 3831.375;
  net->log_flux = 1;
  net->n_layer = 1;
  net->n_in[0] = 1;
  net->n_out[0] = 2;
  assert_ok(MILL_ALLOC(4, &net->weight[0]));
  assert_ok(MILL_ALLOC(2, &net->bias[0]));
  memcpy(net->weight[0], (float[]){0.5f, -0.25f, 2, 3}, 4 * sizeof(float));
  memcpy(net->bias[0], (float[]){0.125f, -8}, 2 * sizeof(float));
  lib->n_guess = lib->n_guess_vsini = 1;
  assert_ok(MILL_ALLOC(1, &lib->guess_label));
  lib->guess_label[0] = 5500;
  lib->guess_vsini_km_s[0] = 100;
  mill_library_digest(lib, hex);
  assert_string_equal(hex, REF_DIGEST_MLP);
  net->kind = MILL_EMULATOR_GRID;
  net->n_in[0] = 2;
  net->grid.n_axis = 1;
  net->grid.n_node[0] = 5;
  net->grid.n_out = 2;
  assert_ok(MILL_ALLOC(9, &net->grid.knot[0]));
  memcpy(net->grid.knot[0], (double[]){-1, -1, -1, -1, 0.25, 1, 1, 1, 1}, 9 * sizeof(double));
  assert_ok(MILL_ALLOC(10, &net->grid.coef));
  for (int i = 0; i < 10; i++)
    net->grid.coef[i] = (float)(0.75 * i - 2);
  mill_library_digest(lib, hex);
  assert_string_equal(hex, REF_DIGEST_GRID);
  free_library(lib);
}

static void test_grid_digest(void **state)
{
  (void)state;
  mill_library *lib = new_library();
  char first[65], now[65];
  make_grid(4, 2, lib);
  mill_library_digest(lib, first);
  mill_spline_grid *grid = &lib->arm[0].emulator.grid;
  for (int l = 0; l < 4; l++)
    for (int i = 0; i < grid->n_node[l] + 4; i++) {
      const double before = grid->knot[l][i];
      grid->knot[l][i] = nextafter(before, 9);
      mill_library_digest(lib, now);
      assert_string_not_equal(now, first);
      grid->knot[l][i] = before;
    }
  const int n_coef =
      grid->n_node[0] * grid->n_node[1] * grid->n_node[2] * grid->n_node[3] * grid->n_out;
  for (int i = 0; i < n_coef; i += (n_coef - 1) / 5) {
    const float before = grid->coef[i];
    grid->coef[i] = nextafterf(before, 9);
    mill_library_digest(lib, now);
    assert_string_not_equal(now, first);
    grid->coef[i] = before;
  }
  /* two labels exchanged, and another kind before the same layer */
  const mill_spline_grid before = *grid;
  grid->n_node[0] = before.n_node[1];
  grid->n_node[1] = before.n_node[0];
  grid->knot[0] = before.knot[1];
  grid->knot[1] = before.knot[0];
  mill_library_digest(lib, now);
  assert_string_not_equal(now, first);
  *grid = before;
  lib->arm[0].emulator.kind = MILL_EMULATOR_MLP;
  mill_library_digest(lib, now);
  assert_string_not_equal(now, first);
  lib->arm[0].emulator.kind = MILL_EMULATOR_GRID;
  mill_library_digest(lib, now);
  assert_string_equal(now, first);
  free_library(lib);
}

/* Names and provenance do not change the digest, everything that a fit sees does. */
static void test_library_digest(void **state)
{
  (void)state;
  mill_library *lib = new_library();
  make(4, 2, lib);
  char first[65], now[65];
  mill_library_digest(lib, first);
  snprintf(lib->path, sizeof lib->path, "elsewhere.h5");
  snprintf(lib->name, sizeof lib->name, "other");
  snprintf(lib->arm[1].source, sizeof lib->arm[1].source, "other");
  mill_library_digest(lib, now);
  assert_string_equal(now, first);

  double *const number[] = {&lib->label[3].mean,     &lib->label[0].std,
                            &lib->label[1].min,      &lib->label[1].max,
                            &lib->label[2].scale,    &lib->hull[1].facet[2],
                            &lib->arm[1].ln_wave0,   &lib->arm[0].ln_step,
                            &lib->arm[0].wave_aa[9], &lib->arm[1].template_sigma_aa,
                            &lib->guess_label[11],   &lib->guess_vsini_km_s[1]};
  for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
    const double before = *number[i];
    *number[i] = nextafter(before, 1e9);
    mill_library_digest(lib, now);
    assert_string_not_equal(now, first);
    *number[i] = before;
  }
  float *const weight[] = {&lib->arm[0].emulator.weight[2][100], &lib->arm[1].emulator.bias[1][3]};
  for (size_t i = 0; i < 2; i++) {
    const float before = *weight[i];
    *weight[i] = nextafterf(before, 1e9f);
    mill_library_digest(lib, now);
    assert_string_not_equal(now, first);
    *weight[i] = before;
  }
  lib->arm[0].emulator.log_flux = 0;
  mill_library_digest(lib, now);
  assert_string_not_equal(now, first);
  lib->arm[0].emulator.log_flux = 1;
  lib->arm[0].name[0] = 'x';
  mill_library_digest(lib, now);
  assert_string_not_equal(now, first);
  free_library(lib);
}

/* ---- writing -------------------------------------------------------------------------------- */

static void test_library_write_refuses_existing(void **state)
{
  (void)state;
  mill_library *lib = new_library();
  const char *path = in_folder("there.h5");
  make(3, 1, lib);
  assert_ok(mill_library_write(path, lib, 0));
  const int n_file = count_files();
  assert_int_equal(mill_library_write(path, lib, 0), MILL_ERR_OUTPUT);
  assert_message("--overwrite");
  assert_ok(mill_library_write(path, lib, 1));
  assert_int_equal(mill_library_write(folder, lib, 1), MILL_ERR_OUTPUT);
  assert_message("not a regular file");
  assert_int_equal(mill_library_write(in_folder("none/lib.h5"), lib, 0), MILL_ERR_OUTPUT);
  assert_message("No such file or directory");
  assert_int_equal(count_files(), n_file);
  free_library(lib);
}

/* A file system that takes no more: the old library stays, nothing is left over. */
static void test_library_write_full_disk(void **state)
{
  (void)state;
  mill_library *lib = new_library(), *back = new_library();
  const char *path = in_folder("full.h5");
  make(3, 1, lib);
  assert_ok(mill_library_write(path, lib, 1));
  const int n_file = count_files();
  struct rlimit before, small;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = 5000;
  void (*const handler)(int) = signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  const int err = mill_library_write(path, lib, 1);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  assert_int_equal(err, MILL_ERR_OUTPUT);
  assert_message("cannot be written: File too large");
  assert_int_equal(count_files(), n_file);
  assert_ok(mill_library_read(path, back));
  free_library(lib);
  free_library(back);
}

static void expect_invalid(mill_library *lib, const char *text)
{
  const char *path = in_folder("invalid.h5");
  const int err = mill_library_write(path, lib, 0);
  if (err != MILL_ERR_LIBRARY)
    fail_msg("code %d instead of a refusal with \"%s\"", err, text);
  assert_message(text);
  assert_int_not_equal(access(path, F_OK), 0);
}

/* One value made wrong at a time; what is refused on writing is refused on reading alike. */
#define WITH(lvalue, wrong, text)                                                                  \
  do {                                                                                             \
    __typeof__(lvalue) before_ = (lvalue);                                                         \
    (lvalue) = (wrong);                                                                            \
    expect_invalid(lib, text);                                                                     \
    (lvalue) = before_;                                                                            \
  } while (0)

static void test_library_check(void **state)
{
  (void)state;
  mill_library *lib = new_library();
  make(4, 2, lib);
  assert_ok(mill_library_check(lib, "lib"));
  WITH(lib->n_label, 0, "0 labels");
  WITH(lib->n_label, MILL_MAX_LABEL + 1, "17 labels");
  WITH(lib->label[1].name[0], '/', "label 1");
  WITH(lib->label[1].name[0], '\0', "label 1");
  WITH(lib->label[1].mapping, 2, "mapping 2");
  WITH(lib->label[1].std, 0, "std above 0");
  WITH(lib->label[1].mean, NAN, "must be finite");
  WITH(lib->label[1].max, -1, "impossible range");
  WITH(lib->label[0].min, -1, "impossible range");
  WITH(lib->label[1].scale, NAN, "scale");
  WITH(lib->n_hull, 0, "0 hulls");
  WITH(lib->n_hull, MILL_MAX_HULL + 1, "17 hulls");
  WITH(lib->n_hull, 1, "label feh is in no hull");
  WITH(lib->hull[0].label[1], 4, "names label 4");
  WITH(lib->hull[0].label[1], 0, "twice");
  WITH(lib->hull[0].n_facet, 2, "2 facets");
  WITH(lib->hull[0].facet[0], -1.001, "facet 0 of hull 0");
  WITH(lib->hull[0].facet[3], NAN, "facet 1 of hull 0");
  WITH(lib->hull[0].facet[2], INFINITY, "finite offset");
  WITH(lib->n_arm, 0, "0 arms");
  WITH(lib->n_arm, MILL_MAX_ARM + 1, "9 arms");
  WITH(lib->arm[0].name[0], 'B', "lower case");
  WITH(lib->arm[0].name[0], ' ', "arm 0");
  WITH(lib->arm[0].name[0], 'r', "two arms are called r");
  WITH(lib->arm[0].n_pix, 3, "3 pixels");
  WITH(lib->arm[0].ln_step, 0, "step of arm b");
  WITH(lib->arm[0].ln_step, -lib->arm[0].ln_step, "step of arm b");
  WITH(lib->arm[0].wave_aa[17], lib->arm[0].wave_aa[17] * (1 + 1e-9), "pixel 17");
  WITH(lib->arm[0].wave_aa[17], NAN, "pixel 17");
  WITH(lib->arm[0].template_sigma_aa, NAN, "template sigma");
  WITH(lib->arm[1].emulator.n_layer, MILL_MAX_LAYER + 1, "13 layers");
  WITH(lib->arm[1].emulator.n_in[0], 3, "takes 3 inputs, expected 4");
  WITH(lib->arm[1].emulator.n_in[2], 10, "takes 10 inputs, expected 9");
  WITH(lib->arm[1].emulator.n_out[0], MILL_MAX_WIDTH + 1, "1025 neurons");
  WITH(lib->arm[1].emulator.n_out[2], 99, "gives 99 pixels");
  WITH(lib->arm[1].emulator.weight[2][5], NAN, "layer 2 of arm r");
  WITH(lib->arm[1].emulator.bias[0][5], INFINITY, "layer 0 of arm r");
  WITH(lib->arm[1].emulator.log_flux, 2, "log_flux");
  WITH(lib->n_guess, 0, "0 templates");
  WITH(lib->guess_label[4], 20000, "template 1");
  WITH(lib->guess_label[4], NAN, "template 1");
  WITH(lib->n_guess_vsini, 0, "0 rotations");
  WITH(lib->guess_vsini_km_s[1], -1, "v sin i 1");
  assert_ok(mill_library_check(lib, "lib"));
  snprintf(lib->label[2].name, sizeof lib->label[2].name, "vsini");
  expect_invalid(lib, "vsini");
  snprintf(lib->label[2].name, sizeof lib->label[2].name, "logg");
  expect_invalid(lib, "there twice");
  free_library(lib);
}

static void test_grid_check(void **state)
{
  (void)state;
  mill_library *lib = new_library();
  make_grid(4, 2, lib);
  mill_emulator *net = &lib->arm[0].emulator;
  mill_spline_grid *grid = &net->grid;
  assert_ok(mill_library_check(lib, "lib"));
  WITH(net->kind, 3, "arm b is of kind 3");
  WITH(net->kind, -1, "arm b is of kind -1");
  WITH(net->kind, MILL_EMULATOR_MLP, "takes 9 inputs, expected 4 (the labels)");
  WITH(lib->arm[1].emulator.kind, MILL_EMULATOR_GRID, "the grid of arm r has 0 labels");
  WITH(net->n_layer, 2, "followed by 2 layers");
  WITH(net->n_layer, 0, "followed by 0 layers");
  WITH(net->n_in[0], 8, "takes 8 inputs, expected 9 (components of the grid)");
  WITH(net->n_out[0], 99, "gives 99 pixels");
  WITH(grid->n_axis, 3, "has 3 labels, the library 4");
  WITH(grid->n_out, 0, "0 components");
  WITH(grid->n_out, MILL_MAX_WIDTH + 1, "1025 components");
  WITH(grid->n_node[2], 3, "3 nodes of label feh");
  WITH(grid->n_node[2], MILL_MAX_GRID_NODE + 1, "257 nodes of label feh");
  WITH(grid->knot[2], NULL, "nodes of label feh");
  WITH(grid->coef, NULL, "coefficient");
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
  assert_ok(mill_library_check(lib, "lib"));
  free_library(lib);
}

/* More labels than a grid can have are no reason to read past its arrays. */
static void test_grid_of_many_labels_is_refused(void **state)
{
  (void)state;
  mill_library *lib = new_library();
  make_grid(4, 1, lib);
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
  lib->n_label = MILL_MAX_GRID_AXIS;
  lib->hull[2].label[0] = 4;
  lib->hull[3].label[0] = 5;
  lib->n_hull = 4;
  expect_invalid(lib, "the grid of arm b has 4 labels, the library 6");
  free_library(lib);
}

/* ---- files made wrong ----------------------------------------------------------------------- */

/* A good library file, open for changing. */
static hid_t start_broken(const char *path)
{
  mill_library *lib = new_library();
  make(4, 2, lib);
  assert_ok(mill_library_write(path, lib, 1));
  free_library(lib);
  const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  assert_true(file >= 0);
  return file;
}

static void set_attr(hid_t file, const char *object, const char *name, hid_t type,
                     const void *value)
{
  if (H5Aexists_by_name(file, object, name, H5P_DEFAULT) > 0)
    assert_true(H5Adelete_by_name(file, object, name, H5P_DEFAULT) >= 0);
  const hid_t space = H5Screate(H5S_SCALAR);
  const hid_t attr =
      H5Acreate_by_name(file, object, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(attr >= 0 && H5Awrite(attr, type, value) >= 0);
  H5Aclose(attr);
  H5Sclose(space);
}

static void set_attr_int(hid_t file, const char *object, const char *name, int value)
{
  set_attr(file, object, name, H5T_NATIVE_INT, &value);
}

static void set_attr_text(hid_t file, const char *object, const char *name, const char *value)
{
  const hid_t type = H5Tcopy(H5T_C_S1);
  assert_true(H5Tset_size(type, strlen(value) + 1) >= 0);
  set_attr(file, object, name, type, value);
  H5Tclose(type);
}

/* Replace a dataset by zeros of another shape, type and creation list. */
static void set_dataset(hid_t file, const char *name, hid_t type, int n_dim, const hsize_t *dim,
                        hid_t creation, int write)
{
  if (H5Lexists(file, name, H5P_DEFAULT) > 0)
    assert_true(H5Ldelete(file, name, H5P_DEFAULT) >= 0);
  const hid_t space = H5Screate_simple(n_dim, dim, NULL);
  const hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  assert_true(dataset >= 0);
  hsize_t n = H5Tget_size(type);
  for (int i = 0; i < n_dim; i++)
    n *= dim[i];
  void *zeros = calloc(1, (size_t)n + 1);
  assert_non_null(zeros);
  if (write)
    assert_true(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros) >= 0);
  free(zeros);
  H5Dclose(dataset);
  H5Sclose(space);
}

static void end_broken(hid_t file, const char *path, const char *text)
{
  assert_true(H5Fclose(file) >= 0);
  expect_refused(path, text);
}

static void test_library_refuses_foreign_files(void **state)
{
  (void)state;
  const char *path = in_folder("foreign.h5");
  expect_refused(in_folder("missing.h5"), "No such file");
  expect_refused(folder, "is a folder");
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fclose(f);
  expect_refused(path, "is empty");
  f = fopen(path, "w");
  fprintf(f, "SIMPLE  = T\n");
  fclose(f);
  expect_refused(path, "not an HDF5 file");
  const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  end_broken(file, path, "no attribute format");
}

static void test_library_refuses_other_formats(void **state)
{
  (void)state;
  const char *path = in_folder("format.h5");
  hid_t file = start_broken(path);
  set_attr_int(file, "/", "format_version", MILL_LIBRARY_FORMAT + 1);
  set_attr_text(file, "/", "reader_version", "7.2.0");
  end_broken(file, path, "use starmill 7.2.0 or later");
  file = start_broken(path);
  set_attr_int(file, "/", "format_version", 99);
  assert_true(H5Adelete(file, "reader_version") >= 0);
  end_broken(file, path, "library format 99 is newer");
  file = start_broken(path);
  set_attr_int(file, "/", "format_version", 0);
  end_broken(file, path, "library format 0 does not exist");
  file = start_broken(path);
  set_attr_text(file, "/", "format", "starmill results");
  end_broken(file, path, "not a starmill library");
  file = start_broken(path);
  set_attr_int(file, "/", "format", 5);
  end_broken(file, path, "attribute format of / is not a text");
  file = start_broken(path);
  set_attr_text(file, "arms/arm0", "activation", "relu");
  end_broken(file, path, "activation of arm b");
}

static void test_library_refuses_links_and_types(void **state)
{
  (void)state;
  const char *path = in_folder("links.h5"), *other = in_folder("linked.h5");
  hid_t file = start_broken(other);
  H5Fclose(file);
  file = start_broken(path);
  assert_true(H5Ldelete(file, "arms/arm1/layer0/bias", H5P_DEFAULT) >= 0);
  assert_true(H5Lcreate_external(other, "/arms/arm1/layer0/bias", file, "arms/arm1/layer0/bias",
                                 H5P_DEFAULT, H5P_DEFAULT) >= 0);
  end_broken(file, path, "/arms/arm1/layer0/bias is an external link");
  file = start_broken(path);
  assert_true(H5Lcreate_external(other, "/hulls", file, "unused", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  end_broken(file, path, "/unused is an external link");
  file = start_broken(path);
  assert_true(H5Lcreate_soft("/hulls", file, "again", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  end_broken(file, path, "/again is a soft link");
  file = start_broken(path);
  const hid_t type = H5Tcopy(H5T_NATIVE_INT);
  assert_true(H5Tcommit2(file, "type", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) >= 0);
  H5Tclose(type);
  end_broken(file, path, "/type is neither a group nor a dataset");
}

static void test_library_refuses_storage(void **state)
{
  (void)state;
  const char *path = in_folder("storage.h5"), *other = in_folder("storage.raw");
  const hsize_t dim[1] = {12};
  FILE *f = fopen(other, "w");
  assert_non_null(f);
  fprintf(f, "%048d", 0);
  fclose(f);
  hid_t file = start_broken(path), creation = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(H5Pset_external(creation, other, 0, 48) >= 0);
  set_dataset(file, "arms/arm0/layer0/bias", H5T_NATIVE_FLOAT, 1, dim, creation, 0);
  H5Pclose(creation);
  end_broken(file, path, "keeps its data in another file");

  file = start_broken(path);
  creation = H5Pcreate(H5P_DATASET_CREATE);
  const hid_t space = H5Screate_simple(1, dim, NULL);
  assert_true(H5Pset_virtual(creation, space, in_folder("links.h5"), "/x", space) >= 0);
  set_dataset(file, "arms/arm0/layer0/bias", H5T_NATIVE_FLOAT, 1, dim, creation, 0);
  H5Pclose(creation);
  H5Sclose(space);
  end_broken(file, path, "is virtual");

  /* N-bit, and a number that only a plug-in could have (optional, so that it can be written) */
  const H5Z_filter_t filter[] = {H5Z_FILTER_NBIT, H5Z_FILTER_SCALEOFFSET, 32004};
  for (size_t i = 0; i < 3; i++) {
    char text[64];
    file = start_broken(path);
    creation = H5Pcreate(H5P_DATASET_CREATE);
    assert_true(H5Pset_chunk(creation, 1, dim) >= 0);
    const unsigned value[2] = {0, 2};
    assert_true(H5Pset_filter(creation, filter[i], H5Z_FLAG_OPTIONAL, 2, value) >= 0);
    set_dataset(file, "arms/arm0/layer0/bias", H5T_NATIVE_FLOAT, 1, dim, creation, 0);
    H5Pclose(creation);
    snprintf(text, sizeof text, "HDF5 filter %d", (int)filter[i]);
    end_broken(file, path, text);
  }
}

/* deflate, shuffle and checksums change neither contents nor digest */
static void test_library_reads_compressed(void **state)
{
  (void)state;
  const char *path = in_folder("compressed.h5");
  mill_library *plain = new_library(), *back = new_library();
  assert_true(H5Fclose(start_broken(path)) >= 0);
  assert_ok(mill_library_read(path, plain));
  const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  const mill_emulator *net = &plain->arm[0].emulator;
  const hsize_t dim[2] = {(hsize_t)net->n_out[2], (hsize_t)net->n_in[2]};
  const hsize_t chunk[2] = {64, 5};
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(H5Pset_chunk(creation, 2, chunk) >= 0 && H5Pset_shuffle(creation) >= 0 &&
              H5Pset_deflate(creation, 4) >= 0 && H5Pset_fletcher32(creation) >= 0);
  set_dataset(file, "arms/arm0/layer2/weight", H5T_IEEE_F32BE, 2, dim, creation, 0);
  H5Pclose(creation);
  const hid_t dataset = H5Dopen2(file, "arms/arm0/layer2/weight", H5P_DEFAULT);
  assert_true(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, net->weight[2]) >=
              0);
  H5Dclose(dataset);
  H5Fclose(file);
  assert_ok(mill_library_read(path, back));
  assert_same(plain, back);
  assert_string_equal(plain->hash, back->hash);
  free_library(plain);
  free_library(back);
}

static void test_library_refuses_wrong_contents(void **state)
{
  (void)state;
  const char *path = in_folder("contents.h5");
  const hsize_t one[1] = {11}, two[2] = {12, 4}, wide[2] = {2000, 4}, many[1] = {9};
  static const struct {
    const char *object, *attr, *text;
    int value;
  } count[] = {{"labels", "n_label", "n_label of labels is 17", MILL_MAX_LABEL + 1},
               {"labels", "n_label", "n_label of labels is -1", -1},
               {"labels", "n_label", "/labels/label4 is missing", 5},
               {"hulls", "n_hull", "n_hull of hulls is 17", MILL_MAX_HULL + 1},
               {"arms", "n_arm", "n_arm of arms is 9", MILL_MAX_ARM + 1},
               {"arms", "n_arm", "arms/arm2 is missing", 3},
               {"arms/arm0", "n_layer", "n_layer of arms/arm0 is 13", MILL_MAX_LAYER + 1},
               {"arms/arm0", "n_layer", "layer3/weight is missing", 4},
               {"arms/arm0", "log_flux", "log_flux of arm b is 7", 7}};
  hid_t file;
  for (size_t i = 0; i < sizeof count / sizeof *count; i++) {
    file = start_broken(path);
    set_attr_int(file, count[i].object, count[i].attr, count[i].value);
    end_broken(file, path, count[i].text);
  }
  static const char *const needed[] = {"labels",
                                       "labels/label1",
                                       "hulls",
                                       "hulls/hull1/labels",
                                       "hulls/hull1/facets",
                                       "arms",
                                       "arms/arm1/wavelength",
                                       "arms/arm1/layer1/weight",
                                       "arms/arm1/layer1/bias",
                                       "guess/labels",
                                       "guess/vsini"};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
    char text[64];
    file = start_broken(path);
    assert_true(H5Ldelete(file, needed[i], H5P_DEFAULT) >= 0);
    snprintf(text, sizeof text, "/%s is missing", needed[i]);
    end_broken(file, path, text);
  }
  static const struct {
    const char *object, *attr;
  } attr[] = {{"/", "name"},
              {"/", "hash"},
              {"labels/label2", "unit"},
              {"labels/label2", "scale"},
              {"arms/arm1", "ln_step"},
              {"arms/arm1", "template_sigma"}};
  for (size_t i = 0; i < sizeof attr / sizeof *attr; i++) {
    char text[96];
    file = start_broken(path);
    assert_true(H5Adelete_by_name(file, attr[i].object, attr[i].attr, H5P_DEFAULT) >= 0);
    snprintf(text, sizeof text, "attribute %s of %s is missing", attr[i].attr, attr[i].object);
    end_broken(file, path, text);
  }
  file = start_broken(path);
  set_dataset(file, "arms/arm0/layer0/bias", H5T_NATIVE_FLOAT, 1, one, H5P_DEFAULT, 1);
  end_broken(file, path, "11 elements along dimension 0, expected 12");
  file = start_broken(path);
  set_dataset(file, "arms/arm0/layer0/bias", H5T_NATIVE_FLOAT, 2, two, H5P_DEFAULT, 1);
  end_broken(file, path, "2 dimensions, expected 1");
  file = start_broken(path);
  set_dataset(file, "arms/arm0/layer0/weight", H5T_NATIVE_DOUBLE, 2, two, H5P_DEFAULT, 1);
  end_broken(file, path, "holds 8-byte numbers, expected 4");
  file = start_broken(path);
  set_dataset(file, "arms/arm0/layer0/weight", H5T_NATIVE_INT, 2, two, H5P_DEFAULT, 1);
  end_broken(file, path, "does not hold floating-point numbers");
  file = start_broken(path);
  set_dataset(file, "arms/arm0/layer0/weight", H5T_NATIVE_FLOAT, 2, wide, H5P_DEFAULT, 1);
  end_broken(file, path, "has the shape [2000][4]");
  file = start_broken(path);
  set_dataset(file, "arms/arm0/layer0/weight", H5T_NATIVE_FLOAT, 2, two, H5P_DEFAULT, 0);
  end_broken(file, path, "was never written");
  file = start_broken(path);
  set_dataset(file, "guess/vsini", H5T_NATIVE_DOUBLE, 1, many, H5P_DEFAULT, 1);
  end_broken(file, path, "has 9 rotations");
  file = start_broken(path);
  set_dataset(file, "hulls/hull0/facets", H5T_NATIVE_DOUBLE, 2, two, H5P_DEFAULT, 1);
  end_broken(file, path, "[12][4]");
  file = start_broken(path);
  set_attr_text(file, "labels/label0", "name",
                "a name that is much longer than any label's name may be");
  end_broken(file, path, "longer than 31 bytes");
  file = start_broken(path);
  set_attr_text(file, "labels/label0", "mean", "3.7");
  end_broken(file, path, "attribute mean of labels/label0 is not a number");
  /* right in every shape, but not what was written */
  file = start_broken(path);
  const hsize_t bias[1] = {12};
  set_dataset(file, "arms/arm0/layer0/bias", H5T_NATIVE_FLOAT, 1, bias, H5P_DEFAULT, 1);
  end_broken(file, path, "do not match its attribute hash");
}

/* A good file of a grid (4, 5, 6 and 7 nodes, 9 components) and a network, for changing. */
static hid_t start_broken_grid(const char *path)
{
  mill_library *lib = new_library();
  make_grid(4, 2, lib);
  assert_ok(mill_library_write(path, lib, 1));
  free_library(lib);
  return open_file(path);
}

/* Add delta to one element of a dataset of double numbers (as HDF5 converts them). */
static void nudge(hid_t file, const char *name, size_t i_element, double delta)
{
  const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(dataset);
  assert_true(dataset >= 0 && space >= 0);
  const size_t n = (size_t)H5Sget_simple_extent_npoints(space);
  double *data = calloc(n, sizeof *data);
  assert_non_null(data);
  assert_true(i_element < n);
  assert_true(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  data[i_element] += delta;
  assert_true(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  free(data);
  H5Sclose(space);
  H5Dclose(dataset);
}

#define COEF "arms/arm0/grid/coefficients"

static void test_library_refuses_wrong_grids(void **state)
{
  (void)state;
  const char *path = in_folder("grids.h5"), *other = in_folder("other.h5");
  hid_t file = start_broken_grid(path);
  H5Fclose(file);
  mill_library *lib = new_library();
  assert_ok(mill_library_read(path, lib));
  free_library(lib);

  file = start_broken_grid(path);
  assert_true(H5Adelete_by_name(file, "arms/arm1", "emulator", H5P_DEFAULT) >= 0);
  end_broken(file, path, "attribute emulator of arms/arm1 is missing");
  file = start_broken_grid(path);
  set_attr_text(file, "arms/arm0", "emulator", "forest");
  end_broken(file, path, "the emulator of arm b is of none of the kinds");
  file = start_broken_grid(path);
  set_attr_text(file, "arms/arm0", "emulator", "mlp");
  end_broken(file, path, "attribute activation of arms/arm0 is missing");
  file = start_broken_grid(path);
  set_attr_text(file, "arms/arm1", "emulator", "grid");
  end_broken(file, path, "arms/arm1/grid/coefficients is missing");
  file = start_broken_grid(path);
  set_attr_text(file, "arms/arm1", "activation", "relu");
  end_broken(file, path, "activation of arm r");
  /* a program of format 1 knows no kinds */
  file = start_broken_grid(path);
  set_attr_int(file, "/", "format_version", 1);
  end_broken(file, path, "attribute activation of arms/arm0 is missing");
  file = start_broken_grid(path);
  set_attr_int(file, "arms/arm0", "n_layer", 2);
  end_broken(file, path, "layer1/weight is missing");
  file = start_broken_grid(path);
  assert_true(H5Ldelete(file, "arms/arm0/grid", H5P_DEFAULT) >= 0);
  end_broken(file, path, "/" COEF " is missing");
  static const char *const needed[] = {COEF, "arms/arm0/grid/knots0", "arms/arm0/grid/knots3"};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
    char text[64];
    file = start_broken_grid(path);
    assert_true(H5Ldelete(file, needed[i], H5P_DEFAULT) >= 0);
    snprintf(text, sizeof text, "/%s is missing", needed[i]);
    end_broken(file, path, text);
  }
  static const struct {
    int n_dim;
    hsize_t dim[5];
    const char *text;
  } shape[] = {{5, {3, 5, 6, 7, 9}, "has 3 nodes of label 0"},
               {5, {4, 5, 6, 257, 9}, "has 257 nodes of label 3"},
               {5, {4, 5, 6, 7, 1025}, "has 1025 components"},
               {4, {4, 5, 6, 63}, "4 dimensions, expected 5"},
               {1, {7560}, "1 dimensions, expected 5"},
               {5, {4, 6, 6, 7, 9}, "knots1"},
               {5, {4, 5, 6, 7, 8}, "takes 9 inputs, expected 8"}};
  for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
    file = start_broken_grid(path);
    set_dataset(file, COEF, H5T_NATIVE_FLOAT, shape[i].n_dim, shape[i].dim, H5P_DEFAULT, 1);
    end_broken(file, path, shape[i].text);
  }
  const hsize_t good[5] = {4, 5, 6, 7, 9}, huge[5] = {256, 256, 256, 256, 1024};
  const hsize_t chunk[5] = {1, 1, 1, 1, 1024}, knots[1] = {9}, two[2] = {8, 1};
  /* sixteen tebibytes that take no room in the file */
  hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(H5Pset_chunk(creation, 5, chunk) >= 0);
  file = start_broken_grid(path);
  assert_true(H5Ldelete(file, COEF, H5P_DEFAULT) >= 0);
  const hid_t space = H5Screate_simple(5, huge, NULL);
  const hid_t dataset =
      H5Dcreate2(file, COEF, H5T_NATIVE_FLOAT, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  assert_true(dataset >= 0);
  H5Dclose(dataset);
  H5Sclose(space);
  H5Pclose(creation);
  end_broken(file, path, "is said to have 17592186044416 bytes, more than the file's");
  file = start_broken_grid(path);
  set_dataset(file, COEF, H5T_NATIVE_DOUBLE, 5, good, H5P_DEFAULT, 1);
  end_broken(file, path, "holds 8-byte numbers, expected 4");
  file = start_broken_grid(path);
  set_dataset(file, COEF, H5T_NATIVE_INT, 5, good, H5P_DEFAULT, 1);
  end_broken(file, path, "does not hold floating-point numbers");
  file = start_broken_grid(path);
  set_dataset(file, COEF, H5T_NATIVE_FLOAT, 5, good, H5P_DEFAULT, 0);
  end_broken(file, path, "was never written");
  file = start_broken_grid(path);
  set_dataset(file, COEF, H5T_NATIVE_FLOAT, 5, good, H5P_DEFAULT, 1);
  end_broken(file, path, "do not match its attribute hash");
  file = start_broken_grid(path);
  set_dataset(file, "arms/arm0/grid/knots0", H5T_NATIVE_DOUBLE, 1, knots, H5P_DEFAULT, 1);
  end_broken(file, path, "9 elements along dimension 0, expected 8");
  file = start_broken_grid(path);
  set_dataset(file, "arms/arm0/grid/knots0", H5T_NATIVE_DOUBLE, 2, two, H5P_DEFAULT, 1);
  end_broken(file, path, "2 dimensions, expected 1");
  static const struct {
    const char *dataset;
    size_t i_element;
    double delta;
    const char *text;
  } change[] = {{"arms/arm0/grid/knots2", 5, NAN, "knot 5 of label feh of arm b is not finite"},
                {"arms/arm0/grid/knots2", 5, -9, "do not ascend"},
                {"arms/arm0/grid/knots2", 2, -9, "do not ascend"},
                {"arms/arm0/grid/knots2", 3, 1, "are not equal"},
                {"arms/arm0/grid/knots2", 9, 77, "are not equal"},
                {COEF, 0, INFINITY, "coefficient that is not finite"},
                {COEF, 7559, NAN, "coefficient that is not finite"},
                {COEF, 7559, 0.5, "do not match its attribute hash"}};
  for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
    file = start_broken_grid(path);
    nudge(file, change[i].dataset, change[i].i_element, change[i].delta);
    end_broken(file, path, change[i].text);
  }
  H5Fclose(start_broken_grid(other));
  file = start_broken_grid(path);
  assert_true(H5Ldelete(file, COEF, H5P_DEFAULT) >= 0);
  assert_true(H5Lcreate_external(other, "/" COEF, file, COEF, H5P_DEFAULT, H5P_DEFAULT) >= 0);
  end_broken(file, path, "coefficients is an external link");
}

/* An attribute of format 2 means nothing in a file of format 1. */
static void test_format_1_ignores_kinds(void **state)
{
  (void)state;
  const char *path = in_folder("kinds.h5");
  mill_library *lib = new_library();
  const hid_t file = start_broken(path);
  set_attr_text(file, "arms/arm0", "emulator", "grid");
  assert_true(H5Fclose(file) >= 0);
  assert_ok(mill_library_read(path, lib));
  assert_int_equal(lib->arm[0].emulator.kind, MILL_EMULATOR_MLP);
  free_library(lib);
}

/* Random shapes, types and numbers in the datasets of a grid: a refusal in one line. */
static void test_library_refuses_random_grids(void **state)
{
  (void)state;
  const char *path = in_folder("random.h5");
  uint64_t random = 424242;
  int n_shape = 0;
  for (int trial = 0; trial < 150; trial++) {
    char name[64];
    hid_t file = start_broken_grid(path);
    for (int i = 0; i < 5; i++) {
      if (test_library_random(&random) < 0.2)
        continue;
      if (i == 4)
        snprintf(name, sizeof name, COEF);
      else
        snprintf(name, sizeof name, "arms/arm0/grid/knots%d", i);
      if (test_library_random(&random) < 0) {
        /* numbers: small, wild and none; the hash refuses what else would do */
        const double u = test_library_random(&random);
        nudge(file, name, (size_t)(fabs(test_library_random(&random)) * 8),
              u < -0.5 ? NAN : (u < 0 ? 1e30 * u : 3 * u));
        continue;
      }
      hsize_t dim[7];
      int n_dim = 1 + (int)(fabs(test_library_random(&random)) * 7);
      for (int d = 0; d < n_dim; d++)
        dim[d] = (hsize_t)(fabs(test_library_random(&random)) * (n_dim > 4 ? 8 : 12));
      const hid_t type[] = {H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE, H5T_NATIVE_INT, H5T_NATIVE_UCHAR};
      set_dataset(file, name, type[(int)(fabs(test_library_random(&random)) * 4)], n_dim, dim,
                  H5P_DEFAULT, test_library_random(&random) < 0.7);
      n_shape++;
    }
    nudge(file, "arms/arm0/layer0/bias", 1, 9); /* so that one that was left whole is refused */
    /* the dataset, the arm and the label, or the contents as a whole */
    assert_true(H5Fclose(file) >= 0);
    mill_library *lib = new_library();
    mill_error_clear();
    assert_int_equal(mill_library_read(path, lib), MILL_ERR_LIBRARY);
    assert_message(path);
    if (!strstr(mill_error_message(), "arms/arm0/grid") && !strstr(mill_error_message(), "arm b") &&
        !strstr(mill_error_message(), "attribute hash"))
      fail_msg("\"%s\" does not say where", mill_error_message());
    assert_null(lib->arm[0].emulator.grid.coef);
    free_library(lib);
  }
  assert_true(n_shape > 100);
}

static void test_grid_library_info(void **state)
{
  (void)state;
  mill_library *lib = new_library();
  char text[4096] = "";
  make_grid(4, 2, lib);
  mill_library_digest(lib, lib->hash);
  FILE *out = tmpfile();
  assert_non_null(out);
  assert_ok(mill_library_print(lib, out));
  rewind(out);
  assert_true(fread(text, 1, sizeof text - 1, out) > 0);
  fclose(out);
  static const char *const line[] = {
      "format  2\n", "    emulator grid 4x5x6x7-9-400, cubic splines, log flux, 11560 parameters\n",
      "    nodes teff 4 from 4315.19 to 6998.42, logg 5 from 0.8 to 5, feh 6 from -2.9 to 0.4, "
      "alpha 7 from -0.04 to 0.44; 9 components\n",
      "    emulator 4-12-9-437, SiLU, log flux, "};
  for (size_t i = 0; i < sizeof line / sizeof *line; i++)
    if (!strstr(text, line[i]))
      fail_msg("\"%s\" is not in\n%s", line[i], text);
  free_library(lib);
}

/* A file cut anywhere is refused, in one line. */
static void test_library_refuses_cut_files(void **state)
{
  (void)state;
  const char *path = in_folder("cut.h5");
  struct stat status;
  for (int i = 0; i < 16; i++) {
    H5Fclose(i < 8 ? start_broken(path) : start_broken_grid(path));
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(truncate(path, status.st_size * (2 * (i % 8) + 1) / 16), 0);
    expect_refused(path, "cut or damaged");
  }
}

/* ---- import --------------------------------------------------------------------------------- */

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

static void test_import_matrix_set(void **state)
{
  (void)state;
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

static void test_import_instrument_set(void **state)
{
  (void)state;
  IMPORT_FILES("nn");
  mill_library *lib = new_library();
  assert_ok(mill_library_import(path, 3, NAN, 50, lib));
  check_imported(lib);
  for (int i = 0; i < 3; i++)
    assert_close(lib->arm[i].template_sigma_aa, -1, 0);
  mill_library_clear(lib);
  /* what is given goes before what is assumed, and the names too */
  const char *const name[] = {"blue", "Red", "ir"};
  assert_ok(mill_library_import_named(path, name, 3, 0.25, 7, lib));
  assert_close(lib->arm[2].template_sigma_aa, 0.25, 0);
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
  assert_message(text);
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

static void test_import_refusals(void **state)
{
  (void)state;
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
                {"lam", 10, NAN, "is no wavelength"},
                {"outside/points", 5, INFINITY, "outside/points, row 1"},
                {"outside/hull01_equations", 0, 0.5, "facet 0 of hull 0"},
                {"mapper/log_ids", 0, 9, "names label 9"}};
  const char *broken = in_folder("emulator.h5");
  for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
    copy_file(path_r, broken);
    const hid_t file = H5Fopen(broken, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(file >= 0);
    nudge(file, change[i].dataset, change[i].i_element, change[i].delta);
    assert_true(H5Fclose(file) >= 0);
    expect_import_refused(&broken, 1, NAN, MILL_ERR_LIBRARY, change[i].text);
    assert_message(broken);
  }
  static const char *const needed[] = {
      "lam", "layer2/weight", "mapper/std", "mapper/log_ids", "outside/points", "check/spectra"};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
    copy_file(path_r, broken);
    const hid_t file = H5Fopen(broken, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(H5Ldelete(file, needed[i], H5P_DEFAULT) >= 0);
    assert_true(H5Fclose(file) >= 0);
    expect_import_refused(&broken, 1, NAN, MILL_ERR_LIBRARY, needed[i]);
  }
  copy_file(path_r, broken);
  hid_t file = H5Fopen(broken, H5F_ACC_RDWR, H5P_DEFAULT);
  set_attr_int(file, "/", "log_step", 0);
  assert_true(H5Fclose(file) >= 0);
  expect_import_refused(&broken, 1, NAN, MILL_ERR_LIBRARY, "log_step is false");

  /* a hull that is consistent in itself, but other than that of the first arm; the check values
     lie inside both or are left as they are, so the agreement of arms must find it */
  const char *const pair[] = {path_b, broken};
  copy_file(path_r, broken);
  file = H5Fopen(broken, H5F_ACC_RDWR, H5P_DEFAULT);
  nudge(file, "outside/hull23_equations", 2, -1e-8);
  assert_true(H5Fclose(file) >= 0);
  expect_import_refused(pair, 2, NAN, MILL_ERR_LIBRARY, "hulls are not those of");
  copy_file(path_r, broken);
  file = H5Fopen(broken, H5F_ACC_RDWR, H5P_DEFAULT);
  nudge(file, "mapper/mean", 1, 1e-8);
  assert_true(H5Fclose(file) >= 0);
  expect_import_refused(pair, 2, NAN, MILL_ERR_LIBRARY, "label logg is mapped otherwise");
}

int main(void)
{
  /* HDF5's own complaints about the files made wrong here */
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_library_round_trip),
      cmocka_unit_test(test_grid_library_round_trip),
      cmocka_unit_test(test_networks_stay_in_format_1),
      cmocka_unit_test(test_library_digest_is_as_documented),
      cmocka_unit_test(test_library_digest),
      cmocka_unit_test(test_grid_digest),
      cmocka_unit_test(test_library_write_refuses_existing),
      cmocka_unit_test(test_library_write_full_disk),
      cmocka_unit_test(test_library_check),
      cmocka_unit_test(test_grid_check),
      cmocka_unit_test(test_grid_of_many_labels_is_refused),
      cmocka_unit_test(test_library_refuses_foreign_files),
      cmocka_unit_test(test_library_refuses_other_formats),
      cmocka_unit_test(test_library_refuses_links_and_types),
      cmocka_unit_test(test_library_refuses_storage),
      cmocka_unit_test(test_library_reads_compressed),
      cmocka_unit_test(test_library_refuses_wrong_contents),
      cmocka_unit_test(test_library_refuses_wrong_grids),
      cmocka_unit_test(test_format_1_ignores_kinds),
      cmocka_unit_test(test_library_refuses_random_grids),
      cmocka_unit_test(test_grid_library_info),
      cmocka_unit_test(test_library_refuses_cut_files),
      cmocka_unit_test(test_import_matrix_set),
      cmocka_unit_test(test_import_instrument_set),
      cmocka_unit_test(test_import_refusals),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
