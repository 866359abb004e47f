/* SPDX-License-Identifier: BSD-3-Clause */
/** The emulator's matrix products on a CPU (declared in cpu_real.h).  The including file defines
 *  the function's name, MILL_LAYER_PRODUCT.
 *
 *  - An output's sum has an order that does not depend on the number of rows.  So a star's template
 *    does not depend on the other stars of a batch.
 *  - A tile is some rows by MILL_TILE_VECS vectors of columns.  Its sums are in registers.
 *  - A strip is a tile's columns for all rows.  Its weights stay in the first-level cache.
 *  - Each tile prefetches a share of the next strip's weights, and the next strip's outputs of
 *    the tile's rows. */
#pragma once

#include <stddef.h>

#include "kernels/cpu/cpu_real.h"
#include "kernels/math/real.h"

/* The sums of the largest tile fill the vector registers: 32 registers with AVX-512, else 16.  If
 * GCC unrolled the AVX-512 tile of twelve rows, some sums would be in memory. */
#define MILL_TILE_VECS 2
/* clang-format off */
#if defined(__AVX512F__)
#define MILL_TILE_UNROLL "GCC unroll 1"
#define MILL_TILES(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12)
#elif defined(__AVX__)
#define MILL_TILE_UNROLL "GCC unroll 4"
#define MILL_TILES(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6)
#else
#define MILL_TILE_UNROLL "GCC unroll 4"
#define MILL_TILES(DO) DO(1) DO(2) DO(3) DO(4)
#endif
/* clang-format on */

/** An output is the total of partial sums of this many inputs, which halves the rounding error in
 *  float32.  float64 has no partial sums. */
enum { MILL_K_BLOCK = MILL_WIDE ? MILL_MAX_WIDTH : 40 };

enum {
  MILL_TILE_COLUMNS = MILL_TILE_VECS * MILL_VEC_N,
  MILL_PANEL = MILL_PANEL_BYTES / sizeof(mill_real)
};
_Static_assert(MILL_COLUMN_PAD % MILL_PANEL == 0, "padded outputs must be whole panels");
_Static_assert(MILL_PANEL_BYTES % MILL_VEC_BYTES == 0, "a panel is made of whole vectors");
_Static_assert(MILL_COLUMN_PAD % MILL_TILE_COLUMNS == 0, "padded outputs must be whole tiles");

/** Data common to the tiles of a strip of columns. */
typedef struct mill_strip {
  int n_in, column;
  const mill_real *weight; /**< element k * PANEL: weight of input k in the strip's first column.
                            *   The next panel begins n_in * PANEL elements later */
  const mill_real *bias;   /**< bias of the strip's first column */
} mill_strip;

/** Rows h[0..NR), of pitch MILL_ROW_PITCH. */
#define MILL_TILE(NR)                                                                              \
  static void tile_##NR(const mill_strip *s, const mill_real *h, const int *value,                 \
                        mill_real *const *out)                                                     \
  {                                                                                                \
    enum { NV = MILL_TILE_VECS, VN = MILL_VEC_N, PANEL = MILL_PANEL };                             \
    const mill_vec_real zero = {0};                                                                \
    mill_vec_real total[NR][NV];                                                                   \
    const mill_real *w = s->weight;                                                                \
    const ptrdiff_t panel = (ptrdiff_t)s->n_in * PANEL;                                            \
    int k = 0;                                                                                     \
    do {                                                                                           \
      const int end = s->n_in - k > MILL_K_BLOCK ? k + MILL_K_BLOCK : s->n_in;                     \
      mill_vec_real acc[NR][NV];                                                                   \
      for (int r = 0; r < NR; r++)                                                                 \
        for (int v = 0; v < NV; v++)                                                               \
          acc[r][v] = zero;                                                                        \
      const int first = k == 0;                                                                    \
      _Pragma(MILL_TILE_UNROLL) for (; k < end; k++)                                               \
      {                                                                                            \
        mill_vec_real x[NV];                                                                       \
        for (int v = 0; v < NV; v++)                                                               \
          x[v] = *(const mill_vec_real *)(w + v * VN / PANEL * panel + v * VN % PANEL);            \
        for (int r = 0; r < NR; r++) {                                                             \
          const mill_real hk = h[r * MILL_ROW_PITCH + k];                                          \
          for (int v = 0; v < NV; v++)                                                             \
            acc[r][v] += hk * x[v];                                                                \
        }                                                                                          \
        w += PANEL;                                                                                \
      }                                                                                            \
      for (int r = 0; r < NR; r++)                                                                 \
        for (int v = 0; v < NV; v++) {                                                             \
          if (!first)                                                                              \
            total[r][v] += acc[r][v];                                                              \
          else if (value[r])                                                                       \
            total[r][v] = acc[r][v] + *(const mill_vec_real *)(s->bias + v * VN);                  \
          else                                                                                     \
            total[r][v] = acc[r][v];                                                               \
        }                                                                                          \
    } while (k < s->n_in);                                                                         \
    for (int r = 0; r < NR; r++)                                                                   \
      for (int v = 0; v < NV; v++)                                                                 \
        *(mill_vec_real *)(out[r] + s->column + v * VN) = total[r][v];                             \
  }

MILL_TILES(MILL_TILE)
#undef MILL_TILE

typedef void mill_tile(const mill_strip *, const mill_real *, const int *, mill_real *const *);

/** Compute a layer (cpu_real.h) strip by strip, and a strip tile by tile (top of this file).  The
 *  weights are [panel][n_in][PANEL]: output c is number c % PANEL of its panel. */
void MILL_LAYER_PRODUCT(const mill_layer *layer, const void *weight_w, int n_row,
                        const mill_real *h, const int *value, mill_real *const *out)
{
#define MILL_TILE_NAME(NR) tile_##NR,
  static mill_tile *const tile[] = {NULL, MILL_TILES(MILL_TILE_NAME)};
  enum { ROWS = sizeof(tile) / sizeof(tile[0]) - 1 }; /* rows of the highest tile */
  enum { PANEL = MILL_PANEL, COLUMNS = MILL_TILE_COLUMNS };
  enum { LINE = 64 / sizeof(mill_real) }; /* numbers of a cache line */
  const mill_real *weight = (const mill_real *)weight_w;
  const mill_real *bias = (const mill_real *)layer->bias;
  const int n_tile = (n_row + ROWS - 1) / ROWS;
  const ptrdiff_t n_in = layer->n_in, strip = n_in * COLUMNS; /* number of a strip's weights */
  for (int c = 0; c < layer->n_out_pad; c += COLUMNS) {
    const mill_strip s = {layer->n_in, c, weight + n_in * (c - c % PANEL) + c % PANEL, bias + c};
    const ptrdiff_t ahead = c + COLUMNS < layer->n_out_pad ? strip : 0; /* weights to prefetch */
    for (int t = 0; t < n_tile; t++) {
      /* tiles have nearly equal heights */
      const int row = n_row * t / n_tile, n = n_row * (t + 1) / n_tile - row;
      for (ptrdiff_t i = ahead * t / n_tile; i < ahead * (t + 1) / n_tile; i += LINE)
        __builtin_prefetch(weight + n_in * (c + COLUMNS) + i, 0, 2);
      for (int r = row; r < row + n; r++)
        for (int i = 0; i < COLUMNS; i += LINE)
          __builtin_prefetch(out[r] + c + COLUMNS + i, 1, 2);
      tile[n](&s, h + (size_t)row * MILL_ROW_PITCH, value + row, out + row);
    }
  }
}
