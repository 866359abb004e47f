/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/config/arm_setup.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "kernels/base/error.h"
#include "src/config/text.h"
#include "src/config/yaml_file.h"

enum { MIN_PIX = 8, MAX_PIX = 1 << 20 };

typedef struct reader {
  yaml_document_t *document;
  int *line; /* of a failure */
} reader;

/* An error at a node. */
#define BAD(in, node, ...)                                                                         \
  (*(in)->line = (int)(node)->start_mark.line + 1, MILL_ERROR(MILL_ERR_CONFIG, __VA_ARGS__))

#define NO_ARMS "expected a key arms with a list of 1 to %d arms"

static const yaml_node_t *item_of(const reader *in, const yaml_node_t *node, int i)
{
  return yaml_document_get_node(in->document, node->data.sequence.items.start[i]);
}

static int n_item(const yaml_node_t *node)
{
  return node->type == YAML_SEQUENCE_NODE
             ? (int)(node->data.sequence.items.top - node->data.sequence.items.start)
             : -1;
}

static const char *text_of(const yaml_node_t *node)
{
  return node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : "";
}

static int get_number(const reader *in, const yaml_node_t *node, const char *key, double *out)
{
  if (!mill_text_to_real(text_of(node), out) || !(*out > 0) || !isfinite(*out))
    return BAD(in, node, "%s: expected a number above 0, got '%.40s'", key, text_of(node));
  return MILL_OK;
}

/* A number, or [[wavelength, value], ...]. */
static int get_points(const reader *in, const yaml_node_t *node, const char *key,
                      mill_setup_arm *arm)
{
  const int n = n_item(node);
  arm->n_point = n < 0 ? 1 : n;
  if (n < 0)
    return get_number(in, node, key, &arm->value[0]);
  if (n < 1 || n > MILL_MAX_SETUP_POINT)
    return BAD(in, node, "%s: expected 1 to %d points, got %d", key, MILL_MAX_SETUP_POINT, n);
  for (int i = 0; i < n; i++) {
    const yaml_node_t *pair = item_of(in, node, i);
    if (n_item(pair) != 2)
      return BAD(in, pair, "%s: expected points [[wavelength, value], ...]", key);
    MILL_CHECK(get_number(in, item_of(in, pair, 0), key, &arm->wave_aa[i]));
    MILL_CHECK(get_number(in, item_of(in, pair, 1), key, &arm->value[i]));
    if (i > 0 && !(arm->wave_aa[i] > arm->wave_aa[i - 1]))
      return BAD(in, pair, "%s: the points' wavelengths must ascend", key);
  }
  return MILL_OK;
}

static int get_name(const reader *in, const yaml_node_t *node, mill_setup_arm *arm)
{
  const char *text = text_of(node);
  int good = *text && strlen(text) < sizeof arm->name;
  for (const char *c = text; *c; c++)
    good &= islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '_';
  if (!good)
    return BAD(in, node, "name: '%.40s': expected small letters, digits and _, at most %d of them",
               text, MILL_MAX_NAME - 1);
  snprintf(arm->name, sizeof arm->name, "%s", text);
  return MILL_OK;
}

static int get_truth(const reader *in, const yaml_node_t *node, const char *key, int *out)
{
  *out = strcasecmp(text_of(node), "true") == 0;
  if (!*out && strcasecmp(text_of(node), "false") != 0)
    return BAD(in, node, "%s: expected true or false, got '%.40s'", key, text_of(node));
  return MILL_OK;
}

static int get_field(const reader *in, const yaml_node_t *name, const yaml_node_t *value,
                     mill_setup_arm *arm)
{
  const char *key = text_of(name);
  if (strcmp(key, "name") == 0) {
    MILL_CHECK(get_name(in, value, arm));
  } else if (strcmp(key, "min") == 0) {
    MILL_CHECK(get_number(in, value, key, &arm->min_aa));
  } else if (strcmp(key, "max") == 0) {
    MILL_CHECK(get_number(in, value, key, &arm->max_aa));
  } else if (strcmp(key, "ln_step") == 0) {
    MILL_CHECK(get_number(in, value, key, &arm->ln_step));
  } else if (strcmp(key, "at_instrument") == 0) {
    MILL_CHECK(get_truth(in, value, key, &arm->at_instrument));
  } else if (strcmp(key, "sigma") == 0 || strcmp(key, "resolving_power") == 0) {
    if (arm->kind)
      return BAD(in, name, "%s: an arm has one sigma or one resolving_power", key);
    arm->kind = *key == 's' ? MILL_SETUP_SIGMA : MILL_SETUP_RESOLVING_POWER;
    MILL_CHECK(get_points(in, value, key, arm));
  } else {
    return BAD(in, name,
               "'%.40s' is unknown in an arm; an arm takes name, min, max, ln_step, sigma or "
               "resolving_power, and at_instrument",
               key);
  }
  return MILL_OK;
}

static int get_arm(const reader *in, const yaml_node_t *node, mill_setup_arm *arm)
{
  if (node->type != YAML_MAPPING_NODE)
    return BAD(in, node,
               "expected an arm {name: b, min: 3550, max: 5860, ln_step: 6e-5, sigma: 0.5}");
  for (yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top;
       pair++)
    MILL_CHECK(get_field(in, yaml_document_get_node(in->document, pair->key),
                         yaml_document_get_node(in->document, pair->value), arm));
  if (!arm->name[0] || !(arm->min_aa > 0) || !(arm->max_aa > 0) || !(arm->ln_step > 0))
    return BAD(in, node, "an arm needs name, min, max and ln_step");
  if (!(arm->min_aa >= 100 && arm->max_aa <= 1e6 && arm->min_aa < arm->max_aa))
    return BAD(in, node, "arm %s: %g to %g A: expected 100 <= min < max <= 1e6", arm->name,
               arm->min_aa, arm->max_aa);
  const double n_pix = log(arm->max_aa / arm->min_aa) / arm->ln_step;
  if (!(n_pix >= MIN_PIX && n_pix < MAX_PIX))
    return BAD(in, node, "arm %s: ln_step %g makes %.0f pixels, expected %d to %d", arm->name,
               arm->ln_step, n_pix, MIN_PIX, MAX_PIX);
  return MILL_OK;
}

static int take_arms(yaml_document_t *document, void *base, int *line)
{
  mill_arm_setup *out = base;
  const reader from = {document, line}, *in = &from;
  const yaml_node_t *root = yaml_document_get_root_node(in->document), *arms = NULL;
  if (root && root->type == YAML_MAPPING_NODE)
    for (yaml_node_pair_t *pair = root->data.mapping.pairs.start;
         pair < root->data.mapping.pairs.top; pair++) {
      const yaml_node_t *name = yaml_document_get_node(in->document, pair->key);
      if (strcmp(text_of(name), "arms") != 0 || arms)
        return BAD(in, name, "'%.40s': only the key arms is expected, once", text_of(name));
      arms = yaml_document_get_node(in->document, pair->value);
    }
  if (!arms || n_item(arms) < 1 || n_item(arms) > MILL_MAX_ARM)
    return MILL_ERROR(MILL_ERR_CONFIG, NO_ARMS, MILL_MAX_ARM);
  out->n_arm = n_item(arms);
  for (int a = 0; a < out->n_arm; a++) {
    const yaml_node_t *node = item_of(in, arms, a);
    MILL_CHECK(get_arm(in, node, &out->arm[a]));
    for (int b = 0; b < a; b++)
      if (strcmp(out->arm[a].name, out->arm[b].name) == 0)
        return BAD(in, node, "arm %s appears twice", out->arm[a].name);
  }
  return MILL_OK;
}

int mill_arm_setup_read(const char *path, mill_arm_setup *out)
{
  memset(out, 0, sizeof *out);
  MILL_CHECK(mill_yaml_read(path, take_arms, out));
  if (out->n_arm == 0) /* an empty file */
    return MILL_ERROR(MILL_ERR_CONFIG, "%s: " NO_ARMS, path, MILL_MAX_ARM);
  return MILL_OK;
}

int mill_setup_arm_n_pix(const mill_setup_arm *arm)
{
  return (int)ceil(log(arm->max_aa / arm->min_aa) / arm->ln_step - 1e-9) + 1;
}

double mill_setup_arm_sigma(const mill_setup_arm *arm, double wave_aa)
{
  const double *x = arm->wave_aa, *y = arm->value;
  double value = y[0];
  for (int i = 0; i < arm->n_point && arm->n_point > 1; i++) {
    if (wave_aa < x[i]) {
      value =
          i == 0 ? y[0] : y[i - 1] + (wave_aa - x[i - 1]) / (x[i] - x[i - 1]) * (y[i] - y[i - 1]);
      break;
    }
    value = y[i];
  }
  return arm->kind == MILL_SETUP_SIGMA ? value : wave_aa / (MILL_FWHM_PER_SIGMA * value);
}
