/* SPDX-License-Identifier: BSD-3-Clause */
/* One walk through the contents of a library, which either reads a file or digests a library in
 * memory.  starmill/templates/library_file.py writes the file. */
#include <stdio.h>
#include <string.h>

#include "io/files/sha256.h"
#include "io/library/library_parts.h"
#include "kernels/base/memory.h"
#include "kernels/math/rbf.h"

enum way { READ, DIGEST };
enum type { I32, F32, F64 };

typedef struct walk {
  enum way way;
  const mill_h5_file *file; /* READ only */
  mill_sha256 sha;          /* DIGEST only */
  char group[48];           /* group being walked; empty: the root */
} walk;

/* The least or most sizes of a dataset. */
#define SIZES(...) ((const size_t[]){__VA_ARGS__})

/* ---- numbers and texts ---------------------------------------------------------------------- */

/* Digest n numbers as little-endian bytes; integers as 64 bits. */
static void digest(mill_sha256 *sha, enum type type, size_t n, const void *data)
{
  unsigned char byte[1024];
  const size_t width = type == F32 ? 4 : 8;
  size_t n_byte = 0;
  for (size_t i = 0; i < n; i++) {
    uint64_t bits = 0;
    uint32_t narrow = 0;
    if (type == F64) {
      memcpy(&bits, (const double *)data + i, sizeof bits);
    } else if (type == F32) {
      memcpy(&narrow, (const float *)data + i, sizeof narrow);
      bits = narrow;
    } else {
      bits = (uint64_t)((const int *)data)[i];
    }
    for (size_t j = 0; j < width; j++)
      byte[n_byte++] = (unsigned char)(bits >> (8 * j));
    if (n_byte == sizeof byte || i + 1 == n) {
      mill_sha256_update(sha, byte, n_byte);
      n_byte = 0;
    }
  }
}

static void digest_text(mill_sha256 *sha, const char *text)
{
  const int n = (int)strlen(text);
  digest(sha, I32, 1, &n);
  mill_sha256_update(sha, text, (size_t)n);
}

/* Return n, a size or kind; if way is DIGEST, first add it to the digest. */
static int noted(walk *w, size_t n)
{
  const int number = (int)n;
  if (w->way == DIGEST)
    digest(&w->sha, I32, 1, &number);
  return number;
}

static void path_of(const walk *w, const char *name, char at[96])
{
  snprintf(at, 96, "%s%s%s", w->group, *w->group ? "/" : "", name);
}

/* Enter a group, e.g. "arms/arm2/grid" by "arms/arm%d/grid", 2. */
#define ENTER(w, ...) snprintf((w)->group, sizeof(w)->group, __VA_ARGS__)

/* When reading, get a dataset's shape dim [n_dim]; fail unless least <= dim <= most.  When
 * digesting, keep dim, which the caller set from the library. */
static int shape(const walk *w, const char *name, int n_dim, const size_t *least,
                 const size_t *most, size_t *dim)
{
  char at[96], found[160] = "", wanted[240] = "";
  int good = 1;
  if (w->way != READ)
    return MILL_OK;
  path_of(w, name, at);
  MILL_CHECK(mill_h5_shape(w->file, at, n_dim, dim));
  for (int i = 0, a = 0, b = 0; i < n_dim; i++) { /* a, b: lengths of found, wanted */
    good &= dim[i] >= least[i] && dim[i] <= most[i];
    a += snprintf(found + a, sizeof found - (size_t)a, "[%zu]", dim[i]);
    if (least[i] == most[i])
      b += snprintf(wanted + b, sizeof wanted - (size_t)b, "[%zu]", most[i]);
    else
      b += snprintf(wanted + b, sizeof wanted - (size_t)b, "[%zu to %zu]", least[i], most[i]);
  }
  if (!good)
    return MILL_REFUSED(w->file, "dataset /%s has the shape %s, expected %s", at, found, wanted);
  return MILL_OK;
}

/* Read or digest a dataset of known shape. */
static int array(walk *w, const char *name, enum type type, int n_dim, const size_t *dim,
                 void *data)
{
  const hid_t memory[] = {H5T_NATIVE_INT, H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE};
  char at[96];
  size_t n = 1;
  for (int i = 0; i < n_dim; i++)
    n *= dim[i];
  path_of(w, name, at);
  if (w->way == READ)
    return mill_h5_read(w->file, at, memory[type], n_dim, dim, data);
  digest(&w->sha, type, n, data);
  return MILL_OK;
}

/* Read an array into new memory, or digest the array; data: address of the pointer to it. */
static int owned(walk *w, const char *name, enum type type, int n_dim, const size_t *dim,
                 void *data)
{
  char at[96];
  path_of(w, name, at);
  if (w->way == READ)
    return mill_h5_read_new(w->file, at, type == F32 ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE, n_dim,
                            dim, data);
  return array(w, name, type, n_dim, dim, *(void **)data);
}

/* An attribute of a group, and the struct member that stores it. */
typedef struct attribute {
  const char *name;
  char kind; /* 't' text, 'i' integer, 'd' double */
  size_t offset, size;
} attribute;

#define MEMBER(type, kind, name, member)                                                           \
  {                                                                                                \
    name, kind, offsetof(type, member), sizeof(((type *)0)->member)                                \
  }

/* READ: read an attribute of the group into its struct member, value.  DIGEST: digest value. */
static int transfer(walk *w, const attribute *a, void *value)
{
  const mill_h5_file *file = w->file;
  if (w->way == DIGEST && a->kind == 't')
    digest_text(&w->sha, value);
  else if (w->way == DIGEST)
    digest(&w->sha, a->kind == 'i' ? I32 : F64, 1, value);
  else if (a->kind == 't')
    return mill_h5_read_attr_text(file, w->group, a->name, value, a->size);
  else if (a->kind == 'i')
    return mill_h5_read_attr_int(file, w->group, a->name, value);
  else
    return mill_h5_read_attr_double(file, w->group, a->name, value);
  return MILL_OK;
}

static int attributes(walk *w, size_t n, const attribute *a, void *base)
{
  for (size_t i = 0; i < n; i++)
    MILL_CHECK(transfer(w, &a[i], (char *)base + a[i].offset));
  return MILL_OK;
}
#define ATTRIBUTES(w, table, base) attributes(w, sizeof table / sizeof *table, table, base)

static int integer(walk *w, const char *name, int *value)
{
  return transfer(w, &(attribute){name, 'i', 0, sizeof *value}, value);
}

/* Read or digest a number of groups or layers, from 1 to most. */
static int counted(walk *w, const char *name, int most, int *value)
{
  MILL_CHECK(integer(w, name, value));
  if (w->way == READ && (*value < 1 || *value > most))
    return MILL_REFUSED(w->file, "attribute %s of %s is %d, this program takes 1 to %d", name,
                        w->group, *value, most);
  return MILL_OK;
}

/* ---- labels, hulls, guess ------------------------------------------------------------------- */

static int walk_labels(walk *w, mill_library *lib)
{
  static const attribute label[] = {
      MEMBER(mill_label, 't', "name", name),   MEMBER(mill_label, 't', "column", column),
      MEMBER(mill_label, 't', "unit", unit),   MEMBER(mill_label, 'i', "mapping", mapping),
      MEMBER(mill_label, 'd', "mean", mean),   MEMBER(mill_label, 'd', "std", std),
      MEMBER(mill_label, 'd', "min", min),     MEMBER(mill_label, 'd', "max", max),
      MEMBER(mill_label, 'd', "scale", scale), MEMBER(mill_label, 'd', "floor", floor)};
  ENTER(w, "labels");
  MILL_CHECK(counted(w, "n_label", MILL_MAX_LABEL, &lib->n_label));
  for (int i = 0; i < lib->n_label; i++) {
    ENTER(w, "labels/label%d", i);
    MILL_CHECK(ATTRIBUTES(w, label, &lib->label[i]));
  }
  return MILL_OK;
}

/* Read or digest a hull: the indices of its labels, and its facets. */
static int walk_hull(walk *w, int i_hull, mill_hull *hull)
{
  size_t n_label = (size_t)hull->n_label, dim[2];
  ENTER(w, "hulls/hull%d", i_hull);
  MILL_CHECK(shape(w, "labels", 1, SIZES(1), SIZES(MILL_MAX_LABEL), &n_label));
  hull->n_label = noted(w, n_label);
  MILL_CHECK(array(w, "labels", I32, 1, &n_label, hull->label));
  dim[0] = (size_t)hull->n_facet;
  dim[1] = n_label + 1;
  MILL_CHECK(shape(w, "facets", 2, SIZES(1, n_label + 1), SIZES(MILL_MAX_FACET, n_label + 1), dim));
  hull->n_facet = noted(w, dim[0]);
  return owned(w, "facets", F64, 2, dim, &hull->facet);
}

/* Read or digest the guess's templates: their labels and values of v sin i. */
static int walk_guess(walk *w, mill_library *lib)
{
  const size_t n_label = (size_t)lib->n_label;
  size_t dim[2] = {(size_t)lib->n_guess, n_label}, n_vsini = (size_t)lib->n_guess_vsini;
  ENTER(w, "guess");
  MILL_CHECK(shape(w, "labels", 2, SIZES(1, n_label), SIZES(MILL_LIBRARY_MAX_GUESS, n_label), dim));
  lib->n_guess = noted(w, dim[0]);
  MILL_CHECK(owned(w, "labels", F64, 2, dim, &lib->guess_label));
  MILL_CHECK(shape(w, "vsini", 1, SIZES(1), SIZES(MILL_LIBRARY_MAX_GUESS_VSINI), &n_vsini));
  lib->n_guess_vsini = noted(w, n_vsini);
  return array(w, "vsini", F64, 1, &n_vsini, lib->guess_vsini_km_s);
}

/* ---- emulators ------------------------------------------------------------------------------ */

/* Read or digest the kind of emulator; for a perceptron check the activation. */
static int walk_kind(walk *w, mill_arm *arm)
{
  static const char *const name[MILL_LIBRARY_N_KIND] = {
      [MILL_EMULATOR_MLP] = "mlp", [MILL_EMULATOR_GRID] = "grid", [MILL_EMULATOR_RBF] = "rbf"};
  mill_emulator *e = &arm->emulator;
  char text[64];
  noted(w, (size_t)e->kind); /* digests the kind; does nothing when reading */
  if (w->way == DIGEST)
    return MILL_OK;
  MILL_CHECK(mill_h5_read_attr_text(w->file, w->group, "emulator", text, sizeof text));
  e->kind = 0;
  while (e->kind < MILL_LIBRARY_N_KIND && strcmp(text, name[e->kind]) != 0)
    e->kind++;
  if (e->kind == MILL_LIBRARY_N_KIND)
    return MILL_REFUSED(w->file,
                        "the emulator of arm %s is '%s', not mlp, grid or rbf: rebuild the library",
                        arm->name, text);
  if (e->kind != MILL_EMULATOR_MLP)
    return MILL_OK;
  MILL_CHECK(mill_h5_read_attr_text(w->file, w->group, "activation", text, sizeof text));
  if (strcmp(text, "silu") != 0)
    return MILL_REFUSED(w->file, "the activation of arm %s is '%s', not silu: rebuild the library",
                        arm->name, text);
  return MILL_OK;
}

/* Read or digest a spline grid: knots of each axis, and coefficients [node]...[node][output]. */
static int walk_grid(walk *w, int i_arm, mill_spline_grid *grid)
{
  size_t dim[MILL_MAX_GRID_AXIS + 1], least[MILL_MAX_GRID_AXIS + 1], most[MILL_MAX_GRID_AXIS + 1];
  const int n_axis = grid->n_axis;
  size_t size = 1;
  ENTER(w, "arms/arm%d/grid", i_arm);
  int degree = mill_spline_grid_order(grid) - 1;
  MILL_CHECK(integer(w, "degree", &degree));
  if (w->way == READ && degree != 1 && degree != 3)
    return MILL_REFUSED(w->file, "attribute degree of %s is %d, expected 1 or 3", w->group, degree);
  grid->linear = degree == 1;
  const size_t order = (size_t)mill_spline_grid_order(grid);
  for (int i = 0; i < n_axis; i++) {
    dim[i] = (size_t)grid->n_node[i]; /* when reading, `shape` gets the file's */
    least[i] = order;
    most[i] = MILL_MAX_GRID_NODE;
  }
  dim[n_axis] = (size_t)grid->n_out;
  least[n_axis] = 1;
  most[n_axis] = MILL_MAX_WIDTH;
  MILL_CHECK(shape(w, "coefficients", n_axis + 1, least, most, dim));
  for (int i = 0; i <= n_axis; i++) {
    size *= dim[i];
    if (w->way == READ && size > MILL_MAX_GRID_COEF)
      return MILL_REFUSED(w->file, "dataset /%s/coefficients has more than %d numbers", w->group,
                          MILL_MAX_GRID_COEF);
  }
  noted(w, (size_t)n_axis); /* digests the number if w->way is DIGEST, and returns it */
  for (int i = 0; i < n_axis; i++) {
    char name[24];
    const size_t n_knot = dim[i] + order;
    grid->n_node[i] = noted(w, dim[i]);
    snprintf(name, sizeof name, "knots%d", i);
    MILL_CHECK(owned(w, name, F64, 1, &n_knot, &grid->knot[i]));
  }
  grid->n_out = noted(w, dim[n_axis]);
  return owned(w, "coefficients", F32, n_axis + 1, dim, &grid->coef);
}

/* Read or digest radial basis functions: lengths, centers and coefficients. */
static int walk_rbf(walk *w, int i_arm, mill_rbf *rbf)
{
  const size_t n_axis = (size_t)rbf->n_axis;
  size_t center[2] = {(size_t)rbf->n_center, n_axis};
  ENTER(w, "arms/arm%d/rbf", i_arm);
  MILL_CHECK(shape(w, "centers", 2, SIZES(1, n_axis), SIZES(MILL_MAX_RBF_CENTER, n_axis), center));
  noted(w, n_axis); /* digests the number if w->way is DIGEST, and returns it */
  rbf->n_center = noted(w, center[0]);
  MILL_CHECK(integer(w, "degree", &rbf->degree));
  if (w->way == READ && (rbf->degree < 0 || rbf->degree > MILL_MAX_RBF_DEGREE))
    return MILL_REFUSED(w->file, "attribute degree of %s is %d, this program takes 0 to %d",
                        w->group, rbf->degree, MILL_MAX_RBF_DEGREE);
  rbf->n_poly = mill_rbf_n_poly(rbf->n_axis, rbf->degree);
  MILL_CHECK(array(w, "lengths", F64, 1, &n_axis, rbf->length));
  MILL_CHECK(owned(w, "centers", F64, 2, center, &rbf->center));
  const size_t n_row = (size_t)rbf->n_center + (size_t)rbf->n_poly;
  size_t coef[2] = {n_row, (size_t)rbf->n_out};
  MILL_CHECK(shape(w, "coefficients", 2, SIZES(n_row, 1), SIZES(n_row, MILL_MAX_WIDTH), coef));
  rbf->n_out = noted(w, coef[1]);
  return owned(w, "coefficients", F32, 2, coef, &rbf->coef);
}

/* Read or digest the sizes, weight and bias of a layer with at most most_out outputs. */
static int walk_layer(walk *w, int i_layer, size_t most_out, mill_emulator *e)
{
  size_t dim[2] = {(size_t)e->n_out[i_layer], (size_t)e->n_in[i_layer]};
  char name[32];
  snprintf(name, sizeof name, "layer%d/weight", i_layer);
  MILL_CHECK(shape(w, name, 2, SIZES(1, 1), SIZES(most_out, MILL_MAX_WIDTH), dim));
  e->n_in[i_layer] = noted(w, dim[1]);
  e->n_out[i_layer] = noted(w, dim[0]);
  MILL_CHECK(owned(w, name, F32, 2, dim, &e->weight[i_layer]));
  snprintf(name, sizeof name, "layer%d/bias", i_layer);
  return owned(w, name, F32, 1, dim, &e->bias[i_layer]);
}

/* ---- arms ----------------------------------------------------------------------------------- */

/* Read or digest the arm's model error, if it has one. */
static int walk_error(walk *w, int i_arm, int n_pix, mill_model_error *error)
{
  const size_t n = (size_t)n_pix;
  size_t dim[2] = {(size_t)error->n_component, n}; /* when reading: 0 without components */
  char at[96];
  snprintf(at, sizeof at, "arms/arm%d/model_error", i_arm);
  const int is_there = w->way == READ ? mill_h5_exists(w->file, at) : error->fraction != NULL;
  noted(w, (size_t)is_there);
  if (!is_there)
    return MILL_OK;
  ENTER(w, "arms/arm%d/model_error", i_arm);
  MILL_CHECK(owned(w, "fraction", F32, 1, &n, &error->fraction));
  MILL_CHECK(transfer(w, &(attribute){"correlation", 'd', 0, 0}, &error->correlation));
  path_of(w, "components", at);
  if (w->way == READ && mill_h5_exists(w->file, at))
    MILL_CHECK(shape(w, "components", 2, SIZES(1, n), SIZES(MILL_MAX_COMPONENT, n), dim));
  error->n_component = noted(w, dim[0]);
  if (error->n_component == 0)
    return MILL_OK;
  MILL_CHECK(array(w, "sigmas", F64, 1, dim, error->sigma));
  return owned(w, "components", F32, 2, dim, &error->component);
}

/* Read or digest an arm: its pixels, emulator and model error. */
static int walk_arm(walk *w, int i_arm, int n_label, mill_arm *arm)
{
  static const attribute names[] = {MEMBER(mill_arm, 't', "name", name),
                                    MEMBER(mill_arm, 't', "setup", setup)};
  static const attribute numbers[] = {MEMBER(mill_arm, 'd', "ln_wave0", ln_wave0),
                                      MEMBER(mill_arm, 'd', "ln_step", ln_step),
                                      MEMBER(mill_arm, 'd', "template_sigma", template_sigma_aa)};
  static const attribute origin[] = {MEMBER(mill_arm, 't', "template_sigma_origin", sigma_origin),
                                     MEMBER(mill_arm, 't', "source", source),
                                     MEMBER(mill_arm, 't', "revision", revision)};
  mill_emulator *e = &arm->emulator;
  size_t n_pix = (size_t)arm->n_pix;
  ENTER(w, "arms/arm%d", i_arm);
  MILL_CHECK(ATTRIBUTES(w, names, arm));
  MILL_CHECK(
      shape(w, "wavelength", 1, SIZES(MILL_LIBRARY_MIN_PIX), SIZES(MILL_LIBRARY_MAX_PIX), &n_pix));
  arm->n_pix = noted(w, n_pix);
  MILL_CHECK(ATTRIBUTES(w, numbers, arm));
  if (w->way == READ) {
    MILL_CHECK(ATTRIBUTES(w, origin, arm)); /* not digested: a fit does not depend on the origin */
    MILL_CHECK(MILL_ALLOC(n_pix, &arm->wave_aa));
  }
  MILL_CHECK(array(w, "wavelength", F64, 1, &n_pix, arm->wave_aa));
  MILL_CHECK(integer(w, "log_flux", &e->log_flux));
  MILL_CHECK(walk_kind(w, arm));
  if (e->kind != MILL_EMULATOR_MLP && w->way == READ) {
    MILL_CHECK(mill_library_check_axes(arm, n_label, w->file->path));
    e->grid.n_axis = e->kind == MILL_EMULATOR_GRID ? n_label : 0;
    e->rbf.n_axis = e->kind == MILL_EMULATOR_RBF ? n_label : 0;
  }
  if (e->kind == MILL_EMULATOR_GRID)
    MILL_CHECK(walk_grid(w, i_arm, &e->grid));
  if (e->kind == MILL_EMULATOR_RBF)
    MILL_CHECK(walk_rbf(w, i_arm, &e->rbf));
  ENTER(w, "arms/arm%d", i_arm); /* walk_grid or walk_rbf left it */
  MILL_CHECK(counted(w, "n_layer", MILL_MAX_LAYER, &e->n_layer));
  for (int i = 0; i < e->n_layer; i++)
    MILL_CHECK(walk_layer(w, i, i == e->n_layer - 1 ? n_pix : MILL_MAX_WIDTH, e));
  return walk_error(w, i_arm, arm->n_pix, &arm->error);
}

/* Read or digest all contents of a library (w->way). */
static int walk_library(walk *w, mill_library *lib)
{
  MILL_CHECK(walk_labels(w, lib));
  ENTER(w, "hulls");
  MILL_CHECK(counted(w, "n_hull", MILL_MAX_HULL, &lib->n_hull));
  for (int i = 0; i < lib->n_hull; i++)
    MILL_CHECK(walk_hull(w, i, &lib->hull[i]));
  ENTER(w, "arms");
  MILL_CHECK(counted(w, "n_arm", MILL_MAX_ARM, &lib->n_arm));
  for (int i = 0; i < lib->n_arm; i++)
    MILL_CHECK(walk_arm(w, i, lib->n_label, &lib->arm[i]));
  return walk_guess(w, lib);
}

/* ---- the two ways ------------------------------------------------------------------------- */

int mill_library_read_contents(const mill_h5_file *file, mill_library *lib)
{
  walk w = {.way = READ, .file = file};
  return walk_library(&w, lib);
}

void mill_library_digest(const mill_library *lib, char hex[65])
{
  walk w = {.way = DIGEST};
  mill_sha256_init(&w.sha);
  digest_text(&w.sha, "starmill library contents 4");
  (void)walk_library(&w, (mill_library *)(uintptr_t)lib); /* DIGEST only reads, and cannot fail */
  mill_sha256_final(&w.sha, hex);
}
