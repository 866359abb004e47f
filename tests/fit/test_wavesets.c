/* SPDX-License-Identifier: BSD-3-Clause */
/* Stars may have any number of wavelength sets.  A star's row has the same bits with any other
 * stars in the batch and with any size of the cache, whose memory is bounded. */
#include "tests/mill_test.h"

enum { SEED = 1964, N_STAR = 36, N_SHARED = 12, N_LABEL = 3, N_ARM = 3 };

#include "tests/fit/made_survey.h"

static made_star star[N_STAR];
static mill_fit_result result[2][N_STAR];

/** Every third star has the wavelengths of star 0, the others grids of their own with 70 to 450
 *  pixels.  Stars have a matrix, a sigma or neither, in turn. */
static int make_stars(void **state)
{
  uint64_t random = SEED;
  set_up(state);
  set.optimizer = MILL_OPT_LM;
  for (int i = 0; i < N_STAR; i++) {
    double theta[MILL_MAX_PAR];
    const int shared = i % 3 == 0;
    uint64_t fixed = SEED;
    made_star_init(&lib, shared ? 1 : 1 + i % 2, shared ? 0.8 : 0.45 + 0.01 * i, i % 3 < 2,
                   shared ? &fixed : &random, &star[i]);
    for (int k = 0; k < star[i].n_segment && i % 3 == 2; k++) {
      made_segment *s = &star[i].segment[k];
      s->with_sigma = 1;
      s->n_pix /= i % 2 ? 1 : 3; /* others need more of the templates that these store */
      for (int p = 0; p < s->n_pix; p++)
        s->sigma_aa[p] = (float)(0.8 + 0.001 * p);
    }
    made_theta(&lib, 0.5, 200, 60, &random, theta);
    made_star_fill(&lib, theta, 20, 1, &random, &star[i]);
  }
  return 0;
}

/** A source that watches the sets. */
typedef struct lazy_run {
  made_run of; /**< context of made_source and made_sink */
  mill_pipeline *pipeline;
  mill_star raw[N_STAR];
  mill_waveset_stats most; /**< largest of every number seen */
} lazy_run;

static int lazy_source(void *context, mill_star **out)
{
  lazy_run *run = context;
  mill_waveset_stats now;
  if (!made_source(&run->of, out))
    return 0;
  const int i = (int)(*out - run->raw);
  mill_pipeline_waveset_stats(run->pipeline, &now);
  run->most.n_set = now.n_set > run->most.n_set ? now.n_set : run->most.n_set;
  run->most.n_held = now.n_held > run->most.n_held ? now.n_held : run->most.n_held;
  run->most.bytes = now.bytes > run->most.bytes ? now.bytes : run->most.bytes;
  made_star_raw(i, &star[i], *out);
  for (int k = 0; k < (*out)->n_segment; k++)
    assert_ok(mill_pipeline_accepts(run->pipeline, &(*out)->segment[k]));
  return 1;
}

/** Fit n stars in an order, with a cache of `limit` bytes; return the cache's counts at the end. */
static mill_waveset_stats run_stars(int n_slot, int n_thread, size_t limit, int n, const int *order,
                                    mill_fit_result *out, lazy_run *run)
{
  mill_waveset_stats end;
  *run = (lazy_run){.of = {.star = run->raw, .order = order, .n = n, .result = out}};
  assert_ok(mill_pipeline_create(&lib, 1, &set, mill_backend_cpu(NULL), n_slot, n_thread, 0,
                                 &run->pipeline));
  mill_waveset_cache_limit(run->pipeline->member[0].waveset, limit);
  assert_ok(mill_pipeline_run(run->pipeline, lazy_source, run, made_sink, run));
  mill_pipeline_waveset_stats(run->pipeline, &end);
  mill_pipeline_destroy(run->pipeline);
  assert_int_equal(run->of.n_out, n);
  return end;
}

static void assert_same(int n, const int *index)
{
  for (int q = 0; q < n; q++) {
    const int i = index ? index[q] : q;
    if (memcmp(&result[0][i], &result[1][i], sizeof result[0][i]) != 0)
      fail_msg("star %d differs: -2 ln L %.17g and %.17g", i, result[0][i].m2ll, result[1][i].m2ll);
  }
}

MILL_TEST(bits_do_not_depend_on_the_batch_or_on_eviction)
{
  lazy_run run;
  int mixed[N_STAR];
  for (int i = 0; i < N_STAR; i++)
    mixed[i] = i * 7 % N_STAR;
  const mill_waveset_stats all =
      run_stars(8, 1, MILL_WAVESET_CACHE_BYTES, N_STAR, NULL, result[0], &run);
  assert_int_equal(all.n_evicted, 0);
  assert_int_equal(all.n_held, 0);
  assert_int_equal(all.n_set, all.n_made);
  for (int i = 0; i < N_STAR; i++)
    assert_int_equal(result[0][i].status, MILL_STATUS_FITTED);
  /* no cache: every star makes its sets, and a shared set is made again once no slot holds it */
  const mill_waveset_stats none = run_stars(8, 2, 0, N_STAR, mixed, result[1], &run);
  assert_same(N_STAR, NULL);
  assert_int_equal(none.n_set, 0);
  assert_int_equal(none.bytes, 0);
  assert_int_equal(none.n_evicted, none.n_made);
  assert_true(none.n_made >= all.n_made);
  assert_int_equal(run.most.n_set, run.most.n_held);
  /* one slot: when a star begins, at most the star before it has sets */
  run_stars(1, 1, 0, N_STAR, NULL, result[1], &run);
  assert_same(N_STAR, NULL);
  assert_true(run.most.n_held <= MADE_MAX_SEG);
  /* a part of the sets fits */
  const mill_waveset_stats part = run_stars(3, 1, all.bytes / 3, N_STAR, mixed, result[1], &run);
  assert_same(N_STAR, NULL);
  assert_true(part.n_evicted > 0 && part.n_set > 0);
  assert_true(part.bytes <= all.bytes / 3 && run.most.bytes <= all.bytes / 3);
  memset(result[1], 0, sizeof result[1]);
  for (int i = 0; i < N_STAR; i += 5) {
    run_stars(1, 1, 0, 1, &i, result[1], &run);
    assert_same(1, &i);
  }
}

MILL_TEST(shared_wavelengths_are_made_once)
{
  lazy_run run;
  int shared[N_SHARED];
  for (int i = 0; i < N_SHARED; i++)
    shared[i] = 3 * i;
  assert_int_equal(
      run_stars(2, 1, MILL_WAVESET_CACHE_BYTES, N_SHARED, shared, result[1], &run).n_made,
      lib.n_arm);
}

static int is_full;

static int alloc_unless_full(mill_device *device, size_t bytes, void **out)
{
  return is_full ? MILL_ERROR(MILL_ERR_MEMORY, "full")
                 : mill_backend_cpu(NULL)->alloc(device, bytes, out);
}

/** Memory is full before the third star. */
static int filling_source(void *context, mill_star **out)
{
  is_full = ((made_run *)context)->next == 2;
  return made_source(context, out);
}

/** The third star equals the second.  Slot 0 is free first, but has too little memory.  So the
 *  third star waits for slot 1, where the fits with both libraries must begin again. */
MILL_TEST(a_star_in_another_slot_has_the_same_row)
{
  static made_star dark;
  mill_backend backend = *mill_backend_cpu(NULL);
  MILL_AT_END(mill_pipeline_destroy_at) mill_pipeline *pipeline = NULL;
  const mill_library two[2] = {lib, lib};
  mill_star raw[3];
  made_run run = {.star = raw, .n = 3, .result = result[0]};
  dark = star[0];
  for (int i = 0; i < dark.n_segment; i++)
    memset(dark.segment[i].ivar, 0, sizeof dark.segment[i].ivar);
  for (int i = 0; i < 3; i++)
    made_star_raw(i, i == 0 ? &dark : &star[1], &raw[i]);
  backend.alloc = alloc_unless_full;
  assert_ok(mill_pipeline_create(two, 2, &set, &backend, 2, 1, 0, &pipeline));
  assert_ok(mill_pipeline_run(pipeline, filling_source, &run, made_sink, &run));
  assert_int_equal(pipeline->all.n_usable, 1); /* one of two slots: memory was full */
  assert_int_equal(result[0][1].status, MILL_STATUS_FITTED);
  result[0][2].row = 1;
  assert_memory_equal(&result[0][1], &result[0][2], sizeof result[0][1]);
  /* the pipeline refuses a star whose last pixel is a millionth beyond the templates' reach */
  const double beta = set.min_vel_km_s / MILL_C_KM_S, doppler = sqrt((1 + beta) / (1 - beta));
  double *last = &star[1].segment[0].wave_aa[raw[1].segment[0].n_pix - 1];
  *last = lib.arm[0].wave_aa[lib.arm[0].n_pix - 1] * doppler * (1 - 1e-6);
  assert_ok(mill_pipeline_accepts(pipeline, &raw[1].segment[0]));
  *last *= 1 + 2e-6;
  assert_int_equal(mill_pipeline_accepts(pipeline, &raw[1].segment[0]), MILL_ERR_RANGE);
}

/** The third star has more segments than memory holds: its row says so, the fourth is fitted. */
MILL_TEST(a_star_larger_than_memory_costs_its_row)
{
  mill_backend backend = *mill_backend_cpu(NULL);
  MILL_AT_END(mill_pipeline_destroy_at) mill_pipeline *pipeline = NULL;
  mill_star raw[4];
  made_run run = {.star = raw, .n = 4, .result = result[0]};
  for (int i = 0; i < 4; i++) {
    made_star_raw(i, &star[0], &raw[i]);
    raw[i].n_segment = i == 2 ? raw[i].n_segment : 2;
    raw[i].n_exposure = 2;
  }
  backend.alloc = alloc_unless_full;
  assert_ok(mill_pipeline_create(&lib, 1, &set, &backend, 2, 2, 0, &pipeline));
  assert_ok(mill_pipeline_run(pipeline, filling_source, &run, made_sink, &run));
  for (int i = 0; i < 4; i++)
    assert_int_equal(result[0][i].status, i == 2 ? MILL_STATUS_FIT_FAILED : MILL_STATUS_FITTED);
}

MILL_SEEDED_TEST_MAIN(SEED, make_stars, tear_down)
