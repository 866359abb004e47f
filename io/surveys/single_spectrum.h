/* SPDX-License-Identifier: BSD-3-Clause */
/** Steps shared by formats: keywords, units, pixels of an HDU, tables of fibres. */
#pragma once

#include "io/surveys/spectra.h"

enum {
  MILL_SINGLE_MAX_PIX = 1 << 21 /**< most pixels of a spectrum; SDSS has 4600, models 1.6 million */
};

/** Pixels of a spectrum.  Zero the struct before use; the next spectrum reuses its memory. */
typedef struct mill_single_spectrum {
  int capacity;
  double *wave_aa;        /**< [capacity]; this and all arrays are owned */
  double *number;         /**< [capacity] numbers as read, before conversion to float32 */
  double *noise, *factor; /**< [capacity] noise as read; flux per count */
  float *flux, *ivar;     /**< [capacity] */
  float *sigma_aa;        /**< [capacity] sigma of the line-spread function, A */
  int32_t *mask;          /**< [capacity] */
  int *source;            /**< [capacity] index of a pixel before holes are filled (cameras.c) */
} mill_single_spectrum;

/** Make room for n_pix pixels, whose values are undefined. */
int mill_single_resize(mill_single_spectrum *spectrum, int n_pix);
void mill_single_clear(mill_single_spectrum *spectrum);

/** Index of the first table with this EXTNAME (upper case); -1: none. */
int mill_single_find_table(const mill_fits_guard *guard, const char *name);

/** Does any card of the primary header begin with start? */
int mill_single_says(const mill_fits_guard *guard, const char *start);

/** Read a keyword of an HDU.  If it is missing or NaN, *found is 0 and out is unchanged.
 *  found may be NULL.  MILL_ERR_INPUT: wrong type. */
int mill_single_key_text(mill_fits_file *file, int i_hdu, const char *key, char *out, size_t size,
                         int *found);
int mill_single_key_double(mill_fits_file *file, int i_hdu, const char *key, double *out,
                           int *found);
int mill_single_key_int32(mill_fits_file *file, int i_hdu, const char *key, int32_t *out,
                          int *found);

/** Read frame and medium of SDSS and LAMOST.  HELIO T: heliocentric; F: topocentric; no HELIO: the
 *  frame is heliocentric if HELIO_RV has a value, else unknown.  VACUUM F: air; else vacuum. */
int mill_single_conventions(mill_fits_file *file, int i_hdu, int *frame, int *air);

/** Read the frame from SPECSYS of the HDU, else of the primary header.  MILL_ERR_INPUT: a frame
 *  that enum mill_frame lacks. */
int mill_single_specsys(mill_fits_file *file, int i_hdu, int *frame);

/** Convert a text YYYY-MM-DDThh:mm:ss, with or without a fraction, to MJD; NaN: other text. */
double mill_single_mjd(const char *text);

/** Combine an HDU's frame `own` with *frame, the frame of earlier spectra.  If either is unknown,
 *  *frame becomes unknown.  MILL_ERR_INPUT: both are known, and only one is topocentric. */
int mill_single_add_frame(const mill_fits_file *file, int i_hdu, int is_first, int own, int *frame);

/** Set *to_aa to the Angstroms in a unit.  Returns 0 unless Angstrom, AA, nm, um, micron or m. */
int mill_single_unit(const char *text, double *to_aa);

/** Set *to_aa by the unit in a keyword; if the keyword is missing, by `unit`.  MILL_ERR_INPUT. */
int mill_single_key_unit(mill_fits_file *file, int i_hdu, const char *key, const char *unit,
                         double *to_aa);

/** Names of the keywords of a linear wavelength scale. */
typedef struct mill_single_wcs {
  const char *start, *step, *other_step; /**< other_step: used if step is missing; NULL: none */
  const char *reference, *unit, *type;   /**< type: keyword with AWAV (air) or WAVE (vacuum) */
  const char *default_unit;              /**< "": the unit is required */
  int beyond;                            /**< number of the first pixel, minus 1; 0 in FITS */
} mill_single_wcs;

/** Compute and check wavelengths from keywords of an HDU.
 *  configured: value of the key `medium`, needed if keyword key->type names neither AWAV nor WAVE.
 *  MILL_ERR_INPUT names HDU and keyword. */
int mill_single_linear_wave(mill_fits_file *file, int i_hdu, const mill_single_wcs *key,
                            int configured, int n_pix, double *wave_aa, int *air);

/** Find a column of numbers, ignoring case.
 *
 *  is_alone       1: the table is one spectrum, with a pixel per row or all in one row;
 *                 0: each row is a spectrum
 *  n_pix  in/out  0: set it; else the column must have n_pix pixels
 *
 *  MILL_ERR_INPUT: missing, not numbers, wrong length, or not 2 to MILL_SINGLE_MAX_PIX pixels. */
int mill_single_column(mill_fits_file *file, int i_hdu, int is_alone, const char *column,
                       int *n_pix, int *number);

/** Read n_pix elements of row i_row in column `number`, from element `first` (counted from 0) on.
 *  NaN and infinity are kept; nulls of integers become NaN.  MILL_ERR_INPUT: unreadable. */
int mill_single_numbers(mill_fits_file *file, int i_hdu, int number, int64_t i_row, int first,
                        int n_pix, double *out);

/** Return the first pixel whose wavelength is not finite, positive and ascending; n_pix: none. */
int mill_single_disorder(int n_pix, const double *wave_aa);

/** Fail with MILL_ERR_INPUT unless wavelengths are positive, finite and ascending.  The message
 *  names file, HDU, `what` (a column or row), pixel and value. */
int mill_single_check_wave(const mill_fits_file *file, int i_hdu, const char *what, int n_pix,
                           const double *wave_aa);

/** Convert to float32; values beyond its range become infinite, which makes the pixel bad. */
void mill_single_narrow(const double *value, int n_pix, float *out);

/** Fold a 64-bit mask into 32 bits; bit 31 is set if any higher bit was. */
int32_t mill_single_fold(uint64_t mask);

/** Set *offset to the number to be added to stored 64-bit masks.  The caller reads masks as stored
 *  and adds it, as CFITSIO 4.2 cannot read unsigned 64-bit integers.  MILL_ERR_INPUT: scaled masks.
 *
 *  scale, zero  BSCALE and BZERO of an image, TSCAL and TZERO of a column
 *  what         name of the image or column, for the message */
int mill_single_mask_offset(const mill_fits_file *file, int i_hdu, const char *what, double scale,
                            double zero, uint64_t *offset);

/** Fail with MILL_ERR_RANGE unless 0 <= row < n_row. */
int mill_single_check_row(const mill_fits_file *file, int64_t row, int64_t n_row);

/** A wish that mill_fits_fill copies into a member of mill_catalog_row. */
#define MILL_ROW_AT(member)                                                                        \
  offsetof(mill_catalog_row, member), sizeof(((mill_catalog_row *)0)->member)
#define MILL_ROW_WISH(text, type, member, none, needed)                                            \
  {                                                                                                \
    .name = text, .as = MILL_AS_##type, .missing = none, .is_needed = needed, MILL_ROW_AT(member)  \
  }

/** Read keywords into one row of values, as mill_fits_columns reads columns.  Look for the first
 *  name of a wish in all headers i_hdu [n_hdu], then for its other names.  The first value counts.
 *  none: a value that means missing; NAN: there is no such value. */
int mill_single_keys(mill_fits_file *file, const int *i_hdu, int n_hdu, double none,
                     const mill_fits_wish *wish, int n_wish, mill_fits_values *values);

/** A table of fibres, with one spectrum per row. */
typedef struct mill_fibres {
  const mill_fits_wish *wish; /**< [n_wish]; wish[0] is the target's name */
  int n_wish;
  int i_class, i_sn; /**< index of the wish of target classes, of S/N; 0: none */
  /** target type of row i, for mill_candidate */
  const char *(*objtype)(const mill_fits_values *values, int64_t i);
} mill_fibres;

/** Fill a zeroed index with the selected rows of a table of fibres, each with one exposure.
 *  values [n_wish]: the columns fibres->wish.  Long names are cut (mill_name_cut).  mjd: their time
 *  unless the primary header has MJD-OBS; NaN: unknown. */
int mill_fibres_index(const mill_fibres *fibres, mill_fits_file *file,
                      const mill_fits_values *values, int64_t n_row, double mjd,
                      const mill_selection *select, mill_file_index *index);
