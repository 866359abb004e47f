/* SPDX-License-Identifier: BSD-3-Clause */
/** Emulators of models with labels, all arms of a grid file at once: radial functions, splines and
 *  linear interpolation on principal components of ln flux (docs/use/libraries.md). */
#ifndef MILL_GRID_EMULATORS_H
#define MILL_GRID_EMULATORS_H

#include "kernels/data/library.h"
#include "src/libraries/library_make.h"

enum mill_grid_way { MILL_WAY_RADIAL = 0, MILL_WAY_SPLINES = 1, MILL_WAY_LINEAR = 2 };

enum { MILL_GRID_COMPONENT = 128 }; /**< components of an arm by default */

/** Largest rms of ln flux that the components of linear interpolation may leave of a model. */
#define MILL_GRID_LEFT 1e-5

/** Through the models, which have no errors. */
#define MILL_GRID_SMOOTHING 1e-8

typedef struct mill_grid_settings {
  enum mill_grid_way way;
  int n_component;  /**< of an arm; 0: the default, of linear interpolation as many as leave
                         MILL_GRID_LEFT */
  int fill_gaps;    /**< 1: nodes without a model are filled (mill_label_lattice_fill) */
  int degree;       /**< of the polynomial added to the radial functions */
  double smoothing; /**< of radial functions; 0: chosen by leave-one-out for each component */
  enum mill_hulls hulls;
  int n_guess;  /**< templates of the initial guess */
  int n_thread; /**< 1 or more; the library does not depend on it */
} mill_grid_settings;

void mill_grid_settings_init(mill_grid_settings *settings);

/** Models and how to read them.
 *
 *  value  [n][n_label]  labels in their units, in the order of the library
 *  name   [n]           for messages
 *  row    [n]           what read takes for a model
 *  read                 ln flux [n][n_pix] of an arm, finite
 *
 *  Borrowed. */
typedef struct mill_grid_models {
  int n;
  const double *value;
  const char (*name)[64];
  const int *row;
  int (*read)(void *from, int arm, int n, const int *row, float *ln_flux);
  void *from;
} mill_grid_models;

/** For people. */
typedef struct mill_grid_facts {
  int n_component[MILL_MAX_ARM];
  double left[MILL_MAX_ARM];      /**< largest rms of ln flux that they leave of a model */
  int n_node[MILL_MAX_GRID_AXIS]; /**< 0 for radial functions */
  int n_filled;                   /**< nodes that got their values from neighbours */
  double smooth_min, smooth_max;  /**< smoothings of radial functions */
} mill_grid_facts;

/** Labels, hulls, guess templates and emulators.
 *
 *  lib  in   n_label and the labels' names, and the arms with all but their emulators
 *       out  a library; cleared on failure
 *
 *  Memory: the spectra of one arm, float32.
 *  MILL_ERR_INPUT when the models do not make such an emulator, MILL_ERR_RANGE for settings,
 *  MILL_ERR_MEMORY, or what read gives. */
int mill_grid_emulators_make(const mill_grid_settings *settings, const mill_grid_models *models,
                             mill_library *lib, mill_grid_facts *facts);

/** Choose models to leave out, that the others lie around: none is at the end of a label of three
 *  values or more.  For splines and linear interpolation nodes with models on both sides along
 *  every label, no two of them next to each other.
 *
 *  lib          labels' names
 *  n_wanted     how many; fewer where there are fewer
 *  seed         of the choice
 *  out [n]      1: left out
 *  *n_out       how many */
int mill_grid_choose_left_out(int way, const mill_grid_models *models, const mill_library *lib,
                              int n_wanted, uint64_t seed, unsigned char *out, int *n_out);

#endif
