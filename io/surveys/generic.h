/* SPDX-License-Identifier: BSD-3-Clause */
/** The generic layout: spectra of any origin, many stars a file, as docs/use/formats.md
 *  describes it ("Generic input"); starmill.surveys.generic writes it.  generic_table.c checks
 *  the table's columns and the wavelengths, generic.c groups rows and reads them. */
#ifndef MILL_GENERIC_H
#define MILL_GENERIC_H

#include "io/surveys/cameras.h"

/** Name of the channel of a row without ARM. */
#define MILL_GENERIC_CHANNEL "spectrum"

/** A column of vectors. */
typedef struct mill_generic_vector {
  mill_plane plane; /**< name NULL: the table has none */
  int n_byte;       /**< of an element */
  int variable;     /**< lengths differ from row to row */
  int64_t length;   /**< of all rows when they do not */
  double to_aa;     /**< of wavelengths and widths */
} mill_generic_vector;

typedef struct mill_generic_table {
  mill_fits_file *file; /**< borrowed */
  int i_hdu;
  int64_t n_row, heap_bytes;
  int air, frame;
  mill_generic_vector vector[MILL_N_PLANE];
  int is_error;           /**< ERROR, not IVAR */
  int n_shared;           /**< pixels of the wavelengths of all rows; 0: each row has its own */
  double *shared_wave_aa; /**< owned by the user of the table */
} mill_generic_table;

/** ": what" about the table SPECTRA */
#define MILL_ERROR_TABLE(t, ...) MILL_ERROR_HDU((t)->file, (t)->i_hdu, ": " __VA_ARGS__)

/** Find table, columns and wavelengths; medium: as configured.  MILL_ERR_INPUT. */
int mill_generic_table_open(mill_fits_file *file, int medium, mill_generic_table *table);

#endif
