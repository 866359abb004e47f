/* SPDX-License-Identifier: BSD-3-Clause */
/* SDSS and BOSS: spec-PLATE-MJD-FIBER files, the coadd or single exposures; docs/use/input.md
 * has the rules. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/surveys/cameras.h"
#include "io/surveys/selection.h"
#include "kernels/base/error.h"

/* Pixels with one of these SPPIXMASK bits are bad, whatever their ivar. Of the fibre: what makes
 * its trace, flat or wavelengths worthless. Of the pixel: rejected, without sky or dominated by
 * it, or calibrated by next to nothing. NODATA is left out: SDSS asks since DR9 to go by ivar =
 * 0. */
enum {
  BAD = 1 << 0       /* NOPLUG */
        | 1 << 1     /* BADTRACE */
        | 1 << 2     /* BADFLAT */
        | 1 << 3     /* BADARC */
        | 1 << 4     /* MANYBADCOLUMNS */
        | 1 << 5     /* MANYREJECTED */
        | 1 << 18    /* FULLREJECT */
        | 1 << 22    /* NOSKY */
        | 1 << 23    /* BRIGHTSKY */
        | 1 << 25    /* COMBINEREJ */
        | 1 << 26    /* BADFLUXFACTOR */
        | 1 << 27    /* BADSKYCHI */
        | 1 << 28,   /* REDMONSTER */
  NO_WDISP = 1 << 30 /* set here, SPPIXMASK has no such bit: wdisp is no width */
};

static const double MAX_WDISP = 10.0; /* pixels: a resolving power of 185 */

/* Cameras are the coadd, or what the blue and the red camera took, by exposure; an exposure's
 * number is the HDU of its first camera. */
typedef struct sdss {
  mill_cameras cameras;
  int i_object; /* HDU of the object's only row */
  int joint;
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
  char camera[2], unit[2], digits[9];
  int n = 0;
  if (sscanf(name, "%1[BR]%1[12]-%8[0-9]-%n", camera, unit, digits, &n) != 3 || n != 12)
    return 0;
  *letter = camera[0];
  *id = (int32_t)strtol(digits, NULL, 10);
  return 1;
}

static int find_exposures(mill_cameras *c)
{
  const mill_fits_guard *guard = c->file->guard;
  mill_camera *camera;
  for (int i = 0; i < guard->n_hdu; i++) {
    char letter;
    int32_t id;
    if (!parse_exposure_name(guard->hdu[i].name, &letter, &id))
      continue;
    MILL_CHECK(mill_camera_add(c, letter == 'B' ? "b" : "r", i, &camera));
    camera->exposure_id = id;
  }
  if (c->n_camera == 0)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%s: holds no single exposures (HDUs named B1-..., R1-...); set exposures: coadd, or "
        "fetch the full file (this may be a lite one)",
        guard->path);
  return mill_cameras_number(c);
}

static int find_coadd(mill_cameras *c)
{
  mill_camera *camera;
  const int i_hdu = mill_single_find_table(c->file->guard, "COADD");
  if (i_hdu < 0)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%s: has no table COADD; give an SDSS spec-PLATE-MJD-FIBER file, or set exposures",
        c->file->guard->path);
  MILL_CHECK(mill_camera_add(c, "coadd", i_hdu, &camera));
  camera->exposure = i_hdu;
  return MILL_OK;
}

/* Columns, frame and medium: a file that was cut, or is none of SDSS, is refused before it has
 * rows. The coadd's conventions are in the primary header, an exposure's in its own. */
static int open_camera(mill_cameras *c, mill_camera *camera, int *frame_of_all)
{
  const int is_coadd = camera->exposure_id < 0, i_header = is_coadd ? 0 : camera->i_hdu;
  int frame;
  const char *const name[MILL_N_PLANE] = {[MILL_FLUX] = "flux",
                                          [MILL_WAVE] = "loglam",
                                          [MILL_IVAR] = "ivar",
                                          [MILL_MASK] = is_coadd ? "and_mask" : "mask",
                                          [MILL_WIDTH] = "wdisp"};
  camera->is_log = 1;
  MILL_CHECK(mill_camera_columns(c, camera, 1, name));
  MILL_CHECK(mill_single_conventions(c->file, i_header, &frame, &camera->air));
  *frame_of_all = camera == c->camera || *frame_of_all == frame ? frame : MILL_FRAME_UNKNOWN;
  return MILL_OK;
}

/* Sigma in A from wdisp, which counts pixels of 1e-4 in log10 of the wavelength (in single
 * exposures too, whose own pixels are others).  Where wdisp is no width the pixel is
 * marked; its sigma, which the fit must still be able to use, is interpolated
 * between its neighbours, and one pixel where there are none. */
static int take_wdisp(mill_cameras *c, const mill_camera *camera)
{
  mill_single_spectrum *spectrum = &c->spectrum;
  const int n_pix = spectrum->n_pix;
  double *wdisp = spectrum->number;
  int last = -1; /* last pixel with a width */
  /* most bits only tell that a pixel had a history */
  for (int i = 0; i < n_pix; i++)
    spectrum->mask[i] &= BAD;
  MILL_CHECK(mill_camera_plane(c, camera, MILL_WIDTH, wdisp));
  for (int i = 0; i <= n_pix; i++) {
    const int good = i < n_pix && isfinite(wdisp[i]) && wdisp[i] > 0.0 && wdisp[i] <= MAX_WDISP;
    if (i < n_pix && !good) {
      spectrum->mask[i] |= NO_WDISP;
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
  return MILL_OK;
}

static int open_file(void *state, const mill_spectra_settings *settings, int *frame)
{
  sdss *s = state;
  const mill_fits_file *file = s->cameras.file;
  const mill_fits_guard *guard = file->guard;
  s->cameras.finish = take_wdisp;
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
  mill_cameras *c = &s->cameras;
  MILL_CHECK(choice == MILL_EXPOSURES_COADD ? find_coadd(c) : find_exposures(c));
  for (int i = 0; i < c->n_camera; i++)
    MILL_CHECK(open_camera(c, &c->camera[i], frame));
  return MILL_OK;
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

/* The header has seconds. */
static int read_middle(mill_cameras *c, const mill_camera *camera, double *mjd)
{
  double begin = NAN, end = NAN;
  MILL_CHECK(mill_single_key_double(c->file, camera->i_hdu, "TAI-BEG", &begin, NULL));
  MILL_CHECK(mill_single_key_double(c->file, camera->i_hdu, "TAI-END", &end, NULL));
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
  mill_cameras *c = &s->cameras;
  MILL_TRY(mill_fits_columns(c->file, s->i_object, wish, N_WISH, v));
  mill_catalog_row_init(&row);
  mill_fits_fill(c->file->guard->path, wish, N_WISH, v, 0, &row);
  const int plate = v[PLATE].i32[0], mjd = v[MJD].i32[0];
  snprintf(row.object, sizeof row.object, "spec-%04d-%05d-%04d", plate, mjd, row.fiber);
  snprintf(row.identifier, sizeof row.identifier, "sdss %04d-%05d-%04d", plate, mjd, row.fiber);
  const char *objtype = mill_fits_text_at(&v[v[OBJTYPE].there ? OBJTYPE : SOURCETYPE], 0);
  if (mill_selection_keeps(select, &(mill_candidate){&row, row.object, objtype, 0, NAN}))
    MILL_TRY(mill_cameras_index(c, &row, s->joint, read_middle, index));
done:
  mill_fits_values_free(N_WISH, v);
  return err;
}

/* they see the same light at 6000 A */
static const mill_arm_choice cameras[] = {
    {.arm = "b", .max_aa = 6000, .most_power = 2100},
    {.arm = "r", .min_aa = 6000, .max_aa = INFINITY, .most_power = 2500}};

const mill_format mill_format_sdss = {
    .name = "sdss",
    .description = "SDSS and BOSS spec-PLATE-MJD-FIBER files: coadd or single exposures",
    .recognise = recognise,
    .state_bytes = sizeof(sdss),
    .open = open_file,
    .close = mill_cameras_close,
    .index = index_file,
    .read = mill_cameras_read,
    .camera = cameras,
    .n_camera = sizeof cameras / sizeof *cameras,
    .lsf_width_error = 0.1};
