/* SPDX-License-Identifier: BSD-3-Clause */
/** Rows of a file of any survey: a row of the result's catalogue, and the selected rows and
 *  exposures of a file. */
#ifndef MILL_CATALOG_ROW_H
#define MILL_CATALOG_ROW_H

#include "kernels/base/common.h"
#include "src/config/star_list.h"

MILL_EXTERN_C_BEGIN

/** One row of the result in /catalog. Missing: -1, NaN, "". */
typedef struct mill_catalog_row {
  int64_t target_id;
  double target_ra, target_dec;
  int32_t fiber, exp_id;
  int64_t ref_id;
  char ref_cat[16];
  double z;      /**< redrock, NaN when there is none */
  int32_t zwarn; /**< its warnings, or SDSS's; 0: none, or not known */
  char spectype[8], subtype[24];
  int is_other;                    /**< a class without warnings says galaxy or quasar */
  int32_t healpix, uniqpix;        /**< of the file's division of the sky, -1: none */
  char survey[8], program[16];     /**< main, sv3, ...; dark, bright, backup, ... */
  int32_t tile_id, night;          /**< of all exposures, YYYYMMDD; -1: none, or several */
  double pmra, pmdec, parallax;    /**< mas/yr, mas/yr, mas; NaN: none */
  double gaia_g, gaia_bp, gaia_rp; /**< mean magnitudes; NaN: none */
  char object[32];                 /**< name; empty for DESI */
  char identifier[64];             /**< which spectrum of which survey, or file and row */
  int64_t fits_row;                /**< first exposure's 0-based row of FIBERMAP */
  int32_t n_exposure;              /**< rows fitted jointly */
  int64_t first_exposure;          /**< index into mill_file_index.exposure_row */
} mill_catalog_row;

/** All missing: -1, NaN, "". */
void mill_catalog_row_init(mill_catalog_row *row);

/** The selected rows of one input file, in file order. */
typedef struct mill_file_index {
  int64_t n_row;
  mill_catalog_row *row; /**< [n_row], owned */
  int64_t n_exposure;
  int64_t *exposure_row;  /**< [n_exposure] 0-based FITS rows, owned */
  int32_t *exposure_id;   /**< [n_exposure] EXPID, -1 when the file has none, owned */
  double *exposure_mjd;   /**< [n_exposure] NaN when the file has none, owned */
  int32_t *exposure_file; /**< [n_exposure] which file of the run; NULL: this one, owned */
  int64_t n_fits_row;     /**< rows of FIBERMAP before selection */
  int64_t file_size;
  double file_mtime;
  int64_t rows_hash;   /**< digest that identifies the rows (mill_spectra_index) */
  const char *warning; /**< what a user should know of the file, static; NULL: nothing */
  /** path of the redrock file of Z and SPECTYPE, owned, NULL: none; its size and time where
   *  rows are selected by it, else 0 */
  char *redrock;
  int64_t redrock_size;
  double redrock_mtime;
} mill_file_index;

/** Zeroed room for n_row rows and n_exposure exposures in a zeroed index; both counts stay 0. */
int mill_file_index_alloc(mill_file_index *index, int64_t n_row, int64_t n_exposure);

/** Append an exposure, for which there is room. */
void mill_file_index_add(mill_file_index *index, int64_t exposure_row, int32_t exposure_id,
                         double mjd);

/** The same, and count it as an exposure of the last row, whose first call sets first_exposure. */
void mill_file_index_expose(mill_file_index *index, int64_t exposure_row, int32_t exposure_id,
                            double mjd);

/** Complete the rows of an index: identifiers, which rows are of the listed stars (NULL: all), and
 *  the hash of these.  path: of the file, whose name is part of an identifier that a survey does not
 *  give.  by_object: rows of one object are joined, so an IDENTIFIER, which is of one of them,
 *  chooses only a row without TARGETID and OBJECT. */
void mill_file_index_identify(const char *path, const mill_star_list *stars, int by_object,
                              mill_file_index *index);

void mill_file_index_clear(mill_file_index *index); /* NULL is allowed */

MILL_EXTERN_C_END

#endif
