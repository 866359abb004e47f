/* SPDX-License-Identifier: BSD-3-Clause */
/** Stars made from a small made-up library, and their fits by a backend.
 *
 *  A backend's test program defines CONFORMANCE_STARS, and sets `tested` after survey_make. */
#pragma once

#include "tests/fit/made_star.h"
#include "tests/mill_test.h"

enum { N_STAR = CONFORMANCE_STARS, N_LABEL = 4, N_ARM = 3, N_PAR = N_LABEL + 2, SEED = 20 };
enum { N_DIAG = 11, MAX_PIX = 140, MAX_SEGMENT = 4 };

/* Pixels per arm: a multiple of a CPU's chunk, of a warp and of a block of threads, or 1 more. */
static const int n_pix_arm[N_ARM] = {97, 128, 129};

/* Tests fit the stars 0 ... n_fit - 1. */
static int n_fit = N_STAR;

static const mill_backend *tested;

static struct survey {
  mill_library lib;
  mill_fit_settings set;
  double truth[N_STAR][N_PAR];
  made_star made[N_STAR];
  mill_star star[N_STAR];
  made_run run;
  mill_fit_result result[N_STAR];
  float model[N_STAR][MADE_MAX_SEG][MADE_MAX_PIX];
} data;

/** Spoil stars: bad pixels, no good pixel in arm or star, no resolution matrix, negative flux. */
static inline void spoil(made_star *star)
{
  made_segment *bad = star[3].segment;
  bad[0].mask[0] = bad[0].mask[20] = bad[0].mask[21] = 1;
  bad[1].ivar[5] = 0.0f;
  bad[1].ivar[6] = -1.0f;
  bad[1].flux[7] = NAN;
  bad[2].ivar[8] = INFINITY;
  for (int i = 0; i < MAX_PIX; i++) {
    star[4].segment[1].mask[i] = 2;
    for (int a = 0; a < N_ARM; a++)
      star[5].segment[a].ivar[i] = 0.0f;
    star[8].segment[0].flux[i] *= -1.0f;
  }
  star[6].n_segment = 1;
  star[7].segment[0].n_diag = 0;
  star[9].segment[2].flux[60] = 1e9f;
}

static inline MILL_FIXTURE(survey_make)
{
  uint64_t random = SEED;
  memset(&data, 0, sizeof data);
  n_fit = N_STAR;
  printf("seed %d\n", SEED);
  assert_ok(test_library_make(N_LABEL, N_ARM, SEED, &data.lib));
  made_settings(&data.lib, &data.set);
  data.set.min_vel_km_s = -400.0;
  data.set.max_vel_km_s = 400.0;
  data.set.max_vsini_km_s = 150.0;
  for (int i = 0; i < N_STAR; i++) {
    made_star *star = &data.made[i];
    made_theta(&data.lib, 0.75, 200, 0, &random, data.truth[i]);
    star->n_segment = i % 5 == 2 ? MAX_SEGMENT : N_ARM; /* a second exposure for some */
    for (int k = 0; k < star->n_segment; k++) {
      made_segment *s = &star->segment[k];
      const mill_arm *arm = &data.lib.arm[k % N_ARM];
      const double first = arm->wave_aa[0] * 1.003, last = arm->wave_aa[arm->n_pix - 1] * 0.997;
      const int n = s->n_pix = n_pix_arm[k % N_ARM];
      s->arm = k % N_ARM;
      s->exposure = k / N_ARM;
      s->n_diag = N_DIAG;
      for (int p = 0; p < n; p++)
        s->wave_aa[p] = first + (last - first) * p / (n - 1);
      /* Resolution matrix of Gaussians, sigma 0.9 pixels; diagonal d has offset N_DIAG / 2 - d */
      for (int d = 0; d < N_DIAG; d++)
        for (int p = 0; p < n; p++) {
          const double off = (N_DIAG / 2 - d) / 0.9;
          s->res[d * n + p] = (float)(exp(-0.5 * off * off) / (0.9 * sqrt(6.283185307179586)));
        }
      made_resolution_rows(&data.lib, s);
    }
    made_star_fill(&data.lib, data.truth[i], 8.0 + 3.0 * i, 1, &random, star);
  }
  spoil(data.made);
  return 0;
}

static inline MILL_FIXTURE(clean_up)
{
  mill_library_clear(&data.lib);
  return 0;
}

static inline mill_pipeline *pipeline(const mill_backend *backend, int n_slot)
{
  mill_pipeline *p = NULL;
  assert_ok(mill_pipeline_create(&data.lib, 1, &data.set, backend, n_slot, 1, 1, &p));
  for (int i = 0; i < N_STAR; i++)
    made_star_raw(i, &data.made[i], &data.star[i]);
  data.made[7].raw[1].mask = NULL;
  data.star[1].prior_mean[MILL_PAR_VRAD] = data.truth[1][MILL_PAR_VRAD] + 5.0; /* its own */
  data.star[1].prior_sigma[MILL_PAR_VRAD] = 2.0;
  return p;
}

/** Fit the first n_fit stars; rows go to data.result, models to data.model. */
static inline int run_stars(mill_pipeline *p)
{
  memset(data.result, 0, sizeof data.result);
  memset(data.model, 0, sizeof data.model);
  data.run =
      (made_run){.star = data.star, .n = n_fit, .result = data.result, .model = data.model[0][0]};
  return mill_pipeline_run(p, made_source, &data.run, made_sink, &data.run);
}

static inline void fit(const mill_backend *backend, int n_slot)
{
  mill_pipeline *p = pipeline(backend, n_slot);
  assert_ok(run_stars(p));
  mill_pipeline_destroy(p);
  assert_int_equal(data.run.n_out, n_fit);
  for (int i = 0; i < n_fit; i++)
    assert_int_not_equal(data.result[i].status, MILL_STATUS_NOT_DONE);
}

typedef struct fitted {
  mill_fit_result result[N_STAR];
  float model[N_STAR][MADE_MAX_SEG][MADE_MAX_PIX];
} fitted;

/** Fit with n_slot slots; the rows and models must be the expected ones, bit for bit. */
static inline void expect(const fitted *expected, int n_slot)
{
  fit(tested, n_slot);
  assert_memory_equal(data.result, expected->result, (size_t)n_fit * sizeof *expected->result);
  assert_memory_equal(data.model, expected->model, (size_t)n_fit * sizeof *expected->model);
}

static inline void keep(fitted *to)
{
  memcpy(to->result, data.result, sizeof to->result);
  memcpy(to->model, data.model, sizeof to->model);
}

static fitted by_batch; /**< of all stars at a time, in float32 */
