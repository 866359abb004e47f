/* SPDX-License-Identifier: BSD-3-Clause */
/** Rows of several files that are one object, by its name, identifier or position. */
#ifndef MILL_JOIN_H
#define MILL_JOIN_H

#include "io/catalog/catalog_row.h"
#include "src/ranks/exchange.h"

/** A row of a file's own index. */
typedef struct mill_join_part {
  int32_t file;
  int32_t n_exposure;
  int64_t row; /**< before joining */
} mill_join_part;

/** Where a row begins after joining. */
typedef struct mill_join_start {
  int64_t part, exposure; /**< into the parts; among all exposures of the catalog */
} mill_join_start;

/** Result of joining rows; the same on every rank, and of what grows with rows one copy a node.
 *
 *  Objects are identified by their name, or by TARGETID when they have none; a row with neither is
 *  joined with no other.  Objects nearer to each other than a radius are one as well, and so are
 *  those that such ones lie between.  The object's row stays where it appears first in the catalog
 *  and takes the exposures of the others, in catalog order.
 */
typedef struct mill_join {
  int n_file;
  int64_t *n_row_before;         /**< [n_file] */
  int64_t *row_start;            /**< [n_file + 1] first row of each file after joining */
  const mill_join_start *start;  /**< [n_row + 1], n_row = row_start[n_file] */
  const mill_join_part *part;    /**< [start[n_row].part] */
  mill_node_array starts, parts; /**< their memory */
} mill_join;

/** Join the rows of all files.  radius_arcsec: 0: not by position.  Collective: the files
 * [file_start, file_end) are this rank's, in the order of ranks.
 *
 *  index [file_end - file_start]  in/out  rows and exposures as they are after joining
 *  n_row, n_exposure [n_file]     out     of all files, after joining
 *
 *  MILL_ERR_MEMORY, MILL_ERR_MPI, MILL_ERR_RANGE. */
int mill_join_make(const mill_mpi *mpi, double radius_arcsec, int n_file, int file_start,
                   int file_end, mill_file_index *index, int64_t *n_row, int64_t *n_exposure,
                   mill_join **out);

void mill_join_free(mill_join *join); /* NULL is allowed */

#endif
