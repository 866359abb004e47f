/** Templates at the pixels and the likelihood, in float32 and in float64.
 *
 *  The blocks are written once in template_impl.h and pixel_impl.h over MILL_REAL, the type of
 *  templates; sums are float64 in both.  The sums of products over pixels are a backend's
 *  (kernels/math/primitives.h).
 */
#ifndef MILL_PIXEL_H
#define MILL_PIXEL_H

#include "kernels/math/block.h"
#include "kernels/math/doppler.h"
#include "kernels/math/gram.h"
#include "kernels/math/hull.h"
#include "kernels/math/linalg.h"
#include "kernels/math/quartic.h"
#include "kernels/math/rotation.h"
#include "kernels/math/vector.h"
#include "kernels/star/model_error.h"
#include "kernels/star/slot.h"

/** Reach of the filters that make a spline, and the numbers that a tile of one takes. */
enum {
  MILL_SPLINE_NEAR = 3,
  MILL_SPLINE_FAR = 12,
  MILL_SPLINE_LAST = 16, /**< float64 only */
  MILL_SPLINE_STAGE_F32 = 2 * MILL_TILE + 4 * MILL_SPLINE_FAR + 2 * MILL_SPLINE_NEAR,
  MILL_SPLINE_STAGE_F64 = MILL_SPLINE_STAGE_F32 + 4 * MILL_SPLINE_LAST
};
/** Rows that share one pass over the resolution rows' weights. */
enum { MILL_RESOLVE_ROWS = 4 };

/** x = k ln 2 + r, |r| <= ln 2 / 2 (Cody-Waite), for x in [-87, 88]; gives
 *  exp(r) - 1 by a degree-6 polynomial and 2^k. */
MILL_HD_INLINE float mill_exp_parts(float x, float *two_k)
{
  const float lo = -87.0f, hi = 88.0f;
  x = x > lo ? (x < hi ? x : hi) : lo; /* NaN too: the bits below must be defined */
  /* round to nearest by the shifter trick, valid in round-to-nearest mode; k then
   * stands in the last bits of the sum (no conversion, so that NaN has no say) */
  const float shift = 12582912.0f;
  union {
    uint32_t u;
    float f;
  } v;
  v.f = x * 1.44269504088896341f + shift;
  const float kf = v.f - shift;
  const float r = (x - kf * 0.693359375f) - kf * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  v.u = (v.u << 23) + (127u << 23);
  *two_k = v.f;
  return p * r * r + r;
}

/** exp(x) - 1 for float32 templates: relative error below 3e-7 (tested),
 *  vectorisable, the argument clipped to [-87, 88]. */
MILL_HD_INLINE float mill_expm1f(float x)
{
  float two_k;
  const float p = mill_exp_parts(x, &two_k);
  return x == x ? p * two_k + (two_k - 1.0f) : x;
}

/** Flux of the template over sigma at a pixel, for a constant `base` and a template t there. */
MILL_HD_INLINE double mill_pixel_template(double level, double base, double t, float is)
{
  return (level * base + t) * (double)is;
}

/** Half of what the gradient is weighted by, without the determinant: -(P a) r. */
MILL_HD_INLINE double mill_pixel_slope(double poly, float d, double t)
{
  return -poly * ((double)d - poly * t);
}

/** Blocks of pixels for each continuum function, in which the residuals of the final answer are
 *  looked at: with a factor of its own for each the continuum would follow waves of half the
 *  length that its functions can. */
enum { MILL_STIFF_BLOCKS = 4 };

/** Drop of the segment's chi-square if each block had a factor of its own on the model, from
 *  model / sigma in s->scratch, and the number of blocks with a good pixel. */
MILL_BLOCK_FN void mill_block_gain(mill_block *b, const mill_segment *s, double *gain,
                                   double *n_block)
{
  const int n = MILL_STIFF_BLOCKS * s->ws->n_cont;
  double part[2] = {0.0, 0.0}, total[2];
  MILL_FOR(b, k, n)
  {
    const int first = (int)((int64_t)s->n_pix * k / n),
              end = (int)((int64_t)s->n_pix * (k + 1) / n);
    double cross = 0.0, square = 0.0;
    for (int i = first; i < end; i++) {
      const double model = (double)s->scratch[i];
      cross += model * ((double)s->d[i] - model);
      square += model * model;
    }
    if (square > 0.0) {
      part[0] += cross * cross / square;
      part[1] += 1.0;
    }
  }
  mill_block_sum_n(b, part, 2, total);
  *gain = total[0];
  *n_block = total[1];
}

/** Search for the velocity of an arm alone. */
typedef struct mill_arm_velocity {
  int go, n_round;
  int side; /**< asks for F at v + side step: -1, 1, and 0 after v has moved */
  double v, f, step, left;
  double found, err; /**< NaN until it has ended well */
} mill_arm_velocity;

/** Rounds of the search, of two or three values each; its first steps, in errors of all arms and
 *  in km/s; its widest ones; errors below which the values at a step are mere noise, and steps
 *  beyond which a parabola is not to be trusted. */
#define MILL_ARM_VEL_ROUNDS 8
#define MILL_ARM_VEL_STEP   2.0
#define MILL_ARM_VEL_LEAST  1.0
#define MILL_ARM_VEL_MOST   60.0
#define MILL_ARM_VEL_NOISE  0.5
#define MILL_ARM_VEL_NEAR   0.5

MILL_HD static inline void mill_arm_velocity_begin(const mill_slot *slot, double vel_km_s, double f,
                                                   mill_arm_velocity *at)
{
  const double err = slot->result.vrad_err_km_s;
  at->go = isfinite(f);
  at->n_round = 0;
  at->side = -1;
  at->left = 0.0;
  at->v = vel_km_s;
  at->f = f;
  at->step = MILL_ARM_VEL_STEP * err;
  if (!(at->step > MILL_ARM_VEL_LEAST)) /* a fixed velocity has no error */
    at->step = MILL_ARM_VEL_LEAST;
  if (at->step > MILL_ARM_VEL_MOST)
    at->step = MILL_ARM_VEL_MOST;
  at->found = at->err = (double)NAN;
}

/** Digest F at v - step and v + step. */
MILL_HD static inline void mill_arm_velocity_digest(mill_arm_velocity *at, double left,
                                                    double right)
{
  const double h = at->step;
  at->side = -1;
  const double curve = 0.5 * (left + right - 2.0 * at->f) / (h * h);
  const double slope = 0.5 * (right - left) / h;
  if (!isfinite(curve) || ++at->n_round >= MILL_ARM_VEL_ROUNDS) {
    at->go = 0;
    return;
  }
  if (!(curve * h * h > MILL_ARM_VEL_NOISE * MILL_ARM_VEL_NOISE)) {
    at->go = h < MILL_ARM_VEL_MOST;
    at->step = 2.0 * h < MILL_ARM_VEL_MOST ? 2.0 * h : MILL_ARM_VEL_MOST;
    return;
  }
  double move = -0.5 * slope / curve;
  if (fabs(move) <= MILL_ARM_VEL_NEAR * h) {
    at->found = at->v + move;
    at->err = 1.0 / sqrt(curve);
    at->go = 0;
    return;
  }
  const double most = 4.0 * h < MILL_ARM_VEL_MOST ? 4.0 * h : MILL_ARM_VEL_MOST;
  move = move < -most ? -most : (move > most ? most : move);
  at->v += move;
  at->side = 0;
}

/** Begin with what the velocity profile knows of the arm about the solution: the quartic through
 *  its values of F takes the place of the first two evaluations.  It is not used beyond them, nor
 *  for questions outside a fit, which may be about any place. */
MILL_HD_CALLED static inline void mill_arm_velocity_known(const mill_model *m,
                                                          const mill_slot *slot, int i_arm,
                                                          mill_arm_velocity *at)
{
  const double v = slot->theta[MILL_PAR_VRAD], first = at->step;
  const double most = MILL_N_PROFILE_FEW / 2;
  const double along = most * MILL_PROFILE_FEW_STEP * slot->profile_width;
  if (!at->go || !slot->has_profile_arm || slot->stage != MILL_STAGE_FINAL)
    return;
  const double left = at->v - mill_arm_vrad(m, slot, i_arm, v - along);
  const double right = mill_arm_vrad(m, slot, i_arm, v + along) - at->v;
  /* not where offsets hold the arm's velocity, or a limit does */
  if (!(right > 0.0 && fabs(right - left) < 1e-6 * right))
    return;
  double c[MILL_N_QUARTIC];
  mill_quartic(slot->profile_arm[i_arm], c);
  if (at->step > right)
    at->step = right;
  const double x = most * at->step / right;
  mill_arm_velocity_digest(at, mill_quartic_at(c, -x), mill_quartic_at(c, x));
  if (at->step < first)
    at->step = first;
}

/** Digest F at v + side step. */
MILL_HD static inline void mill_arm_velocity_tell(mill_arm_velocity *at, double f)
{
  if (at->side > 0) {
    mill_arm_velocity_digest(at, at->left, f);
  } else if (at->side < 0) {
    at->left = f;
    at->side = 1;
  } else {
    at->f = f;
    at->side = -1;
  }
}

/** The constant of a template and the logarithm of its unit: mill_workspace.mean. */
#define MILL_LEVEL(arm, work)    ((arm)->log_flux ? 1.0 : (work)->mean[0])
#define MILL_LN_SCALE(arm, work) ((arm)->log_flux ? (work)->mean[0] : 0.0)

#define MILL_REAL     float
#define MILL_T(name)  name##_f32
#define MILL_EXPM1(x) mill_expm1f(x)
#define MILL_WIDE     0
#define MILL_STAGE    MILL_SPLINE_STAGE_F32
#define MILL_END      MILL_SPLINE_END_F32
#define MILL_VEC_N    MILL_VEC_N_F32
#include MILL_PRIMITIVES_PIXEL_SUMS
#include "kernels/star/model_error_impl.h"
#include "kernels/star/template_impl.h"
#include "kernels/star/pixel_impl.h"
#undef MILL_REAL
#undef MILL_T
#undef MILL_EXPM1
#undef MILL_WIDE
#undef MILL_STAGE
#undef MILL_END
#undef MILL_VEC_N

#define MILL_REAL     double
#define MILL_T(name)  name##_f64
#define MILL_EXPM1(x) expm1(x)
#define MILL_WIDE     1
#define MILL_STAGE    MILL_SPLINE_STAGE_F64
#define MILL_END      MILL_SPLINE_END
#define MILL_VEC_N    MILL_VEC_N_F64
#include MILL_PRIMITIVES_PIXEL_SUMS
#include "kernels/star/model_error_impl.h"
#include "kernels/star/template_impl.h"
#include "kernels/star/pixel_impl.h"
#undef MILL_REAL
#undef MILL_T
#undef MILL_EXPM1
#undef MILL_WIDE
#undef MILL_STAGE
#undef MILL_END
#undef MILL_VEC_N

#endif
