/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/stars/reader.h"

#include "kernels/base/nvtx.h"
#include "kernels/base/clock.h"
#include "src/system/regular_file.h"
#include "src/system/thread.h"
#include "src/system/watchdog.h"

enum {
  MAX_SOURCE = 4, /* open files of a thread if rows are joined; else 1 */
  MAX_BATCHES = MILL_MAX_READER + MILL_READER_AHEAD
};

/* An input file, or the reason why it cannot be opened. */
typedef struct source {
  int i_file; /* -1: none */
  int64_t last_used;
  mill_spectra *spectra; /* NULL: could not be opened, see error */
  mill_file_index index; /* its rows before joining */
  char error[512];
} source;

/* A star and the room for its segments. */
typedef struct ticket {
  mill_star star; /* first member, so a mill_star * is also a ticket * */
  int64_t segment_room;
  struct ticket *next_made, *next_idle;
} ticket;

/* Place of an exposure in its batch. */
typedef struct place {
  int part; /* index in batch->part */
  int at;   /* number of the exposure in this part */
  double mjd;
} place;

/* A thread and its private data. */
typedef struct worker {
  mill_reader *reader;
  pthread_t thread;
  int started;
  int n_source;
  source source[MAX_SOURCE];
  int64_t n_asked, wanted[MILL_BATCH_ROWS];
  /* work space for the batch being filled */
  int64_t *exposure; /* exposures to read from one file, as its format numbers them */
  place *place;      /* where each exposure of the batch was read */
  int *part_file;    /* file of each part */
  int *cursor;       /* next segment of each part */
  int64_t exposure_room, place_room, part_file_room, cursor_room;
  mill_reader_cost cost; /* cpu_s is set when the thread ends */
} worker;

struct mill_reader {
  mill_reader_plan plan;
  int n_worker;
  worker *worker; /* [n_worker] */
  /* guarded by draw: one thread at a time asks for rows */
  pthread_mutex_t draw;
  mill_schedule_rows rest; /* drawn rows that no thread has taken yet */
  /* guarded by mutex */
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  mill_batch *ready[MAX_BATCHES]; /* oldest first */
  int n_ready;
  mill_batch *idle[MAX_BATCHES];
  int n_idle;
  ticket *made, *idle_ticket; /* all tickets, and the unused ones */
  int stop, n_running;
  mill_error_kept failure; /* of the first thread that failed */
};

static void close_source(source *s)
{
  mill_spectra_close(s->spectra);
  mill_file_index_clear(&s->index);
  *s = (source){.i_file = -1};
}

/* Close this thread's files except `keep`, to free scratch space; returns their number. */
static int close_others(worker *w, const source *keep)
{
  int n = 0;
  for (int k = 0; k < w->n_source; k++) {
    source *s = &w->source[k];
    if (s == keep || !s->spectra)
      continue;
    close_source(s);
    n++;
  }
  return n;
}

/* Get file i; if it is not open, open it in place of the least recently used file.
 * The source of an unreadable file has only an error text. */
static int get_source(worker *w, int i, source **out)
{
  const mill_inputs *inputs = w->reader->plan.inputs;
  const mill_input_file *entry = &inputs->file[i];
  source *s = &w->source[0];
  w->n_asked++;
  for (int k = 0; k < w->n_source; k++) {
    if (w->source[k].i_file == i) {
      *out = &w->source[k];
      (*out)->last_used = w->n_asked;
      return MILL_OK;
    }
    if (w->source[k].last_used < s->last_used)
      s = &w->source[k];
  }
  close_source(s);
  s->i_file = i;
  s->last_used = w->n_asked;
  w->cost.n_opened++;
  MILL_WATCHED(MILL_WATCH_FILE, 0, "%s: opening it", entry->path);
  int code = mill_inputs_open(inputs, i, &s->spectra, &s->index);
  /* the scratch folder may be full of this thread's other unpacked files */
  if (code == MILL_ERR_INPUT && mill_is_gz(entry->path) && close_others(w, s) > 0)
    code = mill_inputs_open(inputs, i, &s->spectra, &s->index);
  if (code == MILL_ERR_INPUT || code == MILL_ERR_RANGE)
    snprintf(s->error, sizeof s->error, "%s", mill_error_message());
  else
    MILL_CHECK(code);
  *out = s;
  return MILL_OK;
}

/* Wait for an idle batch; NULL: the reader was stopped. */
static mill_batch *take_idle(mill_reader *reader)
{
  MILL_LOCKED(&reader->mutex);
  while (reader->n_idle == 0 && !reader->stop)
    pthread_cond_wait(&reader->changed, &reader->mutex);
  return reader->stop ? NULL : reader->idle[--reader->n_idle];
}

/* Get an unused star and assign it to `row`; its spectra are not read yet. */
static int take_star(mill_reader *reader, int64_t row, mill_star **star)
{
  MILL_LOCKED(&reader->mutex);
  ticket *t = reader->idle_ticket;
  if (t) {
    reader->idle_ticket = t->next_idle;
  } else {
    MILL_CHECK(MILL_ALLOC(1, &t));
    t->next_made = reader->made;
    reader->made = t; /* list of all tickets, to free them */
  }
  t->star = (mill_star){.row = row, .first_exposure = -1, .segment = t->star.segment};
  *star = &t->star;
  return MILL_OK;
}

static void hand_over(mill_reader *reader, mill_batch *batch)
{
  MILL_LOCKED(&reader->mutex);
  reader->ready[reader->n_ready++] = batch;
  pthread_cond_broadcast(&reader->changed);
}

/* Return joined row `row` of file i; it ends where element [1] begins.  NULL: nothing is joined. */
static const mill_join_start *joined_of(const mill_reader *reader, int i, int64_t row)
{
  const mill_join *join = reader->plan.inputs->join;
  return join ? &join->start[join->row_start[i] + row] : NULL;
}

/* Return the rows [*n] joined into a row of file i; without joining, the row itself, in *alone. */
static const mill_join_part *parts_of(const mill_reader *reader, int i, int64_t row, int64_t *n,
                                      mill_join_part *alone)
{
  const mill_join_start *joined = joined_of(reader, i, row);
  *alone = (mill_join_part){.file = i, .row = row};
  *n = joined ? joined[1].part - joined->part : 1;
  return joined ? &reader->plan.inputs->join->part[joined->part] : alone;
}

/* Count a row's exposures.  Set *first_exposure to the first one's row in /catalog/exposures. */
static int count_exposures(const mill_reader *reader, const source *s, int64_t row,
                           int64_t *first_exposure)
{
  const mill_join_start *joined = joined_of(reader, s->i_file, row);
  *first_exposure =
      joined ? joined->exposure
             : reader->plan.inputs->exposure_start[s->i_file] + s->index.row[row].first_exposure;
  return joined ? (int)(joined[1].exposure - joined->exposure) : s->index.row[row].n_exposure;
}

/* Make file i_file a part of the batch, unless the batch has this part already. */
static int add_part(worker *w, mill_batch *batch, int i_file)
{
  for (int p = 0; p < batch->n_part; p++)
    if (w->part_file[p] == i_file)
      return MILL_OK;
  const int64_t n_made = batch->cap_part;
  MILL_CHECK(MILL_GROW(&batch->part, &batch->cap_part, batch->n_part + 1));
  for (int64_t i = n_made; i < batch->cap_part; i++)
    batch->part[i] = (mill_read_batch){.arena.backend = w->reader->plan.backend};
  MILL_CHECK(MILL_GROW(&w->part_file, &w->part_file_room, batch->n_part + 1));
  w->part_file[batch->n_part++] = i_file;
  return MILL_OK;
}

/* Read part p of the batch: for wanted rows of file i, the spectra that lie in file w->part_file[p]
 * (a joined row has spectra in several files).  Set w->place of each exposure read. */
static int read_part(worker *w, mill_batch *batch, int i, const int64_t *wanted, int p)
{
  int n = 0, n_asked = 0; /* exposures so far: of the batch; of the batch in this file */
  mill_reader *reader = w->reader;
  source *s = NULL;
  MILL_CHECK(get_source(w, w->part_file[p], &s));
  if (!s->spectra)
    return MILL_ERROR(MILL_ERR_INPUT, "%s", s->error);
  for (int k = 0; k < batch->n_row; k++) {
    mill_join_part alone;
    int64_t n_part;
    const mill_join_part *part = parts_of(reader, i, wanted[k], &n_part, &alone);
    for (int64_t q = 0; q < n_part; q++) {
      const int here = part[q].file == w->part_file[p];
      const mill_catalog_row *row = here ? &s->index.row[part[q].row] : NULL;
      const int n_exposure = here ? row->n_exposure : part[q].n_exposure;
      for (int e = 0; e < n_exposure && here; e++) {
        const int64_t at = row->first_exposure + e;
        w->place[n + e] = (place){p, n_asked, s->index.exposure_mjd[at]};
        w->exposure[n_asked++] = s->index.exposure_row[at];
      }
      n += n_exposure;
    }
  }
  MILL_WATCHED(MILL_WATCH_FILE, 0, "%s: reading it", reader->plan.inputs->file[s->i_file].path);
  return mill_spectra_read(s->spectra, w->exposure, n_asked, &batch->part[p]);
}

/* Collect each star's segments from the batch's parts (one per file), which have them in order. */
static int collect_segments(worker *w, mill_batch *batch)
{
  int e = 0;
  MILL_CHECK(MILL_GROW(&w->cursor, &w->cursor_room, batch->n_part));
  for (int p = 0; p < batch->n_part; p++)
    w->cursor[p] = 0;
  for (int k = 0; k < batch->n_row; k++) {
    mill_star *star = batch->star[k]; /* first member of its ticket */
    for (int i = 0; i < star->n_exposure; i++, e++) {
      const place from = w->place[e]; /* at: its number in the part */
      const mill_read_batch *part = &batch->part[from.part];
      for (int *c = &w->cursor[from.part];
           *c < part->n_segment && part->segment[*c].exposure == from.at; (*c)++) {
        MILL_CHECK(MILL_GROW(&star->segment, &((ticket *)star)->segment_room, star->n_segment + 1));
        mill_raw_segment *to = &star->segment[star->n_segment++];
        *to = part->segment[*c];
        to->i_file = w->part_file[from.part];
        to->exposure = i;
        to->mjd = from.mjd;
      }
    }
  }
  return MILL_OK;
}

/* Fill a batch with n wanted rows of file i.  MILL_ERR_INPUT, MILL_ERR_RANGE: unreadable row. */
static int fill_batch(worker *w, int i, const source *s, const int64_t *wanted, int n,
                      mill_batch *batch)
{
  mill_reader *reader = w->reader;
  const mill_inputs *inputs = reader->plan.inputs;
  batch->i_file = i;
  batch->error[0] = '\0';
  batch->n_part = batch->n_exposure = 0;
  for (; batch->n_row < n; batch->n_row++)
    MILL_CHECK(take_star(reader, inputs->file[i].row_start + wanted[batch->n_row],
                         &batch->star[batch->n_row]));
  if (!s->spectra)
    return MILL_ERROR(MILL_ERR_INPUT, "%s", s->error);
  for (int k = 0; k < n; k++) {
    mill_join_part alone;
    int64_t n_part;
    const mill_join_part *part = parts_of(reader, i, wanted[k], &n_part, &alone);
    mill_star *star = batch->star[k];
    star->n_exposure = count_exposures(reader, s, wanted[k], &star->first_exposure);
    batch->n_exposure += star->n_exposure;
    /* a joined row belongs to the file of its first part, which is file i */
    const mill_catalog_row *row = &s->index.row[part[0].row];
    const mill_join_start *joined = joined_of(reader, i, wanted[k]);
    if (joined ? joined->is_extragalactic : row->kind.is_extragalactic)
      star->warn = MILL_WARN_CLASS;
    star->identity = mill_star_identity(row->target_id, row->object, row->identifier);
    star->stays = 1; /* its pixels stay in pinned memory with the batch */
    mill_star_entries at = joined ? joined->entries : (mill_star_entries){0};
    if (!joined)
      MILL_CHECK(mill_star_entries_find(&inputs->tables, inputs->file[i].path, row, &at));
    star->start = mill_start_table_theta(inputs->tables.start, at.start);
    mill_prior_table_take(inputs->tables.priors, at.prior, star);
    for (int64_t q = 0; q < n_part; q++)
      MILL_CHECK(add_part(w, batch, part[q].file));
  }
  MILL_CHECK(MILL_GROW(&w->exposure, &w->exposure_room, batch->n_exposure));
  MILL_CHECK(MILL_GROW(&w->place, &w->place_room, batch->n_exposure));
  for (int p = 0; p < batch->n_part; p++)
    MILL_CHECK(read_part(w, batch, i, wanted, p));
  return collect_segments(w, batch);
}

/* Read n wanted rows of file i into a batch, and hand it over.  If one of several rows is
 * unreadable, hand over nothing and set *retry: the caller then reads them one by one. */
static int read_batch(worker *w, int i, const int64_t *wanted, int n, int *retry, int *stopped)
{
  mill_reader *reader = w->reader;
  source *s = NULL;
  mill_batch *batch = take_idle(reader);
  *retry = 0;
  *stopped = batch == NULL;
  if (!batch)
    return MILL_OK;
  mill_range_begin(MILL_RANGE_READ);
  int err = get_source(w, i, &s);
  if (err == MILL_OK) {
    /* if the file cannot be opened, all its rows are unreadable */
    const int is_lost = s->spectra == NULL;
    err = fill_batch(w, i, s, wanted, n, batch);
    if (err == MILL_ERR_INPUT || err == MILL_ERR_RANGE) {
      *retry = n > 1 && !is_lost;
      snprintf(batch->error, sizeof batch->error, "%s", mill_error_message());
      err = MILL_OK;
    }
  }
  mill_range_end();
  if (err != MILL_OK || *retry)
    mill_reader_release(reader, batch);
  else
    hand_over(reader, batch);
  return err;
}

/* Number of rows that fit into the next batch, at least one. */
static int rows_of_batch(const mill_reader *reader, const source *s, const int64_t *wanted, int n)
{
  int n_exposure = 0, i = 0;
  if (!s->spectra)
    return n;
  for (; i < n; i++) {
    n_exposure += count_exposures(reader, s, wanted[i], &(int64_t){0});
    if (i > 0 && n_exposure > MILL_BATCH_EXPOSURES)
      break;
  }
  return i;
}

/* Read the rows w->wanted [n_wanted] of file i, in batches. */
static int read_wanted(worker *w, int i, int n_wanted, int *stopped)
{
  source *s = NULL;
  for (int at = 0, n = 0; at < n_wanted && !*stopped; at += n) {
    int retry = 0;
    MILL_CHECK(get_source(w, i, &s));
    n = rows_of_batch(w->reader, s, w->wanted + at, n_wanted - at);
    MILL_CHECK(read_batch(w, i, w->wanted + at, n, &retry, stopped));
    /* one by one, so that a bad row does not spoil the others */
    for (int k = 0; retry && k < n && !*stopped; k++)
      MILL_CHECK(read_batch(w, i, w->wanted + at + k, 1, &(int){0}, stopped));
  }
  return MILL_OK;
}

/* Read the wanted rows of a share, MILL_BATCH_ROWS at most at a time. */
static int read_share(worker *w, const mill_schedule_rows *share, int *stopped)
{
  int n_wanted = 0;
  const mill_reader_plan *plan = &w->reader->plan;
  const int64_t row_start = plan->inputs->file[share->file].row_start;
  for (int64_t row = share->first; row < share->end && !*stopped; row++) {
    if (mill_work_wanted(plan->work, row_start + row))
      w->wanted[n_wanted++] = row;
    if (n_wanted == MILL_BATCH_ROWS || row + 1 == share->end) {
      MILL_CHECK(read_wanted(w, share->file, n_wanted, stopped));
      n_wanted = 0;
    }
  }
  return MILL_OK;
}

static int is_stopped(void *context)
{
  mill_reader *reader = context;
  MILL_LOCKED(&reader->mutex);
  return reader->stop;
}

/* Take the next rows for a thread.  Threads share the rows of a file.  A .gz goes to one thread,
 * since each thread would have to unpack it. */
static int take_share(mill_reader *reader, mill_schedule_rows *share, int *there)
{
  mill_schedule_rows *rest = &reader->rest;
  MILL_LOCKED(&reader->draw);
  *there = rest->first < rest->end;
  if (!*there)
    MILL_CHECK(mill_work_next(reader->plan.work, is_stopped, reader, rest, there));
  if (*there) {
    *share = *rest;
    if (reader->n_worker > 1 && share->end - share->first > MILL_READER_SHARE &&
        !mill_is_gz(reader->plan.inputs->file[rest->file].path))
      share->end = share->first + MILL_READER_SHARE;
    rest->first = share->end;
  }
  return MILL_OK;
}

static int read_all(worker *w)
{
  int stopped = 0, there = 0;
  mill_schedule_rows share = {0};
  while (!stopped) {
    MILL_CHECK(take_share(w->reader, &share, &there));
    if (!there)
      break;
    MILL_CHECK(read_share(w, &share, &stopped));
  }
  return MILL_OK;
}

/* A reader thread: read until no rows are left; a failure stops the other threads. */
static void *worker_main(void *argument)
{
  worker *w = argument;
  mill_reader *reader = w->reader;
  mill_nvtx_name_thread("reader");
  const int err = read_all(w);
  for (int k = 0; k < w->n_source; k++)
    close_source(&w->source[k]);
  MILL_LOCKED(&reader->mutex);
  /* a stop request is no failure; the consumer of the batches sees it too */
  if (err != MILL_OK && err != MILL_ERR_STOPPED && reader->failure.code == MILL_OK) {
    mill_error_save(err, &reader->failure);
    reader->stop = 1; /* stops the other threads */
  }
  w->cost.cpu_s = mill_thread_cpu_s();
  reader->n_running--;
  pthread_cond_broadcast(&reader->changed);
  return NULL;
}

static int start_worker(mill_reader *reader, worker *w)
{
  w->reader = reader;
  w->n_source = reader->plan.inputs->join ? MAX_SOURCE : 1; /* a joined row needs several files */
  for (int k = 0; k < w->n_source; k++)
    w->source[k].i_file = -1;
  MILL_LOCKED(&reader->mutex); /* the thread must not lower n_running before it is raised here */
  w->started = mill_thread_start(&w->thread, worker_main, w) == 0;
  reader->n_running += w->started;
  if (!w->started)
    return MILL_ERROR(MILL_ERR_INTERNAL, "cannot start a reader thread: is the limit on processes "
                                         "(ulimit -u) or on address space (ulimit -v) low?");
  return MILL_OK;
}

int mill_reader_start(const mill_reader_plan *plan, mill_reader **out)
{
  MILL_AT_END(mill_reader_stop_at) mill_reader *reader = NULL;
  *out = NULL;
  if (plan->n_thread < 1 || plan->n_thread > MILL_MAX_READER)
    return MILL_ERROR(MILL_ERR_INTERNAL, "%d reader threads", plan->n_thread);
  MILL_CHECK(MILL_ALLOC(1, &reader));
  reader->plan = *plan;
  pthread_mutex_init(&reader->draw, NULL);
  pthread_mutex_init(&reader->mutex, NULL);
  pthread_cond_init(&reader->changed, NULL);
  MILL_CHECK(MILL_ALLOC(plan->n_thread, &reader->worker));
  reader->n_worker = plan->n_thread;
  for (int i = 0; i < mill_reader_batches(plan->n_thread); i++) {
    MILL_CHECK(MILL_ALLOC(1, &reader->idle[i]));
    reader->n_idle++;
  }
  for (int i = 0; i < reader->n_worker; i++)
    MILL_CHECK(start_worker(reader, &reader->worker[i]));
  return MILL_GIVE(&reader, out);
}

int mill_reader_next(mill_reader *reader, mill_batch **out)
{
  *out = NULL;
  MILL_LOCKED(&reader->mutex);
  while (reader->n_ready == 0 && reader->n_running > 0)
    pthread_cond_wait(&reader->changed, &reader->mutex);
  if (reader->n_ready > 0) {
    *out = reader->ready[0];
    reader->n_ready--;
    memmove(&reader->ready[0], &reader->ready[1], (size_t)reader->n_ready * sizeof *reader->ready);
  } else if (reader->failure.code != MILL_OK) {
    return mill_error_restore(&reader->failure);
  }
  return MILL_OK;
}

void mill_reader_release(mill_reader *reader, mill_batch *batch)
{
  if (!batch)
    return;
  for (int k = 0; k < batch->n_row; k++)
    if (batch->star[k])
      mill_reader_release_star(reader, batch->star[k]);
  batch->n_row = 0;
  MILL_LOCKED(&reader->mutex);
  reader->idle[reader->n_idle++] = batch;
  pthread_cond_broadcast(&reader->changed);
}

void mill_reader_release_star(mill_reader *reader, mill_star *star)
{
  ticket *t = (ticket *)star;
  MILL_LOCKED(&reader->mutex);
  t->next_idle = reader->idle_ticket;
  reader->idle_ticket = t;
}

static void free_batches(mill_batch *const *batch, int n)
{
  for (int i = 0; i < n; i++) {
    for (int64_t p = 0; p < batch[i]->cap_part; p++)
      mill_read_batch_clear(&batch[i]->part[p]);
    MILL_FREE(batch[i]->part, batch[i]);
  }
}

void mill_reader_stop(mill_reader *reader)
{
  if (!reader)
    return;
  mill_cond_end(&reader->changed, &reader->mutex, &reader->stop);
  for (int i = 0; i < reader->n_worker; i++) {
    worker *w = &reader->worker[i];
    if (w->started)
      pthread_join(w->thread, NULL);
    if (reader->plan.cost) {
      reader->plan.cost->n_opened += w->cost.n_opened;
      reader->plan.cost->cpu_s += w->cost.cpu_s;
    }
    MILL_FREE(w->exposure, w->place, w->part_file, w->cursor);
  }
  free_batches(reader->ready, reader->n_ready);
  free_batches(reader->idle, reader->n_idle);
  while (reader->made) {
    ticket *t = reader->made;
    reader->made = t->next_made;
    MILL_FREE(t->star.segment, t);
  }
  pthread_mutex_destroy(&reader->draw);
  pthread_mutex_destroy(&reader->mutex);
  pthread_cond_destroy(&reader->changed);
  MILL_FREE(reader->worker, reader);
}
