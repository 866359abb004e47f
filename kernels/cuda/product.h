/** Matrix products of the emulator's layers, for the rows of a list.
 *
 *  Block (x, y) makes TILE rows of the list by TILE columns, whatever the number of rows:
 *  every output is the sum over blocks of K_BLOCK inputs in turn, so a row does not depend
 *  on what else is in the list.  Only cuda_rounds.cu includes this. */
#ifndef MILL_CUDA_PRODUCT_H
#define MILL_CUDA_PRODUCT_H

#include "kernels/cuda/device_view.h"

enum {
  TILE = 64,    /**< rows and columns of a block of a product */
  K_BLOCK = 32, /**< inputs summed before they are added to the total */
  /* of the kernels without tensor cores: threads along rows and columns, which each make as many
   * outputs as keep arithmetic and not shared memory busy */
  F64_SIDE = 16,
  F64_THREADS = F64_SIDE * F64_SIDE,
  F64_EACH = TILE / F64_SIDE,
  F32_SIDE = 8,
  F32_THREADS = F32_SIDE * F32_SIDE,
  F32_EACH = TILE / F32_SIDE,
  F32_PANEL = MILL_PANEL_BYTES / (int)sizeof(float),
  /* of the kernel with tensor cores */
  MMA_THREADS = 128,
  MMA_M = 16,
  MMA_N = 8,
  MMA_K = 8,
  WARP_TILE = TILE / 2, /**< rows and columns of one of its four warps */
  WARP_M = WARP_TILE / MMA_M,
  WARP_N = WARP_TILE / MMA_N,
  /* rows of shared memory so long that the lanes of a warp meet different banks */
  ROW_PITCH = K_BLOCK + 4,
  COLUMN_PITCH = TILE + 8
};
static_assert(MILL_COLUMN_PAD % TILE == 0, "padded outputs must be whole tiles");

/** Rows that a product is to make. */
struct row_batch {
  int n_row;        /**< rows that a lane may have: entry = lane * n_row + row */
  const int *count; /**< entries */
  const int *list;  /**< the first of them; the others follow it, or with step -1 precede it */
  int step;
};

/* a thread finds each row of a tile */
static_assert((int)F32_THREADS >= (int)TILE && (int)F64_THREADS >= (int)TILE &&
                  (int)MMA_THREADS >= (int)TILE,
              "find_rows");

/** Where the rows of a tile come from and go to. */
struct tile_rows {
  size_t from[TILE], to[TILE];
  int is_value[TILE];
};

template <typename real>
static __device__ inline void find_rows(tile_rows *rows, const row_batch &batch, int first,
                                        int n_left, int column, const row_layout<const real> &in,
                                        const row_layout<real> &out)
{
  const int r = (int)threadIdx.x;
  if (r < TILE && r < n_left) {
    const int entry = batch.list[(ptrdiff_t)batch.step * (first + r)];
    const size_t lane = (size_t)(entry / batch.n_row), t = (size_t)(entry % batch.n_row);
    rows->from[r] = lane * in.lane + t * in.row;
    rows->to[r] = lane * out.lane + t * out.row + (size_t)column;
    rows->is_value[r] = t == 0;
  }
  __syncthreads();
}

/** A layer in float64: out = W in (+ bias for values, not tangents), fused multiply-adds in turn.
 */
static __global__ void __launch_bounds__(F64_THREADS)
    product_f64(row_batch batch, int n_in, const double *weight, const double *bias,
                row_layout<const double> in, row_layout<double> out)
{
  const int panel = MILL_PANEL_BYTES / (int)sizeof(double);
  __shared__ double h[K_BLOCK][TILE + 1], w[K_BLOCK][TILE];
  __shared__ tile_rows rows;
  const int first = (int)blockIdx.x * TILE, column = (int)blockIdx.y * TILE;
  const int n_left = *batch.count - first;
  if (n_left <= 0)
    return; /* the grid is made for the most rows possible */
  const int thread = (int)threadIdx.x;
  const int tx = thread % F64_SIDE, ty = thread / F64_SIDE;
  find_rows<double>(&rows, batch, first, n_left, column, in, out);

  double total[F64_EACH][F64_EACH];
  for (int k0 = 0; k0 < n_in; k0 += K_BLOCK) {
    for (int e = thread; e < TILE * K_BLOCK; e += F64_THREADS) {
      const int k = e % K_BLOCK, r = e / K_BLOCK;
      h[k][r] = r < n_left && k0 + k < n_in ? in.base[rows.from[r] + (size_t)(k0 + k)] : 0.0;
    }
    for (int e = thread; e < TILE * K_BLOCK; e += F64_THREADS) {
      const int c = e % TILE, k = e / TILE;
      w[k][c] = k0 + k < n_in ? weight[mill_weight_at(n_in, panel, k0 + k, column + c)] : 0.0;
    }
    __syncthreads();
    double acc[F64_EACH][F64_EACH];
#pragma unroll
    for (int i = 0; i < F64_EACH; i++)
#pragma unroll
      for (int j = 0; j < F64_EACH; j++)
        acc[i][j] = 0.0;
        /* inputs past the last one are zeros, which leave a sum as it is */
#pragma unroll 8
    for (int k = 0; k < K_BLOCK; k++)
#pragma unroll
      for (int i = 0; i < F64_EACH; i++)
#pragma unroll
        for (int j = 0; j < F64_EACH; j++)
          acc[i][j] += h[k][ty * F64_EACH + i] * w[k][tx + F64_SIDE * j];
#pragma unroll
    for (int i = 0; i < F64_EACH; i++)
#pragma unroll
      for (int j = 0; j < F64_EACH; j++) {
        const int r = ty * F64_EACH + i;
        if (k0 > 0)
          total[i][j] += acc[i][j];
        else if (r < n_left && rows.is_value[r])
          total[i][j] = acc[i][j] + bias[column + tx + F64_SIDE * j];
        else
          total[i][j] = acc[i][j];
      }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < F64_EACH; i++) {
    const int r = ty * F64_EACH + i;
    if (r >= n_left)
      continue;
#pragma unroll
    for (int j = 0; j < F64_EACH; j++)
      out.base[rows.to[r] + (size_t)(tx + F64_SIDE * j)] = total[i][j];
  }
}

/** Where four rows that begin at 4 quad lie in the inputs k of product_f32: other quads change
 *  places from one group of four inputs to the next, so that threads which write neighbouring
 *  inputs meet different banks. */
static __device__ __forceinline__ int quad_at(int quad, int k)
{
  return (quad ^ (k / 4 % 8)) * 4;
}

static __device__ __forceinline__ void get_quad(const float *at, float *to)
{
  const float4 v = *(const float4 *)(const void *)at;
  to[0] = v.x;
  to[1] = v.y;
  to[2] = v.z;
  to[3] = v.w;
}

/** Inputs k0 .. k0 + K_BLOCK - 1 of a tile's rows, for product_f32; zeros past the last one. */
static __device__ __forceinline__ void load_inputs_f32(const row_layout<const float> &in,
                                                       const tile_rows &rows, int n_left, int n_in,
                                                       int k0, float (*h)[TILE])
{
  const int thread = (int)threadIdx.x;
#pragma unroll
  for (int e = thread; e < TILE * K_BLOCK / 4; e += F32_THREADS) {
    const int k = e % (K_BLOCK / 4) * 4, r = e / (K_BLOCK / 4);
    float x[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (r < n_left) {
      const float *from = in.base + rows.from[r] + (size_t)(k0 + k);
      if (k0 + k + 4 <= n_in)
        get_quad(from, x);
      else
#pragma unroll
        for (int q = 0; q < 4; q++)
          x[q] = k0 + k + q < n_in ? from[q] : 0.0f;
    }
#pragma unroll
    for (int q = 0; q < 4; q++)
      h[k + q][quad_at(r / 4, k) + r % 4] = x[q];
  }
}

/** Weights of the same inputs and of a tile's columns. */
static __device__ __forceinline__ void load_weights_f32(const float *weight, int n_in, int k0,
                                                        int column, float (*w)[TILE])
{
  const int thread = (int)threadIdx.x;
#pragma unroll
  for (int e = thread; e < TILE * K_BLOCK / 4; e += F32_THREADS) {
    /* a panel's columns of one input after the other lie side by side */
    const int c = e % (F32_PANEL / 4) * 4, k = e / (F32_PANEL / 4) % K_BLOCK;
    const int panel = e / (F32_PANEL / 4 * K_BLOCK) * F32_PANEL;
    float x[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (k0 + k < n_in)
      get_quad(weight + mill_weight_at(n_in, F32_PANEL, k0 + k, column + panel + c), x);
    *(float4 *)(void *)&w[k][panel + c] = make_float4(x[0], x[1], x[2], x[3]);
  }
}

/** A layer in float32, the same sums.  A thread makes eight rows by twice four columns: 64
 *  multiply-adds for every four loads of four numbers from shared memory, which would bound it
 *  with fewer.  Rows of inputs and outputs begin at multiples of 16 bytes. */
static __global__ void __launch_bounds__(F32_THREADS)
    product_f32(row_batch batch, int n_in, const float *weight, const float *bias,
                row_layout<const float> in, row_layout<float> out)
{
  __shared__ __align__(16) float h[K_BLOCK][TILE], w[K_BLOCK][TILE];
  __shared__ tile_rows rows;
  const int first = (int)blockIdx.x * TILE, column = (int)blockIdx.y * TILE;
  const int n_left = *batch.count - first;
  if (n_left <= 0)
    return; /* the grid is made for the most rows possible */
  const int thread = (int)threadIdx.x;
  const int tx = thread % F32_SIDE, ty = thread / F32_SIDE;
  find_rows<float>(&rows, batch, first, n_left, column, in, out);

  float total[F32_EACH][F32_EACH];
  for (int k0 = 0; k0 < n_in; k0 += K_BLOCK) {
    load_inputs_f32(in, rows, n_left, n_in, k0, h);
    load_weights_f32(weight, n_in, k0, column, w);
    __syncthreads();
    float acc[F32_EACH][F32_EACH];
#pragma unroll
    for (int i = 0; i < F32_EACH; i++)
#pragma unroll
      for (int j = 0; j < F32_EACH; j++)
        acc[i][j] = 0.0f;
        /* inputs past the last one are zeros, which leave a sum as it is */
#pragma unroll 4
    for (int k = 0; k < K_BLOCK; k++) {
      float a[F32_EACH], b[F32_EACH];
      get_quad(&h[k][quad_at(2 * ty, k)], a);
      get_quad(&h[k][quad_at(2 * ty + 1, k)], a + 4);
      get_quad(&w[k][4 * tx], b);
      get_quad(&w[k][TILE / 2 + 4 * tx], b + 4);
#pragma unroll
      for (int i = 0; i < F32_EACH; i++)
#pragma unroll
        for (int j = 0; j < F32_EACH; j++)
          acc[i][j] += a[i] * b[j];
    }
#pragma unroll
    for (int i = 0; i < F32_EACH; i++)
#pragma unroll
      for (int j = 0; j < F32_EACH; j++) {
        const int r = ty * F32_EACH + i, c = j / 4 * (TILE / 2) + 4 * tx + j % 4;
        if (k0 > 0)
          total[i][j] += acc[i][j];
        else if (r < n_left && rows.is_value[r])
          total[i][j] = acc[i][j] + bias[column + c];
        else
          total[i][j] = acc[i][j];
      }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < F32_EACH; i++) {
    const int r = ty * F32_EACH + i;
    if (r >= n_left)
      continue;
    float *to = out.base + rows.to[r] + (size_t)(4 * tx);
#pragma unroll
    for (int half = 0; half < 2; half++)
      *(float4 *)(void *)(to + half * (TILE / 2)) =
          make_float4(total[i][4 * half], total[i][4 * half + 1], total[i][4 * half + 2],
                      total[i][4 * half + 3]);
  }
}
static_assert(F32_PANEL * 2 == TILE, "product_f32 takes two panels of weights");

/** The bits of x rounded to TF32 (10 bits of fraction, ties away from zero). */
static __device__ __forceinline__ unsigned to_tf32(float x)
{
#if defined(MILL_CUDA_EMULATION)
  const unsigned u = __float_as_uint(x);
  return (u & 0x7fffffffu) > 0x7f800000u ? u : (u + 0x1000u) & 0xffffe000u;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned u;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(u) : "f"(x));
  return u;
#else
  return __float_as_uint(x); /* never used, see mma_tf32 */
#endif
}

/** c [16][8] += a [16][8] b [8][8] of a warp, TF32 in, float32 out. */
static __device__ __forceinline__ void mma_tf32(const unsigned *a, const unsigned *b, float *c)
{
#if defined(MILL_CUDA_EMULATION)
  const unsigned mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const unsigned char *all = mill_emu_exchange(mine, sizeof mine);
  const int lane = (int)threadIdx.x & 31;
  for (int i = 0; i < 4; i++) {
    const int row = lane / 4 + (i / 2) * 8, column = 2 * (lane % 4) + i % 2;
    for (int k = 0; k < MMA_K; k++) {
      unsigned x, y;
      memcpy(&x, all + (row % 8 * 4 + k % 4) * 64 + (row / 8 + 2 * (k / 4)) * 4, sizeof x);
      memcpy(&y, all + (column * 4 + k % 4) * 64 + (4 + k / 4) * 4, sizeof y);
      c[i] += __uint_as_float(x) * __uint_as_float(y); /* 11 bits each: no product is rounded */
    }
  }
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  (void)a;
  (void)b;
  c[0] = c[1] = c[2] = c[3] = __uint_as_float(0x7fffffffu); /* the host refuses to come here */
#endif
}

/** x = high + low, both TF32; what is left is 2^-22 of x.  No one promises the
 *  13 bits that TF32 lacks; they must be 0 where a number of TF32 is used as one of float32. */
static __device__ __forceinline__ void split_tf32(float x, unsigned *high, unsigned *low)
{
  *high = to_tf32(x) & 0xffffe000u;
  *low = to_tf32(x - __uint_as_float(*high));
}

/** Inputs k0 .. k0 + K_BLOCK - 1 of a tile's rows and columns, for product_tf32; zeros past the
 * last one. */
static __device__ __forceinline__ void load_tf32(const row_layout<const float> &in,
                                                 const tile_rows &rows, const float *weight,
                                                 int n_left, int n_in, int k0, int column,
                                                 float (*h)[ROW_PITCH], float (*w)[COLUMN_PITCH])
{
  const int thread = (int)threadIdx.x;
  for (int e = thread; e < TILE * K_BLOCK; e += MMA_THREADS) {
    const int k = e % K_BLOCK, r = e / K_BLOCK;
    h[r][k] = r < n_left && k0 + k < n_in ? in.base[rows.from[r] + (size_t)(k0 + k)] : 0.0f;
  }
  for (int e = thread; e < TILE * K_BLOCK; e += MMA_THREADS) {
    const int c = e % TILE, k = e / TILE;
    w[k][c] = k0 + k < n_in ? weight[mill_weight_at(n_in, F32_PANEL, k0 + k, column + c)] : 0.0f;
  }
}

/** A warp's outputs, whose first row and column in the tile are row0 and column0. */
static __device__ __forceinline__ void store_tf32(const row_layout<float> &out,
                                                  const tile_rows &rows, int n_left, int row0,
                                                  int column0, const float (*total)[WARP_N][4])
{
  const int lane = (int)threadIdx.x & 31;
#pragma unroll
  for (int i = 0; i < WARP_M; i++)
#pragma unroll
    for (int q = 0; q < 4; q++) {
      const int r = row0 + i * MMA_M + lane / 4 + q / 2 * 8;
      if (r >= n_left)
        continue;
#pragma unroll
      for (int j = 0; j < WARP_N; j++)
        out.base[rows.to[r] + (size_t)(column0 + j * MMA_N + 2 * (lane % 4) + q % 2)] =
            total[i][j][q];
    }
}

/** The last layer in float32 by tensor cores.  n_product 3: each number as the sum of two of TF32,
 *  and of the four products all but the smallest; 1: of the larger halves only.  Blocks of
 *  K_BLOCK inputs are added up outside the tensor cores, which do not round to nearest. */
template <int n_product>
static __global__ void __launch_bounds__(MMA_THREADS)
    product_tf32(row_batch batch, int n_in, const float *weight, const float *bias,
                 row_layout<const float> in, row_layout<float> out)
{
  __shared__ float h[TILE][ROW_PITCH], w[K_BLOCK][COLUMN_PITCH];
  __shared__ tile_rows rows;
  const int first = (int)blockIdx.x * TILE, column = (int)blockIdx.y * TILE;
  const int n_left = *batch.count - first;
  if (n_left <= 0)
    return;
  const int thread = (int)threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const int row0 = (warp / 2) * WARP_TILE, column0 = (warp % 2) * WARP_TILE;
  find_rows<float>(&rows, batch, first, n_left, column, in, out);

  float total[WARP_M][WARP_N][4];
  for (int k0 = 0; k0 < n_in; k0 += K_BLOCK) {
    load_tf32(in, rows, weight, n_left, n_in, k0, column, h, w);
    __syncthreads();
    float acc[WARP_M][WARP_N][4];
#pragma unroll
    for (int i = 0; i < WARP_M; i++)
#pragma unroll
      for (int j = 0; j < WARP_N; j++)
#pragma unroll
        for (int q = 0; q < 4; q++)
          acc[i][j][q] = 0.0f;
#pragma unroll
    for (int k = 0; k < K_BLOCK; k += MMA_K) {
      unsigned a_high[WARP_M][4], a_low[WARP_M][4];
#pragma unroll
      for (int i = 0; i < WARP_M; i++)
#pragma unroll
        for (int q = 0; q < 4; q++)
          split_tf32(h[row0 + i * MMA_M + lane / 4 + q % 2 * 8][k + lane % 4 + q / 2 * 4],
                     &a_high[i][q], &a_low[i][q]);
#pragma unroll
      for (int j = 0; j < WARP_N; j++) {
        unsigned b_high[2], b_low[2];
#pragma unroll
        for (int q = 0; q < 2; q++)
          split_tf32(w[k + lane % 4 + q * 4][column0 + j * MMA_N + lane / 4], &b_high[q],
                     &b_low[q]);
#pragma unroll
        for (int i = 0; i < WARP_M; i++) {
          if (n_product > 1) {
            mma_tf32(a_low[i], b_high, acc[i][j]);
            mma_tf32(a_high[i], b_low, acc[i][j]);
          }
          mma_tf32(a_high[i], b_high, acc[i][j]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < WARP_M; i++)
#pragma unroll
      for (int j = 0; j < WARP_N; j++)
#pragma unroll
        for (int q = 0; q < 4; q++) {
          const int r = row0 + i * MMA_M + lane / 4 + q / 2 * 8;
          const int c = column0 + j * MMA_N + 2 * (lane % 4) + q % 2;
          if (k0 > 0)
            total[i][j][q] += acc[i][j][q];
          else if (r < n_left && rows.is_value[r])
            total[i][j][q] = acc[i][j][q] + bias[column + c];
          else
            total[i][j][q] = acc[i][j][q];
        }
    __syncthreads();
  }
  store_tf32(out, rows, n_left, row0, column0, total);
}

#endif
