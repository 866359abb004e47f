/* SPDX-License-Identifier: BSD-3-Clause */
/** Replace a whole file in one step. */
#pragma once

#include <stddef.h>

/** Write image [n_byte] to a file with the temporary name, and rename the file to path.
 *  is_synced: wait until the bytes are on disk.  MILL_ERR_OUTPUT. */
int mill_whole_file_write(const char *path, const char *temporary, int is_synced, const void *image,
                          size_t n_byte);
