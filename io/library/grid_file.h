/* SPDX-License-Identifier: BSD-3-Clause */
/** The grid file: spectra with labels, cut into arms of uniform ln wavelength, from which an
 *  emulator is made (HDF5; docs/use/formats.md, "Grid file").
 *
 *  A writer first makes the whole file, filled with zeros, and every model gets its status after
 *  its spectra: a file is valid after a kill, and records which models are done.
 */
#ifndef MILL_GRID_FILE_H
#define MILL_GRID_FILE_H

#include <mpi.h>
#include <stdint.h>

#include "kernels/base/common.h"

enum { MILL_GRID_NAME = 64, MILL_GRID_WHY = 128, MILL_GRID_MAX_MODEL = 1 << 24 };

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
  char (*why)[MILL_GRID_WHY];   /**< [n_model] why it is bad, else empty; owned */
  unsigned char *status;        /**< [n_model] enum mill_grid_status, owned */
  uint64_t *stamp;              /**< [n_model] of the file that each comes from
                                     (io/library/model_source.h), 0: not known; NULL: of none;
                                     owned */
  int complete;                 /**< 1: its writer came to the end, no model is still to do */
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

/* ---- writing ------------------------------------------------------------------------------- */

/** Make a grid file in which models are still to do, under a temporary name, then path.
 *
 *  info      status and why are those of models that are known to be bad; both may be NULL
 *  sigma     [n_arm] of [n_pix], A: where the resolution of an arm varies, else NULL
 *  settings  the options that make it: another command that continues it has the same
 *
 *  One process alone.  MILL_ERR_OUTPUT, also where there is no room for all spectra. */
int mill_grid_create(const char *path, const mill_grid_info *info, const double *const *sigma,
                     const char *settings);

typedef struct mill_grid_writer mill_grid_writer;

/** Open the file for the spectra.  info must be that of the file.  Collective over comm; the
 *  outcome may differ, so the ranks must agree on it.  MILL_ERR_OUTPUT. */
int mill_grid_writer_open(const char *path, const mill_grid_info *info, MPI_Comm comm,
                          mill_grid_writer **out);

/** Models that are done on this rank, none of them on another one.
 *
 *  n          may be 0, and another number on every rank
 *  model      [n] ascending
 *  flux       [n_arm] of [n][n_pix]
 *  continuum  [n_arm] of [n][n_pix]; NULL for an arm without
 *  status     [n] enum mill_grid_status
 *  why        [n]
 *
 *  Collective; the outcome may differ.  Spectra are written before status. */
int mill_grid_write(mill_grid_writer *writer, int n, const int *model, const float *const *flux,
                    const float *const *continuum, const unsigned char *status,
                    const char (*why)[MILL_GRID_WHY]);

/** Flush and close, or after a failure err give up; the first failure.  Collective; NULL is
 *  allowed. */
int mill_grid_writer_close(mill_grid_writer *writer, int err);

/** Rewrite the description of the models, except their names, and that some are still to do. info
 *  is that of the file but for label, status, why and stamp of models that were bad.  One process
 *  alone, before others open it.  MILL_ERR_OUTPUT. */
int mill_grid_revise(const char *path, const mill_grid_info *info);

/** Note that no model is still to do.  One process alone, after all have closed the file. */
int mill_grid_finish(const char *path);

#endif
