/* SPDX-License-Identifier: BSD-3-Clause */
/** Shared by labelled_spectra.c and labelled_files.c. */
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

/* ---- files with one spectrum each: labelled_files.c ---- */

/** Name of a file without its folder and its end (.fits, .fit, and .gz), *n bytes of path. */
const char *mill_labelled_stem(const char *path, int *n);

typedef struct mill_labelled_one {
  int i_hdu, n_pix;
  double *wave, *flux; /**< [n_pix] vacuum A, and as the file has it; owned */
  double *continuum;   /**< [n_pix] as the file has it, where it is asked for; owned */
} mill_labelled_one;
void mill_labelled_one_clear(mill_labelled_one *one);

/** The spectrum of a file and its resolution.
 *
 *  first  with n_pix and wave_aa where a file has been read before; --wave-file is not read again
 *         for files of as many pixels */
int mill_labelled_one_read(const char *path, const mill_labelled_request *request,
                           const mill_labelled_spectra *first, mill_labelled_one *one,
                           mill_labelled_origin *origin);

/** Its labels, label [n_label], NaN where there is no card; the spectrum is only looked for. */
int mill_labelled_one_cards(const char *path, const mill_labelled_request *request, double *label);

/** Labels [n_spectrum][n_label] of the rows of request->table whose names are those of the files;
 *  spectra has name, n_spectrum and label, which stays as it is where there is no row. */
int mill_labelled_table_read(const char *const *path, const mill_labelled_request *request,
                             mill_labelled_spectra *spectra);

/* ---- files with many spectra: labelled_spectra.c ---- */

/** The first image of spectra: two axes, or the more of a cube. */
int mill_labelled_find_image(const mill_fits_file *file, int *i_hdu);

/** Labels of all spectra of that image, from a table or from the axes of the cube, into new memory
 *  of spectra, which has n_spectrum. */
int mill_labelled_image_labels(mill_fits_file *file, int i_hdu,
                               const mill_labelled_request *request,
                               mill_labelled_spectra *spectra);

#endif
