/* SPDX-License-Identifier: BSD-3-Clause */
#include "libstarmill/handle.h"

#include <ctype.h>

#include "io/surveys/formats.h"

/* ---- from a batch ---- */

void mill_star_drop(starmill_star *star)
{
  if (!star)
    return;
  mill_read_batch_clear(&star->batch);
  mill_free(star);
}

/* Keep the segments that can be fitted.  STATUS, which counts only if a star has none, gives one
 * reason: if possible a reason that the user can remove. */
static int take_segments(starmill_star *star)
{
  int no_lsf = 0, outside = 0;
  const mill_read_batch *batch = &star->batch;
  star->segment = batch->segment;
  mill_pipeline_begin_star(star->library->pipeline);
  for (int i = 0; i < batch->n_segment; i++) {
    mill_raw_segment *s = &batch->segment[i];
    no_lsf |= s->use == MILL_SEGMENT_NO_LSF;
    outside |= s->use == MILL_SEGMENT_OUTSIDE;
    if (s->use != MILL_SEGMENT_FIT)
      continue;
    const int code = mill_pipeline_accepts(star->library->pipeline, s);
    if (code == MILL_ERR_RANGE) {
      outside = 1;
      snprintf(star->reason, sizeof star->reason, "%s", mill_error_message());
      continue;
    }
    MILL_CHECK(code);
    star->segment[star->n_segment++] = *s; /* overwrite skipped segments */
  }
  star->status = no_lsf    ? MILL_STATUS_NO_RESOLUTION
                 : outside ? MILL_STATUS_OUTSIDE_LIBRARY
                           : MILL_STATUS_NO_ARM;
  return MILL_OK;
}

/* Make a star from a batch with one object's segments; the star takes the batch's memory. */
static int star_of_batch(starmill_library *h, mill_read_batch *batch, int64_t target_id,
                         starmill_star **star)
{
  MILL_AT_END(mill_star_drop_at) starmill_star *s = NULL;
  MILL_CHECK(MILL_ALLOC(1, &s));
  s->library = h;
  s->number = ++h->n_star;
  s->target_id = target_id;
  s->batch = *batch;
  *batch = (mill_read_batch){0};
  MILL_CHECK(take_segments(s));
  return MILL_GIVE(&s, star);
}

/* ---- from memory ---- */

typedef struct memory_source {
  const starmill_spectrum *spectrum;
  int n;
} memory_source;

/* Let *ivar include the systematic error, in an array of the batch; a negative ivar stays bad. */
static int add_systematic(mill_spectra *spectra, const starmill_spectrum *from, const float **ivar)
{
  float *sum = NULL;
  MILL_CHECK(mill_spectra_alloc(spectra, (size_t)from->n_pix * sizeof *sum, (void **)&sum));
  for (int i = 0; i < from->n_pix; i++) {
    const double ivar_i = fmax(0.0, (double)from->ivar[i]), error = (double)from->systematic[i];
    sum[i] = (float)(ivar_i / (1.0 + ivar_i * error * error));
  }
  *ivar = sum;
  return MILL_OK;
}

/* Give the caller's spectra to the reader as channels: the callback `read` of format in_memory. */
static int add_channels(void *state, mill_spectra *spectra, const int64_t *exposure, int n)
{
  const memory_source *source = state;
  (void)exposure; /* the star in memory is read whole */
  (void)n;
  for (int i = 0; i < source->n; i++) {
    const starmill_spectrum *from = &source->spectrum[i];
    mill_channel channel = {.n_pix = from->n_pix,
                            .n_diag = from->resolution ? from->n_diag : 0,
                            .wave_aa = from->wave,
                            .air = from->air != 0,
                            .flux = from->flux,
                            .ivar = from->ivar,
                            .mask = from->mask,
                            .resolution = from->resolution,
                            .sigma_aa = from->sigma,
                            .sigma_is_whole = 1}; /* lsf_factor does not apply */
    snprintf(channel.name, sizeof channel.name, "%s", from->name ? from->name : "");
    for (char *c = channel.name; *c; c++)
      *c = (char)tolower((unsigned char)*c);
    if (from->systematic)
      MILL_CHECK(add_systematic(spectra, from, &channel.ivar));
    MILL_CHECK(mill_spectra_add(spectra, from->exposure, &channel));
  }
  return MILL_OK;
}

static const mill_format in_memory = {.name = "memory", .read = add_channels};

/* Check the spectra and set n_exposure to the highest exposure number + 1. */
static int count_exposures(const starmill_spectrum *spectrum, int n, int *n_exposure)
{
  enum { MOST = 1 << 16 }; /* most exposures of a star */
  *n_exposure = 1;
  if (n < 0 || (n > 0 && !spectrum))
    return MILL_ERROR(MILL_ERR_USAGE, "n is %d%s", n,
                      n > 0 ? ", but spectrum is NULL" : "; give 0 spectra or more");
  for (int i = 0; i < n; i++) {
    const starmill_spectrum *s = &spectrum[i];
    if (s->exposure < 0 || s->exposure >= MOST)
      return MILL_ERROR(MILL_ERR_USAGE, "spectrum %d: exposure %d is outside 0 to %d", i,
                        s->exposure, MOST - 1);
    if (s->resolution && s->n_diag < 1)
      return MILL_ERROR(MILL_ERR_USAGE, "spectrum %d: n_diag is %d; resolution needs 1 or more", i,
                        s->n_diag);
    if (s->n_pix < 1 || !s->wave || !s->flux || !s->ivar)
      return MILL_ERROR(MILL_ERR_USAGE, "spectrum %d: give n_pix above 0, wave, flux and ivar", i);
    *n_exposure = s->exposure + 1 > *n_exposure ? s->exposure + 1 : *n_exposure;
  }
  return MILL_OK;
}

int mill_star_make(starmill_library *h, const starmill_spectrum *spectrum, int n,
                   starmill_star **star)
{
  int n_exposure = 0;
  memory_source source = {spectrum, n};
  MILL_AT_END(mill_spectra_close_at) mill_spectra *spectra = NULL;
  MILL_AT_END(mill_read_batch_clear) mill_read_batch batch = {0};
  MILL_OWNED int64_t *exposure = NULL;
  MILL_CHECK(count_exposures(spectrum, n, &n_exposure));
  MILL_CHECK(MILL_ALLOC(n_exposure, &exposure)); /* for the reader; add_channels ignores it */
  MILL_CHECK(
      mill_spectra_open_memory("a star in memory", &h->spectra, &in_memory, &source, &spectra));
  MILL_CHECK(mill_spectra_read(spectra, exposure, n_exposure, &batch));
  return star_of_batch(h, &batch, -1 /* no TARGETID */, star);
}

int starmill_star_create(starmill_library *library, const starmill_spectrum *spectrum, int n,
                         starmill_star **star, starmill_error *error)
{
  MILL_REFUSE_NULL(error, library, star);
  MILL_LOCKED(&library->mutex);
  const int err = mill_star_make(library, spectrum, n, star);
  library->n_user += err == MILL_OK;
  return mill_tell(err, error);
}

void starmill_star_free(starmill_star *star)
{
  if (!star)
    return;
  starmill_library *h = star->library;
  pthread_mutex_lock(&h->mutex);
  mill_star_drop(star);
  mill_library_release(h);
}

int starmill_star_n_piece(const starmill_star *star)
{
  return star ? star->n_segment : 0;
}

void starmill_star_set_target_id(starmill_star *star, int64_t target_id)
{
  if (star)
    star->target_id = target_id;
}

/* ---- into the pipeline ---- */

mill_star mill_star_raw(const starmill_star *star, int64_t row, const double *start)
{
  return (mill_star){.row = row,
                     .n_segment = star->n_segment,
                     .segment = star->segment,
                     .warn = star->is_extragalactic ? MILL_WARN_CLASS : 0,
                     .start = start};
}

static const char *status_text(int status)
{
#define STATUS_TEXT(symbol, code, name, meaning) [code] = meaning,
  static const char *const text[] = {MILL_STATUS_LIST(STATUS_TEXT)};
  return text[status];
}

/* Load the star into the pipeline; h->held is the number of the loaded star, 0: none. */
int mill_star_hold(starmill_library *h, const starmill_star *star)
{
  mill_evaluation eval;
  double penalty;
  if (star->library != h)
    return MILL_ERROR(MILL_ERR_USAGE, "the star was made with another library");
  if (h->held == star->number) /* already loaded */
    return MILL_OK;
  h->held = 0; /* in case something below fails */
  if (star->n_segment == 0)
    return MILL_ERROR(MILL_ERR_INPUT, "the star cannot be evaluated: %s",
                      star->status == MILL_STATUS_OUTSIDE_LIBRARY && star->reason[0]
                          ? star->reason
                          : status_text(star->status));
  const mill_star raw = mill_star_raw(star, 0, NULL);
  MILL_CHECK(mill_pipeline_hold(h->pipeline, &raw, &h->prepared));
  if (h->prepared.status != MILL_STATUS_NOT_DONE) /* the star cannot be fitted */
    return MILL_ERROR(MILL_ERR_INPUT, "the star cannot be evaluated: %s",
                      status_text(h->prepared.status));
  if (star->is_fixed) /* compute the model error at fixed_at */
    MILL_CHECK(
        mill_pipeline_ask(h->pipeline, MILL_REQ_TANGENTS, 1, 1, star->fixed_at, &eval, &penalty));
  h->held = star->number;
  return MILL_OK;
}

/* ---- from files ---- */

struct starmill_file {
  starmill_library *library;
  mill_spectra *spectra;
  mill_file_index index;
  char *path;
};

static void drop_file(starmill_file *f)
{
  if (!f)
    return;
  mill_spectra_close(f->spectra);
  mill_file_index_clear(&f->index);
  MILL_FREE(f->path, f);
}

MILL_CLOSER(starmill_file, drop_file)

static int open_file(starmill_library *h, const char *path, starmill_file **file)
{
  const size_t n_byte = strlen(path) + 1;
  MILL_AT_END(drop_file_at) starmill_file *f = NULL;
  if (h->config.join_by_name || h->config.join_radius_arcsec > 0)
    return MILL_ERROR(MILL_ERR_CONFIG, "join_by_name: only starmill fit joins rows; give the "
                                       "spectra of an object to starmill_star_create");
  MILL_CHECK(MILL_ALLOC(1, &f));
  MILL_CHECK(MILL_ALLOC(n_byte, &f->path));
  memcpy(f->path, path, n_byte);
  f->library = h;
  MILL_CHECK(mill_spectra_open(f->path, &h->spectra, &f->spectra));
  const char *format = mill_spectra_format_name(f->spectra);
  mill_config cut = h->config; /* the copy borrows the list of selected stars */
  MILL_CHECK(mill_format_take_cameras(format, &h->lib, &cut));
  /* was the library opened without the arms or the mask that this format sets? */
  if (strcmp(h->config.format, format) != 0 &&
      (cut.n_arm > h->config.n_arm || (cut.wave_mask_auto && strcmp(format, "desi") == 0)))
    return MILL_ERROR(
        MILL_ERR_CONFIG,
        "%s: its format sets arms and masked wavelengths; open the library with the key "
        "`format: %s`, or with the keys arms and wave_mask",
        path, format);
  MILL_CHECK(mill_spectra_index(f->spectra, &h->config.select, &f->index));
  return MILL_GIVE(&f, file);
}

int starmill_file_open(starmill_library *library, const char *path, starmill_file **file,
                       starmill_error *error)
{
  MILL_REFUSE_NULL(error, library, path, file);
  MILL_LOCKED(&library->mutex);
  MILL_FILES_LOCKED;
  const int err = open_file(library, path, file);
  library->n_user += err == MILL_OK;
  return mill_tell(err, error);
}

void starmill_file_close(starmill_file *file)
{
  if (!file)
    return;
  starmill_library *h = file->library;
  pthread_mutex_lock(&h->mutex);
  {
    MILL_FILES_LOCKED;
    drop_file(file);
  }
  mill_library_release(h);
}

int64_t starmill_file_n_row(const starmill_file *file)
{
  return file ? file->index.n_row : 0;
}

static int check_row(const starmill_file *f, int64_t i_row)
{
  if (i_row < 0 || i_row >= f->index.n_row)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "%s: row %lld is out of range; there are %lld, counted from 0", f->path,
                      (long long)i_row, (long long)f->index.n_row);
  return MILL_OK;
}

int starmill_file_row(const starmill_file *file, int64_t i_row, starmill_row *row,
                      starmill_error *error)
{
  MILL_REFUSE_NULL(error, file, row);
  const int err = check_row(file, i_row);
  if (err == MILL_OK)
    *row = (starmill_row){file->index.row[i_row].identifier, file->index.row[i_row].target_id};
  return mill_tell(err, error);
}

static int star_of_row(starmill_file *f, int64_t i_row, starmill_star **star)
{
  MILL_AT_END(mill_read_batch_clear) mill_read_batch batch = {0};
  MILL_CHECK(check_row(f, i_row));
  const mill_catalog_row *row = &f->index.row[i_row];
  MILL_CHECK(mill_spectra_read(f->spectra, f->index.exposure_row + row->first_exposure,
                               row->n_exposure, &batch));
  MILL_CHECK(star_of_batch(f->library, &batch, row->target_id, star));
  (*star)->is_extragalactic = row->kind.is_extragalactic;
  return MILL_OK;
}

int starmill_file_star(starmill_file *file, int64_t i_row, starmill_star **star,
                       starmill_error *error)
{
  MILL_REFUSE_NULL(error, file, star);
  starmill_library *h = file->library;
  MILL_LOCKED(&h->mutex);
  MILL_FILES_LOCKED;
  const int err = star_of_row(file, i_row, star);
  h->n_user += err == MILL_OK;
  return mill_tell(err, error);
}
