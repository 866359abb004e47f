/** What labelled_spectra.c and labelled_files.c share. */
#ifndef MILL_LABELLED_PARTS_H
#define MILL_LABELLED_PARTS_H

#include "io/fits/fits_file.h"
#include "io/library/labelled_spectra.h"

enum { MILL_LABELLED_MAX = 20000 }; /**< spectra: the fit takes time as their third power */
#define MILL_LABELLED_MAX_NUMBERS 268435456.0 /**< of an image, or of all files: 1 GiB */

/** A finite number of a card; found 0, and out untouched, when it is missing. */
int mill_labelled_number(mill_fits_file *file, int i_hdu, const char *key, double *out, int *found);

/** Text of a card of the current HDU, empty when it is missing or no text; a truth value reads T or
 *  F. */
void mill_labelled_text(mill_fits_file *file, const char *key, char text[FLEN_VALUE]);

/** Vacuum wavelengths of n_pix pixels, from the request or the header of i_hdu, *wave from
 *  mill_alloc. */
int mill_labelled_wavelengths(mill_fits_file *file, int i_hdu, const mill_labelled_request *request,
                              int n_pix, double **wave, mill_labelled_origin *origin);

/** The same from numbers that were read: medium, checks, air to vacuum.  what: where they are. */
int mill_labelled_to_vacuum(mill_fits_file *file, int i_hdu, const mill_labelled_request *request,
                            const char *what, int n_pix, double *wave,
                            mill_labelled_origin *origin);

#endif
