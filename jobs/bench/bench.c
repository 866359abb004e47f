#include "jobs/bench/bench.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/files/catalog_list.h"
#include "io/result/columns.h"
#include "io/hdf5/hdf5_probe.h"
#include "io/library/library_file.h"
#include "jobs/bench/bench_batch.h"
#include "jobs/bench/bench_device.h"
#include "jobs/bench/bench_host.h"
#include "jobs/bench/bench_options.h"
#include "jobs/bench/bench_read.h"
#include "jobs/bench/bench_report.h"
#include "jobs/bench/bench_schedule.h"
#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "kernels/base/host_copy.h"
#include "src/system/file_roles.h"
#include "src/system/stop_signal.h"

enum { EXIT_UNREADABLE = 3, DEFAULT_ROWS = 64 };

typedef struct bench_job {
  mill_mpi mpi;
  mill_bench_options options;
  char *command;
  mill_bench_report report;
  mill_bench_series series[MILL_BENCH_N_OPTIMIZER];
  int n_series;
  mill_library lib;
  char folder[1024]; /* of the results; empty: none was made */
  const char **input;
  char **listed; /* of the catalog, owned */
  size_t n_listed;
  int n_input;
  int exit_status;
} bench_job;

/* All inputs by name, for the rate of reading. */
static int list_inputs(bench_job *job)
{
  int err = MILL_OK;
  const mill_fit_options *fit = &job->options.fit;
  if (fit->catalog)
    MILL_TRY(mill_catalog_list_read(fit->catalog, &job->listed, &job->n_listed));
  MILL_TRY(mill_alloc_bytes((size_t)fit->n_input + job->n_listed, sizeof *job->input,
                            (void **)&job->input));
  for (int i = 0; i < fit->n_input; i++)
    job->input[job->n_input++] = fit->input[i];
  for (size_t i = 0; i < job->n_listed; i++)
    job->input[job->n_input++] = job->listed[i];
done:
  return err;
}

/* What is measured is not lost, and nothing else for it. */
static int check_roles(const bench_job *job)
{
  int err = MILL_OK;
  const mill_fit_options *fit = &job->options.fit;
  mill_config config;
  mill_file_roles roles = {0};
  memset(&config, 0, sizeof config);
  MILL_TRY(mill_file_roles_write(&roles, "--json", job->options.json));
  if (roles.n == 0)
    goto done;
  mill_config_default(&config);
  if (fit->config)
    MILL_TRY(mill_config_read(&config, fit->config));
  MILL_TRY(mill_file_roles_read(&roles, "the library",
                                fit->library ? fit->library : config.template_lib));
  MILL_TRY(mill_file_roles_read(&roles, "--config", fit->config));
  MILL_TRY(mill_file_roles_read(&roles, "--catalog", fit->catalog));
  MILL_TRY(mill_file_roles_read(&roles, "the table to start from", config.start));
  MILL_TRY(mill_file_roles_read(&roles, "the redrock file", config.select.redrock_file));
  for (int i = 0; i < job->n_input; i++)
    MILL_TRY(mill_file_roles_read(&roles, "the input", job->input[i]));
done:
  mill_config_clear(&config);
  return err;
}

static int make_folder(bench_job *job)
{
  int err = MILL_OK;
  const char *base = job->options.output ? job->options.output : getenv("TMPDIR");
  char path[sizeof job->folder];
  if (!base || !base[0])
    base = "/tmp";
  if (snprintf(path, sizeof path, "%s/starmill-bench.XXXXXX", base) >= (int)sizeof path - 64)
    MILL_FAIL(MILL_ERR_USAGE, "a folder name of %zu bytes is too long", strlen(base));
  if (!mkdtemp(path))
    MILL_FAIL(MILL_ERR_OUTPUT,
              "no temporary folder can be made in %s: %s; give another by --output DIR", base,
              strerror(errno));
  memcpy(job->folder, path, sizeof path);
done:
  return err;
}

/* Whatever a run has left in the folder. */
static void empty_folder(const bench_job *job)
{
  char path[sizeof job->folder + 300];
  DIR *folder = opendir(job->folder);
  for (const struct dirent *entry; folder && (entry = readdir(folder));)
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
      snprintf(path, sizeof path, "%s/%s", job->folder, entry->d_name);
      unlink(path);
    }
  if (folder)
    closedir(folder);
}

static int measure_rates(bench_job *job, int n_row)
{
  int err = MILL_OK;
  const mill_library *lib = job->lib.n_arm > 0 ? &job->lib : NULL;
  MILL_TRY(mill_bench_rates_measure(lib, n_row, &job->report.rates));
  if (job->n_input > 0)
    MILL_TRY(mill_bench_rates_read(job->n_input, job->input, &job->report.rates));
done:
  return err;
}

/* ---- fit ---- */

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

/* Run a fit of which nothing is kept but its costs. */
static int run_fit(bench_job *job, mill_fit_options fit, const mill_backend *instead,
                   mill_bench_run *run)
{
  int err = MILL_OK, status = 0;
  char output[sizeof job->folder + 16];
  mill_fit_observer observer = {.context = run,
                                .took = instead ? count_taken : count_star,
                                .put = instead ? NULL : count_row,
                                .n_row_limit = job->options.n_star,
                                .instead = instead};
  snprintf(output, sizeof output, "%s/result.h5", job->folder);
  fit.output = output;
  *run = (mill_bench_run){.start_s = mill_wall_s()};
  err = mill_fit_run(&job->mpi, &fit, job->command, &observer, &status);
  run->meters = observer.meters;
  empty_folder(job);
  MILL_TRY(err);
  if (mill_stop_signal_seen())
    MILL_FAIL(MILL_ERR_STOPPED, "signal %d: stopped; nothing is kept", mill_stop_signal_seen());
  if (status == EXIT_UNREADABLE)
    job->exit_status = status;
  else if (status != 0 && job->options.n_star == 0) /* rows beyond --stars are left on purpose */
    MILL_FAIL(MILL_ERR_INTERNAL, "rows are left: please report it");
done:
  return err;
}

static int run_once(bench_job *job, mill_bench_series *series, int i_run)
{
  int err = MILL_OK;
  mill_bench_run *run = &series->run[i_run];
  mill_fit_options fit = job->options.fit;
  fit.optimizer = job->options.n_optimizer > 0 ? series->optimizer : NULL;
  MILL_TRY(run_fit(job, fit, NULL, run));
  if (run->shape.n_star == 0)
    MILL_FAIL(MILL_ERR_USAGE, "no star was fitted, so there is nothing to measure");
  mill_bench_split(run);
  series->n_run++;
  static const char *const name[] = {[MILL_OPT_HYBRID] = "hybrid",
                                     [MILL_OPT_NELDER_MEAD] = "nelder-mead",
                                     [MILL_OPT_LM] = "levenberg-marquardt"};
  series->optimizer = name[run->meters.set.optimizer];
  fprintf(stderr, "%s, run %d of %d: %.2f core-ms a star\n", series->optimizer, i_run + 1,
          job->options.n_repeat, 1e3 * run->star_s / (double)run->shape.n_star);
done:
  return err;
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

static int count_floors(bench_job *job)
{
  int err = MILL_OK;
  mill_columns *columns = NULL;
  MILL_TRY(MILL_ALLOC(1, &columns));
  MILL_TRY(mill_columns_fits(&job->lib, job->lib.path, columns));
  for (int i = 0; i < job->n_series; i++) {
    mill_bench_series *series = &job->series[i];
    series->median = median_run(series);
    const mill_bench_run *run = &series->run[series->median];
    const mill_fit_meters *c = &run->meters;
    mill_bench_floor_count(&job->lib, &c->set, &run->shape, &c->timing, c->n_slot,
                           columns->row_size, job->report.rates.l2_bytes, series->work);
  }
done:
  mill_free(columns);
  return err;
}

static int bench_fit(bench_job *job)
{
  int err = MILL_OK;
  job->n_series = job->options.n_optimizer > 0 ? job->options.n_optimizer : 1;
  MILL_TRY(make_folder(job));
  for (int i = 0; i < job->n_series; i++) {
    job->series[i].optimizer = job->options.optimizer[i];
    MILL_TRY(MILL_ALLOC(job->options.n_repeat, &job->series[i].run));
  }
  /* in turns, so that a machine that slows down is unfair to all alike */
  for (int r = 0; r < job->options.n_repeat; r++)
    for (int i = 0; i < job->n_series; i++) {
      MILL_TRY(run_once(job, &job->series[i], r));
      if (r == 0 && i == 0) {
        const mill_fit_meters *c = &job->series[0].run[0].meters;
        MILL_TRY(mill_library_read(c->library, &job->lib));
        MILL_TRY(measure_rates(job, c->n_slot));
      }
    }
  /* the best of before and after, should one of them have been disturbed */
  MILL_TRY(measure_rates(job, job->series[0].run[0].meters.n_slot));
  MILL_TRY(count_floors(job));
  job->report.backend = job->series[0].run[0].meters.backend;
  job->report.series = job->series;
  job->report.n_series = job->n_series;
done:
  return err;
}

/* ---- host ---- */

/* The quickest of several runs. */
static int run_host(bench_job *job, int n_reader, int n_repeat, mill_bench_run *best)
{
  int err = MILL_OK;
  char readers[16];
  mill_bench_run run;
  mill_fit_options fit = job->options.fit;
  snprintf(readers, sizeof readers, "%d", n_reader);
  fit.readers = readers;
  for (int r = 0; r < n_repeat; r++) {
    MILL_TRY(run_fit(job, fit, mill_bench_host_backend(), &run));
    if (run.n_taken == 0)
      MILL_FAIL(MILL_ERR_USAGE, "no star was taken, so there is nothing to measure");
    if (r == 0 || run.meters.run_wall_s < best->meters.run_wall_s)
      *best = run;
  }
done:
  return err;
}

static int print_host(int n_reader, const mill_bench_run *run)
{
  const mill_fit_meters *c = &run->meters;
  const double n = (double)run->n_taken, us = 1e6 / n;
  const double rest_s = c->main_s - c->load_s - c->put_s;
  printf("| %d | %.0f | %.3f | %.0f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n", n_reader,
         n, c->run_wall_s, n / c->run_wall_s, us * c->main_s, us * c->load_s, us * c->put_s,
         us * rest_s, us * c->load_wall_s, us * c->read_s, us * c->io_s);
  return mill_bench_flush(stdout);
}

static int bench_host(bench_job *job)
{
  int err = MILL_OK, n_count = 0, n_copier = 0;
  int count[MILL_BENCH_READER_COUNTS];
  mill_bench_run best = {0};
  mill_config config;
  memset(&config, 0, sizeof config);
  MILL_TRY(mill_bench_configure(&job->options, &config));
  MILL_TRY(mill_bench_reader_counts(&job->mpi, config.n_reader, count, &n_count));
  MILL_TRY(make_folder(job));
  MILL_TRY(run_host(job, count[n_count - 1], 1, &best)); /* into the page cache */
  MILL_TRY(mill_host_copiers(best.meters.n_thread, &n_copier));
  mill_bench_describe(&job->report);
  mill_bench_print_head(&job->report, job->command, stdout);
  printf("Nothing is fitted: %d %s stars into buffers, as for a GPU, and every row is done at "
         "once.\nTimes of the main thread, the readers and the writer are of CPUs; copies by the "
         "clock are those that the main thread waits for, whoever makes them.\n\n",
         n_copier, n_copier == 1 ? "thread copies" : "threads copy");
  printf("| reader threads | stars | s | stars/s | main thread, us a star | of it stars to the "
         "device | rows back | rest | copies by the clock, us a star | readers, us a star | "
         "writer, us a star |\n"
         "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
  for (int i = 0; i < n_count; i++) {
    MILL_TRY(run_host(job, count[i], job->options.n_repeat, &best));
    MILL_TRY(print_host(count[i], &best));
  }
done:
  mill_config_clear(&config);
  return err;
}

static int bench_rates(bench_job *job)
{
  int err = MILL_OK;
  if (job->options.fit.library) {
    MILL_TRY(mill_h5_probe(MILL_PROBE_LIBRARY, job->options.fit.library));
    MILL_TRY(mill_library_read(job->options.fit.library, &job->lib));
  }
  MILL_TRY(measure_rates(job, DEFAULT_ROWS));
done:
  return err;
}

static int start(bench_job *job, int argc, char **argv)
{
  int err = MILL_OK;
  if (argc > 1 && strcmp(argv[1], "schedule") == 0) {
    if (job->mpi.rank == 0)
      err = mill_bench_schedule(argc - 1, argv + 1);
    MILL_TRY(mill_mpi_agree(&job->mpi, err));
    goto done;
  }
  MILL_TRY(mill_fit_command(argc, argv, &job->command));
  MILL_TRY(mill_bench_options_parse(argc, argv, &job->options));
  if (job->options.task == MILL_BENCH_HELP) {
    if (job->mpi.rank == 0)
      mill_bench_options_print_help(stdout);
    goto done;
  }
  if (job->mpi.size > 1)
    MILL_FAIL(MILL_ERR_USAGE, "bench measures one rank, not %d: run it without mpirun",
              job->mpi.size);
  MILL_TRY(list_inputs(job));
  MILL_TRY(check_roles(job));
  if (job->options.task == MILL_BENCH_READING) {
    MILL_TRY(mill_bench_read(&job->mpi, &job->options, job->command));
    goto done;
  }
  if (job->options.task == MILL_BENCH_HOST) {
    MILL_TRY(bench_host(job));
    goto done;
  }
  if (job->options.task == MILL_BENCH_CROSSOVER || job->options.task == MILL_BENCH_SLOTS) {
    MILL_TRY((job->options.task == MILL_BENCH_CROSSOVER ? mill_bench_crossover : mill_bench_slots)(
        &job->mpi, &job->options, job->command, job->n_input, job->input));
    goto done;
  }
  MILL_TRY(job->options.task == MILL_BENCH_FIT ? bench_fit(job) : bench_rates(job));
  job->report.command = job->command;
  mill_bench_describe(&job->report);
  MILL_TRY(mill_bench_print(&job->report, stdout));
  if (job->options.json)
    MILL_TRY(mill_bench_write_json(&job->report, job->options.json));
done:
  return err;
}

int mill_job_bench(int argc, char **argv)
{
  bench_job job;
  memset(&job, 0, sizeof job);
  int err = mill_mpi_start(&job.mpi);
  if (err == MILL_OK)
    err = start(&job, argc, argv);
  if (err != MILL_OK) {
    job.exit_status = mill_error_exit_status(err);
    if (job.mpi.rank == 0)
      fprintf(stderr, "starmill bench: %s\n", mill_error_message());
  }
  if (job.folder[0]) {
    empty_folder(&job);
    rmdir(job.folder);
  }
  for (int i = 0; i < job.n_series; i++)
    mill_free(job.series[i].run);
  mill_library_clear(&job.lib);
  mill_catalog_list_free(job.listed, job.n_listed);
  mill_free((void *)job.input);
  free(job.command);
  mill_mpi_end(&job.mpi);
  return job.exit_status;
}
