/* SPDX-License-Identifier: BSD-3-Clause */
/** Labelled spectra from FITS: an image of spectra on one grid and a table of labels, a cube whose
 *  axes are labels, or files with one spectrum each (docs/use/libraries.md). */
#ifndef MILL_LABELLED_SPECTRA_H
#define MILL_LABELLED_SPECTRA_H

#include "io/fits/fits_guard.h"
#include "src/config/config.h"

/** Spectra and their labels.
 *
 *  wave_aa [n_pix]              vacuum A, ascending; owned
 *  flux    [n_spectrum][n_pix]  flux density in any unit, each spectrum in its own; owned
 *  label   [n_spectrum][n_label]  in the labels' units, NaN: not known; owned
 *  name    [n_spectrum]         of files with one spectrum each, else NULL; owned
 */
typedef struct mill_labelled_spectra {
  int n_spectrum, n_pix, n_label;
  double *wave_aa;
  float *flux;
  double *label;
  char (*name)[MILL_MAX_NAME];
} mill_labelled_spectra;

void mill_labelled_spectra_clear(mill_labelled_spectra *spectra); /* NULL is allowed */

/** Options that complete or override the file. */
typedef struct mill_labelled_request {
  int n_label;
  /** of the table, one per label; cards of files with one spectrum; CTYPE of a cube's axes */
  char column[MILL_MAX_GRID_AXIS][MILL_MAX_NAME];
  enum mill_medium medium; /**< AUTO: as the header says */
  int have_wave;           /**< 1: wavelengths from the two below, not from the header */
  int wave_is_log10;       /**< they are log10 of A */
  double wave_first, wave_step;
  const char *wave_file; /**< image with the wavelengths; NULL: none */
  /* of files with one spectrum */
  char wave_column[MILL_MAX_NAME], flux_column[MILL_MAX_NAME]; /**< of a table; empty: an image */
  char continuum_column[MILL_MAX_NAME]; /**< of the same table; empty: none */
  const char *table;               /**< with the labels of all files; NULL: their cards have them */
  char name_column[MILL_MAX_NAME]; /**< of it: names of the files */
  mill_open_limits limits;
} mill_labelled_request;

/** Description of the file, for messages. */
typedef struct mill_labelled_origin {
  char wavelengths[160]; /**< how they were derived */
  int is_air;            /**< 1: they were air and have been converted */
  char medium_key[72];   /**< card that says so; "--medium" when it was asked for */
  double fwhm_aa;        /**< card FWHM of the image; NaN when there is none */
} mill_labelled_origin;

/** Read all spectra of one file (is_many 1: the first image with two axes, [spectrum][pixel], and
 *  the first table that has the columns and a row for each spectrum; or a cube, the first image
 * with more axes), or of files with one spectrum each, onto the wavelengths of the first; pixels
 * beyond a file's own are NaN.
 *
 *  spectra zeroed before; cleared on failure.  Wavelengths come out in vacuum.
 *  MILL_ERR_INPUT names file, HDU, card or column, and the option that helps. */
int mill_labelled_read(const char *const *path, int n_path, int is_many,
                       const mill_labelled_request *request, mill_labelled_spectra *spectra,
                       mill_labelled_origin *origin);

/** FITS files of a folder in the order of their names, *path [*n] with the folder; free them with
 *  mill_labelled_files_free.  n 0: path is no folder. */
int mill_labelled_files_list(const char *path, char ***list, int *n);
void mill_labelled_files_free(char **list, int n);

#endif
