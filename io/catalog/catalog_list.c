/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* getline */

#include "io/catalog/catalog_list.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "io/catalog/star_table.h"
#include "src/system/order.h"
#include "src/system/regular_file.h"

typedef struct line {
  const char *path;                    /* of the file */
  const char *text;                    /* without blanks at both ends */
  char where[MILL_FITS_MAX_PATH + 32]; /* path and number of the line, for messages */
} line;

/* Call take for each line of the file, except blank lines and lines that begin with #. */
static int each_line(const char *path, int (*take)(const line *, void *), void *context)
{
  line at = {.path = path};
  MILL_OWNED char *buffer = NULL;
  size_t capacity = 0, number = 0;
  MILL_AT_END(mill_stream_close) FILE *stream = NULL;
  MILL_CHECK(mill_regular_stream(path, "a file with one entry a line", MILL_ERR_USAGE, &stream));
  ssize_t length;
  while (errno = 0, (length = getline(&buffer, &capacity, stream)) >= 0) {
    size_t n = (size_t)length;
    snprintf(at.where, sizeof at.where, "%s, line %zu", path, ++number);
    if (memchr(buffer, '\0', n))
      return MILL_ERROR(MILL_ERR_USAGE, "%s: holds a zero byte; give a text file", at.where);
    while (n > 0 && strchr(" \t\r\n", buffer[n - 1]))
      n--;
    buffer[n] = '\0';
    at.text = buffer + strspn(buffer, " \t");
    if (at.text[0] != '#' && at.text[0] != '\0')
      MILL_CHECK(take(&at, context));
  }
  if (ferror(stream) || errno == ENOMEM)
    return MILL_ERROR(MILL_ERR_USAGE, "%s: cannot be read: %s", path, strerror(errno));
  return MILL_OK;
}

static int take_path(const line *at, void *list)
{
  char path[MILL_FITS_MAX_PATH];
  const char *slash = at->text[0] == '/' ? NULL : strrchr(at->path, '/');
  const int n_folder = slash ? (int)(slash - at->path) + 1 : 0;
  const int length = snprintf(path, sizeof path, "%.*s%s", n_folder, at->path, at->text);
  if (length >= MILL_FITS_MAX_PATH)
    return MILL_ERROR(MILL_ERR_USAGE, "%s: shorten the path of %d bytes to at most %d", at->where,
                      length, MILL_FITS_MAX_PATH - 1);
  return mill_path_list_add(list, path);
}

int mill_catalog_list_read(const char *path, mill_path_list *list)
{
  const size_t n_before = list->n;
  MILL_CHECK(each_line(path, take_path, list));
  if (list->n == n_before)
    return MILL_ERROR(MILL_ERR_USAGE, "%s: holds no path; write one a line", path);
  return MILL_OK;
}

int mill_path_list_add(mill_path_list *list, const char *path)
{
  const size_t size = strlen(path) + 1;
  MILL_CHECK(MILL_GROW(&list->path, &list->room, (int64_t)list->n + 1));
  MILL_CHECK(MILL_ALLOC(size, &list->path[list->n]));
  memcpy(list->path[list->n++], path, size);
  return MILL_OK;
}

void mill_path_list_clear(mill_path_list *list)
{
  for (size_t i = 0; i < list->n; i++)
    mill_free(list->path[i]);
  mill_free(list->path);
  *list = (mill_path_list){0};
}

static int take_star(const line *at, void *list)
{
  return mill_star_list_add(list, at->where, at->text);
}

/* Append the star of each row of the file's first table; fail if it or its names are missing. */
static int read_fits_stars(const char *path, mill_star_list *list)
{
  int i_hdu = 0;
  MILL_FITS_VALUES(v, MILL_BY_PLACE); /* columns of names, which stand before positions */
  MILL_AT_END(mill_fits_file_close_at) mill_fits_file *file = NULL;
  MILL_CHECK(mill_fits_file_open(path, NULL, &file));
  while (i_hdu < file->guard->n_hdu && file->guard->hdu[i_hdu].kind != MILL_FITS_TABLE)
    i_hdu++;
  if (i_hdu < file->guard->n_hdu)
    MILL_CHECK(mill_fits_columns(file, i_hdu, mill_star_column, MILL_BY_PLACE, v));
  if (!v[MILL_BY_TARGETID].there && !v[MILL_BY_IDENTIFIER].there && !v[MILL_BY_OBJECT].there)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: its first table needs a column TARGETID, IDENTIFIER or OBJECT", path);
  for (int64_t i = 0; i < file->guard->hdu[i_hdu].axis[1]; i++) {
    const int64_t id = v[MILL_BY_TARGETID].i64[i];
    const char *identifier = mill_fits_text_at(&v[MILL_BY_IDENTIFIER], i);
    const char *object = mill_fits_text_at(&v[MILL_BY_OBJECT], i);
    if (id != -1 || identifier[0] || object[0]) /* skip rows that name no star */
      MILL_CHECK(mill_star_list_add_row(list, id, identifier, object));
  }
  return MILL_OK;
}

int mill_star_list_read(const char *path, mill_star_list *list)
{
  const int64_t n_before = list->n_number + list->n_name;
  char first[7] = "";
  (void)mill_first_bytes(path, first, sizeof first - 1);
  const int is_fits = strncmp(first, "\x1f\x8b", 2) == 0 || strcmp(first, "SIMPLE") == 0;
  MILL_CHECK(is_fits ? mill_star_table_code(read_fits_stars(path, list), 0, "--object-file")
                     : each_line(path, take_star, list));
  if (list->n_number + list->n_name == n_before)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "%s: holds no star; write one TARGETID, IDENTIFIER or OBJECT per line", path);
  return MILL_OK;
}

/* ---- numbers ---- */

typedef struct number_list {
  int64_t *value;
  size_t n;
  int64_t room;
} number_list;

enum { MAX_NUMBER = 10000000 };

/* Read one number of 1 to 18 digits at *text and move *text past it; 0: no number there. */
static int take_number(const char **text, int64_t *out)
{
  char *end;
  const size_t n_digit = strspn(*text, "0123456789");
  if (n_digit == 0 || n_digit > 18)
    return 0;
  *out = strtoll(*text, &end, 10);
  *text = end;
  return 1;
}

/* Append the numbers of a text such as "100,200-210" to a number_list. */
static int take_numbers(const line *from, void *numbers)
{
  number_list *list = numbers;
  for (const char *at = from->text;; at++) {
    int64_t first, last;
    at += strspn(at, " \t");
    const char *item = at;
    int is_number = take_number(&at, &first);
    last = first;
    if (is_number && *at == '-') { /* a range */
      at++;
      is_number = take_number(&at, &last) && last >= first;
    }
    at += strspn(at, " \t");
    if (!is_number || (*at != ',' && *at != '\0'))
      return MILL_ERROR(MILL_ERR_USAGE,
                        "%s: '%.40s' is not a list of numbers; write numbers or ascending ranges, "
                        "e.g. 100,200-210",
                        from->where, item);
    if (last - first >= MAX_NUMBER || (int64_t)list->n + last - first >= MAX_NUMBER)
      return MILL_ERROR(MILL_ERR_USAGE, "%s: give at most %d numbers", from->where, MAX_NUMBER);
    MILL_CHECK(MILL_GROW(&list->value, &list->room, (int64_t)list->n + last - first + 1));
    for (int64_t value = first; value <= last; value++)
      list->value[list->n++] = value;
    if (*at == '\0')
      return MILL_OK;
  }
}

static int refuse_repeated(const number_list *list, const char *where)
{
  MILL_OWNED int64_t *sorted = NULL;
  MILL_CHECK(MILL_ALLOC(list->n, &sorted));
  memcpy(sorted, list->value, list->n * sizeof *sorted);
  qsort(sorted, list->n, sizeof *sorted, mill_by_int64);
  for (size_t i = 1; i < list->n; i++)
    if (sorted[i] == sorted[i - 1])
      return MILL_ERROR(MILL_ERR_USAGE, "%s: %lld appears twice; give each number once", where,
                        (long long)sorted[i]);
  return MILL_OK;
}

int mill_number_list(const char *text, const char *path, int64_t **numbers, size_t *n)
{
  int err = MILL_OK;
  number_list list = {0};
  *numbers = NULL;
  *n = 0;
  if (text)
    MILL_TRY(take_numbers(&(line){.text = text, .where = "--numbers"}, &list));
  if (path) {
    MILL_TRY(each_line(path, take_numbers, &list));
    if (list.n == 0)
      MILL_FAIL(MILL_ERR_USAGE, "%s: holds no number; write one or more per line", path);
  }
  if (list.n > 0)
    MILL_TRY(refuse_repeated(&list, path ? path : "--numbers"));
  *numbers = list.value;
  *n = list.n;
  list.value = NULL;
done:
  mill_free(list.value);
  return err;
}

/* ---- patterns ---- */

enum { MAX_DIGIT = 18 /* most digits of a number, of DIVISOR, and most WIDTH */ };

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
  if (n_digit == 0 || n_digit > MAX_DIGIT || *end != '}' || value < 1 ||
      (text[2] == ':' && value > MAX_DIGIT))
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
    if (n + MAX_DIGIT + 2 >= size) /* no room for another number */
      return MILL_ERROR(MILL_ERR_USAGE, "--pattern '%.80s...' is too long: shorten it", pattern);
    *n_place += length > 0 ? 1 : 0;
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

/* Append to list the paths that match pattern; flags: of glob(3). */
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
