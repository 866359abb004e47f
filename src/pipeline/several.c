/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/pipeline/several.h"

#include "kernels/base/memory.h"
#include "kernels/math/hull.h"

/** A row may exceed the lower excess by this fraction and be better (is_better). */
static const double EDGE = 0.25;
/** guess_chisq is the chi-square less that without lines, so it is below 0.  A library is a second
 *  choice if its guess_chisq is at most NEARLY times the lowest one. */
static const double NEARLY = 0.9;

/* template_sigma_aa < 0: the templates are at the instrument's resolution. */
int mill_several_match(const mill_library *first, const mill_library *other, int *label)
{
  for (int l = 0; l < other->n_label; l++) {
    label[l] = mill_library_find_label(first, other->label[l].name);
    if (label[l] < 0)
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "%s has the label %s, which %s lacks: put the library that has all labels "
                        "first in the list, or fit with one library",
                        other->path, other->label[l].name, first->path);
  }
  int same = other->n_arm == first->n_arm;
  for (int a = 0; a < first->n_arm && same; a++)
    same = strcmp(first->arm[a].name, other->arm[a].name) == 0 &&
           (first->arm[a].template_sigma_aa < 0.0) == (other->arm[a].template_sigma_aa < 0.0);
  if (!same)
    return MILL_ERROR(
        MILL_ERR_CONFIG,
        "%s and %s have different arms, or only one is at the instrument's resolution: fit with "
        "one library, or set `arms` to wavelength ranges that both libraries cover",
        first->path, other->path);
  return MILL_OK;
}

mill_fit_settings mill_several_settings(const mill_fit_settings *first, int n_label,
                                        const int *label)
{
  mill_fit_settings set = *first;
  for (int l = 0; l < n_label; l++) {
    const int to = MILL_PAR_LABEL0 + l, from = MILL_PAR_LABEL0 + label[l];
    set.fixed[to] = first->fixed[from];
    set.fixed_value[to] = first->fixed_value[from];
    set.prior_mean[to] = first->prior_mean[from];
    set.prior_sigma[to] = first->prior_sigma[from];
  }
  return set;
}

/** Convert a row of library k to the first library's labels.  Labels that library k lacks get
 *  missing values, and zeros in the covariance.  Without a fit the whole covariance is NaN. */
static void take_row(const mill_member *member, int k, mill_fit_result *row)
{
  const mill_library *first = member[0].lib, *own = member[k].lib;
  const int n = MILL_PAR_LABEL0 + first->n_label, n_own = MILL_PAR_LABEL0 + own->n_label;
  const int *label = member[k].label;
  int par[MILL_MAX_PAR] = {MILL_PAR_VRAD, MILL_PAR_VSINI};
  const mill_fit_result from = *row;
  const int is_fitted = from.status == MILL_STATUS_FITTED;
  row->library = (uint8_t)(is_fitted ? 1 + k : 0);
  if (k == 0)
    return;
  mill_fit_result_clear_labels(row, first->n_label);
  for (int i = 0; i < n * (n + 1) / 2; i++)
    row->covar[i] = is_fitted ? 0.0 : NAN;
  for (int l = 0; l < own->n_label; l++) {
    row->label[label[l]] = from.label[l];
    row->label_err[label[l]] = from.label_err[l];
    row->label_err_formal[label[l]] = from.label_err_formal[l];
    row->label_flag[label[l]] = from.label_flag[l];
    row->pair_label[label[l]] = from.pair_label[l];
    row->pair_label_err[label[l]] = from.pair_label_err[l];
    par[MILL_PAR_LABEL0 + l] = MILL_PAR_LABEL0 + label[l];
  }
  for (int i = 0, j0 = 0; i < n_own; i++) /* covar: the upper triangle, row by row */
    for (int j = i; j < n_own; j++) {
      const int a = par[i] < par[j] ? par[i] : par[j], b = par[i] < par[j] ? par[j] : par[i];
      row->covar[a * n - a * (a - 1) / 2 + b - a] = from.covar[j0++];
    }
}

/** Is row better than best?  The one of lower excess is, unless only this one has the flag HULL.
 *  Then the other is better if they tie, or if labels are near and its excess is less than EDGE
 *  higher.  If they tie with labels far apart, the better one gets TWO_MINIMA. */
static int is_better(const mill_library *lib, mill_fit_result *row, mill_fit_result *best)
{
  int far = 0;
  if (best->status == MILL_STATUS_NOT_DONE || row->status != MILL_STATUS_FITTED)
    return best->status == MILL_STATUS_NOT_DONE;
  if (best->status != MILL_STATUS_FITTED)
    return 1;
  mill_fit_result *low = row->excess < best->excess || isnan(best->excess) ? row : best,
                  *high = low == row ? best : row;
  const double gap = high->excess - low->excess;
  const int is_tie =
      gap < MILL_TWO_MINIMA_GAP * fmax(1.0, low->chisq_data / (double)low->n_pix_tot);
  /* does a label differ by more than the library's standard deviation?  Missing values do not */
  for (int l = 0; l < lib->n_label; l++)
    far |= fabs(mill_label_map(&lib->label[l], row->label[l]) -
                mill_label_map(&lib->label[l], best->label[l])) > 1.0;
  const int only_low_has_hull = low->warn & MILL_WARN_HULL && !(high->warn & MILL_WARN_HULL);
  const int gives_way = only_low_has_hull && (is_tie || (!far && gap < EDGE * low->excess));
  mill_fit_result *better = gives_way ? high : low;
  better->info |= is_tie && far ? MILL_INFO_TWO_MINIMA : 0;
  return better == row;
}

/** Keep a slot's best row so far, with models and epochs, before the next turn overwrites them. */
static int keep(mill_contest *c, mill_slots *slots, int i_slot)
{
  mill_star *star = slots->entry[i_slot].star;
  if (star->result->status == MILL_STATUS_FITTED && (slots->want_models || star->n_epoch > 0)) {
    MILL_CHECK(mill_slots_fetch(slots, &i_slot, 1));
    const mill_fetched kept = slots->fetched;
    slots->fetched = c->kept; /* the next fetch uses this memory */
    c->kept = kept;
  }
  c->best = *star->result;
  c->model = star->model;
  star->model = NULL;
  return MILL_OK;
}

void mill_contest_begin(mill_contest *c)
{
  for (int k = 0; k < MILL_MAX_LIBRARY; k++)
    c->chisq[k] = INFINITY;
  c->tie = INFINITY;
  c->fitted = -INFINITY;
  c->is_guessing = 1;
  c->scaled = 0;
  c->best.status = MILL_STATUS_NOT_DONE;
}

/** Return the library whose turn comes after library k; -1: no more turns.  First all libraries
 *  guess.  Then a library fits if the chi-square of its guess is in (c->fitted, c->tie]. */
static int next_library(mill_contest *c, int n_lib, int k)
{
  if (c->is_guessing) {
    c->is_guessing = k > 1;
    return k - 1;
  }
  for (k++; k < n_lib; k++)
    if (c->chisq[k] > c->fitted && c->chisq[k] < INFINITY && c->chisq[k] <= c->tie)
      return k;
  return -1;
}

/** Return the first library not fitted so far whose guess is nearly the best (NEARLY); -1: none.
 *  The guess's bins blur sharp lines, so a library that fits worse may have the better guess. */
static int second_choice(mill_contest *c, int n_lib)
{
  double least = INFINITY;
  for (int k = 0; k < n_lib; k++)
    least = fmin(least, c->chisq[k]);
  c->fitted = c->tie;
  c->tie = fmax(c->tie, NEARLY * least);
  return next_library(c, n_lib, -1);
}

/* The steps are: 1. All libraries guess, which gives no row.  2. Libraries with the best guesses
 * fit.  3. If the best row has HULL, libraries with nearly the best guess fit, too. */
int mill_contest_take(mill_contest *c, mill_slots *slots, int i_slot, int *next, double *limit)
{
  mill_star *star = slots->entry[i_slot].star;
  mill_fit_result *row = star->result;
  const int k = slots->entry[i_slot].library, is_guess = c->is_guessing;
  c->scaled |= row->info & MILL_INFO_LSF_SCALED;
  row->info |= c->scaled;
  const int before_step_3 = c->fitted == -INFINITY; /* second_choice changes it */
  c->chisq[k] = row->guess_chisq;
  if (before_step_3)
    c->tie = fmin(c->tie, row->guess_tie);
  int is_best = 0;
  if (!is_guess) {
    take_row(slots->member, k, row);
    is_best = row->status != MILL_STATUS_NOT_DONE && is_better(slots->member[0].lib, row, &c->best);
  }
  *next = next_library(c, slots->n_lib, k);
  const mill_fit_result *best = is_best ? row : &c->best;
  if (*next < 0 && before_step_3 && best->status == MILL_STATUS_FITTED &&
      best->warn & MILL_WARN_HULL)
    *next = second_choice(c, slots->n_lib);
  /* A library that only guesses has the limit -INFINITY; one chosen to fit has none.  Library 0
   * guesses last, and fits in the same turn if its guess is within the tie. */
  *limit = c->is_guessing ? -INFINITY : *next == 0 ? c->tie : INFINITY;
  if (is_guess || *next >= 0) /* the next turn overwrites the slot */
    return is_best ? keep(c, slots, i_slot) : MILL_OK;
  c->is_kept = !is_best;
  if (c->is_kept) {
    *row = c->best;
    star->model = c->model;
  }
  return MILL_OK;
}
