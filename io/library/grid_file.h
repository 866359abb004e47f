/* SPDX-License-Identifier: BSD-3-Clause */
/** The grid file: spectra with labels, cut into arms of uniform ln wavelength, from which an
 *  emulator is made (HDF5; docs/use/formats.md, "Grid file").
 *
 *  starmill/templates/grid_write.py makes it: each model gets its status after its spectra.
 */
#ifndef MILL_GRID_FILE_H
#define MILL_GRID_FILE_H

#include "kernels/base/common.h"

enum { MILL_GRID_NAME = 64, MILL_GRID_MAX_MODEL = 1 << 24 };

/** Status of a model. */
enum mill_grid_status { MILL_GRID_TO_DO = 0, MILL_GRID_GOOD = 1, MILL_GRID_BAD = 2 };

/** One arm.  Pixel i is at exp(ln_wave0 + i ln_step), vacuum wavelength in A. */
typedef struct mill_grid_arm {
  char name[MILL_MAX_NAME];
  int n_pix;
  double ln_wave0, ln_step;
  double template_sigma_aa; /**< Gaussian sigma in A of the spectra; negative: they are at the
                                 instrument's own resolution */
  char sigma_origin[160];
  int has_continuum;
} mill_grid_arm;

/** All of a grid file but its spectra; zeroed before, freed by mill_grid_info_clear. */
typedef struct mill_grid_info {
  int n_model, n_label, n_arm;
  char label[MILL_MAX_LABEL][MILL_MAX_NAME];
  mill_grid_arm arm[MILL_MAX_ARM];
  double *value;                /**< [n_model][n_label] in the labels' units, owned */
  char (*name)[MILL_GRID_NAME]; /**< [n_model] file or row, ends with a zero, owned */
  unsigned char *status;        /**< [n_model] enum mill_grid_status, owned */
} mill_grid_info;

void mill_grid_info_clear(mill_grid_info *info); /* NULL is allowed */

typedef struct mill_grid_file mill_grid_file;

/** Open a grid file and read the description of its models.
 *
 *  info  zeroed before, cleared on failure
 *
 *  Read-only, each rank for itself; the file is not trusted: limits, shapes and numbers are
 *  checked, and links beyond the file are refused.  Numbers of the spectra are checked by
 *  mill_grid_read.  One thread at a time (HDF5).  MILL_ERR_INPUT names file and dataset. */
int mill_grid_open(const char *path, mill_grid_file **out, mill_grid_info *info);

/** Spectra of an arm.
 *
 *  model      [n] rows of the file, in any order, also more than once
 *  flux       [n][n_pix] out; NULL: not wanted
 *  continuum  [n][n_pix] out; NULL: not wanted; MILL_ERR_RANGE where the arm has none
 *
 *  Rows are read in the file's order.  MILL_ERR_INPUT names a good model that has a number not
 *  above 0 or not finite. */
int mill_grid_read(mill_grid_file *file, int arm, int n, const int *model, float *flux,
                   float *continuum);

/** The options that made the file, of any length; free with mill_free. */
int mill_grid_read_settings(mill_grid_file *file, char **settings);

void mill_grid_close(mill_grid_file *file); /* NULL is allowed */

#endif
