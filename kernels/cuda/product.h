/* SPDX-License-Identifier: BSD-3-Clause */
/** Matrix products of the emulator's layers, for a list of rows (for cuda_rounds.cu only).
 *
 *  Block (x, y) computes ROWS rows of the list by TILE columns.  Every output sums its inputs in
 *  order (float32: in blocks of K_BLOCK), so a row does not depend on the other rows of the list.
 *
 *  Inputs and weights are copied to shared memory in pieces of 16 bytes.  The copy of the next
 *  STAGE inputs overlaps with the multiplication of the present ones. */
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/cuda/mma.h"

enum {
  TILE = 64,    /**< columns of a block of a product */
  K_BLOCK = 32, /**< inputs summed before they are added to the total */
  STAGE = 16,   /**< inputs in one of the two buffers */
  N_BUFFER = 2,
  PIECE_BYTES = 16, /**< bytes that a thread copies at a time */
  PAIR = 2,         /**< inputs of a row that a thread loads from a buffer at a time */
};
static_assert(MILL_COLUMN_PAD % TILE == 0, "padded outputs must be whole tiles");
static_assert(K_BLOCK % STAGE == 0, "K_BLOCK must be a multiple of STAGE");

/** Shape of a block's part of the product.
 *
 *  ROWS            rows
 *  ROW_SIDE, SIDE  threads along rows and columns; fewer threads do more arithmetic per load
 *  APART           a thread takes every APART-th piece (16 bytes) of columns
 *  EMPTY           unused columns of a buffer, so that a warp's weights lie in different banks */
template <typename real> struct product_shape;
template <> struct product_shape<float> {
  enum { ROWS = 128, ROW_SIDE = 16, SIDE = 8, APART = 8, EMPTY = 0 };
  enum { BLOCKS = 3 /**< blocks per multiprocessor: 168 registers a thread */ };
};
template <> struct product_shape<double> {
  enum { ROWS = 64, ROW_SIDE = 16, SIDE = 16, APART = MILL_MMA_ROWS / 2, EMPTY = 4, BLOCKS = 3 };
};

template <typename real> struct product_size : product_shape<real> {
  typedef product_shape<real> shape;
  enum {
    THREADS = shape::ROW_SIDE * shape::SIDE,
    N_ROW = shape::ROWS / shape::ROW_SIDE, /**< outputs of a thread */
    N_COLUMN = TILE / shape::SIDE,
    PIECE = PIECE_BYTES / (int)sizeof(real), /**< numbers of a piece */
    PANEL = MILL_PANEL_BYTES / (int)sizeof(real),
    PITCH = STAGE + 4 /**< neighbouring rows lie in different banks */
  };
  static_assert(N_COLUMN % PIECE == 0 && STAGE % PIECE == 0 && PANEL % PIECE == 0, "whole pieces");
  static_assert(shape::ROWS * STAGE / PIECE % THREADS == 0 && TILE * STAGE / PIECE % THREADS == 0,
                "THREADS must divide the number of pieces of a buffer");
  static_assert((int)THREADS >= (int)shape::ROWS, "a thread finds each row of a tile");
};

/** The rows to be computed by a product. */
struct row_batch {
  int n_row;        /**< most rows of a lane: entry = lane * n_row + row */
  const int *count; /**< number of entries */
  const int *list;
};

/** Offsets of a tile's input and output rows.  Rows beyond the list read row 0, write nothing. */
template <typename real> struct tile_rows {
  enum { ROWS = product_size<real>::ROWS };
  size_t from[ROWS], to[ROWS];
  int is_value[ROWS];
};

/** Set a tile's rows to entries [first, first + n_left) of batch.list; a thread sets one row. */
template <typename real>
static __device__ inline void find_rows(tile_rows<real> *rows, const row_batch &batch, int first,
                                        int n_left, int column, const row_layout<const real> &in,
                                        const row_layout<real> &out)
{
  const int r = (int)threadIdx.x;
  if (r < product_size<real>::ROWS) {
    const int entry = r < n_left ? batch.list[first + r] : 0;
    const size_t lane = (size_t)(entry / batch.n_row), t = (size_t)(entry % batch.n_row);
    rows->from[r] = lane * in.lane + t * in.row;
    rows->to[r] = lane * out.lane + t * out.row + (size_t)column;
    rows->is_value[r] = r < n_left && t == 0;
  }
  __syncthreads();
}

/** Fill a piece of shared memory: n_byte bytes, then zeros.  From sm_80 on, only begin the copy. */
static __device__ __forceinline__ void fetch(void *to, const void *from, int n_byte)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
      "l"(from), "r"(n_byte)
      : "memory");
#else
  float4 piece = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (n_byte == PIECE_BYTES)
    piece = *(const float4 *)from;
  else
    memcpy(&piece, from, (size_t)n_byte);
  *(float4 *)to = piece;
#endif
}

/** Close the group of copies that this thread has begun. */
static __device__ __forceinline__ void end_group()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/** Wait for all groups of this thread except the last. */
static __device__ __forceinline__ void wait_group()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

static __device__ __forceinline__ void get_piece(const float *at, float *to)
{
  const float4 v = *(const float4 *)(const void *)at;
  to[0] = v.x;
  to[1] = v.y;
  to[2] = v.z;
  to[3] = v.w;
}

static __device__ __forceinline__ void get_piece(const double *at, double *to)
{
  const double2 v = *(const double2 *)(const void *)at;
  to[0] = v.x;
  to[1] = v.y;
}

static __device__ __forceinline__ void get_pair(const float *at, float *to)
{
  const float2 v = *(const float2 *)(const void *)at;
  to[0] = v.x;
  to[1] = v.y;
}

static __device__ __forceinline__ void put_piece(const float *from, float *at)
{
  *(float4 *)(void *)at = make_float4(from[0], from[1], from[2], from[3]);
}

static __device__ __forceinline__ void put_piece(const double *from, double *at)
{
  *(double2 *)(void *)at = make_double2(from[0], from[1]);
}

/** STAGE inputs of a tile's rows, and their weights. */
template <typename real> struct product_buffer {
  __align__(16) real h[product_size<real>::ROWS][product_size<real>::PITCH];
  __align__(16) real w[STAGE][TILE + product_size<real>::EMPTY];
};

/** Begin to copy inputs k0 .. k0 + STAGE - 1 of a tile's rows (n_row per thread), and their weights
 *  for the tile's columns.  The buffer gets zeros past the last input and past row n_left. */
template <typename real, int n_row>
static __device__ __forceinline__ void
fetch_stage(const row_layout<const real> &in, const tile_rows<real> &rows, const real *weight,
            int n_left, int n_in, int k0, int column, product_buffer<real> *to)
{
  typedef product_size<real> size;
  enum { IN_ROW = STAGE / size::PIECE, IN_PANEL = size::PANEL / size::PIECE };
  enum { N_INPUT = size::ROW_SIDE * n_row * IN_ROW }; /* IN_ROW, IN_PANEL, N_INPUT: pieces */
  /* a thread copies the inputs k_in, k_in + 1, ... of several rows */
  const int thread = (int)threadIdx.x;
  const int k_in = thread % IN_ROW * size::PIECE, n_rest = n_in - k0 - k_in;
  const int n_there = n_rest <= 0 ? 0 : n_rest < size::PIECE ? n_rest : (int)size::PIECE;
  const real *const input = in.base + (size_t)(k0 + k_in);
#pragma unroll
  for (int i = 0; i < N_INPUT; i += size::THREADS) {
    const int r = (i + thread) / IN_ROW;
    if (N_INPUT % size::THREADS == 0 || i + thread < N_INPUT)
      fetch(&to->h[r][k_in], input + rows.from[r], r < n_left ? n_there * (int)sizeof(real) : 0);
  }
  /* within a panel, the columns of one input are contiguous, input after input */
  const int c = thread % IN_PANEL * size::PIECE;
  const real *const from = weight + mill_weight_at(n_in, size::PANEL, k0, column + c);
#pragma unroll
  for (int i = 0; i < STAGE * TILE / size::PIECE; i += size::THREADS) {
    const int k = (i + thread) / IN_PANEL % STAGE, panel = (i + thread) / (IN_PANEL * STAGE);
    fetch(&to->w[k][panel * size::PANEL + c], from + (panel * n_in + k) * size::PANEL,
          k0 + k < n_in ? PIECE_BYTES : 0);
  }
}

/** A thread's first row and column of a tile.  The thread's rows are ROW_SIDE rows apart, and its
 *  groups of PIECE columns are APART * PIECE columns apart. */
struct product_place {
  int row, column;
};

static __device__ __forceinline__ product_place place_of(const float *)
{
  typedef product_size<float> size;
  return {(int)threadIdx.x / size::SIDE, (int)threadIdx.x % size::SIDE * size::PIECE};
}

/** Place a thread for mill_mma_f64.  A warp computes 16 columns of every second group of 8 rows. */
static __device__ __forceinline__ product_place place_of(const double *)
{
  typedef product_size<double> size;
  enum { N_WARP = TILE / (size::APART * size::N_COLUMN) /**< warps along the columns */ };
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  return {warp / N_WARP * MILL_MMA_ROWS + lane / 4,
          warp % N_WARP * size::APART * size::N_COLUMN + lane % 4 * size::PIECE};
}

/** Add the first n_k inputs of a thread's rows (product_place) times weights to `sum`, in order. */
template <int n_row>
static __device__ __forceinline__ void add_stage(const product_buffer<float> &from, int n_k,
                                                 const product_place &at,
                                                 float (&sum)[n_row][product_size<float>::N_COLUMN])
{
  typedef product_size<float> size;
#pragma unroll 1
  for (int k = 0; k < n_k; k += PAIR) { /* if n_k is odd, a zero follows the last input */
    float a[n_row][PAIR];
#pragma unroll
    for (int i = 0; i < n_row; i++)
      get_pair(&from.h[at.row + size::ROW_SIDE * i][k], a[i]);
#pragma unroll
    for (int q = 0; q < PAIR; q++) {
      float b[size::N_COLUMN];
#pragma unroll
      for (int j = 0; j < size::N_COLUMN; j += size::PIECE)
        get_piece(&from.w[k + q][at.column + size::APART * j], b + j);
#pragma unroll
      for (int i = 0; i < n_row; i++)
#pragma unroll
        for (int j = 0; j < size::N_COLUMN; j++)
          sum[i][j] += a[i][q] * b[j];
    }
  }
}

/** Multiply all STAGE inputs of a float64 buffer by their weights on tensor cores; add to `sum`.
 *  The buffer has zeros past the last input, so the unnamed number of inputs is not needed. */
template <int n_row>
static __device__ __forceinline__ void
add_stage(const product_buffer<double> &from, int, const product_place &at,
          double (&sum)[n_row][product_size<double>::N_COLUMN])
{
  typedef product_size<double> size;
  const int k_lane = (int)threadIdx.x % MILL_MMA_SUMS, c_lane = (int)threadIdx.x % 32 / 4;
  /* subtracting k_lane * PIECE gives the first column of the warp; the lane loads column c_lane */
  const int column = at.column - k_lane * size::PIECE + c_lane;
#pragma unroll
  for (int k = k_lane; k < STAGE + k_lane; k += MILL_MMA_SUMS) { /* equal steps in all lanes */
    double b[size::N_COLUMN / size::PIECE];
#pragma unroll
    for (int j = 0; j < size::N_COLUMN; j += size::PIECE)
      b[j / size::PIECE] = from.w[k][column + size::APART * j];
#pragma unroll
    for (int i = 0; i < n_row; i++) {
      const double a = from.h[at.row + size::ROW_SIDE * i][k];
#pragma unroll
      for (int j = 0; j < size::N_COLUMN; j += size::PIECE)
        mill_mma_f64(a, b[j / size::PIECE], &sum[i][j]);
    }
  }
}

/** Compute the n_left rows of a tile, n_row per thread.  While the inputs of one stage are
 *  multiplied, those of the next stage are fetched. */
template <typename real, int n_row>
static __device__ __forceinline__ void
multiply_rows(product_buffer<real> *buffer, const tile_rows<real> &rows, int n_left, int n_in,
              const real *weight, const real *bias, const row_layout<const real> &in,
              const row_layout<real> &out)
{
  typedef product_size<real> size;
  constexpr bool by_block = sizeof(real) == sizeof(float); /* sum in blocks of K_BLOCK inputs */
  const int column = (int)blockIdx.y * TILE;
  const product_place at = place_of((const real *)NULL);
  real total[n_row][size::N_COLUMN], acc[n_row][size::N_COLUMN];
#pragma unroll
  for (int j = 0; j < size::N_COLUMN; j += size::PIECE) /* acc[0] holds the bias at first */
    get_piece(bias + column + at.column + size::APART * j, acc[0] + j);
#pragma unroll
  for (int i = n_row - 1; i >= 0; i--) /* row 0 last, as it clears acc[0] */
#pragma unroll
    for (int j = 0; j < size::N_COLUMN; j++) {
      total[i][j] = rows.is_value[at.row + size::ROW_SIDE * i] ? acc[0][j] : (real)0;
      acc[i][j] = 0;
    }
#pragma unroll 1
  for (int k0 = -STAGE; k0 < n_in; k0 += STAGE) { /* -STAGE: only fetch the first inputs */
    if (k0 + STAGE < n_in)
      fetch_stage<real, n_row>(in, rows, weight, n_left, n_in, k0 + STAGE, column,
                               &buffer[(k0 + STAGE) / STAGE % N_BUFFER]);
    end_group();
    if (k0 < 0)
      continue;
    wait_group();
    __syncthreads();
    add_stage(buffer[k0 / STAGE % N_BUFFER], n_in - k0 < STAGE ? n_in - k0 : (int)STAGE, at,
              by_block ? acc : total);
    if (by_block && ((k0 + STAGE) % K_BLOCK == 0 || k0 + STAGE >= n_in))
#pragma unroll
      for (int i = 0; i < n_row; i++)
#pragma unroll
        for (int j = 0; j < size::N_COLUMN; j++) {
          total[i][j] += acc[i][j];
          acc[i][j] = 0;
        }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < n_row; i++) {
    const int r = at.row + size::ROW_SIDE * i;
    if (r >= n_left)
      continue;
#pragma unroll
    for (int j = 0; j < size::N_COLUMN; j += size::PIECE)
      put_piece(&total[i][j], out.base + rows.to[r] + (size_t)(at.column + size::APART * j));
  }
}

/** Call multiply_rows for n_left rows with the fewest rows per thread that suffice: n_row, or its
 *  half, quarter, ...  The last tile of a list is seldom full. */
template <typename real, int n_row = product_size<real>::N_ROW, typename... argument>
static __device__ __forceinline__ void multiply_tile(product_buffer<real> *buffer,
                                                     const tile_rows<real> &rows, int n_left,
                                                     const argument &...more)
{
  if constexpr (n_row > 1)
    if (n_left <= product_size<real>::ROW_SIDE * n_row / 2)
      return multiply_tile<real, n_row / 2>(buffer, rows, n_left, more...);
  multiply_rows<real, n_row>(buffer, rows, n_left, more...);
}

/** Compute a layer: out = W x + bias for each row x of `in`; rows of derivatives get no bias.  Sums
 *  are fused multiply-adds in input order.  All rows must begin at multiples of PIECE_BYTES. */
template <typename real>
static __device__ __forceinline__ void
multiply(product_buffer<real> *buffer, tile_rows<real> *rows, const row_batch &batch, int n_in,
         const real *weight, const real *bias, const row_layout<const real> &in,
         const row_layout<real> &out)
{
  const int first = (int)blockIdx.x * product_size<real>::ROWS;
  const int n_left = *batch.count - first;
  if (n_left <= 0)
    return; /* the launch has blocks for the most rows possible */
  find_rows(rows, batch, first, n_left, (int)blockIdx.y * TILE, in, out);
  multiply_tile<real>(buffer, *rows, n_left, n_in, weight, bias, in, out);
}

static __global__ void __launch_bounds__(product_size<double>::THREADS,
                                         product_size<double>::BLOCKS)
    product_f64(row_batch batch, int n_in, const double *weight, const double *bias,
                row_layout<const double> in, row_layout<double> out)
{
  __shared__ product_buffer<double> buffer[N_BUFFER];
  __shared__ tile_rows<double> rows;
  multiply(buffer, &rows, batch, n_in, weight, bias, in, out);
}

/** Compute a layer in float32.  A thread computes eight rows by eight columns, so that it has many
 *  more multiply-adds than loads. */
static __global__ void __launch_bounds__(product_size<float>::THREADS, product_size<float>::BLOCKS)
    product_f32(row_batch batch, int n_in, const float *weight, const float *bias,
                row_layout<const float> in, row_layout<float> out)
{
  __shared__ product_buffer<float> buffer[N_BUFFER];
  __shared__ tile_rows<float> rows;
  multiply(buffer, &rows, batch, n_in, weight, bias, in, out);
}
