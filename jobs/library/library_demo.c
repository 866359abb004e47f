#include "jobs/library/library_demo.h"

#include <stdio.h>

#include "io/library/library_file.h"
#include "jobs/library/library_left_out.h"
#include "jobs/library/library_rows.h"
#include "jobs/library/train_functions.h"
#include "kernels/base/error.h"
#include "src/libraries/demo_library.h"
#include "src/ranks/mpi_context.h"
#include "src/system/file_roles.h"

typedef struct options {
  const char *output;
  int overwrite, help;
  mill_demo_settings settings; /* n_thread 0: not given */
} options;

#define AT(member) MILL_AT(options, member)
const mill_option_table mill_library_demo_table = {
    "starmill library demo",
    "usage: starmill library demo --output LIB.h5 [options]\n"
    "\n"
    "demo makes a library for DESI's arms out of the built-in line model: splines, as train\n"
    "--emulator splines makes them, with its report (docs/science/demo-library.md).  It is for\n"
    "demonstration and tests, not for science.\n"
    "\n",
    NULL,
    (const mill_option[]){
        MILL_LIBRARY_OUTPUT_ROWS(options),
        {"threads", MILL_OPTION_COUNT, AT(settings.n_thread), .min = 1, .max = 4096,
         .help = "threads (default: the cores that this process may use)"},
        {"held-out", MILL_OPTION_COUNT, AT(settings.n_held_out), .max = MILL_REPORT_MAX,
         .help = "models at other labels for the report (default 60); 0: no report"},
        {"seed", MILL_OPTION_SEED, AT(settings.seed), .argument = "N",
         .help = "of the held-out models' labels (default 1)"},
        {"components", MILL_OPTION_COUNT, AT(settings.n_component), .min = 1,
         .max = MILL_DEMO_MAX_COMPONENT,
         .help = "principal components of an arm (default: chosen for the grid)"},
        {"coarse", MILL_OPTION_FLAG, AT(settings.coarse),
         .help = "a small grid, in seconds, with errors of some per cent: for tests"},
        {"line-scatter", MILL_OPTION_REAL, AT(settings.line_scatter), .max = MILL_DEMO_MAX_SCATTER,
         .help = "a library that is wrong in a known way: line strengths scattered by this in "
                 "their logarithm; 0: none"},
        {"line-seed", MILL_OPTION_SEED, AT(settings.line_seed), .argument = "N",
         .help = "of the scattered line strengths (default 1)"},
        MILL_OPTION_HELP(options),
        {0}}};
#undef AT

static int prepare(options *o, int argc, char **argv, int first)
{
  mill_file_roles roles = {0};
  if (first < argc)
    return MILL_ERROR(MILL_ERR_USAGE, "library demo takes no input files, but %s is given",
                      argv[first]);
  if (!o->output)
    return MILL_ERROR(MILL_ERR_USAGE, "library demo needs --output LIB.h5");
  MILL_CHECK(mill_mpi_alone_threads(&o->settings.n_thread));
  MILL_CHECK(mill_file_roles_write(&roles, "--output", o->output));
  return mill_library_writable(o->output, o->overwrite);
}

/* The report from models at other labels. */
static int measure(const mill_demo_settings *settings, mill_library *lib)
{
  int err = MILL_OK;
  char how[160];
  mill_model_set held_out = {0};
  if (settings->n_held_out == 0)
    return MILL_OK;
  snprintf(how, sizeof how,
           "of the line model, at labels evenly distributed in the hulls, seed %llu",
           (unsigned long long)settings->seed);
  MILL_TRY(mill_demo_held_out(settings, lib, &held_out));
  MILL_TRY(mill_library_measure(lib, &held_out, settings->n_thread, MILL_MODEL_ERROR_COMPONENT, how,
                                0, lib));
done:
  mill_model_set_clear(&held_out);
  return err;
}

int mill_job_library_demo(int argc, char **argv)
{
  int err = MILL_OK, first = 0;
  unsigned char given[MILL_OPTION_MAX];
  mill_library *lib = NULL;
  mill_grid_facts facts;
  options o = {0};
  mill_demo_settings_init(&o.settings);
  o.settings.n_thread = 0;
  o.settings.progress = stdout;
  MILL_TRY(mill_option_parse(&mill_library_demo_table, argc, argv, &o, given, &first));
  const mill_option_need need[] = {
      {"seed", o.settings.n_held_out > 0, "with --held-out 0"},
      {"line-seed", o.settings.line_scatter > 0, "without --line-scatter above 0"}};
  MILL_TRY(mill_option_check_needs(&mill_library_demo_table, given,
                                   (int)(sizeof need / sizeof *need), need));
  if (mill_option_helped(o.help, 0, &mill_library_demo_table, NULL))
    goto done;
  MILL_TRY(prepare(&o, argc, argv, first));
  MILL_TRY(MILL_ALLOC(1, &lib));
  MILL_TRY(mill_demo_library_build(&o.settings, lib, &facts));
  mill_print_grid_facts(MILL_WAY_SPLINES, lib, &facts);
  MILL_TRY(measure(&o.settings, lib));
  MILL_TRY(mill_library_keep(o.output, o.overwrite, lib));
  printf("This library was made from a small line model: it is for demonstration and tests, not "
         "for science.\n");
done:
  mill_library_clear(lib);
  mill_free(lib);
  return err;
}
