/* SPDX-License-Identifier: BSD-3-Clause */
/** Convolution by tiles, groups of neighbouring outputs away from the ends of a row.  The kernel is
 *  a rotation kernel (kernels/star/blocks/template.h) or a resolution matrix (resolution.h there).
 *
 *  Each backend's convolve_tile.h (kernels/math/primitives.h) defines
 *   MILL_ROTATE_TILE, MILL_RESOLVE_TILE  outputs of a tile
 *   MILL_ROTATE_ANYWHERE                 1: a rotation's tile may begin at any output
 *   mill_tiles_first(half)               begin of the first tile, at `half` or later
 *   mill_resolve_most(n, n_diag, first)  number of resolution tiles from first on, in a row of n
 *   mill_resolve_shift(n_diag)           offset of the matrix's input rows from a 16-byte
 *                                        boundary, in elements
 *   mill_rotate_tile                     convolves x with a symmetric kernel [half + 1]
 *   mill_resolve_tile                    multiplies nr rows by the matrix; `in` points at the input
 *                                        that the first diagonal takes for the first output */
#pragma once

#include "kernels/math/real.h"

/** Rows that share one pass over the matrix elements. */
enum { MILL_RESOLVE_ROWS = 4 };

#include MILL_PRIMITIVES_CONVOLVE
