/* SPDX-License-Identifier: BSD-3-Clause */

#include "src/config/config_internal.h"
#include "src/config/text.h"
#include "src/pipeline/guess_table.h"

#define MAX_GUESS_BYTES 4e9 /* bytes per rank: a guess that needs more is refused */

/* Set *i_par to a parameter's index; -1: a label that only the first library has. */
static int find_parameter(const mill_library *lib, int is_first, const char *key_name,
                          const char *name, int *i_par)
{
  char names[512] = "";
  size_t n = 0;
  const int i_label = mill_library_find_label(lib, name);
  if (strcmp(name, "vrad") == 0)
    *i_par = MILL_PAR_VRAD;
  else if (strcmp(name, "vsini") == 0)
    *i_par = MILL_PAR_VSINI;
  else if (i_label >= 0)
    *i_par = MILL_PAR_LABEL0 + i_label;
  else if (!is_first)
    *i_par = -1;
  else {
    for (int i = 0; i < lib->n_label && n < sizeof names; i++)
      n += (size_t)snprintf(names + n, sizeof names - n, ", %s", lib->label[i].name);
    return MILL_ERROR(MILL_ERR_CONFIG, "%s: no parameter %s; the library has vrad, vsini%s",
                      key_name, name, names);
  }
  return MILL_OK;
}

/* Refuse a guess_vel_step so small that the guess would need too much memory. */
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

/* Refuse a wave_mask that overlaps no arm in Angstrom, but overlaps an arm if read as nm or um. */
static int check_mask(const mill_config *config, const mill_library *lib)
{
  for (int i = 0; i < config->fit.n_wave_mask && !config->wave_mask_auto; i++) {
    const double min = config->fit.wave_mask[i].min_aa, max = config->fit.wave_mask[i].max_aa;
    int as_aa = 0, as_other = 0;
    for (int a = 0; a < lib->n_arm; a++) {
      as_aa |= mill_arm_overlaps(&lib->arm[a], min, max);
      as_other |= mill_arm_overlaps(&lib->arm[a], 10.0 * min, 10.0 * max) ||
                  mill_arm_overlaps(&lib->arm[a], 1e4 * min, 1e4 * max);
    }
    if (!as_aa && as_other)
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "wave_mask: [%g, %g] lies in the library if read as nm or um, but not as "
                        "Angstrom; give vacuum wavelengths in Angstrom",
                        min, max);
  }
  return MILL_OK;
}

int mill_config_bind(mill_config *config, const mill_library *lib, int is_first)
{
  int i_par = 0, n_fixed = 0;
  char a[32], b[32], c[32];
  /* config->fit gets these arrays at the end, since a failure must leave it as it is */
  int fixed[MILL_MAX_PAR] = {0};
  double fixed_value[MILL_MAX_PAR] = {0}, mean[MILL_MAX_PAR] = {0}, sigma[MILL_MAX_PAR] = {0};
  MILL_CHECK(mill_config_check(config));
  MILL_CHECK(mill_config_bind_arms(config, lib));
  MILL_CHECK(check_mask(config, lib));
  MILL_CHECK(check_guess(config, lib));
  for (int i = 0; i < config->n_fixed; i++) {
    const mill_named_value *item = &config->fixed[i];
    MILL_CHECK(find_parameter(lib, is_first, "fix_param", item->name, &i_par));
    if (i_par < 0)
      continue; /* only the first library has this label */
    const mill_fit_settings *fit = &config->fit;
    const int is_label = i_par >= MILL_PAR_LABEL0, is_vrad = i_par == MILL_PAR_VRAD;
    const mill_label *label = &lib->label[is_label ? i_par - MILL_PAR_LABEL0 : 0];
    const double min = is_label ? label->min : is_vrad ? fit->min_vel_km_s : fit->min_vsini_km_s;
    const double max = is_label ? label->max : is_vrad ? fit->max_vel_km_s : fit->max_vsini_km_s;
    if (!(item->value >= min && item->value <= max))
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "fix_param: %s = %s is outside its range%s%s; give a value from %s to %s%s",
                        item->name, mill_text_of_real(item->value, a), is_label ? " in " : "",
                        is_label ? lib->path : "", mill_text_of_real(min, b),
                        mill_text_of_real(max, c),
                        is_label ? ", or --library FILE with a library that has the value" : "");
    n_fixed++;
    fixed[i_par] = 1;
    fixed_value[i_par] = item->value;
  }
  if (n_fixed == MILL_PAR_LABEL0 + lib->n_label)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "fix_param: all %d parameters are fixed; leave at least one free", n_fixed);
  for (int i = 0; i < config->n_prior; i++) {
    MILL_CHECK(find_parameter(lib, is_first, "priors", config->prior[i].name, &i_par));
    if (i_par < 0)
      continue; /* only the first library has this label */
    mean[i_par] = config->prior[i].value;
    sigma[i_par] = config->prior[i].sigma;
  }
  memcpy(config->fit.fixed, fixed, sizeof fixed);
  memcpy(config->fit.fixed_value, fixed_value, sizeof fixed_value);
  memcpy(config->fit.prior_mean, mean, sizeof mean);
  memcpy(config->fit.prior_sigma, sigma, sizeof sigma);
  /* with minsn_from: scores, the reader has skipped rows of low S/N already */
  config->fit.min_sn =
      config->select.sn_source == MILL_SN_PIXELS ? config->select.min_sn : -INFINITY;
  return MILL_OK;
}
