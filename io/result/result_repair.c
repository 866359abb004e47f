#include "io/result/result_repair.h"

#include <string.h>

#include "io/hdf5/hdf5_util.h"
#include "io/hdf5/parallel_hdf5.h"
#include "io/result/result_layout.h"
#include "kernels/base/error.h"

#define PATH  "catalog/files/PATH"
#define SIZE  "catalog/files/SIZE"
#define MTIME "catalog/files/MTIME"
#define N_ROW "catalog/files/N_ROW"
#define ERROR "catalog/files/ERROR"

/* A column of /catalog/files, eight bytes a file, into value. */
static int read_numbers(hid_t file, const char *path, const char *name, hid_t file_type, hid_t type,
                        int n_file, void *value)
{
  int err = MILL_OK;
  hid_t dataset = H5I_INVALID_HID;
  MILL_TRY(mill_ph5_open_dataset(file, path, name, file_type, 1, n_file, 1, &dataset));
  if (n_file > 0 && H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: is damaged, /%s cannot be read: %s", path, name,
              mill_h5_reason());
done:
  if (dataset >= 0)
    H5Dclose(dataset);
  return err;
}

/* A text column of /catalog/files: open, with its type; *n_byte of a text. */
static int open_texts(hid_t file, const char *path, const char *name, hid_t *dataset, hid_t *type,
                      size_t *n_byte, int64_t *n)
{
  int err = MILL_OK;
  hid_t space = H5I_INVALID_HID;
  *type = H5I_INVALID_HID;
  *dataset = H5Dopen2(file, name, H5P_DEFAULT);
  if (*dataset >= 0) {
    *type = H5Dget_type(*dataset);
    space = H5Dget_space(*dataset);
  }
  if (*type < 0 || space < 0 || H5Tget_class(*type) != H5T_STRING || H5Tis_variable_str(*type) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: is damaged, /%s cannot be read: %s", path, name,
              mill_h5_reason());
  *n_byte = H5Tget_size(*type);
  *n = (int64_t)H5Sget_simple_extent_npoints(space);
done:
  if (space >= 0)
    H5Sclose(space);
  return err;
}

static void close_texts(hid_t dataset, hid_t type)
{
  if (type >= 0)
    H5Tclose(type);
  if (dataset >= 0)
    H5Dclose(dataset);
}

/* Are these the inputs, by number and name?  What else there is check_identity tells better. */
static int are_inputs(hid_t file, const char *path, const mill_run_info *info, int *same)
{
  int err = MILL_OK;
  hid_t dataset = H5I_INVALID_HID, type = H5I_INVALID_HID;
  char *text = NULL;
  size_t n_byte = 0;
  int64_t n = 0;
  *same = 0;
  MILL_TRY(open_texts(file, path, PATH, &dataset, &type, &n_byte, &n));
  if (n != info->n_file)
    goto done;
  MILL_TRY(mill_alloc_bytes((size_t)n, n_byte, (void **)&text));
  if (n > 0 && H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: is damaged, /" PATH " cannot be read: %s", path,
              mill_h5_reason());
  *same = 1;
  for (int64_t i = 0; i < n && *same; i++) {
    const char *stored = text + (size_t)i * n_byte, *now = info->file[i].path;
    *same = strnlen(stored, n_byte) == strlen(now) && memcmp(stored, now, strlen(now)) == 0;
  }
done:
  mill_free(text);
  close_texts(dataset, type);
  return err;
}

/* What /catalog/files has of them, [n_file] each. */
typedef struct recorded_files {
  int64_t *size, *n_row;
  double *mtime;
} recorded_files;

static int read_recorded(hid_t file, const char *path, int n_file, recorded_files *was)
{
  int err = MILL_OK;
  const hid_t i64 = H5T_NATIVE_INT64;
  MILL_TRY(MILL_ALLOC(n_file, &was->size));
  MILL_TRY(MILL_ALLOC(n_file, &was->n_row));
  MILL_TRY(MILL_ALLOC(n_file, &was->mtime));
  MILL_TRY(read_numbers(file, path, SIZE, H5T_STD_I64LE, i64, n_file, was->size));
  MILL_TRY(read_numbers(file, path, N_ROW, H5T_STD_I64LE, i64, n_file, was->n_row));
  MILL_TRY(read_numbers(file, path, MTIME, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, n_file, was->mtime));
done:
  return err;
}

/* May the rows [start, start + n_row) of this file, which has changed, be read from it as it is
 * now?  n_all: rows of the result. */
static int check_repaired(hid_t file, const char *path, const mill_input_file *input, int64_t n_all,
                          int64_t start, int64_t n_row)
{
  int err = MILL_OK;
  mill_result_summary summary;
  memset(&summary, 0, sizeof summary);
  if (n_row != input->n_row)
    MILL_FAIL(MILL_ERR_OUTPUT,
              "%s: the input %s has changed: it has %lld selected rows now and had %lld when the "
              "result was begun, and rows cannot be put into a result that is there: fit this file "
              "to another --output, leave this result as it is, and join the two by starmill "
              "merge; or begin anew with --overwrite",
              path, input->path, (long long)input->n_row, (long long)n_row);
  MILL_TRY(mill_result_layout_count(file, path, n_all, start, n_row, &summary));
  const int64_t n_fitted = summary.n_status[MILL_STATUS_FITTED];
  if (n_fitted > 0)
    MILL_FAIL(MILL_ERR_OUTPUT,
              "%s: the input %s has changed, and %lld of its %lld rows are fitted already from "
              "what it was: bring that file back, or give another --output, or --overwrite to "
              "begin anew",
              path, input->path, (long long)n_fitted, (long long)n_row);
done:
  return err;
}

int mill_result_repaired(hid_t file, const char *path, const mill_run_info *info,
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
  mill_free(table);
  mill_free(was.size);
  mill_free(was.n_row);
  mill_free(was.mtime);
  return err;
}

int mill_result_note_repaired(hid_t file, const char *path, const mill_run_info *info)
{
  int err = MILL_OK;
  hid_t dataset = H5I_INVALID_HID, type = H5I_INVALID_HID;
  int64_t *size = NULL, n = 0;
  double *mtime = NULL;
  char *text = NULL;
  size_t n_byte = 0;
  if (info->n_file == 0)
    goto done;
  MILL_TRY(MILL_ALLOC(info->n_file, &size));
  MILL_TRY(MILL_ALLOC(info->n_file, &mtime));
  MILL_TRY(open_texts(file, path, ERROR, &dataset, &type, &n_byte, &n));
  MILL_TRY(mill_alloc_bytes((size_t)info->n_file, n_byte, (void **)&text));
  for (int i = 0; i < info->n_file; i++) {
    const mill_input_file *input = &info->file[i];
    const char *error = input->error ? input->error : "";
    size[i] = input->size;
    mtime[i] = input->mtime;
    /* the column has the width of its first texts: a longer one is cut, and is in the log */
    memcpy(text + (size_t)i * n_byte, error, strnlen(error, n_byte));
  }
  MILL_TRY(mill_ph5_write_whole(file, path, SIZE, H5T_NATIVE_INT64, size));
  MILL_TRY(mill_ph5_write_whole(file, path, MTIME, H5T_NATIVE_DOUBLE, mtime));
  MILL_TRY(mill_ph5_write_whole(file, path, ERROR, type, text));
done:
  mill_free(text);
  mill_free(size);
  mill_free(mtime);
  close_texts(dataset, type);
  return err;
}
