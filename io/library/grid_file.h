/* SPDX-License-Identifier: BSD-3-Clause */
/** The grid file (docs/use/formats.md): model spectra on which emulators are trained, with their
 *  labels, in arms of uniform ln wavelength.  starmill/templates/grid_file.py writes the file. */
#pragma once

#include "kernels/base/common.h"

enum { MILL_GRID_NAME = 64, MILL_GRID_MAX_MODEL = 1 << 24 };

/** Status of a model: not computed yet, good, or failed. */
enum mill_grid_status { MILL_GRID_TO_DO = 0, MILL_GRID_GOOD = 1, MILL_GRID_BAD = 2 };

/** An arm.  Pixel i has vacuum wavelength exp(ln_wave0 + i ln_step), A. */
typedef struct mill_grid_arm {
  char name[MILL_MAX_NAME];
  int n_pix;
  double ln_wave0, ln_step;
} mill_grid_arm;

/** Description of a grid file.  Zero it before use; free it by mill_grid_info_clear. */
typedef struct mill_grid_info {
  int n_model, n_label, n_arm;
  char label[MILL_MAX_LABEL][MILL_MAX_NAME];
  mill_grid_arm arm[MILL_MAX_ARM];
  double *value;                /**< [n_model][n_label] in the labels' units, owned */
  char (*name)[MILL_GRID_NAME]; /**< [n_model] file or row from which the model was made, owned */
  unsigned char *status;        /**< [n_model] enum mill_grid_status, owned */
} mill_grid_info;

void mill_grid_info_clear(mill_grid_info *info);

typedef struct mill_grid_file mill_grid_file;

/** Open a grid file and read the description of its models.
 *
 *  path  borrowed until mill_grid_close
 *  info  out  the caller owns it, zeroes it before, clears it after mill_grid_close or a failure
 *
 *  Checks all numbers except spectra.  MILL_ERR_INPUT.  Not collective.  One thread at a time. */
int mill_grid_open(const char *path, mill_grid_file **out, mill_grid_info *info);

/** Read spectra of an arm.
 *
 *  model  [n]         rows of the file, in any order; repeats allowed
 *  flux   [n][n_pix]  out
 *
 *  MILL_ERR_INPUT: a model marked good has a flux that is not positive and finite. */
int mill_grid_read(const mill_grid_file *file, int arm, int n, const int *model, float *flux);

/** Read the options with which the file was made; free with mill_free. */
int mill_grid_read_settings(const mill_grid_file *file, char **settings);

void mill_grid_close(mill_grid_file *file); /* NULL is allowed */
