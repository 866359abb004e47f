/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/result_inputs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/hdf5/output_file.h"
#include "io/result/stored_rows.h"
#include "src/system/regular_file.h"

#define GROUP "catalog/files"
enum { ERROR = 4, SIZE, MTIME }; /* columns that a later run may rewrite */

/* Text of column c of an input; "" if NULL. */
static const char *text_of(const mill_input_file *file, const mill_column *c)
{
  const char *at = (const char *)file + c->field, *text = at;
  if (c->source == MILL_FROM_TEXT)
    memcpy(&text, at, sizeof text);
  return text ? text : "";
}

/* ---- writing ---- */

/* Pack the inputs of a run as rows [n_file]; cut texts longer than their column. */
static int pack(const mill_run_info *info, const mill_columns *columns, char **rows)
{
  MILL_CHECK(mill_alloc_bytes((size_t)info->n_file, columns->row_size, (void **)rows));
  for (int i = 0; i < info->n_file; i++)
    for (int k = 0; k < columns->n_column; k++) {
      const mill_column *c = &columns->column[k];
      char *to = *rows + (size_t)i * columns->row_size + c->at;
      if (c->type == MILL_TYPE_TEXT)
        memcpy(to, text_of(&info->file[i], c), strnlen(text_of(&info->file[i], c), c->n_byte));
      else
        memcpy(to, (const char *)&info->file[i] + c->field, c->n_byte);
    }
  return MILL_OK;
}

static int open_table(hid_t file, int fd, const char *path, mill_table **table)
{
  mill_columns columns;
  mill_columns_of(MILL_TABLE_FILES, (const int[MILL_N_FILE_TEXT]){1, 1, 1, 1, 1}, &columns);
  return mill_table_open(file, fd, path, GROUP, -1, "", &columns, table);
}

static int write_columns(hid_t file, const char *path, const mill_run_info *info, int first,
                         int end)
{
  MILL_AT_END(mill_descriptor_close) int fd = -1;
  MILL_OWNED char *rows = NULL;
  MILL_AT_END(mill_table_close_at) mill_table *table = NULL;
  MILL_CHECK(mill_output_hold(path, &fd));
  MILL_CHECK(open_table(file, fd, path, &table));
  MILL_CHECK(pack(info, &table->columns, &rows));
  mill_table_part part = mill_table_range(table, 0, info->n_file, rows);
  part.first = first;
  part.end = end;
  return mill_table_write(&part);
}

int mill_result_inputs_create(hid_t file, const char *path, const mill_run_info *info)
{
  int length[MILL_N_FILE_TEXT] = {1, 1, 1, 1, 1}; /* longest text of each column, at least 1 */
  mill_columns columns;
  mill_columns_of(MILL_TABLE_FILES, length, &columns); /* for text_of; the lengths follow */
  for (int k = 0; k < MILL_N_FILE_TEXT; k++)
    for (int i = 0; i < info->n_file; i++) {
      const int n = (int)strlen(text_of(&info->file[i], &columns.column[k]));
      length[k] = n > length[k] ? n : length[k];
    }
  mill_columns_of(MILL_TABLE_FILES, length, &columns);
  MILL_CHECK(mill_table_create(file, path, GROUP, info->n_file, &columns));
  return write_columns(file, path, info, 0, columns.n_column);
}

/* ---- reading ---- */

/* Copy the rows to out->file, and their texts to out->text, to which members of out->file point. */
int mill_recorded_inputs_read(hid_t file, const char *path, mill_recorded_inputs *out)
{
  MILL_AT_END(mill_table_close_at) mill_table *table = NULL;
  char *text;
  MILL_OWNED char *rows = NULL;
  if (mill_h5_read_attr_text(MILL_OUTPUT(file, path), "provenance", "FOLDER", out->folder,
                             sizeof out->folder) != MILL_OK)
    out->folder[0] = '\0';
  MILL_CHECK(open_table(file, -1, path, &table));
  const mill_columns *columns = &table->columns;
  if (table->n_row > INT32_MAX)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: /" GROUP " has too many rows", path);
  MILL_CHECK(mill_alloc_bytes((size_t)table->n_row, columns->row_size, (void **)&rows));
  MILL_CHECK(mill_table_read(mill_table_range(table, 0, table->n_row, rows)));
  MILL_CHECK(MILL_ALLOC(table->n_row, &out->file));
  /* all texts of a row with their final zeros fit into this */
  MILL_CHECK(mill_alloc_bytes((size_t)table->n_row, columns->row_size + MILL_N_FILE_TEXT,
                              (void **)&out->text));
  out->n_file = (int)table->n_row;
  text = out->text;
  for (int i = 0; i < out->n_file; i++)
    for (int k = 0; k < columns->n_column; k++) {
      const mill_column *c = &columns->column[k];
      const char *from = rows + (size_t)i * columns->row_size + c->at;
      char *to = (char *)&out->file[i] + c->field;
      if (c->source == MILL_FROM_TEXT) {
        const char *const start = text;
        memcpy(to, &start, sizeof start);
        memcpy(text, from, c->n_byte);
        text += c->n_byte + 1;
      } else if (c->type == MILL_TYPE_TEXT) { /* format or frame, of equal size */
        snprintf(to, sizeof out->file->format, "%.*s", (int)c->n_byte, from);
      } else {
        memcpy(to, from, c->n_byte);
      }
    }
  return MILL_OK;
}

void mill_recorded_inputs_clear(mill_recorded_inputs *inputs)
{
  MILL_FREE(inputs->file, inputs->text);
  memset(inputs, 0, sizeof *inputs);
}

/* Prefix a relative recorded path with the fit's folder; returns 0 if out [size] is too small. */
static int place(const char *folder, const char *path, char *out, size_t size)
{
  const int has_folder = path[0] != '/' && folder[0];
  return snprintf(out, size, "%s%s%s", has_folder ? folder : "", has_folder ? "/" : "", path) <
         (int)size;
}

int mill_recorded_path(const mill_recorded_inputs *inputs, int i, char *out, size_t size)
{
  if (!place(inputs->folder, inputs->file[i].path, out, size))
    return MILL_ERROR(MILL_ERR_RANGE, "the path of an input is too long: shorten '%.60s...'", out);
  return MILL_OK;
}

/* ---- finding an input ---- */

int mill_input_absolute(const char *name, char out[PATH_MAX])
{
  char folder[PATH_MAX] = "";
  if (realpath(name, out))
    return MILL_OK;
  if (name[0] != '/' && !getcwd(folder, sizeof folder))
    return MILL_ERROR(MILL_ERR_USAGE, "the working folder is not known: %s", strerror(errno));
  if (snprintf(out, PATH_MAX, "%s%s%s", folder, folder[0] ? "/" : "", name) >= PATH_MAX)
    return MILL_ERROR(MILL_ERR_USAGE, "%.100s...: the path is longer than %d bytes; shorten it",
                      name, PATH_MAX - 1);
  return MILL_OK;
}

static int by_path(const void *a, const void *b)
{
  return strcmp(((const mill_known_input *)a)->path, ((const mill_known_input *)b)->path);
}

int mill_known_inputs_read(hid_t file, const char *path, mill_known_inputs *out)
{
  char given[2 * MILL_MAX_PATH], absolute[PATH_MAX];
  MILL_AT_END(mill_recorded_inputs_clear) mill_recorded_inputs was = {0};
  MILL_CHECK(mill_recorded_inputs_read(file, path, &was));
  MILL_CHECK(MILL_ALLOC(was.n_file, &out->input));
  for (int i = 0; i < was.n_file; i++) {
    mill_known_input *input = &out->input[i];
    MILL_CHECK(mill_recorded_path(&was, i, given, sizeof given));
    MILL_CHECK(mill_input_absolute(given, absolute));
    *input = (mill_known_input){.path = strdup(absolute),
                                .size = was.file[i].size,
                                .row_start = was.file[i].row_start,
                                .n_row = was.file[i].n_row,
                                .mtime = was.file[i].mtime};
    if (!input->path)
      return MILL_ERROR(MILL_ERR_MEMORY, "no memory for the names of the inputs");
    out->n++;
  }
  if (out->n > 0)
    qsort(out->input, (size_t)out->n, sizeof *out->input, by_path);
  return MILL_OK;
}

void mill_known_inputs_clear(mill_known_inputs *inputs)
{
  for (int i = 0; i < inputs->n; i++)
    free(inputs->input[i].path);
  mill_free(inputs->input);
  *inputs = (mill_known_inputs){0};
}

const mill_known_input *mill_known_inputs_find(const mill_known_inputs *inputs, const char *path)
{
  const mill_known_input key = {.path = (char *)(uintptr_t)path};
  return inputs->n > 0
             ? bsearch(&key, inputs->input, (size_t)inputs->n, sizeof *inputs->input, by_path)
             : NULL;
}

/* ---- comparing ---- */

int mill_recorded_is(const char *folder, const char *then, const char *now)
{
  char absolute[2 * MILL_MAX_PATH];
  struct stat a, b;
  return strcmp(then, now) == 0 ||
         (then[0] && now[0] && place(folder, then, absolute, sizeof absolute) &&
          stat(absolute, &a) == 0 && stat(now, &b) == 0 && a.st_dev == b.st_dev &&
          a.st_ino == b.st_ino);
}

/* Could the input be read then, and not now although it has not changed? */
static int is_lost(const mill_input_file *then, const mill_input_file *now)
{
  return now->error[0] && !then->error[0] &&
         (now->size < 0 || (now->size == then->size && now->mtime == then->mtime));
}

/* Fail unless the recorded path `then` and the path `now` name the same file.  They name an input
 * if input and what are NULL; else the redrock file of input: the message has input, then what. */
static int check_path(const char *path, const char *folder, const char *input, const char *what,
                      const char *then, const char *now)
{
  now = now ? now : "";
  if (mill_recorded_is(folder, then, now))
    return MILL_OK;
  return MILL_ERROR(MILL_ERR_OUTPUT, "%s exists and was made from other inputs (%s%s%s, now %s)",
                    path, what ? input : "", what ? what : "", then[0] ? then : "none",
                    now[0] ? now : "none");
}

int mill_result_inputs_lost(const mill_recorded_inputs *was, const char *path,
                            const mill_run_info *info, int finished)
{
  for (int i = 0; i < was->n_file && was->n_file == info->n_file; i++)
    if (is_lost(&was->file[i], &info->file[i]) &&
        mill_recorded_is(was->folder, was->file[i].path, info->file[i].path))
      return MILL_ERROR(finished ? MILL_ERR_OUTPUT : MILL_ERR_STOPPED,
                        "%s; the file could be read when %s was begun: give the same command again",
                        info->file[i].error, path);
  return MILL_OK;
}

int mill_result_inputs_check(const mill_recorded_inputs *was, const char *path,
                             const mill_run_info *info)
{
#define FIELD(member) offsetof(mill_input_file, member)
  static const struct {
    size_t field; /* offset of a member of eight bytes */
    const char *changed;
  } number[] = {{FIELD(size), "its size has changed"},
                {FIELD(mtime), "its time of change differs"},
                {FIELD(redrock_size), "the size of its redrock file has changed"},
                {FIELD(redrock_mtime), "the time of change of its redrock file differs"},
                {FIELD(n_row), "its selected rows have changed"},
                {FIELD(rows_hash), "its selected rows have changed"}};
  if (was->n_file != info->n_file)
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s exists and was made from other inputs (%d files, now %d)", path,
                      was->n_file, info->n_file);
  for (int i = 0; i < was->n_file; i++) /* NULL, NULL: the input itself, not its redrock file */
    MILL_CHECK(check_path(path, was->folder, NULL, NULL, was->file[i].path, info->file[i].path));
  for (int i = 0; i < was->n_file; i++)
    MILL_CHECK(check_path(path, was->folder, info->file[i].path, ": its redrock file was ",
                          was->file[i].redrock, info->file[i].redrock));
  for (size_t k = 0; k < sizeof number / sizeof *number; k++)
    for (int i = 0; i < was->n_file; i++) {
      const mill_input_file *then = &was->file[i], *now = &info->file[i];
      const char *redrock = k > 1 && now->redrock ? now->redrock : ""; /* not for size, mtime */
      if (memcmp((const char *)then + number[k].field, (const char *)now + number[k].field,
                 sizeof(int64_t)) != 0)
        return MILL_ERROR(MILL_ERR_OUTPUT, "%s exists and was made from other inputs (%s%s%s: %s)",
                          path, now->path, redrock[0] ? " with " : "", redrock,
                          then->error[0] && !now->error[0]
                              ? "it could not be read then: give it an --output of its own"
                              : number[k].changed);
    }
  return MILL_OK;
}

/* ---- repaired files ---- */

/* Check a changed input, whose rows begin at `start` of the n_all rows of the result.  Fail if it
 * has another number of rows, format or frame of wavelengths, or if any of its rows is fitted. */
static int check_repaired(hid_t file, const char *path, const mill_input_file *then,
                          const mill_input_file *input, int64_t n_all, int64_t start)
{
  const int64_t n_row = then->n_row;
  mill_result_summary summary = {0};
  if (n_row != input->n_row ||
      (n_row > 0 && (strcmp(then->format, input->format) || strcmp(then->frame, input->frame))))
    return MILL_ERROR(
        MILL_ERR_OUTPUT,
        "%s: the input %s has changed: it has %lld selected rows now and had %lld when the result "
        "was begun (format and frame %s %s, now %s %s): give it an --output of its own",
        path, input->path, (long long)input->n_row, (long long)n_row, then->format, then->frame,
        input->format, input->frame);
  MILL_CHECK(mill_stored_rows_count(file, path, n_all, start, n_row, &summary));
  const int64_t n_fitted = summary.n_status[MILL_STATUS_FITTED];
  if (n_fitted > 0)
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s: the input %s has changed, and %lld of its %lld rows are already fitted "
                      "from the old file: restore it",
                      path, input->path, (long long)n_fitted, (long long)n_row);
  return MILL_OK;
}

int mill_result_inputs_repaired(hid_t file, const char *path, const mill_run_info *info,
                                mill_input_file **recorded, int *n_repaired)
{
  int same;
  MILL_AT_END(mill_recorded_inputs_clear) mill_recorded_inputs was = {0};
  MILL_OWNED mill_input_file *table = NULL; /* inputs of info with recorded size and mtime */
  int64_t n_all = 0, start = 0;
  *recorded = NULL;
  *n_repaired = 0;
  MILL_CHECK(MILL_ALLOC(info->n_file, &table));
  if (info->n_file > 0)
    memcpy(table, info->file, (size_t)info->n_file * sizeof *table);
  MILL_CHECK(mill_recorded_inputs_read(file, path, &was));
  same = was.n_file == info->n_file; /* if they differ, mill_result_inputs_check reports it */
  for (int i = 0; i < info->n_file && same; i++) {
    same = mill_recorded_is(was.folder, was.file[i].path, info->file[i].path);
    n_all += was.file[i].n_row;
  }
  for (int i = 0; i < info->n_file && same; i++) {
    mill_input_file *input = &table[i];
    const mill_input_file *then = &was.file[i];
    if ((then->size != input->size || then->mtime != input->mtime) && !is_lost(then, input)) {
      MILL_CHECK(check_repaired(file, path, then, input, n_all, start));
      input->size = then->size;
      input->mtime = then->mtime;
      ++*n_repaired;
    }
    start += then->n_row;
  }
  return MILL_GIVE(&table, recorded);
}

int mill_result_inputs_note(hid_t file, const char *path, const mill_run_info *info)
{
  /* column ERROR keeps its width, so long errors are cut; the log has them in full */
  return write_columns(file, path, info, ERROR, MTIME + 1);
}
