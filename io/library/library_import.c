/* SPDX-License-Identifier: BSD-3-Clause */
/* Emulators trained elsewhere -> a library: one HDF5 file per arm (docs/use/formats.md). */
#include "io/library/library_file.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "io/library/library_parts.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/math/hull.h"
#include "src/libraries/library_make.h"
#include "src/system/order.h"
#include "src/system/regular_file.h"

/* Relative to max(1, |y|) of the network's output y: the reference values are float32 ones, made
   from float32 labels, and their rounding grows with y. */
#define CHECK_TOLERANCE 1e-5
/* Templates that go with a resolution matrix carry this sigma by convention (revision ...rm, and of
   rvspecfit's own for DESI ...resolmat). */
#define MATRIX_SIGMA_AA 0.5

#define REFUSED(file, format, ...)                                                                 \
  MILL_ERROR((file)->code, "%s: " format, (file)->path, ##__VA_ARGS__)

enum { MAX_POINT = 10000000, MAX_CHECK = 10000 };

/* ---- labels, mapping, range -------------------------------------------------------------- */

static int read_names(const mill_h5_file *file, mill_library *lib)
{
  char text[1024];
  MILL_CHECK(mill_h5_read_attr_text(file, "/", "parnames", text, sizeof text));
  for (const char *p = text;; p++) {
    p += strspn(p, " ");
    const size_t n_all = strcspn(p, ",");
    size_t n = n_all;
    while (n > 0 && p[n - 1] == ' ')
      n--;
    if (n == 0 || n >= MILL_MAX_NAME)
      return REFUSED(file, "attribute parnames has an empty or too long name: '%.80s'", text);
    if (lib->n_label == MILL_MAX_LABEL)
      return REFUSED(file, "has more than the %d labels that this program takes", MILL_MAX_LABEL);
    mill_label *label = &lib->label[lib->n_label++];
    memcpy(label->name, p, n);
    mill_label_describe(label);
    p += n_all;
    if (*p == '\0')
      break;
  }
  return MILL_OK;
}

static int read_mapping(const mill_h5_file *file, mill_library *lib)
{
  double mean[MILL_MAX_LABEL], std[MILL_MAX_LABEL];
  int log_id[MILL_MAX_LABEL];
  size_t n_log, n_label = (size_t)lib->n_label;
  MILL_CHECK(mill_h5_read(file, "mapper/mean", H5T_NATIVE_DOUBLE, 1, &n_label, mean));
  MILL_CHECK(mill_h5_read(file, "mapper/std", H5T_NATIVE_DOUBLE, 1, &n_label, std));
  MILL_CHECK(mill_h5_shape(file, "mapper/log_ids", 1, &n_log));
  if (n_log > n_label)
    return REFUSED(file, "mapper/log_ids has %zu entries for %zu labels", n_log, n_label);
  if (n_log > 0) /* an empty list may have any type */
    MILL_CHECK(mill_h5_read(file, "mapper/log_ids", H5T_NATIVE_INT, 1, &n_log, log_id));
  for (size_t i = 0; i < n_log; i++) {
    if (log_id[i] < 0 || log_id[i] >= lib->n_label)
      return REFUSED(file, "mapper/log_ids names label %d, there are %d", log_id[i], lib->n_label);
    lib->label[log_id[i]].mapping = MILL_MAP_LOG10;
  }
  for (int i = 0; i < lib->n_label; i++) {
    if (!isfinite(mean[i]) || !isfinite(std[i]) || !(std[i] > 0))
      return REFUSED(file, "label %s has mean %g and std %g; they must be finite and std above 0",
                     lib->label[i].name, mean[i], std[i]);
    lib->label[i].mean = mean[i];
    lib->label[i].std = std[i];
  }
  return MILL_OK;
}

/* The training stars' mapped labels are float32 numbers in some files, which leaves 4000.0008 for
   4000, and mapping and back leaves 2.8e-17 for 0. */
static void round_range(mill_label *label)
{
  const double unit = pow(10, 5 - floor(log10(label->max - label->min)));
  label->min = round(label->min * unit) / unit;
  label->max = round(label->max * unit) / unit;
}

/* Ranges of the training stars in their labels' units, and in mapped labels. */
static int read_range(const mill_h5_file *file, mill_library *lib, double *x_min, double *x_max)
{
  int err = MILL_OK;
  double *point = NULL;
  size_t dim[2];
  const size_t n_label = (size_t)lib->n_label;
  MILL_TRY(mill_h5_shape(file, "outside/points", 2, dim));
  if (dim[0] < 1 || dim[0] > MAX_POINT || dim[1] != n_label)
    MILL_TRY(REFUSED(file,
                     "outside/points has the shape [%zu][%zu], expected training stars x %d labels",
                     dim[0], dim[1], lib->n_label));
  MILL_TRY(mill_library_read_new(file, "outside/points", H5T_NATIVE_DOUBLE, 2, dim, &point));
  for (size_t j = 0; j < n_label; j++) {
    mill_label *label = &lib->label[j];
    x_min[j] = x_max[j] = point[j];
    for (size_t i = 0; i < dim[0]; i++) {
      const double x = point[i * n_label + j];
      if (!isfinite(x))
        MILL_TRY(REFUSED(file, "outside/points, row %zu: label %s is not finite", i, label->name));
      x_min[j] = fmin(x_min[j], x);
      x_max[j] = fmax(x_max[j], x);
    }
    label->min = mill_label_unmap(label, x_min[j]);
    label->max = mill_label_unmap(label, x_max[j]);
    if (!(label->min < label->max))
      MILL_TRY(REFUSED(file, "outside/points: all training stars have the same %s", label->name));
    round_range(label);
    if (label->scale == 0)
      label->scale = 0.03 * (label->max - label->min);
  }
done:
  mill_free(point);
  return err;
}

/* ---- hulls ------------------------------------------------------------------------------- */

typedef struct hull_names {
  int n, too_many;
  char name[MILL_MAX_HULL][MILL_MAX_NAME];
} hull_names;

/* hull01_equations: a hull over labels 0 and 1 */
static int is_hull_name(const char *name)
{
  if (strncmp(name, "hull", 4) != 0 || strlen(name) >= MILL_MAX_NAME)
    return 0;
  const size_t n_digit = strspn(name + 4, "0123456789");
  return n_digit > 0 && strcmp(name + 4 + n_digit, "_equations") == 0;
}

static herr_t collect_hull(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
  hull_names *names = context;
  (void)group;
  (void)info;
  if (!is_hull_name(name))
    return 0;
  if (names->n == MILL_MAX_HULL)
    names->too_many = 1;
  else
    snprintf(names->name[names->n++], MILL_MAX_NAME, "%s", name);
  return 0;
}

static int read_hull(const mill_h5_file *file, const char *name, const mill_library *lib,
                     mill_hull *hull)
{
  char at[MILL_MAX_NAME + 16];
  size_t dim[2];
  snprintf(at, sizeof at, "outside/%s", name);
  for (const char *c = name + 4; isdigit((unsigned char)*c); c++) {
    if (*c - '0' >= lib->n_label || hull->n_label == lib->n_label)
      return REFUSED(file, "dataset /%s names labels that are not among the %d", at, lib->n_label);
    hull->label[hull->n_label++] = *c - '0';
  }
  MILL_CHECK(mill_h5_shape(file, at, 2, dim));
  if (dim[1] != (size_t)hull->n_label + 1 || dim[0] > MAX_POINT)
    return REFUSED(file, "dataset /%s has the shape [%zu][%zu], expected facets x %d", at, dim[0],
                   dim[1], hull->n_label + 1);
  hull->n_facet = (int)dim[0];
  return mill_library_read_new(file, at, H5T_NATIVE_DOUBLE, 2, dim, &hull->facet);
}

static int read_hulls(const mill_h5_file *file, mill_library *lib)
{
  hull_names names = {0};
  if (!mill_h5_exists(file, "outside"))
    return REFUSED(file, "group /outside is missing");
  if (H5Literate_by_name(file->id, "outside", H5_INDEX_NAME, H5_ITER_INC, NULL, collect_hull,
                         &names, H5P_DEFAULT) < 0)
    return REFUSED(file, "group /outside cannot be listed: %s", mill_h5_reason());
  if (names.n == 0)
    return REFUSED(file, "has no hull (a dataset like outside/hull01_equations)");
  if (names.too_many)
    return REFUSED(file, "has more than the %d hulls that this program takes", MILL_MAX_HULL);
  qsort(names.name, (size_t)names.n, sizeof names.name[0], mill_by_text);
  for (int i = 0; i < names.n; i++) {
    lib->n_hull++;
    MILL_CHECK(read_hull(file, names.name[i], lib, &lib->hull[i]));
  }
  return MILL_OK;
}

/* ---- one arm ----------------------------------------------------------------------------- */

static int read_grid(const mill_h5_file *file, mill_arm *arm)
{
  int log_step = 0;
  size_t n_pix;
  MILL_CHECK(mill_h5_read_attr_int(file, "/", "log_step", &log_step));
  if (!log_step)
    return REFUSED(file,
                   "attribute log_step is false; only wavelengths uniform in ln wavelength are "
                   "taken, train the emulator on such a grid");
  MILL_CHECK(mill_h5_shape(file, "lam", 1, &n_pix));
  if (n_pix < 2)
    return REFUSED(file, "lam has %zu wavelengths", n_pix);
  arm->n_pix = (int)n_pix;
  MILL_CHECK(mill_library_read_new(file, "lam", H5T_NATIVE_DOUBLE, 1, &n_pix, &arm->wave_aa));
  for (size_t i = 0; i < n_pix; i++)
    if (!isfinite(arm->wave_aa[i]) || !(arm->wave_aa[i] > 0))
      return REFUSED(file, "lam, pixel %zu: %g A, expected a number above 0", i, arm->wave_aa[i]);
  arm->ln_wave0 = log(arm->wave_aa[0]);
  arm->ln_step = (log(arm->wave_aa[n_pix - 1]) - arm->ln_wave0) / (double)(n_pix - 1);
  return MILL_OK;
}

static int read_network(const mill_h5_file *file, mill_arm *arm)
{
  mill_emulator *net = &arm->emulator;
  MILL_CHECK(mill_h5_read_attr_int(file, "/", "log_spec", &net->log_flux));
  net->log_flux = net->log_flux != 0;
  MILL_CHECK(mill_h5_read_attr_int(file, "/", "nlayers", &net->n_layer));
  if (net->n_layer < 1 || net->n_layer > MILL_MAX_LAYER)
    return REFUSED(file, "has %d layers, this program takes 1 to %d", net->n_layer, MILL_MAX_LAYER);
  for (int i = 0; i < net->n_layer; i++)
    MILL_CHECK(mill_library_read_layer(file, i, arm->n_pix, net));
  return MILL_OK;
}

/* desi_b -> b */
static int name_arm(const mill_h5_file *file, const char *arm_name, mill_arm *arm)
{
  MILL_CHECK(mill_h5_read_attr_text(file, "/", "setup", arm->setup, sizeof arm->setup));
  const char *underscore = strrchr(arm->setup, '_');
  const char *name = arm_name ? arm_name : underscore ? underscore + 1 : arm->setup;
  const size_t n = strlen(name);
  if (n == 0 || n >= sizeof arm->name)
    return REFUSED(file, "arm name '%.40s' (setup '%s') is empty or too long; give --arm-names",
                   name, arm->setup);
  for (size_t i = 0; i < n; i++)
    arm->name[i] = (char)tolower((unsigned char)name[i]);
  return MILL_OK;
}

static int ends_in(const char *text, const char *end)
{
  const size_t n = strlen(text), n_end = strlen(end);
  return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

static int choose_sigma(const mill_h5_file *file, double template_sigma_aa, mill_arm *arm)
{
  MILL_CHECK(mill_h5_read_attr_text(file, "/", "revision", arm->revision, sizeof arm->revision));
  const char *end = ends_in(arm->revision, "rm")         ? "rm"
                    : ends_in(arm->revision, "resolmat") ? "resolmat"
                                                         : NULL;
  if (!isnan(template_sigma_aa)) {
    arm->template_sigma_aa = template_sigma_aa < 0 ? -1 : template_sigma_aa;
    snprintf(arm->sigma_origin, sizeof arm->sigma_origin, "given at import");
  } else {
    arm->template_sigma_aa = end ? MATRIX_SIGMA_AA : -1;
    snprintf(arm->sigma_origin, sizeof arm->sigma_origin, "assumed, revision '%s' %s %s",
             arm->revision, end ? "ends in" : "does not end in", end ? end : "rm or resolmat");
  }
  snprintf(arm->source, sizeof arm->source, "%s", mill_base_name(file->path));
  return MILL_OK;
}

/* ---- check values ------------------------------------------------------------------------ */

/* The network in double precision, weights cast up. y [2][n_max] is scratch; *out points into it.
 */
static void evaluate(const mill_library *lib, const mill_arm *arm, const double *label, double *y,
                     size_t n_max, const double **out)
{
  const mill_emulator *net = &arm->emulator;
  double *from = y, *to = y + n_max;
  for (int i = 0; i < lib->n_label; i++)
    from[i] = mill_label_map(&lib->label[i], label[i]);
  for (int i = 0; i < net->n_layer; i++) {
    const size_t n_in = (size_t)net->n_in[i];
    for (size_t j = 0; j < (size_t)net->n_out[i]; j++) {
      const float *w = net->weight[i] + j * n_in;
      double sum = net->bias[i][j];
      for (size_t k = 0; k < n_in; k++)
        sum += (double)w[k] * from[k];
      to[j] = i < net->n_layer - 1 ? sum / (1 + exp(-sum)) : sum;
    }
    double *swap = from;
    from = to;
    to = swap;
  }
  *out = from;
}

/* *worst becomes the largest difference in the terms of CHECK_TOLERANCE where it was smaller. */
static int verify(const mill_h5_file *file, const mill_library *lib, const mill_arm *arm,
                  double *worst)
{
  int err = MILL_OK;
  double *label = NULL, *spectrum = NULL, *outside = NULL, *scratch = NULL;
  size_t dim[2];
  const size_t n_label = (size_t)lib->n_label, n_pix = (size_t)arm->n_pix;
  if (!mill_h5_exists(file, "check/params"))
    MILL_TRY(REFUSED(file,
                     "has no check values (check/params, check/spectra, check/outside), which "
                     "prove that it is read correctly"));
  MILL_TRY(mill_h5_shape(file, "check/params", 2, dim));
  if (dim[0] < 1 || dim[0] > MAX_CHECK || dim[1] != n_label)
    MILL_TRY(REFUSED(file,
                     "check/params has the shape [%zu][%zu], expected 1 to %d rows of %zu labels",
                     dim[0], dim[1], MAX_CHECK, n_label));
  const size_t n_check = dim[0], n_max = n_pix > MILL_MAX_WIDTH ? n_pix : MILL_MAX_WIDTH;
  MILL_TRY(MILL_ALLOC(2 * n_max, &scratch));
  MILL_TRY(mill_library_read_new(file, "check/params", H5T_NATIVE_DOUBLE, 2, dim, &label));
  dim[1] = n_pix;
  MILL_TRY(mill_library_read_new(file, "check/spectra", H5T_NATIVE_DOUBLE, 2, dim, &spectrum));
  MILL_TRY(mill_library_read_new(file, "check/outside", H5T_NATIVE_DOUBLE, 1, dim, &outside));
  for (size_t i = 0; i < n_check; i++) {
    const double *y;
    evaluate(lib, arm, label + i * n_label, scratch, n_max, &y);
    for (size_t j = 0; j < n_pix; j++) {
      const double expected = spectrum[i * n_pix + j];
      const double found = arm->emulator.log_flux ? exp(fmin(fmax(y[j], -300), 300)) : y[j];
      const double off =
          (arm->emulator.log_flux ? fabs(found / expected - 1) : fabs(found - expected)) /
          fmax(1, fabs(y[j]));
      if (!(off <= CHECK_TOLERANCE)) /* NaN fails */
        MILL_TRY(REFUSED(
            file,
            "check/spectra, row %zu, pixel %zu: the emulator as read gives %.9g, the file says "
            "%.9g; layout, activation or mapping is another",
            i, j, found, expected));
      *worst = fmax(*worst, off);
    }
    /* rvspecfit's `outside` is the square of the distance */
    const double d = mill_library_hull_distance(lib, label + i * n_label);
    if (!(fabs(d * d - outside[i]) <= 1e-6 + 1e-5 * outside[i]))
      MILL_TRY(REFUSED(
          file,
          "check/outside, row %zu: the hulls as read give the squared distance %.9g, the file "
          "says %.9g",
          i, d * d, outside[i]));
  }
done:
  MILL_FREE(label, spectrum, outside, scratch);
  return err;
}

/* ---- agreement of the arms --------------------------------------------------------------- */

static int differs(double a, double b)
{
  return !(fabs(a - b) <= 1e-9 * fmax(1, fmax(fabs(a), fabs(b))));
}

static int check_agreement(const char *path, const char *path0, const mill_library *lib,
                           const mill_library *lib0)
{
  if (lib->n_label != lib0->n_label)
    return MILL_ERROR(MILL_ERR_LIBRARY, "%s has %d labels, but %s has %d", path, lib->n_label,
                      path0, lib0->n_label);
  for (int i = 0; i < lib->n_label; i++) {
    const mill_label *a = &lib->label[i], *b = &lib0->label[i];
    if (strcmp(a->name, b->name) != 0)
      return MILL_ERROR(MILL_ERR_LIBRARY,
                        "%s: label %d is %s, but in %s it is %s; import arms of one training", path,
                        i, a->name, path0, b->name);
    if (a->mapping != b->mapping || differs(a->mean, b->mean) || differs(a->std, b->std))
      return MILL_ERROR(MILL_ERR_LIBRARY,
                        "%s: label %s is mapped otherwise than in %s; import arms of one training",
                        path, a->name, path0);
    if (differs(a->min, b->min) || differs(a->max, b->max))
      return MILL_ERROR(
          MILL_ERR_LIBRARY,
          "%s: the training stars have another range of %s than those of %s; import arms of "
          "one training",
          path, a->name, path0);
  }
  int same = lib->n_hull == lib0->n_hull;
  for (int i = 0; same && i < lib->n_hull; i++) {
    const mill_hull *a = &lib->hull[i], *b = &lib0->hull[i];
    same = a->n_label == b->n_label && a->n_facet == b->n_facet &&
           memcmp(a->label, b->label, sizeof a->label) == 0;
    for (int j = 0; same && j < a->n_facet * (a->n_label + 1); j++)
      same = !differs(a->facet[j], b->facet[j]);
  }
  if (!same)
    return MILL_ERROR(MILL_ERR_LIBRARY,
                      "%s: its hulls are not those of %s; import arms of one training", path,
                      path0);
  return MILL_OK;
}

/* ------------------------------------------------------------------------------------------ */

/* Labels, hulls and arm 0 of one file; x_min, x_max [MILL_MAX_LABEL]; *worst as in verify. */
static int read_file(const char *path, const char *arm_name, double template_sigma_aa,
                     mill_library *lib, double *x_min, double *x_max, double *worst)
{
  int err = MILL_OK;
  mill_h5_file file = {.id = H5I_INVALID_HID};
  mill_arm *arm = &lib->arm[0];
  MILL_TRY(mill_h5_open(path, MILL_ERR_LIBRARY, &file));
  MILL_TRY(mill_h5_scan(&file));
  if (!mill_h5_exists(&file, "lam") || !mill_h5_has_attr(&file, "/", "parnames"))
    MILL_FAIL(MILL_ERR_LIBRARY,
              "%s: is not an emulator file (dataset lam or attribute parnames is missing; see "
              "docs/use/formats.md)",
              path);
  MILL_TRY(read_names(&file, lib));
  MILL_TRY(read_mapping(&file, lib));
  MILL_TRY(read_range(&file, lib, x_min, x_max));
  MILL_TRY(read_hulls(&file, lib));
  lib->n_arm = 1;
  MILL_TRY(name_arm(&file, arm_name, arm));
  MILL_TRY(choose_sigma(&file, template_sigma_aa, arm));
  MILL_TRY(read_grid(&file, arm));
  MILL_TRY(read_network(&file, arm));
  /* everything but the guess, so that the check values meet a sound library */
  MILL_TRY(mill_library_make_guess(1, x_min, x_max, lib));
  MILL_TRY(mill_library_check(lib, path));
  MILL_TRY(verify(&file, lib, arm, worst));
done:
  mill_h5_close(&file);
  return err;
}

int mill_library_import_named(const char *const *path, const char *const *arm_name, int n_path,
                              const double *template_sigma_aa, int n_guess, mill_library *lib,
                              double *difference)
{
  int err = MILL_OK;
  double worst = 0;
  double x_min[MILL_MAX_LABEL], x_max[MILL_MAX_LABEL];
  double ignored_min[MILL_MAX_LABEL], ignored_max[MILL_MAX_LABEL];
  mill_library *one = NULL;
  MILL_TRY(MILL_ALLOC(1, &one)); /* too large for a stack */
  if (n_path < 1 || n_path > MILL_MAX_ARM)
    MILL_FAIL(MILL_ERR_USAGE, "%d emulator files; a library takes 1 to %d, one per arm", n_path,
              MILL_MAX_ARM);
  if (n_guess < 1 || n_guess > 10000)
    MILL_FAIL(MILL_ERR_USAGE, "templates of the initial guess: expected 1 to 10000, got %d",
              n_guess);
  for (int i = 0; i < n_path; i++)
    if (isinf(template_sigma_aa[i]))
      MILL_FAIL(MILL_ERR_USAGE, "the template sigma must be a finite number of Angstrom");
  MILL_TRY(read_file(path[0], arm_name ? arm_name[0] : NULL, template_sigma_aa[0], lib, x_min,
                     x_max, &worst));
  for (int i = 1; i < n_path; i++) {
    MILL_TRY(read_file(path[i], arm_name ? arm_name[i] : NULL, template_sigma_aa[i], one,
                       ignored_min, ignored_max, &worst));
    MILL_TRY(check_agreement(path[i], path[0], one, lib));
    const mill_arm *arm = &one->arm[0], *arm0 = &lib->arm[0];
    if (mill_library_find_arm(lib, arm->name) >= 0)
      MILL_FAIL(MILL_ERR_LIBRARY,
                "%s: an arm called %s was imported already; name the arms by --arm-names", path[i],
                arm->name);
    if (isnan(template_sigma_aa[i]) && arm->template_sigma_aa != arm0->template_sigma_aa)
      MILL_FAIL(MILL_ERR_LIBRARY,
                "%s (revision %s) and %s (revision %s) are not made for the same use of the "
                "resolution matrix; give --template-sigma or --at-instrument-resolution",
                path[i], arm->revision, path[0], arm0->revision);
    lib->arm[lib->n_arm++] = *arm;
    memset(&one->arm[0], 0, sizeof one->arm[0]); /* its arrays have moved */
    mill_library_clear(one);
  }
  mill_free(lib->guess_label);
  lib->guess_label = NULL;
  MILL_TRY(mill_library_make_guess(n_guess, x_min, x_max, lib));
  snprintf(lib->name, sizeof lib->name, "%s", lib->arm[0].revision);
  MILL_TRY(mill_library_check(lib, path[0]));
  mill_library_digest(lib, lib->hash);
  if (difference)
    *difference = worst;
done:
  mill_library_clear(one);
  mill_free(one);
  if (err != MILL_OK)
    mill_library_clear(lib);
  return err;
}

int mill_library_import(const char *const *path, int n_path, double template_sigma_aa, int n_guess,
                        mill_library *lib)
{
  double sigma[MILL_MAX_ARM];
  for (int i = 0; i < MILL_MAX_ARM; i++)
    sigma[i] = template_sigma_aa;
  return mill_library_import_named(path, NULL, n_path, sigma, n_guess, lib, NULL);
}
