/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* getline */

#include "io/catalog/input_table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/config/text.h"
#include "src/system/log.h"
#include "src/system/order.h"
#include "src/system/regular_file.h"

#define HEAD "# starmill inputs 1\n"
#define COLUMNS                                                                                    \
  "#STATUS\tROWS\tFITTED\tSIZE\tMTIME\tREDROCK_SIZE\tREDROCK_MTIME\tTIME\tSETTINGS\tRESULT\t"      \
  "INPUT\tREASON\n"
enum { STATUS, ROWS, FITTED, SIZE, MTIME, REDROCK_SIZE, REDROCK_MTIME }; /* order of COLUMNS */
enum { TIME = REDROCK_MTIME + 1, SETTINGS, RESULT, INPUT, REASON, N_FIELD };

/* A line of the table; text: the line, with zeros in place of tabs. */
typedef struct stored {
  mill_input_entry entry; /* path stands first, where mill_by_text_at expects it */
  int64_t place;
  char *text; /* owned */
} stored;

struct mill_input_table {
  int64_t n, room;
  stored *line; /* [n] sorted by path; one line per path, the last in the file */
};

static int compare_path(const void *a, const void *b)
{
  const stored *x = a, *y = b;
  const int by_path = mill_by_text_at(a, b);
  return by_path ? by_path : (x->place > y->place) - (x->place < y->place);
}

static int compare_result(const void *a, const void *b)
{
  const stored *x = *(const stored *const *)a, *y = *(const stored *const *)b;
  const int by_result = strcmp(x->entry.result, y->entry.result);
  return by_result ? by_result : (x->place > y->place) - (x->place < y->place);
}

static int take_integer(const char *text, int64_t *out)
{
  char *end;
  errno = 0;
  *out = strtoll(text, &end, 10);
  return end != text && *end == '\0' && errno == 0;
}

/* Parse a line, cutting text at its tabs; entry then points into text.  0: malformed. */
static int parse(char *text, mill_input_entry *entry)
{
  char *field[N_FIELD];
  int n = 0;
  while (n < N_FIELD && (field[n] = strsep(&text, "\t")))
    n++;
  if (n != N_FIELD || strlen(field[TIME]) >= sizeof entry->time ||
      strlen(field[SETTINGS]) >= sizeof entry->settings)
    return 0;
  entry->is_done = strcmp(field[STATUS], "done") == 0;
  strcpy(entry->time, field[TIME]);
  strcpy(entry->settings, field[SETTINGS]);
  entry->result = field[RESULT];
  entry->path = field[INPUT];
  entry->reason = field[REASON];
  return (entry->is_done || strcmp(field[STATUS], "failed") == 0) &&
         take_integer(field[ROWS], &entry->n_row) &&
         take_integer(field[FITTED], &entry->n_fitted) && take_integer(field[SIZE], &entry->size) &&
         mill_text_to_real(field[MTIME], &entry->mtime) &&
         take_integer(field[REDROCK_SIZE], &entry->redrock_size) &&
         mill_text_to_real(field[REDROCK_MTIME], &entry->redrock_mtime);
}

/* Of each result keep the lines of its last run: they have the time of the result's last line.  Of
 * these lines keep each path's last.  Sorts the lines by path; there must be at least one. */
static int drop_replaced(mill_input_table *table)
{
  int64_t n_kept = 0;
  MILL_OWNED const stored **by_result = NULL;
  MILL_OWNED char *is_old = NULL;
  MILL_CHECK(mill_alloc_bytes((size_t)table->n, sizeof *by_result, (void **)&by_result));
  MILL_CHECK(MILL_ALLOC(table->n, &is_old));
  qsort(table->line, (size_t)table->n, sizeof *table->line, compare_path);
  for (int64_t i = 0; i < table->n; i++)
    by_result[i] = &table->line[i];
  qsort(by_result, (size_t)table->n, sizeof *by_result, compare_result); /* then by place */
  const stored *last = by_result[table->n - 1]; /* last line of by_result[i]'s result */
  for (int64_t i = table->n - 1; i >= 0; i--) {
    if (strcmp(by_result[i]->entry.result, last->entry.result) != 0)
      last = by_result[i];
    is_old[by_result[i] - table->line] = strcmp(by_result[i]->entry.time, last->entry.time) != 0;
  }
  for (int64_t i = 0; i < table->n; i++) {
    if (!is_old[i] && n_kept > 0 &&
        strcmp(table->line[n_kept - 1].entry.path, table->line[i].entry.path) == 0)
      free(table->line[--n_kept].text); /* an earlier line of this path */
    if (is_old[i])
      free(table->line[i].text);
    else
      table->line[n_kept++] = table->line[i];
  }
  table->n = n_kept;
  return MILL_OK;
}

static int read_lines(const char *path, FILE *stream, mill_input_table *table)
{
  MILL_OWNED char *text = NULL;
  size_t size = 0;
  for (int64_t number = 1;; number++) {
    errno = 0;
    const ssize_t length = getline(&text, &size, stream);
    if (length < 0 && (ferror(stream) || errno == ENOMEM))
      return MILL_ERROR(MILL_ERR_USAGE, "--input-table %s: cannot be read: %s", path,
                        strerror(errno));
    if (length < 0)
      return MILL_OK;
    /* an unterminated line was cut short, and its run reported the failure */
    if (text[0] == '#' || text[0] == '\n' || text[length - 1] != '\n')
      continue;
    text[length - 1] = '\0';
    MILL_CHECK(MILL_GROW(&table->line, &table->room, table->n + 1));
    stored *line = &table->line[table->n];
    *line = (stored){.place = number};
    if (strlen(text) != (size_t)length - 1 || !parse(text, &line->entry)) {
      mill_log_warning(
          "--input-table %s, line %lld is damaged and ignored; its input may be fitted again", path,
          (long long)number);
      continue;
    }
    line->text = text; /* the entry points into text */
    table->n++;
    text = NULL;
    size = 0;
  }
}

int mill_input_table_read(const char *path, mill_input_table **out)
{
  MILL_AT_END(mill_input_table_free_at) mill_input_table *table = NULL;
  MILL_AT_END(mill_stream_close) FILE *stream = NULL;
  *out = NULL;
  MILL_CHECK(mill_input_table_check(path));
  MILL_CHECK(MILL_ALLOC(1, &table));
  if (access(path, F_OK) == 0) { /* else the table is empty */
    MILL_CHECK(mill_regular_stream(path, "a table of inputs", MILL_ERR_USAGE, &stream));
    MILL_CHECK(read_lines(path, stream, table));
    if (table->n > 0)
      MILL_CHECK(drop_replaced(table));
  }
  return MILL_GIVE(&table, out);
}

void mill_input_table_free(mill_input_table *table)
{
  if (!table)
    return;
  for (int64_t i = 0; i < table->n; i++)
    free(table->line[i].text);
  MILL_FREE(table->line, table);
}

const mill_input_entry *mill_input_table_find(const mill_input_table *table, const char *path)
{
  const stored *line = table->n > 0 ? bsearch(&path, table->line, (size_t)table->n,
                                              sizeof *table->line, mill_by_text_at)
                                    : NULL;
  return line ? &line->entry : NULL;
}

int mill_input_table_takes(const char *path)
{
  return path[strcspn(path, "\t\r\n")] == '\0';
}

/* Print one line; tabs and line ends in a reason become blanks. */
static void print_entry(const mill_input_entry *e, FILE *out)
{
  fprintf(out, "%s\t%lld\t%lld\t%lld\t%.17g\t%lld\t%.17g\t%s\t%s\t%s\t%s\t",
          e->is_done ? "done" : "failed", (long long)e->n_row, (long long)e->n_fitted,
          (long long)e->size, e->mtime, (long long)e->redrock_size, e->redrock_mtime, e->time,
          e->settings, e->result, e->path);
  for (const char *c = e->reason; *c; c++)
    fputc(strchr("\t\r\n", *c) ? ' ' : *c, out);
  fputc('\n', out);
}

static int not_written(const char *path)
{
  return MILL_ERROR(MILL_ERR_OUTPUT,
                    "--input-table %s: cannot be written: %s; mend this and repeat the command "
                    "(if the fit is finished: without --overwrite)",
                    path, errno ? strerror(errno) : "no room");
}

int mill_input_table_check_output(const char *path)
{
  if (access(path, F_OK) != 0)
    return mill_check_output(path, "input-table");
  return access(path, W_OK) == 0 ? MILL_OK : not_written(path);
}

int mill_input_table_check(const char *path)
{
  char first[sizeof HEAD] = "";
  struct stat status;
  if (stat(path, &status) != 0 || (S_ISREG(status.st_mode) && status.st_size == 0))
    return MILL_OK;
  (void)mill_first_bytes(path, first, sizeof first - 1);
  if (strcmp(first, HEAD) != 0)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "--input-table %s: exists and is not a table of inputs: give another file",
                      path);
  return MILL_OK;
}

int mill_input_table_append(const char *path, const mill_input_entry *entry, size_t n)
{
  MILL_OWNED char *text = NULL;
  size_t n_text = 0;
  char last = '\n'; /* the file's last byte; without a line end its last line was cut short */
  MILL_AT_END(mill_descriptor_close)
  const int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  const int64_t size = fd < 0 ? -1 : (int64_t)lseek(fd, 0, SEEK_END);
  if (size < 0)
    return not_written(path);
  MILL_CHECK(mill_input_table_check(path));
  (void)!pread(fd, &last, 1, size - 1); /* if the file is empty, this fails and keeps last */
  FILE *out = open_memstream(&text, &n_text);
  if (out)
    fputs(size == 0 ? HEAD COLUMNS : last != '\n' ? "\n" : "", out);
  for (size_t i = 0; i < n && out; i++)
    print_entry(&entry[i], out);
  MILL_CHECK(mill_text_close(out, MILL_OK, "the table of inputs"));
  /* write all lines at once, so that runs ending at the same time do not mix their lines */
  if (write(fd, text, n_text) != (ssize_t)n_text || fsync(fd) != 0)
    return not_written(path);
  return MILL_OK;
}
