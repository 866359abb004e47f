/* SPDX-License-Identifier: BSD-3-Clause */
/* Queries and rows of the fits, under the mutex. */
#include <stdatomic.h>
#include <string.h>

#include "io/result/result_file_impl.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

void mill_result_wanted_bits(const mill_result_file *file, uint8_t *bits)
{
  /* to the caller the file is constant, its mutex is not */
  pthread_mutex_t *mutex = (pthread_mutex_t *)&file->mutex;
  pthread_mutex_lock(mutex);
  memcpy(bits, file->wanted, (size_t)file->n_row / 8 + 1);
  pthread_mutex_unlock(mutex);
}

/* Under the mutex: wait until the queue has room or writing has failed. */
static int await_room(mill_result_file *file)
{
  int err = MILL_OK;
  file->n_waiting++;
  while (file->failure.code == MILL_OK &&
         (file->filling->n_row >= MILL_QUEUE_ROWS || file->filling->n_pix >= MILL_QUEUE_PIX)) {
    pthread_cond_signal(&file->work);
    pthread_cond_wait(&file->room, &file->mutex);
  }
  file->n_waiting--;
  if (file->failure.code != MILL_OK)
    err = mill_error_restore(&file->failure);
  return err;
}

int mill_result_put(mill_result_file *file, const mill_fit_result *result)
{
  int err = MILL_OK;
  pthread_mutex_lock(&file->mutex);
  if (file->is_finished || file->is_closing || result->row < 0 || result->row >= file->n_row ||
      result->n_label != file->n_label || result->status <= MILL_STATUS_NOT_DONE ||
      result->status >= MILL_N_STATUS)
    MILL_FAIL(MILL_ERR_INTERNAL, "%s: impossible result: row %lld of %lld, STATUS %d, %d labels",
              file->path, (long long)result->row, (long long)file->n_row, result->status,
              result->n_label);
  if (file->filling->n_row >= MILL_QUEUE_ROWS || file->failure.code != MILL_OK)
    MILL_TRY(await_room(file));
  if (!mill_result_bit(file->wanted, result->row))
    MILL_FAIL(MILL_ERR_INTERNAL, "%s: row %lld was already done", file->path,
              (long long)result->row);
  mill_result_queue *q = file->filling;
  MILL_TRY(mill_grow_bytes((void **)&q->row, &q->row_room, q->n_row + 1, file->columns.row_size));
  MILL_TRY(MILL_GROW(&q->at, &q->at_room, q->n_row + 1));
  if (q->n_row == 0 && q->n_item == 0)
    q->first_s = mill_wall_s();
  char *row = q->row + (size_t)q->n_row * file->columns.row_size;
  memset(row, 0, file->columns.row_size);
  mill_columns_pack(&file->columns, result, row);
  q->at[q->n_row++] = result->row;
  mill_result_set_bit(file->wanted, result->row, 0);
  /* the first row starts the clock */
  if ((q->n_row == 1 && q->n_item == 0) || q->n_row == MILL_EPOCH_ROWS)
    pthread_cond_signal(&file->work);
done:
  pthread_mutex_unlock(&file->mutex);
  return err;
}

int mill_result_put_epochs(mill_result_file *file, int64_t first, mill_epoch_result *epoch,
                           int64_t n, uint32_t *crc)
{
  int err = MILL_OK;
  pthread_mutex_lock(&file->mutex);
  mill_result_queue *q = file->filling;
  if (!file->epochs || first < 0 || first > file->n_exposure - n)
    MILL_FAIL(MILL_ERR_INTERNAL, "%s: impossible epochs: %lld from %lld on", file->path,
              (long long)n, (long long)first);
  MILL_TRY(MILL_GROW(&q->epoch, &q->epoch_room, q->n_epoch + n));
  *crc = mill_epoch_rows_seal(epoch, n);
  for (int64_t i = 0; i < n; i++)
    q->epoch[q->n_epoch++] = (mill_epoch_item){first + i, epoch[i]};
done:
  pthread_mutex_unlock(&file->mutex);
  return err;
}

int mill_result_put_model(mill_result_file *file, int arm, int64_t model_row, const float *flux,
                          const double *wave_aa, int n_pix)
{
  int err = MILL_OK;
  /* wavelengths wait behind the flux, each in the room of two pixels */
  const int64_t n_wave = wave_aa ? 2 * (int64_t)n_pix : 0;
  pthread_mutex_lock(&file->mutex);
  if (!file->models || file->is_closing || model_row < 0 ||
      model_row >= mill_models_n_row(file->models) || n_pix <= 0 ||
      n_pix != mill_models_n_pix(file->models, arm) ||
      (wave_aa != NULL) != mill_models_has_own_waves(file->models, arm))
    MILL_FAIL(MILL_ERR_INTERNAL, "%s: impossible model: arm %d, row %lld, %d pixels", file->path,
              arm, (long long)model_row, n_pix);
  if (file->filling->n_pix >= MILL_QUEUE_PIX || file->failure.code != MILL_OK)
    MILL_TRY(await_room(file));
  mill_result_queue *q = file->filling;
  MILL_TRY(MILL_GROW(&q->pool, &q->pool_room, q->n_pix + n_wave + n_pix));
  MILL_TRY(MILL_GROW(&q->item, &q->item_room, q->n_item + 1));
  if (q->n_row == 0 && q->n_item == 0)
    q->first_s = mill_wall_s();
  memcpy(q->pool + q->n_pix, flux, (size_t)n_pix * sizeof *flux);
  q->item[q->n_item++] = (mill_model_item){.row = model_row, .at = (size_t)q->n_pix, .arm = arm};
  q->n_pix += n_pix;
  if (wave_aa)
    memcpy(q->pool + q->n_pix, wave_aa, (size_t)n_pix * sizeof *wave_aa);
  q->n_pix += n_wave;
  if ((q->n_item == 1 && q->n_row == 0) || q->n_pix >= MILL_EPOCH_PIX)
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
