#include "jobs/fit/fit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/hdf5/hdf5_probe.h"
#include "io/library/library_file.h"
#include "io/hdf5/parallel_hdf5.h"
#include "io/result/result_file.h"
#include "io/files/start_table.h"
#include "jobs/fit/backend_choice.h"
#include "jobs/fit/balance.h"
#include "jobs/fit/fit_same.h"
#include "jobs/fit/inputs.h"
#include "jobs/options/options.h"
#include "jobs/fit/plan.h"
#include "jobs/fit/reader.h"
#include "jobs/status/status_board.h"
#include "jobs/status/status_file.h"
#include "jobs/status/status_result.h"
#include "jobs/fit/stop_watch.h"
#include "jobs/fit/work.h"
#include "kernels/backend.h"
#include "kernels/cuda/device_choice.h"
#ifdef MILL_HAVE_CUDA
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_probe.h"
#endif
#include "kernels/base/error.h"
#include "kernels/base/clock.h"
#include "src/config/config.h"
#include "src/system/file_roles.h"
#include "src/system/log.h"
#include "src/ranks/mpi_context.h"
#include "src/pipeline/pipeline.h"
#include "src/system/progress.h"
#include "src/system/regular_file.h"
#include "src/system/stop_signal.h"
#include "src/system/thread.h"
#include "src/system/watchdog.h"
#include "src/ranks/usual_rate.h"

enum { LEAST_BYTES = 128 << 20 /* of address space at the start */ };
enum { MANY_SLOTS = 64, THREAD_SLOTS = 32, EXIT_UNREADABLE = 3, EXIT_STOPPED = 75 };

/* A segment of a star under way, as far as its model needs it. */
typedef struct flight_segment {
  int exposure, arm, n_pix;
  double *wave_aa; /* [n_pix], owned; NULL where all models share the arm's wavelengths */
} flight_segment;

/* A row on its way through the pipeline, as far as its models need it. */
typedef struct in_flight {
  int64_t row, model_row;
  int n_segment;
  flight_segment *segment; /* [n_segment], owned */
} in_flight;

/* A set of wavelengths that a row of the batch had. */
typedef struct recent_set {
  const double *wave_aa; /* of the batch; NULL: none */
  int n_pix, id;
} recent_set;

/* When a star was taken, by its row; another that falls on its place forgets it. */
typedef struct star_start {
  int64_t row;
  double s;
} star_start;

enum { N_STAR_START = 1 << 14 };

typedef struct fit_job {
  mill_mpi mpi;
  mill_fit_options options; /* a copy of the caller's, which owns what it points to */
  mill_fit_costs *costs;    /* NULL: not wanted */
  double start_wall_s;
  mill_config config;
  mill_library lib;
  mill_inputs inputs;
  mill_start_table *start; /* NULL: none was given */
  const mill_backend *backend;
  mill_existing existing; /* on rank 0; once it is open: only where it is continued */
  int arm_wanted[MILL_MAX_ARM];
  int n_thread, n_reader;
  mill_result_file *result;
  const char *command;
  mill_running running;
  char status_path[MILL_STATUS_PATH];
  char stop_file[MILL_STATUS_PATH + 8];
  mill_file_roles roles; /* rank 0 */
  mill_stop_watch *stop;
  star_start *star_start; /* [N_STAR_START] */
  int watch;              /* token of the round of fits under way; -1: none */
  mill_board *board;      /* while there is something to fit */
  mill_work *work;        /* the same */
  mill_balance balance;
  /* while fitting */
  mill_fit_settings fit; /* of the pipeline */
  mill_pipeline *pipeline;
  mill_reader *reader;
  mill_batch *batch;
  int i_row;  /* next row of the batch */
  int i_file; /* whose arms have been complained of; -1: none yet */
  unsigned told_no_lsf, told_outside;
  int told_beyond; /* a channel of it beyond all arms */
  mill_raw_segment *segment;
  int n_segment; /* allocated */
  int n_held;    /* whose wavelength sets are held until the next star is taken */
  recent_set recent[MILL_MAX_ARM];
  in_flight *flight;
  int n_flight, n_flight_held;
  float *model_flux; /* [n_model] one row of the models file */
  double *model_wave;
  int n_model;
  mill_progress progress;
  int64_t n_put;
} fit_job;

/* ---- set-up ---- */

int mill_fit_command(int argc, char **argv, char **out)
{
  int err = MILL_OK;
  size_t size = 0;
  FILE *text = open_memstream(out, &size);
  if (!text)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory for the command line");
  fputs("starmill", text);
  for (int i = 0; i < argc; i++) {
    const int plain = argv[i][0] != '\0' && !strpbrk(argv[i], " \t\n\"'\\$`*?[]{}()<>|&;#~!");
    if (plain) {
      fprintf(text, " %s", argv[i]);
      continue;
    }
    fputs(" '", text);
    for (const char *c = argv[i]; *c; c++)
      fputs(*c == '\'' ? "'\\''" : (char[]){*c, '\0'}, text);
    fputc('\'', text);
  }
  if (fclose(text) != 0)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory for the command line");
done:
  return err;
}

/* CPU seconds of the process since *last, which becomes now. */
static double lap_s(double *last)
{
  const double now = mill_process_cpu_s(), lap = now - *last;
  *last = now;
  return lap;
}

static int load_config(void *context)
{
  fit_job *job = context;
  int err = MILL_OK;
  const mill_fit_options *options = &job->options;
  const int watch = mill_watch_begin(MILL_WATCH_START, 0, "%s: reading it",
                                     options->config ? options->config : "what the options name");
  mill_config_clear(&job->config);
  mill_config_default(&job->config);
  if (options->config)
    MILL_TRY(mill_config_read(&job->config, options->config));
  MILL_TRY(mill_fit_options_apply(options, &job->config));
  if (job->costs && job->costs->instead) /* no GPU is looked for */
    snprintf(job->config.backend, sizeof job->config.backend, "cpu");
  MILL_TRY(mill_fit_options_running(options, &job->running));
  MILL_TRY(mill_config_check(&job->config));
  if (options->print_config)
    goto done;
  if (!options->output)
    MILL_FAIL(MILL_ERR_USAGE, "no output: give --output FILE; see starmill fit --help");
  if (job->config.template_lib[0] == '\0')
    MILL_FAIL(MILL_ERR_USAGE,
              "no library: give --library FILE or template_lib in the configuration");
  if (options->status)
    snprintf(job->status_path, sizeof job->status_path, "%s", options->status);
  else
    MILL_TRY(mill_status_path(options->output, job->status_path));
  const char *stop_file = job->running.stop_file;
  if (snprintf(job->stop_file, sizeof job->stop_file, "%s%s",
               stop_file ? stop_file : options->output,
               stop_file ? "" : ".stop") >= (int)sizeof job->stop_file)
    MILL_FAIL(MILL_ERR_USAGE, "the path of the stop file is too long");
done:
  mill_watch_end(watch);
  return err;
}

static int load_library(void *context)
{
  fit_job *job = context;
  int err = MILL_OK;
  const int watch =
      mill_watch_begin(MILL_WATCH_START, 0, "%s: reading the library", job->config.template_lib);
  if (job->mpi.rank == 0)
    MILL_TRY(mill_h5_probe(MILL_PROBE_LIBRARY, job->config.template_lib));
  MILL_TRY(mill_library_read(job->config.template_lib, &job->lib));
  MILL_TRY(mill_config_bind(&job->config, &job->lib));
  MILL_TRY(mill_config_arms(&job->config, &job->lib, job->arm_wanted));
done:
  mill_watch_end(watch);
  return err;
}

static int load_start(void *context)
{
  fit_job *job = context;
  int err = MILL_OK;
  mill_config *config = &job->config;
  const mill_open_limits limits = {config->gzip_limit_mib, config->scratch};
  if (!config->start[0])
    return MILL_OK;
  const int watch =
      mill_watch_begin(MILL_WATCH_START, 0, "%s: reading the table to start from", config->start);
  if (job->mpi.rank == 0)
    MILL_TRY(mill_h5_probe(MILL_PROBE_TABLE, config->start));
  MILL_TRY(mill_start_table_read(config->start, &job->lib, &config->fit, &limits, &job->start));
  snprintf(config->start_hash, sizeof config->start_hash, "%s", mill_start_table_hash(job->start));
done:
  mill_watch_end(watch);
  return err;
}

/* Before hours of indexing. */
static int check_output(const char *path, const char *option)
{
  int err = MILL_OK;
  char folder[1024];
  struct stat status;
  const char *slash = strrchr(path, '/');
  const int n = !slash ? 0 : slash == path ? 1 : (int)(slash - path);
  if (strlen(path) >= sizeof folder - 16)
    MILL_FAIL(MILL_ERR_USAGE, "--%s: a path of %zu bytes is too long", option, strlen(path));
  snprintf(folder, sizeof folder, "%.*s", n, path);
  if (n == 0)
    snprintf(folder, sizeof folder, ".");
  if (stat(folder, &status) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "--%s %s: the folder %s cannot be used: %s; create it first", option,
              path, folder, strerror(errno));
  if (!S_ISDIR(status.st_mode))
    MILL_FAIL(MILL_ERR_OUTPUT, "--%s %s: %s is no folder", option, path, folder);
  if (access(folder, W_OK | X_OK) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "--%s %s: cannot write in the folder %s: %s", option, path, folder,
              strerror(errno));
  if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
    MILL_FAIL(MILL_ERR_OUTPUT, "--%s %s exists and is no file: choose another name", option, path);
done:
  return err;
}

/* No file has two roles.  The inputs of a catalog, of which there may be very many, are compared
 * when all ranks have looked at theirs (mill_inputs_index): until then only the log is written
 * and the stop file looked for, which are no files of data. */
static int check_roles(fit_job *job)
{
  int err = MILL_OK;
  const mill_fit_options *options = &job->options;
  mill_file_roles *roles = &job->roles;
  MILL_TRY(mill_file_roles_write(roles, "--output", options->output));
  MILL_TRY(mill_file_roles_write(roles, "--models", options->models));
  MILL_TRY(mill_file_roles_write(roles, "--log", options->log));
  if (job->running.status_interval_s > 0)
    MILL_TRY(mill_file_roles_write(roles, options->status ? "--status" : "the status file",
                                   job->status_path));
  MILL_TRY(mill_file_roles_write(roles, options->stop_file ? "--stop-file" : "the stop file",
                                 job->stop_file));
  MILL_TRY(mill_refuse_data(job->stop_file, options->stop_file ? "--stop-file" : "the stop file"));
  if (options->log)
    MILL_TRY(mill_refuse_data(options->log, "--log"));
  MILL_TRY(mill_file_roles_read(roles, "the library", job->config.template_lib));
  MILL_TRY(mill_file_roles_read(roles, "--config", options->config));
  MILL_TRY(mill_file_roles_read(roles, "--catalog", options->catalog));
  MILL_TRY(mill_file_roles_read(roles, "--targetid-file", options->target_id_file));
  MILL_TRY(mill_file_roles_read(roles, "the table to start from", job->config.start));
  MILL_TRY(mill_file_roles_read(roles, "the redrock file", job->config.select.redrock_file));
  for (int i = 0; i < options->n_input; i++)
    MILL_TRY(mill_file_roles_read(roles, "the input", options->input[i]));
done:
  return err;
}

/* Rank 0, before anything is opened or made. */
static int check_outputs(fit_job *job)
{
  int err = MILL_OK;
  const mill_fit_options *options = &job->options;
  const int watch =
      mill_watch_begin(MILL_WATCH_START, 0, "%s: looking at what is there", options->output);
  MILL_TRY(check_roles(job));
  if (job->running.status_interval_s > 0)
    MILL_TRY(mill_board_check_path(job->status_path));
  MILL_TRY(check_output(options->output, "output"));
  if (options->models)
    MILL_TRY(check_output(options->models, "models"));
done:
  mill_watch_end(watch);
  return err;
}

int mill_fit_default_slots(const mill_backend *backend, int n_thread)
{
  if (backend->default_slot > 0)
    return backend->default_slot;
  /* one thread is busy with half of them: its first star comes earlier, and less memory has
   * to be had */
  return strncmp(backend->name, "cpu", 3) == 0 && n_thread == 1 ? THREAD_SLOTS : MANY_SLOTS;
}

int mill_fit_default_readers(const mill_backend *backend, int n_thread)
{
  /* on the CPU a star is fitted in some 20 times the time in which it is read */
  const int n = strncmp(backend->name, "cpu", 3) == 0 ? (n_thread + 15) / 16 : n_thread / 2;
  const int most = mill_spectra_threads() ? MILL_FIT_MOST_READERS : 1;
  return n < 1 ? 1 : n > most ? most : n;
}

static int slots_of(const fit_job *job)
{
  return job->config.n_slot > 0 ? job->config.n_slot
                                : mill_fit_default_slots(job->backend, job->n_thread);
}

/* Rows that this rank takes before it has finished any. */
static int64_t held_rows(const fit_job *job)
{
  return slots_of(job) + mill_reader_rows_ahead(job->n_reader);
}

int mill_fit_find_backend(const char *choice, const mill_backend **backend)
{
  int err = MILL_OK;
  if (strcmp(choice, "cuda") == 0) {
#ifdef MILL_HAVE_CUDA
    *backend = mill_backend_cuda(&err);
    goto done;
#else
    MILL_FAIL(MILL_ERR_CONFIG,
              "backend cuda: this program was built without CUDA; use cpu or auto, "
              "or build it where nvcc is found");
#endif
  }
  /* auto too, until a run settles it by the number of its rows */
  *backend = mill_backend_cpu(NULL);
  if (!*backend)
    MILL_FAIL(MILL_ERR_BACKEND, "no CPU backend runs on this machine");
done:
  return err;
}

/* Results are the same bit for bit only on one instruction set, so all ranks
 * take the oldest one among them; GPUs must be of one kind. */
static int agree_backend(fit_job *job)
{
  int err = MILL_OK;
  static const char prefix[] = "cpu ";
  static const mill_backend any_gpu = {.name = "cuda", .default_slot = MILL_GPU_SLOTS};
  enum { SIZE = 64 };
  char mine[SIZE] = "", *all = NULL;
  const char *oldest = NULL;

  if (job->costs && job->costs->instead) {
    job->backend = job->costs->instead;
    goto done;
  }
  if (job->options.plan && strcmp(job->config.backend, "cuda") == 0) {
    job->backend = &any_gpu; /* a plan needs none */
    goto done;
  }
  err = mill_fit_find_backend(job->config.backend, &job->backend);
  if (err == MILL_OK)
    err = MILL_ALLOC((size_t)job->mpi.size * SIZE, &all);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  snprintf(mine, sizeof mine, "%s", job->backend->name);
  MILL_MPI(MPI_Allgather(mine, SIZE, MPI_CHAR, all, SIZE, MPI_CHAR, job->mpi.comm));
  oldest = all;
  for (int rank = 1; rank < job->mpi.size; rank++)
    if (strcmp(all + (size_t)rank * SIZE, oldest) < 0)
      oldest = all + (size_t)rank * SIZE;
  if (strcmp(mine, oldest) != 0 && strncmp(oldest, prefix, strlen(prefix)) != 0)
    err = mill_error_set(MILL_ERR_BACKEND, __FILE__, __LINE__,
                         "one rank has the backend '%s', another '%s', and their results would "
                         "differ in the last digits: use GPUs of one kind",
                         mine, oldest);
  else if (strcmp(mine, oldest) != 0) {
    job->backend = mill_backend_cpu(oldest + strlen(prefix));
    if (!job->backend)
      err = mill_error_set(MILL_ERR_BACKEND, __FILE__, __LINE__,
                           "one rank has the backend '%s', another only '%s', which the first "
                           "cannot run: use machines of one kind",
                           mine, oldest);
    else
      mill_log_info("backend %s instead of %s, as other ranks have no better", oldest, mine);
  }
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
done:
  mill_free(all);
  return err;
}

/* From now on the job hears of reasons to stop. */
static int start_watching(fit_job *job)
{
  int err = MILL_OK;
  const int is_fit = !job->costs && !job->options.plan;
  if (is_fit && job->mpi.rank == 0)
    err = mill_stop_file_absent(job->stop_file);
  if (err == MILL_OK)
    err = mill_stop_watch_start(&job->mpi, is_fit ? job->stop_file : NULL,
                                job->running.time_limit_s, job->start_wall_s, &job->stop);
  if (err == MILL_OK)
    err = MILL_ALLOC(N_STAR_START, &job->star_start);
  return mill_mpi_agree(&job->mpi, err);
}

/* Between the steps before the first fit.  Collective. */
static int agree_to_go_on(fit_job *job, const char *step)
{
  int err = MILL_OK;
  char why[MILL_STATUS_PATH + 64];
  if (mill_stop_reason() != MILL_STOP_NONE) {
    mill_stop_watch_text(job->stop, why, sizeof why);
    err = mill_error_set(MILL_ERR_STOPPED, __FILE__, __LINE__,
                         "stopped %s (%s): nothing was fitted; the same command starts again", step,
                         why);
  }
  return mill_mpi_agree(&job->mpi, err);
}

static void warn_of_file_pointers(const fit_job *job)
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
  int err = MILL_OK;
  if (mill_memory_room(1, LEAST_BYTES) == 0)
    MILL_FAIL(MILL_ERR_MEMORY,
              "no memory to begin with: a rank needs %d MiB more than it has now%s",
              LEAST_BYTES >> 20, mill_memory_limit());
done:
  return err;
}

static int set_up(fit_job *job)
{
  int err = mill_stop_signal_catch();
  if (err == MILL_OK)
    err = check_memory();
  if (err == MILL_OK && job->mpi.rank == 0)
    err = check_outputs(job);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  err = mill_log_open(job->mpi.rank, job->mpi.size, mill_log_level_from_name(job->config.log_level),
                      job->options.plan ? NULL : job->options.log);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  MILL_TRY(start_watching(job));
  warn_of_file_pointers(job);
  MILL_TRY(mill_mpi_rank0_first(&job->mpi, load_library, job));
  MILL_TRY(mill_mpi_rank0_first(&job->mpi, load_start, job));
  MILL_TRY(mill_fit_same_settings(&job->mpi, &job->config, &job->lib));
  if (strcmp(job->config.backend, "cuda") == 0 && !job->options.plan)
    MILL_TRY(mill_backend_place(&job->mpi));
  /* auto depends on the number of rows */
  if (strcmp(job->config.backend, "auto") != 0)
    MILL_TRY(agree_backend(job));
  job->n_thread = job->config.n_thread;
  MILL_TRY(mill_mpi_agree(&job->mpi, mill_thread_check_number(job->n_thread)));
  if (job->n_thread == 0)
    MILL_TRY(mill_mpi_share_of_cores(&job->mpi, &job->n_thread));
done:
  return err;
}

/* The device of the result that is continued, on rank 0; NULL: it is begun anew. */
static const char *begun_on(const fit_job *job)
{
  /* known also where other attributes of the file are not */
  const char *device = job->existing.peek.device;
  return device[0] && !job->options.overwrite ? device : NULL;
}

/* auto becomes what this run takes, also in the configuration that the result file keeps. */
static int settle_backend(fit_job *job)
{
  int err = MILL_OK;
  const char *choice = NULL;
  if (strcmp(job->config.backend, "auto") != 0)
    goto done;
  MILL_TRY((job->options.plan ? mill_backend_wish : mill_backend_settle)(
      &job->mpi, job->options.output, begun_on(job), job->inputs.n_row, job->n_thread, &choice));
  snprintf(job->config.backend, sizeof job->config.backend, "%s", choice);
  MILL_TRY(agree_backend(job));
done:
  return err;
}

static int choose_readers(fit_job *job)
{
  int err = MILL_OK;
  job->n_reader = job->config.n_reader > 0 ? job->config.n_reader
                                           : mill_fit_default_readers(job->backend, job->n_thread);
  if (job->n_reader > 1 && !mill_spectra_threads())
    MILL_FAIL(MILL_ERR_CONFIG,
              "readers: %d, but this CFITSIO was built without threads (--enable-reentrant): "
              "take 1",
              job->n_reader);
done:
  return err;
}

/* ---- output ---- */

static int open_models(fit_job *job)
{
  int err = MILL_OK;
  const double *wave_aa[MILL_MAX_ARM];
  for (int a = 0; a < MILL_MAX_ARM; a++) {
    wave_aa[a] = job->inputs.wave_aa[a];
    job->n_model = job->inputs.n_pix[a] > job->n_model ? job->inputs.n_pix[a] : job->n_model;
    if (job->inputs.n_pix[a] > 0 && !wave_aa[a] && job->mpi.rank == 0)
      mill_log_info("models: wavelengths differ in arm %s, so each row has its own",
                    job->lib.arm[a].name);
  }
  err = MILL_ALLOC(job->n_model, &job->model_flux);
  if (err == MILL_OK)
    err = MILL_ALLOC(job->n_model, &job->model_wave);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  MILL_TRY(mill_result_open_models(job->result, job->options.models, job->options.overwrite,
                                   wave_aa, job->inputs.n_pix));
done:
  return err;
}

/* The default mask is the dichroic of DESI, which means nothing elsewhere. */
static int settle_wave_mask(fit_job *job)
{
  int err = MILL_OK;
  int n_desi = 0, n_other = 0, i_other = 0;
  if (!job->config.wave_mask_auto)
    goto done;
  for (int i = 0; i < job->inputs.n_file; i++) {
    const char *format = job->inputs.file[i].format;
    if (strcmp(format, "desi") == 0)
      n_desi++;
    else if (format[0] && n_other++ == 0)
      i_other = i;
  }
  if (n_desi > 0 && n_other > 0)
    MILL_FAIL(MILL_ERR_CONFIG,
              "wave_mask: auto masks the dichroic of DESI, but %s is of format %s: set wave_mask "
              "([] for none), or fit the surveys one by one",
              job->inputs.file[i_other].path, job->inputs.file[i_other].format);
  if (n_other > 0)
    job->config.fit.n_wave_mask = 0;
done:
  return err;
}

/* What the table to start from has of a row, or that the row has no key to find it by. */
enum { NO_KEY = MILL_START_NOT_FINITE + 1, N_COUNT };

/* The rows of a file of this rank's share, by what the table has of them. */
static int count_starts_of(const fit_job *job, int f, int64_t *n)
{
  int err = MILL_OK;
  mill_file_index loaded = {0};
  const mill_file_index *index = &job->inputs.index[f - job->inputs.file_start];
  const double *theta;
  if (!index->row && index->n_row > 0) {
    MILL_TRY(mill_inputs_load((void *)&job->inputs, f, &loaded));
    index = &loaded;
  }
  for (int64_t i = 0; i < index->n_row; i++) {
    const mill_catalog_row *row = &index->row[i];
    if (row->target_id == -1 && !row->object[0])
      n[NO_KEY]++;
    else
      n[mill_start_table_find(job->start, row->target_id, row->object, &theta)]++;
  }
done:
  mill_file_index_clear(&loaded);
  return err;
}

/* Say how many rows the table to start from has, so that no star is guessed unnoticed.
 * A table without any is the wrong one. Collective. */
static int count_starts(fit_job *job)
{
  int err = MILL_OK;
  int64_t mine[N_COUNT] = {0}, n[N_COUNT] = {0};
  const char *path = job->config.start;
  for (int f = job->inputs.file_start; f < job->inputs.file_end && err == MILL_OK; f++)
    err = count_starts_of(job, f, mine);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  MILL_MPI(MPI_Allreduce(mine, n, N_COUNT, MPI_INT64_T, MPI_SUM, job->mpi.comm));
  const int64_t n_guessed = n[MILL_START_ABSENT] + n[MILL_START_NOT_FINITE] + n[NO_KEY];
  if (n[MILL_START_GIVEN] == 0 && n_guessed > 0 && n[NO_KEY] == n_guessed)
    MILL_FAIL(MILL_ERR_CONFIG,
              "start: the stars of the inputs have neither TARGETID nor name by which to find "
              "them in %s: fit them without start",
              path);
  if (n[MILL_START_GIVEN] == 0 && n_guessed > 0)
    MILL_FAIL(MILL_ERR_CONFIG,
              "start: %s has values for none of the %lld rows (%lld are not in it, %lld have no "
              "finite ones there): is it the table of these stars?",
              path, (long long)n_guessed, (long long)(n[MILL_START_ABSENT] + n[NO_KEY]),
              (long long)n[MILL_START_NOT_FINITE]);
  if (job->mpi.rank != 0)
    goto done;
  if (mill_start_table_n_repeated(job->start) > 0)
    mill_log_warning("start: %lld rows of %s are of stars that have an earlier row there; the "
                     "first finite one counts",
                     (long long)mill_start_table_n_repeated(job->start), path);
  if (n_guessed > 0)
    mill_log_warning("start: %lld of %lld rows start from %s; the others are guessed: %lld are not "
                     "in it, %lld have no finite values there",
                     (long long)n[MILL_START_GIVEN], (long long)(n[MILL_START_GIVEN] + n_guessed),
                     path, (long long)(n[MILL_START_ABSENT] + n[NO_KEY]),
                     (long long)n[MILL_START_NOT_FINITE]);
  else
    mill_log_info("start: all %lld rows start from %s", (long long)n[MILL_START_GIVEN], path);
done:
  return err;
}

static int open_result(fit_job *job, int *outcome)
{
  int err = MILL_OK;
  char *identity = NULL, *config = NULL;
  size_t config_size = 0;
  FILE *text = open_memstream(&config, &config_size);
  if (!text)
    err = mill_error_set(MILL_ERR_MEMORY, __FILE__, __LINE__, "no memory for the configuration");
  if (err == MILL_OK)
    err = mill_config_print(&job->config, text);
  if (text && fclose(text) != 0 && err == MILL_OK)
    err = mill_error_set(MILL_ERR_MEMORY, __FILE__, __LINE__, "no memory for the configuration");
  if (err == MILL_OK)
    err = mill_config_identity(&job->config, &identity);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));

  const mill_run_info info = {
      .lib = &job->lib,
      .identity = identity,
      .config = config,
      .command = job->command,
      .device = job->backend->name,
      .n_thread = job->n_thread,
      .n_row = job->inputs.n_row,
      .n_file = job->inputs.n_file,
      .file = job->inputs.file,
      .file_start = job->inputs.file_start,
      .file_end = job->inputs.file_end,
      .index = job->inputs.index,
      .load = mill_inputs_load,
      .load_context = &job->inputs,
      .write_interval_s = job->config.write_interval_s,
  };
  MILL_TRY(mill_result_open(job->options.output, job->options.overwrite, job->options.retry_failed,
                            &info, job->mpi.comm, &job->result, outcome));
done:
  free(config);
  free(identity);
  return err;
}

/* Deal out the rows. Collective. */
static int open_work(fit_job *job)
{
  int err = MILL_OK;
  const int is_cpu = strncmp(job->backend->name, "cpu", 3) == 0;
  const mill_work_plan plan = {
      .n_file = job->inputs.n_file,
      .file = job->inputs.file,
      .n_exposure = job->inputs.n_exposure,
      .result = job->result,
      .n_row_limit = job->costs ? job->costs->n_row_limit : 0,
      .rate = is_cpu ? job->n_thread * mill_usual_core_rate(job->config.fit.optimizer)
                     : mill_usual_gpu_rate(),
      .n_held = held_rows(job),
      .n_ahead = mill_reader_rows_ahead(job->n_reader),
  };
  mill_work_stats stats;
  MILL_TRY(mill_work_open(&job->mpi, &plan, &job->work));
  mill_work_get_stats(job->work, &stats);
  if (job->mpi.rank == 0 && job->mpi.size > 1)
    mill_log_debug("%lld rows are dealt out in %lld chunks, the least of %.0f rows",
                   (long long)stats.sum.n_row, (long long)stats.sum.n_chunk, stats.sum.least_cost);
done:
  return err;
}

/* How the work was shared, of all ranks. Collective, after the file is closed. */
static int gather_balance(fit_job *job, double write_s, mill_balance_all *all)
{
  int err = MILL_OK;
  mill_balance *b = &job->balance;
  mill_work_stats stats;
  mill_work_get_stats(job->work, &stats);
  b->n_row = (double)job->n_put;
  b->n_chunk = (double)stats.n_taken;
  b->draw_wait_s = stats.wait_s;
  b->write_s = write_s;
  mill_log_debug(
      "fitted %lld rows of %lld chunks in %.3f s; files opened %.0f times; waited %.3f s "
      "for spectra, %.3f s for the I/O thread, which wrote for %.3f s; the reader "
      "waited %.3f s for work; requests of other ranks answered: %lld",
      (long long)job->n_put, (long long)stats.n_taken, b->end_s, b->n_opened, b->read_wait_s,
      b->put_wait_s, b->write_s, b->draw_wait_s, (long long)stats.n_answered);
  MILL_TRY(mill_balance_gather(&job->mpi, b, all));
  if (job->mpi.rank == 0)
    mill_log_debug("idle tail %.2f %%: %d ranks fitted for %.3f to %.3f s", 100.0 * all->idle_tail,
                   all->n_rank, all->least_end_s, all->most_end_s);
done:
  return err;
}

/* Collective. */
static int open_board(fit_job *job)
{
  mill_board_plan plan = {
      .path = job->costs ? NULL : job->status_path,
      .interval_s = job->running.status_interval_s,
      .output = job->options.output,
      .models = job->options.models,
      .command = job->command,
      .backend = job->backend->name,
      .n_thread = job->n_thread,
      .n_slot = slots_of(job),
      .n_row = job->inputs.n_row,
      .n_file = job->inputs.n_file,
      .n_unreadable = job->inputs.n_unreadable,
      .file = job->inputs.file,
  };
  int64_t n_base = 0;
  for (int s = MILL_STATUS_FITTED; s < MILL_N_STATUS; s++)
    if (s == MILL_STATUS_FITTED || !job->options.retry_failed)
      n_base += plan.base[s] = job->existing.peek.n_status[s];
  /* rows that were not whole are fitted again */
  plan.base[MILL_STATUS_FITTED] -= n_base - mill_result_n_done(job->result);
#ifdef MILL_HAVE_CUDA
  if (strncmp(job->backend->name, "cuda", 4) == 0)
    mill_cuda_probe_bus(plan.gpu_bus, sizeof plan.gpu_bus);
#endif
  return mill_board_open(&job->mpi, &plan, &job->board);
}

/* ---- fitting ---- */

static void add_name(char *list, size_t size, const char *name)
{
  const size_t n = strlen(list);
  snprintf(list + n, size - n, "%s%s", n > 0 ? ", " : "", name);
}

/* Arms of a row that cannot be fitted, by reason. */
typedef struct left_out {
  unsigned no_lsf, outside;
  int beyond;       /* a channel lies beyond all arms */
  int i_file;       /* of the catalog, of the last of them */
  char reason[512]; /* why outside, of the last such arm */
} left_out;

/* Say what is wrong with arms, once per file and arm. */
static void complain(fit_job *job, const left_out *left)
{
  enum { SIZE = MILL_MAX_ARM * (MILL_MAX_NAME + 2) };
  const char *path = job->inputs.file[left->i_file].path;
  char no_lsf[SIZE] = "", outside[SIZE] = "";
  if (job->i_file != left->i_file) {
    job->i_file = left->i_file;
    job->told_no_lsf = job->told_outside = 0;
    job->told_beyond = 0;
  }
  for (int a = 0; a < job->lib.n_arm; a++) {
    if (left->no_lsf & ~job->told_no_lsf & 1u << a)
      add_name(no_lsf, SIZE, job->lib.arm[a].name);
    if (left->outside & ~job->told_outside & 1u << a)
      add_name(outside, SIZE, job->lib.arm[a].name);
  }
  if (no_lsf[0])
    mill_log_warning("%s: no %s, which the library %s needs, for arm %s: not used "
                     "(set resolving_power, or lsf: off to fit without)",
                     path,
                     mill_config_lsf(&job->config) == MILL_LSF_MATRIX ? "resolution matrix"
                     : mill_config_lsf(&job->config) == MILL_LSF_SIGMA
                         ? "sigma of the line-spread function"
                         : "resolution matrix or other line-spread function",
                     job->lib.path, no_lsf);
  if (outside[0])
    mill_log_warning("%s: outside the library %s, so not used: arm %s (%s)", path, job->lib.path,
                     outside, left->reason);
  if (left->beyond && !job->told_beyond)
    mill_log_warning("%s: has spectra beyond all arms of the library %s at the velocity limits: "
                     "not used",
                     path, job->lib.path);
  job->told_no_lsf |= left->no_lsf;
  job->told_outside |= left->outside;
  job->told_beyond |= left->beyond;
}

static int put_unfitted(fit_job *job, int64_t row, int status)
{
  int err = MILL_OK;
  mill_fit_result result;
  mill_fit_result_init(&result, &job->lib, row, status);
  MILL_TRY(mill_result_put(job->result, &result));
  job->n_put++;
  mill_board_finished(job->board, status);
done:
  return err;
}

static void clear_flight(in_flight *flight)
{
  for (int i = 0; i < flight->n_segment && flight->segment; i++)
    mill_free(flight->segment[i].wave_aa);
  mill_free(flight->segment);
  memset(flight, 0, sizeof *flight);
}

/* What the models of a star need when it comes back. */
static int remember_flight(fit_job *job, const mill_reader_row *row, const mill_star *star,
                           const double *const *wave_aa)
{
  int err = MILL_OK;
  in_flight flight = {.row = row->row, .model_row = row->model_row};
  if (job->n_flight == job->n_flight_held) {
    in_flight *grown = NULL;
    const int n = 2 * job->n_flight_held + 64;
    MILL_TRY(MILL_ALLOC(n, &grown));
    if (job->n_flight > 0)
      memcpy(grown, job->flight, (size_t)job->n_flight * sizeof *grown);
    mill_free(job->flight);
    job->flight = grown;
    job->n_flight_held = n;
  }
  MILL_TRY(MILL_ALLOC(star->n_segment, &flight.segment));
  for (; flight.n_segment < star->n_segment; flight.n_segment++) {
    const mill_raw_segment *from = &star->segment[flight.n_segment];
    flight_segment *to = &flight.segment[flight.n_segment];
    *to = (flight_segment){.exposure = from->exposure, .arm = from->arm, .n_pix = from->n_pix};
    if (job->inputs.wave_aa[from->arm])
      continue;
    MILL_TRY(MILL_ALLOC(from->n_pix, &to->wave_aa));
    memcpy(to->wave_aa, wave_aa[flight.n_segment], (size_t)from->n_pix * sizeof(double));
  }
  job->flight[job->n_flight++] = flight;
  memset(&flight, 0, sizeof flight);
done:
  clear_flight(&flight);
  return err;
}

/* The last star has been taken: its slot holds what it needs. */
static void release_wavesets(fit_job *job)
{
  for (int i = 0; i < job->n_held; i++)
    mill_pipeline_waveset_release(job->pipeline, job->segment[i].waveset);
  job->n_held = 0;
}

/* Rows of a batch share their wavelengths, which need to be looked up only once.  The last
 * set of an arm is held as long as the batch lasts. */
static void forget_wavesets(fit_job *job)
{
  for (int a = 0; a < MILL_MAX_ARM; a++) {
    if (job->recent[a].wave_aa)
      mill_pipeline_waveset_release(job->pipeline, job->recent[a].id);
    job->recent[a].wave_aa = NULL;
  }
}

/* Making a set is start-up, finding it again is not. */
static int find_waveset(fit_job *job, const mill_read_segment *s, const double *wave_aa, int *id)
{
  mill_waveset_stats before, after;
  recent_set *recent = &job->recent[s->arm];
  if (recent->wave_aa == wave_aa && recent->n_pix == s->n_pix) {
    mill_pipeline_waveset_hold(job->pipeline, recent->id);
    *id = recent->id;
    return MILL_OK;
  }
  mill_pipeline_waveset_stats(job->pipeline, &before);
  const double start_s = mill_thread_cpu_s();
  const int code = mill_pipeline_waveset(job->pipeline, s->arm, s->n_pix, wave_aa, id);
  const double spent_s = mill_thread_cpu_s() - start_s;
  mill_pipeline_waveset_stats(job->pipeline, &after);
  if (code == MILL_OK) {
    if (recent->wave_aa)
      mill_pipeline_waveset_release(job->pipeline, recent->id);
    *recent = (recent_set){.wave_aa = wave_aa, .n_pix = s->n_pix, .id = *id};
    mill_pipeline_waveset_hold(job->pipeline, *id);
  }
  if (job->costs && after.n_made > before.n_made) {
    job->costs->waveset_s += spent_s;
    job->costs->load_s -= spent_s; /* next_star counts it there */
  }
  return code;
}

/* A row of the batch as a star: its segments that can be fitted, by exposure and arm.
 * left says what could not be used. */
static int make_star(fit_job *job, const mill_reader_row *row, mill_star *star, left_out *left)
{
  int err = MILL_OK;
  const double **wave_aa = NULL;
  int n = 0;
  memset(left, 0, sizeof *left);
  release_wavesets(job);
  if (row->n_segment > job->n_segment) {
    mill_free(job->segment);
    job->segment = NULL;
    job->n_segment = 0;
    MILL_TRY(MILL_ALLOC(row->n_segment, &job->segment));
    job->n_segment = row->n_segment;
  }
  MILL_TRY(mill_alloc_bytes((size_t)row->n_segment, sizeof *wave_aa, (void **)&wave_aa));
  for (int i = 0; i < row->n_segment; i++) {
    const mill_batch_segment *segment = &job->batch->segment[row->first_segment + i];
    const mill_read_segment *s = &segment->read;
    int waveset = -1;
    if (s->use == MILL_SEGMENT_OUTSIDE)
      left->beyond = 1;
    else if (s->use == MILL_SEGMENT_NO_LSF)
      left->no_lsf |= 1u << s->arm;
    if (s->use != MILL_SEGMENT_FIT) {
      left->i_file = segment->i_file;
      continue;
    }
    wave_aa[n] = segment->wave_aa;
    const int code = find_waveset(job, s, wave_aa[n], &waveset);
    if (code == MILL_ERR_RANGE) {
      left->outside |= 1u << s->arm;
      left->i_file = segment->i_file;
      snprintf(left->reason, sizeof left->reason, "%s", mill_error_message());
      continue;
    }
    MILL_TRY(code);
    job->segment[n++] = mill_read_segment_raw(s, waveset, s->exposure);
    job->n_held = n;
  }
  *star = (mill_star){.row = row->row, .n_segment = n, .segment = job->segment};
  if (job->start)
    mill_start_table_find(job->start, row->target_id, row->object, &star->start);
  if (job->options.models && n > 0)
    MILL_TRY(remember_flight(job, row, star, wave_aa));
  if (job->costs && !job->costs->instead && n > 0)
    mill_bench_shape_add(&job->costs->shape, &job->lib, &job->fit, star, wave_aa);
done:
  mill_free(wave_aa);
  return err;
}

/* Turn the next row of the batch into a star, or settle it here. */
static int take_row(fit_job *job, mill_star *star, int *is_star)
{
  int err = MILL_OK;
  const mill_batch *batch = job->batch;
  const mill_reader_row *row = &batch->row[job->i_row];
  left_out left;
  *is_star = 0;
  mill_board_took(job->board, batch->i_file);
  if (batch->error[0] != '\0') {
    if (job->i_row == 0)
      mill_log_error("%s (%d %s marked UNREADABLE)", batch->error, batch->n_row,
                     batch->n_row == 1 ? "row is" : "rows are");
    job->i_row++;
    MILL_TRY(put_unfitted(job, row->row, MILL_STATUS_UNREADABLE));
    goto done;
  }
  job->i_row++;
  MILL_TRY(make_star(job, row, star, &left));
  if (left.no_lsf || left.outside || left.beyond)
    complain(job, &left);
  if (star->n_segment == 0) {
    MILL_TRY(put_unfitted(job, row->row,
                          left.outside || left.beyond ? MILL_STATUS_OUTSIDE_LIBRARY
                          : left.no_lsf               ? MILL_STATUS_NO_RESOLUTION
                                                      : MILL_STATUS_NO_ARM));
    goto done;
  }
  *is_star = 1;
done:
  return err;
}

/* Bytes by purpose, once a batch: they grow while the first stars come. */
static void note_memory(fit_job *job)
{
  mill_pipeline_bytes bytes;
  size_t n_batch = sizeof *job->batch;
  mill_pipeline_memory(job->pipeline, &bytes);
  mill_board_memory(job->board, MILL_MEMORY_EMULATOR, bytes.model);
  mill_board_memory(job->board, MILL_MEMORY_SLOTS, bytes.slots);
  mill_board_memory(job->board, MILL_MEMORY_WAVELENGTHS, bytes.wavesets);
  if (!job->batch)
    return;
  n_batch += (size_t)job->batch->cap_segment * sizeof *job->batch->segment;
  for (int p = 0; p < job->batch->n_part; p++)
    n_batch += mill_read_batch_bytes(&job->batch->part[p]);
  mill_board_memory(job->board, MILL_MEMORY_READER, mill_reader_batches(job->n_reader) * n_batch);
}

/* No star takes long, so something hangs when none is taken or finished for long. */
static void watch_fits(fit_job *job)
{
  job->watch = mill_watch_begin(MILL_WATCH_WORK, 0, "rank %d: fitting", job->mpi.rank);
}

static int next_star(void *context, mill_star *star)
{
  fit_job *job = context;
  int err = MILL_OK;
  int is_star = 0;
  const double start_s = job->costs ? mill_thread_cpu_s() : 0.0;
  mill_watch_end(job->watch); /* the reader has a watch of its own */
  while (!is_star) {
    if (mill_stop_reason() != MILL_STOP_NONE) {
      char why[MILL_STATUS_PATH + 64];
      mill_stop_watch_text(job->stop, why, sizeof why);
      MILL_LOG(job->mpi.rank == 0 ? MILL_LOG_INFO : MILL_LOG_DEBUG,
               "%s: the stars under way are finished and written, then the job stops", why);
      break;
    }
    if (!job->batch || job->i_row == job->batch->n_row) {
      forget_wavesets(job);
      mill_reader_release(job->reader, job->batch);
      job->batch = NULL;
      const double wait_s = mill_wall_s();
      MILL_TRY(mill_reader_next(job->reader, &job->batch));
      job->balance.read_wait_s += mill_wall_s() - wait_s;
      job->i_row = 0;
      if (!job->batch)
        break;
      note_memory(job);
    }
    MILL_TRY(take_row(job, star, &is_star));
  }
done:
  if (job->costs)
    job->costs->load_s += mill_thread_cpu_s() - start_s;
  if (job->costs)
    job->costs->n_taken += err == MILL_OK && is_star;
  if (err == MILL_OK && is_star)
    job->star_start[star->row % N_STAR_START] = (star_start){star->row, mill_wall_s()};
  watch_fits(job);
  return err == MILL_OK ? is_star : -err;
}

static int put_models(fit_job *job, int64_t row, const float *const *model)
{
  int err = MILL_OK;
  int at = 0;
  while (at < job->n_flight && job->flight[at].row != row)
    at++;
  if (at == job->n_flight)
    MILL_FAIL(MILL_ERR_INTERNAL, "row %lld was finished but never taken", (long long)row);
  in_flight flight = job->flight[at];
  job->flight[at] = job->flight[--job->n_flight];
  /* one row of the file for each arm of each exposure; several spectra one after the other */
  for (int i = 0, end; model && i < flight.n_segment; i = end) {
    const flight_segment *first = &flight.segment[i];
    const int n_row = job->inputs.n_pix[first->arm];
    int n = 0;
    for (end = i; end < flight.n_segment && flight.segment[end].exposure == first->exposure &&
                  flight.segment[end].arm == first->arm;
         end++) {
      const flight_segment *s = &flight.segment[end];
      if (n + s->n_pix > n_row) {
        err = mill_error_set(MILL_ERR_INTERNAL, __FILE__, __LINE__,
                             "a model of row %lld has more than %d pixels in arm %s",
                             (long long)row, n_row, job->lib.arm[s->arm].name);
        break;
      }
      memcpy(job->model_flux + n, model[end], (size_t)s->n_pix * sizeof(float));
      if (s->wave_aa)
        memcpy(job->model_wave + n, s->wave_aa, (size_t)s->n_pix * sizeof(double));
      n += s->n_pix;
    }
    for (; n < n_row; n++) {
      job->model_flux[n] = NAN;
      job->model_wave[n] = NAN;
    }
    if (err == MILL_OK)
      err = mill_result_put_model(job->result, first->arm, flight.model_row + first->exposure,
                                  job->model_flux, first->wave_aa ? job->model_wave : NULL, n_row);
    if (err != MILL_OK)
      break;
  }
  clear_flight(&flight);
done:
  return err;
}

/* A NaN or infinity is worth a line that leads to the spectrum. */
static void name_nonfinite(const fit_job *job, const mill_fit_result *result)
{
  for (int f = 0; f < job->inputs.n_file; f++) {
    const mill_input_file *file = &job->inputs.file[f];
    if (result->row >= file->row_start && result->row < file->row_start + file->n_row) {
      mill_log_warning("%s: NaN or infinity in the fit of row %lld of /fits (row %lld of this "
                       "file's); it is flagged NONFINITE%s",
                       file->path, (long long)result->row,
                       (long long)(result->row - file->row_start),
                       result->status == MILL_STATUS_FITTED ? "" : " and not fitted");
      return;
    }
  }
}

static int take_result(void *context, const mill_fit_result *result, const float *const *model)
{
  fit_job *job = context;
  int err = MILL_OK;
  const star_start *begun = &job->star_start[result->row % N_STAR_START];
  mill_watch_end(job->watch); /* and so has the I/O thread */
  if (begun->row == result->row && begun->s > 0)
    mill_stop_watch_star(job->stop, mill_wall_s() - begun->s);
  mill_stop_watch_write(job->stop, mill_result_longest_write_s(job->result));
  const double start_s = job->costs ? mill_thread_cpu_s() : 0.0;
  if (result->warn & MILL_WARN_NONFINITE)
    name_nonfinite(job, result);
  /* the models go first: a row marked done must be whole */
  const double wait_s = mill_wall_s();
  if (job->options.models)
    MILL_TRY(put_models(job, result->row, model));
  MILL_TRY(mill_result_put(job->result, result));
  job->balance.put_wait_s += mill_wall_s() - wait_s;
  job->n_put++;
  mill_board_finished(job->board, result->status);
  mill_progress_update(&job->progress, mill_result_n_done(job->result),
                       mill_board_n_failed(job->board));
done:
  if (job->costs) {
    mill_fit_costs *costs = job->costs;
    if (!costs->instead)
      mill_bench_shape_add_result(&costs->shape, &job->lib, &job->fit, result);
    costs->n_eval += result->n_eval;
    costs->n_jac += result->n_jac;
    if (costs->first_wall_s == 0.0)
      costs->first_wall_s = mill_wall_s() - job->start_wall_s;
    costs->put_s += mill_thread_cpu_s() - start_s;
  }
  watch_fits(job);
  return err;
}

/* What the parts of a run know at its end. */
static void collect_costs(fit_job *job, int n_slot)
{
  mill_fit_costs *costs = job->costs;
  snprintf(costs->library, sizeof costs->library, "%s", job->lib.path);
  snprintf(costs->backend, sizeof costs->backend, "%s", job->backend->name);
  costs->n_thread = job->n_thread;
  costs->n_slot = n_slot;
  costs->set = job->fit;
  mill_pipeline_timing(job->pipeline, &costs->timing);
  costs->load_s += mill_pipeline_load_s(job->pipeline);
  costs->load_wall_s = mill_pipeline_load_wall_s(job->pipeline);
}

/* Has another rank asked to stop?  Waits 20 ms for every lower rank, at most one second: when
 * all fail alike, the lowest is heard by the others before they speak. */
static int hear_lower_rank(fit_job *job)
{
  const struct timespec ms = {.tv_nsec = 1000000};
  const double end_s = mill_wall_s() + 0.02 * (job->mpi.rank < 50 ? job->mpi.rank : 50);
  while (!mill_mpi_stop_asked(&job->mpi)) {
    if (mill_wall_s() >= end_s)
      return 0;
    nanosleep(&ms, NULL);
  }
  return 1;
}

/* A failure is told now, by the rank that has it first: the others may take long to come to
 * their ends.  Writing fails on all ranks together, so there one speaks for all, at the end. */
static void tell_failure(fit_job *job, int err)
{
  char message[1024], place[128];
  snprintf(message, sizeof message, "%s", mill_error_message());
  snprintf(place, sizeof place, "%s", mill_error_place());
  mill_board_failed(job->board, err, message);
  if (job->mpi.size > 1 && err != MILL_ERR_OUTPUT) {
    if (hear_lower_rank(job))
      mill_log_debug("this rank fails too (%s): %s", place, message);
    else
      mill_log_error("this rank fails (%s), all others stop: %s", place, message);
    (void)mill_mpi_stop_others(&job->mpi); /* an MPI that fails here does so again at the end */
  }
  mill_error_set(err, __FILE__, __LINE__, "%s", message);
}

/* This rank's share of the rows.  Not collective: a failure here reaches the
 * other ranks as a request to stop. */
static int fit_share(fit_job *job)
{
  int err = MILL_OK;
  const int n_slot = slots_of(job);
  const mill_reader_plan plan = {
      .settings = job->inputs.settings,
      .n_file = job->inputs.n_file,
      .file = job->inputs.file,
      .exposure_start = job->inputs.exposure_start,
      .join = job->inputs.join,
      .work = job->work,
      .n_thread = job->n_reader,
  };
  job->i_file = -1;
  MILL_TRY(mill_reader_start(&plan, &job->reader));
  /* spectra come with the line-spread function that is to be used, or none */
  job->fit = job->config.fit;
  job->fit.resolution =
      mill_config_lsf(&job->config) == MILL_LSF_OFF ? MILL_RES_NONE : MILL_RES_AUTO;
  const double start_s = mill_thread_cpu_s();
  job->watch = mill_watch_begin(MILL_WATCH_WORK, 0, "rank %d: preparing templates", job->mpi.rank);
  MILL_TRY(mill_pipeline_create(&job->lib, &job->fit, job->backend, n_slot, job->n_thread,
                                job->options.models != NULL, &job->pipeline));
  if (job->costs)
    job->costs->model_s = mill_thread_cpu_s() - start_s;
  mill_board_stage(job->board, MILL_RANK_FITTING);
  const double run_s = mill_wall_s(), main_s = mill_thread_cpu_s();
  MILL_TRY(mill_pipeline_run(job->pipeline, next_star, job, take_result, job));
  if (job->costs) {
    job->costs->run_wall_s = mill_wall_s() - run_s;
    job->costs->main_s = mill_thread_cpu_s() - main_s;
    collect_costs(job, n_slot);
  }
  note_memory(job);
done:
  mill_board_stage(job->board, MILL_RANK_WAITING);
  job->balance.end_s = mill_wall_s() - job->balance.start_s;
  mill_watch_end(job->watch);
  job->watch = -1;
  if (err != MILL_OK)
    tell_failure(job, err);
  mill_reader_release(job->reader, job->batch);
  job->batch = NULL;
  if (job->costs && job->reader)
    job->costs->read_s = mill_reader_cpu_s(job->reader);
  if (job->reader)
    job->balance.n_opened = (double)mill_reader_n_opened(job->reader);
  mill_reader_stop(job->reader);
  job->reader = NULL;
  forget_wavesets(job);
  release_wavesets(job);
  mill_pipeline_destroy(job->pipeline);
  job->pipeline = NULL;
  if (err != MILL_OK || mill_stop_signal_seen()) {
    /* the message of the failure must survive the call */
    char message[1024];
    snprintf(message, sizeof message, "%s", mill_error_message());
    /* when all ranks come here together, one of them need tell the others */
    if (job->mpi.size > 1 && hear_lower_rank(job))
      return err;
    if (mill_mpi_stop_others(&job->mpi) == MILL_OK && err != MILL_OK)
      mill_error_set(err, __FILE__, __LINE__, "%s", message);
  }
  return err;
}

/* ---- the end ---- */

static void print_summary(const fit_job *job, const mill_result_summary *summary, int outcome,
                          int64_t n_put, double wall_s, const mill_balance_all *balance)
{
  static const struct {
    int status;
    const char *name, *meaning;
  } reason[] = {
#define REASON(symbol, code, name, meaning) {symbol, name, meaning},
      MILL_STATUS_LIST(REASON)
#undef REASON
  };
  const int64_t n_row = job->inputs.n_row;
  const int64_t n_left = summary->n_status[MILL_STATUS_NOT_DONE];
  const int64_t n_fitted = summary->n_status[MILL_STATUS_FITTED];
  if (outcome == MILL_OPEN_FINISHED)
    printf("%s is finished already; nothing was done\n", job->options.output);
  printf("rows         %lld\n", (long long)n_row);
  printf("fitted       %lld, of them %lld with warnings\n", (long long)n_fitted,
         (long long)summary->n_warned);
  printf("not fitted   %lld\n", (long long)(n_row - n_left - n_fitted));
  for (size_t i = 0; i < sizeof reason / sizeof reason[0]; i++) {
    const int64_t n = summary->n_status[reason[i].status];
    if (reason[i].status > MILL_STATUS_FITTED && n > 0)
      printf("  %-16s %lld: %s\n", reason[i].name, (long long)n, reason[i].meaning);
  }
  if (n_left > 0)
    printf("left         %lld; give the same command again to continue\n", (long long)n_left);
  if (n_left > 0 && mill_stop_reason() == MILL_STOP_FILE)
    printf("             but first remove the stop file %s\n", job->stop_file);
  if (job->inputs.n_unreadable > 0)
    printf("unreadable   %d of %d files, listed with the reason in /catalog/files\n",
           job->inputs.n_unreadable, job->inputs.n_file);
  if (outcome != MILL_OPEN_FINISHED)
    printf("time         %.1f s, %.1f stars/s (%d %s, %d %s each, %s)\n", wall_s,
           wall_s > 0 ? (double)n_put / wall_s : 0.0, job->mpi.size,
           job->mpi.size == 1 ? "rank" : "ranks", job->n_thread,
           job->n_thread == 1 ? "thread" : "threads", job->backend->name);
  if (job->work)
    mill_balance_print(balance, stdout);
  printf("result       %s\n", job->options.output);
  if (job->options.models && outcome != MILL_OPEN_FINISHED)
    printf("models       %s\n", job->options.models);
  if (job->board) {
    int n_rank = 0;
    const mill_rank_state *rank = mill_board_ranks(job->board, &n_rank);
    mill_status_print_memory(n_rank, rank, strncmp(job->backend->name, "cuda", 4) == 0, stdout);
  }
  fflush(stdout);
}

/* The last status, once it is known how the run ended. */
static void end_board(fit_job *job, int code, int exit_status, int is_settled,
                      const mill_result_summary *summary)
{
  char message[1024];
  snprintf(message, sizeof message, "%s", mill_error_message());
  const mill_board_end end = {
      .code = code,
      .exit_status = code == MILL_OK ? exit_status : mill_error_exit_status(code),
      .message = message,
      .summary = code == MILL_OK ? summary : NULL,
  };
  mill_board_free(job->board, is_settled ? &end : NULL);
  job->board = NULL;
  if (code != MILL_OK)
    mill_error_set(code, __FILE__, __LINE__, "%s", message);
}

/* After a failure too: MPI must not end with a message under way.  Collective. */
static int settle_stop(fit_job *job, int err)
{
  char message[1024];
  snprintf(message, sizeof message, "%s", mill_error_message());
  mill_stop_watch_end(job->stop);
  job->stop = NULL;
  if (err != MILL_ERR_MPI) {
    const int settled = mill_mpi_stop_settle(&job->mpi);
    if (err == MILL_OK)
      return settled;
  }
  if (err != MILL_OK)
    mill_error_set(err, __FILE__, __LINE__, "%s", message);
  return err;
}

static int run(fit_job *job, int *exit_status)
{
  int err = MILL_OK, close_err = MILL_OK;
  int outcome = MILL_OPEN_NEW, is_settled = 0;
  int64_t n_put = 0;
  double start_s = 0, cpu_s = mill_process_cpu_s();
  mill_fit_costs unwanted = {0}, *costs = job->costs ? job->costs : &unwanted;
  mill_result_summary summary;
  mill_balance_all balance;
  memset(&summary, 0, sizeof summary);
  memset(&balance, 0, sizeof balance);

  MILL_TRY(set_up(job));
  MILL_TRY(agree_to_go_on(job, "at the start"));
  costs->library_s = lap_s(&cpu_s);
  start_s = mill_wall_s();
  MILL_TRY(mill_inputs_index(&job->mpi, &job->options, &job->config, &job->lib, job->arm_wanted,
                             &job->roles, &job->inputs));
  costs->index_s = lap_s(&cpu_s);
  MILL_TRY(agree_to_go_on(job, "while indexing"));
  if (job->mpi.rank == 0) /* opening it says what is wrong with it */
    mill_result_find(job->options.output, &job->existing);
  MILL_TRY(settle_backend(job));
  MILL_TRY(choose_readers(job));
  MILL_TRY(mill_mpi_agree(&job->mpi, settle_wave_mask(job)));
  if (job->mpi.rank == 0 && job->inputs.n_row == 0)
    mill_log_warning("no star to fit: %s; the result is an empty table",
                     job->inputs.n_unreadable == job->inputs.n_file
                         ? "no input could be read"
                         : "the selection (target ids, object type, fiber status, redrock) keeps "
                           "no row of the inputs");
  if (job->start)
    MILL_TRY(mill_mpi_agree(&job->mpi, count_starts(job)));
  if (job->options.plan) {
    const mill_plan plan = {.options = &job->options,
                            .config = &job->config,
                            .lib = &job->lib,
                            .inputs = &job->inputs,
                            .existing = &job->existing,
                            .running = job->running,
                            .backend = job->backend->name,
                            .n_thread = job->n_thread,
                            .n_held = held_rows(job)};
    MILL_TRY(mill_plan_print(&job->mpi, &plan, stdout));
    *exit_status = job->inputs.n_unreadable > 0 ? EXIT_UNREADABLE : 0;
    goto done;
  }
  MILL_TRY(open_result(job, &outcome));
  if (outcome != MILL_OPEN_CONTINUE)
    memset(&job->existing, 0, sizeof job->existing);
  mill_inputs_drop_index(&job->inputs);
  costs->create_s = lap_s(&cpu_s);
  if (outcome == MILL_OPEN_FINISHED && job->mpi.rank == 0 && job->options.models &&
      access(job->options.models, F_OK) != 0)
    mill_log_warning("%s is not written: %s was finished without models; --overwrite fits anew",
                     job->options.models, job->options.output);
  if (outcome != MILL_OPEN_FINISHED) {
    /* first the models: rows without them are not done */
    if (job->options.models)
      err = mill_mpi_agree(&job->mpi, open_models(job));
    if (err == MILL_OK)
      err = open_board(job);
    if (err == MILL_OK)
      err = open_work(job);
    if (err == MILL_OK) {
      job->balance.start_s = mill_wall_s();
      mill_progress_start(&job->progress, job->inputs.n_row, mill_result_n_done(job->result),
                          job->options.quiet || job->mpi.rank != 0);
      err = fit_share(job);
      mill_progress_end(&job->progress);
    }
  }
  /* what was fitted is written also when something failed */
  cpu_s = mill_thread_cpu_s();
  close_err = mill_result_close(job->result, &summary);
  costs->close_s = mill_thread_cpu_s() - cpu_s;
  costs->io_s = summary.io_cpu_s;
  job->result = NULL;
  if (err == MILL_OK)
    err = close_err;
  err = mill_mpi_agree(&job->mpi, err);
  if (err != MILL_ERR_MPI) {
    const int settled = mill_work_settle(job->work);
    err = err == MILL_OK ? settled : err;
  }
  if (err != MILL_ERR_MPI) {
    const int settled = mill_board_settle(job->board);
    is_settled = settled == MILL_OK;
    err = err == MILL_OK ? settled : err;
  }
  MILL_TRY(err);
  MILL_MPI(MPI_Reduce(&job->n_put, &n_put, 1, MPI_INT64_T, MPI_SUM, 0, job->mpi.comm));
  if (job->work)
    MILL_TRY(gather_balance(job, summary.write_s, &balance));
  if (job->mpi.rank == 0 && !job->options.quiet)
    print_summary(job, &summary, outcome, n_put, mill_wall_s() - start_s, &balance);
  if (summary.n_status[MILL_STATUS_NOT_DONE] > 0)
    *exit_status = EXIT_STOPPED;
  else if (job->inputs.n_unreadable > 0 || summary.n_status[MILL_STATUS_UNREADABLE] > 0)
    *exit_status = EXIT_UNREADABLE;
done:
  err = settle_stop(job, err);
  end_board(job, err, *exit_status, is_settled, &summary);
  return err;
}

int mill_fit_run(mill_mpi *mpi, const mill_fit_options *options, const char *command,
                 mill_fit_costs *costs, int *exit_status)
{
  int err = MILL_OK;
  const double start_cpu_s = mill_process_cpu_s();
  fit_job job;
  memset(&job, 0, sizeof job);
  job.mpi = *mpi;
  job.options = *options;
  job.command = command;
  job.watch = -1;
  job.start_wall_s = mill_wall_s();
  if (costs) {
    *costs = (mill_fit_costs){.n_row_limit = costs->n_row_limit, .instead = costs->instead};
    job.costs = costs;
  }
  mill_config_default(&job.config);
  MILL_TRY(mill_mpi_rank0_first(&job.mpi, load_config, &job));
  if (options->print_config) {
    if (job.mpi.rank == 0)
      err = mill_config_print(&job.config, stdout);
    MILL_TRY(mill_mpi_agree(&job.mpi, err));
    goto done;
  }
  MILL_TRY(run(&job, exit_status));
done:
  mill_work_free(job.work);
  mill_log_close();
  mill_inputs_clear(&job.inputs);
  mill_start_table_free(job.start);
  mill_library_clear(&job.lib);
  mill_config_clear(&job.config);
  mill_free(job.star_start);
  mill_free(job.segment);
  for (int i = 0; i < job.n_flight; i++)
    clear_flight(&job.flight[i]);
  mill_free(job.flight);
  mill_free(job.model_flux);
  mill_free(job.model_wave);
  *mpi = job.mpi;
  if (costs) {
    costs->cpu_s = mill_process_cpu_s() - start_cpu_s;
    costs->wall_s = mill_wall_s() - job.start_wall_s;
  }
  return err;
}

static int start(mill_mpi *mpi, int argc, char **argv, mill_fit_options *options, int *exit_status)
{
  int err = MILL_OK;
  char *command = NULL;
  err = mill_fit_command(argc, argv, &command);
  if (err == MILL_OK)
    err = mill_fit_options_parse(argc, argv, options);
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_TRY(mill_fit_same_options(mpi, options));
  if (options->help) {
    if (mpi->rank == 0)
      mill_fit_options_print_help(stdout);
    goto done;
  }
  MILL_TRY(mill_fit_run(mpi, options, command, NULL, exit_status));
done:
  free(command);
  return err;
}

/* HDF5 does not survive the end of MPI with a file that cannot be closed, for the disk is full:
 * then every rank leaves without it.  All ranks have come here with the same failure. */
static void leave_if_broken(const mill_mpi *mpi, int exit_status)
{
  int broken = mill_ph5_is_broken();
  if (MPI_Allreduce(MPI_IN_PLACE, &broken, 1, MPI_INT, MPI_MAX, mpi->comm) == MPI_SUCCESS &&
      !broken)
    return;
  fflush(NULL);
  _exit(exit_status);
}

int mill_job_fit(int argc, char **argv)
{
  int exit_status = 0;
  mill_mpi mpi;
  mill_fit_options options;
  memset(&options, 0, sizeof options);
  /* signals that come while MPI and the library are loaded stop in good order as well */
  int err = mill_stop_signal_catch();
  mpi = (mill_mpi){.comm = MPI_COMM_NULL, .stop_comm = MPI_COMM_NULL};
  if (err == MILL_OK)
    err = mill_mpi_start(&mpi);
  if (err == MILL_OK)
    err = start(&mpi, argc, argv, &options, &exit_status);
  if (err != MILL_OK) {
    exit_status = mill_error_exit_status(err);
    /* all ranks have the same message, except when MPI itself fails */
    if (mpi.rank == 0 || err == MILL_ERR_MPI)
      fprintf(stderr, "starmill fit: %s\n", mill_error_message());
  }
  mill_fit_options_clear(&options);
  if (err == MILL_ERR_MPI && mpi.size > 1)
    MPI_Abort(MPI_COMM_WORLD, exit_status);
  if (err != MILL_OK && err != MILL_ERR_MPI)
    leave_if_broken(&mpi, exit_status);
  mill_mpi_end(&mpi);
  return exit_status;
}
