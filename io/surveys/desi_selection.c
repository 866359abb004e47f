/* SPDX-License-Identifier: BSD-3-Clause */
/* Selection by DESI's target bits and by the S/N in SCORES. */
#include <math.h>
#include <stdio.h>

#include "io/surveys/desi_file.h"
#include "io/surveys/selection.h"
#include "io/surveys/target_bits.h"
#include "kernels/base/memory.h"

/* Set *in_class [n_spec]: is the spectrum in a wanted target class?  If FIBERMAP has target columns
 * of commissioning or survey validation, only these count. */
int mill_desi_classes(mill_desi_file *file, const mill_selection *select, int **in_class)
{
  int n_main = 0, n_early = 0; /* columns of the main survey; of commissioning and validation */
  MILL_OWNED int64_t *value = NULL;
  if (select->n_target_class == 0)
    return MILL_OK;
  MILL_CHECK(MILL_ALLOC(file->n_spec, in_class));
  MILL_CHECK(mill_target_bits_check(select, file->fits->guard->path));
  for (int i = 0; mill_target_column(i); i++) {
    uint64_t bits = 0;
    int found = 0;
    const int is_early = mill_target_column_is_early(i);
    MILL_CHECK(mill_target_bits(select, i, &bits));
    MILL_CHECK(
        mill_fits_table_int64(file->fits, file->i_fibermap, mill_target_column(i), &value, &found));
    n_early += is_early && found;
    n_main += !is_early && found;
    for (int64_t k = 0; k < file->n_spec; k++)
      (*in_class)[k] |= (((uint64_t)value[k] & bits) != 0) << is_early; /* bit 0: main; 1: early */
    mill_free(value);
    value = NULL;
  }
  if (n_main + n_early == 0)
    return MILL_ERROR_HDU(
        file->fits, file->i_fibermap,
        " has no column of target bits (DESI_TARGET, SV1_DESI_TARGET, CMX_TARGET, ...), "
        "by which target_classes selects; leave that out for this file");
  for (int64_t k = 0; k < file->n_spec; k++)
    (*in_class)[k] = (*in_class)[k] >> (n_early > 0) & 1;
  return MILL_OK;
}

/* Fail unless SCORES has the same rows as FIBERMAP, in the same order. */
static int check_scores(mill_desi_file *file, int i_scores, const int64_t *target_id)
{
  int found = 0;
  MILL_OWNED int64_t *id = NULL;
  const mill_fits_hdu *hdu = &file->fits->guard->hdu[i_scores];
  if (hdu->kind != MILL_FITS_TABLE || hdu->axis[1] != file->n_spec)
    return MILL_ERROR_HDU(file->fits, i_scores,
                          " must be a table with the %lld rows of FIBERMAP; set minsn_from: pixels",
                          (long long)file->n_spec);
  MILL_CHECK(mill_fits_table_int64(file->fits, i_scores, "TARGETID", &id, &found));
  for (int64_t i = 0; found && file->i_fibermap >= 0 && i < file->n_spec; i++)
    if (id[i] != target_id[i])
      return MILL_ERROR_HDU(
          file->fits, i_scores,
          " has TARGETID %lld in row %lld, where FIBERMAP has %lld; set minsn_from: pixels",
          (long long)id[i], (long long)i, (long long)target_id[i]);
  return MILL_OK;
}

/* Set *sn [n_spec] to the largest S/N of the fitted arms; all arms have the same kind of column. */
int mill_desi_scores(mill_desi_file *file, const mill_selection *select, const int64_t *target_id,
                     double **sn)
{
  int i_scores = -1, found = 0;
  static const char *const begin[] = {"MEDIAN_CALIB_SNR_", "MEDIAN_COADD_SNR_",
                                      "MEDIAN_COADD_FLUX_SNR_"};
  int first = 0, last = sizeof begin / sizeof begin[0] - 1;
  MILL_OWNED double *value = NULL;
  if (!mill_selection_has_scores(select))
    return MILL_OK;
  MILL_CHECK(MILL_ALLOC(file->n_spec, sn));
  MILL_CHECK(mill_fits_file_find(file->fits, "SCORES", &i_scores));
  if (i_scores < 0)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: has no HDU SCORES, by which minsn selects; set minsn_from: pixels",
                      file->fits->guard->path);
  MILL_CHECK(check_scores(file, i_scores, target_id));
  MILL_CHECK(MILL_ALLOC(file->n_spec, &value));
  for (int64_t k = 0; k < file->n_spec; k++)
    (*sn)[k] = -INFINITY;
  for (int i = 0; i < file->n_arm; i++) {
    const mill_desi_arm *a = &file->arm[i];
    char name[64];
    if (a->n_pix == 0 || a->is_unwanted)
      continue;
    found = 0;
    for (int k = first; k <= last && !found; k++) {
      snprintf(name, sizeof name, "%s%s", begin[k], a->prefix);
      MILL_CHECK(mill_fits_column_double(file->fits, i_scores, name, value, &found));
      if (found)
        first = last = k; /* the other arms need a column of this kind */
    }
    if (!found)
      return MILL_ERROR_HDU(file->fits, i_scores, " has no column %s; set minsn_from: pixels",
                            name);
    for (int64_t k = 0; k < file->n_spec; k++)
      if (value[k] > (*sn)[k]) /* false for NaN */
        (*sn)[k] = value[k];
  }
  return MILL_OK;
}
