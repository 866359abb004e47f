#include "io/surveys/desi_file.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/system/log.h"

enum { MAX_PIX = 1 << 19 /* of one spectrum: DESI has 2881 */ };

/* "[5][11][2751]", slowest axis first, for messages */
static const char *shape_text(int n_axis, const int64_t *axis, char *out, size_t size)
{
  size_t n = 0;
  snprintf(out, size, "no pixels");
  for (int i = n_axis - 1; i >= 0 && n + 1 < size; i--)
    n += (size_t)snprintf(out + n, size - n, "[%lld]", (long long)axis[i]);
  return out;
}

static int find_arm_hdu(const mill_desi_file *file, const mill_desi_file_arm *a, const char *what,
                        int *i_hdu)
{
  char name[2 * MILL_MAX_NAME];
  snprintf(name, sizeof name, "%s_%s", a->prefix, what);
  return mill_fits_file_find(file->fits, name, i_hdu);
}

/* Check that an HDU is an image of the shape expected, slowest axis last. */
static int check_image(const mill_desi_file *file, int i_hdu, int n_axis, const int64_t *axis)
{
  const mill_fits_hdu *hdu = &file->fits->guard->hdu[i_hdu];
  char found[256], expected[256];
  int same = hdu->kind == MILL_FITS_IMAGE && hdu->n_axis == n_axis;
  for (int i = 0; same && i < n_axis; i++)
    same = hdu->axis[i] == axis[i];
  if (!same)
    return MILL_ERROR_HDU(
        file->fits, i_hdu,
        " is %s %s, expected an image %s to agree with FIBERMAP and wavelengths; make "
        "the file again",
        hdu->kind == MILL_FITS_IMAGE ? "an image" : "a table",
        shape_text(hdu->n_axis, hdu->axis, found, sizeof found),
        shape_text(n_axis, axis, expected, sizeof expected));
  return MILL_OK;
}

static int read_wavelengths(mill_desi_file *file, mill_desi_file_arm *a, int i_hdu)
{
  int status = 0;
  const mill_fits_hdu *hdu = &file->fits->guard->hdu[i_hdu];
  char found[256];
  if (hdu->kind != MILL_FITS_IMAGE || hdu->n_axis != 1 || hdu->axis[0] < 2 ||
      hdu->axis[0] > MAX_PIX)
    return MILL_ERROR_HDU(
        file->fits, i_hdu,
        " has shape %s, expected an image of one axis with 2 to %d wavelengths; make the "
        "file again",
        shape_text(hdu->n_axis, hdu->axis, found, sizeof found), MAX_PIX);
  const int n_pix = (int)hdu->axis[0];
  MILL_CHECK(MILL_ALLOC(n_pix, &a->wave_aa));
  MILL_CHECK(mill_fits_file_move(file->fits, i_hdu));
  long first[MILL_FITS_MAX_AXIS] = {1};
  fits_read_pix(file->fits->fptr, TDOUBLE, first, n_pix, NULL, a->wave_aa, NULL, &status);
  MILL_CHECK_FITS(file->fits, i_hdu, status, "its pixels cannot be read");
  for (int i = 0; i < n_pix; i++)
    if (!isfinite(a->wave_aa[i]) || a->wave_aa[i] <= (i > 0 ? a->wave_aa[i - 1] : 0.0))
      return MILL_ERROR_HDU(
          file->fits, i_hdu,
          ": wavelength %d is %g, but they must be positive and ascending; make the file again", i,
          a->wave_aa[i]);
  a->info.n_pix = n_pix;
  a->info.wave_aa = a->wave_aa;
  return MILL_OK;
}

static int open_arm(mill_desi_file *file, mill_desi_file_arm *a)
{
  static const char *const what[] = {"WAVELENGTH", "FLUX", "IVAR", "MASK", "RESOLUTION"};
  int i_hdu[5], n_there = 0;
  for (int i = 0; i < 5; i++) {
    MILL_CHECK(find_arm_hdu(file, a, what[i], &i_hdu[i]));
    n_there += i_hdu[i] >= 0;
  }
  a->flux.i_hdu = a->ivar.i_hdu = a->mask.i_hdu = a->resolution.i_hdu = -1;
  if (n_there == 0)
    return MILL_OK;
  for (int i = 0; i < 3; i++)
    if (i_hdu[i] < 0)
      return MILL_ERROR(
          MILL_ERR_INPUT,
          "%s: has no HDU %s_%s though it has others of this arm; make the file again, or "
          "fetch it again if it is cut",
          file->fits->guard->path, a->prefix, what[i]);
  MILL_CHECK(read_wavelengths(file, a, i_hdu[0]));
  const int64_t plane[2] = {a->info.n_pix, file->n_spec};
  for (int i = 1; i < 4; i++)
    if (i_hdu[i] >= 0)
      MILL_CHECK(check_image(file, i_hdu[i], 2, plane));
  MILL_CHECK(mill_desi_take_image(file, i_hdu[1], 0, &a->flux));
  MILL_CHECK(mill_desi_take_image(file, i_hdu[2], 0, &a->ivar));
  if (i_hdu[3] >= 0)
    MILL_CHECK(mill_desi_take_image(file, i_hdu[3], 1, &a->mask));
  a->info.has_mask = i_hdu[3] >= 0;
  if (i_hdu[4] >= 0) {
    const mill_fits_hdu *hdu = &file->fits->guard->hdu[i_hdu[4]];
    const int64_t n_diag = hdu->n_axis == 3 ? hdu->axis[1] : 1;
    if (n_diag < 1 || n_diag > MILL_MAX_DIAG || n_diag % 2 == 0)
      return MILL_ERROR_HDU(
          file->fits, i_hdu[4],
          " has %lld diagonals, expected an odd number up to %d; make the file again",
          (long long)n_diag, MILL_MAX_DIAG);
    const int64_t cube[3] = {a->info.n_pix, n_diag, file->n_spec};
    MILL_CHECK(check_image(file, i_hdu[4], 3, cube));
    MILL_CHECK(mill_desi_take_image(file, i_hdu[4], 0, &a->resolution));
    a->info.n_diag = (int)n_diag;
  }
  return MILL_OK;
}

/* Arms whose optional HDUs differ: the file was cut between two HDUs. */
static int check_alike(const mill_desi_file *file)
{
  const mill_desi_file_arm *with_mask = NULL, *with_resolution = NULL;
  for (int i = 0; i < file->n_arm; i++) {
    const mill_desi_file_arm *a = &file->arm[i];
    with_mask = a->info.has_mask ? a : with_mask;
    with_resolution = a->info.n_diag > 0 ? a : with_resolution;
  }
  for (int i = 0; i < file->n_arm; i++) {
    const mill_desi_file_arm *a = &file->arm[i];
    const char *missing = a->info.n_pix == 0                       ? NULL
                          : with_mask && !a->info.has_mask         ? "MASK"
                          : with_resolution && a->info.n_diag == 0 ? "RESOLUTION"
                                                                   : NULL;
    if (missing)
      return MILL_ERROR(MILL_ERR_INPUT,
                        "%s: has no HDU %s_%s though another arm has one; make the file again, "
                        "or fetch it again if it is cut",
                        file->fits->guard->path, a->prefix, missing);
  }
  return MILL_OK;
}

/* SCORES that speak of an arm without spectra betray a cut; but files from
 * which an arm was left out on purpose keep their SCORES, so only a warning. */
static int warn_missing_arms(mill_desi_file *file)
{
  int i_scores;
  MILL_CHECK(mill_fits_file_find(file->fits, "SCORES", &i_scores));
  if (i_scores < 0 || file->fits->guard->hdu[i_scores].kind != MILL_FITS_TABLE)
    return MILL_OK;
  MILL_CHECK(mill_fits_file_move(file->fits, i_scores));
  for (int i = 0; i < file->n_arm; i++) {
    const mill_desi_file_arm *a = &file->arm[i];
    if (a->info.n_pix > 0)
      continue;
    char template[MILL_MAX_NAME + 16], name[FLEN_VALUE];
    int number, status = 0;
    snprintf(template, sizeof template, "MEDIAN*_SNR_%s", a->prefix);
    fits_get_colname(file->fits->fptr, CASEINSEN, template, name, &number, &status);
    fits_clear_errmsg();
    if (status == 0 || status == COL_NOT_UNIQUE)
      mill_log_warning("%s: SCORES has a column %s but there is no %s_FLUX: unless the arm was "
                       "left out on purpose, the file is cut",
                       file->fits->guard->path, name, a->prefix);
  }
  return MILL_OK;
}

/* Upper-case HDU prefix of a channel's name. */
static void set_prefix(char prefix[MILL_MAX_NAME], const char *name)
{
  memset(prefix, 0, MILL_MAX_NAME);
  for (size_t j = 0; j + 1 < MILL_MAX_NAME && name[j]; j++)
    prefix[j] = (char)toupper((unsigned char)name[j]);
}

/* Structure of a file whose arms' prefixes are set. */
static int open_arms(mill_desi_file *file)
{
  const char *path = file->fits->guard->path;
  MILL_CHECK(mill_fits_file_find(file->fits, "FIBERMAP", &file->i_fibermap));
  if (file->i_fibermap < 0)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%s: has no HDU FIBERMAP; give a DESI coadd or spectra file, or fetch it again if it "
        "is one (it is cut)",
        path);
  const mill_fits_hdu *fibermap = &file->fits->guard->hdu[file->i_fibermap];
  if (fibermap->kind != MILL_FITS_TABLE)
    return MILL_ERROR_HDU(file->fits, file->i_fibermap,
                          " must be a binary table; give a DESI file");
  file->n_spec = fibermap->axis[1];
  MILL_CHECK(mill_fits_file_find(file->fits, "EXP_FIBERMAP", &file->i_exp_fibermap));

  int n_there = 0;
  char names[MILL_MAX_ARM * (MILL_MAX_NAME + 8)] = "";
  for (int i = 0; i < file->n_arm; i++) {
    mill_desi_file_arm *a = &file->arm[i];
    snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s_FLUX", i ? ", " : "",
             a->prefix);
    MILL_CHECK(open_arm(file, a));
    n_there += a->info.n_pix > 0;
  }
  if (n_there == 0)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%s: has none of the library's arms (%s); give a DESI file, another library, or "
        "fetch the file again if it should have them (it is cut)",
        path, names);
  MILL_CHECK(check_alike(file));
  return warn_missing_arms(file);
}

int mill_desi_open(const char *path, const mill_library *lib, const mill_open_limits *limits,
                   mill_desi_file **out)
{
  int err = MILL_OK;
  mill_desi_file *file = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &file));
  file->limits = limits ? *limits : (mill_open_limits){.gzip_limit_mib = MILL_GZIP_LIMIT_MIB};
  file->owns_fits = 1;
  MILL_TRY(mill_fits_file_open(path, limits, &file->fits));
  file->n_arm = lib->n_arm;
  for (int i = 0; i < lib->n_arm; i++)
    set_prefix(file->arm[i].prefix, lib->arm[i].name);
  MILL_TRY(open_arms(file));
  *out = file;
  file = NULL;
done:
  mill_desi_close(file);
  return err;
}

void mill_desi_close(mill_desi_file *file)
{
  if (!file)
    return;
  for (int i = 0; i < file->n_arm; i++)
    mill_free(file->arm[i].wave_aa);
  mill_free(file->convert);
  if (file->owns_fits)
    mill_fits_file_close(file->fits);
  mill_free(file);
}

const mill_desi_arm *mill_desi_arm_info(const mill_desi_file *file, int i_arm)
{
  return &file->arm[i_arm].info;
}

/* ---- as a format ------------------------------------------------------- */

/* Does the HDU's name end like that?  *n_prefix is the length of what comes before. */
static int has_suffix(const char *name, const char *suffix, size_t *n_prefix)
{
  const size_t n = strlen(name), n_suffix = strlen(suffix);
  if (n <= n_suffix || strcmp(name + n - n_suffix, suffix) != 0)
    return 0;
  *n_prefix = n - n_suffix;
  return 1;
}

/* A file without FIBERMAP but with the HDUs of an arm is a DESI file that was cut. */
static int desi_recognise(const mill_fits_guard *guard)
{
  size_t n;
  for (int i = 0; i < guard->n_hdu; i++)
    if (strcmp(guard->hdu[i].name, "FIBERMAP") == 0 ||
        has_suffix(guard->hdu[i].name, "_WAVELENGTH", &n))
      return 1;
  return 0;
}

static int find_prefix(const mill_desi_file *file, const char *name)
{
  char prefix[MILL_MAX_NAME];
  set_prefix(prefix, name);
  for (int i = 0; i < file->n_arm; i++)
    if (strcmp(file->arm[i].prefix, prefix) == 0)
      return i;
  return -1;
}

static int has_arm(const mill_desi_file *file, const char *name)
{
  char prefix[MILL_MAX_NAME];
  char hdu[2 * MILL_MAX_NAME];
  set_prefix(prefix, name);
  snprintf(hdu, sizeof hdu, "%s_FLUX", prefix);
  for (int i = 0; i < file->fits->guard->n_hdu; i++)
    if (strcmp(file->fits->guard->hdu[i].name, hdu) == 0)
      return 1;
  return 0;
}

/* The arms of the library by name, and channels that the configuration names; when the file
 * has none of these arms, all of its channels are cut by wavelength. */
static int choose_arms(mill_desi_file *file, const mill_spectra_settings *settings)
{
  const mill_library *lib = settings->lib;
  const mill_config *config = settings->config;
  int n_there = 0;
  file->n_arm = 0;
  for (int i = 0; i < lib->n_arm; i++) {
    set_prefix(file->arm[file->n_arm++].prefix, lib->arm[i].name);
    n_there += has_arm(file, lib->arm[i].name);
  }
  for (int i = 0; i < config->n_arm; i++) {
    const char *name = config->arm[i].channel;
    if (!name[0] || find_prefix(file, name) >= 0 || !has_arm(file, name))
      continue;
    if (file->n_arm == MILL_MAX_ARM)
      return MILL_ERROR(MILL_ERR_INPUT,
                        "%s: more than %d channels are asked for; name fewer in arms",
                        file->fits->guard->path, MILL_MAX_ARM);
    set_prefix(file->arm[file->n_arm++].prefix, name);
    n_there++;
  }
  if (n_there > 0)
    return MILL_OK;
  int n_channel = 0;
  for (int i = 0; i < file->fits->guard->n_hdu; i++) {
    char name[MILL_MAX_NAME] = "";
    size_t n;
    if (!has_suffix(file->fits->guard->hdu[i].name, "_FLUX", &n) || n >= sizeof name)
      continue;
    if (n_channel == MILL_MAX_ARM)
      return MILL_ERROR(MILL_ERR_INPUT, "%s: has more than %d arms, which is no DESI file",
                        file->fits->guard->path, MILL_MAX_ARM);
    memcpy(name, file->fits->guard->hdu[i].name, n);
    set_prefix(file->arm[n_channel++].prefix, name);
  }
  if (n_channel > 0)
    file->n_arm = n_channel;
  return MILL_OK;
}

/* Arms by whose S/N the file's rows are selected: those that are fitted; of channels that are cut
 * by wavelength all. */
static void want_arms(mill_desi_file *file, const mill_spectra_settings *settings)
{
  const mill_library *lib = settings->lib;
  for (int i = 0; i < lib->n_arm; i++) {
    const int k = find_prefix(file, lib->arm[i].name);
    const int choice = mill_config_find_arm(settings->config, lib->arm[i].name);
    const int takes_other = choice >= 0 && settings->config->arm[choice].channel[0];
    if (k >= 0 && (!settings->arm_wanted[i] || takes_other))
      file->arm[k].is_unwanted = 1;
  }
  for (int i = 0; i < settings->config->n_arm; i++) {
    const int k = find_prefix(file, settings->config->arm[i].channel);
    if (k >= 0)
      file->arm[k].is_unwanted = 0;
  }
}

static void desi_close(void *state)
{
  mill_desi_close(state);
}

static int desi_open(mill_fits_file *fits, const mill_spectra_settings *settings, int *frame,
                     void **state)
{
  mill_desi_file *file = NULL;
  MILL_CHECK(MILL_ALLOC(1, &file));
  *state = file;
  file->fits = fits;
  file->joint = settings->config->exposures == MILL_EXPOSURES_JOINT;
  /* the pipeline of DESI puts all spectra into the frame of the solar system's barycentre */
  *frame = MILL_FRAME_BARYCENTRIC;
  file->limits = settings->limits;
  MILL_CHECK(choose_arms(file, settings));
  MILL_CHECK(open_arms(file));
  want_arms(file, settings);
  return MILL_OK;
}

static int desi_index(void *state, const mill_selection *select, mill_file_index *index)
{
  mill_desi_file *file = state;
  return mill_desi_index(file, select, file->joint, index);
}

/* What does not change from row to row. */
static mill_channel describe_channel(const mill_desi_file *file, int i)
{
  const mill_desi_file_arm *a = &file->arm[i];
  mill_channel channel;
  memset(&channel, 0, sizeof channel);
  for (size_t k = 0; a->prefix[k]; k++)
    channel.name[k] = (char)tolower((unsigned char)a->prefix[k]);
  channel.n_pix = a->info.n_pix;
  channel.n_diag = a->info.n_diag;
  channel.wave_aa = a->wave_aa;
  channel.wave_token = i + 1;
  return channel;
}

/* Memory for n exposures of the channels that are wanted, in one piece: new memory takes as
 * long as filling it, so a batch should take it once. */
static int place_blocks(const mill_desi_file *file, mill_spectra *spectra, const int *wants, int n,
                        mill_desi_block *block)
{
  enum { LINE = 16 }; /* pixels of a cache line */
  float *memory = NULL;
  for (int pass = 0; pass < 2; pass++) {
    size_t at = 0;
    for (int i = 0; i < file->n_arm; i++) {
      const mill_desi_arm *info = &file->arm[i].info;
      const size_t n_plane = ((size_t)n * (size_t)info->n_pix + LINE - 1) / LINE * LINE;
      if (!(wants[i] & MILL_WANTS_PIXELS))
        continue;
      if (pass == 1) {
        block[i].flux = memory + at;
        block[i].ivar = memory + at + n_plane;
      }
      at += 2 * n_plane;
      if (info->has_mask) {
        if (pass == 1)
          block[i].mask = (int32_t *)(void *)(memory + at);
        at += n_plane;
      }
      if (wants[i] & MILL_WANTS_MATRIX) {
        if (pass == 1)
          block[i].resolution = memory + at;
        at += n_plane * (size_t)info->n_diag;
      }
    }
    if (pass == 0)
      MILL_CHECK(mill_spectra_alloc(spectra, at * sizeof *memory, (void **)&memory));
  }
  return MILL_OK;
}

/* One read per image for all rows, straight into the batch's memory. */
static int desi_read(void *state, mill_spectra *spectra, const int64_t *exposure, int n)
{
  mill_desi_file *file = state;
  mill_desi_block block[MILL_MAX_ARM];
  int wants[MILL_MAX_ARM];
  memset(block, 0, sizeof block);
  for (int i = 0; i < file->n_arm; i++) {
    const mill_channel channel = describe_channel(file, i);
    wants[i] = 0;
    if (channel.n_pix == 0)
      continue;
    MILL_CHECK(mill_spectra_wants(spectra, &channel, &wants[i]));
  }
  MILL_CHECK(place_blocks(file, spectra, wants, n, block));
  for (int i = 0; i < file->n_arm; i++)
    if (wants[i] & MILL_WANTS_PIXELS)
      MILL_CHECK(mill_desi_read(file, i, exposure, n, &block[i]));
  for (int e = 0; e < n; e++)
    for (int i = 0; i < file->n_arm; i++) {
      if (!wants[i])
        continue;
      mill_channel channel = describe_channel(file, i);
      const size_t at = (size_t)e * (size_t)channel.n_pix;
      if (wants[i] & MILL_WANTS_PIXELS) {
        channel.flux = block[i].flux + at;
        channel.ivar = block[i].ivar + at;
        channel.mask = block[i].mask ? block[i].mask + at : NULL;
      }
      if (block[i].resolution)
        channel.resolution = block[i].resolution + at * (size_t)channel.n_diag;
      MILL_CHECK(mill_spectra_add(spectra, e, &channel));
    }
  return MILL_OK;
}

const mill_format mill_format_desi = {
    "desi",         "DESI coadd and spectra files",
    desi_recognise, desi_open,
    desi_close,     desi_index,
    desi_read,      MILL_SELECTS_CLASSES | MILL_SELECTS_SCORES | MILL_SELECTS_EXP_ID};
