/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/catalog/sampled_fit.h"

#include <string.h>
#include <sys/stat.h>

#include "io/hdf5/output_file.h"
#include "io/result/result_inputs.h"
#include "io/result/result_layout.h"
#include "kernels/math/counter_random.h"

enum { SHARE_PURPOSE = 21 /* purpose of the random words; start_table.c has 20 */ };

int mill_sampled_read_config(const char *path, mill_config *config)
{
  MILL_AT_END(mill_h5_close) mill_h5_file file = {.id = H5I_INVALID_HID};
  MILL_OWNED char *text = NULL;
  uint8_t finished;
  MILL_CHECK(mill_result_open_stored(path, MILL_ERR_CONFIG, &file));
  MILL_CHECK(
      mill_output_read_whole(file.id, path, "provenance/FINISHED", H5T_NATIVE_UINT8, 1, &finished));
  if (!finished)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s is not finished: give the fit's command again", path);
  MILL_CHECK(mill_output_read_text(file.id, path, "provenance/CONFIG", &text));
  MILL_CHECK(mill_config_read_text(config, path, text, strlen(text)));
  if (strlen(path) >= sizeof config->start)
    return MILL_ERROR(MILL_ERR_CONFIG, "--fit: the path of %zu bytes is too long; shorten it",
                      strlen(path));
  snprintf(config->start, sizeof config->start, "%s", path); /* start at the fit's solutions */
  return MILL_OK;
}

/* *code: 0 if lib's hash is the fit's LIBRARY_HASH; else 1 + its index in the fit's HASHES. */
int mill_sampled_check_library(const char *path, const mill_library *lib, int n_library, int *code)
{
  MILL_AT_END(mill_h5_close) mill_h5_file file = {.id = H5I_INVALID_HID};
  char hash[MILL_MAX_LIBRARY * sizeof lib->hash] = "";
  *code = 0;
  if (n_library > 1)
    return MILL_ERROR(
        MILL_ERR_USAGE,
        "%s was fitted with %d libraries, but a sample takes one: choose it by --library", path,
        n_library);
  MILL_CHECK(mill_result_open_stored(path, MILL_ERR_CONFIG, &file));
  MILL_CHECK(mill_h5_read_attr_text(&file, "provenance", "LIBRARY_HASH", hash, sizeof hash));
  if (strcmp(hash, lib->hash) == 0)
    return MILL_OK;
  if (mill_h5_has_attr(&file, "fits/LIBRARY", "HASHES"))
    MILL_CHECK(mill_h5_read_attr_text(&file, "fits/LIBRARY", "HASHES", hash, sizeof hash));
  const char *at = strstr(hash, lib->hash);
  if (!at)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "%s was fitted with another library than %s (hashes %.12s and %.12s): give "
                      "the library of the fit with --library",
                      path, lib->path, hash, lib->hash);
  *code = 1 + (int)((size_t)(at - hash) / sizeof lib->hash); /* a digest and a line end */
  return MILL_OK;
}

/* The fit's IDENTITY holds the hashes of all files that the fit used. */
int mill_sampled_check_same(const char *path, const char *key, const char *name, const char *hash,
                            const char *remedy)
{
  MILL_AT_END(mill_h5_close) mill_h5_file file = {.id = H5I_INVALID_HID};
  MILL_OWNED char *text = NULL;
  MILL_CHECK(mill_result_open_stored(path, MILL_ERR_CONFIG, &file));
  MILL_CHECK(mill_output_read_text(file.id, path, "provenance/IDENTITY", &text));
  if (!strstr(text, hash))
    return MILL_ERROR(MILL_ERR_CONFIG, "%s: %s has changed since the fit that wrote %s: %s", key,
                      name, path, remedy);
  return MILL_OK;
}

/* ---- which stars ---- */

/* Columns of the fit's rows by which stars are chosen. */
typedef struct fit_rows {
  const char *path;
  size_t n;
  int64_t *id, *warn;
  int32_t *status, *info;
  double *sn, *arm_sn; /* [n] largest S/N of all arms; S/N of the arm just read */
  mill_fits_values identifier, object;
} fit_rows;

static void clear_rows(fit_rows *rows)
{
  MILL_FREE(rows->id, rows->warn, rows->status, rows->info, rows->sn, rows->arm_sn,
            rows->identifier.text, rows->object.text);
}

/* Set sn to each row's largest S/N, over the columns SN_ARM of all arms. */
static int read_sn(const mill_h5_file *file, fit_rows *rows)
{
  H5G_info_t info;
  MILL_AT_END(mill_h5_id_close) const hid_t group = H5Gopen2(file->id, "fits", H5P_DEFAULT);
  if (group < 0 || H5Gget_info(group, &info) < 0)
    return MILL_ERROR(MILL_ERR_CONFIG, "%s: /fits cannot be read: %s", rows->path,
                      mill_h5_reason());
  for (size_t i = 0; i < rows->n; i++)
    rows->sn[i] = -INFINITY;
  for (hsize_t l = 0; l < info.nlinks; l++) {
    char name[64] = "fits/";
    const size_t at = strlen(name);
    const ssize_t n = H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, l, name + at,
                                         sizeof name - at, H5P_DEFAULT);
    if (n < 0 || (size_t)n >= sizeof name - at || strncmp(name + at, "SN_", 3) != 0)
      continue;
    MILL_CHECK(mill_h5_read(file, name, H5T_NATIVE_DOUBLE, 1, &rows->n, rows->arm_sn));
    for (size_t i = 0; i < rows->n; i++)
      rows->sn[i] = fmax(rows->sn[i], rows->arm_sn[i]);
  }
  return MILL_OK;
}

/* Read the columns by which fitted stars are chosen. */
static int read_rows(const char *path, fit_rows *rows)
{
  MILL_AT_END(mill_h5_close) mill_h5_file file = {.id = H5I_INVALID_HID};
  MILL_CHECK(mill_result_open_stored(path, MILL_ERR_CONFIG, &file));
  MILL_CHECK(mill_h5_shape(&file, "fits/TARGETID", 1, &rows->n));
  MILL_CHECK(mill_h5_read_new(&file, "fits/TARGETID", H5T_NATIVE_INT64, 1, &rows->n, &rows->id));
  MILL_CHECK(mill_h5_read_new(&file, "fits/RVS_WARN", H5T_NATIVE_INT64, 1, &rows->n, &rows->warn));
  MILL_CHECK(mill_h5_read_new(&file, "fits/STATUS", H5T_NATIVE_INT32, 1, &rows->n, &rows->status));
  MILL_CHECK(mill_h5_read_new(&file, "fits/FIT_INFO", H5T_NATIVE_INT32, 1, &rows->n, &rows->info));
  MILL_CHECK(MILL_ALLOC(rows->n, &rows->sn));
  MILL_CHECK(MILL_ALLOC(rows->n, &rows->arm_sn));
  MILL_CHECK(read_sn(&file, rows));
  MILL_CHECK(
      mill_star_texts_read(&file, "catalog/IDENTIFIER", (int64_t)rows->n, &rows->identifier));
  return mill_star_texts_read(&file, "catalog/OBJECT", (int64_t)rows->n, &rows->object);
}

/* Set the bits of RVS_WARN and FIT_INFO named in text, separated by commas. */
static int read_flags(const char *text, int64_t *warn, int32_t *info)
{
#define OF_WARN(symbol, bit, name, meaning) {name, bit, 0},
#define OF_INFO(symbol, bit, name, meaning) {name, 0, bit},
  static const struct {
    const char *name;
    int64_t warn;
    int32_t info;
  } flag[] = {MILL_WARN_LIST(OF_WARN) MILL_INFO_LIST(OF_INFO)};
  for (const char *item = text;; item++) {
    const size_t n = strcspn(item, ",");
    int found = 0;
    for (size_t i = 0; i < sizeof flag / sizeof *flag; i++)
      if (strlen(flag[i].name) == n && strncmp(flag[i].name, item, n) == 0) {
        *warn |= flag[i].warn;
        *info |= flag[i].info;
        found = 1;
      }
    if (!found)
      return MILL_ERROR(MILL_ERR_USAGE,
                        "--flag takes names of RVS_WARN and FIT_INFO separated by commas, e.g. "
                        "TWO_MINIMA,HULL, not '%.*s'",
                        (int)n, item);
    item += n;
    if (*item == '\0')
      return MILL_OK;
  }
}

/* Add to kept the rows that meet wish.  A row listed only by IDENTIFIER (is_spectrum) is added by
 * IDENTIFIER alone, lest the star's other spectra join.  found: see mill_star_list_has. */
static int keep_rows(const mill_sampled_wish *wish, const mill_config *config, const fit_rows *rows,
                     unsigned char *found, mill_star_list *kept)
{
  const mill_star_list *stars = config->select.star;
  int64_t warn = 0;
  int32_t info = 0;
  char name[MILL_STAR_NAME];
  if (wish->flag)
    MILL_CHECK(read_flags(wish->flag, &warn, &info));
  for (size_t i = 0; i < rows->n; i++) {
    const char *identifier = mill_fits_text_at(&rows->identifier, (int64_t)i);
    const char *object = mill_fits_text_at(&rows->object, (int64_t)i);
    const int is_star = !stars || mill_star_list_has(stars, rows->id[i], "", object, found);
    const int is_spectrum = stars && mill_star_list_has(stars, -1, identifier, "", found);
    const int is_flagged = !wish->flag || (rows->warn[i] & warn) || (rows->info[i] & info);
    /* draw the star with probability wish->part, by seed and identity alone */
    const mill_counter_key key = mill_counter_key_of(
        wish->seed, mill_star_identity(rows->id[i], object, identifier), SHARE_PURPOSE);
    const int has_sn = rows->sn[i] >= wish->least_sn && rows->sn[i] <= wish->most_sn;
    if ((is_star || is_spectrum) && rows->status[i] == MILL_STATUS_FITTED && is_flagged && has_sn &&
        mill_counter_uniform(key.v[0], key.v[1]) < wish->part)
      MILL_CHECK(mill_star_list_add_row(kept, is_star ? rows->id[i] : -1, identifier,
                                        is_star ? object : ""));
  }
  const int64_t n_missing = wish->is_listing ? mill_star_list_missing(stars, found, name) : 0;
  if (n_missing > 0)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "%s has no row whose TARGETID, IDENTIFIER or OBJECT is '%s' (names of "
                      "--object without a row: %lld): check --object",
                      rows->path, name, (long long)n_missing);
  if (kept->n_number + kept->n_name == 0)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "%s has no fitted star that passes --object, --flag, --sn-range and "
                      "--fraction: widen these",
                      rows->path);
  mill_star_list_sort(kept);
  return MILL_OK;
}

int mill_sampled_choose(const char *path, const mill_sampled_wish *wish, mill_config *config)
{
  mill_selection *select = &config->select;
  MILL_AT_END(clear_rows) fit_rows rows = {.path = path};
  MILL_OWNED unsigned char *found = NULL; /* which listed numbers and names have a row */
  MILL_AT_END(mill_star_list_free_at) mill_star_list *kept = NULL;
  config->fit.binaries = 0;              /* a sample describes one star */
  config->fit.epochs = MILL_EPOCHS_NONE; /* with one velocity */
  if (!wish->is_listing && !wish->flag && isinf(wish->most_sn) && wish->part == 1.0)
    return MILL_OK; /* sample all stars of the fit (most_sn is infinite without --sn-range) */
  MILL_CHECK(read_rows(path, &rows));
  MILL_CHECK(MILL_ALLOC(1, &kept));
  if (select->star)
    MILL_CHECK(MILL_ALLOC(select->star->n_number + select->star->n_name, &found));
  MILL_CHECK(keep_rows(wish, config, &rows, found, kept));
  mill_star_list_free(select->star);
  return MILL_GIVE(&kept, &select->star);
}

int mill_sampled_check_inputs(const char *path, const mill_inputs *inputs)
{
  char absolute[PATH_MAX];
  struct stat status;
  MILL_AT_END(mill_h5_close) mill_h5_file file = {.id = H5I_INVALID_HID};
  MILL_AT_END(mill_known_inputs_clear) mill_known_inputs known = {0};
  MILL_CHECK(mill_result_open_stored(path, MILL_ERR_CONFIG, &file));
  MILL_CHECK(mill_known_inputs_read(file.id, path, &known));
  for (int i = 0; i < inputs->n_file; i++) {
    const mill_input_file *now = &inputs->file[i];
    MILL_CHECK(mill_input_absolute(now->path, absolute));
    const mill_known_input *then = mill_known_inputs_find(&known, absolute);
    if (!then && stat(now->path, &status) == 0 && status.st_nlink > 1) /* look for a hard link */
      for (int k = 0; k < known.n && !then; k++)
        then = mill_recorded_is("", known.input[k].path, now->path) ? &known.input[k] : NULL;
    if (then && !now->error[0] && (then->size != now->size || then->mtime != now->mtime))
      return MILL_ERROR(
          MILL_ERR_OUTPUT,
          "%s has changed since the fit %s (%s): restore the file, or fit it again", now->path,
          path, then->size != now->size ? "its size differs" : "its time of change differs");
  }
  return MILL_OK;
}
