/* SPDX-License-Identifier: BSD-3-Clause */
/** Shared by the parts of the library file: library_file.c opens files, library_walk.c walks their
 *  contents, library_check.c checks a library in memory. */
#pragma once

#include "io/hdf5/hdf5_util.h"
#include "io/library/library_file.h"

enum {
  MILL_LIBRARY_MIN_PIX = 8,
  MILL_LIBRARY_MAX_PIX = 1 << 20,
  MILL_MAX_FACET = 100000, /**< most facets of a hull */
  MILL_LIBRARY_MAX_GUESS = 100000,
  MILL_LIBRARY_MAX_REPORT = 32768, /**< bytes of the report */
  MILL_LIBRARY_MAX_GUESS_VSINI = sizeof((mill_library){0}.guess_vsini_km_s) / sizeof(double),
  MILL_LIBRARY_N_KIND = MILL_EMULATOR_RBF + 1
};

/** Largest model error relative to the flux; above it the file is damaged. */
#define MILL_LIBRARY_MAX_ERROR 10.0

/** Report a failure with the code and name of the file. */
#define MILL_REFUSED(file, format, ...)                                                            \
  MILL_ERROR((file)->code, "%s: " format, (file)->path, ##__VA_ARGS__)

/** Fail with MILL_ERR_LIBRARY if n_label labels are too many for a grid or radial functions. */
int mill_library_check_axes(const mill_arm *arm, int n_label, const char *where);

/** Read all of a library except name, hash and report. */
int mill_library_read_contents(const mill_h5_file *file, mill_library *lib);
