/* SPDX-License-Identifier: BSD-3-Clause */
/* Faults of file systems and processes for tests, loaded by LD_PRELOAD.
 *
 * FAULTS="WHAT:CALL:PATH:FIRST:COUNT[:RANK];..." applies WHAT to calls of CALL on files whose path
 * contains PATH (ends with PATH, if PATH ends with $).  It applies to COUNT calls from number
 * FIRST on; the first call is 1, and COUNT 0 is all.  RANK restricts it to one rank.
 *
 *    WHAT   ENOSPC, EIO, EROFS, ENOENT, EOPNOTSUPP   the call fails with this error
 *           slow=MS   the call takes MS longer          hang   it never returns
 *           deaf                it never returns, and no signal reaches its thread
 *           kill, abort, stop   the process gets SIGKILL, aborts, or is suspended
 *           count               nothing
 *           touch, cut          the file itself changes: its time, or it keeps only 5000 bytes
 *    CALL   open, read, write, sync, alloc, rename, any, exit or inode.  exit can only hang; if
 *           inode fails, stat() gives device 7 and inode 7, so files of two hosts seem to be one
 *
 * FAULTS_COUNT=FILE: at its end, or before a call hangs, the process appends to FILE how many
 * calls each fault has counted.  FAULTS_CLOCK=S: time() is S seconds ahead. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FAULT = 16, TEXT = 256 };

typedef struct fault {
  char what[TEXT], call[16], path[TEXT];
  int at_end, rank;
  long first, count, ms;
  _Atomic long n;
} fault;

static fault faults[MAX_FAULT];
static int n_fault;

static int rank_of_process(void)
{
  static const char *const name[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                     "SLURM_PROCID"};
  for (size_t i = 0; i < sizeof name / sizeof name[0]; i++)
    if (getenv(name[i]))
      return atoi(getenv(name[i]));
  return 0;
}

time_t time(time_t *out)
{
  struct timespec now;
  const char *ahead = getenv("FAULTS_CLOCK");
  clock_gettime(CLOCK_REALTIME, &now);
  now.tv_sec += ahead ? atol(ahead) : 0;
  if (out)
    *out = now.tv_sec;
  return now.tv_sec;
}

__attribute__((constructor)) static void begin(void)
{
  const char *text = getenv("FAULTS");
  while (text && *text && n_fault < MAX_FAULT) {
    fault *f = &faults[n_fault];
    char item[2 * TEXT];
    const size_t n = strcspn(text, ";");
    snprintf(item, sizeof item, "%.*s", (int)n, text);
    f->rank = -1;
    if (sscanf(item, "%255[^:]:%15[^:]:%255[^:]:%ld:%ld:%d", f->what, f->call, f->path, &f->first,
               &f->count, &f->rank) < 5) {
      fprintf(stderr, "fault_shim: cannot read '%s'\n", item);
      abort();
    }
    const size_t n_path = strlen(f->path);
    if (f->path[n_path - 1] == '$') {
      f->path[n_path - 1] = '\0';
      f->at_end = 1;
    }
    if (strncmp(f->what, "slow=", 5) == 0)
      f->ms = atol(f->what + 5);
    if (f->rank < 0 || f->rank == rank_of_process())
      n_fault++;
    text += n + (text[n] == ';');
  }
}

static void tell_counts(int n)
{
  const char *path = getenv("FAULTS_COUNT");
  FILE *out = path ? fopen(path, "a") : NULL;
  for (int i = 0; out && i < n; i++)
    fprintf(out, "%s %s %ld\n", faults[i].call, faults[i].path, (long)faults[i].n);
  if (out)
    fclose(out);
}

__attribute__((destructor)) static void end(void)
{
  const int n = n_fault;
  n_fault = 0;
  tell_counts(n);
  for (int i = 0; i < n; i++)
    while (strcmp(faults[i].call, "exit") == 0)
      pause();
}

static int matches(const fault *f, const char *path)
{
  const size_t n = strlen(path), n_part = strlen(f->path);
  if (!f->at_end)
    return strstr(path, f->path) != NULL;
  return n >= n_part && strcmp(path + n - n_part, f->path) == 0;
}

static int number_of(const char *name)
{
  static const struct {
    const char *name;
    int number;
  } known[] = {{"ENOSPC", ENOSPC},
               {"EIO", EIO},
               {"EROFS", EROFS},
               {"ENOENT", ENOENT},
               {"EOPNOTSUPP", EOPNOTSUPP}};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (strcmp(known[i].name, name) == 0)
      return known[i].number;
  fprintf(stderr, "fault_shim: no fault '%s'\n", name);
  abort();
}

static void change(const char *what, const char *path)
{
  const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1700000000}};
  if ((strcmp(what, "touch") == 0 ? utimensat(AT_FDCWD, path, times, 0) : truncate(path, 5000)) !=
      0)
    abort();
}

/* Does what the fault says; returns 1, with errno, if the call must fail. */
static int happens(const fault *f, const char *path)
{
  if (strcmp(f->what, "count") == 0)
    return 0;
  if (f->ms > 0) {
    const struct timespec t = {f->ms / 1000, f->ms % 1000 * 1000000};
    nanosleep(&t, NULL);
  } else if (strcmp(f->what, "hang") == 0 || strcmp(f->what, "deaf") == 0) {
    sigset_t all;
    sigfillset(&all);
    tell_counts(n_fault);
    if (f->what[0] == 'd')
      pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (;;)
      pause();
  } else if (strcmp(f->what, "kill") == 0) {
    kill(getpid(), SIGKILL);
  } else if (strcmp(f->what, "abort") == 0) {
    abort();
  } else if (strcmp(f->what, "stop") == 0) {
    kill(getpid(), SIGSTOP);
  } else if (strcmp(f->what, "touch") == 0 || strcmp(f->what, "cut") == 0) {
    change(f->what, path);
  } else {
    errno = number_of(f->what);
    return 1;
  }
  return 0;
}

static int fails(const char *call, const char *path)
{
  int failed = 0;
  for (int i = 0; i < n_fault; i++) {
    fault *f = &faults[i];
    if ((strcmp(f->call, call) != 0 && strcmp(f->call, "any") != 0) || !matches(f, path))
      continue;
    const long n = ++f->n;
    if (n >= f->first && (f->count == 0 || n < f->first + f->count))
      failed |= happens(f, path);
  }
  return failed;
}

static int fails_fd(const char *call, int fd)
{
  char link[64], path[PATH_MAX];
  if (n_fault == 0)
    return 0;
  const int saved = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, path, sizeof path - 1);
  errno = saved;
  if (n <= 0)
    return 0;
  path[n] = '\0';
  return fails(call, path);
}

#define NEXT(type, name, ...)                                                                      \
  static type (*next)(__VA_ARGS__);                                                                \
  if (!next)                                                                                       \
  next = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

#define ON_FD(call, type, name, parameters, arguments, ...)                                        \
  type name parameters                                                                             \
  {                                                                                                \
    NEXT(type, #name, __VA_ARGS__);                                                                \
    return fails_fd(call, fd) ? (type)-1 : next arguments;                                         \
  }

ON_FD("read", ssize_t, read, (int fd, void *b, size_t n), (fd, b, n), int, void *, size_t)
ON_FD("read", ssize_t, pread, (int fd, void *b, size_t n, off_t o), (fd, b, n, o), int, void *,
      size_t, off_t)
ON_FD("read", ssize_t, pread64, (int fd, void *b, size_t n, off64_t o), (fd, b, n, o), int, void *,
      size_t, off64_t)
ON_FD("read", ssize_t, preadv, (int fd, const struct iovec *v, int n, off_t o), (fd, v, n, o), int,
      const struct iovec *, int, off_t)
ON_FD("read", ssize_t, preadv64, (int fd, const struct iovec *v, int n, off64_t o), (fd, v, n, o),
      int, const struct iovec *, int, off64_t)
ON_FD("write", ssize_t, write, (int fd, const void *b, size_t n), (fd, b, n), int, const void *,
      size_t)
ON_FD("write", ssize_t, pwrite, (int fd, const void *b, size_t n, off_t o), (fd, b, n, o), int,
      const void *, size_t, off_t)
ON_FD("write", ssize_t, pwrite64, (int fd, const void *b, size_t n, off64_t o), (fd, b, n, o), int,
      const void *, size_t, off64_t)
ON_FD("write", ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n), int,
      const struct iovec *, int)
ON_FD("write", ssize_t, pwritev, (int fd, const struct iovec *v, int n, off_t o), (fd, v, n, o),
      int, const struct iovec *, int, off_t)
ON_FD("write", ssize_t, pwritev64, (int fd, const struct iovec *v, int n, off64_t o), (fd, v, n, o),
      int, const struct iovec *, int, off64_t)
ON_FD("sync", int, fsync, (int fd), (fd), int)
ON_FD("sync", int, fdatasync, (int fd), (fd), int)
ON_FD("alloc", int, ftruncate, (int fd, off_t n), (fd, n), int, off_t)
ON_FD("alloc", int, ftruncate64, (int fd, off64_t n), (fd, n), int, off64_t)
ON_FD("alloc", int, fallocate, (int fd, int m, off_t o, off_t n), (fd, m, o, n), int, int, off_t,
      off_t)
ON_FD("alloc", int, fallocate64, (int fd, int m, off64_t o, off64_t n), (fd, m, o, n), int, int,
      off64_t, off64_t)

/* These two give their error back. */
#define FALLOCATE(name, offset)                                                                    \
  int name(int fd, offset o, offset n)                                                             \
  {                                                                                                \
    NEXT(int, #name, int, offset, offset);                                                         \
    return fails_fd("alloc", fd) ? errno : next(fd, o, n);                                         \
  }
FALLOCATE(posix_fallocate, off_t)
FALLOCATE(posix_fallocate64, off64_t)

#define OPEN(name)                                                                                 \
  int name(const char *path, int flags, ...)                                                       \
  {                                                                                                \
    NEXT(int, #name, const char *, int, ...);                                                      \
    va_list args;                                                                                  \
    va_start(args, flags);                                                                         \
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;                  \
    va_end(args);                                                                                  \
    return n_fault > 0 && fails("open", path) ? -1 : next(path, flags, mode);                      \
  }
OPEN(open)
OPEN(open64)

#define FOPEN(name)                                                                                \
  FILE *name(const char *path, const char *mode)                                                   \
  {                                                                                                \
    NEXT(FILE *, #name, const char *, const char *);                                               \
    return n_fault > 0 && fails("open", path) ? NULL : next(path, mode);                           \
  }
FOPEN(fopen)
FOPEN(fopen64)

int stat(const char *path, struct stat *out)
{
  NEXT(int, "stat", const char *, struct stat *);
  const int code = next(path, out);
  if (code == 0 && n_fault > 0 && fails("inode", path))
    out->st_dev = out->st_ino = 7;
  return code;
}

int rename(const char *from, const char *to)
{
  NEXT(int, "rename", const char *, const char *);
  return n_fault > 0 && fails("rename", to) ? -1 : next(from, to);
}
