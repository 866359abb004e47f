/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/export/export.h"

#include <stdio.h>
#include <string.h>

#include "io/export/products.h"
#include "io/hdf5/parallel_hdf5.h"
#include "jobs/options/job_steps.h"
#include "jobs/options/option_table.h"
#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "src/system/log.h"
#include "src/system/stop_signal.h"

enum { EXIT_INCOMPLETE = 3 };
enum to { TO_RVTAB, TO_RVMOD, TO_FITS };

typedef struct export_options {
  int help, to, subdirs, no_fibermap, overwrite, quiet;
  const char *output, *models, *prefix;
  const char *result; /* of argv */
} export_options;

static const char *const to_words[] = {"rvtab", "rvmod", "fits", NULL};

static const mill_option_table table = {
    "starmill export",
    "usage: starmill export [--to KIND] --output FOLDER|FILE [options] OUT.h5\n"
    "\n"
    "Write a finished result as FITS.  rvtab and rvmod are rvspecfit's files, one per input, in\n"
    "a folder; ranks of mpirun share the inputs.  fits is one table of all columns.\n"
    "\n",
    "\n"
    "Repeat the same command to continue an interrupted export.\n"
    "Exit status: 0 done, 2 usage, or OUT.h5 is not a finished result, 3 products are missing, as\n"
    "their inputs are gone, changed or were unreadable, 4 the result is damaged or the output\n"
    "cannot be written, 70 internal error, 75 stopped in good order.\n",
    (const mill_option[]){
        {"to", MILL_OPTION_CHOICE, MILL_AT(export_options, to), .words = to_words,
         .argument = "KIND", .help = "what to write"},
        {"output", MILL_OPTION_TEXT, MILL_AT(export_options, output),
         .help = "folder of rvtab and rvmod files, made if needed; else the file"},
        {"models", MILL_OPTION_TEXT, MILL_AT(export_options, models),
         .help = "models file of the result, for rvmod"},
        {"prefix", MILL_OPTION_TEXT, MILL_AT(export_options, prefix), .argument = "TEXT",
         .help = "prefix of an input's name (default rvtab- or rvmod-; rvspecfit uses rvtab_ and "
                 "rvmod_)"},
        {"subdirs", MILL_OPTION_FLAG, MILL_AT(export_options, subdirs),
         .help = "keep the last two folders of each input's path below the output folder, as "
                 "rvspecfit does"},
        {"no-fibermap", MILL_OPTION_FLAG, MILL_AT(export_options, no_fibermap),
         .help = "write rvtab and rvmod without the inputs' tables; the inputs may then be gone"},
        {"overwrite", MILL_OPTION_FLAG, MILL_AT(export_options, overwrite),
         .help = "replace exports that exist"},
        {"quiet", MILL_OPTION_FLAG, MILL_AT(export_options, quiet), .help = "print no summary"},
        MILL_OPTION_HELP(export_options),
        {0}}};

static const export_options usual = {.to = TO_RVTAB};

const mill_option_help mill_export_help = {&table, &usual};

static int parse(int argc, char **argv, export_options *o)
{
  int first = 0;
  unsigned char given[MILL_OPTION_MAX];
  MILL_CHECK(mill_option_parse(&table, argc, argv, o, given, &first));
  if (o->help)
    return MILL_OK;
  const int is_rv = o->to != TO_FITS;
  const mill_option_need need[] = {
      {"models", o->to == TO_RVMOD, "without --to rvmod"},
      {"prefix", is_rv, "with --to fits"},
      {"subdirs", is_rv, "with --to fits"},
      {"no-fibermap", is_rv, "with --to fits"},
  };
  MILL_CHECK(mill_option_check_needs(&table, given, sizeof need / sizeof *need, need));
  if (!o->output)
    return MILL_ERROR(MILL_ERR_USAGE, "no output: give --output; see starmill export --help");
  if (argc - first != 1)
    return MILL_ERROR(MILL_ERR_USAGE, "%s; see starmill export --help",
                      argc == first ? "no result: name the file that starmill fit has written"
                                    : "name one result");
  if (o->to == TO_RVMOD && !o->models)
    return MILL_ERROR(MILL_ERR_USAGE, "rvmod needs the best-fit models: give --models MODELS.h5, "
                                      "the file written by fit --models");
  if (o->prefix && strchr(o->prefix, '/'))
    return MILL_ERROR(MILL_ERR_USAGE,
                      "--prefix %s: a file's prefix has no '/'; give folders with --output",
                      o->prefix);
  o->result = argv[first];
  return MILL_OK;
}

static void print_counts(const mill_product_counts *n, const export_options *o, double wall_s)
{
  if (o->to == TO_FITS)
    printf("rows         %lld\n", (long long)n->n_row);
  else
    printf("written      %lld\n", (long long)n->n_written);
  if (n->n_there > 0)
    printf("existing     %lld complete products of this result\n", (long long)n->n_there);
  if (n->n_failed > 0)
    printf("left out     %lld inputs, whose files are gone or have changed\n",
           (long long)n->n_failed);
  if (n->n_unread > 0)
    printf("unreadable   %lld inputs, when they were fitted\n", (long long)n->n_unread);
  printf("time         %.2f s\noutput       %s\n", wall_s, o->output);
}

static int run(const mill_mpi *mpi, int argc, char **argv, int *exit_status)
{
  const double start_s = mill_wall_s();
  mill_product_counts counts = {0};
  export_options o = usual;
  MILL_CHECK(mill_mpi_agree(mpi, parse(argc, argv, &o)));
  if (mill_option_helped(o.help, mpi->rank, &table, &usual))
    return MILL_OK;
  MILL_CHECK(mill_mpi_agree(mpi, mill_log_open(mpi->rank, mpi->size, MILL_LOG_WARNING, NULL)));
  const mill_products want = {
      .result = o.result,
      .models = o.models,
      .output = o.output,
      .tab_prefix = o.to != TO_RVTAB ? NULL
                    : o.prefix       ? o.prefix
                                     : "rvtab-",
      .mod_prefix = o.to != TO_RVMOD ? NULL
                    : o.prefix       ? o.prefix
                                     : "rvmod-",
      .has_subfolders = o.subdirs,
      .has_fibermap = !o.no_fibermap,
      .overwrite = o.overwrite,
  };
  MILL_CHECK(mill_products_write(mpi, &want, &counts));
  *exit_status = counts.n_failed + counts.n_unread > 0 ? EXIT_INCOMPLETE : 0;
  if (mpi->rank == 0 && !o.quiet)
    print_counts(&counts, &o, mill_wall_s() - start_s);
  return mill_job_flush("the summary");
}

int mill_job_export(int argc, char **argv)
{
  mill_mpi mpi = {.comm = MPI_COMM_NULL, .stop_comm = MPI_COMM_NULL};
  int exit_status = 0;
  int err = mill_stop_signal_catch();
  if (err == MILL_OK)
    err = mill_mpi_start(&mpi);
  if (err == MILL_OK)
    err = run(&mpi, argc, argv, &exit_status);
  if (err != MILL_OK)
    exit_status = mill_mpi_tell(&mpi, "starmill export", err);
  mill_log_close();
  mill_ph5_leave_if_broken(&mpi, err, exit_status);
  mill_mpi_end(&mpi);
  return exit_status;
}
