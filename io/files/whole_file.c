/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/files/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/error.h"

static int write_bytes(const char *path, int is_synced, const char *data, size_t n_byte)
{
  int err = MILL_OK;
  const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be created: %s", path, strerror(errno));
  for (size_t n_done = 0; n_done < n_byte;) {
    const ssize_t n = write(fd, data + n_done, n_byte - n_done);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot be written: %s", path,
                strerror(n < 0 ? errno : ENOSPC));
    n_done += (size_t)n;
  }
  /* some file systems report a full disk only here */
  if (is_synced && fsync(fd) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot be written: %s", path, strerror(errno));
done:
  if (close(fd) != 0 && err == MILL_OK)
    err = MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be written: %s", path, strerror(errno));
  if (err != MILL_OK)
    unlink(path);
  return err;
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
