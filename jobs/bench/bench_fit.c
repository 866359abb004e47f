#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/library/library_file.h"
#include "io/result/columns.h"
#include "jobs/bench/bench_report.h"
#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "src/system/stop_signal.h"

enum { EXIT_UNREADABLE = 3, DEFAULT_ROWS = 64, FOLDER_SIZE = 1024 };

/* ---- a run ---- */

static int make_folder(const char *base, char folder[FOLDER_SIZE])
{
  if (!base)
    base = getenv("TMPDIR");
  if (!base || !base[0])
    base = "/tmp";
  if (snprintf(folder, FOLDER_SIZE, "%s/starmill-bench.XXXXXX", base) >= FOLDER_SIZE - 64)
    return MILL_ERROR(MILL_ERR_USAGE, "a folder name of %zu bytes is too long", strlen(base));
  if (!mkdtemp(folder))
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "no temporary folder can be made in %s: %s; give another by --output DIR",
                      base, strerror(errno));
  return MILL_OK;
}

/* With all that a run has left there. */
static void remove_folder(const char *folder)
{
  char path[FOLDER_SIZE + 300];
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

static void count_taken(void *context, const mill_library *lib, const mill_fit_settings *set,
                        const mill_star *star, const double *const *wave_aa)
{
  mill_bench_run *run = context;
  (void)lib, (void)set, (void)star, (void)wave_aa;
  run->n_taken++;
}

static void count_star(void *context, const mill_library *lib, const mill_fit_settings *set,
                       const mill_star *star, const double *const *wave_aa)
{
  mill_bench_run *run = context;
  run->n_taken++;
  mill_bench_shape_add(&run->shape, lib, set, star, wave_aa);
}

static void count_row(void *context, const mill_library *lib, const mill_fit_settings *set,
                      const mill_fit_result *result)
{
  mill_bench_run *run = context;
  mill_bench_shape_add_result(&run->shape, lib, set, result);
  run->n_eval += result->n_eval;
  run->n_jac += result->n_jac;
  if (run->first_wall_s == 0.0)
    run->first_wall_s = mill_wall_s() - run->start_s;
}

int mill_bench_run_fit(mill_bench *job, mill_fit_options fit, const mill_backend *instead,
                       mill_bench_run *run)
{
  int err = MILL_OK, status = 0;
  char folder[FOLDER_SIZE], output[FOLDER_SIZE + 16];
  mill_fit_observer observer = {.context = run,
                                .took = instead ? count_taken : count_star,
                                .put = instead ? NULL : count_row,
                                .n_row_limit = job->options.n_star,
                                .instead = instead};
  MILL_TRY(make_folder(job->options.output, folder));
  snprintf(output, sizeof output, "%s/result.h5", folder);
  fit.output = output;
  *run = (mill_bench_run){.start_s = mill_wall_s()};
  err = mill_fit_run(&job->mpi, &fit, job->command, &observer, &status);
  run->meters = observer.meters;
  remove_folder(folder);
  MILL_TRY(err);
  if (mill_stop_signal_seen())
    MILL_FAIL(MILL_ERR_STOPPED, "signal %d: stopped; nothing is kept", mill_stop_signal_seen());
  if (status == EXIT_UNREADABLE)
    job->exit_status = status;
  else if (status != 0)
    MILL_FAIL(MILL_ERR_INTERNAL, "rows are left: please report it");
  if (run->n_taken == 0)
    MILL_FAIL(MILL_ERR_USAGE, "no star was %s, so there is nothing to measure",
              instead ? "taken" : "fitted");
done:
  return err;
}

/* ---- rates ---- */

static int measure_rates(const mill_bench *job, int n_row, mill_bench_rates *rates)
{
  /* first what may be missing */
  if (job->input.n > 0)
    MILL_CHECK(
        mill_bench_rates_read((int)job->input.n, (const char *const *)job->input.path, rates));
  return mill_bench_rates_measure(job->lib.n_arm > 0 ? &job->lib : NULL, n_row, rates);
}

int mill_bench_task_rates(mill_bench *job)
{
  mill_bench_report report = {0};
  if (job->options.fit.library)
    MILL_CHECK(mill_library_read(job->options.fit.library, &job->lib));
  MILL_CHECK(measure_rates(job, DEFAULT_ROWS, &report.rates));
  return mill_bench_print(job, &report);
}

/* ---- fit ---- */

static int run_once(mill_bench *job, mill_bench_series *series)
{
  mill_bench_run *run = &series->run[series->n_run];
  mill_fit_options fit = job->options.fit;
  fit.optimizer = job->options.n_optimizer > 0 ? series->optimizer : NULL;
  MILL_CHECK(mill_bench_run_fit(job, fit, NULL, run));
  mill_bench_split(run);
  series->n_run++;
  series->optimizer = mill_config_key_of("optimizer")->words[run->meters.set.optimizer];
  fprintf(stderr, "%s, run %d of %d: %.2f core-ms a star\n", series->optimizer, series->n_run,
          job->options.n_repeat, 1e3 * run->star_s / (double)run->shape.n_star);
  return MILL_OK;
}

/* The run whose time for stars is the median, of an even number the faster of two. */
static int median_run(const mill_bench_series *series)
{
  for (int i = 0; i < series->n_run; i++) {
    int n_before = 0;
    for (int k = 0; k < series->n_run; k++) {
      const double a = series->run[k].star_s, b = series->run[i].star_s;
      n_before += a < b || (a == b && k < i);
    }
    if (n_before == (series->n_run - 1) / 2)
      return i;
  }
  return 0;
}

static int count_floors(const mill_bench *job, mill_bench_report *report)
{
  int err = MILL_OK;
  mill_columns *columns = NULL;
  MILL_TRY(MILL_ALLOC(1, &columns));
  MILL_TRY(mill_columns_fits(&job->lib, job->lib.path,
                             job->config.fit.velocity_offsets ? MILL_WITH_OFFSETS : 0, columns));
  for (int i = 0; i < report->n_series; i++) {
    mill_bench_series *series = &report->series[i];
    series->median = median_run(series);
    const mill_bench_run *run = &series->run[series->median];
    mill_bench_floor_count(&job->lib, &run->meters.set, &run->shape, &run->meters.timing,
                           run->meters.n_slot, columns->row_size, report->rates.l2_bytes,
                           series->work);
  }
done:
  mill_free(columns);
  return err;
}

int mill_bench_task_fit(mill_bench *job)
{
  int err = MILL_OK;
  mill_bench_report report = {.n_series =
                                  job->options.n_optimizer > 0 ? job->options.n_optimizer : 1};
  const mill_fit_meters *first = NULL;
  for (int i = 0; i < report.n_series; i++) {
    report.series[i].optimizer = job->options.optimizer[i];
    MILL_TRY(MILL_ALLOC(job->options.n_repeat, &report.series[i].run));
  }
  /* in turns, so that a machine that slows down is unfair to all alike */
  for (int r = 0; r < job->options.n_repeat; r++)
    for (int i = 0; i < report.n_series; i++) {
      MILL_TRY(run_once(job, &report.series[i]));
      if (first)
        continue;
      first = &report.series[0].run[0].meters;
      MILL_TRY(mill_library_read(first->library, &job->lib));
      MILL_TRY(mill_config_cut_arms(&job->config, &job->lib));
      MILL_TRY(measure_rates(job, first->n_slot, &report.rates));
    }
  /* the best of before and after, should one of them have been disturbed */
  MILL_TRY(measure_rates(job, first->n_slot, &report.rates));
  MILL_TRY(count_floors(job, &report));
  MILL_TRY(mill_bench_print(job, &report));
done:
  for (int i = 0; i < report.n_series; i++)
    mill_free(report.series[i].run);
  return err;
}
