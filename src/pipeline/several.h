/* SPDX-License-Identifier: BSD-3-Clause */
/** Which of several libraries a star is fitted with, and which row is the star's.
 *
 *  A star stays in its slot.  All libraries guess, the first one last; then the star is fitted with
 *  the library whose guess is best and with those that tie with it, in their order.  Its row is
 *  that of the least mill_fit_result.excess, larger where the solution has HULL; the first of
 *  equal ones.  If that row has HULL, libraries whose guess is nearly as good are fitted as well.
 *  So a row depends on its star alone.
 */
#ifndef MILL_SEVERAL_H
#define MILL_SEVERAL_H

#include "src/pipeline/member.h"
#include "src/pipeline/slots.h"

/** Can a library be fitted along with the first?  It has the same arms, all of them with or without
 *  a resolution of its own, and no other labels.
 *
 *  label [other->n_label]  out  indices of its labels among the first's
 *
 *  MILL_ERR_CONFIG with what to do. */
int mill_several_match(const mill_library *first, const mill_library *other, int *label);

/** Settings of a library's parameters from those of the first's; label as of mill_several_match. */
mill_fit_settings mill_several_settings(const mill_fit_settings *first, int n_label,
                                        const int *label);

/** What the libraries have made of a slot's star so far. */
typedef struct mill_contest {
  double chisq[MILL_MAX_LIBRARY], tie; /**< of the guesses; the least of the libraries' */
  double fitted;                       /**< tie of the first choice; -INFINITY during it */
  int is_guessing;                     /**< the library whose turn it is only guesses */
  int scaled;                          /**< MILL_INFO_LSF_SCALED of the first turn, which scales the
                                            rows of the slot's matrices for all; else 0 */
  int is_kept;                         /**< best is the star's row, not that of the last library */
  mill_fit_result best;                /**< so far; NOT_DONE: none */
  const mill_star_model *model;        /**< of best, in kept */
  mill_fetched kept;
} mill_contest;

/** Begin with the last library, which guesses. */
void mill_contest_begin(mill_contest *contest);

/** Take the result of the library whose turn it was with the star in a slot.  *next: the library
 *  whose turn is next, and *limit the guess's chi-square up to which it fits; -1: star->result is
 *  the star's, with its models and epochs if contest->is_kept.  MILL_ERR_MEMORY,
 *  MILL_ERR_BACKEND. */
int mill_contest_take(mill_contest *contest, mill_slots *slots, int i_slot, int *next,
                      double *limit);

void mill_contest_clear(mill_contest *contest);

#endif
