/* SPDX-License-Identifier: BSD-3-Clause */
/* Particles on a GPU: the table of kernels/particles/particles.h.
 *
 *  All problems that fit the memory move at once, with one upload of inputs and one download of
 *  results.  Nothing waits for the host in between.
 *
 *  A cloud's particles are cut into parts, one block each; the setup alone decides the number of
 *  parts.  Sums over parts have a fixed order; sums at the nodes of a binned density are integers.
 *  So results depend neither on the order of blocks nor on other problems. */
#include <string.h>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/particle_view.h"
#include "kernels/gpu.h"

enum {
  THREADS = MILL_BLOCK_THREADS,
  WARPS = MILL_BLOCK_WARPS,
  PART = 128,            /* least particles of a part: one per thread */
  MOST_PART = 1024,      /* most parts: some eight on each multiprocessor of a large GPU */
  MOST_SUM_BLOCK = 4096, /* most blocks that sum one cloud's kernels, about */
  SLAB_BYTES = 32 << 20, /* most memory of one cloud's slabs, about */
  MOST_AT_ONCE = 32768   /* most clouds per launch, along one axis of blocks */
};

/** GPU memory left to CUDA. */
static const size_t SPARE_BYTES = (size_t)128 << 20;

/** Cloud i, cut into n_part parts. */
static __device__ inline mill_particle_cloud cloud_of(const particle_view &v, int i, int n_part)
{
  mill_particle_cloud c = v.cloud[i];
  c.setup = &v.setup;
  c.n_part = n_part;
  return c;
}

/** Move a part by steps [step, step + n_step); step 0 is the start.  A block per part and cloud. */
static __global__ void __launch_bounds__(THREADS, 3)
    particle_move(const __grid_constant__ particle_view v, int step, int n_step)
{
  __shared__ double shared[MILL_BLOCK_SHARED];
  mill_block b = mill_block_whole(shared, NULL);
  mill_particle_cloud c = cloud_of(v, (int)blockIdx.y, v.n_part);
  if (c.bad_step >= 0)
    return;
  for (int k = 0; k < n_step; k++) {
    mill_block_particles(&b, &c, (int)blockIdx.x, step + k);
    c.sums += v.n_part * MILL_PARTICLE_SUMS;
  }
}

/** Compute a cloud's moments after steps [step, step + n_step).  With i_record >= 0, also the
 *  kernel and error bound of density i_record, after the last step.  One block per cloud. */
static __global__ void __launch_bounds__(THREADS)
    particle_settle(const __grid_constant__ particle_view v, int step, int n_step, int i_record)
{
  const int i = (int)blockIdx.x, lane = (int)threadIdx.x & 31;
  mill_particle_cloud c = cloud_of(v, i, 1);
  double *total = v.total + (size_t)i * MILL_PARTICLE_STRIDE * MILL_PARTICLE_SUMS;
  for (int k = (int)threadIdx.x >> 5; k < n_step; k += WARPS) {
    const double *sums = c.sums + (size_t)k * (size_t)v.n_part * MILL_PARTICLE_SUMS;
    for (int q = 0; q < MILL_PARTICLE_SUMS; q++) {
      double sum = 0.0;
      for (int part = lane; part < v.n_part; part += 32)
        sum += sums[part * MILL_PARTICLE_SUMS + q];
      sum = mill_warp_sum(sum);
      if (lane == 0)
        total[k * MILL_PARTICLE_SUMS + q] = sum;
    }
  }
  __syncthreads();
  if (threadIdx.x > 0)
    return;
  double *moment =
      v.moment + ((size_t)i * (size_t)(v.setup.n_step + 1) + (size_t)step) * MILL_PARTICLE_MOMENTS;
  c.sums = total; /* sums over all parts, as of a cloud of one part (cloud_of) */
  mill_particle_settle(&c, step, n_step, moment);
  v.bad_step[i] = v.cloud[i].bad_step = c.bad_step;
  for (int a = 0; a < v.setup.n_dim; a++)
    v.cloud[i].reference[a] = c.reference[a];
  if (i_record < 0)
    return;
  moment += (size_t)(n_step - 1) * MILL_PARTICLE_MOMENTS;
  mill_kernel_make(&v.setup, moment, &v.kernel[i]);
  v.bound[(size_t)i * (size_t)v.setup.n_record + (size_t)i_record] =
      mill_density_bound(&v.setup, &v.kernel[i], moment, v.rounding);
}

/** Sum a slab's kernels at a tile of the grid (exact form).  One block per tile, slab and cloud. */
static __global__ void __launch_bounds__(THREADS, 4)
    particle_sum(const __grid_constant__ particle_view v)
{
  __shared__ particle_tile tile;
  __shared__ double meet[MILL_SEGMENT * THREADS];
  mill_block b = mill_block_whole(meet, NULL);
  const int i = (int)blockIdx.z, slab = (int)blockIdx.y;
  const mill_particle_cloud c = cloud_of(v, i, v.n_slab);
  const mill_particle_kernel *k = &v.kernel[i];
  if (k->is_there)
    particle_slab_sum(&b, v, &c, k, (int)blockIdx.x, slab, &tile, meet,
                      v.slab + ((size_t)i * (size_t)v.n_slab + (size_t)slab) * (size_t)v.n_grid);
}

/** Sum a grid point's density over all slabs of particles.  One warp per point and cloud. */
static __global__ void __launch_bounds__(THREADS)
    particle_total(const __grid_constant__ particle_view v, int i_record)
{
  const int i = (int)blockIdx.y, lane = (int)threadIdx.x & 31;
  const int point = (int)blockIdx.x * WARPS + ((int)threadIdx.x >> 5);
  if (point >= v.n_grid)
    return;
  const double *slab = v.slab + (size_t)i * (size_t)v.n_slab * (size_t)v.n_grid + (size_t)point;
  double sum = 0.0;
  for (int p = lane; p < v.n_slab && v.kernel[i].is_there; p += 32)
    sum += slab[(size_t)p * (size_t)v.n_grid];
  sum = mill_warp_sum(sum);
  if (lane == 0)
    v.density[((size_t)i * (size_t)v.setup.n_record + (size_t)i_record) * (size_t)v.n_grid +
              (size_t)point] = v.kernel[i].is_there ? v.kernel[i].peak * sum : NAN;
}

/** Binned form: spread each particle of a slab over the nodes around it.  A slab is the part of a
 *  cloud's particles that one block treats.  Nodes are 64-bit integers, for atomic additions. */
static __global__ void __launch_bounds__(THREADS)
    particle_spread(const __grid_constant__ particle_view v)
{
  __shared__ particle_tile tile;
  mill_block b = mill_block_whole(NULL, NULL);
  const int i = (int)blockIdx.y;
  const mill_particle_cloud c = cloud_of(v, i, v.n_slab);
  const mill_particle_kernel *k = &v.kernel[i];
  if (k->is_there)
    particle_slab_spread(&b, &c, k, (int)blockIdx.x, 1.0 / v.node_unit, &tile,
                         v.node + (size_t)i * (size_t)v.n_node);
}

/** Convolve along axis a like mill_block_convolve, with n_point = n_row n_grid n_inner outputs for
 *  each cloud; in `to` clouds are n_to numbers apart.  The last axis comes first: its input is
 *  v.node, and `from` is NULL.  A warp computes one output point of the cloud blockIdx.y. */
static __global__ void __launch_bounds__(THREADS)
    particle_convolve(const __grid_constant__ particle_view v, int a, int n_point, int n_inner,
                      const double *from, double *to, size_t n_to)
{
  const mill_particle_setup *s = &v.setup;
  const int i = (int)blockIdx.y, lane = (int)threadIdx.x & 31;
  const int point = (int)blockIdx.x * WARPS + ((int)threadIdx.x >> 5);
  const mill_particle_kernel *k = &v.kernel[i];
  double low, spacing, sum = 0.0;
  if (point >= n_point)
    return;
  mill_node_axis(s, k, a, &low, &spacing);
  const int outer = point / n_inner; /* index in [n_row][n_grid] */
  const double x = s->grid_low[a] + (outer % s->n_grid[a]) * mill_grid_step(s, a);
  const double inverse = 1.0 / k->width[a];
  const size_t first = (size_t)(outer / s->n_grid[a]) * (size_t)s->n_node[a] * (size_t)n_inner +
                       (size_t)(point % n_inner);
  for (int j = lane; j < s->n_node[a] && k->is_there; j += 32) {
    const double factor = mill_node_factor((low + j * spacing - x) * inverse);
    const size_t at = first + (size_t)j * (size_t)n_inner;
    if (factor > 0.0)
      sum += factor * (from ? from[(size_t)i * v.n_work + at]
                            : (double)(long long)v.node[(size_t)i * (size_t)v.n_node + at]);
  }
  sum = mill_warp_sum(sum);
  if (lane > 0)
    return;
  if (!from) /* the first convolution's input has node units, not densities */
    sum *= v.node_unit * k->peak;
  to[(size_t)i * n_to + (size_t)point] = k->is_there ? sum : NAN;
}

/** Write positions [n_particle][n_dim], NaN for absorbed particles. */
static __global__ void __launch_bounds__(THREADS)
    particle_hand_over(const __grid_constant__ particle_view v)
{
  const mill_particle_cloud *c = &v.cloud[blockIdx.y];
  const size_t n = (size_t)v.setup.n_particle, n_dim = (size_t)v.setup.n_dim;
  double *position = v.position + (size_t)blockIdx.y * n * n_dim;
  for (size_t p = (size_t)blockIdx.x * THREADS + threadIdx.x; p < n;
       p += (size_t)gridDim.x * THREADS)
    for (size_t a = 0; a < n_dim; a++)
      position[p * n_dim + a] = c->bad_step < 0 && c->alive[p] > 0.0 ? c->x[a * n + p] : NAN;
}

/** Problems that evolve together. */
struct batch {
  const mill_particle_setup *setup;
  const mill_particle_problem *problem;
  mill_particle_result *result;
  int n, has_position;
  int n_tile; /* tiles of the grid */
  particle_view view;
  cudaStream_t stream;
  char *device;                        /* all memory there, owned */
  size_t n_up, n_down, down_at, n_all; /* bytes; inputs (up) come first */
  char *up, *down;                     /* pinned */
};

/** Reserve n elements of input; returns the device pointer, and *offset in the pinned buffer. */
template <typename type> static type *piece(batch *b, size_t *at, size_t n, size_t *offset)
{
  *offset = *at;
  return mill_cuda_take<type>(b->device, at, n);
}

/** Put n input numbers (value NULL: none) into the buffer; returns their device pointer. */
static const double *place_numbers(batch *b, size_t *at, size_t n, const double *value)
{
  size_t to;
  const double *d_value = piece<double>(b, at, value ? n : 0, &to);
  if (b->up && value)
    memcpy(b->up + to, value, n * sizeof(double));
  return d_value;
}

/** Lay out problems and setup arrays in device memory; fill b->up for upload if it is allocated. */
static void place_problems(batch *b, size_t *at)
{
  const mill_particle_setup *s = b->setup;
  mill_particle_setup *d_setup = &b->view.setup;
  size_t to;
  const mill_particle_problem *d_problem = piece<mill_particle_problem>(b, at, (size_t)b->n, &to);
  d_setup->sample = place_numbers(b, at, (size_t)s->n_particle * (size_t)s->n_dim, s->sample);
  d_setup->field.time = place_numbers(b, at, (size_t)s->field.n_time, s->field.time);
  d_setup->field.coef = place_numbers(b, at, mill_particle_n_coef(&s->field), s->field.coef);
  if (!b->up)
    return;
  memcpy(b->up + to, b->problem, (size_t)b->n * sizeof *b->problem);
  for (int i = 0; i < b->n; i++) {
    mill_particle_cloud *c = (mill_particle_cloud *)(void *)b->up + i; /* clouds come first */
    mill_particle_cloud_begin(c, s, &b->problem[i], b->view.n_part);
    c->problem = d_problem + i; /* replaces the host's problem */
  }
}

/** Lay out all arrays in device memory, clouds first; fill b->up once this is allocated. */
static void lay_out(batch *b)
{
  const mill_particle_setup *s = b->setup;
  particle_view *v = &b->view;
  const size_t n = (size_t)b->n, n_record = (size_t)s->n_record, n_grid = (size_t)v->n_grid;
  const size_t n_particle = (size_t)s->n_particle, n_dim = (size_t)s->n_dim;
  size_t at = 0;
  v->n_cloud = b->n;
  v->cloud = mill_cuda_take<mill_particle_cloud>(b->device, &at, n);
  place_problems(b, &at);
  b->n_up = b->down_at = at;
  v->density = mill_cuda_take<double>(b->device, &at, n * n_record * n_grid);
  v->bound = mill_cuda_take<double>(b->device, &at, n * n_record);
  v->moment =
      mill_cuda_take<double>(b->device, &at, n * (size_t)(s->n_step + 1) * MILL_PARTICLE_MOMENTS);
  v->position =
      mill_cuda_take<double>(b->device, &at, b->has_position ? n * n_particle * n_dim : 0);
  v->bad_step = mill_cuda_take<int>(b->device, &at, n);
  b->n_down = at - b->down_at;
  v->kernel = mill_cuda_take<mill_particle_kernel>(b->device, &at, n);
  v->total = mill_cuda_take<double>(b->device, &at, n * MILL_PARTICLE_STRIDE * MILL_PARTICLE_SUMS);
  v->slab = mill_cuda_take<double>(b->device, &at, v->n_node ? 0 : n * (size_t)v->n_slab * n_grid);
  v->node = mill_cuda_take<unsigned long long>(b->device, &at, n * (size_t)v->n_node);
  for (int w = 0; w < 2; w++)
    v->work[w] = mill_cuda_take<double>(b->device, &at, n * v->n_work);
  for (size_t i = 0; i < n; i++) {
    double *x = mill_cuda_take<double>(b->device, &at, n_dim * n_particle);
    double *alive = mill_cuda_take<double>(b->device, &at, n_particle);
    double *sums = mill_cuda_take<double>(
        b->device, &at, (size_t)MILL_PARTICLE_STRIDE * (size_t)v->n_part * MILL_PARTICLE_SUMS);
    if (!b->up)
      continue;
    mill_particle_cloud *c = (mill_particle_cloud *)(void *)b->up + i;
    c->x = x;
    c->alive = alive;
    c->sums = sums;
  }
  b->n_all = at;
}

/** Turn the status of an allocation into an error code, with advice if memory is full. */
static int memory_error(const batch *b, cudaError_t status, const char *which, size_t bytes)
{
  const mill_particle_setup *s = b->setup;
  if (status == cudaSuccess)
    return MILL_OK;
  if (status != cudaErrorMemoryAllocation)
    return mill_cuda_check(status, which, __FILE__, __LINE__);
  (void)cudaGetLastError();
  return mill_error_set(
      MILL_ERR_MEMORY, __FILE__, __LINE__,
      "backend cuda: %.3g GiB of %s are needed, more than is free: give fewer particles (now %d), "
      "steps (%d), densities (%d), grid points (%d) or nodes (%d), end other programs that use "
      "this memory, or use --backend cpu",
      (double)bytes / 1073741824.0, which, s->n_particle, s->n_step, s->n_record, b->view.n_grid,
      b->view.n_node);
}

/** Set b->n, the size of a batch, to as many of n problems as fit the memory, and allocate it. */
static int fit_memory(batch *b, int n)
{
  size_t n_free = 0;
  MILL_CHECK(mill_cuda_free_bytes(&n_free));
  n_free -= n_free < SPARE_BYTES ? n_free : SPARE_BYTES;
  b->n = n < MOST_AT_ONCE ? n : MOST_AT_ONCE;
  for (lay_out(b); b->n_all > n_free && b->n > 1; lay_out(b))
    b->n = (b->n + 1) / 2;
  MILL_CHECK(
      memory_error(b, cudaMalloc((void **)&b->device, b->n_all), "the GPU's memory", b->n_all));
  MILL_CHECK(
      memory_error(b, cudaMallocHost((void **)&b->up, b->n_up), "pinned host memory", b->n_up));
  MILL_CHECK(memory_error(b, cudaMallocHost((void **)&b->down, b->n_down), "pinned host memory",
                          b->n_down));
  memset(b->up, 0, b->n_up); /* zero the gaps between arrays too */
  lay_out(b);                /* set pointers and fill b->up, now that both blocks are allocated */
  return MILL_OK;
}

static void release(batch *b)
{
  if (b->stream)
    (void)cudaStreamSynchronize(b->stream);
  (void)cudaFree(b->device);
  mill_cuda_unpin(b->up);
  mill_cuda_unpin(b->down);
  mill_cuda_drop_stream(b->stream);
  b->device = b->up = b->down = NULL;
  b->stream = NULL;
}

/** Blocks along x for n warps. */
static unsigned warps(int n)
{
  return (unsigned)((n + WARPS - 1) / WARPS);
}

static int launch_exact(batch *b, int i_record)
{
  const particle_view &v = b->view;
  MILL_CHECK(mill_cuda_launch(b->stream, "kernel particle_sum",
                              dim3((unsigned)b->n_tile, (unsigned)v.n_slab, (unsigned)v.n_cloud),
                              THREADS, particle_sum, v));
  return mill_cuda_launch(b->stream, "kernel particle_total",
                          dim3(warps(v.n_grid), (unsigned)v.n_cloud), THREADS, particle_total, v,
                          i_record);
}

/** Launch the binned density: spread particles over nodes, then convolve axis by axis. */
static int launch_binned(batch *b, int i_record)
{
  const particle_view &v = b->view;
  const mill_particle_setup *s = b->setup;
  const size_t n_density = (size_t)s->n_record * (size_t)v.n_grid;
  const double *from = NULL; /* the first convolution reads v.node */
  int n_row = v.n_node, n_inner = 1;
  CHECK_CUDA(
      cudaMemsetAsync(v.node, 0, (size_t)v.n_cloud * (size_t)v.n_node * sizeof *v.node, b->stream));
  MILL_CHECK(mill_cuda_launch(b->stream, "kernel particle_spread",
                              dim3((unsigned)v.n_slab, (unsigned)v.n_cloud), THREADS,
                              particle_spread, v));
  for (int a = s->n_dim - 1; a >= 0; a--) {
    double *to = a > 0 ? v.work[a % 2] : v.density + (size_t)i_record * (size_t)v.n_grid;
    n_row /= s->n_node[a];
    const int n_point = n_row * s->n_grid[a] * n_inner;
    MILL_CHECK(mill_cuda_launch(
        b->stream, "kernel particle_convolve", dim3(warps(n_point), (unsigned)v.n_cloud), THREADS,
        particle_convolve, v, a, n_point, n_inner, from, to, a > 0 ? v.n_work : n_density));
    from = to;
    n_inner *= s->n_grid[a];
  }
  return MILL_OK;
}

/** Launch the kernels of all steps and densities, without waiting. */
static int run_steps(batch *b)
{
  const mill_particle_setup *s = b->setup;
  const particle_view &v = b->view;
  for (int step = 0, i_record = 0; step <= s->n_step;) { /* step 0 is the start */
    const int until = i_record < s->n_record ? s->record[i_record] : s->n_step; /* next density */
    const int n = until - step + 1 < MILL_PARTICLE_STRIDE ? until - step + 1 : MILL_PARTICLE_STRIDE;
    const int is_record = i_record < s->n_record && s->record[i_record] == step + n - 1;
    MILL_CHECK(mill_cuda_launch(b->stream, "kernel particle_move",
                                dim3((unsigned)v.n_part, (unsigned)v.n_cloud), THREADS,
                                particle_move, v, step, n));
    MILL_CHECK(mill_cuda_launch(b->stream, "kernel particle_settle", dim3((unsigned)v.n_cloud),
                                THREADS, particle_settle, v, step, n, is_record ? i_record : -1));
    if (is_record)
      MILL_CHECK(v.n_node ? launch_binned(b, i_record) : launch_exact(b, i_record));
    i_record += is_record;
    step += n;
  }
  return MILL_OK;
}

/** Copy the results of a batch from the download buffer to its problems. */
static void hand_out(const batch *b)
{
  const particle_view *v = &b->view;
  const size_t n_record = (size_t)b->setup->n_record;
  const size_t n_density = n_record * (size_t)v->n_grid;
  const size_t n_moment = (size_t)(b->setup->n_step + 1) * MILL_PARTICLE_MOMENTS;
  const size_t n_position = (size_t)b->setup->n_particle * (size_t)b->setup->n_dim;
  /* place of a device array in the download buffer */
#define HOST(array) ((const char *)(array) - (b->device + b->down_at) + b->down)
  for (size_t i = 0; i < (size_t)b->n; i++) {
    mill_particle_result *r = &b->result[i];
    memcpy(r->density, HOST(v->density + i * n_density), n_density * sizeof(double));
    memcpy(r->bound, HOST(v->bound + i * n_record), n_record * sizeof(double));
    memcpy(r->moment, HOST(v->moment + i * n_moment), n_moment * sizeof(double));
    memcpy(&r->bad_step, HOST(v->bad_step + i), sizeof r->bad_step);
    if (r->position)
      memcpy(r->position, HOST(v->position + i * n_position), n_position * sizeof(double));
  }
#undef HOST
}

/** Upload a batch of problems, run all steps, and download the results. */
static int run_batch(batch *b)
{
  CHECK_CUDA(cudaMemcpyAsync(b->device, b->up, b->n_up, cudaMemcpyHostToDevice, b->stream));
  MILL_CHECK(run_steps(b));
  if (b->has_position)
    MILL_CHECK(mill_cuda_launch(b->stream, "kernel particle_hand_over",
                                dim3((unsigned)b->view.n_part, (unsigned)b->n), THREADS,
                                particle_hand_over, b->view));
  CHECK_CUDA(cudaMemcpyAsync(b->down, b->device + b->down_at, b->n_down, cudaMemcpyDeviceToHost,
                             b->stream));
  CHECK_CUDA_AT("the evolution of particles", cudaStreamSynchronize(b->stream));
  hand_out(b);
  return MILL_OK;
}

static int at_most(int64_t n, int64_t most)
{
  n = n < most ? n : most;
  return n > 1 ? (int)n : 1;
}

/** Set the sizes that depend only on the shape of a problem: parts, slabs, tiles, node unit. */
static void set_sizes(batch *b)
{
  const mill_particle_setup *s = b->setup;
  particle_view *v = &b->view;
  int64_t n_all_segment = 1, n_grid = 1, n_most = 0, n_image = 1;
  int bits = 0;
  v->setup = *s;
  v->setup.record = NULL;
  v->n_node = s->form == MILL_DENSITY_BINNED; /* product of the axes' nodes; exact form: 0 */
  for (int a = 0; a < s->n_dim; a++) {
    const int n = s->n_grid[a];
    n_grid *= n;
    n_all_segment *= a == s->n_dim - 1 ? (n + MILL_SEGMENT - 1) / MILL_SEGMENT : n;
    v->n_node *= s->n_node[a];
    n_image *= mill_particle_images(s, a, INFINITY); /* of the widest kernel */
  }
  v->n_grid = (int)n_grid;
  /* segments of a tile: a power of two, which divides THREADS */
  for (v->n_segment = 1; v->n_segment < n_all_segment && v->n_segment < THREADS;)
    v->n_segment *= 2;
  b->n_tile = (int)((n_all_segment + v->n_segment - 1) / v->n_segment);
  v->n_part = at_most(((int64_t)s->n_particle + PART - 1) / PART, MOST_PART);
  v->n_slab = v->n_part;
  if (!v->n_node) { /* exact form: limit the blocks, and the memory of the slabs' sums */
    v->n_slab = at_most(v->n_part, MOST_SUM_BLOCK / b->n_tile);
    v->n_slab = at_most(v->n_slab, SLAB_BYTES / (int64_t)sizeof(double) / n_grid);
  }
  /* a node's 64-bit integer must hold all particles and images; 2^bits of them are 2^62 units */
  while (((int64_t)1 << bits) < n_image * s->n_particle)
    bits++;
  v->node_unit = ldexp(1.0, bits - 62);
  /* each of a particle's 4, 16 or 64 nodes is rounded by half a unit at most */
  v->rounding = 0.5 * v->node_unit * (1 << (2 * s->n_dim));
  /* the largest array between two convolutions */
  for (int64_t a = s->n_dim - 1, n = v->n_node; a > 0; a--) {
    n = n / s->n_node[a] * s->n_grid[a];
    n_most = n > n_most ? n : n_most;
  }
  v->n_work = (size_t)n_most;
}

/** mill_particle_ops.evolve: run the problems in batches that fit the memory. */
static int evolve(const mill_particle_setup *s, int n_problem, const mill_particle_problem *problem,
                  mill_particle_result *result)
{
  MILL_AT_END(release) batch b;
  memset((void *)&b, 0, sizeof b);
  b.setup = s;
  for (int i = 0; i < n_problem; i++)
    b.has_position = b.has_position || result[i].position;
  set_sizes(&b);
  for (int first = 0; first < n_problem; first += b.n) {
    b.problem = problem + first;
    b.result = result + first;
    MILL_CHECK(fit_memory(&b, n_problem - first)); /* sets b.n */
    CHECK_CUDA(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
    MILL_CHECK(run_batch(&b));
    release(&b); /* keeps b.n */
  }
  return MILL_OK;
}

const mill_particle_ops *mill_particle_ops_cuda(int *err)
{
  static const mill_particle_ops ops = {"cuda", evolve};
  int id = 0;
  *err = mill_cuda_open(&id);
  return *err == MILL_OK ? &ops : NULL;
}
