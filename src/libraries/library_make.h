/** What every way of making a library has in common. */
#ifndef MILL_LIBRARY_MAKE_H
#define MILL_LIBRARY_MAKE_H

#include "kernels/data/library.h"

/** Column, unit and typical uncertainty of a label by its name, which is set: teff,
 *  logg, feh and alpha are known; others get their name in upper case, no unit, and
 *  keep their scale (0 in a zeroed label: the caller's to fill). */
void mill_label_describe(mill_label *label);

/** Templates of the initial guess: n_guess quasi-random points inside all hulls, each
 *  without rotation and with 100 km/s.
 *
 *  x_min, x_max [n_label]  in   range of the mapped labels
 *  lib                     in   labels and hulls
 *                          out  n_guess, guess_label (allocated), the rotations
 *  MILL_ERR_LIBRARY when the hulls fill too little of the range, MILL_ERR_MEMORY. */
int mill_library_make_guess(int n_guess, const double *x_min, const double *x_max,
                            mill_library *lib);

/** Labels from the values of n models.
 *
 *  value [n][n_label]   in   in the labels' units
 *  lib                  in   n_label and the labels' names
 *                       out  the labels: Teff by its logarithm, mean and spread of the models
 *  mapped [n][n_label]  out
 *
 *  MILL_ERR_INPUT names a label that does not vary, or a Teff not above 0. */
int mill_library_make_labels(int n, const double *value, mill_library *lib, double *mapped);

/** Hulls around the models' labels, a hull for every pair of labels (beyond six labels, for each
 *  label and the next one), or the range of the only one.
 *
 *  all  1: around all models; 0: without those that stand alone (src/libraries/point_hull.h)
 *  MILL_ERR_INPUT names two labels that are not independent, MILL_ERR_MEMORY. */
int mill_library_make_hulls(int n, const double *mapped, int all, mill_library *lib);

/** Templates of the initial guess: up to n_guess of the models inside the hulls, each as far as
 *  can be from those before it; rotations as above.
 *
 *  length [n_label]  in   units of distances along the mapped labels; NULL: 1
 *  outside [n]       out  1: the model is outside the hulls; NULL: not wanted
 *  MILL_ERR_INPUT when none is inside, MILL_ERR_MEMORY. */
int mill_library_spread_guess(int n, const double *value, const double *mapped,
                              const double *length, int n_guess, mill_library *lib,
                              unsigned char *outside);

#endif
