/* SPDX-License-Identifier: BSD-3-Clause */
/** Redshifts per TARGETID, from a redrock file or an older zbest file. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "io/catalog/catalog_row.h"
#include "io/fits/fits_guard.h"

typedef struct mill_redshift {
  int64_t target_id;
  mill_kind kind;
} mill_redshift;

/** The redshifts of a file; zero it before use. */
typedef struct mill_redrock {
  size_t n;
  mill_redshift *row; /**< [n], sorted by TARGETID, owned */
  int64_t file_size;  /**< bytes */
  double file_mtime;  /**< s since 1970-01-01 UTC */
} mill_redrock;

/** Read TARGETID, Z, SPECTYPE and, if present, SUBTYPE and ZWARN from HDU REDSHIFTS, else ZBEST.
 *  The first row of a TARGETID is used.  MILL_ERR_INPUT names file, HDU and column. */
int mill_redrock_read(const char *path, const mill_open_limits *limits, mill_redrock *out);

void mill_redrock_clear(mill_redrock *redrock);

/** Find a target; NULL: not in the file. */
const mill_redshift *mill_redrock_find(const mill_redrock *redrock, int64_t target_id);

/** Does a file of this name look like one that mill_redrock_beside finds? */
int mill_redrock_is_name(const char *name);

/** Find the redrock file next to coadd-X.fits or spectra-X.fits (or .gz).  Its name is the first of
 *  redrock-X.fits, redrock-X.fits.gz, zbest-X.fits and zbest-X.fits.gz that exists.
 *  out [size]: its path; empty: there is none.  MILL_ERR_INPUT: the path is too long. */
int mill_redrock_beside(const char *path, char *out, size_t size);
