/* SPDX-License-Identifier: BSD-3-Clause */
/** Fits that the ranks of a program share, on the communicator of that program.
 *
 *  libstarmill itself calls no MPI; these functions are compiled into the program, by the MPI that
 *  it was built with, which must be the one of the parallel HDF5 that libstarmill uses.  Each rank
 *  opens the library and makes the stars that are its own (row % ranks == rank, say) with the
 *  functions of starmill.h; these are collective over comm, and end with the same code on all
 *  ranks: where one has failed, with its code and message.  error may not be NULL.
 *
 *  A row has the same bits whichever rank fits it, on one kind of processor.
 */
#ifndef STARMILL_STARMILL_MPI_H
#define STARMILL_STARMILL_MPI_H

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "starmill/starmill.h"

/** The code of the first rank that has failed, and its message in *error; else 0. */
static inline int starmill_mpi_agree(MPI_Comm comm, int code, starmill_error *error)
{
  struct {
    int failed, rank;
  } mine, first;
  mine.failed = code != STARMILL_OK;
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

/** starmill_fit of the n stars of this rank, 0 allowed; the table has its rows alone, and is NULL
 *  where it has no star. */
static inline int starmill_mpi_fit(MPI_Comm comm, starmill_library *library,
                                   const starmill_star *const *star, int n, const double *start,
                                   int n_start, starmill_table **table, starmill_error *error)
{
  *table = NULL;
  const int code =
      n > 0 ? starmill_fit(library, star, n, start, n_start, table, error) : STARMILL_OK;
  const int agreed = starmill_mpi_agree(comm, code, error);
  if (agreed != STARMILL_OK) {
    starmill_table_free(*table);
    *table = NULL;
  }
  return agreed;
}

/** A column of the rows of all ranks, those of rank 0 first, on rank root: n_row rows in *data,
 *  which the caller frees; 0 and NULL elsewhere.
 *
 *  table     of this rank; NULL: it has no rows
 *  name      the same on all ranks
 *  row_bytes bytes of a row of the column, the same on all ranks: of its type by n_value */
static inline int starmill_mpi_column(MPI_Comm comm, int root, starmill_table *table,
                                      const char *name, int row_bytes, int64_t *n_row, void **data,
                                      starmill_error *error)
{
  starmill_column column;
  int rank = 0, n_rank = 0, *count = NULL, *first = NULL, code = STARMILL_OK;
  int64_t n_all = 0;
  const int mine = table ? (int)starmill_table_n_row(table) : 0;
  MPI_Datatype row = MPI_DATATYPE_NULL;
  *n_row = 0;
  *data = NULL;
  column.data = NULL;
  if (table)
    code = starmill_table_column(table, name, &column, error);
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
  if (code != STARMILL_OK) {
    free(*data);
    *data = NULL;
    *n_row = 0;
  }
  free(count);
  return code;
}

#endif
