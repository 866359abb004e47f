/* SPDX-License-Identifier: BSD-3-Clause */
/* Read a configuration file into a YAML document; config_read.c takes the keys from it. */
#include <errno.h>
#include <string.h>
#include <yaml.h>

#include "src/config/config_internal.h"
#include "src/config/yaml_file.h"
#include "src/system/regular_file.h"

enum {
  MAX_FILE_BYTES = 16 * 1048576, /* longer files are refused as no configuration */
  MAX_DEPTH = 16,                /* deepest nesting of lists and mappings; keys need 3 */
  MAX_ANCHOR = 64,               /* most anchors (&) */
};

/* Read a whole file of at most MAX_FILE_BYTES; the caller frees *text by mill_free. */
static int read_file(const char *path, unsigned char **text, size_t *n_text)
{
  MILL_OWNED unsigned char *buffer = NULL;
  int64_t n = 0, n_room = 0;
  MILL_AT_END(mill_stream_close) FILE *file = NULL;
  *text = NULL;
  MILL_CHECK(mill_regular_stream(path, "a configuration file", MILL_ERR_CONFIG, &file));
  do { /* read to the end, not to the size at the start: the file may grow */
    MILL_CHECK(MILL_GROW(&buffer, &n_room, n + 65536));
    n += (int64_t)fread(buffer + n, 1, (size_t)(n_room - n), file);
    if (ferror(file))
      return MILL_ERROR(MILL_ERR_CONFIG, "%s: cannot read the configuration: %s", path,
                        strerror(errno));
    if (n > MAX_FILE_BYTES)
      return MILL_ERROR(
          MILL_ERR_CONFIG,
          "%s: more than %d MiB; give a configuration file (and long lists of stars by "
          "--object-file)",
          path, MAX_FILE_BYTES / 1048576);
  } while (n == n_room);
  *n_text = (size_t)n;
  return MILL_GIVE(&buffer, text);
}

/* Report libyaml's error as "FILE:LINE: ...". */
static int yaml_failure(const yaml_parser_t *parser, const char *path, const unsigned char *text,
                        size_t n_text)
{
  const char *problem = parser->problem ? parser->problem : "unknown problem";
  if (parser->error == YAML_MEMORY_ERROR)
    return MILL_ERROR(MILL_ERR_MEMORY, "%s: no memory to read it", path);
  if (parser->error == YAML_READER_ERROR) { /* libyaml gives the offset of this error but no line */
    int line = 1;
    for (size_t i = 0; i < n_text && i < parser->problem_offset; i++)
      line += text[i] == '\n';
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "%s:%d: not a YAML text in UTF-8 (%s); give a configuration file", path, line,
                      problem);
  }
  return MILL_ERROR(MILL_ERR_CONFIG, "%s:%zu: not YAML at column %zu: %s%s%s; correct the line",
                    path, parser->problem_mark.line + 1, parser->problem_mark.column + 1, problem,
                    parser->context ? " " : "", parser->context ? parser->context : "");
}

/* Refuse deep nesting and many anchors: libyaml's time grows with the square of both.  Invalid YAML
 * is left to yaml_parser_load. */
static int check_nesting(const char *path, const unsigned char *text, size_t n_text)
{
  int depth = 0, n_anchor = 0, more = 1;
  MILL_AT_END(yaml_parser_delete) yaml_parser_t parser = {0};
  if (!yaml_parser_initialize(&parser))
    return MILL_ERROR(MILL_ERR_MEMORY, "%s: no memory to read it", path);
  yaml_parser_set_input_string(&parser, text, n_text);
  yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
  while (more) {
    yaml_event_t event;
    if (!yaml_parser_parse(&parser, &event))
      break;
    const int type = event.type;
    const size_t line = event.start_mark.line + 1;
    n_anchor += (type == YAML_SCALAR_EVENT && event.data.scalar.anchor) ||
                (type == YAML_SEQUENCE_START_EVENT && event.data.sequence_start.anchor) ||
                (type == YAML_MAPPING_START_EVENT && event.data.mapping_start.anchor);
    depth += (type == YAML_SEQUENCE_START_EVENT || type == YAML_MAPPING_START_EVENT) -
             (type == YAML_SEQUENCE_END_EVENT || type == YAML_MAPPING_END_EVENT);
    more = type != YAML_STREAM_END_EVENT;
    yaml_event_delete(&event);
    if (depth > MAX_DEPTH)
      return MILL_ERROR(
          MILL_ERR_CONFIG,
          "%s:%zu: lists or mappings nested %d deep, but no key needs more than %d; give a "
          "configuration file",
          path, line, depth, MAX_DEPTH);
    if (n_anchor > MAX_ANCHOR)
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "%s:%zu: more than %d anchors (&); write the values themselves", path, line,
                        MAX_ANCHOR);
  }
  return MILL_OK;
}

/* Parse a YAML text and call take for its document.  path names the text in messages.
 * If take returns MILL_ERR_CONFIG, path and the line that take has set precede its message. */
static int parse(const char *path, const unsigned char *text, size_t n_text, mill_yaml_take *take,
                 void *base)
{
  int line = 0;
  MILL_AT_END(yaml_parser_delete) yaml_parser_t parser = {0};
  MILL_AT_END(yaml_document_delete) yaml_document_t document = {0}, second = {0};
  MILL_CHECK(check_nesting(path, text, n_text));
  if (!yaml_parser_initialize(&parser))
    return MILL_ERROR(MILL_ERR_MEMORY, "%s: no memory to read it", path);
  yaml_parser_set_input_string(&parser, text, n_text);
  yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
  if (!yaml_parser_load(&parser, &document))
    return yaml_failure(&parser, path, text, n_text);
  if (!yaml_document_get_root_node(&document)) /* an empty file changes nothing */
    return MILL_OK;
  if (!yaml_parser_load(&parser, &second))
    return yaml_failure(&parser, path, text, n_text);
  if (yaml_document_get_root_node(&second))
    return MILL_ERROR(MILL_ERR_CONFIG, "%s:%zu: a second YAML document starts; keep one", path,
                      second.start_mark.line + 1);
  const int code = take(&document, base, &line);
  if (code != MILL_ERR_CONFIG)
    return code;
  return line > 0 ? MILL_ERROR(code, "%s:%d: %s", path, line, mill_error_message())
                  : MILL_ERROR(code, "%s: %s", path, mill_error_message());
}

int mill_yaml_read(const char *path, mill_yaml_take *take, void *base)
{
  MILL_OWNED unsigned char *text = NULL;
  size_t n_text = 0;
  MILL_CHECK(read_file(path, &text, &n_text));
  return parse(path, text, n_text, take, base);
}

int mill_config_read_text(mill_config *config, const char *name, const char *text, size_t n_text)
{
  int err = MILL_OK;
  MILL_OWNED mill_config *read = NULL; /* a copy: config changes only on success */
  MILL_TRY(MILL_ALLOC(1, &read));
  memcpy(read, config, sizeof *read);
  MILL_TRY(parse(name, (const unsigned char *)text, n_text, mill_config_read_document, read));
  if (read->select.star != config->select.star)
    mill_star_list_free(config->select.star); /* read has replaced it */
  memcpy(config, read, sizeof *config);
done:
  if (read && read->select.star != config->select.star)
    mill_star_list_free(read->select.star); /* after a failure */
  return err;
}

int mill_config_read(mill_config *config, const char *path)
{
  MILL_OWNED unsigned char *text = NULL;
  size_t n_text = 0;
  MILL_CHECK(read_file(path, &text, &n_text));
  return mill_config_read_text(config, path, (const char *)text, n_text);
}
