/* SPDX-License-Identifier: BSD-3-Clause */
/** Unpack a gzip file into a nameless temporary file, which vanishes with the process.
 *
 *  Threads and ranks share a scratch folder, which may fill up although each file alone would fit.
 *  Each thread with an unpacked file holds a shared lock on the folder.  A thread without room
 *  deletes its file, and waits for up to 300 s while others hold locks. */
#pragma once

#include <stdint.h>

/** An unpacked file; the caller owns both descriptors. */
typedef struct mill_gunzipped {
  int fd;   /**< the unpacked file; -1: none */
  int lock; /**< the locked folder; -1: could not be opened */
} mill_gunzipped;

/** Unpack all members of a gzip file.
 *
 *  path     for messages
 *  in       descriptor of the file, read from its beginning
 *  limit    most bytes of the unpacked file
 *  scratch  folder; NULL or empty: TMPDIR, else /tmp
 *
 *  A thread with another unpacked file does not wait for room: two such threads would wait for each
 *  other.  Not collective; thread-safe.
 *
 *  MILL_ERR_INPUT: damaged, above limit, or no room; MILL_ERR_OUTPUT: the folder cannot be written;
 *  MILL_ERR_STOPPED: the job was stopped while this thread waited. */
int mill_gunzip(const char *path, int in, int64_t limit, const char *scratch, mill_gunzipped *out);

/** Close the unpacked file, in the thread that unpacked it. */
void mill_gunzip_close(mill_gunzipped *file);
