/* SPDX-License-Identifier: BSD-3-Clause */
/** The ranks of a job: start and end of MPI, a common result code, stopping. */
#ifndef MILL_MPI_CONTEXT_H
#define MILL_MPI_CONTEXT_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/base/error.h"

/** Call MPI; a failure becomes MILL_ERR_MPI and goes to `done`, or is returned. */
#define MILL_MPI(call)                                                                             \
  do {                                                                                             \
    const int mill_mpi_code = (call);                                                              \
    if (mill_mpi_code != MPI_SUCCESS) {                                                            \
      err = mill_mpi_failed(mill_mpi_code, #call, __FILE__, __LINE__);                             \
      goto done;                                                                                   \
    }                                                                                              \
  } while (0)
#define MILL_CHECK_MPI(call)                                                                       \
  do {                                                                                             \
    const int mill_mpi_code = (call);                                                              \
    if (mill_mpi_code != MPI_SUCCESS)                                                              \
      return mill_mpi_failed(mill_mpi_code, #call, __FILE__, __LINE__);                            \
  } while (0)

typedef struct mill_mpi {
  MPI_Comm comm;      /**< all ranks; failing calls return */
  MPI_Comm stop_comm; /**< carries nothing but requests to stop */
  int rank, size;
  int told_stop; /**< this rank has asked the others to stop */
  int n_heard;   /**< requests taken from others */
} mill_mpi;

/** Initialise MPI with full thread support, and start the watchdog (src/system/watchdog.h).
 *  Collective over MPI_COMM_WORLD.
 *  MILL_ERR_MPI, also when MPI does not grant MPI_THREAD_MULTIPLE, and MILL_ERR_USAGE where a
 *  launcher started several tasks and each is alone: MPI is then initialised and mill_mpi_end must
 *  still be called. */
int mill_mpi_start(mill_mpi *mpi);

/** A duplicate communicator whose failing calls return, for messages that must not mix with others.
 *  Collective; free with MPI_Comm_free.  MILL_ERR_MPI. */
int mill_mpi_dup(MPI_Comm from, mill_mpi *to);

/** Make the type of records of size bytes; free with MPI_Type_free.  MILL_ERR_MPI. */
int mill_mpi_record_type(size_t size, MPI_Datatype *type);

/** Finalize MPI and stop the watchdog.  Collective; every rank must have left every other call. */
void mill_mpi_end(mill_mpi *mpi);

/** Print the message of a job's failure on stderr: rank 0 for all, since they have agreed on it, or
 *  where MPI itself has failed each rank that sees it.  Returns the exit status, 0 for MILL_OK.
 *
 *  name  as "starmill merge" */
int mill_mpi_tell(const mill_mpi *mpi, const char *name, int err);

/** End all ranks, which this one cannot reach any more, where err is MILL_ERR_MPI. */
void mill_mpi_abort_if_lost(const mill_mpi *mpi, int err, int exit_status);

/** Start MPI, run the job, report its failure and end MPI, or all ranks as mill_mpi_abort_if_lost
 *  does; returns the exit status.  A job that writes HDF5 files ends by
 *  mill_output_leave_if_broken.
 *
 *  run  frees what it takes, also when it fails, and leaves its message as the last one; all ranks
 *       return the same code, but for MILL_ERR_MPI
 *  Collective over MPI_COMM_WORLD. */
int mill_mpi_job(const char *name, int (*run)(const mill_mpi *mpi, int argc, char **argv), int argc,
                 char **argv);

/** The worst of all ranks' codes, with its message, on every rank.
 *
 *  Collective.  Unreadable input and a stop in good order count less than every
 *  other failure.  MILL_ERR_MPI, on possibly this rank alone, when the ranks
 *  cannot agree any more: the caller must then end the job with MPI_Abort. */
int mill_mpi_agree(const mill_mpi *mpi, int code);

/** Call load(context) on rank 0 and, when that went well, on the others, so that an error is
 *  reported once and the others find the file in the page cache.  Collective; the same code on
 *  every rank. */
int mill_mpi_rank0_first(const mill_mpi *mpi, int (*load)(void *context), void *context);

/** Gather elements of size bytes, in rank order, on every rank; *all [*n_all] is for mill_free.
 *  Collective.  MILL_ERR_RANGE, with their number and the text too_many, when there are more than
 *  INT_MAX; MILL_ERR_MEMORY, MILL_ERR_MPI. */
int mill_mpi_gather(const mill_mpi *mpi, const void *mine, int64_t n_mine, size_t size,
                    const char *too_many, void **all, int64_t *n_all);

/** This rank's even share of n things, the first of which is returned. */
int64_t mill_mpi_share(const mill_mpi *mpi, int64_t n, int64_t *end);

/** Ask all other ranks to take no more work (a signal or a failure here).  Not
 *  collective, any thread, returns at once, does nothing the second time or when this rank has
 *  been asked, for all others were asked then. */
int mill_mpi_stop_others(mill_mpi *mpi);

/** Has another rank asked this one to stop?  Not collective, any thread.  1, 0; a failing
 *  MPI counts as a request. */
int mill_mpi_stop_asked(mill_mpi *mpi);

/** Take the requests still under way, so that MPI can be ended.  Collective,
 *  before mill_mpi_end and after the last mill_mpi_stop_others. */
int mill_mpi_stop_settle(mill_mpi *mpi);

/** Threads for this rank: its share of the cores it may run on, where a core
 *  that several ranks of this node may use is divided among them; at least 1.
 *  Collective. */
int mill_mpi_share_of_cores(const mill_mpi *mpi, int *n_thread);

/** Translate an MPI code into MILL_ERR_MPI with MPI's text (for MILL_MPI). */
int mill_mpi_failed(int mpi_code, const char *call, const char *file, int line);

#endif
