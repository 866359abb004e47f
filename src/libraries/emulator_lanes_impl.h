/* SPDX-License-Identifier: BSD-3-Clause */
/* Included by src/libraries/emulator.c once per instruction set (LANES_NAME, LANES_TARGET); no
 * include guard.  Vectors are written out, so that sums stay in registers. */

/** Outputs [block * PIXEL_BLOCK, ...) of a layer before its activation, bias + sum over the
 *  inputs in turn.  weight [PIXELS][n_in] is work space. */
LANES_TARGET static void LANES_NAME(layer_block)(const layer_task *f, int block, double *weight)
{
  const int n_in = f->n_in, first = block * PIXEL_BLOCK;
  const int end = f->n_out - first < PIXEL_BLOCK ? f->n_out : first + PIXEL_BLOCK;
  for (int i0 = first; i0 < end; i0 += PIXELS) {
    const int n_row = end - i0 < PIXELS ? end - i0 : PIXELS;
    /* rows beyond the end are the last one again */
    const float *row[PIXELS];
    mill_four bias[PIXELS];
    for (int i = 0; i < PIXELS; i++) {
      const int at = i < n_row ? i0 + i : end - 1;
      const double b = (double)f->bias[at];
      row[i] = f->weight + (size_t)at * (size_t)n_in;
      bias[i] = (mill_four){b, b, b, b};
    }
    for (int k = 0; k < n_in; k++)
      for (int i = 0; i < PIXELS; i++)
        weight[k * PIXELS + i] = (double)row[i][k];
    for (int g = 0; g < f->n_group; g++) {
      const mill_lanes *x = f->in + (size_t)g * (size_t)n_in;
      mill_four s00 = bias[0], s01 = bias[0], s10 = bias[1], s11 = bias[1], s20 = bias[2],
                s21 = bias[2], s30 = bias[3], s31 = bias[3];
      for (int k = 0; k < n_in; k++) {
        const mill_four x0 = x[k].v[0], x1 = x[k].v[1];
        const double *w = weight + k * PIXELS;
        s00 += w[0] * x0;
        s01 += w[0] * x1;
        s10 += w[1] * x0;
        s11 += w[1] * x1;
        s20 += w[2] * x0;
        s21 += w[2] * x1;
        s30 += w[3] * x0;
        s31 += w[3] * x1;
      }
      const mill_lanes sum[PIXELS] = {{{s00, s01}}, {{s10, s11}}, {{s20, s21}}, {{s30, s31}}};
      mill_lanes *out = f->out + (size_t)g * (size_t)f->n_out + i0;
      for (int i = 0; i < n_row; i++)
        out[i] = sum[i];
    }
  }
}
