#include "jobs/library/train_functions.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <mpi.h>

#include "io/library/grid_file.h"
#include "io/library/library_file.h"
#include "jobs/library/library_left_out.h"
#include "jobs/library/library_rows.h"
#include "jobs/library/library_train.h"
#include "jobs/library/train_choice.h"
#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "src/libraries/grid_emulators.h"
#include "src/ranks/mpi_context.h"
#include "src/system/file_roles.h"
#include "src/system/regular_file.h"

/* ---- options ------------------------------------------------------------------------------------
 */

static_assert(MILL_WAY_RADIAL == 0 && MILL_WAY_SPLINES == 1 && MILL_WAY_LINEAR == 2,
              "order of the words");
static const char *const way_words[] = {"radial", "splines", "linear", NULL};
static const char *const gap_words[] = {"refuse", "fill", NULL};

typedef struct options {
  const char *output, *validation;
  int overwrite, help, unfinished;
  int n_error; /* components of a model error to keep; -1: none is kept */
  double left_out;
  uint64_t seed;
  mill_grid_settings settings; /* n_thread 0: not given */
} options;

#define AT(member)  MILL_AT(options, member)
#define SET(member) MILL_AT(options, settings.member)
const mill_option_table mill_train_functions_table = {
    "starmill library train",
    "usage: starmill library train --emulator radial|splines|linear --output LIB.h5 [options] "
    "GRID.h5\n"
    "\n"
    "train --emulator radial | splines | linear makes a library from the spectra of a grid file:\n"
    "functions of the labels for the principal components of ln flux of each arm.\n"
    "\n",
    NULL,
    (const mill_option[]){
        {"emulator", MILL_OPTION_CHOICE, SET(way), .words = way_words,
         .help = "radial functions through scattered labels; cubic splines, or linear "
                 "interpolation, over a grid of labels"},
        MILL_LIBRARY_OUTPUT_ROWS(options),
        {"gaps", MILL_OPTION_CHOICE, SET(fill_gaps), .words = gap_words,
         .help = "nodes of the grid without a model: an error, or filled from their neighbours"},
        {"components", MILL_OPTION_COUNT, SET(n_component), .min = 1, .max = MILL_MAX_WIDTH,
         .help = "principal components of an arm (default 128; linear: as many as leave 1e-5 of "
                 "the flux of the worst model, at most 1024)"},
        {"smoothing", MILL_OPTION_REAL, SET(smoothing), .max = 1e8,
         .help = "of radial functions (default 1e-8, through the models); 0: chosen by "
                 "leave-one-out for each component"},
        {"degree", MILL_OPTION_COUNT, SET(degree), .min = 1, .max = 3,
         .help = "of the polynomial beside the radial functions (default 2)"},
        {"left-out", MILL_OPTION_REAL, AT(left_out), .max = 0.5, .argument = "PART",
         .help = "part of the models without which a second library is made, to say how good it is "
                 "(default 0.1); 0: no report"},
        {"seed", MILL_OPTION_SEED, AT(seed), .argument = "N",
         .help = "of what is left out (default 1)"},
        {"validation", MILL_OPTION_TEXT, AT(validation), .argument = "GRID.h5",
         .help = "models with other labels and the same arms, for the report in the place of those "
                 "left out"},
        {"model-error", MILL_OPTION_COUNT, AT(n_error), .max = MILL_MAX_ERROR, .argument = "N",
         .help = "keep what the templates of the report get wrong, with N components; fits then "
                 "count it (default: not kept)"},
        MILL_TRAIN_GUESS_ROWS(options, settings.n_guess, settings.hulls),
        {"unfinished", MILL_OPTION_FLAG, AT(unfinished),
         .help = "take the models that there are of a grid file whose building has not ended"},
        {"threads", MILL_OPTION_COUNT, SET(n_thread), .min = 1, .max = 4096,
         .help = "threads (default: the cores that this process may use); the result does not "
                 "depend on them"},
        MILL_OPTION_HELP(options),
        {0}}};
#undef SET
#undef AT

int mill_train_functions_asked(int argc, char *const *argv)
{
  for (int i = 1; i < argc; i++) {
    const char *word = NULL;
    if (strncmp(argv[i], "--emulator=", 11) == 0)
      word = argv[i] + 11;
    else if (strcmp(argv[i], "--emulator") == 0 && i + 1 < argc)
      word = argv[i + 1];
    for (int k = 0; word && way_words[k]; k++)
      if (strcmp(word, way_words[k]) == 0)
        return 1;
  }
  return 0;
}

/* ---- job ----------------------------------------------------------------------------------------
 */

/* A grid file and its good models. */
typedef struct models {
  const char *path;
  mill_grid_file *file;
  mill_grid_info info;
  int n, *row;
} models;

static void models_clear(models *m)
{
  mill_grid_close(m->file);
  mill_grid_info_clear(&m->info);
  mill_free(m->row);
}

static int models_open(const char *path, int unfinished, models *m)
{
  m->path = path;
  MILL_CHECK(mill_grid_open(path, &m->file, &m->info));
  MILL_CHECK(mill_good_models(&m->info, path, unfinished, &m->n, &m->row));
  if (m->n == 0)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: none of its %d models is good", path, m->info.n_model);
  printf("%s: %d models, %d arm%s", path, m->n, m->info.n_arm, m->info.n_arm == 1 ? "" : "s");
  if (m->n < m->info.n_model)
    printf("; %d bad or not there are left aside", m->info.n_model - m->n);
  printf("\n");
  return MILL_OK;
}

static int read_ln_flux(void *from, int arm, int n, const int *row, float *ln_flux)
{
  const models *m = from;
  MILL_CHECK(mill_grid_read(m->file, arm, n, row, ln_flux, NULL));
  for (size_t i = 0; i < (size_t)n * (size_t)m->info.arm[arm].n_pix; i++)
    ln_flux[i] = logf(ln_flux[i]); /* what is read is above 0 */
  return MILL_OK;
}

/* Models of the file, without those of left_out [m->n] (NULL: all), for the emulators; arrays to be
   freed by the caller. */
typedef struct selection {
  mill_grid_models models;
  double *value;
  char (*name)[64];
  int *row, *rest, n_rest; /* of the file: those taken, and the others */
} selection;

static void selection_clear(selection *s)
{
  MILL_FREE(s->value, s->name, s->row, s->rest);
}

static int select_models(models *m, const unsigned char *left_out, selection *s)
{
  int n = 0;
  const size_t n_label = (size_t)m->info.n_label;
  MILL_CHECK(MILL_ALLOC((size_t)m->n * n_label, &s->value));
  MILL_CHECK(MILL_ALLOC(m->n, &s->name));
  MILL_CHECK(MILL_ALLOC(m->n, &s->row));
  MILL_CHECK(MILL_ALLOC(m->n, &s->rest));
  for (int i = 0; i < m->n; i++) {
    if (left_out && left_out[i]) {
      s->rest[s->n_rest++] = m->row[i];
      continue;
    }
    memcpy(s->value + (size_t)n * n_label, m->info.value + (size_t)m->row[i] * n_label,
           n_label * sizeof *s->value);
    snprintf(s->name[n], sizeof s->name[n], "%s", m->info.name[m->row[i]]);
    s->row[n++] = m->row[i];
  }
  s->models = (mill_grid_models){.n = n,
                                 .value = s->value,
                                 .name = (const char(*)[64])s->name,
                                 .row = s->row,
                                 .read = read_ln_flux,
                                 .from = m};
  return MILL_OK;
}

/* Have the models of the report the labels and arms of the library's? */
static int check_validation(const models *m, const models *other)
{
  const mill_grid_info *a = &m->info, *b = &other->info;
  int same = a->n_label == b->n_label && a->n_arm == b->n_arm;
  for (int l = 0; same && l < a->n_label; l++)
    same = strcmp(a->label[l], b->label[l]) == 0;
  if (!same)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "--validation %s: its labels or number of arms are not those of %s",
                      other->path, m->path);
  for (int i = 0; i < a->n_arm; i++) {
    const mill_grid_arm *p = &a->arm[i], *q = &b->arm[i];
    if (p->n_pix != q->n_pix || fabs(p->ln_wave0 - q->ln_wave0) > 1e-6 * p->ln_step ||
        fabs(p->ln_step - q->ln_step) * p->n_pix > 1e-6 * p->ln_step)
      return MILL_ERROR(
          MILL_ERR_INPUT,
          "--validation %s: the pixels of its arm %s are not those of %s; build it with the "
          "same arms",
          other->path, q->name, m->path);
    if (fabs(p->template_sigma_aa - q->template_sigma_aa) > 1e-6 * fabs(p->template_sigma_aa))
      return MILL_ERROR(
          MILL_ERR_INPUT,
          "--validation %s: its arm %s has a sigma of %g A, that of %s %g A; build it with the "
          "same arms",
          other->path, q->name, q->template_sigma_aa, m->path, p->template_sigma_aa);
  }
  return MILL_OK;
}

void mill_print_grid_facts(int way, const mill_library *lib, const mill_grid_facts *facts)
{
  if (way == MILL_WAY_RADIAL) {
    printf("radial functions, smoothing %.3g to %.3g\n", facts->smooth_min, facts->smooth_max);
  } else {
    printf("%s over", way == MILL_WAY_LINEAR ? "linear interpolation" : "cubic splines");
    for (int l = 0; l < lib->n_label; l++)
      printf("%s %d of %s", l ? "," : "", facts->n_node[l], lib->label[l].name);
    printf("; %d nodes filled from their neighbours\n", facts->n_filled);
  }
  for (int a = 0; a < lib->n_arm; a++)
    printf("  %-8s %d components, which leave %.2g %% (rms) of the flux of the worst model\n",
           lib->arm[a].name, facts->n_component[a], 100 * facts->left[a]);
  fflush(stdout);
}

/* The report from models left out, by a library that is made without them. */
static int report_left_out(const options *o, models *m, mill_library *lib)
{
  int err = MILL_OK, n_out = 0;
  unsigned char *left_out = NULL;
  char how[512];
  selection all = {0}, rest = {0};
  mill_library *without = NULL;
  mill_grid_facts facts;
  mill_grid_settings settings = o->settings;
  const int most = (int)(o->left_out * m->n + 0.5);
  MILL_TRY(MILL_ALLOC(m->n, &left_out));
  MILL_TRY(MILL_ALLOC(1, &without));
  MILL_TRY(select_models(m, NULL, &all));
  MILL_TRY(mill_grid_choose_left_out(settings.way, &all.models, lib,
                                     most < MILL_REPORT_MAX ? most : MILL_REPORT_MAX, o->seed,
                                     left_out, &n_out));
  if (n_out == 0)
    MILL_FAIL(MILL_ERR_INPUT,
              "of %d models none that has others on all sides is to be left out: "
              "give a larger --left-out or --validation",
              m->n);
  MILL_TRY(select_models(m, left_out, &rest));
  MILL_TRY(mill_library_frame(&m->info, m->path, without));
  settings.fill_gaps = 1; /* the nodes of those left out */
  MILL_TRY(mill_grid_emulators_make(&settings, &rest.models, without, &facts));
  snprintf(how, sizeof how,
           "of %d models; measured with a library without them%s, while this one is made of all",
           m->n,
           settings.way == MILL_WAY_RADIAL ? "" : ", whose nodes are filled from their neighbours");
  MILL_TRY(mill_library_measure_rows(
      without, m->file, &m->info, rest.n_rest, rest.rest, settings.n_thread,
      o->n_error < 0 ? MILL_MODEL_ERROR_COMPONENT : o->n_error, how, o->n_error >= 0, lib));
done:
  mill_free(left_out);
  selection_clear(&all);
  selection_clear(&rest);
  mill_library_clear(without);
  mill_free(without);
  return o->n_error < 0 ? mill_without_report(err) : err;
}

/* The report from models of another file. */
static int report_validation(const options *o, const models *m, mill_library *lib)
{
  int err = MILL_OK;
  char how[512];
  models other = {0};
  MILL_TRY(models_open(o->validation, 1, &other));
  MILL_TRY(check_validation(m, &other));
  snprintf(how, sizeof how, "of %.200s; the library is made of %d models",
           mill_base_name(o->validation), m->n);
  MILL_TRY(mill_library_measure_rows(
      lib, other.file, &other.info, other.n, other.row, o->settings.n_thread,
      o->n_error < 0 ? MILL_MODEL_ERROR_COMPONENT : o->n_error, how, o->n_error >= 0, lib));
done:
  models_clear(&other);
  return err;
}

/* Options that would be ignored. */
static int check_needs(const options *o, const unsigned char *given)
{
  const int radial = o->settings.way == MILL_WAY_RADIAL, alone = !o->validation;
  const mill_option_need need[] = {
      {"smoothing", radial, "without --emulator radial"},
      {"degree", radial, "without --emulator radial"},
      {"gaps", !radial, "with --emulator radial"},
      {"left-out", alone, "with --validation"},
      {"seed", alone && o->left_out > 0, "where nothing is left out (--left-out 0, --validation)"}};
  return mill_option_check_needs(&mill_train_functions_table, given,
                                 (int)(sizeof need / sizeof *need), need);
}

/* Everything but the command line. */
static int make(const options *o, const char *path, mill_library *lib)
{
  int err = MILL_OK;
  models m = {0};
  selection all = {0};
  mill_grid_facts facts;
  const double start_s = mill_wall_s();
  MILL_TRY(models_open(path, o->unfinished, &m));
  MILL_TRY(select_models(&m, NULL, &all));
  MILL_TRY(mill_library_frame(&m.info, path, lib));
  MILL_TRY(mill_grid_emulators_make(&o->settings, &all.models, lib, &facts));
  printf("made in %.1f s\n", mill_wall_s() - start_s);
  mill_print_grid_facts(o->settings.way, lib, &facts);
  for (int a = 0; a < lib->n_arm; a++)
    snprintf(lib->arm[a].revision, sizeof lib->arm[a].revision, "%s", way_words[o->settings.way]);
  snprintf(lib->name, sizeof lib->name, "%s of %.100s", way_words[o->settings.way],
           mill_base_name(path));
  if (o->validation)
    MILL_TRY(report_validation(o, &m, lib));
  else if (o->left_out > 0)
    MILL_TRY(report_left_out(o, &m, lib));
  if (lib->report)
    printf("made and measured in %.1f s\n", mill_wall_s() - start_s);
done:
  models_clear(&m);
  selection_clear(&all);
  return err;
}

static int prepare(options *o, int argc, char **argv, int first)
{
  mill_file_roles roles = {0};
  if (!o->output)
    return MILL_ERROR(MILL_ERR_USAGE, "library train needs --output LIB.h5");
  if (argc - first != 1)
    return MILL_ERROR(MILL_ERR_USAGE, "library train takes one grid file, not %d", argc - first);
  if (o->n_error >= 0 && !o->validation && !(o->left_out > 0))
    return MILL_ERROR(MILL_ERR_USAGE,
                      "--model-error is measured on models left out: give --left-out above "
                      "0 or --validation");
  MILL_CHECK(mill_file_roles_write(&roles, "--output", o->output));
  MILL_CHECK(mill_file_roles_read(&roles, "the grid file", argv[first]));
  MILL_CHECK(mill_file_roles_read(&roles, "--validation", o->validation));
  MILL_CHECK(mill_library_writable(o->output, o->overwrite));
  return mill_mpi_alone_threads(&o->settings.n_thread);
}

int mill_job_train_functions(int argc, char **argv)
{
  int err = MILL_OK, first = 0;
  unsigned char given[MILL_OPTION_MAX];
  options o = {.n_error = -1, .left_out = 0.1, .seed = 1};
  mill_library *lib = NULL;
  mill_grid_settings_init(&o.settings);
  o.settings.n_thread = 0;
  MILL_TRY(mill_option_refuse_others(&mill_train_functions_table, &mill_library_train_table,
                                     "--emulator network", argc, argv));
  MILL_TRY(mill_option_parse(&mill_train_functions_table, argc, argv, &o, given, &first));
  MILL_TRY(check_needs(&o, given));
  if (mill_option_helped(o.help, 0, &mill_train_functions_table, NULL))
    goto done;
  MILL_TRY(prepare(&o, argc, argv, first));
  MILL_TRY(MILL_ALLOC(1, &lib));
  MILL_TRY(make(&o, argv[first], lib));
  MILL_TRY(mill_library_keep(o.output, o.overwrite, lib));
done:
  mill_library_clear(lib);
  mill_free(lib);
  return err;
}
