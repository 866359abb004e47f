/* SPDX-License-Identifier: BSD-3-Clause */
/** Shared by the reader and the writer of grid files. */
#ifndef MILL_GRID_PARTS_H
#define MILL_GRID_PARTS_H

#define MILL_GRID_FORMAT "starmill grid"
enum { MILL_GRID_VERSION = 1, MILL_GRID_AT = 48 };

/** "arms/arm2/flux", without name "arms/arm2" */
void mill_grid_at(char at[MILL_GRID_AT], int arm, const char *name);

#endif
