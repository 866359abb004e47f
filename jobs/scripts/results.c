/* SPDX-License-Identifier: BSD-3-Clause */
#include <limits.h>

#include "jobs/scripts/script.h"

static const char *const to_words[] = {"rvtab", "rvmod", "fits", "epochs", NULL};

static const mill_option_table export_table = {
    "starmill export",
    "usage: starmill export [--to KIND] --output FOLDER|FILE [options] OUT.h5\n"
    "\n"
    "Write a finished result as FITS.  rvtab and rvmod are rvspecfit's files, one per input, in\n"
    "a folder; fits is one table of all columns, epochs one of all exposures of a fit with\n"
    "epochs.  Damaged rows are left out.\n"
    "\n",
    MILL_SCRIPT_PYTHON(
        "numpy, h5py and astropy") "Repeat the same command to continue an interrupted export.\n"
                                   "Exit status: 0 done, 2 usage, or OUT.h5 is not finished, 3 "
                                   "products or rows are missing, as\n"
                                   "inputs are gone, changed or were unreadable, or rows are "
                                   "damaged, 4 OUT.h5 cannot be read or\n"
                                   "the output cannot be written, 70 internal error, 75 stopped in "
                                   "good order.\n",
    (const mill_option[]){
        {"to", MILL_OPTION_CHOICE, .words = to_words, .argument = "KIND",
         .help = "what to write (default rvtab)"},
        {"output", MILL_OPTION_TEXT,
         .help = "folder of rvtab and rvmod files, made if needed; else the file"},
        {"models", MILL_OPTION_TEXT, .help = "models file of the result, for rvmod"},
        {"prefix", MILL_OPTION_TEXT, .argument = "TEXT",
         .help = "prefix of an input's name (default rvtab- or rvmod-; rvspecfit uses rvtab_ and "
                 "rvmod_)"},
        {"subdirs", MILL_OPTION_FLAG,
         .help = "keep the last two folders of each input's path below the output folder, as "
                 "rvspecfit does"},
        {"no-fibermap", MILL_OPTION_FLAG,
         .help = "write rvtab and rvmod without the inputs' tables; the inputs may then be gone"},
        {"calibrated", MILL_OPTION_FLAG,
         .help = "errors of values by the factors and floors of starmill merge --calibrate"},
        {"workers", MILL_OPTION_COUNT, .min = 1, .max = 1024,
         .help = "processes that share the inputs (default: the cores that it may run on)"},
        {"overwrite", MILL_OPTION_FLAG, .help = "replace exports that exist"},
        {"quiet", MILL_OPTION_FLAG, .help = "print no summary"},
        MILL_SCRIPT_HELP,
        {0}}};

static const mill_option_table merge_table = {
    "starmill merge",
    "usage: starmill merge --output ALL.h5 PART.h5...\n"
    "\n"
    "Join the finished results of a survey's parts, e.g. of a job array, into one result with the\n"
    "rows of a single run over all inputs in the order of the parts.  All parts must have the\n"
    "same settings, library and kind of device.  Best-fit models (--models) stay with their "
    "parts.\n"
    "\n",
    MILL_SCRIPT_PYTHON("numpy and h5py") "Exit status: 0 done, 2 usage, or the parts are "
                                         "unfinished or do not belong together,\n"
                                         "4 a part cannot be read or the output cannot be written, "
                                         "75 stopped, nothing was written.\n",
    (const mill_option[]){{"output", MILL_OPTION_TEXT, .help = "the joined result (HDF5)"},
                          {"overwrite", MILL_OPTION_FLAG, .help = "replace an existing output"},
                          {"primary", MILL_OPTION_FLAG,
                           .help = "add /catalog/PRIMARY: 1 in one row of each star, the best one"},
                          {"calibrate", MILL_OPTION_FLAG,
                           .help = "add to /fits the factor and the floor of each error by which "
                                   "repeats of stars differ as their errors say (needs scipy)"},
                          {"quiet", MILL_OPTION_FLAG, .help = "print no summary"},
                          MILL_SCRIPT_HELP,
                          {0}}};

static const mill_option_table status_table = {
    "starmill status",
    "usage: starmill status OUT.h5 [--status FILE] [--ranks] [--json]\n"
    "\n"
    "Show the progress of the fit that writes OUT.h5, from its status file, or from the result\n"
    "file if the run is over or has no status file.  Nothing is changed.\n"
    "\n",
    MILL_SCRIPT_PYTHON("numpy and h5py") "Exit status: 0 finished, 10 running, 11 nothing there, "
                                         "12 the last run ended with an\n"
                                         "error, 75 rows are left and the same command continues, "
                                         "2 usage, 4 OUT.h5 or the status\n"
                                         "file cannot be read.\n",
    (const mill_option[]){
        {"status", MILL_OPTION_TEXT, .argument = "FILE",
         .help = "status file (default: OUT.h5.status.json)"},
        {"ranks", MILL_OPTION_FLAG, .help = "print a line per rank even if there are many"},
        {"json", MILL_OPTION_FLAG,
         .help = "JSON instead of text: state, counts, and under \"run\" the "
                 "contents of the status file (docs/use/formats.md)"},
        MILL_SCRIPT_HELP,
        {0}}};

const mill_script
    mill_export = {{&export_table, NULL}, "starmill.products.export", "one result", 1, 1},
    mill_merge = {{&merge_table, NULL},
                  "starmill.products.merge",
                  "one or more results",
                  1,
                  INT_MAX},
    mill_status = {{&status_table, NULL}, "starmill.products.status", "one result", 1, 1};
