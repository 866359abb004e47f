/* SPDX-License-Identifier: BSD-3-Clause */
/** The files of a mock survey: coadds as DESI lays them out, redrock's tables, the truth.
 *
 *  Each is written under a temporary name and renamed when it is whole (io/fits/fits_output.h).
 *  The bytes depend on the content alone.  Failures are MILL_ERR_OUTPUT and name the file;
 *  MILL_ERR_MEMORY.
 */
#ifndef MILL_MOCK_FILES_H
#define MILL_MOCK_FILES_H

#include "src/mock/mock_survey.h"

/** Provenance in every file. */
typedef struct mill_mock_origin {
  const char *id; /**< digest of the survey's history, keyword MOCKID */
  int n_history;
  const char *const *history; /**< the same in words */
} mill_mock_origin;

/** A coadd file of n_row rows, to be written in blocks of rows, in order. */
typedef struct mill_mock_coadd mill_mock_coadd;
int mill_mock_coadd_open(const char *path, const mill_mock_origin *origin,
                         const mill_mock_survey *survey, int64_t n_row, mill_mock_coadd **out);

/** The next n rows.  In memory an arm's flux of a row follows that of the row before; so do ivar
 *  and mask. */
int mill_mock_coadd_rows(mill_mock_coadd *coadd, int n, const mill_mock_star *star,
                         const mill_mock_row *row);

/** FIBERMAP, EXP_FIBERMAP and SCORES; then the file takes its name.  MILL_ERR_INTERNAL unless all
 *  rows were written. */
int mill_mock_coadd_commit(mill_mock_coadd *coadd);

/** Removes what was not committed; NULL is allowed. */
void mill_mock_coadd_free(mill_mock_coadd *coadd);

/** Simulated results of redrock for these stars: the velocity with a separate error, the type by
 *  Teff; pathological rows according to their kind.  Nothing is fitted: CHI2 and DELTACHI2 are
 *  rough expectations. */
int mill_mock_redrock_write(const char *path, const mill_mock_origin *origin,
                            const mill_mock_survey *survey, uint64_t seed, int64_t first_star,
                            int64_t n_row);

/** HDU TRUTH: a row for each of n_star stars, in files of per_file rows.  HDU FILES: the names
 *  [n_file] of these.  stopped() is asked now and then; 1 ends it with MILL_ERR_STOPPED. */
int mill_mock_truth_write(const char *path, const mill_mock_origin *origin,
                          const mill_mock_survey *survey, int64_t n_star, int per_file, int n_file,
                          const char *const *file, int (*stopped)(void));

#endif
