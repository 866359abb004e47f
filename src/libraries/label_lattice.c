/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/label_lattice.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/math/hull.h"
#include "src/libraries/limits.h"
#include "src/libraries/quantile.h"

#define SAME_NODE 1e-6 /* of a label's range */
enum { MAX_NAMED = 3 };

void mill_label_lattice_clear(mill_label_lattice *lattice)
{
  if (!lattice)
    return;
  for (int l = 0; l < MILL_MAX_GRID_AXIS; l++)
    mill_free(lattice->node[l]);
  mill_free(lattice->model);
  memset(lattice, 0, sizeof *lattice);
}

/* Distinct values of label l, in lattice->node[l]. */
static int find_nodes(const mill_library *lib, int n, const double *mapped, int l,
                      mill_label_lattice *lattice)
{
  int err = MILL_OK, n_node = 0;
  double *sorted = NULL;
  MILL_TRY(MILL_ALLOC(n, &sorted));
  for (int i = 0; i < n; i++)
    sorted[i] = mapped[(size_t)i * (size_t)lib->n_label + (size_t)l];
  mill_sort((size_t)n, sorted);
  const double same = SAME_NODE * (sorted[n - 1] - sorted[0]);
  for (int i = 0; i < n; i++)
    if (n_node == 0 || sorted[i] - sorted[n_node - 1] > same)
      sorted[n_node++] = sorted[i];
  if (n_node > MILL_MAX_GRID_NODE)
    MILL_FAIL(MILL_ERR_INPUT,
              "label %s has %d values in %d models; a grid has %d at most: use --emulator radial "
              "or network for scattered labels",
              lib->label[l].name, n_node, n, MILL_MAX_GRID_NODE);
  lattice->n_node[l] = n_node;
  lattice->node[l] = sorted;
  sorted = NULL;
done:
  mill_free(sorted);
  return err;
}

static int nearest_node(int n, const double *node, double x)
{
  int low = 0, high = n - 1;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (x >= node[middle])
      low = middle;
    else
      high = middle;
  }
  return fabs(x - node[low]) <= fabs(x - node[high]) ? low : high;
}

int mill_label_lattice_find(const mill_library *lib, int n, const double *mapped,
                            const char (*name)[64], mill_label_lattice *lattice)
{
  int err = MILL_OK;
  double size = 1;
  memset(lattice, 0, sizeof *lattice);
  MILL_TRY(
      mill_expect_within(MILL_ERR_INPUT, "labels of a grid", lib->n_label, 1, MILL_MAX_GRID_AXIS));
  lattice->n_axis = lib->n_label;
  for (int l = 0; l < lib->n_label; l++) {
    MILL_TRY(find_nodes(lib, n, mapped, l, lattice));
    size *= lattice->n_node[l];
  }
  if (size > 2.0 * n)
    MILL_FAIL(MILL_ERR_INPUT,
              "%d models at %.0f nodes of a grid: more than half of them are missing; take "
              "--emulator radial or network for scattered labels",
              n, size);
  lattice->n_all = (int)size;
  MILL_TRY(MILL_ALLOC(lattice->n_all, &lattice->model));
  for (int i = 0; i < lattice->n_all; i++)
    lattice->model[i] = -1;
  for (int i = 0; i < n; i++) {
    int at = 0;
    for (int l = 0; l < lib->n_label; l++)
      at = at * lattice->n_node[l] +
           nearest_node(lattice->n_node[l], lattice->node[l],
                        mapped[(size_t)i * (size_t)lib->n_label + (size_t)l]);
    if (lattice->model[at] >= 0)
      MILL_FAIL(MILL_ERR_INPUT, "models %s and %s have the same labels; leave one of them out",
                name[lattice->model[at]], name[i]);
    lattice->model[at] = i;
  }
  lattice->n_gap = lattice->n_all - n;
done:
  if (err != MILL_OK)
    mill_label_lattice_clear(lattice);
  return err;
}

/* Nodes from one to the next along a label. */
static int stride_of(const mill_label_lattice *lattice, int l)
{
  int stride = 1;
  for (int m = lattice->n_axis - 1; m > l; m--)
    stride *= lattice->n_node[m];
  return stride;
}

static int coordinate(const mill_label_lattice *lattice, int i_node, int l)
{
  return i_node / stride_of(lattice, l) % lattice->n_node[l];
}

int mill_label_lattice_refuse_gaps(const mill_library *lib, const mill_label_lattice *lattice)
{
  int n_named = 0;
  char text[512] = "";
  if (lattice->n_gap == 0)
    return MILL_OK;
  for (int i = 0; i < lattice->n_all && n_named < MAX_NAMED; i++) {
    if (lattice->model[i] >= 0)
      continue;
    size_t used = strlen(text);
    for (int l = 0; l < lattice->n_axis && used < sizeof text; l++) {
      const double x = lattice->node[l][coordinate(lattice, i, l)];
      snprintf(text + used, sizeof text - used, "%s%s %.6g", l ? " " : (n_named ? "; " : ""),
               lib->label[l].name, mill_label_unmap(&lib->label[l], x));
      used = strlen(text);
    }
    n_named++;
  }
  return MILL_ERROR(
      MILL_ERR_INPUT,
      "%d of %d nodes of the grid have no model (%s%s); --gaps fill fills them from their "
      "neighbours, --emulator radial and network need no grid",
      lattice->n_gap, lattice->n_all, text, n_named < lattice->n_gap ? "; ..." : "");
}

int mill_label_lattice_next(const mill_label_lattice *lattice, int i_node, int l, int step)
{
  const int at = coordinate(lattice, i_node, l) + step;
  return at < 0 || at >= lattice->n_node[l] ? -1 : i_node + step * stride_of(lattice, l);
}

int mill_label_lattice_is_inner(const mill_label_lattice *lattice, int i_node)
{
  for (int l = 0; l < lattice->n_axis; l++)
    for (int step = -1; step <= 1 && lattice->n_node[l] > 2; step += 2) {
      const int next = mill_label_lattice_next(lattice, i_node, l, step);
      if (next < 0 || lattice->model[next] < 0)
        return 0;
    }
  return 1;
}

/* ---- gaps ----------------------------------------------------------------------------------- */

/* The nearest two nodes with values from a node on, along a label; how many there are. */
static int look(const mill_label_lattice *lattice, const unsigned char *known, int i_node, int l,
                int step, int found[2])
{
  int n = 0;
  for (int at = mill_label_lattice_next(lattice, i_node, l, step); at >= 0 && n < 2;
       at = mill_label_lattice_next(lattice, at, l, step))
    if (known[at])
      found[n++] = at;
  return n;
}

/* Add factor times the polynomial through n nodes of a line, at node i_node, to out. */
static void add_line(const mill_label_lattice *lattice, int l, int i_node, int n, const int *from,
                     double factor, int n_out, const double *value, double *out)
{
  const double *x = lattice->node[l], at = x[coordinate(lattice, i_node, l)];
  for (int i = 0; i < n; i++) {
    double weight = factor;
    for (int j = 0; j < n; j++)
      if (j != i)
        weight *= (at - x[coordinate(lattice, from[j], l)]) /
                  (x[coordinate(lattice, from[i], l)] - x[coordinate(lattice, from[j], l)]);
    for (int k = 0; k < n_out; k++)
      out[k] += weight * value[(size_t)from[i] * (size_t)n_out + (size_t)k];
  }
}

/* Nodes with values around a node along a label, at least one on either side: how many, else 0. */
static int look_around(const mill_label_lattice *lattice, const unsigned char *known, int i_node,
                       int l, int most, int from[4])
{
  int below[2], above[2], n = 2;
  const int n_below = look(lattice, known, i_node, l, -1, below);
  const int n_above = look(lattice, known, i_node, l, 1, above);
  if (n_below == 0 || n_above == 0)
    return 0;
  from[0] = below[0];
  from[1] = above[0];
  if (n_below > 1 && n < most)
    from[n++] = below[1];
  if (n_above > 1 && n < most)
    from[n++] = above[1];
  return n;
}

/* Between others, by the lines with most nodes of up to `most`: the sum of their weights, 0 where
   it is between none. */
static double interpolate(const mill_label_lattice *lattice, const unsigned char *known, int i_node,
                          int most, int n_out, const double *value, double *out)
{
  double sum = 0;
  int from[MILL_MAX_GRID_AXIS][4], n[MILL_MAX_GRID_AXIS], best = 0;
  for (int l = 0; l < lattice->n_axis; l++) {
    n[l] = look_around(lattice, known, i_node, l, most, from[l]);
    best = n[l] > best ? n[l] : best;
  }
  for (int l = 0; l < lattice->n_axis && best > 0; l++) {
    if (n[l] < best)
      continue;
    const int steps = coordinate(lattice, from[l][1], l) - coordinate(lattice, from[l][0], l);
    const double weight = 1.0 / ((double)steps * steps);
    add_line(lattice, l, i_node, n[l], from[l], weight, n_out, value, out);
    sum += weight;
  }
  return sum;
}

/* Next to a node with a value, on lines of n_line nodes with values: the number of such lines. */
static double continue_lines(const mill_label_lattice *lattice, const unsigned char *known,
                             int i_node, int n_line, int n_out, const double *value, double *out)
{
  double sum = 0;
  for (int l = 0; l < lattice->n_axis; l++)
    for (int step = -1; step <= 1; step += 2) {
      const int next = mill_label_lattice_next(lattice, i_node, l, step);
      int from[2];
      if (next < 0 || !known[next] || look(lattice, known, i_node, l, step, from) < n_line)
        continue;
      add_line(lattice, l, i_node, n_line, from, 1, n_out, value, out);
      sum += 1;
    }
  return sum;
}

int mill_label_lattice_fill(const mill_label_lattice *lattice, int cubic, int n_out, double *value)
{
  int err = MILL_OK;
  unsigned char *known = NULL, *next = NULL;
  const size_t n_all = (size_t)lattice->n_all, width = (size_t)n_out;
  int n_left = lattice->n_gap;
  MILL_TRY(MILL_ALLOC(n_all, &known));
  MILL_TRY(MILL_ALLOC(n_all, &next));
  for (size_t i = 0; i < n_all; i++)
    next[i] = lattice->model[i] >= 0;
  for (int way = 0; n_left > 0;) { /* between others, by lines through two, by single ones */
    int n_filled = 0;
    memcpy(known, next, n_all);
    for (int i = 0; i < lattice->n_all; i++) {
      double *out = value + (size_t)i * width;
      if (known[i])
        continue;
      memset(out, 0, width * sizeof *out);
      const double sum = way == 0 ? interpolate(lattice, known, i, cubic ? 4 : 2, n_out, value, out)
                                  : continue_lines(lattice, known, i, 3 - way, n_out, value, out);
      if (!(sum > 0))
        continue;
      for (size_t k = 0; k < width; k++)
        out[k] /= sum;
      next[i] = 1;
      n_filled++;
    }
    n_left -= n_filled;
    way = n_filled > 0 ? 0 : way + 1;
  }
done:
  MILL_FREE(known, next);
  return err;
}
