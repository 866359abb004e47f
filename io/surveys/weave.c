/* SPDX-License-Identifier: BSD-3-Clause */
/* WEAVE L1: row-stacked spectra of single exposures and of stacks, MOS and IFU alike;
 * docs/use/input.md has the rules.
 *
 * flux = DATA SENSFUNC and ivar = IVAR / SENSFUNC^2; where SENSFUNC is no positive number the flux
 * is left as DATA has it and ivar is 0. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "io/surveys/single_spectrum.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"

enum { N_ARM = 3, N_IMAGE = 3, MAX_NAME = 32 };

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
  int64_t n_spec, i_row; /* rows; the one being read */
  int n_arm;
  arm arm[N_ARM];
} weave;

static void name_image(char name[MAX_NAME], int i_arm, int i_image)
{
  snprintf(name, MAX_NAME, "%s_%s", arm_name[i_arm], image_name[i_image]);
}

static int recognise(const mill_fits_guard *guard)
{
  char name[MAX_NAME];
  if (mill_single_find_table(guard, "FIBTABLE") < 0)
    return 0;
  for (int i = 0; i < guard->n_hdu; i++)
    for (int k = 0; k < N_ARM; k++) {
      name_image(name, k, DATA);
      if (strcmp(guard->hdu[i].name, name) == 0)
        return 1;
    }
  return 0;
}

/* ---- structure -------------------------------------------------------- */

static int check_shapes(const weave *w, arm *a)
{
  const mill_fits_guard *guard = w->file->guard;
  const mill_fits_hdu *data = &guard->hdu[a->i_hdu[DATA]];
  if (data->kind != MILL_FITS_IMAGE || data->n_axis != 2 || data->axis[1] != w->n_spec)
    return MILL_ERROR_HDU(w->file, a->i_hdu[DATA],
                          " must be an image with a row for each of the %lld of FIBTABLE; give "
                          "row-stacked L1 spectra, not a cube",
                          (long long)w->n_spec);
  if (data->axis[0] < 2 || data->axis[0] > MILL_SINGLE_MAX_PIX)
    return MILL_ERROR_HDU(w->file, a->i_hdu[DATA], " has %lld pixels a row, expected 2 to %d",
                          (long long)data->axis[0], MILL_SINGLE_MAX_PIX);
  a->n_pix = (int)data->axis[0];
  for (int i = 1; i < N_IMAGE; i++) {
    const mill_fits_hdu *hdu = &guard->hdu[a->i_hdu[i]];
    const int is_row = i == SENSFUNC && hdu->n_axis == 1;
    if (hdu->kind != MILL_FITS_IMAGE || hdu->axis[0] != a->n_pix ||
        (!is_row && (hdu->n_axis != 2 || hdu->axis[1] != w->n_spec)))
      return MILL_ERROR_HDU(w->file, a->i_hdu[i],
                            " must have the %lld rows of %d pixels of %s; make the file again",
                            (long long)w->n_spec, a->n_pix, data->name);
    a->one_sensfunc |= is_row;
  }
  return MILL_OK;
}

static const mill_single_wcs wcs = {.start = "CRVAL1",
                                    .step = "CD1_1",
                                    .other_step = "CDELT1",
                                    .reference = "CRPIX1",
                                    .unit = "CUNIT1",
                                    .type = "CTYPE1",
                                    .default_unit = "Angstrom"};

/* Unknown when the arms differ. */
static int read_frame(weave *w, int *frame_of_all)
{
  for (int i = 0; i < w->n_arm; i++) {
    int frame;
    MILL_CHECK(mill_single_specsys(w->file, w->arm[i].i_hdu[DATA], &frame));
    *frame_of_all = i == 0 || *frame_of_all == frame ? frame : MILL_FRAME_UNKNOWN;
  }
  return MILL_OK;
}

/* ---- pixels ----------------------------------------------------------- */

static int is_calibrated(double sens)
{
  return isfinite(sens) && sens > 0.0;
}

static int read_row(weave *w, arm *a, int image, int64_t i_row)
{
  return mill_fits_image_row(w->file, a->i_hdu[image], i_row, a->n_pix, a->row[image]);
}

/* Is SENSFUNC in physical units?  The largest of the first fibre that has one answers for the
 * file. */
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
  a->scale = largest > 0.0 && largest < MILL_SINGLE_PHYSICAL ? MILL_SINGLE_SCALE : 1.0;
  return MILL_OK;
}

static int read_pixels(void *context, mill_channel *channel)
{
  weave *w = context;
  arm *a = &w->arm[channel->wave_token - 1];
  double *data = a->row[DATA], *ivar = a->row[IVAR];
  for (int i = 0; i < N_IMAGE; i++)
    MILL_CHECK(read_row(w, a, i, w->i_row));
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
  channel->flux = a->flux;
  channel->ivar = a->ivar;
  return MILL_OK;
}

static int read_exposures(void *state, mill_spectra *spectra, const int64_t *number, int n)
{
  weave *w = state;
  for (int i = 0; i < n; i++) {
    MILL_CHECK(mill_single_check_row(w->file, number[i], w->n_spec));
    w->i_row = number[i];
    for (int k = 0; k < w->n_arm; k++) {
      const arm *a = &w->arm[k];
      mill_channel channel = {
          .n_pix = a->n_pix, .wave_aa = a->wave_aa, .air = a->air, .wave_token = k + 1};
      memcpy(channel.name, a->channel, sizeof channel.name);
      MILL_CHECK(mill_spectra_give(spectra, i, &channel, read_pixels, w));
    }
  }
  return MILL_OK;
}

/* ---- opening ---------------------------------------------------------- */

/* The arm and its images; *there is 0 when the file has none of them. */
static int open_arm(weave *w, arm *a, int i_arm, int medium, int *there)
{
  char name[MAX_NAME];
  int n_there = 0;
  for (int i = 0; i < N_IMAGE; i++) {
    name_image(name, i_arm, i);
    MILL_CHECK(mill_fits_file_find(w->file, name, &a->i_hdu[i]));
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
          w->file->guard->path, arm_name[i_arm], image_name[i]);
  for (size_t k = 0; arm_name[i_arm][k]; k++)
    a->channel[k] = (char)tolower((unsigned char)arm_name[i_arm][k]);
  MILL_CHECK(check_shapes(w, a));
  MILL_CHECK(MILL_ALLOC(a->n_pix, &a->wave_aa));
  for (int i = 0; i < N_IMAGE; i++)
    MILL_CHECK(MILL_ALLOC(a->n_pix, &a->row[i]));
  MILL_CHECK(MILL_ALLOC(a->n_pix, &a->flux));
  MILL_CHECK(MILL_ALLOC(a->n_pix, &a->ivar));
  MILL_CHECK(mill_single_linear_wave(w->file, a->i_hdu[DATA], &wcs, medium, a->n_pix, a->wave_aa,
                                     &a->air));
  return choose_scale(w, a);
}

static void close_file(void *state)
{
  weave *w = state;
  for (int i = 0; i < N_ARM; i++) {
    arm *a = &w->arm[i];
    MILL_FREE(a->wave_aa, a->row[DATA], a->row[IVAR], a->row[SENSFUNC], a->flux, a->ivar);
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
                      "stack_...), not a cube",
                      file->guard->path);
  w->n_spec = file->guard->hdu[w->i_table].axis[1];
  for (int i = 0; i < N_ARM; i++) {
    int there;
    MILL_CHECK(open_arm(w, &w->arm[w->n_arm], i, settings->config->medium, &there));
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

/* Columns of FIBTABLE.  Without STATUS and TARGUSE it is not known which fibres saw a target;
 * TARGCAT, the last, is read when rows are selected by it. */
enum { NAME, STATUS, USE, FIBER, RA, DEC, CATEGORY, N_WISH };
static const mill_fits_wish wish[N_WISH] = {
    [NAME] = MILL_WISH("CNAME", TEXT, 0, 1),
    [STATUS] = MILL_WISH("STATUS", TEXT, 0, 1),
    [USE] = MILL_WISH("TARGUSE", TEXT, 0, 1),
    [FIBER] = MILL_ROW_WISH("FIBREID", INT32, fiber, -1, 0),
    [RA] = MILL_ROW_WISH("TARGRA", DOUBLE, target_ra, NAN, 0),
    [DEC] = MILL_ROW_WISH("TARGDEC", DOUBLE, target_dec, NAN, 0),
    [CATEGORY] = MILL_WISH("TARGCAT", TEXT, 0, 1)};

/* Target type of the fibre in the words of the selection: SKY, BAD, or TARGUSE itself.  STATUS A is
 * a fibre that is on its target; others are parked, disabled or lost. */
static const char *objtype_of(const mill_fits_values *v, int64_t i)
{
  const char *use = mill_fits_text_at(&v[USE], i);
  if (strcasecmp(mill_fits_text_at(&v[STATUS], i), "A") != 0)
    return "BAD";
  return strcasecmp(use, "S") == 0 ? "SKY" : use;
}

static int index_file(void *state, const mill_selection *select, mill_file_index *index)
{
  int err = MILL_OK;
  weave *w = state;
  mill_fits_values values[N_WISH] = {0};
  const int by_class = select->n_target_class > 0;
  const mill_fibres fibres = {w->file,   w->i_table,          wish, N_WISH,    values,
                              w->n_spec, by_class * CATEGORY, 0,    objtype_of};
  MILL_TRY(mill_fits_columns(w->file, w->i_table, wish, N_WISH - !by_class, values));
  MILL_TRY(mill_fibres_index(&fibres, select, index));
done:
  mill_fits_values_free(N_WISH, values);
  return err;
}

const mill_format mill_format_weave = {
    .name = "weave",
    .description = "WEAVE L1 spectra, row-stacked, of one exposure or a stack",
    .recognise = recognise,
    .open = open_file,
    .close = close_file,
    .index = index_file,
    .read = read_exposures,
    .selects = MILL_SELECTS_CLASSES};
