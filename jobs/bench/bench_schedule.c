#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/bench/bench_job.h"
#include "jobs/fit/fit.h"
#include "jobs/options/option_value.h"
#include "jobs/fit/reader.h"
#include "kernels/base/error.h"
#include "kernels/data/settings.h"
#include "src/system/random.h"
#include "src/system/regular_file.h"
#include "src/ranks/schedule_model.h"
#include "src/ranks/usual_rate.h"

enum { MAX_LIST = 16, MAX_RANK = 1 << 16, MAX_ROWS = 1 << 24, MAX_TOTAL = 1 << 28 };

/* Bytes of a compressed mock coadd for each of its rows (starmill simulate, then gzip -4). */
static const double GZIP_ROW_BYTES = 310e3;

/* Costs of 3,200 stars fitted with hybrid, from their values and Jacobians (docs/scaling.md):
 * shares of the stars that cost less, in units of the mean. */
static const struct {
  double share, cost;
} usual_cost[] = {{0, 0.70},    {0.05, 0.85}, {0.25, 0.98}, {0.75, 0.99}, {0.90, 1.14},
                  {0.95, 1.15}, {0.99, 1.57}, {0.999, 2.7}, {1, 3.71}};
enum { N_USUAL = sizeof usual_cost / sizeof usual_cost[0], N_DRAWN = 1 << 16 };

typedef struct settings {
  int n_rank[MAX_LIST], n_n_rank;
  int rows[MAX_LIST], n_rows;
  int is_gpu;
  double rate;     /* 0: as usual */
  double spread;   /* of the ranks' speeds, a part */
  double gzip;     /* part of the files */
  double answer_s; /* of rank 0 */
  double travel_s;
  int per_file, n_slot, help;
  uint64_t seed;
  const char *costs;
  /* costs of rows */
  float *cost;
  int64_t n_cost;
} settings;

enum option_id {
  OPT_HELP = MILL_OPTION_FIRST,
  OPT_RANKS,
  OPT_ROWS,
  OPT_DEVICE,
  OPT_RATE,
  OPT_SPREAD,
  OPT_GZIP,
  OPT_LATENCY,
  OPT_PER_FILE,
  OPT_SLOTS,
  OPT_SEED,
  OPT_COSTS
};

static const struct option long_option[] = {{"help", no_argument, NULL, OPT_HELP},
                                            {"ranks", required_argument, NULL, OPT_RANKS},
                                            {"rows", required_argument, NULL, OPT_ROWS},
                                            {"device", required_argument, NULL, OPT_DEVICE},
                                            {"rate", required_argument, NULL, OPT_RATE},
                                            {"spread", required_argument, NULL, OPT_SPREAD},
                                            {"gzip", required_argument, NULL, OPT_GZIP},
                                            {"latency", required_argument, NULL, OPT_LATENCY},
                                            {"per-file", required_argument, NULL, OPT_PER_FILE},
                                            {"slots", required_argument, NULL, OPT_SLOTS},
                                            {"seed", required_argument, NULL, OPT_SEED},
                                            {"costs", required_argument, NULL, OPT_COSTS},
                                            {NULL, 0, NULL, 0}};

static void print_help(FILE *out)
{
  fputs("usage: starmill bench schedule [options]\n"
        "\n"
        "How evenly the ranks of a run would be busy: the code that deals out the rows of a run,\n"
        "in a simulated one.  Its catalog has files of 1 to --per-file rows, all orders of\n"
        "magnitude alike.  docs/scaling.md says how to read the table.\n"
        "\n"
        "  --ranks LIST       numbers of ranks (default 2,8,64,256,1024)\n"
        "  --rows LIST        rows for each rank (default 200,1000,5000,20000)\n"
        "  --device NAME      cpu or gpu: which defaults the next two have (default cpu)\n"
        "  --rate R           stars a second of a rank\n"
        "  --slots N          stars at once in a rank\n"
        "  --spread PERCENT   ranks are so much slower or faster, at random (default 5)\n"
        "  --gzip PERCENT     so many of the files are compressed (default 10)\n"
        "  --per-file N       most rows of a file (default 5000)\n"
        "  --latency MS       from a request for work to its answer (default 2)\n"
        "  --costs FILE       what rows cost, one number a line in any unit, repeated as needed\n"
        "                     (default: a distribution measured with DESI-like stars)\n"
        "  --seed N           of the catalog, the costs and the speeds (default 1)\n"
        "  --help             this text\n",
        out);
}

static int read_list(const char *name, const char *text, int most, int *list, int *n)
{
  int err = MILL_OK;
  char part[32];
  *n = 0;
  while (*text) {
    const size_t length = strcspn(text, ",");
    if (*n == MAX_LIST || length >= sizeof part)
      MILL_FAIL(MILL_ERR_USAGE, "--%s takes up to %d numbers with commas between", name, MAX_LIST);
    memcpy(part, text, length);
    part[length] = '\0';
    MILL_TRY(mill_option_count(name, part, 1, most, &list[(*n)++]));
    text += length + (text[length] == ',');
  }
  if (*n == 0)
    MILL_FAIL(MILL_ERR_USAGE, "--%s takes numbers with commas between", name);
done:
  return err;
}

static int read_number(const char *name, const char *text, double least, double most, double *value)
{
  int err = MILL_OK;
  char *end = NULL;
  *value = strtod(text, &end);
  if (end == text || *end != '\0' || !(*value >= least && *value <= most))
    MILL_FAIL(MILL_ERR_USAGE, "--%s takes a number from %g to %g, not '%s'", name, least, most,
              text);
done:
  return err;
}

static int set_device(const char *text, settings *set)
{
  int err = MILL_OK;
  if (strcmp(text, "cpu") != 0 && strcmp(text, "gpu") != 0)
    MILL_FAIL(MILL_ERR_USAGE, "--device takes cpu or gpu, not '%s'", text);
  set->is_gpu = strcmp(text, "gpu") == 0;
done:
  return err;
}

static int parse_value(int id, settings *set)
{
  int err = MILL_OK;
  double value = 0;
  switch (id) {
  case OPT_RANKS:
    MILL_TRY(read_list("ranks", optarg, MAX_RANK, set->n_rank, &set->n_n_rank));
    break;
  case OPT_ROWS:
    MILL_TRY(read_list("rows", optarg, MAX_ROWS, set->rows, &set->n_rows));
    break;
  case OPT_DEVICE:
    MILL_TRY(set_device(optarg, set));
    break;
  case OPT_RATE:
    MILL_TRY(read_number("rate", optarg, 1e-3, 1e9, &set->rate));
    break;
  case OPT_SPREAD:
    MILL_TRY(read_number("spread", optarg, 0, 90, &value));
    set->spread = value / 100.0;
    break;
  case OPT_GZIP:
    MILL_TRY(read_number("gzip", optarg, 0, 100, &value));
    set->gzip = value / 100.0;
    break;
  case OPT_LATENCY:
    MILL_TRY(read_number("latency", optarg, 0, 1e6, &value));
    set->travel_s = 1e-3 * value;
    break;
  case OPT_PER_FILE:
    MILL_TRY(mill_option_count("per-file", optarg, 1, MAX_ROWS, &set->per_file));
    break;
  case OPT_SLOTS:
    MILL_TRY(mill_option_count("slots", optarg, 1, 1 << 20, &set->n_slot));
    break;
  case OPT_SEED:
    MILL_TRY(mill_option_seed(optarg, &set->seed));
    break;
  case OPT_COSTS:
    set->costs = optarg;
    break;
  default:
    set->help = 1;
  }
done:
  return err;
}

static int parse(int argc, char **argv, settings *set)
{
  int err = MILL_OK;
  mill_option_begin();
  for (int id;;) {
    MILL_TRY(mill_option_next(argc, argv, long_option, "starmill bench schedule", &id));
    if (id == -1)
      break;
    MILL_TRY(parse_value(id, set));
  }
  if (optind < argc)
    MILL_FAIL(MILL_ERR_USAGE, "bench schedule takes no '%s'; see starmill bench schedule --help",
              argv[optind]);
  if (set->rate <= 0)
    set->rate = set->is_gpu ? mill_usual_gpu_rate() : mill_usual_core_rate(MILL_OPT_HYBRID);
  if (set->n_slot == 0)
    set->n_slot = set->is_gpu ? 4096 : 32;
done:
  return err;
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
  int err = MILL_OK;
  mill_random random;
  MILL_TRY(MILL_ALLOC(N_DRAWN, &set->cost));
  mill_random_begin(&random, set->seed, 0, 1);
  for (int i = 0; i < N_DRAWN; i++)
    set->cost[i] = (float)usual_cost_at(mill_random_uniform(&random));
  set->n_cost = N_DRAWN;
done:
  return err;
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
  int err = MILL_OK;
  mill_random random;
  int64_t n_room = 0;
  mill_random_begin(&random, set->seed, (uint64_t)n_row, 2);
  for (int64_t row = 0; row < n_row;) {
    MILL_TRY(MILL_GROW(&c->file, &n_room, c->n_file + 1));
    const double drawn = exp(mill_random_uniform(&random) * log((double)set->per_file + 1.0));
    int64_t n = (int64_t)drawn;
    n = n < 1 ? 1 : n > n_row - row ? n_row - row : n;
    const int is_gzip = mill_random_uniform(&random) < set->gzip;
    c->file[c->n_file++] =
        (mill_schedule_file){.row_start = row,
                             .n_row = n,
                             .row_cost = 1.0,
                             .open_cost = mill_schedule_open_cost(
                                 (int64_t)(GZIP_ROW_BYTES * (double)n), is_gzip, set->rate)};
    row += n;
  }
done:
  return err;
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
    speed[i] = 1.0 + set->spread * (2.0 * mill_random_uniform(&random) - 1.0);
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
      .travel_s = set->travel_s,
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
  settings set = {.n_rank = {2, 8, 64, 256, 1024},
                  .n_n_rank = 5,
                  .rows = {200, 1000, 5000, 20000},
                  .n_rows = 4,
                  .spread = 0.05,
                  .gzip = 0.1,
                  .answer_s = 1e-5,
                  .travel_s = 2e-3,
                  .per_file = 5000,
                  .seed = 1};
  MILL_TRY(parse(argc, argv, &set));
  if (set.help) {
    print_help(stdout);
    goto done;
  }
  MILL_TRY(set.costs ? read_costs(set.costs, &set) : draw_costs(&set));
  scale_costs(&set);
  printf("%.4g stars/s and %d slots a rank, speeds within %g %%, %g %% of the files compressed, "
         "answers after %g ms\n\n",
         set.rate, set.n_slot, 100.0 * set.spread, 100.0 * set.gzip, 1e3 * set.travel_s);
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
  MILL_TRY(mill_bench_flush());
done:
  mill_free(set.cost);
  return err;
}
