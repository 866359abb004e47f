/* SPDX-License-Identifier: BSD-3-Clause */
/** Report which file was open when HDF5 crashes.
 *
 *  HDF5 1.10 crashes on some damaged files.  After mill_h5_name_crashes, a crash prints the file
 *  that its thread had open and what to do, and exits with the status of the file's error
 *  code.  Without an open file it prints the stack.
 */
#ifndef MILL_HDF5_CRASH_H
#define MILL_HDF5_CRASH_H

#include <hdf5.h>

/** Install the signal handlers; call it first in main(). */
void mill_h5_name_crashes(void);

/** This thread is about to open path; a crash from now on exits with the status of code.  Several
 *  files may be open at once. */
void mill_h5_opening(const char *path, int code);

/** Note the id of the file of the last mill_h5_opening; negative: it could not be opened. */
void mill_h5_opened(hid_t id);

/** Forget a file: later crashes are not its fault.  Unknown ids are allowed. */
void mill_h5_forget(hid_t id);

#endif
