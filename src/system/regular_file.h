/* SPDX-License-Identifier: BSD-3-Clause */
/** Files named by the user: opening of inputs, checks and writing of outputs.
 *
 *  Inputs must be regular files: a pipe may block forever, and many files are read twice. */
#pragma once

#include <stdio.h>

/** Fail with code and a message about path if the process can hardly open more files.  Call it
 *  when another library could not open path and does not say why. */
int mill_check_descriptors(const char *path, int code);

/** Open path for reading.  Fails with code and *fd -1, also for a folder, pipe or device.  what:
 *  the file's kind for messages, as "a configuration file". */
int mill_regular_open(const char *path, const char *what, int code, int *fd);

/** Close an open descriptor (not below 0) or stream (not NULL), for MILL_AT_END. */
void mill_descriptor_close(const int *fd);
void mill_stream_close(FILE *const *stream);

/** Open path as a text stream, and skip a byte order mark; NULL on failure.  Fails as
 *  mill_regular_open does, and with MILL_ERR_MEMORY. */
int mill_regular_stream(const char *path, const char *what, int code, FILE **stream);

/** Read the first bytes of a regular file, at most size; returns their number, 0 on failure. */
size_t mill_first_bytes(const char *path, char *out, size_t size);

/** Refuse a data file as stop file: MILL_ERR_USAGE if the file at path begins like FITS, gzip or
 *  HDF5.  option: "--stop-file". */
int mill_refuse_data(const char *path, const char *option);

/** Check that a file can be written at path.  option: "output", without its dashes.
 *  MILL_ERR_OUTPUT; MILL_ERR_USAGE for a path that is too long. */
int mill_check_output(const char *path, const char *option);

/** MILL_ERR_OUTPUT if path exists, even as a broken link, and overwrite is 0. */
int mill_refuse_existing(const char *path, int overwrite);

/** MILL_ERR_USAGE unless --overwrite may replace the file at path: it is missing, empty, or an HDF5
 *  file with the text `made` in its first bytes.
 *
 *  option  "--output"
 *  made    FORMAT of such files: "starmill result" */
int mill_refuse_foreign(const char *path, const char *option, const char *made);

/** Write all n bytes to a descriptor; returns 0, or -1 with errno. */
int mill_write_all(int fd, const char *data, size_t n);

/** Replace a whole file in one step: write image [n_byte] to a file with the temporary name, and
 *  rename this file to path.  is_synced: wait until the bytes are on disk.  MILL_ERR_OUTPUT. */
int mill_whole_file_write(const char *path, const char *temporary, int is_synced, const void *image,
                          size_t n_byte);

/** Does the name end in .gz?  Opening such a file takes long, as it is unpacked whole. */
int mill_is_gz(const char *path);

/** The name of a file without its folders; points into path. */
const char *mill_base_name(const char *path);
