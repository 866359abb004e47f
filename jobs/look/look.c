/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/look/look.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jobs/options/job_steps.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/shipped_file.h"

typedef struct look_job {
  int help, overwrite, no_spectra, print;
  const char *output, *models, *library;
} look_job;

static const char *const print_words[] = {"targetid", "identifier", "row", NULL};

#define AT(member) MILL_AT(look_job, member)
#define OVERWRITE_ROW                                                                              \
  {                                                                                                \
    "overwrite", MILL_OPTION_FLAG, AT(overwrite), .help = "replace an existing file"               \
  }
#define MODELS_ROWS                                                                                \
  {"models", MILL_OPTION_TEXT, AT(models), .argument = "MODELS.h5",                                \
   .help = "best-fit models (default: those that the fit wrote; without them the stars are "       \
           "fitted again)"},                                                                       \
  {                                                                                                \
    "library", MILL_OPTION_TEXT, AT(library),                                                      \
        .argument = "LIB.h5",                                                                      \
        .help = "library for refitting (default: the path that the fit used)"                      \
  }
#define PYTHON(packages)                                                                           \
  "\n"                                                                                             \
  "Runs python3, or the Python that the environment variable STARMILL_PYTHON names; it "           \
  "needs\n" packages ".\n"
#define DRAWING PYTHON("numpy, h5py, astropy, matplotlib and pillow")
#define RESULT_UNREADABLE                                                                          \
  "Exit status: 0 done, 2 usage, or Python or a package is missing, 4 OUT.h5 cannot be read"

static const mill_option_table show_table = {
    "starmill show",
    "usage: starmill show OUT.h5 STAR...\n"
    "\n"
    "Print everything that a result holds about a star: every column with its unit and meaning,\n"
    "flags in words, the covariance.  STAR is a TARGETID, else an IDENTIFIER or OBJECT of\n"
    "/catalog; all rows of the star are printed.  Works while a fit is writing OUT.h5.\n"
    "\n",
    PYTHON("numpy and h5py") RESULT_UNREADABLE ".\n",
    (const mill_option[]){MILL_OPTION_HELP(look_job), {0}}};

static const mill_option_table select_table = {
    "starmill select",
    "usage: starmill select OUT.h5 EXPRESSION [--output LIST.txt]\n"
    "\n"
    "Print the TARGETIDs of the rows of a result for which an expression is true, one a line,\n"
    "as --targetid-file reads them: starmill select OUT.h5 'SN_R > 10 and FEH < -2'\n"
    "\n"
    "Names are columns of /fits and /catalog, in Python's syntax:\n"
    "  < <= == != >= >   and or not   + - * / % **   & | ~ of bits, or of comparisons in ()\n"
    "  abs sqrt exp log log10 sin cos tan arcsin arccos arctan arctan2 floor ceil where isnan\n"
    "  isfinite\n"
    "  SUCCESS and 4500 < TEFF < 5500\n"
    "  RVS_WARN & 256            a bit of flags; an integer is true where it is not 0\n"
    "  SPECTYPE == 'STAR'        a text\n"
    "  COVAR[0] < 4              an element of a vector, from 0\n"
    "A comparison with a missing value (NaN) is false, and its negation true; != is true.\n"
    "\n",
    PYTHON("numpy and h5py") RESULT_UNREADABLE
    " or\n"
    "the list cannot be written.  It is also 0 where no row is true.\n",
    (const mill_option[]){{"output", MILL_OPTION_TEXT, AT(output), .argument = "LIST.txt",
                           .help = "write the list there instead of to standard output"},
                          OVERWRITE_ROW,
                          {"print", MILL_OPTION_CHOICE, AT(print), .words = print_words,
                           .help = "contents of a line: TARGETID (default), IDENTIFIER for surveys "
                                   "without TARGETIDs, or the row, counted from 0"},
                          MILL_OPTION_HELP(look_job),
                          {0}}};

static const mill_option_table plot_table = {
    "starmill plot",
    "usage: starmill plot OUT.h5 STAR... [--output FILE.png|FILE.pdf]\n"
    "\n"
    "Draw stars of a result: spectrum, best-fit model, residuals in units of the error, bad\n"
    "pixels, a panel for each arm and three for lines, parameters and flags.  STAR is a\n"
    "TARGETID, else an IDENTIFIER or OBJECT of /catalog.\n"
    "\n",
    DRAWING RESULT_UNREADABLE " or\n"
                              "the picture cannot be written, 3 the spectra cannot be read.\n",
    (const mill_option[]){{"output", MILL_OPTION_TEXT, AT(output), .argument = "FILE",
                           .help = "the picture, PNG or PDF by its suffix (default: STAR.png); a "
                                   "PDF has one page per row, a PNG takes one row"},
                          OVERWRITE_ROW,
                          MODELS_ROWS,
                          MILL_OPTION_HELP(look_job),
                          {0}}};

static const mill_option_table report_table = {
    "starmill report",
    "usage: starmill report OUT.h5 [--output PAGE.html]\n"
    "\n"
    "Make one HTML page of a result, which needs no network and no other file: what was run\n"
    "and how fast, failures and warnings, distributions, densities of the Kiel diagram and of\n"
    "the sky, repeated stars, and the worst and some typical stars with their spectra.\n"
    "\n",
    PYTHON("numpy, scipy, h5py, astropy, matplotlib and pillow") RESULT_UNREADABLE
    " or\n"
    "the page cannot be written, 3 the spectra cannot be read.\n",
    (const mill_option[]){{"output", MILL_OPTION_TEXT, AT(output), .argument = "PAGE.html",
                           .help = "the page (default: OUT.h5.html)"},
                          OVERWRITE_ROW,
                          {"no-spectra", MILL_OPTION_FLAG, AT(no_spectra),
                           .help = "draw no stars: inputs and models are not read"},
                          MODELS_ROWS,
                          MILL_OPTION_HELP(look_job),
                          {0}}};

const mill_option_help mill_show_help = {&show_table, NULL},
                       mill_select_help = {&select_table, NULL},
                       mill_plot_help = {&plot_table, NULL},
                       mill_report_help = {&report_table, NULL};

typedef struct look {
  const mill_option_table *table;
  const char *script, *takes;
  int n_least, n_most; /* arguments that are no options */
} look;

static const look show = {&show_table, "look/show.py", "a result and one or more stars", 2,
                          INT_MAX},
                  selection = {&select_table, "look/selection.py",
                               "a result and one expression in quotes", 2, 2},
                  plot = {&plot_table, "look/plot.py", "a result and one or more stars", 2,
                          INT_MAX},
                  report = {&report_table, "look/report.py", "one result", 1, 1};

static char *text(const char *option)
{
  return (char *)(option ? option : "");
}

/* The process becomes the script: its arguments are those of Options in look/basics.py. */
static int become_script(const look *kind, const look_job *job, int n_argument, char **argument)
{
  int err = MILL_OK, n = 0;
  char script[PATH_MAX], program[PATH_MAX];
  char **argv = NULL;
  mill_shipped_file(kind->script, script, sizeof script);
  if (!script[0])
    MILL_FAIL(
        MILL_ERR_USAGE,
        "the script %s is missing: there is no share/starmill/%s next to the program's bin folder",
        kind->script, kind->script);
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  program[length > 0 ? length : 0] = '\0';
  char *python = getenv("STARMILL_PYTHON");
  if (!python || !python[0])
    python = (char *)"python3";
  char *const first[] = {python,
                         (char *)"-B", /* nothing is written next to the scripts */
                         script,
                         program,
                         text(job->output),
                         text(job->overwrite ? "1" : NULL),
                         text(job->models),
                         text(job->library),
                         text(job->no_spectra ? "1" : NULL),
                         (char *)print_words[job->print]};
  MILL_TRY(MILL_ALLOC(sizeof first / sizeof *first + (size_t)n_argument + 1, &argv));
  for (size_t i = 0; i < sizeof first / sizeof *first; i++)
    argv[n++] = first[i];
  memcpy(argv + n, argument, (size_t)n_argument * sizeof *argv);
  execvp(python, argv);
  MILL_FAIL(MILL_ERR_USAGE,
            "cannot start Python as %s: %s; install python3, or name it in the environment "
            "variable STARMILL_PYTHON",
            python, strerror(errno));
done:
  mill_free(argv);
  return err;
}

static int start(const look *kind, int argc, char **argv)
{
  int first = 0;
  look_job job = {0};
  MILL_CHECK(mill_option_parse(kind->table, argc, argv, &job, NULL, &first));
  if (mill_option_helped(job.help, 0, kind->table, NULL))
    return MILL_OK;
  const int n = argc - first;
  if (n < kind->n_least || n > kind->n_most)
    return MILL_ERROR(MILL_ERR_USAGE, "give %s, not %d argument%s; see %s --help", kind->takes, n,
                      n == 1 ? "" : "s", kind->table->command);
  return become_script(kind, &job, n, argv + first);
}

int mill_job_show(int argc, char **argv)
{
  return mill_job_end(argv[0], start(&show, argc, argv));
}

int mill_job_select(int argc, char **argv)
{
  return mill_job_end(argv[0], start(&selection, argc, argv));
}

int mill_job_plot(int argc, char **argv)
{
  return mill_job_end(argv[0], start(&plot, argc, argv));
}

int mill_job_report(int argc, char **argv)
{
  return mill_job_end(argv[0], start(&report, argc, argv));
}
