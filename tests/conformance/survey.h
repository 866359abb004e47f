/* SPDX-License-Identifier: BSD-3-Clause */
/** Tests that every backend must pass, on the stars of stars.h, against the CPU's best backend.
 *
 *  The test programs of backends run them (tests/cpu, tests/fiber, tests/cuda).  They also define
 *  CONFORMANCE_SLOTS, a list of numbers of stars that are fitted at a time. */
#pragma once

#include "tests/conformance/branches.h"
#include "tests/conformance/stars.h"

/* Number of stars in tests that need few stars; a slow adapter sets fewer. */
static int n_few = N_STAR;

/** Compare answers to the same requests with the CPU's; derivatives in units of errors. */
static inline void compare_answers(int precision, double tolerance)
{
  static const int request[] = {MILL_REQ_VALUES, MILL_REQ_TANGENTS, MILL_REQ_MODELS};
  data.set.precision = precision;
  MILL_AT_END(mill_pipeline_destroy_at) mill_pipeline *on_cpu = pipeline(mill_backend_cpu(NULL), 1);
  MILL_AT_END(mill_pipeline_destroy_at) mill_pipeline *on_tested = pipeline(tested, 1);
  double worst_f = 0.0;
  for (int i = 0; i < n_fit; i++)
    for (int r = 0; r < 3; r++) {
      double theta[2][N_PAR];
      mill_evaluation a[2], b[2];
      mill_fit_result prepared_a, prepared_b;
      memset(a, 0, sizeof a);
      memset(b, 0, sizeof b);
      memcpy(theta[0], data.truth[i], sizeof theta[0]);
      memcpy(theta[1], data.truth[i], sizeof theta[1]);
      theta[1][0] += 35.0;
      theta[1][1] = 60.0;
      theta[1][3] += 0.3;
      made_ask(on_cpu, &data.star[i], request[r], 2, theta[0], a, &prepared_a);
      made_ask(on_tested, &data.star[i], request[r], 2, theta[0], b, &prepared_b);
      assert_int_equal(prepared_a.status, prepared_b.status);
      assert_int_equal(prepared_a.n_pix_tot, prepared_b.n_pix_tot);
      for (int k = 0; k < N_ARM; k++)
        assert_close(prepared_b.sn[k], prepared_a.sn[k], 1e-5 * fabs(prepared_a.sn[k]));
      for (int p = 0; p < 2; p++) {
        /* sums of products of float32 pixels: rounding grows with the sum */
        const double t = tolerance * (1.0 + 1e-5 * fabs(a[p].f));
        assert_close(b[p].f, a[p].f, t);
        if (fabs(a[p].f) < 1e6) /* not of spoilt stars */
          worst_f = fmax(worst_f, fabs(b[p].f - a[p].f));
        for (int k = 0; k < N_ARM; k++) {
          assert_close(b[p].chisq[k], a[p].chisq[k], tolerance + 1e-5 * a[p].chisq[k]);
          assert_close(b[p].chisq_c[k], a[p].chisq_c[k], tolerance + 1e-5 * a[p].chisq_c[k]);
        }
        for (int j = 0; j < N_PAR; j++) {
          const double hj = a[p].hess[j * N_PAR + j];
          assert_close(b[p].grad[j], a[p].grad[j], t * sqrt(hj) + 1e-5 * fabs(a[p].grad[j]));
          for (int l = 0; l < N_PAR; l++)
            assert_close(b[p].hess[j * N_PAR + l], a[p].hess[j * N_PAR + l],
                         (tolerance + 1e-5) * sqrt(hj * a[p].hess[l * N_PAR + l]));
        }
      }
    }
  printf("%s: largest difference of -2 ln L %.2g\n",
         precision == MILL_FLOAT64 ? "float64" : "float32", worst_f);
}

MILL_TEST(answers_equal_the_cpu)
{
  compare_answers(MILL_FLOAT64, 1e-6);
  compare_answers(MILL_FLOAT32, 1e-3);
}

/* With 8, 13 and MILL_MAX_CONT continuum functions a GPU sums two, three and four groups of rows
 * (kernels/cuda/pixel_sums.h).  Registers hold at most 12 continuum functions of a pixel. */
MILL_TEST(many_continuum_functions_equal_the_cpu)
{
  static const int many[] = {8, 13, MILL_MAX_CONT};
  const int n_cont = data.set.n_cont;
  n_fit = 3;
  for (size_t i = 0; i < sizeof many / sizeof many[0]; i++) {
    data.set.n_cont = many[i];
    compare_answers(MILL_FLOAT64, 1e-6);
    data.set.precision = MILL_FLOAT64;
    fit(mill_backend_cpu(NULL), 4);
    mill_fit_result expected[3];
    memcpy(expected, data.result, (size_t)n_fit * sizeof expected[0]);
    fit(tested, 4);
    for (int k = 0; k < n_fit; k++) {
      /* tolerance of whole fits: rounding may decide if a profile has 25 or 41 velocities */
      const double err = expected[k].vrad_err_km_s;
      assert_close(data.result[k].vrad_km_s, expected[k].vrad_km_s, 0.05 * err);
      assert_close(data.result[k].vrad_err_km_s, err, 0.05 * err);
    }
  }
  data.set.n_cont = n_cont;
  n_fit = N_STAR;
}

/* A slot that keeps templates gives the same bits as a slot that computes each template. */
static inline void compare_kept(int precision)
{
  enum { N_POINT = 6, N_KEPT_STAR = 3 };
  data.set.precision = precision;
  MILL_AT_END(mill_pipeline_destroy_at) mill_pipeline *p = pipeline(tested, 1);
  for (int i = 0; i < N_KEPT_STAR; i++) {
    double theta[N_POINT][N_PAR];
    mill_evaluation in_turn[N_POINT], alone;
    mill_fit_result prepared;
    for (int k = 0; k < N_POINT; k++)
      memcpy(theta[k], data.truth[i], sizeof theta[k]);
    theta[1][0] += 35.0; /* another velocity, the same template */
    theta[2][3] += 1e-9; /* a label that differs in its last digits */
    theta[3][1] = theta[4][1] = 60.0;
    theta[4][0] -= 20.0; /* the last point is the first one again */
    made_ask(p, &data.star[i], MILL_REQ_MODELS, N_POINT, theta[0], in_turn, &prepared);
    for (int k = 0; k < N_POINT; k++) {
      made_ask(p, &data.star[i], MILL_REQ_MODELS, 1, theta[k], &alone, &prepared);
      assert_memory_equal(&in_turn[k], &alone, sizeof alone);
      assert_true(k == 0 || memcmp(&in_turn[k], &in_turn[k - 1], sizeof alone) != 0);
    }
  }
}

MILL_TEST(no_answer_has_a_stale_template)
{
  compare_kept(MILL_FLOAT64);
  compare_kept(MILL_FLOAT32);
}

/** Compare covariances, errors, v sin i and moments.  Errors, like VRAD_ERR, may differ by 5 %. */
static inline void compare_errors(const mill_fit_result *b, const mill_fit_result *a)
{
  const double *c = a->covar;
  for (int l = 0; l < N_LABEL; l++)
    if (a->label_err[l] > 0.0)
      assert_close(b->label_err[l], a->label_err[l], 0.05 * a->label_err[l]);
  assert_close(b->vsini_km_s, a->vsini_km_s, 0.05 * a->vsini_err_km_s);
  assert_close(b->vsini_err_km_s, a->vsini_err_km_s, 0.05 * a->vsini_err_km_s);
  assert_close(b->vrad_skew, a->vrad_skew, 0.05);
  assert_close(b->vrad_kurt, a->vrad_kurt, 0.05 * a->vrad_kurt);
  for (int j = 0, e = 0; j < N_PAR; j++) /* a variance begins each row */
    for (int l = j; l < N_PAR; l++, e++)
      assert_close(b->covar[e], c[e],
                   0.1 * sqrt(c[j * N_PAR - j * (j - 1) / 2] * c[l * N_PAR - l * (l - 1) / 2]));
}

MILL_TEST(fits_equal_the_cpu)
{
  static mill_fit_result expected[N_STAR];
  static float model[N_STAR][MADE_MAX_SEG][MADE_MAX_PIX];
  data.set.precision = MILL_FLOAT32;
  fit(mill_backend_cpu(NULL), N_STAR);
  memcpy(expected, data.result, sizeof expected);
  memcpy(model, data.model, sizeof model);
  fit(tested, N_STAR);
  keep(&by_batch);
  int n_fitted = 0, n_compared = 0;
  for (int i = 0; i < N_STAR; i++) {
    const mill_fit_result *a = &expected[i], *b = &data.result[i];
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->warn, b->warn);
    assert_int_equal(a->n_pix_tot, b->n_pix_tot);
    if (a->status != MILL_STATUS_FITTED)
      continue;
    n_fitted++;
    if (a->warn & MILL_WARN_OUTLIER) /* errors of 1e-10 km/s: rounding decides */
      continue;
    n_compared++;
    /* required: parameters within 0.05 errors, -2 ln L within 5e-3 */
    assert_close(b->m2ll, a->m2ll, 5e-3);
    assert_close(b->vrad_km_s, a->vrad_km_s, 0.05 * a->vrad_err_km_s);
    assert_close(b->vrad_err_km_s, a->vrad_err_km_s, 0.05 * a->vrad_err_km_s);
    for (int l = 0; l < N_LABEL; l++)
      if (a->label_err[l] > 0.0)
        assert_close(b->label[l], a->label[l], 0.05 * a->label_err[l]);
    compare_errors(b, a);
    assert_close(b->rchisq_tot, a->rchisq_tot, 1e-4 * a->rchisq_tot);
    for (int k = 0; k < N_ARM; k++) {
      assert_int_equal(isnan(b->vrad_arm_km_s[k]), isnan(a->vrad_arm_km_s[k]));
      if (isnan(a->vrad_arm_km_s[k]))
        continue;
      assert_close(b->vrad_arm_km_s[k], a->vrad_arm_km_s[k], 0.05 * a->vrad_arm_err_km_s[k]);
      assert_close(b->vrad_arm_err_km_s[k], a->vrad_arm_err_km_s[k],
                   0.05 * a->vrad_arm_err_km_s[k]);
      assert_close(b->stiff[k], a->stiff[k], 1e-4);
    }
    for (int k = 0; k < data.star[i].n_segment; k++)
      for (int p = 0; p < data.made[i].segment[k].n_pix; p++) {
        const float x = model[i][k][p], y = data.model[i][k][p];
        const double ivar = (double)data.star[i].segment[k].ivar[p];
        /* A fit's -2 ln L ends at most 2e-3 above its least value (test_polish.c), so two models
         * differ by at most 2 sqrt(2e-3) = 0.09 errors of a pixel.  CPUs differ by 2e-6. */
        if (isnan(x))
          assert_true(isnan(y));
        else
          assert_close(y, x, 0.1 * (ivar > 1.0 && isfinite(ivar) ? 1.0 / sqrt(ivar) : 1.0));
      }
  }
  assert_true(n_fitted >= N_STAR - 2);
  assert_true(n_compared >= N_STAR - 4);
  assert_int_equal(data.result[5].status, MILL_STATUS_NO_ARM);
}

/** The rows and models must not depend on how many stars are fitted at a time. */
static inline void expect_other_batches(const fitted *expected)
{
  static const int n_slots[] = {CONFORMANCE_SLOTS};
  for (size_t i = 0; i < sizeof n_slots / sizeof n_slots[0]; i++)
    expect(expected, n_slots[i]);
}

MILL_TEST(result_does_not_depend_on_the_batch)
{
  n_fit = n_few;
  expect_other_batches(&by_batch);
  n_fit = N_STAR;
}

/* The last answer of a fit uses the template that the emulator made for the velocity profile.  A
 * template that is made again at the solution gives the same chi-squares, bit for bit. */
MILL_TEST(a_fit_ends_with_the_template_of_its_solution)
{
  int n_fitted = 0;
  MILL_AT_END(mill_pipeline_destroy_at) mill_pipeline *p = pipeline(tested, 1);
  for (int i = 0; i < n_fit; i++) {
    const mill_fit_result *row = &by_batch.result[i];
    double theta[N_PAR] = {row->vrad_km_s, row->vsini_km_s};
    mill_fit_result prepared;
    mill_evaluation eval;
    if (row->status != MILL_STATUS_FITTED)
      continue;
    n_fitted++;
    for (int l = 0; l < N_LABEL; l++)
      theta[MILL_PAR_LABEL0 + l] = row->label[l];
    made_ask(p, &data.star[i], MILL_REQ_MODELS, 1, theta, &eval, &prepared);
    for (int k = 0; k < N_ARM; k++)
      if (row->n_pix[k] > 0)
        assert_memory_equal(&eval.chisq[k], &row->chisq[k], sizeof eval.chisq[k]);
  }
  assert_true(n_fitted >= N_STAR - 2);
}

/* Upload pieces that begin every `step` bytes, and check what arrives.  Every fifth piece is zeros.
 * The host overwrites a piece's source after the call, or after settle() if the piece `stays`. */
static inline void upload_pieces(int n_piece, size_t step, size_t bytes)
{
  enum { N_BYTE = 7 << 20 };
  static unsigned char usual[N_BYTE], got[N_BYTE], expected[N_BYTE];
  static mill_upload piece[N_BYTE / 64];
  mill_device *device = NULL;
  void *memory = NULL, *pinned = usual;
  assert_true(n_piece * step <= N_BYTE);
  assert_ok(tested->open(1, &device));
  if (tested->pin)
    assert_ok(tested->pin(N_BYTE, &pinned));
  unsigned char *sent = pinned;
  assert_ok(tested->alloc(device, N_BYTE, &memory));
  memset(expected, 0x5a, N_BYTE);
  assert_ok(tested->upload(device, memory, expected, N_BYTE));
  for (size_t i = 0; i < N_BYTE; i++)
    sent[i] = (unsigned char)(i * 2654435761u >> 11);
  for (size_t i = 0; i < (size_t)n_piece; i++) {
    const int is_zero = i % 5 == 4;
    piece[i] = (mill_upload){(char *)memory + i * step, is_zero ? NULL : sent + i * step, bytes,
                             i % 3 > 0};
    if (is_zero)
      memset(expected + i * step, 0, bytes);
    else
      memcpy(expected + i * step, sent + i * step, bytes);
  }
  assert_ok(tested->upload_all(device, piece, n_piece));
  for (size_t i = 0; i < (size_t)n_piece; i++)
    if (!piece[i].stays)
      memset(sent + i * step, 0xff, bytes);
  for (int i = 0; i < 2 && tested->settle; i++)
    assert_ok(tested->settle(device));
  memset(sent, 0xff, N_BYTE);
  assert_ok(tested->download(device, got, memory, N_BYTE));
  /* near pieces go up as one copy, so bytes between them may change */
  for (size_t i = 0; i < (size_t)n_piece; i++)
    assert_memory_equal(got + i * step, expected + i * step, bytes);
  if (step >= bytes + 64)
    assert_memory_equal(got, expected, N_BYTE);
  memset(got, 0, N_BYTE);
  for (size_t i = 0; i < (size_t)n_piece; i++)
    piece[i] = (mill_upload){got + i * step, (char *)memory + i * step, bytes, 0};
  assert_ok(tested->download_all(device, piece, n_piece));
  for (size_t i = 0; i < (size_t)n_piece; i++)
    assert_memory_equal(got + i * step, expected + i * step, bytes);
  tested->release(device, memory);
  if (tested->pin)
    tested->unpin(pinned);
  tested->close(device);
}

MILL_TEST(pieces_come_as_they_were_when_sent)
{
  upload_pieces(1, 7 << 20, 7 << 20);                        /* over all buffers */
  upload_pieces(7, 1 << 20, 1 << 20);                        /* one after the other */
  upload_pieces(1000, 7104, 7100);                           /* more than are copied at a time */
  upload_pieces(100, 65536, 64 << 8);                        /* apart */
  upload_pieces(3, MILL_STAGE_BYTES, MILL_STAGE_BYTES - 63); /* ends just before a buffer does */
}

/** Replace the survey's library by another one with the same arms; return the survey's library.
 *  The stars do not fit the other library; few starts and evaluations keep their fits short. */
static inline mill_library other_library(void)
{
  const mill_library usual = data.lib;
  memset(&data.lib, 0, sizeof data.lib);
  assert_ok(test_library_make(N_LABEL, N_ARM, SEED, &data.lib));
  data.set.max_starts = 1;
  data.set.max_eval = 20;
  return usual;
}

static inline void usual_library(const mill_library *lib, const mill_fit_settings *set)
{
  mill_library_clear(&data.lib);
  data.lib = *lib;
  data.set = *set;
  n_fit = N_STAR;
}

/* Layers have several blocks of inputs and tiles of outputs; the last ones are not full. */
MILL_TEST(wide_layers_equal_the_cpu)
{
  static fitted once;
  const mill_fit_settings set = data.set;
  const mill_library lib = other_library();
  assert_ok(test_library_widen(SEED, &data.lib));
  n_fit = n_few;
  compare_answers(MILL_FLOAT64, 1e-6);
  compare_answers(MILL_FLOAT32, 1e-3);
  /* many stars at once use every row of more than one tile */
  fit(tested, N_STAR);
  keep(&once);
  expect(&once, 1);
  /* layers pad their output rows; grids and radial functions do not */
  assert_ok(test_library_to_rbf(&data.lib));
  compare_answers(MILL_FLOAT32, 1e-3);
  usual_library(&lib, &set);
}

/* Splines or radial functions replace the networks.  Linear interpolation has kinks, where rounding
 * decides at which point a fit ends.  So it is tested by likelihoods and not by fits. */
MILL_TEST(other_emulators_equal_the_cpu_and_do_not_depend_on_the_batch)
{
  static fitted once;
  const mill_fit_settings set = data.set;
  const mill_library lib = other_library();
  assert_ok(test_library_to_mixed(&data.lib));
  n_fit = n_few;
  compare_answers(MILL_FLOAT64, 1e-6);
  compare_answers(MILL_FLOAT32, 1e-3);
  fit(tested, N_STAR);
  keep(&once);
  expect_other_batches(&once);
  test_library_to_linear(&data.lib.arm[0].emulator.grid);
  compare_answers(MILL_FLOAT64, 1e-6);
  usual_library(&lib, &set);
}

/** Tolerances on the stars of branches.h; an adapter may set larger ones.  float64: backends add
 *  the 500 terms of a sum in different orders.  float32: a compiler that fuses multiplications
 *  and additions changes templates by 6e-8 of the flux, which has an S/N of 40. */
static double branch_float32 = 1e-6, branch_float64 = 1e-11;

static inline void check_branches(int precision, int kind)
{
  static work_input in;
  static work_output expected, found;
  work_expected(&in, precision, kind, &expected);
  work_run(tested, &in, precision, &found);
  work_compare(&in, &found, &expected, precision == MILL_FLOAT64 ? branch_float64 : branch_float32);
  mill_library_clear(&in.lib);
}

MILL_TEST(every_branch_equals_the_cpu)
{
  check_branches(MILL_FLOAT32, MILL_EMULATOR_MLP);
  check_branches(MILL_FLOAT64, MILL_EMULATOR_MLP);
}
