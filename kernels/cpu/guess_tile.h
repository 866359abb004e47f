/** The guess's sums on a CPU: vectors of templates.  Included by kernels/star/guess.h. */
#ifndef MILL_CPU_GUESS_TILE_H
#define MILL_CPU_GUESS_TILE_H

#include "kernels/math/vector.h"
#include "kernels/star/slot.h"

/** Shifts at once: as many sums as registers hold. */
#if defined(__AVX512F__)
enum { MILL_GUESS_SHIFTS = 12, MILL_GUESS_VECTOR = 16 };
#elif defined(__AVX__)
enum { MILL_GUESS_SHIFTS = 9, MILL_GUESS_VECTOR = 8 };
#else
enum { MILL_GUESS_SHIFTS = 9, MILL_GUESS_VECTOR = 4 };
#endif
/** All templates of a group. */
enum { MILL_GUESS_TEMPLATES = MILL_GUESS_LANE };
typedef float mill_guess_vector __attribute__((vector_size(4 * MILL_GUESS_VECTOR)));

/** mill_guess_tile of n_shift shifts, a constant. */
MILL_INLINE void mill_guess_tile_of(int n_shift, int n_bin, const float *bin_wn, const float *bin_w,
                                    const float *t, double *sum)
{
  for (int i = 0; i < n_shift * MILL_GUESS_LANE; i++)
    sum[i] = 0.0;
  for (int first = 0; first < n_bin; first += MILL_GUESS_CHUNK) {
    const int end = n_bin - first < MILL_GUESS_CHUNK ? n_bin : first + MILL_GUESS_CHUNK;
    for (int l = 0; l < MILL_GUESS_LANE; l += MILL_GUESS_VECTOR) {
      mill_guess_vector part[MILL_GUESS_SHIFTS];
#pragma GCC unroll 16
      for (int s = 0; s < n_shift; s++)
        part[s] = (mill_guess_vector){0.0f};
      for (int i = first; i < end; i++) {
        const mill_guess_vector *at =
            (const mill_guess_vector *)(const void *)(t + (ptrdiff_t)i * MILL_GUESS_LANE + l);
        const float wn = bin_wn[i], w = bin_w[i];
#pragma GCC unroll 16
        for (int s = 0; s < n_shift; s++) {
          const mill_guess_vector x = at[-s * (MILL_GUESS_LANE / MILL_GUESS_VECTOR)];
          part[s] += x * (x * w + wn);
        }
      }
#pragma GCC unroll 16
      for (int s = 0; s < n_shift; s++) {
        float lane[MILL_GUESS_VECTOR];
        __builtin_memcpy(lane, &part[s], sizeof lane);
        MILL_SIMD
        for (int i = 0; i < MILL_GUESS_VECTOR; i++)
          sum[s * MILL_GUESS_LANE + l + i] += (double)lane[i];
      }
    }
  }
}

/** chi^2 of MILL_GUESS_TEMPLATES templates of a group at n_shift shifts (1 or MILL_GUESS_SHIFTS).
 *
 *  bin_wn, bin_w [n_bin]                 in   sums over the bins of the data
 *  t                                     in   the bin of the first template that data bin 0
 *                                             meets at the first shift; bins lie
 *                                             MILL_GUESS_LANE apart, a further shift is one
 *                                             bin back
 *  sum [n_shift][MILL_GUESS_TEMPLATES]   out */
static inline void mill_guess_tile(int n_shift, int n_bin, const float *bin_wn, const float *bin_w,
                                   const float *t, double *sum)
{
  if (n_shift == 1)
    mill_guess_tile_of(1, n_bin, bin_wn, bin_w, t, sum);
  else
    mill_guess_tile_of(MILL_GUESS_SHIFTS, n_bin, bin_wn, bin_w, t, sum);
}

#endif
