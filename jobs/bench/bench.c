#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT */

#include "jobs/bench/bench.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/catalog/catalog_list.h"
#include "jobs/bench/bench_job.h"
#include "jobs/fit/fit.h"
#include "src/run/command_text.h"
#include "src/system/shipped_file.h"
#include "jobs/options/job_steps.h"
#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "src/system/cpu_model.h"
#include "src/system/file_roles.h"
#include "src/system/regular_file.h"

static int list_inputs(mill_bench *job)
{
  const mill_fit_options *fit = &job->options.fit;
  for (int i = 0; i < fit->n_input; i++)
    MILL_CHECK(mill_path_list_add(&job->input, fit->input[i]));
  return fit->catalog ? mill_catalog_list_read(fit->catalog, &job->input) : MILL_OK;
}

static int configure(mill_bench *job)
{
  mill_fit_options fit = job->options.fit;
  if (job->options.n_optimizer > 0)
    fit.optimizer = job->options.optimizer[0];
  mill_config_default(&job->config);
  if (fit.config)
    MILL_CHECK(mill_config_read(&job->config, fit.config));
  MILL_CHECK(mill_fit_options_apply(&fit, &job->config));
  MILL_CHECK(mill_config_check(&job->config));
  /* tasks that need one look whether there is one */
  (void)mill_shipped_library(job->config.template_lib, sizeof job->config.template_lib);
  return MILL_OK;
}

/* What is there may be an older JSON of ours, and nothing else. */
static int check_json(const char *path)
{
  static const char begins[] = "{\n  \"version\": ";
  char first[sizeof begins - 1];
  if (access(path, F_OK) != 0) /* what is there need not be a file: /dev/stdout */
    MILL_CHECK(mill_check_output(path, "json"));
  const size_t n = mill_first_bytes(path, first, sizeof first);
  if (n > 0 && (n < sizeof first || memcmp(first, begins, n) != 0))
    return MILL_ERROR(
        MILL_ERR_USAGE,
        "--json %s exists and was not made by starmill bench: give another name, or remove it "
        "yourself",
        path);
  return MILL_OK;
}

/* The JSON file replaces nothing that is read. */
static int check_roles(const mill_bench *job)
{
  const mill_config *config = &job->config;
  mill_file_roles roles = {0};
  MILL_CHECK(mill_file_roles_write(&roles, "--json", job->options.json));
  MILL_CHECK(mill_file_roles_read(&roles, "the library", config->template_lib));
  MILL_CHECK(mill_file_roles_read(&roles, "--config", job->options.fit.config));
  MILL_CHECK(mill_file_roles_read(&roles, "--catalog", job->options.fit.catalog));
  MILL_CHECK(mill_file_roles_read(&roles, "the table to start from", config->start));
  MILL_CHECK(mill_file_roles_read(&roles, "the redrock file", config->select.redrock_file));
  for (size_t i = 0; i < job->input.n; i++)
    MILL_CHECK(mill_file_roles_read(&roles, "the input", job->input.path[i]));
  if (job->options.json)
    MILL_CHECK(check_json(job->options.json));
  return MILL_OK;
}

static void describe_machine(mill_bench *job)
{
  cpu_set_t cores;
  mill_utc_text(mill_unix_s(), job->date);
  job->n_core = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 0;
  mill_cpu_model(job->cpu, sizeof job->cpu);
}

static int start(mill_bench *job, int argc, char **argv)
{
  int err = MILL_OK;
  if (argc > 1 && strcmp(argv[1], "schedule") == 0) {
    if (job->mpi.rank == 0)
      err = mill_bench_schedule(argc - 1, argv + 1);
    MILL_TRY(mill_mpi_agree(&job->mpi, err));
    goto done;
  }
  MILL_TRY(mill_command_text(argc, argv, &job->command));
  describe_machine(job);
  if (argc > 1 && strcmp(argv[1], "train") == 0) {
    MILL_TRY(mill_bench_train(job, argc - 1, argv + 1));
    goto done;
  }
  if (argc > 1 && strcmp(argv[1], "particles") == 0) {
    MILL_TRY(mill_bench_particles(job, argc - 1, argv + 1));
    goto done;
  }
  MILL_TRY(mill_bench_options_parse(argc, argv, &job->options));
  if (!job->options.task) {
    if (job->mpi.rank == 0)
      mill_option_print_help(mill_bench_help.table, mill_bench_help.usual, stdout);
    goto done;
  }
  MILL_TRY(mill_bench_one_rank(job));
  MILL_TRY(list_inputs(job));
  MILL_TRY(configure(job));
  MILL_TRY(check_roles(job));
  MILL_TRY(job->options.task(job));
done:
  return err;
}

int mill_job_bench(int argc, char **argv)
{
  mill_bench job;
  memset(&job, 0, sizeof job);
  int err = mill_mpi_start(&job.mpi);
  if (err == MILL_OK)
    err = start(&job, argc, argv);
  if (err != MILL_OK) {
    job.exit_status = mill_error_exit_status(err);
    if (job.mpi.rank == 0)
      fprintf(stderr, "starmill bench: %s\n", mill_error_message());
  }
  mill_library_clear(&job.lib);
  mill_config_clear(&job.config);
  mill_path_list_clear(&job.input);
  free(job.command);
  mill_mpi_end(&job.mpi);
  return job.exit_status;
}
