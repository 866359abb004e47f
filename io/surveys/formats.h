/* SPDX-License-Identifier: BSD-3-Clause */
/** The formats of spectra that there are, and which of them a file has. */
#ifndef MILL_FORMATS_H
#define MILL_FORMATS_H

#include "io/surveys/spectra.h"

/** All formats, in the order in which they are asked whether they know a file; *n: their number. */
const mill_format *const *mill_formats(int *n);

/** The format called wanted ("auto" or empty: the first that recognises the file) among formats
 *  [n]; NULL with MILL_ERR_CONFIG or MILL_ERR_INPUT, which names path and the formats. */
int mill_format_find(const char *wanted, const mill_format *const *formats, int n, const char *path,
                     const mill_fits_guard *guard, const mill_format **out);

/** The format of a file.  MILL_ERR_INPUT: it cannot be opened, or is of none. */
int mill_format_of(const char *path, const mill_config *config, const mill_format **out);

#endif
