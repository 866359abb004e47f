/* SPDX-License-Identifier: BSD-3-Clause */
/** Evolutions for tests: a setup without anything unusual, and memory for the results. */
#pragma once

#include "tests/mill_test.h"

#include "kernels/particles/particles.h"

enum { MAX_PROBLEM = 3, LAST = -1 };

typedef struct evolution {
  mill_particle_setup s;
  mill_particle_problem problem[MAX_PROBLEM];
  mill_particle_result result[MAX_PROBLEM];
  int n_problem, n_grid, record[1];
} evolution;

/** Set up one problem: n particles start at the origin and diffuse (D = 1) without forces, on open
 *  axes, in n_step steps of dt.  The grid of the density at the end has 41 points from -4 to 4 on
 *  the first axis, and one point on the others. */
static inline void evolution_init(evolution *e, int n_dim, int n, int n_step, double dt)
{
  memset(e, 0, sizeof *e);
  e->n_problem = 1;
  e->s.n_dim = n_dim;
  e->s.n_particle = n;
  e->s.n_step = n_step;
  e->s.step = dt;
  e->s.seed = 20261123;
  e->s.n_thread = 1;
  e->s.n_record = 1;
  e->record[0] = n_step;
  e->s.record = e->record;
  for (int a = 0; a < MILL_PARTICLE_DIM; a++) {
    e->s.n_grid[a] = e->s.n_node[a] = 1;
    e->s.grid_low[a] = -4;
    e->s.grid_high[a] = 4;
  }
  e->s.n_grid[0] = 41;
  e->s.n_node[0] = 512;
  for (int i = 0; i < MAX_PROBLEM; i++) {
    e->problem[i].id = (uint64_t)(17 + i);
    e->problem[i].diffusion = 1;
  }
}

static inline void evolution_end(evolution *e)
{
  for (int i = 0; i < MAX_PROBLEM; i++) {
    free(e->result[i].density);
    free(e->result[i].moment);
    free(e->result[i].position);
    free(e->result[i].bound);
  }
  memset(e->result, 0, sizeof e->result);
}

/** Run e on an engine and return the engine's code; frees the results of an earlier run. */
static inline int evolution_try(evolution *e, const mill_particle_ops *ops)
{
  e->s.record = e->record;
  e->n_grid = e->s.n_grid[0] * e->s.n_grid[1] * e->s.n_grid[2];
  assert_non_null(ops);
  assert_ok(mill_particle_check_setup(&e->s));
  evolution_end(e);
  for (int i = 0; i < e->n_problem; i++) {
    mill_particle_result *r = &e->result[i];
    assert_ok(mill_particle_check_problem(&e->s, &e->problem[i]));
    r->density = calloc((size_t)e->n_grid, sizeof(double));
    r->bound = calloc(1, sizeof(double));
    r->moment = calloc((size_t)(e->s.n_step + 1) * MILL_PARTICLE_MOMENTS, sizeof(double));
    r->position = calloc((size_t)e->s.n_particle * (size_t)e->s.n_dim, sizeof(double));
    assert_true(r->density && r->bound && r->moment && r->position);
  }
  return ops->evolve(&e->s, e->n_problem, e->problem, e->result);
}

static inline void evolution_run_by(evolution *e, const mill_particle_ops *ops)
{
  assert_ok(evolution_try(e, ops));
}

static inline void evolution_run(evolution *e)
{
  evolution_run_by(e, mill_particle_ops_cpu(NULL));
}

/** Problem i of a and problem k of b have the same results. */
static inline void assert_same_bits(const evolution *a, int i, const evolution *b, int k)
{
  const size_t n_moment = (size_t)(a->s.n_step + 1) * MILL_PARTICLE_MOMENTS;
  const size_t n_position = (size_t)(a->s.n_particle * a->s.n_dim);
  const mill_particle_result *x = &a->result[i], *y = &b->result[k];
  assert_memory_equal(x->position, y->position, n_position * sizeof(double));
  assert_memory_equal(x->density, y->density, (size_t)a->n_grid * sizeof(double));
  assert_memory_equal(x->moment, y->moment, n_moment * sizeof(double));
}

/** Moments of the first problem after a step (LAST: the last one). */
static inline const double *evolution_moment(const evolution *e, int step)
{
  return e->result[0].moment + (size_t)(step == LAST ? e->s.n_step : step) * MILL_PARTICLE_MOMENTS;
}
