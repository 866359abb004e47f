/* SPDX-License-Identifier: BSD-3-Clause */
/** Share a fit among the ranks of your program, on your communicator.
 *
 *  libstarmill is linked with MPI but never calls it.  Your program compiles these inline functions
 *  and must use the same MPI.  Each rank opens the library and makes its own stars (say, row %
 *  ranks == rank) with the functions of starmill.h.  The functions here are collective over comm
 *  and return the same code on all ranks: 0, or the code of the first rank that failed, with its
 *  message.  error must not be NULL.
 *
 *  Ranks on one kind of processor compute the same bits for a star. */
#ifndef STARMILL_STARMILL_MPI_H
#define STARMILL_STARMILL_MPI_H

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "starmill/starmill.h"

/** Return 0, or the code of the first rank that failed, with its message in *error. */
static inline int starmill_mpi_agree(MPI_Comm comm, int code, starmill_error *error)
{
  struct {
    int failed, rank;
  } mine, first;
  mine.failed = code != STARMILL_OK; /* MPI_MAXLOC then finds the lowest rank that failed */
  if (MPI_Comm_rank(comm, &mine.rank) == MPI_SUCCESS &&
      MPI_Allreduce(&mine, &first, 1, MPI_2INT, MPI_MAXLOC, comm) == MPI_SUCCESS) {
    if (!first.failed)
      return STARMILL_OK;
    if (MPI_Bcast(error, (int)sizeof *error, MPI_BYTE, first.rank, comm) == MPI_SUCCESS)
      return error->code;
  }
  error->code = STARMILL_INTERNAL;
  snprintf(error->message, sizeof error->message, "a call of MPI has failed");
  return error->code;
}

/** Fit this rank's n stars with starmill_fit, and agree on the code.  *table gets this rank's rows,
 *  or NULL if n is 0 or a rank failed. */
static inline int starmill_mpi_fit(MPI_Comm comm, starmill_library *library,
                                   const starmill_star *const *star, int n, const double *start,
                                   int n_start, starmill_table **table, starmill_error *error)
{
  if (table)
    *table = NULL;
  const int code =
      n > 0 || !table ? starmill_fit(library, star, n, start, n_start, table, error) : STARMILL_OK;
  const int agreed = starmill_mpi_agree(comm, code, error);
  if (agreed != STARMILL_OK && table) {
    starmill_table_free(*table);
    *table = NULL;
  }
  return agreed;
}

/** Bytes of one row of a column. */
static inline int starmill_mpi_row_bytes(const starmill_column *column)
{
  const int is_8 = column->type == STARMILL_F64 || column->type == STARMILL_I64;
  const int is_4 = column->type == STARMILL_I32 || column->type == STARMILL_U32;
  return column->n_value * (is_8 ? 8 : is_4 ? 4 : 1);
}

/** Gather a column from all ranks on rank root, rank 0's rows first: *n_row rows in *data, which
 *  the caller frees; the other ranks get 0 and NULL.
 *
 *  table     the table of this rank; NULL: it has no rows
 *  name      the same on all ranks
 *  row_bytes starmill_mpi_row_bytes of the column, on all ranks; else STARMILL_USAGE */
static inline int starmill_mpi_column(MPI_Comm comm, int root, starmill_table *table,
                                      const char *name, int row_bytes, int64_t *n_row, void **data,
                                      starmill_error *error)
{
  starmill_column column;
  int rank = 0, n_rank = 0, *count = NULL, *first = NULL, code = STARMILL_OK;
  int64_t n_all = 0;
  const int mine = table ? (int)starmill_table_n_row(table) : 0;
  MPI_Datatype row = MPI_DATATYPE_NULL;
  if (n_row)
    *n_row = 0;
  if (data)
    *data = NULL;
  column.data = NULL;
  if (table)
    code = starmill_table_column(table, name, &column, error);
  if (code == STARMILL_OK &&
      (!n_row || !data || (table && row_bytes != starmill_mpi_row_bytes(&column)))) {
    code = error->code = STARMILL_USAGE;
    snprintf(error->message, sizeof error->message,
             "starmill_mpi_column: n_row or data is NULL, or rows of %s do not have %d bytes",
             name ? name : "NULL", row_bytes);
  }
  if (MPI_Comm_rank(comm, &rank) != MPI_SUCCESS || MPI_Comm_size(comm, &n_rank) != MPI_SUCCESS)
    n_rank = 0;
  count = (int *)malloc(2 * ((size_t)n_rank + 1) * sizeof *count);
  if (code == STARMILL_OK && (!count || n_rank < 1 || row_bytes < 1)) {
    code = error->code = STARMILL_MEMORY;
    snprintf(error->message, sizeof error->message, "no memory for %d ranks", n_rank);
  }
  if ((code = starmill_mpi_agree(comm, code, error)) != STARMILL_OK)
    goto done;
  first = count + n_rank;
  code = MPI_Allgather(&mine, 1, MPI_INT, count, 1, MPI_INT, comm) != MPI_SUCCESS;
  for (int i = 0; i < n_rank && !code; i++) {
    first[i] = (int)n_all;
    n_all += count[i];
    code = n_all > INT_MAX;
  }
  if (!code && rank == root) {
    *data = malloc((size_t)(n_all > 0 ? n_all : 1) * (size_t)row_bytes);
    code = !*data;
  }
  if (code) {
    code = error->code = STARMILL_MEMORY;
    snprintf(error->message, sizeof error->message, "%s: no room for %lld rows", name,
             (long long)n_all);
  }
  if ((code = starmill_mpi_agree(comm, code, error)) != STARMILL_OK)
    goto done;
  if (MPI_Type_contiguous(row_bytes, MPI_BYTE, &row) != MPI_SUCCESS ||
      MPI_Type_commit(&row) != MPI_SUCCESS ||
      MPI_Gatherv(column.data, mine, row, *data, count, first, row, root, comm) != MPI_SUCCESS) {
    code = error->code = STARMILL_INTERNAL;
    snprintf(error->message, sizeof error->message, "%s: a call of MPI has failed", name);
  }
  code = starmill_mpi_agree(comm, code, error);
  *n_row = rank == root ? n_all : 0;
done:
  if (row != MPI_DATATYPE_NULL)
    MPI_Type_free(&row);
  if (code != STARMILL_OK && n_row && data) {
    free(*data);
    *data = NULL;
    *n_row = 0;
  }
  free(count);
  return code;
}

#endif
