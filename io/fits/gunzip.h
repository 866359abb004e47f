/* SPDX-License-Identifier: BSD-3-Clause */
/** Unpacking of a gzip file into a temporary file without a name, which vanishes with the process.
 *
 *  Threads and ranks share a scratch folder, and may fill it together although each file alone
 *  would fit.  So each thread with an unpacked file holds a shared lock on the folder.  A thread
 *  without room deletes what it has written and waits for up to 300 s, as long as others hold
 *  locks.
 */
#ifndef MILL_GUNZIP_H
#define MILL_GUNZIP_H

#include <stdint.h>

/** An unpacked file; both descriptors are the caller's. */
typedef struct mill_gunzipped {
  int fd;   /**< the unpacked file; -1: none */
  int lock; /**< the locked folder; -1: it cannot be locked */
} mill_gunzipped;

/** Unpack all members of a gzip file.
 *
 *  path     for messages
 *  in       descriptor of the file, read from its beginning
 *  limit    most bytes of the unpacked file
 *  scratch  folder; NULL or empty: TMPDIR, else /tmp
 *
 *  Waits for room only if the thread has no other unpacked file: two threads that each hold one
 *  would wait for each other forever.  MILL_ERR_INPUT: damaged, above limit, or no room, with the
 *  room needed; MILL_ERR_OUTPUT: the folder cannot be written; MILL_ERR_STOPPED: the job shall stop
 *  while this thread waits; MILL_ERR_MEMORY.  Not collective; thread-safe. */
int mill_gunzip(const char *path, int in, int64_t limit, const char *scratch, mill_gunzipped *out);

/** Close the unpacked file, in the thread that unpacked it; a closed file may be closed again. */
void mill_gunzip_close(mill_gunzipped *file);

#endif
