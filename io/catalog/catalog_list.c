#define _GNU_SOURCE /* getline */

#include "io/catalog/catalog_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/fits/fits_file.h"
#include "kernels/base/error.h"
#include "src/system/regular_file.h"

typedef struct line_reader {
  const char *path;
  FILE *stream;
  char *text; /* of the current line, without its end */
  size_t capacity, number;
} line_reader;

static int open_lines(line_reader *lines, const char *path)
{
  lines->path = path;
  return mill_regular_stream(path, "a file with one entry a line", MILL_ERR_USAGE, &lines->stream);
}

static void close_lines(line_reader *lines)
{
  if (lines->stream)
    fclose(lines->stream);
  free(lines->text);
}

/* The next line that is neither blank nor a comment; *more is 0 at the end. */
static int next_line(line_reader *lines, int *more)
{
  *more = 0;
  for (;;) {
    errno = 0;
    const ssize_t length = getline(&lines->text, &lines->capacity, lines->stream);
    if (length < 0) {
      if (ferror(lines->stream) || errno == ENOMEM)
        return MILL_ERROR(MILL_ERR_USAGE, "%s: cannot be read: %s", lines->path, strerror(errno));
      break;
    }
    lines->number++;
    size_t n = (size_t)length;
    if (memchr(lines->text, '\0', n))
      return MILL_ERROR(MILL_ERR_USAGE, "%s, line %zu: holds a zero byte; give a text file",
                        lines->path, lines->number);
    if (n > 0 && lines->text[n - 1] == '\n')
      n--;
    if (n > 0 && lines->text[n - 1] == '\r')
      n--;
    lines->text[n] = '\0';
    if (lines->text[0] != '#' && lines->text[strspn(lines->text, " \t")] != '\0') {
      *more = 1;
      break;
    }
  }
  return MILL_OK;
}

int mill_catalog_list_read(const char *path, char ***paths, size_t *n)
{
  int err = MILL_OK;
  line_reader lines = {0};
  char **list = NULL;
  size_t n_list = 0;
  int64_t room = 0;
  const char *slash = strrchr(path, '/');
  const size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
  int more;
  *paths = NULL;
  *n = 0;
  MILL_TRY(open_lines(&lines, path));
  for (;;) {
    MILL_TRY(next_line(&lines, &more));
    if (!more)
      break;
    const size_t before = lines.text[0] == '/' ? 0 : folder;
    const size_t length = before + strlen(lines.text);
    if (length >= MILL_FITS_MAX_PATH)
      MILL_FAIL(MILL_ERR_USAGE, "%s, line %zu: the path has %zu bytes, more than %d", path,
                lines.number, length, MILL_FITS_MAX_PATH - 1);
    MILL_TRY(MILL_GROW(&list, &room, (int64_t)n_list + 1));
    MILL_TRY(MILL_ALLOC(length + 1, &list[n_list]));
    memcpy(list[n_list], path, before);
    strcpy(list[n_list] + before, lines.text);
    n_list++;
  }
  if (n_list == 0)
    MILL_FAIL(MILL_ERR_USAGE, "%s: holds no path; write one a line", path);
  *paths = list;
  *n = n_list;
  list = NULL;
  n_list = 0;
done:
  close_lines(&lines);
  mill_catalog_list_free(list, n_list);
  return err;
}

void mill_catalog_list_free(char **paths, size_t n)
{
  for (size_t i = 0; i < n; i++)
    mill_free(paths[i]);
  mill_free(paths);
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
  mill_catalog_list_free(list->path, list->n);
  *list = (mill_path_list){0};
}

static int compare_ids(const void *a, const void *b)
{
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static int read_text_ids(const char *path, int64_t **ids, size_t *n)
{
  int err = MILL_OK;
  line_reader lines = {0};
  int64_t room = 0;
  int more;
  MILL_TRY(open_lines(&lines, path));
  for (;;) {
    MILL_TRY(next_line(&lines, &more));
    if (!more)
      break;
    char *end;
    errno = 0;
    const long long value = strtoll(lines.text, &end, 10);
    if (end == lines.text || end[strspn(end, " \t")] != '\0' || errno)
      MILL_FAIL(MILL_ERR_USAGE, "%s, line %zu: '%.40s' is no TARGETID; write one integer a line",
                path, lines.number, lines.text);
    MILL_TRY(MILL_GROW(ids, &room, (int64_t)*n + 1));
    (*ids)[(*n)++] = value;
  }
done:
  close_lines(&lines);
  return err;
}

static int read_fits_ids(const char *path, int64_t **ids, size_t *n)
{
  int err = MILL_OK;
  mill_fits_file *file = NULL;
  MILL_TRY(mill_fits_file_open(path, NULL, &file));
  int i_hdu = 0;
  while (i_hdu < file->guard->n_hdu && file->guard->hdu[i_hdu].kind != MILL_FITS_TABLE)
    i_hdu++;
  if (i_hdu == file->guard->n_hdu)
    MILL_FAIL(MILL_ERR_INPUT, "%s: has no table; give one with a column TARGETID", path);
  *n = (size_t)file->guard->hdu[i_hdu].axis[1];
  MILL_TRY(MILL_ALLOC(*n, ids));
  MILL_TRY(mill_fits_column_int64(file, i_hdu, "TARGETID", *ids, NULL));
done:
  mill_fits_file_close(file);
  return err;
}

int mill_target_id_file_read(const char *path, int64_t **ids, size_t *n)
{
  int err = MILL_OK;
  *ids = NULL;
  *n = 0;
  unsigned char first[6] = "";
  FILE *stream = NULL;
  MILL_TRY(mill_regular_stream(path, "a text or FITS file of TARGETIDs", MILL_ERR_USAGE, &stream));
  const size_t n_first = fread(first, 1, sizeof first, stream);
  fclose(stream);
  const int is_fits = (n_first >= 2 && first[0] == 0x1f && first[1] == 0x8b) ||
                      (n_first == 6 && memcmp(first, "SIMPLE", 6) == 0);
  MILL_TRY(is_fits ? read_fits_ids(path, ids, n) : read_text_ids(path, ids, n));
  if (*n == 0)
    MILL_FAIL(MILL_ERR_USAGE, "%s: holds no TARGETID; write one a line", path);
  qsort(*ids, *n, sizeof **ids, compare_ids);
  size_t n_kept = 1;
  for (size_t i = 1; i < *n; i++)
    if ((*ids)[i] != (*ids)[n_kept - 1])
      (*ids)[n_kept++] = (*ids)[i];
  *n = n_kept;
done:
  if (err != MILL_OK) {
    mill_free(*ids);
    *ids = NULL;
    *n = 0;
  }
  return err;
}

/* ---- numbers ---- */

enum { MAX_NUMBER = 10000000 };

typedef struct number_list {
  int64_t *value;
  size_t n;
  int64_t room;
} number_list;

/* One number, digits alone; *text is moved behind it. */
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

/* "100,200-210"; where: what the text is of, for messages. */
static int add_numbers(const char *text, const char *where, number_list *list)
{
  for (const char *at = text;; at++) {
    int64_t first, last;
    at += strspn(at, " \t");
    const char *item = at;
    int is_right = take_number(&at, &first);
    last = first;
    if (is_right && *at == '-') {
      at++;
      is_right = take_number(&at, &last) && last >= first;
    }
    at += strspn(at, " \t");
    if (!is_right || (*at != ',' && *at != '\0'))
      return MILL_ERROR(
          MILL_ERR_USAGE,
          "%s: '%.40s' is no list of numbers; write such as 100,200-210, the lower one first",
          where, item);
    if (last - first >= MAX_NUMBER || (int64_t)list->n + last - first >= MAX_NUMBER)
      return MILL_ERROR(MILL_ERR_USAGE, "%s: more than %d numbers", where, MAX_NUMBER);
    MILL_CHECK(MILL_GROW(&list->value, &list->room, (int64_t)list->n + last - first + 1));
    for (int64_t value = first; value <= last; value++)
      list->value[list->n++] = value;
    if (*at == '\0')
      break;
  }
  return MILL_OK;
}

static int refuse_repeated(const number_list *list, const char *where)
{
  int err = MILL_OK;
  int64_t *sorted = NULL;
  MILL_TRY(MILL_ALLOC(list->n, &sorted));
  memcpy(sorted, list->value, list->n * sizeof *sorted);
  qsort(sorted, list->n, sizeof *sorted, compare_ids);
  for (size_t i = 1; i < list->n; i++)
    if (sorted[i] == sorted[i - 1])
      MILL_FAIL(MILL_ERR_USAGE, "%s: %lld is there twice; give each number once", where,
                (long long)sorted[i]);
done:
  mill_free(sorted);
  return err;
}

int mill_number_list(const char *text, const char *path, int64_t **numbers, size_t *n)
{
  int err = MILL_OK;
  number_list list = {0};
  line_reader lines = {0};
  char where[MILL_FITS_MAX_PATH + 32];
  *numbers = NULL;
  *n = 0;
  if (text)
    MILL_TRY(add_numbers(text, "--numbers", &list));
  if (path) {
    MILL_TRY(open_lines(&lines, path));
    for (int more = 1; more;) {
      MILL_TRY(next_line(&lines, &more));
      snprintf(where, sizeof where, "%s, line %zu", path, lines.number);
      if (more)
        MILL_TRY(add_numbers(lines.text, where, &list));
    }
    if (list.n == 0)
      MILL_FAIL(MILL_ERR_USAGE, "%s: holds no number; write one or more a line", path);
  }
  if (list.n > 0)
    MILL_TRY(refuse_repeated(&list, path ? path : "--numbers"));
  *numbers = list.value;
  *n = list.n;
  list.value = NULL;
done:
  close_lines(&lines);
  mill_free(list.value);
  return err;
}
