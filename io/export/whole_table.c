#include "io/export/whole_table.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/export/carried.h"
#include "io/export/out_columns.h"
#include "io/export/real_text.h"
#include "io/result/column_data.h"
#include "kernels/base/error.h"
#include "kernels/data/result.h"

/* Takes the rows that are kept of a block, k being their numbers in it [n]. */
typedef int take_rows(void *context, int64_t n, const int64_t *k);

static int pass(mill_export_source *source, take_rows *take, void *context)
{
  int err = MILL_OK;
  int64_t *kept = NULL;
  MILL_TRY(MILL_ALLOC(source->block_rows, &kept));
  for (int64_t at = 0; at < source->n_row; at += source->block_rows) {
    const int64_t left = source->n_row - at,
                  n = left < source->block_rows ? left : source->block_rows;
    int64_t n_kept = 0;
    MILL_TRY(mill_export_read(source, at, n));
    for (int64_t k = 0; k < n; k++)
      if (source->kept[at + k])
        kept[n_kept++] = k;
    if (n_kept > 0)
      MILL_TRY(take(context, n_kept, kept));
  }
done:
  mill_free(kept);
  return err;
}

/* What all forms share. */
typedef struct whole {
  mill_export_source *source;
  const mill_product *product;
  mill_out_table *table;
  char *row; /* [block_rows] of the form; of CSV a line */
  int64_t n_written;
  fitsfile *fits;
  FILE *text;
  hid_t file, dataset, type;
} whole;

static int begin(mill_export_source *source, const mill_product *product, whole *w)
{
  *w = (whole){.source = source,
               .product = product,
               .file = H5I_INVALID_HID,
               .dataset = H5I_INVALID_HID,
               .type = H5I_INVALID_HID};
  MILL_CHECK(MILL_ALLOC(1, &w->table));
  return mill_out_whole(source, w->table);
}

/* ---- FITS ---- */

static int take_fits(void *context, int64_t n, const int64_t *k)
{
  int status = 0;
  whole *w = context;
  for (int64_t i = 0; i < n; i++)
    mill_out_pack(w->table, w->source, k[i], w->row + (size_t)i * w->table->row_size);
  fits_write_tblbytes(w->fits, w->n_written + 1, 1, n * (LONGLONG)w->table->row_size,
                      (unsigned char *)w->row, &status);
  MILL_CHECK_PRODUCT(w->product, status);
  w->n_written += n;
  return MILL_OK;
}

/* The inputs, by the number that FILE has. */
static int write_files(whole *w)
{
  enum { N = 5 };
  static const char *const name[N] = {"PATH", "FORMAT", "FRAME", "REDROCK", "ERROR"};
  int err = MILL_OK, status = 0;
  mill_ph5_texts texts[N] = {{0}};
  char *column[N], *form[N], form_text[N][24], path[64], *row = NULL;
  size_t width = 0, at = 0;
  for (int i = 0; i < N; i++) {
    snprintf(path, sizeof path, "catalog/files/%s", name[i]);
    MILL_TRY(mill_ph5_read_texts(w->source->file.id, w->source->path, path, &texts[i]));
    snprintf(form_text[i], sizeof form_text[i], "%zuA", texts[i].n_byte);
    column[i] = (char *)(uintptr_t)name[i];
    form[i] = form_text[i];
    width += texts[i].n_byte;
  }
  fits_create_tbl(w->fits, BINARY_TBL, 0, N, column, form, NULL, "FILES", &status);
  MILL_TRY_PRODUCT(w->product, status);
  MILL_TRY(mill_alloc_bytes(1, width, (void **)&row));
  for (int f = 0; f < w->source->n_file; f++) {
    memset(row, ' ', width);
    at = 0;
    for (int i = 0; i < N; i++) {
      const char *text = texts[i].text + (size_t)f * texts[i].n_byte;
      const size_t n = strnlen(text, texts[i].n_byte);
      memcpy(row + at, text, n);
      mill_product_printable(row + at, n);
      at += texts[i].n_byte;
    }
    fits_write_tblbytes(w->fits, f + 1, 1, (LONGLONG)width, (unsigned char *)row, &status);
    MILL_TRY_PRODUCT(w->product, status);
  }
done:
  for (int i = 0; i < N; i++)
    mill_free(texts[i].text);
  mill_free(row);
  return err;
}

int mill_whole_fits(mill_export_source *source, const mill_product *product)
{
  int err = MILL_OK, ignored = 0;
  whole w;
  MILL_TRY(begin(source, product, &w));
  MILL_TRY(mill_alloc_bytes((size_t)source->block_rows, w.table->row_size, (void **)&w.row));
  MILL_TRY(mill_product_fits(product, &w.fits));
  MILL_TRY(mill_carried_header(source, -1, NULL, "table", product, w.fits));
  MILL_TRY(mill_out_create(w.table, "STARMILL", product, w.fits));
  MILL_TRY(pass(source, take_fits, &w));
  MILL_TRY(write_files(&w));
  MILL_TRY(mill_product_fits_close(product, &w.fits));
done:
  if (w.fits)
    fits_close_file(w.fits, &ignored);
  MILL_FREE(w.table, w.row);
  return err;
}

/* ---- CSV ---- */

/* out has room for two bytes of each and two more. */
static char *put_text(const char *text, size_t n_byte, char *out)
{
  const size_t n = strnlen(text, n_byte);
  const int is_plain = !memchr(text, ',', n) && !memchr(text, '"', n) && !memchr(text, '\n', n) &&
                       !memchr(text, '\r', n);
  if (!is_plain)
    *out++ = '"';
  for (size_t i = 0; i < n; i++) {
    if (text[i] == '"')
      *out++ = '"';
    *out++ = text[i];
  }
  if (!is_plain)
    *out++ = '"';
  return out;
}

/* out has room for MILL_NUMBER_SIZE. */
static char *put_value(int type, const char *value, char *out)
{
  double real;
  if (type != MILL_TYPE_F64)
    return out + mill_integer_text(mill_stored_integer(type, value), out);
  memcpy(&real, value, sizeof real);
  return isnan(real) ? out : out + mill_real_text(real, out);
}

/* Fields of a column in a line. */
static size_t n_field(const mill_out_column *c)
{
  return c->type == MILL_TYPE_TEXT ? 1 : (size_t)c->n_value;
}

/* Bytes that a line has at most. */
static size_t line_size(const mill_out_table *table)
{
  size_t size = 2;
  for (int i = 0; i < table->n_column; i++) {
    const mill_out_column *c = &table->column[i];
    size += c->type == MILL_TYPE_TEXT ? 2 * c->n_byte + 3 : n_field(c) * MILL_NUMBER_SIZE;
  }
  return size;
}

static int check_text(const whole *w)
{
  if (ferror(w->text))
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s: cannot be written: %s: make room or choose another output",
                      w->product->temporary, strerror(errno));
  return MILL_OK;
}

static int take_csv(void *context, int64_t n, const int64_t *k)
{
  whole *w = context;
  for (int64_t r = 0; r < n; r++) {
    char *at = w->row;
    for (int i = 0; i < w->table->n_column; i++) {
      const mill_out_column *c = &w->table->column[i];
      const char *value = mill_out_value(c, w->source, k[r]);
      const size_t n_value = n_field(c), step = c->n_byte / n_value;
      for (size_t v = 0; v < n_value; v++) {
        if (i > 0 || v > 0)
          *at++ = ',';
        at = c->type == MILL_TYPE_TEXT ? put_text(value, c->n_byte, at)
                                       : put_value(c->type, value + v * step, at);
      }
    }
    *at++ = '\r';
    *at++ = '\n';
    fwrite(w->row, 1, (size_t)(at - w->row), w->text);
  }
  return check_text(w);
}

static void put_names(const whole *w)
{
  for (int i = 0; i < w->table->n_column; i++) {
    const mill_out_column *c = &w->table->column[i];
    const size_t n = n_field(c);
    for (size_t v = 0; v < n; v++) {
      fprintf(w->text, "%s%s", i > 0 || v > 0 ? "," : "", c->name);
      if (n > 1)
        fprintf(w->text, "_%zu", v);
    }
  }
  fputs("\r\n", w->text);
}

int mill_whole_csv(mill_export_source *source, const mill_product *product)
{
  int err = MILL_OK;
  whole w;
  MILL_TRY(begin(source, product, &w));
  MILL_TRY(MILL_ALLOC(line_size(w.table), &w.row));
  w.text = fopen(product->temporary, "we");
  if (!w.text)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot be created: %s", product->temporary, strerror(errno));
  put_names(&w);
  MILL_TRY(pass(source, take_csv, &w));
  MILL_TRY(check_text(&w));
  const int failed = fclose(w.text);
  w.text = NULL;
  if (failed)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot be written: %s: make room or choose another output",
              product->temporary, strerror(errno));
done:
  if (w.text)
    fclose(w.text);
  MILL_FREE(w.table, w.row);
  return err;
}

/* ---- HDF5 ---- */

/* A row: all values without gaps. */
static int make_type(whole *w)
{
  size_t at = 0;
  w->type = H5Tcreate(H5T_COMPOUND, w->table->source_size);
  for (int i = 0; i < w->table->n_column && w->type > 0; i++) {
    const mill_out_column *c = &w->table->column[i];
    const hsize_t dim = (hsize_t)c->n_value;
    const hid_t one = mill_column_new_type(c->type, c->n_byte);
    const int is_vector = c->type != MILL_TYPE_TEXT && c->n_value > 1;
    const hid_t type = is_vector && one > 0 ? H5Tarray_create2(one, 1, &dim) : H5I_INVALID_HID;
    const int failed = one < 0 || (is_vector && type < 0) ||
                       H5Tinsert(w->type, c->name, at, is_vector ? type : one) < 0;
    MILL_H5_CLOSE(one, type);
    if (failed)
      return MILL_ERROR(MILL_ERR_OUTPUT, "%s: column %s: %s", w->product->temporary, c->name,
                        mill_h5_reason());
    at += c->n_byte;
  }
  if (w->type < 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: %s", w->product->temporary, mill_h5_reason());
  return MILL_OK;
}

static int take_hdf5(void *context, int64_t n, const int64_t *k)
{
  int err = MILL_OK;
  whole *w = context;
  char *at = w->row;
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  for (int64_t r = 0; r < n; r++)
    for (int i = 0; i < w->table->n_column; i++) {
      const mill_out_column *c = &w->table->column[i];
      memcpy(at, mill_out_value(c, w->source, k[r]), c->n_byte);
      at += c->n_byte;
    }
  MILL_TRY(mill_ph5_select_range(w->product->temporary, 1, w->source->n_kept, 1, w->n_written, n,
                                 &rows));
  MILL_TRY(mill_ph5_write(w->dataset, w->product->temporary, "table", w->type, &rows, w->row));
  w->n_written += n;
done:
  mill_ph5_unselect(&rows);
  return err;
}

/* Units and descriptions as astropy keeps them beside a dataset: lines of YAML. */
static int write_words(const whole *w)
{
  enum { LINE = 512 };
  static const char *const type_name[] = {"float64", "int64", "int32", "uint32", "uint8", "string"};
  int err = MILL_OK;
  const char *const path = w->product->temporary, *const name = "table.__table_column_meta__";
  const int n = w->table->n_column + 1;
  char *lines = NULL;
  const hid_t type = mill_ph5_text_type(LINE);
  if (type < 0)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory for a type");
  MILL_TRY(mill_alloc_bytes((size_t)n, LINE, (void **)&lines));
  snprintf(lines, LINE, "datatype:");
  for (int i = 0; i + 1 < n; i++) {
    const mill_out_column *c = &w->table->column[i];
    char *line = lines + (size_t)(i + 1) * LINE;
    snprintf(line, LINE, "- {name: \"%s\", %s%s%sdatatype: %s, description: \"%s\"}", c->name,
             c->unit[0] ? "unit: \"" : "", c->unit, c->unit[0] ? "\", " : "", type_name[c->type],
             c->text);
    for (char *at = strstr(line, "description: \"") + 14; at[2]; at++)
      *at = (char)(*at == '"' || *at == '\\' ? '\'' : *at); /* which would end the text */
  }
  MILL_TRY(mill_ph5_dataset(w->file, path, name, type, 1, n, 1, NULL, "",
                            "units and descriptions of the columns, as astropy reads them"));
  MILL_TRY(mill_ph5_write_whole(w->file, path, name, type, lines));
done:
  mill_free(lines);
  MILL_H5_CLOSE(type);
  return err;
}

#define NAMED(symbol, code, name, text) {symbol, name},

/* "CHISQ=1 VEL_LIMIT=2 ..." as attributes of the table. */
static int write_meanings(const whole *w)
{
  typedef struct named {
    int code;
    const char *name;
  } named;
  static const named warn[] = {MILL_WARN_LIST(NAMED)}, info[] = {MILL_INFO_LIST(NAMED)},
                     state[] = {MILL_STATUS_LIST(NAMED)};
  static const struct {
    const char *attribute;
    const named *list;
    size_t n;
  } of[] = {{"RVS_WARN_BITS", warn, sizeof warn / sizeof *warn},
            {"FIT_INFO_BITS", info, sizeof info / sizeof *info},
            {"STATUS_CODES", state, sizeof state / sizeof *state}};
  for (size_t a = 0; a < sizeof of / sizeof *of; a++) {
    char text[1024] = "";
    for (size_t i = 0; i < of[a].n; i++) {
      const size_t used = strlen(text);
      snprintf(text + used, sizeof text - used, "%s%s=%d", i ? " " : "", of[a].list[i].name,
               of[a].list[i].code);
    }
    MILL_CHECK(mill_ph5_attr_text(w->file, w->product->temporary, "table", of[a].attribute, text));
  }
  return mill_ph5_attr_text(w->file, w->product->temporary, "table", "PARORDER", w->table->order);
}

int mill_whole_hdf5(mill_export_source *source, const mill_product *product)
{
  int err = MILL_OK;
  whole w;
  const char *const path = product->temporary;
  MILL_TRY(begin(source, product, &w));
  MILL_TRY(make_type(&w));
  MILL_TRY(mill_alloc_bytes((size_t)source->block_rows, w.table->source_size, (void **)&w.row));
  MILL_TRY(mill_ph5_create(path, source->n_kept * (int64_t)w.table->source_size, &w.file));
  MILL_TRY(mill_ph5_attr_text(w.file, path, ".", "FORMAT", "starmill export"));
  MILL_TRY(mill_ph5_attr_text(w.file, path, ".", "RUN_ID", source->run_id));
  MILL_TRY(mill_ph5_attr_text(w.file, path, ".", "VERSION", source->version));
  MILL_TRY(mill_ph5_text(w.file, path, "command", source->command, "command line of the fit"));
  MILL_TRY(mill_ph5_dataset(w.file, path, "table", w.type, 1, source->n_kept, 1, NULL, "",
                            "a row of /fits with that of /catalog"));
  MILL_TRY(mill_ph5_open_dataset(w.file, path, "table", w.type, 1, source->n_kept, 1, &w.dataset));
  MILL_TRY(pass(source, take_hdf5, &w));
  MILL_TRY(write_words(&w));
  MILL_TRY(write_meanings(&w));
  MILL_H5_CLOSE(w.dataset);
  w.dataset = H5I_INVALID_HID;
  MILL_TRY(mill_ph5_close(path, &w.file));
done:
  MILL_H5_CLOSE(w.type, w.dataset);
  if (w.file > 0)
    mill_ph5_drop(&w.file, 1);
  MILL_FREE(w.table, w.row);
  return err;
}
