/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables to start from: which columns and rows of FITS and HDF5 files count. */
#include "tests/io/fits/fits_maker.h"
#include "tests/mill_test.h"

#include "io/catalog/start_table.h"
#include "kernels/base/error.h"
#include "tests/io/result_maker.h"

enum { N_ROW = 5 };

static char folder[1024], path[1200];

static mill_library lib;
static mill_fit_settings settings;
static mill_start_table *t;

static void name_label(const char *name, const char *column)
{
  mill_label *label = &lib.label[lib.n_label++];
  snprintf(label->name, sizeof label->name, "%s", name);
  snprintf(label->column, sizeof label->column, "%s", column);
}

/* Teff and alpha: one label whose column has another name */
static int make_library(void **state)
{
  (void)state;
  memset(&lib, 0, sizeof lib);
  memset(&settings, 0, sizeof settings);
  name_label("teff", "TEFF");
  name_label("alpha", "ALPHAFE");
  return 0;
}

/* The table at path becomes t. */
static void read_table(void)
{
  mill_start_table_free(t);
  assert_int_equal(mill_start_table_read(path, &lib, &settings, NULL, &t), MILL_OK);
}

static int free_table(void **state)
{
  (void)state;
  mill_start_table_free(t);
  t = NULL;
  return 0;
}

/* rows 1 and 3 are of one star, row 2 of none */
static const int64_t ids[N_ROW] = {39, -7, -1, -7, INT64_MAX};
static const double vrad[N_ROW] = {1.5, -20.0, 3.0, 40.0, 5.0};
static const double vsini[N_ROW] = {0.0, 11.0, 12.0, 13.0, 14.0};
static const float teff[N_ROW] = {4000.0f, NAN, 4200.0f, 4300.0f, 4400.0f};
static const double alpha[N_ROW] = {0.25, 0.0, 0.1, 0.2, INFINITY};
static const char names[N_ROW][6] = {"a    ", "b    ", "star ", "star ", "e    "};

static const maker_column all_columns[] = {
    {"TargetId", "K", ids}, {"Vrad", "D", vrad},   {"vsini", "1D", vsini},
    {"TEFF", "E", teff},    {"Alpha", "D", alpha}, {"OBJECT", "6A", names},
};

static void save(fits_maker *m)
{
  snprintf(path, sizeof path, "%s/table.fits", folder);
  maker_save(m, path);
  maker_clear(m);
}

static void save_table(int n_column, const maker_column *columns)
{
  fits_maker m = {0};
  maker_primary(&m);
  maker_table(&m, "T", N_ROW, n_column, columns);
  save(&m);
}

static void assert_given(int64_t id, const char *object, double v, double rotation, double label0,
                         double label1)
{
  const double *theta;
  assert_int_equal(mill_start_table_find(t, id, object, &theta), MILL_START_GIVEN);
  assert_true(theta[0] == v && theta[1] == rotation && theta[2] == label0 && theta[3] == label1);
}

static void assert_not_given(int64_t id, const char *object, int found)
{
  const double *theta = vrad;
  assert_int_equal(mill_start_table_find(t, id, object, &theta), found);
  assert_null(theta);
}

static void assert_refused(const char *part)
{
  mill_start_table *none = (mill_start_table *)(void *)&none;
  assert_int_equal(mill_start_table_read(path, &lib, &settings, NULL, &none), MILL_ERR_CONFIG);
  assert_null(none);
  assert_says(path);
  assert_says(part);
}

MILL_TEST(rows_of_a_fits_table)
{
  save_table(6, all_columns);
  read_table();
  assert_int_equal(mill_start_table_n_repeated(t), 1);
  assert_given(39, "", 1.5, 0.0, 4000.0, 0.25);
  /* the first row of -7 has no Teff: the next one counts */
  assert_given(-7, "", 40.0, 13.0, 4300.0, 0.2);
  assert_not_given(INT64_MAX, "", MILL_START_NOT_FINITE);
  assert_not_given(38, "", MILL_START_ABSENT);
  assert_not_given(INT64_MIN, "", MILL_START_ABSENT);
  /* a name finds only what has no TARGETID, and without a name there is nothing to find */
  assert_given(-1, "star", 3.0, 12.0, (double)4200.0f, 0.1);
  assert_not_given(-1, "a", MILL_START_ABSENT);
  assert_not_given(-1, "", MILL_START_ABSENT);
  assert_not_given(5, "star", MILL_START_ABSENT);
}

MILL_TEST(names_alone)
{
  save_table(5, all_columns + 1);
  read_table();
  assert_int_equal(mill_start_table_n_repeated(t), 1);
  assert_given(-1, "a", 1.5, 0.0, 4000.0, 0.25);
  assert_given(-1, "star", 3.0, 12.0, 4200.0, 0.1);
  assert_not_given(-1, "b", MILL_START_NOT_FINITE);
  assert_not_given(-1, "st", MILL_START_ABSENT);
  assert_not_given(39, "a", MILL_START_ABSENT);
}

MILL_TEST(first_table_with_the_columns)
{
  fits_maker m = {0};
  const long axis[] = {2};
  const float image[] = {1.0f, 2.0f};
  double other[N_ROW];
  maker_column later[6];
  memcpy(later, all_columns, sizeof later);
  for (int i = 0; i < N_ROW; i++)
    other[i] = 99.0;
  later[1].values = other;
  maker_primary(&m);
  maker_image(&m, "I", -32, 1, axis, image, NULL);
  maker_table(&m, "FIBERMAP", N_ROW, 2, all_columns);
  maker_table(&m, "RVTAB", N_ROW, 6, all_columns);
  maker_table(&m, "OTHER", N_ROW, 6, later);
  save(&m);
  read_table();
  assert_given(39, "", 1.5, 0.0, 4000.0, 0.25);
}

MILL_TEST(fixed_parameters_need_no_column)
{
  const maker_column columns[] = {all_columns[0], all_columns[1], all_columns[3]};
  save_table(3, columns);
  assert_refused("HDU 2 (T) lacks VSINI ALPHAFE ");
  settings.fixed[1] = settings.fixed[3] = 1;
  settings.fixed_value[1] = 7.0;
  settings.fixed_value[3] = 0.4;
  read_table();
  assert_given(39, "", 1.5, 7.0, 4000.0, 0.4);
  /* where the column is there, too: [alpha/Fe] of the last star is infinite */
  save_table(6, all_columns);
  read_table();
  assert_given(INT64_MAX, "", 5.0, 7.0, 4400.0, 0.4);
}

MILL_TEST(hash_is_of_the_contents)
{
  char first[65];
  double changed[N_ROW];
  save_table(6, all_columns);
  read_table();
  snprintf(first, sizeof first, "%s", mill_start_table_hash(t));
  assert_int_equal(strlen(first), 64);
  /* another order of the columns, and in the second round another value of row k */
  for (int k = -1; k < N_ROW; k++) {
    memcpy(changed, vsini, sizeof changed);
    if (k >= 0)
      changed[k] += 1e-9;
    const maker_column columns[] = {all_columns[5], {"VSINI", "D", changed}, all_columns[1],
                                    all_columns[3], all_columns[4],          all_columns[0]};
    save_table(6, columns);
    read_table();
    /* rows 1 and 4 are not finite, so no fit takes anything from them */
    const int counts = k >= 0 && k != 1 && k != 4;
    assert_int_equal(strcmp(first, mill_start_table_hash(t)) != 0, counts);
  }
}

MILL_TEST(bad_fits_files)
{
  fits_maker m = {0};
  maker_primary(&m);
  save(&m);
  assert_refused("no table");
  const maker_column wide[] = {
      all_columns[0], {"VRAD", "2D", ids}, all_columns[2], all_columns[3], all_columns[4]};
  maker_primary(&m);
  maker_table(&m, "T", 2, 5, wide);
  save(&m);
  assert_refused("column VRAD must hold one number");
  save_table(4, all_columns + 1); /* nothing to find stars by */
  assert_refused("lacks TARGETID");
  maker_primary(&m);
  maker_table(&m, "T", 0, 6, all_columns);
  save(&m);
  assert_refused("no rows");
  maker_save_bytes(path, "TARGETID VRAD\n", 14);
  assert_refused("start");
  maker_save_bytes(path, "", 0);
  assert_refused("start");
  snprintf(path, sizeof path, "%s/none.fits", folder);
  assert_refused("cannot be opened");
}

/* ---- HDF5 ---- */

/* A column of rows that take no room in the file. */
static void put_empty(hid_t file, const char *name, hsize_t n)
{
  const hsize_t chunk = 1;
  const hid_t space = H5Screate_simple(1, &n, NULL), creation = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(H5Pset_chunk(creation, 1, &chunk) >= 0);
  const hid_t set =
      H5Dcreate2(file, name, H5T_NATIVE_INT64, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  assert_true(set >= 0);
  H5Dclose(set);
  H5Pclose(creation);
  H5Sclose(space);
}

/* A result: without the dataset `left_out` (NULL: none). */
static void save_result(const char *left_out)
{
  const hid_t text = mill_ph5_text_type(6);
  double teff64[N_ROW];
  int32_t info[N_ROW];
  char packed[N_ROW][6];
  memset(packed, 0, sizeof packed);
  for (int i = 0; i < N_ROW; i++) {
    teff64[i] = (double)teff[i];
    info[i] = i;
    memcpy(packed[i], names[i], strcspn(names[i], " "));
  }
  memcpy(packed[3], "sixsix", 6); /* as long as the type: no zero after it */
  const maker_dataset data[] = {
      {"fits/TARGETID", H5T_STD_I64LE, ids},   {"fits/VRAD", H5T_IEEE_F64LE, vrad},
      {"fits/VSINI", H5T_IEEE_F64LE, vsini},   {"fits/TEFF", H5T_IEEE_F64LE, teff64},
      {"fits/ALPHAFE", H5T_IEEE_F64LE, alpha}, {"fits/FIT_INFO", H5T_STD_I32LE, info},
      {"catalog/OBJECT", text, packed}};
  snprintf(path, sizeof path, "%s/result.h5", folder);
  maker_result(path, H5P_DEFAULT, N_ROW, sizeof data / sizeof *data, data, left_out);
  H5Tclose(text);
}

/* One value of row i of a column of /fits changes. */
static void change(const char *name, hsize_t i, hid_t type, const void *value)
{
  const hsize_t one = 1;
  const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t set = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(set);
  const hid_t memory = H5Screate_simple(1, &one, NULL);
  assert_true(H5Sselect_elements(space, H5S_SELECT_SET, 1, &i) >= 0);
  assert_true(H5Dwrite(set, type, memory, space, H5P_DEFAULT, value) >= 0);
  H5Sclose(memory);
  H5Sclose(space);
  H5Dclose(set);
  H5Fclose(file);
}

MILL_TEST(rows_of_a_result_file)
{
  save_result(NULL);
  read_table();
  assert_given(39, "", 1.5, 0.0, 4000.0, 0.25);
  assert_given(-7, "", 40.0, 13.0, 4300.0, 0.2);
  assert_given(-1, "star", 3.0, 12.0, 4200.0, 0.1);
  assert_not_given(INT64_MAX, "", MILL_START_NOT_FINITE);
  char from_result[65];
  snprintf(from_result, sizeof from_result, "%s", mill_start_table_hash(t));
  /* the same values in a FITS table are the same start */
  save_table(6, all_columns);
  read_table();
  assert_string_equal(mill_start_table_hash(t), from_result);
  /* a damaged row is no start, nor is one that is not done */
  const double other = 2.0;
  const int32_t not_done = MILL_STATUS_NOT_DONE;
  save_result(NULL);
  change("fits/VRAD", 0, H5T_NATIVE_DOUBLE, &other);
  change("fits/STATUS", 3, H5T_NATIVE_INT32, &not_done);
  read_table();
  assert_not_given(39, "", MILL_START_ABSENT);
  assert_not_given(-1, "a", MILL_START_ABSENT);
  assert_not_given(-7, "", MILL_START_NOT_FINITE);
  assert_given(-1, "star", 3.0, 12.0, 4200.0, 0.1);
}

MILL_TEST(bad_hdf5_files)
{
  static const char *const needed[] = {"fits/TARGETID", "fits/ALPHAFE", "fits/FIT_INFO",
                                       "catalog/OBJECT"};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
    save_result(needed[i]);
    assert_refused(needed[i]);
  }
  /* some 100 GB, were they believed */
  save_result(NULL);
  hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  assert_true(H5Ldelete(file, "fits/STATUS", H5P_DEFAULT) >= 0);
  put_empty(file, "fits/STATUS", 2000000000);
  H5Fclose(file);
  assert_refused("/fits/STATUS claims 16000000000 bytes");
  file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(file);
  assert_refused("not a result of starmill");
  maker_save_bytes(path, "\x89HDF\r\n\x1a\n and no more", 20);
  assert_refused("HDF5");
}

static int setup(void **state)
{
  (void)state;
  maker_folder(folder, sizeof folder);
  return 0;
}

static int teardown(void **state)
{
  (void)state;
  maker_remove_folder(folder);
  return 0;
}

int main(void)
{
  return mill_run_tests(setup, teardown, make_library, free_table);
}
