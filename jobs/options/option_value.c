#include "jobs/options/option_value.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/error.h"

void mill_option_begin(void)
{
  opterr = 0;
  optind = 0; /* glibc: begin anew */
}

int mill_option_next(int argc, char **argv, const struct option *known, const char *command,
                     int *id)
{
  int err = MILL_OK;
  optopt = 0;
  *id = getopt_long(argc, argv, ":", known, NULL);
  if (*id == ':')
    MILL_FAIL(MILL_ERR_USAGE, "option %s needs a value; see %s --help", argv[optind - 1], command);
  /* a variable of a script that is not set: it names no file and is no value */
  if (*id >= MILL_OPTION_FIRST && optarg && !*optarg)
    MILL_FAIL(MILL_ERR_USAGE, "option %s needs a value, not an empty text; see %s --help",
              optarg == argv[optind - 1] ? argv[optind - 2] : argv[optind - 1], command);
  if (*id != '?')
    goto done;
  /* getopt names short options only by their letter */
  if (optopt > 0 && optopt < MILL_OPTION_FIRST)
    MILL_FAIL(MILL_ERR_USAGE, "unknown option -%c; see %s --help", optopt, command);
  MILL_FAIL(MILL_ERR_USAGE, "%s option %s; see %s --help", optopt ? "wrongly used" : "unknown",
            argv[optind - 1], command);
done:
  return err;
}

int mill_option_integer(const char *option, const char *text, long long min, long long max,
                        long long *value)
{
  int err = MILL_OK;
  char *end = NULL;
  errno = 0;
  const long long v = strtoll(text, &end, 10);
  if (end == text || *end != '\0' || errno == ERANGE || v < min || v > max)
    MILL_FAIL(MILL_ERR_USAGE, "--%s takes an integer from %lld to %lld, not '%.80s'", option, min,
              max, text);
  *value = v;
done:
  return err;
}

int mill_option_count(const char *option, const char *text, int min, int max, int *value)
{
  int err = MILL_OK;
  long long v = 0;
  MILL_TRY(mill_option_integer(option, text, min, max, &v));
  *value = (int)v;
done:
  return err;
}

/* "H:MM:SS" or "D-HH:MM:SS" of the whole text; 1 when it is one. */
static int read_clock(const char *text, double *seconds)
{
  int day = 0, hour = 0, minute = 0, second = 0, n = -1;
  if (strspn(text, "0123456789-:") != strlen(text))
    return 0;
  if (sscanf(text, "%4d-%4d:%2d:%2d%n", &day, &hour, &minute, &second, &n) != 4) {
    day = 0;
    n = -1;
    if (sscanf(text, "%6d:%2d:%2d%n", &hour, &minute, &second, &n) != 3)
      return 0;
  }
  if (n < 0 || text[n] != '\0' || day < 0 || hour < 0 || minute < 0 || minute > 59 || second < 0 ||
      second > 59)
    return 0;
  *seconds = 86400.0 * day + 3600.0 * hour + 60.0 * minute + second;
  return 1;
}

/* A number with or without the letter of its unit. */
static int read_amount(const char *text, double *seconds)
{
  static const struct {
    const char *letter;
    double s;
  } unit[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
  char *end = NULL;
  if (strspn(text, "0123456789.") == 0 || strpbrk(text, "xXpPeE"))
    return 0;
  const double value = strtod(text, &end);
  for (size_t i = 0; i < sizeof unit / sizeof unit[0]; i++)
    if (end != text && strcmp(end, unit[i].letter) == 0) {
      *seconds = value * unit[i].s;
      return 1;
    }
  return 0;
}

int mill_option_duration(const char *option, const char *text, double *seconds)
{
  int err = MILL_OK;
  const double most = 10 * 366 * 86400.0;
  double s = 0;
  if ((!read_clock(text, &s) && !read_amount(text, &s)) || !(s > 0 && s <= most))
    MILL_FAIL(
        MILL_ERR_USAGE,
        "--%s takes a time such as 3600 (seconds), 90s, 45m, 7.5h, 2d, 7:30:00 or 1-12:00:00, "
        "not '%.80s'",
        option, text);
  *seconds = s;
done:
  return err;
}

int mill_option_seed(const char *text, uint64_t *value)
{
  int err = MILL_OK;
  char *end = NULL;
  errno = 0;
  const unsigned long long v = strtoull(text, &end, 10);
  /* strtoull takes a minus sign and wraps */
  if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno == ERANGE)
    MILL_FAIL(MILL_ERR_USAGE, "--seed takes an integer from 0 to %llu, not '%.80s'",
              (unsigned long long)UINT64_MAX, text);
  *value = v;
done:
  return err;
}
