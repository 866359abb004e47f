/* SPDX-License-Identifier: BSD-3-Clause */
/** Input files of a run, and the index of their rows. */
#pragma once

#include "io/catalog/input_table.h"
#include "io/result/result_file.h"
#include "io/surveys/spectra.h"
#include "io/stars/join.h"
#include "io/stars/input_names.h"
#include "src/system/file_roles.h"

enum {
  MILL_INDEX_BYTES = 256 << 20 /**< most bytes of rows that a rank keeps in memory */
};

/** The input files, equal on all ranks, and the index of this rank's files.
 *
 *  If rows are joined, the index has all rows.  Else, once a rank holds MILL_INDEX_BYTES of rows, a
 *  further file has only counts (row NULL), and mill_inputs_load reads its rows again. */
typedef struct mill_inputs {
  int n_file;
  mill_input_file *file;   /**< [n_file], owned */
  int64_t *exposure_start; /**< [n_file] first row of each file in /models, owned */
  int64_t *n_exposure;     /**< [n_file] rows of each file in /models, owned */
  int64_t n_row;
  int n_unreadable;                         /**< files that could not be read */
  int n_skipped;                            /**< inputs left out because they are done */
  char settings_digest[MILL_SETTINGS_SIZE]; /**< on rank 0, with --input-table */
  int file_start, file_end;                 /**< this rank indexes files [file_start, file_end) */
  mill_file_index *index;                   /**< [file_end - file_start], owned */
  char *path_text, *file_text;              /**< texts that file points to, owned */
  mill_spectra_settings settings;           /**< settings of indexing; borrows lib and config */
  mill_star_tables tables;                  /**< set before indexing, borrowed */
  const char *begun; /**< rank 0, set before indexing: its unreadable files stay so; NULL: none */
  mill_join *join;   /**< joins rows across files, owned; NULL: rows are not joined */
  int n_pix[MILL_MAX_ARM]; /**< pixels of each arm's longest exposure; 0: none, or no models */
  /** [arm][n_pix] wavelengths equal in all exposures to 0.001 pixels, owned; NULL: they differ */
  double *wave_aa[MILL_MAX_ARM];
} mill_inputs;

/** List and index the inputs; each rank indexes its share.  Collective.
 *
 *  request, config, lib, arm_wanted [MILL_MAX_ARM]  equal on all ranks
 *  roles  files that rank 0 writes; empty on other ranks; NULL: none
 *
 *  An unreadable file is no failure: its entry and the log say why.
 *  MILL_ERR_USAGE: no input, an unreadable catalog file, an input named twice, or the run would
 *  overwrite an input or its redrock file. */
int mill_inputs_index(const mill_mpi *mpi, const mill_input_request *request,
                      const mill_config *config, const mill_library *lib, const int *arm_wanted,
                      const mill_file_roles *roles, mill_inputs *inputs);

/** Open a file and index it again, without joining.  Not collective.
 *  The caller closes *spectra and clears *index.
 *  MILL_ERR_INPUT, MILL_ERR_RANGE: unreadable, or the file or its redrock file has changed. */
int mill_inputs_open(const mill_inputs *inputs, int i_file, mill_spectra **spectra,
                     mill_file_index *index);

/** Callback mill_run_info.load; context: mill_inputs *.  MILL_ERR_STOPPED: file now unreadable. */
int mill_inputs_load(void *context, int i_file, mill_file_index *index);

/** Free the rows that this rank indexed, once they are written. */
void mill_inputs_drop_index(mill_inputs *inputs);

/** Free everything; NULL is allowed. */
void mill_inputs_clear(mill_inputs *inputs);
