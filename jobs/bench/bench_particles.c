/* How fast particles move and make densities (starmill particles). */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "jobs/bench/bench.h"
#include "jobs/bench/bench_job.h"
#include "src/run/backend_choice.h"
#include "jobs/options/job_steps.h"
#include "jobs/options/option_table.h"
#include "jobs/particles/particle_choice.h"
#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "kernels/particles/particles.h"
#include "src/system/thread.h"

enum { MOST_STEP = 10000, N_NODE = 1024 };

typedef struct settings {
  int grid[MILL_BENCH_MAX_LIST], n_grid;
  int steps[MILL_BENCH_MAX_LIST], n_steps;
  int particles[MILL_BENCH_MAX_LIST], n_particles;
  int n_thread, backend, help;
} settings;

/* What is measured, and what has come of it. */
typedef struct bench_particles {
  settings set;
  const mill_particle_ops *cpu, *gpu; /* gpu NULL: there is none */
  char reason[512];                   /* why there is none */
  double *density[2];                 /* [points] the last ones of the CPU and of the GPU */
  mill_particle_transfers transfers;  /* of the last evolution */
} bench_particles;

#define AT(member)         MILL_AT(settings, member)
#define LIST(member, most) MILL_BENCH_LIST(settings, member, most)
static const mill_option_table table = {
    "starmill bench particles",
    "usage: starmill bench particles [options]\n"
    "\n"
    "How fast `starmill particles` is: Ornstein and Uhlenbeck's process along one axis, with a\n"
    "density after every step, by the exact sum and by the binned one, on the CPU and beside it "
    "on\n"
    "the GPU where there is one.\n"
    "tools/particle_speed.py puts NumPy and SciPy beside it.\n"
    "\n",
    NULL,
    (const mill_option[]){
        {"grids", LIST(grid, MILL_PARTICLE_MAX_GRID),
         .help = "points of the density (default 50,100)"},
        {"steps", LIST(steps, MOST_STEP), .help = "steps (default 50,100)"},
        {"particles", LIST(particles, MILL_PARTICLE_MAX_N),
         .help = "numbers of particles, ascending (default 10000,50000,100000)"},
        {"backend", MILL_OPTION_CHOICE, AT(backend), .words = mill_backend_words,
         .help = "auto: the CPU, and a GPU where there is one; cpu: the CPU alone; cuda: both, and "
                 "it is a failure when there is no GPU"},
        {"threads", MILL_OPTION_COUNT, AT(n_thread), .min = 1, .max = 4096,
         .help = "threads beside the one core (default: the cores of the process)"},
        MILL_OPTION_HELP(settings),
        {0}}};

const mill_option_help mill_bench_particles_help = {&table, NULL};

/* Seconds of an evolution; of one thread of the CPU those of the processor. */
static int measure(bench_particles *b, const mill_particle_setup *setup, int is_gpu, double *time_s,
                   double *bound)
{
  int err = MILL_OK;
  const size_t n_record = (size_t)setup->n_record, n_grid = (size_t)setup->n_grid[0];
  const mill_particle_ops *ops = is_gpu ? b->gpu : b->cpu;
  mill_particle_result result = {0};
  const mill_particle_problem problem = {.id = 1,
                                         .diffusion = 1,
                                         .potential = MILL_HARMONIC,
                                         .rate = {1},
                                         .start_centre = {1},
                                         .start_spread = {0.5}};
  MILL_TRY(mill_particle_check_setup(setup));
  MILL_TRY(mill_particle_check_problem(setup, &problem));
  MILL_TRY(MILL_ALLOC(n_record * n_grid, &result.density));
  MILL_TRY(MILL_ALLOC(n_record, &result.bound));
  MILL_TRY(MILL_ALLOC((size_t)(setup->n_step + 1) * MILL_PARTICLE_MOMENTS, &result.moment));
  const double wall_s = mill_wall_s();
  const clock_t cpu = clock();
  MILL_TRY(ops->evolve(setup, 1, &problem, &result, &b->transfers));
  *time_s = setup->n_thread == 1 && !is_gpu ? (double)(clock() - cpu) / CLOCKS_PER_SEC
                                            : mill_wall_s() - wall_s;
  memcpy(b->density[is_gpu], result.density + (n_record - 1) * n_grid, n_grid * sizeof(double));
  *bound = result.bound[n_record - 1];
done:
  MILL_FREE(result.density, result.bound, result.moment);
  return err;
}

/* The largest difference of the last densities, as a part of the peak. */
static double difference(const bench_particles *b, int n_grid)
{
  double most = 0, peak = 0;
  for (int i = 0; i < n_grid; i++) {
    peak = fmax(peak, b->density[0][i]);
    most = fmax(most, fabs(b->density[1][i] - b->density[0][i]));
  }
  return most / peak;
}

/* By the GPU, once more than counts, since a first time loads what it needs. */
static int measure_gpu(bench_particles *b, const mill_particle_setup *setup, double *time_s)
{
  double bound;
  MILL_CHECK(measure(b, setup, 1, time_s, &bound));
  MILL_CHECK(measure(b, setup, 1, time_s, &bound));
  printf(" %.4f | %.1e |", *time_s, difference(b, setup->n_grid[0]));
  return mill_job_flush("the table");
}

/* point  [2] out: of the forms, by all threads and by the GPU */
static int measure_row(bench_particles *b, int n_grid, int n_step, int n_particle,
                       mill_crossover_point *point[2])
{
  int record[MOST_STEP + 1];
  double bound = 0;
  for (int i = 0; i <= n_step; i++)
    record[i] = i;
  mill_particle_setup setup = {.n_dim = 1,
                               .n_particle = n_particle,
                               .n_step = n_step,
                               .step = 0.01,
                               .seed = 1,
                               .n_grid = {n_grid, 1, 1},
                               .grid_low = {-5},
                               .grid_high = {5},
                               .n_node = {N_NODE, 1, 1},
                               .n_record = n_step + 1,
                               .record = record};
  printf("| %d | %d | %d |", n_grid, n_step, n_particle);
  for (int form = MILL_DENSITY_EXACT; form <= MILL_DENSITY_BINNED; form++) {
    *point[form] = (mill_crossover_point){.size = n_particle, .gpu_s = -1};
    setup.form = form;
    for (int all = 0; all < 2; all++) {
      setup.n_thread = all ? b->set.n_thread : 1;
      MILL_CHECK(measure(b, &setup, 0, &point[form]->cpu_s, &bound));
      printf(" %.4f |", point[form]->cpu_s);
      MILL_CHECK(mill_job_flush("the table"));
    }
    if (b->gpu)
      MILL_CHECK(measure_gpu(b, &setup, &point[form]->gpu_s));
  }
  printf(" %.1e |\n", bound);
  return mill_job_flush("the table");
}

static int parse(int argc, char **argv, settings *s)
{
  int first = 0;
  MILL_CHECK(mill_option_parse(&table, argc, argv, s, NULL, &first));
  if (!s->help && first < argc)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "bench particles takes no '%s'; see starmill bench particles --help",
                      argv[first]);
  MILL_CHECK(mill_thread_check_number(s->n_thread));
  return mill_bench_check_list("particles", s->n_particles, s->particles, 1);
}

static int find_engines(bench_particles *b, const mill_mpi *mpi)
{
  int err = MILL_OK, is_gpu = 0;
  MILL_TRY(mill_particle_find_ops(mpi, MILL_WORD_CPU, &b->cpu, &is_gpu));
  if (b->set.backend == MILL_WORD_CPU)
    goto done;
  err = mill_particle_find_ops(mpi, MILL_WORD_CUDA, &b->gpu, &is_gpu);
  if (err != MILL_OK && b->set.backend == MILL_WORD_AUTO) {
    b->gpu = NULL;
    snprintf(b->reason, sizeof b->reason, "%s", mill_error_message());
    err = MILL_OK;
  }
done:
  return err;
}

/* All numbers of particles of a grid and of steps. */
static int measure_rows(bench_particles *b, int n_grid, int n_step, int64_t from[2])
{
  const settings *s = &b->set;
  mill_crossover_point exact[MILL_BENCH_MAX_LIST], binned[MILL_BENCH_MAX_LIST];
  for (int p = 0; p < s->n_particles; p++)
    MILL_CHECK(measure_row(b, n_grid, n_step, s->particles[p],
                           (mill_crossover_point *[]){&exact[p], &binned[p]}));
  from[0] = b->gpu ? mill_crossover_of(s->n_particles, exact) : 0;
  from[1] = b->gpu ? mill_crossover_of(s->n_particles, binned) : 0;
  return MILL_OK;
}

static int measure_all(bench_particles *b)
{
  const settings *s = &b->set;
  const char *const gpu = b->gpu ? " GPU | GPU - CPU |" : "", *const rule =
                                                                  b->gpu ? "---:|---:|" : "";
  int64_t from[MILL_BENCH_MAX_LIST][MILL_BENCH_MAX_LIST][2];
  printf("| grid | steps | particles | exact, 1 core | exact, %d threads |%s binned, 1 core "
         "| binned, %d threads |%s bound |\n"
         "|---:|---:|---:|---:|---:|%s---:|---:|%s---:|\n",
         s->n_thread, gpu, s->n_thread, gpu, rule, rule);
  MILL_CHECK(mill_job_flush("the table"));
  for (int g = 0; g < s->n_grid; g++)
    for (int k = 0; k < s->n_steps; k++)
      MILL_CHECK(measure_rows(b, s->grid[g], s->steps[k], from[g][k]));
  if (!b->gpu)
    return MILL_OK;
  printf("\nTransfers of an evolution: %lld up, %lld down.\n"
         "\n| grid | steps | exact: the GPU pays from | binned |\n|---:|---:|---:|---:|\n",
         (long long)b->transfers.n_up, (long long)b->transfers.n_down);
  for (int g = 0; g < s->n_grid; g++)
    for (int k = 0; k < s->n_steps; k++) {
      printf("| %d | %d |", s->grid[g], s->steps[k]);
      for (int form = 0; form < 2; form++)
        if (from[g][k][form] > 0)
          printf(" %lld |", (long long)from[g][k][form]);
        else
          printf(" not here |");
      printf("\n");
    }
  return mill_job_flush("the table");
}

int mill_bench_particles(mill_bench *job, int argc, char **argv)
{
  int err = MILL_OK;
  bench_particles b = {.set = {.grid = {50, 100},
                               .n_grid = 2,
                               .steps = {50, 100},
                               .n_steps = 2,
                               .particles = {10000, 50000, 100000},
                               .n_particles = 3}};
  settings *s = &b.set;
  MILL_TRY(parse(argc, argv, s));
  if (mill_option_helped(s->help, job->mpi.rank, &table, NULL))
    goto done;
  MILL_TRY(mill_bench_one_rank(job));
  if (s->n_thread == 0)
    MILL_TRY(mill_mpi_share_of_cores(&job->mpi, &s->n_thread));
  MILL_TRY(find_engines(&b, &job->mpi));
  for (int i = 0; i < 2; i++)
    MILL_TRY(MILL_ALLOC(MILL_PARTICLE_MAX_GRID, &b.density[i]));
  mill_bench_print_head(job, b.cpu->name);
  if (b.reason[0])
    printf("No GPU: %s.\n", b.reason);
  printf("Seconds of an evolution with a density after every step: on one core its CPU time, with\n"
         "%d threads the time that passes.  The bound on the error of the binned form is that of\n"
         "the last density, whose peak is 0.4, by %d nodes.%s\n\n",
         s->n_thread, N_NODE,
         b.gpu ? "  GPU: the time that passes, with the copies;\nGPU - CPU: the largest "
                 "difference of the last density, in units of its peak."
               : "");
  MILL_TRY(measure_all(&b));
done:
  MILL_FREE(b.density[0], b.density[1]);
  return err;
}
