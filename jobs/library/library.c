/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* memmem */

#include "jobs/library/library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "io/library/library_file.h"
#include "jobs/library/build_output.h"
#include "jobs/library/library_build.h"
#include "jobs/library/library_error.h"
#include "jobs/library/library_rows.h"
#include "jobs/library/library_spectra.h"
#include "jobs/library/library_train.h"
#include "jobs/library/train_options.h"
#include "jobs/options/job_steps.h"
#include "jobs/options/option_table.h"
#include "jobs/scripts/script.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/ranks/mpi_context.h"
#include "src/system/file_roles.h"
#include "src/system/regular_file.h"

/* ---- options ------------------------------------------------------------------------------ */

typedef struct import_options {
  const char *output;
  int overwrite;
  int at_instrument;
  double template_sigma_aa[MILL_MAX_ARM];
  int n_sigma; /* 0: not given */
  int n_guess;
  char arm_name[MILL_MAX_ARM][MILL_MAX_NAME];
  int n_arm_name;
  int help;
} import_options;

/* One number or several with commas between them. */
static int take_sigma(const mill_option *row, const char *text, void *base)
{
  static const mill_option one = {
      .name = "template-sigma", .kind = MILL_OPTION_REAL, .max = DBL_MAX};
  import_options *options = base;
  options->n_sigma = 0;
  for (const char *item = text;; item++) {
    const size_t n = strcspn(item, ",");
    char number[64];
    if (options->n_sigma == MILL_MAX_ARM)
      return MILL_ERROR(MILL_ERR_USAGE, "--template-sigma gives more than %d numbers",
                        MILL_MAX_ARM);
    if (n >= sizeof number)
      return MILL_ERROR(MILL_ERR_USAGE, "--template-sigma: '%.40s...' is too long for a number",
                        item);
    snprintf(number, sizeof number, "%.*s", (int)n, item);
    MILL_CHECK(
        mill_option_read(&one, row->name, number, &options->template_sigma_aa[options->n_sigma++]));
    item += n;
    if (*item == '\0')
      break;
  }
  return MILL_OK;
}

#define AT(member) MILL_AT(import_options, member)
static const mill_option_table import_table = {
    "starmill library import",
    "usage: starmill library import --output LIB.h5 [options] EMULATOR.h5...\n"
    "\n"
    "import makes a library from emulators trained elsewhere, one file per arm (layout:\n"
    "docs/use/formats.md), and checks them against the reference values in the files.\n"
    "\n",
    NULL,
    (const mill_option[]){
        MILL_LIBRARY_OUTPUT_ROWS(import_options),
        {"template-sigma", MILL_OPTION_OTHER, .take = take_sigma, .argument = "A|A,A,A",
         .help = "Gaussian sigma of the templates in Angstrom, removed from the spectra's "
                 "resolution matrix; one for all arms, or one per file"},
        {"at-instrument-resolution", MILL_OPTION_FLAG, AT(at_instrument),
         .help = "the templates have the instrument's own resolution (default: sigma 0.5 when the "
                 "emulators' revision ends in rm or resolmat, else the instrument's resolution)"},
        {"arm-names", MILL_OPTION_NAMES, .offset = offsetof(import_options, arm_name),
         .size = MILL_MAX_NAME, .max = MILL_MAX_ARM,
         .offset2 = offsetof(import_options, n_arm_name), .argument = "b,r,z",
         .help = "names of the arms, in the order of the files (default: the end of each file's "
                 "setup, after its last _)"},
        {"guess-templates", MILL_OPTION_COUNT, AT(n_guess), .min = 1, .max = 10000,
         .help = "templates of the initial guess (default 50)"},
        MILL_OPTION_HELP(import_options),
        {0}}};
#undef AT

static const mill_option_table head_table = {
    "starmill library",
    "usage: starmill library build|import|spectra|train|model-error|info [options] FILE...\n"
    "\n"
    "Make and inspect template libraries.\n",
    NULL, (const mill_option[]){{0}}};

static const mill_option_table info_table = {
    "starmill library info",
    "usage: starmill library info LIB.h5|GRID.h5\n"
    "\n"
    "info describes a library or a grid file.\n"
    "\n",
    NULL,
    (const mill_option[]){{"help", MILL_OPTION_FLAG, 'h', .size = sizeof(int), .help = "this text"},
                          {0}}};

#define HELP(table) (&(const mill_option_help){table, NULL})
const mill_option_help *const mill_library_help[] = {HELP(&head_table),
                                                     HELP(&mill_library_build_table),
                                                     HELP(&import_table),
                                                     HELP(&mill_library_spectra_table),
                                                     HELP(&mill_library_train_table),
                                                     HELP(&mill_library_error_table),
                                                     HELP(&info_table),
                                                     NULL};
#undef HELP

/* ---- import ------------------------------------------------------------------------------- */

/* Of all arms, or of each where each has its own. */
static void print_resolution(const mill_library *lib, int of_each)
{
  for (int i = 0; i < (of_each ? lib->n_arm : 1); i++) {
    const mill_arm *arm = &lib->arm[i];
    printf("template resolution%s%s: ", of_each ? " of arm " : "", of_each ? arm->name : "");
    if (arm->template_sigma_aa < 0)
      printf("the instrument's own, no resolution matrix (%s)\n", arm->sigma_origin);
    else
      printf("sigma %g A, removed from the resolution matrix (%s)\n", arm->template_sigma_aa,
             arm->sigma_origin);
  }
}

static int run_import(int argc, char **argv)
{
  int err = MILL_OK;
  mill_library *lib = NULL;
  mill_file_roles roles = {0};
  import_options options = {.n_guess = 50};
  int first = 0;
  double difference;
  MILL_TRY(mill_option_parse(&import_table, argc, argv, &options, NULL, &first));
  if (mill_option_helped(options.help, 0, &import_table, NULL))
    goto done;
  const int n_path = argc - first;
  const char *const *path = (const char *const *)argv + first;
  const char *arm_name[MILL_MAX_ARM];
  for (int i = 0; i < options.n_arm_name; i++)
    arm_name[i] = options.arm_name[i];
  if (!options.output)
    MILL_FAIL(MILL_ERR_USAGE, "library import needs --output LIB.h5");
  if (n_path < 1)
    MILL_FAIL(MILL_ERR_USAGE, "library import needs emulator files, one per arm");
  if (options.at_instrument && options.n_sigma > 0)
    MILL_FAIL(MILL_ERR_USAGE, "--template-sigma and --at-instrument-resolution exclude each other");
  if (options.n_arm_name && options.n_arm_name != n_path)
    MILL_FAIL(MILL_ERR_USAGE, "--arm-names gives %d names for %d files", options.n_arm_name,
              n_path);
  if (options.n_sigma > 1 && options.n_sigma != n_path)
    MILL_FAIL(MILL_ERR_USAGE, "--template-sigma gives %d numbers for %d files", options.n_sigma,
              n_path);
  /* overwriting an input would destroy data that cannot be remade */
  MILL_TRY(mill_file_roles_write(&roles, "--output", options.output));
  for (int i = 0; i < n_path; i++)
    MILL_TRY(mill_file_roles_read(&roles, "the emulator", path[i]));
  /* before the work; mill_library_write looks again */
  MILL_TRY(mill_library_writable(options.output, options.overwrite));

  MILL_TRY(MILL_ALLOC(1, &lib));
  double sigma[MILL_MAX_ARM];
  for (int i = 0; i < MILL_MAX_ARM; i++)
    sigma[i] = options.at_instrument  ? -1
               : options.n_sigma == 0 ? NAN
                                      : options.template_sigma_aa[options.n_sigma > 1 ? i : 0];
  MILL_TRY(mill_library_import_named(path, options.n_arm_name ? arm_name : NULL, n_path, sigma,
                                     options.n_guess, lib, &difference));
  MILL_TRY(mill_library_write(options.output, lib, options.overwrite));
  print_resolution(lib, options.n_sigma > 1);
  if (isnan(sigma[0]))
    printf("  to choose yourself: --template-sigma A or --at-instrument-resolution\n");
  printf("%s: %d arm%s, agree%s with the check values within %.1e, hash %s\n", options.output,
         lib->n_arm, lib->n_arm == 1 ? "" : "s", lib->n_arm == 1 ? "s" : "", difference, lib->hash);
done:
  mill_library_clear(lib);
  mill_free(lib);
  return err;
}

/* ---- info --------------------------------------------------------------------------------- */

/* By its first bytes, as mill_refuse_foreign (src/system/regular_file.h) knows a file. */
static int is_grid(const char *path)
{
  char begin[4096];
  const size_t n = mill_first_bytes(path, begin, sizeof begin);
  return n > 0 && memmem(begin, n, "starmill grid", strlen("starmill grid")) != NULL;
}

static int run_info(int argc, char **argv)
{
  int err = MILL_OK;
  mill_library *lib = NULL;
  int help = 0, first = 0;
  MILL_TRY(mill_option_parse(&info_table, argc, argv, &help, NULL, &first));
  if (mill_option_helped(help, 0, &info_table, NULL))
    goto done;
  if (argc - first != 1)
    MILL_FAIL(MILL_ERR_USAGE, "library info takes one library, not %d", argc - first);
  const char *path = argv[first];
  if (is_grid(path)) {
    MILL_TRY(mill_build_print(path));
    goto done;
  }
  MILL_TRY(MILL_ALLOC(1, &lib));
  MILL_TRY(mill_library_read(path, lib));
  MILL_TRY(mill_library_print(lib, stdout));
done:
  mill_library_clear(lib);
  mill_free(lib);
  return err;
}

/* ---- sub-commands ------------------------------------------------------------------------- */

typedef struct sub_command {
  const char *name;
  int by_all; /* 1: collective, and run returns an exit status; 0: by rank 0, an error code */
  int (*run)(int argc, char **argv);
  const mill_script *script; /* in place of run; without MPI */
} sub_command;

static const sub_command sub_commands[] = {{"build", 1, mill_job_library_build, NULL},
                                           {"train", 1, mill_job_library_train, NULL},
                                           {"import", 0, run_import, NULL},
                                           {"spectra", 0, mill_job_library_spectra, NULL},
                                           {"model-error", 0, mill_job_library_error, NULL},
                                           {"info", 0, run_info, NULL}};

static int unknown(const char *name)
{
  return MILL_ERROR(
      MILL_ERR_USAGE, "%s%s; library has build, train, import, spectra, model-error and info",
      name ? "unknown sub-command " : "library needs a sub-command", name ? name : "");
}

/* With MPI running. */
static int run(const sub_command *sub, int argc, char **argv)
{
  int rank = 0, status = 0;
  if (sub && sub->by_all)
    return sub->run(argc, argv);
  /* MPI's default handler ends the job when a call fails */
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    status =
        mill_job_end("library", sub ? sub->run(argc, argv) : unknown(argc > 0 ? argv[0] : NULL));
    fflush(stdout);
  }
  MPI_Bcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return status;
}

int mill_job_library(int argc, char **argv)
{
  mill_mpi mpi;
  const sub_command *sub = NULL;
  for (size_t i = 0; argc > 1 && i < sizeof sub_commands / sizeof *sub_commands; i++)
    if (strcmp(argv[1], sub_commands[i].name) == 0)
      sub = &sub_commands[i];
  if (sub && sub->script)
    return mill_script_run(sub->script, argc - 1, argv + 1);
  const int err = mill_mpi_start(&mpi);
  const int status = err == MILL_OK ? run(sub, argc - 1, argv + 1) : mill_job_end("library", err);
  mill_mpi_end(&mpi);
  return status;
}
