/** The library of `starmill library demo`: the line model on DESI's three arms
 *  (docs/science/demo-library.md).  FOR DEMONSTRATION AND TESTS, NOT FOR SCIENCE. */
#ifndef MILL_DEMO_LIBRARY_H
#define MILL_DEMO_LIBRARY_H

#include <stdio.h>

#include "kernels/data/library.h"
#include "src/libraries/grid_emulators.h"
#include "src/libraries/library_report.h"

/** Gaussian sigma in A that the templates carry (data with a resolution matrix). */
#define MILL_DEMO_SIGMA_AA 0.5

/** Width in ln flux of the median by which each arm's templates are divided. */
#define MILL_DEMO_MEDIAN_WIDTH 0.1

/** There are no hot giants of so low a gravity: from Teff 5500, log g 0.5 to 7500, 3.0 the corner
 * of the labels' box is cut off. */
#define MILL_DEMO_CUT_FROM                                                                         \
  {                                                                                                \
    5500, 0.5                                                                                      \
  }
#define MILL_DEMO_CUT_TO                                                                           \
  {                                                                                                \
    7500, 3.0                                                                                      \
  }

/** Limits of the settings. */
#define MILL_DEMO_MAX_SCATTER 1.0
enum { MILL_DEMO_MAX_COMPONENT = 256 };

typedef struct mill_demo_settings {
  int n_thread;    /**< OpenMP threads, >= 1 */
  int n_component; /**< principal components of an arm; 0: the default */
  int n_held_out;  /**< models of mill_demo_held_out, MILL_REPORT_MAX at most */
  uint64_t seed;   /**< of their labels */
  int n_guess;     /**< templates of the initial guess */
  int coarse;      /**< 1: the smallest grid that makes sense, for tests */
  /** Line strengths are scattered by this in their logarithm (mill_line_model_scatter), so that
   *  the library is wrong in a known way; 0: none. */
  double line_scatter;
  uint64_t line_seed;
  FILE *progress; /**< a line per stage, or NULL */
} mill_demo_settings;

void mill_demo_settings_init(mill_demo_settings *settings);

/** Templates of one star on the arms of the demo library: the line model convolved
 *  with a Gaussian of MILL_DEMO_SIGMA_AA, divided by its smooth median over each arm.
 *  What the emulator is fitted to and what its error is measured against.
 *
 *  The smooth median exp(m) of an arm's n fluxes f_i solves
 *  sum_i z_i / sqrt(1 + z_i^2) = 0, z_i = (ln f_i - m) / MILL_DEMO_MEDIAN_WIDTH.
 *  It is within some per cent of the median, which itself has a kink in the labels
 *  wherever another pixel becomes the middle one, and no spline follows that.
 *
 *  label [4]                      in   in the order of enum mill_line_label
 *  flux [sum of the arms' n_pix]  out  arm after arm
 *  cont [the same]                out  its continuum over the same number; may be NULL
 *
 *  Thread-safe.  MILL_ERR_RANGE outside the line model's range, MILL_ERR_MEMORY. */
typedef struct mill_demo_templates mill_demo_templates;
int mill_demo_templates_create(mill_demo_templates **out);
void mill_demo_templates_destroy(mill_demo_templates *templates); /* NULL is allowed */
int mill_demo_templates_eval(const mill_demo_templates *templates, const double *label,
                             double *flux, double *cont);

/** Labels, hulls and arms with their wavelengths, no emulators: what does not need
 *  a single spectrum.  lib must be zeroed and is left cleared on failure. */
int mill_demo_library_frame(mill_library *lib);

/** Labels of n models that fill the demo library's labels: first the corners of its hulls, 20, then
 *  places that leave no large gap, of which a twentieth lies on each end of each label.  The first
 *  n of more are the same.
 *
 *  label [n][MILL_LINE_N_LABEL]  out  in their units
 *
 *  The places are Roberts' additive recurrence in four dimensions (powers of 1 / g, g^5 = g + 1),
 *  uniform in the mapped labels, those outside the hulls left out.  MILL_ERR_MEMORY. */
int mill_demo_labels(int n, double *label);

/** Build it: the frame, guess templates, and splines through models on a grid of labels
 *  (mill_grid_emulators_make).  lib must be zeroed and is left cleared on failure.
 *  The same bits for any number of threads.  MILL_ERR_MEMORY, MILL_ERR_RANGE. */
int mill_demo_library_build(const mill_demo_settings *settings, mill_library *lib,
                            mill_grid_facts *facts);

/** The settings' models at random labels inside the hulls, evenly distributed in mapped labels,
 *  with their continua: spectra for the report.
 *
 *  lib  that of mill_demo_library_build
 *  set  zeroed before, cleared by the caller, also on failure
 *  MILL_ERR_MEMORY, MILL_ERR_RANGE. */
int mill_demo_held_out(const mill_demo_settings *settings, const mill_library *lib,
                       mill_model_set *set);

#endif
