/* SPDX-License-Identifier: BSD-3-Clause */
/** Input files by pattern. */
#pragma once

#include "io/catalog/catalog_list.h"

/** Append all paths that match a glob(3) pattern, sorted by bytes.  {n}, {n:WIDTH} or {n/DIVISOR}
 *  in the pattern are replaced by each number in turn.  A number without a match appends the
 *  filled-in pattern, so that it is reported as a missing input.
 *
 *  list  in/out  appended to
 *
 *  MILL_ERR_USAGE quotes the pattern: no match, {n} without numbers or misspelt, a folder that
 *  cannot be read. */
int mill_input_pattern(const char *pattern, const int64_t *number, size_t n_number,
                       mill_path_list *list);
