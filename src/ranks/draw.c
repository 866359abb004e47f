/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/ranks/draw.h"

#include <stdatomic.h>

#include "kernels/base/clock.h"
#include "src/system/log.h"
#include "src/system/thread.h"
#include "src/system/watchdog.h"

enum {
  TAG_ASK = 1,
  TAG_NUMBER = 2,
  /* Waits of rank 0 between looks for requests, doubled after each look that finds none. */
  ANSWER_FIRST_US = 100,
  ANSWER_LEAST_US = 500, /* limits of the longest wait, a tenth of patience_s */
  ANSWER_MOST_US = 16000,
  /* Waits of a rank between looks for rank 0's answer: first and longest. */
  ASK_FIRST_US = 50,
  ASK_MOST_US = 1000
};

struct mill_draw {
  mill_mpi mpi;                     /* separate communicator for these messages */
  int *n_at_once;                   /* [size] numbers that each rank draws at a time */
  int64_t first;                    /* first number that this rank draws, fixed without a message */
  int has_first;                    /* first has been drawn */
  _Atomic int64_t next, n_answered; /* rank 0: next number to give out; answers sent */
  _Atomic int ends;
  long answer_us; /* rank 0: longest wait between two looks, microseconds */
  pthread_t thread;
  int has_thread, is_settled;
  MPI_Request ask, answer; /* other ranks */
  int has_asked;
  int64_t number;
  double wait_s;
};

static void nap(long *us, long most_us)
{
  const struct timespec t = {.tv_sec = *us / 1000000, .tv_nsec = *us % 1000000 * 1000};
  nanosleep(&t, NULL);
  *us = 2 * *us < most_us ? 2 * *us : most_us;
}

/* Rank 0: answer one waiting request; *there: 1 if there was a request. */
static int answer(mill_draw *draw, int *there)
{
  MPI_Status status;
  MILL_CHECK_MPI(MPI_Iprobe(MPI_ANY_SOURCE, TAG_ASK, draw->mpi.comm, there, &status));
  if (!*there)
    return MILL_OK;
  MILL_CHECK_MPI(
      MPI_Recv(NULL, 0, MPI_BYTE, status.MPI_SOURCE, TAG_ASK, draw->mpi.comm, MPI_STATUS_IGNORE));
  const int64_t number = atomic_fetch_add(&draw->next, draw->n_at_once[status.MPI_SOURCE]);
  /* cannot block: the asking rank has posted its receive */
  MILL_CHECK_MPI(MPI_Send(&number, 1, MPI_INT64_T, status.MPI_SOURCE, TAG_NUMBER, draw->mpi.comm));
  atomic_fetch_add(&draw->n_answered, 1);
  return MILL_OK;
}

/* Thread of rank 0: answer requests; double the nap after each look that finds none. */
static void *answer_all(void *context)
{
  mill_draw *draw = context;
  int err = MILL_OK, there = 0;
  long us = ANSWER_FIRST_US;
  while (!atomic_load(&draw->ends)) {
    MILL_TRY(answer(draw, &there));
    if (there)
      us = ANSWER_FIRST_US;
    else
      nap(&us, draw->answer_us);
  }
done:
  if (err != MILL_OK) {
    /* other ranks would wait forever for an answer */
    mill_log_error("cannot distribute work: %s: the job is aborted; the same command continues it",
                   mill_error_message());
    MPI_Abort(draw->mpi.comm, mill_error_exit_status(err));
  }
  return NULL;
}

static int start_thread(mill_draw *draw)
{
  draw->has_thread = mill_thread_start(&draw->thread, answer_all, draw) == 0;
  return draw->has_thread
             ? MILL_OK
             : MILL_ERROR(
                   MILL_ERR_INTERNAL,
                   "cannot start the thread that distributes work: is the limit on processes "
                   "(ulimit -u) or on address space (ulimit -v) low?");
}

/* Each rank's first n_at_once numbers are fixed, in rank order; the counter begins after them. */
int mill_draw_open(const mill_mpi *mpi, double patience_s, int n_at_once, mill_draw **out)
{
  mill_draw *draw = NULL;
  *out = NULL;
  int err = MILL_ALLOC(1, &draw);
  if (err == MILL_OK) {
    draw->mpi.comm = MPI_COMM_NULL;
    draw->ask = draw->answer = MPI_REQUEST_NULL;
    err = MILL_ALLOC(mpi->size, &draw->n_at_once);
  }
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_MPI(MPI_Allgather(&n_at_once, 1, MPI_INT, draw->n_at_once, 1, MPI_INT, mpi->comm));
  int64_t n_first = 0;
  for (int rank = 0; rank < mpi->size; rank++) {
    if (rank == mpi->rank)
      draw->first = n_first;
    n_first += draw->n_at_once[rank];
  }
  atomic_store(&draw->next, n_first);
  const double us = 0.1 * patience_s * 1e6; /* look ten times while a rank works */
  draw->answer_us = (long)fmax(ANSWER_LEAST_US, fmin(us, ANSWER_MOST_US));
  MILL_TRY(mill_mpi_dup(mpi->comm, &draw->mpi));
  if (mpi->rank == 0 && mpi->size > 1)
    err = start_thread(draw);
  MILL_TRY(mill_mpi_agree(mpi, err));
  err = MILL_GIVE(&draw, out);
done:
  mill_draw_free(draw);
  return err;
}

/* Send a request to rank 0 unless one is pending.  *arrived: 1 if the answer has arrived. */
static int ask(mill_draw *draw, int *arrived)
{
  if (!draw->has_asked) {
    MILL_CHECK_MPI(
        MPI_Irecv(&draw->number, 1, MPI_INT64_T, 0, TAG_NUMBER, draw->mpi.comm, &draw->answer));
    MILL_CHECK_MPI(MPI_Isend(NULL, 0, MPI_BYTE, 0, TAG_ASK, draw->mpi.comm, &draw->ask));
    draw->has_asked = 1;
  }
  MILL_CHECK_MPI(MPI_Test(&draw->answer, arrived, MPI_STATUS_IGNORE));
  if (*arrived) {
    MILL_CHECK_MPI(MPI_Wait(&draw->ask, MPI_STATUS_IGNORE));
    draw->has_asked = 0;
  }
  return MILL_OK;
}

int mill_draw_next(mill_draw *draw, int (*gives_up)(void *context), void *context, int64_t *number)
{
  int err = MILL_OK, arrived = 0, watch = -1;
  long us = ASK_FIRST_US;
  const double start_s = mill_wall_s();
  *number = -1;
  if (!draw->has_first) {
    draw->has_first = 1;
    *number = draw->first;
    goto done;
  }
  if (draw->mpi.rank == 0) {
    *number = atomic_fetch_add(&draw->next, draw->n_at_once[0]);
    goto done;
  }
  watch = mill_watch_begin(MILL_WATCH_FILE, 0, "rank 0's answer to rank %d, which asked for work",
                           draw->mpi.rank);
  for (;;) {
    MILL_TRY(ask(draw, &arrived));
    if (arrived)
      break;
    if (gives_up && gives_up(context))
      goto done;
    nap(&us, ASK_MOST_US);
  }
  *number = draw->number;
done:
  mill_watch_end(watch);
  draw->wait_s += mill_wall_s() - start_s;
  return err;
}

void mill_draw_stats(const mill_draw *draw, int64_t *n_answered, double *wait_s)
{
  *n_answered = atomic_load(&draw->n_answered);
  *wait_s = draw->wait_s;
}

static void end_thread(mill_draw *draw)
{
  if (!draw->has_thread)
    return;
  atomic_store(&draw->ends, 1);
  pthread_join(draw->thread, NULL);
  draw->has_thread = 0;
}

int mill_draw_settle(mill_draw *draw)
{
  MILL_WATCHED(MILL_WATCH_FILE, 0, "the end of handing out work");
  if (draw->has_asked) {
    MILL_CHECK_MPI(MPI_Wait(&draw->answer, MPI_STATUS_IGNORE));
    MILL_CHECK_MPI(MPI_Wait(&draw->ask, MPI_STATUS_IGNORE));
    draw->has_asked = 0;
  }
  /* after the barrier no rank asks any more */
  MILL_CHECK_MPI(MPI_Barrier(draw->mpi.comm));
  end_thread(draw);
  draw->is_settled = 1;
  return MILL_OK;
}

void mill_draw_free(mill_draw *draw)
{
  if (!draw)
    return;
  end_thread(draw);
  if (draw->is_settled)
    mill_mpi_free(&draw->mpi);
  MILL_FREE(draw->n_at_once, draw);
}
