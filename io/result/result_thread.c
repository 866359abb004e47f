/* SPDX-License-Identifier: BSD-3-Clause */
/* The I/O thread: decides when the ranks write, and in which order. */
#include <stdatomic.h>
#include <string.h>

#include "io/result/result_layout.h"
#include "io/result/result_file_impl.h"
#include "kernels/base/clock.h"
#include "kernels/base/nvtx.h"
#include "src/system/log.h"
#include "src/system/thread.h"
#include "src/system/watchdog.h"

enum {
  POLL_FIRST_US = 500,  /* first pause between two polls of MPI; pauses double */
  POLL_MOST_US = 16000, /* longest pause */
  TAG_WANT = 1,
  TAG_GO,
  TAG_ROWS /* rows of /fits; TAG_ROWS + 1: of /epochs */
};

/* Extra time before the watchdog ends a rank that waits for the writes of other ranks, s. */
static const double LONG_S = 3600.0;

void mill_result_set_busy(mill_result_file *file, enum mill_result_busy busy)
{
  const int waits = busy == MILL_RESULT_WAITS;
  mill_watch_end(file->watch);
  file->watch = busy == MILL_RESULT_IDLE
                    ? -1
                    : mill_watch_begin(MILL_WATCH_FILE, waits ? LONG_S : 0, "%s: %s", file->path,
                                       waits ? "what other ranks write" : "a collective write");
}

static void clear(mill_result_queue *q)
{
  q->fits.n = q->epochs.n = q->n_pix = 0;
  for (int a = 0; a < MILL_MAX_ARM; a++)
    q->model[a].n = 0;
}

/* Write this rank's models from a queue, and wait until they are on disk.  Rows are written only
 * afterwards: models have no CRC, so a model lost in a power cut would go unnoticed. */
static int write_models(mill_result_file *file, mill_result_queue *q)
{
  if (q->n_pix == 0)
    return MILL_OK;
  for (int a = 0; a < MILL_MAX_ARM; a++)
    if (mill_models_arm(file->models, a)) {
      const mill_table_part part =
          mill_waiting_part(&q->model[a], mill_models_arm(file->models, a));
      MILL_CHECK(mill_table_write(&part));
    }
  return mill_models_flush(file->models);
}

/* If this rank has queued many models, write them without waiting for other ranks.  The caller
 * holds the mutex, which is released while writing. */
static void write_many_models(mill_result_file *file)
{
  mill_result_queue *spare = file->writing, *q = file->filling;
  if (q->n_pix < MILL_WRITE_PIX || file->failure.code != MILL_OK)
    return;
  for (int a = 0; a < MILL_MAX_ARM; a++) {
    const mill_waiting empty = spare->model[a];
    spare->model[a] = q->model[a];
    q->model[a] = empty;
  }
  spare->n_pix = q->n_pix;
  q->n_pix = 0;
  pthread_cond_broadcast(&file->room);
  pthread_mutex_unlock(&file->mutex);
  mill_result_set_busy(file, MILL_RESULT_WRITES);
  const int err = file->own.code == MILL_OK ? write_models(file, spare) : MILL_OK;
  if (err != MILL_OK)
    mill_error_save(err, &file->own); /* prepare reports it to the other ranks */
  mill_result_set_busy(file, MILL_RESULT_IDLE);
  clear(spare);
  pthread_mutex_lock(&file->mutex);
}

/* Write the models of a queue, and pack its rows into messages to the ranks that own the rows.
 * n_message [2][owners.n] out: how many messages each owner gets of /fits, then of /epochs. */
static int prepare(mill_result_file *file, mill_result_queue *q, int64_t *n_message)
{
  if (file->io.rank == 0) {
    MILL_CHECK(mill_lock_keep(&file->lock));
    MILL_CHECK(mill_output_still_there(file->path, file->fd, &file->mark));
    MILL_CHECK(mill_models_still_there(file->models));
  }
  if (file->own.code != MILL_OK) /* write_many_models failed */
    return mill_error_restore(&file->own);
  MILL_CHECK(write_models(file, q));
  const mill_waiting *rows[] = {&q->fits, &q->epochs};
  const size_t size[] = {file->columns.row_size, sizeof(mill_epoch_result)}; /* of packed rows */
  for (int k = 0; k < 2; k++, n_message += file->owners.n)
    MILL_CHECK(mill_parcel_pack(&file->owners, rows[k]->at, rows[k]->n, rows[k]->row, size[k],
                                &file->parcel[k], n_message));
  return MILL_OK;
}

/* Where take_row collects rows from other ranks. */
typedef struct taking {
  mill_waiting *rows;
  const mill_columns *columns;
} taking;

static int take_row(void *context, int64_t at, const char *packed)
{
  char *row;
  const taking *t = context;
  MILL_CHECK(mill_waiting_add(t->rows, t->columns, at, &row));
  memcpy(row, packed, t->columns->row_size);
  return MILL_OK;
}

/* Write the rows that this rank owns; STATUS, the last column, completes a row.  The CRC covers
 * TARGETID, which is in the file already: read it. */
static int write_taken(mill_result_file *file)
{
  const mill_columns *columns = &file->columns;
  if (file->epochs) {
    mill_table_part epochs = mill_waiting_part(&file->taken[1], file->epochs);
    epochs.n_own = file->owners.n_block; /* gaps inside an own block may be rewritten */
    MILL_CHECK(mill_table_write(&epochs));
  }
  mill_table_part fits = mill_waiting_part(&file->taken[0], file->fits);
  fits.n_own = file->owners.n_block;
  fits.end = columns->i_target + 1; /* TARGETID is the first column */
  MILL_CHECK(mill_table_read(fits));
  for (int64_t i = 0; i < fits.n; i++)
    mill_columns_set_crc(columns, fits.row + (size_t)i * fits.stride);
  fits.first = columns->i_target + 1;
  fits.end = columns->n_column;
  return mill_table_write(&fits);
}

/* On rank 0, before a run without models writes its first rows: note this in the file. */
static int mark_unmodelled(mill_result_file *file)
{
  if (file->models || file->has_marked || file->io.rank != 0)
    return MILL_OK;
  file->has_marked = 1;
  return mill_result_layout_mark_unmodelled(file->file, file->path);
}

/* Send each row of /fits (k = 0) and /epochs (k = 1) to the rank that owns and writes it.
 * n_message [2][owners.n]: how many messages each owner gets.  Collective over the I/O threads. */
static int write_rows(mill_result_file *file, const int64_t *n_message)
{
  int err = MILL_OK, code = mark_unmodelled(file);
  const mill_owners *owners = &file->owners;
  for (int k = 0; k < 2; k++, n_message += owners->n) { /* without /epochs, k = 1 has no rows */
    taking t = {&file->taken[k], k == 0 || !file->epochs ? &file->columns : &file->epochs->columns};
    err = mill_deliver(&file->io, owners, TAG_ROWS + k, &file->parcel[k],
                       owners->mine >= 0 ? n_message[owners->mine] : 0, take_row, &t);
    if (err == MILL_ERR_MPI)
      return err;
    code = code == MILL_OK ? err : code;
  }
  return code == MILL_OK ? write_taken(file) : code;
}

static void keep_failure(mill_result_file *file, int err)
{
  MILL_LOCKED(&file->mutex);
  if (file->failure.code == MILL_OK)
    mill_error_save(err, &file->failure);
  pthread_cond_broadcast(&file->room);
}

/* Is a call of meet() due?  Rank 0 decides for all ranks.  The caller holds the mutex. */
static int is_time_to_meet(const mill_result_file *file)
{
  return file->met_s > 0 && mill_wall_s() - file->met_s >= file->write_interval_s;
}

enum { N_ROW, N_ITEM, N_OPEN, N_MEET, N_FAILED, N_COUNT };

/* Number of counts exchanged in a write: N_COUNT, and per table the messages to each owner. */
static int n_count(const mill_result_file *file)
{
  return N_COUNT + 2 * file->owners.n;
}

/* Swap the queues, and set file->count to this rank's counts.  Prepare the filled queue (*out) for
 * the write, unless an earlier write failed.  Returns the code of prepare. */
static int begin_write(mill_result_file *file, mill_result_queue **out)
{
  int64_t *mine = file->count;
  pthread_mutex_lock(&file->mutex);
  mill_result_queue *q = file->filling;
  file->filling = file->writing;
  file->writing = q;
  file->announced_closing = file->is_closing;
  const int has_failed = file->failure.code != MILL_OK;
  memset(mine, 0, (size_t)n_count(file) * sizeof *mine);
  mine[N_MEET] = is_time_to_meet(file);
  pthread_cond_broadcast(&file->room);
  pthread_mutex_unlock(&file->mutex);
  *out = q;
  mine[N_ROW] = q->fits.n;
  mine[N_ITEM] = q->n_pix + q->epochs.n;
  mine[N_OPEN] = !file->announced_closing;
  const int code = has_failed ? MILL_OK : prepare(file, q, mine + N_COUNT);
  mine[N_FAILED] = code != MILL_OK;
  return code;
}

static int meet_others(mill_result_file *file)
{
  MILL_CHECK(file->meet(file->meet_context, &file->io));
  MILL_LOCKED(&file->mutex);
  file->met_s = file->met_s > 0 ? mill_wall_s() : 0;
  return MILL_OK;
}

/* Do one write with all ranks.  *ends 1: all ranks are closing, so this write was the last.
 * Returns failures of MPI and of meet(); file->failure keeps others: later writes are skipped. */
static int run_write(mill_result_file *file, int *ends)
{
  int err = MILL_OK;
  int64_t *all = file->sum;
  mill_result_queue *q = NULL;
  const double start_s = mill_wall_s();
  mill_range_begin(MILL_RANGE_WRITE);
  mill_error_kept kept; /* failure of this rank, or MILL_OK */
  mill_error_save(begin_write(file, &q), &kept);
  mill_result_set_busy(file, MILL_RESULT_WAITS);
  MILL_MPI(MPI_Allreduce(file->count, all, n_count(file), MPI_INT64_T, MPI_SUM, file->io.comm));
  mill_result_set_busy(file, MILL_RESULT_WRITES);
  /* meet before writing, since a write may take long */
  if (all[N_MEET] > 0)
    MILL_TRY(meet_others(file));
  if ((all[N_ROW] > 0 || all[N_ITEM] > 0 || all[N_FAILED] > 0) && file->failure.code == MILL_OK) {
    const int code =
        all[N_FAILED] == 0 ? write_rows(file, all + N_COUNT) : mill_error_restore(&kept);
    mill_result_set_busy(file, MILL_RESULT_WAITS);
    err = code == MILL_ERR_MPI ? code : mill_mpi_agree(&file->io, code);
    const double spent_s = mill_wall_s() - start_s;
    file->write_s += spent_s;
    file->n_written++;
    if (spent_s > atomic_load(&file->longest_s))
      atomic_store(&file->longest_s, spent_s);
    if (err == MILL_OK) {
      atomic_fetch_add(&file->n_done, all[N_ROW]);
    } else if (err != MILL_ERR_MPI) {
      keep_failure(file, err); /* the same on every rank */
      err = MILL_OK;
    }
  }
  *ends = all[N_OPEN] == 0;
done:
  mill_range_end();
  clear(q);
  for (int k = 0; k < 2; k++) {
    mill_parcel_free(&file->parcel[k]);
    file->taken[k].n = 0;
  }
  return err;
}

static int has_work(const mill_result_queue *q)
{
  return q->fits.n > 0 || q->n_pix > 0;
}

/* Does this rank need a write?  The caller holds the mutex. */
static int wants_write(const mill_result_file *file)
{
  const mill_result_queue *q = file->filling;
  return mill_result_n_queued(file) >= MILL_WRITE_BYTES || is_time_to_meet(file) ||
         (has_work(q) && mill_wall_s() - q->first_s >= file->write_interval_s) ||
         (file->is_closing && (has_work(q) || !file->announced_closing));
}

/* With one rank: wait until wants_write() is true; meanwhile write models once many are queued.
 * A signal of the queue ends a wait.  A wait also ends write_interval seconds after from_s, the
 * earlier time of the first queued row and of the last call of meet(); 0: neither has happened. */
static void await_own_write(mill_result_file *file)
{
  MILL_LOCKED(&file->mutex);
  write_many_models(file);
  while (!wants_write(file)) {
    const mill_result_queue *q = file->filling;
    double from_s = has_work(q) ? q->first_s : file->met_s;
    if (file->met_s > 0 && file->met_s < from_s)
      from_s = file->met_s;
    const struct timespec until = mill_cond_time(from_s + file->write_interval_s);
    if (from_s > 0)
      pthread_cond_timedwait(&file->work, &file->mutex, &until);
    else
      pthread_cond_wait(&file->work, &file->mutex);
    write_many_models(file);
  }
}

/* Sleep *us microseconds before the next poll of MPI, and double *us: each poll costs CPU time.
 * Do not sleep if this rank needs a write but has not yet asked for it. */
static void nap(mill_result_file *file, int has_wanted, long *us)
{
  const struct timespec until = mill_cond_time(mill_wall_s() + 1e-6 * (double)*us);
  MILL_LOCKED(&file->mutex);
  if (has_wanted || !wants_write(file))
    pthread_cond_timedwait(&file->work, &file->mutex, &until);
  *us = 2 * *us < POLL_MOST_US ? 2 * *us : POLL_MOST_US;
}

/* On rank 0: does another rank ask for this write?  A request carries the number of its write: late
 * requests for an earlier write are ignored. */
static int hear_wishes(mill_result_file *file, int *wants)
{
  for (int there = 1;;) {
    int64_t heard = -1;
    MILL_CHECK_MPI(MPI_Iprobe(MPI_ANY_SOURCE, TAG_WANT, file->io.comm, &there, MPI_STATUS_IGNORE));
    if (!there)
      return MILL_OK;
    MILL_CHECK_MPI(MPI_Recv(&heard, 1, MPI_INT64_T, MPI_ANY_SOURCE, TAG_WANT, file->io.comm,
                            MPI_STATUS_IGNORE));
    file->n_want_taken++;
    *wants |= heard == file->i_write;
  }
}

/* Has rank 0 begun the write?  The news spreads from rank 0: each rank tells two further ranks. */
static int hear_go(mill_result_file *file, int *begins)
{
  const mill_mpi *io = &file->io;
  if (io->rank > 0) {
    const int from = (io->rank - 1) / 2;
    MILL_CHECK_MPI(MPI_Iprobe(from, TAG_GO, io->comm, begins, MPI_STATUS_IGNORE));
    if (*begins)
      MILL_CHECK_MPI(MPI_Recv(NULL, 0, MPI_BYTE, from, TAG_GO, io->comm, MPI_STATUS_IGNORE));
  }
  for (int to = 2 * io->rank + 1; *begins && to <= 2 * io->rank + 2 && to < io->size; to++)
    MILL_CHECK_MPI(MPI_Send(NULL, 0, MPI_BYTE, to, TAG_GO, io->comm));
  return MILL_OK;
}

/* Wait until rank 0 begins a write, at the request of any rank.  No rank blocks inside MPI. */
static int await_write(mill_result_file *file)
{
  /* has_told: the request is sent to rank 0; has_wanted: `wants` was 1 before */
  int begins = 0, has_told = 0, has_wanted = 0;
  long us = POLL_FIRST_US;
  const int64_t wish = file->i_write;
  MPI_Request told = MPI_REQUEST_NULL;
  if (file->io.size == 1) {
    await_own_write(file);
    return MILL_OK;
  }
  for (;;) {
    pthread_mutex_lock(&file->mutex);
    if (!has_wanted) /* else the write that this rank needs includes its models */
      write_many_models(file);
    int wants = wants_write(file);
    pthread_mutex_unlock(&file->mutex);
    if (file->io.rank == 0) {
      MILL_CHECK(hear_wishes(file, &wants));
      begins = wants;
    } else if (wants && !has_told) {
      mill_result_set_busy(file, MILL_RESULT_WAITS);
      MILL_CHECK_MPI(MPI_Isend(&wish, 1, MPI_INT64_T, 0, TAG_WANT, file->io.comm, &told));
      file->n_want_sent++;
      has_told = 1;
    }
    MILL_CHECK(hear_go(file, &begins));
    if (begins)
      break;
    if (wants && !has_wanted)
      us = POLL_FIRST_US;
    has_wanted |= wants;
    nap(file, has_wanted, &us);
  }
  /* a short wait: rank 0 receives the request in its next await_write, or in settle_wishes */
  MILL_CHECK_MPI(MPI_Wait(&told, MPI_STATUS_IGNORE));
  return MILL_OK;
}

/* Receive the requests still under way at the end, so that MPI can be finalized. */
static int settle_wishes(mill_result_file *file)
{
  int64_t n_sent = 0;
  MILL_CHECK_MPI(
      MPI_Reduce(&file->n_want_sent, &n_sent, 1, MPI_INT64_T, MPI_SUM, 0, file->io.comm));
  for (; file->io.rank == 0 && file->n_want_taken < n_sent; file->n_want_taken++) {
    int64_t heard;
    MILL_CHECK_MPI(MPI_Recv(&heard, 1, MPI_INT64_T, MPI_ANY_SOURCE, TAG_WANT, file->io.comm,
                            MPI_STATUS_IGNORE));
  }
  return MILL_OK;
}

/* The I/O thread: write whenever a rank needs it, until all ranks are closing. */
static void *io_main(void *context)
{
  mill_result_file *file = context;
  int err = MILL_OK, ends = 0;
  mill_nvtx_name_thread("I/O");
  pthread_mutex_lock(&file->mutex);
  while (file->may_start == 0)
    pthread_cond_wait(&file->work, &file->mutex);
  ends = file->may_start < 0; /* a rank could not start its thread */
  pthread_mutex_unlock(&file->mutex);
  if (ends)
    return NULL;
  while (!ends) {
    MILL_TRY(await_write(file));
    mill_result_set_busy(file, MILL_RESULT_WRITES);
    MILL_TRY(run_write(file, &ends));
    mill_result_set_busy(file, MILL_RESULT_IDLE);
    file->i_write++;
  }
  mill_result_set_busy(file, MILL_RESULT_WRITES);
  MILL_TRY(settle_wishes(file));
  mill_result_set_busy(file, MILL_RESULT_IDLE);
  file->io_cpu_s = mill_thread_cpu_s();
done:
  if (err != MILL_OK) {
    /* MPI failed, so the ranks cannot agree to end */
    mill_log_error("%s: %s: the job is aborted; the same command continues it", file->path,
                   mill_error_message());
    MPI_Abort(file->io.comm, mill_error_exit_status(err));
  }
  return NULL;
}

int mill_result_meet(mill_result_file *file, int (*meet)(void *context, const mill_mpi *io),
                     void *context)
{
  pthread_mutex_lock(&file->mutex);
  file->meet = meet;
  file->meet_context = context;
  pthread_mutex_unlock(&file->mutex);
  /* rank 0 must not start a meeting before all ranks have set meet */
  MILL_CHECK_MPI(MPI_Barrier(file->mpi.comm));
  MILL_LOCKED(&file->mutex);
  file->met_s = file->mpi.rank == 0 ? mill_wall_s() : 0;
  pthread_cond_signal(&file->work);
  return MILL_OK;
}

/* Each thread waits for may_start.  If a rank cannot start its thread, all other threads end. */
int mill_result_start_thread(mill_result_file *file)
{
  int err = MILL_ALLOC(n_count(file), &file->count);
  MILL_STEP(MILL_ALLOC(n_count(file), &file->sum));
  const int rc = mill_thread_start(&file->io_thread, io_main, file);
  if (rc != 0 && err == MILL_OK)
    err = MILL_ERROR(MILL_ERR_INTERNAL, "cannot start the writing thread: %s", strerror(rc));
  err = mill_mpi_agree(&file->mpi, err);
  pthread_mutex_lock(&file->mutex);
  file->may_start = err == MILL_OK ? 1 : -1; /* the thread waits for this */
  pthread_cond_signal(&file->work);
  pthread_mutex_unlock(&file->mutex);
  if (err != MILL_OK && rc == 0)
    pthread_join(file->io_thread, NULL);
  return err;
}
