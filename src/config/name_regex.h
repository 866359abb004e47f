/* SPDX-License-Identifier: BSD-3-Clause */
/** Regular expressions on names. */
#ifndef MILL_NAME_REGEX_H
#define MILL_NAME_REGEX_H

#include <regex.h>
#include <stddef.h>

/** Compile a POSIX extended regular expression that is to match the beginning of a name, for the
 *  caller to regfree.  0, and why not in reason [size], when it is none: also for a backslash, by
 *  which the dialects differ and which no name needs. */
int mill_name_regex(const char *text, regex_t *regex, char *reason, size_t size);

#endif
