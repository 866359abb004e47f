/* SPDX-License-Identifier: BSD-3-Clause */
/** Tiles (groups of neighbouring outputs) of the convolution by rotation and by the resolution
 *  matrix (template.h and resolution.h of kernels/star/blocks), away from the ends of a row.  Each
 *  backend's convolve_tile.h (kernels/math/primitives.h) defines
 *
 *   MILL_ROTATE_TILE, MILL_RESOLVE_TILE  outputs of a tile
 *   MILL_ROTATE_ANYWHERE                 1: a rotation's tile may begin at any output
 *   mill_tiles_first(half)               begin of the first tile, at `half` or later
 *   mill_resolve_most(n, n_diag, first)  number of resolution tiles from first on, in rows of n
 *   mill_resolve_shift(n_diag)           elements by which rows that the resolution matrix
 *                                        multiplies begin after a multiple of 16 bytes
 *   mill_rotate_tile                     to [MILL_ROTATE_TILE] = x convolved with a symmetric
 *                                        kernel [half + 1]
 *   mill_resolve_tile                    to = matrix times a tile of nr rows; in: row 0's input
 *                                        for the first output and the first diagonal */
#pragma once

#include "kernels/math/real.h"

/** Rows that share one pass over the matrix elements. */
enum { MILL_RESOLVE_ROWS = 4 };

#include MILL_PRIMITIVES_CONVOLVE
