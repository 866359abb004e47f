/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/result_rows.h"

#include <stdio.h>
#include <string.h>

#include "io/hdf5/parallel_hdf5.h"
#include "io/result/stored_rows.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/watchdog.h"

#define CRC   "fits/CRC"
#define ORDER "COLUMNS"
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

int mill_result_rows_check(hid_t file, const char *path, int64_t n_row, int watch,
                           mill_damaged_rows *damaged)
{
  int err = MILL_OK;
  char *row = NULL, *value = NULL;
  mill_stored_rows *rows = NULL;
  MILL_TRY(MILL_ALLOC(1, &rows));
  MILL_TRY(mill_stored_rows_fits(file, path, n_row, rows));
  MILL_TRY(mill_alloc_bytes(BLOCK_ROWS, rows->row_size, (void **)&row));
  MILL_TRY(mill_alloc_bytes(BLOCK_ROWS, rows->widest, (void **)&value));
  for (int64_t at = 0; at < n_row; at += BLOCK_ROWS) {
    const int64_t n = n_row - at < BLOCK_ROWS ? n_row - at : BLOCK_ROWS;
    mill_watch_again(watch);
    MILL_TRY(mill_stored_rows_read(rows, at, n, row, value));
    for (int64_t k = 0; k < n; k++) {
      int is_whole;
      mill_stored_row_status(rows, row + (size_t)k * rows->row_size, &is_whole);
      if (!is_whole)
        mill_damaged_rows_add(damaged, at + k);
    }
  }
done:
  if (rows)
    mill_stored_rows_close(rows);
  MILL_FREE(row, value, rows);
  return err;
}
