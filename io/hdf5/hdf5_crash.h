/* SPDX-License-Identifier: BSD-3-Clause */
/** If HDF5 crashes, report which file was open.
 *
 *  HDF5 1.10 crashes on some damaged files.  After mill_h5_name_crashes, a crash prints the file
 *  that its thread had open and what to do, and exits with the status of the file's error code.  If
 *  no file is open, it prints the stack. */
#pragma once

#include <hdf5.h>

/** Install the signal handlers; call it first in main(). */
void mill_h5_name_crashes(void);

/** This thread is about to open path; from now on a crash exits with the status of code.  Several
 *  files may be open at once. */
void mill_h5_opening(const char *path, int code);

/** Record the id of the file of the last mill_h5_opening; negative: it could not be opened. */
void mill_h5_opened(hid_t id);

/** Forget a file, which is not to blame for later crashes.  Unknown ids are allowed. */
void mill_h5_forget(hid_t id);
