#include "jobs/option_value.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

#include "kernels/error.h"

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
