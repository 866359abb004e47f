/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* sched_getaffinity */

#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <fitsio.h>
#ifdef MILL_HAVE_OPENBLAS
#include <cblas.h>
#endif

#include "io/hdf5/output_file.h"
#include "io/library/library_file.h"
#include "jobs/doctor/doctor_output.h"
#include "jobs/jobs.h"
#include "kernels/gpu.h"
#include "src/config/text.h"
#include "src/run/backend_choice.h"
#include "src/system/blas_threads.h"
#include "src/system/status_gpu.h"
#include "src/system/status_process.h"
#include "src/system/version.h"

enum { EXIT_BROKEN = 70, DEFAULT_LIMIT_S = 120, RANK_BYTES = 1 << 29 };

typedef struct doctor_job {
  mill_mpi mpi;
  mill_error_kept mpi_failure; /* failure of starting MPI */
  int help, limit_s;
  const char *output, *library, *backend;
  int n_thread, n_host, n_most; /* n_most: most ranks on one host */
  mill_error_kept gpu_failure;  /* failure of giving each rank a GPU */
  int is_on_cpu;                /* 1: this rank has no GPU and fits on the CPU (cuda+cpu) */
  mill_doctor_report report;
} doctor_job;

static const mill_option_table table = {
    "starmill doctor",
    "usage: starmill doctor [--output DIR] [--library LIB.h5] [--backend NAME] [--limit S]\n"
    "\n"
    "Check this machine for a fit: program and libraries, cores and memory, MPI and its ranks,\n"
    "GPUs, the output folder, the template library, and the backend that a fit would choose.\n"
    "Run it under the mpirun or srun of the fit, to check its ranks with their cores and GPUs.\n"
    "\n",
    "\n"
    "Exit status: 0: ready (warnings included); 4: the output folder cannot be used; 70: MPI or\n"
    "the backend is broken; 2: usage, or the requested library or backend is unavailable.\n",
    (const mill_option[]){
        {"output", MILL_OPTION_TEXT, MILL_AT(doctor_job, output), .argument = "DIR",
         .help = "folder to check, where results will be written (default: .)"},
        {"library", MILL_OPTION_TEXT, MILL_AT(doctor_job, library),
         .help = "template library to check"},
        {"backend", MILL_OPTION_TEXT, MILL_AT(doctor_job, backend), .key = "backend",
         .help = "backend to check"},
        {"limit", MILL_OPTION_COUNT, MILL_AT(doctor_job, limit_s), .min = 1, .max = 86400,
         .argument = "S", .help = "seconds to wait for the file system before it counts as hung"},
        MILL_OPTION_HELP(doctor_job),
        {0}}};

static const doctor_job usual = {.output = ".", .backend = "auto", .limit_s = DEFAULT_LIMIT_S};

const mill_option_help mill_doctor_help = {&table, &usual};

static int parse(int argc, char **argv, doctor_job *job)
{
  int first = 0;
  const char *text[MILL_OPTION_MAX];
  mill_config config; /* only to check the value of --backend */
  mill_config_default(&config);
  MILL_CHECK(mill_option_parse(&table, argc, argv, job, text, &first));
  MILL_CHECK(mill_config_set(&config, "backend", "backend", job->backend));
  if (first < argc)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "doctor takes options only, not '%s'; see starmill doctor --help",
                      argv[first]);
  return MILL_OK;
}

/* ---- the report ---- */

void mill_doctor_say(mill_doctor_report *report, const char *key, const char *format, ...)
{
  va_list args;
  const size_t n = strcspn(key, "."); /* length of the key's topic, a new heading if it changes */
  if (strncmp(key, report->topic, n) != 0 || report->topic[n] != '\0') {
    snprintf(report->topic, sizeof report->topic, "%.*s", (int)n, key);
    printf("%s\n", report->topic);
  }
  printf("  %-22s ", key + n + 1);
  va_start(args, format);
  vprintf(format, args);
  va_end(args);
  printf("\n");
}

void mill_doctor_mark(mill_doctor_report *report, int exit_status, const char *format, ...)
{
  va_list args;
  if (report->exit_status == 0)
    report->exit_status = exit_status;
  *(exit_status != 0 ? &report->n_failure : &report->n_warning) += 1;
  printf("    %s: ", exit_status != 0 ? "failure" : "warning");
  va_start(args, format);
  vprintf(format, args);
  va_end(args);
  printf("\n");
}

/* ---- program, machine ---- */

enum { N_VERSION = 8 };

/* Name of a component, such as "HDF5", and its version. */
typedef struct version_row {
  const char *name;
  char text[512];
} version_row;

__attribute__((format(printf, 3, 4))) static void put(version_row *row, const char *name,
                                                      const char *format, ...)
{
  va_list args;
  row->name = name;
  va_start(args, format);
  vsnprintf(row->text, sizeof row->text, format, args);
  va_end(args);
}

/* Fill in all versions, without MPI_Init. */
static int find_versions(version_row row[N_VERSION])
{
  int n_mpi = 0;
  char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  unsigned major = 0, minor = 0, release = 0;
#ifdef MILL_HAVE_OPENBLAS
  const char *blas = openblas_get_config();
#else
  const char *blas = MILL_BLAS_TEXT;
#endif
  if (MPI_Get_library_version(mpi, &n_mpi) != MPI_SUCCESS)
    return MILL_ERROR(MILL_ERR_MPI,
                      "MPI_Get_library_version failed: the MPI installation is broken");
  mpi[strcspn(mpi, "\n")] = '\0'; /* MPICH adds lines about its build */
  for (char *c = mpi; *c; c++)
    *c = *c == '\t' ? ' ' : *c;
  if (H5get_libversion(&major, &minor, &release) < 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "H5get_libversion failed: the HDF5 installation is broken");
  put(&row[0], "starmill", "%s", mill_version());
  put(&row[1], "revision", "%s", mill_version_revision());
  put(&row[2], "compiler", "%s", mill_version_compiler());
  put(&row[3], "MPI", "%s", mpi);
  put(&row[4], "HDF5", "%u.%u.%u", major, minor, release);
  put(&row[5], "CFITSIO", "%d.%d.%d", CFITSIO_MAJOR, CFITSIO_MINOR, CFITSIO_MICRO);
  put(&row[6], "BLAS", "%s", blas);
  put(&row[7], "CUDA", "%s", MILL_CUDA_TEXT);
  return MILL_OK;
}

int mill_version_print(FILE *out)
{
  version_row row[N_VERSION];
  MILL_CHECK(find_versions(row));
  for (int i = 0; i < N_VERSION; i++)
    fprintf(out, i == 0 ? "%s %s\n" : "%-9s %s\n", row[i].name, row[i].text);
  if (fflush(out) != 0 || ferror(out))
    return MILL_ERROR(MILL_ERR_OUTPUT, "cannot print the version: the output is closed or full");
  return MILL_OK;
}

static int report_program(doctor_job *job)
{
  version_row row[N_VERSION];
  MILL_CHECK(find_versions(row));
  for (int i = 0; i < N_VERSION; i++) {
    char key[64];
    snprintf(key, sizeof key, "program.%s", row[i].name);
    mill_doctor_say(&job->report, key, "%s", row[i].text);
  }
  return MILL_OK;
}

static void report_machine(doctor_job *job)
{
  mill_doctor_report *r = &job->report;
  char host[64], model[256];
  int64_t total, available, limit;
  cpu_set_t mine;
  const long n_all = sysconf(_SC_NPROCESSORS_ONLN);
  mill_host_name(host, sizeof host);
  mill_cpu_model(model, sizeof model);
  mill_machine_memory(&total, &available, &limit);
  mill_doctor_say(r, "machine.host", "%s", host);
  mill_doctor_say(r, "machine.processor", "%s", model);
  mill_doctor_say(r, "machine.cores", "%ld, %ld of them for rank 0", n_all,
                  sched_getaffinity(0, sizeof mine, &mine) == 0 ? (long)CPU_COUNT(&mine) : n_all);
  mill_doctor_say(r, "machine.memory", "%.4g GB, %.4g free", 1e-9 * (double)total,
                  1e-9 * (double)available);
  if (mill_blas_core())
    mill_doctor_say(r, "machine.BLAS",
                    "OpenBLAS does not know this processor and is slow: for programs such as NumPy "
                    "set OPENBLAS_CORETYPE=%s; starmill library and bench set it themselves",
                    mill_blas_core());
  if (limit > 0)
    mill_doctor_say(r, "machine.memory_limit", "%.4g GB for this job", 1e-9 * (double)limit);
  if ((limit > 0 ? limit : available) < (int64_t)job->n_most * RANK_BYTES)
    mill_doctor_warn(r,
                     "a rank on the CPU needs about 0.5 GB, and %d run here: start fewer ranks "
                     "with more threads",
                     job->n_most);
}

/* ---- ranks ---- */

/* Count hosts and ranks per host.  Collective. */
static int count_ranks(doctor_job *job)
{
  MILL_AT_END(mill_mpi_free) mill_mpi node = {0};
  MILL_CHECK(mill_mpi_split(&job->mpi, MILL_MPI_NODE, &node));
  const int is_first = node.rank == 0;
  MILL_CHECK_MPI(MPI_Allreduce(&is_first, &job->n_host, 1, MPI_INT, MPI_SUM, job->mpi.comm));
  MILL_CHECK_MPI(MPI_Allreduce(&node.size, &job->n_most, 1, MPI_INT, MPI_MAX, job->mpi.comm));
  return mill_mpi_share_of_cores(&job->mpi, &job->n_thread);
}

static void report_ranks(doctor_job *job)
{
  mill_doctor_report *r = &job->report;
  const long n_core = sysconf(_SC_NPROCESSORS_ONLN);
  mill_doctor_say(r, "ranks.threads_of_mpi", "%s",
                  job->mpi_failure.code == MILL_ERR_MPI ? "no" : "yes, MPI_THREAD_MULTIPLE");
  mill_doctor_say(r, "ranks.count", "%d", job->mpi.size);
  if (job->mpi_failure.code != MILL_OK)
    mill_doctor_fail(r, EXIT_BROKEN, "%s", job->mpi_failure.message);
  mill_doctor_say(r, "ranks.hosts", "%d, at most %d ranks on one", job->n_host, job->n_most);
  if (job->n_most > n_core)
    mill_doctor_warn(r, "more ranks than the %ld cores of this machine: start fewer ranks", n_core);
  mill_doctor_say(r, "ranks.threads", "%d on rank 0", job->n_thread);
  if (job->mpi.size > 1 && (long)job->n_thread * job->n_most < n_core / 2)
    mill_doctor_warn(
        r,
        "%d threads a rank leave most of %ld cores idle: let the launcher bind ranks to more cores "
        "(mpirun --bind-to none, srun --cpus-per-task), or start more ranks",
        job->n_thread, n_core);
}

/* ---- GPUs ---- */

/* Report the GPUs that the driver knows, also GPUs that CUDA cannot use. */
static void report_driver(doctor_job *job)
{
  mill_doctor_report *r = &job->report;
  char driver[80], key[64];
  mill_gpu gpu;
  const int n = mill_gpu_count();
  mill_gpu_driver(driver);
  mill_doctor_say(r, "gpu.driver", "%s", n < 0 ? "none" : driver);
  for (int i = 0; i < n; i++) {
    if (!mill_gpu_read(i, &gpu))
      continue;
    snprintf(key, sizeof key, "gpu.%d", i);
    mill_doctor_say(r, key, "%s, %.0f GB (%.0f in use), ECC %s, %s", gpu.name,
                    1e-9 * (double)gpu.total, 1e-9 * (double)gpu.used,
                    gpu.ecc == 1   ? "on"
                    : gpu.ecc == 0 ? "off"
                                   : "unknown",
                    gpu.bus_id);
    if (gpu.ecc_uncorrected > 0)
      mill_doctor_warn(r, "%lld uncorrected memory errors: inform the administrator",
                       (long long)gpu.ecc_uncorrected);
    else if (gpu.total > 0 && gpu.used > gpu.total / 2)
      mill_doctor_warn(r,
                       "more than half of its memory is in use: is another program running on it?");
  }
}

/* Report GPU i.  A broken GPU is a failure if --backend asks for GPUs, else a warning. */
static void report_device(doctor_job *job, int i, const mill_gpu_facts *facts)
{
  mill_doctor_report *r = &job->report;
  mill_cuda_device d;
  char key[64];
  snprintf(key, sizeof key, "cuda.%d", i);
  if (mill_cuda_probe_device(i, &d) == MILL_OK) {
    mill_doctor_say(r, key, "%s, compute capability %d.%d, %.0f GB (%.0f free), %s", facts->name,
                    facts->major, facts->minor, 1e-9 * (double)d.total, 1e-9 * (double)d.free,
                    d.bus_id);
    return;
  }
  mill_doctor_say(r, key, "fails");
  mill_doctor_mark(r, strncmp(job->backend, "cuda", 4) == 0 ? EXIT_BROKEN : 0, "%s",
                   mill_error_message());
}

/* Report the GPUs that CUDA can use. */
static void report_devices(doctor_job *job)
{
  mill_doctor_report *r = &job->report;
  mill_gpu_node node;
  MILL_OWNED mill_gpu_facts *gpu = NULL;
  if (!mill_gpu_is_built()) {
    mill_doctor_say(r, "cuda.devices", "built without CUDA");
    if (mill_gpu_count() > 0) /* the driver knows a GPU */
      mill_doctor_warn(r, "this program was built without CUDA and cannot use the GPU: build it "
                          "with nvcc (docs/use/install.md)");
    return;
  }
  const int err = mill_gpu_look(&node, &gpu), driver = node.driver, runtime = node.runtime;
  if (node.n_gpu < 1) {
    mill_doctor_say(r, "cuda.devices", "none: %s",
                    err != MILL_OK ? mill_error_message()
                    : driver == 0  ? "no NVIDIA driver"
                                   : "CUDA sees no GPU");
    if (mill_gpu_count() > 0) /* the driver knows a GPU */
      mill_doctor_warn(r,
                       "CUDA does not see the GPU of this machine: is the driver (CUDA %d.%d) "
                       "older than this program (%d.%d), or CUDA_VISIBLE_DEVICES empty?",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    return;
  }
  mill_doctor_say(r, "cuda.devices", "%d, driver %d.%d, program %d.%d", node.n_gpu, driver / 1000,
                  driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  for (int i = 0; i < node.n_gpu; i++) {
    report_device(job, i, &gpu[i]);
    mill_gpu_release(); /* for the rank that will use it */
  }
}

/* The GPU that a fit would give to a rank. */
typedef struct rank_gpu {
  char host[64], bus[32];
  int n_seen, has_gpu;
} rank_gpu;

static int compare_gpus(const void *a, const void *b)
{
  return memcmp(a, b, offsetof(rank_gpu, n_seen));
}

/* Report why a fit would not use the GPUs. */
static void report_no_gpus(doctor_job *job, const rank_gpu *all)
{
  mill_doctor_report *r = &job->report;
  int n_without = 0, first = -1;
  for (int i = job->mpi.size - 1; i >= 0; i--) /* backwards: `first` ends at the lowest rank */
    if (all[i].n_seen == 0) {
      n_without++;
      first = i;
    }
  if (n_without == job->mpi.size)
    return; /* report_devices has said why */
  mill_doctor_say(r, "cuda.gpus_of_ranks", "not used by a fit");
  if (n_without > 0)
    mill_doctor_warn(
        r,
        "%d of %d ranks find no GPU (first: rank %d on %s): request one GPU per rank on every node",
        n_without, job->mpi.size, first, all[first].host);
  else
    mill_doctor_warn(r, "%s", job->gpu_failure.message);
}

/* Report how many GPUs and CPUs the ranks use; warn if ranks share a GPU. */
static void report_gpus_of_ranks(doctor_job *job, rank_gpu *all)
{
  mill_doctor_report *r = &job->report;
  const int n_rank = job->mpi.size;
  int n_gpu = 0, n_with = 0;
  qsort(all, (size_t)n_rank, sizeof *all, compare_gpus);
  for (int i = 0; i < n_rank; i++)
    if (all[i].has_gpu) {
      n_with++;
      n_gpu += i == 0 || compare_gpus(&all[i], &all[i - 1]) != 0;
    }
  mill_doctor_say(r, "cuda.gpus_of_ranks", "%d different ones", n_gpu);
  if (n_with < n_rank)
    mill_doctor_say(r, "fit.ranks_on_cpu", "%d in addition to those with a GPU", n_rank - n_with);
  if (n_gpu < n_with)
    mill_doctor_warn(r,
                     "%d ranks share the memory of %d %s: start one rank per GPU, and let the "
                     "launcher give each rank its own",
                     n_with, n_gpu, n_gpu == 1 ? "GPU" : "GPUs");
}

/* Choose each rank's GPU as a fit does; rank 0 reports.  Collective. */
static int find_gpus_of_ranks(doctor_job *job)
{
  mill_gpu_node node;
  MILL_OWNED mill_gpu_facts *gpu = NULL;
  MILL_OWNED rank_gpu *all = NULL;
  rank_gpu mine;
  memset(&mine, 0, sizeof mine); /* all bytes: compare_gpus uses memcmp */
  if (strcmp(job->backend, "cpu") == 0 || !mill_gpu_is_built())
    return MILL_OK;
  mill_host_name(mine.host, sizeof mine.host);
  if (mill_gpu_look(&node, &gpu) == MILL_OK)
    mine.n_seen = node.n_gpu;
  mine.has_gpu = 1; /* unless mill_backend_place_some sets 0 */
  const int code = strcmp(job->backend, MILL_BACKEND_MIXED) == 0
                       ? mill_backend_place_some(&job->mpi, &mine.has_gpu)
                       : mill_backend_place(&job->mpi, 1); /* 1: an error proposes cuda+cpu */
  mill_error_save(code, &job->gpu_failure);
  job->is_on_cpu = !mine.has_gpu;
  if (code == MILL_ERR_MPI)
    return code;
  if (job->gpu_failure.code == MILL_OK && mine.has_gpu)
    mill_cuda_probe_bus(mine.bus, sizeof mine.bus);
  MILL_CHECK(mill_mpi_agree(&job->mpi, MILL_ALLOC(job->mpi.size, &all)));
  MILL_CHECK_MPI(MPI_Gather(&mine, (int)sizeof mine, MPI_BYTE, all, (int)sizeof mine, MPI_BYTE, 0,
                            job->mpi.comm));
  if (job->mpi.rank == 0 && job->gpu_failure.code == MILL_OK)
    report_gpus_of_ranks(job, all);
  else if (job->mpi.rank == 0)
    report_no_gpus(job, all);
  return MILL_OK;
}

/* ---- library and choice ---- */

static int report_library(doctor_job *job)
{
  MILL_AT_END(mill_library_clear) mill_library lib = {0};
  MILL_CHECK(mill_library_read(job->library, &lib));
  mill_doctor_say(&job->report, "library.read", "%d labels, %d %s", lib.n_label, lib.n_arm,
                  lib.n_arm == 1 ? "arm" : "arms");
  return MILL_OK;
}

/* Report the size from which --backend auto takes the GPU. */
static void report_crossover(doctor_job *job, int kind, const char *key)
{
  mill_doctor_report *r = &job->report;
  mill_crossover line;
  char why[1536];
  int found = 0;
  if (mill_backend_crossover(kind, job->n_thread, &line, &found, why, sizeof why) != MILL_OK) {
    mill_doctor_say(r, key, "unreadable: the CPU");
    mill_doctor_warn(r, "%s", mill_error_message());
  } else if (!found)
    mill_doctor_say(r, key, "none, so the CPU: %s", why);
  else if (line.from > 0)
    mill_doctor_say(r, key, "%s from %lld %s on (measured %.10s)", line.gpu, (long long)line.from,
                    mill_crossover_unit(kind), line.date);
  else
    mill_doctor_say(r, key, "the CPU for any size (measured %.10s)", line.date);
}

/* Report the backend that a fit would use on rank 0, or why there is none. */
static void report_choice(doctor_job *job)
{
  mill_doctor_report *r = &job->report;
  const mill_backend *backend = NULL;
  /* "cuda" and "cuda+cpu" have failed if the ranks did not get their GPUs */
  int err = strncmp(job->backend, "cuda", 4) == 0 ? mill_error_restore(&job->gpu_failure) : MILL_OK;
  MILL_STEP(mill_backend_find(job->is_on_cpu ? "cpu" : job->backend, &backend));
  if (err != MILL_OK) {
    mill_doctor_say(r, "fit.backend", "none");
    mill_doctor_fail(r, mill_error_exit_status(err), "%s", mill_error_message());
    return;
  }
  if (strcmp(job->backend, "auto") == 0)
    report_crossover(job, MILL_CROSSOVER_FIT, "fit.crossover");
  mill_doctor_say(r, "fit.backend", "%s%s (asked for: %s)", backend->name,
                  strcmp(job->backend, MILL_BACKEND_MIXED) == 0 ? " on rank 0" : "", job->backend);
  mill_doctor_say(r, "fit.at_once", "%d stars, by %d threads a rank",
                  mill_backend_slots(backend, job->n_thread), job->n_thread);
  report_crossover(job, MILL_CROSSOVER_TRAIN, "train.crossover");
}

/* ---- all ---- */

/* Run all checks; rank 0 reports and prints the verdict. */
static int examine(doctor_job *job)
{
  int code = MILL_OK;
  const mill_doctor_report *r = &job->report;
  MILL_CHECK(mill_mpi_agree(&job->mpi, count_ranks(job)));
  if (job->mpi.rank == 0) {
    code = report_program(job);
    if (code == MILL_OK && job->library)
      code = report_library(job);
    if (code == MILL_OK) {
      report_machine(job);
      report_ranks(job);
      report_driver(job);
      report_devices(job);
    }
  }
  MILL_CHECK(mill_mpi_agree(&job->mpi, code));
  MILL_CHECK(find_gpus_of_ranks(job));
  MILL_CHECK(mill_doctor_output(&job->mpi, job->output, (unsigned)job->limit_s, &job->report));
  if (job->mpi.rank != 0)
    return MILL_OK;
  report_choice(job);
  printf("%s: %d %s, %d %s\n", r->exit_status == 0 ? "ready" : "not ready", r->n_failure,
         r->n_failure == 1 ? "failure" : "failures", r->n_warning,
         r->n_warning == 1 ? "warning" : "warnings");
  return mill_text_flush(stdout, "what was found");
}

static int start(doctor_job *job, int argc, char **argv)
{
  /* the checks need communicators, but not MPI_THREAD_MULTIPLE */
  if (job->mpi.stop_comm == MPI_COMM_NULL)
    MILL_CHECK(mill_error_restore(&job->mpi_failure));
  MILL_CHECK(mill_mpi_agree(&job->mpi, parse(argc, argv, job)));
  if (mill_option_helped(job->help, job->mpi.rank, &table, &usual))
    return MILL_OK;
  MILL_CHECK(mill_mpi_agree(&job->mpi, examine(job)));
  MILL_CHECK_MPI(MPI_Bcast(&job->report.exit_status, 1, MPI_INT, 0, job->mpi.comm));
  return MILL_OK;
}

int mill_job_doctor(int argc, char **argv)
{
  doctor_job job = usual;
  mill_error_save(mill_mpi_start(&job.mpi), &job.mpi_failure);
  const int err = start(&job, argc, argv);
  const int exit_status =
      err == MILL_OK ? job.report.exit_status : mill_mpi_tell(&job.mpi, "starmill doctor", err);
  mill_output_leave_if_broken(&job.mpi, err, exit_status);
  mill_mpi_end(&job.mpi);
  return exit_status;
}
