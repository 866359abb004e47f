#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/bench/bench_report.h"
#include "jobs/options/job_steps.h"
#include "kernels/base/error.h"
#include "kernels/base/host_copy.h"
#include "src/pipeline/slots.h"

/* The CUDA backend's buffers, one after the other. */
#define BUFFER_BYTES ((size_t)MILL_N_STAGE * MILL_STAGE_BYTES)

enum { N_SLOT = 4096, MAX_PIECE = 64 };

struct mill_device {
  int n_copier;
  char *buffer;
  size_t at; /* in the buffer */
  mill_upload piece[MAX_PIECE];
  int n_piece;
  /* of the run */
  mill_slot *const *slot;
  int n_slot;
  int *done; /* [n_slot] */
  int n_done;
};

static void host_close(mill_device *d)
{
  if (!d)
    return;
  MILL_FREE(d->buffer, d->done, d);
}

static int host_open(int n_thread, mill_device **out)
{
  int err = MILL_OK;
  mill_device *d = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &d));
  MILL_TRY(mill_host_copiers(n_thread, &d->n_copier));
  MILL_TRY(MILL_ALLOC(BUFFER_BYTES, &d->buffer));
  memset(d->buffer, 1,
         BUFFER_BYTES); /* as pinned memory, its pages are there before the first copy */
  *out = d;
  d = NULL;
done:
  host_close(d);
  return err;
}

/* Memory of the stars, which costs nothing since it is never touched. */
static int host_alloc(mill_device *d, size_t bytes, void **out)
{
  (void)d;
  *out = malloc(bytes);
  if (!*out)
    return MILL_ERROR(MILL_ERR_MEMORY, "no memory for %zu bytes", bytes);
  return MILL_OK;
}

static void host_release(mill_device *d, void *memory)
{
  (void)d;
  free(memory);
}

static int host_copy(mill_device *d, void *to, const void *from, size_t bytes)
{
  (void)d;
  if (bytes > 0)
    memcpy(to, from, bytes);
  return MILL_OK;
}

static int host_zero(mill_device *d, void *to, size_t bytes)
{
  (void)d;
  (void)to;
  (void)bytes;
  return MILL_OK;
}

static void copy_pieces(mill_device *d)
{
  mill_host_copy(d->n_copier, d->piece, d->n_piece);
  d->n_piece = 0;
}

static int host_upload_all(mill_device *d, const mill_upload *piece, int n)
{
  for (int i = 0; i < n; i++) {
    const char *from = piece[i].from;
    /* a slot's row is read later; an array that has its size is copied in vain */
    if (piece[i].bytes == MILL_SLOT_COPY_BYTES && from)
      memcpy(piece[i].to, from, piece[i].bytes);
    for (size_t left = piece[i].bytes; left > 0;) {
      if (d->at == BUFFER_BYTES || d->n_piece == MAX_PIECE) {
        copy_pieces(d);
        d->at = d->at == BUFFER_BYTES ? 0 : d->at;
      }
      const size_t room = BUFFER_BYTES - d->at, part = left < room ? left : room;
      d->piece[d->n_piece++] = (mill_upload){d->buffer + d->at, from, part};
      d->at += part;
      from = from ? from + part : NULL;
      left -= part;
    }
  }
  copy_pieces(d);
  return MILL_OK;
}

/* There are no models. */
static int host_download_all(mill_device *d, const mill_upload *piece, int n)
{
  (void)d;
  mill_host_copy(1, piece, n);
  return MILL_OK;
}

static int host_bind(mill_device *d, const mill_model *model, const mill_model *d_model,
                     mill_slot *const *slot, int n_slot)
{
  (void)model;
  (void)d_model;
  if (d->n_slot < n_slot) {
    mill_free(d->done);
    d->done = NULL;
    d->n_slot = 0;
    MILL_CHECK(MILL_ALLOC(n_slot, &d->done));
  }
  d->slot = slot;
  d->n_slot = n_slot;
  return MILL_OK;
}

static int host_start(mill_device *d, const int *index, int n)
{
  (void)d;
  (void)index;
  (void)n;
  return MILL_OK;
}

static int host_advance(mill_device *d, const int *index, int n, int n_want, int max_round)
{
  (void)max_round;
  d->n_done = n_want < n ? n_want : n;
  memcpy(d->done, index, (size_t)d->n_done * sizeof *index);
  return MILL_OK;
}

static int host_collect(mill_device *d, int *index, mill_fit_result *result, int *n_finished)
{
  for (int i = 0; i < d->n_done; i++) {
    index[i] = d->done[i];
    result[i] = d->slot[d->done[i]]->result;
    result[i].status = MILL_STATUS_FITTED;
  }
  *n_finished = d->n_done;
  d->n_done = 0;
  return MILL_OK;
}

static int host_wait(mill_device *d)
{
  (void)d;
  return MILL_OK;
}

/* Stars are copied into buffers as the CUDA backend copies them into its pinned ones, and an eighth
 * of the slots is done whenever the pipeline asks.  Rows are FITTED with nothing in them. */
static const mill_backend no_backend = {
    .name = "none",
    .kind = MILL_BACKEND_NONE,
    .overlaps = 1,
    .default_slot = N_SLOT,
    .open = host_open,
    .close = host_close,
    .alloc = host_alloc,
    .release = host_release,
    .upload = host_copy,
    .upload_all = host_upload_all,
    .zero = host_zero,
    .download = host_copy,
    .download_all = host_download_all,
    .bind = host_bind,
    .start = host_start,
    .advance = host_advance,
    .collect = host_collect,
    .wait = host_wait,
};

/* The quickest of several runs. */
static int run_host(mill_bench *job, int n_reader, int n_repeat, mill_bench_run *best)
{
  char readers[16];
  mill_bench_run run;
  mill_fit_options fit = job->options.fit;
  snprintf(readers, sizeof readers, "%d", n_reader);
  fit.readers = readers;
  for (int r = 0; r < n_repeat; r++) {
    MILL_CHECK(mill_bench_run_fit(job, fit, &no_backend, &run));
    if (r == 0 || run.meters.run_wall_s < best->meters.run_wall_s)
      *best = run;
  }
  return MILL_OK;
}

static void print_line(int n_reader, const mill_bench_run *run)
{
  const mill_fit_meters *c = &run->meters;
  const double n = (double)run->n_taken, us = 1e6 / n;
  const double rest_s = c->main_s - c->load_s - c->put_s;
  printf("| %d | %.0f | %.3f | %.0f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n", n_reader,
         n, c->run_wall_s, n / c->run_wall_s, us * c->main_s, us * c->load_s, us * c->put_s,
         us * rest_s, us * c->load_wall_s, us * c->read_s, us * c->io_s);
}

int mill_bench_task_host(mill_bench *job)
{
  int n_count = 0, n_copier = 0;
  int count[MILL_BENCH_READER_COUNTS];
  mill_bench_run best = {0};
  MILL_CHECK(mill_bench_reader_counts(job, count, &n_count));
  MILL_CHECK(run_host(job, count[n_count - 1], 1, &best)); /* into the page cache */
  MILL_CHECK(mill_host_copiers(best.meters.n_thread, &n_copier));
  mill_bench_print_head(job, NULL);
  printf("Nothing is fitted: %d %s stars into buffers, as for a GPU, and every row is done at "
         "once.\nTimes of the main thread, the readers and the writer are of CPUs; copies by the "
         "clock are those that the main thread waits for, whichever thread makes them.\n\n",
         n_copier, n_copier == 1 ? "thread copies" : "threads copy");
  printf("| reader threads | stars | s | stars/s | main thread, us a star | of it stars to the "
         "device | rows back | rest | copies by the clock, us a star | readers, us a star | "
         "writer, us a star |\n"
         "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
  for (int i = 0; i < n_count; i++) {
    MILL_CHECK(run_host(job, count[i], job->options.n_repeat, &best));
    print_line(count[i], &best);
    MILL_CHECK(mill_job_flush("the table"));
  }
  return MILL_OK;
}
