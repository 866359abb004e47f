#include "jobs/reader.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "kernels/error.h"

struct mill_reader {
  mill_reader_plan plan;
  pthread_t thread;
  int started;
  /* guarded by mutex */
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  mill_batch *ready[MILL_READER_BATCHES]; /* oldest first */
  int n_ready;
  mill_batch *idle[MILL_READER_BATCHES];
  int n_idle;
  int stop, ended;
  int failure; /* of the thread, with its message */
  char message[1024];
  /* the thread's own */
  mill_desi_file *desi;
  mill_file_index index;
  mill_reader_file *file;
  int i_file;           /* open, or failed to open; -1: none yet */
  char file_error[512]; /* why it cannot be used; empty: it can */
  int64_t wanted[MILL_WORK_ROWS];
  int64_t *fits_row; /* of a batch's exposures */
  size_t n_fits_row; /* allocated */
};

int mill_reader_needs_matrix(const mill_library *lib, const mill_config *config, int arm)
{
  return lib->arm[arm].template_sigma_aa >= 0 && config->fit.resolution != MILL_RES_NONE;
}

static void file_drop(mill_reader *reader, mill_reader_file *file)
{
  if (!file)
    return;
  pthread_mutex_lock(&reader->mutex);
  const int n_holder = --file->n_holder;
  pthread_mutex_unlock(&reader->mutex);
  if (n_holder > 0)
    return;
  for (int a = 0; a < MILL_MAX_ARM; a++)
    mill_free(file->arm[a].wave_aa);
  mill_free(file);
}

static void close_file(mill_reader *reader)
{
  mill_desi_close(reader->desi);
  reader->desi = NULL;
  mill_file_index_clear(&reader->index);
  memset(&reader->index, 0, sizeof reader->index);
  file_drop(reader, reader->file);
  reader->file = NULL;
}

/* The rows of /fits were counted from what the file held at indexing. */
static int check_unchanged(const mill_input_file *then, const mill_file_index *now)
{
  int err = MILL_OK;
  if (then->n_row != now->n_row || then->size != now->file_size || then->mtime != now->file_mtime)
    MILL_FAIL(MILL_ERR_INPUT, "%s changed while the job was running: run it again on the new file",
              then->path);
done:
  return err;
}

static int describe_arms(mill_reader *reader)
{
  int err = MILL_OK;
  const mill_reader_plan *plan = &reader->plan;
  mill_reader_file *file = NULL;
  MILL_TRY(MILL_ALLOC(1, &file));
  file->i_file = reader->i_file;
  file->n_holder = 1;
  for (int a = 0; a < plan->lib->n_arm; a++) {
    const mill_desi_arm *info = mill_desi_arm_info(reader->desi, a);
    if (!plan->arm_wanted[a] || info->n_pix == 0) {
      file->arm[a].use = MILL_ARM_ABSENT;
      continue;
    }
    const int needs_matrix = mill_reader_needs_matrix(plan->lib, plan->config, a);
    file->arm[a].use = needs_matrix && info->n_diag == 0 ? MILL_ARM_NO_MATRIX : MILL_ARM_READ;
    file->arm[a].n_pix = info->n_pix;
    file->arm[a].n_diag = needs_matrix ? info->n_diag : 0;
    MILL_TRY(MILL_ALLOC(info->n_pix, &file->arm[a].wave_aa));
    memcpy(file->arm[a].wave_aa, info->wave_aa, (size_t)info->n_pix * sizeof(double));
  }
  reader->file = file;
  file = NULL;
done:
  file_drop(reader, file);
  return err;
}

/* Make file i the open one.  A file that cannot be used is no failure of the
 * reader: file_error says why. */
static int open_file(mill_reader *reader, int i)
{
  int err = MILL_OK;
  const mill_reader_plan *plan = &reader->plan;
  const mill_input_file *entry = &plan->file[i];
  if (reader->i_file == i)
    goto done;
  close_file(reader);
  reader->i_file = i;
  reader->file_error[0] = '\0';
  err = mill_desi_open(entry->path, plan->lib, &plan->limits, &reader->desi);
  if (err == MILL_OK)
    err = mill_desi_index(reader->desi, &plan->config->select, &reader->index);
  if (err == MILL_OK)
    err = check_unchanged(entry, &reader->index);
  if (err == MILL_OK)
    err = describe_arms(reader);
  if (err == MILL_ERR_INPUT || err == MILL_ERR_RANGE) {
    close_file(reader);
    snprintf(reader->file_error, sizeof reader->file_error, "%s", mill_error_message());
    err = MILL_OK;
  }
done:
  return err;
}

/* Wait for an idle batch; NULL when the reader is to stop. */
static mill_batch *take_idle(mill_reader *reader)
{
  mill_batch *batch = NULL;
  pthread_mutex_lock(&reader->mutex);
  while (reader->n_idle == 0 && !reader->stop)
    pthread_cond_wait(&reader->changed, &reader->mutex);
  if (!reader->stop)
    batch = reader->idle[--reader->n_idle];
  pthread_mutex_unlock(&reader->mutex);
  return batch;
}

static void hand_over(mill_reader *reader, mill_batch *batch)
{
  pthread_mutex_lock(&reader->mutex);
  if (batch->file)
    batch->file->n_holder++;
  reader->ready[reader->n_ready++] = batch;
  pthread_cond_broadcast(&reader->changed);
  pthread_mutex_unlock(&reader->mutex);
}

static int grow(size_t n_needed, size_t size, size_t *n_held, void **buffer)
{
  int err = MILL_OK;
  if (n_needed <= *n_held)
    goto done;
  mill_free(*buffer);
  *n_held = 0;
  MILL_TRY(mill_alloc_bytes(n_needed, size, buffer));
  *n_held = n_needed;
done:
  return err;
}

/* Point the batch's blocks at buffers for n exposures. */
static int prepare_blocks(mill_reader *reader, mill_batch *batch, int n)
{
  int err = MILL_OK;
  for (int a = 0; a < reader->plan.lib->n_arm; a++) {
    struct mill_batch_store *store = &batch->store[a];
    const size_t n_pix = (size_t)reader->file->arm[a].n_pix;
    const size_t n_diag = (size_t)reader->file->arm[a].n_diag;
    batch->block[a] = (mill_desi_block){0};
    if (reader->file->arm[a].use != MILL_ARM_READ)
      continue;
    size_t n_ivar = store->n_flux;
    MILL_TRY(grow((size_t)n * n_pix, sizeof(float), &n_ivar, (void **)&store->ivar));
    MILL_TRY(grow((size_t)n * n_pix, sizeof(float), &store->n_flux, (void **)&store->flux));
    batch->block[a].flux = store->flux;
    batch->block[a].ivar = store->ivar;
    if (mill_desi_arm_info(reader->desi, a)->has_mask) {
      MILL_TRY(grow((size_t)n * n_pix, sizeof(int32_t), &store->n_mask, (void **)&store->mask));
      batch->block[a].mask = store->mask;
    }
    if (n_diag > 0) {
      MILL_TRY(grow((size_t)n * n_diag * n_pix, sizeof(float), &store->n_resolution,
                    (void **)&store->resolution));
      batch->block[a].resolution = store->resolution;
    }
  }
done:
  return err;
}

static void add_row(mill_reader *reader, mill_batch *batch, int64_t row_in_file)
{
  const mill_input_file *entry = &reader->plan.file[reader->i_file];
  mill_reader_row *row = &batch->row[batch->n_row++];
  *row = (mill_reader_row){.row = entry->row_start + row_in_file, .model_row = -1};
  if (!reader->file)
    return;
  const mill_catalog_row *catalog = &reader->index.row[row_in_file];
  row->model_row = reader->plan.exposure_start[reader->i_file] + catalog->first_exposure;
  row->first_exposure = batch->n_exposure;
  row->n_exposure = catalog->n_exposure;
  batch->n_exposure += catalog->n_exposure;
}

/* FITS rows of the batch's exposures, in the batch's order, into fits_row. */
static int collect_exposures(mill_reader *reader, const mill_batch *batch, const int64_t *wanted)
{
  int err = MILL_OK;
  int64_t n = 0;
  MILL_TRY(grow((size_t)batch->n_exposure, sizeof(int64_t), &reader->n_fits_row,
                (void **)&reader->fits_row));
  for (int i = 0; i < batch->n_row; i++) {
    const mill_catalog_row *catalog = &reader->index.row[wanted[i]];
    memcpy(reader->fits_row + n, reader->index.exposure_row + catalog->first_exposure,
           (size_t)catalog->n_exposure * sizeof(int64_t));
    n += catalog->n_exposure;
  }
done:
  return err;
}

/* Hand over n wanted rows in one batch.  When their pixels cannot be read and
 * there are several, *retry says so and nothing is handed over. */
static int read_batch(mill_reader *reader, const int64_t *wanted, int n, int *retry, int *stopped)
{
  int err = MILL_OK;
  mill_batch *batch = take_idle(reader);
  *retry = 0;
  *stopped = batch == NULL;
  if (!batch)
    goto done;
  batch->file = reader->file;
  batch->i_file = reader->i_file;
  batch->n_row = 0;
  batch->n_exposure = 0;
  snprintf(batch->error, sizeof batch->error, "%s", reader->file_error);
  for (int i = 0; i < n; i++)
    add_row(reader, batch, wanted[i]);
  if (reader->file) {
    err = collect_exposures(reader, batch, wanted);
    if (err == MILL_OK)
      err = prepare_blocks(reader, batch, batch->n_exposure);
    for (int a = 0; err == MILL_OK && a < reader->plan.lib->n_arm; a++)
      if (reader->file->arm[a].use == MILL_ARM_READ)
        err =
            mill_desi_read(reader->desi, a, reader->fits_row, batch->n_exposure, &batch->block[a]);
    if (err == MILL_ERR_INPUT) {
      *retry = n > 1;
      snprintf(batch->error, sizeof batch->error, "%s", mill_error_message());
      err = MILL_OK;
    }
  }
  if (err != MILL_OK || *retry) {
    batch->file = NULL;
    pthread_mutex_lock(&reader->mutex);
    reader->idle[reader->n_idle++] = batch;
    pthread_mutex_unlock(&reader->mutex);
    goto done;
  }
  hand_over(reader, batch);
done:
  return err;
}

/* How many of the next rows make a batch: at least one. */
static int rows_of_batch(const mill_reader *reader, const int64_t *wanted, int n)
{
  int n_exposure = 0, i = 0;
  if (!reader->file)
    return n;
  for (; i < n; i++) {
    n_exposure += reader->index.row[wanted[i]].n_exposure;
    if (i > 0 && n_exposure > MILL_BATCH_EXPOSURES)
      break;
  }
  return i;
}

/* Rows [first, end) of file i are one work block. */
static int read_work_block(mill_reader *reader, int i, int64_t first, int64_t end, int *stopped)
{
  int err = MILL_OK;
  int n_wanted = 0;
  *stopped = 0;
  for (int64_t row = first; row < end; row++)
    if (mill_result_wanted(reader->plan.result, reader->plan.file[i].row_start + row))
      reader->wanted[n_wanted++] = row;
  if (n_wanted == 0)
    goto done;
  MILL_TRY(open_file(reader, i));
  for (int at = 0, n = 0; at < n_wanted && !*stopped; at += n) {
    int retry = 0;
    n = rows_of_batch(reader, reader->wanted + at, n_wanted - at);
    MILL_TRY(read_batch(reader, reader->wanted + at, n, &retry, stopped));
    /* one bad row must not cost its neighbours */
    for (int k = 0; retry && k < n && !*stopped; k++) {
      int ignored = 0;
      MILL_TRY(read_batch(reader, reader->wanted + at + k, 1, &ignored, stopped));
    }
  }
done:
  return err;
}

static int read_all(mill_reader *reader)
{
  int err = MILL_OK;
  int stopped = 0;
  int64_t i_block = 0;
  for (int i = 0; i < reader->plan.n_file && !stopped; i++) {
    const int64_t n_row = reader->plan.file[i].n_row;
    for (int64_t first = 0; first < n_row && !stopped; first += MILL_WORK_ROWS, i_block++) {
      const int64_t end = first + MILL_WORK_ROWS < n_row ? first + MILL_WORK_ROWS : n_row;
      if (i_block % reader->plan.size == reader->plan.rank)
        MILL_TRY(read_work_block(reader, i, first, end, &stopped));
    }
  }
done:
  return err;
}

static void *reader_main(void *argument)
{
  mill_reader *reader = argument;
  const int err = read_all(reader);
  close_file(reader);
  pthread_mutex_lock(&reader->mutex);
  reader->failure = err;
  if (err != MILL_OK)
    snprintf(reader->message, sizeof reader->message, "%s", mill_error_message());
  reader->ended = 1;
  pthread_cond_broadcast(&reader->changed);
  pthread_mutex_unlock(&reader->mutex);
  return NULL;
}

int mill_reader_start(const mill_reader_plan *plan, mill_reader **out)
{
  int err = MILL_OK;
  mill_reader *reader = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &reader));
  reader->plan = *plan;
  reader->i_file = -1;
  pthread_mutex_init(&reader->mutex, NULL);
  pthread_cond_init(&reader->changed, NULL);
  for (int i = 0; i < MILL_READER_BATCHES; i++) {
    MILL_TRY(MILL_ALLOC(1, &reader->idle[i]));
    reader->n_idle++;
  }
  if (pthread_create(&reader->thread, NULL, reader_main, reader) != 0)
    MILL_FAIL(MILL_ERR_INTERNAL, "cannot start the reader thread: is the limit on processes low?");
  reader->started = 1;
  *out = reader;
  reader = NULL;
done:
  mill_reader_stop(reader);
  return err;
}

int mill_reader_next(mill_reader *reader, mill_batch **out)
{
  int err = MILL_OK;
  *out = NULL;
  pthread_mutex_lock(&reader->mutex);
  while (reader->n_ready == 0 && !reader->ended)
    pthread_cond_wait(&reader->changed, &reader->mutex);
  if (reader->n_ready > 0) {
    *out = reader->ready[0];
    reader->n_ready--;
    memmove(&reader->ready[0], &reader->ready[1], (size_t)reader->n_ready * sizeof *reader->ready);
  } else if (reader->failure != MILL_OK) {
    err = mill_error_set(reader->failure, __FILE__, __LINE__, "%s", reader->message);
  }
  pthread_mutex_unlock(&reader->mutex);
  return err;
}

void mill_reader_release(mill_reader *reader, mill_batch *batch)
{
  if (!batch)
    return;
  file_drop(reader, batch->file);
  batch->file = NULL;
  pthread_mutex_lock(&reader->mutex);
  reader->idle[reader->n_idle++] = batch;
  pthread_cond_broadcast(&reader->changed);
  pthread_mutex_unlock(&reader->mutex);
}

static void free_batch(mill_batch *batch)
{
  for (int a = 0; a < MILL_MAX_ARM; a++) {
    mill_free(batch->store[a].flux);
    mill_free(batch->store[a].ivar);
    mill_free(batch->store[a].mask);
    mill_free(batch->store[a].resolution);
  }
  mill_free(batch);
}

void mill_reader_stop(mill_reader *reader)
{
  if (!reader)
    return;
  if (reader->started) {
    pthread_mutex_lock(&reader->mutex);
    reader->stop = 1;
    pthread_cond_broadcast(&reader->changed);
    pthread_mutex_unlock(&reader->mutex);
    pthread_join(reader->thread, NULL);
  }
  while (reader->n_ready > 0) {
    mill_batch *batch = reader->ready[--reader->n_ready];
    file_drop(reader, batch->file);
    free_batch(batch);
  }
  while (reader->n_idle > 0)
    free_batch(reader->idle[--reader->n_idle]);
  mill_free(reader->fits_row);
  pthread_mutex_destroy(&reader->mutex);
  pthread_cond_destroy(&reader->changed);
  mill_free(reader);
}
