/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads coadds or single exposures from spec files of SDSS I to V, and BOSS spectra in the star's
 * rest frame from Astra's files mwmStar and mwmVisit.  docs/use/input.md has the rules. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/surveys/cameras.h"

/* SPPIXMASK bits that make a pixel bad whatever its ivar.  NODATA is not used: in an OR over
 * exposures a tenth of the good pixels of BOSS have it. */
enum {
  BAD = 1 << 0        /* NOPLUG */
        | 1 << 1      /* BADTRACE */
        | 1 << 2      /* BADFLAT */
        | 1 << 3      /* BADARC */
        | 1 << 4      /* MANYBADCOLUMNS */
        | 1 << 5      /* MANYREJECTED */
        | 1 << 18     /* FULLREJECT */
        | 1 << 22     /* NOSKY */
        | 1 << 23     /* BRIGHTSKY */
        | 1 << 25     /* COMBINEREJ */
        | 1 << 26     /* BADFLUXFACTOR */
        | 1 << 27     /* BADSKYCHI */
        | 1 << 28,    /* REDMONSTER */
  NO_WDISP = 1 << 30, /* invalid wdisp; set by this reader, as SPPIXMASK does not use the bit */
  /* bits that reject a pixel of one exposure; ignored in an OR over exposures */
  OF_ONE = 1 << 18 | 1 << 25,
  MAX_VISIT = 4096
};

static const double MAX_WDISP = 10.0; /* pixels; above, the resolving power would be below 185 */

/* A camera is the coadd, or a blue or red spectrum of an exposure, or a row of Astra's tables.  An
 * exposure's number is the HDU of its first camera; in Astra's files, the index of its camera. */
typedef struct sdss {
  mill_cameras cameras;
  int i_object; /* HDU of the object's table, which has one row */
  int joint, is_mwm;
} sdss;

static int find_object_table(const mill_fits_guard *guard)
{
  const int i_hdu = mill_single_find_table(guard, "SPECOBJ");
  return i_hdu >= 0 ? i_hdu : mill_single_find_table(guard, "SPALL");
}

static const char *const mwm_table[] = {"BOSS/APO", "BOSS/LCO"};
enum { N_MWM = sizeof mwm_table / sizeof *mwm_table };

static int is_mwm(const mill_fits_guard *guard)
{
  return mill_single_find_table(guard, mwm_table[0]) >= 0 ||
         mill_single_find_table(guard, mwm_table[1]) >= 0;
}

static int recognise(const mill_fits_guard *guard)
{
  if (is_mwm(guard))
    return 1;
  const int i_coadd = mill_single_find_table(guard, "COADD");
  return i_coadd >= 0 && guard->hdu[i_coadd].axis[1] != 1 && find_object_table(guard) >= 0;
}

/* ---- exposures -------------------------------------------------------- */

/* Parse an exposure's HDU name: B1-00104927-00104934-00104935 is camera, exposure, flat, arc. */
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

/* Add the cameras of single exposures.  An HDU MJD_EXP_... has both cameras as one spectrum. */
static int find_exposures(mill_cameras *c)
{
  const mill_fits_guard *guard = c->file->guard;
  mill_camera *camera;
  for (int i = 0; i < guard->n_hdu; i++) {
    char letter = 0;
    int32_t id = -1;
    const int is_joined = strncmp(guard->hdu[i].name, "MJD_EXP_", 8) == 0;
    if (!is_joined && !parse_exposure_name(guard->hdu[i].name, &letter, &id))
      continue;
    MILL_CHECK(mill_camera_add(c, is_joined ? "coadd" : letter == 'B' ? "b" : "r", i, &camera));
    if (is_joined)
      MILL_CHECK(mill_single_key_int32(c->file, i, "EXPOSURE", &id, NULL));
    camera->exposure_id = id;
  }
  if (c->n_camera == 0)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: holds no single exposures (HDUs named B1-..., R1-..., MJD_EXP_...); set "
                      "exposures: coadd, or fetch the full file (this may be a lite one)",
                      guard->path);
  return mill_cameras_number(c);
}

static int find_coadd(mill_cameras *c)
{
  mill_camera *camera;
  int i_hdu;
  MILL_CHECK(mill_fits_file_find(c->file, "COADD", &i_hdu));
  if (i_hdu < 0)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%s: has no table COADD; give an SDSS spec-PLATE-MJD-FIBER file, or set exposures: single",
        c->file->guard->path);
  MILL_CHECK(mill_camera_add(c, "coadd", i_hdu, &camera));
  camera->exposure = i_hdu; /* exposures are numbered by HDU */
  return MILL_OK;
}

/* Convert a TAI (s since MJD 0) to UTC (MJD).  TAI - UTC was 32 s in 1999 and grew by 1 s at the
 * beginning of each leap day. */
static double utc_mjd(double tai_s)
{
  static const int leap_day[] = {53736, 54832, 56109, 57204, 57754};
  double mjd = (tai_s - 32.0) / 86400.0;
  for (size_t i = 0; i < sizeof leap_day / sizeof *leap_day; i++)
    mjd -= mjd >= leap_day[i] ? 1.0 / 86400.0 : 0.0;
  return mjd;
}

/* Set camera->mjd to the middle of the exposure.  A coadd takes the mean of the exposures' middles,
 * else the middle in the primary header (of first begin and last end, perhaps nights apart), else
 * TAI (the exposures' mean end), else the day MJD. */
static int read_middle(mill_cameras *c, mill_camera *camera)
{
  const int is_coadd = camera->exposure_id < 0, first = is_coadd ? 0 : camera->i_hdu;
  const int end = is_coadd ? c->file->guard->n_hdu : first + 1;
  double sum = 0.0, n = 0.0, tai_s = NAN;
  for (int i = end - 1; i >= first && !(i == 0 && n > 0.0); i--) { /* primary header last */
    double begin_s = NAN, end_s = NAN;
    MILL_CHECK(mill_single_key_double(c->file, i, "TAI-BEG", &begin_s, NULL));
    MILL_CHECK(mill_single_key_double(c->file, i, "TAI-END", &end_s, NULL));
    if (isfinite(begin_s + end_s)) {
      sum += 0.5 * (begin_s + end_s);
      n += 1.0;
    }
  }
  MILL_CHECK(mill_single_key_double(c->file, first, "MJD", &camera->mjd, NULL));
  MILL_CHECK(mill_single_key_double(c->file, first, "TAI", &tai_s, NULL));
  if (n > 0.0 || isfinite(tai_s))
    camera->mjd = utc_mjd(n > 0.0 ? sum / n : tai_s);
  return MILL_OK;
}

/* Find a camera's columns.  Read frame and medium from the header of its exposure or, for a coadd,
 * from the primary header. */
static int open_camera(mill_cameras *c, mill_camera *camera, int *frame_of_all)
{
  const int i_header = camera->exposure_id < 0 ? 0 : camera->i_hdu, is_first = camera == c->camera;
  const int is_joined = strcmp(camera->name, "coadd") == 0; /* both cameras in one spectrum */
  int frame, is_barycentric;
  double vel_km_s;
  const char *const name[MILL_N_PLANE] = {[MILL_FLUX] = "flux",
                                          [MILL_WAVE] = "loglam",
                                          [MILL_IVAR] = "ivar",
                                          [MILL_MASK] = is_joined ? "and_mask" : "mask",
                                          [MILL_WIDTH] = "wdisp"};
  camera->is_log = 1;
  MILL_CHECK(mill_camera_columns(c, camera, 1, name));
  MILL_CHECK(mill_single_conventions(c->file, i_header, &frame, &camera->air));
  /* V_RAD is the barycentric velocity that SDSS-V applied; if present, the frame is barycentric */
  MILL_CHECK(mill_single_key_double(c->file, i_header, "V_RAD", &vel_km_s, &is_barycentric));
  frame = is_barycentric ? MILL_FRAME_BARYCENTRIC : frame;
  MILL_CHECK(read_middle(c, camera));
  return mill_single_add_frame(c->file, camera->i_hdu, is_first, frame, frame_of_all);
}

/* Set sigma_aa (A) from wdisp, in pixels of 1e-4 in log10 wavelength.  A pixel with invalid wdisp
 * becomes bad.  Its sigma is interpolated: line-spread functions of good pixels extend over it. */
static int take_wdisp(mill_cameras *c, const mill_camera *camera)
{
  mill_single_spectrum *spectrum = &c->spectrum;
  const int n_pix = camera->n_pix;
  double *wdisp = spectrum->number;
  int last = -1; /* last pixel with a valid width */
  for (int i = 0; i < n_pix; i++)
    spectrum->mask[i] &= BAD;
  MILL_CHECK(mill_camera_plane(c, camera, MILL_WIDTH, wdisp));
  for (int i = 0; i <= n_pix; i++) { /* n_pix ends a gap at the end */
    const int good = i < n_pix && isfinite(wdisp[i]) && wdisp[i] > 0.0 && wdisp[i] <= MAX_WDISP;
    if (i < n_pix && !good) {
      spectrum->mask[i] |= NO_WDISP;
      continue;
    }
    for (int j = last + 1; j < i; j++) { /* fill the gap; 1 if no pixel is valid */
      const double left = last >= 0 ? wdisp[last] : good ? wdisp[i] : 1.0;
      const double right = good ? wdisp[i] : left;
      wdisp[j] = left + (right - left) * (double)(j - last) / (double)(i - last);
    }
    last = i;
  }
  for (int i = 0; i < n_pix; i++)
    spectrum->sigma_aa[i] = (float)(wdisp[i] * 1e-4 * M_LN10 * camera->wave_aa[i]);
  return MILL_OK;
}

/* ---- Astra's stars and visits ------------------------------------------- */

/* Set sigma_aa (A) from WRESL, the full width at half maximum.  Coadds lack WRESL: use BOSS's
 * resolving power, 1560 to 2270 over 3700-6000 A and 1850 to 2650 over 6000-9000 A. */
static int take_mwm(mill_cameras *c, const mill_camera *camera)
{
  mill_single_spectrum *spectrum = &c->spectrum;
  const int has_width = camera->plane[MILL_WIDTH].number != 0;
  double *fwhm = spectrum->number;
  if (has_width)
    MILL_CHECK(mill_camera_plane(c, camera, MILL_WIDTH, fwhm));
  for (int i = 0; i < camera->n_pix; i++) {
    const double wave = camera->wave_aa[i];
    const double power = wave < 6000.0 ? 1560.0 + (wave - 3700.0) * (710.0 / 2300.0)
                                       : 1850.0 + (wave - 6000.0) * (800.0 / 3000.0);
    const int is_width = has_width && isfinite(fwhm[i]) && fwhm[i] > 0.0;
    spectrum->mask[i] &= BAD & ~OF_ONE; /* Astra's mask is an OR over exposures */
    spectrum->sigma_aa[i] = (float)((is_width ? fwhm[i] : wave / power) / MILL_FWHM_SIGMA);
  }
  return MILL_OK;
}

/* Compute the wavelengths of row i.  Undo Astra's shift to rest, the factor 1 - vel_km_s / c. */
static int read_mwm_wave(mill_cameras *c, mill_camera *camera, int64_t i, double vel_km_s)
{
  char what[96];
  double start = NAN, step = NAN, reference = 1.0;
  snprintf(what, sizeof what, "CRVAL, CDELT, CRPIX and the velocity %g km/s of row %lld", vel_km_s,
           (long long)i);
  MILL_CHECK(mill_single_key_double(c->file, camera->i_hdu, "CRVAL", &start, NULL));
  MILL_CHECK(mill_single_key_double(c->file, camera->i_hdu, "CDELT", &step, NULL));
  MILL_CHECK(mill_single_key_double(c->file, camera->i_hdu, "CRPIX", &reference, NULL));
  MILL_CHECK(MILL_ALLOC(camera->n_pix, &camera->wave_aa));
  for (int k = 0; k < camera->n_pix; k++)
    camera->wave_aa[k] =
        pow(10.0, start + step * (k + 1 - reference)) / (1.0 - vel_km_s / MILL_C_KM_S);
  return mill_single_check_wave(c->file, camera->i_hdu, what, camera->n_pix, camera->wave_aa);
}

/* Add a camera for each row of a table.  Undo Astra's shift to the star's rest frame: v_rad in a
 * coadd, xcsao_v_rad in a coadded visit. */
static int open_mwm_table(mill_cameras *c, int i_hdu)
{
  enum { V_RAD, V_VISIT, BEGIN, END, N };
  static const mill_fits_wish wish[N] = {[V_RAD] = MILL_WISH("v_rad", DOUBLE, NAN, 0),
                                         [V_VISIT] = MILL_WISH("xcsao_v_rad", DOUBLE, NAN, 0),
                                         [BEGIN] = MILL_WISH("tai_beg", DOUBLE, NAN, 0),
                                         [END] = MILL_WISH("tai_end", DOUBLE, NAN, 0)};
  int is_visit = 0, status = 0;
  MILL_FITS_VALUES(v, N);
  mill_fits_column in_stack;
  const int64_t n_row = c->file->guard->hdu[i_hdu].axis[1];
  if (n_row > MAX_VISIT)
    return MILL_ERROR_HDU(c->file, i_hdu, " has %lld rows, expected up to %d spectra of one star",
                          (long long)n_row, MAX_VISIT);
  MILL_CHECK(mill_fits_columns(c->file, i_hdu, wish, N, v));
  MILL_CHECK(mill_fits_column_find(c->file, i_hdu, "in_stack", &is_visit, &in_stack));
  for (int64_t i = 0; i < n_row; i++) {
    mill_camera *camera;
    char is_in = 0; /* 1: in the visits' coadd; only such visits were shifted */
    MILL_CHECK(mill_fits_file_move(c->file, i_hdu)); /* for fits_read_col */
    if (is_visit)
      fits_read_col(c->file->fptr, TLOGICAL, in_stack.number, i + 1, 1, 1, NULL, &is_in, NULL,
                    &status);
    MILL_CHECK_FITS(c->file, i_hdu, status, "column in_stack of row %lld cannot be read",
                    (long long)i);
    double vel_km_s = v[is_visit ? V_VISIT : V_RAD].f64[i];
    if (!is_visit && !isfinite(vel_km_s))
      return MILL_ERROR_HDU(c->file, i_hdu,
                            ": v_rad of row %lld (counted from 0) is not a number, so the shift "
                            "to rest cannot be undone; give the mwmVisit file",
                            (long long)i);
    if (is_visit && !(is_in && isfinite(vel_km_s)))
      vel_km_s = 0.0; /* not shifted */
    MILL_CHECK(mill_camera_add(c, "coadd", i_hdu, &camera));
    camera->exposure = c->n_camera - 1;
    camera->mjd = utc_mjd(0.5 * (v[BEGIN].f64[i] + v[END].f64[i]));
    MILL_CHECK(mill_camera_columns(
        c, camera, 0,
        (const char *[MILL_N_PLANE]){[MILL_FLUX] = "flux",
                                     [MILL_IVAR] = "ivar",
                                     [MILL_MASK] = "pixel_flags",
                                     [MILL_WIDTH] = is_visit ? "wresl" : NULL}));
    for (int k = 0; k < MILL_N_PLANE; k++)
      camera->plane[k].row = i;
    camera->plane[MILL_WIDTH].name = "wresl"; /* take_mwm sets a width even without a column */
    camera->sigma_is_whole = 1;               /* measured on arc lines, as pixels show them */
    MILL_CHECK(read_mwm_wave(c, camera, i, vel_km_s));
  }
  return MILL_OK;
}

/* `open` for Astra's files: add a camera for each spectrum of BOSS. */
static int open_mwm(sdss *s, int *frame)
{
  mill_cameras *c = &s->cameras;
  const mill_fits_guard *guard = c->file->guard;
  s->is_mwm = 1;
  c->finish = take_mwm;
  *frame = MILL_FRAME_BARYCENTRIC;
  for (int k = 0; k < N_MWM; k++) {
    int i_hdu;
    MILL_CHECK(mill_fits_file_find(c->file, mwm_table[k], &i_hdu));
    if (i_hdu >= 0 && guard->hdu[i_hdu].axis[1] > 0)
      MILL_CHECK(open_mwm_table(c, i_hdu));
  }
  if (c->n_camera == 0)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: has no spectra of BOSS (tables BOSS/APO, BOSS/LCO); those of APOGEE are "
                      "not read: leave the file out",
                      guard->path);
  return MILL_OK;
}

/* Find the file's spectra: Astra's spectra, the coadd, or the single exposures. */
static int open_file(void *state, const mill_spectra_settings *settings, int *frame)
{
  sdss *s = state;
  const mill_fits_file *file = s->cameras.file;
  const mill_fits_guard *guard = file->guard;
  const int choice = settings->config->exposures;
  s->joint = choice == MILL_EXPOSURES_JOINT;
  if (is_mwm(guard))
    return open_mwm(s, frame);
  s->cameras.finish = take_wdisp;
  s->i_object = find_object_table(guard);
  if (s->i_object < 0)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: has no table SPECOBJ or SPALL; give an SDSS spec-PLATE-MJD-FIBER file",
                      guard->path);
  /* fail if two tables have this name */
  MILL_CHECK(mill_fits_file_find(file, guard->hdu[s->i_object].name, &s->i_object));
  if (guard->hdu[s->i_object].axis[1] != 1)
    return MILL_ERROR_HDU(
        file, s->i_object,
        " has %lld rows, expected one for the file's only object; make the file again",
        (long long)guard->hdu[s->i_object].axis[1]);
  mill_cameras *c = &s->cameras;
  MILL_CHECK(choice == MILL_EXPOSURES_COADD ? find_coadd(c) : find_exposures(c));
  for (int i = 0; i < c->n_camera; i++)
    MILL_CHECK(open_camera(c, &c->camera[i], frame));
  return MILL_OK;
}

/* ---- index ------------------------------------------------------------ */

/* Columns of the object's table.  SDSS-I and II have SOURCETYPE instead of OBJTYPE.  SDSS-V has
 * CATALOGID, FIELD instead of PLATE, and MJD_FINAL: the coadd's mean time (TAI, days). */
enum { PLATE, MJD, FIBER, CATALOGID, OBJTYPE, SOURCETYPE, MJD_FINAL };
static const mill_fits_wish wish_of_all[] = {[PLATE] = MILL_WISH("PLATE", INT32, 0, 1),
                                             [MJD] = MILL_WISH("MJD", INT32, 0, 1),
                                             [FIBER] =
                                                 MILL_ROW_WISH("FIBERID", INT32, fiber, -1, 1),
                                             [CATALOGID] = MILL_WISH("CATALOGID", INT64, -1, 0),
                                             [OBJTYPE] = MILL_WISH("OBJTYPE", TEXT, 0, 0),
                                             [SOURCETYPE] = MILL_WISH("SOURCETYPE", TEXT, 0, 0),
                                             [MJD_FINAL] = MILL_WISH("MJD_FINAL", DOUBLE, NAN, 0),
                                             MILL_ROW_WISH("SDSS_ID", INT64, target_id, -1, 0),
                                             MILL_ROW_WISH("PLUG_RA", DOUBLE, target_ra, NAN, 0),
                                             MILL_ROW_WISH("PLUG_DEC", DOUBLE, target_dec, NAN, 0),
                                             MILL_ROW_WISH("Z", DOUBLE, kind.z, NAN, 0),
                                             MILL_ROW_WISH("ZWARNING", INT32, kind.zwarn, 0, 0),
                                             MILL_ROW_WISH("CLASS", TEXT, kind.spectype, 0, 0),
                                             MILL_ROW_WISH("SUBCLASS", TEXT, kind.subtype, 0, 0)};
enum { N_WISH = sizeof wish_of_all / sizeof *wish_of_all };

/* Read the object's row into v [N_WISH] and *row, and a coadd's time. */
static int describe_object(sdss *s, mill_fits_values *v, mill_catalog_row *row)
{
  mill_fits_file *file = s->cameras.file;
  mill_fits_wish wish[N_WISH];
  mill_fits_column found;
  int has_plate, has_field;
  memcpy(wish, wish_of_all, sizeof wish);
  MILL_CHECK(mill_fits_column_find(file, s->i_object, "PLATE", &has_plate, &found));
  MILL_CHECK(mill_fits_column_find(file, s->i_object, "FIELD", &has_field, &found));
  const int is_v = has_field && !has_plate; /* SDSS-V */
  if (is_v) {
    wish[PLATE].name = "FIELD";
    wish[FIBER].is_needed = 0;
    wish[CATALOGID].is_needed = 1;
  }
  MILL_CHECK(mill_fits_columns(file, s->i_object, wish, N_WISH, v));
  mill_fits_fill(file->guard->path, wish, N_WISH, v, 0, row);
  if (s->cameras.camera->exposure_id < 0 && v[MJD_FINAL].f64[0] > 0.0) /* 0: unknown */
    s->cameras.camera->mjd = utc_mjd(86400.0 * v[MJD_FINAL].f64[0]);
  const int plate = v[PLATE].i32[0], mjd = v[MJD].i32[0];
  const long long catalog_id = (long long)v[CATALOGID].i64[0];
  if (is_v && catalog_id > 0) {
    snprintf(row->object, sizeof row->object, "%lld", catalog_id);
    snprintf(row->identifier, sizeof row->identifier, "sdss %d-%d-%lld", plate, mjd, catalog_id);
  } else if (!is_v) {
    snprintf(row->object, sizeof row->object, "spec-%04d-%05d-%04d", plate, mjd, row->fiber);
    snprintf(row->identifier, sizeof row->identifier, "sdss %s", row->object + strlen("spec-"));
  }
  return MILL_OK;
}

/* Keywords of a star in Astra's files. */
enum { MWM_ID, MWM_CATALOGID };
static const mill_fits_wish mwm_wish[] = {[MWM_ID] =
                                              MILL_ROW_WISH("SDSS_ID", INT64, target_id, -1, 0),
                                          [MWM_CATALOGID] = MILL_WISH("CAT_ID", TEXT, 0, 0),
                                          MILL_ROW_WISH("RA", DOUBLE, target_ra, NAN, 0),
                                          MILL_ROW_WISH("DEC", DOUBLE, target_dec, NAN, 0),
                                          MILL_ROW_WISH("PMRA", DOUBLE, pmra, NAN, 0),
                                          MILL_ROW_WISH("PMDE", DOUBLE, pmdec, NAN, 0),
                                          MILL_ROW_WISH("PLX", DOUBLE, parallax, NAN, 0),
                                          MILL_ROW_WISH("G_MAG", DOUBLE, gaia_g, NAN, 0),
                                          MILL_ROW_WISH("BP_MAG", DOUBLE, gaia_bp, NAN, 0),
                                          MILL_ROW_WISH("RP_MAG", DOUBLE, gaia_rp, NAN, 0)};
enum { N_MWM_WISH = sizeof mwm_wish / sizeof *mwm_wish };
static_assert((int)N_MWM_WISH <= (int)N_WISH, "N_WISH is too small for mwm_wish");

static int describe_mwm(sdss *s, mill_fits_values *v, mill_catalog_row *row)
{
  mill_fits_file *file = s->cameras.file;
  MILL_CHECK(mill_single_keys(file, &(int){0}, 1, NAN, mwm_wish, N_MWM_WISH, v));
  mill_fits_fill(file->guard->path, mwm_wish, N_MWM_WISH, v, 0, row);
  mill_fits_text_copy(file->guard->path, "CAT_ID", mill_fits_text_at(&v[MWM_CATALOGID], 0),
                      row->object, sizeof row->object);
  if (strtoll(row->object, NULL, 10) <= 0)
    row->object[0] = '\0';
  if (row->target_id > 0)
    snprintf(row->identifier, sizeof row->identifier, "sdss_id %lld", (long long)row->target_id);
  return MILL_OK;
}

/* List the file's star in the index, if it is selected.  An SDSS_ID or CATALOGID of 0 or less means
 * none.  No name is made of such a number, lest stars without a number share one name. */
static int index_file(void *state, const mill_selection *select, mill_file_index *index)
{
  sdss *s = state;
  mill_catalog_row row;
  MILL_FITS_VALUES(v, N_WISH);
  mill_catalog_row_init(&row);
  MILL_CHECK((s->is_mwm ? describe_mwm : describe_object)(s, v, &row));
  row.target_id = row.target_id > 0 ? row.target_id : -1;
  const char *objtype =
      s->is_mwm ? NULL : mill_fits_text_at(&v[v[OBJTYPE].there ? OBJTYPE : SOURCETYPE], 0);
  return mill_cameras_index(&s->cameras, select, &row, objtype, s->joint, index);
}

/* The cameras meet at 6000 A.  In b the power rises with wavelength, in the sharpest files to 2400;
 * 2100 holds at the blue end, which decides how arms are sampled. */
static const mill_arm_choice cameras[] = {
    {.arm = "b", .max_aa = 6000, .most_power = 2100},
    {.arm = "r", .min_aa = 6000, .max_aa = INFINITY, .most_power = 2500}};

const mill_format mill_format_sdss = {
    .name = "sdss",
    .description = "SDSS I to V spec files, coadd or single exposures; mwmStar, mwmVisit",
    .recognise = recognise,
    .state_bytes = sizeof(sdss),
    .open = open_file,
    .index = index_file,
    MILL_CAMERAS_FORMAT,
    .camera = cameras,
    .n_camera = sizeof cameras / sizeof *cameras,
    .lsf_width_error = 0.1};
