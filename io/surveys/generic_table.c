/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/surveys/generic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define WAVELENGTH "WAVELENGTH"

static int unit_to_aa(const mill_generic_table *t, int i_hdu, const char *what, const char *text,
                      double *out)
{
  if (mill_single_unit(text, out))
    return MILL_OK;
  return MILL_ERROR_HDU(t->file, i_hdu, ": %s %s%s%s; set its unit to Angstrom, nm or um", what,
                        text[0] ? "has the unit '" : "has no unit", text, text[0] ? "'" : "");
}

static int column_unit(mill_generic_table *t, int i_hdu, int number, char *out, size_t size)
{
  char key[16];
  snprintf(key, sizeof key, "TUNIT%d", number);
  out[0] = '\0';
  return mill_single_key_text(t->file, i_hdu, key, out, size, NULL);
}

/* ---- columns ---------------------------------------------------------- */

static int take_mask64(mill_generic_table *t, mill_generic_vector *v)
{
  double scale = 1.0, zero = 0.0;
  char key[16];
  snprintf(key, sizeof key, "TSCAL%d", v->plane.number);
  MILL_CHECK(mill_single_key_double(t->file, t->i_hdu, key, &scale, NULL));
  snprintf(key, sizeof key, "TZERO%d", v->plane.number);
  MILL_CHECK(mill_single_key_double(t->file, t->i_hdu, key, &zero, NULL));
  return mill_single_mask_offset(t->file, t->i_hdu, ": column MASK", scale, zero, &v->plane.offset);
}

static int is_integer_type(int type)
{
  return type == TBYTE || type == TSBYTE || type == TSHORT || type == TUSHORT || type == TINT ||
         type == TUINT || type == TLONG || type == TULONG || type == TLONGLONG ||
         type == TULONGLONG;
}

/* Check column i's type and choose how to read it.  equivalent: the type after TSCAL and TZERO. */
static int take_type(mill_generic_table *t, int i, int type, int equivalent)
{
  mill_generic_vector *v = &t->vector[i];
  const int stored = abs(type), is_integer = is_integer_type(stored);
  v->plane.mask_type = stored;
  v->variable = type < 0;  /* CFITSIO's sign of arrays of variable length */
  v->n_byte = stored / 10; /* CFITSIO's type codes are 10 times the bytes */
  if (i == MILL_MASK) {
    if (stored == TLONGLONG)
      MILL_CHECK(take_mask64(t, v));
    else if (stored != TLOGICAL && !(is_integer && is_integer_type(abs(equivalent))))
      return MILL_ERROR_TABLE(t, "column %s must hold integers or truth values", v->plane.name);
  } else if (!is_integer && stored != TFLOAT && stored != TDOUBLE) {
    return MILL_ERROR_TABLE(t, "column %s must hold vectors of numbers", v->plane.name);
  }
  return MILL_OK;
}

/* Find column `name` and set vector i; *found 0: the table lacks the column. */
static int find_vector(mill_generic_table *t, int i, const char *name, int *found)
{
  mill_generic_vector *v = &t->vector[i];
  int status = 0, equivalent = 0;
  mill_fits_column c;
  MILL_CHECK(mill_fits_column_find(t->file, t->i_hdu, name, found, &c));
  if (!*found)
    return MILL_OK;
  v->plane = (mill_plane){.name = name, .i_hdu = t->i_hdu, .number = c.number, .row = -1};
  MILL_CHECK_FITS(t->file, t->i_hdu,
                  fits_get_eqcoltypell(t->file->fptr, c.number, &equivalent, NULL, NULL, &status),
                  "column %s cannot be found", name);
  MILL_CHECK(take_type(t, i, c.type, equivalent));
  v->length = c.repeat;
  if (!v->variable && (c.repeat < 2 || c.repeat > MILL_SINGLE_MAX_PIX))
    return MILL_ERROR_TABLE(
        t, "column %s holds %lld values a row, expected 2 to %d: a row is one spectrum", name,
        (long long)c.repeat, MILL_SINGLE_MAX_PIX);
  return MILL_OK;
}

/* Fail if column FLUX claims more values than its heap can hold: if rows shared bytes, a small file
 * could claim any number of pixels. */
static int check_heap(mill_generic_table *t)
{
  const mill_generic_vector *flux = &t->vector[MILL_FLUX];
  MILL_OWNED LONGLONG *length = NULL, *start = NULL;
  int64_t left = t->heap_bytes / flux->n_byte;
  int status = 0;
  if (!flux->variable || t->n_row == 0)
    return MILL_OK;
  MILL_CHECK(MILL_ALLOC(t->n_row, &length));
  MILL_CHECK(MILL_ALLOC(t->n_row, &start));
  MILL_CHECK_FITS(
      t->file, t->i_hdu,
      fits_read_descriptsll(t->file->fptr, flux->plane.number, 1, t->n_row, length, start, &status),
      "column FLUX cannot be read");
  for (int64_t i = 0; i < t->n_row; i++) {
    /* reading the row will refuse an impossible length */
    if (length[i] < 0 || length[i] > t->heap_bytes / flux->n_byte)
      continue;
    left -= length[i];
    if (left < 0)
      return MILL_ERROR_TABLE(t,
                              "rows 0 to %lld of column FLUX have more values than their table "
                              "holds; fetch or make the file again",
                              (long long)i);
  }
  return MILL_OK;
}

/* Find the vector columns.  FLUX and its errors must exist; lengths and units must agree. */
static int find_vectors(mill_generic_table *t)
{
  static const char *const name[MILL_N_PLANE] = {[MILL_FLUX] = "FLUX",
                                                 [MILL_WAVE] = WAVELENGTH,
                                                 [MILL_IVAR] = "IVAR",
                                                 [MILL_MASK] = "MASK",
                                                 [MILL_WIDTH] = "LSF_SIGMA"};
  static const int in_aa[] = {MILL_WAVE, MILL_WIDTH}; /* vectors to be converted to A */
  char flux_unit[FLEN_VALUE], error_unit[FLEN_VALUE], unit[FLEN_VALUE];
  const mill_generic_vector *flux = &t->vector[MILL_FLUX];
  int found[MILL_N_PLANE] = {0};
  for (int i = 0; i < MILL_N_PLANE; i++)
    if (name[i])
      MILL_CHECK(find_vector(t, i, name[i], &found[i]));
  MILL_CHECK(find_vector(t, MILL_IVAR, "ERROR", &t->is_error)); /* takes the place of IVAR */
  if (!found[MILL_FLUX])
    return MILL_ERROR_TABLE(t, "has no column FLUX, which is needed");
  if (found[MILL_IVAR] + t->is_error != 1)
    return MILL_ERROR_TABLE(t, "has %s the columns IVAR and ERROR; give one of them",
                            t->is_error ? "both of" : "neither of");
  for (int i = 0; i < MILL_N_PLANE; i++) {
    const mill_generic_vector *v = &t->vector[i];
    if (v->plane.name && !v->variable && !flux->variable && v->length != flux->length)
      return MILL_ERROR_TABLE(t, "column %s has %lld values a row, but FLUX has %lld",
                              v->plane.name, (long long)v->length, (long long)flux->length);
  }
  for (int k = 0; k < 2; k++) {
    mill_generic_vector *v = &t->vector[in_aa[k]];
    char what[32];
    if (!v->plane.name)
      continue;
    snprintf(what, sizeof what, "column %s", v->plane.name);
    MILL_CHECK(column_unit(t, t->i_hdu, v->plane.number, unit, sizeof unit));
    MILL_CHECK(unit_to_aa(t, t->i_hdu, what, unit, &v->to_aa));
  }
  MILL_CHECK(column_unit(t, t->i_hdu, flux->plane.number, flux_unit, sizeof flux_unit));
  MILL_CHECK(
      column_unit(t, t->i_hdu, t->vector[MILL_IVAR].plane.number, error_unit, sizeof error_unit));
  if (t->is_error && flux_unit[0] && error_unit[0] && strcmp(flux_unit, error_unit) != 0)
    return MILL_ERROR_TABLE(t, "column ERROR has the unit '%s', but FLUX has '%s'", error_unit,
                            flux_unit);
  return MILL_OK;
}

/* ---- wavelengths shared by all rows ------------------------------------- */

/* Read HDU WAVELENGTH.  Padding (0, NaN, repeats) is allowed: rows mark such pixels as bad. */
static int read_shared_wave(mill_generic_table *t, int i_hdu)
{
  const mill_fits_hdu *hdu = &t->file->guard->hdu[i_hdu];
  char unit[FLEN_VALUE] = "";
  double to_aa = 0.0, last = 0.0;
  int number;
  if (hdu->kind == MILL_FITS_TABLE) {
    MILL_CHECK(mill_single_column(t->file, i_hdu, 1, WAVELENGTH, &t->n_shared, &number));
    MILL_CHECK(MILL_ALLOC(t->n_shared, &t->shared_wave_aa));
    MILL_CHECK(mill_single_numbers(t->file, i_hdu, number, 0, 0, t->n_shared, t->shared_wave_aa));
    MILL_CHECK(column_unit(t, i_hdu, number, unit, sizeof unit));
  } else {
    if (hdu->kind != MILL_FITS_IMAGE || hdu->n_axis != 1 || hdu->axis[0] < 2 ||
        hdu->axis[0] > MILL_SINGLE_MAX_PIX)
      return MILL_ERROR_HDU(t->file, i_hdu,
                            " must be an image of one axis with 2 to %d wavelengths, or a table "
                            "with a column of them",
                            MILL_SINGLE_MAX_PIX);
    t->n_shared = (int)hdu->axis[0];
    MILL_CHECK(MILL_ALLOC(t->n_shared, &t->shared_wave_aa));
    MILL_CHECK(mill_fits_image_row(t->file, i_hdu, 0, t->n_shared, t->shared_wave_aa));
    MILL_CHECK(mill_single_key_text(t->file, i_hdu, "BUNIT", unit, sizeof unit, NULL));
  }
  MILL_CHECK(unit_to_aa(t, i_hdu, "the wavelength", unit, &to_aa));
  for (int i = 0; i < t->n_shared; i++)
    t->shared_wave_aa[i] *= to_aa;
  for (int i = 0; i < t->n_shared; i++) {
    if (t->shared_wave_aa[i] > 0.0 &&
        t->shared_wave_aa[i] < last) /* descends, so the check fails */
      return mill_single_check_wave(t->file, i_hdu, "all rows", t->n_shared, t->shared_wave_aa);
    if (t->shared_wave_aa[i] > last)
      last = t->shared_wave_aa[i];
  }
  return MILL_OK;
}

/* Check that wavelengths are either in a column or in an HDU, and read the HDU. */
static int find_wavelengths(mill_generic_table *t)
{
  int i_hdu;
  MILL_CHECK(mill_fits_file_find(t->file, WAVELENGTH, &i_hdu));
  const int has_column = t->vector[MILL_WAVE].plane.name != NULL;
  if (has_column == (i_hdu >= 0))
    return MILL_ERROR_TABLE(
        t, "%s",
        has_column ? "there are both a column and an HDU WAVELENGTH; remove one of them"
                   : "has no column WAVELENGTH, nor has the file an HDU of that name");
  if (i_hdu >= 0)
    MILL_CHECK(read_shared_wave(t, i_hdu));
  const mill_generic_vector *flux = &t->vector[MILL_FLUX];
  if (t->n_shared > 0 && !flux->variable && flux->length != t->n_shared)
    return MILL_ERROR_TABLE(t, "column FLUX has %lld values a row, but HDU WAVELENGTH has %d",
                            (long long)flux->length, t->n_shared);
  return MILL_OK;
}

/* Read medium and velocity frame of wavelengths.  A configured `medium` overrides t->air later. */
static int read_conventions(mill_generic_table *t, int medium)
{
  char text[FLEN_VALUE] = "";
  int found;
  MILL_CHECK(mill_single_key_text(t->file, t->i_hdu, "MEDIUM", text, sizeof text, &found));
  t->air = strcasecmp(text, "air") == 0;
  if (found && !t->air && strcasecmp(text, "vacuum") != 0)
    return MILL_ERROR_TABLE(t, "MEDIUM is '%s', expected 'vacuum' or 'air'", text);
  if (!found && medium == MILL_MEDIUM_AUTO)
    return MILL_ERROR_TABLE(
        t, "keyword MEDIUM must say whether wavelengths are 'vacuum' or 'air'; or set medium");
  MILL_CHECK(mill_single_key_text(t->file, t->i_hdu, "FRAME", text, sizeof text, &found));
  t->frame = found ? mill_frame_from_name(text, sizeof text) : MILL_FRAME_UNKNOWN;
  if (found && t->frame == MILL_FRAME_UNKNOWN)
    return MILL_ERROR_TABLE(
        t, "FRAME is '%s', expected 'barycentric', 'heliocentric' or 'topocentric'", text);
  return MILL_OK;
}

/* Compute the bytes of the heap, which holds vectors of variable length. */
static int measure_heap(mill_generic_table *t)
{
  const mill_fits_hdu *hdu = &t->file->guard->hdu[t->i_hdu];
  double start = (double)hdu->axis[0] * (double)hdu->axis[1];
  MILL_CHECK(mill_single_key_double(t->file, t->i_hdu, "THEAP", &start, NULL));
  t->heap_bytes = hdu->data_bytes - (int64_t)start; /* at least 0, by the guard */
  return MILL_OK;
}

int mill_generic_table_open(mill_fits_file *file, int medium, mill_generic_table *table)
{
  table->file = file;
  MILL_CHECK(mill_fits_file_find(file, "SPECTRA", &table->i_hdu));
  if (table->i_hdu < 0 || file->guard->hdu[table->i_hdu].kind != MILL_FITS_TABLE)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: has no binary table SPECTRA; docs/use/formats.md has the generic layout",
                      file->guard->path);
  table->n_row = file->guard->hdu[table->i_hdu].axis[1];
  MILL_CHECK(measure_heap(table));
  MILL_CHECK(find_vectors(table));
  MILL_CHECK(check_heap(table));
  MILL_CHECK(find_wavelengths(table));
  return read_conventions(table, medium);
}
