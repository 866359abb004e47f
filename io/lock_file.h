/** A lock file beside an output, so that two jobs never write the same one.
 *
 *  OUTPUT.lock is created exclusively and says who holds it: host, process and
 *  Slurm job.  A lock whose process is gone from this host, or that an earlier
 *  start of the same requeued Slurm job left, is taken over; any other is
 *  respected, because this host cannot see what runs elsewhere.
 */
#ifndef MILL_LOCK_FILE_H
#define MILL_LOCK_FILE_H

#include <stddef.h>
#include <sys/types.h>

enum { MILL_MAX_PATH = 4096 };

typedef struct mill_lock {
  char path[MILL_MAX_PATH]; /**< of the lock file; empty: not held */
  dev_t device;
  ino_t inode;
} mill_lock;

/** Take the lock of an output; *lock must be zeroed.  One process calls it.
 *  MILL_ERR_OUTPUT names the holder and what to do, or why it cannot be made. */
int mill_lock_take(const char *output, mill_lock *lock);

/** Remove the lock file if it is still ours; a lock not held is fine. */
void mill_lock_release(mill_lock *lock);

/** Remove the half-made files OUTPUT.tmp-* that killed jobs left.  Only with the
 *  lock of the output: nobody else makes such files then. */
void mill_lock_remove_leftovers(const mill_lock *lock, const char *output);

/** Name of this job for temporary files: SLURM_JOB_ID, else the process id. */
void mill_lock_job(char *out, size_t size);

#endif
