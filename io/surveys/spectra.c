/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/surveys/spectra_impl.h"

#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "io/surveys/formats.h"
#include "io/surveys/selection.h"
#include "kernels/backend.h"
#include "kernels/base/layout.h"
#include "src/system/watchdog.h"

/* ---- memory of a batch ---- */

enum { ALIGN = MILL_ARRAY_BYTES }; /* as on the GPU, so that one copy uploads adjacent arrays */
#define STEP ((size_t)1 << 20)     /* spare bytes of a new block beyond the requested piece */

typedef struct mill_arena_block {
  char *data;
  size_t size, used;
} block;

static int is_pinned(const mill_arena *arena)
{
  return arena->backend && arena->backend->pin;
}

static void free_blocks(mill_arena *arena)
{
  while (arena->n_block > 0) {
    void *data = arena->block[--arena->n_block].data;
    if (is_pinned(arena))
      arena->backend->unpin(data);
    else
      mill_free(data);
  }
}

/* Add a block of memory, pinned if the arena's backend asks for this. */
static int add_block(mill_arena *arena, size_t size)
{
  MILL_CHECK(MILL_GROW(&arena->block, &arena->room, arena->n_block + 1));
  block *b = &arena->block[arena->n_block];
  *b = (block){.size = size};
  if (is_pinned(arena))
    MILL_CHECK(arena->backend->pin(size, (void **)&b->data));
  else
    MILL_CHECK(mill_alloc_raw(size, 1, (void **)&b->data));
  arena->n_block++;
  return MILL_OK;
}

/* Forget all contents, but keep the memory, merged into one block, for the next batch. */
static int arena_reset(mill_arena *arena)
{
  size_t size = 0;
  for (int64_t i = 0; i < arena->n_block; i++)
    size += arena->block[i].used;
  if (arena->n_block > 1) { /* replace the blocks by one of their size */
    free_blocks(arena);
    MILL_CHECK(add_block(arena, size));
  } else if (arena->n_block == 1) {
    arena->block[0].used = 0;
  }
  return MILL_OK;
}

/* Does p point into the arena? */
static int arena_has(const mill_arena *arena, const void *p)
{
  for (int64_t i = 0; i < arena->n_block; i++) {
    const uintptr_t start = (uintptr_t)arena->block[i].data;
    if ((uintptr_t)p >= start && (uintptr_t)p < start + arena->block[i].used)
      return 1;
  }
  return 0;
}

void mill_read_batch_clear(mill_read_batch *batch)
{
  if (!batch)
    return;
  free_blocks(&batch->arena);
  MILL_FREE(batch->arena.block, batch->segment);
  memset(batch, 0, sizeof *batch);
}

size_t mill_read_batch_bytes(const mill_read_batch *batch)
{
  size_t n = (size_t)batch->segment_room * sizeof *batch->segment;
  for (int64_t i = 0; i < batch->arena.n_block; i++)
    n += batch->arena.block[i].size;
  return n;
}

const char *mill_frame_name(int frame)
{
  static const char *const name[] = {[MILL_FRAME_UNKNOWN] = "unknown",
                                     [MILL_FRAME_BARYCENTRIC] = "barycentric",
                                     [MILL_FRAME_HELIOCENTRIC] = "heliocentric",
                                     [MILL_FRAME_TOPOCENTRIC] = "topocentric"};
  return frame >= 0 && frame < (int)(sizeof name / sizeof *name) ? name[frame] : "unknown";
}

int mill_frame_from_name(const char *text, size_t n)
{
  int frame = MILL_FRAME_TOPOCENTRIC;
  while (frame > MILL_FRAME_UNKNOWN && strncasecmp(text, mill_frame_name(frame), n) != 0)
    frame--;
  return frame;
}

/* ---- filling a batch ----------------------------------------------------- */

int mill_spectra_alloc(mill_spectra *spectra, size_t n_byte, void **out)
{
  mill_arena *arena = &spectra->batch->arena;
  *out = NULL;
  if (n_byte > SIZE_MAX / 2)
    return MILL_ERROR(MILL_ERR_MEMORY, "%s: no memory for %zu bytes: is the file damaged?",
                      spectra->name, n_byte);
  const size_t size = (n_byte + ALIGN - 1) / ALIGN * ALIGN;
  const block *last = arena->n_block > 0 ? &arena->block[arena->n_block - 1] : NULL;
  if (!last || last->size - last->used < size)
    MILL_CHECK(add_block(arena, size + STEP));
  block *b = &arena->block[arena->n_block - 1];
  *out = b->data + b->used;
  b->used += size;
  return MILL_OK;
}

/* Set *out to the piece's part of `from` [n_row][n_pix] (4-byte numbers), in the batch's memory.
 * Copy it unless it already lies there in one block.  from NULL: *out is NULL. */
static int keep_pixels(mill_spectra *spectra, const mill_piece *p, const void *from, size_t n_row,
                       size_t n_pix, const void **out)
{
  const size_t n = (size_t)p->n;
  const int is_contiguous = n_row == 1 || n == n_pix;
  char *copy = NULL;
  *out = NULL;
  if (!from)
    return MILL_OK;
  const char *at = (const char *)from + 4 * (size_t)p->first;
  if (is_contiguous && arena_has(&spectra->batch->arena, from)) {
    *out = at;
    return MILL_OK;
  }
  MILL_CHECK(mill_spectra_alloc(spectra, 4 * n * n_row, (void **)&copy));
  for (size_t i = 0; i < n_row; i++)
    memcpy(copy + 4 * n * i, at + 4 * n_pix * i, 4 * n);
  *out = copy;
  return MILL_OK;
}

/* Copy the piece's wavelengths into the batch's memory. */
static int add_wave(mill_spectra *spectra, const mill_known_waves *known, mill_piece *p)
{
  double *copy = NULL;
  const size_t n_byte = (size_t)p->n * sizeof *copy;
  if (p->wave_aa)
    return MILL_OK;
  MILL_CHECK(mill_spectra_alloc(spectra, n_byte, (void **)&copy));
  memcpy(copy, known->wave_aa + p->first, n_byte);
  p->wave_aa = copy;
  return MILL_OK;
}

/* If the piece has no sigma (A) yet, compute it from the arm's FWHM or resolving power. */
static int add_sigma(mill_spectra *spectra, const mill_known_waves *known, mill_piece *p)
{
  const mill_arm_rule *rule = &spectra->arm[p->arm];
  float *sigma = NULL;
  if (p->sigma_aa)
    return MILL_OK;
  MILL_CHECK(mill_spectra_alloc(spectra, (size_t)p->n * sizeof *sigma, (void **)&sigma));
  for (int i = 0; i < p->n; i++)
    sigma[i] = (float)(rule->fwhm_aa > 0.0 ? rule->fwhm_aa / MILL_FWHM_SIGMA
                                           : known->wave_aa[p->first + i] /
                                                 (MILL_FWHM_SIGMA * rule->resolving_power));
  p->sigma_aa = sigma;
  return MILL_OK;
}

/* Set *out to the file's sigma of the piece's pixels, times `factor`. */
static int keep_sigma(mill_spectra *spectra, const mill_piece *p, const float *from, double factor,
                      size_t n_pix, const float **out)
{
  float *scaled = NULL;
  if (factor == 1.0)
    return keep_pixels(spectra, p, from, 1, n_pix, (const void **)out);
  MILL_CHECK(mill_spectra_alloc(spectra, (size_t)p->n * sizeof *scaled, (void **)&scaled));
  for (int i = 0; i < p->n; i++)
    scaled[i] = (float)(factor * from[p->first + i]);
  *out = scaled;
  return MILL_OK;
}

static int add_segment(mill_spectra *spectra, const mill_raw_segment *segment)
{
  mill_read_batch *batch = spectra->batch;
  MILL_CHECK(MILL_GROW(&batch->segment, &batch->segment_room, batch->n_segment + 1));
  batch->segment[batch->n_segment++] = *segment;
  return MILL_OK;
}

/* Set a segment's pixels and line-spread function from a piece of a channel. */
static int fill_segment(mill_spectra *spectra, const mill_channel *channel,
                        const mill_known_waves *known, mill_piece *p, mill_raw_segment *s)
{
  const size_t n_pix = (size_t)channel->n_pix;
  const int lsf = mill_spectra_lsf(spectra, channel, p->arm);
  s->use = lsf == MILL_LSF_AUTO ? MILL_SEGMENT_NO_LSF : MILL_SEGMENT_FIT;
  if (s->use != MILL_SEGMENT_FIT || spectra->waves_only)
    return MILL_OK;
  if (!channel->flux || !channel->ivar || (lsf == MILL_LSF_MATRIX && !channel->resolution))
    return MILL_BUG("%s: channel %s came without pixels", spectra->name, channel->name);
  MILL_CHECK(keep_pixels(spectra, p, channel->flux, 1, n_pix, (const void **)&s->flux));
  MILL_CHECK(keep_pixels(spectra, p, channel->ivar, 1, n_pix, (const void **)&s->ivar));
  MILL_CHECK(keep_pixels(spectra, p, channel->mask, 1, n_pix, (const void **)&s->mask));
  const double width_error = spectra->settings.config->fit.lsf_width_error;
  s->width_error = width_error < 0.0 ? spectra->format->lsf_width_error : width_error;
  if (lsf == MILL_LSF_MATRIX) {
    s->n_diag = channel->n_diag;
    s->has_own_lsf = 1;
    MILL_CHECK(keep_pixels(spectra, p, channel->resolution, (size_t)channel->n_diag, n_pix,
                           (const void **)&s->resolution));
  } else if (lsf == MILL_LSF_SIGMA) {
    const double factor = channel->sigma_is_whole ? 1.0 : spectra->settings.config->lsf_factor;
    MILL_CHECK(keep_sigma(spectra, p, channel->sigma_aa, factor, n_pix, &s->sigma_aa));
    s->has_own_lsf = 1;
  } else if (lsf == MILL_LSF_RESOLVING_POWER) {
    MILL_CHECK(add_sigma(spectra, known, p));
    s->sigma_aa = p->sigma_aa;
  }
  return MILL_OK;
}

int mill_spectra_add(mill_spectra *spectra, int i_exposure, const mill_channel *channel)
{
  mill_known_waves *known = NULL;
  const int i_channel = spectra->n_channel++;
  if (i_exposure < 0 || i_exposure >= spectra->n_exposure)
    return MILL_BUG("no exposure %d among %d", i_exposure, spectra->n_exposure);
  if (channel->n_diag < 0 || channel->n_diag > MILL_MAX_DIAG ||
      (channel->n_diag > 0 && channel->n_diag % 2 == 0))
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: the resolution matrix of channel %s has %d diagonals, expected an odd "
                      "number up to %d; make the file again",
                      spectra->name, channel->name, channel->n_diag, MILL_MAX_DIAG);
  MILL_CHECK(MILL_GROW(&spectra->channel_name, &spectra->channel_room, spectra->n_channel));
  memcpy(spectra->channel_name[i_channel], channel->name, sizeof channel->name);
  MILL_CHECK(mill_spectra_know(spectra, channel, &known));
  if (known->outside) {
    const mill_raw_segment none = {.use = MILL_SEGMENT_OUTSIDE,
                                   .exposure = i_exposure,
                                   .channel = i_channel,
                                   .arm = -1,
                                   .first_aa = known->wave_aa[0],
                                   .last_aa = known->wave_aa[known->n_pix - 1]};
    MILL_CHECK(add_segment(spectra, &none));
  }
  for (int i = 0; i < known->n_piece; i++) {
    mill_piece *p = &known->piece[i];
    mill_raw_segment segment = {.exposure = i_exposure,
                                .channel = i_channel,
                                .first = p->first,
                                .arm = p->arm,
                                .n_pix = p->n};
    MILL_CHECK(add_wave(spectra, known, p));
    segment.wave_aa = p->wave_aa;
    segment.wave_number = p->wave_number;
    MILL_CHECK(fill_segment(spectra, channel, known, p, &segment));
    MILL_CHECK(add_segment(spectra, &segment));
  }
  return MILL_OK;
}

/* Sort the segments by exposure and arm; pieces of one arm keep their order.  Insertion sort is
 * fast here, as formats add channels nearly in this order. */
static void sort_segments(mill_read_batch *batch)
{
  for (int i = 1; i < batch->n_segment; i++) {
    const mill_raw_segment s = batch->segment[i];
    int j = i;
    for (; j > 0; j--) {
      const mill_raw_segment *before = &batch->segment[j - 1];
      if (before->exposure < s.exposure || (before->exposure == s.exposure && before->arm <= s.arm))
        break;
      batch->segment[j] = *before;
    }
    batch->segment[j] = s;
  }
}

/* Empty the batch, drop known pieces' pointers into it, and let the format add its channels. */
static int read_batch(mill_spectra *spectra, const int64_t *exposure, int n, int waves_only,
                      mill_read_batch *batch)
{
  batch->n_segment = 0;
  MILL_CHECK(arena_reset(&batch->arena));
  for (int i = 0; i < spectra->n_known; i++)
    for (int k = 0; k < spectra->known[i].n_piece; k++) {
      spectra->known[i].piece[k].wave_aa = NULL;
      spectra->known[i].piece[k].sigma_aa = NULL;
    }
  spectra->batch = batch;
  spectra->n_exposure = n;
  spectra->n_channel = 0;
  spectra->waves_only = waves_only;
  const int code = spectra->format->read(spectra->state, spectra, exposure, n);
  spectra->batch = NULL;
  if (code != MILL_OK)
    batch->n_segment = 0;
  sort_segments(batch);
  return code;
}

/* Fail if the open file was written to: a star must not mix pixels of two versions.  A file may be
 * replaced or removed, as the old one stays open.  An unpacked .gz is a copy, so not checked. */
static int check_unchanged(const mill_fits_guard *guard)
{
  struct stat now;
  if (guard->is_unpacked)
    return MILL_OK;
  if (fstat(guard->fd, &now) != 0 || (int64_t)now.st_size != guard->file_size ||
      (double)now.st_mtim.tv_sec + 1e-9 * (double)now.st_mtim.tv_nsec != guard->file_mtime)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s changed while being read: run the fit again when the file is complete",
                      guard->path);
  return MILL_OK;
}

int mill_spectra_read(mill_spectra *spectra, const int64_t *exposure, int n, mill_read_batch *batch)
{
  MILL_WATCHED(MILL_WATCH_FILE, 0, "%s: reading spectra", spectra->name);
  MILL_CHECK(read_batch(spectra, exposure, n, 0, batch));
  return spectra->fits ? check_unchanged(spectra->fits->guard) : MILL_OK;
}

int mill_spectra_waves(mill_spectra *spectra, const int64_t *exposure, int n,
                       mill_read_batch *batch)
{
  MILL_WATCHED(MILL_WATCH_FILE, 0, "%s: reading wavelengths", spectra->name);
  return read_batch(spectra, exposure, n, 1, batch);
}

/* ---- files ---------------------------------------------------------------- */

int mill_spectra_open_as(const char *path, const mill_spectra_settings *settings,
                         const mill_format *const *formats, int n_format, mill_spectra **out)
{
  MILL_AT_END(mill_spectra_close_at) mill_spectra *spectra = NULL;
  MILL_WATCHED(MILL_WATCH_FILE, 0, "%s: opening the file", path);
  *out = NULL;
  MILL_CHECK(MILL_ALLOC(1, &spectra));
  spectra->settings = *settings;
  mill_spectra_set_rules(spectra);
  MILL_CHECK(mill_fits_file_open(path, &settings->limits, &spectra->fits));
  spectra->name = spectra->fits->guard->path;
  MILL_CHECK(mill_fits_file_check_rows(spectra->fits));
  MILL_CHECK(mill_format_find(settings->config->format, formats, n_format, spectra->name,
                              spectra->fits->guard, &spectra->format));
  const char *cameras = settings->config->cameras_of;
  if (cameras[0] && strcmp(cameras, spectra->format->name) != 0)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%s: has format %s, but the arms of this run are the cameras of the first input's format, "
        "%s: fit this file in a run of its own, or name the library's arms in the key arms",
        spectra->name, spectra->format->name, cameras);
  MILL_CHECK(mill_alloc_bytes(spectra->format->state_bytes, 1, &spectra->state));
  *(mill_fits_file **)spectra->state = spectra->fits; /* the first member of every state */
  MILL_CHECK(spectra->format->open(spectra->state, &spectra->settings, &spectra->frame));
  return MILL_GIVE(&spectra, out);
}

int mill_spectra_open_memory(const char *name, const mill_spectra_settings *settings,
                             const mill_format *format, void *state, mill_spectra **out)
{
  *out = NULL;
  MILL_CHECK(MILL_ALLOC(1, out));
  (*out)->settings = *settings;
  (*out)->name = name;
  (*out)->format = format;
  (*out)->state = state;
  mill_spectra_set_rules(*out);
  return MILL_OK;
}

int mill_spectra_threads(void)
{
  return fits_is_reentrant() != 0;
}

int mill_spectra_open(const char *path, const mill_spectra_settings *settings, mill_spectra **out)
{
  int n = 0;
  const mill_format *const *formats = mill_formats(&n);
  return mill_spectra_open_as(path, settings, formats, n, out);
}

void mill_spectra_close(mill_spectra *spectra)
{
  if (!spectra)
    return;
  if (spectra->state && spectra->format->close)
    spectra->format->close(spectra->state);
  if (spectra->fits) /* else the caller owns the state */
    mill_free(spectra->state);
  mill_fits_file_close(spectra->fits);
  mill_spectra_forget(spectra);
  MILL_FREE(spectra->channel_name, spectra);
}

const char *mill_spectra_format_name(const mill_spectra *spectra)
{
  return spectra->format->name;
}

const char *mill_spectra_channel(const mill_spectra *spectra, const mill_raw_segment *segment)
{
  return spectra->channel_name[segment->channel];
}

int mill_spectra_flux_unit(mill_spectra *spectra, const mill_raw_segment *segment,
                           char unit[MILL_FLUX_UNIT])
{
  unit[0] = '\0';
  return spectra->format->flux_unit
             ? spectra->format->flux_unit(spectra->state, mill_spectra_channel(spectra, segment),
                                          unit)
             : MILL_OK;
}

int mill_spectra_frame(const mill_spectra *spectra)
{
  return spectra->frame;
}

/* Refuse selections that the format does not support: they would silently keep all rows or none. */
static int check_selection(const mill_spectra *spectra, const mill_selection *select)
{
  const mill_format *format = spectra->format;
  const struct {
    unsigned bit;
    int asked;
    const char *keys, *needs;
  } need[] = {
      {MILL_SELECTS_CLASSES, select->n_target_class > 0, "target_classes",
       "target bits of DESI or TARGCAT of WEAVE"},
      {MILL_SELECTS_SCORES, mill_selection_has_scores(select), "minsn_from: scores",
       "SCORES of DESI or SNR of 4MOST"},
      {MILL_SELECTS_EXP_ID, mill_selection_has_exp_id(select), "minexpid or maxexpid",
       "EXPID of DESI's spectra files"},
      {MILL_SELECTS_REDROCK, select->redrock_file[0] != '\0', "redrock_file", "TARGETID of DESI"},
  };
  for (size_t i = 0; i < sizeof need / sizeof need[0]; i++)
    if (need[i].asked && !(format->selects & need[i].bit))
      return MILL_ERROR(MILL_ERR_INPUT,
                        "%s: rows of format %s cannot be selected by %s, which needs %s; leave "
                        "this key out for such files",
                        spectra->fits->guard->path, format->name, need[i].keys, need[i].needs);
  return MILL_OK;
}

int mill_spectra_index(mill_spectra *spectra, const mill_selection *select, mill_file_index *index)
{
  int err = MILL_OK;
  MILL_WATCHED(MILL_WATCH_FILE, 0, "%s: reading the table", spectra->name);
  memset(index, 0, sizeof *index);
  MILL_TRY(check_selection(spectra, select));
  MILL_TRY(spectra->format->index(spectra->state, select, index));
  index->file_size = spectra->fits->guard->file_size;
  index->file_mtime = spectra->fits->guard->file_mtime;
  /* joining needs all rows of a listed star; it drops the others itself */
  mill_file_index_identify(spectra->name,
                           spectra->settings.config->join_by_name ? NULL : select->star, index);
  for (int64_t i = 0; i < index->n_row; i++)
    index->row[i].kind.is_extragalactic = mill_selection_is_extragalactic(select, &index->row[i]);
done:
  if (err != MILL_OK)
    mill_file_index_clear(index);
  return err;
}
