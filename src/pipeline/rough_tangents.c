/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/pipeline/rough_tangents.h"

#include <math.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/math/linalg.h"

enum {
  LEAST_IN = 64, /**< inputs below which there is nothing to save */
  PIXELS = 4,    /**< pixels for each input that measure lengths, */
  TOGETHER = 4,  /**< of them at a time, as l is larger than a first cache */
};
/** Part of the tangents' squared length that may be left out, and the most axes by inputs. */
static const double LEFT_OUT = 5e-5, MOST = 0.6;

static void add(int n, double factor, const double *from, double *to)
{
#pragma omp simd
  for (int i = 0; i < n; i++)
    to[i] += factor * from[i];
}

/** Lower triangle l [n_in][n_in], such that |l^T h| is the length of W h in pixels, W the weights
 *  w [n_out][n_in] less their mean over pixels; row [TOGETHER][n_in] is work space.  Returns 0 when
 *  they are not finite. */
static int lengths(int n_in, int n_out, const float *w, const double *mean, double *row, double *l)
{
  const int step = n_out > PIXELS * n_in ? n_out / (PIXELS * n_in) : 1;
  const double *r0 = row, *r1 = r0 + n_in, *r2 = r1 + n_in, *r3 = r2 + n_in;
  double trace = 0.0;
  for (int first = 0; first < n_out; first += TOGETHER * step) {
    for (int t = 0; t < TOGETHER; t++)
      for (int k = 0; k < n_in; k++) {
        const int p = first + t * step;
        row[t * n_in + k] =
            p < n_out ? (double)w[(size_t)p * (size_t)n_in + (size_t)k] - mean[k] : 0.0;
      }
    for (int k = 0; k < n_in; k++) {
      double *to = l + (size_t)k * (size_t)n_in;
      const double x0 = r0[k], x1 = r1[k], x2 = r2[k], x3 = r3[k];
#pragma omp simd
      for (int i = 0; i <= k; i++)
        to[i] += (x0 * r0[i] + x1 * r1[i]) + (x2 * r2[i] + x3 * r3[i]);
    }
  }
  for (int k = 0; k < n_in; k++)
    trace += l[k * n_in + k];
  /* some combination of the inputs may have no effect */
  for (int k = 0; k < n_in; k++)
    l[k * n_in + k] += 1e-12 * trace;
  return mill_cholesky(n_in, l, n_in) == 0;
}

/** Orthonormal axes [most][n_in] of l^T h over the n tangents h of input, until all but LEFT_OUT is
 *  in them.  Returns their number, 0 when most are too few; z [n][n_in] and square [n], what is
 *  left of the tangents and its squared length, are work space. */
static int orthonormal(int n_in, int n, const float *input, const double *l, int most, double *z,
                       double *square, double *axis)
{
  double whole = 0.0;
  for (int r = 0; r < n; r++) {
    double *row = z + (size_t)r * (size_t)n_in;
    for (int k = 0; k < n_in; k++)
      add(k + 1, (double)input[(size_t)r * (size_t)n_in + (size_t)k], l + (size_t)k * (size_t)n_in,
          row);
    const double length = sqrt(mill_dot(n_in, row, row));
    const int good = length > 0.0 && isfinite(length);
    for (int k = 0; k < n_in; k++)
      row[k] = good ? row[k] / length : 0.0;
    square[r] = good;
    whole += good;
  }
  for (int i = 0; i < most; i++) {
    double left = 0.0;
    int far = 0;
    for (int r = 0; r < n; r++) {
      left += square[r];
      if (square[r] > square[far])
        far = r;
    }
    if (left <= LEFT_OUT * whole)
      return i;
    double *next = axis + (size_t)i * (size_t)n_in, *from = z + (size_t)far * (size_t)n_in;
    add(n_in, 1.0 / sqrt(mill_dot(n_in, from, from)), from, next);
    for (int r = 0; r < n; r++) {
      double *row = z + (size_t)r * (size_t)n_in;
      const double along = mill_dot(n_in, next, row);
      add(n_in, -along, next, row);
      square[r] -= along * along;
    }
  }
  return 0;
}

int mill_rough_axes_find(const mill_emulator *e, const double *mean, int n, const float *input,
                         mill_rough_axes *out)
{
  int err = MILL_OK;
  const int last = e->n_layer - 1, n_in = e->n_in[last];
  const int most = (int)(MOST * (double)n_in);
  double *row = NULL, *l = NULL, *z = NULL, *square = NULL, *axis = NULL;
  memset(out, 0, sizeof *out);
  if (n_in < LEAST_IN)
    goto done;
  MILL_TRY(MILL_ALLOC(TOGETHER * n_in, &row));
  MILL_TRY(MILL_ALLOC((size_t)n_in * (size_t)n_in, &l));
  MILL_TRY(MILL_ALLOC((size_t)n * (size_t)n_in, &z));
  MILL_TRY(MILL_ALLOC(n, &square));
  MILL_TRY(MILL_ALLOC((size_t)most * (size_t)n_in, &axis));
  if (lengths(n_in, e->n_out[last], e->weight[last], mean, row, l))
    out->n = orthonormal(n_in, n, input, l, most, z, square, axis);
  if (out->n == 0)
    goto done;
  MILL_TRY(MILL_ALLOC((size_t)out->n * (size_t)n_in, &out->down));
  MILL_TRY(MILL_ALLOC((size_t)out->n * (size_t)n_in, &out->up));
  for (int i = 0; i < out->n; i++) {
    double *a = axis + (size_t)i * (size_t)n_in;
    float *down = out->down + (size_t)i * (size_t)n_in, *up = out->up + (size_t)i * (size_t)n_in;
    for (int k = 0; k < n_in; k++)
      down[k] = (float)mill_dot(k + 1, l + (size_t)k * (size_t)n_in, a);
    mill_cholesky_backward(n_in, l, n_in, a);
    for (int k = 0; k < n_in; k++)
      up[k] = (float)a[k];
  }
done:
  MILL_FREE(row, l, z, square, axis);
  return err;
}

void mill_rough_axes_clear(mill_rough_axes *axes)
{
  MILL_FREE(axes->down, axes->up);
  memset(axes, 0, sizeof *axes);
}
