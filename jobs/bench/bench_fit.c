/* SPDX-License-Identifier: BSD-3-Clause */
/* Measures the cost of a fit on this machine, by stage. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "jobs/bench/bench_job.h"
#include "src/config/text.h"
#include "src/system/stop_signal.h"

enum { EXIT_UNREADABLE = 3 };

int mill_bench_make_folder(const char *base, char folder[MILL_BENCH_FOLDER])
{
  if (!base)
    base = getenv("TMPDIR");
  if (!base || !base[0])
    base = "/tmp";
  if (snprintf(folder, MILL_BENCH_FOLDER, "%s/starmill-bench.XXXXXX", base) >=
      MILL_BENCH_FOLDER - 64) /* 64 bytes stay free for names of files */
    return MILL_ERROR(MILL_ERR_USAGE, "--output or TMPDIR is too long: %zu bytes", strlen(base));
  if (!mkdtemp(folder))
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "cannot make a temporary folder in %s: %s; choose another with --output DIR",
                      base, strerror(errno));
  return MILL_OK;
}

void mill_bench_remove_folder(const char *folder)
{
  char path[MILL_BENCH_FOLDER + 300];
  DIR *stream = opendir(folder);
  for (const struct dirent *entry; stream && (entry = readdir(stream));)
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
      snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
      unlink(path);
    }
  if (stream)
    closedir(stream);
  rmdir(folder);
}

static void count_row(void *context, const mill_fit_result *result)
{
  mill_bench_run *run = context;
  run->n_star++;
  run->n_eval += result->n_eval;
  run->n_jac += result->n_jac;
}

/* Return the backend's phase of a stage; -1: the host does the stage. */
static int phase_of(int stage)
{
  _Static_assert(MILL_BENCH_FINAL - MILL_BENCH_PREPARE == (int)MILL_PHASE_FINAL, "same order");
  return stage < MILL_BENCH_PREPARE || stage > MILL_BENCH_FINAL ? -1 : stage - MILL_BENCH_PREPARE;
}

/* Split a run's CPU time into work done once and the stages of a star. */
static void split(mill_bench_run *run)
{
  const mill_fit_meters *c = &run->meters;
  run->once_s = c->library_s + c->index_s + c->create_s + c->model_s + c->waveset_s + c->close_s;
  run->star_s = c->cpu_s - run->once_s;
  run->stage_s[MILL_BENCH_READ] = c->read_s;
  run->stage_s[MILL_BENCH_LOAD] = c->load_s;
  run->stage_s[MILL_BENCH_WRITE] = c->put_s + c->io_s;
  double rest = run->star_s;
  for (int s = 0; s < MILL_BENCH_OTHER; s++) {
    const int phase = phase_of(s);
    if (phase >= 0)
      run->stage_s[s] = c->timing.emulate_s[phase] + c->timing.pixel_s[phase];
    rest -= run->stage_s[s];
  }
  run->stage_s[MILL_BENCH_OTHER] = rest;
}

int mill_bench_run_fit(mill_bench *job, const mill_fit_options *options, int64_t n_star,
                       mill_bench_run *run)
{
  int status = 0;
  char folder[MILL_BENCH_FOLDER], output[MILL_BENCH_FOLDER + 16];
  mill_fit_options fit = *options;
  mill_fit_observer observer = {.context = run, .put = count_row, .n_row_limit = n_star};
  memset(run, 0, sizeof *run);
  MILL_CHECK(mill_bench_make_folder(job->options.output, folder));
  snprintf(output, sizeof output, "%s/result.h5", folder);
  fit.output = output;
  const int code = mill_fit_run(&job->mpi, &fit, job->command, &observer, &status);
  run->meters = observer.meters;
  mill_bench_remove_folder(folder);
  MILL_CHECK(code);
  if (mill_stop_signal_seen())
    return MILL_ERROR(MILL_ERR_STOPPED, "signal %d: stopped; nothing is kept",
                      mill_stop_signal_seen());
  if (status == EXIT_UNREADABLE)
    job->exit_status = status;
  else if (status != 0)
    return MILL_BUG("some rows were not fitted");
  if (run->n_star == 0)
    return MILL_ERROR(MILL_ERR_USAGE, "no star was fitted: check inputs and library");
  split(run);
  return MILL_OK;
}

static double star_s(const mill_bench_run *run)
{
  return run->star_s / (double)run->n_star;
}

static int by_time(const void *a, const void *b)
{
  const double left = star_s(a), right = star_s(b);
  return (left > right) - (left < right);
}

/* Print the times of the median run, and the range over all runs, sorted by time. */
static void print_overview(const mill_bench_run *all, int n_run, const mill_bench_run *run,
                           int optimizer)
{
  const mill_fit_meters *c = &run->meters;
  const double n = (double)run->n_star;
  printf("\n%s, %d %s, %d slots; median of %d %s by CPU time.\n\n",
         mill_config_key_of("optimizer")->words[optimizer], c->n_thread,
         c->n_thread == 1 ? "thread" : "threads", c->n_slot, n_run, n_run == 1 ? "run" : "runs");
  printf("| stars | stars per core-second | stars/s | core-ms a star | core-ms a star, all runs | "
         "evaluations a star | Jacobians a star |\n|---|---|---|---|---|---|---|\n| %lld | %.1f | "
         "%.1f | %.2f | %.2f to %.2f | %.1f | %.1f |\n",
         (long long)run->n_star, n / run->star_s, n / c->wall_s, 1e3 * star_s(run),
         1e3 * star_s(&all[0]), 1e3 * star_s(&all[n_run - 1]), (double)run->n_eval / n,
         (double)run->n_jac / n);
  printf("\nStars per core-second exclude work done once per run; stars/s are of wall time and "
         "include it.\n\n");
  printf("| once per run | library | inputs | new file | emulator and guess table | wavelength "
         "sets | closing the file | total |\n|---|---|---|---|---|---|---|---|\n| CPU ms | %.1f | "
         "%.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n",
         1e3 * c->library_s, 1e3 * c->index_s, 1e3 * c->create_s, 1e3 * c->model_s,
         1e3 * c->waveset_s, 1e3 * c->close_s, 1e3 * run->once_s);
}

/* Print a stage's line, and add its likelihood values and Jacobians to *n_value and *n_jacobian. */
static void print_stage(const mill_bench_run *run, int s, const char *name, double *n_value,
                        double *n_jacobian)
{
  const double n = (double)run->n_star;
  const mill_timing *t = &run->meters.timing;
  const int phase = phase_of(s);
  const double value = phase < 0 ? 0.0 : (double)t->n_value[phase];
  const double jacobian = phase < 0 ? 0.0 : (double)t->n_jacobian[phase];
  const double emulate_s = phase < 0 ? 0.0 : t->emulate_s[phase];
  printf("| %s |", name);
  mill_bench_print_cell(value + jacobian > 0.0, 2, value / n, "");
  mill_bench_print_cell(value + jacobian > 0.0, 2, jacobian / n, "");
  mill_bench_print_cell(1, 3, 1e3 * run->stage_s[s] / n, "");
  mill_bench_print_cell(emulate_s > 0.0, 3, 1e3 * emulate_s / n, "");
  printf("\n");
  *n_value += value;
  *n_jacobian += jacobian;
}

static void print_stages(const mill_bench_run *run)
{
#define STAGE_NAME(symbol, name) [symbol] = (name),
  static const char *const name[] = {MILL_BENCH_STAGE_LIST(STAGE_NAME)};
  const double n = (double)run->n_star;
  double n_value = 0.0, n_jacobian = 0.0;
  printf("\n| stage of a fit | likelihood values a star | Jacobians a star | core-ms a star | "
         "emulator's core-ms a star |\n|---|---|---|---|---|\n");
  for (int s = 0; s < MILL_BENCH_N_STAGE; s++)
    print_stage(run, s, name[s], &n_value, &n_jacobian);
  printf("| total | %.2f | %.2f | %.3f | |\n", n_value / n, n_jacobian / n, 1e3 * run->star_s / n);
}

int mill_bench_task_fit(mill_bench *job)
{
  const int n_run = job->options.n_repeat;
  MILL_OWNED mill_bench_run *all = NULL;
  MILL_CHECK(MILL_ALLOC(n_run, &all));
  for (int r = 0; r < n_run; r++) {
    MILL_CHECK(mill_bench_run_fit(job, &job->options.fit, job->options.n_star, &all[r]));
    fprintf(stderr, "run %d of %d: %.2f core-ms a star\n", r + 1, n_run, 1e3 * star_s(&all[r]));
  }
  qsort(all, (size_t)n_run, sizeof *all, by_time);
  const mill_bench_run *run = &all[(n_run - 1) / 2]; /* median run; of two the faster */
  mill_bench_print_head(job, run->meters.backend);
  print_overview(all, n_run, run, job->config.fit.optimizer);
  print_stages(run);
  return mill_text_flush(stdout, "the table");
}
