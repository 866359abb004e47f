/* SPDX-License-Identifier: BSD-3-Clause */
/** Shared by tests of several ranks: `mpi`, and a main function that ends on all ranks. */
#pragma once

#include "src/ranks/mpi_context.h"
#include "tests/test_folder.h"

static mill_mpi mpi;

/** The main function of a test: starts MPI, runs the tests with set_up and clean_up of the group
 *  (NULL: none), ends MPI.  A rank with a failed test must not leave the others waiting. */
#define MILL_RANKS_TEST_MAIN(set_up, clean_up)                                                     \
  int main(void)                                                                                   \
  {                                                                                                \
    if (mill_mpi_start(&mpi) != MILL_OK) {                                                         \
      fprintf(stderr, "%s\n", mill_error_message());                                               \
      return 1;                                                                                    \
    }                                                                                              \
    if (MILL_RUN_TESTS(set_up, clean_up) != 0)                                                     \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                \
    mill_mpi_end(&mpi);                                                                            \
    return 0;                                                                                      \
  }

/** Rank 0 makes the folder of test_folder.h, whose name all ranks get. */
static inline void make_folder_for_all(void)
{
  if (mpi.rank == 0 && make_folder(NULL) != 0)
    MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, mpi.comm);
}
