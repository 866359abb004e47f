/* SPDX-License-Identifier: BSD-3-Clause */
/** What tables of parameters by star share: FITS or HDF5, and the names of the columns. */
#ifndef MILL_STAR_TABLE_H
#define MILL_STAR_TABLE_H

#include "io/fits/fits_file.h"
#include "kernels/data/library.h"

/** The names that a parameter may have in a table; the second is NULL where there is one. */
void mill_star_table_names(const mill_library *lib, int i_par, const char *name[2]);

/** Is it an HDF5 file?  what: "a FITS table or ...", for the message.  MILL_ERR_CONFIG. */
int mill_star_table_is_hdf5(const char *path, const char *what, int *is_hdf5);

/** The code of reading a table for a configuration's key: unreadable spectra leave a finished run,
 *  an unreadable table does not. */
int mill_star_table_code(int err, int is_hdf5, const char *key);

/** Has this HDU the column?  name NULL: no. */
int mill_star_table_has(mill_fits_file *file, int i_hdu, const char *name);

#endif
