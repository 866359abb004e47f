/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of an evolution before it starts, and splines of gridded potentials. */
#include "kernels/particles/particles.h"

#include <string.h>

/** Refuse a larger product of step and curvature of U: above 1 an Euler step jumps over a minimum,
 *  above 2 steps grow without limit. */
#define MOST_CURVATURE_STEP 1.0
enum { MOST_NUMBERS = 1 << 26 /* in the largest array of a density: 512 MiB */ };

/* ---- setup ---- */

/* Check the ends, the grid and the kernel width of axis a. */
static int check_axis(const mill_particle_setup *s, int a)
{
  if (s->boundary[a] != MILL_OPEN && !(s->high[a] > s->low[a]))
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "axis %d has ends at %g and %g: give two numbers, the lower first", a + 1,
                      s->low[a], s->high[a]);
  const int is_box = mill_particle_has_images(s, a); /* beyond it images add to densities */
  const double low = is_box ? s->low[a] : -MILL_PARTICLE_FAR;
  const double high = is_box ? s->high[a] : MILL_PARTICLE_FAR;
  if (s->grid_low[a] < low || s->grid_high[a] > high ||
      (s->n_grid[a] > 1 && !(s->grid_high[a] > s->grid_low[a])))
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "the density's points along axis %d go from %g to %g: give grid_low below "
                      "grid_high, both within %g to %g",
                      a + 1, s->grid_low[a], s->grid_high[a], low, high);
  if (s->bandwidth == MILL_WIDTH_GIVEN && !(s->width[a] > 0 && s->width[a] <= high - low))
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "the kernel's width along axis %d is %g: give a `width` above 0, up to %g",
                      a + 1, s->width[a], high - low);
  return MILL_OK;
}

int mill_particle_check_setup(const mill_particle_setup *s)
{
  double n_grid = 1, n_node = 1;
  for (int a = 0; a < s->n_dim; a++) {
    MILL_CHECK(check_axis(s, a));
    n_grid *= s->n_grid[a];
    n_node *= s->form == MILL_DENSITY_BINNED ? s->n_node[a] : 1;
  }
  double n_most = fmax(n_grid, n_node), n_work = n_node; /* n_work: after each axis */
  for (int a = s->n_dim - 1; a >= 0 && s->form == MILL_DENSITY_BINNED; a--) {
    n_work = n_work / s->n_node[a] * s->n_grid[a];
    n_most = fmax(n_most, n_work);
  }
  if (n_most > MOST_NUMBERS)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "a density of %.0f points from %.0f nodes, computed axis by axis, needs an "
                      "array of %.0f numbers, more than %d: give fewer points or nodes",
                      n_grid, n_node, n_most, MOST_NUMBERS);
  if (s->form == MILL_DENSITY_BINNED && s->n_dim > 1 && s->bandwidth != MILL_WIDTH_GIVEN &&
      !s->along_axes)
    return MILL_ERROR(
        MILL_ERR_CONFIG,
        "a binned density has kernels along the axes only: give along_axes: true, or density: "
        "exact");
  for (int i = 0; i < s->n_record; i++)
    if (s->record[i] < 0 || s->record[i] > s->n_step || (i > 0 && s->record[i] <= s->record[i - 1]))
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "density %d is at step %d: give ascending times, from step 0 to step %d",
                        i + 1, s->record[i], s->n_step);
  return MILL_OK;
}

/* ---- problems ---- */

/* Return the largest curvature of a gridded U along any axis. Only nodes are examined, since a
 * cubic spline's curvature is linear between nodes. */
static double field_curvature(const mill_particle_field *f)
{
  size_t n[MILL_PARTICLE_DIM] = {1, 1, 1}, n_all = 1;
  double most = 0;
  for (int a = 0; a < f->n_dim; a++) {
    n[a] = (size_t)(f->n_node[a] + 2);
    n_all *= n[a];
  }
  for (size_t i = 0; i < (size_t)f->n_time * n_all; i++) {
    size_t stride = 1, rest = i % n_all;
    for (int a = f->n_dim - 1; a >= 0; a--) {
      const size_t at = rest % n[a];
      rest /= n[a];
      if (at > 0 && at < n[a] - 1) {
        const double bend = (f->coef[i - stride] - 2 * f->coef[i] + f->coef[i + stride]) /
                            (f->spacing[a] * f->spacing[a]);
        most = fmax(most, fabs(bend));
      }
      stride *= n[a];
    }
  }
  return most;
}

/* Return the largest curvature of U along any axis, at minima and where the particles begin. */
static double curvature(const mill_particle_setup *s, const mill_particle_problem *p)
{
  double most = 0;
  if (p->potential == MILL_GRIDDED)
    return field_curvature(&s->field);
  for (int a = 0; a < s->n_dim; a++) {
    if (p->potential == MILL_HARMONIC)
      most = fmax(most, fabs(p->rate[a]));
    if (p->potential != MILL_DOUBLE_WELL)
      continue;
    /* far: largest distance of a minimum or start from the centre; normal starts reach 5 sigma */
    const double reach = p->start == MILL_START_NORMAL ? 5 : 1;
    double far = p->half[a];
    far = fmax(far, fabs(p->start_centre[a] - p->centre[a]) + reach * p->start_spread[a]);
    for (size_t i = 0; p->start == MILL_START_SAMPLES && i < (size_t)s->n_particle; i++)
      far = fmax(far, fabs(s->sample[i * (size_t)s->n_dim + (size_t)a] - p->centre[a]));
    if (s->boundary[a] != MILL_OPEN)
      far = fmin(far, fmax(fabs(s->low[a] - p->centre[a]), fabs(s->high[a] - p->centre[a])));
    /* the curvature at distance u half is scale (3 u^2 - 1) */
    const double u = far / p->half[a], scale = 4 * fabs(p->barrier[a]) / (p->half[a] * p->half[a]);
    most = fmax(most, scale * fmax(1, 3 * u * u - 1));
  }
  return most;
}

static int check_start(const mill_particle_setup *s, const mill_particle_problem *p, int a)
{
  const unsigned long long id = p->id;
  const double from = p->start_centre[a], spread = p->start_spread[a];
  if (spread < 0)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "problem %llu begins with a spread of %g along axis %d: give 0 or more", id,
                      spread, a + 1);
  if (s->boundary[a] != MILL_OPEN && (from < s->low[a] || from > s->high[a]))
    return MILL_ERROR(
        MILL_ERR_CONFIG,
        "problem %llu begins at %g along axis %d, which goes from %g to %g: give a start within",
        id, from, a + 1, s->low[a], s->high[a]);
  return MILL_OK;
}

int mill_particle_check_problem(const mill_particle_setup *s, const mill_particle_problem *p)
{
  const unsigned long long id = p->id;
  for (int a = 0; a < s->n_dim; a++) {
    if (p->start != MILL_START_SAMPLES)
      MILL_CHECK(check_start(s, p, a));
    if (p->potential == MILL_DOUBLE_WELL && !(p->half[a] > 0))
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "problem %llu: `half` is %g along axis %d: give a number above 0", id,
                        p->half[a], a + 1);
    if (p->potential == MILL_GRIDDED && s->field.periodic[a] && s->boundary[a] != MILL_PERIODIC)
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "axis %d: the potential is periodic, so give `boundary: periodic` too",
                        a + 1);
  }
  const double bend = curvature(s, p);
  if (bend * s->step > MOST_CURVATURE_STEP)
    return MILL_ERROR(
        MILL_ERR_CONFIG,
        "problem %llu: a step of %g is too large for the drift, as the potential's curvature "
        "reaches %g: give a step of %.3g or less",
        id, s->step, bend, MOST_CURVATURE_STEP / bend);
  return MILL_OK;
}

/* ---- splines ---- */

size_t mill_particle_n_coef(const mill_particle_field *f)
{
  size_t n = (size_t)f->n_time;
  for (int a = 0; a < f->n_dim; a++)
    n *= (size_t)(f->n_node[a] + 2);
  return n;
}

/* Compute coefficients c [n + 2] of the uniform cubic B-spline through u [n]:
 *   (c[i] + 4 c[i + 1] + c[i + 2]) / 6 = u[i].
 * At the second and the last but one point the third derivative is continuous (not-a-knot). So the
 * second derivative there is u's second difference. work [n]: scratch. */
static void fit_line(int n, const double *u, double *c, double *work)
{
  const int first = 1, last = n - 2;
  c[first + 1] = u[first] - (u[first - 1] - 2 * u[first] + u[first + 1]) / 6;
  c[last + 1] = u[last] - (u[last - 1] - 2 * u[last] + u[last + 1]) / 6;
  /* solve c[i] + 4 c[i + 1] + c[i + 2] = 6 u[i] for first < i < last */
  work[first] = 0;
  for (int i = first + 1; i < last; i++) {
    const double pivot = 4 - work[i - 1];
    work[i] = 1 / pivot;
    c[i + 1] = (6 * u[i] - (i == last - 1 ? c[last + 1] : 0) - c[i]) / pivot;
  }
  for (int i = last - 2; i > first; i--)
    c[i + 1] -= work[i] * c[i + 2];
  c[first] = 6 * u[first] - 4 * c[first + 1] - c[first + 2];
  c[first - 1] = 6 * u[first - 1] - 4 * c[first] - c[first + 1];
  c[last + 2] = 6 * u[last] - 4 * c[last + 1] - c[last];
  c[last + 3] = 6 * u[last + 1] - 4 * c[last + 2] - c[last + 1];
}

/* Compute the coefficients c [n + 2] of a periodic spline with n points a period; c[0] belongs to
 * the last point. Two recursions, forward and backward, have the pole sqrt(3) - 2 (Unser, Aldroubi
 * & Eden 1993, IEEE Trans. Signal Process. 41, 821). */
static void fit_period(int n, const double *u, double *c)
{
  const double z = sqrt(3.0) - 2.0;
  double sum = 0, power = 1;
  for (int k = 0; k < n; k++, power *= z) /* p[0] sums over all periods before it */
    sum += power * u[(n - k) % n];
  double *p = c + 1;
  p[0] = sum / (1 - power);
  for (int i = 1; i < n; i++)
    p[i] = u[i] + z * p[i - 1];
  sum = 0;
  power = 1;
  for (int k = 0; k < n; k++, power *= z) /* p[n - 1] over all periods after it */
    sum += power * p[(n - 1 + k) % n];
  double next = -z * sum / (1 - power);
  p[n - 1] = next;
  for (int i = n - 2; i >= 0; i--)
    p[i] = next = z * (next - p[i]);
  for (int i = 0; i < n; i++)
    p[i] *= 6;
  c[0] = p[n - 1];
  c[n + 1] = p[0];
}

/* Fit splines along one axis: from [n_row][n][n_inner] values, to [n_row][n + 2][n_inner] coefs. */
static void fit_axis(int n, int periodic, size_t n_row, size_t n_inner, const double *from,
                     double *to, double *work)
{
  double *u = work, *c = u + n, *rest = c + n + 2;
  for (size_t row = 0; row < n_row; row++)
    for (size_t e = 0; e < n_inner; e++) {
      for (int i = 0; i < n; i++)
        u[i] = from[(row * (size_t)n + (size_t)i) * n_inner + e];
      if (periodic)
        fit_period(n, u, c);
      else
        fit_line(n, u, c, rest);
      for (int i = 0; i < n + 2; i++)
        to[(row * (size_t)(n + 2) + (size_t)i) * n_inner + e] = c[i];
    }
}

/* Splines are fitted along one axis after the other, the last axis first. */
int mill_particle_field_fit(const mill_particle_field *f, const double *value, double *coef)
{
  int err = MILL_OK;
  size_t n_value = (size_t)f->n_time, n_row, n_inner = 1;
  double *part[2] = {NULL, NULL}, *work = NULL;
  int longest = 0;
  for (int a = 0; a < f->n_dim; a++) {
    if (f->n_node[a] < 4)
      MILL_FAIL(MILL_ERR_CONFIG, "the potential has %d points along axis %d: give 4 or more",
                f->n_node[a], a + 1);
    if (!(f->spacing[a] > 0 && isfinite(f->spacing[a]) && isfinite(f->low[a])))
      MILL_FAIL(MILL_ERR_CONFIG,
                "a potential's points begin at %g along axis %d and are %g apart: give ascending "
                "points",
                f->low[a], a + 1, f->spacing[a]);
    n_value *= (size_t)f->n_node[a];
    longest = f->n_node[a] > longest ? f->n_node[a] : longest;
  }
  for (size_t i = 0; i < n_value; i++)
    if (!isfinite(value[i]))
      MILL_FAIL(MILL_ERR_CONFIG,
                "value %zu of the potential (the last axis runs fastest) is %g: give numbers only",
                i, value[i]);
  for (int k = 0; k < 2; k++)
    MILL_TRY(MILL_ALLOC(mill_particle_n_coef(f), &part[k]));
  MILL_TRY(MILL_ALLOC(3 * longest + 2, &work)); /* the three arrays of fit_axis */
  n_row = n_value;
  memcpy(part[0], value, n_value * sizeof *value);
  for (int a = f->n_dim - 1, k = 0; a >= 0; a--, k = 1 - k) {
    n_row /= (size_t)f->n_node[a];
    fit_axis(f->n_node[a], f->periodic[a], n_row, n_inner, part[k], a > 0 ? part[1 - k] : coef,
             work);
    n_inner *= (size_t)(f->n_node[a] + 2);
  }
done:
  MILL_FREE(part[0], part[1], work);
  return err;
}
