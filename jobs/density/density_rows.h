/** The rows of catalogs that a map is made of, block by block, as often as it needs them. */
#ifndef MILL_DENSITY_ROWS_H
#define MILL_DENSITY_ROWS_H

#include <stdint.h>

#include "io/catalog/row_reader.h"
#include "jobs/density/density_options.h"

/** Axis 0 is y or declination, axis 1 x or right ascension, as of kernels/particles/map.h. */
typedef struct mill_density_rows {
  const mill_density_options *options; /**< borrowed */
  const char *name[2];
  char unit[2][MILL_READER_UNIT];
  int knows_good; /**< of at least one catalog */
  /** Of the last pass: rows of the catalogs; those used; left out as not good, or as a value is
   *  NaN, infinite or no declination. */
  int64_t n_row, n_used, n_not_good, n_nan;
  double *value[2]; /**< a block */
  unsigned char *is_good;
} mill_density_rows;

/** Takes n rows, which it must not keep. */
typedef int (*mill_density_take)(void *context, int n, const double *const x[2]);

/** Find the columns of a sky map, and make room for a block.  MILL_ERR_INPUT, MILL_ERR_MEMORY. */
int mill_density_rows_open(const mill_density_options *options, mill_density_rows *rows);

/** Hand all rows that are used to take, in the order of the catalogs; of a sky map in radians.
 *  What take fails with, or MILL_ERR_INPUT. */
int mill_density_rows_pass(mill_density_rows *rows, mill_density_take take, void *context);

void mill_density_rows_close(mill_density_rows *rows);

#endif
