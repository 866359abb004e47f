/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* stpcpy */

#include "io/stars/input_names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/catalog/catalog_list.h"
#include "io/files/sha256.h"
#include "io/hdf5/output_file.h"
#include "io/surveys/formats.h"
#include "io/surveys/redrock.h"
#include "io/result/existing_result.h"
#include "io/result/result_inputs.h"
#include "io/result/result_layout.h"
#include "src/system/log.h"
#include "src/system/order.h"
#include "src/system/watchdog.h"

enum { MAX_PATH = 1024, MOST_LOOKED_AT = 100 /* inputs examined for the format */ };

/* List the inputs: command line, then catalog file, then patterns. */
static int list_inputs(const mill_input_request *request, mill_path_list *list)
{
  MILL_OWNED int64_t *number = NULL;
  size_t n_number = 0;
  int has_place = 0;
  for (int i = 0; i < request->n_input; i++)
    MILL_CHECK(mill_path_list_add(list, request->input[i]));
  if (request->catalog)
    MILL_CHECK(mill_catalog_list_read(request->catalog, list));
  MILL_CHECK(mill_number_list(request->numbers, request->numbers_file, &number, &n_number));
  for (size_t i = 0; i < request->n_pattern; i++) {
    has_place |= strstr(request->pattern[i], "{n") != NULL;
    MILL_CHECK(mill_input_pattern(request->pattern[i], number, n_number, list));
  }
  if (n_number > 0 && !has_place)
    return MILL_ERROR(MILL_ERR_USAGE, "--numbers: no --pattern contains {n}; write it there");
  if (list->n == 0)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "no input: name FITS files or give --catalog or --pattern; see "
                      "starmill fit --help");
  return MILL_OK;
}

int mill_input_names_format(const mill_input_request *request, const mill_config *config,
                            const mill_format **format)
{
  MILL_AT_END(mill_path_list_clear) mill_path_list list = {0};
  *format = NULL;
  MILL_CHECK(list_inputs(request, &list));
  /* skip unreadable files: indexing will report them */
  for (size_t i = 0; i < list.n && i < MOST_LOOKED_AT && !*format; i++)
    if (mill_format_of(list.path[i], config, format) == MILL_ERR_CONFIG)
      return MILL_ERR_CONFIG;
  return MILL_OK;
}

/* Digest science settings and library: a fit's rows depend on these and on the input only. */
static int digest_settings(const char *identity, const char *library, char out[MILL_SETTINGS_SIZE])
{
  char hex[65];
  mill_sha256 sha;
  mill_sha256_init(&sha);
  mill_sha256_update(&sha, identity, strlen(identity));
  mill_sha256_update(&sha, library, strlen(library));
  mill_sha256_final(&sha, hex);
  if (!hex[0])
    return MILL_BUG("libcrypto computed no SHA-256");
  memcpy(out, hex, MILL_SETTINGS_SIZE - 1); /* only the first digits */
  out[MILL_SETTINGS_SIZE - 1] = '\0';
  return MILL_OK;
}

/* Digest of a run's settings; is_masked 0: as if wave_mask were []. */
static int digest_config(const mill_config *config, int is_masked, const mill_library *lib,
                         char out[MILL_SETTINGS_SIZE])
{
  MILL_OWNED char *identity = NULL;
  mill_config copy = *config; /* borrows the list of selected stars */
  copy.fit.n_wave_mask = is_masked ? config->fit.n_wave_mask : 0;
  MILL_CHECK(mill_config_identity(&copy, &identity));
  return digest_settings(identity, lib->hash, out);
}

static int is_as_it_was(const char *path, int64_t size, double mtime)
{
  struct stat now;
  return stat(path, &now) == 0 && (int64_t)now.st_size == size &&
         (double)now.st_mtim.tv_sec + 1e-9 * (double)now.st_mtim.tv_nsec == mtime;
}

/* Would a fit of input use the redrock file at path?  0: unreadable, or unused by the format. */
static int uses_redrock(const mill_config *config, const char *input, const char *path)
{
  const mill_format *format;
  const mill_open_limits limits = {config->gzip_limit_mib, config->scratch};
  MILL_AT_END(mill_redrock_clear) mill_redrock redrock = {0};
  return mill_format_of(input, config, &format) != MILL_OK ||
         ((format->selects & MILL_SELECTS_REDROCK) &&
          mill_redrock_read(path, &limits, &redrock) != MILL_ERR_INPUT);
}

/* Find an input's entry in the table; NULL: not done with these settings, or changed since. */
static const mill_input_entry *find_done(const mill_input_table *table, const char *settings,
                                         const mill_config *config, const char *name)
{
  char path[PATH_MAX], beside[MILL_FITS_MAX_PATH];
  if (!realpath(name, path))
    return NULL;
  const mill_input_entry *entry = mill_input_table_find(table, path);
  if (!entry || !entry->is_done || strcmp(entry->settings, settings) != 0 ||
      !is_as_it_was(path, entry->size, entry->mtime))
    return NULL;
  const char *redrock = config->select.redrock_file;
  if (!*redrock && mill_redrock_beside(name, beside, sizeof beside) != MILL_OK)
    return NULL;
  redrock = *redrock ? redrock : beside;
  /* the redrock file is the same; or the listed fit used none, and a fit now would use none */
  const int is_same = entry->redrock_size > 0
                          ? is_as_it_was(redrock, entry->redrock_size, entry->redrock_mtime)
                          : !*redrock || !uses_redrock(config, name, redrock);
  return is_same ? entry : NULL;
}

/* An input that the table lists as done. */
typedef struct done_input {
  const char *result;
  const mill_input_entry *entry;
  size_t i; /* index in the list of inputs */
} done_input;

/* Does the result hold the unchanged input, with all its rows done? */
static int has_rows(const mill_known_inputs *known, const mill_input_entry *entry,
                    const int32_t *status, int64_t n_row)
{
  const mill_known_input *input = mill_known_inputs_find(known, entry->path);
  if (!input || input->size != entry->size || input->mtime != entry->mtime ||
      input->row_start < 0 || input->n_row < 0 || input->row_start > n_row - input->n_row)
    return 0;
  for (int64_t k = 0; k < input->n_row; k++)
    if (status[input->row_start + k] == MILL_STATUS_NOT_DONE)
      return 0;
  return 1;
}

/* Read the result in which, by the table, the inputs done [n] are done; by now it may be another
 * run's.  Set is_done to 1 for each input whose rows are all done there.  is_output 1: the result
 * is this run's output; without a fitted row it will be overwritten, so no input is done. */
static int look_for(const done_input *done, size_t n, const mill_input_names *names, int is_output,
                    char *is_done)
{
  char of_result[MILL_SETTINGS_SIZE];
  const char *path = done->result;
  size_t n_row = 0;
  int64_t n_fitted = 0;
  MILL_AT_END(mill_h5_close) mill_h5_file file = {.id = H5I_INVALID_HID};
  MILL_AT_END(mill_result_origin_clear) mill_result_origin origin = {0};
  MILL_AT_END(mill_known_inputs_clear) mill_known_inputs known = {0};
  MILL_OWNED int32_t *status = NULL;
  MILL_CHECK(mill_result_open_stored(path, MILL_ERR_OUTPUT, &file));
  MILL_CHECK(mill_result_origin_read(file.id, path, &origin));
  MILL_CHECK(digest_settings(origin.identity, origin.hash, of_result));
  /* wave_mask `auto` masks nothing in some surveys; results of these have the digest `unmasked` */
  if (strcmp(of_result, names->settings) != 0 && strcmp(of_result, names->unmasked) != 0)
    return MILL_OK;
  MILL_CHECK(mill_h5_shape(&file, "fits/STATUS", 1, &n_row));
  MILL_CHECK(mill_h5_read_new(&file, "fits/STATUS", H5T_NATIVE_INT32, 1, &n_row, &status));
  for (size_t i = 0; i < n_row; i++)
    n_fitted += status[i] == MILL_STATUS_FITTED;
  if (is_output && n_fitted == 0)
    return MILL_OK;
  MILL_CHECK(mill_known_inputs_read(file.id, path, &known));
  for (size_t k = 0; k < n; k++)
    is_done[done[k].i] = (char)has_rows(&known, done[k].entry, status, (int64_t)n_row);
  return MILL_OK;
}

/* Set is_done [list->n]: does the table say that the input is done, and its result confirm that? */
static int mark_done(const mill_input_request *request, const mill_input_table *table,
                     const mill_input_names *names, const mill_config *config,
                     const mill_path_list *list, char *is_done)
{
  char output[PATH_MAX];
  MILL_OWNED done_input *done = NULL;
  size_t n = 0, end = 0;
  MILL_CHECK(mill_input_absolute(request->output, output));
  MILL_CHECK(MILL_ALLOC(list->n, &done));
  for (size_t i = 0; i < list->n; i++) {
    const mill_input_entry *entry = find_done(table, names->settings, config, list->path[i]);
    if (entry)
      done[n++] = (done_input){entry->result, entry, i};
  }
  if (n > 0)
    qsort(done, n, sizeof *done, mill_by_text_at);
  for (size_t first = 0; first < n; first = end) {
    const char *result = done[first].result;
    for (end = first + 1; end < n && strcmp(done[end].result, result) == 0;)
      end++;
    MILL_WATCHED(MILL_WATCH_START, 0, "%s: looking at it", result);
    const int code =
        look_for(done + first, end - first, names, strcmp(result, output) == 0, is_done);
    if (code == MILL_ERR_OUTPUT)
      mill_log_warning("%s; the inputs of this result are fitted again", mill_error_message());
    else
      MILL_CHECK(code);
  }
  return MILL_OK;
}

/* Read the inputs recorded in a result.  known: their absolute paths, sizes and rows; own: their
 * paths as recorded, or absolute if this run is in another folder. */
static int read_inputs(const char *path, mill_known_inputs *known, mill_path_list *own)
{
  char here[PATH_MAX], name[2 * PATH_MAX];
  MILL_AT_END(mill_h5_close) mill_h5_file file = {.id = H5I_INVALID_HID};
  MILL_AT_END(mill_recorded_inputs_clear) mill_recorded_inputs was = {0};
  MILL_CHECK(mill_h5_open(path, MILL_ERR_OUTPUT, &file));
  MILL_CHECK(mill_known_inputs_read(file.id, path, known));
  MILL_CHECK(mill_recorded_inputs_read(file.id, path, &was));
  if (getcwd(here, sizeof here) && strcmp(here, was.folder) == 0)
    was.folder[0] = '\0'; /* mill_recorded_path then returns paths as recorded */
  for (int i = 0; i < was.n_file; i++) {
    MILL_CHECK(mill_recorded_path(&was, i, name, sizeof name));
    MILL_CHECK(mill_path_list_add(own, name));
  }
  return MILL_OK;
}

/* Count the known inputs that the table lists under the result at path. */
static int count_recorded(const mill_input_table *table, const char *path,
                          const mill_known_inputs *known)
{
  int n = 0;
  char result[PATH_MAX];
  if (!realpath(path, result))
    return 0;
  for (int i = 0; i < known->n; i++) {
    const mill_input_entry *entry = mill_input_table_find(table, known->input[i].path);
    n += entry && strcmp(entry->result, result) == 0;
  }
  return n;
}

/* If the output has a fitted row, continue it with its own inputs instead of those in list.  The
 * list has the inputs that are not done; n_waiting of them are not in the output either. */
static int keep_own(const mill_input_request *request, const mill_input_table *table,
                    mill_path_list *list)
{
  char path[PATH_MAX];
  size_t n_waiting = 0;
  MILL_AT_END(mill_path_list_clear) mill_path_list own = {0};
  MILL_AT_END(mill_known_inputs_clear) mill_known_inputs known = {0};
  MILL_OWNED mill_existing *existing = NULL;
  MILL_CHECK(MILL_ALLOC(1, &existing));
  mill_result_find(request->output, existing);
  /* any other file there is replaced or refused when it is opened */
  if (!existing->found || existing->peek.n_status[MILL_STATUS_FITTED] == 0 ||
      (list->n == 0 && existing->peek.finished))
    return MILL_OK;
  MILL_CHECK(read_inputs(request->output, &known, &own));
  const int n_recorded = count_recorded(table, request->output, &known);
  if (list->n == 0 && n_recorded == 0)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "%s is unfinished, but other results listed in %s have all inputs of this "
                      "run: remove the unfinished file",
                      request->output, request->input_table);
  for (size_t i = 0; i < list->n; i++) {
    MILL_CHECK(mill_input_absolute(list->path[i], path));
    n_waiting += !mill_known_inputs_find(&known, path);
  }
  /* n_recorded < known.n: go on, since the run then adds the result's inputs to the table */
  if (existing->peek.finished && n_waiting > 0 && n_recorded == known.n)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "%s is finished and lacks %zu inputs that are still to do: give another "
                      "--output for them (and join the results with starmill merge)",
                      request->output, n_waiting);
  if (n_waiting > 0)
    mill_log_warning("%s is continued with its own %zu inputs; fit the other %zu inputs later, "
                     "with another --output",
                     request->output, own.n, n_waiting);
  mill_path_list_clear(list);
  *list = own;
  own = (mill_path_list){0};
  return MILL_OK;
}

/* Drop the inputs that are done; continue an output that has fitted rows. */
static int skip_done(const mill_input_request *request, const mill_config *config,
                     mill_input_names *names, mill_path_list *list)
{
  size_t n_kept = 0;
  MILL_OWNED char *is_done = NULL;
  MILL_AT_END(mill_input_table_free_at) mill_input_table *table = NULL;
  MILL_CHECK(mill_input_table_read(request->input_table, &table));
  MILL_CHECK(MILL_ALLOC(list->n, &is_done));
  MILL_CHECK(mark_done(request, table, names, config, list, is_done));
  for (size_t i = 0; i < list->n; i++)
    if (is_done[i])
      mill_free(list->path[i]);
    else
      list->path[n_kept++] = list->path[i];
  names->n_skipped = (int64_t)(list->n - n_kept);
  list->n = n_kept;
  mill_log_info("%lld inputs are done and %zu are not, according to %s",
                (long long)names->n_skipped, n_kept, request->input_table);
  return keep_own(request, table, list);
}

/* List the inputs on rank 0, without those that are done. */
static int collect_names(const mill_input_request *request, const mill_config *config,
                         const mill_library *lib, mill_input_names *names)
{
  MILL_AT_END(mill_path_list_clear) mill_path_list list = {0};
  char path[PATH_MAX];
  MILL_WATCHED(MILL_WATCH_START, 0, "%s: listing the inputs",
               request->catalog ? request->catalog : "command line");
  MILL_CHECK(list_inputs(request, &list));
  if (request->input_table) {
    MILL_CHECK(digest_config(config, 1, lib, names->settings)); /* 1: with wave_mask */
    MILL_CHECK(digest_config(config, !config->wave_mask_auto, lib, names->unmasked));
    for (size_t i = 0; i < list.n; i++) {
      MILL_CHECK(mill_input_absolute(list.path[i], path));
      if (!mill_input_table_takes(path))
        return MILL_ERROR(MILL_ERR_USAGE,
                          "input %zu has a tab or newline in its path, which --input-table cannot "
                          "store: rename it",
                          i + 1);
    }
  }
  if (request->skip_done)
    MILL_CHECK(skip_done(request, config, names, &list));
  names->n = (int64_t)list.n;
  if (names->n > INT_MAX / 2)
    return MILL_ERROR(MILL_ERR_USAGE, "%lld inputs are too many for one run; make several runs",
                      (long long)names->n);
  for (size_t i = 0; i < list.n; i++) {
    const size_t n = strlen(list.path[i]);
    if (n == 0 || n >= MAX_PATH)
      return MILL_ERROR(MILL_ERR_USAGE, "input %zu has a path of %zu bytes; expected 1 to %d",
                        i + 1, n, MAX_PATH - 1);
    names->n_byte += (int64_t)n + 1;
  }
  if (names->n_byte > INT_MAX)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "the paths of %lld inputs are too long for one run; make several runs",
                      (long long)names->n);
  MILL_CHECK(MILL_ALLOC(names->n_byte, &names->text));
  char *at = names->text;
  for (size_t i = 0; i < list.n; i++)
    at = stpcpy(at, list.path[i]) + 1;
  return MILL_OK;
}

static int split_names(mill_input_names *names)
{
  names->n = 0;
  for (int64_t i = 0; i < names->n_byte; i++)
    names->n += names->text[i] == '\0';
  MILL_CHECK(MILL_ALLOC(names->n, &names->name));
  const char *at = names->text;
  for (int64_t i = 0; i < names->n; i++, at += strlen(at) + 1)
    names->name[i] = at;
  return MILL_OK;
}

int mill_input_names_share(const mill_mpi *mpi, const mill_input_request *request,
                           const mill_config *config, const mill_library *lib,
                           mill_input_names *names)
{
  char *text = NULL; /* names are on rank 0 alone; gathering gives them to all */
  MILL_CHECK(
      mill_mpi_agree(mpi, mpi->rank == 0 ? collect_names(request, config, lib, names) : MILL_OK));
  MILL_CHECK(mill_mpi_gather(mpi, names->text, names->n_byte, 1,
                             "bytes of input paths are too many for one run; make several runs",
                             (void **)&text, &names->n_byte));
  mill_free(names->text);
  names->text = text;
  MILL_CHECK_MPI(MPI_Bcast(&names->n_skipped, 1, MPI_INT64_T, 0, mpi->comm));
  return mill_mpi_agree(mpi, split_names(names));
}

void mill_input_names_clear(mill_input_names *names)
{
  MILL_FREE(names->text, (void *)names->name);
  memset(names, 0, sizeof *names);
}
