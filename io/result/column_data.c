/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/column_data.h"

#include <string.h>

#include "io/hdf5/hdf5_util.h"
#include "io/hdf5/parallel_hdf5.h"
#include "kernels/base/error.h"

hid_t mill_column_hdf5_type(int type)
{
  switch (type) {
  case MILL_TYPE_F64:
    return H5T_IEEE_F64LE;
  case MILL_TYPE_I64:
    return H5T_STD_I64LE;
  case MILL_TYPE_I32:
    return H5T_STD_I32LE;
  case MILL_TYPE_U32:
    return H5T_STD_U32LE;
  default:
    return H5T_STD_U8LE;
  }
}

hid_t mill_column_new_type(int type, size_t n_byte)
{
  return type == MILL_TYPE_TEXT ? mill_ph5_text_type(n_byte) : H5Tcopy(mill_column_hdf5_type(type));
}

int mill_column_create(hid_t group, const char *path, const mill_column *column, int64_t n_row)
{
  int err = MILL_OK;
  char description[256], fill[256] = "";
  const double f64 = column->missing;
  const int64_t i64 = isnan(f64) ? 0 : (int64_t)f64;
  const int32_t i32 = (int32_t)i64;
  const hid_t type = mill_column_new_type(column->type, column->n_byte);
  if (type < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot write %s: %s", path, column->name, mill_h5_reason());
  if (column->type == MILL_TYPE_F64)
    memcpy(fill, &f64, sizeof f64);
  else if (column->type == MILL_TYPE_I64)
    memcpy(fill, &i64, sizeof i64);
  else if (column->type == MILL_TYPE_I32)
    memcpy(fill, &i32, sizeof i32);
  mill_column_description(column, description, sizeof description);
  MILL_TRY(mill_ph5_dataset(group, path, column->name, type, column->vector ? 2 : 1, n_row,
                            column->n_value, fill, column->unit, description));
done:
  MILL_H5_CLOSE(type);
  return err;
}

int mill_column_open(hid_t file, const char *path, const char *group, const mill_column *column,
                     int64_t n_row, hid_t *dataset)
{
  char name[64];
  snprintf(name, sizeof name, "%s/%s", group, column->name);
  return mill_ph5_open_dataset(file, path, name, mill_column_hdf5_type(column->type),
                               column->vector ? 2 : 1, n_row, column->n_value, dataset);
}
