/* SPDX-License-Identifier: BSD-3-Clause */
/** Work space of one block: rows of templates on the grid and at the pixels. */
#pragma once

#include <string.h>

#include "kernels/base/layout.h"
#include "kernels/star/model.h"

/** Layout of mill_workspace.error: U = E S [n_error][n_cont], E r [n_error], U N^-1
 *  [n_error][n_cont].  E is the model error (model_error.h) and r the residual.  S has a column for
 *  each continuum function, times template / sigma, and N = S^T S. */
enum {
  MILL_ERROR_RESIDUAL = MILL_MAX_ERROR * MILL_MAX_CONT,
  MILL_ERROR_SOLVED = MILL_ERROR_RESIDUAL + MILL_MAX_ERROR,
  MILL_ERROR_SPACE = MILL_ERROR_SOLVED + MILL_MAX_ERROR * MILL_MAX_CONT
};

/** Spare bytes at the end of `pixel`, and of `smooth`.  Those of `pixel` hold the end of rows that
 *  begin up to 3 numbers late (mill_sharp_rows); on a GPU each warp has an equal part of them. */
enum { MILL_PIXEL_SPARE = 128 };

/** Work space of one block.  Rows are float or double, by the run's precision.  Rows on the grid:
 *  emulator output (grid), rotated templates (rotated), their spline coefficients (bend). */
typedef struct mill_workspace {
  void *grid, *rotated, *bend; /**< [n_deriv + 1][max_pix_pad] */
  void *templ; /**< template for a request without derivatives: in rotated or mill_slot.kept */
  /** [mill_n_pixel_row][max_seg_pix] and MILL_PIXEL_SPARE bytes: templates at the pixels, before
   *  (pixel) and after (smooth) the resolution matrix. */
  void *pixel, *smooth;
  int *index;  /**< [max_seg_pix] grid point to the left of each pixel */
  float *frac; /**< [max_seg_pix] position of each pixel in its grid interval, 0..1 in wavelength */
  /** Mean over the grid of the emulator's output and of its derivatives in labels.  Rows hold t: a
   *  template is exp(mean[0]) (1 + t) for log flux, mean[0] + t for plain flux. */
  double mean[1 + MILL_MAX_LABEL];
  double *kernel, *kernel_slope; /**< [MILL_MAX_ROTATION + 1] */
  double *normal;                /**< [MILL_MAX_CONT^2] lower Cholesky factor */
  double *solve;                 /**< [MILL_MAX_CONT * (MILL_MAX_PAR + 3)] */
  double *sums;                  /**< [MILL_BLOCK_MAX_SUM] */
  double *error;                 /**< [MILL_ERROR_SPACE] products of the rows of model error */
} mill_workspace;

/** Regions of work space: the emulator's output, in memory of its own, and the rest. */
enum mill_workspace_region { MILL_WORK_GRID, MILL_WORK_REST, MILL_N_WORK_REGION };

/** Numbers of elements of a block's arrays. */
enum mill_workspace_count {
  MILL_COUNT_GRID_BYTES,  /**< of rows of templates on the grid */
  MILL_COUNT_PIXEL_BYTES, /**< of rows of templates at the pixels */
  MILL_COUNT_SEGMENT,     /**< pixels of the largest segment */
  MILL_COUNT_KERNEL,
  MILL_COUNT_NORMAL, /**< NORMAL, SOLVE, SUMS: 0 where a backend keeps these elsewhere */
  MILL_COUNT_SOLVE,
  MILL_COUNT_SUMS,
  MILL_COUNT_ERROR_SPACE,
  MILL_N_WORK_COUNT
};

/** List the arrays: member, element size (1: bytes are counted), region, mill_workspace_count. */
static inline int mill_workspace_arrays(const mill_array **table)
{
  static const mill_array array[] = {
      {offsetof(mill_workspace, grid), 1, MILL_WORK_GRID, MILL_COUNT_GRID_BYTES},
      {offsetof(mill_workspace, rotated), 1, MILL_WORK_REST, MILL_COUNT_GRID_BYTES},
      {offsetof(mill_workspace, bend), 1, MILL_WORK_REST, MILL_COUNT_GRID_BYTES},
      {offsetof(mill_workspace, pixel), 1, MILL_WORK_REST, MILL_COUNT_PIXEL_BYTES},
      {offsetof(mill_workspace, smooth), 1, MILL_WORK_REST, MILL_COUNT_PIXEL_BYTES},
      {offsetof(mill_workspace, index), sizeof(int), MILL_WORK_REST, MILL_COUNT_SEGMENT},
      {offsetof(mill_workspace, frac), sizeof(float), MILL_WORK_REST, MILL_COUNT_SEGMENT},
      {offsetof(mill_workspace, kernel), sizeof(double), MILL_WORK_REST, MILL_COUNT_KERNEL},
      {offsetof(mill_workspace, kernel_slope), sizeof(double), MILL_WORK_REST, MILL_COUNT_KERNEL},
      {offsetof(mill_workspace, normal), sizeof(double), MILL_WORK_REST, MILL_COUNT_NORMAL},
      {offsetof(mill_workspace, solve), sizeof(double), MILL_WORK_REST, MILL_COUNT_SOLVE},
      {offsetof(mill_workspace, sums), sizeof(double), MILL_WORK_REST, MILL_COUNT_SUMS},
      {offsetof(mill_workspace, error), sizeof(double), MILL_WORK_REST, MILL_COUNT_ERROR_SPACE},
  };
  *table = array;
  return (int)(sizeof array / sizeof array[0]);
}

/** Return the number of rows at the pixels: a template and its derivatives, twice with binaries. */
MILL_HD static inline int mill_n_pixel_row(const mill_model *m)
{
  return (m->set.binaries ? 2 : 1) * (m->n_deriv + 1);
}

/** Write the numbers of elements of a block's arrays to count [MILL_N_WORK_COUNT].  Each backend
 *  sets normal, solve and sums, here 0. */
static inline void mill_workspace_counts(int n_deriv, int n_pixel_row, int max_pix_pad,
                                         int max_seg_pix, int precision, int guess_n, size_t *count)
{
  /* the guess also uses rotated, for the products of a group of templates */
  const size_t guess = 2 * MILL_GUESS_LANE * sizeof(float) * (size_t)guess_n;
  const size_t real = precision == MILL_FLOAT64 ? sizeof(double) : sizeof(float);
  const size_t row = (size_t)(n_deriv + 1) * real;
  memset(count, 0, MILL_N_WORK_COUNT * sizeof *count);
  count[MILL_COUNT_GRID_BYTES] =
      row * (size_t)max_pix_pad > guess ? row * (size_t)max_pix_pad : guess;
  count[MILL_COUNT_PIXEL_BYTES] =
      (size_t)n_pixel_row * real * (size_t)max_seg_pix + MILL_PIXEL_SPARE;
  count[MILL_COUNT_SEGMENT] = (size_t)max_seg_pix;
  count[MILL_COUNT_KERNEL] = MILL_MAX_ROTATION + 1;
  count[MILL_COUNT_ERROR_SPACE] = MILL_ERROR_SPACE;
}
