/* SPDX-License-Identifier: BSD-3-Clause */
#define MILL_PRECISION 32
#include "tests/kernels/math/blocks_f32.h"

#include "kernels/star/blocks/likelihood.h"

void blocks_f32_flux(mill_block *b, const mill_model_arm *arm, double mean, float *row)
{
  mill_block_flux(b, arm, mean, row);
}

void blocks_f32_flux_tangent(mill_block *b, const mill_model_arm *arm, double mean, const float *t,
                             float *row)
{
  mill_block_flux_tangent(b, arm, mean, t, row);
}

void blocks_f32_rotate(mill_block *b, int n, int half, const double *kernel, const float *in,
                       float *out)
{
  mill_block_rotate(b, n, half, kernel, in, out);
}

void blocks_f32_spline(mill_block *b, const mill_model_arm *arm, const float *y, float *bend)
{
  mill_block_spline(b, arm, y, bend);
}

void blocks_f32_locate(mill_block *b, const mill_model_arm *arm, int n, const double *ln_wave,
                       double vel_km_s, int *index, float *frac)
{
  mill_block_locate(b, arm, n, ln_wave, vel_km_s, index, frac);
}

void blocks_f32_interpolate(mill_block *b, const mill_model_arm *arm, int n, const float *y,
                            const float *bend, const int *index, const float *frac, float *out,
                            double slope_ln, float *slope)
{
  mill_block_interpolate(b, arm, n, y, bend, index, frac, out, slope_ln, slope);
}

int blocks_f32_pixel_taps(mill_block *b, const mill_model *m, const mill_segment *s,
                          double vel_km_s, int half, mill_workspace *work)
{
  return mill_block_pixel_taps(b, m, s, vel_km_s, half, work);
}

void blocks_f32_resolve(mill_block *b, const mill_segment *s, int n_row, int pitch, const float *in,
                        float *out)
{
  mill_block_resolve(b, s, n_row, pitch, in, out);
}

double blocks_f32_project(mill_block *b, const mill_model *m, const mill_segment *s,
                          const float *templ, double level, double ln_scale, mill_workspace *work)
{
  return mill_block_project(b, m, s, templ, level, ln_scale, work);
}

void blocks_f32_jacobian(mill_block *b, const mill_model *m, mill_segment *s, int n_share,
                         mill_workspace *work, double *answer)
{
  mill_block_resolve(b, s, m->n_deriv + 1, m->max_seg_pix, mill_sharp_rows(s, work),
                     (float *)work->smooth);
  mill_block_jacobian(b, m, s, n_share, work, answer);
}
