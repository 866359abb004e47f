/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/status/status_board.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "src/config/text.h"
#include "src/system/log.h"
#include "src/system/regular_file.h"
#include "src/system/status_gpu.h"
#include "src/system/status_process.h"
#include "src/system/thread.h"
#include "src/system/watchdog.h"

static const double RATE_S = 30.0; /* the recent rate covers the last RATE_S to 2 RATE_S seconds */

typedef struct sample {
  double s;
  int64_t n_done;
} sample;

struct mill_board {
  mill_board_plan plan;
  char path[MILL_STATUS_PATH];
  int n_rank;
  double start_s, start_unix_s;
  int i_gpu; /* GPU's index in NVML; -1: none */

  pthread_mutex_t mutex; /* guards mine and elsewhere */
  mill_rank_state mine;  /* this rank's notes */
  struct {
    int64_t n_done, n_failed; /* rows of the other ranks in this run, at the last meeting */
    double met_s, rate;       /* time of the last meeting; rows/s of the other ranks before it */
  } elsewhere;

  /* used on rank 0, by one thread at a time */
  mill_rank_state *rank; /* [n_rank] */
  sample from, next;     /* the rate counts from `from`; after RATE_S `next` replaces `from` */
  int has_complained;
};

/* ---- notes ---- */

void mill_board_took(mill_board *board, int i_file)
{
  MILL_LOCKED(&board->mutex);
  board->mine.i_file = i_file;
  board->mine.sign_s = mill_unix_s();
}

void mill_board_finished(mill_board *board, int status)
{
  if (status < 0 || status >= MILL_N_STATUS)
    return;
  MILL_LOCKED(&board->mutex);
  board->mine.n_status[status]++;
  board->mine.sign_s = mill_unix_s();
}

void mill_board_stage(mill_board *board, enum mill_rank_stage stage)
{
  MILL_LOCKED(&board->mutex);
  board->mine.stage = (int32_t)stage;
}

void mill_board_memory(mill_board *board, enum mill_purpose purpose, size_t bytes)
{
  MILL_LOCKED(&board->mutex);
  if ((int64_t)bytes > board->mine.bytes[purpose])
    board->mine.bytes[purpose] = (int64_t)bytes;
}

void mill_board_failed(mill_board *board, int code, const char *message)
{
  MILL_LOCKED(&board->mutex);
  mill_rank_state *mine = &board->mine;
  if (mine->code == MILL_OK) {
    mine->code = code;
    mine->failed_s = mill_unix_s();
    snprintf(mine->error, sizeof mine->error, "%s", message);
  }
  mine->stage = MILL_RANK_FAILED;
}

void mill_board_count(mill_board *board, int64_t *n_done, int64_t *n_failed)
{
  *n_done = *n_failed = 0;
  MILL_LOCKED(&board->mutex);
  const int64_t *const n_status[] = {board->plan.base, board->mine.n_status};
  for (int i = 0; i < 2; i++) { /* earlier runs, then this rank */
    *n_done += mill_status_rows(n_status[i], MILL_STATUS_FITTED);
    *n_failed += mill_status_rows(n_status[i], MILL_STATUS_FITTED + 1); /* codes above FITTED */
  }
  const double since_s = mill_wall_s() - board->elsewhere.met_s;
  const int64_t known = board->elsewhere.n_done;
  int64_t likely = known + (int64_t)(board->elsewhere.rate * since_s);
  if (likely >= board->plan.n_row - *n_done) /* never claim all rows by extrapolation */
    likely = board->plan.n_row - *n_done - 1;
  *n_done += likely > known ? likely : known;
  *n_failed += board->elsewhere.n_failed;
}

/* Copy this rank's state, and add the present use of memory and GPU. */
static void look_at_self(mill_board *board, mill_rank_state *state)
{
  mill_gpu gpu;
  pthread_mutex_lock(&board->mutex);
  *state = board->mine;
  pthread_mutex_unlock(&board->mutex);
  mill_process_memory(&state->resident, &state->peak);
  if (board->i_gpu >= 0 && mill_gpu_read(board->i_gpu, &gpu)) {
    state->has_gpu = 1;
    state->gpu_percent = gpu.percent;
    state->gpu_used = gpu.used;
    state->gpu_total = gpu.total;
    memcpy(state->gpu_name, gpu.name, sizeof state->gpu_name);
  }
}

/* ---- the file ---- */

/* Replace the status file, without waiting for the disk: the other ranks wait for rank 0. */
static int replace_file(const char *path, const mill_status_text *what)
{
  MILL_WATCHED(MILL_WATCH_FILE, 0, "%s: writing the status", path);
  char temporary[MILL_STATUS_PATH + 8];
  MILL_OWNED char *text = NULL;
  size_t n_byte = 0;
  FILE *out = open_memstream(&text, &n_byte);
  const int code = out ? mill_status_print(what, out) : MILL_OK;
  MILL_CHECK(mill_text_close(out, code, "the status"));
  snprintf(temporary, sizeof temporary, "%s.tmp", path);
  return mill_whole_file_write(path, temporary, 0, text, n_byte);
}

/* On rank 0, write the states that the ranks had at their last meeting. */
static void write_status(mill_board *board, const mill_board_end *end)
{
  sample now = {.s = mill_wall_s()};
  for (int r = 0; r < board->n_rank; r++)
    now.n_done += mill_status_rows(board->rank[r].n_status, MILL_STATUS_FITTED);
  if (now.s - board->next.s >= RATE_S) { /* the rate covers RATE_S to 2 RATE_S seconds */
    board->from = board->next;
    board->next = now;
  }
  const double passed_s = now.s - board->from.s;
  const mill_status_text what = {
      .plan = &board->plan,
      .n_rank = board->n_rank,
      .rank = board->rank,
      .start_unix_s = board->start_unix_s,
      .elapsed_s = now.s - board->start_s,
      .n_done_here = now.n_done,
      .rate = passed_s > 0 ? (double)(now.n_done - board->from.n_done) / passed_s : (double)NAN,
      .end = end,
  };
  const int err = replace_file(board->path, &what);
  if (err != MILL_OK && !board->has_complained)
    mill_log_warning("%s: cannot write the status: %s; the fit continues", board->path,
                     mill_error_message());
  board->has_complained = err != MILL_OK;
}

/* ---- meeting ---- */

/* Gather all ranks' states on rank 0, which notes the rows and rate of the other ranks. */
static int collect(mill_board *board, const mill_mpi *mpi)
{
  mill_rank_state mine;
  int64_t n_done = 0, n_failed = 0;
  look_at_self(board, &mine);
  MILL_CHECK_MPI(MPI_Gather(&mine, (int)sizeof mine, MPI_BYTE, board->rank, (int)sizeof mine,
                            MPI_BYTE, 0, mpi->comm));
  if (mpi->rank != 0)
    return MILL_OK;
  for (int r = 1; r < board->n_rank; r++) { /* failed rows have codes above FITTED */
    n_done += mill_status_rows(board->rank[r].n_status, MILL_STATUS_FITTED);
    n_failed += mill_status_rows(board->rank[r].n_status, MILL_STATUS_FITTED + 1);
  }
  const double now_s = mill_wall_s(), passed_s = now_s - board->elsewhere.met_s;
  MILL_LOCKED(&board->mutex);
  board->elsewhere.rate =
      passed_s > 0 ? (double)(n_done - board->elsewhere.n_done) / passed_s : 0.0;
  board->elsewhere.n_done = n_done;
  board->elsewhere.n_failed = n_failed;
  board->elsewhere.met_s = now_s;
  return MILL_OK;
}

int mill_board_meet(void *context, const mill_mpi *mpi)
{
  mill_board *board = context;
  MILL_CHECK(collect(board, mpi));
  if (mpi->rank == 0 && board->path[0])
    write_status(board, NULL);
  return MILL_OK;
}

int mill_board_settle(mill_board *board, const mill_mpi *mpi)
{
  if (!board)
    return MILL_OK;
  if (board->mine.stage != MILL_RANK_FAILED)
    mill_board_stage(board, MILL_RANK_ENDED);
  return collect(board, mpi);
}

/* ---- begin and end ---- */

int mill_board_check_path(const char *path)
{
  struct stat status;
  char head[sizeof MILL_STATUS_SIGNATURE - 1];
  if (strlen(path) >= MILL_STATUS_PATH)
    return MILL_ERROR(MILL_ERR_USAGE, "the status file's path is over %d bytes: shorten it",
                      MILL_STATUS_PATH - 1);
  if (stat(path, &status) != 0)
    return MILL_OK; /* other faults only cause a warning when the file is written */
  if (!S_ISREG(status.st_mode))
    return MILL_ERROR(MILL_ERR_USAGE, "%s is not a file: give another --status", path);
  if (status.st_size > 0 && access(path, R_OK) == 0 &&
      (mill_first_bytes(path, head, sizeof head) != sizeof head ||
       memcmp(head, MILL_STATUS_SIGNATURE, sizeof head) != 0))
    return MILL_ERROR(
        MILL_ERR_USAGE,
        "%s exists and is not a status file of starmill: give another --status, or remove it",
        path);
  return MILL_OK;
}

/* Make a board, but not the status file yet.  The caller frees *out after a failure too. */
static int make(const mill_mpi *mpi, const mill_board_plan *plan, mill_board **out)
{
  mill_board *board = NULL;
  MILL_CHECK(MILL_ALLOC(1, &board));
  if (pthread_mutex_init(&board->mutex, NULL) != 0) {
    mill_free(board);
    return MILL_ERROR(MILL_ERR_INTERNAL, "cannot make a lock for the status file");
  }
  *out = board;
  board->plan = *plan;
  board->n_rank = mpi->size;
  board->start_s = mill_wall_s();
  board->from.s = board->next.s = board->elsewhere.met_s = board->start_s;
  board->start_unix_s = mill_unix_s();
  board->i_gpu = plan->gpu_bus[0] ? mill_gpu_find(plan->gpu_bus) : -1;
  board->mine = (mill_rank_state){.rank = mpi->rank,
                                  .pid = (int32_t)getpid(),
                                  .i_file = -1,
                                  .gpu_percent = -1,
                                  .sign_s = board->start_unix_s};
  mill_host_name(board->mine.host, sizeof board->mine.host);
  snprintf(board->mine.backend, sizeof board->mine.backend, "%s", plan->rank_backend);
  if (plan->path)
    snprintf(board->path, sizeof board->path, "%s", plan->path);
  return MILL_ALLOC(mpi->rank == 0 ? mpi->size : 1, &board->rank);
}

static void drop(mill_board *const *board)
{
  mill_board_free(*board, NULL);
}

int mill_board_open(const mill_mpi *mpi, const mill_board_plan *plan, mill_board **out)
{
  MILL_AT_END(drop) mill_board *board = NULL;
  *out = NULL;
  MILL_CHECK(mill_mpi_agree(mpi, make(mpi, plan, &board)));
  MILL_CHECK(mill_board_meet(board, mpi));
  return MILL_GIVE(&board, out);
}

const mill_rank_state *mill_board_ranks(const mill_board *board, int *n_rank)
{
  *n_rank = board->n_rank;
  return board->rank;
}

void mill_board_free(mill_board *board, const mill_board_end *end)
{
  if (!board)
    return;
  if (end && board->mine.rank == 0 && board->path[0])
    write_status(board, end);
  pthread_mutex_destroy(&board->mutex);
  MILL_FREE(board->rank, board);
}
