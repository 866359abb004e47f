#include "io/result/result_inputs.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "io/hdf5/hdf5_util.h"
#include "io/hdf5/parallel_hdf5.h"
#include "io/result/result_layout.h"
#include "kernels/base/error.h"

#define REFUSE(...) MILL_FAIL(MILL_ERR_OUTPUT, __VA_ARGS__)

#define PATH          "catalog/files/PATH"
#define SIZE          "catalog/files/SIZE"
#define MTIME         "catalog/files/MTIME"
#define N_ROW         "catalog/files/N_ROW"
#define REDROCK       "catalog/files/REDROCK"
#define ERROR         "catalog/files/ERROR"
#define FIELD(member) offsetof(mill_input_file, member)
#define SINCE_1970    "time of last change, since 1970-01-01 UTC"

/* A column of texts. */
typedef struct file_text {
  const char *name;
  size_t field;
  int is_array; /* in the struct; else it is a pointer */
  const char *description;
} file_text;

static const file_text path_text = {PATH, FIELD(path), 0, "input file as given"};
static const file_text redrock_text = {
    REDROCK, FIELD(redrock), 0, "redrock file by which its rows were selected, empty when by none"};
static const file_text other_texts[] = {
    {ERROR, FIELD(error), 0, "why it could not be read, empty when it could"},
    {"catalog/files/FORMAT", FIELD(format), 1,
     "format of the file, empty when it could not be read"},
    {"catalog/files/FRAME", FIELD(frame), 1, "frame of its wavelengths, and so of the velocities"},
};

/* A column of eight-byte numbers. */
typedef struct file_number {
  const char *name;
  int is_real;
  size_t field;
  const char *unit, *description;
  const char *changed; /* what a difference means to a run that continues; NULL: it is not asked */
} file_number;

static const file_number file_numbers[] = {
    {SIZE, 0, FIELD(size), "byte", "size", "its size has changed"},
    {MTIME, 1, FIELD(mtime), "s", SINCE_1970, "its time of change differs"},
    {"catalog/files/REDROCK_SIZE", 0, FIELD(redrock_size), "byte", "size of REDROCK",
     "the size of its redrock file has changed"},
    {"catalog/files/REDROCK_MTIME", 1, FIELD(redrock_mtime), "s", SINCE_1970 " of REDROCK",
     "the time of change of its redrock file differs"},
    {"catalog/files/ROW_START", 0, FIELD(row_start), "", "first row of the file", NULL},
    {N_ROW, 0, FIELD(n_row), "", "rows of the file", "its selected rows have changed"},
    {"catalog/files/ROWS_HASH", 0, FIELD(rows_hash), "",
     "of the keys of its rows, before joining: targets, names, exposures, their order",
     "its selected rows have changed"},
};
enum {
  N_NUMBER = sizeof file_numbers / sizeof file_numbers[0],
  N_OTHER = sizeof other_texts / sizeof other_texts[0]
};

static const char *text_of(const mill_input_file *file, const file_text *column)
{
  const char *at = (const char *)file + column->field;
  const char *text = column->is_array ? at : *(const char *const *)at;
  return text ? text : "";
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

static int write_text(hid_t file, const char *path, const mill_run_info *info,
                      const file_text *column)
{
  int err = MILL_OK;
  char *packed = NULL;
  hid_t type = H5I_INVALID_HID;
  size_t n_byte = 1;
  for (int i = 0; i < info->n_file; i++) {
    const size_t n = strlen(text_of(&info->file[i], column));
    n_byte = n > n_byte ? n : n_byte;
  }
  MILL_TRY(mill_alloc_bytes((size_t)info->n_file, n_byte, (void **)&packed));
  for (int i = 0; i < info->n_file; i++) {
    const char *text = text_of(&info->file[i], column);
    memcpy(packed + (size_t)i * n_byte, text, strlen(text));
  }
  type = mill_ph5_text_type(n_byte);
  if (type < 0)
    REFUSE("%s: cannot write %s: %s", path, column->name, mill_h5_reason());
  MILL_TRY(
      write_column(file, path, info->n_file, column->name, type, "", column->description, packed));
done:
  MILL_H5_CLOSE(type);
  mill_free(packed);
  return err;
}

static int write_number(hid_t file, const char *path, const mill_run_info *info,
                        const file_number *number)
{
  int err = MILL_OK;
  char *packed = NULL;
  MILL_TRY(mill_alloc_bytes((size_t)info->n_file, 8, (void **)&packed));
  for (int i = 0; i < info->n_file; i++)
    memcpy(packed + 8 * (size_t)i, (const char *)&info->file[i] + number->field, 8);
  MILL_TRY(write_column(file, path, info->n_file, number->name,
                        number->is_real ? H5T_IEEE_F64LE : H5T_STD_I64LE, number->unit,
                        number->description, packed));
done:
  mill_free(packed);
  return err;
}

int mill_result_inputs_create(hid_t file, const char *path, const mill_run_info *info)
{
  MILL_CHECK(write_text(file, path, info, &path_text));
  for (int k = 0; k < N_NUMBER; k++)
    MILL_CHECK(write_number(file, path, info, &file_numbers[k]));
  MILL_CHECK(write_text(file, path, info, &redrock_text));
  for (int k = 0; k < N_OTHER; k++)
    MILL_CHECK(write_text(file, path, info, &other_texts[k]));
  return MILL_OK;
}

/* ---- comparing ---- */

/* Is text i of a column, which is padded with zeros, this one? */
static int is_text(const mill_ph5_texts *texts, int64_t i, const char *text)
{
  const char *stored = texts->text + (size_t)i * texts->n_byte;
  const size_t n = strnlen(stored, texts->n_byte);
  return n == strlen(text) && memcmp(stored, text, n) == 0;
}

/* The folder that relative paths of a result count from; empty where it is not known. */
static void read_folder(hid_t file, const char *path, char *out, size_t size)
{
  if (mill_ph5_read_attr_text(file, path, "provenance", "FOLDER", out, size) != MILL_OK)
    out[0] = '\0';
}

/* Is path i of a column this one, perhaps in another spelling? */
static int is_path(const char *folder, const mill_ph5_texts *texts, int64_t i, const char *now)
{
  char then[2 * PATH_MAX];
  struct stat a, b;
  const char *stored = texts->text + (size_t)i * texts->n_byte;
  const int n = (int)strnlen(stored, texts->n_byte);
  if (is_text(texts, i, now))
    return 1;
  if (n == 0 || !now[0])
    return 0;
  const int is_relative = stored[0] != '/' && folder[0];
  snprintf(then, sizeof then, "%s%s%.*s", is_relative ? folder : "", is_relative ? "/" : "", n,
           stored);
  return stat(then, &a) == 0 && stat(now, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* what: what a difference is called after the name of the file; NULL: the text is that name */
static int check_text(hid_t file, const char *path, const mill_run_info *info,
                      const file_text *column, const char *what)
{
  int err = MILL_OK;
  char folder[PATH_MAX];
  mill_ph5_texts was;
  read_folder(file, path, folder, sizeof folder);
  if (mill_ph5_read_texts(file, path, column->name, &was) != MILL_OK)
    REFUSE("%s: is damaged, /%s cannot be read", path, column->name);
  if (was.n != info->n_file)
    REFUSE("%s exists and was made from other inputs (%lld files, now %d)", path, (long long)was.n,
           info->n_file);
  for (int i = 0; i < info->n_file; i++) {
    const char *stored = was.text + (size_t)i * was.n_byte, *now = text_of(&info->file[i], column);
    const int n = (int)strnlen(stored, was.n_byte);
    if (!is_path(folder, &was, i, now))
      REFUSE("%s exists and was made from other inputs (%s%s%s%.*s, now %s)", path,
             what ? info->file[i].path : "", what ? what : "", n > 0 ? "" : "none", n, stored,
             now[0] ? now : "none");
  }
done:
  mill_free(was.text);
  return err;
}

static int check_number(hid_t file, const char *path, const mill_run_info *info,
                        const file_number *number)
{
  int err = MILL_OK;
  char *stored = NULL;
  MILL_TRY(mill_alloc_bytes((size_t)info->n_file, 8, (void **)&stored));
  if (mill_ph5_read_whole(file, path, number->name,
                          number->is_real ? H5T_IEEE_F64LE : H5T_STD_I64LE, info->n_file,
                          stored) != MILL_OK)
    REFUSE("%s: is damaged, /%s cannot be read", path, number->name);
  for (int i = 0; i < info->n_file; i++) {
    const mill_input_file *now = &info->file[i];
    const char *redrock = text_of(now, &redrock_text);
    if (memcmp(stored + 8 * (size_t)i, (const char *)now + number->field, 8) != 0)
      REFUSE("%s exists and was made from other inputs (%s%s%s: %s)", path, now->path,
             redrock[0] ? ", rows selected by " : "", redrock, number->changed);
  }
done:
  mill_free(stored);
  return err;
}

int mill_result_inputs_check(hid_t file, const char *path, const mill_run_info *info)
{
  MILL_CHECK(check_text(file, path, info, &path_text, NULL));
  MILL_CHECK(check_text(file, path, info, &redrock_text, ": its redrock file was "));
  for (int k = 0; k < N_NUMBER; k++)
    if (file_numbers[k].changed)
      MILL_CHECK(check_number(file, path, info, &file_numbers[k]));
  return MILL_OK;
}

/* ---- files that were repaired ---- */

/* Are these the inputs, by number and name?  mill_result_inputs_check tells more. */
static int are_inputs(hid_t file, const char *path, const mill_run_info *info, int *same)
{
  int err = MILL_OK;
  char folder[PATH_MAX];
  mill_ph5_texts was;
  read_folder(file, path, folder, sizeof folder);
  MILL_TRY(mill_ph5_read_texts(file, path, PATH, &was));
  *same = was.n == info->n_file;
  for (int i = 0; i < info->n_file && *same; i++)
    *same = is_path(folder, &was, i, info->file[i].path);
done:
  mill_free(was.text);
  return err;
}

/* What /catalog/files has of the inputs, [n_file] each. */
typedef struct recorded_files {
  int64_t *size, *n_row;
  double *mtime;
} recorded_files;

static int read_recorded(hid_t file, const char *path, int n_file, recorded_files *was)
{
  MILL_CHECK(MILL_ALLOC(n_file, &was->size));
  MILL_CHECK(MILL_ALLOC(n_file, &was->n_row));
  MILL_CHECK(MILL_ALLOC(n_file, &was->mtime));
  MILL_CHECK(mill_ph5_read_whole(file, path, SIZE, H5T_NATIVE_INT64, n_file, was->size));
  MILL_CHECK(mill_ph5_read_whole(file, path, N_ROW, H5T_NATIVE_INT64, n_file, was->n_row));
  return mill_ph5_read_whole(file, path, MTIME, H5T_NATIVE_DOUBLE, n_file, was->mtime);
}

/* May the rows [start, start + n_row) of this file, which has changed, be read from it as it is
 * now?  n_all: rows of the result. */
static int check_repaired(hid_t file, const char *path, const mill_input_file *input, int64_t n_all,
                          int64_t start, int64_t n_row)
{
  mill_result_summary summary;
  memset(&summary, 0, sizeof summary);
  if (n_row != input->n_row)
    return MILL_ERROR(
        MILL_ERR_OUTPUT,
        "%s: the input %s has changed: it has %lld selected rows now and had %lld when the "
        "result was begun, and rows cannot be put into a result that is there: fit this file "
        "to another --output, leave this result as it is, and join the two by starmill "
        "merge",
        path, input->path, (long long)input->n_row, (long long)n_row);
  MILL_CHECK(mill_result_layout_count(file, path, n_all, start, n_row, &summary));
  const int64_t n_fitted = summary.n_status[MILL_STATUS_FITTED];
  if (n_fitted > 0)
    return MILL_ERROR(
        MILL_ERR_OUTPUT,
        "%s: the input %s has changed, and %lld of its %lld rows are fitted already from "
        "what it was: bring that file back",
        path, input->path, (long long)n_fitted, (long long)n_row);
  return MILL_OK;
}

int mill_result_inputs_repaired(hid_t file, const char *path, const mill_run_info *info,
                                mill_input_file **recorded, int *n_repaired)
{
  int err = MILL_OK, same = 0;
  recorded_files was = {0};
  mill_input_file *table = NULL;
  int64_t n_all = 0;
  *recorded = NULL;
  *n_repaired = 0;
  MILL_TRY(MILL_ALLOC(info->n_file, &table));
  if (info->n_file > 0)
    memcpy(table, info->file, (size_t)info->n_file * sizeof *table);
  MILL_TRY(are_inputs(file, path, info, &same));
  if (same)
    MILL_TRY(read_recorded(file, path, info->n_file, &was));
  for (int i = 0; i < info->n_file && same; i++)
    n_all += was.n_row[i];
  int64_t start = 0;
  for (int i = 0; i < info->n_file && same; i++) {
    mill_input_file *input = &table[i];
    if (was.size[i] != input->size || was.mtime[i] != input->mtime) {
      MILL_TRY(check_repaired(file, path, input, n_all, start, was.n_row[i]));
      input->size = was.size[i];
      input->mtime = was.mtime[i];
      ++*n_repaired;
    }
    start += was.n_row[i];
  }
  *recorded = table;
  table = NULL;
done:
  MILL_FREE(table, was.size, was.n_row, was.mtime);
  return err;
}

int mill_result_inputs_note(hid_t file, const char *path, const mill_run_info *info)
{
  int err = MILL_OK;
  int64_t *size = NULL;
  double *mtime = NULL;
  hid_t type = H5I_INVALID_HID;
  mill_ph5_texts errors = {0};
  if (info->n_file == 0)
    goto done;
  MILL_TRY(MILL_ALLOC(info->n_file, &size));
  MILL_TRY(MILL_ALLOC(info->n_file, &mtime));
  MILL_TRY(mill_ph5_read_texts(file, path, ERROR, &errors));
  for (int i = 0; i < info->n_file && i < errors.n; i++) {
    /* the column has the width of its first texts: a longer one is cut, and is in the log */
    strncpy(errors.text + (size_t)i * errors.n_byte, text_of(&info->file[i], &other_texts[0]),
            errors.n_byte);
    size[i] = info->file[i].size;
    mtime[i] = info->file[i].mtime;
  }
  type = mill_ph5_text_type(errors.n_byte);
  MILL_TRY(mill_ph5_write_whole(file, path, SIZE, H5T_NATIVE_INT64, size));
  MILL_TRY(mill_ph5_write_whole(file, path, MTIME, H5T_NATIVE_DOUBLE, mtime));
  MILL_TRY(mill_ph5_write_whole(file, path, ERROR, type, errors.text));
done:
  MILL_H5_CLOSE(type);
  MILL_FREE(errors.text, size, mtime);
  return err;
}
