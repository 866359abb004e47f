/* SPDX-License-Identifier: BSD-3-Clause */
/** Files shipped with the program, found relative to it, so that an installed tree can be moved. */
#pragma once

#include <stddef.h>

/** Write the path of a shipped file ("libraries/fgk.h5") into path [size]; empty: not found or too
 *  long.  From the program's folder, the file is in ../share/starmill (cmake --install) or in ../..
 *  (build/<preset> of a checkout). */
void mill_shipped_file(const char *name, char *path, size_t size);

/** Default libraries of a fit; each star is fitted with the library that suits it. */
#define MILL_SHIPPED_LIBRARY   "libraries/fgk.h5"
#define MILL_SHIPPED_LIBRARIES MILL_SHIPPED_LIBRARY, "libraries/oba.h5"

/** Write the paths of the shipped libraries, at most `most`, into path [most][size].  Returns
 *  their number; 0 if a library is missing. */
int mill_shipped_libraries(char *path, size_t size, int most);
