/* SPDX-License-Identifier: BSD-3-Clause */
#define MILL_PRECISION 32
#include "tests/kernels/math/blocks_f32.h"

#include "kernels/star/blocks/likelihood.h"

static void jacobian(mill_block *b, const mill_model *m, mill_segment *s, double n_share,
                     mill_workspace *work, double *answer)
{
  mill_block_resolve(b, s, m->n_deriv + 1, m->max_seg_pix, mill_sharp_rows(s, work),
                     (float *)work->smooth);
  mill_block_jacobian(b, m, s, n_share, work, answer);
}

const struct blocks_f32 blocks_f32 = {mill_block_flux,       mill_block_flux_tangent,
                                      mill_block_rotate,     mill_block_spline,
                                      mill_block_locate,     mill_block_interpolate,
                                      mill_block_pixel_taps, mill_block_resolve,
                                      mill_block_project,    jacobian};
