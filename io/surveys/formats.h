/* SPDX-License-Identifier: BSD-3-Clause */
/** List of all formats of spectra, and recognition of a file's format. */
#ifndef MILL_FORMATS_H
#define MILL_FORMATS_H

#include "io/surveys/spectra.h"

/** All formats [*n], in the order in which they are tried. */
const mill_format *const *mill_formats(int *n);

/** Find the format called wanted among formats [n]; "auto" or empty: the first that recognises the
 *  file.  On failure *out is NULL: MILL_ERR_CONFIG: no such format; MILL_ERR_INPUT: none recognises
 *  the file. */
int mill_format_find(const char *wanted, const mill_format *const *formats, int n, const char *path,
                     const mill_fits_guard *guard, const mill_format **out);

/** Find the format of a file.  MILL_ERR_INPUT: it cannot be opened, or has no known format. */
int mill_format_of(const char *path, const mill_config *config, const mill_format **out);

#endif
