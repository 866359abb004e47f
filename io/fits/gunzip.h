/* SPDX-License-Identifier: BSD-3-Clause */
/** Unpack a gzip file into a nameless temporary file, which vanishes with the process.
 *
 *  Threads and ranks share a scratch folder, which may fill up although each file alone would fit.
 *  So each thread with an unpacked file holds a shared lock on the folder.  A thread that finds no
 *  room deletes what it has written, and waits for up to 300 s while others hold locks. */
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
 *  Waits for room only if this thread has no other unpacked file: two threads that each held one
 *  would wait for each other forever.  MILL_ERR_INPUT: damaged, above limit, or no room (the
 *  message has the room needed); MILL_ERR_OUTPUT: the folder cannot be written; MILL_ERR_STOPPED:
 *  the job shall stop while this thread waits; MILL_ERR_MEMORY.  Not collective; thread-safe. */
int mill_gunzip(const char *path, int in, int64_t limit, const char *scratch, mill_gunzipped *out);

/** Close the unpacked file, in the thread that unpacked it; closing again does nothing. */
void mill_gunzip_close(mill_gunzipped *file);
