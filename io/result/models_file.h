/* SPDX-License-Identifier: BSD-3-Clause */
/** The models file: best-fit models of a result file, one row per exposure.
 *
 *  It belongs to exactly one result file (same RUN_ID), whose I/O thread writes it; callers use
 *  io/result/result_file.h.
 */
#ifndef MILL_MODELS_FILE_H
#define MILL_MODELS_FILE_H

#include <hdf5.h>
#include <stdint.h>

#include "io/result/table.h"
#include "kernels/base/common.h"
#include "src/ranks/mpi_context.h"

enum { MILL_MODELS_FORMAT = 2 };

/** Bytes of a row of /models: two numbers of 8, one of 4, and the identifier. */
enum { MILL_MODELS_ROW_BYTES = 20 + sizeof((mill_catalog_row *)0)->identifier };

typedef struct mill_models_file mill_models_file;

/** The result that a models file belongs to. */
typedef struct mill_models_info {
  const char *run_id; /**< of the result file */
  hid_t result;       /**< the open result file, whose /catalog is read */
  const char *result_path;
  const mill_columns *columns;       /**< of /fits */
  int64_t n_row, n_exposure, n_done; /**< rows, model rows, rows already fitted */
  const mill_library *lib;
  const double *wave_aa[MILL_MAX_ARM]; /**< [n_pix] of all rows, NULL: each has its own */
  const char *target;      /**< the file that it replaces later, whose lock it takes; NULL: none */
  int n_pix[MILL_MAX_ARM]; /**< 0: no file has the arm */
} mill_models_info;

/** Remove the models at path if they belong to the result at path result.  One rank alone. */
void mill_models_remove_of(const char *path, const char *result);

/** Collective.  Create, or reuse the one of the same run.  MILL_ERR_OUTPUT on
 *  every rank alike. */
int mill_models_open(const char *path, int overwrite, const mill_models_info *info,
                     const mill_mpi *mpi, mill_models_file **out);

/** The models of an arm, a row for each exposure; NULL: no file has the arm, or models is NULL. */
const mill_table *mill_models_arm(const mill_models_file *models, int arm);

/** Which of the rows [lo, hi) of /fits are fitted but lack a model, or have a cut one?
 *
 *  A common arm's model is finite in all its pixels or in none; one with wavelengths of its own is
 *  finite where these are.  An arm that was fitted (NPIX) has one in some exposure.
 *
 *  row    [n]  out  ascending, to be freed with mill_free, also after a failure
 *  Not collective.  MILL_ERR_OUTPUT, MILL_ERR_MEMORY. */
int mill_models_find_missing(const mill_models_file *models, const mill_models_info *info,
                             int64_t lo, int64_t hi, int64_t **row, int64_t *n);

/** Is its lock still ours (mill_lock_keep), and does its path still name the file
 *  (mill_output_still_there)?  Asks the file system, so only before a write.  NULL is allowed. */
int mill_models_still_there(const mill_models_file *models);

/** What this rank has written is on disk. */
int mill_models_flush(const mill_models_file *models);

/** Flush, close, release its lock; after a failure err, which is returned, only give it up.  NULL
 *  is allowed. */
int mill_models_close(mill_models_file *models, int err);

#endif
