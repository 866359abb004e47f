/* SPDX-License-Identifier: BSD-3-Clause */
/* Cost of a fit on this machine by stage, compared with its lower bound. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/library/library_file.h"
#include "io/result/columns.h"
#include "jobs/bench/bench_job.h"
#include "jobs/options/job_steps.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/stop_signal.h"
#include "src/config/arms.h"

enum { EXIT_UNREADABLE = 3 };

/* ---- a run ---- */

int mill_bench_make_folder(const char *base, char folder[MILL_BENCH_FOLDER])
{
  if (!base)
    base = getenv("TMPDIR");
  if (!base || !base[0])
    base = "/tmp";
  if (snprintf(folder, MILL_BENCH_FOLDER, "%s/starmill-bench.XXXXXX", base) >=
      MILL_BENCH_FOLDER - 64)
    return MILL_ERROR(MILL_ERR_USAGE, "a folder name of %zu bytes is too long", strlen(base));
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

static void count_star(void *context, const mill_library *lib, const mill_fit_settings *set,
                       const mill_star *star)
{
  mill_bench_run *run = context;
  mill_bench_shape_add(&run->shape, lib, set, star);
}

static void count_row(void *context, const mill_library *lib, const mill_fit_settings *set,
                      const mill_fit_result *result)
{
  mill_bench_run *run = context;
  (void)lib, (void)set;
  run->n_eval += result->n_eval;
  run->n_jac += result->n_jac;
}

/* Backend phase of a stage; -1: on the host. */
static int phase_of(int stage)
{
  _Static_assert(MILL_BENCH_FINAL - MILL_BENCH_PREPARE == (int)MILL_PHASE_FINAL, "same order");
  return stage < MILL_BENCH_PREPARE || stage > MILL_BENCH_FINAL ? -1 : stage - MILL_BENCH_PREPARE;
}

/* Split a finished run's CPU time into work done once, and stages. */
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
  int err = MILL_OK, status = 0;
  char folder[MILL_BENCH_FOLDER], output[MILL_BENCH_FOLDER + 16];
  mill_fit_options fit = *options;
  mill_fit_observer observer = {
      .context = run, .took = count_star, .put = count_row, .n_row_limit = n_star};
  memset(run, 0, sizeof *run);
  MILL_TRY(mill_bench_make_folder(job->options.output, folder));
  snprintf(output, sizeof output, "%s/result.h5", folder);
  fit.output = output;
  err = mill_fit_run(&job->mpi, &fit, job->command, &observer, &status);
  run->meters = observer.meters;
  mill_bench_remove_folder(folder);
  MILL_TRY(err);
  if (mill_stop_signal_seen())
    MILL_FAIL(MILL_ERR_STOPPED, "signal %d: stopped; nothing is kept", mill_stop_signal_seen());
  if (status == EXIT_UNREADABLE)
    job->exit_status = status;
  else if (status != 0)
    MILL_FAIL(MILL_ERR_INTERNAL, "some rows were not fitted: please report this bug");
  if (run->shape.n_star == 0)
    MILL_FAIL(MILL_ERR_USAGE, "no star was fitted, so there is nothing to measure");
  split(run);
done:
  return err;
}

static double star_s(const mill_bench_run *run)
{
  return run->star_s / (double)run->shape.n_star;
}

static int by_time(const void *a, const void *b)
{
  const double left = star_s(a), right = star_s(b);
  return (left > right) - (left < right);
}

/* ---- rates ---- */

static int measure_rates(const mill_bench *job, mill_bench_rates *rates)
{
  /* check first for missing values */
  if (job->input.n > 0)
    MILL_CHECK(
        mill_bench_rates_read((int)job->input.n, (const char *const *)job->input.path, rates));
  return mill_bench_rates_measure(rates);
}

static void print_rates(const mill_bench_rates *r)
{
  printf("| rate of one core | |\n|---|---|\n"
         "| matrix products, float32 | %.1f GFLOP/s |\n"
         "| matrix products, float64 | %.1f GFLOP/s |\n"
         "| copy within L2, buffers of %.0f KiB, bytes read and written | %.1f GB/s |\n"
         "| copy, buffers of %.0f MiB | %.1f GB/s |\n",
         r->f32_gflop_s, r->f64_gflop_s, (double)r->copy_cache_bytes / 1024.0,
         r->copy_cache_gbyte_s, (double)r->copy_memory_bytes / 1048576.0, r->copy_memory_gbyte_s);
  if (r->read_gbyte_s > 0.0)
    printf("| reading the inputs from the page cache | %.1f GB/s |\n", r->read_gbyte_s);
}

int mill_bench_task_rates(mill_bench *job)
{
  mill_bench_rates rates = {0};
  MILL_CHECK(measure_rates(job, &rates));
  mill_bench_print_head(job, NULL);
  print_rates(&rates);
  return mill_job_flush("the table");
}

/* ---- the tables ---- */

static void print_overview(const mill_bench_run *all, int n_run, const mill_bench_run *run)
{
  const mill_fit_meters *c = &run->meters;
  const double n = (double)run->shape.n_star;
  printf("\n%s, %d %s, %d slots; of %d %s the one with the median CPU time.\n\n",
         mill_config_key_of("optimizer")->words[c->set.optimizer], c->n_thread,
         c->n_thread == 1 ? "thread" : "threads", c->n_slot, n_run, n_run == 1 ? "run" : "runs");
  printf("| stars | stars per core-second | stars/s | core-ms a star | all runs | evaluations a "
         "star | of them Jacobians |\n|---|---|---|---|---|---|---|\n"
         "| %lld | %.1f | %.1f | %.2f | %.2f to %.2f | %.1f | %.1f |\n",
         (long long)run->shape.n_star, n / run->star_s, n / c->wall_s, 1e3 * star_s(run),
         1e3 * star_s(&all[0]), 1e3 * star_s(&all[n_run - 1]), (double)run->n_eval / n,
         (double)run->n_jac / n);
  printf("\n"
         "Stars per core-second exclude work done once per run; stars/s are of wall time and "
         "include it.\n"
         "\n");
  printf("| once a run | library | inputs | new file | emulator and guess table | wavelength sets "
         "| closing the file | together |\n|---|---|---|---|---|---|---|---|\n"
         "| CPU ms | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n",
         1e3 * c->library_s, 1e3 * c->index_s, 1e3 * c->create_s, 1e3 * c->model_s,
         1e3 * c->waveset_s, 1e3 * c->close_s, 1e3 * run->once_s);
}

/* The end of a line: time over its floor; a stage without one has no ratio. */
static void print_ratio(double spent_s, double floor_s)
{
  if (floor_s > 0.0)
    printf(spent_s < 1000.0 * floor_s ? " %.1f |\n" : " %.0f |\n", spent_s / floor_s);
  else
    printf(" – |\n");
}

/* Sums over the stages. */
typedef struct totals {
  double n_value, n_jacobian, mflop, floor_s;
} totals;

static void print_stage(const mill_bench_run *run, int s, const char *name,
                        const mill_bench_work *w, const mill_bench_rates *rates, totals *all)
{
  const double n = (double)run->shape.n_star;
  const mill_timing *t = &run->meters.timing;
  const int phase = phase_of(s);
  const double flop = w->f32 + w->f64;
  const double value = phase < 0 ? 0.0 : (double)t->n_value[phase];
  const double jacobian = phase < 0 ? 0.0 : (double)t->n_jacobian[phase];
  const double emulate_s = phase < 0 ? 0.0 : t->emulate_s[phase];
  int by_traffic = 0;
  const double least_s = mill_bench_floor_s(w, rates, &by_traffic);
  /* less than a microsecond a star is too short to compare with: reading the clock takes as long */
  const double shown_s = least_s < 1e-6 * n ? 0.0 : least_s;
  printf("| %s |", name);
  mill_bench_print_cell(value + jacobian > 0.0, 2, value / n, "");
  mill_bench_print_cell(value + jacobian > 0.0, 2, jacobian / n, "");
  mill_bench_print_cell(flop > 0.0, 2, 1e-6 * flop / n, "");
  mill_bench_print_cell(1, 3, 1e3 * run->stage_s[s] / n, "");
  mill_bench_print_cell(emulate_s > 0.0, 3, 1e3 * emulate_s / n, "");
  mill_bench_print_cell(shown_s > 0.0, 4, 1e3 * shown_s / n, "");
  printf(shown_s <= 0.0 ? " |" : by_traffic ? " bytes |" : " arithmetic |");
  print_ratio(run->stage_s[s], shown_s);
  all->n_value += value;
  all->n_jacobian += jacobian;
  all->mflop += 1e-6 * flop;
  all->floor_s += least_s;
}

/* Requests of the least path that a problem allows, whatever the optimizer: the first Jacobian is
 * that of a stored template, the second is a few errors and the third less than one from the
 * minimum, where Gauss and Newton's next step needs no evaluation; then five velocities and the
 * last evaluation. */
static void ideal_path(const mill_bench_run *run, mill_timing *t)
{
  const int64_t n = run->shape.n_star;
  *t = (mill_timing){.n_velocity = MILL_N_PROFILE_FEW * n};
  t->n_jacobian[MILL_PHASE_POLISH] = 3 * n;
  t->n_stored[0] = n;
  t->n_value[MILL_PHASE_PROFILE] = t->n_value[MILL_PHASE_FINAL] = n;
}

static void print_ideal(const mill_bench_run *run, const mill_bench_work *work,
                        const mill_bench_rates *rates)
{
  double least_s = 0.0;
  for (int s = 0; s < MILL_BENCH_N_STAGE; s++)
    least_s += mill_bench_floor_s(&work[s], rates, NULL);
  printf(
      "\n"
      "Floor of the ideal path (one start, 3 Jacobians of which one is stored, 5 velocities, last "
      "evaluation): %.4f ms a star; time over it %.1f.\n",
      1e3 * least_s / (double)run->shape.n_star, run->star_s / least_s);
}

static void print_stages(const mill_bench_run *run, const mill_bench_work *work,
                         const mill_bench_rates *rates)
{
#define STAGE_NAME(symbol, name) [symbol] = (name),
  static const char *const name[] = {MILL_BENCH_STAGE_LIST(STAGE_NAME)};
#undef STAGE_NAME
  const double n = (double)run->shape.n_star;
  totals all = {0};
  printf("\n| stage of a star | values | Jacobians | MFLOP | core-ms | of it emulator | floor, ms "
         "| bound by | time/floor |\n|---|---|---|---|---|---|---|---|---|\n");
  for (int s = 0; s < MILL_BENCH_N_STAGE; s++)
    print_stage(run, s, name[s], &work[s], rates, &all);
  printf("| total | %.2f | %.2f | %.2f | %.3f | | %.4f | |", all.n_value / n, all.n_jacobian / n,
         all.mflop / n, 1e3 * run->star_s / n, 1e3 * all.floor_s / n);
  print_ratio(run->star_s, all.floor_s);
  if (run->meters.timing.n_velocity > 0)
    printf("\n"
           "The profile's values cover %.1f velocities.\n",
           (double)run->meters.timing.n_velocity / n);
}

static int count_floors(mill_bench *job, const mill_bench_run *run, const mill_bench_rates *rates,
                        mill_bench_work *work, mill_bench_work *ideal)
{
  int err = MILL_OK;
  mill_columns *columns = NULL;
  mill_timing path;
  MILL_TRY(mill_library_read(run->meters.library, &job->lib));
  MILL_TRY(mill_config_cut_arms(&job->config, &job->lib));
  MILL_TRY(MILL_ALLOC(1, &columns));
  MILL_TRY(mill_columns_fits(&job->lib, job->lib.path,
                             job->config.fit.velocity_offsets ? MILL_WITH_OFFSETS : 0, columns));
  mill_bench_floor_count(&job->lib, &run->meters.set, &run->shape, &run->meters.timing,
                         run->meters.n_slot, columns->row_size, rates->l2_bytes, work);
  ideal_path(run, &path);
  mill_bench_floor_count(&job->lib, &run->meters.set, &run->shape, &path, run->meters.n_slot,
                         columns->row_size, rates->l2_bytes, ideal);
done:
  mill_free(columns);
  return err;
}

int mill_bench_task_fit(mill_bench *job)
{
  int err = MILL_OK;
  const int n_run = job->options.n_repeat;
  mill_bench_run *all = NULL;
  mill_bench_rates rates = {0};
  mill_bench_work work[MILL_BENCH_N_STAGE], ideal[MILL_BENCH_N_STAGE];
  MILL_TRY(MILL_ALLOC(n_run, &all));
  for (int r = 0; r < n_run; r++) {
    MILL_TRY(mill_bench_run_fit(job, &job->options.fit, job->options.n_star, &all[r]));
    fprintf(stderr, "run %d of %d: %.2f core-ms a star\n", r + 1, n_run, 1e3 * star_s(&all[r]));
    /* the best of two, should one of them have been disturbed */
    if (r == 0)
      MILL_TRY(measure_rates(job, &rates));
  }
  MILL_TRY(measure_rates(job, &rates));
  qsort(all, (size_t)n_run, sizeof *all, by_time);
  const mill_bench_run *run = &all[(n_run - 1) / 2]; /* of two the faster */
  MILL_TRY(count_floors(job, run, &rates, work, ideal));
  mill_bench_print_head(job, run->meters.backend);
  print_rates(&rates);
  print_overview(all, n_run, run);
  print_stages(run, work, &rates);
  print_ideal(run, ideal, &rates);
  MILL_TRY(mill_job_flush("the table"));
done:
  mill_free(all);
  return err;
}
