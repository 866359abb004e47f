/** The library of `starmill library demo`: the line model on DESI's three arms. */
#ifndef MILL_DEMO_LIBRARY_H
#define MILL_DEMO_LIBRARY_H

#include <stdio.h>

#include "kernels/library.h"

/** Gaussian sigma in A that the templates carry (data with a resolution matrix). */
#define MILL_DEMO_SIGMA_AA 0.5

typedef struct mill_demo_settings {
  int n_thread;    /**< OpenMP threads, >= 1 */
  int n_component; /**< principal components of an arm; 0: the default */
  int n_held_out;  /**< models at random labels inside the hulls that measure the error */
  uint64_t seed;   /**< of the held-out labels */
  int n_guess;     /**< templates of the initial guess */
  int coarse;      /**< 1: the smallest grid that makes sense, for tests */
  FILE *progress;  /**< a line per stage with its time, or NULL */
} mill_demo_settings;

void mill_demo_settings_init(mill_demo_settings *settings);

/** |emulated - model| / continuum over all pixels of the held-out models, in per
 *  cent, after the median normalisation of each arm that the library has. */
typedef struct mill_demo_error {
  double median[MILL_MAX_ARM], p99[MILL_MAX_ARM], max[MILL_MAX_ARM];
  double median_all, p99_all;
  int n_model;
} mill_demo_error;

/** Templates of one star on the arms of the demo library: the line model convolved
 *  with a Gaussian of MILL_DEMO_SIGMA_AA, divided by its median over each arm.
 *  What the emulator is fitted to and what its error is measured against.
 *
 *  flux [sum of the arms' n_pix]  out  arm after arm
 *  cont [the same]                out  its continuum over the same median; may be NULL */
typedef struct mill_demo_templates mill_demo_templates;
int mill_demo_templates_create(mill_demo_templates **out);
void mill_demo_templates_destroy(mill_demo_templates *templates);
int mill_demo_templates_eval(const mill_demo_templates *templates, const double *label,
                             double *flux, double *cont);

/** Labels, hulls and arms with their wavelengths, no emulators: what does not need
 *  a single spectrum.  lib must be zeroed. */
int mill_demo_library_frame(mill_library *lib);

/** Build it: labels, hulls, arms, emulators (splines over a grid of principal
 *  components of ln flux), guess templates, and measure the error on held-out
 *  models.  lib must be zeroed and is left cleared on failure; error may be NULL.
 *  The same bits for any number of threads.  MILL_ERR_MEMORY, MILL_ERR_RANGE. */
int mill_demo_library_build(const mill_demo_settings *settings, mill_library *lib,
                            mill_demo_error *error);

#endif
