/* SPDX-License-Identifier: BSD-3-Clause */
/** The exports of a result: a product for each of its inputs, or one table of all. */
#ifndef MILL_PRODUCTS_H
#define MILL_PRODUCTS_H

#include <stdint.h>

#include "src/ranks/mpi_context.h"

/** Request of an export; texts are borrowed. */
typedef struct mill_products {
  const char *result;
  const char *models;     /**< for rvmod; NULL: none */
  const char *output;     /**< folder of rvtab and rvmod, made if needed; the file of the table */
  const char *tab_prefix; /**< before an input's name: "rvtab-"; NULL: no rvtab */
  const char *mod_prefix; /**< "rvmod-"; NULL: no rvmod; without either: the table of all */
  int has_subfolders;     /**< in the last two folders of each input's path */
  int has_fibermap;       /**< tables of the inputs are copied */
  int overwrite;          /**< replace exports of other results, and write all again */
} mill_products;

typedef struct mill_product_counts {
  int64_t n_row;              /**< exported rows of the result */
  int64_t n_written, n_there; /**< files; there: complete, and not older than the result */
  int64_t n_failed;           /**< inputs whose file is gone or has changed */
  int64_t n_unread;           /**< inputs that could not be read when they were fitted */
} mill_product_counts;

/** Make the folder of products if needed, and check that it can be written.  Not collective.
 *  MILL_ERR_OUTPUT; option: "--output". */
int mill_products_folder(const char *folder, const char *option);

/** Write them; ranks share the inputs.  Collective; counts are those of all ranks.
 *
 *  An input that is gone or has changed costs its own products, with a line in the log.  A product
 *  that is whole and not older than the result stays; one of the same result before it was
 *  continued is replaced.
 *
 *  MILL_ERR_USAGE: not a finished result; two inputs would have one product, or a product would lie
 *  outside the folder.  MILL_ERR_OUTPUT: the product of another result is there (all others are
 *  written before), or one cannot be written; MILL_ERR_STOPPED, MILL_ERR_MEMORY, MILL_ERR_MPI. */
int mill_products_write(const mill_mpi *mpi, const mill_products *want,
                        mill_product_counts *counts);

/** Check that no two inputs [n] have one product, and that none lies outside the folder.
 *  MILL_ERR_USAGE names it. */
int mill_products_check_names(int n, const char *const *input, int has_subfolders);

#endif
