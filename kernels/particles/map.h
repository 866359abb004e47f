/** Maps: the density of rows that come in blocks, so that their number does not count in memory.
 *
 *  The kernels are those of kernels/particles/density.h, on a plane or on a sphere.  On the sphere
 *  a kernel is exp(-c^2 / (2 h^2)), c being the chord between two places, which is von Mises and
 *  Fisher's density of concentration 1 / h^2 (Hall, Watson & Cabrera 1987, Biometrika 74, 751).
 */
#ifndef MILL_MAP_H
#define MILL_MAP_H

#include "kernels/particles/density.h"

MILL_EXTERN_C_BEGIN

enum mill_map_form {
  MILL_MAP_EXACT = 0, /**< the sum over all rows */
  MILL_MAP_NODES,     /**< rows are spread over nodes first */
  MILL_MAP_CUT        /**< kernels end at MILL_CUT_REACH widths; each row may have its own width */
};

/** Widths of a kernel at which MILL_MAP_CUT ends it: there it is 2.3e-11 of its peak. */
#define MILL_CUT_REACH 7.0

/** Nodes of a kernel's width that the nodes of a map should have, where there is room for them. */
enum {
  MILL_MAP_NODES_A_WIDTH = 16,
  MILL_SKY_NODES_A_WIDTH = 10,
  MILL_MAP_MAX_NODE = 4096,
  MILL_SKY_MAX_NODES = 1 << 24 /**< of all rings */
};

/** A map.  Axis 0 is the slow one, of y or declination, axis 1 that of x or right ascension. */
typedef struct mill_map_plan {
  int is_sphere;
  int form;                /**< enum mill_map_form */
  int n_cell[2];           /**< 1 to MILL_PARTICLE_MAX_GRID */
  double low[2], high[2];  /**< centres of the first and the last cell; sphere: radians */
  double covariance[2][2]; /**< of the kernel; sphere: [0][0] is h^2, in radians^2.  Only the
                            *   exact form on a plane has covariances */
  int n_node[2];           /**< of MILL_MAP_NODES, by mill_map_nodes */
  int n_thread;
} mill_map_plan;

typedef struct mill_map mill_map;

typedef struct mill_map_ops {
  /** plan is copied.  MILL_ERR_MEMORY; MILL_ERR_RANGE for covariances that make no kernel. */
  int (*open)(const mill_map_plan *plan, mill_map **out);
  /** Add rows: x[0] [n] of axis 0, x[1] [n] of axis 1, all finite; declinations within a right
   *  angle.  scale [n]: widths of their kernels in units of the plan's, of MILL_MAP_CUT; NULL: 1.
   */
  void (*add)(mill_map *map, int n, const double *const x[2], const double *scale);
  /** The density [n_cell[0]][n_cell[1]] of the rows so far, whose integral over the whole plane or
   *  sphere is 1, in 1 / (unit of x times unit of y) or 1 / steradian.
   *
   *  bound  out  no value is further from the sum over all rows than this, but for rounding */
  void (*total)(mill_map *map, double *density, double *bound);
  /** NULL is allowed. */
  void (*close)(mill_map *map);
} mill_map_ops;

/** The maps of the CPU's instruction set of that name, NULL: the best that runs here. */
const mill_map_ops *mill_map_ops_cpu(const char *isa);

/** Nodes for a plan of which all but n_node and form is known: 1 where they are close enough for
 *  MILL_MAP_NODES, 8 a width or more on a plane and 10 on a sphere; else they are not to be used.
 */
int mill_map_nodes(mill_map_plan *plan);

/** A map's density at n places by cubic interpolation between cells, not below 0; beyond the outer
 *  cells but one it is 0.  On a sphere the map must be that of the whole, with an even number of
 *  columns, its cells' edges at the poles.  x as in mill_map_ops. */
void mill_map_at(const mill_map_plan *plan, const double *density, int n, const double *const x[2],
                 double *out);

/** From one cell to the next along axis a; of one cell alone 0, or on a sphere all there is. */
double mill_map_step(const mill_map_plan *plan, int a);

/** Density of one kernel at its centre. */
double mill_map_peak(const mill_map_plan *plan);

MILL_EXTERN_C_END

#endif
