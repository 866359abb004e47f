/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of columns: names, packing, CRC, and the documentation made from it. */
#include "tests/mill_test.h"

#include <zlib.h>

#include "io/result/stored_rows.h"
#include "tests/test_library.h"

static mill_library lib;
static mill_columns columns;
static mill_fit_result result;
static char row[1 << 16];

static void name_label(const char *name, const char *column)
{
  mill_label *label = &lib.label[lib.n_label++];
  snprintf(label->name, sizeof label->name, "%s", name);
  snprintf(label->column, sizeof label->column, "%s", column);
}

/* labels and arms of the table in the documentation */
static MILL_FIXTURE(make_library)
{
  memset(&lib, 0, sizeof lib);
  memset(row, 0, sizeof row);
  test_library_name(4, 3, &lib);
  return 0;
}

/* Make the columns of lib, and a result with this status. */
static void make_columns(int with, int status)
{
  assert_ok(mill_columns_fits(&lib, lib.path, with, &columns));
  assert_true(columns.row_size < sizeof row);
  mill_fit_result_init(&result, &lib, 3, status);
}

static const mill_column *column(const char *name)
{
  for (int i = 0; i < columns.n_column; i++)
    if (strcmp(columns.column[i].name, name) == 0)
      return &columns.column[i];
  fail_msg("no column %s", name);
  return NULL;
}

static double f64_at(const char *name, int k)
{
  double value;
  assert_in_range(k, 0, column(name)->n_value - 1);
  memcpy(&value, row + column(name)->at + k * (int)sizeof value, sizeof value);
  return value;
}

static int64_t integer_at(const char *name)
{
  int64_t wide;
  int32_t narrow;
  memcpy(&wide, row + column(name)->at, sizeof wide);
  memcpy(&narrow, row + column(name)->at, sizeof narrow);
  return column(name)->type == MILL_TYPE_I64 ? wide : narrow;
}

MILL_TEST(columns_follow_the_library)
{
  memset(&lib, 0, sizeof lib);
  test_library_name(1, 1, &lib);
  snprintf(lib.arm[0].name, sizeof lib.arm[0].name, "blue");
  assert_ok(mill_columns_fits(&lib, lib.path, 0, &columns));
  assert_string_equal(columns.column[0].name, "TARGETID");
  assert_string_equal(columns.column[columns.n_column - 1].name, "STATUS");
  assert_string_equal(columns.column[columns.n_column - 2].name, "CRC");
  assert_int_equal(column("COVAR")->n_value, 6);
  assert_string_equal(column("TEFF_ERR")->unit, "K");
  column("CHISQ_C_BLUE");
  size_t at = 0;
  for (int i = 0; i < columns.n_column; i++) {
    assert_int_equal(columns.column[i].at, at);
    at += columns.column[i].n_byte;
  }
  assert_int_equal(columns.row_size, at);
}

MILL_TEST(largest_library_fits)
{
  memset(&lib, 0, sizeof lib);
  for (int i = 0; i < MILL_MAX_LABEL; i++) {
    char name[MILL_MAX_NAME];
    snprintf(name, sizeof name, "a_long_name_of_a_label_%08u", (unsigned)i % 100);
    name_label(name, name);
  }
  lib.n_arm = MILL_MAX_ARM;
  for (int i = 0; i < MILL_MAX_ARM; i++)
    snprintf(lib.arm[i].name, sizeof lib.arm[i].name, "a_long_name_of_one_arm_%08u",
             (unsigned)i % 100);
  assert_ok(mill_columns_fits(&lib, lib.path,
                              MILL_WITH_OFFSETS | MILL_WITH_BACKEND | MILL_WITH_POSTERIOR |
                                  MILL_WITH_DRAWS(MILL_MAX_DRAW),
                              &columns));
  assert_true(columns.n_column <= MILL_MAX_COLUMN);
  assert_int_equal(column("COVAR")->n_value, MILL_MAX_COVAR);
  column("a_long_name_of_a_label_00000015_ERR");
  column("CHISQ_C_A_LONG_NAME_OF_ONE_ARM_00000007");
  column("VRAD_OFFSET_A_LONG_NAME_OF_ONE_ARM_00000007_ERR");
}

/* Of these labels only the second is an element. */
MILL_TEST(elements_have_flags)
{
  memset(&lib, 0, sizeof lib);
  for (int i = 0; i < 4; i++)
    name_label((const char *[]){"alpha", "mg", "fe", "all"}[i],
               (const char *[]){"ALPHAFE", "MGFE", "FE", "MGFEH"}[i]);
  assert_ok(mill_columns_fits(&lib, lib.path, 0, &columns));
  for (int i = 0; i < 4; i++) {
    char name[MILL_MAX_NAME + sizeof "_FLAG"];
    snprintf(name, sizeof name, "%s_FLAG", lib.label[i].column);
    assert_int_equal(mill_columns_find(&columns, name) >= 0, i == 1);
  }
  mill_fit_result_init(&result, &lib, 3, MILL_STATUS_FITTED);
  mill_columns_pack(&columns, &result, row);
  assert_int_equal(integer_at("MGFE_FLAG"), MILL_ELEMENT_NONE);
  assert_int_equal(column("MGFE_FLAG")->missing, MILL_ELEMENT_NONE);
}

MILL_TEST(two_columns_of_one_name_are_refused)
{
  const struct {
    char *name;
    const char *is, *says;
  } bad[] = {{lib.label[2].column, "VRAD", "VRAD"},
             {lib.arm[1].name, "c_b", "where: two columns of the result"},
             {lib.arm[1].name, "TOT", "two columns"},
             {lib.label[0].column, "A/B", "A/B"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    make_library(state);
    snprintf(bad[i].name, MILL_MAX_NAME, "%s", bad[i].is);
    assert_fails(mill_columns_fits(&lib, "where", 0, &columns), MILL_ERR_LIBRARY, bad[i].says);
  }
}

MILL_TEST(pack_takes_every_value)
{
  const struct {
    const char *column;
    double *at, value;
  } set[] = {{"VRAD", &result.vrad_km_s, -12.5},
             {"ALPHAFE", &result.label[3], 0.25},
             {"TEFF_ERR", &result.label_err[0], 13},
             {"TEFF_ERR_FORMAL", &result.label_err_formal[0], 12},
             {"SN_Z", &result.sn[2], 42},
             {"CHISQ_C_R", &result.chisq_c[1], 9},
             {"RCHISQ_Z", &result.rchisq[2], 1.5},
             {"VRAD_R", &result.vrad_arm_km_s[1], -11}};
  make_columns(0, MILL_STATUS_FITTED);
  for (size_t i = 0; i < sizeof set / sizeof *set; i++)
    *set[i].at = set[i].value;
  result.covar[20] = 7;
  result.n_pix[0] = 2700;
  mill_columns_pack(&columns, &result, row);
  for (size_t i = 0; i < sizeof set / sizeof *set; i++)
    assert_close(f64_at(set[i].column, 0), set[i].value, 0);
  assert_true(isnan(f64_at("LOGG", 0)));
  assert_close(f64_at("COVAR", 20), 7, 0);
  assert_int_equal(integer_at("NPIX_B"), 2700);
  assert_int_equal(integer_at("STATUS"), MILL_STATUS_FITTED);
  for (int k = 0; k < 3; k++) { /* a warning, or no fit, is no success */
    result.warn = k == 1 ? MILL_WARN_HULL : 0;
    result.status = k == 2 ? MILL_STATUS_LOW_SN : MILL_STATUS_FITTED;
    mill_columns_pack(&columns, &result, row);
    assert_int_equal(row[column("SUCCESS")->at], k == 0);
  }
}

/* A row that was not fitted has missing values and a reason, whatever its memory held before. */
MILL_TEST(values_that_do_not_exist_are_missing)
{
  memset(&result, 0x5a, sizeof result);
  make_columns(MILL_WITH_OFFSETS, MILL_STATUS_UNREADABLE);
  mill_columns_pack(&columns, &result, row);
  for (int i = 0; i < columns.n_column; i++) {
    const mill_column *c = &columns.column[i];
    for (int k = 0; k < c->n_value && c->type == MILL_TYPE_F64; k++) {
      const double value = f64_at(c->name, k);
      if (isnan(c->missing) ? !isnan(value) : value != c->missing)
        fail_msg("%s is %g", c->name, value);
    }
  }
}

/* A row without a posterior has missing values, a row with a posterior its numbers and samples. */
MILL_TEST(posteriors_are_packed_with_their_samples)
{
  mill_columns plain;
  static struct {
    mill_posterior posterior;
    double draw[2 * MILL_MAX_PAR];
  } of;
  const int n_par = lib.n_label + 2;
  assert_ok(mill_columns_fits(&lib, lib.path, 0, &plain));
  assert_ok(mill_columns_fits(&lib, lib.path, MILL_WITH_POSTERIOR, &columns));
  assert_int_equal(columns.n_column, plain.n_column + 21);
  assert_ok(mill_columns_fits(&lib, lib.path, MILL_WITH_POSTERIOR | MILL_WITH_DRAWS(2), &columns));
  assert_int_equal(columns.n_column, plain.n_column + 22);
  assert_true(columns.row_size < sizeof row);
  mill_fit_result_init(&result, &lib, 0, MILL_STATUS_LOW_SN);
  mill_columns_pack(&columns, &result, row);
  assert_true(isnan(f64_at("POST_P97_5", 0)));
  assert_int_equal(integer_at("POST_FLAG"), 0);
  memset(&of, 0, sizeof of);
  of.posterior.flag = MILL_POST_HULL;
  of.posterior.percentile[4][n_par - 1] = 97.5;
  of.posterior.ess[0] = 1.25;
  for (int i = 0; i < 2 * n_par; i++)
    of.draw[i] = i;
  result.posterior = &of.posterior;
  mill_columns_pack(&columns, &result, row);
  assert_int_equal(integer_at("POST_FLAG"), MILL_POST_HULL);
  assert_close(f64_at("POST_P97_5", n_par - 1), 97.5, 0);
  assert_close(f64_at("POST_ESS", 0), 1.25, 0);
  assert_int_equal(column("POST_DRAWS")->n_value, 2 * n_par);
  for (int i = 0; i < 2 * n_par; i++)
    assert_close(f64_at("POST_DRAWS", i), i, 0);
}

MILL_TEST(backend_is_a_column_where_ranks_differ)
{
  mill_columns without;
  assert_ok(mill_columns_fits(&lib, lib.path, 0, &without));
  make_columns(MILL_WITH_BACKEND, MILL_STATUS_FITTED);
  assert_int_equal(columns.n_column, without.n_column + 1);
  for (int i = 0; i < without.n_column; i++)
    assert_string_not_equal(without.column[i].name, "BACKEND");
  columns.backend = MILL_ROW_BACKEND_GPU;
  mill_columns_pack(&columns, &result, row);
  assert_int_equal(row[column("BACKEND")->at], MILL_ROW_BACKEND_GPU);
  assert_true(column("BACKEND")->at < columns.column[columns.i_crc].at); /* CRC covers it */
}

/* Only warnings that concern the velocity spoil it, one by one. */
MILL_TEST(a_velocity_is_good_apart_from_the_labels)
{
  static const int64_t spoils =
      1 | 2 | 4 | 32 | 512 | 1024 | 2048 | 4096 | 8192 | 16384 | 32768 | 65536 | 262144;
  make_columns(0, MILL_STATUS_FITTED);
  const size_t at = column("VRAD_GOOD")->at;
  for (int status = MILL_STATUS_NOT_DONE; status < MILL_N_STATUS; status++)
    for (int bit = -1; bit < 19; bit++) {
      mill_fit_result_init(&result, &lib, 3, status);
      result.warn = bit < 0 ? 0 : INT64_C(1) << bit;
      mill_columns_pack(&columns, &result, row);
      assert_int_equal(row[at], status == MILL_STATUS_FITTED && (result.warn & spoils) == 0);
    }
}

MILL_TEST(nans_of_any_kind_pack_alike)
{
  mill_fit_result a, b;
  char row_a[4096] = "", row_b[4096] = "";
  const uint64_t other_nan = 0xfff8000000000123u;
  make_columns(0, MILL_STATUS_FITTED);
  a = result;
  b = a;
  memcpy(&b.vrad_km_s, &other_nan, sizeof other_nan);
  memcpy(&b.covar[20], &other_nan, sizeof other_nan);
  mill_columns_pack(&columns, &a, row_a);
  mill_columns_pack(&columns, &b, row_b);
  assert_memory_equal(row_a, row_b, columns.row_size);
}

MILL_TEST(crc_covers_every_byte_before_it)
{
  uint32_t crc;
  make_columns(0, MILL_STATUS_FITTED);
  mill_columns_pack(&columns, &result, row);
  mill_columns_set_crc(&columns, row);
  const size_t n_byte = columns.column[columns.i_crc].at;
  memcpy(&crc, row + n_byte, sizeof crc);
  assert_int_equal(crc, crc32(0, (const Bytef *)row, (uInt)n_byte));
  assert_int_equal(crc32(0, (const Bytef *)"123456789", 9), 0xcbf43926);
  assert_int_equal(columns.column[columns.i_status].at, n_byte + 4);
  /* the CRC leaves out STATUS, but a row is whole only with the STATUS of a done row */
  static mill_table table;
  table.columns = columns;
  const mill_stored_rows rows = {.table = &table};
  static const struct {
    int32_t status;
    int is_whole;
  } of[] = {{MILL_STATUS_FITTED, 1},
            {MILL_STATUS_LOW_SN, 1},
            {MILL_STATUS_NOT_DONE, 0},
            {MILL_N_STATUS, 0}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    int is_whole;
    memcpy(row + n_byte + 4, &of[i].status, sizeof of[i].status);
    assert_int_equal(mill_stored_row_status(&rows, row, &is_whole), of[i].status);
    assert_int_equal(is_whole, of[i].is_whole);
  }
  memcpy(row + n_byte + 4, &of[0].status, sizeof of[0].status);
  for (size_t i = 0; i < n_byte + 4; i++) {
    int is_whole;
    row[i] ^= 1;
    mill_stored_row_status(&rows, row, &is_whole);
    if (is_whole)
      fail_msg("byte %zu may change unnoticed", i);
    row[i] ^= 1;
  }
}

/* "float64, km/s", "float64[21]", ... "text[24]". */
static void type_and_unit(const mill_column *column, char *out, size_t size)
{
  static const char *const name[] = {"float64", "int64", "int32", "uint32", "uint8"};
  const int is_text = column->type == MILL_TYPE_TEXT;
  int n = snprintf(out, size, "%s", is_text ? "text" : name[column->type]);
  if (is_text || column->vector)
    n += snprintf(out + n, size - (size_t)n, "[%d]", column->n_value);
  if (column->unit[0])
    snprintf(out + n, size - (size_t)n, ", %s", column->unit);
}

/* Print the columns as docs/use/formats.md lists them, with one label and one arm. */
static void print_markdown(FILE *out)
{
  fprintf(out, "| column | type, unit | missing | meaning |\n|---|---|---|---|\n");
  for (int i = 0; i < columns.n_column; i++) {
    const mill_column *c = &columns.column[i];
    char type[64], text[256], missing[32];
    if (c->of[0] && strcmp(c->of, "teff") != 0 && strcmp(c->of, "r") != 0)
      continue;
    type_and_unit(c, type, sizeof type);
    mill_column_description(c, text, sizeof text);
    if (c->type == MILL_TYPE_TEXT)
      snprintf(missing, sizeof missing, "empty");
    else if (isnan(c->missing))
      snprintf(missing, sizeof missing, "NaN");
    else
      snprintf(missing, sizeof missing, "%.0f", c->missing);
    fprintf(out, "| %s | %s | %s | %s |\n", c->name, type, missing, text);
  }
}

/* Compare columns with formats.md's table between <!-- NAME begin --> and <!-- NAME end --> */
static void check_documented(const char *name)
{
  char begin[64], end[64], *table = NULL;
  size_t n_table = 0;
  FILE *doc = fopen(MILL_SOURCE_DIR "/docs/use/formats.md", "r");
  static char text[1 << 20];
  size_t n = doc ? fread(text, 1, sizeof text - 1, doc) : 0;
  if (doc)
    fclose(doc);
  text[n] = '\0';
  snprintf(begin, sizeof begin, "<!-- %s begin -->\n", name);
  snprintf(end, sizeof end, "<!-- %s end -->", name);
  FILE *out = open_memstream(&table, &n_table);
  assert_non_null(out);
  print_markdown(out);
  fclose(out);
  char *from = strstr(text, begin), *to = strstr(text, end);
  if (!from || !to)
    fail_msg("no table %s in docs/use/formats.md; it should be:\n%s", name, table);
  from += strlen(begin);
  *to = '\0';
  if (strcmp(from, table) != 0)
    fail_msg("the table %s in docs/use/formats.md is out of date; it should be:\n%s", name, table);
  free(table);
}

MILL_TEST(documentation_has_the_same_columns)
{
  assert_ok(mill_columns_fits(&lib, lib.path, MILL_WITH_ANY_FIT, &columns));
  check_documented("fits columns");
  /* formats.md lists only the columns POST_* of `starmill sample`, as they are with --draws 1 */
  assert_ok(mill_columns_fits(&lib, lib.path, MILL_WITH_POSTERIOR | MILL_WITH_DRAWS(1), &columns));
  int n = 0;
  for (int i = 0; i < columns.n_column; i++)
    if (strncmp(columns.column[i].name, "POST_", 5) == 0)
      columns.column[n++] = columns.column[i];
  columns.n_column = n;
  check_documented("posterior columns");
  mill_columns_of(MILL_TABLE_CATALOG, NULL, &columns);
  check_documented("catalog columns");
  mill_columns_of(MILL_TABLE_EPOCHS, NULL, &columns);
  check_documented("epoch columns");
}

MILL_EACH_TEST_MAIN(make_library, NULL)
