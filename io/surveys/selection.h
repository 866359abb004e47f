/* SPDX-License-Identifier: BSD-3-Clause */
/** Selection of rows by their properties; opens no files. */
#ifndef MILL_SELECTION_H
#define MILL_SELECTION_H

#include "io/catalog/catalog_row.h"
#include "src/config/config.h"

/** A spectrum that a selection keeps or drops. */
typedef struct mill_candidate {
  const mill_catalog_row *row; /**< Z and SPECTYPE are used */
  const char *objtype;         /**< SKY, BAD or another; NULL: the format has no types */
  int in_class;                /**< it belongs to a class of the key target_classes */
  double sn;                   /**< S/N that the file states, for minsn_from: scores */
} mill_candidate;

/** Keep a spectrum?  It must pass OBJTYPE (default: all but SKY and BAD), the S/N that the file
 *  states, and redrock (SPECTYPE STAR, or |z| c below the limit) and target classes.  If redrock
 *  and classes both select, select->select_by asks for either or both. */
int mill_selection_keeps(const mill_selection *select, const mill_candidate *candidate);

/** Does the selection use S/N that files state? */
int mill_selection_has_scores(const mill_selection *select);

/** Galaxy or quasar by a class without warning, and too fast for a star? */
int mill_selection_is_other(const mill_selection *select, const mill_catalog_row *row);

/** Keep an exposure by its number, from select->min_exp_id to max_exp_id?  An unknown number (-1)
 *  is kept only if there are no such limits. */
int mill_selection_keeps_exp_id(const mill_selection *select, int32_t exp_id);

/** Does the selection use numbers of exposures? */
int mill_selection_has_exp_id(const mill_selection *select);

/** The regular expressions of select->target_class, compiled. */
typedef struct mill_class_patterns mill_class_patterns;

/** MILL_ERR_CONFIG for an invalid expression. */
int mill_class_patterns_make(const mill_selection *select, mill_class_patterns **out);
void mill_class_patterns_free(mill_class_patterns *patterns); /* NULL is allowed */

/** Set bit i if target_class[i] matches the beginning of name, as Python's re.match does: MWS
 *  matches MWS_ANY. */
int mill_class_matches(const mill_class_patterns *patterns, const char *name);

#endif
