#include "src/config/config.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "kernels/base/error.h"
#include "src/pipeline/guess_table.h"
#include "src/system/regular_file.h"

/* The YAML is loaded by libyaml as a tree whose nodes carry their lines, and
 * one table of keys drives reading, checking and printing.  libcyaml's schemas
 * cannot say on which line a second key, a duplicate or a bad value stood. */

/* the order of the words below is the order of these enumerations */
static_assert(MILL_OPT_HYBRID == 0 && MILL_OPT_NELDER_MEAD == 1 && MILL_OPT_LM == 2, "order");
static_assert(MILL_LIKE_MARGINAL == 0 && MILL_LIKE_PROFILE == 1, "order");
static_assert(MILL_CONT_RBF == 0 && MILL_CONT_CHEBYSHEV == 1, "order");
static_assert(MILL_FLOAT32 == 0 && MILL_FLOAT64 == 1, "order");
static_assert(MILL_RES_AUTO == 0 && MILL_RES_MATRIX == 1 && MILL_RES_NONE == 2, "order");
static const char *const words_optimizer[] = {"hybrid", "nelder-mead", "levenberg-marquardt", NULL};
static const char *const words_likelihood[] = {"marginal", "profile", NULL};
static const char *const words_rbf[] = {"true", "false", NULL};
static const char *const words_precision[] = {"float32", "float64", NULL};
static_assert(MILL_ROT_SPLINE == 0 && MILL_ROT_LINEAR == 1, "order");
static const char *const words_rotation[] = {"spline", "linear", NULL};
static const char *const words_resolution[] = {"auto", "true", "false", NULL};
static const char *const words_flag[] = {"false", "true", NULL};
static_assert(MILL_EXPOSURES_COADD == 0 && MILL_EXPOSURES_SINGLE == 1 && MILL_EXPOSURES_JOINT == 2,
              "order");
static_assert(MILL_LSF_AUTO == 0 && MILL_LSF_MATRIX == 1 && MILL_LSF_SIGMA == 2 &&
                  MILL_LSF_RESOLVING_POWER == 3 && MILL_LSF_OFF == 4,
              "order");
static_assert(MILL_MEDIUM_AUTO == 0 && MILL_MEDIUM_VACUUM == 1 && MILL_MEDIUM_AIR == 2, "order");
static const char *const words_format[] = {"auto",  "desi",    "sdss", "lamost",
                                           "weave", "generic", NULL};
static const char *const words_exposures[] = {"coadd", "single", "joint", NULL};
static const char *const words_lsf[] = {"auto", "matrix", "sigma", "resolving_power", "off", NULL};
static const char *const words_medium[] = {"auto", "vacuum", "air", NULL};
static const char *const words_backend[] = {"auto", "cpu", "cuda", NULL};
static const char *const words_log[] = {"error", "warning", "info", "debug", NULL};

enum {
  MAX_LINE_ITEM = 64,            /* list items whose lines are remembered for messages */
  MAX_OBJTYPE = 8,               /* as mill_selection.objtype */
  MAX_MASK_BIT = 64,             /* of mill_selection.fiberstatus_allowed */
  MAX_FILE_BYTES = 16 * 1048576, /* a longer file is no configuration, even with many targetid */
  MAX_DEPTH = 16,                /* of lists and mappings within each other: 3 are needed */
  MAX_ANCHOR = 64,
};

#define MAX_VEL   299792.0 /* km/s: the whole number below the speed of light */
#define MAX_VSINI 1000.0   /* km/s: beyond the break-up of any star */
#define MAX_POWER 1e7      /* resolving power: beyond any spectrograph of stars */
/* of the initial guess: memory of a rank; products for a star, of which a core does about 2e10 in
 * a second */
#define MAX_GUESS_BYTES    4e9
#define MAX_GUESS_MULTIPLY 2e11

/* What reading knows of where it is. */
typedef struct reader {
  yaml_document_t *document;
  mill_config *config;
  int i_key; /* index into keys */
  int line;  /* 1-based, of the value being read; 0: none */
} reader;

enum kind {
  KEY_PATH,   /* char[size] */
  KEY_REAL,   /* double, min..max */
  KEY_COUNT,  /* int, min..max */
  KEY_CHOICE, /* int, index into words */
  KEY_WORD,   /* char[size], one of words */
  KEY_OTHER,  /* read and print */
};

/* Is a key part of a run's identity?  Keys that came later are only there when they are
 * not at their default, so that results of before are still continued. */
enum identity { ID_NO, ID_YES, ID_WHEN_SET, ID_ONLY /* not printed otherwise: an old name */ };

typedef struct key {
  const char *name;
  int kind;
  int identity; /* enum identity */
  size_t offset, size;
  double min, max;
  const char *const *words;
  int (*read)(reader *in, const yaml_node_t *node);
  void (*print)(const mill_config *config, FILE *out);
} key;

static int read_wave_mask(reader *in, const yaml_node_t *node);
static int read_mask_ignore(reader *in, const yaml_node_t *node);
static int read_fix_param(reader *in, const yaml_node_t *node);
static int read_priors(reader *in, const yaml_node_t *node);
static int read_minsn(reader *in, const yaml_node_t *node);
static int read_objtypes(reader *in, const yaml_node_t *node);
static int read_targetid(reader *in, const yaml_node_t *node);
static int read_fiberstatus(reader *in, const yaml_node_t *node);
static int read_arms(reader *in, const yaml_node_t *node);
static int read_joint(reader *in, const yaml_node_t *node);
static void print_wave_mask(const mill_config *config, FILE *out);
static void print_mask_ignore(const mill_config *config, FILE *out);
static void print_fix_param(const mill_config *config, FILE *out);
static void print_priors(const mill_config *config, FILE *out);
static void print_minsn(const mill_config *config, FILE *out);
static void print_objtypes(const mill_config *config, FILE *out);
static void print_targetid(const mill_config *config, FILE *out);
static void print_fiberstatus(const mill_config *config, FILE *out);
static void print_arms(const mill_config *config, FILE *out);
static void print_joint(const mill_config *config, FILE *out);

#define FIELD(member) offsetof(mill_config, member), sizeof(((mill_config *)0)->member)
#define PATH(name, identity, member)                                                               \
  {                                                                                                \
    name, KEY_PATH, identity, FIELD(member), 0, 0, NULL, NULL, NULL                                \
  }
#define REAL(name, identity, member, min, max)                                                     \
  {                                                                                                \
    name, KEY_REAL, identity, FIELD(member), min, max, NULL, NULL, NULL                            \
  }
#define COUNT(name, identity, member, min, max)                                                    \
  {                                                                                                \
    name, KEY_COUNT, identity, FIELD(member), min, max, NULL, NULL, NULL                           \
  }
#define CHOICE(name, identity, member, words)                                                      \
  {                                                                                                \
    name, KEY_CHOICE, identity, FIELD(member), 0, 0, words, NULL, NULL                             \
  }
#define WORD(name, identity, member, words)                                                        \
  {                                                                                                \
    name, KEY_WORD, identity, FIELD(member), 0, 0, words, NULL, NULL                               \
  }
#define OTHER(name, suffix)                                                                        \
  {                                                                                                \
    name, KEY_OTHER, ID_YES, 0, 0, 0, 0, NULL, read_##suffix, print_##suffix                       \
  }

/* In the order in which they are printed. */
static const key keys[] = {
    PATH("template_lib", ID_NO, template_lib), /* the identity holds the library's hash instead */
    PATH("start", ID_WHEN_SET, start),         /* there by the hash of what is in it */
    WORD("format", ID_WHEN_SET, format, words_format),
    CHOICE("exposures", ID_NO, exposures, words_exposures), /* joint_exposures stands for it */
    CHOICE("lsf", ID_WHEN_SET, lsf, words_lsf),
    REAL("resolving_power", ID_WHEN_SET, resolving_power, 0, MAX_POWER),
    CHOICE("medium", ID_WHEN_SET, medium, words_medium),
    OTHER("arms", arms),
    REAL("min_vel", ID_YES, fit.min_vel_km_s, -MAX_VEL, MAX_VEL),
    REAL("max_vel", ID_YES, fit.max_vel_km_s, -MAX_VEL, MAX_VEL),
    REAL("min_vsini", ID_YES, fit.min_vsini_km_s, 0, MAX_VSINI),
    REAL("max_vsini", ID_YES, fit.max_vsini_km_s, 0, MAX_VSINI),
    COUNT("npoly", ID_YES, fit.n_cont, 1, MILL_MAX_CONT),
    CHOICE("rbf_continuum", ID_YES, fit.continuum, words_rbf),
    CHOICE("likelihood", ID_YES, fit.likelihood, words_likelihood),
    CHOICE("resolution_matrix", ID_YES, fit.resolution, words_resolution),
    CHOICE("precision", ID_YES, fit.precision, words_precision),
    CHOICE("rotation_kernel", ID_YES, fit.rotation, words_rotation),
    CHOICE("optimizer", ID_YES, fit.optimizer, words_optimizer),
    REAL("guess_vel_step", ID_YES, fit.guess_vel_step_km_s, 1, 1000),
    REAL("second_start_sn", ID_YES, fit.second_start_sn, 0, 1e6),
    COUNT("n_simplex_round", ID_YES, fit.n_simplex_round, 0, 100000),
    COUNT("max_eval", ID_YES, fit.max_eval, 1, 10000000),
    COUNT("edge_pix", ID_YES, fit.edge_pix, 0, 1000),
    REAL("sigma_floor", ID_YES, fit.sigma_floor, 0, 10),
    REAL("bad_sigma_factor", ID_YES, fit.bad_sigma_factor, 1, 1e6),
    OTHER("wave_mask", wave_mask),
    OTHER("mask_ignore", mask_ignore),
    OTHER("fix_param", fix_param),
    OTHER("priors", priors),
    OTHER("minsn", minsn),
    OTHER("objtypes", objtypes),
    OTHER("targetid", targetid),
    OTHER("fiberstatus_allowed_bits", fiberstatus),
    CHOICE("redrock", ID_YES, select.redrock, words_flag),
    PATH("redrock_file", ID_YES, select.redrock_file),
    REAL("redrock_max_vel", ID_YES, select.redrock_max_vel_km_s, 0, MAX_VEL),
    CHOICE("join_by_name", ID_WHEN_SET, join_by_name, words_flag),
    {"joint_exposures", KEY_OTHER, ID_ONLY, 0, 0, 0, 0, NULL, read_joint, print_joint},
    COUNT("threads", ID_NO, n_thread, 0, 4096),
    COUNT("readers", ID_NO, n_reader, 0, MILL_MAX_READER),
    COUNT("slots", ID_NO, n_slot, 0, 1000000),
    REAL("write_interval", ID_NO, write_interval_s, 0.1, 86400),
    REAL("gzip_limit_mib", ID_NO, gzip_limit_mib, 0, 1e9),
    PATH("scratch", ID_NO, scratch),
    WORD("backend", ID_NO, backend, words_backend),
    WORD("log_level", ID_NO, log_level, words_log),
};
enum { N_KEY = sizeof keys / sizeof keys[0] };

/* Keys of rvspecfit that a user may bring along, and what stands for them here. */
static const struct {
  const char *name, *advice;
} foreign[] = {
    {"vel_step0", "the initial velocity grid is set by guess_vel_step"},
    {"min_vel_step", "the velocity grid of the errors refines itself; remove the line"},
    {"second_minimizer", "the optimizer is chosen by the key optimizer"},
    {"zbest_select", "it is called redrock here"},
    {"zbest_include", "redrock's columns are always kept; remove the line"},
    {"fitarm", "it is called arms here"},
    {"nthreads", "it is called threads here"},
    {"fixParam", "it is called fix_param here"},
    {"lsf_sigma0_angstrom", "the library knows its own resolution; remove the line"},
    {"ccf_continuum_normalize", "the initial guess needs no such choice; remove the line"},
};

/* ---- values and texts ---- */

static void *member(mill_config *config, const key *k)
{
  return (char *)config + k->offset;
}

static const void *member_const(const mill_config *config, const key *k)
{
  return (const char *)config + k->offset;
}

/* The shortest decimal that reads back to the same double. */
static const char *real_text(double x, char out[32])
{
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(out, 32, "%.*g", digits, x);
    if (strtod(out, NULL) == x)
      break;
  }
  return out;
}

/* Text of a file for a one-line message: bounded and without control characters. */
static const char *shown(const char *text, char out[64])
{
  size_t n = 0;
  for (; text[n] && n < 60; n++)
    out[n] = (unsigned char)text[n] < 0x20 || text[n] == 0x7f ? '?' : text[n];
  if (text[n])
    memcpy(out + n, "...", 4);
  else
    out[n] = '\0';
  return out;
}

/* "a, b or c" */
static const char *words_text(const char *const *words, char out[128])
{
  size_t n = 0;
  out[0] = '\0';
  for (int i = 0; words[i] && n < 128; i++)
    n += (size_t)snprintf(out + n, 128 - n, "%s%s",
                          i == 0         ? ""
                          : words[i + 1] ? ", "
                                         : " or ",
                          words[i]);
  return out;
}

/* Next code point of UTF-8 text and its bytes; 0 bytes when it is none. */
static unsigned utf8_next(const unsigned char *s, int *n_byte)
{
  static const unsigned smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
  const int n = s[0] < 0x80       ? 1
                : s[0] >> 5 == 6  ? 2
                : s[0] >> 4 == 14 ? 3
                : s[0] >> 3 == 30 ? 4
                                  : 0;
  unsigned code = n == 1 ? s[0] : n ? s[0] & (0x7fu >> n) : 0;
  *n_byte = n;
  for (int i = 1; i < n; i++) {
    if (s[i] >> 6 != 2) {
      *n_byte = 0;
      return 0;
    }
    code = code << 6 | (s[i] & 0x3f);
  }
  if (n > 1 && (code < smallest[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)))
    *n_byte = 0;
  return code;
}

/* Can the text stand in a YAML file and in one line of a message? */
static int text_is_printable(const char *text)
{
  for (const unsigned char *s = (const unsigned char *)text; *s;) {
    int n_byte;
    const unsigned code = utf8_next(s, &n_byte);
    if (!n_byte || code < 0x20 || code == 0x7f)
      return 0;
    s += n_byte;
  }
  return 1;
}

/* Double-quoted YAML; what YAML would fold or refuse is escaped. */
static void print_text(const char *text, FILE *out)
{
  fputc('"', out);
  for (const unsigned char *s = (const unsigned char *)text; *s;) {
    int n_byte;
    const unsigned code = utf8_next(s, &n_byte);
    if (code == '"' || code == '\\')
      fprintf(out, "\\%c", (int)code);
    else if (!n_byte || code < 0x20 || code == 0x7f)
      fprintf(out, "\\x%02x", s[0]);
    else if ((code > 0x7f && code < 0xa1) || code == 0x2028 || code == 0x2029 || code == 0xfeff ||
             code == 0xfffe || code == 0xffff)
      fprintf(out, "\\u%04x", code);
    else
      fwrite(s, 1, (size_t)n_byte, out);
    s += n_byte ? n_byte : 1;
  }
  fputc('"', out);
}

/* ---- defaults and ownership ---- */

void mill_config_default(mill_config *config)
{
  memset(config, 0, sizeof *config); /* padding and tails of names too: copies compare equal */
  mill_fit_settings *fit = &config->fit;
  fit->optimizer = MILL_OPT_HYBRID;
  fit->likelihood = MILL_LIKE_MARGINAL;
  fit->continuum = MILL_CONT_RBF;
  fit->n_cont = 10;
  fit->precision = MILL_FLOAT32;
  fit->resolution = MILL_RES_AUTO;
  fit->rotation = MILL_ROT_SPLINE;
  fit->min_vel_km_s = -1000.0;
  fit->max_vel_km_s = 1000.0;
  fit->min_vsini_km_s = 0.0;
  fit->max_vsini_km_s = 500.0;
  fit->guess_vel_step_km_s = 60.0;
  fit->second_start_sn = 6.0;
  fit->n_simplex_round = 40;
  fit->min_sn = -INFINITY;
  fit->max_eval = 4000;
  fit->edge_pix = 5;
  fit->sigma_floor = 0.3;
  fit->bad_sigma_factor = 1000.0;
  config->wave_mask_auto = 1;
  fit->n_wave_mask = 1; /* the dichroic of DESI */
  fit->wave_mask[0].min_aa = 4300.0;
  fit->wave_mask[0].max_aa = 4450.0;
  config->select.min_sn = -INFINITY;
  config->select.redrock_max_vel_km_s = 1500.0;
  config->select.fiberstatus_allowed = UINT64_C(1) << 3 | UINT64_C(1) << 20;
  strcpy(config->format, "auto");
  config->write_interval_s = 5.0;
  config->gzip_limit_mib = 4096.0;
  strcpy(config->backend, "auto");
  strcpy(config->log_level, "info");
}

void mill_config_clear(mill_config *config)
{
  if (!config)
    return;
  mill_free(config->select.target_id);
  config->select.target_id = NULL;
  config->select.n_target_id = 0;
}

/* ---- checks ---- */

/* The key that a check found wrong, the key it clashes with, the item of a list. */
typedef struct fault {
  const char *key, *other;
  int item; /* 0-based; -1: the whole value */
} fault;

static int wrong(fault *where, const char *key_name, const char *other, int item,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));

static int wrong(fault *where, const char *key_name, const char *other, int item,
                 const char *format, ...)
{
  char text[512], place[32] = "";
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (item >= 0)
    snprintf(place, sizeof place, "item %d: ", item + 1);
  where->key = key_name;
  where->other = other;
  where->item = item;
  return mill_error_set(MILL_ERR_CONFIG, __FILE__, __LINE__, "%s: %s%s", key_name, place, text);
}

static int check_key(const mill_config *config, const key *k, fault *where)
{
  const void *at = member_const(config, k);
  char min[32], max[32], value[32], text[64], list[128];
  switch (k->kind) {
  case KEY_REAL: {
    double x;
    memcpy(&x, at, sizeof x);
    if (!(x >= k->min && x <= k->max))
      return wrong(where, k->name, NULL, -1, "%s is out of range; give a number from %s to %s",
                   real_text(x, value), real_text(k->min, min), real_text(k->max, max));
    break;
  }
  case KEY_COUNT: {
    int n;
    memcpy(&n, at, sizeof n);
    if (n < k->min || n > k->max)
      return wrong(where, k->name, NULL, -1,
                   "%d is out of range; give a whole number from %.0f to %.0f", n, k->min, k->max);
    break;
  }
  case KEY_CHOICE: {
    int i, n = 0;
    memcpy(&i, at, sizeof i);
    while (k->words[n])
      n++;
    if (i < 0 || i >= n)
      return wrong(where, k->name, NULL, -1, "no choice number %d; give %s", i,
                   words_text(k->words, list));
    break;
  }
  case KEY_WORD: {
    int i = 0;
    while (k->words[i] && strcmp(k->words[i], (const char *)at) != 0)
      i++;
    if (!k->words[i])
      return wrong(where, k->name, NULL, -1, "'%s' is unknown; give %s",
                   shown((const char *)at, text), words_text(k->words, list));
    break;
  }
  case KEY_PATH:
    if (!text_is_printable((const char *)at))
      return wrong(where, k->name, NULL, -1,
                   "'%s' has control characters or is not UTF-8; rename the file or folder",
                   shown((const char *)at, text));
    break;
  default:
    break;
  }
  return MILL_OK;
}

static int check_names(const char *key_name, const mill_named_value *list, int n, int is_prior,
                       fault *where)
{
  char text[64];
  for (int i = 0; i < n; i++) {
    if (!list[i].name[0] || !text_is_printable(list[i].name))
      return wrong(where, key_name, NULL, i, "'%s' is no parameter name",
                   shown(list[i].name, text));
    if (!isfinite(list[i].value))
      return wrong(where, key_name, NULL, i, "the %s of %s is not finite; give a number",
                   is_prior ? "mean" : "value", list[i].name);
    if (is_prior && !(list[i].sigma > 0.0 && isfinite(list[i].sigma)))
      return wrong(where, key_name, NULL, i, "the sigma of %s must be positive and finite",
                   list[i].name);
    for (int j = 0; j < i; j++)
      if (strcmp(list[i].name, list[j].name) == 0)
        return wrong(where, key_name, NULL, i, "%s is there twice; remove one", list[i].name);
  }
  return MILL_OK;
}

static int check_words(const char *key_name, const char *list, size_t size, int n, fault *where)
{
  char text[64];
  for (int i = 0; i < n; i++) {
    const char *word = list + (size_t)i * size;
    if (!word[0] || !text_is_printable(word))
      return wrong(where, key_name, NULL, i, "'%s' is no name", shown(word, text));
    for (int j = 0; j < i; j++)
      if (strcmp(word, list + (size_t)j * size) == 0)
        return wrong(where, key_name, NULL, i, "%s is there twice; remove one", word);
  }
  return MILL_OK;
}

static int check_arms(const mill_config *config, fault *where)
{
  char a[32], b[32], text[64];
  int err = MILL_OK;
  MILL_TRY(check_words("arms", config->arm[0].arm, sizeof config->arm[0], config->n_arm, where));
  for (int i = 0; i < config->n_arm; i++) {
    const mill_arm_choice *choice = &config->arm[i];
    if (!isfinite(choice->min_aa) || choice->min_aa < 0.0 || !(choice->max_aa > choice->min_aa))
      return wrong(where, "arms", NULL, i,
                   "min %s and max %s of %s are no range; give 0 <= min < max in Angstrom",
                   real_text(choice->min_aa, a), real_text(choice->max_aa, b), choice->arm);
    if (!text_is_printable(choice->channel))
      return wrong(where, "arms", NULL, i, "'%s' is no name of a channel",
                   shown(choice->channel, text));
    if (!(choice->resolving_power >= 0.0 && choice->resolving_power <= MAX_POWER))
      return wrong(where, "arms", NULL, i,
                   "the resolving_power of %s, %s, is out of range; give a number from 0 to %s",
                   choice->arm, real_text(choice->resolving_power, a), real_text(MAX_POWER, b));
  }
done:
  return err;
}

/* resolution_matrix is the older key for two of the choices of lsf. */
static int check_lsf(const mill_config *config, fault *where)
{
  const int with = config->fit.resolution == MILL_RES_MATRIX;
  const int without = config->fit.resolution == MILL_RES_NONE;
  if ((with && config->lsf != MILL_LSF_AUTO && config->lsf != MILL_LSF_MATRIX) ||
      (without && config->lsf == MILL_LSF_MATRIX))
    return wrong(where, "lsf", "resolution_matrix", -1,
                 "%s contradicts resolution_matrix: %s; leave one of them out",
                 words_lsf[config->lsf], words_resolution[config->fit.resolution]);
  return MILL_OK;
}

static int check_all(const mill_config *config, fault *where)
{
  const mill_fit_settings *fit = &config->fit;
  char a[32], b[32];
  int err = MILL_OK;
  for (int i = 0; i < N_KEY; i++)
    MILL_TRY(check_key(config, &keys[i], where));
  if (fit->min_vel_km_s >= fit->max_vel_km_s)
    return wrong(where, "min_vel", "max_vel", -1, "%s is not below max_vel, %s; set both",
                 real_text(fit->min_vel_km_s, a), real_text(fit->max_vel_km_s, b));
  if (fit->min_vsini_km_s >= fit->max_vsini_km_s)
    return wrong(where, "min_vsini", "max_vsini", -1,
                 "%s is not below max_vsini, %s; set both, or fix vsini by fix_param",
                 real_text(fit->min_vsini_km_s, a), real_text(fit->max_vsini_km_s, b));
  if (fit->guess_vel_step_km_s > fit->max_vel_km_s - fit->min_vel_km_s)
    return wrong(where, "guess_vel_step", "max_vel", -1,
                 "%s is more than max_vel - min_vel, %s; give a smaller step",
                 real_text(fit->guess_vel_step_km_s, a),
                 real_text(fit->max_vel_km_s - fit->min_vel_km_s, b));
  for (int i = 0; i < fit->n_wave_mask; i++) {
    const mill_wave_range *range = &fit->wave_mask[i];
    if (!isfinite(range->min_aa) || !isfinite(range->max_aa) || range->min_aa < 0.0 ||
        range->min_aa >= range->max_aa)
      return wrong(where, "wave_mask", NULL, i,
                   "[%s, %s] is no range; give [min, max] in Angstrom, 0 <= min < max",
                   real_text(range->min_aa, a), real_text(range->max_aa, b));
    if (i > 0 && range->min_aa < range[-1].max_aa)
      return wrong(where, "wave_mask", NULL, i,
                   "starts at %s, before the range above it ends, at %s; give ranges in ascending "
                   "order and join those that overlap",
                   real_text(range->min_aa, a), real_text(range[-1].max_aa, b));
  }
  if (!(config->select.min_sn < INFINITY))
    return wrong(where, "minsn", NULL, -1, "%s is not finite; give a number or none",
                 real_text(config->select.min_sn, a));
  MILL_TRY(check_names("fix_param", config->fixed, config->n_fixed, 0, where));
  MILL_TRY(check_names("priors", config->prior, config->n_prior, 1, where));
  for (int i = 0; i < config->n_prior; i++)
    for (int j = 0; j < config->n_fixed; j++)
      if (strcmp(config->prior[i].name, config->fixed[j].name) == 0)
        return wrong(where, "priors", NULL, i,
                     "%s has a prior and a fixed value; remove it from priors or from fix_param",
                     config->prior[i].name);
  MILL_TRY(check_words("objtypes", config->select.objtype[0], sizeof config->select.objtype[0],
                       config->select.n_objtype, where));
  MILL_TRY(check_arms(config, where));
  MILL_TRY(check_lsf(config, where));
done:
  return err;
}

int mill_config_check(const mill_config *config)
{
  fault where;
  return check_all(config, &where);
}

/* ---- reading ---- */

static int node_line(const yaml_node_t *node)
{
  return (int)node->start_mark.line + 1;
}

/* "key: text", at the line of the node (NULL: the line so far). */
static int bad(reader *in, const yaml_node_t *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int bad(reader *in, const yaml_node_t *node, const char *format, ...)
{
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (node)
    in->line = node_line(node);
  return mill_error_set(MILL_ERR_CONFIG, __FILE__, __LINE__, "%s: %s", keys[in->i_key].name, text);
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
    snprintf(out, 80, is_plain(node) ? "'%s'" : "the quoted text '%s'", shown(scalar(node), text));
  return out;
}

static int expected(reader *in, const yaml_node_t *node, const char *what)
{
  char text[80];
  return bad(in, node, "%s expected, %s found", what, found(node, text));
}

static int get_real(reader *in, const yaml_node_t *node, double *out)
{
  if (!is_plain(node) || is_null(node))
    return expected(in, node, "a number");
  const char *text = scalar(node);
  const char *bare = text + (*text == '-' || *text == '+');
  bare += *bare == '.';
  if (strcasecmp(bare, "inf") == 0 || strcasecmp(bare, "infinity") == 0 ||
      strcasecmp(bare, "nan") == 0)
    return bad(in, node, "'%s' is not finite; give a number", text);
  char *end;
  const double x = strtod(text, &end);
  /* strtod also knows hexadecimal, which no one means here */
  if (*end || strspn(text, "0123456789+-.eE") != strlen(text))
    return expected(in, node, "a number");
  if (!isfinite(x))
    return bad(in, node, "%.60s is too large for a number", text);
  *out = x;
  return MILL_OK;
}

/* Decimal or 0x; a leading zero is octal to some readers of YAML, so it is refused. */
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

/* Text of at most size - 1 bytes. */
static int get_text(reader *in, const yaml_node_t *node, size_t size, char *out)
{
  char text[64];
  if (node->type != YAML_SCALAR_NODE || is_null(node))
    return expected(in, node, "a text");
  if (strlen(scalar(node)) != node->data.scalar.length || !text_is_printable(scalar(node)))
    return bad(in, node, "'%s' has control characters; remove them", shown(scalar(node), text));
  if (node->data.scalar.length >= size)
    return bad(in, node, "'%s' is longer than %zu bytes; give a shorter one",
               shown(scalar(node), text), size - 1);
  memset(out, 0, size);
  memcpy(out, scalar(node), node->data.scalar.length);
  return MILL_OK;
}

static int get_word(reader *in, const yaml_node_t *node, const char *const *words, int *out)
{
  static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
  char list[128], what[160];
  snprintf(what, sizeof what, "%s", words_text(words, list));
  if (node->type != YAML_SCALAR_NODE || is_null(node))
    return expected(in, node, what);
  const char *text = scalar(node);
  for (int i = 0; words[i]; i++) /* first, since off is a word of its own somewhere */
    if (strcmp(text, words[i]) == 0) {
      *out = i;
      return MILL_OK;
    }
  if (is_plain(node))
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
      if (strcasecmp(text, yes[i]) == 0)
        text = "true";
      else if (strcasecmp(text, no[i]) == 0)
        text = "false";
    }
  for (int i = 0; words[i]; i++)
    if (strcmp(text, words[i]) == 0) {
      *out = i;
      return MILL_OK;
    }
  return expected(in, node, what);
}

/* Items of a list; a lone scalar counts as a list of one. */
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

static int read_key(reader *in, const yaml_node_t *node)
{
  const key *k = &keys[in->i_key];
  void *at = member(in->config, k);
  int err = MILL_OK, i;
  switch (k->kind) {
  case KEY_PATH:
    MILL_TRY(get_text(in, node, k->size, (char *)at));
    break;
  case KEY_REAL: {
    double x;
    MILL_TRY(get_real(in, node, &x));
    memcpy(at, &x, sizeof x);
    break;
  }
  case KEY_COUNT: {
    int64_t n;
    MILL_TRY(get_integer(in, node, &n));
    if (n < k->min || n > k->max)
      return bad(in, node, "%lld is out of range; give a whole number from %.0f to %.0f",
                 (long long)n, k->min, k->max);
    i = (int)n;
    memcpy(at, &i, sizeof i);
    break;
  }
  case KEY_CHOICE:
    MILL_TRY(get_word(in, node, k->words, &i));
    memcpy(at, &i, sizeof i);
    break;
  case KEY_WORD:
    MILL_TRY(get_word(in, node, k->words, &i));
    memset(at, 0, k->size);
    memcpy(at, k->words[i], strlen(k->words[i]));
    break;
  default:
    MILL_TRY(k->read(in, node));
  }
done:
  return err;
}

static int read_wave_mask(reader *in, const yaml_node_t *node)
{
  static const char what[] = "a list of ranges like [[4300, 4450]]";
  mill_fit_settings *fit = &in->config->fit;
  size_t n;
  int err = MILL_OK;
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
  MILL_TRY(get_list(in, node, what, MILL_MAX_WAVE_MASK, &n));
  memset(fit->wave_mask, 0, sizeof fit->wave_mask);
  for (size_t i = 0; i < n; i++) {
    const yaml_node_t *item = list_item(in, node, i);
    size_t n_end = 0;
    if (item->type == YAML_SEQUENCE_NODE)
      MILL_TRY(get_list(in, item, what, SIZE_MAX, &n_end));
    if (n_end != 2)
      return bad(in, item, "item %zu is no [min, max]; give %s", i + 1, what);
    MILL_TRY(get_real(in, list_item(in, item, 0), &fit->wave_mask[i].min_aa));
    MILL_TRY(get_real(in, list_item(in, item, 1), &fit->wave_mask[i].max_aa));
  }
  fit->n_wave_mask = (int)n;
  in->config->wave_mask_auto = 0;
done:
  return err;
}

static int read_mask_ignore(reader *in, const yaml_node_t *node)
{
  int64_t bits;
  int err = MILL_OK;
  MILL_TRY(get_integer(in, node, &bits));
  if (bits < 0 || bits > UINT32_MAX)
    return bad(in, node, "%lld is out of range; give the bits as a number from 0 to 0xffffffff",
               (long long)bits);
  in->config->fit.mask_ignore = (uint32_t)bits;
done:
  return err;
}

/* One {param: NAME, FIELD: NUMBER, ...}; field NULL-terminated, value in the same order. */
static int read_named_item(reader *in, const yaml_node_t *item, const char *const *field,
                           char *name, double **value)
{
  char text[80], wanted[80];
  int seen[3] = {0}, err = MILL_OK, n_field = 0;
  while (field[n_field])
    n_field++;
  snprintf(wanted, sizeof wanted,
           n_field == 2 ? "{%s: NAME, %s: NUMBER}" : "{%s: NAME, %s: NUMBER, %s: NUMBER}", field[0],
           field[1], n_field == 2 ? "" : field[2]);
  if (item->type != YAML_MAPPING_NODE)
    return expected(in, item, wanted);
  for (yaml_node_pair_t *pair = item->data.mapping.pairs.start; pair < item->data.mapping.pairs.top;
       pair++) {
    const yaml_node_t *field_node = yaml_document_get_node(in->document, pair->key);
    const yaml_node_t *value_node = yaml_document_get_node(in->document, pair->value);
    int i = 0;
    while (i < n_field &&
           (field_node->type != YAML_SCALAR_NODE || strcmp(scalar(field_node), field[i]) != 0))
      i++;
    if (i == n_field)
      return bad(in, field_node, "%s is unknown in an item; give %s", found(field_node, text),
                 wanted);
    if (seen[i]++)
      return bad(in, field_node, "%s is there twice in one item; remove one", field[i]);
    if (i == 0)
      MILL_TRY(get_text(in, value_node, MILL_MAX_NAME, name));
    else
      MILL_TRY(get_real(in, value_node, value[i - 1]));
  }
  for (int i = 0; i < n_field; i++)
    if (!seen[i])
      return bad(in, item, "an item lacks %s; give %s", field[i], wanted);
done:
  return err;
}

static int read_named(reader *in, const yaml_node_t *node, const char *const *field,
                      mill_named_value *list, int *n_list)
{
  size_t n;
  int err = MILL_OK;
  if (node->type != YAML_SEQUENCE_NODE)
    return expected(in, node, "a list of items, one for each parameter,");
  MILL_TRY(get_list(in, node, "a list", MILL_MAX_PAR, &n));
  memset(list, 0, MILL_MAX_PAR * sizeof *list);
  for (size_t i = 0; i < n; i++) {
    double *value[2] = {&list[i].value, &list[i].sigma};
    MILL_TRY(read_named_item(in, list_item(in, node, i), field, list[i].name, value));
  }
  *n_list = (int)n;
done:
  return err;
}

static int read_fix_param(reader *in, const yaml_node_t *node)
{
  static const char *const field[] = {"param", "value", NULL};
  return read_named(in, node, field, in->config->fixed, &in->config->n_fixed);
}

static int read_priors(reader *in, const yaml_node_t *node)
{
  static const char *const field[] = {"param", "mean", "sigma", NULL};
  return read_named(in, node, field, in->config->prior, &in->config->n_prior);
}

static int read_minsn(reader *in, const yaml_node_t *node)
{
  if (is_plain(node) && (is_null(node) || strcasecmp(scalar(node), "none") == 0)) {
    in->config->select.min_sn = -INFINITY;
    return MILL_OK;
  }
  return get_real(in, node, &in->config->select.min_sn);
}

static int read_words(reader *in, const yaml_node_t *node, char *list, size_t size, size_t max,
                      int *n_list)
{
  size_t n;
  int err = MILL_OK;
  MILL_TRY(get_list(in, node, "a list of names", max, &n));
  memset(list, 0, size * max);
  for (size_t i = 0; i < n; i++)
    MILL_TRY(get_text(in, list_item(in, node, i), size, list + i * size));
  *n_list = (int)n;
done:
  return err;
}

static int read_objtypes(reader *in, const yaml_node_t *node)
{
  mill_selection *select = &in->config->select;
  return read_words(in, node, select->objtype[0], sizeof select->objtype[0], MAX_OBJTYPE,
                    &select->n_objtype);
}

/* One arm: its name, or a mapping with what is special about it. */
static int read_arm(reader *in, const yaml_node_t *item, mill_arm_choice *choice)
{
  static const char *const field[] = {"name", "min", "max", "channel", "resolving_power"};
  static const char wanted[] = "NAME or {name: NAME, min: A, max: A, channel: NAME, "
                               "resolving_power: R}";
  enum { N_FIELD = sizeof field / sizeof field[0] };
  char text[80];
  int seen[N_FIELD] = {0}, err = MILL_OK;
  choice->max_aa = INFINITY;
  if (item->type != YAML_MAPPING_NODE)
    return get_text(in, item, sizeof choice->arm, choice->arm);
  for (yaml_node_pair_t *pair = item->data.mapping.pairs.start; pair < item->data.mapping.pairs.top;
       pair++) {
    const yaml_node_t *name = yaml_document_get_node(in->document, pair->key);
    const yaml_node_t *value = yaml_document_get_node(in->document, pair->value);
    int i = 0;
    while (i < N_FIELD && (name->type != YAML_SCALAR_NODE || strcmp(scalar(name), field[i]) != 0))
      i++;
    if (i == N_FIELD)
      return bad(in, name, "%s is unknown in an arm; give %s", found(name, text), wanted);
    if (seen[i]++)
      return bad(in, name, "%s is there twice in one arm; remove one", field[i]);
    switch (i) {
    case 0:
      MILL_TRY(get_text(in, value, sizeof choice->arm, choice->arm));
      break;
    case 1:
      MILL_TRY(get_real(in, value, &choice->min_aa));
      break;
    case 2:
      MILL_TRY(get_real(in, value, &choice->max_aa));
      break;
    case 3:
      MILL_TRY(get_text(in, value, sizeof choice->channel, choice->channel));
      break;
    default:
      MILL_TRY(get_real(in, value, &choice->resolving_power));
    }
  }
  if (!seen[0])
    return bad(in, item, "an arm lacks its name; give %s", wanted);
done:
  return err;
}

static int read_arms(reader *in, const yaml_node_t *node)
{
  mill_config *config = in->config;
  size_t n;
  int err = MILL_OK;
  MILL_TRY(get_list(in, node, "a list of names or of {name: NAME, ...}", MILL_MAX_ARM, &n));
  memset(config->arm, 0, sizeof config->arm);
  for (size_t i = 0; i < n; i++)
    MILL_TRY(read_arm(in, list_item(in, node, i), &config->arm[i]));
  config->n_arm = (int)n;
done:
  return err;
}

/* The older name of exposures: joint. */
static int read_joint(reader *in, const yaml_node_t *node)
{
  int i, err = MILL_OK;
  MILL_TRY(get_word(in, node, words_flag, &i));
  in->config->exposures = i ? MILL_EXPOSURES_JOINT : MILL_EXPOSURES_COADD;
done:
  return err;
}

static int compare_id(const void *a, const void *b)
{
  int64_t x, y;
  memcpy(&x, a, sizeof x);
  memcpy(&y, b, sizeof y);
  return (x > y) - (x < y);
}

/* Sorts, drops repetitions, gives the number left. */
static size_t sort_ids(int64_t *id, size_t n)
{
  size_t n_kept = 0;
  if (n == 0)
    return 0;
  qsort(id, n, sizeof *id, compare_id);
  for (size_t i = 0; i < n; i++)
    if (n_kept == 0 || id[i] != id[n_kept - 1])
      id[n_kept++] = id[i];
  return n_kept;
}

static int read_targetid(reader *in, const yaml_node_t *node)
{
  mill_selection *select = &in->config->select;
  int64_t *id = NULL;
  size_t n;
  int err = MILL_OK;
  MILL_TRY(get_list(in, node, "a list of whole numbers", SIZE_MAX, &n));
  if (n > 0)
    MILL_TRY(MILL_ALLOC(n, &id));
  for (size_t i = 0; i < n; i++)
    MILL_TRY(get_integer(in, list_item(in, node, i), &id[i]));
  select->target_id = id; /* the caller of mill_config_read's list stays with the caller */
  select->n_target_id = sort_ids(id, n);
  id = NULL;
done:
  mill_free(id);
  return err;
}

static int read_fiberstatus(reader *in, const yaml_node_t *node)
{
  uint64_t mask = 0;
  size_t n;
  int err = MILL_OK;
  MILL_TRY(get_list(in, node, "a list of bit numbers", MAX_MASK_BIT, &n));
  for (size_t i = 0; i < n; i++) {
    const yaml_node_t *item = list_item(in, node, i);
    int64_t bit;
    MILL_TRY(get_integer(in, item, &bit));
    if (bit < 0 || bit >= MAX_MASK_BIT)
      return bad(in, item, "no bit %lld; give numbers from 0 to %d", (long long)bit,
                 MAX_MASK_BIT - 1);
    mask |= UINT64_C(1) << bit;
  }
  in->config->select.fiberstatus_allowed = mask;
done:
  return err;
}

/* Letters to change, add or remove to make one name of the other. */
static size_t name_distance(const char *a, const char *b)
{
  size_t row[MILL_MAX_NAME + 1];
  const size_t n_b = strlen(b);
  for (size_t j = 0; j <= n_b; j++)
    row[j] = j;
  for (size_t i = 0; a[i]; i++) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < n_b; j++) {
      const size_t change = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      const size_t step = (row[j] < diagonal ? row[j] : diagonal) + 1;
      row[j + 1] = change < step ? change : step;
    }
  }
  return row[n_b];
}

static int unknown_key(const char *name)
{
  char text[64];
  for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
    if (strcmp(name, foreign[i].name) == 0)
      return mill_error_set(MILL_ERR_CONFIG, __FILE__, __LINE__, "%s: a key of rvspecfit; %s", name,
                            foreign[i].advice);
  size_t best = 4; /* a name farther away is no misspelling */
  const char *near = NULL;
  for (int i = 0; i < N_KEY; i++) {
    const size_t distance = strlen(name) < 64 ? name_distance(name, keys[i].name) : best;
    if (distance < best) {
      best = distance;
      near = keys[i].name;
    }
  }
  if (near)
    return mill_error_set(MILL_ERR_CONFIG, __FILE__, __LINE__,
                          "%s: unknown key; did you mean %s? --print-config lists all keys",
                          shown(name, text), near);
  return mill_error_set(MILL_ERR_CONFIG, __FILE__, __LINE__,
                        "%s: unknown key; remove it (--print-config lists all keys)",
                        shown(name, text));
}

/* Tags ask for conversions that nothing here makes. */
static int check_tags(yaml_document_t *document, int *line)
{
  char text[64];
  for (yaml_node_t *node = document->nodes.start; node < document->nodes.top; node++) {
    const char *usual = node->type == YAML_SCALAR_NODE     ? YAML_DEFAULT_SCALAR_TAG
                        : node->type == YAML_SEQUENCE_NODE ? YAML_DEFAULT_SEQUENCE_TAG
                                                           : YAML_DEFAULT_MAPPING_TAG;
    if (strcmp((const char *)node->tag, usual) != 0) {
      *line = node_line(node);
      return mill_error_set(MILL_ERR_CONFIG, __FILE__, __LINE__,
                            "the tag %s is not used here; remove it",
                            shown((const char *)node->tag, text));
    }
  }
  return MILL_OK;
}

/* exposures and joint_exposures set one value. */
static int is_older_name(const key *a, const key *b)
{
  const int old_a = a->read == read_joint, old_b = b->read == read_joint;
  const size_t at = offsetof(mill_config, exposures);
  return (old_a && b->kind == KEY_CHOICE && b->offset == at) ||
         (old_b && a->kind == KEY_CHOICE && a->offset == at);
}

/* All keys of the document into config; *line is where a failure was found. */
static int read_document(yaml_document_t *document, mill_config *config, int *line)
{
  int key_line[N_KEY] = {0}, item_line[N_KEY][MAX_LINE_ITEM] = {{0}};
  char text[80];
  int err = MILL_OK;
  reader in = {document, config, 0, 0};
  const yaml_node_t *root = yaml_document_get_root_node(document);
  MILL_TRY(check_tags(document, line));
  if (!is_null(root)) {
    *line = node_line(root);
    if (root->type != YAML_MAPPING_NODE)
      MILL_FAIL(MILL_ERR_CONFIG, "lines of the form 'key: value' expected, %s found",
                found(root, text));
    for (yaml_node_pair_t *pair = root->data.mapping.pairs.start;
         pair < root->data.mapping.pairs.top; pair++) {
      const yaml_node_t *name = yaml_document_get_node(document, pair->key);
      const yaml_node_t *value = yaml_document_get_node(document, pair->value);
      *line = node_line(name);
      if (name->type != YAML_SCALAR_NODE)
        MILL_FAIL(MILL_ERR_CONFIG, "a key expected, %s found", found(name, text));
      int i = 0;
      while (i < N_KEY && strcmp(keys[i].name, scalar(name)) != 0)
        i++;
      if (i == N_KEY)
        MILL_TRY(unknown_key(scalar(name)));
      if (key_line[i])
        MILL_FAIL(MILL_ERR_CONFIG, "%s: already set on line %d; remove one of them", keys[i].name,
                  key_line[i]);
      for (int j = 0; j < N_KEY; j++)
        if (key_line[j] && is_older_name(&keys[i], &keys[j]))
          MILL_FAIL(MILL_ERR_CONFIG, "%s: %s on line %d means the same; remove one of them",
                    keys[i].name, keys[j].name, key_line[j]);
      key_line[i] = *line;
      if (value->type == YAML_SEQUENCE_NODE)
        for (int j = 0; j < MAX_LINE_ITEM &&
                        value->data.sequence.items.start + j < value->data.sequence.items.top;
             j++)
          item_line[i][j] = node_line(list_item(&in, value, (size_t)j));
      in.i_key = i;
      err = read_key(&in, value);
      if (err != MILL_OK) {
        /* an empty value stands after its key, perhaps on a later line */
        *line = is_null(value) || !in.line ? key_line[i] : in.line;
        goto done;
      }
    }
  }
  fault where = {0};
  err = check_all(config, &where);
  if (err != MILL_OK) {
    *line = 0;
    for (int i = 0; i < N_KEY; i++)
      if (strcmp(keys[i].name, where.key) == 0 && key_line[i])
        *line = where.item >= 0 && where.item < MAX_LINE_ITEM && item_line[i][where.item]
                    ? item_line[i][where.item]
                    : key_line[i];
    for (int i = 0; i < N_KEY && !*line && where.other; i++)
      if (strcmp(keys[i].name, where.other) == 0)
        *line = key_line[i];
  }
done:
  return err;
}

static int read_file(const char *path, unsigned char **text, size_t *n_text)
{
  int err = MILL_OK;
  unsigned char *buffer = NULL;
  FILE *file = NULL;
  *text = NULL;
  MILL_TRY(mill_regular_stream(path, "a configuration file", MILL_ERR_CONFIG, &file));
  size_t n = 0, size = 65536;
  for (;;) { /* by what comes: the file may grow meanwhile */
    unsigned char *larger = realloc(buffer, size);
    if (!larger)
      MILL_FAIL(MILL_ERR_MEMORY, "%s: no memory for %zu bytes", path, size);
    buffer = larger;
    n += fread(buffer + n, 1, size - n, file);
    if (ferror(file))
      MILL_FAIL(MILL_ERR_CONFIG, "%s: cannot read the configuration: %s", path, strerror(errno));
    if (n < size)
      break;
    if (size >= MAX_FILE_BYTES)
      MILL_FAIL(MILL_ERR_CONFIG,
                "%s: more than %d MiB; give a configuration file (and long lists of targets by "
                "--targetid-file)",
                path, MAX_FILE_BYTES / 1048576);
    size *= 2;
  }
  *text = buffer;
  *n_text = n;
  buffer = NULL;
done:
  free(buffer);
  if (file)
    fclose(file);
  return err;
}

/* What libyaml found wrong, as "FILE:LINE: ...". */
static int yaml_failure(const yaml_parser_t *parser, const char *path, const unsigned char *text,
                        size_t n_text)
{
  const char *problem = parser->problem ? parser->problem : "unknown problem";
  if (parser->error == YAML_MEMORY_ERROR)
    return mill_error_set(MILL_ERR_MEMORY, __FILE__, __LINE__, "%s: no memory to read it", path);
  if (parser->error == YAML_READER_ERROR) { /* has an offset, no line */
    int line = 1;
    for (size_t i = 0; i < n_text && i < parser->problem_offset; i++)
      line += text[i] == '\n';
    return mill_error_set(MILL_ERR_CONFIG, __FILE__, __LINE__,
                          "%s:%d: not a YAML text in UTF-8 (%s); give a configuration file", path,
                          line, problem);
  }
  return mill_error_set(MILL_ERR_CONFIG, __FILE__, __LINE__,
                        "%s:%zu: not YAML at column %zu: %s%s%s; correct the line", path,
                        parser->problem_mark.line + 1, parser->problem_mark.column + 1, problem,
                        parser->context ? " " : "", parser->context ? parser->context : "");
}

/* The time of libyaml grows with the square of nested brackets and of anchors, so neither may be
 * more than a configuration needs.  What is no YAML is left to those who read it. */
static int check_nesting(const char *path, const unsigned char *text, size_t n_text)
{
  int err = MILL_OK, depth = 0, n_anchor = 0, more = 1;
  yaml_parser_t parser;
  if (!yaml_parser_initialize(&parser))
    return mill_error_set(MILL_ERR_MEMORY, __FILE__, __LINE__, "%s: no memory to read it", path);
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
      MILL_FAIL(MILL_ERR_CONFIG,
                "%s:%zu: lists or mappings within each other %d deep, and no key needs more than "
                "%d; give a configuration file",
                path, line, depth, MAX_DEPTH);
    if (n_anchor > MAX_ANCHOR)
      MILL_FAIL(MILL_ERR_CONFIG, "%s:%zu: more than %d anchors (&); write the values themselves",
                path, line, MAX_ANCHOR);
  }
done:
  yaml_parser_delete(&parser);
  return err;
}

int mill_config_read(mill_config *config, const char *path)
{
  int err = MILL_OK, line = 0, have_parser = 0, have_document = 0, have_second = 0;
  unsigned char *text = NULL;
  size_t n_text = 0;
  yaml_parser_t parser;
  yaml_document_t document, second;
  mill_config *read = NULL; /* config is only touched when all is well */
  MILL_TRY(read_file(path, &text, &n_text));
  MILL_TRY(check_nesting(path, text, n_text));
  MILL_TRY(MILL_ALLOC(1, &read));
  memcpy(read, config, sizeof *read);
  if (!yaml_parser_initialize(&parser))
    MILL_FAIL(MILL_ERR_MEMORY, "%s: no memory to read it", path);
  have_parser = 1;
  yaml_parser_set_input_string(&parser, text, n_text);
  yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
  have_document = yaml_parser_load(&parser, &document);
  if (!have_document) {
    err = yaml_failure(&parser, path, text, n_text);
    goto done;
  }
  if (yaml_document_get_root_node(&document)) { /* else empty: nothing is changed */
    have_second = yaml_parser_load(&parser, &second);
    if (!have_second) {
      err = yaml_failure(&parser, path, text, n_text);
      goto done;
    }
    if (yaml_document_get_root_node(&second))
      MILL_FAIL(MILL_ERR_CONFIG, "%s:%zu: a second YAML document starts; keep one", path,
                second.start_mark.line + 1);
    err = read_document(&document, read, &line);
    if (err == MILL_ERR_CONFIG) {
      if (line > 0)
        MILL_FAIL(err, "%s:%d: %s", path, line, mill_error_message());
      MILL_FAIL(err, "%s: %s", path, mill_error_message());
    }
    if (err != MILL_OK)
      goto done;
    if (read->select.target_id != config->select.target_id)
      mill_free(config->select.target_id);
    memcpy(config, read, sizeof *config);
  }
done:
  if (read && read->select.target_id != config->select.target_id)
    mill_free(read->select.target_id);
  mill_free(read);
  if (have_second)
    yaml_document_delete(&second);
  if (have_document)
    yaml_document_delete(&document);
  if (have_parser)
    yaml_parser_delete(&parser);
  free(text);
  return err;
}

/* ---- names against a library ---- */

static const char *parameter_names(const mill_library *lib, char out[512])
{
  size_t n = (size_t)snprintf(out, 512, "vrad, vsini");
  for (int i = 0; i < lib->n_label && n < 512; i++)
    n += (size_t)snprintf(out + n, 512 - n, ", %s", lib->label[i].name);
  return out;
}

static int find_parameter(const mill_library *lib, const char *key_name, const char *name,
                          int *i_par)
{
  char names[512];
  const int i_label = mill_library_find_label(lib, name);
  if (strcmp(name, "vrad") == 0)
    *i_par = MILL_PAR_VRAD;
  else if (strcmp(name, "vsini") == 0)
    *i_par = MILL_PAR_VSINI;
  else if (i_label >= 0)
    *i_par = MILL_PAR_LABEL0 + i_label;
  else
    return mill_error_set(MILL_ERR_CONFIG, __FILE__, __LINE__,
                          "%s: no parameter %s; the library has %s", key_name, name,
                          parameter_names(lib, names));
  return MILL_OK;
}

int mill_config_find_arm(const mill_config *config, const char *arm)
{
  for (int i = 0; i < config->n_arm; i++)
    if (strcmp(config->arm[i].arm, arm) == 0)
      return i;
  return -1;
}

int mill_config_lsf(const mill_config *config)
{
  if (config->lsf != MILL_LSF_AUTO)
    return config->lsf;
  return config->fit.resolution == MILL_RES_NONE     ? MILL_LSF_OFF
         : config->fit.resolution == MILL_RES_MATRIX ? MILL_LSF_MATRIX
                                                     : MILL_LSF_AUTO;
}

double mill_config_resolving_power(const mill_config *config, const char *arm)
{
  const int i = mill_config_find_arm(config, arm);
  return i >= 0 && config->arm[i].resolving_power > 0.0 ? config->arm[i].resolving_power
                                                        : config->resolving_power;
}

/* A line-spread function needs templates that are sharper than the spectra. */
static int bind_lsf(const mill_config *config, const mill_library *lib)
{
  int err = MILL_OK;
  const int lsf = mill_config_lsf(config);
  if (lsf == MILL_LSF_AUTO || lsf == MILL_LSF_OFF)
    goto done;
  for (int i = 0; i < lib->n_arm; i++) {
    const char *name = lib->arm[i].name;
    if (config->n_arm > 0 && mill_config_find_arm(config, name) < 0)
      continue;
    if (lib->arm[i].template_sigma_aa < 0.0)
      MILL_FAIL(MILL_ERR_CONFIG,
                "%s, but the library's arm %s is at the instrument's own resolution already; give "
                "auto or another library",
                config->lsf == MILL_LSF_AUTO ? "resolution_matrix: true"
                : lsf == MILL_LSF_MATRIX     ? "lsf: matrix"
                : lsf == MILL_LSF_SIGMA      ? "lsf: sigma"
                                             : "lsf: resolving_power",
                name);
    if (lsf == MILL_LSF_RESOLVING_POWER && !(mill_config_resolving_power(config, name) > 0.0))
      MILL_FAIL(MILL_ERR_CONFIG,
                "lsf: resolving_power, but none is set for arm %s; set resolving_power", name);
  }
done:
  return err;
}

/* A step far below a pixel finds nothing more, and its cost grows with the square. */
static int check_guess(const mill_config *config, const mill_library *lib)
{
  int err = MILL_OK;
  char a[32];
  const mill_guess_cost cost = mill_guess_cost_of(lib, &config->fit);
  if (cost.bytes > MAX_GUESS_BYTES || cost.n_multiply > MAX_GUESS_MULTIPLY)
    MILL_FAIL(
        MILL_ERR_CONFIG,
        "guess_vel_step: %s would cost %.1f GB a rank and %.2g products a star (%d templates, "
        "%.0f velocities, %.0f bins), more than %.1f GB or %.2g; give a larger step, or min_vel "
        "and max_vel nearer to 0",
        real_text(config->fit.guess_vel_step_km_s, a), 1e-9 * cost.bytes, cost.n_multiply,
        cost.n_templ, cost.n_vel, cost.n_bin, 1e-9 * MAX_GUESS_BYTES, MAX_GUESS_MULTIPLY);
done:
  return err;
}

int mill_config_bind(mill_config *config, const mill_library *lib)
{
  int err = MILL_OK, i_par = 0;
  char a[32], b[32], c[32];
  int fixed[MILL_MAX_PAR] = {0};
  double fixed_value[MILL_MAX_PAR] = {0}, mean[MILL_MAX_PAR] = {0}, sigma[MILL_MAX_PAR] = {0};
  MILL_TRY(mill_config_check(config));
  for (int i = 0; i < config->n_arm; i++)
    if (mill_library_find_arm(lib, config->arm[i].arm) < 0) {
      char names[512] = "";
      size_t n = 0;
      for (int j = 0; j < lib->n_arm && n < sizeof names; j++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", j ? ", " : "", lib->arm[j].name);
      MILL_FAIL(MILL_ERR_CONFIG, "arms: no arm %s; the library has %s", config->arm[i].arm, names);
    }
  MILL_TRY(bind_lsf(config, lib));
  MILL_TRY(check_guess(config, lib));
  for (int i = 0; i < config->n_fixed; i++) {
    const mill_named_value *item = &config->fixed[i];
    MILL_TRY(find_parameter(lib, "fix_param", item->name, &i_par));
    const mill_fit_settings *fit = &config->fit;
    const double min = i_par == MILL_PAR_VRAD    ? fit->min_vel_km_s
                       : i_par == MILL_PAR_VSINI ? fit->min_vsini_km_s
                                                 : lib->label[i_par - MILL_PAR_LABEL0].min;
    const double max = i_par == MILL_PAR_VRAD    ? fit->max_vel_km_s
                       : i_par == MILL_PAR_VSINI ? fit->max_vsini_km_s
                                                 : lib->label[i_par - MILL_PAR_LABEL0].max;
    if (!(item->value >= min && item->value <= max))
      MILL_FAIL(MILL_ERR_CONFIG,
                "fix_param: %s = %s is outside its range; give a value from %s to %s", item->name,
                real_text(item->value, a), real_text(min, b), real_text(max, c));
    fixed[i_par] = 1;
    fixed_value[i_par] = item->value;
  }
  if (config->n_fixed == MILL_PAR_LABEL0 + lib->n_label)
    MILL_FAIL(MILL_ERR_CONFIG, "fix_param: all %d parameters are fixed; leave at least one free",
              config->n_fixed);
  for (int i = 0; i < config->n_prior; i++) {
    MILL_TRY(find_parameter(lib, "priors", config->prior[i].name, &i_par));
    mean[i_par] = config->prior[i].value;
    sigma[i_par] = config->prior[i].sigma;
  }
  memcpy(config->fit.fixed, fixed, sizeof fixed);
  memcpy(config->fit.fixed_value, fixed_value, sizeof fixed_value);
  memcpy(config->fit.prior_mean, mean, sizeof mean);
  memcpy(config->fit.prior_sigma, sigma, sizeof sigma);
  config->fit.min_sn = config->select.min_sn;
done:
  return err;
}

int mill_config_arms(const mill_config *config, const mill_library *lib, int *wanted)
{
  int err = MILL_OK;
  for (int a = 0; a < lib->n_arm; a++)
    wanted[a] = config->n_arm == 0;
  for (int i = 0; i < config->n_arm; i++) {
    const int arm = mill_library_find_arm(lib, config->arm[i].arm);
    if (arm < 0)
      MILL_FAIL(MILL_ERR_CONFIG, "the library %s has no arm '%s'", lib->path, config->arm[i].arm);
    wanted[arm] = 1;
  }
done:
  return err;
}

/* ---- printing ---- */

static void print_ranges(const mill_config *config, FILE *out)
{
  char a[32], b[32];
  fputs(" [", out);
  for (int i = 0; i < config->fit.n_wave_mask; i++)
    fprintf(out, "%s[%s, %s]", i ? ", " : "", real_text(config->fit.wave_mask[i].min_aa, a),
            real_text(config->fit.wave_mask[i].max_aa, b));
  fputs("]\n", out);
}

static void print_wave_mask(const mill_config *config, FILE *out)
{
  if (config->wave_mask_auto)
    fputs(" auto\n", out);
  else
    print_ranges(config, out);
}

static void print_mask_ignore(const mill_config *config, FILE *out)
{
  fprintf(out, config->fit.mask_ignore ? " 0x%x\n" : " %u\n", (unsigned)config->fit.mask_ignore);
}

static void print_fix_param(const mill_config *config, FILE *out)
{
  char value[32];
  fputs(config->n_fixed ? "\n" : " []\n", out);
  for (int i = 0; i < config->n_fixed; i++) {
    fputs("  - {param: ", out);
    print_text(config->fixed[i].name, out);
    fprintf(out, ", value: %s}\n", real_text(config->fixed[i].value, value));
  }
}

static void print_priors(const mill_config *config, FILE *out)
{
  char mean[32], sigma[32];
  fputs(config->n_prior ? "\n" : " []\n", out);
  for (int i = 0; i < config->n_prior; i++) {
    fputs("  - {param: ", out);
    print_text(config->prior[i].name, out);
    fprintf(out, ", mean: %s, sigma: %s}\n", real_text(config->prior[i].value, mean),
            real_text(config->prior[i].sigma, sigma));
  }
}

static void print_minsn(const mill_config *config, FILE *out)
{
  char value[32];
  fprintf(out, " %s\n",
          isfinite(config->select.min_sn) ? real_text(config->select.min_sn, value) : "none");
}

static void print_words(const char *list, size_t size, int n, FILE *out)
{
  fputs(" [", out);
  for (int i = 0; i < n; i++) {
    fputs(i ? ", " : "", out);
    print_text(list + (size_t)i * size, out);
  }
  fputs("]\n", out);
}

static void print_objtypes(const mill_config *config, FILE *out)
{
  print_words(config->select.objtype[0], sizeof config->select.objtype[0], config->select.n_objtype,
              out);
}

static void print_arms(const mill_config *config, FILE *out)
{
  char text[32];
  fputs(" [", out);
  for (int i = 0; i < config->n_arm; i++) {
    const mill_arm_choice *choice = &config->arm[i];
    const int plain = choice->min_aa == 0.0 && isinf(choice->max_aa) && !choice->channel[0] &&
                      choice->resolving_power == 0.0;
    fputs(i ? ", " : "", out);
    fputs(plain ? "" : "{name: ", out);
    print_text(choice->arm, out);
    if (choice->min_aa != 0.0)
      fprintf(out, ", min: %s", real_text(choice->min_aa, text));
    if (!isinf(choice->max_aa))
      fprintf(out, ", max: %s", real_text(choice->max_aa, text));
    if (choice->channel[0]) {
      fputs(", channel: ", out);
      print_text(choice->channel, out);
    }
    if (choice->resolving_power != 0.0)
      fprintf(out, ", resolving_power: %s", real_text(choice->resolving_power, text));
    fputs(plain ? "" : "}", out);
  }
  fputs("]\n", out);
}

static void print_joint(const mill_config *config, FILE *out)
{
  fprintf(out, " %s\n",
          config->exposures == MILL_EXPOSURES_JOINT    ? "true"
          : config->exposures == MILL_EXPOSURES_SINGLE ? "single"
                                                       : "false");
}

static void print_targetid(const mill_config *config, FILE *out)
{
  fputs(" [", out);
  for (size_t i = 0; i < config->select.n_target_id; i++)
    fprintf(out, "%s%lld",
            i == 0       ? ""
            : i % 4 == 0 ? ",\n  "
                         : ", ",
            (long long)config->select.target_id[i]);
  fputs("]\n", out);
}

static void print_fiberstatus(const mill_config *config, FILE *out)
{
  const char *between = "";
  fputs(" [", out);
  for (int bit = 0; bit < MAX_MASK_BIT; bit++)
    if (config->select.fiberstatus_allowed >> bit & 1) {
      fprintf(out, "%s%d", between, bit);
      between = ", ";
    }
  fputs("]\n", out);
}

static void print_key(const mill_config *config, const key *k, FILE *out)
{
  const void *at = member_const(config, k);
  char value[32];
  double x;
  int i;
  fprintf(out, "%s:", k->name);
  switch (k->kind) {
  case KEY_PATH:
    fputc(' ', out);
    print_text((const char *)at, out);
    fputc('\n', out);
    break;
  case KEY_REAL:
    memcpy(&x, at, sizeof x);
    fprintf(out, " %s\n", real_text(x, value));
    break;
  case KEY_COUNT:
    memcpy(&i, at, sizeof i);
    fprintf(out, " %d\n", i);
    break;
  case KEY_CHOICE:
    memcpy(&i, at, sizeof i);
    fprintf(out, " %s\n", k->words[i]);
    break;
  case KEY_WORD:
    fprintf(out, " %s\n", (const char *)at);
    break;
  default:
    k->print(config, out);
  }
}

int mill_config_print(const mill_config *config, FILE *out)
{
  int err = MILL_OK;
  MILL_TRY(mill_config_check(config)); /* what is printed can be read */
  for (int i = 0; i < N_KEY; i++)
    if (keys[i].identity != ID_ONLY)
      print_key(config, &keys[i], out);
  if (fflush(out) != 0 || ferror(out))
    MILL_FAIL(MILL_ERR_OUTPUT, "cannot print the configuration: %s", strerror(errno));
done:
  return err;
}

static int compare_key(const void *a, const void *b)
{
  return strcmp((*(const key *const *)a)->name, (*(const key *const *)b)->name);
}

static int compare_text(const void *a, const void *b)
{
  return strcmp(a, b);
}

static int compare_named(const void *a, const void *b)
{
  return strcmp(((const mill_named_value *)a)->name, ((const mill_named_value *)b)->name);
}

int mill_config_identity(const mill_config *config, char **text)
{
  int err = MILL_OK;
  const key *sorted[N_KEY];
  int64_t *id = NULL;
  mill_config *copy = NULL; /* with its lists in one order, since their order means nothing */
  mill_config *usual = NULL;
  FILE *out = NULL;
  char *buffer = NULL;
  size_t n_buffer = 0, n_id = config->select.n_target_id;
  *text = NULL;
  MILL_TRY(mill_config_check(config));
  MILL_TRY(MILL_ALLOC(1, &usual));
  mill_config_default(usual);
  MILL_TRY(MILL_ALLOC(1, &copy));
  memcpy(copy, config, sizeof *copy);
  copy->wave_mask_auto = 0; /* what is masked counts, not who chose it */
  if (config->start[0]) {
    if (!config->start_hash[0])
      MILL_FAIL(MILL_ERR_INTERNAL, "start: %s has not been read yet", config->start);
    memset(copy->start, 0, sizeof copy->start);
    strcpy(copy->start, config->start_hash);
  }
  MILL_TRY(MILL_ALLOC(n_id, &id));
  if (n_id > 0)
    memcpy(id, config->select.target_id, n_id * sizeof *id);
  copy->select.target_id = id;
  copy->select.n_target_id = sort_ids(id, n_id);
  qsort(copy->select.objtype, (size_t)copy->select.n_objtype, sizeof copy->select.objtype[0],
        compare_text);
  qsort(copy->arm, (size_t)copy->n_arm, sizeof copy->arm[0], compare_text);
  qsort(copy->fixed, (size_t)copy->n_fixed, sizeof copy->fixed[0], compare_named);
  qsort(copy->prior, (size_t)copy->n_prior, sizeof copy->prior[0], compare_named);
  for (int i = 0; i < N_KEY; i++)
    sorted[i] = &keys[i];
  qsort(sorted, N_KEY, sizeof sorted[0], compare_key);
  out = open_memstream(&buffer, &n_buffer);
  if (!out)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory for the text of the configuration");
  for (int i = 0; i < N_KEY; i++) {
    const key *k = sorted[i];
    if (k->identity == ID_YES || k->identity == ID_ONLY ||
        (k->identity == ID_WHEN_SET &&
         memcmp(member_const(copy, k), member_const(usual, k), k->size) != 0))
      print_key(copy, k, out);
  }
  const int failed = ferror(out);
  if (fclose(out) != 0 || failed) {
    out = NULL;
    MILL_FAIL(MILL_ERR_MEMORY, "no memory for the text of the configuration");
  }
  out = NULL;
  *text = buffer;
  buffer = NULL;
done:
  if (out)
    fclose(out);
  free(buffer);
  mill_free(id);
  mill_free(copy);
  mill_free(usual);
  return err;
}
