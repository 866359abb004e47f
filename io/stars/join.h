/* SPDX-License-Identifier: BSD-3-Clause */
/** Join rows that are one object by name, TARGETID or position. */
#pragma once

#include "io/catalog/prior_table.h"
#include "io/catalog/start_table.h"
#include "src/ranks/exchange.h"

/** A row of a file before joining. */
typedef struct mill_join_part {
  int32_t file;
  int32_t n_exposure;
  int64_t row; /**< of the file */
} mill_join_part;

/** The user's tables of starts and of priors; NULL: not given. */
typedef struct mill_star_tables {
  const mill_start_table *start;
  const mill_prior_table *priors;
} mill_star_tables;

/** A star's rows in these tables, as mill_start_table_find and mill_prior_table_find give them. */
typedef struct mill_star_entries {
  int64_t start, prior;
} mill_star_entries;

/** Where a joined row begins in the lists of parts and exposures, and what its parts give. */
typedef struct mill_join_start {
  int64_t part;              /**< index of its first part */
  int64_t exposure;          /**< number of its first exposure in the catalog */
  mill_star_entries entries; /**< start and priors, each of the first part that has one */
  int is_extragalactic;
} mill_join_start;

/** The joined rows; equal on all ranks, with one copy of the large arrays per node.
 *
 *  Rows with the same name are one object; so are rows without a name but with the same TARGETID.
 *  Objects within a radius of each other are one object, too; so are objects linked by others in
 *  between.  An object's first row takes the exposures of its other rows, in catalog order. */
typedef struct mill_join {
  int64_t *n_row_before;         /**< [n_file] rows of each file before joining */
  int64_t *row_start;            /**< [n_file + 1] first row of each file after joining */
  const mill_join_start *start;  /**< [n_row + 1], n_row = row_start[n_file] */
  const mill_join_part *part;    /**< [start[n_row].part] */
  mill_node_array starts, parts; /**< memory of start and part */
  unsigned char *found;          /**< listed stars with a row (see mill_star_list_has), owned */
} mill_join;

/** Join the rows of all files.  This rank has the files [file_start, file_end).  Collective.
 *
 *  radius_arcsec                  in      0: do not join by position
 *  stars                          in      keep only objects with a listed row; NULL: keep all
 *  tables, path [n_file]          in      tables in which to find each row; paths of the files
 *  index [file_end - file_start]  in/out  rows and exposures, before and after joining
 *  n_row, n_exposure [n_file]     out     counts of all files after joining
 *
 *  MILL_ERR_MEMORY, MILL_ERR_MPI, MILL_ERR_RANGE; MILL_ERR_CONFIG as mill_star_entries_find. */
int mill_join_make(const mill_mpi *mpi, double radius_arcsec, const mill_star_list *stars,
                   const mill_star_tables *tables, const char *const *path, int n_file,
                   int file_start, int file_end, mill_file_index *index, int64_t *n_row,
                   int64_t *n_exposure, mill_join **out);

/** Find a star of the file at path in the tables.  MILL_ERR_CONFIG: two rows have its position. */
static inline int mill_star_entries_find(const mill_star_tables *tables, const char *path,
                                         const mill_catalog_row *star, mill_star_entries *out)
{
  *out = (mill_star_entries){-MILL_START_ABSENT, -1};
  if (tables->start)
    MILL_CHECK(mill_start_table_find(tables->start, path, star, &out->start));
  return tables->priors ? mill_prior_table_find(tables->priors, star, &out->prior) : MILL_OK;
}

void mill_join_free(mill_join *join); /* NULL is allowed */
