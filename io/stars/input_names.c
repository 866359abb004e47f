/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* stpcpy */

#include "io/stars/input_names.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/catalog/catalog_list.h"
#include "io/catalog/input_pattern.h"
#include "io/files/sha256.h"
#include "io/hdf5/hdf5_util.h"
#include "io/hdf5/parallel_hdf5.h"
#include "io/surveys/redrock.h"
#include "io/result/result_look.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/log.h"
#include "src/system/order.h"
#include "src/system/watchdog.h"

enum { MAX_PATH = 1024 };

/* Command line, then catalog file, then patterns. */
static int list_inputs(const mill_input_request *request, mill_path_list *list)
{
  int err = MILL_OK;
  int64_t *number = NULL;
  size_t n_number = 0;
  int has_place = 0;
  for (int i = 0; i < request->n_input; i++)
    MILL_TRY(mill_path_list_add(list, request->input[i]));
  if (request->catalog)
    MILL_TRY(mill_catalog_list_read(request->catalog, list));
  MILL_TRY(mill_number_list(request->numbers, request->numbers_file, &number, &n_number));
  for (size_t i = 0; i < request->n_pattern; i++) {
    has_place |= strstr(request->pattern[i], "{n") != NULL;
    MILL_TRY(mill_input_pattern(request->pattern[i], number, n_number, list));
  }
  if (n_number > 0 && !has_place)
    MILL_FAIL(MILL_ERR_USAGE, "--numbers: no --pattern contains {n}");
  if (list->n == 0)
    MILL_FAIL(MILL_ERR_USAGE, "no input: name FITS files or give --catalog or --pattern; see "
                              "starmill fit --help");
done:
  mill_free(number);
  return err;
}

/* Settings that distinguish results of one input: science settings and library. */
static int digest_settings(const mill_config *config, const mill_library *lib,
                           char out[MILL_SETTINGS_SIZE])
{
  int err = MILL_OK;
  char *identity = NULL, hex[65];
  mill_sha256 sha;
  MILL_TRY(mill_config_identity(config, &identity));
  mill_sha256_init(&sha);
  mill_sha256_update(&sha, identity, strlen(identity));
  mill_sha256_update(&sha, lib->hash, strlen(lib->hash));
  mill_sha256_final(&sha, hex);
  if (!hex[0])
    MILL_FAIL(MILL_ERR_INTERNAL, "no digest of the settings: libcrypto has failed");
  memcpy(out, hex, MILL_SETTINGS_SIZE - 1);
  out[MILL_SETTINGS_SIZE - 1] = '\0';
done:
  free(identity);
  return err;
}

/* Is the file as it was, by size and time? */
static int is_as_it_was(const char *path, int64_t size, double mtime)
{
  struct stat now;
  return stat(path, &now) == 0 && (int64_t)now.st_size == size &&
         (double)now.st_mtim.tv_sec + 1e-9 * (double)now.st_mtim.tv_nsec == mtime;
}

static int is_done(const mill_input_table *table, const char *settings,
                   const mill_selection *select, const char *name)
{
  char path[PATH_MAX], beside[MILL_FITS_MAX_PATH] = "";
  struct stat result;
  if (!realpath(name, path))
    return 0;
  const mill_input_entry *entry = mill_input_table_find(table, path);
  if (!entry || !entry->is_done || strcmp(entry->settings, settings) != 0 ||
      !is_as_it_was(path, entry->size, entry->mtime) || stat(entry->result, &result) != 0)
    return 0;
  if (!select->redrock)
    return 1;
  const char *redrock = select->redrock_file;
  if (!*redrock) {
    if (mill_redrock_beside(name, beside, sizeof beside) != MILL_OK)
      return 0;
    redrock = beside;
  }
  return is_as_it_was(redrock, entry->redrock_size, entry->redrock_mtime);
}

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

/* The inputs of the result at path, as they are called there or, in another folder, absolute. */
static int read_inputs(const char *path, mill_path_list *own)
{
  int err = MILL_OK;
  char folder[PATH_MAX] = "", here[PATH_MAX] = "", name[2 * PATH_MAX];
  mill_h5_file file = {.id = H5I_INVALID_HID};
  mill_ph5_texts texts = {0};
  MILL_TRY(mill_h5_open(path, MILL_ERR_OUTPUT, &file));
  MILL_TRY(mill_ph5_read_texts(file.id, path, "catalog/files/PATH", &texts));
  if (mill_ph5_read_attr_text(file.id, path, "provenance", "FOLDER", folder, sizeof folder) !=
      MILL_OK)
    folder[0] = '\0';
  if (getcwd(here, sizeof here) && strcmp(here, folder) == 0)
    folder[0] = '\0';
  for (int64_t i = 0; i < texts.n; i++) {
    const char *stored = texts.text + (size_t)i * texts.n_byte;
    const int n = (int)strnlen(stored, texts.n_byte);
    const int is_relative = n > 0 && stored[0] != '/' && folder[0];
    snprintf(name, sizeof name, "%s%s%.*s", is_relative ? folder : "", is_relative ? "/" : "", n,
             stored);
    MILL_TRY(mill_path_list_add(own, name));
  }
done:
  mill_free(texts.text);
  mill_h5_close(&file);
  return err;
}

/* How many of the paths of a list are not among others, links followed. */
static int count_others(const mill_path_list *list, const mill_path_list *others, size_t *n)
{
  int err = MILL_OK;
  char path[PATH_MAX];
  const char *key = path;
  mill_path_list real = {0};
  *n = 0;
  for (size_t i = 0; i < others->n; i++) {
    MILL_TRY(mill_input_absolute(others->path[i], path));
    MILL_TRY(mill_path_list_add(&real, path));
  }
  if (real.n > 0)
    qsort(real.path, real.n, sizeof *real.path, mill_by_text_at);
  for (size_t i = 0; i < list->n; i++) {
    MILL_TRY(mill_input_absolute(list->path[i], path));
    *n += real.n == 0 || !bsearch(&key, real.path, real.n, sizeof *real.path, mill_by_text_at);
  }
done:
  mill_path_list_clear(&real);
  return err;
}

/* Does the table have all of them as inputs of the result at path? */
static int are_recorded(const mill_input_table *table, const char *path, const mill_path_list *own)
{
  char result[PATH_MAX], name[PATH_MAX];
  if (!realpath(path, result))
    return 0;
  for (size_t i = 0; i < own->n; i++)
    if (mill_input_absolute(own->path[i], name) != MILL_OK ||
        !mill_input_table_has(table, result, name))
      return 0;
  return 1;
}

/* An existing result keeps its own inputs; other inputs that are not done wait for another
 * result. */
static int keep_own(const mill_input_request *request, const mill_input_table *table,
                    mill_path_list *list)
{
  int err = MILL_OK;
  size_t n_waiting = 0;
  mill_path_list own = {0};
  mill_existing *existing = NULL;
  MILL_TRY(MILL_ALLOC(1, &existing));
  mill_result_find(request->output, existing);
  if (!existing->found || list->n == 0) /* anything else there is refused when it is opened */
    goto done;
  MILL_TRY(read_inputs(request->output, &own));
  MILL_TRY(count_others(list, &own, &n_waiting));
  if (existing->peek.finished && n_waiting > 0 && are_recorded(table, request->output, &own))
    MILL_FAIL(MILL_ERR_USAGE,
              "%s is finished, and %zu inputs are neither in it nor done: give another --output "
              "for them (and join the results with starmill merge)",
              request->output, n_waiting);
  if (n_waiting > 0)
    mill_log_warning("%s is continued with the %zu inputs that it was begun with; %zu others wait "
                     "for the next run, with another --output",
                     request->output, own.n, n_waiting);
  mill_path_list_clear(list);
  *list = own;
  own = (mill_path_list){0};
done:
  mill_path_list_clear(&own);
  mill_free(existing);
  return err;
}

static int skip_done(const mill_input_request *request, const mill_config *config,
                     mill_input_names *names, mill_path_list *list)
{
  int err = MILL_OK;
  size_t n_kept = 0;
  mill_input_table *table = NULL;
  MILL_TRY(mill_input_table_read(request->input_table, &table));
  for (size_t i = 0; i < list->n; i++)
    if (is_done(table, names->settings, &config->select, list->path[i]))
      mill_free(list->path[i]);
    else
      list->path[n_kept++] = list->path[i];
  names->n_skipped = (int64_t)(list->n - n_kept);
  list->n = n_kept;
  mill_log_info("%lld inputs are done, %zu are not, by %s", (long long)names->n_skipped, n_kept,
                request->input_table);
  MILL_TRY(keep_own(request, table, list));
done:
  mill_input_table_free(table);
  return err;
}

/* Rank 0. */
static int collect_names(const mill_input_request *request, const mill_config *config,
                         const mill_library *lib, mill_input_names *names)
{
  int err = MILL_OK;
  mill_path_list list = {0};
  char path[PATH_MAX];
  const int watch = mill_watch_begin(MILL_WATCH_START, 0, "%s: listing the inputs",
                                     request->catalog ? request->catalog : "command line");
  MILL_TRY(list_inputs(request, &list));
  if (request->input_table) {
    MILL_TRY(digest_settings(config, lib, names->settings));
    for (size_t i = 0; i < list.n; i++) {
      MILL_TRY(mill_input_absolute(list.path[i], path));
      if (!mill_input_table_takes(path))
        MILL_FAIL(MILL_ERR_USAGE,
                  "input %zu has a tab or newline in its path, which --input-table cannot store: "
                  "rename it",
                  i + 1);
    }
  }
  if (request->skip_done)
    MILL_TRY(skip_done(request, config, names, &list));
  names->n = (int64_t)list.n;
  if (names->n > INT_MAX / 2)
    MILL_FAIL(MILL_ERR_USAGE, "%lld inputs, too many for one run", (long long)names->n);
  for (size_t i = 0; i < list.n; i++) {
    const size_t n = strlen(list.path[i]);
    if (n == 0 || n >= MAX_PATH)
      MILL_FAIL(MILL_ERR_USAGE, "input %zu has a path of %zu bytes; expected 1 to %d", i + 1, n,
                MAX_PATH - 1);
    names->n_byte += (int64_t)n + 1;
  }
  if (names->n_byte > INT_MAX)
    MILL_FAIL(MILL_ERR_USAGE, "the names of the %lld inputs are too long for one run",
              (long long)names->n);
  MILL_TRY(MILL_ALLOC(names->n_byte, &names->text));
  char *at = names->text;
  for (size_t i = 0; i < list.n; i++)
    at = stpcpy(at, list.path[i]) + 1;
done:
  mill_watch_end(watch);
  mill_path_list_clear(&list);
  return err;
}

static int split_names(mill_input_names *names)
{
  MILL_CHECK(MILL_ALLOC(names->n, &names->name));
  const char *at = names->text;
  for (int64_t i = 0; i < names->n; i++) {
    names->name[i] = at;
    at += strlen(at) + 1;
  }
  return MILL_OK;
}

int mill_input_names_share(const mill_mpi *mpi, const mill_input_request *request,
                           const mill_config *config, const mill_library *lib,
                           mill_input_names *names)
{
  int err = MILL_OK;
  int64_t size[3] = {0, 0, 0};
  if (mpi->rank == 0)
    err = collect_names(request, config, lib, names);
  MILL_TRY(mill_mpi_agree(mpi, err));
  size[0] = names->n;
  size[1] = names->n_byte;
  size[2] = names->n_skipped;
  MILL_MPI(MPI_Bcast(size, 3, MPI_INT64_T, 0, mpi->comm));
  names->n = size[0];
  names->n_byte = size[1];
  names->n_skipped = size[2];
  if (mpi->rank != 0)
    err = MILL_ALLOC(names->n_byte, &names->text);
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_MPI(MPI_Bcast(names->text, (int)names->n_byte, MPI_CHAR, 0, mpi->comm));
  MILL_TRY(mill_mpi_agree(mpi, split_names(names)));
done:
  return err;
}

void mill_input_names_clear(mill_input_names *names)
{
  mill_free(names->text);
  mill_free((void *)names->name);
  memset(names, 0, sizeof *names);
}
