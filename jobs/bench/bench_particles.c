/* How fast particles move and make densities (starmill particles). */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "jobs/bench/bench_job.h"
#include "jobs/options/option_table.h"
#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "kernels/particles/particles.h"
#include "src/system/thread.h"

enum { MOST_STEP = 10000, N_NODE = 1024 };

typedef struct settings {
  int grid[MILL_BENCH_MAX_LIST], n_grid;
  int steps[MILL_BENCH_MAX_LIST], n_steps;
  int particles[MILL_BENCH_MAX_LIST], n_particles;
  int n_thread, help;
} settings;

#define AT(member) MILL_AT(settings, member)
#define LIST(member, most)                                                                         \
  MILL_OPTION_OTHER, AT(member), .offset2 = offsetof(settings, n_##member), .max = most,           \
                                 .take = mill_bench_take_list, .argument = "LIST"
static const mill_option_table table = {
    "starmill bench particles",
    "usage: starmill bench particles [options]\n"
    "\n"
    "How fast `starmill particles` is: Ornstein and Uhlenbeck's process along one axis, with a\n"
    "density after every step, by the exact sum and by the binned one.\n"
    "tools/particle_speed.py puts NumPy and SciPy beside it.\n"
    "\n",
    NULL,
    (const mill_option[]){
        {"grids", LIST(grid, MILL_PARTICLE_MAX_GRID),
         .help = "points of the density (default 50,100)"},
        {"steps", LIST(steps, MOST_STEP), .help = "steps (default 50,100)"},
        {"particles", LIST(particles, MILL_PARTICLE_MAX_N),
         .help = "particles (default 10000,50000,100000)"},
        {"threads", MILL_OPTION_COUNT, AT(n_thread), .min = 1, .max = 4096,
         .help = "threads beside the one core (default: the cores of the process)"},
        MILL_OPTION_HELP(settings),
        {0}}};

/* Seconds of an evolution; of one thread those of the processor. */
static int measure(const mill_particle_setup *setup, const mill_particle_ops *ops, double *time_s,
                   double *bound)
{
  int err = MILL_OK;
  const size_t n_record = (size_t)setup->n_record;
  mill_particle_transfers transfers;
  mill_particle_result result = {0};
  const mill_particle_problem problem = {.id = 1,
                                         .diffusion = 1,
                                         .potential = MILL_HARMONIC,
                                         .rate = {1},
                                         .start_centre = {1},
                                         .start_spread = {0.5}};
  MILL_TRY(mill_particle_check_setup(setup));
  MILL_TRY(mill_particle_check_problem(setup, &problem));
  MILL_TRY(MILL_ALLOC(n_record * (size_t)setup->n_grid[0], &result.density));
  MILL_TRY(MILL_ALLOC(n_record, &result.bound));
  MILL_TRY(MILL_ALLOC((size_t)(setup->n_step + 1) * MILL_PARTICLE_MOMENTS, &result.moment));
  const double wall_s = mill_wall_s();
  const clock_t cpu = clock();
  MILL_TRY(ops->evolve(setup, 1, &problem, &result, &transfers));
  *time_s =
      setup->n_thread == 1 ? (double)(clock() - cpu) / CLOCKS_PER_SEC : mill_wall_s() - wall_s;
  *bound = result.bound[n_record - 1];
done:
  MILL_FREE(result.density, result.bound, result.moment);
  return err;
}

static int measure_row(const settings *s, const mill_particle_ops *ops, int n_grid, int n_step,
                       int n_particle)
{
  int err = MILL_OK;
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
  for (int form = MILL_DENSITY_EXACT; form <= MILL_DENSITY_BINNED; form++)
    for (int all = 0; all < 2; all++) {
      double time_s = 0;
      setup.form = form;
      setup.n_thread = all ? s->n_thread : 1;
      MILL_TRY(measure(&setup, ops, &time_s, &bound));
      printf(" %.4f |", time_s);
      MILL_TRY(mill_bench_flush());
    }
  printf(" %.1e |\n", bound);
  MILL_TRY(mill_bench_flush());
done:
  return err;
}

static int parse(int argc, char **argv, settings *s)
{
  int err = MILL_OK, first = 0;
  MILL_TRY(mill_option_parse(&table, argc, argv, s, NULL, &first));
  if (!s->help && first < argc)
    MILL_FAIL(MILL_ERR_USAGE, "bench particles takes no '%s'; see starmill bench particles --help",
              argv[first]);
  MILL_TRY(mill_thread_check_number(s->n_thread));
done:
  return err;
}

int mill_bench_particles(mill_bench *job, int argc, char **argv)
{
  int err = MILL_OK;
  const mill_particle_ops *ops = mill_particle_ops_cpu(NULL);
  settings s = {.grid = {50, 100},
                .n_grid = 2,
                .steps = {50, 100},
                .n_steps = 2,
                .particles = {10000, 50000, 100000},
                .n_particles = 3};
  MILL_TRY(parse(argc, argv, &s));
  if (s.help) {
    if (job->mpi.rank == 0)
      mill_option_print_help(&table, NULL, stdout);
    goto done;
  }
  MILL_TRY(mill_bench_one_rank(job));
  if (!ops)
    MILL_FAIL(MILL_ERR_BACKEND, "the particle engine needs a later processor");
  if (s.n_thread == 0)
    MILL_TRY(mill_mpi_share_of_cores(&job->mpi, &s.n_thread));
  mill_bench_print_head(job, ops->name);
  printf("Seconds of an evolution with a density after every step: on one core its CPU time, with\n"
         "%d threads the time that passes.  The bound on the error of the binned form is that of\n"
         "the last density, whose peak is 0.4, by %d nodes.\n\n"
         "| grid | steps | particles | exact, 1 core | exact, %d threads | binned, 1 core "
         "| binned, %d threads | bound |\n"
         "|---:|---:|---:|---:|---:|---:|---:|---:|\n",
         s.n_thread, N_NODE, s.n_thread, s.n_thread);
  MILL_TRY(mill_bench_flush());
  for (int g = 0; g < s.n_grid; g++)
    for (int k = 0; k < s.n_steps; k++)
      for (int p = 0; p < s.n_particles; p++)
        MILL_TRY(measure_row(&s, ops, s.grid[g], s.steps[k], s.particles[p]));
done:
  return err;
}
