/** An expression over columns of a result, in CFITSIO's syntax for selecting rows. */
#ifndef MILL_EXPRESSION_H
#define MILL_EXPRESSION_H

#include <stdint.h>

#include "io/result/result_table.h"

typedef struct mill_expression {
  const char *text, *path; /**< borrowed */
  /** The columns that text names, those of /fits before those of /catalog.  Their arrays are the
   *  table's, so this is never closed. */
  mill_stored_rows fits, catalog;
} mill_expression;

/** Find the columns that text names, without regard to case.
 *
 *  MILL_ERR_USAGE: a name is no column, and the message has those that exist; text names none; it
 *  has what would read other files, or compare rows with each other. */
int mill_expression_bind(const char *text, const mill_result_table *table, mill_expression *out);

/** The column as the next one of rows that are read, unless it is one of them already. */
void mill_expression_add_column(mill_stored_rows *rows, const mill_stored_column *column);

/** Is it true in rows of the result?
 *
 *  fits_row, catalog_row  in   [n] packed rows, as mill_stored_rows_read gives them for ->fits and
 *                              ->catalog
 *  is_true [n]            out  1 or 0; 0 where a comparison meets a NaN or
 *                              an infinity
 *
 *  MILL_ERR_USAGE: CFITSIO does not understand it, it is no truth value, or it compares integers
 *  that an expression cannot tell apart; MILL_ERR_MEMORY. */
int mill_expression_answer(const mill_expression *expression, const char *fits_row,
                           const char *catalog_row, int64_t n, char *is_true);

#endif
