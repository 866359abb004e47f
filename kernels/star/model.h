/* SPDX-License-Identifier: BSD-3-Clause */
/** Data that a device holds once for all stars: the library's emulators and the wavelengths of
 *  spectra.  All pointers of these plain structures point into one memory space. */
#pragma once

#include "kernels/base/layout.h"
#include "kernels/data/library.h"
#include "kernels/data/settings.h"
#include "kernels/math/rotation.h"

enum {
  MILL_SPLINE_END = 28,     /**< coefficients that a natural end changes by > 1e-16 (float64) */
  MILL_SPLINE_END_F32 = 14, /**< coefficients changed by > 1e-8, for float32 templates */
  MILL_N_PROFILE = 41,      /**< velocities of a full profile grid */
  MILL_N_PROFILE_FEW = 5,   /**< velocities of a profile's first grid */
  MILL_MAX_PROFILE_ROUND = 8,
  MILL_COLUMN_PAD = 64,  /**< emulator outputs are padded to a multiple of this */
  MILL_PANEL_BYTES = 64, /**< bytes of a panel of outputs: 16 floats or 8 doubles */
  MILL_GUESS_LANE = 16   /**< guess templates stored side by side */
};

/** Step of a profile's first grid, in expected errors of the velocity. */
#define MILL_PROFILE_FEW_STEP 1.5

/** A guess template.  A CPU stores it on the first request, at the grid points of that request. */
typedef struct mill_stored {
  int state;      /**< bits of enum mill_stored_state */
  int first, end; /**< grid points [first, end) are stored, once MADE */
} mill_stored;

enum mill_stored_state { MILL_STORED_BEGUN = 1, MILL_STORED_MADE = 2 };

/** Emulator weights [panel][n_in][outputs of a panel]; a panel has MILL_PANEL_BYTES of outputs.
 *  Weights that are used together are then near each other in memory. */
typedef struct mill_layer {
  int n_in, n_out, n_out_pad;
  const void *weight;  /**< double; float for the last layer of a float32 run */
  const void *bias;    /**< [n_out_pad] */
  const float *narrow; /**< float32 weights of a hidden layer for a CPU's tangents, or NULL */
} mill_layer;

/** Return the index of the weight of input k and output i; panel: outputs per panel. */
MILL_HD static inline size_t mill_weight_at(int n_in, int panel, int k, int i)
{
  return ((size_t)(i / panel) * (size_t)n_in + (size_t)k) * (size_t)panel + (size_t)(i % panel);
}

typedef struct mill_model_arm {
  int n_pix, n_pix_pad;
  double ln_wave0, ln_step;
  double expm1_step; /**< exp(ln_step) - 1 */
  /** exp(-2 ln_step), the factor from the unit of Z[i + 1] to that of Z[i] (mill_block_spline) */
  double spline_scale_right;
  /** Filters from second differences to spline coefficients, applied in turn (spline_filter.h).
   *  Their taps are 1, 4 and 16 grid points apart; spline_last is for float64 only. */
  double spline_near[7], spline_far[7], spline_last[3];
  /** Powers of the spline's decay per grid point, from the left end and from the right end. */
  double spline_end_left[MILL_SPLINE_END], spline_end_right[MILL_SPLINE_END];
  int log_flux;
  int first; /**< first grid point of a part of an arm (kernels/cpu/emulate.h); else 0 */
  /** The mean of the emulator's output over pixels is computed separately, in float64
   *  (mill_workspace.mean).  The float32 digits of the last layer then serve the lines alone. */
  double mean_bias;
  const double *mean_weight; /**< [n_in of the last layer] */
  int kind;                  /**< enum mill_emulator_kind */
  mill_spline_grid grid;     /**< for MILL_EMULATOR_GRID: the part before the only layer */
  mill_rbf rbf;              /**< for MILL_EMULATOR_RBF: the part before the only layer */
  int n_layer;
  mill_layer layer[MILL_MAX_LAYER];
  /** Emulator output at the guess templates, for a start's first Jacobian. */
  float *stored;            /**< grid [n_stored][1 + n_label][n_pix_pad] */
  double *stored_mean;      /**< mean [n_stored][1 + n_label] */
  mill_stored *stored_own;  /**< [n_stored]; NULL on a GPU, where all is made before the run */
  mill_model_error error;   /**< fraction NULL: no model error */
  int n_sky;                /**< components of the sky */
  double template_sigma_aa; /**< as in mill_arm */
} mill_model_arm;

/** Return the pitch of a segment's rows: a multiple of 4, as GPUs load four floats at once. */
MILL_HD static inline int mill_row_pitch(int n_pix)
{
  return (n_pix + 3) / 4 * 4;
}

/** n_block blocks of bins are stored in groups of MILL_GUESS_LANE: return the number of groups. */
MILL_HD static inline int mill_guess_lanes(int n_block)
{
  return (n_block + MILL_GUESS_LANE - 1) / MILL_GUESS_LANE;
}

/** Wavelengths shared by segments, and everything that depends only on them. */
typedef struct mill_waveset {
  int arm, n_pix, n_cont;
  double *ln_wave;      /**< [n_pix] */
  float *cont;          /**< [n_cont][mill_row_pitch(n_pix)] continuum functions */
  unsigned char *reach; /**< range of functions not 0 in each unit (mill_reach_of), or NULL */
  /** Continuum functions as polynomials in each cell of `cell` pixels (kernels/math/cells.h).
   *  `cell` is 0 if a function is not smooth enough. */
  int cell;
  double *cell_coef, *cell_power;
  float *sky;            /**< [n_sky of the arm][mill_row_pitch(n_pix)] flux of the components */
  unsigned char *masked; /**< [n_pix] 1: excluded by wavelength */
  /* initial guess: bins uniform in ln wavelength, common to all arms */
  int n_bin;
  int *bin_first; /**< [n_bin + 1] first pixel of each bin */
  /** [groups][guess_n][n_block][2][MILL_GUESS_LANE] Fourier transforms of the templates (guess.h).
   *  A group has MILL_GUESS_LANE templates; the last group is filled up with zeros.  Wavesets with
   *  about the same range of bins share this array. */
  int n_block;
  const float *templ;
} mill_waveset;

typedef struct mill_model {
  int n_label, n_arm, n_hull;
  int has_element; /**< 1: a label is an element */
  int n_deriv;     /**< parameters of a template: velocity, v sin i, labels */
  int n_par;       /**< parameters of a fit: n_deriv, then velocity offsets */
  mill_label label[MILL_MAX_LABEL];
  mill_hull hull[MILL_MAX_HULL];
  mill_model_arm arm[MILL_MAX_ARM];
  mill_fit_settings set;
  int max_pix_pad; /**< largest n_pix_pad of the arms */
  int max_seg_pix; /**< pixels of the largest segment so far, rounded up by mill_row_pitch */
  int n_templ;     /**< guess templates: n_guess x n_guess_vsini, v sin i fastest */
  int n_guess_vsini;
  int guess_half;          /**< velocity bins on each side of zero */
  int guess_n;             /**< length of the guess's transforms, a power of two */
  const float *guess_root; /**< [guess_n / 2][2] (fourier.h) */
  double guess_ln_step;
  const double *guess_label;  /**< [n_templ / n_guess_vsini][n_label] */
  const double *guess_mapped; /**< the same labels, mapped */
  double guess_vsini[8];
  int n_stored; /**< the first n_stored of guess_label are in mill_model_arm.stored */
} mill_model;

/** Does an arm of the library have a model error? */
MILL_HD static inline int mill_has_error(const mill_model *m)
{
  int has = 0;
  for (int a = 0; a < m->n_arm; a++)
    has |= m->arm[a].error.fraction != NULL;
  return has;
}

/** Return the floor of label l's error; 0 if the fit has no model error. */
MILL_HD static inline double mill_label_floor(const mill_model *m, int l)
{
  return mill_has_error(m) ? m->label[l].floor : 0.0;
}
