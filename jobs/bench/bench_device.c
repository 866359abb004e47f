#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/run/backend_choice.h"
#include "jobs/bench/bench_batch.h"
#include "jobs/bench/bench_job.h"
#include "src/run/crossover.h"
#include "jobs/fit/fit.h"
#include "jobs/options/job_steps.h"
#include "kernels/backend.h"
#include "kernels/base/error.h"
#include "kernels/base/clock.h"
#include "kernels/find_backend.h"
#include "kernels/gpu.h"
#include "src/system/thread.h"

enum {
  MAX_POINT = 32,
  DISTINCT_STARS = 256, /* of the inputs, then again from the first */
  ONCE_S = 5            /* a batch that takes longer is not repeated */
};

/* A backend that is measured. */
typedef struct device {
  const mill_backend *backend; /* NULL: there is none, and reason says why */
  char reason[512];
  double start_s; /* wall: the first use of it in a process */
  int n_slot;     /* the most */
  int is_full;    /* a batch did not fit into its memory, so no larger one is tried */
} device;

typedef struct bench_device {
  mill_bench *job;
  mill_fit_settings set;
  mill_bench_stars stars;
  int n_thread;
  device cpu, gpu;
} bench_device;

/* ---- set-up ---- */

/* The CPU, or the GPU that a fit takes. */
static void find_device(const bench_device *b, int is_gpu, device *d)
{
  int err = MILL_OK;
  const double start_s = mill_wall_s();
  d->n_slot = b->job->config.n_slot;
  if (is_gpu)
    err = mill_backend_place(&b->job->mpi, 1);
  if (err == MILL_OK)
    err = mill_backend_find(is_gpu ? "cuda" : "cpu", &d->backend);
  if (err != MILL_OK)
    snprintf(d->reason, sizeof d->reason, "%s", mill_error_message());
  else if (d->n_slot == 0)
    d->n_slot = mill_backend_slots(d->backend, b->n_thread);
  if (is_gpu)
    d->start_s = mill_wall_s() - start_s;
}

static int set_up(bench_device *b)
{
  mill_bench *job = b->job;
  mill_config *config = &job->config;
  mill_spectra_settings settings = {.lib = &job->lib, .config = config};
  MILL_CHECK(mill_bench_open_library(job));
  settings.limits = (mill_open_limits){config->gzip_limit_mib, config->scratch};
  MILL_CHECK(mill_config_arms(config, &job->lib, settings.arm_wanted));
  MILL_CHECK(mill_bench_stars_read(&settings, (int)job->input.n,
                                   (const char *const *)job->input.path, DISTINCT_STARS,
                                   &b->stars));
  b->set = config->fit;
  if (config->wave_mask_auto && !b->stars.is_desi)
    b->set.n_wave_mask = 0;
  b->set.resolution = config->lsf == MILL_LSF_OFF ? MILL_RES_NONE : MILL_RES_AUTO;
  b->n_thread = config->n_thread;
  MILL_CHECK(mill_thread_check_number(b->n_thread));
  if (b->n_thread == 0)
    MILL_CHECK(mill_mpi_share_of_cores(&job->mpi, &b->n_thread));
  return MILL_OK;
}

static void print_head(const bench_device *b)
{
  mill_bench_print_head(b->job, NULL);
  printf("%d %s of the inputs in memory, repeated; no files are read or written.\n",
         b->stars.n_star, b->stars.n_star == 1 ? "star" : "stars");
}

static mill_bench_plan plan_of(const bench_device *b, const device *d, int n_slot)
{
  return (mill_bench_plan){.lib = &b->job->lib,
                           .set = &b->set,
                           .backend = d->backend,
                           .n_slot = n_slot,
                           .n_thread = b->n_thread};
}

/* The same star has the same row in every slot. */
static int check_same(int64_t n_differ)
{
  if (n_differ > 0)
    return MILL_ERROR(
        MILL_ERR_INTERNAL,
        "%lld rows differ from those of the same stars in other slots: please report it",
        (long long)n_differ);
  return MILL_OK;
}

/* ---- crossover ---- */

/* The shortest of several times, or -1 when it would take longer than the limit or there is no
 * memory for it.  *rate of the batch before, stars/s; 0: none. */
static int time_batch(const bench_device *b, device *d, int64_t n_star, double *rate,
                      int64_t *n_differ, double *best_s)
{
  int err = MILL_OK;
  mill_bench_batch batch;
  *best_s = -1.0;
  if (!d->backend || d->is_full ||
      (*rate > 0.0 && (double)n_star / *rate > b->job->options.limit_s))
    goto done;
  /* as many slots as the device has, or as there are stars */
  const mill_bench_plan plan = plan_of(b, d, n_star < d->n_slot ? (int)n_star : d->n_slot);
  for (int i = 0; i < b->job->options.n_repeat; i++) {
    err = mill_bench_batch_run(&plan, &b->stars, n_star, &batch);
    if (err == MILL_ERR_MEMORY) {
      d->is_full = 1;
      *best_s = -1.0;
      err = MILL_OK;
      goto done;
    }
    MILL_TRY(err);
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

static const char *why_not(const device *d)
{
  return !d->backend ? "SKIPPED" : d->is_full ? "no memory" : "not run";
}

static void print_point(const bench_device *b, const mill_crossover_point *p)
{
  const double n = (double)p->size, cpu_s = p->cpu_s, gpu_s = p->gpu_s;
  printf("| %lld |", (long long)p->size);
  mill_bench_print_cell(cpu_s >= 0.0, 3, cpu_s, why_not(&b->cpu));
  mill_bench_print_cell(gpu_s >= 0.0, 3, gpu_s, why_not(&b->gpu));
  mill_bench_print_cell(cpu_s > 0.0 && gpu_s > 0.0, 2, cpu_s / gpu_s, "");
  mill_bench_print_cell(cpu_s > 0.0, 1, n / cpu_s, "");
  mill_bench_print_cell(gpu_s > 0.0, 1, n / gpu_s, "");
  printf("\n");
}

static int write_crossover_json(const bench_device *b, int n, const mill_crossover_point *point,
                                int64_t from)
{
  mill_json json;
  MILL_CHECK(mill_bench_open_json(b->job, &json));
  mill_json_integer(&json, "threads", b->n_thread);
  mill_json_text(&json, "gpu", b->gpu.backend ? b->gpu.backend->name : "");
  mill_json_text(&json, "no_gpu", b->gpu.reason);
  mill_json_real(&json, "gpu_start_s", b->gpu.start_s);
  mill_json_integer(&json, "crossover", from);
  mill_json_open(&json, "batches", '[');
  for (int i = 0; i < n; i++) {
    mill_json_open(&json, NULL, '{');
    mill_json_integer(&json, "stars", point[i].size);
    mill_json_real(&json, "cpu_s", point[i].cpu_s < 0.0 ? (double)NAN : point[i].cpu_s);
    mill_json_real(&json, "gpu_s", point[i].gpu_s < 0.0 ? (double)NAN : point[i].gpu_s);
    mill_json_close(&json);
  }
  return mill_bench_close_json(b->job, &json);
}

static int measure_crossover(bench_device *b)
{
  int n = 0;
  mill_crossover_point point[MAX_POINT];
  double cpu_rate = 0.0, gpu_rate = 0.0;
  int64_t n_differ = 0;
  print_head(b);
  printf("CPU: %s, %d %s, %d slots at most.\n",
         b->cpu.backend ? b->cpu.backend->name : b->cpu.reason, b->n_thread,
         b->n_thread == 1 ? "thread" : "threads", b->cpu.n_slot);
  if (b->gpu.backend)
    printf("GPU: %s, %d slots at most; its first use takes %.3f s, which every time below has.\n",
           b->gpu.backend->name, b->gpu.n_slot, b->gpu.start_s);
  else
    printf("GPU: SKIPPED: %s.\n", b->gpu.reason);
  printf("A time is of a whole run from memory, its start included, the shortest of %d (one where "
         "it takes over %d s); none is begun that would take over %.0f s.\n\n",
         b->job->options.n_repeat, ONCE_S, b->job->options.limit_s);
  printf("| stars | CPU, s | GPU, s | speed-up | CPU, stars/s | GPU, stars/s |\n"
         "|---|---|---|---|---|---|\n");
  for (int64_t n_star = 1; n_star <= b->job->options.n_most && n < MAX_POINT; n_star *= 4) {
    mill_crossover_point *p = &point[n];
    p->size = n_star;
    MILL_CHECK(time_batch(b, &b->cpu, n_star, &cpu_rate, &n_differ, &p->cpu_s));
    MILL_CHECK(time_batch(b, &b->gpu, n_star, &gpu_rate, &n_differ, &p->gpu_s));
    n++;
    print_point(b, p);
    MILL_CHECK(mill_job_flush("the table"));
  }
  const int64_t from = mill_crossover_of(n, point);
  if (!b->gpu.backend)
    printf("\nauto takes the CPU: no GPU was measured.\n");
  else if (from > 0)
    printf("\nauto takes the GPU from %lld stars a rank on, below that the CPU.\n",
           (long long)from);
  else
    printf("\nauto takes the CPU: the GPU was not faster in the largest batch of both.\n");
  MILL_CHECK(check_same(n_differ));
  if (b->job->options.keep)
    MILL_CHECK(mill_bench_keep_crossover(b->job, MILL_CROSSOVER_FIT, from, b->n_thread,
                                         b->gpu.backend ? b->gpu.backend->name : NULL));
  if (b->job->options.json)
    MILL_CHECK(write_crossover_json(b, n, point, from));
  return mill_job_flush("the table");
}

int mill_bench_task_crossover(mill_bench *job)
{
  int err = MILL_OK;
  bench_device b = {.job = job};
  MILL_TRY(set_up(&b));
  find_device(&b, 0, &b.cpu);
  find_device(&b, 1, &b.gpu);
  if (!b.cpu.backend)
    MILL_FAIL(MILL_ERR_BACKEND, "%s", b.cpu.reason);
  MILL_TRY(measure_crossover(&b));
done:
  mill_bench_stars_clear(&b.stars);
  return err;
}

/* ---- slots ---- */

/* The rates of the device, for the floor; of a CPU those of all threads. */
static int measure_rates(const bench_device *b, int is_gpu, mill_bench_rates *rates)
{
  memset(rates, 0, sizeof *rates);
  if (is_gpu) {
    mill_gpu_place place;
    mill_gpu_rates gpu;
    mill_gpu_assigned(&place);
    MILL_CHECK(mill_gpu_measure(place.gpu, &gpu));
    rates->sgemm_square.gflop_s = gpu.f32_gflop_s;
    rates->dgemm_square.gflop_s = gpu.f64_gflop_s;
    rates->copy_memory_gbyte_s = rates->copy_cache_gbyte_s = gpu.copy_gbyte_s;
    printf(
        "%d multiprocessors: float32 %.1f and float64 %.1f TFLOP/s at their highest clock without "
        "tensor cores; copies within its memory %.2f TB/s, bytes read and written; from pinned "
        "memory of the host %.1f GB/s.\n",
        gpu.n_processor, 1e-3 * gpu.f32_gflop_s, 1e-3 * gpu.f64_gflop_s, 1e-3 * gpu.copy_gbyte_s,
        gpu.upload_gbyte_s);
    return MILL_OK;
  }
  MILL_CHECK(mill_bench_rates_measure(&b->job->lib, b->cpu.n_slot, rates));
  const double n = b->n_thread;
  rates->sgemm_square.gflop_s = n * mill_bench_f32_gflop_s(rates);
  rates->dgemm_square.gflop_s = n * mill_bench_f64_gflop_s(rates);
  rates->copy_memory_gbyte_s *= n;
  rates->copy_cache_gbyte_s *= n;
  printf("Matrix products: float32 %.1f, float64 %.1f GFLOP/s; copies %.1f GB/s in memory, %.1f in "
         "cache: one core times threads.\n",
         rates->sgemm_square.gflop_s, rates->dgemm_square.gflop_s, rates->copy_memory_gbyte_s,
         rates->copy_cache_gbyte_s);
  return MILL_OK;
}

/* A line of the table. */
typedef struct slots_row {
  int asked, by_traffic;
  double start_s, floor_s; /* the floor is of a star */
  mill_bench_batch batch;
} slots_row;

static int write_slots_json(const bench_device *b, const device *d, int n, const slots_row *row)
{
  mill_json json;
  MILL_CHECK(mill_bench_open_json(b->job, &json));
  mill_json_integer(&json, "threads", b->n_thread);
  mill_json_text(&json, "backend", d->backend ? d->backend->name : "");
  mill_json_text(&json, "no_backend", d->reason);
  mill_json_open(&json, "rows", '[');
  for (int i = 0; i < n; i++) {
    const mill_bench_batch *batch = &row[i].batch;
    mill_json_open(&json, NULL, '{');
    mill_json_integer(&json, "slots", batch->n_slot);
    mill_json_integer(&json, "slots_asked", row[i].asked);
    mill_json_integer(&json, "stars", batch->n_star);
    mill_json_real(&json, "start_s", row[i].start_s);
    mill_json_real(&json, "run_s", batch->run_s);
    mill_json_real(&json, "load_s", batch->load_s);
    mill_json_integer(&json, "evaluations", batch->n_eval);
    mill_json_integer(&json, "jacobians", batch->n_jac);
    mill_json_real(&json, "floor_s_a_star", row[i].floor_s);
    mill_json_close(&json);
  }
  return mill_bench_close_json(b->job, &json);
}

static void print_slots_row(const slots_row *row)
{
  const mill_bench_batch *b = &row->batch;
  const double n = (double)b->n_star;
  if (b->n_slot < row->asked)
    printf("| %d of %d |", b->n_slot, row->asked);
  else
    printf("| %d |", b->n_slot);
  printf(" %lld | %.3f | %.3f | %.1f | %.3f | %.2f | %.2f | %.2f | %s | %.1f |\n",
         (long long)b->n_star, row->start_s, b->run_s, n / b->run_s, b->load_s,
         (double)b->n_eval / n, (double)b->n_jac / n, 1e6 * row->floor_s,
         row->by_traffic ? "bytes" : "arithmetic", b->run_s / n / row->floor_s);
}

/* Fit n_star stars with the slots that are asked for.  MILL_ERR_MEMORY where they do not fit. */
static int measure_row(const bench_device *b, const device *d, const mill_bench_rates *rates,
                       int64_t n_star, slots_row *row)
{
  mill_bench_plan plan = plan_of(b, d, row->asked);
  MILL_CHECK(mill_bench_batch_run(&plan, &b->stars, n_star, &row->batch));
  plan.n_slot = row->batch.n_slot;
  row->start_s = d->start_s + row->batch.open_s;
  row->floor_s = mill_bench_batch_floor_s(&plan, &row->batch, rates, &row->by_traffic);
  return MILL_OK;
}

static int measure_slots(const bench_device *b, const device *d)
{
  int err = MILL_OK, n = 0;
  const int is_gpu = d->backend->kind == MILL_BACKEND_CUDA;
  const int fixed = b->job->config.n_slot;
  const int first = fixed > 0 ? fixed : is_gpu ? 256 : 8;
  const int last = fixed > 0 ? fixed : is_gpu ? 16384 : 128;
  double rate = 0.0, bytes = 0.0;
  int64_t n_differ = 0;
  mill_bench_rates rates;
  slots_row row[MAX_POINT];
  print_head(b);
  printf("Backend %s, %d %s.\n", d->backend->name, b->n_thread,
         b->n_thread == 1 ? "thread" : "threads");
  MILL_TRY(measure_rates(b, is_gpu, &rates));
  printf("\n| slots | stars | start, s | run, s | stars/s | loading, CPU s | evaluations a star | "
         "of them Jacobians | floor, us a star | bound by | time/floor |\n"
         "|---|---|---|---|---|---|---|---|---|---|---|\n");
  /* the limit holds for the first row too */
  if (b->job->options.n_star > (int64_t)8 * first) {
    row[0].asked = first;
    MILL_TRY(measure_row(b, d, &rates, (int64_t)8 * first, &row[0]));
    rate = 8.0 * first / row[0].batch.run_s;
  }
  for (int n_slot = first; n_slot <= last && n < MAX_POINT; n_slot *= 2) {
    const int64_t n_star =
        b->job->options.n_star > 0 ? b->job->options.n_star : (int64_t)8 * n_slot;
    slots_row *r = &row[n];
    r->asked = n_slot;
    if (rate > 0.0 && (double)n_star / rate > b->job->options.limit_s) {
      printf("\nNo more: %d slots would take over %.0f s.\n", n_slot, b->job->options.limit_s);
      break;
    }
    err = measure_row(b, d, &rates, n_star, r);
    if (err == MILL_ERR_MEMORY && n > 0) {
      err = MILL_OK;
      printf("\nNo more: there is no memory for %d slots.\n", n_slot);
      break;
    }
    MILL_TRY(err);
    n++;
    rate = (double)n_star / r->batch.run_s;
    n_differ += r->batch.n_differ;
    bytes = 0.0;
    for (int a = 0; a < b->job->lib.n_arm; a++)
      bytes += (double)r->batch.shape.arm[a].raw_bytes / (double)r->batch.shape.n_star;
    print_slots_row(r);
    MILL_TRY(mill_job_flush("the table"));
    if (r->batch.n_slot < n_slot) {
      printf("\nNo more: memory is full.\n");
      break;
    }
  }
  printf(
      "\nThe floor is of arithmetic and memory on the device; reading, and bringing the %.0f kB of "
      "a star there, are beside it.\n",
      1e-3 * bytes);
  MILL_TRY(check_same(n_differ));
  if (b->job->options.json)
    MILL_TRY(write_slots_json(b, d, n, row));
  MILL_TRY(mill_job_flush("the table"));
done:
  return err;
}

int mill_bench_task_slots(mill_bench *job)
{
  int err = MILL_OK;
  bench_device b = {.job = job};
  const int is_gpu = strncmp(job->config.backend, "cuda", 4) == 0;
  device *d = is_gpu ? &b.gpu : &b.cpu;
  MILL_TRY(set_up(&b));
  find_device(&b, is_gpu, d);
  if (d->backend)
    MILL_TRY(measure_slots(&b, d));
  else if (is_gpu)
    printf("SKIPPED: %s.\n", d->reason);
  else
    MILL_FAIL(MILL_ERR_BACKEND, "%s", d->reason);
  if (!d->backend && job->options.json)
    MILL_TRY(write_slots_json(&b, d, 0, NULL));
  MILL_TRY(mill_job_flush("the table"));
done:
  mill_bench_stars_clear(&b.stars);
  return err;
}
