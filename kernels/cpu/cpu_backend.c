/* The CPU backend: OpenMP threads over groups of slots.
 *
 * Compiled once per instruction set (MILL_ISA), and once more with fibers in
 * place of plain loops (MILL_BLOCK_FIBERS) for the checking build.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <omp.h>

#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/error.h"
#include "kernels/fit.h"
#include "kernels/guess.h"
#include "kernels/pixel.h"
#include "kernels/prepare.h"
#include "kernels/rbf.h"
#include "kernels/spline_grid.h"

enum {
  MILL_GROUP = 8, /**< slots that share one pass over the emulator's weights */
  MILL_GROUP_ROWS = MILL_GROUP * (1 + MILL_MAX_LABEL)
};

/** Work space of one thread. */
typedef struct mill_lane {
  int max_seg_pix;
  double *hidden[2]; /**< [MILL_GROUP_ROWS][MILL_MAX_WIDTH] */
  float *narrow;     /**< the same, input of the last layer */
  void *shared;      /**< what the slots of a group use in turn */
  void *grids;       /**< each slot's emulator output */
  mill_work work[MILL_GROUP];
} mill_lane;

struct mill_device {
  int n_thread;
  mill_lane *lane;
};

#if defined(__AVX512F__)
#define MILL_VEC_BYTES 64
#define MILL_VECS      4
#elif defined(__AVX__)
#define MILL_VEC_BYTES 32
#define MILL_VECS      2
#else
#define MILL_VEC_BYTES 16
#define MILL_VECS      2
#endif

#define MILL_REAL    float
#define MILL_T(name) name##_f32
#include "kernels/cpu/emulator_impl.h"
#undef MILL_REAL
#undef MILL_T

#define MILL_REAL    double
#define MILL_T(name) name##_f64
#include "kernels/cpu/emulator_impl.h"
#undef MILL_REAL
#undef MILL_T

/** Run a block function; task is what it casts its argument to. */
static void run_block(void (*body)(mill_block *, void *), void *task)
{
#ifdef MILL_BLOCK_FIBERS
  mill_fiber_run(body, task);
#else
  mill_block b = {0};
  body(&b, task);
#endif
}

/** The front of an emulator that is no network, for one star. */
typedef struct mill_front_task {
  const mill_model_arm *arm;
  int n_tangent;
  const double *in; /**< [1 + n_tangent][MILL_MAX_WIDTH] */
  double *out;      /**< the same */
} mill_front_task;

static void body_front(mill_block *b, void *arg)
{
  const mill_front_task *t = arg;
  if (t->arm->kind == MILL_EMULATOR_GRID)
    mill_block_spline_grid(b, &t->arm->grid, t->n_tangent, t->in, MILL_MAX_WIDTH, t->out,
                           MILL_MAX_WIDTH);
  else
    mill_block_rbf(b, &t->arm->rbf, t->n_tangent, t->in, MILL_MAX_WIDTH, t->out, MILL_MAX_WIDTH);
}

/** SiLU of the value row z, its slope times the tangent rows after it. */
static void activate(int n, int n_tangent, double *const *row)
{
  double *z = row[0];
  for (int i = 0; i < n; i++) {
    const double s = 1.0 / (1.0 + exp(-z[i])), slope = s * (1.0 + z[i] * (1.0 - s));
    for (int t = 1; t <= n_tangent; t++)
      row[t][i] *= slope;
    z[i] *= s;
  }
}

/** Emulate one arm for a group of slots; slot i's rows go to lane->work[i].grid
 *  (pitch max_pix_pad): the value, and for a Jacobian one tangent per label.
 *
 *  Labels, grids, radial functions and hidden layers are float64 in both precisions (a
 *  tenth of the arithmetic): rounding there moves all pixels together, as a change of
 *  labels would.  Only the last layer, the expensive one, is of the run's precision. */
static void emulate(const mill_model *m, int i_arm, int n_slot, mill_slot *const *slot,
                    mill_lane *lane)
{
  const mill_model_arm *arm = &m->arm[i_arm];
  const int wide = m->set.precision == MILL_FLOAT64;
  const size_t real = wide ? sizeof(double) : sizeof(float);
  const double *from[MILL_GROUP_ROWS];
  double *to[MILL_GROUP_ROWS];
  int value[MILL_GROUP_ROWS], first[MILL_GROUP], n_tangent[MILL_GROUP], n_row = 0;
  double *in = lane->hidden[0], *out = lane->hidden[1];

  for (int s = 0; s < n_slot; s++) {
    double x[MILL_MAX_LABEL];
    mill_map_labels(m, slot[s]->theta, x);
    first[s] = n_row;
    n_tangent[s] = slot[s]->request == MILL_REQ_JACOBIAN ? m->n_label : 0;
    for (int t = 0; t <= n_tangent[s]; t++) {
      double *row = in + (size_t)n_row * MILL_MAX_WIDTH;
      value[n_row++] = t == 0;
      for (int l = 0; l < m->n_label; l++)
        row[l] = t == 0 ? x[l] : 0.0;
      if (t > 0)
        row[t - 1] =
            mill_label_map_slope(&m->label[t - 1], slot[s]->theta[MILL_PAR_LABEL0 + t - 1]);
    }
  }
  if (arm->kind != MILL_EMULATOR_MLP) {
    for (int s = 0; s < n_slot; s++) {
      const size_t at = (size_t)first[s] * MILL_MAX_WIDTH;
      mill_front_task task = {arm, n_tangent[s], in + at, out + at};
      run_block(body_front, &task);
    }
    double *swap = in;
    in = out;
    out = swap;
  }
  for (int l = 0; l < arm->n_layer - 1; l++) {
    for (int r = 0; r < n_row; r++) {
      from[r] = in + (size_t)r * MILL_MAX_WIDTH;
      to[r] = out + (size_t)r * MILL_MAX_WIDTH;
    }
    layer_product_f64(&arm->layer[l], n_row, from, value, to);
    for (int s = 0; s < n_slot; s++)
      activate(arm->layer[l].n_out, n_tangent[s], to + first[s]);
    double *swap = in;
    in = out;
    out = swap;
  }

  const mill_layer *last = &arm->layer[arm->n_layer - 1];
  for (int s = 0; s < n_slot; s++)
    for (int t = 0; t <= n_tangent[s]; t++) {
      const double *h = in + (size_t)(first[s] + t) * MILL_MAX_WIDTH;
      double mean = t == 0 ? arm->mean_bias : 0.0;
      for (int k = 0; k < last->n_in; k++)
        mean += arm->mean_weight[k] * h[k];
      lane->work[s].mean[t] = mean;
    }
  char *grid[MILL_GROUP_ROWS];
  for (int s = 0; s < n_slot; s++)
    for (int t = 0; t <= n_tangent[s]; t++)
      grid[first[s] + t] = (char *)lane->work[s].grid + (size_t)t * (size_t)m->max_pix_pad * real;
  if (wide) {
    for (int r = 0; r < n_row; r++) {
      from[r] = in + (size_t)r * MILL_MAX_WIDTH;
      to[r] = (double *)(void *)grid[r];
    }
    layer_product_f64(last, n_row, from, value, to);
  } else {
    const float *from32[MILL_GROUP_ROWS];
    float *to32[MILL_GROUP_ROWS];
    for (int r = 0; r < n_row; r++) {
      float *narrow = lane->narrow + (size_t)r * MILL_MAX_WIDTH;
      for (int k = 0; k < last->n_in; k++)
        narrow[k] = (float)in[(size_t)r * MILL_MAX_WIDTH + (size_t)k];
      from32[r] = narrow;
      to32[r] = (float *)(void *)grid[r];
    }
    layer_product_f32(last, n_row, from32, value, to32);
  }
}

/** One block's work: what a kernel launch would be given. */
typedef struct mill_task {
  const mill_model *m;
  mill_slot *slot;
  mill_work *work;
  int arm;
} mill_task;

static void body_start(mill_block *b, void *arg)
{
  const mill_task *t = arg;
  for (int i = 0; i < t->slot->n_segment; i++)
    mill_block_prepare(b, t->m, &t->slot->segment[i]);
  mill_block_guess(b, t->m, t->slot, t->work);
  MILL_SERIAL(b)
  {
    mill_fit_begin(t->m, t->slot);
  }
  MILL_BARRIER(b);
}

static void body_arm(mill_block *b, void *arg)
{
  const mill_task *t = arg;
  if (t->m->set.precision == MILL_FLOAT64)
    mill_block_arm_f64(b, t->m, t->slot, t->arm, t->work);
  else
    mill_block_arm_f32(b, t->m, t->slot, t->arm, t->work);
}

static size_t padded(size_t bytes)
{
  return (bytes + 63) / 64 * 64;
}

static void lane_clear(mill_lane *lane)
{
  mill_free(lane->hidden[0]);
  mill_free(lane->hidden[1]);
  mill_free(lane->narrow);
  mill_free(lane->shared);
  mill_free(lane->grids);
  memset(lane, 0, sizeof *lane);
}

/** Make a lane's buffers fit the model. */
static int lane_reserve(mill_lane *lane, const mill_model *m)
{
  int err = MILL_OK;
  if (lane->max_seg_pix >= m->max_seg_pix && lane->hidden[0])
    return MILL_OK;
  lane_clear(lane);
  const size_t real = m->set.precision == MILL_FLOAT64 ? sizeof(double) : sizeof(float);
  const size_t n_row = (size_t)m->n_par + 1;
  const size_t grid = padded(n_row * (size_t)m->max_pix_pad * real);
  const size_t pix = padded(n_row * (size_t)m->max_seg_pix * real);
  const size_t index = padded((size_t)m->max_seg_pix * sizeof(int));
  const size_t frac = padded((size_t)m->max_seg_pix * sizeof(float));
  const size_t kernel = padded((MILL_MAX_ROTATION + 1) * sizeof(double));
  const size_t normal = padded(MILL_MAX_CONT * MILL_MAX_CONT * sizeof(double));
  const size_t solve = padded(MILL_MAX_CONT * (MILL_MAX_PAR + 3) * sizeof(double));
  const size_t sums = padded(MILL_BLOCK_MAX_SUM * sizeof(double));
  for (int i = 0; i < 2; i++)
    MILL_TRY(MILL_ALLOC(MILL_GROUP_ROWS * MILL_MAX_WIDTH, &lane->hidden[i]));
  MILL_TRY(MILL_ALLOC(MILL_GROUP_ROWS * MILL_MAX_WIDTH, &lane->narrow));
  MILL_TRY(mill_alloc_bytes(MILL_GROUP, grid, &lane->grids));
  MILL_TRY(mill_alloc_bytes(
      1, 2 * grid + 2 * pix + index + frac + 2 * kernel + normal + solve + sums, &lane->shared));
  for (int i = 0; i < MILL_GROUP; i++) {
    mill_work *w = &lane->work[i];
    char *p = lane->shared;
    w->grid = (char *)lane->grids + (size_t)i * grid;
    w->rotated = p;
    w->bend = p += grid;
    w->pixel = p += grid;
    w->smooth = p += pix;
    p += pix;
    w->index = (int *)(void *)p;
    p += index;
    w->frac = (float *)(void *)p;
    p += frac;
    w->kernel = (double *)(void *)p;
    p += kernel;
    w->kernel_slope = (double *)(void *)p;
    p += kernel;
    w->normal = (double *)(void *)p;
    p += normal;
    w->solve = (double *)(void *)p;
    p += solve;
    w->sums = (double *)(void *)p;
  }
  lane->max_seg_pix = m->max_seg_pix;
done:
  if (err)
    lane_clear(lane);
  return err;
}

static int cpu_open(int n_thread, mill_device **out)
{
  int err = MILL_OK;
  mill_device *d = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &d));
  d->n_thread = n_thread < 1 ? 1 : n_thread;
  MILL_TRY(MILL_ALLOC(d->n_thread, &d->lane));
  *out = d;
  d = NULL;
done:
  mill_free(d);
  return err;
}

static void cpu_close(mill_device *d)
{
  if (!d)
    return;
  for (int i = 0; i < d->n_thread; i++)
    lane_clear(&d->lane[i]);
  mill_free(d->lane);
  mill_free(d);
}

static int cpu_alloc(mill_device *d, size_t bytes, void **out)
{
  (void)d;
  return mill_alloc_bytes(bytes, 1, out);
}

static void cpu_release(mill_device *d, void *memory)
{
  (void)d;
  mill_free(memory);
}

static int cpu_copy(mill_device *d, void *to, const void *from, size_t bytes)
{
  (void)d;
  if (to != from && bytes > 0)
    memcpy(to, from, bytes);
  return MILL_OK;
}

static int cpu_zero(mill_device *d, void *to, size_t bytes)
{
  (void)d;
  memset(to, 0, bytes);
  return MILL_OK;
}

static int reserve(mill_device *d, const mill_model *m)
{
  int err = MILL_OK;
  for (int i = 0; i < d->n_thread; i++)
    MILL_TRY(lane_reserve(&d->lane[i], m));
done:
  return err;
}

static int cpu_start(mill_device *d, const mill_model *m, mill_slot *const *slot, int n)
{
  const int err = reserve(d, m);
  if (err)
    return err;
#pragma omp parallel for schedule(dynamic, 1) num_threads(d->n_thread)
  for (int i = 0; i < n; i++) {
    mill_task task = {m, slot[i], &d->lane[omp_get_thread_num()].work[0], 0};
    run_block(body_start, &task);
  }
  return MILL_OK;
}

/** n_round rounds of one group. */
static void group_rounds(const mill_model *m, mill_slot *const *group, int n_group, int n_round,
                         mill_lane *lane)
{
  for (int i_round = 0; i_round < n_round; i_round++) {
    mill_slot *active[MILL_GROUP];
    int n = 0;
    for (int i = 0; i < n_group; i++)
      if (group[i]->request != MILL_REQ_NONE) {
        active[n++] = group[i];
        memset(&group[i]->eval, 0, sizeof group[i]->eval);
      }
    if (n == 0)
      return;
    for (int a = 0; a < m->n_arm; a++) {
      mill_slot *with[MILL_GROUP];
      int n_with = 0;
      for (int i = 0; i < n; i++) {
        int has = 0;
        for (int s = 0; s < active[i]->n_segment; s++)
          has |= active[i]->segment[s].used && active[i]->segment[s].arm == a;
        if (has)
          with[n_with++] = active[i];
      }
      if (n_with == 0)
        continue;
      emulate(m, a, n_with, with, lane);
      for (int i = 0; i < n_with; i++) {
        mill_task task = {m, with[i], &lane->work[i], a};
        run_block(body_arm, &task);
      }
    }
    for (int i = 0; i < n; i++)
      mill_fit_digest(m, active[i]);
  }
}

static int cpu_round(mill_device *d, const mill_model *m, mill_slot *const *slot, int n,
                     int n_round)
{
  const int err = reserve(d, m);
  if (err)
    return err;
  /* few slots: smaller groups, so that every thread has one */
  int group = (n + d->n_thread - 1) / d->n_thread;
  group = group > MILL_GROUP ? MILL_GROUP : (group < 1 ? 1 : group);
  const int n_group = (n + group - 1) / group;
#pragma omp parallel for schedule(dynamic, 1) num_threads(d->n_thread)
  for (int g = 0; g < n_group; g++) {
    const int first = g * group, len = n - first < group ? n - first : group;
    group_rounds(m, slot + first, len, n_round, &d->lane[omp_get_thread_num()]);
  }
  return MILL_OK;
}

const mill_backend MILL_ISA_SYMBOL(mill_backend_cpu) = {
    .name = "cpu " MILL_ISA_NAME,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .upload = cpu_copy,
    .zero = cpu_zero,
    .download = cpu_copy,
    .start = cpu_start,
    .round = cpu_round,
};
