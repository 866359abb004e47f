/* SPDX-License-Identifier: BSD-3-Clause */
/** Names the file when HDF5 crashes on it.
 *
 *  HDF5 1.10 crashes on some damaged files.  A program that has called mill_h5_name_crashes then
 *  says which file was open and what to do, and exits with the status of that file's error code.
 *  Where none was open it says where it crashed.
 */
#ifndef MILL_HDF5_CRASH_H
#define MILL_HDF5_CRASH_H

#include <hdf5.h>

/** The first thing in main(): from now on a crash names the file that its thread had open.  Other
 *  crashes end the process as before. */
void mill_h5_name_crashes(void);

/** This thread is about to open path; a crash means code.  Files may be open at once. */
void mill_h5_opening(const char *path, int code);

/** The file opened last has this id; negative: it could not be opened. */
void mill_h5_opened(hid_t id);

/** The file is closed: later crashes are not its fault; an id that was never opened is allowed. */
void mill_h5_forget(hid_t id);

#endif
