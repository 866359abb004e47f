/** A result opened for those who look at single rows or columns, also while a run writes it.
 *  Which columns there are says the file itself; neither library nor MPI is needed. */
#ifndef MILL_RESULT_TABLE_H
#define MILL_RESULT_TABLE_H

#include <stdint.h>

#include "io/result/stored_rows.h"

typedef struct mill_result_table {
  mill_h5_file file;
  const char *path; /**< borrowed */
  int64_t n_row;
  mill_stored_rows fits, catalog;
} mill_result_table;

/** Open without a probe (io/hdf5/hdf5_probe.h).  code: path is no result of this starmill;
 *  also MILL_ERR_OUTPUT: it is damaged.  Close it also after a failure; a zeroed one may be closed
 *  too. */
int mill_result_table_open(const char *path, int code, mill_result_table *table);
void mill_result_table_close(mill_result_table *table);
/** The rows of stars [n_star], each once: of one star those with this TARGETID, else with this
 *  IDENTIFIER, else with this OBJECT, ascending.
 *
 *  row [n]  out  to be freed with mill_free, also after a failure
 *
 *  MILL_ERR_USAGE: one has none; MILL_ERR_OUTPUT, MILL_ERR_MEMORY. */
int mill_result_table_find(const mill_result_table *table, int n_star, char *const *star,
                           int64_t **row, int64_t *n);

/** Name of a column without its group. */
const char *mill_result_table_name(const mill_stored_column *column);

#endif
