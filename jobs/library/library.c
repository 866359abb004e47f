/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/library/library.h"

#include <stdio.h>
#include <string.h>

#include "jobs/library/library_scripts.h"
#include "jobs/library/library_train.h"
#include "jobs/library/train_options.h"
#include "jobs/options/job_steps.h"
#include "kernels/base/error.h"
#include "src/config/text.h"
#include "src/ranks/mpi_context.h"
#include "src/system/stop_signal.h"

static const mill_option_table head_table = {
    "starmill library",
    "usage: starmill library build|import|spectra|train|correct|model-error|info [options] "
    "FILE...\n"
    "\n"
    "Make and inspect template libraries.\n",
    NULL, (const mill_option[]){{0}}};

static const mill_option_help head = {&head_table, NULL};
static const mill_script script_train = {
    {&mill_library_train_table, NULL}, "starmill.templates.train", "one grid file", 1, 1};

const mill_option_help *const mill_library_help[] = {&head,
                                                     &mill_library_build.help,
                                                     &mill_library_import.help,
                                                     &mill_library_spectra.help,
                                                     &script_train.help,
                                                     &mill_library_correct.help,
                                                     &mill_library_error.help,
                                                     &mill_library_info.help,
                                                     NULL};

static const struct {
  const char *name;
  const mill_script *script;
} sub_commands[] = {{"build", &mill_library_build},     {"train", &script_train},
                    {"import", &mill_library_import},   {"spectra", &mill_library_spectra},
                    {"correct", &mill_library_correct}, {"model-error", &mill_library_error},
                    {"info", &mill_library_info}};

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
