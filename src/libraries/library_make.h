/* SPDX-License-Identifier: BSD-3-Clause */
/** Steps shared by all ways of making a library. */
#ifndef MILL_LIBRARY_MAKE_H
#define MILL_LIBRARY_MAKE_H

#include "kernels/data/library.h"

/** Column, unit and typical uncertainty of a label by its name, which is set: teff,
 *  logg, feh and alpha are known; others get their name in upper case, no unit, and
 *  keep their scale (0 in a zeroed label: the caller's to fill). */
void mill_label_describe(mill_label *label);

/** Mapping (log10 of teff, else linear), range, mean, spread and scale of a label whose name is
 * set, from its values [n] in its unit.  MILL_ERR_INPUT when it does not vary. */
int mill_label_measure(int n, const double *value, mill_label *label);

enum mill_hulls {
  MILL_HULLS_PAIRS = 0, /**< of every pair of labels, of all points */
  MILL_HULLS_WHOLE = 1, /**< of all labels together: mill_whole_hull */
  MILL_HULLS_DENSE = 2  /**< of every pair of labels, without isolated points */
};

enum { MILL_MAX_FACET = 100000 }; /**< of a hull */

/** Hulls of points in mapped labels x [n][n_label], n_label that of lib; the range of the only
 *  label whatever the kind.  MILL_ERR_INPUT when labels are not independent, or for a hull of more
 *  than MILL_MAX_FACET facets; MILL_ERR_CONFIG for the whole one without qhull. */
int mill_library_make_hulls(int n, const double *x, int kind, mill_library *lib);

/** All labels of a library, whose names are set, by mill_label_measure; and the mapped labels.
 *
 *  value [n][n_label]   in   in the labels' units
 *  mapped [n][n_label]  out
 *  MILL_ERR_INPUT, MILL_ERR_MEMORY. */
int mill_library_make_labels(int n, const double *value, mill_library *lib, double *mapped);

/** Templates of the initial guess: up to n_guess of n models inside the hulls, each as far as can
 *  be from those before it, each without rotation and with 100 km/s.
 *
 *  value, mapped [n][n_label]  in   labels in their units, and mapped
 *  length [n_label]            in   units of distances along the mapped labels; NULL: 1
 *  outside [n]                 out  1: the model is outside the hulls; NULL: not wanted
 *  MILL_ERR_INPUT when none is inside, MILL_ERR_MEMORY. */
int mill_library_spread_guess(int n, const double *value, const double *mapped,
                              const double *length, int n_guess, mill_library *lib,
                              unsigned char *outside);

/** Wavelengths (A) of an arm's pixels from its ln_wave0, ln_step and n_pix: wave_aa, allocated.
 *  MILL_ERR_MEMORY. */
int mill_arm_make_waves(mill_arm *arm);

/** Settings that several kinds of libraries have; 0 components or no smoothing: the default.
 *  MILL_ERR_RANGE. */
int mill_library_make_check(int n_component, double smoothing, int n_guess, int n_thread);

#endif
