/* SPDX-License-Identifier: BSD-3-Clause */
/** Solution of normal equations by one warp of a GPU. */
#pragma once

#include <float.h>

#include "kernels/math/block.h"

/** Factor a [n][n] (lower triangle, n <= 32) as L L^T like mill_cholesky, and replace the
 *  right-hand side v [n] by the solution, with the first warp.  Returns 0 to all threads, or 1 +
 *  the row that failed.  out [3]: ln det a; |L^-1 v|^2; the returned value. */
static __device__ __noinline__ int mill_threads_normal(int thread, int n_thread, int n, double *a,
                                                       double *v, double *out)
{
  const unsigned all = 0xffffffffu;
  if (thread < 32) {
    const int i = thread, mine = i < n;
    const double floor_rel = (double)n * DBL_EPSILON;
    const double diagonal = mine ? a[i * n + i] : 1.0;
    int failed = 0;
    for (int k = 0; k < n; k++) {
      const double pivot = a[k * n + k], original = __shfl_sync(all, diagonal, k);
      if (!(pivot > floor_rel * original)) {
        failed = 1 + k;
        break; /* all lanes */
      }
      const double root = sqrt(pivot);
      __syncwarp();
      if (i == k)
        a[k * n + k] = root;
      else if (mine && i > k)
        a[i * n + k] /= root;
      __syncwarp();
      if (mine && i > k)
        for (int j = k + 1; j <= i; j++)
          a[i * n + j] -= a[i * n + k] * a[j * n + k];
      __syncwarp();
    }
    if (!failed) {
      double y = mine ? v[i] : 0.0;
      for (int k = 0; k < n; k++) { /* solve L y = v */
        const double yk = __shfl_sync(all, y, k) / a[k * n + k];
        if (i == k)
          y = yk;
        else if (mine && i > k)
          y -= a[i * n + k] * yk;
      }
      const double vv = mill_warp_sum(mine ? y * y : 0.0);
      const double ln_det = 2.0 * mill_warp_sum(mine ? log(a[i * n + i]) : 0.0);
      for (int k = n - 1; k >= 0; k--) { /* solve L^T x = y; x replaces y */
        const double yk = __shfl_sync(all, y, k) / a[k * n + k];
        if (i == k)
          y = yk;
        else if (i < k)
          y -= a[k * n + i] * yk;
      }
      if (mine)
        v[i] = y;
      if (i == 0) {
        out[0] = ln_det;
        out[1] = vv;
      }
    }
    if (i == 0)
      out[2] = (double)failed;
  }
  mill_threads_wait(n_thread);
  return (int)out[2];
}

static __device__ inline int mill_block_normal(mill_block *b, int n, double *a, double *v,
                                               double *out)
{
  return mill_threads_normal(b->thread, b->n_thread, n, a, v, out);
}
