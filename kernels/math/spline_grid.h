/* SPDX-License-Identifier: BSD-3-Clause */
/** The inputs of the last layer of a grid emulator: cubic or linear B-splines over the labels.
 *  Each input is a sum over the 4^n_axis (linear: 2^n_axis) grid points around the labels. */
#pragma once

#include "kernels/math/block.h"
#include "kernels/data/library.h"

/** Number of cubic basis functions that can be nonzero at one x. */
enum { MILL_SPLINE_ORDER = 4 };

/** Compute values and derivatives at x of the four basis functions that can be nonzero there.
 *
 *  n_node, knot [n_node + 4]  in   nodes and knots of one axis of a mill_spline_grid
 *  x                          in   beyond the knots the functions go on linearly
 *  weight [4], slope [4]      out  NaN if x is NaN
 *
 *  Returns the index of the first of the four functions, 0 .. n_node - 4 for any x. */
MILL_HD static inline int mill_spline_basis(int n_node, const double *knot, double x,
                                            double *weight, double *slope)
{
  const double low = knot[MILL_SPLINE_ORDER - 1], high = knot[n_node];
  const double inside = x < low ? low : (x > high ? high : x);
  /* find the interval: knot[span] <= inside < knot[span + 1]; NaN: the first */
  int span = MILL_SPLINE_ORDER - 1, above = n_node;
  while (above - span > 1) {
    const int middle = (span + above) / 2;
    if (inside >= knot[middle])
      span = middle;
    else
      above = middle;
  }
  weight[0] = 1.0;
  for (int p = 1; p < MILL_SPLINE_ORDER; p++) {
    /* de Boor's recurrence from degree p - 1 to p; the last pass leaves the slopes of degree 3 */
    double carry = 0.0, before = 0.0;
    for (int r = 0; r < p; r++) {
      const double left = knot[span + 1 - p + r], right = knot[span + 1 + r];
      const double part = weight[r] / (right - left);
      weight[r] = carry + (right - inside) * part;
      carry = (inside - left) * part;
      slope[r] = p * (before - part);
      before = part;
    }
    weight[p] = carry;
    slope[p] = p * before;
  }
  for (int i = 0; i < MILL_SPLINE_ORDER; i++)
    weight[i] += slope[i] * (x - inside);
  return span - (MILL_SPLINE_ORDER - 1);
}

/** Compute values and derivatives at x of the two linear functions that can be nonzero there.
 *
 *  knot [n_node + 2]      in   knot[1] .. knot[n_node] are the nodes
 *  weight [4], slope [4]  out  elements 2 and 3 are 0
 *
 *  Returns the index of the first function, 0 .. n_node - 2 for any x. */
MILL_HD static inline int mill_linear_basis(int n_node, const double *knot, double x,
                                            double *weight, double *slope)
{
  /* find knot[span] <= x < knot[span + 1]; x lower or NaN: the first interval; higher: the last */
  int span = 1, above = n_node;
  while (above - span > 1) {
    const int middle = (span + above) / 2;
    if (x >= knot[middle])
      span = middle;
    else
      above = middle;
  }
  const double width = knot[span + 1] - knot[span], t = (x - knot[span]) / width;
  weight[0] = 1.0 - t;
  weight[1] = t;
  slope[0] = -1.0 / width;
  slope[1] = 1.0 / width;
  weight[2] = weight[3] = slope[2] = slope[3] = 0.0;
  return span - 1;
}

/** Compute one star's inputs of the last layer, and their derivatives, from its labels.
 *
 *  grid                        in   with arrays in the block's memory space
 *  n_tangent                   in   0: no derivatives; n_axis: one per label
 *  in [1 + n_tangent][n_axis]  in   row 0: mapped labels; row 1 + l: element l is the slope of
 *                                   label l's mapping, the other elements are 0
 *  out [1 + n_tangent][n_out]  out  the inputs, then their derivative in each label
 *  in_pitch, out_pitch         in   elements from one row of in or out to the next
 *
 *  Each output is one float64 sum in a fixed order.  A barrier must follow before out is read. */
MILL_BLOCK_FN void mill_block_spline_grid(mill_block *b, const mill_spline_grid *grid,
                                          int n_tangent, const double *in, size_t in_pitch,
                                          double *out, size_t out_pitch)
{
  const int n_out = grid->n_out, last = grid->n_axis - 1;
  double weight[MILL_MAX_GRID_AXIS][MILL_SPLINE_ORDER],
      slope[MILL_MAX_GRID_AXIS][MILL_SPLINE_ORDER];
  size_t stride[MILL_MAX_GRID_AXIS], origin = 0, row = (size_t)n_out;
  const int order = mill_spline_grid_order(grid), bits = order / 2; /* log2 of 2 or 4 */
  int n_line = 1; /* lines of `order` grid points along the last axis */
  for (int l = last; l >= 0; l--) {
    const int n_node = grid->n_node[l];
    const int first = grid->linear
                          ? mill_linear_basis(n_node, grid->knot[l], in[l], weight[l], slope[l])
                          : mill_spline_basis(n_node, grid->knot[l], in[l], weight[l], slope[l]);
    for (int i = 0; i < MILL_SPLINE_ORDER && n_tangent > 0; i++)
      slope[l][i] *= in[(size_t)(1 + l) * in_pitch + (size_t)l];
    stride[l] = row;
    origin += (size_t)first * row;
    row *= (size_t)n_node;
    n_line *= l < last ? order : 1;
  }
  const double *w = weight[last], *d = slope[last];
  /* linear: reuse the two points' coefficients for the third and fourth, whose weight is 0 */
  const int beyond = order > 2 ? 2 * n_out : 0;
  (void)b; /* the CPU's loop does not use b */
  MILL_FOR(b, i_chunk, mill_chunks(n_out, MILL_CHUNK))
  {
    const int k0 = i_chunk * MILL_CHUNK, n = mill_chunk_len(n_out, k0, MILL_CHUNK);
    double sum[1 + MILL_MAX_GRID_AXIS][MILL_CHUNK], line[MILL_CHUNK];
    for (int t = 0; t <= n_tangent; t++)
      for (int c = 0; c < n; c++)
        sum[t][c] = 0.0;
    for (int i_line = 0; i_line < n_line; i_line++) {
      /* product of all axes' weights but the last; in tangent[t] axis t has its slope instead */
      double product = 1.0, tangent[MILL_MAX_GRID_AXIS];
      size_t at = origin + (size_t)k0;
      for (int l = 0; l < last; l++) {
        const int i = i_line >> (bits * (last - 1 - l)) & (order - 1);
        for (int t = 0; t < l; t++)
          tangent[t] *= weight[l][i];
        tangent[l] = product * slope[l][i];
        product *= weight[l][i];
        at += (size_t)i * stride[l];
      }
      const float *c0 = grid->coef + at, *c1 = c0 + n_out, *c2 = c0 + beyond, *c3 = c1 + beyond;
      MILL_SIMD
      for (int c = 0; c < n; c++) {
        line[c] = w[0] * (double)c0[c] + w[1] * (double)c1[c] + w[2] * (double)c2[c] +
                  w[3] * (double)c3[c];
        sum[0][c] += product * line[c];
      }
      if (n_tangent == 0)
        continue;
      MILL_SIMD
      for (int c = 0; c < n; c++)
        sum[1 + last][c] += product * (d[0] * (double)c0[c] + d[1] * (double)c1[c] +
                                       d[2] * (double)c2[c] + d[3] * (double)c3[c]);
      for (int t = 0; t < last; t++) {
        const double factor = tangent[t];
        MILL_SIMD
        for (int c = 0; c < n; c++)
          sum[1 + t][c] += factor * line[c];
      }
    }
    for (int t = 0; t <= n_tangent; t++)
      for (int c = 0; c < n; c++)
        out[(size_t)t * out_pitch + (size_t)(k0 + c)] = sum[t][c];
  }
}
