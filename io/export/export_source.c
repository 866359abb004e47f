#include "io/export/export_source.h"

#include <stdio.h>
#include <string.h>

#include "kernels/base/error.h"
#include "src/system/stop_signal.h"

enum { BLOCK_BYTES = 16 << 20, MAX_BLOCK_ROWS = 1 << 16 };

const char *const mill_export_text_name[MILL_EXPORT_N_TEXT] = {[MILL_EXPORT_INPUT] = "PATH",
                                                               [MILL_EXPORT_FORMAT] = "FORMAT",
                                                               [MILL_EXPORT_FRAME] = "FRAME",
                                                               [MILL_EXPORT_REDROCK] = "REDROCK",
                                                               [MILL_EXPORT_ERROR] = "ERROR"};

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
              {"LIBRARY_HASH", source->library_hash, sizeof source->library_hash},
              {"FOLDER", source->folder, sizeof source->folder}};
  for (size_t i = 0; i < sizeof text / sizeof *text; i++)
    MILL_CHECK(
        mill_ph5_read_attr_text(id, path, "provenance", text[i].name, text[i].out, text[i].size));
  MILL_CHECK(mill_ph5_read_text(id, path, "provenance/COMMAND", &source->command));
  MILL_CHECK(mill_ph5_read_whole(id, path, "provenance/FINISHED", H5T_NATIVE_UINT8, 1, &finished));
  source->is_finished = finished != 0;
  return MILL_OK;
}

static int read_inputs(mill_export_source *source)
{
  char name[64];
  const hid_t id = source->table.file.id;
  const char *const path = source->table.path;
  const struct {
    const char *name;
    int64_t **out;
  } number[] = {{"catalog/files/SIZE", &source->size},
                {"catalog/files/ROW_START", &source->row_start},
                {"catalog/files/N_ROW", &source->n_row_of}};
  for (int i = 0; i < MILL_EXPORT_N_TEXT; i++) {
    snprintf(name, sizeof name, "catalog/files/%s", mill_export_text_name[i]);
    MILL_CHECK(mill_ph5_read_texts(id, path, name, &source->text[i]));
    if (source->text[i].n != source->text[0].n)
      return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: /%s and PATH differ in length", path,
                        name);
  }
  source->n_file = (int)source->text[0].n;
  for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
    MILL_CHECK(MILL_ALLOC(source->n_file, number[i].out));
    MILL_CHECK(mill_ph5_read_whole(id, path, number[i].name, H5T_STD_I64LE, source->n_file,
                                   *number[i].out));
  }
  for (int i = 0; i < source->n_file; i++)
    if (source->row_start[i] < 0 || source->n_row_of[i] < 0 ||
        source->row_start[i] > source->table.n_row - source->n_row_of[i])
      return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: it lacks rows of input %d", path, i);
  return MILL_OK;
}

/* Which rows are done.  A running fit adds more, which are left to the next export. */
static int find_kept(mill_export_source *source, int is_partial)
{
  int err = MILL_OK;
  int32_t *status = NULL;
  const int64_t n_row = source->table.n_row;
  MILL_TRY(MILL_ALLOC(n_row, &source->kept));
  MILL_TRY(MILL_ALLOC(MAX_BLOCK_ROWS, &status));
  for (int64_t at = 0; at < n_row; at += MAX_BLOCK_ROWS) {
    const int64_t n = n_row - at < MAX_BLOCK_ROWS ? n_row - at : MAX_BLOCK_ROWS;
    MILL_TRY(mill_export_numbers(source, "fits/STATUS", H5T_STD_I32LE, n_row, NULL, at, n, status));
    for (int64_t k = 0; k < n; k++) {
      source->kept[at + k] = status[k] != MILL_STATUS_NOT_DONE;
      source->n_kept += source->kept[at + k];
    }
  }
  if ((!source->is_finished || source->n_kept < n_row) && !is_partial)
    MILL_FAIL(MILL_ERR_USAGE,
              "%s is not finished: %lld of %lld rows are done; give the command of the fit again, "
              "or --unfinished to export these",
              source->table.path, (long long)source->n_kept, (long long)n_row);
done:
  mill_free(status);
  return err;
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

int mill_export_open(const char *path, int is_partial, mill_export_source **out)
{
  int err = MILL_OK;
  mill_export_source *source = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &source));
  MILL_TRY(mill_result_table_open(path, MILL_ERR_USAGE, &source->table));
  MILL_TRY(read_provenance(source));
  MILL_TRY(read_inputs(source));
  MILL_TRY(find_kept(source, is_partial));
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
  for (int i = 0; i < MILL_EXPORT_N_TEXT; i++)
    mill_free(source->text[i].text);
  MILL_FREE(source->kept, source->command, source->size, source->row_start, source->n_row_of,
            source->fits_row, source->catalog_row, source->scratch, source);
}

int mill_export_read(mill_export_source *source, int64_t at, int64_t n)
{
  const mill_stored_rows *fits = &source->table.fits;
  MILL_CHECK(mill_export_go_on());
  MILL_CHECK(mill_stored_rows_read(fits, at, n, source->fits_row, source->scratch));
  MILL_CHECK(
      mill_stored_rows_read(&source->table.catalog, at, n, source->catalog_row, source->scratch));
  for (int64_t k = 0; k < n; k++) {
    int is_whole = 1;
    if (source->kept[at + k])
      mill_stored_row_status(fits, source->fits_row + (size_t)k * fits->row_size, &is_whole);
    if (!is_whole)
      return MILL_ERROR(MILL_ERR_OUTPUT,
                        "%s: row %lld is damaged: its CRC is wrong; give the command of the fit "
                        "again, which fits that row again",
                        source->table.path, (long long)(at + k));
  }
  return MILL_OK;
}

int mill_export_get_text(const mill_export_source *source, int which, int i, char *out, size_t size)
{
  const mill_ph5_texts *texts = &source->text[which];
  const char *text = texts->text + (size_t)i * texts->n_byte;
  const size_t n = strnlen(text, texts->n_byte);
  if (n >= size)
    return MILL_ERROR(MILL_ERR_RANGE, "the path '%.60s...' of an input is too long", text);
  memcpy(out, text, n);
  out[n] = '\0';
  return MILL_OK;
}

int mill_export_input(const mill_export_source *source, int i, char *out, size_t size)
{
  char path[MILL_MAX_PATH];
  MILL_CHECK(mill_export_get_text(source, MILL_EXPORT_INPUT, i, path, sizeof path));
  const int is_relative = path[0] != '/';
  if (snprintf(out, size, "%s%s%s", is_relative ? source->folder : "", is_relative ? "/" : "",
               path) >= (int)size)
    return MILL_ERROR(MILL_ERR_RANGE, "the path '%.60s...' of an input is too long", out);
  return MILL_OK;
}

int mill_export_numbers(const mill_export_source *source, const char *name, hid_t type,
                        int64_t n_total, const int64_t *row, int64_t at, int64_t n, void *out)
{
  int err = MILL_OK;
  const char *const path = source->table.path;
  hid_t dataset = H5I_INVALID_HID;
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  MILL_TRY(mill_ph5_open_dataset(source->table.file.id, path, name, type, 1, n_total, 1, &dataset));
  MILL_TRY(row ? mill_ph5_select(path, 1, n_total, 1, row, n, &rows)
               : mill_ph5_select_range(path, 1, n_total, 1, at, n, &rows));
  MILL_TRY(mill_ph5_read(dataset, path, name, type, &rows, out));
done:
  mill_ph5_unselect(&rows);
  MILL_H5_CLOSE(dataset);
  return err;
}
