/* SPDX-License-Identifier: BSD-3-Clause */
/** What is fuzzed: one function per reader of files that others wrote.
 *
 *  Each takes the bytes of a file, reads it as a run would and says whether it was accepted.
 *  It aborts where the reader broke its promise: crashed, kept memory, or failed with a code
 *  that would end a run in which this file is one of many.
 */
#ifndef MILL_FUZZ_TARGETS_H
#define MILL_FUZZ_TARGETS_H

#include <stddef.h>
#include <stdint.h>

enum { FUZZ_REFUSED, FUZZ_ACCEPTED };

int fuzz_desi(const uint8_t *bytes, size_t n);
int fuzz_sdss(const uint8_t *bytes, size_t n);
int fuzz_lamost(const uint8_t *bytes, size_t n);
int fuzz_lamost_mrs(const uint8_t *bytes, size_t n);
int fuzz_pfs(const uint8_t *bytes, size_t n);
int fuzz_weave(const uint8_t *bytes, size_t n);
int fuzz_fourmost(const uint8_t *bytes, size_t n);
int fuzz_generic(const uint8_t *bytes, size_t n);
int fuzz_redrock(const uint8_t *bytes, size_t n);
int fuzz_start(const uint8_t *bytes, size_t n);  /**< FITS or HDF5 */
int fuzz_priors(const uint8_t *bytes, size_t n); /**< likewise */
int fuzz_library(const uint8_t *bytes, size_t n);
int fuzz_values(const uint8_t *bytes, size_t n); /**< changes to a good library */
int fuzz_config(const uint8_t *bytes, size_t n);
int fuzz_catalog(const uint8_t *bytes, size_t n); /**< as a list of files, then of TARGETIDs */

typedef struct fuzz_target {
  const char *name;
  int (*run)(const uint8_t *bytes, size_t n);
  int is_fits; /**< mutate it card by card */
} fuzz_target;

extern const fuzz_target fuzz_targets[];
extern const int fuzz_n_target;

/** NULL when there is none of that name. */
const fuzz_target *fuzz_find(const char *name);

/** What fuzz_library and fuzz_values do with a file. */
int fuzz_read_library(const char *path);

/** A folder for small files, in memory where there is one. */
const char *fuzz_scratch(void);

/** Path of a file with these bytes; good until the next call. */
const char *fuzz_file(const uint8_t *bytes, size_t n);

/** Abort unless code is among the allowed ones, which end with -1. */
void fuzz_check_code(const char *what, int code, const int *allowed);

/** Change a FITS file in place where its readers look, keeping its blocks; returns its new
 *  size, at most max.  The same seed makes the same change. */
size_t fuzz_mutate_fits(uint8_t *bytes, size_t n, size_t max, uint64_t seed);

#endif
