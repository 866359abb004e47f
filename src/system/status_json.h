/** JSON: a writer that cannot give a malformed text, and a reader for what it gave.
 *
 *  Texts may hold any byte: quotes, backslashes and control characters are escaped, and a
 *  byte that is no UTF-8 becomes U+FFFD, since JSON knows no other encoding.  Numbers that
 *  JSON has not (NaN, infinity) become null.
 *
 *  The reader stands on libyaml, of which JSON is a part.
 */
#ifndef MILL_STATUS_JSON_H
#define MILL_STATUS_JSON_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { MILL_JSON_DEPTH = 16 };

/** A text under way; zero it, but for out.  Whether out took it all is for the caller to ask
 *  out (ferror). */
typedef struct mill_json {
  FILE *out;
  int depth;
  char bracket[MILL_JSON_DEPTH]; /**< what closes each level */
  int n_item[MILL_JSON_DEPTH];
} mill_json;

/** Begin an object ('{') or a list ('['), and end it.  key NULL: an item of a list, or the
 *  whole text, which ends with a newline. */
void mill_json_open(mill_json *json, const char *key, char bracket);
void mill_json_close(mill_json *json);

/** Values; a text NULL is null. */
void mill_json_text(mill_json *json, const char *key, const char *text);
void mill_json_integer(mill_json *json, const char *key, int64_t value);
void mill_json_real(mill_json *json, const char *key, double value);
void mill_json_bool(mill_json *json, const char *key, int value);
void mill_json_null(mill_json *json, const char *key);
/** A whole text of JSON, as it is. */
void mill_json_raw(mill_json *json, const char *key, const char *text);

/** A text that was read.  Nodes are numbers from 1 on; 0 is "not there" and may be asked on. */
typedef struct mill_json_doc mill_json_doc;

/** Read a text [n_byte].  MILL_ERR_INPUT when it is no JSON (or YAML) of one document. */
int mill_json_read(const char *text, size_t n_byte, mill_json_doc **out);
void mill_json_free(mill_json_doc *doc); /* NULL is fine */

/** The whole; a member of an object; an item of a list; how many items a list has. */
int mill_json_root(const mill_json_doc *doc);
int mill_json_member(const mill_json_doc *doc, int node, const char *key);
int mill_json_item(const mill_json_doc *doc, int node, int i);
int mill_json_n_item(const mill_json_doc *doc, int node);

/** The key of the i-th member of an object; NULL beyond the last. */
const char *mill_json_key(const mill_json_doc *doc, int node, int i);

/** The value of a text, or what stands in its place: missing for null, another kind, or none. */
const char *mill_json_get_text(const mill_json_doc *doc, int node, const char *missing);
int64_t mill_json_get_integer(const mill_json_doc *doc, int node, int64_t missing);
double mill_json_get_real(const mill_json_doc *doc, int node, double missing);

#endif
