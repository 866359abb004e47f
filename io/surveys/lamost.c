/* SPDX-License-Identifier: BSD-3-Clause */
/* LAMOST low-resolution files: the COADD table of DR8 and later, or the image of five rows of the
 * releases before; docs/use/input.md has the rules. */

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "io/surveys/single_spectrum.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/config/text.h"
#include "src/system/regular_file.h"

/* Rows of the image, and columns of the table. */
enum { FLUX, IVAR, WAVELENGTH, ANDMASK, ORMASK, N_ROW };
static const char *const row_name[N_ROW] = {"FLUX", "IVAR", "WAVELENGTH", "ANDMASK", "ORMASK"};

typedef struct lamost {
  mill_fits_file *file; /* borrowed */
  int i_hdu;            /* with the pixels: table COADD, or the image of the primary */
  int is_image;
  int n_pix;
  int air;
  int64_t exposure_number; /* HDU of the pixels: what the index holds */
  int32_t exposure_id;     /* OBSID */
  mill_single_spectrum spectrum;
} lamost;

/* ---- keywords of the primary ------------------------------------------ */

/* LAMOST writes it where it knows no value. */
static const double MISSING = -9999.0;

/* Keep out where the header has no value. */
static int key_double(lamost *l, const char *key, double *out)
{
  double value = *out;
  MILL_CHECK(mill_single_key_double(l->file, 0, key, &value, NULL));
  *out = value == MISSING ? *out : value;
  return MILL_OK;
}

static int key_int32(lamost *l, const char *key, int32_t *out)
{
  int32_t value = *out;
  MILL_CHECK(mill_single_key_int32(l->file, 0, key, &value, NULL));
  *out = value == (int32_t)MISSING ? *out : value;
  return MILL_OK;
}

/* Empty where it has none. */
static int key_text(lamost *l, const char *key, char *out, size_t size)
{
  double value;
  *out = '\0';
  MILL_CHECK(mill_single_key_text(l->file, 0, key, out, size, NULL));
  if (mill_text_to_real(out, &value) && value == MISSING)
    *out = '\0';
  return MILL_OK;
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
  l->is_image = 1;
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
  MILL_CHECK(mill_single_medium(file, 0, &l->air));
  l->exposure_number = l->i_hdu;
  l->exposure_id = -1;
  return key_int32(l, "OBSID", &l->exposure_id);
}

/* ---- index ------------------------------------------------------------ */

/* Name of the star: its designation, so that several visits have one name.  Cut names would make
 * two stars one. */
static int read_name(lamost *l, char *out, size_t size)
{
  char text[MILL_FITS_MAX_VALUE] = "";
  const char *name = text;
  MILL_CHECK(key_text(l, "DESIG", text, sizeof text));
  if (!*text && l->exposure_id >= 0)
    snprintf(text, sizeof text, "%d", l->exposure_id);
  if (!*text)
    MILL_CHECK(key_text(l, "FILENAME", text, sizeof text));
  if (!*text)
    name = mill_base_name(l->file->guard->path);
  if (strlen(name) >= size)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%s: the star's name '%s' (DESIG, else FILENAME, else the file's) is longer than %zu "
        "bytes; give it a shorter one by DESIG",
        l->file->guard->path, name, size - 1);
  strcpy(out, name);
  return MILL_OK;
}

/* Target type of the fibre in the words of the selection: SKY, BAD, or its own.  DR9 and later say
 * FIB_TYPE, the releases before FIBERTYP. */
static int read_objtype(lamost *l, char *out, size_t size)
{
  static const char *const bad[] = {"UNUSED", "POSERR", "DEAD"};
  MILL_CHECK(key_text(l, "FIB_TYPE", out, size));
  if (!*out)
    MILL_CHECK(key_text(l, "FIBERTYP", out, size));
  for (char *p = out; *p; p++)
    *p = (char)toupper((unsigned char)*p);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    if (strcmp(out, bad[i]) == 0)
      snprintf(out, size, "BAD");
  return MILL_OK;
}

/* Day, plan, spectrograph and fibre, where the header has them all. */
static int identify(lamost *l, mill_catalog_row *row)
{
  char plan[32] = "";
  int32_t day = -1, spectrograph = -1;
  MILL_CHECK(key_int32(l, "LMJD", &day));
  MILL_CHECK(key_text(l, "PLANID", plan, sizeof plan));
  MILL_CHECK(key_int32(l, "SPID", &spectrograph));
  if (day >= 0 && plan[0] && spectrograph >= 0 && row->fiber >= 0 &&
      snprintf(row->identifier, sizeof row->identifier, "lamost %05d-%s-%02d-%03d", day, plan,
               spectrograph, row->fiber) >= (int)sizeof row->identifier)
    row->identifier[0] = '\0'; /* then by file and row, as without these cards */
  return MILL_OK;
}

static int index_file(void *state, const mill_selection *select, mill_file_index *index)
{
  lamost *l = state;
  double mjd = NAN;
  mill_single_object object = {.n_exposure = 1,
                               .exposure = &l->exposure_number,
                               .exposure_id = &l->exposure_id,
                               .mjd = &mjd,
                               .joint = 1};
  mill_catalog_row *row = &object.row;
  mill_catalog_row_init(row);
  MILL_CHECK(key_double(l, "MJD", &mjd));
  MILL_CHECK(read_name(l, row->object, sizeof row->object));
  MILL_CHECK(key_double(l, "RA", &row->target_ra));
  MILL_CHECK(key_double(l, "DEC", &row->target_dec));
  MILL_CHECK(key_int32(l, "FIBERID", &row->fiber));
  MILL_CHECK(key_double(l, "Z", &row->z));
  MILL_CHECK(key_text(l, "CLASS", row->spectype, sizeof row->spectype));
  MILL_CHECK(key_text(l, "SUBCLASS", row->subtype, sizeof row->subtype));
  MILL_CHECK(read_objtype(l, object.objtype, sizeof object.objtype));
  MILL_CHECK(identify(l, row));
  return mill_single_index(&object, select, index);
}

/* ---- pixels ----------------------------------------------------------- */

/* One of row_name in the table or the image; what: its name for messages. */
static int read_row(lamost *l, int row, double *out, char *what, size_t size)
{
  if (!l->is_image) {
    snprintf(what, size, "column %s", row_name[row]);
    return mill_single_column(l->file, l->i_hdu, row_name[row], l->n_pix, out);
  }
  snprintf(what, size, "row %d (%s)", row + 1, row_name[row]);
  return mill_fits_image_row(l->file, l->i_hdu, row, l->n_pix, out);
}

static int read_pixels(void *context, mill_channel *channel)
{
  lamost *l = context;
  mill_single_spectrum *spectrum = &l->spectrum;
  char what[32];
  MILL_CHECK(read_row(l, FLUX, spectrum->number, what, sizeof what));
  mill_single_narrow(spectrum->number, l->n_pix, spectrum->flux);
  MILL_CHECK(read_row(l, IVAR, spectrum->number, what, sizeof what));
  mill_single_narrow(spectrum->number, l->n_pix, spectrum->ivar);
  MILL_CHECK(read_row(l, ANDMASK, spectrum->number, what, sizeof what));
  MILL_CHECK(mill_single_mask(l->file, l->i_hdu, what, spectrum->number, l->n_pix, spectrum->mask));
  channel->flux = spectrum->flux;
  channel->ivar = spectrum->ivar;
  channel->mask = spectrum->mask;
  return MILL_OK;
}

static int read_exposures(void *state, mill_spectra *spectra, const int64_t *number, int n)
{
  lamost *l = state;
  double *wave_aa;
  char what[32];
  const mill_single_place at = {l->file, l->i_hdu, what};
  MILL_CHECK(mill_single_resize(&l->spectrum, l->n_pix));
  wave_aa = l->spectrum.wave_aa;
  MILL_CHECK(read_row(l, WAVELENGTH, wave_aa, what, sizeof what));
  for (int i = 0; i < n; i++) {
    mill_channel channel = {
        .name = "coadd", .n_pix = l->n_pix, .wave_aa = wave_aa, .air = l->air, .wave_token = 1};
    if (number[i] != l->exposure_number)
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
