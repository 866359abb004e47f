/* SPDX-License-Identifier: BSD-3-Clause */
/** Lists given by the user: input paths, stars, numbers. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "io/fits/fits_guard.h"
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
 *  Blank lines and lines that begin with # are ignored, and so is a carriage return at the end of a
 *  line.  Paths are plain: brackets, globs, pipes and URLs have no special meaning.  A relative
 *  path starts from the catalog's folder.  The files need not exist yet.
 *
 *  MILL_ERR_USAGE names the catalog and the line: catalog unreadable or without a path, path too
 *  long (MILL_FITS_MAX_PATH) or with a zero byte. */
int mill_catalog_list_read(const char *path, mill_path_list *list);

/** Append the stars of a list.  A text file has one TARGETID, IDENTIFIER or OBJECT a line; blank
 *  lines and lines that begin with # are ignored.  A FITS file, plain or gzip, has one or more of
 *  these columns in its first table, and each row is read as in mill_star_list_add_row.
 *
 *  MILL_ERR_USAGE names the file and the line: unreadable, a line that names no star, or no star at
 *  all.  MILL_ERR_INPUT: bad FITS file. */
int mill_star_list_read(const char *path, mill_star_list *list);

/** Read numbers >= 0, such as "100,200-210", from text, from the lines of the file at path, or
 *  both; either may be NULL.
 *
 *  numbers  [n]  out  in the order given, owned by the caller (mill_free)
 *
 *  MILL_ERR_USAGE names the text or the file and line: not a number, a range whose end is below its
 *  start, more than ten million numbers, a repeated number. */
int mill_number_list(const char *text, const char *path, int64_t **numbers, size_t *n);
