/* SPDX-License-Identifier: BSD-3-Clause */
/** A template library in memory: labels (Teff, log g, ...), hulls, arms and their emulators.
 *
 *  io/library/library_file.c (or a test) fills these plain data on the host, and every block
 *  function reads them.  The library sets the number and names of labels and arms; nothing assumes
 *  four labels or three arms. */
#pragma once

#include "kernels/base/common.h"

MILL_EXTERN_C_BEGIN

/** Mapping of a label: mapped coordinate = (x - mean) / std, where x is the label or its log10. */
enum mill_mapping { MILL_MAP_LINEAR = 0, MILL_MAP_LOG10 = 1 };

/** One label: Teff, log g, ... */
typedef struct mill_label {
  char name[MILL_MAX_NAME];   /**< name in configuration files: teff, logg, feh, alpha */
  char column[MILL_MAX_NAME]; /**< column of the result file: TEFF, LOGG, FEH, ALPHAFE */
  char unit[MILL_MAX_NAME];   /**< K, log(cm s**-2), dex; empty when none */
  int mapping;                /**< enum mill_mapping */
  double mean, std;           /**< mean and standard deviation of x (enum mill_mapping) */
  double min, max;            /**< range of the training stars, in the label's unit */
  double scale;               /**< typical uncertainty, in the label's unit */
  double floor;               /**< error added in quadrature in fits with model error */
  /** A fitted label below edge_min or above edge_max (in its unit) sets MILL_WARN_LABEL_EDGE.  If
   *  both are 0, nothing does.  mill_label_set_edges sets them when a fit loads the library. */
  double edge_min, edge_max;
  int is_element; /**< in a fit: mill_label_is_element */
} mill_label;

/** A convex hull in mapped coordinates of some labels.
 *
 *  Inside: facet[i][0..n_label-1] . x + facet[i][n_label] <= 0 for all i.
 *  Normals have unit length.  The penalty distance of a point is the largest
 *  facet value over all hulls, 0 when none is positive. */
typedef struct mill_hull {
  int n_label;
  int label[MILL_MAX_LABEL]; /**< indices into the library's labels */
  int n_facet;
  double *facet;  /**< [n_facet][n_label + 1], owned */
  int of_element; /**< 1: the hull limits an element, alone or with another label; set in a fit */
} mill_hull;

/** Kind of an emulator: the part before its last, linear layer. */
enum mill_emulator_kind {
  MILL_EMULATOR_MLP = 0,  /**< hidden layers with SiLU: a multilayer perceptron */
  MILL_EMULATOR_GRID = 1, /**< splines over a grid of labels: mill_spline_grid */
  MILL_EMULATOR_RBF = 2   /**< radial functions around scattered labels: mill_rbf */
};

/** Most basis functions of one label of a grid, and most coefficients (1 GiB). */
enum { MILL_MAX_GRID_NODE = 256, MILL_MAX_GRID_COEF = 1 << 28 };

/** Tensor product of cubic or linear B-splines over the library's labels in mapped coordinates.
 *
 *  h_k(x) = sum_{i,j,..} B_i(x_0) B_j(x_1) .. coef[i][j]..[k]
 *
 *  - Cubic h is twice continuously differentiable inside the grid.
 *  - For linear h, coef has the values at the nodes; a node has the slope of the interval above it.
 *  - Beyond the grid h goes on linearly.
 *  - knot[l] holds n_node[l] + order ascending numbers, the first `order` equal and the last
 *    `order` equal (a clamped spline). */
typedef struct mill_spline_grid {
  int n_axis;                       /**< the library's labels, MILL_MAX_GRID_AXIS at most */
  int linear;                       /**< 1: linear, 0: cubic */
  int n_node[MILL_MAX_GRID_AXIS];   /**< number of basis functions of each label, `order` or more */
  double *knot[MILL_MAX_GRID_AXIS]; /**< [n_node + order], owned */
  float *coef;                      /**< [n_node[0]] .. [n_node[n_axis - 1]][n_out], owned */
  int n_out;                        /**< inputs of the last layer */
} mill_spline_grid;

/** Number of basis functions that can be nonzero at one value of a label: degree + 1. */
MILL_HD static inline int mill_spline_grid_order(const mill_spline_grid *grid)
{
  return grid->linear ? 2 : 4;
}

/** Most centers of radial functions, highest degree of the polynomial, and most coefficients. */
enum { MILL_MAX_RBF_CENTER = 1 << 16, MILL_MAX_RBF_DEGREE = 3, MILL_MAX_RBF_COEF = 1 << 28 };

/** Radial functions around scattered labels and a polynomial, both in mapped labels.
 *
 *  h_k(x) = sum_i |x - center_i|^3 coef[i][k] + sum_m p_m(x) coef[n_center + m][k].
 *  |..| is the distance in scaled coordinates x_l / length[l].  p_m are all monomials of x / length
 *  up to `degree`, in the order of mill_rbf_next_monomial (kernels/math/rbf.h).  h is twice
 *  continuously differentiable everywhere. */
typedef struct mill_rbf {
  int n_axis; /**< the library's labels, MILL_MAX_GRID_AXIS at most */
  int n_center, degree, n_poly;
  double length[MILL_MAX_GRID_AXIS]; /**< above 0 */
  double *center;                    /**< [n_center][n_axis] mapped labels, owned */
  float *coef;                       /**< [n_center + n_poly][n_out], owned */
  int n_out;                         /**< inputs of the last layer */
} mill_rbf;

/** Emulator of one arm: perceptron, or one linear layer after a grid or after radial functions. */
typedef struct mill_emulator {
  int kind;    /**< enum mill_emulator_kind */
  int n_layer; /**< 1 for a grid and for radial functions */
  int n_in[MILL_MAX_LAYER];
  int n_out[MILL_MAX_LAYER];
  float *weight[MILL_MAX_LAYER]; /**< [n_out][n_in], owned */
  float *bias[MILL_MAX_LAYER];   /**< [n_out], owned */
  int log_flux;                  /**< 1: flux = exp(clip(output, -300, 300)); 0: flux = output */
  mill_spline_grid grid;         /**< for MILL_EMULATOR_GRID only */
  mill_rbf rbf;                  /**< for MILL_EMULATOR_RBF only */
} mill_emulator;

/** Model error of an arm's templates, relative to their flux (docs/science/numerics.md, "Model
 *  error"): components, whose amplitudes differ from star to star, and the rms of the rest. */
typedef struct mill_model_error {
  float *fraction;  /**< [mill_error_points] rms of the rest, owned; NULL: no model error */
  int n_component;  /**< 0 ... MILL_MAX_COMPONENT */
  float *component; /**< [n_component][mill_error_points], owned; NULL without */
  double sigma[MILL_MAX_COMPONENT]; /**< standard deviations of the components' amplitudes */
  double correlation; /**< correlation length of the remaining error, in error points */
  int finer;          /**< error points per step of the arm's grid, if above 1 */
  int pitch;          /**< in a mill_model: elements from one row of component to the next */
} mill_model_error;

/** Number of model-error points of an arm with n_pix grid points. */
MILL_HD static inline int mill_error_points(const mill_model_error *error, int n_pix)
{
  return error->finer > 1 ? (n_pix - 1) * error->finer + 1 : n_pix;
}

/** What sky subtraction may leave in an arm, in observed wavelengths: the sum of the components,
 *  each times a standard normal number. */
typedef struct mill_sky {
  int n_component, n_pix; /**< 0: none */
  double *wave_aa;        /**< [n_pix] vacuum A, ascending, owned */
  float *component;       /**< [n_component][n_pix] in the spectra's flux unit, owned */
} mill_sky;

/** Largest plausible template sigma, as a fraction of the width of its arm. */
#define MILL_MAX_SIGMA_WIDTH 0.25

/** One arm (setup) of the spectrograph. */
typedef struct mill_arm {
  char name[MILL_MAX_NAME];  /**< short, lower case: b, r, z; columns end in it, in upper case */
  char setup[MILL_MAX_NAME]; /**< name in the emulator file: desi_b */
  int n_pix;
  double ln_wave0; /**< natural logarithm of the first vacuum wavelength in A */
  double ln_step;  /**< uniform step in ln wavelength */
  double *wave_aa; /**< [n_pix] vacuum A, owned */
  int sampling;    /**< a fit keeps every sampling-th point of the library's grid; 0, 1: all */
  /** Gaussian sigma (A) of the templates' line-spread function, which fits remove from resolution
   *  matrices; at most MILL_MAX_SIGMA_WIDTH of the arm's width.  Negative: the templates have the
   *  instrument's resolution, and fits ignore resolution matrices. */
  double template_sigma_aa;
  mill_emulator emulator;
  mill_model_error error;
  mill_sky sky; /**< set in a fit by mill_library_add_sky; not in the file or the hash */
  /* the emulator's origin, printed and written to files; may be empty; not hashed */
  char sigma_origin[160]; /**< where template_sigma_aa comes from */
  char source[128];       /**< name of the emulator's file, without its folder */
  char revision[64];      /**< emulator's revision, from its file */
} mill_arm;

typedef struct mill_library {
  int n_label;
  mill_label label[MILL_MAX_LABEL];
  int n_hull;
  mill_hull hull[MILL_MAX_HULL];
  int n_arm;
  mill_arm arm[MILL_MAX_ARM];
  /** Templates of the initial guess: each set of labels (inside all hulls) at each v sin i. */
  int n_guess;
  double *guess_label; /**< [n_guess][n_label], in the labels' units, owned */
  int n_guess_vsini;
  double guess_vsini_km_s[8];
  /** Provenance. */
  char name[128];
  char hash[65]; /**< lower-case hexadecimal digest of the contents */
  char path[1024];
  /** Quality measures as text (starmill/templates/measure.py), owned, not hashed; NULL: unknown. */
  char *report;
} mill_library;

/** Free the memory that a library owns and zero the library; NULL is allowed. */
void mill_library_clear(mill_library *lib);

/** Free the memory that an arm, a grid, radial functions or a model error owns, and zero the
 *  structure.  NULL is allowed except for the arm. */
void mill_arm_clear(mill_arm *arm);
void mill_spline_grid_clear(mill_spline_grid *grid);
void mill_rbf_clear(mill_rbf *rbf);
void mill_model_error_clear(mill_model_error *error);

/** Set a label's edges: rvspecfit's range if its name begins with teff, logg or feh, else 0. */
void mill_label_set_edges(mill_label *label);

/** Is the label an abundance [X/Fe] of one element?  Its column is the symbol and FE, e.g. MGFE. */
int mill_label_is_element(const mill_label *label);

/** Return the index of the label or arm with this name; -1: there is none. */
int mill_library_find_label(const mill_library *lib, const char *name);
int mill_library_find_arm(const mill_library *lib, const char *name);

/** Are there wavelengths of the arm between min_aa and max_aa? */
int mill_arm_overlaps(const mill_arm *arm, double min_aa, double max_aa);

MILL_EXTERN_C_END
