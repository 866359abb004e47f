/* SPDX-License-Identifier: BSD-3-Clause */
/** The models file: best-fit models of a result, with one row per exposure.
 *
 *  A models file belongs to the result with the same RUN_ID, whose I/O thread writes it.  Only
 *  io/result includes this header; other code uses io/result/result_file.h. */
#pragma once

#include <hdf5.h>
#include <stdint.h>

#include "io/result/table.h"
#include "kernels/base/common.h"
#include "src/ranks/mpi_context.h"

enum { MILL_MODELS_FORMAT = 2 };
enum { MILL_PATH_SPARE = 128 }; /**< bytes that an output's path leaves for .new and .tmp-JOB */

/** Bytes of a row of /models: fits_row and TARGETID (8 each), exposure (4), IDENTIFIER. */
enum { MILL_MODELS_ROW_BYTES = 20 + sizeof((mill_catalog_row *)0)->identifier };

typedef struct mill_models_file mill_models_file;

/** Description of the result that a models file belongs to. */
typedef struct mill_models_info {
  const char *run_id; /**< RUN_ID of the result */
  hid_t result;       /**< the open result */
  const char *result_path;
  int64_t n_row, n_exposure, n_done; /**< rows of /fits, of /models; fitted rows of /fits */
  const mill_library *lib;
  const double *wave_aa[MILL_MAX_ARM]; /**< [n_pix] of all rows; NULL: each row has its own */
  const char *target;      /**< file to replace at the end, and to lock now; NULL: none */
  int n_pix[MILL_MAX_ARM]; /**< 0: no file has the arm */
} mill_models_info;

/** Fail with MILL_ERR_OUTPUT unless path has the models of the result at `result`.  One rank. */
int mill_models_check(const char *path, const char *result);

/** Remove the models file at path if it belongs to the result at path `result`.  One rank alone. */
void mill_models_remove_of(const char *path, const char *result);

/** Create the models file, or open an existing one of this run.  Collective; MILL_ERR_OUTPUT. */
int mill_models_open(const char *path, int overwrite, const mill_models_info *info,
                     const mill_mpi *mpi, mill_models_file **out);

/** Table of an arm's models; NULL: no file has the arm, or models is NULL. */
const mill_table *mill_models_arm(const mill_models_file *models, int arm);

/** Fail unless this job still holds the lock and the path still names the open file.  Slow: call it
 *  once before a write.  NULL is allowed. */
int mill_models_still_there(const mill_models_file *models);

/** Wait until all writes of this rank are on disk. */
int mill_models_flush(const mill_models_file *models);

/** Flush and close the file, and release the lock.  err: an earlier failure, after which nothing is
 *  flushed and err is returned.  NULL is allowed. */
int mill_models_close(mill_models_file *models, int err);
