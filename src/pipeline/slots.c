/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/pipeline/slots.h"

#include "kernels/base/memory.h"
#include "kernels/math/continuum.h"
#include "src/stars/line_spread.h"

/** Largest block of memory that slots share, bytes. */
#define SLAB_BYTES ((size_t)32 << 20)

/** Pieces of an upload, at most.  For each segment: flux, inverse variance, mask, resolution.  For
 *  the star: segments, slot, line-spread functions. */
enum { SEGMENT_PIECES = 4, STAR_PIECES = 3 };

int mill_slots_create(const mill_member *member, int n_lib, int n_slot, int want_models,
                      mill_slots *s)
{
  const mill_device_memory *last = &member[n_lib - 1].memory; /* its device holds the stars */
  s->member = member;
  s->n_lib = n_lib;
  s->memory = (mill_device_memory){.backend = last->backend, .device = last->device};
  s->n_slot = n_slot;
  s->want_models = want_models;
  MILL_CHECK(MILL_ALLOC(n_slot, &s->entry));
  return mill_alloc_bytes((size_t)n_slot, sizeof *s->bound, (void **)&s->bound);
}

/* ---- memory of the slots ---- */

/** Give back a slot's memory unless it is part of a shared block. */
static void drop_own(mill_slots *s, mill_slot_memory *memory)
{
  if (!memory->is_own)
    return;
  s->memory.backend->release(s->memory.device, memory->at);
  *memory = (mill_slot_memory){0};
}

void mill_fetched_clear(mill_fetched *fetched)
{
  MILL_FREE(fetched->copy, fetched->model, fetched->epoch);
}

void mill_slots_clear(mill_slots *s)
{
  for (int i = 0; s->entry && i < s->n_slot; i++) {
    mill_slot_entry *e = &s->entry[i];
    drop_own(s, &e->memory);
    MILL_FREE(e->segment, e->plan);
  }
  mill_device_memory_clear(&s->memory);
  mill_fetched_clear(&s->fetched);
  MILL_FREE(s->entry, (void *)s->bound, s->lsf, s->piece);
  memset(s, 0, sizeof *s);
}

void mill_slots_trim(mill_slots *slots)
{
  for (int i = 0; i < slots->n_slot; i++)
    if (!slots->entry[i].active)
      drop_own(slots, &slots->entry[i].memory);
}

int mill_slots_drop(mill_slots *slots)
{
  int n = 0;
  for (int i = 0; i < slots->n_slot; i++) {
    mill_slot_memory *memory = &slots->entry[i].memory;
    n += memory->at != NULL;
    drop_own(slots, memory);
    *memory = (mill_slot_memory){0};
  }
  mill_device_memory_drop(&slots->memory);
  return n > 0;
}

/** Zero the models in new memory: unfitted segments write none, but all models are downloaded. */
static int clear_models(const mill_slots *s, void *memory, size_t n_byte)
{
  const mill_device_memory *m = &s->memory;
  return s->want_models ? m->backend->zero(m->device, memory, n_byte) : MILL_OK;
}

/** Give a slot at least n_byte bytes.  A slot with too little memory gets new memory of its own.  A
 *  slot without memory shares a new block with the next slots that have none, since large blocks
 *  use large pages.  On failure a slot keeps its memory. */
static int reserve_memory(mill_slots *s, mill_slot_entry *e, size_t n_byte)
{
  int code = MILL_OK;
  size_t n = 1;
  void *memory = NULL;
  mill_slot_memory *mine = &e->memory;
  n_byte = mill_round_up(n_byte, MILL_ARRAY_BYTES);
  if (n_byte <= mine->cap)
    return MILL_OK;
  if (mine->at) {
    MILL_CHECK(s->memory.backend->alloc(s->memory.device, n_byte, &memory));
    drop_own(s, mine);
    *mine = (mill_slot_memory){memory, n_byte, 1};
    return clear_models(s, memory, n_byte);
  }
  const mill_slot_entry *end = s->entry + s->n_slot;
  while (e + n < end && !e[n].memory.at && (n + 1) * n_byte <= SLAB_BYTES)
    n++;
  for (;; n /= 2) { /* halve the number of slots until there is memory */
    code = mill_device_memory_take(&s->memory, n * n_byte, NULL, &memory);
    if (code != MILL_ERR_MEMORY || n == 1)
      break;
  }
  MILL_CHECK(code);
  for (size_t i = 0; i < n; i++)
    e[i].memory = (mill_slot_memory){(char *)memory + i * n_byte, n_byte, 0};
  return clear_models(s, memory, n * n_byte);
}

/** Return the bytes of a segment's array of sigmas, with padding. */
static size_t lsf_bytes(const mill_raw_segment *raw)
{
  return mill_round_up((size_t)raw->n_pix * sizeof(float), MILL_ARRAY_BYTES);
}

/** Make room on the host for a slot's segments, line-spread functions and list of uploads. */
static int reserve_segments(mill_slots *s, mill_slot_entry *e, const mill_star *star)
{
  const int n = star->n_segment;
  e->lsf_bytes = 0;
  for (int i = 0; i < n; i++)
    e->lsf_bytes += star->segment[i].sigma_aa ? lsf_bytes(&star->segment[i]) : 0;
  MILL_CHECK(MILL_RENEW(&s->piece, &s->cap_piece, SEGMENT_PIECES * n + STAR_PIECES));
  MILL_CHECK(MILL_RENEW(&s->lsf, &s->cap_lsf, e->lsf_bytes * (size_t)s->n_lib));
  MILL_CHECK(MILL_RENEW(&e->segment, &e->cap_segment, n));
  return MILL_RENEW(&e->plan, &e->cap_plan, n * s->n_lib);
}

/* ---- line-spread functions ---- */

static enum mill_lsf_use use_of(const mill_member *m, const mill_raw_segment *raw)
{
  return mill_lsf_use_of(m->lib, &m->model.set, raw);
}

/** Return the relative error of a line-spread function's width; 0: the function is not used. */
static double width_error(const mill_member *m, const mill_raw_segment *raw)
{
  return use_of(m, raw) == MILL_LSF_NO_USE ? 0.0 : raw->width_error;
}

/** Find a star's wavelength sets for all libraries, and plan its line-spread functions.  s->lsf has
 *  room for each library and segment with sigmas; it is filled if the library uses the sigmas. */
static int plan_star(mill_slots *s, mill_slot_entry *e, const mill_star *star)
{
  char *lsf = s->lsf;
  memset(e->info, 0, sizeof e->info);
  for (int k = 0; k < s->n_lib; k++) {
    const mill_member *m = &s->member[k];
    for (int a = 0; a < m->lib->n_arm; a++)
      e->blur_ln[k][a] = mill_lsf_plan_blur(m->lib, &m->model.set, star, a);
    for (int i = 0; i < star->n_segment; i++) {
      const mill_raw_segment *raw = &star->segment[i];
      mill_slot_plan *plan = &e->plan[e->n_waveset];
      MILL_CHECK(mill_waveset_cache_get(m->waveset, raw, &plan->waveset));
      e->n_waveset++;
      plan->n_diag = use_of(m, raw) == MILL_LSF_BY_MATRIX ? raw->n_diag : 0;
      if (use_of(m, raw) == MILL_LSF_BY_SIGMA)
        mill_lsf_plan_sigma(m->lib, &m->model.set, raw, e->blur_ln[k][raw->arm],
                            (float *)(void *)lsf, &plan->n_diag, &e->info[k]);
      lsf += raw->sigma_aa ? lsf_bytes(raw) : 0;
    }
  }
  return MILL_OK;
}

/* ---- loading ---- */

/** Count the elements of a segment's arrays. */
static void count_segment(const mill_slots *s, const mill_member *m, const mill_slot_plan *plan,
                          const mill_raw_segment *raw, size_t *count)
{
  const size_t n = (size_t)raw->n_pix, n_diag = (size_t)plan->n_diag;
  const size_t pitch = (size_t)mill_row_pitch(raw->n_pix);
  const int n_block = mill_waveset_cache_view(m->waveset, plan->waveset).n_block;
  const int with_parts = s->want_models == MILL_MODELS_WITH_PARTS;
  const mill_model_arm *arm = &m->model.arm[raw->arm];
  const int n_error = mill_n_error(arm, width_error(m, raw));
  count[MILL_COUNT_PIX] = n;
  count[MILL_COUNT_MATRIX] = use_of(m, raw) == MILL_LSF_BY_MATRIX ? n_diag * n : 0;
  count[MILL_COUNT_RES] = n_diag * pitch;
  count[MILL_COUNT_MODEL] = s->want_models ? n : 0;
  count[MILL_COUNT_PARTS] = with_parts ? n : 0;
  count[MILL_COUNT_COEF] = with_parts ? MILL_MAX_CONT : 0;
  count[MILL_COUNT_OWN] = arm->error.fraction || n_error > 0 ? n : 0;
  count[MILL_COUNT_PAIR] = m->model.set.binaries ? (size_t)(1 + m->model.n_deriv) * pitch : 0;
  count[MILL_COUNT_ERROR] = pitch * (size_t)(n_error + arm->n_sky);
  count[MILL_COUNT_BLOCKS] =
      (size_t)mill_guess_lanes(n_block) * 2 * MILL_GUESS_LANE * (size_t)m->model.guess_n;
}

/** Count the elements of the arrays of a posterior; none unless the run samples. */
static void count_posterior(const mill_model *m, size_t *count)
{
  const mill_sample_settings *set = &m->set.sample;
  const size_t n = (size_t)set->max_eval;
  if (n == 0)
    return;
  count[MILL_COUNT_PROPOSAL] = MILL_SAMPLE_PART;
  count[MILL_COUNT_POINT] = n;
  count[MILL_COUNT_PLACE] = (n + 1) * (size_t)m->n_par;
  count[MILL_COUNT_POSTERIOR] = mill_posterior_bytes(set->n_draw, m->n_deriv);
}

/** Lay out a star's arrays for library k in a block of memory: set the pointers of e->segment and
 *  s->host; block NULL: only measure.
 *
 *  at [MILL_N_STAR_REGION]  in/out  in: offset of each region's start; out: of its end */
static void lay_out_star(mill_slots *s, mill_slot_entry *e, const mill_star *star, int k,
                         char *block, size_t *at)
{
  const mill_array *array;
  size_t count[MILL_N_STAR_COUNT] = {0};
  const mill_model *m = &s->member[k].model;
  const mill_slot_plan *plan = &e->plan[k * star->n_segment];
  const int n_array = mill_segment_arrays(&array);
  for (int i = 0; i < star->n_segment; i++) {
    count_segment(s, &s->member[k], &plan[i], &star->segment[i], count);
    mill_lay_out(n_array, array, count, MILL_ARRAY_BYTES, at, block, 1, &e->segment[i],
                 sizeof(mill_segment));
  }
  count[MILL_COUNT_TEMPL] = (size_t)m->n_templ;
  count[MILL_COUNT_GUESS] = (size_t)m->n_templ * (2 * (size_t)m->guess_half + 1);
  count[MILL_COUNT_KEPT] = (size_t)m->n_arm * (size_t)m->max_pix_pad *
                           (m->set.precision == MILL_FLOAT64 ? sizeof(double) : sizeof(float));
  count[MILL_COUNT_EPOCH] = (size_t)star->n_epoch;
  count[MILL_COUNT_VELOCITY] = (size_t)star->n_segment * MILL_N_PROFILE;
  count[MILL_COUNT_ANSWER] = (size_t)star->n_segment * (size_t)mill_answer_pitch(m);
  count_posterior(m, count);
  const int n_slot_array = mill_slot_arrays(&array);
  mill_lay_out(n_slot_array, array, count, MILL_ARRAY_BYTES, at, block, 1, &s->host,
               sizeof(mill_slot));
}

/** Reserve memory for a star and set the offsets of its parts.  Libraries use this memory in turn.
 *  Only the size of the device's part depends on the library; the largest size is reserved. */
static int place_star(mill_slots *s, int i_slot, const mill_star *star)
{
  mill_slot_entry *e = &s->entry[i_slot];
  size_t at[MILL_N_STAR_REGION] = {0}, n_device = 0;
  for (int k = 0; k < s->n_lib; k++) {
    memset(at, 0, sizeof at);
    lay_out_star(s, e, star, k, NULL, at);
    n_device = at[MILL_STAR_DEVICE] > n_device ? at[MILL_STAR_DEVICE] : n_device;
  }
  const size_t n_model = at[MILL_STAR_MODELS];
  const size_t slot_at =
      n_model + mill_round_up((size_t)star->n_segment * sizeof(mill_segment), MILL_ARRAY_BYTES);
  e->raw_at = slot_at + mill_round_up(sizeof(mill_slot), MILL_ARRAY_BYTES);
  e->lsf_at = e->raw_at + at[MILL_STAR_RAW];
  e->device_at = e->lsf_at + (size_t)s->n_lib * e->lsf_bytes;
  MILL_CHECK(reserve_memory(s, e, e->device_at + n_device));
  e->model_bytes = n_model;
  s->bound[i_slot] = (mill_slot *)(void *)(e->memory.at + slot_at);
  return MILL_OK;
}

/** Add a piece to the star's upload; stays: as in mill_upload. */
static void add_piece(mill_slots *s, void *to, const void *from, size_t bytes, int stays)
{
  s->piece[s->n_piece++] = (mill_upload){to, from, bytes, stays};
}

/** Fill the mill_segments for the library e->library, after lay_out_star has set their pointers. */
static int fill_segments(mill_slots *s, mill_slot_entry *e)
{
  const int k = e->library;
  const mill_member *m = &s->member[k];
  char *lsf = e->memory.at + e->lsf_at + (size_t)k * e->lsf_bytes;
  for (int i = 0; i < e->n_segment; i++) {
    const mill_raw_segment *raw = &e->star->segment[i];
    const mill_slot_plan *plan = &e->plan[k * e->n_segment + i];
    const double templ = m->lib->arm[raw->arm].template_sigma_aa;
    mill_segment *to = &e->segment[i];
    to->arm = raw->arm;
    to->epoch = raw->epoch;
    to->n_pix = raw->n_pix;
    to->n_diag = plan->n_diag;
    to->ws = mill_waveset_cache_view(m->waveset, plan->waveset).device;
    to->blur_ln = e->blur_ln[k][raw->arm];
    to->width_error = width_error(m, raw);
    if (to->raw_res && templ > 0.0)
      MILL_CHECK(mill_waveset_cache_deconv(m->waveset, plan->waveset, raw->n_diag, to->blur_ln,
                                           &to->deconv));
    if (use_of(m, raw) == MILL_LSF_BY_SIGMA)
      to->lsf_aa = (float *)(void *)lsf;
    lsf += raw->sigma_aa ? lsf_bytes(raw) : 0;
  }
  return MILL_OK;
}

/** Fill the mill_slot for the library e->library, after lay_out_star has set its pointers. */
static void fill_slot(mill_slots *s, const mill_slot_entry *e, double limit)
{
  mill_slot *to = &s->host;
  const mill_star *star = e->star;
  const mill_member *m = &s->member[e->library];
  int info = e->info[e->library];
  to->n_segment = star->n_segment;
  to->n_epoch = star->n_epoch;
  to->segment = (mill_segment *)(void *)(e->memory.at + e->model_bytes);
  to->starts.has_limit = limit < (double)INFINITY;
  to->starts.limit = limit;
  to->starts.has_given = star->start != NULL;
  to->starts.try_all = star->start && star->try_all;
  to->starts.is_several = star->start && star->is_several;
  to->starts.given_chisq = star->start_chisq;
  to->starts.given_f = star->start_f;
  for (int j = 0; j < m->model.n_deriv; j++) { /* from: index in the first library */
    const int from = j < MILL_PAR_LABEL0 ? j : MILL_PAR_LABEL0 + m->label[j - MILL_PAR_LABEL0];
    to->starts.given[j] = star->start ? star->start[from] : 0.0;
    to->prior_mean[j] = star->prior_mean[from];
    to->prior_sigma[j] = star->prior_sigma[from];
    info |= star->prior_sigma[from] > 0.0 ? MILL_INFO_PRIOR : 0;
  }
  for (int a = 0; a < m->lib->n_arm; a++)
    to->blur[a] = e->blur_ln[e->library][a] / m->lib->arm[a].ln_step;
  to->sample.identity = star->identity;
  mill_fit_result_init(&to->result, m->lib, star->row, MILL_STATUS_NOT_DONE);
  to->result.info |= info;
  to->result.warn |= star->warn;
}

/** Fill the host's copy of the star's segments and slot for library k, and queue both for upload.
 *  limit: largest chi-square of the guess with which library k fits; -INFINITY: it only guesses. */
static int queue_star(mill_slots *s, int i_slot, int k, double limit)
{
  mill_slot_entry *e = &s->entry[i_slot];
  const size_t bytes = (size_t)e->n_segment * sizeof(mill_segment);
  size_t at[MILL_N_STAR_REGION] = {[MILL_STAR_RAW] = e->raw_at, [MILL_STAR_DEVICE] = e->device_at};
  e->library = k;
  memset(e->segment, 0, bytes);
  memset(&s->host, 0, MILL_SLOT_COPY_BYTES);
  lay_out_star(s, e, e->star, k, e->memory.at, at);
  MILL_CHECK(fill_segments(s, e));
  fill_slot(s, e, limit);
  e->posterior = s->host.sample.posterior;
  e->epoch = s->host.epoch;
  s->n_piece = 0;
  add_piece(s, e->memory.at + e->model_bytes, e->segment, bytes, 0);
  add_piece(s, s->bound[i_slot], &s->host, MILL_SLOT_COPY_BYTES, 0);
  return MILL_OK;
}

/** Add pixels and line-spread functions to the upload, in the order of their addresses. */
static void add_pixels(mill_slots *s, const mill_slot_entry *e)
{
  const mill_star *star = e->star;
  for (int i = 0; i < star->n_segment; i++) {
    const mill_raw_segment *raw = &star->segment[i];
    const mill_segment *to = &e->segment[i];
    const size_t n = (size_t)raw->n_pix;
    add_piece(s, to->raw_flux, raw->flux, n * sizeof *raw->flux, star->stays);
    add_piece(s, to->raw_ivar, raw->ivar, n * sizeof *raw->ivar, star->stays);
    add_piece(s, to->raw_mask, raw->mask, n * sizeof *raw->mask, star->stays); /* NULL: zeros */
    if (to->raw_res)
      add_piece(s, to->raw_res, raw->resolution, (size_t)to->n_diag * n * sizeof *raw->resolution,
                star->stays);
  }
  if (e->lsf_bytes > 0)
    add_piece(s, e->memory.at + e->lsf_at, s->lsf, (size_t)s->n_lib * e->lsf_bytes, 0);
}

/** Plan, place and upload a star; after a failure the caller frees the slot. */
static int load(mill_slots *s, int i_slot, mill_star *star)
{
  mill_slot_entry *e = &s->entry[i_slot];
  e->n_segment = star->n_segment;
  MILL_CHECK(reserve_segments(s, e, star));
  MILL_CHECK(plan_star(s, e, star));
  MILL_CHECK(place_star(s, i_slot, star));
  e->star = star;
  e->n_epoch = star->n_epoch;
  /* several libraries take turns: first all guess, from the last one on */
  MILL_CHECK(queue_star(s, i_slot, s->n_lib - 1, s->n_lib > 1 ? -INFINITY : INFINITY));
  add_pixels(s, e);
  MILL_CHECK(s->memory.backend->upload_all(s->memory.device, s->piece, s->n_piece));
  e->active = e->fresh = 1;
  return MILL_OK;
}

int mill_slots_load(mill_slots *slots, int i_slot, mill_star *star)
{
  const int err = load(slots, i_slot, star);
  if (err != MILL_OK)
    mill_slots_free(slots, i_slot);
  return err;
}

int mill_slots_turn(mill_slots *slots, int i_slot, int library, double limit)
{
  mill_slot_entry *e = &slots->entry[i_slot];
  MILL_CHECK(queue_star(slots, i_slot, library, limit));
  e->fresh = 1;
  e->finished = 0;
  return slots->memory.backend->upload_all(slots->member[library].memory.device, slots->piece,
                                           slots->n_piece);
}

void mill_slots_free(mill_slots *slots, int i_slot)
{
  mill_slot_entry *e = &slots->entry[i_slot];
  for (int i = 0; i < e->n_waveset; i++)
    mill_waveset_cache_release(slots->member[i / e->n_segment].waveset, e->plan[i].waveset);
  e->n_waveset = e->active = e->fresh = e->finished = 0;
}

/** Return the bytes downloaded of a star: models, then segments. */
static size_t fetched_bytes(const mill_slot_entry *e)
{
  return e->model_bytes + (size_t)e->n_segment * sizeof(mill_segment);
}

int mill_slots_fetch_posterior(mill_slots *slots, int i_slot, mill_posterior *to)
{
  const mill_device_memory *memory = &slots->memory;
  return memory->backend->download(
      memory->device, to, slots->entry[i_slot].posterior,
      mill_posterior_bytes(slots->member->model.set.sample.n_draw, slots->member->model.n_deriv));
}

int mill_slots_fetch(mill_slots *s, const int *i_slot, int n)
{
  mill_fetched *f = &s->fetched;
  size_t n_byte = 0, n_model = 0, n_epoch = 0;
  for (int i = 0; i < n; i++) {
    const mill_slot_entry *e = &s->entry[i_slot[i]];
    n_byte += mill_round_up(fetched_bytes(e), MILL_ARRAY_BYTES);
    n_model += s->want_models ? (size_t)e->n_segment : 0;
    n_epoch += (size_t)e->n_epoch;
  }
  MILL_CHECK(MILL_RENEW(&s->piece, &s->cap_piece, n));
  MILL_CHECK(MILL_RENEW(&f->copy, &f->cap_copy, n_byte));
  MILL_CHECK(MILL_RENEW(&f->model, &f->cap_model, n_model));
  MILL_CHECK(MILL_RENEW(&f->epoch, &f->cap_epoch, n_epoch));
  char *to = f->copy;
  for (int i = 0; i < n; i++) {
    const mill_slot_entry *e = &s->entry[i_slot[i]];
    s->piece[i] = (mill_upload){to, e->memory.at, fetched_bytes(e), 0};
    to += mill_round_up(fetched_bytes(e), MILL_ARRAY_BYTES);
  }
  MILL_CHECK(s->memory.backend->download_all(s->memory.device, s->piece, n));
  mill_star_model *model = f->model;
  mill_epoch_result *epoch = f->epoch;
  for (int i = 0; i < n; i++) {
    const mill_slot_entry *e = &s->entry[i_slot[i]];
    /* pointers in the copied structures are addresses of the backend's memory */
    char *const copy = s->piece[i].to;
    const mill_segment *segment = (const mill_segment *)(void *)(copy + e->model_bytes);
    e->star->model = s->want_models ? model : NULL;
    for (int k = 0; k < e->n_segment && s->want_models; k++, segment++) {
      float *flux = (float *)(void *)(copy + ((char *)segment->model - e->memory.at));
      if (!segment->used) /* no model was written */
        for (int p = 0; p < segment->n_pix; p++)
          flux[p] = NAN;
      *model++ = (mill_star_model){
          flux, mill_waveset_cache_view(s->member->waveset, e->plan[k].waveset).wave_aa};
    }
    if (e->n_epoch == 0)
      continue;
    const mill_epoch *of = (const mill_epoch *)(void *)(copy + ((char *)e->epoch - e->memory.at));
    e->star->result->epoch = epoch;
    for (int k = 0; k < e->n_epoch; k++)
      *epoch++ = of[k].result;
  }
  return MILL_OK;
}

/** Return the host address of a fetched array; NULL if array is NULL. */
static const void *fetched_array(const mill_slots *s, const mill_slot_entry *e, const void *array)
{
  return array ? s->fetched.copy + ((const char *)array - e->memory.at) : NULL;
}

void mill_slots_fetched(const mill_slots *s, int i_slot, int i_segment, mill_segment_model *model)
{
  const mill_slot_entry *e = &s->entry[i_slot];
  const mill_segment *segment =
      (const mill_segment *)(const void *)(s->fetched.copy + e->model_bytes) + i_segment;
  const int n_pix = segment->n_pix;
  const double *wave_aa = /* of the first library; the others have the same wavelengths */
      mill_waveset_cache_view(s->member->waveset, e->plan[i_segment].waveset).wave_aa;
  *model = (mill_segment_model){
      .used = segment->used,
      .n_pix = n_pix,
      .n_cont = mill_continuum_count(&s->member->model.set, n_pix, wave_aa[n_pix - 1] - wave_aa[0]),
      .flux = fetched_array(s, e, segment->model),
      .templ_flux = fetched_array(s, e, segment->templ_flux),
      .cont_coef = fetched_array(s, e, segment->cont_coef),
  };
}
