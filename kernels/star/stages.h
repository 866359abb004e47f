/* SPDX-License-Identifier: BSD-3-Clause */
/** The state of a star's fit, a struct for each stage. */
#pragma once

#include "kernels/data/posterior.h"
#include "kernels/data/result.h"
#include "kernels/math/nelder_mead.h"
#include "kernels/star/model.h"

/** What the logic of a fit (kernels/star/logic) asks the device. */
enum mill_request {
  MILL_REQ_NONE = 0,
  MILL_REQ_WEIGH,    /**< weigh a posterior's points: the posterior ends or needs more points */
  MILL_REQ_PEAK,     /**< largest correlation peak of the residuals from the last model */
  MILL_REQ_VALUES,   /**< F of each segment at its velocities */
  MILL_REQ_TANGENTS, /**< F, gradient and curvature of each segment at its velocity */
  MILL_REQ_MODELS    /**< F, chi-squares and the model of each segment at its velocity */
};

/** F of a star (-2 ln L), summed over its segments, and its derivatives. */
typedef struct mill_eval {
  double f;
  double grad[MILL_MAX_PAR]; /**< for v sin i: by its inner parameter u (rotation.h) */
  /** [n_par][n_par] F after a step d is about f + grad.d + d.hess.d. */
  double hess[MILL_MAX_PAR * MILL_MAX_PAR];
} mill_eval;

/** A point, its F and derivatives; theta has v sin i; grad and hess have u instead (rotation.h). */
typedef struct mill_point {
  double theta[MILL_MAX_PAR];
  double f;
  double grad[MILL_MAX_PAR];
  double hess[MILL_MAX_PAR * MILL_MAX_PAR];
} mill_point;

/** Work space of the initial guess (kernels/star/blocks/guess.h). */
typedef struct mill_guess_space {
  double *chisq; /**< [n_templ][2 * guess_half + 1] */
  double *least; /**< [n_templ] each template's least chi-square; infinite: excluded */
  int *velocity; /**< [n_templ] velocity bin of the least chi-square */
} mill_guess_space;

enum {
  MILL_MAX_DEPTH = 10, /**< nested calls of resumable functions, and one to spare */
  MILL_MAX_TRAIL = 48  /**< points recorded on the paths of a star's starts */
};

/** Candidate starts of a fit, and where each ended (kernels/star/logic/starts.h). */
typedef struct mill_starts {
  double theta[MILL_MAX_GUESS_START][MILL_MAX_PAR]; /**< guess templates, the best first */
  double chisq[MILL_MAX_GUESS_START];               /**< chi-square of the guess, less a constant */
  double f[MILL_MAX_GUESS_START];                   /**< F where each start ended */
  int label[MILL_MAX_GUESS_START]; /**< index of the start's template in guess_label */
  int n, i;                        /**< number of starts, and index of the current one */
  int n_jac;                       /**< Jacobians before the first start, by a brief search */
  int n_doubt;                     /**< reasons to doubt the first start's solution */
  int had_far;                     /**< 1: a start far from the solution has begun */
  int low_sn;                      /**< S/N below second_start_sn */
  int brief;                       /**< the spectrum is hardly a star's: one short start */
  int has_given;                   /**< start from `given` instead of the guesses */
  int try_all;                     /**< with has_given: start from all guesses too */
  int is_several;                  /**< the row of `given` has two stars, or epochs that differ */
  double given_chisq;              /**< CHISQ_C_DATA in the row of `given`; 0: not known */
  double given_f;                  /**< M2LL in that row; infinite: not known */
  int has_limit;                   /**< fit only where the guess's chi-square is at most `limit` */
  double limit;
  double given[MILL_MAX_PAR]; /**< [n_deriv] finite, perhaps outside the limits */
  int n_minimum;              /**< minima where starts converged, for a posterior's proposal */
  double minimum[MILL_MAX_GUESS_START][MILL_MAX_PAR], minimum_f[MILL_MAX_GUESS_START];
  int n_trail;                     /**< points to which polishes stepped */
  int trail_start[MILL_MAX_TRAIL]; /**< the start of each point */
  double trail[MILL_MAX_TRAIL][MILL_MAX_PAR];
} mill_starts;

/** The leading arm: a start first fits this arm alone, as Jacobians of one arm cost less. */
typedef struct mill_lead {
  double signal[MILL_MAX_ARM]; /**< squared significance of each arm's lines */
  int arm;                     /**< 1 + the leading arm; 0: all arms are asked */
  int n_jac;                   /**< Jacobians of leading arms */
} mill_lead;

/** F of a star, an arm or an epoch at evenly spaced velocities, and the search for F's minimum. */
typedef struct mill_curve {
  int n;               /**< number of velocities centre + (i - n / 2) step */
  double centre, step; /**< km/s */
  double f[MILL_N_PROFILE];
  double f_centre; /**< F at the centre (a search moves the centre to the minimum); NaN: unknown */
  double least;    /**< lowest F of an earlier search or scan */
  int go, n_round; /**< go 1: the search goes on; n_round: its rounds so far */
  double found, err; /**< minimum and its error, km/s; NaN until the search converges */
} mill_curve;

/** Indices of mill_epoch.moment: derivatives of an epoch's F in two stars' velocities. */
enum mill_moment {
  MILL_MOMENT_SLOPE = 0, /**< two elements: gradient in each star's velocity */
  MILL_MOMENT_BEND = 2,  /**< two elements: curvature in each star's velocity */
  MILL_MOMENT_BOTH = 4,  /**< mixed curvature */
  MILL_MOMENT_F,         /**< F itself */
  MILL_N_MOMENT
};

/** An epoch: exposures that have a velocity of their own. */
typedef struct mill_epoch {
  mill_epoch_result result, alone; /**< alone: of one star (mill_pair.alone) */
  mill_curve curve;
  double shift[2]; /**< km/s: the epoch's velocity less VRAD, of the first and second star */
  int no_lines;    /**< 1: a continuum alone fits the epoch as well (mill_epochs_weigh) */
  /* of two stars (kernels/star/logic/pair_epochs.h) */
  double peak;          /**< significance of this epoch's residual peak */
  double pair_err[2];   /**< errors of the first and second star's velocities, km/s */
  double label_err[2];  /**< the part of these that errors of shared parameters cause */
  double error_shift;   /**< shift[0] when the model error was fixed last */
  double err_was[2];    /**< pair_err before an exchange (pair_exchange.h) */
  double from, best[2]; /**< first star's shift before a scan; both stars' shifts of least F */
  double exchanged;     /**< change of -2 ln L if the stars' velocities are exchanged */
  double moment[MILL_N_MOMENT];
} mill_epoch;

/** The simplex moves in x = L^T (parameter - centre), in which F rises by about |x|^2.  L, in
 *  polish.at.hess [nm.n][nm.n], is the Cholesky factor of the curvature in inner parameters. */
typedef struct mill_simplex {
  mill_nm nm;
  double centre[MILL_MAX_PAR];
  int par[MILL_MAX_PAR]; /**< [nm.n] parameters that the simplex moves */
  double off;            /**< penalty of the trial point for leaving the limits */
  int done;              /**< 1: this start has had its simplex, or begins with it */
} mill_simplex;

/** State of the Levenberg-Marquardt polish (kernels/star/logic/polish.h). */
typedef struct mill_polish {
  mill_point at; /**< current accepted point; f includes hull and priors */
  /** [n_par][n_par] BFGS estimate of the part of the curvature that hess lacks. */
  double second[MILL_MAX_PAR * MILL_MAX_PAR];
  double lambda;
  double pred;                  /**< predicted decrease of F by the pending step */
  double promised;              /**< predicted decrease of F by the last evaluated step */
  double end[MILL_MAX_PAR];     /**< after convergence: the end of the last step, not evaluated */
  double settled[MILL_MAX_PAR]; /**< point of the last Jacobian that fixed the model error */
  int n_jac;
  int n_settle;   /**< number of such Jacobians so far (MILL_SETTLE_PROMISE) */
  int n_learned;  /**< updates of `second`, in all starts */
  int learned;    /**< 1: `second` is not zero */
  int n_rejected; /**< steps in a row after which F was higher */
  int have;       /**< `at` holds a point */
  int outcome;    /**< outcome of the last Jacobian (enum mill_polish_outcome) */
} mill_polish;

/** One hull facet that a step of the polish has crossed. */
typedef struct mill_active_facet {
  int hull, facet;
  int state;    /**< enum mill_facet_state */
  double value; /**< signed distance at the current point */
  double slope[MILL_MAX_PAR];
  double reach;              /**< signed distance at the end of the step without facets' forces */
  double half[MILL_MAX_PAR]; /**< [n] L^-1 slope, L of the damped curvature of the step */
  double force;              /**< Lagrange multiplier of the facet, 0 or more */
} mill_active_facet;

/** Axes of a simplex: the Cholesky factor of the damped curvature in the n parameters idx. */
typedef struct mill_polish_axes {
  int n, idx[MILL_MAX_PAR];
  double factor[MILL_MAX_PAR * MILL_MAX_PAR]; /**< [n][n] lower triangle */
} mill_polish_axes;

enum { MILL_POLISH_MAX_FACET = 32 };

/** The lowest point over all starts. */
typedef struct mill_best {
  mill_point at;
  double end[MILL_MAX_PAR]; /**< end of the last step from `at`: the solution */
  int have, converged;
  int i_start; /**< the start that found it */
  int info;    /**< info, warn: FIT_INFO and RVS_WARN before the row is filled in */
  int64_t warn;
} mill_best;

/** State of the velocity profile (kernels/star/logic/profile.h). */
typedef struct mill_profile {
  mill_curve curve;
  double width; /**< expected error of the velocity, km/s; sets the grid's step */
  int n_round;
  int has_arm; /**< 1: mill_slot.arm has F of each arm on the first grid about best.end */
} mill_profile;

/** Rotated templates of the last profile or models, for later use (mill_template_kept). */
typedef struct mill_kept {
  int has;
  double theta[MILL_MAX_PAR]; /**< parameters of the templates */
  double mean[MILL_MAX_ARM];  /**< mill_workspace.mean[0] of each arm's template */
  void *flux;                 /**< [n_arm][max_pix_pad] float or double; NULL: no room */
} mill_kept;

/** Largest velocity difference of two stars, km/s; contact binaries stay below it. */
#define MILL_PAIR_MOST_APART 500.0

/** State of the fit of two stars (kernels/star/logic/pair.h).  Its parameters: `star`'s, its
 *  companion's, and each arm's ln(second star's flux / first star's flux). */
typedef struct mill_pair {
  int is_fitted;     /**< 1: two stars are fitted; parameters and priors belong to `star` */
  int star;          /**< 0 or 1: the star that the requests' theta belongs to */
  int n_turn;        /**< turns so far */
  int is_moving;     /**< 1: the stars' velocities change, and epochs are scanned */
  int is_seen;       /**< 1: the residuals' peak may be a second star */
  int is_split;      /**< 1: both stars begin as halves of one with broad lines */
  int n_settle;      /**< Jacobians of the epochs' velocities left before the next turn */
  int n_scan;        /**< epochs with a known peak; later: scanned velocities of the first star */
  int n_eval, n_jac; /**< evaluations and Jacobians of the one-star fit */
  int is_again;      /**< 1: fits of the brighter star alone; their models are not stored */
  int is_joint;      /**< 1: a turn's steps count on the epochs' velocities to follow */
  int by_epoch;      /**< 1: each epoch has a template error of its own (pair_alone.h) */
  double chisq;      /**< of the pair, without model error: the star's less the fall of F */
  int n_again;       /**< searches so far before moving stars are fitted again */
  double peak, peak_km_s; /**< answer to MILL_REQ_PEAK: the peak's significance and velocity */
  int peak_stands;        /**< 1: the peak stands out of the correlation at other velocities */
  double least_apart;     /**< least velocity difference of two stars, km/s */
  double trust;      /**< trust region of the companion's parameters, in typical uncertainties */
  int n_least;       /**< least number of turns */
  double f[2], fall; /**< F after each star's last turn; fall of F since this star's turn before */
  /* exchanges (kernels/star/logic/pair_exchange.h) */
  int exchanged;      /**< the epoch whose velocities are exchanged */
  int n_pass, n_kept; /**< passes over all epochs so far; exchanges kept in this pass */
  struct {
    int n_turn; /**< 0: no exchange in this pass */
    double f, theta[2][MILL_MAX_PAR], ln_ratio[MILL_MAX_ARM];
  } was; /**< before the last exchange */
  double theta[2][MILL_MAX_PAR], ln_ratio[MILL_MAX_ARM];
  double flux[MILL_MAX_ARM][2]; /**< summed templates of `star` and of its companion */
  /** After a step d of the star, its companion's best step: follow + along * d, with variances. */
  struct {
    double follow[MILL_MAX_PAR], along[MILL_MAX_PAR * MILL_MAX_PAR], variance[MILL_MAX_PAR];
  } next, at;
  mill_point point;      /**< end of the second star's last turn */
  mill_fit_result alone; /**< the row of one star while moving stars are fitted again */
} mill_pair;

enum {
  MILL_SAMPLE_PART = 32,  /**< most components of all proposals of a star */
  MILL_DENSITY_PARTS = 2, /**< parts into which samples are divided, for more threads */
};

/** A component of a proposal: a Student's t distribution (kernels/star/logic/proposal.h). */
typedef struct mill_part {
  double share; /**< fraction of the proposal's draws */
  double n;     /**< draws from it up to the last weighing */
  double mean[MILL_MAX_PAR], bend[MILL_MAX_PAR];
  double axes[MILL_MAX_PAR * MILL_MAX_PAR]; /**< [n_free][n_free] lower triangle */
  double ln_peak;                           /**< ln of the density at the mean, up to a constant */
} mill_part;

/** State of the points that sample a star's posterior (kernels/star/logic/sample.h). */
typedef struct mill_sample {
  uint64_t identity;           /**< key of the star's random numbers */
  int i_vsini;                 /**< index of v sin i among the free parameters; -1: it is fixed */
  int n_point, n_draw;         /**< points evaluated; draws, refused ones included */
  int n_target;                /**< number of points at which the weights are examined next */
  int first_part, n_part;      /**< the current proposal has part[first_part .. n_part - 1] */
  int first_point, first_draw; /**< first point and draw of the current proposal */
  int is_last;                 /**< 1: the limit of draws is reached */
  int has_ended;               /**< 1: the posterior is finished */
  int n_sample;                /**< number of equally weighted samples at the end */
  double least;                /**< lowest F so far */
  double ln_most;              /**< ln of the largest weight */
  double pareto;               /**< Pareto k of the weights */
  double ess[MILL_MAX_PAR];    /**< [n_free] effective sizes */
  /* NULL where no posterior is wanted */
  mill_part *part; /**< [MILL_SAMPLE_PART] */
  float *x;        /**< [max_eval + 1][n_free] points less the solution; point n_point is asked */
  float *ln_p;     /**< [max_eval] ln(density / density at the solution), without hulls */
  float *ln_w;     /**< [max_eval] ln(weight / largest weight) */
  float *sorted;   /**< [max_eval] work space; at the end the number of each point's copies */
  mill_posterior *posterior; /**< the posterior, followed by its samples */
} mill_sample;

/** Most parameters of two stars with flux ratios and velocity offsets (pair_follow.h). */
enum { MILL_MAX_JOINT = 2 * MILL_MAX_PAR };

/** Work space of the logic, too large for a GPU's stack; nothing in it outlives a question. */
typedef struct mill_fit_space {
  /** Gradient [n] and curvature [n][n] of F in the parameters of two stars. */
  double joint_grad[MILL_MAX_JOINT], joint[MILL_MAX_JOINT * MILL_MAX_JOINT];
  double part[MILL_MAX_JOINT * MILL_MAX_JOINT]; /**< an epoch's part of joint (pair_errors.h) */
  double matrix[2][MILL_MAX_PAR * MILL_MAX_PAR];
  double simplex[(MILL_MAX_PAR + 1) * MILL_MAX_PAR];
  mill_active_facet facet[MILL_POLISH_MAX_FACET];
  mill_polish_axes axes;
  double density[MILL_DENSITY_PARTS * MILL_N_DENSITY]; /**< kernels/star/blocks/marginal.h */
  double mean[MILL_MAX_PAR + 1]; /**< mean and moment: kernels/star/blocks/sample_weigh.h */
  double moment[(MILL_MAX_PAR + 1) * (MILL_MAX_PAR + 1)];
} mill_fit_space;
