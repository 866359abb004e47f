/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/config/arms.h"

#include <stdlib.h>

#include "kernels/star/blocks/prepare.h"
#include "src/config/config_internal.h"
#include "src/config/text.h"
#include "src/system/order.h"

enum {
  SPLINE_MARGIN = 64,  /* extra grid points at each end of a cut arm: splines are inexact there */
  MIN_POINTS = 200,    /* least number of grid points of a cut arm */
  LEAST_CAMERA = 1000, /* a camera with fewer grid points in the library is not taken as an arm */
  N_LOOK = 32          /* wavelengths of an arm at which the line-spread function is examined */
};

/* BIN_POINTS: least number of coarse grid points in a velocity bin of the initial guess.
 * exp(-HIDDEN): largest amplitude of an alias on the coarse grid. */
static const double BIN_POINTS = 2.0, HIDDEN = 7.0;

/* ---- settings ---- */

#define AT(member) offsetof(mill_arm_choice, member)
const mill_field mill_arm_field[] = {
    {"name", MILL_FIELD_TEXT, AT(arm), .needed = "its name"},
    {"min", MILL_FIELD_REAL, AT(min_aa), .usual = 0.0},
    {"max", MILL_FIELD_REAL, AT(max_aa), .usual = INFINITY},
    {"channel", MILL_FIELD_TEXT, AT(channel), .needed = NULL},
    {"resolving_power", MILL_FIELD_REAL, AT(resolving_power), .usual = 0.0},
    {"fwhm", MILL_FIELD_REAL, AT(fwhm_aa), .usual = 0.0},
    {"sampling", MILL_FIELD_WHOLE, AT(sampling), .usual = 0.0},
    {0}};

int mill_config_find_arm(const mill_config *config, const char *arm)
{
  for (int i = 0; i < config->n_arm; i++)
    if (strcmp(config->arm[i].arm, arm) == 0)
      return i;
  return -1;
}

mill_arm_choice mill_config_arm(const mill_config *config, const char *arm)
{
  const int i = mill_config_find_arm(config, arm);
  mill_arm_choice choice = i >= 0 ? config->arm[i] : (mill_arm_choice){.max_aa = INFINITY};
  if (!(choice.resolving_power > 0.0))
    choice.resolving_power = config->resolving_power;
  return choice;
}

int mill_arm_has_width(const mill_arm_choice *choice)
{
  return choice->resolving_power > 0.0 || choice->fwhm_aa > 0.0;
}

void mill_config_name_arms(mill_config *config, const char (*name)[MILL_MAX_NAME], int n)
{
  mill_arm_choice arm[MILL_MAX_ARM] = {0};
  for (int i = 0; i < n; i++) {
    const int k = mill_config_find_arm(config, name[i]);
    arm[i] = k >= 0 ? config->arm[k] : (mill_arm_choice){.max_aa = INFINITY};
    memcpy(arm[i].arm, name[i], sizeof arm[i].arm);
  }
  memcpy(config->arm, arm, sizeof arm);
  config->n_arm = n;
}

int mill_config_is_power(double power)
{
  return power == 0.0 || (power >= MILL_MIN_POWER && power <= MILL_MAX_POWER);
}

/* ---- against a library ---- */

/* Check that the key lsf can be used: templates must be sharper than the spectra, and with
 * resolving_power each arm needs a configured width. */
static int bind_lsf(const mill_config *config, const mill_library *lib)
{
  const int lsf = config->lsf;
  if (lsf == MILL_LSF_AUTO || lsf == MILL_LSF_OFF)
    return MILL_OK;
  for (int i = 0; i < lib->n_arm; i++) {
    const char *name = lib->arm[i].name;
    const mill_arm_choice choice = mill_config_arm(config, name);
    if (config->n_arm > 0 && mill_config_find_arm(config, name) < 0)
      continue;
    if (lib->arm[i].template_sigma_aa < 0.0)
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "%s, but the library's arm %s is at the instrument's own resolution "
                        "already; give lsf: auto or another library",
                        lsf == MILL_LSF_MATRIX  ? "lsf: matrix"
                        : lsf == MILL_LSF_SIGMA ? "lsf: sigma"
                                                : "lsf: resolving_power",
                        name);
    if (lsf == MILL_LSF_RESOLVING_POWER && !mill_arm_has_width(&choice))
      return MILL_ERROR(
          MILL_ERR_CONFIG,
          "lsf: resolving_power needs the width of arm %s: set resolving_power to a number, or set "
          "the arm's fwhm",
          name);
  }
  return MILL_OK;
}

static int has_range(const mill_arm_choice *choice)
{
  return choice->min_aa > 0.0 || isfinite(choice->max_aa);
}

/* Return the library's arm of the name choice->arm.  Without it return the arm that covers most of
 * choice's range, or the first arm if none covers a part of it. */
static const mill_arm *arm_with(const mill_library *lib, const mill_arm_choice *choice)
{
  const int own = mill_library_find_arm(lib, choice->arm);
  int best = 0;
  double most = 0.0;
  if (own >= 0)
    return &lib->arm[own];
  for (int a = 0; a < lib->n_arm; a++) {
    const mill_arm *arm = &lib->arm[a];
    const double covered = log(fmin(choice->max_aa, arm->wave_aa[arm->n_pix - 1])) -
                           log(fmax(choice->min_aa, arm->wave_aa[0]));
    if (covered > most) {
      most = covered;
      best = a;
    }
  }
  return &lib->arm[best];
}

/* Fail since the library lacks a configured arm; say how to name its arms, or parts of them. */
static int lacks_arm(const mill_library *lib, const mill_arm_choice *choice)
{
  char names[512] = "", channel[MILL_MAX_NAME + 16] = "";
  const mill_arm *only = &lib->arm[0];
  size_t n = 0;
  for (int j = 0; j < lib->n_arm && n < sizeof names; j++)
    n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", j ? ", " : "", lib->arm[j].name);
  if (lib->n_arm > 1)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "arms: no arm %s; the library has %s: give one of these, or min and max for "
                      "a part of one",
                      choice->arm, names);
  if (choice->channel[0])
    snprintf(channel, sizeof channel, ", channel: %s", choice->channel);
  return MILL_ERROR(MILL_ERR_CONFIG,
                    "arms: no arm %s; the library has only %s, %.0f to %.0f A: write {name: %s%s}, "
                    "or {name: %s, min: FIRST, max: LAST%s} for a part of it",
                    choice->arm, only->name, only->wave_aa[0], only->wave_aa[only->n_pix - 1],
                    only->name, channel, choice->arm, channel);
}

int mill_config_bind_arms(const mill_config *config, const mill_library *lib)
{
  for (int i = 0; i < config->n_arm; i++)
    if (mill_library_find_arm(lib, config->arm[i].arm) < 0)
      return lacks_arm(lib, &config->arm[i]);
  for (int i = 0; i < config->n_arm; i++) {
    const mill_arm_choice *c = &config->arm[i];
    if (!mill_arm_overlaps(&lib->arm[mill_library_find_arm(lib, c->arm)], c->min_aa, c->max_aa))
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "arms: min %g and max %g exclude all of arm %s; give vacuum wavelengths in "
                        "Angstrom",
                        c->min_aa, c->max_aa, c->arm);
  }
  return bind_lsf(config, lib);
}

void mill_config_arms(const mill_config *config, const mill_library *lib, int *wanted)
{
  for (int a = 0; a < lib->n_arm; a++)
    wanted[a] = config->n_arm == 0 || mill_config_find_arm(config, lib->arm[a].name) >= 0;
}

int mill_arms_in_common(const mill_library *other, mill_library *lib)
{
  for (int a = 0; a < lib->n_arm; a++) {
    const mill_arm *theirs = &other->arm[a];
    mill_arm *arm = &lib->arm[a];
    int end = arm->n_pix, first = 0;
    while (first < end && arm->wave_aa[first] < theirs->wave_aa[0])
      first++;
    while (end > first && arm->wave_aa[end - 1] > theirs->wave_aa[theirs->n_pix - 1])
      end--;
    if (end - first < 2)
      return MILL_ERROR(MILL_ERR_CONFIG, "%s and %s have no wavelengths of arm %s in common",
                        lib->path, other->path, arm->name);
    arm->ln_wave0 += arm->ln_step * first;
    arm->wave_aa += first; /* lib only borrows the array */
    arm->n_pix = end - first;
  }
  return MILL_OK;
}

/* ---- sampling: a coarser grid than the library's, under broad line-spread functions ---- */

/* Return a lower limit of sigma (ln wavelength) of an arm's line-spread functions; 0: unknown. */
static double least_sigma(const mill_config *config, const mill_arm_choice *choice, double wave_aa)
{
  const double power =
      choice->resolving_power > 0.0 ? choice->resolving_power : config->resolving_power;
  const double factor = fmin(config->lsf_factor, 1.0); /* at most 1: Astra's files ignore the key */
  const double of_files =
      choice->most_power > 0.0 ? factor / (MILL_FWHM_SIGMA * choice->most_power) : 0.0;
  const double configured = choice->fwhm_aa > 0.0 ? choice->fwhm_aa / (MILL_FWHM_SIGMA * wave_aa)
                            : power > 0.0         ? 1.0 / (MILL_FWHM_SIGMA * power)
                                                  : 0.0;
  switch (config->lsf) {
  case MILL_LSF_RESOLVING_POWER:
    return configured;
  case MILL_LSF_SIGMA:
    return of_files;
  case MILL_LSF_AUTO: /* files without a line-spread function use the configured width */
    return configured > 0.0 ? fmin(of_files, configured) : of_files;
  default:
    return 0.0;
  }
}

/* Return 1 if an arm may be thinned to every factor-th grid point (docs/science/numerics.md,
 * "Coarser grids").  In ln wavelength, step is the step of the thinned grid, templ the sigma of the
 * templates, sigma that of the line-spread function, and rest = sigma^2 - templ^2.  Conditions:
 *  - aliases have amplitudes exp(-2 pi^2 templ^2 rest / (sigma step)^2) of at most exp(-HIDDEN);
 *  - templates can be blurred to variances of templ^2 + MILL_LARGEST_BLUR * rest, which must reach
 *    (MILL_GRID_SIGMA * step)^2;
 *  - the arm has over MILL_THINNED_POINTS steps, a bin of the initial guess BIN_POINTS or more. */
static int allows(const mill_config *config, const mill_arm_choice *choice, const mill_arm *arm,
                  int factor)
{
  const double step = factor * arm->ln_step, templ_aa = arm->template_sigma_aa;
  const double first = fmax(choice->min_aa, arm->wave_aa[0]);
  const double last = fmin(choice->max_aa, arm->wave_aa[arm->n_pix - 1]);
  double least = INFINITY;
  if (!(templ_aa > 0.0) || BIN_POINTS * step * MILL_C_KM_S > config->fit.guess_vel_step_km_s ||
      !(log(last / first) > MILL_THINNED_POINTS * step))
    return 0;
  for (int i = 0; i < N_LOOK; i++) {
    const double wave = first + (last - first) * i / (N_LOOK - 1), templ = templ_aa / wave;
    const double sigma = least_sigma(config, choice, wave);
    const double rest = sigma * sigma - templ * templ;
    if (!(rest > 0.0) ||
        2.0 * M_PI * M_PI * templ * templ * rest < HIDDEN * step * step * sigma * sigma)
      return 0;
    least = fmin(least, rest);
  }
  const double sharpest = templ_aa / last, wanted = MILL_GRID_SIGMA * step;
  return sharpest * sharpest + MILL_LARGEST_BLUR * least >= wanted * wanted;
}

void mill_config_choose_sampling(const mill_library *lib, int n_lib, mill_config *config)
{
  for (int i = 0; i < config->n_arm; i++) {
    mill_arm_choice *choice = &config->arm[i];
    int factor = MILL_MAX_SAMPLING; /* becomes the largest one that all libraries allow */
    /* a linear rotation kernel needs the whole grid: its error grows as the step squared */
    if (choice->sampling > 0 || config->fit.rotation == MILL_ROT_LINEAR)
      continue;
    for (int k = 0; k < n_lib; k++)
      while (factor > 1 && !allows(config, choice, arm_with(&lib[k], choice), factor))
        factor--;
    if (factor > 1)
      choice->sampling = factor; /* otherwise it stays 0: every grid point */
  }
}

/* ---- cutting arms to ranges ---- */

/* Copy n bytes into new memory; NULL gives NULL. */
static int copy_of(const void *from, size_t n, void **to)
{
  *to = NULL;
  if (!from)
    return MILL_OK;
  MILL_CHECK(mill_alloc_raw(n, 1, to));
  memcpy(*to, from, n);
  return MILL_OK;
}

/* Set [*first, *end) to the grid points of the whole arm that a range needs: its pixels at any
 * allowed velocity, with margins for rotation and splines.  atanh(v / c) is the shift in ln A. */
static void window(const mill_config *config, const mill_arm *whole, const mill_arm_choice *choice,
                   int *first, int *end)
{
  const mill_fit_settings *fit = &config->fit;
  const double wing = atanh(fit->max_vsini_km_s / MILL_C_KM_S); /* of lines broadened by rotation */
  const double least =
      log(choice->min_aa) - atanh(fit->max_vel_km_s / MILL_C_KM_S) - wing - whole->ln_wave0;
  const double most =
      log(choice->max_aa) - atanh(fit->min_vel_km_s / MILL_C_KM_S) + wing - whole->ln_wave0;
  const double n = whole->n_pix;
  const double low = floor(least / whole->ln_step) - SPLINE_MARGIN;
  const double high = ceil(most / whole->ln_step) + SPLINE_MARGIN + 1.0;
  *first = (int)fmin(fmax(low, 0.0), n);
  *end = (int)fmin(fmax(high, 0.0), n);
  /* thinning needs whole coarse steps: drop spare points, at the start if it was cut already */
  const int spare =
      choice->sampling > 1 && *end > *first ? (*end - *first - 1) % choice->sampling : 0;
  if (*first > 0)
    *first += spare;
  else
    *end -= spare;
}

/* Copy an emulator, but only outputs [first, first + n_pix) of its last layer.  The grid and the
 * radial basis functions, which feed the last layer, are copied whole. */
static int copy_emulator(const mill_emulator *from, int first, int n_pix, mill_emulator *to)
{
  const int last = from->n_layer - 1;
  for (int i = 0; i < from->n_layer; i++) {
    const size_t n_in = (size_t)from->n_in[i], n_out = (size_t)(i == last ? n_pix : from->n_out[i]);
    const size_t skip = i == last ? (size_t)first : 0;
    MILL_CHECK(copy_of(from->weight[i] + skip * n_in, n_in * n_out * sizeof(float),
                       (void **)&to->weight[i]));
    MILL_CHECK(copy_of(from->bias[i] + skip, n_out * sizeof(float), (void **)&to->bias[i]));
  }
  to->n_out[last] = n_pix;
  size_t n_coef = (size_t)from->grid.n_out;
  for (int i = 0; i < from->grid.n_axis; i++) {
    n_coef *= (size_t)from->grid.n_node[i];
    MILL_CHECK(copy_of(from->grid.knot[i],
                       (size_t)(from->grid.n_node[i] + mill_spline_grid_order(&from->grid)) *
                           sizeof(double),
                       (void **)&to->grid.knot[i]));
  }
  MILL_CHECK(copy_of(from->grid.coef, n_coef * sizeof(float), (void **)&to->grid.coef));
  const mill_rbf *rbf = &from->rbf;
  MILL_CHECK(copy_of(rbf->center, (size_t)rbf->n_center * (size_t)rbf->n_axis * sizeof(double),
                     (void **)&to->rbf.center));
  return copy_of(rbf->coef,
                 (size_t)(rbf->n_center + rbf->n_poly) * (size_t)rbf->n_out * sizeof(float),
                 (void **)&to->rbf.coef);
}

/* Copy grid points [first, first + n_pix) of each row of the model error. */
static int copy_error(const mill_model_error *from, int n_whole, int first, int n_pix,
                      mill_model_error *to)
{
  const size_t n = (size_t)n_pix;
  if (!from->fraction)
    return MILL_OK;
  MILL_CHECK(copy_of(from->fraction + first, n * sizeof(float), (void **)&to->fraction));
  if (from->n_component == 0)
    return MILL_OK;
  MILL_CHECK(MILL_ALLOC((size_t)from->n_component * n, &to->component));
  for (int k = 0; k < from->n_component; k++)
    memcpy(to->component + (size_t)k * n, from->component + (size_t)k * (size_t)n_whole + first,
           n * sizeof(float));
  return MILL_OK;
}

/* Copy the grid points [first, end) of an arm into the new arm `part`. */
static int copy_points(const mill_arm *whole, int first, int end, mill_arm *part)
{
  *part = *whole;
  part->wave_aa = NULL; /* own no array of `whole`: after a failure the caller clears part */
  memset(part->emulator.weight, 0, sizeof part->emulator.weight);
  memset(part->emulator.bias, 0, sizeof part->emulator.bias);
  memset(part->emulator.grid.knot, 0, sizeof part->emulator.grid.knot);
  part->emulator.grid.coef = part->emulator.rbf.coef = NULL;
  part->emulator.rbf.center = NULL;
  part->error.fraction = part->error.component = NULL;
  part->n_pix = end - first;
  part->ln_wave0 = whole->ln_wave0 + whole->ln_step * first;
  MILL_CHECK(copy_of(whole->wave_aa + first, (size_t)part->n_pix * sizeof(double),
                     (void **)&part->wave_aa));
  MILL_CHECK(copy_emulator(&whole->emulator, first, part->n_pix, &part->emulator));
  return copy_error(&whole->error, whole->n_pix, first, part->n_pix, &part->error);
}

/* Copy the grid points of a library's arm `whole` that choice's range needs to the arm `part`. */
static int cut(const mill_config *config, const mill_arm *whole, const mill_arm_choice *choice,
               mill_arm *part)
{
  int first = 0, end = 0;
  char a[32], b[32];
  window(config, whole, choice, &first, &end);
  if (end - first < MIN_POINTS)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "arms: %s, from %s to %s A, is not within the library's arm %s, %.0f to %.0f "
                      "A; change its range or leave it out",
                      choice->arm, mill_text_of_real(choice->min_aa, a),
                      mill_text_of_real(choice->max_aa, b), whole->name, whole->wave_aa[0],
                      whole->wave_aa[whole->n_pix - 1]);
  MILL_CHECK(copy_points(whole, first, end, part));
  memcpy(part->name, choice->arm, sizeof part->name);
  return MILL_OK;
}

/* Cut an arm of the library to its configured wavelength range; leave it whole if the range has
 * fewer than MIN_POINTS grid points.  Spectra are cut to the range in either case. */
static int narrow(const mill_config *config, mill_arm *arm)
{
  int first = 0, end = 0;
  mill_arm part = {0};
  const int i = mill_config_find_arm(config, arm->name);
  if (i < 0 || !has_range(&config->arm[i]))
    return MILL_OK;
  window(config, arm, &config->arm[i], &first, &end);
  if (end - first < MIN_POINTS)
    return MILL_OK;
  const int err = copy_points(arm, first, end, &part);
  mill_arm_clear(err ? &part : arm); /* keep the whole arm, or replace it by its part */
  if (!err)
    *arm = part;
  return err;
}

int mill_config_lacks_ranges(const mill_config *config, const mill_library *lib)
{
  for (int i = 0; i < config->n_arm; i++)
    if (mill_library_find_arm(lib, config->arm[i].arm) >= 0 || has_range(&config->arm[i]))
      return 0;
  return 1;
}

/* Return a camera with arm k's settings (-1: none).  The arm's configured width replaces the
 * camera's, as does resolving_power with `lsf: resolving_power`. */
static mill_arm_choice take_camera(const mill_config *config, int k, const mill_arm_choice *camera)
{
  mill_arm_choice choice = k < 0 ? (mill_arm_choice){0} : config->arm[k];
  memcpy(choice.arm, camera->arm, sizeof choice.arm);
  choice.min_aa = camera->min_aa;
  choice.max_aa = camera->max_aa;
  choice.most_power = camera->most_power;
  if (!mill_arm_has_width(&choice) &&
      !(config->lsf == MILL_LSF_RESOLVING_POWER && config->resolving_power > 0.0)) {
    choice.fwhm_aa = camera->fwhm_aa;
    choice.resolving_power = camera->resolving_power;
  }
  return choice;
}

/* Replace config's arms by the cameras that the library covers, if it may be cut into cameras. */
int mill_config_take_cameras(const mill_library *lib, const char *format,
                             const mill_arm_choice *camera, int n, int are_channels,
                             mill_config *config)
{
  int first, end, n_covered = 0, n_taken = 0;
  unsigned known = 0; /* bit i is 1 if config->arm[i] is a camera */
  mill_arm_choice taken[MILL_MAX_ARM];
  char covered[MILL_MAX_ARM * (MILL_MAX_NAME + 1) + 1] = "";
  if (!mill_config_lacks_ranges(config, lib))
    return MILL_OK;
  for (int i = 0; i < n; i++)
    if (mill_library_find_arm(lib, camera[i].arm) >= 0)
      return MILL_OK; /* the library's arms are the cameras already */
  for (int i = 0; i < n; i++) {
    const int k = mill_config_find_arm(config, camera[i].arm);
    const mill_arm *arm = arm_with(lib, &camera[i]);
    if (lib->n_arm > 1 &&
        (camera[i].min_aa < arm->wave_aa[0] || camera[i].max_aa > arm->wave_aa[arm->n_pix - 1]))
      return MILL_OK; /* the camera extends beyond its library arm */
    window(config, arm, &camera[i], &first, &end);
    if (end - first < LEAST_CAMERA)
      continue;
    n_covered++;
    strcat(strcat(covered, " "), camera[i].arm);
    known |= k >= 0 ? 1u << k : 0;
    if (config->n_arm == 0 || k >= 0)
      taken[n_taken++] = take_camera(config, k, &camera[i]);
  }
  /* arms with a channel are left to mill_config_bind_arms, whose message mentions the channel */
  for (int i = 0; i < config->n_arm && n_covered > 0; i++)
    if (!(known >> i & 1u) && !config->arm[i].channel[0])
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "arms: no arm %s; the library is cut into the cameras%s of %s: name some "
                        "of these",
                        config->arm[i].arm, covered, format);
  if (n_taken == 0 || (config->n_arm > 0 && n_taken != config->n_arm))
    return MILL_OK; /* mill_config_bind_arms reports arms that are no covered cameras */
  if (are_channels && n_taken < n_covered)
    for (int i = 0; i < n_taken; i++)
      if (!taken[i].channel[0]) /* else the arm could take pixels of a channel left out, too */
        memcpy(taken[i].channel, taken[i].arm, sizeof taken[i].channel);
  memcpy(config->arm, taken, (size_t)n_taken * sizeof *taken);
  config->n_arm = n_taken;
  snprintf(config->cameras_of, sizeof config->cameras_of, "%s", format);
  return MILL_OK;
}

/* Order by wavelength, so that the order in the configuration does not matter. */
static int compare_choice(const void *a, const void *b)
{
  const mill_arm_choice *x = a, *y = b;
  const int by_min = mill_by_double(&x->min_aa, &y->min_aa);
  const int by_max = mill_by_double(&x->max_aa, &y->max_aa);
  return by_min ? by_min : by_max ? by_max : strcmp(x->arm, y->arm);
}

/* Narrow the library's arms to their ranges, or replace them by the parts that config names. */
static int cut_all(const mill_config *config, mill_library *lib)
{
  int err = MILL_OK, n_part = 0;
  MILL_OWNED mill_arm *part = NULL;
  mill_arm_choice choice[MILL_MAX_ARM];
  for (int a = 0; a < lib->n_arm; a++)
    MILL_TRY(narrow(config, &lib->arm[a]));
  for (int i = 0; i < config->n_arm; i++) /* a range with a new name is a part of a library's arm */
    n_part += mill_library_find_arm(lib, config->arm[i].arm) < 0 && has_range(&config->arm[i]);
  if (n_part == 0)
    goto done;
  if (n_part < config->n_arm)
    MILL_FAIL(
        MILL_ERR_CONFIG,
        "arms: some entries are parts of an arm of the library, others are whole arms; give every "
        "entry min or max, and a new name");
  MILL_TRY(MILL_ALLOC(MILL_MAX_ARM, &part));
  memcpy(choice, config->arm, sizeof choice);
  qsort(choice, (size_t)n_part, sizeof choice[0], compare_choice); /* by wavelength */
  for (int i = 0; i < n_part; i++)
    MILL_TRY(cut(config, arm_with(lib, &choice[i]), &choice[i], &part[i]));
  for (int a = 0; a < lib->n_arm; a++)
    mill_arm_clear(&lib->arm[a]);
  memcpy(lib->arm, part, (size_t)n_part * sizeof *part);
  lib->n_arm = n_part;
  n_part = 0; /* the library has the parts now: clear none of them */
done:
  for (int i = 0; part && i < n_part; i++)
    mill_arm_clear(&part[i]);
  return err;
}

int mill_config_cut_arms(const mill_config *config, mill_library *lib)
{
  MILL_CHECK(cut_all(config, lib));
  for (int a = 0; a < lib->n_arm; a++) {
    const int i = mill_config_find_arm(config, lib->arm[a].name);
    if (i >= 0)
      MILL_CHECK(mill_arm_thin(config->arm[i].sampling, &lib->arm[a]));
  }
  return MILL_OK;
}
