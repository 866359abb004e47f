/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows of several files that are one object, against a plain search of all pairs of rows. */
#include "io/stars/join.h"
#include "io/catalog/places.h"
#include "kernels/base/memory.h"
#include "tests/mpi/ranks.h"

enum { N_FILE = 9, MOST_ROWS = 60, MOST = N_FILE * MOST_ROWS, RADIUS_ARCSEC = 2 };

static mill_file_index all[N_FILE]; /* as every rank makes it */
static const mill_catalog_row *row_at[MOST];
static int n_all, file_at[MOST], owner_at[MOST];
static int64_t row_in_file[MOST];

static void make_rows(void)
{
  srand(5); /* the same on all ranks */
  for (int f = 0; f < N_FILE; f++) {
    mill_file_index *index = &all[f];
    const int n = f == 3 ? 0 : 1 + rand() % MOST_ROWS;
    assert_int_equal(mill_file_index_alloc(index, n, 3 * n), MILL_OK);
    for (int i = 0; i < n; i++) {
      mill_catalog_row *row = &index->row[index->n_row++];
      mill_catalog_row_init(row);
      if (rand() % 3 == 0)
        snprintf(row->object, sizeof row->object, "star %d", rand() % 100);
      else if (rand() % 3 > 0)
        row->target_id = rand() % 100;
      if (rand() % 5 > 0) { /* chains of near rows, over borders of strips too */
        row->target_ra = 10 + rand() % 4;
        row->target_dec = -20 + rand() % 200 * 1.3 / 3600.0;
      }
      for (int e = rand() % 4; e > 0; e--)
        mill_file_index_expose(index, rand(), rand() % 1000, 50000 + rand() % 100);
      row->first_exposure = row->n_exposure > 0 ? row->first_exposure : index->n_exposure;
      row_at[n_all] = row;
      file_at[n_all] = f;
      row_in_file[n_all] = i;
      owner_at[n_all] = n_all;
      n_all++;
    }
  }
}

static int is_one(const mill_catalog_row *a, const mill_catalog_row *b)
{
  if (a->object[0] || b->object[0])
    return strcmp(a->object, b->object) == 0;
  return a->target_id >= 0 && a->target_id == b->target_id;
}

static int is_near(const mill_catalog_row *a, const mill_catalog_row *b)
{
  return mill_place_known(a->target_ra, a->target_dec) &&
         mill_place_known(b->target_ra, b->target_dec) &&
         mill_place_distance_deg(a->target_ra, a->target_dec, b->target_ra, b->target_dec) <=
             RADIUS_ARCSEC / 3600.0;
}

static void find_owners(int by_place)
{
  for (int changed = 1; changed;) {
    changed = 0;
    for (int i = 0; i < n_all; i++)
      for (int k = 0; k < n_all; k++)
        if (owner_at[k] < owner_at[i] &&
            (is_one(row_at[i], row_at[k]) || (by_place && is_near(row_at[i], row_at[k])))) {
          owner_at[i] = owner_at[k];
          changed = 1;
        }
  }
}

/* A copy of the files of this rank, as it would have indexed them. */
static void copy_mine(int start, int end, mill_file_index *mine)
{
  for (int f = start; f < end; f++) {
    mill_file_index *to = &mine[f - start];
    const mill_file_index *from = &all[f];
    assert_int_equal(mill_file_index_alloc(to, from->n_row, from->n_exposure), MILL_OK);
    to->n_row = from->n_row;
    to->n_exposure = from->n_exposure;
    memcpy(to->row, from->row, (size_t)from->n_row * sizeof *to->row);
    for (int64_t e = 0; e < from->n_exposure; e++) {
      to->exposure_row[e] = from->exposure_row[e];
      to->exposure_id[e] = from->exposure_id[e];
      to->exposure_mjd[e] = from->exposure_mjd[e];
    }
  }
}

/* The row of place i against the table, and against the index of its file if that is ours. */
static void check_row(const mill_join *join, int64_t new_row, int i, const mill_file_index *index,
                      int64_t *n_exposure)
{
  int64_t part = join->start[new_row].part;
  int64_t at = index ? index->row[new_row - join->row_start[file_at[i]]].first_exposure : 0;
  assert_true(join->start[new_row].exposure == *n_exposure);
  for (int k = i; k < n_all; k++) {
    if (owner_at[k] != i)
      continue;
    const mill_catalog_row *row = row_at[k];
    const mill_file_index *from = &all[file_at[k]];
    assert_true(join->part[part].file == file_at[k] && join->part[part].row == row_in_file[k] &&
                join->part[part].n_exposure == row->n_exposure);
    for (int e = 0; index && e < row->n_exposure; e++, at++)
      assert_true(index->exposure_file[at] == file_at[k] &&
                  index->exposure_row[at] == from->exposure_row[row->first_exposure + e] &&
                  index->exposure_id[at] == from->exposure_id[row->first_exposure + e] &&
                  index->exposure_mjd[at] == from->exposure_mjd[row->first_exposure + e]);
    *n_exposure += row->n_exposure;
    part++;
  }
  assert_true(part == join->start[new_row + 1].part);
}

MILL_TEST(the_same_groups_as_a_search_of_all_pairs)
{
  make_rows();
  for (int by_place = 0; by_place < 2; by_place++) {
    int64_t n_row[N_FILE], n_exposure[N_FILE], end, new_row = 0, n = 0;
    const int start = (int)mill_mpi_share(&mpi, N_FILE, &end);
    mill_file_index mine[N_FILE] = {0};
    mill_join *join = NULL;
    find_owners(by_place);
    copy_mine(start, (int)end, mine);
    assert_int_equal(mill_join_make(&mpi, by_place * RADIUS_ARCSEC, N_FILE, start, (int)end, mine,
                                    n_row, n_exposure, &join),
                     MILL_OK);
    for (int i = 0; i < n_all; i++)
      if (owner_at[i] == i) {
        const int f = file_at[i], is_mine = f >= start && f < end;
        check_row(join, new_row++, i, is_mine ? &mine[f - start] : NULL, &n);
      }
    assert_true(new_row == join->row_start[N_FILE] && new_row < n_all);
    for (int f = 0; f < N_FILE; f++) {
      assert_true(join->n_row_before[f] == all[f].n_row);
      assert_true(n_row[f] == join->row_start[f + 1] - join->row_start[f]);
      assert_true(
          f < start || f >= end ||
          (mine[f - start].n_row == n_row[f] && mine[f - start].n_exposure == n_exposure[f]));
    }
    for (int f = start; f < end; f++)
      mill_file_index_clear(&mine[f - start]);
    mill_join_free(join);
  }
  for (int f = 0; f < N_FILE; f++)
    mill_file_index_clear(&all[f]);
}

MILL_RANKS_TEST_MAIN(NULL, NULL)
