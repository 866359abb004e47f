/* SPDX-License-Identifier: BSD-3-Clause */
/** Steps of mill_spectra_library_build and their data: spectra_grid.c selects the spectra and puts
 * them on the library's wavelengths, spectra_fit.c makes the functions of the labels,
 * spectra_errors.c measures the model error. */
#ifndef MILL_SPECTRA_WORK_H
#define MILL_SPECTRA_WORK_H

#include "src/libraries/rbf.h"
#include "src/libraries/spectra_library.h"

enum {
  MILL_SPECTRA_MIN = 12,         /**< spectra that a library needs */
  MILL_SPECTRA_MIN_PIX = 4 * 28, /**< as the fit's splines need */
  MILL_SPECTRA_MAX_PIX = 1 << 20
};

/** While spectra have velocities none is rejected.  Functions that follow single spectra follow
 *  their velocities too, so the first rounds have the polynomials alone. */
enum mill_spectra_stage {
  MILL_SPECTRA_LAST = 0,
  MILL_SPECTRA_ALIGN_STIFF,
  MILL_SPECTRA_ALIGN,
};

/** The spectra in use, as ln flux without continuum and level. */
typedef struct mill_spectra_work {
  const mill_spectra_library_settings *set;
  int n, n_label, n_pix;
  int *row;           /**< [n] of the input */
  double *y;          /**< [n][n_pix] */
  unsigned char *gap; /**< [n][n_pix] 1: the pixel is bad, and y what the others make of it */
  int n_gap;          /**< of all */
  enum mill_spectra_stage aligning;
  double *mapped;  /**< [n][n_label] */
  double *length;  /**< [n_label] */
  double *weight;  /**< [n] */
  double *score;   /**< [n][n_component] */
  double *lost;    /**< [n] mean square over pixels that the components do not carry */
  double *mean;    /**< [n_pix] */
  double *pattern; /**< [n_component][n_pix] orthonormal */
  int n_component;
  double kept_variance;
  mill_rbf_fit *fit;
} mill_spectra_work;

/** Label l of spectrum i in use, in its unit. */
static inline double mill_spectra_label_of(const mill_labelled_spectra *in,
                                           const mill_spectra_work *w, int i, int l)
{
  return in->label[(size_t)w->row[i] * (size_t)in->n_label + (size_t)l];
}

/** Pixels of the input that the library's range needs: first and how many. */
int mill_spectra_find_pixels(const mill_spectra_library_settings *set,
                             const mill_labelled_spectra *in, int *first, int *n);

/** Use of spectrum i of the input, from its labels and pixels alone. */
int mill_spectra_fate_of(const mill_spectra_library_settings *set, const mill_labelled_spectra *in,
                         int first, int n, int i);

/** Fail because only n spectra can be used, with the reason and a range that helps. */
int mill_spectra_too_few(const mill_spectra_report *report, int n);

/** Fail when half of the spectra in use have a bad pixel at the same place: name it, and a range
 *  that helps; where all are good goes to the report. */
int mill_spectra_check_pixels(const mill_labelled_spectra *in, int first, int n,
                              mill_spectra_report *report);

/** The library's arm for n_in pixels from first on, and the spectra on it without their velocities
 *  (of the report): w->y, gap, n and n_pix. */
int mill_spectra_make_grid(const mill_labelled_spectra *in, int first, int n_in, mill_arm *arm,
                           mill_spectra_report *report, mill_spectra_work *w);

/** Labels, components and functions; spectra that do not fit in get less weight, and none at all
 *  when they are far off. */
int mill_spectra_fit(const mill_labelled_spectra *in, int n_component, unsigned char *fate,
                     mill_spectra_work *w, mill_library *lib);

/** Add to the spectra's velocities what is left of them, against the functions without each; done:
 *  the changes were small. */
int mill_spectra_align(const mill_spectra_work *w, const mill_library *lib,
                       mill_spectra_report *report, int *done);

/** Describe the functions for the report, and measure the model error if requested. */
int mill_spectra_measure(const mill_spectra_work *w, mill_library *lib,
                         mill_spectra_report *report);

#endif
