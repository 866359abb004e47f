/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/fits/fits_walk.h"

#include <errno.h>
#include <unistd.h>

int64_t mill_fits_read_at(int fd, void *out, int64_t n, int64_t offset)
{
  int64_t n_done = 0;
  while (n_done < n) {
    const ssize_t got =
        pread(fd, (char *)out + n_done, (size_t)(n - n_done), (off_t)(offset + n_done));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return -1;
    if (got == 0)
      break;
    n_done += got;
  }
  return n_done;
}

int mill_fits_good_bitpix(int64_t bitpix)
{
  return bitpix == 8 || bitpix == 16 || bitpix == 32 || bitpix == 64 || bitpix == -32 ||
         bitpix == -64;
}
