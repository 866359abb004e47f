/* SPDX-License-Identifier: BSD-3-Clause */
/** Lists given by the user: input paths and patterns of paths, stars, numbers. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "src/config/star_list.h"

/** A growing list of paths; zero it before use. */
typedef struct mill_path_list {
  char **path; /**< [n], list and texts owned */
  size_t n;
  int64_t room;
} mill_path_list;
int mill_path_list_add(mill_path_list *list, const char *path); /**< copies path */
void mill_path_list_clear(mill_path_list *list);

/** Append the paths of a catalog file, which holds one path a line.
 *
 *  Blank lines and lines that begin with # are skipped.  A relative path starts from the catalog's
 *  folder.  Brackets, globs, pipes and URLs have no special meaning.
 *
 *  MILL_ERR_USAGE: the catalog is unreadable or has no path; a path is too long
 *  (MILL_FITS_MAX_PATH) or has a zero byte. */
int mill_catalog_list_read(const char *path, mill_path_list *list);

/** Append the stars of a list, which is one of
 *  - a text file with one TARGETID, IDENTIFIER or OBJECT a line (# begins a comment line);
 *  - a FITS file, plain or gzip, whose first table has one or more of these columns.
 *
 *  MILL_ERR_USAGE: unreadable, no star, or a line that is no name.  MILL_ERR_CONFIG: bad FITS. */
int mill_star_list_read(const char *path, mill_star_list *list);

/** Read numbers, such as "100,200-210", from text and then from the lines of the file at path;
 *  either may be NULL.
 *
 *  numbers  [n]  out  in the order given, owned by the caller (mill_free)
 *
 *  MILL_ERR_USAGE: not a number, a descending range, a repeated number, more than ten million. */
int mill_number_list(const char *text, const char *path, int64_t **numbers, size_t *n);

/** Append to list all paths that match a glob(3) pattern, sorted by bytes.  Each number in turn
 *  replaces {n}, {n:WIDTH} or {n/DIVISOR} in the pattern.  If a filled-in pattern matches no file,
 *  it is itself appended; a reader then reports it as a missing input.
 *
 *  MILL_ERR_USAGE: a pattern without {n} matches no file, {n} is misspelt or has no numbers, or a
 *  folder cannot be read. */
int mill_input_pattern(const char *pattern, const int64_t *number, size_t n_number,
                       mill_path_list *list);
