/* How fast networks are trained.  Phase 1 is that of mill_train_arm, phase 2 mill_train_run with
 * targets of the same sizes: what they are makes no difference to the time. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cblas.h>

#include "jobs/bench/bench.h"
#include "jobs/bench/bench_job.h"
#include "src/run/backend_choice.h"
#include "jobs/fit/fit.h"
#include "jobs/library/train_choice.h"
#include "jobs/options/job_steps.h"
#include "jobs/options/option_table.h"
#include "kernels/backend.h"
#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "kernels/find_backend.h"
#include "src/floor/bench_rates.h"
#include "src/libraries/train_arm.h"
#include "src/system/blas_threads.h"
#include "src/system/random.h"
#include "src/system/thread.h"

enum {
  N_LABEL = 4, /* as Teff, log g, [Fe/H], [alpha/Fe] */
  N_SHAPE = 96,
  N_EPOCH = 1000, /* at most */
  MAX_HIDDEN = 8,
  MAX_SPECTRA = 1 << 24
};

/* ---- options ---- */

enum { LAST_BOTH, LAST_COMPONENTS, LAST_PIXELS };
static const char *const last_words[] = {"both", "components", "pixels", NULL};

typedef struct settings {
  int spectra[MILL_BENCH_MAX_LIST], n_spectra;
  int batch[MILL_BENCH_MAX_LIST], n_batch;
  mill_train_settings hidden[MAX_HIDDEN]; /* of each only the hidden layers */
  int n_hidden;
  int n_pix, n_component, n_thread, backend, last, precision, keep, help;
  double least_s; /* of a row of the table */
} settings;

/* --hidden 256,256,200/512,512,400 */
static int take_hidden(const mill_option *row, const char *text, void *base)
{
  char one[256];
  settings *s = base;
  s->n_hidden = 0;
  for (const char *at = text;; at++) {
    const size_t length = strcspn(at, "/");
    if (s->n_hidden == MAX_HIDDEN || length >= sizeof one)
      return MILL_ERROR(MILL_ERR_USAGE, "--%s takes up to %d networks with / between", row->name,
                        MAX_HIDDEN);
    memcpy(one, at, length);
    one[length] = '\0';
    MILL_CHECK(mill_train_read_hidden(row->name, one, &s->hidden[s->n_hidden++]));
    at += length;
    if (*at == '\0')
      break;
  }
  return MILL_OK;
}

#define AT(member)         MILL_AT(settings, member)
#define LIST(member, most) MILL_BENCH_LIST(settings, member, most)
static const mill_option_table table = {
    "starmill bench train",
    "usage: starmill bench train [options]\n"
    "\n"
    "How fast `starmill library train` learns: statistics and components, then gradients, on the\n"
    "CPU and beside it on the GPU where there is one.  Spectra are smooth random functions of "
    "four\n"
    "labels, made in memory.  docs/develop/performance.md says how to read the table.\n"
    "\n",
    NULL,
    (const mill_option[]){
        {"pixels", MILL_OPTION_COUNT, AT(n_pix), .min = 2, .max = 1 << 20,
         .help = "pixels of the arm"},
        {"spectra", LIST(spectra, MAX_SPECTRA),
         .help = "numbers of spectra, ascending (default 500,2000,8000)"},
        {"batch", LIST(batch, 1 << 20), .help = "models of a step, ascending (default 32,128,512)"},
        {"hidden", MILL_OPTION_OTHER, .take = take_hidden, .argument = "N,N,.../N,N,...",
         .help = "neurons of the hidden layers, one network after another (default "
                 "256,256,200/512,512,400)"},
        {"last", MILL_OPTION_CHOICE, AT(last), .words = last_words,
         .help = "what is trained, as with library train"},
        {"components", MILL_OPTION_COUNT, AT(n_component), .min = 1, .max = MILL_MAX_WIDTH,
         .help = "principal components (default: those that leave 1e-8 of the variance, at most "
                 "256)"},
        {"backend", MILL_OPTION_CHOICE, AT(backend), .words = mill_backend_words,
         .help = "auto: the CPU, and a GPU where there is one; cpu: the CPU alone; cuda: both, and "
                 "it is a failure when there is no GPU"},
        {"products", MILL_OPTION_CHOICE, AT(precision), .words = mill_train_product_words,
         .help = "factors of products on the GPU"},
        {"threads", MILL_OPTION_COUNT, AT(n_thread), .min = 1, .max = 4096,
         .help = "threads of the CPU (default: the cores of the process)"},
        {"keep", MILL_OPTION_FLAG, AT(keep),
         .help = "keep for --backend auto from which size of a step on the GPU was faster"},
        {"seconds", MILL_OPTION_REAL, AT(least_s), .max = 3600, .argument = "S",
         .help = "repeat epochs for so long, and twice at least; the shortest counts"},
        MILL_OPTION_HELP(settings),
        {0}}};

static const settings usual = {.spectra = {500, 2000, 8000},
                               .n_spectra = 3,
                               .batch = {32, 128, 512},
                               .n_batch = 3,
                               .hidden = {{.n_hidden = 3, .width = {256, 256, 200}},
                                          {.n_hidden = 3, .width = {512, 512, 400}}},
                               .n_hidden = 2,
                               .n_pix = 7000,
                               .least_s = 0.5};

const mill_option_help mill_bench_train_help = {&table, &usual};
#undef LIST
#undef AT

static int parse(int argc, char **argv, settings *s)
{
  int first = 0;
  MILL_CHECK(mill_option_parse(&table, argc, argv, s, NULL, &first));
  if (s->help)
    return MILL_OK;
  if (first < argc)
    return MILL_ERROR(MILL_ERR_USAGE, "bench train takes no '%s'; see starmill bench train --help",
                      argv[first]);
  /* their mean takes one */
  MILL_CHECK(mill_bench_check_list("spectra", s->n_spectra, s->spectra,
                                   (s->n_component > 0 ? s->n_component : 1) + 1));
  MILL_CHECK(mill_bench_check_list("batch", s->n_batch, s->batch, 1));
  if (s->precision != MILL_TRAIN_FLOAT32 && s->backend == MILL_WORD_CPU)
    return MILL_ERROR(MILL_ERR_USAGE, "--products %s is of GPUs: leave --backend cpu out",
                      mill_train_product_words[s->precision]);
  return mill_thread_check_number(s->n_thread);
}

/* ---- spectra ---- */

typedef struct bench_train {
  const mill_bench *job;
  settings set;
  const mill_train_ops *gpu; /* NULL: none is measured */
  const mill_backend *gpu_backend;
  char reason[512]; /* why there is none */
  float *x;         /* [most spectra][N_LABEL] in (-1, 1) */
  float *flux;      /* [most spectra][n_pix] */
  int n_component[MILL_BENCH_MAX_LIST];
  mill_gemm_rate sgemm;
  mill_crossover_point *point; /* [n_point] all of both, by millions of operations of a step */
  int n_point;
} bench_train;

/* ln flux is a sum of N_SHAPE waves along the pixels, each with a strength that is a wave along the
 * labels. */
static int make_spectra(bench_train *b)
{
  int err = MILL_OK;
  const int n_pix = b->set.n_pix, n = b->set.spectra[b->set.n_spectra - 1];
  float *strength = NULL, *shape = NULL;
  mill_random r;
  mill_random_begin(&r, 1, 0, 0);
  MILL_TRY(MILL_ALLOC((size_t)n * N_LABEL, &b->x));
  MILL_TRY(mill_alloc_raw((size_t)n * (size_t)n_pix, sizeof *b->flux, (void **)&b->flux));
  MILL_TRY(MILL_ALLOC((size_t)n * N_SHAPE, &strength));
  MILL_TRY(MILL_ALLOC((size_t)N_SHAPE * (size_t)n_pix, &shape));
  for (size_t i = 0; i < (size_t)n * N_LABEL; i++)
    b->x[i] = (float)(2 * mill_random_uniform(&r) - 1);
  for (size_t j = 0; j < N_SHAPE; j++) {
    double along[N_LABEL];
    for (int l = 0; l < N_LABEL; l++)
      along[l] = 2 * mill_random_normal(&r);
    const double begin = 2 * M_PI * mill_random_uniform(&r);
    const double step = 0.5 * mill_random_uniform(&r), phase = 2 * M_PI * mill_random_uniform(&r);
    for (size_t i = 0; i < (size_t)n; i++) {
      double sum = begin;
      for (int l = 0; l < N_LABEL; l++)
        sum += along[l] * (double)b->x[i * N_LABEL + (size_t)l];
      strength[i * N_SHAPE + j] = (float)(0.3 / (1.0 + (double)j) * cos(sum));
    }
    for (size_t p = 0; p < (size_t)n_pix; p++)
      shape[j * (size_t)n_pix + p] = (float)cos(step * (double)p + phase);
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n_pix, N_SHAPE, 1, strength, N_SHAPE,
              shape, n_pix, 0, b->flux, n_pix);
  for (size_t i = 0; i < (size_t)n * (size_t)n_pix; i++)
    b->flux[i] = expf(b->flux[i]);
done:
  MILL_FREE(strength, shape);
  return err;
}

/* read of mill_train_arm_task */
static int read_flux(void *context, int n, const int *model, float *flux)
{
  const bench_train *b = context;
  const size_t n_pix = (size_t)b->set.n_pix;
  for (int i = 0; i < n; i++)
    memcpy(flux + (size_t)i * n_pix, b->flux + (size_t)model[i] * n_pix, n_pix * sizeof *flux);
  return MILL_OK;
}

/* ---- statistics and components ---- */

static int measure_statistics(bench_train *b, int k)
{
  int err = MILL_OK;
  mill_arm arm = {0};
  mill_train_state state = {0};
  mill_train_arm_settings set;
  mill_train_arm_report report;
  const mill_train_arm_task task = {.n_pix = b->set.n_pix,
                                    .n_label = N_LABEL,
                                    .n = b->set.spectra[k],
                                    .n_train = b->set.spectra[k],
                                    .x = b->x,
                                    .read = read_flux,
                                    .context = b};
  mill_train_arm_settings_init(&set);
  set.n_component = b->set.n_component;
  /* the least that must follow: one step of next to no network */
  set.net.n_hidden = set.net.width[0] = set.net.n_epoch = 1;
  set.net.batch = task.n;
  const double start_s = mill_thread_cpu_s();
  MILL_TRY(mill_train_arm(&b->job->mpi, mill_train_ops_cpu(), &set, &task, NULL, &state,
                          &arm.emulator, &report));
  const double spent_s = mill_thread_cpu_s() - start_s;
  b->n_component[k] = report.n_component;
  printf("| %d | %d | %.3f | %.0f |\n", task.n, report.n_component, spent_s, task.n / spent_s);
  MILL_TRY(mill_job_flush("the table"));
done:
  mill_train_state_clear(&state);
  mill_arm_clear(&arm);
  return err;
}

/* ---- gradients ---- */

/* A network to train. */
typedef struct network {
  const bench_train *b;
  int by_pixels, n_out;
  float *target; /* [spectra][n_out]; of pixels the flux, borrowed */
  float *own;    /* target, where it is not */
  float *scale, *weight, *bias;
  mill_train_problem problem;
} network;

static void network_clear(network *w)
{
  MILL_FREE(w->own, w->scale, w->weight, w->bias);
}

/* rows of mill_train_problem */
static int rows(void *context, int n, const int *model, const float **row)
{
  const network *w = context;
  for (int i = 0; i < n; i++)
    row[i] = w->target + (size_t)model[i] * (size_t)w->n_out;
  return MILL_OK;
}

/* Weights, and scores of components, are drawn. */
static int network_make(const bench_train *b, int by_pixels, int k, int width, network *w)
{
  const int n = b->set.spectra[k], n_out = by_pixels ? b->set.n_pix : b->n_component[k];
  mill_random r;
  mill_random_begin(&r, 1, 0, 1);
  *w = (network){.b = b, .by_pixels = by_pixels, .n_out = n_out, .target = b->flux};
  MILL_CHECK(MILL_ALLOC(n_out, &w->scale));
  MILL_CHECK(MILL_ALLOC(n_out, &w->bias));
  MILL_CHECK(MILL_ALLOC((size_t)n_out * (size_t)width, &w->weight));
  for (int i = 0; i < n_out; i++) {
    w->scale[i] = by_pixels ? 1 : 1 / (1 + (float)i);
    mill_random_normals(&r, width, w->weight + (size_t)i * (size_t)width);
    for (int j = 0; j < width; j++)
      w->weight[(size_t)i * (size_t)width + (size_t)j] /= (float)width;
  }
  if (!by_pixels) {
    MILL_CHECK(MILL_ALLOC((size_t)n * (size_t)n_out, &w->own));
    for (int i = 0; i < n; i++)
      mill_random_normals(&r, n_out, w->own + (size_t)i * (size_t)n_out);
    w->target = w->own;
  }
  w->problem = (mill_train_problem){.n_in = N_LABEL,
                                    .n_out = n_out,
                                    .n = n,
                                    .n_train = n,
                                    .x = b->x,
                                    .scale = w->scale,
                                    .n_norm = b->set.n_pix,
                                    .rows = rows,
                                    .context = w,
                                    .weight = w->weight,
                                    .bias = w->bias};
  return MILL_OK;
}

typedef struct meter {
  double (*clock)(void);
  double start_s, least_s, lap_s, best_s;
} meter;

/* after of mill_train_watch */
static int after_epoch(void *context, mill_train_state *state)
{
  meter *m = context;
  const double now_s = m->clock();
  m->best_s = fmin(m->best_s, now_s - m->lap_s);
  m->lap_s = now_s;
  if (state->n_epoch >= 2 && mill_wall_s() - m->start_s >= m->least_s)
    state->ended = 1;
  return MILL_OK;
}

/* Seconds of the shortest epoch. */
static int time_epoch(const network *w, const mill_train_ops *ops, const mill_train_settings *set,
                      double *best_s)
{
  int err = MILL_OK;
  mill_train_state state = {0};
  const int is_alone = ops != w->b->gpu && set->n_thread == 1;
  meter m = {.clock = is_alone ? mill_thread_cpu_s : mill_wall_s,
             .start_s = mill_wall_s(),
             .least_s = w->b->set.least_s,
             .best_s = INFINITY};
  const mill_train_watch watch = {.after = after_epoch, .context = &m};
  MILL_TRY(mill_train_begin(set, &w->problem, &state));
  m.lap_s = m.clock();
  MILL_TRY(mill_train_run(&w->b->job->mpi, ops, set, &w->problem, &watch, &state));
  *best_s = m.best_s;
done:
  mill_train_state_clear(&state);
  return err;
}

static const char *hidden_text(const mill_train_settings *net, char out[128])
{
  for (int l = 0, at = 0; l < net->n_hidden; l++)
    at += snprintf(out + at, 128 - (size_t)at, "%s%d", l ? "," : "", net->width[l]);
  return out;
}

/* One network with every batch; from which batch on the GPU is faster. */
static int measure_network(bench_train *b, int by_pixels, int k, const mill_train_settings *net,
                           int64_t *from)
{
  int err = MILL_OK;
  char hidden[128];
  network w = {0};
  mill_train_shape shape;
  mill_train_settings set;
  mill_crossover_point point[MILL_BENCH_MAX_LIST];
  mill_train_settings_init(&set);
  set.n_hidden = net->n_hidden;
  memcpy(set.width, net->width, sizeof set.width);
  set.n_epoch = N_EPOCH;
  set.n_thread = b->set.n_thread;
  set.precision = b->set.precision;
  MILL_TRY(network_make(b, by_pixels, k, net->width[net->n_hidden - 1], &w));
  mill_train_shape_of(&set, N_LABEL, w.n_out, &shape);
  const double n = w.problem.n, gflop = mill_train_gflop(&shape, w.problem.n);
  for (int i = 0; i < b->set.n_batch; i++) {
    mill_crossover_point *p = &point[i];
    set.batch = b->set.batch[i];
    p->size = set.batch;
    MILL_TRY(time_epoch(&w, mill_train_ops_cpu(), &set, &p->cpu_s));
    printf("| %s | %s | %d | %d | %.0f | %.2f | %.3f |", by_pixels ? "pixels" : "components",
           hidden_text(net, hidden), w.problem.n, set.batch, n / p->cpu_s, gflop / p->cpu_s,
           gflop / p->cpu_s / b->sgemm.gflop_s);
    if (b->gpu) {
      MILL_TRY(time_epoch(&w, b->gpu, &set, &p->gpu_s));
      b->point[b->n_point] = *p;
      b->point[b->n_point++].size = (int64_t)ceil(1e3 * mill_train_gflop(&shape, set.batch));
      printf(" %.0f | %.2f | %.2f |", n / p->gpu_s, gflop / p->gpu_s, p->cpu_s / p->gpu_s);
    }
    printf("\n");
    MILL_TRY(mill_job_flush("the table"));
  }
  *from = b->gpu ? mill_crossover_of(b->set.n_batch, point) : 0;
done:
  network_clear(&w);
  return err;
}

/* From which size on the GPU pays, a line for each network and number of spectra. */
static void print_crossover(const bench_train *b, int by_pixels, int h, int k, int64_t from)
{
  char hidden[128];
  printf("- %s, %s, %d spectra: ", by_pixels ? "pixels" : "components",
         hidden_text(&b->set.hidden[h], hidden), b->set.spectra[k]);
  if (from > 0)
    printf("from batches of %lld on.\n", (long long)from);
  else
    printf("the CPU is faster with the largest batch.\n");
}

static int measure_gradients(bench_train *b)
{
  const settings *s = &b->set;
  int64_t from[2][MAX_HIDDEN][MILL_BENCH_MAX_LIST];
  printf("\nGradients, the shortest epoch of %g s and of two at least%s:\n\n"
         "| trained | hidden layers | spectra | batch | models/s | GFLOP/s | of sgemm |%s\n"
         "|---|---|---:|---:|---:|---:|---:|%s\n",
         s->least_s, s->n_thread == 1 ? ", of the CPU by its CPU time" : "",
         b->gpu ? " GPU, models/s | GPU, GFLOP/s | GPU / CPU |" : "",
         b->gpu ? "---:|---:|---:|" : "");
  MILL_CHECK(MILL_ALLOC((size_t)2 * (size_t)(s->n_hidden * s->n_spectra * s->n_batch), &b->point));
  const int first = s->last == LAST_PIXELS, last = s->last != LAST_COMPONENTS;
  for (int by = first; by <= last; by++)
    for (int h = 0; h < s->n_hidden; h++)
      for (int k = 0; k < s->n_spectra; k++)
        MILL_CHECK(measure_network(b, by, k, &s->hidden[h], &from[by][h][k]));
  if (!b->gpu)
    return MILL_OK;
  printf("\nThe GPU pays:\n\n");
  for (int by = first; by <= last; by++)
    for (int h = 0; h < s->n_hidden; h++)
      for (int k = 0; k < s->n_spectra; k++)
        print_crossover(b, by, h, k, from[by][h][k]);
  return MILL_OK;
}

static int by_size(const void *a, const void *b)
{
  const int64_t left = ((const mill_crossover_point *)a)->size,
                right = ((const mill_crossover_point *)b)->size;
  return left < right ? -1 : left > right;
}

/* What `library train --backend auto` goes by. */
static int keep(const bench_train *b)
{
  qsort(b->point, (size_t)b->n_point, sizeof *b->point, by_size);
  const int64_t from = mill_crossover_of(b->n_point, b->point);
  if (b->gpu && from > 0)
    printf("\nauto takes the GPU where a rank's step has %lld million operations or more.\n",
           (long long)from);
  else if (b->gpu)
    printf("\nauto takes the CPU: the GPU was not faster in the largest step.\n");
  return mill_bench_keep_crossover(b->job, MILL_CROSSOVER_TRAIN, from, b->set.n_thread,
                                   b->gpu ? b->gpu_backend->name : NULL);
}

/* ---- all ---- */

static int find_gpu(bench_train *b)
{
  int err = MILL_OK;
  if (b->set.backend == MILL_WORD_CPU)
    goto done;
  err = mill_train_find_ops(&b->job->mpi, 1, &b->gpu);
  if (err == MILL_OK)
    err = mill_backend_find("cuda", &b->gpu_backend); /* which has its name */
  if (err == MILL_OK)
    goto done;
  b->gpu = NULL;
  if (b->set.backend == MILL_WORD_AUTO) {
    snprintf(b->reason, sizeof b->reason, "%s", mill_error_message());
    err = MILL_OK;
  }
done:
  return err;
}

static void print_head(const bench_train *b)
{
  mill_bench_print_head(b->job, NULL);
  printf("An arm of %d pixels; %d %s of the CPU; sgemm of %d × %d matrices: %.1f GFLOP/s.\n",
         b->set.n_pix, b->set.n_thread, b->set.n_thread == 1 ? "thread" : "threads", b->sgemm.m,
         b->sgemm.n, b->sgemm.gflop_s);
  if (b->gpu)
    printf("GPU: %s, products in %s.\n", b->gpu_backend->name,
           mill_train_product_words[b->set.precision]);
  else if (b->set.backend == MILL_WORD_AUTO)
    printf("GPU: SKIPPED: %s.\n", b->reason);
}

static int measure(bench_train *b)
{
  int err = MILL_OK, n_blas = 0;
  MILL_TRY(mill_blas_begin(b->set.n_thread, &n_blas));
  MILL_TRY(find_gpu(b));
  MILL_TRY(mill_bench_rates_threads(b->set.n_thread, &b->sgemm));
  print_head(b);
  MILL_TRY(mill_job_flush("the table"));
  MILL_TRY(make_spectra(b));
  printf("\nStatistics and components, on one core:\n\n"
         "| spectra | components | CPU s | spectra/s |\n"
         "|---:|---:|---:|---:|\n");
  for (int k = 0; k < b->set.n_spectra; k++)
    MILL_TRY(measure_statistics(b, k));
  MILL_TRY(measure_gradients(b));
  mill_gemm_rate again = {0};
  MILL_TRY(mill_bench_rates_threads(b->set.n_thread, &again));
  if (b->set.keep)
    MILL_TRY(keep(b));
  printf("\nsgemm at the end: %.1f GFLOP/s.\n", again.gflop_s);
  MILL_TRY(mill_job_flush("the table"));
done:
  mill_blas_end(n_blas);
  return err;
}

int mill_bench_train(mill_bench *job, int argc, char **argv)
{
  int err = MILL_OK;
  bench_train b = {.job = job, .set = usual};
  MILL_TRY(parse(argc, argv, &b.set));
  if (mill_option_helped(b.set.help, job->mpi.rank, &table, &usual))
    goto done;
  MILL_TRY(mill_bench_one_rank(job));
  if (b.set.n_thread == 0)
    MILL_TRY(mill_mpi_share_of_cores(&job->mpi, &b.set.n_thread));
  MILL_TRY(measure(&b));
done:
  MILL_FREE(b.x, b.flux, b.point);
  return err;
}
