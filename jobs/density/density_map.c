#include "jobs/density/density_map.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/particles/sphere.h"
#include "src/system/log.h"

/** Rows times cells that the exact sum is taken for: about a second of one core. */
#define EXACT_COST 1e9

/** Cells of the first map of local widths: this many a width of the kernel. */
enum { PILOT_CELLS_A_WIDTH = 4 };

/** Widths of the kernel by which a map goes beyond the rows. */
#define MARGIN 3.0

/* ---- moments ---- */

typedef struct moments {
  int64_t n;
  double low[2], high[2], origin[2];
  double sum[2], square[3]; /* about the first row; yy yx xx */
  double vector[3];         /* of a sphere */
} moments;

static int take_moments(void *context, int n, const double *const x[2])
{
  moments *m = context;
  if (m->n == 0)
    for (int a = 0; a < 2; a++)
      m->origin[a] = m->low[a] = m->high[a] = x[a][0];
  for (int i = 0; i < n; i++) {
    const double d[2] = {x[0][i] - m->origin[0], x[1][i] - m->origin[1]};
    for (int a = 0; a < 2; a++) {
      m->low[a] = x[a][i] < m->low[a] ? x[a][i] : m->low[a];
      m->high[a] = x[a][i] > m->high[a] ? x[a][i] : m->high[a];
      m->sum[a] += d[a];
    }
    m->square[0] += d[0] * d[0];
    m->square[1] += d[0] * d[1];
    m->square[2] += d[1] * d[1];
  }
  m->n += n;
  return MILL_OK;
}

static int take_vectors(void *context, int n, const double *const x[2])
{
  moments *m = context;
  for (int i = 0; i < n; i++) {
    const double ring = cos(x[0][i]);
    m->vector[0] += ring * cos(x[1][i]);
    m->vector[1] += ring * sin(x[1][i]);
    m->vector[2] += sin(x[0][i]);
  }
  m->n += n;
  return MILL_OK;
}

static int check_some(const mill_density_rows *rows)
{
  if (rows->n_used == 0)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "no row is left of %lld: %lld are not good by STATUS or RVS_WARN (--all takes them "
        "too), %lld have no number in %s or %s",
        (long long)rows->n_row, (long long)rows->n_not_good, (long long)rows->n_nan, rows->name[1],
        rows->name[0]);
  if (rows->n_used > MILL_PARTICLE_MAX_N)
    return MILL_ERROR(MILL_ERR_INPUT, "%lld rows are more than %d: map a part of them",
                      (long long)rows->n_used, MILL_PARTICLE_MAX_N);
  return MILL_OK;
}

/* ---- kernel and edges ---- */

/* By a rule, of the rows' covariance with n - 1. */
static int rule_plane(const mill_density_options *o, const mill_density_rows *rows,
                      const moments *m, mill_map_plan *p)
{
  const double n = (double)m->n, base = o->rule == MILL_SCOTT ? n : 0.25 * n * 4;
  const double factor = pow(base, -1.0 / 3.0); /* the square of n^(-1/6) */
  for (int a = 0; a < 2; a++)
    for (int e = 0; e < 2; e++)
      if (a == e || o->covariance)
        p->covariance[a][e] =
            factor * (m->square[a + e] - m->sum[a] * m->sum[e] / n) / (n > 1 ? n - 1 : 1);
  for (int a = 0; a < 2; a++)
    if (!(p->covariance[a][a] > 0) || !isfinite(p->covariance[a][a]))
      return MILL_ERROR(
          MILL_ERR_CONFIG,
          "%s has no width in the %lld rows used, from %g to %g: give --bandwidth X,Y",
          rows->name[a], (long long)m->n, m->low[a], m->high[a]);
  const double(*c)[2] = p->covariance;
  if (!(c[0][0] * c[1][1] - c[0][1] * c[0][1] > 1e-10 * c[0][0] * c[1][1]))
    return MILL_ERROR(
        MILL_ERR_CONFIG,
        "%s and %s lie on a line, so that their covariance makes no kernel: leave --covariance",
        rows->name[1], rows->name[0]);
  return MILL_OK;
}

/* Scott's rule on a sphere, its dispersion that of the mean resultant: 1 - R is the variance along
 * each of two axes where rows are close together. */
static int rule_sphere(const moments *m, mill_map_plan *p)
{
  const double *v = m->vector, n = (double)m->n;
  const double resultant = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]) / n;
  p->covariance[0][0] = p->covariance[1][1] = (1.0 - resultant) * pow(n, -1.0 / 3.0);
  if (!(1.0 - resultant > 1e-14))
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "the %lld rows used are in one place of the sky: give --bandwidth in degrees",
                      (long long)m->n);
  return MILL_OK;
}

/* The cells of axis a of the map, x being axis 1 there and 0 of the options. */
static int make_axis(const mill_density_options *o, const mill_density_rows *rows, const moments *m,
                     int a, mill_map_plan *p)
{
  const double unit = o->is_sphere ? MILL_PI / 180 : 1, width = sqrt(p->covariance[a][a]);
  double low = unit * o->low[1 - a], high = unit * o->high[1 - a];
  if (low == 0 && high == 0) {
    low = m->low[a] - MARGIN * width;
    high = m->high[a] + MARGIN * width;
  }
  p->n_cell[a] = o->n_cell[1 - a];
  const double cell = (high - low) / p->n_cell[a];
  if (!(low + cell > low && high - cell < high && isfinite(high - low)))
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "%s from %g to %g makes no cells: give --%c-range with a width",
                      rows->name[a], low / unit, high / unit, a == 0 ? 'y' : 'x');
  p->low[a] = low + 0.5 * cell;
  p->high[a] = high - 0.5 * cell;
  if (width < 0.5 * cell)
    mill_log_warning("the kernel's width along %s, %g, is below half a cell of %g: the map misses "
                     "what lies between the cells' centres; give more cells (--%c-cells), a "
                     "narrower --%c-range or a larger --bandwidth",
                     rows->name[a], width / unit, cell / unit, a == 0 ? 'y' : 'x',
                     a == 0 ? 'y' : 'x');
  return MILL_OK;
}

static int plan_map(const mill_density_options *o, mill_density_rows *rows, moments *m,
                    mill_map_plan *p)
{
  p->is_sphere = o->is_sphere;
  p->n_thread = o->n_thread;
  MILL_CHECK(mill_density_rows_pass(rows, o->is_sphere ? take_vectors : take_moments, m));
  MILL_CHECK(check_some(rows));
  for (int a = 0; a < 2 && o->rule == MILL_WIDTH_GIVEN; a++) {
    const double width = o->is_sphere ? o->bandwidth[0] * MILL_PI / 180 : o->bandwidth[1 - a];
    p->covariance[a][a] = width * width;
  }
  if (o->rule != MILL_WIDTH_GIVEN)
    MILL_CHECK(o->is_sphere ? rule_sphere(m, p) : rule_plane(o, rows, m, p));
  for (int a = 0; a < 2; a++)
    MILL_CHECK(make_axis(o, rows, m, a, p));
  const double n_cell = (double)p->n_cell[0] * p->n_cell[1];
  const int is_close = mill_map_nodes(p);
  p->form = o->how;
  if (o->how == MILL_HOW_AUTO)
    p->form = o->covariance || (!o->adaptive && (double)m->n * n_cell <= EXACT_COST)
                  ? MILL_MAP_EXACT
                  : (is_close ? MILL_MAP_NODES : MILL_MAP_CUT);
  if (o->adaptive)
    p->form = MILL_MAP_CUT;
  if (p->form == MILL_MAP_NODES && !is_close)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "--form binned: the kernel is too narrow for nodes over the map; "
                      "leave --form, give a narrower range or a larger --bandwidth");
  return MILL_OK;
}

/* ---- sums ---- */

typedef struct summing {
  const mill_map_ops *ops;
  const mill_map_plan *plan;
  mill_map *map;
  int64_t n_on_map;
  /* of local widths */
  const mill_map_plan *pilot_plan;
  double *pilot;
  double floor; /* a row's own part in the pilot */
  double *at;   /* [n_at] pilot at rows of a block */
  int64_t n_at;
  double log_sum, log_mean;
} summing;

static int64_t count_on_map(const mill_map_plan *p, int n, const double *const x[2])
{
  double low[2], high[2];
  int64_t n_on = 0;
  for (int a = 0; a < 2; a++) {
    const double half = 0.5 * mill_map_step(p, a);
    low[a] = p->low[a] - half;
    high[a] = p->high[a] + half;
  }
  for (int i = 0; i < n; i++) {
    double at = x[1][i];
    if (p->is_sphere)
      at -= 2.0 * MILL_PI * floor((at - low[1]) / (2.0 * MILL_PI));
    n_on += x[0][i] >= low[0] && x[0][i] <= high[0] && at >= low[1] && at <= high[1];
  }
  return n_on;
}

static int take_sums(void *context, int n, const double *const x[2])
{
  summing *s = context;
  s->ops->add(s->map, n, x, NULL);
  s->n_on_map += count_on_map(s->plan, n, x);
  return MILL_OK;
}

static int take_pilot(void *context, int n, const double *const x[2])
{
  summing *s = context;
  s->ops->add(s->map, n, x, NULL);
  return MILL_OK;
}

/* The pilot at the rows of a block. */
static int look_up(summing *s, int n, const double *const x[2])
{
  MILL_CHECK(MILL_GROW(&s->at, &s->n_at, n));
  mill_map_at(s->pilot_plan, s->pilot, n, x, s->at);
  for (int i = 0; i < n; i++)
    s->at[i] = fmax(s->at[i], s->floor);
  return MILL_OK;
}

static int take_logs(void *context, int n, const double *const x[2])
{
  summing *s = context;
  MILL_CHECK(look_up(s, n, x));
  for (int i = 0; i < n; i++)
    s->log_sum += log(s->at[i]);
  return MILL_OK;
}

/* Abramson's factors: the root of the pilot's geometric mean over the pilot. */
static int take_local(void *context, int n, const double *const x[2])
{
  summing *s = context;
  MILL_CHECK(look_up(s, n, x));
  for (int i = 0; i < n; i++)
    s->at[i] = exp(0.5 * (s->log_mean - log(s->at[i])));
  s->ops->add(s->map, n, x, s->at);
  s->n_on_map += count_on_map(s->plan, n, x);
  return MILL_OK;
}

/* A map over all rows, with a few cells in a width of the kernel. */
static void plan_pilot(const mill_map_plan *p, const moments *m, mill_map_plan *pilot)
{
  *pilot = *p;
  for (int a = 0; a < 2; a++) {
    const double width = sqrt(p->covariance[a][a]);
    const double low = p->is_sphere ? 0 : m->low[a] - MARGIN * width;
    const double high = p->is_sphere ? 2.0 * MILL_PI : m->high[a] + MARGIN * width;
    const double n = 2.0 * ceil(0.5 * PILOT_CELLS_A_WIDTH * (high - low) / width);
    pilot->n_cell[a] = (int)fmin(fmax(n, 16.0), MILL_PARTICLE_MAX_GRID);
    pilot->low[a] = low;
    pilot->high[a] = high;
  }
  if (p->is_sphere) { /* edges at the poles, and once around */
    pilot->n_cell[0] = pilot->n_cell[1] / 2;
    pilot->low[0] = MILL_PI * (0.5 / pilot->n_cell[0] - 0.5);
    pilot->high[0] = -pilot->low[0];
    pilot->high[1] = 2.0 * MILL_PI * (1.0 - 1.0 / pilot->n_cell[1]);
  }
  pilot->form = mill_map_nodes(pilot) ? MILL_MAP_NODES : MILL_MAP_CUT;
}

static int make_pilot(mill_density_rows *rows, summing *s)
{
  int err = MILL_OK;
  double bound;
  const mill_map_plan *p = s->pilot_plan;
  MILL_TRY(MILL_ALLOC((size_t)p->n_cell[0] * (size_t)p->n_cell[1], &s->pilot));
  MILL_TRY(s->ops->open(p, &s->map));
  MILL_TRY(mill_density_rows_pass(rows, take_pilot, s));
  s->ops->total(s->map, s->pilot, &bound);
  s->floor = mill_map_peak(p) / (double)rows->n_used;
  MILL_TRY(mill_density_rows_pass(rows, take_logs, s));
  s->log_mean = s->log_sum / (double)rows->n_used;
done:
  s->ops->close(s->map);
  s->map = NULL;
  return err;
}

static int sum_rows(const mill_density_options *o, mill_density_rows *rows, const moments *m,
                    mill_density_map *map)
{
  int err = MILL_OK;
  mill_map_plan pilot;
  summing s = {.ops = mill_map_ops_cpu(NULL), .plan = &map->plan, .pilot_plan = &pilot};
  if (!s.ops)
    MILL_FAIL(MILL_ERR_BACKEND, "this processor is too old");
  if (o->adaptive) {
    plan_pilot(&map->plan, m, &pilot);
    MILL_TRY(make_pilot(rows, &s));
  }
  MILL_TRY(MILL_ALLOC((size_t)map->plan.n_cell[0] * (size_t)map->plan.n_cell[1], &map->density));
  MILL_TRY(s.ops->open(&map->plan, &s.map));
  MILL_TRY(mill_density_rows_pass(rows, o->adaptive ? take_local : take_sums, &s));
  s.ops->total(s.map, map->density, &map->facts.bound);
  map->facts.n_on_map = s.n_on_map;
done:
  if (s.ops)
    s.ops->close(s.map);
  MILL_FREE(s.pilot, s.at);
  return err;
}

/* ---- what is drawn ---- */

/* By the rule of midpoints, along declinations too: away from the poles its error falls faster than
 * any power of the cells' size. */
static double integral(const mill_map_plan *p, const double *density)
{
  const double step[2] = {mill_map_step(p, 0), mill_map_step(p, 1)};
  double sum = 0;
  for (int i = 0; i < p->n_cell[0]; i++) {
    const double y = p->low[0] + i * step[0];
    const double area = step[0] * step[1] * (p->is_sphere ? cos(y) : 1.0);
    for (int j = 0; j < p->n_cell[1]; j++)
      sum += area * density[(size_t)i * (size_t)p->n_cell[1] + (size_t)j];
  }
  return sum;
}

static void reverse(double *density, const int n_cell[2], int along_x)
{
  const int n = n_cell[0], m = n_cell[1], n_row = along_x ? n : n / 2;
  for (int i = 0; i < n_row; i++)
    for (int j = 0; j < (along_x ? m / 2 : m); j++) {
      double *a = density + (size_t)i * (size_t)m + (size_t)j;
      double *b = along_x ? density + (size_t)i * (size_t)m + (size_t)(m - 1 - j)
                          : density + (size_t)(n - 1 - i) * (size_t)m + (size_t)j;
      const double kept = *a;
      *a = *b;
      *b = kept;
    }
}

static void describe_axis(const mill_density_options *o, const mill_density_rows *rows,
                          const mill_map_plan *p, int x, mill_map_axis *axis)
{
  const int a = 1 - x; /* of the plan */
  const double unit = o->is_sphere ? MILL_PI / 180 : 1;
  const double low = p->low[a] / unit, high = p->high[a] / unit;
  snprintf(axis->column, sizeof axis->column, "%.127s", rows->name[a]);
  snprintf(axis->unit, sizeof axis->unit, "%s", rows->unit[a]);
  axis->n = p->n_cell[a];
  axis->first = o->reverse[x] ? high : low;
  axis->step = axis->n > 1 ? (high - low) / (axis->n - 1) : 1.0;
  axis->step = o->reverse[x] ? -axis->step : axis->step;
  axis->bandwidth = sqrt(p->covariance[a][a]) / unit;
}

static void describe(const mill_density_options *o, const mill_density_rows *rows,
                     mill_density_map *map)
{
  static const char *const rule[] = {"scott", "silverman", "given"};
  static const char *const form[] = {"exact", "binned", "cut"};
  mill_map_facts *f = &map->facts;
  f->is_sphere = o->is_sphere;
  f->is_adaptive = o->adaptive;
  f->rule = rule[o->rule];
  f->form = form[map->plan.form];
  f->covariance = map->plan.covariance[0][1];
  f->integral = integral(&map->plan, map->density);
  f->n_row = rows->n_row;
  f->n_used = rows->n_used;
  f->n_not_good = rows->n_not_good;
  f->n_nan = rows->n_nan;
  for (int x = 0; x < 2; x++) {
    describe_axis(o, rows, &map->plan, x, &f->axis[x]);
    if (o->reverse[x])
      reverse(map->density, map->plan.n_cell, x == 0);
  }
}

int mill_density_map_make(const mill_density_options *o, mill_density_rows *rows,
                          mill_density_map *map)
{
  int err = MILL_OK;
  moments m = {0};
  memset(map, 0, sizeof *map);
  MILL_TRY(plan_map(o, rows, &m, &map->plan));
  MILL_TRY(sum_rows(o, rows, &m, map));
  describe(o, rows, map);
done:
  if (err != MILL_OK) {
    mill_free(map->density);
    map->density = NULL;
  }
  return err;
}
