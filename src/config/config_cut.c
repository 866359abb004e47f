/* SPDX-License-Identifier: BSD-3-Clause */
/* Arms cut to their ranges, and from the library's only arm. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/config/config_internal.h"
#include "src/config/text.h"

enum {
  SPLINE_MARGIN = 64, /* grid points beyond those that are needed, where a spline's end is felt */
  MIN_POINTS = 200,   /* of a part */
  LEAST_CAMERA = 1000 /* of a camera's part, so that there are pixels at any velocity */
};

static int has_range(const mill_arm_choice *choice)
{
  return choice->min_aa > 0.0 || isfinite(choice->max_aa);
}

static int is_part(const mill_config *config, const mill_library *lib, int i)
{
  const mill_arm_choice *choice = &config->arm[i];
  return mill_library_find_arm(lib, choice->arm) < 0 && has_range(choice);
}

/* A copy of n bytes at from; NULL if n is 0. */
static int copy_of(const void *from, size_t n, void **to)
{
  *to = NULL;
  if (!from)
    return MILL_OK;
  MILL_CHECK(mill_alloc_raw(n, 1, to));
  memcpy(*to, from, n);
  return MILL_OK;
}

/* Grid points of the whole arm that a part needs: its pixels at any velocity, and what rotation
 * brings to them. */
static void window(const mill_config *config, const mill_arm *whole, const mill_arm_choice *choice,
                   int *first, int *end)
{
  const mill_fit_settings *fit = &config->fit;
  const double turn = atanh(fit->max_vsini_km_s / MILL_C_KM_S);
  const double least =
      log(choice->min_aa) - atanh(fit->max_vel_km_s / MILL_C_KM_S) - turn - whole->ln_wave0;
  const double most =
      log(choice->max_aa) - atanh(fit->min_vel_km_s / MILL_C_KM_S) + turn - whole->ln_wave0;
  const double n = whole->n_pix;
  const double low = floor(least / whole->ln_step) - SPLINE_MARGIN;
  const double high = ceil(most / whole->ln_step) + SPLINE_MARGIN + 1.0;
  *first = (int)fmin(fmax(low, 0.0), n);
  *end = (int)fmin(fmax(high, 0.0), n);
  /* the end that is the whole arm's stays where it is on a coarser grid */
  const int spare =
      choice->sampling > 1 && *end > *first ? (*end - *first - 1) % choice->sampling : 0;
  *first += *first > 0 ? spare : 0;
  *end -= *first > 0 ? 0 : spare;
}

/* Copy the front unchanged, and the last layer's outputs from first on. */
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

/* The part's share of each row; sigma and correlation as they are. */
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

/* Grid points [first, end) of an arm. */
static int copy_points(const mill_arm *whole, int first, int end, mill_arm *part)
{
  *part = *whole;
  part->wave_aa = NULL;
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

/* An arm of the library with a range keeps the grid points that this needs. */
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
  mill_arm_clear(err ? &part : arm);
  if (!err)
    *arm = part;
  return err;
}

int mill_config_lacks_ranges(const mill_config *config, const mill_library *lib)
{
  for (int i = 0; i < config->n_arm; i++)
    if (mill_library_find_arm(lib, config->arm[i].arm) >= 0 || has_range(&config->arm[i]))
      return 0;
  return lib->n_arm == 1;
}

/* A camera with the settings that the configuration has for it. */
static mill_arm_choice with_settings(const mill_arm_choice *camera, const mill_arm_choice *own)
{
  mill_arm_choice choice = *own;
  choice.min_aa = camera->min_aa;
  choice.max_aa = camera->max_aa;
  choice.most_power = camera->most_power;
  if (own->fwhm_aa == 0.0 && own->resolving_power == 0.0) {
    choice.fwhm_aa = camera->fwhm_aa;
    choice.resolving_power = camera->resolving_power;
  }
  return choice;
}

void mill_config_take_cameras(const mill_library *lib, const char *format,
                              const mill_arm_choice *camera, int n, int are_channels,
                              mill_config *config)
{
  int first, end, n_covered = 0, n_taken = 0;
  mill_arm_choice taken[MILL_MAX_ARM];
  for (int i = 0; i < n; i++)
    if (mill_library_find_arm(lib, camera[i].arm) >= 0)
      return;
  for (int i = 0; i < n; i++) {
    const int k = mill_config_find_arm(config, camera[i].arm);
    window(config, &lib->arm[0], &camera[i], &first, &end);
    if (end - first < LEAST_CAMERA)
      continue;
    n_covered++;
    if (config->n_arm == 0 || k >= 0)
      taken[n_taken++] = k < 0 ? camera[i] : with_settings(&camera[i], &config->arm[k]);
  }
  if (n_taken == 0 || (config->n_arm > 0 && n_taken != config->n_arm))
    return; /* a name that is no camera's is refused when the library is bound */
  for (int i = 0; i < n_taken && are_channels && n_taken < n_covered; i++)
    if (!taken[i].channel[0]) /* its neighbour's channel would be cut by wavelength */
      memcpy(taken[i].channel, taken[i].arm, sizeof taken[i].channel);
  memcpy(config->arm, taken, (size_t)n_taken * sizeof *taken);
  config->n_arm = n_taken;
  snprintf(config->cameras_of, sizeof config->cameras_of, "%s", format);
}

/* By wavelength, so that the order in which a configuration names them means nothing. */
static int compare_choice(const void *a, const void *b)
{
  const mill_arm_choice *x = a, *y = b;
  if (x->min_aa != y->min_aa)
    return x->min_aa < y->min_aa ? -1 : 1;
  if (x->max_aa != y->max_aa)
    return x->max_aa < y->max_aa ? -1 : 1;
  return strcmp(x->arm, y->arm);
}

static int cut_all(const mill_config *config, mill_library *lib)
{
  int err = MILL_OK, n_part = 0;
  mill_arm *part = NULL;
  mill_arm_choice choice[MILL_MAX_ARM];
  for (int a = 0; a < lib->n_arm; a++)
    MILL_TRY(narrow(config, &lib->arm[a]));
  for (int i = 0; i < config->n_arm; i++)
    n_part += is_part(config, lib, i);
  if (n_part == 0 || lib->n_arm != 1)
    goto done;
  if (n_part < config->n_arm)
    MILL_FAIL(MILL_ERR_CONFIG,
              "arms: some are parts of the library's only arm, %s; give all of them a range by min "
              "or max and a name of its own",
              lib->arm[0].name);
  MILL_TRY(MILL_ALLOC(MILL_MAX_ARM, &part));
  memcpy(choice, config->arm, sizeof choice);
  qsort(choice, (size_t)n_part, sizeof choice[0], compare_choice);
  for (int i = 0; i < n_part; i++)
    MILL_TRY(cut(config, &lib->arm[0], &choice[i], &part[i]));
  mill_arm_clear(&lib->arm[0]);
  memcpy(lib->arm, part, (size_t)n_part * sizeof *part);
  lib->n_arm = n_part;
  mill_free(part);
  part = NULL;
done:
  for (int i = 0; part && i < n_part; i++)
    mill_arm_clear(&part[i]);
  mill_free(part);
  return err;
}

int mill_config_cut_arms(const mill_config *config, mill_library *lib)
{
  MILL_CHECK(cut_all(config, lib));
  for (int a = 0; a < lib->n_arm; a++) {
    const int i = mill_config_find_arm(config, lib->arm[a].name);
    if (i >= 0)
      MILL_CHECK(mill_config_thin_arm(config->arm[i].sampling, &lib->arm[a]));
  }
  return MILL_OK;
}
