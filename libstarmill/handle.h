/* SPDX-License-Identifier: BSD-3-Clause */
/** The structs behind libstarmill's handles, and functions shared by its source files. */
#pragma once

#include <pthread.h>

#include "io/surveys/spectra.h"
#include "libstarmill/include/starmill/starmill.h"
#include "src/pipeline/pipeline.h"
#include "src/system/thread.h"

/** Names of an arm's velocity offset as a parameter and as a result column. */
typedef struct offset_names {
  char name[MILL_MAX_NAME + 8], column[MILL_MAX_NAME + 16];
} offset_names;

/** A library with its settings and pipeline, freed when n_user falls to 0. */
struct starmill_library {
  pthread_mutex_t mutex; /**< guards all members below */
  int n_user;            /**< stars and files, plus 1 while the handle is open */
  mill_library lib;
  offset_names offset[MILL_MAX_ARM];
  mill_config config;
  mill_fit_settings set; /**< settings that made the pipeline; constant: read without lock */
  mill_spectra_settings spectra;
  const mill_backend *backend;
  mill_pipeline *pipeline;
  int64_t n_star;           /**< stars made so far */
  int64_t held;             /**< number of the star in the pipeline; 0: none */
  mill_fit_result prepared; /**< status, S/N and pixel counts of the held star */
};

struct starmill_star {
  starmill_library *library;
  int64_t number; /**< from 1 */
  int64_t target_id;
  int is_extragalactic;          /**< as in mill_catalog_row */
  int status;                    /**< STATUS if the star has no segments */
  char reason[256];              /**< why a segment was left out as outside the library, or empty */
  int is_fixed;                  /**< 1: evaluations include the model error */
  double fixed_at[MILL_MAX_PAR]; /**< parameters at which the model error is computed */
  int n_segment;
  mill_raw_segment *segment; /**< [n_segment] in batch */
  mill_read_batch batch;     /**< owns the pixels */
};

/** Copy code err and its message into the caller's error, which may be NULL; returns err. */
int mill_tell(int err, starmill_error *error);

/** Return MILL_ERR_USAGE, also in *error, if one of n pointers is NULL; names: the pointers'
 *  names, separated by commas. */
int mill_refuse_null(const char *function, const char *names, const void *const *pointer, size_t n,
                     starmill_error *error);

/** Begin a public function: return STARMILL_USAGE if one of the arguments is NULL. */
#define MILL_REFUSE_NULL(error, ...)                                                               \
  do {                                                                                             \
    const void *const given_[] = {__VA_ARGS__};                                                    \
    if (mill_refuse_null(__func__, #__VA_ARGS__, given_, sizeof given_ / sizeof *given_, error))   \
      return STARMILL_USAGE;                                                                       \
  } while (0)

/** Return MILL_ERR_USAGE unless 0 <= i < n; the message calls the item `what`. */
int mill_check_index(const char *what, int64_t i, int64_t n);

/** Lock HDF5, which is not thread-safe, until the block ends. */
#define MILL_HDF5_LOCKED MILL_AT_END(mill_hdf5_unlock) const int hdf5_ = mill_hdf5_lock(1)
int mill_hdf5_lock(int is_needed); /**< returns is_needed */
void mill_hdf5_unlock(const int *is_locked);

/** Unless CFITSIO has threads, hold HDF5's lock until the block ends, so that one thread reads. */
#define MILL_FILES_LOCKED                                                                          \
  MILL_AT_END(mill_hdf5_unlock) const int hdf5_ = mill_hdf5_lock(!mill_spectra_threads())

/** Lower n_user, and unlock the mutex, which the caller holds.  Without users free the library. */
void mill_library_release(starmill_library *library);

/** Make a star from spectra in memory.  The caller holds library->mutex. */
int mill_star_make(starmill_library *library, const starmill_spectrum *spectrum, int n,
                   starmill_star **star);

/** Free a star, or nothing if NULL.  The caller holds library->mutex. */
void mill_star_drop(starmill_star *star);
MILL_CLOSER(starmill_star, mill_star_drop)

/** Return the star as row `row` of the pipeline.  It borrows `start` and the star's segments. */
mill_star mill_star_raw(const starmill_star *star, int64_t row, const double *start);

/** Load the star into the pipeline, unless it is there.  If starmill_fix_model_error set a theta,
 *  compute the model errors there, else none.  MILL_ERR_INPUT: the star cannot be evaluated. */
int mill_star_hold(starmill_library *library, const starmill_star *star);

/** Return the number of parameters. */
int mill_n_par(const starmill_library *library);

/** Describe parameter i_par, which must be valid. */
starmill_parameter mill_parameter(const starmill_library *library, int i_par);
