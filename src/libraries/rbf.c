/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/rbf.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include <cblas.h>
#include <lapacke.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/libraries/limits.h"
#include "kernels/math/rbf.h"

/* A column of the weighted polynomials whose part at right angles to those before it is
   smaller than this, relative to the first, counts as a combination of them. */
#define RANK_LIMIT 1e-9

/* Smoothings to choose from: powers of ten. */
#define SMOOTH_LEAST -8.0
#define SMOOTH_STEP  0.5

enum { MAX_POLY = 84 }; /* of degree 3 in 6 labels */
_Static_assert(MILL_MAX_GRID_AXIS == 6 && MILL_MAX_RBF_DEGREE == 3, "what MAX_POLY is for");

/* Matrices are column major: [n] runs fastest. */
struct mill_rbf_fit {
  int n_axis, n, m, q, degree; /* points, terms of the polynomial, outputs */
  double length[MILL_MAX_GRID_AXIS];
  double *x;        /* [n][n_axis] mapped */
  double *root;     /* [n] square roots of the weights */
  double *basis;    /* [n][n - m] eigenvectors of the kernel at right angles to the polynomials */
  double *eigen;    /* [n - m] */
  double *pole;     /* [m][n] R^-1 Q1^T: polynomial of weighted values */
  double *pole_k;   /* [m][n] the same of the kernel */
  double *smooth;   /* [q] */
  double *left_out; /* [n][q], row major */
  double *gamma;    /* [n][q] coefficients over root */
  double *beta;     /* [m][q] coefficients of the polynomial */
};

void mill_rbf_eval(const mill_rbf *rbf, const double *x, double *h)
{
  double u[MILL_MAX_GRID_AXIS], slope[MILL_MAX_GRID_AXIS];
  int exponent[MILL_MAX_GRID_AXIS] = {0};
  const size_t n_out = (size_t)rbf->n_out, n_axis = (size_t)rbf->n_axis;
  memset(h, 0, n_out * sizeof *h);
  for (size_t i = 0; i < (size_t)rbf->n_center; i++) {
    double r2 = 0;
    for (size_t l = 0; l < n_axis; l++)
      r2 += pow((x[l] - rbf->center[i * n_axis + l]) / rbf->length[l], 2);
    const double phi = r2 * sqrt(r2);
    for (size_t k = 0; k < n_out; k++)
      h[k] += phi * (double)rbf->coef[i * n_out + k];
  }
  for (size_t l = 0; l < n_axis; l++)
    u[l] = x[l] / rbf->length[l];
  for (int i = 0; i < rbf->n_poly; i++) {
    const double value = mill_rbf_monomial(rbf->n_axis, exponent, u, slope);
    const float *coef = rbf->coef + ((size_t)rbf->n_center + (size_t)i) * n_out;
    for (size_t k = 0; k < n_out; k++)
      h[k] += value * (double)coef[k];
    mill_rbf_next_monomial(rbf->n_axis, exponent);
  }
}

static int check(const mill_rbf_problem *p)
{
  const struct {
    const char *what;
    int value, low, high;
  } limit[] = {{"labels", p->n_axis, 1, MILL_MAX_GRID_AXIS},
               {"components", p->n_out, 1, MILL_MAX_WIDTH},
               {"degree of the polynomial", p->degree, 1, MILL_MAX_RBF_DEGREE},
               {"points of radial functions", p->n_point, p->n_axis + 3, MILL_MAX_RBF_CENTER}};
  for (size_t i = 0; i < sizeof limit / sizeof *limit; i++)
    MILL_CHECK(mill_expect_within(MILL_ERR_RANGE, limit[i].what, limit[i].value, limit[i].low,
                                  limit[i].high));
  if (!(p->tolerance >= 0) || !isfinite(p->tolerance))
    return MILL_ERROR(MILL_ERR_RANGE, "a tolerance of %g; it must be 0 or above", p->tolerance);
  if (p->n_smooth < 1)
    return MILL_ERROR(MILL_ERR_RANGE, "no smoothing to choose from");
  for (int i = 0; i < p->n_smooth; i++)
    MILL_CHECK(mill_expect_above_0(MILL_ERR_RANGE, "smoothing", p->smooth[i]));
  for (int l = 0; l < p->n_axis; l++)
    MILL_CHECK(mill_expect_above_0(MILL_ERR_RANGE, "length along a label", p->length[l]));
  const size_t n = (size_t)p->n_point;
  for (size_t i = 0; i < n * (size_t)p->n_axis; i++)
    if (!isfinite(p->x[i]))
      return MILL_ERROR(MILL_ERR_RANGE, "a label of point %zu is %g", i / (size_t)p->n_axis,
                        p->x[i]);
  for (size_t i = 0; i < n * (size_t)p->n_out; i++)
    if (!isfinite(p->value[i]))
      return MILL_ERROR(MILL_ERR_RANGE, "a value of point %zu is %g", i / (size_t)p->n_out,
                        p->value[i]);
  for (size_t i = 0; p->weight && i < n; i++)
    if (!(p->weight[i] > 0) || !isfinite(p->weight[i]))
      return MILL_ERROR(MILL_ERR_RANGE, "the weight of point %zu is %g; it must be above 0", i,
                        p->weight[i]);
  return MILL_OK;
}

static int lapack(const char *what, lapack_int info)
{
  if (info != 0)
    return MILL_ERROR(info == LAPACK_WORK_MEMORY_ERROR || info == LAPACK_TRANSPOSE_MEMORY_ERROR
                          ? MILL_ERR_MEMORY
                          : MILL_ERR_INTERNAL,
                      "LAPACK's %s of the radial functions ended with %d", what, (int)info);
  return MILL_OK;
}

/** Weighted monomials, qr [m][n]. */
static void fill_polynomials(const mill_rbf_fit *f, int m, double *qr)
{
  const size_t n = (size_t)f->n, n_axis = (size_t)f->n_axis;
  for (size_t i = 0; i < n; i++) {
    double u[MILL_MAX_GRID_AXIS], slope[MILL_MAX_GRID_AXIS];
    int exponent[MILL_MAX_GRID_AXIS] = {0};
    for (size_t l = 0; l < n_axis; l++)
      u[l] = f->x[i * n_axis + l] / f->length[l];
    for (int j = 0; j < m; j++) {
      qr[(size_t)j * n + i] = f->root[i] * mill_rbf_monomial(f->n_axis, exponent, u, slope);
      mill_rbf_next_monomial(f->n_axis, exponent);
    }
  }
}

/** QR of the polynomials of the highest degree that the points determine. */
static int factor_polynomials(mill_rbf_fit *f, int degree, double **qr, double **tau)
{
  const size_t n = (size_t)f->n;
  for (f->degree = degree;; f->degree--) {
    int sound = 1;
    f->m = mill_rbf_n_poly(f->n_axis, f->degree);
    if (f->m + 1 < f->n) {
      mill_free(*qr);
      mill_free(*tau);
      *qr = *tau = NULL;
      MILL_CHECK(MILL_ALLOC(n * (size_t)f->m, qr));
      MILL_CHECK(MILL_ALLOC(f->m, tau));
      fill_polynomials(f, f->m, *qr);
      MILL_CHECK(lapack("QR", LAPACKE_dgeqrf(LAPACK_COL_MAJOR, f->n, f->m, *qr, f->n, *tau)));
      for (size_t j = 0; j < (size_t)f->m; j++)
        sound &= fabs((*qr)[j * n + j]) > RANK_LIMIT * fabs(**qr);
      if (sound)
        return MILL_OK;
    }
    if (f->degree == 1)
      return MILL_ERROR(
          MILL_ERR_RANGE,
          "the points' labels lie in a plane or on a line, so a label follows from the "
          "others: leave labels out or add points");
  }
  return MILL_OK;
}

/** The weighted kernel D K D, [n][n]. */
static void fill_kernel(const mill_rbf_fit *f, double *kernel)
{
  const size_t n = (size_t)f->n, n_axis = (size_t)f->n_axis;
  for (size_t j = 0; j < n; j++)
    for (size_t i = 0; i <= j; i++) {
      double r2 = 0;
      for (size_t l = 0; l < n_axis; l++) {
        const double u = (f->x[i * n_axis + l] - f->x[j * n_axis + l]) / f->length[l];
        r2 += u * u;
      }
      kernel[i * n + j] = kernel[j * n + i] = f->root[i] * f->root[j] * r2 * sqrt(r2);
    }
}

/** Compute the part that depends on points and weights only: pole, pole_k, basis, eigen. */
static int decompose(mill_rbf_fit *f, int degree)
{
  int err = MILL_OK;
  double *qr = NULL, *tau = NULL, *kernel = NULL;
  MILL_TRY(factor_polynomials(f, degree, &qr, &tau));
  const int n = f->n, m = f->m, k = n - m;
  const size_t pitch = (size_t)n;
  MILL_TRY(MILL_ALLOC(pitch * pitch, &kernel));
  MILL_TRY(MILL_ALLOC((size_t)m * pitch, &f->pole));
  MILL_TRY(MILL_ALLOC((size_t)m * pitch, &f->pole_k));
  MILL_TRY(MILL_ALLOC((size_t)k * pitch, &f->basis));
  MILL_TRY(MILL_ALLOC(k, &f->eigen));

  /* pole = R^-1 Q1^T as rows: Q1 R^-T in columns */
  for (int j = 0; j < m; j++)
    f->pole[(size_t)j * pitch + (size_t)j] = 1;
  MILL_TRY(
      lapack("Q", LAPACKE_dormqr(LAPACK_COL_MAJOR, 'L', 'N', n, m, m, qr, n, tau, f->pole, n)));
  cblas_dtrsm(CblasColMajor, CblasRight, CblasUpper, CblasTrans, CblasNonUnit, n, m, 1, qr, n,
              f->pole, n);
  fill_kernel(f, kernel);
  cblas_dgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, n, m, n, 1, kernel, n, f->pole, n, 0,
              f->pole_k, n);

  /* the kernel at right angles to the polynomials: the last k rows and columns of Q^T K Q */
  MILL_TRY(lapack("Q", LAPACKE_dormqr(LAPACK_COL_MAJOR, 'L', 'T', n, n, m, qr, n, tau, kernel, n)));
  MILL_TRY(lapack("Q", LAPACKE_dormqr(LAPACK_COL_MAJOR, 'R', 'N', n, n, m, qr, n, tau, kernel, n)));
  double *block = kernel + (size_t)m * pitch + (size_t)m;
  MILL_TRY(
      lapack("eigenvectors", LAPACKE_dsyevd(LAPACK_COL_MAJOR, 'V', 'L', k, block, n, f->eigen)));
  for (int j = 0; j < k; j++) {
    f->eigen[j] = fmax(f->eigen[j], 0); /* |x|^3 is positive there but for rounding */
    memcpy(f->basis + (size_t)j * pitch + (size_t)m, block + (size_t)j * pitch,
           (size_t)k * sizeof *block);
  }
  MILL_TRY(
      lapack("Q", LAPACKE_dormqr(LAPACK_COL_MAJOR, 'L', 'N', n, k, m, qr, n, tau, f->basis, n)));
done:
  MILL_FREE(qr, tau, kernel);
  return err;
}

/** Room for the search of smoothings. */
typedef struct search {
  double *in_basis; /* [q][k] the values in the basis */
  double *scaled;   /* [q][k] */
  double *residual; /* [q][n] of the points left out, times root */
  double *sum;      /* [n_smooth][q] of their squares */
  double *error;    /* [n_smooth][q] standard error of that sum */
} search;

static void search_clear(search *s)
{
  MILL_FREE(s->in_basis, s->scaled, s->residual, s->sum, s->error);
}

/** Residuals of the points left out at one smoothing. */
static void leave_out(const mill_rbf_fit *f, double smooth, search *s)
{
  const int n = f->n, q = f->q, k = n - f->m;
  const size_t pitch = (size_t)n, width = (size_t)q;
  /* residuals are basis x factor x in_basis, and 1 - H_ii the diagonal of basis factor basis^T */
  for (size_t o = 0; o < width; o++)
    for (size_t j = 0; j < (size_t)k; j++)
      s->scaled[o * (size_t)k + j] =
          smooth / (f->eigen[j] + smooth) * s->in_basis[o * (size_t)k + j];
  cblas_dgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, n, q, k, 1, f->basis, n, s->scaled, k, 0,
              s->residual, n);
  for (size_t i = 0; i < pitch; i++) {
    double free_part = 0;
    for (size_t j = 0; j < (size_t)k; j++)
      free_part += smooth / (f->eigen[j] + smooth) * pow(f->basis[j * pitch + i], 2);
    for (size_t o = 0; o < width; o++)
      s->residual[o * pitch + i] /= fmax(free_part, DBL_MIN);
  }
}

/** Each output's smoothing: the largest whose sum of squares is not significantly more than the
 *  least one. */
static int choose_smooth(mill_rbf_fit *f, const mill_rbf_problem *p, search *s)
{
  const size_t pitch = (size_t)f->n, width = (size_t)f->q;
  for (size_t i_smooth = 0; i_smooth < (size_t)p->n_smooth; i_smooth++) {
    leave_out(f, p->smooth[i_smooth], s);
    for (size_t o = 0; o < width; o++) {
      const double *r = s->residual + o * pitch;
      double sum = 0, spread = 0;
      for (size_t i = 0; i < pitch; i++)
        sum += r[i] * r[i];
      for (size_t i = 0; i < pitch; i++)
        spread += pow(r[i] * r[i] - sum / (double)pitch, 2);
      s->sum[i_smooth * width + o] = sum;
      s->error[i_smooth * width + o] = sqrt(spread);
    }
  }
  for (size_t o = 0; o < width; o++) {
    size_t best = 0;
    for (size_t i = 1; i < (size_t)p->n_smooth; i++)
      if (s->sum[i * width + o] < s->sum[best * width + o])
        best = i;
    const double limit = s->sum[best * width + o] + p->tolerance * s->error[best * width + o];
    if (!isfinite(limit))
      return MILL_ERROR(MILL_ERR_RANGE, "component %zu has no finite leave-one-out error", o);
    f->smooth[o] = p->smooth[best];
    for (size_t i = 0; i < (size_t)p->n_smooth; i++)
      if (s->sum[i * width + o] <= limit && p->smooth[i] > f->smooth[o])
        f->smooth[o] = p->smooth[i];
  }
  for (int i_smooth = 0; i_smooth < p->n_smooth; i_smooth++) {
    leave_out(f, p->smooth[i_smooth], s);
    for (size_t o = 0; o < width; o++)
      for (size_t i = 0; i < pitch && f->smooth[o] == p->smooth[i_smooth]; i++)
        f->left_out[i * width + o] = s->residual[o * pitch + i] / f->root[i];
  }
  return MILL_OK;
}

/** Choose each output's smoothing and solve for the coefficients. */
static int solve(mill_rbf_fit *f, const mill_rbf_problem *p)
{
  int err = MILL_OK;
  const int n = f->n, m = f->m, q = f->q, k = n - m;
  const size_t pitch = (size_t)n, width = (size_t)q, n_choice = (size_t)p->n_smooth * width;
  double *value = NULL;
  search s = {0};
  MILL_TRY(MILL_ALLOC(pitch * width, &value)); /* [q][n], times root */
  MILL_TRY(MILL_ALLOC((size_t)k * width, &s.in_basis));
  MILL_TRY(MILL_ALLOC((size_t)k * width, &s.scaled));
  MILL_TRY(MILL_ALLOC(pitch * width, &s.residual));
  MILL_TRY(MILL_ALLOC(n_choice, &s.sum));
  MILL_TRY(MILL_ALLOC(n_choice, &s.error));
  MILL_TRY(MILL_ALLOC(q, &f->smooth));
  MILL_TRY(MILL_ALLOC(pitch * width, &f->left_out));
  MILL_TRY(MILL_ALLOC(pitch * width, &f->gamma));
  MILL_TRY(MILL_ALLOC((size_t)m * width, &f->beta));
  for (size_t i = 0; i < pitch; i++)
    for (size_t o = 0; o < width; o++)
      value[o * pitch + i] = f->root[i] * p->value[i * width + o];
  cblas_dgemm(CblasColMajor, CblasTrans, CblasNoTrans, k, q, n, 1, f->basis, n, value, n, 0,
              s.in_basis, k);
  MILL_TRY(choose_smooth(f, p, &s));
  for (size_t o = 0; o < width; o++)
    for (size_t j = 0; j < (size_t)k; j++)
      s.scaled[o * (size_t)k + j] = s.in_basis[o * (size_t)k + j] / (f->eigen[j] + f->smooth[o]);
  cblas_dgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, n, q, k, 1, f->basis, n, s.scaled, k, 0,
              f->gamma, n);
  /* polynomial of what the kernel leaves; the smoothing's part is at right angles to it */
  cblas_dgemm(CblasColMajor, CblasTrans, CblasNoTrans, m, q, n, 1, f->pole, n, value, n, 0, f->beta,
              m);
  cblas_dgemm(CblasColMajor, CblasTrans, CblasNoTrans, m, q, n, -1, f->pole_k, n, f->gamma, n, 1,
              f->beta, m);
done:
  mill_free(value);
  search_clear(&s);
  return err;
}

int mill_rbf_smoothings(double given, double smooth[MILL_RBF_MAX_SMOOTH])
{
  smooth[0] = given;
  for (int i = 0; i < MILL_RBF_MAX_SMOOTH && !(given > 0); i++)
    smooth[i] = pow(10, SMOOTH_LEAST + SMOOTH_STEP * i);
  return given > 0 ? 1 : MILL_RBF_MAX_SMOOTH;
}

int mill_rbf_fit_create(const mill_rbf_problem *problem, mill_rbf_fit **out)
{
  int err = MILL_OK;
  mill_rbf_fit *f = NULL;
  *out = NULL;
  MILL_TRY(check(problem));
  MILL_TRY(MILL_ALLOC(1, &f));
  f->n_axis = problem->n_axis;
  f->n = problem->n_point;
  f->q = problem->n_out;
  memcpy(f->length, problem->length, (size_t)f->n_axis * sizeof *f->length);
  MILL_TRY(MILL_ALLOC((size_t)f->n * (size_t)f->n_axis, &f->x));
  memcpy(f->x, problem->x, (size_t)f->n * (size_t)f->n_axis * sizeof *f->x);
  MILL_TRY(MILL_ALLOC(f->n, &f->root));
  for (int i = 0; i < f->n; i++)
    f->root[i] = problem->weight ? sqrt(problem->weight[i]) : 1;
  MILL_TRY(decompose(f, problem->degree));
  MILL_TRY(solve(f, problem));
  *out = f;
  f = NULL;
done:
  mill_rbf_fit_destroy(f);
  return err;
}

void mill_rbf_fit_destroy(mill_rbf_fit *fit)
{
  if (!fit)
    return;
  MILL_FREE(fit->x, fit->root, fit->basis, fit->eigen, fit->pole, fit->pole_k, fit->smooth,
            fit->left_out, fit->gamma, fit->beta, fit);
}

int mill_rbf_fit_degree(const mill_rbf_fit *fit)
{
  return fit->degree;
}

int mill_rbf_fit_n_poly(const mill_rbf_fit *fit)
{
  return fit->m;
}

const double *mill_rbf_fit_smooth(const mill_rbf_fit *fit)
{
  return fit->smooth;
}

const double *mill_rbf_fit_left_out(const mill_rbf_fit *fit)
{
  return fit->left_out;
}

double mill_rbf_fit_residual(const mill_rbf_fit *fit, int i_point, int i_out)
{
  const size_t at = (size_t)i_out * (size_t)fit->n + (size_t)i_point;
  return fit->smooth[i_out] * fit->gamma[at] / fit->root[i_point];
}

int mill_rbf_fit_export(const mill_rbf_fit *fit, mill_rbf *rbf)
{
  int err = MILL_OK;
  double *coef = NULL;
  const size_t n_axis = (size_t)fit->n_axis, n_row = (size_t)fit->n + (size_t)fit->m;
  const size_t size = n_row * (size_t)fit->q;
  memset(rbf, 0, sizeof *rbf);
  if (size > MILL_MAX_RBF_COEF)
    MILL_FAIL(MILL_ERR_RANGE,
              "radial functions with %zu coefficients, at most %d: use fewer points or components",
              size, MILL_MAX_RBF_COEF);
  MILL_TRY(MILL_ALLOC(size, &coef));
  mill_rbf_fit_coef(fit, coef);
  rbf->n_axis = fit->n_axis;
  rbf->n_center = fit->n;
  rbf->degree = fit->degree;
  rbf->n_poly = fit->m;
  rbf->n_out = fit->q;
  memcpy(rbf->length, fit->length, n_axis * sizeof *rbf->length);
  MILL_TRY(MILL_ALLOC((size_t)fit->n * n_axis, &rbf->center));
  memcpy(rbf->center, fit->x, (size_t)fit->n * n_axis * sizeof *rbf->center);
  MILL_TRY(MILL_ALLOC(size, &rbf->coef));
  for (size_t i = 0; i < size; i++) {
    /* written so that NaN fails */
    if (!(fabs(coef[i]) <= (double)FLT_MAX))
      MILL_FAIL(MILL_ERR_RANGE, "component %zu of radial functions has the coefficient %g",
                i % (size_t)fit->q, coef[i]);
    rbf->coef[i] = (float)coef[i];
  }
done:
  mill_free(coef);
  if (err != MILL_OK)
    mill_rbf_clear(rbf);
  return err;
}

void mill_rbf_fit_coef(const mill_rbf_fit *fit, double *coef)
{
  const size_t pitch = (size_t)fit->n, width = (size_t)fit->q;
  for (size_t o = 0; o < width; o++) {
    for (size_t j = 0; j < pitch; j++)
      coef[j * width + o] = fit->root[j] * fit->gamma[o * pitch + j];
    for (size_t j = 0; j < (size_t)fit->m; j++)
      coef[(pitch + j) * width + o] = fit->beta[o * (size_t)fit->m + j];
  }
}
