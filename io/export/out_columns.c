/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/export/out_columns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/data/result.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "FITS values have the other order");

enum { MAX_TEXT = sizeof((mill_out_column *)0)->text - sizeof((mill_out_column *)0)->unit - 8 };

/* ---- which columns ---- */

/* name: with its group */
static const mill_stored_column *find(const mill_export_source *source, const char *name)
{
  const mill_stored_rows *rows = name[0] == 'f' ? &source->table.fits : &source->table.catalog;
  for (int i = 0; i < rows->n_column; i++)
    if (strcmp(rows->column[i].name, name) == 0)
      return &rows->column[i];
  return NULL;
}

/* Is it a FITS unit?  Logarithms and units in words are not, and programs complain about them. */
static int is_fits_unit(const char *unit)
{
  return strcmp(unit, "dex") != 0 && strncmp(unit, "log(", 4) != 0 && !strstr(unit, "parameter");
}

/* The FITS type that holds a value unchanged. */
static char natural_form(int type)
{
  switch (type) {
  case MILL_TYPE_F64:
    return 'D';
  case MILL_TYPE_I64:
    return 'K';
  case MILL_TYPE_TEXT:
    return 'A';
  case MILL_TYPE_U8:
    return 'B';
  default:
    return 'J';
  }
}

static size_t form_size(char form)
{
  return form == 'D' || form == 'K' ? 8 : form == 'E' || form == 'J' ? 4 : 1;
}

/* Unit and description of a dataset; a unit that FITS lacks goes into the description. */
static int take_words(const mill_export_source *source, mill_out_column *c)
{
  const mill_h5_file *file = &source->table.file;
  const char *const name = c->from->name;
  if (mill_h5_has_attr(file, name, "unit"))
    MILL_CHECK(mill_h5_read_attr_text(file, name, "unit", c->unit, sizeof c->unit));
  MILL_CHECK(mill_h5_read_attr_text(file, name, "description", c->text, MAX_TEXT));
  if (c->unit[0] && !is_fits_unit(c->unit)) {
    const size_t n = strlen(c->text); /* both have room together */
    char unit[sizeof c->unit];
    memcpy(unit, c->unit, sizeof unit);
    snprintf(c->text + n, sizeof c->text - n, "; unit: %s", unit);
    c->unit[0] = '\0';
  }
  if (strcmp(c->unit, "km/s") == 0)
    snprintf(c->unit, sizeof c->unit, "km s-1"); /* as rvspecfit's files have it */
  return MILL_OK;
}

/* Append a column; form 0: the one that holds its values unchanged. */
static int add(const mill_export_source *source, const mill_stored_column *from, const char *name,
               char form, mill_out_table *table)
{
  if (table->n_column == MILL_OUT_MAX_COLUMN)
    return MILL_ERROR(MILL_ERR_RANGE, "%s has more columns than can be exported",
                      source->table.path);
  mill_out_column *c = &table->column[table->n_column++];
  *c = (mill_out_column){.from = from, .n_value = 1};
  c->form = form ? form : natural_form(from->type);
  snprintf(c->name, sizeof c->name, "%s", name);
  if (from) {
    c->n_value = from->type == MILL_TYPE_TEXT ? (int64_t)from->n_byte : from->n_value;
    MILL_CHECK(take_words(source, c));
  } else {
    snprintf(c->text, sizeof c->text, "the library has no such label");
  }
  c->out_byte = form_size(c->form) * (size_t)c->n_value;
  table->row_size += c->out_byte;
  return MILL_OK;
}

/* Names of the parameters, in the order by which COVAR is packed. */
static int take_order(const mill_export_source *source, mill_out_table *table)
{
  int err = MILL_OK;
  mill_h5_array order;
  char *text = NULL;
  const char *const path = source->table.path;
  if (!mill_h5_array_open_attr(source->table.file.id, "fits/COVAR", "ORDER", &order) ||
      H5Tget_class(order.type) != H5T_STRING || H5Tis_variable_str(order.type) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: fits/COVAR has no ORDER", path);
  const size_t n_byte = H5Tget_size(order.type);
  const hssize_t n = H5Sget_simple_extent_npoints(order.space);
  if (n < 1 || n > MILL_MAX_PAR || n_byte > MILL_MAX_NAME)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: ORDER of fits/COVAR", path);
  MILL_TRY(mill_alloc_bytes((size_t)n, n_byte, (void **)&text));
  if (H5Aread(order.id, order.type, text) < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: ORDER of fits/COVAR: %s", path, mill_h5_reason());
  for (hssize_t i = 0; i < n; i++) {
    const size_t used = strlen(table->order);
    snprintf(table->order + used, sizeof table->order - used, "%s%.*s", i ? " " : "", (int)n_byte,
             text + (size_t)i * n_byte);
  }
done:
  mill_free(text);
  mill_h5_array_close(&order);
  return err;
}

static int has_column(const mill_out_table *table, const char *name)
{
  for (int i = 0; i < table->n_column; i++)
    if (strcmp(table->column[i].name, name) == 0)
      return 1;
  return 0;
}

int mill_out_whole(const mill_export_source *source, mill_out_table *table)
{
  const mill_stored_rows *rows[] = {&source->table.fits, &source->table.catalog};
  memset(table, 0, sizeof *table);
  MILL_CHECK(take_order(source, table));
  for (int g = 0; g < 2; g++)
    for (int i = 0; i < rows[g]->n_column; i++) {
      const mill_stored_column *from = &rows[g]->column[i];
      char name[sizeof table->column->name];
      const char *own = strchr(from->name, '/') + 1;
      if (g == 1 && strcmp(own, "TARGETID") == 0)
        continue; /* /fits has it too */
      /* a label may be called as a column of the catalogue */
      snprintf(name, sizeof name, "%s%s", g == 1 && has_column(table, own) ? "CATALOG_" : "", own);
      MILL_CHECK(add(source, from, name, 0, table));
    }
  return MILL_OK;
}

/* RVTAB as rvspecfit writes it, and the columns that starmill adds.  "%s" stands for the name of an
 * arm, or of a label that is not in the table yet; lines of one scope that follow each other repeat
 * together. */
static const struct {
  enum { ONCE, ARM, LABEL } scope;
  const char *name;
  char form;
  const char *from; /* NULL: fits/NAME */
} rvtab_line[] = {{ONCE, "VRAD", 'D', NULL},
                  {ONCE, "VRAD_ERR", 'D', NULL},
                  {ONCE, "VRAD_SKEW", 'D', NULL},
                  {ONCE, "VRAD_KURT", 'D', NULL},
                  {ONCE, "VSINI", 'D', NULL},
                  {ONCE, "LOGG", 'D', NULL},
                  {ONCE, "LOGG_ERR", 'D', NULL},
                  {ONCE, "TEFF", 'D', NULL},
                  {ONCE, "TEFF_ERR", 'D', NULL},
                  {ONCE, "FEH", 'D', NULL},
                  {ONCE, "FEH_ERR", 'D', NULL},
                  {ONCE, "ALPHAFE", 'D', NULL},
                  {ONCE, "ALPHAFE_ERR", 'D', NULL},
                  {ONCE, "CHISQ_TOT", 'D', NULL},
                  {ONCE, "CHISQ_C_TOT", 'D', NULL},
                  {ONCE, "NPIX_TOT", 'K', NULL},
                  {ARM, "CHISQ_%s", 'D', NULL},
                  {ARM, "CHISQ_C_%s", 'D', NULL},
                  {ONCE, "VRAD_CCF", 'D', NULL},
                  {ONCE, "RVS_WARN", 'K', NULL},
                  {ONCE, "FIBER", 'J', "catalog/FIBER"},
                  {ONCE, "REF_ID", 'K', "catalog/REF_ID"},
                  {ONCE, "REF_CAT", 'A', "catalog/REF_CAT"},
                  {ONCE, "TARGET_RA", 'D', "catalog/TARGET_RA"},
                  {ONCE, "TARGET_DEC", 'D', "catalog/TARGET_DEC"},
                  {ONCE, "TARGETID", 'K', NULL},
                  {ONCE, "EXPID", 'J', "catalog/EXPID"},
                  {ARM, "SN_%s", 'E', NULL},
                  {ONCE, "SUCCESS", 'L', NULL},
                  {ONCE, "RR_Z", 'D', "catalog/Z"},
                  {ONCE, "RR_SPECTYPE", 'A', "catalog/SPECTYPE"},
                  {ONCE, "RR_SUBTYPE", 'A', "catalog/SUBTYPE"},
                  {LABEL, "%s", 'D', NULL},
                  {LABEL, "%s_ERR", 'D', NULL},
                  {ONCE, "VSINI_ERR", 'D', NULL},
                  {ONCE, "M2LL", 'D', NULL},
                  {ONCE, "VRAD_GOOD", 'L', NULL},
                  {ONCE, "FIT_INFO", 'J', NULL},
                  {ONCE, "STATUS", 'J', NULL},
                  {ONCE, "OBJECT", 'A', "catalog/OBJECT"},
                  {ONCE, "TILEID", 'J', "catalog/TILEID"},
                  {ONCE, "NIGHT", 'J', "catalog/NIGHT"}};
enum { N_RVTAB = sizeof rvtab_line / sizeof *rvtab_line };

/* Lines [first, end) for one arm, one label, or once. */
static int add_lines(const mill_export_source *source, int first, int end, const char *of,
                     mill_out_table *table)
{
  for (int i = first; i < end; i++) {
    char name[sizeof table->column->name], path[sizeof name + 8];
    const char *at = strstr(rvtab_line[i].name, "%s");
    const int n_before = at ? (int)(at - rvtab_line[i].name) : (int)strlen(rvtab_line[i].name);
    snprintf(name, sizeof name, "%.*s%s%s", n_before, rvtab_line[i].name, at ? of : "",
             at ? at + 2 : "");
    snprintf(path, sizeof path, "fits/%s", name);
    const char *from = rvtab_line[i].from ? rvtab_line[i].from : path;
    MILL_CHECK(add(source, find(source, from), name, rvtab_line[i].form, table));
  }
  return MILL_OK;
}

int mill_out_rvtab(const mill_export_source *source, mill_out_table *table)
{
  const mill_stored_rows *fits = &source->table.fits;
  memset(table, 0, sizeof *table);
  MILL_CHECK(take_order(source, table));
  for (int i = 0, end; i < N_RVTAB; i = end) {
    char order[sizeof table->order], *next = NULL;
    for (end = i; end < N_RVTAB && rvtab_line[end].scope == rvtab_line[i].scope;)
      end++;
    if (rvtab_line[i].scope == ONCE)
      MILL_CHECK(add_lines(source, i, end, "", table));
    for (int k = 0; rvtab_line[i].scope == ARM && k < fits->n_column; k++)
      if (strncmp(fits->column[k].name, "fits/SN_", 8) == 0)
        MILL_CHECK(add_lines(source, i, end, fits->column[k].name + 8, table));
    memcpy(order, table->order, sizeof order);
    for (const char *label = strtok_r(order, " ", &next); rvtab_line[i].scope == LABEL && label;
         label = strtok_r(NULL, " ", &next))
      if (!has_column(table, label))
        MILL_CHECK(add_lines(source, i, end, label, table));
  }
  return MILL_OK;
}

/* ---- values ---- */

/* One value of a number column, whose FITS form is big-endian; value NULL: missing. */
static void put_number(const mill_out_column *c, const char *value, char *out)
{
  const double none = NAN;
  float narrow;
  double real;
  uint32_t word;
  const size_t n = form_size(c->form);
  value = value ? value : (const char *)&none;
  if (c->form == 'L') {
    *out = *value ? 'T' : 'F';
    return;
  }
  if (c->form == 'E') {
    memcpy(&real, value, sizeof real);
    narrow = (float)real;
    value = (const char *)&narrow;
  } else if (c->form == 'J' && c->from->type == MILL_TYPE_U32) {
    memcpy(&word, value, sizeof word);
    word ^= UINT32_C(1) << 31; /* by TZERO */
    value = (const char *)&word;
  }
  for (size_t b = 0; b < n; b++)
    out[b] = value[n - 1 - b];
}

/* Row k of the last mill_export_read as a row of a FITS table, out [row_size]. */
static void pack(const mill_out_table *table, const mill_export_source *source, int64_t k,
                 char *out)
{
  for (int i = 0; i < table->n_column; i++) {
    const mill_out_column *c = &table->column[i];
    const char *value = NULL;
    if (c->from)
      value = c->from->name[0] == 'c'
                  ? source->catalog_row + (size_t)k * source->table.catalog.row_size + c->from->at
                  : source->fits_row + (size_t)k * source->table.fits.row_size + c->from->at;
    if (c->form == 'A') {
      const size_t n = strnlen(value, c->out_byte);
      memcpy(out, value, n);
      mill_product_printable(out, n);
      memset(out + n, ' ', c->out_byte - n);
    } else {
      const size_t n_in = c->from ? c->from->n_byte / (size_t)c->n_value : 0;
      for (size_t v = 0; v < (size_t)c->n_value; v++)
        put_number(c, value ? value + v * n_in : NULL, out + v * form_size(c->form));
    }
    out += c->out_byte;
  }
}

/* ---- the table ---- */

typedef struct meaning {
  int code;
  const char *name, *text;
} meaning;

/* "WARN03 = 'LABEL_EDGE'": by the number of the bit, counted from 0, or by the code. */
static void put_meanings(fitsfile *out, const char *prefix, int is_bit, int n, const meaning *list,
                         int *status)
{
  for (int i = 0; i < n; i++) {
    char key[24], comment[FLEN_COMMENT];
    const int number = is_bit ? __builtin_ctz((unsigned)list[i].code) : list[i].code;
    snprintf(key, sizeof key, "%s%02d", prefix, number);
    snprintf(comment, sizeof comment, "%s %d", is_bit ? "bit of value" : "code", list[i].code);
    mill_product_key(out, key, list[i].name, comment, status);
  }
}

#define MEANING(symbol, code, name, text) {symbol, name, text},

/* The HDU without rows. */
static int create(const mill_out_table *table, const char *extname, const mill_product *product)
{
  static const meaning warn[] = {MILL_WARN_LIST(MEANING)}, info[] = {MILL_INFO_LIST(MEANING)},
                       state[] = {MILL_STATUS_LIST(MEANING)};
  int status = 0;
  char key[24];
  fitsfile *const out = product->fits;
  char *name[MILL_OUT_MAX_COLUMN], *form[MILL_OUT_MAX_COLUMN], *unit[MILL_OUT_MAX_COLUMN];
  char form_text[MILL_OUT_MAX_COLUMN][24];
  for (int i = 0; i < table->n_column; i++) {
    const mill_out_column *c = &table->column[i];
    name[i] = (char *)(uintptr_t)c->name;
    unit[i] = (char *)(uintptr_t)c->unit;
    snprintf(form_text[i], sizeof form_text[i], "%lld%c", (long long)c->n_value, c->form);
    form[i] = form_text[i];
  }
  fits_create_tbl(out, BINARY_TBL, 0, table->n_column, name, form, unit, extname, &status);
  for (int i = 0; i < table->n_column; i++) {
    const mill_out_column *c = &table->column[i];
    snprintf(key, sizeof key, "TCOMM%d", i + 1);
    mill_product_key(out, key, c->text, NULL, &status);
    snprintf(key, sizeof key, "TZERO%d", i + 1);
    if (c->from && c->from->type == MILL_TYPE_U32)
      fits_write_key_lng(out, key, (LONGLONG)1 << 31, "unsigned integers", &status);
  }
  mill_product_key(out, "PARORDER", table->order, "order of the parameters of a covariance",
                   &status);
  put_meanings(out, "WARN", 1, (int)(sizeof warn / sizeof *warn), warn, &status);
  put_meanings(out, "INFO", 1, (int)(sizeof info / sizeof *info), info, &status);
  put_meanings(out, "STATUS", 0, (int)(sizeof state / sizeof *state), state, &status);
  fits_set_hdustruc(out, &status);
  MILL_CHECK_PRODUCT(product, status);
  return MILL_OK;
}

int mill_out_write(const mill_out_table *table, const char *extname, mill_export_source *source,
                   int64_t lo, int64_t hi, const mill_product *product)
{
  int err = MILL_OK, status = 0;
  char *row = NULL;
  MILL_TRY(create(table, extname, product));
  MILL_TRY(mill_alloc_raw((size_t)source->block_rows, table->row_size, (void **)&row));
  for (int64_t at = lo; at < hi; at += source->block_rows) {
    const int64_t n = hi - at < source->block_rows ? hi - at : source->block_rows;
    MILL_TRY(mill_export_read(source, at, n));
    for (int64_t k = 0; k < n; k++)
      pack(table, source, k, row + (size_t)k * table->row_size);
    fits_write_tblbytes(product->fits, at - lo + 1, 1, n * (LONGLONG)table->row_size,
                        (unsigned char *)row, &status);
    MILL_TRY_PRODUCT(product, status);
  }
done:
  mill_free(row);
  return err;
}
