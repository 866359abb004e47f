/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/stored_rows.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "io/hdf5/parallel_hdf5.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"

#define CRC       "fits/CRC"
#define STATUS    "fits/STATUS"
#define EPOCH_CRC "fits/EPOCH_CRC"
#define ORDER     "COLUMNS"
enum { ORDER_SIZE = MILL_MAX_COLUMN * sizeof((mill_column *)0)->name, MAX_TEXT = 1024 };

/* Which of ours the type of a dataset is; -1: none. */
static int type_of(hid_t type)
{
  const size_t n_byte = H5Tget_size(type);
  switch (H5Tget_class(type)) {
  case H5T_STRING:
    return H5Tis_variable_str(type) == 0 && n_byte <= MAX_TEXT ? MILL_TYPE_TEXT : -1;
  case H5T_FLOAT:
    return n_byte == 8 ? MILL_TYPE_F64 : -1;
  case H5T_INTEGER:
    return n_byte == 8                         ? MILL_TYPE_I64
           : n_byte == 1                       ? MILL_TYPE_U8
           : n_byte != 4                       ? -1
           : H5Tget_sign(type) == H5T_SGN_NONE ? MILL_TYPE_U32
                                               : MILL_TYPE_I32;
  default:
    return -1;
  }
}

static int add_column(mill_stored_rows *rows, hid_t file, const char *name)
{
  hsize_t dim[2] = {0, 1};
  if (rows->n_column == MILL_STORED_MAX_COLUMN)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: " CRC " names too many columns", rows->path);
  mill_stored_column *c = &rows->column[rows->n_column];
  snprintf(c->name, sizeof c->name, "%s", name);
  if (!mill_h5_array_open(file, name, &c->array))
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: %s cannot be read: %s", rows->path, name,
                      mill_h5_reason());
  rows->n_column++; /* to be closed */
  c->type = type_of(c->array.type);
  c->n_dim = H5Sget_simple_extent_ndims(c->array.space);
  if (c->n_dim < 1 || c->n_dim > 2 || H5Sget_simple_extent_dims(c->array.space, dim, NULL) < 0 ||
      (int64_t)dim[0] != rows->n_row || dim[1] < 1 || dim[1] > MILL_MAX_ROW_VALUES || c->type < 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: %s is not a column of a result", rows->path,
                      name);
  c->n_value = (int64_t)dim[1];
  c->n_byte = H5Tget_size(c->array.type) * (size_t)dim[1];
  c->at = rows->row_size;
  rows->row_size += c->n_byte;
  rows->widest = c->n_byte > rows->widest ? c->n_byte : rows->widest;
  return MILL_OK;
}

int mill_stored_rows_fits(hid_t file, const char *path, int64_t n_row, mill_stored_rows *rows)
{
  char order[ORDER_SIZE] = "", name[sizeof rows->column->name], *next = NULL;
  rows->path = path;
  rows->n_row = n_row;
  MILL_CHECK(mill_ph5_read_attr_text(file, path, CRC, ORDER, order, sizeof order));
  for (char *at = strtok_r(order, " ", &next); at; at = strtok_r(NULL, " ", &next)) {
    snprintf(name, sizeof name, "fits/%s", at);
    MILL_CHECK(add_column(rows, file, name));
  }
  rows->i_crc = rows->n_column;
  MILL_CHECK(add_column(rows, file, CRC));
  MILL_CHECK(add_column(rows, file, STATUS));
  for (int i = rows->n_column - 2; i < rows->n_column; i++)
    if (rows->column[i].n_byte != sizeof(int32_t))
      return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: %s is not a column of a result", path,
                        rows->column[i].name);
  MILL_CHECK(mill_epoch_rows_open(file, path, n_row, &rows->epochs));
  for (int i = 0; i < rows->n_column && rows->epochs; i++)
    if (strcmp(rows->column[i].name, EPOCH_CRC) == 0 && rows->column[i].n_byte == sizeof(uint32_t))
      rows->i_epoch_crc = i;
  if (rows->epochs && rows->i_epoch_crc == 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: it has /epochs without " EPOCH_CRC, path);
  rows->row_size += rows->epochs != NULL; /* whether they agree */
  return MILL_OK;
}

int mill_stored_rows_catalog(hid_t file, const char *path, int64_t n_row, mill_stored_rows *rows)
{
  char name[sizeof rows->column->name];
  mill_columns columns;
  rows->path = path;
  rows->n_row = n_row;
  mill_columns_catalog(&columns);
  rows->i_crc = columns.i_crc;
  for (int i = 0; i < columns.n_column; i++) {
    snprintf(name, sizeof name, "catalog/%s", columns.column[i].name);
    MILL_CHECK(add_column(rows, file, name));
    const mill_stored_column *c = &rows->column[i];
    if (c->type != columns.column[i].type || c->n_byte != columns.column[i].n_byte)
      return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: %s is not a column of a result", path,
                        name);
  }
  return MILL_OK;
}

/* Note behind each of the rows [at, at + n) whether its EPOCH_CRC is that of its exposures, which it
   has where it is fitted. */
static int check_epochs(const mill_stored_rows *rows, int64_t at, int64_t n, char *row)
{
  int err = MILL_OK;
  uint32_t *crc = NULL;
  MILL_TRY(MILL_ALLOC(n, &crc));
  MILL_TRY(mill_epoch_rows_crc(rows->epochs, at, n, crc));
  for (int64_t k = 0; k < n; k++, row += rows->row_size) {
    int32_t status;
    memcpy(&status, row + rows->column[rows->i_crc + 1].at, sizeof status);
    row[rows->row_size - 1] =
        status != MILL_STATUS_FITTED ||
        memcmp(&crc[k], row + rows->column[rows->i_epoch_crc].at, sizeof *crc) == 0;
  }
done:
  mill_free(crc);
  return err;
}

int mill_stored_rows_read(const mill_stored_rows *rows, int64_t at, int64_t n, char *row,
                          char *value)
{
  int err = MILL_OK;
  mill_ph5_rows block = {H5I_INVALID_HID, H5I_INVALID_HID};
  for (int i = 0; i < rows->n_column; i++) {
    const mill_stored_column *c = &rows->column[i];
    MILL_TRY(mill_ph5_select_range(rows->path, c->n_dim, rows->n_row, c->n_value, at, n, &block));
    MILL_TRY(mill_ph5_read(c->array.id, rows->path, c->name, c->array.type, &block, value));
    mill_ph5_unselect(&block);
    for (int64_t k = 0; k < n; k++)
      memcpy(row + (size_t)k * rows->row_size + c->at, value + (size_t)k * c->n_byte, c->n_byte);
  }
  if (rows->epochs)
    MILL_TRY(check_epochs(rows, at, n, row));
done:
  mill_ph5_unselect(&block);
  return err;
}

int mill_stored_row_agrees(const mill_stored_rows *rows, const char *row)
{
  const size_t at = rows->column[rows->i_crc].at;
  uint32_t crc;
  memcpy(&crc, row + at, sizeof crc);
  return crc == (uint32_t)crc32(crc32(0L, Z_NULL, 0), (const Bytef *)row, (uInt)at);
}

int32_t mill_stored_row_status(const mill_stored_rows *rows, const char *row, int *is_whole)
{
  int32_t status;
  memcpy(&status, row + rows->column[rows->i_crc + 1].at, sizeof status);
  *is_whole = status > MILL_STATUS_NOT_DONE && status < MILL_N_STATUS &&
              mill_stored_row_agrees(rows, row) && (!rows->epochs || row[rows->row_size - 1]);
  return status;
}

void mill_stored_rows_close(mill_stored_rows *rows)
{
  for (int i = 0; i < rows->n_column; i++)
    mill_h5_array_close(&rows->column[i].array);
  mill_epoch_rows_close(rows->epochs);
  rows->epochs = NULL;
  rows->n_column = 0;
}
