/* SPDX-License-Identifier: BSD-3-Clause */
/** A folder for the tests of a program, below TMPDIR or /tmp. */
#pragma once

#include "tests/mill_test.h"

static char folder[256];

static inline MILL_FIXTURE(make_folder)
{
  const char *base = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%.200s/starmill-test-XXXXXX", base && *base ? base : "/tmp");
  return mkdtemp(folder) ? 0 : -1;
}

static inline MILL_FIXTURE(remove_folder)
{
  char command[300];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  return system(command);
}

/** Return the path of a file in the folder, in one of four static buffers used in turn. */
static inline const char *in_folder(const char *name)
{
  static char path[4][512];
  static int i_path;
  char *out = path[i_path++ % 4];
  snprintf(out, sizeof path[0], "%s/%s", folder, name);
  return out;
}

static inline void save_file(const char *path, const void *bytes, size_t n)
{
  FILE *stream = fopen(path, "wb");
  assert_non_null(stream);
  assert_int_equal(fwrite(bytes, 1, n, stream), n);
  assert_int_equal(fclose(stream), 0);
}
