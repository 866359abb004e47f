/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks' notes reach the status file where they meet. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "io/status/status_board.h"
#include "kernels/base/clock.h"
#include "src/system/status_process.h"
#include "tests/mpi/ranks.h"

MILL_CLOSER(json_t, json_decref)

static char path[512];
static mill_input_file file[2];

/* Rank 0: the status as it is now; free with json_decref. */
static json_t *read_status(void)
{
  json_error_t error;
  json_t *doc = json_load_file(path, 0, &error);
  if (!doc && access(path, F_OK) == 0)
    fail_msg("line %d: %s", error.line, error.text);
  return doc;
}

static int64_t number(const json_t *object, const char *key)
{
  return json_integer_value(json_object_get(object, key));
}

static const char *word(const json_t *object, const char *key)
{
  return json_string_value(json_object_get(object, key));
}

static mill_board *open_board(const char *status)
{
  mill_board *board = NULL;
  mill_board_plan plan = {.path = status,
                          .output = "out\"\xff.h5",
                          .command = "starmill fit",
                          .backend = "cpu test",
                          .rank_backend = "cpu test",
                          .n_thread = 1,
                          .n_slot = 2,
                          .n_row = 1000,
                          .n_file = 2,
                          .file = file};
  plan.base[MILL_STATUS_FITTED] = 100;
  plan.base[MILL_STATUS_LOW_SN] = 7;
  assert_int_equal(mill_board_open(&mpi, &plan, &board), MILL_OK);
  return board;
}

/* Collective: all ranks come to their end. */
static void end_board(mill_board *board, const mill_board_end *end)
{
  assert_int_equal(mill_board_settle(board, &mpi), MILL_OK);
  mill_board_free(board, end);
}

MILL_TEST(counts_of_all_ranks_come_where_they_meet)
{
  const int size = mpi.size, rank = mpi.rank;
  if (rank == 0)
    unlink(path);
  mill_board *board = open_board(path);
  if (rank == 0) { /* before any star */
    MILL_AT_END(json_decref_at) json_t *doc = read_status();
    assert_string_equal(word(doc, "state"), "running");
    assert_int_equal(number(doc, "done"), 107);
  }
  mill_board_stage(board, MILL_RANK_FITTING);
  mill_board_took(board, rank % 2);
  for (int i = 0; i < 10 * (rank + 1); i++)
    mill_board_finished(board, MILL_STATUS_FITTED);
  mill_board_finished(board, MILL_STATUS_FIT_FAILED);
  mill_board_memory(board, MILL_MEMORY_SLOTS, 5000);
  mill_board_memory(board, MILL_MEMORY_SLOTS, 400); /* the most counts */
  assert_int_equal(mill_board_meet(board, &mpi), MILL_OK);
  const int64_t here = 10 * (size * (size + 1) / 2) + size;
  if (rank == 0) {
    MILL_AT_END(json_decref_at) json_t *doc = read_status();
    assert_string_equal(word(doc, "output"), "out\"\xef\xbf\xbd.h5");
    assert_int_equal(number(doc, "rows"), 1000);
    assert_int_equal(number(doc, "done_in_this_run"), here);
    assert_int_equal(number(doc, "done"), 107 + here);
    assert_int_equal(number(doc, "failed"), 7 + size);
    assert_int_equal(number(doc, "remaining"), 1000 - 107 - here);
    const json_t *reason = json_object_get(doc, "failed_by_reason");
    assert_int_equal(number(reason, "LOW_SN"), 7);
    assert_int_equal(number(reason, "FIT_FAILED"), size);
    const json_t *ranks = json_object_get(doc, "ranks");
    assert_int_equal(json_array_size(ranks), size);
    for (int r = 0; r < size; r++) {
      const json_t *rank_r = json_array_get(ranks, (size_t)r);
      assert_string_equal(word(rank_r, "stage"), "fitting");
      assert_string_equal(word(rank_r, "file"), file[r % 2].path);
      assert_int_equal(number(json_object_get(rank_r, "memory_bytes"), "slots"), 5000);
      assert_true(number(rank_r, "resident_bytes") > 1 << 20);
    }
    int64_t n_done, n_failed;
    mill_board_count(board, &n_done, &n_failed);
    assert_int_equal(n_failed, 7 + size);
  }
  end_board(board, &(mill_board_end){.exit_status = 75});
  if (rank == 0) {
    MILL_AT_END(json_decref_at) json_t *doc = read_status();
    assert_string_equal(word(doc, "state"), "stopped");
    assert_int_equal(number(doc, "exit_status"), 75);
    assert_int_equal(number(doc, "done"), 107 + here);
    const json_t *last = json_array_get(json_object_get(doc, "ranks"), (size_t)size - 1);
    assert_string_equal(word(last, "stage"), "ended");
  }
}

MILL_TEST(the_first_failure_is_kept)
{
  mill_board *board = open_board(path);
  const int last = mpi.size - 1;
  mill_board_stage(board, MILL_RANK_FITTING);
  if (mpi.rank == last)
    mill_board_failed(board, MILL_ERR_MEMORY, "no memory for \"x\"");
  assert_int_equal(mill_board_meet(board, &mpi), MILL_OK);
  for (int has_ended = 0; has_ended < 2; has_ended++) {
    if (has_ended)
      end_board(board, &(mill_board_end){.code = MILL_ERR_MEMORY,
                                         .exit_status = 70,
                                         .message = "what all agree on"});
    if (mpi.rank != 0)
      continue;
    MILL_AT_END(json_decref_at) json_t *doc = read_status();
    const json_t *error = json_object_get(doc, "error");
    assert_string_equal(word(doc, "state"), has_ended ? "failed" : "running");
    assert_string_equal(word(error, "message"), "no memory for \"x\"");
    assert_int_equal(number(error, "rank"), last);
  }
}

static _Atomic int readers_end;
static _Atomic int n_read, n_bad;

static void *read_all_the_time(void *context)
{
  (void)context;
  while (!readers_end) {
    FILE *status = fopen(path, "r");
    if (!status)
      continue;
    json_t *doc = json_loadf(status, 0, NULL);
    n_bad += !doc || number(doc, "rows") != 1000;
    n_read += doc != NULL;
    json_decref(doc);
    fclose(status);
  }
  return NULL;
}

MILL_TEST(a_reader_always_finds_a_whole_file)
{
  pthread_t thread;
  mill_board *board = open_board(path);
  readers_end = n_read = n_bad = 0;
  if (mpi.rank == 0)
    assert_int_equal(pthread_create(&thread, NULL, read_all_the_time, NULL), 0);
  for (int i = 0; i < 200; i++)
    assert_int_equal(mill_board_meet(board, &mpi), MILL_OK);
  end_board(board, &(mill_board_end){0});
  if (mpi.rank == 0) {
    readers_end = 1;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(n_bad, 0);
    assert_true(n_read > 10);
  }
}

/* With no status file, or none that can be written, rank 0 knows the ranks' states at the end. */
MILL_TEST(a_status_that_cannot_be_written_stops_nothing)
{
  const char *nowhere = in_folder("nowhere/status.json");
  for (int is_wanted = 0; is_wanted < 2; is_wanted++) {
    mill_board *board = open_board(is_wanted ? nowhere : NULL);
    int n_rank = 0;
    mill_board_finished(board, MILL_STATUS_FITTED);
    mill_board_memory(board, MILL_MEMORY_READER, (size_t)1000 + (size_t)mpi.rank);
    assert_int_equal(mill_board_settle(board, &mpi), MILL_OK);
    const mill_rank_state *rank = mill_board_ranks(board, &n_rank);
    assert_int_equal(n_rank, mpi.size);
    for (int r = 0; r < n_rank && mpi.rank == 0; r++) {
      assert_int_equal(rank[r].rank, r);
      assert_int_equal(rank[r].n_status[MILL_STATUS_FITTED], 1);
      assert_int_equal(rank[r].bytes[MILL_MEMORY_READER], 1000 + r);
      assert_true(rank[r].peak >= rank[r].resident && rank[r].resident > 0);
    }
    mill_board_free(board, &(mill_board_end){0});
  }
  mill_board_free(NULL, NULL);
}

MILL_TEST(only_a_status_file_is_replaced)
{
  const char *other = in_folder("other"), text[] = "{\n  \"format\": \"a thesis\"}\n";
  if (mpi.rank != 0)
    return;
  assert_int_equal(mill_board_check_path(path), MILL_OK);  /* of the tests before */
  assert_int_equal(mill_board_check_path(other), MILL_OK); /* not there */
  save_file(other, text, strlen(text));
  assert_fails(mill_board_check_path(other), MILL_ERR_USAGE, other);
  assert_int_equal(mill_board_check_path(folder), MILL_ERR_USAGE);
  unlink(other);
}

static MILL_FIXTURE(set_up)
{
  make_folder_for_all();
  snprintf(path, sizeof path, "%s/status.json", folder);
  file[0].path = "first.fits";
  file[1].path = "second \"one\".fits";
  return 0;
}

static MILL_FIXTURE(clean_up)
{
  return mpi.rank != 0 || (unlink(path) == 0 && rmdir(folder) == 0) ? 0 : 1;
}

MILL_RANKS_TEST_MAIN(set_up, clean_up)
