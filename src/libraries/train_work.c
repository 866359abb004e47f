#include "src/libraries/train_work.h"

#include <limits.h>
#include <string.h>

#include "kernels/base/error.h"

enum { NEURONS = 64, CHUNK = 16384, FEW_BLOCK = 4 };

static int least(int a, int b)
{
  return a < b ? a : b;
}

/* ---- memory -----------------------------------------------------------------------------------
 */

int mill_train_work_create(const mill_train_ops *ops, const mill_train_settings *settings,
                           const mill_train_problem *problem, int n_room, mill_train_work **out)
{
  int err = MILL_OK;
  mill_train_work *w = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &w));
  w->ops = ops;
  w->settings = settings;
  w->problem = problem;
  w->n_room = n_room;
  mill_train_shape_of(settings, problem->n_in, problem->n_out, &w->shape);
  const mill_train_shape *s = &w->shape;
  const int last = s->n_layer - 1;
  const size_t room = (size_t)n_room;
  w->n_block = (problem->n_out + MILL_TRAIN_WIDE - 1) / MILL_TRAIN_WIDE;
  if (w->n_block < FEW_BLOCK)
    w->n_block = least(FEW_BLOCK, problem->n_out);
  w->n_wide = (problem->n_out + w->n_block - 1) / w->n_block;
  w->n_block = (problem->n_out + w->n_wide - 1) / w->n_wide;
  MILL_TRY(MILL_ALLOC(n_room, &w->model));
  MILL_TRY(mill_alloc_bytes(room, sizeof *w->target, (void **)&w->target));
  for (int l = 0; l <= last; l++)
    MILL_TRY(MILL_ALLOC(room * (size_t)s->n_in[l], &w->act[l]));
  for (int l = 0; l < last; l++) {
    MILL_TRY(MILL_ALLOC(room * (size_t)s->n_out[l], &w->slope[l]));
    MILL_TRY(MILL_ALLOC(room * (size_t)s->n_out[l], &w->delta[l]));
  }
  const size_t n_block = (size_t)w->n_block;
  MILL_TRY(MILL_ALLOC(n_block * room * (size_t)w->n_wide, &w->out));
  MILL_TRY(MILL_ALLOC(n_block * room * (size_t)s->n_in[last], &w->part));
  MILL_TRY(MILL_ALLOC(n_block * room, &w->row_loss));
  MILL_TRY(MILL_ALLOC(s->n_param, &w->gradient));
  *out = w;
  w = NULL;
done:
  mill_train_work_destroy(w);
  return err;
}

void mill_train_work_destroy(mill_train_work *w)
{
  if (!w)
    return;
  for (int l = 0; l < MILL_MAX_LAYER; l++)
    MILL_FREE(w->act[l], w->slope[l], w->delta[l]);
  MILL_FREE(w->model, w->target, w->out, w->part, w->row_loss, w->gradient, w);
}

int mill_train_shares_create(const mill_mpi *mpi, size_t n_param, mill_train_shares *shares)
{
  int err = MILL_OK;
  const size_t n_rank = (size_t)mpi->size;
  if (n_param > INT_MAX)
    MILL_FAIL(MILL_ERR_RANGE, "a network of %zu parameters; at most %d are possible", n_param,
              INT_MAX);
  MILL_TRY(MILL_ALLOC(n_rank, &shares->start));
  MILL_TRY(MILL_ALLOC(n_rank, &shares->count));
  MILL_TRY(MILL_ALLOC(n_rank, &shares->mine_start));
  MILL_TRY(MILL_ALLOC(n_rank, &shares->mine_count));
  for (size_t r = 0; r < n_rank; r++) {
    shares->start[r] = (int)(n_param * r / n_rank);
    shares->count[r] = (int)(n_param * (r + 1) / n_rank) - shares->start[r];
  }
  const int mine = shares->count[mpi->rank];
  if (mpi->size == 1)
    goto done;
  MILL_TRY(MILL_ALLOC(n_rank * (size_t)mine, &shares->received));
  if (n_rank * (size_t)mine > INT_MAX)
    MILL_FAIL(MILL_ERR_RANGE, "a network of %zu parameters is too large for %zu ranks", n_param,
              n_rank);
  for (int r = 0; r < mpi->size; r++) {
    shares->mine_start[r] = r * mine;
    shares->mine_count[r] = mine;
  }
done:
  if (err != MILL_OK)
    mill_train_shares_clear(shares);
  return err;
}

void mill_train_shares_clear(mill_train_shares *shares)
{
  MILL_FREE(shares->start, shares->count, shares->mine_start, shares->mine_count, shares->received);
  memset(shares, 0, sizeof *shares);
}

/* ---- forwards ----------------------------------------------------------------------------------
 */

void mill_train_forward(mill_train_work *w, int n_row, const float *param)
{
  const mill_train_shape *s = &w->shape;
  const mill_train_ops *ops = w->ops;
  const int last = s->n_layer - 1;
  const size_t n_label = (size_t)s->n_in[0];
  for (int i = 0; i < n_row; i++)
    memcpy(w->act[0] + (size_t)i * n_label, w->problem->x + (size_t)w->model[i] * n_label,
           n_label * sizeof *w->act[0]);
#pragma omp parallel for schedule(static) num_threads(w->settings->n_thread)
  for (int i = 0; i < n_row; i += MILL_TRAIN_ROWS) {
    const int n = least(MILL_TRAIN_ROWS, n_row - i);
    for (int l = 0; l < last; l++) {
      const size_t to = (size_t)i * (size_t)s->n_out[l];
      ops->gemm(0, 1, n, s->n_out[l], s->n_in[l], w->act[l] + (size_t)i * (size_t)s->n_in[l],
                s->n_in[l], param + s->weight[l], s->n_in[l], 0, w->act[l + 1] + to, s->n_out[l]);
      ops->activate(n, s->n_out[l], param + s->bias[l], w->act[l + 1] + to, w->slope[l] + to);
    }
  }
}

/* Block b of the last layer's outputs, and with slopes what follows from it alone. */
static void last_layer(mill_train_work *w, int b, int n_row, int n_all, int slopes,
                       const float *param)
{
  const mill_train_problem *p = w->problem;
  const mill_train_shape *s = &w->shape;
  const mill_train_ops *ops = w->ops;
  const int last = s->n_layer - 1, width = s->n_in[last], first = b * w->n_wide;
  const int n = least(w->n_wide, s->n_out[last] - first);
  const float *weight = param + s->weight[last] + (size_t)first * (size_t)width;
  float *out = w->out + (size_t)b * (size_t)w->n_room * (size_t)w->n_wide;
  ops->gemm(0, 1, n_row, n, width, w->act[last], width, weight, width, 0, out, w->n_wide);
  const mill_train_loss_task task = {.kind = w->settings->loss,
                                     .n_row = n_row,
                                     .n = n,
                                     .ld = w->n_wide,
                                     .first = first,
                                     .delta = w->settings->huber,
                                     .factor = 1 / (p->n_norm * n_all),
                                     .out = out,
                                     .bias = param + s->bias[last] + first,
                                     .scale = p->scale + first,
                                     .target = (const float *const *)w->target,
                                     .row_loss = w->row_loss + (size_t)b * (size_t)w->n_room};
  ops->loss(&task);
  if (!slopes)
    return;
  float *part = w->part + (size_t)b * (size_t)w->n_room * (size_t)width;
  ops->gemm(1, 0, n, width, n_row, out, w->n_wide, w->act[last], width, 0,
            w->gradient + s->weight[last] + (size_t)first * (size_t)width, width);
  ops->sum_rows(n_row, n, out, w->n_wide, w->gradient + s->bias[last] + first);
  ops->gemm(0, 0, n_row, width, n, out, w->n_wide, weight, width, 0, part, width);
}

/* All blocks; the sum of the losses in the order of models and blocks. */
static int last_layers(mill_train_work *w, int n_row, int n_all, int slopes, const float *param,
                       double *loss)
{
  int err = MILL_OK;
  *loss = 0;
  MILL_TRY(w->problem->rows(w->problem->context, n_row, w->model, w->target));
#pragma omp parallel for schedule(static) num_threads(w->settings->n_thread)
  for (int b = 0; b < w->n_block; b++)
    last_layer(w, b, n_row, n_all, slopes, param);
  for (int i = 0; i < n_row; i++)
    for (int b = 0; b < w->n_block; b++)
      *loss += w->row_loss[(size_t)b * (size_t)w->n_room + (size_t)i];
done:
  return err;
}

int mill_train_losses(mill_train_work *w, int n_row, const float *param, double *loss)
{
  mill_train_forward(w, n_row, param);
  return last_layers(w, n_row, n_row, 0, param, loss);
}

/* ---- backwards ---------------------------------------------------------------------------------
 */

/* Slopes of the loss before each hidden layer's SiLU, for models [i, i + n). */
static void backward(mill_train_work *w, int i, int n, const float *param)
{
  const mill_train_shape *s = &w->shape;
  const int last = s->n_layer - 1;
  const size_t width = (size_t)s->n_in[last], room = (size_t)w->n_room;
  float *delta = w->delta[last - 1] + (size_t)i * width;
  memcpy(delta, w->part + (size_t)i * width, (size_t)n * width * sizeof *delta);
  for (size_t b = 1; b < (size_t)w->n_block; b++) {
    const float *part = w->part + (b * room + (size_t)i) * width;
    for (size_t k = 0; k < (size_t)n * width; k++)
      delta[k] += part[k];
  }
  for (int l = last - 1; l >= 0; l--) {
    const size_t n_out = (size_t)s->n_out[l], n_in = (size_t)s->n_in[l];
    delta = w->delta[l] + (size_t)i * n_out;
    w->ops->multiply((size_t)n * n_out, w->slope[l] + (size_t)i * n_out, delta);
    if (l > 0)
      w->ops->gemm(0, 0, n, s->n_in[l], s->n_out[l], delta, s->n_out[l], param + s->weight[l],
                   s->n_in[l], 0, w->delta[l - 1] + (size_t)i * n_in, s->n_in[l]);
  }
}

/* Slopes along the weights of neurons [first, first + n) of a hidden layer. */
static void weight_slopes(mill_train_work *w, int l, int first, int n, int n_row)
{
  const mill_train_shape *s = &w->shape;
  const float *delta = w->delta[l] + first;
  w->ops->gemm(1, 0, n, s->n_in[l], n_row, delta, s->n_out[l], w->act[l], s->n_in[l], 0,
               w->gradient + s->weight[l] + (size_t)first * (size_t)s->n_in[l], s->n_in[l]);
  w->ops->sum_rows(n_row, n, delta, s->n_out[l], w->gradient + s->bias[l] + first);
}

int mill_train_slopes(mill_train_work *w, int n_row, int n_all, const float *param, double *loss)
{
  int err = MILL_OK;
  const mill_train_shape *s = &w->shape;
  const int last = s->n_layer - 1, n_thread = w->settings->n_thread;
  int n_task = 0;
  if (n_row == 0) { /* of a batch smaller than the number of ranks */
    *loss = 0;
    memset(w->gradient, 0, s->n_param * sizeof *w->gradient);
    return MILL_OK;
  }
  mill_train_forward(w, n_row, param);
  MILL_TRY(last_layers(w, n_row, n_all, 1, param, loss));
#pragma omp parallel for schedule(static) num_threads(n_thread)
  for (int i = 0; i < n_row; i += MILL_TRAIN_ROWS)
    backward(w, i, least(MILL_TRAIN_ROWS, n_row - i), param);
  for (int l = 0; l < last; l++)
    n_task += (s->n_out[l] + NEURONS - 1) / NEURONS;
#pragma omp parallel for schedule(static) num_threads(n_thread)
  for (int task = 0; task < n_task; task++) {
    int l = 0, first = task * NEURONS;
    for (; first >= (s->n_out[l] + NEURONS - 1) / NEURONS * NEURONS; l++)
      first -= (s->n_out[l] + NEURONS - 1) / NEURONS * NEURONS;
    weight_slopes(w, l, first, least(NEURONS, s->n_out[l] - first), n_row);
  }
done:
  return err;
}

void mill_train_adam_step(const mill_train_work *w, const mill_train_adam *adam, size_t n,
                          const float *gradient, float *param, float *m, float *v)
{
  const mill_train_ops *ops = w->ops;
#pragma omp parallel for schedule(static) num_threads(w->settings->n_thread)
  for (size_t i = 0; i < n; i += CHUNK) {
    const size_t n_here = n - i < CHUNK ? n - i : CHUNK;
    ops->adam(n_here, adam, gradient + i, param + i, m + i, v + i);
  }
}
