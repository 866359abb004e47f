/** The guess's sums on a GPU: one template a thread.  Included by kernels/star/guess.h. */
#ifndef MILL_CUDA_GUESS_TILE_H
#define MILL_CUDA_GUESS_TILE_H

#include "kernels/math/vector.h"
#include "kernels/star/slot.h"

enum { MILL_GUESS_SHIFTS = 8, MILL_GUESS_TEMPLATES = 1 };

/** mill_guess_tile of n_shift shifts; a thread loads a bin of the template once for all of them. */
template <int n_shift>
static __device__ inline void mill_guess_tile_of(int n_bin, const float *bin_wn, const float *bin_w,
                                                 const float *t, double *sum)
{
  float x[n_shift]; /* shift s needs the template s bins before that of shift 0 */
#pragma unroll
  for (int s = 1; s < n_shift; s++)
    x[s - 1] = t[-(ptrdiff_t)s * MILL_GUESS_LANE];
#pragma unroll
  for (int s = 0; s < n_shift; s++)
    sum[s] = 0.0;
  for (int first = 0; first < n_bin; first += MILL_GUESS_CHUNK) {
    const int end = n_bin - first < MILL_GUESS_CHUNK ? n_bin : first + MILL_GUESS_CHUNK;
    float part[n_shift];
#pragma unroll
    for (int s = 0; s < n_shift; s++)
      part[s] = 0.0f;
#pragma unroll 8
    for (int i = first; i < end; i++) {
      const float wn = bin_wn[i], w = bin_w[i];
#pragma unroll
      for (int s = n_shift - 1; s > 0; s--)
        x[s] = x[s - 1];
      x[0] = t[(ptrdiff_t)i * MILL_GUESS_LANE];
#pragma unroll
      for (int s = 0; s < n_shift; s++)
        part[s] += x[s] * (x[s] * w + wn);
    }
#pragma unroll
    for (int s = 0; s < n_shift; s++)
      sum[s] += (double)part[s];
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
MILL_INLINE void mill_guess_tile(int n_shift, int n_bin, const float *bin_wn, const float *bin_w,
                                 const float *t, double *sum)
{
  if (n_shift == 1)
    mill_guess_tile_of<1>(n_bin, bin_wn, bin_w, t, sum);
  else
    mill_guess_tile_of<MILL_GUESS_SHIFTS>(n_bin, bin_wn, bin_w, t, sum);
}

#endif
