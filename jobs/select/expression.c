#include "jobs/select/expression.h"

#include <ctype.h>
#include <fitsio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "kernels/base/error.h"

enum { MAX_WORD = 64, MAX_LIST = 700, SAFE_BITS = 53 /* of an integer in a double */ };

/* ---- names in the text ---- */

static const mill_stored_column *find_column(const mill_stored_rows *rows, const char *name)
{
  for (int i = 0; i < rows->n_column; i++)
    if (strcasecmp(mill_result_table_name(&rows->column[i]), name) == 0)
      return &rows->column[i];
  return NULL;
}

void mill_expression_add_column(mill_stored_rows *rows, const mill_stored_column *column)
{
  if (find_column(rows, mill_result_table_name(column)))
    return;
  mill_stored_column *c = &rows->column[rows->n_column++];
  *c = *column;
  c->at = rows->row_size;
  rows->row_size += c->n_byte;
  rows->widest = c->n_byte > rows->widest ? c->n_byte : rows->widest;
}

static int is_one_of(const char *word, const char *const *list)
{
  for (; *list; list++)
    if (strcasecmp(word, *list) == 0)
      return 1;
  return 0;
}

/* Names of the columns, as many as fit into a message. */
static void list_columns(const mill_result_table *table, char out[MAX_LIST])
{
  size_t n = 0;
  const mill_stored_rows *const both[] = {&table->fits, &table->catalog};
  out[0] = '\0';
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < both[k]->n_column; i++) {
      const char *name = mill_result_table_name(&both[k]->column[i]);
      if (strstr(name, "_FORMAL") || n + strlen(name) + 6 >= MAX_LIST)
        continue;
      n += (size_t)snprintf(out + n, MAX_LIST - n, " %s", name);
    }
}

static int take_word(const char *word, int is_function, const mill_result_table *table,
                     mill_expression *e)
{
  static const char *const constant[] = {"T",  "F",  "TRUE", "FALSE", "AND", "OR",  "NOT", "EQ",
                                         "NE", "LT", "LE",   "GT",    "GE",  "XOR", NULL};
  static const char *const refused[] = {"GTIFILTER", "GTIOVERLAP", "GTIFIND", "REGFILTER", "ACCUM",
                                        "SEQDIFF",   "RANDOM",     "RANDOMN", "RANDOMP",   NULL};
  char list[MAX_LIST];
  if (is_function && is_one_of(word, refused))
    return MILL_ERROR(MILL_ERR_USAGE,
                      "the expression has %s(), which looks at other files or rows: leave it out",
                      word);
  const mill_stored_column *of_fits = find_column(&table->fits, word);
  const mill_stored_column *of_catalog = find_column(&table->catalog, word);
  if (of_fits) {
    mill_expression_add_column(&e->fits, of_fits);
  } else if (of_catalog) {
    mill_expression_add_column(&e->catalog, of_catalog);
  } else if (!is_function && !is_one_of(word, constant)) {
    list_columns(table, list);
    return MILL_ERROR(MILL_ERR_USAGE, "%s has no column '%s'; it has:%s", table->path, word, list);
  }
  return MILL_OK;
}

int mill_expression_bind(const char *text, const mill_result_table *table, mill_expression *e)
{
  char word[MAX_WORD];
  memset(e, 0, sizeof *e);
  e->text = text;
  e->path = table->path;
  e->fits.path = e->catalog.path = table->path;
  e->fits.n_row = e->catalog.n_row = table->n_row;
  const char *at = text;
  while (*at) {
    if (*at == '\'' || *at == '"') { /* a text */
      const char *end = strchr(at + 1, *at);
      if (!end)
        return MILL_ERROR(MILL_ERR_USAGE, "the expression has a text without its closing quote: %s",
                          at);
      at = end + 1;
    } else if (isdigit((unsigned char)*at) || (*at == '.' && isdigit((unsigned char)at[1]))) {
      char *end; /* a number, with its exponent */
      strtod(at, &end);
      at = end;
    } else if (isalpha((unsigned char)*at) || *at == '_') {
      const size_t n =
          strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
      snprintf(word, sizeof word, "%.*s", (int)n, at);
      at += n;
      MILL_CHECK(take_word(word, at[strspn(at, " ")] == '(', table, e));
    } else {
      if (strchr("#@{}$;", *at) || !isprint((unsigned char)*at))
        return MILL_ERROR(
            MILL_ERR_USAGE,
            "the expression has '%c', which means nothing here: give columns, numbers, texts "
            "in quotes, operators and functions",
            *at);
      at++;
    }
  }
  if (e->fits.n_column + e->catalog.n_column == 0)
    return MILL_ERROR(MILL_ERR_USAGE, "the expression '%s' names no column", text);
  return MILL_OK;
}

/* ---- the answer ---- */

/* Values of n rows as a column of the FITS table; n_value of the letter's kind in each. */
static void put(const mill_stored_column *c, char letter, size_t n_value, int type,
                int64_t n_element, void *value, fitsfile *file, int number, int *status)
{
  char form[24];
  snprintf(form, sizeof form, "%zu%c", n_value, letter);
  fits_insert_col(file, number, (char *)mill_result_table_name(c), form, status);
  fits_write_col(file, type, number, 1, 1, n_element, value, status);
}

/* A column as the next one of the FITS table: integers of 32 bits where they have room there, for
 * CFITSIO takes longer ones for doubles, which have no bits to look at. */
static int put_integers(const mill_stored_column *c, const char *row, size_t row_size, int64_t n,
                        fitsfile *file, int number, int *status)
{
  int err = MILL_OK;
  int64_t *value = NULL, most = 0;
  const size_t size = c->n_byte / (size_t)c->n_value;
  MILL_TRY(MILL_ALLOC(n * c->n_value, &value));
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < c->n_value; k++) {
      const int64_t x =
          mill_stored_integer(c->type, row + (size_t)i * row_size + c->at + (size_t)k * size);
      value[i * c->n_value + k] = x;
      most = x > most ? x : -(x + 1) > most ? -(x + 1) : most;
    }
  if (most >> SAFE_BITS)
    MILL_FAIL(
        MILL_ERR_USAGE,
        "%s holds integers above 2^53, which an expression cannot tell apart: `starmill show` "
        "takes a TARGETID, and `starmill fit --targetid-file` a list of them",
        mill_result_table_name(c));
  put(c, most <= INT32_MAX ? 'J' : 'K', (size_t)c->n_value, TLONGLONG, n * c->n_value, value, file,
      number, status);
done:
  mill_free(value);
  return err;
}

static int put_reals(const mill_stored_column *c, const char *row, size_t row_size, int64_t n,
                     fitsfile *file, int number, int *status)
{
  int err = MILL_OK;
  double *value = NULL;
  MILL_TRY(MILL_ALLOC(n * c->n_value, &value));
  for (int64_t i = 0; i < n; i++)
    memcpy(value + i * c->n_value, row + (size_t)i * row_size + c->at, c->n_byte);
  put(c, 'D', (size_t)c->n_value, TDOUBLE, n * c->n_value, value, file, number, status);
done:
  mill_free(value);
  return err;
}

static int put_texts(const mill_stored_column *c, const char *row, size_t row_size, int64_t n,
                     fitsfile *file, int number, int *status)
{
  int err = MILL_OK;
  char *value = NULL, **pointer = NULL;
  MILL_TRY(MILL_ALLOC((size_t)n * (c->n_byte + 1), &value)); /* each with an end of its own */
  MILL_TRY(MILL_ALLOC(n, &pointer));
  for (int64_t i = 0; i < n; i++) {
    pointer[i] = value + (size_t)i * (c->n_byte + 1);
    memcpy(pointer[i], row + (size_t)i * row_size + c->at, c->n_byte);
  }
  put(c, 'A', c->n_byte, TSTRING, n, pointer, file, number, status);
done:
  MILL_FREE(value, pointer);
  return err;
}

static int put_columns(const mill_stored_rows *rows, const char *row, int64_t n, fitsfile *file,
                       int *number, int *status)
{
  for (int i = 0; i < rows->n_column; i++) {
    const mill_stored_column *c = &rows->column[i];
    ++*number;
    MILL_CHECK((c->type == MILL_TYPE_TEXT ? put_texts
                : c->type == MILL_TYPE_F64
                    ? put_reals
                    : put_integers)(c, row, rows->row_size, n, file, *number, status));
  }
  return MILL_OK;
}

/* A vector among the columns, for a message; NULL: none. */
static const mill_stored_column *find_vector(const mill_stored_rows *rows)
{
  for (int i = 0; i < rows->n_column; i++)
    if (rows->column[i].n_value > 1)
      return &rows->column[i];
  return NULL;
}

int mill_expression_answer(const mill_expression *e, const char *fits_row, const char *catalog_row,
                           int64_t n, char *is_true)
{
  int err = MILL_OK, status = 0, number = 0;
  long n_true = 0;
  char reason[FLEN_ERRMSG] = "", *type[] = {NULL}, *form[] = {NULL};
  fitsfile *file = NULL;
  fits_create_file(&file, "mem://", &status);
  fits_create_tbl(file, BINARY_TBL, n, 0, type, form, NULL, "ROWS", &status);
  MILL_TRY(put_columns(&e->fits, fits_row, n, file, &number, &status));
  MILL_TRY(put_columns(&e->catalog, catalog_row, n, file, &number, &status));
  if (status != 0) {
    fits_read_errmsg(reason);
    MILL_FAIL(MILL_ERR_INTERNAL, "columns cannot be put into a table in memory: %s", reason);
  }
  fits_find_rows(file, (char *)e->text, 1, (long)n, &n_true, is_true, &status);
  if (status != 0) {
    const mill_stored_column *vector = find_vector(&e->fits);
    char text[FLEN_STATUS];
    fits_get_errstatus(status, text);
    fits_read_errmsg(reason);
    if (vector)
      MILL_FAIL(
          MILL_ERR_USAGE,
          "the expression '%s' is no truth value of a row: %s (%s has %lld values a row: %s[1] "
          "is the first)",
          e->text, reason[0] ? reason : text, mill_result_table_name(vector),
          (long long)vector->n_value, mill_result_table_name(vector));
    MILL_FAIL(MILL_ERR_USAGE, "the expression '%s' cannot be understood: %s", e->text,
              reason[0] ? reason : text);
  }
done:
  if (file) {
    status = 0;
    fits_close_file(file, &status); /* of memory */
  }
  fits_clear_errmsg();
  return err;
}
