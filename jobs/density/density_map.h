/** From rows to a map: moments, bandwidth, edges, local widths, sums. */
#ifndef MILL_DENSITY_MAP_H
#define MILL_DENSITY_MAP_H

#include "io/particles/map_file.h"
#include "jobs/density/density_rows.h"
#include "kernels/particles/map.h"

/** A map as it is drawn: reversed axes stand reversed in density and facts. */
typedef struct mill_density_map {
  mill_map_plan plan;
  mill_map_facts facts;
  double *density; /**< [plan.n_cell[0]][plan.n_cell[1]], for mill_free */
} mill_density_map;

/** Make the map; command and input of the facts are left to the caller.  Warns in the log of a
 *  bandwidth far below a cell.
 *
 *  MILL_ERR_INPUT where no row is left, and what reading fails with; MILL_ERR_CONFIG where rows
 * give no width; MILL_ERR_MEMORY. */
int mill_density_map_make(const mill_density_options *options, mill_density_rows *rows,
                          mill_density_map *map);

#endif
