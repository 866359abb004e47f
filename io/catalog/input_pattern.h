/* SPDX-License-Identifier: BSD-3-Clause */
/** Input files by pattern. */
#ifndef MILL_INPUT_PATTERN_H
#define MILL_INPUT_PATTERN_H

#include "io/catalog/catalog_list.h"

/** All paths that match a pattern of glob(3), in the order of their bytes.  Where the pattern has
 *  {n}, {n:WIDTH} or {n/DIVISOR}, these stand for each of the numbers, one after the other; a
 *  number without a match gives its pattern as a path, so that it is reported as a missing input.
 *
 *  list  in/out  appended to
 *
 *  MILL_ERR_USAGE: no match, {n} without numbers or wrongly written, a folder that cannot be read;
 *  the message has the pattern. */
int mill_input_pattern(const char *pattern, const int64_t *number, size_t n_number,
                       mill_path_list *list);

#endif
