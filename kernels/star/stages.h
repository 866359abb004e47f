/* SPDX-License-Identifier: BSD-3-Clause */
/** The state of a star's fit, a struct for each stage.
 */
#ifndef MILL_STAGES_H
#define MILL_STAGES_H

#include "kernels/data/posterior.h"
#include "kernels/data/result.h"
#include "kernels/math/nelder_mead.h"
#include "kernels/star/model.h"

MILL_EXTERN_C_BEGIN

/** What the logic asks the device. */
enum mill_request {
  MILL_REQ_NONE = 0,
  MILL_REQ_WEIGH,    /**< the weights of the points so far, and what they are enough for */
  MILL_REQ_PEAK,     /**< the velocity at which the residuals of the last model look like a star */
  MILL_REQ_VALUES,   /**< F of each segment at its velocities */
  MILL_REQ_TANGENTS, /**< F, gradient and curvature of each segment at its velocity */
  MILL_REQ_MODELS    /**< F, chi-squares and the model of each segment at its velocity */
};

/** F and its derivatives in the star's parameters: the sum over its segments. */
typedef struct mill_eval {
  double f;
  double grad[MILL_MAX_PAR];                /**< v sin i: of its inner parameter (rotation.h) */
  double hess[MILL_MAX_PAR * MILL_MAX_PAR]; /**< [n_par][n_par]: F ~ f + grad.d + d.hess.d */
} mill_eval;

/** A point with its value and curvature; v sin i in km/s in theta, its inner parameter in
 *  grad and hess. */
typedef struct mill_point {
  double theta[MILL_MAX_PAR];
  double f;
  double grad[MILL_MAX_PAR];
  double hess[MILL_MAX_PAR * MILL_MAX_PAR];
} mill_point;

/** Work space of the initial guess (kernels/star/blocks/guess.h). */
typedef struct mill_guess_space {
  double *chisq; /**< [n_templ][2 * guess_half + 1] */
  double *least; /**< [n_templ] of them; infinite: no choice any more */
  int *velocity; /**< [n_templ] where that is */
} mill_guess_space;

/** Resumable functions that call each other, with one to spare. */
enum { MILL_MAX_DEPTH = 6 };

enum { MILL_MAX_TRAIL = 48 };

/** Starts of a fit, and the end of each (kernels/star/logic/starts.h). */
typedef struct mill_starts {
  double theta[MILL_MAX_GUESS_START]
              [MILL_MAX_PAR];         /**< the guess's best templates, the best first */
  double chisq[MILL_MAX_GUESS_START]; /**< of the guess; only differences have a meaning */
  double f[MILL_MAX_GUESS_START];     /**< F where each start ended */
  int label[MILL_MAX_GUESS_START];    /**< of guess_label, which its labels may be */
  int n, i;
  int n_doubt;        /**< reasons to doubt the first start's solution */
  int low_sn;         /**< S/N below second_start_sn */
  int brief;          /**< the spectrum is hardly a star's: one short start */
  int has_given;      /**< start from `given` in place of the guesses */
  int try_all;        /**< and from all guesses after it */
  int is_several;     /**< where `given` is from there are two stars, or epochs that differ */
  double given_chisq; /**< chi-square of the continuum in the row of `given`; 0: not known */
  double given_f;     /**< and its F; infinite: not known */
  int has_limit;      /**< fit only where the guess's chi-square is at most `limit` */
  double limit;
  double given[MILL_MAX_PAR]; /**< [n_deriv] finite, not yet within the limits */
  int n_minimum; /**< where starts have ended, with the solution until the sample begins */
  double minimum[MILL_MAX_GUESS_START][MILL_MAX_PAR], minimum_f[MILL_MAX_GUESS_START];
  int n_trail; /**< where the polish of starts has led, and the start that each place is of */
  int trail_start[MILL_MAX_TRAIL];
  double trail[MILL_MAX_TRAIL][MILL_MAX_PAR];
} mill_starts;

/** The arm that leads a start until it is near. */
typedef struct mill_lead {
  double signal[MILL_MAX_ARM]; /**< squared significance of an arm's lines */
  int arm;                     /**< 1 + the arm that the request is of alone; 0: all arms */
  int n_jac;                   /**< Jacobians of such arms */
} mill_lead;

/** F of a group of segments (all of the star, of an arm, of an epoch) at even velocities, and the
 *  search for its minimum (kernels/star/logic/velocities.h). */
typedef struct mill_curve {
  int n;               /**< velocities: centre + (i - n / 2) step */
  double centre, step; /**< km/s */
  double f[MILL_N_PROFILE];
  double f_centre;   /**< F at the centre; NaN: not known */
  int go, n_round;   /**< of the search */
  double found, err; /**< NaN until it has ended well */
} mill_curve;

/** Gradient and curvature of F in the velocities of a star and its companion. */
enum mill_moment {
  MILL_MOMENT_OWN = 0,
  MILL_MOMENT_OTHER,
  MILL_MOMENT_OWN2,
  MILL_MOMENT_OTHER2,
  MILL_MOMENT_BOTH,
  MILL_MOMENT_F, /**< F itself */
  MILL_N_MOMENT
};

/** An epoch: exposures that have a velocity of their own. */
typedef struct mill_epoch {
  mill_epoch_result result;
  mill_curve curve;
  double shift[2]; /**< velocity less the star's, and less the companion's */
  /* of two stars (kernels/star/logic/pair_epochs.h) */
  double peak;                 /**< of its residuals alone, as that of the pair */
  double pair_err[2];          /**< of both velocities */
  double from, best[2], least; /**< of a search: the first star's, the best ones, and their F */
  double exchanged;            /**< what -2 ln L tells of which velocity is whose */
  double moment[MILL_N_MOMENT];
} mill_epoch;

/** The simplex and its coordinates: x = L^T (parameter - centre), both inner, L in
 *  polish.at.hess [nm.n][nm.n], in which F rises by about |x|^2. */
typedef struct mill_simplex {
  mill_nm nm;
  double centre[MILL_MAX_PAR];
  int par[MILL_MAX_PAR]; /**< [nm.n] parameters that it moves */
  double off;            /**< penalty of the trial for leaving the limits */
  int done;              /**< this start has had its simplex */
} mill_simplex;

/** State of the Levenberg-Marquardt polish (kernels/star/logic/polish.h). */
typedef struct mill_polish {
  mill_point at; /**< current accepted point; f includes hull and priors */
  /** [n_par][n_par] what steps taught of its curvature beyond hess. */
  double second[MILL_MAX_PAR * MILL_MAX_PAR];
  double lambda;
  double pred;              /**< decrease that the pending step promises */
  double promised;          /**< decrease of F that the last evaluated step promised */
  double end[MILL_MAX_PAR]; /**< when converged: where the last step leads, not evaluated */
  int n_jac;
  int n_learned;  /**< steps of the star's first start that taught something, and later ones */
  int learned;    /**< second is not zero */
  int n_rejected; /**< steps in a row that led uphill */
  int have;       /**< `at` holds a point */
  int outcome;    /**< of the last Jacobian (enum mill_polish_outcome) */
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

enum { MILL_POLISH_MAX_FACET = 32 };

/** The lowest point over all starts. */
typedef struct mill_best {
  mill_point at;
  double end[MILL_MAX_PAR]; /**< where its last step leads: the solution */
  int have, converged;
  int i_start; /**< the start that found it */
  int info;    /**< of the result before its row, as warn */
  int64_t warn;
} mill_best;

/** State of the velocity profile (kernels/star/logic/profile.h). */
typedef struct mill_profile {
  mill_curve curve;
  double width; /**< that the grid is made for, km/s */
  int n_round;
  int has_arm; /**< arms' curves are those of the first grid, which was enough, about best.end */
} mill_profile;

/** Rotated templates of the last profile or final answer, which those after it at the same
 *  v sin i and labels take (mill_template_kept). */
typedef struct mill_kept {
  int has;
  double theta[MILL_MAX_PAR]; /**< parameters that they were made for */
  double mean[MILL_MAX_ARM];  /**< their mill_workspace.mean[0] */
  void *flux;                 /**< [n_arm][max_pix_pad] float or double; NULL: no room */
} mill_kept;

/** Velocities of two stars differ by this at most, km/s: in contact they are slower. */
#define MILL_PAIR_MOST_APART 500.0

/** State of the fit of two stars (kernels/star/logic/pair.h).  Parameters of a star and its
 *  companion's: velocity, v sin i, labels, and for each arm ln of the ratio of the second star's
 *  template to that of the first one. */
typedef struct mill_pair {
  int is_fitted; /**< parameters and priors are those of one of two stars */
  int star;      /**< 0, 1: whose parameters the requests' theta is */
  int n_turn;
  int is_moving; /**< velocities of epochs are scanned */
  int n_settle;  /**< Jacobians until the turn, which settle the velocities of epochs */
  int n_scan; /**< epochs whose peak is known, then places of the first star where it was scanned */
  int n_eval, n_jac;      /**< of the row without a second star */
  double peak, peak_km_s; /**< the answer of MILL_REQ_PEAK: its significance and velocity */
  int peak_stands;        /**< the peak is one, and not the level of all velocities */
  double least_apart;     /**< difference of the velocities, km/s */
  double trust;           /**< how far the companion may follow, in typical uncertainties */
  double theta[2][MILL_MAX_PAR], ln_ratio[MILL_MAX_ARM];
  double flux[MILL_MAX_ARM][2]; /**< sums of the template of `star` and its companion's */
  /** The companion's best step where the star steps by d: follow + along d; and its variance. */
  struct {
    double follow[MILL_MAX_PAR], along[MILL_MAX_PAR * MILL_MAX_PAR], variance[MILL_MAX_PAR];
  } next, at;
  mill_point point; /**< where the last turn of the second star has ended */
} mill_pair;

enum {
  MILL_SAMPLE_PART = 32,  /**< of all proposals of a star */
  MILL_DENSITY_PARTS = 2, /**< of its samples, whose sums are made side by side */
};

/** One Student's t of a proposal (kernels/star/logic/proposal.h). */
typedef struct mill_part {
  double share; /**< of the draws of its proposal */
  double n;     /**< of all draws up to the last look at the weights */
  double mean[MILL_MAX_PAR], bend[MILL_MAX_PAR];
  double axes[MILL_MAX_PAR * MILL_MAX_PAR]; /**< [n_free][n_free] lower triangle */
  double ln_peak;                           /**< ln of its density there, but for a constant */
} mill_part;

/** State of the points that sample a star's posterior (kernels/star/logic/sample.h). */
typedef struct mill_sample {
  uint64_t identity;           /**< of the star's random numbers */
  int i_vsini;                 /**< free parameter that is v sin i; -1: it is fixed */
  int n_point, n_draw;         /**< evaluated, and drawn with those refused */
  int n_target;                /**< points at which to look at the weights */
  int first_part, n_part;      /**< those of the present proposal; earlier ones lie before */
  int first_point, first_draw; /**< of the present proposal */
  int is_last;                 /**< no more can be drawn */
  int has_ended;               /**< the posterior is there */
  int n_sample;                /**< in the end: without weights */
  double least;                /**< lowest F so far */
  double ln_most;              /**< ln of the largest weight */
  double pareto;               /**< k of the weights */
  double ess[MILL_MAX_PAR];    /**< [n_free] effective sizes */
  /* NULL where no posterior is wanted */
  mill_part *part;           /**< [MILL_SAMPLE_PART] */
  float *x;                  /**< [max_eval + 1][n_free] less the solution; one is under way */
  float *ln_p;               /**< [max_eval] ln of the density by the solution's, without hulls */
  float *ln_w;               /**< [max_eval] of the weights, by the largest */
  float *sorted;             /**< [max_eval] work space; in the end copies of each point */
  mill_posterior *posterior; /**< with its samples behind it */
} mill_sample;

/** Parameters of two stars: those of one, and what goes with it
 *  (kernels/star/logic/pair_follow.h). */
enum { MILL_MAX_JOINT = 2 * MILL_MAX_PAR };

/** Work space of the logic, which would be too much for the stack of a GPU's threads; nothing in it
 *  outlives a question. */
typedef struct mill_fit_space {
  /** Gradient [n] and curvature [n][n] of F in the parameters of two stars. */
  double joint_grad[MILL_MAX_JOINT], joint[MILL_MAX_JOINT * MILL_MAX_JOINT];
  double matrix[2][MILL_MAX_PAR * MILL_MAX_PAR];
  double simplex[(MILL_MAX_PAR + 1) * MILL_MAX_PAR];
  mill_active_facet facet[MILL_POLISH_MAX_FACET];
  mill_polish_axes axes;
  double density[MILL_DENSITY_PARTS * MILL_N_DENSITY]; /**< kernels/star/blocks/marginal.h */
  double mean[MILL_MAX_PAR + 1]; /**< kernels/star/logic/proposal.h, as the next */
  double moment[(MILL_MAX_PAR + 1) * (MILL_MAX_PAR + 1)];
} mill_fit_space;

MILL_EXTERN_C_END

#endif
