/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/result_inputs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/hdf5/hdf5_util.h"
#include "io/result/result_layout.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"

#define REFUSE(...) MILL_FAIL(MILL_ERR_OUTPUT, __VA_ARGS__)

#define FIELD(member) offsetof(mill_input_file, member)
#define SINCE_1970    "time of last change, since 1970-01-01 UTC"
#define GROUP         "catalog/files/"

static const struct file_text {
  const char *name;
  size_t field;
  int is_array; /* in the struct; else it is a pointer */
  const char *description;
} texts[MILL_INPUT_N_TEXT] = {
    [MILL_INPUT_PATH] = {GROUP "PATH", FIELD(path), 0, "input file as given"},
    [MILL_INPUT_REDROCK] = {GROUP "REDROCK", FIELD(redrock), 0,
                            "redrock file that has its Z and SPECTYPE, empty when there is none"},
    [MILL_INPUT_ERROR] = {GROUP "ERROR", FIELD(error), 0,
                          "why it could not be read, empty when it could"},
    [MILL_INPUT_FORMAT] = {GROUP "FORMAT", FIELD(format), 1,
                           "format of the file, empty when it could not be read"},
    [MILL_INPUT_FRAME] = {GROUP "FRAME", FIELD(frame), 1,
                          "frame of its wavelengths, and so of the velocities"},
};

static const struct file_number {
  const char *name;
  int is_real;
  size_t field;
  const char *unit, *description;
  const char *changed; /* message for a difference in a run that continues; NULL: not compared */
} numbers[MILL_INPUT_N_NUMBER] = {
    [MILL_INPUT_SIZE] = {GROUP "SIZE", 0, FIELD(size), "byte", "size", "its size has changed"},
    [MILL_INPUT_MTIME] = {GROUP "MTIME", 1, FIELD(mtime), "s", SINCE_1970,
                          "its time of change differs"},
    [MILL_INPUT_REDROCK_SIZE] = {GROUP "REDROCK_SIZE", 0, FIELD(redrock_size), "byte",
                                 "size of REDROCK where its rows were selected by it, else 0",
                                 "the size of its redrock file has changed"},
    [MILL_INPUT_REDROCK_MTIME] = {GROUP "REDROCK_MTIME", 1, FIELD(redrock_mtime), "s",
                                  SINCE_1970 " of REDROCK",
                                  "the time of change of its redrock file differs"},
    [MILL_INPUT_ROW_START] = {GROUP "ROW_START", 0, FIELD(row_start), "", "first row of the file",
                              NULL},
    [MILL_INPUT_N_ROW] = {GROUP "N_ROW", 0, FIELD(n_row), "", "rows of the file",
                          "its selected rows have changed"},
    [MILL_INPUT_ROWS_HASH] = {GROUP "ROWS_HASH", 0, FIELD(rows_hash), "",
                              "of the keys of its rows, before joining: targets, names, "
                              "exposures, their order",
                              "its selected rows have changed"},
};

static const char *text_of(const mill_input_file *file, int which)
{
  const char *at = (const char *)file + texts[which].field;
  return mill_result_text(texts[which].is_array ? at : *(const char *const *)at);
}

static const void *number_of(const mill_input_file *file, int which)
{
  return (const char *)file + numbers[which].field;
}

static hid_t number_type(int which)
{
  return numbers[which].is_real ? H5T_IEEE_F64LE : H5T_STD_I64LE;
}

/* ---- writing ---- */

static int write_column(hid_t file, const char *path, int n_file, const char *name, hid_t type,
                        const char *unit, const char *description, const void *packed)
{
  MILL_CHECK(mill_ph5_dataset(file, path, name, type, 1, n_file, 1, NULL, unit, description));
  if (n_file > 0)
    MILL_CHECK(mill_ph5_write_whole(file, path, name, type, packed));
  return MILL_OK;
}

static int write_text(hid_t file, const char *path, const mill_run_info *info, int which)
{
  int err = MILL_OK;
  char *packed = NULL;
  hid_t type = H5I_INVALID_HID;
  size_t n_byte = 1;
  for (int i = 0; i < info->n_file; i++) {
    const size_t n = strlen(text_of(&info->file[i], which));
    n_byte = n > n_byte ? n : n_byte;
  }
  MILL_TRY(mill_alloc_bytes((size_t)info->n_file, n_byte, (void **)&packed));
  for (int i = 0; i < info->n_file; i++) {
    const char *text = text_of(&info->file[i], which);
    memcpy(packed + (size_t)i * n_byte, text, strlen(text));
  }
  type = mill_ph5_text_type(n_byte);
  if (type < 0)
    REFUSE("%s: cannot write %s: %s", path, texts[which].name, mill_h5_reason());
  MILL_TRY(write_column(file, path, info->n_file, texts[which].name, type, "",
                        texts[which].description, packed));
done:
  MILL_H5_CLOSE(type);
  mill_free(packed);
  return err;
}

/* The numbers of all inputs, [n_file] for mill_free. */
static int pack_number(const mill_run_info *info, int which, int64_t **packed)
{
  MILL_CHECK(MILL_ALLOC(info->n_file, packed));
  for (int i = 0; i < info->n_file; i++)
    memcpy(&(*packed)[i], number_of(&info->file[i], which), sizeof **packed);
  return MILL_OK;
}

int mill_result_inputs_create(hid_t file, const char *path, const mill_run_info *info)
{
  int err = MILL_OK;
  for (int k = 0; k < MILL_INPUT_N_TEXT; k++)
    MILL_TRY(write_text(file, path, info, k));
  for (int k = 0; k < MILL_INPUT_N_NUMBER; k++) {
    int64_t *packed = NULL;
    err = pack_number(info, k, &packed);
    if (err == MILL_OK)
      err = write_column(file, path, info->n_file, numbers[k].name, number_type(k), numbers[k].unit,
                         numbers[k].description, packed);
    mill_free(packed);
    MILL_TRY(err);
  }
done:
  return err;
}

/* ---- reading ---- */

int mill_recorded_inputs_read(hid_t file, const char *path, mill_recorded_inputs *out)
{
  if (mill_ph5_read_attr_text(file, path, "provenance", "FOLDER", out->folder,
                              sizeof out->folder) != MILL_OK)
    out->folder[0] = '\0';
  for (int k = 0; k < MILL_INPUT_N_TEXT; k++) {
    MILL_CHECK(mill_ph5_read_texts(file, path, texts[k].name, &out->text[k]));
    if (out->text[k].n != out->text[0].n || out->text[k].n > INT32_MAX)
      return MILL_ERROR(MILL_ERR_OUTPUT,
                        "%s is damaged: the columns of /" GROUP " differ in length", path);
  }
  out->n_file = (int)out->text[0].n;
  for (int k = 0; k < MILL_INPUT_N_NUMBER; k++) {
    MILL_CHECK(MILL_ALLOC(out->n_file, &out->number[k]));
    MILL_CHECK(mill_ph5_read_whole(file, path, numbers[k].name, number_type(k), out->n_file,
                                   out->number[k]));
  }
  return MILL_OK;
}

void mill_recorded_inputs_clear(mill_recorded_inputs *inputs)
{
  for (int k = 0; k < MILL_INPUT_N_TEXT; k++)
    mill_free(inputs->text[k].text);
  for (int k = 0; k < MILL_INPUT_N_NUMBER; k++)
    mill_free(inputs->number[k]);
  memset(inputs, 0, sizeof *inputs);
}

/* Text i of a column into out [size]; MILL_ERR_RANGE: it is longer. */
static int take_text(const mill_recorded_inputs *inputs, int which, int i, char *out, size_t size)
{
  const mill_ph5_texts *column = &inputs->text[which];
  const char *text = column->text + (size_t)i * column->n_byte;
  const size_t n = strnlen(text, column->n_byte);
  if (n >= size)
    return MILL_ERROR(MILL_ERR_RANGE, "the text '%.60s...' of an input is too long", text);
  memcpy(out, text, n);
  out[n] = '\0';
  return MILL_OK;
}

int mill_recorded_path(const mill_recorded_inputs *inputs, int i, char *out, size_t size)
{
  char path[MILL_MAX_PATH];
  MILL_CHECK(take_text(inputs, MILL_INPUT_PATH, i, path, sizeof path));
  const int has_folder = path[0] != '/' && inputs->folder[0];
  if (snprintf(out, size, "%s%s%s", has_folder ? inputs->folder : "", has_folder ? "/" : "",
               path) >= (int)size)
    return MILL_ERROR(MILL_ERR_RANGE, "the path '%.60s...' of an input is too long", out);
  return MILL_OK;
}

/* ---- looking one up ---- */

int mill_input_absolute(const char *name, char out[PATH_MAX])
{
  char folder[PATH_MAX] = "";
  if (realpath(name, out))
    return MILL_OK;
  if (name[0] != '/' && !getcwd(folder, sizeof folder))
    return MILL_ERROR(MILL_ERR_USAGE, "the working folder is not known: %s", strerror(errno));
  if (snprintf(out, PATH_MAX, "%s%s%s", folder, folder[0] ? "/" : "", name) >= PATH_MAX)
    return MILL_ERROR(MILL_ERR_USAGE, "the path of %.100s... is too long", name);
  return MILL_OK;
}

static int by_path(const void *a, const void *b)
{
  return strcmp(((const mill_known_input *)a)->path, ((const mill_known_input *)b)->path);
}

int mill_known_inputs_read(hid_t file, const char *path, mill_known_inputs *out)
{
  int err = MILL_OK;
  char given[2 * MILL_MAX_PATH], absolute[PATH_MAX];
  mill_recorded_inputs was = {0};
  MILL_TRY(mill_recorded_inputs_read(file, path, &was));
  MILL_TRY(MILL_ALLOC(was.n_file, &out->input));
  for (int i = 0; i < was.n_file; i++) {
    mill_known_input *input = &out->input[i];
    MILL_TRY(mill_recorded_path(&was, i, given, sizeof given));
    MILL_TRY(mill_input_absolute(given, absolute));
    *input = (mill_known_input){.path = strdup(absolute),
                                .size = was.number[MILL_INPUT_SIZE][i],
                                .row_start = was.number[MILL_INPUT_ROW_START][i],
                                .n_row = was.number[MILL_INPUT_N_ROW][i]};
    memcpy(&input->mtime, &was.number[MILL_INPUT_MTIME][i], sizeof input->mtime);
    if (!input->path)
      MILL_FAIL(MILL_ERR_MEMORY, "no memory for the names of the inputs");
    out->n++;
  }
  if (out->n > 0)
    qsort(out->input, (size_t)out->n, sizeof *out->input, by_path);
done:
  mill_recorded_inputs_clear(&was);
  return err;
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

/* Is text i, a path, this one, perhaps in another spelling? */
static int is_path(const mill_recorded_inputs *was, int which, int i, const char *now)
{
  char then[MILL_MAX_PATH], absolute[2 * MILL_MAX_PATH];
  struct stat a, b;
  if (take_text(was, which, i, then, sizeof then) != MILL_OK)
    return 0;
  if (strcmp(then, now) == 0)
    return 1;
  const int has_folder = then[0] != '/' && was->folder[0];
  snprintf(absolute, sizeof absolute, "%s%s%s", has_folder ? was->folder : "",
           has_folder ? "/" : "", then);
  return then[0] && now[0] && stat(absolute, &a) == 0 && stat(now, &b) == 0 &&
         a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* what: text of a difference after the name of the file; NULL: the text is that name */
static int check_paths(const mill_recorded_inputs *was, const char *path, const mill_run_info *info,
                       int which, const char *what)
{
  for (int i = 0; i < info->n_file; i++) {
    const mill_ph5_texts *column = &was->text[which];
    const char *stored = column->text + (size_t)i * column->n_byte;
    const char *now = text_of(&info->file[i], which);
    const int selects =
        info->file[i].redrock_size > 0 || was->number[MILL_INPUT_REDROCK_SIZE][i] > 0;
    if (which == MILL_INPUT_REDROCK && !selects) /* it may change */
      continue;
    const int n = (int)strnlen(stored, column->n_byte);
    if (!is_path(was, which, i, now))
      return MILL_ERROR(MILL_ERR_OUTPUT,
                        "%s exists and was made from other inputs (%s%s%s%.*s, now %s)", path,
                        what ? info->file[i].path : "", what ? what : "", n > 0 ? "" : "none", n,
                        stored, now[0] ? now : "none");
  }
  return MILL_OK;
}

int mill_result_inputs_check(hid_t file, const char *path, const mill_run_info *info)
{
  int err = MILL_OK;
  mill_recorded_inputs was = {0};
  MILL_TRY(mill_recorded_inputs_read(file, path, &was));
  if (was.n_file != info->n_file)
    REFUSE("%s exists and was made from other inputs (%d files, now %d)", path, was.n_file,
           info->n_file);
  MILL_TRY(check_paths(&was, path, info, MILL_INPUT_PATH, NULL));
  MILL_TRY(check_paths(&was, path, info, MILL_INPUT_REDROCK, ": its redrock file was "));
  for (int k = 0; k < MILL_INPUT_N_NUMBER; k++)
    for (int i = 0; i < info->n_file && numbers[k].changed; i++) {
      const mill_input_file *now = &info->file[i];
      const char *redrock = now->redrock_size > 0 ? text_of(now, MILL_INPUT_REDROCK) : "";
      if (memcmp(&was.number[k][i], number_of(now, k), sizeof(int64_t)) != 0)
        REFUSE("%s exists and was made from other inputs (%s%s%s: %s)", path, now->path,
               redrock[0] ? ", rows selected by " : "", redrock, numbers[k].changed);
    }
done:
  mill_recorded_inputs_clear(&was);
  return err;
}

/* ---- files that were repaired ---- */

/* May the rows [start, start + n_row) of this file, which has changed, be read from it as it is
 * now?  n_all: rows of the result. */
static int check_repaired(hid_t file, const char *path, const mill_input_file *input, int64_t n_all,
                          int64_t start, int64_t n_row)
{
  mill_result_summary summary;
  memset(&summary, 0, sizeof summary);
  if (n_row != input->n_row)
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s: the input %s has changed: it has %lld selected rows now and had %lld "
                      "when the result was begun, and an existing result takes no new rows: fit "
                      "this file to another --output, and join the two with starmill merge",
                      path, input->path, (long long)input->n_row, (long long)n_row);
  MILL_CHECK(mill_result_layout_count(file, path, n_all, start, n_row, &summary));
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
  int err = MILL_OK, same;
  mill_recorded_inputs was = {0};
  mill_input_file *table = NULL;
  int64_t n_all = 0, start = 0;
  *recorded = NULL;
  *n_repaired = 0;
  MILL_TRY(MILL_ALLOC(info->n_file, &table));
  if (info->n_file > 0)
    memcpy(table, info->file, (size_t)info->n_file * sizeof *table);
  MILL_TRY(mill_recorded_inputs_read(file, path, &was));
  same = was.n_file == info->n_file; /* else mill_result_inputs_check tells more */
  for (int i = 0; i < info->n_file && same; i++) {
    same = is_path(&was, MILL_INPUT_PATH, i, info->file[i].path);
    n_all += was.number[MILL_INPUT_N_ROW][i];
  }
  for (int i = 0; i < info->n_file && same; i++) {
    mill_input_file *input = &table[i];
    const int64_t n_row = was.number[MILL_INPUT_N_ROW][i];
    double mtime;
    memcpy(&mtime, &was.number[MILL_INPUT_MTIME][i], sizeof mtime);
    if (was.number[MILL_INPUT_SIZE][i] != input->size || mtime != input->mtime) {
      MILL_TRY(check_repaired(file, path, input, n_all, start, n_row));
      input->size = was.number[MILL_INPUT_SIZE][i];
      input->mtime = mtime;
      ++*n_repaired;
    }
    start += n_row;
  }
  *recorded = table;
  table = NULL;
done:
  mill_recorded_inputs_clear(&was);
  mill_free(table);
  return err;
}

int mill_result_inputs_note(hid_t file, const char *path, const mill_run_info *info)
{
  int err = MILL_OK;
  hid_t type = H5I_INVALID_HID;
  mill_ph5_texts errors = {0};
  if (info->n_file == 0)
    goto done;
  for (int k = MILL_INPUT_SIZE; k <= MILL_INPUT_MTIME; k++) {
    int64_t *packed = NULL;
    err = pack_number(info, k, &packed);
    if (err == MILL_OK)
      err = mill_ph5_write_whole(file, path, numbers[k].name, number_type(k), packed);
    mill_free(packed);
    MILL_TRY(err);
  }
  MILL_TRY(mill_ph5_read_texts(file, path, texts[MILL_INPUT_ERROR].name, &errors));
  /* the column has the width of its first texts: a longer one is cut, and is in the log */
  for (int i = 0; i < info->n_file && i < errors.n; i++)
    strncpy(errors.text + (size_t)i * errors.n_byte, text_of(&info->file[i], MILL_INPUT_ERROR),
            errors.n_byte);
  type = mill_ph5_text_type(errors.n_byte);
  MILL_TRY(mill_ph5_write_whole(file, path, texts[MILL_INPUT_ERROR].name, type, errors.text));
done:
  MILL_H5_CLOSE(type);
  mill_free(errors.text);
  return err;
}
