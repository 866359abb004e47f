/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/train/train_network.h"

#include <string.h>

#include "kernels/base/clock.h"
#include "src/system/random.h"

/* random-number streams "init" (initial weights) and "shuf" (order of models) */
enum { INIT_STREAM = 0x696e6974, SHUFFLE_STREAM = 0x73687566 };

/* ---- state ---- */

void mill_train_state_clear(mill_train_state *state)
{
  if (!state)
    return;
  MILL_FREE(state->param, state->m, state->v, state->best, state->epoch);
  memset(state, 0, sizeof *state);
}

int mill_train_begin(const mill_train_settings *settings, const mill_train_problem *problem,
                     mill_train_state *state)
{
  mill_train_shape shape;
  mill_random r;
  mill_train_shape_of(settings, problem->n_in, problem->n_out, &shape);
  *state =
      (mill_train_state){.n_param = shape.n_param, .rate = settings->rate, .best_loss = INFINITY};
  MILL_CHECK(MILL_ALLOC(shape.n_param, &state->param));
  MILL_CHECK(MILL_ALLOC(shape.n_param, &state->m)); /* Adam's moments m and v */
  MILL_CHECK(MILL_ALLOC(shape.n_param, &state->v));
  MILL_CHECK(MILL_ALLOC(shape.n_param, &state->best));
  MILL_CHECK(MILL_ALLOC(settings->n_epoch, &state->epoch));
  const int last = shape.n_layer - 1; /* the problem has its initial parameters */
  for (int l = 0; l < last; l++) {
    /* a layer's biases follow its weights */
    const size_t n = (size_t)(shape.n_in[l] + 1) * (size_t)shape.n_out[l];
    const double bound = 1 / sqrt((double)shape.n_in[l]);
    mill_random_begin(&r, settings->seed, (uint64_t)l, INIT_STREAM);
    for (size_t i = 0; i < n; i++)
      state->param[shape.weight[l] + i] = (float)(bound * (2 * mill_random_uniform(&r) - 1));
  }
  const size_t n_out = (size_t)problem->n_out;
  memcpy(state->param + shape.weight[last], problem->weight,
         n_out * (size_t)shape.n_in[last] * sizeof *state->param);
  memcpy(state->param + shape.bias[last], problem->bias, n_out * sizeof *state->param);
  return MILL_OK;
}

int mill_train_gather(const mill_mpi *mpi, mill_train_state *state)
{
  MILL_AT_END(mill_train_shares_clear) mill_train_shares shares = {0};
  if (mpi->size == 1) /* with several ranks each has only its own share of m and v */
    return MILL_OK;
  MILL_CHECK(mill_train_shares_create(mpi, state->n_param, &shares));
  MILL_CHECK_MPI(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, state->m, shares.count,
                                shares.start, MPI_FLOAT, mpi->comm));
  MILL_CHECK_MPI(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, state->v, shares.count,
                                shares.start, MPI_FLOAT, mpi->comm));
  return MILL_OK;
}

/* The models pass through the network in batches of w->net.n_room. */
int mill_train_hidden(const mill_train_ops *ops, const mill_train_settings *settings,
                      const mill_train_problem *problem, const float *param, int n,
                      const int *model, float *h)
{
  MILL_AT_END(mill_train_team_destroy_at) mill_train_team *w = NULL;
  const size_t width = (size_t)settings->width[settings->n_hidden - 1];
  MILL_CHECK(
      mill_train_team_create(ops, settings, problem, mill_train_room(settings, problem->n), &w));
  MILL_CHECK(mill_train_team_bind(w, param));
  for (int i = 0; i < n; i += w->net.n_room) {
    const int n_row = n - i < w->net.n_room ? n - i : w->net.n_room;
    memcpy(w->model, model + i, (size_t)n_row * sizeof *model);
    MILL_CHECK(mill_train_team_rows(w, n_row, 0)); /* without targets */
    MILL_CHECK(ops->hidden(w->work, &w->rows, h + (size_t)i * width));
  }
  return MILL_OK;
}

/* ---- steps ---- */

/* Take a gradient step.  Each rank sums all ranks' gradients of its share of the parameters in
 * rank order, updates that share, and receives the other shares. */
static int step(const mill_mpi *mpi, const mill_train_settings *settings, mill_train_team *w,
                const mill_train_shares *shares, mill_train_state *state)
{
  const size_t first = (size_t)shares->start[mpi->rank], n = (size_t)shares->count[mpi->rank];
  const mill_train_adam adam = {.rate = state->rate,
                                .decay = settings->decay,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .epsilon = 1e-8,
                                .n_step = ++state->n_step};
  float *gradient = NULL;
  if (mpi->size == 1) /* NULL: the gradient of w->work */
    return w->ops->adam(w->work, &adam, 0, state->n_param, NULL);
  MILL_CHECK(mill_mpi_agree(mpi, w->ops->gradient(w->work, &gradient)));
  MILL_CHECK_MPI(MPI_Alltoallv(gradient, shares->count, shares->start, MPI_FLOAT, shares->received,
                               shares->mine_count, shares->mine_start, MPI_FLOAT, mpi->comm));
  float *sum = gradient + first; /* overwrites this rank's own gradient, which is in received too */
  memcpy(sum, shares->received, n * sizeof *sum);
  for (int r = 1; r < mpi->size; r++) {
    const float *part = shares->received + (size_t)r * n;
    for (size_t i = 0; i < n; i++)
      sum[i] += part[i];
  }
  MILL_CHECK(mill_mpi_agree(mpi, w->ops->adam(w->work, &adam, first, n, sum)));
  MILL_CHECK_MPI(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, state->param, shares->count,
                                shares->start, MPI_FLOAT, mpi->comm));
  return mill_mpi_agree(mpi, w->ops->renew(w->work)); /* a GPU copies the other ranks' shares */
}

/* Set the order of the models in an epoch, a function of seed and epoch alone. */
static void shuffle(uint64_t seed, int epoch, int n, int *order)
{
  mill_random r;
  mill_random_begin(&r, seed, (uint64_t)epoch, SHUFFLE_STREAM);
  for (int i = 0; i < n; i++)
    order[i] = i;
  for (int i = n - 1; i > 0; i--) {
    const int k = (int)(mill_random_uniform(&r) * (i + 1)), kept = order[i];
    order[i] = order[k];
    order[k] = kept;
  }
}

/* Train for an epoch: a step per batch, then the training and validation losses.  Collective. */
static int run_epoch(const mill_mpi *mpi, const mill_train_settings *settings, mill_train_team *w,
                     const mill_train_shares *shares, int *order, mill_train_state *state)
{
  int err = MILL_OK;
  const mill_train_problem *p = w->problem;
  double mine = 0, sum = 0;
  const double start_s = mill_wall_s();
  mill_train_epoch *epoch = &state->epoch[state->n_epoch];
  shuffle(settings->seed, state->n_epoch, p->n_train, order);
  for (int i = 0; i < p->n_train; i += settings->batch) {
    const int64_t n = p->n_train - i < settings->batch ? p->n_train - i : settings->batch;
    int64_t end; /* this rank has the models [first, end) of the batch */
    const int first = (int)mill_mpi_share(mpi, n, &end), n_row = (int)end - first;
    memcpy(w->model, order + i + first, (size_t)n_row * sizeof *order);
    err = mill_train_team_rows(w, n_row, 1);
    MILL_STEP(w->ops->slopes(w->work, &w->rows, (int)n));
    MILL_TRY(mpi->size > 1 ? mill_mpi_agree(mpi, err) : err);
    MILL_TRY(step(mpi, settings, w, shares, state));
  }
  err = w->ops->take_loss(w->work, &mine);
  MILL_STEP(w->ops->fetch(w->work));
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_TRY(mill_train_sum_over_ranks(mpi, mine, &sum));
  epoch->train = sum / (p->n_train * p->n_norm) + p->train_floor;
  epoch->rate = state->rate;
  MILL_TRY(mill_train_team_validate(mpi, w, &epoch->validation));
  epoch->seconds = mill_wall_s() - start_s;
  state->n_epoch++;
  const double judged = p->n > p->n_train ? epoch->validation : epoch->train;
  if (!isfinite(judged))
    MILL_FAIL(MILL_ERR_INPUT, "the loss is not finite after epoch %d: give a lower --rate",
              state->n_epoch);
done:
  return err;
}

/* After an epoch: keep parameters of the lowest loss, set the next learning rate, decide to end. */
static void judge(const mill_train_settings *s, const mill_train_problem *p,
                  mill_train_state *state)
{
  const mill_train_epoch *epoch = &state->epoch[state->n_epoch - 1];
  const double loss = p->n > p->n_train ? epoch->validation : epoch->train;
  const double part = (double)state->n_epoch / s->n_epoch;
  state->n_wait = loss < state->best_loss ? 0 : state->n_wait + 1;
  if (loss < state->best_loss) {
    state->best_loss = loss;
    state->best_epoch = state->n_epoch;
    memcpy(state->best, state->param, state->n_param * sizeof *state->best);
  }
  if (s->schedule == MILL_TRAIN_COSINE) {
    state->rate = s->least_rate + 0.5 * (s->rate - s->least_rate) * (1 + cos(M_PI * part));
  } else if (state->n_wait >= s->patience) {
    state->rate *= s->factor;
    state->n_wait = 0;
  }
  state->ended = state->n_epoch >= s->n_epoch ||
                 (s->stop_after > 0 && state->n_epoch - state->best_epoch >= s->stop_after) ||
                 (s->schedule == MILL_TRAIN_PLATEAU && state->rate < s->least_rate);
}

int mill_train_run(const mill_mpi *mpi, const mill_train_ops *ops,
                   const mill_train_settings *settings, const mill_train_problem *problem,
                   const mill_train_watch *watch, mill_train_state *state)
{
  MILL_OWNED int *order = NULL;
  MILL_AT_END(mill_train_team_destroy_at) mill_train_team *w = NULL;
  MILL_AT_END(mill_train_shares_clear) mill_train_shares shares = {0};
  const int n_room = (mill_train_room(settings, problem->n) + mpi->size - 1) / mpi->size;
  int err = mill_train_team_create(ops, settings, problem, n_room, &w);
  MILL_STEP(ops->bind(w->work, state->param, state->m, state->v));
  MILL_STEP(MILL_ALLOC(problem->n_train, &order));
  MILL_STEP(mill_train_shares_create(mpi, w->net.shape.n_param, &shares));
  MILL_TRY(mill_mpi_agree(mpi, err));
  while (!state->ended) {
    MILL_TRY(run_epoch(mpi, settings, w, &shares, order, state));
    judge(settings, problem, state);
    if (watch)
      MILL_TRY(watch->after(watch->context, state));
  }
done:
  return err;
}
