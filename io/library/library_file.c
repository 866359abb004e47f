#include "io/library/library_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/files/whole_file.h"
#include "io/hdf5/hdf5_util.h"
#include "io/library/library_parts.h"
#include "kernels/base/error.h"
#include "kernels/math/rbf.h"
#include "src/system/file_roles.h"
#include "src/system/regular_file.h"
#include "src/system/version.h"

enum { MAX_PATH = sizeof((mill_library *)0)->path };

#define FORMAT_NAME "starmill library"
/* the first program that reads each format; written into every file, so that an older program
   can say what is needed */
static const char *const format_reader[MILL_LIBRARY_FORMAT + 1] = {"", "0.1.0", "0.1.0", "0.1.0",
                                                                   "0.1.0"};

static const char *const kind_name[MILL_LIBRARY_N_KIND] = {
    [MILL_EMULATOR_MLP] = "mlp", [MILL_EMULATOR_GRID] = "grid", [MILL_EMULATOR_RBF] = "rbf"};

/* types in the file and in memory */
#define DOUBLES H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE
#define FLOATS  H5T_IEEE_F32LE, H5T_NATIVE_FLOAT

#define REFUSED(file, format, ...)                                                                 \
  MILL_ERROR((file)->code, "%s: " format, (file)->path, ##__VA_ARGS__)

/* ---- reading ----------------------------------------------------------------------------- */

/* An attribute that counts groups or sizes, refused beyond the limit of this program. */
static int read_count(const mill_h5_file *file, const char *object, const char *name, int max,
                      int *out)
{
  MILL_CHECK(mill_h5_read_attr_int(file, object, name, out));
  if (*out < 1 || *out > max)
    return REFUSED(file, "attribute %s of %s is %d, this program takes 1 to %d", name, object, *out,
                   max);
  return MILL_OK;
}

static int read_format(const mill_h5_file *file, int *out)
{
  char text[64];
  int version = 0;
  if (!mill_h5_has_attr(file, "/", "format")) {
    if (mill_h5_exists(file, "lam") && mill_h5_exists(file, "layer0"))
      return REFUSED(file,
                     "is one arm's emulator, not a library; make one with starmill library import");
    return REFUSED(file, "is not a starmill library (no attribute format)");
  }
  MILL_CHECK(mill_h5_read_attr_text(file, "/", "format", text, sizeof text));
  if (strcmp(text, FORMAT_NAME) != 0)
    return REFUSED(file, "is not a starmill library (its attribute format is not '%s')",
                   FORMAT_NAME);
  MILL_CHECK(mill_h5_read_attr_int(file, "/", "format_version", &version));
  if (version > MILL_LIBRARY_FORMAT) {
    if (mill_h5_read_attr_text(file, "/", "reader_version", text, sizeof text) != MILL_OK ||
        !mill_library_is_printable(text))
      snprintf(text, sizeof text, "a newer version");
    return REFUSED(
        file,
        "library format %d is newer than %d, the newest that this program reads; use starmill "
        "%s or later",
        version, MILL_LIBRARY_FORMAT, text);
  }
  if (version < 1)
    return REFUSED(file, "library format %d does not exist", version);
  *out = version;
  return MILL_OK;
}

/* Attributes of a group that are members of a struct. */
typedef struct attribute {
  const char *name;
  char kind; /* 't' text, 'i' integer, 'd' double */
  size_t offset, size;
} attribute;

#define ATTRIBUTE(type, kind, name, member)                                                        \
  {                                                                                                \
    name, kind, offsetof(type, member), sizeof(((type *)0)->member)                                \
  }

static const attribute label_attribute[] = {
    ATTRIBUTE(mill_label, 't', "name", name),  ATTRIBUTE(mill_label, 't', "column", column),
    ATTRIBUTE(mill_label, 't', "unit", unit),  ATTRIBUTE(mill_label, 'i', "mapping", mapping),
    ATTRIBUTE(mill_label, 'd', "mean", mean),  ATTRIBUTE(mill_label, 'd', "std", std),
    ATTRIBUTE(mill_label, 'd', "min", min),    ATTRIBUTE(mill_label, 'd', "max", max),
    ATTRIBUTE(mill_label, 'd', "scale", scale)};

static const attribute arm_attribute[] = {
    ATTRIBUTE(mill_arm, 't', "name", name),
    ATTRIBUTE(mill_arm, 't', "setup", setup),
    ATTRIBUTE(mill_arm, 'd', "ln_wave0", ln_wave0),
    ATTRIBUTE(mill_arm, 'd', "ln_step", ln_step),
    ATTRIBUTE(mill_arm, 'd', "template_sigma", template_sigma_aa),
    ATTRIBUTE(mill_arm, 't', "template_sigma_origin", sigma_origin),
    ATTRIBUTE(mill_arm, 't', "source", source),
    ATTRIBUTE(mill_arm, 't', "revision", revision)};

#define N(array) (sizeof(array) / sizeof *(array))

static int read_attributes(const mill_h5_file *file, const char *at, size_t n, const attribute *a,
                           void *to)
{
  int err = MILL_OK;
  for (size_t i = 0; i < n; i++) {
    void *value = (char *)to + a[i].offset;
    err = a[i].kind == 't'   ? mill_h5_read_attr_text(file, at, a[i].name, value, a[i].size)
          : a[i].kind == 'i' ? mill_h5_read_attr_int(file, at, a[i].name, value)
                             : mill_h5_read_attr_double(file, at, a[i].name, value);
    MILL_TRY(err);
  }
done:
  return err;
}

static int write_attributes(const mill_h5_file *file, const char *at, size_t n, const attribute *a,
                            const void *from)
{
  int err = MILL_OK;
  for (size_t i = 0; i < n; i++) {
    const void *value = (const char *)from + a[i].offset;
    err = a[i].kind == 't' ? mill_h5_write_attr_text(file, at, a[i].name, value)
          : a[i].kind == 'i'
              ? mill_h5_write_attr_int(file, at, a[i].name, *(const int *)value)
              : mill_h5_write_attr_double(file, at, a[i].name, *(const double *)value);
    MILL_TRY(err);
  }
done:
  return err;
}

int mill_library_read_new(const mill_h5_file *file, const char *at, hid_t type, int n_dim,
                          const size_t *dim, void *out)
{
  size_t n = 1;
  for (int i = 0; i < n_dim; i++)
    n *= dim[i];
  MILL_CHECK(mill_alloc_bytes(n, H5Tget_size(type), out));
  return mill_h5_read(file, at, type, n_dim, dim, *(void **)out);
}

static int read_hull(const mill_h5_file *file, int i_hull, mill_hull *hull)
{
  char at[64];
  size_t dim[2];
  snprintf(at, sizeof at, "hulls/hull%d/labels", i_hull);
  MILL_CHECK(mill_h5_shape(file, at, 1, dim));
  if (dim[0] < 1 || dim[0] > MILL_MAX_LABEL)
    return REFUSED(file, "hull %d spans %zu labels, this program takes 1 to %d", i_hull, dim[0],
                   MILL_MAX_LABEL);
  hull->n_label = (int)dim[0];
  MILL_CHECK(mill_h5_read(file, at, H5T_NATIVE_INT, 1, dim, hull->label));
  snprintf(at, sizeof at, "hulls/hull%d/facets", i_hull);
  MILL_CHECK(mill_h5_shape(file, at, 2, dim));
  if (dim[0] > MILL_MAX_FACET || dim[1] != (size_t)hull->n_label + 1)
    return REFUSED(file,
                   "dataset /%s has the shape [%zu][%zu], expected at most %d facets of %d numbers",
                   at, dim[0], dim[1], MILL_MAX_FACET, hull->n_label + 1);
  hull->n_facet = (int)dim[0];
  return mill_library_read_new(file, at, H5T_NATIVE_DOUBLE, 2, dim, &hull->facet);
}

int mill_library_read_layer(const mill_h5_file *file, const char *group, int i_layer, int n_pix,
                            mill_emulator *net)
{
  char at[64];
  size_t dim[2];
  snprintf(at, sizeof at, "%slayer%d/weight", group, i_layer);
  MILL_CHECK(mill_h5_shape(file, at, 2, dim));
  const size_t max_out = i_layer == net->n_layer - 1 ? (size_t)n_pix : MILL_MAX_WIDTH;
  if (dim[0] > max_out || dim[1] > MILL_MAX_WIDTH)
    return REFUSED(file,
                   "dataset /%s has the shape [%zu][%zu], this program takes at most [%zu][%d]", at,
                   dim[0], dim[1], max_out, MILL_MAX_WIDTH);
  net->n_out[i_layer] = (int)dim[0];
  net->n_in[i_layer] = (int)dim[1];
  MILL_CHECK(mill_library_read_new(file, at, H5T_NATIVE_FLOAT, 2, dim, &net->weight[i_layer]));
  snprintf(at, sizeof at, "%slayer%d/bias", group, i_layer);
  return mill_library_read_new(file, at, H5T_NATIVE_FLOAT, 1, dim, &net->bias[i_layer]);
}

/* Kind of an arm's emulator, and of a perceptron its activation. */
static int read_kind(const mill_h5_file *file, int format, const char *at, mill_arm *arm)
{
  char text[64] = "mlp";
  if (format >= MILL_LIBRARY_KINDS)
    MILL_CHECK(mill_h5_read_attr_text(file, at, "emulator", text, sizeof text));
  int kind = 0;
  while (kind < MILL_LIBRARY_N_KIND && strcmp(text, kind_name[kind]) != 0)
    kind++;
  if (kind == MILL_LIBRARY_N_KIND)
    return REFUSED(
        file,
        "the emulator of arm %s is of none of the kinds that this program knows (mlp, grid, rbf)",
        arm->name);
  arm->emulator.kind = kind;
  if (kind != MILL_EMULATOR_MLP)
    return MILL_OK;
  MILL_CHECK(mill_h5_read_attr_text(file, at, "activation", text, sizeof text));
  if (strcmp(text, "silu") != 0)
    return REFUSED(file, "the activation of arm %s is none that this program knows (silu)",
                   arm->name);
  return MILL_OK;
}

static int read_grid(const mill_h5_file *file, int format, int i_arm, int n_label, mill_arm *arm)
{
  mill_spline_grid *grid = &arm->emulator.grid;
  char at[64];
  size_t dim[MILL_MAX_GRID_AXIS + 1], n_knot = 0, size = 1;
  MILL_CHECK(mill_library_check_axes(arm, n_label, file->path));
  grid->n_axis = n_label;
  if (format >= MILL_LIBRARY_LINEAR) {
    int degree = 0;
    snprintf(at, sizeof at, "arms/arm%d/grid", i_arm);
    MILL_CHECK(mill_h5_read_attr_int(file, at, "degree", &degree));
    if (degree != 1 && degree != 3)
      return REFUSED(file, "attribute degree of %s is %d, this program takes 1 and 3", at, degree);
    grid->linear = degree == 1;
  }
  const size_t order = (size_t)mill_spline_grid_order(grid);
  snprintf(at, sizeof at, "arms/arm%d/grid/coefficients", i_arm);
  MILL_CHECK(mill_h5_shape(file, at, n_label + 1, dim));
  for (int i = 0; i < n_label; i++)
    if (dim[i] < order || dim[i] > MILL_MAX_GRID_NODE)
      return REFUSED(file, "dataset /%s has %zu nodes of label %d, this program takes %zu to %d",
                     at, dim[i], i, order, MILL_MAX_GRID_NODE);
  if (dim[n_label] < 1 || dim[n_label] > MILL_MAX_WIDTH)
    return REFUSED(file, "dataset /%s has %zu components, this program takes 1 to %d", at,
                   dim[n_label], MILL_MAX_WIDTH);
  for (int i = 0; i <= n_label; i++) {
    size *= dim[i];
    if (size > MILL_MAX_GRID_COEF)
      return REFUSED(file, "dataset /%s has more than %d numbers, the most that this program takes",
                     at, MILL_MAX_GRID_COEF);
  }
  for (int i = 0; i < n_label; i++)
    grid->n_node[i] = (int)dim[i];
  grid->n_out = (int)dim[n_label];
  MILL_CHECK(mill_library_read_new(file, at, H5T_NATIVE_FLOAT, n_label + 1, dim, &grid->coef));
  for (int i = 0; i < n_label; i++) {
    n_knot = (size_t)grid->n_node[i] + order;
    snprintf(at, sizeof at, "arms/arm%d/grid/knots%d", i_arm, i);
    MILL_CHECK(mill_library_read_new(file, at, H5T_NATIVE_DOUBLE, 1, &n_knot, &grid->knot[i]));
  }
  return MILL_OK;
}

static int read_rbf(const mill_h5_file *file, int i_arm, int n_label, mill_arm *arm)
{
  mill_rbf *rbf = &arm->emulator.rbf;
  char at[64];
  size_t dim[2], n_axis = (size_t)n_label;
  MILL_CHECK(mill_library_check_axes(arm, n_label, file->path));
  rbf->n_axis = n_label;
  snprintf(at, sizeof at, "arms/arm%d/rbf", i_arm);
  MILL_CHECK(mill_h5_read_attr_int(file, at, "degree", &rbf->degree));
  if (rbf->degree < 0 || rbf->degree > MILL_MAX_RBF_DEGREE)
    return REFUSED(file, "attribute degree of %s is %d, this program takes 0 to %d", at,
                   rbf->degree, MILL_MAX_RBF_DEGREE);
  rbf->n_poly = mill_rbf_n_poly(n_label, rbf->degree);
  snprintf(at, sizeof at, "arms/arm%d/rbf/lengths", i_arm);
  MILL_CHECK(mill_h5_read(file, at, H5T_NATIVE_DOUBLE, 1, &n_axis, rbf->length));
  snprintf(at, sizeof at, "arms/arm%d/rbf/centers", i_arm);
  MILL_CHECK(mill_h5_shape(file, at, 2, dim));
  if (dim[0] < 1 || dim[0] > MILL_MAX_RBF_CENTER || dim[1] != n_axis)
    return REFUSED(file,
                   "dataset /%s has the shape [%zu][%zu], expected 1 to %d centers of %d labels",
                   at, dim[0], dim[1], MILL_MAX_RBF_CENTER, n_label);
  rbf->n_center = (int)dim[0];
  MILL_CHECK(mill_library_read_new(file, at, H5T_NATIVE_DOUBLE, 2, dim, &rbf->center));
  snprintf(at, sizeof at, "arms/arm%d/rbf/coefficients", i_arm);
  MILL_CHECK(mill_h5_shape(file, at, 2, dim));
  const size_t n_row = (size_t)rbf->n_center + (size_t)rbf->n_poly;
  if (dim[0] != n_row || dim[1] < 1 || dim[1] > MILL_MAX_WIDTH)
    return REFUSED(
        file,
        "dataset /%s has the shape [%zu][%zu], expected %zu rows (centers, then terms of the "
        "polynomial) of 1 to %d components",
        at, dim[0], dim[1], n_row, MILL_MAX_WIDTH);
  rbf->n_out = (int)dim[1];
  return mill_library_read_new(file, at, H5T_NATIVE_FLOAT, 2, dim, &rbf->coef);
}

/* What the templates get wrong, where the arm has it. */
static int read_error(const mill_h5_file *file, int i_arm, mill_arm *arm)
{
  mill_model_error *error = &arm->error;
  char at[64];
  size_t dim[2] = {(size_t)arm->n_pix, 0};
  snprintf(at, sizeof at, "arms/arm%d/model_error", i_arm);
  if (!mill_h5_exists(file, at))
    return MILL_OK;
  MILL_CHECK(mill_h5_read_attr_double(file, at, "correlation", &error->correlation));
  snprintf(at, sizeof at, "arms/arm%d/model_error/fraction", i_arm);
  MILL_CHECK(mill_library_read_new(file, at, H5T_NATIVE_FLOAT, 1, dim, &error->fraction));
  snprintf(at, sizeof at, "arms/arm%d/model_error/components", i_arm);
  if (!mill_h5_exists(file, at))
    return MILL_OK;
  MILL_CHECK(mill_h5_shape(file, at, 2, dim));
  if (dim[0] < 1 || dim[0] > MILL_MAX_ERROR || dim[1] != (size_t)arm->n_pix)
    return REFUSED(file,
                   "dataset /%s has the shape [%zu][%zu], expected 1 to %d components of %d pixels",
                   at, dim[0], dim[1], MILL_MAX_ERROR, arm->n_pix);
  MILL_CHECK(mill_library_read_new(file, at, H5T_NATIVE_FLOAT, 2, dim, &error->component));
  error->n_component = (int)dim[0];
  snprintf(at, sizeof at, "arms/arm%d/model_error/sigmas", i_arm);
  return mill_h5_read(file, at, H5T_NATIVE_DOUBLE, 1, dim, error->sigma);
}

static int read_arm(const mill_h5_file *file, int format, int i_arm, int n_label, mill_arm *arm)
{
  char at[64];
  size_t dim[1];
  snprintf(at, sizeof at, "arms/arm%d", i_arm);
  MILL_CHECK(read_attributes(file, at, N(arm_attribute), arm_attribute, arm));
  MILL_CHECK(read_kind(file, format, at, arm));
  MILL_CHECK(mill_h5_read_attr_int(file, at, "log_flux", &arm->emulator.log_flux));
  MILL_CHECK(read_count(file, at, "n_layer", MILL_MAX_LAYER, &arm->emulator.n_layer));
  snprintf(at, sizeof at, "arms/arm%d/wavelength", i_arm);
  MILL_CHECK(mill_h5_shape(file, at, 1, dim));
  if (dim[0] < MILL_LIBRARY_MIN_PIX || dim[0] > MILL_LIBRARY_MAX_PIX)
    return REFUSED(file, "arm %s has %zu pixels, this program takes %d to %d", arm->name, dim[0],
                   MILL_LIBRARY_MIN_PIX, MILL_LIBRARY_MAX_PIX);
  arm->n_pix = (int)dim[0];
  MILL_CHECK(mill_library_read_new(file, at, H5T_NATIVE_DOUBLE, 1, dim, &arm->wave_aa));
  if (arm->emulator.kind == MILL_EMULATOR_GRID)
    MILL_CHECK(read_grid(file, format, i_arm, n_label, arm));
  if (arm->emulator.kind == MILL_EMULATOR_RBF)
    MILL_CHECK(read_rbf(file, i_arm, n_label, arm));
  snprintf(at, sizeof at, "arms/arm%d/", i_arm);
  for (int i = 0; i < arm->emulator.n_layer; i++)
    MILL_CHECK(mill_library_read_layer(file, at, i, arm->n_pix, &arm->emulator));
  if (format >= MILL_LIBRARY_ERRORS)
    MILL_CHECK(read_error(file, i_arm, arm));
  return MILL_OK;
}

static int read_guess(const mill_h5_file *file, mill_library *lib)
{
  size_t dim[2];
  MILL_CHECK(mill_h5_shape(file, "guess/labels", 2, dim));
  if (dim[0] > MILL_LIBRARY_MAX_GUESS || dim[1] != (size_t)lib->n_label)
    return REFUSED(
        file,
        "dataset /guess/labels has the shape [%zu][%zu], expected at most %d templates of %d "
        "labels",
        dim[0], dim[1], MILL_LIBRARY_MAX_GUESS, lib->n_label);
  lib->n_guess = (int)dim[0];
  MILL_CHECK(
      mill_library_read_new(file, "guess/labels", H5T_NATIVE_DOUBLE, 2, dim, &lib->guess_label));
  MILL_CHECK(mill_h5_shape(file, "guess/vsini", 1, dim));
  if (dim[0] > MILL_LIBRARY_MAX_GUESS_VSINI)
    return REFUSED(file, "dataset /guess/vsini has %zu rotations, this program takes 1 to %d",
                   dim[0], MILL_LIBRARY_MAX_GUESS_VSINI);
  lib->n_guess_vsini = (int)dim[0];
  return mill_h5_read(file, "guess/vsini", H5T_NATIVE_DOUBLE, 1, dim, lib->guess_vsini_km_s);
}

/* Lines of text for people, where there are any. */
static int read_report(const mill_h5_file *file, mill_library *lib)
{
  if (!mill_h5_has_attr(file, "/", "report"))
    return MILL_OK;
  MILL_CHECK(MILL_ALLOC(MILL_LIBRARY_MAX_REPORT, &lib->report));
  MILL_CHECK(mill_h5_read_attr_text(file, "/", "report", lib->report, MILL_LIBRARY_MAX_REPORT));
  for (const char *c = lib->report; *c; c++)
    if (*c != '\n' && (*c < ' ' || *c > '~'))
      return REFUSED(file, "attribute report has unprintable characters");
  return MILL_OK;
}

int mill_library_read(const char *path, mill_library *lib)
{
  int err = MILL_OK;
  mill_h5_file file = {.id = H5I_INVALID_HID};
  char stored[65], at[64];
  int format = 0;
  if (strlen(path) >= sizeof lib->path)
    MILL_FAIL(MILL_ERR_LIBRARY, "the library's path is longer than %zu bytes: %.80s...",
              sizeof lib->path - 1, path);
  MILL_TRY(mill_h5_open(path, MILL_ERR_LIBRARY, &file));
  MILL_TRY(
      read_format(&file, &format)); /* first: a newer format may hold what the scan does not know */
  MILL_TRY(mill_h5_scan(&file));
  MILL_TRY(mill_h5_read_attr_text(&file, "/", "name", lib->name, sizeof lib->name));
  MILL_TRY(read_count(&file, "labels", "n_label", MILL_MAX_LABEL, &lib->n_label));
  for (int i = 0; i < lib->n_label; i++) {
    snprintf(at, sizeof at, "labels/label%d", i);
    MILL_TRY(read_attributes(&file, at, N(label_attribute), label_attribute, &lib->label[i]));
  }
  MILL_TRY(read_count(&file, "hulls", "n_hull", MILL_MAX_HULL, &lib->n_hull));
  for (int i = 0; i < lib->n_hull; i++)
    MILL_TRY(read_hull(&file, i, &lib->hull[i]));
  MILL_TRY(read_count(&file, "arms", "n_arm", MILL_MAX_ARM, &lib->n_arm));
  for (int i = 0; i < lib->n_arm; i++)
    MILL_TRY(read_arm(&file, format, i, lib->n_label, &lib->arm[i]));
  MILL_TRY(read_guess(&file, lib));
  MILL_TRY(read_report(&file, lib));
  MILL_TRY(mill_library_check(lib, path));
  MILL_TRY(mill_h5_read_attr_text(&file, "/", "hash", stored, sizeof stored));
  mill_library_digest(lib, lib->hash);
  if (strcmp(stored, lib->hash) != 0)
    MILL_FAIL(MILL_ERR_LIBRARY,
              "%s: its contents do not match its attribute hash, so it was damaged or changed; "
              "make it again",
              path);
  snprintf(lib->path, sizeof lib->path, "%s", path);
done:
  mill_h5_close(&file);
  if (err != MILL_OK)
    mill_library_clear(lib);
  return err;
}

/* ---- writing ----------------------------------------------------------------------------- */

/* A dataset without a unit, of a group. */
static int put(const mill_h5_file *file, const char *group, const char *name, hid_t file_type,
               hid_t mem_type, int n_dim, const size_t *dim, const void *data,
               const char *description)
{
  char at[96];
  snprintf(at, sizeof at, "%s/%s", group, name);
  return mill_h5_write(file, at, file_type, mem_type, n_dim, dim, data, NULL, description);
}

static int write_hull(const mill_h5_file *file, int i_hull, const mill_hull *hull)
{
  char at[64];
  const size_t dim[2] = {(size_t)hull->n_facet, (size_t)hull->n_label + 1};
  const size_t n_label = (size_t)hull->n_label;
  snprintf(at, sizeof at, "hulls/hull%d", i_hull);
  MILL_CHECK(mill_h5_write_group(file, at));
  MILL_CHECK(put(file, at, "labels", H5T_STD_I32LE, H5T_NATIVE_INT, 1, &n_label, hull->label,
                 "indices of the labels that this hull spans"));
  return put(file, at, "facets", DOUBLES, 2, dim, hull->facet,
             "unit normals and offsets in mapped labels, inside: a.x + b <= 0");
}

static int write_grid(const mill_h5_file *file, int format, int i_arm, const mill_spline_grid *grid)
{
  char at[64];
  size_t dim[MILL_MAX_GRID_AXIS + 1];
  const int order = mill_spline_grid_order(grid);
  snprintf(at, sizeof at, "arms/arm%d/grid", i_arm);
  MILL_CHECK(mill_h5_write_group(file, at));
  if (format >= MILL_LIBRARY_LINEAR)
    MILL_CHECK(mill_h5_write_attr_int(file, at, "degree", order - 1));
  for (int i = 0; i < grid->n_axis; i++) {
    const size_t n_knot = (size_t)(grid->n_node[i] + order);
    dim[i] = (size_t)grid->n_node[i];
    char name[24];
    snprintf(name, sizeof name, "knots%d", i);
    MILL_CHECK(put(file, at, name, DOUBLES, 1, &n_knot, grid->knot[i],
                   order == 2 ? "nodes of this label with both ends twice, mapped"
                              : "knots of the cubic splines over this label, mapped"));
  }
  dim[grid->n_axis] = (size_t)grid->n_out;
  return put(file, at, "coefficients", FLOATS, grid->n_axis + 1, dim, grid->coef,
             "spline coefficients, by label in their order and then by component");
}

static int write_rbf(const mill_h5_file *file, int i_arm, const mill_rbf *rbf)
{
  char at[64];
  const size_t n_axis = (size_t)rbf->n_axis;
  const size_t center[2] = {(size_t)rbf->n_center, n_axis};
  const size_t coef[2] = {(size_t)rbf->n_center + (size_t)rbf->n_poly, (size_t)rbf->n_out};
  snprintf(at, sizeof at, "arms/arm%d/rbf", i_arm);
  MILL_CHECK(mill_h5_write_group(file, at));
  MILL_CHECK(mill_h5_write_attr_int(file, at, "degree", rbf->degree));
  MILL_CHECK(put(file, at, "lengths", DOUBLES, 1, &n_axis, rbf->length,
                 "units of the mapped labels in which distances are measured"));
  MILL_CHECK(put(file, at, "centers", DOUBLES, 2, center, rbf->center,
                 "mapped labels of the radial functions' centers"));
  return put(file, at, "coefficients", FLOATS, 2, coef, rbf->coef,
             "of the centers, then of the polynomial's terms, by component");
}

static int write_error(const mill_h5_file *file, int i_arm, int n_pix,
                       const mill_model_error *error)
{
  char at[64];
  const size_t n = (size_t)n_pix, dim[2] = {(size_t)error->n_component, n};
  snprintf(at, sizeof at, "arms/arm%d/model_error", i_arm);
  MILL_CHECK(mill_h5_write_group(file, at));
  MILL_CHECK(mill_h5_write_attr_double(file, at, "correlation", error->correlation));
  MILL_CHECK(put(file, at, "fraction", FLOATS, 1, &n, error->fraction,
                 "rms of what the components leave, relative to the template's flux"));
  if (error->n_component == 0)
    return MILL_OK;
  MILL_CHECK(put(file, at, "components", FLOATS, 2, dim, error->component,
                 "patterns of error relative to the template's flux"));
  return put(file, at, "sigmas", DOUBLES, 1, dim, error->sigma,
             "standard deviations of the components' shares");
}

static int write_arm(const mill_h5_file *file, int format, int i_arm, const mill_arm *arm)
{
  char at[64];
  const mill_emulator *net = &arm->emulator;
  const size_t n_pix = (size_t)arm->n_pix;
  snprintf(at, sizeof at, "arms/arm%d", i_arm);
  MILL_CHECK(mill_h5_write_group(file, at));
  MILL_CHECK(write_attributes(file, at, N(arm_attribute), arm_attribute, arm));
  if (format >= MILL_LIBRARY_KINDS)
    MILL_CHECK(mill_h5_write_attr_text(file, at, "emulator", kind_name[net->kind]));
  if (net->kind == MILL_EMULATOR_MLP)
    MILL_CHECK(mill_h5_write_attr_text(file, at, "activation", "silu"));
  MILL_CHECK(mill_h5_write_attr_int(file, at, "log_flux", net->log_flux));
  MILL_CHECK(mill_h5_write_attr_int(file, at, "n_layer", net->n_layer));
  snprintf(at, sizeof at, "arms/arm%d/wavelength", i_arm);
  MILL_CHECK(mill_h5_write(file, at, DOUBLES, 1, &n_pix, arm->wave_aa, "Angstrom",
                           "vacuum wavelength, uniform in its logarithm"));
  if (net->kind == MILL_EMULATOR_GRID)
    MILL_CHECK(write_grid(file, format, i_arm, &net->grid));
  if (net->kind == MILL_EMULATOR_RBF)
    MILL_CHECK(write_rbf(file, i_arm, &net->rbf));
  for (int i = 0; i < net->n_layer; i++) {
    const size_t dim[2] = {(size_t)net->n_out[i], (size_t)net->n_in[i]};
    snprintf(at, sizeof at, "arms/arm%d/layer%d", i_arm, i);
    MILL_CHECK(mill_h5_write_group(file, at));
    MILL_CHECK(
        put(file, at, "weight", FLOATS, 2, dim, net->weight[i], "weights, one row per output"));
    MILL_CHECK(put(file, at, "bias", FLOATS, 1, dim, net->bias[i], "biases, one per output"));
  }
  if (arm->error.fraction)
    MILL_CHECK(write_error(file, i_arm, arm->n_pix, &arm->error));
  return MILL_OK;
}

static int write_guess(const mill_h5_file *file, const mill_library *lib)
{
  const size_t dim[2] = {(size_t)lib->n_guess, (size_t)lib->n_label};
  const size_t n_vsini = (size_t)lib->n_guess_vsini;
  MILL_CHECK(mill_h5_write_group(file, "guess"));
  MILL_CHECK(mill_h5_write(file, "guess/labels", DOUBLES, 2, dim, lib->guess_label, NULL,
                           "labels of the templates of the initial guess, in the labels' units"));
  return mill_h5_write(file, "guess/vsini", DOUBLES, 1, &n_vsini, lib->guess_vsini_km_s, "km s**-1",
                       "v sin i at which each template is tried");
}

/* The whole file as bytes: HDF5 leaves a file that it cannot write in an undefined state, so it
   never writes to the disk itself. */
static int make_image(const char *name, const mill_library *lib, void **image, size_t *n_byte)
{
  int err = MILL_OK;
  char hash[65], program[128], at[64];
  mill_h5_file file = {.id = H5I_INVALID_HID};
  const int format = mill_library_format(lib);
  snprintf(program, sizeof program, "starmill %s (%s)", mill_version(), mill_version_revision());
  MILL_TRY(mill_h5_create_image(name, &file));
  mill_library_digest(lib, hash);
  MILL_TRY(mill_h5_write_attr_text(&file, "/", "format", FORMAT_NAME));
  MILL_TRY(mill_h5_write_attr_int(&file, "/", "format_version", format));
  MILL_TRY(mill_h5_write_attr_text(&file, "/", "reader_version", format_reader[format]));
  MILL_TRY(mill_h5_write_attr_text(&file, "/", "written_by", program));
  MILL_TRY(mill_h5_write_attr_text(&file, "/", "name", lib->name));
  MILL_TRY(mill_h5_write_attr_text(&file, "/", "hash", hash));
  MILL_TRY(mill_h5_write_group(&file, "labels"));
  MILL_TRY(mill_h5_write_attr_int(&file, "labels", "n_label", lib->n_label));
  for (int i = 0; i < lib->n_label; i++) {
    snprintf(at, sizeof at, "labels/label%d", i);
    MILL_TRY(mill_h5_write_group(&file, at));
    MILL_TRY(write_attributes(&file, at, N(label_attribute), label_attribute, &lib->label[i]));
  }
  MILL_TRY(mill_h5_write_group(&file, "hulls"));
  MILL_TRY(mill_h5_write_attr_int(&file, "hulls", "n_hull", lib->n_hull));
  for (int i = 0; i < lib->n_hull; i++)
    MILL_TRY(write_hull(&file, i, &lib->hull[i]));
  MILL_TRY(mill_h5_write_group(&file, "arms"));
  MILL_TRY(mill_h5_write_attr_int(&file, "arms", "n_arm", lib->n_arm));
  for (int i = 0; i < lib->n_arm; i++)
    MILL_TRY(write_arm(&file, format, i, &lib->arm[i]));
  MILL_TRY(write_guess(&file, lib));
  if (lib->report)
    MILL_TRY(mill_h5_write_attr_text(&file, "/", "report", lib->report));
  MILL_TRY(mill_h5_get_image(&file, image, n_byte));
done:
  mill_h5_close(&file);
  return err;
}

/* May a library be written at output?  path: the end of its links, as what is renamed would replace
   a link. */
static int find_end(const char *output, int overwrite, char path[MAX_PATH])
{
  struct stat status;
  char folder[MAX_PATH] = ".";
  MILL_CHECK(mill_resolve_links(output, path, MAX_PATH));
  const size_t n = (size_t)(mill_base_name(path) - path);
  if (stat(path, &status) == 0) {
    if (!S_ISREG(status.st_mode))
      return MILL_ERROR(MILL_ERR_OUTPUT, "%s: exists and is not a regular file", path);
    MILL_CHECK(mill_refuse_existing(path, overwrite));
    MILL_CHECK(mill_refuse_foreign(path, "--output", "starmill library"));
  }
  if (n > 0)
    snprintf(folder, sizeof folder, "%.*s", (int)(n > 1 ? n - 1 : n), path);
  if (access(folder, W_OK | X_OK) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be written into the folder %s: %s", path, folder,
                      strerror(errno));
  return MILL_OK;
}

int mill_library_writable(const char *path, int overwrite)
{
  char end[MAX_PATH];
  return find_end(path, overwrite, end);
}

int mill_library_write(const char *path, const mill_library *lib, int overwrite)
{
  int err = MILL_OK;
  char end[MAX_PATH], temporary[MAX_PATH + 32];
  void *image = NULL;
  size_t n_byte = 0;
  MILL_TRY(mill_library_check(lib, path));
  MILL_TRY(find_end(path, overwrite, end));
  snprintf(temporary, sizeof temporary, "%s.tmp-%ld", end, (long)getpid());
  MILL_TRY(make_image(temporary, lib, &image, &n_byte));
  MILL_TRY(mill_whole_file_write(end, temporary, image, n_byte));
done:
  mill_free(image);
  return err;
}
