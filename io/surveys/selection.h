/* SPDX-License-Identifier: BSD-3-Clause */
/** Selection of rows by their properties, without access to files. */
#pragma once

#include "io/catalog/catalog_row.h"
#include "kernels/base/memory.h"
#include "src/config/config.h"

/** A spectrum to be kept or dropped. */
typedef struct mill_candidate {
  const mill_catalog_row *row; /**< only Z and SPECTYPE are used */
  const char *objtype;         /**< target type: SKY, BAD, ...; NULL: the format has no types */
  int in_class;                /**< 1: in a class of the key target_classes */
  double sn;                   /**< S/N stated in the file, for minsn_from: scores */
} mill_candidate;

/** Is a spectrum selected?  It must pass each of these tests that `select` contains:
 *
 *  target type   by default all but SKY and BAD pass
 *  S/N           the S/N stated in the file is at least min_sn
 *  redrock       SPECTYPE STAR, or |z| c below the limit
 *  target class  in_class is 1; with select->select_by ANY, this or the test redrock is enough */
int mill_selection_keeps(const mill_selection *select, const mill_candidate *candidate);

/** Refuse a file without the values that a key in `select` tests: all rows would fail, or all pass.
 *  has_kind     the file has classes or redshifts, which the key redrock tests
 *  has_objtype  the file has target types, which the key objtypes tests
 *  MILL_ERR_INPUT: the file is refused. */
int mill_selection_check(const mill_selection *select, const char *path, int has_kind,
                         int has_objtype);

/** Does the selection use the S/N stated in files? */
int mill_selection_has_scores(const mill_selection *select);

/** Is the row's SPECTYPE GALAXY or QSO, with ZWARN 0, and its redshift too large for a star? */
int mill_selection_is_extragalactic(const mill_selection *select, const mill_catalog_row *row);

/** Is exp_id from select->min_exp_id to max_exp_id?  -1, unknown, passes only without limits. */
int mill_selection_keeps_exp_id(const mill_selection *select, int32_t exp_id);

/** Does the selection limit the numbers of exposures? */
int mill_selection_has_exp_id(const mill_selection *select);

/** Compiled regular expressions of select->target_class. */
typedef struct mill_class_patterns mill_class_patterns;

/** Compile the expressions.  MILL_ERR_CONFIG: invalid expression. */
int mill_class_patterns_make(const mill_selection *select, mill_class_patterns **out);
void mill_class_patterns_free(mill_class_patterns *patterns); /* NULL is allowed */
MILL_CLOSER(mill_class_patterns, mill_class_patterns_free)

/** Return bits: bit i is 1 if pattern i matches the beginning of `name`, as MWS matches MWS_ANY. */
int mill_class_matches(const mill_class_patterns *patterns, const char *name);
