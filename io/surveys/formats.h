/* SPDX-License-Identifier: BSD-3-Clause */
/** The formats of spectra, and which one a file has. */
#pragma once

#include "io/surveys/spectra.h"

/** All *n formats, in the order in which they are tried. */
const mill_format *const *mill_formats(int *n);

/** Find the format named `wanted`; "auto" or "": the first of formats [n] that recognises the file.
 *  *out is NULL on failure.  MILL_ERR_CONFIG: unknown name; MILL_ERR_INPUT: unknown file. */
int mill_format_find(const char *wanted, const mill_format *const *formats, int n, const char *path,
                     const mill_fits_guard *guard, const mill_format **out);

/** Take the cameras of the named format as arms (mill_config_take_cameras).  Any
 *  other name, such as auto, changes nothing.  Errors: those of mill_config_take_cameras. */
int mill_format_take_cameras(const char *name, const mill_library *lib, mill_config *config);

/** Find the format of a file.  MILL_ERR_INPUT: unreadable file or unknown format. */
int mill_format_of(const char *path, const mill_config *config, const mill_format **out);
