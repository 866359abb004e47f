/* SPDX-License-Identifier: BSD-3-Clause */
/** Fitting and evaluating radial functions around scattered labels (kernels/data/library.h). */
#ifndef MILL_RBF_H
#define MILL_RBF_H

#include "kernels/data/library.h"

/** h [n_out] at mapped labels x [n_axis]; float64 sums.  The host's reference of
 *  kernels/math/rbf.h. */
void mill_rbf_eval(const mill_rbf *rbf, const double *x, double *h);

/** Values at scattered points that a smooth function is to pass close to.
 *
 *  x      [n_point][n_axis]  mapped labels; points may coincide
 *  length [n_axis]           units of the labels in which distances are measured, > 0
 *  degree                    of the polynomial at most, 1 .. MILL_MAX_RBF_DEGREE; lower
 *                            where the points do not determine it
 *  weight [n_point]          > 0, of the squared residuals; NULL: 1
 *  value  [n_point][n_out]
 *  smooth [n_smooth]         > 0, the smoothings to choose from, see below
 *  All borrowed for the call that takes the problem.
 */
typedef struct mill_rbf_problem {
  int n_axis, n_point, n_out, degree, n_smooth;
  double tolerance; /**< of the choice of smoothings, 0 or more: see below */
  const double *x, *length, *weight, *value, *smooth;
} mill_rbf_problem;

enum { MILL_RBF_MAX_SMOOTH = 25 };

/** Smoothings of a problem: the one that is given, or where it is 0 powers of ten to choose from,
 * in steps of half a decade.  How many. */
int mill_rbf_smoothings(double given, double smooth[MILL_RBF_MAX_SMOOTH]);

/** The solved problem.
 *
 *  Every output is the polyharmonic smoothing spline: of all functions
 *  sum_i |x - x_i|^3 a_i + polynomial with a orthogonal to the polynomials, the one that
 *  minimises sum_i weight_i (value_i - h(x_i))^2 + smooth a.K.a, K_ij = |x_i - x_j|^3
 *  (Wahba 1990, Spline Models for Observational Data; Duchon 1977).  smooth is chosen
 *  for each output by the weighted sum of squares of the residuals that the points have
 *  when they are left out one at a time, in closed form from the matrix that takes
 *  values to fitted values.  Of all smoothings whose sum exceeds the least one by no more
 *  than tolerance times its standard error it is the largest: with 1 the usual
 *  one-standard-error rule, with 0 that of the least sum. */
typedef struct mill_rbf_fit mill_rbf_fit;

/** MILL_ERR_RANGE when there are too few points or numbers are out of range,
 *  MILL_ERR_MEMORY.  Time and memory go as n_point^3 and n_point^2. */
int mill_rbf_fit_create(const mill_rbf_problem *problem, mill_rbf_fit **out);
void mill_rbf_fit_destroy(mill_rbf_fit *fit); /* NULL is allowed */

/** Degree of the polynomial, and its terms. */
int mill_rbf_fit_degree(const mill_rbf_fit *fit);
int mill_rbf_fit_n_poly(const mill_rbf_fit *fit);

/** [n_out] the smoothing of each output. */
const double *mill_rbf_fit_smooth(const mill_rbf_fit *fit);

/** [n_point][n_out] value minus what the fit to all other points, at the same smoothing,
 *  gives there. */
const double *mill_rbf_fit_left_out(const mill_rbf_fit *fit);

/** Value minus the fit to all points. */
double mill_rbf_fit_residual(const mill_rbf_fit *fit, int i_point, int i_out);

/** The fitted function in float32; cleared by the caller with mill_rbf_clear. */
int mill_rbf_fit_export(const mill_rbf_fit *fit, mill_rbf *rbf);

/** Its coefficients [n_point + n_poly][n_out]. */
void mill_rbf_fit_coef(const mill_rbf_fit *fit, double *coef);

#endif
