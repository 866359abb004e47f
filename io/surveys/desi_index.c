/* SPDX-License-Identifier: BSD-3-Clause */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "io/catalog/places.h"
#include "io/surveys/desi_file.h"
#include "io/surveys/redrock.h"
#include "io/surveys/selection.h"
#include "io/surveys/single_spectrum.h"
#include "io/surveys/target_bits.h"
#include "src/system/log.h"
#include "src/system/order.h"

enum {
  SEVERAL = -2,    /* exposures differ in tile or night */
  MAX_NSIDE = 8192 /* above it, UNIQPIX needs more than 32 bits */
};

/* Columns of FIBERMAP; up to STATUS also of EXP_FIBERMAP. */
enum { ID, EXP, TILE, NIGHT, MJD, STATUS, COADD_STATUS, OBJTYPE, SURVEY, PROGRAM, RA, DEC };
static const mill_fits_wish wish[] = {
    [ID] = MILL_ROW_WISH("TARGETID", INT64, target_id, -1, 1),
    [EXP] = MILL_WISH("EXPID", INT32, -1, 0),
    [TILE] = MILL_WISH("TILEID", INT32, -1, 0),
    [NIGHT] = MILL_WISH("NIGHT", INT32, -1, 0),
    [MJD] = MILL_WISH("MJD", DOUBLE, NAN, 0),
    [STATUS] = MILL_WISH("FIBERSTATUS", INT64, -1, 0), /* -1, for unknown, sets all bits */
    [COADD_STATUS] = MILL_WISH("COADD_FIBERSTATUS", INT64, -1, 0),
    [OBJTYPE] = MILL_WISH("OBJTYPE", TEXT, 0, 1),
    [SURVEY] = MILL_ROW_WISH("SURVEY", TEXT, survey, 0, 0),
    [PROGRAM] = MILL_ROW_WISH("PROGRAM", TEXT, program, 0, 0),
    [RA] = MILL_ROW_WISH("TARGET_RA", DOUBLE, target_ra, NAN, 0),
    [DEC] = MILL_ROW_WISH("TARGET_DEC", DOUBLE, target_dec, NAN, 0),
    MILL_ROW_WISH("REF_ID", INT64, ref_id, -1, 0),
    MILL_ROW_WISH("REF_CAT", TEXT, ref_cat, 0, 0),
    MILL_ROW_WISH("FIBER", INT32, fiber, -1, 0),
    MILL_ROW_WISH("PMRA", DOUBLE, pmra, NAN, 0),
    MILL_ROW_WISH("PMDEC", DOUBLE, pmdec, NAN, 0),
    MILL_ROW_WISH("PARALLAX", DOUBLE, parallax, NAN, 0),
    MILL_ROW_WISH("GAIA_PHOT_G_MEAN_MAG", DOUBLE, gaia_g, NAN, 0),
    MILL_ROW_WISH("GAIA_PHOT_BP_MEAN_MAG", DOUBLE, gaia_bp, NAN, 0),
    MILL_ROW_WISH("GAIA_PHOT_RP_MEAN_MAG", DOUBLE, gaia_rp, NAN, 0),
    MILL_ROW_WISH("HEALPIX", INT32, healpix, -1, 0),
    MILL_ROW_WISH("UNIQPIX", INT32, uniqpix, -1, 0),
};
enum { N_WISH = sizeof wish / sizeof *wish, N_EXP_WISH = STATUS + 1 };

/* Set uniqpix to a nested HEALPix pixel, healpix to its parent of nside 64; -1: there is none. */
static void take_pixel(int64_t pixel, int64_t nside, mill_catalog_row *all)
{
  const int64_t ratio = nside / 64;
  all->healpix = all->uniqpix = -1;
  if (nside < 1 || nside > MAX_NSIDE || (nside & (nside - 1)) != 0 || pixel < 0 ||
      pixel >= 12 * nside * nside)
    return;
  all->uniqpix = (int32_t)(pixel + 4 * nside * nside);
  if (ratio > 0)
    all->healpix = (int32_t)(pixel / (ratio * ratio));
}

/* Read the file's HEALPix pixel: UNIQPIX, else HPXPIXEL (nested) and HPXNSIDE.  In a file grouped
 * by pixel, SPGRPVAL has the number. */
static int read_pixel(mill_fits_file *fits, const char *group, mill_catalog_row *all)
{
  int found = 0;
  int32_t pixel = -1, nside = 64; /* 64: unless HPXNSIDE says otherwise */
  MILL_CHECK(mill_single_key_int32(fits, 0, strcmp(group, "uniqpix") == 0 ? "SPGRPVAL" : "UNIQPIX",
                                   &pixel, &found));
  if (found) {
    for (nside = 1; 16LL * nside * nside <= pixel;) /* UNIQPIX is pixel + 4 nside^2 */
      nside *= 2;
    take_pixel(pixel - 4LL * nside * nside, nside, all);
    return MILL_OK;
  }
  MILL_CHECK(mill_single_key_int32(fits, 0, "HPXNSIDE", &nside, NULL));
  MILL_CHECK(mill_single_key_int32(fits, 0, "HPXPIXEL", &pixel, &found));
  if (!found && strcmp(group, "healpix") == 0)
    MILL_CHECK(mill_single_key_int32(fits, 0, "SPGRPVAL", &pixel, NULL));
  take_pixel(pixel, nside, all);
  return MILL_OK;
}

/* Read pixel, tile, night, survey and program from headers, since FIBERMAP may lack them. */
static int read_division(mill_desi_file *file, mill_catalog_row *all)
{
  mill_fits_file *fits = file->fits;
  char group[FLEN_VALUE] = "";
  mill_catalog_row_init(all);
  MILL_CHECK(mill_single_key_text(fits, 0, "SPGRP", group, sizeof group, NULL));
  MILL_CHECK(read_pixel(fits, group, all));
  MILL_CHECK(mill_single_key_int32(fits, 0, "TILEID", &all->tile_id, NULL));
  if (strcmp(group, "cumulative") != 0) /* a cumulative coadd has several nights */
    MILL_CHECK(mill_single_key_int32(fits, 0, "NIGHT", &all->night, NULL));
  /* tile files have SURVEY and PROGRAM only in FIBERMAP's header */
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

/* Without FIBERMAP, select all spectra; SCORES with a row per spectrum gives TARGETID. */
static int do_without_fibermap(mill_desi_file *file, const mill_selection *select,
                               mill_fits_values *map, const char **warning)
{
  int i_scores = -1, found = 0;
  mill_fits_file *fits = file->fits;
  const char *path = fits->guard->path;
  if (mill_selection_has_exp_id(select) || select->n_target_class > 0)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: has no FIBERMAP, by which minexpid, maxexpid and target_classes select; "
                      "leave these keys out",
                      path);
  MILL_CHECK(mill_fits_columns_missing(wish, N_WISH, file->n_spec, map));
  MILL_CHECK(mill_fits_file_find(fits, "SCORES", &i_scores));
  if (i_scores >= 0 && fits->guard->hdu[i_scores].kind == MILL_FITS_TABLE &&
      fits->guard->hdu[i_scores].axis[1] == file->n_spec)
    MILL_CHECK(mill_fits_column_int64(fits, i_scores, "TARGETID", map[ID].i64, &found));
  MILL_CHECK(mill_selection_check(select, path, found, 0)); /* redrock needs a TARGETID */
  *warning = found ? NO_FIBERMAP "TARGETID is taken from SCORES"
                   : NO_FIBERMAP "they have no TARGETID, only an IDENTIFIER (file name and number)";
  return MILL_OK;
}

/* Read FIBERMAP; fail if it lacks a column by which rows are selected. */
static int read_fibermap(mill_desi_file *file, const mill_selection *select, mill_fits_values *map,
                         const char **warning)
{
  if (file->i_fibermap < 0)
    return do_without_fibermap(file, select, map, warning);
  MILL_CHECK(mill_fits_columns(file->fits, file->i_fibermap, wish, N_WISH, map));
  if (!map[STATUS].there && !map[COADD_STATUS].there && select->fiberstatus_allowed != UINT64_MAX)
    return MILL_ERROR_HDU(file->fits, file->i_fibermap,
                          " has neither FIBERSTATUS nor COADD_FIBERSTATUS, so bad fibers cannot be "
                          "found; give a DESI file, or allow all bits by fiberstatus_allowed_bits");
  if (mill_selection_has_exp_id(select) && !map[EXP].there)
    return MILL_ERROR_HDU(file->fits, file->i_fibermap,
                          " has no EXPID, by which minexpid and maxexpid select; give spectra "
                          "files, or leave these keys out");
  return MILL_OK;
}

/* The value that n exposures share, or SEVERAL. */
static int32_t shared(const int32_t *column, const mill_keyed *key, int64_t n)
{
  const int32_t first = column[key[0].place];
  for (int64_t k = 1; k < n; k++)
    if (column[key[k].place] != first)
      return SEVERAL;
  return first;
}

/* Return the mean MJD of the exposures [n] whose FIBERSTATUS has no forbidden bit; NaN: none. */
static double mean_mjd(const mill_fits_values *exposures, const mill_keyed *key, int64_t n,
                       uint64_t allowed)
{
  double sum = 0.0, n_good = 0.0;
  for (int64_t k = 0; k < n; k++) {
    const int64_t at = key[k].place;
    if (exposures[STATUS].there && ((uint64_t)exposures[STATUS].i64[at] & ~allowed) != 0)
      continue;
    sum += exposures[MJD].f64[at];
    n_good += 1.0;
  }
  return n_good > 0.0 ? sum / n_good : (double)NAN;
}

/* Fill from EXP_FIBERMAP what a coadd's FIBERMAP lacks: TILEID and NIGHT if a target's exposures
 * agree; EXPID if it has only one; mean MJD of exposures with only `allowed` FIBERSTATUS bits. */
static int fill_from_exposures(mill_desi_file *file, uint64_t allowed, mill_fits_values *map)
{
  MILL_FITS_VALUES(exposures, N_EXP_WISH);
  MILL_OWNED mill_keyed *key = NULL;
  mill_fits_file *fits = file->fits;
  const int i_hdu = file->i_exp_fibermap;
  size_t n_target = 0;
  mill_fits_wish exp_wish[N_EXP_WISH];
  if ((map[EXP].there && map[TILE].there && map[NIGHT].there && map[MJD].there) || i_hdu < 0 ||
      fits->guard->hdu[i_hdu].kind != MILL_FITS_TABLE)
    return MILL_OK;
  const int64_t n = fits->guard->hdu[i_hdu].axis[1];
  memcpy(exp_wish, wish, sizeof exp_wish);
  exp_wish[ID].is_needed = 0;
  MILL_CHECK(mill_fits_columns(fits, i_hdu, exp_wish, N_EXP_WISH, exposures));
  if (!exposures[ID].there)
    return MILL_OK;
  MILL_CHECK(MILL_ALLOC(n, &key));
  for (int64_t i = 0; i < n; i++)
    key[i] = (mill_keyed){exposures[ID].i64[i], i};
  qsort(key, (size_t)n, sizeof *key, mill_by_key);
  /* the first row of each target gets the values that its rows share */
  for (int64_t first = 0, end = 0; first < n; first = end) {
    const int64_t first_row = key[first].place;
    for (end = first + 1; end < n && key[end].key == key[first].key;)
      end++;
    if (end > first + 1) /* several exposures have no common EXPID */
      exposures[EXP].i32[first_row] = -1;
    for (int k = TILE; k <= NIGHT; k++)
      exposures[k].i32[first_row] = shared(exposures[k].i32, key + first, end - first);
    exposures[MJD].f64[first_row] = mean_mjd(exposures, key + first, end - first, allowed);
    key[n_target++] = key[first]; /* key [n_target] becomes the list of targets */
  }
  for (int64_t i = 0; i < file->n_spec; i++) {
    const int64_t id = map[ID].i64[i]; /* -1: none; else bsearch compares it with .key */
    const mill_keyed *target =
        id == -1 ? NULL : bsearch(&id, key, n_target, sizeof *key, mill_by_int64);
    for (int k = EXP; target && k <= NIGHT; k++) /* EXP, TILE, NIGHT */
      if (!map[k].there)
        map[k].i32[i] = exposures[k].i32[target->place];
    if (target && !map[MJD].there)
      map[MJD].f64[i] = exposures[MJD].f64[target->place];
  }
  return MILL_OK;
}

/* ---- selection by target bits and by S/N ---- */

/* Set *in_class [n_spec]: is the spectrum in a wanted target class?  If FIBERMAP has target columns
 * of commissioning or survey validation, only these count: the main survey's columns are then
 * meaningless, except for sky fibres, which are no stars. */
static int find_classes(mill_desi_file *file, const mill_selection *select, int **in_class)
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
    const char *name = mill_target_column(i);
    const int is_early = strncmp(name, "SV", 2) == 0 || strncmp(name, "CMX", 3) == 0;
    MILL_CHECK(mill_target_bits(select, i, &bits));
    MILL_CHECK(mill_fits_table_int64(file->fits, file->i_fibermap, name, &value, &found));
    n_early += is_early && found;
    n_main += !is_early && found;
    for (int64_t k = 0; k < file->n_spec; k++) /* without the column, value is 0 */
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
    (*in_class)[k] = (*in_class)[k] >> (n_early > 0) & 1; /* bit 1 if there are early columns */
  return MILL_OK;
}

/* Fail unless SCORES has a row per spectrum and, if both have TARGETID, the order of FIBERMAP. */
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

/* Set *sn [n_spec] to the largest S/N of the fitted arms.  All arms use the same kind of column. */
static int read_scores(mill_desi_file *file, const mill_selection *select, const int64_t *target_id,
                       double **sn)
{
  int i_scores = -1, found = 0;
  static const char *const kind[] = {"MEDIAN_CALIB_SNR_", "MEDIAN_COADD_SNR_",
                                     "MEDIAN_COADD_FLUX_SNR_"};
  int first_kind = 0, last_kind = sizeof kind / sizeof kind[0] - 1; /* kinds to try */
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
    for (int k = first_kind; k <= last_kind && !found; k++) {
      snprintf(name, sizeof name, "%s%s", kind[k], a->prefix);
      MILL_CHECK(mill_fits_column_double(file->fits, i_scores, name, value, &found));
      if (found)
        first_kind = last_kind = k; /* the other arms need a column of this kind */
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

/* ---- rows ---- */

/* Read the redrock file named by the user, else the file next to the input.  The file next to the
 * input may be missing or unreadable, unless redrock selects rows. */
static int read_redrock(mill_desi_file *file, const mill_selection *select, mill_redrock *redrock,
                        mill_file_index *index)
{
  char beside[MILL_FITS_MAX_PATH];
  const char *path = select->redrock_file;
  if (!*path) {
    MILL_CHECK(mill_redrock_beside(file->fits->guard->path, beside, sizeof beside));
    path = beside;
    if (!*path && select->redrock)
      return MILL_ERROR(
          MILL_ERR_INPUT,
          "%s: the key redrock selects rows, but no redrock file (same name, with redrock- for "
          "coadd- or spectra-) lies next to it; add one, set redrock_file, or set redrock: false",
          file->fits->guard->path);
  }
  if (!*path)
    return MILL_OK;
  const int code = mill_redrock_read(path, &file->limits, redrock);
  if (code == MILL_ERR_INPUT && !select->redrock && !*select->redrock_file) {
    mill_log_warning("%s; Z, SPECTYPE and SUBTYPE stay empty", mill_error_message());
    return MILL_OK;
  }
  MILL_CHECK(code);
  index->redrock_size = redrock->file_size;
  index->redrock_mtime = redrock->file_mtime;
  const size_t n = strlen(path) + 1;
  MILL_CHECK(MILL_ALLOC(n, &index->redrock));
  memcpy(index->redrock, path, n);
  return MILL_OK;
}

static void take_redshift(const mill_redrock *redrock, mill_catalog_row *row)
{
  const mill_redshift *match = mill_redrock_find(redrock, row->target_id);
  row->kind = match ? match->kind : (mill_kind){.z = NAN};
}

/* Add the n kept FITS rows of a star to the index as one row.  all: the values from headers. */
static void add_row(const char *path, const mill_fits_values *map, const mill_catalog_row *all,
                    const mill_redrock *redrock, const mill_keyed *kept, int64_t n,
                    mill_file_index *index)
{
  mill_catalog_row *row = &index->row[index->n_row++];
  const int32_t tile_id = shared(map[TILE].i32, kept, n), night = shared(map[NIGHT].i32, kept, n);
  *row = *all;
  mill_fits_fill(path, wish, N_WISH, map, kept[0].place, row);
  row->healpix = row->healpix >= 0 ? row->healpix : all->healpix; /* table, else header */
  row->uniqpix = row->uniqpix >= 0 ? row->uniqpix : all->uniqpix;
  /* -1 if the exposures differ; the header's value if the table has none */
  row->tile_id = tile_id >= 0 ? tile_id : tile_id == SEVERAL ? -1 : all->tile_id;
  row->night = night >= 0 ? night : night == SEVERAL ? -1 : all->night;
  take_redshift(redrock, row);
  for (int64_t k = 0; k < n; k++)
    mill_file_index_expose(index, kept[k].place, map[EXP].i32[kept[k].place],
                           map[MJD].f64[kept[k].place]);
}

/* List the FITS rows to keep in ascending order; returns their number. */
static int64_t select_rows(const mill_desi_file *file, const mill_selection *select,
                           const mill_fits_values *map, const int *in_class, const double *sn,
                           const mill_redrock *redrock, mill_keyed *kept)
{
  int64_t n = 0;
  mill_catalog_row row = {0};
  const int64_t *status = map[map[STATUS].there ? STATUS : COADD_STATUS].i64;
  for (int64_t i = 0; i < file->n_spec; i++) {
    row.target_id = map[ID].i64[i];
    take_redshift(redrock, &row);
    const mill_candidate candidate = {&row, mill_fits_text_at(&map[OBJTYPE], i),
                                      in_class && in_class[i], sn ? sn[i] : (double)NAN};
    if (mill_selection_keeps(select, &candidate) &&
        (file->i_fibermap < 0 || ((uint64_t)status[i] & ~select->fiberstatus_allowed) == 0) &&
        mill_selection_keeps_exp_id(select, map[EXP].i32[i]))
      kept[n++] = (mill_keyed){i, i}; /* key and place: the row */
  }
  return n;
}

int mill_desi_index(void *state, const mill_selection *select, mill_file_index *index)
{
  mill_desi_file *file = state;
  MILL_FITS_VALUES(map, N_WISH);
  MILL_AT_END(mill_redrock_clear) mill_redrock redrock = {0};
  MILL_OWNED int *in_class = NULL;
  MILL_OWNED double *sn = NULL;
  mill_catalog_row all;
  /* place: FITS row; key: the same for all rows of a star */
  MILL_OWNED mill_keyed *kept = NULL;
  MILL_CHECK(read_fibermap(file, select, map, &index->warning));
  MILL_CHECK(find_classes(file, select, &in_class));
  MILL_CHECK(read_scores(file, select, map[ID].i64, &sn));
  MILL_CHECK(fill_from_exposures(file, select->fiberstatus_allowed, map));
  MILL_CHECK(read_division(file, &all));
  MILL_CHECK(read_redrock(file, select, &redrock, index));
  MILL_CHECK(MILL_ALLOC(file->n_spec, &kept));
  const int64_t n = select_rows(file, select, map, in_class, sn, &redrock, kept);
  if (file->joint && map[EXP].there) { /* a table without EXPID has one row per target */
    for (int64_t i = 0; i < n; i++)
      kept[i].key = map[ID].i64[kept[i].place];
    if (mill_places_group(kept, n, map[RA].f64, map[DEC].f64))
      index->warning = MILL_TOLD_PLACES;
  }
  MILL_CHECK(mill_file_index_alloc(index, n, n));
  for (int64_t first = 0, end; first < n; first = end) {
    for (end = first + 1; end < n && kept[end].key == kept[first].key;)
      end++;
    add_row(file->fits->guard->path, map, &all, &redrock, kept + first, end - first, index);
  }
  index->n_fits_row = file->n_spec;
  return MILL_OK;
}
