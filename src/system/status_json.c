#include "src/system/status_json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "kernels/base/error.h"

/* from here on what is inside stands on one line */
enum { FLAT_DEPTH = 3 };

/* ---- writing ---- */

/* Bytes of the UTF-8 character at c, which becomes *code; 0: it is none. */
static int utf8_length(const unsigned char *c, unsigned *code)
{
  static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
  int n = 0;
  if (c[0] < 0x80) {
    *code = c[0];
    return 1;
  }
  if ((c[0] & 0xe0) == 0xc0)
    n = 2;
  else if ((c[0] & 0xf0) == 0xe0)
    n = 3;
  else if ((c[0] & 0xf8) == 0xf0)
    n = 4;
  else
    return 0;
  *code = c[0] & (0x7fu >> n);
  for (int i = 1; i < n; i++) {
    if ((c[i] & 0xc0) != 0x80) /* the end of the text too */
      return 0;
    *code = *code << 6 | (c[i] & 0x3fu);
  }
  if (*code < least[n] || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000))
    return 0;
  return n;
}

static void put_text(FILE *out, const char *text)
{
  fputc('"', out);
  for (const unsigned char *c = (const unsigned char *)text; *c;) {
    unsigned code = 0;
    const int n = utf8_length(c, &code);
    if (n == 0 || code == 0xfffe || code == 0xffff)
      fputs("\\ufffd", out);
    else if (code == '"' || code == '\\')
      fprintf(out, "\\%c", (char)code);
    else if (code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0xfeff)
      fprintf(out, "\\u%04x", code);
    else
      fwrite(c, 1, (size_t)n, out);
    c += n > 0 ? n : 1;
  }
  fputc('"', out);
}

/* Comma, line and key of the next value. */
static void begin(mill_json *json, const char *key)
{
  if (json->depth > 0) {
    int *n_item = &json->n_item[json->depth - 1];
    if (*n_item > 0)
      fputc(',', json->out);
    if (json->depth < FLAT_DEPTH)
      fprintf(json->out, "\n%*s", 2 * json->depth, "");
    else if (*n_item > 0)
      fputc(' ', json->out);
    ++*n_item;
  }
  if (key) {
    put_text(json->out, key);
    fputs(": ", json->out);
  }
}

void mill_json_open(mill_json *json, const char *key, char bracket)
{
  begin(json, key);
  fputc(bracket, json->out);
  json->bracket[json->depth] = bracket == '{' ? '}' : ']';
  json->n_item[json->depth] = 0;
  json->depth++;
}

void mill_json_close(mill_json *json)
{
  json->depth--;
  if (json->n_item[json->depth] > 0 && json->depth + 1 < FLAT_DEPTH)
    fprintf(json->out, "\n%*s", 2 * json->depth, "");
  fputc(json->bracket[json->depth], json->out);
  if (json->depth == 0)
    fputc('\n', json->out);
}

void mill_json_text(mill_json *json, const char *key, const char *text)
{
  begin(json, key);
  if (text)
    put_text(json->out, text);
  else
    fputs("null", json->out);
}

void mill_json_integer(mill_json *json, const char *key, int64_t value)
{
  begin(json, key);
  fprintf(json->out, "%lld", (long long)value);
}

void mill_json_real(mill_json *json, const char *key, double value)
{
  begin(json, key);
  if (isfinite(value))
    fprintf(json->out, "%.10g", value);
  else
    fputs("null", json->out);
}

void mill_json_bool(mill_json *json, const char *key, int value)
{
  begin(json, key);
  fputs(value ? "true" : "false", json->out);
}

void mill_json_null(mill_json *json, const char *key)
{
  mill_json_text(json, key, NULL);
}

void mill_json_raw(mill_json *json, const char *key, const char *text)
{
  begin(json, key);
  size_t n = strlen(text);
  while (n > 0 && text[n - 1] == '\n')
    n--;
  fwrite(text, 1, n, json->out);
}

/* ---- reading ---- */

struct mill_json_doc {
  yaml_document_t document;
};

int mill_json_read(const char *text, size_t n_byte, mill_json_doc **out)
{
  int err = MILL_OK, has_document = 0, has_rest = 0;
  mill_json_doc *doc = NULL;
  yaml_parser_t parser;
  yaml_document_t rest;
  *out = NULL;
  if (!yaml_parser_initialize(&parser))
    return mill_error_set(MILL_ERR_MEMORY, __FILE__, __LINE__, "no memory for a reader of JSON");
  MILL_TRY(MILL_ALLOC(1, &doc));
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, n_byte);
  if (!yaml_parser_load(&parser, &doc->document))
    MILL_FAIL(MILL_ERR_INPUT, "line %zu: %s", parser.problem_mark.line + 1,
              parser.problem ? parser.problem : "no JSON");
  has_document = 1;
  if (!yaml_document_get_root_node(&doc->document))
    MILL_FAIL(MILL_ERR_INPUT, "it is empty");
  has_rest = yaml_parser_load(&parser, &rest);
  if (!has_rest || yaml_document_get_root_node(&rest))
    MILL_FAIL(MILL_ERR_INPUT, "something follows the end of the first object");
  *out = doc;
  doc = NULL;
done:
  if (has_rest)
    yaml_document_delete(&rest);
  if (doc && has_document)
    yaml_document_delete(&doc->document);
  mill_free(doc);
  yaml_parser_delete(&parser);
  return err;
}

void mill_json_free(mill_json_doc *doc)
{
  if (!doc)
    return;
  yaml_document_delete(&doc->document);
  mill_free(doc);
}

static const yaml_node_t *get(const mill_json_doc *doc, int node, yaml_node_type_t type)
{
  /* libyaml takes no const document, but does not change it */
  const yaml_node_t *found =
      node > 0 ? yaml_document_get_node((yaml_document_t *)&doc->document, node) : NULL;
  return found && found->type == type ? found : NULL;
}

int mill_json_root(const mill_json_doc *doc)
{
  (void)doc;
  return 1; /* libyaml numbers from the root on */
}

const char *mill_json_key(const mill_json_doc *doc, int node, int i)
{
  const yaml_node_t *map = get(doc, node, YAML_MAPPING_NODE);
  if (!map || i < 0 || map->data.mapping.pairs.top - map->data.mapping.pairs.start <= i)
    return NULL;
  const yaml_node_t *key = get(doc, map->data.mapping.pairs.start[i].key, YAML_SCALAR_NODE);
  return key ? (const char *)key->data.scalar.value : "";
}

int mill_json_member(const mill_json_doc *doc, int node, const char *key)
{
  const char *name;
  for (int i = 0; (name = mill_json_key(doc, node, i)) != NULL; i++)
    if (strcmp(name, key) == 0)
      return get(doc, node, YAML_MAPPING_NODE)->data.mapping.pairs.start[i].value;
  return 0;
}

int mill_json_n_item(const mill_json_doc *doc, int node)
{
  const yaml_node_t *list = get(doc, node, YAML_SEQUENCE_NODE);
  return list ? (int)(list->data.sequence.items.top - list->data.sequence.items.start) : 0;
}

int mill_json_item(const mill_json_doc *doc, int node, int i)
{
  if (i < 0 || i >= mill_json_n_item(doc, node))
    return 0;
  return get(doc, node, YAML_SEQUENCE_NODE)->data.sequence.items.start[i];
}

const char *mill_json_get_text(const mill_json_doc *doc, int node, const char *missing)
{
  const yaml_node_t *scalar = get(doc, node, YAML_SCALAR_NODE);
  if (!scalar || scalar->data.scalar.style != YAML_DOUBLE_QUOTED_SCALAR_STYLE)
    return missing;
  return (const char *)scalar->data.scalar.value;
}

/* The text of a number; NULL: it is none. */
static const char *number(const mill_json_doc *doc, int node)
{
  const yaml_node_t *scalar = get(doc, node, YAML_SCALAR_NODE);
  if (!scalar || scalar->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
    return NULL;
  return (const char *)scalar->data.scalar.value;
}

int64_t mill_json_get_integer(const mill_json_doc *doc, int node, int64_t missing)
{
  const char *text = number(doc, node);
  char *end = NULL;
  if (!text)
    return missing;
  errno = 0;
  const long long value = strtoll(text, &end, 10);
  return end == text || *end != '\0' || errno != 0 ? missing : (int64_t)value;
}

double mill_json_get_real(const mill_json_doc *doc, int node, double missing)
{
  const char *text = number(doc, node);
  char *end = NULL;
  if (!text)
    return missing;
  const double value = strtod(text, &end);
  return end == text || *end != '\0' || !isfinite(value) ? missing : value;
}
