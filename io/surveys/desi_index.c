#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/surveys/desi_file.h"
#include "io/surveys/redrock.h"
#include "io/surveys/selection.h"
#include "src/system/log.h"

/* Columns of FIBERMAP and EXP_FIBERMAP, one value a row. */
typedef struct fibermap {
  int64_t *target_id, *status, *ref_id;
  double *target_ra, *target_dec;
  int32_t *fiber, *exp_id;
  char *objtype, *ref_cat;
  size_t objtype_stride, ref_cat_stride;
  int has_exp_id;
} fibermap;

/* A TARGETID and where it stands. */
typedef struct id_place {
  int64_t target_id, place;
} id_place;

static int compare_id_place(const void *a, const void *b)
{
  const id_place *x = a, *y = b;
  if (x->target_id != y->target_id)
    return x->target_id < y->target_id ? -1 : 1;
  return (x->place > y->place) - (x->place < y->place);
}

static void clear_fibermap(fibermap *map)
{
  MILL_FREE(map->target_id, map->status, map->ref_id, map->target_ra, map->target_dec, map->fiber,
            map->exp_id, map->objtype, map->ref_cat);
}

static int read_fibermap(mill_desi_file *file, const mill_selection *select, fibermap *map)
{
  int err = MILL_OK;
  mill_fits_file *fits = file->fits;
  const int i_hdu = file->i_fibermap;
  int found = 0;
  MILL_TRY(mill_fits_table_int64(fits, i_hdu, "TARGETID", -1, &map->target_id, NULL));
  MILL_TRY(
      mill_fits_column_text(fits, i_hdu, "OBJTYPE", &map->objtype, &map->objtype_stride, NULL));
  MILL_TRY(mill_fits_table_int64(fits, i_hdu, "FIBERSTATUS", 0, &map->status, &found));
  if (!found)
    MILL_TRY(mill_fits_column_int64(fits, i_hdu, "COADD_FIBERSTATUS", map->status, &found));
  if (!found && select->fiberstatus_allowed != UINT64_MAX)
    MILL_FAIL_HDU(fits, i_hdu,
                  " has neither FIBERSTATUS nor COADD_FIBERSTATUS, so bad fibers cannot be told; "
                  "give a DESI file, or allow all bits by fiberstatus_allowed_bits");
  MILL_TRY(mill_fits_table_int64(fits, i_hdu, "REF_ID", -1, &map->ref_id, &found));
  MILL_TRY(
      mill_fits_column_text(fits, i_hdu, "REF_CAT", &map->ref_cat, &map->ref_cat_stride, &found));
  MILL_TRY(mill_fits_table_double(fits, i_hdu, "TARGET_RA", NAN, &map->target_ra, &found));
  MILL_TRY(mill_fits_table_double(fits, i_hdu, "TARGET_DEC", NAN, &map->target_dec, &found));
  MILL_TRY(mill_fits_table_int32(fits, i_hdu, "FIBER", -1, &map->fiber, &found));
  MILL_TRY(mill_fits_table_int32(fits, i_hdu, "EXPID", -1, &map->exp_id, &map->has_exp_id));
done:
  return err;
}

/* EXPID of a coadd's row from EXP_FIBERMAP, where one exposure made it. */
static int fill_exp_id(mill_desi_file *file, fibermap *map)
{
  int err = MILL_OK;
  int64_t *target_id = NULL;
  int32_t *exp_id = NULL;
  id_place *key = NULL;
  int has_id = 0, has_exp = 0;
  const int i_hdu = file->i_exp_fibermap;
  if (map->has_exp_id || i_hdu < 0 || file->fits->guard->hdu[i_hdu].kind != MILL_FITS_TABLE)
    goto done;
  const int64_t n = file->fits->guard->hdu[i_hdu].axis[1];
  MILL_TRY(mill_fits_table_int64(file->fits, i_hdu, "TARGETID", -1, &target_id, &has_id));
  MILL_TRY(mill_fits_table_int32(file->fits, i_hdu, "EXPID", -1, &exp_id, &has_exp));
  MILL_TRY(MILL_ALLOC(n, &key));
  if (!has_id || !has_exp)
    goto done;
  for (int64_t i = 0; i < n; i++)
    key[i] = (id_place){target_id[i], i};
  qsort(key, (size_t)n, sizeof *key, compare_id_place);
  for (int64_t i = 0; i < file->n_spec; i++) {
    int64_t low = 0, high = n;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (key[middle].target_id < map->target_id[i])
        low = middle + 1;
      else
        high = middle;
    }
    if (low < n && key[low].target_id == map->target_id[i] &&
        (low + 1 == n || key[low + 1].target_id != map->target_id[i]))
      map->exp_id[i] = exp_id[key[low].place];
  }
done:
  MILL_FREE(target_id, exp_id, key);
  return err;
}

/* Read the redrock file that the user names, else the one in the input's folder.  Where no rows are
 * selected by it the latter may be missing, and a bad one costs only its columns.  The index notes
 * the file that rows are selected by. */
static int read_redrock(mill_desi_file *file, const mill_selection *select, mill_redrock *redrock,
                        mill_file_index *index)
{
  int err = MILL_OK;
  char beside[MILL_FITS_MAX_PATH];
  const char *path = select->redrock_file;
  if (!*path) {
    MILL_TRY(mill_redrock_beside(file->fits->guard->path, beside, sizeof beside));
    path = beside;
    if (!*path && select->redrock)
      MILL_FAIL(MILL_ERR_INPUT,
                "%s: no redrock file lies beside it (coadd- or spectra- replaced by redrock-), but "
                "rows are selected by one; put it there, set redrock_file, or switch redrock off",
                file->fits->guard->path);
  }
  if (!*path)
    goto done;
  err = mill_redrock_read(path, &file->limits, redrock);
  if (err == MILL_OK && select->redrock) {
    const size_t n = strlen(path) + 1;
    MILL_TRY(MILL_ALLOC(n, &index->redrock));
    memcpy(index->redrock, path, n);
    index->redrock_size = redrock->file_size;
    index->redrock_mtime = redrock->file_mtime;
  }
  if (err == MILL_ERR_INPUT && !select->redrock && !*select->redrock_file) {
    mill_log_warning("%s; Z, SPECTYPE and SUBTYPE stay empty", mill_error_message());
    err = MILL_OK;
  }
done:
  return err;
}

/* Put the kept FITS rows into groups, one per row of the result.
 *
 *  fits_row [n]  in   kept rows, ascending
 *  index         out  exposure_row in the order of the groups, row[].first_exposure
 *                     and n_exposure
 */
static int group_rows(const fibermap *map, const int64_t *fits_row, int64_t n, int joint,
                      mill_file_index *index)
{
  int err = MILL_OK;
  id_place *by_target = NULL, *group = NULL;
  MILL_TRY(MILL_ALLOC(n, &by_target));
  MILL_TRY(MILL_ALLOC(n, &group));
  for (int64_t i = 0; i < n; i++)
    by_target[i] = (id_place){map->target_id[fits_row[i]], fits_row[i]};
  int64_t n_group = 0;
  if (joint) {
    qsort(by_target, (size_t)n, sizeof *by_target, compare_id_place);
    /* a group is known by its first FITS row, in order of which groups come;
     * target_id here is that row, place where the group begins */
    for (int64_t i = 0; i < n; i++) {
      if (i == 0 || by_target[i].target_id != by_target[i - 1].target_id)
        group[n_group++] = (id_place){by_target[i].place, i};
    }
    qsort(group, (size_t)n_group, sizeof *group, compare_id_place);
  } else {
    for (; n_group < n; n_group++)
      group[n_group] = (id_place){by_target[n_group].place, n_group};
  }
  MILL_TRY(mill_file_index_alloc(index, n_group, n));
  for (int64_t i = 0; i < n_group; i++) {
    mill_catalog_row *row = &index->row[i];
    row->first_exposure = index->n_exposure;
    const int64_t start = group[i].place;
    for (int64_t j = start;
         j < n && (j == start || (joint && by_target[j].target_id == by_target[start].target_id));
         j++) {
      mill_file_index_add(index, by_target[j].place, map->exp_id[by_target[j].place]);
      if (row->n_exposure == INT32_MAX)
        MILL_FAIL(MILL_ERR_RANGE, "target %lld has too many exposures",
                  (long long)by_target[j].target_id);
      row->n_exposure++;
    }
  }
  index->n_row = n_group;
done:
  mill_free(by_target);
  mill_free(group);
  return err;
}

static void fill_row(const char *path, const fibermap *map, const mill_redrock *redrock,
                     const int64_t *exposure_row, mill_catalog_row *row)
{
  const int64_t i = exposure_row[row->first_exposure];
  row->fits_row = i;
  row->target_id = map->target_id[i];
  row->target_ra = map->target_ra[i];
  row->target_dec = map->target_dec[i];
  row->fiber = map->fiber[i];
  row->exp_id = row->n_exposure == 1 ? map->exp_id[i] : -1;
  row->ref_id = map->ref_id[i];
  if (map->ref_cat)
    mill_fits_text_copy(path, "REF_CAT", map->ref_cat + (size_t)i * map->ref_cat_stride,
                        row->ref_cat, sizeof row->ref_cat);
  row->z = NAN;
  const mill_redshift *match = mill_redrock_find(redrock, row->target_id);
  if (match) {
    row->z = match->z;
    memcpy(row->spectype, match->spectype, sizeof row->spectype);
    memcpy(row->subtype, match->subtype, sizeof row->subtype);
  }
}

int mill_desi_index(mill_desi_file *file, const mill_selection *select, int joint,
                    mill_file_index *index)
{
  int err = MILL_OK;
  fibermap map = {0};
  mill_redrock redrock = {0};
  int64_t *kept = NULL;
  memset(index, 0, sizeof *index);
  MILL_TRY(read_fibermap(file, select, &map));
  MILL_TRY(fill_exp_id(file, &map));
  MILL_TRY(read_redrock(file, select, &redrock, index));
  MILL_TRY(MILL_ALLOC(file->n_spec, &kept));
  int64_t n_kept = 0;
  for (int64_t i = 0; i < file->n_spec; i++) {
    const mill_redshift *match = mill_redrock_find(&redrock, map.target_id[i]);
    if (mill_selection_keeps_target(select, map.target_id[i]) &&
        mill_selection_keeps_objtype(select, map.objtype + (size_t)i * map.objtype_stride) &&
        mill_selection_keeps_fiberstatus(select, (uint64_t)map.status[i]) &&
        mill_selection_keeps_redrock(select, match ? match->z : NAN, match ? match->spectype : ""))
      kept[n_kept++] = i;
  }
  /* a coadd has one row a target already */
  MILL_TRY(group_rows(&map, kept, n_kept, joint && map.has_exp_id, index));
  for (int64_t i = 0; i < index->n_row; i++)
    fill_row(file->fits->guard->path, &map, &redrock, index->exposure_row, &index->row[i]);
  index->n_fits_row = file->n_spec;
  index->file_size = file->fits->guard->file_size;
  index->file_mtime = file->fits->guard->file_mtime;
done:
  clear_fibermap(&map);
  mill_redrock_clear(&redrock);
  mill_free(kept);
  if (err != MILL_OK)
    mill_file_index_clear(index);
  return err;
}
