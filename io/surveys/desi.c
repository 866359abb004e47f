#include "io/surveys/desi.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/fits/fits_file.h"
#include "io/surveys/redrock.h"
#include "io/surveys/selection.h"
#include "io/surveys/spectra.h"
#include "kernels/base/error.h"
#include "src/system/log.h"

enum {
  MAX_PIX = 1 << 19,      /* of one spectrum: DESI has 2881 */
  CONVERT_BYTES = 1 << 22 /* buffer for images that are not stored as we keep them */
};

/* How the pixels of an image are stored. */
typedef struct image {
  int i_hdu;       /* -1: the file has none */
  int direct;      /* CFITSIO type that needs no conversion of ours; 0: by way of convert */
  int convert;     /* CFITSIO type read before our conversion */
  uint64_t offset; /* to be added to stored values of 64 bits */
  int fill_null;   /* integers or compressed: nulls become NaN through CFITSIO */
  int plain;       /* stored as we keep it but for the order of bytes: read without CFITSIO */
} image;

typedef struct arm {
  mill_desi_arm info;
  double *wave_aa;
  char prefix[MILL_MAX_NAME];
  image flux, ivar, mask, resolution;
} arm;

struct mill_desi_file {
  mill_fits_file *fits;
  int owns_fits;
  char scratch[MILL_FITS_MAX_PATH];
  mill_open_limits limits; /* for the redrock file */
  int i_fibermap, i_exp_fibermap;
  int64_t n_spec;
  int n_arm;
  arm arm[MILL_MAX_ARM];
  void *convert; /* [CONVERT_BYTES], made when first needed */
};

/* "[5][11][2751]", slowest axis first, for messages */
static const char *shape_text(int n_axis, const int64_t *axis, char *out, size_t size)
{
  size_t n = 0;
  snprintf(out, size, "no pixels");
  for (int i = n_axis - 1; i >= 0 && n + 1 < size; i--)
    n += (size_t)snprintf(out + n, size - n, "[%lld]", (long long)axis[i]);
  return out;
}

static int find_arm_hdu(const mill_desi_file *file, const arm *a, const char *what, int *i_hdu)
{
  char name[2 * MILL_MAX_NAME];
  snprintf(name, sizeof name, "%s_%s", a->prefix, what);
  return mill_fits_file_find(file->fits, name, i_hdu);
}

/* Check that an HDU is an image of the shape expected, slowest axis last. */
static int check_image(const mill_desi_file *file, int i_hdu, int n_axis, const int64_t *axis)
{
  int err = MILL_OK;
  const mill_fits_hdu *hdu = &file->fits->guard->hdu[i_hdu];
  char found[256], expected[256];
  int same = hdu->kind == MILL_FITS_IMAGE && hdu->n_axis == n_axis;
  for (int i = 0; same && i < n_axis; i++)
    same = hdu->axis[i] == axis[i];
  if (!same)
    MILL_FAIL(MILL_ERR_INPUT,
              "%s: HDU %d (%s) is %s %s, expected an image %s to agree with FIBERMAP and "
              "wavelengths; make the file again",
              file->fits->guard->path, i_hdu + 1, hdu->name,
              hdu->kind == MILL_FITS_IMAGE ? "an image" : "a table",
              shape_text(hdu->n_axis, hdu->axis, found, sizeof found),
              shape_text(n_axis, axis, expected, sizeof expected));
done:
  return err;
}

/* BSCALE and BZERO of the current HDU. */
static int read_scaling(mill_desi_file *file, int i_hdu, double value[2])
{
  int err = MILL_OK;
  static const char *const key[2] = {"BSCALE", "BZERO"};
  value[0] = 1.0;
  value[1] = 0.0;
  for (int i = 0; i < 2; i++) {
    int status = 0;
    fits_read_key(file->fits->fptr, TDOUBLE, key[i], &value[i], NULL, &status);
    if (status != 0 && status != KEY_NO_EXIST) {
      err = mill_fits_file_error(file->fits, i_hdu, "its scaling cannot be read", status);
      goto done;
    }
    fits_clear_errmsg();
  }
done:
  return err;
}

/* CFITSIO 4.2 takes unsigned integers of 64 bits for signed ones and then finds
 * them out of range, so stored values are read and the offset is added here. */
static int take_mask64(mill_desi_file *file, int i_hdu, image *out)
{
  int err = MILL_OK;
  double value[2];
  MILL_TRY(read_scaling(file, i_hdu, value));
  if (value[0] != 1.0 || (value[1] != 0.0 && value[1] != 0x1p63))
    MILL_FAIL(MILL_ERR_INPUT,
              "%s: HDU %d (%s) holds scaled integers of 64 bits, which no mask has; make the file "
              "again",
              file->fits->guard->path, i_hdu + 1, file->fits->guard->hdu[i_hdu].name);
  out->convert = TLONGLONG;
  out->offset = value[1] != 0.0 ? UINT64_C(1) << 63 : 0;
done:
  return err;
}

/* Decide how the pixels of an image are to be read. */
static int take_image(mill_desi_file *file, int i_hdu, int is_mask, image *out)
{
  int err = MILL_OK;
  int type = 0, status = 0;
  out->i_hdu = i_hdu;
  MILL_TRY(mill_fits_file_move(file->fits, i_hdu));
  const mill_fits_hdu *hdu = &file->fits->guard->hdu[i_hdu];
  /* the type after BSCALE and BZERO */
  if (fits_get_img_equivtype(file->fits->fptr, &type, &status) != 0) {
    err = mill_fits_file_error(file->fits, i_hdu, "its type cannot be found", status);
    goto done;
  }
  if (is_mask) {
    switch (type) {
    case BYTE_IMG:
    case SBYTE_IMG:
    case SHORT_IMG:
    case USHORT_IMG:
    case LONG_IMG:
      out->direct = TINT;
      break;
    case ULONG_IMG:
      out->direct = TUINT;
      break;
    case LONGLONG_IMG:
      MILL_TRY(take_mask64(file, i_hdu, out));
      break;
    default:
      MILL_FAIL(MILL_ERR_INPUT, "%s: HDU %d (%s) must hold integers; make the file again",
                file->fits->guard->path, i_hdu + 1, hdu->name);
    }
  } else {
    if (hdu->bitpix == FLOAT_IMG && type == FLOAT_IMG)
      out->direct = TFLOAT;
    else
      out->convert = TDOUBLE; /* CFITSIO refuses infinity when it narrows doubles */
    out->fill_null = hdu->compressed || hdu->bitpix > 0;
  }
  if (!hdu->compressed && ((out->direct == TFLOAT && hdu->bitpix == FLOAT_IMG) ||
                           (out->direct == TINT && hdu->bitpix == LONG_IMG))) {
    double scaling[2];
    MILL_TRY(read_scaling(file, i_hdu, scaling));
    out->plain = scaling[0] == 1.0 && scaling[1] == 0.0;
  }
done:
  return err;
}

static int read_wavelengths(mill_desi_file *file, arm *a, int i_hdu)
{
  int err = MILL_OK;
  int status = 0;
  const mill_fits_hdu *hdu = &file->fits->guard->hdu[i_hdu];
  const char *path = file->fits->guard->path;
  char found[256];
  if (hdu->kind != MILL_FITS_IMAGE || hdu->n_axis != 1 || hdu->axis[0] < 2 ||
      hdu->axis[0] > MAX_PIX)
    MILL_FAIL(MILL_ERR_INPUT,
              "%s: HDU %d (%s) has shape %s, expected an image of one axis with 2 to %d "
              "wavelengths; make the file again",
              path, i_hdu + 1, hdu->name, shape_text(hdu->n_axis, hdu->axis, found, sizeof found),
              MAX_PIX);
  const int n_pix = (int)hdu->axis[0];
  MILL_TRY(MILL_ALLOC(n_pix, &a->wave_aa));
  MILL_TRY(mill_fits_file_move(file->fits, i_hdu));
  long first[MILL_FITS_MAX_AXIS] = {1};
  if (fits_read_pix(file->fits->fptr, TDOUBLE, first, n_pix, NULL, a->wave_aa, NULL, &status)) {
    err = mill_fits_file_error(file->fits, i_hdu, "its pixels cannot be read", status);
    goto done;
  }
  for (int i = 0; i < n_pix; i++)
    if (!isfinite(a->wave_aa[i]) || a->wave_aa[i] <= (i > 0 ? a->wave_aa[i - 1] : 0.0))
      MILL_FAIL(MILL_ERR_INPUT,
                "%s: HDU %d (%s): wavelength %d is %g, but they must be positive and ascending; "
                "make the file again",
                path, i_hdu + 1, hdu->name, i, a->wave_aa[i]);
  a->info.n_pix = n_pix;
  a->info.wave_aa = a->wave_aa;
done:
  return err;
}

static int open_arm(mill_desi_file *file, arm *a)
{
  int err = MILL_OK;
  static const char *const what[] = {"WAVELENGTH", "FLUX", "IVAR", "MASK", "RESOLUTION"};
  int i_hdu[5], n_there = 0;
  for (int i = 0; i < 5; i++) {
    MILL_TRY(find_arm_hdu(file, a, what[i], &i_hdu[i]));
    n_there += i_hdu[i] >= 0;
  }
  a->flux.i_hdu = a->ivar.i_hdu = a->mask.i_hdu = a->resolution.i_hdu = -1;
  if (n_there == 0)
    goto done;
  for (int i = 0; i < 3; i++)
    if (i_hdu[i] < 0)
      MILL_FAIL(MILL_ERR_INPUT,
                "%s: has no HDU %s_%s though it has others of this arm; the file is cut or "
                "damaged: fetch it again",
                file->fits->guard->path, a->prefix, what[i]);
  MILL_TRY(read_wavelengths(file, a, i_hdu[0]));
  const int64_t plane[2] = {a->info.n_pix, file->n_spec};
  for (int i = 1; i < 4; i++)
    if (i_hdu[i] >= 0)
      MILL_TRY(check_image(file, i_hdu[i], 2, plane));
  MILL_TRY(take_image(file, i_hdu[1], 0, &a->flux));
  MILL_TRY(take_image(file, i_hdu[2], 0, &a->ivar));
  if (i_hdu[3] >= 0)
    MILL_TRY(take_image(file, i_hdu[3], 1, &a->mask));
  a->info.has_mask = i_hdu[3] >= 0;
  if (i_hdu[4] >= 0) {
    const mill_fits_hdu *hdu = &file->fits->guard->hdu[i_hdu[4]];
    const int64_t n_diag = hdu->n_axis == 3 ? hdu->axis[1] : 1;
    if (n_diag < 1 || n_diag > MILL_MAX_DIAG || n_diag % 2 == 0)
      MILL_FAIL(MILL_ERR_INPUT,
                "%s: HDU %d (%s) has %lld diagonals, expected an odd number up to %d; make the "
                "file again",
                file->fits->guard->path, i_hdu[4] + 1, hdu->name, (long long)n_diag, MILL_MAX_DIAG);
    const int64_t cube[3] = {a->info.n_pix, n_diag, file->n_spec};
    MILL_TRY(check_image(file, i_hdu[4], 3, cube));
    MILL_TRY(take_image(file, i_hdu[4], 0, &a->resolution));
    a->info.n_diag = (int)n_diag;
  }
done:
  return err;
}

/* Arms whose optional HDUs differ: the file was cut between two HDUs. */
static int check_alike(const mill_desi_file *file)
{
  int err = MILL_OK;
  const arm *with_mask = NULL, *with_resolution = NULL;
  for (int i = 0; i < file->n_arm; i++) {
    const arm *a = &file->arm[i];
    with_mask = a->info.has_mask ? a : with_mask;
    with_resolution = a->info.n_diag > 0 ? a : with_resolution;
  }
  for (int i = 0; i < file->n_arm; i++) {
    const arm *a = &file->arm[i];
    const char *missing = a->info.n_pix == 0                       ? NULL
                          : with_mask && !a->info.has_mask         ? "MASK"
                          : with_resolution && a->info.n_diag == 0 ? "RESOLUTION"
                                                                   : NULL;
    if (missing)
      MILL_FAIL(MILL_ERR_INPUT,
                "%s: has no HDU %s_%s though another arm has one; the file is cut or damaged: "
                "fetch it again",
                file->fits->guard->path, a->prefix, missing);
  }
done:
  return err;
}

/* SCORES that speak of an arm without spectra betray a cut; but files from
 * which an arm was left out on purpose keep their SCORES, so only a warning. */
static int warn_missing_arms(mill_desi_file *file)
{
  int err = MILL_OK;
  int i_scores;
  MILL_TRY(mill_fits_file_find(file->fits, "SCORES", &i_scores));
  if (i_scores < 0 || file->fits->guard->hdu[i_scores].kind != MILL_FITS_TABLE)
    goto done;
  MILL_TRY(mill_fits_file_move(file->fits, i_scores));
  for (int i = 0; i < file->n_arm; i++) {
    const arm *a = &file->arm[i];
    if (a->info.n_pix > 0)
      continue;
    char template[MILL_MAX_NAME + 16], name[FLEN_VALUE];
    int number, status = 0;
    snprintf(template, sizeof template, "MEDIAN*_SNR_%s", a->prefix);
    fits_get_colname(file->fits->fptr, CASEINSEN, template, name, &number, &status);
    fits_clear_errmsg();
    if (status == 0 || status == COL_NOT_UNIQUE)
      mill_log_warning(
          "%s: SCORES has a column %s but there is no %s_FLUX: unless the arm was left "
          "out on purpose, the file is cut",
          file->fits->guard->path, name, a->prefix);
  }
done:
  return err;
}

/* Upper-case HDU prefix of a channel's name. */
static void set_prefix(arm *a, const char *name)
{
  memset(a->prefix, 0, sizeof a->prefix);
  for (size_t j = 0; j + 1 < sizeof a->prefix && name[j]; j++)
    a->prefix[j] = (char)toupper((unsigned char)name[j]);
}

/* Structure of a file whose arms' prefixes are set. */
static int open_arms(mill_desi_file *file)
{
  int err = MILL_OK;
  const char *path = file->fits->guard->path;
  MILL_TRY(mill_fits_file_find(file->fits, "FIBERMAP", &file->i_fibermap));
  if (file->i_fibermap < 0)
    MILL_FAIL(MILL_ERR_INPUT,
              "%s: has no HDU FIBERMAP; give a DESI coadd or spectra file, or fetch it again if it "
              "is one (it is cut)",
              path);
  const mill_fits_hdu *fibermap = &file->fits->guard->hdu[file->i_fibermap];
  if (fibermap->kind != MILL_FITS_TABLE)
    MILL_FAIL(MILL_ERR_INPUT, "%s: HDU %d (FIBERMAP) must be a binary table; give a DESI file",
              path, file->i_fibermap + 1);
  file->n_spec = fibermap->axis[1];
  MILL_TRY(mill_fits_file_find(file->fits, "EXP_FIBERMAP", &file->i_exp_fibermap));

  int n_there = 0;
  char names[MILL_MAX_ARM * (MILL_MAX_NAME + 8)] = "";
  for (int i = 0; i < file->n_arm; i++) {
    arm *a = &file->arm[i];
    snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s_FLUX", i ? ", " : "",
             a->prefix);
    MILL_TRY(open_arm(file, a));
    n_there += a->info.n_pix > 0;
  }
  if (n_there == 0)
    MILL_FAIL(MILL_ERR_INPUT,
              "%s: has none of the library's arms (%s); give a DESI file, another library, or "
              "fetch the file again if it should have them (it is cut)",
              path, names);
  MILL_TRY(check_alike(file));
  MILL_TRY(warn_missing_arms(file));
done:
  return err;
}

static void set_limits(mill_desi_file *file, const mill_open_limits *limits)
{
  file->limits.gzip_limit_mib = limits ? limits->gzip_limit_mib : MILL_GZIP_LIMIT_MIB;
  if (limits && limits->scratch)
    snprintf(file->scratch, sizeof file->scratch, "%s", limits->scratch);
  file->limits.scratch = file->scratch;
}

int mill_desi_open(const char *path, const mill_library *lib, const mill_open_limits *limits,
                   mill_desi_file **out)
{
  int err = MILL_OK;
  mill_desi_file *file = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &file));
  set_limits(file, limits);
  file->owns_fits = 1;
  MILL_TRY(mill_fits_file_open(path, limits, &file->fits));
  file->n_arm = lib->n_arm;
  for (int i = 0; i < lib->n_arm; i++)
    set_prefix(&file->arm[i], lib->arm[i].name);
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

/* ---- index ------------------------------------------------------------ */

/* Columns of FIBERMAP and EXP_FIBERMAP, one value a row. */
typedef struct fibermap {
  int64_t *target_id, *status, *ref_id;
  double *target_ra, *target_dec;
  int32_t *fiber, *exp_id;
  char *objtype, *ref_cat;
  size_t objtype_stride, ref_cat_stride;
  int has_exp_id;
} fibermap;

/* A TARGETID and where it stands. */
typedef struct id_place {
  int64_t target_id, place;
} id_place;

static int compare_id_place(const void *a, const void *b)
{
  const id_place *x = a, *y = b;
  if (x->target_id != y->target_id)
    return x->target_id < y->target_id ? -1 : 1;
  return (x->place > y->place) - (x->place < y->place);
}

static void clear_fibermap(fibermap *map)
{
  mill_free(map->target_id);
  mill_free(map->status);
  mill_free(map->ref_id);
  mill_free(map->target_ra);
  mill_free(map->target_dec);
  mill_free(map->fiber);
  mill_free(map->exp_id);
  mill_free(map->objtype);
  mill_free(map->ref_cat);
}

static int read_fibermap(mill_desi_file *file, const mill_selection *select, fibermap *map)
{
  int err = MILL_OK;
  mill_fits_file *fits = file->fits;
  const int64_t n = file->n_spec;
  const int i_hdu = file->i_fibermap;
  int found = 0;
  MILL_TRY(MILL_ALLOC(n, &map->target_id));
  MILL_TRY(MILL_ALLOC(n, &map->status));
  MILL_TRY(MILL_ALLOC(n, &map->ref_id));
  MILL_TRY(MILL_ALLOC(n, &map->target_ra));
  MILL_TRY(MILL_ALLOC(n, &map->target_dec));
  MILL_TRY(MILL_ALLOC(n, &map->fiber));
  MILL_TRY(MILL_ALLOC(n, &map->exp_id));
  for (int64_t i = 0; i < n; i++) {
    map->ref_id[i] = -1;
    map->target_ra[i] = map->target_dec[i] = NAN;
    map->fiber[i] = map->exp_id[i] = -1;
  }
  MILL_TRY(mill_fits_column_int64(fits, i_hdu, "TARGETID", map->target_id, NULL));
  MILL_TRY(
      mill_fits_column_text(fits, i_hdu, "OBJTYPE", &map->objtype, &map->objtype_stride, NULL));
  MILL_TRY(mill_fits_column_int64(fits, i_hdu, "FIBERSTATUS", map->status, &found));
  if (!found)
    MILL_TRY(mill_fits_column_int64(fits, i_hdu, "COADD_FIBERSTATUS", map->status, &found));
  if (!found && select->fiberstatus_allowed != UINT64_MAX)
    MILL_FAIL(MILL_ERR_INPUT,
              "%s: HDU %d (FIBERMAP) has neither FIBERSTATUS nor COADD_FIBERSTATUS, so bad fibers "
              "cannot be told; give a DESI file, or allow all bits by fiberstatus_allowed_bits",
              fits->guard->path, i_hdu + 1);
  MILL_TRY(mill_fits_column_int64(fits, i_hdu, "REF_ID", map->ref_id, &found));
  MILL_TRY(
      mill_fits_column_text(fits, i_hdu, "REF_CAT", &map->ref_cat, &map->ref_cat_stride, &found));
  MILL_TRY(mill_fits_column_double(fits, i_hdu, "TARGET_RA", map->target_ra, &found));
  MILL_TRY(mill_fits_column_double(fits, i_hdu, "TARGET_DEC", map->target_dec, &found));
  MILL_TRY(mill_fits_column_int32(fits, i_hdu, "FIBER", map->fiber, &found));
  MILL_TRY(mill_fits_column_int32(fits, i_hdu, "EXPID", map->exp_id, &map->has_exp_id));
done:
  return err;
}

/* EXPID of a coadd's row from EXP_FIBERMAP, where one exposure made it. */
static int fill_exp_id(mill_desi_file *file, fibermap *map)
{
  int err = MILL_OK;
  int64_t *target_id = NULL;
  int32_t *exp_id = NULL;
  id_place *key = NULL;
  int has_id = 0, has_exp = 0;
  const int i_hdu = file->i_exp_fibermap;
  if (map->has_exp_id || i_hdu < 0 || file->fits->guard->hdu[i_hdu].kind != MILL_FITS_TABLE)
    goto done;
  const int64_t n = file->fits->guard->hdu[i_hdu].axis[1];
  MILL_TRY(MILL_ALLOC(n, &target_id));
  MILL_TRY(MILL_ALLOC(n, &exp_id));
  MILL_TRY(MILL_ALLOC(n, &key));
  MILL_TRY(mill_fits_column_int64(file->fits, i_hdu, "TARGETID", target_id, &has_id));
  MILL_TRY(mill_fits_column_int32(file->fits, i_hdu, "EXPID", exp_id, &has_exp));
  if (!has_id || !has_exp)
    goto done;
  for (int64_t i = 0; i < n; i++)
    key[i] = (id_place){target_id[i], i};
  qsort(key, (size_t)n, sizeof *key, compare_id_place);
  for (int64_t i = 0; i < file->n_spec; i++) {
    int64_t low = 0, high = n;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (key[middle].target_id < map->target_id[i])
        low = middle + 1;
      else
        high = middle;
    }
    if (low < n && key[low].target_id == map->target_id[i] &&
        (low + 1 == n || key[low + 1].target_id != map->target_id[i]))
      map->exp_id[i] = exp_id[key[low].place];
  }
done:
  mill_free(target_id);
  mill_free(exp_id);
  mill_free(key);
  return err;
}

/* The redrock file named, else the one beside the input.  When nothing is
 * selected by it, one beside that is missing is nothing to speak of, and a bad
 * one costs only its columns.  One that rows are selected by is noted in the index. */
static int read_redrock(mill_desi_file *file, const mill_selection *select, mill_redrock *redrock,
                        mill_file_index *index)
{
  int err = MILL_OK;
  char beside[MILL_FITS_MAX_PATH];
  const char *path = select->redrock_file;
  if (!*path) {
    MILL_TRY(mill_redrock_beside(file->fits->guard->path, beside, sizeof beside));
    path = beside;
    if (!*path && select->redrock)
      MILL_FAIL(MILL_ERR_INPUT,
                "%s: no redrock file lies beside it (coadd- or spectra- replaced by redrock-), but "
                "rows are selected by one; put it there, set redrock_file, or switch redrock off",
                file->fits->guard->path);
  }
  if (!*path)
    goto done;
  err = mill_redrock_read(path, &file->limits, redrock);
  if (err == MILL_OK && select->redrock) {
    const size_t n = strlen(path) + 1;
    MILL_TRY(MILL_ALLOC(n, &index->redrock));
    memcpy(index->redrock, path, n);
    index->redrock_size = redrock->file_size;
    index->redrock_mtime = redrock->file_mtime;
  }
  if (err == MILL_ERR_INPUT && !select->redrock && !*select->redrock_file) {
    mill_log_warning("%s; Z, SPECTYPE and SUBTYPE stay empty", mill_error_message());
    err = MILL_OK;
  }
done:
  return err;
}

/* Put the kept FITS rows into groups, one per row of the result.
 *
 *  fits_row [n]  in   kept rows, ascending
 *  index         out  exposure_row in the order of the groups, row[].first_exposure
 *                     and n_exposure
 */
static int group_rows(const fibermap *map, const int64_t *fits_row, int64_t n, int joint,
                      mill_file_index *index)
{
  int err = MILL_OK;
  id_place *by_target = NULL, *group = NULL;
  MILL_TRY(MILL_ALLOC(n, &by_target));
  MILL_TRY(MILL_ALLOC(n, &group));
  MILL_TRY(MILL_ALLOC(n, &index->exposure_row));
  MILL_TRY(MILL_ALLOC(n, &index->exposure_id));
  for (int64_t i = 0; i < n; i++)
    by_target[i] = (id_place){map->target_id[fits_row[i]], fits_row[i]};
  int64_t n_group = 0;
  if (joint) {
    qsort(by_target, (size_t)n, sizeof *by_target, compare_id_place);
    /* a group is known by its first FITS row, in order of which groups come;
     * target_id here is that row, place where the group begins */
    for (int64_t i = 0; i < n; i++) {
      if (i == 0 || by_target[i].target_id != by_target[i - 1].target_id)
        group[n_group++] = (id_place){by_target[i].place, i};
    }
    qsort(group, (size_t)n_group, sizeof *group, compare_id_place);
  } else {
    for (; n_group < n; n_group++)
      group[n_group] = (id_place){by_target[n_group].place, n_group};
  }
  MILL_TRY(MILL_ALLOC(n_group, &index->row));
  for (int64_t i = 0; i < n_group; i++) {
    mill_catalog_row *row = &index->row[i];
    row->first_exposure = index->n_exposure;
    const int64_t start = group[i].place;
    for (int64_t j = start;
         j < n && (j == start || (joint && by_target[j].target_id == by_target[start].target_id));
         j++) {
      index->exposure_row[index->n_exposure] = by_target[j].place;
      index->exposure_id[index->n_exposure++] = map->exp_id[by_target[j].place];
      if (row->n_exposure == INT32_MAX)
        MILL_FAIL(MILL_ERR_RANGE, "target %lld has too many exposures",
                  (long long)by_target[j].target_id);
      row->n_exposure++;
    }
  }
  index->n_row = n_group;
done:
  mill_free(by_target);
  mill_free(group);
  return err;
}

static void fill_row(const char *path, const fibermap *map, const mill_redrock *redrock,
                     const int64_t *exposure_row, mill_catalog_row *row)
{
  const int64_t i = exposure_row[row->first_exposure];
  row->fits_row = i;
  row->target_id = map->target_id[i];
  row->target_ra = map->target_ra[i];
  row->target_dec = map->target_dec[i];
  row->fiber = map->fiber[i];
  row->exp_id = row->n_exposure == 1 ? map->exp_id[i] : -1;
  row->ref_id = map->ref_id[i];
  if (map->ref_cat)
    mill_fits_text_copy(path, "REF_CAT", map->ref_cat + (size_t)i * map->ref_cat_stride,
                        row->ref_cat, sizeof row->ref_cat);
  row->z = NAN;
  const mill_redshift *match = mill_redrock_find(redrock, row->target_id);
  if (match) {
    row->z = match->z;
    memcpy(row->spectype, match->spectype, sizeof row->spectype);
    memcpy(row->subtype, match->subtype, sizeof row->subtype);
  }
}

int mill_desi_index(mill_desi_file *file, const mill_selection *select, int joint,
                    mill_file_index *index)
{
  int err = MILL_OK;
  fibermap map = {0};
  mill_redrock redrock = {0};
  int64_t *kept = NULL;
  memset(index, 0, sizeof *index);
  MILL_TRY(read_fibermap(file, select, &map));
  MILL_TRY(fill_exp_id(file, &map));
  MILL_TRY(read_redrock(file, select, &redrock, index));
  MILL_TRY(MILL_ALLOC(file->n_spec, &kept));
  int64_t n_kept = 0;
  for (int64_t i = 0; i < file->n_spec; i++) {
    const mill_redshift *match = mill_redrock_find(&redrock, map.target_id[i]);
    if (mill_selection_keeps_target(select, map.target_id[i]) &&
        mill_selection_keeps_objtype(select, map.objtype + (size_t)i * map.objtype_stride) &&
        mill_selection_keeps_fiberstatus(select, (uint64_t)map.status[i]) &&
        mill_selection_keeps_redrock(select, match ? match->z : NAN, match ? match->spectype : ""))
      kept[n_kept++] = i;
  }
  /* a coadd has one row a target already */
  MILL_TRY(group_rows(&map, kept, n_kept, joint && map.has_exp_id, index));
  for (int64_t i = 0; i < index->n_row; i++)
    fill_row(file->fits->guard->path, &map, &redrock, index->exposure_row, &index->row[i]);
  index->n_fits_row = file->n_spec;
  index->file_size = file->fits->guard->file_size;
  index->file_mtime = file->fits->guard->file_mtime;
done:
  clear_fibermap(&map);
  mill_redrock_clear(&redrock);
  mill_free(kept);
  if (err != MILL_OK)
    mill_file_index_clear(index);
  return err;
}

void mill_file_index_clear(mill_file_index *index)
{
  if (!index)
    return;
  mill_free(index->row);
  mill_free(index->exposure_row);
  mill_free(index->exposure_id);
  mill_free(index->exposure_file);
  mill_free(index->redrock);
  memset(index, 0, sizeof *index);
}

/* ---- pixels ----------------------------------------------------------- */

static float narrow(double value)
{
  /* out of float's range is infinite, and so a bad pixel */
  if (fabs(value) > (double)FLT_MAX)
    return value > 0.0 ? INFINITY : -INFINITY;
  return (float)value;
}

static int32_t fold_mask(uint64_t value)
{
  /* bits that an int32 lacks must still mark the pixel */
  const uint32_t low = (uint32_t)value;
  return (int32_t)(low | (value >> 32 != 0 ? UINT32_C(1) << 31 : 0));
}

/* Pixels of n_row rows of row_pix from first_row on; out is float or int32. */
static int read_run(mill_desi_file *file, const image *im, int64_t first_row, int64_t n_row,
                    int64_t row_pix, void *out)
{
  int err = MILL_OK;
  int status = 0;
  fitsfile *fptr = file->fits->fptr;
  const mill_fits_hdu *hdu = &file->fits->guard->hdu[im->i_hdu];
  float float_nan = NAN;
  double double_nan = NAN;
  int any_null; /* CFITSIO writes it, even through a NULL */
  long first[MILL_FITS_MAX_AXIS];
  for (int i = 0; i < MILL_FITS_MAX_AXIS; i++)
    first[i] = 1;
  long *first_slow = &first[hdu->n_axis - 1];
  MILL_TRY(mill_fits_file_move(file->fits, im->i_hdu));
  if (im->offset)
    fits_set_bscale(fptr, 1.0, 0.0, &status);
  int64_t done_rows = 0;
  if (im->direct) {
    *first_slow = (long)first_row + 1;
    fits_read_pix(fptr, im->direct, first, n_row * row_pix,
                  im->fill_null && im->direct == TFLOAT ? &float_nan : NULL, out, &any_null,
                  &status);
    done_rows = n_row;
  } else if (!file->convert) {
    MILL_TRY(mill_alloc_bytes(CONVERT_BYTES, 1, &file->convert));
  }
  /* a row may be longer than the buffer: pieces within rows */
  const int64_t max_piece = CONVERT_BYTES / 8;
  while (done_rows < n_row && status == 0) {
    const int64_t n_axis0 = hdu->axis[0];
    *first_slow = (long)(first_row + done_rows) + 1;
    for (int64_t at = 0; at < row_pix && status == 0;) {
      first[0] = (long)(at % n_axis0) + 1;
      if (hdu->n_axis == 3)
        first[1] = (long)(at / n_axis0) + 1;
      const int64_t n = row_pix - at < max_piece ? row_pix - at : max_piece;
      if (fits_read_pix(fptr, im->convert, first, n,
                        im->fill_null && im->convert == TDOUBLE ? &double_nan : NULL, file->convert,
                        &any_null, &status))
        break;
      const int64_t to = done_rows * row_pix + at;
      for (int64_t i = 0; i < n; i++) {
        if (im->convert == TDOUBLE)
          ((float *)out)[to + i] = narrow(((const double *)file->convert)[i]);
        else
          ((int32_t *)out)[to + i] = fold_mask(((const uint64_t *)file->convert)[i] + im->offset);
      }
      at += n;
    }
    done_rows++;
  }
  if (status != 0) {
    char what[96];
    snprintf(what, sizeof what, "rows %lld to %lld cannot be read", (long long)first_row,
             (long long)(first_row + n_row - 1));
    err = mill_fits_file_error(file->fits, im->i_hdu, what, status);
  }
done:
  return err;
}

int mill_desi_read(mill_desi_file *file, int i_arm, const int64_t *fits_row, int n,
                   mill_desi_block *block)
{
  int err = MILL_OK;
  const char *path = file->fits->guard->path;
  if (i_arm < 0 || i_arm >= file->n_arm || file->arm[i_arm].info.n_pix == 0)
    MILL_FAIL(MILL_ERR_RANGE, "%s: has no arm %d", path, i_arm);
  const arm *a = &file->arm[i_arm];
  if (block->resolution && a->info.n_diag == 0)
    MILL_FAIL(MILL_ERR_RANGE, "%s: arm %s has no resolution matrix", path, a->prefix);
  for (int i = 0; i < n; i++)
    if (fits_row[i] < 0 || fits_row[i] >= file->n_spec)
      MILL_FAIL(MILL_ERR_RANGE, "%s: row %lld is not among its %lld", path, (long long)fits_row[i],
                (long long)file->n_spec);
  const int64_t n_pix = a->info.n_pix;
  const struct {
    const image *im;
    char *out;
    int64_t row_pix;
  } wanted[] = {{&a->flux, (char *)block->flux, n_pix},
                {&a->ivar, (char *)block->ivar, n_pix},
                {&a->mask, (char *)block->mask, n_pix},
                {&a->resolution, (char *)block->resolution, n_pix * a->info.n_diag}};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    if (!wanted[i].out)
      continue;
    const size_t row_bytes = (size_t)wanted[i].row_pix * 4; /* float and int32 alike */
    if (wanted[i].im->i_hdu < 0) {
      memset(wanted[i].out, 0, (size_t)n * row_bytes);
      continue;
    }
    for (int start = 0, end; start < n; start = end) {
      end = start + 1;
      while (end < n && fits_row[end] == fits_row[end - 1] + 1)
        end++;
      const int64_t row_pix = wanted[i].row_pix, n_row = end - start;
      char *out = wanted[i].out + (size_t)start * row_bytes;
      if (wanted[i].im->plain)
        MILL_TRY(mill_fits_file_words(file->fits, wanted[i].im->i_hdu, fits_row[start] * row_pix,
                                      n_row * row_pix, out));
      else
        MILL_TRY(read_run(file, wanted[i].im, fits_row[start], n_row, row_pix, out));
    }
  }
done:
  return err;
}

/* ---- as a format ------------------------------------------------------- */

typedef struct desi_state {
  const mill_spectra_settings *settings;
  mill_desi_file *file;
} desi_state;

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
  arm wanted;
  set_prefix(&wanted, name);
  for (int i = 0; i < file->n_arm; i++)
    if (strcmp(file->arm[i].prefix, wanted.prefix) == 0)
      return i;
  return -1;
}

static int has_arm(const mill_desi_file *file, const char *name)
{
  arm wanted;
  char hdu[2 * MILL_MAX_NAME];
  set_prefix(&wanted, name);
  snprintf(hdu, sizeof hdu, "%s_FLUX", wanted.prefix);
  for (int i = 0; i < file->fits->guard->n_hdu; i++)
    if (strcmp(file->fits->guard->hdu[i].name, hdu) == 0)
      return 1;
  return 0;
}

/* The arms of the library by name, and channels that the configuration names; when the file
 * has none of them, everything it has is cut by wavelength. */
static int choose_arms(mill_desi_file *file, const mill_spectra_settings *settings)
{
  int err = MILL_OK;
  const mill_library *lib = settings->lib;
  const mill_config *config = settings->config;
  int n_there = 0;
  file->n_arm = 0;
  for (int i = 0; i < lib->n_arm; i++) {
    set_prefix(&file->arm[file->n_arm++], lib->arm[i].name);
    n_there += has_arm(file, lib->arm[i].name);
  }
  for (int i = 0; i < config->n_arm; i++) {
    const char *name = config->arm[i].channel;
    if (!name[0] || find_prefix(file, name) >= 0 || !has_arm(file, name))
      continue;
    if (file->n_arm == MILL_MAX_ARM)
      MILL_FAIL(MILL_ERR_INPUT, "%s: more than %d channels are asked for; name fewer in arms",
                file->fits->guard->path, MILL_MAX_ARM);
    set_prefix(&file->arm[file->n_arm++], name);
    n_there++;
  }
  if (n_there > 0)
    goto done;
  int n_channel = 0;
  for (int i = 0; i < file->fits->guard->n_hdu; i++) {
    char name[MILL_MAX_NAME] = "";
    size_t n;
    if (!has_suffix(file->fits->guard->hdu[i].name, "_FLUX", &n) || n >= sizeof name)
      continue;
    if (n_channel == MILL_MAX_ARM)
      MILL_FAIL(MILL_ERR_INPUT, "%s: has more than %d arms, which is no DESI file",
                file->fits->guard->path, MILL_MAX_ARM);
    memcpy(name, file->fits->guard->hdu[i].name, n);
    set_prefix(&file->arm[n_channel++], name);
  }
  if (n_channel > 0)
    file->n_arm = n_channel;
done:
  return err;
}

static void desi_close(void *state)
{
  desi_state *desi = state;
  if (!desi)
    return;
  mill_desi_close(desi->file);
  mill_free(desi);
}

static int desi_open(mill_fits_file *fits, const mill_spectra_settings *settings, void **state)
{
  int err = MILL_OK;
  desi_state *desi = NULL;
  *state = NULL;
  MILL_TRY(MILL_ALLOC(1, &desi));
  desi->settings = settings;
  MILL_TRY(MILL_ALLOC(1, &desi->file));
  desi->file->fits = fits;
  set_limits(desi->file, &settings->limits);
  MILL_TRY(choose_arms(desi->file, settings));
  MILL_TRY(open_arms(desi->file));
  *state = desi;
  desi = NULL;
done:
  desi_close(desi);
  return err;
}

/* The pipeline of DESI puts all spectra into the frame of the solar system's barycentre. */
static int desi_frame(const void *state)
{
  (void)state;
  return MILL_FRAME_BARYCENTRIC;
}

static int desi_index(void *state, const mill_selection *select, mill_file_index *index)
{
  const desi_state *desi = state;
  return mill_desi_index(desi->file, select,
                         desi->settings->config->exposures == MILL_EXPOSURES_JOINT, index);
}

/* What does not change from row to row. */
static mill_channel describe_channel(const mill_desi_file *file, int i)
{
  const arm *a = &file->arm[i];
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
  int err = MILL_OK;
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
      MILL_TRY(mill_spectra_alloc(spectra, at * sizeof *memory, (void **)&memory));
  }
done:
  return err;
}

/* One read per image for all rows, straight into the batch's memory. */
static int desi_read(void *state, mill_spectra *spectra, const int64_t *exposure, int n)
{
  int err = MILL_OK;
  desi_state *desi = state;
  mill_desi_file *file = desi->file;
  mill_desi_block block[MILL_MAX_ARM];
  int wants[MILL_MAX_ARM];
  memset(block, 0, sizeof block);
  for (int i = 0; i < file->n_arm; i++) {
    const mill_channel channel = describe_channel(file, i);
    wants[i] = 0;
    if (channel.n_pix == 0)
      continue;
    MILL_TRY(mill_spectra_wants(spectra, &channel, &wants[i]));
  }
  MILL_TRY(place_blocks(file, spectra, wants, n, block));
  for (int i = 0; i < file->n_arm; i++)
    if (wants[i] & MILL_WANTS_PIXELS)
      MILL_TRY(mill_desi_read(file, i, exposure, n, &block[i]));
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
      MILL_TRY(mill_spectra_add(spectra, e, &channel));
    }
done:
  return err;
}

const mill_format mill_format_desi = {
    .name = "desi",
    .description = "DESI coadd and spectra files",
    .recognise = desi_recognise,
    .open = desi_open,
    .close = desi_close,
    .frame = desi_frame,
    .index = desi_index,
    .read = desi_read,
};
