/* SPDX-License-Identifier: BSD-3-Clause */
/** Redshifts of a redrock (or older zbest) file, looked up by TARGETID. */
#ifndef MILL_REDROCK_H
#define MILL_REDROCK_H

#include <stddef.h>
#include <stdint.h>

#include "io/fits/fits_guard.h"

typedef struct mill_redshift {
  int64_t target_id;
  double z;
  int32_t zwarn;                 /**< 0 when the file has none */
  char spectype[8], subtype[24]; /**< empty when the file has none */
} mill_redshift;

/** Zero it before use. */
typedef struct mill_redrock {
  size_t n;
  mill_redshift *row; /**< [n], by TARGETID, owned */
  int64_t file_size;  /**< bytes */
  double file_mtime;  /**< s since 1970-01-01 UTC */
} mill_redrock;

/** Read TARGETID, Z, SPECTYPE and, optional, SUBTYPE and ZWARN of HDU REDSHIFTS, else
 *  ZBEST.  Of several rows of one TARGETID the first counts.
 *  MILL_ERR_INPUT names file, HDU and column. */
int mill_redrock_read(const char *path, const mill_open_limits *limits, mill_redrock *out);

void mill_redrock_clear(mill_redrock *redrock);

/** NULL when the target is not in the file. */
const mill_redshift *mill_redrock_find(const mill_redrock *redrock, int64_t target_id);

/** Is this a name that mill_redrock_beside may find? */
int mill_redrock_is_name(const char *name);

/** The redrock file in the folder of path: coadd-X.fits or spectra-X.fits gives redrock-X.fits,
 *  then redrock-X.fits.gz, then the same with zbest-; whether path ends in .gz
 *  does not matter.  out [size] is empty when no such file exists.
 *  MILL_ERR_INPUT when the path is too long. */
int mill_redrock_beside(const char *path, char *out, size_t size);

#endif
