/* SPDX-License-Identifier: BSD-3-Clause */
/** Numbers and names as the texts of configurations, options and messages. */
#ifndef MILL_TEXT_H
#define MILL_TEXT_H

#include <stdio.h>

/** The shortest decimal that reads back to the same double; returns out. */
const char *mill_text_of_real(double x, char out[32]);

/** 1 and *value when the whole text is a decimal number (inf when it is too large), else 0. */
int mill_text_to_real(const char *text, double *value);

/** Text of a user for a one-line message: cut off, without control characters; returns out. */
const char *mill_text_shown(const char *text, char out[64]);

/** "a, b or c"; words ends with NULL; returns out. */
const char *mill_text_of_words(const char *const *words, char out[128]);

/** The known name that a misspelt one probably means; begin with {0}. */
typedef struct mill_near {
  const char *name; /**< NULL: none is near */
  size_t distance;
} mill_near;

/** Take known into near if it is nearer to text than the name there. */
void mill_text_nearer(const char *text, const char *known, mill_near *near);

/** 1 when the text fits a YAML file and one line of a message: UTF-8, no control characters. */
int mill_text_is_printable(const char *text);

/** Print as a double-quoted YAML scalar. */
void mill_text_print_quoted(const char *text, FILE *out);

#endif
