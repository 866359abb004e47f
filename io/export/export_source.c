/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/export/export_source.h"

#include <stdio.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/stop_signal.h"

enum { BLOCK_BYTES = 16 << 20, MAX_BLOCK_ROWS = 1 << 16 };

int mill_export_go_on(void)
{
  if (mill_stop_reason() != MILL_STOP_NONE)
    return MILL_ERROR(MILL_ERR_STOPPED, "stopped in good order; give the same command again");
  return MILL_OK;
}

static int read_provenance(mill_export_source *source)
{
  uint8_t finished = 0;
  const hid_t id = source->table.file.id;
  const char *const path = source->table.path;
  const struct {
    const char *name;
    char *out;
    size_t size;
  } text[] = {{"RUN_ID", source->run_id, sizeof source->run_id},
              {"VERSION", source->version, sizeof source->version},
              {"REVISION", source->revision, sizeof source->revision},
              {"LIBRARY_NAME", source->library, sizeof source->library},
              {"LIBRARY_HASH", source->library_hash, sizeof source->library_hash}};
  for (size_t i = 0; i < sizeof text / sizeof *text; i++)
    MILL_CHECK(
        mill_ph5_read_attr_text(id, path, "provenance", text[i].name, text[i].out, text[i].size));
  MILL_CHECK(mill_ph5_read_text(id, path, "provenance/COMMAND", &source->command));
  MILL_CHECK(mill_ph5_read_whole(id, path, "provenance/FINISHED", H5T_NATIVE_UINT8, 1, &finished));
  if (!finished)
    return MILL_ERROR(MILL_ERR_USAGE, "%s is not finished: give the command of the fit again",
                      path);
  return MILL_OK;
}

int64_t mill_export_row_start(const mill_export_source *source, int i)
{
  return source->inputs.number[MILL_INPUT_ROW_START][i];
}

int64_t mill_export_n_row(const mill_export_source *source, int i)
{
  return source->inputs.number[MILL_INPUT_N_ROW][i];
}

static int read_inputs(mill_export_source *source)
{
  const char *const path = source->table.path;
  MILL_CHECK(mill_recorded_inputs_read(source->table.file.id, path, &source->inputs));
  for (int i = 0; i < source->inputs.n_file; i++) {
    const int64_t start = mill_export_row_start(source, i), n = mill_export_n_row(source, i);
    if (start < 0 || n < 0 || start > source->table.n_row - n)
      return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: it lacks rows of input %d", path, i);
  }
  return MILL_OK;
}

static int make_blocks(mill_export_source *source)
{
  const mill_stored_rows *fits = &source->table.fits, *catalog = &source->table.catalog;
  const size_t widest = fits->widest > catalog->widest ? fits->widest : catalog->widest;
  const size_t n = BLOCK_BYTES / (fits->row_size + catalog->row_size);
  const size_t n_row = n < 1 ? 1 : n > MAX_BLOCK_ROWS ? MAX_BLOCK_ROWS : n;
  source->block_rows = (int64_t)n_row;
  MILL_CHECK(mill_alloc_bytes(n_row, fits->row_size, (void **)&source->fits_row));
  MILL_CHECK(mill_alloc_bytes(n_row, catalog->row_size, (void **)&source->catalog_row));
  return mill_alloc_bytes(n_row, widest, (void **)&source->scratch);
}

int mill_export_open(const char *path, mill_export_source **out)
{
  int err = MILL_OK;
  mill_export_source *source = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &source));
  MILL_TRY(mill_result_table_open(path, MILL_ERR_USAGE, &source->table));
  MILL_TRY(read_provenance(source));
  MILL_TRY(read_inputs(source));
  MILL_TRY(make_blocks(source));
  *out = source;
  source = NULL;
done:
  mill_export_close(source);
  return err;
}

void mill_export_close(mill_export_source *source)
{
  if (!source)
    return;
  mill_result_table_close(&source->table);
  mill_recorded_inputs_clear(&source->inputs);
  MILL_FREE(source->command, source->fits_row, source->catalog_row, source->scratch, source);
}

int mill_export_read(mill_export_source *source, int64_t at, int64_t n)
{
  const mill_stored_rows *fits = &source->table.fits;
  MILL_CHECK(mill_export_go_on());
  MILL_CHECK(mill_stored_rows_read(fits, at, n, source->fits_row, source->scratch));
  MILL_CHECK(
      mill_stored_rows_read(&source->table.catalog, at, n, source->catalog_row, source->scratch));
  for (int64_t k = 0; k < n; k++) {
    int is_whole;
    mill_stored_row_status(fits, source->fits_row + (size_t)k * fits->row_size, &is_whole);
    if (!is_whole)
      return MILL_ERROR(
          MILL_ERR_OUTPUT,
          "%s: row %lld is damaged: its CRC or STATUS is wrong; give the command of the fit "
          "again, which fits that row again",
          source->table.path, (long long)(at + k));
  }
  return MILL_OK;
}
