/** Opening what a user names as a file to be read.
 *
 *  A pipe without a writer would wait for ever, a folder or a device gives nothing to read, and a
 *  file is often read more than once: so only regular files are taken, everywhere.
 */
#ifndef MILL_REGULAR_FILE_H
#define MILL_REGULAR_FILE_H

#include <stdio.h>

/** Open path for reading; what: "a configuration file", for the message.  *fd is -1 on failure.
 *  Fails with code; the message names the path, what it is instead, and what to give. */
int mill_regular_open(const char *path, const char *what, int code, int *fd);

/** The same as a stream for the caller to close; NULL on failure.  Also MILL_ERR_MEMORY. */
int mill_regular_stream(const char *path, const char *what, int code, FILE **stream);

/** The first bytes of a regular file, at most size; how many, 0 where there are none. */
size_t mill_first_bytes(const char *path, char *out, size_t size);

/** Is there something at path that begins as FITS, gzip or HDF5, where data never belong (a stop
 *  file)?  MILL_ERR_USAGE then; option: "--stop-file", for the message.  No file there is allowed.
 */
int mill_refuse_data(const char *path, const char *option);

/** May a file be written at path, as far as it and its folder say?  option: "output", without its
 *  dashes.  MILL_ERR_OUTPUT, MILL_ERR_USAGE for a path that is too long. */
int mill_check_output(const char *path, const char *option);

/** MILL_ERR_OUTPUT where something is at path, and be it a link to nothing, without overwrite. */
int mill_refuse_existing(const char *path, int overwrite);

/** May --overwrite replace what is at path?  Only a file that starmill has made as what is to be
 *  written there: HDF5 that says so in its first bytes, which damaged and older ones still have.
 *  made: "starmill result", as the file's FORMAT has it; option: "--output", for the message.  No
 *  file there is allowed, and an empty one.  MILL_ERR_USAGE. */
int mill_refuse_foreign(const char *path, const char *option, const char *made);

/** The last part of a path, without its folders; within path. */
const char *mill_base_name(const char *path);

#endif
