/* SPDX-License-Identifier: BSD-3-Clause */
/** Files shipped with the program, found relative to it, so that an installed tree can be moved. */
#pragma once

#include <stddef.h>

/** Find the shipped file name ("libraries/fgk.h5") and write its path into path [size].  It is
 *  in ../share/starmill of the program's folder (cmake --install), else in ../.. (build/<preset>
 *  of a checkout).  path is empty if neither has the file or if it is too long. */
void mill_shipped_file(const char *name, char *path, size_t size);

/** Default libraries of a fit; each star is fitted with the library that suits it. */
#define MILL_SHIPPED_LIBRARY   "libraries/fgk.h5"
#define MILL_SHIPPED_LIBRARIES MILL_SHIPPED_LIBRARY, "libraries/oba.h5"

/** Write the paths of the shipped libraries, at most `most`, into path [most][size].  Returns
 *  their number; 0 if a library is missing. */
int mill_shipped_libraries(char *path, size_t size, int most);
