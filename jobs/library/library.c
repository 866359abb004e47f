/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/library/library.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "jobs/library/library_build.h"
#include "jobs/library/library_spectra.h"
#include "jobs/library/library_train.h"
#include "jobs/library/train_options.h"
#include "jobs/options/job_steps.h"
#include "jobs/options/option_table.h"
#include "jobs/scripts/script.h"
#include "kernels/base/error.h"
#include "src/config/text.h"
#include "src/ranks/mpi_context.h"
#include "src/system/stop_signal.h"

/* ---- options ------------------------------------------------------------------------------ */

static const mill_option_table import_table = {
    "starmill library import",
    "usage: starmill library import --output LIB.h5 [options] EMULATOR.h5...\n"
    "\n"
    "import makes a library from emulators trained elsewhere, one file per arm (layout:\n"
    "docs/use/formats.md), and checks them against the reference values in the files.\n"
    "\n",
    MILL_SCRIPT_PYTHON("numpy, scipy and h5py"),
    (const mill_option[]){
        MILL_SCRIPT_LIBRARY_ROWS,
        {"template-sigma", MILL_OPTION_TEXT, .argument = "A|A,A,A",
         .help = "Gaussian sigma of the templates in Angstrom, removed from the spectra's "
                 "resolution matrix; one for all arms, or one per file"},
        {"at-instrument-resolution", MILL_OPTION_FLAG,
         .help = "the templates have the instrument's own resolution (default: sigma 0.5 when the "
                 "revision ends in rm or resolmat, else the instrument's resolution)"},
        {"arm-names", MILL_OPTION_NAMES, .size = MILL_MAX_NAME, .max = MILL_MAX_ARM,
         .offset2 = MILL_MAX_ARM * MILL_MAX_NAME, .argument = "b,r,z",
         .help = "names of the arms, in the order of the files (default: the end of each file's "
                 "setup, after its last _)"},
        {"guess-templates", MILL_OPTION_COUNT, .min = 1, .max = 10000,
         .help = "templates of the initial guess (default 50)"},
        MILL_SCRIPT_HELP,
        {0}}};

static const mill_option_table head_table = {
    "starmill library",
    "usage: starmill library build|import|spectra|train|correct|model-error|info [options] "
    "FILE...\n"
    "\n"
    "Make and inspect template libraries.\n",
    NULL, (const mill_option[]){{0}}};

static const mill_option_table info_table = {"starmill library info",
                                             "usage: starmill library info LIB.h5|GRID.h5\n"
                                             "\n"
                                             "info describes a library or a grid file.\n"
                                             "\n",
                                             MILL_SCRIPT_PYTHON("numpy and h5py"),
                                             (const mill_option[]){MILL_SCRIPT_HELP, {0}}};

static const mill_script
    script_build = {{&mill_library_build_table, NULL},
                    "library.build",
                    "spectra: a folder, files of one spectrum each, or one file of many",
                    0,
                    INT_MAX},
    script_import = {{&import_table, NULL},
                     "library.emulator_files",
                     "emulator files, one per arm",
                     1,
                     MILL_MAX_ARM},
    script_train = {{&mill_library_train_table, NULL}, "library.train", "one grid file", 1, 1},
    script_info = {{&info_table, NULL}, "library.info", "one library or grid file", 1, 1};

#define HELP(table) (&(const mill_option_help){table, NULL})
const mill_option_help *const mill_library_help[] = {HELP(&head_table),
                                                     HELP(&mill_library_build_table),
                                                     HELP(&import_table),
                                                     HELP(&mill_library_spectra_table),
                                                     HELP(&mill_library_train_table),
                                                     HELP(&mill_library_correct_table),
                                                     HELP(&mill_library_error_table),
                                                     HELP(&info_table),
                                                     NULL};
#undef HELP

/* ---- sub-commands ------------------------------------------------------------------------- */

static const struct {
  const char *name;
  const mill_script *script;
} sub_commands[] = {{"build", &script_build},
                    {"train", &script_train},
                    {"import", &script_import},
                    {"spectra", &mill_library_spectra},
                    {"correct", &mill_library_correct},
                    {"model-error", &mill_library_error},
                    {"info", &script_info}};

static int unknown(const char *name)
{
  mill_near near = {0};
  for (size_t i = 0; name && i < sizeof sub_commands / sizeof *sub_commands; i++)
    mill_text_nearer(name, sub_commands[i].name, &near);
  return MILL_ERROR(
      MILL_ERR_USAGE,
      "%s%s%s%s%s; library has build, train, import, spectra, correct, model-error and info",
      name ? "unknown sub-command " : "library needs a sub-command", name ? name : "",
      near.name ? "; did you mean " : "", near.name ? near.name : "", near.name ? "?" : "");
}

int mill_job_library(int argc, char **argv)
{
  const mill_script *script = NULL;
  for (size_t i = 0; argc > 1 && i < sizeof sub_commands / sizeof *sub_commands; i++)
    if (strcmp(argv[1], sub_commands[i].name) == 0)
      script = sub_commands[i].script;
  if (!script)
    return mill_script_is_other_rank()
               ? mill_error_exit_status(MILL_ERR_USAGE)
               : mill_job_end("library", unknown(argc > 1 ? argv[1] : NULL));
  if (script == &script_train && mill_library_trains(argc - 1, argv + 1)) {
    mill_mpi mpi;
    const int err = mill_mpi_start(&mpi);
    const int status =
        err == MILL_OK ? mill_job_library_train(argc - 1, argv + 1) : mill_job_end("library", err);
    mill_mpi_end(&mpi);
    if (status != 0)
      return status;
    /* the script catches signals, which wait until it does */
    mill_stop_signal_hold();
    if (mill_stop_signal_seen())
      return mill_job_end("library train",
                          MILL_ERROR(MILL_ERR_STOPPED, "stopped in good order when the training "
                                                       "was done; give the same command again"));
  }
  return mill_script_run(script, argc - 1, argv + 1);
}
