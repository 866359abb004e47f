/* Included by kernels/star/pixel.h once per type of template; no include guard. */

MILL_BLOCK_FN void MILL_T(mill_block_resolve)(mill_block *b, const mill_segment *s, int n_row,
                                              int pitch, const MILL_REAL *in, MILL_REAL *out);

/** The fraction into the weights of a released segment, its continuum in s->scratch.  total: sum
 *  of ln(1 + variance over the data's) and |D|^2. */
MILL_BLOCK_FN void MILL_T(mill_block_weigh_error)(mill_block *b, const mill_model_arm *arm,
                                                  mill_segment *s, const MILL_REAL *templ,
                                                  double level, int n_share,
                                                  const mill_workspace *work, double *total)
{
  const mill_model_error *e = &arm->error;
  const double scale = (double)n_share * e->correlation * arm->ln_step;
  double part[2] = {0.0, 0.0}, product = 1.0;
  MILL_FOR(b, i, s->n_pix)
  {
    const int k = work->index[i];
    const double u = (double)work->frac[i];
    const double fraction = (1.0 - u) * (double)e->fraction[k] + u * (double)e->fraction[k + 1];
    const double flux = (double)s->scratch[i] * (level * s->base[i] + (double)templ[i]);
    const double x = fraction * flux * (double)s->own_is[i];
    const double more = 1.0 + x * x * scale / mill_error_width(s->ws, i);
    const double ratio = 1.0 / sqrt(more);
    s->is[i] = (float)((double)s->own_is[i] * ratio);
    s->d[i] = (float)((double)s->own_d[i] * ratio);
    part[1] += (double)s->d[i] * (double)s->d[i];
    product *= more;
    if (product > MILL_ERROR_PRODUCT) {
      part[0] += log(product);
      product = 1.0;
    }
  }
  part[0] += log(product);
  mill_block_sum_n(b, part, 2, total);
  MILL_BARRIER(b);
}

/** C: the components times the template, through the resolution rows as it, times the continuum
 *  in s->scratch, over sigma.  In: work->pixel, whose first row is the template before the
 *  resolution; its next two are lost. */
MILL_BLOCK_FN void MILL_T(mill_block_draw_error)(mill_block *b, const mill_model *m,
                                                 mill_segment *s, double level, int n_share,
                                                 mill_workspace *work)
{
  const mill_model_arm *arm = &m->arm[s->arm];
  const mill_model_error *e = &arm->error;
  const size_t pitch = (size_t)m->max_seg_pix;
  const MILL_REAL *value = (const MILL_REAL *)work->pixel;
  MILL_REAL *sharp = (MILL_REAL *)work->pixel + pitch, *seen = sharp + pitch;
  mill_block_locate_error(b, arm, s, work);
  for (int j = 0; j < e->n_component; j++) {
    const double scale = e->sigma[j] * sqrt((double)n_share);
    float *to = s->error + (size_t)j * mill_row_pitch(s->n_pix);
    MILL_FOR_SIMD(b, i, s->n_pix)
    {
      sharp[i] = (MILL_REAL)((double)to[i] * (level + (double)value[i]));
    }
    MILL_BARRIER(b);
    MILL_T(mill_block_resolve)(b, s, 1, m->max_seg_pix, sharp, seen);
    MILL_FOR_SIMD(b, i, s->n_pix)
    {
      to[i] = (float)(scale * (double)s->scratch[i] * (double)s->is[i] * (double)seen[i]);
    }
    MILL_BARRIER(b);
  }
}

/** Fix the model error of a released segment for a star with n_share segments of its arm, which
 *  have their errors in common: each then counts for less.
 *
 *  templ [max_seg_pix]  in      the template after the resolution
 *  work                 in/out  solve: coefficients of the continuum; index, frac: where pixels
 *                               are; pixel: mill_block_draw_error.  normal, sums, error: lost */
MILL_BLOCK_CALLED void MILL_T(mill_block_fix_error)(mill_block own, const mill_model *m,
                                                    mill_segment *s, const MILL_REAL *templ,
                                                    double level, int n_share, mill_workspace *work)
{
  mill_block *b = &own;
  const mill_model_arm *arm = &m->arm[s->arm];
  const int n = s->n_pix, n_error = arm->error.n_component;
  const float *cont = s->ws->cont;
  MILL_FOR(b, i, n)
  {
    double sum = 0.0;
    for (int k = 0; k < s->ws->n_cont; k++)
      sum += work->solve[k] * (double)cont[(size_t)k * mill_row_pitch(n) + (size_t)i];
    s->scratch[i] = (float)sum;
  }
  MILL_BARRIER(b);
  double total[2], ln_det = 0.0, taken = 0.0;
  MILL_T(mill_block_weigh_error)(b, arm, s, templ, level, n_share, work, total);
  MILL_T(mill_block_draw_error)(b, m, s, level, n_share, work);
  /* without numbers there is no likelihood either */
  const int ok = n_error > 0 && mill_block_factor_error(b, s, n_error, work) == 0;
  if (ok) {
    ln_det = work->sums[0];
    mill_block_whiten_error(b, s, n_error, work);
    for (int j = 0; j < n_error; j++)
      taken += work->error[j] * work->error[j];
  }
  MILL_BARRIER(b);
  MILL_SERIAL(b)
  {
    s->n_error = ok ? n_error : 0;
    s->sum_ln_var = s->own_sum_ln_var + total[0] + ln_det;
    s->dd = total[1] - taken;
  }
  MILL_BARRIER(b);
}
