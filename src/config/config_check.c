/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>
#include <string.h>

#include "src/config/config_internal.h"
#include "src/config/text.h"

/* Return MILL_ERR_CONFIG with the message "KEY: item NUMBER: TEXT", or "KEY: TEXT" if item is -1.
 * Store key_name, other (the key that contradicts it, or NULL) and item in *where. */
__attribute__((format(printf, 5, 6))) static int wrong(mill_config_fault *where,
                                                       const char *key_name, const char *other,
                                                       int item, const char *format, ...)
{
  char text[512], place[32] = "";
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (item >= 0)
    snprintf(place, sizeof place, "item %d: ", item + 1);
  where->key = key_name;
  where->other = other;
  where->item = item;
  return MILL_ERROR(MILL_ERR_CONFIG, "%s: %s%s", key_name, place, text);
}

/* Check a value by row k of the table of keys; -inf stands for the word that k->without gives. */
static int check_key(const mill_config *config, const mill_option *k, mill_config_fault *where)
{
  const void *at = (const char *)config + k->offset;
  char value[64] = "", takes[256];
  double x = k->min;
  int n = 0, n_word = 0, is_right = 1;
  switch (k->kind) {
  case MILL_OPTION_REAL:
    memcpy(&x, at, sizeof x);
    mill_text_of_real(x, value);
    is_right = (x >= k->min && x <= k->max) || (k->without && x == -INFINITY);
    break;
  case MILL_OPTION_COUNT:
  case MILL_OPTION_CHOICE:
    memcpy(&n, at, sizeof n);
    snprintf(value, sizeof value, "%d", n);
    while (k->words && k->words[n_word])
      n_word++;
    is_right = k->words ? n >= 0 && n < n_word : n >= k->min && n <= k->max;
    break;
  case MILL_OPTION_WORD:
    mill_text_shown(at, value);
    is_right = mill_option_word(k->words, at) >= 0;
    break;
  case MILL_OPTION_PATH:
    if (!mill_text_is_printable(at))
      return wrong(where, k->name, NULL, -1,
                   "'%s' has control characters or is not UTF-8; rename the file or folder",
                   mill_text_shown(at, value));
    break;
  default:
    break;
  }
  return is_right ? MILL_OK
                  : wrong(where, k->name, NULL, -1, "%s is out of range; give %s", value,
                          mill_option_takes(k, takes));
}

/* Check names and numbers of a list of fixed values or (is_prior) priors; refuse repeated names. */
static int check_names(const char *key_name, const mill_named_value *list, int n, int is_prior,
                       mill_config_fault *where)
{
  char text[64];
  for (int i = 0; i < n; i++) {
    if (!list[i].name[0] || !mill_text_is_printable(list[i].name))
      return wrong(where, key_name, NULL, i, "'%s' is not a parameter name",
                   mill_text_shown(list[i].name, text));
    if (!isfinite(list[i].value))
      return wrong(where, key_name, NULL, i, "the %s of %s is not finite; give a number",
                   is_prior ? "mean" : "value", list[i].name);
    /* the fit divides by the square, which must neither underflow nor overflow */
    const double sigma = list[i].sigma, square = sigma * sigma;
    if (is_prior && !(sigma > 0.0 && square >= DBL_MIN && square <= DBL_MAX))
      return wrong(where, key_name, NULL, i,
                   "the sigma of %s is out of range; give 1e-150 to 1e150", list[i].name);
    for (int j = 0; j < i; j++)
      if (strcmp(list[i].name, list[j].name) == 0)
        return wrong(where, key_name, NULL, i, "%s appears twice; remove one", list[i].name);
  }
  return MILL_OK;
}

/* Check n words of `size` bytes each: printable, none twice. */
static int check_words(const char *key_name, const char *list, size_t size, int n,
                       mill_config_fault *where)
{
  char text[64];
  for (int i = 0; i < n; i++) {
    const char *word = list + (size_t)i * size;
    if (!word[0] || !mill_text_is_printable(word))
      return wrong(where, key_name, NULL, i, "'%s' is not a name", mill_text_shown(word, text));
    for (int j = 0; j < i; j++)
      if (strcmp(word, list + (size_t)j * size) == 0)
        return wrong(where, key_name, NULL, i, "%s appears twice; remove one", word);
  }
  return MILL_OK;
}

/* Check that target classes are distinct words and valid regular expressions. */
static int check_classes(const mill_selection *select, mill_config_fault *where)
{
  static const char key_name[] = "target_classes";
  char reason[128];
  regex_t regex;
  MILL_CHECK(check_words(key_name, select->target_class[0], sizeof select->target_class[0],
                         select->n_target_class, where));
  for (int i = 0; i < select->n_target_class; i++) {
    if (!mill_name_regex(select->target_class[i], &regex, reason, sizeof reason))
      return wrong(where, key_name, NULL, i, "'%s' is not a regular expression: %s",
                   select->target_class[i], reason);
    regfree(&regex);
  }
  return MILL_OK;
}

/* Check ranges and dependencies of the arms, whose names are checked already. */
static int check_arms(const mill_config *config, mill_config_fault *where)
{
  char a[32], b[32], text[64];
  for (int i = 0; i < config->n_arm; i++) {
    const mill_arm_choice *choice = &config->arm[i];
    if (!isfinite(choice->min_aa) || choice->min_aa < 0.0 || !(choice->max_aa > choice->min_aa))
      return wrong(where, "arms", NULL, i,
                   "min %s and max %s of %s are not a range; give 0 <= min < max in Angstrom",
                   mill_text_of_real(choice->min_aa, a), mill_text_of_real(choice->max_aa, b),
                   choice->arm);
    if (!mill_text_is_printable(choice->channel))
      return wrong(where, "arms", NULL, i, "'%s' is not the name of a channel",
                   mill_text_shown(choice->channel, text));
    if (!mill_config_is_power(choice->resolving_power))
      return wrong(where, "arms", NULL, i,
                   "the resolving_power of %s, %s, is out of range; give 0 or a number from %d to "
                   "%s",
                   choice->arm, mill_text_of_real(choice->resolving_power, a), MILL_MIN_POWER,
                   mill_text_of_real(MILL_MAX_POWER, b));
    if (!(choice->fwhm_aa >= 0.0 && choice->fwhm_aa <= MILL_MAX_FWHM))
      return wrong(where, "arms", NULL, i,
                   "the fwhm of %s, %s A, is out of range; give a number from 0 to %s", choice->arm,
                   mill_text_of_real(choice->fwhm_aa, a), mill_text_of_real(MILL_MAX_FWHM, b));
    if (choice->resolving_power > 0.0 && choice->fwhm_aa > 0.0)
      return wrong(where, "arms", NULL, i, "%s has resolving_power and fwhm; give one of them",
                   choice->arm);
    if (choice->sampling < 0 || choice->sampling > MILL_MAX_SAMPLING)
      return wrong(where, "arms", NULL, i,
                   "the sampling of %s is out of range; give a whole number from 0 to %d",
                   choice->arm, MILL_MAX_SAMPLING);
  }
  return MILL_OK;
}

int mill_config_check_where(const mill_config *config, mill_config_fault *where)
{
  const mill_fit_settings *fit = &config->fit;
  char a[32], b[32];
  for (int i = 0; i < MILL_N_KEY; i++)
    MILL_CHECK(check_key(config, &mill_config_key[i], where));
  if (fit->min_vel_km_s >= fit->max_vel_km_s)
    return wrong(where, "min_vel", "max_vel", -1,
                 "%s is not below max_vel, which is %s; set both keys",
                 mill_text_of_real(fit->min_vel_km_s, a), mill_text_of_real(fit->max_vel_km_s, b));
  if (fit->min_vsini_km_s >= fit->max_vsini_km_s)
    return wrong(where, "min_vsini", "max_vsini", -1,
                 "%s is not below max_vsini, %s; set both keys, or fix vsini (fix_param)",
                 mill_text_of_real(fit->min_vsini_km_s, a),
                 mill_text_of_real(fit->max_vsini_km_s, b));
  if (fit->guess_vel_step_km_s > fit->max_vel_km_s - fit->min_vel_km_s)
    return wrong(where, "guess_vel_step", "max_vel", -1,
                 "%s is more than max_vel - min_vel, %s; give a smaller step",
                 mill_text_of_real(fit->guess_vel_step_km_s, a),
                 mill_text_of_real(fit->max_vel_km_s - fit->min_vel_km_s, b));
  if (!mill_config_is_power(config->resolving_power))
    return wrong(where, "resolving_power", NULL, -1, "%s is out of range; give 0 or at least %d",
                 mill_text_of_real(config->resolving_power, a), MILL_MIN_POWER);
  if (config->join_radius_arcsec > 0.0 && !config->join_by_name)
    return wrong(where, "join_radius", "join_by_name", -1,
                 "needs join_by_name: true; set it, or remove this key");
  if (config->select.sn_source == MILL_SN_SCORES && config->join_by_name)
    return wrong(where, "minsn_from", "join_by_name", -1,
                 "scores: judges the rows of each file before they are joined; set pixels");
  for (int i = 0; i < config->n_fixed && fit->epochs != MILL_EPOCHS_NONE; i++)
    if (strcmp(config->fixed[i].name, "vrad") == 0)
      return wrong(where, "epochs", "fix_param", -1,
                   "fits velocities, but fix_param holds vrad; remove one of them");
  for (int i = 0; i < fit->n_wave_mask; i++) {
    const mill_wave_range *range = &fit->wave_mask[i];
    if (!isfinite(range->min_aa) || !isfinite(range->max_aa) || range->min_aa < 0.0 ||
        range->min_aa >= range->max_aa)
      return wrong(where, "wave_mask", NULL, i,
                   "[%s, %s] is not a range; give [min, max] in Angstrom, 0 <= min < max",
                   mill_text_of_real(range->min_aa, a), mill_text_of_real(range->max_aa, b));
    if (i > 0 && range->min_aa < range[-1].max_aa)
      return wrong(where, "wave_mask", NULL, i,
                   "starts at %s, before the previous range ends, at %s; give ranges in ascending "
                   "order and join overlapping ones",
                   mill_text_of_real(range->min_aa, a), mill_text_of_real(range[-1].max_aa, b));
  }
  MILL_CHECK(check_names("fix_param", config->fixed, config->n_fixed, 0, where));
  MILL_CHECK(check_names("priors", config->prior, config->n_prior, 1, where));
  for (int i = 0; i < config->n_prior; i++)
    for (int j = 0; j < config->n_fixed; j++)
      if (strcmp(config->prior[i].name, config->fixed[j].name) == 0)
        return wrong(where, "priors", NULL, i,
                     "%s has a prior and a fixed value; remove it from priors or from fix_param",
                     config->prior[i].name);
  MILL_CHECK(check_words("template_lib", config->template_lib[0], sizeof config->template_lib[0],
                         config->n_template_lib, where));
  MILL_CHECK(check_words("objtypes", config->select.objtype[0], sizeof config->select.objtype[0],
                         config->select.n_objtype, where));
  MILL_CHECK(check_classes(&config->select, where));
  if (config->select.max_exp_id > 0 && config->select.min_exp_id > config->select.max_exp_id)
    return wrong(where, "minexpid", "maxexpid", -1, "%d is above maxexpid, %d; set both",
                 config->select.min_exp_id, config->select.max_exp_id);
  MILL_CHECK(check_words("arms", config->arm[0].arm, sizeof config->arm[0], config->n_arm, where));
  return check_arms(config, where);
}

int mill_config_check(const mill_config *config)
{
  mill_config_fault where;
  return mill_config_check_where(config, &where);
}
