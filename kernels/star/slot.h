/* SPDX-License-Identifier: BSD-3-Clause */
/** A slot holds one star: its spectra as segments (one for each arm and exposure), the state of its
 *  fit, and the question that the next round answers. */
#pragma once

#include "kernels/star/stages.h"
#include "kernels/star/workspace.h"

/** Solvers that take the templates' Gaussian out of a resolution matrix, one for each sigma. */
typedef struct mill_deconv {
  const double *solve; /**< [solvers][n_diag][n_diag]; NULL: templates have no Gaussian */
  const float *at; /**< [n_pix] fractional index of each pixel's solver; NULL: all use the first */
  double sigma_pix, step_pix; /**< sigma of the first solver; step of sigma to the next (pixels) */
} mill_deconv;

/** One prepared spectrum. */
typedef struct mill_segment {
  int arm, n_pix, n_diag;
  int epoch; /**< index in the slot's epochs */
  int used;  /**< 1: fitted; 0: dropped; 2: left out of the peak search under way */
  const mill_waveset *ws;
  mill_deconv deconv;
  double blur_ln;     /**< mill_slot.blur as sigma in ln wavelength; lsf_aa excludes it */
  double width_error; /**< relative standard deviation of the line-spread function's width */
  /* raw, as read */
  float *raw_flux, *raw_ivar;
  int32_t *raw_mask; /**< zeros when the file has none */
  float *raw_res;    /**< [n_diag][n_pix], NULL without a matrix */
  /** [n_pix] Gaussian sigma (A) from template to instrument resolution.  0: no blur is needed; NaN:
   *  the pixel is not fitted.  NULL: the line-spread function is not given as a sigma. */
  float *lsf_aa;
  /* prepared */
  float *d;            /**< [n_pix] flux / sigma, bad pixels interpolated */
  float *is;           /**< [n_pix] 1 / sigma */
  unsigned char *good; /**< [n_pix] */
  float *res; /**< [n_diag][mill_row_pitch(n_pix)] element [k][i]: weight of pixel i - n_diag/2 + k
                   in pixel i; NULL: no resolution matrix */
  double *base;      /**< [n_pix] sum of each row of the resolution matrix */
  float *model;      /**< [n_pix] best-fit flux, or NULL when not wanted */
  float *templ_flux; /**< [n_pix] template of the best fit, without continuum; NULL: not wanted */
  double *cont_coef; /**< [MILL_MAX_CONT] continuum coefficients; NULL: not wanted */
  float *scratch; /**< [n_pix] work space; after MILL_REQ_MODELS: model / sigma, 0 for bad pixels */
  /** [mill_guess_lanes(n_block)][guess_n][2][MILL_GUESS_LANE] Fourier transforms of w and -2 w n
   *  summed in bins (guess.h defines w, n).  First index: group of blocks; last: block in group. */
  float *guess;
  double sum_ln_var; /**< 2 sum ln sigma; with model error ln det of the covariance */
  double dd;         /**< D^T (1 - E^T E) D, D = flux / sigma, E = error or, without it, 0 */
  /* model error (kernels/star/blocks/model_error.h).  Once it is fixed (computed at one template),
   * sigma in `d` and `is` includes the part of the error that is uncorrelated between pixels. */
  int error_fixed;       /**< 1: the model error is fixed */
  double n_share;        /**< factor of the model error's variance (mill_block_n_share) */
  int n_error;           /**< rows of error in use */
  float *own_d, *own_is; /**< [n_pix] d and is of the data alone; NULL: no model error */
  /** [1 + n_deriv][mill_row_pitch(n_pix)] other star's template, derivatives; unit exp(pair_ln). */
  float *pair;
  int paired;           /**< 1 + the star (0, 1) whose tangents are asked; 0: one star is fitted */
  double pair_ln;       /**< ln of the unit of `pair` */
  double pair_ln_ratio; /**< ln(flux of the other star's template / flux of this star's) */
  /** [mill_n_error + n_sky][mill_row_pitch(n_pix)] rows of E: the inverse covariance is 1 - E^T E.
   *  mill_segment_of_data uses the last n_sky rows: E with noise and sky alone. */
  float *error;
  double own_sum_ln_var, own_dd;
  double sn; /**< median of flux sqrt(ivar) over usable pixels; -1e9: there is none */
  int n_good;
  int info; /**< FIT_INFO bits about the resolution matrix: MILL_INFO_LSF_... */
} mill_segment;

typedef struct mill_slot {
  /* the question (kernels/star/logic/ask.h) */
  enum mill_request request; /**< of the next round; MILL_REQ_NONE: the star's row is finished */
  int arms;                  /**< bit a: segments of arm a are asked */
  int n_vel;                 /**< number of velocities at which a segment is asked */
  int data_only;             /**< 1: values without model error except the sky */
  int fix_error;   /**< 1: tangents first fix the model error at theta; 2: of epochs alone */
  int keep_rows;   /**< 1: store the tangents' rows (mill_block_keep_rows); no answer */
  int weigh_lines; /**< 1: answer tangents by mill_block_weigh_lines */
  int stored;      /**< 1 + index of guess template; 0: none; < 0: another stores it */
  double theta[MILL_MAX_PAR]; /**< the star's parameters; templates have its v sin i and labels */
  double *vel;                /**< [n_segment][MILL_N_PROFILE] velocities, km/s; NaN: not asked */
  double *answer;             /**< [n_segment][mill_answer_pitch] by enum mill_answer_place */

  int is_held; /**< 1: a caller of libstarmill asks questions; no fit runs */
  int n_segment;
  mill_segment *segment;
  /** Sigma, in grid points, of the blur of an arm's templates that are too sharp; 0: none. */
  double blur[MILL_MAX_ARM];
  double hull_weight;          /**< hull penalty = hull_weight * distance^2 */
  int no_offset[MILL_MAX_ARM]; /**< 1: the arm has no velocity offset */
  /** This star's own Gaussian priors; sigma 0: the prior of the settings holds. */
  double prior_mean[MILL_MAX_PAR], prior_sigma[MILL_MAX_PAR];
  int free_par[MILL_MAX_PAR], n_free;
  int method;        /**< enum mill_optimizer at work; after a failure the next one */
  int n_method_run;  /**< repetitions of nelder-mead */
  int error_is_here; /**< 1: the last Jacobian has fixed the model error at its point */
  int error_start;   /**< the start that fixed the model error last */
  int nonfinite;     /**< 1: F was not finite */
  double error_theta[MILL_MAX_PAR]; /**< where the model error was fixed last */
  mill_profile profile;
  mill_curve arm[MILL_MAX_ARM]; /**< F of each arm alone */
  int n_epoch;
  mill_epoch *epoch;         /**< [n_epoch], NULL: not wanted */
  int epochs_shifted;        /**< 1: each epoch is fitted at its own velocity */
  int of_epochs;             /**< searches find velocities of epochs (1) or of arms (0) */
  int place[MILL_MAX_DEPTH]; /**< where each resumable function waits (kernels/star/resumable.h) */
  mill_eval eval;            /**< sums of the answer over the star's segments */

  mill_guess_space guess;
  mill_starts starts;
  mill_lead lead;
  mill_simplex simplex;
  mill_polish polish;
  mill_best best;
  mill_kept kept;
  mill_pair pair;
  mill_fit_result result;
  mill_sample sample;

  mill_fit_space space; /**< the last member: the host need not copy it */
} mill_slot;

/** Bytes of a slot that are copied; its work space is not. */
#define MILL_SLOT_COPY_BYTES offsetof(mill_slot, space)

/** Return the number of rows of model error: the arm's, the line-spread function's, the sky's. */
MILL_HD static inline int mill_n_error(const mill_model_arm *arm, double width_error)
{
  return arm->error.n_component + (width_error > 0.0 ? MILL_WIDTH_ROWS : 0) + arm->n_sky;
}

/** Return the index of the parameter that is an arm's velocity offset, or -1 if it has none. */
MILL_HD static inline int mill_par_offset(const mill_model *m, int i_arm)
{
  return i_arm > 0 && m->n_par > m->n_deriv ? m->n_deriv + i_arm - 1 : -1;
}

/** Balmer lines in which emission is looked for. */
enum { MILL_N_BALMER = 2 };

/** Indices of the numbers in a segment's answer. */
enum mill_answer_place {
  MILL_ANSWER_F = 0, /**< F at each velocity */
  /** Tangents: gradient [n], then the curvature's lower triangle, element (j, l) at n + j (j + 1) /
   *  2 + l.  The n parameters are velocity, u of v sin i (rotation.h) and labels; of two stars also
   *  the companion's, then ln(second star's flux / first star's).  After the curvature
   *  two stars have two more numbers: each star's template summed over good pixels. */
  MILL_ANSWER_TANGENTS = MILL_N_PROFILE,
  /* models */
  MILL_ANSWER_CHISQ = MILL_N_PROFILE,
  MILL_ANSWER_CHISQ_C,      /**< chi-square of the continuum alone */
  MILL_ANSWER_CHISQ_DATA,   /**< chi-square with errors of noise and sky, no other model error */
  MILL_ANSWER_CHISQ_C_DATA, /**< the same of the continuum alone */
  MILL_ANSWER_NOISE,        /**< chi-square of the noise, with the same errors (mill_block_noise) */
  MILL_ANSWER_GAIN,     /**< drop of chi-square if each block of pixels had a factor of its own */
  MILL_ANSWER_BLOCKS,   /**< number of these blocks */
  MILL_ANSWER_NEGATIVE, /**< squared significance of negative model pixels */
  MILL_ANSWER_LARGEST,  /**< largest squared residual of a good pixel */
  MILL_ANSWER_EMISSION, /**< two numbers per Balmer line: mill_block_emission */
  MILL_ANSWER_END = MILL_ANSWER_EMISSION + 2 * MILL_N_BALMER
};

/** Sums of mill_block_weigh_lines: label l's are at MILL_ANSWER_TANGENTS + MILL_N_LINE_SUM * l. */
enum mill_line_sum {
  MILL_LINE_CHISQ,  /**< squared residuals times weights */
  MILL_LINE_WEIGHT, /**< weights */
  MILL_LINE_SQUARE, /**< squared weights */
  MILL_N_LINE_SUM
};

/** Number of parameters of a segment's tangents, for one star or for two. */
MILL_HD static inline int mill_n_row(const mill_model *m, int of_pair)
{
  return of_pair ? 2 * m->n_deriv + 1 : m->n_deriv;
}

/** Number of elements of a segment's answer. */
MILL_HD static inline int mill_answer_pitch(const mill_model *m)
{
  const int n = mill_n_row(m, m->set.binaries);
  const int end = MILL_ANSWER_TANGENTS + n + n * (n + 1) / 2 + 2;
  return end > MILL_ANSWER_END ? end : (int)MILL_ANSWER_END;
}

/** The answer of a segment [mill_answer_pitch]. */
MILL_HD static inline double *mill_answer_of(const mill_model *m, const mill_slot *slot,
                                             int i_segment)
{
  return slot->answer + (ptrdiff_t)i_segment * mill_answer_pitch(m);
}

/** The velocities at which a segment is asked [n_vel], km/s. */
MILL_HD static inline double *mill_velocities_of(const mill_slot *slot, int i_segment)
{
  return slot->vel + (ptrdiff_t)i_segment * MILL_N_PROFILE;
}

/** Is a segment part of the question?  For tangents and models, not if its velocity is NaN. */
MILL_HD static inline int mill_is_asked(const mill_slot *slot, int i_segment)
{
  const double v = mill_velocities_of(slot, i_segment)[0];
  return slot->segment[i_segment].used && (slot->request == MILL_REQ_VALUES || v == v);
}

/** Return the weight of the continuum's ln det in F (docs/science/numerics.md, "Likelihood"): 0 for
 *  the profile likelihood, also used by `likelihood: auto` in arms with a model error.  Weights of
 *  exposures that share a model error add up to 1: together they act like one exposure. */
MILL_HD static inline double mill_det_weight(const mill_model *m, const mill_segment *s)
{
  const int kind = m->set.likelihood, has_error = m->arm[s->arm].error.fraction != NULL;
  if (kind == MILL_LIKE_PROFILE || (kind == MILL_LIKE_AUTO && has_error))
    return 0.0;
  return has_error && s->error_fixed ? 1.0 / s->n_share : 1.0;
}

/** Return the part of a segment's F that depends on the unit of the flux.  It is the sum of
 *  2 ln sigma over pixels, less mill_det_weight * n_cont times the mean of 2 ln sigma: the second
 *  term is from the ln det of n_cont continuum functions.  The rest of F is a chi-square plus about
 *  n_cont ln(pixels). */
MILL_HD static inline double mill_unit_part(const mill_model *m, const mill_segment *s)
{
  return s->sum_ln_var * (1.0 - mill_det_weight(m, s) * (double)s->ws->n_cont / (double)s->n_pix);
}

/** Should the template of the slot's request be kept? */
MILL_HD static inline int mill_template_keeps(const mill_slot *slot)
{
  return slot->kept.flux && (slot->request == MILL_REQ_MODELS ||
                             (slot->request == MILL_REQ_VALUES && slot->n_vel > 1));
}

/** Does the slot already have its request's template, of identical parameters? */
MILL_HD static inline int mill_template_kept(const mill_model *m, const mill_slot *slot)
{
  if (!slot->kept.has || !mill_template_keeps(slot))
    return 0;
  for (int j = MILL_PAR_VSINI; j < m->n_deriv; j++)
    if (slot->kept.theta[j] != slot->theta[j])
      return 0;
  return 1;
}

/** Is the emulator's output for the slot's request at hand? */
MILL_HD static inline int mill_template_there(const mill_model *m, const mill_slot *slot)
{
  return slot->stored > 0 || mill_template_kept(m, slot);
}

/** Set slot->stored if start i begins at a guess template with stored emulator rows: its first
 *  Jacobian then needs no emulator. */
MILL_HD static inline void mill_template_find(const mill_model *m, mill_slot *slot, int i)
{
  const int k = slot->starts.label[i];
  const double *label = m->guess_label + (size_t)k * (size_t)m->n_label;
  int same = k < m->n_stored;
  for (int l = 0; l < m->n_label && same; l++)
    same = slot->theta[MILL_PAR_LABEL0 + l] == label[l];
  slot->stored = same ? k + 1 : 0;
}

/** Does the slot's request ask this arm? */
MILL_HD static inline int mill_slot_wants(const mill_slot *slot, int arm)
{
  return slot->request >= MILL_REQ_VALUES && (slot->arms >> arm & 1);
}

/** Return the velocity (km/s) cut to the velocity limits: templates need not reach farther. */
MILL_HD static inline double mill_within_velocities(const mill_model *m, double vel_km_s)
{
  return vel_km_s < m->set.min_vel_km_s
             ? m->set.min_vel_km_s
             : (vel_km_s > m->set.max_vel_km_s ? m->set.max_vel_km_s : vel_km_s);
}

/** Regions of a star's memory, each copied whole: raw pixels, models and epochs, the rest. */
enum mill_star_region { MILL_STAR_RAW, MILL_STAR_MODELS, MILL_STAR_DEVICE, MILL_N_STAR_REGION };

/** Numbers of elements of a star's arrays. */
enum mill_star_count {
  MILL_COUNT_PIX,
  MILL_COUNT_MATRIX,    /**< n_diag * n_pix where the input has a resolution matrix, else 0 */
  MILL_COUNT_RES,       /**< n_diag * mill_row_pitch(n_pix) */
  MILL_COUNT_MODEL,     /**< n_pix where models are wanted, else 0 */
  MILL_COUNT_PARTS,     /**< n_pix where template and continuum are wanted apart, else 0 */
  MILL_COUNT_COEF,      /**< MILL_MAX_CONT where coefficients are wanted, else 0 */
  MILL_COUNT_EPOCH,     /**< epochs of the star */
  MILL_COUNT_VELOCITY,  /**< n_segment * MILL_N_PROFILE */
  MILL_COUNT_ANSWER,    /**< n_segment * mill_answer_pitch */
  MILL_COUNT_OWN,       /**< n_pix where a segment has a model error, else 0 */
  MILL_COUNT_ERROR,     /**< (mill_n_error + n_sky) * mill_row_pitch(n_pix) */
  MILL_COUNT_PAIR,      /**< (1 + n_deriv) * mill_row_pitch(n_pix) with binaries, else 0 */
  MILL_COUNT_BLOCKS,    /**< mill_guess_lanes(n_block) * guess_n * 2 * MILL_GUESS_LANE */
  MILL_COUNT_GUESS,     /**< n_templ * (2 * guess_half + 1) */
  MILL_COUNT_TEMPL,     /**< n_templ */
  MILL_COUNT_KEPT,      /**< bytes of the kept templates: n_arm * max_pix_pad numbers */
  MILL_COUNT_PROPOSAL,  /**< MILL_SAMPLE_PART; 0 without posteriors, as the next three */
  MILL_COUNT_POINT,     /**< max_eval */
  MILL_COUNT_PLACE,     /**< (max_eval + 1) * n_par */
  MILL_COUNT_POSTERIOR, /**< bytes of a posterior and its samples */
  MILL_N_STAR_COUNT
};

/** List a segment's arrays but lsf_aa: member, element size, region, mill_star_count. */
static inline int mill_segment_arrays(const mill_array **table)
{
  static const mill_array array[] = {
      {offsetof(mill_segment, raw_flux), sizeof(float), MILL_STAR_RAW, MILL_COUNT_PIX},
      {offsetof(mill_segment, raw_ivar), sizeof(float), MILL_STAR_RAW, MILL_COUNT_PIX},
      {offsetof(mill_segment, raw_mask), sizeof(int32_t), MILL_STAR_RAW, MILL_COUNT_PIX},
      {offsetof(mill_segment, raw_res), sizeof(float), MILL_STAR_RAW, MILL_COUNT_MATRIX},
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
      {offsetof(mill_segment, pair), sizeof(float), MILL_STAR_DEVICE, MILL_COUNT_PAIR},
      {offsetof(mill_segment, model), sizeof(float), MILL_STAR_MODELS, MILL_COUNT_MODEL},
      {offsetof(mill_segment, templ_flux), sizeof(float), MILL_STAR_MODELS, MILL_COUNT_PARTS},
      {offsetof(mill_segment, cont_coef), sizeof(double), MILL_STAR_MODELS, MILL_COUNT_COEF},
  };
  *table = array;
  return (int)(sizeof array / sizeof array[0]);
}

/** List a slot's arrays: member, element size (1: bytes are counted), region, mill_star_count. */
static inline int mill_slot_arrays(const mill_array **table)
{
  static const mill_array array[] = {
      {offsetof(mill_slot, epoch), sizeof(mill_epoch), MILL_STAR_MODELS, MILL_COUNT_EPOCH},
      {offsetof(mill_slot, vel), sizeof(double), MILL_STAR_DEVICE, MILL_COUNT_VELOCITY},
      {offsetof(mill_slot, answer), sizeof(double), MILL_STAR_DEVICE, MILL_COUNT_ANSWER},
      {offsetof(mill_slot, guess.chisq), sizeof(double), MILL_STAR_DEVICE, MILL_COUNT_GUESS},
      {offsetof(mill_slot, guess.least), sizeof(double), MILL_STAR_DEVICE, MILL_COUNT_TEMPL},
      {offsetof(mill_slot, guess.velocity), sizeof(int), MILL_STAR_DEVICE, MILL_COUNT_TEMPL},
      {offsetof(mill_slot, kept.flux), 1, MILL_STAR_DEVICE, MILL_COUNT_KEPT},
      {offsetof(mill_slot, sample.part), sizeof(mill_part), MILL_STAR_DEVICE, MILL_COUNT_PROPOSAL},
      {offsetof(mill_slot, sample.x), sizeof(float), MILL_STAR_DEVICE, MILL_COUNT_PLACE},
      {offsetof(mill_slot, sample.ln_p), sizeof(float), MILL_STAR_DEVICE, MILL_COUNT_POINT},
      {offsetof(mill_slot, sample.ln_w), sizeof(float), MILL_STAR_DEVICE, MILL_COUNT_POINT},
      {offsetof(mill_slot, sample.sorted), sizeof(float), MILL_STAR_DEVICE, MILL_COUNT_POINT},
      {offsetof(mill_slot, sample.posterior), 1, MILL_STAR_DEVICE, MILL_COUNT_POSTERIOR},
  };
  *table = array;
  return (int)(sizeof array / sizeof array[0]);
}
