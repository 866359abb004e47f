/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/config/name_regex.h"

#include <stdio.h>
#include <string.h>

int mill_name_regex(const char *text, regex_t *regex, char *reason, size_t size)
{
  char whole[128];
  if (strchr(text, '\\')) {
    snprintf(reason, size, "has a backslash; use letters, digits, . * + ? [] | () ^ $");
    return 0;
  }
  if (snprintf(whole, sizeof whole, "^(%s)", text) >= (int)sizeof whole) {
    snprintf(reason, size, "is too long for a regular expression");
    return 0;
  }
  const int failed = regcomp(regex, whole, REG_EXTENDED | REG_NOSUB);
  if (failed)
    regerror(failed, regex, reason, size);
  return !failed;
}
