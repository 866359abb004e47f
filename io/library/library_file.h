/* SPDX-License-Identifier: BSD-3-Clause */
/** The library file: HDF5, versioned (docs/use/formats.md). */
#ifndef MILL_LIBRARY_FILE_H
#define MILL_LIBRARY_FILE_H

#include "kernels/data/library.h"

/** The version of the format that is written and read. */
enum { MILL_LIBRARY_FORMAT = 4 };

/** Read a library; *lib must be zeroed, and is left cleared on failure.
 *  Fills lib->hash (digest of the contents, independent of file layout) and
 *  lib->path.  Refuses external links, external storage and filter plug-ins.
 *  Not collective: every rank reads the file for itself.
 *  MILL_ERR_LIBRARY names the file, the dataset and what to do. */
int mill_library_read(const char *path, mill_library *lib);

/** Check a library file as mill_library_read does, and give its hash.  image [n_byte]: the content
 *  of a file that is being made, with 64 zeros in the hash's place; NULL: the file is read.
 *  MILL_ERR_LIBRARY. */
int mill_library_check_file(const char *path, const void *image, size_t n_byte, char hash[65]);

/** Can a library be written at output (by starmill.templates)?  What is there must be a library,
 *  with overwrite, and the folder one that can be written into.  MILL_ERR_OUTPUT, and
 *  MILL_ERR_USAGE for another file. */
int mill_library_writable(const char *output, int overwrite);

/** SHA-256 of the contents that a fit depends on (docs/use/formats.md), whatever the
 *  file's path, layout, name or origin. hex: 64 digits and the end. */
void mill_library_digest(const mill_library *lib, char hex[65]);

/** Are the values of a library finite and consistent, whose sizes the reader has checked?
 *  MILL_ERR_LIBRARY; where begins the message (a file's name). */
int mill_library_check(const mill_library *lib, const char *where);

#endif
