/* Library files made wrong in shape, storage or contents: the refusal of each, and what is read all
   the same. */
#include "tests/io/library/library_fixture.h"

#include <sys/stat.h>

/* A good library file, open for changing. */
static hid_t start_broken(const char *path)
{
  mill_library *lib = new_library();
  make(4, 2, lib);
  (void)remove(path); /* what was broken before is no library any more */
  assert_ok(mill_library_write(path, lib, 1));
  free_library(lib);
  return open_file(path);
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

static void change_error(mill_library *lib, int which)
{
  mill_model_error *error = &lib->arm[1].error;
  switch (which) {
  case 0:
    error->fraction[7] = NAN;
    break;
  case 1:
    error->fraction[7] = -0.1f;
    break;
  case 2:
    error->component[11] = INFINITY;
    break;
  case 3:
    error->sigma[1] = -1;
    break;
  case 4:
    error->correlation = NAN;
    break;
  default:
    error->n_component = MILL_MAX_ERROR + 1;
    break;
  }
}

/* Neither written nor, with shapes that do not fit, read. */
static void test_library_refuses_a_wrong_model_error(void **state)
{
  (void)state;
  static const char *const text[] = {"in pixel 7",         "in pixel 7",
                                     "not finite",         "component 1 of the",
                                     "is correlated over", "has 17 components"};
  const char *path = in_folder("error.h5");
  for (int which = 0; which < 6; which++) {
    mill_library *lib = new_library();
    make(4, 2, lib);
    assert_ok(test_library_add_error(3, lib));
    change_error(lib, which);
    assert_int_equal(mill_library_write(path, lib, 1), MILL_ERR_LIBRARY);
    assert_message(text[which]);
    assert_message("arm r");
    free_library(lib);
  }
  for (int which = 0; which < 3; which++) {
    static const char *const name[] = {"fraction", "components", "sigmas"};
    static const char *const complaint[] = {"fraction", "expected 1 to 16 components", "sigmas"};
    const hsize_t dim[2] = {2, 5};
    char at[64];
    mill_library *lib = new_library();
    make(4, 2, lib);
    assert_ok(test_library_add_error(3, lib));
    assert_ok(mill_library_write(path, lib, 1));
    free_library(lib);
    const hid_t file = open_file(path);
    snprintf(at, sizeof at, "arms/arm1/model_error/%s", name[which]);
    set_dataset(file, at, which == 2 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE, which == 1 ? 2 : 1, dim,
                H5P_DEFAULT, 1);
    end_broken(file, path, complaint[which]);
  }
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

int main(void)
{
  /* HDF5's own complaints about the files made wrong here */
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_library_refuses_foreign_files),
      cmocka_unit_test(test_library_refuses_other_formats),
      cmocka_unit_test(test_library_refuses_a_wrong_model_error),
      cmocka_unit_test(test_library_refuses_links_and_types),
      cmocka_unit_test(test_library_refuses_storage),
      cmocka_unit_test(test_library_reads_compressed),
      cmocka_unit_test(test_library_refuses_wrong_contents),
      cmocka_unit_test(test_library_refuses_wrong_grids),
      cmocka_unit_test(test_format_1_ignores_kinds),
      cmocka_unit_test(test_library_refuses_random_grids),
      cmocka_unit_test(test_library_refuses_cut_files),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
