/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/system/status_json.h"

#include <errno.h>
#include <string.h>

#include "kernels/base/memory.h"

/* Add a value to the open list or object, which then owns the value. */
static void put(mill_json *json, const char *key, json_t *value)
{
  json_t *parent = json->node[json->depth - 1];
  json->is_short |= key ? json_object_set_new(parent, key, value) != 0
                        : json_array_append_new(parent, value) != 0;
}

void mill_json_open(mill_json *json, const char *key, char bracket)
{
  json_t *node = bracket == '{' ? json_object() : json_array();
  json->is_short |= !node;
  if (json->depth > 0)
    put(json, key, node);
  json->node[json->depth++] = node;
}

int mill_json_close(mill_json *json)
{
  int err = MILL_OK;
  if (--json->depth > 0)
    return MILL_OK;
  if (json->is_short)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory for a text of JSON");
  const size_t n_digit = json->n_digit > 0 ? (size_t)json->n_digit : 10;
  if (json_dumpf(json->node[0], json->out, JSON_INDENT(2) | JSON_REAL_PRECISION(n_digit)) != 0 ||
      fputc('\n', json->out) == EOF)
    MILL_FAIL(MILL_ERR_OUTPUT, "cannot write JSON: %s", strerror(errno));
done:
  json_decref(json->node[0]);
  return err;
}

/* Return the number of bytes of the UTF-8 character at c; 0: not UTF-8. */
static size_t utf8_length(const char *c)
{
  const size_t n_left = strnlen(c, 4);
  for (size_t n = 1; n <= n_left; n++) {
    json_t *character = json_stringn(c, n);
    json_decref(character);
    if (character)
      return n;
  }
  return 0;
}

/* Copy a text with U+FFFD in place of every byte that is not UTF-8; NULL: no memory. */
static json_t *repaired(const char *text)
{
  static const char replacement[] = "\xef\xbf\xbd";
  char *copy = NULL, *end;
  if (MILL_ALLOC(strlen(text) * (sizeof replacement - 1) + 1, &copy) != MILL_OK)
    return NULL;
  for (end = copy; *text;) {
    const size_t n = utf8_length(text), n_copy = n > 0 ? n : sizeof replacement - 1;
    memcpy(end, n > 0 ? text : replacement, n_copy);
    end += n_copy;
    text += n > 0 ? n : 1;
  }
  json_t *string = json_string(copy);
  mill_free(copy);
  return string;
}

void mill_json_text(mill_json *json, const char *key, const char *text)
{
  json_t *string = text ? json_string(text) : json_null();
  put(json, key, string ? string : repaired(text));
}

void mill_json_integer(mill_json *json, const char *key, int64_t value)
{
  put(json, key, json_integer(value));
}

void mill_json_real(mill_json *json, const char *key, double value)
{
  json_t *number = json_real(value);
  put(json, key, number ? number : json_null());
}
