/* Included by cpu_backend.c once per type of template; no include guard.
 *
 * The emulator's matrix products.  Every output is bias + sum over k in one
 * fixed order, whatever the number of rows: a star's template does not depend on
 * what else is in the batch.  Sums run over blocks of MILL_K_BLOCK inputs and
 * then over the blocks, which keeps float32 rounding below that of the result.
 */
enum { MILL_T(MILL_K_BLOCK) = 32 };

typedef MILL_REAL MILL_T(mill_vec)
    __attribute__((vector_size(MILL_VEC_BYTES), aligned(sizeof(MILL_REAL))));

/* NR rows by MILL_VECS vectors of columns */
#define MILL_TILE(NR)                                                                              \
  static inline __attribute__((always_inline)) void MILL_T(tile_##NR)(                             \
      int k0, int k1, const MILL_REAL *const *h, const MILL_REAL *w, int pitch,                    \
      const MILL_REAL *bias, const int *value, MILL_REAL *const *out)                              \
  {                                                                                                \
    enum { NV = MILL_VECS, VN = MILL_VEC_BYTES / sizeof(MILL_REAL) };                              \
    MILL_T(mill_vec) acc[NR][NV];                                                                  \
    for (int r = 0; r < NR; r++)                                                                   \
      for (int v = 0; v < NV; v++) {                                                               \
        const MILL_T(mill_vec) zero = {0};                                                         \
        acc[r][v] = zero;                                                                          \
      }                                                                                            \
    for (int k = k0; k < k1; k++) {                                                                \
      const MILL_REAL *wk = w + (size_t)k * (size_t)pitch;                                         \
      for (int v = 0; v < NV; v++) {                                                               \
        const MILL_T(mill_vec) x = *(const MILL_T(mill_vec) *)(wk + v * VN);                       \
        for (int r = 0; r < NR; r++)                                                               \
          acc[r][v] += h[r][k] * x;                                                                \
      }                                                                                            \
    }                                                                                              \
    for (int r = 0; r < NR; r++)                                                                   \
      for (int v = 0; v < NV; v++) {                                                               \
        MILL_T(mill_vec) *to = (MILL_T(mill_vec) *)(out[r] + v * VN);                              \
        if (k0 > 0)                                                                                \
          acc[r][v] += *to;                                                                        \
        else if (value[r])                                                                         \
          acc[r][v] += *(const MILL_T(mill_vec) *)(bias + v * VN);                                 \
        *to = acc[r][v];                                                                           \
      }                                                                                            \
  }

MILL_TILE(1)
MILL_TILE(2)
MILL_TILE(3)
MILL_TILE(4)
#undef MILL_TILE

/** out[r][0..n_out_pad) = W h[r] (+ bias where value[r]). */
static void MILL_T(layer_product)(const mill_layer *layer, int n_row, const MILL_REAL *const *h,
                                  const int *value, MILL_REAL *const *out)
{
  enum { COLS = MILL_VECS * MILL_VEC_BYTES / sizeof(MILL_REAL) };
  const MILL_REAL *weight = (const MILL_REAL *)layer->weight;
  const MILL_REAL *bias = (const MILL_REAL *)layer->bias;
  const int pitch = layer->n_out_pad;
  /* columns outside, so that a strip of the weights stays in cache for all rows */
  for (int c = 0; c < pitch; c += COLS) {
    const MILL_REAL *w = weight + c, *bc = bias + c;
    for (int r = 0; r < n_row; r += 4) {
      const int nr = n_row - r < 4 ? n_row - r : 4;
      MILL_REAL *to[4];
      for (int i = 0; i < nr; i++)
        to[i] = out[r + i] + c;
      for (int k = 0; k < layer->n_in; k += MILL_T(MILL_K_BLOCK)) {
        const int end =
            layer->n_in - k < MILL_T(MILL_K_BLOCK) ? layer->n_in : k + MILL_T(MILL_K_BLOCK);
        if (nr == 4)
          MILL_T(tile_4)(k, end, h + r, w, pitch, bc, value + r, to);
        else if (nr == 3)
          MILL_T(tile_3)(k, end, h + r, w, pitch, bc, value + r, to);
        else if (nr == 2)
          MILL_T(tile_2)(k, end, h + r, w, pitch, bc, value + r, to);
        else
          MILL_T(tile_1)(k, end, h + r, w, pitch, bc, value + r, to);
      }
    }
  }
}
