#include "io/hdf5/hdf5_util.h"
#include "io/hdf5/parallel_hdf5.h"
#include "io/result/result_layout.h"
#include "kernels/base/error.h"

enum { BLOCK_ROWS = 65536 };

/* One row into the counts. */
static void count_row(int32_t status, int64_t warn, int32_t info, mill_result_summary *summary)
{
  if (status >= 0 && status < MILL_N_STATUS)
    summary->n_status[status]++;
  if (status != MILL_STATUS_FITTED)
    return;
  summary->n_warned += warn != 0;
  summary->n_good += (warn & MILL_WARN_VELOCITY) == 0;
  for (int bit = 0; bit < MILL_N_RESULT_BIT; bit++) {
    summary->n_warn[bit] += warn >> bit & 1;
    summary->n_info[bit] += info >> bit & 1;
  }
}

int mill_result_layout_count(hid_t file, const char *path, int64_t n_row, int64_t start, int64_t n,
                             mill_result_summary *summary)
{
  int err = MILL_OK;
  int32_t *status = NULL;
  int32_t *info = NULL;
  int64_t *warn = NULL;
  hid_t dataset[3] = {H5I_INVALID_HID, H5I_INVALID_HID, H5I_INVALID_HID};
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  MILL_TRY(MILL_ALLOC(BLOCK_ROWS, &status));
  MILL_TRY(MILL_ALLOC(BLOCK_ROWS, &warn));
  MILL_TRY(MILL_ALLOC(BLOCK_ROWS, &info));
  MILL_TRY(
      mill_ph5_open_dataset(file, path, "fits/STATUS", H5T_STD_I32LE, 1, n_row, 1, &dataset[0]));
  MILL_TRY(
      mill_ph5_open_dataset(file, path, "fits/RVS_WARN", H5T_STD_I64LE, 1, n_row, 1, &dataset[1]));
  MILL_TRY(
      mill_ph5_open_dataset(file, path, "fits/FIT_INFO", H5T_STD_I32LE, 1, n_row, 1, &dataset[2]));
  for (int64_t at = 0; at < n; at += BLOCK_ROWS) {
    const int64_t n_block = n - at < BLOCK_ROWS ? n - at : BLOCK_ROWS;
    MILL_TRY(mill_ph5_select_range(path, 1, n_row, 1, start + at, n_block, &rows));
    MILL_TRY(mill_ph5_read(dataset[0], path, "fits/STATUS", H5T_NATIVE_INT32, &rows, status));
    MILL_TRY(mill_ph5_read(dataset[1], path, "fits/RVS_WARN", H5T_NATIVE_INT64, &rows, warn));
    MILL_TRY(mill_ph5_read(dataset[2], path, "fits/FIT_INFO", H5T_NATIVE_INT32, &rows, info));
    mill_ph5_unselect(&rows);
    for (int64_t i = 0; i < n_block; i++)
      count_row(status[i], warn[i], info[i], summary);
  }
done:
  mill_ph5_unselect(&rows);
  MILL_H5_CLOSE(dataset[0], dataset[1], dataset[2]);
  MILL_FREE(info, warn, status);
  return err;
}
