/* SPDX-License-Identifier: BSD-3-Clause */
/* Library files made wrong in shape, storage or contents: the refusal of each, and what is read all
   the same. */
#include "tests/io/library/library_fixture.h"

#include <sys/stat.h>

#define COEF "arms/arm0/grid/coefficients"

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

/* A good library file whose arm b has an emulator of a kind, open for changing. */
static hid_t start_kind(const char *path, int kind)
{
  mill_library *lib = new_library();
  make_kind(4, 2, kind, lib);
  assert_ok(test_library_add_error(3, lib));
  (void)remove(path); /* what was broken before is no library any more */
  assert_ok(test_library_write(path, lib));
  free_library(lib);
  return open_file(path);
}

static hid_t start_broken(const char *path)
{
  return start_kind(path, MILL_EMULATOR_MLP);
}

/* ---- one thing wrong at a time -------------------------------------------------------------- */

enum what { SET_INT, SET_TEXT, NO_ATTRIBUTE, MISSING, SHAPE, NEVER_WRITTEN, NUDGE };

typedef struct damage {
  enum what what;
  const char *object, *attribute, *says;
  double value; /* of the attribute, or what is added to element `at` */
  size_t at;
  const char *text;
  char type; /* of the dataset: float, double, integer */
  int n_dim;
  hsize_t dim[6];
} damage;

static void do_damage(hid_t file, const damage *d)
{
  switch (d->what) {
  case SET_INT:
    set_attr_int(file, d->object, d->attribute, (int)d->value);
    break;
  case SET_TEXT:
    set_attr_text(file, d->object, d->attribute, d->text);
    break;
  case NO_ATTRIBUTE:
    assert_true(H5Adelete_by_name(file, d->object, d->attribute, H5P_DEFAULT) >= 0);
    break;
  case MISSING:
    assert_true(H5Ldelete(file, d->object, H5P_DEFAULT) >= 0);
    break;
  case NUDGE:
    nudge(file, d->object, d->at, d->value);
    break;
  default:
    set_dataset(file, d->object,
                d->type == 'f'   ? H5T_NATIVE_FLOAT
                : d->type == 'd' ? H5T_NATIVE_DOUBLE
                                 : H5T_NATIVE_INT,
                d->n_dim, d->dim, H5P_DEFAULT, d->what == SHAPE);
  }
}

static void expect_all_refused(int kind, size_t n, const damage *d)
{
  const char *path = in_folder("damage.h5");
  for (size_t i = 0; i < n; i++) {
    char text[96];
    const hid_t file = start_kind(path, kind);
    do_damage(file, &d[i]);
    if (d[i].what == MISSING)
      snprintf(text, sizeof text, "/%s is missing", d[i].says ? d[i].says : d[i].object);
    else if (d[i].what == NO_ATTRIBUTE)
      snprintf(text, sizeof text, "attribute %s of %s is missing", d[i].attribute, d[i].object);
    end_broken(file, path, d[i].what == MISSING || d[i].what == NO_ATTRIBUTE ? text : d[i].says);
  }
}

#define REFUSED(kind, table) expect_all_refused(kind, sizeof table / sizeof *table, table)
#define LOST(path)                                                                                 \
  {                                                                                                \
    .what = MISSING, .object = path                                                                \
  }
#define BARE(path, key)                                                                            \
  {                                                                                                \
    .what = NO_ATTRIBUTE, .object = path, .attribute = key                                         \
  }
#define INT(object, name, x, message)                                                              \
  {                                                                                                \
    SET_INT, object, name, message, .value = x                                                     \
  }
#define WORD(object, name, word, message)                                                          \
  {                                                                                                \
    SET_TEXT, object, name, message, .text = word                                                  \
  }
#define DATA(name, letter, message, n, ...)                                                        \
  {                                                                                                \
    SHAPE, name, NULL, message, .type = letter, .n_dim = n, .dim = { __VA_ARGS__ }                 \
  }
#define ADD(name, i, delta, message)                                                               \
  {                                                                                                \
    NUDGE, name, NULL, message, .value = delta, .at = i                                            \
  }
#define HASH "do not match its attribute hash"

MILL_TEST(library_refuses_wrong_contents)
{
  static const damage wrong[] = {
      INT("/", "format_version", MILL_LIBRARY_FORMAT + 1, "has library format 5"),
      WORD("/", "format", "starmill results", "not a starmill library"),
      INT("/", "format", 5, "attribute format of / is not a text"),
      WORD("arms/arm0", "activation", "relu", "activation of arm b"),
      WORD("arms/arm0", "emulator", "forest", "the emulator of arm b"),
      INT("labels", "n_label", MILL_MAX_LABEL + 1, "n_label of labels is 17"),
      INT("labels", "n_label", -1, "n_label of labels is -1"),
      INT("labels", "n_label", 5, "/labels/label4 is missing"),
      INT("hulls", "n_hull", MILL_MAX_HULL + 1, "n_hull of hulls is 17"),
      INT("arms", "n_arm", MILL_MAX_ARM + 1, "n_arm of arms is 9"),
      INT("arms", "n_arm", 3, "arms/arm2 is missing"),
      INT("arms/arm0", "n_layer", MILL_MAX_LAYER + 1, "n_layer of arms/arm0 is 13"),
      INT("arms/arm0", "n_layer", 4, "layer3/weight is missing"),
      INT("arms/arm0", "log_flux", 7, "log_flux of arm b is 7"),
      LOST("labels"),
      LOST("labels/label1"),
      LOST("hulls"),
      LOST("hulls/hull1/labels"),
      LOST("hulls/hull1/facets"),
      LOST("arms"),
      LOST("arms/arm1/wavelength"),
      LOST("arms/arm1/layer1/weight"),
      LOST("arms/arm1/layer1/bias"),
      LOST("guess/labels"),
      LOST("guess/vsini"),
      BARE("/", "name"),
      BARE("/", "hash"),
      BARE("labels/label2", "unit"),
      BARE("labels/label2", "scale"),
      BARE("arms/arm1", "ln_step"),
      BARE("arms/arm1", "template_sigma"),
      BARE("arms/arm1", "emulator"),
      DATA("arms/arm0/layer0/bias", 'f', "11 elements along dimension 0, expected 12", 1, 11),
      DATA("arms/arm0/layer0/bias", 'f', "2 dimensions, expected 1", 2, 12, 4),
      DATA("arms/arm0/layer0/weight", 'd', "holds 8-byte numbers, expected 4", 2, 12, 4),
      DATA("arms/arm0/layer0/weight", 'i', "does not hold floating-point numbers", 2, 12, 4),
      DATA("arms/arm0/layer0/weight", 'f', "has the shape [2000][4]", 2, 2000, 4),
      {NEVER_WRITTEN, "arms/arm0/layer0/weight", NULL, "was never written", .type = 'f', .n_dim = 2,
       .dim = {12, 4}},
      DATA("guess/vsini", 'd', "has the shape [9], expected [1 to 8]", 1, 9),
      DATA("hulls/hull0/facets", 'd', "[12][4]", 2, 12, 4),
      WORD("labels/label0", "name", "a name that is much longer than any label's name may be",
           "longer than 31 bytes"),
      WORD("labels/label0", "mean", "3.7", "attribute mean of labels/label0 is not a number"),
      DATA("arms/arm1/model_error/fraction", 'f', "fraction", 1, 2),
      DATA("arms/arm1/model_error/components", 'f', "expected [1 to 16]", 2, 2, 5),
      DATA("arms/arm1/model_error/sigmas", 'd', "sigmas", 1, 2),
      /* right in every shape, but not what was written */
      DATA("arms/arm0/layer0/bias", 'f', HASH, 1, 12)};
  REFUSED(MILL_EMULATOR_MLP, wrong);
}

/* A grid of 4, 5, 6 and 7 nodes and 9 components. */
MILL_TEST(library_refuses_wrong_grids)
{
  static const damage wrong[] = {
      WORD("arms/arm0", "emulator", "mlp", "attribute activation of arms/arm0 is missing"),
      WORD("arms/arm1", "emulator", "grid", "arms/arm1/grid is missing"),
      WORD("arms/arm1", "activation", "relu", "activation of arm r"),
      INT("arms/arm0", "n_layer", 2, "layer1/weight is missing"),
      INT("arms/arm0/grid", "degree", 2, "attribute degree of arms/arm0/grid is 2"),
      LOST("arms/arm0/grid"),
      LOST(COEF),
      LOST("arms/arm0/grid/knots0"),
      LOST("arms/arm0/grid/knots3"),
      DATA(COEF, 'f', "has the shape [3][5]", 5, 3, 5, 6, 7, 9),
      DATA(COEF, 'f', "[257]", 5, 4, 5, 6, 257, 9),
      DATA(COEF, 'f', "[1025]", 5, 4, 5, 6, 7, 1025),
      DATA(COEF, 'f', "4 dimensions, expected 5", 4, 4, 5, 6, 63),
      DATA(COEF, 'f', "1 dimensions, expected 5", 1, 7560),
      DATA(COEF, 'f', "knots1", 5, 4, 6, 6, 7, 9),
      DATA(COEF, 'f', "takes 9 inputs, expected 8", 5, 4, 5, 6, 7, 8),
      DATA(COEF, 'd', "holds 8-byte numbers, expected 4", 5, 4, 5, 6, 7, 9),
      DATA(COEF, 'i', "does not hold floating-point numbers", 5, 4, 5, 6, 7, 9),
      {NEVER_WRITTEN, COEF, NULL, "was never written", .type = 'f', .n_dim = 5,
       .dim = {4, 5, 6, 7, 9}},
      DATA(COEF, 'f', HASH, 5, 4, 5, 6, 7, 9),
      DATA("arms/arm0/grid/knots0", 'd', "9 elements along dimension 0, expected 8", 1, 9),
      DATA("arms/arm0/grid/knots0", 'd', "2 dimensions, expected 1", 2, 8, 1),
      ADD("arms/arm0/grid/knots2", 5, NAN, "knot 5 of label feh of arm b is not finite"),
      ADD("arms/arm0/grid/knots2", 5, -9, "do not ascend"),
      ADD("arms/arm0/grid/knots2", 3, 1, "are not equal"),
      ADD("arms/arm0/grid/knots2", 9, 77, "are not equal"),
      ADD(COEF, 0, INFINITY, "coefficient that is not finite"),
      ADD(COEF, 7559, NAN, "coefficient that is not finite"),
      ADD(COEF, 7559, 0.5, HASH)};
  REFUSED(MILL_EMULATOR_GRID, wrong);
}

/* 70 centers in 4 labels and a polynomial of degree 1, 9 components. */
MILL_TEST(library_refuses_wrong_radial_functions)
{
#define RBF "arms/arm0/rbf"
  static const damage wrong[] = {
      LOST(RBF "/centers"),
      LOST(RBF "/lengths"),
      LOST(RBF "/coefficients"),
      BARE(RBF, "degree"),
      INT(RBF, "degree", 9, "degree of arms/arm0/rbf is 9"),
      INT(RBF, "degree", 2, "expected [85]"),
      DATA(RBF "/centers", 'd', "expected [1 to 65536][4]", 2, 70, 3),
      DATA(RBF "/centers", 'd', "has the shape [65537][4]", 2, 65537, 4),
      DATA(RBF "/centers", 'd', "1 dimensions, expected 2", 1, 280),
      DATA(RBF "/centers", 'd', HASH, 2, 70, 4),
      DATA(RBF "/lengths", 'd', "3 elements along dimension 0, expected 4", 1, 3),
      DATA(RBF "/lengths", 'd', "length 0 of label teff", 1, 4),
      DATA(RBF "/coefficients", 'f', "expected [75]", 2, 70, 9),
      DATA(RBF "/coefficients", 'f', "[75][1 to 1024]", 2, 75, 1025),
      DATA(RBF "/coefficients", 'f', "takes 9 inputs, expected 8", 2, 75, 8),
      DATA(RBF "/coefficients", 'd', "8-byte numbers", 2, 75, 9),
      DATA(RBF "/coefficients", 'f', HASH, 2, 75, 9)};
#undef RBF
  REFUSED(MILL_EMULATOR_RBF, wrong);
}

/* Sixteen tebibytes that take no room in the file. */
MILL_TEST(library_refuses_a_huge_grid)
{
  const char *path = in_folder("huge.h5");
  const hsize_t huge[5] = {256, 256, 256, 256, 1024}, chunk[5] = {1, 1, 1, 1, 1024};
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(H5Pset_chunk(creation, 5, chunk) >= 0);
  const hid_t file = start_kind(path, MILL_EMULATOR_GRID);
  assert_true(H5Ldelete(file, COEF, H5P_DEFAULT) >= 0);
  const hid_t space = H5Screate_simple(5, huge, NULL);
  const hid_t dataset =
      H5Dcreate2(file, COEF, H5T_NATIVE_FLOAT, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  assert_true(dataset >= 0);
  H5Dclose(dataset);
  H5Sclose(space);
  H5Pclose(creation);
  end_broken(file, path, "claims 17592186044416 bytes, more than the file's");
}

/* ---- foreign files, links, storage ---------------------------------------------------------- */

MILL_TEST(library_refuses_foreign_files)
{
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

MILL_TEST(library_refuses_links_and_types)
{
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

MILL_TEST(library_refuses_storage)
{
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
MILL_TEST(library_reads_compressed)
{
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

/* A file cut anywhere is refused, in one line. */
MILL_TEST(library_refuses_cut_files)
{
  const char *path = in_folder("cut.h5");
  struct stat status;
  for (int i = 0; i < 16; i++) {
    H5Fclose(i < 8 ? start_broken(path) : start_kind(path, MILL_EMULATOR_GRID));
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(truncate(path, status.st_size * (2 * (i % 8) + 1) / 16), 0);
    expect_refused(path, "cut or damaged");
  }
}

int main(void)
{
  /* HDF5's own complaints about the files made wrong here */
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  return MILL_RUN_TESTS(make_folder, remove_folder);
}
