#include "jobs/library/library_spectra.h"

#include "jobs/library/library_error.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mpi.h>

#include "io/library/labelled_spectra.h"
#include "io/library/library_file.h"
#include "kernels/base/error.h"
#include "src/system/file_roles.h"
#include "src/ranks/mpi_context.h"
#include "src/libraries/spectra_library.h"
#include "src/system/thread.h"

#define FWHM_PER_SIGMA 2.3548200450309493

/* Named values, as --labels, --keep and --lengths give them. */
typedef struct named {
  char name[MILL_MAX_NAME];
  char column[MILL_MAX_NAME];
  double min, max, length;
} named;

enum { MAX_NAMED = 2 * MILL_MAX_GRID_AXIS };

typedef struct options {
  const char *output;
  int overwrite, help;
  int n_label, n_keep, n_length;
  named label[MAX_NAMED], keep[MAX_NAMED], length[MAX_NAMED];
  double fwhm_aa, sigma_aa, resolving_power; /* NAN: not given */
  int at_instrument;
  int n_thread; /* 0: not given */
  mill_labelled_request request;
  mill_spectra_library_settings settings;
} options;

/* ---- options -------------------------------------------------------------------------------- */

/* A number at text that ends at one of the characters of stop, *end there; NAN: none. */
static double number_at(const char *text, const char *stop, const char **end)
{
  char *after = NULL;
  errno = 0;
  const double x = strtod(text, &after);
  *end = after;
  return after == text || errno || !isfinite(x) || !strchr(stop, *after) ? NAN : x;
}

/* NAME=... up to the next comma; *text moves past it, NULL at the end. value [size] */
static int next_item(const char *option, const char *all, const char **text, char *name,
                     char *value, size_t size)
{
  int err = MILL_OK;
  const size_t n = strcspn(*text, ",");
  const char *equal = memchr(*text, '=', n);
  if (!equal || equal == *text || (size_t)(equal - *text) >= MILL_MAX_NAME ||
      n - (size_t)(equal - *text) - 1 >= size || equal + 1 == *text + n)
    MILL_FAIL(MILL_ERR_USAGE, "--%s %s: expected NAME=... with commas between them", option, all);
  memcpy(name, *text, (size_t)(equal - *text));
  name[equal - *text] = '\0';
  const size_t n_value = n - (size_t)(equal - *text) - 1;
  memcpy(value, equal + 1, n_value);
  value[n_value] = '\0';
  *text = (*text)[n] ? *text + n + 1 : NULL;
done:
  return err;
}

/* NAME=COLUMN,...; row: NULL is allowed */
static int take_labels(const mill_option *row, const char *text, void *base)
{
  options *o = base;
  int err = MILL_OK;
  (void)row;
  o->n_label = 0;
  for (const char *at = text; at;) {
    if (o->n_label == MILL_MAX_GRID_AXIS)
      MILL_FAIL(MILL_ERR_USAGE, "--labels %s: at most %d labels are possible", text,
                MILL_MAX_GRID_AXIS);
    named *label = &o->label[o->n_label++];
    MILL_TRY(next_item("labels", text, &at, label->name, label->column, sizeof label->column));
    if (strpbrk(label->column, "*?#")) /* CFITSIO's wild cards */
      MILL_FAIL(MILL_ERR_USAGE, "--labels %s: %s is no name of a column", text, label->column);
    for (const char *c = label->name; *c; c++)
      if (!isalnum((unsigned char)*c) && *c != '_')
        MILL_FAIL(MILL_ERR_USAGE, "--labels %s: a name is made of letters, digits and _", text);
    for (int i = 0; i < o->n_label - 1; i++)
      if (strcmp(o->label[i].name, label->name) == 0)
        MILL_FAIL(MILL_ERR_USAGE, "--labels %s: %s is there twice", text, label->name);
  }
done:
  return err;
}

/* NAME=MIN:MAX for --keep, NAME=X for --lengths, added to those given before. */
static int take_named(const mill_option *row, const char *text, void *base)
{
  int err = MILL_OK;
  const int is_range = strcmp(row->name, "keep") == 0;
  named *out = (named *)(void *)((char *)base + row->offset);
  int *n = (int *)(void *)((char *)base + row->offset2);
  for (const char *at = text; at;) {
    char value[80];
    const char *end;
    if (*n == MAX_NAMED)
      MILL_FAIL(MILL_ERR_USAGE, "--%s: more than %d values", row->name, MAX_NAMED);
    named *item = &out[(*n)++];
    MILL_TRY(next_item(row->name, text, &at, item->name, value, sizeof value));
    item->length = item->min = number_at(value, is_range ? ":" : "", &end);
    item->max = is_range && *end == ':' ? number_at(end + 1, "", &end) : NAN;
    if (is_range ? !(item->min < item->max) : !(item->length > 0))
      MILL_FAIL(MILL_ERR_USAGE, "--%s %s: expected %s", row->name, text,
                is_range ? "NAME=MIN:MAX, MIN below MAX" : "NAME=X with X above 0");
  }
done:
  return err;
}

static int take_medium(const mill_option *row, const char *text, void *base)
{
  static const char *const words[] = {"air", "vacuum", NULL};
  static const mill_option word = {.kind = MILL_OPTION_CHOICE, .words = words};
  options *o = base;
  int err = MILL_OK, i = 0;
  MILL_TRY(mill_option_read(&word, row->name, text, &i));
  o->request.medium = i == 0 ? MILL_MEDIUM_AIR : MILL_MEDIUM_VACUUM;
done:
  return err;
}

/* --wave and --log-wave */
static int take_wave(const mill_option *row, const char *text, void *base)
{
  static const mill_option pair = {.kind = MILL_OPTION_PAIR,
                                   .offset = offsetof(options, request.wave_first),
                                   .offset2 = offsetof(options, request.wave_step),
                                   .argument = "FIRST,STEP"};
  options *o = base;
  int err = MILL_OK;
  if (o->request.have_wave)
    MILL_FAIL(MILL_ERR_USAGE, "--wave and --log-wave exclude each other");
  o->request.have_wave = 1;
  o->request.wave_is_log10 = strcmp(row->name, "log-wave") == 0;
  MILL_TRY(mill_option_read(&pair, row->name, text, o));
done:
  return err;
}

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

#define NAMED(member, shown)                                                                       \
  OTHER(take_named, shown), AT(member), .offset2 = offsetof(options, n_##member)
#define AT(member)             MILL_AT(options, member)
#define OTHER(function, shown) MILL_OPTION_OTHER, .take = function, .argument = shown
#define COUNT(member, most)    MILL_OPTION_COUNT, AT(member), .min = 1, .max = most
#define ABOVE_0(member)        MILL_OPTION_REAL, AT(member), .min = MILL_ABOVE_0, .max = DBL_MAX

const mill_option_table mill_library_spectra_table = {
    "starmill library",
    "spectra makes a library from labelled spectra on one wavelength grid: a FITS file with an\n"
    "image of spectra and a table of labels (docs/use/libraries.md).\n",
    NULL,
    (const mill_option[]){
        {"output", MILL_OPTION_TEXT, AT(output), .argument = "LIB.h5",
         .help = "the library to write"},
        {"overwrite", MILL_OPTION_FLAG, AT(overwrite), .help = "replace LIB.h5 if it exists"},
        {"labels", OTHER(take_labels, "NAME=COLUMN,..."),
         .help = "the library's labels and their columns of the table (default "
                 "teff=TEFF,logg=LOGG,feh=FEH)"},
        {"keep", NAMED(keep, "NAME=MIN:MAX,..."), .help = "leave out spectra with labels outside"},
        {"medium", OTHER(take_medium, "NAME"),
         .help = "air or vacuum: of the file's wavelengths; needed unless its header says so"},
        {"wave", OTHER(take_wave, "FIRST,STEP"),
         .help = "wavelengths in Angstrom (default: from the header)"},
        {"log-wave", OTHER(take_wave, "FIRST,STEP"), .help = "the same, log10 of Angstrom"},
        {"range", MILL_OPTION_PAIR, AT(settings.min_aa), .argument = "MIN,MAX",
         .offset2 = offsetof(options, settings.max_aa),
         .help = "vacuum wavelengths of the library in Angstrom (default: all)"},
        {"arm", MILL_OPTION_PATH, AT(settings.arm), .argument = "NAME",
         .help = "name of its arm (default opt)"},
        {"fwhm", ABOVE_0(fwhm_aa), .argument = "A",
         .help = "resolution of the spectra in Angstrom (default: FWHM of the header)"},
        {"sigma", ABOVE_0(sigma_aa), .argument = "A",
         .help = "the same, as the sigma of a Gaussian"},
        {"resolving-power", ABOVE_0(resolving_power), .argument = "R",
         .help = "the same, as wavelength over FWHM"},
        {"at-instrument-resolution", MILL_OPTION_FLAG, AT(at_instrument),
         .help = "the spectra's resolution is the instrument's whose stars will be fitted"},
        {"continuum", OTHER(take_continuum, "N|keep"),
         .help = "degree of the polynomials that are taken out of ln flux (default 8)"},
        {"components", COUNT(settings.n_component, MILL_MAX_WIDTH),
         .help = "principal components (default 40)"},
        {"degree", COUNT(settings.degree, MILL_MAX_RBF_DEGREE),
         .help = "of the polynomial that is added to the radial functions (default 2)"},
        {"smoothing", ABOVE_0(settings.smoothing),
         .help = "of all components (default: each by leave-one-out)"},
        {"lengths", NAMED(length, "NAME=X,..."),
         .help = "units of distance along labels in their standard deviations (default 1)"},
        {"keep-outliers", MILL_OPTION_FLAG, AT(settings.keep_outliers),
         .help = "neither weigh down nor reject spectra unlike those with like labels"},
        {"guess-templates", COUNT(settings.n_guess, 10000),
         .help = "templates of the initial guess at most (default 50)"},
        {"recovery-sn", MILL_OPTION_REAL, AT(settings.recover_sn), .max = DBL_MAX,
         .help = "S/N at which the recovery of labels is measured (default 20); 0: do not measure"},
        {"model-error", MILL_OPTION_COUNT, AT(settings.n_error), .max = MILL_MAX_ERROR,
         .help = "measure the templates' errors on spectra left out, with so many components, for "
                 "fits to count them (default: no)"},
        {"spectra-sn", MILL_OPTION_REAL, AT(settings.error_sn), .min = 1, .max = DBL_MAX,
         .help = "S/N of a pixel of the spectra, whose noise is no model error (default: without "
                 "noise)"},
        {"threads", COUNT(n_thread, 4096),
         .help = "threads (default: the cores that this process may use)"},
        MILL_OPTION_HELP(options),
        {0}}};

static int parse(int argc, char **argv, options *o, const char **path)
{
  int err = MILL_OK, first = 0;
  MILL_TRY(mill_option_parse(&mill_library_spectra_table, argc, argv, o, NULL, &first));
  if (o->help)
    goto done;
  if (!o->output)
    MILL_FAIL(MILL_ERR_USAGE, "library spectra needs --output LIB.h5");
  if (argc - first != 1)
    MILL_FAIL(MILL_ERR_USAGE, "library spectra takes one file of spectra, not %d", argc - first);
  *path = argv[first];
  if (!(o->settings.min_aa < o->settings.max_aa))
    MILL_FAIL(MILL_ERR_USAGE, "--range takes MIN,MAX with MIN below MAX");
  MILL_TRY(mill_thread_check_number(o->n_thread));
  if (!isnan(o->fwhm_aa) + !isnan(o->sigma_aa) + !isnan(o->resolving_power) + o->at_instrument > 1)
    MILL_FAIL(MILL_ERR_USAGE, "--fwhm, --sigma, --resolving-power and --at-instrument-resolution "
                              "exclude one another");
done:
  return err;
}

/* The labels' columns to the reader, names, ranges and lengths to the builder. */
static int bind_labels(options *o)
{
  int err = MILL_OK;
  if (o->n_label == 0)
    MILL_TRY(take_labels(NULL, "teff=TEFF,logg=LOGG,feh=FEH", o));
  o->request.n_label = o->n_label;
  for (int l = 0; l < o->n_label; l++) {
    memcpy(o->request.column[l], o->label[l].column, MILL_MAX_NAME);
    memcpy(o->settings.label[l].name, o->label[l].name, MILL_MAX_NAME);
  }
  for (int list = 0; list < 2; list++) {
    const named *item = list ? o->length : o->keep;
    const int n = list ? o->n_length : o->n_keep;
    for (int i = 0; i < n; i++) {
      int l = 0;
      while (l < o->n_label && strcmp(o->label[l].name, item[i].name) != 0)
        l++;
      if (l == o->n_label)
        MILL_FAIL(MILL_ERR_USAGE, "%s %s: is none of the labels (--labels)",
                  list ? "--lengths" : "--keep", item[i].name);
      if (list) {
        o->settings.label[l].length = item[i].length;
      } else {
        o->settings.label[l].min = item[i].min;
        o->settings.label[l].max = item[i].max;
      }
    }
  }
done:
  return err;
}

/* ---- resolution -------------------------------------------------------------------------------
 */

static int choose_resolution(const options *o, const char *path, const mill_labelled_spectra *in,
                             const mill_labelled_origin *origin, mill_spectra_library_settings *set)
{
  int err = MILL_OK;
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
      MILL_FAIL(MILL_ERR_INPUT, "%s: its card FWHM is %g; give --fwhm A", path, origin->fwhm_aa);
    set->template_sigma_aa = origin->fwhm_aa / FWHM_PER_SIGMA;
    snprintf(text, size, "card FWHM, %g A", origin->fwhm_aa);
  } else {
    MILL_FAIL(MILL_ERR_USAGE,
              "%s does not say its resolution (no card FWHM); give --fwhm A, --sigma A or "
              "--resolving-power R, or --at-instrument-resolution",
              path);
  }
  /* mill_library_check would say so after the work */
  const double width_aa =
      fmin(set->max_aa, in->wave_aa[in->n_pix - 1]) - fmax(set->min_aa, in->wave_aa[0]);
  if (width_aa > 0 && set->template_sigma_aa > MILL_MAX_SIGMA_WIDTH * width_aa)
    MILL_FAIL(
        MILL_ERR_USAGE,
        "%s: a resolution of sigma %g A (%s) is none for spectra of %.6g A; at most %.3g A are "
        "possible",
        path, set->template_sigma_aa, text, width_aa, MILL_MAX_SIGMA_WIDTH * width_aa);
done:
  return err;
}

/* ---- report ------------------------------------------------------------------------------------
 */

/* Rows of one fate, from 1 as FITS counts them, runs as 3-7. */
static void print_rows(const mill_spectra_report *report, int fate)
{
  printf("  %4d %s: row%s ", report->n_fate[fate], mill_spectrum_fate_text(fate),
         report->n_fate[fate] == 1 ? "" : "s");
  int n_printed = 0;
  for (int i = 0; i < report->n_spectrum; i++) {
    int last = i;
    if (report->fate[i] != fate)
      continue;
    while (last + 1 < report->n_spectrum && report->fate[last + 1] == fate)
      last++;
    printf("%s%d", n_printed++ ? ", " : "", i + 1);
    if (last > i)
      printf("-%d", last + 1);
    i = last;
  }
  printf("\n");
}

static void print_doubtful(const mill_spectra_report *report)
{
  int n = 0;
  for (int i = 0; i < report->n_spectrum; i++)
    n += report->fate[i] == MILL_SPECTRUM_USED && report->weight[i] < 0.5;
  if (n == 0)
    return;
  printf("  %4d of those used have a weight below 0.5: row%s ", n, n == 1 ? "" : "s");
  for (int i = 0, k = 0; i < report->n_spectrum; i++)
    if (report->fate[i] == MILL_SPECTRUM_USED && report->weight[i] < 0.5)
      printf("%s%d (%.2f)", k++ ? ", " : "", i + 1, report->weight[i]);
  printf("\n");
}

static void print_report(const options *o, const mill_library *lib,
                         const mill_labelled_origin *origin, const mill_spectra_report *report)
{
  const mill_arm *arm = &lib->arm[0];
  printf("wavelengths: %s, %s (%s)%s\n", origin->wavelengths, origin->is_air ? "air" : "vacuum",
         origin->medium_key, origin->is_air ? ", converted to vacuum" : "");
  if (arm->template_sigma_aa < 0)
    printf("resolution: the instrument's own, no resolution of spectra applies (%s)\n",
           arm->sigma_origin);
  else
    printf("resolution: sigma %.4f A in the templates, taken out of that of the spectra to be "
           "fitted (%s)\n",
           arm->template_sigma_aa, arm->sigma_origin);
  printf("arm %s: %.2f to %.2f A, %d pixels of %.3f km/s\n", arm->name, arm->wave_aa[0],
         arm->wave_aa[arm->n_pix - 1], arm->n_pix, MILL_C_KM_S * arm->ln_step);
  if (o->settings.continuum >= 0)
    printf("continuum: polynomials up to degree %d taken out of ln flux\n", o->settings.continuum);
  else
    printf("continuum: kept\n");
  printf("spectra: %d of %d used\n", report->n_fate[MILL_SPECTRUM_USED], report->n_spectrum);
  for (int fate = 1; fate < MILL_N_SPECTRUM_FATE; fate++)
    if (report->n_fate[fate] > 0)
      print_rows(report, fate);
  print_doubtful(report);
  printf("components: %d, with %.3f %% of the variance; polynomial of degree %d%s, smoothing %.3g "
         "to %.3g%s\n",
         report->n_component, 100 * report->kept_variance, report->degree,
         report->degree < o->settings.degree ? " (what the labels determine)" : "",
         report->smooth_min, report->smooth_max,
         o->settings.smoothing > 0 ? "" : " (by leave-one-out)");
  printf("error of spectra left out one at a time, rms over pixels: median %.2f %%, 95 %% below "
         "%.2f %%\n",
         report->error_median, report->error_p95);
  if (report->model_error.n > 0)
    mill_library_print_error(arm->name, &arm->error, &report->model_error);
  if (report->n_recovered > 0) {
    printf(
        "labels of spectra left out, with noise of S/N %g a pixel, recovered minus given: median, "
        "robust scatter\n",
        o->settings.recover_sn);
    for (int l = 0; l < lib->n_label; l++)
      printf("  %-8s %10.3f %10.3f %s\n", lib->label[l].name, report->bias[l], report->scatter[l],
             lib->label[l].unit);
  }
}

/* ---- job ----------------------------------------------------------------------------------------
 */

/* Overwriting the input would destroy what cannot be made again. */
static int check_output(const options *o, const char *input)
{
  int err = MILL_OK;
  mill_file_roles roles = {0};
  MILL_TRY(mill_file_roles_write(&roles, "--output", o->output));
  MILL_TRY(mill_file_roles_read(&roles, "the file of spectra", input));
  if (!o->overwrite && access(o->output, F_OK) == 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: exists; give another name or --overwrite", o->output);
done:
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
  MILL_TRY(MILL_ALLOC(1, &o));
  MILL_TRY(MILL_ALLOC(1, &lib));
  o->fwhm_aa = o->sigma_aa = o->resolving_power = NAN;
  o->request.limits.gzip_limit_mib = MILL_GZIP_LIMIT_MIB;
  mill_spectra_library_settings_init(&o->settings);
  snprintf(o->settings.arm, sizeof o->settings.arm, "opt");
  const char *path = NULL;
  MILL_TRY(parse(argc, argv, o, &path));
  if (o->help) {
    printf("usage: starmill library spectra --output LIB.h5 [options] FILE.fits\n\n");
    mill_option_print_help(&mill_library_spectra_table, NULL, stdout);
    goto done;
  }
  const char *slash = strrchr(path, '/');
  MILL_TRY(bind_labels(o));
  MILL_TRY(check_output(o, path));
  o->settings.n_thread = o->n_thread;
  if (o->n_thread == 0) {
    /* other ranks only wait, their cores count as this one's */
    const mill_mpi alone = {.comm = MPI_COMM_SELF, .stop_comm = MPI_COMM_NULL, .size = 1};
    MILL_TRY(mill_mpi_share_of_cores(&alone, &o->settings.n_thread));
  }
  MILL_TRY(mill_labelled_spectra_read(path, &o->request, &spectra, &origin));
  MILL_TRY(choose_resolution(o, path, &spectra, &origin, &o->settings));
  snprintf(o->settings.source, sizeof o->settings.source, "%s", slash ? slash + 1 : path);
  MILL_TRY(mill_spectra_library_build(&o->settings, &spectra, lib, &report));
  snprintf(lib->name, sizeof lib->name, "spectra of %.100s", o->settings.source);
  MILL_TRY(mill_library_write(o->output, lib, o->overwrite));
  mill_library_digest(lib, lib->hash);
  print_report(o, lib, &origin, &report);
  printf("%s: %d labels, hash %s\n", o->output, lib->n_label, lib->hash);
done:
  mill_labelled_spectra_clear(&spectra);
  mill_spectra_report_clear(&report);
  mill_library_clear(lib);
  mill_free(lib);
  mill_free(o);
  return err;
}
