/* SPDX-License-Identifier: BSD-3-Clause */
/** Numbers, names and command lines as the texts of configurations, options and messages. */
#pragma once

#include <regex.h>
#include <stddef.h>
#include <stdio.h>

/** Write the shortest decimal that reads back as the same double; returns out. */
const char *mill_text_of_real(double x, char out[32]);

/** Returns 1 and sets *value if the whole text is a decimal number (inf if too large), else 0. */
int mill_text_to_real(const char *text, double *value);

/** Prepare a user's text for a one-line message: cut it after 60 bytes and show control
 *  characters as '?'; returns out. */
const char *mill_text_shown(const char *text, char out[64]);

/** Join words, which end with NULL, to "a, b or c"; returns out. */
const char *mill_text_of_words(const char *const *words, char out[128]);

/** The known name closest to a misspelt one; begin with {0}. */
typedef struct mill_near {
  const char *name; /**< NULL: no known name is close */
  size_t distance;  /**< edits from one name to the other */
} mill_near;

/** Replace near's name by the name `known` if `known` is closer to the text. */
void mill_text_nearer(const char *text, const char *known, mill_near *near);

/** Does the text fit a YAML file and a one-line message: UTF-8 without control characters? */
int mill_text_is_printable(const char *text);

/** Compile a POSIX extended regular expression that must match the beginning of a name; the caller
 *  frees it by regfree.  Returns 0, with the reason in reason [size], if text is not a valid
 *  expression.  A backslash is refused: dialects disagree on it, and no name needs it. */
int mill_name_regex(const char *text, regex_t *regex, char *reason, size_t size);

/** Write the command line "starmill" and argv, quoted for a shell, to *out, which the caller
 *  frees by free().  Call it before getopt permutes argv.  MILL_ERR_MEMORY. */
int mill_command_text(int argc, char *const *argv, char **out);

/** Close a stream of open_memstream; NULL: the stream was not opened.  Returns `code`, the writer's
 *  error, if there is one; else MILL_ERR_MEMORY if the text named by `what` is incomplete. */
int mill_text_close(FILE *text, int code, const char *what);

/** Flush a stream.  MILL_ERR_OUTPUT if its text is lost.  what: name of the text, "the summary". */
int mill_text_flush(FILE *out, const char *what);

/** Print a text as a double-quoted YAML scalar. */
void mill_text_print_quoted(const char *text, FILE *out);
