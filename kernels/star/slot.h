/** What a device holds: the model, wavelength sets, slots and work space.
 *
 *  Plain structures of pointers into one memory space.  A slot holds one star
 *  as segments (arm x exposure), the state of its fit and the request that the
 *  next round answers.
 */
#ifndef MILL_SLOT_H
#define MILL_SLOT_H

#include "kernels/base/layout.h"
#include "kernels/data/library.h"
#include "kernels/math/nelder_mead.h"
#include "kernels/math/rotation.h"
#include "kernels/data/result.h"
#include "kernels/data/settings.h"

MILL_EXTERN_C_BEGIN

enum {
  MILL_SPLINE_END = 28,     /**< grid points from an end that feel it (float64: 1e-16) */
  MILL_SPLINE_END_F32 = 14, /**< the same for float32 templates: 1e-8 */
  MILL_N_PROFILE = 41,      /**< velocities of one profile grid, those beyond n_profile infinite */
  MILL_N_PROFILE_FEW = 5,   /**< of the first grid (kernels/math/quartic.h) */
  MILL_MAX_PROFILE_ROUND = 8,
  MILL_COLUMN_PAD = 64,  /**< emulator outputs are padded to this many */
  MILL_PANEL_BYTES = 64, /**< of a panel of a layer's outputs: 16 floats, 8 doubles */
  MILL_GUESS_LANE = 16,  /**< templates of the initial guess that lie side by side */
  MILL_MAX_START = MILL_MAX_GUESS_START + 1
};

/** Widths between the velocities of a profile's first grid. */
#define MILL_PROFILE_FEW_STEP 1.5

/** Emulator weights as the matrix product wants them: in panels of MILL_PANEL_BYTES of
 *  outputs, [panel][n_in][outputs of a panel], so that what a tile of outputs needs lies
 *  in one piece and fits a first-level cache. */
typedef struct mill_layer {
  int n_in, n_out, n_out_pad;
  const void *weight;  /**< double; of the last layer float unless the run is float64 */
  const void *bias;    /**< [n_out_pad] */
  const float *narrow; /**< weights of a hidden layer for a CPU's tangents, or NULL */
} mill_layer;

/** Where the weight of input k and output i is; panel: outputs of a panel. */
MILL_HD static inline size_t mill_weight_at(int n_in, int panel, int k, int i)
{
  return ((size_t)(i / panel) * (size_t)n_in + (size_t)k) * (size_t)panel + (size_t)(i % panel);
}

typedef struct mill_model_arm {
  int n_pix, n_pix_pad;
  double ln_wave0, ln_step;
  double expm1_step;         /**< exp(ln_step) - 1 */
  double spline_scale_right; /**< exp(-2 ln_step): Z[i+1] in units of the left interval */
  /** Response of the spline coefficients to one second difference, c p^|k| on each side, as
   *  filters in turn (spline_filter.h): taps 1, 4 and 16 grid points apart, the last one
   *  for float64 only. */
  double spline_near[7], spline_far[7], spline_last[3];
  /** Powers of the decay per grid point, towards the right from the left end and so on. */
  double spline_end_left[MILL_SPLINE_END], spline_end_right[MILL_SPLINE_END];
  int log_flux;
  /** The last layer is held without its mean over pixels, which is evaluated
   *  apart in float64 (mill_workspace.mean), so that float32 keeps its digits for the
   *  lines and not for the level. */
  double mean_bias;
  const double *mean_weight; /**< [n_in of the last layer] */
  int kind;                  /**< enum mill_emulator_kind */
  mill_spline_grid grid;     /**< of MILL_EMULATOR_GRID: what comes before the only layer */
  mill_rbf rbf;              /**< the same, of MILL_EMULATOR_RBF */
  int n_layer;
  mill_layer layer[MILL_MAX_LAYER];
  /** In the place of the last layer for rough tangents (src/pipeline/rough_tangents.h): from its
   *  inputs to fewer numbers, and from these to pixels.  No weight: there are none. */
  mill_layer rough[2];
  /** What the emulator gives for the guess's templates, as in mill_workspace: a start's first
   *  Jacobian takes it from here. */
  const float *stored;       /**< grid [n_stored][1 + n_label][n_pix_pad] */
  const double *stored_mean; /**< mean [n_stored][1 + n_label] */
  mill_model_error error;    /**< fraction NULL: none, or not wanted */
} mill_model_arm;

/** Distance of rows over a segment's pixels, such that a GPU may load four floats at once. */
MILL_HD static inline int mill_row_pitch(int n_pix)
{
  return (n_pix + 3) / 4 * 4;
}

/** Groups of MILL_GUESS_LANE in which n_block blocks of bins lie side by side. */
MILL_HD static inline int mill_guess_lanes(int n_block)
{
  return (n_block + MILL_GUESS_LANE - 1) / MILL_GUESS_LANE;
}

/** Wavelengths that segments share, with all that depends on them alone. */
typedef struct mill_waveset {
  int arm, n_pix, n_cont;
  double *ln_wave; /**< [n_pix] */
  float *cont;     /**< [n_cont][mill_row_pitch(n_pix)] continuum functions */
  /** Continuum functions as polynomials of a pixel's place in its cell of `cell` pixels (layout in
   *  kernels/math/cells.h); cell 0: they are not as smooth as that. */
  int cell;
  double *cell_coef, *cell_power;
  unsigned char *masked; /**< [n_pix] excluded by wavelength */
  /* initial guess: bins uniform in ln wavelength, common to all arms */
  int n_bin;
  int *bin_first; /**< [n_bin + 1] first pixel of each bin */
  /** [groups][guess_n][n_block][2][MILL_GUESS_LANE] the templates' transforms (guess.h), those of a
   *  group side by side and the last group filled up with zeros.  Sets with about the same range of
   *  bins share them. */
  int n_block;
  const float *templ;
} mill_waveset;

typedef struct mill_model {
  int n_label, n_arm, n_hull;
  int n_deriv; /**< parameters of a template: velocity, v sin i, labels */
  int n_par;   /**< of a fit: these, and the velocity offsets */
  mill_label label[MILL_MAX_LABEL];
  mill_hull hull[MILL_MAX_HULL];
  mill_model_arm arm[MILL_MAX_ARM];
  mill_fit_settings set;
  int max_pix_pad; /**< largest n_pix_pad of the arms */
  int max_seg_pix; /**< largest segment so far, as a mill_row_pitch */
  int n_templ;     /**< guess templates: n_guess x n_guess_vsini, rotation fastest */
  int n_guess_vsini;
  int guess_half;          /**< velocity bins on each side of zero */
  int guess_n;             /**< length of the guess's transforms, a power of two */
  const float *guess_root; /**< [guess_n / 2][2] (fourier.h) */
  double guess_ln_step;
  const double *guess_label; /**< [n_templ / n_guess_vsini][n_label] */
  double guess_vsini[8];
  int n_stored;  /**< of guess_label, the first: mill_model_arm.stored */
  int has_rough; /**< an arm has rough tangents */
} mill_model;

/** One prepared spectrum. */
typedef struct mill_segment {
  int arm, n_pix, n_diag;
  int used; /**< 0: dropped, no contribution */
  const mill_waveset *ws;
  const double *deconv; /**< [n_diag][n_diag] solves for the template's own resolution, or NULL */
  double templ_pix;     /**< sigma in pixels that deconv takes out of the matrix; 0: none */
  /* raw, as read */
  float *raw_flux, *raw_ivar;
  int32_t *raw_mask; /**< zeros when the file has none */
  float *raw_res;    /**< [n_diag][n_pix], NULL without a matrix */
  /** [n_pix] sigma in A of the Gaussian that the templates lack of the line-spread
   *  function; 0: nothing, NaN: the pixel is not fitted.  NULL without one. */
  float *lsf_aa;
  /* prepared */
  float *d;            /**< [n_pix] flux / sigma, bad pixels interpolated */
  float *is;           /**< [n_pix] 1 / sigma */
  unsigned char *good; /**< [n_pix] */
  float *res;          /**< [n_diag][n_pix] row form: weight of pixel i - n_diag/2 + k for pixel i;
                            NULL: none */
  double *base;        /**< [n_pix] sum of the resolution row: what a constant becomes */
  float *model;        /**< [n_pix] best-fit flux, or NULL when not wanted */
  float *templ_flux;   /**< [n_pix] the template in it, without continuum; NULL: not wanted */
  double *cont_coef;   /**< [MILL_MAX_CONT] of the continuum functions; NULL: not wanted */
  float *scratch;      /**< [n_pix]; of the final answer: model / sigma, 0 where not good */
  /** [mill_guess_lanes(n_block)][guess_n][2][MILL_GUESS_LANE] weights and products of the guess's
   *  bins, blocks side by side, and their transforms. */
  float *guess;
  double sum_ln_var; /**< 2 sum ln sigma, with model error ln det of the covariance */
  double dd;         /**< sum (flux / sigma)^2, with model error D^T (1 - E^T E) D */
  /* model error (kernels/star/model_error_impl.h): d and is have the part that is independent from
   * pixel to pixel in them once it is fixed */
  int error_fixed;       /**< it has been fixed for this star */
  int n_error;           /**< rows of error in use */
  float *own_d, *own_is; /**< [n_pix] d and is of the data alone; NULL: no model error */
  float *error; /**< [components][mill_row_pitch(n_pix)] E: the inverse covariance is 1 - E^T E */
  double own_sum_ln_var, own_dd;
  double sn; /**< median of flux sqrt(ivar) over good pixels, -1e9: none */
  int n_good;
  int narrow; /**< 1: templates are broader than the matrix in a sizeable part of it */
} mill_segment;

enum mill_request {
  MILL_REQ_NONE = 0,
  MILL_REQ_VALUE,    /**< F at theta */
  MILL_REQ_JACOBIAN, /**< F, gradient and curvature at theta */
  MILL_REQ_PROFILE,  /**< F at MILL_N_PROFILE velocities, other parameters as in theta */
  MILL_REQ_FINAL     /**< F, true chi-squares, models and velocities by arm at theta */
};

/** The answer to a request. */
typedef struct mill_eval {
  double f;
  double grad[MILL_MAX_PAR];                /**< v sin i: of its inner parameter (rotation.h) */
  double hess[MILL_MAX_PAR * MILL_MAX_PAR]; /**< [n_par][n_par]: F ~ f + grad.d + d.hess.d */
  double profile[MILL_N_PROFILE];
  double profile_arm[MILL_MAX_ARM][MILL_N_PROFILE_FEW]; /**< of each arm alone, the first ones */
  double chisq[MILL_MAX_ARM], chisq_c[MILL_MAX_ARM];
  double max_resid2; /**< largest squared residual of a good pixel */
  double negative;   /**< squared significance of negative model pixels */
  /** Drop of an arm's chi-square with a factor of its own for each block of pixels, and blocks. */
  double block_gain[MILL_MAX_ARM], n_block[MILL_MAX_ARM];
  double vrad_arm[MILL_MAX_ARM], vrad_arm_err[MILL_MAX_ARM]; /**< of the arm alone; NaN: none */
} mill_eval;

enum mill_stage {
  MILL_STAGE_EMPTY = 0,
  MILL_STAGE_SIMPLEX_SHORT,
  MILL_STAGE_SIMPLEX,
  MILL_STAGE_POLISH,
  MILL_STAGE_PROFILE,
  MILL_STAGE_FINAL,
  MILL_STAGE_SAMPLE,
  MILL_STAGE_DONE
};

/** Why the solution of the first start may not be the best minimum, from bad to worse. */
enum mill_doubt {
  MILL_DOUBT_NONE = 0,
  MILL_DOUBT_EDGE,     /**< at or outside a hull */
  MILL_DOUBT_ROTATION, /**< broad lines, which other labels imitate */
  MILL_DOUBT_POOR,     /**< a high reduced chi-square */
  MILL_DOUBT_LOST      /**< a long way, or none that converged */
};

/** A point with its value and curvature; v sin i in km/s in theta, its inner parameter in
 *  grad and hess. */
typedef struct mill_point {
  double theta[MILL_MAX_PAR];
  double f;
  double grad[MILL_MAX_PAR];
  double hess[MILL_MAX_PAR * MILL_MAX_PAR];
} mill_point;

/** State of the Levenberg-Marquardt polish (kernels/star/polish.h). */
typedef struct mill_polish {
  mill_point at; /**< current accepted point; f includes hull and priors */
  double lambda;
  double pred;              /**< decrease that the pending step promises */
  double promised, gained;  /**< of the last step evaluated; gained: negative when F rose */
  double end[MILL_MAX_PAR]; /**< when converged: where the last step leads, not evaluated */
  int n_jac;
  int have; /**< `at` holds a point */
} mill_polish;

/** One hull facet that a step of the polish has crossed. */
typedef struct mill_active_facet {
  int hull, facet;
  int state;    /**< enum mill_facet_state */
  double value; /**< signed distance at the current point */
  double slope[MILL_MAX_PAR];
  double reach;              /**< distance where the step leads that no facet holds */
  double half[MILL_MAX_PAR]; /**< [n] L^-1 slope, L of the damped curvature of the step */
  double force;              /**< with which it holds the step, 0 or more */
} mill_active_facet;

/** Axes of the damped curvature at a point: L of L L^T over the parameters idx [n]. */
typedef struct mill_polish_axes {
  int n, idx[MILL_MAX_PAR];
  double factor[MILL_MAX_PAR * MILL_MAX_PAR]; /**< [n][n] lower triangle */
} mill_polish_axes;

enum { MILL_POLISH_MAX_FACET = 32, MILL_DENSITY_NODE = 512 };

enum mill_sample_phase { MILL_SAMPLE_POSITIONS = 0, MILL_SAMPLE_BURNS, MILL_SAMPLE_MOVES };

enum { MILL_SAMPLE_KEEP = 512 /**< sweeps of which the chains have room */ };

/** State of the ensemble that samples a star's posterior (kernels/star/sample.h). */
typedef struct mill_sample {
  int phase;    /**< enum mill_sample_phase */
  int i_walker; /**< whose proposal the request is */
  int n_try;    /**< of its first position */
  int n_sweep, n_kept, thin, next_check;
  int has_axes;      /**< the independent move has its distribution */
  double log_factor; /**< ln of the proposal's Hastings factor */
  int move;          /**< of the proposal, of enum mill_sample_moves */
  int asks_gradient; /**< the request is not a proposal but the gradient where the walker is */
  double mean[MILL_MAX_PAR];
  /** [n_free][n_free] lower triangle: of the first positions that of the fit's curvature, then that
   *  of the covariance of the independent move. */
  double axes[MILL_MAX_PAR * MILL_MAX_PAR];
  int64_t n_eval, n_jac, n_proposal, n_accepted;
  double least;                        /**< lowest F so far */
  double ladder[MILL_MAX_TEMPERATURE]; /**< power of the likelihood, 1 first and 0 last */
  int n_origin;                        /**< minima about which walkers begin */
  double share[MILL_MAX_START + 1];    /**< of the walkers that begin about them, cumulative */
} mill_sample;

/** Work space of the state machine (kernels/star/fit.h), which would be too much for the stack
 *  of a GPU's threads; nothing in it outlives a digest. */
typedef struct mill_fit_space {
  double matrix[2][MILL_MAX_PAR * MILL_MAX_PAR];
  double simplex[(MILL_MAX_PAR + 1) * MILL_MAX_PAR];
  mill_active_facet facet[MILL_POLISH_MAX_FACET];
  mill_polish_axes axes;
  double node[MILL_DENSITY_NODE], density[MILL_N_DENSITY]; /**< kernels/star/marginal.h */
} mill_fit_space;

/** Derivatives by rough tangents: none, of the request, of the point that the polish steps from. */
enum mill_rough { MILL_ROUGH_NONE = 0, MILL_ROUGH_ASKED, MILL_ROUGH_LEFT };

typedef struct mill_slot {
  int stage;     /**< enum mill_stage */
  int request;   /**< enum mill_request of the next round */
  int fix_error; /**< the Jacobian of the request fixes the model error at its place */
  int rough;     /**< enum mill_rough */
  int n_segment;
  mill_segment *segment;
  double hull_weight;         /**< hull penalty = hull_weight * distance^2 */
  double theta[MILL_MAX_PAR]; /**< of the request */
  int stored; /**< 1 + the number of guess_label at which the Jacobian of the request is, and whose
                   emulator rows the model has; 0: none */
  double profile_vel[MILL_N_PROFILE];
  mill_eval eval;

  /* the fit */
  double start[MILL_MAX_START][MILL_MAX_PAR]; /**< the guess's best templates, the best first, and
                                                   after them a faster rotator than the solution */
  double start_chisq[MILL_MAX_START];         /**< of the guess; only differences have a meaning */
  double start_f[MILL_MAX_START];             /**< F where each start ended */
  int start_label[MILL_MAX_START];            /**< of guess_label, which its labels may be */
  int n_start, i_start;
  int doubt;                       /**< enum mill_doubt, of the first start's solution */
  int low_sn;                      /**< S/N below second_start_sn */
  int has_given;                   /**< start from `given` instead of the guesses */
  int try_all;                     /**< and from all guesses after it */
  double given[MILL_MAX_PAR];      /**< [n_deriv] finite, not yet within the limits */
  double arm_signal[MILL_MAX_ARM]; /**< squared significance of an arm's lines */
  int lead;                        /**< 1 + the arm that the request is of alone; 0: all arms */
  int n_lead;                      /**< Jacobians of such arms */
  int no_offset[MILL_MAX_ARM];     /**< the star's first arm, and those it has no data of */
  int free_par[MILL_MAX_PAR], n_free;
  int method;       /**< enum mill_optimizer now at work; falls to the next when it fails */
  int n_method_run; /**< times that nelder-mead had to repeat */
  int settled; /**< the model error is fixed at a solution: of the first start (1), the best (2) */
  int i_best;  /**< start of the best point */
  int had_simplex; /**< this start has had its simplex */
  /** The simplex's coordinates: x = L^T (parameter - centre), both inner, L in
   *  polish.at.hess [nm.n][nm.n], in which F rises by about |x|^2. */
  mill_nm nm;
  double nm_centre[MILL_MAX_PAR];
  int nm_par[MILL_MAX_PAR]; /**< [nm.n] parameters that it moves */
  double nm_off;            /**< penalty of the trial for leaving the limits */
  mill_polish polish;
  mill_point best;               /**< over starts */
  double best_end[MILL_MAX_PAR]; /**< where its last step leads: the solution */
  int have_best, best_converged;
  double profile_width;
  int n_profile_round;
  int n_profile; /**< velocities of the grid */
  /** F of each arm alone on the first grid, where that was enough and best_end is its centre. */
  double profile_arm[MILL_MAX_ARM][MILL_N_PROFILE_FEW];
  int has_profile_arm;
  int nonfinite;
  mill_fit_result result;

  /* the posterior; NULL where it is not wanted */
  uint64_t identity; /**< of the star's random numbers */
  mill_sample sample;
  int n_minimum; /**< where starts have ended, beside the solution once the sample has begun */
  double minimum[MILL_MAX_START][MILL_MAX_PAR], minimum_f[MILL_MAX_START];
  double *walker;            /**< [n_temperature][n_walker][n_free] where the walkers are */
  double *walker_f;          /**< [n_temperature][n_walker] F there, */
  double *walker_penalty;    /**< and the part of it that is priors and hull penalty */
  double *walker_grad;       /**< [n_walker][n_free] gradient of F, first NaN: not known */
  double *stone;             /**< [MILL_SAMPLE_KEEP][n_temperature - 1] kernels/star/temper.h */
  float *chain;              /**< [MILL_SAMPLE_KEEP][n_walker][n_free] less the solution */
  float *sorted;             /**< [MILL_SAMPLE_KEEP][n_walker] work space */
  mill_posterior *posterior; /**< with its samples behind it */

  /* rotated templates of the last profile or final answer, which those after it at the same
   * v sin i and labels take (mill_template_kept) */
  int has_kept;
  double kept_theta[MILL_MAX_PAR]; /**< parameters that they were made for */
  double kept_mean[MILL_MAX_ARM];  /**< their mill_workspace.mean[0] */
  void *kept;                      /**< [n_arm][max_pix_pad] float or double; NULL: no room */

  /* guess work space */
  double *guess_chisq; /**< [n_templ][2 * guess_half + 1] */
  double *guess_least; /**< [n_templ] of them; infinite: no choice any more */
  int *guess_velocity; /**< [n_templ] where that is */

  mill_fit_space space; /**< the last member: the host need not copy it */
} mill_slot;

/** Parameter that is the velocity offset of an arm; -1: it has none. */
MILL_HD static inline int mill_par_offset(const mill_model *m, int i_arm)
{
  return i_arm > 0 && m->n_par > m->n_deriv ? m->n_deriv + i_arm - 1 : -1;
}

/** Does the fit of this star leave a parameter where it is? */
MILL_HD static inline int mill_par_held(const mill_model *m, const mill_slot *slot, int j)
{
  return j < m->n_deriv ? m->set.fixed[j] : slot->no_offset[j - m->n_deriv + 1];
}

/** Is the template of the slot's request one to keep? */
MILL_HD static inline int mill_template_keeps(const mill_slot *slot)
{
  return slot->kept && (slot->request == MILL_REQ_PROFILE || slot->request == MILL_REQ_FINAL);
}

/** Has the slot the template of its request already?  Only one that was made for the very same
 *  numbers will do. */
MILL_HD static inline int mill_template_kept(const mill_model *m, const mill_slot *slot)
{
  if (!slot->has_kept || !mill_template_keeps(slot))
    return 0;
  for (int j = MILL_PAR_VSINI; j < m->n_deriv; j++)
    if (slot->kept_theta[j] != slot->theta[j])
      return 0;
  return 1;
}

/** Does the request take rough tangents in an arm? */
MILL_HD static inline int mill_slot_rough(const mill_slot *slot, const mill_model_arm *arm)
{
  return slot->rough == MILL_ROUGH_ASKED && slot->request == MILL_REQ_JACOBIAN &&
         arm->rough[0].weight != NULL;
}

/** Are the emulator's rows for the slot's request there, so that it need not run? */
MILL_HD static inline int mill_template_there(const mill_model *m, const mill_slot *slot)
{
  return slot->stored > 0 || mill_template_kept(m, slot);
}

/** Say whether the request for a Jacobian, of start i, is at the template that the guess chose. */
MILL_HD static inline void mill_template_find(const mill_model *m, mill_slot *slot, int i)
{
  const int k = slot->start_label[i];
  const double *label = m->guess_label + (size_t)k * (size_t)m->n_label;
  int same = k < m->n_stored && slot->request == MILL_REQ_JACOBIAN;
  for (int l = 0; l < m->n_label && same; l++)
    same = slot->theta[MILL_PAR_LABEL0 + l] == label[l];
  slot->stored = same ? k + 1 : 0;
}

/** Has the slot's request something to evaluate in this arm? */
MILL_HD static inline int mill_slot_wants(const mill_slot *slot, int arm)
{
  if (slot->request == MILL_REQ_NONE || (slot->lead > 0 && slot->lead != 1 + arm))
    return 0;
  for (int i = 0; i < slot->n_segment; i++)
    if (slot->segment[i].used && slot->segment[i].arm == arm)
      return 1;
  return 0;
}

/** What an arm's offset does for each km/s of VRAD where the likelihood of its arm and its prior
 *  are at their best: by the curvature at the best point. */
MILL_HD static inline double mill_offset_slope(const mill_model *m, const mill_slot *slot,
                                               int i_arm)
{
  const int j = mill_par_offset(m, i_arm);
  const double h = j < 0 ? 0.0 : slot->best.hess[j * m->n_par + j];
  return h > 0.0 && !slot->no_offset[i_arm] ? -slot->best.hess[MILL_PAR_VRAD * m->n_par + j] / h
                                            : 0.0;
}

/** Offset of an arm's velocity from VRAD; it goes along where VRAD is not that of the request. */
MILL_HD static inline double mill_arm_offset(const mill_model *m, const mill_slot *slot, int i_arm,
                                             double vrad_km_s)
{
  const int j = mill_par_offset(m, i_arm);
  const double along = vrad_km_s - slot->theta[MILL_PAR_VRAD];
  const double offset = j < 0 ? 0.0 : slot->theta[j];
  return along == 0.0 ? offset : offset + mill_offset_slope(m, slot, i_arm) * along;
}

/** Velocity of an arm where the star's is VRAD; within the limits, as templates need not reach
 *  beyond. */
MILL_HD static inline double mill_arm_vrad(const mill_model *m, const mill_slot *slot, int i_arm,
                                           double vrad_km_s)
{
  if (mill_par_offset(m, i_arm) < 0)
    return vrad_km_s;
  const double v = vrad_km_s + mill_arm_offset(m, slot, i_arm, vrad_km_s);
  return v < m->set.min_vel_km_s ? m->set.min_vel_km_s
                                 : (v > m->set.max_vel_km_s ? m->set.max_vel_km_s : v);
}

/** Regions of a star's memory.  What the host fills lies together and so do the models: each is
 *  copied as one piece. */
enum mill_star_region { MILL_STAR_RAW, MILL_STAR_MODELS, MILL_STAR_DEVICE, MILL_N_STAR_REGION };

/** Numbers of elements of a star's arrays. */
enum mill_star_count {
  MILL_COUNT_PIX,
  MILL_COUNT_MATRIX,    /**< n_diag * n_pix where the input has a resolution matrix, else 0 */
  MILL_COUNT_SIGMA,     /**< n_pix where a line-spread function is used, else 0 */
  MILL_COUNT_RES,       /**< n_diag * n_pix */
  MILL_COUNT_MODEL,     /**< n_pix where models are wanted, else 0 */
  MILL_COUNT_PARTS,     /**< n_pix where their parts are, else 0 */
  MILL_COUNT_COEF,      /**< MILL_MAX_CONT where their parts are, else 0 */
  MILL_COUNT_OWN,       /**< n_pix where the arm has a model error, else 0 */
  MILL_COUNT_ERROR,     /**< components * mill_row_pitch(n_pix) of it */
  MILL_COUNT_BLOCKS,    /**< mill_guess_lanes(n_block) * guess_n * 2 * MILL_GUESS_LANE */
  MILL_COUNT_GUESS,     /**< n_templ * (2 * guess_half + 1) */
  MILL_COUNT_TEMPL,     /**< n_templ */
  MILL_COUNT_KEPT,      /**< bytes of the kept templates: n_arm * max_pix_pad numbers */
  MILL_COUNT_WALKER,    /**< those of all temperatures; this and the next: 0 without posteriors */
  MILL_COUNT_POSITION,  /**< the same times n_par */
  MILL_COUNT_GRADIENT,  /**< n_walker * n_par with Langevin moves, else 0 */
  MILL_COUNT_STONE,     /**< MILL_SAMPLE_KEEP * (n_temperature - 1) */
  MILL_COUNT_CHAIN,     /**< MILL_SAMPLE_KEEP * n_walker * n_par */
  MILL_COUNT_SORTED,    /**< MILL_SAMPLE_KEEP * n_walker */
  MILL_COUNT_POSTERIOR, /**< bytes of a posterior and its samples */
  MILL_N_STAR_COUNT
};

/** The arrays of a segment. */
static inline int mill_segment_arrays(const mill_array **table)
{
  static const mill_array array[] = {
      {offsetof(mill_segment, raw_flux), sizeof(float), MILL_STAR_RAW, MILL_COUNT_PIX},
      {offsetof(mill_segment, raw_ivar), sizeof(float), MILL_STAR_RAW, MILL_COUNT_PIX},
      {offsetof(mill_segment, raw_mask), sizeof(int32_t), MILL_STAR_RAW, MILL_COUNT_PIX},
      {offsetof(mill_segment, raw_res), sizeof(float), MILL_STAR_RAW, MILL_COUNT_MATRIX},
      {offsetof(mill_segment, lsf_aa), sizeof(float), MILL_STAR_RAW, MILL_COUNT_SIGMA},
      {offsetof(mill_segment, res), sizeof(float), MILL_STAR_DEVICE, MILL_COUNT_RES},
      {offsetof(mill_segment, d), sizeof(float), MILL_STAR_DEVICE, MILL_COUNT_PIX},
      {offsetof(mill_segment, is), sizeof(float), MILL_STAR_DEVICE, MILL_COUNT_PIX},
      {offsetof(mill_segment, good), sizeof(unsigned char), MILL_STAR_DEVICE, MILL_COUNT_PIX},
      {offsetof(mill_segment, base), sizeof(double), MILL_STAR_DEVICE, MILL_COUNT_PIX},
      {offsetof(mill_segment, scratch), sizeof(float), MILL_STAR_DEVICE, MILL_COUNT_PIX},
      {offsetof(mill_segment, guess), sizeof(float), MILL_STAR_DEVICE, MILL_COUNT_BLOCKS},
      {offsetof(mill_segment, own_d), sizeof(float), MILL_STAR_DEVICE, MILL_COUNT_OWN},
      {offsetof(mill_segment, own_is), sizeof(float), MILL_STAR_DEVICE, MILL_COUNT_OWN},
      {offsetof(mill_segment, error), sizeof(float), MILL_STAR_DEVICE, MILL_COUNT_ERROR},
      {offsetof(mill_segment, model), sizeof(float), MILL_STAR_MODELS, MILL_COUNT_MODEL},
      {offsetof(mill_segment, templ_flux), sizeof(float), MILL_STAR_MODELS, MILL_COUNT_PARTS},
      {offsetof(mill_segment, cont_coef), sizeof(double), MILL_STAR_MODELS, MILL_COUNT_COEF},
  };
  *table = array;
  return (int)(sizeof array / sizeof array[0]);
}

/** The arrays of a slot itself. */
static inline int mill_slot_arrays(const mill_array **table)
{
  static const mill_array array[] = {
      {offsetof(mill_slot, guess_chisq), sizeof(double), MILL_STAR_DEVICE, MILL_COUNT_GUESS},
      {offsetof(mill_slot, guess_least), sizeof(double), MILL_STAR_DEVICE, MILL_COUNT_TEMPL},
      {offsetof(mill_slot, guess_velocity), sizeof(int), MILL_STAR_DEVICE, MILL_COUNT_TEMPL},
      {offsetof(mill_slot, kept), 1, MILL_STAR_DEVICE, MILL_COUNT_KEPT},
      {offsetof(mill_slot, walker), sizeof(double), MILL_STAR_DEVICE, MILL_COUNT_POSITION},
      {offsetof(mill_slot, walker_f), sizeof(double), MILL_STAR_DEVICE, MILL_COUNT_WALKER},
      {offsetof(mill_slot, walker_penalty), sizeof(double), MILL_STAR_DEVICE, MILL_COUNT_WALKER},
      {offsetof(mill_slot, walker_grad), sizeof(double), MILL_STAR_DEVICE, MILL_COUNT_GRADIENT},
      {offsetof(mill_slot, stone), sizeof(double), MILL_STAR_DEVICE, MILL_COUNT_STONE},
      {offsetof(mill_slot, chain), sizeof(float), MILL_STAR_DEVICE, MILL_COUNT_CHAIN},
      {offsetof(mill_slot, sorted), sizeof(float), MILL_STAR_DEVICE, MILL_COUNT_SORTED},
      {offsetof(mill_slot, posterior), 1, MILL_STAR_DEVICE, MILL_COUNT_POSTERIOR},
  };
  *table = array;
  return (int)(sizeof array / sizeof array[0]);
}

/** Where products of the rows E of model error stand in mill_workspace.error: with the rows S of
 *  the normal matrix, U [n_error][n_cont]; with the residual [n_error]; N^-1 U. */
enum {
  MILL_ERROR_RESIDUAL = MILL_MAX_ERROR * MILL_MAX_CONT,
  MILL_ERROR_SOLVED = MILL_ERROR_RESIDUAL + MILL_MAX_ERROR,
  MILL_ERROR_SPACE = MILL_ERROR_SOLVED + MILL_MAX_ERROR * MILL_MAX_CONT
};

/** Work space of one block: rows of templates on the grid and at the pixels.
 *
 *  grid [row][max_pix_pad] holds the emulator's output and then the rotated
 *  templates, bend their spline coefficients; all of them float or double.
 */
typedef struct mill_workspace {
  void *grid, *rotated, *bend; /**< [n_deriv + 1][max_pix_pad] */
  void *templ; /**< rotated template of a value: the first row of rotated, or in mill_slot.kept */
  void *pixel, *smooth; /**< [n_deriv + 1][max_seg_pix] */
  int *index;           /**< [max_seg_pix] left grid point */
  float *frac;          /**< [max_seg_pix] position in the interval, 0..1 in wavelength */
  /** Mean over the grid of the emulator's output, and of its tangents.  log flux:
   *  T = exp(mean[0]) (1 + t); plain flux: T = mean[0] + t. */
  double mean[1 + MILL_MAX_LABEL];
  double *kernel, *kernel_slope; /**< [MILL_MAX_ROTATION + 1] */
  double *normal;                /**< [MILL_MAX_CONT^2] lower Cholesky factor */
  double *solve;                 /**< [MILL_MAX_CONT * (MILL_MAX_PAR + 3)] */
  double *sums;                  /**< [MILL_BLOCK_MAX_SUM] */
  double *error;                 /**< [MILL_ERROR_SPACE] products of the rows of model error */
} mill_workspace;

/** Regions of work space: the emulator's output, which lies apart, and the rest. */
enum mill_workspace_region { MILL_WORK_GRID, MILL_WORK_REST, MILL_N_WORK_REGION };

/** Numbers of elements of a block's arrays. */
enum mill_workspace_count {
  MILL_COUNT_GRID_BYTES,  /**< of rows of templates on the grid */
  MILL_COUNT_PIXEL_BYTES, /**< of rows of templates at the pixels */
  MILL_COUNT_SEGMENT,     /**< pixels of the largest segment */
  MILL_COUNT_KERNEL,
  MILL_COUNT_NORMAL, /**< of this and the next two: 0 where a backend keeps them elsewhere */
  MILL_COUNT_SOLVE,
  MILL_COUNT_SUMS,
  MILL_COUNT_ERROR_SPACE,
  MILL_N_WORK_COUNT
};

/** The arrays of a block's work space. */
static inline int mill_workspace_arrays(const mill_array **table)
{
  static const mill_array array[] = {
      {offsetof(mill_workspace, grid), 1, MILL_WORK_GRID, MILL_COUNT_GRID_BYTES},
      {offsetof(mill_workspace, rotated), 1, MILL_WORK_REST, MILL_COUNT_GRID_BYTES},
      {offsetof(mill_workspace, bend), 1, MILL_WORK_REST, MILL_COUNT_GRID_BYTES},
      {offsetof(mill_workspace, pixel), 1, MILL_WORK_REST, MILL_COUNT_PIXEL_BYTES},
      {offsetof(mill_workspace, smooth), 1, MILL_WORK_REST, MILL_COUNT_PIXEL_BYTES},
      {offsetof(mill_workspace, index), sizeof(int), MILL_WORK_REST, MILL_COUNT_SEGMENT},
      {offsetof(mill_workspace, frac), sizeof(float), MILL_WORK_REST, MILL_COUNT_SEGMENT},
      {offsetof(mill_workspace, kernel), sizeof(double), MILL_WORK_REST, MILL_COUNT_KERNEL},
      {offsetof(mill_workspace, kernel_slope), sizeof(double), MILL_WORK_REST, MILL_COUNT_KERNEL},
      {offsetof(mill_workspace, normal), sizeof(double), MILL_WORK_REST, MILL_COUNT_NORMAL},
      {offsetof(mill_workspace, solve), sizeof(double), MILL_WORK_REST, MILL_COUNT_SOLVE},
      {offsetof(mill_workspace, sums), sizeof(double), MILL_WORK_REST, MILL_COUNT_SUMS},
      {offsetof(mill_workspace, error), sizeof(double), MILL_WORK_REST, MILL_COUNT_ERROR_SPACE},
  };
  *table = array;
  return (int)(sizeof array / sizeof array[0]);
}

/** Elements of a block's arrays for a model; count [MILL_N_WORK_COUNT] out, but for those of
 *  normal, solve and sums, which become 0. */
static inline void mill_workspace_counts(int n_deriv, int max_pix_pad, int max_seg_pix,
                                         int precision, int guess_n, size_t *count)
{
  /* the guess keeps a double a pixel in the rows at the pixels, the Jacobian two; and the
   * transforms of a group of templates on the grid */
  const size_t guess = 2 * MILL_GUESS_LANE * sizeof(float) * (size_t)guess_n;
  const size_t real = precision == MILL_FLOAT64 ? sizeof(double) : sizeof(float);
  const size_t row = (size_t)(n_deriv + 1) * real;
  memset(count, 0, MILL_N_WORK_COUNT * sizeof *count);
  count[MILL_COUNT_GRID_BYTES] =
      row * (size_t)max_pix_pad > guess ? row * (size_t)max_pix_pad : guess;
  count[MILL_COUNT_PIXEL_BYTES] = row * (size_t)max_seg_pix;
  count[MILL_COUNT_SEGMENT] = (size_t)max_seg_pix;
  count[MILL_COUNT_KERNEL] = MILL_MAX_ROTATION + 1;
  count[MILL_COUNT_ERROR_SPACE] = MILL_ERROR_SPACE;
}

MILL_EXTERN_C_END

#endif
