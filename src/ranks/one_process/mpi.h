/* SPDX-License-Identifier: BSD-3-Clause */
/** Substitute for <mpi.h> in a build without MPI (MILL_MPI=OFF): the calls of the program and its
 *  tests, for one process.
 *
 *  Collective calls copy the sent data to the receive buffer.  Calls that send a message, or wait
 *  for a message, fail.  A datatype is its size in bytes.  The build searches this folder first. */
#pragma once
#pragma GCC system_header /* silences warnings about unused parameters */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MILL_ONE_PROCESS

typedef int MPI_Comm, MPI_Datatype, MPI_Op, MPI_Request, MPI_Info, MPI_Errhandler;
typedef struct MPI_Status {
  int MPI_SOURCE;
} MPI_Status;

enum { MPI_COMM_NULL, MPI_COMM_WORLD, MPI_COMM_SELF = MPI_COMM_WORLD };
enum { MPI_SUCCESS, MPI_ERR_RANK, MPI_ERRORS_RETURN, MPI_INFO_NULL = 0, MPI_REQUEST_NULL = 0 };
enum { MPI_UNDEFINED = -1, MPI_ANY_SOURCE = -1, MPI_COMM_TYPE_SHARED = 0 };
enum { MPI_THREAD_SINGLE, MPI_THREAD_MULTIPLE };
enum { MPI_MAX_ERROR_STRING = 128, MPI_MAX_LIBRARY_VERSION_STRING = 128 };
enum { MPI_SUM, MPI_MIN, MPI_MAX, MPI_MINLOC, MPI_MAXLOC, MPI_BOR };
enum {
  MPI_DATATYPE_NULL = 0,
  MPI_BYTE = 1,
  MPI_CHAR = 1,
  MPI_UNSIGNED_CHAR = 1,
  MPI_UINT8_T = 1,
  MPI_INT = sizeof(int),
  MPI_INT32_T = sizeof(int32_t),
  MPI_FLOAT = sizeof(float),
  MPI_INT64_T = sizeof(int64_t),
  MPI_DOUBLE = sizeof(double),
  MPI_2INT = 2 * sizeof(int)
};
#define MPI_IN_PLACE        ((void *)-1)
#define MPI_STATUS_IGNORE   ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)

static inline int mill_mpi_copy(const void *from, void *to, int first, int n, MPI_Datatype type)
{
  if (n > 0 && from != MPI_IN_PLACE && to != MPI_IN_PLACE)
    memcpy((char *)to + (size_t)first * (size_t)type, from, (size_t)n * (size_t)type);
  return MPI_SUCCESS;
}

/* Define a function by its name, its parameters and the expression that it returns. */
#define ONE(name, parameters, answer)                                                              \
  static inline int name parameters                                                                \
  {                                                                                                \
    return answer;                                                                                 \
  }
#define SET(variable, value) (*(variable) = (value), MPI_SUCCESS)

/* start, end, errors */
ONE(MPI_Init, (int *argc, char ***argv), MPI_SUCCESS)
ONE(MPI_Init_thread, (int *argc, char ***argv, int wanted, int *provided),
    SET(provided, MPI_THREAD_MULTIPLE))
ONE(MPI_Query_thread, (int *provided), SET(provided, MPI_THREAD_MULTIPLE))
ONE(MPI_Initialized, (int *flag), SET(flag, 1))
ONE(MPI_Finalized, (int *flag), SET(flag, 0))
ONE(MPI_Finalize, (void), MPI_SUCCESS)
ONE(MPI_Abort, (MPI_Comm comm, int status), (_Exit(status), MPI_SUCCESS))
ONE(MPI_Error_string, (int code, char *text, int *n),
    SET(n,
        snprintf(text, MPI_MAX_ERROR_STRING,
                 "this program is built for one process (MILL_MPI=OFF): there is no other rank")))
ONE(MPI_Get_library_version, (char *text, int *n),
    SET(n, snprintf(text, MPI_MAX_LIBRARY_VERSION_STRING, "none, one process (MILL_MPI=OFF)")))

/* communicators and types */
ONE(MPI_Comm_rank, (MPI_Comm comm, int *rank), SET(rank, 0))
ONE(MPI_Comm_size, (MPI_Comm comm, int *size), SET(size, 1))
ONE(MPI_Comm_set_errhandler, (MPI_Comm comm, MPI_Errhandler handler), MPI_SUCCESS)
ONE(MPI_Comm_dup, (MPI_Comm comm, MPI_Comm *out), SET(out, comm))
ONE(MPI_Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *out),
    SET(out, color == MPI_UNDEFINED ? MPI_COMM_NULL : comm))
ONE(MPI_Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out),
    SET(out, comm))
ONE(MPI_Comm_free, (MPI_Comm * comm), SET(comm, MPI_COMM_NULL))
ONE(MPI_Type_contiguous, (int n, MPI_Datatype from, MPI_Datatype *out), SET(out, n *from))
ONE(MPI_Type_commit, (MPI_Datatype * type), MPI_SUCCESS)
ONE(MPI_Type_free, (MPI_Datatype * type), SET(type, MPI_DATATYPE_NULL))

/* collective calls; MPI_Exscan leaves rank 0's buffer as it is */
ONE(MPI_Barrier, (MPI_Comm comm), MPI_SUCCESS)
ONE(MPI_Bcast, (void *data, int n, MPI_Datatype type, int root, MPI_Comm comm), MPI_SUCCESS)
ONE(MPI_Exscan, (const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
    MPI_SUCCESS)
ONE(MPI_Allreduce, (const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
    mill_mpi_copy(from, to, 0, n, type))
ONE(MPI_Reduce,
    (const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm),
    mill_mpi_copy(from, to, 0, n, type))
ONE(MPI_Allgather,
    (const void *from, int n, MPI_Datatype type, void *to, int n_to, MPI_Datatype type_to,
     MPI_Comm comm),
    mill_mpi_copy(from, to, 0, n, type))
ONE(MPI_Gather,
    (const void *from, int n, MPI_Datatype type, void *to, int n_to, MPI_Datatype type_to, int root,
     MPI_Comm comm),
    mill_mpi_copy(from, to, 0, n, type))
ONE(MPI_Alltoall,
    (const void *from, int n, MPI_Datatype type, void *to, int n_to, MPI_Datatype type_to,
     MPI_Comm comm),
    mill_mpi_copy(from, to, 0, n, type))
ONE(MPI_Allgatherv,
    (const void *from, int n, MPI_Datatype type, void *to, const int *n_to, const int *first_to,
     MPI_Datatype type_to, MPI_Comm comm),
    mill_mpi_copy(from, to, *first_to, n, type))
ONE(MPI_Alltoallv,
    (const void *from, const int *n, const int *first, MPI_Datatype type, void *to, const int *n_to,
     const int *first_to, MPI_Datatype type_to, MPI_Comm comm),
    mill_mpi_copy((const char *)from + (size_t)*first * (size_t)type, to, *first_to, *n, type))

/* messages: none is under way, and no other rank could receive one */
ONE(MPI_Iprobe, (int from, int tag, MPI_Comm comm, int *flag, MPI_Status *status), SET(flag, 0))
ONE(MPI_Wait, (MPI_Request * request, MPI_Status *status), MPI_SUCCESS)
ONE(MPI_Waitall, (int n, MPI_Request *request, MPI_Status *status), MPI_SUCCESS)
ONE(MPI_Test, (MPI_Request * request, int *flag, MPI_Status *status), MPI_ERR_RANK)
ONE(MPI_Request_free, (MPI_Request * request), MPI_ERR_RANK)
ONE(MPI_Probe, (int from, int tag, MPI_Comm comm, MPI_Status *status), MPI_ERR_RANK)
ONE(MPI_Get_count, (const MPI_Status *status, MPI_Datatype type, int *n), MPI_ERR_RANK)
ONE(MPI_Send, (const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm),
    MPI_ERR_RANK)
ONE(MPI_Isend,
    (const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
     MPI_Request *request),
    MPI_ERR_RANK)
ONE(MPI_Recv,
    (void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status),
    MPI_ERR_RANK)
ONE(MPI_Irecv,
    (void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request),
    MPI_ERR_RANK)

#undef ONE
#undef SET
