/* SPDX-License-Identifier: BSD-3-Clause */
/* LAMOST low resolution: a table COADD (DR8 and later), or an image of five rows (before DR8).
 * Medium resolution: a table for each camera's coadd and each exposure of a camera.
 * docs/use/input.md has the rules. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "io/surveys/cameras.h"
#include "src/system/regular_file.h"

/* Minutes in HDU names count local time of China, UTC + 8 h. */
static const double LOCAL_DAYS = 8.0 / 24.0;

typedef struct lamost {
  mill_cameras cameras;
  int joint;
} lamost;

/* Columns of the table, and rows of the image before DR8; its last row, ORMASK, is not used. */
enum { N_ROW = 5 };
static const char *const plane_name[MILL_N_PLANE] = {[MILL_FLUX] = "FLUX",
                                                     [MILL_WAVE] = "WAVELENGTH",
                                                     [MILL_IVAR] = "IVAR",
                                                     [MILL_MASK] = "ANDMASK"};
static const int plane_row[MILL_N_PLANE] = {
    [MILL_FLUX] = 0, [MILL_IVAR] = 1, [MILL_WAVE] = 2, [MILL_MASK] = 3};

/* Parse an HDU's name.  B-84107311 is an exposure of camera B that began at this minute (local MJD
 * times 1440).  COADD_B is the coadd of camera B, with minute -1. */
static int parse_name(const char *name, char *letter, int32_t *minute)
{
  char camera[2], digits[9];
  int n = 0;
  *minute = -1;
  if (sscanf(name, "%1[BR]-%8[0-9]%n", camera, digits, &n) == 2 && !name[n])
    *minute = (int32_t)strtol(digits, NULL, 10);
  else if (sscanf(name, "COADD_%1[BR]%n", camera, &n) != 1 || name[n])
    return 0;
  *letter = camera[0];
  return 1;
}

/* Set camera->mjd to the middle of the exposure, for a coadd to the mean of all exposures' middles.
 * If the file has no exposures, use DATE-OBS (the middle, UTC), else the day in MJD. */
static int read_middle(mill_cameras *c, mill_camera *camera)
{
  const mill_fits_guard *guard = c->file->guard;
  char letter, date[FLEN_VALUE] = "";
  int32_t minute;
  double sum = 0.0;
  int n = 0;
  for (int i = 1; i < guard->n_hdu; i++) {
    double exposed_s = 0.0;
    if (!parse_name(guard->hdu[i].name, &letter, &minute) || minute < 0 ||
        (camera->exposure_id >= 0 && i != camera->i_hdu))
      continue; /* no exposure, or another one */
    MILL_CHECK(mill_single_key_double(c->file, i, "EXPTIME", &exposed_s, NULL));
    sum += minute / 1440.0 - LOCAL_DAYS + 0.5 * exposed_s / 86400.0;
    n++;
  }
  MILL_CHECK(mill_single_key_text(c->file, 0, "DATE-OBS", date, sizeof date, NULL));
  camera->mjd = n > 0 ? sum / n : mill_single_mjd(date);
  return isfinite(camera->mjd) ? MILL_OK
                               : mill_single_key_double(c->file, 0, "MJD", &camera->mjd, NULL);
}

/* ---- structure -------------------------------------------------------- */

static int is_image_of_rows(const mill_fits_hdu *hdu)
{
  return hdu->kind == MILL_FITS_IMAGE && hdu->n_axis == 2 && hdu->axis[1] == N_ROW;
}

static int recognise(const mill_fits_guard *guard)
{
  const int i_coadd = mill_single_find_table(guard, "COADD");
  if (i_coadd >= 0)
    return guard->hdu[i_coadd].axis[1] == 1 && mill_single_find_table(guard, "SPECOBJ") < 0 &&
           mill_single_find_table(guard, "SPALL") < 0;
  /* other surveys also have images of five rows */
  return is_image_of_rows(&guard->hdu[0]) && mill_single_says(guard, "TELESCOP= 'LAMOST");
}

/* Compute wavelengths from keywords: DR1's image has Subcontinuum in the row of wavelengths. */
static int take_dr1_wave(mill_cameras *c, mill_camera *camera)
{
  double first = NAN, step = NAN;
  MILL_CHECK(mill_single_key_double(c->file, 0, "COEFF0", &first, NULL));
  MILL_CHECK(mill_single_key_double(c->file, 0, "COEFF1", &step, NULL));
  MILL_CHECK(MILL_ALLOC(camera->n_pix, &camera->wave_aa));
  for (int i = 0; i < camera->n_pix; i++)
    camera->wave_aa[i] = pow(10.0, first + step * i);
  return mill_single_check_wave(c->file, 0, "COEFF0 and COEFF1", camera->n_pix, camera->wave_aa);
}

/* Use the rows of the image as planes. */
static int take_image(mill_cameras *c, mill_camera *camera)
{
  const mill_fits_hdu *hdu = &c->file->guard->hdu[0];
  if (!is_image_of_rows(hdu))
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: has neither a table COADD nor a primary image of %d rows (flux, ivar, "
                      "wavelength, andmask, ormask); give a LAMOST low-resolution file",
                      c->file->guard->path, N_ROW);
  if (hdu->axis[0] < 2 || hdu->axis[0] > MILL_SINGLE_MAX_PIX)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: HDU 1 has %lld pixels a row, expected 2 to %d",
                      c->file->guard->path, (long long)hdu->axis[0], MILL_SINGLE_MAX_PIX);
  camera->n_pix = (int)hdu->axis[0];
  for (int i = 0; i < MILL_N_PLANE; i++)
    camera->plane[i] = (mill_plane){.name = plane_name[i], .row = plane_row[i]};
  const int is_dr1 = mill_single_says(c->file->guard, "EXTEN0  = 'Flux Inverse Subcontinuum");
  return is_dr1 ? take_dr1_wave(c, camera) : MILL_OK;
}

/* Open a low-resolution file.  It has only a coadd, so the key exposures has no effect. */
static int open_file(void *state, const mill_spectra_settings *settings, int *frame)
{
  mill_cameras *c = state;
  mill_camera *camera;
  int i_coadd;
  (void)settings;
  MILL_CHECK(mill_fits_file_find(c->file, "COADD", &i_coadd));
  MILL_CHECK(mill_camera_add(c, "coadd", i_coadd < 0 ? 0 : i_coadd, &camera));
  camera->exposure = camera->i_hdu;
  MILL_CHECK(read_middle(c, camera));
  MILL_CHECK(i_coadd < 0 ? take_image(c, camera) : mill_camera_columns(c, camera, 1, plane_name));
  return mill_single_conventions(c->file, 0, frame, &camera->air);
}

/* ---- medium resolution -------------------------------------------------- */

static int recognise_mrs(const mill_fits_guard *guard)
{
  char letter;
  int32_t minute;
  for (int i = 1; i < guard->n_hdu; i++)
    if (guard->hdu[i].kind == MILL_FITS_TABLE && parse_name(guard->hdu[i].name, &letter, &minute))
      return mill_single_says(guard, "TELESCOP= 'LAMOST");
  return 0;
}

/* Add the camera in HDU i_hdu of a medium-resolution file; minute -1: a coadd. */
static int open_mrs_camera(mill_cameras *c, int i_hdu, char letter, int32_t minute, int *frame)
{
  mill_camera *camera;
  int has_log = 0;
  mill_fits_column loglam;
  MILL_CHECK(mill_fits_column_find(c->file, i_hdu, "LOGLAM", &has_log, &loglam));
  MILL_CHECK(mill_camera_add(c, letter == 'B' ? "b" : "r", i_hdu, &camera));
  camera->exposure_id = minute;
  camera->is_log = has_log;
  MILL_CHECK(read_middle(c, camera));
  MILL_CHECK(mill_single_conventions(c->file, 0, frame, &camera->air));
  return mill_camera_columns(
      c, camera, 1,
      (const char *[MILL_N_PLANE]){[MILL_FLUX] = "FLUX",
                                   [MILL_WAVE] = has_log ? "LOGLAM" : "WAVELENGTH",
                                   [MILL_IVAR] = "IVAR",
                                   [MILL_MASK] = minute < 0 ? "ANDMASK" : "PIXMASK"});
}

/* `open` for medium resolution: take the tables of either coadds or exposures. */
static int open_mrs(void *state, const mill_spectra_settings *settings, int *frame)
{
  lamost *l = state;
  mill_cameras *c = &l->cameras;
  const mill_fits_guard *guard = c->file->guard;
  const int choice = settings->config->exposures, is_coadd = choice == MILL_EXPOSURES_COADD;
  l->joint = choice != MILL_EXPOSURES_SINGLE;
  for (int i = 0; i < guard->n_hdu; i++) {
    char letter;
    int32_t minute;
    if (guard->hdu[i].kind == MILL_FITS_TABLE && parse_name(guard->hdu[i].name, &letter, &minute) &&
        (minute < 0) == is_coadd)
      MILL_CHECK(open_mrs_camera(c, i, letter, minute, frame));
  }
  if (c->n_camera == 0)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%s: has no table %s; set exposures: %s, or give a LAMOST medium-resolution file",
        guard->path, is_coadd ? "COADD_B or COADD_R" : "B-minute or R-minute",
        is_coadd ? "single" : "coadd");
  return mill_cameras_number(c);
}

/* ---- index ------------------------------------------------------------ */

/* Keywords of the primary header; before DR9, FIB_TYPE is called FIBERTYP. */
enum { DESIG, FILENAME, TYPE, OBSID, DAY, PLAN, SPECTROGRAPH };
static const mill_fits_wish wish[] = {
    [DESIG] = MILL_WISH("DESIG", TEXT, 0, 0),
    [FILENAME] = MILL_WISH("FILENAME", TEXT, 0, 0),
    [TYPE] = {"FIB_TYPE", MILL_AS_TEXT, 0, 0, 0, 0, {"FIBERTYP", NULL}},
    [OBSID] = MILL_WISH("OBSID", INT32, -1, 0),
    [DAY] = MILL_WISH("LMJD", INT32, -1, 0),
    [PLAN] = MILL_WISH("PLANID", TEXT, 0, 0),
    [SPECTROGRAPH] = MILL_WISH("SPID", INT32, -1, 0),
    MILL_ROW_WISH("RA", DOUBLE, target_ra, NAN, 0),
    MILL_ROW_WISH("DEC", DOUBLE, target_dec, NAN, 0),
    MILL_ROW_WISH("FIBERID", INT32, fiber, -1, 0),
    MILL_ROW_WISH("Z", DOUBLE, kind.z, NAN, 0),
    MILL_ROW_WISH("CLASS", TEXT, kind.spectype, 0, 0),
    MILL_ROW_WISH("SUBCLASS", TEXT, kind.subtype, 0, 0)};
enum { N = sizeof wish / sizeof *wish };

/* Set the star's name: DESIG, which all visits share, else OBSID, FILENAME or the file's name.
 * Fail if it is too long: cut names of two stars might be equal. */
static int take_name(const char *path, const mill_fits_values *v, mill_catalog_row *to)
{
  char id[16];
  const char *text = mill_fits_text_at(&v[DESIG], 0);
  snprintf(id, sizeof id, "%d", v[OBSID].i32[0]);
  if (!*text)
    text = v[OBSID].i32[0] >= 0 ? id : mill_fits_text_at(&v[FILENAME], 0);
  if (!*text)
    text = mill_base_name(path);
  if (strlen(text) >= sizeof to->object)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: the star's name '%s' (DESIG, else FILENAME, else the name of the file) "
                      "is longer than %zu bytes; write a shorter name into DESIG",
                      path, text, sizeof to->object - 1);
  strcpy(to->object, text);
  return MILL_OK;
}

/* Return a fibre's target type; BAD if the fibre has no target. */
static const char *objtype_of(const char *type)
{
  static const char *const bad[] = {"UNUSED", "POSERR", "DEAD"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    if (strcasecmp(type, bad[i]) == 0)
      return "BAD";
  return type;
}

/* Make the row's identifier from day, plan, spectrograph and fibre, if the header has all four. */
static void identify(const mill_fits_values *v, mill_catalog_row *to)
{
  const char *plan = mill_fits_text_at(&v[PLAN], 0);
  const int32_t day = v[DAY].i32[0], spectrograph = v[SPECTROGRAPH].i32[0];
  if (day >= 0 && plan[0] && spectrograph >= 0 && to->fiber >= 0 &&
      snprintf(to->identifier, sizeof to->identifier, "lamost %05d-%s-%02d-%03d", day, plan,
               spectrograph, to->fiber) >= (int)sizeof to->identifier)
    to->identifier[0] = '\0'; /* too long: identify by file and row */
}

/* List the file's star in the index, if the star is selected. */
static int index_file(void *state, const mill_selection *select, mill_file_index *index)
{
  lamost *l = state;
  mill_cameras *c = &l->cameras;
  MILL_FITS_VALUES(v, N);
  mill_catalog_row row;
  mill_catalog_row_init(&row);
  /* keywords of HDU 0, where LAMOST writes -9999 for unknown values */
  MILL_CHECK(mill_single_keys(c->file, &(int){0}, 1, -9999.0, wish, N, v));
  mill_fits_fill(c->file->guard->path, wish, N, v, 0, &row);
  MILL_CHECK(take_name(c->file->guard->path, v, &row));
  identify(v, &row);
  for (int i = 0; i < c->n_camera; i++)
    if (c->camera[i].exposure_id < 0) /* a coadd */
      c->camera[i].exposure_id = v[OBSID].i32[0];
  return mill_cameras_index(c, select, &row, objtype_of(mill_fits_text_at(&v[TYPE], 0)), l->joint,
                            index);
}

/* Below 4000 A throughput is low.  The measured line width is constant in Angstrom in camera b and
 * nearly constant in velocity in camera r (docs/science/real-library.md). */
static const mill_arm_choice cameras[] = {
    {.arm = "b", .min_aa = 4000, .max_aa = 5800, .fwhm_aa = 2.7, .most_power = 2200},
    {.arm = "r", .min_aa = 5800, .max_aa = INFINITY, .resolving_power = 1650, .most_power = 1800}};

const mill_format mill_format_lamost = {
    .name = "lamost",
    .description = "LAMOST low-resolution files: table COADD, or an image of five rows",
    .recognise = recognise,
    .state_bytes = sizeof(lamost),
    .open = open_file,
    .index = index_file,
    MILL_CAMERAS_FORMAT,
    .camera = cameras,
    .n_camera = sizeof cameras / sizeof *cameras,
    .lsf_width_error = 0.06};

/* Beyond these ranges, exposures have invalid values with small errors. */
static const mill_arm_choice mrs_cameras[] = {
    {.arm = "b", .min_aa = 4950, .max_aa = 5350, .resolving_power = 7500, .most_power = 8500},
    {.arm = "r", .min_aa = 6300, .max_aa = 6800, .resolving_power = 7500, .most_power = 8500}};

const mill_format mill_format_lamost_mrs = {
    .name = "lamost-mrs",
    .description = "LAMOST medium-resolution files: coadds or single exposures",
    .recognise = recognise_mrs,
    .state_bytes = sizeof(lamost),
    .open = open_mrs,
    .index = index_file,
    MILL_CAMERAS_FORMAT,
    .camera = mrs_cameras,
    .n_camera = sizeof mrs_cameras / sizeof *mrs_cameras,
    .lsf_width_error = 0.1};
