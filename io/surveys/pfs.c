/* SPDX-License-Identifier: BSD-3-Clause */
/* PFS: pfsObject and pfsSingle files, one spectrum each; docs/use/input.md has the rules. */
#include <stdio.h>
#include <string.h>

#include "io/surveys/cameras.h"

/* Wavelengths (A) where arms meet, and FWHM (A) in the arms; MEDIUM: medium-resolution red arm. */
static const double RED_AA = 6400.0, INFRARED_AA = 9550.0;
static const double BLUE_FWHM = 2.1, RED_FWHM = 2.7, MEDIUM_FWHM = 1.6, INFRARED_FWHM = 2.4;

typedef struct pfs {
  mill_cameras cameras;
  int i_target, i_observations;
  int is_medium; /* the red arm was taken in medium resolution */
  int32_t bad;   /* mask bits of bad pixels */
  int32_t fiber; /* -1: observations used several fibres, or none is listed */
} pfs;

static int recognise(const mill_fits_guard *guard)
{
  int has_covar = 0;
  for (int i = 0; i < guard->n_hdu; i++)
    has_covar |= strcmp(guard->hdu[i].name, "COVAR") == 0;
  return has_covar && mill_single_find_table(guard, "TARGET") >= 0 &&
         mill_single_find_table(guard, "OBSERVATIONS") >= 0;
}

/* ---- structure ---------------------------------------------------------- */

/* Set sigma_aa (A) from the FWHM of the pixel's arm.  Keep only the mask bits of bad pixels. */
static int take_width(mill_cameras *c, const mill_camera *camera)
{
  const pfs *p = (const pfs *)c;
  mill_single_spectrum *s = &c->spectrum;
  for (int i = 0; i < camera->n_pix; i++) {
    const double wave = camera->wave_aa[i];
    const double fwhm = wave < RED_AA         ? BLUE_FWHM
                        : wave >= INFRARED_AA ? INFRARED_FWHM
                        : p->is_medium        ? MEDIUM_FWHM
                                              : RED_FWHM;
    s->sigma_aa[i] = (float)(fwhm / MILL_FWHM_SIGMA);
    s->mask[i] &= p->bad;
  }
  return MILL_OK;
}

/* Check image `name`, and make it a plane of the camera.  The first image sets camera->n_pix. */
static int take_image(mill_cameras *c, mill_camera *camera, enum mill_plane_of plane,
                      const char *name, int n_axis)
{
  int i_hdu;
  MILL_CHECK(mill_fits_file_find(c->file, name, &i_hdu));
  if (i_hdu < 0)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: has no image %s; give a pfsObject or pfsSingle file",
                      c->file->guard->path, name);
  const mill_fits_hdu *hdu = &c->file->guard->hdu[i_hdu];
  const int least = camera->n_pix ? camera->n_pix : 2;
  const int most = camera->n_pix ? camera->n_pix : MILL_SINGLE_MAX_PIX;
  if (hdu->kind != MILL_FITS_IMAGE || hdu->n_axis != n_axis || hdu->axis[0] < least ||
      hdu->axis[0] > most)
    return MILL_ERROR_HDU(c->file, i_hdu,
                          " must be an image of %d axes, the first of %d to %d pixels; "
                          "give pfsObject or pfsSingle, not pfsCoadd or pfsCalibrated",
                          n_axis, least, most);
  camera->n_pix = (int)hdu->axis[0];
  camera->plane[plane] = (mill_plane){.name = name, .i_hdu = i_hdu};
  return MILL_OK;
}

/* Find the mask bits of bad pixels, which the header names. */
static int find_bad_bits(pfs *p, int i_hdu)
{
  static const char *const plane[] = {"MP_BAD",      "MP_SAT",     "MP_CR",
                                      "MP_SUSPECT",  "MP_NO_DATA", "MP_UNMASKEDNAN",
                                      "MP_BAD_FLAT", "MP_BAD_SKY", "MP_BAD_FLUXCAL"};
  for (size_t i = 0; i < sizeof plane / sizeof *plane; i++) {
    int32_t bit = -1;
    MILL_CHECK(mill_single_key_int32(p->cameras.file, i_hdu, plane[i], &bit, NULL));
    if (bit >= 0 && bit < 32)
      p->bad |= (int32_t)(UINT32_C(1) << bit);
  }
  if (!p->bad)
    return MILL_ERROR_HDU(
        p->cameras.file, i_hdu,
        " names none of its bits by keywords MP_NO_DATA, ...; make the file again");
  return MILL_OK;
}

/* Compute wavelengths from keywords.  CRPIX1 is the middle pixel, but PFS writes 1 too much. */
static int read_keyword_wave(mill_cameras *c, mill_camera *camera, int medium)
{
  static const mill_single_wcs wcs = {.start = "CRVAL1",
                                      .step = "CDELT1",
                                      .reference = "CRPIX1",
                                      .unit = "CUNIT1",
                                      .type = "CTYPE1",
                                      .default_unit = "",
                                      .beyond = 1};
  const int i_hdu = camera->plane[MILL_FLUX].i_hdu, n = camera->n_pix;
  double reference = NAN;
  MILL_CHECK(mill_single_key_double(c->file, i_hdu, "CRPIX1", &reference, NULL));
  if (!(fabs(reference - (0.5 * n + 1.5)) < 1e-6))
    return MILL_ERROR_HDU(c->file, i_hdu,
                          ": CRPIX1 is %g, expected %g as PFS's data model writes it; make the "
                          "file again with an image WAVELENGTH",
                          reference, 0.5 * n + 1.5);
  MILL_CHECK(MILL_ALLOC(n, &camera->wave_aa));
  return mill_single_linear_wave(c->file, i_hdu, &wcs, medium, n, camera->wave_aa, &camera->air);
}

/* Read visit and fibre (-1: observations differ or are missing), mean time, and is_medium. */
static int read_observations(pfs *p, mill_camera *camera)
{
  enum { VISIT, FIBER, ARM, TIME, N };
  static const mill_fits_wish wish[N] = {[VISIT] = MILL_WISH("visit", INT32, -1, 1),
                                         [FIBER] = MILL_WISH("fiberId", INT32, -1, 0),
                                         [ARM] = MILL_WISH("arm", TEXT, 0, 1),
                                         [TIME] = MILL_WISH("obsTime", TEXT, 0, 0)};
  double sum = 0.0;
  MILL_FITS_VALUES(v, N);
  mill_fits_file *file = p->cameras.file;
  const int64_t n = file->guard->hdu[p->i_observations].axis[1];
  MILL_CHECK(mill_fits_columns(file, p->i_observations, wish, N, v));
  p->fiber = -1;
  for (int64_t i = 0; i < n; i++) {
    p->is_medium |= strchr(mill_fits_text_at(&v[ARM], i), 'm') != NULL;
    camera->exposure_id = i > 0 && camera->exposure_id != v[VISIT].i32[i] ? -1 : v[VISIT].i32[i];
    p->fiber = i > 0 && p->fiber != v[FIBER].i32[i] ? -1 : v[FIBER].i32[i];
    sum += mill_single_mjd(mill_fits_text_at(&v[TIME], i));
  }
  camera->mjd = n > 0 ? sum / (double)n : NAN;
  return MILL_OK;
}

/* Describe the file's only spectrum as a camera. */
static int open_file(void *state, const mill_spectra_settings *settings, int *frame)
{
  pfs *p = state;
  mill_cameras *c = &p->cameras;
  mill_camera *camera;
  int i_wave;
  c->finish = take_width;
  MILL_CHECK(mill_fits_file_find(c->file, "TARGET", &p->i_target));
  MILL_CHECK(mill_fits_file_find(c->file, "OBSERVATIONS", &p->i_observations));
  if (p->i_target < 0 || p->i_observations < 0)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%s: has no tables TARGET and OBSERVATIONS; give a pfsObject or pfsSingle file",
        c->file->guard->path);
  MILL_CHECK(mill_camera_add(c, "pfs", 0, &camera));
  MILL_CHECK(take_image(c, camera, MILL_FLUX, "FLUX", 1));
  MILL_CHECK(take_image(c, camera, MILL_MASK, "MASK", 1));
  MILL_CHECK(take_image(c, camera, MILL_IVAR, "COVAR", 2)); /* its row 0 is the variance */
  camera->i_hdu = camera->plane[MILL_FLUX].i_hdu;
  camera->exposure = camera->i_hdu;
  camera->noise = MILL_NOISE_VARIANCE;
  camera->plane[MILL_WIDTH].name = "the design's widths"; /* not NULL: take_width sets them */
  MILL_CHECK(find_bad_bits(p, camera->plane[MILL_MASK].i_hdu));
  MILL_CHECK(mill_fits_file_find(c->file, "WAVELENGTH", &i_wave));
  camera->to_aa = 10.0; /* nm */
  if (i_wave >= 0)
    MILL_CHECK(take_image(c, camera, MILL_WAVE, "WAVELENGTH", 1));
  else
    MILL_CHECK(read_keyword_wave(c, camera, settings->config->medium));
  MILL_CHECK(read_observations(p, camera));
  return mill_single_specsys(c->file, camera->i_hdu, frame);
}

/* ---- index ------------------------------------------------------------ */

/* Keywords of TARGET. */
enum { CATALOG, OBJECT, TRACT, PATCH, TYPE };
static const mill_fits_wish wish[] = {[CATALOG] = MILL_WISH("CATID", INT32, -1, 0),
                                      [OBJECT] = MILL_ROW_WISH("OBJID", INT64, target_id, -1, 0),
                                      [TRACT] = MILL_WISH("TRACT", INT32, -1, 0),
                                      [PATCH] = MILL_WISH("PATCH", TEXT, 0, 0),
                                      [TYPE] = MILL_WISH("TARGETTYPE", INT32, -1, 0),
                                      MILL_ROW_WISH("RA", DOUBLE, target_ra, NAN, 0),
                                      MILL_ROW_WISH("DEC", DOUBLE, target_dec, NAN, 0)};
enum { N_WISH = sizeof wish / sizeof *wish };

/* List the file's star in the index, if the star is selected. */
static int index_file(void *state, const mill_selection *select, mill_file_index *index)
{
  static const char *const objtype[] = {[1] = "SCIENCE", [2] = "SKY", [3] = "FLUXSTD"};
  pfs *p = state;
  mill_fits_file *file = p->cameras.file;
  mill_catalog_row row;
  char of_visit[16] = "";
  MILL_FITS_VALUES(v, N_WISH);
  mill_catalog_row_init(&row);
  MILL_CHECK(mill_single_keys(file, &p->i_target, 1, NAN, wish, N_WISH, v));
  mill_fits_fill(file->guard->path, wish, N_WISH, v, 0, &row);
  row.fiber = p->fiber;
  const unsigned long long id = (unsigned long long)row.target_id;
  const int visit = p->cameras.camera[0].exposure_id, type = v[TYPE].i32[0];
  if (row.target_id != -1) /* stars without OBJID would share a name */
    snprintf(row.object, sizeof row.object, "%05d-%016llx", v[CATALOG].i32[0], id);
  if (visit >= 0)
    snprintf(of_visit, sizeof of_visit, "-%06d", visit);
  if (row.object[0] && snprintf(row.identifier, sizeof row.identifier, "pfs %05d-%05d-%s-%016llx%s",
                                v[CATALOG].i32[0], v[TRACT].i32[0], mill_fits_text_at(&v[PATCH], 0),
                                id, of_visit) >= (int)sizeof row.identifier)
    row.identifier[0] = '\0'; /* too long: identify by file and row */
  return mill_cameras_index(&p->cameras, select, &row,
                            type >= 1 && type <= 3 ? objtype[type] : "BAD", 1, index);
}

static const mill_arm_choice cameras[] = {{.arm = "b", .max_aa = 6400},
                                          {.arm = "r", .min_aa = 6400, .max_aa = 9550},
                                          {.arm = "n", .min_aa = 9550, .max_aa = INFINITY}};

const mill_format mill_format_pfs = {.name = "pfs",
                                     .description = "PFS's pfsObject and pfsSingle",
                                     .recognise = recognise,
                                     .state_bytes = sizeof(pfs),
                                     .open = open_file,
                                     .index = index_file,
                                     MILL_CAMERAS_FORMAT,
                                     .camera = cameras,
                                     .n_camera = sizeof cameras / sizeof *cameras,
                                     .lsf_width_error = 0.1};
