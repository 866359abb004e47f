/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/catalog/catalog_row.h"

#include <stdlib.h>
#include <string.h>

#include "io/files/sha256.h"
#include "src/system/regular_file.h"

void mill_catalog_row_init(mill_catalog_row *row)
{
  memset(row, 0, sizeof *row);
  row->target_id = row->ref_id = row->fiber = row->exp_id = row->healpix = row->uniqpix =
      row->tile_id = row->night = -1;
  row->target_ra = row->target_dec = row->kind.z = NAN;
  row->pmra = row->pmdec = row->parallax = NAN;
  row->gaia_g = row->gaia_bp = row->gaia_rp = NAN;
}

int mill_file_index_alloc(mill_file_index *index, int64_t n_row, int64_t n_exposure)
{
  MILL_CHECK(MILL_ALLOC(n_row, &index->row));
  MILL_CHECK(MILL_ALLOC(n_exposure, &index->exposure_row));
  MILL_CHECK(MILL_ALLOC(n_exposure, &index->exposure_mjd));
  return MILL_ALLOC(n_exposure, &index->exposure_id);
}

void mill_file_index_add(mill_file_index *index, int64_t exposure_row, int32_t exposure_id,
                         double mjd)
{
  index->exposure_mjd[index->n_exposure] = mjd > 0.0 ? mjd : (double)NAN;
  index->exposure_row[index->n_exposure] = exposure_row;
  index->exposure_id[index->n_exposure++] = exposure_id;
}

void mill_file_index_expose(mill_file_index *index, int64_t exposure_row, int32_t exposure_id,
                            double mjd)
{
  mill_catalog_row *row = &index->row[index->n_row - 1];
  if (row->n_exposure++ == 0) {
    row->first_exposure = index->n_exposure;
    row->fits_row = exposure_row;
  }
  row->exp_id = row->n_exposure == 1 ? exposure_id : -1;
  mill_file_index_add(index, exposure_row, exposure_id, mjd);
}

void mill_file_index_clear(mill_file_index *index)
{
  if (!index)
    return;
  MILL_FREE(index->row, index->exposure_row, index->exposure_id, index->exposure_mjd,
            index->exposure_file, index->redrock);
  memset(index, 0, sizeof *index);
}

/* Hash TARGETID, N_EXPOSURE and OBJECT of each row, FITS_ROW and EXPID of its exposures. */
static int64_t hash_rows(const mill_file_index *index)
{
  mill_sha256 sha;
  char hex[65];
  mill_sha256_init(&sha);
  for (int64_t i = 0; i < index->n_row; i++) {
    const mill_catalog_row *row = &index->row[i];
    char object[sizeof row->object] = ""; /* zeros after the text */
    memcpy(object, row->object, strnlen(row->object, sizeof object));
    mill_sha256_update(&sha, &row->target_id, sizeof row->target_id);
    mill_sha256_update(&sha, &row->n_exposure, sizeof row->n_exposure);
    mill_sha256_update(&sha, object, sizeof object);
    for (int64_t k = row->first_exposure; k < row->first_exposure + row->n_exposure; k++) {
      mill_sha256_update(&sha, &index->exposure_row[k], sizeof *index->exposure_row);
      mill_sha256_update(&sha, &index->exposure_id[k], sizeof *index->exposure_id);
    }
  }
  mill_sha256_final(&sha, hex);
  hex[16] = '\0'; /* 16 digits: the first 64 bits */
  return (int64_t)strtoull(hex, NULL, 16);
}

int mill_name_cut(const char *name, size_t n, char *out, size_t size)
{
  mill_sha256 sha;
  char hex[65];
  if (n < size) {
    snprintf(out, size, "%.*s", (int)n, name);
    return 0;
  }
  mill_sha256_init(&sha);
  mill_sha256_update(&sha, name, n);
  mill_sha256_final(&sha, hex);
  snprintf(out, size, "%.*s~%.8s", (int)size - 10, name, hex); /* 10: ~, 8 digits and a zero */
  return 1;
}

/* Set IDENTIFIER to "NAME:FITS_ROW"; NAME is the survey's IDENTIFIER, else the file's name.  A file
 * of one row keeps the survey's IDENTIFIER. */
static void identify_rows(const char *path, mill_file_index *index)
{
  const char *name = mill_base_name(path);
  size_t n = strlen(name);
  if (mill_is_gz(name))
    n -= 3; /* x.fits.gz and x.fits give the same IDENTIFIER */
  /* MOST: bytes of the longest NAME; 22: colon, row number of up to 20 digits, final zero */
  enum { SIZE = sizeof index->row->identifier, MOST = SIZE - 22 };
  for (int64_t i = 0; i < index->n_row; i++) {
    mill_catalog_row *row = &index->row[i];
    const char *given = row->identifier;
    if (given[0] && index->n_row == 1)
      continue;
    index->named_by_file |= !given[0];
    char own[MOST + 1];
    mill_name_cut(given[0] ? given : name, given[0] ? strlen(given) : n, own, sizeof own);
    snprintf(row->identifier, SIZE, "%s:%lld", own, (long long)row->fits_row);
  }
}

/* Keep only the rows of listed stars, with their exposures. */
static void keep_listed(const mill_star_list *stars, mill_file_index *index)
{
  const mill_file_index old = *index; /* same arrays: rows and exposures move to lower indices */
  index->n_row = index->n_exposure = 0;
  for (int64_t i = 0; i < old.n_row; i++) {
    const mill_catalog_row row = old.row[i];
    if (!mill_star_list_has(stars, row.target_id, row.identifier, row.object, NULL))
      continue;
    index->row[index->n_row] = row;
    index->row[index->n_row++].n_exposure = 0; /* mill_file_index_expose counts them again */
    for (int64_t k = row.first_exposure; k < row.first_exposure + row.n_exposure; k++)
      mill_file_index_expose(index, old.exposure_row[k], old.exposure_id[k], old.exposure_mjd[k]);
  }
}

void mill_file_index_identify(const char *path, const mill_star_list *stars, mill_file_index *index)
{
  identify_rows(path, index);
  if (stars)
    keep_listed(stars, index);
  index->rows_hash = hash_rows(index);
}
