/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* mkostemp */

#include "tests/fuzz/targets.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/error.h"

#define ENTRY(name, is_fits) {#name, fuzz_##name, is_fits},
const fuzz_target fuzz_targets[] = {FUZZ_TARGETS(ENTRY)};
const int fuzz_n_target = sizeof fuzz_targets / sizeof *fuzz_targets;

const fuzz_target *fuzz_find(const char *name)
{
  for (int i = 0; i < fuzz_n_target; i++)
    if (strcmp(fuzz_targets[i].name, name) == 0)
      return &fuzz_targets[i];
  return NULL;
}

/* What the harness itself cannot do is no finding. */
static void give_up(const char *what)
{
  perror(what);
  _exit(99);
}

const char *fuzz_scratch(void)
{
  const char *folder = getenv("TMPDIR");
  if (access("/dev/shm", W_OK) == 0)
    return "/dev/shm";
  return folder && *folder ? folder : "/tmp";
}

static char file_path[4096];

static void remove_file(void)
{
  unlink(file_path);
}

/* HDF5 wants a file with a name, so none made by memfd_create */
const char *fuzz_file(const uint8_t *bytes, size_t n)
{
  static int fd = -1;
  if (fd < 0) {
    snprintf(file_path, sizeof file_path, "%s/starmill-fuzz-XXXXXX", fuzz_scratch());
    fd = mkostemp(file_path, O_CLOEXEC);
    if (fd < 0 || atexit(remove_file) != 0)
      give_up(file_path);
  }
  if (ftruncate(fd, 0) != 0)
    give_up("ftruncate");
  for (size_t at = 0; at < n;) {
    const ssize_t put = pwrite(fd, bytes + at, n - at, (off_t)at);
    if (put <= 0)
      give_up("pwrite");
    at += (size_t)put;
  }
  return file_path;
}

int fuzz_check_code(const char *what, int code, const int *allowed)
{
  if (code == MILL_OK)
    return code;
  for (; *allowed >= 0; allowed++)
    if (code == *allowed) {
      if (!mill_error_message()[0])
        break;
      return code;
    }
  fprintf(stderr, "%s: code %d (%s), which no file may cause: '%s'\n", what, code,
          mill_error_text(code), mill_error_message());
  abort();
}
