/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdatomic.h>
#include <string.h>

#include "io/hdf5/hdf5_util.h"
#include "io/hdf5/parallel_hdf5.h"
#include "io/result/result_file_impl.h"
#include "io/result/result_rows.h"
#include "io/result/stored_rows.h"
#include "src/system/log.h"
#include "kernels/base/memory.h"

enum { READ_ROWS = 8192 /* block of rows looked at when a file is continued */ };

int mill_result_bit(const uint8_t *bits, int64_t i)
{
  return bits[i / 8] >> (i % 8) & 1;
}

void mill_result_set_bit(uint8_t *bits, int64_t i, int value)
{
  const uint8_t mask = (uint8_t)(1u << (i % 8));
  bits[i / 8] = value ? bits[i / 8] | mask : bits[i / 8] & (uint8_t)~mask;
}

#define TARGETS "catalog/TARGETID"

/* Look at the rows [lo, hi) of an earlier run: rows that are not whole, or have
   failed and shall be tried again, are wanted; their STATUS goes back to 0, so that readers do not
   take them as done meanwhile. */
static int examine_rows(mill_result_file *file, int retry_failed, int was_finished, int64_t lo,
                        int64_t hi, int64_t **reset, int64_t *n_reset)
{
  int err = MILL_OK;
  mill_stored_rows *rows = NULL;
  char *row = NULL, *value = NULL, text[MILL_ROWS_TEXT];
  mill_damaged_rows damaged = {0};
  int64_t n_room = 0, *target = NULL;
  *reset = NULL;
  *n_reset = 0;
  MILL_TRY(MILL_ALLOC(1, &rows));
  MILL_TRY(mill_stored_rows_fits(file->file, file->path, file->n_row, rows));
  MILL_TRY(mill_alloc_bytes(READ_ROWS, rows->row_size, (void **)&row));
  MILL_TRY(mill_alloc_bytes(READ_ROWS, rows->widest, (void **)&value));
  MILL_TRY(MILL_ALLOC(READ_ROWS, &target));
  for (int64_t at = lo; at < hi; at += READ_ROWS) {
    const int64_t n = hi - at < READ_ROWS ? hi - at : READ_ROWS;
    MILL_TRY(mill_stored_rows_read(rows, at, n, row, value));
    MILL_TRY(mill_ph5_read_rows(file->file, file->path, TARGETS, H5T_STD_I64LE, file->n_row, NULL,
                                at, n, target));
    for (int64_t k = 0; k < n; k++) {
      const char *this_row = row + (size_t)k * rows->row_size;
      int is_whole;
      const int32_t status = mill_stored_row_status(rows, this_row, &is_whole);
      const int done = is_whole && !(retry_failed && status != MILL_STATUS_FITTED);
      mill_result_set_bit(file->wanted, at + k, !done);
      if (!is_whole && (was_finished || status != MILL_STATUS_NOT_DONE))
        mill_damaged_rows_add(&damaged, at + k);
      /* TARGETID is a row's first value */
      if (done || (status == MILL_STATUS_NOT_DONE && memcmp(this_row, &target[k], 8) == 0))
        continue;
      MILL_TRY(MILL_GROW(reset, &n_room, *n_reset + 1));
      (*reset)[(*n_reset)++] = at + k;
    }
  }
  if (damaged.n > 0)
    mill_log_warning("%s: %s; they are fitted again", file->path,
                     mill_damaged_rows_text(&damaged, text));
done:
  if (rows)
    mill_stored_rows_close(rows);
  MILL_FREE(rows, target, value, row);
  return err;
}

/* Collective: TARGETID, which no fit gives, may be what is damaged in these rows; /catalog has it
   too. */
static int restore_targets(mill_result_file *file, const int64_t *reset, int64_t n,
                           const mill_ph5_rows *rows)
{
  int err = MILL_OK;
  int64_t *target = NULL;
  const int i_target = file->columns.i_target;
  err = MILL_ALLOC(n, &target);
  if (err == MILL_OK)
    err = mill_ph5_read_rows(file->file, file->path, TARGETS, H5T_STD_I64LE, file->n_row, reset, 0,
                             n, target);
  MILL_TRY(mill_mpi_agree(&file->mpi, err));
  err = mill_ph5_write(file->dataset[i_target], file->path, "TARGETID", H5T_NATIVE_INT64, rows,
                       target);
  MILL_TRY(mill_mpi_agree(&file->mpi, err));
done:
  mill_free(target);
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
  MILL_TRY(restore_targets(file, reset, n_reset, &rows));
  for (int64_t at = 0; at < n_byte; at += 1 << 30) {
    const int n = n_byte - at < 1 << 30 ? (int)(n_byte - at) : 1 << 30;
    MILL_MPI(MPI_Allreduce(MPI_IN_PLACE, file->wanted + at, n, MPI_BYTE, MPI_BOR, file->mpi.comm));
  }
  for (int64_t i = 0; i < file->n_row; i++)
    n_wanted += mill_result_bit(file->wanted, i);
  atomic_store(&file->n_done, file->n_row - n_wanted);
done:
  mill_ph5_unselect(&rows);
  mill_free(zero);
  return err;
}

int mill_result_learn_wanted(mill_result_file *file, int retry_failed, int was_finished)
{
  int err = MILL_OK;
  /* shares begin at whole bytes of the bit field, so that they can be put together */
  const int64_t n_byte = (file->n_row + 7) / 8;
  const int64_t lo = n_byte * file->mpi.rank / file->mpi.size * 8;
  int64_t hi = n_byte * (file->mpi.rank + 1) / file->mpi.size * 8;
  int64_t *reset = NULL, n_reset = 0;
  hi = hi < file->n_row ? hi : file->n_row;
  err = examine_rows(file, retry_failed, was_finished, lo, hi, &reset, &n_reset);
  err = reset_rows(file, err, reset, n_reset);
  mill_free(reset);
  return err;
}

/* Collective: rows whose models did not reach the disk, or were lost there, are fitted again. */
int mill_result_learn_unmodelled(mill_result_file *file, const mill_models_info *info, int watch)
{
  int err = MILL_OK;
  int64_t *reset = NULL, n_reset = 0, n_all = 0;
  const int64_t lo = file->n_row * file->mpi.rank / file->mpi.size;
  const int64_t hi = file->n_row * (file->mpi.rank + 1) / file->mpi.size;
  err = mill_models_find_missing(file->models, info, lo, hi, watch, &reset, &n_reset);
  for (int64_t i = 0; i < n_reset && err == MILL_OK; i++)
    mill_result_set_bit(file->wanted, reset[i], 1);
  MILL_TRY(reset_rows(file, err, reset, n_reset));
  MILL_MPI(MPI_Allreduce(&n_reset, &n_all, 1, MPI_INT64_T, MPI_SUM, file->mpi.comm));
  if (n_all > 0 && file->mpi.rank == 0)
    mill_log_warning(
        "%s: %lld rows are fitted again, as their models are incomplete in the models file",
        file->path, (long long)n_all);
done:
  mill_free(reset);
  return err;
}
