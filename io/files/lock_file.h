/* SPDX-License-Identifier: BSD-3-Clause */
/** A lock file next to an output, so that two jobs never write the same one.
 *
 *  OUTPUT.lock names its holder: host, process, Slurm job.  While it is held, a thread touches it
 *  every mill_lock_beat_s.  A lock is stale, and taken over, when its process is gone from this
 *  host; or when an earlier start of the same requeued Slurm job left it, or its time is older than
 *  MILL_LOCK_DEAD_S, and nobody touches it for three beats.  A holder that was suspended so long
 *  finds out before it writes again (mill_lock_keep).
 */
#ifndef MILL_LOCK_FILE_H
#define MILL_LOCK_FILE_H

#include <stddef.h>

enum { MILL_MAX_PATH = 4096, MILL_LOCK_DEAD_S = 1800 };

/** Seconds between two touches: 10; tests take fewer. */
extern double mill_lock_beat_s;

typedef struct mill_lock {
  char path[MILL_MAX_PATH];    /**< of the lock file; empty: not held */
  struct mill_lock_beat *beat; /**< owned: text of the file, and the thread that touches it */
} mill_lock;

/** Take the lock of an output; *lock must be zeroed.  One process calls it, and may wait for three
 *  beats.
 *  MILL_ERR_OUTPUT names the holder and what to do, or why it cannot be made. */
int mill_lock_take(const char *output, mill_lock *lock);

/** MILL_ERR_OUTPUT when another job has taken a lock over: then nothing may be written any more.
 *  Cheap, to be called before every write, by one thread at a time.  A lock that is not held is
 *  fine. */
int mill_lock_keep(const mill_lock *lock);

/** Remove the lock file if it is still ours; nothing where the lock is not held. */
void mill_lock_release(mill_lock *lock);

/** Remove the lock and half-made files that a job, killed at its very end, left of a finished
 *  output; nothing where another job holds the lock. */
void mill_lock_tidy(const char *output);

/** Remove the half-made files OUTPUT.tmp-JOB that killed jobs left.  Only with the lock of the
 *  output: no other job makes such files then. */
void mill_lock_remove_leftovers(const mill_lock *lock, const char *output);

/** Name of this job for temporary files: SLURM_JOB_ID, else the process id. */
void mill_lock_job(char *out, size_t size);

/** How often Slurm has put this job back into the queue; 0 outside Slurm. */
int mill_lock_restart(void);

#endif
