#include "io/result/result_layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "io/hdf5/hdf5_util.h"
#include "io/files/lock_file.h"
#include "io/hdf5/parallel_hdf5.h"
#include "io/result/result_repair.h"
#include "kernels/base/error.h"
#include "src/ranks/same_on_ranks.h"
#include "src/system/stop_signal.h"
#include "src/system/version.h"
#include "src/system/watchdog.h"

#define FORMAT_NAME "starmill result"
enum { BLOCK_ROWS = 65536 };

/* code or bit, name, meaning of the lists that become attributes */
typedef struct meaning {
  int64_t value;
  const char *name, *text;
} meaning;

#define MEANING(symbol, value, name, text) {value, name, text},
static const meaning status_meaning[] = {MILL_STATUS_LIST(MEANING)};
static const meaning warn_meaning[] = {MILL_WARN_LIST(MEANING)};
static const meaning info_meaning[] = {MILL_INFO_LIST(MEANING)};
#undef MEANING

static const char *or_empty(const char *text)
{
  return text ? text : "";
}

void mill_result_layout_time(char out[MILL_TIME_SIZE])
{
  const time_t now = time(NULL);
  struct tm utc;
  gmtime_r(&now, &utc);
  strftime(out, MILL_TIME_SIZE, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

static int write_meanings(hid_t file, const char *path, const char *dataset, const char *values,
                          const meaning *list, int n)
{
  int err = MILL_OK;
  int64_t value[32];
  const char *name[32], *text[32];
  for (int i = 0; i < n; i++) {
    value[i] = list[i].value;
    name[i] = list[i].name;
    text[i] = list[i].text;
  }
  MILL_TRY(mill_ph5_attr_int64(file, path, dataset, values, value, n));
  MILL_TRY(mill_ph5_attr_texts(file, path, dataset, "NAMES", name, n));
  MILL_TRY(mill_ph5_attr_texts(file, path, dataset, "MEANINGS", text, n));
done:
  return err;
}

#define WRITE_MEANINGS(dataset, values, list)                                                      \
  MILL_TRY(write_meanings(file, path, dataset, values, list, (int)(sizeof list / sizeof list[0])))

/* A large file takes minutes; between two of its columns a wish to stop is heard. */
static int go_on(void)
{
  int err = MILL_OK;
  if (mill_stop_reason() != MILL_STOP_NONE)
    MILL_FAIL(MILL_ERR_STOPPED, "stopped while the output was made: nothing was fitted; the same "
                                "command starts again");
done:
  return err;
}

static int create_fits(hid_t file, const char *path, const mill_run_info *info,
                       const mill_columns *columns)
{
  int err = MILL_OK;
  const char *parameter[MILL_MAX_PAR] = {"VRAD", "VSINI"};
  hid_t group = H5I_INVALID_HID;
  for (int i = 0; i < info->lib->n_label; i++)
    parameter[2 + i] = info->lib->label[i].column;
  MILL_TRY(mill_ph5_group(file, path, "fits"));
  group = H5Gopen2(file, "fits", H5P_DEFAULT);
  if (group < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot write /fits: %s", path, mill_h5_reason());
  for (int i = 0; i < columns->n_column; i++) {
    MILL_TRY(go_on());
    MILL_TRY(mill_ph5_column(group, path, &columns->column[i], info->n_row));
  }
  MILL_TRY(
      mill_ph5_attr_texts(file, path, "fits/COVAR", "ORDER", parameter, info->lib->n_label + 2));
  WRITE_MEANINGS("fits/STATUS", "CODES", status_meaning);
  WRITE_MEANINGS("fits/RVS_WARN", "BITS", warn_meaning);
  WRITE_MEANINGS("fits/FIT_INFO", "BITS", info_meaning);
done:
  if (group >= 0)
    H5Gclose(group);
  return err;
}

/* a text of mill_input_file, for a column of /catalog/files */
typedef const char *(*file_text)(const mill_input_file *file);

static const char *text_path(const mill_input_file *file)
{
  return file->path;
}

static const char *text_error(const mill_input_file *file)
{
  return or_empty(file->error);
}

static const char *text_redrock(const mill_input_file *file)
{
  return or_empty(file->redrock);
}

static const char *text_format(const mill_input_file *file)
{
  return file->format;
}

static const char *text_frame(const mill_input_file *file)
{
  return file->frame;
}

static int write_file_text(hid_t group, const char *path, const mill_run_info *info,
                           const char *name, file_text text_of, const char *description)
{
  int err = MILL_OK;
  char *packed = NULL;
  hid_t type = H5I_INVALID_HID;
  size_t n_byte = 1;
  for (int i = 0; i < info->n_file; i++) {
    const size_t n = strlen(text_of(&info->file[i]));
    n_byte = n > n_byte ? n : n_byte;
  }
  MILL_TRY(mill_alloc_bytes((size_t)info->n_file, n_byte, (void **)&packed));
  for (int i = 0; i < info->n_file; i++) {
    const char *text = text_of(&info->file[i]);
    memcpy(packed + (size_t)i * n_byte, text, strlen(text));
  }
  type = mill_ph5_text_type(n_byte);
  if (type < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot write %s: %s", path, name, mill_h5_reason());
  MILL_TRY(mill_ph5_dataset(group, path, name, type, 1, info->n_file, 1, NULL, "", description));
  if (info->n_file > 0)
    MILL_TRY(mill_ph5_write_whole(group, path, name, type, packed));
done:
  if (type >= 0)
    H5Tclose(type);
  mill_free(packed);
  return err;
}

/* an eight-byte number of mill_input_file, for a column of /catalog/files */
typedef struct file_number {
  const char *name;
  int type; /* enum mill_column_type */
  size_t field;
  const char *unit, *description;
  const char *changed; /* what a difference means to a run that continues; NULL: it is not asked */
} file_number;

#define FIELD(member) offsetof(mill_input_file, member)
#define I64           MILL_TYPE_I64
#define F64           MILL_TYPE_F64
#define SINCE_1970    "time of last change, since 1970-01-01 UTC"

static const file_number file_numbers[] = {
    {"catalog/files/SIZE", I64, FIELD(size), "byte", "size", "its size has changed"},
    {"catalog/files/MTIME", F64, FIELD(mtime), "s", SINCE_1970, "its time of change differs"},
    {"catalog/files/REDROCK_SIZE", I64, FIELD(redrock_size), "byte", "size of REDROCK",
     "the size of its redrock file has changed"},
    {"catalog/files/REDROCK_MTIME", F64, FIELD(redrock_mtime), "s", SINCE_1970 " of REDROCK",
     "the time of change of its redrock file differs"},
    {"catalog/files/ROW_START", I64, FIELD(row_start), "", "first row of the file", NULL},
    {"catalog/files/N_ROW", I64, FIELD(n_row), "", "rows of the file",
     "its selected rows have changed"},
    {"catalog/files/ROWS_HASH", I64, FIELD(rows_hash), "",
     "of the keys of its rows, before joining: targets, names, exposures, their order",
     "its selected rows have changed"},
};
#undef I64
#undef F64

static int write_file_number(hid_t group, const char *path, const mill_run_info *info,
                             const file_number *number)
{
  int err = MILL_OK;
  char *packed = NULL;
  const char *name = number->name + strlen("catalog/");
  MILL_TRY(mill_alloc_bytes((size_t)info->n_file, 8, (void **)&packed));
  for (int i = 0; i < info->n_file; i++)
    memcpy(packed + 8 * (size_t)i, (const char *)&info->file[i] + number->field, 8);
  MILL_TRY(mill_ph5_dataset(group, path, name, mill_ph5_file_type(number->type), 1, info->n_file, 1,
                            NULL, number->unit, number->description));
  if (info->n_file > 0)
    MILL_TRY(mill_ph5_write_whole(group, path, name, mill_ph5_file_type(number->type), packed));
done:
  mill_free(packed);
  return err;
}

static int create_catalog(hid_t file, const char *path, const mill_run_info *info,
                          int64_t n_exposure)
{
  int err = MILL_OK;
  mill_columns columns;
  hid_t group = H5I_INVALID_HID;
  const int64_t none64 = -1;
  const int32_t none32 = -1;
  mill_columns_catalog(&columns);
  MILL_TRY(mill_ph5_group(file, path, "catalog"));
  MILL_TRY(mill_ph5_group(file, path, "catalog/exposures"));
  MILL_TRY(mill_ph5_group(file, path, "catalog/files"));
  group = H5Gopen2(file, "catalog", H5P_DEFAULT);
  if (group < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot write /catalog: %s", path, mill_h5_reason());
  for (int i = 0; i < columns.n_column; i++) {
    MILL_TRY(go_on());
    MILL_TRY(mill_ph5_column(group, path, &columns.column[i], info->n_row));
  }
  MILL_TRY(mill_ph5_dataset(group, path, "exposures/FITS_ROW", H5T_STD_I64LE, 1, n_exposure, 1,
                            &none64, "",
                            "the format's number of the exposure in its file; DESI: 0-based row of "
                            "FIBERMAP"));
  MILL_TRY(mill_ph5_dataset(group, path, "exposures/EXPID", H5T_STD_I32LE, 1, n_exposure, 1,
                            &none32, "", "exposure, -1 when the file has none"));
  MILL_TRY(mill_ph5_dataset(group, path, "exposures/FILE", H5T_STD_I32LE, 1, n_exposure, 1, &none32,
                            "", "index into /catalog/files"));
  MILL_TRY(write_file_text(group, path, info, "files/PATH", text_path, "input file as given"));
  for (size_t k = 0; k < sizeof file_numbers / sizeof file_numbers[0]; k++)
    MILL_TRY(write_file_number(group, path, info, &file_numbers[k]));
  MILL_TRY(write_file_text(group, path, info, "files/REDROCK", text_redrock,
                           "redrock file by which its rows were selected, empty when by none"));
  MILL_TRY(write_file_text(group, path, info, "files/ERROR", text_error,
                           "why it could not be read, empty when it could"));
  MILL_TRY(write_file_text(group, path, info, "files/FORMAT", text_format,
                           "format of the file, empty when it could not be read"));
  MILL_TRY(write_file_text(group, path, info, "files/FRAME", text_frame,
                           "frame of its wavelengths, and so of the velocities"));
done:
  if (group >= 0)
    H5Gclose(group);
  return err;
}

/* "desi barycentric\nsdss heliocentric\n": each pair of format and frame among the inputs */
static int write_frames(hid_t file, const char *path, const mill_run_info *info)
{
  int err = MILL_OK;
  char text[512] = "";
  for (int i = 0; i < info->n_file; i++) {
    char line[sizeof info->file[i].format + sizeof info->file[i].frame + 2];
    if (!info->file[i].format[0])
      continue;
    snprintf(line, sizeof line, "%s %s\n", info->file[i].format, info->file[i].frame);
    if (!strstr(text, line) && strlen(text) + strlen(line) < sizeof text)
      strcat(text, line);
  }
  MILL_TRY(mill_ph5_text(file, path, "provenance/FRAMES", text,
                         "formats of the inputs and the frames of their wavelengths, which are "
                         "those of the velocities: nothing was corrected"));
done:
  return err;
}

static int create_provenance(hid_t file, const char *path, const mill_run_info *info, int n_rank)
{
  int err = MILL_OK;
  char now[MILL_TIME_SIZE], host[256] = "", run_id[MILL_RUN_ID_SIZE] = "", job[96];
  unsigned char random[16];
  const int64_t rank64 = n_rank, thread64 = info->n_thread;
  const char *const at = "provenance";
  hid_t text20 = H5I_INVALID_HID;
  if (gethostname(host, sizeof host - 1) != 0)
    snprintf(host, sizeof host, "unknown");
  if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
    MILL_FAIL(MILL_ERR_INTERNAL, "no random numbers: %s", strerror(errno));
  for (size_t i = 0; i < sizeof random; i++)
    snprintf(run_id + 2 * i, 3, "%02x", random[i]);
  mill_result_layout_time(now);
  MILL_TRY(mill_ph5_group(file, path, at));
  MILL_TRY(mill_ph5_attr_text(file, path, at, "VERSION", mill_version()));
  MILL_TRY(mill_ph5_attr_text(file, path, at, "REVISION", mill_version_revision()));
  MILL_TRY(mill_ph5_attr_text(file, path, at, "LIBRARY_PATH", info->lib->path));
  MILL_TRY(mill_ph5_attr_text(file, path, at, "LIBRARY_NAME", info->lib->name));
  MILL_TRY(mill_ph5_attr_text(file, path, at, "LIBRARY_HASH", info->lib->hash));
  MILL_TRY(mill_ph5_attr_text(file, path, at, "DEVICE", or_empty(info->device)));
  MILL_TRY(mill_ph5_attr_text(file, path, at, "HOST", host));
  MILL_TRY(mill_ph5_attr_text(file, path, at, "RUN_ID", run_id));
  mill_lock_job(job, sizeof job);
  MILL_TRY(mill_ph5_attr_text(file, path, at, "JOB", job));
  MILL_TRY(mill_ph5_attr_int64(file, path, at, "N_RANK", &rank64, 0));
  MILL_TRY(mill_ph5_attr_int64(file, path, at, "N_THREAD", &thread64, 0));
  MILL_TRY(mill_ph5_text(file, path, "provenance/IDENTITY", or_empty(info->identity),
                         "science settings: runs that differ here do not continue each other"));
  MILL_TRY(mill_ph5_text(file, path, "provenance/CONFIG", or_empty(info->config),
                         "effective configuration (YAML) of the first start"));
  MILL_TRY(mill_ph5_text(file, path, "provenance/COMMAND", or_empty(info->command),
                         "command line of the first start"));
  MILL_TRY(write_frames(file, path, info));
  /* what changes later is raw data, not attributes: only that is safe against a kill */
  text20 = mill_ph5_text_type(MILL_TIME_SIZE - 1);
  if (text20 < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot write times: %s", path, mill_h5_reason());
  MILL_TRY(mill_ph5_dataset(file, path, "provenance/START_TIME", text20, 1, 1, 1, NULL, "",
                            "UTC when the file was created"));
  MILL_TRY(mill_ph5_write_whole(file, path, "provenance/START_TIME", text20, now));
  MILL_TRY(mill_ph5_dataset(file, path, "provenance/END_TIME", text20, 1, 1, 1, NULL, "",
                            "UTC when the last run that ended in good order closed the file"));
  MILL_TRY(mill_ph5_dataset(file, path, "provenance/WALL_S", H5T_IEEE_F64LE, 1, 1, 1, NULL, "s",
                            "time spent by all runs that closed the file"));
  MILL_TRY(mill_ph5_dataset(file, path, "provenance/N_RUN", H5T_STD_I32LE, 1, 1, 1, NULL, "",
                            "runs that closed the file"));
  MILL_TRY(mill_result_layout_create_unmodelled(file, path));
  MILL_TRY(mill_ph5_dataset(file, path, "provenance/FINISHED", H5T_STD_U8LE, 1, 1, 1, NULL, "",
                            "1 when every row is done"));
done:
  if (text20 >= 0)
    H5Tclose(text20);
  return err;
}

/* About the size of the file: data, and room for headers */
static int64_t estimate_size(const mill_run_info *info, const mill_columns *columns,
                             int64_t n_exposure)
{
  mill_columns catalog;
  mill_columns_catalog(&catalog);
  const int64_t text = (int64_t)(strlen(or_empty(info->config)) + strlen(or_empty(info->identity)) +
                                 strlen(or_empty(info->command)));
  return info->n_row * (int64_t)(columns->row_size + catalog.row_size) + 16 * n_exposure +
         (int64_t)info->n_file * 1400 + text + (1 << 17);
}

int mill_result_layout_create(const char *path, const mill_run_info *info,
                              const mill_columns *columns, int64_t n_exposure, int n_rank)
{
  int err = MILL_OK;
  const int64_t version = MILL_RESULT_FORMAT;
  hid_t file = H5I_INVALID_HID;
  MILL_TRY(mill_ph5_create(path, estimate_size(info, columns, n_exposure), &file));
  MILL_TRY(mill_ph5_attr_text(file, path, "/", "FORMAT", FORMAT_NAME));
  MILL_TRY(mill_ph5_attr_int64(file, path, "/", "FORMAT_VERSION", &version, 0));
  MILL_TRY(create_fits(file, path, info, columns));
  MILL_TRY(create_catalog(file, path, info, n_exposure));
  MILL_TRY(create_provenance(file, path, info, n_rank));
done:
  if (file >= 0) {
    /* the first failure is the one to tell */
    if (err == MILL_OK)
      err = mill_ph5_close(path, &file);
    else
      mill_ph5_drop(&file, 1);
  }
  return err;
}

/* Write the share [start, start + n) of a dataset. Collective. */
static int write_share(hid_t file, const char *path, const char *name, hid_t type, int64_t n_total,
                       int64_t start, int64_t n, const void *buffer)
{
  int err = MILL_OK;
  hid_t dataset = H5I_INVALID_HID;
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  dataset = H5Dopen2(file, name, H5P_DEFAULT);
  if (dataset < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot open %s: %s", path, name, mill_h5_reason());
  MILL_TRY(mill_ph5_select_range(path, 1, n_total, 1, start, n, &rows));
  MILL_TRY(mill_ph5_write(dataset, path, name, type, &rows, buffer));
done:
  mill_ph5_unselect(&rows);
  if (dataset >= 0)
    H5Dclose(dataset);
  return err;
}

/* Files of this rank's share whose rows are written together. */
typedef struct group {
  int first, end;         /* files of the catalog */
  mill_file_index *index; /* [end - first] */
  int *is_loaded;         /* [end - first] by info->load: to be cleared */
  int64_t n_row, n_exp;   /* 0 after a failure: the rank then joins with nothing */
  char *packed;
} group;

static void clear_group(group *g)
{
  for (int i = 0; i < g->end - g->first && g->index; i++)
    if (g->is_loaded[i])
      mill_file_index_clear(&g->index[i]);
  mill_free(g->index);
  mill_free(g->is_loaded);
  mill_free(g->packed);
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
    MILL_TRY(go_on());
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
    }
  }
}

static void take_exposures(const group *g, size_t n_byte, int what)
{
  char *to = g->packed;
  for (int i = g->first; i < g->end && g->n_exp > 0; i++) {
    const mill_file_index *index = &g->index[i - g->first];
    for (int64_t k = 0; k < index->n_exposure; k++, to += n_byte) {
      const int32_t i_file = index->exposure_file ? index->exposure_file[k] : i;
      const void *from = what == 0   ? (const void *)&index->exposure_row[k]
                         : what == 1 ? (const void *)&index->exposure_id[k]
                                     : (const void *)&i_file;
      memcpy(to, from, n_byte);
    }
  }
}

/* Collective.  A failure of one dataset must not keep this rank from the collective calls that
   the others make, so the first one is kept and told at the end. */
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
    size_t n_byte;
  } list[] = {{"catalog/exposures/FITS_ROW", H5T_STD_I64LE, sizeof(int64_t)},
              {"catalog/exposures/EXPID", H5T_STD_I32LE, sizeof(int32_t)},
              {"catalog/exposures/FILE", H5T_STD_I32LE, sizeof(int32_t)}};
  for (int i = 0; i < columns->n_column; i++) {
    const mill_column *c = &columns->column[i];
    char name[64];
    const hid_t type = c->type == MILL_TYPE_TEXT ? mill_ph5_text_type((size_t)c->n_value)
                                                 : H5Tcopy(mill_ph5_file_type(c->type));
    snprintf(name, sizeof name, "catalog/%s", c->name);
    take_column(g, c, first_exposure);
    err = write_share(file, path, name, type, info->n_row, start, g->n_row, g->packed);
    failed = failed == MILL_OK ? err : failed;
    if (i == columns->i_target)
      err = write_share(file, path, "fits/TARGETID", type, info->n_row, start, g->n_row, g->packed);
    failed = failed == MILL_OK ? err : failed;
    H5Tclose(type);
  }
  for (int what = 0; what < 3; what++) {
    take_exposures(g, list[what].n_byte, what);
    err = write_share(file, path, list[what].name, list[what].type, n_exposure, start_exp, g->n_exp,
                      g->packed);
    failed = failed == MILL_OK ? err : failed;
  }
  return failed;
}

int mill_result_layout_catalog(hid_t file, const char *path, const mill_run_info *info,
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

int mill_result_layout_job(const char *path, char *out, size_t size)
{
  int err = MILL_OK;
  hid_t file = H5I_INVALID_HID;
  MILL_TRY(mill_ph5_open(path, H5F_ACC_RDONLY, MPI_COMM_SELF, &file));
  MILL_TRY(mill_ph5_read_attr_text(file, path, "provenance", "JOB", out, size));
done:
  if (file >= 0)
    H5Fclose(file);
  return err;
}

int mill_result_layout_create_unmodelled(hid_t file, const char *path)
{
  return mill_ph5_dataset(file, path, "provenance/UNMODELLED", H5T_STD_U8LE, 1, 1, 1, NULL, "",
                          "1 when rows were fitted by a run without --models");
}

int mill_result_layout_mark_unmodelled(hid_t file, const char *path)
{
  const uint8_t yes = 1;
  /* a result of an older program has no such mark, which counts as one */
  if (H5Lexists(file, "provenance/UNMODELLED", H5P_DEFAULT) <= 0)
    return MILL_OK;
  return mill_ph5_write_whole(file, path, "provenance/UNMODELLED", H5T_NATIVE_UINT8, &yes);
}

int mill_result_layout_check_modelled(hid_t file, const char *path, const char *models)
{
  int err = MILL_OK;
  uint8_t unmodelled = 1;
  hid_t dataset = H5I_INVALID_HID;
  const int is_there = H5Lexists(file, "provenance/UNMODELLED", H5P_DEFAULT) > 0;
  if (is_there)
    MILL_TRY(mill_ph5_open_dataset(file, path, "provenance/UNMODELLED", H5T_STD_U8LE, 1, 1, 1,
                                   &dataset));
  if (is_there &&
      H5Dread(dataset, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, &unmodelled) < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: is damaged, /provenance/UNMODELLED cannot be read: %s", path,
              mill_h5_reason());
  if (unmodelled)
    MILL_FAIL(MILL_ERR_OUTPUT,
              "%s: rows of %s were fitted by a run without --models and their models would be "
              "missing: continue without --models, or start anew with --overwrite",
              models, path);
done:
  if (dataset >= 0)
    H5Dclose(dataset);
  return err;
}

int mill_result_layout_count(hid_t file, const char *path, int64_t n_row, int64_t start, int64_t n,
                             mill_result_summary *summary)
{
  int err = MILL_OK;
  int32_t *status = NULL;
  int64_t *warn = NULL;
  hid_t dataset[2] = {H5I_INVALID_HID, H5I_INVALID_HID};
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  MILL_TRY(MILL_ALLOC(BLOCK_ROWS, &status));
  MILL_TRY(MILL_ALLOC(BLOCK_ROWS, &warn));
  MILL_TRY(
      mill_ph5_open_dataset(file, path, "fits/STATUS", H5T_STD_I32LE, 1, n_row, 1, &dataset[0]));
  MILL_TRY(
      mill_ph5_open_dataset(file, path, "fits/RVS_WARN", H5T_STD_I64LE, 1, n_row, 1, &dataset[1]));
  for (int64_t at = 0; at < n; at += BLOCK_ROWS) {
    const int64_t n_block = n - at < BLOCK_ROWS ? n - at : BLOCK_ROWS;
    MILL_TRY(mill_ph5_select_range(path, 1, n_row, 1, start + at, n_block, &rows));
    MILL_TRY(mill_ph5_read(dataset[0], path, "fits/STATUS", H5T_NATIVE_INT32, &rows, status));
    MILL_TRY(mill_ph5_read(dataset[1], path, "fits/RVS_WARN", H5T_NATIVE_INT64, &rows, warn));
    mill_ph5_unselect(&rows);
    for (int64_t i = 0; i < n_block; i++) {
      if (status[i] >= 0 && status[i] < MILL_N_STATUS)
        summary->n_status[status[i]]++;
      summary->n_warned += status[i] == MILL_STATUS_FITTED && warn[i] != 0;
    }
  }
done:
  mill_ph5_unselect(&rows);
  for (int i = 0; i < 2; i++)
    if (dataset[i] >= 0)
      H5Dclose(dataset[i]);
  mill_free(warn);
  mill_free(status);
  return err;
}

#define REFUSE(...) MILL_FAIL(MILL_ERR_OUTPUT, __VA_ARGS__)
#define WHAT_TO_DO  "give another --output, or --overwrite to replace it"

/* Is it ours at all? */
static int check_format(hid_t file, const char *path)
{
  int err = MILL_OK;
  char format[64];
  int64_t version = 0;
  if (mill_ph5_read_attr_text(file, path, "/", "FORMAT", format, sizeof format) != MILL_OK ||
      strcmp(format, FORMAT_NAME) != 0 ||
      mill_ph5_read_attr_int64(file, path, "/", "FORMAT_VERSION", &version) != MILL_OK)
    REFUSE("%s exists and is no result of starmill: " WHAT_TO_DO, path);
  if (version > MILL_RESULT_FORMAT)
    REFUSE("%s was written by a newer starmill (format %lld, this program knows %d): continue with "
           "that version, " WHAT_TO_DO,
           path, (long long)version, MILL_RESULT_FORMAT);
  if (version < MILL_RESULT_FORMAT)
    REFUSE("%s was written by an older starmill (format %lld, this program continues %d only): "
           "continue with that version, " WHAT_TO_DO,
           path, (long long)version, MILL_RESULT_FORMAT);
done:
  return err;
}

/* A text of the inputs that the file was made from, against those of this run. */
static int check_file_text(hid_t file, const char *path, const mill_run_info *info,
                           const char *name, const char *what, file_text text_of)
{
  int err = MILL_OK;
  hid_t dataset = H5I_INVALID_HID, space = H5I_INVALID_HID, type = H5I_INVALID_HID;
  char *text = NULL;
  hsize_t n_file = 0;
  dataset = H5Dopen2(file, name, H5P_DEFAULT);
  if (dataset < 0)
    REFUSE("%s: is damaged, /%s cannot be read: " WHAT_TO_DO, path, name);
  space = H5Dget_space(dataset);
  type = H5Dget_type(dataset);
  if (space < 0 || type < 0 || H5Sget_simple_extent_ndims(space) != 1 ||
      H5Sget_simple_extent_dims(space, &n_file, NULL) != 1 || H5Tget_class(type) != H5T_STRING ||
      H5Tis_variable_str(type) != 0)
    REFUSE("%s: is damaged, /%s cannot be read: " WHAT_TO_DO, path, name);
  if (n_file != (hsize_t)info->n_file)
    REFUSE("%s exists and was made from other inputs (%lld files, now %d): " WHAT_TO_DO, path,
           (long long)n_file, info->n_file);
  const size_t n_byte = H5Tget_size(type);
  MILL_TRY(mill_alloc_bytes((size_t)n_file, n_byte, (void **)&text));
  if (n_file > 0 && H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) < 0)
    REFUSE("%s: is damaged, /%s cannot be read: " WHAT_TO_DO, path, name);
  for (int i = 0; i < info->n_file; i++) {
    const char *stored = text + (size_t)i * n_byte, *now = text_of(&info->file[i]);
    const size_t n = strnlen(stored, n_byte);
    if (n != strlen(now) || memcmp(stored, now, n) != 0)
      REFUSE("%s exists and was made from other inputs (%s%s%s%.*s, now %s): " WHAT_TO_DO, path,
             what ? info->file[i].path : "", what ? what : "", n > 0 ? "" : "none", (int)n, stored,
             now[0] ? now : "none");
  }
done:
  mill_free(text);
  if (type >= 0)
    H5Tclose(type);
  if (space >= 0)
    H5Sclose(space);
  if (dataset >= 0)
    H5Dclose(dataset);
  return err;
}

/* The same of an eight-byte number. */
static int check_file_number(hid_t file, const char *path, const mill_run_info *info,
                             const file_number *number)
{
  int err = MILL_OK;
  hid_t dataset = H5I_INVALID_HID;
  char *stored = NULL;
  MILL_TRY(mill_alloc_bytes((size_t)info->n_file, 8, (void **)&stored));
  MILL_TRY(mill_ph5_open_dataset(file, path, number->name, mill_ph5_file_type(number->type), 1,
                                 info->n_file, 1, &dataset));
  if (info->n_file > 0 &&
      H5Dread(dataset, mill_ph5_file_type(number->type), H5S_ALL, H5S_ALL, H5P_DEFAULT, stored) < 0)
    REFUSE("%s: is damaged, /%s cannot be read: " WHAT_TO_DO, path, number->name);
  for (int i = 0; i < info->n_file; i++) {
    const mill_input_file *now = &info->file[i];
    const int by_redrock = or_empty(now->redrock)[0] != '\0';
    if (memcmp(stored + 8 * (size_t)i, (const char *)now + number->field, 8) != 0)
      REFUSE("%s exists and was made from other inputs (%s%s%s: %s): " WHAT_TO_DO, path, now->path,
             by_redrock ? ", rows selected by " : "", or_empty(now->redrock), number->changed);
  }
done:
  mill_free(stored);
  if (dataset >= 0)
    H5Dclose(dataset);
  return err;
}

/* The inputs that the file was made from against those of this run: first the files, then what
   was selected in them, so that the message names the cause. */
static int check_inputs(hid_t file, const char *path, const mill_run_info *info)
{
  int err = MILL_OK;
  MILL_TRY(check_file_text(file, path, info, "catalog/files/PATH", NULL, text_path));
  MILL_TRY(check_file_text(file, path, info, "catalog/files/REDROCK", ": its redrock file was ",
                           text_redrock));
  for (size_t k = 0; k < sizeof file_numbers / sizeof file_numbers[0]; k++)
    if (file_numbers[k].changed)
      MILL_TRY(check_file_number(file, path, info, &file_numbers[k]));
done:
  return err;
}

void mill_result_layout_difference(const char *was, const char *is, char *out, size_t size)
{
  size_t n_was, n_is;
  mill_first_difference(&was, &n_was, &is, &n_is);
  snprintf(out, size, "\"%.*s\", now \"%.*s\"", (int)(n_was < 100 ? n_was : 100), was,
           (int)(n_is < 100 ? n_is : 100), is);
}

static int check_identity(hid_t file, const char *path, const mill_run_info *info)
{
  int err = MILL_OK;
  char *identity = NULL;
  char hash[80], device[256], difference[256];
  MILL_TRY(mill_ph5_read_text(file, path, "provenance/IDENTITY", &identity));
  MILL_TRY(mill_ph5_read_attr_text(file, path, "provenance", "LIBRARY_HASH", hash, sizeof hash));
  MILL_TRY(mill_ph5_read_attr_text(file, path, "provenance", "DEVICE", device, sizeof device));
  if (strcmp(identity, or_empty(info->identity)) != 0) {
    mill_result_layout_difference(identity, or_empty(info->identity), difference,
                                  sizeof difference);
    REFUSE("%s exists and was made with other settings (%s): " WHAT_TO_DO, path, difference);
  }
  if (strcmp(hash, info->lib->hash) != 0)
    REFUSE("%s exists and was made with another library (hash %.12s, now %.12s): " WHAT_TO_DO, path,
           hash, info->lib->hash);
  MILL_TRY(check_inputs(file, path, info));
  if (strcmp(device, or_empty(info->device)) != 0)
    REFUSE("%s was begun on another device (%s, now %s), whose results differ in the last digits: "
           "continue it there, " WHAT_TO_DO,
           path, device, or_empty(info->device));
done:
  mill_free(identity);
  return err;
}

int mill_result_layout_inspect(const char *path, const mill_run_info *info, int retry_failed,
                               const mill_columns *columns, int *found,
                               mill_result_summary *summary)
{
  int err = MILL_OK;
  hid_t file = H5I_INVALID_HID, dataset = H5I_INVALID_HID;
  uint8_t finished = 0;
  int n_repaired = 0;
  mill_input_file *recorded = NULL;
  mill_run_info then = *info; /* with the inputs as they were */
  struct stat status;
  *found = MILL_FOUND_NOTHING;
  memset(summary, 0, sizeof *summary);
  if (stat(path, &status) != 0) {
    /* any other reason (no folder, no permission) is told when it is created */
    if (errno == ENOENT || errno == ENOTDIR)
      goto done;
    REFUSE("%s cannot be examined: %s", path, strerror(errno));
  }
  if (!S_ISREG(status.st_mode))
    REFUSE("%s exists and is no regular file: give another --output", path);
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  if (H5Fis_hdf5(path) <= 0)
    REFUSE("%s exists and is no HDF5 file: " WHAT_TO_DO, path);
  if (mill_ph5_open(path, H5F_ACC_RDONLY, MPI_COMM_SELF, &file) != MILL_OK)
    REFUSE("%s exists and is a damaged or truncated HDF5 file: " WHAT_TO_DO, path);
  MILL_TRY(check_format(file, path));
  /* a row of several files says nothing of each of them */
  if (retry_failed && !strstr(or_empty(info->identity), "join_by_name")) {
    MILL_TRY(mill_result_repaired(file, path, info, &recorded, &n_repaired));
    then.file = recorded;
  }
  MILL_TRY(check_identity(file, path, &then));
  for (int i = 0; i < columns->n_column; i++) {
    const mill_column *c = &columns->column[i];
    char name[64];
    snprintf(name, sizeof name, "fits/%s", c->name);
    if (mill_ph5_open_dataset(file, path, name, mill_ph5_file_type(c->type), c->vector ? 2 : 1,
                              info->n_row, c->n_value, &dataset) != MILL_OK)
      REFUSE("%s exists and is damaged (/%s): " WHAT_TO_DO, path, name);
    H5Dclose(dataset);
    dataset = H5I_INVALID_HID;
  }
  MILL_TRY(
      mill_ph5_open_dataset(file, path, "provenance/FINISHED", H5T_STD_U8LE, 1, 1, 1, &dataset));
  if (H5Dread(dataset, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, &finished) < 0)
    REFUSE("%s exists and is damaged (/provenance/FINISHED): " WHAT_TO_DO, path);
  *found = finished && n_repaired == 0 ? MILL_FOUND_FINISHED : MILL_FOUND_UNFINISHED;
  if (finished)
    MILL_TRY(mill_result_layout_count(file, path, info->n_row, 0, info->n_row, summary));
done:
  mill_free(recorded);
  if (dataset >= 0)
    H5Dclose(dataset);
  if (file >= 0)
    H5Fclose(file);
  return err;
}
