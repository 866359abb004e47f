/* SPDX-License-Identifier: BSD-3-Clause */
/* From which size is the GPU faster?  Times fits, trainings and particles on the CPU and GPU. */

#include "jobs/bench/bench_job.h"
#include "kernels/base/clock.h"
#include "kernels/gpu.h"
#include "src/config/text.h"
#include "src/train/train_network.h"
#include "src/run/backend_choice.h"
#include "src/system/blas_threads.h"
#include "src/system/random.h"
#include "src/system/stop_signal.h"
#include "src/system/thread.h"
#include "src/system/version.h"

enum {
  MAX_POINT = 32,
  GROWTH = 4,    /* factor between the sizes of successive points */
  ONCE_S = 5,    /* s: longer measurements are not repeated */
  NOT_KEPT = -1, /* this kind of work is not stored for --backend auto */
  TOO_FEW = -1   /* all inputs were used before the GPU was faster */
};

typedef struct crossover {
  mill_bench *job;
  int n_thread;
  char gpu_name[64]; /* empty: no GPU; no_gpu says why */
  char no_gpu[512];
  double gpu_start_s; /* wall seconds of a process's first use of the GPU */
  /* [0] on the CPU, [1] on the GPU */
  const mill_backend *backend[2];
  const mill_train_ops *train[2];
  const mill_particle_ops *particles[2];
} crossover;

/* A kind of work, measured at growing sizes. */
typedef struct work_kind {
  int work; /* enum mill_bench_work_kind */
  int kept; /* enum mill_crossover_kind to store the result under, or NOT_KEPT */
  const char *name, *unit;
  /* smallest and largest number of parts (stars, models of a step, particles) */
  int64_t first, last;
  double (*size)(void); /* size of a part, in the kind's unit; NULL: 1 */
  /* Run *n parts and set *spent_s to the wall seconds.  If there are fewer stars, lower *n. */
  int (*run)(const crossover *c, int is_gpu, int64_t *n, double *spent_s);
} work_kind;

/* Fit the first n rows of the inputs, or all if fewer.  A GPU's time includes its start-up. */
static int run_fit(const crossover *c, int is_gpu, int64_t *n, double *spent_s)
{
  MILL_OWNED mill_bench_run *run = NULL;
  mill_fit_options fit = c->job->options.fit;
  fit.backend = is_gpu ? "cuda" : "cpu";
  MILL_CHECK(MILL_ALLOC(1, &run));
  MILL_CHECK(mill_bench_run_fit(c->job, &fit, *n, run));
  *n = run->n_star;
  *spent_s = run->meters.wall_s + (is_gpu ? c->gpu_start_s : 0.0);
  return MILL_OK;
}

enum { N_LABEL = 4, N_OUT = 256, N_STEP = 4, N_EPOCH = 3 };
static const mill_train_settings network = {.n_hidden = 3, .width = {256, 256, 200}};

static double train_mflop(void)
{
  mill_train_shape shape;
  mill_train_shape_of(&network, N_LABEL, N_OUT, &shape);
  return 1e3 * mill_train_gflop(&shape, 1);
}

typedef struct train_data {
  const float *target;
  double lap_s, best_s;
} train_data;

/* the callback rows of mill_train_problem */
static int target_rows(void *context, int n, const int *model, const float **row)
{
  const train_data *data = context;
  for (int i = 0; i < n; i++)
    row[i] = data->target + (size_t)model[i] * N_OUT;
  return MILL_OK;
}

/* the callback after of mill_train_watch */
static int after_epoch(void *context, mill_train_state *state)
{
  train_data *data = context;
  const double now_s = mill_wall_s();
  (void)state;
  data->best_s = fmin(data->best_s, now_s - data->lap_s);
  data->lap_s = now_s;
  return MILL_OK;
}

static int draw(mill_random *r, size_t n, float **out)
{
  MILL_CHECK(MILL_ALLOC(n, out));
  for (size_t i = 0; i < n; i++)
    (*out)[i] = (float)mill_random_normal(r);
  return MILL_OK;
}

/* Train a network on random numbers with *n models per step; *n stays the same.  Set *spent_s to
 * the seconds per step in the fastest of N_EPOCH epochs. */
static int run_train(const crossover *c, int is_gpu, int64_t *n, double *spent_s)
{
  MILL_AT_END(mill_blas_end) int n_blas = 0;
  const int n_model = N_STEP * (int)*n, width = network.width[network.n_hidden - 1];
  MILL_OWNED float *x = NULL, *target = NULL, *scale = NULL, *weight = NULL, *bias = NULL;
  train_data data = {.best_s = INFINITY};
  MILL_AT_END(mill_train_state_clear) mill_train_state state = {0};
  mill_train_settings set;
  mill_random r;
  MILL_CHECK(mill_blas_begin(c->n_thread, &n_blas));
  mill_random_begin(&r, 1, 0, 0);
  mill_train_settings_init(&set);
  set.n_hidden = network.n_hidden;
  memcpy(set.width, network.width, sizeof set.width);
  set.batch = (int)*n;
  set.n_epoch = N_EPOCH;
  set.n_thread = c->n_thread;
  MILL_CHECK(draw(&r, (size_t)n_model * N_LABEL, &x));
  MILL_CHECK(draw(&r, (size_t)n_model * N_OUT, &target));
  MILL_CHECK(draw(&r, (size_t)N_OUT * (size_t)width, &weight));
  MILL_CHECK(MILL_ALLOC(N_OUT, &bias));
  MILL_CHECK(MILL_ALLOC(N_OUT, &scale));
  for (int i = 0; i < N_OUT * width; i++)
    weight[i] /= (float)width;
  for (int i = 0; i < N_OUT; i++)
    scale[i] = 1;
  data.target = target;
  const mill_train_problem problem = {.n_in = N_LABEL,
                                      .n_out = N_OUT,
                                      .n = n_model,
                                      .n_train = n_model,
                                      .x = x,
                                      .scale = scale,
                                      .n_norm = N_OUT,
                                      .rows = target_rows,
                                      .context = &data,
                                      .weight = weight,
                                      .bias = bias};
  const mill_train_watch watch = {.after = after_epoch, .context = &data};
  MILL_CHECK(mill_train_begin(&set, &problem, &state));
  data.lap_s = mill_wall_s();
  MILL_CHECK(mill_train_run(&c->job->mpi, c->train[is_gpu], &set, &problem, &watch, &state));
  *spent_s = data.best_s / N_STEP;
  return MILL_OK;
}

enum { N_PARTICLE_STEP = 50, N_GRID = 100 };

/* Evolve *n particles of a 1-D Ornstein-Uhlenbeck process, with a density after each step. */
static int run_particles(const crossover *c, int is_gpu, int64_t *n, double *spent_s)
{
  int record[N_PARTICLE_STEP + 1];
  MILL_OWNED double *density = NULL, *bound = NULL, *moment = NULL;
  for (int i = 0; i <= N_PARTICLE_STEP; i++)
    record[i] = i;
  const mill_particle_setup setup = {.n_dim = 1,
                                     .n_particle = (int)*n,
                                     .n_step = N_PARTICLE_STEP,
                                     .step = 0.01,
                                     .seed = 1,
                                     .n_grid = {N_GRID, 1, 1},
                                     .grid_low = {-5},
                                     .grid_high = {5},
                                     .n_record = N_PARTICLE_STEP + 1,
                                     .record = record,
                                     .n_thread = c->n_thread};
  const mill_particle_problem problem = {.id = 1,
                                         .diffusion = 1,
                                         .potential = MILL_HARMONIC,
                                         .rate = {1},
                                         .start_centre = {1},
                                         .start_spread = {0.5}};
  MILL_CHECK(mill_particle_check_setup(&setup));
  MILL_CHECK(mill_particle_check_problem(&setup, &problem));
  MILL_CHECK(MILL_ALLOC((size_t)setup.n_record * N_GRID, &density));
  MILL_CHECK(MILL_ALLOC(setup.n_record, &bound));
  MILL_CHECK(MILL_ALLOC((size_t)setup.n_record * MILL_PARTICLE_MOMENTS, &moment));
  mill_particle_result result = {.density = density, .bound = bound, .moment = moment};
  const double start_s = mill_wall_s();
  MILL_CHECK(c->particles[is_gpu]->evolve(&setup, 1, &problem, &result));
  *spent_s = mill_wall_s() - start_s;
  return MILL_OK;
}

static const work_kind kinds[] = {
    {MILL_BENCH_FIT, MILL_CROSSOVER_FIT, "fit", "stars", 1, 65536, NULL, run_fit},
    {MILL_BENCH_TRAIN, MILL_CROSSOVER_TRAIN, "train", "million operations of a step", 1, 16384,
     train_mflop, run_train},
    {MILL_BENCH_PARTICLES, NOT_KEPT, "particles", "particles", 1000, 65536000, NULL, run_particles},
};
enum { N_KIND = sizeof kinds / sizeof kinds[0] };

/* Progress of the measurements on a device. */
typedef struct progress {
  double last_s;    /* time of the last point; 0: none */
  const char *over; /* why the device is no longer measured; NULL: it is measured */
} progress;

/* Set *best_s to the shortest of n_repeat times (s) for *n stars, models or particles on a device;
 * to -1 if the device is not measured, with the reason in p->over. */
static int time_point(const crossover *c, const work_kind *kind, int is_gpu, int64_t *n,
                      progress *p, double *best_s)
{
  *best_s = -1.0;
  if (is_gpu && !c->gpu_name[0])
    p->over = "SKIPPED";
  if (p->last_s * GROWTH > c->job->options.limit_s)
    p->over = "not run";
  for (int i = 0; !p->over && i < c->job->options.n_repeat; i++) {
    double spent_s = 0.0;
    const int ran = kind->run(c, is_gpu, n, &spent_s);
    if (ran == MILL_ERR_MEMORY) {
      p->over = "no memory";
      *best_s = -1.0;
      break;
    }
    MILL_CHECK(ran);
    if (mill_stop_signal_seen())
      return MILL_ERROR(MILL_ERR_STOPPED, "signal %d: stopped; nothing is kept",
                        mill_stop_signal_seen());
    *best_s = *best_s < 0.0 ? spent_s : fmin(*best_s, spent_s);
    if (spent_s > ONCE_S)
      break;
  }
  p->last_s = fmax(*best_s, 0.0);
  return MILL_OK;
}

/* Measure a kind of work at growing sizes.  *from: size from which the GPU is faster; 0: the CPU is
 * faster at the largest size; TOO_FEW: the inputs have too few stars to tell. */
static int measure(const crossover *c, const work_kind *kind, int64_t *from)
{
  int n_point = 0, is_short = 0;
  mill_crossover_point point[MAX_POINT];
  progress device[2] = {{0}}; /* CPU, GPU */
  const double part_size = kind->size ? kind->size() : 1.0;
  for (int64_t n = kind->first; n <= kind->last && n_point < MAX_POINT; n *= GROWTH) {
    mill_crossover_point *p = &point[n_point];
    int64_t n_done = n;
    if (n > kind->first && (double)n * part_size > (double)c->job->options.n_most)
      break;
    MILL_CHECK(time_point(c, kind, 0, &n_done, &device[0], &p->cpu_s));
    MILL_CHECK(time_point(c, kind, 1, &n_done, &device[1], &p->gpu_s));
    p->size = (int64_t)ceil((double)n_done * part_size);
    n_point++;
    printf("| %s | %lld |", kind->name, (long long)p->size);
    mill_bench_print_cell(p->cpu_s >= 0.0, 4, p->cpu_s, device[0].over ? device[0].over : "");
    mill_bench_print_cell(p->gpu_s >= 0.0, 4, p->gpu_s, device[1].over ? device[1].over : "");
    mill_bench_print_cell(p->cpu_s > 0.0 && p->gpu_s > 0.0, 2, p->cpu_s / p->gpu_s, "");
    printf("\n");
    MILL_CHECK(mill_text_flush(stdout, "the table"));
    is_short = n_done < n;
    if (is_short || (device[0].over && device[1].over))
      break;
  }
  *from = mill_crossover_of(n_point, point);
  if (*from == 0 && is_short)
    *from = TOO_FEW;
  return MILL_OK;
}

/* Store the size from which the GPU is faster; --backend auto reads it. */
static int keep(const crossover *c, const work_kind *kind, int64_t from)
{
  char path[MILL_CROSSOVER_PATH];
  mill_crossover line = {.kind = kind->kept, .from = from, .n_thread = c->n_thread};
  MILL_CHECK(mill_crossover_path(path));
  snprintf(line.date, sizeof line.date, "%s", c->job->date);
  snprintf(line.revision, sizeof line.revision, "%s", mill_version_revision());
  snprintf(line.gpu, sizeof line.gpu, "%s", c->gpu_name);
  snprintf(line.cpu, sizeof line.cpu, "%s", c->job->cpu);
  MILL_CHECK(mill_crossover_keep(path, &line));
  printf("Kept for --backend auto in %s.\n", path);
  return MILL_OK;
}

/* Print from which size the GPU is faster (0: at none; TOO_FEW: more stars are needed to tell).
 * With --keep, store the size, unless it is TOO_FEW. */
static int tell(const crossover *c, const work_kind *kind, int64_t from)
{
  if (!c->gpu_name[0])
    return MILL_OK;
  if (from > 0)
    printf("\n%s: the GPU pays from %lld %s on.\n", kind->name, (long long)from, kind->unit);
  else if (from == 0)
    printf("\n%s: the CPU is faster at the largest size measured on both.\n", kind->name);
  else {
    printf("\n%s: the CPU is faster with all stars of the inputs; give more stars to see whether "
           "the GPU pays.\n",
           kind->name);
    return MILL_OK;
  }
  if (c->job->options.keep && kind->kept != NOT_KEPT)
    MILL_CHECK(keep(c, kind, from));
  return MILL_OK;
}

/* Find the GPU and its functions for all kinds of work; measure the GPU's start-up time. */
static int find_gpu(crossover *c)
{
  int code = MILL_OK;
  const double start_s = mill_wall_s();
  MILL_CHECK(mill_backend_place(&c->job->mpi, 0)); /* 0: do not propose cuda+cpu */
  MILL_CHECK(mill_backend_find("cuda", &c->backend[1]));
  c->gpu_start_s = mill_wall_s() - start_s;
  c->train[1] = mill_train_ops_cuda(&code);
  MILL_CHECK(code);
  c->particles[1] = mill_particle_ops_cuda(&code);
  MILL_CHECK(code);
  snprintf(c->gpu_name, sizeof c->gpu_name, "%s", c->backend[1]->name);
  return MILL_OK;
}

/* Set the number of threads, and find the functions of the CPU and, if there is one, of the GPU. */
static int set_up(crossover *c)
{
  mill_bench *job = c->job;
  MILL_CHECK(mill_stop_signal_catch());
  c->n_thread = job->config.n_thread;
  MILL_CHECK(mill_thread_check_number(c->n_thread));
  if (c->n_thread == 0)
    MILL_CHECK(mill_mpi_share_of_cores(&job->mpi, &c->n_thread));
  MILL_CHECK(mill_backend_find("cpu", &c->backend[0]));
  c->train[0] = mill_train_ops_cpu();
  c->particles[0] = mill_particle_ops_cpu(NULL);
  if (find_gpu(c) != MILL_OK)
    snprintf(c->no_gpu, sizeof c->no_gpu, "%s", mill_error_message());
  return MILL_OK;
}

static void print_head(const crossover *c)
{
  mill_bench_print_head(c->job, NULL);
  printf("CPU: %s, %d %s.\n", c->backend[0]->name, c->n_thread,
         c->n_thread == 1 ? "thread" : "threads");
  if (c->gpu_name[0])
    printf("GPU: %s; its first use takes %.3f s, which the times of fits include.\n", c->gpu_name,
           c->gpu_start_s);
  else
    printf("GPU: SKIPPED: %s.\n", c->no_gpu);
  printf("A time is that of the shortest of %d runs; runs above %d s are not repeated.  A run fits "
         "the first rows of the inputs, makes a training step or evolves particles.  Sizes are",
         c->job->options.n_repeat, ONCE_S);
  for (int k = 0; k < N_KIND; k++)
    printf(" %s (%s)%s", kinds[k].unit, kinds[k].name, k < N_KIND - 1 ? "," : ".\n\n");
  printf("| work | size | CPU, s | GPU, s | speed-up |\n|---|---|---|---|---|\n");
}

int mill_bench_task_crossover(mill_bench *job)
{
  int measured[N_KIND];
  crossover c = {.job = job};
  int64_t from[N_KIND] = {0}; /* for each kind: size from which the GPU is faster */
  MILL_CHECK(set_up(&c));
  print_head(&c);
  for (int k = 0; k < N_KIND; k++) {
    const int is_fit = kinds[k].work == MILL_BENCH_FIT;
    measured[k] = (job->options.work == MILL_BENCH_ALL || job->options.work == kinds[k].work) &&
                  (!is_fit || job->input.n > 0);
    if (measured[k])
      MILL_CHECK(measure(&c, &kinds[k], &from[k]));
  }
  for (int k = 0; k < N_KIND; k++)
    if (measured[k])
      MILL_CHECK(tell(&c, &kinds[k], from[k]));
  if (job->options.keep && !c.gpu_name[0])
    printf("\nNothing is kept for --backend auto: no GPU was measured.\n");
  return mill_text_flush(stdout, "the table");
}
