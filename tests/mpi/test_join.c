/* Rows of several files that are one object become one row, the same on any number of ranks. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "jobs/fit/join.h"
#include "kernels/base/error.h"
#include "tests/mill_test.h"

enum { N_FILE = 4, MAX_ROW = 4 };

static mill_mpi mpi;

/* What the files hold: object, TARGETID and number of exposures of each row. */
static const struct {
  int n_row;
  struct {
    const char *object;
    int64_t target_id;
    int n_exposure;
  } row[MAX_ROW];
} made[N_FILE] = {
    {3, {{"A", -1, 1}, {"", 7, 2}, {"", -1, 1}}},
    {0, {{NULL, 0, 0}}},
    {4, {{"B", 7, 1}, {"A", 99, 3}, {"", -1, 1}, {"", 7, 1}}},
    {2, {{"", 7, 1}, {"A", -1, 1}}},
};

/* Exposures are numbered 100 file + 10 row + exposure, their ids 1000 more. */
static void make_index(int f, mill_file_index *index)
{
  memset(index, 0, sizeof *index);
  index->n_row = made[f].n_row;
  index->n_fits_row = 77;
  for (int i = 0; i < made[f].n_row; i++)
    index->n_exposure += made[f].row[i].n_exposure;
  assert_int_equal(MILL_ALLOC(index->n_row, &index->row), MILL_OK);
  assert_int_equal(MILL_ALLOC(index->n_exposure, &index->exposure_row), MILL_OK);
  assert_int_equal(MILL_ALLOC(index->n_exposure, &index->exposure_id), MILL_OK);
  int64_t n = 0;
  for (int i = 0; i < made[f].n_row; i++) {
    mill_catalog_row *row = &index->row[i];
    snprintf(row->object, sizeof row->object, "%s", made[f].row[i].object);
    row->target_id = made[f].row[i].target_id;
    row->fits_row = 100 * f + 10 * i;
    row->fiber = 10 * f + i;
    row->exp_id = 5;
    row->n_exposure = made[f].row[i].n_exposure;
    row->first_exposure = n;
    for (int e = 0; e < row->n_exposure; e++, n++) {
      index->exposure_row[n] = 100 * f + 10 * i + e;
      index->exposure_id[n] = 1100 + 100 * f + 10 * i + e;
    }
  }
}

static void test_objects_of_several_files_become_one_row(void **state)
{
  (void)state;
  /* by hand: A is file 0 row 0, file 2 row 1, file 3 row 1; 7 without a name is file 0 row 1,
   * file 2 row 3, file 3 row 0; B has a name, so its 7 means nothing */
  static const int64_t row_start[N_FILE + 1] = {0, 3, 3, 5, 5};
  static const struct {
    int64_t fits_row;
    int n_part, file[3], row[3];
    int n_exposure;
    int64_t exposure[5];
  } expected[5] = {
      {0, 3, {0, 2, 3}, {0, 1, 1}, 5, {0, 210, 211, 212, 310}},
      {10, 3, {0, 2, 3}, {1, 3, 0}, 4, {10, 11, 230, 300}},
      {20, 1, {0}, {2}, 1, {20}},
      {200, 1, {2}, {0}, 1, {200}},
      {220, 1, {2}, {2}, 1, {220}},
  };
  static const int64_t n_exposure[N_FILE] = {10, 0, 2, 0};
  const int start = N_FILE * mpi.rank / mpi.size, end = N_FILE * (mpi.rank + 1) / mpi.size;
  mill_file_index index[N_FILE];
  int64_t n_row[N_FILE], n_exp[N_FILE];
  mill_join *join = NULL;
  for (int f = start; f < end; f++)
    make_index(f, &index[f - start]);
  if (mill_join_make(&mpi, N_FILE, start, end, index, n_row, n_exp, &join) != MILL_OK)
    fail_msg("%s", mill_error_message());
  /* the table, on every rank */
  int64_t first = 0;
  for (int f = 0; f <= N_FILE; f++)
    assert_int_equal(join->row_start[f], row_start[f]);
  for (int f = 0; f < N_FILE; f++) {
    assert_int_equal(join->n_row_before[f], made[f].n_row);
    assert_int_equal(n_row[f], row_start[f + 1] - row_start[f]);
    assert_int_equal(n_exp[f], n_exposure[f]);
  }
  for (int i = 0; i < 5; i++) {
    const mill_join_part *part = join->part + join->part_start[i];
    assert_int_equal(join->part_start[i + 1] - join->part_start[i], expected[i].n_part);
    assert_int_equal(join->first_exposure[i], first);
    first += expected[i].n_exposure;
    for (int p = 0; p < expected[i].n_part; p++) {
      assert_int_equal(part[p].file, expected[i].file[p]);
      assert_int_equal(part[p].row, expected[i].row[p]);
      assert_int_equal(part[p].n_exposure, made[part[p].file].row[part[p].row].n_exposure);
    }
  }
  assert_int_equal(join->first_exposure[5], first);
  /* the index of this rank's files */
  for (int f = start; f < end; f++) {
    mill_file_index *here = &index[f - start];
    assert_int_equal(here->n_row, n_row[f]);
    assert_int_equal(here->n_exposure, n_exposure[f]);
    assert_int_equal(here->n_fits_row, 77);
    int64_t n = 0;
    for (int64_t i = 0; i < here->n_row; i++) {
      const mill_catalog_row *row = &here->row[i];
      const int64_t k = row_start[f] + i;
      assert_int_equal(row->fits_row, expected[k].fits_row); /* of where it came first */
      assert_int_equal(row->n_exposure, expected[k].n_exposure);
      assert_int_equal(row->first_exposure, n);
      assert_int_equal(row->exp_id, expected[k].n_part > 1 ? -1 : 5);
      for (int e = 0; e < row->n_exposure; e++, n++) {
        assert_int_equal(here->exposure_row[n], expected[k].exposure[e]);
        assert_int_equal(here->exposure_id[n], 1100 + expected[k].exposure[e]);
        assert_int_equal(here->exposure_file[n], expected[k].exposure[e] / 100);
      }
    }
    mill_file_index_clear(here);
  }
  mill_join_free(join);
  mill_join_free(NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_objects_of_several_files_become_one_row),
  };
  if (mill_mpi_start(&mpi) != MILL_OK)
    return 1;
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  /* a rank with a failed test must not leave the others waiting */
  if (failed)
    MPI_Abort(MPI_COMM_WORLD, 1);
  mill_mpi_end(&mpi);
  return 0;
}
