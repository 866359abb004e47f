/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/system/cpu_model.h"

#include <stdio.h>
#include <string.h>

void mill_cpu_model(char *out, size_t size)
{
  char line[256];
  snprintf(out, size, "unknown processor");
  FILE *file = fopen("/proc/cpuinfo", "re");
  while (file && fgets(line, sizeof line, file)) {
    const char *value = strchr(line, ':');
    if (strncmp(line, "model name", 10) == 0 && value) {
      line[strcspn(line, "\n")] = '\0';
      snprintf(out, size, "%s", value + 1 + strspn(value + 1, " "));
      break;
    }
  }
  if (file)
    fclose(file);
}
