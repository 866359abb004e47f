/* SPDX-License-Identifier: BSD-3-Clause */
/* A run: load stars into free slots, run rounds, hand finished rows to the sink. */

#include "kernels/base/clock.h"
#include "kernels/base/nvtx.h"
#include "src/pipeline/pipeline_parts.h"
#include "src/system/log.h"
#include "src/system/stop_signal.h"
#include "src/system/thread.h"

enum {
  /** Rounds between two looks for finished stars, if the host waits during rounds. */
  ROUNDS_PER_CALL = 4,
  /** Most rounds between two looks for finished stars, if the host works during rounds. */
  ROUNDS_PER_LOOP = 64,
  /** Least number of stars that a CPU starts together: they share templates of the guess. */
  START_TOGETHER = 16,
  /** Stars whose models are downloaded together. */
  MODELS_PER_CALL = 64,
  /** If the host works while rounds run, a series of rounds ends when 1/SLOT_SHARE of its stars are
   *  finished.  During a series the host fills at most 1/SLOT_SHARE of the slots. */
  SLOT_SHARE = 8,
  MOST_TOO_LARGE = 8 /**< stars in succession that may lack memory before the run ends */
};

static int count_busy(const mill_pipeline *p, const mill_crew *c)
{
  int n_busy = 0;
  for (int i = c->first; i < c->first + c->n_slot; i++)
    n_busy += p->slots.entry[i].active;
  return n_busy;
}

int mill_pipeline_settle(mill_pipeline *p)
{
  /* stars are uploaded by the last library's device */
  return p->backend->settle ? p->backend->settle(p->all.seat[p->n_lib - 1].device) : MILL_OK;
}

/** The star does not fit into empty memory: give it a row without a fit.  But fail if memory is too
 *  small for any star: the star has one exposure, or MOST_TOO_LARGE such stars came just before. */
static int give_up(mill_pipeline *p, mill_star *star)
{
  if (star->n_exposure < 2 || ++p->stream.n_too_large > MOST_TOO_LARGE)
    return MILL_ERROR(MILL_ERR_MEMORY, "no star fits into the memory of %s: end other programs",
                      p->backend->name);
  star->result = &p->all.row[0]; /* free, as no slot holds a star */
  star->is_too_large = 1;
  mill_fit_result_init(star->result, p->member[0].lib, star->row, MILL_STATUS_FIT_FAILED);
  return p->stream.sink(p->stream.sink_context, star);
}

/** Memory is full: the star waits.  From now on the crew uses half as many slots as it has filled,
 *  at least one if it has filled any.  If no crew holds a star, give the waiting star up. */
static int fewer_slots(mill_pipeline *p, mill_crew *c, mill_star *star)
{
  const int n_busy = count_busy(p, c), n_all = count_busy(p, &p->all);
  if (n_all == 0)
    return give_up(p, star);
  const int n_now = n_busy > 1 ? n_busy / 2 : n_busy;
  if (c != &p->all)
    p->all.n_usable -= c->n_usable - n_now; /* the sum of all crews */
  c->n_usable = n_now;
  if (p->all.n_usable < 1)
    p->all.n_usable = 1;
  mill_log_warning("memory of %s is full with %d stars: continuing with %d at once",
                   p->backend->name, n_all, p->all.n_usable);
  mill_slots_trim(&p->slots);
  p->stream.waiting = star;
  return MILL_OK;
}

/** Slot *i_slot lacks memory for a star: set *i_slot to the crew's free slot with most memory, and
 *  try this slot.  If this fails and no slot has a star, free all slots' memory and try again. */
static int load_elsewhere(mill_pipeline *p, const mill_crew *c, int *i_slot, mill_star *star)
{
  int err = MILL_ERR_MEMORY;
  const int first = *i_slot;
  const mill_slot_entry *e = p->slots.entry;
  for (int i = c->first; i < c->first + c->n_slot; i++)
    if (!e[i].active && e[i].memory.cap > e[*i_slot].memory.cap)
      *i_slot = i;
  if (*i_slot != first)
    err = mill_slots_load(&p->slots, *i_slot, star);
  if (err == MILL_ERR_MEMORY && count_busy(p, &p->all) == 0 && mill_slots_drop(&p->slots))
    err = mill_slots_load(&p->slots, *i_slot, star);
  return err;
}

/** Get the star that waits for memory, or else the source's next star; NULL: no more stars. */
static int next_star(mill_pipeline *p, mill_star **star)
{
  mill_stream *from = &p->stream;
  *star = from->waiting;
  from->waiting = NULL;
  if (*star || !from->more)
    return MILL_OK;
  mill_pipeline_begin_star(p);
  const int got = from->source(from->source_context, star);
  if (got < 0)
    return -got; /* an error code */
  from->more = got;
  if (got)
    mill_pipeline_fit_pixels(p, *star);
  else
    *star = NULL;
  return MILL_OK;
}

static int is_under_way(const mill_pipeline *p, const mill_crew *c)
{
  int is = 0;
  for (int k = 0; k < p->n_lib; k++)
    is |= c->seat[k].is_under_way;
  return is;
}

/** Copy the next star into slot i.  *got: 0 if there was no star or no memory. */
static int load_next(mill_pipeline *p, mill_crew *c, int i, int *got)
{
  mill_star *star;
  MILL_LOCKED(&p->mutex);
  MILL_CHECK(next_star(p, &star));
  *got = star != NULL;
  if (!star)
    return MILL_OK;
  /* bind before loading: it allocates work space, and stars may take all memory that is left; but
   * not while rounds use the work space */
  if (!is_under_way(p, c))
    MILL_CHECK(mill_pipeline_bind(p, c, p->slots.bound, p->slots.n_slot));
  const double before_s = mill_thread_cpu_s();
  mill_range_begin(MILL_RANGE_UPLOAD);
  int err = mill_slots_load(&p->slots, i, star);
  if (err == MILL_ERR_MEMORY)
    err = load_elsewhere(p, c, &i, star);
  mill_range_end();
  p->load_s += mill_thread_cpu_s() - before_s;
  *got = err == MILL_OK;
  if (err == MILL_ERR_MEMORY)
    return fewer_slots(p, c, star);
  p->stream.n_too_large = 0; /* this star ends a series of stars too large for memory */
  if (*got && p->contest)
    mill_contest_begin(&p->contest[i]);
  return err;
}

/** Load stars into free slots; if rounds run meanwhile, at most into 1/SLOT_SHARE of the slots. */
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

/** Are there more stars to load, and no failure so far? */
static int has_more(mill_pipeline *p)
{
  MILL_LOCKED(&p->mutex);
  return p->stream.failure.code == MILL_OK && (p->stream.more || p->stream.waiting);
}

/** Start library k's fresh stars (loaded, but not started) if there are n_least or more.  Then run
 *  rounds over its started stars.  *n_active: number of stars in the rounds. */
static int launch_library(mill_pipeline *p, mill_crew *c, int k, int n_least, int *n_active)
{
  const mill_backend *be = p->backend;
  mill_slot_entry *entry = p->slots.entry;
  mill_seat *seat = &c->seat[k];
  int n_fresh = 0, n = 0;
  for (int i = c->first; i < c->first + c->n_slot; i++)
    if (entry[i].active && entry[i].library == k && entry[i].fresh)
      c->list[n_fresh++] = i;
  if (n_fresh >= n_least) {
    MILL_CHECK(be->start(seat->device, c->list, n_fresh));
    for (int i = 0; i < n_fresh; i++)
      entry[c->list[i]].fresh = 0;
  }
  for (int i = c->first; i < c->first + c->n_slot; i++)
    if (entry[i].active && entry[i].library == k && !entry[i].finished && !entry[i].fresh)
      c->list[n++] = i;
  *n_active = n;
  if (n == 0)
    return MILL_OK;
  seat->is_under_way = 1;
  if (!be->overlaps)
    return be->advance(seat->device, c->list, n, n, ROUNDS_PER_CALL);
  /* if more stars wait, return once `share` stars are finished, so that their slots are filled */
  const int share = n / SLOT_SHARE > 1 ? n / SLOT_SHARE : 1;
  return be->advance(seat->device, c->list, n, has_more(p) ? share : n, ROUNDS_PER_LOOP);
}

/** Start fresh stars, and run rounds over all started stars.  A CPU with other work first waits for
 *  START_TOGETHER fresh stars of a library.  *n_active: number of stars in the rounds. */
static int launch(mill_pipeline *p, mill_crew *c, int *n_active)
{
  int err = MILL_OK, n_started = 0;
  const mill_slot_entry *entry = p->slots.entry;
  *n_active = 0;
  if (count_busy(p, c) == 0)
    return MILL_OK;
  for (int i = c->first; i < c->first + c->n_slot; i++)
    n_started += entry[i].active && !entry[i].fresh;
  const int n_least = n_started > 0 && !p->backend->overlaps && has_more(p) ? START_TOGETHER : 1;
  pthread_mutex_lock(&p->mutex);
  err = mill_pipeline_bind(p, c, p->slots.bound, p->slots.n_slot);
  pthread_mutex_unlock(&p->mutex);
  for (int k = 0; k < p->n_lib && err == MILL_OK; k++) {
    int n = 0;
    err = launch_library(p, c, k, n_least, &n);
    *n_active += n;
  }
  return err;
}

/** Pass stars in c->done to their next library (several.h).  Stars without one stay in c->done. */
static int take_turns(mill_pipeline *p, mill_crew *c)
{
  int n = 0;
  for (int i = 0; i < c->n_done; i++) {
    const int i_slot = c->done[i];
    int next;
    double limit;
    MILL_CHECK(mill_contest_take(&p->contest[i_slot], &p->slots, i_slot, &next, &limit));
    if (next >= 0) {
      MILL_CHECK(mill_slots_turn(&p->slots, i_slot, next, limit));
      continue;
    }
    c->row[n] = c->row[i];
    c->done[n] = i_slot;
    p->slots.entry[i_slot].star->result = &c->row[n++];
  }
  c->n_done = n;
  return MILL_OK;
}

/** Do models or epochs come back with a row? */
static int fetches(const mill_pipeline *p)
{
  return p->slots.want_models || p->member[0].model.set.epochs;
}

/** Copy models and epochs of the fitted stars in c->done [first, end) from the backend.  Skip stars
 *  whose best fit is an earlier library's: their mill_contest has kept both (several.h). */
static int fetch(mill_pipeline *p, const mill_crew *c, int first, int end)
{
  int fitted[MODELS_PER_CALL], n = 0;
  for (int i = first; i < end && fetches(p); i++)
    if (c->row[i].status == MILL_STATUS_FITTED && !(p->contest && p->contest[c->done[i]].is_kept))
      fitted[n++] = c->done[i];
  if (n == 0)
    return MILL_OK;
  mill_range_begin(MILL_RANGE_DOWNLOAD);
  const int err = mill_slots_fetch(&p->slots, fitted, n);
  mill_range_end();
  return err;
}

/** Hand a star to the sink, and free its slot. */
static int pass_on(mill_pipeline *p, int i_slot)
{
  mill_star *star = p->slots.entry[i_slot].star;
  if (p->posterior && star->result->status == MILL_STATUS_FITTED) {
    MILL_CHECK(mill_slots_fetch_posterior(&p->slots, i_slot, p->posterior));
    star->result->posterior = p->posterior;
  }
  MILL_CHECK(p->stream.sink(p->stream.sink_context, star));
  mill_slots_free(&p->slots, i_slot);
  return MILL_OK;
}

/** Hand collected stars to the sink, and free their slots.  With several libraries, first pass each
 *  star to its next library, and hand over only stars without one. */
static int deliver(mill_pipeline *p, mill_crew *c)
{
  int err = MILL_OK;
  if (c->n_done == 0)
    return MILL_OK;
  pthread_mutex_lock(&p->mutex);
  if (p->contest)
    MILL_TRY(take_turns(p, c));
  for (int first = 0, end; first < c->n_done; first = end) {
    end = c->n_done - first < MODELS_PER_CALL ? c->n_done : first + MODELS_PER_CALL;
    MILL_TRY(fetch(p, c, first, end));
    for (int i = first; i < end; i++)
      MILL_TRY(pass_on(p, c->done[i]));
  }
done:
  pthread_mutex_unlock(&p->mutex);
  /* rows that failed are not tried again */
  c->n_done = 0;
  return err;
}

/** After a failure: hand over the rows that finished before it, unless they need models, epochs or
 *  posteriors from the device.  Further failures are ignored. */
static void deliver_last(mill_pipeline *p, mill_crew *c)
{
  int err = MILL_OK, next = -1;
  double limit;
  for (int i = 0; i < c->n_done && !fetches(p) && !p->posterior && err == MILL_OK; i++) {
    if (p->contest)
      err = mill_contest_take(&p->contest[c->done[i]], &p->slots, c->done[i], &next, &limit);
    if (err == MILL_OK && next < 0)
      err = pass_on(p, c->done[i]);
  }
  c->n_done = 0;
}

static void free_slots(mill_pipeline *p, const mill_crew *c)
{
  MILL_LOCKED(&p->mutex);
  for (int i = c->first; i < c->first + c->n_slot; i++)
    mill_slots_free(&p->slots, i);
}

/** Collect finished rows.  *gives_up: 1 if the job stops and samples, as it then drops the stars
 *  under way; a fit finishes them. */
static int collect(mill_pipeline *p, mill_crew *c, int *gives_up)
{
  for (int k = 0; k < p->n_lib; k++) {
    int n = 0;
    if (!c->seat[k].is_under_way)
      continue;
    MILL_CHECK(p->backend->collect(c->seat[k].device, c->done + c->n_done, c->row + c->n_done, &n));
    c->seat[k].is_under_way = 0;
    for (; n > 0; n--) {
      mill_slot_entry *e = &p->slots.entry[c->done[c->n_done]];
      e->finished = 1;
      e->star->result = &c->row[c->n_done++];
      e->star->model = NULL;
    }
  }
  *gives_up = p->posterior && mill_stop_reason() != MILL_STOP_NONE;
  return MILL_OK;
}

/** Fit with a crew: with p->all until every star is fitted, else until no star is left to load. */
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
    if (n_active == 0) /* stars loaded just now: launch them */
      continue;
    MILL_CHECK(collect(p, c, &gives_up));
    if (be->overlaps && !gives_up) /* deliver during the next rounds */
      continue;
    MILL_CHECK(deliver(p, c));
    if (gives_up) {
      free_slots(p, c);
      MILL_LOCKED(&p->mutex);
      /* ask the source again: it returns its error, or the end */
      p->stream.waiting = NULL;
      p->stream.more = 1;
    }
    MILL_CHECK(fill(p, c));
  }
  return MILL_OK;
}

/** Each thread fits with its own crew, without barriers, which would cost a tenth of the time. */
static int work_apart(mill_pipeline *p)
{
#pragma omp parallel for schedule(static, 1) num_threads(p->n_part)
  for (int i = 0; i < p->n_part; i++) {
    const int code = work(p, &p->part[i]);
    if (code == MILL_OK)
      continue;
    MILL_LOCKED(&p->mutex);
    if (p->stream.failure.code == MILL_OK)
      mill_error_save(code, &p->stream.failure);
  }
  return p->stream.failure.code == MILL_OK ? MILL_OK : mill_error_restore(&p->stream.failure);
}

/** Ready a crew for new stars.  All its slots are usable again: new stars may need less memory. */
static void begin_crew(const mill_pipeline *p, mill_crew *c)
{
  c->n_usable = c->n_slot;
  c->n_done = 0;
  for (int k = 0; k < p->n_lib; k++)
    c->seat[k].is_under_way = 0;
}

/* Each thread fits in its own slots while stars are left to load; then all threads fit the rest. */
int mill_pipeline_run(mill_pipeline *p, mill_star_source source, void *source_context,
                      mill_result_sink sink, void *sink_context)
{
  int err = MILL_OK;
  mill_error_kept kept;
  mill_pipeline_drop(p); /* a star held for mill_pipeline_ask */
  p->stream = (mill_stream){.source = source,
                            .sink = sink,
                            .source_context = source_context,
                            .sink_context = sink_context,
                            .more = 1};
  do { /* once, and again after each star that does not fit into memory */
    begin_crew(p, &p->all);
    for (int i = 0; i < p->n_part; i++)
      begin_crew(p, &p->part[i]);
    MILL_TRY(fill(p, &p->all));
    if (p->n_part > 0 && has_more(p))
      MILL_TRY(work_apart(p));
    MILL_TRY(work(p, &p->all));
  } while (has_more(p));
done:
  /* what follows may fail for the same reason: keep the first failure */
  mill_error_save(err, &kept);
  for (int k = 0; k < p->n_lib; k++) /* the caller may free the pixels afterwards */
    (void)p->backend->wait(p->all.seat[k].device);
  for (int i = 0; i < p->n_part; i++)
    deliver_last(p, &p->part[i]);
  deliver_last(p, &p->all);
  free_slots(p, &p->all);
  return mill_error_restore(&kept);
}
