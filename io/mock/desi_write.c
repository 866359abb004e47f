#include "io/mock/desi_write.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "io/fits/fits_stream.h"
#include "kernels/base/error.h"

enum {
  MAX_ARM_NAME = 15,
  N_IMAGE = 5,           /* wavelength, flux, ivar, mask, resolution */
  FIRST_ARM_HDU = 4,     /* primary, FIBERMAP, EXP_FIBERMAP and SCORES come before */
  PIXEL_BYTES = 1 << 16, /* buffer for pixels of one call, unless a row is longer */
  MAX_KNOWN = 16,        /* resolution matrices kept per arm; the simulator has 5 */
  MAX_IOV = 64,          /* matrices of one call */
  MOCK_EXPID = 1
};

#define N(array) (int)(sizeof(array) / sizeof *(array))

/* Size and, with a path, state of what was described without a failure; the description is
 * freed. */
static int compare(int err, mill_fits_stream *stream, const char *path, int64_t *n_byte, int *state)
{
  MILL_TRY(err);
  *n_byte = mill_fits_stream_bytes(stream);
  if (path)
    MILL_TRY(mill_fits_stream_compare(stream, path, state));
done:
  mill_fits_stream_destroy(stream);
  return err;
}

/* ---- coadd files ------------------------------------------------------------------------ */

/* A row of FIBERMAP with what follows from it. */
typedef struct full_row {
  mill_fibermap_row row;
  int32_t brick_id, exp_id;
} full_row;

/* DESI's names, types and units. */
#define COLUMN(name, format, unit, member)                                                         \
  {                                                                                                \
    name, format, unit, offsetof(full_row, member)                                                 \
  }
static const mill_stream_column fibermap_column[] = {
    COLUMN("TARGETID", "K", NULL, row.target_id),
    COLUMN("LOCATION", "K", NULL, row.location),
    COLUMN("FIBER", "J", NULL, row.fiber),
    COLUMN("COADD_FIBERSTATUS", "J", NULL, row.fiber_status),
    COLUMN("TARGET_RA", "D", "deg", row.ra_deg),
    COLUMN("TARGET_DEC", "D", "deg", row.dec_deg),
    COLUMN("PMRA", "E", "mas yr^-1", row.pm_ra),
    COLUMN("PMDEC", "E", "mas yr^-1", row.pm_dec),
    COLUMN("REF_EPOCH", "E", "yr", row.ref_epoch),
    COLUMN("REF_ID", "K", NULL, row.ref_id),
    COLUMN("REF_CAT", "2A", NULL, row.ref_cat),
    COLUMN("OBJTYPE", "3A", NULL, row.objtype),
    COLUMN("BRICKID", "J", NULL, brick_id),
    COLUMN("DESI_TARGET", "K", NULL, row.desi_target),
    COLUMN("BGS_TARGET", "K", NULL, row.bgs_target),
    COLUMN("MWS_TARGET", "K", NULL, row.mws_target),
    COLUMN("SCND_TARGET", "K", NULL, row.scnd_target),
    COLUMN("FLUX_G", "E", "nanomaggy", row.flux_g),
    COLUMN("FLUX_R", "E", "nanomaggy", row.flux_r),
    COLUMN("FLUX_Z", "E", "nanomaggy", row.flux_z),
};
static const mill_stream_column exp_fibermap_column[] = {
    COLUMN("TARGETID", "K", NULL, row.target_id),       COLUMN("EXPID", "J", NULL, exp_id),
    COLUMN("LOCATION", "K", NULL, row.location),        COLUMN("FIBER", "J", NULL, row.fiber),
    COLUMN("FIBERSTATUS", "J", NULL, row.fiber_status),
};

/* A resolution matrix in the file's byte order. */
typedef struct known_matrix {
  const float *of; /* the caller's; NULL: none yet */
  void *swapped;   /* owned */
} known_matrix;

typedef struct writer_arm {
  int64_t n_pix, n_diag;
  int64_t n_written;
  known_matrix known[MAX_KNOWN];
} writer_arm;

struct mill_desi_writer {
  mill_fits_stream *stream;
  char path[MILL_STREAM_MAX_PATH];
  int64_t n_row;
  int n_arm;
  writer_arm arm[MILL_MAX_ARM];
  int has_fibermap;
  pthread_mutex_t lock; /* of known and n_written */
};

static int describe_arm(mill_fits_stream *stream, int64_t n_row, const mill_desi_write_arm *arm)
{
  static const struct {
    const char *name, *unit;
    int bitpix, n_axis;
  } image[N_IMAGE] = {{"WAVELENGTH", "Angstrom", -64, 1},
                      {"FLUX", "10**-17 erg/(s cm2 Angstrom)", -32, 2},
                      {"IVAR", "10**+34 (s2 cm4 Angstrom2) / erg2", -32, 2},
                      {"MASK", NULL, 32, 2},
                      {"RESOLUTION", NULL, -32, 3}};
  char prefix[MAX_ARM_NAME + 1] = "", name[40];
  const size_t n = strlen(arm->name);
  if (n < 1 || n > MAX_ARM_NAME || arm->n_pix < 1 || arm->n_diag < 1)
    return MILL_ERROR(MILL_ERR_RANGE, "arm '%s' of %d pixels and %d diagonals cannot be written",
                      arm->name, arm->n_pix, arm->n_diag);
  for (size_t i = 0; i < n; i++)
    prefix[i] = (char)toupper((unsigned char)arm->name[i]);
  const int64_t plane[] = {arm->n_pix, n_row}, cube[] = {arm->n_pix, arm->n_diag, n_row};
  for (int i = 0; i < N_IMAGE; i++) {
    snprintf(name, sizeof name, "%s_%s", prefix, image[i].name);
    MILL_CHECK(mill_fits_stream_image(stream, name, image[i].bitpix, image[i].n_axis,
                                      image[i].n_axis == 3 ? cube : plane, image[i].unit));
  }
  return MILL_OK;
}

/* SCORES, [n_arm + 1] with room for names. */
static void describe_scores(int n_arm, const mill_desi_write_arm *arm, char (*name)[40],
                            mill_stream_column *column)
{
  column[0] = (mill_stream_column)COLUMN("TARGETID", "K", NULL, row.target_id);
  for (int a = 0; a < n_arm; a++) {
    snprintf(name[a], sizeof name[a], "MEDIAN_COADD_SNR_%.*s", MAX_ARM_NAME,
             arm ? arm[a].name : "");
    for (char *c = name[a]; *c; c++)
      *c = (char)toupper((unsigned char)*c);
    column[a + 1] = (mill_stream_column){
        name[a], "E", NULL, offsetof(full_row, row.median_snr) + (size_t)a * sizeof(float)};
  }
}

/* All HDUs of a coadd file; *out is NULL before, and the caller's also at a failure. */
static int describe_coadd(const char *name, int64_t n_row, int n_arm,
                          const mill_desi_write_arm *arm, int n_history, const char *const *history,
                          mill_fits_stream **out)
{
  char name_of[MILL_MAX_ARM][40];
  mill_stream_column scores[MILL_MAX_ARM + 1];
  static const mill_stream_key key[] = {
      {"SPGRP", 'S', "healpix", 0, "grouping of spectra"},
      {"SPGRPVAL", 'I', NULL, 0, "a mock survey has no healpix"},
      {"HPXPIXEL", 'I', NULL, 0, "a mock survey has no healpix"},
      {"HPXNSIDE", 'I', NULL, 64, NULL},
      {"HPXNEST", 'L', NULL, 1, NULL},
      {"SURVEY", 'S', "mock", 0, NULL},
      {"PROGRAM", 'S', "starmill", 0, NULL},
  };
  if (n_row < 1 || n_arm < 1 || n_arm > MILL_MAX_ARM)
    return MILL_ERROR(MILL_ERR_RANGE, "%s: %lld rows and %d arms cannot be written", name,
                      (long long)n_row, n_arm);
  MILL_CHECK(mill_fits_stream_create(name, N(key), key, n_history, history, out));
  describe_scores(n_arm, arm, name_of, scores);
  MILL_CHECK(mill_fits_stream_table(*out, "FIBERMAP", n_row, N(fibermap_column), fibermap_column));
  MILL_CHECK(mill_fits_stream_table(*out, "EXP_FIBERMAP", n_row, N(exp_fibermap_column),
                                    exp_fibermap_column));
  MILL_CHECK(mill_fits_stream_table(*out, "SCORES", n_row, n_arm + 1, scores));
  for (int a = 0; a < n_arm; a++)
    MILL_CHECK(describe_arm(*out, n_row, &arm[a]));
  return MILL_OK;
}

static int image_hdu(int i_arm, int i_image)
{
  return FIRST_ARM_HDU + N_IMAGE * i_arm + i_image;
}

static int write_wavelengths(const mill_desi_writer *writer, int i_arm, const double *wave_aa)
{
  int err = MILL_OK;
  double *swapped = NULL;
  const int64_t n_pix = writer->arm[i_arm].n_pix;
  MILL_TRY(MILL_ALLOC(n_pix, &swapped));
  mill_fits_swap64(wave_aa, n_pix, swapped);
  struct iovec iov = {swapped, (size_t)n_pix * sizeof *swapped};
  MILL_TRY(mill_fits_stream_put(writer->stream, image_hdu(i_arm, 0), 0, &iov, 1));
done:
  mill_free(swapped);
  return err;
}

int mill_desi_writer_open(const char *path, int overwrite, int64_t n_row, int n_arm,
                          const mill_desi_write_arm *arm, int n_history, const char *const *history,
                          mill_desi_writer **out)
{
  int err = MILL_OK;
  mill_desi_writer *writer = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &writer));
  pthread_mutex_init(&writer->lock, NULL);
  snprintf(writer->path, sizeof writer->path, "%s", path);
  writer->n_row = n_row;
  writer->n_arm = n_arm;
  MILL_TRY(describe_coadd(path, n_row, n_arm, arm, n_history, history, &writer->stream));
  for (int a = 0; a < n_arm; a++) {
    writer->arm[a].n_pix = arm[a].n_pix;
    writer->arm[a].n_diag = arm[a].n_diag;
  }
  MILL_TRY(mill_fits_stream_open(writer->stream, path, overwrite));
  for (int a = 0; a < n_arm; a++)
    MILL_TRY(write_wavelengths(writer, a, arm[a].wave_aa));
  *out = writer;
done:
  if (err != MILL_OK)
    mill_desi_writer_free(writer);
  return err;
}

/* n values of 32 bits at a place of an image, by way of buffer [PIXEL_BYTES / 4]. */
static int write_pixels(const mill_desi_writer *writer, int i_hdu, int64_t at, const void *pixel,
                        int64_t n, uint32_t *buffer)
{
  for (int64_t i = 0; i < n; i += PIXEL_BYTES / 4) {
    const int64_t n_now = n - i < PIXEL_BYTES / 4 ? n - i : PIXEL_BYTES / 4;
    mill_fits_swap32((const char *)pixel + 4 * i, n_now, buffer);
    struct iovec iov = {buffer, 4 * (size_t)n_now};
    MILL_CHECK(mill_fits_stream_put(writer->stream, i_hdu, 4 * (at + i), &iov, 1));
  }
  return MILL_OK;
}

/* The matrix in the file's byte order; *out stays NULL when there is no more room for it. */
static int find_matrix(mill_desi_writer *writer, writer_arm *arm, const float *matrix, void **out)
{
  int err = MILL_OK;
  *out = NULL;
  pthread_mutex_lock(&writer->lock);
  int i = 0;
  while (i < MAX_KNOWN && arm->known[i].of && arm->known[i].of != matrix)
    i++;
  if (i == MAX_KNOWN)
    goto done;
  if (!arm->known[i].of) {
    const int64_t n = arm->n_diag * arm->n_pix;
    MILL_TRY(mill_alloc_bytes((size_t)n, 4, &arm->known[i].swapped));
    mill_fits_swap32(matrix, n, arm->known[i].swapped);
    arm->known[i].of = matrix;
  }
  *out = arm->known[i].swapped;
done:
  pthread_mutex_unlock(&writer->lock);
  return err;
}

static int write_matrices(mill_desi_writer *writer, int i_arm, int64_t first, int n,
                          const float *const *resolution, uint32_t *buffer)
{
  writer_arm *arm = &writer->arm[i_arm];
  const int i_hdu = image_hdu(i_arm, 4);
  const int64_t n_value = arm->n_diag * arm->n_pix;
  struct iovec iov[MAX_IOV];
  int n_iov = 0;
  for (int i = 0; i < n; i++) {
    void *swapped = NULL;
    MILL_CHECK(find_matrix(writer, arm, resolution[i], &swapped));
    if (swapped)
      iov[n_iov++] = (struct iovec){swapped, 4 * (size_t)n_value};
    const int64_t begun = first + i + (swapped ? 1 : 0) - n_iov; /* row of iov[0] */
    if (n_iov > 0 && (n_iov == MAX_IOV || !swapped || i + 1 == n)) {
      MILL_CHECK(mill_fits_stream_put(writer->stream, i_hdu, 4 * n_value * begun, iov, n_iov));
      n_iov = 0;
    }
    if (!swapped)
      MILL_CHECK(
          write_pixels(writer, i_hdu, n_value * (first + i), resolution[i], n_value, buffer));
  }
  return MILL_OK;
}

int mill_desi_writer_rows(mill_desi_writer *writer, int i_arm, int64_t first, int n,
                          const float *flux, const float *ivar, const int32_t *mask,
                          const float *const *resolution)
{
  int err = MILL_OK;
  uint32_t *buffer = NULL;
  if (i_arm < 0 || i_arm >= writer->n_arm || first < 0 || n < 0 || first > writer->n_row - n)
    MILL_FAIL(MILL_ERR_RANGE, "%s: rows %lld to %lld of arm %d are not in it", writer->path,
              (long long)first, (long long)first + n - 1, i_arm);
  writer_arm *arm = &writer->arm[i_arm];
  const int64_t at = first * arm->n_pix, n_value = n * arm->n_pix;
  MILL_TRY(MILL_ALLOC(PIXEL_BYTES / 4, &buffer));
  MILL_TRY(write_pixels(writer, image_hdu(i_arm, 1), at, flux, n_value, buffer));
  MILL_TRY(write_pixels(writer, image_hdu(i_arm, 2), at, ivar, n_value, buffer));
  MILL_TRY(write_pixels(writer, image_hdu(i_arm, 3), at, mask, n_value, buffer));
  MILL_TRY(write_matrices(writer, i_arm, first, n, resolution, buffer));
  pthread_mutex_lock(&writer->lock);
  arm->n_written += n;
  pthread_mutex_unlock(&writer->lock);
done:
  mill_free(buffer);
  return err;
}

int mill_desi_writer_fibermap(mill_desi_writer *writer, const mill_fibermap_row *row)
{
  int err = MILL_OK;
  full_row *full = NULL;
  char name[MILL_MAX_ARM][40];
  mill_stream_column scores[MILL_MAX_ARM + 1];
  describe_scores(writer->n_arm, NULL, name, scores);
  MILL_TRY(MILL_ALLOC(writer->n_row, &full));
  for (int64_t i = 0; i < writer->n_row; i++)
    full[i] = (full_row){row[i], (int32_t)(row[i].target_id >> 22 & 0xFFFFF), MOCK_EXPID};
  MILL_TRY(mill_fits_stream_rows(writer->stream, 1, N(fibermap_column), fibermap_column, 0,
                                 writer->n_row, full, sizeof *full));
  MILL_TRY(mill_fits_stream_rows(writer->stream, 2, N(exp_fibermap_column), exp_fibermap_column, 0,
                                 writer->n_row, full, sizeof *full));
  MILL_TRY(mill_fits_stream_rows(writer->stream, 3, writer->n_arm + 1, scores, 0, writer->n_row,
                                 full, sizeof *full));
  writer->has_fibermap = 1;
done:
  mill_free(full);
  return err;
}

int mill_desi_writer_commit(mill_desi_writer *writer)
{
  for (int a = 0; a < writer->n_arm; a++)
    if (writer->arm[a].n_written != writer->n_row || !writer->has_fibermap)
      return MILL_ERROR(MILL_ERR_RANGE, "%s: %lld of %lld rows of arm %d were written%s",
                        writer->path, (long long)writer->arm[a].n_written, (long long)writer->n_row,
                        a, writer->has_fibermap ? "" : ", and no FIBERMAP");
  return mill_fits_stream_commit(writer->stream);
}

void mill_desi_writer_free(mill_desi_writer *writer)
{
  if (!writer)
    return;
  mill_fits_stream_destroy(writer->stream);
  for (int a = 0; a < MILL_MAX_ARM; a++)
    for (int i = 0; i < MAX_KNOWN; i++)
      mill_free(writer->arm[a].known[i].swapped);
  pthread_mutex_destroy(&writer->lock);
  mill_free(writer);
}

int mill_desi_compare(const char *path, int64_t n_row, int n_arm, const mill_desi_write_arm *arm,
                      int n_history, const char *const *history, int64_t *n_byte, int *state)
{
  mill_fits_stream *stream = NULL;
  const int err =
      describe_coadd(path ? path : "a coadd file", n_row, n_arm, arm, n_history, history, &stream);
  return compare(err, stream, path, n_byte, state);
}

/* ---- redrock ---------------------------------------------------------------------------- */

static const mill_stream_column redrock_column[] = {
    {"TARGETID", "K", NULL, offsetof(mill_redrock_row, target_id)},
    {"Z", "D", NULL, offsetof(mill_redrock_row, z)},
    {"ZERR", "D", NULL, offsetof(mill_redrock_row, zerr)},
    {"ZWARN", "K", NULL, offsetof(mill_redrock_row, zwarn)},
    {"CHI2", "D", NULL, offsetof(mill_redrock_row, chi2)},
    {"SPECTYPE", "6A", NULL, offsetof(mill_redrock_row, spectype)},
    {"SUBTYPE", "20A", NULL, offsetof(mill_redrock_row, subtype)},
    {"DELTACHI2", "D", NULL, offsetof(mill_redrock_row, delta_chi2)},
};

static int describe_redrock(const char *name, int64_t n_row, int n_history,
                            const char *const *history, mill_fits_stream **out)
{
  MILL_CHECK(mill_fits_stream_create(name, 0, NULL, n_history, history, out));
  return mill_fits_stream_table(*out, "REDSHIFTS", n_row, N(redrock_column), redrock_column);
}

int mill_redrock_write(const char *path, int64_t n_row, const mill_redrock_row *row, int n_history,
                       const char *const *history)
{
  int err = MILL_OK;
  mill_fits_stream *stream = NULL;
  MILL_TRY(describe_redrock(path, n_row, n_history, history, &stream));
  MILL_TRY(mill_fits_stream_open(stream, path, 0));
  MILL_TRY(mill_fits_stream_rows(stream, 1, N(redrock_column), redrock_column, 0, n_row, row,
                                 sizeof *row));
  MILL_TRY(mill_fits_stream_commit(stream));
done:
  mill_fits_stream_destroy(stream);
  return err;
}

int mill_redrock_compare(const char *path, int64_t n_row, int n_history, const char *const *history,
                         int64_t *n_byte, int *state)
{
  mill_fits_stream *stream = NULL;
  const int err =
      describe_redrock(path ? path : "a redrock file", n_row, n_history, history, &stream);
  return compare(err, stream, path, n_byte, state);
}

/* ---- truth table ------------------------------------------------------------------------ */

enum { N_TRUTH_FIXED = 9 };

struct mill_truth_writer {
  mill_fits_stream *stream;
  char path[MILL_STREAM_MAX_PATH];
  int64_t n_row, n_written;
  int n_label;
};

/* Columns of the table, [n_label + N_TRUTH_FIXED]; those of the labels get names and units from
 * shape, which may be NULL where these do not matter. */
static void truth_columns(int n_label, const mill_truth_shape *shape, mill_stream_column *column)
{
  static const mill_stream_column after[] = {
      {"VRAD", "D", "km/s", offsetof(mill_truth_row, vrad_km_s)},
      {"VSINI", "D", "km/s", offsetof(mill_truth_row, vsini_km_s)},
      {"SN", "D", NULL, offsetof(mill_truth_row, sn)},
      {"LSF_GROUP", "J", NULL, offsetof(mill_truth_row, lsf_group)},
      {"TEMPLATE", "J", NULL, offsetof(mill_truth_row, template_index)},
      {"FILE", "J", NULL, offsetof(mill_truth_row, file)},
      {"FITS_ROW", "K", NULL, offsetof(mill_truth_row, fits_row)},
      {"KIND", "24A", NULL, offsetof(mill_truth_row, kind)}};
  static_assert(N(after) + 1 == N_TRUTH_FIXED && sizeof((mill_truth_row){0}.kind) == 24,
                "as many columns, and texts as long, as said");
  *column++ = (mill_stream_column){"TARGETID", "K", NULL, offsetof(mill_truth_row, target_id)};
  for (int i = 0; i < n_label; i++)
    *column++ = (mill_stream_column){shape ? shape->label_column[i] : NULL, "D",
                                     shape && *shape->label_unit[i] ? shape->label_unit[i] : NULL,
                                     offsetof(mill_truth_row, label) + (size_t)i * sizeof(double)};
  memcpy(column, after, sizeof after);
}

/* Bytes of the longest name of a file. */
static size_t name_bytes(const mill_truth_shape *shape)
{
  size_t n = 1;
  for (int i = 0; i < shape->n_file; i++)
    n = strlen(shape->file[i]) > n ? strlen(shape->file[i]) : n;
  return n;
}

static int describe_truth(const char *name, const mill_truth_shape *shape, mill_fits_stream **out)
{
  mill_stream_column column[MILL_MAX_LABEL + N_TRUTH_FIXED];
  char format[24];
  if (shape->n_label < 0 || shape->n_label > MILL_MAX_LABEL || shape->n_file < 1)
    return MILL_ERROR(MILL_ERR_RANGE, "%s: %d labels and %d files cannot be written", name,
                      shape->n_label, shape->n_file);
  const size_t n_name = name_bytes(shape);
  if (n_name > MILL_STREAM_MAX_PATH)
    return MILL_ERROR(MILL_ERR_RANGE, "%s: a file name of %zu bytes", name, n_name);
  truth_columns(shape->n_label, shape, column);
  snprintf(format, sizeof format, "%zuA", n_name);
  const mill_stream_column file_column = {"FILE", format, NULL, 0};
  MILL_CHECK(mill_fits_stream_create(name, 0, NULL, shape->n_history, shape->history, out));
  MILL_CHECK(
      mill_fits_stream_table(*out, "TRUTH", shape->n_row, shape->n_label + N_TRUTH_FIXED, column));
  return mill_fits_stream_table(*out, "FILES", shape->n_file, 1, &file_column);
}

static int write_file_names(mill_fits_stream *stream, const mill_truth_shape *shape)
{
  int err = MILL_OK;
  const size_t n_name = name_bytes(shape);
  char *text = NULL, format[24];
  MILL_TRY(MILL_ALLOC((size_t)shape->n_file * (n_name + 1), &text));
  for (int i = 0; i < shape->n_file; i++)
    strcpy(text + (size_t)i * (n_name + 1), shape->file[i]);
  snprintf(format, sizeof format, "%zuA", n_name);
  const mill_stream_column column = {"FILE", format, NULL, 0};
  MILL_TRY(mill_fits_stream_rows(stream, 2, 1, &column, 0, shape->n_file, text, n_name + 1));
done:
  mill_free(text);
  return err;
}

int mill_truth_writer_open(const char *path, int overwrite, const mill_truth_shape *shape,
                           mill_truth_writer **out)
{
  int err = MILL_OK;
  mill_truth_writer *writer = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &writer));
  snprintf(writer->path, sizeof writer->path, "%s", path);
  writer->n_row = shape->n_row;
  writer->n_label = shape->n_label;
  MILL_TRY(describe_truth(path, shape, &writer->stream));
  MILL_TRY(mill_fits_stream_open(writer->stream, path, overwrite));
  MILL_TRY(write_file_names(writer->stream, shape));
  *out = writer;
done:
  if (err != MILL_OK)
    mill_truth_writer_free(writer);
  return err;
}

int mill_truth_writer_rows(mill_truth_writer *writer, int64_t first, int n,
                           const mill_truth_row *row)
{
  mill_stream_column column[MILL_MAX_LABEL + N_TRUTH_FIXED];
  if (first < 0 || n < 0 || first > writer->n_row - n)
    return MILL_ERROR(MILL_ERR_RANGE, "%s: rows %lld to %lld are not in it", writer->path,
                      (long long)first, (long long)first + n - 1);
  truth_columns(writer->n_label, NULL, column);
  MILL_CHECK(mill_fits_stream_rows(writer->stream, 1, writer->n_label + N_TRUTH_FIXED, column,
                                   first, n, row, sizeof *row));
  writer->n_written += n;
  return MILL_OK;
}

int mill_truth_writer_commit(mill_truth_writer *writer)
{
  if (writer->n_written != writer->n_row)
    return MILL_ERROR(MILL_ERR_RANGE, "%s: %lld of %lld rows were written", writer->path,
                      (long long)writer->n_written, (long long)writer->n_row);
  return mill_fits_stream_commit(writer->stream);
}

void mill_truth_writer_free(mill_truth_writer *writer)
{
  if (!writer)
    return;
  mill_fits_stream_destroy(writer->stream);
  mill_free(writer);
}

int mill_truth_compare(const char *path, const mill_truth_shape *shape, int64_t *n_byte, int *state)
{
  mill_fits_stream *stream = NULL;
  const int err = describe_truth(path ? path : "a truth table", shape, &stream);
  return compare(err, stream, path, n_byte, state);
}
