/* SPDX-License-Identifier: BSD-3-Clause */
/** Input files of a run, and the index of their rows. */
#ifndef MILL_INPUTS_H
#define MILL_INPUTS_H

#include "io/catalog/catalog_row.h"
#include "io/catalog/input_table.h"
#include "io/result/result_file.h"
#include "io/surveys/spectra.h"
#include "io/stars/join.h"
#include "io/stars/input_names.h"
#include "src/system/file_roles.h"
#include "src/ranks/mpi_context.h"

enum {
  MILL_INDEX_BYTES = 256 << 20 /**< most bytes of rows that a rank keeps in memory */
};

/** The indexed catalog.  The table of files is equal on all ranks; rows are on the rank that
 *  indexed their file.  A rank keeps MILL_INDEX_BYTES of rows (all, if rows are joined); its other
 *  files have only counts (row NULL), and mill_inputs_load reads their rows again. */
typedef struct mill_inputs {
  int n_file;
  mill_input_file *file;   /**< [n_file], owned */
  int64_t *exposure_start; /**< [n_file] first row of /models of each file, owned */
  int64_t *n_exposure;     /**< [n_file] rows of /models of each file, owned */
  int64_t n_row;
  int n_unreadable;                         /**< files with an error */
  int n_skipped;                            /**< inputs skipped as they are done */
  char settings_digest[MILL_SETTINGS_SIZE]; /**< on rank 0, with --input-table */
  int file_start, file_end;                 /**< files of this rank */
  mill_file_index *index;                   /**< [file_end - file_start], owned */
  char *path_text, *file_text;              /**< texts that file points to, owned */
  mill_spectra_settings settings;           /**< settings of the index; borrow lib and config */
  mill_join *join; /**< rows joined over files, owned; NULL: rows are not joined */
  /** by arm, only if models are wanted: pixels of the longest exposure (0: no file has the arm),
   *  and the wavelengths if all exposures share them to a thousandth of a pixel (else NULL) */
  int n_pix[MILL_MAX_ARM];
  double *wave_aa[MILL_MAX_ARM]; /**< [n_pix], owned */
} mill_inputs;

/** Gather the names of the inputs, and index them; each rank indexes its share.
 *
 *  Collective; config, lib, request and arm_wanted [MILL_MAX_ARM] must be equal on all ranks.
 *  Files are in the order of the command line, then of the catalog file, which rank 0 reads.  An
 *  unreadable file is no failure: its entry says why, and the log too.  roles: files that rank 0
 *  writes (NULL: none); empty on other ranks.  MILL_ERR_USAGE: there is no input, the catalog file
 *  cannot be read, an input is named twice, or an input or its redrock file would be
 *  overwritten. */
int mill_inputs_index(const mill_mpi *mpi, const mill_input_request *request,
                      const mill_config *config, const mill_library *lib, const int *arm_wanted,
                      const mill_file_roles *roles, mill_inputs *inputs);

/** Open a file and index it again, without joining; the caller closes *spectra and clears
 *  *index.  Not collective.  MILL_ERR_INPUT, also if the file or its redrock file has changed since
 *  it was indexed; MILL_ERR_RANGE. */
int mill_inputs_open(const mill_inputs *inputs, int i_file, mill_spectra **spectra,
                     mill_file_index *index);

/** mill_run_info.load; context: the inputs.  MILL_ERR_STOPPED: the file cannot be read any more. */
int mill_inputs_load(void *context, int i_file, mill_file_index *index);

/** Free the rows that this rank indexed, once they are written. */
void mill_inputs_drop_index(mill_inputs *inputs);

/** Free everything; NULL is allowed. */
void mill_inputs_clear(mill_inputs *inputs);

#endif
