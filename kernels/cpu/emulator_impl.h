/* Included by cpu_backend.c once per type of template; no include guard.
 *
 * The emulator's matrix products.  Every output is one sum in one fixed order,
 * whatever the number of rows: a star's template does not depend on what else is in
 * the batch.  Tiles of all heights run the same chain of multiply-adds.
 *
 * A tile is some rows by MILL_TILE_VECS vectors of columns, all sums in registers.  Its
 * columns of the weights, a strip, stay in the first-level cache while the tiles of all rows
 * pass over them, and the next strip is fetched meanwhile, a share before each tile: a layer's
 * weights come from memory once for all rows of a call.
 */
enum {
  MILL_T(VEC_N) = MILL_VEC_BYTES / sizeof(MILL_REAL),
  MILL_T(TILE_COLUMNS) = MILL_TILE_VECS * MILL_T(VEC_N),
  MILL_T(PANEL) = MILL_PANEL_BYTES / sizeof(MILL_REAL)
};
_Static_assert(MILL_COLUMN_PAD % MILL_T(PANEL) == 0, "an output is made of whole panels");
_Static_assert(MILL_PANEL_BYTES % MILL_VEC_BYTES == 0, "a panel is made of whole vectors");
_Static_assert(MILL_COLUMN_PAD % MILL_T(TILE_COLUMNS) == 0, "an output is made of whole tiles");

typedef MILL_REAL MILL_T(mill_vec)
    __attribute__((vector_size(MILL_VEC_BYTES), aligned(sizeof(MILL_REAL))));

/** What the tiles of a strip of columns share. */
typedef struct MILL_T(mill_strip) {
  int n_in, column;
  const MILL_REAL *weight; /**< of the strip's first column, input k at k PANEL; those of the next
                            *   panel n_in PANEL after them */
  const MILL_REAL *bias;   /**< of its first column */
} MILL_T(mill_strip);

/** Rows h[0..NR), of pitch MILL_ROW_PITCH. */
#define MILL_TILE(NR)                                                                              \
  static void MILL_T(tile_##NR)(const MILL_T(mill_strip) * s, const MILL_REAL *h,                  \
                                const int *value, MILL_REAL *const *out)                           \
  {                                                                                                \
    enum { NV = MILL_TILE_VECS, VN = MILL_T(VEC_N), PANEL = MILL_T(PANEL) };                       \
    const MILL_T(mill_vec) zero = {0};                                                             \
    MILL_T(mill_vec) total[NR][NV];                                                                \
    const MILL_REAL *w = s->weight;                                                                \
    const ptrdiff_t panel = (ptrdiff_t)s->n_in * PANEL;                                            \
    int k = 0;                                                                                     \
    do {                                                                                           \
      const int end = s->n_in - k > MILL_K_BLOCK ? k + MILL_K_BLOCK : s->n_in;                     \
      MILL_T(mill_vec) acc[NR][NV];                                                                \
      for (int r = 0; r < NR; r++)                                                                 \
        for (int v = 0; v < NV; v++)                                                               \
          acc[r][v] = zero;                                                                        \
      const int first = k == 0;                                                                    \
      _Pragma("GCC unroll 4") for (; k < end; k++)                                                 \
      {                                                                                            \
        MILL_T(mill_vec) x[NV];                                                                    \
        for (int v = 0; v < NV; v++)                                                               \
          x[v] = *(const MILL_T(mill_vec) *)(w + v * VN / PANEL * panel + v * VN % PANEL);         \
        for (int r = 0; r < NR; r++) {                                                             \
          const MILL_REAL hk = h[r * MILL_ROW_PITCH + k];                                          \
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
            total[r][v] = acc[r][v] + *(const MILL_T(mill_vec) *)(s->bias + v * VN);               \
          else                                                                                     \
            total[r][v] = acc[r][v];                                                               \
        }                                                                                          \
    } while (k < s->n_in);                                                                         \
    for (int r = 0; r < NR; r++)                                                                   \
      for (int v = 0; v < NV; v++)                                                                 \
        *(MILL_T(mill_vec) *)(out[r] + s->column + v * VN) = total[r][v];                          \
  }

MILL_TILE(2)
MILL_TILE(3)
MILL_TILE(4)
#if MILL_TILE_ROWS > 4
MILL_TILE(5)
MILL_TILE(6)
#endif
#if MILL_TILE_ROWS > 6
MILL_TILE(7)
MILL_TILE(8)
MILL_TILE(9)
MILL_TILE(10)
MILL_TILE(11)
MILL_TILE(12)
#endif
#undef MILL_TILE

typedef void MILL_T(mill_tile)(const MILL_T(mill_strip) *, const MILL_REAL *, const int *,
                               MILL_REAL *const *);

/** out[0..n_out_pad) = W h (+ bias where value) of one row, by the same chains.  It waits for its
 *  weights, and memory brings those of several panels at once faster than those of one. */
static void MILL_T(row_product)(const mill_layer *layer, const MILL_REAL *weight,
                                const MILL_REAL *h, int value, MILL_REAL *out)
{
  enum { PANEL = MILL_T(PANEL), VN = MILL_T(VEC_N), NV = PANEL / VN, N = 4 };
  const MILL_T(mill_vec) zero = {0};
  const int n_panel = layer->n_out_pad / PANEL, share = (n_panel + N - 1) / N;
  const size_t step = (size_t)layer->n_in * PANEL;
  for (int p = 0; p < share; p++) {
    MILL_T(mill_vec) total[N][NV];
    const MILL_REAL *w[N];
    int at[N], k = 0;
    for (int i = 0; i < N; i++) {
      /* the last share may have fewer */
      at[i] = p + i * share < n_panel ? p + i * share : p;
      w[i] = weight + (size_t)at[i] * step;
    }
    do {
      const int end = layer->n_in - k > MILL_K_BLOCK ? k + MILL_K_BLOCK : layer->n_in;
      const int first = k == 0;
      MILL_T(mill_vec) acc[N][NV];
      for (int i = 0; i < N; i++)
        for (int v = 0; v < NV; v++)
          acc[i][v] = zero;
      for (; k < end; k++)
        for (int i = 0; i < N; i++) {
          for (int v = 0; v < NV; v++)
            acc[i][v] += h[k] * *(const MILL_T(mill_vec) *)(w[i] + v * VN);
          w[i] += PANEL;
        }
      for (int i = 0; i < N; i++)
        for (int v = 0; v < NV; v++) {
          const MILL_REAL *bias = (const MILL_REAL *)layer->bias + at[i] * PANEL + v * VN;
          if (!first)
            total[i][v] += acc[i][v];
          else if (value)
            total[i][v] = acc[i][v] + *(const MILL_T(mill_vec) *)bias;
          else
            total[i][v] = acc[i][v];
        }
    } while (k < layer->n_in);
    for (int i = 0; i < N; i++)
      for (int v = 0; v < NV; v++)
        *(MILL_T(mill_vec) *)(out + at[i] * PANEL + v * VN) = total[i][v];
  }
}

/** out[r][0..n_out_pad) = W h[r] (+ bias where value[r]); h [n_row][MILL_ROW_PITCH].  The bias is
 *  of the weights' type where there are values. */
static void MILL_T(layer_product)(const mill_layer *layer, const void *weight_w, int n_row,
                                  const MILL_REAL *h, const int *value, MILL_REAL *const *out)
{
  static MILL_T(mill_tile) *const tile[MILL_TILE_ROWS + 1] = {
    NULL,
    NULL, /* row_product */
    MILL_T(tile_2),
    MILL_T(tile_3),
    MILL_T(tile_4),
#if MILL_TILE_ROWS > 4
    MILL_T(tile_5),
    MILL_T(tile_6),
#endif
#if MILL_TILE_ROWS > 6
    MILL_T(tile_7),
    MILL_T(tile_8),
    MILL_T(tile_9),
    MILL_T(tile_10),
    MILL_T(tile_11),
    MILL_T(tile_12)
#endif
  };
  enum { PANEL = MILL_T(PANEL), COLUMNS = MILL_T(TILE_COLUMNS) };
  const MILL_REAL *weight = (const MILL_REAL *)weight_w;
  if (n_row == 1) {
    MILL_T(row_product)(layer, weight, h, value[0], out[0]);
    return;
  }
  const MILL_REAL *bias = (const MILL_REAL *)layer->bias;
  const int n_tile = (n_row + MILL_TILE_ROWS - 1) / MILL_TILE_ROWS;
  const ptrdiff_t n_in = layer->n_in, strip = n_in * COLUMNS; /* numbers of a strip */
  enum { LINE = 64 / sizeof(MILL_REAL) };
  for (int c = 0; c < layer->n_out_pad; c += COLUMNS) {
    const MILL_T(mill_strip)
        s = {layer->n_in, c, weight + n_in * (c - c % PANEL) + c % PANEL, bias + c};
    const ptrdiff_t ahead = c + COLUMNS < layer->n_out_pad ? strip : 0;
    for (int t = 0; t < n_tile; t++) {
      /* of nearly equal height */
      const int row = n_row * t / n_tile, n = n_row * (t + 1) / n_tile - row;
      for (ptrdiff_t i = ahead * t / n_tile; i < ahead * (t + 1) / n_tile; i += LINE)
        __builtin_prefetch(weight + n_in * (c + COLUMNS) + i, 0, 2);
      tile[n](&s, h + (size_t)row * MILL_ROW_PITCH, value + row, out + row);
    }
  }
}
