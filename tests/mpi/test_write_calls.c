/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of what a collective write costs a rank: MPI calls by kind, writes, bytes.  One test has
 * rows for several writers.  The MPI functions here replace the library's, to count the calls. */
#define _GNU_SOURCE

#include "io/result/table.h"
#include "tests/mpi/result_fixture.h"

#include <stdatomic.h>

enum { BLOCK = 1 << 17 }; /* rows that one rank writes */

static struct {
  _Atomic int64_t agreed, other;
} count;

static int is_apart; /* each rank is a node */

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *node)
{
  return is_apart ? PMPI_Comm_split(comm, mpi.rank, 0, node)
                  : PMPI_Comm_split_type(comm, type, key, info, node);
}

int MPI_Bcast(void *data, int n, MPI_Datatype type, int root, MPI_Comm comm)
{
  count.other++;
  return PMPI_Bcast(data, n, type, root, comm);
}

int MPI_Allreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
  count.agreed++;
  return PMPI_Allreduce(from, to, n, type, op, comm);
}

/* Ranks draw chunks in turn, so a rank's rows are scattered over the table.  One rank writes the
 * rows of all ranks, with one write per column and two collective calls. */
MILL_TEST(an_epoch_costs_few_calls)
{
  enum { N_ROW = 3000, CHUNK = 50 };
  MILL_AT_END(survey_free) survey s;
  int64_t before[2], after[2];
  mill_result_summary summary;
  survey_make(&s, 1, (const int[]){N_ROW});
  s.info.write_interval_s = 1e6; /* rows are written at the end only */
  mill_result_file *file = open_as(&s, in_folder("calls.h5"), 0, MILL_OPEN_NEW);
  MPI_Barrier(MPI_COMM_WORLD);
  memset(&count, 0, sizeof count);
  mill_table_written(&before[0], &before[1]);
  for (int64_t row = 0; row < N_ROW; row++)
    if (row / CHUNK % mpi.size == mpi.rank)
      put_row(&s, file, row);
  MPI_Barrier(MPI_COMM_WORLD);
  close_all(file, &summary);
  mill_table_written(&after[0], &after[1]);
  const int64_t n_write = after[0] - before[0], n_byte = after[1] - before[1];
  printf("rank %d of %d: %d epochs with rows, %d MPI_Allreduce, %d broadcasts, %lld "
         "writes, %lld bytes\n",
         mpi.rank, mpi.size, (int)summary.n_write, (int)count.agreed, (int)count.other,
         (long long)n_write, (long long)n_byte);
  fflush(stdout);
  assert_true(summary.n_write >= 1 && summary.n_write <= mpi.size);
  /* collective calls: two for a write with rows, one for a write without, five at the end */
  assert_true(count.agreed <= 2 * summary.n_write + mpi.size + 5);
  assert_true(count.other == 0);
  if (mpi.rank > 0)
    assert_true(n_write == 0);
  else if (summary.n_write == 1)
    assert_true(n_write == s.columns.n_column - 1 && /* TARGETID is there */
                n_byte == (int64_t)N_ROW * (int64_t)(s.columns.row_size - sizeof(int64_t)));
  if (mpi.rank == 0)
    check_fits(&s, in_folder("calls.h5"), NULL);
}

/* Ranks on several nodes: each block of rows has a writer.  Rows near a border between blocks reach
 * their block's writer.  Earlier rows in gaps between new rows are read, and written back. */
MILL_TEST(several_writers)
{
  enum { N_ROW = 2 * BLOCK + 500, NEAR = 60, STEP = 3 };
  MILL_AT_END(survey_free) survey s;
  is_apart = 1;
  survey_make(&s, 1, (const int[]){N_ROW});
  s.info.write_interval_s = 0.1;
  mill_result_file *file = open_as(&s, in_folder("nodes.h5"), 0, MILL_OPEN_NEW);
  MILL_OWNED uint8_t *done = calloc(N_ROW, 1);
  int64_t before[2], after[2], n_done = 0;
  assert_non_null(done);
  mill_table_written(&before[0], &before[1]);
  for (int turn = 0; turn < STEP - 1; turn++) { /* what was written before lies in the gaps */
    for (int64_t row = 0; row < N_ROW; row++) {
      const int64_t in_block = row % BLOCK;
      if (row % STEP != turn || (in_block >= NEAR && in_block < BLOCK - NEAR))
        continue;
      n_done += done[row] = 1;
      if (row / STEP % mpi.size == mpi.rank)
        put_row(&s, file, row);
    }
    wait_for(file, n_done);
  }
  mill_table_written(&after[0], &after[1]);
  assert_true(after[0] > before[0]); /* this rank was a writer */
  close_all(file, NULL);
  is_apart = 0;
  if (mpi.rank == 0) {
    check_fits(&s, in_folder("nodes.h5"), done);
    MILL_AT_END(mill_h5_id_close)
    const hid_t h5 = open_plain(in_folder("nodes.h5"), H5F_ACC_RDONLY);
    MILL_OWNED double *vrad = read_whole(h5, "fits/VRAD", NULL);
    MILL_OWNED int32_t *status = read_whole(h5, "fits/STATUS", NULL);
    for (int64_t row = 0; row < N_ROW; row++)
      assert_true(done[row] || (isnan(vrad[row]) && status[row] == MILL_STATUS_NOT_DONE));
  }
}

MILL_RANKS_TEST_MAIN(make_test_dir, remove_test_dir)
