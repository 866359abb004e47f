#define _GNU_SOURCE /* open_memstream */

#include "jobs/status/status_board.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "jobs/status/status_file.h"
#include "kernels/base/error.h"
#include "kernels/base/clock.h"
#include "src/system/log.h"
#include "src/system/status_gpu.h"
#include "src/system/status_process.h"
#include "src/system/thread.h"

enum {
  TAG_STATE = 1,
  N_SAMPLE = 32,   /* of the rate */
  LAST_WAIT_S = 30 /* for a file system that does not answer, at the end of a run */
};
/* the rate is that of so long a time */
static const double RATE_S = 60.0;

typedef struct sample {
  double s;
  int64_t n_done;
} sample;

struct mill_board {
  mill_mpi mpi; /* its own communicator */
  mill_board_plan plan;
  char path[MILL_STATUS_PATH];
  double start_s, start_unix_s;
  int i_gpu; /* NVML's number; -1: none */

  pthread_mutex_t mutex; /* of what follows */
  pthread_cond_t changed;
  mill_rank_state mine;       /* notes of this rank */
  int64_t n_failed_elsewhere; /* rows, in this run */
  int ends, hurry;

  pthread_t thread;
  int has_thread, is_lost; /* lost: it hangs in the file system, and keeps its memory */

  /* of the thread, and after it of the caller */
  mill_rank_state message; /* under way */
  MPI_Request request;
  int64_t n_sent, n_taken;
  mill_rank_state *rank; /* [size] on rank 0 */
  sample sample[N_SAMPLE];
  int n_sample;
  int has_complained;
};

/* ---- notes ---- */

/* 0 when there is no board. */
static int lock(mill_board *board)
{
  return board && pthread_mutex_lock(&board->mutex) == 0;
}

void mill_board_took(mill_board *board, int i_file)
{
  if (!lock(board))
    return;
  board->mine.i_file = i_file;
  board->mine.sign_s = mill_unix_s();
  pthread_mutex_unlock(&board->mutex);
}

void mill_board_finished(mill_board *board, int status)
{
  if (status < 0 || status >= MILL_N_STATUS || !lock(board))
    return;
  board->mine.n_status[status]++;
  board->mine.sign_s = mill_unix_s();
  pthread_mutex_unlock(&board->mutex);
}

void mill_board_stage(mill_board *board, int stage)
{
  if (!lock(board))
    return;
  board->mine.stage = stage;
  pthread_mutex_unlock(&board->mutex);
}

void mill_board_memory(mill_board *board, int purpose, size_t bytes)
{
  if (!lock(board))
    return;
  if ((int64_t)bytes > board->mine.bytes[purpose])
    board->mine.bytes[purpose] = (int64_t)bytes;
  pthread_mutex_unlock(&board->mutex);
}

void mill_board_failed(mill_board *board, int code, const char *message)
{
  if (!lock(board))
    return;
  mill_rank_state *mine = &board->mine;
  if (mine->code == MILL_OK) {
    mine->code = code;
    mine->failed_s = mill_unix_s();
    snprintf(mine->error, sizeof mine->error, "%s", message);
  }
  mine->stage = MILL_RANK_FAILED;
  board->hurry = 1;
  pthread_cond_signal(&board->changed);
  pthread_mutex_unlock(&board->mutex);
}

/* Rows without a fit among those that a rank has finished. */
static int64_t n_failed(const int64_t n_status[MILL_N_STATUS])
{
  int64_t n = 0;
  for (int s = MILL_STATUS_FITTED + 1; s < MILL_N_STATUS; s++)
    n += n_status[s];
  return n;
}

int64_t mill_board_n_failed(mill_board *board)
{
  if (!lock(board))
    return 0;
  const int64_t n =
      n_failed(board->plan.base) + n_failed(board->mine.n_status) + board->n_failed_elsewhere;
  pthread_mutex_unlock(&board->mutex);
  return n;
}

static void look_at_self(mill_board *board, mill_rank_state *state)
{
  mill_gpu gpu;
  pthread_mutex_lock(&board->mutex);
  *state = board->mine;
  pthread_mutex_unlock(&board->mutex);
  state->sent_s = mill_unix_s();
  mill_process_memory(&state->resident, &state->peak);
  if (board->i_gpu >= 0 && mill_gpu_read(board->i_gpu, &gpu)) {
    state->has_gpu = 1;
    state->gpu_percent = gpu.percent;
    state->gpu_used = gpu.used;
    state->gpu_total = gpu.total;
    memcpy(state->gpu_name, gpu.name, sizeof state->gpu_name);
  }
}

/* ---- the exchange ---- */

/* Unless the last message is still on its way. */
static int send_state(mill_board *board)
{
  int gone = 1;
  MILL_CHECK_MPI(MPI_Test(&board->request, &gone, MPI_STATUS_IGNORE));
  if (!gone)
    return MILL_OK;
  look_at_self(board, &board->message);
  MILL_CHECK_MPI(MPI_Isend(&board->message, (int)sizeof board->message, MPI_BYTE, 0, TAG_STATE,
                           board->mpi.comm, &board->request));
  board->n_sent++;
  return MILL_OK;
}

static int take_message(mill_board *board)
{
  mill_rank_state state;
  MILL_CHECK_MPI(MPI_Recv(&state, (int)sizeof state, MPI_BYTE, MPI_ANY_SOURCE, TAG_STATE,
                          board->mpi.comm, MPI_STATUS_IGNORE));
  board->n_taken++;
  if (state.rank > 0 && state.rank < board->mpi.size)
    board->rank[state.rank] = state;
  return MILL_OK;
}

static int take_messages(mill_board *board)
{
  int there = 1;
  for (;;) {
    MILL_CHECK_MPI(
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_STATE, board->mpi.comm, &there, MPI_STATUS_IGNORE));
    if (!there)
      break;
    MILL_CHECK(take_message(board));
  }
  int64_t n = 0;
  for (int r = 1; r < board->mpi.size; r++)
    n += n_failed(board->rank[r].n_status);
  pthread_mutex_lock(&board->mutex);
  board->n_failed_elsewhere = n;
  pthread_mutex_unlock(&board->mutex);
  return MILL_OK;
}

/* ---- the file ---- */

/* Stars a second of the last minute, as far as it goes back. */
static double recent_rate(mill_board *board, double now_s, int64_t n_done)
{
  if (board->n_sample == N_SAMPLE) {
    memmove(board->sample, board->sample + 1, sizeof board->sample - sizeof board->sample[0]);
    board->n_sample--;
  }
  board->sample[board->n_sample++] = (sample){now_s, n_done};
  int first = board->n_sample - 1;
  while (first > 0 && now_s - board->sample[first - 1].s <= RATE_S)
    first--;
  const sample *from = &board->sample[first];
  return now_s > from->s ? (double)(n_done - from->n_done) / (now_s - from->s) : (double)NAN;
}

static int replace_file(const mill_board *board, const char *text, size_t n_byte)
{
  int err = MILL_OK;
  char path[MILL_STATUS_PATH + 8];
  snprintf(path, sizeof path, "%s.tmp", board->path);
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s cannot be created: %s", path, strerror(errno));
  for (size_t at = 0; at < n_byte;) {
    const ssize_t n = write(fd, text + at, n_byte - at);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      MILL_FAIL(MILL_ERR_OUTPUT, "%s cannot be written: %s", path, strerror(errno));
    at += (size_t)n;
  }
  if (rename(path, board->path) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s cannot be renamed: %s", path, strerror(errno));
done:
  if (fd >= 0)
    close(fd);
  if (err != MILL_OK && fd >= 0)
    unlink(path);
  return err;
}

/* Rank 0: what is known now, or at the end. */
static int write_status(mill_board *board, const mill_board_end *end)
{
  int err = MILL_OK;
  char *text = NULL;
  size_t n_byte = 0;
  int64_t n_done = 0;
  const double now_s = mill_wall_s();
  if (!end)
    look_at_self(board, &board->rank[0]);
  for (int r = 0; r < board->mpi.size; r++)
    for (int s = MILL_STATUS_FITTED; s < MILL_N_STATUS; s++)
      n_done += board->rank[r].n_status[s];
  const mill_status_text what = {
      .plan = &board->plan,
      .n_rank = board->mpi.size,
      .rank = board->rank,
      .start_unix_s = board->start_unix_s,
      .elapsed_s = now_s - board->start_s,
      .n_done_here = n_done,
      .rate = recent_rate(board, now_s, n_done),
      .end = end,
  };
  FILE *out = open_memstream(&text, &n_byte);
  if (!out)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory for the status");
  err = mill_status_print(&what, out);
  if (fclose(out) != 0 && err == MILL_OK)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory for the status");
  MILL_TRY(err);
  MILL_TRY(replace_file(board, text, n_byte));
  board->has_complained = 0;
done:
  free(text);
  if (err != MILL_OK && !board->has_complained) {
    mill_log_warning("%s: the status is not written: %s; the fit goes on", board->path,
                     mill_error_message());
    board->has_complained = 1;
  }
  return err;
}

/* ---- the thread ---- */

/* Sleep until the next turn; 0 when there is none. */
static int await_turn(mill_board *board)
{
  const struct timespec until = mill_cond_time(mill_wall_s() + board->plan.interval_s);
  pthread_mutex_lock(&board->mutex);
  while (!board->ends && !board->hurry &&
         pthread_cond_timedwait(&board->changed, &board->mutex, &until) != ETIMEDOUT)
    ;
  board->hurry = 0;
  const int goes_on = !board->ends;
  pthread_mutex_unlock(&board->mutex);
  return goes_on;
}

static void *keep_status(void *context)
{
  mill_board *board = context;
  int err = MILL_OK;
  do {
    if (board->mpi.rank == 0) {
      MILL_TRY(take_messages(board));
      (void)write_status(board, NULL); /* told in the log */
    } else {
      MILL_TRY(send_state(board));
    }
  } while (await_turn(board));
done:
  if (err != MILL_OK)
    mill_log_warning("the status is not kept any more: %s; the fit goes on", mill_error_message());
  return NULL;
}

static int start_thread(mill_board *board)
{
  if (board->plan.interval_s <= 0 || !board->plan.path)
    return MILL_OK;
  if (mill_thread_start(&board->thread, keep_status, board) != 0)
    return MILL_ERROR(MILL_ERR_INTERNAL,
                      "cannot start the status thread: is the limit on processes (ulimit -u) "
                      "or on address space (ulimit -v) low?");
  board->has_thread = 1;
  return MILL_OK;
}

static void stop_thread(mill_board *board)
{
  if (!board->has_thread)
    return;
  mill_cond_end(&board->changed, &board->mutex, &board->ends);
  if (!mill_thread_join_within(board->thread, LAST_WAIT_S)) {
    mill_log_warning("%s: the file system has not answered for %d s: the status is given up",
                     board->path, LAST_WAIT_S);
    board->is_lost = 1;
  }
  board->has_thread = 0;
}

/* ---- begin and end ---- */

int mill_board_check_path(const char *path)
{
  int err = MILL_OK;
  struct stat status;
  FILE *file = NULL;
  if (strlen(path) >= MILL_STATUS_PATH)
    MILL_FAIL(MILL_ERR_USAGE, "the path of the status file is too long: %zu bytes", strlen(path));
  if (stat(path, &status) != 0)
    goto done; /* other mistakes show when it is written, and stop nothing */
  if (!S_ISREG(status.st_mode))
    MILL_FAIL(MILL_ERR_USAGE, "%s is no file: give another --status", path);
  file = fopen(path, "re");
  if (file && status.st_size > 0 && !mill_status_has_signature(file))
    MILL_FAIL(MILL_ERR_USAGE,
              "%s is there and is no status file of starmill: give another --status, or remove it",
              path);
done:
  if (file)
    fclose(file);
  return err;
}

static int make(const mill_mpi *mpi, const mill_board_plan *plan, mill_board **out)
{
  int err = MILL_OK;
  mill_board *board = NULL;
  MILL_TRY(MILL_ALLOC(1, &board));
  board->mpi.comm = MPI_COMM_NULL;
  board->mpi.rank = mpi->rank;
  board->mpi.size = mpi->size;
  board->request = MPI_REQUEST_NULL;
  board->plan = *plan;
  board->start_s = mill_wall_s();
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
  if (pthread_mutex_init(&board->mutex, NULL) != 0 || mill_cond_init(&board->changed) != 0)
    MILL_FAIL(MILL_ERR_INTERNAL, "no locks for the status");
  MILL_TRY(MILL_ALLOC(mpi->rank == 0 ? mpi->size : 1, &board->rank));
  for (int r = 0; mpi->rank == 0 && r < mpi->size; r++)
    board->rank[r] = (mill_rank_state){.rank = r, .i_file = -1, .gpu_percent = -1};
  *out = board;
  board = NULL;
done:
  mill_free(board);
  return err;
}

int mill_board_open(const mill_mpi *mpi, const mill_board_plan *plan, mill_board **out)
{
  int err = MILL_OK;
  mill_board *board = NULL;
  *out = NULL;
  err = make(mpi, plan, &board);
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_TRY(mill_mpi_dup(mpi->comm, &board->mpi));
  err = start_thread(board);
  if (err != MILL_OK) {
    /* a run without a status is better than none */
    mill_log_warning("%s; the fit goes on without its status", mill_error_message());
    err = MILL_OK;
  }
  *out = board;
  board = NULL;
done:
  mill_board_free(board, NULL);
  return err;
}

int mill_board_settle(mill_board *board)
{
  int64_t n_sent = 0;
  mill_rank_state mine;
  if (!board)
    return MILL_OK;
  stop_thread(board);
  if (board->mine.stage != MILL_RANK_FAILED)
    mill_board_stage(board, MILL_RANK_ENDED);
  MILL_CHECK_MPI(MPI_Reduce(&board->n_sent, &n_sent, 1, MPI_INT64_T, MPI_SUM, 0, board->mpi.comm));
  while (board->mpi.rank == 0 && board->n_taken < n_sent)
    MILL_CHECK(take_message(board));
  MILL_CHECK_MPI(MPI_Wait(&board->request, MPI_STATUS_IGNORE));
  look_at_self(board, &mine);
  MILL_CHECK_MPI(MPI_Gather(&mine, (int)sizeof mine, MPI_BYTE, board->rank, (int)sizeof mine,
                            MPI_BYTE, 0, board->mpi.comm));
  return MILL_OK;
}

const mill_rank_state *mill_board_ranks(const mill_board *board, int *n_rank)
{
  *n_rank = board->mpi.size;
  return board->rank;
}

void mill_board_free(mill_board *board, const mill_board_end *end)
{
  if (!board)
    return;
  stop_thread(board);
  if (end && board->mpi.rank == 0 && board->plan.path && board->plan.interval_s > 0 &&
      !board->is_lost)
    (void)write_status(board, end); /* told in the log */
  if (board->mpi.comm != MPI_COMM_NULL && end && !board->is_lost)
    MPI_Comm_free(&board->mpi.comm);
  if (board->is_lost)
    return;
  pthread_mutex_destroy(&board->mutex);
  pthread_cond_destroy(&board->changed);
  mill_free(board->rank);
  mill_free(board);
}
