/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/components.h"

#include <math.h>
#include <string.h>

#include <cblas.h>
#include <lapacke.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/libraries/limits.h"

enum {
  SPARE_COMPONENT = 16, /* of the iteration, so that the last ones kept converge too */
  N_ITERATION = 3,
  ROW_BLOCK = 128, /* rows of one matrix product; fixed, as the sums' order must be */
  PIX_BLOCK = 512
};

/* Subtract each pixel's mean over the rows. */
static void centre(int n_thread, mill_spectra_matrix *m, float *mean)
{
#pragma omp parallel for num_threads(n_thread) schedule(static)
  for (int p0 = 0; p0 < m->n_pix; p0 += PIX_BLOCK) {
    const int n = m->n_pix - p0 < PIX_BLOCK ? m->n_pix - p0 : PIX_BLOCK;
    double sum[PIX_BLOCK] = {0};
    for (int i = 0; i < m->n_row; i++)
      for (int p = 0; p < n; p++)
        sum[p] += (double)m->x[(size_t)i * (size_t)m->n_stride + (size_t)(p0 + p)];
    for (int p = 0; p < n; p++)
      mean[p0 + p] = (float)(sum[p] / m->n_row);
    for (int i = 0; i < m->n_row; i++)
      for (int p = 0; p < n; p++)
        m->x[(size_t)i * (size_t)m->n_stride + (size_t)(p0 + p)] -= mean[p0 + p];
  }
}

/* score [n_row][n_dir] = x dir^T; blocks of a fixed size, whatever the threads */
static void project(int n_thread, const mill_spectra_matrix *m, int n_dir, const float *dir,
                    float *score)
{
#pragma omp parallel for num_threads(n_thread) schedule(static)
  for (int i = 0; i < m->n_row; i += ROW_BLOCK) {
    const int n = m->n_row - i < ROW_BLOCK ? m->n_row - i : ROW_BLOCK;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n_dir, m->n_pix, 1,
                m->x + (size_t)i * (size_t)m->n_stride, m->n_stride, dir, m->n_pix, 0,
                score + (size_t)i * (size_t)n_dir, n_dir);
  }
}

/* dir [n_dir][n_pix] = score^T x */
static void project_back(int n_thread, const mill_spectra_matrix *m, int n_dir, const float *score,
                         float *dir)
{
#pragma omp parallel for num_threads(n_thread) schedule(static)
  for (int p = 0; p < m->n_pix; p += PIX_BLOCK) {
    const int n = m->n_pix - p < PIX_BLOCK ? m->n_pix - p : PIX_BLOCK;
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n_dir, n, m->n_row, 1, score, n_dir,
                m->x + p, m->n_stride, 0, dir + p, m->n_pix);
  }
}

/* Rows of dir [n_dir][n_pix] to unit length and right angles, in float64. work as large. */
static int orthonormalise(int n_dir, int n_pix, float *dir, double *work)
{
  int err = MILL_OK;
  double *tau = NULL;
  const size_t n = (size_t)n_dir * (size_t)n_pix;
  MILL_TRY(MILL_ALLOC(n_dir, &tau));
  for (size_t i = 0; i < n; i++)
    work[i] = (double)dir[i];
  /* rows here are columns to LAPACK */
  lapack_int info = LAPACKE_dgeqrf(LAPACK_COL_MAJOR, n_pix, n_dir, work, n_pix, tau);
  if (info == 0)
    info = LAPACKE_dorgqr(LAPACK_COL_MAJOR, n_pix, n_dir, n_dir, work, n_pix, tau);
  if (info != 0)
    MILL_FAIL(info == LAPACK_WORK_MEMORY_ERROR ? MILL_ERR_MEMORY : MILL_ERR_INTERNAL,
              "LAPACK's QR of the spectra's components ended with %d", (int)info);
  for (size_t i = 0; i < n; i++)
    dir[i] = (float)work[i];
done:
  mill_free(tau);
  return err;
}

/* The n_dir leading directions of the rows of x by subspace iteration, dir [n_dir][n_pix], and the
   rows' coordinates in them, score [n_row][n_dir]. Starts from evenly spread rows. */
static int leading_directions(int n_thread, const mill_spectra_matrix *m, int n_dir, float *dir,
                              float *score)
{
  int err = MILL_OK;
  double *work = NULL;
  const size_t n_pix = (size_t)m->n_pix;
  MILL_TRY(MILL_ALLOC((size_t)n_dir * n_pix, &work));
  for (int i = 0; i < n_dir; i++) {
    const size_t row = (size_t)((int64_t)i * m->n_row / n_dir);
    memcpy(dir + (size_t)i * n_pix, m->x + row * (size_t)m->n_stride, n_pix * sizeof *dir);
  }
  MILL_TRY(orthonormalise(n_dir, m->n_pix, dir, work));
  for (int i = 0; i < N_ITERATION; i++) {
    project(n_thread, m, n_dir, dir, score);
    project_back(n_thread, m, n_dir, score, dir);
    MILL_TRY(orthonormalise(n_dir, m->n_pix, dir, work));
  }
  project(n_thread, m, n_dir, dir, score);
done:
  mill_free(work);
  return err;
}

/* Principal components within the directions: weight [n_pix][n_component], and the rows'
   coefficients, value [n_row][n_component], of unit mean square. */
static int principal_components(const mill_spectra_matrix *m, int n_dir, const float *dir,
                                const float *score, int n_component, float *weight, double *value)
{
  int err = MILL_OK;
  double *s = NULL, *gram = NULL, *variance = NULL;
  const size_t n_row = (size_t)m->n_row, width = (size_t)n_dir, n = (size_t)n_component;
  MILL_TRY(MILL_ALLOC(n_row * width, &s));
  MILL_TRY(MILL_ALLOC(width * width, &gram));
  MILL_TRY(MILL_ALLOC(n_dir, &variance));
  for (size_t i = 0; i < n_row * width; i++)
    s[i] = (double)score[i];
  cblas_dsyrk(CblasRowMajor, CblasUpper, CblasTrans, n_dir, m->n_row, 1.0 / m->n_row, s, n_dir, 0,
              gram, n_dir);
  /* its columns become the eigenvectors, variances ascending */
  const lapack_int info = LAPACKE_dsyevd(LAPACK_ROW_MAJOR, 'V', 'U', n_dir, gram, n_dir, variance);
  if (info != 0)
    MILL_FAIL(info == LAPACK_WORK_MEMORY_ERROR || info == LAPACK_TRANSPOSE_MEMORY_ERROR
                  ? MILL_ERR_MEMORY
                  : MILL_ERR_INTERNAL,
              "LAPACK's eigenvectors of the spectra's components ended with %d", (int)info);
  /* the leading ones are the last columns; weight may not grow beyond all bounds where a component
     has no variance left */
  const double least = 1e-14 * variance[n_dir - 1];
  for (size_t k = 0; k < n; k++) {
    const size_t column = width - 1 - k;
    const double rms = sqrt(fmax(variance[column], least));
    for (size_t i = 0; i < n_row; i++) {
      double sum = 0;
      for (size_t j = 0; j < width; j++)
        sum += s[i * width + j] * gram[j * width + column];
      value[i * n + k] = sum / rms;
    }
    for (size_t p = 0; p < (size_t)m->n_pix; p++) {
      double sum = 0;
      for (size_t j = 0; j < width; j++)
        sum += (double)dir[j * (size_t)m->n_pix + p] * gram[j * width + column];
      weight[p * n + k] = (float)(sum * rms);
    }
  }
done:
  MILL_FREE(s, gram, variance);
  return err;
}

int mill_components_most(const mill_spectra_matrix *m)
{
  /* centred rows have one dimension less than there are of them */
  return (m->n_row < m->n_pix ? m->n_row : m->n_pix) - 1;
}

int mill_components_layer(int n_thread, mill_spectra_matrix *m, int n_component, mill_emulator *e,
                          double *value)
{
  int err = MILL_OK;
  float *dir = NULL, *score = NULL;
  const int most = mill_components_most(m);
  const int n_dir = n_component + SPARE_COMPONENT < most ? n_component + SPARE_COMPONENT : most;
  MILL_TRY(mill_expect_within(MILL_ERR_RANGE, "principal components", n_component, 1, n_dir));
  MILL_TRY(MILL_ALLOC((size_t)n_dir * (size_t)m->n_pix, &dir));
  MILL_TRY(MILL_ALLOC((size_t)n_dir * (size_t)m->n_row, &score));
  e->log_flux = 1;
  e->n_layer = 1;
  e->n_in[0] = n_component;
  e->n_out[0] = m->n_pix;
  MILL_TRY(MILL_ALLOC(m->n_pix, &e->bias[0]));
  MILL_TRY(MILL_ALLOC((size_t)m->n_pix * (size_t)n_component, &e->weight[0]));
  centre(n_thread, m, e->bias[0]);
  MILL_TRY(leading_directions(n_thread, m, n_dir, dir, score));
  MILL_TRY(principal_components(m, n_dir, dir, score, n_component, e->weight[0], value));
done:
  MILL_FREE(dir, score);
  return err;
}

int mill_components_left(int n_thread, mill_spectra_matrix *m, const mill_emulator *e,
                         const double *value, double *left)
{
  int err = MILL_OK;
  float *score = NULL;
  double most = 0;
  const int q = e->n_in[0];
  const size_t width = (size_t)q, pitch = (size_t)m->n_stride;
  MILL_TRY(MILL_ALLOC((size_t)m->n_row * width, &score));
  for (size_t i = 0; i < (size_t)m->n_row * width; i++)
    score[i] = (float)value[i];
#pragma omp parallel for num_threads(n_thread) schedule(static) reduction(max : most)
  for (int i = 0; i < m->n_row; i += ROW_BLOCK) {
    const int n = m->n_row - i < ROW_BLOCK ? m->n_row - i : ROW_BLOCK;
    float *x = m->x + (size_t)i * pitch;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, m->n_pix, q, -1,
                score + (size_t)i * width, q, e->weight[0], q, 1, x, m->n_stride);
    for (int j = 0; j < n; j++) {
      double sum = 0;
      for (int p = 0; p < m->n_pix; p++)
        sum += (double)x[(size_t)j * pitch + (size_t)p] * (double)x[(size_t)j * pitch + (size_t)p];
      most = fmax(most, sqrt(sum / m->n_pix));
    }
  }
  *left = most;
done:
  mill_free(score);
  return err;
}
