#include "io/surveys/weave.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "io/surveys/selection.h"
#include "io/surveys/single_spectrum.h"
#include "kernels/base/error.h"

enum { N_ARM = 3, N_IMAGE = 3 };

/* HDUs <ARM>_DATA, ..., in the order in which the arms become channels. */
static const char *const arm_name[N_ARM] = {"BLUE", "GREEN", "RED"};

enum { DATA, IVAR, SENSFUNC };
static const char *const image_name[N_IMAGE] = {"DATA", "IVAR", "SENSFUNC"};

/* One arm of the file. */
typedef struct arm {
  char channel[MILL_MAX_NAME];
  int i_hdu[N_IMAGE];
  int one_sensfunc; /* one row for all fibres */
  int n_pix, air;
  double scale;         /* of SENSFUNC */
  double *wave_aa;      /* [n_pix], owned */
  double *row[N_IMAGE]; /* [n_pix] one fibre, owned */
  float *flux, *ivar;   /* [n_pix], owned */
} arm;

typedef struct weave {
  mill_fits_file *file; /* borrowed */
  int i_table;
  int64_t n_spec;
  int n_arm;
  arm arm[N_ARM];
} weave;

/* ---- structure -------------------------------------------------------- */

static int recognise(const mill_fits_guard *guard)
{
  if (mill_single_find_table(guard, "FIBTABLE") < 0)
    return 0;
  for (int i = 0; i < guard->n_hdu; i++)
    for (int k = 0; k < N_ARM; k++) {
      char name[32];
      snprintf(name, sizeof name, "%s_%s", arm_name[k], image_name[DATA]);
      if (strcmp(guard->hdu[i].name, name) == 0)
        return 1;
    }
  return 0;
}

static int is_image_of(const mill_fits_hdu *hdu, int64_t n_pix, int64_t n_row)
{
  return hdu->n_axis == 2 && hdu->axis[0] == n_pix && hdu->axis[1] == n_row;
}

static int check_shapes(const weave *w, arm *a)
{
  const mill_fits_guard *guard = w->file->guard;
  const mill_fits_hdu *data = &guard->hdu[a->i_hdu[DATA]];
  if (data->kind != MILL_FITS_IMAGE || data->n_axis != 2 || data->axis[1] != w->n_spec)
    return MILL_ERROR_HDU(
        w->file, a->i_hdu[DATA],
        " must be an image with a row for each of the %lld of FIBTABLE; give row-stacked "
        "L1 spectra, no cube",
        (long long)w->n_spec);
  if (data->axis[0] < 2 || data->axis[0] > MILL_SINGLE_MAX_PIX)
    return MILL_ERROR_HDU(w->file, a->i_hdu[DATA], " has %lld pixels a row, expected 2 to %d",
                          (long long)data->axis[0], MILL_SINGLE_MAX_PIX);
  a->n_pix = (int)data->axis[0];
  for (int i = 1; i < N_IMAGE; i++) {
    const mill_fits_hdu *hdu = &guard->hdu[a->i_hdu[i]];
    const int is_row = i == SENSFUNC && hdu->n_axis == 1 && hdu->axis[0] == a->n_pix;
    if (hdu->kind != MILL_FITS_IMAGE || (!is_row && !is_image_of(hdu, a->n_pix, w->n_spec)))
      return MILL_ERROR_HDU(w->file, a->i_hdu[i],
                            " has not the %lld rows of %d pixels of %s; make the file again",
                            (long long)w->n_spec, a->n_pix, data->name);
    a->one_sensfunc |= is_row;
  }
  return MILL_OK;
}

/* ---- wavelengths ------------------------------------------------------ */

static int read_unit(weave *w, int i_hdu, double *to_aa)
{
  static const struct {
    const char *name;
    double to_aa;
  } unit[] = {{"Angstrom", 1.0}, {"Angstroms", 1.0}, {"nm", 10.0}, {"um", 1e4}, {"m", 1e10}};
  char text[FLEN_VALUE] = "Angstrom"; /* the unit of WEAVE's wavelengths */
  int found;
  MILL_CHECK(mill_single_key_text(w->file, i_hdu, "CUNIT1", text, sizeof text, &found));
  for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
    if (strcasecmp(text, unit[i].name) == 0) {
      *to_aa = unit[i].to_aa;
      return MILL_OK;
    }
  return MILL_ERROR_HDU(w->file, i_hdu,
                        ": CUNIT1 '%s' is no unit of wavelength known here (Angstrom, nm, um, m)",
                        text);
}

/* CTYPE1 says AWAV or WAVE; without it the configuration must say what the file does not. */
static int read_medium(weave *w, int i_hdu, int configured, int *air)
{
  char text[FLEN_VALUE] = "";
  int found;
  MILL_CHECK(mill_single_key_text(w->file, i_hdu, "CTYPE1", text, sizeof text, &found));
  *air = strcasecmp(text, "AWAV") == 0;
  if (*air || strcasecmp(text, "WAVE") == 0)
    return MILL_OK;
  if (strchr(text, '-'))
    return MILL_ERROR_HDU(w->file, i_hdu, ": CTYPE1 '%s' is no linear scale of wavelengths", text);
  if (configured == MILL_MEDIUM_AUTO)
    return MILL_ERROR_HDU(w->file, i_hdu,
                          ": CTYPE1 '%s' says neither air (AWAV) nor vacuum (WAVE); set medium",
                          text);
  return MILL_OK;
}

static int need_key(weave *w, int i_hdu, const char *key, const char *other, double *out)
{
  int found;
  MILL_CHECK(mill_single_key_double(w->file, i_hdu, key, out, &found));
  if (!found && other)
    MILL_CHECK(mill_single_key_double(w->file, i_hdu, other, out, &found));
  if (!found)
    return MILL_ERROR_HDU(w->file, i_hdu, " has no %s%s%s, so its wavelengths are not known", key,
                          other ? " or " : "", other ? other : "");
  return MILL_OK;
}

static int read_wavelengths(weave *w, arm *a, int medium)
{
  const int i_hdu = a->i_hdu[DATA];
  double start = 0.0, step = 0.0, to_aa = 1.0, reference = 1.0; /* the FITS standard's CRPIX */
  int found;
  MILL_CHECK(need_key(w, i_hdu, "CRVAL1", NULL, &start));
  MILL_CHECK(need_key(w, i_hdu, "CD1_1", "CDELT1", &step));
  MILL_CHECK(mill_single_key_double(w->file, i_hdu, "CRPIX1", &reference, &found));
  MILL_CHECK(read_unit(w, i_hdu, &to_aa));
  MILL_CHECK(read_medium(w, i_hdu, medium, &a->air));
  for (int i = 0; i < a->n_pix; i++)
    a->wave_aa[i] = (start + ((double)(i + 1) - reference) * step) * to_aa;
  return mill_single_check_wave(w->file, i_hdu, "CRVAL1, CRPIX1 and CD1_1", a->n_pix, a->wave_aa);
}

/* SPECSYS of the arms or of the primary header; unknown when there is none or they differ. */
static int read_frame(weave *w, int *frame_of_all)
{
  static const struct {
    const char *name;
    int frame;
  } known[] = {{"BARYCENT", MILL_FRAME_BARYCENTRIC},
               {"HELIOCEN", MILL_FRAME_HELIOCENTRIC},
               {"TOPOCENT", MILL_FRAME_TOPOCENTRIC}};
  for (int i = 0; i < w->n_arm; i++) {
    char text[FLEN_VALUE] = "";
    int found, frame = MILL_FRAME_UNKNOWN;
    MILL_CHECK(
        mill_single_key_text(w->file, w->arm[i].i_hdu[DATA], "SPECSYS", text, sizeof text, &found));
    if (!found)
      MILL_CHECK(mill_single_key_text(w->file, 0, "SPECSYS", text, sizeof text, &found));
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
      if (strncasecmp(text, known[k].name, strlen(known[k].name)) == 0)
        frame = known[k].frame;
    *frame_of_all = i == 0 || *frame_of_all == frame ? frame : MILL_FRAME_UNKNOWN;
  }
  return MILL_OK;
}

/* ---- pixels ----------------------------------------------------------- */

static int read_row(weave *w, arm *a, int image, int64_t i_row)
{
  int status = 0, any_null;
  double nan_value = NAN;
  const int i_hdu = a->i_hdu[image];
  const mill_fits_hdu *hdu = &w->file->guard->hdu[i_hdu];
  long first[2] = {1, hdu->n_axis == 2 ? (long)i_row + 1 : 1};
  MILL_CHECK(mill_fits_file_move(w->file, i_hdu));
  /* integers and compressed floats have a sign of their own for "no value" */
  const int fill = hdu->compressed || hdu->bitpix > 0;
  fits_read_pix(w->file->fptr, TDOUBLE, first, a->n_pix, fill ? &nan_value : NULL, a->row[image],
                &any_null, &status);
  MILL_CHECK_FITS(w->file, i_hdu, status, "row %lld cannot be read", (long long)i_row);
  return MILL_OK;
}

static int is_calibrated(double sens)
{
  return isfinite(sens) && sens > 0.0;
}

/* Is SENSFUNC in physical units?  The first fibre that has one answers for the file. */
static int choose_scale(weave *w, arm *a)
{
  const int64_t n_row = a->one_sensfunc ? 1 : w->n_spec;
  double largest = 0.0;
  for (int64_t i = 0; i < n_row && largest == 0.0; i++) {
    MILL_CHECK(read_row(w, a, SENSFUNC, i));
    for (int k = 0; k < a->n_pix; k++)
      if (is_calibrated(a->row[SENSFUNC][k]))
        largest = fmax(largest, a->row[SENSFUNC][k]);
  }
  a->scale = largest > 0.0 && largest < MILL_WEAVE_PHYSICAL ? MILL_WEAVE_SCALE : 1.0;
  return MILL_OK;
}

static int read_pixels(weave *w, arm *a, int64_t i_row)
{
  double *data = a->row[DATA], *ivar = a->row[IVAR];
  for (int i = 0; i < N_IMAGE; i++)
    MILL_CHECK(read_row(w, a, i, i_row));
  for (int i = 0; i < a->n_pix; i++) {
    const double sens = a->row[SENSFUNC][i];
    if (is_calibrated(sens)) {
      data[i] *= sens * a->scale;
      ivar[i] /= (sens * a->scale) * (sens * a->scale);
    } else {
      ivar[i] = 0.0;
    }
  }
  mill_single_narrow(data, a->n_pix, a->flux);
  mill_single_narrow(ivar, a->n_pix, a->ivar);
  return MILL_OK;
}

static int read_exposures(void *state, mill_spectra *spectra, const int64_t *number, int n)
{
  weave *w = state;
  for (int i = 0; i < n; i++) {
    if (number[i] < 0 || number[i] >= w->n_spec)
      return MILL_ERROR(MILL_ERR_RANGE, "%s: row %lld is not among its %lld", w->file->guard->path,
                        (long long)number[i], (long long)w->n_spec);
    for (int k = 0; k < w->n_arm; k++) {
      arm *a = &w->arm[k];
      mill_channel channel = {
          .n_pix = a->n_pix, .wave_aa = a->wave_aa, .air = a->air, .wave_token = k + 1};
      int wants;
      memcpy(channel.name, a->channel, sizeof channel.name);
      MILL_CHECK(mill_spectra_wants(spectra, &channel, &wants));
      if (wants & MILL_WANTS_PIXELS) {
        MILL_CHECK(read_pixels(w, a, number[i]));
        channel.flux = a->flux;
        channel.ivar = a->ivar;
      }
      MILL_CHECK(mill_spectra_add(spectra, i, &channel));
    }
  }
  return MILL_OK;
}

/* ---- opening ---------------------------------------------------------- */

/* The arm and its images; *there is 0 when the file has none of them. */
static int open_arm(weave *w, arm *a, const char *name, int medium, int *there)
{
  int n_there = 0;
  for (int i = 0; i < N_IMAGE; i++) {
    char hdu[32];
    snprintf(hdu, sizeof hdu, "%s_%s", name, image_name[i]);
    MILL_CHECK(mill_fits_file_find(w->file, hdu, &a->i_hdu[i]));
    n_there += a->i_hdu[i] >= 0;
  }
  *there = n_there > 0;
  if (n_there == 0)
    return MILL_OK;
  for (int i = 0; i < N_IMAGE; i++)
    if (a->i_hdu[i] < 0)
      return MILL_ERROR(
          MILL_ERR_INPUT,
          "%s: has no HDU %s_%s though it has others of this arm; make the file again, or "
          "fetch it again if it is cut",
          w->file->guard->path, name, image_name[i]);
  for (size_t k = 0; name[k]; k++)
    a->channel[k] = (char)tolower((unsigned char)name[k]);
  MILL_CHECK(check_shapes(w, a));
  MILL_CHECK(MILL_ALLOC(a->n_pix, &a->wave_aa));
  for (int i = 0; i < N_IMAGE; i++)
    MILL_CHECK(MILL_ALLOC(a->n_pix, &a->row[i]));
  MILL_CHECK(MILL_ALLOC(a->n_pix, &a->flux));
  MILL_CHECK(MILL_ALLOC(a->n_pix, &a->ivar));
  MILL_CHECK(read_wavelengths(w, a, medium));
  return choose_scale(w, a);
}

static void close_file(void *state)
{
  weave *w = state;
  for (int i = 0; i < N_ARM; i++) {
    mill_free(w->arm[i].wave_aa);
    for (int k = 0; k < N_IMAGE; k++)
      mill_free(w->arm[i].row[k]);
    mill_free(w->arm[i].flux);
    mill_free(w->arm[i].ivar);
  }
  mill_free(w);
}

static int open_file(mill_fits_file *file, const mill_spectra_settings *settings, int *frame,
                     void **state)
{
  weave *w = NULL;
  MILL_CHECK(MILL_ALLOC(1, &w));
  *state = w;
  w->file = file;
  MILL_CHECK(mill_fits_file_find(file, "FIBTABLE", &w->i_table));
  if (w->i_table < 0 || file->guard->hdu[w->i_table].kind != MILL_FITS_TABLE)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: has no table FIBTABLE; give row-stacked WEAVE L1 spectra (single_... or "
                      "stack_...), no cube",
                      file->guard->path);
  w->n_spec = file->guard->hdu[w->i_table].axis[1];
  for (int i = 0; i < N_ARM; i++) {
    int there;
    MILL_CHECK(open_arm(w, &w->arm[w->n_arm], arm_name[i], settings->config->medium, &there));
    w->n_arm += there;
  }
  if (w->n_arm == 0)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%s: has no images BLUE_DATA, GREEN_DATA or RED_DATA; give row-stacked WEAVE L1 "
        "spectra, or fetch the file again if it is one (it is cut)",
        file->guard->path);
  return read_frame(w, frame);
}

/* ---- index ------------------------------------------------------------ */

/* Columns of FIBTABLE, one value a fibre. */
typedef struct fibtable {
  int32_t *fiber;
  double *ra, *dec;
  char *name, *status, *use, *category; /* category: TARGCAT, NULL: not asked for */
  size_t name_stride, status_stride, use_stride, category_stride;
} fibtable;

static void clear_fibtable(fibtable *t)
{
  MILL_FREE(t->fiber, t->ra, t->dec, t->name, t->status, t->use, t->category);
}

static int read_fibtable(weave *w, const mill_selection *select, fibtable *t)
{
  int found;
  MILL_CHECK(mill_fits_table_int32(w->file, w->i_table, "FIBREID", -1, &t->fiber, &found));
  MILL_CHECK(mill_fits_table_double(w->file, w->i_table, "TARGRA", NAN, &t->ra, &found));
  MILL_CHECK(mill_fits_table_double(w->file, w->i_table, "TARGDEC", NAN, &t->dec, &found));
  MILL_CHECK(mill_fits_column_text(w->file, w->i_table, "CNAME", &t->name, &t->name_stride, NULL));
  /* without these two it is not known which fibres saw a target */
  MILL_CHECK(
      mill_fits_column_text(w->file, w->i_table, "STATUS", &t->status, &t->status_stride, NULL));
  MILL_CHECK(mill_fits_column_text(w->file, w->i_table, "TARGUSE", &t->use, &t->use_stride, NULL));
  if (select->n_target_class > 0)
    MILL_CHECK(mill_fits_column_text(w->file, w->i_table, "TARGCAT", &t->category,
                                     &t->category_stride, NULL));
  return MILL_OK;
}

/* What the fibre looked at in the words of the selection: SKY, BAD, or TARGUSE itself.
 * STATUS A is a fibre that is on its target; others are parked, disabled or lost. */
static const char *objtype_of(const char *status, const char *use)
{
  if (strcasecmp(status, "A") != 0)
    return "BAD";
  return strcasecmp(use, "S") == 0 ? "SKY" : use;
}

static int index_file(void *state, const mill_selection *select, mill_file_index *index)
{
  int err = MILL_OK;
  weave *w = state;
  fibtable t = {0};
  mill_class_patterns *patterns = NULL;
  MILL_TRY(mill_class_patterns_make(select, &patterns));
  MILL_TRY(read_fibtable(w, select, &t));
  MILL_TRY(mill_file_index_alloc(index, w->n_spec, w->n_spec));
  for (int64_t i = 0; i < w->n_spec; i++) {
    mill_catalog_row *row = &index->row[index->n_row];
    const char *name = t.name + (size_t)i * t.name_stride;
    const char *objtype =
        objtype_of(t.status + (size_t)i * t.status_stride, t.use + (size_t)i * t.use_stride);
    mill_catalog_row_init(row);
    if (!mill_selection_keeps_target(select, row->target_id) ||
        !mill_selection_keeps_objtype(select, objtype) ||
        !mill_selection_keeps_star(
            select,
            t.category && mill_class_matches(patterns, t.category + (size_t)i * t.category_stride),
            row->z, row->spectype))
      continue;
    if (strlen(name) >= sizeof row->object)
      MILL_TRY(MILL_ERROR_HDU(
          w->file, w->i_table,
          ": CNAME '%s' of row %lld is longer than %zu characters; make the file again", name,
          (long long)i, sizeof row->object - 1));
    snprintf(row->object, sizeof row->object, "%s", name);
    row->target_ra = t.ra[i];
    row->target_dec = t.dec[i];
    row->fiber = t.fiber[i];
    row->fits_row = i;
    row->n_exposure = 1;
    row->first_exposure = index->n_exposure;
    mill_file_index_add(index, i, -1);
    index->n_row++;
  }
  index->n_fits_row = w->n_spec;
done:
  clear_fibtable(&t);
  mill_class_patterns_free(patterns);
  return err;
}

const mill_format mill_format_weave = {
    "weave",        "WEAVE L1 spectra, row-stacked, of one exposure or a stack",
    recognise,      open_file,
    close_file,     index_file,
    read_exposures, MILL_SELECTS_CLASSES};
