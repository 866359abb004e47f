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
