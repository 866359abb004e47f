#include "io/export/carried.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "src/system/order.h"

enum { PIECE_BYTES = 4 << 20 };

/* ---- which rows ---- */

/* The exposures of the kept rows of an input, which stand together in /catalog/exposures. */
static int find_exposures(const mill_export_source *source, int i_file, const int64_t *first,
                          const int32_t *n_exposure, mill_carried *out)
{
  int err = MILL_OK;
  size_t n_total = 0;
  const int64_t lo = source->row_start[i_file], n_row = source->n_row_of[i_file];
  int64_t *row = NULL, *target = NULL, *of_input = NULL, n = 0;
  int32_t *file = NULL;
  const int64_t start = n_row > 0 ? first[0] : 0;
  const int64_t n_all = n_row > 0 ? first[n_row - 1] + n_exposure[n_row - 1] - start : 0;
  MILL_TRY(mill_h5_shape(&source->file, "catalog/exposures/FILE", 1, &n_total));
  if (start < 0 || n_all < 0 || start + n_all > (int64_t)n_total)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: FIRST_EXPOSURE of input %d", source->path, i_file);
  MILL_TRY(MILL_ALLOC(n_all, &row));
  MILL_TRY(MILL_ALLOC(n_all, &target));
  MILL_TRY(MILL_ALLOC(n_all, &of_input));
  MILL_TRY(MILL_ALLOC(n_all, &file));
  MILL_TRY(mill_export_numbers(source, "catalog/exposures/FITS_ROW", H5T_STD_I64LE,
                               (int64_t)n_total, start, n_all, of_input));
  MILL_TRY(mill_export_numbers(source, "catalog/exposures/FILE", H5T_STD_I32LE, (int64_t)n_total,
                               start, n_all, file));
  for (int64_t k = 0; k < n_row; k++)
    for (int64_t e = first[k] - start; source->kept[lo + k] && e < first[k] - start + n_exposure[k];
         e++) {
      if (e < 0 || e >= n_all || n == n_all)
        MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: FIRST_EXPOSURE of row %lld", source->path,
                  (long long)(lo + k));
      if (file[e] != i_file)
        MILL_FAIL(MILL_ERR_INPUT,
                  "%s: row %lld has exposures of several inputs (join_by_name), whose FIBERMAPs "
                  "are not joined: export with --no-fibermap",
                  source->path, (long long)(lo + k));
      row[n] = of_input[e];
      target[n++] = out->target_id[k];
    }
  mill_carried_clear(out);
  *out = (mill_carried){n, row, target};
  row = target = NULL;
done:
  MILL_FREE(row, target, of_input, file);
  return err;
}

int mill_carried_find(const mill_export_source *source, int i_file, int by_exposure,
                      mill_carried *out)
{
  int err = MILL_OK;
  const int64_t lo = source->row_start[i_file], n = source->n_row_of[i_file];
  int64_t *first = NULL;
  int32_t *n_exposure = NULL;
  *out = (mill_carried){.n = n};
  MILL_TRY(MILL_ALLOC(n, &out->fits_row));
  MILL_TRY(MILL_ALLOC(n, &out->target_id));
  MILL_TRY(MILL_ALLOC(n, &first));
  MILL_TRY(MILL_ALLOC(n, &n_exposure));
  const struct {
    const char *name;
    hid_t type;
    void *to;
  } column[] = {{"catalog/FITS_ROW", H5T_STD_I64LE, out->fits_row},
                {"catalog/TARGETID", H5T_STD_I64LE, out->target_id},
                {"catalog/FIRST_EXPOSURE", H5T_STD_I64LE, first},
                {"catalog/N_EXPOSURE", H5T_STD_I32LE, n_exposure}};
  for (size_t i = 0; i < sizeof column / sizeof *column; i++)
    MILL_TRY(mill_export_numbers(source, column[i].name, column[i].type, source->n_row, lo, n,
                                 column[i].to));
  if (by_exposure) {
    MILL_TRY(find_exposures(source, i_file, first, n_exposure, out));
    goto done;
  }
  int64_t n_kept = 0;
  for (int64_t k = 0; k < n; k++)
    if (source->kept[lo + k]) {
      out->fits_row[n_kept] = out->fits_row[k];
      out->target_id[n_kept++] = out->target_id[k];
    }
  out->n = n_kept;
done:
  if (err != MILL_OK)
    mill_carried_clear(out);
  MILL_FREE(first, n_exposure);
  return err;
}

void mill_carried_clear(mill_carried *carried)
{
  MILL_FREE(carried->fits_row, carried->target_id);
  *carried = (mill_carried){0};
}

/* ---- the input ---- */

int mill_carried_open(const mill_export_source *source, int i_file, mill_fits_file **out)
{
  int err = MILL_OK;
  char path[MILL_EXPORT_PATH], format[32];
  *out = NULL;
  MILL_TRY(mill_export_text(&source->format, i_file, format, sizeof format));
  if (strcmp(format, "desi") != 0)
    goto done;
  MILL_TRY(mill_export_input(source, i_file, path, sizeof path));
  if (access(path, R_OK) != 0) /* the whole survey may have moved */
    MILL_TRY(mill_export_text(&source->input, i_file, path, sizeof path));
  if (access(path, R_OK) != 0)
    MILL_FAIL(MILL_ERR_INPUT,
              "%s: cannot be read, but its FIBERMAP belongs into the product: put it back, or "
              "export with --no-fibermap",
              path);
  MILL_TRY(mill_fits_file_open(path, NULL, out));
  if ((*out)->guard->file_size != source->size[i_file])
    MILL_FAIL(MILL_ERR_INPUT,
              "%s: has changed since it was fitted (%lld bytes, then %lld): fit it again, or "
              "export with --no-fibermap",
              path, (long long)(*out)->guard->file_size, (long long)source->size[i_file]);
  MILL_TRY(mill_fits_file_check_rows(*out));
done:
  if (err != MILL_OK) {
    mill_fits_file_close(*out);
    *out = NULL;
  }
  return err;
}

int mill_carried_check(mill_fits_file *input, const mill_carried *carried)
{
  int err = MILL_OK, i_hdu = -1;
  int64_t *id = NULL;
  MILL_TRY(mill_fits_file_find(input, "FIBERMAP", &i_hdu));
  if (i_hdu < 0)
    MILL_FAIL(MILL_ERR_INPUT, "%s: has no FIBERMAP any more: fit it again", input->guard->path);
  MILL_TRY(mill_fits_table_int64(input, i_hdu, "TARGETID", -1, &id, NULL));
  const int64_t n = input->guard->hdu[i_hdu].axis[1];
  for (int64_t k = 0; k < carried->n; k++) {
    const int64_t row = carried->fits_row[k];
    if (row < 0 || row >= n || id[row] != carried->target_id[k])
      MILL_TRY(MILL_ERROR_HDU(
          input, i_hdu,
          ": row %lld is not target %lld, which was fitted there: the file has changed "
          "since; fit it again, or export with --no-fibermap",
          (long long)row, (long long)carried->target_id[k]));
  }
done:
  mill_free(id);
  return err;
}

/* A table of the input's columns as the last HDU, without rows. */
static int copy_header(mill_fits_file *input, int i_hdu, const mill_product *product, fitsfile *out)
{
  int status = 0, n_column = 0, n_hdu = 0;
  static const char *const gone[] = {"CHECKSUM", "DATASUM", "THEAP"};
  fits_get_num_cols(input->fptr, &n_column, &status);
  for (int i = 1; i <= n_column; i++) {
    int type = 0;
    fits_get_coltype(input->fptr, i, &type, NULL, NULL, &status);
    if (type < 0)
      return MILL_ERROR_HDU(
          input, i_hdu,
          ": column %d has values of variable length, which are not carried over: "
          "export with --no-fibermap",
          i);
  }
  MILL_CHECK_FITS(input, i_hdu, status, "its columns cannot be read");
  fits_get_num_hdus(out, &n_hdu, &status);
  fits_movabs_hdu(out, n_hdu, NULL, &status);
  fits_copy_header(input->fptr, out, &status);
  fits_modify_key_lng(out, "NAXIS2", 0, "&", &status);
  fits_modify_key_lng(out, "PCOUNT", 0, "&", &status);
  for (size_t i = 0; i < sizeof gone / sizeof *gone && status == 0; i++) {
    fits_delete_key(out, gone[i], &status);
    if (status == KEY_NO_EXIST) {
      status = 0;
      fits_clear_errmsg();
    }
  }
  fits_set_hdustruc(out, &status);
  MILL_CHECK_PRODUCT(product, status);
  return MILL_OK;
}

/* Names and types of the columns, and the width of a row. */
static int check_same(mill_fits_file *input, int i_hdu, fitsfile *out)
{
  int status = 0, n[2] = {0, 0};
  fitsfile *const file[2] = {input->fptr, out};
  for (int f = 0; f < 2; f++)
    fits_get_num_cols(file[f], &n[f], &status);
  for (int i = 1; i <= n[0] && n[0] == n[1]; i++) {
    char name[2][FLEN_VALUE] = {"", ""}, form[2][FLEN_VALUE] = {"", ""}, key[16];
    for (int f = 0; f < 2; f++) {
      snprintf(key, sizeof key, "TTYPE%d", i);
      fits_read_key_str(file[f], key, name[f], NULL, &status);
      snprintf(key, sizeof key, "TFORM%d", i);
      fits_read_key_str(file[f], key, form[f], NULL, &status);
    }
    if (status == 0 && (strcmp(name[0], name[1]) != 0 || strcmp(form[0], form[1]) != 0))
      return MILL_ERROR_HDU(
          input, i_hdu,
          ": column %d is %s (%s), in the files before %s (%s): export one file for "
          "each input, without --one",
          i, name[0], form[0], name[1], form[1]);
  }
  MILL_CHECK_FITS(input, i_hdu, status, "its columns cannot be read");
  if (n[0] != n[1])
    return MILL_ERROR_HDU(
        input, i_hdu,
        " has %d columns, in the files before %d: export one file for each input, "
        "without --one",
        n[0], n[1]);
  return MILL_OK;
}

int mill_carried_rows(mill_fits_file *input, int i_hdu, int is_first, int64_t n, const int64_t *row,
                      const mill_product *product, fitsfile *out)
{
  int err = MILL_OK, status = 0;
  unsigned char *piece = NULL;
  LONGLONG n_before = 0;
  const int64_t width = input->guard->hdu[i_hdu].axis[0], n_row = input->guard->hdu[i_hdu].axis[1];
  const int64_t n_most = width > 0 && width < PIECE_BYTES ? PIECE_BYTES / width : 1;
  MILL_TRY(mill_fits_file_move(input, i_hdu));
  MILL_TRY(is_first ? copy_header(input, i_hdu, product, out) : check_same(input, i_hdu, out));
  fits_get_num_rowsll(out, &n_before, &status);
  MILL_TRY_PRODUCT(product, status);
  MILL_TRY(mill_alloc_raw((size_t)n_most, (size_t)width, (void **)&piece));
  for (int64_t at = 0, n_run; at < n; at += n_run) { /* of neighbours */
    n_run = 1;
    while (at + n_run < n && n_run < n_most && row[at + n_run] == row[at] + n_run)
      n_run++;
    if (row[at] < 0 || row[at] + n_run > n_row)
      MILL_TRY(MILL_ERROR_HDU(input, i_hdu, " has no row %lld", (long long)row[at]));
    fits_read_tblbytes(input->fptr, row[at] + 1, 1, n_run * width, piece, &status);
    MILL_TRY_FITS(input, i_hdu, status, "its rows cannot be read");
    fits_write_tblbytes(out, n_before + at + 1, 1, n_run * width, piece, &status);
    MILL_TRY_PRODUCT(product, status);
  }
done:
  mill_free(piece);
  return err;
}

int mill_carried_exposures(mill_fits_file *input, int i_hdu, int is_first,
                           const mill_carried *carried, const mill_product *product, fitsfile *out)
{
  int err = MILL_OK;
  int64_t *id = NULL, *sorted = NULL, *row = NULL, n = 0;
  const int64_t n_row = input->guard->hdu[i_hdu].axis[1];
  MILL_TRY(mill_fits_table_int64(input, i_hdu, "TARGETID", -1, &id, NULL));
  MILL_TRY(MILL_ALLOC(carried->n, &sorted));
  MILL_TRY(MILL_ALLOC(n_row, &row));
  if (carried->n > 0)
    memcpy(sorted, carried->target_id, (size_t)carried->n * sizeof *sorted);
  qsort(sorted, (size_t)carried->n, sizeof *sorted, mill_by_int64);
  for (int64_t k = 0; k < n_row; k++)
    if (bsearch(&id[k], sorted, (size_t)carried->n, sizeof *sorted, mill_by_int64))
      row[n++] = k;
  MILL_TRY(mill_carried_rows(input, i_hdu, is_first, n, row, product, out));
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
  for (int i = 0; i < source->fits.n_column; i++) {
    const char *name = source->fits.column[i].name;
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

/* The grouping of an input's spectra, as it stands in its primary header. */
static int copy_keys(mill_fits_file *input, const mill_product *product, fitsfile *out)
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
      fits_write_record(out, card, &status);
  }
  fits_clear_errmsg();
  MILL_CHECK_PRODUCT(product, status);
  return MILL_OK;
}

int mill_carried_header(const mill_export_source *source, int i_file, mill_fits_file *input,
                        const char *what, const mill_product *product, fitsfile *out)
{
  int status = 0;
  char redrock[MILL_EXPORT_PATH] = "", config[MILL_EXPORT_PATH + 32], path[MILL_EXPORT_PATH] = "";
  if (i_file >= 0) {
    MILL_CHECK(mill_export_text(&source->redrock, i_file, redrock, sizeof redrock));
    MILL_CHECK(mill_export_text(&source->input, i_file, path, sizeof path));
  }
  snprintf(config, sizeof config, "%s:/provenance/CONFIG", source->path);
  mill_product_key(out, "EXPORTED", what, "by starmill export", &status);
  mill_product_key(out, "RUNID", source->run_id, "of the result", &status);
  fits_write_key_log(out, "FITDONE", source->is_finished, "the fit was finished", &status);
  put_dependencies(source, out, &status);
  put_templates(source, out, &status);
  mill_product_key(out, "RVS_CONF", config, NULL, &status);
  mill_product_key(out, "RVS_CMD", source->command, NULL, &status);
  mill_product_key(out, "RR_FILE", redrock, NULL, &status);
  if (path[0])
    mill_product_key(out, "INPUT", path, NULL, &status);
  MILL_CHECK_PRODUCT(product, status);
  if (input)
    MILL_CHECK(copy_keys(input, product, out));
  return MILL_OK;
}

int mill_carried_state(const mill_export_source *source, const char *path, const char *what)
{
  struct stat product, result;
  mill_fits_file *file = NULL;
  char exported[FLEN_VALUE] = "", run[FLEN_VALUE] = "";
  int state = MILL_PRODUCT_FOREIGN, status = 0, is_done = 0;
  if (lstat(path, &product) != 0)
    return MILL_PRODUCT_ABSENT;
  if (stat(path, &product) != 0 || mill_fits_file_open(path, NULL, &file) != MILL_OK)
    return state;
  fits_read_key_str(file->fptr, "EXPORTED", exported, NULL, &status);
  fits_read_key_str(file->fptr, "RUNID", run, NULL, &status);
  fits_read_key_log(file->fptr, "FITDONE", &is_done, NULL, &status);
  fits_clear_errmsg();
  mill_fits_file_close(file);
  if (status != 0)
    return state;
  if (strcmp(exported, what) != 0 || strcmp(run, source->run_id) != 0)
    return MILL_PRODUCT_OTHER;
  return is_done && stat(source->path, &result) == 0 && product.st_mtime >= result.st_mtime
             ? MILL_PRODUCT_DONE
             : MILL_PRODUCT_OLDER;
}
