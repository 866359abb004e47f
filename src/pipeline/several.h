/* SPDX-License-Identifier: BSD-3-Clause */
/** Fits with several libraries: which libraries fit a star, and which of their rows it gets.
 *
 *  1. All libraries guess, from the last to the first.
 *  2. The library of the best guess fits the star, and so do libraries whose guesses tie with it.
 *  3. If the best row has the warning HULL, each library whose guess is nearly the best also fits.
 *  4. The star gets the row of least mill_fit_result.excess.  If this row has HULL, a row without
 *     HULL replaces it if they tie, or if their labels are near and its excess is within 25 %.
 *  So a row depends on its star alone. */
#pragma once

#include "src/pipeline/slots.h"

/** Check that a library can be fitted along with the first.  It must have only labels of the first,
 *  and the same arms; an arm is at the instrument's resolution in both libraries or in neither.
 *
 *  label [other->n_label]  out  indices of its labels among the first's
 *
 *  MILL_ERR_CONFIG; the message says what to do. */
int mill_several_match(const mill_library *first, const mill_library *other, int *label);

/** Return the settings for another library: those of the first, with fixed values and priors in the
 *  order of its labels.  label: from mill_several_match. */
mill_fit_settings mill_several_settings(const mill_fit_settings *first, int n_label,
                                        const int *label);

/** Results of a slot's star so far. */
typedef struct mill_contest {
  double chisq[MILL_MAX_LIBRARY]; /**< chi-square of each library's guess */
  double tie;                     /**< a library fits if its guess has at most this chi-square */
  double fitted;                  /**< during step 3: the tie of step 2; before: -INFINITY */
  int is_guessing;                /**< the present turn is only a guess */
  int scaled;                     /**< MILL_INFO_LSF_SCALED if the first turn scaled the slot's
                                   *  resolution rows, which all libraries use; else 0 */
  int is_kept;                    /**< the star's row is `best`, not the last turn's row */
  mill_fit_result best;           /**< best row so far; NOT_DONE: none */
  const mill_star_model *model;   /**< models of best, in kept */
  mill_fetched kept;
} mill_contest;

/** Begin with the last library, which guesses. */
void mill_contest_begin(mill_contest *contest);

/** Call this after a library's guess or fit of a slot's star.  Keeps the row if it is the best so
 *  far, and chooses the next library.
 *
 *  next   out  the next library; -1: none, star->result is the star's row (with models and epochs
 *              if contest->is_kept)
 *  limit  out  the next library fits only if its guess's chi-square is at most limit
 *
 *  MILL_ERR_MEMORY, MILL_ERR_BACKEND. */
int mill_contest_take(mill_contest *contest, mill_slots *slots, int i_slot, int *next,
                      double *limit);
