/** Command line of `starmill density`. */
#ifndef MILL_DENSITY_OPTIONS_H
#define MILL_DENSITY_OPTIONS_H

#include <stdio.h>

#include "kernels/particles/particles.h"

enum mill_density_kind { MILL_DENSITY_KIEL, MILL_DENSITY_FEH_VRAD, MILL_DENSITY_SKY };

/** How rows are summed; all but AUTO as enum mill_map_form. */
enum mill_density_how { MILL_HOW_EXACT, MILL_HOW_BINNED, MILL_HOW_CUT, MILL_HOW_AUTO };

/** Axis 0 is x.  Texts are borrowed from argv. */
typedef struct mill_density_options {
  int help, overwrite, quiet, n_thread;
  int all, adaptive, covariance;
  int kind; /**< enum mill_density_kind, -1: of two columns */
  int is_sphere;
  const char *column[2], *output; /**< columns of a sky map: NULL until they are looked for */
  int reverse[2];
  double low[2], high[2]; /**< edges of the map; both 0: those of the rows */
  int n_cell[2];
  int rule, how;       /**< enum mill_bandwidth, mill_density_how */
  double bandwidth[2]; /**< of MILL_WIDTH_GIVEN; a sky map has one, in degrees */
  int n_bandwidth;
  char *const *input; /**< [n_input] */
  int n_input;
} mill_density_options;

/** argv[0] being the job's name; argv is permuted.  MILL_ERR_USAGE. */
int mill_density_parse(int argc, char **argv, mill_density_options *options);

#endif
