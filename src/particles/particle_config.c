/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/particles/particle_config.h"

#include <string.h>
#include <yaml.h>

#include "src/config/option.h"
#include "src/config/text.h"
#include "src/config/yaml_file.h"

static const char *const flag_words[] = {"false", "true", NULL};

static_assert(MILL_ABSORBING == 3 && MILL_GRIDDED == 3 && MILL_START_SAMPLES == 2 &&
                  MILL_HEUN == 1 && MILL_DENSITY_BINNED == 1 && MILL_WIDTH_GIVEN == 2,
              "order of the words");

/* ---- values ---- */

/* Read one value of the key described by row into *x: a word's index, or a number.  Return 0 if it
 * is invalid.  A number is 0 or has a magnitude from 1/MILL_PARTICLE_FAR to MILL_PARTICLE_FAR.  If
 * row->min is not 0, the number must be whole and from min to max. */
static int read_one(const mill_option *row, const char *text, double *x)
{
  if (row->words) {
    *x = mill_option_word(row->words, text);
    return *x >= 0.0;
  }
  return mill_text_to_real(text, x) && fabs(*x) <= MILL_PARTICLE_FAR &&
         (*x == 0.0 || fabs(*x) >= 1.0 / MILL_PARTICLE_FAR) &&
         (row->min == 0 || (*x >= row->min && *x <= row->max && *x == floor(*x)));
}

/* Read at most `most` values, separated by commas, into x [*n]. */
static int read_list(const mill_option *row, const char *text, int most, double *x, int *n)
{
  char part[64];
  const char *at = text;
  for (*n = 0; *n < most; at++) {
    const size_t length = strcspn(at, ",");
    snprintf(part, sizeof part, "%.*s", (int)length, at);
    if (length >= sizeof part || !read_one(row, part, &x[*n]))
      break;
    ++*n;
    at += length;
    if (!*at)
      return MILL_OK;
  }
  return MILL_ERROR(MILL_ERR_CONFIG, "%s takes %s, not '%.80s'", row->name, row->argument, text);
}

/* Read one value for all axes, or one per axis, into an array of doubles or integers in base. */
static int read_axes(const mill_option *row, const char *text, int n_dim, void *base)
{
  double x[MILL_PARTICLE_DIM];
  void *to = (char *)base + row->offset;
  int n;
  MILL_CHECK(read_list(row, text, MILL_PARTICLE_DIM, x, &n));
  if (n > 1 && n != n_dim)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "%s has %d values for %d dimensions: give one, or one for each", row->name, n,
                      n_dim);
  for (int a = 0; a < n_dim; a++)
    if (row->size == sizeof(int[MILL_PARTICLE_DIM])) /* the row's values are integers */
      ((int *)to)[a] = (int)x[n > 1 ? a : 0];
    else
      ((double *)to)[a] = x[n > 1 ? a : 0];
  return MILL_OK;
}

#define NUMBERS         "0 or a number of absolute value 1e-30 to 1e30, or one for each axis"
#define SETUP(member)   MILL_AT(mill_particle_config, setup.member)
#define CONFIG(member)  MILL_AT(mill_particle_config, member)
#define PROBLEM(member) MILL_AT(mill_particle_problem, member)
#define AXES            MILL_OPTION_OTHER, .argument = NUMBERS

static const mill_option keys[] = {
    {"dimensions", MILL_OPTION_COUNT, SETUP(n_dim), .min = 1, .max = MILL_PARTICLE_DIM,
     .help = "dimensions of the space"},
    {"particles", MILL_OPTION_COUNT, SETUP(n_particle), .min = 1, .max = MILL_PARTICLE_MAX_N,
     .help = "particles of each problem"},
    {"steps", MILL_OPTION_COUNT, SETUP(n_step), .min = 0, .max = 100000000,
     .help = "number of time steps"},
    {"step", MILL_OPTION_REAL, SETUP(step), .min = MILL_ABOVE_0, .max = DBL_MAX,
     .help = "length of a step"},
    {"start_time", MILL_OPTION_REAL, SETUP(start_time), .help = "time of the start"},
    {"scheme", MILL_OPTION_CHOICE, SETUP(scheme), .words = MILL_WORDS("euler", "heun"),
     .help = "euler: weak order 1; heun: weak order 2, at twice the cost"},
    {"seed", MILL_OPTION_SEED, SETUP(seed), .help = "same seed, same numbers"},
    {"boundary", MILL_OPTION_OTHER, SETUP(boundary),
     .words = MILL_WORDS("open", "reflecting", "periodic", "absorbing"),
     .argument = "open, reflecting, periodic or absorbing, or one of these for each axis",
     .help = "boundary condition of each axis"},
    {"low", AXES, SETUP(low), .help = "lower end of axes that are not open"},
    {"high", AXES, SETUP(high), .help = "upper end"},
    {"grid", MILL_OPTION_OTHER, SETUP(n_grid), .min = 1, .max = MILL_PARTICLE_MAX_GRID,
     .argument = "a number from 1 to 4096, or one for each axis",
     .help = "grid points of the density"},
    {"grid_low", AXES, SETUP(grid_low), .help = "first grid point"},
    {"grid_high", AXES, SETUP(grid_high), .help = "last grid point"},
    {"times", MILL_OPTION_OTHER, CONFIG(time),
     .argument = "up to 4096 times, ascending, each a whole number of steps after start_time",
     .help = "times at which the density is written; default: the end of the run"},
    {"density", MILL_OPTION_CHOICE, SETUP(form), .words = MILL_WORDS("exact", "binned"),
     .help = "exact: sum over all particles; binned: sum over nodes, with a bound on the error"},
    {"bandwidth", MILL_OPTION_CHOICE, SETUP(bandwidth),
     .words = MILL_WORDS("scott", "silverman", "given"),
     .help = "rule for the width of the kernel"},
    {"width", AXES, SETUP(width), .help = "kernel's standard deviation, if bandwidth is `given`"},
    {"along_axes", MILL_OPTION_CHOICE, SETUP(along_axes), .words = flag_words,
     .help = "use the variances of the particles only, without covariances"},
    {"nodes", MILL_OPTION_OTHER, SETUP(n_node), .min = 16, .max = 1 << 20,
     .argument = "a number from 16 to 1048576, or one for each axis",
     .help = "nodes of the binned density"},
    {"positions", MILL_OPTION_CHOICE, CONFIG(positions), .words = flag_words,
     .help = "write the final positions of the particles"},
    {"potential_file", MILL_OPTION_PATH, CONFIG(potential_file),
     .help = "HDF5 file for potential: grid"},
    {"samples_file", MILL_OPTION_PATH, CONFIG(samples_file),
     .help = "HDF5 file for start: samples"},
    {0}};

static const mill_option problem_keys[] = {
    {"diffusion", MILL_OPTION_REAL, PROBLEM(diffusion), .min = 0, .max = DBL_MAX,
     .help = "diffusion coefficient D"},
    {"potential", MILL_OPTION_CHOICE, PROBLEM(potential),
     .words = MILL_WORDS("free", "harmonic", "double-well", "grid"), .help = "potential U"},
    {"rate", AXES, PROBLEM(rate), .help = "for harmonic: U = rate (x - centre)^2 / 2"},
    {"centre", AXES, PROBLEM(centre), .help = "for harmonic and double-well"},
    {"barrier", AXES, PROBLEM(barrier),
     .help = "for double-well: U = barrier (((x - centre) / half)^2 - 1)^2"},
    {"half", AXES, PROBLEM(half), .help = "distance of a well from the centre"},
    {"start", MILL_OPTION_CHOICE, PROBLEM(start),
     .words = MILL_WORDS("normal", "uniform", "samples"), .help = "distribution of the start"},
    {"start_centre", AXES, PROBLEM(start_centre), .help = "for normal and uniform"},
    {"start_spread", AXES, PROBLEM(start_spread),
     .help = "standard deviation (normal) or half width (uniform); 0: all particles at one point"},
    {0}};

/* ---- the document ---- */

typedef struct reader {
  yaml_document_t *document;
  mill_particle_config *config;
  int *line;
} reader;

/* Return the value of a key of a mapping; NULL: the mapping lacks the key. */
static const yaml_node_t *value_of(const reader *in, const yaml_node_t *mapping, const char *key)
{
  const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
  for (; pair < mapping->data.mapping.pairs.top; pair++) {
    const yaml_node_t *name = yaml_document_get_node(in->document, pair->key);
    if (name->type == YAML_SCALAR_NODE && strcmp((const char *)name->data.scalar.value, key) == 0)
      return yaml_document_get_node(in->document, pair->value);
  }
  return NULL;
}

static const mill_option *find(const mill_option *rows, const char *name)
{
  for (; rows->name; rows++)
    if (strcmp(rows->name, name) == 0)
      return rows;
  return NULL;
}

/* Set *text to a scalar's text, or a list's texts joined by commas; free it by mill_free. */
static int text_of(const reader *in, const yaml_node_t *node, const char *key, char **text)
{
  int64_t n_room = 0, n = 0;
  const int is_list = node->type == YAML_SEQUENCE_NODE;
  const size_t n_item =
      is_list ? (size_t)(node->data.sequence.items.top - node->data.sequence.items.start) : 1;
  *text = NULL;
  for (size_t i = 0; i < n_item; i++) {
    const yaml_node_t *item =
        is_list ? yaml_document_get_node(in->document, node->data.sequence.items.start[i]) : node;
    if (item->type != YAML_SCALAR_NODE)
      return MILL_ERROR(MILL_ERR_CONFIG, "%s: give a value, or a list of values", key);
    const int64_t length = (int64_t)strlen((const char *)item->data.scalar.value);
    MILL_CHECK(MILL_GROW(text, &n_room, n + length + 2));
    memcpy(*text + n, item->data.scalar.value, (size_t)length);
    n += length;
    (*text)[n++] = ',';
  }
  if (n == 0)
    return MILL_ERROR(MILL_ERR_CONFIG, "%s: the list is empty; give a value", key);
  (*text)[n - 1] = '\0';
  return MILL_OK;
}

/* Read the value of the key described by row: a list of times, values of the axes, or one value. */
static int read_value(const reader *in, const mill_option *row, const yaml_node_t *node, void *base)
{
  int code = MILL_OK;
  MILL_OWNED char *text = NULL;
  *in->line = (int)node->start_mark.line + 1;
  MILL_CHECK(text_of(in, node, row->name, &text));
  const int is_times = row->size == sizeof in->config->time; /* no other value has this size */
  if (is_times)
    code = read_list(row, text, MILL_PARTICLE_MAX_RECORD, in->config->time, &in->config->n_time);
  else if (row->kind == MILL_OPTION_OTHER)
    code = read_axes(row, text, in->config->setup.n_dim, base);
  else
    code = mill_option_read(row, row->name, text, base);
  if (code == MILL_ERR_USAGE) /* mill_option_read names an option "--key": skip the dashes */
    return MILL_ERROR(MILL_ERR_CONFIG, "%s", mill_error_message() + 2);
  return code;
}

static int unknown_key(const char *key, int is_problem)
{
  mill_near near = {0};
  for (const mill_option *row = problem_keys; row->name; row++)
    mill_text_nearer(key, row->name, &near);
  for (const mill_option *row = keys; !is_problem && row->name; row++)
    mill_text_nearer(key, row->name, &near);
  return MILL_ERROR(MILL_ERR_CONFIG, "no key '%.60s'%s%s%s%s; see starmill help config particles",
                    key, is_problem ? " of a problem" : "", near.name ? "; did you mean " : "",
                    near.name ? near.name : "", near.name ? "?" : "");
}

/* Read a mapping.  is_problem 1: only a problem's keys are valid; 0: skip the key `problems`. */
static int read_mapping(const reader *in, const yaml_node_t *node, int is_problem,
                        mill_particle_problem *problem)
{
  const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
  for (; pair < node->data.mapping.pairs.top; pair++) {
    const yaml_node_t *name = yaml_document_get_node(in->document, pair->key);
    const yaml_node_t *value = yaml_document_get_node(in->document, pair->value);
    *in->line = (int)name->start_mark.line + 1;
    if (name->type != YAML_SCALAR_NODE)
      return MILL_ERROR(MILL_ERR_CONFIG, "expected the name of a key");
    const char *key = (const char *)name->data.scalar.value;
    if (value_of(in, node, key) != value) /* value_of finds the first of two */
      return MILL_ERROR(MILL_ERR_CONFIG, "%.60s appears twice; remove one", key);
    const mill_option *own = find(problem_keys, key), *shared = is_problem ? NULL : find(keys, key);
    if (!is_problem && strcmp(key, "problems") == 0)
      continue;
    if (own)
      MILL_CHECK(read_value(in, own, value, problem));
    else if (shared)
      MILL_CHECK(read_value(in, shared, value, in->config));
    else
      return unknown_key(key, is_problem);
  }
  return MILL_OK;
}

/* ---- from the file to setup and problems ---- */

/* Make the problems from the key `problems`: a number of equal problems, or a list of mappings. */
static int read_problems(const reader *in, const yaml_node_t *node)
{
  mill_particle_config *c = in->config;
  int64_t n = 1;
  const int is_list = node && node->type == YAML_SEQUENCE_NODE;
  const mill_option count = {"problems", MILL_OPTION_INTEGER, .min = 1,
                             .max = MILL_PARTICLE_MAX_PROBLEM};
  if (is_list)
    n = node->data.sequence.items.top - node->data.sequence.items.start;
  else if (node)
    MILL_CHECK(read_value(in, &count, node, &n));
  if (n < 1 || n > MILL_PARTICLE_MAX_PROBLEM)
    return MILL_ERROR(MILL_ERR_CONFIG, "%lld problems: give 1 to %d", (long long)n,
                      MILL_PARTICLE_MAX_PROBLEM);
  MILL_CHECK(MILL_ALLOC(n, &c->problem));
  c->n_problem = n;
  for (int64_t i = 0; i < n; i++) {
    c->problem[i] = c->common;
    c->problem[i].id = (uint64_t)i;
    if (is_list) {
      const yaml_node_t *item =
          yaml_document_get_node(in->document, node->data.sequence.items.start[i]);
      *in->line = (int)item->start_mark.line + 1;
      if (item->type != YAML_MAPPING_NODE)
        return MILL_ERROR(MILL_ERR_CONFIG, "problems: item %lld is not a mapping {key: value, ...}",
                          (long long)i + 1);
      MILL_CHECK(read_mapping(in, item, 1, &c->problem[i]));
    }
  }
  return MILL_OK;
}

/* Convert the times at which densities are wanted to numbers of steps. */
static int take_records(mill_particle_config *c)
{
  mill_particle_setup *s = &c->setup;
  s->n_record = c->n_time > 0 ? c->n_time : 1;
  c->record[0] = s->n_step; /* without times: the end */
  for (int i = 0; i < c->n_time; i++) {
    const double step = (c->time[i] - s->start_time) / s->step, whole = rint(step);
    if (fabs(step - whole) > fmin(1e-3, 1e-6 * (1 + whole)) || whole < 0 || whole > s->n_step)
      return MILL_ERROR(
          MILL_ERR_CONFIG,
          "times: %.12g is not at the end of a step of %g in the run from %g to %g: give times at "
          "ends of steps, or another step",
          c->time[i], s->step, s->start_time, s->start_time + s->n_step * s->step);
    c->record[i] = (int)whole;
  }
  return MILL_OK;
}

/* Read the keys on which other keys or defaults depend.  Set the defaults of the axes. */
static int read_axes_first(const reader *in, const yaml_node_t *root)
{
  static const int n_node[] = {1024, 256, 64};
  static const char *const first[] = {"dimensions", "boundary", "low", "high"};
  mill_particle_setup *s = &in->config->setup;
  for (int i = 0; i < 4; i++)
    if (value_of(in, root, first[i]))
      MILL_CHECK(read_value(in, find(keys, first[i]), value_of(in, root, first[i]), in->config));
  for (int a = 0; a < MILL_PARTICLE_DIM; a++) {
    const int is_box = mill_particle_has_images(s, a);
    s->n_grid[a] = a < s->n_dim ? 100 : 1;
    s->n_node[a] = a < s->n_dim ? n_node[a] : 1;
    s->grid_low[a] = is_box ? s->low[a] : -5;
    s->grid_high[a] = is_box ? s->high[a] : 5;
  }
  return MILL_OK;
}

/* Refuse keys that would have no effect. */
static int check_needs(const reader *in, const yaml_node_t *root)
{
  const mill_particle_setup *s = &in->config->setup;
  const int has_end = s->boundary[0] || s->boundary[1] || s->boundary[2]; /* MILL_OPEN is 0 */
  const struct {
    const char *key, *need;
    int is_met;
  } row[] = {{"low", "a boundary that is not open", has_end},
             {"high", "a boundary that is not open", has_end},
             {"width", "bandwidth: given", s->bandwidth == MILL_WIDTH_GIVEN},
             {"nodes", "density: binned", s->form == MILL_DENSITY_BINNED}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    const yaml_node_t *node = value_of(in, root, row[i].key);
    *in->line = node ? (int)node->start_mark.line + 1 : 0;
    if (node && !row[i].is_met)
      return MILL_ERROR(MILL_ERR_CONFIG, "%s needs %s: give it, or remove %s", row[i].key,
                        row[i].need, row[i].key);
  }
  return MILL_OK;
}

/* Read a document: axes first, then all keys, then the problems. */
static int take_document(yaml_document_t *document, void *base, int *line)
{
  mill_particle_config *c = base;
  const reader in = {document, c, line};
  const yaml_node_t *root = yaml_document_get_root_node(document);
  if (root->type != YAML_MAPPING_NODE)
    return MILL_ERROR(MILL_ERR_CONFIG, "expected lines 'key: value'");
  MILL_CHECK(read_axes_first(&in, root));
  MILL_CHECK(read_mapping(&in, root, 0, &c->common));
  MILL_CHECK(read_problems(&in, value_of(&in, root, "problems")));
  MILL_CHECK(check_needs(&in, root));
  *line = 0; /* faults found from now on have no line */
  MILL_CHECK(take_records(c));
  return mill_particle_check_setup(&c->setup);
}

int mill_particle_config_read(const char *path, mill_particle_config *c)
{
  int err = MILL_OK;
  memset(c, 0, sizeof *c);
  c->setup.n_dim = 1;
  c->setup.n_step = 100;
  c->setup.n_particle = 100000;
  c->setup.step = 0.01;
  c->setup.record = c->record;
  c->common.diffusion = 1;
  for (int a = 0; a < MILL_PARTICLE_DIM; a++)
    c->common.rate[a] = c->common.barrier[a] = c->common.half[a] = 1;
  MILL_TRY(mill_yaml_read(path, take_document, c));
  if (!c->problem) /* mill_yaml_read calls nothing for an empty file */
    MILL_FAIL(MILL_ERR_CONFIG, "%s is empty; see starmill help config particles", path);
done:
  if (err != MILL_OK)
    mill_particle_config_clear(c);
  return err;
}

void mill_particle_config_clear(mill_particle_config *c)
{
  mill_free(c->problem);
  c->problem = NULL;
  c->n_problem = 0;
}

static void print_rows(const mill_option *rows, FILE *out)
{
  char takes[256];
  for (; rows->name; rows++)
    fprintf(out, "| `%s` | %s | %s |\n", rows->name,
            rows->kind == MILL_OPTION_OTHER ? rows->argument : mill_option_takes(rows, takes),
            rows->help);
}

void mill_particle_config_print_keys(FILE *out)
{
  fputs("| key | value | meaning |\n|---|---|---|\n", out);
  print_rows(keys, out);
  print_rows(problem_keys, out);
}
