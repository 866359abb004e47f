#include "jobs/bench_device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/library_file.h"
#include "jobs/bench_batch.h"
#include "jobs/bench_report.h"
#include "jobs/crossover.h"
#include "jobs/fit.h"
#include "kernels/backend.h"
#include "kernels/error.h"
#include "src/clock.h"
#include "src/stop_signal.h"
#include "src/version.h"
#ifdef MILL_HAVE_CUDA
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_facts.h"
#endif

enum {
  MAX_POINT = 32,
  DISTINCT_STARS = 256, /* of the inputs, then again from the first */
  ONCE_S = 5 /* a batch that takes longer is not repeated */
};

/* A backend that is measured. */
typedef struct device {
  const mill_backend *backend; /* NULL: there is none, and reason says why */
  char reason[512];
  double start_s; /* wall: the first use of it in a process */
  int n_slot;     /* the most */
} device;

typedef struct bench_device {
  const mill_bench_options *options;
  mill_config config;
  mill_library lib;
  mill_fit_settings set;
  mill_bench_stars stars;
  mill_bench_report report; /* date and machine */
  int n_thread;
  device cpu, gpu;
} bench_device;

/* ---- set-up ---- */

static void find_cpu(bench_device *job)
{
  job->cpu.backend = mill_backend_cpu(NULL);
  if (!job->cpu.backend)
    snprintf(job->cpu.reason, sizeof job->cpu.reason, "no CPU backend runs on this machine");
  job->cpu.n_slot = job->config.n_slot;
  if (job->cpu.n_slot == 0 && job->cpu.backend)
    job->cpu.n_slot = mill_fit_default_slots(job->cpu.backend, job->n_thread);
}

static void find_gpu(bench_device *job)
{
#ifdef MILL_HAVE_CUDA
  const double start_s = mill_wall_s();
  job->gpu.backend = mill_backend_cuda(NULL);
  job->gpu.start_s = mill_wall_s() - start_s;
  if (!job->gpu.backend)
    snprintf(job->gpu.reason, sizeof job->gpu.reason, "%s", mill_error_message());
#else
  snprintf(job->gpu.reason, sizeof job->gpu.reason, "this program was built without CUDA");
#endif
  job->gpu.n_slot = job->config.n_slot;
  if (job->gpu.n_slot == 0 && job->gpu.backend)
    job->gpu.n_slot = mill_fit_default_slots(job->gpu.backend, job->n_thread);
}

static int read_stars(bench_device *job, int n_input, const char *const *input)
{
  int err = MILL_OK;
  mill_spectra_settings settings = {
      .lib = &job->lib,
      .config = &job->config,
      .limits = {job->config.gzip_limit_mib, job->config.scratch},
  };
  for (int a = 0; a < job->lib.n_arm; a++)
    settings.arm_wanted[a] = job->config.n_arm == 0;
  for (int i = 0; i < job->config.n_arm; i++) {
    const int arm = mill_library_find_arm(&job->lib, job->config.arm[i].arm);
    if (arm < 0)
      MILL_FAIL(MILL_ERR_CONFIG, "the library %s has no arm '%s'", job->lib.path,
                job->config.arm[i].arm);
    settings.arm_wanted[arm] = 1;
  }
  MILL_TRY(mill_bench_stars_read(&settings, n_input, input, DISTINCT_STARS, &job->stars));
  job->set = job->config.fit;
  if (job->config.wave_mask_auto && !job->stars.is_desi)
    job->set.n_wave_mask = 0;
  job->set.resolution =
      mill_config_lsf(&job->config) == MILL_LSF_OFF ? MILL_RES_NONE : MILL_RES_AUTO;
done:
  return err;
}

static int set_up(bench_device *job, const mill_mpi *mpi, int n_input, const char *const *input)
{
  int err = MILL_OK;
  const mill_fit_options *fit = &job->options->fit;
  mill_config_default(&job->config);
  if (fit->config)
    MILL_TRY(mill_config_read(&job->config, fit->config));
  MILL_TRY(mill_fit_options_apply(fit, &job->config));
  MILL_TRY(mill_config_check(&job->config));
  if (job->config.template_lib[0] == '\0')
    MILL_FAIL(MILL_ERR_USAGE,
              "no library: give --library FILE or template_lib in the configuration");
  MILL_TRY(mill_stop_signal_catch());
  MILL_TRY(mill_library_read(job->config.template_lib, &job->lib));
  MILL_TRY(mill_config_bind(&job->config, &job->lib));
  MILL_TRY(read_stars(job, n_input, input));
  job->n_thread = job->config.n_thread;
  if (job->n_thread == 0)
    MILL_TRY(mill_mpi_share_of_cores(mpi, &job->n_thread));
  find_cpu(job);
  find_gpu(job);
  mill_bench_describe(&job->report);
done:
  return err;
}

static void tear_down(bench_device *job)
{
  mill_bench_stars_clear(&job->stars);
  mill_library_clear(&job->lib);
  mill_config_clear(&job->config);
}

static int flush(FILE *out)
{
  int err = MILL_OK;
  if (fflush(out) != 0 || ferror(out))
    MILL_FAIL(MILL_ERR_OUTPUT, "cannot print the table: %s", strerror(errno));
done:
  return err;
}

static void print_head(const bench_device *job, const char *command)
{
  const mill_bench_stars *stars = &job->stars;
  printf("Measured on %.10s with starmill %s, revision %s (%s), on %s, %d cores.\n",
         job->report.date, mill_version(), mill_version_revision(), mill_version_compiler(),
         job->report.cpu, job->report.n_core);
  printf("\n```\n%s\n```\n\n", command);
  printf("%d %s of the inputs in memory, repeated; no files are read or written.\n", stars->n_star,
         stars->n_star == 1 ? "star" : "stars");
}

/* Fit so many stars with as many slots as the device has, or as there are stars. */
static int run_batch(const bench_device *job, const device *d, int64_t n_star,
                     mill_bench_batch *batch)
{
  const mill_bench_plan plan = {
      .lib = &job->lib,
      .set = &job->set,
      .backend = d->backend,
      .n_slot = n_star < d->n_slot ? (int)n_star : d->n_slot,
      .n_thread = job->n_thread,
  };
  return mill_bench_batch_run(&plan, &job->stars, n_star, batch);
}

/* ---- crossover ---- */

/* The shortest of several times, or -1 when it would take longer than the limit.  *rate of
 * the batch before, stars/s; 0: none. */
static int time_batch(const bench_device *job, const device *d, int64_t n_star, double *rate,
                      int64_t *n_differ, double *best_s)
{
  int err = MILL_OK;
  mill_bench_batch batch;
  *best_s = -1.0;
  if (!d->backend || (*rate > 0.0 && (double)n_star / *rate > job->options->limit_s))
    goto done;
  for (int i = 0; i < job->options->n_repeat; i++) {
    MILL_TRY(run_batch(job, d, n_star, &batch));
    *n_differ += batch.n_differ;
    const double spent_s = d->start_s + batch.open_s + batch.run_s;
    if (*best_s < 0.0 || spent_s < *best_s) {
      *best_s = spent_s;
      *rate = (double)n_star / batch.run_s;
    }
    if (spent_s > ONCE_S)
      break;
  }
done:
  return err;
}

static void print_seconds(double s, const char *without)
{
  if (s >= 0.0)
    printf(" %.3f |", s);
  else
    printf(" %s |", without);
}

static void print_rate(int64_t n_star, double s)
{
  if (s > 0.0)
    printf(" %.1f |", (double)n_star / s);
  else
    printf(" |");
}

static void print_point(const mill_crossover_point *p, const char *no_gpu)
{
  printf("| %lld |", (long long)p->n_star);
  print_seconds(p->cpu_s, "not run");
  print_seconds(p->gpu_s, no_gpu);
  if (p->cpu_s > 0.0 && p->gpu_s > 0.0)
    printf(" %.2f |", p->cpu_s / p->gpu_s);
  else
    printf(" |");
  print_rate(p->n_star, p->cpu_s);
  print_rate(p->n_star, p->gpu_s);
  printf("\n");
}

static int write_json(const bench_device *job, int n, const mill_crossover_point *point,
                      int64_t from, const char *command)
{
  int err = MILL_OK;
  const char *path = job->options->json;
  FILE *out = fopen(path, "w");
  if (!out)
    MILL_FAIL(MILL_ERR_OUTPUT, "--json %s cannot be written: %s", path, strerror(errno));
  fputs("{\n  ", out);
  mill_bench_json_text(out, "revision", mill_version_revision(), ",\n  ");
  mill_bench_json_text(out, "date", job->report.date, ",\n  ");
  mill_bench_json_text(out, "command", command, ",\n  ");
  mill_bench_json_text(out, "cpu", job->report.cpu, ",\n  ");
  mill_bench_json_text(out, "gpu", job->gpu.backend ? job->gpu.backend->name : "", ",\n  ");
  mill_bench_json_text(out, "no_gpu", job->gpu.reason, ",\n  ");
  fprintf(out, "\"threads\": %d, \"gpu_start_s\": %.9g, \"crossover\": %lld,\n  \"batches\": [",
          job->n_thread, job->gpu.start_s, (long long)from);
  for (int i = 0; i < n; i++) {
    fprintf(out, "%s\n    {\"stars\": %lld, \"cpu_s\": ", i ? "," : "", (long long)point[i].n_star);
    fprintf(out, point[i].cpu_s < 0.0 ? "null" : "%.9g", point[i].cpu_s);
    fputs(", \"gpu_s\": ", out);
    fprintf(out, point[i].gpu_s < 0.0 ? "null" : "%.9g", point[i].gpu_s);
    fputs("}", out);
  }
  fputs("]\n}\n", out);
  const int failed = ferror(out);
  if (fclose(out) != 0 || failed)
    MILL_FAIL(MILL_ERR_OUTPUT, "--json %s cannot be written: the disk may be full", path);
done:
  return err;
}

static int keep(const bench_device *job, int64_t from)
{
  int err = MILL_OK;
  char path[MILL_CROSSOVER_PATH];
  mill_crossover line = {.n_star = from, .n_thread = job->n_thread};
  if (!job->gpu.backend) {
    printf("\nNothing is kept for --backend auto: no GPU was measured.\n");
    goto done;
  }
  MILL_TRY(mill_crossover_path(path));
  snprintf(line.date, sizeof line.date, "%s", job->report.date);
  snprintf(line.revision, sizeof line.revision, "%s", mill_version_revision());
  snprintf(line.gpu, sizeof line.gpu, "%s", job->gpu.backend->name);
  snprintf(line.cpu, sizeof line.cpu, "%s", job->report.cpu);
  MILL_TRY(mill_crossover_keep(path, &line));
  printf("\nKept for --backend auto in %s.\n", path);
done:
  return err;
}

static int measure_crossover(bench_device *job, const char *command)
{
  int err = MILL_OK, n = 0;
  mill_crossover_point point[MAX_POINT];
  double cpu_rate = 0.0, gpu_rate = 0.0;
  int64_t n_differ = 0;
  print_head(job, command);
  printf("CPU: %s, %d %s, %d slots at most.\n",
         job->cpu.backend ? job->cpu.backend->name : job->cpu.reason, job->n_thread,
         job->n_thread == 1 ? "thread" : "threads", job->cpu.n_slot);
  if (job->gpu.backend)
    printf("GPU: %s, %d slots at most; its first use takes %.3f s, which every time below has.\n",
           job->gpu.backend->name, job->gpu.n_slot, job->gpu.start_s);
  else
    printf("GPU: SKIPPED: %s.\n", job->gpu.reason);
  printf("A time is of a whole run from memory, its start included, the shortest of %d (one where "
         "it takes over %d s); none is begun that would take over %.0f s.\n\n",
         job->options->n_repeat, ONCE_S, job->options->limit_s);
  printf("| stars | CPU, s | GPU, s | speed-up | CPU, stars/s | GPU, stars/s |\n"
         "|---|---|---|---|---|---|\n");
  for (int64_t n_star = 1; n_star <= job->options->n_most && n < MAX_POINT; n_star *= 4) {
    mill_crossover_point *p = &point[n];
    p->n_star = n_star;
    MILL_TRY(time_batch(job, &job->cpu, n_star, &cpu_rate, &n_differ, &p->cpu_s));
    MILL_TRY(time_batch(job, &job->gpu, n_star, &gpu_rate, &n_differ, &p->gpu_s));
    n++;
    print_point(p, job->gpu.backend ? "not run" : "SKIPPED");
    MILL_TRY(flush(stdout));
  }
  const int64_t from = mill_crossover_of(n, point);
  if (!job->gpu.backend)
    printf("\nauto takes the CPU: no GPU was measured.\n");
  else if (from > 0)
    printf("\nauto takes the GPU from %lld stars a rank on, below that the CPU.\n",
           (long long)from);
  else
    printf("\nauto takes the CPU: the GPU was not faster in the largest batch of both.\n");
  if (n_differ > 0)
    MILL_FAIL(MILL_ERR_INTERNAL,
              "%lld rows differ from those of the same stars in other slots: please report it",
              (long long)n_differ);
  if (job->options->keep)
    MILL_TRY(keep(job, from));
  if (job->options->json)
    MILL_TRY(write_json(job, n, point, from, command));
  MILL_TRY(flush(stdout));
done:
  return err;
}

int mill_bench_crossover(const mill_mpi *mpi, const mill_bench_options *options,
                         const char *command, int n_input, const char *const *input)
{
  int err = MILL_OK;
  bench_device job;
  memset(&job, 0, sizeof job);
  job.options = options;
  MILL_TRY(set_up(&job, mpi, n_input, input));
  if (!job.cpu.backend)
    MILL_FAIL(MILL_ERR_BACKEND, "%s", job.cpu.reason);
  MILL_TRY(measure_crossover(&job, command));
done:
  tear_down(&job);
  return err;
}

/* ---- slots ---- */

/* The rates of the device, for the floor; of a CPU those of all threads. */
static int measure_rates(const bench_device *job, int is_gpu, mill_bench_rates *rates)
{
  int err = MILL_OK;
  memset(rates, 0, sizeof *rates);
  if (is_gpu) {
#ifdef MILL_HAVE_CUDA
    mill_gpu_place place;
    mill_gpu_rates gpu;
    mill_gpu_assigned(&place);
    MILL_TRY(mill_gpu_measure(place.gpu, &gpu));
    rates->sgemm_square.gflop_s = gpu.f32_gflop_s;
    rates->dgemm_square.gflop_s = gpu.f64_gflop_s;
    rates->copy_memory_gbyte_s = rates->copy_cache_gbyte_s = gpu.copy_gbyte_s;
    printf(
        "%d multiprocessors: float32 %.1f and float64 %.1f TFLOP/s at their highest clock without "
        "tensor cores; copies within its memory %.2f TB/s, bytes read and written; from pinned "
        "memory of the host %.1f GB/s.\n",
        gpu.n_processor, 1e-3 * gpu.f32_gflop_s, 1e-3 * gpu.f64_gflop_s, 1e-3 * gpu.copy_gbyte_s,
        gpu.upload_gbyte_s);
#endif
    goto done;
  }
  MILL_TRY(mill_bench_rates_measure(&job->lib, job->cpu.n_slot, rates));
  const double n = job->n_thread;
  rates->sgemm_square.gflop_s = n * mill_bench_f32_gflop_s(rates);
  rates->dgemm_square.gflop_s = n * mill_bench_f64_gflop_s(rates);
  rates->copy_memory_gbyte_s *= n;
  rates->copy_cache_gbyte_s *= n;
  printf("Matrix products: float32 %.1f, float64 %.1f GFLOP/s; copies %.1f GB/s in memory, %.1f in "
         "cache: one core times threads.\n",
         rates->sgemm_square.gflop_s, rates->dgemm_square.gflop_s, rates->copy_memory_gbyte_s,
         rates->copy_cache_gbyte_s);
done:
  return err;
}

static int measure_slots(bench_device *job, device *d, int is_gpu, const char *command)
{
  int err = MILL_OK;
  const int fixed = job->config.n_slot;
  const int first = fixed > 0 ? fixed : is_gpu ? 256 : 8;
  const int last = fixed > 0 ? fixed : is_gpu ? 16384 : 128;
  double rate = 0.0, bytes = 0.0;
  int64_t n_differ = 0;
  mill_bench_rates rates;
  mill_bench_batch batch;
  print_head(job, command);
  printf("Backend %s, %d %s.\n", d->backend->name, job->n_thread,
         job->n_thread == 1 ? "thread" : "threads");
  MILL_TRY(measure_rates(job, is_gpu, &rates));
  printf("\n| slots | stars | start, s | run, s | stars/s | loading, CPU s | evaluations a star | "
         "of them Jacobians | floor, us a star | bound by | time/floor |\n"
         "|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (int n_slot = first; n_slot <= last; n_slot *= 2) {
    const int64_t n_star = job->options->n_star > 0 ? job->options->n_star : (int64_t)8 * n_slot;
    int by_traffic = 0;
    if (rate > 0.0 && (double)n_star / rate > job->options->limit_s) {
      printf("\nNo more: %d slots would take over %.0f s.\n", n_slot, job->options->limit_s);
      break;
    }
    const mill_bench_plan plan = {.lib = &job->lib,
                                  .set = &job->set,
                                  .backend = d->backend,
                                  .n_slot = n_slot,
                                  .n_thread = job->n_thread};
    MILL_TRY(mill_bench_batch_run(&plan, &job->stars, n_star, &batch));
    const double n = (double)n_star;
    const double floor_s = mill_bench_batch_floor_s(&plan, &batch, &rates, &by_traffic);
    rate = n / batch.run_s;
    n_differ += batch.n_differ;
    bytes = 0.0;
    for (int a = 0; a < job->lib.n_arm; a++)
      bytes += (double)batch.shape.arm[a].raw_bytes / (double)batch.shape.n_star;
    printf("| %d | %lld | %.3f | %.3f | %.1f | %.3f | %.2f | %.2f | %.2f | %s | %.1f |\n", n_slot,
           (long long)n_star, d->start_s + batch.open_s, batch.run_s, rate, batch.load_s,
           (double)batch.n_eval / n, (double)batch.n_jac / n, 1e6 * floor_s,
           by_traffic ? "bytes" : "arithmetic", batch.run_s / n / floor_s);
    MILL_TRY(flush(stdout));
  }
  printf(
      "\nThe floor is of arithmetic and memory on the device; reading, and bringing the %.0f kB of "
      "a star there, are beside it.\n",
      1e-3 * bytes);
  if (n_differ > 0)
    MILL_FAIL(MILL_ERR_INTERNAL,
              "%lld rows differ from those of the same stars in other slots: please report it",
              (long long)n_differ);
  MILL_TRY(flush(stdout));
done:
  return err;
}

int mill_bench_slots(const mill_mpi *mpi, const mill_bench_options *options, const char *command,
                     int n_input, const char *const *input)
{
  int err = MILL_OK;
  bench_device job;
  memset(&job, 0, sizeof job);
  job.options = options;
  MILL_TRY(set_up(&job, mpi, n_input, input));
  const int is_gpu = strcmp(job.config.backend, "cuda") == 0;
  device *d = is_gpu ? &job.gpu : &job.cpu;
  if (is_gpu && !d->backend) {
    printf("SKIPPED: %s.\n", d->reason);
    MILL_TRY(flush(stdout));
    goto done;
  }
  if (!d->backend)
    MILL_FAIL(MILL_ERR_BACKEND, "%s", d->reason);
  MILL_TRY(measure_slots(&job, d, is_gpu, command));
done:
  tear_down(&job);
  return err;
}
