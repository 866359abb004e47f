/* SPDX-License-Identifier: BSD-3-Clause */
/* WEAVE L1: row-stacked spectra of single exposures and of stacks, of MOS and IFU;
   docs/use/input.md has the rules.

   flux = DATA * SENSFUNC and ivar = IVAR / SENSFUNC^2.  If SENSFUNC is not positive, the pixel is
   bad: flux = DATA and ivar = 0. */
#include <string.h>
#include <strings.h>

#include "io/surveys/cameras.h"

enum { N_ARM = 3, N_IMAGE = 3 };

/* channels, and HDUs of each */
static const char *const arm_name[N_ARM] = {"blue", "green", "red"};
enum { DATA, IVAR, SENSFUNC };
static const char *const image_name[N_ARM][N_IMAGE] = {
    {"BLUE_DATA", "BLUE_IVAR", "BLUE_SENSFUNC"},
    {"GREEN_DATA", "GREEN_IVAR", "GREEN_SENSFUNC"},
    {"RED_DATA", "RED_IVAR", "RED_SENSFUNC"}};
static const enum mill_plane_of plane_of[N_IMAGE] = {MILL_FLUX, MILL_IVAR, MILL_SENS};

typedef struct weave {
  mill_cameras cameras;
  int i_table;
} weave;

static int recognise(const mill_fits_guard *guard)
{
  if (mill_single_find_table(guard, "FIBTABLE") < 0)
    return 0;
  for (int i = 0; i < guard->n_hdu; i++)
    for (int k = 0; k < N_ARM; k++)
      if (strcmp(guard->hdu[i].name, image_name[k][DATA]) == 0)
        return 1;
  return 0;
}

/* ---- structure -------------------------------------------------------- */

/* Check the images i_hdu [N_IMAGE] of an arm, and use them as planes. */
static int take_images(const mill_cameras *c, const int *i_hdu, mill_camera *camera)
{
  const mill_fits_guard *guard = c->file->guard;
  const mill_fits_hdu *data = &guard->hdu[i_hdu[DATA]];
  if (data->kind != MILL_FITS_IMAGE || data->n_axis != 2 || data->axis[1] != c->n_row)
    return MILL_ERROR_HDU(c->file, i_hdu[DATA],
                          " must be an image with %lld rows, as many as FIBTABLE; give row-stacked "
                          "L1 spectra, not a cube",
                          (long long)c->n_row);
  if (data->axis[0] < 2 || data->axis[0] > MILL_SINGLE_MAX_PIX)
    return MILL_ERROR_HDU(c->file, i_hdu[DATA], " has %lld pixels a row, expected 2 to %d",
                          (long long)data->axis[0], MILL_SINGLE_MAX_PIX);
  camera->n_pix = (int)data->axis[0];
  for (int i = 0; i < N_IMAGE; i++) {
    const mill_fits_hdu *hdu = &guard->hdu[i_hdu[i]];
    const int is_row = i == SENSFUNC && hdu->n_axis == 1; /* a single row for all fibres */
    if (hdu->kind != MILL_FITS_IMAGE || hdu->axis[0] != camera->n_pix ||
        (!is_row && (hdu->n_axis != 2 || hdu->axis[1] != c->n_row)))
      return MILL_ERROR_HDU(c->file, i_hdu[i],
                            " must have %lld rows of %d pixels, as %s has; make the file again",
                            (long long)c->n_row, camera->n_pix, data->name);
    camera->plane[plane_of[i]] =
        (mill_plane){.name = hdu->name, .i_hdu = i_hdu[i], .row = is_row ? 0 : -1};
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

/* Open an arm if the file has any of its images.  *frame: the arms' frame so far, or unknown. */
static int open_arm(mill_cameras *c, int i_arm, int medium, int *frame)
{
  int n_there = 0, i_hdu[N_IMAGE], own_frame;
  mill_camera *camera;
  for (int i = 0; i < N_IMAGE; i++) {
    MILL_CHECK(mill_fits_file_find(c->file, image_name[i_arm][i], &i_hdu[i]));
    n_there += i_hdu[i] >= 0;
  }
  if (n_there == 0)
    return MILL_OK;
  for (int i = 0; i < N_IMAGE; i++)
    if (i_hdu[i] < 0)
      return MILL_ERROR(MILL_ERR_INPUT,
                        "%s: has no HDU %s though it has others of this arm; make the file "
                        "again, or fetch it again if it is truncated",
                        c->file->guard->path, image_name[i_arm][i]);
  MILL_CHECK(mill_camera_add(c, arm_name[i_arm], i_hdu[DATA], &camera));
  MILL_CHECK(take_images(c, i_hdu, camera));
  MILL_CHECK(MILL_ALLOC(camera->n_pix, &camera->wave_aa));
  MILL_CHECK(mill_single_linear_wave(c->file, i_hdu[DATA], &wcs, medium, camera->n_pix,
                                     camera->wave_aa, &camera->air));
  MILL_CHECK(mill_single_specsys(c->file, i_hdu[DATA], &own_frame));
  MILL_CHECK(mill_single_add_frame(c->file, i_hdu[DATA], c->n_camera == 1, own_frame, frame));
  return mill_camera_scale(c, camera);
}

static int open_file(void *state, const mill_spectra_settings *settings, int *frame)
{
  weave *w = state;
  const mill_fits_file *file = w->cameras.file;
  MILL_CHECK(mill_fits_file_find(file, "FIBTABLE", &w->i_table));
  if (w->i_table < 0 || file->guard->hdu[w->i_table].kind != MILL_FITS_TABLE)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: has no table FIBTABLE; give row-stacked WEAVE L1 spectra (single_... or "
                      "stack_...), not a cube",
                      file->guard->path);
  w->cameras.n_row = file->guard->hdu[w->i_table].axis[1];
  for (int i = 0; i < N_ARM; i++)
    MILL_CHECK(open_arm(&w->cameras, i, settings->config->medium, frame));
  if (w->cameras.n_camera == 0)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: has no images BLUE_DATA, GREEN_DATA or RED_DATA; give row-stacked WEAVE "
                      "L1 spectra, or fetch the file again if it is truncated",
                      file->guard->path);
  return MILL_OK;
}

/* ---- index ------------------------------------------------------------ */

/* Columns of FIBTABLE.  TARGCAT is the last, since it is read only if rows are selected by it. */
enum { NAME, STATUS, USE, NSPEC, FIBER, RA, DEC, CATEGORY, N_WISH };
static const mill_fits_wish wish[N_WISH] = {
    [NAME] = MILL_WISH("CNAME", TEXT, 0, 1),
    [STATUS] = MILL_WISH("STATUS", TEXT, 0, 1),
    [USE] = MILL_WISH("TARGUSE", TEXT, 0, 1),
    [NSPEC] = MILL_WISH("NSPEC", INT32, -1, 0),
    [FIBER] = MILL_ROW_WISH("FIBREID", INT32, fiber, -1, 0),
    [RA] = MILL_ROW_WISH("TARGRA", DOUBLE, target_ra, NAN, 0),
    [DEC] = MILL_ROW_WISH("TARGDEC", DOUBLE, target_dec, NAN, 0),
    [CATEGORY] = MILL_WISH("TARGCAT", TEXT, 0, 1)};

/* Return a fibre's target type: TARGUSE, with SKY for S; BAD unless STATUS is A (on target). */
static const char *objtype_of(const mill_fits_values *v, int64_t i)
{
  const char *use = mill_fits_text_at(&v[USE], i);
  if (strcasecmp(mill_fits_text_at(&v[STATUS], i), "A") != 0)
    return "BAD";
  return strcasecmp(use, "S") == 0 ? "SKY" : use;
}

static const mill_fibres fibres = {wish, N_WISH, CATEGORY, 0, objtype_of};

static int index_file(void *state, const mill_selection *select, mill_file_index *index)
{
  weave *w = state;
  MILL_FITS_VALUES(values, N_WISH);
  const int n_wish = select->n_target_class > 0 ? N_WISH : CATEGORY; /* CATEGORY is the last */
  MILL_CHECK(mill_fits_columns(w->cameras.file, w->i_table, wish, n_wish, values));
  for (int64_t i = 0; values[NSPEC].there && i < w->cameras.n_row; i++)
    if (values[NSPEC].i32[i] != i + 1) /* NSPEC: row of the images, from 1 */
      return MILL_ERROR_HDU(w->cameras.file, w->i_table,
                            ": row %lld has NSPEC %d; sort the table by NSPEC, one row for each "
                            "row of the images",
                            (long long)i + 1, (int)values[NSPEC].i32[i]);
  return mill_fibres_index(&fibres, w->cameras.file, values, w->cameras.n_row, NAN, select, index);
}

const mill_format mill_format_weave = {
    .name = "weave",
    .description = "WEAVE L1 spectra, row-stacked, of one exposure or a stack",
    .recognise = recognise,
    .state_bytes = sizeof(weave),
    .open = open_file,
    .index = index_file,
    MILL_CAMERAS_FORMAT,
    .selects = MILL_SELECTS_CLASSES};
