/* SPDX-License-Identifier: BSD-3-Clause */
/* LAMOST low-resolution files: the COADD table of DR8 and later, or the image of five rows of the
 * releases before; docs/use/input.md has the rules. */

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/surveys/selection.h"
#include "io/surveys/single_spectrum.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/regular_file.h"

/* Rows of the image, and columns of the table. */
enum { FLUX, IVAR, WAVELENGTH, ANDMASK, ORMASK, N_ROW };
static const char *const row_name[N_ROW] = {"FLUX", "IVAR", "WAVELENGTH", "ANDMASK", "ORMASK"};

typedef struct lamost {
  mill_fits_file *file; /* borrowed */
  int i_hdu; /* with the pixels: table COADD, or the image of the primary; the exposure's number */
  int n_pix;
  int air;
  mill_single_spectrum spectrum;
} lamost;

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
  /* other surveys have images of five rows too */
  return is_image_of_rows(&guard->hdu[0]) && mill_single_says(guard, "TELESCOP= 'LAMOST");
}

static void close_file(void *state)
{
  lamost *l = state;
  mill_single_clear(&l->spectrum);
  mill_free(l);
}

/* Find the pixels and how many they are. */
static int find_pixels(lamost *l)
{
  const mill_fits_guard *guard = l->file->guard;
  l->i_hdu = mill_single_find_table(guard, "COADD");
  if (l->i_hdu >= 0) {
    /* ORMASK is the last and not looked at */
    return mill_single_check_columns(l->file, l->i_hdu, row_name, ORMASK, &l->n_pix);
  }
  l->i_hdu = 0;
  const mill_fits_hdu *hdu = &guard->hdu[0];
  if (!is_image_of_rows(hdu))
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: has neither a table COADD nor a primary image of %d rows (flux, ivar, "
                      "wavelength, andmask, ormask); give a LAMOST low-resolution file",
                      guard->path, N_ROW);
  if (hdu->axis[0] < 2 || hdu->axis[0] > MILL_SINGLE_MAX_PIX)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: HDU 1 has %lld pixels a row, expected 2 to %d",
                      guard->path, (long long)hdu->axis[0], MILL_SINGLE_MAX_PIX);
  l->n_pix = (int)hdu->axis[0];
  return MILL_OK;
}

static int open_file(mill_fits_file *file, const mill_spectra_settings *settings, int *frame,
                     void **state)
{
  lamost *l = NULL;
  (void)settings; /* a visit is one spectrum, so the option has no effect */
  MILL_CHECK(MILL_ALLOC(1, &l));
  *state = l;
  l->file = file;
  MILL_CHECK(find_pixels(l));
  MILL_CHECK(mill_single_frame(file, 0, frame));
  return mill_single_medium(file, 0, &l->air);
}

/* ---- index ------------------------------------------------------------ */

/* Keywords of the primary.  DR9 and later say FIB_TYPE, the releases before FIBERTYP. */
enum {
  DESIG,
  FILENAME,
  TYPE,
  OBSID,
  MJD,
  DAY,
  PLAN,
  SPECTROGRAPH,
  RA,
  DEC,
  FIBER,
  Z,
  CLASS,
  SUB,
  N
};
static const mill_fits_wish wish[N] = {
    [DESIG] = MILL_WISH("DESIG", TEXT, 0, 0),
    [FILENAME] = MILL_WISH("FILENAME", TEXT, 0, 0),
    [TYPE] = {"FIB_TYPE", MILL_AS_TEXT, 0, 0, 0, 0, {"FIBERTYP", NULL}},
    [OBSID] = MILL_WISH("OBSID", INT32, -1, 0),
    [MJD] = MILL_WISH("MJD", DOUBLE, NAN, 0),
    [DAY] = MILL_WISH("LMJD", INT32, -1, 0),
    [PLAN] = MILL_WISH("PLANID", TEXT, 0, 0),
    [SPECTROGRAPH] = MILL_WISH("SPID", INT32, -1, 0),
    [RA] = MILL_ROW_WISH("RA", DOUBLE, target_ra, NAN, 0),
    [DEC] = MILL_ROW_WISH("DEC", DOUBLE, target_dec, NAN, 0),
    [FIBER] = MILL_ROW_WISH("FIBERID", INT32, fiber, -1, 0),
    [Z] = MILL_ROW_WISH("Z", DOUBLE, z, NAN, 0),
    [CLASS] = MILL_ROW_WISH("CLASS", TEXT, spectype, 0, 0),
    [SUB] = MILL_ROW_WISH("SUBCLASS", TEXT, subtype, 0, 0)};

/* Name of the star: its designation, so that several visits have one name.  Cut names would make
 * two stars one. */
static int take_name(const lamost *l, const mill_fits_values *v, mill_catalog_row *row)
{
  char id[16];
  const char *path = l->file->guard->path, *name = mill_fits_text_at(&v[DESIG], 0);
  snprintf(id, sizeof id, "%d", v[OBSID].i32[0]);
  if (!*name)
    name = v[OBSID].i32[0] >= 0 ? id : mill_fits_text_at(&v[FILENAME], 0);
  if (!*name)
    name = mill_base_name(path);
  if (strlen(name) >= sizeof row->object)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%s: the star's name '%s' (DESIG, else FILENAME, else the file's) is longer than %zu "
        "bytes; give it a shorter one by DESIG",
        path, name, sizeof row->object - 1);
  strcpy(row->object, name);
  return MILL_OK;
}

/* Target type of the fibre in the words of the selection: SKY, BAD, or its own. */
static void take_objtype(const char *type, char out[FLEN_VALUE])
{
  static const char *const bad[] = {"UNUSED", "POSERR", "DEAD"};
  int n = 0;
  for (; type[n]; n++)
    out[n] = (char)toupper((unsigned char)type[n]);
  out[n] = '\0';
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    if (strcmp(out, bad[i]) == 0)
      strcpy(out, "BAD");
}

/* Day, plan, spectrograph and fibre, where the header has them all. */
static void identify(const mill_fits_values *v, mill_catalog_row *row)
{
  const char *plan = mill_fits_text_at(&v[PLAN], 0);
  const int32_t day = v[DAY].i32[0], spectrograph = v[SPECTROGRAPH].i32[0];
  if (day >= 0 && plan[0] && spectrograph >= 0 && row->fiber >= 0 &&
      snprintf(row->identifier, sizeof row->identifier, "lamost %05d-%s-%02d-%03d", day, plan,
               spectrograph, row->fiber) >= (int)sizeof row->identifier)
    row->identifier[0] = '\0'; /* then by file and row, as without these cards */
}

static int index_file(void *state, const mill_selection *select, mill_file_index *index)
{
  int err = MILL_OK;
  lamost *l = state;
  char objtype[FLEN_VALUE];
  mill_fits_values v[N] = {0};
  MILL_TRY(mill_file_index_alloc(index, 1, 1));
  mill_catalog_row *row = &index->row[0];
  const mill_candidate candidate = {row, row->object, objtype, 0, NAN};
  mill_catalog_row_init(row);
  /* LAMOST writes -9999 where it knows no value */
  MILL_TRY(mill_single_keys(l->file, &(int){0}, 1, -9999.0, wish, N, v));
  mill_fits_fill(l->file->guard->path, wish, N, v, 0, row);
  MILL_TRY(take_name(l, v, row));
  take_objtype(mill_fits_text_at(&v[TYPE], 0), objtype);
  identify(v, row);
  index->n_fits_row = 1;
  index->n_row = mill_selection_keeps(select, &candidate);
  if (index->n_row > 0)
    mill_file_index_expose(index, l->i_hdu, v[OBSID].i32[0], v[MJD].f64[0]);
done:
  mill_fits_values_free(N, v);
  return err;
}

/* ---- pixels ----------------------------------------------------------- */

static int read_pixels(void *context, mill_channel *channel)
{
  static const mill_single_pixels pixels = {{"FLUX", "IVAR", "ANDMASK"}, {FLUX, IVAR, ANDMASK}};
  lamost *l = context;
  return mill_single_read(l->file, l->i_hdu, &pixels, &l->spectrum, channel);
}

static int read_exposures(void *state, mill_spectra *spectra, const int64_t *number, int n)
{
  lamost *l = state;
  double *wave_aa;
  char what[32];
  const mill_single_place at = {l->file, l->i_hdu, what};
  MILL_CHECK(mill_single_resize(&l->spectrum, l->n_pix));
  wave_aa = l->spectrum.wave_aa;
  MILL_CHECK(mill_single_numbers(l->file, l->i_hdu, row_name[WAVELENGTH], WAVELENGTH, l->n_pix,
                                 wave_aa, what, sizeof what));
  for (int i = 0; i < n; i++) {
    mill_channel channel = {
        .name = "coadd", .n_pix = l->n_pix, .wave_aa = wave_aa, .air = l->air, .wave_token = 1};
    if (number[i] != l->i_hdu)
      return MILL_ERROR(MILL_ERR_RANGE, "%s: has no exposure in HDU %lld", l->file->guard->path,
                        (long long)number[i] + 1);
    MILL_CHECK(mill_single_give(spectra, i, &channel, &at, &l->spectrum, read_pixels, l));
  }
  return MILL_OK;
}

/* Below 4000 A the throughput is small.  Lines of b have one width in Angstrom, those of r nearly
 * one in velocity, as measured in 22 stars of six spectrographs (docs/science/real-library.md). */
static const mill_arm_choice cameras[] = {
    {.arm = "b", .min_aa = 4000, .max_aa = 5800, .fwhm_aa = 2.7, .most_power = 2200},
    {.arm = "r", .min_aa = 5800, .max_aa = INFINITY, .resolving_power = 1650, .most_power = 1800}};

const mill_format mill_format_lamost = {
    .name = "lamost",
    .description = "LAMOST low-resolution files: table COADD, or an image of five rows",
    .recognise = recognise,
    .open = open_file,
    .close = close_file,
    .index = index_file,
    .read = read_exposures,
    .camera = cameras,
    .n_camera = sizeof cameras / sizeof *cameras,
    .lsf_width_error = 0.06};
