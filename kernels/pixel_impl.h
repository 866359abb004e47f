/* Included by kernels/pixel.h once per type of template; no include guard. */

/** Emulator output without its means to templates, rows [n_row][pitch]: row 0 the
 *  value y, rows 1.. its tangents y'.  log flux: t = exp(clip(y)) - 1, T' =
 *  (1 + t) (y' + its mean), both in units of exp(mean[0]); plain flux: t = y,
 *  T' = y' + its mean. */
MILL_BLOCK_FN void MILL_T(mill_block_flux)(mill_block *b, const mill_model_arm *arm, int n_row,
                                           int pitch, const double *mean, MILL_REAL *grid)
{
  if (arm->log_flux) {
    /* the clip of the emulator files, exp(clip(y, -300, 300)) */
    const MILL_REAL lo = (MILL_REAL)(-300.0 - mean[0]), hi = (MILL_REAL)(300.0 - mean[0]);
    MILL_FOR_SIMD(b, i, arm->n_pix)
    {
      const MILL_REAL y = grid[i];
      grid[i] = MILL_EXPM1(y < lo ? lo : (y > hi ? hi : y));
    }
    MILL_BARRIER(b);
  }
  for (int r = 1; r < n_row; r++) {
    MILL_REAL *row = grid + (size_t)r * (size_t)pitch;
    const MILL_REAL add = (MILL_REAL)mean[r];
    if (arm->log_flux) {
      MILL_FOR_SIMD(b, i, arm->n_pix)
      {
        row[i] = (row[i] + add) * ((MILL_REAL)1 + grid[i]);
      }
    } else {
      MILL_FOR_SIMD(b, i, arm->n_pix)
      {
        row[i] += add;
      }
    }
  }
  MILL_BARRIER(b);
}

/** Kernel weights of v sin i into work->kernel and their slopes with respect to its
 *  inner parameter u, per km/s (mill_vsini_inner); want_slope: the half width is one
 *  that holds the slopes too.  Returns the half width. */
MILL_BLOCK_FN int MILL_T(mill_block_rotation_kernel)(mill_block *b, int kind,
                                                     const mill_model_arm *arm, double vsini_km_s,
                                                     int want_slope, mill_work *work)
{
  const double per_km_s = 1.0 / (MILL_C_KM_S * arm->ln_step);
  const double r_pix = vsini_km_s * per_km_s;
  int half = want_slope ? mill_rotation_slope_half_width(kind, r_pix)
                        : mill_rotation_half_width(kind, r_pix);
  if (half > MILL_MAX_ROTATION)
    half = MILL_MAX_ROTATION;
  const double slope_scale = mill_rotation_slope_scale(kind, vsini_km_s, per_km_s);
  MILL_FOR(b, k, half + 1)
  {
    double w, slope;
    mill_rotation_weight(kind, r_pix, k, &w, &slope);
    work->kernel[k] = w;
    work->kernel_slope[k] = slope * slope_scale;
  }
  MILL_BARRIER(b);
  return half;
}

/** out = in convolved with a symmetric kernel [half + 1]; zero beyond the grid,
 *  which for a template's t means the level and not, as in rvspecfit, darkness:
 *  no pixel within the velocity limits sees the difference below v sin i of some
 *  hundred km/s. */
MILL_BLOCK_FN void MILL_T(mill_block_convolve)(mill_block *b, int n, int half, const double *kernel,
                                               const MILL_REAL *in, MILL_REAL *out)
{
  if (n <= 2 * half) {
    MILL_FOR(b, i, n)
    {
      double s = kernel[0] * (double)in[i];
      for (int k = 1; k <= half; k++)
        s += kernel[k] *
             ((i >= k ? (double)in[i - k] : 0.0) + (i + k < n ? (double)in[i + k] : 0.0));
      out[i] = (MILL_REAL)s;
    }
    MILL_BARRIER(b);
    return;
  }
  MILL_FOR(b, e, 2 * half)
  {
    const int i = e < half ? e : n - 2 * half + e;
    double s = kernel[0] * (double)in[i];
    for (int k = 1; k <= half; k++)
      s += kernel[k] * ((i >= k ? (double)in[i - k] : 0.0) + (i + k < n ? (double)in[i + k] : 0.0));
    out[i] = (MILL_REAL)s;
  }
  /* the interior in chunks, so that a chunk stays in registers or cache */
  const int n_in = n - 2 * half;
  const int n_chunk = (n_in + MILL_CHUNK - 1) / MILL_CHUNK;
  MILL_FOR(b, c, n_chunk)
  {
    const int first = half + c * MILL_CHUNK;
    const int len = n - half - first < MILL_CHUNK ? n - half - first : MILL_CHUNK;
    MILL_REAL sum[MILL_CHUNK];
    const MILL_REAL w0 = (MILL_REAL)kernel[0];
    MILL_SIMD
    for (int i = 0; i < len; i++)
      sum[i] = w0 * in[first + i];
    for (int k = 1; k <= half; k++) {
      const MILL_REAL w = (MILL_REAL)kernel[k];
      const MILL_REAL *left = in + first - k, *right = in + first + k;
      MILL_SIMD
      for (int i = 0; i < len; i++)
        sum[i] += w * (left[i] + right[i]);
    }
    MILL_SIMD
    for (int i = 0; i < len; i++)
      out[first + i] = sum[i];
  }
  MILL_BARRIER(b);
}

/** Coefficients of the natural cubic spline in wavelength.
 *
 *  On knots uniform in ln wavelength the spline's equations have constant
 *  coefficients for Z_i = z_i h_i^2 (z second derivative, h_i the interval to
 *  the right):  r Z_{i-1} + 2 (1 + 1/r) Z_i + Z_{i+1} / r^2 =
 *  6 [(y_{i+1} - y_i) - r (y_i - y_{i-1})],  r = exp(step).
 *  Their inverse is a two-sided exponential, cut at MILL_FIR taps; the natural
 *  ends (Z = 0) add a decaying solution from each side.
 *  second [n] is work space for the right-hand side. */
MILL_BLOCK_FN void MILL_T(mill_block_spline)(mill_block *b, const mill_model_arm *arm,
                                             const MILL_REAL *y, MILL_REAL *second, MILL_REAL *bend)
{
  const int n = arm->n_pix;
  const MILL_REAL e = (MILL_REAL)arm->expm1_step;
  MILL_FOR_SIMD(b, i, n - 2)
  {
    const MILL_REAL left = y[i + 1] - y[i], right = y[i + 2] - y[i + 1];
    second[i + 1] = (MILL_REAL)6 * ((right - left) - e * left);
  }
  MILL_SERIAL(b)
  {
    second[0] = 0;
    second[n - 1] = 0;
  }
  MILL_BARRIER(b);
  const int half = MILL_FIR;
  const double *fir = arm->fir + MILL_FIR_HALF;
  MILL_FOR(b, q, 2 * half)
  {
    const int i = q < half ? q : n - 2 * half + q;
    double s = 0.0;
    for (int k = -half; k <= half; k++)
      if (i - k >= 0 && i - k < n)
        s += fir[k] * (double)second[i - k];
    bend[i] = (MILL_REAL)s;
  }
  const int n_in = n - 2 * half;
  const int n_chunk = (n_in + MILL_CHUNK - 1) / MILL_CHUNK;
  MILL_FOR(b, c, n_chunk)
  {
    const int first = half + c * MILL_CHUNK;
    const int len = n - half - first < MILL_CHUNK ? n - half - first : MILL_CHUNK;
    MILL_REAL sum[MILL_CHUNK];
    MILL_SIMD
    for (int i = 0; i < len; i++)
      sum[i] = 0;
    for (int k = -half; k <= half; k++) {
      const MILL_REAL w = (MILL_REAL)fir[k];
      const MILL_REAL *in = second + first - k;
      MILL_SIMD
      for (int i = 0; i < len; i++)
        sum[i] += w * in[i];
    }
    MILL_SIMD
    for (int i = 0; i < len; i++)
      bend[first + i] = sum[i];
  }
  MILL_BARRIER(b);
  /* natural ends */
  const double end_left = (double)bend[0], end_right = (double)bend[n - 1];
  MILL_BARRIER(b);
  MILL_FOR(b, q, 2 * half)
  {
    const int k = q < half ? q : q - half;
    if (q < half)
      bend[k] -= (MILL_REAL)(end_left * pow(arm->spline_pole_right, (double)k));
    else
      bend[n - 1 - k] -= (MILL_REAL)(end_right * pow(arm->spline_pole_left, (double)k));
  }
  MILL_BARRIER(b);
}

/** Grid point and fraction for every pixel at a velocity. */
MILL_BLOCK_FN void MILL_T(mill_block_locate)(mill_block *b, const mill_model_arm *arm,
                                             const mill_waveset *ws, double vel_km_s,
                                             mill_work *work)
{
  const double offset = mill_doppler_ln(vel_km_s) - arm->ln_wave0;
  const double inv = 1.0 / arm->ln_step, s = arm->ln_step;
  const double scale = s / arm->expm1_step;
  const int last = arm->n_pix - 2;
  MILL_FOR_SIMD(b, i, ws->n_pix)
  {
    const double pos = (ws->ln_wave[i] + offset) * inv;
    int k = (int)pos;
    k = k < 0 ? 0 : (k > last ? last : k);
    const double f = pos - (double)k, fs = f * s;
    /* (exp(f s) - 1) / (exp(s) - 1), s ~ 1e-4: next term below 1e-17 */
    work->index[i] = k;
    work->frac[i] = (float)(f * scale * (1.0 + fs * (0.5 + fs * (1.0 / 6.0 + fs * (1.0 / 24.0)))));
  }
  MILL_BARRIER(b);
}

/** Spline of one row at the located pixels; want_slope: its derivative with
 *  respect to velocity into slope [n_pix] as well. */
MILL_BLOCK_FN void MILL_T(mill_block_interpolate)(mill_block *b, const mill_model_arm *arm, int n,
                                                  const MILL_REAL *y, const MILL_REAL *bend,
                                                  const mill_work *work, MILL_REAL *out,
                                                  double slope_ln, MILL_REAL *slope)
{
  const MILL_REAL zr = (MILL_REAL)arm->spline_scale_right;
  const MILL_REAL sixth = (MILL_REAL)(1.0 / 6.0);
  const MILL_REAL inv_e = (MILL_REAL)(slope_ln / arm->expm1_step), sl = (MILL_REAL)slope_ln;
  const int *index = work->index;
  const float *frac = work->frac;
  if (slope) {
    MILL_FOR_SIMD(b, i, n)
    {
      const int k = index[i];
      const MILL_REAL u = (MILL_REAL)frac[i], w = (MILL_REAL)1 - u;
      const MILL_REAL y0 = y[k], y1 = y[k + 1], z0 = bend[k] * sixth, z1 = bend[k + 1] * zr * sixth;
      out[i] = w * y0 + u * y1 + (u * u * u - u) * z1 + (w * w * w - w) * z0;
      const MILL_REAL du = (y1 - y0) + ((MILL_REAL)3 * u * u - (MILL_REAL)1) * z1 -
                           ((MILL_REAL)3 * w * w - (MILL_REAL)1) * z0;
      slope[i] = du * (inv_e + u * sl);
    }
  } else {
    MILL_FOR_SIMD(b, i, n)
    {
      const int k = index[i];
      const MILL_REAL u = (MILL_REAL)frac[i], w = (MILL_REAL)1 - u;
      const MILL_REAL y0 = y[k], y1 = y[k + 1], z0 = bend[k] * sixth, z1 = bend[k + 1] * zr * sixth;
      out[i] = w * y0 + u * y1 + (u * u * u - u) * z1 + (w * w * w - w) * z0;
    }
  }
  MILL_BARRIER(b);
}

/** Resolution matrix in row form times a row; a copy without one. */
MILL_BLOCK_FN void MILL_T(mill_block_resolve)(mill_block *b, const mill_segment *s,
                                              const MILL_REAL *in, MILL_REAL *out)
{
  const int n = s->n_pix;
  if (!s->res) {
    MILL_FOR_SIMD(b, i, n)
    {
      out[i] = in[i];
    }
    MILL_BARRIER(b);
    return;
  }
  const int nd = s->n_diag, h = nd / 2;
  const int n_chunk = (n + MILL_CHUNK - 1) / MILL_CHUNK;
  MILL_FOR(b, c, n_chunk)
  {
    const int first = c * MILL_CHUNK;
    const int len = n - first < MILL_CHUNK ? n - first : MILL_CHUNK;
    MILL_REAL sum[MILL_CHUNK];
    MILL_SIMD
    for (int i = 0; i < len; i++)
      sum[i] = 0;
    if (first >= h && first + len + h <= n) {
      for (int k = 0; k < nd; k++) {
        const float *w = s->res + (size_t)k * n + first;
        const MILL_REAL *x = in + first - h + k;
        MILL_SIMD
        for (int i = 0; i < len; i++)
          sum[i] += (MILL_REAL)w[i] * x[i];
      }
    } else {
      for (int i = 0; i < len; i++)
        for (int k = 0; k < nd; k++) {
          const int j = first + i - h + k;
          if (j >= 0 && j < n)
            sum[i] += (MILL_REAL)s->res[(size_t)k * n + first + i] * in[j];
        }
    }
    MILL_SIMD
    for (int i = 0; i < len; i++)
      out[first + i] = sum[i];
  }
  MILL_BARRIER(b);
}

/** Rotate a group of rows and make their spline coefficients.
 *
 *  In: work->grid rows 0 (value) and 1 .. n_label (label tangents) as flux.
 *  Out: work->rotated and work->bend.  With want_slope the rows become value,
 *  d/d(v sin i), tangents, that is 2 + n_label rows; else one row. */
MILL_BLOCK_FN void MILL_T(mill_block_template)(mill_block *b, const mill_model *m,
                                               const mill_model_arm *arm, double vsini_km_s,
                                               int want_slope, mill_work *work)
{
  const int n = arm->n_pix, pitch = m->max_pix_pad;
  MILL_REAL *grid = (MILL_REAL *)work->grid;
  MILL_REAL *rotated = (MILL_REAL *)work->rotated;
  MILL_REAL *bend = (MILL_REAL *)work->bend;
  const int half =
      MILL_T(mill_block_rotation_kernel)(b, m->set.rotation, arm, vsini_km_s, want_slope, work);
  MILL_T(mill_block_convolve)(b, n, half, work->kernel, grid, rotated);
  int n_row = 1;
  if (want_slope) {
    MILL_T(mill_block_convolve)(b, n, half, work->kernel_slope, grid, rotated + pitch);
    for (int l = 0; l < m->n_label; l++)
      MILL_T(mill_block_convolve)
    (b, n, half, work->kernel, grid + (size_t)(1 + l) * (size_t)pitch,
     rotated + (size_t)(2 + l) * (size_t)pitch);
    n_row = 2 + m->n_label;
  }
  /* the emulator's rows are used up: their place holds the right-hand sides */
  for (int r = 0; r < n_row; r++)
    MILL_T(mill_block_spline)
  (b, arm, rotated + (size_t)r * (size_t)pitch, grid, bend + (size_t)r * (size_t)pitch);
}

/** Normal matrix of S = P T / sigma, its factor and the projected data.
 *
 *  Returns F of this segment without hull or priors: ln det (marginal only)
 *  + 2 sum ln sigma + |D|^2 - |L^-1 S^T D|^2.  work->normal holds the Cholesky
 *  factor, work->solve [0, K) the coefficients a.  The template is exp(ln_scale)
 *  (level base + templ), templ NULL for zeros.
 *  +inf when the matrix is not positive definite or anything is not finite. */
MILL_BLOCK_FN double MILL_T(mill_block_project)(mill_block *b, const mill_model *m,
                                                const mill_segment *s, const MILL_REAL *templ,
                                                double level, double ln_scale, mill_work *work)
{
  const int n = s->n_pix, nk = m->set.n_cont;
  const float *cont = s->ws->cont;
  double acc[MILL_MAX_CONT * (MILL_MAX_CONT + 1) / 2 + MILL_MAX_CONT];
  const int n_tri = nk * (nk + 1) / 2;
  for (int q = 0; q < n_tri + nk; q++)
    acc[q] = 0.0;
  const int n_chunk = (n + MILL_CHUNK - 1) / MILL_CHUNK;
  MILL_FOR(b, c, n_chunk)
  {
    const int first = c * MILL_CHUNK;
    const int len = n - first < MILL_CHUNK ? n - first : MILL_CHUNK;
    double sk[MILL_MAX_CONT][MILL_CHUNK];
    double d[MILL_CHUNK], t[MILL_CHUNK];
    MILL_SIMD
    for (int i = 0; i < len; i++) {
      d[i] = (double)s->d[first + i];
      t[i] = level * s->base[first + i];
    }
    if (templ) {
      MILL_SIMD
      for (int i = 0; i < len; i++)
        t[i] += (double)templ[first + i];
    }
    MILL_SIMD
    for (int i = 0; i < len; i++)
      t[i] *= (double)s->is[first + i];
    for (int k = 0; k < nk; k++) {
      const float *p = cont + (size_t)k * n + first;
      double *row = sk[k];
      MILL_SIMD
      for (int i = 0; i < len; i++)
        row[i] = (double)p[i] * t[i];
    }
    int q = 0;
    for (int k = 0; k < nk; k++) {
      const double *x = sk[k];
      for (int l = 0; l <= k; l++) {
        const double *z = sk[l];
        double sum = 0.0;
        MILL_SIMD_SUM(sum)
        for (int i = 0; i < len; i++)
          sum += x[i] * z[i];
        acc[q++] += sum;
      }
    }
    for (int k = 0; k < nk; k++) {
      const double *x = sk[k];
      double sum = 0.0;
      MILL_SIMD_SUM(sum)
      for (int i = 0; i < len; i++)
        sum += x[i] * d[i];
      acc[n_tri + k] += sum;
    }
  }
  mill_block_sum_n(b, acc, n_tri + nk, work->sums);
  MILL_SERIAL(b)
  {
    double *a = work->normal, *v = work->solve;
    int q = 0;
    for (int k = 0; k < nk; k++)
      for (int l = 0; l <= k; l++)
        a[k * nk + l] = work->sums[q++];
    double f = INFINITY;
    if (mill_cholesky(nk, a, nk) == 0) {
      const double ln_det = mill_cholesky_logdet(nk, a, nk) + 2.0 * nk * ln_scale;
      double vv = 0.0;
      for (int k = 0; k < nk; k++)
        v[k] = work->sums[n_tri + k];
      mill_cholesky_forward(nk, a, nk, v);
      for (int k = 0; k < nk; k++)
        vv += v[k] * v[k];
      mill_cholesky_backward(nk, a, nk, v);
      f = (m->set.likelihood == MILL_LIKE_MARGINAL ? ln_det : 0.0) + s->sum_ln_var + s->dd - vv;
      if (!isfinite(f))
        f = INFINITY;
    }
    work->sums[0] = f;
  }
  MILL_BARRIER(b);
  const double f = work->sums[0];
  MILL_BARRIER(b);
  return f;
}

/** F of one segment at a velocity from the rotated template in work. */
MILL_BLOCK_FN double MILL_T(mill_block_value)(mill_block *b, const mill_model *m,
                                              const mill_segment *s, double vel_km_s,
                                              mill_work *work)
{
  const mill_model_arm *arm = &m->arm[s->arm];
  MILL_REAL *pixel = (MILL_REAL *)work->pixel, *smooth = (MILL_REAL *)work->smooth;
  MILL_T(mill_block_locate)(b, arm, s->ws, vel_km_s, work);
  MILL_T(mill_block_interpolate)
  (b, arm, s->n_pix, (const MILL_REAL *)work->rotated, (const MILL_REAL *)work->bend, work, pixel,
   0.0, (MILL_REAL *)NULL);
  MILL_T(mill_block_resolve)(b, s, pixel, smooth);
  return MILL_T(mill_block_project)(b, m, s, smooth, MILL_LEVEL(arm, work),
                                    MILL_LN_SCALE(arm, work), work);
}

/** F, gradient and curvature of one segment, added to eval.
 *
 *  Variable projection after Kaufman: with V_j = (dT/dtheta_j / sigma) (P a),
 *  N = S^T S, A = S^T V, r = D - S a:  curvature V^T V - A^T N^-1 A, gradient
 *  -2 V^T r; the determinant adds 2 sum t (dt/dtheta_j) p^T N^-1 p to the
 *  gradient only. */
MILL_BLOCK_FN void MILL_T(mill_block_jacobian)(mill_block *b, const mill_model *m,
                                               const mill_segment *s, double vel_km_s,
                                               mill_work *work, mill_eval *eval)
{
  const mill_model_arm *arm = &m->arm[s->arm];
  const int n = s->n_pix, nk = m->set.n_cont, np = m->n_par;
  const int pitch = m->max_seg_pix, grid_pitch = m->max_pix_pad;
  const int n_row = np + 1; /* value, then d/d(parameter) in order */
  MILL_REAL *pixel = (MILL_REAL *)work->pixel, *smooth = (MILL_REAL *)work->smooth;
  const MILL_REAL *rotated = (const MILL_REAL *)work->rotated;
  const MILL_REAL *bend = (const MILL_REAL *)work->bend;

  MILL_T(mill_block_locate)(b, arm, s->ws, vel_km_s, work);
  MILL_T(mill_block_interpolate)
  (b, arm, n, rotated, bend, work, pixel, mill_doppler_ln_slope(vel_km_s), pixel + pitch);
  /* rotated rows are value, v sin i, labels: one less than here, without velocity */
  for (int r = 1; r < n_row - 1; r++)
    MILL_T(mill_block_interpolate)
  (b, arm, n, rotated + (size_t)r * (size_t)grid_pitch, bend + (size_t)r * (size_t)grid_pitch, work,
   pixel + (size_t)(r + 1) * (size_t)pitch, 0.0, (MILL_REAL *)NULL);
  for (int r = 0; r < n_row; r++)
    MILL_T(mill_block_resolve)
  (b, s, pixel + (size_t)r * (size_t)pitch, smooth + (size_t)r * (size_t)pitch);

  const double f = MILL_T(mill_block_project)(b, m, s, smooth, MILL_LEVEL(arm, work),
                                              MILL_LN_SCALE(arm, work), work);
  MILL_SERIAL(b)
  {
    eval->f += f;
  }
  MILL_BARRIER(b);
  if (!isfinite(f))
    return;

  /* sums: V^T V (triangle), S^T V [nk][np], V^T r [np], determinant slope [np] */
  const int n_vv = np * (np + 1) / 2, n_sum = n_vv + nk * np + 2 * np;
  double acc[MILL_BLOCK_MAX_SUM];
  for (int q = 0; q < n_sum; q++)
    acc[q] = 0.0;
  const float *cont = s->ws->cont;
  const double *a = work->solve, *chol = work->normal;
  const double level = MILL_LEVEL(arm, work);
  const int n_chunk = (n + MILL_CHUNK - 1) / MILL_CHUNK;
  MILL_FOR(b, c, n_chunk)
  {
    const int first = c * MILL_CHUNK;
    const int len = n - first < MILL_CHUNK ? n - first : MILL_CHUNK;
    double p[MILL_MAX_CONT][MILL_CHUNK], v[MILL_MAX_PAR][MILL_CHUNK];
    double t[MILL_CHUNK], poly[MILL_CHUNK], resid[MILL_CHUNK], quad[MILL_CHUNK];
    MILL_SIMD
    for (int i = 0; i < len; i++) {
      t[i] = (level * s->base[first + i] + (double)smooth[first + i]) * (double)s->is[first + i];
      poly[i] = 0.0;
      quad[i] = 0.0;
    }
    for (int k = 0; k < nk; k++) {
      const float *pk = cont + (size_t)k * n + first;
      const double ak = a[k];
      double *row = p[k];
      MILL_SIMD
      for (int i = 0; i < len; i++) {
        row[i] = (double)pk[i];
        poly[i] += ak * row[i];
      }
    }
    MILL_SIMD
    for (int i = 0; i < len; i++)
      resid[i] = (double)s->d[first + i] - poly[i] * t[i];
    for (int j = 0; j < np; j++) {
      const MILL_REAL *dt = smooth + (size_t)(j + 1) * (size_t)pitch + first;
      double *row = v[j];
      MILL_SIMD
      for (int i = 0; i < len; i++)
        row[i] = (double)dt[i] * (double)s->is[first + i] * poly[i];
    }
    int q = 0;
    for (int j = 0; j < np; j++)
      for (int l = 0; l <= j; l++) {
        const double *x = v[j], *z = v[l];
        double sum = 0.0;
        MILL_SIMD_SUM(sum)
        for (int i = 0; i < len; i++)
          sum += x[i] * z[i];
        acc[q++] += sum;
      }
    for (int k = 0; k < nk; k++) {
      double st[MILL_CHUNK];
      MILL_SIMD
      for (int i = 0; i < len; i++)
        st[i] = p[k][i] * t[i];
      for (int j = 0; j < np; j++) {
        const double *z = v[j];
        double sum = 0.0;
        MILL_SIMD_SUM(sum)
        for (int i = 0; i < len; i++)
          sum += st[i] * z[i];
        acc[q++] += sum;
      }
    }
    for (int j = 0; j < np; j++) {
      const double *z = v[j];
      double sum = 0.0;
      MILL_SIMD_SUM(sum)
      for (int i = 0; i < len; i++)
        sum += resid[i] * z[i];
      acc[q++] += sum;
    }
    if (m->set.likelihood == MILL_LIKE_MARGINAL) {
      /* p becomes L^-1 p, pixel by pixel */
      for (int k = 0; k < nk; k++) {
        double *row = p[k];
        for (int l = 0; l < k; l++) {
          const double *below = p[l];
          const double w = chol[k * nk + l];
          MILL_SIMD
          for (int i = 0; i < len; i++)
            row[i] -= w * below[i];
        }
        const double inv = 1.0 / chol[k * nk + k];
        MILL_SIMD
        for (int i = 0; i < len; i++) {
          row[i] *= inv;
          quad[i] += row[i] * row[i];
        }
      }
      for (int j = 0; j < np; j++) {
        const MILL_REAL *dt = smooth + (size_t)(j + 1) * (size_t)pitch + first;
        double sum = 0.0;
        MILL_SIMD_SUM(sum)
        for (int i = 0; i < len; i++)
          sum += t[i] * (double)dt[i] * (double)s->is[first + i] * quad[i];
        acc[q++] += sum;
      }
    }
  }
  mill_block_sum_n(b, acc, n_sum, work->sums);
  MILL_SERIAL(b)
  {
    const double *sums = work->sums;
    double *solve = work->solve + MILL_MAX_CONT; /* [np][nk]: L^-1 S^T V */
    for (int j = 0; j < np; j++) {
      for (int k = 0; k < nk; k++)
        solve[j * nk + k] = sums[n_vv + k * np + j];
      mill_cholesky_forward(nk, chol, nk, solve + j * nk);
    }
    int q = 0;
    for (int j = 0; j < np; j++)
      for (int l = 0; l <= j; l++) {
        double h = sums[q++];
        for (int k = 0; k < nk; k++)
          h -= solve[j * nk + k] * solve[l * nk + k];
        eval->hess[j * np + l] += h;
        if (l != j)
          eval->hess[l * np + j] += h;
      }
    for (int j = 0; j < np; j++)
      eval->grad[j] += -2.0 * sums[n_vv + nk * np + j] + 2.0 * sums[n_vv + nk * np + np + j];
  }
  MILL_BARRIER(b);
}

/** Residuals of the good pixels for the coefficients and template at hand:
 *  chi-square, squared significance of negative model pixels, largest squared
 *  residual.  The model goes to s->model when keep_model is set. */
MILL_BLOCK_FN void MILL_T(mill_block_residual)(mill_block *b, const mill_model *m,
                                               const mill_segment *s, const MILL_REAL *templ,
                                               double level, int keep_model, const mill_work *work,
                                               double *chisq, double *negative, double *largest)
{
  const int n = s->n_pix, nk = m->set.n_cont;
  double acc[2] = {0.0, 0.0}, worst = 0.0;
  MILL_FOR(b, i, n)
  {
    double poly = 0.0;
    for (int k = 0; k < nk; k++)
      poly += work->solve[k] * (double)s->ws->cont[(size_t)k * n + i];
    const double flux = poly * (level * s->base[i] + (templ ? (double)templ[i] : 0.0));
    if (keep_model)
      s->model[i] = (float)flux;
    if (s->good[i]) {
      const double model = flux * (double)s->is[i];
      const double r = (double)s->d[i] - model;
      acc[0] += r * r;
      acc[1] += model < 0.0 ? model * model : 0.0;
      if (r * r > worst)
        worst = r * r;
    }
  }
  double total[2];
  mill_block_sum_n(b, acc, 2, total);
  *chisq = total[0];
  *negative = total[1];
  *largest = mill_block_max(b, worst);
}

/** Model, true chi-squares and checks of one segment at the solution, added to
 *  eval; chisq_c is that of a constant template (continuum only). */
MILL_BLOCK_FN void MILL_T(mill_block_final)(mill_block *b, const mill_model *m,
                                            const mill_segment *s, double vel_km_s, mill_work *work,
                                            mill_eval *eval)
{
  const MILL_REAL *smooth = (const MILL_REAL *)work->smooth, *none = NULL;
  const double level = MILL_LEVEL(&m->arm[s->arm], work);
  double chisq, negative, largest, chisq_c, unused_negative, unused_largest;
  const double f = MILL_T(mill_block_value)(b, m, s, vel_km_s, work);
  MILL_T(mill_block_residual)
  (b, m, s, smooth, level, s->model != NULL, work, &chisq, &negative, &largest);
  MILL_BARRIER(b);
  const double f_c = MILL_T(mill_block_project)(b, m, s, none, 1.0, 0.0, work);
  MILL_T(mill_block_residual)
  (b, m, s, none, 1.0, 0, work, &chisq_c, &unused_negative, &unused_largest);
  MILL_SERIAL(b)
  {
    eval->f += f;
    /* without a projection the coefficients at hand are another star's */
    eval->chisq[s->arm] += isfinite(f) ? chisq : (double)NAN;
    eval->chisq_c[s->arm] += isfinite(f_c) ? chisq_c : (double)NAN;
    eval->negative += negative;
    if (largest > eval->max_resid2)
      eval->max_resid2 = largest;
  }
  MILL_BARRIER(b);
}

/** Answer a slot's request as far as one arm is concerned.
 *
 *  In: work->grid, the emulator's output for the slot's labels (one row, or one
 *  and a tangent per label for a Jacobian).  Adds to slot->eval. */
MILL_BLOCK_FN void MILL_T(mill_block_arm)(mill_block *b, const mill_model *m, mill_slot *slot,
                                          int i_arm, mill_work *work)
{
  const mill_model_arm *arm = &m->arm[i_arm];
  const int jacobian = slot->request == MILL_REQ_JACOBIAN;
  const double vel = slot->theta[MILL_PAR_VRAD];
  MILL_T(mill_block_flux)
  (b, arm, jacobian ? 1 + m->n_label : 1, m->max_pix_pad, work->mean, (MILL_REAL *)work->grid);
  MILL_T(mill_block_template)(b, m, arm, slot->theta[MILL_PAR_VSINI], jacobian, work);
  for (int i_seg = 0; i_seg < slot->n_segment; i_seg++) {
    const mill_segment *s = &slot->segment[i_seg];
    if (s->arm != i_arm || !s->used)
      continue;
    if (jacobian) {
      MILL_T(mill_block_jacobian)(b, m, s, vel, work, &slot->eval);
    } else if (slot->request == MILL_REQ_FINAL) {
      MILL_T(mill_block_final)(b, m, s, vel, work, &slot->eval);
    } else if (slot->request == MILL_REQ_VALUE) {
      const double f = MILL_T(mill_block_value)(b, m, s, vel, work);
      MILL_SERIAL(b)
      {
        slot->eval.f += f;
      }
      MILL_BARRIER(b);
    } else {
      for (int i = 0; i < MILL_N_PROFILE; i++) {
        const double v = slot->profile_vel[i];
        if (v < m->set.min_vel_km_s || v > m->set.max_vel_km_s)
          continue;
        const double f = MILL_T(mill_block_value)(b, m, s, v, work);
        MILL_SERIAL(b)
        {
          slot->eval.profile[i] += f;
        }
        MILL_BARRIER(b);
      }
    }
  }
}
