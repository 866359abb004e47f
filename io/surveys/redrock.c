/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/surveys/redrock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/fits/fits_file.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/order.h"
#include "src/system/regular_file.h"

typedef struct columns {
  int64_t *target_id;
  int32_t *zwarn;
  double *z;
  mill_fits_texts spectype, subtype;
} columns;

static const mill_fits_wish wish[] = {
    {"TARGETID", MILL_AS_INT64, offsetof(columns, target_id), -1, 1},
    {"Z", MILL_AS_DOUBLE, offsetof(columns, z), NAN, 1},
    {"ZWARN", MILL_AS_INT32, offsetof(columns, zwarn), 0, 0},
    {"SPECTYPE", MILL_AS_TEXT, offsetof(columns, spectype), 0, 1},
    {"SUBTYPE", MILL_AS_TEXT, offsetof(columns, subtype), 0, 0}};
enum { N_WISH = sizeof wish / sizeof *wish };

int mill_redrock_read(const char *path, const mill_open_limits *limits, mill_redrock *out)
{
  int err = MILL_OK;
  mill_fits_file *file = NULL;
  columns c = {0};
  mill_keyed *key = NULL;
  int i_hdu;
  MILL_TRY(mill_fits_file_open(path, limits, &file));
  MILL_TRY(mill_fits_file_check_rows(file));
  MILL_TRY(mill_fits_file_find(file, "REDSHIFTS", &i_hdu));
  if (i_hdu < 0)
    MILL_TRY(mill_fits_file_find(file, "ZBEST", &i_hdu));
  if (i_hdu < 0)
    MILL_FAIL(MILL_ERR_INPUT, "%s: has no HDU REDSHIFTS or ZBEST; give a redrock file", path);
  out->file_size = file->guard->file_size;
  out->file_mtime = file->guard->file_mtime;
  MILL_TRY(mill_fits_columns(file, i_hdu, wish, N_WISH, &c, NULL));
  const int64_t n_row = file->guard->hdu[i_hdu].axis[1];
  MILL_TRY(MILL_ALLOC(n_row, &key));
  MILL_TRY(MILL_ALLOC(n_row, &out->row));
  for (int64_t i = 0; i < n_row; i++)
    key[i] = (mill_keyed){c.target_id[i], i};
  qsort(key, (size_t)n_row, sizeof *key, mill_by_key);
  for (int64_t i = 0; i < n_row; i++) {
    if (out->n > 0 && out->row[out->n - 1].target_id == key[i].key)
      continue;
    mill_redshift *row = &out->row[out->n++];
    row->target_id = key[i].key;
    row->z = c.z[key[i].place];
    row->zwarn = c.zwarn[key[i].place];
    mill_fits_text_copy(path, "SPECTYPE", mill_fits_text_at(&c.spectype, key[i].place),
                        row->spectype, sizeof row->spectype);
    mill_fits_text_copy(path, "SUBTYPE", mill_fits_text_at(&c.subtype, key[i].place), row->subtype,
                        sizeof row->subtype);
  }
done:
  mill_fits_columns_free(wish, N_WISH, &c);
  mill_free(key);
  mill_fits_file_close(file);
  if (err != MILL_OK)
    mill_redrock_clear(out);
  return err;
}

void mill_redrock_clear(mill_redrock *redrock)
{
  mill_free(redrock->row);
  memset(redrock, 0, sizeof *redrock);
}

const mill_redshift *mill_redrock_find(const mill_redrock *redrock, int64_t target_id)
{
  size_t low = 0, high = target_id == -1 ? 0 : redrock->n; /* -1 is nobody's */
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (redrock->row[middle].target_id < target_id)
      low = middle + 1;
    else
      high = middle;
  }
  return low < redrock->n && redrock->row[low].target_id == target_id ? &redrock->row[low] : NULL;
}

static const char *const beside_prefix[] = {"redrock-", "zbest-"};

int mill_redrock_is_name(const char *name)
{
  for (int i = 0; i < 2; i++)
    if (strncmp(name, beside_prefix[i], strlen(beside_prefix[i])) == 0)
      return 1;
  return 0;
}

int mill_redrock_beside(const char *path, char *out, size_t size)
{
  static const char *const from[] = {"coadd-", "spectra-"};
  static const char *const end[] = {"", ".gz"};
  const char *name = mill_base_name(path);
  out[0] = '\0';
  for (int i = 0; i < 2; i++) {
    const size_t n = strlen(from[i]);
    if (strncmp(name, from[i], n) != 0)
      continue;
    size_t rest = strlen(name + n);
    if (mill_is_gz(name + n))
      rest -= 3;
    for (int j = 0; j < 4; j++) {
      const int length = snprintf(out, size, "%.*s%s%.*s%s", (int)(name - path), path,
                                  beside_prefix[j / 2], (int)rest, name + n, end[j % 2]);
      if (length < 0 || (size_t)length >= size) {
        out[0] = '\0';
        return MILL_ERROR(MILL_ERR_INPUT, "%.100s...: the path of its redrock file is too long",
                          path);
      }
      if (access(out, F_OK) == 0)
        return MILL_OK;
    }
    out[0] = '\0';
  }
  return MILL_OK;
}
