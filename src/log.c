#include "src/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/error.h"

static const struct {
  const char *name, *shown;
} levels[] = {
    [MILL_LOG_ERROR] = {"error", "ERROR"},
    [MILL_LOG_WARNING] = {"warning", "WARN"},
    [MILL_LOG_INFO] = {"info", "INFO"},
    [MILL_LOG_DEBUG] = {"debug", "DEBUG"},
};
enum { N_LEVEL = sizeof levels / sizeof levels[0] };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  int rank, level, file; /* file: descriptor, -1 for none */
  int has_status;        /* a line without end stands on standard error */
} state = {0, MILL_LOG_INFO, -1, 0};

/* 0 when all was written */
static int write_all(int file, const char *text, size_t n)
{
  while (n > 0) {
    const ssize_t written = write(file, text, n);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return -1;
    text += written;
    n -= (size_t)written;
  }
  return 0;
}

static void write_stderr(const char *text, size_t n)
{
  static const char clear[] = "\r\033[K";
  if (state.has_status)
    write_all(STDERR_FILENO, clear, sizeof clear - 1);
  state.has_status = 0;
  write_all(STDERR_FILENO, text, n); /* there is nowhere left to tell a failure */
}

int mill_log_open(int rank, int level, const char *path)
{
  int err = MILL_OK, file = -1;
  if (path) {
    file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0)
      MILL_FAIL(MILL_ERR_OUTPUT,
                "%s: cannot open the log: %s; check that the folder is there and "
                "writable",
                path, strerror(errno));
  }
  pthread_mutex_lock(&lock);
  if (state.file >= 0)
    close(state.file);
  state.rank = rank;
  state.level = level < MILL_LOG_ERROR   ? MILL_LOG_ERROR
                : level > MILL_LOG_DEBUG ? MILL_LOG_DEBUG
                                         : level;
  state.file = file;
  pthread_mutex_unlock(&lock);
done:
  return err;
}

void mill_log_close(void)
{
  pthread_mutex_lock(&lock);
  if (state.file >= 0)
    close(state.file);
  state.file = -1;
  pthread_mutex_unlock(&lock);
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
  char text[4096];
  enum { ROOM = sizeof text - 1 }; /* for the newline */
  struct tm utc;
  const time_t now = time(NULL);
  const int saved = errno; /* callers log first and look at errno later */
  if (level < MILL_LOG_ERROR || level > MILL_LOG_DEBUG)
    level = MILL_LOG_ERROR;
  pthread_mutex_lock(&lock);
  if (level > state.level) {
    pthread_mutex_unlock(&lock);
    return;
  }
  gmtime_r(&now, &utc);
  size_t n = strftime(text, ROOM, "%Y-%m-%dT%H:%M:%SZ", &utc);
  const char *slash = strrchr(file, '/');
  n += (size_t)snprintf(text + n, ROOM - n, " rank %d %-5s %.64s:%d  ", state.rank,
                        levels[level].shown, slash ? slash + 1 : file, line);
  const size_t n_head = n;
  va_list args;
  va_start(args, format);
  const int n_message = vsnprintf(text + n, ROOM - n, format, args);
  va_end(args);
  n += n_message < 0 ? 0 : (size_t)n_message;
  if (n > ROOM - 1) {
    n = ROOM - 1;
    memcpy(text + n - 3, "...", 3);
  }
  for (size_t i = n_head; i < n; i++)
    if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
      text[i] = ' ';
  text[n++] = '\n';
  const int kept = state.file >= 0 && write_all(state.file, text, n) == 0;
  if (!kept || level == MILL_LOG_ERROR)
    write_stderr(text, n);
  pthread_mutex_unlock(&lock);
  errno = saved;
}

void mill_log_status(const char *text)
{
  char line[256];
  pthread_mutex_lock(&lock);
  if (text) {
    int n = snprintf(line, sizeof line, "\r%s\033[K", text);
    if (n >= (int)sizeof line)
      n = (int)sizeof line - 1;
    write_all(STDERR_FILENO, line, (size_t)n);
    state.has_status = 1;
  } else if (state.has_status) {
    write_all(STDERR_FILENO, "\n", 1);
    state.has_status = 0;
  }
  pthread_mutex_unlock(&lock);
}
