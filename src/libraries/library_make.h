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

#endif
