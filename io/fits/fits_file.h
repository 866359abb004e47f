/* SPDX-License-Identifier: BSD-3-Clause */
/** Reading of a checked FITS file by CFITSIO: HDUs and columns by name. */
#ifndef MILL_FITS_FILE_H
#define MILL_FITS_FILE_H

#include <stddef.h>
#include <stdint.h>

#include <fitsio.h>

#include "io/fits/fits_guard.h"
#include "kernels/base/error.h"

enum {
  MILL_FITS_MAX_ROWS = 1 << 22, /**< most rows of a table; DESI's have some thousands */
  MILL_FITS_MAX_TEXT = 1024     /**< most bytes of a text in a column */
};

/** An open file, for one thread at a time; several files may be open at once. */
typedef struct mill_fits_file {
  mill_fits_guard *guard;
  fitsfile *fptr;
} mill_fits_file;

/** Check a file (mill_fits_guard_open) and open it by CFITSIO. */
int mill_fits_file_open(const char *path, const mill_open_limits *limits, mill_fits_file **out);

/** NULL is allowed. */
void mill_fits_file_close(mill_fits_file *file);

/** Index of the HDU of that EXTNAME (upper case); -1: none.  MILL_ERR_INPUT if two have the
 *  name. */
int mill_fits_file_find(const mill_fits_file *file, const char *name, int *i_hdu);

/** Refuse tables of more than MILL_FITS_MAX_ROWS rows: a sparse file can claim any number of rows,
 *  and readers take memory for each.  MILL_ERR_INPUT. */
int mill_fits_file_check_rows(const mill_fits_file *file);

/** Make i_hdu CFITSIO's current HDU.  MILL_ERR_INPUT. */
int mill_fits_file_move(mill_fits_file *file, int i_hdu);

/** MILL_ERR_INPUT if CFITSIO's status is not 0, with file, HDU, a printf-style text and CFITSIO's
 *  reason.  Call it by MILL_TRY_FITS or MILL_CHECK_FITS. */
int mill_fits_file_status(const mill_fits_file *file, int i_hdu, int status, const char *source,
                          int line, const char *format, ...) __attribute__((format(printf, 6, 7)));
#define MILL_TRY_FITS(file, i_hdu, status, ...)                                                    \
  MILL_TRY(mill_fits_file_status((file), (i_hdu), (status), __FILE__, __LINE__, __VA_ARGS__))
#define MILL_CHECK_FITS(file, i_hdu, status, ...)                                                  \
  MILL_CHECK(mill_fits_file_status((file), (i_hdu), (status), __FILE__, __LINE__, __VA_ARGS__))

/** MILL_ERR_INPUT with file, HDU and a printf-style text.  Call it by MILL_ERROR_HDU. */
int mill_fits_file_refuse(const mill_fits_file *file, int i_hdu, const char *source, int line,
                          const char *format, ...) __attribute__((format(printf, 5, 6)));
#define MILL_ERROR_HDU(file, i_hdu, ...)                                                           \
  mill_fits_file_refuse((file), (i_hdu), __FILE__, __LINE__, __VA_ARGS__)

/** Read the elements [first, first + n) of an uncompressed image of 32-bit numbers, counted through
 *  all axes.  Swaps bytes, but applies no BSCALE, BZERO or nulls, and so is much faster than
 *  CFITSIO. MILL_ERR_INPUT: the file cannot be read, or has become shorter. */
int mill_fits_file_words(const mill_fits_file *file, int i_hdu, int64_t first, int64_t n,
                         void *out);

/** A column: its number (CFITSIO counts from 1; 0: missing), its stored type (CFITSIO's; negative:
 *  variable length), values per row and bytes per value. */
typedef struct mill_fits_column {
  int number, type;
  LONGLONG repeat, width;
} mill_fits_column;

/** Find a column of the table i_hdu, ignoring case; i_hdu becomes the current HDU.  found NULL: a
 *  missing column is an error.  MILL_ERR_INPUT also if the HDU is no table, or two columns have the
 *  name. */
int mill_fits_column_find(mill_fits_file *file, int i_hdu, const char *name, int *found,
                          mill_fits_column *out);

/** Read all rows of a scalar column of the table i_hdu.
 *
 *  out   [rows]  in/out  the caller sets the missing value in every row; it stays where the column,
 *                        or an integer (TNULL), is missing.  NaNs of reals are read as stored
 *  found          out    NULL: a missing column is an error
 *
 *  64-bit integers are exact, also with a whole TZERO, which unsigned ones have.  Missing integers
 *  read as double are NaN.
 *
 *  MILL_ERR_INPUT names file, HDU and column: it is missing or has a wrong type or shape; or a
 *  64-bit column has a TSCAL other than 1, or a value beyond int64_t. */
int mill_fits_column_int64(mill_fits_file *file, int i_hdu, const char *name, int64_t *out,
                           int *found);
int mill_fits_column_double(mill_fits_file *file, int i_hdu, const char *name, double *out,
                            int *found);

/** Read such a column into new memory, *out, which the caller frees; missing: the missing value. */
int mill_fits_table_int64(mill_fits_file *file, int i_hdu, const char *name, int64_t missing,
                          int64_t **out, int *found);

enum mill_fits_as { MILL_AS_INT64, MILL_AS_INT32, MILL_AS_DOUBLE, MILL_AS_TEXT };

/** A column or keyword that a reader asks for. */
typedef struct mill_fits_wish {
  const char *name;
  enum mill_fits_as as;
  double missing; /**< value if the file has none */
  int is_needed;
  size_t at, size;      /**< offset and size of the member that mill_fits_fill sets; size 0: none */
  const char *other[2]; /**< further names of a keyword; NULL: none */
} mill_fits_wish;
#define MILL_WISH(name, as, missing, is_needed)                                                    \
  {                                                                                                \
    name, MILL_AS_##as, missing, is_needed, 0, 0,                                                  \
    {                                                                                              \
      NULL                                                                                         \
    }                                                                                              \
  }

/** Values of a column by row; text NULL: a column of texts is missing. */
typedef struct mill_fits_values {
  union {
    int64_t *i64;
    int32_t *i32;
    double *f64;
    char *text;
  };
  size_t stride; /**< bytes from row to row */
  int there;     /**< the file has it */
} mill_fits_values;

/** Text of row i; empty if the column is missing. */
static inline const char *mill_fits_text_at(const mill_fits_values *texts, int64_t i)
{
  return texts->text ? texts->text + (size_t)i * texts->stride : "";
}

/** Read the columns of a table into new memory.  The caller zeroes values [n_wish] before, and
 *  frees them also after a failure.  MILL_ERR_INPUT. */
int mill_fits_columns(mill_fits_file *file, int i_hdu, const mill_fits_wish *wish, int n_wish,
                      mill_fits_values *values);

/** Make values [n_wish] of n_row rows in which everything is missing. */
int mill_fits_columns_missing(const mill_fits_wish *wish, int n_wish, int64_t n_row,
                              mill_fits_values *values);
void mill_fits_values_free(int n, mill_fits_values *values);

/** Copy row i of the values into the members of a struct, *out, that the wishes name.  A missing
 *  column of texts leaves its member as it is.  path: for warnings. */
void mill_fits_fill(const char *path, const mill_fits_wish *wish, int n_wish,
                    const mill_fits_values *values, int64_t i, void *out);

/** Read the first n_pix pixels of row i_row (along the slowest axis) of an image, scaled; missing
 *  pixels are NaN.  MILL_ERR_INPUT. */
int mill_fits_image_row(mill_fits_file *file, int i_hdu, int64_t i_row, int n_pix, double *out);

/** Copy a text of the column or keyword `name` into out [size].  A longer text is cut, with a
 *  warning that names file and column. */
void mill_fits_text_copy(const char *path, const char *name, const char *text, char *out,
                         size_t size);

#endif
