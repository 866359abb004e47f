/* SPDX-License-Identifier: BSD-3-Clause */
/** Check a FITS file before CFITSIO opens it.
 *
 *  CFITSIO aborts the process on some malformed headers, and opens some truncated files without an
 *  error.  So every card of every header is checked, and the data of every HDU must lie inside the
 *  file.  A gzip file is first unpacked (io/fits/gunzip.h). */
#pragma once

#include <stdint.h>

#include "io/fits/gunzip.h"
#include "kernels/base/memory.h"

/** Limits on opened files. */
typedef struct mill_open_limits {
  double gzip_limit_mib; /**< most MiB of an unpacked .gz or tile-compressed image */
  const char *scratch;   /**< folder for unpacked .gz; NULL or empty: TMPDIR or /tmp */
} mill_open_limits;

enum {
  MILL_FITS_MAX_AXIS = 9, /**< most axes of an image */
  MILL_FITS_MAX_PATH = 1024,
  MILL_FITS_MAX_VALUE = 72,  /**< bytes of a string value, with its final zero */
  MILL_GZIP_LIMIT_MIB = 4096 /**< default of gzip_limit_mib */
};

enum mill_fits_kind { MILL_FITS_IMAGE, MILL_FITS_TABLE, MILL_FITS_OTHER };

/** An HDU, as described by its header. */
typedef struct mill_fits_hdu {
  char name[MILL_FITS_MAX_VALUE]; /**< EXTNAME in upper case; empty: none */
  int kind;                       /**< enum mill_fits_kind; a compressed image is an image */
  int compressed;                 /**< 1: the image is stored as a table of compressed tiles */
  int bitpix;                     /**< BITPIX of the unpacked image */
  int n_axis;
  int64_t axis[MILL_FITS_MAX_AXIS]; /**< fastest first, as in FITS; table: bytes per row, rows */
  int64_t data_start, data_bytes;   /**< in bytes of the unpacked file, without padding */
} mill_fits_hdu;

typedef struct mill_fits_guard {
  char path[MILL_FITS_MAX_PATH];
  int fd;          /**< descriptor of the file, or of the unpacked .gz */
  int is_unpacked; /**< 1: fd is owned by unpacked */
  mill_gunzipped unpacked;
  int n_hdu;
  mill_fits_hdu *hdu; /**< [n_hdu], hdu[0] is the primary, owned */
  int64_t file_size;  /**< bytes of the stored file at path */
  double file_mtime;  /**< s since 1970 */
} mill_fits_guard;

/** Open a file, unpack it if gzip, and check all headers.
 *
 *  path    brackets, URLs and pipes have no special meaning
 *  limits  NULL: MILL_GZIP_LIMIT_MIB and the default folder
 *
 *  MILL_ERR_INPUT: bad file; other codes as mill_gunzip.  Not collective.  Thread-safe; the thread
 *  that opens a file must close it. */
int mill_fits_guard_open(const char *path, const mill_open_limits *limits, mill_fits_guard **out);

void mill_fits_guard_close(mill_fits_guard *guard); /* NULL is allowed */
MILL_CLOSER(mill_fits_guard, mill_fits_guard_close)

/** Read n bytes at offset.  Returns the number read, which is below n only at the end of the file;
 *  -1: failed, see errno. */
int64_t mill_fits_read_at(int fd, void *out, int64_t n, int64_t offset);
