/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/library/library_error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/library/labelled_spectra.h"
#include "io/library/library_file.h"
#include "jobs/library/library_rows.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/libraries/model_error.h"
#include "src/system/file_roles.h"

/* What cards are rounded to. */
#define SIGMA_TOLERANCE 0.01

typedef struct options {
  const char *output, *spectra;
  int overwrite, help;
  int n_component, n_continuum, medium;
  double sn;       /* inf: without noise */
  double sigma_aa; /* of the spectra; NaN: as their card FWHM says */
  int n_arm, n_column;
  char arm[MILL_MAX_ARM][MILL_MAX_NAME];
  char column[MILL_MAX_GRID_AXIS][MILL_MAX_NAME];
} options;

static_assert(MILL_MEDIUM_AUTO == 0 && MILL_MEDIUM_VACUUM == 1 && MILL_MEDIUM_AIR == 2,
              "order of the words");
static const char *const media[] = {"auto", "vacuum", "air", NULL};

#define AT(member) MILL_AT(options, member)
#define NAMES(member, most)                                                                        \
  MILL_OPTION_NAMES, .offset = offsetof(options, member), .size = MILL_MAX_NAME, .max = (most),    \
                     .offset2 = offsetof(options, n_##member)
const mill_option_table mill_library_error_table = {
    "starmill library model-error",
    "usage: starmill library model-error --spectra FILE.fits --output LIB.h5 [options] LIBRARY.h5\n"
    "\n"
    "model-error measures the error of a library's templates from rest-frame spectra with known\n"
    "labels, at the templates' resolution or lower, and writes the library with this error.\n"
    "\n",
    NULL,
    (const mill_option[]){
        MILL_LIBRARY_OUTPUT_ROWS(options),
        {"spectra", MILL_OPTION_TEXT, AT(spectra), .argument = "FILE.fits",
         .help = "an image of spectra and a table of their labels, as library spectra reads them"},
        {"columns", NAMES(column, MILL_MAX_GRID_AXIS), .argument = "TEFF,LOGG,...",
         .help = "columns of the labels, in the library's order (default: the library's own)"},
        {"arms", NAMES(arm, MILL_MAX_ARM), .argument = "b,r",
         .help = "arms to measure (default: those at least half covered by the spectra); the "
                 "others keep their model error"},
        {"medium", MILL_OPTION_CHOICE, AT(medium), .words = media,
         .help = "medium of the wavelengths; auto follows the header"},
        {"components", MILL_OPTION_COUNT, AT(n_component), .max = MILL_MAX_ERROR,
         .help = "principal components per arm (default 8)"},
        {"continuum", MILL_OPTION_COUNT, AT(n_continuum), .min = 4, .max = MILL_MAX_CONT,
         .help = "continuum functions per spectrum in an arm, as in the fits (default 10)"},
        {"spectra-sn", MILL_OPTION_REAL, AT(sn), .min = 1, .max = DBL_MAX,
         .help = "S/N of a pixel of the spectra, to separate noise from model error (default: no "
                 "noise)"},
        {"spectra-sigma", MILL_OPTION_REAL, AT(sigma_aa), .min = 0, .max = DBL_MAX, .argument = "A",
         .help = "resolution of the spectra, Gaussian sigma in Angstrom (default: their card FWHM, "
                 "else that of the templates)"},
        MILL_OPTION_HELP(options),
        {0}}};
#undef NAMES
#undef AT

void mill_library_print_error(const char *arm, const mill_model_error *error,
                              const mill_model_error_report *report)
{
  printf("model error of arm %s: %.3f %% of the flux, rms of %d spectra; %d component%s leave "
         "%.1f %% of its variance, correlated over %.2f A\n",
         arm, 100 * report->rms, report->n, error->n_component, error->n_component == 1 ? "" : "s",
         100 * report->left, report->correlation_aa);
}

static int parse(int argc, char **argv, options *o, const char **path)
{
  int first = 0;
  MILL_CHECK(mill_option_parse(&mill_library_error_table, argc, argv, o, NULL, &first));
  if (o->help)
    return MILL_OK;
  if (!o->output || !o->spectra)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "library model-error needs --spectra FILE.fits and --output LIB.h5");
  if (argc - first != 1)
    return MILL_ERROR(MILL_ERR_USAGE, "library model-error takes one library, not %d",
                      argc - first);
  *path = argv[first];
  return MILL_OK;
}

static int check_files(const options *o, const char *path)
{
  mill_file_roles roles = {0};
  MILL_CHECK(mill_file_roles_write(&roles, "--output", o->output));
  MILL_CHECK(mill_file_roles_read(&roles, "the library", path));
  MILL_CHECK(mill_file_roles_read(&roles, "--spectra", o->spectra));
  return mill_library_writable(o->output, o->overwrite);
}

static int read_spectra(options *o, const mill_library *lib, mill_labelled_spectra *spectra)
{
  mill_labelled_request request = {.n_label = lib->n_label, .medium = o->medium};
  mill_labelled_origin origin;
  request.limits.gzip_limit_mib = MILL_GZIP_LIMIT_MIB;
  if (lib->n_label > MILL_MAX_GRID_AXIS)
    return MILL_ERROR(MILL_ERR_USAGE, "%s: has %d labels; spectra with up to %d can be read",
                      lib->path, lib->n_label, MILL_MAX_GRID_AXIS);
  if (o->n_column > 0 && o->n_column != lib->n_label)
    return MILL_ERROR(MILL_ERR_USAGE, "--columns gives %d names for %d labels of the library",
                      o->n_column, lib->n_label);
  for (int l = 0; l < lib->n_label; l++)
    memcpy(request.column[l], o->n_column > 0 ? o->column[l] : lib->label[l].column, MILL_MAX_NAME);
  MILL_CHECK(mill_labelled_read(&o->spectra, 1, 1, &request, spectra, &origin));
  if (isnan(o->sigma_aa))
    o->sigma_aa = origin.fwhm_aa / 2.3548200450309493;
  return MILL_OK;
}

/* Spectra whose labels are known and inside the hulls, moved to the front; their number. */
static int keep_inside(const mill_library *lib, mill_labelled_spectra *s)
{
  const size_t n_label = (size_t)s->n_label, n_pix = (size_t)s->n_pix;
  int n = 0;
  for (int i = 0; i < s->n_spectrum; i++) {
    const double *label = s->label + (size_t)i * n_label;
    /* NaN fails */
    if (!(mill_library_hull_distance(lib, label) <= 0))
      continue;
    memmove(s->label + (size_t)n * n_label, label, n_label * sizeof *label);
    memmove(s->flux + (size_t)n * n_pix, s->flux + (size_t)i * n_pix, n_pix * sizeof *s->flux);
    n++;
  }
  return n;
}

/* By how much the spectra are broader than the templates of an arm, 0 where no option says so. */
static int missing_sigma(const options *o, const mill_arm *arm, double *kernel_aa)
{
  *kernel_aa = 0;
  if (isnan(o->sigma_aa) || arm->template_sigma_aa < 0) /* those are at the instrument's
   * resolution */
    return MILL_OK;
  if (o->sigma_aa < arm->template_sigma_aa * (1 - SIGMA_TOLERANCE))
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%s: spectra of sigma %.4g A are sharper than the templates of arm %s, %.4g A; "
        "convolve them, or give --spectra-sigma",
        o->spectra, o->sigma_aa, arm->name, arm->template_sigma_aa);
  if (o->sigma_aa > arm->template_sigma_aa * (1 + SIGMA_TOLERANCE)) {
    *kernel_aa = sqrt(o->sigma_aa * o->sigma_aa - arm->template_sigma_aa * arm->template_sigma_aa);
    printf("arm %s: templates convolved with sigma %.4g A to match the spectra's %.4g A\n",
           arm->name, *kernel_aa, o->sigma_aa);
  }
  return MILL_OK;
}

static int measure_arm(const options *o, int n, const mill_labelled_spectra *s, mill_library *lib,
                       int i_arm, int *n_measured)
{
  int err = MILL_OK, wanted = o->n_arm == 0;
  double kernel_aa;
  mill_arm *arm = &lib->arm[i_arm];
  mill_model_error error = {0};
  mill_model_error_report report;
  mill_residuals residuals = {
      .n = n, .n_pix = arm->n_pix, .noise = 1 / o->sn, .n_continuum = o->n_continuum};
  for (int i = 0; i < o->n_arm; i++)
    wanted |= strcmp(o->arm[i], arm->name) == 0;
  const double low = fmax(arm->wave_aa[0], s->wave_aa[0]);
  const double high = fmin(arm->wave_aa[arm->n_pix - 1], s->wave_aa[s->n_pix - 1]);
  if (!wanted ||
      (o->n_arm == 0 && high - low < 0.5 * (arm->wave_aa[arm->n_pix - 1] - arm->wave_aa[0])))
    goto done;
  MILL_TRY(missing_sigma(o, arm, &kernel_aa));
  MILL_TRY(mill_model_error_residuals(lib, i_arm, n, s->n_pix, s->wave_aa, s->flux, s->label,
                                      kernel_aa, &residuals));
  MILL_TRY(mill_model_error_measure(arm->wave_aa, &residuals, o->n_component, &error, &report));
  mill_model_error_clear(&arm->error);
  arm->error = error;
  mill_library_print_error(arm->name, &error, &report);
  ++*n_measured;
done:
  MILL_FREE(residuals.value, residuals.level);
  return err;
}

int mill_job_library_error(int argc, char **argv)
{
  int err = MILL_OK, n_measured = 0;
  const char *path = NULL;
  mill_library *lib = NULL;
  mill_labelled_spectra spectra = {0};
  options o = {.n_component = MILL_MODEL_ERROR_COMPONENT,
               .n_continuum = MILL_MODEL_ERROR_CONTINUUM,
               .sn = INFINITY,
               .sigma_aa = NAN};
  MILL_TRY(parse(argc, argv, &o, &path));
  if (mill_option_helped(o.help, 0, &mill_library_error_table, NULL))
    goto done;
  MILL_TRY(check_files(&o, path));
  MILL_TRY(MILL_ALLOC(1, &lib));
  MILL_TRY(mill_library_read(path, lib));
  for (int i = 0; i < o.n_arm; i++)
    if (mill_library_find_arm(lib, o.arm[i]) < 0)
      MILL_FAIL(MILL_ERR_USAGE, "--arms: %s has no arm %s", path, o.arm[i]);
  MILL_TRY(read_spectra(&o, lib, &spectra));
  const int n = keep_inside(lib, &spectra);
  printf("spectra: %d of %d have labels inside the library's hulls\n", n, spectra.n_spectrum);
  for (int a = 0; a < lib->n_arm; a++)
    MILL_TRY(measure_arm(&o, n, &spectra, lib, a, &n_measured));
  if (n_measured == 0)
    MILL_FAIL(MILL_ERR_INPUT,
              "%s: its spectra, %.0f to %.0f A, cover less than half of every arm of %s", o.spectra,
              spectra.wave_aa[0], spectra.wave_aa[spectra.n_pix - 1], path);
  MILL_TRY(mill_library_write(o.output, lib, o.overwrite));
  mill_library_digest(lib, lib->hash);
  printf("%s: %d arm%s measured, hash %s\n", o.output, n_measured, n_measured == 1 ? "" : "s",
         lib->hash);
done:
  mill_labelled_spectra_clear(&spectra);
  mill_library_clear(lib);
  mill_free(lib);
  return err;
}
