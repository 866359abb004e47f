/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/library/library_scripts.h"

#include <float.h>
#include <limits.h>

#include "kernels/base/common.h"

#define TEXT(name_, shown, says)                                                                   \
  {                                                                                                \
    name_, MILL_OPTION_TEXT, .argument = shown, .help = says                                       \
  }
#define PAIR(name_, shown, says)                                                                   \
  {                                                                                                \
    name_, MILL_OPTION_PAIR, .offset2 = sizeof(double), .argument = shown, .help = says            \
  }
#define FLAG(name_, says)                                                                          \
  {                                                                                                \
    name_, MILL_OPTION_FLAG, .help = says                                                          \
  }
#define COUNT(name_, least, most, says)                                                            \
  {                                                                                                \
    name_, MILL_OPTION_COUNT, .min = least, .max = most, .help = says                              \
  }
#define REAL(name_, least, most, shown, says)                                                      \
  {                                                                                                \
    name_, MILL_OPTION_REAL, .min = least, .max = most, .argument = shown, .help = says            \
  }
#define OUTPUT_ROWS                                                                                \
  TEXT("output", "LIB.h5", "the library to write"), FLAG("overwrite", "replace LIB.h5 if it "      \
                                                                      "exists")
#define NOISE_ROW                                                                                  \
  REAL("spectra-sn", 1, DBL_MAX, NULL,                                                             \
       "S/N of a pixel of the spectra, to separate noise from model error (default: no noise)")
#define PYTHON MILL_SCRIPT_PYTHON("numpy, scipy, h5py and astropy")

static const char *const medium_words[] = {"air", "vacuum", NULL};
static const char *const normalise_words[] = {"none", "median", "smooth-median", NULL};
static const char *const medium_auto_words[] = {"auto", "vacuum", "air", NULL};
static const char *const hull_words[] = {"all", "dense", NULL};

static const mill_option_table build_table = {
    "starmill library build",
    "usage: starmill library build --output GRID.h5 --setup FILE.yaml [options] "
    "FOLDER|LIST|FILE.fits...\n"
    "\n"
    "build makes a grid file from spectra with labels: FITS files with one spectrum each (folders\n"
    "with their subfolders, text files with a path a line, or names), or one file with an image "
    "of\n"
    "spectra and a table, or a cube whose axes are labels (docs/use/libraries.md).  The same "
    "command\n"
    "continues what was interrupted.\n"
    "\n",
    MILL_SCRIPT_PYTHON("numpy, scipy, h5py, astropy and yaml"),
    (const mill_option[]){
        TEXT("output", "GRID.h5", "the grid file to write, or to continue"),
        FLAG("overwrite",
             "start over in GRID.h5.new, which replaces GRID.h5 when it is complete; the same "
             "command continues it"),
        FLAG("retry-bad",
             "read the bad models of GRID.h5 again, e.g. after their files were repaired"),
        TEXT("setup", "FILE.yaml",
             "wavelengths, pixels and resolution of the arms (config/templates has those of "
             "surveys)"),
        TEXT("labels", "NAME=COLUMN,...",
             "labels, and the cards, columns, or axes of a cube (CTYPE or CNAME) that hold them "
             "(default teff=TEFF,logg=LOGG,feh=FEH; PHOENIX: "
             "teff=PHXTEFF,logg=PHXLOGG,feh=PHXM_H,alpha=PHXALPHA)"),
        TEXT("name-pattern", "PATTERN",
             "labels from the files' names: t{teff}g{logg}z{feh}.fits; * is anything, {logg/10} a "
             "number ten times the label, p and m are signs"),
        TEXT("table", "FILE", "table with the labels of files with one spectrum"),
        TEXT("name-column", "NAME",
             "column of the table with the files' names, with or without .fits (default FILE)"),
        TEXT("columns", "WAVE,FLUX[,CONTINUUM]",
             "columns of files with one spectrum in a table (default: an image)"),
        TEXT("wave-file", "FILE", "image with the wavelengths of all spectra, Angstrom"),
        PAIR("wave", "FIRST,STEP", "wavelengths in Angstrom (default: from the header)"),
        PAIR("log-wave", "FIRST,STEP", "the same, log10 of Angstrom"),
        {"medium", MILL_OPTION_CHOICE, .words = medium_words,
         .help = "medium of the wavelengths, air or vacuum; needed unless a header gives it"},
        TEXT("keep", "NAME=MIN:MAX,...", "only models with labels in these ranges, ends included"),
        {"exclude", MILL_OPTION_OTHER, .argument = "NAME=MIN:MAX,...",
         .help = "drop models inside all of these ranges; a ; begins other ranges"},
        TEXT("list", "FILE",
             "only models named in this text file, one per line (file name without .fits, or "
             "\"row 7\")"),
        TEXT("exclude-list", "FILE", "drop models named in this text file"),
        REAL("native-sigma", 0, 1e4, "A",
             "resolution of the input as a Gaussian sigma in Angstrom; 0: negligible (default: "
             "card FWHM)"),
        REAL("native-resolving-power", MILL_ABOVE_0, DBL_MAX, "R",
             "the same, as wavelength over FWHM"),
        {"normalise", MILL_OPTION_CHOICE, .words = normalise_words,
         .help = "divide each arm of a model by its median, its smooth median or nothing (default "
                 "smooth-median)"},
        TEXT("stop-file", "FILE",
             "stop in good order, with exit status 75, when this file appears"),
        COUNT("workers", 1, 4096,
              "processes that share the models (default: one for each core available)"),
        MILL_SCRIPT_HELP,
        {0}}};

static const mill_option_table import_table = {
    "starmill library import",
    "usage: starmill library import --output LIB.h5 [options] EMULATOR.h5...\n"
    "\n"
    "import makes a library from emulators trained elsewhere, one file per arm (layout:\n"
    "docs/use/formats.md), and checks them against the reference values in the files.\n"
    "\n",
    MILL_SCRIPT_PYTHON("numpy, scipy and h5py"),
    (const mill_option[]){
        OUTPUT_ROWS,
        TEXT("template-sigma", "A|A,A,A",
             "Gaussian sigma of the templates in Angstrom, removed from the spectra's "
             "resolution matrix; one for all arms, or one per file"),
        FLAG("at-instrument-resolution",
             "the templates have the instrument's own resolution (default: sigma 0.5 when the "
             "revision ends in rm or resolmat, else the instrument's resolution)"),
        {"arm-names", MILL_OPTION_NAMES, .size = MILL_MAX_NAME, .max = MILL_MAX_ARM,
         .offset2 = MILL_MAX_ARM * MILL_MAX_NAME, .argument = "b,r,z",
         .help = "names of the arms, in the order of the files (default: the end of each file's "
                 "setup, after its last _)"},
        COUNT("guess-templates", 1, 10000, "templates of the initial guess (default 50)"),
        MILL_SCRIPT_HELP,
        {0}}};

static const mill_option_table spectra_table = {
    "starmill library spectra",
    "usage: starmill library spectra --output LIB.h5 [options] FILE.fits|FOLDER|LIST|FILE.fits...\n"
    "\n"
    "spectra makes a library from labelled spectra: a FITS file with an image of spectra and a\n"
    "table of labels, a cube whose axes are labels, or a folder of files with one spectrum each\n"
    "(docs/use/libraries.md).\n"
    "\n",
    PYTHON,
    (const mill_option[]){
        OUTPUT_ROWS,
        TEXT("labels", "NAME=COLUMN,...",
             "labels of the library, and the columns of the table, cards of files with one "
             "spectrum, or axes of a cube (CTYPE or CNAME) that hold them (default "
             "teff=TEFF,logg=LOGG,feh=FEH)"),
        TEXT("table", "FILE",
             "table with the labels of files with one spectrum (default: their cards)"),
        TEXT("name-column", "NAME",
             "column of the table with the files' names, with or without .fits (default FILE)"),
        TEXT("columns", "WAVE,FLUX",
             "columns of files with one spectrum in a table (default: an image)"),
        TEXT("wave-file", "FILE", "image with the wavelengths of all spectra, Angstrom"),
        TEXT("keep", "NAME=MIN:MAX,...", "drop spectra with labels outside these ranges"),
        {"medium", MILL_OPTION_CHOICE, .words = medium_words,
         .help =
             "medium of the file's wavelengths, air or vacuum; needed unless its header gives it"},
        PAIR("wave", "FIRST,STEP", "wavelengths in Angstrom (default: from the header)"),
        PAIR("log-wave", "FIRST,STEP", "the same, log10 of Angstrom"),
        PAIR("range", "MIN,MAX",
             "range of the library in vacuum wavelengths, Angstrom (default: all)"),
        TEXT("arm", "NAME", "name of its arm (default opt)"),
        REAL("fwhm", MILL_ABOVE_0, DBL_MAX, "A",
             "resolution of the spectra in Angstrom (default: FWHM of the header)"),
        REAL("sigma", MILL_ABOVE_0, DBL_MAX, "A", "the same, as the sigma of a Gaussian"),
        REAL("resolving-power", MILL_ABOVE_0, DBL_MAX, NULL, "the same, as wavelength over FWHM"),
        FLAG("at-instrument-resolution",
             "the spectra have the resolution of the instrument whose stars will be fitted"),
        TEXT("continuum", "N|keep", "degree of the polynomials removed from ln flux (default 8)"),
        COUNT("components", 1, MILL_MAX_WIDTH, "principal components (default 40)"),
        COUNT("degree", 1, 3, "degree of the polynomial added to the radial functions (default 2)"),
        REAL("smoothing", MILL_ABOVE_0, DBL_MAX, NULL,
             "smoothing of all components (default: of each by leave-one-out)"),
        TEXT("lengths", "NAME=X,...",
             "length scale along each label, in its standard deviations (default 1)"),
        FLAG("keep-outliers", "keep spectra unlike those with similar labels, at full weight"),
        FLAG("align", "measure the velocities of the spectra and remove them"),
        {"hull", MILL_OPTION_CHOICE, .words = hull_words,
         .help = "hulls of the labels: around all spectra, or without isolated ones (default: all "
                 "with --keep-outliers, else dense)"},
        COUNT("guess-templates", 1, 10000, "most templates of the initial guess (default 300)"),
        REAL("left-out", 0, 0.5, "PART",
             "fraction of the spectra to leave out of a second library that measures this one "
             "(default 0.1); 0: no report"),
        {"seed", MILL_OPTION_SEED, .argument = "N",
         .help = "seed of the choice of spectra to leave out (default 1)"},
        COUNT("model-error", 0, MILL_MAX_COMPONENT,
              "measure the model error on the spectra left out, with N components, for use by fits "
              "(default: no)"),
        NOISE_ROW,
        COUNT("threads", 1, 4096,
              "threads; their number changes the last digits (default: all cores available to this "
              "process)"),
        MILL_SCRIPT_HELP,
        {0}}};

/* Of spectra with known labels that a library is compared with. */
#define LABELLED_ROWS                                                                              \
  TEXT("spectra", "FILE.fits",                                                                     \
       "an image of spectra and a table of their labels, as library spectra reads them"),          \
      TEXT("columns", "TEFF,LOGG,...",                                                             \
           "columns of the labels, in the library's order (default: the library's own)"),          \
      {"medium", MILL_OPTION_CHOICE, .words = medium_auto_words,                                   \
       .help = "medium of the wavelengths; auto (default) follows the header"},                    \
      COUNT("continuum", 4, MILL_MAX_CONT,                                                         \
            "continuum functions per spectrum in an arm, as in the fits (default 10)"),            \
      NOISE_ROW,                                                                                   \
      REAL(                                                                                        \
          "spectra-sigma", 0, DBL_MAX, "A",                                                        \
          "resolution of the spectra, Gaussian sigma in Angstrom (default: their card FWHM, else " \
          "that of the templates)")

static const mill_option_table error_table = {
    "starmill library model-error",
    "usage: starmill library model-error --spectra FILE.fits --output LIB.h5 [options] LIBRARY.h5\n"
    "\n"
    "model-error measures the error of a library's templates from rest-frame spectra with known\n"
    "labels, at the templates' resolution or lower, and writes the library with this error.\n"
    "\n",
    PYTHON,
    (const mill_option[]){
        OUTPUT_ROWS,
        LABELLED_ROWS,
        TEXT("arms", "b,r",
             "arms to measure (default: those at least half covered by the spectra); the others "
             "keep their model error"),
        COUNT("components", 0, MILL_MAX_COMPONENT, "principal components per arm (default 8)"),
        MILL_SCRIPT_HELP,
        {0}}};

static const mill_option_table correct_table = {
    "starmill library correct",
    "usage: starmill library correct --spectra FILE.fits --output LIB.h5 [options] LIBRARY.h5\n"
    "\n"
    "correct learns from rest-frame spectra with known labels what the templates of a library get\n"
    "wrong, as smooth functions of the labels, takes it out, and measures the error of the rest.\n"
    "\n",
    PYTHON,
    (const mill_option[]){
        OUTPUT_ROWS,
        LABELLED_ROWS,
        TEXT("assumed", "alpha,...",
             "labels of the spectra that are assumed, not measured: the correction does not depend "
             "on them"),
        TEXT("range", "MIN,MAX", "wavelengths to correct, A in vacuum (default: of the spectra)"),
        TEXT("mask", "MIN:MAX,...", "wavelengths not to correct, A in vacuum"),
        COUNT("degree", 0, 3,
              "of the polynomials, 0 for the same change at all labels (default: 1 to 3, chosen by "
              "spectra left out)"),
        TEXT(
            "label-errors", "X,...",
            "errors of the spectra's labels, in the library's order and units, beside which the "
            "labels of fits scatter no more than these say (default: the library's typical errors, "
            "of which that is not asked)"),
        COUNT("components", 0, MILL_MAX_COMPONENT,
              "principal components of the model error "
              "(default 4)"),
        MILL_SCRIPT_HELP,
        {0}}};

static const mill_option_table info_table = {"starmill library info",
                                             "usage: starmill library info LIB.h5|GRID.h5\n"
                                             "\n"
                                             "info describes a library or a grid file.\n"
                                             "\n",
                                             MILL_SCRIPT_PYTHON("numpy and h5py"),
                                             (const mill_option[]){MILL_SCRIPT_HELP, {0}}};

const mill_script
    mill_library_build = {{&build_table, NULL},
                          "starmill.templates.build",
                          "spectra: a folder, files of one spectrum each, or one file of many",
                          0,
                          INT_MAX},
    mill_library_import = {{&import_table, NULL},
                           "starmill.templates.emulator_files",
                           "emulator files, one per arm",
                           1,
                           MILL_MAX_ARM},
    mill_library_spectra = {{&spectra_table, NULL},
                            "starmill.templates.spectra",
                            "one file of spectra, a folder, or several files of one spectrum each",
                            1,
                            INT_MAX},
    mill_library_correct = {{&correct_table, NULL},
                            "starmill.templates.correct",
                            "one library",
                            1,
                            1},
    mill_library_error = {{&error_table, NULL},
                          "starmill.templates.model_error",
                          "one library",
                          1,
                          1},
    mill_library_info = {
        {&info_table, NULL}, "starmill.templates.info", "one library or grid file", 1, 1};
