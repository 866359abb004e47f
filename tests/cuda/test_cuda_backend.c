/* The CUDA backend against the CPU's, on stars made from a small made-up library.
 *
 * Skipped, with the reason, without a GPU or in a build without CUDA.  Built once more over an
 * emulated GPU (tests/cuda_emulation/), with fewer stars, and there with too little memory,
 * with neighbours in memory and with failures too. */
#include "tests/mill_test.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/base/error.h"
#include "src/config/config.h"
#include "src/pipeline/pipeline.h"
#include "tests/test_library.h"
#ifdef MILL_HAVE_CUDA
#include "kernels/cuda/cuda_backend.h"
#endif
#ifdef MILL_CUDA_EMULATION
#include "tests/cuda_emulation/emulation.h"
#endif

enum {
#ifdef MILL_CUDA_EMULATION
  N_STAR = 14,
#else
  N_STAR = 40,
#endif
  N_LABEL = 4,
  N_ARM = 3,
  N_PAR = N_LABEL + 2,
  N_DIAG = 11,
  MAX_PIX = 140,
  MAX_SEGMENT = 4,
  SEED = 20
};

/* around a chunk, a warp and a block of threads */
static const int n_pix_arm[N_ARM] = {97, 128, 129};

/* of test_result_does_not_depend_on_the_batch, and what later tests compare with */
#ifdef MILL_CUDA_EMULATION
static const int n_slots[] = {N_STAR, 5};
#else
static const int n_slots[] = {1, 7, N_STAR};
#endif

/* The first ones of them are fitted. */
static int n_fit = N_STAR;

static const mill_backend *cuda;
static const char *reason; /* of having none */

typedef struct star_pixels {
  float flux[MAX_PIX], ivar[MAX_PIX], resolution[N_DIAG * MAX_PIX];
  int32_t mask[MAX_PIX];
} star_pixels;

typedef struct survey {
  mill_library lib;
  mill_config config;
  double wave_aa[N_ARM][MAX_PIX];
  double truth[N_STAR][N_PAR];
  mill_raw_segment segment[N_STAR][MAX_SEGMENT];
  mill_star star[N_STAR];
  star_pixels pixels[N_STAR][MAX_SEGMENT];
  int next;
  mill_fit_result result[N_STAR];
  float model[N_STAR][MAX_SEGMENT][MAX_PIX];
  int got[N_STAR], has_model[N_STAR];
} survey;

static survey data;

static void must(int err)
{
  if (err != MILL_OK)
    fail_msg("%s", mill_error_message());
}

/* roughly Gaussian, variance 1 */
static double noise(uint64_t *state)
{
  double sum = 0.0;
  for (int i = 0; i < 12; i++)
    sum += 0.5 * test_library_random(state);
  return sum;
}

/** log flux of the emulator on its grid. */
static void emulate(const mill_library *lib, int a, const double *theta, double *y)
{
  const mill_emulator *net = &lib->arm[a].emulator;
  double in[64], out[64];
  for (int l = 0; l < N_LABEL; l++) {
    const mill_label *label = &lib->label[l];
    const double value = label->mapping == MILL_MAP_LOG10 ? log10(theta[2 + l]) : theta[2 + l];
    in[l] = (value - label->mean) / label->std;
  }
  for (int k = 0; k < net->n_layer; k++) {
    const int last = k == net->n_layer - 1;
    for (int i = 0; i < net->n_out[k]; i++) {
      double sum = net->bias[k][i];
      for (int j = 0; j < net->n_in[k]; j++)
        sum += (double)net->weight[k][i * net->n_in[k] + j] * in[j];
      if (last)
        y[i] = sum;
      else
        out[i] = sum / (1.0 + exp(-sum));
    }
    if (!last)
      memcpy(in, out, sizeof in);
  }
}

/** One arm of a star at its velocity with a slope and noise. */
static void make_segment(survey *s, int i_star, int i_seg, int a, double sn, uint64_t *state)
{
  const mill_arm *arm = &s->lib.arm[a];
  star_pixels *p = &s->pixels[i_star][i_seg];
  mill_raw_segment *raw = &s->segment[i_star][i_seg];
  const int n = n_pix_arm[a];
  const double beta = s->truth[i_star][0] / MILL_C_KM_S;
  static double y[1024];
  emulate(&s->lib, a, s->truth[i_star], y);
  for (int i = 0; i < n; i++) {
    const double ln_wave = log(s->wave_aa[a][i]) - atanh(beta);
    const double pos = (ln_wave - arm->ln_wave0) / arm->ln_step, u = pos - floor(pos);
    const int k = (int)floor(pos);
    const double flux = 80.0 * (1.0 + 0.3 * i / n) * exp((1.0 - u) * y[k] + u * y[k + 1]);
    const double sigma = flux / sn;
    p->flux[i] = (float)(flux + sigma * noise(state));
    p->ivar[i] = (float)(1.0 / (sigma * sigma));
    p->mask[i] = 0;
  }
  /* Gaussian of 0.9 pixels; diagonal k holds offset h - k, stored by column */
  for (int k = 0; k < N_DIAG; k++)
    for (int j = 0; j < n; j++) {
      const double off = (N_DIAG / 2 - k) / 0.9;
      p->resolution[k * n + j] = (float)(exp(-0.5 * off * off) / (0.9 * sqrt(6.283185307179586)));
    }
  raw->arm = a;
  raw->exposure = 0;
  raw->n_pix = n;
  raw->n_diag = N_DIAG;
  raw->flux = p->flux;
  raw->ivar = p->ivar;
  raw->mask = p->mask;
  raw->resolution = p->resolution;
}

static void spoil(survey *s)
{
  star_pixels *p;
  p = s->pixels[3]; /* some bad pixels of every kind */
  p[0].mask[0] = p[0].mask[20] = p[0].mask[21] = 1;
  p[1].ivar[5] = 0.0f;
  p[1].ivar[6] = -1.0f;
  p[1].flux[7] = NAN;
  p[2].ivar[8] = INFINITY;
  for (int i = 0; i < MAX_PIX; i++)
    s->pixels[4][1].mask[i] = 2; /* an arm without a pixel */
  for (int a = 0; a < N_ARM; a++)
    for (int i = 0; i < MAX_PIX; i++)
      s->pixels[5][a].ivar[i] = 0.0f; /* nothing at all */
  s->star[6].n_segment = 1;           /* one arm only */
  s->segment[7][0].resolution = NULL; /* no matrix, no mask */
  s->segment[7][0].n_diag = 0;
  s->segment[7][1].mask = NULL;
  for (int i = 0; i < MAX_PIX; i++)
    s->pixels[8][0].flux[i] *= -1.0f;
  s->pixels[9][2].flux[60] = 1e9f;
}

static int set_up(void **state)
{
  (void)state;
  survey *s = &data;
  uint64_t random = SEED;
  printf("seed %d\n", SEED);
  must(test_library_make(N_LABEL, N_ARM, SEED, &s->lib));
  mill_config_default(&s->config);
  s->config.fit.min_vel_km_s = -400.0;
  s->config.fit.max_vel_km_s = 400.0;
  s->config.fit.max_vsini_km_s = 150.0;
  s->config.fit.n_cont = 5;
  s->config.fit.n_wave_mask = 0;
  must(mill_config_bind(&s->config, &s->lib));
  for (int a = 0; a < N_ARM; a++) {
    const mill_arm *arm = &s->lib.arm[a];
    const double first = arm->wave_aa[0] * 1.003, last = arm->wave_aa[arm->n_pix - 1] * 0.997;
    for (int i = 0; i < n_pix_arm[a]; i++)
      s->wave_aa[a][i] = first + (last - first) * i / (n_pix_arm[a] - 1);
  }
  for (int i = 0; i < N_STAR; i++) {
    double *theta = s->truth[i];
    theta[0] = 200.0 * test_library_random(&random);
    for (int l = 0; l < N_LABEL; l++) {
      const mill_label *label = &s->lib.label[l];
      const double x = label->mean + 1.2 * test_library_random(&random) * label->std;
      theta[2 + l] = label->mapping == MILL_MAP_LOG10 ? pow(10.0, x) : x;
    }
    s->star[i].row = i;
    s->star[i].segment = s->segment[i];
    s->star[i].n_segment = i % 5 == 2 ? MAX_SEGMENT : N_ARM; /* a second exposure for some */
    for (int k = 0; k < s->star[i].n_segment; k++) {
      make_segment(s, i, k, k % N_ARM, 8.0 + 3.0 * i, &random);
      s->segment[i][k].exposure = k / N_ARM;
    }
  }
  spoil(s);

#ifdef MILL_HAVE_CUDA
  cuda = mill_backend_cuda(NULL);
  if (cuda)
    printf("%s\n", cuda->name);
  else
    reason = mill_error_message();
#else
  reason = "this build has no CUDA backend";
#endif
  return 0;
}

static int clean_up(void **state)
{
  (void)state;
  mill_config_clear(&data.config);
  mill_library_clear(&data.lib);
  return 0;
}

#define NEEDS_GPU()                                                                                \
  do {                                                                                             \
    if (!cuda) {                                                                                   \
      printf("SKIPPED: %s\n", reason);                                                             \
      skip();                                                                                      \
    }                                                                                              \
  } while (0)

static mill_pipeline *pipeline(survey *s, const mill_backend *backend, int n_slot)
{
  mill_pipeline *p = NULL;
  int id[N_ARM];
  must(mill_pipeline_create(&s->lib, &s->config.fit, backend, n_slot, 1, 1, &p));
  for (int a = 0; a < N_ARM; a++)
    must(mill_pipeline_waveset(p, a, n_pix_arm[a], s->wave_aa[a], &id[a]));
  for (int i = 0; i < N_STAR; i++)
    for (int k = 0; k < s->star[i].n_segment; k++)
      s->segment[i][k].waveset = id[s->segment[i][k].arm];
  return p;
}

static int next_star(void *context, mill_star *star)
{
  survey *s = context;
  if (s->next == n_fit)
    return 0;
  *star = s->star[s->next++];
  return 1;
}

static int take_row(void *context, const mill_fit_result *result, const float *const *model)
{
  survey *s = context;
  const int i = (int)result->row;
  s->result[i] = *result;
  s->got[i]++;
  s->has_model[i] = model != NULL;
  for (int k = 0; model && k < s->star[i].n_segment; k++)
    memcpy(s->model[i][k], model[k], (size_t)s->segment[i][k].n_pix * sizeof(float));
  return MILL_OK;
}

/** Fit all; rows and models are then in s. */
static void fit(survey *s, const mill_backend *backend, int n_slot)
{
  mill_pipeline *p = pipeline(s, backend, n_slot);
  s->next = 0;
  memset(s->result, 0, sizeof s->result);
  memset(s->model, 0, sizeof s->model);
  memset(s->got, 0, sizeof s->got);
  must(mill_pipeline_run(p, next_star, s, take_row, s));
  mill_pipeline_destroy(p);
  for (int i = 0; i < n_fit; i++)
    assert_int_equal(s->got[i], 1);
}

/** The same requests at the same points; derivatives in units of what they tell. */
static void compare_answers(int precision, double tolerance)
{
  survey *s = &data;
  static const int request[] = {MILL_REQ_VALUE, MILL_REQ_JACOBIAN, MILL_REQ_FINAL};
  s->config.fit.precision = precision;
  mill_pipeline *on_cpu = pipeline(s, mill_backend_cpu(NULL), 1);
  mill_pipeline *on_gpu = pipeline(s, cuda, 1);
  double worst_f = 0.0;
  for (int i = 0; i < n_fit; i++)
    for (int r = 0; r < 3; r++) {
      double theta[2][N_PAR];
      mill_eval a[2], b[2];
      mill_fit_result prepared_a, prepared_b;
      memset(a, 0, sizeof a);
      memset(b, 0, sizeof b);
      memcpy(theta[0], s->truth[i], sizeof theta[0]);
      memcpy(theta[1], s->truth[i], sizeof theta[1]);
      theta[1][0] += 35.0;
      theta[1][1] = 60.0;
      theta[1][3] += 0.3;
      must(mill_pipeline_evaluate(on_cpu, &s->star[i], request[r], 2, theta[0], a, &prepared_a));
      must(mill_pipeline_evaluate(on_gpu, &s->star[i], request[r], 2, theta[0], b, &prepared_b));
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
  mill_pipeline_destroy(on_cpu);
  mill_pipeline_destroy(on_gpu);
}

static void test_answers_equal_the_cpu_in_float64(void **state)
{
  (void)state;
  NEEDS_GPU();
  compare_answers(MILL_FLOAT64, 1e-6);
}

static void test_answers_equal_the_cpu_in_float32(void **state)
{
  (void)state;
  NEEDS_GPU();
  compare_answers(MILL_FLOAT32, 1e-3);
}

static void test_fits_equal_the_cpu(void **state)
{
  (void)state;
  NEEDS_GPU();
  survey *s = &data;
  static mill_fit_result expected[N_STAR];
  static float model[N_STAR][MAX_SEGMENT][MAX_PIX];
  s->config.fit.precision = MILL_FLOAT32;
  fit(s, mill_backend_cpu(NULL), N_STAR);
  memcpy(expected, s->result, sizeof expected);
  memcpy(model, s->model, sizeof model);
  fit(s, cuda, N_STAR);
  int n_fitted = 0, n_compared = 0;
  for (int i = 0; i < N_STAR; i++) {
    const mill_fit_result *a = &expected[i], *b = &s->result[i];
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->warn, b->warn);
    assert_int_equal(a->n_pix_tot, b->n_pix_tot);
    if (a->status != MILL_STATUS_FITTED)
      continue;
    n_fitted++;
    if (a->warn & MILL_WARN_OUTLIER) /* errors of 1e-10 km/s: rounding decides */
      continue;
    n_compared++;
    /* DESIGN: 0.05 sigma and 5e-3 in -2 ln L */
    assert_close(b->m2ll, a->m2ll, 5e-3);
    assert_close(b->vrad_km_s, a->vrad_km_s, 0.05 * a->vrad_err_km_s);
    assert_close(b->vrad_err_km_s, a->vrad_err_km_s, 0.05 * a->vrad_err_km_s);
    for (int l = 0; l < N_LABEL; l++)
      if (a->label_err[l] > 0.0)
        assert_close(b->label[l], a->label[l], 0.05 * a->label_err[l]);
    for (int k = 0; k < s->star[i].n_segment; k++)
      for (int p = 0; p < s->segment[i][k].n_pix; p++) {
        const float x = model[i][k][p], y = s->model[i][k][p];
        if (isnan(x))
          assert_true(isnan(y));
        else /* the scale of the fluxes is 80 */
          assert_close(y, x, 0.5);
      }
  }
  assert_true(n_fitted >= N_STAR - 2);
  assert_true(n_compared >= N_STAR - 4);
  assert_int_equal(s->result[5].status, MILL_STATUS_NO_ARM);
}

typedef struct fitted {
  mill_fit_result result[N_STAR];
  float model[N_STAR][MAX_SEGMENT][MAX_PIX];
} fitted;

/** Fit with n_slot slots; the rows and models must be the expected ones, bit for bit. */
static void expect(const fitted *expected, int n_slot)
{
  fit(&data, cuda, n_slot);
  assert_memory_equal(data.result, expected->result, (size_t)n_fit * sizeof *expected->result);
  assert_memory_equal(data.model, expected->model, (size_t)n_fit * sizeof *expected->model);
}

static void keep(fitted *to)
{
  memcpy(to->result, data.result, sizeof to->result);
  memcpy(to->model, data.model, sizeof to->model);
}

static fitted by_graph;

static void compare_batches(void)
{
  data.config.fit.precision = MILL_FLOAT32;
  fit(&data, cuda, n_slots[0]);
  keep(&by_graph);
  for (size_t i = 1; i < sizeof n_slots / sizeof n_slots[0]; i++)
    expect(&by_graph, n_slots[i]);
}

static void test_result_does_not_depend_on_the_batch(void **state)
{
  (void)state;
  NEEDS_GPU();
  compare_batches();
}

/** A switch of the environment for what is opened after it; NULL: none. */
static void switch_to(const char *name, const char *value)
{
  assert_int_equal(value ? setenv(name, value, 1) : unsetenv(name), 0);
}

/** What follows is about how the device is driven, which a few stars show: the emulation is
 *  slow. */
static void take_few_stars(void)
{
#ifdef MILL_CUDA_EMULATION
  n_fit = 6;
#endif
}

static void test_rounds_one_by_one_equal_the_graph(void **state)
{
  (void)state;
  NEEDS_GPU();
  take_few_stars();
  switch_to("MILL_CUDA_GRAPH", "0");
  expect(&by_graph, N_STAR);
  switch_to("MILL_CUDA_GRAPH", NULL);
}

static void test_debug_mode_equals_the_graph(void **state)
{
  (void)state;
  NEEDS_GPU();
  switch_to("MILL_CUDA_DEBUG", "1");
  expect(&by_graph, N_STAR);
  switch_to("MILL_CUDA_DEBUG", NULL);
}

/* Pieces of one memory, some far apart, some of zeros, in more than one buffer; what was sent is
 * written over at once. */
static void upload_pieces(int n_piece, size_t step, size_t bytes)
{
  enum { N_BYTE = 7 << 20 };
  static unsigned char sent[N_BYTE], got[N_BYTE], expected[N_BYTE];
  static mill_upload piece[N_BYTE / 64];
  mill_device *device = NULL;
  void *memory = NULL;
  assert_true(n_piece * step <= N_BYTE);
  must(cuda->open(1, &device));
  must(cuda->alloc(device, N_BYTE, &memory));
  memset(expected, 0x5a, N_BYTE);
  must(cuda->upload(device, memory, expected, N_BYTE));
  for (size_t i = 0; i < N_BYTE; i++)
    sent[i] = (unsigned char)(i * 2654435761u >> 11);
  for (size_t i = 0; i < (size_t)n_piece; i++) {
    const int is_zero = i % 5 == 4;
    piece[i] = (mill_upload){(char *)memory + i * step, is_zero ? NULL : sent + i * step, bytes};
    if (is_zero)
      memset(expected + i * step, 0, bytes);
    else
      memcpy(expected + i * step, sent + i * step, bytes);
  }
  must(cuda->upload_all(device, piece, n_piece));
  memset(sent, 0xff, N_BYTE);
  must(cuda->download(device, got, memory, N_BYTE));
  /* pieces that nearly meet go as one, and what lies between them is nobody's */
  for (size_t i = 0; i < (size_t)n_piece; i++)
    assert_memory_equal(got + i * step, expected + i * step, bytes);
  if (step >= bytes + 64)
    assert_memory_equal(got, expected, N_BYTE);
  cuda->release(device, memory);
  cuda->close(device);
}

static void test_pieces_come_as_they_were_when_sent(void **state)
{
  (void)state;
  NEEDS_GPU();
  for (int n_copier = 1; n_copier <= 3; n_copier += 2) {
    switch_to("MILL_CUDA_COPIERS", n_copier == 1 ? "1" : "3");
    upload_pieces(1, 7 << 20, 7 << 20);        /* over all buffers */
    upload_pieces(7, 1 << 20, 1 << 20);        /* one after the other */
    upload_pieces(1000, 7104, 7100);           /* more than are copied at a time */
    upload_pieces(100, 65536, 64 << 8);        /* apart */
    upload_pieces(3, 2 << 20, (2 << 20) - 63); /* ends just before a buffer does */
  }
  switch_to("MILL_CUDA_COPIERS", NULL);
}

static void test_unknown_switches_are_refused(void **state)
{
  (void)state;
  NEEDS_GPU();
  mill_device *device = NULL;
  switch_to("MILL_CUDA_LAST_LAYER", "fast");
  assert_int_equal(cuda->open(1, &device), MILL_ERR_CONFIG);
  switch_to("MILL_CUDA_LAST_LAYER", NULL);
  assert_null(device);
  switch_to("MILL_CUDA_COPIERS", "0");
  assert_int_equal(cuda->open(1, &device), MILL_ERR_CONFIG);
  switch_to("MILL_CUDA_COPIERS", NULL);
  assert_null(device);
}

static void test_tensor_cores_keep_float32(void **state)
{
  (void)state;
  NEEDS_GPU();
  switch_to("MILL_CUDA_LAST_LAYER", "tf32x3");
  compare_answers(MILL_FLOAT32, 1e-3);
  fit(&data, cuda, 4);
  static fitted once;
  keep(&once);
  expect(&once, N_STAR);
  switch_to("MILL_CUDA_LAST_LAYER", NULL);
}

/** Jacobians of the first steps in TF32: other templates on the way, the same fits at its end. */
static void test_coarse_first_steps_end_at_the_same_fits(void **state)
{
  (void)state;
  NEEDS_GPU();
  survey *s = &data;
  static mill_fit_result exact[N_STAR];
  static fitted once;
  s->config.fit.precision = MILL_FLOAT32;
  switch_to("MILL_CUDA_LAST_LAYER", "tf32x3");
  fit(s, cuda, N_STAR);
  memcpy(exact, s->result, sizeof exact);
  switch_to("MILL_CUDA_LAST_LAYER", "tf32early");
  fit(s, cuda, N_STAR);
  keep(&once);
  int n_other = 0;
  for (int i = 0; i < n_fit; i++) {
    const mill_fit_result *a = &exact[i], *b = &s->result[i];
    assert_int_equal(a->status, b->status);
    if (a->status != MILL_STATUS_FITTED || a->warn & MILL_WARN_OUTLIER)
      continue;
    n_other += memcmp(a, b, sizeof *a) != 0;
    /* as CPU and GPU may differ */
    assert_close(b->m2ll, a->m2ll, 5e-3);
    assert_close(b->vrad_km_s, a->vrad_km_s, 0.05 * a->vrad_err_km_s);
    for (int l = 0; l < N_LABEL; l++)
      if (a->label_err[l] > 0.0)
        assert_close(b->label[l], a->label[l], 0.05 * a->label_err[l]);
  }
  /* it was another arithmetic, and the batch does not matter for it either */
  assert_true(n_other > 0);
  for (int n_slot = 1; n_slot < N_STAR; n_slot += 6)
    expect(&once, n_slot);
  switch_to("MILL_CUDA_LAST_LAYER", NULL);
}

#ifdef MILL_CUDA_EMULATION
static void test_the_host_waits_for_rounds_only(void **state)
{
  (void)state;
  const mill_emulation_counts before = mill_emulation_count();
  expect(&by_graph, N_STAR);
  const mill_emulation_counts after = mill_emulation_count();
  const long n_graph = after.n_graph - before.n_graph;
  const long n_kernel = after.n_kernel - before.n_kernel;
  assert_true(n_graph >= 1);
  /* a graph holds many rounds, a round a dozen kernels and more */
  assert_true(n_kernel > 20 * n_graph);
  /* rows come back once a star, not once a round, and models with them */
  assert_true(after.download_bytes - before.download_bytes <
              n_fit * (long)(sizeof(mill_fit_result) +
                             MAX_SEGMENT * (MAX_PIX * sizeof(float) + sizeof(mill_segment)) + 64) +
                  64 * n_graph);
}

static void test_an_old_driver_has_no_graph(void **state)
{
  (void)state;
  const long before = mill_emulation_count().n_graph;
  mill_emulation_driver(12030);
  expect(&by_graph, N_STAR);
  mill_emulation_reset();
  assert_int_equal(mill_emulation_count().n_graph, before);
}

/** Fit again with a pipeline that is there; the slots that it used at the end. */
static int slots_of_run(mill_pipeline *p)
{
  data.next = 0;
  must(mill_pipeline_run(p, next_star, &data, take_row, &data));
  assert_memory_equal(data.result, by_graph.result, (size_t)n_fit * sizeof *data.result);
  return mill_pipeline_slots(p);
}

static void test_short_memory_changes_nothing(void **state)
{
  (void)state;
  /* room for a part of what stars and their work space want */
  mill_pipeline *p = pipeline(&data, cuda, N_STAR);
  const size_t fixed = mill_emulation_count().n_byte_now;
  assert_int_equal(slots_of_run(p), N_STAR);
  const size_t all = mill_emulation_count().n_byte_now;
  mill_pipeline_destroy(p);
  int n_slot = N_STAR;
  for (size_t share = 16; share > 0 && n_slot == N_STAR; share--) {
    /* kernels want some too, more than a star, and must have it before stars */
    const size_t launch = (all - fixed) / 16, bytes = fixed + launch + (all - fixed) * share / 64;
    mill_emulation_launch_memory(launch);
    mill_emulation_memory(bytes + bytes / 15); /* of which 1 / 16 is left alone */
    p = pipeline(&data, cuda, N_STAR);
    n_slot = slots_of_run(p);
    /* more memory, another run: all slots again */
    mill_emulation_memory(4 * all);
    if (n_slot < N_STAR)
      assert_int_equal(slots_of_run(p), N_STAR);
    mill_pipeline_destroy(p);
    mill_emulation_reset();
  }
  assert_true(n_slot < N_STAR);
}

static void test_neighbours_in_memory_are_copied_one_by_one(void **state)
{
  (void)state;
  mill_emulation_adjacent(1);
  expect(&by_graph, N_STAR);
  mill_emulation_adjacent(0);
}

static void test_without_a_graph_rounds_go_on_one_by_one(void **state)
{
  (void)state;
  static const char *const call[] = {
      "cudaGraphCreate",      "cudaGraphAddNode",     "cudaStreamBeginCaptureToGraph",
      "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphLaunch"};
  const int n = n_fit;
  n_fit = 2;
  for (size_t i = 0; i < sizeof call / sizeof call[0]; i++) {
    const long before = mill_emulation_count().n_graph;
    mill_emulation_fail_graph(call[i]);
    expect(&by_graph, N_STAR);
    assert_int_equal(mill_emulation_count().n_graph, before);
    mill_emulation_reset();
  }
  n_fit = n;
}

static void test_copies_keep_their_order(void **state)
{
  (void)state;
  enum { N_TIME = 20, N_BYTE = (5 << 20) / 2 + 17 };
  static unsigned char sent[N_BYTE], got[N_BYTE];
  mill_device *device = NULL;
  void *memory = NULL;
  must(cuda->open(1, &device));
  must(cuda->alloc(device, N_BYTE, &memory));
  for (int i = 0; i < N_TIME; i++) {
    memset(sent, i, N_BYTE);
    must(cuda->upload(device, memory, sent, N_BYTE));
    must(cuda->download(device, got, memory, N_BYTE));
    assert_memory_equal(got, sent, N_BYTE);
  }
  cuda->release(device, memory);
  cuda->close(device);
}

static void test_a_node_that_is_not_ready_is_told(void **state)
{
  (void)state;
  enum { NOT_READY = 802, DRIVER_MISMATCH = 803 };
  for (int error = NOT_READY; error <= DRIVER_MISMATCH; error++) {
    mill_pipeline *p = pipeline(&data, cuda, 2);
    data.next = 0;
    mill_emulation_fail(0, error);
    assert_int_equal(mill_pipeline_run(p, next_star, &data, take_row, &data), MILL_ERR_BACKEND);
    assert_non_null(strstr(mill_error_message(), "fabric manager of this node is not ready"));
    mill_pipeline_destroy(p);
    mill_emulation_reset();
  }
}

static void test_a_failure_hands_over_what_has_finished(void **state)
{
  (void)state;
  enum { ECC = 214, N_SLOT = 3 };
  const long before = mill_emulation_count().n_kernel;
  expect(&by_graph, N_SLOT);
  const long n_kernel = mill_emulation_count().n_kernel - before;
  mill_pipeline *p = NULL;
  must(mill_pipeline_create(&data.lib, &data.config.fit, cuda, N_SLOT, 1, 0, &p));
  int id[N_ARM];
  for (int a = 0; a < N_ARM; a++)
    must(mill_pipeline_waveset(p, a, n_pix_arm[a], data.wave_aa[a], &id[a]));
  for (int i = 0; i < N_STAR; i++)
    for (int k = 0; k < data.star[i].n_segment; k++)
      data.segment[i][k].waveset = id[data.segment[i][k].arm];
  data.next = 0;
  memset(data.got, 0, sizeof data.got);
  mill_emulation_fail(n_kernel * 3 / 4, ECC);
  assert_int_equal(mill_pipeline_run(p, next_star, &data, take_row, &data), MILL_ERR_BACKEND);
  assert_non_null(strstr(mill_error_message(), "memory is faulty"));
  mill_pipeline_destroy(p);
  mill_emulation_reset();
  int n_got = 0;
  for (int i = 0; i < n_fit; i++) {
    assert_true(data.got[i] <= 1);
    if (data.got[i])
      assert_memory_equal(&data.result[i], &by_graph.result[i], sizeof data.result[i]);
    n_got += data.got[i];
  }
  printf("%d of %d stars had finished\n", n_got, n_fit);
  assert_true(n_got >= 1 && n_got < n_fit);
}
#endif

/** Layers of several blocks of inputs and tiles of outputs, none of them full. */
static void test_wide_layers_equal_the_cpu(void **state)
{
  (void)state;
  NEEDS_GPU();
  static const char *const layer[] = {"ffma", "tf32x3", "tf32early"};
  static fitted once;
  const mill_library narrow = data.lib;
  memset(&data.lib, 0, sizeof data.lib);
  must(test_library_make(N_LABEL, N_ARM, SEED, &data.lib));
  must(test_library_widen(SEED, &data.lib));
  compare_answers(MILL_FLOAT64, 1e-6);
  for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
    switch_to("MILL_CUDA_LAST_LAYER", layer[i]);
    if (strcmp(layer[i], "tf32early") != 0) /* whose first Jacobians are coarse */
      compare_answers(MILL_FLOAT32, 1e-3);
    if (strcmp(layer[i], "tf32x3") == 0) /* a part of the next one */
      continue;
    /* of many stars at once every row of a tile is used, and of more than one tile */
    fit(&data, cuda, N_STAR);
    keep(&once);
    expect(&once, 1);
  }
  switch_to("MILL_CUDA_LAST_LAYER", NULL);
  /* rows of a grid's and of radial functions' outputs, which are not padded as layers are */
  must(test_library_to_rbf(&data.lib));
  compare_answers(MILL_FLOAT32, 1e-3);
  mill_library_clear(&data.lib);
  data.lib = narrow;
}

/* The last one: it leaves splines and radial functions in the place of the networks, which the
 * stars' templates are close to. */
static void test_other_emulators_equal_the_cpu_and_do_not_depend_on_the_batch(void **state)
{
  (void)state;
  NEEDS_GPU();
  must(test_library_to_mixed(&data.lib));
  compare_answers(MILL_FLOAT64, 1e-6);
  compare_answers(MILL_FLOAT32, 1e-3);
  compare_batches();
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_answers_equal_the_cpu_in_float64),
      cmocka_unit_test(test_answers_equal_the_cpu_in_float32),
      cmocka_unit_test(test_fits_equal_the_cpu),
      cmocka_unit_test(test_result_does_not_depend_on_the_batch),
      cmocka_unit_test(test_rounds_one_by_one_equal_the_graph),
      cmocka_unit_test(test_debug_mode_equals_the_graph),
      cmocka_unit_test(test_pieces_come_as_they_were_when_sent),
      cmocka_unit_test(test_unknown_switches_are_refused),
#ifdef MILL_CUDA_EMULATION
      cmocka_unit_test(test_the_host_waits_for_rounds_only),
      cmocka_unit_test(test_an_old_driver_has_no_graph),
      cmocka_unit_test(test_short_memory_changes_nothing),
      cmocka_unit_test(test_neighbours_in_memory_are_copied_one_by_one),
      cmocka_unit_test(test_without_a_graph_rounds_go_on_one_by_one),
      cmocka_unit_test(test_copies_keep_their_order),
      cmocka_unit_test(test_a_node_that_is_not_ready_is_told),
      cmocka_unit_test(test_a_failure_hands_over_what_has_finished),
#endif
      cmocka_unit_test(test_tensor_cores_keep_float32),
      cmocka_unit_test(test_coarse_first_steps_end_at_the_same_fits),
      cmocka_unit_test(test_wide_layers_equal_the_cpu),
      cmocka_unit_test(test_other_emulators_equal_the_cpu_and_do_not_depend_on_the_batch),
  };
  return cmocka_run_group_tests(tests, set_up, clean_up);
}
