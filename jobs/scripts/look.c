/* SPDX-License-Identifier: BSD-3-Clause */
#include <limits.h>

#include "jobs/scripts/script.h"

static const char *const print_words[] = {"targetid", "identifier", "row", NULL};

#define OVERWRITE_ROW                                                                              \
  {                                                                                                \
    "overwrite", MILL_OPTION_FLAG, .help = "replace an existing file"                              \
  }
#define MODELS_ROWS                                                                                \
  {"models", MILL_OPTION_TEXT, .argument = "MODELS.h5",                                            \
   .help = "best-fit models (default: those that the fit wrote; without them the stars are "       \
           "fitted again)"},                                                                       \
  {                                                                                                \
    "library", MILL_OPTION_TEXT,                                                                   \
        .argument = "LIB.h5",                                                                      \
        .help = "library for refitting (default: the path that the fit used)"                      \
  }
#define DRAWING MILL_SCRIPT_PYTHON("numpy, h5py, astropy, matplotlib and pillow")
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
    MILL_SCRIPT_PYTHON("numpy and h5py") RESULT_UNREADABLE ".\n",
    (const mill_option[]){MILL_SCRIPT_HELP, {0}}};

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
    MILL_SCRIPT_PYTHON("numpy and h5py") RESULT_UNREADABLE
    " or\n"
    "the list cannot be written.  It is also 0 where no row is true.\n",
    (const mill_option[]){{"output", MILL_OPTION_TEXT, .argument = "LIST.txt",
                           .help = "write the list there instead of to standard output"},
                          OVERWRITE_ROW,
                          {"print", MILL_OPTION_CHOICE, .words = print_words,
                           .help = "contents of a line: TARGETID (default), IDENTIFIER for surveys "
                                   "without TARGETIDs, or the row, counted from 0"},
                          MILL_SCRIPT_HELP,
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
    (const mill_option[]){{"output", MILL_OPTION_TEXT, .argument = "FILE",
                           .help = "the picture, PNG or PDF by its suffix (default: STAR.png); a "
                                   "PDF has one page per row, a PNG takes one row"},
                          {"corner", MILL_OPTION_FLAG,
                           .help = "of a result of starmill sample: the posterior beside the "
                                   "Gaussian of the fit, with samples if it has some (--draws)"},
                          OVERWRITE_ROW,
                          MODELS_ROWS,
                          MILL_SCRIPT_HELP,
                          {0}}};

static const mill_option_table report_table = {
    "starmill report",
    "usage: starmill report OUT.h5 [--output PAGE.html]\n"
    "\n"
    "Make one HTML page of a result, which needs no network and no other file: what was run\n"
    "and how fast, failures and warnings, distributions, densities of the Kiel diagram and of\n"
    "the sky, repeated stars, and the worst and some typical stars with their spectra.\n"
    "\n",
    MILL_SCRIPT_PYTHON("numpy, scipy, h5py, astropy, matplotlib and pillow") RESULT_UNREADABLE
    " or\n"
    "the page cannot be written, 3 the spectra cannot be read.\n",
    (const mill_option[]){
        {"output", MILL_OPTION_TEXT, .argument = "PAGE.html",
         .help = "the page (default: OUT.h5.html)"},
        OVERWRITE_ROW,
        {"no-spectra", MILL_OPTION_FLAG, .help = "draw no stars: inputs and models are not read"},
        MODELS_ROWS,
        MILL_SCRIPT_HELP,
        {0}}};

const mill_script mill_show = {{&show_table, NULL},
                               "starmill.products.show",
                               "a result and one or more stars",
                               2,
                               INT_MAX},
                  mill_select = {{&select_table, NULL},
                                 "starmill.products.selection",
                                 "a result and one expression in quotes",
                                 2,
                                 2},
                  mill_plot = {{&plot_table, NULL},
                               "starmill.products.plot",
                               "a result and one or more stars",
                               2,
                               INT_MAX},
                  mill_report = {
                      {&report_table, NULL}, "starmill.products.report", "one result", 1, 1};
