#include "io/library/labelled_spectra.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "io/fits/fits_file.h"
#include "io/surveys/single_spectrum.h"
#include "kernels/base/error.h"

enum { MAX_SPECTRA = 20000 };   /* the fit takes time as their third power */
#define MAX_NUMBERS 268435456.0 /* of an image: 1 GiB */

/* ---- cards ---------------------------------------------------------------------------------- */

/* A finite number of a card; found 0, and out untouched, when it is missing. */
static int read_number(mill_fits_file *file, int i_hdu, const char *key, double *out, int *found)
{
  int err = MILL_OK;
  MILL_TRY(mill_single_key_double(file, i_hdu, key, out, found));
  if (*found && !isfinite(*out))
    MILL_FAIL_HDU(file, i_hdu, ": the card %s is %g", key, *out);
done:
  return err;
}

/* Text of a card, empty when it is missing or no text; a truth value reads T or F. */
static void read_text(mill_fits_file *file, const char *key, char text[FLEN_VALUE])
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
  int err = MILL_OK, found = 0, has_step = 0, has_flag = 0;
  double value = 0, step = 0, pixel = 0, flag = 0, c0 = 0, c1 = 0;
  char type[FLEN_VALUE], unit[FLEN_VALUE];
  const char *step_key = "CDELT1";
  static const char help[] = "give --wave FIRST,STEP or --log-wave FIRST,STEP";
  read_text(file, "CTYPE1", type);
  read_text(file, "CUNIT1", unit);
  if (*unit && !begins(unit, "ANG"))
    MILL_FAIL_HDU(file, i_hdu, ": CUNIT1 is '%.40s', expected Angstrom; %s", unit, help);
  MILL_TRY(read_number(file, i_hdu, "COEFF0", &c0, &found));
  MILL_TRY(read_number(file, i_hdu, "COEFF1", &c1, &has_step));
  if (found && has_step) {
    *rule = (wave_rule){c0, c1, 1};
    snprintf(text, 160, "log10 from COEFF0 %.10g and COEFF1 %.6g", c0, c1);
    return MILL_OK;
  }
  MILL_TRY(read_number(file, i_hdu, "CRVAL1", &value, &found));
  if (!found)
    MILL_FAIL_HDU(file, i_hdu, ": has no CRVAL1, so its wavelengths are not known; %s", help);
  MILL_TRY(read_number(file, i_hdu, step_key, &step, &has_step));
  if (!has_step) {
    step_key = "CD1_1";
    MILL_TRY(read_number(file, i_hdu, step_key, &step, &has_step));
  }
  if (!has_step)
    MILL_FAIL_HDU(file, i_hdu, ": has neither CDELT1 nor CD1_1; %s", help);
  MILL_TRY(read_number(file, i_hdu, "CRPIX1", &pixel, &found));
  if (!found)
    MILL_FAIL_HDU(file, i_hdu,
                  ": has CRVAL1 but no CRPIX1, so the pixel of that wavelength is not known; %s",
                  help);
  MILL_TRY(read_number(file, i_hdu, "DC-FLAG", &flag, &has_flag));
  if (has_flag && flag != 0 && flag != 1)
    MILL_FAIL_HDU(file, i_hdu, ": DC-FLAG is %g, expected 0 (linear) or 1 (log10); %s", flag, help);
  if (!has_flag && strchr(type, '-'))
    MILL_FAIL_HDU(file, i_hdu, ": CTYPE1 is '%.40s', a kind of axis that is not known here; %s",
                  type, help);
  /* without DC-FLAG a first wavelength below 10 can only be a log10 */
  rule->is_log10 = has_flag ? flag == 1 : value < 10;
  rule->step = step;
  rule->first = value + (1 - pixel) * step;
  snprintf(text, 160, "%s from CRVAL1 %.10g, %s %.6g and CRPIX1 %g%s",
           rule->is_log10 ? "log10" : "linear", value, step_key, step, pixel,
           has_flag ? " (DC-FLAG)" : "");
done:
  return err;
}

/* Air or vacuum as the header says; MILL_MEDIUM_AUTO when it does not. */
static void medium_from_header(mill_fits_file *file, int *medium, char key_text[72])
{
  static const char *const key[] = {"WAVEFRAM", "AIRORVAC", "WAVEMED",
                                    "MEDIUM",   "VACUUM",   "CTYPE1"};
  *medium = MILL_MEDIUM_AUTO;
  for (size_t i = 0; i < sizeof key / sizeof *key; i++) {
    char text[FLEN_VALUE];
    read_text(file, key[i], text);
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

static int make_wavelengths(mill_fits_file *file, int i_hdu, const mill_labelled_request *request,
                            mill_labelled_spectra *spectra, mill_labelled_origin *origin)
{
  int err = MILL_OK;
  wave_rule rule = {0};
  int medium = request->medium;
  if (request->have_wave) {
    rule = (wave_rule){request->wave_first, request->wave_step, request->wave_is_log10};
    snprintf(origin->wavelengths, sizeof origin->wavelengths, "%s as given, from %.10g by %.6g",
             rule.is_log10 ? "log10" : "linear", rule.first, rule.step);
  } else {
    MILL_TRY(rule_from_header(file, i_hdu, &rule, origin->wavelengths));
  }
  snprintf(origin->medium_key, sizeof origin->medium_key, "--medium");
  if (medium == MILL_MEDIUM_AUTO)
    medium_from_header(file, &medium, origin->medium_key);
  if (medium == MILL_MEDIUM_AUTO)
    MILL_FAIL_HDU(file, i_hdu,
                  " does not say whether its wavelengths are those of air or vacuum; give --medium "
                  "air or --medium vacuum");
  origin->is_air = medium == MILL_MEDIUM_AIR;
  const double last = rule.first + (spectra->n_pix - 1) * rule.step;
  const double low = rule.is_log10 ? pow(10, rule.first) : rule.first;
  const double high = rule.is_log10 ? pow(10, last) : last;
  if (!(rule.step > 0) || !(low >= 100) || !(high <= 1e6))
    MILL_FAIL_HDU(file, i_hdu,
                  ": %d pixels from %.6g by %.6g (%s) are no wavelengths in Angstrom: they must "
                  "ascend between 100 and 1e6; give --wave FIRST,STEP or --log-wave FIRST,STEP",
                  spectra->n_pix, rule.first, rule.step, rule.is_log10 ? "log10" : "linear");
  MILL_TRY(MILL_ALLOC(spectra->n_pix, &spectra->wave_aa));
  for (int i = 0; i < spectra->n_pix; i++) {
    const double x = rule.first + i * rule.step, wave = rule.is_log10 ? pow(10, x) : x;
    spectra->wave_aa[i] = origin->is_air ? mill_air_to_vacuum(wave) : wave;
  }
done:
  return err;
}

/* ---- image and table --------------------------------------------------------------------------
 */

static int find_image(const mill_fits_file *file, int *i_hdu)
{
  int err = MILL_OK;
  const mill_fits_guard *guard = file->guard;
  for (*i_hdu = 0; *i_hdu < guard->n_hdu; ++*i_hdu) {
    const mill_fits_hdu *hdu = &guard->hdu[*i_hdu];
    if (hdu->kind == MILL_FITS_IMAGE && hdu->n_axis == 2 && hdu->axis[0] > 1 && hdu->axis[1] > 0)
      return MILL_OK;
  }
  MILL_FAIL(MILL_ERR_INPUT,
            "%s: has no image with two axes, pixels and spectra; see docs/use/libraries.md for "
            "what is read",
            guard->path);
done:
  return err;
}

static int read_image(mill_fits_file *file, int i_hdu, mill_labelled_spectra *spectra)
{
  int err = MILL_OK, status = 0, any_null = 0;
  const mill_fits_hdu *hdu = &file->guard->hdu[i_hdu];
  float blank = NAN; /* integers that mean nothing become what is refused */
  long first[2] = {1, 1};
  const double size = (double)hdu->axis[0] * (double)hdu->axis[1];
  if (hdu->axis[1] > MAX_SPECTRA || size > MAX_NUMBERS)
    MILL_FAIL_HDU(file, i_hdu,
                  " has %lld spectra of %lld pixels; %d spectra and %.0f numbers are possible",
                  (long long)hdu->axis[1], (long long)hdu->axis[0], MAX_SPECTRA, MAX_NUMBERS);
  spectra->n_pix = (int)hdu->axis[0];
  spectra->n_spectrum = (int)hdu->axis[1];
  MILL_TRY(MILL_ALLOC((size_t)size, &spectra->flux));
  MILL_TRY(mill_fits_file_move(file, i_hdu));
  fits_read_pix(file->fptr, TFLOAT, first, (LONGLONG)size, &blank, spectra->flux, &any_null,
                &status);
  MILL_TRY_FITS(file, i_hdu, status, "the image cannot be read");
done:
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

int mill_labelled_spectra_read(const char *path, const mill_labelled_request *request,
                               mill_labelled_spectra *spectra, mill_labelled_origin *origin)
{
  int err = MILL_OK, i_hdu = 0, found = 0;
  mill_fits_file *file = NULL;
  memset(origin, 0, sizeof *origin);
  MILL_TRY(mill_fits_file_open(path, &request->limits, &file));
  MILL_TRY(find_image(file, &i_hdu));
  MILL_TRY(read_image(file, i_hdu, spectra));
  MILL_TRY(make_wavelengths(file, i_hdu, request, spectra, origin));
  MILL_TRY(read_number(file, i_hdu, "FWHM", &origin->fwhm_aa, &found));
  if (!found)
    origin->fwhm_aa = NAN;
  MILL_TRY(read_labels(file, request, spectra));
done:
  mill_fits_file_close(file);
  if (err != MILL_OK)
    mill_labelled_spectra_clear(spectra);
  return err;
}
