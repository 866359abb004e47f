/* SPDX-License-Identifier: BSD-3-Clause */
/** A new FITS file by CFITSIO, under a temporary name until it is whole.
 *
 *  HDUs are added in order, then filled by their numbers, in any order.  The bytes depend on the
 *  content alone: no dates, no hosts.  One thread at a time.
 *
 *  Failures are MILL_ERR_OUTPUT and name the file; MILL_ERR_MEMORY.
 */
#ifndef MILL_FITS_OUTPUT_H
#define MILL_FITS_OUTPUT_H

#include <stddef.h>
#include <stdint.h>

/** A column: name, FITS format, unit (NULL: none), and where its values stand in a row of the
 *  caller's: int64_t (K), int32_t (J), float (E), double (D, 8D) or a text that ends with 0 (3A).
 */
typedef struct mill_output_column {
  const char *name, *format, *unit;
  size_t offset;
} mill_output_column;

typedef struct mill_fits_output mill_fits_output;

/** Begin the file path, which must not exist, as a primary HDU with the keyword MOCKID = id and
 *  HISTORY cards. */
int mill_fits_output_open(const char *path, const char *id, int n_history,
                          const char *const *history, mill_fits_output **out);

/** Add a keyword with a text, a number or a truth value to the HDU that was added last. */
int mill_fits_output_text(mill_fits_output *file, const char *key, const char *text);
int mill_fits_output_number(mill_fits_output *file, const char *key, int64_t number);
int mill_fits_output_flag(mill_fits_output *file, const char *key, int flag);

/** Add an image of bitpix -64, -32 or 32, axis [n_axis] fastest first; unit NULL: none. */
int mill_fits_output_image(mill_fits_output *file, const char *extname, int bitpix, int n_axis,
                           const int64_t *axis, const char *unit);

/** Add a binary table. */
int mill_fits_output_table(mill_fits_output *file, const char *extname, int64_t n_row, int n_column,
                           const mill_output_column *column);

/** Write n pixels of the image i_hdu (0: the primary HDU) from number first on; double, float or
 *  int32_t as bitpix says. */
int mill_fits_output_pixels(mill_fits_output *file, int i_hdu, int bitpix, int64_t first, int64_t n,
                            const void *pixel);

/** Write rows first .. first + n - 1 of the table i_hdu, which stand row_bytes apart. */
int mill_fits_output_rows(mill_fits_output *file, int i_hdu, int n_column,
                          const mill_output_column *column, int64_t first, int64_t n,
                          const void *row, size_t row_bytes);

/** Close the file and give it its name.  It is not flushed to the disk: a machine that loses its
 *  power may lose it. */
int mill_fits_output_commit(mill_fits_output *file);

/** Free; a file that was not committed is removed.  NULL is allowed. */
void mill_fits_output_free(mill_fits_output *file);

#endif
