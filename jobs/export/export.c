#include "jobs/export/export.h"

#include <stdio.h>
#include <string.h>

#include "io/export/products.h"
#include "io/export/rvtab.h"
#include "io/export/whole_table.h"
#include "io/hdf5/hdf5_util.h"
#include "io/hdf5/parallel_hdf5.h"
#include "jobs/options/job_steps.h"
#include "jobs/options/option_table.h"
#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "src/system/file_roles.h"
#include "src/system/log.h"
#include "src/system/regular_file.h"
#include "src/system/stop_signal.h"

enum { EXIT_INCOMPLETE = 3 };
enum to { TO_RVTAB, TO_RVMOD, TO_FITS, TO_CSV, TO_HDF5 };

typedef struct export_options {
  int help, to, one, subdirs, no_fibermap, unfinished, overwrite, quiet;
  const char *output, *models, *prefix;
  const char *result; /* of argv */
} export_options;

static const char *const to_words[] = {"rvtab", "rvmod", "fits", "csv", "hdf5", NULL};

static const mill_option_table table = {
    "starmill export",
    "usage: starmill export [--to KIND] --output FOLDER|FILE [options] OUT.h5\n"
    "\n"
    "Write a finished result in a form that other programs read.  rvtab and rvmod are the files\n"
    "of rvspecfit, one for each input, into a folder; ranks share the inputs (mpirun).  fits, csv\n"
    "and hdf5 are one table of all columns.\n"
    "\n",
    "\n"
    "The same command given again goes on where it was stopped.\n"
    "Exit status: 0 done, 2 usage, or the result is none or not finished, 3 an input is gone, has\n"
    "changed or was unreadable, so that its product is left out, 4 the result is damaged or the\n"
    "output cannot be written, 70 internal error, 75 stopped in good order.\n",
    (const mill_option[]){
        {"to", MILL_OPTION_CHOICE, MILL_AT(export_options, to), .words = to_words,
         .argument = "KIND", .help = "what to write"},
        {"output", MILL_OPTION_TEXT, MILL_AT(export_options, output),
         .help = "folder of rvtab and rvmod files, made where there is none; else the file"},
        {"models", MILL_OPTION_TEXT, MILL_AT(export_options, models),
         .help = "the models of the result, for rvmod"},
        {"one", MILL_OPTION_FLAG, MILL_AT(export_options, one),
         .help = "rvtab: all inputs into one file, which --output names"},
        {"prefix", MILL_OPTION_TEXT, MILL_AT(export_options, prefix), .argument = "TEXT",
         .help = "what stands before an input's name (default rvtab- or rvmod-; rvspecfit: "
                 "rvtab_ and rvmod_)"},
        {"subdirs", MILL_OPTION_FLAG, MILL_AT(export_options, subdirs),
         .help = "keep the last two folders of each input's path below the output folder, as "
                 "rvspecfit does"},
        {"no-fibermap", MILL_OPTION_FLAG, MILL_AT(export_options, no_fibermap),
         .help = "rvtab and rvmod without the tables of the inputs, which then need not be there"},
        {"unfinished", MILL_OPTION_FLAG, MILL_AT(export_options, unfinished),
         .help = "export the rows that are done of a fit that is not finished"},
        {"overwrite", MILL_OPTION_FLAG, MILL_AT(export_options, overwrite),
         .help = "replace the exports that are there"},
        {"quiet", MILL_OPTION_FLAG, MILL_AT(export_options, quiet), .help = "print no summary"},
        MILL_OPTION_HELP(export_options),
        {0}}};

static const export_options usual = {.to = TO_RVTAB};

const mill_option_help mill_export_help = {&table, &usual};

static int is_per_input(const export_options *o)
{
  return o->to == TO_RVMOD || (o->to == TO_RVTAB && !o->one);
}

static int parse(int argc, char **argv, export_options *o)
{
  int first = 0;
  unsigned char given[MILL_OPTION_MAX];
  MILL_CHECK(mill_option_parse(&table, argc, argv, o, given, &first));
  if (o->help)
    return MILL_OK;
  const int is_rv = o->to == TO_RVTAB || o->to == TO_RVMOD;
  const mill_option_need need[] = {
      {"models", o->to == TO_RVMOD, "without --to rvmod"},
      {"one", o->to == TO_RVTAB, "without --to rvtab"},
      {"prefix", is_per_input(o), "with one file as output"},
      {"subdirs", is_per_input(o), "with one file as output"},
      {"no-fibermap", is_rv, "without --to rvtab or rvmod"},
  };
  MILL_CHECK(mill_option_check_needs(&table, given, sizeof need / sizeof *need, need));
  if (!o->output)
    return MILL_ERROR(MILL_ERR_USAGE, "no output: give --output; see starmill export --help");
  if (argc - first != 1)
    return MILL_ERROR(MILL_ERR_USAGE, "%s; see starmill export --help",
                      argc == first ? "no result: name the file that starmill fit has written"
                                    : "name one result");
  if (o->to == TO_RVMOD && !o->models)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "rvmod is made of best-fit models: give --models MODELS.h5, which "
                      "fit --models has written");
  if (o->prefix && strchr(o->prefix, '/'))
    return MILL_ERROR(MILL_ERR_USAGE,
                      "--prefix %s: is part of a file's name, and --output of its folder",
                      o->prefix);
  o->result = argv[first];
  return MILL_OK;
}

/* ---- one file ---- */

/* No input is written over, nor the result. */
static int check_roles(const export_options *o, const mill_export_source *source)
{
  char path[MILL_EXPORT_PATH];
  mill_file_roles roles = {.n = 0};
  MILL_CHECK(mill_file_roles_write(&roles, "--output", o->output));
  MILL_CHECK(mill_file_roles_read(&roles, "the result", o->result));
  for (int i = 0; i < source->n_file; i++) {
    MILL_CHECK(mill_export_input(source, i, path, sizeof path));
    MILL_CHECK(mill_file_roles_read(&roles, "the input", path));
  }
  return MILL_OK;
}

/* Only what export writes is replaced; CSV says nothing of itself. */
static int check_there(const export_options *o, const mill_product *product)
{
  if (o->to == TO_HDF5 && o->overwrite)
    MILL_CHECK(mill_refuse_foreign(product->path, "--output", "starmill export"));
  else if (o->to == TO_CSV && o->overwrite)
    MILL_CHECK(mill_refuse_data(product->path, "--output"));
  else
    MILL_CHECK(mill_products_check_one(product->path, o->overwrite));
  return MILL_OK;
}

static int write_one(const export_options *o, int64_t *n_row)
{
  int err = MILL_OK;
  mill_export_source *source = NULL;
  mill_product product = {.path = ""};
  MILL_TRY(mill_h5_check_output(o->result));
  MILL_TRY(mill_export_open(o->result, o->unfinished, &source));
  MILL_TRY(check_roles(o, source));
  MILL_TRY(mill_product_begin(o->output, &product));
  MILL_TRY(check_there(o, &product));
  MILL_TRY(o->to == TO_FITS  ? mill_whole_fits(source, &product)
           : o->to == TO_CSV ? mill_whole_csv(source, &product)
           : o->to == TO_HDF5
               ? mill_whole_hdf5(source, &product)
               : mill_rvtab_write(source, 0, source->n_file, !o->no_fibermap,
                                  o->no_fibermap ? "rvtab alone" : "rvtab", &product));
  MILL_TRY(mill_product_commit(&product));
  *n_row = source->n_kept;
done:
  mill_product_end(&product);
  mill_export_close(source);
  return err;
}

/* ---- the job ---- */

static void print_counts(const mill_product_counts *n, const export_options *o, double wall_s)
{
  printf("written      %lld\n", (long long)n->n_written);
  if (n->n_there > 0)
    printf("there        %lld, of this result and whole\n", (long long)n->n_there);
  if (n->n_failed > 0)
    printf("left out     %lld inputs, whose files are gone or have changed\n",
           (long long)n->n_failed);
  if (n->n_unread > 0)
    printf("unreadable   %lld inputs, when they were fitted\n", (long long)n->n_unread);
  printf("time         %.2f s\noutput       %s\n", wall_s, o->output);
}

static int write_products(const mill_mpi *mpi, const export_options *o, mill_product_counts *counts)
{
  const int is_mod = o->to == TO_RVMOD;
  const mill_products want = {
      .result = o->result,
      .models = o->models,
      .folder = o->output,
      .tab_prefix = is_mod      ? NULL
                    : o->prefix ? o->prefix
                                : "rvtab-",
      .mod_prefix = !is_mod     ? NULL
                    : o->prefix ? o->prefix
                                : "rvmod-",
      .has_subfolders = o->subdirs,
      .has_fibermap = !o->no_fibermap,
      .is_partial = o->unfinished,
      .overwrite = o->overwrite,
  };
  return mill_products_write(mpi, &want, counts);
}

static int run(const mill_mpi *mpi, int argc, char **argv, int *exit_status)
{
  const double start_s = mill_wall_s();
  mill_product_counts counts = {0};
  int64_t n_row = 0;
  export_options o = usual;
  MILL_CHECK(mill_mpi_agree(mpi, parse(argc, argv, &o)));
  if (mill_option_helped(o.help, mpi->rank, &table, &usual))
    return MILL_OK;
  MILL_CHECK(mill_mpi_agree(mpi, mill_log_open(mpi->rank, mpi->size, MILL_LOG_WARNING, NULL)));
  if (is_per_input(&o)) {
    MILL_CHECK(write_products(mpi, &o, &counts));
    *exit_status = counts.n_failed + counts.n_unread > 0 ? EXIT_INCOMPLETE : 0;
  } else if (mpi->size > 1) {
    return MILL_ERROR(MILL_ERR_USAGE, "one file is written by one rank, without mpirun or srun -n");
  } else {
    MILL_CHECK(write_one(&o, &n_row));
  }
  if (mpi->rank == 0 && !o.quiet && is_per_input(&o))
    print_counts(&counts, &o, mill_wall_s() - start_s);
  else if (mpi->rank == 0 && !o.quiet)
    printf("rows         %lld\ntime         %.2f s\noutput       %s\n", (long long)n_row,
           mill_wall_s() - start_s, o.output);
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
