#include "src/pipeline/rough_tangents.h"

#include <math.h>
#include <string.h>

#include <cblas.h>
#include <lapacke.h>

#include "kernels/base/error.h"

enum {
  UNIT = 8,       /**< n is a multiple of this */
  LEAST_IN = 64,  /**< inputs below which there is nothing to save */
  PIXEL_STEP = 4, /**< one pixel in so many measures lengths */
};
/** Part of the tangents' squared length that may be left out, and the largest n by inputs. */
static const double LEFT_OUT = 1e-4, MOST = 0.6;

/** Lower triangle l [n_in][n_in], such that |l^T h| is the length of W h in pixels, W the weights
 *  w [n_out][n_in] less their mean over pixels, mean [n_in]. */
static int lengths(int n_in, int n_out, const float *w, const double *mean, double *l)
{
  int err = MILL_OK;
  const int n_pix = (n_out + PIXEL_STEP - 1) / PIXEL_STEP;
  double *x = NULL, trace = 0.0;
  MILL_TRY(MILL_ALLOC((size_t)n_pix * (size_t)n_in, &x));
  for (int p = 0; p < n_pix; p++)
    for (int k = 0; k < n_in; k++)
      x[(size_t)p * (size_t)n_in + (size_t)k] =
          (double)w[(size_t)p * PIXEL_STEP * (size_t)n_in + (size_t)k] - mean[k];
  cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, n_in, n_pix, 1.0, x, n_in, 0.0, l, n_in);
  for (int k = 0; k < n_in; k++)
    trace += l[k * n_in + k];
  /* some combination of the inputs may do nothing */
  for (int k = 0; k < n_in; k++)
    l[k * n_in + k] += 1e-12 * trace;
  if (LAPACKE_dpotrf(LAPACK_ROW_MAJOR, 'L', n_in, l, n_in) != 0)
    MILL_FAIL(MILL_ERR_INTERNAL, "no factor of an emulator's last layer");
done:
  mill_free(x);
  return err;
}

/** Principal components of l^T h over the n rows h of input, by ascending variance, into axis
 *  [n_in][n_in], one a column.  Returns in *n_kept how many of the last hold all but LEFT_OUT. */
static int components(int n_in, int n, const float *input, const double *l, double *axis,
                      int *n_kept)
{
  int err = MILL_OK;
  double *z = NULL, *variance = NULL, sum = 0.0, left = 0.0;
  MILL_TRY(MILL_ALLOC((size_t)n * (size_t)n_in, &z));
  MILL_TRY(MILL_ALLOC(n_in, &variance));
  for (size_t i = 0; i < (size_t)n * (size_t)n_in; i++)
    z[i] = (double)input[i];
  cblas_dtrmm(CblasRowMajor, CblasRight, CblasLower, CblasNoTrans, CblasNonUnit, n, n_in, 1.0, l,
              n_in, z, n_in);
  for (int r = 0; r < n; r++) {
    double *row = z + (size_t)r * (size_t)n_in;
    const double length = cblas_dnrm2(n_in, row, 1);
    cblas_dscal(n_in, length > 0.0 && isfinite(length) ? 1.0 / length : 0.0, row, 1);
  }
  cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, n_in, n, 1.0, z, n_in, 0.0, axis, n_in);
  if (LAPACKE_dsyevd(LAPACK_ROW_MAJOR, 'V', 'L', n_in, axis, n_in, variance) != 0)
    MILL_FAIL(MILL_ERR_INTERNAL, "no principal components of an emulator's tangents");
  for (int i = 0; i < n_in; i++)
    sum += variance[i];
  *n_kept = n_in;
  while (*n_kept > 0 && left + variance[n_in - *n_kept] <= LEFT_OUT * sum)
    left += variance[n_in - (*n_kept)--];
done:
  MILL_FREE(z, variance);
  return err;
}

/** The layers of n axes: down = axes^T l^T, up = W l^-T axes. */
static int take_axes(int n_in, int n_out, const float *w, const double *mean, const double *l,
                     const double *axis, mill_rough_layers *out)
{
  int err = MILL_OK;
  const int n = out->n;
  const size_t size = (size_t)n_in * (size_t)n;
  double *v = NULL, *mean_up = NULL;
  float *thin = NULL;
  MILL_TRY(MILL_ALLOC(size, &v));
  MILL_TRY(MILL_ALLOC(n, &mean_up));
  MILL_TRY(MILL_ALLOC(size, &thin));
  MILL_TRY(MILL_ALLOC(size, &out->down));
  MILL_TRY(MILL_ALLOC((size_t)n_out * (size_t)n, &out->up));
  for (int k = 0; k < n_in; k++)
    memcpy(v + (size_t)k * (size_t)n, axis + (size_t)k * (size_t)n_in + (size_t)(n_in - n),
           (size_t)n * sizeof *v);
  cblas_dtrmm(CblasRowMajor, CblasLeft, CblasLower, CblasNoTrans, CblasNonUnit, n_in, n, 1.0, l,
              n_in, v, n);
  for (int k = 0; k < n_in; k++)
    for (int i = 0; i < n; i++) {
      out->down[i * n_in + k] = (float)v[k * n + i];
      v[k * n + i] = axis[(size_t)k * (size_t)n_in + (size_t)(n_in - n + i)];
    }
  cblas_dtrsm(CblasRowMajor, CblasLeft, CblasLower, CblasTrans, CblasNonUnit, n_in, n, 1.0, l, n_in,
              v, n);
  for (int k = 0; k < n_in; k++)
    for (int i = 0; i < n; i++) {
      mean_up[i] += mean[k] * v[k * n + i];
      thin[k * n + i] = (float)v[k * n + i];
    }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n_out, n, n_in, 1.0F, w, n_in, thin, n,
              0.0F, out->up, n);
  for (int p = 0; p < n_out; p++)
    for (int i = 0; i < n; i++)
      out->up[(size_t)p * (size_t)n + (size_t)i] -= (float)mean_up[i];
done:
  MILL_FREE(v, mean_up, thin);
  return err;
}

int mill_rough_layers_make(const mill_emulator *e, int n, const float *input,
                           mill_rough_layers *out)
{
  int err = MILL_OK;
  const int last = e->n_layer - 1, n_in = e->n_in[last], n_out = e->n_out[last];
  const size_t square = (size_t)n_in * (size_t)n_in;
  const float *w = e->weight[last];
  double *mean = NULL, *l = NULL, *axis = NULL;
  int n_kept = 0;
  memset(out, 0, sizeof *out);
  if (n_in < LEAST_IN)
    goto done;
  MILL_TRY(MILL_ALLOC(n_in, &mean));
  MILL_TRY(MILL_ALLOC(square, &l));
  MILL_TRY(MILL_ALLOC(square, &axis));
  for (int p = 0; p < n_out; p++)
    for (int k = 0; k < n_in; k++)
      mean[k] += (double)w[(size_t)p * (size_t)n_in + (size_t)k] / (double)n_out;
  MILL_TRY(lengths(n_in, n_out, w, mean, l));
  MILL_TRY(components(n_in, n, input, l, axis, &n_kept));
  n_kept = (n_kept + UNIT - 1) / UNIT * UNIT;
  if (n_kept == 0 || (double)n_kept > MOST * (double)n_in)
    goto done;
  out->n = n_kept;
  MILL_TRY(take_axes(n_in, n_out, w, mean, l, axis, out));
done:
  MILL_FREE(mean, l, axis);
  return err;
}

void mill_rough_layers_clear(mill_rough_layers *layers)
{
  MILL_FREE(layers->down, layers->up);
  memset(layers, 0, sizeof *layers);
}
