/* SPDX-License-Identifier: BSD-3-Clause */
/* fit_file LIBRARY CONFIG SPECTRA RESULT: fit all stars of a file by libstarmill and compare every
 * column with a result of the program, bit for bit.  Built by tests/e2e/test_libstarmill.py with
 * what is installed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <starmill/starmill.h>

enum { MOST = 64 };

static starmill_error error;

static void check(int code)
{
  if (code != STARMILL_OK) {
    fprintf(stderr, "%d: %s\n", code, error.message);
    exit(code);
  }
}

static size_t bytes_of(const starmill_column *c)
{
  const size_t n = (size_t)c->n_value;
  return c->type == STARMILL_F64 || c->type == STARMILL_I64   ? 8 * n
         : c->type == STARMILL_I32 || c->type == STARMILL_U32 ? 4 * n
                                                              : n;
}

int main(int argc, char **argv)
{
  starmill_library *library = NULL;
  starmill_file *file = NULL;
  starmill_star *star[MOST];
  starmill_table *mine = NULL, *result = NULL;
  int n_differ = 0;
  if (argc != 5)
    return 1;
  check(starmill_library_open(argv[1], argv[2], &library, &error));
  check(starmill_file_open(library, argv[3], &file, &error));
  const int n = (int)starmill_file_n_row(file);
  if (n < 1 || n > MOST)
    return 1;
  for (int i = 0; i < n; i++)
    check(starmill_file_star(file, i, &star[i], &error));
  check(starmill_fit(library, (const starmill_star *const *)star, n, NULL, 0, &mine, &error));
  check(starmill_table_open(argv[4], &result, &error));
  if (starmill_table_n_row(result) != n ||
      starmill_table_n_column(result) != starmill_table_n_column(mine))
    return 1;
  for (int k = 0; k < starmill_table_n_column(mine); k++) {
    starmill_column a, b;
    check(starmill_table_column_at(mine, k, &a, &error));
    check(starmill_table_column(result, a.name, &b, &error));
    const int same = a.type == b.type && a.n_value == b.n_value && strcmp(a.unit, b.unit) == 0 &&
                     strcmp(a.description, b.description) == 0 &&
                     memcmp(a.data, b.data, (size_t)n * bytes_of(&a)) == 0;
    if (!same)
      printf("%s differs\n", a.name);
    n_differ += !same;
  }
  starmill_row row;
  starmill_column identifier;
  check(starmill_table_column(result, "catalog/IDENTIFIER", &identifier, &error));
  for (int i = 0; i < n; i++) {
    const char *text = (const char *)identifier.data + (size_t)i * (size_t)identifier.n_value;
    check(starmill_file_row(file, i, &row, &error));
    n_differ += strncmp(row.identifier, text, (size_t)identifier.n_value) != 0;
  }
  printf("%d rows, %d columns, %d differ\n", n, starmill_table_n_column(mine), n_differ);
  starmill_table_free(result);
  starmill_table_free(mine);
  starmill_file_close(file);
  starmill_library_close(library);
  for (int i = 0; i < n; i++)
    starmill_star_free(star[i]);
  return n_differ > 0;
}
