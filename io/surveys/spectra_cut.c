/* SPDX-License-Identifier: BSD-3-Clause */
/* Assigns the pixels of channels to arms. */
#include <stdatomic.h>
#include <string.h>
#include <strings.h>

#include "io/surveys/spectra_impl.h"
#include "kernels/math/doppler.h"
#include "src/config/arms.h"

/* Pieces numbered so far in this process, for mill_raw_segment.wave_number. */
static _Atomic uint64_t n_numbered;

void mill_spectra_set_rules(mill_spectra *spectra)
{
  const mill_library *lib = spectra->settings.lib;
  const mill_config *config = spectra->settings.config;
  for (int a = 0; a < lib->n_arm; a++) {
    mill_arm_rule *rule = &spectra->arm[a];
    rule->needs_lsf = lib->arm[a].template_sigma_aa >= 0.0 && config->lsf != MILL_LSF_OFF;
    const mill_arm_choice choice = mill_config_arm(config, lib->arm[a].name);
    rule->resolving_power = choice.resolving_power;
    rule->fwhm_aa = choice.fwhm_aa;
    rule->min_aa = choice.min_aa;
    rule->max_aa = choice.max_aa;
    /* least, most: wavelengths that the templates cover at every velocity within the limits */
    const double first = exp(lib->arm[a].ln_wave0);
    const double last =
        exp(lib->arm[a].ln_wave0 + lib->arm[a].ln_step * (double)(lib->arm[a].n_pix - 1));
    const double margin = 1e-9; /* for rounding; exp(atanh(v / c)) is the Doppler factor */
    const double least = first * exp(atanh(config->fit.max_vel_km_s / MILL_C_KM_S)) * (1 + margin);
    const double most = last * exp(atanh(config->fit.min_vel_km_s / MILL_C_KM_S)) * (1 - margin);
    /* if only one end of the range is configured, the templates set the other */
    if (rule->min_aa > 0.0 || isfinite(rule->max_aa)) {
      rule->min_aa = fmax(rule->min_aa, least);
      rule->max_aa = fmin(rule->max_aa, most);
    }
    rule->least_aa = fmax(least, rule->min_aa);
    rule->most_aa = fmin(most, rule->max_aa);
  }
}

/* Return the arm, among those in `mask`, to which a wavelength goes; -1: none.  Of two overlapping
 * arms, the arm that begins first gets the lower half of the overlap. */
static int arm_of(const mill_spectra *spectra, unsigned mask, double wave_aa)
{
  int best = -1;
  for (int a = 0; a < spectra->settings.lib->n_arm; a++) {
    const double min = spectra->arm[a].least_aa, max = spectra->arm[a].most_aa;
    if (!(mask & 1u << a) || !(wave_aa >= min && wave_aa <= max))
      continue;
    if (best >= 0) {
      const double best_min = spectra->arm[best].least_aa, best_max = spectra->arm[best].most_aa;
      const double middle = 0.5 * (fmax(min, best_min) + fmin(max, best_max));
      const int is_upper = min > best_min || (min == best_min && max > best_max);
      if (is_upper ? wave_aa < middle : wave_aa >= middle) /* in the half of `best` */
        continue;
    }
    best = a;
  }
  return best;
}

unsigned mill_spectra_takers(const mill_spectra_settings *settings, const char *channel,
                             enum mill_channel_rule *rule)
{
  const mill_library *lib = settings->lib;
  unsigned by_choice = 0, by_name = 0, by_wave = 0;
  int has_name = 0; /* 1: an arm, wanted or not, has the channel's name */
  for (int a = 0; a < lib->n_arm; a++) {
    const int i = mill_config_find_arm(settings->config, lib->arm[a].name);
    const char *own = i >= 0 ? settings->config->arm[i].channel : "";
    const unsigned bit = settings->arm_wanted[a] ? 1u << a : 0;
    if (own[0]) {
      by_choice |= strcasecmp(own, channel) == 0 ? bit : 0;
      continue;
    }
    by_wave |= bit;
    if (strcasecmp(lib->arm[a].name, channel) == 0) {
      has_name = 1;
      by_name = bit;
    }
  }
  *rule = by_choice ? MILL_BY_CHOICE : has_name ? MILL_BY_NAME : MILL_BY_WAVE;
  return by_choice ? by_choice : has_name ? by_name : by_wave;
}

/* Divide the pixels of a channel among the arms that take it. */
static int cut(const mill_spectra *spectra, mill_known_waves *known)
{
  const double *wave = known->wave_aa;
  const int n_pix = known->n_pix;
  enum mill_channel_rule how;
  const unsigned takers = mill_spectra_takers(&spectra->settings, known->name, &how);
  mill_piece longest = {0}; /* taken if no piece is long enough: then the fit reports it */
  known->n_piece = known->outside = 0;
  if (how == MILL_BY_NAME) {
    if (takers == 0)
      return MILL_OK;
    const int arm = __builtin_ctz(takers); /* number of the only bit */
    const mill_arm_rule *rule = &spectra->arm[arm];
    int first = 0, end = n_pix;
    while (first < end && wave[first] < rule->min_aa)
      first++;
    while (end > first && wave[end - 1] > rule->max_aa)
      end--;
    if (end > first)
      known->piece[known->n_piece++] = (mill_piece){.arm = arm, .first = first, .n = end - first};
  } else
    for (int first = 0, end; first < n_pix; first = end) {
      const int arm = arm_of(spectra, takers, wave[first]);
      for (end = first + 1; end < n_pix && arm_of(spectra, takers, wave[end]) == arm;)
        end++;
      const mill_piece piece = {.arm = arm, .first = first, .n = end - first};
      if (arm >= 0 && piece.n > longest.n)
        longest = piece;
      if (arm < 0 || piece.n < 2 * spectra->settings.config->fit.n_cont)
        continue; /* a fit needs two pixels per continuum function */
      if (known->n_piece == MILL_MAX_PIECE)
        return MILL_ERROR(MILL_ERR_INPUT,
                          "%s: channel %s is cut into over %d pieces; name fewer arms (--arms)",
                          spectra->name, known->name, MILL_MAX_PIECE);
      known->piece[known->n_piece++] = piece;
    }
  if (known->n_piece == 0 && longest.n > 0)
    known->piece[known->n_piece++] = longest;
  known->outside = known->n_piece == 0 && takers != 0;
  return MILL_OK;
}

void mill_spectra_forget(mill_spectra *spectra)
{
  while (spectra->n_known > 0) {
    mill_known_waves *known = &spectra->known[--spectra->n_known];
    if (known->wave_aa != known->given_aa)
      mill_free(known->wave_aa);
    mill_free(known->given_aa);
  }
}

/* Convert an air wavelength (A) to vacuum: Piskunov's inverse (VALD) of Morton 2000, ApJS 130,
 * 403.  Wavelengths below 2000 A are returned unchanged. */
static double air_to_vacuum(double wave_air_aa)
{
  if (!(wave_air_aa >= 2000.0))
    return wave_air_aa;
  const double s = 1e4 / wave_air_aa, s2 = s * s;
  const double n = 1.0 + 0.00008336624212083 + 0.02408926869968 / (130.1065924522 - s2) +
                   0.0001599740894897 / (38.92568793293 - s2);
  return n * wave_air_aa;
}

/* Remember new wavelengths and cut them into pieces. */
static int learn(mill_spectra *spectra, const mill_channel *channel, int air,
                 mill_known_waves *known)
{
  *known = (mill_known_waves){.air = air, .n_pix = channel->n_pix};
  spectra->n_known++; /* first, so that mill_spectra_forget frees it after a failure */
  memcpy(known->name, channel->name, sizeof known->name);
  MILL_CHECK(MILL_ALLOC(channel->n_pix, &known->given_aa));
  memcpy(known->given_aa, channel->wave_aa, (size_t)channel->n_pix * sizeof *known->given_aa);
  known->wave_aa = known->given_aa; /* one array, unless air is converted */
  if (air)
    MILL_CHECK(MILL_ALLOC(channel->n_pix, &known->wave_aa));
  for (int i = 0; i < channel->n_pix; i++) {
    const double wave = channel->wave_aa[i];
    known->wave_aa[i] = air ? air_to_vacuum(wave) : wave;
    if (!isfinite(wave) || !(known->wave_aa[i] > (i > 0 ? known->wave_aa[i - 1] : 0.0)))
      return MILL_ERROR(MILL_ERR_INPUT,
                        "%s: channel %s: wavelength %d is %g; wavelengths must be positive and "
                        "ascending; make the file again",
                        spectra->name, channel->name, i, wave);
  }
  MILL_CHECK(cut(spectra, known));
  for (int i = 0; i < known->n_piece; i++)
    known->piece[i].wave_number = atomic_fetch_add(&n_numbered, 1) + 1;
  return MILL_OK;
}

int mill_spectra_know(mill_spectra *spectra, const mill_channel *channel, mill_known_waves **out)
{
  /* the key medium is for files: a caller with spectra in memory states their medium */
  const int medium = spectra->fits ? spectra->settings.config->medium : MILL_MEDIUM_AUTO;
  const int air = medium == MILL_MEDIUM_AIR || (medium == MILL_MEDIUM_AUTO && channel->air);
  if (channel->n_pix < 1)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: channel %s has no pixels; make the file again",
                      spectra->name, channel->name);
  for (*out = spectra->known; *out < spectra->known + spectra->n_known; ++*out)
    if ((*out)->n_pix == channel->n_pix && (*out)->air == air &&
        strcmp((*out)->name, channel->name) == 0 &&
        memcmp((*out)->given_aa, channel->wave_aa, (size_t)channel->n_pix * sizeof(double)) == 0)
      return MILL_OK;
  if (spectra->n_known == MILL_MAX_KNOWN) /* start over; cutting again only costs time */
    mill_spectra_forget(spectra);
  *out = &spectra->known[spectra->n_known];
  const int err = learn(spectra, channel, air, *out);
  if (err != MILL_OK)
    mill_spectra_forget(spectra);
  return err;
}

/* The key lsf names the line-spread function's source.  auto: the file's matrix, else the file's
 * sigma, else the configured width. */
int mill_spectra_lsf(const mill_spectra *spectra, const mill_channel *channel, int arm)
{
  const mill_arm_rule *rule = &spectra->arm[arm];
  const int wanted = spectra->settings.config->lsf;
  if (!rule->needs_lsf)
    return MILL_LSF_OFF;
  if (channel->n_diag > 0 && (wanted == MILL_LSF_AUTO || wanted == MILL_LSF_MATRIX))
    return MILL_LSF_MATRIX;
  if (channel->sigma_aa && (wanted == MILL_LSF_AUTO || wanted == MILL_LSF_SIGMA))
    return MILL_LSF_SIGMA;
  if ((rule->resolving_power > 0.0 || rule->fwhm_aa > 0.0) &&
      (wanted == MILL_LSF_AUTO || wanted == MILL_LSF_RESOLVING_POWER))
    return MILL_LSF_RESOLVING_POWER;
  return MILL_LSF_AUTO; /* unknown */
}

int mill_spectra_wants(mill_spectra *spectra, const mill_channel *channel, int *wants)
{
  mill_known_waves *known = NULL;
  *wants = 0;
  MILL_CHECK(mill_spectra_know(spectra, channel, &known));
  if (known->outside) /* add a channel beyond all arms, so that STATUS tells why */
    *wants = MILL_WANTS_CHANNEL;
  for (int i = 0; i < known->n_piece; i++) {
    const int lsf = mill_spectra_lsf(spectra, channel, known->piece[i].arm);
    *wants |= MILL_WANTS_CHANNEL;
    if (spectra->waves_only || lsf == MILL_LSF_AUTO) /* AUTO: unknown, so not fitted */
      continue;
    *wants |= MILL_WANTS_PIXELS | (lsf == MILL_LSF_MATRIX ? MILL_WANTS_MATRIX : 0);
  }
  return MILL_OK;
}
