/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/train/train_work.h"

#include <limits.h>
#include <string.h>

void mill_train_settings_init(mill_train_settings *settings)
{
  *settings = (mill_train_settings){.n_hidden = 3,
                                    .width = {256, 256, 200},
                                    .batch = 64,
                                    .n_epoch = 400,
                                    .schedule = MILL_TRAIN_COSINE,
                                    .rate = 5e-3,
                                    .least_rate = 1e-6,
                                    .patience = 20,
                                    .factor = 0.5,
                                    .stop_after = 0,
                                    .decay = 0,
                                    .loss = MILL_TRAIN_L2,
                                    .huber = 1,
                                    .seed = 1,
                                    .n_thread = 1};
}

int mill_train_settings_check(const mill_train_settings *s)
{
  if (s->n_hidden < 1 || s->n_hidden >= MILL_MAX_LAYER)
    return MILL_ERROR(MILL_ERR_USAGE, "hidden layers: expected 1 to %d, got %d", MILL_MAX_LAYER - 1,
                      s->n_hidden);
  for (int i = 0; i < s->n_hidden; i++)
    if (s->width[i] < 1 || s->width[i] > MILL_MAX_WIDTH)
      return MILL_ERROR(MILL_ERR_USAGE, "--hidden: expected 1 to %d neurons in each layer, got %d",
                        MILL_MAX_WIDTH, s->width[i]);
  if (s->batch < 1 || s->n_epoch < 1 || s->n_thread < 1)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "%d models a batch, %d epochs, %d threads: give 1 or more of each", s->batch,
                      s->n_epoch, s->n_thread);
  if (!(s->rate > 0) || !(s->rate < 1) || !(s->least_rate >= 0) || !(s->least_rate <= s->rate))
    return MILL_ERROR(
        MILL_ERR_USAGE,
        "--rate %g, --least-rate %g: expected 0 < rate < 1 and 0 <= least-rate <= rate", s->rate,
        s->least_rate);
  if (!(s->decay >= 0) || !(s->decay * s->rate < 1) || !(s->factor > 0) || !(s->factor < 1) ||
      s->patience < 1 || !(s->huber > 0))
    return MILL_ERROR(MILL_ERR_USAGE,
                      "expected --decay 0 or more and below 1 / --rate (got %g), --factor between "
                      "0 and 1 (got %g), --patience 1 or more (got %d), --huber above 0 (got %g)",
                      s->decay, s->factor, s->patience, s->huber);
  return MILL_OK;
}

double mill_train_gflop(const mill_train_shape *shape, int n_model)
{
  double sum = 0;
  /* a weight takes 2 operations for the layer's output, 2 for the weight's gradient and, except in
   * the first layer, 2 for the gradient of the layer's input */
  for (int l = 0; l < shape->n_layer; l++)
    sum += (l == 0 ? 4.0 : 6.0) * shape->n_in[l] * shape->n_out[l];
  return 1e-9 * sum * n_model;
}

int mill_train_room(const mill_train_settings *settings, int n)
{
  return settings->batch < n ? settings->batch : n;
}

/* Set the sizes of layers, and the indices of their first weights and biases in the parameters. */
void mill_train_shape_of(const mill_train_settings *settings, int n_in, int n_out,
                         mill_train_shape *shape)
{
  memset(shape, 0, sizeof *shape);
  shape->n_layer = settings->n_hidden + 1;
  for (int l = 0; l < shape->n_layer; l++) {
    shape->n_in[l] = l == 0 ? n_in : shape->n_out[l - 1];
    shape->n_out[l] = l < settings->n_hidden ? settings->width[l] : n_out;
    shape->weight[l] = shape->n_param;
    shape->n_param += (size_t)shape->n_in[l] * (size_t)shape->n_out[l];
    shape->bias[l] = shape->n_param;
    shape->n_param += (size_t)shape->n_out[l];
  }
}

int mill_train_team_create(const mill_train_ops *ops, const mill_train_settings *settings,
                           const mill_train_problem *problem, int n_room, mill_train_team **out)
{
  MILL_AT_END(mill_train_team_destroy_at) mill_train_team *t = NULL;
  *out = NULL;
  MILL_CHECK(MILL_ALLOC(1, &t));
  t->ops = ops;
  t->problem = problem;
  t->net = (mill_train_net){.loss = settings->loss,
                            .huber = settings->huber,
                            .n_norm = problem->n_norm,
                            .scale = problem->scale,
                            .n_room = n_room,
                            .n_thread = settings->n_thread,
                            .precision = settings->precision};
  mill_train_shape_of(settings, problem->n_in, problem->n_out, &t->net.shape);
  MILL_CHECK(MILL_ALLOC(n_room, &t->model));
  MILL_CHECK(mill_alloc_bytes((size_t)n_room, sizeof *t->x, (void **)&t->x));
  MILL_CHECK(mill_alloc_bytes((size_t)n_room, sizeof *t->target, (void **)&t->target));
  MILL_CHECK(ops->create(&t->net, &t->work));
  return MILL_GIVE(&t, out);
}

void mill_train_team_destroy(mill_train_team *team)
{
  if (!team)
    return;
  team->ops->destroy(team->work);
  MILL_FREE(team->model, team->x, team->target, team->param, team);
}

int mill_train_team_bind(mill_train_team *team, const float *param)
{
  const size_t n = team->net.shape.n_param;
  if (!team->param)
    MILL_CHECK(MILL_ALLOC(n, &team->param));
  memcpy(team->param, param, n * sizeof *param);
  return team->ops->bind(team->work, team->param, NULL, NULL);
}

int mill_train_team_rows(mill_train_team *team, int n, int with_target)
{
  const mill_train_problem *p = team->problem;
  for (int i = 0; i < n; i++)
    team->x[i] = p->x + (size_t)team->model[i] * (size_t)p->n_in;
  if (with_target)
    MILL_CHECK(p->rows(p->context, n, team->model, team->target));
  team->rows = (mill_train_rows){n, (const float *const *)team->x,
                                 with_target ? (const float *const *)team->target : NULL};
  return MILL_OK;
}

int mill_train_sum_over_ranks(const mill_mpi *mpi, double mine, double *sum)
{
  MILL_OWNED double *all = NULL;
  MILL_CHECK(MILL_ALLOC(mpi->size, &all));
  MILL_CHECK_MPI(MPI_Allgather(&mine, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, mpi->comm));
  *sum = 0;
  for (int r = 0; r < mpi->size; r++)
    *sum += all[r];
  return MILL_OK;
}

int mill_train_team_validate(const mill_mpi *mpi, mill_train_team *w, double *loss)
{
  int err = MILL_OK;
  const mill_train_problem *p = w->problem;
  const int n = p->n - p->n_train;
  int64_t share_end;
  const int first = p->n_train + (int)mill_mpi_share(mpi, n, &share_end);
  const int end = p->n_train + (int)share_end;
  double mine = 0;
  *loss = NAN;
  if (n == 0)
    return MILL_OK;
  for (int i = first; i < end; i += w->net.n_room) {
    const int n_row = end - i < w->net.n_room ? end - i : w->net.n_room;
    double part = 0;
    for (int k = 0; k < n_row; k++)
      w->model[k] = i + k;
    MILL_TRY(mill_train_team_rows(w, n_row, 1));
    MILL_TRY(w->ops->losses(w->work, &w->rows, &part));
    mine += part;
  }
done: /* also after a failure: the other ranks wait here; *loss then stays NaN */
  err = mill_mpi_agree(mpi, err);
  MILL_STEP(mill_train_sum_over_ranks(mpi, mine, loss));
  *loss = *loss / ((double)n * p->n_norm) + p->validation_floor;
  return err;
}

int mill_train_shares_create(const mill_mpi *mpi, size_t n_param, mill_train_shares *shares)
{
  const size_t n_rank = (size_t)mpi->size;
  if (n_param > INT_MAX)
    return MILL_ERROR(MILL_ERR_RANGE,
                      "a network of %zu parameters is too large, expected at most %d: give a "
                      "smaller --hidden",
                      n_param, INT_MAX);
  MILL_CHECK(MILL_ALLOC(n_rank, &shares->start));
  MILL_CHECK(MILL_ALLOC(n_rank, &shares->count));
  MILL_CHECK(MILL_ALLOC(n_rank, &shares->mine_start));
  MILL_CHECK(MILL_ALLOC(n_rank, &shares->mine_count));
  for (size_t r = 0; r < n_rank; r++) {
    shares->start[r] = (int)(n_param * r / n_rank);
    shares->count[r] = (int)(n_param * (r + 1) / n_rank) - shares->start[r];
  }
  if (mpi->size == 1)
    return MILL_OK;
  const int mine = shares->count[mpi->rank]; /* parameters of this rank's share */
  if (n_rank * (size_t)mine > INT_MAX)
    return MILL_ERROR(MILL_ERR_RANGE,
                      "%zu parameters are too many for %zu ranks: give a smaller --hidden", n_param,
                      n_rank);
  MILL_CHECK(MILL_ALLOC(n_rank * (size_t)mine, &shares->received));
  for (int r = 0; r < mpi->size; r++) {
    shares->mine_start[r] = r * mine; /* where in `received` rank r's gradients begin */
    shares->mine_count[r] = mine;
  }
  return MILL_OK;
}

void mill_train_shares_clear(mill_train_shares *shares)
{
  MILL_FREE(shares->start, shares->count, shares->mine_start, shares->mine_count, shares->received);
  memset(shares, 0, sizeof *shares);
}
