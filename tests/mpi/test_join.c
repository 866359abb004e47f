/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows of several files that are one object become one row, the same on any number of ranks. */
#include <math.h>
#include <string.h>

#include "io/stars/join.h"
#include "tests/mpi/ranks.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "tests/mill_test.h"

enum { N_FILE = 4, MAX_ROW = 4 };

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

MILL_TEST(objects_of_several_files_become_one_row)
{
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
  if (mill_join_make(&mpi, 0, N_FILE, start, end, index, n_row, n_exp, &join) != MILL_OK)
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

/* A file with one row at each position, named after the place in the list. */
static void make_places(int n, const double (*at)[2], mill_file_index *index)
{
  memset(index, 0, sizeof *index);
  assert_int_equal(mill_file_index_alloc(index, n, n), MILL_OK);
  for (int i = 0; i < n; i++) {
    mill_catalog_row *row = &index->row[index->n_row++];
    mill_catalog_row_init(row);
    snprintf(row->object, sizeof row->object, "visit %d", i);
    row->target_ra = at[i][0];
    row->target_dec = at[i][1];
    row->n_exposure = 1;
    row->first_exposure = i;
    mill_file_index_add(index, i, i);
  }
}

/* Positions within 1 arcsec are one object, whatever their names. */
MILL_TEST(positions)
{
  const double s = 1.0 / 3600.0; /* arcsec */
  /* distances by hand: along a meridian the difference of dec, along the equator that of RA, at dec
     60 half of it, across the pole the sum of both polar distances */
  const double at[][2] = {
      {10, 20},           {10, 20 + 0.9 * s},             /* 0.9: joined */
      {10, 20 + 1.8 * s},                                 /* 0.9 from the second: joined too */
      {10, 20 + 2.9 * s},                                 /* 1.1: not */
      {359.9999, 0},      {0.0001, 0},                    /* 0.72 across RA 0: joined */
      {50, 60},           {50 + 1.9 * s, 60},             /* 0.95: joined */
      {80, 60},           {80 + 2.1 * s, 60},             /* 1.05: not */
      {0, 90 - 0.4 * s},  {180, 90 - 0.5 * s},            /* 0.9: joined */
      {NAN, NAN},         {NAN, NAN},          {NAN, 20}, /* nowhere */
  };
  enum { N = sizeof at / sizeof at[0] };
  static const int owner[N] = {0, 0, 0, 3, 4, 4, 6, 6, 8, 9, 10, 10, 12, 13, 14};
  mill_file_index index[1];
  int64_t n_row, n_exposure;
  mill_join *join = NULL;
  const int mine = mpi.rank == 0; /* the only file is the first rank's */
  if (mine)
    make_places(N, at, index);
  assert_int_equal(mill_join_make(&mpi, 1.0, 1, 0, mine, index, &n_row, &n_exposure, &join),
                   MILL_OK);
  for (int row = 0; row < n_row; row++)
    for (int64_t p = join->part_start[row]; p < join->part_start[row + 1]; p++)
      assert_int_equal(owner[join->part[p].row], join->part[join->part_start[row]].row);
  int n_owner = 0;
  for (int i = 0; i < N; i++)
    n_owner += owner[i] == i;
  assert_int_equal(n_row, n_owner);
  assert_int_equal(n_exposure, N);
  if (mine)
    mill_file_index_clear(index);
  mill_join_free(join);
}

MILL_RANKS_TEST_MAIN(NULL, NULL)
