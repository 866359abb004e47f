/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/base/error.h"
#include "src/config/config_internal.h"
#include "src/config/text.h"
#include "src/pipeline/guess_table.h"

#define MAX_GUESS_BYTES 4e9 /* of the initial guess, a rank */

static const char *parameter_names(const mill_library *lib, char out[512])
{
  size_t n = (size_t)snprintf(out, 512, "vrad, vsini");
  for (int i = 0; i < lib->n_label && n < 512; i++)
    n += (size_t)snprintf(out + n, 512 - n, ", %s", lib->label[i].name);
  return out;
}

static int find_parameter(const mill_library *lib, const char *key_name, const char *name,
                          int *i_par)
{
  char names[512];
  const int i_label = mill_library_find_label(lib, name);
  if (strcmp(name, "vrad") == 0)
    *i_par = MILL_PAR_VRAD;
  else if (strcmp(name, "vsini") == 0)
    *i_par = MILL_PAR_VSINI;
  else if (i_label >= 0)
    *i_par = MILL_PAR_LABEL0 + i_label;
  else
    return MILL_ERROR(MILL_ERR_CONFIG, "%s: no parameter %s; the library has %s", key_name, name,
                      parameter_names(lib, names));
  return MILL_OK;
}

int mill_config_find_arm(const mill_config *config, const char *arm)
{
  for (int i = 0; i < config->n_arm; i++)
    if (strcmp(config->arm[i].arm, arm) == 0)
      return i;
  return -1;
}

double mill_config_resolving_power(const mill_config *config, const char *arm)
{
  const int i = mill_config_find_arm(config, arm);
  return i >= 0 && config->arm[i].resolving_power > 0.0 ? config->arm[i].resolving_power
                                                        : config->resolving_power;
}

/* A line-spread function needs templates that are sharper than the spectra. */
static int bind_lsf(const mill_config *config, const mill_library *lib)
{
  const int lsf = config->lsf;
  if (lsf == MILL_LSF_AUTO || lsf == MILL_LSF_OFF)
    return MILL_OK;
  for (int i = 0; i < lib->n_arm; i++) {
    const char *name = lib->arm[i].name;
    const int i_arm = mill_config_find_arm(config, name);
    if (config->n_arm > 0 && i_arm < 0)
      continue;
    if (lib->arm[i].template_sigma_aa < 0.0)
      return MILL_ERROR(
          MILL_ERR_CONFIG,
          "%s, but the library's arm %s is at the instrument's own resolution already; give "
          "auto or another library",
          lsf == MILL_LSF_MATRIX  ? "lsf: matrix"
          : lsf == MILL_LSF_SIGMA ? "lsf: sigma"
                                  : "lsf: resolving_power",
          name);
    if (lsf == MILL_LSF_RESOLVING_POWER && !(mill_config_resolving_power(config, name) > 0.0) &&
        !(i_arm >= 0 && config->arm[i_arm].fwhm_aa > 0.0))
      return MILL_ERROR(
          MILL_ERR_CONFIG,
          "lsf: resolving_power, but none is set for arm %s; set resolving_power, or fwhm of "
          "the arm",
          name);
  }
  return MILL_OK;
}

/* A step far below a pixel gains nothing. */
static int check_guess(const mill_config *config, const mill_library *lib)
{
  char a[32];
  const mill_guess_cost cost = mill_guess_cost_of(lib, &config->fit);
  if (cost.bytes > MAX_GUESS_BYTES)
    return MILL_ERROR(
        MILL_ERR_CONFIG,
        "guess_vel_step: %s would need %.1f GB a rank (%d templates, %.0f velocities, %.0f bins), "
        "more than %.1f; give a larger step, or min_vel and max_vel nearer to 0",
        mill_text_of_real(config->fit.guess_vel_step_km_s, a), 1e-9 * cost.bytes, cost.n_templ,
        cost.n_vel, cost.n_bin, 1e-9 * MAX_GUESS_BYTES);
  return MILL_OK;
}

/* Refuse wavelengths in another unit, which would do nothing: a part that leaves nothing of its
 * arm, a mask outside the library that in nm or um would be inside. */
static int check_ranges(const mill_config *config, const mill_library *lib)
{
  for (int i = 0; i < config->n_arm; i++) {
    const mill_arm_choice *c = &config->arm[i];
    if (!mill_arm_overlaps(&lib->arm[mill_library_find_arm(lib, c->arm)], c->min_aa, c->max_aa))
      return MILL_ERROR(
          MILL_ERR_CONFIG,
          "arms: min %g and max %g leave nothing of arm %s; give vacuum wavelengths in "
          "Angstrom",
          c->min_aa, c->max_aa, c->arm);
  }
  for (int i = 0; i < config->fit.n_wave_mask && !config->wave_mask_auto; i++) {
    const double min = config->fit.wave_mask[i].min_aa, max = config->fit.wave_mask[i].max_aa;
    int as_aa = 0, as_other = 0;
    for (int a = 0; a < lib->n_arm; a++) {
      as_aa |= mill_arm_overlaps(&lib->arm[a], min, max);
      as_other |= mill_arm_overlaps(&lib->arm[a], 10.0 * min, 10.0 * max) ||
                  mill_arm_overlaps(&lib->arm[a], 1e4 * min, 1e4 * max);
    }
    if (!as_aa && as_other)
      return MILL_ERROR(
          MILL_ERR_CONFIG,
          "wave_mask: [%g, %g] is outside the library, unless in nm or um; give vacuum "
          "wavelengths in Angstrom",
          min, max);
  }
  return MILL_OK;
}

int mill_config_bind(mill_config *config, const mill_library *lib)
{
  int i_par = 0;
  char a[32], b[32], c[32];
  int fixed[MILL_MAX_PAR] = {0};
  double fixed_value[MILL_MAX_PAR] = {0}, mean[MILL_MAX_PAR] = {0}, sigma[MILL_MAX_PAR] = {0};
  MILL_CHECK(mill_config_check(config));
  for (int i = 0; i < config->n_arm; i++)
    if (mill_library_find_arm(lib, config->arm[i].arm) < 0) {
      char names[512] = "";
      size_t n = 0;
      for (int j = 0; j < lib->n_arm && n < sizeof names; j++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", j ? ", " : "", lib->arm[j].name);
      const char *const only = lib->arm[0].name, *channel = config->arm[i].channel;
      if (lib->n_arm > 1)
        return MILL_ERROR(MILL_ERR_CONFIG, "arms: no arm %s; the library has %s",
                          config->arm[i].arm, names);
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "arms: no arm %s; the library has only %s, %.0f to %.0f A: write {name: "
                        "%s%s%s}, or {name: %s, min: A, max: B%s%s} for a part of it",
                        config->arm[i].arm, only, lib->arm[0].wave_aa[0],
                        lib->arm[0].wave_aa[lib->arm[0].n_pix - 1], only,
                        channel[0] ? ", channel: " : "", channel, config->arm[i].arm,
                        channel[0] ? ", channel: " : "", channel);
    }
  MILL_CHECK(check_ranges(config, lib));
  MILL_CHECK(bind_lsf(config, lib));
  MILL_CHECK(check_guess(config, lib));
  for (int i = 0; i < config->n_fixed; i++) {
    const mill_named_value *item = &config->fixed[i];
    MILL_CHECK(find_parameter(lib, "fix_param", item->name, &i_par));
    const mill_fit_settings *fit = &config->fit;
    const double min = i_par == MILL_PAR_VRAD    ? fit->min_vel_km_s
                       : i_par == MILL_PAR_VSINI ? fit->min_vsini_km_s
                                                 : lib->label[i_par - MILL_PAR_LABEL0].min;
    const double max = i_par == MILL_PAR_VRAD    ? fit->max_vel_km_s
                       : i_par == MILL_PAR_VSINI ? fit->max_vsini_km_s
                                                 : lib->label[i_par - MILL_PAR_LABEL0].max;
    if (!(item->value >= min && item->value <= max))
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "fix_param: %s = %s is outside its range; give a value from %s to %s",
                        item->name, mill_text_of_real(item->value, a), mill_text_of_real(min, b),
                        mill_text_of_real(max, c));
    fixed[i_par] = 1;
    fixed_value[i_par] = item->value;
  }
  if (config->n_fixed == MILL_PAR_LABEL0 + lib->n_label)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "fix_param: all %d parameters are fixed; leave at least one free",
                      config->n_fixed);
  for (int i = 0; i < config->n_prior; i++) {
    MILL_CHECK(find_parameter(lib, "priors", config->prior[i].name, &i_par));
    mean[i_par] = config->prior[i].value;
    sigma[i_par] = config->prior[i].sigma;
  }
  memcpy(config->fit.fixed, fixed, sizeof fixed);
  memcpy(config->fit.fixed_value, fixed_value, sizeof fixed_value);
  memcpy(config->fit.prior_mean, mean, sizeof mean);
  memcpy(config->fit.prior_sigma, sigma, sizeof sigma);
  /* by SCORES rows are left out before their pixels are read */
  config->fit.min_sn =
      config->select.sn_source == MILL_SN_PIXELS ? config->select.min_sn : -INFINITY;
  return MILL_OK;
}

int mill_config_arms(const mill_config *config, const mill_library *lib, int *wanted)
{
  for (int a = 0; a < lib->n_arm; a++)
    wanted[a] = config->n_arm == 0;
  for (int i = 0; i < config->n_arm; i++) {
    const int arm = mill_library_find_arm(lib, config->arm[i].arm);
    if (arm < 0)
      return MILL_ERROR(MILL_ERR_CONFIG, "the library %s has no arm '%s'", lib->path,
                        config->arm[i].arm);
    wanted[arm] = 1;
  }
  return MILL_OK;
}
