/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/scripts/results.h"

static const char *const to_words[] = {"rvtab", "rvmod", "fits", NULL};

static const mill_option_table export_table = {
    "starmill export",
    "usage: starmill export [--to KIND] --output FOLDER|FILE [options] OUT.h5\n"
    "\n"
    "Write a finished result as FITS.  rvtab and rvmod are rvspecfit's files, one per input, in\n"
    "a folder; fits is one table of all columns.  Damaged rows are left out.\n"
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
        {"workers", MILL_OPTION_COUNT, .min = 1, .max = 1024,
         .help = "processes that share the inputs (default: the cores that it may run on)"},
        {"overwrite", MILL_OPTION_FLAG, .help = "replace exports that exist"},
        {"quiet", MILL_OPTION_FLAG, .help = "print no summary"},
        MILL_SCRIPT_HELP,
        {0}}};

const mill_script mill_export = {{&export_table, NULL}, "export.export", "one result", 1, 1};
