/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/library/library_spectra.h"

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
static const char *const medium_auto_words[] = {"auto", "vacuum", "air", NULL};
static const char *const hull_words[] = {"all", "dense", NULL};

const mill_option_table mill_library_spectra_table = {
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

const mill_option_table mill_library_error_table = {
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

const mill_option_table mill_library_correct_table = {
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

const mill_script mill_library_spectra = {{&mill_library_spectra_table, NULL},
                                          "library.spectra",
                                          "one file of spectra, a folder, or several files of one "
                                          "spectrum each",
                                          1,
                                          INT_MAX},
                  mill_library_correct = {{&mill_library_correct_table, NULL},
                                          "library.correct",
                                          "one library",
                                          1,
                                          1},
                  mill_library_error = {{&mill_library_error_table, NULL},
                                        "library.model_error",
                                        "one library",
                                        1,
                                        1};
