/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/run/command_text.h"

#include <stdio.h>
#include <string.h>

#include "kernels/base/error.h"

int mill_command_text(int argc, char *const *argv, char **out)
{
  size_t size = 0;
  FILE *text = open_memstream(out, &size);
  if (!text)
    return MILL_ERROR(MILL_ERR_MEMORY, "no memory for the command line");
  fputs("starmill", text);
  for (int i = 0; i < argc; i++) {
    const int plain = argv[i][0] != '\0' && !strpbrk(argv[i], " \t\n\"'\\$`*?[]{}()<>|&;#~!");
    if (plain) {
      fprintf(text, " %s", argv[i]);
      continue;
    }
    fputs(" '", text);
    for (const char *c = argv[i]; *c; c++)
      fputs(*c == '\'' ? "'\\''" : (char[]){*c, '\0'}, text);
    fputc('\'', text);
  }
  if (fclose(text) != 0)
    return MILL_ERROR(MILL_ERR_MEMORY, "no memory for the command line");
  return MILL_OK;
}
