/* What maps are planned with, and looked up in. */
#include "kernels/particles/map.h"

#include <math.h>

#include "kernels/particles/sphere.h"

/* Rings of nodes: where the columns of the map divide a turn, so that a whole number of nodes
 * stands between two columns, and all of them see the nodes in the same way. */
static int sphere_nodes(mill_map_plan *p)
{
  const double h = sqrt(p->covariance[0][0]), n_ring = ceil(MILL_PI * MILL_SKY_NODES_A_WIDTH / h);
  const double turn = 2.0 * MILL_PI * (p->n_cell[1] - 1) / (p->high[1] - p->low[1]);
  double n_around = 2.0 * n_ring;
  if (fabs(turn - rint(turn)) < 1e-6) {
    const double times = ceil(n_around / rint(turn));
    n_around = times * rint(turn);
    n_around += fmod(n_around, 2.0) * rint(turn);
  }
  if (!(n_ring * n_around <= MILL_SKY_MAX_NODES))
    return 0;
  p->n_node[0] = (int)fmax(n_ring, 8.0);
  p->n_node[1] = (int)fmax(n_around, 16.0);
  return 1;
}

int mill_map_nodes(mill_map_plan *p)
{
  p->n_node[0] = p->n_node[1] = 0;
  if (p->is_sphere)
    return sphere_nodes(p);
  int is_close = 1;
  for (int a = 0; a < 2; a++) {
    const double width = sqrt(p->covariance[a][a]);
    const double all = (p->high[a] - p->low[a]) / width + 2.0 * MILL_KERNEL_REACH;
    p->n_node[a] = (int)fmin(ceil(all * MILL_MAP_NODES_A_WIDTH) + 5.0, MILL_MAP_MAX_NODE);
    is_close = is_close && 8.0 * all <= p->n_node[a] - 5;
  }
  return is_close;
}

double mill_map_step(const mill_map_plan *p, int a)
{
  if (p->n_cell[a] > 1)
    return (p->high[a] - p->low[a]) / (p->n_cell[a] - 1);
  return p->is_sphere ? (a + 1) * MILL_PI : 0.0;
}

double mill_map_peak(const mill_map_plan *p)
{
  const double(*c)[2] = p->covariance;
  if (p->is_sphere)
    return mill_sphere_peak(sqrt(c[0][0]));
  return 0.5 / (MILL_PI * sqrt(c[0][0] * c[1][1] - c[0][1] * c[1][0]));
}

void mill_map_at(const mill_map_plan *p, const double *density, int n, const double *const x[2],
                 double *out)
{
  double inverse[2];
  for (int a = 0; a < 2; a++)
    inverse[a] = p->n_cell[a] > 1 ? (p->n_cell[a] - 1) / (p->high[a] - p->low[a]) : 1.0;
  for (int i = 0; i < n; i++) {
    double sum = 0.0, weight[16], part[2][4];
    int at[16], is_inside = 1;
    if (p->is_sphere) {
      mill_sphere_stencil(p->n_cell[0], p->n_cell[1], p->low[1], x[0][i], x[1][i], at, weight);
    } else {
      int first[2] = {0};
      for (int a = 0; a < 2; a++) {
        const double u = (x[a][i] - p->low[a]) * inverse[a];
        is_inside &= mill_node_find(u, p->n_cell[a], &first[a], part[a]);
      }
      for (int k = 0; k < 16; k++) {
        at[k] = (first[0] + k / 4) * p->n_cell[1] + first[1] + k % 4;
        weight[k] = part[0][k / 4] * part[1][k % 4];
      }
    }
    for (int k = 0; k < 16 && is_inside; k++)
      sum += weight[k] * density[at[k]];
    out[i] = sum > 0.0 ? sum : 0.0;
  }
}
