/** The command line: options one by one, and values that several jobs take. */
#ifndef MILL_OPTION_VALUE_H
#define MILL_OPTION_VALUE_H

#include <getopt.h>
#include <stdint.h>

/** An option of these or above has a name only; below they are letters. */
enum { MILL_OPTION_FIRST = 256 };

/** Begin with a command line, also after one that was left half-way. */
void mill_option_begin(void);

/** The next option of known, all long ones, with its value in optarg: *id is its val, at least
 *  MILL_OPTION_FIRST; -1 after the last one, then optind is the first other argument.
 *  MILL_ERR_USAGE for one that is unknown, lacks its value or has one too many; command: whose
 *  --help says more, as "starmill fit". */
int mill_option_next(int argc, char **argv, const struct option *known, const char *command,
                     int *id);

/** An integer of the whole text within limits.  MILL_ERR_USAGE; option without its dashes. */
int mill_option_integer(const char *option, const char *text, long long min, long long max,
                        long long *value);

/** The same for a count. */
int mill_option_count(const char *option, const char *text, int min, int max, int *value);

/** A seed: any unsigned integer of 64 bits, for --seed. */
int mill_option_seed(const char *text, uint64_t *value);

#endif
