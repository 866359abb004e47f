#define _GNU_SOURCE /* sched_getaffinity */

#include "jobs/doctor/doctor.h"

#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/library/library_file.h"
#include "src/run/backend_choice.h"
#include "jobs/doctor/doctor_findings.h"
#include "jobs/doctor/doctor_output.h"
#include "jobs/fit/fit.h"
#include "jobs/doctor/version.h"
#include "jobs/options/job_steps.h"
#include "jobs/options/option_table.h"
#include "kernels/base/error.h"
#include "kernels/find_backend.h"
#include "kernels/gpu.h"
#include "src/floor/bench_rates.h"
#include "src/ranks/mpi_context.h"
#include "src/system/cpu_model.h"
#include "src/system/status_gpu.h"
#include "src/system/status_process.h"

enum { EXIT_BROKEN = 70, DEFAULT_LIMIT_S = 120, GEMM_ROWS = 64 };
/* below these a core or BLAS is far from what any machine of the last decade does */
static const double SLOW_SGEMM = 10.0, SLOW_COPY = 2.0;

typedef struct doctor_job {
  mill_mpi mpi;
  mill_error_kept mpi_failure; /* of starting it */
  int help, json, quick, limit_s;
  const char *output, *library, *backend;
  int n_thread, n_core, n_host, n_most; /* ranks of the host that has most */
  mill_error_kept gpu_failure;          /* of giving every rank a GPU */
  int is_beside;                        /* with cuda+cpu: this rank has no GPU */
  mill_library lib;
  mill_findings findings;
} doctor_job;

static const mill_option_table table = {
    "starmill doctor",
    "usage: starmill doctor [--output DIR] [--library LIB.h5] [--backend NAME] [--quick]\n"
    "                       [--json] [--limit S]\n"
    "\n"
    "Look at this machine as a fit would use it: program and libraries, cores and memory,\n"
    "GPUs, the rates of matrix products and copies, the output folder, and what a fit would\n"
    "choose.  Run it under mpirun or srun as the fit itself, to check these too.\n"
    "\n",
    "\n"
    "Exit status: 0 ready (warnings included), 4 the output folder cannot be used, 70 MPI or\n"
    "the backend is broken, 2 usage, or the library or backend asked for is not to be had.\n",
    (const mill_option[]){
        {"output", MILL_OPTION_TEXT, MILL_AT(doctor_job, output), .argument = "DIR",
         .help = "folder to check, where results will be written (default: .)"},
        {"library", MILL_OPTION_TEXT, MILL_AT(doctor_job, library),
         .help = "a template library, whose products are measured as well"},
        {"backend", MILL_OPTION_TEXT, MILL_AT(doctor_job, backend), .key = "backend",
         .help = "as for a fit"},
        {"quick", MILL_OPTION_FLAG, MILL_AT(doctor_job, quick), .help = "measure no rates"},
        {"json", MILL_OPTION_FLAG, MILL_AT(doctor_job, json), .help = "JSON instead of text"},
        {"limit", MILL_OPTION_COUNT, MILL_AT(doctor_job, limit_s), .min = 1, .max = 86400,
         .argument = "S", .help = "seconds after which a file system does not answer"},
        MILL_OPTION_HELP(doctor_job),
        {0}}};

static const doctor_job usual = {.output = ".", .backend = "auto", .limit_s = DEFAULT_LIMIT_S};

const mill_option_help mill_doctor_help = {&table, &usual};

static int parse(int argc, char **argv, doctor_job *job)
{
  int first = 0;
  mill_config config; /* only to check a value */
  mill_config_default(&config);
  job->output = usual.output;
  job->backend = usual.backend;
  job->limit_s = usual.limit_s;
  MILL_CHECK(mill_option_parse(&table, argc, argv, job, NULL, &first));
  MILL_CHECK(mill_config_set(&config, "backend", "backend", job->backend));
  if (first < argc)
    return MILL_ERROR(MILL_ERR_USAGE, "doctor takes no '%s'; see starmill doctor --help",
                      argv[first]);
  return MILL_OK;
}

/* ---- program, machine ---- */

static int find_program(doctor_job *job)
{
  mill_version_row row[MILL_N_VERSION];
  MILL_CHECK(mill_version_rows(row));
  for (int i = 0; i < MILL_N_VERSION; i++) {
    char key[64];
    snprintf(key, sizeof key, "program.%s", row[i].name);
    mill_finding_text(&job->findings, key, "%s", row[i].text);
    if (strcmp(row[i].name, "HDF5") == 0 && strstr(row[i].text, "parallel: no"))
      mill_finding_fail(&job->findings, EXIT_BROKEN,
                        "this HDF5 writes no file with several ranks: build with a parallel one "
                        "(docs/use/install.md)");
  }
  return MILL_OK;
}

static void find_machine(doctor_job *job)
{
  mill_findings *f = &job->findings;
  char host[64], model[256];
  int64_t total, available, limit;
  mill_host_name(host, sizeof host);
  mill_cpu_model(model, sizeof model);
  mill_machine_memory(&total, &available, &limit);
  mill_finding_text(f, "machine.host", "%s", host);
  mill_finding_text(f, "machine.processor", "%s", model);
  mill_finding_number(f, "machine.cores", (double)sysconf(_SC_NPROCESSORS_ONLN), "");
  mill_finding_number(f, "machine.cores_of_rank_0", job->n_core, "");
  mill_finding_number(f, "machine.memory", 1e-9 * (double)total, "GB");
  mill_finding_number(f, "machine.memory_free", 1e-9 * (double)available, "GB");
  if (limit > 0)
    mill_finding_number(f, "machine.memory_limit", 1e-9 * (double)limit, "GB for this job");
  if ((limit > 0 ? limit : available) < (int64_t)job->n_most << 29)
    mill_finding_warn(f,
                      "a rank takes half a GB or so on the CPU, and %d are to run here: take "
                      "fewer ranks with more threads",
                      job->n_most);
}

/* ---- ranks ---- */

/* A launcher of another MPI starts programs that each take themselves for the only rank. */
static void check_launcher(doctor_job *job)
{
  static const char *const variable[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                         "SLURM_STEP_NUM_TASKS"};
  for (size_t i = 0; i < sizeof variable / sizeof variable[0]; i++) {
    const char *text = getenv(variable[i]);
    if (text && job->mpi.size == 1 && atoi(text) > 1) {
      mill_finding_fail(
          &job->findings, EXIT_BROKEN,
          "the launcher has started %d ranks (%s), but each takes itself for the only "
          "one: start them with the mpirun or srun --mpi=... of the MPI named above",
          atoi(text), variable[i]);
      return;
    }
  }
}

/* Hosts, their ranks, and the cores of each.  Collective. */
static int find_ranks(doctor_job *job)
{
  int err = MILL_OK;
  MPI_Comm node = MPI_COMM_NULL;
  int rank = 0, n_here = 1, is_first = 1;
  cpu_set_t mine;
  MILL_MPI(MPI_Comm_split_type(job->mpi.comm, MPI_COMM_TYPE_SHARED, job->mpi.rank, MPI_INFO_NULL,
                               &node));
  MILL_MPI(MPI_Comm_rank(node, &rank));
  MILL_MPI(MPI_Comm_size(node, &n_here));
  is_first = rank == 0;
  MILL_MPI(MPI_Allreduce(&is_first, &job->n_host, 1, MPI_INT, MPI_SUM, job->mpi.comm));
  MILL_MPI(MPI_Allreduce(&n_here, &job->n_most, 1, MPI_INT, MPI_MAX, job->mpi.comm));
  job->n_core = sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine)
                                                              : (int)sysconf(_SC_NPROCESSORS_ONLN);
  MILL_TRY(mill_mpi_share_of_cores(&job->mpi, &job->n_thread));
done:
  if (node != MPI_COMM_NULL)
    MPI_Comm_free(&node);
  return err;
}

/* What can make the opening of a file wait for another job (src/ranks/mpi_context.h). */
static void report_file_pointers(mill_findings *f)
{
  int may_wait = 0;
  const char *chosen = mill_mpi_file_pointers(&may_wait);
  mill_finding_text(f, "ranks.shared_file_pointers", "%s%s",
                    chosen[0] ? "OMPI_MCA_sharedfp=" : "none until they are used", chosen);
  if (may_wait)
    mill_finding_warn(f,
                      "OMPI_MCA_sharedfp=%s lets the opening of a file wait for what a killed job "
                      "has left on this node: unset it",
                      chosen);
}

static void report_ranks(doctor_job *job)
{
  mill_findings *f = &job->findings;
  const long n_core = sysconf(_SC_NPROCESSORS_ONLN);
  mill_finding_number(f, "ranks.count", job->mpi.size, "");
  check_launcher(job);
  if (job->mpi_failure.code != MILL_OK) {
    mill_finding_text(f, "ranks.threads_of_mpi", "no");
    mill_finding_fail(f, EXIT_BROKEN, "%s", job->mpi_failure.message);
  } else {
    mill_finding_text(f, "ranks.threads_of_mpi", "yes, MPI_THREAD_MULTIPLE");
  }
  report_file_pointers(f);
  mill_finding_number(f, "ranks.hosts", job->n_host, "");
  mill_finding_number(f, "ranks.on_one_host", job->n_most, "at most");
  if (job->n_most > n_core)
    mill_finding_warn(f, "more ranks than the %ld cores of this machine: they take turns", n_core);
  mill_finding_number(f, "ranks.threads", job->n_thread, "on rank 0");
  if (job->mpi.size > 1 && (long)job->n_thread * job->n_most < n_core / 2)
    mill_finding_warn(f,
                      "%d threads a rank leave most of %ld cores idle: the launcher ties ranks "
                      "to few cores (mpirun --bind-to none, srun --cpus-per-task), or take more "
                      "ranks",
                      job->n_thread, n_core);
}

/* ---- GPUs ---- */

static void find_driver(doctor_job *job)
{
  mill_findings *f = &job->findings;
  char driver[80], key[64];
  mill_gpu gpu;
  const int n = mill_gpu_count();
  mill_gpu_driver(driver);
  if (n < 0) {
    mill_finding_text(f, "gpu.driver", "none");
    return;
  }
  mill_finding_text(f, "gpu.driver", "%s", driver);
  mill_finding_number(f, "gpu.count", n, "");
  for (int i = 0; i < n; i++) {
    if (!mill_gpu_read(i, &gpu))
      continue;
    snprintf(key, sizeof key, "gpu.%d", i);
    mill_finding_text(f, key, "%s, %.0f GB (%.0f in use), ECC %s, %s", gpu.name,
                      1e-9 * (double)gpu.total, 1e-9 * (double)gpu.used,
                      gpu.ecc == 1   ? "on"
                      : gpu.ecc == 0 ? "off"
                                     : "unknown",
                      gpu.bus_id);
    if (gpu.ecc_uncorrected > 0)
      mill_finding_warn(f,
                        "%lld errors of its memory that could not be corrected: tell the "
                        "administrator",
                        (long long)gpu.ecc_uncorrected);
    else if (gpu.total > 0 && gpu.used > gpu.total / 2)
      mill_finding_warn(f,
                        "more than half of its memory is in use: does another program run there?");
  }
}

static const char *cuda_key(char key[64], int i, const char *what)
{
  snprintf(key, 64, "cuda.%d%s", i, what);
  return key;
}

static void find_device(doctor_job *job, int i)
{
  mill_findings *f = &job->findings;
  mill_cuda_device d;
  double to = 0, from = 0, on = 0;
  char key[64];
  if (mill_cuda_probe_device(i, &d) != MILL_OK) {
    mill_finding_text(f, cuda_key(key, i, ""), "fails");
    mill_finding_mark(f, strncmp(job->backend, "cuda", 4) == 0 ? EXIT_BROKEN : 0, "%s",
                      mill_error_message());
    return;
  }
  mill_finding_text(f, cuda_key(key, i, ""),
                    "%s, compute capability %d.%d, %d processors, %.0f GB (%.0f free), ECC %s, %s",
                    d.name, d.major, d.minor, d.n_processor, 1e-9 * (double)d.total,
                    1e-9 * (double)d.free, d.ecc ? "on" : "off", d.bus_id);
  if (job->quick)
    return;
  if (mill_cuda_probe_rates(i, &to, &from, &on) != MILL_OK) {
    mill_finding_text(f, cuda_key(key, i, "_rates"), "not measured");
    mill_finding_warn(f, "%s", mill_error_message());
    return;
  }
  mill_finding_number(f, cuda_key(key, i, "_host_to_device"), to, "GB/s");
  mill_finding_number(f, cuda_key(key, i, "_device_to_host"), from, "GB/s");
  mill_finding_number(f, cuda_key(key, i, "_on_device"), on, "GB/s, read and written");
}

static void find_devices(doctor_job *job)
{
  mill_findings *f = &job->findings;
  int driver = 0, runtime = 0, n = 0;
  if (!mill_gpu_is_built()) {
    mill_finding_text(f, "cuda.devices", "built without CUDA");
    if (mill_gpu_count() > 0)
      mill_finding_warn(f, "there is a GPU that this program cannot use: build it where nvcc is "
                           "found (docs/use/install.md)");
    return;
  }
  if (mill_cuda_probe(&driver, &runtime, &n) != MILL_OK) {
    mill_finding_text(f, "cuda.devices", "none: %s", mill_error_message());
    if (mill_gpu_count() > 0)
      mill_finding_warn(f,
                        "there is a GPU, but CUDA does not see it: is the driver (CUDA %d.%d) "
                        "older than this program (%d.%d), or CUDA_VISIBLE_DEVICES empty?",
                        driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    return;
  }
  mill_finding_text(f, "cuda.versions", "driver %d.%d, program %d.%d", driver / 1000,
                    driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  mill_finding_number(f, "cuda.devices", n, "");
  for (int i = 0; i < n; i++) {
    find_device(job, i);
    mill_gpu_release(); /* its rank may want it for itself */
  }
}

/* A rank's GPU, as a fit chooses it. */
typedef struct rank_gpu {
  char host[64], bus[32];
  int n_seen, has_gpu;
} rank_gpu;

static int compare_gpus(const void *a, const void *b)
{
  return memcmp(a, b, offsetof(rank_gpu, n_seen));
}

static void report_gpus_of_ranks(doctor_job *job, rank_gpu *all)
{
  mill_findings *f = &job->findings;
  const int n_rank = job->mpi.size;
  int n_without = 0, first_without = -1, n_gpu = 0, n_with = 0;
  char host[64] = "";
  for (int r = n_rank - 1; r >= 0; r--)
    if (all[r].n_seen == 0) {
      n_without++;
      first_without = r;
      memcpy(host, all[r].host, sizeof host);
    }
  if (n_without == n_rank)
    return;
  if (job->gpu_failure.code != MILL_OK) {
    mill_finding_text(f, "cuda.gpus_of_ranks", "a fit takes none");
    if (n_without > 0)
      mill_finding_warn(f,
                        "%d of %d ranks find no GPU, first rank %d on %s: ask for a GPU for each "
                        "rank on every node",
                        n_without, n_rank, first_without, host);
    else
      mill_finding_warn(f, "%s", job->gpu_failure.message);
    return;
  }
  qsort(all, (size_t)n_rank, sizeof *all, compare_gpus);
  for (int r = 0; r < n_rank; r++)
    if (all[r].has_gpu) {
      n_with++;
      n_gpu += r == 0 || compare_gpus(&all[r], &all[r - 1]) != 0;
    }
  mill_finding_number(f, "cuda.gpus_of_ranks", n_gpu, "different ones");
  if (n_with < n_rank)
    mill_finding_number(f, "fit.ranks_on_cpu", n_rank - n_with, "beside those with a GPU");
  if (n_gpu < n_with)
    mill_finding_warn(f,
                      "%d ranks share %d %s, and each needs its memory: start one rank for each "
                      "GPU, and see that the launcher lets each find its own",
                      n_with, n_gpu, n_gpu == 1 ? "GPU" : "GPUs");
}

/* Collective; findings on rank 0. */
static int find_gpus_of_ranks(doctor_job *job)
{
  int err = MILL_OK, driver = 0, runtime = 0;
  rank_gpu mine, *all = NULL;
  memset(&mine, 0, sizeof mine);
  if (strcmp(job->backend, "cpu") == 0 || !mill_gpu_is_built())
    goto done;
  mill_host_name(mine.host, sizeof mine.host);
  if (mill_cuda_probe(&driver, &runtime, &mine.n_seen) != MILL_OK)
    mine.n_seen = 0;
  mine.has_gpu = 1;
  err = strcmp(job->backend, MILL_BACKEND_MIXED) == 0
            ? mill_backend_place_some(&job->mpi, &mine.has_gpu)
            : mill_backend_place(&job->mpi, 1);
  mill_error_save(err, &job->gpu_failure);
  err = MILL_OK;
  job->is_beside = !mine.has_gpu;
  MILL_TRY(job->gpu_failure.code == MILL_ERR_MPI ? MILL_ERR_MPI : MILL_OK);
  if (job->gpu_failure.code == MILL_OK && mine.has_gpu)
    mill_cuda_probe_bus(mine.bus, sizeof mine.bus);
  MILL_TRY(mill_mpi_agree(&job->mpi, MILL_ALLOC(job->mpi.size, &all)));
  MILL_MPI(MPI_Gather(&mine, (int)sizeof mine, MPI_BYTE, all, (int)sizeof mine, MPI_BYTE, 0,
                      job->mpi.comm));
  if (job->mpi.rank == 0)
    report_gpus_of_ranks(job, all);
done:
  mill_free(all);
  return err;
}
/* ---- rates and choice ---- */

static int find_rates(doctor_job *job)
{
  mill_findings *f = &job->findings;
  mill_bench_rates rates;
  memset(&rates, 0, sizeof rates);
  if (job->quick)
    return MILL_OK;
  MILL_CHECK(mill_bench_rates_measure(job->library ? &job->lib : NULL, GEMM_ROWS, &rates));
  mill_finding_number(f, "rates.products_float32", rates.sgemm_square.gflop_s,
                      "GFLOP/s of one core");
  if (rates.sgemm_square.gflop_s < SLOW_SGEMM)
    mill_finding_warn(f, "slow: take an optimised BLAS (OpenBLAS or the machine's own), and see "
                         "whether other programs use these cores");
  mill_finding_number(f, "rates.products_float64", rates.dgemm_square.gflop_s,
                      "GFLOP/s of one core");
  if (job->library) {
    mill_finding_number(f, "rates.emulator_float32", rates.sgemm_last.gflop_s,
                        "GFLOP/s of one core, last layer");
    mill_finding_number(f, "rates.emulator_float64", rates.dgemm_hidden.gflop_s,
                        "GFLOP/s of one core, hidden layer");
  }
  mill_finding_number(f, "rates.copy", rates.copy_memory_gbyte_s,
                      "GB/s of one core, read and written");
  if (rates.copy_memory_gbyte_s < SLOW_COPY)
    mill_finding_warn(f, "slow: do other programs use this machine?");
  return MILL_OK;
}

/* From which size on auto takes the GPU. */
static void find_crossover(doctor_job *job, int kind, const char *name)
{
  mill_findings *f = &job->findings;
  mill_crossover line;
  char why[1536];
  int found = 0;
  if (mill_backend_crossover(kind, job->n_thread, &line, &found, why, sizeof why) != MILL_OK) {
    mill_finding_text(f, name, "unreadable: the CPU");
    mill_finding_warn(f, "%s", mill_error_message());
  } else if (!found)
    mill_finding_text(f, name, "none, so the CPU: %s", why);
  else if (line.from > 0)
    mill_finding_text(f, name, "%s from %lld %s on (measured %.10s)", line.gpu,
                      (long long)line.from, mill_crossover_unit(kind), line.date);
  else
    mill_finding_text(f, name, "the CPU for any size (measured %.10s)", line.date);
}

static void find_choice(doctor_job *job)
{
  mill_findings *f = &job->findings;
  const mill_backend *backend = NULL;
  int err = MILL_OK;
  err = strncmp(job->backend, "cuda", 4) == 0 ? mill_error_restore(&job->gpu_failure) : MILL_OK;
  if (err == MILL_OK)
    err = mill_backend_find(job->is_beside ? "cpu" : job->backend, &backend);
  if (err != MILL_OK) {
    mill_finding_text(f, "fit.backend", "none");
    mill_finding_fail(f, mill_error_exit_status(err), "%s", mill_error_message());
    return;
  }
  if (strcmp(job->backend, "auto") == 0)
    find_crossover(job, MILL_CROSSOVER_FIT, "fit.crossover");
  find_crossover(job, MILL_CROSSOVER_TRAIN, "train.crossover");
  mill_finding_text(f, "fit.backend", "%s%s (asked for: %s)", backend->name,
                    strcmp(job->backend, MILL_BACKEND_MIXED) == 0 ? " on rank 0" : "",
                    job->backend);
  mill_finding_number(f, "fit.slots", mill_backend_slots(backend, job->n_thread),
                      "stars at once, a rank");
  mill_finding_number(f, "fit.threads", job->n_thread, "a rank");
}

static int examine(doctor_job *job)
{
  int err = MILL_OK;
  MILL_TRY(mill_mpi_agree(&job->mpi, find_ranks(job)));
  if (job->mpi.rank == 0) {
    if (job->library)
      err = mill_library_read(job->library, &job->lib);
    if (err == MILL_OK)
      err = find_program(job);
    if (err == MILL_OK) {
      find_machine(job);
      report_ranks(job);
      find_driver(job);
      find_devices(job);
    }
  }
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  MILL_TRY(find_gpus_of_ranks(job));
  MILL_TRY(mill_mpi_agree(&job->mpi, job->mpi.rank == 0 ? find_rates(job) : MILL_OK));
  MILL_TRY(mill_doctor_output(&job->mpi, job->output, !job->quick, (unsigned)job->limit_s,
                              &job->findings));
  if (job->mpi.rank != 0)
    goto done;
  find_choice(job);
  if (job->findings.is_short)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory for what was found");
  if (job->json)
    MILL_TRY(mill_findings_print_json(&job->findings, stdout));
  else
    mill_findings_print(&job->findings, stdout);
  MILL_TRY(mill_job_flush("what was found"));
done:
  return err;
}

static int start(doctor_job *job, int argc, char **argv)
{
  MILL_CHECK(parse(argc, argv, job));
  if (mill_option_helped(job->help, job->mpi.rank, &table, &usual))
    return MILL_OK;
  /* without threads of MPI the rest can be looked at; without communicators it cannot */
  if (job->mpi.stop_comm == MPI_COMM_NULL)
    MILL_CHECK(mill_error_restore(&job->mpi_failure));
  MILL_CHECK(mill_mpi_agree(&job->mpi, examine(job)));
  MILL_CHECK_MPI(MPI_Bcast(&job->findings.exit_status, 1, MPI_INT, 0, job->mpi.comm));
  return MILL_OK;
}

int mill_job_doctor(int argc, char **argv)
{
  doctor_job job;
  memset(&job, 0, sizeof job);
  mill_error_save(mill_mpi_start(&job.mpi), &job.mpi_failure);
  const int err = start(&job, argc, argv);
  const int exit_status =
      err == MILL_OK ? job.findings.exit_status : mill_mpi_tell(&job.mpi, "starmill doctor", err);
  mill_findings_clear(&job.findings);
  mill_library_clear(&job.lib);
  mill_mpi_abort_if_lost(&job.mpi, err, exit_status);
  mill_mpi_end(&job.mpi);
  return exit_status;
}
