/* SPDX-License-Identifier: BSD-3-Clause */
/** Input files by pattern. */
#pragma once

#include "io/catalog/catalog_list.h"

/** Append to list all paths that match a glob(3) pattern, sorted by bytes.  Each number in turn
 *  replaces {n}, {n:WIDTH} or {n/DIVISOR} in the pattern.  If a filled-in pattern matches no file,
 *  it is itself appended; a reader then reports it as a missing input.
 *
 *  MILL_ERR_USAGE: a pattern without {n} matches no file, {n} is misspelt or has no numbers, or a
 *  folder cannot be read. */
int mill_input_pattern(const char *pattern, const int64_t *number, size_t n_number,
                       mill_path_list *list);
