/** Lists that the user gives in files: input paths, and target ids. */
#ifndef MILL_CATALOG_LIST_H
#define MILL_CATALOG_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "io/fits/fits_guard.h"

/** Read a catalog: one path a line.
 *
 *  Blank lines and lines whose first byte is # are ignored; a carriage return
 *  at the end of a line is, too.  A line is only ever a path: brackets, globs,
 *  pipes and URLs mean nothing.  A relative path is relative to the folder of
 *  the list.  Whether the files exist is not asked here.
 *
 *  paths  [n]  out  free with mill_catalog_list_free
 *
 *  MILL_ERR_USAGE names the list and the line: unreadable, no path in it, a
 *  path that is too long (MILL_FITS_MAX_PATH) or holds a zero byte. */
int mill_catalog_list_read(const char *path, char ***paths, size_t *n);

/** NULL is allowed. */
void mill_catalog_list_free(char **paths, size_t n);

/** Read TARGETIDs: a text file with one integer a line (blank lines and lines
 *  that begin with # are ignored), or a FITS file, plain or gzip, with a column
 *  TARGETID in its first table.
 *
 *  ids  [n]  out  ascending, each once; free with mill_free
 *
 *  MILL_ERR_USAGE names the file and the line: unreadable, no integer, none at
 *  all; MILL_ERR_INPUT for a bad FITS file. */
int mill_target_id_file_read(const char *path, int64_t **ids, size_t *n);

#endif
