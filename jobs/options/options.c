/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/options/options.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "io/catalog/catalog_list.h"
#include "io/stars/input_names.h"
#include "jobs/jobs.h"
#include "src/config/arms.h"

/* ---- the table ---- */

#define FLAG(member)        MILL_OPTION_FLAG, MILL_AT(mill_fit_options, member)
#define TEXT(member)        MILL_OPTION_TEXT, MILL_AT(mill_fit_options, member)
#define KEY(member, of_key) TEXT(member), .key = of_key
#define FLAG_KEY(member)    FLAG(member), .key = #member

static const mill_option rows[] = {
    {.name = "files"},
    {"library", MILL_OPTION_OTHER, .take = mill_fit_take_library, .argument = "FILE",
     .help = "template library (default: template_lib of the configuration, else the shipped "
             "libraries); if repeated, each star is fitted with the library that suits it"},
    {"output", TEXT(output), .help = "result file (HDF5)"},
    {"catalog", TEXT(catalog),
     .help = "text file with one input path per line, read after those of the command line"},
    {"pattern", MILL_FIT_TEXTS(pattern), .argument = "GLOB",
     .help = "inputs by a pattern of their paths with * ? and [...], quoted from the shell; "
             "may be repeated. {n} stands for each number of --numbers, {n:8} for the number "
             "filled with zeros to 8 digits, {n/100} for the number divided by 100, rounded down"},
    {"numbers", TEXT(numbers), .argument = "N,N-M",
     .help = "the values of {n} in --pattern: tiles, healpix pixels or exposures"},
    {"numbers-file", TEXT(numbers_file),
     .help = "text file with the values of {n} in --pattern, one or more per line"},
    {"input-table", TEXT(input_table),
     .help = "table kept across runs; a finished result adds a line for each input file: done, or "
             "why the file failed"},
    {"skip-done", FLAG(skip_done),
     .help = "skip inputs that the input table lists as done, with the same settings and "
             "unchanged since"},
    {"config", TEXT(config), .may_differ = 1, .once = 1,
     .help = "YAML configuration; the command line overrides it"},
    {"print-config", FLAG(print_config), .help = "print the effective configuration and stop"},
    {"models", TEXT(models), .help = "also write best-fit models (HDF5)"},
    {"overwrite", FLAG(overwrite),
     .help = "start over; an old result is replaced once the new result is finished and has a "
             "fitted row. A script that restarts itself would refit finished results"},
    {"retry-failed", FLAG(retry_failed), .help = "refit rows that failed in an earlier run"},
    {.name = "selection"},
    MILL_FIT_OBJECT_ROWS,
    {"minsn", KEY(min_sn, "minsn")},
    {"minsn-from", KEY(min_sn_from, "minsn_from")},
    {"objtype", KEY(objtype, "objtypes"), .argument = "A,B"},
    {"target-class", KEY(target_class, "target_classes"), .argument = "A,B"},
    {"redrock", FLAG_KEY(redrock)},
    {"select-by", KEY(select_by, "select_by")},
    {"minexpid", KEY(min_exp_id, "minexpid")},
    {"maxexpid", KEY(max_exp_id, "maxexpid")},
    {"exposures", KEY(exposures, "exposures")},
    {"join-by-name", FLAG_KEY(join_by_name)},
    {"join-radius", KEY(join_radius, "join_radius")},
    {"epochs", KEY(epochs, "epochs")},
    {.name = "spectra"},
    {"arms", MILL_OPTION_NAMES, .offset = offsetof(mill_fit_options, arm), .size = MILL_MAX_NAME,
     .max = MILL_MAX_ARM, .offset2 = offsetof(mill_fit_options, n_arm), .argument = "A,B",
     .help = "only these arms, with their settings from the key arms"},
    {"format", KEY(format, "format")},
    {"lsf", KEY(lsf, "lsf")},
    {"resolving-power", KEY(resolving_power, "resolving_power")},
    {"lsf-width-error", KEY(lsf_width_error, "lsf_width_error")},
    {"medium", KEY(medium, "medium")},
    {.name = "fit"},
    {"npoly", KEY(npoly, "npoly")},
    {"optimizer", KEY(optimizer, "optimizer")},
    {"precision", KEY(precision, "precision")},
    {"start", KEY(start, "start")},
    {"prior-table", KEY(prior_table, "prior_table")},
    {.name = "running"},
    MILL_FIT_RUNNING_ROWS("OUT.h5"),
    MILL_OPTION_HELP(mill_fit_options),
    {.name = "planning"},
    {"plan", FLAG(plan),
     .help = "print the plan (files, rows, work per rank, time, sizes of files) and write nothing"},
    {"ranks", TEXT(ranks), .argument = "N",
     .help = "number of ranks of the planned run (default: as many as now)"},
    {"rate", TEXT(rate), .argument = "R",
     .help = "stars per second of one rank, as measured by starmill bench"},
    {0}};

static const mill_option_table table = {
    "starmill fit",
    "usage: starmill fit [--library LIB.h5] --output OUT.h5 [options] INPUT.fits...\n"
    "\n"
    "Fit stellar spectra (DESI, SDSS, LAMOST, WEAVE, 4MOST, PFS or a plain table) and write one\n"
    "table of radial velocities and stellar parameters.  Run it under mpirun or srun for more\n"
    "ranks.  Repeat the same command to continue an interrupted run.\n"
    "\n",
    "\n"
    "starmill help config lists all keys of the configuration.\n"
    "SIGTERM, SIGINT and SIGUSR1 finish the stars under way, write them and stop; a second one\n"
    "stops at once.\n"
    "Exit status: 0: done; 2: usage, configuration or library; 3: done, but some input was\n"
    "unreadable or no row fitted; 4: output or disk; 70: internal error; 75: stopped in good\n"
    "order.\n",
    rows};

const mill_option_help mill_fit_help = {&table, NULL};

/* ---- parsing ---- */

int mill_fit_take_text(const mill_option *row, const char *text, void *base)
{
  char ***list = (char ***)(void *)((char *)base + row->offset), **grown = NULL;
  size_t *n = (size_t *)(void *)((char *)base + row->offset2);
  MILL_CHECK(mill_alloc_bytes(*n + 1, sizeof *grown, (void **)&grown));
  if (*n > 0)
    memcpy(grown, *list, *n * sizeof *grown);
  grown[(*n)++] = (char *)(uintptr_t)text; /* points into argv; never written to */
  mill_free(*list);
  *list = grown;
  return MILL_OK;
}

int mill_fit_take_library(const mill_option *row, const char *text, void *base)
{
  mill_fit_options *options = (mill_fit_options *)(void *)((char *)base + row->offset);
  if (options->n_library == MILL_MAX_LIBRARY)
    return MILL_ERROR(MILL_ERR_USAGE, "--library is given more than %d times", MILL_MAX_LIBRARY);
  options->library[options->n_library++] = text;
  return MILL_OK;
}

int mill_fit_options_parse(int argc, char **argv, mill_fit_options *options)
{
  int first = 0;
  const char *text[MILL_OPTION_MAX];
  memset(options, 0, sizeof *options);
  MILL_CHECK(mill_option_parse(&table, argc, argv, options, text, &first));
  options->input = argv + first;
  options->n_input = argc - first;
  if (options->skip_done && !options->input_table)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "--skip-done needs --input-table, which lists the inputs that are done");
  if (options->skip_done && options->overwrite)
    return MILL_ERROR(MILL_ERR_USAGE, "--skip-done and --overwrite exclude each other: the new "
                                      "result would lack the skipped stars");
  if ((options->numbers || options->numbers_file) && options->n_pattern == 0)
    return MILL_ERROR(MILL_ERR_USAGE, "--%s needs --pattern",
                      options->numbers ? "numbers" : "numbers-file");
  return MILL_OK;
}

void mill_fit_options_clear(mill_fit_options *options)
{
  if (!options)
    return;
  MILL_FREE(options->pattern, options->object);
  memset(options, 0, sizeof *options);
}

void mill_fit_options_inputs(const mill_fit_options *options, mill_input_request *request)
{
  *request = (mill_input_request){.input = options->input,
                                  .n_input = options->n_input,
                                  .catalog = options->catalog,
                                  .pattern = options->pattern,
                                  .n_pattern = options->n_pattern,
                                  .numbers = options->numbers,
                                  .numbers_file = options->numbers_file,
                                  .input_table = options->input_table,
                                  .output = options->output,
                                  .skip_done = options->skip_done,
                                  .want_models = options->models != NULL};
}

/* ---- into the configuration ---- */

/* Replace the configuration's list of stars by the stars of --object and --object-file. */
static int apply_objects(const mill_fit_options *options, mill_selection *select)
{
  MILL_AT_END(mill_star_list_free_at) mill_star_list *list = NULL;
  if (options->n_object == 0 && !options->object_file)
    return MILL_OK;
  MILL_CHECK(MILL_ALLOC(1, &list));
  for (size_t i = 0; i < options->n_object; i++)
    MILL_CHECK(mill_star_list_add(list, "--object", options->object[i]));
  if (options->object_file)
    MILL_CHECK(mill_star_list_read(options->object_file, list));
  mill_star_list_sort(list);
  mill_star_list_free(select->star);
  return MILL_GIVE(&list, &select->star);
}

/* Replace the configuration's libraries by those of --library. */
static int apply_libraries(const mill_fit_options *options, mill_config *config)
{
  for (int i = 0; i < options->n_library; i++) {
    const mill_option row = {
        .name = "library", .kind = MILL_OPTION_PATH, .size = sizeof config->template_lib[i]};
    MILL_CHECK(mill_option_read(&row, row.name, options->library[i], config->template_lib[i]));
    config->n_template_lib = i + 1;
  }
  return MILL_OK;
}

int mill_fit_options_apply(const mill_fit_options *options, mill_config *config)
{
  MILL_CHECK(apply_libraries(options, config));
  for (const mill_option *row = rows; row->name; row++) {
    const char *at = (const char *)options + row->offset, *text = NULL;
    int flag = 0;
    if (!row->key)
      continue;
    if (row->kind == MILL_OPTION_FLAG)
      memcpy(&flag, at, sizeof flag);
    else
      memcpy(&text, at, sizeof text);
    if (flag || text)
      MILL_CHECK(mill_config_set(config, row->key, row->name, flag ? "true" : text));
  }
  if (options->n_arm > 0)
    mill_config_name_arms(config, options->arm, options->n_arm);
  return apply_objects(options, &config->select);
}

/* ---- the running of a fit ---- */

/* Read "H:MM:SS" or "D-HH:MM:SS"; returns 1 if the whole text has one of these forms. */
static int read_clock(const char *text, double *seconds)
{
  int day = 0, hour = 0, minute = 0, second = 0, n = -1;
  if (strspn(text, "0123456789-:") != strlen(text))
    return 0;
  if (sscanf(text, "%4d-%4d:%2d:%2d%n", &day, &hour, &minute, &second, &n) != 4) {
    day = 0;
    n = -1;
    if (sscanf(text, "%6d:%2d:%2d%n", &hour, &minute, &second, &n) != 3)
      return 0;
  }
  if (n < 0 || text[n] != '\0' || day < 0 || hour < 0 || minute < 0 || minute > 59 || second < 0 ||
      second > 59)
    return 0;
  *seconds = 86400.0 * day + 3600.0 * hour + 60.0 * minute + second;
  return 1;
}

/* Read a number with an optional letter of its unit; returns 1 if the whole text has this form. */
static int read_amount(const char *text, double *seconds)
{
  static const struct {
    const char *letter;
    double s;
  } unit[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
  char *end = NULL;
  if (strspn(text, "0123456789.") == 0 || strpbrk(text, "xXpPeE"))
    return 0;
  const double value = strtod(text, &end);
  for (size_t i = 0; i < sizeof unit / sizeof unit[0]; i++)
    if (end != text && strcmp(end, unit[i].letter) == 0) {
      *seconds = value * unit[i].s;
      return 1;
    }
  return 0;
}

int mill_option_duration(const char *option, const char *text, double *seconds)
{
  const double most = 10 * 366 * 86400.0;
  double s = 0;
  if ((!read_clock(text, &s) && !read_amount(text, &s)) || !(s > 0 && s <= most))
    return MILL_ERROR(MILL_ERR_USAGE,
                      "--%s takes a time such as 3600 (seconds), 90s, 45m, 7.5h, 2d, 7:30:00 or "
                      "1-12:00:00, not '%.80s'",
                      option, text);
  *seconds = s;
  return MILL_OK;
}

/* Set *seconds to the time left until the end of the Slurm job. */
static int left_of_job(double *seconds)
{
  const char *text = getenv("SLURM_JOB_END_TIME");
  if (!text)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "--time-limit auto needs SLURM_JOB_END_TIME, which is not set: this is not a "
                      "Slurm job, or Slurm is too old; give a time");
  char *end = NULL;
  const long long end_s = strtoll(text, &end, 10);
  if (end == text || *end != '\0' || end_s <= 0)
    return MILL_ERROR(
        MILL_ERR_USAGE,
        "--time-limit auto: SLURM_JOB_END_TIME '%.40s' is not a Unix time; give a time", text);
  /* If the job's end has passed, one second makes the fit stop before its first star. */
  *seconds = fmax(difftime((time_t)end_s, time(NULL)), 1);
  return MILL_OK;
}

int mill_fit_options_running(const mill_fit_options *options, mill_running *running)
{
  static const mill_option ranks = {"ranks", MILL_OPTION_COUNT, MILL_AT(mill_running, n_rank),
                                    .min = 1, .max = 1 << 24};
  static const mill_option rate = {"rate", MILL_OPTION_REAL, MILL_AT(mill_running, rate),
                                   .min = MILL_ABOVE_0, .max = DBL_MAX};
  *running = (mill_running){.stop_file = options->stop_file};
  if (!options->plan && (options->ranks || options->rate))
    return MILL_ERROR(MILL_ERR_USAGE, "--%s needs --plan", options->ranks ? "ranks" : "rate");
  if (options->time_limit && strcmp(options->time_limit, "auto") == 0)
    MILL_CHECK(left_of_job(&running->time_limit_s));
  else if (options->time_limit)
    MILL_CHECK(mill_option_duration("time-limit", options->time_limit, &running->time_limit_s));
  if (options->ranks)
    MILL_CHECK(mill_option_read(&ranks, ranks.name, options->ranks, running));
  if (options->rate)
    MILL_CHECK(mill_option_read(&rate, rate.name, options->rate, running));
  return MILL_OK;
}
