/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/export/carried.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/order.h"

enum { PIECE_BYTES = 4 << 20 };

/* ---- which rows ---- */

/* Columns of /catalog for an input's rows. */
typedef struct stars {
  int64_t *fits_row, *target_id, *first;
  int32_t *n_exposure;
} stars;

static int read_stars(const mill_export_source *source, int64_t lo, int64_t n, stars *s)
{
  MILL_CHECK(MILL_ALLOC(n, &s->fits_row));
  MILL_CHECK(MILL_ALLOC(n, &s->target_id));
  MILL_CHECK(MILL_ALLOC(n, &s->first));
  MILL_CHECK(MILL_ALLOC(n, &s->n_exposure));
  const struct {
    const char *name;
    hid_t type;
    void *to;
  } column[] = {{"catalog/FITS_ROW", H5T_STD_I64LE, s->fits_row},
                {"catalog/TARGETID", H5T_STD_I64LE, s->target_id},
                {"catalog/FIRST_EXPOSURE", H5T_STD_I64LE, s->first},
                {"catalog/N_EXPOSURE", H5T_STD_I32LE, s->n_exposure}};
  for (size_t i = 0; i < sizeof column / sizeof *column; i++)
    MILL_CHECK(mill_ph5_read_rows(source->table.file.id, source->table.path, column[i].name,
                                  column[i].type, source->table.n_row, NULL, lo, n, column[i].to));
  return MILL_OK;
}

/* FITS_ROW of the exposures, and which row has some of other inputs. */
static int read_exposures(const mill_export_source *source, int i_file, int64_t n_total,
                          mill_carried *out)
{
  int err = MILL_OK;
  int32_t *file = NULL;
  const hid_t id = source->table.file.id;
  const char *const path = source->table.path;
  MILL_TRY(MILL_ALLOC(out->n, &file));
  MILL_TRY(mill_ph5_read_rows(id, path, "catalog/exposures/FITS_ROW", H5T_STD_I64LE, n_total,
                              out->exposure, 0, out->n, out->fits_row));
  MILL_TRY(mill_ph5_read_rows(id, path, "catalog/exposures/FILE", H5T_STD_I32LE, n_total,
                              out->exposure, 0, out->n, file));
  for (int64_t i = 0; i < out->n; i++)
    out->is_joined |= file[i] != i_file;
done:
  mill_free(file);
  return err;
}

int mill_carried_find(const mill_export_source *source, int i_file, int by_exposure,
                      mill_carried *out)
{
  int err = MILL_OK;
  const int64_t lo = mill_export_row_start(source, i_file),
                n_row = mill_export_n_row(source, i_file);
  int64_t n = 0, next = 0;
  size_t n_total = 0;
  stars s = {0};
  *out = (mill_carried){.n = 0};
  MILL_TRY(read_stars(source, lo, n_row, &s));
  MILL_TRY(mill_h5_shape(&source->table.file, "catalog/exposures/FILE", 1, &n_total));
  for (int64_t k = 0; k < n_row; k++) {
    if (s.n_exposure[k] < 0 || s.first[k] < next || s.first[k] > (int64_t)n_total - s.n_exposure[k])
      MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: FIRST_EXPOSURE of row %lld", source->table.path,
                (long long)(lo + k));
    next = s.first[k] + s.n_exposure[k];
    n += by_exposure ? s.n_exposure[k] : 1;
  }
  MILL_TRY(MILL_ALLOC(n, &out->fits_row));
  MILL_TRY(MILL_ALLOC(n, &out->target_id));
  MILL_TRY(MILL_ALLOC(n, &out->exposure));
  for (int64_t k = 0; k < n_row; k++)
    for (int32_t e = 0; e < (by_exposure ? s.n_exposure[k] : 1); e++) {
      out->fits_row[out->n] = s.fits_row[k];
      out->target_id[out->n] = s.target_id[k];
      out->exposure[out->n++] = s.first[k] + e;
    }
  if (by_exposure)
    MILL_TRY(read_exposures(source, i_file, (int64_t)n_total, out));
done:
  if (err != MILL_OK)
    mill_carried_clear(out);
  MILL_FREE(s.fits_row, s.target_id, s.first, s.n_exposure);
  return err;
}

void mill_carried_clear(mill_carried *carried)
{
  MILL_FREE(carried->fits_row, carried->target_id, carried->exposure);
  *carried = (mill_carried){.n = 0};
}

/* ---- the input ---- */

#define ELSE_ALONE "export with --no-fibermap"

/* Does FIBERMAP have the fitted targets? */
static int check_targets(mill_fits_file *input, const mill_carried *carried)
{
  int err = MILL_OK, i_hdu = -1;
  int64_t *id = NULL;
  MILL_TRY(mill_fits_file_find(input, "FIBERMAP", &i_hdu));
  if (i_hdu < 0)
    MILL_FAIL(MILL_ERR_INPUT, "%s: no longer has a FIBERMAP: fit it again", input->guard->path);
  MILL_TRY(mill_fits_table_int64(input, i_hdu, "TARGETID", -1, &id, NULL));
  const int64_t n = input->guard->hdu[i_hdu].axis[1];
  for (int64_t k = 0; k < carried->n; k++) {
    const int64_t row = carried->fits_row[k];
    if (row < 0 || row >= n || id[row] != carried->target_id[k])
      MILL_TRY(MILL_ERROR_HDU(input, i_hdu,
                              ": row %lld is not target %lld, which was fitted there: the file has "
                              "changed; fit it again, or " ELSE_ALONE,
                              (long long)row, (long long)carried->target_id[k]));
  }
done:
  mill_free(id);
  return err;
}

int mill_carried_open(const mill_export_source *source, int i_file, const mill_carried *carried,
                      mill_fits_file **out)
{
  int err = MILL_OK;
  char path[MILL_MAX_PATH], format[32];
  *out = NULL;
  MILL_TRY(mill_recorded_text(&source->inputs, MILL_INPUT_FORMAT, i_file, format, sizeof format));
  if (strcmp(format, "desi") != 0)
    goto done;
  MILL_TRY(mill_recorded_path(&source->inputs, i_file, path, sizeof path));
  if (access(path, R_OK) != 0) /* the whole survey may have moved */
    MILL_TRY(mill_recorded_text(&source->inputs, MILL_INPUT_PATH, i_file, path, sizeof path));
  if (access(path, R_OK) != 0)
    MILL_FAIL(MILL_ERR_INPUT,
              "%s: cannot be read, and its FIBERMAP belongs into the product: put it back, "
              "or " ELSE_ALONE,
              path);
  if (carried->is_joined)
    MILL_FAIL(MILL_ERR_INPUT,
              "%s: some of its rows have exposures of other inputs (join_by_name), and FIBERMAPs "
              "are not joined: " ELSE_ALONE,
              path);
  MILL_TRY(mill_fits_file_open(path, NULL, out));
  if ((*out)->guard->file_size != source->inputs.number[MILL_INPUT_SIZE][i_file])
    MILL_FAIL(MILL_ERR_INPUT,
              "%s: has changed since it was fitted (%lld bytes, then %lld): fit it again, "
              "or " ELSE_ALONE,
              path, (long long)(*out)->guard->file_size,
              (long long)source->inputs.number[MILL_INPUT_SIZE][i_file]);
  MILL_TRY(mill_fits_file_check_rows(*out));
  MILL_TRY(check_targets(*out, carried));
done:
  if (err != MILL_OK) {
    mill_fits_file_close(*out);
    *out = NULL;
  }
  return err;
}

/* A new HDU with the input's columns and no rows.  Card by card: deleting cards from a copied
   header may leave an empty block behind the file's end. */
static int copy_header(mill_fits_file *input, int i_hdu, const mill_product *product)
{
  static const char *const gone[] = {"CHECKSUM", "DATASUM", "THEAP"};
  int status = 0, n_column = 0, n_card = 0;
  char card[FLEN_CARD], name[FLEN_KEYWORD];
  fits_get_num_cols(input->fptr, &n_column, &status);
  for (int i = 1; i <= n_column; i++) {
    int type = 0;
    fits_get_coltype(input->fptr, i, &type, NULL, NULL, &status);
    if (type < 0)
      return MILL_ERROR_HDU(input, i_hdu,
                            ": column %d has values of variable length, which cannot be "
                            "copied: " ELSE_ALONE,
                            i);
  }
  fits_get_hdrspace(input->fptr, &n_card, NULL, &status);
  MILL_CHECK_FITS(input, i_hdu, status, "its columns cannot be read");
  fits_create_hdu(product->fits, &status);
  for (int i = 1; i <= n_card && status == 0; i++) {
    int length = 0, is_gone = 0;
    fits_read_record(input->fptr, i, card, &status);
    fits_get_keyname(card, name, &length, &status);
    for (size_t k = 0; k < sizeof gone / sizeof *gone; k++)
      is_gone |= strcmp(name, gone[k]) == 0;
    if (strcmp(name, "NAXIS2") == 0 || strcmp(name, "PCOUNT") == 0)
      snprintf(card, sizeof card, "%-8.8s=                    0", name);
    if (!is_gone)
      fits_write_record(product->fits, card, &status);
  }
  fits_set_hdustruc(product->fits, &status);
  MILL_CHECK_PRODUCT(product, status);
  return MILL_OK;
}

int mill_carried_rows(mill_fits_file *input, int i_hdu, int64_t n, const int64_t *row,
                      const mill_product *product)
{
  int err = MILL_OK, status = 0;
  unsigned char *piece = NULL;
  const int64_t width = input->guard->hdu[i_hdu].axis[0], n_row = input->guard->hdu[i_hdu].axis[1];
  const int64_t n_most = width > 0 && width < PIECE_BYTES ? PIECE_BYTES / width : 1;
  MILL_TRY(mill_fits_file_move(input, i_hdu));
  MILL_TRY(copy_header(input, i_hdu, product));
  MILL_TRY(mill_alloc_raw((size_t)n_most, (size_t)width, (void **)&piece));
  for (int64_t at = 0, n_run; at < n; at += n_run) { /* of neighbours */
    n_run = 1;
    while (at + n_run < n && n_run < n_most && row[at + n_run] == row[at] + n_run)
      n_run++;
    if (row[at] < 0 || row[at] + n_run > n_row)
      MILL_TRY(MILL_ERROR_HDU(input, i_hdu, " has no row %lld", (long long)row[at]));
    fits_read_tblbytes(input->fptr, row[at] + 1, 1, n_run * width, piece, &status);
    MILL_TRY_FITS(input, i_hdu, status, "its rows cannot be read");
    fits_write_tblbytes(product->fits, at + 1, 1, n_run * width, piece, &status);
    MILL_TRY_PRODUCT(product, status);
  }
done:
  mill_free(piece);
  return err;
}

int mill_carried_exposures(mill_fits_file *input, int i_hdu, const mill_carried *carried,
                           const mill_product *product)
{
  int err = MILL_OK;
  int64_t *id = NULL, *sorted = NULL, *row = NULL, n = 0;
  const int64_t n_row = input->guard->hdu[i_hdu].axis[1];
  MILL_TRY(mill_fits_table_int64(input, i_hdu, "TARGETID", -1, &id, NULL));
  MILL_TRY(MILL_ALLOC(carried->n, &sorted));
  MILL_TRY(MILL_ALLOC(n_row, &row));
  memcpy(sorted, carried->target_id, (size_t)carried->n * sizeof *sorted);
  qsort(sorted, (size_t)carried->n, sizeof *sorted, mill_by_int64);
  for (int64_t k = 0; k < n_row; k++)
    if (bsearch(&id[k], sorted, (size_t)carried->n, sizeof *sorted, mill_by_int64))
      row[n++] = k;
  MILL_TRY(mill_carried_rows(input, i_hdu, n, row, product));
done:
  MILL_FREE(id, sorted, row);
  return err;
}

/* ---- the primary header ---- */

static void put_dependencies(const mill_export_source *source, fitsfile *out, int *status)
{
  unsigned major = 0, minor = 0, release = 0;
  char cfitsio[32], hdf5[32], starmill[160], key[24];
  H5get_libversion(&major, &minor, &release);
  snprintf(hdf5, sizeof hdf5, "%u.%u.%u", major, minor, release);
  snprintf(cfitsio, sizeof cfitsio, "%d.%d.%d", CFITSIO_MAJOR, CFITSIO_MINOR, CFITSIO_MICRO);
  snprintf(starmill, sizeof starmill, "%s (%s)", source->version, source->revision);
  const char *const list[][2] = {{"starmill", starmill}, {"cfitsio", cfitsio}, {"hdf5", hdf5}};
  for (int i = 0; i < 3; i++) {
    snprintf(key, sizeof key, "DEPNAM%02d", i);
    mill_product_key(out, key, list[i][0], i ? "software of the export" : "software of the fit",
                     status);
    snprintf(key, sizeof key, "DEPVER%02d", i);
    mill_product_key(out, key, list[i][1], "version", status);
  }
}

static void put_templates(const mill_export_source *source, fitsfile *out, int *status)
{
  int i_arm = 0;
  for (int i = 0; i < source->table.fits.n_column; i++) {
    const char *name = source->table.fits.column[i].name;
    char arm[MILL_MAX_NAME + 24], key[24];
    if (strncmp(name, "fits/SN_", 8) != 0)
      continue;
    snprintf(arm, sizeof arm, "%s", name + 8);
    for (char *c = arm; *c; c++)
      *c = (char)tolower((unsigned char)*c);
    snprintf(key, sizeof key, "TMPLCON%d", i_arm);
    mill_product_key(out, key, arm, "arm", status);
    snprintf(key, sizeof key, "TMPLREV%d", i_arm);
    mill_product_key(out, key, source->library, "template library", status);
    snprintf(key, sizeof key, "TMPLSVR%d", i_arm++);
    mill_product_key(out, key, source->library_hash, NULL, status);
  }
}

/* The grouping of an input's spectra, as its primary header has it. */
static int copy_keys(mill_fits_file *input, const mill_product *product)
{
  static const char *const name[] = {"SPGRP",    "SPGRPVAL", "TILEID", "SPECTRO",
                                     "PETAL",    "NIGHT",    "EXPID",  "HPXPIXEL",
                                     "HPXNSIDE", "HPXNEST",  "SURVEY", "PROGRAM"};
  int status = 0;
  char card[FLEN_CARD];
  MILL_CHECK(mill_fits_file_move(input, 0));
  for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
    int absent = 0;
    fits_read_card(input->fptr, name[i], card, &absent);
    if (absent == 0)
      fits_write_record(product->fits, card, &status);
  }
  fits_clear_errmsg();
  MILL_CHECK_PRODUCT(product, status);
  return MILL_OK;
}

int mill_carried_header(const mill_export_source *source, int i_file, mill_fits_file *input,
                        const char *what, const mill_product *product)
{
  int status = 0;
  fitsfile *const out = product->fits;
  char redrock[MILL_MAX_PATH] = "", config[MILL_MAX_PATH + 32], path[MILL_MAX_PATH] = "";
  if (i_file >= 0) {
    MILL_CHECK(
        mill_recorded_text(&source->inputs, MILL_INPUT_REDROCK, i_file, redrock, sizeof redrock));
    MILL_CHECK(mill_recorded_text(&source->inputs, MILL_INPUT_PATH, i_file, path, sizeof path));
  }
  snprintf(config, sizeof config, "%s:/provenance/CONFIG", source->table.path);
  mill_product_key(out, "EXPORTED", what, "by starmill export", &status);
  mill_product_key(out, "RUNID", source->run_id, "of the result", &status);
  put_dependencies(source, out, &status);
  put_templates(source, out, &status);
  mill_product_key(out, "RVS_CONF", config, NULL, &status);
  mill_product_key(out, "RVS_CMD", source->command, NULL, &status);
  mill_product_key(out, "RR_FILE", redrock, NULL, &status);
  if (path[0])
    mill_product_key(out, "INPUT", path, NULL, &status);
  MILL_CHECK_PRODUCT(product, status);
  return input ? copy_keys(input, product) : MILL_OK;
}
