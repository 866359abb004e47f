/* SPDX-License-Identifier: BSD-3-Clause */
/** Catalogue rows of an input file, and the index of the file's selected rows and exposures. */
#pragma once

#include "kernels/base/common.h"
#include "src/config/star_list.h"

/** What redrock or the survey says about a spectrum. */
typedef struct mill_kind {
  double z;      /**< NaN: unknown */
  int32_t zwarn; /**< warning bits of redrock or SDSS; 0: none or unknown */
  char spectype[8], subtype[24];
  int is_extragalactic; /**< 1: classified as galaxy or quasar without warnings */
} mill_kind;

/** One row of the result in /catalog. Missing: -1, NaN, "". */
typedef struct mill_catalog_row {
  int64_t target_id;
  double target_ra, target_dec;
  int32_t fiber, exp_id;
  int64_t ref_id;
  char ref_cat[16];
  mill_kind kind;
  int32_t healpix, uniqpix;        /**< sky pixels of DESI's files, -1: none */
  char survey[8], program[16];     /**< main, sv3, ...; dark, bright, backup, ... */
  int32_t tile_id, night;          /**< night: YYYYMMDD; -1: unknown, or exposures differ */
  double pmra, pmdec, parallax;    /**< mas/yr, mas/yr, mas; NaN: none */
  double gaia_g, gaia_bp, gaia_rp; /**< mean magnitudes; NaN: none */
  char object[32];                 /**< name; empty for DESI */
  char identifier[64];             /**< the survey's name of the spectrum, else file and row */
  int64_t fits_row;                /**< exposure_row of the first exposure */
  int32_t n_exposure;              /**< number of exposures fitted jointly */
  int64_t first_exposure;          /**< index into mill_file_index.exposure_row */
} mill_catalog_row;

/** Set all fields to missing: -1, NaN, "". */
void mill_catalog_row_init(mill_catalog_row *row);

/** Copy a name of n bytes to out [size].  If it is too long, cut it, append ~ and eight digits of
 *  its SHA-256, which keep cut names apart, and return 1; else return 0. */
int mill_name_cut(const char *name, size_t n, char *out, size_t size);

/** The selected rows of one input file, in file order. */
typedef struct mill_file_index {
  int64_t n_row;
  mill_catalog_row *row; /**< [n_row], owned */
  int64_t n_exposure;
  int64_t *exposure_row;  /**< [n_exposure] the format's numbers (DESI: FIBERMAP rows), owned */
  int32_t *exposure_id;   /**< [n_exposure] EXPID, -1 when the file has none, owned */
  double *exposure_mjd;   /**< [n_exposure] NaN when the file has none, owned */
  int32_t *exposure_file; /**< [n_exposure] index of input file; NULL: this file, owned */
  int64_t n_fits_row;     /**< spectra in the file before selection */
  int64_t file_size;
  double file_mtime;
  int named_by_file;    /**< 1: IDENTIFIERs contain the file's name */
  int64_t rows_hash;    /**< digest that identifies the rows (mill_spectra_index) */
  const char *warning;  /**< warning for the user, static text; NULL: none */
  char *redrock;        /**< path of the redrock file with Z and SPECTYPE, owned; NULL: none */
  int64_t redrock_size; /**< 0: no redrock file was read */
  double redrock_mtime;
} mill_file_index;

/** Allocate room for n_row rows and n_exposure exposures in a zeroed index; its counts stay 0. */
int mill_file_index_alloc(mill_file_index *index, int64_t n_row, int64_t n_exposure);

/** Append an exposure; mill_file_index_alloc must have made room. */
void mill_file_index_add(mill_file_index *index, int64_t exposure_row, int32_t exposure_id,
                         double mjd);

/** Append an exposure of the last row. */
void mill_file_index_expose(mill_file_index *index, int64_t exposure_row, int32_t exposure_id,
                            double mjd);

/** Complete an index: set identifiers, keep the rows of listed stars, and hash these rows.
 *
 *  path   the file; its name is used where the survey gives no IDENTIFIER
 *  stars  NULL: keep all rows */
void mill_file_index_identify(const char *path, const mill_star_list *stars,
                              mill_file_index *index);

void mill_file_index_clear(mill_file_index *index); /* NULL is allowed */
