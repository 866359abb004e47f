/* SPDX-License-Identifier: BSD-3-Clause */
/** A file that is written in one piece. */
#ifndef MILL_WHOLE_FILE_H
#define MILL_WHOLE_FILE_H

#include <stddef.h>

/** Write the bytes of a file to disk under a temporary name that is not there yet, then rename.
 *  MILL_ERR_OUTPUT. */
int mill_whole_file_write(const char *path, const char *temporary, const void *image,
                          size_t n_byte);

/** The same quickly: a file under the temporary name is replaced, and nothing waits for the
 *  disk. */
int mill_whole_file_replace(const char *path, const char *temporary, const void *image,
                            size_t n_byte);

#endif
