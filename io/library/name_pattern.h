/* SPDX-License-Identifier: BSD-3-Clause */
/** Labels in the names of files. */
#ifndef MILL_NAME_PATTERN_H
#define MILL_NAME_PATTERN_H

#include "kernels/base/common.h"

/** A pattern for names: letters stand for themselves, * for anything, {NAME} for a number, the
 *  value of that label, {NAME/10} for ten times its value.  A number is digits with at most one
 *  point between digits, behind + or - or, as in many grids, p (plus) or m (minus). */

/** Is it a valid pattern that gives each of the labels?  label [n_label].  MILL_ERR_USAGE names the
 *  option and what is missing. */
int mill_name_pattern_check(const char *pattern, int n_label, const char (*label)[MILL_MAX_NAME]);

/** Labels [n_label] from a name without its folder.  1: it has the pattern, else 0. */
int mill_name_pattern_match(const char *pattern, const char *name, int n_label,
                            const char (*label)[MILL_MAX_NAME], double *value);

#endif
