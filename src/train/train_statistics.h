/* SPDX-License-Identifier: BSD-3-Clause */
/** First phase of training: statistics and principal components of spectra in one pass
 *  (docs/science/numerics.md, "Training a network"). */
#ifndef MILL_TRAIN_STATISTICS_H
#define MILL_TRAIN_STATISTICS_H

#include "kernels/train/train_ops.h"
#include "src/ranks/mpi_context.h"

/** Statistics of the rows so far, in bounded memory.
 *
 *  Mean, variance and range of each pixel are exact.  The products of pixels (the covariance) are
 *  those of n_room rows at most: where there are more spectra, half of n_room principal directions
 *  stand for those that came before, and what the others carry is lost (Ross et al. 2008, IJCV 77,
 *  125, with their correction for a mean that moves).  Up to n_room spectra are exact. */
typedef struct mill_train_statistics mill_train_statistics;

enum { MILL_TRAIN_STATISTICS_ROWS = 2048 };

/** ops: whose `directions` are used; n_room: an even number of rows, 4 or more. */
int mill_train_statistics_create(const mill_train_ops *ops, int n_pix, int n_room,
                                 mill_train_statistics **out);
void mill_train_statistics_destroy(mill_train_statistics *s); /* NULL is allowed */

/** n more spectra y [n][n_pix]. */
int mill_train_statistics_add(mill_train_statistics *s, int n, const float *y);

/** Gather all ranks' statistics on rank 0, in rank order.  Collective. */
int mill_train_statistics_join(const mill_mpi *mpi, mill_train_statistics *s);

/** Statistics of n_model spectra and their principal components.
 *
 *  y_p = mean_p + sum_k z_k pattern_kp + what is left, where the mean square of each score z_k
 *  over the spectra is 1 and those of different components have no correlation.
 *  The components are those of scale_p (y_p - mean_p): variance_k is the mean square that a
 *  component carries, the sum over pixels in these units, largest first; total is that of all.
 *  The largest coefficient of a pattern is positive. */
typedef struct mill_train_components {
  int n_model, n_pix, n_component;
  double *mean, *spread, *least, *most; /**< [n_pix], spread: standard deviation; owned */
  double *pattern;                      /**< [n_component][n_pix], owned */
  double *variance;                     /**< [n_component], owned */
  double total;
} mill_train_components;

/** Mean, spread and range; no components yet.  On rank 0 after mill_train_statistics_join. */
int mill_train_statistics_pixels(mill_train_statistics *s, mill_train_components *out);

/** The leading components, after mill_train_statistics_pixels.
 *
 *  scale        [n_pix] > 0
 *  n_component  at most; fewer come out where the spectra have no more
 *  rest         above 0: no more than leave this part of the total; 0: n_component
 *
 *  MILL_ERR_INPUT for fewer spectra than components, and where the spectra do not differ;
 *  what `directions` fails with; MILL_ERR_MEMORY. */
int mill_train_statistics_components(mill_train_statistics *s, const double *scale, int n_component,
                                     double rest, mill_train_components *out);

/** Broadcast rank 0's statistics.  Collective. */
int mill_train_components_share(const mill_mpi *mpi, mill_train_components *c);
void mill_train_components_clear(mill_train_components *c); /* NULL is allowed */

/** Scores z [n][n_component] of spectra y [n][n_pix], and rest [n]: the square sum over pixels of
 *  scale (y - mean) that the components leave. */
int mill_train_components_scores(const mill_train_components *c, const double *scale, int n,
                                 const float *y, double *z, double *rest);

#endif
