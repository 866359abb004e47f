/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/library/model_source.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/files/sha256.h"
#include "io/library/labelled_parts.h"
#include "io/library/name_pattern.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/libraries/cubic_spline.h"

struct mill_model_source {
  const mill_model_request *request;
  const char *const *path;
  int n_model;
  mill_labelled_spectra known; /* labels of all, where a table or a cube has them; the wavelengths
                                  that were read first */
  mill_labelled_origin origin;
  /* of one file with many */
  mill_fits_file *file;
  int i_hdu;
  uint64_t stamp;
};

/* Distinguishes a file from another one of the same name, cheaply: a digest of
 * its size, the second of its last change, and 4096 bytes in its middle; 0 where it cannot be read.
 */
static uint64_t stamp_of(const char *path)
{
  enum { N_BYTE = 4096 };
  char middle[N_BYTE], hex[65] = "";
  struct stat status;
  mill_sha256 sha;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused elsewhere */
  if (fd < 0)
    return 0;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
    const int64_t about[2] = {status.st_size, status.st_mtime};
    const ssize_t n = pread(fd, middle, N_BYTE, status.st_size / 2);
    mill_sha256_init(&sha);
    mill_sha256_update(&sha, about, sizeof about);
    mill_sha256_update(&sha, middle, n > 0 ? (size_t)n : 0);
    mill_sha256_final(&sha, hex);
    if (n < 0)
      hex[0] = '\0';
  }
  close(fd);
  hex[16] = '\0';
  return strtoull(hex, NULL, 16);
}

void mill_model_spectrum_clear(mill_model_spectrum *spectrum)
{
  MILL_FREE(spectrum->own_wave, spectrum->flux, spectrum->continuum);
  memset(spectrum, 0, sizeof *spectrum);
}

static int open_many(mill_model_source *source)
{
  int found = 0;
  mill_labelled_request request = source->request->labelled;
  MILL_CHECK(mill_fits_file_open(source->path[0], &request.limits, &source->file));
  MILL_CHECK(mill_labelled_find_image(source->file, &source->i_hdu));
  const mill_fits_hdu *hdu = &source->file->guard->hdu[source->i_hdu];
  int64_t n = 1;
  for (int k = 1; k < hdu->n_axis; k++)
    if (__builtin_mul_overflow(n, hdu->axis[k], &n))
      n = INT64_MAX;
  if (n > MILL_GRID_MAX_MODEL || hdu->axis[0] > INT32_MAX)
    return MILL_ERROR_HDU(source->file, source->i_hdu,
                          " has %lld spectra of %lld pixels, at most %d", (long long)n,
                          (long long)hdu->axis[0], MILL_GRID_MAX_MODEL);
  source->n_model = source->known.n_spectrum = (int)n;
  source->known.n_pix = (int)hdu->axis[0];
  MILL_CHECK(mill_labelled_image_labels(source->file, source->i_hdu, &request, &source->known));
  MILL_CHECK(mill_labelled_wavelengths(source->file, source->i_hdu, &request, source->known.n_pix,
                                       &source->known.wave_aa, &source->origin));
  MILL_CHECK(
      mill_labelled_number(source->file, source->i_hdu, "FWHM", &source->origin.fwhm_aa, &found));
  if (!found)
    source->origin.fwhm_aa = NAN;
  return MILL_OK;
}

static int open_table(mill_model_source *source)
{
  const size_t n_label = (size_t)source->request->labelled.n_label, n = (size_t)source->n_model;
  mill_labelled_spectra *known = &source->known;
  known->n_spectrum = source->n_model;
  MILL_CHECK(MILL_ALLOC(n * n_label, &known->label));
  MILL_CHECK(MILL_ALLOC(n, &known->name));
  for (size_t i = 0; i < n; i++) {
    int n_stem = 0;
    const char *stem = mill_labelled_stem(source->path[i], &n_stem);
    snprintf(known->name[i], sizeof known->name[i], "%.*s", n_stem, stem);
    for (size_t l = 0; l < n_label; l++)
      known->label[i * n_label + l] = NAN;
  }
  return mill_labelled_table_read(source->path, &source->request->labelled, known);
}

int mill_model_source_open(const mill_model_request *request, const char *const *path, int n_path,
                           int is_many, mill_model_source **out)
{
  int err = MILL_OK;
  mill_model_source *source = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &source));
  source->request = request;
  source->path = path;
  source->n_model = n_path;
  if (is_many) {
    source->stamp = stamp_of(path[0]);
    MILL_TRY(open_many(source));
  } else if (request->labelled.table) {
    MILL_TRY(open_table(source));
  }
  *out = source;
  source = NULL;
done:
  mill_model_source_close(source);
  return err;
}

void mill_model_source_close(mill_model_source *source)
{
  if (!source)
    return;
  mill_fits_file_close(source->file);
  mill_labelled_spectra_clear(&source->known);
  mill_free(source);
}

int mill_model_source_n(const mill_model_source *source)
{
  return source->n_model;
}

const mill_labelled_origin *mill_model_source_origin(const mill_model_source *source)
{
  return &source->origin;
}

/* The last failure as a model's own, without the path, since its name is stored. */
static void keep_why(const char *path, char why[MILL_GRID_WHY])
{
  const char *message = mill_error_message();
  const size_t n = strlen(path);
  if (strncmp(message, path, n) == 0)
    message += n + strspn(message + n, ": ");
  snprintf(why, MILL_GRID_WHY, "%s", message);
}

static int entry_of_file(mill_model_source *source, int i, mill_model_entry *entry)
{
  int err = MILL_OK, n_stem = 0;
  const mill_model_request *request = source->request;
  const int n_label = request->labelled.n_label;
  const char *path = source->path[i], *stem = mill_labelled_stem(path, &n_stem);
  /* long names differ at their end */
  const int cut = n_stem < MILL_GRID_NAME ? 0 : n_stem - MILL_GRID_NAME + 1;
  snprintf(entry->name, sizeof entry->name, "%.*s", n_stem - cut, stem + cut);
  if (request->labelled.table) {
    memcpy(entry->label, source->known.label + (size_t)i * (size_t)n_label,
           (size_t)n_label * sizeof *entry->label);
  } else if (request->name_pattern) {
    if (!mill_name_pattern_match(request->name_pattern, stem, n_label, request->label,
                                 entry->label))
      snprintf(entry->why, sizeof entry->why, "its name does not have the pattern %s",
               request->name_pattern);
  } else {
    err = mill_labelled_one_cards(path, &request->labelled, entry->label);
    if (err == MILL_ERR_INPUT) {
      keep_why(path, entry->why);
      err = MILL_OK;
    }
  }
  return err;
}

int mill_model_source_entry(mill_model_source *source, int i, mill_model_entry *entry)
{
  const int n_label = source->request->labelled.n_label;
  memset(entry, 0, sizeof *entry);
  entry->index = i;
  entry->stamp = source->file ? source->stamp : stamp_of(source->path[i]);
  for (int l = 0; l < n_label; l++)
    entry->label[l] = NAN;
  if (source->file) {
    snprintf(entry->name, sizeof entry->name, "row %d", i + 1);
    memcpy(entry->label, source->known.label + (size_t)i * (size_t)n_label,
           (size_t)n_label * sizeof *entry->label);
  } else {
    MILL_CHECK(entry_of_file(source, i, entry));
  }
  for (int l = 0; l < n_label && !entry->why[0]; l++)
    if (!isfinite(entry->label[l]))
      snprintf(entry->why, sizeof entry->why, "its label %s (%s) is not known",
               source->request->label[l], source->request->labelled.column[l]);
  return MILL_OK;
}

static int read_of_many(mill_model_source *source, int i, mill_model_spectrum *spectrum)
{
  int status = 0, any_null = 0;
  const mill_fits_hdu *hdu = &source->file->guard->hdu[source->i_hdu];
  double nothing = NAN;
  long first[MILL_FITS_MAX_AXIS] = {1};
  for (int k = 1, rest = i; k < hdu->n_axis; k++) {
    first[k] = rest % (int)hdu->axis[k] + 1;
    rest /= (int)hdu->axis[k];
  }
  spectrum->n_pix = source->known.n_pix;
  spectrum->wave_aa = source->known.wave_aa;
  MILL_CHECK(MILL_ALLOC(spectrum->n_pix, &spectrum->flux));
  MILL_CHECK(mill_fits_file_move(source->file, source->i_hdu));
  fits_read_pix(source->file->fptr, TDOUBLE, first, spectrum->n_pix, &nothing, spectrum->flux,
                &any_null, &status);
  MILL_CHECK_FITS(source->file, source->i_hdu, status, "spectrum %d cannot be read", i + 1);
  return MILL_OK;
}

/* The first wavelengths that are read are kept, and shared by the spectra that have them too. */
static void share_wave(mill_model_source *source, mill_labelled_one *one,
                       mill_model_spectrum *spectrum)
{
  mill_labelled_spectra *known = &source->known;
  if (!known->wave_aa) {
    known->wave_aa = one->wave;
    known->n_pix = one->n_pix;
    one->wave = NULL;
  }
  spectrum->wave_aa = known->wave_aa;
  if (one->wave &&
      (one->n_pix != known->n_pix ||
       memcmp(one->wave, known->wave_aa, (size_t)one->n_pix * sizeof *one->wave) != 0)) {
    spectrum->wave_aa = spectrum->own_wave = one->wave;
    one->wave = NULL;
  }
  spectrum->n_pix = one->n_pix;
  spectrum->flux = one->flux;
  spectrum->continuum = one->continuum;
  one->flux = one->continuum = NULL;
}

int mill_model_source_read(mill_model_source *source, int i, mill_model_spectrum *spectrum)
{
  int err = MILL_OK;
  mill_labelled_one one = {0};
  if (source->file)
    return read_of_many(source, i, spectrum);
  MILL_TRY(mill_labelled_one_read(source->path[i], &source->request->labelled, &source->known, &one,
                                  &source->origin));
  share_wave(source, &one, spectrum);
done:
  mill_labelled_one_clear(&one);
  return err;
}

/* ---- all of them ---- */

/* Onto the wavelengths [n_pix] of the first spectrum: the same numbers where they are its own, else
   a spline; pixels without good neighbours are NaN. */
static int put_on_grid(const mill_model_spectrum *one, int n_pix, const double *wave, float *out)
{
  int err = MILL_OK, same = one->n_pix == n_pix;
  double *bend = NULL, *upper = NULL, *flux = NULL;
  for (int p = 0; p < n_pix && same; p++)
    same = fabs(one->wave_aa[p] - wave[p]) <= 1e-9 * wave[p];
  for (int p = 0; p < n_pix && same; p++)
    out[p] = (float)one->flux[p];
  if (same)
    return MILL_OK;
  MILL_TRY(MILL_ALLOC(one->n_pix, &bend));
  MILL_TRY(MILL_ALLOC(one->n_pix, &upper));
  MILL_TRY(MILL_ALLOC(one->n_pix, &flux));
  for (int p = 0; p < one->n_pix; p++) /* neighbours of a bad pixel are lost, whatever their
   * values */
    flux[p] = isfinite(one->flux[p]) ? one->flux[p] : (p > 0 ? flux[p - 1] : 0);
  mill_spline_bend(one->n_pix, one->wave_aa, flux, bend, upper);
  for (int p = 0, at = 0; p < n_pix; p++) {
    while (at < one->n_pix - 2 && one->wave_aa[at + 1] <= wave[p])
      at++;
    int good = wave[p] >= one->wave_aa[0] && wave[p] <= one->wave_aa[one->n_pix - 1];
    for (int k = at > 0 ? at - 1 : 0; k < one->n_pix && k <= at + 2; k++)
      good &= isfinite(one->flux[k]) && one->flux[k] > 0;
    out[p] =
        good ? (float)mill_spline_value(one->wave_aa + at, flux + at, bend + at, wave[p]) : NAN;
  }
done:
  MILL_FREE(bend, upper, flux);
  return err;
}

/* Room for all spectra, once the first gives the pixels. */
static int begin_spectra(const mill_model_spectrum *first, int n, int is_many,
                         const mill_labelled_request *request, mill_labelled_spectra *spectra)
{
  spectra->n_spectrum = n;
  spectra->n_label = request->n_label;
  spectra->n_pix = first->n_pix;
  if (n > MILL_LABELLED_MAX || (double)n * first->n_pix > MILL_LABELLED_MAX_NUMBERS)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%d spectra of %d pixels, at most %d spectra and %.0f numbers", n,
                      first->n_pix, MILL_LABELLED_MAX, MILL_LABELLED_MAX_NUMBERS);
  MILL_CHECK(MILL_ALLOC((size_t)n * (size_t)request->n_label, &spectra->label));
  MILL_CHECK(MILL_ALLOC((size_t)n * (size_t)first->n_pix, &spectra->flux));
  MILL_CHECK(MILL_ALLOC(first->n_pix, &spectra->wave_aa));
  memcpy(spectra->wave_aa, first->wave_aa, (size_t)first->n_pix * sizeof *first->wave_aa);
  return is_many ? MILL_OK : MILL_ALLOC(n, &spectra->name);
}

static int collect(mill_model_source *source, int i, mill_labelled_spectra *spectra,
                   mill_labelled_origin *origin)
{
  int err = MILL_OK;
  const size_t n_label = (size_t)source->request->labelled.n_label;
  mill_model_entry entry;
  mill_model_spectrum one = {0};
  MILL_TRY(mill_model_source_read(source, i, &one));
  MILL_TRY(mill_model_source_entry(source, i, &entry));
  if (i == 0) {
    *origin = source->origin;
    MILL_TRY(begin_spectra(&one, source->n_model, source->file != NULL, &source->request->labelled,
                           spectra));
  } else if (source->origin.is_air != origin->is_air) {
    MILL_FAIL(MILL_ERR_INPUT, "%s has wavelengths in %s, %s in %s; give --medium", source->path[i],
              source->origin.is_air ? "air" : "vacuum", source->path[0],
              origin->is_air ? "air" : "vacuum");
  }
  memcpy(spectra->label + (size_t)i * n_label, entry.label, n_label * sizeof *entry.label);
  if (spectra->name)
    snprintf(spectra->name[i], MILL_MAX_NAME, "%.*s", MILL_MAX_NAME - 1, entry.name);
  MILL_TRY(put_on_grid(&one, spectra->n_pix, spectra->wave_aa,
                       spectra->flux + (size_t)i * (size_t)spectra->n_pix));
done:
  mill_model_spectrum_clear(&one);
  return err;
}

int mill_labelled_read(const char *const *path, int n_path, int is_many,
                       const mill_labelled_request *request, mill_labelled_spectra *spectra,
                       mill_labelled_origin *origin)
{
  int err = MILL_OK;
  mill_model_source *source = NULL;
  mill_model_request all = {.labelled = *request};
  memset(origin, 0, sizeof *origin);
  for (int l = 0; l < request->n_label; l++)
    memcpy(all.label[l], request->column[l], sizeof all.label[l]);
  MILL_TRY(mill_model_source_open(&all, path, n_path, is_many, &source));
  for (int i = 0; i < source->n_model; i++)
    MILL_TRY(collect(source, i, spectra, origin));
done:
  mill_model_source_close(source);
  if (err != MILL_OK)
    mill_labelled_spectra_clear(spectra);
  return err;
}
