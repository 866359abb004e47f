/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/library/library_spectra.h"

#include "jobs/library/labelled_options.h"
#include "jobs/library/library_error.h"
#include "jobs/library/library_left_out.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/library/labelled_spectra.h"
#include "io/library/library_file.h"
#include "jobs/library/library_rows.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/file_roles.h"
#include "src/ranks/mpi_context.h"
#include "src/libraries/spectra_library.h"

#define FWHM_PER_SIGMA 2.3548200450309493

enum { HULL_ALL, HULL_DENSE };
static const char *const hull_words[] = {"all", "dense", NULL};

typedef struct options {
  const char *output;
  int overwrite, help;
  mill_labelled_options in;
  int n_length;
  mill_named length[MILL_MAX_NAMED];
  double fwhm_aa, sigma_aa, resolving_power; /* NAN: not given */
  int at_instrument;
  int hull; /* HULL_ALL, HULL_DENSE; -1: not given */
  double left_out;
  uint64_t seed;
  mill_spectra_library_settings settings;
} options;

/* ---- options -------------------------------------------------------------------------------- */

static int take_continuum(const mill_option *row, const char *text, void *base)
{
  static const mill_option degree = {.kind = MILL_OPTION_COUNT,
                                     MILL_AT(options, settings.continuum),
                                     .max = MILL_SPECTRA_LIBRARY_MAX_CONTINUUM};
  options *o = base;
  if (strcmp(text, "keep") != 0)
    return mill_option_read(&degree, row->name, text, o);
  o->settings.continuum = -1;
  return MILL_OK;
}

#define AT(member)             MILL_AT(options, member)
#define OTHER(function, shown) MILL_OPTION_OTHER, .take = function, .argument = shown
#define COUNT(member, most)    MILL_OPTION_COUNT, AT(member), .min = 1, .max = most
#define ABOVE_0(member)        MILL_OPTION_REAL, AT(member), .min = MILL_ABOVE_0, .max = DBL_MAX

const mill_option_table mill_library_spectra_table = {
    "starmill library spectra",
    "usage: starmill library spectra --output LIB.h5 [options] FILE.fits|FOLDER|FILE.fits...\n"
    "\n"
    "spectra makes a library from labelled spectra: a FITS file with an image of spectra and a\n"
    "table of labels, a cube whose axes are labels, or a folder of files with one spectrum each\n"
    "(docs/use/libraries.md).\n"
    "\n",
    NULL,
    (const mill_option[]){
        MILL_LIBRARY_OUTPUT_ROWS(options),
        {"labels", OTHER(mill_take_labels, "NAME=COLUMN,..."), AT(in),
         .help = "labels of the library, and the columns of the table, cards of files with one "
                 "spectrum, or CTYPEs of a cube's axes that hold them (default "
                 "teff=TEFF,logg=LOGG,feh=FEH)"},
        {"table", MILL_OPTION_TEXT, AT(in.request.table), .argument = "FILE",
         .help = "table with the labels of files with one spectrum (default: their cards)"},
        MILL_LABELLED_FILE_ROWS(options, "WAVE,FLUX"),
        {"keep", OTHER(mill_take_named, "NAME=MIN:MAX,..."), AT(in.keep),
         .offset2 = offsetof(options, in.n_keep),
         .help = "drop spectra with labels outside these ranges"},
        {"medium", OTHER(mill_take_medium, "NAME"), AT(in),
         .help =
             "medium of the file's wavelengths, air or vacuum; needed unless its header gives it"},
        MILL_LABELLED_WAVE_ROWS(options),
        {"range", MILL_OPTION_PAIR, AT(settings.min_aa), .argument = "MIN,MAX",
         .offset2 = offsetof(options, settings.max_aa),
         .help = "range of the library in vacuum wavelengths, Angstrom (default: all)"},
        {"arm", MILL_OPTION_PATH, AT(settings.arm), .argument = "NAME",
         .help = "name of its arm (default opt)"},
        {"fwhm", ABOVE_0(fwhm_aa), .argument = "A",
         .help = "resolution of the spectra in Angstrom (default: FWHM of the header)"},
        {"sigma", ABOVE_0(sigma_aa), .argument = "A",
         .help = "the same, as the sigma of a Gaussian"},
        {"resolving-power", ABOVE_0(resolving_power), .argument = "R",
         .help = "the same, as wavelength over FWHM"},
        {"at-instrument-resolution", MILL_OPTION_FLAG, AT(at_instrument),
         .help = "the spectra have the resolution of the instrument whose stars will be fitted"},
        {"continuum", OTHER(take_continuum, "N|keep"),
         .help = "degree of the polynomials removed from ln flux (default 8)"},
        {"components", COUNT(settings.n_component, MILL_MAX_WIDTH),
         .help = "principal components (default 40)"},
        {"degree", COUNT(settings.degree, MILL_MAX_RBF_DEGREE),
         .help = "degree of the polynomial added to the radial functions (default 2)"},
        {"smoothing", ABOVE_0(settings.smoothing),
         .help = "smoothing of all components (default: of each by leave-one-out)"},
        {"lengths", OTHER(mill_take_named, "NAME=X,..."), AT(length),
         .offset2 = offsetof(options, n_length),
         .help = "length scale along each label, in its standard deviations (default 1)"},
        {"keep-outliers", MILL_OPTION_FLAG, AT(settings.keep_outliers),
         .help = "keep spectra unlike those with similar labels, at full weight"},
        {"align", MILL_OPTION_FLAG, AT(settings.align),
         .help = "measure the velocities of the spectra and remove them"},
        {"hull", MILL_OPTION_CHOICE, AT(hull), .words = hull_words,
         .help = "hulls of the labels: around all spectra, or without isolated ones "
                 "(default: all with --keep-outliers, else dense)"},
        {"guess-templates", COUNT(settings.n_guess, 10000),
         .help = "most templates of the initial guess (default 300)"},
        {"left-out", MILL_OPTION_REAL, AT(left_out), .max = 0.5, .argument = "PART",
         .help = "fraction of the spectra to leave out of a second library that measures this one "
                 "(default 0.1); 0: no report"},
        {"seed", MILL_OPTION_SEED, AT(seed), .argument = "N",
         .help = "seed of the choice of spectra to leave out (default 1)"},
        {"model-error", MILL_OPTION_COUNT, AT(settings.n_error), .max = MILL_MAX_ERROR,
         .help = "measure the model error on the spectra left out, with N components, for use by "
                 "fits (default: no)"},
        {"spectra-sn", MILL_OPTION_REAL, AT(settings.error_sn), .min = 1, .max = DBL_MAX,
         .help = "S/N of a pixel of the spectra, to separate noise from model error (default: no "
                 "noise)"},
        {"threads", COUNT(settings.n_thread, 4096),
         .help = "threads (default: all cores available to this process)"},
        MILL_OPTION_HELP(options),
        {0}}};

static int parse(int argc, char **argv, options *o, int *first_file)
{
  int first = 0;
  unsigned char given[MILL_OPTION_MAX] = {0};
  snprintf(o->in.request.name_column, sizeof o->in.request.name_column, "FILE");
  MILL_CHECK(mill_option_parse(&mill_library_spectra_table, argc, argv, o, given, &first));
  const mill_option_need need[] = {
      {"spectra-sn", o->settings.n_error >= 0, "without --model-error"},
      {"seed", o->left_out > 0, "with --left-out 0"}};
  MILL_CHECK(mill_option_check_needs(&mill_library_spectra_table, given,
                                     (int)(sizeof need / sizeof *need), need));
  if (o->help)
    return MILL_OK;
  if (!o->output)
    return MILL_ERROR(MILL_ERR_USAGE, "library spectra needs --output LIB.h5");
  if (argc == first)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "library spectra needs one file of spectra, a folder, or several files "
                      "of one spectrum each");
  *first_file = first;
  MILL_CHECK(mill_labelled_check_options(&mill_library_spectra_table, given, &o->in));
  if (!(o->settings.min_aa < o->settings.max_aa))
    return MILL_ERROR(MILL_ERR_USAGE, "--range takes MIN,MAX with MIN below MAX");
  if (!isnan(o->fwhm_aa) + !isnan(o->sigma_aa) + !isnan(o->resolving_power) + o->at_instrument > 1)
    return MILL_ERROR(MILL_ERR_USAGE, "give only one of --fwhm, --sigma, --resolving-power and "
                                      "--at-instrument-resolution");
  return MILL_OK;
}

/* The labels' columns to the reader, names, ranges and lengths to the builder. */
static int bind_labels(options *o)
{
  if (o->in.n_label == 0)
    MILL_CHECK(mill_labelled_default_labels(&o->in));
  o->in.request.n_label = o->in.n_label;
  for (int l = 0; l < o->in.n_label; l++) {
    memcpy(o->in.request.column[l], o->in.label[l].column, MILL_MAX_NAME);
    memcpy(o->settings.label[l].name, o->in.label[l].name, MILL_MAX_NAME);
  }
  for (int list = 0; list < 2; list++) {
    const mill_named *item = list ? o->length : o->in.keep;
    const int n = list ? o->n_length : o->in.n_keep;
    for (int i = 0; i < n; i++) {
      int l = 0;
      while (l < o->in.n_label && strcmp(o->in.label[l].name, item[i].name) != 0)
        l++;
      if (l == o->in.n_label)
        return MILL_ERROR(MILL_ERR_USAGE, "%s %s: not one of the labels (--labels)",
                          list ? "--lengths" : "--keep", item[i].name);
      if (list) {
        o->settings.label[l].length = item[i].length;
      } else {
        o->settings.label[l].min = item[i].min;
        o->settings.label[l].max = item[i].max;
      }
    }
  }
  return MILL_OK;
}

/* ---- resolution -------------------------------------------------------------------------------
 */

static int choose_resolution(const options *o, const char *path, const mill_labelled_spectra *in,
                             const mill_labelled_origin *origin, mill_spectra_library_settings *set)
{
  char *text = set->sigma_origin;
  const size_t size = sizeof set->sigma_origin;
  if (o->at_instrument) {
    set->template_sigma_aa = -1;
    snprintf(text, size, "--at-instrument-resolution");
  } else if (!isnan(o->sigma_aa)) {
    set->template_sigma_aa = o->sigma_aa;
    snprintf(text, size, "--sigma");
  } else if (!isnan(o->fwhm_aa)) {
    set->template_sigma_aa = o->fwhm_aa / FWHM_PER_SIGMA;
    snprintf(text, size, "--fwhm %g A", o->fwhm_aa);
  } else if (!isnan(o->resolving_power)) {
    /* the library holds one sigma for an arm */
    const double low = fmax(set->min_aa, in->wave_aa[0]);
    const double high = fmin(set->max_aa, in->wave_aa[in->n_pix - 1]), mid = 0.5 * (low + high);
    set->template_sigma_aa = mid / (FWHM_PER_SIGMA * o->resolving_power);
    snprintf(text, size,
             "--resolving-power %g in the middle, at %.0f A; %.3f A at %.0f A, %.3f A "
             "at %.0f A",
             o->resolving_power, mid, low / (FWHM_PER_SIGMA * o->resolving_power), low,
             high / (FWHM_PER_SIGMA * o->resolving_power), high);
  } else if (!isnan(origin->fwhm_aa)) {
    if (!(origin->fwhm_aa > 0))
      return MILL_ERROR(MILL_ERR_INPUT, "%s: its card FWHM is %g; give --fwhm A", path,
                        origin->fwhm_aa);
    set->template_sigma_aa = origin->fwhm_aa / FWHM_PER_SIGMA;
    snprintf(text, size, "card FWHM, %g A", origin->fwhm_aa);
  } else {
    return MILL_ERROR(
        MILL_ERR_USAGE,
        "%s does not give its resolution (no card FWHM), which the fit needs to match "
        "the stars'; give --fwhm A, --sigma A, --resolving-power R or "
        "--at-instrument-resolution",
        path);
  }
  /* mill_library_check would say so after the work */
  const double width_aa =
      fmin(set->max_aa, in->wave_aa[in->n_pix - 1]) - fmax(set->min_aa, in->wave_aa[0]);
  if (width_aa > 0 && set->template_sigma_aa > MILL_MAX_SIGMA_WIDTH * width_aa)
    return MILL_ERROR(
        MILL_ERR_USAGE,
        "%s: the resolution is sigma %g A (%s), expected at most %.3g A for spectra of %.6g A",
        path, set->template_sigma_aa, text, MILL_MAX_SIGMA_WIDTH * width_aa, width_aa);
  return MILL_OK;
}

/* ---- report ------------------------------------------------------------------------------------
 */

/* The n spectra with a mark of this value: names of their files, or rows from 1 as FITS counts
   them, runs as 3-7. */
static void print_rows(const char *what, int n, const mill_labelled_spectra *in,
                       const unsigned char *mark, int value)
{
  printf("  %4d %s: %s%s ", n, what, in->name ? "file" : "row", n == 1 ? "" : "s");
  int n_printed = 0;
  for (int i = 0; i < in->n_spectrum; i++) {
    int last = i;
    if (mark[i] != value)
      continue;
    if (in->name) {
      printf("%s%s", n_printed++ ? ", " : "", in->name[i]);
      continue;
    }
    while (last + 1 < in->n_spectrum && mark[last + 1] == value)
      last++;
    printf("%s%d", n_printed++ ? ", " : "", i + 1);
    if (last > i)
      printf("-%d", last + 1);
    i = last;
  }
  printf("\n");
}

/* Name or row of spectrum i. */
static const char *spectrum_name(const mill_labelled_spectra *in, int i, char text[MILL_MAX_NAME])
{
  snprintf(text, MILL_MAX_NAME, "%d", i + 1);
  return in->name ? in->name[i] : text;
}

static void print_doubtful(const mill_labelled_spectra *in, const mill_spectra_report *report)
{
  int n = 0;
  char text[MILL_MAX_NAME];
  for (int i = 0; i < report->n_spectrum; i++)
    n += report->fate[i] == MILL_SPECTRUM_USED && report->weight[i] < 0.5;
  if (n == 0)
    return;
  printf("  %4d of those used have a weight below 0.5: %s%s ", n, in->name ? "file" : "row",
         n == 1 ? "" : "s");
  for (int i = 0, k = 0; i < report->n_spectrum; i++)
    if (report->fate[i] == MILL_SPECTRUM_USED && report->weight[i] < 0.5)
      printf("%s%s (%.2f)", k++ ? ", " : "", spectrum_name(in, i, text), report->weight[i]);
  printf("\n");
}

/* Spectra with bad pixels, and where none is. */
static void print_gaps(const mill_spectra_report *report)
{
  int n = 0;
  double most = 0;
  for (int i = 0; i < report->n_spectrum; i++)
    if (report->fate[i] == MILL_SPECTRUM_USED && report->gap[i] > 0) {
      n++;
      most = fmax(most, report->gap[i]);
    }
  if (n > 0)
    printf(
        "  %4d of those used have gaps (bad pixels%s), which the functions of the labels fill: at "
        "most %.2g %%\n",
        n, report->n_align > 0 ? ", and beyond the ends of what was moved" : "", 100 * most);
  if ((n > 0 || report->n_fate[MILL_SPECTRUM_BAD_FLUX] > 0) && report->good_max_aa > 0)
    printf("       no spectrum has a bad pixel from %.2f to %.2f A\n", report->good_min_aa,
           report->good_max_aa);
}

/* What --align did. */
static void print_velocities(const mill_labelled_spectra *in, const mill_spectra_report *report)
{
  double scatter = 0, most = 0;
  char text[MILL_MAX_NAME];
  int n = 0, row = 0;
  for (int i = 0; i < report->n_spectrum; i++)
    if (report->fate[i] == MILL_SPECTRUM_USED) {
      const double v = report->velocity[i];
      scatter += v * v;
      n++;
      if (fabs(v) > fabs(most)) {
        most = v;
        row = i;
      }
    }
  printf("velocities removed from the spectra: rms %.2f km/s, the largest %.2f km/s (%s %s); %d "
         "rounds, the last one changed them by %.3f km/s\n",
         sqrt(scatter / n), most, in->name ? "file" : "row", spectrum_name(in, row, text),
         report->n_align, report->align_step);
}

static void print_report(const options *o, const mill_labelled_spectra *in, const mill_library *lib,
                         const mill_labelled_origin *origin, const mill_spectra_report *report)
{
  const mill_arm *arm = &lib->arm[0];
  printf("wavelengths: %s, %s (%s)%s\n", origin->wavelengths, origin->is_air ? "air" : "vacuum",
         origin->medium_key, origin->is_air ? ", converted to vacuum" : "");
  if (arm->template_sigma_aa < 0)
    printf("resolution: the instrument's own, no resolution of spectra applies (%s)\n",
           arm->sigma_origin);
  else
    printf("resolution: sigma %.4f A of the templates, removed from that of the spectra to be "
           "fitted (%s)\n",
           arm->template_sigma_aa, arm->sigma_origin);
  printf("arm %s: %.2f to %.2f A, %d pixels of %.3f km/s\n", arm->name, arm->wave_aa[0],
         arm->wave_aa[arm->n_pix - 1], arm->n_pix, MILL_C_KM_S * arm->ln_step);
  if (o->settings.continuum >= 0)
    printf("continuum: polynomials up to degree %d removed from ln flux\n", o->settings.continuum);
  else
    printf("continuum: kept\n");
  printf("spectra: %d of %d used\n", report->n_fate[MILL_SPECTRUM_USED], report->n_spectrum);
  for (int fate = 1; fate < MILL_N_SPECTRUM_FATE; fate++)
    if (report->n_fate[fate] > 0)
      print_rows(mill_spectrum_fate_text(fate), report->n_fate[fate], in, report->fate, fate);
  print_doubtful(in, report);
  print_gaps(report);
  if (report->n_outside > 0)
    print_rows("of those used lie outside the hulls of the others (--hull all takes them in)",
               report->n_outside, in, report->outside, 1);
  printf("components: %d, with %.3f %% of the variance; polynomial of degree %d%s, smoothing %.3g "
         "to %.3g%s\n",
         report->n_component, 100 * report->kept_variance, report->degree,
         report->degree < o->settings.degree ? " (what the labels determine)" : "",
         report->smooth_min, report->smooth_max,
         o->settings.smoothing > 0 ? "" : " (by leave-one-out)");
  if (report->n_align > 0)
    print_velocities(in, report);
  if (report->model_error.n > 0)
    mill_library_print_error(arm->name, &arm->error, &report->model_error);
}

/* The report from spectra left out, by a library that is made without them. */
static int measure(const options *o, const mill_spectra_report *report, const mill_model_set *used,
                   mill_library *lib)
{
  int err = MILL_OK;
  char how[160];
  mill_library *without = NULL;
  mill_model_set left_out = {0};
  MILL_TRY(MILL_ALLOC(1, &without));
  MILL_TRY(mill_spectra_left_out(&o->settings, lib, report, used, o->left_out, o->seed, without,
                                 &left_out));
  if (left_out.n == 0)
    MILL_FAIL(MILL_ERR_INPUT, "no spectrum is surrounded by others, so none can be left out");
  snprintf(how, sizeof how,
           "of %d spectra; measured with a library made without them; this one uses all", used->n);
  MILL_TRY(mill_library_measure(without, &left_out, o->settings.n_thread,
                                MILL_MODEL_ERROR_COMPONENT, how, 0, lib));
done:
  mill_model_set_clear(&left_out);
  mill_library_clear(without);
  mill_free(without);
  return mill_without_report(err);
}

/* ---- job ----------------------------------------------------------------------------------------
 */

/* Overwriting the input would destroy data that cannot be remade. */
static int check_output(const options *o, const char *const *input, int n_input)
{
  mill_file_roles roles = {0};
  MILL_CHECK(mill_file_roles_write(&roles, "--output", o->output));
  MILL_CHECK(mill_file_roles_read(&roles, "--table", o->in.request.table));
  MILL_CHECK(mill_file_roles_read(&roles, "--wave-file", o->in.request.wave_file));
  for (int i = 0; i < n_input; i++)
    MILL_CHECK(mill_file_roles_read(&roles, "the file of spectra", input[i]));
  return mill_library_writable(o->output, o->overwrite);
}

/* Inputs of the command line: one file of many spectra, a folder, or files of one each. */
static int read_spectra(const options *o, int n_path, char **path, mill_labelled_spectra *spectra,
                        mill_labelled_origin *origin)
{
  int err = MILL_OK, n_listed = 0;
  char **listed = NULL;
  if (n_path == 1)
    MILL_TRY(mill_labelled_files_list(path[0], &listed, &n_listed));
  const char *const *file = (const char *const *)(listed ? listed : path);
  const int n_file = listed ? n_listed : n_path;
  MILL_TRY(check_output(o, file, n_file));
  const int is_many = !listed && n_path == 1;
  if (is_many && (o->in.request.table || o->in.request.flux_column[0]))
    MILL_FAIL(MILL_ERR_USAGE,
              "--table and --columns are for files with one spectrum; %s is not a folder", path[0]);
  MILL_TRY(mill_labelled_read(file, n_file, is_many, &o->in.request, spectra, origin));
done:
  mill_labelled_files_free(listed, n_listed);
  return err;
}

int mill_job_library_spectra(int argc, char **argv)
{
  int err = MILL_OK;
  options *o = NULL;
  mill_library *lib = NULL;
  mill_labelled_spectra spectra = {0};
  mill_labelled_origin origin;
  mill_spectra_report report = {0};
  mill_model_set used = {0};
  MILL_TRY(MILL_ALLOC(1, &o));
  MILL_TRY(MILL_ALLOC(1, &lib));
  o->fwhm_aa = o->sigma_aa = o->resolving_power = NAN;
  o->hull = -1;
  o->left_out = 0.1;
  o->seed = 1;
  o->in.request.limits.gzip_limit_mib = MILL_GZIP_LIMIT_MIB;
  mill_spectra_library_settings_init(&o->settings);
  o->settings.n_thread = 0;
  snprintf(o->settings.arm, sizeof o->settings.arm, "opt");
  int first = 0;
  MILL_TRY(parse(argc, argv, o, &first));
  if (mill_option_helped(o->help, 0, &mill_library_spectra_table, NULL))
    goto done;
  const char *path = argv[first];
  MILL_TRY(bind_labels(o));
  o->settings.hull_all = o->hull < 0 ? o->settings.keep_outliers : o->hull == HULL_ALL;
  MILL_TRY(mill_mpi_alone_threads(&o->settings.n_thread));
  MILL_TRY(read_spectra(o, argc - first, argv + first, &spectra, &origin));
  MILL_TRY(choose_resolution(o, path, &spectra, &origin, &o->settings));
  mill_last_of_path(path, o->settings.source, sizeof o->settings.source);
  MILL_TRY(mill_spectra_library_build(&o->settings, &spectra, lib, &report, &used));
  snprintf(lib->name, sizeof lib->name, "spectra of %.100s", o->settings.source);
  print_report(o, &spectra, lib, &origin, &report);
  if (o->left_out > 0)
    MILL_TRY(measure(o, &report, &used, lib));
  MILL_TRY(mill_library_keep(o->output, o->overwrite, lib));
done:
  mill_labelled_spectra_clear(&spectra);
  mill_spectra_report_clear(&report);
  mill_model_set_clear(&used);
  mill_library_clear(lib);
  mill_free(lib);
  mill_free(o);
  return err;
}
