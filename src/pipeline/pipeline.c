#include "src/pipeline/pipeline.h"

#include <string.h>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "kernels/base/nvtx.h"
#include "kernels/star/polish.h"
#include "src/pipeline/device_model.h"
#include "src/pipeline/slots.h"
#include "src/system/log.h"

enum {
  /** Rounds between looks at which slots have become free, where the host waits for them */
  ROUNDS_PER_CALL = 4,
  /** ... and at most where it does not, as long as too few have become free. */
  ROUNDS_PER_LOOP = 64,
  /** Stars whose models come back together. */
  MODELS_PER_CALL = 64,
  /** Part of the slots that is worth a look, and that is filled between two looks. */
  SLOT_SHARE = 8
};

struct mill_pipeline {
  const mill_library *lib;
  const mill_backend *backend;
  mill_device *device;
  mill_model model; /**< host copy, its pointers are device memory */
  mill_model *d_model;
  mill_device_memory model_memory;
  mill_guess_table guess;
  mill_waveset_cache *waveset;
  mill_slots slots;
  int n_usable;     /**< slots that may take a star: all, fewer when memory is full */
  int is_bound;     /**< the backend knows the model as it is */
  int has_remarked; /**< the log has the backend's remark */
  int is_under_way; /**< rounds are */
  /* of a run */
  int *list;                 /**< [n_slot] */
  int *done;                 /**< [n_slot] slots whose rows wait to be handed over */
  mill_fit_result *row;      /**< [n_slot] their rows */
  mill_posterior *posterior; /**< of the row that is handed over; NULL: none is wanted */
  int n_done;
  mill_star waiting; /**< a star for which there was no memory */
  int is_waiting;
  double load_s, load_wall_s; /**< CPU and wall seconds of copying stars into slots */
};

int mill_pipeline_create(const mill_library *lib, const mill_fit_settings *settings,
                         const mill_backend *backend, int n_slot, int n_thread, int want_models,
                         mill_pipeline **out)
{
  int err = MILL_OK;
  mill_pipeline *p = NULL;
  *out = NULL;
  MILL_TRY(mill_device_model_check(lib, settings));
  if (n_slot < 1)
    MILL_FAIL(MILL_ERR_RANGE, "%d slots; at least one is needed", n_slot);
  MILL_TRY(MILL_ALLOC(1, &p));
  p->lib = lib;
  p->backend = backend;
  p->n_usable = n_slot;
  MILL_TRY(backend->open(n_thread, &p->device));
  p->model_memory = (mill_device_memory){.backend = backend, .device = p->device};
  MILL_TRY(mill_guess_table_create(lib, settings, n_thread, &p->guess));
  MILL_TRY(
      mill_device_model_load(lib, settings, &p->guess, &p->model_memory, &p->model, &p->d_model));
  MILL_TRY(mill_waveset_cache_create(lib, &p->model.set, &p->guess, backend, p->device, n_thread,
                                     &p->waveset));
  MILL_TRY(MILL_ALLOC(n_slot, &p->list));
  MILL_TRY(MILL_ALLOC(n_slot, &p->done));
  MILL_TRY(MILL_ALLOC(n_slot, &p->row));
  if (settings->sample.n_walker > 0)
    MILL_TRY(mill_alloc_bytes(mill_posterior_bytes(settings->sample.n_draw, p->model.n_deriv), 1,
                              (void **)&p->posterior));
  MILL_TRY(mill_slots_create(lib, &p->model, p->waveset, backend, p->device, n_slot, want_models,
                             &p->slots));
  *out = p;
  p = NULL;
done:
  mill_pipeline_destroy(p);
  return err;
}

void mill_pipeline_destroy(mill_pipeline *p)
{
  if (!p)
    return;
  if (p->device) {
    mill_slots_clear(&p->slots);
    mill_waveset_cache_destroy(p->waveset);
    mill_device_memory_clear(&p->model_memory);
    p->backend->close(p->device);
  }
  mill_guess_table_clear(&p->guess);
  MILL_FREE(p->list, p->done, p->row, p->posterior, p);
}

int mill_pipeline_waveset(mill_pipeline *p, int arm, int n_pix, const double *wave_aa, int *id)
{
  int err = MILL_OK;
  mill_model *m = &p->model;
  if (arm < 0 || arm >= m->n_arm)
    MILL_FAIL(MILL_ERR_INTERNAL, "arm %d of a library with %d arms", arm, m->n_arm);
  MILL_TRY(mill_waveset_cache_get(p->waveset, arm, n_pix, wave_aa, id));
  if (mill_row_pitch(n_pix) > m->max_seg_pix) {
    /* the device learns it when no round is under way */
    m->max_seg_pix = mill_row_pitch(n_pix);
    p->is_bound = 0;
  }
done:
  return err;
}

void mill_pipeline_waveset_release(mill_pipeline *p, int id)
{
  if (id >= 0)
    mill_waveset_cache_release(p->waveset, id);
}

void mill_pipeline_waveset_hold(mill_pipeline *p, int id)
{
  mill_waveset_cache_hold(p->waveset, id);
}

void mill_pipeline_waveset_limit(mill_pipeline *p, size_t bytes)
{
  mill_waveset_cache_limit(p->waveset, bytes);
}

void mill_pipeline_waveset_stats(const mill_pipeline *p, mill_waveset_stats *stats)
{
  mill_waveset_cache_stats(p->waveset, stats);
}

/** Tell the backend the model and the slots where it does not know them. */
static int bind_slots(mill_pipeline *p)
{
  int err = MILL_OK;
  if (p->is_bound)
    goto done;
  MILL_TRY(p->backend->upload(p->device, p->d_model, &p->model, sizeof p->model));
  MILL_TRY(p->backend->bind(p->device, &p->model, p->d_model, p->slots.bound, p->slots.n_slot));
  p->is_bound = 1;
  const char *remark = p->backend->remark ? p->backend->remark(p->device) : NULL;
  if (remark && !p->has_remarked)
    mill_log_warning("%s: %s", p->backend->name, remark);
  p->has_remarked = remark != NULL;
done:
  return err;
}

int mill_pipeline_evaluate(mill_pipeline *p, const mill_star *star, int request, int n_point,
                           const double *theta, mill_eval *eval, mill_fit_result *prepared)
{
  int err = MILL_OK;
  const int first = 0;
  const mill_backend *be = p->backend;
  /* a copy whose hulls are the host's, for the penalty */
  mill_model m = p->model;
  memcpy(m.hull, p->lib->hull, sizeof m.hull);
  MILL_TRY(mill_slots_load(&p->slots, first, star));
  MILL_TRY(bind_slots(p));
  MILL_TRY(be->start(p->device, &first, 1));
  MILL_TRY(be->wait(p->device));
  MILL_TRY(be->download(p->device, &p->slots.host, p->slots.bound[first], MILL_SLOT_COPY_BYTES));
  *prepared = p->slots.host.result;
  if (p->slots.host.stage == MILL_STAGE_DONE)
    goto done;
  for (int i = 0; i < n_point; i++) {
    int n_done;
    /* a stage that the state machine leaves alone */
    p->slots.host.stage = MILL_STAGE_EMPTY;
    p->slots.host.request = request;
    memcpy(p->slots.host.theta, theta + (size_t)i * (size_t)m.n_par,
           (size_t)m.n_par * sizeof *theta);
    MILL_TRY(be->upload(p->device, p->slots.bound[first], &p->slots.host, MILL_SLOT_COPY_BYTES));
    MILL_TRY(be->advance(p->device, &first, 1, 1, 1));
    MILL_TRY(be->collect(p->device, p->done, p->row, &n_done));
    MILL_TRY(be->download(p->device, &p->slots.host, p->slots.bound[first], MILL_SLOT_COPY_BYTES));
    eval[i] = p->slots.host.eval;
    eval[i].f += mill_penalty(&m, &p->slots.host, p->slots.host.theta);
  }
done:
  mill_slots_free(&p->slots, first);
  return err;
}

/* ---- a run ---- */

/** There is no memory for another star: go on with half of the slots that are filled. */
static int fewer_slots(mill_pipeline *p)
{
  int err = MILL_OK;
  const int n_busy = mill_slots_count_active(&p->slots);
  if (n_busy == 0)
    MILL_FAIL(MILL_ERR_MEMORY, "not even one star fits into the memory of %s", p->backend->name);
  p->n_usable = n_busy / 2 > 1 ? n_busy / 2 : 1;
  mill_log_warning("memory of %s is full with %d stars: going on with %d slots", p->backend->name,
                   n_busy, p->n_usable);
  mill_slots_trim(&p->slots);
done:
  return err;
}

/** There is no memory for a star in slot i: take the free slot with the most, or, where no slot
 *  has a star, all that they have kept. */
static int load_elsewhere(mill_pipeline *p, int i_slot, const mill_star *star, int n_busy)
{
  int err = MILL_ERR_MEMORY;
  const mill_slot_entry *e = p->slots.entry;
  int best = i_slot;
  for (int i = 0; i < p->slots.n_slot; i++)
    if (!e[i].active && e[i].memory.cap > e[best].memory.cap)
      best = i;
  if (best != i_slot)
    err = mill_slots_load(&p->slots, best, star);
  if (err == MILL_ERR_MEMORY && n_busy == 0 && mill_slots_drop(&p->slots))
    err = mill_slots_load(&p->slots, i_slot, star);
  return err;
}

/** A source of stars, and whether it has more. */
typedef struct star_stream {
  mill_star_source source;
  void *context;
  int more;
} star_stream;

/** The next star, or the one for which there was no memory; 0: none. */
static int next_star(mill_pipeline *p, star_stream *from, mill_star *star, int *got)
{
  int err = MILL_OK;
  *got = p->is_waiting;
  if (p->is_waiting) {
    *star = p->waiting;
    goto done;
  }
  if (!from->more)
    goto done;
  memset(star, 0, sizeof *star);
  *got = from->source(from->context, star);
  if (*got < 0)
    err = -*got;
  else if (*got == 0)
    from->more = 0;
done:
  return err;
}

/** Fill free slots with stars, at most n_most. */
static int fill(mill_pipeline *p, star_stream *from, int n_most)
{
  int err = MILL_OK;
  int n_busy = mill_slots_count_active(&p->slots), n_filled = 0;
  for (int i = 0; i < p->slots.n_slot && n_busy < p->n_usable && n_filled < n_most; i++) {
    mill_star star;
    int got;
    if (p->slots.entry[i].active)
      continue;
    MILL_TRY(next_star(p, from, &star, &got));
    if (!got)
      break;
    /* work space first: stars take what is left of the memory */
    if (!p->is_under_way)
      MILL_TRY(bind_slots(p));
    const double before_s = mill_thread_cpu_s(), before_wall_s = mill_wall_s();
    mill_range_begin(MILL_RANGE_UPLOAD);
    err = mill_slots_load(&p->slots, i, &star);
    if (err == MILL_ERR_MEMORY)
      err = load_elsewhere(p, i, &star, n_busy);
    mill_range_end();
    p->load_s += mill_thread_cpu_s() - before_s;
    p->load_wall_s += mill_wall_s() - before_wall_s;
    p->is_waiting = err == MILL_ERR_MEMORY;
    if (p->is_waiting) {
      p->waiting = star;
      err = MILL_OK;
      MILL_TRY(fewer_slots(p));
      break;
    }
    MILL_TRY(err);
    n_busy++;
    n_filled++;
  }
done:
  return err;
}

/** Start fresh stars and ask for rounds over all. */
static int launch(mill_pipeline *p, int more, int *n_active)
{
  int err = MILL_OK;
  const mill_backend *be = p->backend;
  int n_fresh = 0, n = 0;
  for (int i = 0; i < p->slots.n_slot; i++)
    if (p->slots.entry[i].active && p->slots.entry[i].fresh)
      p->list[n_fresh++] = i;
  if (n_fresh > 0) {
    MILL_TRY(bind_slots(p));
    MILL_TRY(be->start(p->device, p->list, n_fresh));
  }
  for (int i = 0; i < p->slots.n_slot; i++)
    if (p->slots.entry[i].active && !p->slots.entry[i].finished) {
      p->slots.entry[i].fresh = 0;
      p->list[n++] = i;
    }
  *n_active = n;
  if (n == 0)
    goto done;
  if (!be->overlaps) {
    MILL_TRY(be->advance(p->device, p->list, n, n, ROUNDS_PER_CALL));
    goto done;
  }
  /* at the end of the stars there is nothing to fill slots with */
  const int share = n / SLOT_SHARE > 1 ? n / SLOT_SHARE : 1;
  MILL_TRY(be->advance(p->device, p->list, n, more ? share : n, ROUNDS_PER_LOOP));
  p->is_under_way = 1;
done:
  return err;
}

/** Models of those of the stars done[first] .. done[first + MODELS_PER_CALL - 1] that have any. */
static int fetch_models(mill_pipeline *p, int first)
{
  int fitted[MODELS_PER_CALL], n = 0;
  for (int i = first; i < p->n_done && i < first + MODELS_PER_CALL; i++)
    if (p->row[i].status == MILL_STATUS_FITTED)
      fitted[n++] = p->done[i];
  if (n == 0)
    return MILL_OK;
  mill_range_begin(MILL_RANGE_DOWNLOAD);
  const int err = mill_slots_fetch_models(&p->slots, fitted, n);
  mill_range_end();
  return err;
}

/** Hand over the rows that have been collected, and free their slots. */
static int deliver(mill_pipeline *p, mill_result_sink sink, void *context)
{
  int err = MILL_OK;
  const float *const *next = NULL;
  for (int i = 0; i < p->n_done; i++) {
    const float *const *model = NULL;
    if (p->slots.want_models && i % MODELS_PER_CALL == 0) {
      MILL_TRY(fetch_models(p, i));
      next = p->slots.model_row;
    }
    if (p->slots.want_models && p->row[i].status == MILL_STATUS_FITTED) {
      model = next;
      next += mill_slots_n_segment(&p->slots, p->done[i]);
    }
    if (p->posterior && p->row[i].status == MILL_STATUS_FITTED) {
      MILL_TRY(mill_slots_fetch_posterior(&p->slots, p->done[i], p->posterior));
      p->row[i].posterior = p->posterior;
    }
    mill_slots_free(&p->slots, p->done[i]);
    MILL_TRY(sink(context, &p->row[i], model));
  }
done:
  /* what could not be handed over is not tried again */
  p->n_done = 0;
  return err;
}

/** The rounds have failed: hand over what had finished before, unless it is incomplete without what
 *  the device has of it.  The first failure counts. */
static void deliver_last(mill_pipeline *p, mill_result_sink sink, void *context)
{
  for (int i = 0; i < p->n_done && !p->slots.want_models && !p->posterior; i++)
    if (sink(context, &p->row[i], NULL) != MILL_OK)
      break;
  p->n_done = 0;
}

int mill_pipeline_run(mill_pipeline *p, mill_star_source source, void *source_context,
                      mill_result_sink sink, void *sink_context)
{
  int err = MILL_OK;
  star_stream from = {source, source_context, 1};
  const mill_backend *be = p->backend;
  /* where host and device work at the same time, a part of the slots is filled at a time */
  const int share = p->slots.n_slot / SLOT_SHARE > 1 ? p->slots.n_slot / SLOT_SHARE : 1;
  const int n_most = be->overlaps ? share : p->slots.n_slot;
  mill_error_kept kept;
  p->n_usable = p->slots.n_slot; /* other stars may take less memory */
  p->n_done = 0;
  p->is_waiting = 0;
  p->is_under_way = 0;
  MILL_TRY(fill(p, &from, n_most));
  for (;;) {
    int n_active;
    MILL_TRY(launch(p, from.more || p->is_waiting, &n_active));
    if (be->overlaps) { /* while the rounds are under way */
      MILL_TRY(deliver(p, sink, sink_context));
      MILL_TRY(fill(p, &from, n_most));
    }
    if (n_active == 0 && mill_slots_count_active(&p->slots) == 0)
      break;
    if (n_active == 0)
      continue;
    MILL_TRY(be->collect(p->device, p->done, p->row, &p->n_done));
    p->is_under_way = 0;
    for (int i = 0; i < p->n_done; i++)
      p->slots.entry[p->done[i]].finished = 1;
    if (!be->overlaps) {
      MILL_TRY(deliver(p, sink, sink_context));
      MILL_TRY(fill(p, &from, n_most));
    }
  }
done:
  /* what follows may fail too, for the same reason; the first failure counts */
  mill_error_save(err, &kept);
  deliver_last(p, sink, sink_context);
  for (int i = 0; i < p->slots.n_slot; i++)
    mill_slots_free(&p->slots, i);
  return mill_error_restore(&kept);
}

void mill_pipeline_timing(const mill_pipeline *p, mill_timing *total)
{
  memset(total, 0, sizeof *total);
  if (p->backend->timing)
    p->backend->timing(p->device, total);
}

void mill_pipeline_memory(const mill_pipeline *p, mill_pipeline_bytes *bytes)
{
  mill_waveset_stats sets;
  mill_waveset_cache_stats(p->waveset, &sets);
  *bytes = (mill_pipeline_bytes){.model = p->model_memory.uploaded,
                                 .slots = mill_slots_bytes(&p->slots),
                                 .wavesets = sets.bytes};
}

int mill_pipeline_slots(const mill_pipeline *p)
{
  return p->n_usable;
}

double mill_pipeline_load_s(const mill_pipeline *p)
{
  return p->load_s;
}

double mill_pipeline_load_wall_s(const mill_pipeline *p)
{
  return p->load_wall_s;
}
