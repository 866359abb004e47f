/* SPDX-License-Identifier: BSD-3-Clause */
/* Print how starmill reads spectra, libraries and configurations, for tests/e2e/survey_files.py.
 *
 * Each line of the input gives a file's kind and path, and how to read it; an arm given without a
 * range is a whole channel.  The answer is a line of JSON, then the bytes of all arrays; the JSON
 * says where each array begins among them. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/library/library_file.h"
#include "io/surveys/formats.h"
#include "src/config/arms.h"

/* lsf 1: the library needs a line-spread function.  each 1: every exposure is read alone as well.
 * cut: the file is cut to this many bytes after it is indexed. */
typedef struct request {
  char file[4096], config[1024], arms[256];
  int lsf, each;
  long cut;
} request;

static FILE *arrays;
static char *bytes;
static size_t n_byte;

/* [where it begins among the arrays, number of values] */
static json_t *array(const void *values, int64_t n, size_t size)
{
  if (!values)
    return json_null();
  const json_int_t at = (json_int_t)ftell(arrays);
  fwrite(values, size, (size_t)n, arrays);
  return json_pack("[I,I]", at, (json_int_t)n);
}

/* JSON has no NaN. */
static json_t *real(double x)
{
  char text[32];
  snprintf(text, sizeof text, "%.17g", x);
  return json_string(text);
}

static json_t *row_of(const mill_catalog_row *r)
{
  return json_pack(
      "{s:I,s:I,s:i,s:i,s:I,s:i,s:I,s:i,s:s,s:s,s:s,s:s,s:s,s:o,s:o,s:o}", "target_id",
      (json_int_t)r->target_id, "fits_row", (json_int_t)r->fits_row, "fiber", (int)r->fiber,
      "exp_id", (int)r->exp_id, "ref_id", (json_int_t)r->ref_id, "n_exposure", (int)r->n_exposure,
      "first_exposure", (json_int_t)r->first_exposure, "night", (int)r->night, "object", r->object,
      "spectype", r->kind.spectype, "subtype", r->kind.subtype, "ref_cat", r->ref_cat, "identifier",
      r->identifier, "ra", real(r->target_ra), "dec", real(r->target_dec), "z", real(r->kind.z));
}

static json_t *segments_of(const mill_read_batch *batch)
{
  json_t *list = json_array();
  for (int i = 0; i < batch->n_segment; i++) {
    const mill_raw_segment *s = &batch->segment[i];
    const int64_t n = s->n_pix;
    json_array_append_new(
        list, json_pack("{s:i,s:i,s:i,s:i,s:I,s:o,s:o,s:o,s:o,s:o,s:o}", "use", (int)s->use,
                        "exposure", s->exposure, "arm", s->arm, "n_diag", s->n_diag, "wave_at",
                        (json_int_t)(intptr_t)s->wave_aa, "wave", array(s->wave_aa, n, 8), "flux",
                        array(s->flux, n, 4), "ivar", array(s->ivar, n, 4), "mask",
                        array(s->mask, n, 4), "resolution", array(s->resolution, n * s->n_diag, 4),
                        "sigma", array(s->sigma_aa, n, 4)));
  }
  return list;
}

static json_t *failure(int err)
{
  return json_pack("{s:i,s:s}", "error", mill_error_exit_status(err), "message",
                   mill_error_message());
}

/* An exposure alone, its wavelengths alone. */
static json_t *alone(mill_spectra *spectra, int64_t exposure, mill_read_batch *batch)
{
  int err = mill_spectra_read(spectra, &exposure, 1, batch);
  if (err != MILL_OK)
    return failure(err);
  json_t *found = json_pack("{s:o}", "segments", segments_of(batch));
  if ((err = mill_spectra_waves(spectra, &exposure, 1, batch)) != MILL_OK)
    return failure(err);
  json_object_set_new(found, "waves", segments_of(batch));
  return found;
}

static int recognised(const char *path, const mill_open_limits *limits, json_t *names)
{
  int n = 0;
  const mill_format *const *all = mill_formats(&n);
  mill_fits_guard *guard;
  MILL_CHECK(mill_fits_guard_open(path, limits, &guard));
  for (int i = 0; i < n; i++)
    if (all[i]->recognise(guard))
      json_array_append_new(names, json_string(all[i]->name));
  mill_fits_guard_close(guard);
  return MILL_OK;
}

static void make_library(const request *r, mill_library *lib)
{
  char names[sizeof r->arms], *rest = names;
  memcpy(names, r->arms, sizeof names);
  for (char *name; (name = strsep(&rest, ",")); lib->n_arm++) {
    mill_arm *arm = &lib->arm[lib->n_arm];
    double low = 0, high = 0;
    if (sscanf(name, "%31[^:]:%lf:%lf", arm->name, &low, &high) == 3) {
      arm->n_pix = 1001;
      arm->ln_wave0 = log(low);
      arm->ln_step = log(high / low) / 1000;
    }
    arm->template_sigma_aa = r->lsf ? 0.0 : -1.0;
  }
}

static int answer(const request *r, json_t *out)
{
  int err = MILL_OK;
  static mill_library lib;
  mill_config config;
  mill_spectra_settings settings = {.lib = &lib, .config = &config};
  mill_spectra *spectra = NULL;
  mill_file_index index = {0};
  mill_read_batch batch = {0};
  memset(&lib, 0, sizeof lib);
  make_library(r, &lib);
  mill_config_default(&config);
  mill_error_clear();
  json_object_set_new(out, "recognised", json_array());
  MILL_TRY(mill_config_read(&config, r->config));
  mill_config_arms(&config, &lib, settings.arm_wanted);
  settings.limits = (mill_open_limits){config.gzip_limit_mib, config.scratch};
  MILL_TRY(recognised(r->file, &settings.limits, json_object_get(out, "recognised")));
  MILL_TRY(mill_spectra_open(r->file, &settings, &spectra));
  json_object_set_new(out, "format", json_string(mill_spectra_format_name(spectra)));
  json_object_set_new(out, "frame", json_integer(mill_spectra_frame(spectra)));
  MILL_TRY(mill_spectra_index(spectra, &config.select, &index));
  json_t *rows = json_array();
  for (int64_t i = 0; i < index.n_row; i++)
    json_array_append_new(rows, row_of(&index.row[i]));
  json_object_set_new(out, "rows", rows);
  json_object_set_new(out, "n_fits_row", json_integer((json_int_t)index.n_fits_row));
  json_object_set_new(out, "file_size", json_integer((json_int_t)index.file_size));
  json_object_set_new(out, "exposure_row", array(index.exposure_row, index.n_exposure, 8));
  json_object_set_new(out, "exposure_id", array(index.exposure_id, index.n_exposure, 4));
  json_object_set_new(out, "exposure_mjd", array(index.exposure_mjd, index.n_exposure, 8));
  if (r->cut > 0 && truncate(r->file, r->cut) != 0)
    MILL_FAIL(MILL_ERR_INTERNAL, "%s cannot be cut", r->file);
  if (r->each) { /* from the last to the first, and beyond both ends */
    json_t *each = json_array();
    for (int64_t e = index.n_exposure - 1; e >= 0; e--)
      json_array_insert_new(each, 0, alone(spectra, index.exposure_row[e], &batch));
    json_object_set_new(out, "each", each);
    json_object_set_new(
        out, "beyond",
        json_pack("[o,o]", alone(spectra, -1, &batch), alone(spectra, 1000, &batch)));
  }
  MILL_TRY(mill_spectra_read(spectra, index.exposure_row, (int)index.n_exposure, &batch));
  json_object_set_new(out, "segments", segments_of(&batch));
done:
  mill_read_batch_clear(&batch);
  mill_file_index_clear(&index);
  mill_spectra_close(spectra);
  mill_config_clear(&config);
  return err;
}

/* A library that is refused is left cleared. */
static int library(const char *path, json_t *out)
{
  static mill_library lib;
  mill_error_clear();
  const int err = mill_library_read(path, &lib);
  json_object_set_new(out, "hash", json_string(lib.hash));
  json_object_set_new(out, "cleared", json_boolean(lib.n_label == 0 && !lib.arm[0].wave_aa));
  mill_library_clear(&lib);
  return err;
}

/* Read configuration second over first.  untouched: a refused second has changed nothing. */
static int config(const char *first, const char *second, json_t *out)
{
  int err = MILL_OK;
  mill_config read, before;
  char *text = NULL;
  size_t n = 0;
  mill_config_default(&read);
  mill_error_clear();
  MILL_TRY(mill_config_read(&read, first));
  memcpy(&before, &read, sizeof read);
  err = second[0] ? mill_config_read(&read, second) : MILL_OK;
  json_object_set_new(out, "untouched", json_boolean(memcmp(&before, &read, sizeof read) == 0));
  if (err != MILL_OK)
    goto done;
  FILE *file = open_memstream(&text, &n);
  err = mill_config_print(&read, file);
  fclose(file);
  json_object_set_new(out, "printed", json_string(text));
  free(text);
  if (err != MILL_OK)
    goto done;
  if (read.start[0]) /* counts by the hash of its contents, which its reader sets */
    strcpy(read.start_hash, "0123");
  if (read.prior_table[0])
    strcpy(read.prior_hash, "0123");
  if (read.sky_components[0])
    strcpy(read.sky_hash, "0123");
  MILL_TRY(mill_config_identity(&read, &text));
  json_object_set_new(out, "identity", json_string(text));
  free(text);
done:
  mill_config_clear(&read);
  return err;
}

static int made_of(char *line, json_t *out)
{
  request r = {.lsf = 0};
  char what[16] = "";
  const int n = sscanf(line, "%15[^\t]\t%4095[^\t\n]\t%1023[^\t\n]\t%255[^\t]\t%d\t%d\t%ld", what,
                       r.file, r.config, r.arms, &r.lsf, &r.each, &r.cut);
  if (n < 2 || (what[0] == 's' && n < 7))
    exit(2);
  return what[0] == 's'   ? answer(&r, out)
         : what[0] == 'l' ? library(r.file, out)
                          : config(r.file, r.config, out);
}

int main(void)
{
  char line[8192];
  while (fgets(line, sizeof line, stdin)) {
    json_t *out = json_object();
    arrays = open_memstream(&bytes, &n_byte);
    const int err = made_of(line, out);
    if (err != MILL_OK)
      json_object_update_new(out, failure(err));
    fclose(arrays);
    json_object_set_new(out, "n_byte", json_integer((json_int_t)n_byte));
    json_dumpf(out, stdout, JSON_COMPACT);
    putchar('\n');
    fwrite(bytes, 1, n_byte, stdout);
    fflush(stdout);
    json_decref(out);
    free(bytes);
  }
  return 0;
}
