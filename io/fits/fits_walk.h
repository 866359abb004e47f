/* SPDX-License-Identifier: BSD-3-Clause */
/** Shared by the checks of headers (fits_guard.c) and of compressed images (fits_tiles.c). */
#pragma once

#include "io/fits/fits_guard.h"

#define CUT "the file is truncated: fetch it again"
#define BAD "the file is damaged or no standard FITS: make it again"

/** The HDU being checked, for messages. */
typedef struct mill_fits_place {
  const char *path;
  int i_hdu; /**< counted from 0 */
  const char *name;
} mill_fits_place;

#define ERROR_HDU(at, format, ...)                                                                 \
  MILL_ERROR(MILL_ERR_INPUT, "%s: HDU %d%s%s%s: " format, (at)->path, (at)->i_hdu + 1,             \
             (at)->name[0] ? " (" : "", (at)->name, (at)->name[0] ? ")" : "", ##__VA_ARGS__)

/** A column of a binary table. */
typedef struct mill_fits_field {
  int have_form;
  char form[MILL_FITS_MAX_VALUE];
  int64_t n_byte;     /**< bytes per row */
  int n_tile, n_gzip; /**< how many TTYPE cards say COMPRESSED_DATA, GZIP_... */
} mill_fits_field;

/** Keywords of a table on which CFITSIO relies; each may occur at most once. */
enum mill_fits_keyword {
  MILL_KEY_ZNAXIS, /**< key[0]: number of axes; key[1] ...: their lengths */
  MILL_KEY_ZTILE,
  MILL_KEY_ZNAME,
  MILL_KEY_ZVAL,
  MILL_KEY_ZBITPIX,
  MILL_KEY_ZCMPTYPE,
  MILL_KEY_THEAP,
  MILL_N_KEY
};

typedef struct mill_fits_key {
  int have;
  int64_t value; /**< -1: not an integer */
  char text[MILL_FITS_MAX_VALUE];
} mill_fits_key;

/** Header of a binary table. */
typedef struct mill_fits_table {
  int n_field;
  mill_fits_field *field; /**< [n_field], owned by the walk */
  int is_image;           /**< 1: ZIMAGE is T */
  int64_t heap_start;     /**< byte offset of the heap in the data */
  mill_fits_key key[MILL_N_KEY][MILL_FITS_MAX_AXIS + 1];
} mill_fits_table;

/** Check a table of compressed tiles, and change *hdu from the table to the image in the tiles.
 *  image_limit: most bytes of the unpacked image.  MILL_ERR_INPUT. */
int mill_fits_take_compressed(const mill_fits_place *at, const mill_fits_guard *guard,
                              const mill_fits_table *table, int64_t image_limit,
                              mill_fits_hdu *hdu);

int mill_fits_good_bitpix(int64_t bitpix);
