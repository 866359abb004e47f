/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks do together: they agree on the worst outcome, stop one another and share the cores,
 * draw numbers, and find rows of several files that are one object. */

#include "io/catalog/places.h"
#include "io/stars/join.h"
#include "src/ranks/draw.h"
#include "tests/mpi/ranks.h"

/* Rank r ends with code[r % n].  All must get `worst`, from the lowest rank that has this code. */
static void check_agree(const int *code, int n, int worst)
{
  const int mine = code[mpi.rank % n];
  mill_error_clear();
  if (mine != MILL_OK)
    mill_error_set(mine, __FILE__, __LINE__, "code %d of rank %d", mine, mpi.rank);
  assert_int_equal(mill_mpi_agree(&mpi, mine), worst);
  if (worst == MILL_OK)
    return;
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
  assert_int_equal(mill_mpi_share_of_cores(&mpi, &n_thread), MILL_OK);
  assert_true(n_thread >= 1);
  MPI_Allreduce(&n_thread, &sum, 1, MPI_INT, MPI_SUM, mpi.comm);
  assert_true(sum <= sysconf(_SC_NPROCESSORS_ONLN) || n_thread == 1);
}

MILL_TEST(mpi_failures_name_the_call)
{
  int err = MILL_OK, value = 0;
  MILL_MPI(MPI_Bcast(&value, 1, MPI_INT, mpi.size + 5, mpi.comm));
done:
  assert_fails(err, MILL_ERR_MPI, "MPI_Bcast: ");
}

/* --- numbers: each comes once, and no rank has to draw --- */

enum { N_NUMBER = 600 };

/* n_at_once: of this rank. */
static mill_draw *open_draw(int n_at_once)
{
  mill_draw *draw = NULL;
  assert_ok(mill_draw_open(&mpi, 0.01, n_at_once, &draw));
  return draw;
}

static void close_draw(mill_draw *draw)
{
  assert_int_equal(mill_draw_settle(draw), MILL_OK);
  mill_draw_free(draw);
}

MILL_TEST(every_number_comes_once)
{
  int n_seen[N_NUMBER] = {0};
  int64_t number = 0, last = -1, n_answered = 0, n_answered_all = 0, n_mine = 0, n_asked = 0;
  double wait_s = -1;
  mill_draw *draw = open_draw(1);
  for (;;) {
    assert_int_equal(mill_draw_next(draw, NULL, NULL, &number), MILL_OK);
    assert_true(number > last);
    if (last < 0)
      assert_int_equal(number, mpi.rank);
    n_mine++;
    if (number >= N_NUMBER)
      break;
    last = number;
    n_seen[number]++;
  }
  mill_draw_stats(draw, &n_answered, &wait_s);
  assert_true(wait_s >= 0);
  assert_int_equal(mill_draw_settle(draw), MILL_OK);
  mill_draw_stats(draw, &n_answered, &wait_s);
  mill_draw_free(draw);
  n_mine = mpi.rank == 0 ? 0 : n_mine - 1; /* the first needs no message */
  MPI_Allreduce(MPI_IN_PLACE, n_seen, N_NUMBER, MPI_INT, MPI_SUM, mpi.comm);
  MPI_Allreduce(&n_mine, &n_asked, 1, MPI_INT64_T, MPI_SUM, mpi.comm);
  MPI_Allreduce(&n_answered, &n_answered_all, 1, MPI_INT64_T, MPI_SUM, mpi.comm);
  for (int i = 0; i < N_NUMBER; i++)
    assert_int_equal(n_seen[i], 1);
  assert_true(n_answered_all == n_asked);
  assert_true(mpi.rank == 0 || n_answered == 0);
}

MILL_TEST(a_rank_that_does_not_draw_stops_nobody)
{
  int64_t number = -1;
  mill_draw *draw = open_draw(1);
  /* the last rank draws nothing at all: with several, rank 0 still answers */
  if (mpi.rank != mpi.size - 1 || mpi.size == 1)
    for (int i = 0; i < 20; i++)
      assert_int_equal(mill_draw_next(draw, NULL, NULL, &number), MILL_OK);
  close_draw(draw);
  /* Without a request under way, a draw can be freed before mill_draw_settle. */
  draw = open_draw(1);
  mill_draw_free(draw);
  mill_draw_free(NULL);
}

MILL_TEST(ranks_take_several_numbers_at_a_time)
{
  int n_seen[N_NUMBER] = {0};
  int64_t number = 0, before = 0;
  const int n_mine = 1 + 3 * mpi.rank;
  mill_draw *draw = open_draw(n_mine);
  for (int rank = 0; rank < mpi.rank; rank++)
    before += 1 + 3 * rank;
  for (int n = 0; number < N_NUMBER; n++) {
    assert_int_equal(mill_draw_next(draw, NULL, NULL, &number), MILL_OK);
    if (n == 0)
      assert_true(number == before);
    for (int64_t i = number; i < number + n_mine && i < N_NUMBER; i++)
      n_seen[i]++;
  }
  close_draw(draw);
  MPI_Allreduce(MPI_IN_PLACE, n_seen, N_NUMBER, MPI_INT, MPI_SUM, mpi.comm);
  for (int i = 0; i < N_NUMBER; i++)
    assert_int_equal(n_seen[i], 1);
}

static int always(void *context)
{
  ++*(int *)context;
  return 1;
}

MILL_TEST(a_wait_can_be_given_up)
{
  int64_t number = -1, first = -1, n_missing = 0;
  int n_asked = 0;
  mill_draw *draw = open_draw(1);
  assert_int_equal(mill_draw_next(draw, always, &n_asked, &first), MILL_OK);
  assert_true(first == mpi.rank && n_asked == 0);
  for (int i = 0; i < 50; i++) {
    assert_int_equal(mill_draw_next(draw, always, &n_asked, &number), MILL_OK);
    n_missing += number < 0;
  }
  /* Rank 0 reads its own counter.  Other ranks get no number while they wait for an answer. */
  assert_true(mpi.rank == 0 ? n_missing == 0 : n_missing == n_asked);
  /* An answer that is under way comes later. */
  if (number < 0)
    assert_int_equal(mill_draw_next(draw, NULL, NULL, &number), MILL_OK);
  assert_true(number >= mpi.size);
  mill_draw_next(draw, always, &n_asked, &number);
  /* and may be under way at the end */
  close_draw(draw);
}

/* --- one object in several files, against a plain search of all pairs of rows --- */

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
        row->target_id = rand() % 100 - 50; /* -1: none */
      if (rand() % 5 > 0) {                 /* chains of near rows, over borders of strips too */
        row->target_ra = 10 + rand() % 4;
        row->target_dec = -20 + rand() % 200 * 1.3 / 3600.0;
      }
      row->tile_id = rand() % 2;
      row->night = rand() % 3;
      if (rand() % 3 == 0)
        row->kind = (mill_kind){.z = rand(), .is_extragalactic = rand() % 2};
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
  return a->target_id != -1 && a->target_id == b->target_id;
}

/* Compare the sine of the two places' angle with that of the radius.  The sine is the length of the
 * unit vectors' cross product, which rounding does not spoil for near places. */
static int is_near(const mill_catalog_row *a, const mill_catalog_row *b)
{
  const double deg = acos(-1) / 180, da = a->target_dec * deg, db = b->target_dec * deg;
  const double ra = (b->target_ra - a->target_ra) * deg; /* of b, counted from a */
  const double east = cos(db) * sin(ra), north = sin(db) * cos(da) - cos(db) * cos(ra) * sin(da);
  const double radius = sin(RADIUS_ARCSEC / 3600.0 * deg);
  return mill_place_known(a->target_ra, a->target_dec) &&
         mill_place_known(b->target_ra, b->target_dec) &&
         east * east + north * north <= radius * radius;
}

MILL_TEST(distances_by_hand)
{
  assert_close(mill_place_distance_deg(0, 60, 180, 60), 60, 1e-12); /* over the pole */
  assert_close(mill_place_distance_deg(10, 0, 200, 90), 90, 1e-12);
  /* 0.002 degrees of right ascension: the arc is 0.002 cos(dec), less a fraction 2e-11 */
  assert_close(mill_place_distance_deg(359.999, 45, 0.001, 45), 0.002 * sqrt(0.5), 1e-12);
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

/* Copy the indices of files start ... end - 1 to mine, as this rank would have them. */
static void copy_mine(int start, int end, mill_file_index *mine)
{
  for (int f = start; f < end; f++) {
    mill_file_index *to = &mine[f - start];
    const mill_file_index *from = &all[f];
    assert_int_equal(mill_file_index_alloc(to, from->n_row, from->n_exposure), MILL_OK);
    to->n_row = from->n_row;
    memcpy(to->row, from->row, (size_t)from->n_row * sizeof *to->row);
    for (int64_t e = 0; e < from->n_exposure; e++)
      mill_file_index_add(to, from->exposure_row[e], from->exposure_id[e], from->exposure_mjd[e]);
  }
}

/* Check the row of place i against the table, and against its file's index if this rank has it. */
static void check_row(const mill_join *join, int64_t new_row, int i, const mill_file_index *index,
                      int64_t *n_exposure)
{
  int64_t part = join->start[new_row].part;
  int64_t at = index ? index->row[new_row - join->row_start[file_at[i]]].first_exposure : 0;
  assert_true(join->start[new_row].exposure == *n_exposure);
  int tile_id = row_at[i]->tile_id, night = row_at[i]->night; /* -1: they differ */
  mill_kind kind = row_at[i]->kind;
  for (int k = i; k < n_all; k++) {
    if (owner_at[k] != i)
      continue;
    const mill_catalog_row *row = row_at[k];
    tile_id = row->tile_id == tile_id ? tile_id : -1;
    night = row->night == night ? night : -1;
    kind = isnan(kind.z) ? row->kind : kind; /* of the first row that has one */
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
  assert_true(join->start[new_row].is_extragalactic == kind.is_extragalactic);
  const mill_catalog_row *made = index ? &index->row[new_row - join->row_start[file_at[i]]] : NULL;
  assert_true(!made || (made->tile_id == tile_id && made->night == night &&
                        made->kind.is_extragalactic == kind.is_extragalactic &&
                        (made->kind.z == kind.z || (isnan(made->kind.z) && isnan(kind.z)))));
}

/* Does the object whose first row is i have a row of the stars -40 to -20, star 1 or star 7? */
static int is_listed(int i)
{
  int n = 0;
  for (int k = i; k < n_all; k++)
    n += owner_at[k] == i &&
         ((row_at[k]->target_id >= -40 && row_at[k]->target_id <= -20) ||
          strcmp(row_at[k]->object, "star 1") == 0 || strcmp(row_at[k]->object, "star 7") == 0);
  return n > 0;
}

MILL_TEST(the_same_groups_as_a_search_of_all_pairs)
{
  mill_star_list stars = {0};
  for (int64_t id = -40; id <= -20; id++)
    assert_int_equal(mill_star_list_add_row(&stars, id, "", ""), MILL_OK);
  for (int k = 0; k < 2; k++)
    assert_int_equal(mill_star_list_add_row(&stars, -1, "", k ? "star 7" : "star 1"), MILL_OK);
  mill_star_list_sort(&stars);
  make_rows();
  for (int round = 0; round < 3; round++) { /* by name; by place too; listed stars alone */
    const int by_place = round > 0;
    int64_t n_row[N_FILE], n_exposure[N_FILE], end, new_row = 0, n = 0;
    const int start = (int)mill_mpi_share(&mpi, N_FILE, &end);
    mill_file_index mine[N_FILE] = {0};
    mill_join *join = NULL;
    const char *const path[N_FILE] = {NULL};
    find_owners(by_place);
    copy_mine(start, (int)end, mine);
    assert_int_equal(mill_join_make(&mpi, by_place * RADIUS_ARCSEC, round == 2 ? &stars : NULL,
                                    &(mill_star_tables){0}, path, N_FILE, start, (int)end, mine,
                                    n_row, n_exposure, &join),
                     MILL_OK);
    for (int i = 0; i < n_all; i++)
      if (owner_at[i] == i && (round < 2 || is_listed(i))) {
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
  MILL_FREE(stars.number, stars.name);
}

MILL_RANKS_TEST_MAIN(NULL, NULL)
