/* SPDX-License-Identifier: BSD-3-Clause */
/* Solution of the last layer, which is linear, by least squares; the hidden layers are fixed. */
#include <string.h>

#include <cblas.h>
#include <lapacke.h>

#include "src/train/train_network.h"

/* Ridges to try, as fractions of the normal equations' mean eigenvalue. */
static const double ridge[] = {1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12};
enum { N_RIDGE = sizeof ridge / sizeof *ridge, ROWS = 256 };

/* Normal equations for a change of the last layer's weights, fitted to the residuals `rest`.
 * They use the layer's inputs h less the mean of h, so that the ridge does not act on the bias. */
typedef struct normal {
  int n, width, n_out;
  float *h;          /* [n][width] inputs of the layer */
  double *mean_h;    /* [width] means of h over the models */
  double *mean_rest; /* [n_out] mean residuals */
  /* [width][width] upper half of the sum of h h^T; after solve, its eigenvectors in columns */
  double *vector;
  double *value; /* [width] eigenvalues */
  double *right; /* [width][n_out] transposed eigenvectors times the sum of h rest^T */
  /* [width][n_out] sum of h rest^T; after with_ridge, [n_out][width] change of the weights */
  double *change;
} normal;

/* Allocate the arrays, with zeros.  The caller frees them, also after a failure. */
static int allocate(const mill_train_problem *p, int layer_width, normal *q)
{
  const size_t width = (size_t)layer_width, n_out = (size_t)p->n_out;
  q->n = p->n_train;
  q->width = layer_width;
  q->n_out = p->n_out;
  MILL_CHECK(MILL_ALLOC((size_t)q->n * width, &q->h));
  MILL_CHECK(MILL_ALLOC(width, &q->mean_h));
  MILL_CHECK(MILL_ALLOC(n_out, &q->mean_rest));
  MILL_CHECK(MILL_ALLOC(width * width, &q->vector));
  MILL_CHECK(MILL_ALLOC(width, &q->value));
  MILL_CHECK(MILL_ALLOC(width * n_out, &q->right));
  return MILL_ALLOC(width * n_out, &q->change);
}

/* Sum h h^T (into q->vector) and h rest^T (into q->change) over the training models.  h: inputs of
 * the last layer less their mean; rest: residuals of the trained layer `weight`, `bias`. */
static int add_up(const mill_train_problem *p, const float *weight, const float *bias, normal *q)
{
  const size_t width = (size_t)q->width, n_out = (size_t)q->n_out;
  MILL_OWNED double *weight64 = NULL, *rest = NULL, *h = NULL; /* rest, h: of ROWS models */
  MILL_OWNED const float **row = NULL;
  int model[ROWS];
  MILL_CHECK(MILL_ALLOC(ROWS * width, &h));
  MILL_CHECK(MILL_ALLOC(ROWS * n_out, &rest));
  MILL_CHECK(MILL_ALLOC(n_out * width, &weight64));
  MILL_CHECK(mill_alloc_bytes(ROWS, sizeof *row, (void **)&row));
  for (size_t i = 0; i < n_out * width; i++)
    weight64[i] = (double)weight[i];
  for (size_t i = 0; i < (size_t)q->n * width; i++)
    q->mean_h[i % width] += (double)q->h[i] / q->n;
  for (int i = 0; i < q->n; i += ROWS) {
    const int n = q->n - i < ROWS ? q->n - i : ROWS;
    for (int k = 0; k < n; k++)
      model[k] = i + k;
    MILL_CHECK(p->rows(p->context, n, model, row));
    for (int k = 0; k < n; k++) {
      for (size_t j = 0; j < width; j++)
        h[(size_t)k * width + j] = (double)q->h[(size_t)(i + k) * width + j];
      for (size_t j = 0; j < n_out; j++)
        rest[(size_t)k * n_out + j] = (double)row[k][j] - (double)bias[j];
    }
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, q->n_out, q->width, -1, h, q->width,
                weight64, q->width, 1, rest, q->n_out); /* rest -= h weight^T */
    for (size_t k = 0; k < (size_t)n * n_out; k++)
      q->mean_rest[k % n_out] += rest[k] / q->n;
    for (size_t k = 0; k < (size_t)n * width; k++)
      h[k] -= q->mean_h[k % width];
    cblas_dsyrk(CblasRowMajor, CblasUpper, CblasTrans, q->width, n, 1, h, q->width, 1, q->vector,
                q->width);
    /* h has mean 0, so the mean of the residuals adds nothing */
    cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, q->width, q->n_out, n, 1, h, q->width,
                rest, q->n_out, 1, q->change, q->n_out);
  }
  return MILL_OK;
}

/* Replace q->vector, a sum of h h^T, by its eigenvectors.  q->right: q->change in their basis. */
static int solve(normal *q)
{
  const lapack_int info =
      LAPACKE_dsyevd(LAPACK_ROW_MAJOR, 'V', 'U', q->width, q->vector, q->width, q->value);
  if (info != 0)
    return MILL_ERROR(info < -1000 ? MILL_ERR_MEMORY : MILL_ERR_INTERNAL,
                      "LAPACK failed on the last layer (info %d): please report it", (int)info);
  cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, q->width, q->n_out, q->width, 1, q->vector,
              q->width, q->change, q->n_out, 0, q->right, q->n_out);
  return MILL_OK;
}

/* Solve the normal equations with a ridge of `part` times their mean eigenvalue.  Add the solution
 * to the trained layer weight0, bias0; the result is weight, bias. */
static int with_ridge(normal *q, double part, const float *weight0, const float *bias0,
                      float *weight, float *bias)
{
  const size_t width = (size_t)q->width, n_out = (size_t)q->n_out;
  double trace = 0; /* eigenvalues below 0 are rounding errors of 0 */
  MILL_OWNED double *scaled = NULL;
  MILL_CHECK(MILL_ALLOC(width * width, &scaled));
  for (size_t k = 0; k < width; k++)
    trace += fmax(q->value[k], 0);
  const double add = part * trace / (double)width;
  for (size_t i = 0; i < width; i++)
    for (size_t k = 0; k < width; k++) {
      const double divisor = fmax(q->value[k], 0) + add;
      scaled[i * width + k] = divisor > 0 ? q->vector[i * width + k] / divisor : 0;
    }
  /* change = (vector diag(1 / (value + add)) right)^T */
  cblas_dgemm(CblasRowMajor, CblasTrans, CblasTrans, q->n_out, q->width, q->width, 1, q->right,
              q->n_out, scaled, q->width, 0, q->change, q->width);
  for (size_t j = 0; j < n_out; j++) {
    double shift = q->mean_rest[j]; /* the bias makes the mean residual 0 */
    for (size_t i = 0; i < width; i++) {
      shift -= q->change[j * width + i] * q->mean_h[i];
      weight[j * width + i] = (float)((double)weight0[j * width + i] + q->change[j * width + i]);
    }
    bias[j] = (float)((double)bias0[j] + shift);
  }
  return MILL_OK;
}

/* Rank 0: set up the normal equations and diagonalise them. */
static int prepare(const mill_train_ops *ops, const mill_train_settings *settings,
                   const mill_train_problem *problem, const mill_train_shape *shape,
                   const float *param, normal *q)
{
  MILL_OWNED int *model = NULL;
  const int last = shape->n_layer - 1;
  MILL_CHECK(allocate(problem, shape->n_in[last], q));
  MILL_CHECK(MILL_ALLOC(q->n, &model));
  for (int i = 0; i < q->n; i++)
    model[i] = i;
  MILL_CHECK(mill_train_hidden(ops, settings, problem, param, q->n, model, q->h));
  MILL_CHECK(add_up(problem, param + shape->weight[last], param + shape->bias[last], q));
  return solve(q);
}

/* Compute the validation loss of these parameters.  Collective. */
static int validate(const mill_mpi *mpi, mill_train_team *team, const float *param, double *loss)
{
  MILL_CHECK(mill_mpi_agree(mpi, mill_train_team_bind(team, param)));
  return mill_train_team_validate(mpi, team, loss);
}

int mill_train_solve_last(const mill_mpi *mpi, const mill_train_ops *ops,
                          const mill_train_settings *settings, const mill_train_problem *problem,
                          mill_train_state *state, double *before, double *after)
{
  normal q = {0};
  mill_train_shape shape;
  MILL_AT_END(mill_train_team_destroy_at) mill_train_team *team = NULL;
  /* tried: parameters under test; first: the last layer before solving */
  float *tried = NULL, *first = NULL;
  mill_train_shape_of(settings, problem->n_in, problem->n_out, &shape);
  /* offsets in the parameters: of the last layer's weights, and of its biases, which follow them */
  const size_t weights = shape.weight[shape.n_layer - 1], biases = shape.bias[shape.n_layer - 1];
  const size_t n_last = shape.n_param - weights;
  int err = MILL_ALLOC(shape.n_param, &tried);
  MILL_STEP(MILL_ALLOC(n_last, &first));
  if (err == MILL_OK && mpi->rank == 0)
    err = prepare(ops, settings, problem, &shape, state->best, &q);
  MILL_STEP(
      mill_train_team_create(ops, settings, problem, mill_train_room(settings, problem->n), &team));
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_TRY(validate(mpi, team, state->best, before));
  *after = *before;
  memcpy(tried, state->best, shape.n_param * sizeof *tried);
  memcpy(first, state->best + weights, n_last * sizeof *first);
  for (int i = 0; i < N_RIDGE; i++) {
    double loss = 0;
    if (mpi->rank == 0)
      err = with_ridge(&q, ridge[i], first, first + (biases - weights), tried + weights,
                       tried + biases);
    MILL_TRY(mill_mpi_agree(mpi, err));
    MILL_MPI(MPI_Bcast(tried + weights, (int)n_last, MPI_FLOAT, 0, mpi->comm));
    MILL_TRY(validate(mpi, team, tried, &loss));
    if (loss < *after) {
      *after = loss;
      memcpy(state->best + weights, tried + weights, n_last * sizeof *tried);
    }
  }
done:
  MILL_FREE(tried, first, q.h, q.mean_h, q.mean_rest, q.vector, q.value, q.right, q.change);
  return err;
}
