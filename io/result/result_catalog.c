/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/result_catalog.h"

#include <string.h>
#include <zlib.h>

#include "io/hdf5/hdf5_util.h"
#include "io/hdf5/parallel_hdf5.h"
#include "io/result/column_data.h"
#include "io/result/result_layout.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/watchdog.h"

enum { BLOCK_ROWS = 65536 };

/* Write the share [start, start + n) of a dataset. Collective. */
static int write_share(hid_t file, const char *path, const char *name, hid_t type, int64_t n_total,
                       int64_t start, int64_t n, const void *buffer)
{
  int err = MILL_OK;
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
  if (dataset < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot open %s: %s", path, name, mill_h5_reason());
  MILL_TRY(mill_ph5_select_range(path, 1, n_total, 1, start, n, &rows));
  MILL_TRY(mill_ph5_write(dataset, path, name, type, &rows, buffer));
done:
  mill_ph5_unselect(&rows);
  MILL_H5_CLOSE(dataset);
  return err;
}

/* Files of this rank's share whose rows are written together. */
typedef struct group {
  int first, end;         /* files of the catalog */
  mill_file_index *index; /* [end - first] */
  int *is_loaded;         /* [end - first] by info->load: to be cleared */
  int64_t n_row, n_exp;   /* 0 after a failure: the rank then joins with nothing */
  uint32_t *crc;          /* [n_row] of the columns so far */
  char *packed;
} group;

static void clear_group(group *g)
{
  for (int i = 0; i < g->end - g->first && g->index; i++)
    if (g->is_loaded[i])
      mill_file_index_clear(&g->index[i]);
  MILL_FREE(g->index, g->is_loaded, g->crc, g->packed);
  memset(g, 0, sizeof *g);
}

/* Which files follow the one at first: as many as have not too many rows. */
static int end_of_group(const mill_run_info *info, int first)
{
  int64_t n = 0;
  int end = first;
  while (end < info->file_end) {
    const mill_file_index *index = &info->index[end - info->file_start];
    n += index->n_row > index->n_exposure ? index->n_row : index->n_exposure;
    if (end > first && n > BLOCK_ROWS)
      break;
    end++;
  }
  return end;
}

static int fill_group(const mill_run_info *info, int first, int watch, group *g)
{
  int err = MILL_OK;
  const int end = end_of_group(info, first);
  MILL_TRY(MILL_ALLOC(end - first, &g->index));
  MILL_TRY(MILL_ALLOC(end - first, &g->is_loaded));
  g->first = first;
  g->end = end;
  for (int i = 0; i < end - first; i++) {
    const mill_file_index *from = &info->index[first + i - info->file_start];
    g->index[i] = *from;
    if (from->row || from->n_row == 0 || !info->load)
      continue;
    memset(&g->index[i], 0, sizeof g->index[i]);
    g->is_loaded[i] = 1;
    MILL_TRY(mill_result_go_on());
    MILL_TRY(info->load(info->load_context, first + i, &g->index[i]));
    mill_watch_again(watch);
    if (g->index[i].n_row != from->n_row || g->index[i].n_exposure != from->n_exposure)
      MILL_FAIL(MILL_ERR_STOPPED,
                "%s changed while the job was starting: the same command starts "
                "again",
                info->file[first + i].path);
  }
  for (int i = 0; i < end - first; i++) {
    g->n_row += g->index[i].n_row;
    g->n_exp += g->index[i].n_exposure;
  }
  MILL_TRY(MILL_ALLOC(g->n_row, &g->crc));
  MILL_TRY(mill_alloc_bytes((size_t)(g->n_row > g->n_exp ? g->n_row : g->n_exp), 64,
                            (void **)&g->packed));
done:
  if (err != MILL_OK)
    g->n_row = g->n_exp = 0;
  return err;
}

/* One column of a group's rows, packed. */
static void take_column(const group *g, const mill_column *column, const int64_t *first_exposure)
{
  char *to = g->packed;
  if (column->source == MILL_FROM_CRC && g->n_row > 0)
    memcpy(to, g->crc, (size_t)g->n_row * sizeof *g->crc);
  if (column->source == MILL_FROM_CRC)
    return;
  for (int i = g->first; i < g->end && g->n_row > 0; i++) {
    const mill_file_index *index = &g->index[i - g->first];
    for (int64_t k = 0; k < index->n_row; k++, to += column->n_byte) {
      if (column->source == MILL_FROM_FILE) {
        const int32_t i_file = i;
        memcpy(to, &i_file, sizeof i_file);
        continue;
      }
      memcpy(to, (const char *)&index->row[k] + column->field, column->n_byte);
      if (column->source == MILL_FROM_OFFSET) {
        const int64_t first = first_exposure[i] + index->row[k].first_exposure;
        memcpy(to, &first, sizeof first);
      } else if (column->type == MILL_TYPE_TEXT) {
        /* what follows the end of a text is no content */
        const size_t n = strnlen(to, column->n_byte);
        memset(to + n, 0, column->n_byte - n);
      }
      uint32_t *crc = &g->crc[(to - g->packed) / (ptrdiff_t)column->n_byte];
      *crc = (uint32_t)crc32(*crc, (const Bytef *)to, (uInt)column->n_byte);
    }
  }
}

/* A column of a group's exposures, the array at `field` of their index; where an index has none they
   are of its own file. */
static void take_exposures(const group *g, size_t n_byte, size_t field)
{
  char *to = g->packed;
  for (int i = g->first; i < g->end && g->n_exp > 0; i++) {
    const mill_file_index *index = &g->index[i - g->first];
    const char *from;
    const int32_t i_file = i;
    memcpy(&from, (const char *)index + field, sizeof from);
    for (int64_t k = 0; k < index->n_exposure; k++, to += n_byte)
      memcpy(to, from ? from + (size_t)k * n_byte : (const char *)&i_file, n_byte);
  }
}

/* Collective.  A failure of one dataset must not keep this rank from the collective calls that
   the others make, so the first one is kept and returned at the end. */
static int write_group(hid_t file, const char *path, const mill_run_info *info,
                       const mill_columns *columns, const group *g, const int64_t *first_exposure,
                       int64_t n_exposure)
{
  int err = MILL_OK, failed = MILL_OK;
  const int64_t start = g->n_row > 0 ? info->file[g->first].row_start : 0;
  const int64_t start_exp = g->n_exp > 0 ? first_exposure[g->first] : 0;
  const struct {
    const char *name;
    hid_t type;
    size_t n_byte, field;
  } list[] = {{"catalog/exposures/FITS_ROW", H5T_STD_I64LE, sizeof(int64_t),
               offsetof(mill_file_index, exposure_row)},
              {"catalog/exposures/EXPID", H5T_STD_I32LE, sizeof(int32_t),
               offsetof(mill_file_index, exposure_id)},
              {"catalog/exposures/FILE", H5T_STD_I32LE, sizeof(int32_t),
               offsetof(mill_file_index, exposure_file)},
              {"catalog/exposures/MJD", H5T_IEEE_F64LE, sizeof(double),
               offsetof(mill_file_index, exposure_mjd)}};
  for (int i = 0; i < columns->n_column; i++) {
    const mill_column *c = &columns->column[i];
    char name[64];
    const hid_t type = mill_column_new_type(c->type, c->n_byte);
    snprintf(name, sizeof name, "catalog/%s", c->name);
    take_column(g, c, first_exposure);
    err = write_share(file, path, name, type, info->n_row, start, g->n_row, g->packed);
    failed = failed == MILL_OK ? err : failed;
    if (i == columns->i_target)
      err = write_share(file, path, "fits/TARGETID", type, info->n_row, start, g->n_row, g->packed);
    failed = failed == MILL_OK ? err : failed;
    H5Tclose(type);
  }
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    take_exposures(g, list[i].n_byte, list[i].field);
    err = write_share(file, path, list[i].name, list[i].type, n_exposure, start_exp, g->n_exp,
                      g->packed);
    failed = failed == MILL_OK ? err : failed;
  }
  return failed;
}

int mill_result_catalog_write(hid_t file, const char *path, const mill_run_info *info,
                              const mill_mpi *mpi, const int64_t *first_exposure,
                              int64_t n_exposure, int watch)
{
  int err = MILL_OK, failed = MILL_OK;
  mill_columns columns;
  int n_group = 0, n_most = 0;
  mill_columns_catalog(&columns);
  for (int first = info->file_start; first < info->file_end; first = end_of_group(info, first))
    n_group++;
  MILL_MPI(MPI_Allreduce(&n_group, &n_most, 1, MPI_INT, MPI_MAX, mpi->comm));
  for (int i = 0, first = info->file_start; i < n_most; i++) {
    group g = {0};
    if (first < info->file_end && failed == MILL_OK) {
      err = fill_group(info, first, watch, &g);
      failed = failed == MILL_OK ? err : failed;
      first = g.end;
    }
    err = write_group(file, path, info, &columns, &g, first_exposure, n_exposure);
    failed = failed == MILL_OK ? err : failed;
    clear_group(&g);
    mill_watch_again(watch); /* writing is collective: all ranks have come so far */
  }
  err = failed;
done:
  return err;
}
