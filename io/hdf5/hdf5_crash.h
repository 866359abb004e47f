/* SPDX-License-Identifier: BSD-3-Clause */
/** If HDF5 crashes, report which file was open.
 *
 *  HDF5 1.10 crashes on some damaged files.  After mill_h5_name_crashes, a crash prints the file
 *  that its thread had open and what to do, and exits with the exit status of the error code given
 *  to mill_h5_opening.  If no file is open, a crash prints the stack. */
#pragma once

#include <hdf5.h>

/** Install the signal handlers; call it first in main(). */
void mill_h5_name_crashes(void);

/** Note that this thread is about to open path; a crash then exits with the exit status of error
 *  `code`.  Several files may be open at once. */
void mill_h5_opening(const char *path, int code);

/** Record the id of the file of the last mill_h5_opening; negative: it could not be opened. */
void mill_h5_opened(hid_t id);

/** Note that a file is closed, and not to blame for later crashes.  Unknown ids are allowed. */
void mill_h5_forget(hid_t id);
