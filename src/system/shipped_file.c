/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/system/shipped_file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void mill_shipped_file(const char *name, char *path, size_t size)
{
  /* relative to the program's folder */
  static const char *const above[] = {"../share/starmill", "../.."};
  char program[PATH_MAX], dotted[PATH_MAX], plain[PATH_MAX];
  struct stat status;
  path[0] = '\0';
  const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
  program[n > 0 ? n : 0] = '\0';
  char *slash = strrchr(program, '/');
  if (!slash)
    return;
  *slash = '\0';
  for (size_t i = 0; i < sizeof above / sizeof *above; i++) {
    const int length = snprintf(dotted, sizeof dotted, "%s/%s/%s", program, above[i], name);
    if (length < (int)sizeof dotted && realpath(dotted, plain) && stat(plain, &status) == 0 &&
        S_ISREG(status.st_mode) && strlen(plain) < size) {
      memcpy(path, plain, strlen(plain) + 1);
      return;
    }
  }
}

int mill_shipped_libraries(char *path, size_t size, int most)
{
  static const char *const name[] = {MILL_SHIPPED_LIBRARIES};
  const int n_all = (int)(sizeof name / sizeof *name), n = n_all < most ? n_all : most;
  for (int i = 0; i < n; i++) {
    mill_shipped_file(name[i], path + (size_t)i * size, size);
    if (path[(size_t)i * size] == '\0')
      return 0;
  }
  return n;
}
