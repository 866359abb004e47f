/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "src/config/config_internal.h"
#include "src/config/text.h"

/* Unlike libcyaml, libyaml gives the line numbers of all nodes, which messages need. */

enum { MAX_LINE_ITEM = 64 }; /* items of a list whose line numbers are kept */

/* Position of the reader. */
typedef struct reader {
  yaml_document_t *document;
  mill_config *config;
  const mill_option *key; /* being read */
  int line;               /* 1-based, of the value being read; 0: none */
} reader;

/* Keys of rvspecfit and their replacements here. */
static const struct {
  const char *name, *advice;
} foreign[] = {
    {"vel_step0", "the initial velocity grid is set by guess_vel_step"},
    {"min_vel_step", "starmill itself refines the velocity grid of VRAD_ERR; remove the line"},
    {"second_minimizer", "the optimizer is chosen by the key optimizer"},
    {"zbest_select", "it is called redrock here"},
    {"zbest_include", "redrock's columns are always kept; remove the line"},
    {"fitarm", "it is called arms here"},
    {"nthreads", "it is called threads here"},
    {"fixParam", "it is called fix_param here"},
    {"lsf_sigma0_angstrom", "the library knows its own resolution; remove the line"},
    {"ccf_continuum_normalize", "the initial guess needs no such choice; remove the line"},
};

static int node_line(const yaml_node_t *node)
{
  return (int)node->start_mark.line + 1;
}

/* Fail with "key: text", and set the reader's line to the node's (NULL: leave it). */
__attribute__((format(printf, 3, 4))) static int bad(reader *in, const yaml_node_t *node,
                                                     const char *format, ...)
{
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (node)
    in->line = node_line(node);
  return MILL_ERROR(MILL_ERR_CONFIG, "%s: %s", in->key->name, text);
}

static const char *scalar(const yaml_node_t *node)
{
  return (const char *)node->data.scalar.value;
}

static int is_plain(const yaml_node_t *node)
{
  return node->type == YAML_SCALAR_NODE && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

static int is_null(const yaml_node_t *node)
{
  if (!is_plain(node))
    return 0;
  const char *text = scalar(node);
  return !*text || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0;
}

/* Describe what a node holds, for the message "expected ..., got ...". */
static const char *found(const yaml_node_t *node, char out[80])
{
  char text[64];
  if (node->type == YAML_SEQUENCE_NODE)
    strcpy(out, "a list");
  else if (node->type == YAML_MAPPING_NODE)
    strcpy(out, "a mapping");
  else if (is_null(node))
    strcpy(out, "nothing");
  else
    snprintf(out, 80, is_plain(node) ? "'%s'" : "the quoted text '%s'",
             mill_text_shown(scalar(node), text));
  return out;
}

static int expected(reader *in, const yaml_node_t *node, const char *what)
{
  char text[80];
  return bad(in, node, "expected %s, got %s", what, found(node, text));
}

/* Read a finite number. */
static int get_real(reader *in, const yaml_node_t *node, double *out)
{
  if (!is_plain(node) || is_null(node))
    return expected(in, node, "a number");
  const char *text = scalar(node);
  const char *bare = text + (*text == '-' || *text == '+');
  bare += *bare == '.'; /* YAML writes .inf and .nan */
  if (strcasecmp(bare, "inf") == 0 || strcasecmp(bare, "infinity") == 0 ||
      strcasecmp(bare, "nan") == 0)
    return bad(in, node, "'%s' is not finite; give a number", text);
  double x;
  if (!mill_text_to_real(text, &x))
    return expected(in, node, "a number");
  if (!isfinite(x))
    return bad(in, node, "%.60s is too large for a number", text);
  *out = x;
  return MILL_OK;
}

/* Read a decimal or 0x integer.  Refuse a leading zero, which some YAML readers take for octal. */
static int get_integer(reader *in, const yaml_node_t *node, int64_t *out)
{
  if (!is_plain(node) || is_null(node))
    return expected(in, node, "a whole number");
  const char *text = scalar(node);
  const char *digit = text + (*text == '-' || *text == '+');
  const int hex = digit[0] == '0' && (digit[1] == 'x' || digit[1] == 'X');
  const char *set = hex ? "0123456789abcdefABCDEF" : "0123456789";
  const char *first = hex ? digit + 2 : digit;
  if (!*first || strspn(first, set) != strlen(first) || (!hex && first[0] == '0' && first[1]))
    return expected(in, node, "a whole number");
  errno = 0;
  const long long n = strtoll(text, NULL, hex ? 16 : 10);
  if (errno == ERANGE)
    return bad(in, node, "%.60s is too large for a whole number", text);
  *out = n;
  return MILL_OK;
}

/* Read a text of at most size - 1 bytes. */
static int get_text(reader *in, const yaml_node_t *node, size_t size, char *out)
{
  char text[64];
  if (node->type != YAML_SCALAR_NODE || is_null(node))
    return expected(in, node, "a text");
  if (strlen(scalar(node)) != node->data.scalar.length || !mill_text_is_printable(scalar(node)))
    return bad(in, node, "'%s' has control characters; remove them",
               mill_text_shown(scalar(node), text));
  if (node->data.scalar.length >= size)
    return bad(in, node, "'%s' is longer than %zu bytes; give a shorter one",
               mill_text_shown(scalar(node), text), size - 1);
  memset(out, 0, size);
  memcpy(out, scalar(node), node->data.scalar.length);
  return MILL_OK;
}

/* Set *out to the index of a word; yes and on stand for true, no and off for false. */
static int get_word(reader *in, const yaml_node_t *node, const char *const *words, int *out)
{
  static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
  char list[128];
  mill_text_of_words(words, list);
  if (node->type != YAML_SCALAR_NODE || is_null(node))
    return expected(in, node, list);
  const char *text = scalar(node);
  *out = mill_option_word(words, text); /* first as it is: the key lsf has the word off */
  for (size_t i = 0; *out < 0 && is_plain(node) && i < sizeof yes / sizeof yes[0]; i++)
    if (strcasecmp(text, yes[i]) == 0)
      *out = mill_option_word(words, "true");
    else if (strcasecmp(text, no[i]) == 0)
      *out = mill_option_word(words, "false");
  return *out >= 0 ? MILL_OK : expected(in, node, list);
}

/* Set *n to the number of items of a list; a scalar is a list of one. */
static int get_list(reader *in, const yaml_node_t *node, const char *what, size_t max, size_t *n)
{
  if (node->type == YAML_SCALAR_NODE && !is_null(node))
    *n = 1;
  else if (node->type == YAML_SEQUENCE_NODE)
    *n = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
  else
    return expected(in, node, what);
  if (*n > max)
    return bad(in, node, "%zu items are too many; give at most %zu", *n, max);
  return MILL_OK;
}

static const yaml_node_t *list_item(const reader *in, const yaml_node_t *node, size_t i)
{
  if (node->type == YAML_SCALAR_NODE)
    return node;
  return yaml_document_get_node(in->document, node->data.sequence.items.start[i]);
}

/* Read a list of names into the array and the count to which a key's row points. */
static int get_names(reader *in, const yaml_node_t *node, const mill_option *k)
{
  char *list = (char *)in->config + k->offset;
  int *n_name = (int *)(void *)((char *)in->config + k->offset2);
  size_t n;
  MILL_CHECK(get_list(in, node, "a list of names", (size_t)k->max, &n));
  memset(list, 0, k->size * (size_t)k->max);
  for (size_t i = 0; i < n; i++)
    MILL_CHECK(get_text(in, list_item(in, node, i), k->size, list + i * k->size));
  *n_name = (int)n;
  return MILL_OK;
}

static int read_wave_mask(reader *in, const yaml_node_t *node)
{
  static const char what[] = "a list of ranges like [[4300, 4450]]";
  mill_fit_settings *fit = &in->config->fit;
  size_t n;
  if (is_plain(node) && strcmp(scalar(node), "auto") == 0) {
    mill_config usual;
    mill_config_default(&usual);
    in->config->wave_mask_auto = 1;
    fit->n_wave_mask = usual.fit.n_wave_mask;
    memcpy(fit->wave_mask, usual.fit.wave_mask, sizeof fit->wave_mask);
    return MILL_OK;
  }
  if (node->type != YAML_SEQUENCE_NODE)
    return expected(in, node, what);
  MILL_CHECK(get_list(in, node, what, MILL_MAX_WAVE_MASK, &n));
  memset(fit->wave_mask, 0, sizeof fit->wave_mask);
  for (size_t i = 0; i < n; i++) {
    const yaml_node_t *item = list_item(in, node, i);
    size_t n_end = 0; /* stays 0 if the item is not a list */
    if (item->type == YAML_SEQUENCE_NODE)
      MILL_CHECK(get_list(in, item, what, SIZE_MAX, &n_end));
    if (n_end != 2)
      return bad(in, item, "item %zu is not [min, max]; give %s", i + 1, what);
    MILL_CHECK(get_real(in, list_item(in, item, 0), &fit->wave_mask[i].min_aa));
    MILL_CHECK(get_real(in, list_item(in, item, 1), &fit->wave_mask[i].max_aa));
  }
  fit->n_wave_mask = (int)n;
  in->config->wave_mask_auto = 0;
  return MILL_OK;
}

static int read_mask_ignore(reader *in, const yaml_node_t *node)
{
  int64_t bits;
  MILL_CHECK(get_integer(in, node, &bits));
  if (bits < 0 || bits > UINT32_MAX)
    return bad(in, node, "%lld is out of range; give the bits as a number from 0 to 0xffffffff",
               (long long)bits);
  in->config->fit.mask_ignore = (uint32_t)bits;
  return MILL_OK;
}

/* Read {NAME: VALUE, ...} into the item at `to`. */
static int get_fields(reader *in, const yaml_node_t *node, const mill_items *k, char *to)
{
  char text[80];
  int seen[8] = {0}; /* how often each field of the item has appeared */
  double x;
  for (yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top;
       pair++) {
    const yaml_node_t *name = yaml_document_get_node(in->document, pair->key);
    const yaml_node_t *value = yaml_document_get_node(in->document, pair->value);
    const mill_field *f = k->field;
    while (f->name && (name->type != YAML_SCALAR_NODE || strcmp(scalar(name), f->name) != 0))
      f++;
    if (!f->name)
      return bad(in, name, "%s is unknown in %s; give %s", found(name, text), k->item, k->wanted);
    if (seen[f - k->field]++)
      /* item is "an ...": drop its article */
      return bad(in, name, "%s appears twice in one%s; remove one", f->name, k->item + 2);
    if (f->kind == MILL_FIELD_TEXT) {
      MILL_CHECK(get_text(in, value, MILL_MAX_NAME, to + f->offset));
      continue;
    }
    MILL_CHECK(get_real(in, value, &x));
    if (f->kind == MILL_FIELD_REAL)
      *(double *)(void *)(to + f->offset) = x;
    else /* -1, which is out of range, if the number is not whole */
      *(int *)(void *)(to + f->offset) = x == floor(x) && fabs(x) < 1e9 ? (int)x : -1;
  }
  for (const mill_field *f = k->field; f->name; f++)
    if (!seen[f - k->field] && f->needed)
      return bad(in, node, "%s lacks %s; give %s", k->item, f->needed, k->wanted);
  return MILL_OK;
}

/* Read a list of items into the array at k->offset: mappings, or bare names if is_named. */
static int read_items(reader *in, const yaml_node_t *node, const mill_items *k)
{
  char *list = (char *)in->config + k->offset;
  size_t n;
  if (node->type != YAML_SEQUENCE_NODE && !k->is_named)
    return expected(in, node, k->list);
  MILL_CHECK(get_list(in, node, k->list, (size_t)k->most, &n));
  memset(list, 0, k->size * (size_t)k->most);
  for (size_t i = 0; i < n; i++) {
    const yaml_node_t *item = list_item(in, node, i);
    char *to = list + i * k->size;
    for (const mill_field *f = k->field; f->name; f++)
      if (f->kind == MILL_FIELD_REAL)
        *(double *)(void *)(to + f->offset) = f->usual;
    if (item->type == YAML_MAPPING_NODE)
      MILL_CHECK(get_fields(in, item, k, to));
    else if (k->is_named)
      MILL_CHECK(get_text(in, item, MILL_MAX_NAME, to + k->field->offset));
    else
      return expected(in, item, k->wanted);
  }
  *(int *)(void *)((char *)in->config + k->offset2) = (int)n;
  return MILL_OK;
}

/* Read objects into a new sorted list of stars; an empty list selects all stars (NULL). */
static int read_objects(reader *in, const yaml_node_t *node)
{
  char text[MILL_STAR_NAME];
  MILL_AT_END(mill_star_list_free_at) mill_star_list *list = NULL;
  size_t n;
  MILL_CHECK(get_list(in, node, "a list of names", SIZE_MAX, &n));
  if (n > 0)
    MILL_CHECK(MILL_ALLOC(1, &list));
  for (size_t i = 0; i < n; i++) {
    MILL_CHECK(get_text(in, list_item(in, node, i), sizeof text, text));
    if (!text[0])
      MILL_CHECK(bad(in, list_item(in, node, i), "an empty text is no name; remove it"));
    MILL_CHECK(mill_star_list_add(list, in->key->name, text));
  }
  if (list)
    mill_star_list_sort(list);
  return MILL_GIVE(&list, &in->config->select.star); /* the caller frees the previous list */
}

static int read_fiberstatus(reader *in, const yaml_node_t *node)
{
  uint64_t mask = 0;
  size_t n;
  MILL_CHECK(get_list(in, node, "a list of bit numbers", MILL_MAX_MASK_BIT, &n));
  for (size_t i = 0; i < n; i++) {
    const yaml_node_t *item = list_item(in, node, i);
    int64_t bit;
    MILL_CHECK(get_integer(in, item, &bit));
    if (bit < 0 || bit >= MILL_MAX_MASK_BIT)
      return bad(in, item, "no bit %lld; give numbers from 0 to %d", (long long)bit,
                 MILL_MAX_MASK_BIT - 1);
    mask |= UINT64_C(1) << bit;
  }
  in->config->select.fiberstatus_allowed = mask;
  return MILL_OK;
}

static const struct {
  const char *key;
  int (*read)(reader *in, const yaml_node_t *node);
} other[] = {
    {"wave_mask", read_wave_mask},
    {"mask_ignore", read_mask_ignore},
    {"objects", read_objects},
    {"fiberstatus_allowed_bits", read_fiberstatus},
};

static int read_other(reader *in, const yaml_node_t *node)
{
  const mill_items *items = mill_config_items(in->key);
  if (items)
    return read_items(in, node, items);
  for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
    if (strcmp(other[i].key, in->key->name) == 0)
      return other[i].read(in, node);
  return bad(in, node, "this key cannot be read: please report it");
}

/* Read the value of the key in->key into its place in the configuration. */
static int read_key(reader *in, const yaml_node_t *node)
{
  const mill_option *k = in->key;
  void *at = (char *)in->config + k->offset;
  int i;
  int64_t n;
  switch (k->kind) {
  case MILL_OPTION_PATH:
    return get_text(in, node, k->size, at);
  case MILL_OPTION_REAL:
    if (!k->without || !is_plain(node) ||
        (!is_null(node) && strcasecmp(scalar(node), k->without) != 0))
      return get_real(in, node, at);
    *(double *)at = -INFINITY; /* stands for the word k->without */
    return MILL_OK;
  case MILL_OPTION_COUNT:
    MILL_CHECK(get_integer(in, node, &n));
    if ((double)n < k->min || (double)n > k->max)
      return bad(in, node, "%lld is out of range; give a whole number from %.0f to %.0f",
                 (long long)n, k->min, k->max);
    *(int *)at = (int)n;
    return MILL_OK;
  case MILL_OPTION_CHOICE:
    return get_word(in, node, k->words, at);
  case MILL_OPTION_WORD:
    MILL_CHECK(get_word(in, node, k->words, &i));
    memset(at, 0, k->size);
    memcpy(at, k->words[i], strlen(k->words[i]));
    return MILL_OK;
  case MILL_OPTION_NAMES:
    return get_names(in, node, k);
  default:
    return read_other(in, node);
  }
}

/* Refuse a key; suggest starmill's word for a key of rvspecfit, or the nearest name. */
static int unknown_key(const char *name)
{
  char text[64];
  for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
    if (strcmp(name, foreign[i].name) == 0)
      return MILL_ERROR(MILL_ERR_CONFIG, "%s: a key of rvspecfit; %s", name, foreign[i].advice);
  mill_near near = {0};
  for (int i = 0; i < MILL_N_KEY; i++)
    mill_text_nearer(name, mill_config_key[i].name, &near);
  if (near.name)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "%s: unknown key; did you mean %s? --print-config lists all keys",
                      mill_text_shown(name, text), near.name);
  return MILL_ERROR(MILL_ERR_CONFIG, "%s: unknown key; remove it (--print-config lists all keys)",
                    mill_text_shown(name, text));
}

/* Refuse YAML tags such as !!int, which demand conversions. */
static int check_tags(yaml_document_t *document, int *line)
{
  char text[64];
  for (yaml_node_t *node = document->nodes.start; node < document->nodes.top; node++) {
    const char *usual = node->type == YAML_SCALAR_NODE     ? YAML_DEFAULT_SCALAR_TAG
                        : node->type == YAML_SEQUENCE_NODE ? YAML_DEFAULT_SEQUENCE_TAG
                                                           : YAML_DEFAULT_MAPPING_TAG;
    if (strcmp((const char *)node->tag, usual) != 0) {
      *line = node_line(node);
      return MILL_ERROR(MILL_ERR_CONFIG, "the tag %s is not used here; remove it",
                        mill_text_shown((const char *)node->tag, text));
    }
  }
  return MILL_OK;
}

/* Line numbers of keys and of items of their lists; 0: absent. */
typedef struct places {
  int key[MILL_N_KEY], item[MILL_N_KEY][MAX_LINE_ITEM];
} places;

/* Read one key and its value; store their lines in *where, and the line of a failure in *line. */
static int read_pair(reader *in, const yaml_node_pair_t *pair, places *where, int *line)
{
  char text[80];
  const yaml_node_t *name = yaml_document_get_node(in->document, pair->key);
  const yaml_node_t *value = yaml_document_get_node(in->document, pair->value);
  *line = node_line(name);
  if (name->type != YAML_SCALAR_NODE)
    return MILL_ERROR(MILL_ERR_CONFIG, "expected a key, got %s", found(name, text));
  in->key = mill_config_key_of(scalar(name));
  if (!in->key)
    return unknown_key(scalar(name));
  const long i = in->key - mill_config_key;
  if (where->key[i])
    return MILL_ERROR(MILL_ERR_CONFIG, "%s: already set on line %d; remove one of them",
                      scalar(name), where->key[i]);
  where->key[i] = *line;
  if (value->type == YAML_SEQUENCE_NODE)
    for (int j = 0;
         j < MAX_LINE_ITEM && value->data.sequence.items.start + j < value->data.sequence.items.top;
         j++)
      where->item[i][j] = node_line(list_item(in, value, (size_t)j));
  const int code = read_key(in, value);
  /* libyaml puts an empty value on the line of the next key: name the key's own line */
  if (code != MILL_OK)
    *line = is_null(value) || !in->line ? where->key[i] : in->line;
  return code;
}

static int line_of_fault(const places *where, const mill_config_fault *fault)
{
  const long i = mill_config_key_of(fault->key) - mill_config_key;
  if (fault->item >= 0 && fault->item < MAX_LINE_ITEM && where->item[i][fault->item])
    return where->item[i][fault->item];
  return where->key[i] || !fault->other
             ? where->key[i]
             : where->key[mill_config_key_of(fault->other) - mill_config_key];
}

int mill_config_read_document(struct yaml_document_s *document, void *config, int *line)
{
  char text[80];
  reader in = {document, config, NULL, 0}; /* no key and no line yet */
  places where = {0};
  mill_config_fault fault = {0};
  const yaml_node_t *root = yaml_document_get_root_node(document);
  MILL_CHECK(check_tags(document, line));
  if (!is_null(root)) {
    *line = node_line(root);
    if (root->type != YAML_MAPPING_NODE)
      return MILL_ERROR(MILL_ERR_CONFIG, "expected lines of the form 'key: value', got %s",
                        found(root, text));
    for (yaml_node_pair_t *pair = root->data.mapping.pairs.start;
         pair < root->data.mapping.pairs.top; pair++)
      MILL_CHECK(read_pair(&in, pair, &where, line));
  }
  const int code = mill_config_check_where(config, &fault);
  if (code != MILL_OK)
    *line = line_of_fault(&where, &fault);
  return code;
}
