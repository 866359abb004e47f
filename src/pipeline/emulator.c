/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/pipeline/emulator.h"

#include <omp.h>

#include "kernels/base/memory.h"
#include "kernels/math/hull.h"
#include "kernels/math/rbf.h"
#include "kernels/math/spline_grid.h"

/** Multiply by one layer; threads share blocks of its outputs. */
static int layer_product(const mill_lanes_layer *task, int n_thread)
{
  const int n_block = (task->n_out + MILL_LANES_BLOCK - 1) / MILL_LANES_BLOCK;
  const size_t n_weight = (size_t)MILL_LANES_PIXELS * (size_t)task->n_in;
  MILL_OWNED double *weight = NULL;
  MILL_CHECK(MILL_ALLOC((size_t)n_thread * n_weight, &weight));
#pragma omp parallel for schedule(static) num_threads(n_thread)
  for (int block = 0; block < n_block; block++)
    mill_lanes_layer_block(task, block, weight + (size_t)omp_get_thread_num() * n_weight);
  return MILL_OK;
}

/** Compute the first layer's input x: mapped labels, or output of a spline grid or of an RBF. */
static void emulator_front(const mill_library *lib, const mill_emulator *e, const double *label,
                           double *x)
{
  double mapped[MILL_MAX_LABEL];
  mill_block block = {0};
  for (int l = 0; l < lib->n_label; l++)
    mapped[l] = mill_label_map(&lib->label[l], label[l]);
  if (e->kind == MILL_EMULATOR_GRID)
    mill_block_spline_grid(&block, &e->grid, 0, mapped, 0, x, 0);
  else if (e->kind == MILL_EMULATOR_RBF)
    mill_block_rbf(&block, &e->rbf, 0, mapped, 0, x, 0);
  else
    memcpy(x, mapped, (size_t)lib->n_label * sizeof *x);
}

/* Evaluate the network by layers.  A mill_lanes has numbers of MILL_LANE spectra, 4 to a vector. */
int mill_emulator_lanes(const mill_library *lib, int i_arm, int n, const double *label,
                        int n_thread, mill_lanes *flux)
{
  const mill_emulator *e = &lib->arm[i_arm].emulator;
  const int n_group = (n + MILL_LANE - 1) / MILL_LANE, n_front = e->n_in[0];
  MILL_OWNED mill_lanes *y = NULL, *x = NULL;
  MILL_OWNED double *front = NULL;
  MILL_CHECK(MILL_ALLOC((size_t)n_group * MILL_MAX_WIDTH, &x));
  MILL_CHECK(MILL_ALLOC((size_t)n_group * MILL_MAX_WIDTH, &y));
  MILL_CHECK(MILL_ALLOC((size_t)n * MILL_MAX_WIDTH, &front));
#pragma omp parallel for schedule(static) num_threads(n_thread)
  for (int t = 0; t < n; t++)
    emulator_front(lib, e, label + (size_t)t * (size_t)lib->n_label,
                   front + (size_t)t * MILL_MAX_WIDTH);
  for (int t = 0; t < n; t++)
    for (int k = 0; k < n_front; k++)
      x[t / MILL_LANE * n_front + k].v[t % MILL_LANE / 4][t % 4] =
          front[(size_t)t * MILL_MAX_WIDTH + (size_t)k];
  for (int l = 0; l < e->n_layer; l++) {
    const int last = l == e->n_layer - 1;
    const mill_lanes_activation after_last = e->log_flux ? MILL_LANES_EXP : MILL_LANES_NONE;
    const mill_lanes_layer task = {.n_in = e->n_in[l],
                                   .n_out = e->n_out[l],
                                   .n_group = n_group,
                                   .activation = last ? after_last : MILL_LANES_SILU,
                                   .weight = e->weight[l],
                                   .bias = e->bias[l],
                                   .in = x,
                                   .out = last ? flux : y};
    MILL_CHECK(layer_product(&task, n_thread));
    mill_lanes *swap = x;
    x = y;
    y = swap;
  }
  return MILL_OK;
}
