/* SPDX-License-Identifier: BSD-3-Clause */
/** Nelder-Mead simplex minimisation as a state machine: one evaluation per step.
 *
 *  The caller runs the loop, so that the functions of a batch of stars can be evaluated together:
 *
 *      mill_nm_start(&nm, n, simplex0, &options);
 *      do
 *        f = evaluate(mill_nm_ask(&nm));
 *      while (mill_nm_tell(&nm, f) == MILL_NM_GO);
 *      x = mill_nm_best(&nm, &f);
 *
 *  From the same simplex the points are those of SciPy's Nelder-Mead.  The expressions keep SciPy's
 *  order of operations: without fused multiply-add the points agree bit for bit.
 *
 *  Nelder & Mead 1965, Comput. J. 7, 308.  Serial code: one thread of a star's block runs it. */
#pragma once

#include "kernels/base/common.h"

/** A function value that is NaN, infinite or larger in size counts as this. */
#define MILL_NM_HUGE 1e300

/** Status: returned by mill_nm_tell. */
enum mill_nm_status {
  MILL_NM_GO = 0,        /**< evaluate the next point */
  MILL_NM_CONVERGED = 1, /**< spreads within f_tol and x_tol */
  MILL_NM_LIMIT = 2,     /**< max_eval reached */
  MILL_NM_RANGE = 3      /**< n is out of range */
};

/** Role of the requested point. */
enum mill_nm_state {
  MILL_NM_INIT = 0,
  MILL_NM_REFLECT = 1,
  MILL_NM_EXPAND = 2,
  MILL_NM_CONTRACT_OUT = 3,
  MILL_NM_CONTRACT_IN = 4,
  MILL_NM_SHRINK = 5
};

typedef struct mill_nm_options {
  int max_eval; /**< evaluations, never exceeded */
  /** SciPy's fatol and xatol.  Converged if all vertices differ from the best one by at most f_tol
   *  in f and x_tol in each coordinate. */
  double f_tol, x_tol;
} mill_nm_options;

typedef struct mill_nm {
  mill_nm_options options;
  int n;
  int state;                                      /**< enum mill_nm_state, of the point in trial */
  int status;                                     /**< enum mill_nm_status */
  int i_vertex;                                   /**< in INIT and SHRINK: the vertex in trial */
  int n_eval;                                     /**< evaluations so far */
  int n_iter;                                     /**< as SciPy counts: 1 + finished iterations */
  double simplex[MILL_MAX_PAR + 1][MILL_MAX_PAR]; /**< sorted by f while reflecting */
  double f[MILL_MAX_PAR + 1];
  double centroid[MILL_MAX_PAR]; /**< mean of all vertices except the worst */
  double trial[MILL_MAX_PAR];
  double reflected[MILL_MAX_PAR];
  double f_reflected;
} mill_nm;

/** Make an axis-aligned simplex0 [n + 1][n]: x0 [n], and n copies of x0, each with one coordinate
 *  moved by its step [n], which may be negative but not zero. */
MILL_HD_CALLED static inline void mill_nm_simplex(int n, const double *x0, const double *step,
                                                  double *simplex0)
{
  for (int i = 0; i <= n; ++i)
    for (int j = 0; j < n; ++j)
      simplex0[(ptrdiff_t)i * n + j] = i == j + 1 ? x0[j] + step[j] : x0[j];
}

/** Sort the vertices by f; equal f keep their order, as in NumPy's argsort of up to 16 values. */
MILL_HD static inline void mill_nm_sort(mill_nm *nm)
{
  const int n = nm->n;
  double x[MILL_MAX_PAR];
  for (int i = 1; i <= n; ++i) {
    const double f = nm->f[i];
    int k = i;
    while (k > 0 && f < nm->f[k - 1])
      --k;
    if (k == i)
      continue;
    for (int j = 0; j < n; ++j)
      x[j] = nm->simplex[i][j];
    for (int m = i; m > k; --m) {
      nm->f[m] = nm->f[m - 1];
      for (int j = 0; j < n; ++j)
        nm->simplex[m][j] = nm->simplex[m - 1][j];
    }
    nm->f[k] = f;
    for (int j = 0; j < n; ++j)
      nm->simplex[k][j] = x[j];
  }
}

MILL_HD static inline void mill_nm_propose_vertex(mill_nm *nm, int i)
{
  nm->state = MILL_NM_INIT;
  nm->i_vertex = i;
  for (int j = 0; j < nm->n; ++j)
    nm->trial[j] = nm->simplex[i][j];
}

/** Propose the point half-way from vertex i to the best one. */
MILL_HD static inline void mill_nm_propose_shrunk(mill_nm *nm, int i)
{
  nm->state = MILL_NM_SHRINK;
  nm->i_vertex = i;
  for (int j = 0; j < nm->n; ++j)
    nm->trial[j] = nm->simplex[0][j] + 0.5 * (nm->simplex[i][j] - nm->simplex[0][j]);
}

/** Propose a point on the line from the worst vertex through the centroid: `state` says which. */
MILL_HD static inline void mill_nm_propose_line(mill_nm *nm, int state)
{
  const double *worst = nm->simplex[nm->n];
  nm->state = state;
  for (int j = 0; j < nm->n; ++j) {
    const double c = nm->centroid[j], w = worst[j];
    if (state == MILL_NM_REFLECT)
      nm->trial[j] = 2.0 * c - w;
    else if (state == MILL_NM_EXPAND)
      nm->trial[j] = 3.0 * c - 2.0 * w;
    else if (state == MILL_NM_CONTRACT_OUT)
      nm->trial[j] = 1.5 * c - 0.5 * w;
    else
      nm->trial[j] = 0.5 * c + 0.5 * w;
  }
}

MILL_HD static inline void mill_nm_accept(mill_nm *nm, int i, const double *x, double f)
{
  nm->f[i] = f;
  for (int j = 0; j < nm->n; ++j)
    nm->simplex[i][j] = x[j];
}

/** Once all vertices have values: sort them, test for convergence, propose the reflected point. */
MILL_HD static inline void mill_nm_begin_iteration(mill_nm *nm)
{
  const int n = nm->n;
  double x_spread = 0.0, f_spread = 0.0;
  mill_nm_sort(nm);
  if (nm->n_eval >= nm->options.max_eval) {
    nm->status = MILL_NM_LIMIT;
    return;
  }
  for (int i = 1; i <= n; ++i) {
    f_spread = fmax(f_spread, fabs(nm->f[0] - nm->f[i]));
    for (int j = 0; j < n; ++j)
      x_spread = fmax(x_spread, fabs(nm->simplex[i][j] - nm->simplex[0][j]));
  }
  if (x_spread <= nm->options.x_tol && f_spread <= nm->options.f_tol) {
    nm->status = MILL_NM_CONVERGED;
    return;
  }
  for (int j = 0; j < n; ++j) {
    double sum = nm->simplex[0][j];
    for (int i = 1; i < n; ++i)
      sum += nm->simplex[i][j];
    nm->centroid[j] = sum / (double)n;
  }
  mill_nm_propose_line(nm, MILL_NM_REFLECT);
}

MILL_HD static inline void mill_nm_end_iteration(mill_nm *nm)
{
  ++nm->n_iter;
  mill_nm_begin_iteration(nm);
}

/** Start a minimisation; the first point to evaluate is simplex0's first.
 *
 *  nm                 out  needs no other memory; nothing to free
 *  n                       1 ... MILL_MAX_PAR; otherwise nm ends at once with
 *                          MILL_NM_RANGE and n = 0
 *  simplex0 [n+1][n]  in   vertices, copied
 *  options            in   copied */
MILL_HD_CALLED static inline void mill_nm_start(mill_nm *nm, int n, const double *simplex0,
                                                const mill_nm_options *options)
{
  const int in_range = n >= 1 && n <= MILL_MAX_PAR;
  nm->options = *options;
  nm->n = in_range ? n : 0;
  nm->status = in_range ? MILL_NM_GO : MILL_NM_RANGE;
  nm->n_eval = 0;
  nm->n_iter = 1; /* as SciPy counts */
  nm->f_reflected = MILL_NM_HUGE;
  for (int i = 0; i <= nm->n; ++i) {
    nm->f[i] = MILL_NM_HUGE;
    for (int j = 0; j < nm->n; ++j)
      nm->simplex[i][j] = simplex0[(ptrdiff_t)i * n + j];
  }
  mill_nm_propose_vertex(nm, 0);
}

/** The point to evaluate next [n], a row of nm; valid and unchanged until mill_nm_tell. */
MILL_HD static inline const double *mill_nm_ask(const mill_nm *nm)
{
  return nm->trial;
}

/** Take the value f at the point of mill_nm_ask and choose the next point.
 *  Returns MILL_NM_GO until the minimisation ends, then how it ended (enum mill_nm_status). */
MILL_HD_CALLED static inline int mill_nm_tell(mill_nm *nm, double f)
{
  const int n = nm->n;
  if (nm->status != MILL_NM_GO)
    return nm->status;
  /* the negated test catches NaN and both infinities, which must never become the best */
  if (!(fabs(f) < MILL_NM_HUGE))
    f = MILL_NM_HUGE;
  ++nm->n_eval;
  switch (nm->state) {
  case MILL_NM_INIT:
    nm->f[nm->i_vertex] = f;
    if (nm->i_vertex < n)
      mill_nm_propose_vertex(nm, nm->i_vertex + 1);
    else
      mill_nm_begin_iteration(nm);
    break;
  case MILL_NM_REFLECT:
    if (f >= nm->f[0] && f < nm->f[n - 1]) {
      mill_nm_accept(nm, n, nm->trial, f);
      mill_nm_end_iteration(nm);
      break;
    }
    nm->f_reflected = f;
    for (int j = 0; j < n; ++j)
      nm->reflected[j] = nm->trial[j];
    if (f < nm->f[0])
      mill_nm_propose_line(nm, MILL_NM_EXPAND);
    else if (f < nm->f[n])
      mill_nm_propose_line(nm, MILL_NM_CONTRACT_OUT);
    else
      mill_nm_propose_line(nm, MILL_NM_CONTRACT_IN);
    break;
  case MILL_NM_EXPAND:
    if (f < nm->f_reflected)
      mill_nm_accept(nm, n, nm->trial, f);
    else
      mill_nm_accept(nm, n, nm->reflected, nm->f_reflected);
    mill_nm_end_iteration(nm);
    break;
  case MILL_NM_CONTRACT_OUT:
  case MILL_NM_CONTRACT_IN:
    if (nm->state == MILL_NM_CONTRACT_OUT ? f <= nm->f_reflected : f < nm->f[n]) {
      mill_nm_accept(nm, n, nm->trial, f);
      mill_nm_end_iteration(nm);
    } else {
      mill_nm_propose_shrunk(nm, 1);
    }
    break;
  default: /* MILL_NM_SHRINK */
    mill_nm_accept(nm, nm->i_vertex, nm->trial, f);
    if (nm->i_vertex < n)
      mill_nm_propose_shrunk(nm, nm->i_vertex + 1);
    else
      mill_nm_end_iteration(nm);
    break;
  }
  if (nm->status == MILL_NM_GO && nm->n_eval >= nm->options.max_eval)
    nm->status = MILL_NM_LIMIT;
  return nm->status;
}

/** Best point so far [n], a row of nm; valid until the next mill_nm_tell.
 *
 *  f  out  the point's value, MILL_NM_HUGE when no value was finite or given; f may be NULL */
MILL_HD static inline const double *mill_nm_best(const mill_nm *nm, double *f)
{
  int i_best = 0;
  for (int i = 1; i <= nm->n; ++i)
    if (nm->f[i] < nm->f[i_best])
      i_best = i;
  /* until its expansion is evaluated, the reflected point is no vertex but may be the best */
  const int pending = nm->state == MILL_NM_EXPAND && nm->f_reflected < nm->f[i_best];
  if (f)
    *f = pending ? nm->f_reflected : nm->f[i_best];
  return pending ? nm->reflected : nm->simplex[i_best];
}
