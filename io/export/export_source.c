#include "io/export/export_source.h"

#include <stdio.h>
#include <string.h>

#include "io/result/result_layout.h"
#include "kernels/base/error.h"
#include "src/system/stop_signal.h"

enum { BLOCK_BYTES = 16 << 20, MAX_BLOCK_ROWS = 1 << 16 };

int mill_export_go_on(void)
{
  if (mill_stop_reason() != MILL_STOP_NONE)
    return MILL_ERROR(MILL_ERR_STOPPED, "stopped in good order; give the same command again");
  return MILL_OK;
}

static int check_format(const mill_export_source *source)
{
  int version = 0;
  if (!mill_result_layout_is_result(source->file.id, source->path, &version))
    return MILL_ERROR(MILL_ERR_USAGE, "%s is no result of starmill fit", source->path);
  if (version != MILL_RESULT_FORMAT)
    return MILL_ERROR(
        MILL_ERR_USAGE,
        "%s has format %d, this program exports %d: export it with the version that made it",
        source->path, version, MILL_RESULT_FORMAT);
  return MILL_OK;
}

static int read_provenance(mill_export_source *source)
{
  uint8_t finished = 0;
  const hid_t id = source->file.id;
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
    MILL_CHECK(mill_ph5_read_attr_text(id, source->path, "provenance", text[i].name, text[i].out,
                                       text[i].size));
  MILL_CHECK(mill_ph5_read_text(id, source->path, "provenance/COMMAND", &source->command));
  MILL_CHECK(
      mill_ph5_read_whole(id, source->path, "provenance/FINISHED", H5T_NATIVE_UINT8, 1, &finished));
  source->is_finished = finished != 0;
  return MILL_OK;
}

static int read_inputs(mill_export_source *source)
{
  const hid_t id = source->file.id;
  const struct {
    const char *name;
    mill_ph5_texts *out;
  } text[] = {{"catalog/files/PATH", &source->input},
              {"catalog/files/REDROCK", &source->redrock},
              {"catalog/files/FORMAT", &source->format},
              {"catalog/files/ERROR", &source->error}};
  const struct {
    const char *name;
    int64_t **out;
  } number[] = {{"catalog/files/SIZE", &source->size},
                {"catalog/files/ROW_START", &source->row_start},
                {"catalog/files/N_ROW", &source->n_row_of}};
  for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
    MILL_CHECK(mill_ph5_read_texts(id, source->path, text[i].name, text[i].out));
    if (text[i].out->n != source->input.n)
      return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: /%s has another length than PATH",
                        source->path, text[i].name);
  }
  source->n_file = (int)source->input.n;
  for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
    MILL_CHECK(MILL_ALLOC(source->n_file, number[i].out));
    MILL_CHECK(mill_ph5_read_whole(id, source->path, number[i].name, H5T_STD_I64LE, source->n_file,
                                   *number[i].out));
  }
  for (int i = 0; i < source->n_file; i++)
    if (source->row_start[i] < 0 || source->n_row_of[i] < 0 ||
        source->row_start[i] > source->n_row - source->n_row_of[i])
      return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: the rows of input %d are not in it",
                        source->path, i);
  return MILL_OK;
}

/* Which rows are done.  A fit that runs makes more of them, which are left to the next export. */
static int find_kept(mill_export_source *source, int is_partial)
{
  int err = MILL_OK;
  int32_t *status = NULL;
  MILL_TRY(MILL_ALLOC(source->n_row, &source->kept));
  MILL_TRY(MILL_ALLOC(MAX_BLOCK_ROWS, &status));
  for (int64_t at = 0; at < source->n_row; at += MAX_BLOCK_ROWS) {
    const int64_t n = source->n_row - at < MAX_BLOCK_ROWS ? source->n_row - at : MAX_BLOCK_ROWS;
    MILL_TRY(
        mill_export_numbers(source, "fits/STATUS", H5T_STD_I32LE, source->n_row, at, n, status));
    for (int64_t k = 0; k < n; k++)
      source->kept[at + k] = status[k] != MILL_STATUS_NOT_DONE;
    for (int64_t k = 0; k < n; k++)
      source->n_kept += source->kept[at + k];
  }
  if ((!source->is_finished || source->n_kept < source->n_row) && !is_partial)
    MILL_FAIL(MILL_ERR_USAGE,
              "%s is not finished: %lld of %lld rows are done; give the command of the fit again, "
              "or --unfinished to export these",
              source->path, (long long)source->n_kept, (long long)source->n_row);
done:
  mill_free(status);
  return err;
}

static int make_blocks(mill_export_source *source)
{
  const mill_stored_rows *fits = &source->fits, *catalog = &source->catalog;
  const size_t widest = fits->widest > catalog->widest ? fits->widest : catalog->widest;
  const size_t n = BLOCK_BYTES / (fits->row_size + catalog->row_size);
  source->block_rows = n < 1 ? 1 : n > MAX_BLOCK_ROWS ? MAX_BLOCK_ROWS : (int64_t)n;
  const size_t n_row = (size_t)source->block_rows;
  MILL_CHECK(mill_alloc_bytes(n_row, fits->row_size, (void **)&source->fits_row));
  MILL_CHECK(mill_alloc_bytes(n_row, catalog->row_size, (void **)&source->catalog_row));
  return mill_alloc_bytes(n_row, widest, (void **)&source->scratch);
}

int mill_export_open(const char *path, int is_partial, mill_export_source **out)
{
  int err = MILL_OK;
  size_t n_row = 0;
  mill_export_source *source = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &source));
  source->path = path;
  source->file.id = H5I_INVALID_HID;
  MILL_TRY(mill_h5_open(path, MILL_ERR_USAGE, &source->file));
  MILL_TRY(mill_h5_scan(&source->file));
  MILL_TRY(check_format(source));
  MILL_TRY(mill_h5_shape(&source->file, "fits/TARGETID", 1, &n_row));
  source->n_row = (int64_t)n_row;
  MILL_TRY(read_provenance(source));
  MILL_TRY(read_inputs(source));
  MILL_TRY(find_kept(source, is_partial));
  MILL_TRY(mill_stored_rows_fits(source->file.id, path, source->n_row, &source->fits));
  MILL_TRY(mill_stored_rows_catalog(source->file.id, path, source->n_row, &source->catalog));
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
  mill_stored_rows_close(&source->fits);
  mill_stored_rows_close(&source->catalog);
  mill_h5_close(&source->file);
  MILL_FREE(source->kept, source->command, source->input.text, source->redrock.text,
            source->format.text, source->error.text, source->size, source->row_start,
            source->n_row_of, source->fits_row, source->catalog_row, source->scratch, source);
}

int mill_export_read(mill_export_source *source, int64_t at, int64_t n)
{
  MILL_CHECK(mill_export_go_on());
  MILL_CHECK(mill_stored_rows_read(&source->fits, at, n, source->fits_row, source->scratch));
  MILL_CHECK(mill_stored_rows_read(&source->catalog, at, n, source->catalog_row, source->scratch));
  for (int64_t k = 0; k < n; k++) {
    int is_whole = 0;
    if (source->kept[at + k])
      mill_stored_row_status(&source->fits, source->fits_row + (size_t)k * source->fits.row_size,
                             &is_whole);
    if (source->kept[at + k] && !is_whole)
      return MILL_ERROR(
          MILL_ERR_OUTPUT,
          "%s: row %lld is damaged: its values are not those that were written; give the "
          "command of the fit again, which fits it again",
          source->path, (long long)(at + k));
  }
  return MILL_OK;
}

int mill_export_text(const mill_ph5_texts *texts, int i, char *out, size_t size)
{
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
  const int is_relative = source->input.text[(size_t)i * source->input.n_byte] != '/';
  const size_t n = is_relative ? (size_t)snprintf(out, size, "%s/", source->folder) : 0;
  if (n >= size)
    return MILL_ERROR(MILL_ERR_RANGE, "the folder '%.60s...' of the fit is too long",
                      source->folder);
  return mill_export_text(&source->input, i, out + n, size - n);
}

int mill_export_numbers(const mill_export_source *source, const char *name, hid_t type,
                        int64_t n_total, int64_t at, int64_t n, void *out)
{
  int err = MILL_OK;
  hid_t dataset = H5I_INVALID_HID;
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  MILL_TRY(
      mill_ph5_open_dataset(source->file.id, source->path, name, type, 1, n_total, 1, &dataset));
  MILL_TRY(mill_ph5_select_range(source->path, 1, n_total, 1, at, n, &rows));
  MILL_TRY(mill_ph5_read(dataset, source->path, name, type, &rows, out));
done:
  mill_ph5_unselect(&rows);
  MILL_H5_CLOSE(dataset);
  return err;
}
