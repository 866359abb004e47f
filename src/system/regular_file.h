/* SPDX-License-Identifier: BSD-3-Clause */
/** Opening of input files named by a user.
 *
 *  A pipe without a writer would block forever, a folder or a device cannot be read, and many files
 *  are read more than once: so only regular files are accepted.
 */
#ifndef MILL_REGULAR_FILE_H
#define MILL_REGULAR_FILE_H

#include <stdio.h>

/** MILL_OK, or, where the process can open hardly any more files, a failure with code that says so
 *  of path: for callers of a library that could not open it and does not say why. */
int mill_check_descriptors(const char *path, int code);

/** Open path for reading; what: "a configuration file", for the message.  *fd is -1 on failure.
 *  Fails with code; the message names the path, what it is instead, and what to give. */
int mill_regular_open(const char *path, const char *what, int code, int *fd);

/** The same as a stream of text for the caller to close, behind a byte order mark; NULL on failure.
 *  Also MILL_ERR_MEMORY. */
int mill_regular_stream(const char *path, const char *what, int code, FILE **stream);

/** The first bytes of a regular file, at most size; how many, 0 where there are none. */
size_t mill_first_bytes(const char *path, char *out, size_t size);

/** MILL_ERR_USAGE if the file at path begins like FITS, gzip or HDF5 data, which a stop file never
 *  does; option: "--stop-file", for the message.  A missing file is allowed.
 */
int mill_refuse_data(const char *path, const char *option);

/** Can a file be written at path, by the state of it and its folder?  option: "output", without its
 *  dashes.  MILL_ERR_OUTPUT, MILL_ERR_USAGE for a path that is too long. */
int mill_check_output(const char *path, const char *option);

/** MILL_ERR_OUTPUT where something is at path, and be it a link to nothing, without overwrite. */
int mill_refuse_existing(const char *path, int overwrite);

/** May --overwrite replace what is at path?  Only a file that starmill has made as what is to be
 *  written there: HDF5 that says so in its first bytes, which damaged and older ones still have.
 *  made: "starmill result", as the file's FORMAT has it; option: "--output", for the message.  No
 *  file there is allowed, and an empty one.  MILL_ERR_USAGE. */
int mill_refuse_foreign(const char *path, const char *option, const char *made);

/** Does a file have to be unpacked before any of it can be read, so that opening it takes long?
 *  By its name, which ends in .gz. */
int mill_is_gz(const char *path);

/** The last part of a path, without its folders; within path. */
const char *mill_base_name(const char *path);

#endif
