/* SPDX-License-Identifier: BSD-3-Clause */
/** Name the file on which HDF5 crashes; HDF5 1.10 crashes on some damaged files.
 *
 *  After mill_h5_name_crashes, a crash prints the file that its thread opened last and what to do.
 *  If no file is open, a crash prints the stack. */
#pragma once

#include <hdf5.h>

/** Install the signal handlers; call it first in main(). */
void mill_h5_name_crashes(void);

/** Note that this thread is about to open a file.  Several files may be open at once.
 *  code: error code, which gives the exit status after a crash. */
void mill_h5_opening(const char *path, int code);

/** Record the id of the file of the last mill_h5_opening; negative: it could not be opened. */
void mill_h5_opened(hid_t id);

/** Note that a file, closed or checked, is not to blame for later crashes.  Any id is allowed. */
void mill_h5_forget(hid_t id);
