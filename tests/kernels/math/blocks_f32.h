/* SPDX-License-Identifier: BSD-3-Clause */
/** Block functions with float32 templates, for tests that compare them with the float64 functions
 *  of their own file (kernels/math/real.h). */
#pragma once

#include "kernels/math/block.h"
#include "kernels/star/slot.h"

/** mill_block_... each; jacobian resolves the rows before. */
extern const struct blocks_f32 {
  void (*flux)(mill_block *b, const mill_model_arm *arm, double mean, float *row);
  void (*flux_tangent)(mill_block *b, const mill_model_arm *arm, double mean, const float *t,
                       float *row);
  void (*rotate)(mill_block *b, int n, int half, const double *kernel, const float *in, float *out);
  void (*spline)(mill_block *b, const mill_model_arm *arm, const float *y, float *bend);
  void (*locate)(mill_block *b, const mill_model_arm *arm, int n, const double *ln_wave,
                 double vel_km_s, int *index, float *frac);
  void (*interpolate)(mill_block *b, const mill_model_arm *arm, int n, const float *y,
                      const float *bend, const int *index, const float *frac, float *out,
                      double slope_ln, float *slope);
  int (*pixel_taps)(mill_block *b, const mill_model *m, const mill_segment *s, double vel_km_s,
                    int half, mill_workspace *work);
  void (*resolve)(mill_block *b, const mill_segment *s, int n_row, int pitch, const float *in,
                  float *out);
  double (*project)(mill_block *b, const mill_model *m, const mill_segment *s, const float *templ,
                    double level, double ln_scale, mill_workspace *work);
  void (*jacobian)(mill_block *b, const mill_model *m, mill_segment *s, double n_share,
                   mill_workspace *work, double *answer);
} blocks_f32;
