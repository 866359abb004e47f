/* SPDX-License-Identifier: BSD-3-Clause */
/** The ranks of a job: start and end of MPI, agreement on a code, requests to stop. */
#pragma once

#include <mpi.h>

#include "kernels/base/memory.h"

/** Call MPI; MILL_ERR_MPI on failure: go to `done` (MILL_MPI) or return (MILL_CHECK_MPI). */
#define MILL_MPI(call)       MILL_TRY(mill_mpi_check((call), #call, __FILE__, __LINE__))
#define MILL_CHECK_MPI(call) MILL_CHECK(mill_mpi_check((call), #call, __FILE__, __LINE__))

typedef struct mill_mpi {
  MPI_Comm comm;      /**< all ranks; failing MPI calls return an error code */
  MPI_Comm stop_comm; /**< used only for requests to stop */
  int rank, size;
  int told_stop; /**< 1: this rank has asked the others to stop */
  int n_heard;   /**< stop requests received from other ranks */
} mill_mpi;

/** Initialise MPI with full thread support, and start the watchdog (src/system/watchdog.h).
 *  Collective over MPI_COMM_WORLD.
 *
 *  MILL_ERR_MEMORY; MILL_ERR_MPI, also if MPI does not grant MPI_THREAD_MULTIPLE; MILL_ERR_USAGE if
 *  a launcher started several tasks that MPI does not join.  Call mill_mpi_end in any case. */
int mill_mpi_start(mill_mpi *mpi);

/** Duplicate a communicator, so that its messages do not mix with others; failing MPI calls on
 *  it return an error code.  Collective; free `to` by mill_mpi_free.  MILL_ERR_MPI. */
int mill_mpi_dup(MPI_Comm from, mill_mpi *to);

/** Split the ranks by color: ranks of equal color share a communicator.  color MILL_MPI_NODE:
 *  one per node.  Collective; free part by mill_mpi_free, also after a failure.  MILL_ERR_MPI. */
enum { MILL_MPI_NODE = -1 };
int mill_mpi_split(const mill_mpi *mpi, int color, mill_mpi *part);

/** Free the communicator comm, if there is one. */
void mill_mpi_free(mill_mpi *mpi);

/** Make an MPI type of size bytes; free it by mill_mpi_type_free.  MILL_ERR_MPI. */
int mill_mpi_record_type(size_t size, MPI_Datatype *type);
void mill_mpi_type_free(MPI_Datatype *type); /**< if it is not MPI_DATATYPE_NULL */

/** Finalize MPI and stop the watchdog.  Collective, after all other calls have returned. */
void mill_mpi_end(mill_mpi *mpi);

/** Print a job's failure on standard error, on rank 0; if MPI failed, on each rank that sees it.
 *  name: "starmill merge".  Returns the exit status, 0 for MILL_OK. */
int mill_mpi_tell(const mill_mpi *mpi, const char *name, int err);

/** Return the worst of all ranks' codes, with its message, on every rank.  Collective.
 *
 *  Unreadable input and a stop in good order are less bad than other failures.  MILL_ERR_MPI, maybe
 *  on this rank alone, if ranks cannot agree any more: end the job by MPI_Abort. */
int mill_mpi_agree(const mill_mpi *mpi, int code);

/** Call load(context) on rank 0 and, if it succeeds, on the other ranks: an error is reported once.
 *  Collective; returns the same code on every rank. */
int mill_mpi_rank0_first(const mill_mpi *mpi, int (*load)(void *context), void *context);

/** Gather elements of size bytes from all ranks, in rank order, on every rank; the caller frees
 *  *all [*n_all] by mill_free.  Collective.  MILL_ERR_RANGE for more than INT_MAX elements: the
 *  message is their number and the text too_many.  MILL_ERR_MEMORY, MILL_ERR_MPI. */
int mill_mpi_gather(const mill_mpi *mpi, const void *mine, int64_t n_mine, size_t size,
                    const char *too_many, void **all, int64_t *n_all);

/** Divide n items evenly among ranks: returns this rank's first item, and its last + 1 in *end. */
int64_t mill_mpi_share(const mill_mpi *mpi, int64_t n, int64_t *end);

/** Ask all other ranks to stop, after a signal or failure here.  Not collective, any thread, no
 *  wait.  Does nothing if this rank has already asked or been asked: every rank then knows. */
int mill_mpi_stop_others(mill_mpi *mpi);

/** Has another rank asked this rank to stop, or MPI failed?  Not collective, any thread. */
int mill_mpi_stop_asked(mill_mpi *mpi);

/** Receive stop requests still under way, so that MPI can end.  Collective, after the last
 *  mill_mpi_stop_others and before mill_mpi_end. */
int mill_mpi_stop_settle(mill_mpi *mpi);

/** Set *n_thread, at least 1, to this rank's share of the cores: each core that it may use
 *  counts 1 / (ranks of the node that may use it).  Collective. */
int mill_mpi_share_of_cores(const mill_mpi *mpi, int *n_thread);

/** The macro MILL_MPI calls this.  Return MILL_OK, or MILL_ERR_MPI with MPI's text for mpi_code. */
int mill_mpi_check(int mpi_code, const char *call, const char *file, int line);
