/* SPDX-License-Identifier: BSD-3-Clause */
/* Training gives the same bits with any number of threads and after a stop.  Also tested: schedules
 * and the last layer, solved by least squares.  e2e/test_library_train.py compares with NumPy. */
#include "tests/mill_test.h"

#include "tests/train_problem.h"

enum { N_IN = 3, N_OUT = 7, N_PARAM = 3 * 5 + 5 + 5 * 4 + 4 + 4 * 7 + 7 };

enum { MANY = 150, WIDTH = 100, N_WIDE = 2100 };

typedef struct example {
  mill_train_settings set;
  mill_train_problem problem;
  float x[MANY * N_IN], target[MANY * N_OUT], scale[N_OUT], param[N_PARAM];
  const float *made; /* [MANY][problem.n_out], what rows() gives */
} example;

static int rows(void *context, int n, const int *model, const float **row)
{
  const example *e = context;
  for (int i = 0; i < n; i++)
    row[i] = e->made + model[i] * e->problem.n_out;
  return MILL_OK;
}

static void make_many(example *e)
{
  memset(e, 0, sizeof *e);
  mill_train_settings_init(&e->set);
  e->set.n_hidden = 2;
  e->set.width[0] = 5;
  e->set.width[1] = 4;
  e->set.batch = 32;
  e->set.n_epoch = 6;
  e->set.schedule = MILL_TRAIN_COSINE;
  e->set.rate = 1e-2;
  e->set.decay = 0.1;
  wave(1.2, 2.3, 0.1, MANY * N_IN, e->x);
  wave(1.5, 0.9, 0.7, MANY * N_OUT, e->target);
  e->made = e->target;
  wave(0.5, 1.1, 0, N_OUT, e->scale);
  for (int j = 0; j < N_OUT; j++)
    e->scale[j] = (float)(1.2 + (double)e->scale[j]);
  wave(0.6, 1.7, 0.3, N_PARAM, e->param);
  e->problem = (mill_train_problem){.n_in = N_IN,
                                    .n_out = N_OUT,
                                    .n = MANY,
                                    .n_train = 110,
                                    .x = e->x,
                                    .scale = e->scale,
                                    .n_norm = N_OUT,
                                    .rows = rows,
                                    .context = e,
                                    .weight = e->param + N_PARAM - 5 * N_OUT,
                                    .bias = e->param + N_PARAM - N_OUT};
}

static int stop_at_three(void *context, mill_train_state *state)
{
  (void)context;
  return state->n_epoch == 3
             ? mill_error_set(MILL_ERR_STOPPED, __FILE__, __LINE__, "as the test wishes")
             : MILL_OK;
}

/* An example so large that all loops have several blocks (kernels/train/train_cpu.c).  A block has
 * 64 models or neurons, 512 outputs or 16,384 parameters. */
typedef struct wide_example {
  example e;
  float target[MANY * N_WIDE], scale[N_WIDE], last[(WIDTH + 1) * N_WIDE];
} wide_example;

static void make_wide(wide_example *w)
{
  make_many(&w->e);
  w->e.set.batch = 70; /* of 110 models: blocks of 64 and 6, then of 40 */
  w->e.set.width[0] = w->e.set.width[1] = WIDTH;
  wave(1.5, 0.9, 0.7, MANY * N_WIDE, w->target);
  w->e.made = w->target;
  wave(0.1, 1.7, 0.3, (WIDTH + 1) * N_WIDE, w->last);
  for (int j = 0; j < N_WIDE; j++)
    w->scale[j] = (float)(1 + 0.3 * sin(j));
  mill_train_problem *p = &w->e.problem;
  p->n_out = N_WIDE;
  p->n_norm = N_WIDE;
  p->scale = w->scale;
  p->weight = w->last;
  p->bias = w->last + WIDTH * N_WIDE;
}

MILL_TEST(same_bits)
{
  static wide_example w;
  static const mill_train_watch watch = {.after = stop_at_three};
  mill_train_state s[3];
  make_wide(&w);
  const example *e = &w.e;
  for (int k = 0; k < 3; k++) {
    w.e.set.n_thread = k == 1 ? 3 : 1;
    assert_ok(mill_train_begin(&e->set, &e->problem, &s[k]));
    if (k == 2) { /* stopped in between */
      assert_int_equal(
          mill_train_run(&alone, mill_train_ops_cpu(), &e->set, &e->problem, &watch, &s[k]),
          MILL_ERR_STOPPED);
      assert_int_equal(s[k].n_epoch, 3);
    }
    assert_ok(mill_train_run(&alone, mill_train_ops_cpu(), &e->set, &e->problem, NULL, &s[k]));
    assert_int_equal(s[k].n_epoch, 6);
    assert_true(s[k].n_param > 5 * 16384);
    assert_true(s[k].epoch[5].validation > 0);
    assert_true(s[k].epoch[5].train < s[k].epoch[0].train);
  }
  for (int k = 1; k < 3; k++) {
    assert_memory_equal(s[k].param, s[0].param, s[0].n_param * sizeof(float));
    assert_memory_equal(s[k].best, s[0].best, s[0].n_param * sizeof(float));
    assert_true(s[k].best_loss == s[0].best_loss);
  }
  for (int k = 0; k < 3; k++)
    mill_train_state_clear(&s[k]);
}

MILL_TEST(schedules)
{
  static example e;
  MILL_AT_END(mill_train_state_clear) mill_train_state s;
  make_many(&e);
  assert_ok(mill_train_begin(&e.set, &e.problem, &s));
  assert_ok(mill_train_run(&alone, mill_train_ops_cpu(), &e.set, &e.problem, NULL, &s));
  for (int t = 0; t < 6; t++)
    assert_close(s.epoch[t].rate, 1e-6 + 0.5 * (1e-2 - 1e-6) * (1 + cos(M_PI * t / 6)), 1e-15);
  mill_train_state_clear(&s);
  /* A rate of 1e-30 never lowers the loss, although a better last layer exists.  Two epochs without
   * progress halve the rate.  In the second run four epochs without progress end the training. */
  e.set = (mill_train_settings){.n_hidden = 2,
                                .width = {5, 4},
                                .batch = 200,
                                .n_epoch = 40,
                                .schedule = MILL_TRAIN_PLATEAU,
                                .rate = 1e-30,
                                .least_rate = 1e-33,
                                .patience = 2,
                                .factor = 0.5,
                                .huber = 1,
                                .seed = 1,
                                .n_thread = 1};
  assert_ok(mill_train_begin(&e.set, &e.problem, &s));
  assert_ok(mill_train_run(&alone, mill_train_ops_cpu(), &e.set, &e.problem, NULL, &s));
  assert_int_equal(s.best_epoch, 1);
  assert_close(s.epoch[1].rate, 1e-30, 1e-40);
  assert_close(s.epoch[3].rate, 0.5e-30, 1e-40);
  assert_close(s.epoch[5].rate, 0.25e-30, 1e-40);
  assert_int_equal(s.n_epoch, 21); /* ten times lower is below the least rate */
  mill_train_state_clear(&s);
  e.set.stop_after = 4;
  assert_ok(mill_train_begin(&e.set, &e.problem, &s));
  assert_ok(mill_train_run(&alone, mill_train_ops_cpu(), &e.set, &e.problem, NULL, &s));
  assert_int_equal(s.n_epoch, 5);
}

MILL_TEST(no_number)
{
  static example e;
  mill_train_state s;
  make_many(&e);
  e.target[5] = NAN;
  assert_ok(mill_train_begin(&e.set, &e.problem, &s));
  assert_fails(mill_train_run(&alone, mill_train_ops_cpu(), &e.set, &e.problem, NULL, &s),
               MILL_ERR_INPUT, "epoch 1");
  mill_train_state_clear(&s);
  e.set.width[1] = MILL_MAX_WIDTH + 1;
  assert_int_equal(mill_train_settings_check(&e.set), MILL_ERR_USAGE);
}

/* The hidden layers can make the targets with another last layer, which must be found. */
MILL_TEST(solved_last_layer)
{
  static example e;
  MILL_AT_END(mill_train_state_clear) mill_train_state s;
  double before = 0, after = 0;
  int model[MANY];
  float h[MANY * 4], asked[5 * N_OUT];
  make_many(&e);
  for (int i = 0; i < MANY; i++)
    model[i] = i;
  assert_ok(mill_train_begin(&e.set, &e.problem, &s));
  memcpy(s.best, s.param, s.n_param * sizeof *s.best);
  assert_ok(mill_train_hidden(mill_train_ops_cpu(), &e.set, &e.problem, s.best, MANY, model, h));
  wave(0.8, 0.77, 0.2, 5 * N_OUT, asked);
  for (int i = 0; i < MANY; i++)
    for (int j = 0; j < N_OUT; j++) {
      double sum = (double)asked[4 * N_OUT + j];
      for (int k = 0; k < 4; k++)
        sum += (double)asked[4 * j + k] * (double)h[4 * i + k];
      e.target[i * N_OUT + j] = (float)sum;
    }
  assert_ok(
      mill_train_solve_last(&alone, mill_train_ops_cpu(), &e.set, &e.problem, &s, &before, &after));
  printf("validation loss %.3g, solved %.3g\n", before, after);
  /* float32: 1e-7 of targets around 1, squared */
  assert_true(before > 0.01 && after < 1e-11);
}

int main(int argc, char **argv)
{
  MPI_Init(&argc, &argv);
  const int failed = MILL_RUN_TESTS(NULL, NULL);
  MPI_Finalize();
  return failed;
}
