/* SPDX-License-Identifier: BSD-3-Clause */
/* Training on the CPU: forward and backward passes of the network over a batch of models. */
#include <string.h>

#include <cblas.h>
#include <lapacke.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/train/train_cpu.h"

/* Threads take blocks of ROWS models, NEURONS neurons, CHUNK parameters, or n_wide outputs of the
   last layer. The blocks, and so the results, do not depend on the number of threads. */
enum { ROWS = 64, WIDE = 512, NEURONS = 64, CHUNK = 16384, FEW_BLOCK = 4 };

struct mill_train_work {
  mill_train_net net;
  int n_block, n_wide;
  float *param, *m, *v;         /* the caller's */
  float *act[MILL_MAX_LAYER];   /* [n_room][n_in] inputs of a layer */
  float *slope[MILL_MAX_LAYER]; /* [n_room][n_out] slope of a hidden layer's SiLU */
  float *delta[MILL_MAX_LAYER]; /* [n_room][n_out] d loss / d (input of the SiLU) */
  float *out;                   /* [n_block][n_room][n_wide] outputs, then d loss / d output */
  float *part;                  /* [n_block][n_room][n_in] d loss / d last input, by block */
  double *row_loss;             /* [n_block][n_room] */
  double loss;                  /* sum of the losses since take_loss */
  float *gradient;              /* [n_param] */
};

static int least(int a, int b)
{
  return a < b ? a : b;
}

/* Compute c [m][n] = a [m][k] times b [k][n]; transpose_*: the factor is stored transposed.
   ld*: numbers from one row to the next in memory. */
static void gemm(int transpose_a, int transpose_b, int m, int n, int k, const float *a, int lda,
                 const float *b, int ldb, float *c, int ldc)
{
  cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
              transpose_b ? CblasTrans : CblasNoTrans, m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void destroy(mill_train_work *w)
{
  if (!w)
    return;
  for (int l = 0; l < MILL_MAX_LAYER; l++)
    MILL_FREE(w->act[l], w->slope[l], w->delta[l]);
  MILL_FREE(w->out, w->part, w->row_loss, w->gradient, w);
}

MILL_CLOSER(mill_train_work, destroy)

/* Allocate the work space, with n_block blocks of n_wide outputs of the last layer. */
static int create(const mill_train_net *net, mill_train_work **out)
{
  MILL_AT_END(destroy_at) mill_train_work *w = NULL;
  *out = NULL;
  MILL_CHECK(MILL_ALLOC(1, &w));
  w->net = *net;
  const mill_train_shape *s = &w->net.shape;
  const int last = s->n_layer - 1, n_out = s->n_out[last];
  const size_t room = (size_t)net->n_room;
  /* a block has WIDE outputs at most; there are FEW_BLOCK or more blocks, or one per output */
  const int few = least(FEW_BLOCK, n_out), need = (n_out + WIDE - 1) / WIDE;
  const int wanted = need < FEW_BLOCK ? few : need;
  w->n_wide = (n_out + wanted - 1) / wanted;
  w->n_block = (n_out + w->n_wide - 1) / w->n_wide; /* fewer than wanted if n_wide was rounded up */
  for (int l = 0; l <= last; l++)
    MILL_CHECK(MILL_ALLOC(room * (size_t)s->n_in[l], &w->act[l]));
  for (int l = 0; l < last; l++) {
    MILL_CHECK(MILL_ALLOC(room * (size_t)s->n_out[l], &w->slope[l]));
    MILL_CHECK(MILL_ALLOC(room * (size_t)s->n_out[l], &w->delta[l]));
  }
  const size_t n_block = (size_t)w->n_block;
  MILL_CHECK(MILL_ALLOC(n_block * room * (size_t)w->n_wide, &w->out));
  MILL_CHECK(MILL_ALLOC(n_block * room * (size_t)s->n_in[last], &w->part));
  MILL_CHECK(MILL_ALLOC(n_block * room, &w->row_loss));
  MILL_CHECK(MILL_ALLOC(s->n_param, &w->gradient));
  return MILL_GIVE(&w, out);
}

static int bind(mill_train_work *w, float *param, float *m, float *v)
{
  w->param = param;
  w->m = m;
  w->v = v;
  return MILL_OK;
}

/* fetch and renew: nothing to copy, since the CPU works in the caller's arrays */
static int stay(mill_train_work *w)
{
  (void)w;
  return MILL_OK;
}

/* ---- forwards -------------------------------------------------------------------------------- */

/* Compute the hidden layers of these models: fill act (inputs of layers) and slope (of SiLU). */
static void forward(mill_train_work *w, const mill_train_rows *rows)
{
  const mill_train_shape *s = &w->net.shape;
  const int last = s->n_layer - 1;
  const size_t n_label = (size_t)s->n_in[0];
  for (int i = 0; i < rows->n; i++)
    memcpy(w->act[0] + (size_t)i * n_label, rows->x[i], n_label * sizeof *w->act[0]);
#pragma omp parallel for schedule(static) num_threads(w->net.n_thread)
  for (int i = 0; i < rows->n; i += ROWS) {
    const int n = least(ROWS, rows->n - i);
    for (int l = 0; l < last; l++) {
      const size_t to = (size_t)i * (size_t)s->n_out[l];
      gemm(0, 1, n, s->n_out[l], s->n_in[l], w->act[l] + (size_t)i * (size_t)s->n_in[l], s->n_in[l],
           w->param + s->weight[l], s->n_in[l], w->act[l + 1] + to, s->n_out[l]);
      mill_train_cpu_activate(n, s->n_out[l], w->param + s->bias[l], w->act[l + 1] + to,
                              w->slope[l] + to);
    }
  }
}

static int hidden(mill_train_work *w, const mill_train_rows *rows, float *h)
{
  const int last = w->net.shape.n_layer - 1;
  forward(w, rows);
  memcpy(h, w->act[last], (size_t)rows->n * (size_t)w->net.shape.n_in[last] * sizeof *h);
  return MILL_OK;
}

/* Compute outputs and losses of block b of the last layer. If n_all (models of all ranks) > 0, also
 * compute the gradient in the block's parameters, and its part of d loss / d (last input). */
static void last_layer(mill_train_work *w, int b, const mill_train_rows *rows, int n_all)
{
  const mill_train_shape *s = &w->net.shape;
  const int last = s->n_layer - 1, width = s->n_in[last], first = b * w->n_wide, n_row = rows->n;
  const int n = least(w->n_wide, s->n_out[last] - first);
  const float *weight = w->param + s->weight[last] + (size_t)first * (size_t)width;
  float *out = w->out + (size_t)b * (size_t)w->net.n_room * (size_t)w->n_wide;
  gemm(0, 1, n_row, n, width, w->act[last], width, weight, width, out, w->n_wide);
  const mill_train_loss_task task = {.kind = w->net.loss,
                                     .n_row = n_row,
                                     .n = n,
                                     .ld = w->n_wide,
                                     .first = first,
                                     .delta = w->net.huber,
                                     .factor = n_all > 0 ? 1 / (w->net.n_norm * n_all) : 0,
                                     .out = out,
                                     .bias = w->param + s->bias[last] + first,
                                     .scale = w->net.scale + first,
                                     .target = rows->target,
                                     .row_loss = w->row_loss + (size_t)b * (size_t)w->net.n_room};
  mill_train_cpu_loss(&task); /* out becomes factor * d loss / d output */
  if (n_all == 0)
    return;
  float *part = w->part + (size_t)b * (size_t)w->net.n_room * (size_t)width;
  /* gradient in the weights, then in the biases, then in the input */
  gemm(1, 0, n, width, n_row, out, w->n_wide, w->act[last], width,
       w->gradient + s->weight[last] + (size_t)first * (size_t)width, width);
  mill_train_cpu_sum_rows(n_row, n, out, w->n_wide, w->gradient + s->bias[last] + first);
  gemm(0, 0, n_row, width, n, out, w->n_wide, weight, width, part, width);
}

/* Run last_layer for all blocks; return the sum of the losses, in a fixed order. */
static double last_layers(mill_train_work *w, const mill_train_rows *rows, int n_all)
{
  double loss = 0;
#pragma omp parallel for schedule(static) num_threads(w->net.n_thread)
  for (int b = 0; b < w->n_block; b++)
    last_layer(w, b, rows, n_all);
  for (int i = 0; i < rows->n; i++)
    for (int b = 0; b < w->n_block; b++)
      loss += w->row_loss[(size_t)b * (size_t)w->net.n_room + (size_t)i];
  return loss;
}

static int losses(mill_train_work *w, const mill_train_rows *rows, double *loss)
{
  forward(w, rows);
  *loss = last_layers(w, rows, 0);
  return MILL_OK;
}

/* ---- backwards ------------------------------------------------------------------------------- */

/* Compute delta, d loss / d (input of the SiLU), of every hidden layer for models [i, i + n). */
static void backward(mill_train_work *w, int i, int n)
{
  const mill_train_shape *s = &w->net.shape;
  const int last = s->n_layer - 1;
  const size_t width = (size_t)s->n_in[last], room = (size_t)w->net.n_room;
  float *delta = w->delta[last - 1] + (size_t)i * width;
  /* d loss / d (last layer's input): the sum of all blocks' parts */
  memcpy(delta, w->part + (size_t)i * width, (size_t)n * width * sizeof *delta);
  for (size_t b = 1; b < (size_t)w->n_block; b++) {
    const float *part = w->part + (b * room + (size_t)i) * width;
    for (size_t k = 0; k < (size_t)n * width; k++)
      delta[k] += part[k];
  }
  for (int l = last - 1; l >= 0; l--) {
    const size_t n_out = (size_t)s->n_out[l], n_in = (size_t)s->n_in[l];
    delta = w->delta[l] + (size_t)i * n_out;
    mill_train_cpu_multiply((size_t)n * n_out, w->slope[l] + (size_t)i * n_out, delta);
    if (l > 0)
      gemm(0, 0, n, s->n_in[l], s->n_out[l], delta, s->n_out[l], w->param + s->weight[l],
           s->n_in[l], w->delta[l - 1] + (size_t)i * n_in, s->n_in[l]);
  }
}

/* mill_train_ops.slopes: threads share the models, then the neurons of all hidden layers; a task is
 * the gradient in weights and biases of up to NEURONS neurons of one layer.  last_layers has
 * computed the gradient of the last layer. */
static int slopes(mill_train_work *w, const mill_train_rows *rows, int n_all)
{
  const mill_train_shape *s = &w->net.shape;
  const int last = s->n_layer - 1, n_thread = w->net.n_thread;
  int n_task = 0;
  if (rows->n == 0) { /* the batch has fewer models than there are ranks */
    memset(w->gradient, 0, s->n_param * sizeof *w->gradient);
    return MILL_OK;
  }
  forward(w, rows);
  w->loss += last_layers(w, rows, n_all);
#pragma omp parallel for schedule(static) num_threads(n_thread)
  for (int i = 0; i < rows->n; i += ROWS)
    backward(w, i, least(ROWS, rows->n - i));
  for (int l = 0; l < last; l++)
    n_task += (s->n_out[l] + NEURONS - 1) / NEURONS;
#pragma omp parallel for schedule(static) num_threads(n_thread)
  for (int task = 0; task < n_task; task++) {
    int l = 0, first = task * NEURONS; /* the task's layer, and its first neuron there */
    for (; first >= s->n_out[l]; l++)
      first -= (s->n_out[l] + NEURONS - 1) / NEURONS * NEURONS;
    const int n = least(NEURONS, s->n_out[l] - first);
    const float *delta = w->delta[l] + first; /* gradient in the weights: delta^T act */
    gemm(1, 0, n, s->n_in[l], rows->n, delta, s->n_out[l], w->act[l], s->n_in[l],
         w->gradient + s->weight[l] + (size_t)first * (size_t)s->n_in[l], s->n_in[l]);
    mill_train_cpu_sum_rows(rows->n, n, delta, s->n_out[l], w->gradient + s->bias[l] + first);
  }
  return MILL_OK;
}

static int take_loss(mill_train_work *w, double *loss)
{
  *loss = w->loss;
  w->loss = 0;
  return MILL_OK;
}

static int gradient(mill_train_work *w, float **out)
{
  *out = w->gradient;
  return MILL_OK;
}

static int adam(mill_train_work *w, const mill_train_adam *a, size_t first, size_t n,
                const float *slope)
{
  const float *g = slope ? slope : w->gradient + first;
#pragma omp parallel for schedule(static) num_threads(w->net.n_thread)
  for (size_t i = 0; i < n; i += CHUNK) {
    const size_t n_here = n - i < CHUNK ? n - i : CHUNK, at = first + i;
    mill_train_cpu_adam(n_here, a, g + i, w->param + at, w->m + at, w->v + at);
  }
  return MILL_OK;
}

/* ---- principal directions ---- */

/* mill_train_ops.directions (principal components), from x x^T, which is smaller than x^T x. */
static int directions(int n_row, int n_pix, const double *x, int n, double *value, double *out)
{
  MILL_OWNED double *vector = NULL, *found = NULL, *product = NULL;
  lapack_int n_found = 0;
  MILL_OWNED lapack_int *support = NULL;
  MILL_CHECK(MILL_ALLOC((size_t)n_row * (size_t)n_row, &product));
  MILL_CHECK(MILL_ALLOC((size_t)n_row * (size_t)n, &vector));
  MILL_CHECK(MILL_ALLOC(n_row, &found));
  MILL_CHECK(MILL_ALLOC(2 * n_row, &support));
  /* column-major: x stands for its transpose, and each row of vector gets an eigenvector */
  cblas_dsyrk(CblasColMajor, CblasLower, CblasTrans, n_row, n_pix, 1, x, n_pix, 0, product, n_row);
  const lapack_int info =
      LAPACKE_dsyevr(LAPACK_COL_MAJOR, 'V', 'I', 'L', n_row, product, n_row, 0, 0, n_row - n + 1,
                     n_row, 0, &n_found, found, vector, n_row, support);
  if (info != 0 || n_found != n)
    return MILL_ERROR(info <= LAPACK_WORK_MEMORY_ERROR ? MILL_ERR_MEMORY : MILL_ERR_INTERNAL,
                      "no principal components from LAPACK (info %d): please report it", (int)info);
  memcpy(value, found, (size_t)n * sizeof *value);
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n_pix, n_row, 1, vector, n_row, x,
              n_pix, 0, out, n_pix);
  return MILL_OK;
}

const mill_train_ops *mill_train_ops_cpu(void)
{
  static const mill_train_ops ops = {"cpu",  directions, create, destroy,   bind,     stay, stay,
                                     hidden, losses,     slopes, take_loss, gradient, adam};
  return &ops;
}
