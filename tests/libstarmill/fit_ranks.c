/* SPDX-License-Identifier: BSD-3-Clause */
/* fit_ranks LIBRARY CONFIG SPECTRA RESULT [FAILS]: the ranks fit the stars of a file together.
 * Every column, gathered on the last rank, has the bits of RESULT, which the program wrote.  The
 * rank FAILS asks for a column that does not exist.  tests/e2e/test_install.py builds it. */
#include <string.h>

#include <starmill/starmill_mpi.h>

enum { MOST = 64 };

static starmill_error error;

static void check(int code)
{
  if (code != STARMILL_OK) {
    fprintf(stderr, "%d: %s\n", code, error.message);
    MPI_Finalize();
    exit(code);
  }
}

/* Number of a gathered column's rows that differ; rank i % n_rank has fitted row i. */
static int n_other(const char *gathered, const char *expected, int n, int n_rank, size_t row_bytes)
{
  int differ = 0, at = 0;
  for (int rank = 0; rank < n_rank; rank++)
    for (int i = rank; i < n; i += n_rank, at++)
      differ += memcmp(gathered + (size_t)at * row_bytes, expected + (size_t)i * row_bytes,
                       row_bytes) != 0;
  return differ;
}

int main(int argc, char **argv)
{
  starmill_library *library = NULL;
  starmill_file *file = NULL;
  starmill_star *star[MOST];
  starmill_table *mine = NULL, *result = NULL;
  int rank, n_rank, n_mine = 0, n_differ = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &n_rank);
  check(starmill_library_open(argv[1], argv[2], &library, &error));
  check(starmill_file_open(library, argv[3], &file, &error));
  const int n = (int)starmill_file_n_row(file);
  for (int i = rank; i < n && n_mine < MOST; i += n_rank)
    check(starmill_file_star(file, i, &star[n_mine++], &error));
  n_differ +=
      starmill_mpi_fit(MPI_COMM_SELF, library, NULL, 0, NULL, 0, NULL, &error) != STARMILL_USAGE;
  check(starmill_mpi_fit(MPI_COMM_WORLD, library, (const starmill_star *const *)star, n_mine, NULL,
                         0, &mine, &error));
  check(starmill_table_open(argv[4], &result, &error));
  const int n_column = starmill_table_n_column(result);
  for (int k = 0; k < n_column; k++) {
    starmill_column column;
    int64_t n_row;
    void *data;
    check(starmill_table_column_at(result, k, &column, &error));
    const char *name = argc == 6 && atoi(argv[5]) == rank ? "NOTHING" : column.name;
    const int bytes = starmill_mpi_row_bytes(&column);
    if (mine && starmill_table_column(mine, name, &column, &error) == STARMILL_OK &&
        starmill_mpi_column(MPI_COMM_SELF, 0, mine, name, bytes + 1, &n_row, &data, &error) !=
            STARMILL_USAGE)
      n_differ++;
    check(
        starmill_mpi_column(MPI_COMM_WORLD, n_rank - 1, mine, name, bytes, &n_row, &data, &error));
    if (rank == n_rank - 1) {
      check(starmill_table_column(result, column.name, &column, &error));
      n_differ += n_row != n || n_other(data, column.data, n, n_rank, (size_t)bytes) > 0;
    }
    free(data);
  }
  if (rank == n_rank - 1)
    printf("%d ranks, %d rows, %d columns, %d differ\n", n_rank, n, n_column, n_differ);
  starmill_table_free(result);
  starmill_table_free(mine);
  starmill_file_close(file);
  for (int i = 0; i < n_mine; i++)
    starmill_star_free(star[i]);
  starmill_library_close(library);
  MPI_Finalize();
  return n_differ > 0;
}
