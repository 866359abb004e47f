/* SPDX-License-Identifier: BSD-3-Clause */
/* Posteriors from spectra to rows.  A Gaussian posterior has the fit's errors; a star's posterior
 * does not depend on the other stars of the run; bad settings are refused.
 *
 * With arguments it runs no test, but serves campaigns/posteriors.py: "stars N SN ESS" prints
 * truth, posterior and samples of N stars; "likelihood I SN" evaluates points on standard input. */
#include "tests/mill_test.h"

enum { SEED = 2718, MAX_STAR = 512, N_DRAW = 100, N_LABEL = 4, N_ARM = 3 };

#include "tests/fit/made_survey.h"

/** One star's answer. */
typedef struct answer {
  mill_fit_result result;
  mill_posterior posterior;
  double draw[N_DRAW][N_PAR];
} answer;

static void usual_sampling(void)
{
  set.sample =
      (mill_sample_settings){.max_eval = 4000, .n_draw = N_DRAW, .least_ess = 100, .seed = 3};
}

/** Make star i: labels in the inner part of the hulls, v sin i up to 160 km/s. */
static void make_star(int i, double sn, made_star *star, double *truth)
{
  uint64_t random = SEED + 1000 * (uint64_t)i;
  made_star_init(&lib, 1, 0.8, i % 2 == 0, &random, star);
  made_theta(&lib, 0.6, 300, 160, &random, truth);
  made_star_fill(&lib, truth, sn, 1, &random, star);
}

typedef struct stream {
  made_run run; /* context of made_source */
  answer *out;  /* [n], by row */
} stream;

static int sink(void *context, mill_star *star)
{
  stream *s = context;
  const mill_fit_result *result = star->result;
  answer *a = &s->out[result->row];
  assert_null(star->model);
  a->result = *result;
  a->result.posterior = NULL;
  if (result->posterior) {
    a->posterior = *result->posterior;
    memcpy(a->draw, mill_posterior_draw(result->posterior), sizeof a->draw);
  }
  return MILL_OK;
}

static void sample(int n_slot, int n_thread, int n, made_star *star, const int *order, answer *out)
{
  MILL_AT_END(mill_pipeline_destroy_at) mill_pipeline *pipeline = NULL;
  MILL_OWNED mill_star *raw = NULL;
  memset(out, 0, (size_t)n * sizeof *out);
  assert_ok(MILL_ALLOC(n, &raw));
  assert_ok(
      mill_pipeline_create(&lib, 1, &set, mill_backend_cpu(NULL), n_slot, n_thread, 0, &pipeline));
  for (int i = 0; i < n; i++) {
    made_star_raw(i, &star[i], &raw[i]);
    raw[i].identity = 100 + (uint64_t)i;
  }
  stream s = {{.star = raw, .order = order, .n = n}, out};
  assert_ok(mill_pipeline_run(pipeline, made_source, &s, sink, &s));
}

MILL_TEST(posteriors_do_not_depend_on_slots_threads_or_order)
{
  enum { N = 4 };
  usual_sampling();
  static made_star star[N];
  static answer out[3][N];
  static const int mixed[N] = {3, 0, 2, 1};
  double truth[N_PAR];
  for (int i = 0; i < N; i++)
    make_star(i, 15, &star[i], truth);
  for (int i = 0; i < star[2].n_segment; i++) /* one that cannot be fitted */
    memset(star[2].segment[i].ivar, 0, sizeof star[2].segment[i].ivar);
  sample(1, 1, N, star, NULL, out[0]);
  sample(3, 2, N, star, mixed, out[1]);
  sample(8, 1, N, star, NULL, out[2]);
  for (int k = 1; k < 3; k++)
    for (int i = 0; i < N; i++)
      if (memcmp(&out[0][i], &out[k][i], sizeof out[0][i]) != 0)
        fail_msg("run %d: star %d differs", k, i);
  for (int i = 0; i < N; i++)
    assert_int_equal(out[0][i].result.status, i == 2 ? MILL_STATUS_NO_ARM : MILL_STATUS_FITTED);
  assert_int_equal(out[0][2].posterior.n_eval, 0);
  assert_true(out[0][1].posterior.n_eval > 100);
}

/** At high S/N the posterior is the Gaussian of the fit's curvature. */
MILL_TEST(the_spread_is_the_fits_covariance)
{
  enum { N = 2 };
  static made_star star[N];
  static answer out[N];
  double truth[N_PAR];
  usual_sampling();
  for (int i = 0; i < N; i++)
    make_star(i + 1, 150, &star[i], truth);
  set.sample.max_eval = 10000;
  set.sample.least_ess = 4900; /* a deviation is good to 1 % */
  sample(2, 1, N, star, NULL, out);
  for (int i = 0; i < N; i++) {
    const mill_fit_result *r = &out[i].result;
    const mill_posterior *p = &out[i].posterior;
    assert_int_equal(p->flag, 0);
    for (int j = 0; j < N_PAR; j++) {
      const int at = j * N_PAR - j * (j - 1) / 2;
      const double error = sqrt(r->covar[at]) / r->err_scale;
      printf("star %d, parameter %d: %.4f of the fit's error\n", i, j, sqrt(p->covar[at]) / error);
      assert_close(sqrt(p->covar[at]) / error, 1, 0.07); /* 1.04 of many samples */
      assert_close((p->mean[j] - made_par(r, j)) / error, 0, 0.1);
    }
  }
}

MILL_TEST(settings_that_cannot_be_are_refused)
{
  mill_pipeline *pipeline = NULL;
  usual_sampling();
  set.sample.max_eval = 100;
  assert_fails(mill_pipeline_create(&lib, 1, &set, mill_backend_cpu(NULL), 1, 1, 0, &pipeline),
               MILL_ERR_CONFIG, "--max-evaluations");
}

/* ---- for the campaign ---- */

static void print_numbers(const char *name, int i, int n, const double *x)
{
  printf("%s %d", name, i);
  for (int k = 0; k < n; k++)
    printf(" %.17g", x[k]);
  putchar('\n');
}

static int print_stars(int n, double sn, double ess)
{
  static made_star star[MAX_STAR];
  static answer out[MAX_STAR];
  static double truth[MAX_STAR][N_PAR];
  set.sample.least_ess = ess;
  set.sample.max_eval = 20 * (int)ess;
  n = n < MAX_STAR ? n : MAX_STAR;
  for (int i = 0; i < n; i++)
    make_star(i, sn, &star[i], truth[i]);
  sample(8, 1, n, star, NULL, out);
  for (int i = 0; i < n; i++) {
    const mill_posterior *p = &out[i].posterior;
    const double more[4] = {out[i].result.status, p->flag, (double)p->n_eval, p->pareto};
    double sigma[N_PAR];
    for (int j = 0; j < N_PAR; j++)
      sigma[j] = sqrt(p->covar[j * N_PAR - j * (j - 1) / 2]);
    print_numbers("truth", i, N_PAR, truth[i]);
    print_numbers("mean", i, N_PAR, p->mean);
    print_numbers("sigma", i, N_PAR, sigma);
    print_numbers("ess", i, N_PAR, p->ess);
    print_numbers("more", i, 4, more);
    print_numbers("draws", i, N_DRAW * N_PAR, &out[i].draw[0][0]);
  }
  return 0;
}

static int answer_points(int i, double sn)
{
  enum { MOST = 512 };
  static made_star star;
  static double theta[MOST * N_PAR];
  static mill_evaluation eval[MOST];
  double truth[N_PAR];
  MILL_AT_END(mill_pipeline_destroy_at) mill_pipeline *pipeline = NULL;
  mill_star raw;
  mill_fit_result prepared;
  set.sample.max_eval = 0;
  make_star(i, sn, &star, truth);
  assert_ok(mill_pipeline_create(&lib, 1, &set, mill_backend_cpu(NULL), 1, 1, 0, &pipeline));
  made_star_raw(0, &star, &raw);
  for (int n; scanf("%d", &n) == 1 && n > 0 && n <= MOST; fflush(stdout)) {
    for (int k = 0; k < n * N_PAR; k++)
      if (scanf("%lf", &theta[k]) != 1)
        return 1;
    made_ask(pipeline, &raw, MILL_REQ_VALUES, n, theta, eval, &prepared);
    for (int k = 0; k < n; k++)
      printf("%.17g\n", eval[k].f);
  }
  return 0;
}

int main(int argc, char **argv)
{
  if (argc > 3) {
    set_up(NULL);
    usual_sampling();
    return strcmp(argv[1], "stars") == 0
               ? print_stars(atoi(argv[2]), atof(argv[3]), argc > 4 ? atof(argv[4]) : 300)
               : answer_points(atoi(argv[2]), atof(argv[3]));
  }
  return MILL_RUN_TESTS(set_up, tear_down);
}
