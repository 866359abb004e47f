#include "jobs/fit/fit_job.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/catalog/input_table.h"
#include "io/library/library_file.h"
#include "src/run/backend_choice.h"
#include "jobs/fit/fit_same.h"
#include "jobs/fit/sampled_fit.h"
#include "kernels/base/error.h"
#include "src/config/config.h"
#include "src/pipeline/device_model.h"
#include "src/system/file_roles.h"
#include "src/system/log.h"
#include "src/system/regular_file.h"
#include "src/system/shipped_file.h"
#include "src/system/stop_signal.h"
#include "src/system/thread.h"
#include "src/system/watchdog.h"

enum { LEAST_BYTES = 128 << 20 /* of address space at the start */ };

int mill_fit_load_config(void *context)
{
  mill_fit_job *job = context;
  int err = MILL_OK;
  const mill_fit_options *options = &job->options;
  const int watch = mill_watch_begin(MILL_WATCH_START, 0, "%s: reading it",
                                     options->config ? options->config : "what the options name");
  mill_config_clear(&job->setup.config);
  mill_config_default(&job->setup.config);
  if (options->config)
    MILL_TRY(mill_config_read(&job->setup.config, options->config));
  if (options->fit)
    MILL_TRY(mill_sampled_read_config(options->fit, &job->setup.config, job->setup.fit_hash,
                                      sizeof job->setup.fit_hash));
  MILL_TRY(mill_fit_options_apply(options, &job->setup.config));
  if (options->fit)
    MILL_TRY(mill_sampled_choose(options, &job->setup.config));
  if (job->observer && job->observer->instead) /* no GPU is looked for */
    snprintf(job->setup.config.backend, sizeof job->setup.config.backend, "cpu");
  MILL_TRY(mill_fit_options_running(options, &job->setup.running));
  MILL_TRY(mill_config_check(&job->setup.config));
  if (options->print_config)
    goto done;
  if (!options->output)
    MILL_FAIL(MILL_ERR_USAGE, "no output: give --output FILE; see starmill %s --help",
              options->fit ? "sample" : "fit");
  job->setup.library_came =
      mill_shipped_library(job->setup.config.template_lib, sizeof job->setup.config.template_lib);
  if (job->setup.config.template_lib[0] == '\0')
    MILL_FAIL(MILL_ERR_USAGE, "no library: give --library FILE or template_lib in the "
                              "configuration (none came with this program: there is no "
                              "share/starmill/" MILL_SHIPPED_LIBRARY " beside its bin)");
  if (options->status)
    snprintf(job->setup.status_path, sizeof job->setup.status_path, "%s", options->status);
  else
    MILL_TRY(mill_status_path(options->output, job->setup.status_path));
  const char *stop_file = job->setup.running.stop_file;
  if (snprintf(job->setup.stop_file, sizeof job->setup.stop_file, "%s%s",
               stop_file ? stop_file : options->output,
               stop_file ? "" : ".stop") >= (int)sizeof job->setup.stop_file)
    MILL_FAIL(MILL_ERR_USAGE, "the path of the stop file is too long");
done:
  mill_watch_end(watch);
  return err;
}

static int load_library(void *context)
{
  mill_fit_job *job = context;
  int err = MILL_OK;
  const int watch = mill_watch_begin(MILL_WATCH_START, 0, "%s: reading the library",
                                     job->setup.config.template_lib);
  MILL_TRY(mill_library_read(job->setup.config.template_lib, &job->setup.lib));
  if (job->options.fit && strcmp(job->setup.fit_hash, job->setup.lib.hash) != 0)
    MILL_FAIL(MILL_ERR_CONFIG,
              "%s was fitted with another library than %s (hashes %.12s and %.12s): give that one "
              "by --library",
              job->options.fit, job->setup.config.template_lib, job->setup.fit_hash,
              job->setup.lib.hash);
  MILL_TRY(mill_config_cut_arms(&job->setup.config, &job->setup.lib));
  MILL_TRY(mill_config_bind(&job->setup.config, &job->setup.lib));
  MILL_TRY(mill_config_arms(&job->setup.config, &job->setup.lib, job->setup.arm_wanted));
  if (job->options.fit) /* before there is an output */
    MILL_TRY(mill_device_model_check(&job->setup.lib, &job->setup.config.fit));
  if (job->setup.library_came && job->mpi.rank == 0)
    mill_log_info("no --library: fitting with %s, which came with starmill",
                  job->setup.config.template_lib);
done:
  mill_watch_end(watch);
  return err;
}

static int load_start(void *context)
{
  mill_fit_job *job = context;
  int err = MILL_OK;
  mill_config *config = &job->setup.config;
  const mill_open_limits limits = {config->gzip_limit_mib, config->scratch};
  if (!config->start[0])
    return MILL_OK;
  const int watch =
      mill_watch_begin(MILL_WATCH_START, 0, "%s: reading the table to start from", config->start);
  MILL_TRY(mill_start_table_read(config->start, &job->setup.lib, &config->fit, &limits,
                                 &job->setup.start));
  snprintf(config->start_hash, sizeof config->start_hash, "%s",
           mill_start_table_hash(job->setup.start));
done:
  mill_watch_end(watch);
  return err;
}

/* No file has two roles.  A catalog may name very many inputs, so these are compared when all ranks
 * have looked at theirs (mill_inputs_index): until then the job writes only the log and looks for
 * the stop file, which are no files of data. */
static int check_roles(mill_fit_job *job)
{
  const mill_fit_options *options = &job->options;
  mill_file_roles *roles = &job->setup.roles;
  MILL_CHECK(mill_file_roles_write(roles, "--output", options->output));
  MILL_CHECK(mill_file_roles_write(roles, "--models", options->models));
  MILL_CHECK(mill_file_roles_write(roles, "--log", options->log));
  MILL_CHECK(mill_file_roles_write(roles, "--input-table", options->input_table));
  MILL_CHECK(mill_file_roles_write(roles, options->status ? "--status" : "the status file",
                                   job->setup.status_path));
  MILL_CHECK(mill_file_roles_write(roles, options->stop_file ? "--stop-file" : "the stop file",
                                   job->setup.stop_file));
  MILL_CHECK(
      mill_refuse_data(job->setup.stop_file, options->stop_file ? "--stop-file" : "the stop file"));
  if (options->log)
    MILL_CHECK(mill_log_refuse_other(options->log));
  if (options->input_table)
    MILL_CHECK(mill_input_table_check(options->input_table));
  if (options->input_table && job->setup.config.join_by_name)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "--input-table is kept file by file, and join_by_name makes one row "
                      "of several files: leave one of them out");
  MILL_CHECK(mill_file_roles_read(roles, "the library", job->setup.config.template_lib));
  MILL_CHECK(mill_file_roles_read(roles, "--config", options->config));
  MILL_CHECK(mill_file_roles_read(roles, "--catalog", options->catalog));
  MILL_CHECK(mill_file_roles_read(roles, "--targetid-file", options->target_id_file));
  MILL_CHECK(mill_file_roles_read(roles, "--numbers-file", options->numbers_file));
  MILL_CHECK(mill_file_roles_read(roles, "the table to start from", job->setup.config.start));
  MILL_CHECK(
      mill_file_roles_read(roles, "the redrock file", job->setup.config.select.redrock_file));
  for (int i = 0; i < options->n_input; i++)
    MILL_CHECK(mill_file_roles_read(roles, "the input", options->input[i]));
  return MILL_OK;
}

/* Rank 0, before anything is opened or made, and the inputs indexed, which may take hours. */
static int check_outputs(mill_fit_job *job)
{
  int err = MILL_OK;
  const mill_fit_options *options = &job->options;
  const int watch =
      mill_watch_begin(MILL_WATCH_START, 0, "%s: looking at what is there", options->output);
  MILL_TRY(check_roles(job));
  MILL_TRY(mill_board_check_path(job->setup.status_path));
  MILL_TRY(mill_check_output(options->output, "output"));
  MILL_TRY(mill_refuse_new(options->output, "output"));
  if (options->models) {
    MILL_TRY(mill_check_output(options->models, "models"));
    MILL_TRY(mill_refuse_new(options->models, "models"));
  }
  if (options->overwrite)
    MILL_TRY(mill_refuse_foreign(options->output, "--output", "starmill result"));
  if (options->overwrite && options->models)
    MILL_TRY(mill_refuse_foreign(options->models, "--models", "starmill models"));
done:
  mill_watch_end(watch);
  return err;
}

static void warn_of_file_pointers(const mill_fit_job *job)
{
  int may_wait = 0;
  const char *chosen = mill_mpi_file_pointers(&may_wait);
  if (may_wait && job->mpi.rank == 0)
    mill_log_warning("OMPI_MCA_sharedfp=%s lets the opening of the output wait for what a killed "
                     "job has left on this node: unset it",
                     chosen);
}

/* MPI, OpenMP and HDF5 need memory too, and do not say so where there is none. */
static int check_memory(void)
{
  if (mill_memory_room(1, LEAST_BYTES) == 0)
    return MILL_ERROR(MILL_ERR_MEMORY,
                      "no memory to begin with: a rank needs %d MiB more than it has now%s",
                      LEAST_BYTES >> 20, mill_memory_limit());
  return MILL_OK;
}

int mill_fit_set_up(mill_fit_job *job)
{
  int err = mill_stop_signal_catch();
  if (err == MILL_OK)
    err = check_memory();
  if (err == MILL_OK && job->mpi.rank == 0)
    err = check_outputs(job);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  err = mill_log_open(job->mpi.rank, job->mpi.size,
                      mill_log_level_from_name(job->setup.config.log_level),
                      job->options.plan ? NULL : job->options.log);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  MILL_TRY(mill_fit_watch_stops(job));
  warn_of_file_pointers(job);
  MILL_TRY(mill_mpi_rank0_first(&job->mpi, load_library, job));
  MILL_TRY(mill_mpi_rank0_first(&job->mpi, load_start, job));
  MILL_TRY(mill_fit_same_settings(&job->mpi, &job->setup.config, &job->setup.lib));
  if (strcmp(job->setup.config.backend, "cuda") == 0 && !job->options.plan)
    MILL_TRY(mill_backend_place(&job->mpi, 1));
  if (strcmp(job->setup.config.backend, MILL_BACKEND_MIXED) == 0 && !job->options.plan)
    MILL_TRY(mill_backend_place_some(&job->mpi, &job->device.has_gpu));
  /* auto depends on the number of rows */
  if (strcmp(job->setup.config.backend, "auto") != 0)
    MILL_TRY(mill_fit_agree_backend(job));
  job->device.n_thread = job->setup.config.n_thread;
  MILL_TRY(mill_mpi_agree(&job->mpi, mill_thread_check_number(job->device.n_thread)));
  if (job->device.n_thread == 0)
    MILL_TRY(mill_mpi_share_of_cores(&job->mpi, &job->device.n_thread));
done:
  return err;
}
