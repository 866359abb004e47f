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
  TABLE_BYTES = 1 << 18, /* buffer for rows of tables */
  PIXEL_BYTES = 1 << 16, /* buffer for pixels of one call, unless a row is longer */
  MAX_KNOWN = 16,        /* resolution matrices kept per arm; the simulator has 5 */
  MAX_IOV = 64,          /* matrices of one call */
  MOCK_EXPID = 1,
  REDROCK_SPECTYPE = 6,
  REDROCK_SUBTYPE = 20,
  TRUTH_KIND = 24
};

/* Bytes of a table in the making; the buffer holds whole rows. */
typedef struct rows {
  mill_fits_stream *stream;
  int i_hdu;
  int64_t offset; /* of the buffer in the data */
  int64_t used;
  char *buffer; /* [TABLE_BYTES], owned */
} rows;

static int rows_begin(rows *r, mill_fits_stream *stream, int i_hdu, int64_t offset)
{
  *r = (rows){.stream = stream, .i_hdu = i_hdu, .offset = offset};
  return MILL_ALLOC(TABLE_BYTES, &r->buffer);
}

static int rows_flush(rows *r)
{
  struct iovec iov = {r->buffer, (size_t)r->used};
  const int err = mill_fits_stream_put(r->stream, r->i_hdu, r->offset, &iov, 1);
  r->offset += r->used;
  r->used = 0;
  return err;
}

static int rows_room(rows *r, int64_t bytes)
{
  return r->used + bytes > TABLE_BYTES ? rows_flush(r) : MILL_OK;
}

static void put_int64(rows *r, int64_t value)
{
  mill_fits_swap64(&value, 1, r->buffer + r->used);
  r->used += 8;
}

static void put_double(rows *r, double value)
{
  mill_fits_swap64(&value, 1, r->buffer + r->used);
  r->used += 8;
}

static void put_int32(rows *r, int32_t value)
{
  mill_fits_swap32(&value, 1, r->buffer + r->used);
  r->used += 4;
}

static void put_float(rows *r, float value)
{
  mill_fits_swap32(&value, 1, r->buffer + r->used);
  r->used += 4;
}

/* Padded with blanks, as FITS texts are. */
static void put_text(rows *r, const char *text, int width)
{
  const size_t n = strnlen(text, (size_t)width);
  memset(r->buffer + r->used, ' ', (size_t)width);
  memcpy(r->buffer + r->used, text, n);
  r->used += width;
}

/* ---- coadd files ------------------------------------------------------------------------ */

/* DESI's names, types and units. */
static const mill_stream_column fibermap_column[] = {
    {"TARGETID", "K", NULL},      {"LOCATION", "K", NULL},
    {"FIBER", "J", NULL},         {"COADD_FIBERSTATUS", "J", NULL},
    {"TARGET_RA", "D", "deg"},    {"TARGET_DEC", "D", "deg"},
    {"PMRA", "E", "mas yr^-1"},   {"PMDEC", "E", "mas yr^-1"},
    {"REF_EPOCH", "E", "yr"},     {"REF_ID", "K", NULL},
    {"REF_CAT", "2A", NULL},      {"OBJTYPE", "3A", NULL},
    {"BRICKID", "J", NULL},       {"DESI_TARGET", "K", NULL},
    {"BGS_TARGET", "K", NULL},    {"MWS_TARGET", "K", NULL},
    {"SCND_TARGET", "K", NULL},   {"FLUX_G", "E", "nanomaggy"},
    {"FLUX_R", "E", "nanomaggy"}, {"FLUX_Z", "E", "nanomaggy"},
};
static const mill_stream_column exp_fibermap_column[] = {
    {"TARGETID", "K", NULL}, {"EXPID", "J", NULL},       {"LOCATION", "K", NULL},
    {"FIBER", "J", NULL},    {"FIBERSTATUS", "J", NULL},
};
enum {
  N_FIBERMAP = sizeof fibermap_column / sizeof fibermap_column[0],
  N_EXP_FIBERMAP = sizeof exp_fibermap_column / sizeof exp_fibermap_column[0],
  ROW_ROOM = 256 /* bytes that no row of these tables exceeds */
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
  int err = MILL_OK;
  char prefix[MAX_ARM_NAME + 1] = "", name[40];
  const size_t n = strlen(arm->name);
  if (n < 1 || n > MAX_ARM_NAME || arm->n_pix < 1 || arm->n_diag < 1)
    MILL_FAIL(MILL_ERR_RANGE, "arm '%s' of %d pixels and %d diagonals cannot be written", arm->name,
              arm->n_pix, arm->n_diag);
  for (size_t i = 0; i < n; i++)
    prefix[i] = (char)toupper((unsigned char)arm->name[i]);
  const int64_t plane[2] = {arm->n_pix, n_row}, cube[3] = {arm->n_pix, arm->n_diag, n_row};
  snprintf(name, sizeof name, "%s_WAVELENGTH", prefix);
  MILL_TRY(mill_fits_stream_image(stream, name, -64, 1, plane, "Angstrom"));
  snprintf(name, sizeof name, "%s_FLUX", prefix);
  MILL_TRY(mill_fits_stream_image(stream, name, -32, 2, plane, "10**-17 erg/(s cm2 Angstrom)"));
  snprintf(name, sizeof name, "%s_IVAR", prefix);
  MILL_TRY(
      mill_fits_stream_image(stream, name, -32, 2, plane, "10**+34 (s2 cm4 Angstrom2) / erg2"));
  snprintf(name, sizeof name, "%s_MASK", prefix);
  MILL_TRY(mill_fits_stream_image(stream, name, 32, 2, plane, NULL));
  snprintf(name, sizeof name, "%s_RESOLUTION", prefix);
  MILL_TRY(mill_fits_stream_image(stream, name, -32, 3, cube, NULL));
done:
  return err;
}

/* All HDUs of a coadd file. */
static int describe_coadd(const char *name, int64_t n_row, int n_arm,
                          const mill_desi_write_arm *arm, int n_history, const char *const *history,
                          mill_fits_stream **out)
{
  int err = MILL_OK;
  mill_fits_stream *stream = NULL;
  char column[MILL_MAX_ARM][40];
  mill_stream_column scores[MILL_MAX_ARM + 1] = {{"TARGETID", "K", NULL}};
  static const mill_stream_key key[] = {
      {"SPGRP", 'S', "healpix", 0, "grouping of spectra"},
      {"SPGRPVAL", 'I', NULL, 0, "a mock survey has no healpix"},
      {"HPXPIXEL", 'I', NULL, 0, "a mock survey has no healpix"},
      {"HPXNSIDE", 'I', NULL, 64, NULL},
      {"HPXNEST", 'L', NULL, 1, NULL},
      {"SURVEY", 'S', "mock", 0, NULL},
      {"PROGRAM", 'S', "starmill", 0, NULL},
  };
  *out = NULL;
  if (n_row < 1 || n_arm < 1 || n_arm > MILL_MAX_ARM)
    MILL_FAIL(MILL_ERR_RANGE, "%s: %lld rows and %d arms cannot be written", name, (long long)n_row,
              n_arm);
  MILL_TRY(
      mill_fits_stream_create(name, sizeof key / sizeof key[0], key, n_history, history, &stream));
  MILL_TRY(mill_fits_stream_table(stream, "FIBERMAP", n_row, N_FIBERMAP, fibermap_column));
  MILL_TRY(
      mill_fits_stream_table(stream, "EXP_FIBERMAP", n_row, N_EXP_FIBERMAP, exp_fibermap_column));
  for (int a = 0; a < n_arm; a++) {
    snprintf(column[a], sizeof column[a], "MEDIAN_COADD_SNR_%.*s", MAX_ARM_NAME, arm[a].name);
    for (char *c = column[a]; *c; c++)
      *c = (char)toupper((unsigned char)*c);
    scores[a + 1] = (mill_stream_column){column[a], "E", NULL};
  }
  MILL_TRY(mill_fits_stream_table(stream, "SCORES", n_row, n_arm + 1, scores));
  for (int a = 0; a < n_arm; a++)
    MILL_TRY(describe_arm(stream, n_row, &arm[a]));
  *out = stream;
done:
  if (err != MILL_OK)
    mill_fits_stream_destroy(stream);
  return err;
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
    mill_desi_writer_abandon(writer);
  return err;
}

/* n values of 32 bits at a place of an image, by way of buffer [PIXEL_BYTES / 4]. */
static int write_pixels(const mill_desi_writer *writer, int i_hdu, int64_t at, const void *pixel,
                        int64_t n, uint32_t *buffer)
{
  int err = MILL_OK;
  for (int64_t i = 0; i < n; i += PIXEL_BYTES / 4) {
    const int64_t n_now = n - i < PIXEL_BYTES / 4 ? n - i : PIXEL_BYTES / 4;
    mill_fits_swap32((const char *)pixel + 4 * i, n_now, buffer);
    struct iovec iov = {buffer, 4 * (size_t)n_now};
    MILL_TRY(mill_fits_stream_put(writer->stream, i_hdu, 4 * (at + i), &iov, 1));
  }
done:
  return err;
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
  int err = MILL_OK;
  writer_arm *arm = &writer->arm[i_arm];
  const int i_hdu = image_hdu(i_arm, 4);
  const int64_t n_value = arm->n_diag * arm->n_pix;
  struct iovec iov[MAX_IOV];
  int n_iov = 0;
  for (int i = 0; i < n; i++) {
    void *swapped = NULL;
    MILL_TRY(find_matrix(writer, arm, resolution[i], &swapped));
    if (swapped)
      iov[n_iov++] = (struct iovec){swapped, 4 * (size_t)n_value};
    const int64_t begun = first + i + (swapped ? 1 : 0) - n_iov; /* row of iov[0] */
    if (n_iov > 0 && (n_iov == MAX_IOV || !swapped || i + 1 == n)) {
      MILL_TRY(mill_fits_stream_put(writer->stream, i_hdu, 4 * n_value * begun, iov, n_iov));
      n_iov = 0;
    }
    if (!swapped)
      MILL_TRY(write_pixels(writer, i_hdu, n_value * (first + i), resolution[i], n_value, buffer));
  }
done:
  return err;
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

static void put_fibermap_row(rows *r, const mill_fibermap_row *row)
{
  put_int64(r, row->target_id);
  put_int64(r, row->location);
  put_int32(r, row->fiber);
  put_int32(r, row->fiber_status);
  put_double(r, row->ra_deg);
  put_double(r, row->dec_deg);
  put_float(r, row->pm_ra);
  put_float(r, row->pm_dec);
  put_float(r, row->ref_epoch);
  put_int64(r, row->ref_id);
  put_text(r, row->ref_cat, 2);
  put_text(r, row->objtype, 3);
  put_int32(r, (int32_t)(row->target_id >> 22 & 0xFFFFF));
  put_int64(r, row->desi_target);
  put_int64(r, row->bgs_target);
  put_int64(r, row->mws_target);
  put_int64(r, row->scnd_target);
  put_float(r, row->flux_g);
  put_float(r, row->flux_r);
  put_float(r, row->flux_z);
}

static void put_exp_fibermap_row(rows *r, const mill_fibermap_row *row)
{
  put_int64(r, row->target_id);
  put_int32(r, MOCK_EXPID);
  put_int64(r, row->location);
  put_int32(r, row->fiber);
  put_int32(r, row->fiber_status);
}

int mill_desi_writer_fibermap(mill_desi_writer *writer, const mill_fibermap_row *row)
{
  int err = MILL_OK;
  rows r = {0};
  for (int i_hdu = 1; i_hdu < FIRST_ARM_HDU; i_hdu++) {
    mill_free(r.buffer);
    MILL_TRY(rows_begin(&r, writer->stream, i_hdu, 0));
    for (int64_t i = 0; i < writer->n_row; i++) {
      MILL_TRY(rows_room(&r, ROW_ROOM));
      if (i_hdu == 1) {
        put_fibermap_row(&r, &row[i]);
      } else if (i_hdu == 2) {
        put_exp_fibermap_row(&r, &row[i]);
      } else {
        put_int64(&r, row[i].target_id);
        for (int a = 0; a < writer->n_arm; a++)
          put_float(&r, row[i].median_snr[a]);
      }
    }
    MILL_TRY(rows_flush(&r));
  }
  writer->has_fibermap = 1;
done:
  mill_free(r.buffer);
  return err;
}

int mill_desi_writer_close(mill_desi_writer *writer)
{
  int err = MILL_OK;
  for (int a = 0; a < writer->n_arm; a++)
    if (writer->arm[a].n_written != writer->n_row || !writer->has_fibermap)
      MILL_FAIL(MILL_ERR_RANGE, "%s: %lld of %lld rows of arm %d were written%s", writer->path,
                (long long)writer->arm[a].n_written, (long long)writer->n_row, a,
                writer->has_fibermap ? "" : ", and no FIBERMAP");
  MILL_TRY(mill_fits_stream_commit(writer->stream));
done:
  mill_desi_writer_abandon(writer);
  return err;
}

void mill_desi_writer_abandon(mill_desi_writer *writer)
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

/* Size and, with a path, state; the description is freed. */
static int compare(mill_fits_stream *stream, const char *path, int64_t *n_byte, int *state)
{
  int err = MILL_OK;
  *n_byte = mill_fits_stream_bytes(stream);
  if (path)
    MILL_TRY(mill_fits_stream_compare(stream, path, state));
done:
  mill_fits_stream_destroy(stream);
  return err;
}

int mill_desi_compare(const char *path, int64_t n_row, int n_arm, const mill_desi_write_arm *arm,
                      int n_history, const char *const *history, int64_t *n_byte, int *state)
{
  int err = MILL_OK;
  mill_fits_stream *stream = NULL;
  MILL_TRY(
      describe_coadd(path ? path : "a coadd file", n_row, n_arm, arm, n_history, history, &stream));
  MILL_TRY(compare(stream, path, n_byte, state));
done:
  return err;
}

/* ---- redrock ---------------------------------------------------------------------------- */

static int describe_redrock(const char *name, int64_t n_row, int n_history,
                            const char *const *history, mill_fits_stream **out)
{
  int err = MILL_OK;
  mill_fits_stream *stream = NULL;
  static const mill_stream_column column[] = {
      {"TARGETID", "K", NULL},  {"Z", "D", NULL},         {"ZERR", "D", NULL},
      {"ZWARN", "K", NULL},     {"CHI2", "D", NULL},      {"SPECTYPE", "6A", NULL},
      {"SUBTYPE", "20A", NULL}, {"DELTACHI2", "D", NULL},
  };
  *out = NULL;
  MILL_TRY(mill_fits_stream_create(name, 0, NULL, n_history, history, &stream));
  MILL_TRY(
      mill_fits_stream_table(stream, "REDSHIFTS", n_row, sizeof column / sizeof column[0], column));
  *out = stream;
done:
  if (err != MILL_OK)
    mill_fits_stream_destroy(stream);
  return err;
}

int mill_redrock_write(const char *path, int overwrite, int64_t n_row, const mill_redrock_row *row,
                       int n_history, const char *const *history)
{
  int err = MILL_OK;
  mill_fits_stream *stream = NULL;
  rows r = {0};
  MILL_TRY(describe_redrock(path, n_row, n_history, history, &stream));
  MILL_TRY(mill_fits_stream_open(stream, path, overwrite));
  MILL_TRY(rows_begin(&r, stream, 1, 0));
  for (int64_t i = 0; i < n_row; i++) {
    MILL_TRY(rows_room(&r, ROW_ROOM));
    put_int64(&r, row[i].target_id);
    put_double(&r, row[i].z);
    put_double(&r, row[i].zerr);
    put_int64(&r, row[i].zwarn);
    put_double(&r, row[i].chi2);
    put_text(&r, row[i].spectype, REDROCK_SPECTYPE);
    put_text(&r, row[i].subtype, REDROCK_SUBTYPE);
    put_double(&r, row[i].delta_chi2);
  }
  MILL_TRY(rows_flush(&r));
  MILL_TRY(mill_fits_stream_commit(stream));
done:
  mill_free(r.buffer);
  mill_fits_stream_destroy(stream);
  return err;
}

int mill_redrock_compare(const char *path, int64_t n_row, int n_history, const char *const *history,
                         int64_t *n_byte, int *state)
{
  int err = MILL_OK;
  mill_fits_stream *stream = NULL;
  MILL_TRY(describe_redrock(path ? path : "a redrock file", n_row, n_history, history, &stream));
  MILL_TRY(compare(stream, path, n_byte, state));
done:
  return err;
}

/* ---- truth table ------------------------------------------------------------------------ */

struct mill_truth_writer {
  mill_fits_stream *stream;
  char path[MILL_STREAM_MAX_PATH];
  int64_t n_row, n_written;
  int n_label;
  int64_t row_bytes;
};

enum {
  N_TRUTH_FIXED = 9,
  /* TARGETID, VRAD, VSINI, SN, FITS_ROW of 8 bytes, LSF_GROUP, TEMPLATE, FILE of 4, KIND */
  TRUTH_FIXED_BYTES = 5 * 8 + 3 * 4 + TRUTH_KIND
};

static int describe_truth(const char *name, const mill_truth_shape *shape, mill_fits_stream **out)
{
  int err = MILL_OK;
  mill_fits_stream *stream = NULL;
  mill_stream_column column[MILL_MAX_LABEL + N_TRUTH_FIXED];
  char kind_format[16], name_format[16];
  size_t n_name = 1;
  int n = 0;
  *out = NULL;
  if (shape->n_label < 0 || shape->n_label > MILL_MAX_LABEL || shape->n_file < 1)
    MILL_FAIL(MILL_ERR_RANGE, "%s: %d labels and %d files cannot be written", name, shape->n_label,
              shape->n_file);
  column[n++] = (mill_stream_column){"TARGETID", "K", NULL};
  for (int i = 0; i < shape->n_label; i++)
    column[n++] = (mill_stream_column){shape->label_column[i], "D",
                                       *shape->label_unit[i] ? shape->label_unit[i] : NULL};
  column[n++] = (mill_stream_column){"VRAD", "D", "km/s"};
  column[n++] = (mill_stream_column){"VSINI", "D", "km/s"};
  column[n++] = (mill_stream_column){"SN", "D", NULL};
  column[n++] = (mill_stream_column){"LSF_GROUP", "J", NULL};
  column[n++] = (mill_stream_column){"TEMPLATE", "J", NULL};
  column[n++] = (mill_stream_column){"FILE", "J", NULL};
  column[n++] = (mill_stream_column){"FITS_ROW", "K", NULL};
  snprintf(kind_format, sizeof kind_format, "%dA", TRUTH_KIND);
  column[n++] = (mill_stream_column){"KIND", kind_format, NULL};
  for (int i = 0; i < shape->n_file; i++)
    n_name = strlen(shape->file[i]) > n_name ? strlen(shape->file[i]) : n_name;
  if (n_name > MILL_STREAM_MAX_PATH)
    MILL_FAIL(MILL_ERR_RANGE, "%s: a file name of %zu bytes", name, n_name);
  snprintf(name_format, sizeof name_format, "%zuA", n_name);
  const mill_stream_column file_column = {"FILE", name_format, NULL};
  MILL_TRY(mill_fits_stream_create(name, 0, NULL, shape->n_history, shape->history, &stream));
  MILL_TRY(mill_fits_stream_table(stream, "TRUTH", shape->n_row, n, column));
  MILL_TRY(mill_fits_stream_table(stream, "FILES", shape->n_file, 1, &file_column));
  *out = stream;
done:
  if (err != MILL_OK)
    mill_fits_stream_destroy(stream);
  return err;
}

static int write_file_names(mill_fits_stream *stream, const mill_truth_shape *shape)
{
  int err = MILL_OK;
  size_t n_name = 1;
  rows r = {0};
  for (int i = 0; i < shape->n_file; i++)
    n_name = strlen(shape->file[i]) > n_name ? strlen(shape->file[i]) : n_name;
  MILL_TRY(rows_begin(&r, stream, 2, 0));
  for (int i = 0; i < shape->n_file; i++) {
    MILL_TRY(rows_room(&r, (int64_t)n_name));
    put_text(&r, shape->file[i], (int)n_name);
  }
  MILL_TRY(rows_flush(&r));
done:
  mill_free(r.buffer);
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
  writer->row_bytes = TRUTH_FIXED_BYTES + 8 * (int64_t)shape->n_label;
  MILL_TRY(describe_truth(path, shape, &writer->stream));
  MILL_TRY(mill_fits_stream_open(writer->stream, path, overwrite));
  MILL_TRY(write_file_names(writer->stream, shape));
  *out = writer;
done:
  if (err != MILL_OK)
    mill_truth_writer_abandon(writer);
  return err;
}

int mill_truth_writer_rows(mill_truth_writer *writer, int64_t first, int n,
                           const mill_truth_row *row)
{
  int err = MILL_OK;
  rows r = {0};
  if (first < 0 || n < 0 || first > writer->n_row - n)
    MILL_FAIL(MILL_ERR_RANGE, "%s: rows %lld to %lld are not in it", writer->path, (long long)first,
              (long long)first + n - 1);
  MILL_TRY(rows_begin(&r, writer->stream, 1, first * writer->row_bytes));
  for (int i = 0; i < n; i++) {
    MILL_TRY(rows_room(&r, writer->row_bytes));
    put_int64(&r, row[i].target_id);
    for (int j = 0; j < writer->n_label; j++)
      put_double(&r, row[i].label[j]);
    put_double(&r, row[i].vrad_km_s);
    put_double(&r, row[i].vsini_km_s);
    put_double(&r, row[i].sn);
    put_int32(&r, row[i].lsf_group);
    put_int32(&r, row[i].template_index);
    put_int32(&r, row[i].file);
    put_int64(&r, row[i].fits_row);
    put_text(&r, row[i].kind, TRUTH_KIND);
  }
  MILL_TRY(rows_flush(&r));
  writer->n_written += n;
done:
  mill_free(r.buffer);
  return err;
}

int mill_truth_writer_close(mill_truth_writer *writer)
{
  int err = MILL_OK;
  if (writer->n_written != writer->n_row)
    MILL_FAIL(MILL_ERR_RANGE, "%s: %lld of %lld rows were written", writer->path,
              (long long)writer->n_written, (long long)writer->n_row);
  MILL_TRY(mill_fits_stream_commit(writer->stream));
done:
  mill_truth_writer_abandon(writer);
  return err;
}

void mill_truth_writer_abandon(mill_truth_writer *writer)
{
  if (!writer)
    return;
  mill_fits_stream_destroy(writer->stream);
  mill_free(writer);
}

int mill_truth_compare(const char *path, const mill_truth_shape *shape, int64_t *n_byte, int *state)
{
  int err = MILL_OK;
  mill_fits_stream *stream = NULL;
  MILL_TRY(describe_truth(path ? path : "a truth table", shape, &stream));
  MILL_TRY(compare(stream, path, n_byte, state));
done:
  return err;
}
