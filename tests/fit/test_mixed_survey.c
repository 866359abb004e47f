/* The reference survey with wavelengths of their own for every star: bits that do not
 * depend on what else is in the run, and memory within its limit.
 *
 * With arguments a benchmark, a process each because of the peak of memory:
 *   test_fit_mixed_survey N_STAR shared|own LIMIT_MIB|-1 N_THREAD OPTIMIZER
 * N_STAR (more than the survey has: once more from the beginning), all on the file's
 * wavelengths or star i's moved by i x 1e-6 A; LIMIT_MIB of wavelength sets, -1: none;
 * OPTIMIZER 0 hybrid, 1 Nelder-Mead, 2 Levenberg-Marquardt. */
#include "tests/mill_test.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "io/library/library_file.h"
#include "src/config/config.h"
#include "tests/fit/star_data.h"

enum { N_SURVEY = 200, N_TEST = 20, N_SLOT = 64, MAX_PIX = 8192 };

typedef struct survey {
  mill_library lib;
  mill_config config;
  star_data data;
  mill_pipeline *pipeline;
  /* of a run */
  int n, own, next, n_held;
  const int *order; /**< NULL: as they are */
  mill_raw_segment segment[MILL_MAX_ARM];
  double wave_aa[MAX_PIX];
  double set_s; /**< CPU time of the sets */
  size_t most_bytes;
  mill_fit_result *result; /**< by row, or NULL */
} survey;

static void must(int err)
{
  if (err != MILL_OK)
    fail_msg("%s", mill_error_message());
}

static double clock_s(clockid_t which)
{
  struct timespec t;
  clock_gettime(which, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void give_back(survey *s)
{
  for (int k = 0; k < s->n_held; k++)
    mill_pipeline_waveset_release(s->pipeline, s->segment[k].waveset);
  s->n_held = 0;
}

static int source(void *context, mill_star *star)
{
  survey *s = context;
  give_back(s);
  if (s->next == s->n)
    return 0;
  const int i = s->order ? s->order[s->next] : s->next;
  s->next++;
  star_data_star(&s->data, i % s->data.n_row, s->segment, star);
  star->row = i;
  const double start = clock_s(CLOCK_THREAD_CPUTIME_ID);
  for (int k = 0; k < star->n_segment; k++) {
    mill_raw_segment *segment = &s->segment[k];
    assert_true(segment->n_pix <= MAX_PIX);
    for (int p = 0; p < segment->n_pix; p++)
      s->wave_aa[p] = s->data.wave_aa[segment->arm][p] + (s->own ? 1e-6 * (i + 1) : 0);
    must(mill_pipeline_waveset(s->pipeline, segment->arm, segment->n_pix, s->wave_aa,
                               &segment->waveset));
    s->n_held++;
  }
  s->set_s += clock_s(CLOCK_THREAD_CPUTIME_ID) - start;
  mill_waveset_stats now;
  mill_pipeline_waveset_stats(s->pipeline, &now);
  s->most_bytes = now.bytes > s->most_bytes ? now.bytes : s->most_bytes;
  return 1;
}

static int sink(void *context, const mill_fit_result *result, const float *const *model)
{
  survey *s = context;
  (void)model;
  if (s->result)
    s->result[result->row] = *result;
  return MILL_OK;
}

/** 0 without the test data. */
static int open_survey(int n_row, survey *s)
{
  char path[3][2200];
  const char *paths[3];
  memset(s, 0, sizeof *s);
  for (int a = 0; a < 3; a++) {
    char name[64];
    snprintf(name, sizeof name, "emulator/nnrm_desi_%c.h5", "brz"[a]);
    const char *found = mill_test_data_path(name);
    if (!found)
      return 0;
    snprintf(path[a], sizeof path[a], "%s", found);
    paths[a] = path[a];
  }
  const char *coadd = mill_test_data_path("sim/coadd-dev.fits.gz");
  if (!coadd)
    return 0;
  must(mill_library_import(paths, 3, NAN, 50, &s->lib));
  mill_config_default(&s->config);
  must(mill_config_bind(&s->config, &s->lib));
  must(star_data_open(coadd, &s->lib, n_row, &s->data));
  return 1;
}

static void close_survey(survey *s)
{
  star_data_close(&s->data);
  mill_config_clear(&s->config);
  mill_library_clear(&s->lib);
}

static void run_survey(survey *s, int n, int own, double limit_mib, int n_slot, int n_thread,
                       const int *order, mill_fit_result *result, mill_waveset_stats *end)
{
  s->n = n;
  s->own = own;
  s->order = order;
  s->next = 0;
  s->set_s = 0;
  s->most_bytes = 0;
  s->result = result;
  must(mill_pipeline_create(&s->lib, &s->config.fit, mill_backend_cpu(NULL), n_slot, n_thread, 0,
                            &s->pipeline));
  mill_pipeline_waveset_limit(s->pipeline,
                              limit_mib < 0 ? SIZE_MAX / 2 : (size_t)(limit_mib * 1048576));
  must(mill_pipeline_run(s->pipeline, source, s, sink, s));
  give_back(s);
  mill_pipeline_waveset_stats(s->pipeline, end);
  mill_pipeline_destroy(s->pipeline);
}

static void test_bits_and_memory(void **state)
{
  (void)state;
  static survey s;
  static mill_fit_result first[N_TEST], second[N_TEST], alone[N_TEST];
  mill_waveset_stats end;
  int mixed[N_TEST];
  if (!open_survey(N_TEST, &s))
    skip();
  s.config.fit.optimizer = MILL_OPT_LM;
  for (int i = 0; i < N_TEST; i++)
    mixed[i] = i * 7 % N_TEST;
  run_survey(&s, N_TEST, 1, -1, 64, 1, NULL, first, &end);
  assert_int_equal(end.n_made, 3 * N_TEST);
  assert_int_equal(end.n_evicted, 0);
  const double all_mib = (double)end.bytes / 1048576;
  /* all share the templates of the guess, which stay: those of one star and its sets alone, and
   * then room for 0.4 of the other sets */
  run_survey(&s, 1, 1, -1, 1, 1, NULL, second, &end);
  const double one_mib = (double)end.bytes / 1048576;
  const double limit_mib = one_mib + 0.4 * (all_mib - one_mib);
  run_survey(&s, N_TEST, 1, limit_mib, 5, 2, mixed, second, &end);
  assert_true(end.n_evicted > 0 && end.n_set > 0);
  assert_true((double)s.most_bytes <= limit_mib * 1048576);
  assert_memory_equal(first, second, sizeof first);
  run_survey(&s, N_TEST, 1, 0, 3, 1, NULL, second, &end);
  assert_int_equal(end.n_set, 0);
  assert_memory_equal(first, second, sizeof first);
  for (int i = 0; i < N_TEST; i += 7) {
    run_survey(&s, 1, 1, 0, 1, 1, &i, alone, &end);
    assert_memory_equal(&first[i], &alone[i], sizeof first[i]);
  }
  /* 1e-6 A is 1e-4 km/s: nearly the same stars, where all share the wavelengths */
  run_survey(&s, N_TEST, 0, -1, 64, 1, NULL, second, &end);
  assert_int_equal(end.n_made, 3);
  for (int i = 0; i < N_TEST; i++)
    assert_close(second[i].vrad_km_s, first[i].vrad_km_s, 0.05 * first[i].vrad_err_km_s);
  close_survey(&s);
}

static int benchmark(char **arg)
{
  static survey s;
  mill_waveset_stats end;
  struct rusage usage;
  const int n = atoi(arg[0]), own = strcmp(arg[1], "own") == 0;
  if (!open_survey(N_SURVEY, &s))
    return 77;
  (void)star_data_register; /* for tests that register once */
  s.config.fit.optimizer = atoi(arg[4]);
  const double wall = clock_s(CLOCK_MONOTONIC), cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID);
  run_survey(&s, n, own, atof(arg[2]), N_SLOT, atoi(arg[3]), NULL, NULL, &end);
  const double wall_s = clock_s(CLOCK_MONOTONIC) - wall;
  const double cpu_s = clock_s(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  getrusage(RUSAGE_SELF, &usage);
  printf(
      "%s, limit %s MiB: %.1f stars/s, CPU %.2f ms a star, of them %.2f for sets; %lld sets made, "
      "%lld evicted, at most %.0f MiB of sets; peak memory %ld MiB\n",
      arg[1], arg[2], n / wall_s, 1e3 * cpu_s / n, 1e3 * s.set_s / n, (long long)end.n_made,
      (long long)end.n_evicted, (double)s.most_bytes / 1048576, usage.ru_maxrss / 1024);
  close_survey(&s);
  return 0;
}

int main(int argc, char **argv)
{
  if (argc == 6)
    return benchmark(argv + 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bits_and_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
