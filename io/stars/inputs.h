/* SPDX-License-Identifier: BSD-3-Clause */
/** The input files of a run: their names and contents. */
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
  MILL_INDEX_BYTES = 256 << 20 /**< of rows that a rank holds while it indexes */
};

/** The catalog, indexed.  The table of files is the same on every rank; the
 *  rows themselves are held by the rank that indexed their file, up to MILL_INDEX_BYTES:
 *  of the files beyond it has only counts (row NULL), unless rows are joined, and reads their
 *  rows again by mill_inputs_load. */
typedef struct mill_inputs {
  int n_file;
  mill_input_file *file;   /**< [n_file], owned */
  int64_t *exposure_start; /**< [n_file] first model row of each file, owned */
  int64_t *n_exposure;     /**< [n_file] model rows of each file, owned */
  int64_t n_row;
  int n_unreadable;                         /**< files with an error */
  int n_skipped;                            /**< inputs skipped because they are done */
  char settings_digest[MILL_SETTINGS_SIZE]; /**< on rank 0, with --input-table */
  int file_start, file_end;                 /**< this rank's share */
  mill_file_index *index;                   /**< [file_end - file_start], owned */
  char *path_text, *file_text;    /**< of all files, owned: paths; errors and redrock files */
  mill_spectra_settings settings; /**< with which they were indexed; borrows lib and config */
  mill_join *join;                /**< rows of several files that became one, owned; NULL: none */
  /** per arm of the library, only when models were asked for: pixels of the exposure that
   *  has most of them (0: no file has the arm), and the wavelengths where all exposures
   *  share them to a thousandth of a pixel (else NULL) */
  int n_pix[MILL_MAX_ARM];
  double *wave_aa[MILL_MAX_ARM]; /**< [n_pix], owned */
} mill_inputs;

/** Gather the names of the inputs and index them, each rank its share.
 *
 *  Collective; config, lib, request and arm_wanted [MILL_MAX_ARM] must be equal on every
 *  rank.  Files come in
 *  the order of the command line, then of the catalog file, which rank 0 reads.  A file
 *  that cannot be read is no failure: its entry says why, and the rank that
 *  found out logs it.  roles: what rank 0 writes, NULL: nothing; the other ranks' are
 *  empty.  MILL_ERR_USAGE when there is no input, when the catalog file cannot be read,
 *  when an input is named twice, or when it or its redrock file is written. */
int mill_inputs_index(const mill_mpi *mpi, const mill_input_request *request,
                      const mill_config *config, const mill_library *lib, const int *arm_wanted,
                      const mill_file_roles *roles, mill_inputs *inputs);

/** Open a file, and read its rows before joining again; the caller closes and clears both. Not
 *  collective. MILL_ERR_INPUT, also when it, or its redrock file, has changed since it was
 *  indexed; MILL_ERR_RANGE. */
int mill_inputs_open(const mill_inputs *inputs, int i_file, mill_spectra **spectra,
                     mill_file_index *index);

/** Its rows for mill_run_info; context: the inputs.  MILL_ERR_STOPPED where they cannot be had. */
int mill_inputs_load(void *context, int i_file, mill_file_index *index);

/** Free the rows that this rank indexed, once they are written. */
void mill_inputs_drop_index(mill_inputs *inputs);

/** Free everything; NULL is allowed. */
void mill_inputs_clear(mill_inputs *inputs);

#endif
