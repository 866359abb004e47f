#include "jobs/bench/bench_options.h"

#include <limits.h>
#include <string.h>

#include "jobs/bench/bench.h"
#include "jobs/bench/bench_job.h"
#include "jobs/options/option_table.h"
#include "kernels/base/error.h"

#define N_ELEMENT(array) (sizeof(array) / sizeof((array)[0]))

enum { FIT = 1, RATES = 2, CROSSOVER = 4, SLOTS = 8, READING = 16, HOST = 32 };

static const struct {
  const char *name;
  unsigned bit;
  int (*task)(mill_bench *job);
} tasks[] = {{"fit", FIT, mill_bench_task_fit},
             {"rates", RATES, mill_bench_task_rates},
             {"crossover", CROSSOVER, mill_bench_task_crossover},
             {"slots", SLOTS, mill_bench_task_slots},
             {"read", READING, mill_bench_task_read},
             {"host", HOST, mill_bench_task_host}};

static int take_optimizer(const mill_option *row, const char *text, void *base)
{
  static const int order[] = {MILL_OPT_LM, MILL_OPT_HYBRID, MILL_OPT_NELDER_MEAD};
  const char *const *words = mill_config_key_of("optimizer")->words;
  mill_bench_options *options = base;
  options->n_optimizer = 0;
  for (int i = 0; i < MILL_BENCH_N_OPTIMIZER; i++)
    if (strcmp(text, "all") == 0 || strcmp(text, words[order[i]]) == 0)
      options->optimizer[options->n_optimizer++] = words[order[i]];
  if (options->n_optimizer == 0)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "--%s takes hybrid, nelder-mead, levenberg-marquardt or all, not '%s'",
                      row->name, text);
  return MILL_OK;
}

#define AT(member)          MILL_AT(mill_bench_options, member)
#define TEXT(member)        MILL_OPTION_TEXT, AT(member)
#define KEY(member, of_key) TEXT(fit.member), .key = of_key

/* The tasks are those that an option means something to. */
static const mill_option rows[] = {
    {"library", KEY(library, "template_lib"),
     .tasks = FIT | RATES | CROSSOVER | SLOTS | READING | HOST,
     .help = "template library (or template_lib of the configuration; default: the one that came "
             "with starmill, but none for rates)"},
    {"config", TEXT(fit.config), .tasks = FIT | CROSSOVER | SLOTS | READING | HOST,
     .help = "YAML configuration"},
    {"catalog", TEXT(fit.catalog), .tasks = FIT | RATES | CROSSOVER | SLOTS | READING | HOST,
     .help = "text file with one input path per line"},
    {"optimizer", MILL_OPTION_OTHER, .take = take_optimizer, .tasks = FIT | CROSSOVER | SLOTS,
     .argument = "NAME",
     .help = "hybrid, nelder-mead or levenberg-marquardt; fit: or all (default: that of the "
             "configuration)"},
    {"backend", KEY(backend, "backend"), .tasks = FIT | SLOTS,
     .help = "fit, slots: where they run"},
    {"threads", KEY(threads, "threads"), .tasks = FIT | CROSSOVER | SLOTS | HOST},
    {"readers", KEY(readers, "readers"), .tasks = FIT | READING | HOST,
     .help = "threads that read spectra; 0: the default (read, host: the number of cores)"},
    {"slots", KEY(slots, "slots"), .tasks = FIT | CROSSOVER | SLOTS | HOST},
    {"stars", MILL_OPTION_INTEGER, AT(n_star), .min = 1, .max = 0x1p62,
     .tasks = FIT | SLOTS | READING | HOST,
     .help = "fit, read, host: the first N rows only (default: all); slots: this number each time "
             "(default: eight times the slots)"},
    {"repeat", MILL_OPTION_COUNT, AT(n_repeat), .min = 1, .max = 1000,
     .tasks = FIT | CROSSOVER | READING | HOST,
     .help = "fit: runs of each optimizer, taken in turns; the table is that of the run with the "
             "median CPU time; crossover, read, host: runs of which the shortest counts"},
    {"output", TEXT(output), .tasks = FIT | HOST, .argument = "DIR",
     .help = "fit, host: folder for the temporary result (default: $TMPDIR, or /tmp)"},
    {"json", TEXT(json), .tasks = FIT | RATES | CROSSOVER | SLOTS,
     .help = "write everything that was measured there too"},
    {"most", MILL_OPTION_INTEGER, AT(n_most), .min = 1, .max = INT_MAX, .tasks = CROSSOVER,
     .help = "crossover: the largest batch"},
    {"limit", MILL_OPTION_REAL, AT(limit_s), .min = 1, .max = 1000000, .argument = "S",
     .tasks = CROSSOVER | SLOTS,
     .help = "crossover, slots: begin nothing that would take longer than these seconds"},
    {"keep", MILL_OPTION_FLAG, AT(keep), .tasks = CROSSOVER,
     .help = "crossover: keep it for --backend auto"},
    {"help", MILL_OPTION_FLAG, 'h', AT(fit.help), .help = "this text"},
    {0}};

static const mill_option_table table = {
    "starmill bench",
    "usage: starmill bench fit [options] INPUT.fits...\n"
    "       starmill bench rates [--library LIB.h5] [--json FILE] [INPUT.fits...]\n"
    "       starmill bench crossover [options] INPUT.fits...\n"
    "       starmill bench slots [options] INPUT.fits...\n"
    "       starmill bench read [options] INPUT.fits...\n"
    "       starmill bench host [options] INPUT.fits...\n"
    "       starmill bench train [--help]\n"
    "       starmill bench particles [--help]\n"
    "       starmill bench schedule [--help]\n"
    "\n"
    "Measure on one rank.  'fit' fits the inputs as `starmill fit` does, with the result in\n"
    "a temporary file, and prints the rate, the time of a star by stage, the evaluations by\n"
    "stage, and the ratio to the time that the least work takes on this machine.  'rates'\n"
    "measures only what the machine can do: matrix products, copies, reading the inputs\n"
    "from the page cache.  docs/develop/performance.md says how to read the table.  'crossover'\n"
    "repeats the first 256 stars of the inputs in memory and fits batches of 1, 4, 16, ...\n"
    "of them on the CPU and on the GPU: from where on the GPU is faster.  'slots' fits them\n"
    "with more and more slots on one backend.  'read' reads the inputs with 1, 2, 4, ...\n"
    "threads and fits nothing.  'host' runs `starmill fit` with a device that is done at once:\n"
    "what the host can bring to a GPU, and where its time goes.  Three have options of their\n"
    "own: 'train', how fast `starmill library train` learns on the CPU and on a GPU,\n"
    "'particles', how fast `starmill particles` is, and 'schedule', how evenly the ranks of a\n"
    "run would be busy.\n"
    "\n",
    "\n"
    "Exit status: 0 done, 2 usage, configuration or library, 3 some input was unreadable,\n"
    "4 output or disk, 70 internal error, 75 stopped by a signal.\n",
    rows};

static const mill_bench_options usual = {
    .n_repeat = 3, .n_most = 65536, .limit_s = 60, .fit = {.quiet = 1}};

const mill_option_help mill_bench_help = {&table, &usual};

/* name NULL: none is named. */
static int set_task(const char *name, mill_bench_options *options, unsigned *bit)
{
  for (size_t i = 0; i < N_ELEMENT(tasks); i++)
    if (name && strcmp(name, tasks[i].name) == 0) {
      options->task = tasks[i].task;
      *bit = tasks[i].bit;
      return MILL_OK;
    }
  return MILL_ERROR(MILL_ERR_USAGE,
                    "bench measures 'fit', 'rates', 'crossover', 'slots', 'read', 'host', 'train', "
                    "'particles' or 'schedule'%s%s%s; see starmill bench --help",
                    name ? ", not '" : "", name ? name : "", name ? "'" : "");
}

/* An option that would do nothing is a mistake. */
static int check_task(const char *name, unsigned bit, const unsigned char *is_given,
                      const mill_bench_options *options)
{
  for (size_t i = 0; rows[i].name; i++)
    if (is_given[i] && !(rows[i].tasks & bit))
      return MILL_ERROR(MILL_ERR_USAGE, "--%s is not for '%s'; see starmill bench --help",
                        rows[i].name, name);
  if (bit != FIT && options->n_optimizer > 1)
    return MILL_ERROR(MILL_ERR_USAGE, "--optimizer all is not for '%s': name one", name);
  if (bit != RATES && options->fit.n_input == 0 && !options->fit.catalog)
    return MILL_ERROR(MILL_ERR_USAGE, "no input: name FITS files or give --catalog FILE");
  return MILL_OK;
}

int mill_bench_options_parse(int argc, char **argv, mill_bench_options *options)
{
  int first = 0;
  unsigned bit = 0;
  unsigned char is_given[N_ELEMENT(rows)];
  *options = usual;
  MILL_CHECK(mill_option_parse(&table, argc, argv, options, is_given, &first));
  if (options->fit.help)
    return MILL_OK;
  MILL_CHECK(set_task(first < argc ? argv[first] : NULL, options, &bit));
  options->fit.input = argv + first + 1;
  options->fit.n_input = argc - first - 1;
  return check_task(argv[first], bit, is_given, options);
}
