/* SPDX-License-Identifier: BSD-3-Clause */
/** The kernels of a fit but the matrix products (product.h): one block of threads works on
 *  one star.  Only cuda_rounds.cu and kernel_*.cu include this.  Those that take long to compile
 *  have a file each, which defines one of MILL_KERNEL_START, MILL_KERNEL_ANSWER (its name),
 *  MILL_KERNEL_WEIGH and MILL_KERNEL_DIGEST before; cuda_rounds.cu defines MILL_KERNELS_SHORT and
 *  has the others.
 *
 *  Slots hold stars, lanes hold work space.  In a round, the slots with a request form a list; in a
 *  pass over it, lane i works on entry first + i. */
#ifndef MILL_CUDA_ROUNDS_H
#define MILL_CUDA_ROUNDS_H

#include "kernels/math/activation.h"
#include "kernels/cuda/device_view.h"
#include "kernels/star/blocks/peak.h"
#include "kernels/star/blocks/likelihood.h"
#include "kernels/star/blocks/prepare.h"
#include "kernels/math/rbf.h"
#include "kernels/math/spline_grid.h"
#ifdef MILL_KERNEL_DIGEST
#include "kernels/star/logic/fit_star.h"
#endif
#ifdef MILL_KERNEL_WEIGH
#include "kernels/star/blocks/sample_weigh.h"
#endif

enum {
  STAR_THREADS = MILL_BLOCK_THREADS, /**< of the block that works on one star */
  STAR_WARPS = MILL_BLOCK_WARPS,
  DIGEST_THREADS = 32, /**< a warp, of which one thread runs the logic */
  LIST_THREADS = 1024  /**< of the block that makes the list of a round */
};
/** The slot of this block in a pass that begins at entry first of the list; NULL: none.
 *  The same on all threads. */
static __device__ inline mill_slot *slot_of_block(const device_view &v, int first)
{
  const int i = first + (int)blockIdx.x;
  return i < v.state->n_active ? v.slot[v.active[i]] : NULL;
}

/** Has the slot something to evaluate in this arm?  The same on all threads. */
static __device__ inline int wants_arm(const mill_slot *slot, int arm)
{
  return slot && mill_slot_wants(slot, arm);
}

/** Does its template need the emulator? */
static __device__ inline int wants_template(const device_view &v, const mill_slot *slot, int arm)
{
  return wants_arm(slot, arm) && !mill_template_there(v.m, slot);
}

static __device__ inline int n_tangent(const mill_model *m, const mill_slot *slot)
{
  return slot->request == MILL_REQ_JACOBIAN ? m->n_label : 0;
}

/** A warp writes the row of a finished slot.  The order of rows depends on the hardware, nothing
 *  else does. */
static __device__ inline void finish_slot(const device_view &v, int i_slot)
{
  static_assert(sizeof(mill_fit_result) % sizeof(double) == 0, "a row is made of doubles");
  const int lane = (int)threadIdx.x & 31;
  int at = 0;
  if (lane == 0) {
    at = atomicAdd(&v.state->n_finished, 1);
    v.finished[at] = i_slot;
  }
  at = __shfl_sync(0xffffffffu, at, 0);
  const double *from = (const double *)(const void *)&v.slot[i_slot]->result;
  double *to = (double *)(void *)&v.result[at];
  for (int i = lane; i < (int)(sizeof(mill_fit_result) / sizeof(double)); i += 32)
    to[i] = from[i];
}

/** Arrays that the blocks of a star keep in shared memory instead of the lane's work space. */
template <int n_stage> struct star_shared {
  double sum[MILL_BLOCK_SHARED];
  union {
    struct {
      double sums[MILL_BLOCK_MAX_SUM];
      double normal[MILL_MAX_CONT * MILL_MAX_CONT];
      double solve[MILL_MAX_CONT * (MILL_MAX_PAR + 3)];
    } own;
    double of_team[STAR_WARPS * MILL_TEAM_SPACE];
  };
  __align__(16) double stage[n_stage];
  mill_workspace work;
};

/** Sizes of stage, in doubles: for sums over pixels; for templates. */
enum {
  STAGE_SUMS = STAR_WARPS * MILL_N_BY * MILL_GRAM_PIXELS,
  STAGE_TEMPLATE = STAR_WARPS * MILL_SPLINE_STAGE * (int)sizeof(mill_real) / (int)sizeof(double)
};
static_assert(STAR_WARPS * MILL_SPLINE_STAGE % 2 == 0, "stages are counted in doubles");

/** A block over this shared memory and the rest of a lane's work space. */
template <int n_stage>
static __device__ inline mill_block use_shared(star_shared<n_stage> *shared,
                                               const mill_workspace *work)
{
  const mill_block b = mill_block_whole(shared->sum, shared->stage);
  if (threadIdx.x == 0) {
    shared->work = *work;
    shared->work.sums = shared->own.sums;
    shared->work.normal = shared->own.normal;
    shared->work.solve = shared->own.solve;
  }
  __syncthreads();
  return b;
}

#ifdef MILL_KERNEL_START
/** Prepare and guess.  One block per fresh slot. */
static __global__ void __launch_bounds__(STAR_THREADS, 4) star_start(device_view v, int first)
{
  __shared__ star_shared<STAGE_SUMS> shared;
  mill_slot *slot = v.slot[v.fresh[first + (int)blockIdx.x]];
  mill_block b = use_shared(&shared, &v.work[blockIdx.x]);
  for (int i = 0; i < slot->n_segment; i++)
    mill_block_prepare(&b, v.m, &slot->segment[i]);
  mill_block_guess(&b, v.m, slot, &shared.work);
}

/** Compare residuals with templates.  One block per lane. */
static __global__ void __launch_bounds__(STAR_THREADS, 4) star_peak(device_view v, int first)
{
  __shared__ star_shared<STAGE_SUMS> shared;
  mill_slot *slot = slot_of_block(v, first);
  if (!slot || slot->request != MILL_REQ_PEAK)
    return;
  mill_block b = use_shared(&shared, &v.work[blockIdx.x]);
  mill_block_peak(&b, v.m, slot, &shared.work);
}

#endif
#ifdef MILL_KERNELS_SHORT
/** Begin rounds over n_listed slots: until n_want of them have finished, or max_round. */
static __global__ void __launch_bounds__(DIGEST_THREADS)
    loop_begin(device_view v, int n_listed, int n_want, int max_round)
{
  if (threadIdx.x != 0)
    return;
  loop_state *s = v.state;
  s->n_listed = n_listed;
  s->n_want = n_want;
  s->max_round = max_round;
  s->n_round = 0;
}

/** List the slots that want something, in the order in which they were given.  One block. */
static __global__ void __launch_bounds__(LIST_THREADS) round_list(device_view v)
{
  __shared__ int of_warp[LIST_THREADS / 32];
  const int thread = (int)threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const int n = v.state->n_listed, each = (n + LIST_THREADS - 1) / LIST_THREADS;
  const int begin = thread * each < n ? thread * each : n;
  const int end = begin + each < n ? begin + each : n;
  int count = 0;
  for (int i = begin; i < end; i++)
    count += v.slot[v.listed[i]]->request != MILL_REQ_NONE;
  /* sum over the threads before this one */
  int upto = count;
  for (int o = 1; o < 32; o *= 2) {
    const int left = __shfl_sync(0xffffffffu, upto, lane >= o ? lane - o : lane);
    upto += lane >= o ? left : 0;
  }
  if (lane == 31)
    of_warp[warp] = upto;
  __syncthreads();
  int at = upto - count;
  for (int w = 0; w < warp; w++)
    at += of_warp[w];
  for (int i = begin; i < end; i++)
    if (v.slot[v.listed[i]]->request != MILL_REQ_NONE)
      v.active[at++] = v.listed[i];
  if (thread == LIST_THREADS - 1)
    v.state->n_active = at;
}

/** Forget the rows of the pass before.  One block. */
static __global__ void __launch_bounds__(DIGEST_THREADS) pass_begin(device_view v)
{
  static_assert((int)N_ROW_KIND * MILL_MAX_ARM <= (int)DIGEST_THREADS,
                "a thread clears each count");
  if (threadIdx.x < N_ROW_KIND * MILL_MAX_ARM)
    v.row_count[threadIdx.x] = 0;
}

/** Enter n rows of the block's lane into a list of an arm. */
static __device__ inline void enter_rows(const device_view &v, int kind, int arm, int first, int n)
{
  const int list = kind * MILL_MAX_ARM + arm;
  if (n == 0)
    return;
  int *to = v.row_list + (size_t)list * v.row_pitch + atomicAdd(&v.row_count[list], n);
  for (int t = 0; t < n; t++)
    to[t] = (int)blockIdx.x * v.n_row + first + t;
}

/** Clear the answer, write the emulator's input rows and enter them into the lists
 *  of the arms.  One block per lane.
 *
 *  The order within a list depends on the hardware; no result depends on it, as a
 *  product treats every row alike. */
static __global__ void __launch_bounds__(STAR_THREADS) round_begin(device_view v, int first)
{
  mill_slot *slot = slot_of_block(v, first);
  if (!slot)
    return;
  const mill_model *m = v.m;
  const int thread = (int)threadIdx.x, n = (int)blockDim.x;
  const int n_tan = n_tangent(m, slot), n_label = m->n_label;
  static_assert(sizeof(mill_eval) % sizeof(double) == 0, "an answer is made of doubles");
  double *eval = (double *)(void *)&slot->eval;
  for (int i = thread; i < (int)(sizeof(mill_eval) / sizeof(double)); i += n)
    eval[i] = 0.0;
  double *input = v.input.base + blockIdx.x * v.input.lane;
  for (int e = thread; e < (1 + n_tan) * n_label; e += n) {
    const int t = e / n_label, l = e % n_label;
    const double value = slot->theta[MILL_PAR_LABEL0 + l];
    double x = 0.0;
    if (t == 0)
      x = mill_label_map(&m->label[l], value);
    else if (l == t - 1)
      x = mill_label_map_slope(&m->label[l], value);
    input[(size_t)t * v.input.row + (size_t)l] = x;
  }
  for (int a = thread; a < m->n_arm; a += n) {
    if (!wants_template(v, slot, a))
      continue;
    enter_rows(v, ROWS_ALL, a, 0, 1 + n_tan);
    const int n_exact = mill_slot_rough(slot, &m->arm[a]) ? 1 : 1 + n_tan;
    enter_rows(v, ROWS_EXACT, a, 0, n_exact);
    enter_rows(v, ROWS_ROUGH, a, n_exact, 1 + n_tan - n_exact);
  }
}

/** The front of an emulator that is no network.  One block per lane. */
static __global__ void __launch_bounds__(STAR_THREADS)
    front(device_view v, int first, int arm, row_layout<double> out)
{
  const mill_slot *slot = slot_of_block(v, first);
  if (!wants_template(v, slot, arm))
    return;
  mill_block b = mill_block_whole(NULL, NULL); /* no sums over threads, no tiles */
  const mill_model_arm *a = &v.m->arm[arm];
  const double *in = v.input.base + blockIdx.x * v.input.lane;
  double *to = out.base + blockIdx.x * out.lane;
  if (a->kind == MILL_EMULATOR_GRID)
    mill_block_spline_grid(&b, &a->grid, n_tangent(v.m, slot), in, v.input.row, to, out.row);
  else
    mill_block_rbf(&b, &a->rbf, n_tangent(v.m, slot), in, v.input.row, to, out.row);
}

/** SiLU of the value row, its slope times the tangent rows.  One block per lane. */
static __global__ void __launch_bounds__(STAR_THREADS)
    activate(device_view v, int first, int arm, int n_out, row_layout<double> rows)
{
  const mill_slot *slot = slot_of_block(v, first);
  if (!wants_template(v, slot, arm))
    return;
  const int n_tan = n_tangent(v.m, slot);
  double *z = rows.base + blockIdx.x * rows.lane;
  for (int i = (int)threadIdx.x; i < n_out; i += (int)blockDim.x) {
    double slope;
    z[i] = mill_silu(z[i], &slope);
    for (int t = 1; t <= n_tan; t++)
      z[(size_t)t * rows.row + (size_t)i] *= slope;
  }
}

/** Mean over pixels of the last layer's output, from its input and in float64, and
 *  that input in float32 where the last layer is.  One block per lane, a warp a row. */
static __global__ void __launch_bounds__(STAR_THREADS)
    last_input(device_view v, int first, int arm, int n_in, int narrow, row_layout<double> in)
{
  const mill_slot *slot = slot_of_block(v, first);
  if (!wants_template(v, slot, arm))
    return;
  const mill_model_arm *a = &v.m->arm[arm];
  const int n_tan = n_tangent(v.m, slot);
  const int lane = (int)threadIdx.x % 32, n_warp = (int)blockDim.x / 32;
  for (int t = (int)threadIdx.x / 32; t <= n_tan; t += n_warp) {
    const double *h = in.base + blockIdx.x * in.lane + (size_t)t * in.row;
    float *copy = v.narrow.base + blockIdx.x * v.narrow.lane + (size_t)t * v.narrow.row;
    double sum = 0.0;
    for (int k = lane; k < n_in; k += 32) {
      sum += a->mean_weight[k] * h[k];
      if (narrow)
        copy[k] = (float)h[k];
    }
    sum = mill_warp_sum(sum);
    if (lane == 0)
      v.work[blockIdx.x].mean[t] = sum + (t == 0 ? a->mean_bias : 0.0);
  }
}

#endif
#ifdef MILL_KERNEL_ANSWER
/** The likelihood of one arm.  One block per lane. */
static __global__ void __launch_bounds__(STAR_THREADS, 4)
    MILL_KERNEL_ANSWER(device_view v, int first, int arm)
{
  __shared__ star_shared<STAGE_TEMPLATE> shared;
  __shared__ mill_team_memory team;
  mill_slot *slot = slot_of_block(v, first);
  if (!wants_arm(slot, arm))
    return;
  mill_block b = use_shared(&shared, &v.work[blockIdx.x]);
  b.team = &team;
  if (threadIdx.x == 0)
    team.space = shared.of_team;
  __syncthreads();
  mill_block_arm(&b, v.m, slot, arm, &shared.work);
}

#endif
#ifdef MILL_KERNEL_WEIGH
/** Weigh the points of posteriors.  One block per lane. */
static __global__ void __launch_bounds__(STAR_THREADS) star_weigh(device_view v, int first)
{
  __shared__ double sum[MILL_BLOCK_SHARED];
  mill_slot *slot = slot_of_block(v, first);
  if (!slot || slot->request != MILL_REQ_WEIGH)
    return;
  mill_block b = mill_block_whole(sum, NULL);
  mill_block_points_look(&b, v.m, slot);
}

#endif
#ifdef MILL_KERNEL_DIGEST
/** Go on with the fit of a slot by its answer, or from its guess, to the next request.  A warp per
 *  lane, or per fresh slot. */
static __global__ void __launch_bounds__(DIGEST_THREADS, 16)
    round_digest(device_view v, int first, int is_fresh)
{
  const int i = first + (int)blockIdx.x;
  if (!is_fresh && i >= v.state->n_active)
    return;
  const int i_slot = is_fresh ? v.fresh[i] : v.active[i];
  mill_slot *slot = v.slot[i_slot];
  if (threadIdx.x == 0)
    mill_fit_resume(v.m, slot);
  __syncwarp();
  if (slot->request == MILL_REQ_NONE)
    finish_slot(v, i_slot);
}

#endif
#ifdef MILL_KERNELS_SHORT
/** Is another round needed?  One thread, after all digests of a round. */
static __device__ inline int round_count(const device_view &v)
{
  loop_state *s = v.state;
  s->n_round++;
  return s->n_finished < s->n_want && s->n_finished < s->n_listed && s->n_round < s->max_round;
}

static __global__ void __launch_bounds__(DIGEST_THREADS) round_end(device_view v)
{
  if (threadIdx.x == 0)
    (void)round_count(v);
}

/** The same in a graph, as the condition of its loop. */
static __global__ void __launch_bounds__(DIGEST_THREADS)
    round_end_graph(device_view v, cudaGraphConditionalHandle go_on)
{
  if (threadIdx.x == 0)
    cudaGraphSetConditional(go_on, round_count(v) ? 1u : 0u);
}

/** Debug mode: count the NaN among the templates of an arm.  One block per lane. */
template <typename real>
static __global__ void __launch_bounds__(STAR_THREADS)
    find_nan(device_view v, int first, int arm, row_layout<const real> rows)
{
  const mill_slot *slot = slot_of_block(v, first);
  if (!wants_template(v, slot, arm))
    return;
  const real *at = rows.base + blockIdx.x * rows.lane;
  int n = 0;
  for (int t = 0; t <= n_tangent(v.m, slot); t++)
    for (int i = (int)threadIdx.x; i < v.m->arm[arm].n_pix; i += (int)blockDim.x) {
      const real x = at[(size_t)t * rows.row + (size_t)i];
      n += x != x;
    }
  if (n > 0)
    (void)atomicAdd(&v.state->n_nan, n);
}
#endif

#endif
