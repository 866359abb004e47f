/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/library/labelled_parts.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "io/surveys/single_spectrum.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"

void mill_labelled_spectra_clear(mill_labelled_spectra *spectra)
{
  if (!spectra)
    return;
  MILL_FREE(spectra->wave_aa, spectra->flux, spectra->label, spectra->name);
  memset(spectra, 0, sizeof *spectra);
}

/* ---- cards ---------------------------------------------------------------------------------- */

int mill_labelled_number(mill_fits_file *file, int i_hdu, const char *key, double *out, int *found)
{
  MILL_CHECK(mill_single_key_double(file, i_hdu, key, out, found));
  if (*found && !isfinite(*out))
    return MILL_ERROR_HDU(file, i_hdu, ": the card %s is %g", key, *out);
  return MILL_OK;
}

void mill_labelled_text(mill_fits_file *file, const char *key, char text[FLEN_VALUE])
{
  int status = 0, truth = 0;
  text[0] = '\0';
  fits_read_key(file->fptr, TSTRING, key, text, NULL, &status);
  if (status == 0)
    return;
  status = 0;
  fits_clear_errmsg();
  text[0] = '\0';
  fits_read_key(file->fptr, TLOGICAL, key, &truth, NULL, &status);
  if (status == 0)
    snprintf(text, FLEN_VALUE, "%c", truth ? 'T' : 'F');
  else
    fits_clear_errmsg();
}

static int begins(const char *text, const char *with)
{
  return strncasecmp(text, with, strlen(with)) == 0;
}

/* WAVE, AWAV or one of these with an algorithm (WAVE-LOG) as CTYPE1 has them; WAVELENGTH, which
 * many write, says nothing of the medium. */
static int is_axis(const char *text, const char *code)
{
  const size_t n = strlen(code);
  return begins(text, code) && (text[n] == '\0' || text[n] == '-');
}

/* ---- wavelengths ----------------------------------------------------------------------------- */

typedef struct wave_rule {
  double first, step; /* of pixel 0 */
  int is_log10;
} wave_rule;

static int rule_from_header(mill_fits_file *file, int i_hdu, wave_rule *rule, char text[160])
{
  int found = 0, has_step = 0, has_flag = 0;
  double value = 0, step = 0, pixel = 0, flag = 0, c0 = 0, c1 = 0;
  char type[FLEN_VALUE], unit[FLEN_VALUE];
  const char *step_key = "CDELT1";
  static const char help[] = "give --wave FIRST,STEP or --log-wave FIRST,STEP";
  mill_labelled_text(file, "CTYPE1", type);
  mill_labelled_text(file, "CUNIT1", unit);
  if (*unit && !begins(unit, "ANG"))
    return MILL_ERROR_HDU(file, i_hdu, ": CUNIT1 is '%.40s', expected Angstrom; %s", unit, help);
  MILL_CHECK(mill_labelled_number(file, i_hdu, "COEFF0", &c0, &found));
  MILL_CHECK(mill_labelled_number(file, i_hdu, "COEFF1", &c1, &has_step));
  if (found && has_step) {
    *rule = (wave_rule){c0, c1, 1};
    snprintf(text, 160, "log10 from COEFF0 %.10g and COEFF1 %.6g", c0, c1);
    return MILL_OK;
  }
  MILL_CHECK(mill_labelled_number(file, i_hdu, "CRVAL1", &value, &found));
  if (!found)
    return MILL_ERROR_HDU(file, i_hdu, ": has no CRVAL1, so its wavelengths are not known; %s",
                          help);
  MILL_CHECK(mill_labelled_number(file, i_hdu, step_key, &step, &has_step));
  if (!has_step) {
    step_key = "CD1_1";
    MILL_CHECK(mill_labelled_number(file, i_hdu, step_key, &step, &has_step));
  }
  if (!has_step)
    return MILL_ERROR_HDU(file, i_hdu, ": has neither CDELT1 nor CD1_1; %s", help);
  MILL_CHECK(mill_labelled_number(file, i_hdu, "CRPIX1", &pixel, &found));
  if (!found)
    return MILL_ERROR_HDU(
        file, i_hdu, ": has CRVAL1 but no CRPIX1, so the pixel of that wavelength is not known; %s",
        help);
  MILL_CHECK(mill_labelled_number(file, i_hdu, "DC-FLAG", &flag, &has_flag));
  if (has_flag && flag != 0 && flag != 1)
    return MILL_ERROR_HDU(file, i_hdu, ": DC-FLAG is %g, expected 0 (linear) or 1 (log10); %s",
                          flag, help);
  if (!has_flag && strchr(type, '-'))
    return MILL_ERROR_HDU(
        file, i_hdu, ": CTYPE1 is '%.40s', a kind of axis that is not known here; %s", type, help);
  /* without DC-FLAG a first wavelength below 10 can only be a log10 */
  rule->is_log10 = has_flag ? flag == 1 : value < 10;
  rule->step = step;
  rule->first = value + (1 - pixel) * step;
  snprintf(text, 160, "%s from CRVAL1 %.10g, %s %.6g and CRPIX1 %g%s",
           rule->is_log10 ? "log10" : "linear", value, step_key, step, pixel,
           has_flag ? " (DC-FLAG)" : "");
  return MILL_OK;
}

/* Air or vacuum as the header says; MILL_MEDIUM_AUTO when it does not. */
static void medium_from_header(mill_fits_file *file, int *medium, char key_text[72])
{
  static const char *const key[] = {"WAVEFRAM", "AIRORVAC", "WAVEMED",
                                    "MEDIUM",   "VACUUM",   "CTYPE1"};
  *medium = MILL_MEDIUM_AUTO;
  for (size_t i = 0; i < sizeof key / sizeof *key; i++) {
    char text[FLEN_VALUE];
    mill_labelled_text(file, key[i], text);
    if (strcmp(key[i], "VACUUM") == 0) {
      if (text[0] == 'T' || text[0] == 'F')
        *medium = text[0] == 'T' ? MILL_MEDIUM_VACUUM : MILL_MEDIUM_AIR;
    } else if (begins(text, "AIR") || is_axis(text, "AWAV")) {
      *medium = MILL_MEDIUM_AIR;
    } else if (begins(text, "VAC") || is_axis(text, "WAVE")) {
      *medium = MILL_MEDIUM_VACUUM;
    }
    if (*medium != MILL_MEDIUM_AUTO) {
      snprintf(key_text, 72, "card %s", key[i]);
      return;
    }
  }
}

/* Medium and checks of wavelengths, and their conversion. */
int mill_labelled_to_vacuum(mill_fits_file *file, int i_hdu, const mill_labelled_request *request,
                            const char *what, int n_pix, double *wave, mill_labelled_origin *origin)
{
  int medium = request->medium;
  snprintf(origin->medium_key, sizeof origin->medium_key, "--medium");
  if (medium == MILL_MEDIUM_AUTO)
    medium_from_header(file, &medium, origin->medium_key);
  if (medium == MILL_MEDIUM_AUTO)
    return MILL_ERROR_HDU(
        file, i_hdu,
        " does not give the medium of its wavelengths; give --medium air or --medium vacuum");
  origin->is_air = medium == MILL_MEDIUM_AIR;
  for (int i = 0; i < n_pix; i++)
    if (!(wave[i] >= 100 && wave[i] <= 1e6) || (i > 0 && !(wave[i] > wave[i - 1])))
      return MILL_ERROR_HDU(file, i_hdu,
                            ": %d pixels with %.6g at pixel %d and %.6g at the last one (%s) are "
                            "not wavelengths in Angstrom: they must ascend between 100 and 1e6; "
                            "give --wave FIRST,STEP or --log-wave FIRST,STEP",
                            n_pix, wave[i], i, wave[n_pix - 1], what);
  for (int i = 0; i < n_pix && origin->is_air; i++)
    wave[i] = mill_air_to_vacuum(wave[i]);
  return MILL_OK;
}

/* An image of one axis, the wavelengths of all spectra. */
static int wavelengths_from_file(const mill_labelled_request *request, int n_pix, double **wave,
                                 mill_labelled_origin *origin)
{
  int err = MILL_OK, status = 0, any_null = 0, i = 0;
  mill_fits_file *file = NULL;
  double nothing = NAN;
  long first[1] = {1};
  MILL_TRY(mill_fits_file_open(request->wave_file, &request->limits, &file));
  const mill_fits_guard *guard = file->guard;
  while (i < guard->n_hdu && !(guard->hdu[i].kind == MILL_FITS_IMAGE && guard->hdu[i].n_axis == 1 &&
                               guard->hdu[i].axis[0] == n_pix))
    i++;
  if (i == guard->n_hdu)
    MILL_FAIL(MILL_ERR_INPUT, "%s: has no image of one axis with the %d pixels of the spectra",
              request->wave_file, n_pix);
  MILL_TRY(MILL_ALLOC(n_pix, wave));
  MILL_TRY(mill_fits_file_move(file, i));
  fits_read_pix(file->fptr, TDOUBLE, first, n_pix, &nothing, *wave, &any_null, &status);
  MILL_TRY_FITS(file, i, status, "the wavelengths cannot be read");
  snprintf(origin->wavelengths, sizeof origin->wavelengths, "from %.10g to %.10g, of --wave-file",
           (*wave)[0], (*wave)[n_pix - 1]);
  MILL_TRY(mill_labelled_to_vacuum(file, i, request, origin->wavelengths, n_pix, *wave, origin));
done:
  mill_fits_file_close(file);
  return err;
}

int mill_labelled_wavelengths(mill_fits_file *file, int i_hdu, const mill_labelled_request *request,
                              int n_pix, double **wave, mill_labelled_origin *origin)
{
  wave_rule rule = {0};
  if (request->wave_file)
    return wavelengths_from_file(request, n_pix, wave, origin);
  if (request->have_wave) {
    rule = (wave_rule){request->wave_first, request->wave_step, request->wave_is_log10};
    snprintf(origin->wavelengths, sizeof origin->wavelengths, "%s as given, from %.10g by %.6g",
             rule.is_log10 ? "log10" : "linear", rule.first, rule.step);
  } else {
    MILL_CHECK(rule_from_header(file, i_hdu, &rule, origin->wavelengths));
  }
  MILL_CHECK(MILL_ALLOC(n_pix, wave));
  for (int i = 0; i < n_pix; i++) {
    const double x = rule.first + i * rule.step;
    (*wave)[i] = rule.is_log10 ? pow(10, x) : x;
  }
  return mill_labelled_to_vacuum(file, i_hdu, request, origin->wavelengths, n_pix, *wave, origin);
}

/* ---- image and table --------------------------------------------------------------------------
 */

int mill_labelled_find_image(const mill_fits_file *file, int *i_hdu)
{
  const mill_fits_guard *guard = file->guard;
  for (*i_hdu = 0; *i_hdu < guard->n_hdu; ++*i_hdu) {
    const mill_fits_hdu *hdu = &guard->hdu[*i_hdu];
    int empty = hdu->n_axis < 2 || hdu->n_axis > 1 + MILL_MAX_GRID_AXIS || hdu->axis[0] < 2;
    for (int k = 1; k < hdu->n_axis && !empty; k++)
      empty = hdu->axis[k] < 1;
    if (hdu->kind == MILL_FITS_IMAGE && !empty)
      return MILL_OK;
  }
  return MILL_ERROR(
      MILL_ERR_INPUT,
      "%s: has no image with two axes, pixels and spectra; see docs/use/libraries.md for "
      "what is read",
      guard->path);
}

/* Values of a label along axis k of a cube: those of the image with the label's name, or equal
   steps from the cards.  value [axis] */
static int read_axis(mill_fits_file *file, int i_hdu, int k, const char *name, double *value)
{
  int status = 0, any_null = 0, i_nodes = -1, found;
  const int64_t n = file->guard->hdu[i_hdu].axis[k];
  double start = 0, step = 0, pixel = 1, nothing = NAN;
  char key[32], upper[MILL_MAX_NAME] = "";
  for (size_t c = 0; name[c] && c + 1 < sizeof upper; c++)
    upper[c] = (char)toupper((unsigned char)name[c]);
  MILL_CHECK(mill_fits_file_find(file, upper, &i_nodes));
  if (i_nodes >= 0) {
    const mill_fits_hdu *hdu = &file->guard->hdu[i_nodes];
    long first[1] = {1};
    if (hdu->kind != MILL_FITS_IMAGE || hdu->n_axis != 1 || hdu->axis[0] != n)
      return MILL_ERROR_HDU(file, i_nodes,
                            ": expected an image of one axis with the %lld values of axis %d",
                            (long long)n, k + 1);
    MILL_CHECK(mill_fits_file_move(file, i_nodes));
    fits_read_pix(file->fptr, TDOUBLE, first, n, &nothing, value, &any_null, &status);
    MILL_CHECK_FITS(file, i_nodes, status, "the values of axis %d cannot be read", k + 1);
    return MILL_OK;
  }
  snprintf(key, sizeof key, "CRPIX%d", k + 1);
  MILL_CHECK(mill_labelled_number(file, i_hdu, key, &pixel, &found));
  snprintf(key, sizeof key, "CRVAL%d", k + 1);
  MILL_CHECK(mill_labelled_number(file, i_hdu, key, &start, &found));
  if (found) {
    snprintf(key, sizeof key, "CDELT%d", k + 1);
    MILL_CHECK(mill_labelled_number(file, i_hdu, key, &step, &found));
  }
  if (!found)
    return MILL_ERROR_HDU(
        file, i_hdu,
        ": the values of axis %d, %s, are not known: there is neither an image %s nor the "
        "card %s",
        k + 1, name, name, key);
  for (int64_t i = 0; i < n; i++)
    value[i] = start + ((double)(i + 1) - pixel) * step;
  return MILL_OK;
}

/* Labels of a cube: each of its axes but the first is one. */
static int read_cube_labels(mill_fits_file *file, int i_hdu, const mill_labelled_request *request,
                            mill_labelled_spectra *spectra)
{
  int err = MILL_OK;
  const mill_fits_hdu *hdu = &file->guard->hdu[i_hdu];
  const size_t n_label = (size_t)request->n_label;
  double *value = NULL;
  size_t stride = 1;
  int axis[MILL_MAX_GRID_AXIS] = {0}; /* of each label; 0: none yet */
  spectra->n_label = request->n_label;
  MILL_TRY(MILL_ALLOC((size_t)spectra->n_spectrum * n_label, &spectra->label));
  if (hdu->n_axis != request->n_label + 1)
    MILL_TRY(MILL_ERROR_HDU(file, i_hdu,
                            " has %d axes besides the pixels, and --labels names %d; name them all",
                            hdu->n_axis - 1, request->n_label));
  for (int k = 1; k < hdu->n_axis; k++) {
    char key[32], name[FLEN_VALUE];
    size_t l = 0;
    MILL_TRY(mill_fits_file_move(file, i_hdu));
    snprintf(key, sizeof key, "CTYPE%d", k + 1);
    mill_labelled_text(file, key, name);
    while (l < n_label && strcasecmp(request->column[l], name) != 0)
      l++;
    if (l == n_label)
      MILL_TRY(MILL_ERROR_HDU(file, i_hdu,
                              ": %s is '%.40s', which --labels NAME=%s,... does not name", key,
                              name, key));
    if (axis[l])
      MILL_TRY(MILL_ERROR_HDU(file, i_hdu,
                              ": CTYPE%d and %s are both '%.40s'; each axis is another label",
                              axis[l], key, name));
    axis[l] = k + 1;
    MILL_TRY(MILL_ALLOC((size_t)hdu->axis[k], &value));
    MILL_TRY(read_axis(file, i_hdu, k, request->column[l], value));
    for (size_t i = 0; i < (size_t)spectra->n_spectrum; i++)
      spectra->label[i * n_label + l] = value[i / stride % (size_t)hdu->axis[k]];
    stride *= (size_t)hdu->axis[k];
    mill_free(value);
    value = NULL;
  }
done:
  mill_free(value);
  return err;
}

static int read_labels(mill_fits_file *file, const mill_labelled_request *request,
                       mill_labelled_spectra *spectra)
{
  int err = MILL_OK, n_table = 0;
  const mill_fits_guard *guard = file->guard;
  double *column = NULL;
  const char *missing = request->column[0];
  const size_t n_label = (size_t)request->n_label;
  spectra->n_label = request->n_label;
  MILL_TRY(MILL_ALLOC(spectra->n_spectrum, &column));
  MILL_TRY(MILL_ALLOC((size_t)spectra->n_spectrum * n_label, &spectra->label));
  for (int i = 0; i < guard->n_hdu; i++) {
    if (guard->hdu[i].kind != MILL_FITS_TABLE || guard->hdu[i].axis[1] != spectra->n_spectrum)
      continue;
    size_t n_found = 0;
    n_table++;
    for (int found = 1; found && n_found < n_label; n_found += (size_t)found) {
      mill_fits_column c;
      missing = request->column[n_found];
      MILL_TRY(mill_fits_column_find(file, i, missing, &found, &c));
    }
    if (n_found < n_label)
      continue;
    for (size_t l = 0; l < n_label; l++) {
      MILL_TRY(mill_fits_column_double(file, i, request->column[l], column, NULL));
      for (size_t j = 0; j < (size_t)spectra->n_spectrum; j++)
        spectra->label[j * n_label + l] = column[j];
    }
    goto done;
  }
  if (n_table == 0)
    MILL_FAIL(MILL_ERR_INPUT, "%s: has no table with a row for each of the %d spectra", guard->path,
              spectra->n_spectrum);
  MILL_FAIL(MILL_ERR_INPUT,
            "%s: no table with a row for each of the %d spectra has a column %s; name the labels' "
            "columns with --labels NAME=COLUMN,...",
            guard->path, spectra->n_spectrum, missing);
done:
  mill_free(column);
  return err;
}

int mill_labelled_image_labels(mill_fits_file *file, int i_hdu,
                               const mill_labelled_request *request, mill_labelled_spectra *spectra)
{
  if (file->guard->hdu[i_hdu].n_axis > 2)
    return read_cube_labels(file, i_hdu, request, spectra);
  return read_labels(file, request, spectra);
}
