/* SPDX-License-Identifier: BSD-3-Clause */
/** What is fuzzed: one function per reader of files that others wrote.
 *
 *  Each function has a reader read the bytes of a file, and says whether the reader accepts them.
 *  The function aborts if the reader crashes, keeps memory, or fails with a code that would end a
 *  run in which this file is one of many. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { FUZZ_REFUSED, FUZZ_ACCEPTED };

/** X(name, 1 if the fuzzer mutates FITS cards).  `start` and `priors` read FITS or HDF5 files.
 *  `values` reads a good library with changed values.  `catalog` reads a text as a list of paths,
 *  then as a list of stars. */
#define FUZZ_SURVEYS(X)                                                                            \
  X(desi, 1)                                                                                       \
  X(sdss, 1) X(lamost, 1) X(lamost_mrs, 1) X(weave, 1) X(fourmost, 1) X(pfs, 1) X(generic, 1)
#define FUZZ_TARGETS(X)                                                                            \
  FUZZ_SURVEYS(X)                                                                                  \
  X(redrock, 1) X(start, 1) X(priors, 1) X(library, 0) X(values, 0) X(config, 0) X(catalog, 0)
#define FUZZ_DECLARE(name, is_fits) int fuzz_##name(const uint8_t *bytes, size_t n);
FUZZ_TARGETS(FUZZ_DECLARE)

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

/** Give code back; abort unless it is MILL_OK or among the allowed ones, which end with -1. */
int fuzz_check_code(const char *what, int code, const int *allowed);

/** Change a FITS file in place where readers look; return the new size, at most max.  A block may
 *  be repeated, the file's end may be cut off.  The same seed makes the same change. */
size_t fuzz_mutate_fits(uint8_t *bytes, size_t n, size_t max, uint64_t seed);
