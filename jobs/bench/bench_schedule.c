#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/bench/bench.h"
#include "jobs/bench/bench_job.h"
#include "jobs/fit/fit.h"
#include "jobs/options/job_steps.h"
#include "jobs/options/option_table.h"
#include "io/stars/reader.h"
#include "kernels/base/error.h"
#include "kernels/data/settings.h"
#include "src/system/random.h"
#include "src/system/regular_file.h"
#include "src/ranks/schedule_model.h"
#include "src/ranks/usual_rate.h"

enum { MAX_RANK = 1 << 16, MAX_ROWS = 1 << 24, MAX_TOTAL = 1 << 28 };

/* Bytes of a compressed mock coadd for each of its rows (starmill simulate, then gzip -4). */
static const double GZIP_ROW_BYTES = 310e3;

/* Costs of 3,200 stars fitted with hybrid, from their values and Jacobians
 * (docs/develop/scaling.md): shares of the stars that cost less, in units of the mean. */
static const struct {
  double share, cost;
} usual_cost[] = {{0, 0.70},    {0.05, 0.85}, {0.25, 0.98}, {0.75, 0.99}, {0.90, 1.14},
                  {0.95, 1.15}, {0.99, 1.57}, {0.999, 2.7}, {1, 3.71}};
enum { N_USUAL = sizeof usual_cost / sizeof usual_cost[0], N_DRAWN = 1 << 16 };

typedef struct settings {
  int n_rank[MILL_BENCH_MAX_LIST], n_n_rank;
  int rows[MILL_BENCH_MAX_LIST], n_rows;
  int is_gpu;
  double rate;           /* 0: as usual */
  double spread_percent; /* of the ranks' speeds */
  double gzip_percent;   /* of the files */
  double answer_s;       /* of rank 0 */
  double latency_ms;
  int per_file, n_slot, help;
  uint64_t seed;
  const char *costs;
  /* costs of rows */
  float *cost;
  int64_t n_cost;
} settings;

#define LIST(member, most) MILL_BENCH_LIST(settings, member, most)
#define REAL(member, least, most)                                                                  \
  MILL_OPTION_REAL, MILL_AT(settings, member), .min = least, .max = most
#define COUNT(member, most) MILL_OPTION_COUNT, MILL_AT(settings, member), .min = 1, .max = most

static const char *const devices[] = {"cpu", "gpu", NULL};

static const mill_option_table table = {
    "starmill bench schedule",
    "usage: starmill bench schedule [options]\n"
    "\n"
    "How evenly the ranks of a run would be busy: the code by which ranks draw the chunks\n"
    "of a run, in a simulated one.  Its catalog has files of 1 to --per-file rows, all orders of\n"
    "magnitude alike.  docs/develop/scaling.md says how to read the table.\n"
    "\n",
    NULL,
    (const mill_option[]){
        {"ranks", LIST(n_rank, MAX_RANK), .help = "numbers of ranks (default 2,8,64,256,1024)"},
        {"rows", LIST(rows, MAX_ROWS), .help = "rows for each rank (default 200,1000,5000,20000)"},
        {"device", MILL_OPTION_CHOICE, MILL_AT(settings, is_gpu), .words = devices,
         .help = "which defaults the next two have"},
        {"rate", REAL(rate, 1e-3, 1e9), .argument = "R", .help = "stars a second of a rank"},
        {"slots", COUNT(n_slot, 1 << 20), .help = "stars at once in a rank"},
        {"spread", REAL(spread_percent, 0, 90), .argument = "PERCENT",
         .help = "ranks are this much slower or faster, at random"},
        {"gzip", REAL(gzip_percent, 0, 100), .argument = "PERCENT",
         .help = "share of the files that are compressed"},
        {"per-file", COUNT(per_file, MAX_ROWS), .help = "most rows of a file"},
        {"latency", REAL(latency_ms, 0, 1e6), .argument = "MS",
         .help = "from a request for work to its answer"},
        {"costs", MILL_OPTION_TEXT, MILL_AT(settings, costs),
         .help = "what rows cost, one number a line in any unit, repeated as needed (default: a "
                 "distribution measured with DESI-like stars)"},
        {"seed", MILL_OPTION_SEED, MILL_AT(settings, seed), .argument = "N",
         .help = "of the catalog, the costs and the speeds"},
        MILL_OPTION_HELP(settings),
        {0}}};

static const settings usual = {.n_rank = {2, 8, 64, 256, 1024},
                               .n_n_rank = 5,
                               .rows = {200, 1000, 5000, 20000},
                               .n_rows = 4,
                               .spread_percent = 5,
                               .gzip_percent = 10,
                               .answer_s = 1e-5,
                               .latency_ms = 2,
                               .per_file = 5000,
                               .seed = 1};

const mill_option_help mill_bench_schedule_help = {&table, &usual};

static int parse(int argc, char **argv, settings *set)
{
  int first = 0;
  MILL_CHECK(mill_option_parse(&table, argc, argv, set, NULL, &first));
  if (first < argc)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "bench schedule takes no '%s'; see starmill bench schedule --help",
                      argv[first]);
  if (set->rate <= 0)
    set->rate = set->is_gpu ? mill_usual_gpu_rate() : mill_usual_core_rate(MILL_OPT_HYBRID);
  if (set->n_slot == 0)
    set->n_slot = set->is_gpu ? 4096 : 32;
  return MILL_OK;
}

/* ---- costs ---- */

static double usual_cost_at(double share)
{
  int i = 1;
  while (i < N_USUAL - 1 && usual_cost[i].share < share)
    i++;
  const double from = usual_cost[i - 1].share, to = usual_cost[i].share;
  const double t = (share - from) / (to - from);
  return usual_cost[i - 1].cost + t * (usual_cost[i].cost - usual_cost[i - 1].cost);
}

static int read_costs(const char *path, settings *set)
{
  int err = MILL_OK;
  char line[256];
  int64_t n_room = 0;
  double value;
  FILE *file = NULL;
  MILL_TRY(mill_regular_stream(path, "a file with one number a line", MILL_ERR_USAGE, &file));
  while (fgets(line, sizeof line, file)) {
    if (line[0] == '#' || line[strspn(line, " \t\r\n")] == '\0')
      continue;
    char *end = NULL;
    value = strtod(line, &end);
    if (end == line || end[strspn(end, " \t\r\n")] != '\0' || !(value > 0) || !isfinite(value))
      MILL_FAIL(MILL_ERR_USAGE, "--costs %s: number %lld is no positive number", path,
                (long long)set->n_cost + 1);
    MILL_TRY(MILL_GROW(&set->cost, &n_room, set->n_cost + 1));
    set->cost[set->n_cost++] = (float)value;
  }
  if (ferror(file) || set->n_cost == 0)
    MILL_FAIL(MILL_ERR_USAGE, "--costs %s %s", path,
              ferror(file) ? "cannot be read" : "has no number");
done:
  if (file)
    fclose(file);
  return err;
}

static int draw_costs(settings *set)
{
  mill_random random;
  MILL_CHECK(MILL_ALLOC(N_DRAWN, &set->cost));
  mill_random_begin(&random, set->seed, 0, 1);
  for (int i = 0; i < N_DRAWN; i++)
    set->cost[i] = (float)usual_cost_at(mill_random_uniform(&random));
  set->n_cost = N_DRAWN;
  return MILL_OK;
}

/* The mean is 1: the rate is that of mean rows. */
static void scale_costs(settings *set)
{
  double sum = 0;
  for (int64_t i = 0; i < set->n_cost; i++)
    sum += (double)set->cost[i];
  for (int64_t i = 0; i < set->n_cost; i++)
    set->cost[i] = (float)((double)set->cost[i] * (double)set->n_cost / sum);
}

/* ---- a run ---- */

typedef struct catalog {
  mill_schedule_file *file;
  int n_file;
} catalog;

static int make_catalog(const settings *set, int64_t n_row, catalog *c)
{
  mill_random random;
  int64_t n_room = 0;
  mill_random_begin(&random, set->seed, (uint64_t)n_row, 2);
  for (int64_t row = 0; row < n_row;) {
    MILL_CHECK(MILL_GROW(&c->file, &n_room, c->n_file + 1));
    const double drawn = exp(mill_random_uniform(&random) * log((double)set->per_file + 1.0));
    int64_t n = (int64_t)drawn;
    n = n < 1 ? 1 : n > n_row - row ? n_row - row : n;
    const int is_gzip = mill_random_uniform(&random) < set->gzip_percent / 100.0;
    c->file[c->n_file++] =
        (mill_schedule_file){.row_start = row,
                             .n_row = n,
                             .row_cost = 1.0,
                             .open_cost = mill_schedule_open_cost(
                                 (int64_t)(GZIP_ROW_BYTES * (double)n), is_gzip, set->rate)};
    row += n;
  }
  return MILL_OK;
}

static int simulate(const settings *set, int n_rank, int rows)
{
  int err = MILL_OK;
  catalog c = {NULL, 0};
  double *speed = NULL;
  mill_schedule *schedule = NULL;
  mill_schedule_outcome outcome;
  mill_schedule_sum sum;
  mill_random random;
  const int64_t n_ahead = mill_reader_rows_ahead(set->is_gpu ? MILL_FIT_MOST_READERS : 1);
  MILL_TRY(make_catalog(set, (int64_t)n_rank * rows, &c));
  MILL_TRY(MILL_ALLOC(n_rank, &speed));
  mill_random_begin(&random, set->seed, (uint64_t)n_rank, 3);
  for (int i = 0; i < n_rank; i++)
    speed[i] = 1.0 + set->spread_percent / 100.0 * (2.0 * mill_random_uniform(&random) - 1.0);
  const mill_schedule_plan plan = {.n_file = c.n_file,
                                   .file = c.file,
                                   .n_rank = n_rank,
                                   .rate = set->rate,
                                   .n_held = set->n_slot + n_ahead};
  MILL_TRY(mill_schedule_make(&plan, &schedule));
  mill_schedule_sums(schedule, &sum);
  const mill_schedule_model model = {
      .schedule = schedule,
      .file = c.file,
      .n_rank = n_rank,
      .rate = set->rate,
      .speed = speed,
      .cost = set->cost,
      .n_cost = set->n_cost,
      .read_s = set->is_gpu ? 0.5 / set->rate : 0.04 / set->rate,
      .alone_s = set->is_gpu ? 0.05 : 1.0 / set->rate,
      .shares_core = !set->is_gpu,
      .answer_s = set->answer_s,
      .travel_s = 1e-3 * set->latency_ms,
      .n_slot = set->n_slot,
      .n_ahead = n_ahead,
  };
  MILL_TRY(mill_schedule_model_run(&model, &outcome));
  printf("| %d | %d | %d | %.2f | %.1f | %.2f | %.1f | %.0f | %.0f | %.2f |\n", n_rank, rows,
         c.n_file, (double)sum.n_chunk / n_rank, outcome.end_s, 100.0 * outcome.idle_tail,
         100.0 * outcome.efficiency, (double)outcome.n_message / outcome.end_s,
         outcome.most_messages_s, (double)outcome.n_opened / c.n_file);
done:
  mill_schedule_free(schedule);
  mill_free(speed);
  mill_free(c.file);
  return err;
}

int mill_bench_schedule(int argc, char **argv)
{
  int err = MILL_OK;
  settings set = usual;
  MILL_TRY(parse(argc, argv, &set));
  if (mill_option_helped(set.help, 0, &table, &usual))
    goto done;
  MILL_TRY(set.costs ? read_costs(set.costs, &set) : draw_costs(&set));
  scale_costs(&set);
  printf("%.4g stars/s and %d slots a rank, speeds within %g %%, %g %% of the files compressed, "
         "answers after %g ms\n\n",
         set.rate, set.n_slot, set.spread_percent, set.gzip_percent, set.latency_ms);
  puts(
      "| ranks | rows a rank | files | chunks a rank | s | idle tail, % | efficiency, % | requests "
      "a second | most | times a file is opened |");
  puts("|---|---|---|---|---|---|---|---|---|---|");
  for (int k = 0; k < set.n_rows; k++)
    for (int i = 0; i < set.n_n_rank; i++) {
      if ((int64_t)set.n_rank[i] * set.rows[k] > MAX_TOTAL)
        MILL_FAIL(MILL_ERR_USAGE, "%d ranks with %d rows each are too many to be simulated",
                  set.n_rank[i], set.rows[k]);
      MILL_TRY(simulate(&set, set.n_rank[i], set.rows[k]));
    }
  MILL_TRY(mill_job_flush("the table"));
done:
  mill_free(set.cost);
  return err;
}
