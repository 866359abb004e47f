/** DESI coadd and spectra files: index and rows, read by HDU name.
 *
 *  The table mill_format_desi (io/surveys/spectra.h) makes a format of it.
 */
#ifndef MILL_DESI_H
#define MILL_DESI_H

#include "io/catalog/catalog_row.h"
#include "io/fits/fits_guard.h"
#include "src/config/config.h"

/** One open file.  One thread at a time; several files may be open at once. */
typedef struct mill_desi_file mill_desi_file;

/** Open and check the whole structure (every header is walked and every HDU's
 *  bytes must be there, before CFITSIO sees the file: io/fits/fits_guard.h), and read
 *  the wavelengths of the library's arms.  The file may lack some
 *  of them but not all; an arm is there with all of its HDUs, or not at all.
 *  limits may be NULL (io/fits/fits_guard.h); its scratch is borrowed until close.  Not collective.
 *  MILL_ERR_INPUT names the file, HDU and what to do; MILL_ERR_OUTPUT when the
 *  scratch folder cannot take the unpacked file. */
int mill_desi_open(const char *path, const mill_library *lib, const mill_open_limits *limits,
                   mill_desi_file **out);
void mill_desi_close(mill_desi_file *file);

/** Select rows (everything but S/N); joint: all exposures of a target in a spectra file
 *  are one row.  *index need not be zeroed, and is left cleared on failure.
 *  docs/use/input.md has the rules.
 *  MILL_ERR_INPUT names the file, HDU and column, or the redrock file. */
int mill_desi_index(mill_desi_file *file, const mill_selection *select, int joint,
                    mill_file_index *index);

/** Arms present: n_pix 0 when the file lacks the arm of the library. */
typedef struct mill_desi_arm {
  int n_pix;
  const double *wave_aa; /**< [n_pix], owned by the file */
  int n_diag;            /**< 0: no resolution matrix */
  int has_mask;
} mill_desi_arm;
const mill_desi_arm *mill_desi_arm_info(const mill_desi_file *file, int arm);

/** Pixels of some rows of one arm, packed row after row. */
typedef struct mill_desi_block {
  float *flux, *ivar; /**< [n][n_pix] */
  int32_t *mask;      /**< [n][n_pix], NULL when the file has none */
  float *resolution;  /**< [n][n_diag][n_pix], NULL when the file has none or unwanted */
} mill_desi_block;

/** Read FITS rows (any order; runs of neighbours are read at once) of one arm
 *  into the caller's buffers; any of block's pointers may be NULL and is skipped.
 *  Values are the file's bit for bit: NaN and infinity stay.  Masks of 64 bits
 *  are folded, so that a pixel is 0 here only where it is 0 there; a file
 *  without MASK gives zeros.
 *  MILL_ERR_INPUT names file, HDU and row; MILL_ERR_RANGE for a row or arm that
 *  the file lacks, or for a resolution matrix where it has none. */
int mill_desi_read(mill_desi_file *file, int arm, const int64_t *fits_row, int n,
                   mill_desi_block *block);

#endif
