/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* qsort_r */

#include "io/result/result_primary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/catalog/catalog_row.h"
#include "io/hdf5/hdf5_util.h"
#include "io/hdf5/parallel_hdf5.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/data/result.h"

enum { OBJECT_SIZE = sizeof((mill_catalog_row *)0)->object };

typedef struct star {
  int64_t target_id, row;
  double sn2;  /* sum of the squares of the arms' S/N */
  int quality; /* 0 not fitted, 1 fitted, 2 with a good velocity */
} star;

/* 0 when the two rows are of one star. */
static int compare_star(const star *a, const star *b, const char *object)
{
  const char *name_a = object + a->row * OBJECT_SIZE, *name_b = object + b->row * OBJECT_SIZE;
  if (*name_a || *name_b)
    return strncmp(name_a, name_b, OBJECT_SIZE);
  if (a->target_id != b->target_id)
    return a->target_id < b->target_id ? -1 : 1;
  return a->target_id == -1 ? (a->row > b->row) - (a->row < b->row) : 0;
}

/* Star by star, the best row first. */
static int compare_row(const void *a, const void *b, void *object)
{
  const star *x = a, *y = b;
  const int by_star = compare_star(x, y, object);
  if (by_star != 0)
    return by_star;
  if (x->quality != y->quality)
    return y->quality - x->quality;
  if (x->sn2 != y->sn2)
    return x->sn2 > y->sn2 ? -1 : 1;
  return (x->row > y->row) - (x->row < y->row);
}

/* S/N of all arms together. */
static int add_sn(hid_t file, const char *path, int64_t n_row, star *list)
{
  int err = MILL_OK;
  double *value = NULL;
  H5G_info_t info;
  const hid_t group = H5Gopen2(file, "fits", H5P_DEFAULT);
  if (group < 0 || H5Gget_info(group, &info) < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot read /fits: %s", path, mill_h5_reason());
  MILL_TRY(MILL_ALLOC(n_row, &value));
  for (hsize_t i = 0; i < info.nlinks; i++) {
    char link[64], name[80];
    const ssize_t n = H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, link,
                                         sizeof link, H5P_DEFAULT);
    if (n <= 0 || n >= (ssize_t)sizeof link || strncmp(link, "SN_", 3) != 0)
      continue;
    snprintf(name, sizeof name, "fits/%s", link);
    MILL_TRY(mill_ph5_read_whole(file, path, name, H5T_IEEE_F64LE, n_row, value));
    for (int64_t k = 0; k < n_row; k++)
      list[k].sn2 += value[k] > 0 && isfinite(value[k]) ? value[k] * value[k] : 0.0;
  }
done:
  MILL_H5_CLOSE(group);
  mill_free(value);
  return err;
}

static int read_stars(hid_t file, const char *path, int64_t n_row, star *list)
{
  int err = MILL_OK;
  int64_t *target_id = NULL;
  int32_t *status = NULL;
  uint8_t *is_good = NULL;
  MILL_TRY(MILL_ALLOC(n_row, &target_id));
  MILL_TRY(MILL_ALLOC(n_row, &status));
  MILL_TRY(MILL_ALLOC(n_row, &is_good));
  MILL_TRY(mill_ph5_read_whole(file, path, "fits/TARGETID", H5T_STD_I64LE, n_row, target_id));
  MILL_TRY(mill_ph5_read_whole(file, path, "fits/STATUS", H5T_STD_I32LE, n_row, status));
  MILL_TRY(mill_ph5_read_whole(file, path, "fits/VRAD_GOOD", H5T_STD_U8LE, n_row, is_good));
  for (int64_t i = 0; i < n_row; i++) {
    const int is_fitted = status[i] == MILL_STATUS_FITTED;
    list[i] = (star){.target_id = target_id[i], .row = i, .quality = is_fitted + is_good[i]};
  }
  MILL_TRY(add_sn(file, path, n_row, list));
done:
  MILL_FREE(target_id, status, is_good);
  return err;
}

int mill_result_primary(hid_t file, const char *path, int64_t n_row)
{
  int err = MILL_OK;
  const uint8_t fill = 0;
  star *list = NULL;
  char *object = NULL;
  uint8_t *primary = NULL;
  const hid_t text = mill_ph5_text_type(OBJECT_SIZE);
  MILL_TRY(MILL_ALLOC(n_row, &list));
  MILL_TRY(mill_alloc_bytes((size_t)n_row, OBJECT_SIZE, (void **)&object));
  MILL_TRY(MILL_ALLOC(n_row, &primary));
  MILL_TRY(read_stars(file, path, n_row, list));
  MILL_TRY(mill_ph5_read_whole(file, path, "catalog/OBJECT", text, n_row, object));
  if (n_row > 0)
    qsort_r(list, (size_t)n_row, sizeof *list, compare_row, object);
  for (int64_t i = 0; i < n_row; i++)
    primary[list[i].row] = i == 0 || compare_star(&list[i - 1], &list[i], object) != 0;
  MILL_TRY(mill_ph5_dataset(file, path, MILL_PRIMARY, H5T_STD_U8LE, 1, n_row, 1, &fill, "",
                            "1 in one row of each star, the best one: fitted, then VRAD_GOOD, then "
                            "the highest S/N of all arms together"));
  if (n_row > 0)
    MILL_TRY(mill_ph5_write_whole(file, path, MILL_PRIMARY, H5T_STD_U8LE, primary));
done:
  MILL_H5_CLOSE(text);
  MILL_FREE(list, object, primary);
  return err;
}
