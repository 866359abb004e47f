/* SPDX-License-Identifier: BSD-3-Clause */
/* 4MOST: L1 container files, with one row per fibre, and files of one spectrum; docs/use/input.md
 * has the rules and assumptions. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "io/surveys/selection.h"
#include "io/surveys/cameras.h"

/* Wavelengths in A.  A step above GAP separates two cameras.  A range wider than WIDEST is a joined
 * spectrum.  A camera is blue if it begins below BLUE, else green if below GREEN, else red. */
static const double GAP = 50.0, WIDEST = 3000.0, BLUE = 4600.0, GREEN = 5800.0;

enum { MAX_CAMERA = 3 };

typedef struct fourmost {
  mill_cameras cameras;    /* the first camera holds all pixels until divide() */
  int i_spectra, i_target; /* HDUs of spectra and targets; i_target -1: single spectrum */
} fourmost;

static int find_single(const mill_fits_guard *guard)
{
  const int i_phase3 = mill_single_find_table(guard, "PHASE3SPECTRUM");
  return i_phase3 >= 0 ? i_phase3 : mill_single_find_table(guard, "SPECTRUM");
}

/* Is it 4MOST?  A single spectrum must say so: other ESO spectra have the same layout. */
static int recognise(const mill_fits_guard *guard)
{
  return (mill_single_find_table(guard, "SPECTAB") >= 0 &&
          mill_single_find_table(guard, "FIBMETATAB") >= 0) ||
         (find_single(guard) >= 0 && (mill_single_says(guard, "INSTRUME= 'QMOST") ||
                                      mill_single_says(guard, "INSTRUME= '4MOST")));
}

/* ---- structure -------------------------------------------------------- */

/* Find SPECTAB and FIBMETATAB or, in a file of one spectrum (i_target -1), its table. */
static int find_tables(fourmost *f)
{
  mill_fits_file *file = f->cameras.file;
  const mill_fits_guard *guard = file->guard;
  MILL_CHECK(mill_fits_file_find(file, "FIBMETATAB", &f->i_target));
  MILL_CHECK(mill_fits_file_find(file, "SPECTAB", &f->i_spectra));
  if ((f->i_spectra >= 0) != (f->i_target >= 0))
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: has no table %s (SPECTAB and FIBMETATAB are needed); fetch it again",
                      guard->path, f->i_target < 0 ? "FIBMETATAB" : "SPECTAB");
  if (f->i_spectra < 0)
    f->i_spectra = find_single(guard);
  if (f->i_spectra < 0)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: has neither tables SPECTAB and FIBMETATAB nor a table PHASE3SPECTRUM; "
                      "give 4MOST L1 spectra (a container or a single file), not a catalogue",
                      guard->path);
  f->cameras.n_row = guard->hdu[f->i_spectra].axis[1];
  const int64_t wanted = f->i_target < 0 ? 1 : guard->hdu[f->i_target].axis[1];
  if (f->cameras.n_row != wanted)
    return MILL_ERROR_HDU(file, f->i_spectra, " has %lld rows, expected %lld: %s",
                          (long long)f->cameras.n_row, (long long)wanted,
                          f->i_target < 0 ? "a file of one spectrum" : "one per row of FIBMETATAB");
  return MILL_OK;
}

/* Find columns of flux, error and mask.  A single spectrum has wavelengths, and may lack QUAL. */
static int find_vectors(fourmost *f, mill_camera *all)
{
  mill_fits_column c;
  int has_ivar, has_error, has_mask;
  mill_fits_file *file = f->cameras.file;
  MILL_CHECK(mill_fits_column_find(file, f->i_spectra, "FLUX_IVAR", &has_ivar, &c));
  MILL_CHECK(mill_fits_column_find(file, f->i_spectra, "ERR_FLUX", &has_error, &c));
  MILL_CHECK(mill_fits_column_find(file, f->i_spectra, "QUAL", &has_mask, &c));
  if (!has_ivar && !has_error)
    return MILL_ERROR_HDU(file, f->i_spectra,
                          " has neither of the columns FLUX_IVAR and ERR_FLUX; fetch it again");
  all->noise = has_ivar ? MILL_NOISE_IVAR : MILL_NOISE_ERROR;
  const char *const name[MILL_N_PLANE] = {[MILL_FLUX] = "FLUX",
                                          [MILL_WAVE] = f->i_target < 0 ? "WAVE" : NULL,
                                          [MILL_IVAR] = has_ivar ? "FLUX_IVAR" : "ERR_FLUX",
                                          [MILL_MASK] =
                                              f->i_target < 0 && !has_mask ? NULL : "QUAL"};
  return mill_camera_columns(&f->cameras, all, 0, name);
}

/* Wavelengths of a container, from the keywords of column FLUX. */
static int read_linear_wave(fourmost *f, mill_camera *all, int medium)
{
  char key[5][FLEN_KEYWORD];
  static const char *const stem[] = {"CRVL", "CDLT", "CRPX", "CUNI", "CTYP"};
  for (int i = 0; i < 5; i++)
    snprintf(key[i], sizeof key[i], "1%s%d", stem[i], all->plane[MILL_FLUX].number);
  const mill_single_wcs wcs = {key[0], key[1], NULL, key[2], key[3], key[4], "", 0};
  return mill_single_linear_wave(f->cameras.file, f->i_spectra, &wcs, medium, all->n_pix,
                                 all->wave_aa, &all->air);
}

/* Read a single spectrum's wavelengths.  The UCD of their column says air (obs.atmos) or vacuum. */
static int read_wave_column(fourmost *f, mill_camera *all, int medium)
{
  char key[FLEN_KEYWORD], ucd[FLEN_VALUE] = "";
  double to_aa = 1.0;
  mill_fits_file *file = f->cameras.file;
  const int number = all->plane[MILL_WAVE].number;
  snprintf(key, sizeof key, "TUNIT%d", number);
  MILL_CHECK(mill_single_key_unit(file, f->i_spectra, key, "", &to_aa));
  snprintf(key, sizeof key, "TUCD%d", number);
  MILL_CHECK(mill_single_key_text(file, f->i_spectra, key, ucd, sizeof ucd, NULL));
  all->air = strstr(ucd, "obs.atmos") != NULL;
  if (!all->air && strncasecmp(ucd, "em.wl", 5) != 0 && medium == MILL_MEDIUM_AUTO)
    return MILL_ERROR_HDU(
        file, f->i_spectra,
        ": %s '%s' says neither air (em.wl;obs.atmos) nor vacuum (em.wl); set medium", key, ucd);
  MILL_CHECK(mill_camera_plane(&f->cameras, all, MILL_WAVE, all->wave_aa));
  for (int i = 0; i < all->n_pix; i++)
    all->wave_aa[i] *= to_aa;
  return mill_single_check_wave(file, f->i_spectra, "column WAVE", all->n_pix, all->wave_aa);
}

static const char *channel_of(double first_aa, double last_aa)
{
  if (last_aa - first_aa > WIDEST)
    return "joined";
  return first_aa < BLUE ? "blue" : first_aa < GREEN ? "green" : "red";
}

/* Split the first camera at gaps in its wavelengths: it keeps the first part, others are added. */
static int divide(mill_cameras *c)
{
  const mill_camera all = c->camera[0]; /* as it was before */
  for (int i = 0, end; i < all.n_pix; i = end) {
    mill_camera *camera = &c->camera[0]; /* for the first part; its wave_aa stays */
    for (end = i + 1; end < all.n_pix && all.wave_aa[end] - all.wave_aa[end - 1] <= GAP;)
      end++;
    if (i > 0 && c->n_camera == MAX_CAMERA)
      return MILL_ERROR_HDU(c->file, all.i_hdu,
                            ": wavelengths have more than two gaps above %g A, but 4MOST has three "
                            "cameras; make the file again",
                            GAP);
    if (i > 0) {
      MILL_CHECK(mill_camera_add(c, "", all.i_hdu, &camera));
      *camera = all;
      camera->wave_aa = NULL;
      MILL_CHECK(MILL_ALLOC(end - i, &camera->wave_aa));
      memcpy(camera->wave_aa, all.wave_aa + i, (size_t)(end - i) * sizeof *all.wave_aa);
    }
    snprintf(camera->name, sizeof camera->name, "%s",
             channel_of(all.wave_aa[i], all.wave_aa[end - 1]));
    camera->first = i;
    camera->n_pix = end - i;
  }
  return MILL_OK;
}

/* Take all pixels as one camera, and divide it into cameras at gaps in wavelength. */
static int open_file(void *state, const mill_spectra_settings *settings, int *frame)
{
  fourmost *f = state;
  mill_camera *all;
  const int medium = settings->config->medium;
  MILL_CHECK(find_tables(f));
  MILL_CHECK(mill_camera_add(&f->cameras, "", f->i_spectra, &all));
  MILL_CHECK(find_vectors(f, all));
  MILL_CHECK(MILL_ALLOC(all->n_pix, &all->wave_aa));
  MILL_CHECK(f->i_target < 0 ? read_wave_column(f, all, medium) : read_linear_wave(f, all, medium));
  MILL_CHECK(mill_camera_scale(&f->cameras, all));
  MILL_CHECK(divide(&f->cameras));
  return mill_single_specsys(f->cameras.file, f->i_spectra, frame);
}

/* ---- index ------------------------------------------------------------ */

/* Columns of FIBMETATAB, or keywords of a single spectrum. */
enum { NAME, STATUS, USE, SN, UID, FIBER, RA, DEC, N_WISH };
static const mill_fits_wish wish[N_WISH] = {
    [NAME] = {"OBJ_NME", MILL_AS_TEXT, 0, 1, 0, 0, {"TRG_NME", "CNAME"}},
    [STATUS] = MILL_WISH("FIB_ST", INT32, -1, 1),
    [USE] = MILL_WISH("FIB_USE", INT32, -1, 1),
    [SN] = MILL_WISH("SNR", DOUBLE, NAN, 0),
    [UID] = {"OBJ_UID", MILL_AS_INT64, -1, 0, MILL_ROW_AT(target_id), {"TRG_UID", NULL}},
    [FIBER] = MILL_ROW_WISH("FIB_ID", INT32, fiber, -1, 0),
    [RA] = {"OBJ_RA", MILL_AS_DOUBLE, NAN, 0, MILL_ROW_AT(target_ra), {"TRG_RA", "RA"}},
    [DEC] = {"OBJ_DEC", MILL_AS_DOUBLE, NAN, 0, MILL_ROW_AT(target_dec), {"TRG_DEC", "DEC"}}};

/* Return a fibre's target type: by FIB_USE if the fibre is on its target (FIB_ST 2), else BAD.
 * Fibres for calibration and guiding are BAD too.  A spectrum without the keywords is OBJ. */
static const char *objtype_of(const mill_fits_values *v, int64_t i)
{
  static const char *const name[] = {"BAD", "OBJ", "REF", "SKY"};
  const int32_t use = v[USE].there ? v[USE].i32[i] : 1;
  const int on_target = !v[STATUS].there || v[STATUS].i32[i] == 2;
  return on_target && use >= 1 && use <= 3 ? name[use] : "BAD";
}

static const mill_fibres fibres = {wish, N_WISH, 0, SN, objtype_of};

/* Read the time of all spectra into *mjd: MJD-OBS of their table's header, else of the container's
 * observing blocks.  If these differ, it is NaN, as no column names a fibre's block. */
static int read_time(const fourmost *f, double *mjd)
{
  static const mill_fits_wish time = MILL_WISH("MJD-OBS", DOUBLE, NAN, 0);
  mill_fits_file *file = f->cameras.file;
  const int i_blocks = mill_single_find_table(file->guard, "OBMETATAB");
  int found;
  MILL_FITS_VALUES(v, 1);
  MILL_CHECK(mill_single_key_double(file, f->i_spectra, "MJD-OBS", mjd, &found));
  if (found || i_blocks < 0)
    return MILL_OK;
  MILL_CHECK(mill_fits_columns(file, i_blocks, &time, 1, v));
  for (int64_t i = 0; i < file->guard->hdu[i_blocks].axis[1]; i++) /* 1e-4 days; NaN stays NaN */
    *mjd = i == 0 || fabs(*mjd - v->f64[i]) < 1e-4 ? v->f64[i] : (double)NAN;
  return MILL_OK;
}

static int index_file(void *state, const mill_selection *select, mill_file_index *index)
{
  fourmost *f = state;
  double mjd = NAN;
  MILL_FITS_VALUES(values, N_WISH);
  mill_fits_file *file = f->cameras.file;
  const int is_single = f->i_target < 0, header[] = {f->i_spectra, 0}; /* HDUs of keywords */
  const int i_hdu = is_single ? f->i_spectra : f->i_target;
  MILL_CHECK(is_single ? mill_single_keys(file, header, 2, NAN, wish, N_WISH, values)
                       : mill_fits_columns(file, i_hdu, wish, N_WISH, values));
  if (!values[SN].there && mill_selection_has_scores(select))
    return MILL_ERROR_HDU(file, i_hdu, " has no %s SNR, which minsn_from reads; leave this key out",
                          is_single ? "keyword" : "column");
  MILL_CHECK(read_time(f, &mjd));
  return mill_fibres_index(&fibres, file, values, f->cameras.n_row, mjd, select, index);
}

const mill_format mill_format_fourmost = {.name = "4most",
                                          .description =
                                              "4MOST L1 spectra, in containers or in single files",
                                          .recognise = recognise,
                                          .state_bytes = sizeof(fourmost),
                                          .open = open_file,
                                          .index = index_file,
                                          MILL_CAMERAS_FORMAT,
                                          .selects = MILL_SELECTS_SCORES};
