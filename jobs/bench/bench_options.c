#include "jobs/bench/bench_options.h"

#include <limits.h>
#include <string.h>

#include "jobs/options/option_value.h"
#include "kernels/base/error.h"

#define N_ELEMENT(array) (sizeof(array) / sizeof((array)[0]))

enum option_id {
  OPT_HELP = MILL_OPTION_FIRST,
  OPT_LIBRARY,
  OPT_CONFIG,
  OPT_CATALOG,
  OPT_OPTIMIZER,
  OPT_BACKEND,
  OPT_THREADS,
  OPT_READERS,
  OPT_SLOTS,
  OPT_STARS,
  OPT_REPEAT,
  OPT_OUTPUT,
  OPT_JSON,
  OPT_MOST,
  OPT_LIMIT,
  OPT_KEEP,
  OPT_END
};

enum { DEFAULT_REPEAT = 3, MAX_REPEAT = 1000, DEFAULT_MOST = 65536, DEFAULT_LIMIT_S = 60 };

static const struct option long_option[] = {{"help", no_argument, NULL, OPT_HELP},
                                            {"library", required_argument, NULL, OPT_LIBRARY},
                                            {"config", required_argument, NULL, OPT_CONFIG},
                                            {"catalog", required_argument, NULL, OPT_CATALOG},
                                            {"optimizer", required_argument, NULL, OPT_OPTIMIZER},
                                            {"backend", required_argument, NULL, OPT_BACKEND},
                                            {"threads", required_argument, NULL, OPT_THREADS},
                                            {"readers", required_argument, NULL, OPT_READERS},
                                            {"slots", required_argument, NULL, OPT_SLOTS},
                                            {"stars", required_argument, NULL, OPT_STARS},
                                            {"repeat", required_argument, NULL, OPT_REPEAT},
                                            {"output", required_argument, NULL, OPT_OUTPUT},
                                            {"json", required_argument, NULL, OPT_JSON},
                                            {"most", required_argument, NULL, OPT_MOST},
                                            {"limit", required_argument, NULL, OPT_LIMIT},
                                            {"keep", no_argument, NULL, OPT_KEEP},
                                            {NULL, 0, NULL, 0}};

static const struct {
  const char *name;
  int task;
} task_of[] = {
    {"fit", MILL_BENCH_FIT},     {"rates", MILL_BENCH_RATES},  {"crossover", MILL_BENCH_CROSSOVER},
    {"slots", MILL_BENCH_SLOTS}, {"read", MILL_BENCH_READING}, {"host", MILL_BENCH_HOST}};

enum {
  FIT = 1 << MILL_BENCH_FIT,
  RATES = 1 << MILL_BENCH_RATES,
  CROSSOVER = 1 << MILL_BENCH_CROSSOVER,
  SLOTS = 1 << MILL_BENCH_SLOTS,
  READING = 1 << MILL_BENCH_READING,
  HOST = 1 << MILL_BENCH_HOST
};

/* The tasks that an option means something to. */
static const int takers[OPT_END - OPT_HELP] = {
    [OPT_LIBRARY - OPT_HELP] = FIT | RATES | CROSSOVER | SLOTS | READING | HOST,
    [OPT_CONFIG - OPT_HELP] = FIT | CROSSOVER | SLOTS | READING | HOST,
    [OPT_CATALOG - OPT_HELP] = FIT | RATES | CROSSOVER | SLOTS | READING | HOST,
    [OPT_OPTIMIZER - OPT_HELP] = FIT | CROSSOVER | SLOTS,
    [OPT_BACKEND - OPT_HELP] = FIT | SLOTS,
    [OPT_THREADS - OPT_HELP] = FIT | CROSSOVER | SLOTS | HOST,
    [OPT_READERS - OPT_HELP] = FIT | READING | HOST,
    [OPT_SLOTS - OPT_HELP] = FIT | CROSSOVER | SLOTS | HOST,
    [OPT_STARS - OPT_HELP] = FIT | SLOTS | READING | HOST,
    [OPT_REPEAT - OPT_HELP] = FIT | CROSSOVER | READING | HOST,
    [OPT_OUTPUT - OPT_HELP] = FIT | HOST,
    [OPT_JSON - OPT_HELP] = FIT | RATES | CROSSOVER | SLOTS,
    [OPT_MOST - OPT_HELP] = CROSSOVER,
    [OPT_LIMIT - OPT_HELP] = CROSSOVER | SLOTS,
    [OPT_KEEP - OPT_HELP] = CROSSOVER,
};

void mill_bench_options_print_help(FILE *out)
{
  fprintf(
      out,
      "usage: starmill bench fit --library LIB.h5 [options] INPUT.fits...\n"
      "       starmill bench rates [--library LIB.h5] [--json FILE] [INPUT.fits...]\n"
      "       starmill bench crossover --library LIB.h5 [options] INPUT.fits...\n"
      "       starmill bench slots --library LIB.h5 [options] INPUT.fits...\n"
      "       starmill bench read --library LIB.h5 [options] INPUT.fits...\n"
      "       starmill bench host --library LIB.h5 [options] INPUT.fits...\n"
      "       starmill bench schedule [--help]\n"
      "\n"
      "Measure on one rank.  'fit' fits the inputs as `starmill fit` does, with the result in\n"
      "a temporary file, and prints the rate, the time of a star by stage, the evaluations by\n"
      "stage, and the ratio to the time that the least work takes on this machine.  'rates'\n"
      "measures only what the machine can do: matrix products, copies, reading the inputs\n"
      "from the page cache.  docs/performance.md says how to read the table.  'crossover'\n"
      "repeats the first 256 stars of the inputs in memory and fits batches of 1, 4, 16, ...\n"
      "of them on the CPU and on the GPU: from where on the GPU is faster.  'slots' fits them\n"
      "with more and more slots on one backend.  'read' reads the inputs with 1, 2, 4, ...\n"
      "threads and fits nothing.  'host' runs `starmill fit` with a device that is done at once:\n"
      "what the host can bring to a GPU, and where its time goes.  'schedule' has options of its\n"
      "own: how evenly the ranks of a run would be busy.\n"
      "\n"
      "  --library FILE         template library (or template_lib of the configuration)\n"
      "  --config FILE          YAML configuration\n"
      "  --catalog FILE         text file with one input path per line\n"
      "  --optimizer NAME       hybrid, nelder-mead or levenberg-marquardt; fit: or all\n"
      "                         (default: that of the configuration)\n"
      "  --backend NAME         fit, slots: auto, cpu or cuda\n"
      "  --threads N            threads; 0: the cores that the process may use\n"
      "  --readers N            threads that read spectra, at most 16; 0: the default (read,\n"
      "                         host: the number of cores)\n"
      "  --slots N              stars at once; 0: the default\n"
      "  --stars N              fit, read, host: the first N rows only (default: all); slots: so\n"
      "                         many each time (default: eight times the slots)\n"
      "  --repeat N             fit: runs of each optimizer, taken in turns; the table is that\n"
      "                         of the run with the median CPU time; crossover, read,\n"
      "                         host: the shortest of so many counts (default %d)\n"
      "  --output DIR           fit, host: folder for the temporary result (default: $TMPDIR, or\n"
      "                         /tmp)\n"
      "  --json FILE            write everything that was measured there too\n"
      "  --most N               crossover: the largest batch (default %d)\n"
      "  --limit S              crossover, slots: begin nothing that would take longer\n"
      "                         (default %d s)\n"
      "  --keep                 crossover: keep it for --backend auto\n"
      "  --help                 this text\n"
      "\n"
      "Exit status: 0 done, 2 usage, configuration or library, 3 some input was unreadable,\n"
      "4 output or disk, 70 internal error, 75 stopped by a signal.\n",
      DEFAULT_REPEAT, DEFAULT_MOST, DEFAULT_LIMIT_S);
}

static int set_optimizer(const char *text, mill_bench_options *options)
{
  static const char *const name[] = {"levenberg-marquardt", "hybrid", "nelder-mead"};
  int err = MILL_OK;
  options->n_optimizer = 0;
  for (int i = 0; i < MILL_BENCH_N_OPTIMIZER; i++)
    if (strcmp(text, "all") == 0 || strcmp(text, name[i]) == 0)
      options->optimizer[options->n_optimizer++] = name[i];
  if (options->n_optimizer == 0)
    MILL_FAIL(MILL_ERR_USAGE,
              "--optimizer takes hybrid, nelder-mead, levenberg-marquardt or all, not '%s'", text);
done:
  return err;
}

static int set_task(const char *text, mill_bench_options *options)
{
  int err = MILL_OK;
  for (size_t i = 0; i < N_ELEMENT(task_of); i++)
    if (strcmp(text, task_of[i].name) == 0) {
      options->task = task_of[i].task;
      goto done;
    }
  MILL_FAIL(MILL_ERR_USAGE,
            "bench measures 'fit', 'rates', 'crossover', 'slots', 'read', 'host' or 'schedule', "
            "not '%s'; see "
            "starmill bench --help",
            text);
done:
  return err;
}

/* An option that would do nothing is a mistake. */
static int check_takers(const char *task, const unsigned char *is_given,
                        const mill_bench_options *options)
{
  int err = MILL_OK;
  for (const struct option *o = long_option; o->name; o++)
    if (is_given[o->val - OPT_HELP] && !(takers[o->val - OPT_HELP] >> options->task & 1))
      MILL_FAIL(MILL_ERR_USAGE, "--%s is not for '%s'; see starmill bench --help", o->name, task);
  if (options->task != MILL_BENCH_FIT && options->n_optimizer > 1)
    MILL_FAIL(MILL_ERR_USAGE, "--optimizer all is not for '%s': name one", task);
done:
  return err;
}

static int parse_value(int id, mill_bench_options *options)
{
  int err = MILL_OK;
  long long n = 0;
  switch (id) {
  case OPT_LIBRARY:
    options->fit.library = optarg;
    break;
  case OPT_CONFIG:
    options->fit.config = optarg;
    break;
  case OPT_CATALOG:
    options->fit.catalog = optarg;
    break;
  case OPT_BACKEND:
    options->fit.backend = optarg;
    break;
  case OPT_THREADS:
    options->fit.threads = optarg;
    break;
  case OPT_READERS:
    options->fit.readers = optarg;
    break;
  case OPT_SLOTS:
    options->fit.slots = optarg;
    break;
  case OPT_OUTPUT:
    options->output = optarg;
    break;
  case OPT_JSON:
    options->json = optarg;
    break;
  case OPT_OPTIMIZER:
    MILL_TRY(set_optimizer(optarg, options));
    break;
  case OPT_STARS:
    MILL_TRY(mill_option_integer("stars", optarg, 1, LLONG_MAX, &n));
    options->n_star = n;
    break;
  case OPT_REPEAT:
    MILL_TRY(mill_option_count("repeat", optarg, 1, MAX_REPEAT, &options->n_repeat));
    break;
  case OPT_MOST:
    MILL_TRY(mill_option_integer("most", optarg, 1, INT_MAX, &n));
    options->n_most = n;
    break;
  case OPT_LIMIT:
    MILL_TRY(mill_option_integer("limit", optarg, 1, 1000000, &n));
    options->limit_s = (double)n;
    break;
  case OPT_KEEP:
    options->keep = 1;
    break;
  default:
    MILL_FAIL(MILL_ERR_INTERNAL, "option %d of bench is not handled", id);
  }
done:
  return err;
}

int mill_bench_options_parse(int argc, char **argv, mill_bench_options *options)
{
  int err = MILL_OK, help = 0;
  unsigned char is_given[OPT_END - OPT_HELP] = {0};
  memset(options, 0, sizeof *options);
  options->n_repeat = DEFAULT_REPEAT;
  options->n_most = DEFAULT_MOST;
  options->limit_s = DEFAULT_LIMIT_S;
  options->fit.quiet = 1;
  mill_option_begin();
  for (int id;;) {
    MILL_TRY(mill_option_next(argc, argv, long_option, "starmill bench", &id));
    if (id == -1)
      break;
    is_given[id - OPT_HELP] = 1;
    if (id == OPT_HELP)
      help = 1;
    else
      MILL_TRY(parse_value(id, options));
  }
  if (help) {
    options->task = MILL_BENCH_HELP;
    goto done;
  }
  if (optind == argc)
    MILL_FAIL(MILL_ERR_USAGE,
              "bench measures 'fit', 'rates', 'crossover', 'slots', 'read', 'host' or "
              "'schedule'; see starmill bench "
              "--help");
  MILL_TRY(set_task(argv[optind], options));
  MILL_TRY(check_takers(argv[optind], is_given, options));
  options->fit.input = argv + optind + 1;
  options->fit.n_input = argc - optind - 1;
  if (options->task != MILL_BENCH_RATES && options->fit.n_input == 0 && !options->fit.catalog)
    MILL_FAIL(MILL_ERR_USAGE, "no input: name FITS files or give --catalog FILE");
done:
  return err;
}
