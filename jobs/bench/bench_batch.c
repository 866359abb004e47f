#include "jobs/bench/bench_batch.h"

#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/clock.h"
#include "src/system/stop_signal.h"

/* ---- stars ---- */

/* The stars of one file that is open: those of the first n_row rows of its index. */
static int take_file(mill_spectra *spectra, const mill_file_index *index, int n_row,
                     mill_bench_stars *stars)
{
  int err = MILL_OK;
  int n_exposure = 0, i = 0;
  int64_t *exposure = NULL;
  mill_read_batch *batch;
  for (int r = 0; r < n_row; r++)
    n_exposure += index->row[r].n_exposure;
  MILL_TRY(MILL_ALLOC(n_exposure, &exposure));
  for (int r = 0, n = 0; r < n_row; r++)
    for (int e = 0; e < index->row[r].n_exposure; e++)
      exposure[n++] = index->exposure_row[index->row[r].first_exposure + e];
  MILL_TRY(MILL_GROW(&stars->part, &stars->part_room, stars->n_part + 1));
  batch = &stars->part[stars->n_part++];
  memset(batch, 0, sizeof *batch);
  MILL_TRY(mill_spectra_read(spectra, exposure, n_exposure, batch));
  MILL_TRY(MILL_GROW(&stars->wave, &stars->wave_room, stars->n_wave + batch->n_wave));
  for (int w = 0; w < batch->n_wave; w++)
    stars->wave[stars->n_wave + w] = (struct mill_bench_wave){.arm = batch->wave[w].arm,
                                                              .n_pix = batch->wave[w].n_pix,
                                                              .wave_aa = batch->wave[w].wave_aa};
  MILL_TRY(MILL_GROW(&stars->segment, &stars->segment_room, stars->n_segment + batch->n_segment));
  MILL_TRY(MILL_GROW(&stars->star, &stars->star_room, stars->n_star + n_row));
  for (int r = 0, end = 0; r < n_row; r++) {
    mill_star *star = &stars->star[stars->n_star];
    const int first = end;
    end += index->row[r].n_exposure;
    *star = (mill_star){.row = stars->n_star};
    for (; i < batch->n_segment && batch->segment[i].exposure < end; i++) {
      const mill_read_segment *s = &batch->segment[i];
      if (s->use != MILL_SEGMENT_FIT)
        continue;
      stars->segment[stars->n_segment + star->n_segment++] =
          mill_read_segment_raw(s, stars->n_wave + s->wave, s->exposure - first);
    }
    stars->n_star += star->n_segment > 0;
    stars->n_segment += star->n_segment;
  }
  stars->n_wave += batch->n_wave;
done:
  mill_free(exposure);
  return err;
}

int mill_bench_stars_read(const mill_spectra_settings *settings, int n_file,
                          const char *const *path, int n_star, mill_bench_stars *stars)
{
  int err = MILL_OK;
  mill_spectra *spectra = NULL;
  mill_file_index index;
  memset(&index, 0, sizeof index);
  memset(stars, 0, sizeof *stars);
  stars->is_desi = 1;
  for (int f = 0; f < n_file && stars->n_star < n_star; f++) {
    MILL_TRY(mill_spectra_open(path[f], settings, &spectra));
    MILL_TRY(mill_spectra_index(spectra, &settings->config->select, &index));
    stars->is_desi &= strcmp(mill_spectra_format_name(spectra), "desi") == 0;
    const int64_t missing = n_star - stars->n_star;
    if (index.n_row > 0)
      MILL_TRY(
          take_file(spectra, &index, (int)(index.n_row < missing ? index.n_row : missing), stars));
    mill_file_index_clear(&index);
    mill_spectra_close(spectra);
    spectra = NULL;
  }
  if (stars->n_star == 0)
    MILL_FAIL(MILL_ERR_USAGE, "the inputs have no star that can be fitted with this library");
  /* the array of segments has moved while it grew */
  for (int i = 0, at = 0; i < stars->n_star; at += stars->star[i++].n_segment)
    stars->star[i].segment = stars->segment + at;
done:
  mill_file_index_clear(&index);
  mill_spectra_close(spectra);
  return err;
}

void mill_bench_stars_clear(mill_bench_stars *stars)
{
  for (int i = 0; i < stars->n_part; i++)
    mill_read_batch_clear(&stars->part[i]);
  MILL_FREE(stars->part, stars->wave, stars->segment, stars->star);
  memset(stars, 0, sizeof *stars);
}

/* ---- a batch ---- */

typedef struct batch_run {
  const mill_bench_plan *plan;
  const mill_bench_stars *stars;
  mill_bench_batch *out;
  mill_raw_segment *segment; /* as in stars, with the ids of this pipeline */
  mill_fit_result *first;    /* [n_star] of each star's first row; status NOT_DONE: none yet */
  int64_t n_taken;
} batch_run;

static int next_star(void *context, mill_star *star)
{
  batch_run *run = context;
  const mill_bench_stars *stars = run->stars;
  if (run->n_taken == run->out->n_star || mill_stop_signal_seen())
    return 0;
  *star = stars->star[run->n_taken % stars->n_star];
  star->segment = run->segment + (star->segment - stars->segment);
  star->row = run->n_taken++;
  return 1;
}

/* The same star in another slot, among other neighbours, has the same bits. */
static int differs(const mill_fit_result *a, const mill_fit_result *b)
{
  return a->status != b->status || a->n_eval != b->n_eval || a->n_jac != b->n_jac ||
         a->warn != b->warn || memcmp(&a->m2ll, &b->m2ll, sizeof a->m2ll) != 0 ||
         memcmp(&a->vrad_km_s, &b->vrad_km_s, sizeof a->vrad_km_s) != 0 ||
         memcmp(a->label, b->label, sizeof a->label) != 0 ||
         memcmp(a->covar, b->covar, sizeof a->covar) != 0;
}

static int take_row(void *context, const mill_fit_result *result, const float *const *model)
{
  batch_run *run = context;
  mill_bench_batch *out = run->out;
  mill_fit_result *first = &run->first[result->row % run->stars->n_star];
  (void)model;
  if (run->plan->result)
    run->plan->result[result->row] = *result;
  out->n_fitted += result->status == MILL_STATUS_FITTED;
  out->n_eval += result->n_eval;
  out->n_jac += result->n_jac;
  if (first->status == MILL_STATUS_NOT_DONE) {
    *first = *result;
    mill_bench_shape_add_result(&out->shape, run->plan->lib, run->plan->set, result);
  } else
    out->n_differ += differs(first, result);
  return MILL_OK;
}

/* The sets of wavelengths, held until the end, and the segments that use them. */
static int hold_wavesets(batch_run *run, mill_pipeline *pipeline, int *id, int *n_held)
{
  const mill_bench_stars *stars = run->stars;
  for (; *n_held < stars->n_wave; ++*n_held) {
    const struct mill_bench_wave *w = &stars->wave[*n_held];
    MILL_CHECK(mill_pipeline_waveset(pipeline, w->arm, w->n_pix, w->wave_aa, &id[*n_held]));
  }
  for (int i = 0; i < stars->n_star; i++)
    for (int k = 0; k < stars->star[i].n_segment; k++) {
      const ptrdiff_t at = stars->star[i].segment + k - stars->segment;
      run->segment[at] = stars->segment[at];
      run->segment[at].waveset = id[stars->segment[at].waveset];
    }
  return MILL_OK;
}

/* Each distinct star once. */
static int add_shapes(const batch_run *run)
{
  int err = MILL_OK;
  const mill_bench_stars *stars = run->stars;
  const double **wave_aa = NULL;
  const int64_t n = run->out->n_star < stars->n_star ? run->out->n_star : stars->n_star;
  MILL_TRY(mill_alloc_bytes((size_t)stars->n_segment, sizeof *wave_aa, (void **)&wave_aa));
  for (int i = 0; i < stars->n_segment; i++)
    wave_aa[i] = stars->wave[stars->segment[i].waveset].wave_aa;
  for (int64_t i = 0; i < n; i++)
    mill_bench_shape_add(&run->out->shape, run->plan->lib, run->plan->set, &stars->star[i],
                         wave_aa + (stars->star[i].segment - stars->segment));
done:
  mill_free((void *)wave_aa);
  return err;
}

int mill_bench_batch_run(const mill_bench_plan *plan, const mill_bench_stars *stars, int64_t n_star,
                         mill_bench_batch *out)
{
  int err = MILL_OK;
  mill_pipeline *pipeline = NULL;
  int *id = NULL, n_held = 0;
  batch_run run = {.plan = plan, .stars = stars, .out = out};
  memset(out, 0, sizeof *out);
  out->n_star = n_star;
  MILL_TRY(MILL_ALLOC(stars->n_segment, &run.segment));
  MILL_TRY(MILL_ALLOC(stars->n_star, &run.first));
  MILL_TRY(MILL_ALLOC(stars->n_wave, &id));
  MILL_TRY(add_shapes(&run));
  const double start_s = mill_wall_s();
  MILL_TRY(mill_pipeline_create(plan->lib, plan->set, plan->backend, plan->n_slot, plan->n_thread,
                                0, &pipeline));
  MILL_TRY(hold_wavesets(&run, pipeline, id, &n_held));
  out->open_s = mill_wall_s() - start_s;
  MILL_TRY(mill_pipeline_run(pipeline, next_star, &run, take_row, &run));
  out->run_s = mill_wall_s() - start_s - out->open_s;
  out->load_s = mill_pipeline_load_s(pipeline);
  out->n_slot = mill_pipeline_slots(pipeline);
  mill_pipeline_timing(pipeline, &out->timing);
  if (mill_stop_signal_seen())
    MILL_FAIL(MILL_ERR_STOPPED, "signal %d: stopped; nothing is kept", mill_stop_signal_seen());
done:
  for (int i = 0; i < n_held; i++)
    mill_pipeline_waveset_release(pipeline, id[i]);
  mill_pipeline_destroy(pipeline);
  MILL_FREE(id, run.first, run.segment);
  return err;
}

double mill_bench_batch_floor_s(const mill_bench_plan *plan, const mill_bench_batch *batch,
                                const mill_bench_rates *rates, int *by_traffic)
{
  mill_bench_work work[MILL_BENCH_N_STAGE], all;
  mill_timing timing = batch->timing;
  const double repeats = (double)batch->n_star / (double)batch->shape.n_star;
  int64_t n_counted = 0;
  for (int p = 0; p < MILL_N_PHASE; p++)
    n_counted += timing.n_value[p] + timing.n_jacobian[p];
  if (n_counted == 0) { /* a backend that does not count: as the rows have it */
    timing.n_value[MILL_PHASE_POLISH] = batch->n_eval - batch->n_jac;
    timing.n_jacobian[MILL_PHASE_POLISH] = batch->n_jac;
  }
  for (int p = 0; p < MILL_N_PHASE; p++) {
    timing.n_value[p] = (int64_t)((double)timing.n_value[p] / repeats);
    timing.n_jacobian[p] = (int64_t)((double)timing.n_jacobian[p] / repeats);
  }
  timing.n_velocity = (int64_t)((double)timing.n_velocity / repeats);
  mill_bench_floor_count(plan->lib, plan->set, &batch->shape, &timing, plan->n_slot, 0,
                         rates->l2_bytes, work);
  memset(&all, 0, sizeof all);
  for (int s = MILL_BENCH_PREPARE; s <= MILL_BENCH_FINAL; s++) {
    all.f32 += work[s].f32;
    all.f64 += work[s].f64;
    all.bytes_memory += work[s].bytes_memory;
    all.bytes_cache += work[s].bytes_cache;
  }
  return mill_bench_floor_s(&all, rates, by_traffic) / (double)batch->shape.n_star;
}
