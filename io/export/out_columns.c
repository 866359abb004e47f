#include "io/export/out_columns.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/data/result.h"

enum { MAX_TEXT = sizeof((mill_out_column *)0)->text - sizeof((mill_out_column *)0)->unit - 8 };

/* ---- which columns ---- */

static const mill_stored_column *find(const mill_export_source *source, const char *group,
                                      const char *name)
{
  char path[192];
  const mill_stored_rows *rows = group[0] == 'f' ? &source->fits : &source->catalog;
  snprintf(path, sizeof path, "%s/%s", group, name);
  for (int i = 0; i < rows->n_column; i++)
    if (strcmp(rows->column[i].name, path) == 0)
      return &rows->column[i];
  return NULL;
}

/* Is it a unit of FITS?  Logarithms and units in words are none, and programs complain of them. */
static int is_fits_unit(const char *unit)
{
  return strcmp(unit, "dex") != 0 && strncmp(unit, "log(", 4) != 0 && !strstr(unit, "parameter");
}

/* The FITS type of a value as it is. */
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

/* Unit and description of a dataset; where FITS has no such unit, the description names it. */
static int take_words(const mill_export_source *source, const mill_stored_column *from,
                      mill_out_column *c)
{
  if (mill_h5_has_attr(&source->file, from->name, "unit"))
    MILL_CHECK(mill_h5_read_attr_text(&source->file, from->name, "unit", c->unit, sizeof c->unit));
  MILL_CHECK(mill_h5_read_attr_text(&source->file, from->name, "description", c->text, MAX_TEXT));
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

/* Append a column; from NULL: the result has none, and all its values are missing.  form 0: as it
 * is. */
static int add(const mill_export_source *source, const mill_stored_column *from, const char *name,
               char form, mill_out_table *table)
{
  if (table->n_column == MILL_OUT_MAX_COLUMN)
    return MILL_ERROR(MILL_ERR_RANGE, "%s has more columns than can be exported", source->path);
  mill_out_column *c = &table->column[table->n_column++];
  *c = (mill_out_column){.type = MILL_TYPE_F64, .n_value = 1, .form = form};
  snprintf(c->name, sizeof c->name, "%s", name);
  if (from) {
    c->is_catalog = from->name[0] == 'c';
    c->type = from->type;
    c->n_value = from->type == MILL_TYPE_TEXT ? (int64_t)from->n_byte : from->n_value;
    c->at = from->at;
    c->n_byte = from->n_byte;
    MILL_CHECK(take_words(source, from, c));
  } else {
    snprintf(c->text, sizeof c->text, "the library has no such label");
  }
  if (!form)
    c->form = natural_form(c->type);
  c->out_byte = form_size(c->form) * (size_t)c->n_value;
  table->row_size += c->out_byte;
  table->source_size += c->n_byte;
  return MILL_OK;
}

/* Names of the parameters, by which COVAR is packed. */
static int take_order(const mill_export_source *source, mill_out_table *table)
{
  int err = MILL_OK;
  mill_h5_array order;
  char *text = NULL;
  if (!mill_h5_array_open_attr(source->file.id, "fits/COVAR", "ORDER", &order) ||
      H5Tget_class(order.type) != H5T_STRING || H5Tis_variable_str(order.type) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: fits/COVAR has no ORDER", source->path);
  const size_t n_byte = H5Tget_size(order.type);
  const hssize_t n = H5Sget_simple_extent_npoints(order.space);
  if (n < 1 || n > MILL_MAX_PAR || n_byte > MILL_MAX_NAME)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: ORDER of fits/COVAR", source->path);
  MILL_TRY(mill_alloc_bytes((size_t)n, n_byte, (void **)&text));
  if (H5Aread(order.id, order.type, text) < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: ORDER of fits/COVAR: %s", source->path,
              mill_h5_reason());
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
  const mill_stored_rows *rows[] = {&source->fits, &source->catalog};
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

/* RVTAB as rvspecfit writes it: name, the result's group and column, FITS type. */
typedef struct rvtab_line {
  const char *name, *group, *from;
  char form;
} rvtab_line;

static int add_lines(const mill_export_source *source, int n, const rvtab_line *line,
                     mill_out_table *table)
{
  for (int i = 0; i < n; i++)
    MILL_CHECK(
        add(source, find(source, line[i].group, line[i].from), line[i].name, line[i].form, table));
  return MILL_OK;
}

/* Columns PREFIX and PREFIX_C of each arm, which are those that /fits has an S/N of. */
static int add_arms(const mill_export_source *source, const char *first, const char *second,
                    char form, mill_out_table *table)
{
  for (int i = 0; i < source->fits.n_column; i++) {
    const char *at = source->fits.column[i].name;
    char name[2][sizeof((mill_stored_column *)0)->name];
    if (strncmp(at, "fits/SN_", 8) != 0)
      continue;
    snprintf(name[0], sizeof name[0], "%s%s", first, at + 8);
    snprintf(name[1], sizeof name[1], "%s%s", second ? second : "", at + 8);
    for (int k = 0; k < (second ? 2 : 1); k++)
      MILL_CHECK(add(source, find(source, "fits", name[k]), name[k], form, table));
  }
  return MILL_OK;
}

/* Labels beside the four that rvspecfit writes, which are named in ORDER. */
static int add_labels(const mill_export_source *source, mill_out_table *table)
{
  char order[sizeof table->order], error[MILL_MAX_NAME + 8], *next = NULL;
  memcpy(order, table->order, sizeof order);
  for (const char *name = strtok_r(order, " ", &next); name; name = strtok_r(NULL, " ", &next)) {
    snprintf(error, sizeof error, "%s_ERR", name);
    if (!has_column(table, name)) {
      MILL_CHECK(add(source, find(source, "fits", name), name, 'D', table));
      MILL_CHECK(add(source, find(source, "fits", error), error, 'D', table));
    }
  }
  return MILL_OK;
}

#define COUNT(lines) (int)(sizeof(lines) / sizeof *(lines)), (lines)

int mill_out_rvtab(const mill_export_source *source, mill_out_table *table)
{
  static const rvtab_line parameters[] = {{"VRAD", "fits", "VRAD", 'D'},
                                          {"VRAD_ERR", "fits", "VRAD_ERR", 'D'},
                                          {"VRAD_SKEW", "fits", "VRAD_SKEW", 'D'},
                                          {"VRAD_KURT", "fits", "VRAD_KURT", 'D'},
                                          {"VSINI", "fits", "VSINI", 'D'},
                                          {"LOGG", "fits", "LOGG", 'D'},
                                          {"LOGG_ERR", "fits", "LOGG_ERR", 'D'},
                                          {"TEFF", "fits", "TEFF", 'D'},
                                          {"TEFF_ERR", "fits", "TEFF_ERR", 'D'},
                                          {"FEH", "fits", "FEH", 'D'},
                                          {"FEH_ERR", "fits", "FEH_ERR", 'D'},
                                          {"ALPHAFE", "fits", "ALPHAFE", 'D'},
                                          {"ALPHAFE_ERR", "fits", "ALPHAFE_ERR", 'D'},
                                          {"CHISQ_TOT", "fits", "CHISQ_TOT", 'D'},
                                          {"CHISQ_C_TOT", "fits", "CHISQ_C_TOT", 'D'},
                                          {"NPIX_TOT", "fits", "NPIX_TOT", 'K'}};
  static const rvtab_line identity[] = {{"VRAD_CCF", "fits", "VRAD_CCF", 'D'},
                                        {"RVS_WARN", "fits", "RVS_WARN", 'K'},
                                        {"FIBER", "catalog", "FIBER", 'J'},
                                        {"REF_ID", "catalog", "REF_ID", 'K'},
                                        {"REF_CAT", "catalog", "REF_CAT", 'A'},
                                        {"TARGET_RA", "catalog", "TARGET_RA", 'D'},
                                        {"TARGET_DEC", "catalog", "TARGET_DEC", 'D'},
                                        {"TARGETID", "fits", "TARGETID", 'K'},
                                        {"EXPID", "catalog", "EXPID", 'J'}};
  static const rvtab_line redshift[] = {{"SUCCESS", "fits", "SUCCESS", 'L'},
                                        {"RR_Z", "catalog", "Z", 'D'},
                                        {"RR_SPECTYPE", "catalog", "SPECTYPE", 'A'},
                                        {"RR_SUBTYPE", "catalog", "SUBTYPE", 'A'}};
  static const rvtab_line ours[] = {
      {"VSINI_ERR", "fits", "VSINI_ERR", 'D'}, {"M2LL", "fits", "M2LL", 'D'},
      {"VRAD_GOOD", "fits", "VRAD_GOOD", 'L'}, {"FIT_INFO", "fits", "FIT_INFO", 'J'},
      {"STATUS", "fits", "STATUS", 'J'},       {"OBJECT", "catalog", "OBJECT", 'A'},
      {"TILEID", "catalog", "TILEID", 'J'},    {"NIGHT", "catalog", "NIGHT", 'J'}};
  memset(table, 0, sizeof *table);
  MILL_CHECK(take_order(source, table));
  MILL_CHECK(add_lines(source, COUNT(parameters), table));
  MILL_CHECK(add_arms(source, "CHISQ_", "CHISQ_C_", 'D', table));
  MILL_CHECK(add_lines(source, COUNT(identity), table));
  MILL_CHECK(add_arms(source, "SN_", NULL, 'E', table));
  MILL_CHECK(add_lines(source, COUNT(redshift), table));
  MILL_CHECK(add_labels(source, table));
  return add_lines(source, COUNT(ours), table);
}

/* ---- values ---- */

const char *mill_out_value(const mill_out_column *c, const mill_export_source *source, int64_t k)
{
  const mill_stored_rows *rows = c->is_catalog ? &source->catalog : &source->fits;
  const char *row = c->is_catalog ? source->catalog_row : source->fits_row;
  return c->n_byte > 0 ? row + (size_t)k * rows->row_size + c->at : NULL;
}

static void put64(const void *value, char *out)
{
  uint64_t word;
  memcpy(&word, value, sizeof word);
  word = htobe64(word);
  memcpy(out, &word, sizeof word);
}

static void put32(const void *value, char *out)
{
  uint32_t word;
  memcpy(&word, value, sizeof word);
  word = htobe32(word);
  memcpy(out, &word, sizeof word);
}

static void put_text(const char *text, size_t n_byte, char *out)
{
  const size_t n = strnlen(text, n_byte);
  memcpy(out, text, n);
  mill_product_printable(out, n);
  memset(out + n, ' ', n_byte - n);
}

/* One value; texts are put at once. */
static void put(const mill_out_column *c, const char *value, char *out)
{
  double real;
  uint32_t word;
  switch (c->form) {
  case 'E':
    memcpy(&real, value, sizeof real);
    const float narrow = (float)real;
    put32(&narrow, out);
    break;
  case 'J':
    memcpy(&word, value, sizeof word);
    word ^= c->type == MILL_TYPE_U32 ? UINT32_C(1) << 31 : 0; /* by TZERO */
    put32(&word, out);
    break;
  case 'B':
    *out = *value;
    break;
  case 'L':
    *out = *value ? 'T' : 'F';
    break;
  default:
    put64(value, out);
  }
}

void mill_out_pack(const mill_out_table *table, const mill_export_source *source, int64_t k,
                   char *out)
{
  const double none = NAN;
  for (int i = 0; i < table->n_column; i++) {
    const mill_out_column *c = &table->column[i];
    const char *value = mill_out_value(c, source, k);
    if (c->form == 'A') {
      put_text(value, c->n_byte, out);
    } else {
      const size_t n_out = form_size(c->form), n_in = c->n_byte / (size_t)c->n_value;
      for (size_t v = 0; v < (size_t)c->n_value; v++)
        put(c, value ? value + v * n_in : (const char *)&none, out + v * n_out);
    }
    out += c->out_byte;
  }
}

/* ---- the header of a FITS table ---- */

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

int mill_out_create(const mill_out_table *table, const char *extname, const mill_product *product,
                    fitsfile *out)
{
  static const meaning warn[] = {MILL_WARN_LIST(MEANING)}, info[] = {MILL_INFO_LIST(MEANING)},
                       state[] = {MILL_STATUS_LIST(MEANING)};
  int status = 0;
  char key[24];
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
    if (c->type == MILL_TYPE_U32)
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
