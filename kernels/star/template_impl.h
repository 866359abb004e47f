/* A template from the emulator to the pixels of a segment: flux, rotation, spline, resolution.
   Included by kernels/star/pixel.h once per type of template; no include guard. */

/** Emulator output without its mean, y, to a template, in place.  log flux: t = exp(clip(y)) - 1
 *  in units of exp(mean); plain flux: t = y. */
MILL_BLOCK_FN void MILL_T(mill_block_flux)(mill_block *b, const mill_model_arm *arm, double mean,
                                           MILL_REAL *row)
{
  if (!arm->log_flux)
    return;
  /* the clip of the emulator files, exp(clip(y, -300, 300)) */
  const MILL_REAL lo = (MILL_REAL)(-300.0 - mean), hi = (MILL_REAL)(300.0 - mean);
  const int n = arm->n_pix;
  MILL_GLOBAL(row);
  MILL_FOR_SIMD(b, i, n)
  {
    const MILL_REAL y = row[i];
    row[i] = MILL_EXPM1(y < lo ? lo : (y > hi ? hi : y));
  }
  MILL_BARRIER(b);
}

/** A thread's batch of a row of n numbers to its place. */
MILL_INLINE void MILL_T(mill_put_batch)(mill_block *b, int first, int n, const MILL_REAL *x,
                                        MILL_REAL *row)
{
  const int len = MILL_BATCH_LEN(first, n);
  (void)b; /* a CPU's loop has no use for it */
  MILL_SIMD
  for (int i = 0; i < len; i++)
    if (MILL_BATCH_HAS(b, first, i, n))
      row[MILL_BATCH_AT(b, first, i, n)] = x[i];
}

/** The same for one of its tangents y' without its mean: log flux T' = (1 + t) (y' + mean), plain
 *  flux T' = y' + mean. */
MILL_BLOCK_FN void MILL_T(mill_block_flux_tangent)(mill_block *b, const mill_model_arm *arm,
                                                   double mean, const MILL_REAL *t, MILL_REAL *row)
{
  const MILL_REAL add = (MILL_REAL)mean;
  const int n = arm->n_pix;
  if (arm->log_flux) {
    MILL_FOR_BATCHES(b, first, n)
    {
      const int len = MILL_BATCH_LEN(first, n);
      MILL_REAL x[MILL_BATCH];
      MILL_SIMD
      for (int i = 0; i < len; i++) {
        const int p = MILL_BATCH_AT(b, first, i, n);
        x[i] = (row[p] + add) * ((MILL_REAL)1 + t[p]);
      }
      MILL_T(mill_put_batch)(b, first, n, x, row);
    }
  } else {
    MILL_FOR_SIMD(b, i, n)
    {
      row[i] += add;
    }
  }
  MILL_BARRIER(b);
}

/** Kernel weights of v sin i into work->kernel and their slopes with respect to its
 *  inner parameter u, per km/s (mill_vsini_inner); want_slope: the half width is one
 *  that holds the slopes too.  Returns the half width. */
MILL_BLOCK_CALLED int MILL_T(mill_block_rotation_kernel)(mill_block own, int kind,
                                                         const mill_model_arm *arm,
                                                         double vsini_km_s, int want_slope,
                                                         mill_workspace *work)
{
  mill_block *b = &own;
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

/** One element of a convolution, the row being zero beyond its ends. */
MILL_HD static inline MILL_REAL MILL_T(mill_convolved)(int n, int half, const double *kernel,
                                                       const MILL_REAL *in, int i)
{
  double s = kernel[0] * (double)in[i];
  for (int k = 1; k <= half; k++)
    s += kernel[k] * ((i >= k ? (double)in[i - k] : 0.0) + (i + k < n ? (double)in[i + k] : 0.0));
  return (MILL_REAL)s;
}

/** out = in convolved with a symmetric kernel [half + 1]; zero beyond the grid,
 *  which for a template's t means the level and not, as in rvspecfit, darkness:
 *  no pixel within the velocity limits sees the difference below v sin i of some
 *  hundred km/s. */
MILL_BLOCK_FN void MILL_T(mill_block_convolve)(mill_block *b, int n, int half, const double *kernel,
                                               const MILL_REAL *in, MILL_REAL *out)
{
  MILL_GLOBAL(kernel);
  MILL_GLOBAL(in);
  MILL_GLOBAL(out);
  enum { N_VEC = MILL_CONVOLVE_VECS, N_TILE = N_VEC * MILL_VEC_N };
  typedef MILL_T(mill_vec) vec;
  const int n_in = n - 2 * half;
  const int n_tile = n_in > 0 ? n_in / N_TILE : 0;
  const int first_edge = n_tile > 0 ? half : 0;
  const int n_edge = n - n_tile * N_TILE;
  /* the ends, and inside what fills no tile */
  MILL_FOR(b, e, n_edge)
  {
    const int i = e < first_edge ? e : n_tile * N_TILE + e;
    out[i] = MILL_T(mill_convolved)(n, half, kernel, in, i);
  }
  MILL_FOR(b, c, n_tile)
  {
    const MILL_REAL *x = in + half + c * N_TILE;
    MILL_REAL *to = out + half + c * N_TILE;
    vec sum[N_VEC];
    const MILL_REAL w0 = (MILL_REAL)kernel[0];
    for (int v = 0; v < N_VEC; v++)
      sum[v] = w0 * *(const vec *)(x + v * MILL_VEC_N);
    for (int k = 1; k <= half; k++) {
      const MILL_REAL w = (MILL_REAL)kernel[k];
      for (int v = 0; v < N_VEC; v++)
        sum[v] +=
            w * (*(const vec *)(x + v * MILL_VEC_N - k) + *(const vec *)(x + v * MILL_VEC_N + k));
    }
    for (int v = 0; v < N_VEC; v++)
      *(vec *)(to + v * MILL_VEC_N) = sum[v];
  }
  MILL_BARRIER(b);
}

/** Second differences of y [n] about the grid points origin + i, i < len, as the right side of
 *  the spline's equations; zero at the ends of the grid and beyond. */
MILL_INLINE void MILL_T(mill_spline_differences)(mill_block *b, int n, int origin, int len,
                                                 MILL_REAL e, const MILL_REAL *y, MILL_REAL *second)
{
  const int lo = origin < 1 ? 1 - origin : 0;
  const int hi = origin + len > n - 1 ? n - 1 - origin : len;
  (void)b; /* a CPU's loop has no use for it */
  MILL_FOR_TILE(b, i, 0, lo)
  {
    second[i] = 0;
  }
  MILL_FOR_TILE(b, i, hi, len)
  {
    second[i] = 0;
  }
  MILL_FOR_TILE(b, i, lo, hi)
  {
    const MILL_REAL *x = &y[origin + i];
    const MILL_REAL left = x[0] - x[-1], right = x[1] - x[0];
    second[i] = (MILL_REAL)6 * ((right - left) - e * left);
  }
}

/** A filter of seven taps that stand `apart` grid points apart. */
MILL_INLINE MILL_REAL MILL_T(mill_spline_filtered)(const MILL_REAL *w, int apart,
                                                   const MILL_REAL *x)
{
  return w[0] * x[0] + w[1] * x[apart] + w[2] * x[2 * apart] + w[3] * x[3 * apart] +
         w[4] * x[4 * apart] + w[5] * x[5 * apart] + w[6] * x[6 * apart];
}

/** One of the filters of a tile's len numbers. */
MILL_INLINE void MILL_T(mill_spline_filter)(mill_block *b, int len, const MILL_REAL *w, int apart,
                                            const MILL_REAL *x, MILL_REAL *to)
{
  (void)b; /* a CPU's loop has no use for it */
  MILL_FOR_TILE(b, i, 0, len)
  {
    to[i] = MILL_T(mill_spline_filtered)(w, apart, x + i);
  }
}

/** Coefficients of the natural cubic spline in wavelength.
 *
 *  On knots uniform in ln wavelength the spline's equations have constant
 *  coefficients for Z_i = z_i h_i^2 (z second derivative, h_i the interval to
 *  the right):  r Z_{i-1} + 2 (1 + 1/r) Z_i + Z_{i+1} / r^2 =
 *  6 [(y_{i+1} - y_i) - r (y_i - y_{i-1})],  r = exp(step).
 *  Their inverse is a two-sided exponential, cut after 16 (float32) or 32 grid
 *  points and applied as short filters in turn (kernels/star/spline_filter.h); the
 *  natural ends (Z = 0) add a decaying solution from each side. */
MILL_BLOCK_CALLED void MILL_T(mill_block_spline)(mill_block own, const mill_model_arm *arm,
                                                 const MILL_REAL *y, MILL_REAL *bend)
{
  mill_block *b = &own;
  /* each filter needs its input its reach beyond its output */
  enum {
    LAST = MILL_WIDE ? (int)MILL_SPLINE_LAST : 0,
    N_FAR = MILL_TILE + 2 * LAST,
    N_NEAR = N_FAR + 2 * MILL_SPLINE_FAR,
    N_SECOND = N_NEAR + 2 * MILL_SPLINE_NEAR
  };
  const int n = arm->n_pix;
  const MILL_REAL e = (MILL_REAL)arm->expm1_step;
  MILL_GLOBAL(y);
  MILL_GLOBAL(bend);
  const int n_tile = (n + MILL_TILE - 1) / MILL_TILE;
  MILL_REAL w_near[7], w_far[7];
  for (int k = 0; k < 7; k++) {
    w_near[k] = (MILL_REAL)arm->spline_near[k];
    w_far[k] = (MILL_REAL)arm->spline_far[k];
  }
  MILL_FOR_TILES(b, c, n_tile)
  {
    const int first = c * MILL_TILE;
    const int len = n - first < MILL_TILE ? n - first : MILL_TILE;
    MILL_TILE_MEMORY(b, MILL_REAL, second, MILL_STAGE);
    MILL_REAL *near = second + N_SECOND;
    /* of float64 there is another filter, into what the second differences leave free */
    MILL_REAL *far = MILL_WIDE ? second : bend + first;
    MILL_T(mill_spline_differences)
    (b, n, first - (N_SECOND - MILL_TILE) / 2, N_SECOND, e, y, second);
    MILL_TILE_BARRIER(b);
    MILL_T(mill_spline_filter)(b, N_NEAR, w_near, 1, second, near);
    MILL_TILE_BARRIER(b);
    MILL_T(mill_spline_filter)(b, MILL_WIDE ? (int)N_FAR : len, w_far, 4, near, far);
    MILL_TILE_BARRIER(b);
#if MILL_WIDE
    const double *w_last = arm->spline_last;
    MILL_FOR_TILE(b, i, 0, len)
    {
      bend[first + i] = w_last[0] * far[i] + w_last[1] * far[i + 16] + w_last[2] * far[i + 32];
    }
    MILL_TILE_BARRIER(b);
#endif
  }
  MILL_BARRIER(b);
  /* natural ends */
  const double end_left = (double)bend[0], end_right = (double)bend[n - 1];
  MILL_BARRIER(b);
  MILL_FOR(b, k, MILL_END)
  {
    bend[k] -= (MILL_REAL)(end_left * arm->spline_end_left[k]);
    bend[n - 1 - k] -= (MILL_REAL)(end_right * arm->spline_end_right[k]);
  }
  MILL_BARRIER(b);
}

/** Where pixels lie among the grid points of an arm. */
typedef struct MILL_T(mill_grid_place) {
  double offset, inv, step, scale;
  int last;
} MILL_T(mill_grid_place);

MILL_INLINE MILL_T(mill_grid_place)
    MILL_T(mill_place_at)(const mill_model_arm *arm, double vel_km_s)
{
  const MILL_T(mill_grid_place) at = {mill_doppler_ln(vel_km_s) - arm->ln_wave0, 1.0 / arm->ln_step,
                                      arm->ln_step, arm->ln_step / arm->expm1_step, arm->n_pix - 2};
  return at;
}

/** Grid point and fraction of a pixel. */
MILL_INLINE void MILL_T(mill_locate)(const MILL_T(mill_grid_place) * at, double ln_wave, int *index,
                                     float *frac)
{
  const double pos = (ln_wave + at->offset) * at->inv;
  int k = (int)pos;
  k = k < 0 ? 0 : (k > at->last ? at->last : k);
  const double f = pos - (double)k, fs = f * at->step;
  /* (exp(f s) - 1) / (exp(s) - 1), s ~ 1e-4: next term below 1e-17 */
  *index = k;
  *frac = (float)(f * at->scale * (1.0 + fs * (0.5 + fs * (1.0 / 6.0 + fs * (1.0 / 24.0)))));
}

/** The same for every pixel at a velocity.  No barrier at the end: mill_block_interpolate reads
 * what the same thread has written, and what reads others' pixels comes after its barrier. */
MILL_BLOCK_FN void MILL_T(mill_block_locate)(mill_block *b, const mill_model_arm *arm, int n,
                                             const double *ln_wave, double vel_km_s, int *index,
                                             float *frac)
{
  const MILL_T(mill_grid_place) at = MILL_T(mill_place_at)(arm, vel_km_s);
  (void)b; /* a CPU's loop has no use for it */
  MILL_GLOBAL(ln_wave);
  MILL_GLOBAL(index);
  MILL_GLOBAL(frac);
  MILL_FOR_BATCHES(b, first, n)
  {
    const int len = MILL_BATCH_LEN(first, n);
    int k[MILL_BATCH];
    float u[MILL_BATCH];
    MILL_SIMD
    for (int i = 0; i < len; i++)
      MILL_T(mill_locate)(&at, ln_wave[MILL_BATCH_AT(b, first, i, n)], &k[i], &u[i]);
    for (int i = 0; i < len; i++)
      if (MILL_BATCH_HAS(b, first, i, n)) {
        index[MILL_BATCH_AT(b, first, i, n)] = k[i];
        frac[MILL_BATCH_AT(b, first, i, n)] = u[i];
      }
  }
}

/** Template and spline coefficients at both ends of the intervals that a batch's pixels are in. */
typedef struct MILL_T(mill_interval) {
  MILL_REAL left[MILL_BATCH], right[MILL_BATCH], bend_left[MILL_BATCH], bend_right[MILL_BATCH];
} MILL_T(mill_interval);

MILL_INLINE void MILL_T(mill_interval_of)(int len, const int *index, const MILL_REAL *y,
                                          const MILL_REAL *bend, MILL_T(mill_interval) * at)
{
  MILL_T(mill_load_pairs)(len, y, index, at->left, at->right);
  MILL_T(mill_load_pairs)(len, bend, index, at->bend_left, at->bend_right);
}

/** The cubic at len pixels. */
MILL_INLINE void MILL_T(mill_cubic)(int len, MILL_REAL scale_right, const float *frac,
                                    const MILL_T(mill_interval) * at, MILL_REAL *to)
{
  const MILL_REAL sixth = (MILL_REAL)(1.0 / 6.0), sixth_right = sixth * scale_right;
  MILL_SIMD
  for (int i = 0; i < len; i++) {
    const MILL_REAL u = (MILL_REAL)frac[i], w = (MILL_REAL)1 - u;
    to[i] = w * at->left[i] + u * at->right[i] +
            (u * u * u - u) * (sixth_right * at->bend_right[i]) +
            (w * w * w - w) * (sixth * at->bend_left[i]);
  }
}

/** Spline of one row at the pixels of a segment at a velocity. */
MILL_BLOCK_FN void MILL_T(mill_block_sample)(mill_block *b, const mill_model_arm *arm, int n,
                                             const double *ln_wave, double vel_km_s,
                                             const MILL_REAL *y, const MILL_REAL *bend,
                                             MILL_REAL *out)
{
  const MILL_T(mill_grid_place) at = MILL_T(mill_place_at)(arm, vel_km_s);
  const MILL_REAL scale_right = (MILL_REAL)arm->spline_scale_right;
  MILL_GLOBAL(ln_wave);
  MILL_GLOBAL(y);
  MILL_GLOBAL(bend);
  MILL_GLOBAL(out);
  MILL_FOR_BATCHES(b, first, n)
  {
    const int len = MILL_BATCH_LEN(first, n);
    int index[MILL_BATCH];
    float frac[MILL_BATCH];
    MILL_T(mill_interval) ends;
    MILL_REAL x[MILL_BATCH];
    MILL_SIMD
    for (int i = 0; i < len; i++)
      MILL_T(mill_locate)(&at, ln_wave[MILL_BATCH_AT(b, first, i, n)], &index[i], &frac[i]);
    MILL_T(mill_interval_of)(len, index, y, bend, &ends);
    MILL_T(mill_cubic)(len, scale_right, frac, &ends, x);
    MILL_T(mill_put_batch)(b, first, n, x, out);
  }
  MILL_BARRIER(b);
}

/** Spline of one row at the located pixels, and with slope not NULL its derivative with respect
 *  to velocity into slope [n_pix]. */
MILL_BLOCK_FN void MILL_T(mill_block_interpolate)(mill_block *b, const mill_model_arm *arm, int n,
                                                  const MILL_REAL *y, const MILL_REAL *bend,
                                                  const int *index, const float *frac,
                                                  MILL_REAL *out, double slope_ln, MILL_REAL *slope)
{
  const MILL_REAL sixth = (MILL_REAL)(1.0 / 6.0);
  const MILL_REAL scale_right = (MILL_REAL)arm->spline_scale_right;
  const MILL_REAL sixth_right = sixth * scale_right;
  const MILL_REAL inv_e = (MILL_REAL)(slope_ln / arm->expm1_step), sl = (MILL_REAL)slope_ln;
  MILL_GLOBAL(y);
  MILL_GLOBAL(bend);
  MILL_GLOBAL(index);
  MILL_GLOBAL(frac);
  MILL_GLOBAL(out);
  MILL_FOR_BATCHES(b, first, n)
  {
    const int len = MILL_BATCH_LEN(first, n);
    int k[MILL_BATCH];
    float u[MILL_BATCH];
    MILL_T(mill_interval) ends;
    MILL_REAL x[MILL_BATCH];
    for (int i = 0; i < len; i++) {
      k[i] = index[MILL_BATCH_AT(b, first, i, n)];
      u[i] = frac[MILL_BATCH_AT(b, first, i, n)];
    }
    MILL_T(mill_interval_of)(len, k, y, bend, &ends);
    MILL_T(mill_cubic)(len, scale_right, u, &ends, x);
    MILL_T(mill_put_batch)(b, first, n, x, out);
    if (!slope)
      continue;
    MILL_SIMD
    for (int i = 0; i < len; i++) {
      const MILL_REAL f = (MILL_REAL)u[i], w = (MILL_REAL)1 - f;
      const MILL_REAL du =
          (ends.right[i] - ends.left[i]) +
          ((MILL_REAL)3 * f * f - (MILL_REAL)1) * (sixth_right * ends.bend_right[i]) -
          ((MILL_REAL)3 * w * w - (MILL_REAL)1) * (sixth * ends.bend_left[i]);
      x[i] = du * (inv_e + f * sl);
    }
    MILL_T(mill_put_batch)(b, first, n, x, slope);
  }
  MILL_BARRIER(b);
}

/** One vector of pixels of nr rows.  Sums have names, for compilers leave an array of them
 *  in memory. */
MILL_INLINE void MILL_T(mill_resolve_tile)(const int nr, int n_diag, int pitch_res,
                                           const float *res, int pitch, const MILL_REAL *in,
                                           MILL_REAL *out)
{
  typedef MILL_T(mill_vec) vec;
  const vec zero = {0};
  vec s0 = zero, s1 = zero, s2 = zero, s3 = zero;
  for (int k = 0; k < n_diag; k++) {
    const vec w = MILL_T(mill_vec_load)(res + (ptrdiff_t)k * pitch_res);
    const MILL_REAL *x = in + k;
    s0 += w * *(const vec *)x;
    if (nr > 1)
      s1 += w * *(const vec *)(x + pitch);
    if (nr > 2)
      s2 += w * *(const vec *)(x + 2 * (ptrdiff_t)pitch);
    if (nr > 3)
      s3 += w * *(const vec *)(x + 3 * (ptrdiff_t)pitch);
  }
  *(vec *)out = s0;
  if (nr > 1)
    *(vec *)(out + pitch) = s1;
  if (nr > 2)
    *(vec *)(out + 2 * (ptrdiff_t)pitch) = s2;
  if (nr > 3)
    *(vec *)(out + 3 * (ptrdiff_t)pitch) = s3;
}

/** Resolution matrix in row form times n_row rows [n_row][pitch]; a copy without one. */
MILL_BLOCK_FN void MILL_T(mill_block_resolve)(mill_block *b, const mill_segment *s, int n_row,
                                              int pitch, const MILL_REAL *in, MILL_REAL *out)
{
  enum { N_TILE = MILL_VEC_N };
  const int n = s->n_pix;
  const float *const res = s->res;
  MILL_GLOBAL(in);
  /* what a GPU loads with a row's last pixels */
  MILL_FOR(b, r, n_row)
  {
    for (int i = n; i < mill_row_pitch(n); i++)
      out[(ptrdiff_t)r * pitch + i] = 0;
  }
  if (!res) {
    for (int r = 0; r < n_row; r++) {
      const MILL_REAL *from = in + (ptrdiff_t)r * pitch;
      MILL_REAL *to = out + (ptrdiff_t)r * pitch;
      MILL_FOR_BATCHES(b, first, n)
      {
        const int len = MILL_BATCH_LEN(first, n);
        MILL_REAL x[MILL_BATCH];
        for (int i = 0; i < len; i++)
          x[i] = from[MILL_BATCH_AT(b, first, i, n)];
        MILL_T(mill_put_batch)(b, first, n, x, to);
      }
    }
    MILL_BARRIER(b);
    return;
  }
  MILL_GLOBAL(res);
  const int nd = s->n_diag, h = nd / 2;
  const int n_tile = n > 2 * h ? (n - 2 * h) / N_TILE : 0;
  const int first_edge = n_tile > 0 ? h : 0;
  const int n_edge = n - n_tile * N_TILE;
  /* the ends, and inside what fills no tile */
  MILL_FOR(b, e, n_edge)
  {
    const int i = e < first_edge ? e : n_tile * N_TILE + e;
    for (int r = 0; r < n_row; r++) {
      const MILL_REAL *from = in + (ptrdiff_t)r * pitch;
      MILL_REAL sum = 0;
      for (int k = i < h ? h - i : 0; k < nd && i - h + k < n; k++)
        sum += (MILL_REAL)res[(ptrdiff_t)k * n + i] * from[i - h + k];
      out[(ptrdiff_t)r * pitch + i] = sum;
    }
  }
  MILL_FOR(b, c, n_tile)
  {
    const int i = h + c * N_TILE;
    for (int r = 0; r < n_row; r += MILL_RESOLVE_ROWS) {
      const MILL_REAL *from = in + (ptrdiff_t)r * pitch + i - h;
      MILL_REAL *to = out + (ptrdiff_t)r * pitch + i;
      switch (n_row - r) {
      case 1:
        MILL_T(mill_resolve_tile)(1, nd, n, res + i, pitch, from, to);
        break;
      case 2:
        MILL_T(mill_resolve_tile)(2, nd, n, res + i, pitch, from, to);
        break;
      case 3:
        MILL_T(mill_resolve_tile)(3, nd, n, res + i, pitch, from, to);
        break;
      default:
        MILL_T(mill_resolve_tile)(MILL_RESOLVE_ROWS, nd, n, res + i, pitch, from, to);
        break;
      }
    }
  }
  MILL_BARRIER(b);
}

/** One row of a template rotated, and its spline coefficients: the value (0), d/d(v sin i) (1),
 *  the tangent of label r - 2.
 *
 *  In: work->grid, the value as flux and the tangents as the emulator gives them, each of which
 *  this makes flux when its row is asked for, once; the kernel of half width half in work. */
MILL_BLOCK_CALLED void MILL_T(mill_block_template_row)(mill_block own, const mill_model *m,
                                                       const mill_model_arm *arm, int r, int half,
                                                       mill_workspace *work, MILL_REAL *rotated,
                                                       MILL_REAL *bend)
{
  mill_block *b = &own;
  MILL_REAL *value = (MILL_REAL *)work->grid;
  MILL_REAL *row = r < 2 ? value : value + (size_t)(r - 1) * (size_t)m->max_pix_pad;
  if (r >= 2)
    MILL_T(mill_block_flux_tangent)(b, arm, work->mean[r - 1], value, row);
  MILL_T(mill_block_convolve)
  (b, arm->n_pix, half, r == 1 ? work->kernel_slope : work->kernel, row, rotated);
  MILL_T(mill_block_spline)(*b, arm, rotated, bend);
}
