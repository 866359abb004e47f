/* SPDX-License-Identifier: BSD-3-Clause */
/** Row selection: one function per property, no files. */
#ifndef MILL_SELECTION_H
#define MILL_SELECTION_H

#include "io/catalog/catalog_row.h"
#include "src/config/config.h"

/** Is the target among the wanted ones, by TARGETID, or with -1 by name?  No list: every target
 *  is. */
int mill_selection_keeps_target(const mill_selection *select, int64_t target_id,
                                const char *object);

/** objtype without trailing blanks.  No list: all but SKY and BAD. */
int mill_selection_keeps_objtype(const mill_selection *select, const char *objtype);

/** Are only allowed bits set? */
int mill_selection_keeps_fiberstatus(const mill_selection *select, uint64_t fiberstatus);

/** By redrock: SPECTYPE STAR or |z| c below the limit; NaN and a limit of NaN select nothing.
 *  Always true when select->redrock is 0. */
int mill_selection_keeps_redrock(const mill_selection *select, double z, const char *spectype);

/** Is it a galaxy or quasar by a class without warnings, and not as slow as a star? */
int mill_selection_is_other(const mill_selection *select, const mill_catalog_row *row);

/** By redrock and by target classes.  Where both select, either of them keeps a row, or both must
 *  (select->select_by).
 *
 *  in_class  the row is of one of the classes; ignored where none are given */
int mill_selection_keeps_star(const mill_selection *select, int in_class, double z,
                              const char *spectype);

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

/** Does a name, or its beginning, match one of them?  As Python's re.match has it, so MWS is
 *  MWS_ANY too, and STD_* is STD_BRIGHT. */
int mill_class_matches(const mill_class_patterns *patterns, const char *name);

#endif
