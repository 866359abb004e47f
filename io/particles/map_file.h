/** A map as a file: HDF5, or a FITS image with a world coordinate system. */
#ifndef MILL_MAP_FILE_H
#define MILL_MAP_FILE_H

#include <stdint.h>

enum { MILL_MAP_NAME = 128, MILL_MAP_UNIT = 48 };

/** An axis as it is drawn: cell i has its centre at first + i step; step is below 0 where it is
 *  drawn backwards. */
typedef struct mill_map_axis {
  char column[MILL_MAP_NAME], unit[MILL_MAP_UNIT]; /**< unit empty: none is known */
  int n;
  double first, step;
  double bandwidth; /**< width of the kernel along it, before local factors */
} mill_map_axis;

/** What a map file says.  Axis 0 is x, which varies fastest; of a sphere degrees. */
typedef struct mill_map_facts {
  int is_sphere, is_adaptive;
  mill_map_axis axis[2];
  const char *rule;  /**< "scott", "silverman" or "given" */
  const char *form;  /**< "exact", "binned" or "cut" */
  double covariance; /**< of the kernel */
  double bound;      /**< on the error of a value, in the map's unit */
  double integral;   /**< of the map over its cells */
  /** Rows: all of the catalogs, those whose values are used, and why others are not; on the map. */
  int64_t n_row, n_used, n_not_good, n_nan, n_on_map;
  const char *command; /**< the command line */
  int n_input;
  char *const *input; /**< [n_input] */
} mill_map_facts;

/** May a map be written at path?  MILL_ERR_OUTPUT when a file is there without overwrite,
 *  MILL_ERR_USAGE when it is no map of starmill's. */
int mill_map_file_check(const char *path, int overwrite);

/** Write density [n of axis 1][n of axis 0], whole before it has its name, under the lock of path.
 *  MILL_ERR_OUTPUT. */
int mill_map_file_write(const char *path, int overwrite, const mill_map_facts *facts,
                        const double *density);

#endif
