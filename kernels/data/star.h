/* SPDX-License-Identifier: BSD-3-Clause */
/** A star in host memory, from the reader through the fit to its row. */
#pragma once

#include "kernels/data/result.h"

/** Use of a segment. */
enum mill_segment_use {
  MILL_SEGMENT_FIT,    /**< fit it */
  MILL_SEGMENT_NO_LSF, /**< skip it: no line-spread function is known */
  MILL_SEGMENT_OUTSIDE /**< skip it: outside all arms' usable ranges; its arm is -1, n_pix 0 */
};

/** One arm of one exposure (or coadd).
 *
 *  wave_aa     [n_pix]          vacuum A; spectra of a file with equal wavelengths share the array
 *  flux, ivar  [n_pix]          as in the file, any unit
 *  mask        [n_pix]          bits; NULL: none
 *  resolution  [n_diag][n_pix]  as DESI stores it (scipy dia layout, offsets +n_diag/2 ...
 *                               -n_diag/2); NULL: none
 *  sigma_aa    [n_pix]          Gaussian sigma (A) of the line-spread function, pixel included;
 *                               NULL: none; ignored with a resolution matrix
 *  The reader owns the arrays; they are valid until the next call of the source
 *  (src/pipeline/pipeline.h). */
typedef struct mill_raw_segment {
  int arm;      /**< index into the library's arms */
  int exposure; /**< 0 ... n_exposure - 1 of this star */
  int epoch;    /**< 0 ... n_epoch - 1 if epochs are wanted */
  int n_pix;
  int n_diag;
  const double *wave_aa;
  /** Number of the wavelength array; 0: not numbered.  Segments of one arm with equal number and
   *  n_pix are taken to have equal wavelengths. */
  uint64_t wave_number;
  const float *flux;
  const float *ivar;
  const int32_t *mask;
  const float *resolution;
  const float *sigma_aa;
  double width_error; /**< relative error (1 sigma) of the line-spread function's width; 0: exact */
  /* for the reader and the job; the pipeline ignores them */
  enum mill_segment_use use; /**< if not MILL_SEGMENT_FIT, the segment has no pixels */
  int i_file;                /**< index of the segment's file in the catalog */
  int has_own_lsf;           /**< 1: the file gives its line-spread function */
  double mjd;                /**< MJD of the exposure; NaN: not known */
  int channel;               /**< index among the channels of this read */
  int first;                 /**< index in the channel of the segment's first pixel */
  double first_aa, last_aa;  /**< range of a MILL_SEGMENT_OUTSIDE channel, A */
} mill_raw_segment;

/** Best-fit model of a segment. */
typedef struct mill_star_model {
  const float *flux;     /**< [n_pix] in the input's unit; NaN if the arm was dropped */
  const double *wave_aa; /**< [n_pix] vacuum A */
} mill_star_model;

typedef struct mill_star {
  int64_t row;            /**< row of /fits */
  int64_t first_exposure; /**< first exposure in the catalog; -1: its file is unreadable */
  int n_exposure;
  uint64_t identity; /**< key of the star's random numbers; for sampling only */
  int n_segment;
  mill_raw_segment *segment; /**< [n_segment] sorted by exposure, then by arm */
  int n_epoch;               /**< number of epochs with a velocity of their own; 0: none wanted */
  int64_t warn;              /**< bits of RVS_WARN known before the fit */
  int try_all;               /**< 1: start from the guess too, as the earlier fit had two minima */
  int is_several;            /**< 1: the earlier fit has two stars, or epochs that differ */
  double start_chisq;        /**< CHISQ_C_DATA of the fit that gave start; 0: unknown */
  double start_f;            /**< M2LL of that fit; infinite: it had another model */
  int stays;           /**< 1: pixels lie in pinned memory, unchanged until mill_pipeline_settle */
  const double *start; /**< [n_par] VRAD, VSINI, labels to start from, finite; NULL: the guess */
  /** This star's Gaussian priors, which replace the settings' priors; sigma 0: none. */
  double prior_mean[MILL_MAX_PAR], prior_sigma[MILL_MAX_PAR];
  double taken_s; /**< wall clock (s) when the star's fit began */
  /* for the sink, until it returns */
  mill_fit_result *result;
  int is_too_large;             /**< 1: not fitted (FIT_FAILED), as it does not fit into memory */
  const mill_star_model *model; /**< [n_segment]; NULL: not wanted, or the star was not fitted */
} mill_star;
