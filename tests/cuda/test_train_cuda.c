/* SPDX-License-Identifier: BSD-3-Clause */
/* Training on a GPU, real or emulated, against training on the CPU, for every loss and precision:
 * losses, gradients, hidden outputs, whole trainings.  A second run has the same bits, and several
 * ranks train together. */
#include "tests/mill_test.h"

#include "kernels/gpu.h"
#include "tests/train_problem.h"

/* no multiple of a warp or a block; the last batch is smaller */
enum { N_MODEL = 45, N_TRAIN = 38, N_IN = 3, N_OUT = 301, BATCH = 16, N_EPOCH = 4 };

static const mill_train_ops *tested;
static mill_train_settings set;
static mill_train_problem problem;
static float x[N_MODEL * N_IN], target[N_MODEL * N_OUT], scale[N_OUT], last[21 * N_OUT];

static int rows(void *context, int n, const int *model, const float **row)
{
  (void)context;
  for (int i = 0; i < n; i++)
    row[i] = target + model[i] * N_OUT;
  return MILL_OK;
}

static MILL_FIXTURE(set_up)
{
  mill_train_settings_init(&set);
  set.n_hidden = 2;
  set.width[0] = 33;
  set.width[1] = 20;
  set.batch = BATCH;
  set.n_epoch = N_EPOCH;
  set.decay = 0.01;
  set.n_thread = 1;
  wave(1.2, 2.3, 0.1, N_MODEL * N_IN, x);
  wave(1.5, 0.9, 0.7, N_MODEL * N_OUT, target);
  wave(0.3, 1.1, 0, N_OUT, scale);
  for (int j = 0; j < N_OUT; j++)
    scale[j] += 1;
  wave(0.2, 1.7, 0.3, 21 * N_OUT, last);
  problem = (mill_train_problem){.n_in = N_IN,
                                 .n_out = N_OUT,
                                 .n = N_MODEL,
                                 .n_train = N_TRAIN,
                                 .x = x,
                                 .scale = scale,
                                 .n_norm = N_OUT,
                                 .rows = rows,
                                 .weight = last,
                                 .bias = last + 20 * N_OUT};
  return 0;
}

/* Largest difference as a part of the largest number. */
static double differ(size_t n, const float *a, const float *b)
{
  double most = 0, worst = 0;
  for (size_t i = 0; i < n; i++) {
    most = fmax(most, fabs((double)b[i]));
    worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
  }
  return worst / most;
}

/* Write a batch's slopes to out; returns its loss. */
static double slopes_of(const mill_train_ops *ops, const int *model, const float *param, float *out)
{
  double loss = 0;
  float *slope = NULL;
  mill_train_team *w = NULL;
  assert_ok(mill_train_team_create(ops, &set, &problem, BATCH, &w));
  assert_ok(mill_train_team_bind(w, param));
  memcpy(w->model, model, BATCH * sizeof *model);
  assert_ok(mill_train_team_rows(w, BATCH, 1));
  assert_ok(ops->slopes(w->work, &w->rows, BATCH));
  assert_ok(ops->take_loss(w->work, &loss));
  assert_ok(ops->gradient(w->work, &slope));
  memcpy(out, slope, w->net.shape.n_param * sizeof *out);
  mill_train_team_destroy(w);
  return loss / (BATCH * N_OUT);
}

MILL_TEST(slopes_are_the_cpu_s)
{
  /* A slope sums some hundred products, each off by 6e-8 (float32), or by 5e-4 or 4e-3 (factors
   * rounded to TF32 or BF16).  `least` shows that the emulated cuBLAS rounds factors too. */
  static const double most[] = {5e-6, 4e-3, 3e-2}, least[] = {0, 1e-5, 1e-4};
  int model[BATCH];
  for (int i = 0; i < BATCH; i++)
    model[i] = (5 * i + 2) % N_TRAIN;
  for (int kind = MILL_TRAIN_L2; kind <= MILL_TRAIN_HUBER; kind++)
    for (int precision = MILL_TRAIN_FLOAT32; precision <= MILL_TRAIN_BF16; precision++) {
      MILL_AT_END(mill_train_state_clear) mill_train_state s;
      double loss[2];
      set.loss = kind;
      set.precision = precision;
      assert_ok(mill_train_begin(&set, &problem, &s));
      float *const out[] = {s.m, s.v};
      const mill_train_ops *const ops[] = {mill_train_ops_cpu(), tested};
      for (int k = 0; k < 2; k++)
        loss[k] = slopes_of(ops[k], model, s.param, out[k]);
      const double off = differ(s.n_param, s.v, s.m);
      printf("loss %d, precision %d: slopes differ by %.2g of the largest\n", kind, precision, off);
      assert_close(loss[1], loss[0], most[precision] * loss[0]);
      /* the slope of L1 jumps where a residual is 0 */
      assert_true(off < (kind == MILL_TRAIN_L1 ? 10 : 1) * most[precision]);
      assert_true(off >= least[precision]);
    }
  set.loss = MILL_TRAIN_L2;
  set.precision = MILL_TRAIN_FLOAT32;
}

MILL_TEST(hidden_outputs_are_the_cpu_s)
{
  static float h[2][N_MODEL * 20];
  int model[N_MODEL];
  MILL_AT_END(mill_train_state_clear) mill_train_state s;
  for (int i = 0; i < N_MODEL; i++)
    model[i] = N_MODEL - 1 - i;
  assert_ok(mill_train_begin(&set, &problem, &s));
  const mill_train_ops *const ops[] = {mill_train_ops_cpu(), tested};
  for (int k = 0; k < 2; k++)
    assert_ok(mill_train_hidden(ops[k], &set, &problem, s.param, N_MODEL, model, h[k]));
  assert_true(differ(N_MODEL * 20, h[1], h[0]) < 1e-6);
}

static void train(const mill_train_ops *ops, const mill_mpi *mpi, mill_train_state *s)
{
  assert_ok(mill_train_begin(&set, &problem, s));
  assert_ok(mill_train_run(mpi, ops, &set, &problem, NULL, s));
  assert_int_equal(s->n_epoch, N_EPOCH);
}

MILL_TEST(trainings_are_the_cpu_s_and_repeat)
{
  mill_train_state s[3];
  train(mill_train_ops_cpu(), &alone, &s[0]);
  train(tested, &alone, &s[1]);
  train(tested, &alone, &s[2]);
  for (int i = 0; i < N_EPOCH; i++) {
    /* errors of a dozen steps: each has the relative error of its slopes */
    assert_close(s[1].epoch[i].train, s[0].epoch[i].train, 1e-5 * s[0].epoch[i].train);
    assert_close(s[1].epoch[i].validation, s[0].epoch[i].validation,
                 1e-5 * s[0].epoch[i].validation);
    assert_true(s[2].epoch[i].train == s[1].epoch[i].train);
  }
  assert_true(s[1].epoch[N_EPOCH - 1].train < s[1].epoch[0].train);
  assert_memory_equal(s[2].param, s[1].param, s[1].n_param * sizeof(float));
  assert_memory_equal(s[2].v, s[1].v, s[1].n_param * sizeof(float));
  assert_true(differ(s[0].n_param, s[1].v, s[0].v) < 1e-4);
  for (int k = 0; k < 3; k++)
    mill_train_state_clear(&s[k]);
}

/* Orthonormal: row k of the cosine transform of n numbers. */
static double cosine(int k, int n, int i)
{
  return sqrt((k ? 2.0 : 1.0) / n) * cos(acos(-1.0) * k * (i + 0.5) / n);
}

/* Spectra are made of known directions; eigenvalues and directions agree to float64 rounding. */
MILL_TEST(principal_directions)
{
  enum { N_ROW = 13, N_PIX = 40, N_VALUE = 5, N = 3 };
  static const double size[N_VALUE] = {7, 4, 2.5, 1, 0.3};
  double rows_[N_ROW][N_PIX] = {{0}}, value[N], out[N][N_PIX];
  for (int i = 0; i < N_ROW; i++)
    for (int p = 0; p < N_PIX; p++)
      for (int k = 0; k < N_VALUE; k++)
        rows_[i][p] += size[k] * cosine(k + 2, N_ROW, i) * cosine(2 * k + 1, N_PIX, p);
  assert_ok(tested->directions(N_ROW, N_PIX, rows_[0], N, value, out[0]));
  for (int j = 0; j < N; j++) {
    const int k = N - 1 - j;
    const double sign = out[j][0] < 0 ? -1 : 1;
    assert_float_equal(value[j], size[k] * size[k], 1e-12 * size[0] * size[0]);
    for (int p = 0; p < N_PIX; p++)
      assert_float_equal(sign * out[j][p], size[k] * cosine(2 * k + 1, N_PIX, p), 1e-12 * size[0]);
  }
}

/* If several ranks train, a step has two parts: slopes go to the host, and summed slopes from the
 * host make the step.  Here one rank does both parts. */
MILL_TEST(parts_of_a_step)
{
  mill_train_state s;
  mill_train_net net = {
      .loss = MILL_TRAIN_L2, .n_norm = N_OUT, .scale = scale, .n_room = BATCH, .n_thread = 1};
  const mill_train_adam adam = {1e-3, 0.01, 0.9, 0.999, 1e-8, 1};
  const float *row[BATCH], *to[BATCH];
  const mill_train_rows batch = {BATCH, row, to}, none = {0, row, to};
  mill_train_work *w = NULL;
  float *gradient = NULL, *whole, *slope;
  mill_train_shape_of(&set, N_IN, N_OUT, &net.shape);
  const size_t n = net.shape.n_param, half = n / 2;
  for (int i = 0; i < BATCH; i++) {
    row[i] = x + i * N_IN;
    to[i] = target + i * N_OUT;
  }
  assert_ok(MILL_ALLOC(n, &whole));
  assert_ok(MILL_ALLOC(n, &slope));
  assert_ok(tested->create(&net, &w));
  for (int parts = 1; parts <= 2; parts++) {
    assert_ok(mill_train_begin(&set, &problem, &s));
    assert_ok(tested->bind(w, s.param, s.m, s.v));
    assert_ok(tested->slopes(w, &batch, BATCH));
    if (parts == 1) {
      assert_ok(tested->adam(w, &adam, 0, n, NULL));
      assert_ok(tested->fetch(w));
      memcpy(whole, s.param, n * sizeof *whole);
      mill_train_state_clear(&s);
      continue;
    }
    assert_ok(tested->gradient(w, &gradient));
    memcpy(slope, gradient, n * sizeof *slope);
    assert_ok(tested->adam(w, &adam, 0, half, slope));
    assert_ok(tested->adam(w, &adam, half, n - half, slope + half));
  }
  assert_memory_equal(s.param, whole, n * sizeof *whole);
  /* what the host has changed counts */
  memset(s.param, 0, n * sizeof *s.param);
  assert_ok(tested->renew(w));
  assert_ok(tested->slopes(w, &none, BATCH));
  assert_ok(tested->gradient(w, &gradient));
  for (size_t i = 0; i < n; i++)
    assert_true(gradient[i] == 0);
  double loss[2] = {0, 0};
  assert_ok(tested->losses(w, &batch, &loss[0]));
  for (int i = 0; i < BATCH * N_OUT; i++) {
    const double u = (double)scale[i % N_OUT] * (double)target[i];
    loss[1] += u * u;
  }
  assert_close(loss[0], loss[1], 1e-6 * loss[1]); /* float32 squares */
  tested->destroy(w);
  mill_train_state_clear(&s);
  MILL_FREE(whole, slope);
}

int main(int argc, char **argv)
{
  int err = MILL_OK, failed = 77;
  if (MPI_Init(&argc, &argv) != MPI_SUCCESS)
    return 1;
  tested = mill_train_ops_cuda(&err);
  if (tested)
    failed = MILL_RUN_TESTS(set_up, NULL);
  else
    printf("SKIPPED: %s\n", mill_error_message());
  MPI_Finalize();
  return failed;
}
