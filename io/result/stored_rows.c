/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/stored_rows.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "io/hdf5/output_file.h"
#include "src/system/watchdog.h"

#define ORDER "COLUMNS"
enum {
  ORDER_SIZE = MILL_MAX_COLUMN * sizeof((mill_column *)0)->name,
  BLOCK_BYTES = 16 << 20, /* bytes of rows read at once */
  FIRST_EXPOSURE = 0,     /* columns of `exposures` */
  N_EXPOSURE
};

/* ---- opening ---- */

int mill_stored_rows_put_order(hid_t file, const char *path, const char *crc,
                               const mill_columns *columns)
{
  char order[ORDER_SIZE] = "";
  for (int i = 0; i < columns->i_crc; i++)
    strcat(strcat(order, i ? " " : ""), columns->column[i].name);
  return mill_h5_write_attr_text(MILL_OUTPUT(file, path), crc, ORDER, order);
}

int mill_stored_rows_open(hid_t file, const char *path, int64_t n_row, mill_stored_rows *rows)
{
  char order[ORDER_SIZE + sizeof " CRC STATUS"] = ""; /* columns, in the order of the CRC */
  mill_columns columns;
  MILL_CHECK(mill_h5_read_attr_text(MILL_OUTPUT(file, path), "fits/CRC", ORDER, order, ORDER_SIZE));
  strcat(order, " CRC STATUS");
  MILL_CHECK(mill_table_open(file, -1, path, "fits", n_row, order, NULL, &rows->table));
  const mill_columns *fits = &rows->table->columns;
  if (fits->column[fits->i_crc].n_byte != sizeof(uint32_t) ||
      fits->column[fits->i_status].n_byte != sizeof(int32_t))
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: fits/CRC or STATUS has a wrong type; fit again", path);
  if (H5Lexists(file, "epochs", H5P_DEFAULT) <= 0)
    return MILL_OK;
  mill_columns_of(MILL_TABLE_EPOCHS, NULL, &columns);
  MILL_CHECK(mill_table_open(file, -1, path, "epochs", -1, "", &columns, &rows->epochs));
  MILL_CHECK(mill_table_open(file, -1, path, "catalog", n_row, "FIRST_EXPOSURE N_EXPOSURE", NULL,
                             &rows->exposures));
  if (mill_columns_find(fits, "EPOCH_CRC") < 0)
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s is damaged: it has /epochs without fits/EPOCH_CRC; fit again", path);
  return MILL_OK;
}

void mill_stored_rows_close(mill_stored_rows *rows)
{
  mill_table_close(rows->table);
  mill_table_close(rows->epochs);
  mill_table_close(rows->exposures);
  *rows = (mill_stored_rows){0};
}

/* ---- reading ---- */

static size_t stride_of(const mill_stored_rows *rows)
{
  return rows->table->columns.row_size + 1;
}

static int crc_agrees(const mill_stored_rows *rows, const char *row)
{
  const mill_columns *columns = &rows->table->columns;
  return mill_columns_crc(columns, row) ==
         mill_column_integer(&columns->column[columns->i_crc], row);
}

int32_t mill_stored_row_status(const mill_stored_rows *rows, const char *row, int *is_whole)
{
  const mill_columns *columns = &rows->table->columns;
  const int32_t status = (int32_t)mill_column_integer(&columns->column[columns->i_status], row);
  *is_whole = status > MILL_STATUS_NOT_DONE && status < MILL_N_STATUS && crc_agrees(rows, row) &&
              (!rows->epochs || row[columns->row_size]);
  return status;
}

/* Set *first and *n to row i's range in /epochs; returns 0 if the range exceeds /epochs. */
static int find_exposures(const mill_stored_rows *rows, const char *exposures, int64_t i,
                          int64_t *first, int64_t *n)
{
  const mill_columns *columns = &rows->exposures->columns;
  exposures += (size_t)i * columns->row_size;
  *first = mill_column_integer(&columns->column[FIRST_EXPOSURE], exposures);
  *n = mill_column_integer(&columns->column[N_EXPOSURE], exposures);
  return *first >= 0 && *n >= 0 && *first <= rows->epochs->n_row - *n;
}

/* Set the last byte of each of n packed rows: 1 if EPOCH_CRC agrees or the row is not fitted. */
static int check_epochs(const mill_stored_rows *rows, int64_t start, int64_t n, char *row)
{
  const mill_columns *fits = &rows->table->columns;
  const mill_column *crc = &fits->column[mill_columns_find(fits, "EPOCH_CRC")];
  const size_t epoch_size = rows->epochs->columns.row_size;
  int64_t first, n_epoch, begin = rows->epochs->n_row, end = 0; /* [begin, end): rows to read */
  MILL_OWNED char *exposures = NULL, *epochs = NULL;
  MILL_CHECK(mill_alloc_bytes((size_t)n, rows->exposures->columns.row_size, (void **)&exposures));
  MILL_CHECK(mill_table_read(mill_table_range(rows->exposures, start, n, exposures)));
  for (int64_t i = 0; i < n; i++) {
    if (!find_exposures(rows, exposures, i, &first, &n_epoch))
      return MILL_ERROR(MILL_ERR_OUTPUT, "%s: /epochs lacks exposures of row %lld; fit again",
                        rows->table->path, (long long)(start + i));
    begin = first < begin ? first : begin;
    end = first + n_epoch > end ? first + n_epoch : end;
  }
  end = end > begin ? end : begin;
  MILL_CHECK(mill_alloc_bytes((size_t)(end - begin), epoch_size, (void **)&epochs));
  MILL_CHECK(mill_table_read(mill_table_range(rows->epochs, begin, end - begin, epochs)));
  for (int64_t i = 0; i < n; i++, row += stride_of(rows)) {
    find_exposures(rows, exposures, i, &first, &n_epoch);
    const int64_t status = mill_column_integer(&fits->column[fits->i_status], row);
    const char *epoch = epochs + (size_t)(first - begin) * epoch_size;
    row[fits->row_size] =
        status != MILL_STATUS_FITTED ||
        crc32(crc32(0L, Z_NULL, 0), (const Bytef *)epoch, (uInt)((size_t)n_epoch * epoch_size)) ==
            (uLong)mill_column_integer(crc, row);
  }
  return MILL_OK;
}

int mill_stored_rows_each(const mill_stored_rows *rows, int64_t start, int64_t end,
                          int (*take)(void *context, int64_t i, const char *row), void *context)
{
  const size_t stride = stride_of(rows);
  const int64_t n_most = BLOCK_BYTES / (int64_t)stride + 1;
  const int64_t n_block = end - start < n_most ? end - start : n_most;
  MILL_OWNED char *row = NULL;
  if (n_block > 0)
    MILL_CHECK(mill_alloc_bytes((size_t)n_block, stride, (void **)&row));
  for (int64_t at = start; at < end; at += n_block) {
    const int64_t n = end - at < n_block ? end - at : n_block;
    mill_table_part part = mill_table_range(rows->table, at, n, row);
    part.stride = stride;
    MILL_CHECK(mill_table_read(part));
    if (rows->epochs)
      MILL_CHECK(check_epochs(rows, at, n, row));
    mill_watch_again();
    for (int64_t k = 0; k < n; k++)
      MILL_CHECK(take(context, at + k, row + (size_t)k * stride));
  }
  return MILL_OK;
}

/* ---- damage ---- */

void mill_damaged_rows_add(mill_damaged_rows *damaged, int64_t row)
{
  if (damaged->n < MILL_SHOWN_ROWS)
    damaged->row[damaged->n] = row;
  damaged->n++;
}

const char *mill_damaged_rows_text(const mill_damaged_rows *damaged, char out[MILL_ROWS_TEXT])
{
  const int is_one = damaged->n == 1;
  size_t n = (size_t)snprintf(out, MILL_ROWS_TEXT, "%lld %s (", (long long)damaged->n,
                              is_one ? "row" : "rows");
  for (int64_t i = 0; i < damaged->n && i < MILL_SHOWN_ROWS; i++)
    n += (size_t)snprintf(out + n, MILL_ROWS_TEXT - n, "%s%lld", i ? ", " : "",
                          (long long)damaged->row[i]);
  snprintf(out + n, MILL_ROWS_TEXT - n, "%s) %s damaged: %s %sCRC or STATUS is wrong",
           damaged->n > MILL_SHOWN_ROWS ? ", ..." : "", is_one ? "is" : "are",
           is_one ? "its" : "their", damaged->n_catalog > 0 ? "CATALOG_CRC, " : "");
  return out;
}

typedef struct check {
  const mill_stored_rows *rows;
  unsigned char *is_known; /* [n_row] bits */
} check;
enum { GOOD_CATALOG = 1, BAD_FITS = 2 }; /* CATALOG_CRC agrees; the row of /fits is damaged */

static int take_catalog(void *context, int64_t i, const char *row)
{
  check *c = context;
  c->is_known[i] = (unsigned char)crc_agrees(c->rows, row);
  return MILL_OK;
}

int mill_catalog_known(hid_t file, const char *path, int64_t n_row, unsigned char *is_known)
{
  mill_columns columns;
  MILL_AT_END(mill_stored_rows_close) mill_stored_rows rows = {0};
  mill_columns_of(MILL_TABLE_CATALOG, NULL, &columns);
  MILL_CHECK(mill_table_open(file, -1, path, "catalog", n_row, "", &columns, &rows.table));
  return mill_stored_rows_each(&rows, 0, n_row, take_catalog, &(check){&rows, is_known});
}

static int take_fits(void *context, int64_t i, const char *row)
{
  check *c = context;
  int is_whole;
  mill_stored_row_status(c->rows, row, &is_whole);
  c->is_known[i] |= (unsigned char)(is_whole ? 0 : BAD_FITS);
  return MILL_OK;
}

int mill_damaged_rows_find(hid_t file, const char *path, const mill_run_info *info,
                           const mill_input_file *then, int is_finished, mill_damaged_rows *damaged)
{
  MILL_OWNED unsigned char *is_known = NULL; /* [n_row] bits GOOD_CATALOG and BAD_FITS */
  MILL_AT_END(mill_stored_rows_close) mill_stored_rows rows = {0};
  MILL_CHECK(MILL_ALLOC(info->n_row, &is_known));
  MILL_CHECK(mill_catalog_known(file, path, info->n_row, is_known));
  if (is_finished) {
    MILL_CHECK(mill_stored_rows_open(file, path, info->n_row, &rows));
    MILL_CHECK(mill_stored_rows_each(&rows, 0, info->n_row, take_fits, &(check){&rows, is_known}));
  }
  for (int f = 0; f < info->n_file; f++) {
    const mill_input_file *now = &info->file[f];
    const int is_same = now->size == then[f].size && now->mtime == then[f].mtime;
    for (int64_t i = now->row_start; i < now->row_start + now->n_row; i++) {
      damaged->n_catalog += is_same && !(is_known[i] & GOOD_CATALOG);
      if (is_known[i] != GOOD_CATALOG) /* bad in /catalog, or BAD_FITS is set */
        mill_damaged_rows_add(damaged, i);
    }
  }
  return MILL_OK;
}

/* ---- counts ---- */

typedef struct tally {
  const mill_columns *columns; /* STATUS, RVS_WARN, FIT_INFO, and in a sample POST_FLAG */
  mill_result_summary *summary;
} tally;

/* Add a row's STATUS and flags to the summary; callback of mill_stored_rows_each. */
static int count_row(void *context, int64_t i, const char *row)
{
  const tally *t = context;
  mill_result_summary *summary = t->summary;
  int64_t value[4] = {0}; /* STATUS, RVS_WARN, FIT_INFO, POST_FLAG */
  (void)i;
  for (int k = 0; k < t->columns->n_column; k++)
    value[k] = mill_column_integer(&t->columns->column[k], row);
  const int64_t status = value[0], warn = value[1];
  if (status >= 0 && status < MILL_N_STATUS)
    summary->n_status[status]++;
  if (status != MILL_STATUS_FITTED)
    return MILL_OK;
  summary->n_warned += warn != 0;
  summary->n_not_stellar += (warn & MILL_WARN_NOT_STELLAR) != 0;
  summary->n_good += (warn & MILL_WARN_VELOCITY) == 0;
  for (int bit = 0; bit < MILL_N_RESULT_BIT; bit++) {
    summary->n_warn[bit] += warn >> bit & 1;
    summary->n_info[bit] += value[2] >> bit & 1;
    summary->n_post[bit] += value[3] >> bit & 1;
  }
  return MILL_OK;
}

int mill_stored_rows_count(hid_t file, const char *path, int64_t n_row, int64_t start, int64_t n,
                           mill_result_summary *summary)
{
  MILL_AT_END(mill_stored_rows_close) mill_stored_rows rows = {0};
  const htri_t is_sample = H5Lexists(file, "fits/POST_FLAG", H5P_DEFAULT);
  if (is_sample < 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: /fits cannot be read: %s", path, mill_h5_reason());
  MILL_CHECK(mill_table_open(file, -1, path, "fits", n_row,
                             is_sample > 0 ? "STATUS RVS_WARN FIT_INFO POST_FLAG"
                                           : "STATUS RVS_WARN FIT_INFO",
                             NULL, &rows.table));
  tally t = {.columns = &rows.table->columns, .summary = summary};
  return mill_stored_rows_each(&rows, start, start + n, count_row, &t);
}
