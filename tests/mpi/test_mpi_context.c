/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks agree on the worst outcome, stop one another, and share the cores. */
#include "tests/mpi/ranks.h"

/* rank r ends with code[r % n]; everybody must get `worst` from rank `from` */
static void check_agree(const int *code, int n, int worst)
{
  const int mine = code[mpi.rank % n];
  mill_error_clear();
  if (mine != MILL_OK)
    mill_error_set(mine, __FILE__, __LINE__, "code %d of rank %d", mine, mpi.rank);
  assert_int_equal(mill_mpi_agree(&mpi, mine), worst);
  if (worst == MILL_OK)
    return;
  /* the lowest rank that has it speaks */
  char expected[64];
  int from = 0;
  while (code[from % n] != worst)
    from++;
  snprintf(expected, sizeof expected, "code %d of rank %d", worst, from);
  assert_string_equal(mill_error_message(), expected);
}

MILL_TEST(worst_code_and_its_message_reach_everybody)
{
  check_agree((int[]){MILL_OK}, 1, MILL_OK);
  check_agree((int[]){MILL_ERR_OUTPUT}, 1, MILL_ERR_OUTPUT);
  if (mpi.size < 2)
    return;
  check_agree((int[]){MILL_OK, MILL_ERR_CONFIG}, 2, MILL_ERR_CONFIG);
  check_agree((int[]){MILL_ERR_STOPPED, MILL_ERR_USAGE}, 2, MILL_ERR_USAGE);
  check_agree((int[]){MILL_ERR_INPUT, MILL_ERR_STOPPED}, 2, MILL_ERR_STOPPED);
  check_agree((int[]){MILL_ERR_MEMORY, MILL_ERR_INPUT}, 2, MILL_ERR_MEMORY);
  check_agree((int[]){MILL_ERR_LIBRARY, MILL_ERR_INTERNAL}, 2, MILL_ERR_INTERNAL);
}

MILL_TEST(one_rank_stops_all_others)
{
  assert_int_equal(mill_mpi_stop_asked(&mpi), 0);
  MPI_Barrier(mpi.comm);
  if (mpi.rank == mpi.size - 1) {
    assert_int_equal(mill_mpi_stop_others(&mpi), MILL_OK);
    assert_int_equal(mill_mpi_stop_others(&mpi), MILL_OK);
    assert_int_equal(mill_mpi_stop_asked(&mpi), 0);
  } else {
    const double start_s = MPI_Wtime();
    while (!mill_mpi_stop_asked(&mpi))
      assert_true(MPI_Wtime() - start_s < 30);
    assert_int_equal(mill_mpi_stop_asked(&mpi), 1); /* and it stays so */
  }
  assert_int_equal(mill_mpi_stop_settle(&mpi), MILL_OK);
}

MILL_TEST(requests_that_nobody_took_are_settled)
{
  mill_mpi all = mpi;
  all.told_stop = 0;
  all.n_heard = 0;
  MPI_Comm_dup(mpi.comm, &all.stop_comm);
  assert_int_equal(mill_mpi_stop_others(&all), MILL_OK);
  assert_int_equal(mill_mpi_stop_settle(&all), MILL_OK);
  assert_int_equal(all.n_heard, mpi.size - 1);
  int there = 1;
  MPI_Barrier(mpi.comm);
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, all.stop_comm, &there, MPI_STATUS_IGNORE);
  assert_int_equal(there, 0);
  MPI_Comm_free(&all.stop_comm);
}

MILL_TEST(cores_are_shared_out_once)
{
  int n_thread = 0, sum = 0;
  const long n_core = sysconf(_SC_NPROCESSORS_ONLN);
  assert_int_equal(mill_mpi_share_of_cores(&mpi, &n_thread), MILL_OK);
  assert_true(n_thread >= 1);
  MPI_Allreduce(&n_thread, &sum, 1, MPI_INT, MPI_SUM, mpi.comm);
  assert_true(sum <= n_core || n_thread == 1);
}

MILL_TEST(mpi_failures_name_the_call)
{
  int err = MILL_OK, value = 0;
  MILL_MPI(MPI_Bcast(&value, 1, MPI_INT, mpi.size + 5, mpi.comm));
done:
  assert_int_equal(err, MILL_ERR_MPI);
  assert_non_null(strstr(mill_error_message(), "MPI_Bcast: "));
}

MILL_RANKS_TEST_MAIN(NULL, NULL)
