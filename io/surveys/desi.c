/* SPDX-License-Identifier: BSD-3-Clause */
/* DESI coadd and spectra files; HDUs are found by name (docs/use/input.md). */
#include "io/surveys/desi_file.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "io/surveys/cameras.h"
#include "kernels/base/layout.h"
#include "src/system/log.h"
#include "src/config/arms.h"

enum { MAX_PIX = 1 << 19 /* most pixels of a spectrum; DESI has 2881 */ };

/* Write a shape for messages, slowest axis first, e.g. "[5][11][2751]". */
static const char *shape_text(int n_axis, const int64_t *axis, char *out, size_t size)
{
  size_t n = 0;
  snprintf(out, size, "no pixels");
  for (int i = n_axis - 1; i >= 0 && n + 1 < size; i--)
    n += (size_t)snprintf(out + n, size - n, "[%lld]", (long long)axis[i]);
  return out;
}

/* Fail unless an HDU is an image of shape axis [n_axis], fastest axis first. */
static int check_image(const mill_desi_file *file, int i_hdu, int n_axis, const int64_t *axis)
{
  const mill_fits_hdu *hdu = &file->fits->guard->hdu[i_hdu];
  char found[256], expected[256];
  int same = hdu->kind == MILL_FITS_IMAGE && hdu->n_axis == n_axis;
  for (int i = 0; same && i < n_axis; i++)
    same = hdu->axis[i] == axis[i];
  if (!same)
    return MILL_ERROR_HDU(file->fits, i_hdu,
                          " is %s %s, expected an image %s to agree with FIBERMAP and wavelengths; "
                          "make the file again",
                          hdu->kind == MILL_FITS_IMAGE ? "an image" : "a table",
                          shape_text(hdu->n_axis, hdu->axis, found, sizeof found),
                          shape_text(n_axis, axis, expected, sizeof expected));
  return MILL_OK;
}

/* Read unit, medium and frame of the wavelengths from keywords.  Without keywords they are
 * Angstrom, vacuum and barycentric, as in files of DESI's pipeline. */
static int read_conventions(mill_desi_file *file, mill_desi_arm *a, int i_hdu, double *to_aa)
{
  char medium[FLEN_VALUE] = "";
  int frame;
  MILL_CHECK(mill_single_key_unit(file->fits, i_hdu, "BUNIT", "Angstrom", to_aa));
  MILL_CHECK(mill_single_key_text(file->fits, i_hdu, "AIRORVAC", medium, sizeof medium, NULL));
  MILL_CHECK(mill_single_specsys(file->fits, i_hdu, &frame));
  a->air = strncasecmp(medium, "air", 3) == 0;
  return frame == MILL_FRAME_UNKNOWN
             ? MILL_OK
             : mill_single_add_frame(file->fits, i_hdu, file->frame == MILL_FRAME_UNKNOWN, frame,
                                     &file->frame);
}

/* Read an arm's wavelengths, the same for all rows, and convert them to A. */
static int read_wavelengths(mill_desi_file *file, mill_desi_arm *a, int i_hdu)
{
  const mill_fits_hdu *hdu = &file->fits->guard->hdu[i_hdu];
  char found[256];
  double to_aa = 1.0;
  if (hdu->kind != MILL_FITS_IMAGE || hdu->n_axis != 1 || hdu->axis[0] < 2 ||
      hdu->axis[0] > MAX_PIX)
    return MILL_ERROR_HDU(file->fits, i_hdu,
                          " has shape %s, expected an image of one axis with 2 to %d wavelengths; "
                          "make the file again",
                          shape_text(hdu->n_axis, hdu->axis, found, sizeof found), MAX_PIX);
  a->n_pix = (int)hdu->axis[0];
  MILL_CHECK(MILL_ALLOC(a->n_pix, &a->wave_aa));
  MILL_CHECK(read_conventions(file, a, i_hdu, &to_aa));
  MILL_CHECK(mill_fits_image_row(file->fits, i_hdu, 0, a->n_pix, a->wave_aa));
  for (int i = 0; i < a->n_pix; i++)
    a->wave_aa[i] *= to_aa;
  return mill_single_check_wave(file->fits, i_hdu, "WAVELENGTH", a->n_pix, a->wave_aa);
}

static const char *const image_name[DESI_N_IMAGE] = {"FLUX", "IVAR", "MASK", "RESOLUTION"};

static int find_image(const mill_desi_file *file, const char *prefix, const char *what, int *i_hdu)
{
  char name[2 * MILL_MAX_NAME];
  snprintf(name, sizeof name, "%s_%s", prefix, what);
  return mill_fits_file_find(file->fits, name, i_hdu);
}

static int lacks(const mill_desi_file *file, const char *prefix, const char *what,
                 const char *though)
{
  return MILL_ERROR(
      MILL_ERR_INPUT,
      "%s: has no HDU %s_%s though %s; make the file again, or fetch it again if it is truncated",
      file->fits->guard->path, prefix, what, though);
}

/* Find out how the pixels of an image are stored. */
static int take_image(mill_desi_file *file, int i_hdu, int is_mask, mill_desi_image *out)
{
  int type = 0, status = 0;
  double scale = 1.0, zero = 0.0;
  *out = (mill_desi_image){.i_hdu = i_hdu, .is_mask = is_mask};
  MILL_CHECK(mill_fits_file_move(file->fits, i_hdu));
  const mill_fits_hdu *hdu = &file->fits->guard->hdu[i_hdu];
  /* the type after BSCALE and BZERO */
  MILL_CHECK_FITS(file->fits, i_hdu, fits_get_img_equivtype(file->fits->fptr, &type, &status),
                  "its type cannot be found");
  if (is_mask && (type == FLOAT_IMG || type == DOUBLE_IMG))
    return MILL_ERROR_HDU(file->fits, i_hdu, " must hold integers; make the file again");
  MILL_CHECK(mill_single_key_double(file->fits, i_hdu, "BSCALE", &scale, NULL));
  MILL_CHECK(mill_single_key_double(file->fits, i_hdu, "BZERO", &zero, NULL));
  out->plain = !hdu->compressed && hdu->bitpix == (is_mask ? LONG_IMG : FLOAT_IMG) &&
               scale == 1.0 && zero == 0.0;
  out->is_wide = is_mask && type == LONGLONG_IMG;
  if (out->is_wide)
    MILL_CHECK(mill_single_mask_offset(file->fits, i_hdu, "", scale, zero, &out->offset));
  return MILL_OK;
}

/* Find and check the images of an arm; an arm without any image is left out. */
static int open_arm(mill_desi_file *file, mill_desi_arm *a)
{
  int i_wave, i_hdu[DESI_N_IMAGE], n_there;
  MILL_CHECK(find_image(file, a->prefix, "WAVELENGTH", &i_wave));
  n_there = i_wave >= 0;
  for (int i = 0; i < DESI_N_IMAGE; i++) {
    MILL_CHECK(find_image(file, a->prefix, image_name[i], &i_hdu[i]));
    n_there += i_hdu[i] >= 0;
    a->image[i].i_hdu = -1;
  }
  if (n_there == 0)
    return MILL_OK;
  const char *missing = i_wave < 0             ? "WAVELENGTH"
                        : i_hdu[DESI_FLUX] < 0 ? image_name[DESI_FLUX]
                        : i_hdu[DESI_IVAR] < 0 ? image_name[DESI_IVAR]
                                               : NULL;
  if (missing)
    return lacks(file, a->prefix, missing, "it has others of this arm");
  MILL_CHECK(read_wavelengths(file, a, i_wave));
  for (int i = 0; i < DESI_N_IMAGE; i++) {
    if (i_hdu[i] < 0)
      continue;
    int64_t axis[3] = {a->n_pix, file->n_spec, 0};
    if (i == DESI_RESOLUTION) {
      const mill_fits_hdu *hdu = &file->fits->guard->hdu[i_hdu[i]];
      axis[1] = hdu->n_axis == 3 ? hdu->axis[1] : 1; /* 1: check_image refuses the HDU */
      axis[2] = file->n_spec;
      if (axis[1] < 1 || axis[1] > MILL_MAX_DIAG || axis[1] % 2 == 0)
        return MILL_ERROR_HDU(
            file->fits, i_hdu[i],
            " has %lld diagonals, expected an odd number up to %d; make the file again",
            (long long)axis[1], MILL_MAX_DIAG);
      a->n_diag = (int)axis[1];
    }
    MILL_CHECK(check_image(file, i_hdu[i], i == DESI_RESOLUTION ? 3 : 2, axis));
    MILL_CHECK(take_image(file, i_hdu[i], i == DESI_MASK, &a->image[i]));
  }
  return MILL_OK;
}

/* Fail if an arm lacks an optional HDU that another has: the file was cut between two HDUs. */
static int check_alike(const mill_desi_file *file)
{
  for (int image = DESI_MASK; image <= DESI_RESOLUTION; image++) {
    const mill_desi_arm *without = NULL;
    int n_with = 0;
    for (int i = 0; i < file->n_arm; i++)
      if (file->arm[i].n_pix > 0 && file->arm[i].image[image].i_hdu < 0)
        without = &file->arm[i];
      else
        n_with += file->arm[i].n_pix > 0;
    if (without && n_with > 0)
      return lacks(file, without->prefix, image_name[image], "another arm has one");
  }
  return MILL_OK;
}

/* Warn if SCORES has columns of an arm without spectra: the file may be truncated.  Do not fail,
 * since a file may leave out an arm on purpose. */
static int warn_missing_arms(mill_desi_file *file)
{
  int i_scores;
  MILL_CHECK(mill_fits_file_find(file->fits, "SCORES", &i_scores));
  if (i_scores < 0 || file->fits->guard->hdu[i_scores].kind != MILL_FITS_TABLE)
    return MILL_OK;
  MILL_CHECK(mill_fits_file_move(file->fits, i_scores));
  for (int i = 0; i < file->n_arm; i++) {
    const mill_desi_arm *a = &file->arm[i];
    if (a->n_pix > 0)
      continue;
    char template[MILL_MAX_NAME + 16], name[FLEN_VALUE];
    int number, status = 0;
    snprintf(template, sizeof template, "MEDIAN*_SNR_%s", a->prefix);
    fits_get_colname(file->fits->fptr, CASEINSEN, template, name, &number, &status);
    fits_clear_errmsg();
    if (status == 0 || status == COL_NOT_UNIQUE)
      mill_log_warning("%s: SCORES has a column %s but there is no %s_FLUX: unless the arm was "
                       "left out on purpose, the file is truncated",
                       file->fits->guard->path, name, a->prefix);
  }
  return MILL_OK;
}

/* Write the HDU prefix of a channel, its name in upper case, to zeroed memory. */
static void set_prefix(char prefix[MILL_MAX_NAME], const char *name)
{
  for (size_t j = 0; j + 1 < MILL_MAX_NAME && name[j]; j++)
    prefix[j] = (char)toupper((unsigned char)name[j]);
}

/* Find and check the HDUs of all arms, whose prefixes are already set. */
static int open_arms(mill_desi_file *file)
{
  MILL_CHECK(mill_fits_file_find(file->fits, "FIBERMAP", &file->i_fibermap));
  int i_hdu = file->i_fibermap; /* its rows, else those of the first flux image, are the spectra */
  const mill_fits_hdu *hdu = file->fits->guard->hdu;
  if (i_hdu >= 0 && hdu[i_hdu].kind != MILL_FITS_TABLE)
    return MILL_ERROR_HDU(file->fits, i_hdu, " must be a binary table; give a DESI file");
  for (int i = 0; i < file->n_arm && i_hdu < 0; i++)
    MILL_CHECK(find_image(file, file->arm[i].prefix, image_name[DESI_FLUX], &i_hdu));
  file->n_spec = i_hdu >= 0 && hdu[i_hdu].n_axis == 2 ? hdu[i_hdu].axis[1] : 0;
  MILL_CHECK(mill_fits_file_find(file->fits, "EXP_FIBERMAP", &file->i_exp_fibermap));
  int n_there = 0;
  char names[DESI_MAX_CHANNEL * (MILL_MAX_NAME + 8)] = "";
  for (int i = 0; i < file->n_arm; i++) {
    mill_desi_arm *a = &file->arm[i];
    snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s_FLUX", i ? ", " : "",
             a->prefix);
    MILL_CHECK(open_arm(file, a));
    n_there += a->n_pix > 0;
  }
  if (n_there == 0)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: has none of the library's arms (%s); give a DESI file or another "
                      "library, or fetch the file again if it is truncated",
                      file->fits->guard->path, names);
  MILL_CHECK(check_alike(file));
  return warn_missing_arms(file);
}

/* ---- choice of arms -------------------------------------------------------- */

/* Return the length of a name before its end `suffix`; 0: it has another end. */
static size_t length_before(const char *name, const char *suffix)
{
  const size_t n = strlen(name), n_suffix = strlen(suffix);
  return n > n_suffix && strcmp(name + n - n_suffix, suffix) == 0 ? n - n_suffix : 0;
}

/* Is this a DESI file, with FIBERMAP or an HDU of wavelengths? */
static int desi_recognise(const mill_fits_guard *guard)
{
  for (int i = 0; i < guard->n_hdu; i++)
    if (strcmp(guard->hdu[i].name, "FIBERMAP") == 0 ||
        length_before(guard->hdu[i].name, "_WAVELENGTH") > 0)
      return 1;
  return 0;
}

static int has_prefix(const mill_desi_file *file, const char *name)
{
  int i = 0;
  while (i < file->n_arm && strcasecmp(file->arm[i].prefix, name) != 0)
    i++;
  return i < file->n_arm;
}

/* List the file's channels, then the library's arms that the file lacks, to report them as missing.
 * If no channel has the name of an arm, report none: the names differ on purpose. */
static int choose_arms(mill_desi_file *file, const mill_library *lib)
{
  const mill_fits_guard *guard = file->fits->guard;
  int i_wave, n_own = 0;
  for (int i = 0; i < guard->n_hdu; i++) {
    char name[MILL_MAX_NAME] = "";
    const size_t n = length_before(guard->hdu[i].name, "_FLUX");
    if (n == 0 || n >= sizeof name)
      continue;
    memcpy(name, guard->hdu[i].name, n);
    MILL_CHECK(find_image(file, name, "WAVELENGTH", &i_wave));
    if (i_wave < 0)
      continue;
    if (file->n_arm == MILL_MAX_ARM)
      return MILL_ERROR(MILL_ERR_INPUT, "%s: has more than %d channels, so it is no DESI file",
                        guard->path, MILL_MAX_ARM);
    set_prefix(file->arm[file->n_arm++].prefix, name);
  }
  const int n_channel = file->n_arm;
  for (int i = 0; i < lib->n_arm; i++)
    n_own += has_prefix(file, lib->arm[i].name);
  for (int i = 0; i < lib->n_arm && (n_own > 0 || n_channel == 0); i++)
    if (!has_prefix(file, lib->arm[i].name))
      set_prefix(file->arm[file->n_arm++].prefix, lib->arm[i].name);
  return MILL_OK;
}

/* Does a channel go to a fitted arm?  If not, its S/N does not select rows. */
static int is_fitted(const mill_desi_arm *a, const mill_spectra_settings *settings)
{
  const mill_library *lib = settings->lib;
  const double first = a->wave_aa[0], last = a->wave_aa[a->n_pix - 1];
  enum mill_channel_rule how;
  const unsigned arms = mill_spectra_takers(settings, a->prefix, &how);
  int overlaps = 0;
  for (int i = 0; i < lib->n_arm; i++) {
    const mill_arm_choice choice = mill_config_arm(settings->config, lib->arm[i].name);
    overlaps |= (arms >> i & 1u) && first < choice.max_aa && last > choice.min_aa &&
                mill_arm_overlaps(&lib->arm[i], first, last);
  }
  return how == MILL_BY_WAVE ? overlaps : arms != 0; /* by name: at any wavelengths */
}

/* ---- as a format -------------------------------------------------------- */

static void desi_close(void *state)
{
  mill_desi_file *file = state;
  for (int i = 0; i < file->n_arm; i++)
    mill_free(file->arm[i].wave_aa);
  mill_free(file->convert);
}

static int desi_open(void *state, const mill_spectra_settings *settings, int *frame)
{
  mill_desi_file *file = state;
  file->joint = settings->config->exposures == MILL_EXPOSURES_JOINT;
  file->limits = settings->limits;
  MILL_CHECK(choose_arms(file, settings->lib));
  MILL_CHECK(open_arms(file));
  *frame = file->frame == MILL_FRAME_UNKNOWN ? MILL_FRAME_BARYCENTRIC : file->frame;
  for (mill_desi_arm *a = file->arm; a < file->arm + file->n_arm; a++)
    if (a->n_pix > 0) {
      a->is_unwanted = !is_fitted(a, settings);
      file->n_fitted += !a->is_unwanted;
    }
  return MILL_OK;
}

/* Channel properties common to all rows. */
static mill_channel describe_channel(const mill_desi_file *file, int i)
{
  const mill_desi_arm *a = &file->arm[i];
  mill_channel channel = {
      .n_pix = a->n_pix, .n_diag = a->n_diag, .wave_aa = a->wave_aa, .air = a->air};
  for (size_t k = 0; a->prefix[k]; k++)
    channel.name[k] = (char)tolower((unsigned char)a->prefix[k]);
  return channel;
}

/* Place of an image's row in an exposure's memory. */
typedef struct place {
  int64_t n_pix; /* values of the row; 0: not wanted */
  size_t at;     /* offset in bytes */
} place;

/* Set wants [arm] to the data that the run needs.  An exposure gets *n_byte bytes, in the layout
 * of the GPU, for an upload in one copy.  to [arm][image]: place of the image's row in these. */
static int lay_out(const mill_desi_file *file, mill_spectra *spectra, int *wants,
                   place to[][DESI_N_IMAGE], size_t *n_byte)
{
  *n_byte = 0;
  for (int i = 0; i < file->n_arm; i++) {
    const mill_channel channel = describe_channel(file, i);
    /* if no channel is fitted, all are read, so that STATUS can tell why */
    if (channel.n_pix > 0 && (file->n_fitted == 0 || !file->arm[i].is_unwanted))
      MILL_CHECK(mill_spectra_wants(spectra, &channel, &wants[i]));
    for (int k = 0; k < DESI_N_IMAGE; k++) {
      if (file->arm[i].image[k].i_hdu < 0 ||
          !(wants[i] & (k == DESI_RESOLUTION ? MILL_WANTS_MATRIX : MILL_WANTS_PIXELS)))
        continue;
      to[i][k].n_pix = (k == DESI_RESOLUTION ? channel.n_diag : 1) * (int64_t)channel.n_pix;
      to[i][k].at = mill_take(n_byte, sizeof(float) * (size_t)to[i][k].n_pix);
    }
  }
  return MILL_OK;
}

/* Read a row of an image that is scaled, compressed, or stored in another type than out.  Floats
 * are read as doubles, since CFITSIO cannot convert infinity. */
static int convert_row(mill_desi_file *file, const mill_desi_image *im, int64_t i_row, int row_pix,
                       void *out)
{
  int any_null, status = 0; /* CFITSIO writes any_null even where NULL is allowed */
  long first[2] = {1, (long)i_row + 1};
  if (!im->is_mask) {
    MILL_CHECK(mill_fits_image_row(file->fits, im->i_hdu, i_row, row_pix, file->convert));
    mill_single_narrow(file->convert, row_pix, out);
    return MILL_OK;
  }
  /* read masks of up to 32 bits as doubles: CFITSIO fails to read compressed masks as int64 */
  const uint64_t *wide = (const uint64_t *)(const void *)file->convert;
  fits_read_pix(file->fits->fptr, im->is_wide ? TLONGLONG : TDOUBLE, first, row_pix, NULL,
                file->convert, &any_null, &status);
  MILL_CHECK_FITS(file->fits, im->i_hdu, status, "row %lld cannot be read", (long long)i_row);
  for (int i = 0; i < row_pix; i++)
    ((int32_t *)out)[i] =
        mill_single_fold(im->is_wide ? wide[i] + im->offset : (uint64_t)(int64_t)file->convert[i]);
  return MILL_OK;
}

/* Read n rows of an image, fits_row [n], into out.  In out a row begins every `pitch` bytes and has
 * row_pix values: int32 in a mask, float in other images.  NaN and infinity are kept. */
static int read_rows(mill_desi_file *file, const mill_desi_image *im, const int64_t *fits_row,
                     int n, int64_t row_pix, size_t pitch, void *out)
{
  int status = 0;
  char *to = out;
  if (!im->plain) { /* scaled, compressed, or of another type */
    if (file->convert_room < (size_t)row_pix)
      MILL_CHECK(MILL_RENEW(&file->convert, &file->convert_room, row_pix));
    MILL_CHECK(mill_fits_file_move(file->fits, im->i_hdu));
    if (im->offset) /* read masks as stored: convert_row adds the offset */
      fits_set_bscale(file->fits->fptr, 1.0, 0.0, &status);
    MILL_CHECK_FITS(file->fits, im->i_hdu, status, "its scaling cannot be changed");
  }
  for (int i = 0; i < n; i++, to += pitch)
    if (im->plain)
      MILL_CHECK(mill_fits_file_words(file->fits, im->i_hdu, fits_row[i] * row_pix, row_pix, to));
    else
      MILL_CHECK(convert_row(file, im, fits_row[i], (int)row_pix, to));
  return MILL_OK;
}

/* Read the exposures into the batch's memory, image by image in file order. */
static int desi_read(void *state, mill_spectra *spectra, const int64_t *exposure, int n)
{
  mill_desi_file *file = state;
  place to[DESI_MAX_CHANNEL][DESI_N_IMAGE] = {{{0}}};
  int wants[DESI_MAX_CHANNEL] = {0};
  size_t n_byte;    /* memory of an exposure */
  void *all = NULL; /* memory of all exposures */
  for (int i = 0; i < n; i++)
    MILL_CHECK(mill_single_check_row(file->fits, exposure[i], file->n_spec));
  MILL_CHECK(lay_out(file, spectra, wants, to, &n_byte));
  MILL_CHECK(mill_spectra_alloc(spectra, (size_t)n * n_byte, &all));
  for (int i = 0; i < file->n_arm; i++)
    for (int k = 0; k < DESI_N_IMAGE; k++)
      if (to[i][k].n_pix > 0)
        MILL_CHECK(read_rows(file, &file->arm[i].image[k], exposure, n, to[i][k].n_pix, n_byte,
                             (char *)all + to[i][k].at));
  for (int e = 0; e < n; e++)
    for (int i = 0; i < file->n_arm; i++) {
      mill_channel channel = describe_channel(file, i);
      const void *row[DESI_N_IMAGE];
      if (!wants[i])
        continue;
      for (int k = 0; k < DESI_N_IMAGE; k++)
        row[k] = to[i][k].n_pix > 0 ? (char *)all + (size_t)e * n_byte + to[i][k].at : NULL;
      channel.flux = row[DESI_FLUX];
      channel.ivar = row[DESI_IVAR];
      channel.mask = row[DESI_MASK];
      channel.resolution = row[DESI_RESOLUTION];
      MILL_CHECK(mill_spectra_add(spectra, e, &channel));
    }
  return MILL_OK;
}

/* neighbouring cameras overlap a little */
static const mill_arm_choice cameras[] = {{.arm = "b", .min_aa = 3600, .max_aa = 5800},
                                          {.arm = "r", .min_aa = 5760, .max_aa = 7620},
                                          {.arm = "z", .min_aa = 7520, .max_aa = 9824}};

static int flux_unit(void *state, const char *channel, char unit[MILL_FLUX_UNIT])
{
  mill_desi_file *file = state;
  for (const mill_desi_arm *arm = file->arm; arm < file->arm + file->n_arm; arm++)
    if (strcasecmp(arm->prefix, channel) == 0)
      return mill_plane_unit(file->fits, &(mill_plane){.i_hdu = arm->image[DESI_FLUX].i_hdu}, 1.0,
                             unit);
  return MILL_OK;
}

const mill_format mill_format_desi = {.name = "desi",
                                      .description = "DESI coadd and spectra files",
                                      .recognise = desi_recognise,
                                      .state_bytes = sizeof(mill_desi_file),
                                      .open = desi_open,
                                      .close = desi_close,
                                      .index = mill_desi_index,
                                      .read = desi_read,
                                      .flux_unit = flux_unit,
                                      .selects = MILL_SELECTS_CLASSES | MILL_SELECTS_SCORES |
                                                 MILL_SELECTS_EXP_ID | MILL_SELECTS_REDROCK,
                                      .camera = cameras,
                                      .n_camera = sizeof cameras / sizeof *cameras,
                                      .cameras_are_channels = 1};
