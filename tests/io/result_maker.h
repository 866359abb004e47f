/* SPDX-License-Identifier: BSD-3-Clause */
/* A result file with some columns of /fits and /catalog, whose rows are fitted and whole. */
#ifndef MILL_RESULT_MAKER_H
#define MILL_RESULT_MAKER_H

#include <hdf5.h>
#include <zlib.h>

#include "io/hdf5/parallel_hdf5.h"
#include "io/result/result_layout.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "tests/mill_test.h"

typedef struct maker_dataset {
  const char *name; /* "fits/VRAD" */
  hid_t type;
  const void *values;
} maker_dataset;

static void maker_put(hid_t file, hid_t creation, hsize_t n_row, const maker_dataset *d)
{
  const hid_t space = H5Screate_simple(1, &n_row, NULL);
  const hid_t set = H5Dcreate2(file, d->name, d->type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  assert_true(set >= 0 && H5Dwrite(set, d->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, d->values) >= 0);
  H5Dclose(set);
  H5Sclose(space);
}

/* left_out: one of the datasets that is not written, NULL: none. */
static void maker_result(const char *path, hid_t creation, hsize_t n_row, int n,
                         const maker_dataset *data, const char *left_out)
{
  uint32_t *crc = NULL;
  int32_t *status = NULL;
  char order[1024] = "";
  assert_int_equal(MILL_ALLOC(n_row, &crc) + MILL_ALLOC(n_row, &status), MILL_OK);
  const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(file >= 0);
  assert_int_equal(mill_result_layout_put_format(file, path), MILL_OK);
  H5Gclose(H5Gcreate2(file, "fits", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Gclose(H5Gcreate2(file, "catalog", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  for (int i = 0; i < n; i++) {
    const size_t n_byte = H5Tget_size(data[i].type);
    if (left_out && strcmp(left_out, data[i].name) == 0)
      continue;
    maker_put(file, creation, n_row, &data[i]);
    if (strncmp(data[i].name, "fits/", 5) != 0)
      continue;
    strcat(strcat(order, order[0] ? " " : ""), data[i].name + 5);
    for (size_t k = 0; k < n_row; k++)
      crc[k] = (uint32_t)crc32(crc[k], (const Bytef *)data[i].values + k * n_byte, (uInt)n_byte);
  }
  for (size_t k = 0; k < n_row; k++)
    status[k] = MILL_STATUS_FITTED;
  maker_put(file, creation, n_row, &(maker_dataset){"fits/CRC", H5T_STD_U32LE, crc});
  maker_put(file, creation, n_row, &(maker_dataset){"fits/STATUS", H5T_STD_I32LE, status});
  assert_int_equal(mill_ph5_attr_text(file, path, "fits/CRC", "COLUMNS", order), MILL_OK);
  assert_true(H5Fclose(file) >= 0);
  MILL_FREE(crc, status);
}

#endif
