/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/surveys/sdss.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/surveys/selection.h"
#include "io/surveys/single_spectrum.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"

enum { MAX_CAMERA = 2 };

/* One spectrum of an exposure: the coadd, or what one camera took. */
typedef struct camera {
  int i_hdu;
  const char *name; /* of the channel */
  const char *mask; /* column */
  int n_pix, air;
} camera;

typedef struct exposure {
  int32_t id; /* number of the exposure, -1: the coadd */
  int n_camera;
  camera camera[MAX_CAMERA];
} exposure;

typedef struct sdss {
  mill_fits_file *file; /* borrowed */
  int i_object;         /* HDU of the object's only row */
  int joint;
  int n_exposure;
  exposure *exposure; /* [n_exposure] ascending by id; number: HDU of the first camera */
  mill_single_spectrum spectrum;
} sdss;

static int find_object_table(const mill_fits_guard *guard)
{
  const int i_hdu = mill_single_find_table(guard, "SPECOBJ");
  return i_hdu >= 0 ? i_hdu : mill_single_find_table(guard, "SPALL");
}

static int recognise(const mill_fits_guard *guard)
{
  const int i_coadd = mill_single_find_table(guard, "COADD");
  return i_coadd >= 0 && guard->hdu[i_coadd].axis[1] != 1 && find_object_table(guard) >= 0;
}

/* ---- exposures -------------------------------------------------------- */

/* Take B1-00104927-00104934-00104935 apart: camera, exposure, flat, arc. */
static int parse_exposure_name(const char *name, char *letter, int32_t *id)
{
  static const char pattern[] = "cs-dddddddd-";
  for (size_t i = 0; pattern[i]; i++) {
    const char c = name[i]; /* the end of a short name fits no pattern */
    const int fits = pattern[i] == 'c'   ? c == 'B' || c == 'R'
                     : pattern[i] == 's' ? c == '1' || c == '2'
                     : pattern[i] == 'd' ? isdigit((unsigned char)c) != 0
                                         : c == pattern[i];
    if (!fits)
      return 0;
  }
  *letter = name[0];
  *id = (int32_t)strtol(name + 3, NULL, 10); /* eight digits */
  return 1;
}

static int compare_exposures(const void *a, const void *b)
{
  const exposure *x = a, *y = b;
  return (x->id > y->id) - (x->id < y->id);
}

/* Put a camera to the exposure of its number. */
static int add_camera(sdss *s, int i_hdu, char letter, int32_t id)
{
  const char *name = letter == 'B' ? "b" : "r";
  exposure *e = s->exposure;
  while (e < s->exposure + s->n_exposure && e->id != id)
    e++;
  if (e == s->exposure + s->n_exposure) {
    s->n_exposure++;
    e->id = id;
  }
  for (int i = 0; i < e->n_camera; i++)
    if (strcmp(e->camera[i].name, name) == 0)
      return MILL_ERROR(
          MILL_ERR_INPUT,
          "%s: HDUs %d (%s) and %d (%s) are both the %s camera of exposure %d; leave one of them",
          s->file->guard->path, e->camera[i].i_hdu + 1,
          s->file->guard->hdu[e->camera[i].i_hdu].name, i_hdu + 1, s->file->guard->hdu[i_hdu].name,
          letter == 'B' ? "blue" : "red", id);
  e->camera[e->n_camera++] = (camera){.i_hdu = i_hdu, .name = name, .mask = "mask"};
  return MILL_OK;
}

static int find_exposures(sdss *s)
{
  const mill_fits_guard *guard = s->file->guard;
  MILL_CHECK(MILL_ALLOC(guard->n_hdu, &s->exposure));
  for (int i = 0; i < guard->n_hdu; i++) {
    char letter;
    int32_t id;
    if (parse_exposure_name(guard->hdu[i].name, &letter, &id))
      MILL_CHECK(add_camera(s, i, letter, id));
  }
  if (s->n_exposure == 0)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%s: holds no single exposures (HDUs named B1-..., R1-...); set exposures: coadd, or "
        "fetch the full file (this may be a lite one)",
        guard->path);
  qsort(s->exposure, (size_t)s->n_exposure, sizeof *s->exposure, compare_exposures);
  return MILL_OK;
}

static int find_coadd(sdss *s)
{
  const int i_hdu = mill_single_find_table(s->file->guard, "COADD");
  if (i_hdu < 0)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%s: has no table COADD; give an SDSS spec-PLATE-MJD-FIBER file, or set exposures",
        s->file->guard->path);
  MILL_CHECK(MILL_ALLOC(1, &s->exposure));
  s->n_exposure = 1;
  s->exposure[0] = (exposure){.id = -1, .n_camera = 1};
  s->exposure[0].camera[0] = (camera){.i_hdu = i_hdu, .name = "coadd", .mask = "and_mask"};
  return MILL_OK;
}

/* Frame and medium.  The coadd's are in the primary header, an exposure's in its own. */
static int read_conventions(sdss *s, int *frame_of_all)
{
  *frame_of_all = MILL_FRAME_HELIOCENTRIC;
  for (int i = 0; i < s->n_exposure; i++)
    for (int j = 0; j < s->exposure[i].n_camera; j++) {
      camera *c = &s->exposure[i].camera[j];
      const int i_header = s->exposure[i].id < 0 ? 0 : c->i_hdu;
      int frame;
      MILL_CHECK(mill_single_medium(s->file, i_header, &c->air));
      MILL_CHECK(mill_single_frame(s->file, i_header, &frame));
      if (frame != *frame_of_all)
        *frame_of_all = i == 0 && j == 0 ? frame : MILL_FRAME_UNKNOWN; /* they disagree */
    }
  return MILL_OK;
}

static void close_file(void *state)
{
  sdss *s = state;
  mill_free(s->exposure);
  mill_single_clear(&s->spectrum);
  mill_free(s);
}

static int open_file(mill_fits_file *file, const mill_spectra_settings *settings, int *frame,
                     void **state)
{
  sdss *s = NULL;
  const mill_fits_guard *guard = file->guard;
  MILL_CHECK(MILL_ALLOC(1, &s));
  *state = s;
  s->file = file;
  s->i_object = find_object_table(guard);
  if (s->i_object < 0)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: has no table SPECOBJ or SPALL; give an SDSS spec-PLATE-MJD-FIBER file",
                      guard->path);
  if (guard->hdu[s->i_object].axis[1] != 1)
    return MILL_ERROR_HDU(
        file, s->i_object,
        " has %lld rows, expected one for the file's only object; make the file again",
        (long long)guard->hdu[s->i_object].axis[1]);
  const int choice = settings->config->exposures;
  s->joint = choice == MILL_EXPOSURES_JOINT;
  MILL_CHECK(choice == MILL_EXPOSURES_COADD ? find_coadd(s) : find_exposures(s));
  for (int i = 0; i < s->n_exposure; i++)
    for (int j = 0; j < s->exposure[i].n_camera; j++) {
      camera *c = &s->exposure[i].camera[j];
      /* a file that was cut, or is none of SDSS, is refused before it has rows */
      const char *const column[] = {"flux", "loglam", "ivar", c->mask, "wdisp"};
      MILL_CHECK(mill_single_check_columns(file, c->i_hdu, column, 5, &c->n_pix));
    }
  return read_conventions(s, frame);
}

/* ---- index ------------------------------------------------------------ */

/* SDSS-I and II say what a fibre was put on in SOURCETYPE. */
enum { PLATE, MJD, OBJTYPE, SOURCETYPE, FIBER, RA, DEC, Z, ZWARNING, CLASS, SUBCLASS, N_WISH };
static const mill_fits_wish wish[N_WISH] = {
    [PLATE] = MILL_WISH("PLATE", INT32, 0, 1),
    [MJD] = MILL_WISH("MJD", INT32, 0, 1),
    [OBJTYPE] = MILL_WISH("OBJTYPE", TEXT, 0, 0),
    [SOURCETYPE] = MILL_WISH("SOURCETYPE", TEXT, 0, 0),
    [FIBER] = MILL_ROW_WISH("FIBERID", INT32, fiber, -1, 1),
    [RA] = MILL_ROW_WISH("PLUG_RA", DOUBLE, target_ra, NAN, 0),
    [DEC] = MILL_ROW_WISH("PLUG_DEC", DOUBLE, target_dec, NAN, 0),
    [Z] = MILL_ROW_WISH("Z", DOUBLE, z, NAN, 0),
    [ZWARNING] = MILL_ROW_WISH("ZWARNING", INT32, zwarn, 0, 0),
    [CLASS] = MILL_ROW_WISH("CLASS", TEXT, spectype, 0, 0),
    [SUBCLASS] = MILL_ROW_WISH("SUBCLASS", TEXT, subtype, 0, 0)};

/* Modified Julian date of the middle of an exposure; its header has seconds. */
static int read_middle(sdss *s, int i_hdu, double *mjd)
{
  double begin = NAN, end = NAN;
  MILL_CHECK(mill_single_key_double(s->file, i_hdu, "TAI-BEG", &begin, NULL));
  MILL_CHECK(mill_single_key_double(s->file, i_hdu, "TAI-END", &end, NULL));
  *mjd = 0.5 * (begin + end) / 86400.0;
  return MILL_OK;
}

static int index_file(void *state, const mill_selection *select, mill_file_index *index)
{
  int err = MILL_OK;
  sdss *s = state;
  mill_catalog_row row;
  mill_fits_values v[N_WISH] = {0};
  index->n_fits_row = 1;
  MILL_TRY(mill_fits_columns(s->file, s->i_object, wish, N_WISH, v));
  mill_catalog_row_init(&row);
  mill_fits_fill(s->file->guard->path, wish, N_WISH, v, 0, &row);
  const int plate = v[PLATE].i32[0], mjd = v[MJD].i32[0];
  snprintf(row.object, sizeof row.object, "spec-%04d-%05d-%04d", plate, mjd, row.fiber);
  snprintf(row.identifier, sizeof row.identifier, "sdss %04d-%05d-%04d", plate, mjd, row.fiber);
  const char *objtype = mill_fits_text_at(&v[v[OBJTYPE].there ? OBJTYPE : SOURCETYPE], 0);
  if (!mill_selection_keeps(select, &(mill_candidate){&row, row.object, objtype, 0, NAN}))
    goto done;
  MILL_TRY(mill_file_index_alloc(index, s->n_exposure, s->n_exposure));
  for (const exposure *e = s->exposure; e < s->exposure + s->n_exposure; e++) {
    double middle;
    MILL_TRY(read_middle(s, e->camera[0].i_hdu, &middle));
    if (index->n_row == 0 || !s->joint)
      index->row[index->n_row++] = row;
    mill_file_index_expose(index, e->camera[0].i_hdu, e->id, middle);
  }
done:
  mill_fits_values_free(N_WISH, v);
  return err;
}

/* ---- pixels ----------------------------------------------------------- */

/* Sigma in A from wdisp, which counts pixels of 1e-4 in log10 of the wavelength (in single
 * exposures too, whose own pixels are others).  Where wdisp is no width the pixel is
 * marked; its sigma, which the fit must still be able to use, is interpolated
 * between its neighbours, and one pixel where there are none. */
static void take_wdisp(mill_single_spectrum *spectrum)
{
  const int n_pix = spectrum->n_pix;
  double *wdisp = spectrum->number;
  int last = -1; /* last pixel with a width */
  for (int i = 0; i <= n_pix; i++) {
    const int good =
        i < n_pix && isfinite(wdisp[i]) && wdisp[i] > 0.0 && wdisp[i] <= MILL_SDSS_MAX_WDISP;
    if (i < n_pix && !good) {
      spectrum->mask[i] |= MILL_SDSS_NO_WDISP;
      continue;
    }
    for (int j = last + 1; j < i; j++) {
      const double left = last >= 0 ? wdisp[last] : good ? wdisp[i] : 1.0;
      const double right = good ? wdisp[i] : left;
      wdisp[j] = left + (right - left) * (double)(j - last) / (double)(i - last);
    }
    last = i;
  }
  for (int i = 0; i < n_pix; i++)
    spectrum->sigma_aa[i] = (float)(wdisp[i] * 1e-4 * M_LN10 * spectrum->wave_aa[i]);
}

/* Wavelengths, and what else the channel is without its pixels. */
static int read_wave(sdss *s, const camera *c, mill_channel *channel)
{
  mill_single_spectrum *spectrum = &s->spectrum;
  const int n_pix = c->n_pix;
  MILL_CHECK(mill_single_resize(spectrum, n_pix));
  MILL_CHECK(mill_single_column(s->file, c->i_hdu, "loglam", n_pix, spectrum->wave_aa));
  for (int i = 0; i < n_pix; i++)
    spectrum->wave_aa[i] = pow(10.0, spectrum->wave_aa[i]);
  *channel = (mill_channel){.n_pix = n_pix,
                            .wave_aa = spectrum->wave_aa,
                            .air = c->air,
                            .sigma_aa = spectrum->sigma_aa,
                            .wave_token = c->i_hdu + 1};
  snprintf(channel->name, sizeof channel->name, "%s", c->name);
  return MILL_OK;
}

static int read_pixels(void *context, mill_channel *channel)
{
  sdss *s = context;
  const int i_hdu = (int)channel->wave_token - 1;
  const mill_single_pixels pixels = {
      {"flux", "ivar", strcmp(channel->name, "coadd") == 0 ? "and_mask" : "mask"}, {0}};
  mill_single_spectrum *spectrum = &s->spectrum;
  const int n_pix = channel->n_pix;
  MILL_CHECK(mill_single_read(s->file, i_hdu, &pixels, spectrum, channel));
  /* most bits only tell that a pixel had a history */
  for (int i = 0; i < n_pix; i++)
    spectrum->mask[i] &= MILL_SDSS_BAD;
  MILL_CHECK(mill_single_column(s->file, i_hdu, "wdisp", n_pix, spectrum->number));
  take_wdisp(spectrum);
  return MILL_OK;
}

static int read_exposures(void *state, mill_spectra *spectra, const int64_t *number, int n)
{
  sdss *s = state;
  for (int i = 0; i < n; i++) {
    int i_exposure = 0;
    while (i_exposure < s->n_exposure && s->exposure[i_exposure].camera[0].i_hdu != number[i])
      i_exposure++;
    if (i_exposure == s->n_exposure)
      return MILL_ERROR(MILL_ERR_RANGE, "%s: has no exposure in HDU %lld", s->file->guard->path,
                        (long long)number[i] + 1);
    const exposure *e = &s->exposure[i_exposure];
    for (int j = 0; j < e->n_camera; j++) {
      mill_channel channel;
      const mill_single_place at = {s->file, e->camera[j].i_hdu, "column loglam"};
      MILL_CHECK(read_wave(s, &e->camera[j], &channel));
      MILL_CHECK(mill_single_give(spectra, i, &channel, &at, &s->spectrum, read_pixels, s));
    }
  }
  return MILL_OK;
}

/* they see the same light at 6000 A */
static const mill_arm_choice cameras[] = {
    {.arm = "b", .max_aa = 6000, .most_power = 2100},
    {.arm = "r", .min_aa = 6000, .max_aa = INFINITY, .most_power = 2500}};

const mill_format mill_format_sdss = {
    .name = "sdss",
    .description = "SDSS and BOSS spec-PLATE-MJD-FIBER files: coadd or single exposures",
    .recognise = recognise,
    .open = open_file,
    .close = close_file,
    .index = index_file,
    .read = read_exposures,
    .camera = cameras,
    .n_camera = sizeof cameras / sizeof *cameras,
    .lsf_width_error = 0.1};
