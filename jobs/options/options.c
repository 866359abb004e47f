#include "jobs/options/options.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "io/files/catalog_list.h"
#include "jobs/options/option_value.h"
#include "kernels/base/error.h"

enum option_id {
  OPT_HELP = MILL_OPTION_FIRST,
  OPT_PRINT_CONFIG,
  OPT_OVERWRITE,
  OPT_RETRY_FAILED,
  OPT_QUIET,
  OPT_REDROCK,
  OPT_JOINT_EXPOSURES,
  OPT_JOIN_BY_NAME,
  OPT_LIBRARY,
  OPT_OUTPUT,
  OPT_CONFIG,
  OPT_CATALOG,
  OPT_MODELS,
  OPT_LOG,
  OPT_LOG_LEVEL,
  OPT_BACKEND,
  OPT_THREADS,
  OPT_READERS,
  OPT_SLOTS,
  OPT_TARGETID,
  OPT_TARGETID_FILE,
  OPT_MINSN,
  OPT_OBJTYPE,
  OPT_NPOLY,
  OPT_OPTIMIZER,
  OPT_PRECISION,
  OPT_START,
  OPT_RESOLUTION,
  OPT_FORMAT,
  OPT_EXPOSURES,
  OPT_LSF,
  OPT_RESOLVING_POWER,
  OPT_MEDIUM,
  OPT_STATUS,
  OPT_STATUS_INTERVAL,
  OPT_PLAN,
  OPT_RANKS,
  OPT_RATE,
  OPT_TIME_LIMIT,
  OPT_STOP_FILE
};

static const struct option long_option[] = {
    {"help", no_argument, NULL, OPT_HELP},
    {"print-config", no_argument, NULL, OPT_PRINT_CONFIG},
    {"overwrite", no_argument, NULL, OPT_OVERWRITE},
    {"retry-failed", no_argument, NULL, OPT_RETRY_FAILED},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {"redrock", no_argument, NULL, OPT_REDROCK},
    {"joint-exposures", no_argument, NULL, OPT_JOINT_EXPOSURES},
    {"join-by-name", no_argument, NULL, OPT_JOIN_BY_NAME},
    {"library", required_argument, NULL, OPT_LIBRARY},
    {"output", required_argument, NULL, OPT_OUTPUT},
    {"config", required_argument, NULL, OPT_CONFIG},
    {"catalog", required_argument, NULL, OPT_CATALOG},
    {"models", required_argument, NULL, OPT_MODELS},
    {"log", required_argument, NULL, OPT_LOG},
    {"log-level", required_argument, NULL, OPT_LOG_LEVEL},
    {"backend", required_argument, NULL, OPT_BACKEND},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"readers", required_argument, NULL, OPT_READERS},
    {"slots", required_argument, NULL, OPT_SLOTS},
    {"targetid", required_argument, NULL, OPT_TARGETID},
    {"targetid-file", required_argument, NULL, OPT_TARGETID_FILE},
    {"minsn", required_argument, NULL, OPT_MINSN},
    {"objtype", required_argument, NULL, OPT_OBJTYPE},
    {"npoly", required_argument, NULL, OPT_NPOLY},
    {"optimizer", required_argument, NULL, OPT_OPTIMIZER},
    {"precision", required_argument, NULL, OPT_PRECISION},
    {"start", required_argument, NULL, OPT_START},
    {"resolution-matrix", required_argument, NULL, OPT_RESOLUTION},
    {"format", required_argument, NULL, OPT_FORMAT},
    {"exposures", required_argument, NULL, OPT_EXPOSURES},
    {"lsf", required_argument, NULL, OPT_LSF},
    {"resolving-power", required_argument, NULL, OPT_RESOLVING_POWER},
    {"medium", required_argument, NULL, OPT_MEDIUM},
    {"status", required_argument, NULL, OPT_STATUS},
    {"status-interval", required_argument, NULL, OPT_STATUS_INTERVAL},
    {"plan", no_argument, NULL, OPT_PLAN},
    {"ranks", required_argument, NULL, OPT_RANKS},
    {"rate", required_argument, NULL, OPT_RATE},
    {"time-limit", required_argument, NULL, OPT_TIME_LIMIT},
    {"stop-file", required_argument, NULL, OPT_STOP_FILE},
    {NULL, 0, NULL, 0}};

void mill_fit_options_print_help(FILE *out)
{
  fputs(
      "usage: starmill fit --library LIB.h5 --output OUT.h5 [options] INPUT.fits...\n"
      "\n"
      "Fit stellar spectra (DESI, SDSS, LAMOST, WEAVE or a plain table) and write one table\n"
      "of radial velocities and stellar parameters.  Run it under mpirun or srun for more\n"
      "ranks.  The same command given again continues an interrupted run.\n"
      "\n"
      "files\n"
      "  --library FILE         template library (or template_lib of the configuration)\n"
      "  --output FILE          result file (HDF5)\n"
      "  --catalog FILE         text file with one input path per line; such inputs come\n"
      "                         after those named on the command line\n"
      "  --config FILE          YAML configuration; the command line overrides it\n"
      "  --print-config         print the effective configuration and stop\n"
      "  --models FILE          also write best-fit models (HDF5)\n"
      "  --overwrite            begin anew and replace the output that is there (leave it out of\n"
      "                         batch scripts that are requeued: they continue without it)\n"
      "  --retry-failed         fit again the rows of an earlier run that failed\n"
      "\n"
      "selection\n"
      "  --targetid ID,ID...    only these targets; may be repeated\n"
      "  --targetid-file FILE   only the targets listed, one TARGETID per line\n"
      "  --minsn X              minimum signal-to-noise of the best arm\n"
      "  --objtype A,B          OBJTYPE values to fit (default: all but SKY and BAD)\n"
      "  --redrock              only stars and slow objects of the redrock file\n"
      "  --exposures NAME       coadd, single (each exposure a row) or joint (fitted together)\n"
      "  --joint-exposures      the same as --exposures joint\n"
      "  --join-by-name         rows of one object, also of several files, become one row\n"
      "\n"
      "spectra\n"
      "  --format NAME          auto, desi, sdss, lamost, weave or generic\n"
      "  --lsf NAME             line-spread function: auto, matrix, sigma, resolving_power or off\n"
      "  --resolving-power R    wavelength over FWHM, where the file has no line-spread function\n"
      "  --medium NAME          of the wavelengths: auto (as the file says), vacuum or air\n"
      "\n"
      "fit\n"
      "  --npoly N              continuum functions per arm\n"
      "  --optimizer NAME       hybrid, nelder-mead or levenberg-marquardt\n"
      "  --precision NAME       float32 or float64 templates\n"
      "  --start TABLE          start from the values of a FITS table or a result file instead\n"
      "                         of the guess; stars are matched by TARGETID, else by name\n"
      "  --resolution-matrix X  auto, true or false; older name of some choices of --lsf\n"
      "\n"
      "running\n"
      "  --backend NAME         auto, cpu or cuda\n"
      "  --threads N            threads per rank; 0: the cores that the rank may use\n"
      "  --readers N            threads beside them that read spectra, at most 16; 0: the default\n"
      "  --slots N              stars at once per rank; 0: the default\n"
      "  --quiet                no progress and no summary\n"
      "  --log FILE             write the log there instead of to standard error\n"
      "  --log-level LEVEL      error, warning, info or debug\n"
      "  --status FILE          status file for `starmill status` (default: OUT.h5.status.json)\n"
      "  --status-interval S    seconds between two writes of it (default 5); 0: no status file\n"
      "  --time-limit T         stop in good order before T is over, counted from the start: 3600\n"
      "                         (seconds), 45m, 7.5h, 7:30:00; auto: the end of the Slurm job\n"
      "  --stop-file FILE       stop in good order when this file appears (default: OUT.h5.stop)\n"
      "  --help                 this text\n"
      "\n"
      "planning\n"
      "  --plan                 say what would be done: files, rows, work of the ranks, time,\n"
      "                         sizes of files; nothing is written\n"
      "  --ranks N              of the planned run (default: those that make the plan)\n"
      "  --rate R               stars per second of one rank, as measured by starmill bench\n"
      "\n"
      "SIGTERM, SIGINT and SIGUSR1 finish the stars under way, write them and stop; a second one\n"
      "stops at once.\n"
      "Exit status: 0 done, 2 usage, configuration or library, 3 done but some input was\n"
      "unreadable, 4 output or disk, 70 internal error, 75 stopped in good order.\n",
      out);
}

static int parse_real(const char *option, const char *text, double *value)
{
  int err = MILL_OK;
  char *end = NULL;
  const double x = strtod(text, &end);
  if (end == text || *end != '\0' || !isfinite(x))
    MILL_FAIL(MILL_ERR_USAGE, "--%s takes a number, not '%s'", option, text);
  *value = x;
done:
  return err;
}

/* Index of text among n names, which follow `list` in the message. */
static int parse_name(const char *option, const char *text, const char *const *name, int n,
                      const char *list, int *value)
{
  int err = MILL_OK;
  for (int i = 0; i < n; i++)
    if (strcmp(text, name[i]) == 0) {
      *value = i;
      goto done;
    }
  MILL_FAIL(MILL_ERR_USAGE, "--%s takes %s, not '%s'", option, list, text);
done:
  return err;
}

static int copy_text(const char *option, const char *text, char *out, size_t size)
{
  int err = MILL_OK;
  const size_t n = strlen(text);
  if (n == 0 || n >= size)
    MILL_FAIL(MILL_ERR_USAGE, "--%s takes 1 to %zu characters, not %zu ('%.60s')", option, size - 1,
              n, text);
  memcpy(out, text, n + 1);
done:
  return err;
}

static int add_target_ids(mill_fit_options *options, const char *text)
{
  int err = MILL_OK;
  int64_t *grown = NULL;
  size_t n_new = 1;
  for (const char *c = text; *c; c++)
    n_new += *c == ',';
  MILL_TRY(MILL_ALLOC(options->n_target_id + n_new, &grown));
  if (options->n_target_id > 0)
    memcpy(grown, options->target_id, options->n_target_id * sizeof *grown);
  for (const char *item = text;; item++) {
    const size_t n = strcspn(item, ",");
    char digits[32];
    long long id = 0;
    snprintf(digits, sizeof digits, "%.*s", n < sizeof digits ? (int)n : (int)sizeof digits, item);
    MILL_TRY(mill_option_integer("targetid", digits, LLONG_MIN, LLONG_MAX, &id));
    grown[options->n_target_id++] = id;
    item += n;
    if (*item == '\0')
      break;
  }
  mill_free(options->target_id);
  options->target_id = grown;
  grown = NULL;
done:
  mill_free(grown);
  return err;
}

int mill_fit_options_parse(int argc, char **argv, mill_fit_options *options)
{
  int err = MILL_OK;
  memset(options, 0, sizeof *options);
  mill_option_begin();
  for (int id;;) {
    MILL_TRY(mill_option_next(argc, argv, long_option, "starmill fit", &id));
    if (id == -1)
      break;
    switch (id) {
    case OPT_HELP:
      options->help = 1;
      break;
    case OPT_PRINT_CONFIG:
      options->print_config = 1;
      break;
    case OPT_OVERWRITE:
      options->overwrite = 1;
      break;
    case OPT_RETRY_FAILED:
      options->retry_failed = 1;
      break;
    case OPT_QUIET:
      options->quiet = 1;
      break;
    case OPT_REDROCK:
      options->redrock = 1;
      break;
    case OPT_JOIN_BY_NAME:
      options->join_by_name = 1;
      break;
    case OPT_JOINT_EXPOSURES:
      options->joint_exposures = 1;
      break;
    case OPT_LIBRARY:
      options->library = optarg;
      break;
    case OPT_OUTPUT:
      options->output = optarg;
      break;
    case OPT_CONFIG:
      options->config = optarg;
      break;
    case OPT_CATALOG:
      options->catalog = optarg;
      break;
    case OPT_MODELS:
      options->models = optarg;
      break;
    case OPT_LOG:
      options->log = optarg;
      break;
    case OPT_LOG_LEVEL:
      options->log_level = optarg;
      break;
    case OPT_BACKEND:
      options->backend = optarg;
      break;
    case OPT_THREADS:
      options->threads = optarg;
      break;
    case OPT_READERS:
      options->readers = optarg;
      break;
    case OPT_SLOTS:
      options->slots = optarg;
      break;
    case OPT_TARGETID:
      MILL_TRY(add_target_ids(options, optarg));
      break;
    case OPT_TARGETID_FILE:
      options->target_id_file = optarg;
      break;
    case OPT_MINSN:
      options->min_sn = optarg;
      break;
    case OPT_OBJTYPE:
      options->objtype = optarg;
      break;
    case OPT_NPOLY:
      options->npoly = optarg;
      break;
    case OPT_OPTIMIZER:
      options->optimizer = optarg;
      break;
    case OPT_PRECISION:
      options->precision = optarg;
      break;
    case OPT_START:
      options->start = optarg;
      break;
    case OPT_RESOLUTION:
      options->resolution = optarg;
      break;
    case OPT_FORMAT:
      options->format = optarg;
      break;
    case OPT_EXPOSURES:
      options->exposures = optarg;
      break;
    case OPT_LSF:
      options->lsf = optarg;
      break;
    case OPT_RESOLVING_POWER:
      options->resolving_power = optarg;
      break;
    case OPT_MEDIUM:
      options->medium = optarg;
      break;
    case OPT_STATUS:
      options->status = optarg;
      break;
    case OPT_STATUS_INTERVAL:
      options->status_interval = optarg;
      break;
    case OPT_PLAN:
      options->plan = 1;
      break;
    case OPT_RANKS:
      options->ranks = optarg;
      break;
    case OPT_RATE:
      options->rate = optarg;
      break;
    case OPT_TIME_LIMIT:
      options->time_limit = optarg;
      break;
    case OPT_STOP_FILE:
      options->stop_file = optarg;
      break;
    }
  }
  options->input = argv + optind;
  options->n_input = argc - optind;
done:
  return err;
}

void mill_fit_options_clear(mill_fit_options *options)
{
  if (!options)
    return;
  mill_free(options->target_id);
  memset(options, 0, sizeof *options);
}

static int compare_ids(const void *a, const void *b)
{
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* --targetid and --targetid-file together replace what the configuration lists */
static int apply_target_ids(const mill_fit_options *options, mill_selection *select)
{
  int err = MILL_OK;
  int64_t *from_file = NULL, *all = NULL;
  size_t n_file = 0;
  if (options->n_target_id == 0 && !options->target_id_file)
    goto done;
  if (options->target_id_file)
    MILL_TRY(mill_target_id_file_read(options->target_id_file, &from_file, &n_file));
  const size_t n = options->n_target_id + n_file;
  if (n == 0)
    MILL_FAIL(MILL_ERR_USAGE, "--targetid-file %s lists no target", options->target_id_file);
  MILL_TRY(MILL_ALLOC(n, &all));
  if (options->n_target_id > 0)
    memcpy(all, options->target_id, options->n_target_id * sizeof *all);
  if (n_file > 0)
    memcpy(all + options->n_target_id, from_file, n_file * sizeof *all);
  qsort(all, n, sizeof *all, compare_ids);
  mill_free(select->target_id);
  select->target_id = all;
  select->n_target_id = n;
  all = NULL;
done:
  mill_free(from_file);
  mill_free(all);
  return err;
}

static int apply_objtype(const char *text, mill_selection *select)
{
  int err = MILL_OK;
  const int max_type = (int)(sizeof select->objtype / sizeof select->objtype[0]);
  const size_t size = sizeof select->objtype[0];
  select->n_objtype = 0;
  for (const char *item = text;; item++) {
    const size_t n = strcspn(item, ",");
    if (n == 0 || n >= size)
      MILL_FAIL(MILL_ERR_USAGE, "--objtype takes names of 1 to %zu characters, not '%s'", size - 1,
                text);
    if (select->n_objtype == max_type)
      MILL_FAIL(MILL_ERR_USAGE, "--objtype takes at most %d names", max_type);
    memset(select->objtype[select->n_objtype], 0, size);
    memcpy(select->objtype[select->n_objtype++], item, n);
    item += n;
    if (*item == '\0')
      break;
  }
done:
  return err;
}

/* What is left of the Slurm job. */
static int left_of_job(double *seconds)
{
  int err = MILL_OK;
  const char *text = getenv("SLURM_JOB_END_TIME");
  long long end_s = 0;
  if (!text)
    MILL_FAIL(MILL_ERR_USAGE,
              "--time-limit auto needs SLURM_JOB_END_TIME, which is not set: this is no Slurm job, "
              "or an older Slurm; give a time");
  char *end = NULL;
  end_s = strtoll(text, &end, 10);
  if (end == text || *end != '\0' || end_s <= 0)
    MILL_FAIL(
        MILL_ERR_USAGE,
        "--time-limit auto: SLURM_JOB_END_TIME is '%.40s' and no time since 1970; give a time",
        text);
  *seconds = difftime((time_t)end_s, time(NULL));
  /* over already: stop before the first star */
  if (*seconds < 1)
    *seconds = 1;
done:
  return err;
}

int mill_fit_options_running(const mill_fit_options *options, mill_running *running)
{
  int err = MILL_OK;
  *running = (mill_running){.status_interval_s = 5.0};
  if (!options->plan && (options->ranks || options->rate))
    MILL_FAIL(MILL_ERR_USAGE, "--%s belongs to --plan", options->ranks ? "ranks" : "rate");
  if (options->status && !options->status[0])
    MILL_FAIL(MILL_ERR_USAGE, "--status takes the name of a file");
  if (options->status_interval) {
    MILL_TRY(parse_real("status-interval", options->status_interval, &running->status_interval_s));
    if (running->status_interval_s < 0 || running->status_interval_s > 86400 ||
        (running->status_interval_s > 0 && running->status_interval_s < 0.05))
      MILL_FAIL(MILL_ERR_USAGE, "--status-interval takes 0 or 0.05 to 86400 s, not %s",
                options->status_interval);
  }
  if (options->time_limit && strcmp(options->time_limit, "auto") == 0)
    MILL_TRY(left_of_job(&running->time_limit_s));
  else if (options->time_limit)
    MILL_TRY(mill_option_duration("time-limit", options->time_limit, &running->time_limit_s));
  running->stop_file = options->stop_file;
  if (options->stop_file && !options->stop_file[0])
    MILL_FAIL(MILL_ERR_USAGE, "--stop-file takes the name of a file");
  if (options->ranks)
    MILL_TRY(mill_option_count("ranks", options->ranks, 1, 1 << 24, &running->n_rank));
  if (options->rate) {
    MILL_TRY(parse_real("rate", options->rate, &running->rate));
    if (running->rate <= 0)
      MILL_FAIL(MILL_ERR_USAGE, "--rate takes stars per second, not %s", options->rate);
  }
done:
  return err;
}

int mill_fit_options_apply(const mill_fit_options *options, mill_config *config)
{
  static const char *const optimizer[] = {
      [MILL_OPT_HYBRID] = "hybrid",
      [MILL_OPT_NELDER_MEAD] = "nelder-mead",
      [MILL_OPT_LM] = "levenberg-marquardt",
  };
  static const char *const precision[] = {[MILL_FLOAT32] = "float32", [MILL_FLOAT64] = "float64"};
  static const char *const resolution[] = {
      [MILL_RES_AUTO] = "auto", [MILL_RES_MATRIX] = "true", [MILL_RES_NONE] = "false"};
  static const char *const format[] = {"auto", "desi", "sdss", "lamost", "weave", "generic"};
  static const char *const exposures[] = {[MILL_EXPOSURES_COADD] = "coadd",
                                          [MILL_EXPOSURES_SINGLE] = "single",
                                          [MILL_EXPOSURES_JOINT] = "joint"};
  static const char *const lsf[] = {[MILL_LSF_AUTO] = "auto",
                                    [MILL_LSF_MATRIX] = "matrix",
                                    [MILL_LSF_SIGMA] = "sigma",
                                    [MILL_LSF_RESOLVING_POWER] = "resolving_power",
                                    [MILL_LSF_OFF] = "off"};
  static const char *const medium[] = {
      [MILL_MEDIUM_AUTO] = "auto", [MILL_MEDIUM_VACUUM] = "vacuum", [MILL_MEDIUM_AIR] = "air"};
  static const char *const backend[] = {"auto", "cpu", "cuda"};
  static const char *const level[] = {"error", "warning", "info", "debug"};
  int err = MILL_OK;
  long long n = 0;
  int i = 0;

  if (options->library)
    MILL_TRY(
        copy_text("library", options->library, config->template_lib, sizeof config->template_lib));
  if (options->start) {
    memset(config->start, 0, sizeof config->start);
    MILL_TRY(copy_text("start", options->start, config->start, sizeof config->start));
  }
  if (options->threads) {
    MILL_TRY(mill_option_integer("threads", options->threads, 0, 4096, &n));
    config->n_thread = (int)n;
  }
  if (options->readers) {
    MILL_TRY(mill_option_integer("readers", options->readers, 0, MILL_MAX_READER, &n));
    config->n_reader = (int)n;
  }
  if (options->slots) {
    MILL_TRY(mill_option_integer("slots", options->slots, 0, 1 << 20, &n));
    config->n_slot = (int)n;
  }
  if (options->npoly) {
    MILL_TRY(mill_option_integer("npoly", options->npoly, 1, MILL_MAX_CONT, &n));
    config->fit.n_cont = (int)n;
  }
  if (options->min_sn)
    MILL_TRY(parse_real("minsn", options->min_sn, &config->select.min_sn));
  if (options->resolving_power)
    MILL_TRY(parse_real("resolving-power", options->resolving_power, &config->resolving_power));
  if (options->format) {
    MILL_TRY(parse_name("format", options->format, format, 6,
                        "auto, desi, sdss, lamost, weave or generic", &i));
    memset(config->format, 0, sizeof config->format);
    MILL_TRY(copy_text("format", format[i], config->format, sizeof config->format));
  }
  if (options->exposures)
    MILL_TRY(parse_name("exposures", options->exposures, exposures, 3, "coadd, single or joint",
                        &config->exposures));
  if (options->lsf)
    MILL_TRY(parse_name("lsf", options->lsf, lsf, 5, "auto, matrix, sigma, resolving_power or off",
                        &config->lsf));
  if (options->medium)
    MILL_TRY(
        parse_name("medium", options->medium, medium, 3, "auto, vacuum or air", &config->medium));
  if (options->optimizer)
    MILL_TRY(parse_name("optimizer", options->optimizer, optimizer, 3,
                        "hybrid, nelder-mead or levenberg-marquardt", &config->fit.optimizer));
  if (options->precision)
    MILL_TRY(parse_name("precision", options->precision, precision, 2, "float32 or float64",
                        &config->fit.precision));
  if (options->resolution)
    MILL_TRY(parse_name("resolution-matrix", options->resolution, resolution, 3,
                        "auto, true or false", &config->fit.resolution));
  if (options->backend) {
    MILL_TRY(parse_name("backend", options->backend, backend, 3, "auto, cpu or cuda", &i));
    MILL_TRY(copy_text("backend", backend[i], config->backend, sizeof config->backend));
  }
  if (options->log_level) {
    MILL_TRY(
        parse_name("log-level", options->log_level, level, 4, "error, warning, info or debug", &i));
    MILL_TRY(copy_text("log-level", level[i], config->log_level, sizeof config->log_level));
  }
  if (options->objtype)
    MILL_TRY(apply_objtype(options->objtype, &config->select));
  if (options->redrock)
    config->select.redrock = 1;
  if (options->join_by_name)
    config->join_by_name = 1;
  if (options->joint_exposures && options->exposures && config->exposures != MILL_EXPOSURES_JOINT)
    MILL_FAIL(MILL_ERR_USAGE, "--joint-exposures contradicts --exposures %s: give one of them",
              options->exposures);
  if (options->joint_exposures)
    config->exposures = MILL_EXPOSURES_JOINT;
  MILL_TRY(apply_target_ids(options, &config->select));
done:
  return err;
}
