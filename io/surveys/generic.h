/* SPDX-License-Identifier: BSD-3-Clause */
/** Files of the generic layout (docs/use/formats.md), which starmill.surveys.generic writes.
 *  generic_table.c checks columns and wavelengths; generic.c reads the exposures. */
#pragma once

#include "io/surveys/cameras.h"

/** Channel name of rows without ARM. */
#define MILL_GENERIC_CHANNEL "spectrum"

/** A column of one vector per row. */
typedef struct mill_generic_vector {
  mill_plane plane; /**< name NULL: the table lacks the column */
  int n_byte;       /**< bytes of an element */
  int variable;     /**< 1: of variable length */
  int64_t length;   /**< elements per row, if not variable */
  double to_aa;     /**< Angstroms per unit of the column, for wavelengths and widths */
} mill_generic_vector;

typedef struct mill_generic_table {
  mill_fits_file *file; /**< borrowed */
  int i_hdu;
  int64_t n_row, heap_bytes;
  int air, frame;
  mill_generic_vector vector[MILL_N_PLANE];
  int is_error;           /**< 1: the table has ERROR instead of IVAR */
  int n_shared;           /**< pixels of HDU WAVELENGTH, shared by all rows; 0: no such HDU */
  double *shared_wave_aa; /**< [n_shared], freed by the caller */
} mill_generic_table;

/** Return MILL_ERR_INPUT with a message about the table SPECTRA. */
#define MILL_ERROR_TABLE(t, ...) MILL_ERROR_HDU((t)->file, (t)->i_hdu, ": " __VA_ARGS__)

/** Open the table SPECTRA and check columns and wavelengths; medium: the key.  MILL_ERR_INPUT. */
int mill_generic_table_open(mill_fits_file *file, int medium, mill_generic_table *table);
