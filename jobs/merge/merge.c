/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/merge/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/result/result_merge.h"
#include "jobs/options/job_steps.h"
#include "jobs/options/option_table.h"
#include "kernels/base/error.h"
#include "src/run/command_text.h"
#include "src/ranks/mpi_context.h"

typedef struct merge_options {
  int help, overwrite, primary, quiet, n_part;
  const char *output;
  char **part; /* [n_part] of argv */
} merge_options;

static const mill_option_table table = {
    "starmill merge",
    "usage: starmill merge --output ALL.h5 PART.h5...\n"
    "\n"
    "Join the finished results of a survey's parts, e.g. of a job array, into one result with the\n"
    "rows of a single run over all inputs in the order of the parts.  All parts must have the\n"
    "same settings, library and kind of device.  Best-fit models (--models) stay with their "
    "parts.\n"
    "\n",
    "\n"
    "Exit status: 0 done, 2 usage, or the parts are unfinished or do not belong together,\n"
    "4 a part cannot be read or the output cannot be written.\n",
    (const mill_option[]){
        {"output", MILL_OPTION_TEXT, MILL_AT(merge_options, output),
         .help = "the joined result (HDF5)"},
        {"overwrite", MILL_OPTION_FLAG, MILL_AT(merge_options, overwrite),
         .help = "replace an existing output"},
        {"primary", MILL_OPTION_FLAG, MILL_AT(merge_options, primary),
         .help = "add /catalog/PRIMARY: 1 in one row of each star, the best one"},
        {"quiet", MILL_OPTION_FLAG, MILL_AT(merge_options, quiet), .help = "print no summary"},
        MILL_OPTION_HELP(merge_options),
        {0}}};

const mill_option_help mill_merge_help = {&table, NULL};

static int parse(int argc, char **argv, merge_options *options)
{
  int first = 0;
  MILL_CHECK(mill_option_parse(&table, argc, argv, options, NULL, &first));
  if (options->help)
    return MILL_OK;
  if (!options->output)
    return MILL_ERROR(MILL_ERR_USAGE, "no output: give --output ALL.h5; see starmill merge --help");
  options->n_part = argc - first;
  options->part = argv + first;
  if (options->n_part < 1)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "no parts: name the results to be joined; see starmill merge --help");
  return MILL_OK;
}

static int run(const mill_mpi *mpi, int argc, char **argv)
{
  int err = MILL_OK;
  char *command = NULL;
  int64_t n_row = 0;
  merge_options options;
  memset(&options, 0, sizeof options);
  MILL_TRY(parse(argc, argv, &options));
  if (mill_option_helped(options.help, mpi->rank, &table, NULL))
    goto done;
  if (mpi->size > 1)
    MILL_FAIL(MILL_ERR_USAGE, "merge runs on one rank, without mpirun or srun -n");
  MILL_TRY(mill_command_text(argc, argv, &command));
  MILL_TRY(mill_result_merge(options.output, options.overwrite, options.primary, command,
                             options.n_part, (const char *const *)options.part, &n_row));
  if (!options.quiet)
    printf("parts        %d\nrows         %lld\nresult       %s\n", options.n_part,
           (long long)n_row, options.output);
  MILL_TRY(mill_job_flush("the summary"));
done:
  free(command);
  return err;
}

int mill_job_merge(int argc, char **argv)
{
  return mill_mpi_job("starmill merge", run, argc, argv);
}
