/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/config/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/error.h"

const char *mill_text_of_real(double x, char out[32])
{
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(out, 32, "%.*g", digits, x);
    if (strtod(out, NULL) == x)
      break;
  }
  return out;
}

int mill_text_to_real(const char *text, double *value)
{
  char *end = NULL;
  /* strtod would accept hexadecimal, inf and nan */
  if (!*text || strspn(text, "0123456789+-.eE") != strlen(text))
    return 0;
  *value = strtod(text, &end);
  return *end == '\0';
}

const char *mill_text_shown(const char *text, char out[64])
{
  size_t n = 0;
  for (; text[n] && n < 60; n++)
    out[n] = (unsigned char)text[n] < 0x20 || text[n] == 0x7f ? '?' : text[n];
  if (text[n])
    memcpy(out + n, "...", 4);
  else
    out[n] = '\0';
  return out;
}

const char *mill_text_of_words(const char *const *words, char out[128])
{
  size_t n = 0;
  out[0] = '\0';
  for (int i = 0; words[i] && n < 128; i++)
    n += (size_t)snprintf(out + n, 128 - n, "%s%s",
                          i == 0         ? ""
                          : words[i + 1] ? ", "
                                         : " or ",
                          words[i]);
  return out;
}

enum { MAX_MISSPELT = 63, MAX_CHANGE = 3 };

/* Return the edit distance of two names.  Each has at most MAX_MISSPELT letters. */
static size_t name_distance(const char *a, const char *b)
{
  size_t row[MAX_MISSPELT + 1]; /* [j]: edits from the read part of a to b's first j letters */
  const size_t n_b = strlen(b);
  for (size_t j = 0; j <= n_b; j++)
    row[j] = j;
  for (size_t i = 0; a[i]; i++) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < n_b; j++) {
      const size_t change = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      const size_t step = (row[j] < diagonal ? row[j] : diagonal) + 1;
      row[j + 1] = change < step ? change : step;
    }
  }
  return row[n_b];
}

void mill_text_nearer(const char *text, const char *known, mill_near *near)
{
  if (strlen(text) > MAX_MISSPELT || strlen(known) > MAX_MISSPELT)
    return;
  const size_t distance = name_distance(text, known);
  /* not similar: more than MAX_CHANGE edits, or edits in over half the letters of `known` */
  if (distance > MAX_CHANGE || 2 * distance > strlen(known) + 1 ||
      (near->name && distance >= near->distance))
    return;
  *near = (mill_near){known, distance};
}

/* Return the code point at s and set *n_byte to its length, or to 0 if s is not valid UTF-8. */
static unsigned utf8_next(const unsigned char *s, int *n_byte)
{
  static const unsigned smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
  const int n = s[0] < 0x80       ? 1
                : s[0] >> 5 == 6  ? 2
                : s[0] >> 4 == 14 ? 3
                : s[0] >> 3 == 30 ? 4
                                  : 0;
  unsigned code = n == 1 ? s[0] : n ? s[0] & (0x7fu >> n) : 0;
  *n_byte = n;
  for (int i = 1; i < n; i++) {
    if (s[i] >> 6 != 2) {
      *n_byte = 0;
      return 0;
    }
    code = code << 6 | (s[i] & 0x3f);
  }
  if (n > 1 && (code < smallest[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)))
    *n_byte = 0;
  return code;
}

int mill_text_is_printable(const char *text)
{
  for (const unsigned char *s = (const unsigned char *)text; *s;) {
    int n_byte;
    const unsigned code = utf8_next(s, &n_byte);
    if (!n_byte || code < 0x20 || code == 0x7f)
      return 0;
    s += n_byte;
  }
  return 1;
}

/* Escape what YAML cannot show in quotes: controls, line separators, bytes that are not UTF-8. */
void mill_text_print_quoted(const char *text, FILE *out)
{
  fputc('"', out);
  for (const unsigned char *s = (const unsigned char *)text; *s;) {
    int n_byte;
    const unsigned code = utf8_next(s, &n_byte);
    if (code == '"' || code == '\\')
      fprintf(out, "\\%c", (int)code);
    else if (!n_byte || code < 0x20 || code == 0x7f)
      fprintf(out, "\\x%02x", s[0]);
    else if ((code > 0x7f && code < 0xa1) || code == 0x2028 || code == 0x2029 || code == 0xfeff ||
             code == 0xfffe || code == 0xffff)
      fprintf(out, "\\u%04x", code);
    else
      fwrite(s, 1, (size_t)n_byte, out);
    s += n_byte ? n_byte : 1;
  }
  fputc('"', out);
}

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

int mill_text_close(FILE *text, int code, const char *what)
{
  int failed = !text || ferror(text);
  failed |= text && fclose(text) != 0;
  return failed && code == MILL_OK ? MILL_ERROR(MILL_ERR_MEMORY, "no memory for %s", what) : code;
}

int mill_text_flush(FILE *out, const char *what)
{
  if (fflush(out) != 0 || ferror(out))
    return MILL_ERROR(MILL_ERR_OUTPUT, "cannot print %s: %s", what, strerror(errno));
  return MILL_OK;
}

int mill_command_text(int argc, char *const *argv, char **out)
{
  size_t size = 0;
  FILE *text = open_memstream(out, &size);
  if (text)
    fputs("starmill", text);
  for (int i = 0; i < argc && text; i++) {
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
  return mill_text_close(text, MILL_OK, "the command line");
}
