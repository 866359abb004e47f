/* SPDX-License-Identifier: BSD-3-Clause */
/** Read a checked FITS file by CFITSIO: find HDUs and columns by name. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <fitsio.h>

#include "io/fits/fits_guard.h"
#include "kernels/base/memory.h"

enum {
  MILL_FITS_MAX_ROWS = 1 << 22, /**< most rows of a table; DESI's have thousands */
  MILL_FITS_MAX_TEXT = 1024     /**< most bytes of a text in a column */
};

/** An open file, used by one thread at a time; several files may be open at once. */
typedef struct mill_fits_file {
  mill_fits_guard *guard;
  fitsfile *fptr;
} mill_fits_file;

/** Check a file (mill_fits_guard_open) and open it by CFITSIO. */
int mill_fits_file_open(const char *path, const mill_open_limits *limits, mill_fits_file **out);

void mill_fits_file_close(mill_fits_file *file); /* NULL is allowed */
MILL_CLOSER(mill_fits_file, mill_fits_file_close)

/** Set *i_hdu to the HDU with this EXTNAME (upper case); -1: none.  MILL_ERR_INPUT: two have it. */
int mill_fits_file_find(const mill_fits_file *file, const char *name, int *i_hdu);

/** Fail with MILL_ERR_INPUT if a table has more than MILL_FITS_MAX_ROWS rows.  A sparse file of few
 *  bytes can claim any number of rows, and readers allocate memory for each row. */
int mill_fits_file_check_rows(const mill_fits_file *file);

/** Move CFITSIO to HDU i_hdu.  MILL_ERR_INPUT. */
int mill_fits_file_move(mill_fits_file *file, int i_hdu);

/** Fail with MILL_ERR_INPUT if CFITSIO's status is not 0; the message has file, HDU, a printf-style
 *  text and CFITSIO's reason. */
int mill_fits_file_status(const mill_fits_file *file, int i_hdu, int status, const char *source,
                          int line, const char *format, ...) __attribute__((format(printf, 6, 7)));
#define MILL_CHECK_FITS(file, i_hdu, status, ...)                                                  \
  MILL_CHECK(mill_fits_file_status((file), (i_hdu), (status), __FILE__, __LINE__, __VA_ARGS__))

/** Return MILL_ERR_INPUT; the message has file, HDU and a printf-style text. */
int mill_fits_file_refuse(const mill_fits_file *file, int i_hdu, const char *source, int line,
                          const char *format, ...) __attribute__((format(printf, 5, 6)));
#define MILL_ERROR_HDU(file, i_hdu, ...)                                                           \
  mill_fits_file_refuse((file), (i_hdu), __FILE__, __LINE__, __VA_ARGS__)

/** Read n pixels of an uncompressed image of 32-bit numbers, from pixel `first` on, counted over
 *  all axes.  Ignores BSCALE, BZERO and nulls, and so is much faster than CFITSIO.
 *  MILL_ERR_INPUT: unreadable, or the file became shorter. */
int mill_fits_file_words(const mill_fits_file *file, int i_hdu, int64_t first, int64_t n,
                         void *out);

/** A column of a FITS table. */
typedef struct mill_fits_column {
  int number, type;       /**< CFITSIO's number, from 1 (0: missing); type (< 0: variable length) */
  LONGLONG repeat, width; /**< values per row, bytes per value */
} mill_fits_column;

/** Find a column of table i_hdu, ignoring case; move CFITSIO to this HDU.  found NULL: the column
 *  must exist.  MILL_ERR_INPUT: no table, a missing column, or two of this name. */
int mill_fits_column_find(mill_fits_file *file, int i_hdu, const char *name, int *found,
                          mill_fits_column *out);

/** Read all rows of a scalar column of table i_hdu.
 *
 *  out    [n_row]  in/out  before the call: missing values, which stay if there is no column
 *  found           out     0: no such column; NULL: a missing column is an error
 *
 *  - Null integers (TNULL): int64_t rows keep the missing value, double rows become NaN.
 *  - 64-bit integers are exact, but need TSCAL 1 and a whole TZERO.
 *  MILL_ERR_INPUT: as from mill_fits_column_find; the column has another type or shape; a value is
 *  beyond int64_t. */
int mill_fits_column_int64(mill_fits_file *file, int i_hdu, const char *name, int64_t *out,
                           int *found);
int mill_fits_column_double(mill_fits_file *file, int i_hdu, const char *name, double *out,
                            int *found);

/** As mill_fits_column_int64, but into a new array *out (mill_free); missing values are 0. */
int mill_fits_table_int64(mill_fits_file *file, int i_hdu, const char *name, int64_t **out,
                          int *found);

enum mill_fits_as { MILL_AS_INT64, MILL_AS_INT32, MILL_AS_DOUBLE, MILL_AS_TEXT };

/** A column or keyword wanted by a reader. */
typedef struct mill_fits_wish {
  const char *name;
  enum mill_fits_as as;
  double missing; /**< value if the file lacks it */
  int is_needed;
  size_t at, size;      /**< struct member that mill_fits_fill sets; size 0: none */
  const char *other[2]; /**< alternative names of a keyword; NULL: none */
} mill_fits_wish;
#define MILL_WISH(text, type, none, needed)                                                        \
  {                                                                                                \
    .name = text, .as = MILL_AS_##type, .missing = none, .is_needed = needed                       \
  }

/** Values of a column, one per row; text NULL: a missing column of texts. */
typedef struct mill_fits_values {
  union {
    int64_t *i64;
    int32_t *i32;
    double *f64;
    char *text;
  };
  size_t stride; /**< bytes from row to row */
  int there;     /**< 1: the file has the column */
  int is_end;    /**< 1: stands after the last column of MILL_FITS_VALUES */
} mill_fits_values;

/** Declare an array v [n] of missing values, freed when its block ends. */
#define MILL_FITS_VALUES(v, n)                                                                     \
  MILL_AT_END(mill_fits_values_end) mill_fits_values v[(n) + 1] = {[n] = {.is_end = 1}}
void mill_fits_values_end(void *values);

/** Text of row i; empty if the column is missing. */
static inline const char *mill_fits_text_at(const mill_fits_values *texts, int64_t i)
{
  return texts->text ? texts->text + (size_t)i * texts->stride : "";
}

/** Read columns wish [n_wish] of a table.  values: made by MILL_FITS_VALUES.  MILL_ERR_INPUT. */
int mill_fits_columns(mill_fits_file *file, int i_hdu, const mill_fits_wish *wish, int n_wish,
                      mill_fits_values *values);

/** Make values [n_wish] of n_row rows that are all missing. */
int mill_fits_columns_missing(const mill_fits_wish *wish, int n_wish, int64_t n_row,
                              mill_fits_values *values);

/** Copy row i of the columns to members of struct *out (mill_fits_wish.at).  If a text column is
 *  missing, its member is unchanged.  path: for warnings. */
void mill_fits_fill(const char *path, const mill_fits_wish *wish, int n_wish,
                    const mill_fits_values *values, int64_t i, void *out);

/** Read the first n_pix pixels of a row of an image, scaled; missing pixels are NaN.  i_row: index
 *  along the slowest axis.  MILL_ERR_INPUT. */
int mill_fits_image_row(mill_fits_file *file, int i_hdu, int64_t i_row, int n_pix, double *out);

/** Copy the text of column or keyword `name` to out [size]; cut a longer text, with a warning. */
void mill_fits_text_copy(const char *path, const char *name, const char *text, char *out,
                         size_t size);
