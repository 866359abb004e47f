/* SPDX-License-Identifier: BSD-3-Clause */
/** Tests that every backend must pass, on stars that reach every branch of the code.  Results may
 *  differ from those of the CPU's best backend only by the order of sums. */
#pragma once

#include "tests/fit/made_star.h"

enum { WORK_STARS = 3, WORK_PAR = 5, WORK_SEED = 88, WORK_SHIFT = 30 /* km/s */ };

static const double work_sn[WORK_STARS] = {40, 100, 5};

/** Everything that one workload gives. */
typedef struct work_output {
  mill_fit_result result[WORK_STARS];
  float model[WORK_STARS * MADE_MAX_SEG * MADE_MAX_PIX];
  mill_epoch_result epoch[WORK_STARS][MADE_MAX_SEG];
  mill_evaluation eval[4]; /**< value, Jacobian, final, value at a very wide kernel */
  mill_evaluation thin;    /**< Jacobian of a star with too few pixels: infinite */
} work_output;

typedef struct work_input {
  mill_library lib;
  made_star star[WORK_STARS], thin;
  double truth[WORK_STARS][WORK_PAR + 1]; /**< with the velocity offset of the second arm */
  int velocity_offsets;
} work_input;

/** Make a library with emulators of a kind, and stars that reach every branch.  Star 0 has a
 *  resolution matrix with defects.  Star 1 has two exposures, one with a sigma per pixel.  Star 2
 *  has low S/N, and a first arm with a median of zero.  in->thin: an arm with three good pixels. */
static inline void work_make(work_input *in, int kind)
{
  uint64_t random = WORK_SEED;
  memset(in, 0, sizeof *in);
  assert_ok(test_library_make(3, 2, 9, &in->lib));
  assert_ok(test_library_to(&in->lib, kind));
  strcpy(in->lib.label[2].column, "MGFE");
  if (kind != MILL_EMULATOR_GRID) /* the library of grids is the one without model error */
    assert_ok(test_library_add_error(kind == MILL_EMULATOR_MLP ? 9 : 3, &in->lib));
  if (kind == MILL_EMULATOR_RBF)
    assert_ok(test_library_add_sky(&in->lib));
  in->velocity_offsets = kind == MILL_EMULATOR_RBF;
  for (int i = 0; i < WORK_STARS; i++) {
    made_star_cut(&in->lib, 1 + (i == 1), i == 1 ? 0.45 : 0.8, i != 1, 4, &random, &in->star[i]);
    made_theta(&in->lib, 0.5, 40, 60, &random, in->truth[i]);
    in->truth[i][WORK_PAR] = 6.5;
    made_star_fill(&in->lib, in->truth[i], work_sn[i], 1, &random, &in->star[i]);
  }
  /* The second exposure gets another velocity, so that the search for its velocity goes far from
   * the velocity of the joint fit. */
  static made_star moved;
  moved = in->star[1];
  in->truth[1][MILL_PAR_VRAD] += WORK_SHIFT;
  made_star_fill(&in->lib, in->truth[1], work_sn[1], 1, &random, &moved);
  in->truth[1][MILL_PAR_VRAD] -= WORK_SHIFT;
  for (int k = 0; k < moved.n_segment; k++)
    if (moved.segment[k].exposure == 1)
      in->star[1].segment[k] = moved.segment[k];
  made_segment *s = in->star[0].segment;
  s[0].mask[20] = s[0].mask[21] = 8;
  s[0].flux[22] = NAN;
  for (int k = 0; k < MADE_N_DIAG; k++) /* a column that the coadd left out */
    s[0].res[k * s[0].n_pix + 20] = 0;
  for (int p = 0; p < s[1].n_pix; p++) /* pixels from 0.76 to 0.84 A */
    s[1].wave_aa[p] += 2e-4 * p * (p - s[1].n_pix);
  s[1].ivar[50] = 0;
  in->star[1].segment[1].ivar[30] = 1e4f;
  for (int k = 0; k < in->star[1].n_segment; k += 2) {
    /* a line-spread sigma per pixel in some segments, narrower and wider than the templates' */
    made_segment *m = &in->star[1].segment[k];
    m->with_sigma = 1;
    m->width_error = 0.05;
    for (int p = 0; p < m->n_pix; p++)
      m->sigma_aa[p] = p % 17 == 0 ? 0.0f : (float)(0.4 + 0.6 * p / m->n_pix);
  }
  made_segment *dark = &in->star[2].segment[0];
  for (int p = 0; p < dark->n_pix; p++) {
    /* mask positive fluxes: the flux scale is then the median absolute flux */
    dark->flux[p] *= p % 10 < 4 ? 0.0f : (p % 2 ? -1.0f : 1.0f);
    dark->mask[p] = dark->flux[p] > 0;
  }
  /* a normal matrix that is finite but not positive definite */
  in->thin = in->star[1];
  in->thin.n_segment = 1; /* no later segment, whose barriers would hide a missing one */
  made_segment *thin = &in->thin.segment[0];
  for (int p = 0; p < thin->n_pix; p++) {
    const int is_good = p % (thin->n_pix / 3 + 1) == 9;
    thin->ivar[p] = is_good ? 1e16f : 0.0f;
    thin->flux[p] *= is_good ? 1.0f : 1e10f; /* the sigma of bad pixels grows with flux */
  }
}

/** Fit the stars with models.  Then ask each kind of question for star 0, and one for in->thin. */
static inline void work_run(const mill_backend *backend, work_input *in, int precision,
                            work_output *out)
{
  mill_fit_settings set;
  MILL_AT_END(mill_pipeline_destroy_at) mill_pipeline *pipeline = NULL;
  mill_star raw;
  mill_fit_result prepared;
  memset(out, 0, sizeof *out);
  made_settings(&in->lib, &set);
  set.precision = precision;
  set.optimizer = MILL_OPT_LM;
  set.min_vel_km_s = -60;
  set.max_vel_km_s = 60;
  set.guess_vel_step_km_s = 15;
  set.velocity_offsets = in->velocity_offsets;
  set.velocity_offset_sigma_km_s = 15;
  set.epochs = MILL_EPOCHS_EXPOSURE;
  set.prior_sigma[MILL_PAR_VRAD] = 10; /* about 0 */
  made_fit_epochs(&in->lib, &set, backend, 2, 1, WORK_STARS, in->star, NULL, out->result,
                  out->model, out->epoch[0]);
  assert_ok(mill_pipeline_create(&in->lib, 1, &set, backend, 1, 1, 1, &pipeline));
  made_star_raw(0, &in->star[0], &raw);
  static const int request[4] = {MILL_REQ_VALUES, MILL_REQ_TANGENTS, MILL_REQ_MODELS,
                                 MILL_REQ_VALUES};
  for (int i = 0; i < 4; i++) {
    double theta[WORK_PAR + 1];
    memcpy(theta, in->truth[0], sizeof theta);
    if (i == 3)
      theta[1] = 6000; /* the kernel is wider than the grid: convolve's other branch */
    made_ask(pipeline, &raw, request[i], 1, theta, &out->eval[i], &prepared);
  }
  made_star_raw(0, &in->thin, &raw);
  made_ask(pipeline, &raw, MILL_REQ_TANGENTS, 1, in->truth[1], &out->thin, &prepared);
}

static inline void work_compare_eval(const work_input *in, const mill_evaluation *a,
                                     const mill_evaluation *b, double tolerance)
{
  const int np = WORK_PAR + in->velocity_offsets;
  assert_close(a->f, b->f, tolerance * 10 + tolerance * fabs(b->f));
  for (int j = 0; j < np; j++) {
    const double unit = sqrt(b->hess[j * np + j]) + 1e-300;
    assert_close(a->grad[j] / unit, b->grad[j] / unit,
                 tolerance * 100 * (1 + fabs(b->grad[j]) / unit));
    for (int k = 0; k < np; k++) {
      const double size = sqrt(b->hess[j * np + j] * b->hess[k * np + k]);
      assert_close(a->hess[j * np + k], b->hess[j * np + k], tolerance * 100 * size);
    }
  }
  for (int i = 0; i < in->lib.n_arm; i++) {
    assert_close(a->chisq[i], b->chisq[i], 10 * tolerance * (1 + b->chisq[i]));
    assert_close(a->chisq_c[i], b->chisq_c[i], 10 * tolerance * (1 + b->chisq_c[i]));
  }
  assert_close(a->negative, b->negative, 10 * tolerance * (1 + b->negative));
}

static inline void work_compare(const work_input *in, const work_output *a, const work_output *b,
                                double tolerance)
{
  assert_true(isinf(a->thin.f) && isinf(b->thin.f));
  /* A fixed model error is stored as float32 weights and rows (model_error.h).  Backends round them
   * differently, by up to 6e-8 in each of some hundred pixels; these differences mostly cancel. */
  if (in->lib.arm[0].error.fraction && tolerance < 1e-9)
    tolerance = 1e-9;
  for (int i = 0; i < 4; i++)
    work_compare_eval(in, &a->eval[i], &b->eval[i], tolerance);
  for (int i = 0; i < WORK_STARS; i++) {
    const mill_fit_result *x = &a->result[i], *y = &b->result[i];
    assert_int_equal(x->status, y->status);
    assert_int_equal(x->warn, y->warn);
    assert_int_equal(x->info, y->info);
    assert_int_equal(x->n_pix_tot, y->n_pix_tot);
    assert_close(x->vrad_guess_km_s, y->vrad_guess_km_s, 1e-2);
    /* the polish stops within 1e-3 of the minimum on either path */
    assert_close(x->m2ll, y->m2ll, 2e-3);
    for (int j = 0; j < WORK_PAR; j++) {
      assert_close(made_par(x, j), made_par(y, j), 0.03 * made_err(y, j));
      assert_close(made_err(x, j), made_err(y, j), 0.01 * made_err(y, j));
    }
    for (int l = 0; l < in->lib.n_label; l++)
      assert_int_equal(x->label_flag[l], y->label_flag[l]);
    assert_int_equal(x->n_epoch, y->n_epoch);
    for (int e = 0; e < y->n_epoch; e++) {
      const double err = b->epoch[i][e].vrad_err_km_s;
      assert_int_equal(a->epoch[i][e].flag, b->epoch[i][e].flag);
      assert_close(a->epoch[i][e].vrad_km_s, b->epoch[i][e].vrad_km_s, 0.03 * err);
      assert_close(a->epoch[i][e].vrad_err_km_s, err, 0.01 * err);
    }
    for (int j = 0; j < in->lib.n_arm && in->velocity_offsets; j++)
      if (y->n_pix[j] > 0) {
        const double err = y->vrad_offset_err_km_s[j];
        assert_close(x->vrad_offset_km_s[j], y->vrad_offset_km_s[j], 0.03 * err);
        assert_close(x->vrad_offset_err_km_s[j], err, 0.01 * err);
      }
    for (int s = 0; s < in->star[i].n_segment; s++)
      for (int p = 0; p < in->star[i].segment[s].n_pix; p++) {
        const int at = (i * MADE_MAX_SEG + s) * MADE_MAX_PIX + p;
        assert_close((double)a->model[at], (double)b->model[at], 0.02);
      }
  }
}

/** Make the stars and fit them with the CPU's best backend, which must fit all. */
static inline void work_expected(work_input *in, int precision, int kind, work_output *out)
{
  work_make(in, kind);
  work_run(mill_backend_cpu(NULL), in, precision, out);
  for (int i = 0; i < WORK_STARS; i++)
    assert_int_equal(out->result[i].status, MILL_STATUS_FITTED);
  assert_true(out->result[1].info & MILL_INFO_EPOCHS);
  assert_close(out->epoch[1][1].vrad_km_s - out->epoch[1][0].vrad_km_s, WORK_SHIFT,
               4 * hypot(out->epoch[1][0].vrad_err_km_s, out->epoch[1][1].vrad_err_km_s));
}
