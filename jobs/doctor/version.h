/* SPDX-License-Identifier: BSD-3-Clause */
/** Versions that `starmill --version` and doctor print. */
#pragma once

#include <stdio.h>

enum { MILL_N_VERSION = 8 };

/** Name of a library, "HDF5", and its version at run time. */
typedef struct mill_version_row {
  const char *name;
  char text[512];
} mill_version_row;

/** Fill in all versions, without MPI_Init.  MILL_ERR_MPI, MILL_ERR_OUTPUT: a library has none. */
int mill_version_rows(mill_version_row row[MILL_N_VERSION]);

/** Print all versions.  Returns the codes of mill_version_rows; MILL_ERR_OUTPUT if out fails. */
int mill_version_print(FILE *out);
