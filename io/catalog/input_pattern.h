/* SPDX-License-Identifier: BSD-3-Clause */
/** Input files by pattern. */
#pragma once

#include "io/catalog/catalog_list.h"

/** Append to list all paths that match a glob(3) pattern, sorted by bytes.
 *
 *  Each number in turn replaces {n}, {n:WIDTH} or {n/DIVISOR} in the pattern.  If no file matches
 *  for a number, the filled-in pattern is appended, and a reader reports it as a missing input.
 *
 *  MILL_ERR_USAGE: no match, {n} without numbers or misspelt, a folder that cannot be read. */
int mill_input_pattern(const char *pattern, const int64_t *number, size_t n_number,
                       mill_path_list *list);
