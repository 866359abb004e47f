/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/surveys/redrock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/fits/fits_file.h"
#include "src/system/order.h"
#include "src/system/regular_file.h"

enum { ID, Z, ZWARN, SPECTYPE, SUBTYPE, N_WISH };
#define AT(member)                                                                                 \
  .at = offsetof(mill_redshift, member), .size = sizeof(((mill_redshift *)0)->member)
static const mill_fits_wish wish[N_WISH] = {
    [ID] = {"TARGETID", MILL_AS_INT64, -1, 1, AT(target_id)},
    [Z] = {"Z", MILL_AS_DOUBLE, NAN, 1, AT(kind.z)},
    [ZWARN] = {"ZWARN", MILL_AS_INT32, 0, 0, AT(kind.zwarn)},
    [SPECTYPE] = {"SPECTYPE", MILL_AS_TEXT, 0, 1, AT(kind.spectype)},
    [SUBTYPE] = {"SUBTYPE", MILL_AS_TEXT, 0, 0, AT(kind.subtype)}};

int mill_redrock_read(const char *path, const mill_open_limits *limits, mill_redrock *out)
{
  MILL_AT_END(mill_fits_file_close_at) mill_fits_file *file = NULL;
  MILL_FITS_VALUES(v, N_WISH);
  MILL_OWNED mill_keyed *key = NULL;
  int i_hdu;
  MILL_CHECK(mill_fits_file_open(path, limits, &file));
  MILL_CHECK(mill_fits_file_check_rows(file));
  MILL_CHECK(mill_fits_file_find(file, "REDSHIFTS", &i_hdu));
  if (i_hdu < 0)
    MILL_CHECK(mill_fits_file_find(file, "ZBEST", &i_hdu));
  if (i_hdu < 0)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: has no HDU REDSHIFTS or ZBEST; give a redrock file",
                      path);
  out->file_size = file->guard->file_size;
  out->file_mtime = file->guard->file_mtime;
  MILL_CHECK(mill_fits_columns(file, i_hdu, wish, N_WISH, v));
  const int64_t n_row = file->guard->hdu[i_hdu].axis[1];
  MILL_CHECK(MILL_ALLOC(n_row, &key));
  MILL_CHECK(MILL_ALLOC(n_row, &out->row));
  for (int64_t i = 0; i < n_row; i++)
    key[i] = (mill_keyed){v[ID].i64[i], i};
  qsort(key, (size_t)n_row, sizeof *key, mill_by_key);
  for (int64_t i = 0; i < n_row; i++) {
    if (out->n > 0 && out->row[out->n - 1].target_id == key[i].key)
      continue; /* use the first row of a TARGETID */
    mill_fits_fill(path, wish, N_WISH, v, key[i].place, &out->row[out->n++]);
  }
  return MILL_OK;
}

void mill_redrock_clear(mill_redrock *redrock)
{
  mill_free(redrock->row);
  memset(redrock, 0, sizeof *redrock);
}

const mill_redshift *mill_redrock_find(const mill_redrock *redrock, int64_t target_id)
{
  if (redrock->n == 0 || target_id == -1) /* -1: no identifier */
    return NULL;
  return bsearch(&target_id, redrock->row, redrock->n, sizeof *redrock->row, mill_by_int64);
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
  for (int i = 0; i < 8; i++) { /* all combinations of from, beside_prefix and end */
    const char *old = from[i / 4], *prefix = beside_prefix[i / 2 % 2], *suffix = end[i % 2];
    const size_t n = strlen(old);
    if (strncmp(name, old, n) != 0)
      continue;
    const size_t rest = strlen(name + n) - (mill_is_gz(name + n) ? 3 : 0);
    if ((size_t)snprintf(out, size, "%.*s%s%.*s%s", (int)(name - path), path, prefix, (int)rest,
                         name + n, suffix) >= size) {
      out[0] = '\0';
      return MILL_ERROR(MILL_ERR_INPUT, "%.100s...: path of its redrock file is too long", path);
    }
    if (access(out, F_OK) == 0)
      return MILL_OK;
  }
  out[0] = '\0';
  return MILL_OK;
}
