/* SPDX-License-Identifier: BSD-3-Clause */
/** Writer of JSON, by jansson.  Bytes not in UTF-8 become U+FFFD; NaN and infinity become null. */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

enum { MILL_JSON_DEPTH = 16 };

/** A JSON text under construction; zero it except for out and n_digit. */
typedef struct mill_json {
  FILE *out;
  int n_digit; /**< significant digits of a number; 0: 10 */
  int depth;
  int is_short; /**< 1: memory ran out, and a value is missing */
  json_t *node[MILL_JSON_DEPTH];
} mill_json;

/** Begin and end an object ('{') or a list ('[').  key: name in the enclosing object; NULL for
 *  an item of a list, or for the outermost value.  Closing the outermost value writes the text
 *  and a newline to out.  Only that call fails: MILL_ERR_MEMORY, MILL_ERR_OUTPUT. */
void mill_json_open(mill_json *json, const char *key, char bracket);
int mill_json_close(mill_json *json);

/** Add a value; a text NULL becomes null. */
void mill_json_text(mill_json *json, const char *key, const char *text);
void mill_json_integer(mill_json *json, const char *key, int64_t value);
void mill_json_real(mill_json *json, const char *key, double value);
