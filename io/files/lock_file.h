/* SPDX-License-Identifier: BSD-3-Clause */
/** A lock file next to an output, so that two jobs never write the same output.
 *
 *  OUTPUT.lock names its holder: host, process, Slurm job.  A thread of the holder touches it every
 *  mill_lock_beat_s.  Another job takes over a stale lock.  A lock is stale
 *  - at once, if its process ran on this host and is gone;
 *  - after three beats without a touch, if it is older than MILL_LOCK_DEAD_S, or if an earlier
 *    start of the same requeued Slurm job left it.
 *  A holder that was suspended meanwhile learns of the loss before its next write
 *  (mill_lock_keep). */
#pragma once

#include <stddef.h>

enum { MILL_MAX_PATH = 4096, MILL_LOCK_DEAD_S = 1800 };

/** Seconds between two touches: 10; tests set fewer. */
extern double mill_lock_beat_s;

typedef struct mill_lock {
  char path[MILL_MAX_PATH];    /**< path of the lock file; empty: not held */
  struct mill_lock_beat *beat; /**< thread that touches the file, owned; NULL: not held */
} mill_lock;

/** Take the lock of an output; *lock must be zeroed.  Call on one rank.  May wait 3 beats of
 *  mill_lock_beat_s.  MILL_ERR_OUTPUT: held by a living job, or the lock file cannot be created. */
int mill_lock_take(const char *output, mill_lock *lock);

/** Fail with MILL_ERR_OUTPUT if another job has taken over the lock; then write nothing more.  The
 *  check is cheap: make it before every write, one thread at a time.  No lock held: MILL_OK. */
int mill_lock_keep(const mill_lock *lock);

/** Remove the lock file if it is still ours.  Does nothing if the lock is not held. */
void mill_lock_release(mill_lock *lock);

/** Remove the lock and half-written files that a killed job left next to a finished output.  Does
 *  nothing if another job holds the lock. */
void mill_lock_tidy(const char *output);

/** Remove half-written files OUTPUT.tmp-JOB left by killed jobs.  Does nothing unless the lock is
 *  held, which ensures that no other job is writing such files. */
void mill_lock_remove_leftovers(const mill_lock *lock, const char *output);

/** Name of this job for temporary files: SLURM_JOB_ID, else the process id. */
void mill_lock_job(char *out, size_t size);

/** How often Slurm has requeued this job; 0 outside Slurm. */
int mill_lock_restart(void);
