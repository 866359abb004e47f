/* SPDX-License-Identifier: BSD-3-Clause */
/** What the handles of libstarmill are made of. */
#ifndef MILL_HANDLE_H
#define MILL_HANDLE_H

#include <pthread.h>

#include "io/surveys/spectra.h"
#include "kernels/base/error.h"
#include "libstarmill/include/starmill/starmill.h"
#include "src/pipeline/pipeline.h"

/** Of the velocity offset of an arm. */
typedef struct offset_names {
  char name[MILL_MAX_NAME + 8], column[MILL_MAX_NAME + 16];
} offset_names;

/** Library, settings and pipeline.  Stars and files count as users too. */
struct starmill_library {
  pthread_mutex_t mutex; /**< of all below */
  int n_user;
  mill_library lib;
  offset_names offset[MILL_MAX_ARM];
  mill_config config;
  mill_fit_settings set; /**< of the pipeline */
  mill_spectra_settings spectra;
  const mill_backend *backend;
  mill_pipeline *pipeline;
  int64_t n_star;           /**< made so far */
  int64_t held;             /**< number of the star in the pipeline; 0: none */
  mill_fit_result prepared; /**< of it */
};

struct starmill_star {
  starmill_library *library;
  int64_t number; /**< from 1 */
  int64_t target_id;
  int status;                    /**< of a star without segments */
  int is_fixed;                  /**< model error counts */
  double fixed_at[MILL_MAX_PAR]; /**< as it is here */
  int n_segment;
  mill_raw_segment *segment; /**< [n_segment] of the batch, each holds its wavelength set */
  mill_read_batch batch;     /**< the pixels */
};

/** Put the outcome err of a call into the caller's error, NULL allowed; returns it. */
int mill_tell(int err, starmill_error *error);

/** MILL_ERR_USAGE where there is no i-th of n, counted from 0, of what is called what. */
int mill_check_index(const char *what, int64_t i, int64_t n);

/** One thread at a time: HDF5 is not thread-safe. */
void mill_hdf5_lock(void);
void mill_hdf5_unlock(void);

/** Give up one use of a handle whose mutex is held, which is unlocked; the last one frees it. */
void mill_library_release(starmill_library *library);

/** Spectra in memory as a star; library->mutex is held. */
int mill_star_make(starmill_library *library, const starmill_spectrum *spectrum, int n,
                   starmill_star **star);

/** Free a star while library->mutex is held. */
void mill_star_drop(starmill_star *star);

/** The star as the pipeline takes it, in place `row`. */
mill_star mill_star_raw(const starmill_star *star, int64_t row, const double *start);

/** Have the star in the pipeline to be evaluated.  MILL_ERR_INPUT where it cannot be. */
int mill_star_hold(starmill_library *library, const starmill_star *star);

/** Parameters of the library's model. */
int mill_n_par(const starmill_library *library);

/** What is said of one; i_par is one. */
starmill_parameter mill_parameter(const starmill_library *library, int i_par);

/** Can a template be made at these parameters? */
int mill_is_within(const starmill_library *library, const double *theta);

#endif
