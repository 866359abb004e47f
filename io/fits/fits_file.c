/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/fits/fits_file.h"

#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "src/system/log.h"
#include "src/system/regular_file.h"

int mill_fits_file_status(const mill_fits_file *file, int i_hdu, int status, const char *source,
                          int line, const char *format, ...)
{
  char what[256], reason[FLEN_STATUS];
  va_list list;
  if (status == 0)
    return MILL_OK;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  fits_get_errstatus(status, reason);
  fits_clear_errmsg();
  MILL_CHECK(mill_check_descriptors(file->guard->path, MILL_ERR_INPUT)); /* too many open files? */
  return mill_fits_file_refuse(file, i_hdu, source, line,
                               ": %s (CFITSIO %d: %s); the file is damaged: make it again", what,
                               status, reason);
}

int mill_fits_file_refuse(const mill_fits_file *file, int i_hdu, const char *source, int line,
                          const char *format, ...)
{
  char what[MILL_ERROR_MESSAGE];
  const char *name = file->guard->hdu[i_hdu].name; /* empty for a primary HDU */
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  return mill_error_set(MILL_ERR_INPUT, source, line, "%s: HDU %d%s%s%s%s", file->guard->path,
                        i_hdu + 1, name[0] ? " (" : "", name, name[0] ? ")" : "", what);
}

int mill_fits_file_open(const char *path, const mill_open_limits *limits, mill_fits_file **out)
{
  MILL_AT_END(mill_fits_file_close_at) mill_fits_file *file = NULL;
  *out = NULL;
  MILL_CHECK(MILL_ALLOC(1, &file));
  MILL_CHECK(mill_fits_guard_open(path, limits, &file->guard));
  /* open fd again: an unpacked file has no name, and CFITSIO would interpret brackets in a path */
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", file->guard->fd);
  int status = 0;
  if (fits_open_diskfile(&file->fptr, name, READONLY, &status) != 0) {
    file->fptr = NULL;
    MILL_CHECK(mill_check_descriptors(path, MILL_ERR_INPUT));
  }
  MILL_CHECK_FITS(file, 0, status, "cannot be opened");
  return MILL_GIVE(&file, out);
}

void mill_fits_file_close(mill_fits_file *file)
{
  if (!file)
    return;
  int status = 0;
  if (file->fptr)
    fits_close_file(file->fptr, &status);
  mill_fits_guard_close(file->guard);
  mill_free(file);
}

int mill_fits_file_find(const mill_fits_file *file, const char *name, int *i_hdu)
{
  *i_hdu = -1;
  for (int i = 0; i < file->guard->n_hdu; i++) {
    if (strcmp(file->guard->hdu[i].name, name) != 0)
      continue;
    if (*i_hdu >= 0)
      return MILL_ERROR(MILL_ERR_INPUT, "%s: HDUs %d and %d are both named %s; remove one of them",
                        file->guard->path, *i_hdu + 1, i + 1, name);
    *i_hdu = i;
  }
  return MILL_OK;
}

int mill_fits_file_check_rows(const mill_fits_file *file)
{
  for (int i = 0; i < file->guard->n_hdu; i++) {
    const mill_fits_hdu *hdu = &file->guard->hdu[i];
    if (hdu->kind == MILL_FITS_TABLE && hdu->axis[1] > MILL_FITS_MAX_ROWS)
      return MILL_ERROR_HDU(file, i, " has %lld rows, more than %d; divide the file",
                            (long long)hdu->axis[1], MILL_FITS_MAX_ROWS);
  }
  return MILL_OK;
}

int mill_fits_file_move(mill_fits_file *file, int i_hdu)
{
  int status = 0;
  MILL_CHECK_FITS(file, i_hdu, fits_movabs_hdu(file->fptr, i_hdu + 1, NULL, &status),
                  "cannot be read");
  return MILL_OK;
}

enum { PIECE_BYTES = 1 << 18 }; /* bytes read and swapped at once; they fit into the cache */

/* A 32-bit float or integer as stored. */
typedef uint32_t __attribute__((may_alias)) stored_word;

int mill_fits_file_words(const mill_fits_file *file, int i_hdu, int64_t first, int64_t n, void *out)
{
  const mill_fits_hdu *hdu = &file->guard->hdu[i_hdu];
  const int64_t all = hdu->data_bytes / 4;
  if (hdu->kind != MILL_FITS_IMAGE || hdu->compressed || (hdu->bitpix != 32 && hdu->bitpix != -32))
    return MILL_BUG("%s: HDU %d (%s) is not an uncompressed image of 32-bit numbers",
                    file->guard->path, i_hdu + 1, hdu->name);
  if (first < 0 || n < 0 || first > all || n > all - first)
    return MILL_ERROR(
        MILL_ERR_RANGE, "%s: HDU %d (%s) has %lld pixels, too few to read %lld from pixel %lld on",
        file->guard->path, i_hdu + 1, hdu->name, (long long)all, (long long)n, (long long)first);
  char *to = out;
  int64_t offset = hdu->data_start + 4 * first;
  for (int64_t left = 4 * n; left > 0;) {
    const int64_t wanted = left < PIECE_BYTES ? left : PIECE_BYTES;
    const int64_t got = mill_fits_read_at(file->guard->fd, to, wanted, offset);
    if (got < 0)
      return MILL_ERROR_HDU(file, i_hdu, " cannot be read: %s", strerror(errno));
    if (got < wanted)
      return MILL_ERROR_HDU(
          file, i_hdu, " ends early: the file became shorter while it was read; fetch it again");
    stored_word *word = (stored_word *)(void *)to;
    for (int64_t i = 0; i < wanted / 4; i++)
      word[i] = be32toh(word[i]);
    to += wanted;
    offset += wanted;
    left -= wanted;
  }
  return MILL_OK;
}

int mill_fits_column_find(mill_fits_file *file, int i_hdu, const char *name, int *found,
                          mill_fits_column *out)
{
  int status = 0;
  char template[FLEN_VALUE]; /* CFITSIO takes no const name */
  *out = (mill_fits_column){0};
  if (file->guard->hdu[i_hdu].kind != MILL_FITS_TABLE)
    return MILL_ERROR_HDU(file, i_hdu, " must be a binary table with a column %s", name);
  MILL_CHECK(mill_fits_file_move(file, i_hdu));
  snprintf(template, sizeof template, "%s", name);
  fits_get_colnum(file->fptr, CASEINSEN, template, &out->number, &status);
  if (found)
    *found = status != COL_NOT_FOUND;
  if (status == COL_NOT_FOUND) {
    fits_clear_errmsg();
    out->number = 0;
    if (!found)
      return MILL_ERROR_HDU(file, i_hdu, " has no column %s, which is needed", name);
    return MILL_OK;
  }
  if (status == COL_NOT_UNIQUE) {
    fits_clear_errmsg();
    return MILL_ERROR_HDU(file, i_hdu, ": two columns have the name %s; rename one", name);
  }
  if (status == 0)
    fits_get_coltypell(file->fptr, out->number, &out->type, &out->repeat, &out->width, &status);
  MILL_CHECK_FITS(file, i_hdu, status, "column %s cannot be found", name);
  return MILL_OK;
}

/* Read integers into out, and add offset; null rows (TNULL) get the value that out[0] had. */
static int read_integers(mill_fits_file *file, int i_hdu, int number, const char *name, int as,
                         __int128 offset, void *out)
{
  int status = 0, any_null = 0;
  MILL_OWNED char *is_null = NULL;
  int *narrow = as == TINT ? out : NULL; /* out has 32 bits a row, or 64 */
  int64_t *wide = as == TINT ? NULL : out;
  const int64_t n_row = file->guard->hdu[i_hdu].axis[1];
  const int64_t missing = narrow ? *narrow : *wide; /* callers fill out with it */
  MILL_CHECK(MILL_ALLOC(n_row, &is_null));
  fits_read_colnull(file->fptr, as, number, 1, 1, n_row, out, is_null, &any_null, &status);
  MILL_CHECK_FITS(file, i_hdu, status, "column %s cannot be read", name);
  for (int64_t i = 0; i < n_row && (any_null || offset != 0); i++) {
    const int64_t stored = narrow ? narrow[i] : wide[i];
    const __int128 value = is_null[i] ? missing : stored + offset;
    if (value < INT64_MIN || value > INT64_MAX)
      return MILL_ERROR_HDU(file, i_hdu,
                            ": column %s, row %lld (counted from 0): the integer does not fit "
                            "into 64 bits with sign, the most that a result can hold",
                            name, (long long)i);
    if (narrow)
      narrow[i] = (int)value; /* callers add no offset to 32-bit integers */
    else
      wide[i] = (int64_t)value;
  }
  return MILL_OK;
}

/* Read a scalar column as CFITSIO's type `as`; add offset to integers.  *found 0: no column. */
static int read_number(mill_fits_file *file, int i_hdu, const char *name, int as, __int128 offset,
                       void *out, int *found)
{
  int status = 0;
  double nan_value = NAN;
  mill_fits_column c;
  const int64_t n_row = file->guard->hdu[i_hdu].axis[1];
  MILL_CHECK(mill_fits_column_find(file, i_hdu, name, found, &c));
  if (c.number == 0)
    return MILL_OK;
  const int is_integer = c.type == TBYTE || c.type == TSBYTE || c.type == TSHORT ||
                         c.type == TLONG || c.type == TLONGLONG;
  const int is_real = c.type == TFLOAT || c.type == TDOUBLE;
  if (c.repeat != 1 || !(is_integer || (is_real && as == TDOUBLE)))
    return MILL_ERROR_HDU(file, i_hdu, ": column %s must hold one %s a row", name,
                          as == TDOUBLE ? "number" : "integer");
  if (n_row > 0 && as != TDOUBLE)
    return read_integers(file, i_hdu, c.number, name, as, offset, out);
  if (n_row > 0) /* integers' nulls become NaN; reals keep their NaNs */
    fits_read_col(file->fptr, as, c.number, 1, 1, n_row, is_integer ? &nan_value : NULL, out,
                  &(int){0}, &status);
  MILL_CHECK_FITS(file, i_hdu, status, "column %s cannot be read", name);
  return MILL_OK;
}

/* Read TSCAL and TZERO of an integer column.  scaling: TSCAL and TZERO as doubles; *offset: TZERO
 * as an exact integer, because a double would round a large TZERO. */
static int read_scaling(mill_fits_file *file, int i_hdu, int number, const char *name,
                        double scaling[2], __int128 *offset)
{
  static const char *const word[2] = {"TSCAL", "TZERO"};
  char key[16], text[FLEN_VALUE] = "", comment[FLEN_COMMENT]; /* text: of TZERO after the loop */
  scaling[0] = 1.0;
  scaling[1] = 0.0;
  for (int i = 0; i < 2; i++) {
    int status = 0;
    snprintf(key, sizeof key, "%s%d", word[i], number);
    fits_read_keyword(file->fptr, key, text, comment, &status);
    fits_clear_errmsg();
    if (status == KEY_NO_EXIST)
      continue;
    /* the guard has checked that text is a number; FITS allows D for E */
    for (char *p = text; *p; p++)
      *p = *p == 'D' || *p == 'd' ? 'E' : *p;
    scaling[i] = status == 0 ? strtod(text, NULL) : NAN;
  }
  if (scaling[0] != 1.0 || scaling[1] != floor(scaling[1]) || !(fabs(scaling[1]) <= 0x1p64))
    return MILL_ERROR_HDU(file, i_hdu,
                          ": column %s has TSCAL %g and TZERO %g; integers need TSCAL 1 and a "
                          "whole TZERO to be read exactly: write them unscaled",
                          name, scaling[0], scaling[1]);
  if (scaling[1] == 0.0 || strspn(text, "+-0123456789") != strlen(text)) {
    *offset = (__int128)scaling[1];
    return MILL_OK;
  }
  /* take TZERO from the digits of text, since a double cannot hold every 64-bit integer */
  *offset = 0;
  for (const char *digit = text + strspn(text, "+-"); *digit; digit++)
    *offset = 10 * *offset + (*digit - '0');
  *offset *= text[0] == '-' ? -1 : 1;
  return MILL_OK;
}

int mill_fits_column_int64(mill_fits_file *file, int i_hdu, const char *name, int64_t *out,
                           int *found)
{
  static_assert(sizeof(LONGLONG) == sizeof(int64_t), "CFITSIO's LONGLONG has 64 bits");
  int status = 0;
  mill_fits_column c;
  double scaling[2];
  __int128 offset = 0;
  MILL_CHECK(mill_fits_column_find(file, i_hdu, name, found, &c));
  if (c.number > 0)
    MILL_CHECK(read_scaling(file, i_hdu, c.number, name, scaling, &offset));
  if (offset != 0) /* read unscaled, since CFITSIO would round to double */
    fits_set_tscale(file->fptr, c.number, 1.0, 0.0, &status);
  const int code = read_number(file, i_hdu, name, TLONGLONG, offset, out, found);
  if (offset != 0)
    fits_set_tscale(file->fptr, c.number, scaling[0], scaling[1], &status);
  return code;
}

int mill_fits_column_double(mill_fits_file *file, int i_hdu, const char *name, double *out,
                            int *found)
{
  return read_number(file, i_hdu, name, TDOUBLE, 0, out, found);
}

int mill_fits_table_int64(mill_fits_file *file, int i_hdu, const char *name, int64_t **out,
                          int *found)
{
  const mill_fits_hdu *hdu = &file->guard->hdu[i_hdu];
  const int64_t n_row = hdu->kind == MILL_FITS_TABLE ? hdu->axis[1] : 0;
  MILL_CHECK(MILL_ALLOC(n_row, out));
  return mill_fits_column_int64(file, i_hdu, name, *out, found);
}

/* Read a column of texts, without trailing blanks; *text NULL: the column is missing. */
static int read_texts(mill_fits_file *file, int i_hdu, const char *name, char **text,
                      size_t *stride, int *found)
{
  int status = 0;
  mill_fits_column c;
  MILL_OWNED char *all = NULL, **row = NULL;
  const int64_t n_row = file->guard->hdu[i_hdu].axis[1];
  *text = NULL;
  *stride = 0;
  MILL_CHECK(mill_fits_column_find(file, i_hdu, name, found, &c));
  if (c.number == 0)
    return MILL_OK;
  if (c.type != TSTRING || c.repeat != c.width)
    return MILL_ERROR_HDU(file, i_hdu, ": column %s must hold one string a row", name);
  if (c.width > MILL_FITS_MAX_TEXT)
    return MILL_ERROR_HDU(file, i_hdu, ": column %s has texts of %lld bytes; write at most %d",
                          name, (long long)c.width, MILL_FITS_MAX_TEXT);
  *stride = (size_t)c.width + 1;
  MILL_CHECK(MILL_ALLOC((size_t)n_row * *stride, &all));
  MILL_CHECK(MILL_ALLOC(n_row, &row));
  for (int64_t i = 0; i < n_row; i++)
    row[i] = all + (size_t)i * *stride;
  if (n_row > 0 && c.width > 0)
    fits_read_col(file->fptr, TSTRING, c.number, 1, 1, n_row, NULL, row, NULL, &status);
  MILL_CHECK_FITS(file, i_hdu, status, "column %s cannot be read", name);
  for (int64_t i = 0; i < n_row; i++)
    for (size_t n = strlen(row[i]); n > 0 && row[i][n - 1] == ' '; n--)
      row[i][n - 1] = '\0';
  return MILL_GIVE(&all, text);
}

/* Allocate a column's values and set them to the missing value.  read_texts allocates texts. */
static int make_missing(const mill_fits_wish *wish, int64_t n_row, mill_fits_values *v)
{
  if (wish->as == MILL_AS_TEXT)
    return MILL_OK;
  v->stride = wish->as == MILL_AS_INT32 ? 4 : 8;
  MILL_CHECK(mill_alloc_bytes((size_t)n_row, v->stride, (void **)&v->text)); /* a union */
  for (int64_t i = 0; i < n_row; i++)
    if (wish->as == MILL_AS_INT64)
      v->i64[i] = (int64_t)wish->missing;
    else if (wish->as == MILL_AS_INT32)
      v->i32[i] = (int32_t)wish->missing;
    else
      v->f64[i] = wish->missing;
  return MILL_OK;
}

/* Read a wished column; where the file lacks it, every row keeps the missing value. */
static int take_wish(mill_fits_file *file, int i_hdu, const mill_fits_wish *wish,
                     mill_fits_values *v)
{
  static_assert(sizeof(int) == sizeof(int32_t), "TINT has 32 bits");
  int *found = wish->is_needed ? NULL : &v->there;
  v->there = 1;
  MILL_CHECK(make_missing(wish, file->guard->hdu[i_hdu].axis[1], v));
  switch (wish->as) {
  case MILL_AS_TEXT:
    return read_texts(file, i_hdu, wish->name, &v->text, &v->stride, found);
  case MILL_AS_INT64:
    return mill_fits_column_int64(file, i_hdu, wish->name, v->i64, found);
  case MILL_AS_INT32:
    return read_number(file, i_hdu, wish->name, TINT, 0, v->i32, found);
  default:
    return mill_fits_column_double(file, i_hdu, wish->name, v->f64, found);
  }
}

int mill_fits_columns_missing(const mill_fits_wish *wish, int n_wish, int64_t n_row,
                              mill_fits_values *values)
{
  for (int i = 0; i < n_wish; i++)
    MILL_CHECK(make_missing(&wish[i], n_row, &values[i]));
  return MILL_OK;
}

int mill_fits_columns(mill_fits_file *file, int i_hdu, const mill_fits_wish *wish, int n_wish,
                      mill_fits_values *values)
{
  if (file->guard->hdu[i_hdu].kind != MILL_FITS_TABLE)
    return MILL_ERROR_HDU(file, i_hdu, " must be a binary table with a column %s", wish->name);
  for (int i = 0; i < n_wish; i++)
    MILL_CHECK(take_wish(file, i_hdu, &wish[i], &values[i]));
  return MILL_OK;
}

void mill_fits_values_end(void *values)
{
  for (mill_fits_values *v = values; !v->is_end; v++)
    mill_free(v->text);
}

void mill_fits_fill(const char *path, const mill_fits_wish *wish, int n_wish,
                    const mill_fits_values *values, int64_t i, void *out)
{
  for (int k = 0; k < n_wish; k++) {
    char *to = (char *)out + wish[k].at;
    const mill_fits_values *v = &values[k];
    if (wish[k].size == 0 || !v->text) /* no member, or no column */
      continue;
    if (wish[k].as == MILL_AS_TEXT)
      mill_fits_text_copy(path, wish[k].name, mill_fits_text_at(v, i), to, wish[k].size);
    else
      memcpy(to, v->text + (size_t)i * v->stride, v->stride);
  }
}

int mill_fits_image_row(mill_fits_file *file, int i_hdu, int64_t i_row, int n_pix, double *out)
{
  int status = 0, any_null;
  double nan_value = NAN;
  const mill_fits_hdu *hdu = &file->guard->hdu[i_hdu];
  long first[MILL_FITS_MAX_AXIS] = {1}; /* first pixel of the row, counted from 1 */
  for (int i = 1; i < hdu->n_axis; i++)
    first[i] = i + 1 < hdu->n_axis ? 1 : (long)i_row + 1; /* the last axis counts rows */
  MILL_CHECK(mill_fits_file_move(file, i_hdu));
  /* integers and compressed floats mark missing pixels by a special value; make it NaN */
  double *null_value = hdu->compressed || hdu->bitpix > 0 ? &nan_value : NULL;
  fits_read_pix(file->fptr, TDOUBLE, first, n_pix, null_value, out, &any_null, &status);
  MILL_CHECK_FITS(file, i_hdu, status, "row %lld cannot be read", (long long)i_row);
  return MILL_OK;
}

void mill_fits_text_copy(const char *path, const char *name, const char *text, char *out,
                         size_t size)
{
  if (strlen(text) >= size)
    mill_log_warning("%s: %s '%.100s' is too long: only its first %zu bytes are kept", path, name,
                     text, size - 1);
  snprintf(out, size, "%s", text);
}
