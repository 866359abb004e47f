#include "io/result/result_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/hdf5/parallel_hdf5.h"
#include "io/result/result_layout.h"
#include "kernels/base/error.h"

enum { BLOCK_ROWS = 8192 };

int mill_result_table_open(const char *path, mill_result_table *table)
{
  int version = 0;
  size_t n_row = 0;
  memset(table, 0, sizeof *table);
  table->path = path;
  table->file.id = H5I_INVALID_HID;
  MILL_CHECK(mill_h5_open(path, MILL_ERR_OUTPUT, &table->file));
  MILL_CHECK(mill_h5_scan(&table->file));
  if (!mill_result_layout_is_result(table->file.id, path, &version))
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s is no result of starmill fit", path);
  if (version > MILL_RESULT_FORMAT)
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s was written by a newer starmill (format %d, this program knows %d)", path,
                      version, MILL_RESULT_FORMAT);
  MILL_CHECK(mill_h5_shape(&table->file, "fits/STATUS", 1, &n_row));
  table->n_row = (int64_t)n_row;
  MILL_CHECK(mill_stored_rows_fits(table->file.id, path, table->n_row, &table->fits));
  return mill_stored_rows_catalog(table->file.id, path, table->n_row, &table->catalog);
}

void mill_result_table_close(mill_result_table *table)
{
  mill_stored_rows_close(&table->fits);
  mill_stored_rows_close(&table->catalog);
  if (table->path) /* 0 would be taken for an open file */
    mill_h5_close(&table->file);
}

const char *mill_result_table_name(const mill_stored_column *column)
{
  return strchr(column->name, '/') + 1;
}

/* ---- where a star is ---- */

typedef struct row_list {
  int64_t *row, n;
  int64_t n_room;
} row_list;

static int add_row(row_list *list, int64_t row)
{
  MILL_CHECK(MILL_GROW(&list->row, &list->n_room, list->n + 1));
  list->row[list->n++] = row;
  return MILL_OK;
}

/* Rows in which one value of a column is that of n_byte bytes, filled with zeros. */
static int find_in_column(const mill_stored_rows *rows, const char *name, const void *wanted,
                          size_t n_wanted, row_list *list)
{
  int err = MILL_OK;
  char *value = NULL;
  const mill_stored_column *c = NULL;
  mill_ph5_rows block = {H5I_INVALID_HID, H5I_INVALID_HID};
  for (int i = 0; i < rows->n_column; i++)
    if (strcmp(mill_result_table_name(&rows->column[i]), name) == 0)
      c = &rows->column[i];
  if (!c || n_wanted > c->n_byte)
    goto done;
  MILL_TRY(MILL_ALLOC(BLOCK_ROWS * c->n_byte + n_wanted, &value));
  char *const padded = value + BLOCK_ROWS * c->n_byte; /* the end of a text says that it is all */
  memcpy(padded, wanted, n_wanted);
  for (int64_t at = 0; at < rows->n_row; at += BLOCK_ROWS) {
    const int64_t n = rows->n_row - at < BLOCK_ROWS ? rows->n_row - at : BLOCK_ROWS;
    MILL_TRY(mill_ph5_select_range(rows->path, c->n_dim, rows->n_row, c->n_value, at, n, &block));
    MILL_TRY(mill_ph5_read(c->array.id, rows->path, c->name, c->array.type, &block, value));
    mill_ph5_unselect(&block);
    for (int64_t k = 0; k < n; k++) {
      const char *is = value + (size_t)k * c->n_byte;
      if (memcmp(is, padded, n_wanted) == 0 &&
          (c->type != MILL_TYPE_TEXT || n_wanted == c->n_byte || is[n_wanted] == '\0'))
        MILL_TRY(add_row(list, at + k));
    }
  }
done:
  mill_ph5_unselect(&block);
  mill_free(value);
  return err;
}

/* Adds to the list. */
static int find(const mill_result_table *table, const char *star, row_list *list)
{
  char *end = NULL;
  errno = 0;
  const int64_t n_before = list->n, target = strtoll(star, &end, 10);
  if (end != star && *end == '\0' && errno == 0 && target >= 0) /* -1 is no star's */
    MILL_CHECK(find_in_column(&table->fits, "TARGETID", &target, sizeof target, list));
  if (list->n == n_before && star[0])
    MILL_CHECK(find_in_column(&table->catalog, "IDENTIFIER", star, strlen(star), list));
  if (list->n == n_before && star[0])
    MILL_CHECK(find_in_column(&table->catalog, "OBJECT", star, strlen(star), list));
  if (list->n == n_before)
    return MILL_ERROR(
        MILL_ERR_USAGE,
        "%s: no row has the TARGETID, IDENTIFIER or OBJECT '%s'; `starmill select %s 'STATUS "
        ">= 0' --print identifier` prints all identifiers",
        table->path, star, table->path);
  return MILL_OK;
}

int mill_result_table_find(const mill_result_table *table, int n_star, char *const *star,
                           int64_t **row, int64_t *n)
{
  int err = MILL_OK;
  row_list list = {0};
  for (int i = 0; i < n_star; i++)
    MILL_TRY(find(table, star[i], &list));
  *n = 0; /* each row once: stars are few */
  for (int64_t i = 0; i < list.n; i++) {
    int64_t k = 0;
    while (k < *n && list.row[k] != list.row[i])
      k++;
    if (k == *n)
      list.row[(*n)++] = list.row[i];
  }
done:
  *row = list.row;
  return err;
}
