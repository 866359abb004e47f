/* SPDX-License-Identifier: BSD-3-Clause */
/** A FITS file checked before CFITSIO sees it.
 *
 *  CFITSIO aborts the process on some malformed headers, and opens a file that
 *  was cut in a header, or a cut .gz, without an error.  So every header of a
 *  file is walked here first, card by card, and the bytes of every HDU must lie
 *  inside the file.  A gzip file (known by its first bytes, not by its name) is
 *  unpacked into a temporary file without a name, so that blocks of rows can be
 *  read from it and nothing is left behind by a killed process.
 *
 *  Linux: CFITSIO opens the checked file through /proc/self/fd.
 */
#ifndef MILL_FITS_GUARD_H
#define MILL_FITS_GUARD_H

#include <stdint.h>

#include "io/fits/gunzip.h"

/** Limits for opening: the largest unpacked .gz, or image of compressed tiles, and where a .gz
 *  is unpacked. */
typedef struct mill_open_limits {
  double gzip_limit_mib;
  const char *scratch; /**< NULL or empty: TMPDIR or /tmp */
} mill_open_limits;

enum {
  MILL_FITS_MAX_AXIS = 9, /**< axes of one image */
  MILL_FITS_MAX_PATH = 1024,
  MILL_FITS_MAX_VALUE = 72,  /**< bytes of a string value with its end */
  MILL_GZIP_LIMIT_MIB = 4096 /**< where limits are not given */
};

enum mill_fits_kind { MILL_FITS_IMAGE, MILL_FITS_TABLE, MILL_FITS_OTHER };

/** One HDU as its header describes it. */
typedef struct mill_fits_hdu {
  char name[MILL_FITS_MAX_VALUE]; /**< EXTNAME in upper case, empty when there is none */
  int kind;                       /**< a tile-compressed image is an image */
  int compressed;                 /**< an image stored as a table of compressed tiles */
  int bitpix;                     /**< of the image itself, compressed or not */
  int n_axis;
  int64_t axis[MILL_FITS_MAX_AXIS]; /**< fastest first, as in FITS; table: row bytes, rows */
  int64_t data_start, data_bytes;   /**< in the plain file, without padding */
} mill_fits_hdu;

typedef struct mill_fits_guard {
  char path[MILL_FITS_MAX_PATH];
  int fd;          /**< the plain (or unpacked) file, open for reading */
  int is_unpacked; /**< fd is that of unpacked, which owns it */
  mill_gunzipped unpacked;
  int n_hdu;
  mill_fits_hdu *hdu; /**< [n_hdu], hdu[0] is the primary, owned */
  int64_t file_size;  /**< of the file at path, packed or not */
  double file_mtime;  /**< s since 1970 */
} mill_fits_guard;

/** Open path (a plain path: no brackets, URLs or pipes), unpack it if it is gzip, and walk all
 *  headers.
 *
 *  limits may be NULL: MILL_GZIP_LIMIT_MIB, TMPDIR or /tmp.  *out is NULL on failure.
 *  MILL_ERR_INPUT names file, HDU and card and says what to do;
 *  MILL_ERR_OUTPUT when the scratch folder cannot be written; MILL_ERR_STOPPED and more as
 *  mill_gunzip.  Not collective; thread-safe; closed by the thread that opened. */
int mill_fits_guard_open(const char *path, const mill_open_limits *limits, mill_fits_guard **out);

/** NULL is allowed. */
void mill_fits_guard_close(mill_fits_guard *guard);

/** Read n bytes at offset, in as many calls as needed: returns how many there were, -1 with
 *  errno. */
int64_t mill_fits_read_at(int fd, void *out, int64_t n, int64_t offset);

#endif
