/* Maps on a CPU (kernels/particles/map.h).
 *
 * Compiled once per instruction set (MILL_ISA).  The rows of a block are cut into parts whose
 * number depends on the map alone, and sums over parts have one order, so the bits do not depend on
 * the threads. */
#include <string.h>

#include <omp.h>

#include "kernels/base/error.h"
#include "kernels/cpu/isa_map.h"
#include "kernels/cpu/kernel_sum.h"
#include "kernels/particles/sphere.h"

enum {
  PART_BYTES = 256 << 20, /* of the sums of all parts, about */
  MOST_PART = 16,
  LEAST_PART = 2
};

struct mill_map {
  mill_map_plan plan;
  mill_particle_setup setup; /* of a plane */
  mill_particle_kernel kernel;
  int n_part;
  size_t n_out;
  double *part;                /* [n_part][n_out] cells, or nodes */
  double *convolved[2];        /* of nodes of a plane: [n_cell[0]][most of n_node[1], n_cell[1]] */
  double *cosine[2], *sine[2]; /* [n_cell[a]] of a sphere's cells */
  double reach;                /* of MILL_MAP_CUT and a sphere, in widths */
  double least_scale;
  int64_t n_row;
  mill_kernel_work **work; /* [n_thread] */
  double **line;           /* [n_thread][n_cell[1] + 3 n_node[1]] */
  double *half[2];         /* cosine and sine [n_node[1]] of half an angle, from -pi on */
};

/* ---- memory ---- */

static void close_map(mill_map *m)
{
  if (!m)
    return;
  for (int t = 0; t < m->plan.n_thread; t++)
    MILL_FREE(m->work ? m->work[t] : NULL, m->line ? m->line[t] : NULL);
  MILL_FREE(m->part, m->convolved[0], m->convolved[1], m->cosine[0], m->cosine[1], m->sine[0],
            m->sine[1], m->work, m->line, m->half[0], m->half[1], m);
}

/* The plane as the engine of particles has it. */
static int make_plane(mill_map *m)
{
  int err = MILL_OK;
  const mill_map_plan *p = &m->plan;
  double cov[MILL_PARTICLE_DIM][MILL_PARTICLE_DIM] = {{0}};
  mill_particle_setup *s = &m->setup;
  s->n_dim = 2;
  for (int a = 0; a < 2; a++) {
    s->n_grid[a] = p->n_cell[a];
    s->n_node[a] = p->n_node[a];
    s->grid_low[a] = p->low[a];
    s->grid_high[a] = p->high[a];
    for (int e = 0; e < 2; e++)
      cov[a][e] = p->covariance[a][e];
    m->kernel.width[a] = sqrt(cov[a][a]);
  }
  mill_kernel_split(2, cov, &m->kernel);
  if (!m->kernel.is_there || (p->form != MILL_MAP_EXACT && cov[0][1] != 0.0))
    MILL_FAIL(MILL_ERR_RANGE, "no kernel has variances %g and %g with covariance %g here",
              cov[0][0], cov[1][1], cov[0][1]);
done:
  return err;
}

static int make_sphere(mill_map *m)
{
  int err = MILL_OK;
  const mill_map_plan *p = &m->plan;
  for (int a = 0; a < 2; a++) {
    const int n = p->n_cell[a];
    MILL_TRY(MILL_ALLOC(n, &m->cosine[a]));
    MILL_TRY(MILL_ALLOC(n, &m->sine[a]));
    for (int i = 0; i < n; i++) {
      const double x = p->low[a] + (n > 1 ? i * (p->high[a] - p->low[a]) / (n - 1) : 0.0);
      m->cosine[a][i] = cos(x);
      m->sine[a][i] = sin(x);
    }
  }
  const int n = p->form == MILL_MAP_NODES ? p->n_node[1] : 0;
  for (int k = 0; k < 2 && n > 0; k++) {
    MILL_TRY(MILL_ALLOC(n, &m->half[k]));
    for (int i = 0; i < n; i++) {
      const double x = MILL_PI * (i - n / 2) / n;
      m->half[k][i] = k == 0 ? cos(x) : sin(x);
    }
  }
done:
  return err;
}

static int open_map(const mill_map_plan *plan, mill_map **out)
{
  int err = MILL_OK;
  mill_map *m = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &m));
  m->plan = *plan;
  m->least_scale = 1.0;
  m->reach = plan->form == MILL_MAP_EXACT ? MILL_KERNEL_END : MILL_CUT_REACH;
  const int *n = plan->form == MILL_MAP_NODES ? plan->n_node : plan->n_cell;
  m->n_out = (size_t)n[0] * (size_t)n[1];
  MILL_TRY(plan->is_sphere ? make_sphere(m) : make_plane(m));
  const size_t n_part = PART_BYTES / (m->n_out * sizeof(double));
  m->n_part = n_part < LEAST_PART ? LEAST_PART : (n_part < MOST_PART ? (int)n_part : MOST_PART);
  MILL_TRY(MILL_ALLOC((size_t)m->n_part * m->n_out, &m->part));
  const int n_most = plan->n_node[1] > plan->n_cell[1] ? plan->n_node[1] : plan->n_cell[1];
  for (int k = 0; k < 2 && plan->form == MILL_MAP_NODES && !plan->is_sphere; k++)
    MILL_TRY(MILL_ALLOC((size_t)plan->n_cell[0] * (size_t)n_most, &m->convolved[k]));
  MILL_TRY(MILL_ALLOC(plan->n_thread, &m->work));
  MILL_TRY(MILL_ALLOC(plan->n_thread, &m->line));
  for (int t = 0; t < plan->n_thread; t++) {
    MILL_TRY(MILL_ALLOC(1, &m->work[t]));
    MILL_TRY(MILL_ALLOC((size_t)plan->n_cell[1] + 3 * (size_t)plan->n_node[1], &m->line[t]));
  }
  *out = m;
  m = NULL;
done:
  close_map(m);
  return err;
}

/* ---- kernels that end ---- */

/* Points from x - reach to x + reach of an axis. */
static int points_near(const mill_particle_setup *s, int a, double x, double reach, int *first)
{
  const double inverse = 1.0 / mill_grid_step(s, a);
  const double low = ceil((x - reach - s->grid_low[a]) * inverse);
  const double high = floor((x + reach - s->grid_low[a]) * inverse);
  *first = (int)fmin(fmax(low, 0.0), s->n_grid[a]);
  return (int)fmin(fmax(high + 1.0, 0.0), s->n_grid[a]) - *first;
}

/* Add the kernel of one row to the cells of a plane. */
static void cut_plane(const mill_map *m, double y, double x, double scale, double *line,
                      double *out)
{
  const mill_particle_setup *s = &m->setup;
  const double width[2] = {m->kernel.width[0] * scale, m->kernel.width[1] * scale};
  const double step = mill_grid_step(s, 1), inverse = 1.0 / width[1];
  int first[2], n[2];
  n[0] = points_near(s, 0, y, m->reach * width[0], &first[0]);
  n[1] = points_near(s, 1, x, m->reach * width[1], &first[1]);
  if (n[0] <= 0 || n[1] <= 0)
    return;
  const double at = s->grid_low[1] + first[1] * step - x;
  MILL_SIMD
  for (int j = 0; j < n[1]; j++) {
    const double u = (at + j * step) * inverse;
    line[j] = mill_kernel_factor(u);
  }
  for (int i = first[0]; i < first[0] + n[0]; i++) {
    const double u = (s->grid_low[0] + i * mill_grid_step(s, 0) - y) / width[0];
    const double factor = mill_kernel_factor(u) / (scale * scale);
    double *to = out + (size_t)i * (size_t)s->n_grid[1] + first[1];
    MILL_SIMD
    for (int j = 0; j < n[1]; j++)
      to[j] += factor * line[j];
  }
}

/* A kernel on the sphere. */
typedef struct spot {
  double xyz[3], ra, factor, steep; /* factor exp(-steep chord^2) */
} spot;

static void add_columns(const mill_map *m, const spot *k, int i, int first, int end, double *to)
{
  const double *cosine = m->cosine[1], *sine = m->sine[1];
  const double ring = m->cosine[0][i], x = k->xyz[0], y = k->xyz[1], z = m->sine[0][i] - k->xyz[2];
  const double factor = k->factor, steep = -k->steep, z2 = z * z;
  MILL_SIMD
  for (int j = first; j < end; j++) {
    const double dx = ring * cosine[j] - x, dy = ring * sine[j] - y;
    to[j] += factor * mill_exp_negative(steep * (dx * dx + dy * dy + z2));
  }
}

/* Add a kernel to the cells of one ring that are within half a turn's part of it. */
static void add_ring(const mill_map *m, const spot *k, int i, double half, double *out)
{
  const mill_map_plan *p = &m->plan;
  const int n = p->n_cell[1];
  const double step = mill_map_step(p, 1);
  double *to = out + (size_t)i * (size_t)n;
  if (!(half < MILL_PI)) {
    add_columns(m, k, i, 0, n, to);
    return;
  }
  const double turn = 2.0 * MILL_PI / step, wide = half / step;
  double at = (k->ra - p->low[1]) / step;
  at -= turn * floor((at + wide) / turn); /* the first that may end beyond the first column */
  for (; at - wide < n; at += turn) {
    const int first = (int)fmax(ceil(at - wide), 0.0);
    const int end = (int)fmin(floor(at + wide) + 1.0, n);
    if (first < end)
      add_columns(m, k, i, first, end, to);
  }
}

/* How far a chord reaches along a ring: its haversine is that of the declinations, up^2, and the
 * product of their cosines times that along. */
static double half_width(double chord, double up, double cosines)
{
  const double left = 0.25 * chord * chord - up * up;
  return left < cosines ? 2.0 * asin(sqrt(fmax(left, 0.0) / cosines)) : MILL_PI;
}

/* Add the kernel of one row to the cells of a sphere. */
static void cut_sphere(const mill_map *m, double dec, double ra, double scale, double *out)
{
  const mill_map_plan *p = &m->plan;
  const int n = p->n_cell[0];
  const double width = sqrt(p->covariance[0][0]), h = width * scale;
  const double chord = fmin(m->reach * h, 2.0), reach = 2.0 * asin(0.5 * chord);
  const double step = mill_map_step(p, 0);
  const spot k = {.xyz = {cos(dec) * cos(ra), cos(dec) * sin(ra), sin(dec)},
                  .ra = ra,
                  .factor = scale == 1.0 ? 1.0 : mill_sphere_peak(h) / mill_sphere_peak(width),
                  .steep = 0.5 / (h * h)};
  const int first = (int)fmax(ceil((dec - reach - p->low[0]) / step), 0.0);
  const int end = (int)fmin(floor((dec + reach - p->low[0]) / step) + 1.0, n);
  for (int i = first; i < end; i++) {
    const double up = sin(0.5 * (p->low[0] + i * step - dec));
    add_ring(m, &k, i, half_width(chord, up, cos(dec) * m->cosine[0][i]), out);
  }
}

/* ---- rows ---- */

static void spread_sphere(const mill_map *m, int n, const double *dec, const double *ra,
                          double *nodes)
{
  int at[16];
  double weight[16];
  for (int i = 0; i < n; i++) {
    mill_sphere_stencil(m->plan.n_node[0], m->plan.n_node[1], m->plan.low[1], dec[i], ra[i], at,
                        weight);
    for (int k = 0; k < 16; k++)
      nodes[at[k]] += weight[k];
  }
}

/* The rows of a part in batches of the engine. */
static void add_plane(const mill_map *m, int n, const double *const x[2], mill_kernel_work *work,
                      double *out)
{
  mill_particle_batch batch = {.weight = work->weight, .work = work};
  for (int first = 0; first < n; first += MILL_PARTICLE_BATCH) {
    batch.n = n - first < MILL_PARTICLE_BATCH ? n - first : MILL_PARTICLE_BATCH;
    for (int a = 0; a < 2; a++) {
      batch.x[a] = work->x[a];
      memcpy(work->x[a], x[a] + first, (size_t)batch.n * sizeof(double));
    }
    for (int i = 0; i < batch.n; i++)
      work->weight[i] = 1.0;
    if (m->plan.form == MILL_MAP_EXACT)
      mill_kernel_sum(&m->setup, &m->kernel, &batch, out);
    else
      mill_kernel_spread(&m->setup, &m->kernel, &batch, out);
  }
}

static void add_part(const mill_map *m, int n, const double *const x[2], const double *scale,
                     double *out)
{
  const int thread = omp_get_thread_num();
  if (m->plan.form == MILL_MAP_NODES && m->plan.is_sphere) {
    spread_sphere(m, n, x[0], x[1], out);
  } else if (m->plan.is_sphere) {
    for (int i = 0; i < n; i++)
      cut_sphere(m, x[0][i], x[1][i], scale ? scale[i] : 1.0, out);
  } else if (m->plan.form == MILL_MAP_CUT) {
    for (int i = 0; i < n; i++)
      cut_plane(m, x[0][i], x[1][i], scale ? scale[i] : 1.0, m->line[thread], out);
  } else {
    add_plane(m, n, x, m->work[thread], out);
  }
}

static void add_rows(mill_map *m, int n, const double *const x[2], const double *scale)
{
  for (int i = 0; scale && i < n; i++)
    m->least_scale = fmin(m->least_scale, scale[i]);
  m->n_row += n;
#pragma omp parallel for schedule(dynamic, 1) num_threads(m->plan.n_thread)
  for (int p = 0; p < m->n_part; p++) {
    const int first = (int)((int64_t)n * p / m->n_part);
    const int end = (int)((int64_t)n * (p + 1) / m->n_part);
    const double *const from[2] = {x[0] + first, x[1] + first};
    add_part(m, end - first, from, scale ? scale + first : NULL, m->part + (size_t)p * m->n_out);
  }
}

/* ---- the map ---- */

/* What a block function takes. */
typedef struct task {
  mill_map *m;
  double *density, factor;
} task;

static void body_sum(mill_block *b, void *argument)
{
  task *t = argument;
  const mill_map *m = t->m;
  mill_block_sum_parts(b, m->n_part, (int)m->n_out, t->factor, m->part,
                       m->plan.form == MILL_MAP_NODES ? m->part : t->density);
}

/* out [m][n] from in [n][m]. */
static void transpose(int n, int m, const double *in, double *out)
{
  for (int i = 0; i < n; i++)
    for (int j = 0; j < m; j++)
      out[(size_t)j * (size_t)n + (size_t)i] = in[(size_t)i * (size_t)m + (size_t)j];
}

/* Each axis as the slow one, so that an exponential serves a whole line. */
static void body_slow_axis(mill_block *b, void *argument)
{
  const task *t = argument;
  const mill_map *m = t->m;
  mill_block_convolve(b, &m->setup, &m->kernel, 0, 1, m->plan.n_node[1], m->part, m->convolved[0]);
}

static void body_fast_axis(mill_block *b, void *argument)
{
  const task *t = argument;
  const mill_map *m = t->m;
  mill_block_convolve(b, &m->setup, &m->kernel, 1, 1, m->plan.n_cell[0], m->convolved[1],
                      m->convolved[0]);
}

/* The nodes of a ring as seen from one row of cells. */
typedef struct ring {
  double up, cosines; /* as in half_width */
  int n, first;       /* nodes in reach, the first of them counted from a cell */
  double *kernel;     /* [n] from a cell that is part of a step beyond a node */
  double *node;       /* [n + all of a ring] from the first one in reach of the first cell */
} ring;

static void ring_kernel(const mill_map *m, const ring *r, double part)
{
  const int n_node = m->plan.n_node[1];
  const double *cosine = m->half[0] + n_node / 2 + r->first,
               *sine = m->half[1] + n_node / 2 + r->first;
  const double steep = -2.0 / m->plan.covariance[0][0];
  const double c = cos(MILL_PI * part / n_node), s = sin(MILL_PI * part / n_node);
  MILL_SIMD
  for (int j = 0; j < r->n; j++) {
    const double along = sine[j] * c - cosine[j] * s;
    r->kernel[j] = mill_exp_negative(steep * (r->up * r->up + r->cosines * along * along));
  }
}

/* Add a ring of nodes to the cells of a row. */
static void ring_to_row(const mill_map *m, const double *from, ring *r, double *to)
{
  const mill_map_plan *p = &m->plan;
  const int n_node = p->n_node[1];
  const double ratio = mill_map_step(p, 1) * n_node / (2.0 * MILL_PI);
  double part = -1.0;
  for (int j = 0; j < n_node + r->n; j++)
    r->node[j] = from[(j + r->first + n_node) % n_node];
  for (int c = 0; c < p->n_cell[1]; c++) {
    const double at = c * ratio + 1e-9; /* 1e-9: rounding below a whole number */
    const double beyond = fmax(at - floor(at) - 1e-9, 0.0);
    const double *node = r->node + (int)at % n_node;
    double sum = 0.0;
    if (fabs(beyond - part) > 1e-8) { /* else as of the last cell */
      part = beyond < 1e-8 ? 0.0 : beyond;
      ring_kernel(m, r, part);
    }
    MILL_SIMD_SUM(sum)
    for (int j = 0; j < r->n; j++)
      sum += r->kernel[j] * node[j];
    to[c] += sum;
  }
}

/* All nodes in reach of a row of cells. */
static void sphere_row(const mill_map *m, int i, double *line, double *to)
{
  const mill_map_plan *p = &m->plan;
  const int n_ring = p->n_node[0], n_node = p->n_node[1];
  const double dec = p->low[0] + i * (p->high[0] - p->low[0]) / (p->n_cell[0] - 1);
  const double chord = fmin(m->reach * sqrt(p->covariance[0][0]), 2.0);
  ring r = {.kernel = line, .node = line + n_node};
  memset(to, 0, (size_t)p->n_cell[1] * sizeof *to);
  for (int k = 0; k < n_ring; k++) {
    const double of_ring = ((k + 0.5) / n_ring - 0.5) * MILL_PI;
    r.up = sin(0.5 * (of_ring - dec));
    if (2.0 * fabs(r.up) > chord)
      continue;
    r.cosines = cos(of_ring) * fmax(cos(dec), 0.0);
    const int reach = (int)(half_width(chord, r.up, r.cosines) * n_node / (2.0 * MILL_PI)) + 2;
    r.n = 2 * reach + 1 < n_node ? 2 * reach + 1 : n_node;
    r.first = 2 * reach + 1 < n_node ? -reach : -(n_node / 2);
    ring_to_row(m, m->part + (size_t)k * (size_t)n_node, &r, to);
  }
}

/* From nodes to cells. */
static void total_of_nodes(mill_map *m, double *density)
{
  const int n_row = m->plan.n_cell[0], n_column = m->plan.n_cell[1];
  if (!m->plan.is_sphere) {
    task all = {.m = m};
    mill_block_run(body_slow_axis, &all);
    transpose(n_row, m->plan.n_node[1], m->convolved[0], m->convolved[1]);
    mill_block_run(body_fast_axis, &all);
    transpose(n_column, n_row, m->convolved[0], density);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(m->plan.n_thread)
  for (int i = 0; i < n_row; i++)
    sphere_row(m, i, m->line[omp_get_thread_num()], density + (size_t)i * (size_t)n_column);
}

static void total(mill_map *m, double *density, double *bound)
{
  const mill_map_plan *p = &m->plan;
  const double peak = mill_map_peak(p), end = exp(-0.5 * m->reach * m->reach);
  task t = {.m = m, .density = density, .factor = peak / (double)m->n_row};
  mill_block_run(body_sum, &t);
  *bound = 0.0;
  if (p->form == MILL_MAP_CUT)
    *bound = end * (p->is_sphere ? mill_sphere_peak(sqrt(p->covariance[0][0]) * m->least_scale)
                                 : peak / (m->least_scale * m->least_scale));
  if (p->form != MILL_MAP_NODES)
    return;
  total_of_nodes(m, density);
  /* 25/16: sum of the sizes of a row's weights, at most */
  if (p->is_sphere)
    *bound = peak * (mill_sphere_bound(p->n_node[0], p->n_node[1], sqrt(p->covariance[0][0])) +
                     25.0 / 16.0 * end);
  else
    *bound = peak * mill_node_bound(&m->setup, &m->kernel);
}

const mill_map_ops MILL_ISA_SYMBOL(mill_map_ops_cpu) = {open_map, add_rows, total, close_map};
