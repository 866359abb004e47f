/* SPDX-License-Identifier: BSD-3-Clause */
/* Labelled spectra of files with one spectrum each. */
#include "io/library/labelled_parts.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "io/surveys/single_spectrum.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/regular_file.h"

/* ---- names ---- */

/* Bytes of a name without .fits or .fit, and .gz; 0 when it has none of these ends. */
static size_t stem_length(const char *name)
{
  static const char *const end[] = {".fits", ".fit", ".fits.gz", ".fit.gz"};
  const size_t n = strlen(name);
  for (size_t i = 0; i < sizeof end / sizeof *end; i++) {
    const size_t n_end = strlen(end[i]);
    if (n > n_end && strcasecmp(name + n - n_end, end[i]) == 0)
      return n - n_end;
  }
  return 0;
}

const char *mill_labelled_stem(const char *path, int *n)
{
  const char *name = mill_base_name(path);
  const size_t length = stem_length(name);
  *n = (int)(length > 0 ? length : strlen(name));
  return name;
}

static int is_fits(const struct dirent *entry)
{
  return entry->d_name[0] != '.' && stem_length(entry->d_name) > 0;
}

void mill_labelled_files_free(char **list, int n)
{
  for (int i = 0; list && i < n; i++)
    mill_free(list[i]);
  mill_free(list);
}

int mill_labelled_files_list(const char *path, char ***list, int *n)
{
  int err = MILL_OK, n_entry = 0;
  struct dirent **entry = NULL;
  struct stat about;
  *list = NULL;
  *n = 0;
  if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode))
    return MILL_OK;
  n_entry = scandir(path, &entry, is_fits, alphasort);
  if (n_entry < 0)
    MILL_FAIL(MILL_ERR_INPUT, "%s: cannot be listed: %s", path, strerror(errno));
  if (n_entry == 0)
    MILL_FAIL(MILL_ERR_INPUT, "%s: has no files .fits, .fit, .fits.gz or .fit.gz", path);
  MILL_TRY(MILL_ALLOC(n_entry, list));
  for (*n = 0; *n < n_entry; ++*n) {
    const size_t size = strlen(path) + strlen(entry[*n]->d_name) + 2;
    MILL_TRY(MILL_ALLOC(size, &(*list)[*n]));
    snprintf((*list)[*n], size, "%s/%s", path, entry[*n]->d_name);
  }
done:
  for (int i = 0; i < n_entry; i++)
    free(entry[i]); /* of the C library */
  free(entry);
  if (err != MILL_OK) {
    mill_labelled_files_free(*list, *n);
    *list = NULL;
    *n = 0;
  }
  return err;
}

/* ---- one spectrum ---- */

void mill_labelled_one_clear(mill_labelled_one *one)
{
  MILL_FREE(one->wave, one->flux, one->continuum);
  memset(one, 0, sizeof *one);
}

/* The table with both columns; *c is that of the wavelengths. */
static int find_columns(mill_fits_file *file, const mill_labelled_request *request, int *i_hdu,
                        mill_fits_column *c)
{
  const mill_fits_guard *guard = file->guard;
  const char *const column[2] = {request->wave_column, request->flux_column};
  for (*i_hdu = 0; *i_hdu < guard->n_hdu; ++*i_hdu) {
    int has_wave = 0, has_flux = 0;
    if (guard->hdu[*i_hdu].kind != MILL_FITS_TABLE)
      continue;
    MILL_CHECK(mill_fits_column_find(file, *i_hdu, column[1], &has_flux, c));
    MILL_CHECK(mill_fits_column_find(file, *i_hdu, column[0], &has_wave, c));
    if (has_wave && has_flux)
      return MILL_OK;
  }
  return MILL_ERROR(MILL_ERR_INPUT,
                    "%s: no table has the columns %s and %s; name them with --columns", guard->path,
                    column[0], column[1]);
}

static int read_columns(mill_fits_file *file, const mill_labelled_request *request,
                        mill_labelled_one *one, mill_labelled_origin *origin)
{
  const char *const column[2] = {request->wave_column, request->flux_column};
  mill_fits_column c;
  char key[16], unit[FLEN_VALUE];
  MILL_CHECK(find_columns(file, request, &one->i_hdu, &c));
  snprintf(key, sizeof key, "TUNIT%d", c.number);
  mill_labelled_text(file, key, unit);
  if (*unit && strncasecmp(unit, "ANG", 3) != 0 && strcmp(unit, "A") != 0)
    return MILL_ERROR_HDU(file, one->i_hdu, ": the unit of %s is '%.40s', expected Angstrom",
                          column[0], unit);
  MILL_CHECK(mill_single_check_columns(file, one->i_hdu, column, 2, &one->n_pix));
  MILL_CHECK(MILL_ALLOC(one->n_pix, &one->wave));
  MILL_CHECK(MILL_ALLOC(one->n_pix, &one->flux));
  MILL_CHECK(mill_single_column(file, one->i_hdu, column[0], one->n_pix, one->wave));
  MILL_CHECK(mill_single_column(file, one->i_hdu, column[1], one->n_pix, one->flux));
  if (request->continuum_column[0]) {
    MILL_CHECK(MILL_ALLOC(one->n_pix, &one->continuum));
    MILL_CHECK(mill_single_column(file, one->i_hdu, request->continuum_column, one->n_pix,
                                  one->continuum));
  }
  snprintf(origin->wavelengths, sizeof origin->wavelengths, "column %s", column[0]);
  return mill_labelled_to_vacuum(file, one->i_hdu, request, origin->wavelengths, one->n_pix,
                                 one->wave, origin);
}

/* The image of one spectrum. */
static int find_row_image(const mill_fits_file *file, int *i_hdu)
{
  const mill_fits_guard *guard = file->guard;
  for (*i_hdu = 0; *i_hdu < guard->n_hdu; ++*i_hdu) {
    const mill_fits_hdu *hdu = &guard->hdu[*i_hdu];
    int is_row = hdu->kind == MILL_FITS_IMAGE && hdu->n_axis > 0 && hdu->axis[0] > 1;
    for (int k = 1; k < hdu->n_axis && is_row; k++)
      is_row = hdu->axis[k] == 1;
    if (is_row)
      return MILL_OK;
  }
  return MILL_ERROR(MILL_ERR_INPUT,
                    "%s: has no image of one spectrum; name the columns of a table with --columns "
                    "WAVE,FLUX",
                    guard->path);
}

/* first: what the first file has given; --wave-file is not read again for those like it. */
static int read_image(mill_fits_file *file, const mill_labelled_request *request,
                      const mill_labelled_spectra *first, mill_labelled_one *one,
                      mill_labelled_origin *origin)
{
  int status = 0, any_null = 0;
  const mill_fits_guard *guard = file->guard;
  double nothing = NAN;
  long corner[MILL_FITS_MAX_AXIS];
  MILL_CHECK(find_row_image(file, &one->i_hdu));
  if (guard->hdu[one->i_hdu].axis[0] > MILL_SINGLE_MAX_PIX)
    return MILL_ERROR_HDU(file, one->i_hdu, " has %lld pixels, at most %d",
                          (long long)guard->hdu[one->i_hdu].axis[0], MILL_SINGLE_MAX_PIX);
  one->n_pix = (int)guard->hdu[one->i_hdu].axis[0];
  for (int k = 0; k < MILL_FITS_MAX_AXIS; k++)
    corner[k] = 1;
  MILL_CHECK(MILL_ALLOC(one->n_pix, &one->flux));
  MILL_CHECK(mill_fits_file_move(file, one->i_hdu));
  fits_read_pix(file->fptr, TDOUBLE, corner, one->n_pix, &nothing, one->flux, &any_null, &status);
  MILL_CHECK_FITS(file, one->i_hdu, status, "the spectrum cannot be read");
  if (request->wave_file && first->wave_aa && first->n_pix == one->n_pix) {
    MILL_CHECK(MILL_ALLOC(one->n_pix, &one->wave));
    memcpy(one->wave, first->wave_aa, (size_t)one->n_pix * sizeof *one->wave);
    return MILL_OK;
  }
  return mill_labelled_wavelengths(file, one->i_hdu, request, one->n_pix, &one->wave, origin);
}

/* A number of the spectrum's header, or of the first one; NaN: neither has it. */
static int read_card(mill_fits_file *file, int i_hdu, const char *key, double *out)
{
  int found = 0;
  *out = NAN;
  MILL_CHECK(mill_labelled_number(file, i_hdu, key, out, &found));
  if (!found && i_hdu != 0)
    MILL_CHECK(mill_labelled_number(file, 0, key, out, &found));
  return MILL_OK;
}

int mill_labelled_one_cards(const char *path, const mill_labelled_request *request, double *label)
{
  int err = MILL_OK, i_hdu = 0;
  mill_fits_file *file = NULL;
  mill_fits_column c;
  MILL_TRY(mill_fits_file_open(path, &request->limits, &file));
  if (request->flux_column[0])
    MILL_TRY(find_columns(file, request, &i_hdu, &c));
  else
    MILL_TRY(find_row_image(file, &i_hdu));
  for (int l = 0; l < request->n_label; l++)
    MILL_TRY(read_card(file, i_hdu, request->column[l], &label[l]));
done:
  mill_fits_file_close(file);
  return err;
}

int mill_labelled_one_read(const char *path, const mill_labelled_request *request,
                           const mill_labelled_spectra *first, mill_labelled_one *one,
                           mill_labelled_origin *origin)
{
  int err = MILL_OK;
  mill_fits_file *file = NULL;
  MILL_TRY(mill_fits_file_open(path, &request->limits, &file));
  if (request->flux_column[0])
    MILL_TRY(read_columns(file, request, one, origin));
  else
    MILL_TRY(read_image(file, request, first, one, origin));
  MILL_TRY(read_card(file, one->i_hdu, "FWHM", &origin->fwhm_aa));
done:
  mill_fits_file_close(file);
  return err;
}

/* ---- labels of a table ---- */

/* The row of a table whose name, of n_row texts at text, is that of the file at path; -1: none. */
static int find_row(const char *table, const char *path, const char *text, size_t stride,
                    int64_t n_row, int64_t *row)
{
  int n_wanted = 0;
  const char *wanted = mill_labelled_stem(path, &n_wanted);
  *row = -1;
  for (int64_t r = 0; r < n_row; r++) {
    int n = 0;
    const char *full = text + (size_t)r * stride,
               *name = mill_labelled_stem(full + strspn(full, " "), &n);
    if (n != n_wanted || memcmp(name, wanted, (size_t)n) != 0)
      continue;
    if (*row >= 0)
      return MILL_ERROR(
          MILL_ERR_INPUT,
          "%s: rows %lld and %lld (counted from 1) both have the name '%.*s': leave one of "
          "them out",
          table, (long long)*row + 1, (long long)r + 1, n, name);
    *row = r;
  }
  return MILL_OK;
}

int mill_labelled_table_read(const char *const *path, const mill_labelled_request *request,
                             mill_labelled_spectra *spectra)
{
  int err = MILL_OK, i = 0, found = 0, n_matched = 0;
  mill_fits_file *file = NULL;
  char *text = NULL;
  size_t stride = 0;
  double *column = NULL;
  int64_t *row = NULL;
  mill_fits_column c;
  const size_t n_label = (size_t)request->n_label;
  MILL_TRY(mill_fits_file_open(request->table, &request->limits, &file));
  const mill_fits_guard *guard = file->guard;
  for (; i < guard->n_hdu; i++) {
    if (guard->hdu[i].kind == MILL_FITS_TABLE)
      MILL_TRY(mill_fits_column_find(file, i, request->name_column, &found, &c));
    if (found)
      break;
  }
  if (!found)
    MILL_FAIL(MILL_ERR_INPUT,
              "%s: no table has a column %s with the names of the files; name it "
              "with --name-column",
              request->table, request->name_column);
  MILL_TRY(mill_fits_file_check_rows(file));
  const int64_t n_row = guard->hdu[i].axis[1];
  MILL_TRY(mill_fits_column_text(file, i, request->name_column, &text, &stride, &found));
  MILL_TRY(MILL_ALLOC(n_row, &column));
  MILL_TRY(MILL_ALLOC(spectra->n_spectrum, &row));
  for (int k = 0; k < spectra->n_spectrum; k++) {
    MILL_TRY(find_row(request->table, path[k], text, stride, n_row, &row[k]));
    n_matched += row[k] >= 0;
  }
  if (n_matched == 0)
    MILL_FAIL(MILL_ERR_INPUT,
              "%s: its column %s has none of the files' names, such as %s; the first is '%.40s'",
              request->table, request->name_column, spectra->name[0], n_row > 0 ? text : "");
  for (size_t l = 0; l < n_label; l++) {
    MILL_TRY(mill_fits_column_double(file, i, request->column[l], column, NULL));
    for (size_t k = 0; k < (size_t)spectra->n_spectrum; k++)
      if (row[k] >= 0)
        spectra->label[k * n_label + l] = column[row[k]];
  }
done:
  mill_fits_file_close(file);
  MILL_FREE(text, column, row);
  return err;
}
