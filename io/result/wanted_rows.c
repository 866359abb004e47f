/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdatomic.h>
#include <string.h>

#include "io/result/result_file_impl.h"
#include "io/result/stored_rows.h"
#include "src/system/log.h"

int mill_result_bit(const uint8_t *bits, int64_t i)
{
  return bits[i / 8] >> (i % 8) & 1;
}

void mill_result_set_bit(uint8_t *bits, int64_t i, int value)
{
  const uint8_t mask = (uint8_t)(1u << (i % 8));
  bits[i / 8] = value ? bits[i / 8] | mask : bits[i / 8] & (uint8_t)~mask;
}

/* Examination of this rank's share of the rows. */
typedef struct examination {
  mill_result_file *file;
  int retry_failed, was_finished;
  mill_stored_rows rows;
  mill_table *fits, *catalog; /* columns TARGETID, STATUS of /fits; TARGETID of /catalog */
  int64_t start, *target;     /* TARGETID of /catalog from row `start` on */
  mill_damaged_rows damaged;
  mill_waiting reset; /* rows of /fits whose STATUS becomes 0 */
} examination;

static void end_examination(examination *e)
{
  mill_table_close(e->fits);
  mill_table_close(e->catalog);
  mill_stored_rows_close(&e->rows);
  mill_waiting_free(&e->reset);
  mill_free(e->target);
}

/* Mark a row wanted if not whole (damaged or not done), or failed with retry_failed set.  If a
 * wanted row has a STATUS or a wrong TARGETID, add it to e->reset: reset_rows corrects both. */
static int examine_row(void *context, int64_t i, const char *row)
{
  examination *e = context;
  int is_whole;
  char *packed; /* zeros; reset_rows fills them in */
  const int32_t status = mill_stored_row_status(&e->rows, row, &is_whole);
  const int done = is_whole && !(e->retry_failed && status != MILL_STATUS_FITTED);
  mill_result_set_bit(e->file->wanted, i, !done);
  if (!is_whole && (e->was_finished || status != MILL_STATUS_NOT_DONE))
    mill_damaged_rows_add(&e->damaged, i);
  /* a row begins with TARGETID */
  const int has_target = memcmp(row, &e->target[i - e->start], sizeof *e->target) == 0;
  if (done || (status == MILL_STATUS_NOT_DONE && has_target))
    return MILL_OK;
  return mill_waiting_add(&e->reset, &e->fits->columns, i, &packed);
}

/* Set STATUS of the rows e->reset to 0, then copy TARGETID, which no fit writes, from /catalog. */
static int reset_rows(examination *e)
{
  mill_table_part part = mill_waiting_part(&e->reset, e->fits), from = part;
  part.n_own = INT64_MAX; /* this rank's share of rows is one ownership block */
  from.table = e->catalog;
  from.end = 1;
  MILL_CHECK(mill_table_read(from));
  part.first = 1; /* STATUS */
  MILL_CHECK(mill_table_write(&part));
  part.first = 0;
  part.end = 1;
  return mill_table_write(&part);
}

/* Examine rows [start, end), and reset the wanted ones in the file. */
static int examine_rows(examination *e, int64_t start, int64_t end)
{
  char text[MILL_ROWS_TEXT];
  const mill_result_file *file = e->file;
  const int64_t n = end > start ? end - start : 0;
  e->start = start;
  MILL_CHECK(mill_table_open(file->file, file->fd, file->path, "fits", file->n_row,
                             "TARGETID STATUS", NULL, &e->fits));
  MILL_CHECK(mill_table_open(file->file, file->fd, file->path, "catalog", file->n_row, "TARGETID",
                             NULL, &e->catalog));
  MILL_CHECK(MILL_ALLOC(n, &e->target));
  MILL_CHECK(mill_table_read(mill_table_range(e->catalog, start, n, (char *)e->target)));
  MILL_CHECK(mill_stored_rows_open(file->file, file->path, file->n_row, &e->rows));
  MILL_CHECK(mill_stored_rows_each(&e->rows, start, end, examine_row, e));
  if (e->damaged.n > 0)
    mill_log_warning("%s: %s; they are fitted again", file->path,
                     mill_damaged_rows_text(&e->damaged, text));
  return reset_rows(e);
}

/* Each rank examines its share of the rows; then all ranks get the bits of all wanted rows. */
int mill_result_learn_wanted(mill_result_file *file, int retry_failed, int was_finished)
{
  /* shares are whole bytes of the bit field, so that a bitwise OR joins them */
  int64_t end, n_wanted = 0;
  const int64_t n_byte = (file->n_row + 7) / 8;
  const int64_t lo = mill_mpi_share(&file->mpi, n_byte, &end) * 8;
  const int64_t hi = end * 8 < file->n_row ? end * 8 : file->n_row;
  MILL_AT_END(end_examination)
  examination e = {.file = file, .retry_failed = retry_failed, .was_finished = was_finished};
  MILL_CHECK(mill_mpi_agree(&file->mpi, examine_rows(&e, lo, hi)));
  for (int64_t at = 0; at < n_byte; at += 1 << 30) { /* MPI counts bytes in int */
    const int n = n_byte - at < 1 << 30 ? (int)(n_byte - at) : 1 << 30;
    MILL_CHECK_MPI(
        MPI_Allreduce(MPI_IN_PLACE, file->wanted + at, n, MPI_BYTE, MPI_BOR, file->mpi.comm));
  }
  for (int64_t i = 0; i < file->n_row; i++)
    n_wanted += mill_result_bit(file->wanted, i);
  atomic_store(&file->n_done, file->n_row - n_wanted);
  return MILL_OK;
}
