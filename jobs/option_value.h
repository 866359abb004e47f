/** Values of command-line options that several jobs take. */
#ifndef MILL_OPTION_VALUE_H
#define MILL_OPTION_VALUE_H

#include <stdint.h>

/** An integer of the whole text within limits.  MILL_ERR_USAGE; option without its dashes. */
int mill_option_integer(const char *option, const char *text, long long min, long long max,
                        long long *value);

/** The same for a count. */
int mill_option_count(const char *option, const char *text, int min, int max, int *value);

/** A time in seconds, above 0 and at most ten years: 3600, 90s, 45m, 7.5h, 2d, H:MM:SS or
 *  D-HH:MM:SS.  MILL_ERR_USAGE. */
int mill_option_duration(const char *option, const char *text, double *seconds);

/** A seed: any unsigned integer of 64 bits, for --seed. */
int mill_option_seed(const char *text, uint64_t *value);

#endif
