/* SPDX-License-Identifier: BSD-3-Clause */
/** CFITSIO over a guarded file: HDUs by name, columns by name. */
#ifndef MILL_FITS_FILE_H
#define MILL_FITS_FILE_H

#include <stddef.h>
#include <stdint.h>

#include <fitsio.h>

#include "io/fits/fits_guard.h"
#include "kernels/base/error.h"

enum {
  MILL_FITS_MAX_ROWS = 1 << 22, /**< of a table in a file of many: DESI's have some thousands */
  MILL_FITS_MAX_TEXT = 1024     /**< bytes of one text of a column */
};

/** One open file.  One thread at a time; several files may be open at once. */
typedef struct mill_fits_file {
  mill_fits_guard *guard;
  fitsfile *fptr;
} mill_fits_file;

/** As mill_fits_guard_open, then CFITSIO on the very file that was checked. */
int mill_fits_file_open(const char *path, const mill_open_limits *limits, mill_fits_file **out);

/** NULL is allowed. */
void mill_fits_file_close(mill_fits_file *file);

/** Index of the HDU of that EXTNAME (upper case), -1 when there is none.
 *  MILL_ERR_INPUT when two have the name. */
int mill_fits_file_find(const mill_fits_file *file, const char *name, int *i_hdu);

/** Refuse a table of more than MILL_FITS_MAX_ROWS rows: a sparse file may have any number, which
 *  would take memory here.  MILL_ERR_INPUT. */
int mill_fits_file_check_rows(const mill_fits_file *file);

/** Make it the current HDU. MILL_ERR_INPUT. */
int mill_fits_file_move(mill_fits_file *file, int i_hdu);

/** Fail with MILL_ERR_INPUT when CFITSIO's status is not 0: file, HDU, a printf-style text and
 *  CFITSIO's reason.  For MILL_TRY_FITS. */
int mill_fits_file_status(const mill_fits_file *file, int i_hdu, int status, const char *source,
                          int line, const char *format, ...) __attribute__((format(printf, 6, 7)));
#define MILL_TRY_FITS(file, i_hdu, status, ...)                                                    \
  MILL_TRY(mill_fits_file_status((file), (i_hdu), (status), __FILE__, __LINE__, __VA_ARGS__))
#define MILL_CHECK_FITS(file, i_hdu, status, ...)                                                  \
  MILL_CHECK(mill_fits_file_status((file), (i_hdu), (status), __FILE__, __LINE__, __VA_ARGS__))

/** MILL_ERR_INPUT with file and HDU, followed by a printf-style text.  For MILL_ERROR_HDU. */
int mill_fits_file_refuse(const mill_fits_file *file, int i_hdu, const char *source, int line,
                          const char *format, ...) __attribute__((format(printf, 5, 6)));
#define MILL_ERROR_HDU(file, i_hdu, ...)                                                           \
  mill_fits_file_refuse((file), (i_hdu), __FILE__, __LINE__, __VA_ARGS__)

/** Read elements [first, first + n) of an uncompressed image of 32-bit numbers, counted
 *  through all its axes, as they are stored but for the order of bytes: no BSCALE, no BZERO,
 *  no nulls.  About as fast as copying; CFITSIO looks at every value.
 *  MILL_ERR_INPUT: the file is shorter than it was, or cannot be read. */
int mill_fits_file_words(const mill_fits_file *file, int i_hdu, int64_t first, int64_t n,
                         void *out);

/** A column: its number as CFITSIO counts (0: missing), its type as stored (negative: of variable
 *  length), values a row and bytes of a value. */
typedef struct mill_fits_column {
  int number, type;
  LONGLONG repeat, width;
} mill_fits_column;

/** Find a column of the table i_hdu, which becomes the current HDU, without regard to case.
 *  found NULL: it must be there.  MILL_ERR_INPUT also when the HDU is no table, or two columns have
 *  the name. */
int mill_fits_column_find(mill_fits_file *file, int i_hdu, const char *name, int *found,
                          mill_fits_column *out);

/** Read a scalar column of the table i_hdu, all of its rows.
 *
 *  out   [rows]  in/out  before: the missing value in each row, which stays in it where the column
 *                        or its value is missing (integers: TNULL; real ones are read as stored)
 *  found          out    may be NULL: then the column must be there
 *
 *  Integers of 64 bits are exact, also with TZERO (unsigned ones have it), which must be whole;
 *  nulls of integers are NaN where they are read as double.
 *
 *  MILL_ERR_INPUT names file, HDU and column: missing, wrong type or shape; of 64 bits also a
 *  TSCAL other than 1, or a value beyond int64_t. */
int mill_fits_column_int64(mill_fits_file *file, int i_hdu, const char *name, int64_t *out,
                           int *found);
int mill_fits_column_double(mill_fits_file *file, int i_hdu, const char *name, double *out,
                            int *found);

/** The same into new memory of the caller, where a missing column leaves missing in each row. */
int mill_fits_table_int64(mill_fits_file *file, int i_hdu, const char *name, int64_t missing,
                          int64_t **out, int *found);

enum mill_fits_as { MILL_AS_INT64, MILL_AS_INT32, MILL_AS_DOUBLE, MILL_AS_TEXT };

/** A column, or a keyword, that a reader wants. */
typedef struct mill_fits_wish {
  const char *name;
  enum mill_fits_as as;
  double missing; /**< number where the file has none */
  int is_needed;
  size_t at, size;      /**< of the member that mill_fits_fill sets; size 0: none */
  const char *other[2]; /**< further names of a keyword; NULL: none */
} mill_fits_wish;
#define MILL_WISH(name, as, missing, is_needed)                                                    \
  {                                                                                                \
    name, MILL_AS_##as, missing, is_needed, 0, 0,                                                  \
    {                                                                                              \
      NULL                                                                                         \
    }                                                                                              \
  }

/** Values of a column by row; texts NULL: the column is missing. */
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

/** Text of row i; empty where the column is missing. */
static inline const char *mill_fits_text_at(const mill_fits_values *texts, int64_t i)
{
  return texts->text ? texts->text + (size_t)i * texts->stride : "";
}

/** Read the columns of a table into new memory.  values [n_wish] are zeroed before, and freed also
 *  after a failure.  MILL_ERR_INPUT. */
int mill_fits_columns(mill_fits_file *file, int i_hdu, const mill_fits_wish *wish, int n_wish,
                      mill_fits_values *values);

/** The same where there is no table: n_row rows of missing values. */
int mill_fits_columns_missing(const mill_fits_wish *wish, int n_wish, int64_t n_row,
                              mill_fits_values *values);
void mill_fits_values_free(int n, mill_fits_values *values);

/** Copy row i of the values into a struct, each to its wish's place; where a column of texts is
 *  missing the struct keeps its own.  path: for a warning. */
void mill_fits_fill(const char *path, const mill_fits_wish *wish, int n_wish,
                    const mill_fits_values *values, int64_t i, void *out);

/** Row i (along its slowest axis) of an image, its first n_pix pixels, scaled; missing ones are
 *  NaN.  MILL_ERR_INPUT. */
int mill_fits_image_row(mill_fits_file *file, int i_hdu, int64_t i_row, int n_pix, double *out);

/** Copy text, of a column or keyword of that name, into out [size].  One that is longer is cut,
 *  with a warning that names file and column; the log counts how many there are. */
void mill_fits_text_copy(const char *path, const char *name, const char *text, char *out,
                         size_t size);

#endif
