/* SPDX-License-Identifier: BSD-3-Clause */
/** Lists that the user gives in files: input paths, stars, numbers. */
#ifndef MILL_CATALOG_LIST_H
#define MILL_CATALOG_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "io/fits/fits_guard.h"
#include "src/config/star_list.h"

/** Paths, appended one by one; zeroed at first. */
typedef struct mill_path_list {
  char **path; /**< [n], owned, as each of them */
  size_t n;
  int64_t room;
} mill_path_list;
int mill_path_list_add(mill_path_list *list, const char *path); /**< a copy */
void mill_path_list_clear(mill_path_list *list);

/** Append the paths of a catalog: one a line.
 *
 *  Blank lines and lines whose first byte is # are ignored; a carriage return
 *  at the end of a line is, too.  A line is a plain path: brackets, globs, pipes and URLs have no
 *  special meaning.  A relative path is relative to the folder of the list.  The files need not
 *  exist yet.
 *
 *  MILL_ERR_USAGE names the list and the line: unreadable, no path in it, a
 *  path that is too long (MILL_FITS_MAX_PATH) or holds a zero byte. */
int mill_catalog_list_read(const char *path, mill_path_list *list);

/** Append the stars of a list: a text file with a TARGETID, IDENTIFIER or OBJECT a line (blank
 *  lines and lines that begin with # are ignored), or a FITS file, plain or gzip, with one or more
 *  of these columns in its first table; a row is the star of mill_star_list_add_row.
 *
 *  MILL_ERR_USAGE names the file and the line: unreadable, no name, none at all; MILL_ERR_INPUT for
 *  a bad FITS file. */
int mill_star_list_read(const char *path, mill_star_list *list);

/** Read numbers from 0 on: "100,200-210", and the same from the lines of a file, as in the other
 *  lists; either of them may be NULL.
 *
 *  numbers  [n]  out  in the order given, owned by the caller (mill_free)
 *
 *  MILL_ERR_USAGE names the text or the file and the line: no number, a range that is none, more
 *  than ten million, a repeated number. */
int mill_number_list(const char *text, const char *path, int64_t **numbers, size_t *n);

#endif
