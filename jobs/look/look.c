#include "jobs/look/look.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/result/result_table.h"
#include "jobs/options/job_steps.h"
#include "jobs/options/option_table.h"
#include "kernels/base/error.h"
#include "src/system/file_roles.h"
#include "src/system/shipped_file.h"

typedef struct look_job {
  int help, overwrite, no_spectra;
  const char *output, *models, *library;
} look_job;

#define AT(member) MILL_AT(look_job, member)
#define MODELS_ROWS                                                                                \
  {"models", MILL_OPTION_TEXT, AT(models), .argument = "MODELS.h5",                                \
   .help = "best-fit models (default: those that the fit wrote, where they are; else the stars "   \
           "are fitted once more)"},                                                               \
  {                                                                                                \
    "library", MILL_OPTION_TEXT, AT(library),                                                      \
        .argument = "LIB.h5", .help = "for that: the library, where it is no longer at its path"   \
  }
#define END                                                                                        \
  "\n"                                                                                             \
  "Drawn by Python, with numpy, h5py, astropy and matplotlib: by the interpreter that the\n"       \
  "environment variable STARMILL_PYTHON names, else by python3.\n"                                 \
  "Exit status: 0 done, 2 usage, or Python or a package is missing, 3 the spectra cannot be\n"     \
  "read, 4 OUT.h5 cannot be read or the picture or page not be written.\n"

static const mill_option_table plot_table = {
    "starmill plot",
    "usage: starmill plot OUT.h5 STAR... [--output FILE.png|FILE.pdf]\n"
    "\n"
    "Draw stars of a result: spectrum, best-fit model, residuals in units of the error, bad\n"
    "pixels, a panel for each arm and three for lines, parameters and flags.  STAR is a\n"
    "TARGETID, else an IDENTIFIER or OBJECT of /catalog.\n"
    "\n",
    END,
    (const mill_option[]){
        {"output", MILL_OPTION_TEXT, AT(output), .argument = "FILE",
         .help = "the picture, PNG or PDF by its name's end (default: STAR.png); a PDF has a page "
                 "for each row, a PNG takes one"},
        {"overwrite", MILL_OPTION_FLAG, AT(overwrite), .help = "replace it when it is there"},
        MODELS_ROWS,
        MILL_OPTION_HELP(look_job),
        {0}}};

const mill_option_help mill_plot_help = {&plot_table, NULL};

static const mill_option_table report_table = {
    "starmill report",
    "usage: starmill report OUT.h5 [--output PAGE.html]\n"
    "\n"
    "Make one HTML page of a result, which needs no network and no other file: what was run\n"
    "and how fast, failures and warnings, distributions and maps, repeated stars, and the\n"
    "worst and some typical stars with their spectra.\n"
    "\n",
    END,
    (const mill_option[]){
        {"output", MILL_OPTION_TEXT, AT(output), .argument = "PAGE.html",
         .help = "the page (default: OUT.h5.html)"},
        {"overwrite", MILL_OPTION_FLAG, AT(overwrite), .help = "replace it when it is there"},
        {"no-spectra", MILL_OPTION_FLAG, AT(no_spectra),
         .help = "draw no stars: inputs and models are not read"},
        MODELS_ROWS,
        MILL_OPTION_HELP(look_job),
        {0}}};

const mill_option_help mill_report_help = {&report_table, NULL};

/* The process becomes the script, which begins with its own path, then the program's. */
static int become_script(const char *name, int n_argument, const char *const *argument)
{
  int err = MILL_OK, n = 0;
  char script[PATH_MAX], program[PATH_MAX];
  char **argv = NULL;
  mill_shipped_file(name, script, sizeof script);
  if (!script[0])
    MILL_FAIL(MILL_ERR_USAGE,
              "the script %s did not come with this program: there is no share/starmill/%s beside "
              "its bin",
              name, name);
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  program[length > 0 ? length : 0] = '\0';
  const char *python = getenv("STARMILL_PYTHON");
  if (!python || !python[0])
    python = "python3";
  MILL_TRY(MILL_ALLOC(n_argument + 5, &argv));
  argv[n++] = (char *)python;
  argv[n++] = (char *)"-B"; /* nothing is written beside the scripts */
  argv[n++] = script;
  argv[n++] = program;
  for (int i = 0; i < n_argument; i++)
    argv[n++] = (char *)argument[i];
  execvp(python, argv);
  MILL_FAIL(MILL_ERR_USAGE,
            "Python cannot be started as %s: %s; install python3, or name it by the environment "
            "variable STARMILL_PYTHON",
            python, strerror(errno));
done:
  mill_free(argv);
  return err;
}

/* OUT.h5 is the first of what is no option. */
static int parse(const mill_option_table *table, int argc, char **argv, look_job *job, int *first)
{
  mill_file_roles roles = {0};
  MILL_CHECK(mill_option_parse(table, argc, argv, job, NULL, first));
  if (mill_option_helped(job->help, 0, table, NULL))
    return MILL_OK;
  if (*first == argc)
    return MILL_ERROR(MILL_ERR_USAGE, "name a result; see %s --help", table->command);
  MILL_CHECK(mill_file_roles_write(&roles, "--output", job->output));
  MILL_CHECK(mill_file_roles_read(&roles, "the result", argv[*first]));
  MILL_CHECK(mill_file_roles_read(&roles, "--models", job->models));
  return mill_file_roles_read(&roles, "--library", job->library);
}

static const char *text(const char *option)
{
  return option ? option : "";
}

static int plot(int argc, char **argv, look_job *job)
{
  int err = MILL_OK, first = 0;
  mill_result_table result = {0};
  int64_t *row = NULL, n = 0;
  char(*number)[24] = NULL;
  const char **argument = NULL;
  MILL_TRY(parse(&plot_table, argc, argv, job, &first));
  if (job->help)
    goto done;
  if (argc - first < 2)
    MILL_FAIL(MILL_ERR_USAGE, "name one or more stars of %s; see starmill plot --help",
              argv[first]);
  MILL_TRY(mill_result_table_open(argv[first], MILL_ERR_OUTPUT, &result));
  MILL_TRY(mill_result_table_find(&result, argc - first - 1, argv + first + 1, &row, &n));
  MILL_TRY(MILL_ALLOC(n, &number));
  MILL_TRY(MILL_ALLOC(n + 6, &argument));
  const char *fixed[] = {argv[first],       text(job->output),  job->overwrite ? "1" : "",
                         text(job->models), text(job->library), argv[first + 1]};
  memcpy(argument, fixed, sizeof fixed);
  for (int64_t i = 0; i < n; i++) {
    snprintf(number[i], sizeof number[i], "%" PRId64, row[i]);
    argument[6 + i] = number[i];
  }
  mill_result_table_close(&result);
  MILL_TRY(become_script("look/plot.py", (int)n + 6, argument));
done:
  mill_result_table_close(&result);
  MILL_FREE(row, number, argument);
  return err;
}

static int report(int argc, char **argv, look_job *job)
{
  int err = MILL_OK, first = 0;
  mill_result_table result = {0};
  MILL_TRY(parse(&report_table, argc, argv, job, &first));
  if (job->help)
    goto done;
  if (argc - first != 1)
    MILL_FAIL(MILL_ERR_USAGE, "name one result, not %d; see starmill report --help", argc - first);
  MILL_TRY(mill_result_table_open(argv[first], MILL_ERR_OUTPUT, &result));
  mill_result_table_close(&result);
  const char *argument[] = {argv[first],       text(job->output),  job->overwrite ? "1" : "",
                            text(job->models), text(job->library), job->no_spectra ? "1" : ""};
  MILL_TRY(become_script("look/report.py", 6, argument));
done:
  mill_result_table_close(&result);
  return err;
}

static int run(int (*look)(int, char **, look_job *), int argc, char **argv)
{
  look_job job = {0};
  return mill_job_end(argv[0], look(argc, argv, &job));
}

int mill_job_plot(int argc, char **argv)
{
  return run(plot, argc, argv);
}

int mill_job_report(int argc, char **argv)
{
  return run(report, argc, argv);
}
