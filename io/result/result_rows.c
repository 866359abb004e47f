#include "io/result/result_rows.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "io/hdf5/hdf5_util.h"
#include "io/hdf5/parallel_hdf5.h"
#include "kernels/base/error.h"
#include "src/system/watchdog.h"

#define CRC    "fits/CRC"
#define STATUS "fits/STATUS"
#define ORDER  "COLUMNS"
enum { BLOCK_ROWS = 8192, ORDER_SIZE = MILL_MAX_COLUMN * sizeof((mill_column *)0)->name };

void mill_damaged_rows_add(mill_damaged_rows *damaged, int64_t row)
{
  if (damaged->n < MILL_SHOWN_ROWS)
    damaged->row[damaged->n] = row;
  damaged->n++;
}

const char *mill_damaged_rows_text(const mill_damaged_rows *damaged, char out[MILL_ROWS_TEXT])
{
  const int is_one = damaged->n == 1;
  size_t n = (size_t)snprintf(out, MILL_ROWS_TEXT, "%lld %s (", (long long)damaged->n,
                              is_one ? "row" : "rows");
  for (int64_t i = 0; i < damaged->n && i < MILL_SHOWN_ROWS; i++)
    n += (size_t)snprintf(out + n, MILL_ROWS_TEXT - n, "%s%lld", i ? ", " : "",
                          (long long)damaged->row[i]);
  snprintf(out + n, MILL_ROWS_TEXT - n, "%s) %s damaged: %s CRC or STATUS is wrong",
           damaged->n > MILL_SHOWN_ROWS ? ", ..." : "", is_one ? "is" : "are",
           is_one ? "its" : "their");
  return out;
}

int mill_result_rows_put_order(hid_t file, const char *path, const mill_columns *columns)
{
  char order[ORDER_SIZE] = "";
  for (int i = 0; i < columns->i_crc; i++) {
    strcat(order, i ? " " : "");
    strcat(order, columns->column[i].name);
  }
  return mill_ph5_attr_text(file, path, CRC, ORDER, order);
}

/* A column of the file, and where its value is in a packed row. */
typedef struct stored_column {
  char name[MILL_MAX_NAME + 24];
  mill_h5_array array;
  int n_dim;
  int64_t n_value;
  size_t at, n_byte;
} stored_column;

typedef struct stored_rows {
  const char *path;
  int64_t n_row;
  int n_column;
  stored_column column[MILL_MAX_COLUMN + 2]; /* CRC and STATUS last */
  size_t row_size, widest;
} stored_rows;

static int add_column(stored_rows *rows, hid_t file, const char *name)
{
  int err = MILL_OK;
  hsize_t dim[2] = {0, 1};
  if (rows->n_column == MILL_MAX_COLUMN + 2)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: " CRC " names too many columns", rows->path);
  stored_column *c = &rows->column[rows->n_column];
  snprintf(c->name, sizeof c->name, "%s", name);
  if (!mill_h5_array_open(file, name, &c->array))
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: %s cannot be read: %s", rows->path, name,
              mill_h5_reason());
  rows->n_column++; /* to be closed */
  c->n_dim = H5Sget_simple_extent_ndims(c->array.space);
  const size_t n_byte = H5Tget_size(c->array.type);
  const H5T_class_t class = H5Tget_class(c->array.type);
  if (c->n_dim < 1 || c->n_dim > 2 || H5Sget_simple_extent_dims(c->array.space, dim, NULL) < 0 ||
      (int64_t)dim[0] != rows->n_row || dim[1] < 1 || dim[1] > MILL_MAX_ROW_VALUES ||
      (class != H5T_INTEGER && class != H5T_FLOAT) || n_byte > sizeof(double))
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: %s is no column of a result", rows->path, name);
  c->n_value = (int64_t)dim[1];
  c->n_byte = n_byte * (size_t)dim[1];
  c->at = rows->row_size;
  rows->row_size += c->n_byte;
  rows->widest = c->n_byte > rows->widest ? c->n_byte : rows->widest;
done:
  return err;
}

static int open_rows(stored_rows *rows, hid_t file)
{
  int err = MILL_OK;
  char order[ORDER_SIZE] = "", name[sizeof rows->column->name];
  MILL_TRY(mill_ph5_read_attr_text(file, rows->path, CRC, ORDER, order, sizeof order));
  char *next = NULL;
  for (char *at = strtok_r(order, " ", &next); at; at = strtok_r(NULL, " ", &next)) {
    snprintf(name, sizeof name, "fits/%s", at);
    MILL_TRY(add_column(rows, file, name));
  }
  MILL_TRY(add_column(rows, file, CRC));
  MILL_TRY(add_column(rows, file, STATUS));
  for (int i = rows->n_column - 2; i < rows->n_column; i++)
    if (rows->column[i].n_byte != sizeof(int32_t))
      MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: %s is no column of a result", rows->path,
                rows->column[i].name);
done:
  return err;
}

/* Rows [at, at + n) as they were when their CRC was made, into row. */
static int read_block(const stored_rows *rows, int64_t at, int64_t n, char *row, char *value)
{
  int err = MILL_OK;
  mill_ph5_rows block = {H5I_INVALID_HID, H5I_INVALID_HID};
  for (int i = 0; i < rows->n_column; i++) {
    const stored_column *c = &rows->column[i];
    MILL_TRY(mill_ph5_select_range(rows->path, c->n_dim, rows->n_row, c->n_value, at, n, &block));
    MILL_TRY(mill_ph5_read(c->array.id, rows->path, c->name, c->array.type, &block, value));
    mill_ph5_unselect(&block);
    for (int64_t k = 0; k < n; k++)
      memcpy(row + (size_t)k * rows->row_size + c->at, value + (size_t)k * c->n_byte, c->n_byte);
  }
done:
  mill_ph5_unselect(&block);
  return err;
}

int mill_result_rows_check(hid_t file, const char *path, int64_t n_row, int watch,
                           mill_damaged_rows *damaged)
{
  int err = MILL_OK;
  char *row = NULL, *value = NULL;
  stored_rows *rows = NULL;
  MILL_TRY(MILL_ALLOC(1, &rows));
  rows->path = path;
  rows->n_row = n_row;
  MILL_TRY(open_rows(rows, file));
  MILL_TRY(mill_alloc_bytes(BLOCK_ROWS, rows->row_size, (void **)&row));
  MILL_TRY(mill_alloc_bytes(BLOCK_ROWS, rows->widest, (void **)&value));
  const size_t crc_at = rows->column[rows->n_column - 2].at;
  for (int64_t at = 0; at < n_row; at += BLOCK_ROWS) {
    const int64_t n = n_row - at < BLOCK_ROWS ? n_row - at : BLOCK_ROWS;
    mill_watch_again(watch);
    MILL_TRY(read_block(rows, at, n, row, value));
    for (int64_t k = 0; k < n; k++) {
      const char *this_row = row + (size_t)k * rows->row_size;
      uint32_t crc;
      int32_t status;
      memcpy(&crc, this_row + crc_at, sizeof crc);
      memcpy(&status, this_row + crc_at + sizeof crc, sizeof status);
      const uint32_t is =
          (uint32_t)crc32(crc32(0L, Z_NULL, 0), (const Bytef *)this_row, (uInt)crc_at);
      if (status <= MILL_STATUS_NOT_DONE || status >= MILL_N_STATUS || crc != is)
        mill_damaged_rows_add(damaged, at + k);
    }
  }
done:
  for (int i = 0; rows && i < rows->n_column; i++)
    mill_h5_array_close(&rows->column[i].array);
  MILL_FREE(row, value, rows);
  return err;
}
