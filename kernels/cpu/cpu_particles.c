/* SPDX-License-Identifier: BSD-3-Clause */
/* The particle engine on a CPU: drives the block functions of kernels/particles.
 *
 * Compiled once per instruction set (MILL_ISA), and once with fibers for the checking build.  A
 * problem's particles are cut into parts, whose number depends on the setup alone.  Parts are
 * summed in a fixed order, so results do not depend on the number of threads. */
#include <string.h>

#include <omp.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/kernel_sum.h"

enum {
  FULL_PART = 4096, /* particles of a part, about */
  MOST_PART = 64,
  PART_BYTES = 32 << 20, /* most memory of the densities of a problem's parts, about */
  AT_ONCE_BYTES = 256 << 20
};

/* A problem with its arrays. */
typedef struct cloud {
  mill_particle_cloud c;
  mill_particle_kernel kernel;
  double *grid_part; /* [n_part][n_out] sums at grid points, or nodes */
  double *work[2];   /* [n_out] nodes convolved along some axes */
  mill_particle_result *result;
} cloud;

typedef struct engine {
  const mill_particle_setup *setup;
  int n_cloud, n_part, n_grid, n_out, n_thread;
  cloud *cloud;
  mill_kernel_work **work; /* [n_thread] */
} engine;

/* Arguments of a block function. */
typedef struct task {
  engine *e;
  cloud *cloud;
  int part, i_record;
  int step, n_step; /* steps [step, step + n_step) of body_move */
} task;

static int points(const mill_particle_setup *s, const int *n)
{
  int all = 1;
  for (int a = 0; a < s->n_dim; a++)
    all *= n[a];
  return all;
}

static void free_clouds(engine *e)
{
  for (int i = 0; e->cloud && i < e->n_cloud; i++)
    MILL_FREE(e->cloud[i].c.x, e->cloud[i].c.alive, e->cloud[i].c.sums, e->cloud[i].grid_part,
              e->cloud[i].work[0], e->cloud[i].work[1]);
  for (int i = 0; e->work && i < e->n_thread; i++)
    mill_free(e->work[i]);
  MILL_FREE(e->cloud, e->work);
}

/* Allocate n clouds (one problem's particles each) and the threads' work space, for free_clouds. */
static int make_clouds(engine *e, int n)
{
  const mill_particle_setup *s = e->setup;
  const size_t n_particle = (size_t)s->n_particle, n_part = (size_t)e->n_part;
  MILL_CHECK(MILL_ALLOC(n, &e->cloud));
  e->n_cloud = n;
  for (int i = 0; i < n; i++) {
    cloud *c = &e->cloud[i];
    MILL_CHECK(MILL_ALLOC((size_t)s->n_dim * n_particle, &c->c.x));
    MILL_CHECK(MILL_ALLOC(n_particle, &c->c.alive));
    MILL_CHECK(MILL_ALLOC(MILL_PARTICLE_STRIDE * n_part * MILL_PARTICLE_SUMS, &c->c.sums));
    MILL_CHECK(MILL_ALLOC(n_part * (size_t)e->n_out, &c->grid_part));
    for (int w = 0; w < 2 && s->form == MILL_DENSITY_BINNED; w++)
      MILL_CHECK(MILL_ALLOC(e->n_out, &c->work[w]));
  }
  MILL_CHECK(MILL_ALLOC(e->n_thread, &e->work));
  for (int i = 0; i < e->n_thread; i++)
    MILL_CHECK(MILL_ALLOC(1, &e->work[i]));
  return MILL_OK;
}

static void body_move(mill_block *b, void *argument)
{
  task *t = argument;
  mill_particle_cloud c = t->cloud->c; /* a copy: c.sums points to the current step's row */
  for (int i = 0; i < t->n_step; i++, c.sums += c.n_part * MILL_PARTICLE_SUMS)
    mill_block_particles(b, &c, t->part, t->step + i);
}

/* Exact form: sum the kernels of a part's particles at grid points.  Binned form: spread the
 * particles over nodes.  A periodic or reflecting axis adds images of the particles. */
static void body_density(mill_block *b, void *argument)
{
  task *t = argument;
  cloud *c = t->cloud;
  const mill_particle_setup *s = t->e->setup;
  mill_kernel_work *work = t->e->work[omp_get_thread_num()];
  mill_particle_batch batch = {.weight = work->weight, .work = work};
  const int begin = mill_particle_first(&c->c, t->part);
  const int end = mill_particle_first(&c->c, t->part + 1);
  double *out = c->grid_part + (size_t)t->part * (size_t)t->e->n_out;
  for (int a = 0; a < s->n_dim; a++)
    batch.x[a] = work->x[a];
  MILL_FOR(b, i, t->e->n_out)
  out[i] = 0.0;
  for (int image = 0; image < c->kernel.n_all_image; image++)
    for (int first = begin; first < end; first += MILL_PARTICLE_BATCH) {
      batch.n = end - first < MILL_PARTICLE_BATCH ? end - first : MILL_PARTICLE_BATCH;
      mill_block_batch(b, &c->c, &c->kernel, image, first, batch.n, &batch);
      MILL_SERIAL(b)
      {
        if (s->form == MILL_DENSITY_EXACT)
          mill_kernel_sum(s, &c->kernel, &batch, out);
        else
          mill_kernel_spread(s, &c->kernel, &batch, out);
      }
      MILL_BARRIER(b);
    }
}

/* Set the cloud's density to the sum of its parts; NaN if the cloud has no width.  In the binned
 * form the sum is at nodes: convolve it to grid points, axis by axis, in the arrays c->work. */
static void body_total(mill_block *b, void *argument)
{
  task *t = argument;
  cloud *c = t->cloud;
  const mill_particle_setup *s = t->e->setup;
  double *out = c->result->density + (size_t)t->i_record * (size_t)t->e->n_grid;
  if (!c->kernel.is_there) {
    MILL_FOR(b, i, t->e->n_grid)
    out[i] = NAN;
  } else if (s->form == MILL_DENSITY_EXACT) {
    mill_block_sum_parts(b, t->e->n_part, t->e->n_out, c->kernel.peak, c->grid_part, out);
  } else {
    mill_block_sum_parts(b, t->e->n_part, t->e->n_out, c->kernel.peak, c->grid_part, c->work[0]);
    int n_row = points(s, s->n_node), n_inner = 1; /* shape: [n_row][axis a][n_inner] */
    for (int a = s->n_dim - 1; a >= 0; a--) {
      double *from = c->work[(s->n_dim - 1 - a) % 2], *to = c->work[(s->n_dim - a) % 2];
      n_row /= s->n_node[a];
      mill_block_convolve(b, s, &c->kernel, a, n_row, n_inner, from, a > 0 ? to : out);
      n_inner *= s->n_grid[a];
    }
  }
}

/* Make steps [step, step + n_step) of all clouds; step 0 places the particles at their start.  All
 * steps of a part are made before the next part's steps, while the part is in the cache. */
static void move_all(engine *e, int step, int n_step)
{
  const int n = e->n_cloud * e->n_part;
#pragma omp parallel for schedule(static) num_threads(e->n_thread)
  for (int i = 0; i < n; i++) {
    task t = {.e = e,
              .cloud = &e->cloud[i / e->n_part],
              .part = i % e->n_part,
              .step = step,
              .n_step = n_step};
    if (t.cloud->c.bad_step < 0)
      mill_block_run(body_move, &t);
  }
  for (int i = 0; i < e->n_cloud; i++)
    mill_particle_settle(&e->cloud[i].c, step, n_step,
                         e->cloud[i].result->moment + (size_t)step * MILL_PARTICLE_MOMENTS);
}

/* Compute density i_record of all clouds after a step: parts first, then their sums. */
static void densities(engine *e, int step, int i_record)
{
  const mill_particle_setup *s = e->setup;
  const int n = e->n_cloud * e->n_part;
  for (int i = 0; i < e->n_cloud; i++) {
    cloud *c = &e->cloud[i];
    const double *moment = c->result->moment + (size_t)step * MILL_PARTICLE_MOMENTS;
    mill_kernel_make(s, moment, &c->kernel);
    c->result->bound[i_record] = mill_density_bound(s, &c->kernel, moment, 0);
  }
#pragma omp parallel num_threads(e->n_thread)
  {
#pragma omp for schedule(static)
    for (int i = 0; i < n; i++) {
      task t = {.e = e, .cloud = &e->cloud[i / e->n_part], .part = i % e->n_part};
      if (t.cloud->kernel.is_there)
        mill_block_run(body_density, &t);
    }
#pragma omp for schedule(static)
    for (int i = 0; i < e->n_cloud; i++) {
      task t = {.e = e, .cloud = &e->cloud[i], .i_record = i_record};
      mill_block_run(body_total, &t);
    }
  }
}

/* Copy bad_step and positions [n_particle][n_dim] to the results. */
static void hand_over(const engine *e)
{
  const size_t n = (size_t)e->setup->n_particle, n_dim = (size_t)e->setup->n_dim;
  for (int i = 0; i < e->n_cloud; i++) {
    const cloud *c = &e->cloud[i];
    c->result->bad_step = c->c.bad_step;
    for (size_t p = 0; c->result->position && p < n; p++)
      for (size_t a = 0; a < n_dim; a++)
        c->result->position[p * n_dim + a] =
            c->c.bad_step < 0 && c->c.alive[p] > 0 ? c->c.x[a * n + p] : NAN;
  }
}

/* Make all steps, MILL_PARTICLE_STRIDE or fewer at a time; densities follow steps in s->record. */
static void run(engine *e)
{
  const mill_particle_setup *s = e->setup;
  for (int step = 0, i_record = 0; step <= s->n_step;) {
    const int until = i_record < s->n_record ? s->record[i_record] : s->n_step;
    const int n = until - step + 1 < MILL_PARTICLE_STRIDE ? until - step + 1 : MILL_PARTICLE_STRIDE;
    move_all(e, step, n);
    step += n;
    if (i_record < s->n_record && s->record[i_record] == step - 1)
      densities(e, step - 1, i_record++);
  }
  hand_over(e);
}

/* mill_particle_ops.evolve: cut clouds into parts; run problems together up to AT_ONCE_BYTES. */
static int evolve(const mill_particle_setup *s, int n_problem, const mill_particle_problem *problem,
                  mill_particle_result *result)
{
  MILL_AT_END(free_clouds) engine e = {.setup = s, .n_thread = s->n_thread > 0 ? s->n_thread : 1};
  e.n_grid = points(s, s->n_grid);
  e.n_out = e.n_grid;
  if (s->form == MILL_DENSITY_BINNED) /* the largest array between two convolutions */
    for (int a = 0, n = points(s, s->n_node); a < s->n_dim; a++) {
      e.n_out = n > e.n_out ? n : e.n_out;
      n = n / s->n_node[s->n_dim - 1 - a] * s->n_grid[s->n_dim - 1 - a];
    }
  /* Parts have at most FULL_PART particles.  If MOST_PART or PART_BYTES allows fewer parts, the
   * parts are larger; PART_BYTES leaves at least 4 parts. */
  const int wanted = (s->n_particle + FULL_PART - 1) / FULL_PART;
  const int most = (int)(PART_BYTES / ((size_t)e.n_out * sizeof(double)));
  const int part = wanted < MOST_PART ? wanted : MOST_PART;
  e.n_part = part < most ? part : (int)fmax(most, 4);
  const size_t bytes = sizeof(double) * ((size_t)(s->n_dim + 1) * (size_t)s->n_particle +
                                         (size_t)(e.n_part + 2) * (size_t)e.n_out);
  const int n_once = (int)fmax(1, fmin((double)(AT_ONCE_BYTES / bytes), n_problem));
  MILL_CHECK(make_clouds(&e, n_once));
  for (int first = 0; first < n_problem; first += n_once) {
    const int n = n_problem - first < n_once ? n_problem - first : n_once;
    engine now = e; /* the last round may have fewer clouds; free_clouds frees all clouds of e */
    now.n_cloud = n;
    for (int i = 0; i < n; i++) {
      mill_particle_cloud_begin(&now.cloud[i].c, s, &problem[first + i], now.n_part);
      now.cloud[i].result = &result[first + i];
    }
    run(&now);
  }
  return MILL_OK;
}

const mill_particle_ops MILL_ISA_SYMBOL(mill_particle_ops_cpu) = {MILL_ISA_NAME, evolve};
