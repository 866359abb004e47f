/* SPDX-License-Identifier: BSD-3-Clause */
/** A star on its way from the reader through the fit to its row, on the host. */
#ifndef MILL_STAR_H
#define MILL_STAR_H

#include "kernels/data/result.h"

MILL_EXTERN_C_BEGIN

/** Use of a segment. */
enum mill_segment_use {
  MILL_SEGMENT_FIT,    /**< fit it */
  MILL_SEGMENT_NO_LSF, /**< the library needs a line-spread function, and none is known */
  MILL_SEGMENT_OUTSIDE /**< a channel beyond all arms; arm is -1, n_pix is 0 */
};

/** One arm of one exposure (or coadd).
 *
 *  wave_aa [n_pix] vacuum A; equal wavelengths of a file are one array;
 *  flux [n_pix], ivar [n_pix] as in the file, any unit; mask [n_pix] bits, NULL
 *  for none; resolution [n_diag][n_pix] as DESI stores it (scipy dia layout,
 *  offsets +n_diag/2 ... -n_diag/2), NULL for none; sigma_aa [n_pix] Gaussian sigma
 *  of the line-spread function in A, pixel included, NULL for none (a resolution
 *  matrix comes first).  The arrays are the reader's and need not outlive the source's next
 *  call (src/pipeline/pipeline.h).
 */
typedef struct mill_raw_segment {
  int arm;      /**< index into the library's arms */
  int exposure; /**< 0 ... n_exposure - 1 of this star */
  int epoch;    /**< 0 ... n_epoch - 1, where there are any */
  int n_pix;
  int n_diag;
  const double *wave_aa;
  /** Number of the wavelengths: segments of the same number, arm and n_pix have the same ones, so
   *  that nobody needs to compare them; 0: not numbered. */
  uint64_t wave_number;
  const float *flux;
  const float *ivar;
  const int32_t *mask;
  const float *resolution;
  const float *sigma_aa;
  double width_error; /**< relative, of the line-spread function: standard deviation; 0: none */
  /* for the reader and the job; the pipeline does not ask */
  enum mill_segment_use use; /**< other than MILL_SEGMENT_FIT: no pixels */
  int i_file;                /**< of the catalog */
  int has_own_lsf;           /**< 1: its line-spread function is the file's */
  double mjd;                /**< of the exposure; NaN: not known */
  int channel;               /**< among the channels that the format has added in this read */
  int first;                 /**< pixel of the channel with which it begins */
  double first_aa, last_aa;  /**< of MILL_SEGMENT_OUTSIDE alone: the channel's range */
} mill_raw_segment;

/** Best-fit model of a segment, [n_pix] each: flux in the unit of the input, NaN where the arm was
 *  dropped, and wavelengths in A. */
typedef struct mill_star_model {
  const float *flux;
  const double *wave_aa;
} mill_star_model;

typedef struct mill_star {
  int64_t row;            /**< of /fits */
  int64_t first_exposure; /**< among all exposures of the catalog; -1: its file is unreadable */
  int n_exposure;
  uint64_t identity; /**< of its random numbers; used by samples only */
  int n_segment;
  mill_raw_segment *segment; /**< [n_segment] by exposure, then arm */
  int n_epoch;               /**< epochs that get a velocity of their own; 0: none is wanted */
  int64_t warn;              /**< bits of RVS_WARN known before the fit */
  int try_all;               /**< also starts from the guess: it has several minima */
  int is_several;            /**< a sample's row has two stars, or epochs that differ */
  double start_chisq;        /**< its CHISQ_C_DATA, 0: not known */
  double start_f;            /**< its M2LL, infinite: of another model than the sample's */
  int stays; /**< 1: pixels lie in memory of the backend's pin, until mill_pipeline_settle */
  const double *start; /**< [n_par] VRAD, VSINI, labels to start from, finite; NULL: the guess */
  /** Gaussian priors of its own, instead of those of the settings; sigma 0: none */
  double prior_mean[MILL_MAX_PAR], prior_sigma[MILL_MAX_PAR];
  double taken_s; /**< wall clock when its fit began */
  /* for the sink, until it returns */
  mill_fit_result *result;
  const mill_star_model *model; /**< [n_segment]; NULL: not wanted, or the star was not fitted */
} mill_star;

MILL_EXTERN_C_END

#endif
