/* SPDX-License-Identifier: BSD-3-Clause */
/* What an epoch of writing costs a rank: calls of MPI by kind, writes and their bytes.  The
 * program's own functions stand before those of the libraries, and count. */
#define _GNU_SOURCE

#include "tests/mpi/result_fixture.h"

#include <dlfcn.h>
#include <stdatomic.h>

static struct {
  _Atomic int64_t go, agreed, view, through_mpi, n_write, n_byte;
} count;

int MPI_Ibcast(void *data, int n, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request)
{
  count.go++;
  return PMPI_Ibcast(data, n, type, root, comm, request);
}

int MPI_Allreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
  count.agreed++;
  return PMPI_Allreduce(from, to, n, type, op, comm);
}

int MPI_File_set_view(MPI_File file, MPI_Offset at, MPI_Datatype element, MPI_Datatype type,
                      const char *form, MPI_Info info)
{
  count.view++;
  return PMPI_File_set_view(file, at, element, type, form, info);
}

int MPI_File_write_at(MPI_File file, MPI_Offset at, const void *data, int n, MPI_Datatype type,
                      MPI_Status *status)
{
  int size = 0;
  MPI_Type_size(type, &size);
  count.through_mpi++;
  count.n_byte += (int64_t)n * size;
  return PMPI_File_write_at(file, at, data, n, type, status);
}

/* Rows of many short runs, as ranks that draw chunks have them: rank r's chunks are every
   mpi.size-th of 50 rows. */
MILL_TEST(an_epoch_costs_few_calls)
{
  enum { N_ROW = 3000, CHUNK = 50 };
  survey s;
  survey_make(&s, 1, (const int[]){N_ROW});
  s.info.write_interval_s = 0.5;
  mill_result_file *file = open_as(&s, in_dir("calls.h5"), 0, MILL_OPEN_NEW);
  MPI_Barrier(MPI_COMM_WORLD);
  memset(&count, 0, sizeof count);
  for (int64_t row = 0; row < N_ROW; row++)
    if (row / CHUNK % mpi.size == mpi.rank)
      put_row(&s, file, row);
  wait_for(file, N_ROW);
  const double n_epoch = count.go > 1 ? (double)count.go - 1 : 1; /* one go more is waited for */
  printf("rank %d of %d, an epoch: %.1f MPI_Allreduce, %.1f MPI_File_set_view, %.1f "
         "MPI_File_write_at; %.0f epochs, %lld bytes\n",
         mpi.rank, mpi.size, (double)count.agreed / n_epoch, (double)count.view / n_epoch,
         (double)count.through_mpi / n_epoch, n_epoch, (long long)count.n_byte);
  fflush(stdout);
  close_all(file, NULL);
  if (mpi.rank == 0)
    check_fits(&s, in_dir("calls.h5"), NULL);
  survey_free(&s);
}

MILL_RANKS_TEST_MAIN(make_test_dir, remove_test_dir)
