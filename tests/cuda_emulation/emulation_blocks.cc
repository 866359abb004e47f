/* SPDX-License-Identifier: BSD-3-Clause */
/* The threads of a block as fibers, the blocks of a grid one after the other. */
#include <cstdio>
#include <sys/mman.h>

#include "tests/fiber/fiber_switch.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/cuda_emulation/emulation_parts.h"

mill_emu_index mill_emu_thread_idx, mill_emu_block_idx;
dim3 mill_emu_block_dim, mill_emu_grid_dim;

void mill_emu_stop(const char *what)
{
  fprintf(stderr, "cuda emulation: %s\n", what);
  abort();
}

/* ---- random order ---- */

static unsigned random_state = 1;

size_t mill_emu_random(size_t n)
{
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  random_state ^= random_state << 5;
  return (size_t)((uint64_t)random_state * n >> 32);
}

namespace
{

/* ---- threads of a block ---- */

enum { MAX_THREAD = 1024, WARP = 32, EXCHANGE = 64 };
/* without colours the tops of all stacks, whole pages apart, would share a few lines of cache */
const size_t STACK_BYTES = (size_t)96 << 10, COLOUR_BYTES = 7 * 64, N_COLOUR = 32;

enum fiber_state { AT_BLOCK, AT_WARP, ENDED };

/* Fibers live on from block to block: making one costs more than running it. */
struct fiber {
  mill_fiber_place here;
  bool made;
  fiber_state state;
  unsigned n_exchange;
};

fiber fibers[MAX_THREAD];
unsigned char exchange[MAX_THREAD / WARP][2][WARP * EXCHANGE];
int current;
mill_fiber_place scheduler;
const std::function<void()> *body;

void to_scheduler(fiber *f)
{
  mill_fiber_switch(&f->here, &scheduler);
}

void fiber_main()
{
  for (;;) {
    (*body)();
    fibers[current].state = ENDED;
    to_scheduler(&fibers[current]);
  }
}

void make(fiber *f)
{
  const size_t bytes = STACK_BYTES + (size_t)(f - fibers) % N_COLOUR * COLOUR_BYTES;
  void *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED)
    mill_emu_stop("no memory for a thread");
  mill_fiber_make(&f->here, stack, bytes, fiber_main);
  f->made = true;
}

void to_fiber(int id)
{
  fiber *f = &fibers[id];
  current = id;
  mill_emu_thread_idx = {(unsigned)id, 0, 0};
  if (!f->made)
    make(f);
  mill_fiber_switch(&scheduler, &f->here);
}

void wait_at(fiber_state what)
{
  fiber *f = &fibers[current];
  f->state = what;
  to_scheduler(f);
}

/** Run a warp until all of its lanes wait for the block, or have ended. */
void run_warp(int warp)
{
  for (;;) {
    int n_ended = 0, n_at_block = 0;
    for (int i = warp * WARP; i < (warp + 1) * WARP; i++) {
      to_fiber(i);
      n_ended += fibers[i].state == ENDED;
      n_at_block += fibers[i].state == AT_BLOCK;
    }
    if (n_ended == WARP || n_at_block == WARP)
      return;
    if (n_ended + n_at_block > 0)
      mill_emu_stop("lanes of a warp wait at different barriers, or some have ended");
  }
}

void run_block(int n)
{
  if (n < 1 || n > MAX_THREAD || n % WARP != 0)
    mill_emu_stop("a block must be made of whole warps, 1024 threads at most");
  const int n_warp = n / WARP;
  for (int i = 0; i < n; i++)
    fibers[i].n_exchange = 0;
  for (;;) {
    int n_ended = 0;
    for (int w = 0; w < n_warp; w++) {
      run_warp(w);
      n_ended += fibers[w * WARP].state == ENDED;
    }
    if (n_ended == n_warp)
      return;
    if (n_ended > 0)
      mill_emu_stop("some warps of a block wait at a barrier, others have ended");
  }
}

} // namespace

void mill_emu_run_grid(dim3 grid, dim3 block, const std::function<void()> &thread)
{
  if (block.y != 1 || block.z != 1)
    mill_emu_stop("blocks of one dimension only");
  mill_emu_block_dim = block;
  mill_emu_grid_dim = grid;
  body = &thread;
  for (unsigned z = 0; z < grid.z; z++)
    for (unsigned y = 0; y < grid.y; y++)
      for (unsigned x = 0; x < grid.x; x++) {
        mill_emu_block_idx = {x, y, z};
        run_block((int)block.x);
      }
}

void __syncthreads()
{
  wait_at(AT_BLOCK);
}

void __syncwarp(unsigned mask)
{
  if (mask != 0xffffffffu)
    mill_emu_stop("whole warps only");
  wait_at(AT_WARP);
}

const unsigned char *mill_emu_exchange(const void *mine, size_t bytes)
{
  /* two buffers in turn: a lane that writes the first one again has passed the barrier of the
   * second, before which every lane had read the first */
  fiber *f = &fibers[current];
  const unsigned id = (unsigned)current;
  unsigned char *all = exchange[id / WARP][f->n_exchange++ % 2];
  memcpy(all + id % WARP * EXCHANGE, mine, bytes);
  wait_at(AT_WARP);
  return all;
}
