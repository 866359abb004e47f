/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/surveys/single_spectrum.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "io/surveys/selection.h"
#include "src/config/text.h"

void mill_single_clear(mill_single_spectrum *spectrum)
{
  MILL_FREE(spectrum->wave_aa, spectrum->number, spectrum->noise, spectrum->factor, spectrum->flux,
            spectrum->ivar, spectrum->sigma_aa, spectrum->mask, spectrum->source);
  memset(spectrum, 0, sizeof *spectrum);
}

int mill_single_resize(mill_single_spectrum *spectrum, int n_pix)
{
  if (n_pix > spectrum->capacity) {
    mill_single_clear(spectrum);
    MILL_CHECK(MILL_ALLOC(n_pix, &spectrum->wave_aa));
    MILL_CHECK(MILL_ALLOC(n_pix, &spectrum->number));
    MILL_CHECK(MILL_ALLOC(n_pix, &spectrum->noise));
    MILL_CHECK(MILL_ALLOC(n_pix, &spectrum->factor));
    MILL_CHECK(MILL_ALLOC(n_pix, &spectrum->flux));
    MILL_CHECK(MILL_ALLOC(n_pix, &spectrum->ivar));
    MILL_CHECK(MILL_ALLOC(n_pix, &spectrum->sigma_aa));
    MILL_CHECK(MILL_ALLOC(n_pix, &spectrum->mask));
    MILL_CHECK(MILL_ALLOC(n_pix, &spectrum->source));
    spectrum->capacity = n_pix;
  }
  return MILL_OK;
}

/* ---- headers ---------------------------------------------------------- */

int mill_single_find_table(const mill_fits_guard *guard, const char *name)
{
  for (int i = 0; i < guard->n_hdu; i++)
    if (guard->hdu[i].kind == MILL_FITS_TABLE && strcmp(guard->hdu[i].name, name) == 0)
      return i;
  return -1;
}

int mill_single_says(const mill_fits_guard *guard, const char *start)
{
  char card[FLEN_CARD - 1];
  const int64_t n = sizeof card;
  for (int64_t at = 0; at + n <= guard->hdu[0].data_start; at += n) {
    if (pread(guard->fd, card, sizeof card, at) != n)
      return 0;
    if (strncmp(card, start, strlen(start)) == 0)
      return 1;
  }
  return 0;
}

/* Read a keyword into out [size]; without the keyword or its value, out is unchanged.  NaN counts
 * as no value: SDSS and Astra write it for unknown numbers. */
static int read_key(mill_fits_file *file, int i_hdu, const char *key, int type, const char *kind,
                    void *out, size_t size, int *found)
{
  int status = 0;
  _Alignas(double) char value[FLEN_VALUE] = ""; /* text, number or truth value, as `type` says */
  MILL_CHECK(mill_fits_file_move(file, i_hdu));
  if (type == TDOUBLE) {
    fits_read_key(file->fptr, TSTRING, key, value, NULL, &status);
    if (strcasecmp(value + strspn(value, " -"), "nan") == 0)
      status = VALUE_UNDEFINED; /* so the next call does nothing */
  }
  fits_read_key(file->fptr, type, key, value, NULL, &status);
  fits_clear_errmsg();
  if (found)
    *found = status == 0;
  if (status == 0)
    memcpy(out, value, size);
  else if (status != KEY_NO_EXIST && status != VALUE_UNDEFINED)
    return MILL_ERROR_HDU(file, i_hdu,
                          ": keyword %s must hold %s (CFITSIO error %d); make the file again", key,
                          kind, status);
  return MILL_OK;
}

int mill_single_key_text(mill_fits_file *file, int i_hdu, const char *key, char *out, size_t size,
                         int *found)
{
  char value[FLEN_VALUE];
  int is_there;
  MILL_CHECK(read_key(file, i_hdu, key, TSTRING, "text", value, sizeof value, &is_there));
  if (is_there)
    mill_fits_text_copy(file->guard->path, key, value, out, size);
  if (found)
    *found = is_there;
  return MILL_OK;
}

int mill_single_key_double(mill_fits_file *file, int i_hdu, const char *key, double *out,
                           int *found)
{
  return read_key(file, i_hdu, key, TDOUBLE, "a number", out, sizeof *out, found);
}

/* Read as double: CFITSIO 4.2 overruns a buffer if it reads a long number as integer. */
int mill_single_key_int32(mill_fits_file *file, int i_hdu, const char *key, int32_t *out,
                          int *found)
{
  double value = *out;
  MILL_CHECK(
      read_key(file, i_hdu, key, TDOUBLE, "an integer of 32 bits", &value, sizeof value, found));
  /* NaN fails this test */
  if (!(value >= (double)INT32_MIN && value <= (double)INT32_MAX))
    return MILL_ERROR_HDU(
        file, i_hdu, ": keyword %s must hold an integer of 32 bits, not %g; make the file again",
        key, value);
  *out = (int32_t)value;
  return MILL_OK;
}

/* Convert a keyword's text here, since CFITSIO 4.2 may overrun a buffer on a long value. */
static int take_int64(mill_fits_file *file, int i_hdu, const char *key, const char *text,
                      int64_t *out)
{
  char *end;
  errno = 0;
  *out = strtoll(text, &end, 10);
  if (end == text || *end || errno)
    return MILL_ERROR_HDU(
        file, i_hdu, ": keyword %s must hold an integer of 64 bits, not '%s'; make the file again",
        key, text);
  return MILL_OK;
}

/* Store a keyword's value as the wish's type. */
static int take_key(mill_fits_file *file, int i_hdu, const char *key, const char *text,
                    const mill_fits_wish *wish, mill_fits_values *v)
{
  switch (wish->as) {
  case MILL_AS_TEXT:
    MILL_CHECK(mill_alloc_bytes(FLEN_VALUE, 1, (void **)&v->text));
    strcpy(v->text, text);
    return MILL_OK;
  case MILL_AS_INT64:
    return take_int64(file, i_hdu, key, text, v->i64);
  case MILL_AS_INT32:
    return mill_single_key_int32(file, i_hdu, key, v->i32, NULL);
  default:
    return mill_single_key_double(file, i_hdu, key, v->f64, &v->there); /* NaN: not there */
  }
}

int mill_single_keys(mill_fits_file *file, const int *i_hdu, int n_hdu, double none,
                     const mill_fits_wish *wish, int n_wish, mill_fits_values *values)
{
  MILL_CHECK(mill_fits_columns_missing(wish, n_wish, 1, values));
  for (int k = 0; k < n_wish; k++)
    for (int i = 0; i < 3 * n_hdu && !values[k].there; i++) {
      const int i_name = i / n_hdu, i_key = i_hdu[i % n_hdu]; /* i_name 0: name; 1, 2: other */
      const char *key = i_name == 0 ? wish[k].name : wish[k].other[i_name - 1];
      char text[FLEN_VALUE] = "";
      double number;
      int found = 0;
      if (key)
        MILL_CHECK(mill_single_key_text(file, i_key, key, text, sizeof text, &found));
      values[k].there = found && !(mill_text_to_real(text, &number) && number == none);
      if (values[k].there)
        MILL_CHECK(take_key(file, i_key, key, text, &wish[k], &values[k]));
    }
  return MILL_OK;
}

int mill_single_specsys(mill_fits_file *file, int i_hdu, int *frame)
{
  char text[FLEN_VALUE] = "";
  MILL_CHECK(mill_single_key_text(file, 0, "SPECSYS", text, sizeof text, NULL));
  MILL_CHECK(mill_single_key_text(file, i_hdu, "SPECSYS", text, sizeof text, NULL));
  *frame = mill_frame_from_name(text, 8); /* 8 letters as in BARYCENT */
  if (*text && *frame == MILL_FRAME_UNKNOWN)
    return MILL_ERROR_HDU(file, i_hdu,
                          ": SPECSYS '%s', expected BARYCENT, HELIOCEN or TOPOCENT; correct the "
                          "wavelengths to one of these frames",
                          text);
  return MILL_OK;
}

double mill_single_mjd(const char *text)
{
  struct tm tm = {0};
  double second;
  if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%lf", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
             &tm.tm_min, &second) != 6)
    return NAN;
  tm.tm_year -= 1900;
  tm.tm_mon--;
  return ((double)timegm(&tm) + second) / 86400.0 + 40587.0;
}

int mill_single_add_frame(const mill_fits_file *file, int i_hdu, int is_first, int own, int *frame)
{
  const int was = is_first ? own : *frame;
  *frame = own == MILL_FRAME_UNKNOWN ? own : was;
  return *frame == MILL_FRAME_UNKNOWN ||
                 (own == MILL_FRAME_TOPOCENTRIC) == (was == MILL_FRAME_TOPOCENTRIC)
             ? MILL_OK
             : MILL_ERROR_HDU(file, i_hdu,
                              " is %s, but spectra before it are %s: correct their wavelengths to "
                              "one frame, or put them into separate files",
                              mill_frame_name(own), mill_frame_name(was));
}

int mill_single_conventions(mill_fits_file *file, int i_hdu, int *frame, int *air)
{
  int corrected = 0, vacuum = 1, found;
  double velocity = -9999.0; /* LAMOST writes it for an unknown value */
  MILL_CHECK(read_key(file, i_hdu, "VACUUM", TLOGICAL, "T or F", &vacuum, sizeof vacuum, &found));
  *air = found && !vacuum;
  MILL_CHECK(
      read_key(file, i_hdu, "HELIO", TLOGICAL, "T or F", &corrected, sizeof corrected, &found));
  *frame = corrected ? MILL_FRAME_HELIOCENTRIC : MILL_FRAME_TOPOCENTRIC;
  if (found)
    return MILL_OK;
  MILL_CHECK(mill_single_key_double(file, i_hdu, "HELIO_RV", &velocity, NULL));
  *frame = velocity > -9999.0 ? MILL_FRAME_HELIOCENTRIC : MILL_FRAME_UNKNOWN;
  return MILL_OK;
}

int mill_single_unit(const char *text, double *to_aa)
{
  static const struct {
    const char *name;
    double to_aa;
  } unit[] = {{"Angstrom", 1.0}, {"Angstroms", 1.0}, {"AA", 1.0}, {"nm", 10.0},
              {"um", 1e4},       {"micron", 1e4},    {"m", 1e10}};
  for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
    if (strcasecmp(text, unit[i].name) == 0) {
      *to_aa = unit[i].to_aa;
      return 1;
    }
  return 0;
}

int mill_single_key_unit(mill_fits_file *file, int i_hdu, const char *key, const char *unit,
                         double *to_aa)
{
  char text[FLEN_VALUE] = "";
  MILL_CHECK(mill_single_key_text(file, i_hdu, key, text, sizeof text, NULL));
  if (!mill_single_unit(text[0] ? text : unit, to_aa))
    return MILL_ERROR_HDU(file, i_hdu, ": %s '%s', expected Angstrom, nm, um or m", key, text);
  return MILL_OK;
}

/* Read a number from a keyword or its other name (NULL: none); fail if both are missing. */
static int need_key(mill_fits_file *file, int i_hdu, const char *key, const char *other,
                    double *out)
{
  int found;
  MILL_CHECK(mill_single_key_double(file, i_hdu, key, out, &found));
  if (!found && other)
    MILL_CHECK(mill_single_key_double(file, i_hdu, other, out, &found));
  if (!found)
    return MILL_ERROR_HDU(file, i_hdu, " has no %s%s%s, so its wavelengths are not known", key,
                          other ? " or " : "", other ? other : "");
  return MILL_OK;
}

/* Set *air by keyword `key`: AWAV 1, WAVE 0.  Else `configured` must say the medium. */
static int read_medium(mill_fits_file *file, int i_hdu, const char *key, int configured, int *air)
{
  char text[FLEN_VALUE] = "";
  MILL_CHECK(mill_single_key_text(file, i_hdu, key, text, sizeof text, NULL));
  *air = strcasecmp(text, "AWAV") == 0;
  if (*air || strcasecmp(text, "WAVE") == 0)
    return MILL_OK;
  if (strchr(text, '-')) /* such as WAVE-LOG */
    return MILL_ERROR_HDU(file, i_hdu, ": %s '%s', expected wavelengths on a linear scale", key,
                          text);
  if (configured == MILL_MEDIUM_AUTO)
    return MILL_ERROR_HDU(
        file, i_hdu, ": %s '%s' says neither air (AWAV) nor vacuum (WAVE); set medium", key, text);
  return MILL_OK; /* the key medium overrides *air later */
}

int mill_single_linear_wave(mill_fits_file *file, int i_hdu, const mill_single_wcs *key,
                            int configured, int n_pix, double *wave_aa, int *air)
{
  double start = 0.0, step = 0.0, to_aa = 1.0, reference = 1.0; /* 1: FITS's default CRPIX */
  char what[64];
  MILL_CHECK(need_key(file, i_hdu, key->start, NULL, &start));
  MILL_CHECK(need_key(file, i_hdu, key->step, key->other_step, &step));
  MILL_CHECK(mill_single_key_double(file, i_hdu, key->reference, &reference, NULL));
  MILL_CHECK(mill_single_key_unit(file, i_hdu, key->unit, key->default_unit, &to_aa));
  MILL_CHECK(read_medium(file, i_hdu, key->type, configured, air));
  for (int i = 0; i < n_pix; i++) /* the first pixel is 1 + key->beyond */
    wave_aa[i] = (start + ((double)(i + 1 + key->beyond) - reference) * step) * to_aa;
  snprintf(what, sizeof what, "%s, %s and %s", key->start, key->reference, key->step);
  return mill_single_check_wave(file, i_hdu, what, n_pix, wave_aa);
}

/* ---- pixels ----------------------------------------------------------- */

int mill_single_column(mill_fits_file *file, int i_hdu, int is_alone, const char *column,
                       int *n_pix, int *number)
{
  mill_fits_column c;
  MILL_CHECK(mill_fits_column_find(file, i_hdu, column, NULL, &c));
  *number = c.number;
  if (c.type != TBYTE && c.type != TSBYTE && c.type != TSHORT && c.type != TLONG &&
      c.type != TLONGLONG && c.type != TFLOAT && c.type != TDOUBLE)
    return MILL_ERROR_HDU(file, i_hdu, ": column %s must hold numbers, equally many in each row",
                          column);
  const int64_t n_row = file->guard->hdu[i_hdu].axis[1];
  const int all_in_row = !is_alone || n_row == 1; /* not alone: each row is a spectrum */
  const int64_t n = all_in_row ? c.repeat : n_row;
  const int is_first = *n_pix == 0; /* the first column sets n_pix */
  if (is_first && n >= 2 && n <= MILL_SINGLE_MAX_PIX)
    *n_pix = (int)n;
  if (*n_pix > 0 && n == *n_pix && (all_in_row || c.repeat == 1))
    return MILL_OK;
  return MILL_ERROR_HDU(file, i_hdu,
                        ": column %s has %lld rows of %lld values, expected %s%d pixels, %s; make "
                        "the file again",
                        column, (long long)n_row, (long long)c.repeat, is_first ? "2 to " : "",
                        is_first ? MILL_SINGLE_MAX_PIX : *n_pix,
                        is_alone ? "one in each row or all in one row" : "all in each row");
}

/* For reals, CFITSIO gets no substitute for nulls: it would replace infinity too. */
int mill_single_numbers(mill_fits_file *file, int i_hdu, int number, int64_t i_row, int first,
                        int n_pix, double *out)
{
  double nan_value = NAN;
  int type = TDOUBLE, any_null, status = 0;
  MILL_CHECK(mill_fits_file_move(file, i_hdu));
  fits_get_coltype(file->fptr, number, &type, NULL, NULL, &status);
  type = abs(type); /* negative: variable length */
  fits_read_col(file->fptr, TDOUBLE, number, i_row + 1, first + 1, n_pix,
                type == TFLOAT || type == TDOUBLE ? NULL : &nan_value, out, &any_null, &status);
  MILL_CHECK_FITS(file, i_hdu, status, "row %lld (counted from 0) of column %d cannot be read",
                  (long long)i_row, number);
  return MILL_OK;
}

int mill_single_disorder(int n_pix, const double *wave_aa)
{
  int i = 0;
  while (i < n_pix && isfinite(wave_aa[i]) && wave_aa[i] > (i > 0 ? wave_aa[i - 1] : 0.0))
    i++;
  return i;
}

int mill_single_check_wave(const mill_fits_file *file, int i_hdu, const char *what, int n_pix,
                           const double *wave_aa)
{
  const int i = mill_single_disorder(n_pix, wave_aa);
  if (i == n_pix)
    return MILL_OK;
  return MILL_ERROR_HDU(file, i_hdu,
                        ": %s: the wavelength of pixel %d is %g A, but wavelengths must be "
                        "positive and ascending; make the file again",
                        what, i, wave_aa[i]);
}

void mill_single_narrow(const double *value, int n_pix, float *out)
{
  for (int i = 0; i < n_pix; i++)
    out[i] =
        fabs(value[i]) > (double)FLT_MAX ? copysignf(INFINITY, (float)value[i]) : (float)value[i];
}

int32_t mill_single_fold(uint64_t mask)
{
  return (int32_t)((uint32_t)mask | (mask >> 32 != 0 ? UINT32_C(1) << 31 : 0));
}

int mill_single_mask_offset(const mill_fits_file *file, int i_hdu, const char *what, double scale,
                            double zero, uint64_t *offset)
{
  if (scale != 1.0 || (zero != 0.0 && zero != 0x1p63))
    return MILL_ERROR_HDU(
        file, i_hdu,
        "%s holds scaled integers of 64 bits, but masks must be unscaled; make the file again",
        what);
  *offset = zero != 0.0 ? UINT64_C(1) << 63 : 0;
  return MILL_OK;
}

/* ---- index ------------------------------------------------------------ */

int mill_single_check_row(const mill_fits_file *file, int64_t row, int64_t n_row)
{
  if (row < 0 || row >= n_row)
    return MILL_ERROR(MILL_ERR_RANGE, "%s has %lld rows and no row %lld, counted from 0",
                      file->guard->path, (long long)n_row, (long long)row);
  return MILL_OK;
}

int mill_fibres_index(const mill_fibres *fibres, mill_fits_file *file, const mill_fits_values *v,
                      int64_t n_row, double mjd, const mill_selection *select,
                      mill_file_index *index)
{
  MILL_AT_END(mill_class_patterns_free_at) mill_class_patterns *patterns = NULL;
  MILL_CHECK(mill_selection_check(select, file->guard->path, 0, 1));
  MILL_CHECK(mill_class_patterns_make(select, &patterns));
  MILL_CHECK(mill_single_key_double(file, 0, "MJD-OBS", &mjd, NULL));
  MILL_CHECK(mill_file_index_alloc(index, n_row, n_row));
  for (int64_t i = 0; i < n_row; i++) { /* i_class, i_sn of fibres are 0 without such a column */
    mill_catalog_row *row = &index->row[index->n_row];
    const char *name = mill_fits_text_at(&v[0], i); /* wish 0 is the name */
    const int in_class =
        fibres->i_class && mill_class_matches(patterns, mill_fits_text_at(&v[fibres->i_class], i));
    const mill_candidate candidate = {row, fibres->objtype(v, i), in_class,
                                      fibres->i_sn ? v[fibres->i_sn].f64[i] : (double)NAN};
    mill_catalog_row_init(row);
    mill_fits_fill(file->guard->path, fibres->wish, fibres->n_wish, v, i, row);
    if (!mill_selection_keeps(select, &candidate))
      continue;
    if (mill_name_cut(name, strlen(name), row->object, sizeof row->object))
      index->warning = "names of more than 31 bytes are cut to 22 bytes, ~ and a hash of the name";
    index->n_row++;
    mill_file_index_expose(index, i, -1, mjd); /* -1: no EXPID */
  }
  index->n_fits_row = n_row;
  return MILL_OK;
}
