/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/result_layout.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "io/hdf5/output_file.h"
#include "io/result/result_inputs.h"
#include "io/result/stored_rows.h"
#include "kernels/base/clock.h"
#include "src/system/status_process.h"
#include "src/system/version.h"

#define FORMAT_NAME "starmill result"
#define UNMODELLED  "provenance/UNMODELLED"

/* A code or bit with name and meaning; lists of these become attributes of a column. */
typedef struct meaning {
  int64_t value;
  const char *name, *text;
} meaning;

#define MEANING(symbol, value, name, text) {value, name, text},
static const meaning status_meaning[] = {MILL_STATUS_LIST(MEANING)};
static const meaning warn_meaning[] = {MILL_WARN_LIST(MEANING)};
static const meaning info_meaning[] = {MILL_INFO_LIST(MEANING)};
static const meaning element_meaning[] = {MILL_ELEMENT_LIST(MEANING)};
static const meaning epoch_meaning[] = {MILL_EPOCH_LIST(MEANING)};
static const meaning post_meaning[] = {MILL_POST_LIST(MEANING)};

static int make_run_id(char out[MILL_RUN_ID_SIZE])
{
  unsigned char random[MILL_RUN_ID_SIZE / 2];
  if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
    return MILL_ERROR(MILL_ERR_INTERNAL, "no random numbers: %s", strerror(errno));
  for (size_t i = 0; i < sizeof random; i++)
    snprintf(out + 2 * i, 3, "%02x", random[i]);
  return MILL_OK;
}

/* Describe a column's codes or bits by three attributes: values, NAMES and MEANINGS. */
static int write_meanings(hid_t file, const char *path, const char *dataset, const char *values,
                          const meaning *list, int n)
{
  int64_t value[32];
  const char *name[32], *text[32];
  for (int i = 0; i < n; i++) {
    value[i] = list[i].value;
    name[i] = list[i].name;
    text[i] = list[i].text;
  }
  MILL_CHECK(mill_output_attr_int64(file, path, dataset, values, value, n));
  MILL_CHECK(mill_output_attr_texts(file, path, dataset, "NAMES", name, n));
  return mill_output_attr_texts(file, path, dataset, "MEANINGS", text, n);
}

#define WRITE_MEANINGS(dataset, values, list)                                                      \
  MILL_CHECK(write_meanings(file, path, dataset, values, list, (int)(sizeof list / sizeof list[0])))

/* Write the attributes of LIBRARY: the libraries' codes, names, paths and hashes (one a line). */
static int write_libraries(hid_t file, const char *path, const mill_run_info *info)
{
  meaning list[1 + MILL_MAX_LIBRARY] = {{0, "NONE", "not fitted"}};
  char hashes[MILL_MAX_LIBRARY * sizeof info->lib->hash] = "";
  for (int i = 0; i < info->n_library; i++) {
    list[1 + i] = (meaning){1 + i, info->library[i].name, info->library[i].path};
    strcat(strcat(hashes, i ? "\n" : ""), info->library[i].hash);
  }
  MILL_CHECK(write_meanings(file, path, "fits/LIBRARY", "CODES", list, 1 + info->n_library));
  return mill_h5_write_attr_text(MILL_OUTPUT(file, path), "fits/LIBRARY", "HASHES", hashes);
}

/* Create /fits, and describe the codes and bits of its columns by attributes. */
static int create_fits(hid_t file, const char *path, const mill_run_info *info,
                       const mill_columns *columns)
{
  const char *parameter[MILL_MAX_PAR] = {"VRAD", "VSINI"};
  for (int i = 0; i < info->lib->n_label; i++)
    parameter[2 + i] = info->lib->label[i].column;
  MILL_CHECK(mill_table_create(file, path, "fits", info->n_row, columns));
  MILL_CHECK(
      mill_output_attr_texts(file, path, "fits/COVAR", "ORDER", parameter, info->lib->n_label + 2));
  MILL_CHECK(mill_stored_rows_put_order(file, path, "fits/CRC", columns));
  WRITE_MEANINGS("fits/STATUS", "CODES", status_meaning);
  WRITE_MEANINGS("fits/RVS_WARN", "BITS", warn_meaning);
  WRITE_MEANINGS("fits/FIT_INFO", "BITS", info_meaning);
  for (int i = 0; i < info->lib->n_label; i++) {
    char flag[sizeof "fits/" + sizeof columns->column->name];
    snprintf(flag, sizeof flag, "fits/%s_FLAG", info->lib->label[i].column);
    if (mill_label_is_element(&info->lib->label[i]))
      WRITE_MEANINGS(flag, "BITS", element_meaning);
  }
  if (info->posteriors) {
    MILL_CHECK(mill_output_attr_texts(file, path, "fits/POST_MEAN", "ORDER", parameter,
                                      info->lib->n_label + 2));
    WRITE_MEANINGS("fits/POST_FLAG", "BITS", post_meaning);
  }
  if (info->gpu) {
    const meaning backend_meaning[] = {{MILL_ROW_BACKEND_NONE, "NONE", "not done yet"},
                                       {MILL_ROW_BACKEND_CPU, "CPU", info->cpu},
                                       {MILL_ROW_BACKEND_GPU, "GPU", info->gpu}};
    WRITE_MEANINGS("fits/BACKEND", "CODES", backend_meaning);
  }
  return info->n_library > 1 ? write_libraries(file, path, info) : MILL_OK;
}

static int create_catalog(hid_t file, const char *path, const mill_run_info *info,
                          int64_t n_exposure)
{
  mill_columns columns;
  mill_columns_of(MILL_TABLE_CATALOG, NULL, &columns);
  MILL_CHECK(mill_table_create(file, path, "catalog", info->n_row, &columns));
  MILL_CHECK(mill_stored_rows_put_order(file, path, "catalog/CATALOG_CRC", &columns));
  mill_columns_of(MILL_TABLE_EXPOSURES, NULL, &columns);
  MILL_CHECK(mill_table_create(file, path, "catalog/exposures", n_exposure, &columns));
  return mill_result_inputs_create(file, path, info);
}

static int create_epochs(hid_t file, const char *path, int64_t n_exposure)
{
  mill_columns columns;
  mill_columns_of(MILL_TABLE_EPOCHS, NULL, &columns);
  MILL_CHECK(mill_table_create(file, path, "epochs", n_exposure, &columns));
  WRITE_MEANINGS("epochs/EPOCH_FLAG", "BITS", epoch_meaning);
  return MILL_OK;
}

/* List each pair of format and frame among the inputs: "desi barycentric\nsdss heliocentric\n". */
static int write_frames(hid_t file, const char *path, const mill_run_info *info)
{
  char text[512] = "";
  for (int i = 0; i < info->n_file; i++) {
    char line[sizeof info->file[i].format + sizeof info->file[i].frame + 2];
    if (!info->file[i].format[0])
      continue;
    snprintf(line, sizeof line, "%s %s\n", info->file[i].format, info->file[i].frame);
    if (!strstr(text, line) && strlen(text) + strlen(line) < sizeof text)
      strcat(text, line);
  }
  return mill_output_text(file, path, "provenance/FRAMES", text,
                          "formats of the inputs and the frames of their wavelengths; velocities "
                          "are in the same frames, uncorrected");
}

/* Create the values that later runs change.  They are datasets: a run that is killed while it
 * writes an attribute may damage the attribute. */
static int create_state(hid_t file, const char *path)
{
  char now[MILL_UTC_SIZE];
  MILL_AT_END(mill_h5_id_close) const hid_t text = mill_h5_text_type(MILL_TIME_SIZE - 1);
  if (text < 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot write times: %s", path, mill_h5_reason());
  const struct {
    const char *name;
    hid_t type;
    const char *unit, *description;
  } state[] = {
      {"provenance/START_TIME", text, "", "UTC when the file was created"},
      {"provenance/END_TIME", text, "", "UTC at the end of the last run that ended in good order"},
      {"provenance/WALL_S", H5T_IEEE_F64LE, "s", "wall-clock time of the runs that N_RUN counts"},
      {"provenance/N_RUN", H5T_STD_I32LE, "", "number of runs that ended in good order"},
      {UNMODELLED, H5T_STD_U8LE, "", "1 when rows were fitted by a run without --models"},
      {"provenance/FINISHED", H5T_STD_U8LE, "", "1 when every row is done"}};
  for (size_t i = 0; i < sizeof state / sizeof *state; i++)
    MILL_CHECK(mill_output_dataset(file, path, state[i].name, state[i].type, 1, &(hsize_t){1},
                                   state[i].unit, state[i].description));
  mill_utc_text(mill_unix_s(), now);
  return mill_output_write_whole(file, path, state[0].name, text, now);
}

static int create_provenance(hid_t file, const char *path, const mill_run_info *info, int n_rank)
{
  char folder[PATH_MAX], host[256] = "", run_id[MILL_RUN_ID_SIZE] = "", job[96];
  const int64_t rank64 = n_rank, thread64 = info->n_thread;
  const char *const at = "provenance";
  if (gethostname(host, sizeof host - 1) != 0)
    snprintf(host, sizeof host, "unknown");
  MILL_CHECK(make_run_id(run_id));
  mill_lock_job(job, sizeof job);
  const char *const attribute[][2] = {{"VERSION", mill_version()},
                                      {"REVISION", mill_version_revision()},
                                      {"LIBRARY_PATH", info->lib->path},
                                      {"LIBRARY_NAME", info->lib->name},
                                      {"LIBRARY_HASH", info->lib->hash},
                                      {"DEVICE", info->device},
                                      {"HOST", host},
                                      {"FOLDER", getcwd(folder, sizeof folder) ? folder : ""},
                                      {"RUN_ID", run_id},
                                      {"JOB", job}};
  MILL_CHECK(mill_h5_write_group(MILL_OUTPUT(file, path), at));
  for (size_t i = 0; i < sizeof attribute / sizeof *attribute; i++)
    MILL_CHECK(
        mill_h5_write_attr_text(MILL_OUTPUT(file, path), at, attribute[i][0], attribute[i][1]));
  MILL_CHECK(mill_output_attr_int64(file, path, at, "N_RANK", &rank64, 0));
  MILL_CHECK(mill_output_attr_int64(file, path, at, "N_THREAD", &thread64, 0));
  MILL_CHECK(
      mill_output_text(file, path, "provenance/IDENTITY", info->identity,
                       "science settings; a run with other settings cannot continue the result"));
  MILL_CHECK(mill_output_text(file, path, "provenance/CONFIG", info->config,
                              "whole configuration (YAML) of the first start"));
  MILL_CHECK(mill_output_text(file, path, "provenance/COMMAND", info->command,
                              "command line of the first start"));
  MILL_CHECK(write_frames(file, path, info));
  return create_state(file, path);
}

int mill_result_layout_check(hid_t file, const char *path, int code)
{
  char format[64] = "";
  int version = 0;
  if (mill_h5_read_attr_text(MILL_OUTPUT(file, path), "/", "FORMAT", format, sizeof format) !=
          MILL_OK ||
      strcmp(format, FORMAT_NAME) != 0 ||
      mill_h5_read_attr_int(MILL_OUTPUT(file, path), "/", "FORMAT_VERSION", &version) != MILL_OK)
    return MILL_ERROR(code, "%s is not a result of starmill", path);
  if (version != MILL_RESULT_FORMAT)
    return MILL_ERROR(code,
                      "%s was written by %s starmill in result format %d, but this starmill reads "
                      "only format %d: use the version that wrote the file, or fit again",
                      path, version > MILL_RESULT_FORMAT ? "a newer" : "an older", version,
                      MILL_RESULT_FORMAT);
  return MILL_OK;
}

int mill_result_open_stored(const char *path, int code, mill_h5_file *file)
{
  MILL_CHECK(mill_h5_open(path, code, file));
  MILL_CHECK(mill_h5_scan(file));
  return mill_result_layout_check(file->id, path, code);
}

/* Estimate the bytes of the file: data, and room for headers. */
static int64_t estimate_size(const mill_run_info *info, const mill_columns *columns,
                             int64_t n_exposure)
{
  mill_columns catalog;
  mill_columns_of(MILL_TABLE_CATALOG, NULL, &catalog);
  const int64_t text =
      (int64_t)(strlen(info->config) + strlen(info->identity) + strlen(info->command));
  return info->n_row * (int64_t)(columns->row_size + catalog.row_size) +
         (info->epochs ? 64 : 24) * n_exposure + (int64_t)info->n_file * 1400 + text + (1 << 17);
}

int mill_result_layout_create(const char *path, const mill_run_info *info,
                              const mill_columns *columns, int64_t n_exposure, int n_rank)
{
  int err = MILL_OK;
  const int64_t version = MILL_RESULT_FORMAT;
  hid_t file = H5I_INVALID_HID;
  MILL_TRY(mill_output_create(path, estimate_size(info, columns, n_exposure), &file));
  MILL_TRY(mill_h5_write_attr_text(MILL_OUTPUT(file, path), "/", "FORMAT", FORMAT_NAME));
  MILL_TRY(mill_output_attr_int64(file, path, "/", "FORMAT_VERSION", &version, 0));
  MILL_TRY(create_fits(file, path, info, columns));
  MILL_TRY(create_catalog(file, path, info, n_exposure));
  if (info->epochs)
    MILL_TRY(create_epochs(file, path, n_exposure));
  MILL_TRY(create_provenance(file, path, info, n_rank));
done:
  err = mill_output_end(path, &file, err);
  return err == MILL_OK ? mill_output_take_room(path) : err; /* now its size is known */
}

int mill_result_layout_mark_unmodelled(hid_t file, const char *path)
{
  return mill_output_write_whole(file, path, UNMODELLED, H5T_NATIVE_UINT8, &(uint8_t){1});
}

int mill_result_layout_check_modelled(hid_t file, const char *path, const char *models)
{
  uint8_t unmodelled = 1;
  MILL_CHECK(mill_output_read_whole(file, path, UNMODELLED, H5T_NATIVE_UINT8, 1, &unmodelled));
  if (unmodelled)
    return MILL_ERROR(
        MILL_ERR_OUTPUT,
        "rows of %s were fitted without --models, so %s would lack their models: continue "
        "without --models",
        path, models);
  return MILL_OK;
}
