/* SPDX-License-Identifier: BSD-3-Clause */
/** First phase of training: statistics and principal components of spectra, in one pass over them
 *  (docs/science/numerics.md, "Training a network"). */
#pragma once

#include "kernels/train/train_ops.h"
#include "src/ranks/mpi_context.h"

/** Statistics of the spectra added so far, in bounded memory.
 *
 *  Mean and variance of each pixel are exact.  The covariance is kept as at most n_room rows.  When
 *  more spectra come, n_room / 2 - 1 principal directions replace the rows, and the rest of their
 *  variance is lost (Ross et al. 2008, IJCV 77, 125). */
typedef struct mill_train_statistics mill_train_statistics;

enum { MILL_TRAIN_STATISTICS_ROWS = 2048 };

/** ops: engine that finds principal directions; n_room: even, 4 or more. */
int mill_train_statistics_create(const mill_train_ops *ops, int n_pix, int n_room,
                                 mill_train_statistics **out);
void mill_train_statistics_destroy(mill_train_statistics *s); /* NULL is allowed */
MILL_CLOSER(mill_train_statistics, mill_train_statistics_destroy)

/** Add n spectra y [n][n_pix]. */
int mill_train_statistics_add(mill_train_statistics *s, int n, const float *y);

/** Join all ranks' statistics on rank 0, in rank order.  Collective. */
int mill_train_statistics_join(const mill_mpi *mpi, mill_train_statistics *s);

/** Statistics of spectra and their principal components.
 *
 *  Pixel p of a spectrum is y_p = mean_p + sum_k z_k pattern_kp + rest.  Over the spectra, scores
 *  z_k have mean square 1 and are uncorrelated. */
typedef struct mill_train_components {
  int n_pix, n_component;
  double *mean, *spread; /**< [n_pix], spread: standard deviation; owned */
  double *pattern;       /**< [n_component][n_pix], largest coefficient positive; owned */
  double *variance;      /**< [n_component] scaled variance, summed over pixels, falling; owned */
  double total;          /**< scaled variance of the spectra, summed over pixels */
} mill_train_components;

/** Fill in mean and spread, on rank 0 after mill_train_statistics_join.  The caller frees *out by
 *  mill_train_components_clear, also after a failure. */
int mill_train_statistics_pixels(mill_train_statistics *s, mill_train_components *out);

/** Find the leading components, after mill_train_statistics_pixels.
 *
 *  scale [n_pix]  above 0: find the components of scale_p (y_p - mean_p)
 *  n_component    largest number of components; fewer if the others are rounding errors
 *  rest           if > 0, keep the fewest components that leave at most rest * out->total
 *
 *  MILL_ERR_INPUT for fewer spectra than components, or if the spectra do not differ; the codes of
 *  ops->directions; MILL_ERR_MEMORY. */
int mill_train_statistics_components(mill_train_statistics *s, const double *scale, int n_component,
                                     double rest, mill_train_components *out);

/** Broadcast rank 0's statistics.  Collective. */
int mill_train_components_share(const mill_mpi *mpi, mill_train_components *c);
void mill_train_components_clear(mill_train_components *c); /* NULL is allowed */

/** Compute scores z [n][n_component] of spectra y [n][n_pix], and rest [n]: the part of the sum
 *  over pixels of (scale (y - mean))^2 that the components do not explain. */
int mill_train_components_scores(const mill_train_components *c, const double *scale, int n,
                                 const float *y, double *z, double *rest);
