/* SPDX-License-Identifier: BSD-3-Clause */
/** Row selection: one function per property, no files. */
#ifndef MILL_SELECTION_H
#define MILL_SELECTION_H

#include "io/catalog/catalog_row.h"
#include "src/config/config.h"

/** A spectrum that a selection keeps or drops. */
typedef struct mill_candidate {
  const mill_catalog_row *row; /**< its Z and SPECTYPE are looked at */
  const char *objtype;         /**< SKY, BAD or another; NULL: rows of the format have none */
  int in_class;                /**< it is of one of the target classes, if any are given */
  double sn;                   /**< S/N that the file states, for minsn_from: scores */
} mill_candidate;

/** By OBJTYPE (no list: all but SKY and BAD), S/N that the file states, redrock (SPECTYPE
 *  STAR or |z| c below the limit) and target classes; where the last two both select, by either or
 *  by both, as select->select_by says. */
int mill_selection_keeps(const mill_selection *select, const mill_candidate *candidate);

/** Does it go by S/N that files state? */
int mill_selection_has_scores(const mill_selection *select);

/** Is it a galaxy or quasar by a class without warnings, and not as slow as a star? */
int mill_selection_is_other(const mill_selection *select, const mill_catalog_row *row);

/** By number of exposure, from select->min_exp_id to max_exp_id; -1, which is not known, only where
 *  these keep all. */
int mill_selection_keeps_exp_id(const mill_selection *select, int32_t exp_id);

/** Does the selection use numbers of exposures? */
int mill_selection_has_exp_id(const mill_selection *select);

/** The regular expressions of select->target_class, compiled. */
typedef struct mill_class_patterns mill_class_patterns;

/** MILL_ERR_CONFIG for an invalid expression. */
int mill_class_patterns_make(const mill_selection *select, mill_class_patterns **out);
void mill_class_patterns_free(mill_class_patterns *patterns); /* NULL is allowed */

/** Which of them a name, or its beginning, matches (bit i: target_class[i]).  As Python's re.match
 *  has it, so MWS is MWS_ANY too, and STD_* is STD_BRIGHT. */
int mill_class_matches(const mill_class_patterns *patterns, const char *name);

#endif
