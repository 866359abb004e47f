/* SPDX-License-Identifier: BSD-3-Clause */
/** Principal components of many spectra, as the last layer of an emulator. */
#ifndef MILL_COMPONENTS_H
#define MILL_COMPONENTS_H

#include "kernels/data/library.h"

/** Spectra of one arm: n_row rows of n_pix numbers, a row begins n_stride after the one before. */
typedef struct mill_spectra_matrix {
  int n_row, n_pix, n_stride;
  float *x;
} mill_spectra_matrix;

/** As many components as rows and pixels can have. */
int mill_components_most(const mill_spectra_matrix *m);

/** Components of ln flux, x, by subspace iteration, as the only layer of e (its n_in, n_out,
 *  log_flux, weight and bias).
 *
 *  m                            in/out  x loses its mean over the rows
 *  value [n_row][n_component]   out     coefficients of the rows, of mean square 1 each:
 *                                       the layer's input that gives them back
 *
 *  Between mill_blas_begin and mill_blas_end; the same bits for any n_thread.
 *  MILL_ERR_RANGE for more components than there can be, MILL_ERR_MEMORY; e is the caller's to
 *  clear. */
int mill_components_layer(int n_thread, mill_spectra_matrix *m, int n_component, mill_emulator *e,
                          double *value);

/** Largest rms over pixels of what a layer leaves of a row, in x after mill_components_layer,
 *  which is used up: *left.
 *
 *  value [n_row][n_in of e]  in  coefficients of the rows; e may have fewer than were found
 *  MILL_ERR_MEMORY. */
int mill_components_left(int n_thread, mill_spectra_matrix *m, const mill_emulator *e,
                         const double *value, double *left);

#endif
