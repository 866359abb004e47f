/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/epoch_rows.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "io/hdf5/parallel_hdf5.h"
#include "io/result/column_data.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/order.h"

static_assert(sizeof(mill_epoch_result) == 5 * sizeof(double) + 2 * sizeof(int32_t),
              "a packed row has no gaps");

int mill_epoch_rows_create(hid_t file, const char *path, int64_t n_exposure)
{
  int err = MILL_OK;
  mill_columns columns;
  hid_t group = H5I_INVALID_HID;
  mill_columns_epochs(&columns);
  MILL_TRY(mill_ph5_group(file, path, "epochs"));
  group = H5Gopen2(file, "epochs", H5P_DEFAULT);
  if (group < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot write /epochs: %s", path, mill_h5_reason());
  for (int i = 0; i < columns.n_column; i++)
    MILL_TRY(mill_column_create(group, path, &columns.column[i], n_exposure));
done:
  MILL_H5_CLOSE(group);
  return err;
}

int mill_epoch_rows_open(hid_t file, const char *path, int64_t n_row, mill_epoch_rows **rows)
{
  hsize_t n_exposure = 0;
  mill_h5_array first = {0};
  *rows = NULL;
  if (H5Lexists(file, "epochs", H5P_DEFAULT) <= 0)
    return MILL_OK;
  MILL_CHECK(MILL_ALLOC(1, rows));
  mill_epoch_rows *r = *rows;
  *r = (mill_epoch_rows){.path = path, .n_row = n_row, .file = file};
  mill_columns_epochs(&r->columns);
  for (int i = 0; i < MILL_N_EPOCH_COLUMN; i++)
    r->dataset[i] = H5I_INVALID_HID;
  const int is_open = mill_h5_array_open(file, "epochs/VRAD", &first) &&
                      H5Sget_simple_extent_ndims(first.space) == 1 &&
                      H5Sget_simple_extent_dims(first.space, &n_exposure, NULL) == 1;
  mill_h5_array_close(&first);
  if (!is_open)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: /epochs/VRAD is not a column of a result",
                      path);
  r->n_exposure = (int64_t)n_exposure;
  for (int i = 0; i < MILL_N_EPOCH_COLUMN; i++)
    MILL_CHECK(mill_column_open(file, path, "epochs", &r->columns.column[i], r->n_exposure,
                                &r->dataset[i]));
  return MILL_OK;
}

void mill_epoch_rows_close(mill_epoch_rows *rows)
{
  if (rows)
    mill_h5_close_ids(MILL_N_EPOCH_COLUMN, rows->dataset);
  mill_free(rows);
}

uint32_t mill_epoch_rows_seal(mill_epoch_result *epoch, int64_t n)
{
  for (int64_t i = 0; i < n; i++) {
    double *value[] = {&epoch[i].vrad_km_s, &epoch[i].vrad_err_km_s, &epoch[i].pair_vrad_km_s,
                       &epoch[i].pair_vrad_err_km_s};
    for (size_t k = 0; k < sizeof value / sizeof *value; k++) /* one NaN of many */
      *value[k] = isnan(*value[k]) ? NAN : *value[k];
  }
  return (uint32_t)crc32(crc32(0L, Z_NULL, 0), (const Bytef *)epoch,
                         (uInt)((size_t)n * sizeof *epoch));
}

int mill_epoch_rows_write(const mill_epoch_rows *rows, const mill_mpi *mpi, mill_epoch_item *item,
                          int64_t n)
{
  int err = MILL_OK;
  int64_t *at = NULL;
  char *value = NULL;
  mill_ph5_rows selected = {H5I_INVALID_HID, H5I_INVALID_HID};
  err = MILL_ALLOC(n, &at);
  if (err == MILL_OK)
    err = mill_alloc_bytes((size_t)n, rows->columns.widest, (void **)&value);
  if (err == MILL_OK && n > 0) {
    qsort(item, (size_t)n, sizeof *item, mill_by_int64);
    for (int64_t i = 0; i < n; i++)
      at[i] = item[i].row;
  }
  if (err == MILL_OK)
    err = mill_ph5_select(rows->path, 1, rows->n_exposure, 1, at, n, &selected);
  MILL_TRY(mill_mpi_agree(mpi, err));
  for (int c = 0; c < MILL_N_EPOCH_COLUMN; c++) {
    const mill_column *column = &rows->columns.column[c];
    for (int64_t i = 0; i < n; i++)
      memcpy(value + (size_t)i * column->n_byte, (const char *)&item[i].epoch + column->field,
             column->n_byte);
    err = mill_ph5_write(rows->dataset[c], rows->path, column->name,
                         mill_column_hdf5_type(column->type), &selected, value);
    MILL_TRY(mill_mpi_agree(mpi, err));
  }
done:
  mill_ph5_unselect(&selected);
  MILL_FREE(at, value);
  return err;
}

/* The rows [at, at + n) of /epochs. */
static int read_rows(const mill_epoch_rows *rows, int64_t at, int64_t n, mill_epoch_result *epoch)
{
  int err = MILL_OK;
  char *value = NULL;
  mill_ph5_rows selected = {H5I_INVALID_HID, H5I_INVALID_HID};
  MILL_TRY(mill_alloc_bytes((size_t)n, rows->columns.widest, (void **)&value));
  MILL_TRY(mill_ph5_select_range(rows->path, 1, rows->n_exposure, 1, at, n, &selected));
  for (int c = 0; c < MILL_N_EPOCH_COLUMN; c++) {
    const mill_column *column = &rows->columns.column[c];
    MILL_TRY(mill_ph5_read(rows->dataset[c], rows->path, column->name,
                           mill_column_hdf5_type(column->type), &selected, value));
    for (int64_t i = 0; i < n; i++)
      memcpy((char *)&epoch[i] + column->field, value + (size_t)i * column->n_byte, column->n_byte);
  }
done:
  mill_ph5_unselect(&selected);
  mill_free(value);
  return err;
}

int mill_epoch_rows_crc(const mill_epoch_rows *rows, int64_t at, int64_t n, uint32_t *crc)
{
  int err = MILL_OK;
  int64_t *first = NULL, begin = rows->n_exposure, end = 0;
  int32_t *n_exposure = NULL;
  mill_epoch_result *epoch = NULL;
  MILL_TRY(MILL_ALLOC(n, &first));
  MILL_TRY(MILL_ALLOC(n, &n_exposure));
  MILL_TRY(mill_ph5_read_rows(rows->file, rows->path, "catalog/FIRST_EXPOSURE", H5T_STD_I64LE,
                              rows->n_row, NULL, at, n, first));
  MILL_TRY(mill_ph5_read_rows(rows->file, rows->path, "catalog/N_EXPOSURE", H5T_STD_I32LE,
                              rows->n_row, NULL, at, n, n_exposure));
  for (int64_t i = 0; i < n; i++) {
    if (first[i] < 0 || n_exposure[i] < 0 || first[i] > rows->n_exposure - n_exposure[i])
      MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: row %lld has exposures beyond /epochs", rows->path,
                (long long)(at + i));
    begin = first[i] < begin ? first[i] : begin;
    end = first[i] + n_exposure[i] > end ? first[i] + n_exposure[i] : end;
  }
  end = end > begin ? end : begin;
  MILL_TRY(MILL_ALLOC(end - begin, &epoch));
  MILL_TRY(read_rows(rows, begin, end - begin, epoch));
  for (int64_t i = 0; i < n; i++)
    crc[i] = mill_epoch_rows_seal(epoch + (first[i] - begin), n_exposure[i]);
done:
  MILL_FREE(first, n_exposure, epoch);
  return err;
}
