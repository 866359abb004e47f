/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* memmem */

#include "src/system/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/memory.h"

/* starmill's HDF5 files have their FORMAT text within this many first bytes */
enum { FORMAT_BYTES = 4096 };

/* Can the process open FEW more files? */
int mill_check_descriptors(const char *path, int code)
{
  enum { FEW = 4 };
  int fd[FEW], n = 0;
  while (n < FEW && (fd[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
    n++;
  const int reason = errno, is_full = n < FEW && (reason == EMFILE || reason == ENFILE);
  while (n > 0)
    close(fd[--n]);
  return is_full ? MILL_ERROR(code, "%s: cannot be opened: %s; raise the limit (ulimit -n)", path,
                              strerror(reason))
                 : MILL_OK;
}

int mill_regular_open(const char *path, const char *what, int code, int *fd)
{
  struct stat status;
  /* without O_NONBLOCK a pipe without a writer would block forever */
  MILL_AT_END(mill_descriptor_close) int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const int reason = errno;
  *fd = -1;
  if (opened < 0) {
    MILL_CHECK(mill_check_descriptors(path, code));
    return MILL_ERROR(code, "%s: cannot be opened: %s; check the path", path, strerror(reason));
  }
  if (fstat(opened, &status) != 0)
    return MILL_ERROR(code, "%s: cannot be examined: %s", path, strerror(errno));
  if (S_ISDIR(status.st_mode))
    return MILL_ERROR(code, "%s: is a folder, not a file; give the path of %s", path, what);
  if (!S_ISREG(status.st_mode))
    return MILL_ERROR(code,
                      "%s: is a pipe or device, not a file; write its output into a file, and give "
                      "the path of %s",
                      path, what);
  *fd = opened;
  opened = -1; /* stays open for the caller */
  return MILL_OK;
}

void mill_descriptor_close(const int *fd)
{
  if (*fd >= 0)
    close(*fd);
}

void mill_stream_close(FILE *const *stream)
{
  if (*stream)
    fclose(*stream);
}

int mill_regular_stream(const char *path, const char *what, int code, FILE **stream)
{
  MILL_AT_END(mill_descriptor_close) int fd = -1;
  *stream = NULL;
  MILL_CHECK(mill_regular_open(path, what, code, &fd));
  *stream = fdopen(fd, "r");
  if (!*stream)
    return MILL_ERROR(MILL_ERR_MEMORY, "%s: no memory to read it", path);
  fd = -1;      /* fclose will close it */
  char mark[3]; /* byte order mark of UTF-8, written by Windows editors */
  if (fread(mark, 1, sizeof mark, *stream) < sizeof mark || memcmp(mark, "\xef\xbb\xbf", 3) != 0)
    rewind(*stream);
  return MILL_OK;
}

size_t mill_first_bytes(const char *path, char *out, size_t size)
{
  struct stat status;
  MILL_AT_END(mill_descriptor_close)
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  /* reading from a pipe would take its data from other readers */
  const int is_file = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  const ssize_t n = is_file ? read(fd, out, size) : 0;
  return n > 0 ? (size_t)n : 0;
}

int mill_refuse_data(const char *path, const char *option)
{
  static const struct {
    const char *first, *name;
  } kind[] = {
      {"SIMPLE  =", "a FITS file"}, {"\x1f\x8b", "a gzip file"}, {"\x89HDF", "an HDF5 file"}};
  char first[16] = "";
  const size_t n = mill_first_bytes(path, first, sizeof first);
  for (size_t i = 0; i < sizeof kind / sizeof kind[0]; i++)
    if (n == sizeof first && memcmp(first, kind[i].first, strlen(kind[i].first)) == 0)
      return MILL_ERROR(MILL_ERR_USAGE, "%s %s is %s: give another name", option, path,
                        kind[i].name);
  return MILL_OK;
}

int mill_refuse_existing(const char *path, int overwrite)
{
  struct stat status;
  if (!overwrite && lstat(path, &status) == 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: exists; give another name or --overwrite", path);
  return MILL_OK;
}

int mill_check_output(const char *path, const char *option)
{
  char folder[1024];
  struct stat status;
  const char *slash = strrchr(path, '/');
  const int n = slash && slash > path ? (int)(slash - path) : 1; /* 1: "/" or "." */
  if (strlen(path) >= sizeof folder - 16) /* 16: room for an end such as .lock or .new */
    return MILL_ERROR(MILL_ERR_USAGE, "--%s: shorten the path of %zu bytes", option, strlen(path));
  snprintf(folder, sizeof folder, "%.*s", n, slash ? path : ".");
  if (stat(folder, &status) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "--%s %s: the folder %s cannot be used: %s; create it first",
                      option, path, folder, strerror(errno));
  if (!S_ISDIR(status.st_mode))
    return MILL_ERROR(MILL_ERR_OUTPUT, "--%s %s: %s is not a folder", option, path, folder);
  if (access(folder, W_OK | X_OK) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "--%s %s: cannot write in the folder %s: %s", option, path,
                      folder, strerror(errno));
  if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
    return MILL_ERROR(MILL_ERR_OUTPUT, "--%s %s exists and is not a file: choose another name",
                      option, path);
  return MILL_OK;
}

int mill_refuse_foreign(const char *path, const char *option, const char *made)
{
  char first[FORMAT_BYTES];
  struct stat status;
  if (stat(path, &status) != 0 || (S_ISREG(status.st_mode) && status.st_size == 0))
    return MILL_OK;
  const size_t n = mill_first_bytes(path, first, sizeof first);
  if (n < 4 || memcmp(first, "\x89HDF", 4) != 0 || !memmem(first, n, made, strlen(made)))
    return MILL_ERROR(MILL_ERR_USAGE,
                      "%s %s exists and is not a %s file, so --overwrite does not replace it: give "
                      "another name, or remove it yourself",
                      option, path, made);
  return MILL_OK;
}

int mill_write_all(int fd, const char *data, size_t n)
{
  while (n > 0) {
    const ssize_t written = write(fd, data, n);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0) {
      errno = written < 0 ? errno : ENOSPC;
      return -1;
    }
    data += written;
    n -= (size_t)written;
  }
  return 0;
}

static int write_bytes(const char *path, int is_synced, const char *data, size_t n_byte)
{
  int reason = 0;
  const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be created: %s", path, strerror(errno));
  /* some file systems report a full disk only by fsync or close */
  if (mill_write_all(fd, data, n_byte) != 0 || (is_synced && fsync(fd) != 0))
    reason = errno;
  if (close(fd) != 0 && reason == 0)
    reason = errno;
  if (reason == 0)
    return MILL_OK;
  unlink(path);
  return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be written: %s", path, strerror(reason));
}

int mill_whole_file_write(const char *path, const char *temporary, int is_synced, const void *image,
                          size_t n_byte)
{
  unlink(temporary);
  MILL_CHECK(write_bytes(temporary, is_synced, image, n_byte));
  if (rename(temporary, path) != 0) {
    const int reason = errno;
    unlink(temporary);
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be renamed to %s: %s", temporary, path,
                      strerror(reason));
  }
  return MILL_OK;
}

int mill_is_gz(const char *path)
{
  const size_t n = strlen(path);
  return n > 3 && strcmp(path + n - 3, ".gz") == 0;
}

const char *mill_base_name(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}
