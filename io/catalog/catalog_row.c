/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/catalog/catalog_row.h"

#include <math.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"

void mill_catalog_row_init(mill_catalog_row *row)
{
  memset(row, 0, sizeof *row);
  row->target_id = row->ref_id = row->fiber = row->exp_id = row->healpix = row->tile_id =
      row->night = -1;
  row->target_ra = row->target_dec = row->z = NAN;
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
