/* SPDX-License-Identifier: BSD-3-Clause */
/* Queues the rows and models of the fits for the I/O thread, under the mutex. */
#include <stdatomic.h>
#include <string.h>
#include <zlib.h>

#include "io/result/result_file_impl.h"
#include "kernels/base/clock.h"
#include "src/system/thread.h"

void mill_result_wanted_bits(const mill_result_file *file, uint8_t *bits)
{
  /* cast: the file is const for the caller, but its mutex must be locked */
  MILL_LOCKED((pthread_mutex_t *)&file->mutex);
  memcpy(bits, file->wanted, (size_t)file->n_row / 8 + 1);
}

int64_t mill_result_n_queued(const mill_result_file *file)
{
  const mill_result_queue *q = file->filling;
  return q->fits.n * (int64_t)file->columns.row_size +
         q->epochs.n * (int64_t)sizeof(mill_epoch_result);
}

/* Wait until the queue has room, or fail if a write has failed.  The caller holds the mutex. */
static int await_room(mill_result_file *file)
{
  while (file->failure.code == MILL_OK && (mill_result_n_queued(file) >= 2 * MILL_WRITE_BYTES ||
                                           file->filling->n_pix >= MILL_QUEUE_PIX)) {
    pthread_cond_signal(&file->work);
    pthread_cond_wait(&file->room, &file->mutex);
  }
  return file->failure.code == MILL_OK ? MILL_OK : mill_error_restore(&file->failure);
}

/* Wake the I/O thread at the queue's first row or model, and when the queue is full.  The caller
 * holds the mutex. */
static void announce(mill_result_file *file, int is_first, int is_full)
{
  if (is_first)
    file->filling->first_s = mill_wall_s();
  if (is_first || is_full)
    pthread_cond_signal(&file->work);
}

int mill_result_put(mill_result_file *file, const mill_fit_result *result)
{
  char *row;
  MILL_LOCKED(&file->mutex);
  if (file->is_finished || file->is_closing || result->row < 0 || result->row >= file->n_row ||
      result->n_label != file->lib->n_label || result->status <= MILL_STATUS_NOT_DONE ||
      result->status >= MILL_N_STATUS)
    return MILL_BUG("%s is complete or closed, or a value is wrong: row %lld (expected below "
                    "%lld), STATUS %d (expected that of a finished row), %d labels (expected %d)",
                    file->path, (long long)result->row, (long long)file->n_row, result->status,
                    result->n_label, file->lib->n_label);
  MILL_CHECK(await_room(file));
  if (!mill_result_bit(file->wanted, result->row))
    return MILL_BUG("%s: row %lld was already done", file->path, (long long)result->row);
  mill_result_queue *q = file->filling;
  MILL_CHECK(mill_waiting_add(&q->fits, &file->columns, result->row, &row));
  mill_columns_pack(&file->columns, result, row);
  mill_result_set_bit(file->wanted, result->row, 0);
  const int is_first = q->fits.n == 1 && q->n_pix == 0; /* of the queue's rows and models */
  announce(file, is_first, mill_result_n_queued(file) >= MILL_WRITE_BYTES);
  return MILL_OK;
}

int mill_result_put_epochs(mill_result_file *file, int64_t first, mill_epoch_result *epoch,
                           int64_t n, uint32_t *crc)
{
  char *row;
  uLong sum = crc32(0L, Z_NULL, 0);
  MILL_LOCKED(&file->mutex);
  mill_result_queue *q = file->filling;
  if (!file->epochs || first < 0 || first > file->n_exposure - n)
    return MILL_BUG("%s: /epochs has %lld rows, too few to write %lld rows from index %lld on",
                    file->path, (long long)file->n_exposure, (long long)n, (long long)first);
  for (int64_t i = 0; i < n; i++) {
    MILL_CHECK(mill_waiting_add(&q->epochs, &file->epochs->columns, first + i, &row));
    mill_columns_pack_epoch(&file->epochs->columns, &epoch[i], row);
    sum = crc32(sum, (const Bytef *)row, (uInt)file->epochs->columns.row_size);
  }
  *crc = (uint32_t)sum;
  return MILL_OK;
}

int mill_result_put_model(mill_result_file *file, int arm, int64_t model_row, const float *flux,
                          const double *wave_aa, int n_pix)
{
  char *row;
  const mill_table *models = mill_models_arm(file->models, arm);
  const mill_column *column = models ? models->columns.column : NULL; /* [wavelength,] flux */
  const int has_wave = wave_aa != NULL;
  MILL_LOCKED(&file->mutex);
  if (!models || file->is_closing || model_row < 0 || model_row >= models->n_row ||
      n_pix != column->n_value || has_wave != (models->columns.n_column > 1))
    return MILL_BUG("%s: impossible model: arm %d, row %lld, %d pixels", file->path, arm,
                    (long long)model_row, n_pix);
  MILL_CHECK(await_room(file));
  mill_result_queue *q = file->filling;
  MILL_CHECK(mill_waiting_add(&q->model[arm], &models->columns, model_row, &row));
  if (has_wave)
    memcpy(row, wave_aa, column->n_byte);
  memcpy(row + column[has_wave ? 1 : 0].at, flux, column[has_wave ? 1 : 0].n_byte);
  const int is_first = q->n_pix == 0 && q->fits.n == 0;
  q->n_pix += (int64_t)(models->columns.row_size / sizeof *flux);
  announce(file, is_first, q->n_pix >= MILL_WRITE_PIX);
  return MILL_OK;
}

int64_t mill_result_n_done(const mill_result_file *file)
{
  return atomic_load(&file->n_done);
}

double mill_result_longest_write_s(const mill_result_file *file)
{
  return atomic_load(&file->longest_s);
}
