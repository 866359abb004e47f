#include "jobs/simulate/simulate_options.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/options/option_value.h"
#include "kernels/base/error.h"
#include "src/system/thread.h"

enum option_id {
  OPT_HELP = MILL_OPTION_FIRST,
  OPT_PLAN,
  OPT_OVERWRITE,
  OPT_REDROCK,
  OPT_NOISELESS,
  OPT_QUIET,
  OPT_OUTPUT,
  OPT_LIBRARY,
  OPT_SOURCE,
  OPT_STARS,
  OPT_PER_FILE,
  OPT_SEED,
  OPT_SN,
  OPT_VSINI,
  OPT_VEL_SIGMA,
  OPT_DISTORTION,
  OPT_PATHOLOGICAL,
  OPT_TEMPLATES,
  OPT_THREADS
};

enum { DEFAULT_STARS = 1000, DEFAULT_PER_FILE = 500, DEFAULT_SEED = 1, MAX_TEMPLATES = 20000 };

static const struct option long_option[] = {
    {"help", no_argument, NULL, OPT_HELP},
    {"plan", no_argument, NULL, OPT_PLAN},
    {"overwrite", no_argument, NULL, OPT_OVERWRITE},
    {"redrock", no_argument, NULL, OPT_REDROCK},
    {"noiseless", no_argument, NULL, OPT_NOISELESS},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {"output", required_argument, NULL, OPT_OUTPUT},
    {"library", required_argument, NULL, OPT_LIBRARY},
    {"source", required_argument, NULL, OPT_SOURCE},
    {"stars", required_argument, NULL, OPT_STARS},
    {"per-file", required_argument, NULL, OPT_PER_FILE},
    {"seed", required_argument, NULL, OPT_SEED},
    {"sn", required_argument, NULL, OPT_SN},
    {"vsini", required_argument, NULL, OPT_VSINI},
    {"vel-sigma", required_argument, NULL, OPT_VEL_SIGMA},
    {"distortion", required_argument, NULL, OPT_DISTORTION},
    {"pathological", required_argument, NULL, OPT_PATHOLOGICAL},
    {"templates", required_argument, NULL, OPT_TEMPLATES},
    {"threads", required_argument, NULL, OPT_THREADS},
    {NULL, 0, NULL, 0}};

void mill_simulate_options_print_help(FILE *out)
{
  mill_mock_settings mock;
  mill_mock_settings_init(&mock);
  fprintf(out,
          "usage: starmill simulate --output DIR [options]\n"
          "\n"
          "Make a mock survey: coadd files in DESI's layout and a table of the truth.  Run it\n"
          "under mpirun or srun for more ranks; the ranks share the files.  The same command\n"
          "given again continues an interrupted survey, and leaves a complete one alone.\n"
          "\n"
          "files\n"
          "  --output DIR           folder of the survey; made if it is not there\n"
          "  --stars N              rows of the survey (default %d)\n"
          "  --per-file N           rows of a file (default %d)\n"
          "  --redrock              also write redrock files\n"
          "  --plan                 print the files and their size, and write nothing\n"
          "  --overwrite            begin anew and remove the survey that is there\n"
          "\n"
          "stars\n"
          "  --seed S               same seed, same bytes (default %d)\n"
          "  --source NAME          line-model (default): the built-in line model itself;\n"
          "                         emulator: the emulators of a library\n"
          "  --library LIB.h5       the library of --source emulator\n"
          "  --sn MIN,MAX           median signal-to-noise of a pixel of arm r (default %g,%g)\n"
          "  --vel-sigma S          standard deviation of the velocities, km/s (default %g)\n"
          "  --vsini MIN,MAX        v sin i, km/s, log-uniform (default: most below 10, a tail\n"
          "                         to 150)\n"
          "  --templates N          fast: only N different noise-free stars, prepared once\n"
          "                         (default 0: each star is its own)\n"
          "\n"
          "instrument\n"
          "  --distortion F         rms of the smooth calibration error (default %g)\n"
          "  --noiseless            without noise, cosmics and calibration error\n"
          "  --pathological N       so many of every 1000 rows have a defect (default %d)\n"
          "\n"
          "running\n"
          "  --threads N            threads per rank; 0: the cores that the rank may use\n"
          "  --quiet                no progress and no summary\n"
          "  --help                 this text\n"
          "\n"
          "SIGTERM, SIGINT and SIGUSR1 drop the file under way and stop.\n"
          "Exit status: 0 done, 2 usage or library, 4 output or disk, 70 internal error,\n"
          "75 stopped in good order.\n",
          DEFAULT_STARS, DEFAULT_PER_FILE, DEFAULT_SEED, mock.min_sn, mock.max_sn,
          mock.vel_sigma_km_s, mock.distortion, mock.n_pathological);
}

/* A number at the beginning of the text; *end after it, NULL when it is none within limits. */
static double take_number(const char *text, double min, double max, const char **end)
{
  char *after = NULL;
  errno = 0;
  const double v = strtod(text, &after);
  /* nan fails both comparisons */
  *end = after != text && !isspace((unsigned char)text[0]) && v >= min && v <= max ? after : NULL;
  return v;
}

static int parse_number(const char *option, const char *text, double min, double max, double *value)
{
  int err = MILL_OK;
  const char *end = NULL;
  *value = take_number(text, min, max, &end);
  if (!end || *end != '\0')
    MILL_FAIL(MILL_ERR_USAGE, "--%s takes a number from %g to %g, not '%.80s'", option, min, max,
              text);
done:
  return err;
}

/* MIN,MAX */
static int parse_range(const char *option, const char *text, double min, double max, double *low,
                       double *high)
{
  int err = MILL_OK;
  const char *end = NULL;
  *low = take_number(text, min, max, &end);
  if (end && *end == ',')
    *high = take_number(end + 1, min, max, &end);
  else
    end = NULL;
  if (!end || *end != '\0' || *low > *high)
    MILL_FAIL(MILL_ERR_USAGE,
              "--%s takes MIN,MAX, two numbers from %g to %g in ascending order, not '%.80s'",
              option, min, max, text);
done:
  return err;
}

static int parse_source(const char *text, int *source)
{
  int err = MILL_OK;
  if (strcmp(text, "line-model") == 0)
    *source = MILL_MOCK_LINE_MODEL;
  else if (strcmp(text, "emulator") == 0)
    *source = MILL_MOCK_EMULATOR;
  else
    MILL_FAIL(MILL_ERR_USAGE, "--source takes line-model or emulator, not '%.80s'", text);
done:
  return err;
}

/* What one option alone cannot tell. */
static int check(const mill_simulate_options *options)
{
  int err = MILL_OK;
  const mill_mock_settings *mock = &options->mock;
  if (options->help)
    goto done;
  if (!options->output && !options->plan)
    MILL_FAIL(MILL_ERR_USAGE, "no output: give --output DIR; see starmill simulate --help");
  if (options->output && !*options->output)
    MILL_FAIL(MILL_ERR_USAGE, "--output takes a folder, not an empty text");
  if (mock->source == MILL_MOCK_EMULATOR && !options->library)
    MILL_FAIL(MILL_ERR_USAGE, "--source emulator needs a library: give --library LIB.h5");
  if (mock->source != MILL_MOCK_EMULATOR && options->library)
    MILL_FAIL(MILL_ERR_USAGE, "--library is used with --source emulator only: add it, or leave "
                              "--library out");
  const int64_t n_file = (mock->n_star + options->per_file - 1) / options->per_file;
  if (n_file > MILL_SIMULATE_MAX_FILE)
    MILL_FAIL(MILL_ERR_USAGE,
              "--stars %lld in files of --per-file %d are %lld files, more than %d: give more rows "
              "a file",
              (long long)mock->n_star, options->per_file, (long long)n_file,
              MILL_SIMULATE_MAX_FILE);
done:
  return err;
}

static int take_option(int id, const char *text, mill_simulate_options *options)
{
  int err = MILL_OK;
  long long n = 0;
  mill_mock_settings *mock = &options->mock;
  switch (id) {
  case OPT_HELP:
    options->help = 1;
    break;
  case OPT_PLAN:
    options->plan = 1;
    break;
  case OPT_OVERWRITE:
    options->overwrite = 1;
    break;
  case OPT_REDROCK:
    options->redrock = 1;
    break;
  case OPT_NOISELESS:
    mock->noiseless = 1;
    break;
  case OPT_QUIET:
    options->quiet = 1;
    break;
  case OPT_OUTPUT:
    options->output = text;
    break;
  case OPT_LIBRARY:
    options->library = text;
    break;
  case OPT_SOURCE:
    MILL_TRY(parse_source(text, &mock->source));
    break;
  case OPT_STARS:
    MILL_TRY(mill_option_integer("stars", text, 1, 1000000000, &n));
    mock->n_star = n;
    break;
  case OPT_PER_FILE:
    MILL_TRY(mill_option_integer("per-file", text, 1, MILL_SIMULATE_MAX_PER_FILE, &n));
    options->per_file = (int)n;
    break;
  case OPT_SEED:
    MILL_TRY(mill_option_seed(text, &mock->seed));
    break;
  case OPT_SN:
    MILL_TRY(
        parse_range("sn", text, MILL_MOCK_MIN_SN, MILL_MOCK_MAX_SN, &mock->min_sn, &mock->max_sn));
    break;
  case OPT_VSINI:
    MILL_TRY(parse_range("vsini", text, MILL_MOCK_MIN_VSINI, MILL_MOCK_MAX_VSINI, &mock->min_vsini,
                         &mock->max_vsini));
    mock->has_vsini_range = 1;
    break;
  case OPT_VEL_SIGMA:
    MILL_TRY(parse_number("vel-sigma", text, 0, MILL_MOCK_VEL_CUT, &mock->vel_sigma_km_s));
    break;
  case OPT_DISTORTION:
    MILL_TRY(parse_number("distortion", text, 0, MILL_MOCK_MAX_DISTORTION, &mock->distortion));
    break;
  case OPT_PATHOLOGICAL:
    MILL_TRY(mill_option_integer("pathological", text, 0, 1000, &n));
    mock->n_pathological = (int)n;
    break;
  case OPT_TEMPLATES:
    MILL_TRY(mill_option_integer("templates", text, 0, MAX_TEMPLATES, &n));
    mock->n_template = (int)n;
    break;
  case OPT_THREADS:
    MILL_TRY(mill_option_integer("threads", text, 0, 4096, &n));
    MILL_TRY(mill_thread_check_number((int)n));
    options->n_thread = (int)n;
    break;
  default:
    MILL_FAIL(MILL_ERR_INTERNAL, "option %d has no meaning", id);
  }
done:
  return err;
}

int mill_simulate_options_parse(int argc, char **argv, mill_simulate_options *options)
{
  int err = MILL_OK;
  memset(options, 0, sizeof *options);
  mill_mock_settings_init(&options->mock);
  options->mock.seed = DEFAULT_SEED;
  options->mock.n_star = DEFAULT_STARS;
  options->per_file = DEFAULT_PER_FILE;
  mill_option_begin();
  for (int id;;) {
    MILL_TRY(mill_option_next(argc, argv, long_option, "starmill simulate", &id));
    if (id == -1)
      break;
    MILL_TRY(take_option(id, optarg, options));
  }
  if (optind < argc)
    MILL_FAIL(MILL_ERR_USAGE, "simulate takes no files, not '%.80s'; see starmill simulate --help",
              argv[optind]);
  MILL_TRY(check(options));
done:
  return err;
}
