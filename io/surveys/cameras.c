/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/surveys/cameras.h"

#include <stdlib.h>
#include <string.h>

#include "io/surveys/selection.h"

/* If errors are below PHYSICAL, fluxes are in erg / s / cm2 / A and are multiplied by SCALE. */
static const double PHYSICAL = 1e-10, SCALE = 1e17;

void mill_cameras_close(void *state)
{
  mill_cameras *c = state;
  for (int i = 0; i < c->n_camera; i++)
    mill_free(c->camera[i].wave_aa);
  mill_free(c->camera);
  mill_single_clear(&c->spectrum);
}

int mill_camera_add(mill_cameras *c, const char *name, int i_hdu, mill_camera **out)
{
  MILL_CHECK(MILL_GROW(&c->camera, &c->camera_room, c->n_camera + 1));
  *out = &c->camera[c->n_camera++];
  **out = (mill_camera){.i_hdu = i_hdu, .exposure_id = -1, .exposure = -1, .mjd = NAN};
  snprintf((*out)->name, sizeof(*out)->name, "%s", name);
  return MILL_OK;
}

static int compare_cameras(const void *a, const void *b)
{
  const mill_camera *x = a, *y = b;
  return x->exposure_id != y->exposure_id ? (x->exposure_id < y->exposure_id ? -1 : 1)
                                          : x->i_hdu - y->i_hdu;
}

int mill_cameras_number(mill_cameras *c)
{
  const mill_fits_guard *guard = c->file->guard;
  qsort(c->camera, (size_t)c->n_camera, sizeof *c->camera, compare_cameras);
  for (int i = 0; i < c->n_camera; i++) {
    mill_camera *camera = &c->camera[i];
    camera->exposure = camera->i_hdu;
    for (int k = i - 1; k >= 0 && c->camera[k].exposure_id == camera->exposure_id; k--) {
      const mill_camera *other = &c->camera[k];
      camera->exposure = other->exposure;
      if (strcmp(other->name, camera->name) == 0)
        return MILL_ERROR(
            MILL_ERR_INPUT,
            "%s: HDUs %d (%s) and %d (%s) are both channel %s of exposure %d; remove one of them",
            guard->path, other->i_hdu + 1, guard->hdu[other->i_hdu].name, camera->i_hdu + 1,
            guard->hdu[camera->i_hdu].name, camera->name, camera->exposure_id);
    }
  }
  return MILL_OK;
}

int mill_cameras_index(const mill_cameras *c, const mill_selection *select,
                       const mill_catalog_row *row, const char *objtype, int is_joint,
                       mill_file_index *index)
{
  const int has_kind = row->kind.spectype[0] || isfinite(row->kind.z);
  const int has_objtype = objtype && objtype[0];
  index->n_fits_row = 1;
  MILL_CHECK(mill_selection_check(select, c->file->guard->path, has_kind, has_objtype));
  if (!mill_selection_keeps(select, &(mill_candidate){row, objtype, 0, NAN})) /* no class, S/N */
    return MILL_OK;
  MILL_CHECK(mill_file_index_alloc(index, c->n_camera, c->n_camera));
  /* list each exposure once: its cameras follow each other */
  for (const mill_camera *camera = c->camera; camera < c->camera + c->n_camera; camera++) {
    if (camera > c->camera && camera[-1].exposure == camera->exposure)
      continue;
    if (index->n_row == 0 || !is_joint) /* is_joint: one row has all exposures */
      index->row[index->n_row++] = *row;
    mill_file_index_expose(index, camera->exposure, camera->exposure_id, camera->mjd);
  }
  return MILL_OK;
}

int mill_camera_columns(mill_cameras *c, mill_camera *camera, int is_alone,
                        const char *const name[MILL_N_PLANE])
{
  for (int i = 0; i < MILL_N_PLANE; i++) { /* is_alone: the table is a single spectrum */
    mill_plane *plane = &camera->plane[i];
    if (!name[i])
      continue;
    *plane = (mill_plane){.name = name[i], .i_hdu = camera->i_hdu, .row = is_alone ? 0 : -1};
    MILL_CHECK(mill_single_column(c->file, camera->i_hdu, is_alone, name[i], &camera->n_pix,
                                  &plane->number));
  }
  return MILL_OK;
}

static void turn_round(double *x, int n)
{
  for (int i = 0; i < n / 2; i++) {
    const double kept = x[i];
    x[i] = x[n - 1 - i];
    x[n - 1 - i] = kept;
  }
}

int mill_camera_plane(mill_cameras *c, const mill_camera *camera, enum mill_plane_of plane,
                      double *out)
{
  const mill_plane *p = &camera->plane[plane];
  const int64_t row = p->row >= 0 ? p->row : c->row;
  if (p->number > 0) /* a column, else an image */
    MILL_CHECK(
        mill_single_numbers(c->file, p->i_hdu, p->number, row, camera->first, camera->n_pix, out));
  else
    MILL_CHECK(mill_fits_image_row(c->file, p->i_hdu, row, camera->n_pix, out));
  if (camera->descends)
    turn_round(out, camera->n_pix);
  return MILL_OK;
}

/* Describe for messages where a camera's numbers are: in a column, or in a row of an image. */
static const char *plane_text(const mill_cameras *c, const mill_plane *plane, char text[96])
{
  const char *name = plane->name ? plane->name : "wavelengths";
  if (plane->row < 0)
    snprintf(text, 96, "%s%s of row %lld (counted from 0)", plane->number > 0 ? "column " : "",
             name, (long long)c->row);
  else if (plane->number > 0)
    snprintf(text, 96, "column %s", name);
  else
    snprintf(text, 96, "row %lld (%s)", (long long)plane->row + 1, name);
  return text;
}

static int is_positive(double x)
{
  return isfinite(x) && x > 0.0;
}

int mill_camera_scale(mill_cameras *c, mill_camera *camera)
{
  const int by_sens = camera->plane[MILL_SENS].name != NULL;
  const int is_ivar = !by_sens && camera->noise == MILL_NOISE_IVAR;
  int n = 0, n_small = 0;
  MILL_CHECK(mill_single_resize(&c->spectrum, camera->n_pix));
  double *x = c->spectrum.number;
  for (c->row = 0; c->row < c->n_row && n == 0; c->row++) {
    MILL_CHECK(mill_camera_plane(c, camera, by_sens ? MILL_SENS : MILL_IVAR, x));
    for (int i = 0; i < camera->n_pix; i++) {
      if (!is_positive(x[i]))
        continue;
      n++;
      n_small += (is_ivar ? 1.0 / sqrt(x[i]) : x[i]) < PHYSICAL;
    }
  }
  camera->scale = 2 * n_small > n ? SCALE : 1.0; /* SCALE: fluxes are in erg / s / cm2 / A */
  return MILL_OK;
}

/* Read the camera's wavelengths (A) unless they are known.  If most steps between pixels descend,
 * reverse the wavelengths.  The first and the last pixel do not tell: both may be padding. */
static int load_wave(mill_cameras *c, mill_camera *camera)
{
  MILL_OWNED double *wave_aa = NULL;
  double last = NAN;
  int n_down = 0; /* number of descending steps minus number of ascending steps */
  if (camera->wave_aa)
    return MILL_OK;
  MILL_CHECK(MILL_ALLOC(camera->n_pix, &wave_aa));
  MILL_CHECK(mill_camera_plane(c, camera, MILL_WAVE, wave_aa));
  for (double *x = wave_aa; x < wave_aa + camera->n_pix; x++) {
    *x = (camera->is_log ? pow(10.0, *x) : *x) * (camera->to_aa > 0.0 ? camera->to_aa : 1.0);
    n_down += is_positive(*x) ? (*x < last) - (*x > last) : 0;
    last = is_positive(*x) ? *x : last;
  }
  camera->descends = n_down > 0;
  if (camera->descends)
    turn_round(wave_aa, camera->n_pix);
  return MILL_GIVE(&wave_aa, &camera->wave_aa);
}

/* Convert `flux` from counts to fluxes, and `ivar` from noise (camera->noise) to ivar.  factor
 * [n_pix]: flux per count; 0: a bad pixel, which keeps its counts and gets ivar 0. */
static void calibrate(const mill_camera *camera, const double *factor, double *flux, double *ivar)
{
  for (int i = 0; i < camera->n_pix; i++) {
    const double f = factor[i], x = ivar[i];
    ivar[i] = 0.0;
    if (f == 0.0)
      continue;
    flux[i] *= f;
    if (camera->noise == MILL_NOISE_IVAR)
      ivar[i] = x / (f * f);
    else if (is_positive(x))
      ivar[i] = 1.0 / (camera->noise == MILL_NOISE_ERROR ? x * f * (x * f) : x * f * f);
  }
}

/* Read a mask column of logicals (true sets all bits) or integers.  CFITSIO 4.2 cannot read
 * unsigned 64-bit integers: read them as stored, and add mask->offset. */
static int read_stored_mask(mill_cameras *c, const mill_camera *camera, const mill_plane *mask)
{
  int status = 0, any_null;
  const int n_pix = camera->n_pix, is_truth = mask->mask_type == TLOGICAL;
  const int64_t row = mask->row >= 0 ? mask->row : c->row;
  fitsfile *fptr = c->file->fptr;
  static_assert(sizeof(double) == sizeof(LONGLONG), "number holds masks of 64 bits too");
  void *stored = c->spectrum.number;
  MILL_CHECK(mill_fits_file_move(c->file, mask->i_hdu));
  if (mask->mask_type == TLONGLONG)
    fits_set_tscale(fptr, mask->number, 1.0, 0.0, &status);
  fits_read_col(fptr, is_truth ? TLOGICAL : TLONGLONG, mask->number, row + 1, camera->first + 1,
                n_pix, NULL, stored, &any_null, &status);
  MILL_CHECK_FITS(c->file, mask->i_hdu, status, "row %lld (counted from 0) of %s cannot be read",
                  (long long)row, mask->name);
  for (int i = 0; i < n_pix; i++)
    c->spectrum.mask[camera->descends ? n_pix - 1 - i : i] =
        is_truth ? -(((char *)stored)[i] != 0)
                 : mill_single_fold((uint64_t)((LONGLONG *)stored)[i] + mask->offset);
  return MILL_OK;
}

/* Read a mask; some surveys store masks as floats. */
static int read_mask(mill_cameras *c, const mill_camera *camera, const mill_plane *mask)
{
  char text[96];
  double *value = c->spectrum.number;
  if (mask->mask_type)
    return read_stored_mask(c, camera, mask);
  MILL_CHECK(mill_camera_plane(c, camera, MILL_MASK, value));
  for (int i = 0; i < camera->n_pix; i++) {
    /* allow signed and unsigned 32 bits; NaN fails this test */
    if (!(value[i] >= (double)INT32_MIN && value[i] <= (double)UINT32_MAX) ||
        value[i] != floor(value[i]))
      return MILL_ERROR_HDU(c->file, mask->i_hdu,
                            ": %s: the mask of pixel %d is %g, but masks are integers of 32 bits; "
                            "fetch the file again",
                            plane_text(c, mask, text), i, value[i]);
    c->spectrum.mask[i] = (int32_t)(uint32_t)(int64_t)value[i];
  }
  return MILL_OK;
}

/* Read and calibrate a camera's pixels for the channel, and let the format finish them. */
static int read_pixels(mill_cameras *c, const mill_camera *camera, mill_channel *channel)
{
  const mill_plane *mask = &camera->plane[MILL_MASK];
  mill_single_spectrum *s = &c->spectrum;
  const double scale = camera->scale != 0.0 ? camera->scale : 1.0;
  const int has_sens = camera->plane[MILL_SENS].name != NULL;
  if (has_sens)
    MILL_CHECK(mill_camera_plane(c, camera, MILL_SENS, s->factor));
  for (int i = 0; i < camera->n_pix; i++) {
    const double flux_per_count = has_sens ? s->factor[i] : 1.0;
    s->factor[i] = is_positive(flux_per_count) ? flux_per_count * scale : 0.0;
  }
  MILL_CHECK(mill_camera_plane(c, camera, MILL_FLUX, s->number));
  MILL_CHECK(mill_camera_plane(c, camera, MILL_IVAR, s->noise));
  calibrate(camera, s->factor, s->number, s->noise);
  mill_single_narrow(s->number, camera->n_pix, s->flux);
  mill_single_narrow(s->noise, camera->n_pix, s->ivar);
  channel->flux = s->flux;
  channel->ivar = s->ivar;
  channel->mask = mask->name ? s->mask : NULL;
  if (mask->name)
    MILL_CHECK(read_mask(c, camera, mask));
  return c->finish ? c->finish(c, camera) : MILL_OK;
}

/* ---- channels ----------------------------------------------------------- */

static int is_good_pixel(const mill_channel *channel, int i)
{
  return !(channel->mask && channel->mask[i]) && isfinite(channel->flux[i]) &&
         isfinite(channel->ivar[i]) && channel->ivar[i] > 0.0f;
}

/* Between the good pixels `left` and `right`, interpolate wavelengths that do not ascend.  A pixel
 * with an interpolated wavelength gets the line width of the pixel before it. */
static void fill_gap(mill_single_spectrum *spectrum, int left, int right)
{
  double *wave = spectrum->wave_aa;
  for (int i = left + 1; i < right; i++)
    if (!(wave[i] > wave[i - 1] && wave[i] < wave[right])) {
      int next = i + 1; /* next pixel whose wavelength is kept */
      while (next < right && !(wave[next] > wave[i - 1] && wave[next] < wave[right]))
        next++;
      wave[i] = wave[i - 1] + (wave[next] - wave[i - 1]) / (next - i + 1);
      spectrum->sigma_aa[i] = spectrum->sigma_aa[i - 1];
    }
}

/* Set [*first, *end) to the pixels to keep: from `left` to `right`, the outermost good pixels, and
 * beyond as far as wavelengths ascend.  Padding, which repeats a wavelength, is dropped. */
static void find_ends(const double *wave, int n_pix, int left, int right, int *first, int *end)
{
  *first = left;
  *end = right + 1;
  while (*first > 0 && wave[*first - 1] > 0.0 && wave[*first - 1] < wave[*first] &&
         (*first == 1 || wave[*first - 2] != wave[*first - 1]))
    --*first;
  while (*end < n_pix && wave[*end] > wave[*end - 1] && isfinite(wave[*end]) &&
         (*end + 1 == n_pix || wave[*end + 1] != wave[*end]))
    ++*end;
}

/* Repair the wavelengths of bad pixels: interpolate them between good pixels.  At both ends of the
 * spectrum, drop bad pixels that have no valid wavelength. */
static int repair_wave(const mill_cameras *c, const mill_camera *camera, mill_single_spectrum *s,
                       mill_channel *channel)
{
  const double *wave = s->wave_aa;
  int left = -1, right = -1, first, end; /* left, right: first and last good pixel so far */
  char text[96];
  for (int i = 0; i < channel->n_pix; i++) {
    if (!is_good_pixel(channel, i))
      continue;
    if (!isfinite(wave[i]) || wave[i] <= (right >= 0 ? wave[right] : 0.0))
      return MILL_ERROR_HDU(
          c->file, camera->i_hdu,
          ": %s: the wavelength of pixel %d is %g A, but wavelengths must be positive and "
          "ascending; mask padding pixels, or give columns of variable length",
          plane_text(c, &camera->plane[MILL_WAVE], text),
          camera->descends ? camera->n_pix - 1 - i : i, wave[i]);
    if (left < 0)
      left = i;
    else
      fill_gap(s, right, i);
    right = i;
  }
  channel->n_pix = 0;
  if (left < 0) /* no good pixel: skip the channel */
    return MILL_OK;
  find_ends(wave, camera->n_pix, left, right, &first, &end);
  channel->n_pix = end - first;
  channel->wave_aa = wave + first;
  channel->flux += first;
  channel->ivar += first;
  channel->mask = channel->mask ? channel->mask + first : NULL;
  channel->sigma_aa = channel->sigma_aa ? channel->sigma_aa + first : NULL;
  return MILL_OK;
}

/* ---- missing pixels: holes in a grid are filled with bad pixels ----------- */

/* A hole of more than MAX_HOLE pixels stays, and line-spread functions end there.  A spectrum of
 * fewer than MIN_GRID pixels is not filled: its steps may be multiples of one step by chance.
 * The grid's step is the least of AROUND steps on a side: if all are wide, sampling is coarse. */
enum { MAX_HOLE = 16, MIN_GRID = 32, AROUND = 12 };

/* Return the least of the AROUND steps from pixel i on; 0 if the spectrum lacks some of them. */
static double least_step(const double *wave, int n, int i)
{
  double least = i >= 0 && i + AROUND < n ? INFINITY : 0.0;
  for (int k = i; least > 0.0 && k < i + AROUND; k++)
    least = fmin(least, wave[k + 1] - wave[k]);
  return least;
}

/* Return the number of grid steps between pixels i and i + 1; 1 if no pixel or more than MAX_HOLE
 * pixels are missing.  The grid's step is the larger of least_step on the left and on the right of
 * pixel i.  Add 1 to *n_odd if the distance is no multiple of this step. */
static int count_steps(const double *wave, int n, int i, int *n_odd)
{
  const double left = least_step(wave, n, i - AROUND), right = least_step(wave, n, i + 1);
  const double steps = (wave[i + 1] - wave[i]) / (left > right ? left : right);
  const int is_odd = fabs(steps - rint(steps)) > 0.2;
  if (steps < 1.2 || steps > MAX_HOLE + 1.5)
    return 1;
  *n_odd += is_odd;
  return is_odd ? 1 : (int)rint(steps);
}

/* Count the missing pixels of a grid.  0: none is missing, or the pixels form no grid. */
static int count_missing(const double *wave, int n)
{
  int n_missing = 0, n_odd = 0, i = 2;
  while (i < n && fabs(wave[i] - 2.0 * wave[i - 1] + wave[i - 2]) < 0.1 * (wave[i] - wave[i - 2]))
    i++;
  if (i >= n || n < MIN_GRID) /* each step is like the one before */
    return 0;
  for (i = 0; i + 1 < n; i++)
    n_missing += count_steps(wave, n, i, &n_odd) - 1;
  return n_odd <= n / 100 && n_missing <= 2 * n ? n_missing : 0;
}

/* Set s->wave_aa [n + n_missing] to the wavelengths of the filled grid, which is logarithmic if its
 * step rises with wavelength.  Set s->source to each pixel's index in wave [n]; filled pixels get
 * the index of the pixel left of their hole. */
static void fill_waves(const double *wave, int n, mill_single_spectrum *s)
{
  const double rise = least_step(wave, n, n - 1 - AROUND) / least_step(wave, n, 0);
  const int is_log = rise * rise > wave[n - 1] / wave[0]; /* rise: 1 if linear, this ratio if log */
  for (int i = 0, to = 0; i < n; i++) {
    const int n_step = i + 1 < n ? count_steps(wave, n, i, &(int){0}) : 1;
    for (int k = 0; k < n_step; k++, to++) { /* k > 0 only if pixel i + 1 exists */
      const double share = (double)k / n_step, right = k > 0 ? wave[i + 1] : wave[i];
      s->source[to] = i;
      s->wave_aa[to] =
          is_log ? wave[i] * pow(right / wave[i], share) : wave[i] + (right - wave[i]) * share;
    }
  }
}

/* Give each of n pixels the values of pixel s->source; make filled pixels bad. */
static void fill_pixels(mill_single_spectrum *s, int n)
{
  for (int to = n - 1; to > 0; to--) {
    const int from = s->source[to];
    s->flux[to] = s->flux[from];
    s->ivar[to] = from == s->source[to - 1] ? 0.0f : s->ivar[from];
    s->sigma_aa[to] = s->sigma_aa[from];
    s->mask[to] = s->mask[from];
  }
}

int mill_camera_give(mill_cameras *c, mill_spectra *spectra, int i_exposure, mill_camera *camera)
{
  mill_single_spectrum *s = &c->spectrum;
  int wants = MILL_WANTS_PIXELS; /* needed to repair wavelengths that do not ascend */
  mill_channel channel = {.n_pix = camera->n_pix, .air = camera->air};
  MILL_CHECK(load_wave(c, camera));
  const int ascends = mill_single_disorder(camera->n_pix, camera->wave_aa) == camera->n_pix;
  const int n_missing = ascends ? count_missing(camera->wave_aa, camera->n_pix) : 0;
  channel.n_pix += n_missing;
  MILL_CHECK(mill_single_resize(s, channel.n_pix));
  memcpy(s->wave_aa, camera->wave_aa, (size_t)camera->n_pix * sizeof *s->wave_aa);
  if (n_missing > 0)
    fill_waves(camera->wave_aa, camera->n_pix, s);
  memcpy(channel.name, camera->name, sizeof channel.name);
  channel.wave_aa = s->wave_aa;
  channel.sigma_aa = camera->plane[MILL_WIDTH].name ? s->sigma_aa : NULL;
  channel.sigma_is_whole = camera->sigma_is_whole;
  if (ascends)
    MILL_CHECK(mill_spectra_wants(spectra, &channel, &wants));
  if (wants & MILL_WANTS_PIXELS)
    MILL_CHECK(read_pixels(c, camera, &channel));
  if (n_missing > 0 && wants & MILL_WANTS_PIXELS)
    fill_pixels(s, channel.n_pix);
  if (!ascends)
    MILL_CHECK(repair_wave(c, camera, s, &channel));
  return channel.n_pix > 0 ? mill_spectra_add(spectra, i_exposure, &channel) : MILL_OK;
}

int mill_cameras_read(void *state, mill_spectra *spectra, const int64_t *exposure, int n)
{
  mill_cameras *c = state;
  for (int i = 0; i < n; i++) {
    int n_given = 0;
    if (c->n_row > 0) /* each row is an exposure, in all cameras */
      MILL_CHECK(mill_single_check_row(c->file, exposure[i], c->n_row));
    c->row = exposure[i];
    for (int k = 0; k < c->n_camera; k++)
      if (c->n_row > 0 || c->camera[k].exposure == exposure[i]) {
        MILL_CHECK(mill_camera_give(c, spectra, i, &c->camera[k]));
        n_given++;
      }
    if (n_given == 0)
      return MILL_ERROR(MILL_ERR_RANGE, "%s: no exposure has FITS_ROW %lld; has the file changed?",
                        c->file->guard->path, (long long)exposure[i]);
  }
  return MILL_OK;
}

int mill_plane_unit(mill_fits_file *file, const mill_plane *plane, double scale,
                    char unit[MILL_FLUX_UNIT])
{
  char key[FLEN_KEYWORD] = "BUNIT", text[FLEN_VALUE] = "";
  if (plane->number > 0)
    snprintf(key, sizeof key, "TUNIT%d", plane->number);
  MILL_CHECK(mill_single_key_text(file, plane->i_hdu, key, text, sizeof text, NULL));
  if (!text[0])
    MILL_CHECK(mill_single_key_text(file, 0, "BUNIT", text, sizeof text, NULL));
  if (scale == SCALE && !text[0])
    strcpy(text, "erg / (Angstrom s cm2)");
  snprintf(unit, MILL_FLUX_UNIT, "%s%s", scale == SCALE ? "10**-17 " : "", text);
  return MILL_OK;
}

int mill_cameras_flux_unit(void *state, const char *channel, char unit[MILL_FLUX_UNIT])
{
  mill_cameras *c = state;
  for (const mill_camera *camera = c->camera; camera < c->camera + c->n_camera; camera++)
    if (strcmp(camera->name, channel) == 0) {
      const int by_sens = camera->plane[MILL_SENS].name != NULL;
      return mill_plane_unit(c->file, &camera->plane[by_sens ? MILL_SENS : MILL_FLUX],
                             camera->scale, unit);
    }
  return MILL_OK;
}
