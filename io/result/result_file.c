#include "io/result/result_file.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/result/columns.h"
#include "io/hdf5/hdf5_probe.h"
#include "io/hdf5/hdf5_util.h"
#include "io/files/lock_file.h"
#include "io/result/models_file.h"
#include "io/hdf5/parallel_hdf5.h"
#include "io/result/result_layout.h"
#include "io/result/result_repair.h"
#include "kernels/base/error.h"
#include "kernels/base/nvtx.h"
#include "kernels/base/clock.h"
#include "src/system/log.h"
#include "src/ranks/mpi_context.h"
#include "src/ranks/same_on_ranks.h"
#include "src/system/thread.h"
#include "src/system/watchdog.h"

enum {
  EPOCH_ROWS = 4096,    /* a rank asks for a write when so many rows wait: collective
                           writes of less are slow (PLATFORM.md) */
  QUEUE_ROWS = 16384,   /* beyond it mill_result_put waits */
  EPOCH_PIX = 8 << 20,  /* the same for the pixels of models: 32 MiB */
  QUEUE_PIX = 32 << 20, /* 128 MiB */
  READ_ROWS = 8192,     /* block of rows looked at when a file is continued */
  POLL_FIRST_US = 500,  /* between looks at MPI: soon after something has changed, */
  POLL_MOST_US = 16000, /* then ever later up to this */
  TAG_WANT = 1
};

/* A row takes a kilobyte or less, and no file system writes slower than 10 MB/s for long */
static const double ROW_S = 1e-4;

/* What fits hand over between two epochs; the I/O thread swaps two of these */
typedef struct queue {
  char *row;   /* [QUEUE_ROWS][row_size], grown as needed */
  int64_t *at; /* [QUEUE_ROWS] rows of /fits */
  int64_t n_row, n_row_room;
  mill_model_item *item;
  int64_t n_item, n_item_room;
  float *pool;
  size_t n_pix, n_pix_room;
  double first_s; /* when the first came */
} queue;

struct mill_result_file {
  char path[MILL_MAX_PATH];
  mill_columns columns;
  int n_label, n_arm;
  char arm_name[MILL_MAX_ARM][MILL_MAX_NAME];
  mill_mpi mpi;    /* of the calling threads' collective calls */
  mill_mpi io;     /* of the I/O thread */
  int is_finished; /* found finished: nothing is open */
  mill_result_summary found;
  hid_t file;
  int held; /* rank 0: descriptor of the same file; -1 */
  hid_t dataset[MILL_MAX_COLUMN];
  int64_t n_row, n_exposure;
  mill_models_file *models;
  mill_lock lock; /* rank 0 */
  double start_s, write_interval_s;
  _Atomic int64_t n_done; /* of all ranks, written */

  /* under mutex */
  pthread_mutex_t mutex;
  pthread_cond_t room, work;
  queue *filling, *writing; /* the second belongs to the I/O thread */
  queue both[2];
  uint8_t *wanted; /* one bit a row */
  int n_waiting;   /* threads that wait for room */
  int is_closing;
  int may_start; /* 1: every rank has its threads; -1: not, end at once */
  int err;       /* of the first failed write, and its message */
  char message[1024];

  pthread_mutex_t hdf5; /* HDF5 is not thread-safe */
  pthread_t io_thread;
  int has_io_thread;
  /* of the I/O thread */
  int64_t epoch, n_want_sent, n_want_taken;
  int announced_closing;
  double io_cpu_s; /* set at its end */
  double write_s;
  int has_marked;           /* that rows come without models */
  int watch;                /* token of the collective call under way; -1: none */
  _Atomic double longest_s; /* of the writes so far */
};

/* A collective call that does not return ends the job (src/system/watchdog.h). */
static void set_busy(mill_result_file *file, int busy)
{
  if (!busy) {
    mill_watch_end(file->watch);
    file->watch = -1;
  } else if (file->watch < 0) {
    file->watch = mill_watch_begin(MILL_WATCH_FILE, 0, "%s: a collective write", file->path);
  } else {
    mill_watch_again(file->watch);
  }
}

/* ---- what has to be fitted ---- */

static int bit(const uint8_t *bits, int64_t i)
{
  return bits[i / 8] >> (i % 8) & 1;
}

static void set_bit(uint8_t *bits, int64_t i, int value)
{
  const uint8_t mask = (uint8_t)(1u << (i % 8));
  bits[i / 8] = value ? bits[i / 8] | mask : bits[i / 8] & (uint8_t)~mask;
}

/* Look at the rows [lo, hi) of an earlier run: rows that are not whole, or have
   failed and shall be tried again, are wanted; their STATUS goes back to 0, so
   that nobody takes them for done meanwhile. */
static int examine_rows(mill_result_file *file, int retry_failed, int64_t lo, int64_t hi,
                        int64_t **reset, int64_t *n_reset)
{
  int err = MILL_OK;
  const mill_columns *columns = &file->columns;
  char *row = NULL, *value = NULL;
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  int64_t n_room = 0;
  size_t widest = 0;
  *reset = NULL;
  *n_reset = 0;
  for (int i = 0; i < columns->n_column; i++)
    widest = columns->column[i].n_byte > widest ? columns->column[i].n_byte : widest;
  MILL_TRY(mill_alloc_bytes(READ_ROWS, columns->row_size, (void **)&row));
  MILL_TRY(mill_alloc_bytes(READ_ROWS, widest, (void **)&value));
  for (int64_t at = lo; at < hi; at += READ_ROWS) {
    const int64_t n = hi - at < READ_ROWS ? hi - at : READ_ROWS;
    for (int i = 0; i < columns->n_column; i++) {
      const mill_column *c = &columns->column[i];
      MILL_TRY(mill_ph5_select_range(file->path, c->vector ? 2 : 1, file->n_row, c->n_value, at, n,
                                     &rows));
      MILL_TRY(mill_ph5_read(file->dataset[i], file->path, c->name, mill_ph5_file_type(c->type),
                             &rows, value));
      mill_ph5_unselect(&rows);
      for (int64_t k = 0; k < n; k++)
        memcpy(row + (size_t)k * columns->row_size + c->at, value + (size_t)k * c->n_byte,
               c->n_byte);
    }
    for (int64_t k = 0; k < n; k++) {
      const char *this_row = row + (size_t)k * columns->row_size;
      const int32_t status = mill_columns_status(columns, this_row);
      const int done = mill_columns_is_whole(columns, this_row) &&
                       !(retry_failed && status != MILL_STATUS_FITTED);
      set_bit(file->wanted, at + k, !done);
      if (done || status == MILL_STATUS_NOT_DONE)
        continue;
      if (*n_reset == n_room) {
        int64_t *more = realloc(*reset, sizeof *more * (size_t)(n_room = 2 * n_room + 64));
        if (!more)
          MILL_FAIL(MILL_ERR_MEMORY, "no memory for a list of %lld rows", (long long)n_room);
        *reset = more;
      }
      (*reset)[(*n_reset)++] = at + k;
    }
  }
done:
  mill_ph5_unselect(&rows);
  mill_free(value);
  mill_free(row);
  return err;
}

/* Collective: rows that this rank found wanted, though their STATUS says that they are done, are
   not done any more; then all know of all.  code: of the finding. */
static int reset_rows(mill_result_file *file, int code, const int64_t *reset, int64_t n_reset)
{
  int err = code;
  const int64_t n_byte = (file->n_row + 7) / 8;
  int64_t n_wanted = 0;
  int32_t *zero = NULL;
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  const mill_column *status = &file->columns.column[file->columns.i_status];
  if (err == MILL_OK)
    err = MILL_ALLOC(n_reset, &zero);
  if (err == MILL_OK)
    err = mill_ph5_select(file->path, 1, file->n_row, 1, reset, n_reset, &rows);
  MILL_TRY(mill_mpi_agree(&file->mpi, err));
  err = mill_ph5_write(file->dataset[file->columns.i_status], file->path, status->name,
                       H5T_NATIVE_INT32, &rows, zero);
  MILL_TRY(mill_mpi_agree(&file->mpi, err));
  for (int64_t at = 0; at < n_byte; at += 1 << 30) {
    const int n = n_byte - at < 1 << 30 ? (int)(n_byte - at) : 1 << 30;
    MILL_MPI(MPI_Allreduce(MPI_IN_PLACE, file->wanted + at, n, MPI_BYTE, MPI_BOR, file->mpi.comm));
  }
  for (int64_t i = 0; i < file->n_row; i++)
    n_wanted += bit(file->wanted, i);
  atomic_store(&file->n_done, file->n_row - n_wanted);
done:
  mill_ph5_unselect(&rows);
  mill_free(zero);
  return err;
}

/* Collective: every rank examines its part, then all know all. */
static int learn_wanted(mill_result_file *file, int retry_failed)
{
  int err = MILL_OK;
  /* parts begin at whole bytes of the bit field, so that they can be put together */
  const int64_t n_byte = (file->n_row + 7) / 8;
  const int64_t lo = n_byte * file->mpi.rank / file->mpi.size * 8;
  int64_t hi = n_byte * (file->mpi.rank + 1) / file->mpi.size * 8;
  int64_t *reset = NULL, n_reset = 0;
  hi = hi < file->n_row ? hi : file->n_row;
  err = examine_rows(file, retry_failed, lo, hi, &reset, &n_reset);
  err = reset_rows(file, err, reset, n_reset);
  free(reset);
  return err;
}

/* Collective: rows whose models did not reach the disk, or were lost there, are fitted again. */
static int learn_unmodelled(mill_result_file *file, const mill_models_info *info, int watch)
{
  int err = MILL_OK;
  int64_t *reset = NULL, n_reset = 0, n_all = 0;
  const int64_t lo = file->n_row * file->mpi.rank / file->mpi.size;
  const int64_t hi = file->n_row * (file->mpi.rank + 1) / file->mpi.size;
  err = mill_models_find_missing(file->models, info, lo, hi, watch, &reset, &n_reset);
  for (int64_t i = 0; i < n_reset && err == MILL_OK; i++)
    set_bit(file->wanted, reset[i], 1);
  MILL_TRY(reset_rows(file, err, reset, n_reset));
  MILL_MPI(MPI_Allreduce(&n_reset, &n_all, 1, MPI_INT64_T, MPI_SUM, file->mpi.comm));
  if (n_all > 0 && file->mpi.rank == 0)
    mill_log_warning("%s: %lld rows are fitted again, for their models are not whole in the "
                     "models file",
                     file->path, (long long)n_all);
done:
  free(reset);
  return err;
}

/* ---- epochs ---- */

static int by_row(const void *a, const void *b)
{
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* One column of the sorted rows: row i of the file is packed row order[2i + 1] */
static int write_column(mill_result_file *file, int i_column, const int64_t *order, int64_t n,
                        const char *row, char *value, const mill_ph5_rows *rows)
{
  const mill_column *c = &file->columns.column[i_column];
  for (int64_t i = 0; i < n; i++)
    memcpy(value + (size_t)i * c->n_byte,
           row + (size_t)order[2 * i + 1] * file->columns.row_size + c->at, c->n_byte);
  return mill_ph5_write(file->dataset[i_column], file->path, c->name, mill_ph5_file_type(c->type),
                        rows, value);
}

/* Complete rows with TARGETID, as the file has it, and CRC */
static int seal_rows(mill_result_file *file, queue *q, const int64_t *order, char *value,
                     const mill_ph5_rows *rows)
{
  int err = MILL_OK;
  const int i_target = file->columns.i_target;
  const mill_column *c = &file->columns.column[i_target];
  MILL_TRY(
      mill_ph5_read(file->dataset[i_target], file->path, c->name, H5T_NATIVE_INT64, rows, value));
  for (int64_t i = 0; i < q->n_row; i++) {
    char *row = q->row + (size_t)order[2 * i + 1] * file->columns.row_size;
    memcpy(row + c->at, value + (size_t)i * c->n_byte, c->n_byte);
    mill_columns_set_crc(&file->columns, row);
  }
done:
  return err;
}

/* Collective over the I/O threads: write what this rank has, values first, then CRC, STATUS
   last, each stage only when the one before it has worked on every rank. */
static int write_queue(mill_result_file *file, queue *q)
{
  int err = MILL_OK, failed = MILL_OK;
  const mill_columns *columns = &file->columns;
  const int64_t n = q->n_row;
  int64_t *order = NULL, *at = NULL;
  char *value = NULL;
  mill_ph5_rows scalar = {H5I_INVALID_HID, H5I_INVALID_HID};
  size_t widest = 8;
  for (int i = 0; i < columns->n_column; i++)
    widest = columns->column[i].n_byte > widest ? columns->column[i].n_byte : widest;
  err = mill_lock_keep(&file->lock);
  if (err == MILL_OK)
    err = mill_ph5_still_there(file->path, file->held);
  if (err == MILL_OK)
    err = mill_models_keep(file->models);
  if (err == MILL_OK)
    err = mill_models_still_there(file->models);
  if (err == MILL_OK && !file->models && !file->has_marked && file->io.rank == 0)
    err = mill_result_layout_mark_unmodelled(file->file, file->path);
  MILL_TRY(mill_mpi_agree(&file->io, err));
  file->has_marked = 1;
  if (file->models) {
    err = mill_models_write(file->models, q->item, q->n_item, q->pool);
    MILL_TRY(mill_mpi_agree(&file->io, err));
    set_busy(file, 1);
    /* a row that is lost in a power cut is known by its CRC; of a model nobody could tell */
    err = mill_models_sync(file->models);
    MILL_TRY(mill_mpi_agree(&file->io, err));
  }
  err = MILL_ALLOC(2 * n, &order);
  if (err == MILL_OK)
    err = MILL_ALLOC(n, &at);
  if (err == MILL_OK)
    err = mill_alloc_bytes((size_t)n, widest, (void **)&value);
  if (err == MILL_OK) {
    for (int64_t i = 0; i < n; i++) {
      order[2 * i] = q->at[i];
      order[2 * i + 1] = i;
    }
    qsort(order, (size_t)n, 2 * sizeof *order, by_row);
    for (int64_t i = 0; i < n; i++)
      at[i] = order[2 * i];
    err = mill_ph5_select(file->path, 1, file->n_row, 1, at, n, &scalar);
  }
  if (err == MILL_OK)
    err = seal_rows(file, q, order, value, &scalar);
  MILL_TRY(mill_mpi_agree(&file->io, err));
  for (int i = 0; i < columns->n_column; i++) {
    mill_ph5_rows vector = {H5I_INVALID_HID, H5I_INVALID_HID};
    const mill_column *c = &columns->column[i];
    if (i == columns->i_target || i == columns->i_crc || i == columns->i_status)
      continue;
    failed = MILL_OK;
    if (c->vector)
      failed = mill_ph5_select(file->path, 2, file->n_row, c->n_value, at, n, &vector);
    /* called also after that failed: the other ranks wait for this one in it */
    err = write_column(file, i, order, n, q->row, value, c->vector ? &vector : &scalar);
    mill_ph5_unselect(&vector);
    MILL_TRY(mill_mpi_agree(&file->io, failed == MILL_OK ? err : failed));
    set_busy(file, 1); /* slow is not the same as never */
  }
  err = write_column(file, columns->i_crc, order, n, q->row, value, &scalar);
  MILL_TRY(mill_mpi_agree(&file->io, err));
  err = write_column(file, columns->i_status, order, n, q->row, value, &scalar);
  MILL_TRY(mill_mpi_agree(&file->io, err));
done:
  mill_ph5_unselect(&scalar);
  mill_free(value);
  mill_free(at);
  mill_free(order);
  return err;
}

static void keep_failure(mill_result_file *file, int err)
{
  pthread_mutex_lock(&file->mutex);
  if (file->err == MILL_OK) {
    file->err = err;
    snprintf(file->message, sizeof file->message, "%s", mill_error_message());
  }
  pthread_cond_broadcast(&file->room);
  pthread_mutex_unlock(&file->mutex);
}

/* One epoch; *ends when all ranks are closing and nothing is left. */
static int run_epoch(mill_result_file *file, int *ends)
{
  int err = MILL_OK;
  enum { N_ROW, N_ITEM, N_OPEN, N_COUNT };
  int64_t mine[N_COUNT], all[N_COUNT];
  pthread_mutex_lock(&file->mutex);
  queue *q = file->filling;
  file->filling = file->writing;
  file->writing = q;
  const int is_closing = file->is_closing;
  pthread_cond_broadcast(&file->room);
  pthread_mutex_unlock(&file->mutex);
  mine[N_ROW] = q->n_row;
  mine[N_ITEM] = q->n_item;
  mine[N_OPEN] = !is_closing;
  file->announced_closing = is_closing;
  MILL_MPI(MPI_Allreduce(mine, all, N_COUNT, MPI_INT64_T, MPI_SUM, file->io.comm));
  if ((all[N_ROW] > 0 || all[N_ITEM] > 0) && file->err == MILL_OK) {
    const double start_s = mill_wall_s();
    pthread_mutex_lock(&file->hdf5);
    mill_range_begin(MILL_RANGE_WRITE);
    err = write_queue(file, q);
    mill_range_end();
    pthread_mutex_unlock(&file->hdf5);
    const double spent_s = mill_wall_s() - start_s;
    file->write_s += spent_s;
    if (spent_s > atomic_load(&file->longest_s))
      atomic_store(&file->longest_s, spent_s);
    if (err == MILL_OK)
      atomic_fetch_add(&file->n_done, all[N_ROW]);
    else if (err != MILL_ERR_MPI)
      keep_failure(file, err); /* the same on every rank: the epochs go on, without writing */
    if (err != MILL_ERR_MPI)
      err = MILL_OK;
  }
  *ends = all[N_OPEN] == 0;
done:
  q->n_row = 0;
  q->n_item = 0;
  q->n_pix = 0;
  return err;
}

/* Under the mutex: does this rank need an epoch? */
static int wants_epoch(const mill_result_file *file)
{
  const queue *q = file->filling;
  const int has_work = q->n_row > 0 || q->n_item > 0;
  return q->n_row >= EPOCH_ROWS || q->n_pix >= EPOCH_PIX || file->n_waiting > 0 ||
         (has_work && mill_wall_s() - q->first_s >= file->write_interval_s) ||
         (file->is_closing && (has_work || !file->announced_closing));
}

/* Show other hosts that the job is alive; a lock that was lost is told before the next write. */
static void keep_locks(mill_result_file *file)
{
  const int watch = mill_watch_begin(MILL_WATCH_FILE, 0, "%s: touching its lock", file->path);
  (void)mill_lock_keep(&file->lock);
  if (pthread_mutex_trylock(&file->hdf5) == 0) { /* else the models are just being opened */
    (void)mill_models_keep(file->models);
    pthread_mutex_unlock(&file->hdf5);
  }
  mill_watch_end(watch);
}

/* Wait until a single rank wants an epoch: nobody else is to be heard. */
static void await_own_epoch(mill_result_file *file)
{
  pthread_mutex_lock(&file->mutex);
  while (!wants_epoch(file)) {
    const queue *q = file->filling;
    const double beat_s = mill_wall_s() + MILL_LOCK_BEAT_S;
    double until_s = beat_s;
    if ((q->n_row > 0 || q->n_item > 0) && q->first_s + file->write_interval_s < beat_s)
      until_s = q->first_s + file->write_interval_s;
    const struct timespec until = mill_cond_time(until_s);
    pthread_cond_timedwait(&file->work, &file->mutex, &until);
    if (mill_wall_s() >= beat_s) {
      /* files are not touched under the mutex: it would hold up the fits */
      pthread_mutex_unlock(&file->mutex);
      keep_locks(file);
      pthread_mutex_lock(&file->mutex);
    }
  }
  pthread_mutex_unlock(&file->mutex);
}

/* Sleep between looks at MPI, of which each costs tens of microseconds; a rank that did not
   want an epoch is woken when it does. */
static void nap(mill_result_file *file, int has_wanted, long *us)
{
  const struct timespec until = mill_cond_time(mill_wall_s() + 1e-6 * (double)*us);
  pthread_mutex_lock(&file->mutex);
  if (has_wanted || !wants_epoch(file))
    pthread_cond_timedwait(&file->work, &file->mutex, &until);
  pthread_mutex_unlock(&file->mutex);
  *us = 2 * *us < POLL_MOST_US ? 2 * *us : POLL_MOST_US;
}

/* Wait until some rank wants an epoch.  Rank 0 decides: it hears the wishes of
   the others, which carry the number of the epoch so that late ones count for
   nothing, and starts a broadcast that all others wait for.  Nobody blocks in it. */
static int await_epoch(mill_result_file *file)
{
  int err = MILL_OK;
  int token = 1, started = 0, arrived = 0, has_told = 0, has_wanted = 0;
  long us = POLL_FIRST_US;
  int64_t wish = file->epoch;
  MPI_Request go = MPI_REQUEST_NULL, told = MPI_REQUEST_NULL;
  const int is_root = file->io.rank == 0;
  if (file->io.size == 1) {
    await_own_epoch(file);
    goto done;
  }
  if (!is_root) {
    MILL_MPI(MPI_Ibcast(&token, 1, MPI_INT, 0, file->io.comm, &go));
    started = 1;
  }
  while (!arrived) {
    pthread_mutex_lock(&file->mutex);
    int wants = wants_epoch(file);
    pthread_mutex_unlock(&file->mutex);
    int there = is_root;
    while (is_root && there) {
      int64_t heard = -1;
      MILL_MPI(MPI_Iprobe(MPI_ANY_SOURCE, TAG_WANT, file->io.comm, &there, MPI_STATUS_IGNORE));
      if (!there)
        break;
      MILL_MPI(MPI_Recv(&heard, 1, MPI_INT64_T, MPI_ANY_SOURCE, TAG_WANT, file->io.comm,
                        MPI_STATUS_IGNORE));
      file->n_want_taken++;
      wants |= heard == file->epoch;
    }
    if (wants && is_root && !started) {
      set_busy(file, 1);
      MILL_MPI(MPI_Ibcast(&token, 1, MPI_INT, 0, file->io.comm, &go));
      started = 1;
    } else if (wants && !is_root && !has_told) {
      set_busy(file, 1);
      MILL_MPI(MPI_Isend(&wish, 1, MPI_INT64_T, 0, TAG_WANT, file->io.comm, &told));
      file->n_want_sent++;
      has_told = 1;
    }
    if (started)
      MILL_MPI(MPI_Test(&go, &arrived, MPI_STATUS_IGNORE));
    if (arrived)
      break;
    if (wants && !has_wanted)
      us = POLL_FIRST_US;
    has_wanted |= wants;
    if (is_root)
      keep_locks(file);
    nap(file, has_wanted, &us);
  }
  /* eight bytes: MPI buffers them, or rank 0 takes them in the next wait or at the end */
  if (has_told) {
    int gone = 0;
    MILL_MPI(MPI_Test(&told, &gone, MPI_STATUS_IGNORE));
    if (!gone)
      MILL_MPI(MPI_Wait(&told, MPI_STATUS_IGNORE));
  }
done:
  return err;
}

/* Wishes still under way at the end are taken, so that MPI can be finalized. */
static int settle_wishes(mill_result_file *file)
{
  int err = MILL_OK;
  int64_t n_sent = 0;
  MILL_MPI(MPI_Reduce(&file->n_want_sent, &n_sent, 1, MPI_INT64_T, MPI_SUM, 0, file->io.comm));
  for (; file->io.rank == 0 && file->n_want_taken < n_sent; file->n_want_taken++) {
    int64_t heard;
    MILL_MPI(MPI_Recv(&heard, 1, MPI_INT64_T, MPI_ANY_SOURCE, TAG_WANT, file->io.comm,
                      MPI_STATUS_IGNORE));
  }
done:
  return err;
}

static void *write_epochs(void *context)
{
  mill_result_file *file = context;
  int err = MILL_OK, ends = 0;
  mill_nvtx_name_thread("I/O");
  pthread_mutex_lock(&file->mutex);
  while (file->may_start == 0)
    pthread_cond_wait(&file->work, &file->mutex);
  ends = file->may_start < 0;
  pthread_mutex_unlock(&file->mutex);
  if (ends)
    return NULL;
  while (!ends) {
    MILL_TRY(await_epoch(file));
    set_busy(file, 1);
    MILL_TRY(run_epoch(file, &ends));
    set_busy(file, 0);
    file->epoch++;
  }
  set_busy(file, 1);
  MILL_TRY(settle_wishes(file));
  set_busy(file, 0);
  file->io_cpu_s = mill_thread_cpu_s();
done:
  if (err != MILL_OK) {
    /* ranks that cannot talk to each other cannot agree on anything any more */
    mill_log_error("%s: %s: the job is aborted; the same command continues it", file->path,
                   mill_error_message());
    MPI_Abort(file->io.comm, mill_error_exit_status(err));
  }
  return NULL;
}

/* ---- open ---- */

static int dup_comm(MPI_Comm from, mill_mpi *to)
{
  int err = MILL_OK;
  MILL_MPI(MPI_Comm_dup(from, &to->comm));
  MILL_MPI(MPI_Comm_set_errhandler(to->comm, MPI_ERRORS_RETURN));
  MILL_MPI(MPI_Comm_rank(to->comm, &to->rank));
  MILL_MPI(MPI_Comm_size(to->comm, &to->size));
done:
  return err;
}

/* Where each file's exposures begin among all.  Collective.  Every file must be one
   rank's and its rows must follow those of the file before. */
static int number_exposures(const mill_run_info *info, const mill_mpi *mpi, int64_t *first,
                            int64_t *n_exposure)
{
  int err = MILL_OK;
  int64_t next_row = 0;
  int *n_owner = NULL;
  MILL_TRY(mill_mpi_agree(mpi, MILL_ALLOC(info->n_file, &n_owner)));
  for (int i = info->file_start; i < info->file_end && err == MILL_OK; i++) {
    const mill_file_index *index = &info->index[i - info->file_start];
    first[i] = index->n_exposure;
    n_owner[i] = 1;
    if (index->n_row != info->file[i].n_row)
      err = mill_error_set(MILL_ERR_INTERNAL, __FILE__, __LINE__,
                           "%s: indexed %lld rows, catalogued %lld", info->file[i].path,
                           (long long)index->n_row, (long long)info->file[i].n_row);
  }
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_MPI(MPI_Allreduce(MPI_IN_PLACE, first, info->n_file, MPI_INT64_T, MPI_SUM, mpi->comm));
  MILL_MPI(MPI_Allreduce(MPI_IN_PLACE, n_owner, info->n_file, MPI_INT, MPI_SUM, mpi->comm));
  *n_exposure = 0;
  for (int i = 0; i < info->n_file; i++) {
    const int64_t n = first[i];
    first[i] = *n_exposure;
    *n_exposure += n;
    if (info->file[i].row_start != next_row || n_owner[i] != 1)
      MILL_FAIL(MILL_ERR_INTERNAL, "%s: rows begin at %lld instead of %lld, indexed by %d ranks",
                info->file[i].path, (long long)info->file[i].row_start, (long long)next_row,
                n_owner[i]);
    next_row += info->file[i].n_row;
  }
  if (next_row != info->n_row)
    MILL_FAIL(MILL_ERR_INTERNAL, "the inputs have %lld rows, catalogued %lld", (long long)next_row,
              (long long)info->n_row);
done:
  mill_free(n_owner);
  return err;
}

/* Rank 0: does --overwrite find what an earlier start of this very job has begun?  A requeued
   script that has the option would else begin anew for ever. */
static int is_own_work(const mill_result_file *file, const mill_run_info *info)
{
  char job[96], made_by[96] = "";
  int found = MILL_FOUND_NOTHING;
  mill_result_summary summary;
  if (mill_lock_restart() == 0 || mill_h5_probe(MILL_PROBE_RESULT, file->path) != MILL_OK ||
      mill_result_layout_inspect(file->path, info, 0, &file->columns, &found, &summary) !=
          MILL_OK ||
      found == MILL_FOUND_NOTHING ||
      mill_result_layout_job(file->path, made_by, sizeof made_by) != MILL_OK)
    return 0;
  mill_lock_job(job, sizeof job);
  return strcmp(job, made_by) == 0;
}

/* Rank 0: see what is there and take the lock, unless nothing is to be done. */
static int claim(mill_result_file *file, const mill_run_info *info, int overwrite, int retry_failed,
                 int *found)
{
  int err = MILL_OK;
  mill_result_summary summary;
  *found = MILL_FOUND_NOTHING;
  if (overwrite && is_own_work(file, info)) {
    mill_log_info("%s: an earlier start of this Slurm job has begun it: it is continued, "
                  "--overwrite has been done",
                  file->path);
    overwrite = 0;
  } else if (!overwrite) {
    MILL_TRY(mill_h5_probe(MILL_PROBE_RESULT, file->path));
  }
  for (int locked = 0; locked < 2; locked++) {
    /* looked at again under the lock: another job may have worked on it meanwhile */
    if (!overwrite) {
      MILL_TRY(mill_result_layout_inspect(file->path, info, retry_failed, &file->columns, found,
                                          &summary));
      const int64_t n_failed = info->n_row - summary.n_status[MILL_STATUS_NOT_DONE] -
                               summary.n_status[MILL_STATUS_FITTED];
      if (*found == MILL_FOUND_FINISHED && retry_failed && n_failed > 0)
        *found = MILL_FOUND_UNFINISHED;
      file->found = summary;
      if (*found == MILL_FOUND_FINISHED)
        break;
    }
    if (!locked)
      MILL_TRY(mill_lock_take(file->path, &file->lock));
  }
  if (*found == MILL_FOUND_FINISHED)
    mill_lock_release(&file->lock);
  else
    mill_lock_remove_leftovers(&file->lock, file->path);
done:
  return err;
}

/* Collective: make the file and give it its name.  watch: of the watchdog, for all of it. */
static int create(mill_result_file *file, const mill_run_info *info, const int64_t *first_exposure,
                  int watch)
{
  int err = MILL_OK;
  char path[MILL_MAX_PATH] = "", job[96];
  const mill_mpi *mpi = &file->mpi;
  if (mpi->rank == 0) {
    mill_lock_job(job, sizeof job);
    snprintf(path, sizeof path, "%.*s.tmp-%s", (int)sizeof path - 128, file->path, job);
    err = mill_result_layout_create(path, info, &file->columns, file->n_exposure, mpi->size);
  }
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_MPI(MPI_Bcast(path, sizeof path, MPI_CHAR, 0, mpi->comm));
  err = mill_ph5_open(path, H5F_ACC_RDWR, mpi->comm, &file->file);
  MILL_TRY(mill_mpi_agree(mpi, err));
  err = mill_result_layout_catalog(file->file, path, info, mpi, first_exposure, file->n_exposure,
                                   watch);
  MILL_TRY(mill_mpi_agree(mpi, err));
  err = mill_ph5_close(path, &file->file);
  MILL_TRY(mill_mpi_agree(mpi, err));
  err = mpi->rank == 0 ? mill_ph5_rename(path, file->path) : MILL_OK;
  MILL_TRY(mill_mpi_agree(mpi, err));
done:
  mill_ph5_drop(&file->file, file->mpi.size);
  if (err != MILL_OK && mpi->rank == 0 && path[0])
    unlink(path);
  return err;
}

static int open_columns(mill_result_file *file)
{
  int err = MILL_OK;
  MILL_TRY(mill_ph5_open(file->path, H5F_ACC_RDWR, file->mpi.comm, &file->file));
  if (file->mpi.rank == 0)
    MILL_TRY(mill_ph5_hold(file->path, &file->held));
  for (int i = 0; i < file->columns.n_column; i++) {
    const mill_column *c = &file->columns.column[i];
    char name[64];
    snprintf(name, sizeof name, "fits/%s", c->name);
    MILL_TRY(mill_ph5_open_dataset(file->file, file->path, name, mill_ph5_file_type(c->type),
                                   c->vector ? 2 : 1, file->n_row, c->n_value, &file->dataset[i]));
  }
done:
  return err;
}

/* Collective: all ranks have their threads or none. */
static int start_threads(mill_result_file *file)
{
  int err = MILL_OK;
  const int rc = mill_thread_start(&file->io_thread, write_epochs, file);
  file->has_io_thread = rc == 0;
  if (rc != 0)
    err = mill_error_set(MILL_ERR_INTERNAL, __FILE__, __LINE__, "no thread for writing: %s",
                         strerror(rc));
  err = mill_mpi_agree(&file->mpi, err);
  pthread_mutex_lock(&file->mutex);
  file->may_start = err == MILL_OK ? 1 : -1;
  pthread_cond_signal(&file->work);
  pthread_mutex_unlock(&file->mutex);
  if (err != MILL_OK && file->has_io_thread)
    pthread_join(file->io_thread, NULL);
  return err;
}

static void destroy(mill_result_file *file)
{
  if (!file)
    return;
  set_busy(file, 1); /* removing the lock may take long as well */
  for (int i = 0; i < 2; i++) {
    free(file->both[i].row);
    free(file->both[i].at);
    free(file->both[i].item);
    free(file->both[i].pool);
  }
  mill_lock_release(&file->lock);
  if (file->held >= 0)
    close(file->held);
  set_busy(file, 0);
  pthread_mutex_destroy(&file->mutex);
  pthread_mutex_destroy(&file->hdf5);
  pthread_cond_destroy(&file->room);
  pthread_cond_destroy(&file->work);
  if (file->mpi.comm != MPI_COMM_NULL)
    MPI_Comm_free(&file->mpi.comm);
  if (file->io.comm != MPI_COMM_NULL)
    MPI_Comm_free(&file->io.comm);
  mill_free(file->wanted);
  mill_free(file);
}

static int prepare(const char *path, const mill_run_info *info, MPI_Comm comm,
                   mill_result_file **out)
{
  int err = MILL_OK;
  int level = MPI_THREAD_SINGLE;
  mill_result_file *file = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &file));
  file->mpi.comm = file->io.comm = MPI_COMM_NULL;
  file->file = H5I_INVALID_HID;
  file->held = -1;
  for (int i = 0; i < MILL_MAX_COLUMN; i++)
    file->dataset[i] = H5I_INVALID_HID;
  file->filling = &file->both[0];
  file->writing = &file->both[1];
  file->start_s = mill_wall_s();
  file->write_interval_s = info->write_interval_s;
  file->watch = -1;
  file->n_row = info->n_row;
  file->n_label = info->lib->n_label;
  file->n_arm = info->lib->n_arm;
  for (int a = 0; a < file->n_arm; a++)
    memcpy(file->arm_name[a], info->lib->arm[a].name, MILL_MAX_NAME);
  if (pthread_mutex_init(&file->mutex, NULL) != 0 || pthread_mutex_init(&file->hdf5, NULL) != 0 ||
      mill_cond_init(&file->room) != 0 || mill_cond_init(&file->work) != 0) {
    mill_free(file);
    file = NULL;
    MILL_FAIL(MILL_ERR_INTERNAL, "no locks for the I/O thread");
  }
  *out = file;
  MILL_TRY(dup_comm(comm, &file->mpi));
  MILL_TRY(dup_comm(comm, &file->io));
  if (strlen(path) + 128 > sizeof file->path)
    MILL_FAIL(MILL_ERR_OUTPUT, "the path of the output is too long: %s", path);
  memcpy(file->path, path, strlen(path) + 1);
  MILL_MPI(MPI_Query_thread(&level));
  if (level < MPI_THREAD_MULTIPLE)
    MILL_FAIL(MILL_ERR_MPI, "MPI must be initialised with MPI_THREAD_MULTIPLE");
  MILL_TRY(mill_columns_fits(info->lib, info->lib->path, &file->columns));
  MILL_TRY(mill_alloc_bytes((size_t)info->n_row / 8 + 1, 1, (void **)&file->wanted));
done:
  return err;
}

int mill_result_open(const char *path, int overwrite, int retry_failed, const mill_run_info *info,
                     MPI_Comm comm, mill_result_file **out, int *outcome)
{
  int err = MILL_OK;
  mill_result_file *file = NULL;
  mill_mpi outer = {.comm = comm, .stop_comm = MPI_COMM_NULL};
  mill_lock_keeper *keeper = NULL;
  int64_t *first_exposure = NULL;
  int watch = -1;
  const uint8_t not_finished = 0;
  int found = MILL_FOUND_NOTHING;
  char end[MILL_MAX_PATH] = "";
  *out = NULL;
  *outcome = MILL_OPEN_NEW;
  MILL_MPI(MPI_Comm_rank(comm, &outer.rank));
  MILL_MPI(MPI_Comm_size(comm, &outer.size));
  MILL_TRY(mill_resolve_links_for_all(&outer, path, end, sizeof end));
  path = end;
  err = prepare(path, info, comm, &file);
  if (err == MILL_OK)
    err = MILL_ALLOC(info->n_file, &first_exposure);
  MILL_TRY(mill_mpi_agree(&outer, err));
  MILL_TRY(number_exposures(info, &file->mpi, first_exposure, &file->n_exposure));
  watch = mill_watch_begin(MILL_WATCH_START, 2 * ROW_S * (double)info->n_row,
                           "%s: opening the output", path);
  err = outer.rank == 0 ? claim(file, info, overwrite, retry_failed, &found) : MILL_OK;
  MILL_TRY(mill_mpi_agree(&file->mpi, err));
  mill_watch_again(watch);
  MILL_MPI(MPI_Bcast(&found, 1, MPI_INT, 0, file->mpi.comm));
  if (found == MILL_FOUND_FINISHED) {
    MILL_MPI(MPI_Bcast(&file->found, sizeof file->found, MPI_BYTE, 0, file->mpi.comm));
    file->is_finished = 1;
    atomic_store(&file->n_done, file->n_row);
    *outcome = MILL_OPEN_FINISHED;
    *out = file;
    file = NULL;
    goto done;
  }
  /* a large file takes a while, and to other hosts the lock must not look left behind */
  MILL_TRY(mill_mpi_agree(&file->mpi, mill_lock_keeper_start(&file->lock, &keeper)));
  if (found == MILL_FOUND_NOTHING)
    MILL_TRY(create(file, info, first_exposure, watch));
  mill_watch_again(watch);
  err = open_columns(file);
  MILL_TRY(mill_mpi_agree(&file->mpi, err));
  if (found == MILL_FOUND_NOTHING) {
    for (int64_t i = 0; i < file->n_row; i++)
      set_bit(file->wanted, i, 1);
  } else {
    *outcome = MILL_OPEN_CONTINUE;
    /* a finished file whose failed rows are tried again is unfinished meanwhile */
    err = outer.rank == 0 ? mill_ph5_write_whole(file->file, file->path, "provenance/FINISHED",
                                                 H5T_NATIVE_UINT8, &not_finished)
                          : MILL_OK;
    /* before the first of their rows is fitted: done rows are of the files that are recorded */
    if (err == MILL_OK && outer.rank == 0 && retry_failed)
      err = mill_result_note_repaired(file->file, file->path, info);
    MILL_TRY(mill_mpi_agree(&file->mpi, err));
    MILL_TRY(learn_wanted(file, retry_failed));
  }
  mill_lock_keeper_stop(keeper);
  keeper = NULL;
  MILL_TRY(mill_mpi_agree(&file->mpi, mill_lock_keep(&file->lock)));
  MILL_TRY(start_threads(file));
  *out = file;
  file = NULL;
done:
  mill_lock_keeper_stop(keeper);
  mill_watch_end(watch);
  mill_free(first_exposure);
  if (file) {
    for (int i = 0; i < MILL_MAX_COLUMN; i++)
      if (file->dataset[i] >= 0)
        H5Dclose(file->dataset[i]);
    mill_ph5_drop(&file->file, file->mpi.size);
    destroy(file);
  }
  return err;
}

int mill_result_open_models(mill_result_file *file, const char *path, int overwrite,
                            const double *const *wave_aa, const int *n_pix)
{
  int err = MILL_OK;
  int watch = -1;
  double n_byte = 0;
  char run_id[MILL_RUN_ID_SIZE] = "";
  mill_models_info info;
  memset(&info, 0, sizeof info);
  info.run_id = run_id;
  info.result = file->file;
  info.result_path = file->path;
  info.columns = &file->columns;
  info.n_row = file->n_row;
  info.n_exposure = file->n_exposure;
  info.n_done = atomic_load(&file->n_done);
  info.n_arm = file->n_arm;
  for (int a = 0; a < file->n_arm; a++) {
    info.arm_name[a] = file->arm_name[a];
    info.wave_aa[a] = wave_aa[a];
    info.n_pix[a] = n_pix[a];
    n_byte += (wave_aa[a] ? 4.0 : 12.0) * n_pix[a] * (double)file->n_exposure;
  }
  watch = mill_watch_begin(MILL_WATCH_START, 1e-7 * n_byte, "%s: opening the models", path);
  /* the I/O thread has nothing to write yet: epochs begin after the first put */
  pthread_mutex_lock(&file->hdf5);
  err = mill_ph5_read_attr_text(file->file, file->path, "provenance", "RUN_ID", run_id,
                                sizeof run_id);
  if (err == MILL_OK && info.n_done > 0 && file->mpi.rank == 0)
    err = mill_result_layout_check_modelled(file->file, file->path, path);
  MILL_TRY(mill_mpi_agree(&file->mpi, err));
  /* the models of a result that is continued belong to it, whatever was to be overwritten */
  MILL_TRY(mill_models_open(path, overwrite && info.n_done == 0, &info, &file->mpi, &file->models));
  if (info.n_done > 0)
    MILL_TRY(learn_unmodelled(file, &info, watch));
done:
  pthread_mutex_unlock(&file->hdf5);
  mill_watch_end(watch);
  return err;
}

/* ---- rows ---- */

int mill_result_wanted(const mill_result_file *file, int64_t row)
{
  if (row < 0 || row >= file->n_row)
    return 0;
  /* the mutex is no part of what the caller sees as constant */
  pthread_mutex_t *mutex = (pthread_mutex_t *)&file->mutex;
  pthread_mutex_lock(mutex);
  const int wanted = bit(file->wanted, row);
  pthread_mutex_unlock(mutex);
  return wanted;
}

void mill_result_wanted_bits(const mill_result_file *file, uint8_t *bits)
{
  pthread_mutex_t *mutex = (pthread_mutex_t *)&file->mutex;
  pthread_mutex_lock(mutex);
  memcpy(bits, file->wanted, (size_t)file->n_row / 8 + 1);
  pthread_mutex_unlock(mutex);
}

/* Room for n_need elements of size bytes; memory grows to what one epoch needs. */
static int grow(void **p, int64_t *n_room, int64_t n_need, size_t size)
{
  int err = MILL_OK;
  if (n_need <= *n_room)
    goto done;
  const int64_t n = n_need < 2 * *n_room ? 2 * *n_room : n_need < 64 ? 64 : n_need;
  void *more = realloc(*p, (size_t)n * size);
  if (!more)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory for %lld elements of %zu bytes that wait to be written",
              (long long)n, size);
  *p = more;
  *n_room = n;
done:
  return err;
}

/* Under the mutex: wait until the queue has room or writing has failed. */
static int await_room(mill_result_file *file)
{
  int err = MILL_OK;
  file->n_waiting++;
  while (file->err == MILL_OK &&
         (file->filling->n_row >= QUEUE_ROWS || file->filling->n_pix >= QUEUE_PIX)) {
    pthread_cond_signal(&file->work);
    pthread_cond_wait(&file->room, &file->mutex);
  }
  file->n_waiting--;
  if (file->err != MILL_OK)
    MILL_FAIL(file->err, "%s", file->message);
done:
  return err;
}

int mill_result_put(mill_result_file *file, const mill_fit_result *result)
{
  int err = MILL_OK;
  pthread_mutex_lock(&file->mutex);
  if (file->is_finished || file->is_closing || result->row < 0 || result->row >= file->n_row ||
      result->n_label != file->n_label || result->status <= MILL_STATUS_NOT_DONE ||
      result->status >= MILL_N_STATUS)
    MILL_FAIL(MILL_ERR_INTERNAL,
              "%s: a result that cannot be: row %lld of %lld, STATUS %d, %d labels", file->path,
              (long long)result->row, (long long)file->n_row, result->status, result->n_label);
  if (file->filling->n_row >= QUEUE_ROWS || file->err != MILL_OK)
    MILL_TRY(await_room(file));
  if (!bit(file->wanted, result->row))
    MILL_FAIL(MILL_ERR_INTERNAL, "%s: row %lld was already done", file->path,
              (long long)result->row);
  queue *q = file->filling;
  int64_t n_room = q->n_row_room;
  MILL_TRY(grow((void **)&q->row, &n_room, q->n_row + 1, file->columns.row_size));
  MILL_TRY(grow((void **)&q->at, &q->n_row_room, q->n_row + 1, sizeof *q->at));
  if (q->n_row == 0 && q->n_item == 0)
    q->first_s = mill_wall_s();
  char *row = q->row + (size_t)q->n_row * file->columns.row_size;
  memset(row, 0, file->columns.row_size);
  mill_columns_pack(&file->columns, result, row);
  q->at[q->n_row++] = result->row;
  set_bit(file->wanted, result->row, 0);
  /* the first row starts the clock */
  if ((q->n_row == 1 && q->n_item == 0) || q->n_row == EPOCH_ROWS)
    pthread_cond_signal(&file->work);
done:
  pthread_mutex_unlock(&file->mutex);
  return err;
}

int mill_result_put_model(mill_result_file *file, int arm, int64_t model_row, const float *flux,
                          const double *wave_aa, int n_pix)
{
  int err = MILL_OK;
  /* wavelengths wait behind the flux, each in the room of two pixels */
  const size_t n_wave = wave_aa ? 2 * (size_t)n_pix : 0;
  pthread_mutex_lock(&file->mutex);
  if (!file->models || file->is_closing || model_row < 0 ||
      model_row >= mill_models_n_row(file->models) || n_pix <= 0 ||
      n_pix != mill_models_n_pix(file->models, arm) ||
      (wave_aa != NULL) != mill_models_has_own_waves(file->models, arm))
    MILL_FAIL(MILL_ERR_INTERNAL, "%s: a model that cannot be: arm %d, row %lld, %d pixels",
              file->path, arm, (long long)model_row, n_pix);
  if (file->filling->n_pix >= QUEUE_PIX || file->err != MILL_OK)
    MILL_TRY(await_room(file));
  queue *q = file->filling;
  int64_t n_room = (int64_t)q->n_pix_room;
  MILL_TRY(grow((void **)&q->pool, &n_room, (int64_t)(q->n_pix + n_wave) + n_pix, sizeof *q->pool));
  q->n_pix_room = (size_t)n_room;
  MILL_TRY(grow((void **)&q->item, &q->n_item_room, q->n_item + 1, sizeof *q->item));
  if (q->n_row == 0 && q->n_item == 0)
    q->first_s = mill_wall_s();
  memcpy(q->pool + q->n_pix, flux, (size_t)n_pix * sizeof *flux);
  q->item[q->n_item++] = (mill_model_item){.row = model_row, .at = q->n_pix, .arm = arm};
  q->n_pix += (size_t)n_pix;
  if (wave_aa)
    memcpy(q->pool + q->n_pix, wave_aa, (size_t)n_pix * sizeof *wave_aa);
  q->n_pix += n_wave;
  if ((q->n_item == 1 && q->n_row == 0) || q->n_pix >= EPOCH_PIX)
    pthread_cond_signal(&file->work);
done:
  pthread_mutex_unlock(&file->mutex);
  return err;
}

int64_t mill_result_n_done(const mill_result_file *file)
{
  return atomic_load(&file->n_done);
}

double mill_result_longest_write_s(const mill_result_file *file)
{
  return atomic_load(&file->longest_s);
}

/* ---- close ---- */

/* Rank 0, the rows being on disk: say what this run did; FINISHED is the caller's. */
static int write_end(mill_result_file *file)
{
  int err = MILL_OK;
  char now[MILL_TIME_SIZE];
  int32_t n_run = 0;
  double wall_s = 0;
  hid_t dataset = H5I_INVALID_HID;
  const hid_t text = mill_ph5_text_type(MILL_TIME_SIZE - 1);
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  mill_result_layout_time(now);
  MILL_TRY(mill_ph5_select_range(file->path, 1, 1, 1, 0, 1, &rows));
  MILL_TRY(mill_ph5_open_dataset(file->file, file->path, "provenance/N_RUN", H5T_STD_I32LE, 1, 1, 1,
                                 &dataset));
  MILL_TRY(mill_ph5_read(dataset, file->path, "provenance/N_RUN", H5T_NATIVE_INT32, &rows, &n_run));
  H5Dclose(dataset);
  MILL_TRY(mill_ph5_open_dataset(file->file, file->path, "provenance/WALL_S", H5T_IEEE_F64LE, 1, 1,
                                 1, &dataset));
  MILL_TRY(
      mill_ph5_read(dataset, file->path, "provenance/WALL_S", H5T_NATIVE_DOUBLE, &rows, &wall_s));
  n_run++;
  wall_s += mill_wall_s() - file->start_s;
  MILL_TRY(
      mill_ph5_write_whole(file->file, file->path, "provenance/N_RUN", H5T_NATIVE_INT32, &n_run));
  MILL_TRY(mill_ph5_write_whole(file->file, file->path, "provenance/WALL_S", H5T_NATIVE_DOUBLE,
                                &wall_s));
  MILL_TRY(mill_ph5_write_whole(file->file, file->path, "provenance/END_TIME", text, now));
done:
  mill_ph5_unselect(&rows);
  if (text >= 0)
    H5Tclose(text);
  if (dataset >= 0)
    H5Dclose(dataset);
  return err;
}

/* Collective: rows reach the disk before the marker that says so. */
static int finish(mill_result_file *file, mill_result_summary *summary)
{
  int err = MILL_OK;
  const uint8_t finished = 1;
  int64_t n_done = 0;
  const int64_t lo = file->n_row * file->mpi.rank / file->mpi.size;
  const int64_t hi = file->n_row * (file->mpi.rank + 1) / file->mpi.size;
  err = H5Fflush(file->file, H5F_SCOPE_GLOBAL) < 0
            ? mill_error_set(MILL_ERR_OUTPUT, __FILE__, __LINE__, "%s: cannot be flushed: %s",
                             file->path, mill_h5_reason())
            : MILL_OK;
  if (err == MILL_OK)
    err = mill_result_layout_count(file->file, file->path, file->n_row, lo, hi - lo, summary);
  MILL_TRY(mill_mpi_agree(&file->mpi, err));
  MILL_MPI(MPI_Allreduce(MPI_IN_PLACE, summary->n_status, MILL_N_STATUS, MPI_INT64_T, MPI_SUM,
                         file->mpi.comm));
  MILL_MPI(
      MPI_Allreduce(MPI_IN_PLACE, &summary->n_warned, 1, MPI_INT64_T, MPI_SUM, file->mpi.comm));
  for (int i = MILL_STATUS_FITTED; i < MILL_N_STATUS; i++)
    n_done += summary->n_status[i];
  if (file->mpi.rank == 0)
    err = write_end(file);
  /* both what the file says and what was written in this run and checked in others */
  if (file->mpi.rank == 0 && err == MILL_OK && n_done == file->n_row &&
      atomic_load(&file->n_done) == file->n_row)
    err = mill_ph5_write_whole(file->file, file->path, "provenance/FINISHED", H5T_NATIVE_UINT8,
                               &finished);
  MILL_TRY(mill_mpi_agree(&file->mpi, err));
done:
  return err;
}

int mill_result_close(mill_result_file *file, mill_result_summary *summary)
{
  int err = MILL_OK, failed = MILL_OK;
  mill_result_summary counts;
  memset(&counts, 0, sizeof counts);
  if (!file)
    return MILL_OK;
  if (file->is_finished) {
    counts = file->found;
    goto done;
  }
  pthread_mutex_lock(&file->mutex);
  file->is_closing = 1;
  pthread_cond_signal(&file->work);
  pthread_mutex_unlock(&file->mutex);
  pthread_join(file->io_thread, NULL);
  /* the only thread now */
  set_busy(file, 1);
  err = file->err == MILL_OK ? MILL_OK
                             : mill_error_set(file->err, __FILE__, __LINE__, "%s", file->message);
  failed = mill_models_close(file->models, file->err != MILL_OK ? file->mpi.size : 0);
  if (file->err != MILL_OK) /* the first failure is the one to tell */
    mill_error_set(file->err, __FILE__, __LINE__, "%s", file->message);
  err = mill_mpi_agree(&file->mpi, err == MILL_OK ? failed : err);
  set_busy(file, 1); /* each of these steps may take long */
  /* models are on disk before their rows are declared finished */
  if (err == MILL_OK)
    err = finish(file, &counts);
  set_busy(file, 1);
  for (int i = 0; i < file->columns.n_column; i++)
    H5Dclose(file->dataset[i]);
  /* the first failure is the one to tell */
  if (err == MILL_OK)
    err = mill_ph5_close(file->path, &file->file);
  else
    mill_ph5_drop(&file->file, file->mpi.size);
  if (err == MILL_OK)
    err = mill_ph5_still_there(file->path, file->held);
  err = mill_mpi_agree(&file->mpi, err);
done:
  counts.wall_s = mill_wall_s() - file->start_s;
  counts.io_cpu_s = file->io_cpu_s;
  counts.write_s = file->write_s;
  if (summary)
    *summary = counts;
  destroy(file);
  return err;
}
