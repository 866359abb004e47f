/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fiber/fiber.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/fiber/fiber_switch.h"

enum { MAX_FIBER = 32, STACK = 512 * 1024 };

typedef struct fiber_set {
  mill_fiber_place main, fiber[MAX_FIBER];
  mill_block block[MAX_FIBER];
  int ended[MAX_FIBER];
  int current;
  void (*body)(mill_block *, void *);
  void *arg;
} fiber_set;

static int n_fiber = 7;
static unsigned seed_state = 1;
static _Thread_local fiber_set *running;

void mill_fiber_configure(int n, unsigned seed)
{
  n_fiber = n < 1 ? 1 : (n > MAX_FIBER ? MAX_FIBER : n);
  seed_state = seed | 1u;
}

void mill_fiber_barrier(mill_block *b)
{
  fiber_set *set = running;
  mill_fiber_switch(&set->fiber[b->id], &set->main);
}

static void entry(void)
{
  fiber_set *set = running;
  const int id = set->current;
  set->body(&set->block[id], set->arg);
  set->ended[id] = 1;
  mill_fiber_switch(&set->fiber[id], &set->main); /* for good */
}

static unsigned next_random(unsigned *state)
{
  *state ^= *state << 13;
  *state ^= *state >> 17;
  *state ^= *state << 5;
  return *state;
}

static void *checked(void *p)
{
  if (!p) {
    fprintf(stderr, "fiber: out of memory\n");
    abort();
  }
  return p;
}

void mill_block_run(void (*body)(mill_block *, void *), void *arg)
{
  const int n = n_fiber;
  fiber_set *set = checked(calloc(1, sizeof *set));
  double *sums = checked(calloc((size_t)n * MILL_BLOCK_MAX_SUM, sizeof *sums));
  char *stacks = checked(malloc((size_t)n * STACK));
  unsigned state = seed_state;
  set->body = body;
  set->arg = arg;
  for (int i = 0; i < n; i++) {
    set->block[i].id = i;
    set->block[i].n = n;
    set->block[i].sums = sums;
    mill_fiber_make(&set->fiber[i], stacks + (size_t)i * STACK, STACK, entry);
  }
  int n_ended = 0;
  while (n_ended < n) {
    int order[MAX_FIBER];
    for (int i = 0; i < n; i++)
      order[i] = i;
    for (int i = n - 1; i > 0; i--) {
      const int j = (int)(next_random(&state) % (unsigned)(i + 1)), swap = order[i];
      order[i] = order[j];
      order[j] = swap;
    }
    for (int i = 0; i < n; i++) {
      set->current = order[i];
      running = set;
      mill_fiber_switch(&set->main, &set->fiber[order[i]]);
    }
    n_ended = 0;
    for (int i = 0; i < n; i++)
      n_ended += set->ended[i];
    if (n_ended != 0 && n_ended != n) {
      fprintf(stderr, "fiber: %d of %d fibers ended while the others wait at a barrier\n", n_ended,
              n);
      abort();
    }
  }
  free(stacks);
  free(sums);
  free(set);
}
