/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/hdf5/hdf5_util.h"
#include "io/hdf5/parallel_hdf5.h"
#include "io/result/result_layout.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"

enum { BLOCK_ROWS = 65536 };

/* One row into the counts. */
static void count_row(int32_t status, int64_t warn, int32_t info, int32_t post,
                      mill_result_summary *summary)
{
  if (status >= 0 && status < MILL_N_STATUS)
    summary->n_status[status]++;
  if (status != MILL_STATUS_FITTED)
    return;
  summary->n_warned += warn != 0;
  summary->n_not_stellar += (warn & MILL_WARN_NOT_STELLAR) != 0;
  summary->n_good += (warn & MILL_WARN_VELOCITY) == 0;
  for (int bit = 0; bit < MILL_N_RESULT_BIT; bit++) {
    summary->n_warn[bit] += warn >> bit & 1;
    summary->n_info[bit] += info >> bit & 1;
    summary->n_post[bit] += post >> bit & 1;
  }
}

int mill_result_layout_count(hid_t file, const char *path, int64_t n_row, int64_t start, int64_t n,
                             mill_result_summary *summary)
{
  int err = MILL_OK;
  int32_t *status = NULL, *info = NULL, *post = NULL;
  int64_t *warn = NULL;
  MILL_TRY(MILL_ALLOC(BLOCK_ROWS, &status));
  MILL_TRY(MILL_ALLOC(BLOCK_ROWS, &warn));
  MILL_TRY(MILL_ALLOC(BLOCK_ROWS, &info));
  MILL_TRY(MILL_ALLOC(BLOCK_ROWS, &post)); /* zeros, unless it is a sample */
  const htri_t is_sample = H5Lexists(file, "fits/POST_FLAG", H5P_DEFAULT);
  if (is_sample < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: /fits cannot be read: %s", path, mill_h5_reason());
  for (int64_t end = start + n, at = start; at < end; at += BLOCK_ROWS) {
    const int64_t n_block = end - at < BLOCK_ROWS ? end - at : BLOCK_ROWS;
    MILL_TRY(mill_ph5_read_rows(file, path, "fits/STATUS", H5T_STD_I32LE, n_row, NULL, at, n_block,
                                status));
    MILL_TRY(mill_ph5_read_rows(file, path, "fits/RVS_WARN", H5T_STD_I64LE, n_row, NULL, at,
                                n_block, warn));
    MILL_TRY(mill_ph5_read_rows(file, path, "fits/FIT_INFO", H5T_STD_I32LE, n_row, NULL, at,
                                n_block, info));
    if (is_sample > 0)
      MILL_TRY(mill_ph5_read_rows(file, path, "fits/POST_FLAG", H5T_STD_I32LE, n_row, NULL, at,
                                  n_block, post));
    for (int64_t i = 0; i < n_block; i++)
      count_row(status[i], warn[i], info[i], post[i], summary);
  }
done:
  MILL_FREE(post, info, warn, status);
  return err;
}
