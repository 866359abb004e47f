/* SPDX-License-Identifier: BSD-3-Clause */
/** Two stars in one spectrum (kernels/star/logic/pair.h).  While one star is fitted, s->pair keeps
 *  the template of the other star, the companion, and the template's derivatives at the pixels. */
#pragma once

#include "kernels/star/blocks/template.h"

MILL_HD_INLINE int mill_is_paired(const mill_segment *s)
{
  return MILL_HAS_PAIRS && s->paired;
}

/** Factor that converts the companion's rows to the unit of the fitted star's template. */
MILL_HD_INLINE double mill_pair_unit(const mill_model *m, const mill_segment *s,
                                     const mill_workspace *work)
{
  return exp(s->pair_ln + s->pair_ln_ratio - MILL_LN_SCALE(&m->arm[s->arm], work));
}

MILL_BLOCK_FN void mill_block_add_companion(mill_block *b, const mill_model *m,
                                            const mill_segment *s, const mill_workspace *work,
                                            mill_real *templ)
{
  const mill_real unit = (mill_real)mill_pair_unit(m, s, work);
  MILL_FOR_SIMD(b, i, s->n_pix)
  {
    templ[i] += unit * (mill_real)s->pair[i];
  }
  MILL_BARRIER(b);
}

/** Store the rows of the star just fitted (work->smooth) in s->pair: in the other star's fit they
 *  are the companion's rows.  Row 0 then includes the mean level, unlike work->smooth. */
MILL_BLOCK_FN void mill_block_keep_rows(mill_block *b, const mill_model *m, mill_segment *s,
                                        const mill_workspace *work)
{
  const mill_model_arm *arm = &m->arm[s->arm];
  const int n = s->n_pix, n_row = m->n_deriv + 1, pitch = mill_row_pitch(n);
  const double level = MILL_LEVEL(arm, work);
  const mill_real *smooth = (const mill_real *)work->smooth;
  for (int r = 0; r < n_row; r++) {
    MILL_FOR_SIMD(b, i, n)
    {
      s->pair[(ptrdiff_t)r * pitch + i] = (float)smooth[(ptrdiff_t)r * m->max_seg_pix + i] +
                                          (r == 0 ? (float)(level * s->base[i]) : 0.0f);
    }
  }
  MILL_SERIAL(b)
  {
    s->pair_ln = MILL_LN_SCALE(arm, work);
  }
  MILL_BARRIER(b);
}

/** Extend the fitted star's rows in work->smooth to rows of two stars, in this order:
 *   - the sum of both templates
 *   - n_deriv derivatives in the star's parameters, then n_deriv in the companion's
 *   - the derivative in ln(flux of star 2 / flux of star 1), which is star 2's template
 *  flux [2]  out  sums over good pixels: of the star's template and of the companion's template */
MILL_BLOCK_FN void mill_block_pair_rows(mill_block *b, const mill_model *m, const mill_segment *s,
                                        const mill_workspace *work, double *flux)
{
  const mill_real unit = (mill_real)mill_pair_unit(m, s, work); /* factor of s->pair */
  const int n = s->n_pix, nd = m->n_deriv, pair_pitch = mill_row_pitch(n), pitch = m->max_seg_pix;
  const double level = MILL_LEVEL(&m->arm[s->arm], work);
  mill_real *row = (mill_real *)work->smooth;
  const int is_star2 = s->paired == 2; /* the fitted star is star 2, its companion star 1 */
  double part[2] = {0.0, 0.0};
  MILL_FOR(b, i, mill_row_pitch(n))
  {
    const int in = i < n; /* else i is in the padding, which gets zeros */
    const mill_real own = in ? row[i] + (mill_real)(level * s->base[i]) : 0;
    const mill_real other = in ? unit * (mill_real)s->pair[i] : 0;
    for (int j = 1; j <= nd; j++)
      row[(ptrdiff_t)(nd + j) * pitch + i] =
          in ? unit * (mill_real)s->pair[(ptrdiff_t)j * pair_pitch + i] : 0;
    row[(ptrdiff_t)(2 * nd + 1) * pitch + i] = is_star2 ? own : other;
    row[i] += other;
    part[0] += in && s->good[i] ? (double)own : 0.0;
    part[1] += in && s->good[i] ? (double)other : 0.0;
  }
  mill_block_sum_n(b, part, 2, part);
  MILL_SERIAL(b)
  {
    flux[0] = part[0];
    flux[1] = part[1];
  }
  MILL_BARRIER(b);
}
