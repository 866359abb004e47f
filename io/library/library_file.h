/* SPDX-License-Identifier: BSD-3-Clause */
/** The library file: HDF5, versioned (docs/use/formats.md). */
#pragma once

#include "kernels/data/library.h"

/** Version of the format. */
enum { MILL_LIBRARY_FORMAT = 4 };

/** Read a library; the caller zeroes *lib, which is cleared on failure.  Sets lib->path and
 *  lib->hash (mill_library_digest).  MILL_ERR_LIBRARY.  Not collective. */
int mill_library_read(const char *path, mill_library *lib);

/** Check a library file as mill_library_read does, and compute its hash.  MILL_ERR_LIBRARY.
 *
 *  image  [n_byte]  bytes of an unfinished file, with 64 zeros as hash; NULL: read the file */
int mill_library_check_file(const char *path, const void *image, size_t n_byte, char hash[65]);

/** Read the components of the sky (docs/use/formats.md) for the arms of lib; arms that the file
 *  lacks get none.  hash: SHA-256 of what was read.  An empty path: do nothing.
 *  MILL_ERR_CONFIG: bad file, or a file with none of the arms. */
int mill_library_add_sky(const char *path, mill_library *lib, char hash[65]);

/** Check that a library can be written at output.  MILL_ERR_OUTPUT: the folder is not writable, or
 *  an existing file may not be replaced.  MILL_ERR_USAGE: overwrite of another kind of file. */
int mill_library_writable(const char *output, int overwrite);

/** SHA-256 of the contents on which a fit depends (docs/use/formats.md).  The file's layout and the
 *  library's name have no effect. */
void mill_library_digest(const mill_library *lib, char hex[65]);

/** Fail with MILL_ERR_LIBRARY unless all values of a library are finite and consistent.  The reader
 *  has checked all sizes.  where: the file's name, for messages. */
int mill_library_check(const mill_library *lib, const char *where);
