/* SPDX-License-Identifier: BSD-3-Clause */
/** A gzip file unpacked into a temporary file without a name, which vanishes with the process.
 *
 *  Several threads and ranks unpack into one scratch folder at once and may fill it together
 *  where each alone would have had room.  So each thread with an unpacked file there holds a lock
 *  on the folder, shared with the others; a thread that finds no room gives back what it has
 *  written and waits while there are others, for 300 s at most.
 */
#ifndef MILL_GUNZIP_H
#define MILL_GUNZIP_H

#include <stdint.h>

/** An unpacked file; both descriptors are the caller's. */
typedef struct mill_gunzipped {
  int fd;   /**< the unpacked bytes, for reading; -1: none */
  int lock; /**< lock that marks an unpacked file; -1: the folder cannot be locked */
} mill_gunzipped;

/** Unpack all members of the gzip file that is open as in, from its beginning.
 *
 *  path     for messages
 *  scratch  folder; NULL or empty: TMPDIR, else /tmp
 *
 *  The calling thread waits for room only if it has no other unpacked file: two threads that
 *  each hold one would wait for each other forever.  MILL_ERR_INPUT: damaged, more than limit
 *  bytes, or no room; the message says how much it needs.  MILL_ERR_OUTPUT: the folder cannot be
 *  written at all.  MILL_ERR_STOPPED: the job is to stop and it waited for room.  MILL_ERR_MEMORY.
 *  *out is then closed.  Not collective; thread-safe. */
int mill_gunzip(const char *path, int in, int64_t limit, const char *scratch, mill_gunzipped *out);

/** Give the room back.  Called by the thread that unpacked; a closed file may be closed again. */
void mill_gunzip_close(mill_gunzipped *file);

#endif
