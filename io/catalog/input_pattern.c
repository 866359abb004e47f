/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/catalog/input_pattern.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WIDTH = 18 };

/* Length of {n}, {n:WIDTH} or {n/DIVISOR} at text; 0 when there is none. */
static size_t placeholder(const char *text, int *width, long long *divisor)
{
  char *end = NULL;
  *width = 0;
  *divisor = 1;
  if (strncmp(text, "{n}", 3) == 0)
    return 3;
  if (strncmp(text, "{n:", 3) != 0 && strncmp(text, "{n/", 3) != 0)
    return 0;
  const size_t n_digit = strspn(text + 3, "0123456789");
  const long long value = strtoll(text + 3, &end, 10);
  if (n_digit == 0 || n_digit > MAX_WIDTH || *end != '}' || value < 1 ||
      (text[2] == ':' && value > MAX_WIDTH))
    return 0;
  if (text[2] == ':')
    *width = (int)value;
  else
    *divisor = value;
  return (size_t)(end - text) + 1;
}

/* Replace each placeholder of pattern by number; *n_place: number of placeholders. */
static int fill_in(const char *pattern, int64_t number, char *out, size_t size, int *n_place)
{
  size_t n = 0;
  *n_place = 0;
  for (const char *at = pattern; *at;) {
    int width;
    long long divisor;
    const size_t length = placeholder(at, &width, &divisor);
    if (length == 0 && strncmp(at, "{n", 2) == 0)
      return MILL_ERROR(
          MILL_ERR_USAGE,
          "--pattern '%s': '%.12s' is not a placeholder for a number; write {n}, {n:8} or {n/100}",
          pattern, at);
    if (length > 0)
      n += (size_t)snprintf(out + n, size - n, "%0*lld", width, (long long)number / divisor);
    else
      out[n++] = *at;
    if (n + MAX_WIDTH + 2 >= size)
      return MILL_ERROR(MILL_ERR_USAGE, "--pattern: '%.80s...' is too long", pattern);
    *n_place += length > 0;
    at += length > 0 ? length : 1;
  }
  out[n] = '\0';
  return MILL_OK;
}

static _Thread_local int folder_errno;

/* Error callback of glob: a missing folder is not an error. */
static int folder_failed(const char *path, int reason)
{
  (void)path;
  folder_errno = reason;
  return reason != ENOENT && reason != ENOTDIR;
}

static int add_matches(const char *pattern, int flags, mill_path_list *list)
{
  MILL_AT_END(globfree) glob_t found = {0};
  const int failed = glob(pattern, flags, folder_failed, &found);
  if (failed == GLOB_NOSPACE)
    return MILL_ERROR(MILL_ERR_MEMORY, "no memory for the files of --pattern '%s'", pattern);
  if (failed == GLOB_NOMATCH)
    return MILL_ERROR(MILL_ERR_USAGE, "--pattern '%s' matches no file", pattern);
  if (failed)
    return MILL_ERROR(MILL_ERR_USAGE, "--pattern '%s': one of its folders cannot be read: %s",
                      pattern, strerror(folder_errno));
  for (size_t i = 0; i < found.gl_pathc; i++)
    MILL_CHECK(mill_path_list_add(list, found.gl_pathv[i]));
  return MILL_OK;
}

int mill_input_pattern(const char *pattern, const int64_t *number, size_t n_number,
                       mill_path_list *list)
{
  int n_place = 0;
  char filled[MILL_FITS_MAX_PATH];
  MILL_CHECK(fill_in(pattern, 0, filled, sizeof filled, &n_place)); /* counts placeholders */
  if (n_place == 0)
    return add_matches(pattern, 0, list);
  if (n_number == 0)
    return MILL_ERROR(MILL_ERR_USAGE, "--pattern '%s' has {n}: give its values with --numbers",
                      pattern);
  for (size_t i = 0; i < n_number; i++) {
    MILL_CHECK(fill_in(pattern, number[i], filled, sizeof filled, &n_place));
    MILL_CHECK(add_matches(filled, GLOB_NOCHECK, list)); /* no match: `filled` itself */
  }
  return MILL_OK;
}
