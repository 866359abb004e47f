/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/train/train_arm.h"

#include <float.h>
#include <string.h>

#include <cblas.h>

#include "kernels/base/clock.h"
#include "src/train/train_statistics.h"
#include "src/system/random.h"

enum { BLOCK = 64, LAST_STREAM = 0x6c617374 /* "last" */ };

/* Fraction of the variance that the components may leave out, if their number is not given. */
#define REST 1e-8

/* Lower limit of a pixel's spread, as a fraction of the largest spread: below it, a pixel that
 * hardly varies would dominate the loss. */
#define LEAST_SPREAD 1e-3

void mill_train_arm_settings_init(mill_train_arm_settings *settings)
{
  *settings = (mill_train_arm_settings){.log_flux = 1,
                                        .unit = MILL_TRAIN_NOISE,
                                        .sn = 100,
                                        .last = MILL_TRAIN_COMPONENTS,
                                        .keep_gib = 4};
  mill_train_settings_init(&settings->net);
}

int mill_train_arm_settings_check(const mill_train_arm_settings *s)
{
  MILL_CHECK(mill_train_settings_check(&s->net));
  if (s->last == MILL_TRAIN_COMPONENTS && s->net.loss != MILL_TRAIN_L2)
    return MILL_ERROR(MILL_ERR_USAGE, "--last components needs --loss l2; or give --last pixels");
  if (!(s->sn > 0) || !(s->keep_gib >= 0) || s->n_component < 0)
    return MILL_ERROR(
        MILL_ERR_USAGE,
        "expected --sn above 0, --memory and --components 0 or more, got %g, %g and %d", s->sn,
        s->keep_gib, s->n_component);
  return MILL_OK;
}

double mill_train_arm_error(const mill_train_arm_settings *s, double loss)
{
  const double unit = s->unit == MILL_TRAIN_NOISE ? 1 / s->sn : 1;
  /* for small residuals, Huber's loss is half their square */
  const double u = s->net.loss == MILL_TRAIN_L1   ? loss
                   : s->net.loss == MILL_TRAIN_L2 ? sqrt(loss)
                                                  : sqrt(2 * loss);
  return unit * u;
}

/* ---- spectra ---- */

/* State of the training of an arm. */
typedef struct arm {
  const mill_mpi *mpi;
  const mill_train_arm_settings *set;
  const mill_train_arm_task *task;
  mill_train_components c;
  double *scale; /* [n_pix] */
  /* scores [n][n_component]; PIXELS: spectra [n][n_pix] or, if not kept, those of a batch */
  float *target;
  float *net_scale;
  /* mean square of scaled residuals that the components leave: [0] training models, [1] others */
  double floor[2];
  float *weight, *bias; /* initial last layer */
} arm;

/* Read the targets y [n][n_pix] of models: ln flux, or flux if log_flux is 0. */
static int read_y(const arm *a, int n, const int *model, float *y)
{
  const size_t size = (size_t)n * (size_t)a->task->n_pix;
  MILL_CHECK(a->task->read(a->task->context, n, model, y));
  if (a->set->log_flux)
    for (size_t i = 0; i < size; i++)
      y[i] = (float)log((double)y[i]);
  return MILL_OK;
}

/* Set [*mine, *mine_end) to this rank's share of n models. */
static void share_of(const mill_mpi *mpi, int64_t n, int *mine, int *mine_end)
{
  int64_t end;
  *mine = (int)mill_mpi_share(mpi, n, &end);
  *mine_end = (int)end;
}

/* ---- first phase ---- */

/* Add this rank's share of the training spectra to the statistics. */
static int add_spectra(const arm *a, mill_train_statistics *s)
{
  int first, end, model[BLOCK];
  MILL_OWNED float *y = NULL;
  MILL_CHECK(MILL_ALLOC(BLOCK * (size_t)a->task->n_pix, &y));
  share_of(a->mpi, a->task->n_train, &first, &end);
  for (int i = first; i < end; i += BLOCK) {
    const int n = end - i < BLOCK ? end - i : BLOCK;
    for (int k = 0; k < n; k++)
      model[k] = i + k;
    MILL_CHECK(read_y(a, n, model, y));
    MILL_CHECK(mill_train_statistics_add(s, n, y));
  }
  return MILL_OK;
}

/* Set a->scale [n_pix]: residual times scale is in units of the loss. */
static void make_scale(arm *a)
{
  double most = 0;
  for (int p = 0; p < a->c.n_pix; p++)
    most = fmax(most, a->c.spread[p]);
  for (int p = 0; p < a->c.n_pix; p++) {
    if (a->set->unit == MILL_TRAIN_SPREAD)
      a->scale[p] = 1 / fmax(fmax(a->c.spread[p], LEAST_SPREAD * most), DBL_MIN);
    else
      a->scale[p] = a->set->sn / (a->set->log_flux ? 1 : a->c.mean[p]);
  }
}

/* Rank 0: find n_component principal components; if 0, the fewest that leave out at most REST. */
static int find_components(arm *a, mill_train_statistics *s)
{
  MILL_CHECK(mill_train_statistics_pixels(s, &a->c));
  make_scale(a);
  const int most = a->task->n_train - 1 < MILL_TRAIN_MOST_COMPONENT ? a->task->n_train - 1
                                                                    : MILL_TRAIN_MOST_COMPONENT;
  const int given = a->set->n_component;
  return mill_train_statistics_components(s, a->scale, given > 0 ? given : most,
                                          given > 0 ? 0 : REST, &a->c);
}

/* Find mean, spread and principal components of the training spectra.  Collective. */
static int first_phase(arm *a, const mill_train_ops *ops)
{
  MILL_AT_END(mill_train_statistics_destroy_at) mill_train_statistics *s = NULL;
  int err = mill_train_statistics_create(ops, a->task->n_pix, MILL_TRAIN_STATISTICS_ROWS, &s);
  MILL_STEP(MILL_ALLOC(a->task->n_pix, &a->scale));
  MILL_STEP(add_spectra(a, s));
  MILL_TRY(mill_mpi_agree(a->mpi, err));
  MILL_TRY(mill_train_statistics_join(a->mpi, s));
  MILL_TRY(mill_mpi_agree(a->mpi, a->mpi->rank == 0 ? find_components(a, s) : MILL_OK));
  MILL_TRY(mill_train_components_share(a->mpi, &a->c));
  make_scale(a); /* sets scale on the other ranks, too */
done:
  return err;
}

/* ---- targets ---- */

/* Compute the scores of models [first, end).  rest [2] grows by the squared residuals that the
 * components leave: [0] of training models, [1] of models left out. */
static int score_share(arm *a, int first, int end, double *rest)
{
  int model[BLOCK];
  const size_t n_component = (size_t)a->c.n_component;
  MILL_OWNED float *y = NULL;
  double left[BLOCK];
  MILL_OWNED double *z = NULL;
  MILL_CHECK(MILL_ALLOC(BLOCK * (size_t)a->task->n_pix, &y));
  MILL_CHECK(MILL_ALLOC(BLOCK * n_component, &z));
  for (int i = first; i < end; i += BLOCK) {
    const int n = end - i < BLOCK ? end - i : BLOCK;
    for (int k = 0; k < n; k++)
      model[k] = i + k;
    MILL_CHECK(read_y(a, n, model, y));
    MILL_CHECK(mill_train_components_scores(&a->c, a->scale, n, y, z, left));
    for (size_t k = 0; k < (size_t)n * n_component; k++)
      a->target[(size_t)i * n_component + k] = (float)z[k];
    for (int k = 0; k < n; k++)
      rest[i + k >= a->task->n_train] += left[k];
  }
  return MILL_OK;
}

/* Send each rank's share of the n_row rows, of n numbers each, to all ranks. */
static int exchange_rows(const mill_mpi *mpi, int n_row, int n, float *row)
{
  for (int r = 0; r < mpi->size; r++) {
    const mill_mpi that = {.rank = r, .size = mpi->size};
    int first, end;
    share_of(&that, n_row, &first, &end);
    for (int i = first; i < end; i++)
      MILL_CHECK_MPI(MPI_Bcast(row + (size_t)i * (size_t)n, n, MPI_FLOAT, r, mpi->comm));
  }
  return MILL_OK;
}

/* Make the targets, which are all models' scores, on each rank.  Set the scores' scales,
 * a->net_scale, and the loss of what the components leave out, a->floor.  Collective. */
static int make_scores(arm *a)
{
  int err = MILL_OK, first, end;
  double rest[2] = {0, 0}, *all = NULL;
  const int n_component = a->c.n_component, n_left = a->task->n - a->task->n_train;
  const double norm[2] = {(double)a->task->n_train * a->c.n_pix, (double)n_left * a->c.n_pix};
  err = MILL_ALLOC((size_t)a->task->n * (size_t)n_component, &a->target);
  MILL_STEP(MILL_ALLOC(n_component, &a->net_scale));
  MILL_STEP(MILL_ALLOC(2 * a->mpi->size, &all));
  share_of(a->mpi, a->task->n, &first, &end);
  MILL_STEP(score_share(a, first, end, rest));
  MILL_TRY(mill_mpi_agree(a->mpi, err));
  MILL_TRY(exchange_rows(a->mpi, a->task->n, n_component, a->target));
  MILL_MPI(MPI_Allgather(rest, 2, MPI_DOUBLE, all, 2, MPI_DOUBLE, a->mpi->comm));
  for (int r = 0; r < a->mpi->size; r++) /* in this order on every rank: equal last bits */
    for (int k = 0; k < 2; k++)
      a->floor[k] += norm[k] > 0 ? all[2 * r + k] / norm[k] : 0;
  for (int k = 0; k < n_component; k++)
    a->net_scale[k] = (float)sqrt(a->c.variance[k]);
done:
  mill_free(all);
  return err;
}

/* Set y to the models' targets of a last layer that outputs pixels, less the mean spectrum. */
static int read_pixels(const arm *a, int n, const int *model, float *y)
{
  const size_t n_pix = (size_t)a->c.n_pix;
  MILL_CHECK(read_y(a, n, model, y));
  for (size_t i = 0; i < (size_t)n; i++)
    for (size_t p = 0; p < n_pix; p++)
      y[i * n_pix + p] -= (float)a->c.mean[p];
  return MILL_OK;
}

static int is_kept(const arm *a)
{
  const double bytes = (double)a->task->n * a->task->n_pix * sizeof(float);
  return bytes <= a->set->keep_gib * 1024 * 1024 * 1024;
}

/* Make the targets of a last layer that outputs pixels.  If all models' targets fit into keep_gib,
 * read them; else allocate memory for a batch.  Fill the scales of the pixels, a->net_scale. */
static int make_pixels(arm *a)
{
  int model[BLOCK];
  const int kept = is_kept(a), n = a->task->n;
  enum { SOLVE_ROWS = 256 }; /* models whose targets mill_train_solve_last reads at a time */
  const int wanted = a->set->net.batch > SOLVE_ROWS ? a->set->net.batch : SOLVE_ROWS;
  const int n_batch = wanted < n ? wanted : n;
  const size_t n_pix = (size_t)a->c.n_pix;
  MILL_CHECK(
      mill_alloc_raw((size_t)(kept ? n : n_batch) * n_pix, sizeof *a->target, (void **)&a->target));
  MILL_CHECK(MILL_ALLOC(n_pix, &a->net_scale));
  for (size_t p = 0; p < n_pix; p++)
    a->net_scale[p] = (float)a->scale[p];
  for (int i = 0; kept && i < n; i += BLOCK) {
    const int n_here = n - i < BLOCK ? n - i : BLOCK;
    for (int k = 0; k < n_here; k++)
      model[k] = i + k;
    MILL_CHECK(read_pixels(a, n_here, model, a->target + (size_t)i * n_pix));
  }
  return MILL_OK;
}

/* The member rows of mill_train_problem: give the targets of models. */
static int rows(void *context, int n, const int *model, const float **row)
{
  const arm *a = context;
  const int by_pixels = a->set->last == MILL_TRAIN_PIXELS, kept = !by_pixels || is_kept(a);
  const size_t width = (size_t)(by_pixels ? a->c.n_pix : a->c.n_component);
  if (!kept)
    MILL_CHECK(read_pixels(a, n, model, a->target));
  for (int i = 0; i < n; i++)
    row[i] = a->target + (size_t)(kept ? model[i] : i) * width;
  return MILL_OK;
}

/* ---- last layer ---- */

/* Convert a last layer of scores to one of pixels: weights [n_pix][width] and biases [n_pix]. */
static int to_pixels(const arm *a, int width, const float *weight, const float *bias,
                     float *pixel_weight, float *pixel_bias)
{
  const int n = a->c.n_component;
  const size_t n_pix = (size_t)a->c.n_pix, size = (size_t)n * (size_t)width;
  MILL_OWNED double *product = NULL, *weight64 = NULL;
  MILL_CHECK(MILL_ALLOC(size, &weight64));
  MILL_CHECK(MILL_ALLOC(n_pix * (size_t)width, &product));
  for (size_t i = 0; i < size; i++)
    weight64[i] = (double)weight[i];
  cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, a->c.n_pix, width, n, 1, a->c.pattern,
              a->c.n_pix, weight64, width, 0, product, width);
  for (size_t i = 0; i < n_pix * (size_t)width; i++)
    pixel_weight[i] = (float)product[i];
  for (size_t p = 0; p < n_pix; p++) {
    double sum = 0;
    for (size_t k = 0; k < (size_t)n; k++)
      sum += (double)bias[k] * a->c.pattern[k * n_pix + p];
    pixel_bias[p] = (float)sum;
  }
  return MILL_OK;
}

/* Make the initial last layer: small random weights, which output scores of components.  If the
 * layer outputs pixels, multiply the weights by the components. */
static int begin_last(arm *a)
{
  const mill_train_settings *net = &a->set->net;
  const int width = net->width[net->n_hidden - 1], n = a->c.n_component;
  const size_t size = (size_t)n * (size_t)width;
  mill_random r;
  MILL_OWNED float *bias = NULL, *weight = NULL;
  MILL_CHECK(MILL_ALLOC(size, &weight));
  MILL_CHECK(MILL_ALLOC(n, &bias));
  mill_random_begin(&r, net->seed, 0, LAST_STREAM);
  for (size_t i = 0; i < size; i++)
    weight[i] = (float)((2 * mill_random_uniform(&r) - 1) / sqrt(width));
  if (a->set->last == MILL_TRAIN_PIXELS) {
    MILL_CHECK(MILL_ALLOC((size_t)a->c.n_pix * (size_t)width, &a->weight));
    MILL_CHECK(MILL_ALLOC(a->c.n_pix, &a->bias));
    return to_pixels(a, width, weight, bias, a->weight, a->bias);
  }
  MILL_CHECK(MILL_GIVE(&weight, &a->weight));
  return MILL_GIVE(&bias, &a->bias);
}

/* Build the emulator from the network's parameters. */
static int export(const arm *a, const mill_train_shape *shape, const float *param, mill_emulator *e)
{
  const int last = shape->n_layer - 1, width = shape->n_in[last];
  const size_t n_pix = (size_t)a->c.n_pix;
  e->kind = MILL_EMULATOR_MLP;
  e->log_flux = a->set->log_flux;
  e->n_layer = shape->n_layer;
  for (int l = 0; l <= last; l++) {
    e->n_in[l] = shape->n_in[l];
    e->n_out[l] = l == last ? a->c.n_pix : shape->n_out[l];
    const size_t n = (size_t)e->n_in[l] * (size_t)e->n_out[l], n_bias = (size_t)e->n_out[l];
    MILL_CHECK(MILL_ALLOC(n, &e->weight[l]));
    MILL_CHECK(MILL_ALLOC(n_bias, &e->bias[l]));
    if (l == last && a->set->last == MILL_TRAIN_COMPONENTS)
      break;
    memcpy(e->weight[l], param + shape->weight[l], n * sizeof *param);
    memcpy(e->bias[l], param + shape->bias[l], n_bias * sizeof *param);
  }
  if (a->set->last == MILL_TRAIN_COMPONENTS)
    MILL_CHECK(to_pixels(a, width, param + shape->weight[last], param + shape->bias[last],
                         e->weight[last], e->bias[last]));
  for (size_t p = 0; p < n_pix; p++)
    e->bias[last][p] = (float)((double)e->bias[last][p] + a->c.mean[p]);
  return MILL_OK;
}

/* ---- arm ---- */

/* Train the network, then solve its last layer if the loss is L2 and models were left out.  *best:
 * parameters with the solved layer; state->best keeps the trained layer, for checkpoints. */
static int second_phase(arm *a, const mill_train_ops *ops, const mill_train_problem *problem,
                        const mill_train_watch *watch, mill_train_state *state, float **best,
                        mill_train_arm_report *report)
{
  const int n_before = state->n_epoch;
  mill_train_settings as_in_fits = a->set->net;
  mill_train_shape shape;
  const double start_s = mill_wall_s();
  mill_train_shape_of(&a->set->net, problem->n_in, problem->n_out, &shape);
  MILL_CHECK(mill_train_run(a->mpi, ops, &a->set->net, problem, watch, state));
  report->gradient_s = mill_wall_s() - start_s;
  report->gflop = mill_train_gflop(&shape, a->task->n_train) * (state->n_epoch - n_before);
  report->loss = report->loss_unsolved = state->best_loss;
  MILL_CHECK(mill_mpi_agree(a->mpi, MILL_ALLOC(state->n_param, best)));
  memcpy(*best, state->best, state->n_param * sizeof **best);
  mill_train_state solved = *state;
  solved.best = *best;
  as_in_fits.precision = MILL_TRAIN_FLOAT32;
  if (as_in_fits.loss == MILL_TRAIN_L2 && a->task->n > a->task->n_train)
    MILL_CHECK(mill_train_solve_last(a->mpi, ops, &as_in_fits, problem, &solved,
                                     &report->loss_unsolved, &report->loss));
  return MILL_OK;
}

int mill_train_arm(const mill_mpi *mpi, const mill_train_ops *ops,
                   const mill_train_arm_settings *settings, const mill_train_arm_task *task,
                   const mill_train_watch *watch, mill_train_state *state, mill_emulator *emulator,
                   mill_train_arm_report *report)
{
  int err = MILL_OK;
  arm a = {.mpi = mpi, .set = settings, .task = task};
  mill_train_shape shape;
  float *best = NULL;
  double carried = 0; /* variance along the components */
  const double start_s = mill_wall_s();
  memset(report, 0, sizeof *report);
  MILL_TRY(mill_train_arm_settings_check(settings));
  MILL_TRY(first_phase(&a, ops));
  const int by_pixels = settings->last == MILL_TRAIN_PIXELS;
  MILL_TRY(by_pixels ? mill_mpi_agree(mpi, make_pixels(&a)) : make_scores(&a)); /* collective */
  MILL_TRY(mill_mpi_agree(mpi, begin_last(&a)));
  for (int k = 0; k < a.c.n_component; k++)
    carried += a.c.variance[k];
  report->n_component = a.c.n_component;
  report->rest = fmax(1 - carried / a.c.total, 0);
  report->statistics_s = mill_wall_s() - start_s;
  const mill_train_problem problem = {.n_in = task->n_label,
                                      .n_out = by_pixels ? task->n_pix : a.c.n_component,
                                      .n = task->n,
                                      .n_train = task->n_train,
                                      .x = task->x,
                                      .scale = a.net_scale,
                                      .n_norm = task->n_pix,
                                      .train_floor = a.floor[0],
                                      .validation_floor = a.floor[1],
                                      .rows = rows,
                                      .context = &a,
                                      .weight = a.weight,
                                      .bias = a.bias};
  mill_train_shape_of(&settings->net, problem.n_in, problem.n_out, &shape);
  if (!state->param)
    err = mill_train_begin(&settings->net, &problem, state);
  else if (state->n_param != shape.n_param)
    err = MILL_ERROR(MILL_ERR_INPUT,
                     "--checkpoint: the file has %zu parameters, the network %zu: remove the file",
                     state->n_param, shape.n_param);
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_TRY(second_phase(&a, ops, &problem, watch, state, &best, report));
  MILL_TRY(mill_mpi_agree(mpi, export(&a, &shape, best, emulator)));
done:
  mill_train_components_clear(&a.c);
  MILL_FREE(best, a.scale, a.target, a.net_scale, a.weight, a.bias);
  return err;
}
