/* SPDX-License-Identifier: BSD-3-Clause */
/** A lock file next to an output, so that two jobs never write the same output.
 *
 *  OUTPUT.lock names its holder: host, process, Slurm job.  A thread of the holder touches the file
 *  every mill_lock_beat_s.  Another job takes the lock over
 *  - at once, if the holder ran on this host and is gone;
 *  - if the file is older than MILL_LOCK_DEAD_S and stays untouched for three beats;
 *  - if an earlier start of this Slurm job left it and it stays untouched for three beats.
 *  A holder that was suspended meanwhile notices before its next write (mill_lock_keep). */
#pragma once

#include <stddef.h>

enum { MILL_MAX_PATH = 4096, MILL_LOCK_DEAD_S = 1800 };

/** Seconds between two touches: 10; tests set fewer. */
extern double mill_lock_beat_s;

typedef struct mill_lock {
  char path[MILL_MAX_PATH];    /**< path of the lock file; empty: not held */
  struct mill_lock_beat *beat; /**< thread that touches the file, owned; NULL: not held */
} mill_lock;

/** Take the lock of an output; *lock must be zeroed.  Call on one rank.  May wait half a minute.
 *  MILL_ERR_OUTPUT: a living job holds the lock, or the lock file cannot be created. */
int mill_lock_take(const char *output, mill_lock *lock);

/** Fail with MILL_ERR_OUTPUT if another job has taken over the lock; then write nothing more.  Call
 *  it before every write, one thread at a time; it is cheap.  No lock held: MILL_OK. */
int mill_lock_keep(const mill_lock *lock);

/** Remove the lock file if this job still holds the lock. */
void mill_lock_release(mill_lock *lock);

/** Remove the lock and half-written files that a killed job left next to a finished output, unless
 *  another job holds the lock. */
void mill_lock_tidy(const char *output);

/** Remove half-written files OUTPUT.tmp-JOB of killed jobs.  Does nothing without the lock: another
 *  job could be writing these files. */
void mill_lock_remove_leftovers(const mill_lock *lock, const char *output);

/** Name of this job for temporary files: SLURM_JOB_ID, else the process id. */
void mill_lock_job(char *out, size_t size);

/** How often Slurm has requeued this job; 0 outside Slurm. */
int mill_lock_restart(void);
