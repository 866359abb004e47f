/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/result_rows.h"

#include <stdio.h>
#include <string.h>

#include "io/hdf5/parallel_hdf5.h"
#include "io/result/stored_rows.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/watchdog.h"

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
  snprintf(out + n, MILL_ROWS_TEXT - n, "%s) %s damaged: %s %sCRC or STATUS is wrong",
           damaged->n > MILL_SHOWN_ROWS ? ", ..." : "", is_one ? "is" : "are",
           is_one ? "its" : "their", damaged->n_catalog > 0 ? "CATALOG_CRC, " : "");
  return out;
}

int mill_result_rows_put_order(hid_t file, const char *path, const char *crc,
                               const mill_columns *columns)
{
  char order[ORDER_SIZE] = "";
  for (int i = 0; i < columns->i_crc; i++) {
    strcat(order, i ? " " : "");
    strcat(order, columns->column[i].name);
  }
  return mill_ph5_attr_text(file, path, crc, ORDER, order);
}

/* Rows of one table of a result, a block at a time. */
typedef struct table {
  mill_stored_rows rows;
  char *row, *value;
} table;

static int make_room(table *t)
{
  MILL_CHECK(mill_alloc_bytes(BLOCK_ROWS, t->rows.row_size, (void **)&t->row));
  return mill_alloc_bytes(BLOCK_ROWS, t->rows.widest, (void **)&t->value);
}

static void close_table(table *t)
{
  mill_stored_rows_close(&t->rows);
  MILL_FREE(t->row, t->value);
}

int mill_result_rows_check(hid_t file, const char *path, int64_t n_row, int is_finished, int watch,
                           mill_damaged_rows *damaged)
{
  int err = MILL_OK, is_whole = 1;
  table *both = NULL, *fits, *catalog;
  MILL_TRY(MILL_ALLOC(2, &both));
  fits = &both[0];
  catalog = &both[1];
  MILL_TRY(mill_stored_rows_fits(file, path, n_row, &fits->rows));
  MILL_TRY(mill_stored_rows_catalog(file, path, n_row, &catalog->rows));
  MILL_TRY(make_room(fits));
  MILL_TRY(make_room(catalog));
  for (int64_t at = 0; at < n_row; at += BLOCK_ROWS) {
    const int64_t n = n_row - at < BLOCK_ROWS ? n_row - at : BLOCK_ROWS;
    mill_watch_again(watch);
    for (int i = is_finished ? 0 : 1; i < 2; i++)
      MILL_TRY(mill_stored_rows_read(&both[i].rows, at, n, both[i].row, both[i].value));
    for (int64_t k = 0; k < n; k++) {
      const int is_known =
          mill_stored_row_agrees(&catalog->rows, catalog->row + (size_t)k * catalog->rows.row_size);
      if (is_finished)
        mill_stored_row_status(&fits->rows, fits->row + (size_t)k * fits->rows.row_size, &is_whole);
      damaged->n_catalog += !is_known;
      if (!is_whole || !is_known)
        mill_damaged_rows_add(damaged, at + k);
    }
  }
done:
  for (int i = 0; i < 2 && both; i++)
    close_table(&both[i]);
  mill_free(both);
  return err;
}

int mill_result_catalog_known(hid_t file, const char *path, int64_t n_row, unsigned char *is_known)
{
  int err = MILL_OK;
  table *catalog = NULL;
  MILL_TRY(MILL_ALLOC(1, &catalog));
  MILL_TRY(mill_stored_rows_catalog(file, path, n_row, &catalog->rows));
  MILL_TRY(make_room(catalog));
  for (int64_t at = 0; at < n_row; at += BLOCK_ROWS) {
    const int64_t n = n_row - at < BLOCK_ROWS ? n_row - at : BLOCK_ROWS;
    MILL_TRY(mill_stored_rows_read(&catalog->rows, at, n, catalog->row, catalog->value));
    for (int64_t k = 0; k < n; k++)
      is_known[at + k] = (unsigned char)mill_stored_row_agrees(
          &catalog->rows, catalog->row + (size_t)k * catalog->rows.row_size);
  }
done:
  if (catalog)
    close_table(catalog);
  mill_free(catalog);
  return err;
}
