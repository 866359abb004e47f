/* SPDX-License-Identifier: BSD-3-Clause */
/** Steps that formats share: keywords, units, the pixels of one HDU, rows of fibres. */
#ifndef MILL_SINGLE_SPECTRUM_H
#define MILL_SINGLE_SPECTRUM_H

#include "io/surveys/spectra.h"

enum {
  MILL_SINGLE_MAX_PIX = 1 << 21 /**< of one spectrum: SDSS has some 4600, models 1.6 million */
};

/** Pixels of one spectrum.  Zero it before the first use; the memory is kept
 *  from one spectrum to the next. */
typedef struct mill_single_spectrum {
  int n_pix, capacity;
  double *wave_aa;        /**< [n_pix], owned, as all of them */
  double *number;         /**< [n_pix] a column before it is narrowed */
  double *noise, *factor; /**< [n_pix] */
  float *flux, *ivar;     /**< [n_pix] */
  float *sigma_aa;        /**< [n_pix] */
  int32_t *mask;          /**< [n_pix] */
} mill_single_spectrum;

/** Room for n_pix pixels; what they hold is left open. */
int mill_single_resize(mill_single_spectrum *spectrum, int n_pix);
void mill_single_clear(mill_single_spectrum *spectrum);

/** First HDU of that EXTNAME (upper case) that is a table, -1 when there is none. */
int mill_single_find_table(const mill_fits_guard *guard, const char *name);

/** Does a card of the primary header begin with that? */
int mill_single_says(const mill_fits_guard *guard, const char *start);

/** Value of a keyword of an HDU.  *found (NULL is allowed) is 0, and out untouched, when the
 *  header has none.  MILL_ERR_INPUT names file, HDU and keyword: wrong type. */
int mill_single_key_text(mill_fits_file *file, int i_hdu, const char *key, char *out, size_t size,
                         int *found);
int mill_single_key_double(mill_fits_file *file, int i_hdu, const char *key, double *out,
                           int *found);
int mill_single_key_int32(mill_fits_file *file, int i_hdu, const char *key, int32_t *out,
                          int *found);

/** Frame and medium of SDSS and LAMOST: HELIO says whether wavelengths were corrected; without
 *  it HELIO_RV, the correction that was applied, shows that they were. VACUUM false: in air;
 *  without it vacuum, as both surveys define. */
int mill_single_conventions(mill_fits_file *file, int i_hdu, int *frame, int *air);

/** Frame by SPECSYS of the HDU, else of the primary header. */
int mill_single_specsys(mill_fits_file *file, int i_hdu, int *frame);

/** Angstroms in a unit of length; 0: it is none that is known (Angstrom, AA, nm, um, micron, m). */
int mill_single_unit(const char *text, double *to_aa);

/** The same of the unit that a keyword has; unit: where it is missing.  MILL_ERR_INPUT. */
int mill_single_key_unit(mill_fits_file *file, int i_hdu, const char *key, const char *unit,
                         double *to_aa);

/** Keywords of wavelengths in equal steps. */
typedef struct mill_single_wcs {
  const char *start, *step, *other_step; /**< other_step: where step is missing; may be NULL */
  const char *reference, *unit, *type;   /**< type: AWAV (air) or WAVE (vacuum) */
  const char *default_unit;              /**< "": the file must have one */
  int beyond;                            /**< number of the first pixel, less the 1 of FITS */
} mill_single_wcs;

/** Wavelengths by keywords of an HDU, checked.  configured: the key medium, which must be set where
 *  the type says neither air nor vacuum.  MILL_ERR_INPUT names file, HDU and keyword. */
int mill_single_linear_wave(mill_fits_file *file, int i_hdu, const mill_single_wcs *key,
                            int configured, int n_pix, double *wave_aa, int *air);

/** Find a column of numbers: one value for each pixel of a table's only spectrum (one row a pixel,
 *  or one row with all), or with a spectrum in each row.  Its name is matched without regard to
 *  case.  *n_pix: the pixels, checked against it where it is not 0 before.  MILL_ERR_INPUT names
 *  file, HDU and column: missing, not numbers, another length, not between 2 and
 *  MILL_SINGLE_MAX_PIX. */
int mill_single_pixels(mill_fits_file *file, int i_hdu, const char *column, int *n_pix,
                       int *number);
int mill_single_vector(mill_fits_file *file, int i_hdu, const char *column, int *n_pix,
                       int *number);

/** Read n_pix numbers of a column from number `first` of a row on; NaN and infinity as stored,
 *  nulls NaN. MILL_ERR_INPUT. */
int mill_single_numbers(mill_fits_file *file, int i_hdu, int number, int64_t i_row, int first,
                        int n_pix, double *out);

/** First of the pixels whose wavelength is not above those before; n_pix: there is none. */
int mill_single_disorder(int n_pix, const double *wave_aa);

/** Check wavelengths: positive, finite, ascending.  MILL_ERR_INPUT names file,
 *  HDU, what (a column or row), pixel and value. */
int mill_single_check_wave(const mill_fits_file *file, int i_hdu, const char *what, int n_pix,
                           const double *wave_aa);

/** To float32; beyond its range infinite, and so a bad pixel. */
void mill_single_narrow(const double *value, int n_pix, float *out);

/** To 32 bits of a mask of 64: bits that have no place still mark the pixel. */
int32_t mill_single_fold(uint64_t mask);

/** What is to be added to masks of 64 bits as stored: CFITSIO 4.2 takes unsigned ones for signed
 *  and then finds them out of range. what: for the message, or "". MILL_ERR_INPUT: scaled ones. */
int mill_single_mask_offset(const mill_fits_file *file, int i_hdu, const char *what, double scale,
                            double zero, uint64_t *offset);

/** Is that row among the n_row of a file?  MILL_ERR_RANGE. */
int mill_single_check_row(const mill_fits_file *file, int64_t row, int64_t n_row);

/** A wish that is a member of mill_catalog_row. */
#define MILL_ROW_AT(member)                                                                        \
  offsetof(mill_catalog_row, member), sizeof(((mill_catalog_row *)0)->member)
#define MILL_ROW_WISH(name, as, member, missing, is_needed)                                        \
  {                                                                                                \
    name, MILL_AS_##as, missing, is_needed, MILL_ROW_AT(member),                                   \
    {                                                                                              \
      NULL                                                                                         \
    }                                                                                              \
  }

/** Read keywords as one row of values, as mill_fits_columns reads columns: each from the first of
 *  its names that one of the headers i_hdu [n_hdu] has.  A keyword of the value `none` (NAN: no
 *  such value) is missing. */
int mill_single_keys(mill_fits_file *file, const int *i_hdu, int n_hdu, double none,
                     const mill_fits_wish *wish, int n_wish, mill_fits_values *values);

/** A table of fibres, each a row of the file with one spectrum. */
typedef struct mill_fibres {
  const mill_fits_wish *wish; /**< [n_wish]; the first: the target's name */
  int n_wish;
  int i_class, i_sn; /**< wishes by which target_classes and minsn select; 0: none */
  const char *(*objtype)(const mill_fits_values *values, int64_t i);
} mill_fibres;

/** Select rows of fibres and fill a zeroed index. i_hdu: of the table, for messages; values: of
 *  its wishes. MILL_ERR_INPUT names file, HDU and row: a name is too long. */
int mill_fibres_index(const mill_fibres *fibres, mill_fits_file *file, int i_hdu,
                      const mill_fits_values *values, int64_t n_row, const mill_selection *select,
                      mill_file_index *index);

#endif
