/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/library/name_pattern.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/error.h"

/* {NAME} or {NAME/NUMBER} at pattern: index of the label, divisor, and the bytes that it takes;
   -1: it is neither. */
static int field_at(const char *pattern, int n_label, const char (*label)[MILL_MAX_NAME],
                    double *divisor, size_t *n_byte)
{
  const char *end = strchr(pattern, '}');
  if (*pattern != '{' || !end)
    return -1;
  const size_t n_name = strcspn(pattern + 1, "/}");
  *n_byte = (size_t)(end - pattern) + 1;
  *divisor = 1;
  if (pattern[1 + n_name] == '/') {
    char *after = NULL;
    *divisor = strtod(pattern + 2 + n_name, &after);
    if (after != end || !(*divisor > 0 && *divisor < 1e9))
      return -1;
  }
  for (int l = 0; l < n_label; l++)
    if (strlen(label[l]) == n_name && memcmp(label[l], pattern + 1, n_name) == 0)
      return l;
  return -1;
}

int mill_name_pattern_check(const char *pattern, int n_label, const char (*label)[MILL_MAX_NAME])
{
  int seen[MILL_MAX_LABEL] = {0};
  double divisor;
  size_t n_byte;
  for (const char *p = pattern; *p; p++) {
    if (*p != '{')
      continue;
    const int l = field_at(p, n_label, label, &divisor, &n_byte);
    if (l < 0)
      return MILL_ERROR(
          MILL_ERR_USAGE,
          "--name-pattern %s: '%.30s' is not {NAME} or {NAME/NUMBER} with a label of --labels",
          pattern, p);
    if (seen[l]++)
      return MILL_ERROR(MILL_ERR_USAGE, "--name-pattern %s: {%s} appears twice", pattern, label[l]);
    p += n_byte - 1;
  }
  for (int l = 0; l < n_label; l++)
    if (!seen[l])
      return MILL_ERROR(MILL_ERR_USAGE,
                        "--name-pattern %s: has no {%s}; give it, or leave %s out of --labels",
                        pattern, label[l], label[l]);
  return MILL_OK;
}

/* A number at text; its bytes, 0 where there is none. */
static size_t number_at(const char *text, double *value)
{
  char plain[64];
  size_t n = 0, n_digit = 0;
  if (text[0] && strchr("+-pm", text[0]))
    n = 1;
  for (int has_point = 0;; n++) {
    if (isdigit((unsigned char)text[n]))
      n_digit++;
    else if (text[n] == '.' && !has_point && n_digit > 0 && isdigit((unsigned char)text[n + 1]))
      has_point = 1;
    else
      break;
  }
  if (n_digit == 0 || n >= sizeof plain)
    return 0;
  memcpy(plain, text, n);
  plain[n] = '\0';
  plain[0] = plain[0] == 'p' ? '+' : plain[0] == 'm' ? '-' : plain[0];
  *value = strtod(plain, NULL);
  return n;
}

int mill_name_pattern_match(const char *pattern, const char *name, int n_label,
                            const char (*label)[MILL_MAX_NAME], double *value)
{
  /* where the last * began: what it took, and what comes after it */
  const char *star = NULL, *taken = NULL;
  while (*pattern || *name) {
    double divisor, number;
    size_t n_byte = 0, n_digit = 0;
    if (*pattern == '*') {
      star = ++pattern;
      taken = name;
      continue;
    }
    const int l = field_at(pattern, n_label, label, &divisor, &n_byte);
    if (l >= 0 && (n_digit = number_at(name, &number)) > 0) {
      value[l] = number / divisor;
      pattern += n_byte;
      name += n_digit;
      continue;
    }
    if (l < 0 && *pattern && *pattern == *name) {
      pattern++;
      name++;
      continue;
    }
    if (!star || !*taken)
      return 0;
    name = ++taken; /* it takes one more */
    pattern = star;
  }
  return 1;
}
