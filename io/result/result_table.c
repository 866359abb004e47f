/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/result_table.h"

#include <string.h>

#include "io/result/result_layout.h"
#include "kernels/base/error.h"

int mill_result_table_open(const char *path, int code, mill_result_table *table)
{
  size_t n_row = 0;
  memset(table, 0, sizeof *table);
  table->path = path;
  table->file.id = H5I_INVALID_HID;
  MILL_CHECK(mill_h5_open(path, code, &table->file));
  MILL_CHECK(mill_h5_scan(&table->file));
  MILL_CHECK(mill_result_layout_check(table->file.id, path, code));
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
