/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/result_merge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/hdf5/hdf5_util.h"
#include "io/files/lock_file.h"
#include "io/hdf5/parallel_hdf5.h"
#include "io/result/result_inputs.h"
#include "io/result/result_inspect.h"
#include "io/result/result_layout.h"
#include "io/result/result_look.h"
#include "io/result/result_primary.h"
#include "io/result/result_rows.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/file_roles.h"
#include "src/system/regular_file.h"

enum { BLOCK_BYTES = 4 << 20, MAX_DATASET = 256 };

/* Kinds of a group's rows. */
enum unit { ROWS, EXPOSURES, FILES, N_UNIT };
static const struct {
  const char *name;
  int unit;
} groups[] = {
    {"fits", ROWS}, {"catalog", ROWS}, {"catalog/exposures", EXPOSURES}, {"catalog/files", FILES}};
enum { N_GROUP = sizeof groups / sizeof groups[0] };

/* Numbers of rows, exposures or files in a part, which are others in the whole. */
static const struct {
  const char *name;
  int counts; /* enum unit */
} shifted[] = {{"catalog/FILE", FILES},
               {"catalog/FIRST_EXPOSURE", EXPOSURES},
               {"catalog/exposures/FILE", FILES},
               {"catalog/files/ROW_START", ROWS}};
enum { N_SHIFTED = sizeof shifted / sizeof shifted[0] };

/* A dataset that all parts have. */
typedef struct merge_dataset {
  char name[128];
  int unit, n_dim;
  int64_t n_value;
  hid_t type; /* in the file; of texts the longest */
} merge_dataset;

typedef struct merge_part {
  const char *path;
  int64_t n[N_UNIT], start[N_UNIT]; /* start: in the whole */
} merge_part;

/* Identity of a part's input, equal for two names or copies of one file. */
typedef struct merge_input {
  int64_t key[3];
  char *path;       /* owned */
  int64_t dev, ino; /* of the file as it is now, where it has the size that it had; else -1 */
} merge_input;

typedef struct merge_job {
  char output[MILL_MAX_PATH]; /* links followed */
  const char *command;
  int n_part, n_dataset, with_primary;
  merge_part *part;
  merge_dataset dataset[MAX_DATASET];
  int64_t n[N_UNIT], n_byte, n_fitted; /* of the whole */
  merge_input *input;                  /* [n_input] with rows, of the parts seen so far */
  int64_t n_input, input_room;
  /* provenance */
  mill_result_origin origin; /* of the first part */
  FILE *commands, *frames;
  char *command_text, *frame_text;
  size_t command_size, frame_size;
  char start[MILL_TIME_SIZE], end[MILL_TIME_SIZE]; /* the first and the last */
  double wall_s;
  int32_t n_run;
} merge_job;

#define REFUSED(...) MILL_ERROR(MILL_ERR_USAGE, __VA_ARGS__)
#define DAMAGED(part, what)                                                                        \
  MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: %s cannot be read: %s", (part)->path, what,           \
            mill_h5_reason())

/* ---- looking at the parts ---- */

static int is_text(const merge_dataset *d)
{
  return H5Tget_class(d->type) == H5T_STRING;
}

/* What a dataset of a part is; the first one of a unit says how many of them there are.  The type
 * is the caller's to close. */
static int describe(merge_part *part, hid_t file, const char *name, int unit, merge_dataset *d)
{
  int err = MILL_OK;
  hsize_t dim[2] = {0, 1};
  hid_t create = H5I_INVALID_HID;
  mill_h5_array array;
  *d = (merge_dataset){.unit = unit};
  if (!mill_h5_array_open(file, name, &array) || (create = H5Dget_create_plist(array.id)) < 0)
    DAMAGED(part, name);
  d->n_dim = H5Sget_simple_extent_ndims(array.space);
  if (d->n_dim < 1 || d->n_dim > 2 ||
      H5Sget_simple_extent_dims(array.space, dim, NULL) != d->n_dim ||
      H5Tis_variable_str(array.type) > 0 || H5Pget_layout(create) != H5D_CONTIGUOUS ||
      H5Pget_external_count(create) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: %s is not a column of a result", part->path, name);
  if (part->n[unit] < 0)
    part->n[unit] = (int64_t)dim[0];
  if ((int64_t)dim[0] != part->n[unit])
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: %s has %llu rows, not %lld", part->path, name,
              (unsigned long long)dim[0], (long long)part->n[unit]);
  snprintf(d->name, sizeof d->name, "%s", name);
  d->n_value = (int64_t)dim[1];
  d->type = array.type;
  array.type = 0;
done:
  MILL_H5_CLOSE(create);
  mill_h5_array_close(&array);
  return err;
}

/* A dataset is noted from the first part, and the same in all others but for a text's length. */
static int note_dataset(merge_job *job, const merge_part *part, const merge_dataset *d)
{
  int i = 0;
  while (i < job->n_dataset && strcmp(job->dataset[i].name, d->name) != 0)
    i++;
  merge_dataset *known = &job->dataset[i];
  if (i == job->n_dataset) {
    if (part != job->part || i == MAX_DATASET)
      return REFUSED("%s has a column %s, which %s lacks: it was made by another version",
                     part->path, d->name, job->part->path);
    *known = *d;
    known->type = H5Tcopy(d->type);
    job->n_dataset++;
    if (known->type < 0)
      return MILL_ERROR(MILL_ERR_MEMORY, "no memory for the columns");
    return MILL_OK;
  }
  if (d->n_dim != known->n_dim || d->n_value != known->n_value ||
      H5Tget_class(d->type) != H5Tget_class(known->type))
    return REFUSED("column %s of %s differs from that of %s in kind or size", d->name, part->path,
                   job->part->path);
  if (d->unit == FILES && is_text(d)) {
    if (H5Tget_size(d->type) > H5Tget_size(known->type) &&
        H5Tset_size(known->type, H5Tget_size(d->type)) < 0)
      return MILL_ERROR(MILL_ERR_MEMORY, "no memory for the columns");
  } else if (H5Tequal(d->type, known->type) <= 0) {
    return REFUSED("column %s of %s differs from that of %s in type", d->name, part->path,
                   job->part->path);
  }
  return MILL_OK;
}

/* All datasets of a group; how many there are. */
static int note_group(merge_job *job, merge_part *part, hid_t file, int i_group, int *n_found)
{
  int err = MILL_OK;
  H5G_info_t info;
  merge_dataset d = {0};
  const hid_t group = H5Gopen2(file, groups[i_group].name, H5P_DEFAULT);
  if (group < 0 || H5Gget_info(group, &info) < 0)
    DAMAGED(part, groups[i_group].name);
  for (hsize_t i = 0; i < info.nlinks; i++) {
    char link[64], name[128];
    const ssize_t n = H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, link,
                                         sizeof link, H5P_DEFAULT);
    const hid_t object =
        n > 0 && n < (ssize_t)sizeof link ? H5Oopen(group, link, H5P_DEFAULT) : H5I_INVALID_HID;
    const int is_dataset = object > 0 && H5Iget_type(object) == H5I_DATASET;
    MILL_H5_CLOSE(object);
    if (object < 0)
      DAMAGED(part, groups[i_group].name);
    if (!is_dataset)
      continue;
    snprintf(name, sizeof name, "%s/%s", groups[i_group].name, link);
    if (strcmp(name, MILL_PRIMARY) == 0) /* of the part alone */
      continue;
    MILL_TRY(describe(part, file, name, groups[i_group].unit, &d));
    MILL_TRY(note_dataset(job, part, &d));
    H5Tclose(d.type);
    d.type = 0;
    ++*n_found;
  }
done:
  MILL_H5_CLOSE(d.type, group);
  return err;
}

static int check_format(const merge_part *part, hid_t file)
{
  uint8_t finished = 0;
  MILL_CHECK(mill_result_layout_check(file, part->path, MILL_ERR_USAGE));
  MILL_CHECK(
      mill_ph5_read_whole(file, part->path, "provenance/FINISHED", H5T_NATIVE_UINT8, 1, &finished));
  if (!finished)
    return REFUSED(
        "%s is not finished: give its command again (starmill status %s says how far it is)",
        part->path, part->path);
  return MILL_OK;
}

/* The same settings, library and kind of device as the first part. */
static int check_identity(merge_job *job, const merge_part *part, hid_t file)
{
  int err = MILL_OK;
  char difference[256];
  mill_result_origin origin = {0}, *const first = &job->origin;
  MILL_TRY(mill_result_origin_read(file, part->path, part == job->part ? first : &origin));
  if (job->n_part > 1 &&
      strstr((part == job->part ? first : &origin)->identity, "join_by_name: true"))
    MILL_TRY(
        REFUSED("%s was made with join_by_name: an object with spectra in several parts would have "
                "several rows; fit all inputs in one run",
                part->path));
  if (part == job->part)
    goto done;
  if (strcmp(origin.identity, first->identity) != 0) {
    mill_result_difference(origin.identity, first->identity, difference, sizeof difference);
    MILL_TRY(REFUSED("%s and %s were made with different settings (%s)", job->part->path,
                     part->path, difference));
  }
  if (strcmp(origin.hash, first->hash) != 0)
    MILL_TRY(REFUSED("%s and %s were made with different libraries (hashes %.12s and %.12s)",
                     job->part->path, part->path, first->hash, origin.hash));
  if (strcmp(origin.device, first->device) != 0)
    MILL_TRY(
        REFUSED("%s and %s were made on different devices (%s and %s), whose results differ in the "
                "last digits",
                job->part->path, part->path, first->device, origin.device));
done:
  mill_free(origin.identity);
  return err;
}

/* The lines of a part's FRAMES that are not known yet. */
static int add_frames(merge_job *job, const char *text)
{
  while (*text) {
    const size_t n = strcspn(text, "\n");
    char line[128];
    snprintf(line, sizeof line, "%.*s\n", n < 100 ? (int)n : 100, text);
    if (fflush(job->frames) != 0)
      return MILL_ERROR(MILL_ERR_MEMORY, "no memory for the frames");
    if (!strstr(job->frame_text, line))
      fputs(line, job->frames);
    text += n + (text[n] != '\0');
  }
  return MILL_OK;
}

static int note_texts(merge_job *job, const merge_part *part, hid_t file)
{
  int err = MILL_OK;
  char *command = NULL, *frames = NULL;
  MILL_TRY(mill_ph5_read_text(file, part->path, "provenance/COMMAND", &command));
  MILL_TRY(mill_ph5_read_text(file, part->path, "provenance/FRAMES", &frames));
  fprintf(job->commands, "\n%s", command);
  MILL_TRY(add_frames(job, frames));
done:
  MILL_FREE(command, frames);
  return err;
}

/* Times, runs and fitted rows of a part, which is not open. */
static int note_runs(merge_job *job, const merge_part *part)
{
  int found = 0;
  mill_result_peek peek;
  MILL_CHECK(mill_result_look(part->path, &found, &peek));
  /* times in this form sort as texts */
  if (part == job->part || strcmp(peek.start, job->start) < 0)
    memcpy(job->start, peek.start, sizeof job->start);
  if (strcmp(peek.end, job->end) > 0)
    memcpy(job->end, peek.end, sizeof job->end);
  job->wall_s += peek.wall_s;
  job->n_run += peek.n_run;
  job->n_fitted += peek.n_status[MILL_STATUS_FITTED];
  return MILL_OK;
}

/* Remember a part's inputs that have rows: one that could not be read may be tried twice. */
static int note_inputs(merge_job *job, const merge_part *part, hid_t file)
{
  int err = MILL_OK;
  char path[MILL_MAX_PATH];
  mill_recorded_inputs was = {0};
  MILL_TRY(mill_recorded_inputs_read(file, part->path, &was));
  for (int i = 0; i < was.n_file; i++) {
    struct stat now;
    if (was.number[MILL_INPUT_N_ROW][i] == 0)
      continue;
    MILL_TRY(mill_recorded_path(&was, i, path, sizeof path));
    MILL_TRY(MILL_GROW(&job->input, &job->input_room, job->n_input + 1));
    merge_input *input = &job->input[job->n_input];
    *input = (merge_input){.path = strdup(path), .dev = -1, .ino = -1};
    if (!input->path)
      MILL_FAIL(MILL_ERR_MEMORY, "no memory for the names of the inputs");
    job->n_input++;
    input->key[0] = was.number[MILL_INPUT_SIZE][i];
    input->key[1] = was.number[MILL_INPUT_MTIME][i];
    input->key[2] = was.number[MILL_INPUT_ROWS_HASH][i];
    if (stat(path, &now) == 0 && now.st_size == input->key[0]) {
      input->dev = (int64_t)now.st_dev;
      input->ino = (int64_t)now.st_ino;
    }
  }
done:
  mill_recorded_inputs_clear(&was);
  return err;
}

static int look_at_part(merge_job *job, merge_part *part)
{
  int err = MILL_OK;
  int n_found = 0, fd = -1;
  char text[MILL_ROWS_TEXT];
  mill_damaged_rows damaged = {0};
  hid_t file = H5I_INVALID_HID;
  struct stat status;
  MILL_TRY(mill_regular_open(part->path, "a result of starmill fit", MILL_ERR_USAGE, &fd));
  if (fstat(fd, &status) != 0)
    MILL_TRY(REFUSED("%s: %s", part->path, strerror(errno)));
  MILL_TRY(mill_h5_check_output(part->path));
  MILL_TRY(mill_ph5_open(part->path, H5F_ACC_RDONLY, MPI_COMM_SELF, &file));
  MILL_TRY(check_format(part, file));
  MILL_TRY(check_identity(job, part, file));
  for (int u = 0; u < N_UNIT; u++)
    part->n[u] = -1;
  memcpy(part->start, job->n, sizeof part->start);
  for (int g = 0; g < N_GROUP; g++)
    MILL_TRY(note_group(job, part, file, g, &n_found));
  if (n_found != job->n_dataset)
    MILL_TRY(REFUSED("%s has %d columns and %s %d: they were made by different versions",
                     part->path, n_found, job->part->path, job->n_dataset));
  if (part->n[ROWS] < 0 || part->n[EXPOSURES] < 0 || part->n[FILES] < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: it lacks a group", part->path);
  MILL_TRY(mill_result_rows_check(file, part->path, part->n[ROWS], -1, &damaged));
  if (damaged.n > 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: %s; the command that made it %s", part->path,
              mill_damaged_rows_text(&damaged, text),
              damaged.n_catalog > 0 ? "makes it again with --overwrite" : "fits them again");
  MILL_TRY(note_texts(job, part, file));
  MILL_TRY(note_inputs(job, part, file));
  for (int u = 0; u < N_UNIT; u++)
    job->n[u] += part->n[u];
  job->n_byte += (int64_t)status.st_size;
  if (job->n[FILES] > INT32_MAX)
    MILL_TRY(REFUSED("more than %d inputs", INT32_MAX));
  MILL_H5_CLOSE(file);
  file = H5I_INVALID_HID;
  MILL_TRY(note_runs(job, part));
done:
  if (fd >= 0)
    close(fd);
  MILL_H5_CLOSE(file);
  return err;
}

static int by_key(const void *a, const void *b)
{
  const merge_input *x = a, *y = b;
  for (int k = 0; k < 3; k++)
    if (x->key[k] != y->key[k])
      return x->key[k] < y->key[k] ? -1 : 1;
  return 0;
}

/* The same input in two parts would give its stars twice: files of one size, time and digest of
 * their rows, or names of one file. */
static int refuse_duplicates(merge_job *job)
{
  for (int by_number = 0; by_number < 2; by_number++) {
    for (int64_t i = 0; i < job->n_input && by_number; i++) {
      merge_input *input = &job->input[i];
      const int is_there = input->ino >= 0;
      memcpy(input->key, (const int64_t[]){input->dev, is_there ? input->ino : i, 0},
             sizeof input->key);
    }
    if (job->n_input > 0)
      qsort(job->input, (size_t)job->n_input, sizeof *job->input, by_key);
    for (int64_t i = 1; i < job->n_input; i++)
      if (by_key(&job->input[i - 1], &job->input[i]) == 0)
        return REFUSED("%s and %s, inputs of two of the parts, are the same, or a part is named "
                       "twice",
                       job->input[i - 1].path, job->input[i].path);
  }
  return MILL_OK;
}

/* ---- making the whole ---- */

/* context: the object that gets the attribute */
static herr_t copy_attribute(hid_t from, const char *name, const H5A_info_t *info, void *context)
{
  herr_t result = -1;
  void *value = NULL;
  hid_t made = H5I_INVALID_HID;
  mill_h5_array attr;
  (void)info;
  if (!mill_h5_array_open_attr(from, ".", name, &attr) ||
      H5Tdetect_class(attr.type, H5T_VLEN) > 0 || H5Tis_variable_str(attr.type) > 0)
    goto done;
  const hssize_t n = H5Sget_simple_extent_npoints(attr.space);
  if (n < 0 || mill_alloc_bytes((size_t)n, H5Tget_size(attr.type), &value) != MILL_OK)
    goto done;
  made = H5Acreate2(*(hid_t *)context, name, attr.type, attr.space, H5P_DEFAULT, H5P_DEFAULT);
  if (H5Aread(attr.id, attr.type, value) >= 0 && made >= 0 && H5Awrite(made, attr.type, value) >= 0)
    result = 0;
done:
  mill_free(value);
  MILL_H5_CLOSE(made);
  mill_h5_array_close(&attr);
  return result;
}

/* An empty dataset as the first part has it, with its attributes and fill value. */
static int create_like(const merge_job *job, const char *path, hid_t first, hid_t file,
                       const merge_dataset *d)
{
  int err = MILL_OK;
  const hsize_t dim[2] = {(hsize_t)job->n[d->unit], (hsize_t)d->n_value};
  hid_t create = H5I_INVALID_HID, made = H5I_INVALID_HID;
  const hid_t model = H5Dopen2(first, d->name, H5P_DEFAULT);
  const hid_t whole = H5Screate_simple(d->n_dim, dim, NULL);
  if (model < 0 || (create = H5Dget_create_plist(model)) < 0)
    DAMAGED(job->part, d->name);
  made = H5Dcreate2(file, d->name, d->type, whole, H5P_DEFAULT, create, H5P_DEFAULT);
  if (made < 0 || H5Aiterate2(model, H5_INDEX_NAME, H5_ITER_INC, NULL, copy_attribute, &made) < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot write %s: %s", path, d->name, mill_h5_reason());
done:
  MILL_H5_CLOSE(made, whole, create, model);
  return err;
}

/* A text of /provenance in place of the first part's, with its description. */
static int replace_text(const char *path, hid_t file, const char *name, const char *text)
{
  char description[256] = "";
  MILL_CHECK(
      mill_ph5_read_attr_text(file, path, name, "description", description, sizeof description));
  if (H5Ldelete(file, name, H5P_DEFAULT) < 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot write %s: %s", path, name, mill_h5_reason());
  return mill_ph5_text(file, path, name, text, description);
}

/* The first part's, finished, with what differs in the whole. */
static int create_provenance(const merge_job *job, const char *path, hid_t first, hid_t file)
{
  int err = MILL_OK;
  char run_id[MILL_RUN_ID_SIZE] = "";
  static const char at[] = "provenance";
  const hid_t time = mill_ph5_text_type(MILL_TIME_SIZE - 1);
  if (H5Ocopy(first, at, file, at, H5P_DEFAULT, H5P_DEFAULT) < 0 ||
      H5Adelete_by_name(file, at, "RUN_ID", H5P_DEFAULT) < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot write /provenance: %s", path, mill_h5_reason());
  MILL_TRY(mill_result_layout_run_id(run_id));
  MILL_TRY(mill_ph5_attr_text(file, path, at, "RUN_ID", run_id));
  MILL_TRY(replace_text(path, file, "provenance/COMMAND", job->command_text));
  MILL_TRY(replace_text(path, file, "provenance/FRAMES", job->frame_text));
  const struct {
    const char *name;
    hid_t type;
    const void *value;
  } item[] = {{"provenance/START_TIME", time, job->start},
              {"provenance/END_TIME", time, job->end},
              {"provenance/WALL_S", H5T_NATIVE_DOUBLE, &job->wall_s},
              {"provenance/N_RUN", H5T_NATIVE_INT32, &job->n_run}};
  for (size_t i = 0; i < sizeof item / sizeof item[0]; i++)
    MILL_TRY(mill_ph5_write_whole(file, path, item[i].name, item[i].type, item[i].value));
  MILL_TRY(mill_result_layout_mark_unmodelled(file, path)); /* models are not merged */
done:
  MILL_H5_CLOSE(time);
  return err;
}

/* Everything but the rows. */
static int create_whole(const merge_job *job, const char *path, hid_t file)
{
  int err = MILL_OK;
  hid_t first = H5I_INVALID_HID;
  MILL_TRY(mill_ph5_open(job->part->path, H5F_ACC_RDONLY, MPI_COMM_SELF, &first));
  MILL_TRY(mill_result_layout_put_format(file, path));
  for (int g = 0; g < N_GROUP; g++)
    MILL_TRY(mill_ph5_group(file, path, groups[g].name));
  for (int i = 0; i < job->n_dataset; i++)
    MILL_TRY(create_like(job, path, first, file, &job->dataset[i]));
  MILL_TRY(create_provenance(job, path, first, file));
done:
  MILL_H5_CLOSE(first);
  return err;
}

/* Numbers of a part become those of the whole; negative ones mean none. */
static void shift(void *values, size_t n_byte, int64_t n, int64_t by)
{
  for (int64_t i = 0; i < n; i++)
    if (n_byte == sizeof(int32_t)) {
      int32_t *v = (int32_t *)values + i;
      *v += *v >= 0 ? (int32_t)by : 0;
    } else {
      int64_t *v = (int64_t *)values + i;
      *v += *v >= 0 ? by : 0;
    }
}

static int copy_rows(const merge_job *job, const merge_part *part, const merge_dataset *d,
                     const char *path, hid_t from, hid_t to, char *block)
{
  int err = MILL_OK;
  hid_t in = H5I_INVALID_HID, out = H5I_INVALID_HID, type = d->type;
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  int counts = -1;
  for (int i = 0; i < N_SHIFTED; i++)
    if (strcmp(d->name, shifted[i].name) == 0)
      counts = shifted[i].counts;
  const size_t n_byte = H5Tget_size(d->type);
  if (counts >= 0)
    type = n_byte == sizeof(int32_t) ? H5T_NATIVE_INT32 : H5T_NATIVE_INT64;
  const int64_t fits = BLOCK_BYTES / (int64_t)(n_byte * (size_t)d->n_value);
  const int64_t cap = fits < 1 ? 1 : fits;
  in = H5Dopen2(from, d->name, H5P_DEFAULT);
  out = H5Dopen2(to, d->name, H5P_DEFAULT);
  if (in < 0)
    DAMAGED(part, d->name);
  if (out < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot open %s: %s", path, d->name, mill_h5_reason());
  for (int64_t at = 0; at < part->n[d->unit]; at += cap) {
    const int64_t left = part->n[d->unit] - at, n = left < cap ? left : cap;
    MILL_TRY(
        mill_ph5_select_range(part->path, d->n_dim, part->n[d->unit], d->n_value, at, n, &rows));
    MILL_TRY(mill_ph5_read(in, part->path, d->name, type, &rows, block));
    mill_ph5_unselect(&rows);
    if (counts >= 0)
      shift(block, n_byte, n * d->n_value, part->start[counts]);
    MILL_TRY(mill_ph5_select_range(path, d->n_dim, job->n[d->unit], d->n_value,
                                   part->start[d->unit] + at, n, &rows));
    MILL_TRY(mill_ph5_write(out, path, d->name, type, &rows, block));
    mill_ph5_unselect(&rows);
  }
done:
  mill_ph5_unselect(&rows);
  MILL_H5_CLOSE(out, in);
  return err;
}

static int copy_part(const merge_job *job, const merge_part *part, const char *path, hid_t to,
                     mill_lock *lock, char *block)
{
  int err = MILL_OK;
  hid_t from = H5I_INVALID_HID;
  MILL_TRY(mill_ph5_open(part->path, H5F_ACC_RDONLY, MPI_COMM_SELF, &from));
  MILL_TRY(check_format(part, from));
  for (int i = 0; i < job->n_dataset; i++) {
    MILL_TRY(mill_lock_keep(lock));
    MILL_TRY(copy_rows(job, part, &job->dataset[i], path, from, to, block));
  }
  /* a run that fits its failed rows again takes the mark away first */
  MILL_TRY(check_format(part, from));
done:
  MILL_H5_CLOSE(from);
  return err;
}

static int write_whole(const merge_job *job, mill_lock *lock, const char *path)
{
  int err = MILL_OK;
  hid_t file = H5I_INVALID_HID;
  char *block = NULL;
  size_t n_byte = BLOCK_BYTES; /* or one row, if that is larger */
  for (int i = 0; i < job->n_dataset; i++) {
    const size_t row = H5Tget_size(job->dataset[i].type) * (size_t)job->dataset[i].n_value;
    n_byte = row > n_byte ? row : n_byte;
  }
  MILL_TRY(MILL_ALLOC(n_byte, &block));
  MILL_TRY(mill_ph5_create(path, job->n_byte, &file));
  MILL_TRY(create_whole(job, path, file));
  for (int i = 0; i < job->n_part; i++)
    MILL_TRY(copy_part(job, &job->part[i], path, file, lock, block));
  if (job->with_primary)
    MILL_TRY(mill_result_primary(file, path, job->n[ROWS]));
  MILL_TRY(mill_ph5_close(path, &file));
  MILL_TRY(mill_lock_keep(lock));
  MILL_TRY(mill_ph5_rename(path, job->output));
done:
  if (file >= 0)
    H5Fclose(file);
  mill_free(block);
  return err;
}

/* The output is no part. */
static int check_roles(const merge_job *job)
{
  mill_file_roles roles = {0};
  MILL_CHECK(mill_file_roles_write(&roles, "--output", job->output));
  for (int i = 0; i < job->n_part; i++)
    MILL_CHECK(mill_file_roles_read(&roles, "the part", job->part[i].path));
  return MILL_OK;
}

/* Check that the output may be replaced. */
static int check_output(const merge_job *job, int overwrite)
{
  struct stat here;
  if (stat(job->output, &here) != 0)
    return MILL_OK; /* other errors show when it is created */
  if (!S_ISREG(here.st_mode))
    return REFUSED("%s exists and is not a regular file: give another --output", job->output);
  if (!overwrite)
    return REFUSED("%s exists: give another --output, or --overwrite to replace it", job->output);
  return mill_refuse_foreign(job->output, "--output", "starmill result");
}

static int merge(merge_job *job, int overwrite)
{
  int err = MILL_OK;
  mill_lock lock;
  char path[MILL_MAX_PATH] = "", name[96];
  memset(&lock, 0, sizeof lock);
  job->commands = open_memstream(&job->command_text, &job->command_size);
  job->frames = open_memstream(&job->frame_text, &job->frame_size);
  if (!job->commands || !job->frames)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory for the provenance");
  fputs(job->command, job->commands);
  MILL_TRY(check_roles(job));
  MILL_TRY(check_output(job, overwrite));
  for (int i = 0; i < job->n_part; i++)
    MILL_TRY(look_at_part(job, &job->part[i]));
  if (fflush(job->commands) != 0 || fflush(job->frames) != 0)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory for the provenance");
  MILL_TRY(refuse_duplicates(job));
  if (access(job->output, F_OK) == 0 && job->n_fitted == 0)
    MILL_TRY(REFUSED("%s stays as it is: the parts have no fitted row; give another --output",
                     job->output));
  MILL_TRY(mill_lock_take(job->output, &lock));
  MILL_TRY(check_output(job, overwrite)); /* another job may have made it meanwhile */
  mill_lock_remove_leftovers(&lock, job->output);
  mill_lock_job(name, sizeof name);
  if (snprintf(path, sizeof path, "%s.tmp-%s", job->output, name) >= (int)sizeof path) {
    path[0] = '\0';
    MILL_TRY(REFUSED("the path of the output is too long: %zu bytes", strlen(job->output)));
  }
  MILL_TRY(write_whole(job, &lock, path));
done:
  if (err != MILL_OK && path[0])
    unlink(path);
  mill_lock_release(&lock);
  return err;
}

int mill_result_merge(const char *output, int overwrite, int with_primary, const char *command,
                      int n_part, const char *const *part, int64_t *n_row)
{
  int err = MILL_OK;
  merge_job *job = NULL;
  MILL_TRY(MILL_ALLOC(1, &job));
  MILL_TRY(mill_resolve_links(output, job->output, sizeof job->output));
  job->command = command;
  job->with_primary = with_primary;
  job->n_part = n_part;
  MILL_TRY(MILL_ALLOC(n_part, &job->part));
  for (int i = 0; i < n_part; i++)
    job->part[i].path = part[i];
  MILL_TRY(merge(job, overwrite));
  *n_row = job->n[ROWS];
done:
  if (job) {
    if (job->commands)
      fclose(job->commands);
    if (job->frames)
      fclose(job->frames);
    free(job->command_text);
    free(job->frame_text);
    for (int64_t i = 0; i < job->n_input; i++)
      free(job->input[i].path);
    mill_free(job->input);
    for (int i = 0; i < job->n_dataset; i++)
      MILL_H5_CLOSE(job->dataset[i].type);
    MILL_FREE(job->origin.identity, job->part, job);
  }
  return err;
}
