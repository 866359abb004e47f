#include "src/pipeline/pipeline.h"

#include <pthread.h>
#include <string.h>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "kernels/base/nvtx.h"
#include "kernels/star/polish.h"
#include "src/pipeline/device_model.h"
#include "src/pipeline/slots.h"
#include "src/system/log.h"
#include "src/system/stop_signal.h"

enum {
  /** Rounds between looks at which slots have become free, where the host waits for them */
  ROUNDS_PER_CALL = 4,
  /** ... and at most where it does not, as long as too few have become free. */
  ROUNDS_PER_LOOP = 64,
  /** Stars whose models come back together. */
  MODELS_PER_CALL = 64,
  /** Fraction of the slots that triggers a look, and that is filled between two looks. */
  SLOT_SHARE = 8,
  /** Points of a held star that are evaluated together. */
  MOST_VIEWS = 1024,
  /** Velocities that share a template: few enough that threads get a share of a short scan. */
  MOST_VELOCITIES = 16
};

/** Bytes uploaded to a view with a point: the members of a slot before its answer. */
#define VIEW_HEAD_BYTES offsetof(mill_slot, eval)

/** The held star in the first slot, and copies of its slot. */
typedef struct mill_held {
  int is_there, is_ready; /**< it is loaded; it can be evaluated */
  int n_view, n_copied;   /**< number of copies, and of those made for this star */
  mill_slot **view;       /**< [n_view] memory of the backend */
  char *head;             /**< [n_view][VIEW_HEAD_BYTES] what goes up with a point */
  mill_upload *piece;     /**< [n_view] */
  mill_eval *eval;        /**< [n_view] */
  int *n_shared;          /**< [n_view] points that it answers, alike but for their velocity */
} mill_held;

/** Slots side by side and the device that fits their stars: all slots, or the share of one thread.
 *  Only a crew uses its slots; it uses shared data under the pipeline's mutex. */
typedef struct mill_crew {
  mill_device *device;
  mill_model *d_model; /**< the model in the device's memory */
  int first, n_slot;
  int n_usable;            /**< slots that may take a star: all, fewer when memory is full */
  mill_slot *const *bound; /**< slots that the device knows; NULL: none yet */
  int n_change;            /**< version of the model that the device has */
  int is_under_way;        /**< rounds are */
  int *list;               /**< [n_slot] */
  int *done;               /**< [n_slot] slots whose rows wait to be handed over */
  mill_fit_result *row;    /**< [n_slot] their rows */
  int n_done;
} mill_crew;

/** Source and sink of a run. */
typedef struct mill_stream {
  mill_star_source source;
  mill_result_sink sink;
  void *source_context, *sink_context;
  int more;          /**< the source may have a star */
  mill_star waiting; /**< a star for which there was no memory */
  int is_waiting;
  mill_error_kept failure; /**< of a thread's crew, the first one */
} mill_stream;

struct mill_pipeline {
  const mill_library *lib;
  const mill_backend *backend;
  mill_model model; /**< host copy, its pointers are device memory */
  int n_change;     /**< of the model */
  mill_device_memory model_memory;
  mill_guess_table guess;
  mill_waveset_cache *waveset;
  mill_slots slots;
  int has_remarked; /**< the log has the backend's remark */
  mill_held held;
  mill_crew all;              /**< of all slots and threads */
  mill_crew *part;            /**< [n_part] of the threads, where the backend has parts */
  int n_part;                 /**< 0 or several */
  pthread_mutex_t mutex;      /**< of everything here but crews, while parts are at work */
  mill_stream stream;         /**< of a run */
  mill_posterior *posterior;  /**< of the row that is handed over; NULL: none is wanted */
  double load_s, load_wall_s; /**< CPU and wall seconds of copying stars into slots */
};

/** Crews of single threads, whose lists are parts of the lists of all. */
static int make_parts(mill_pipeline *p, int n_thread)
{
  const int n = n_thread < p->all.n_slot ? n_thread : p->all.n_slot;
  if (!p->backend->part || n < 2)
    return MILL_OK;
  MILL_CHECK(MILL_ALLOC(n, &p->part));
  for (; p->n_part < n; p->n_part++) {
    mill_crew *c = &p->part[p->n_part];
    void *block = NULL;
    const int first = (int)((int64_t)p->all.n_slot * p->n_part / n);
    *c = (mill_crew){.first = first,
                     .n_slot = (int)((int64_t)p->all.n_slot * (p->n_part + 1) / n) - first,
                     .list = p->all.list + first,
                     .done = p->all.done + first,
                     .row = p->all.row + first};
    MILL_CHECK(mill_device_memory_take(&p->model_memory, sizeof p->model, &p->model, &block));
    c->d_model = block;
    MILL_CHECK(p->backend->part(p->all.device, p->n_part, &c->device));
  }
  return MILL_OK;
}

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
  pthread_mutex_init(&p->mutex, NULL);
  p->all.n_slot = p->all.n_usable = n_slot;
  MILL_TRY(backend->open(n_thread, &p->all.device));
  p->model_memory = (mill_device_memory){.backend = backend, .device = p->all.device};
  MILL_TRY(mill_guess_table_create(lib, settings, n_thread, &p->guess));
  MILL_TRY(mill_device_model_load(lib, settings, &p->guess, n_thread, &p->model_memory, &p->model,
                                  &p->all.d_model));
  MILL_TRY(mill_waveset_cache_create(lib, &p->model.set, &p->guess, backend, p->all.device,
                                     n_thread, &p->waveset));
  MILL_TRY(MILL_ALLOC(n_slot, &p->all.list));
  MILL_TRY(MILL_ALLOC(n_slot, &p->all.done));
  MILL_TRY(MILL_ALLOC(n_slot, &p->all.row));
  MILL_TRY(make_parts(p, n_thread));
  if (settings->sample.n_walker > 0)
    MILL_TRY(mill_alloc_bytes(mill_posterior_bytes(settings->sample.n_draw, p->model.n_deriv), 1,
                              (void **)&p->posterior));
  MILL_TRY(mill_slots_create(lib, &p->model, p->waveset, backend, p->all.device, n_slot,
                             want_models, &p->slots));
  *out = p;
  p = NULL;
done:
  mill_pipeline_destroy(p);
  return err;
}

static void clear_held(mill_held *h)
{
  MILL_FREE((void *)h->view, h->head, h->piece, h->eval, h->n_shared);
  memset(h, 0, sizeof *h);
}

void mill_pipeline_destroy(mill_pipeline *p)
{
  if (!p)
    return;
  if (p->all.device) {
    mill_slots_clear(&p->slots);
    mill_waveset_cache_destroy(p->waveset);
    mill_device_memory_clear(&p->model_memory);
    for (int i = 0; i < p->n_part; i++)
      p->backend->close(p->part[i].device);
    p->backend->close(p->all.device);
  }
  clear_held(&p->held);
  mill_guess_table_clear(&p->guess);
  pthread_mutex_destroy(&p->mutex);
  MILL_FREE(p->all.list, p->all.done, p->all.row, p->part, p->posterior, p);
}

int mill_pipeline_waveset(mill_pipeline *p, int arm, int n_pix, const double *wave_aa, int *id)
{
  mill_model *m = &p->model;
  if (arm < 0 || arm >= m->n_arm)
    return MILL_ERROR(MILL_ERR_INTERNAL, "arm %d of a library with %d arms", arm, m->n_arm);
  MILL_CHECK(mill_waveset_cache_get(p->waveset, arm, n_pix, wave_aa, id));
  if (mill_row_pitch(n_pix) > m->max_seg_pix) {
    /* devices are updated between rounds */
    m->max_seg_pix = mill_row_pitch(n_pix);
    p->n_change++;
  }
  return MILL_OK;
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

int mill_pipeline_constrain(mill_pipeline *p, const mill_fit_settings *settings)
{
  mill_fit_settings *set = &p->model.set;
  MILL_CHECK(mill_device_model_check(p->lib, settings));
  memcpy(set->fixed, settings->fixed, sizeof set->fixed);
  memcpy(set->fixed_value, settings->fixed_value, sizeof set->fixed_value);
  memcpy(set->prior_mean, settings->prior_mean, sizeof set->prior_mean);
  memcpy(set->prior_sigma, settings->prior_sigma, sizeof set->prior_sigma);
  p->n_change++;
  return MILL_OK;
}

/** Bind the model and slots [n] to a crew's device if they have changed. */
static int bind_slots(mill_pipeline *p, mill_crew *c, mill_slot *const *slot, int n)
{
  if (c->bound == slot && c->n_change == p->n_change)
    return MILL_OK;
  c->bound = NULL;
  MILL_CHECK(p->backend->upload(c->device, c->d_model, &p->model, sizeof p->model));
  MILL_CHECK(p->backend->bind(c->device, &p->model, c->d_model, slot, n));
  c->bound = slot;
  c->n_change = p->n_change;
  const char *remark = p->backend->remark ? p->backend->remark(c->device) : NULL;
  if (remark && !p->has_remarked)
    mill_log_warning("%s: %s", p->backend->name, remark);
  p->has_remarked = remark != NULL;
  return MILL_OK;
}

/* ---- a star that is held ---- */

/** Copies of the held star's slot, which share its segments and are asked at different points.  In
 *  the backend's memory, made for the first star. */
static int make_views(mill_pipeline *p)
{
  int err = MILL_OK;
  void *memory = NULL;
  mill_held *h = &p->held;
  const int n = p->slots.n_slot < MOST_VIEWS ? p->slots.n_slot : MOST_VIEWS;
  if (h->n_view > 0)
    goto done;
  MILL_TRY(MILL_ALLOC(n, &h->piece));
  MILL_TRY(MILL_ALLOC(n, &h->eval));
  MILL_TRY(MILL_ALLOC(n, &h->n_shared));
  MILL_TRY(MILL_ALLOC((size_t)n * VIEW_HEAD_BYTES, &h->head));
  MILL_TRY(mill_alloc_bytes((size_t)n, sizeof *h->view, (void **)&h->view));
  MILL_TRY(mill_device_memory_take(&p->model_memory, (size_t)n * sizeof(mill_slot), NULL, &memory));
  for (int i = 0; i < n; i++)
    h->view[i] = (mill_slot *)memory + i;
  h->n_view = n;
done:
  if (err != MILL_OK)
    clear_held(h);
  return err;
}

int mill_pipeline_hold(mill_pipeline *p, const mill_star *star, mill_fit_result *prepared)
{
  int err = MILL_OK;
  const int first = 0;
  const mill_backend *be = p->backend;
  mill_held *h = &p->held;
  mill_slot *host = &p->slots.host;
  mill_pipeline_drop(p);
  MILL_TRY(make_views(p));
  MILL_TRY(mill_slots_load(&p->slots, first, star));
  h->is_there = 1;
  MILL_TRY(bind_slots(p, &p->all, p->slots.bound, p->slots.n_slot));
  MILL_TRY(be->start(p->all.device, &first, 1));
  MILL_TRY(be->wait(p->all.device));
  MILL_TRY(be->download(p->all.device, host, p->slots.bound[first], MILL_SLOT_COPY_BYTES));
  *prepared = host->result;
  h->is_ready = host->stage != MILL_STAGE_DONE;
  h->n_copied = 0;
  /* a stage that the state machine leaves alone; views have no room for a template of their own */
  host->stage = MILL_STAGE_EMPTY;
  host->kept.flux = NULL;
  host->lead.arm = host->stored = host->rough = 0;
done:
  if (err != MILL_OK)
    mill_pipeline_drop(p);
  return err;
}

void mill_pipeline_drop(mill_pipeline *p)
{
  if (p->held.is_there)
    mill_slots_free(&p->slots, 0);
  p->held.is_there = p->held.is_ready = 0;
}

/** Points, of n, that one view answers: those that differ from the first in velocity alone take its
 *  template.  One by one on a GPU, where a profile's velocities have other sums than a value. */
static int n_alike(const mill_pipeline *p, int request, int n, const double *theta)
{
  const size_t n_par = (size_t)p->model.n_par;
  const mill_fit_settings *set = &p->model.set;
  int k = 0;
  if (request != MILL_REQ_VALUE || p->backend->kind != MILL_BACKEND_CPU)
    return 1;
  for (; k < n && k < MOST_VELOCITIES; k++) {
    const double *at = theta + (size_t)k * n_par, v = at[MILL_PAR_VRAD];
    if (memcmp(at + 1, theta + 1, (n_par - 1) * sizeof *at) != 0 || !(v >= set->min_vel_km_s) ||
        !(v <= set->max_vel_km_s))
      break;
  }
  return k > 1 ? k : 1;
}

/** Ask n views at the points that they answer. */
static int ask_views(mill_pipeline *p, int request, int n, const double *theta)
{
  int n_done;
  const mill_backend *be = p->backend;
  mill_held *h = &p->held;
  mill_slot *host = &p->slots.host;
  const size_t n_par = (size_t)p->model.n_par;
  for (; h->n_copied < n; h->n_copied++)
    MILL_CHECK(be->upload(p->all.device, h->view[h->n_copied], host, MILL_SLOT_COPY_BYTES));
  for (int i = 0; i < n; i++) {
    char *head = h->head + (size_t)i * VIEW_HEAD_BYTES;
    host->request = h->n_shared[i] > 1 ? MILL_REQ_PROFILE : request;
    memcpy(host->theta, theta, n_par * sizeof *theta);
    for (int k = 0; k < MILL_N_PROFILE; k++)
      host->profile.vel[k] =
          k < h->n_shared[i] ? theta[(size_t)k * n_par + MILL_PAR_VRAD] : (double)INFINITY;
    memcpy(head, host, VIEW_HEAD_BYTES);
    h->piece[i] = (mill_upload){h->view[i], head, VIEW_HEAD_BYTES};
    p->all.list[i] = i;
    theta += (size_t)h->n_shared[i] * n_par;
  }
  MILL_CHECK(be->upload_all(p->all.device, h->piece, n));
  MILL_CHECK(bind_slots(p, &p->all, h->view, h->n_view));
  MILL_CHECK(be->advance(p->all.device, p->all.list, n, n, 1));
  MILL_CHECK(be->collect(p->all.device, p->all.done, p->all.row, &n_done));
  for (int i = 0; i < n; i++)
    h->piece[i] = (mill_upload){&h->eval[i], &h->view[i]->eval, sizeof h->eval[i]};
  MILL_CHECK(be->download_all(p->all.device, h->piece, n));
  return MILL_OK;
}

/** The answers of n views by point; returns what follows the last. */
static mill_eval *take_answers(const mill_held *h, int n, mill_eval *eval)
{
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < h->n_shared[i]; k++) {
      eval[k] = h->eval[i];
      if (h->n_shared[i] > 1)
        eval[k].f = h->eval[i].profile[k];
    }
    eval += h->n_shared[i];
  }
  return eval;
}

int mill_pipeline_ask(mill_pipeline *p, int request, int fix_error, int n_point,
                      const double *theta, mill_eval *eval, double *penalty)
{
  mill_held *h = &p->held;
  /* a copy whose hulls are the host's, for the penalty */
  mill_model m = p->model;
  memcpy(m.hull, p->lib->hull, sizeof m.hull);
  if (!h->is_ready)
    return MILL_ERROR(MILL_ERR_INTERNAL, "the slots hold no star that can be evaluated");
  mill_eval *next = eval;
  for (int first = 0, n_asked; first < n_point; first += n_asked) {
    const int fixes = fix_error && first == 0;
    /* the other written members belong to the star */
    const int most = request == MILL_REQ_FINAL || fixes ? 1 : h->n_view;
    const double *at = theta + (size_t)first * (size_t)m.n_par;
    int n = 0;
    for (n_asked = 0; n < most && first + n_asked < n_point; n_asked += h->n_shared[n++])
      h->n_shared[n] =
          n_alike(p, request, n_point - first - n_asked, at + (size_t)n_asked * (size_t)m.n_par);
    p->slots.host.fix_error = fixes;
    MILL_CHECK(ask_views(p, request, n, at));
    next = take_answers(h, n, next);
  }
  for (int i = 0; i < n_point; i++)
    penalty[i] = mill_penalty(&m, &p->slots.host, theta + (size_t)i * (size_t)m.n_par);
  return MILL_OK;
}

int mill_pipeline_models(mill_pipeline *p)
{
  const int first = 0;
  return mill_slots_fetch_models(&p->slots, &first, 1);
}

void mill_pipeline_model(const mill_pipeline *p, int i_segment, mill_segment_model *model)
{
  mill_slots_fetched(&p->slots, 0, i_segment, model);
}

int mill_pipeline_guesses(const mill_pipeline *p, int n_most, double *theta, double *chisq)
{
  const mill_slot *host = &p->slots.host;
  const size_t n_par = (size_t)p->model.n_par;
  const int n = host->starts.n < n_most ? host->starts.n : n_most;
  for (int i = 0; i < n; i++) {
    memcpy(theta + (size_t)i * n_par, host->starts.theta[i], n_par * sizeof *theta);
    chisq[i] = host->starts.chisq[i];
  }
  return n;
}

int mill_pipeline_evaluate(mill_pipeline *p, const mill_star *star, int request, int n_point,
                           const double *theta, mill_eval *eval, mill_fit_result *prepared)
{
  int err = MILL_OK;
  double *penalty = NULL;
  MILL_TRY(MILL_ALLOC(n_point, &penalty));
  MILL_TRY(mill_pipeline_hold(p, star, prepared));
  if (!p->held.is_ready)
    goto done;
  MILL_TRY(mill_pipeline_ask(p, request, p->slots.host.fix_error, n_point, theta, eval, penalty));
  for (int i = 0; i < n_point; i++)
    eval[i].f += penalty[i];
done:
  mill_free(penalty);
  mill_pipeline_drop(p);
  return err;
}

/* ---- a run ---- */

static int count_busy(const mill_pipeline *p, const mill_crew *c)
{
  return mill_slots_count_active(&p->slots, c->first, c->n_slot);
}

/** There is no memory for another star: continue with half of the filled slots.  A thread that has
 *  none leaves the star to the others. */
static int fewer_slots(mill_pipeline *p, mill_crew *c)
{
  const int n_busy = count_busy(p, c), n_all = count_busy(p, &p->all);
  if (n_all == 0)
    return MILL_ERROR(MILL_ERR_MEMORY, "not even one star fits into the memory of %s",
                      p->backend->name);
  const int n_now = n_busy / 2 > 1 || n_busy == 0 ? n_busy / 2 : 1;
  if (c != &p->all)
    p->all.n_usable -= c->n_usable - n_now;
  c->n_usable = n_now;
  if (p->all.n_usable < 1)
    p->all.n_usable = 1;
  mill_log_warning("memory of %s is full with %d stars: continuing with %d slots", p->backend->name,
                   n_all, p->all.n_usable);
  mill_slots_trim(&p->slots);
  return MILL_OK;
}

/** There is no memory for a star in slot i: take the crew's free slot with the most, or, where no
 *  slot has a star, all that they have kept. */
static int load_elsewhere(mill_pipeline *p, const mill_crew *c, int i_slot, const mill_star *star)
{
  int err = MILL_ERR_MEMORY;
  const mill_slot_entry *e = p->slots.entry;
  int best = i_slot;
  for (int i = c->first; i < c->first + c->n_slot; i++)
    if (!e[i].active && e[i].memory.cap > e[best].memory.cap)
      best = i;
  if (best != i_slot)
    err = mill_slots_load(&p->slots, best, star);
  if (err == MILL_ERR_MEMORY && count_busy(p, &p->all) == 0 && mill_slots_drop(&p->slots))
    err = mill_slots_load(&p->slots, i_slot, star);
  return err;
}

/** The next star, or the one for which there was no memory; 0: none. */
static int next_star(mill_stream *from, mill_star *star, int *got)
{
  int err = MILL_OK;
  *got = from->is_waiting;
  if (from->is_waiting) {
    *star = from->waiting;
    goto done;
  }
  if (!from->more)
    goto done;
  memset(star, 0, sizeof *star);
  *got = from->source(from->source_context, star);
  if (*got < 0)
    err = -*got;
  else if (*got == 0)
    from->more = 0;
done:
  return err;
}

/** Copy the next star into slot i of a crew; *got: there was one and there is memory for it. */
static int load_next(mill_pipeline *p, mill_crew *c, int i, int *got)
{
  int err = MILL_OK;
  mill_stream *from = &p->stream;
  mill_star star;
  pthread_mutex_lock(&p->mutex);
  MILL_TRY(next_star(from, &star, got));
  if (!*got)
    goto done;
  /* work space first: stars take what is left of the memory */
  if (!c->is_under_way)
    MILL_TRY(bind_slots(p, c, p->slots.bound, p->slots.n_slot));
  const double before_s = mill_thread_cpu_s(), before_wall_s = mill_wall_s();
  mill_range_begin(MILL_RANGE_UPLOAD);
  err = mill_slots_load(&p->slots, i, &star);
  if (err == MILL_ERR_MEMORY)
    err = load_elsewhere(p, c, i, &star);
  mill_range_end();
  p->load_s += mill_thread_cpu_s() - before_s;
  p->load_wall_s += mill_wall_s() - before_wall_s;
  from->is_waiting = err == MILL_ERR_MEMORY;
  if (from->is_waiting) {
    from->waiting = star;
    *got = 0;
    err = fewer_slots(p, c);
  }
done:
  pthread_mutex_unlock(&p->mutex);
  return err;
}

/** Fill free slots with stars; where host and device work at the same time, a part of them. */
static int fill(mill_pipeline *p, mill_crew *c)
{
  const int share = c->n_slot / SLOT_SHARE > 1 ? c->n_slot / SLOT_SHARE : 1;
  const int n_most = p->backend->overlaps ? share : c->n_slot;
  int n_busy = count_busy(p, c), n_filled = 0, got = 1;
  for (int i = c->first;
       i < c->first + c->n_slot && n_busy < c->n_usable && n_filled < n_most && got; i++) {
    if (p->slots.entry[i].active)
      continue;
    MILL_CHECK(load_next(p, c, i, &got));
    n_busy += got;
    n_filled += got;
  }
  return MILL_OK;
}

/** Is there a star that no slot has, and no failure? */
static int has_more(mill_pipeline *p)
{
  pthread_mutex_lock(&p->mutex);
  const int more = p->stream.failure.code == MILL_OK && (p->stream.more || p->stream.is_waiting);
  pthread_mutex_unlock(&p->mutex);
  return more;
}

/** Start fresh stars and ask for rounds over all. */
static int launch(mill_pipeline *p, mill_crew *c, int *n_active)
{
  int err = MILL_OK;
  const mill_backend *be = p->backend;
  mill_slot_entry *entry = p->slots.entry;
  int n_fresh = 0, n = 0;
  for (int i = c->first; i < c->first + c->n_slot; i++)
    if (entry[i].active && entry[i].fresh)
      c->list[n_fresh++] = i;
  if (count_busy(p, c) > 0) {
    pthread_mutex_lock(&p->mutex);
    err = bind_slots(p, c, p->slots.bound, p->slots.n_slot);
    pthread_mutex_unlock(&p->mutex);
    MILL_TRY(err);
  }
  if (n_fresh > 0)
    MILL_TRY(be->start(c->device, c->list, n_fresh));
  for (int i = c->first; i < c->first + c->n_slot; i++)
    if (entry[i].active && !entry[i].finished) {
      entry[i].fresh = 0;
      c->list[n++] = i;
    }
  *n_active = n;
  if (n == 0)
    goto done;
  if (!be->overlaps) {
    MILL_TRY(be->advance(c->device, c->list, n, n, ROUNDS_PER_CALL));
    goto done;
  }
  /* at the end of the stars there is nothing to fill slots with */
  const int share = n / SLOT_SHARE > 1 ? n / SLOT_SHARE : 1;
  MILL_TRY(be->advance(c->device, c->list, n, has_more(p) ? share : n, ROUNDS_PER_LOOP));
  c->is_under_way = 1;
done:
  return err;
}

/** Models of those of the stars done[first] .. done[first + MODELS_PER_CALL - 1] that have any. */
static int fetch_models(mill_pipeline *p, const mill_crew *c, int first)
{
  int fitted[MODELS_PER_CALL], n = 0;
  for (int i = first; i < c->n_done && i < first + MODELS_PER_CALL; i++)
    if (c->row[i].status == MILL_STATUS_FITTED)
      fitted[n++] = c->done[i];
  if (n == 0)
    return MILL_OK;
  mill_range_begin(MILL_RANGE_DOWNLOAD);
  const int err = mill_slots_fetch_models(&p->slots, fitted, n);
  mill_range_end();
  return err;
}

/** Pass the collected rows to the sink, and free their slots. */
static int deliver(mill_pipeline *p, mill_crew *c)
{
  int err = MILL_OK;
  const float *const *next = NULL;
  if (c->n_done == 0)
    return MILL_OK;
  pthread_mutex_lock(&p->mutex);
  for (int i = 0; i < c->n_done; i++) {
    const float *const *model = NULL;
    if (p->slots.want_models && i % MODELS_PER_CALL == 0) {
      MILL_TRY(fetch_models(p, c, i));
      next = p->slots.model_row;
    }
    if (p->slots.want_models && c->row[i].status == MILL_STATUS_FITTED) {
      model = next;
      next += mill_slots_n_segment(&p->slots, c->done[i]);
    }
    if (p->posterior && c->row[i].status == MILL_STATUS_FITTED) {
      MILL_TRY(mill_slots_fetch_posterior(&p->slots, c->done[i], p->posterior));
      c->row[i].posterior = p->posterior;
    }
    mill_slots_free(&p->slots, c->done[i]);
    MILL_TRY(p->stream.sink(p->stream.sink_context, &c->row[i], model));
  }
done:
  pthread_mutex_unlock(&p->mutex);
  /* rows that failed are not tried again */
  c->n_done = 0;
  return err;
}

/** The rounds have failed: pass on rows that had finished before, unless they need data on the
 *  device.  The first failure counts. */
static void deliver_last(mill_pipeline *p, mill_crew *c)
{
  for (int i = 0; i < c->n_done && !p->slots.want_models && !p->posterior; i++)
    if (p->stream.sink(p->stream.sink_context, &c->row[i], NULL) != MILL_OK)
      break;
  c->n_done = 0;
}

/** Forget the stars that a crew has under way. */
static void free_slots(mill_pipeline *p, const mill_crew *c)
{
  pthread_mutex_lock(&p->mutex);
  for (int i = c->first; i < c->first + c->n_slot; i++)
    mill_slots_free(&p->slots, i);
  pthread_mutex_unlock(&p->mutex);
}

/** Collect what has finished; *gives_up: the stars under way are not fitted to their end. */
static int collect(mill_pipeline *p, mill_crew *c, int *gives_up)
{
  MILL_CHECK(p->backend->collect(c->device, c->done, c->row, &c->n_done));
  c->is_under_way = 0;
  for (int i = 0; i < c->n_done; i++)
    p->slots.entry[c->done[i]].finished = 1;
  *gives_up = p->posterior && mill_stop_reason() != MILL_STOP_NONE;
  return MILL_OK;
}

/** Fit with a crew.  All slots: until every star is fitted.  One thread's: until there is no star
 *  that no slot has; what its slots hold then is for all threads together. */
static int work(mill_pipeline *p, mill_crew *c)
{
  const mill_backend *be = p->backend;
  while (c == &p->all || has_more(p)) {
    int n_active, gives_up;
    MILL_CHECK(launch(p, c, &n_active));
    if (be->overlaps) { /* while the rounds are under way */
      MILL_CHECK(deliver(p, c));
      MILL_CHECK(fill(p, c));
    }
    if (n_active == 0 && count_busy(p, c) == 0)
      break;
    if (n_active == 0)
      continue;
    MILL_CHECK(collect(p, c, &gives_up));
    if (be->overlaps && !gives_up)
      continue;
    MILL_CHECK(deliver(p, c));
    if (gives_up) {
      free_slots(p, c);
      pthread_mutex_lock(&p->mutex);
      /* ask the source once more for its error */
      p->stream.is_waiting = 0;
      p->stream.more = 1;
      pthread_mutex_unlock(&p->mutex);
    }
    MILL_CHECK(fill(p, c));
  }
  return MILL_OK;
}

/** Threads fit on their own, each with slots of its own, as long as there are stars to fill them
 *  with: where they wait for each other after every few rounds, a long run takes a tenth longer. */
static int work_apart(mill_pipeline *p)
{
#pragma omp parallel for schedule(static, 1) num_threads(p->n_part)
  for (int i = 0; i < p->n_part; i++) {
    const int code = work(p, &p->part[i]);
    if (code == MILL_OK)
      continue;
    pthread_mutex_lock(&p->mutex);
    if (p->stream.failure.code == MILL_OK)
      mill_error_save(code, &p->stream.failure);
    pthread_mutex_unlock(&p->mutex);
  }
  return p->stream.failure.code == MILL_OK ? MILL_OK : mill_error_restore(&p->stream.failure);
}

int mill_pipeline_run(mill_pipeline *p, mill_star_source source, void *source_context,
                      mill_result_sink sink, void *sink_context)
{
  int err = MILL_OK;
  mill_error_kept kept;
  mill_pipeline_drop(p);
  p->stream = (mill_stream){.source = source,
                            .sink = sink,
                            .source_context = source_context,
                            .sink_context = sink_context,
                            .more = 1};
  p->all.n_usable = p->all.n_slot; /* other stars may take less memory */
  p->all.n_done = p->all.is_under_way = 0;
  for (int i = 0; i < p->n_part; i++) {
    p->part[i].n_usable = p->part[i].n_slot;
    p->part[i].n_done = 0;
  }
  MILL_TRY(fill(p, &p->all));
  if (p->n_part > 0 && has_more(p))
    MILL_TRY(work_apart(p));
  MILL_TRY(work(p, &p->all));
done:
  /* later calls may fail for the same reason; the first failure counts */
  mill_error_save(err, &kept);
  for (int i = 0; i < p->n_part; i++)
    deliver_last(p, &p->part[i]);
  deliver_last(p, &p->all);
  free_slots(p, &p->all);
  return mill_error_restore(&kept);
}

void mill_pipeline_timing(const mill_pipeline *p, mill_timing *total)
{
  memset(total, 0, sizeof *total);
  if (p->backend->timing)
    p->backend->timing(p->all.device, total);
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
  return p->all.n_usable;
}

double mill_pipeline_load_s(const mill_pipeline *p)
{
  return p->load_s;
}

double mill_pipeline_load_wall_s(const mill_pipeline *p)
{
  return p->load_wall_s;
}
