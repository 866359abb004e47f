/* SPDX-License-Identifier: BSD-3-Clause */
/** Files shipped with the program, found relative to it, so that an installed tree may be moved.
 */
#ifndef MILL_SHIPPED_FILE_H
#define MILL_SHIPPED_FILE_H

#include <stddef.h>

/** The shipped file name ("libraries/fgk.h5"): from ../share/starmill next to the program's folder
 *  (cmake --install), else from the folder two above it (build/<preset> of a checkout), into path
 *  [size].  path is empty where neither has it, or a path is too long. */
void mill_shipped_file(const char *name, char *path, size_t size);

/** Default libraries of a fit, commas between them: each star takes the one that suits it. */
#define MILL_SHIPPED_LIBRARY   "libraries/fgk.h5"
#define MILL_SHIPPED_LIBRARIES MILL_SHIPPED_LIBRARY, "libraries/oba.h5"

/** The shipped libraries' paths, `most` of them at most, into path [most][size]; how many, 0 where one is not
 *  there. */
int mill_shipped_libraries(char *path, size_t size, int most);

#endif
