/** A lock file beside an output, so that two jobs never write the same one.
 *
 *  OUTPUT.lock says who holds it: host, process and its start, Slurm job.  It gets its name
 *  only with its text, so a kill leaves no lock that says nothing.  Taken over is a lock
 *  - whose process is gone from this host, also when its number belongs to another by now, or
 *    the machine was started again;
 *  - that an earlier start of the same requeued Slurm job left;
 *  - of another host (or of another container here), when its holder, which touches it every
 *    MILL_LOCK_BEAT_S, has not done so for MILL_LOCK_DEAD_S by the clock of the file system.
 *    A holder that was suspended so long finds out before it writes again (mill_lock_keep).
 *  Any other is respected.
 */
#ifndef MILL_LOCK_FILE_H
#define MILL_LOCK_FILE_H

#include <stddef.h>
#include <sys/types.h>

enum {
  MILL_MAX_PATH = 4096,
  MILL_LOCK_BYTES = 1024,
  MILL_LOCK_BEAT_S = 30,
  MILL_LOCK_DEAD_S = 1800
};

typedef struct mill_lock {
  char path[MILL_MAX_PATH];   /**< of the lock file; empty: not held */
  char text[MILL_LOCK_BYTES]; /**< what the file says while it is ours */
  double touched_s;           /**< clock of the machine, suspended or not */
  int is_lost;                /**< another job has it by now */
} mill_lock;

/** Take the lock of an output; *lock must be zeroed.  One process calls it.
 *  MILL_ERR_OUTPUT names the holder and what to do, or why it cannot be made. */
int mill_lock_take(const char *output, mill_lock *lock);

/** Touch a lock that is held, at most every MILL_LOCK_BEAT_S; cheap, to be called often, by one
 *  thread at a time.  MILL_ERR_OUTPUT when another job has it by now: then nothing may be
 *  written any more.  A lock that is not held is left alone. */
int mill_lock_keep(mill_lock *lock);

/** Touches a lock in a thread of its own while its owner is busy for long, as when a large output
 *  is made. */
typedef struct mill_lock_keeper mill_lock_keeper;

/** Begin; until the end no other thread may use *lock, which is borrowed.  *out is NULL for a lock
 *  that is not held.  MILL_ERR_MEMORY, MILL_ERR_INTERNAL. */
int mill_lock_keeper_start(mill_lock *lock, mill_lock_keeper **out);

/** End; whether another job has the lock by now, mill_lock_keep tells.  NULL: nothing. */
void mill_lock_keeper_stop(mill_lock_keeper *keeper);

/** Remove the lock file if it is still ours; nothing where the lock is not held. */
void mill_lock_release(mill_lock *lock);

/** Remove the half-made files OUTPUT.tmp-* that killed jobs left.  Only with the
 *  lock of the output: no other job makes such files then. */
void mill_lock_remove_leftovers(const mill_lock *lock, const char *output);

/** Name of this job for temporary files: SLURM_JOB_ID, else the process id. */
void mill_lock_job(char *out, size_t size);

/** How often Slurm has put this job back into the queue; 0 outside Slurm. */
int mill_lock_restart(void);

#endif
