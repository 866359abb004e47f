/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/system/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "src/system/regular_file.h"
#include "src/system/status_process.h"
#include "src/system/thread.h"
#include "src/system/watchdog.h"

static const struct {
  const char *name, *shown;
} levels[] = {
    [MILL_LOG_ERROR] = {"error", "ERROR"},
    [MILL_LOG_WARNING] = {"warning", "WARN"},
    [MILL_LOG_INFO] = {"info", "INFO"},
    [MILL_LOG_DEBUG] = {"debug", "DEBUG"},
};
enum { N_LEVEL = sizeof levels / sizeof levels[0], LINE_BYTES = 4096, N_PLACE = 64 };

/* A source line whose warnings or errors are counted. */
typedef struct place {
  const char *file;
  int line, level;
  int64_t n;
} place;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  int rank, level, file; /* file: descriptor, -1 for none */
  int has_status;        /* 1: an unfinished line is on standard error */
  int has_complained;    /* 1: a failure to write the log file was reported */
  int n_shown;           /* lines shown of each place; 0: all */
  int n_place;
  place place[N_PLACE];
} state = {.level = MILL_LOG_INFO, .file = -1};

static void write_stderr(const char *text, size_t n)
{
  static const char clear[] = "\r\033[K";
  if (state.has_status)
    mill_write_all(STDERR_FILENO, clear, sizeof clear - 1);
  state.has_status = 0;
  mill_write_all(STDERR_FILENO, text, n); /* a failure here has no place to be reported */
}

/* Write to the log file; returns 1 on success.  The first failure is shown on standard error. */
static int write_file(const char *text, size_t n)
{
  char note[256];
  const int watch = mill_watch_begin(MILL_WATCH_FILE, 0, "writing the log");
  const int failed = mill_write_all(state.file, text, n) != 0 ? errno : 0;
  mill_watch_end(watch);
  if (failed && !state.has_complained) {
    state.has_complained = 1;
    snprintf(note, sizeof note,
             "starmill: cannot write the log: %s: its lines come here, and the job continues\n",
             strerror(failed));
    write_stderr(note, strlen(note));
  }
  return !failed;
}

/* Write a log line, cut to LINE_BYTES; then the text `ends`, which is never cut. */
static void write_line(const place *from, const char *message, const char *ends)
{
  char text[LINE_BYTES], now[MILL_UTC_SIZE];
  const size_t room = sizeof text - 1 - strlen(ends); /* 1: the newline */
  mill_utc_text(mill_unix_s(), now);
  size_t n =
      (size_t)snprintf(text, room, "%s rank %d %-5s %.64s:%d  %s", now, state.rank,
                       levels[from->level].shown, mill_base_name(from->file), from->line, message);
  if (n > room - 1) {
    n = room - 1;
    memcpy(text + n - 3, "...", 3);
  }
  for (size_t i = 0; i < n; i++)
    if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
      text[i] = ' ';
  n += (size_t)sprintf(text + n, "%s\n", ends);
  const int kept = state.file >= 0 && write_file(text, n);
  if (!kept || from->level == MILL_LOG_ERROR)
    write_stderr(text, n);
}

/* Log the number of lines left out at each place, and reset the counts. */
static void tell_counts(void)
{
  for (int i = 0; i < state.n_place; i++) {
    const int64_t n_left_out = state.place[i].n - state.n_shown;
    char text[128];
    snprintf(text, sizeof text, "%lld more %s left out here (log level debug has all)",
             (long long)n_left_out,
             n_left_out == 1 ? "line like this was" : "lines like this were");
    if (state.n_shown > 0 && n_left_out > 0)
      write_line(&state.place[i], text, "");
  }
  state.n_place = 0;
}

/* Count a line at its place in the source; returns the place's count, 0 if it is not counted. */
static int64_t count_line(const place *here)
{
  if (here->level > MILL_LOG_WARNING || state.n_shown == 0)
    return 0;
  int i = 0;
  while (i < state.n_place &&
         (state.place[i].line != here->line || state.place[i].level != here->level ||
          strcmp(state.place[i].file, here->file) != 0))
    i++;
  if (i == N_PLACE)
    return 0;
  if (i == state.n_place)
    state.place[state.n_place++] = *here;
  return ++state.place[i].n;
}

/* Compare the first bytes with the form of a log line, in which 0 stands for any digit. */
int mill_log_refuse_other(const char *path)
{
  static const char begin[] = "0000-00-00T00:00:00Z rank 0";
  char first[sizeof begin - 1];
  const size_t n = mill_first_bytes(path, first, sizeof first);
  for (size_t i = 0; i < n; i++) {
    const int is_digit = first[i] >= '0' && first[i] <= '9';
    if (begin[i] == '0' ? !is_digit : first[i] != begin[i])
      return MILL_ERROR(
          MILL_ERR_USAGE,
          "--log %s exists and its first line is not that of a log of starmill: give another name",
          path);
  }
  return MILL_OK;
}

int mill_log_open(int rank, int n_rank, int level, const char *path)
{
  int file = -1;
  if (path) {
    MILL_WATCHED(MILL_WATCH_START, 0, "%s: opening the log", path);
    file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0)
      return MILL_ERROR(MILL_ERR_OUTPUT,
                        "%s: cannot open the log: %s; check that the folder is there and writable",
                        path, strerror(errno));
  }
  MILL_LOCKED(&lock);
  tell_counts(); /* of lines that were not shown */
  if (state.file >= 0)
    close(state.file);
  state.rank = rank;
  state.level = level < MILL_LOG_ERROR   ? MILL_LOG_ERROR
                : level > MILL_LOG_DEBUG ? MILL_LOG_DEBUG
                                         : level;
  const int share = n_rank < MILL_LOG_LINES ? MILL_LOG_LINES / n_rank : 1;
  state.n_shown = state.level == MILL_LOG_DEBUG ? 0 : share; /* 0: all */
  state.file = file;
  state.has_complained = 0;
  return MILL_OK;
}

void mill_log_close(void)
{
  MILL_LOCKED(&lock);
  tell_counts();
  if (state.file >= 0)
    close(state.file);
  state.file = -1;
  state.n_shown = 0;
}

int mill_log_level_from_name(const char *name)
{
  for (int i = 0; i < N_LEVEL; i++)
    if (strcmp(name, levels[i].name) == 0)
      return i;
  return -1;
}

void mill_log_write(int level, const char *file, int line, const char *format, ...)
{
  const int saved = errno; /* callers may use errno after logging */
  if (level < MILL_LOG_ERROR || level > MILL_LOG_DEBUG)
    level = MILL_LOG_ERROR;
  const place here = {file, line, level, 0};
  char message[LINE_BYTES] = "";
  va_list args;
  va_start(args, format);
  MILL_LOCKED(&lock);
  if (level <= state.level) {
    const int64_t n = count_line(&here);
    if (n <= state.n_shown) {
      vsnprintf(message, sizeof message, format, args);
      write_line(&here, message,
                 n > 1 && n == state.n_shown ? " [more like this are only counted]" : "");
    }
  }
  va_end(args);
  errno = saved;
}

void mill_log_status(const char *text)
{
  char line[256];
  MILL_LOCKED(&lock);
  if (text) {
    int n = snprintf(line, sizeof line, "\r%s\033[K", text);
    if (n >= (int)sizeof line)
      n = (int)sizeof line - 1;
    mill_write_all(STDERR_FILENO, line, (size_t)n);
    state.has_status = 1;
  } else if (state.has_status) {
    mill_write_all(STDERR_FILENO, "\n", 1);
    state.has_status = 0;
  }
}
