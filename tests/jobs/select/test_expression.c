/* Expressions over columns in memory: no file is read. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "jobs/select/expression.h"
#include "kernels/base/error.h"
#include "tests/mill_test.h"

enum { N_ROW = 5 };

/* A row as the file packs it. */
typedef struct __attribute__((packed)) row {
  double teff, covar[3];
  int64_t target;
  int32_t warn;
  uint8_t success;
  char name[8];
} row;

static const row rows[N_ROW] = {
    {5000, {1, 2, 3}, 7, 0, 1, "alpha"},         {6000, {4, 5, 6}, -1, 256, 0, "beta"},
    {NAN, {7, 8, 9}, 1LL << 52, 8 + 256, 0, ""}, {-3e300, {0, 0, 0}, 0, -1, 1, "exactly8"},
    {INFINITY, {NAN, 1, 1}, 5, 64, 1, "AND"},
};

static void add(mill_stored_rows *to, const char *name, int type, int n_value, size_t n_byte)
{
  mill_stored_column *c = &to->column[to->n_column++];
  snprintf(c->name, sizeof c->name, "%s", name);
  c->type = type;
  c->n_value = n_value;
  c->n_byte = n_byte;
  c->at = to->row_size;
  to->row_size += n_byte;
}

static mill_result_table table_of(void)
{
  mill_result_table table = {.path = "OUT.h5", .n_row = N_ROW};
  add(&table.fits, "fits/TEFF", MILL_TYPE_F64, 1, 8);
  add(&table.fits, "fits/COVAR", MILL_TYPE_F64, 3, 24);
  add(&table.fits, "fits/TARGETID", MILL_TYPE_I64, 1, 8);
  add(&table.fits, "fits/RVS_WARN", MILL_TYPE_I32, 1, 4);
  add(&table.fits, "fits/SUCCESS", MILL_TYPE_U8, 1, 1);
  add(&table.catalog, "catalog/NAME", MILL_TYPE_TEXT, 1, 8);
  add(&table.catalog, "catalog/TARGETID", MILL_TYPE_I64, 1, 8);
  return table;
}

/* The values of the columns that an expression has, packed as it wants them. */
static void pack(const mill_stored_rows *wanted, const row *from, char *to)
{
  const mill_result_table table = table_of();
  for (int i = 0; i < wanted->n_column; i++) {
    const char *name = wanted->column[i].name;
    size_t at = offsetof(row, name);
    for (int k = 0; k < table.fits.n_column; k++)
      if (strcmp(table.fits.column[k].name, name) == 0)
        at = table.fits.column[k].at;
    memcpy(to + wanted->column[i].at, (const char *)from + at, wanted->column[i].n_byte);
  }
}

/* "10010": where it is true; the message where it fails. */
static const char *answer(const char *text)
{
  static char out[MILL_ERROR_MESSAGE];
  char fits[N_ROW * sizeof(row)], catalog[N_ROW * sizeof(row)], is_true[N_ROW];
  const mill_result_table table = table_of();
  static mill_expression e;
  int err = mill_expression_bind(text, &table, &e);
  for (int i = 0; i < N_ROW && err == MILL_OK; i++) {
    pack(&e.fits, &rows[i], fits + (size_t)i * e.fits.row_size);
    pack(&e.catalog, &rows[i], catalog + (size_t)i * e.catalog.row_size);
  }
  if (err == MILL_OK)
    err = mill_expression_answer(&e, fits, catalog, N_ROW, is_true);
  if (err != MILL_OK) {
    assert_int_equal(err, MILL_ERR_USAGE);
    snprintf(out, sizeof out, "%s", mill_error_message());
    return out;
  }
  for (int i = 0; i < N_ROW; i++)
    out[i] = (char)('0' + is_true[i]);
  out[N_ROW] = '\0';
  return out;
}

static void test_numbers_bits_and_texts(void **state)
{
  (void)state;
  assert_string_equal(answer("TEFF > 4000"), "11000");
  assert_string_equal(answer("teff > 4.0e3 && success == 1"), "10000");
  assert_string_equal(answer("(RVS_WARN & 256) != 0"), "01110"); /* -1 has all bits */
  assert_string_equal(answer("NAME == 'beta' || NAME == \"exactly8\""), "01010");
  assert_string_equal(answer("NAME == 'AND'"), "00001");
  assert_string_equal(answer("TARGETID == 7"), "10000");
  assert_string_equal(answer("COVAR[2] == 5"), "01000");
}

static void test_a_value_that_is_not_finite_is_never_true(void **state)
{
  (void)state;
  assert_string_equal(answer("!(TEFF > 4000)"), "00010");
  assert_string_equal(answer("TEFF == TEFF"), "11010");
  assert_string_equal(answer("ISNULL(TEFF)"), "00101");
  assert_string_equal(answer("COVAR[1] < 100"), "11110");
}

static void test_integers_that_a_double_cannot_hold(void **state)
{
  (void)state;
  mill_expression e;
  const mill_result_table table = table_of();
  char is_true[1];
  assert_int_equal(mill_expression_bind("TARGETID > 0", &table, &e), MILL_OK);
  int64_t target = (1LL << 53) - 1;
  assert_int_equal(mill_expression_answer(&e, (const char *)&target, "", 1, is_true), MILL_OK);
  assert_int_equal(is_true[0], 1);
  target++;
  assert_int_equal(mill_expression_answer(&e, (const char *)&target, "", 1, is_true),
                   MILL_ERR_USAGE);
  assert_non_null(strstr(mill_error_message(), "TARGETID holds integers above 2^53"));
}

static void test_what_means_nothing(void **state)
{
  (void)state;
  static const char *const bad[][2] = {
      {"TEF > 1", "has no column 'TEF'; it has: TEFF COVAR"},
      {"1 == 1", "names no column"},
      {"", "names no column"},
      {"TEFF >", "cannot be understood"},
      {"TEFF + 1", "cannot be understood"},
      {"COVAR > 0", "COVAR[1] is the first"},
      {"nothing(TEFF) > 1", "cannot be understood"},
      {"REGFILTER('x') && TEFF > 1", "REGFILTER()"},
      {"accum(TEFF) > 1", "accum()"},
      {"TEFF > #ROW", "'#'"},
      {"@list", "'@'"},
      {"TEFF{-1} > 0", "'{'"},
      {"NAME == 'x", "closing quote"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    if (!strstr(answer(bad[i][0]), bad[i][1]))
      fail_msg("'%s': %s", bad[i][0], answer(bad[i][0]));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_numbers_bits_and_texts),
      cmocka_unit_test(test_a_value_that_is_not_finite_is_never_true),
      cmocka_unit_test(test_integers_that_a_double_cannot_hold),
      cmocka_unit_test(test_what_means_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
