/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "io/catalog/places.h"
#include "io/surveys/desi_file.h"
#include "io/surveys/redrock.h"
#include "io/surveys/selection.h"
#include "io/surveys/single_spectrum.h"
#include "src/system/log.h"
#include "src/system/order.h"
#include "kernels/base/memory.h"

enum { SEVERAL = -2 /* tiles or nights, where one is asked for */ };

/* Columns of FIBERMAP, or of EXP_FIBERMAP the first four, one value a row. */
typedef struct fibermap {
  int64_t *target_id, *status, *coadd_status, *ref_id;
  double *mjd, *target_ra, *target_dec, *pmra, *pmdec, *parallax, *gaia_g, *gaia_bp, *gaia_rp;
  int32_t *fiber, *exp_id, *healpix, *tile_id, *night;
  mill_fits_texts objtype, ref_cat, survey, program;
  uint64_t there; /* bits of enum below */
} fibermap;

enum { TARGET, EXP, TILE, NIGHT, STATUS, COADD_STATUS, OBJTYPE };
#define HAS(map, column) ((map)->there >> (column)&1)

#define WISH(name, as, field, missing, is_needed)                                                  \
  {                                                                                                \
    name, MILL_AS_##as, offsetof(fibermap, field), missing, is_needed                              \
  }
static const mill_fits_wish wish[] = {
    [TARGET] = WISH("TARGETID", INT64, target_id, -1, 1),
    [EXP] = WISH("EXPID", INT32, exp_id, -1, 0),
    [TILE] = WISH("TILEID", INT32, tile_id, -1, 0),
    [NIGHT] = WISH("NIGHT", INT32, night, -1, 0),
    [STATUS] = WISH("FIBERSTATUS", INT64, status, -1, 0), /* unknown: all bits */
    [COADD_STATUS] = WISH("COADD_FIBERSTATUS", INT64, coadd_status, -1, 0),
    [OBJTYPE] = WISH("OBJTYPE", TEXT, objtype, 0, 1),
    WISH("MJD", DOUBLE, mjd, NAN, 0),
    WISH("REF_ID", INT64, ref_id, -1, 0),
    WISH("REF_CAT", TEXT, ref_cat, 0, 0),
    WISH("TARGET_RA", DOUBLE, target_ra, NAN, 0),
    WISH("TARGET_DEC", DOUBLE, target_dec, NAN, 0),
    WISH("FIBER", INT32, fiber, -1, 0),
    WISH("PMRA", DOUBLE, pmra, NAN, 0),
    WISH("PMDEC", DOUBLE, pmdec, NAN, 0),
    WISH("PARALLAX", DOUBLE, parallax, NAN, 0),
    WISH("GAIA_PHOT_G_MEAN_MAG", DOUBLE, gaia_g, NAN, 0),
    WISH("GAIA_PHOT_BP_MEAN_MAG", DOUBLE, gaia_bp, NAN, 0),
    WISH("GAIA_PHOT_RP_MEAN_MAG", DOUBLE, gaia_rp, NAN, 0),
    WISH("HEALPIX", INT32, healpix, -1, 0),
    WISH("SURVEY", TEXT, survey, 0, 0),
    WISH("PROGRAM", TEXT, program, 0, 0),
};
enum { N_WISH = sizeof wish / sizeof *wish, N_EXP_WISH = NIGHT + 1 };

/* Header values for all rows, where FIBERMAP has no column. */
typedef struct division {
  int32_t healpix, tile_id, night;
  char survey[8], program[16];
} division;

/* Columns by which tables joined over files identify rows. */
static int read_division(mill_desi_file *file, division *all)
{
  int found = 0;
  mill_fits_file *fits = file->fits;
  char group[FLEN_VALUE] = "";
  *all = (division){.healpix = -1, .tile_id = -1, .night = -1};
  MILL_CHECK(mill_single_key_text(fits, 0, "SPGRP", group, sizeof group, NULL));
  MILL_CHECK(mill_single_key_int32(fits, 0, "HPXPIXEL", &all->healpix, &found));
  if (!found && strcmp(group, "healpix") == 0)
    MILL_CHECK(mill_single_key_int32(fits, 0, "SPGRPVAL", &all->healpix, NULL));
  MILL_CHECK(mill_single_key_int32(fits, 0, "TILEID", &all->tile_id, NULL));
  if (strcmp(group, "cumulative") != 0) /* which names the last of several nights */
    MILL_CHECK(mill_single_key_int32(fits, 0, "NIGHT", &all->night, NULL));
  /* tiles' files say it of FIBERMAP alone */
  for (int k = 0; k < (file->i_fibermap < 0 ? 1 : 2); k++) {
    const int i_key = k == 0 ? 0 : file->i_fibermap;
    if (!all->survey[0])
      MILL_CHECK(
          mill_single_key_text(fits, i_key, "SURVEY", all->survey, sizeof all->survey, NULL));
    if (!all->program[0])
      MILL_CHECK(
          mill_single_key_text(fits, i_key, "PROGRAM", all->program, sizeof all->program, NULL));
  }
  return MILL_OK;
}

#define NO_FIBERMAP "has no FIBERMAP: all its spectra are taken, sky and bad fibers too; "

/* Without FIBERMAP all spectra are taken, and SCORES, which has the same rows, may have
 * TARGETID. */
static int do_without_fibermap(mill_desi_file *file, const mill_selection *select, fibermap *map,
                               const char **warning)
{
  int i_scores = -1, found = 0;
  mill_fits_file *fits = file->fits;
  const char *path = fits->guard->path;
  if (mill_selection_has_exp_id(select) || select->n_target_class > 0)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: has no FIBERMAP, by which minexpid, maxexpid and target_classes select; "
                      "leave these out",
                      path);
  MILL_CHECK(mill_fits_columns_missing(wish, N_WISH, file->n_spec, map));
  MILL_CHECK(mill_fits_file_find(fits, "SCORES", &i_scores));
  if (i_scores >= 0 && fits->guard->hdu[i_scores].kind == MILL_FITS_TABLE &&
      fits->guard->hdu[i_scores].axis[1] == file->n_spec)
    MILL_CHECK(mill_fits_column_int64(fits, i_scores, "TARGETID", map->target_id, &found));
  *warning = found ? NO_FIBERMAP "TARGETID is that of SCORES"
                   : NO_FIBERMAP "they have no TARGETID, and IDENTIFIER numbers them";
  return MILL_OK;
}

static int read_fibermap(mill_desi_file *file, const mill_selection *select, fibermap *map,
                         const char **warning)
{
  if (file->i_fibermap < 0)
    return do_without_fibermap(file, select, map, warning);
  MILL_CHECK(mill_fits_columns(file->fits, file->i_fibermap, wish, N_WISH, map, &map->there));
  if (!HAS(map, STATUS) && !HAS(map, COADD_STATUS) && select->fiberstatus_allowed != UINT64_MAX)
    return MILL_ERROR_HDU(
        file->fits, file->i_fibermap,
        " has neither FIBERSTATUS nor COADD_FIBERSTATUS, so bad fibers cannot be found; "
        "give a DESI file, or allow all bits by fiberstatus_allowed_bits");
  if (mill_selection_has_exp_id(select) && !HAS(map, EXP))
    return MILL_ERROR_HDU(
        file->fits, file->i_fibermap,
        " has no EXPID, by which minexpid and maxexpid select; give spectra files, or "
        "leave these out");
  return MILL_OK;
}

/* The common value of n exposures. */
static int32_t shared(const int32_t *column, const mill_keyed *key, int64_t n)
{
  const int32_t first = column[key[0].place];
  for (int64_t k = 1; k < n; k++)
    if (column[key[k].place] != first)
      return SEVERAL;
  return first;
}

/* Give the first row of each target, of n in order, the common values of all its rows. */
static void share_exposures(const mill_keyed *key, int64_t n, int32_t *exp_id, int32_t *tile_id,
                            int32_t *night)
{
  for (int64_t first = 0, end = 0; first < n; first = end) {
    const int64_t at = key[first].place;
    for (end = first + 1; end < n && key[end].key == key[first].key; end++)
      continue;
    if (end > first + 1)
      exp_id[at] = -1;
    tile_id[at] = shared(tile_id, key + first, end - first);
    night[at] = shared(night, key + first, end - first);
  }
}

/* Columns that FIBERMAP lacks, of a coadd's row from the rows of EXP_FIBERMAP of its target: EXPID
 * where one exposure made it, TILEID and NIGHT where all agree. */
static int fill_from_exposures(mill_desi_file *file, fibermap *map)
{
  int err = MILL_OK;
  fibermap exposures = {0};
  mill_keyed *key = NULL;
  mill_fits_file *fits = file->fits;
  const int i_hdu = file->i_exp_fibermap;
  mill_fits_wish of_exposures[N_EXP_WISH];
  if ((HAS(map, EXP) && HAS(map, TILE) && HAS(map, NIGHT)) || i_hdu < 0 ||
      fits->guard->hdu[i_hdu].kind != MILL_FITS_TABLE)
    goto done;
  const int64_t n = fits->guard->hdu[i_hdu].axis[1];
  memcpy(of_exposures, wish, sizeof of_exposures);
  of_exposures[TARGET].is_needed = 0;
  MILL_TRY(mill_fits_columns(fits, i_hdu, of_exposures, N_EXP_WISH, &exposures, &exposures.there));
  if (!HAS(&exposures, TARGET))
    goto done;
  MILL_TRY(MILL_ALLOC(n, &key));
  for (int64_t i = 0; i < n; i++)
    key[i] = (mill_keyed){exposures.target_id[i], i};
  qsort(key, (size_t)n, sizeof *key, mill_by_key);
  share_exposures(key, n, exposures.exp_id, exposures.tile_id, exposures.night);
  for (int64_t i = 0; i < file->n_spec; i++) {
    int64_t low = 0, high = n;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (key[middle].key < map->target_id[i])
        low = middle + 1;
      else
        high = middle;
    }
    if (low == n || key[low].key != map->target_id[i] || map->target_id[i] == -1)
      continue; /* -1 is nobody's */
    const int64_t at = key[low].place;
    if (!HAS(map, EXP))
      map->exp_id[i] = exposures.exp_id[at];
    if (!HAS(map, TILE))
      map->tile_id[i] = exposures.tile_id[at];
    if (!HAS(map, NIGHT))
      map->night[i] = exposures.night[at];
  }
done:
  mill_fits_columns_free(wish, N_EXP_WISH, &exposures);
  mill_free(key);
  return err;
}

/* Read the redrock file that the user names, else the one in the input's folder.  Where no rows are
 * selected by it the latter may be missing, and a bad one costs only its columns.  The index notes
 * the file, and its size and time where rows are selected by it. */
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
                "%s: no redrock file next to it (coadd- or spectra- replaced by redrock-), but "
                "redrock selects rows; add the file, set redrock_file, or set redrock: false",
                file->fits->guard->path);
  }
  if (!*path)
    goto done;
  err = mill_redrock_read(path, &file->limits, redrock);
  if (err == MILL_OK) {
    const size_t n = strlen(path) + 1;
    MILL_TRY(MILL_ALLOC(n, &index->redrock));
    memcpy(index->redrock, path, n);
  }
  if (err == MILL_OK && select->redrock) {
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

/* The first FITS row of the star of each kept row, by TARGETID and place; a negative TARGETID is
 * nobody's.
 *
 *  kept [n]  in/out  place: FITS rows, ascending; key: of their stars
 */
static void find_stars(const fibermap *map, int64_t n, mill_keyed *kept, const char **warning)
{
  mill_places places = {0};
  for (int64_t i = 0; i < n; i++)
    kept[i].key = map->target_id[kept[i].place];
  qsort(kept, (size_t)n, sizeof *kept, mill_by_key);
  for (int64_t i = 0, id = -1; i < n; i++) {
    const int64_t row = kept[i].place;
    if (kept[i].key != id)
      places.n = 0;
    id = kept[i].key;
    kept[i].key =
        id < 0 ? row : mill_places_first(&places, row, map->target_ra[row], map->target_dec[row]);
    if (places.n > 1)
      *warning = MILL_TOLD_PLACES;
  }
  qsort(kept, (size_t)n, sizeof *kept, mill_by_key);
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
  int64_t n_group = 0;
  mill_keyed *kept = NULL; /* key: the first row of its group */
  MILL_TRY(MILL_ALLOC(n, &kept));
  for (int64_t i = 0; i < n; i++)
    kept[i] = (mill_keyed){fits_row[i], fits_row[i]};
  if (joint)
    find_stars(map, n, kept, &index->warning);
  for (int64_t i = 0; i < n; i++)
    n_group += i == 0 || kept[i].key != kept[i - 1].key;
  MILL_TRY(mill_file_index_alloc(index, n_group, n));
  for (int64_t i = 0; i < n; i++) {
    const int64_t at = kept[i].place;
    if (i == 0 || kept[i].key != kept[i - 1].key)
      index->row[index->n_row++].first_exposure = i;
    mill_catalog_row *row = &index->row[index->n_row - 1];
    mill_file_index_add(index, at, map->exp_id[at], map->mjd[at]);
    if (row->n_exposure == INT32_MAX)
      MILL_FAIL(MILL_ERR_RANGE, "target %lld has too many exposures",
                (long long)map->target_id[at]);
    row->n_exposure++;
  }
done:
  mill_free(kept);
  return err;
}

/* A text of row i of a column, or, where there is no column, of the whole file. */
static void fill_text(const char *path, const char *name, const mill_fits_texts *column, int64_t i,
                      const char *whole, char *out, size_t size)
{
  mill_fits_text_copy(path, name, column->text ? mill_fits_text_at(column, i) : whole, out, size);
}

/* Common value of a column over the exposures of a row, or, where it is missing, of the whole file;
 * -1 where they differ. */
static int32_t of_all(const int32_t *column, int32_t whole, const int64_t *exposure_row,
                      const mill_catalog_row *row)
{
  const int64_t *at = exposure_row + row->first_exposure;
  const int32_t first = column[at[0]];
  for (int32_t k = 1; k < row->n_exposure; k++)
    if (column[at[k]] != first)
      return -1;
  return first >= 0 ? first : first == SEVERAL ? -1 : whole;
}

static void fill_row(const char *path, const fibermap *map, const division *all,
                     const mill_redrock *redrock, const int64_t *exposure_row,
                     mill_catalog_row *row)
{
  const int64_t i = exposure_row[row->first_exposure];
  row->fits_row = i;
  row->target_id = map->target_id[i];
  row->target_ra = map->target_ra[i];
  row->target_dec = map->target_dec[i];
  row->fiber = map->fiber[i];
  row->exp_id = row->n_exposure == 1 ? map->exp_id[i] : -1;
  row->ref_id = map->ref_id[i];
  row->pmra = map->pmra[i];
  row->pmdec = map->pmdec[i];
  row->parallax = map->parallax[i];
  row->gaia_g = map->gaia_g[i];
  row->gaia_bp = map->gaia_bp[i];
  row->gaia_rp = map->gaia_rp[i];
  row->healpix = map->healpix[i] >= 0 ? map->healpix[i] : all->healpix;
  row->tile_id = of_all(map->tile_id, all->tile_id, exposure_row, row);
  row->night = of_all(map->night, all->night, exposure_row, row);
  fill_text(path, "REF_CAT", &map->ref_cat, i, "", row->ref_cat, sizeof row->ref_cat);
  fill_text(path, "SURVEY", &map->survey, i, all->survey, row->survey, sizeof row->survey);
  fill_text(path, "PROGRAM", &map->program, i, all->program, row->program, sizeof row->program);
  row->z = NAN;
  const mill_redshift *match = mill_redrock_find(redrock, row->target_id);
  if (match) {
    row->z = match->z;
    row->zwarn = match->zwarn;
    memcpy(row->spectype, match->spectype, sizeof row->spectype);
    memcpy(row->subtype, match->subtype, sizeof row->subtype);
  }
}

int mill_desi_index(void *state, const mill_selection *select, mill_file_index *index)
{
  int err = MILL_OK;
  mill_desi_file *file = state;
  fibermap map = {0};
  mill_redrock redrock = {0};
  mill_desi_choice choice = {0};
  division all;
  int64_t *kept = NULL, n_kept = 0;
  MILL_TRY(read_fibermap(file, select, &map, &index->warning));
  MILL_TRY(mill_desi_choice_read(file, select, &choice));
  MILL_TRY(fill_from_exposures(file, &map));
  MILL_TRY(read_division(file, &all));
  MILL_TRY(read_redrock(file, select, &redrock, index));
  MILL_TRY(MILL_ALLOC(file->n_spec, &kept));
  const int64_t *status = HAS(&map, STATUS) ? map.status : map.coadd_status;
  for (int64_t i = 0; i < file->n_spec; i++) {
    const mill_redshift *match = mill_redrock_find(&redrock, map.target_id[i]);
    if (mill_selection_keeps_target(select, map.target_id[i], "") &&
        mill_selection_keeps_objtype(select, mill_fits_text_at(&map.objtype, i)) &&
        (file->i_fibermap < 0 || mill_selection_keeps_fiberstatus(select, (uint64_t)status[i])) &&
        mill_selection_keeps_exp_id(select, map.exp_id[i]) &&
        !(choice.sn && !(choice.sn[i] >= select->min_sn)) &&
        mill_selection_keeps_star(select, choice.in_class && choice.in_class[i],
                                  match ? match->z : NAN, match ? match->spectype : ""))
      kept[n_kept++] = i;
  }
  /* a coadd has one row a target already */
  MILL_TRY(group_rows(&map, kept, n_kept, file->joint && HAS(&map, EXP), index));
  for (int64_t i = 0; i < index->n_row; i++)
    fill_row(file->fits->guard->path, &map, &all, &redrock, index->exposure_row, &index->row[i]);
  index->n_fits_row = file->n_spec;
done:
  mill_fits_columns_free(wish, N_WISH, &map);
  mill_desi_choice_clear(&choice);
  mill_redrock_clear(&redrock);
  mill_free(kept);
  return err;
}
