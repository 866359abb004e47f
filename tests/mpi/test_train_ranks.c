/* SPDX-License-Identifier: BSD-3-Clause */
/* Several ranks train an arm's network as one rank does, with the same bits each time. */
#include "tests/mill_test.h"

#include "src/train/train_arm.h"
#include "src/system/blas_threads.h"
#include "tests/train_problem.h"

enum { N_MODEL = 90, N_TRAIN = 77, N_PIX = 60, N_LABEL = 2, N_WIDE = 12 };

static mill_mpi ranks;
static float x[N_MODEL * N_LABEL];

/* Lines whose depth and width depend on the labels. */
static double flux_of(const float *label, int p)
{
  const double a = (double)label[0], b = (double)label[1];
  const double line = exp(-0.5 * pow((p - 20) / (3 + 0.5 * b), 2));
  const double other = exp(-0.5 * pow((p - 42) / 4.0, 2));
  return (2 + 0.3 * a) * (1 - 0.4 / (1 + exp(-a)) * line - 0.2 / (1 + exp(a * b)) * other);
}

static int read_flux(void *context, int n, const int *model, float *flux)
{
  (void)context;
  for (int i = 0; i < n; i++)
    for (int p = 0; p < N_PIX; p++)
      flux[i * N_PIX + p] = (float)flux_of(x + model[i] * N_LABEL, p);
  return MILL_OK;
}

static int no_flux(void *context, int n, const int *model, float *flux)
{
  (void)n;
  (void)model;
  (void)flux;
  return context ? mill_error_set(MILL_ERR_INPUT, __FILE__, __LINE__, "a model is bad")
                 : read_flux(NULL, n, model, flux);
}

typedef struct trained {
  mill_train_state state;
  mill_emulator e;
  mill_train_arm_report report;
} trained;

static void train(const mill_mpi *mpi, int last, trained *t)
{
  mill_train_arm_settings set;
  const mill_train_arm_task task = {N_PIX, N_LABEL, N_MODEL, N_TRAIN, x, read_flux, NULL};
  memset(t, 0, sizeof *t);
  mill_train_arm_settings_init(&set);
  set.net.n_hidden = 2;
  set.net.width[0] = set.net.width[1] = N_WIDE;
  set.net.batch = 20; /* the last one has 17 */
  set.net.n_epoch = 30;
  set.last = last;
  set.keep_gib = last == MILL_TRAIN_PIXELS ? 0 : 4; /* read for every step */
  assert_ok(
      mill_train_arm(mpi, mill_train_ops_cpu(), &set, &task, NULL, &t->state, &t->e, &t->report));
}

static void clear(trained *t)
{
  mill_arm arm = {.emulator = t->e};
  mill_arm_clear(&arm);
  mill_train_state_clear(&t->state);
}

/* Return the largest error of ln flux of e (two hidden layers) over the models left out. */
static double left_out_error(const mill_emulator *e)
{
  double worst = 0;
  for (int i = N_TRAIN; i < N_MODEL; i++) {
    double a[2][N_WIDE];
    for (int k = 0; k < N_LABEL; k++)
      a[0][k] = (double)x[i * N_LABEL + k];
    for (int l = 0; l < 2; l++)
      for (int j = 0; j < N_WIDE; j++) {
        double z = (double)e->bias[l][j];
        for (int k = 0; k < e->n_in[l]; k++)
          z += (double)e->weight[l][j * e->n_in[l] + k] * a[l % 2][k];
        a[(l + 1) % 2][j] = z / (1 + exp(-z));
      }
    for (int p = 0; p < N_PIX; p++) {
      double y = (double)e->bias[2][p];
      for (int k = 0; k < N_WIDE; k++)
        y += (double)e->weight[2][p * N_WIDE + k] * a[0][k];
      worst = fmax(worst, fabs(y - log(flux_of(x + i * N_LABEL, p))));
    }
  }
  return worst;
}

MILL_TEST(as_one_rank)
{
  for (int last = MILL_TRAIN_COMPONENTS; last <= MILL_TRAIN_PIXELS; last++) {
    MILL_AT_END(clear) trained a, b, c;
    train(&alone, last, &a);
    train(&ranks, last, &b);
    train(&ranks, last, &c);
    const mill_train_epoch *one = a.state.epoch, *several = b.state.epoch;
    /* sums of float32 in another order; the parameters move apart from then on */
    assert_close(several[0].train, one[0].train, 1e-6 * one[0].train);
    assert_close(several[0].validation, one[0].validation, 1e-6 * one[0].validation);
    assert_close(several[29].train, one[29].train, 0.02 * one[29].train);
    assert_int_equal(b.report.n_component, a.report.n_component);
    assert_memory_equal(b.state.best, c.state.best, b.state.n_param * sizeof(float));
    for (int l = 0; l < 3; l++)
      assert_memory_equal(b.e.weight[l], c.e.weight[l],
                          (size_t)b.e.n_in[l] * (size_t)b.e.n_out[l] * sizeof(float));
    const double error = left_out_error(&b.e);
    if (ranks.rank == 0)
      printf("last %d: %d components, loss %.3g, one rank %.3g; solved %.3g; largest error %.3g\n",
             last, b.report.n_component, several[29].validation, one[29].validation, b.report.loss,
             error);
    /* The report's loss is the mean square of the errors of ln flux, times 100^2 (S/N 100).  The
     * largest of 780 errors stays below ten times their rms if the loss is this emulator's. */
    assert_true(error < 10 * 0.01 * sqrt(b.report.loss));
    assert_true(b.report.loss < b.report.loss_unsolved);
  }
}

/* A model that cannot be read on one rank ends all of them. */
MILL_TEST(failing_rank)
{
  int fails = ranks.rank == ranks.size - 1;
  mill_train_arm_settings set;
  mill_train_arm_report report;
  mill_train_state s = {0};
  mill_emulator e = {0};
  const mill_train_arm_task task = {
      N_PIX, N_LABEL, N_MODEL, N_TRAIN, x, no_flux, fails ? &fails : NULL};
  mill_train_arm_settings_init(&set);
  assert_int_equal(mill_train_arm(&ranks, mill_train_ops_cpu(), &set, &task, NULL, &s, &e, &report),
                   MILL_ERR_INPUT);
  assert_string_equal(mill_error_message(), "a model is bad");
}

int main(void)
{
  int n_blas = 0;
  if (mill_mpi_start(&ranks) != MILL_OK || mill_blas_begin(1, &n_blas) != MILL_OK)
    return 1;
  for (int i = 0; i < N_MODEL; i++) {
    x[2 * i] = (float)(1.5 * sin(2.4 * i));
    x[2 * i + 1] = (float)(1.5 * cos(1.7 * i + 0.3));
  }
  const int failed = MILL_RUN_TESTS(NULL, NULL);
  mill_blas_end(&n_blas);
  mill_mpi_end(&ranks);
  return failed;
}
