/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/library/library_build.h"

#include <float.h>

#include "jobs/scripts/script.h"

static const char *const medium_words[] = {"air", "vacuum", NULL};
static const char *const normalise_words[] = {"none", "median", "smooth-median", NULL};

#define TEXT(name_, shown, says)                                                                   \
  {                                                                                                \
    name_, MILL_OPTION_TEXT, .argument = shown, .help = says                                       \
  }
#define PAIR(name_, says)                                                                          \
  {                                                                                                \
    name_, MILL_OPTION_PAIR, .offset2 = sizeof(double), .argument = "FIRST,STEP", .help = says     \
  }

const mill_option_table mill_library_build_table = {
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
        {"overwrite", MILL_OPTION_FLAG,
         .help = "start over in GRID.h5.new, which replaces GRID.h5 when it is complete; the same "
                 "command continues it"},
        {"retry-bad", MILL_OPTION_FLAG,
         .help = "read the bad models of GRID.h5 again, e.g. after their files were repaired"},
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
        PAIR("wave", "wavelengths in Angstrom (default: from the header)"),
        PAIR("log-wave", "the same, log10 of Angstrom"),
        {"medium", MILL_OPTION_CHOICE, .words = medium_words,
         .help = "medium of the wavelengths, air or vacuum; needed unless a header gives it"},
        TEXT("keep", "NAME=MIN:MAX,...", "only models with labels in these ranges, ends included"),
        {"exclude", MILL_OPTION_OTHER, .argument = "NAME=MIN:MAX,...",
         .help = "drop models inside all of these ranges; a ; begins other ranges"},
        TEXT("list", "FILE",
             "only models named in this text file, one per line (file name without .fits, or "
             "\"row 7\")"),
        TEXT("exclude-list", "FILE", "drop models named in this text file"),
        {"native-sigma", MILL_OPTION_REAL, .max = 1e4, .argument = "A",
         .help = "resolution of the input as a Gaussian sigma in Angstrom; 0: negligible (default: "
                 "card FWHM)"},
        {"native-resolving-power", MILL_OPTION_REAL, .min = MILL_ABOVE_0, .max = DBL_MAX,
         .argument = "R", .help = "the same, as wavelength over FWHM"},
        {"normalise", MILL_OPTION_CHOICE, .words = normalise_words,
         .help = "divide each arm of a model by its median, its smooth median or nothing (default "
                 "smooth-median)"},
        TEXT("stop-file", "FILE",
             "stop in good order, with exit status 75, when this file appears"),
        {"workers", MILL_OPTION_COUNT, .min = 1, .max = 4096,
         .help = "processes that share the models (default: one for each core available)"},
        MILL_SCRIPT_HELP,
        {0}}};
