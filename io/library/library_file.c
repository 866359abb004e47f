#include "io/library/library_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/result/columns.h"
#include "io/hdf5/hdf5_util.h"
#include "io/files/sha256.h"
#include "kernels/base/error.h"
#include "kernels/math/hull.h"
#include "kernels/math/rbf.h"
#include "src/system/version.h"

#define FORMAT_NAME "starmill library"
/* the first program that reads each format; written into every file, so that an older program
   can say what is needed */
static const char *const format_reader[MILL_LIBRARY_FORMAT + 1] = {"", "0.1.0", "0.1.0"};

enum {
  FORMAT_MLP = 1,   /* multilayer perceptrons only */
  FORMAT_KINDS = 2, /* an arm's attribute emulator says which kind it has: mlp, grid or rbf */
  MIN_PIX = 8,
  MAX_PIX = 1 << 20,
  MAX_FACET = 100000,
  MAX_GUESS = 100000,
  MAX_GUESS_VSINI = sizeof((mill_library){0}.guess_vsini_km_s) / sizeof(double)
};

static const char *const kind_name[] = {
    [MILL_EMULATOR_MLP] = "mlp", [MILL_EMULATOR_GRID] = "grid", [MILL_EMULATOR_RBF] = "rbf"};
enum { N_KIND = sizeof kind_name / sizeof *kind_name };

/* ---- consistency ------------------------------------------------------------------------- */

static int all_finite_f32(size_t n, const float *x)
{
  for (size_t i = 0; i < n; i++)
    if (!isfinite(x[i]))
      return 0;
  return 1;
}

static int all_finite_f64(size_t n, const double *x)
{
  for (size_t i = 0; i < n; i++)
    if (!isfinite(x[i]))
      return 0;
  return 1;
}

/* The oldest format that can hold the library: files with what older programs know stay readable
   for them, and as they were. */
static int format_of(const mill_library *lib)
{
  for (int i = 0; i < lib->n_arm; i++)
    if (lib->arm[i].emulator.kind != MILL_EMULATOR_MLP)
      return FORMAT_KINDS;
  return FORMAT_MLP;
}

/* Numbers in the coefficients of a grid whose sizes were checked. */
static size_t grid_size(const mill_spline_grid *grid)
{
  size_t n = (size_t)grid->n_out;
  for (int i = 0; i < grid->n_axis; i++)
    n *= (size_t)grid->n_node[i];
  return n;
}

/* The same of radial functions. */
static size_t rbf_size(const mill_rbf *rbf)
{
  return ((size_t)rbf->n_center + (size_t)rbf->n_poly) * (size_t)rbf->n_out;
}

/* Names become keys of configuration files and names of columns. */
static int is_name(const char *name)
{
  if (!*name || strlen(name) >= MILL_MAX_NAME)
    return 0;
  for (const char *c = name; *c; c++)
    if (!isascii((unsigned char)*c) || !(isalnum((unsigned char)*c) || *c == '_'))
      return 0;
  return 1;
}

/* Texts are printed on terminals. */
static int is_printable(const char *text)
{
  for (const char *c = text; *c; c++)
    if (!isascii((unsigned char)*c) || !isprint((unsigned char)*c))
      return 0;
  return 1;
}

static int check_labels(const mill_library *lib, const char *where)
{
  int err = MILL_OK;
  if (lib->n_label < 1 || lib->n_label > MILL_MAX_LABEL)
    MILL_FAIL(MILL_ERR_LIBRARY, "%s: has %d labels, this program takes 1 to %d", where,
              lib->n_label, MILL_MAX_LABEL);
  for (int i = 0; i < lib->n_label; i++) {
    const mill_label *label = &lib->label[i];
    if (!is_name(label->name) || !is_name(label->column))
      MILL_FAIL(MILL_ERR_LIBRARY,
                "%s: name or column of label %d is not made of letters, digits "
                "and _",
                where, i);
    if (!is_printable(label->unit))
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: the unit of label %s has unprintable characters", where,
                label->name);
    if (strcmp(label->name, "vrad") == 0 || strcmp(label->name, "vsini") == 0 ||
        strcmp(label->column, "VRAD") == 0 || strcmp(label->column, "VSINI") == 0)
      MILL_FAIL(MILL_ERR_LIBRARY,
                "%s: a label may not be called %s (column %s), every fit has one "
                "already",
                where, label->name, label->column);
    for (int j = 0; j < i; j++)
      if (strcmp(label->name, lib->label[j].name) == 0 ||
          strcmp(label->column, lib->label[j].column) == 0)
        MILL_FAIL(MILL_ERR_LIBRARY, "%s: label %s (column %s) is there twice", where, label->name,
                  label->column);
    if (label->mapping != MILL_MAP_LINEAR && label->mapping != MILL_MAP_LOG10)
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: mapping %d of label %s is none of 0 (linear), 1 (log10)",
                where, label->mapping, label->name);
    if (!isfinite(label->mean) || !isfinite(label->std) || !(label->std > 0))
      MILL_FAIL(MILL_ERR_LIBRARY,
                "%s: label %s has mean %g and std %g; they must be finite and std "
                "above 0",
                where, label->name, label->mean, label->std);
    if (!isfinite(label->min) || !isfinite(label->max) || !(label->min < label->max) ||
        (label->mapping == MILL_MAP_LOG10 && !(label->min > 0)))
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: label %s has the impossible range %g to %g", where,
                label->name, label->min, label->max);
    if (!isfinite(label->scale) || !(label->scale > 0))
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: the scale %g of label %s is not above 0", where,
                label->scale, label->name);
  }
done:
  return err;
}

static int check_hulls(const mill_library *lib, const char *where)
{
  int err = MILL_OK;
  int in_hull[MILL_MAX_LABEL] = {0};
  if (lib->n_hull < 1 || lib->n_hull > MILL_MAX_HULL)
    MILL_FAIL(MILL_ERR_LIBRARY, "%s: has %d hulls, this program takes 1 to %d", where, lib->n_hull,
              MILL_MAX_HULL);
  for (int i = 0; i < lib->n_hull; i++) {
    const mill_hull *hull = &lib->hull[i];
    if (hull->n_label < 1 || hull->n_label > lib->n_label)
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: hull %d spans %d labels of %d", where, i, hull->n_label,
                lib->n_label);
    for (int j = 0; j < hull->n_label; j++) {
      if (hull->label[j] < 0 || hull->label[j] >= lib->n_label)
        MILL_FAIL(MILL_ERR_LIBRARY, "%s: hull %d names label %d, there are %d", where, i,
                  hull->label[j], lib->n_label);
      for (int k = 0; k < j; k++)
        if (hull->label[j] == hull->label[k])
          MILL_FAIL(MILL_ERR_LIBRARY, "%s: hull %d names label %d twice", where, i, hull->label[j]);
      in_hull[hull->label[j]] = 1;
    }
    if (hull->n_facet <= hull->n_label || hull->n_facet > MAX_FACET || !hull->facet)
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: hull %d over %d labels has %d facets, expected %d to %d",
                where, i, hull->n_label, hull->n_facet, hull->n_label + 1, MAX_FACET);
    const int n_col = hull->n_label + 1;
    for (int j = 0; j < hull->n_facet; j++) {
      const double *facet = hull->facet + (size_t)j * (size_t)n_col;
      double norm2 = 0;
      for (int k = 0; k < hull->n_label; k++)
        norm2 += facet[k] * facet[k];
      /* written so that NaN fails */
      if (!(fabs(sqrt(norm2) - 1) <= 1e-6) || !isfinite(facet[hull->n_label]))
        MILL_FAIL(MILL_ERR_LIBRARY,
                  "%s: the normal of facet %d of hull %d has length %g, expected 1 "
                  "with a finite offset",
                  where, j, i, sqrt(norm2));
    }
  }
  for (int i = 0; i < lib->n_label; i++)
    if (!in_hull[i])
      MILL_FAIL(MILL_ERR_LIBRARY,
                "%s: label %s is in no hull, so a fit could leave the training "
                "stars",
                where, lib->label[i].name);
done:
  return err;
}

/* A clamped knot vector: four times the first, ascending, four times the last. */
static int check_knots(const mill_arm *arm, const char *label, int n_node, const double *knot,
                       const char *where)
{
  int err = MILL_OK;
  for (int i = 0; i < n_node + 4; i++) {
    if (!isfinite(knot[i]))
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: knot %d of label %s of arm %s is not finite", where, i,
                label, arm->name);
    if (i == 0)
      continue;
    const int clamped = i < 4 || i > n_node;
    if (clamped && knot[i] > knot[i - 1])
      MILL_FAIL(MILL_ERR_LIBRARY,
                "%s: the first and the last four knots of label %s of arm %s are not equal (knot "
                "%d is %.9g after %.9g)",
                where, label, arm->name, i, knot[i], knot[i - 1]);
    if (knot[i] < knot[i - 1] || (!clamped && knot[i] <= knot[i - 1]))
      MILL_FAIL(MILL_ERR_LIBRARY,
                "%s: the knots of label %s of arm %s do not ascend (knot %d is %.9g after %.9g)",
                where, label, arm->name, i, knot[i], knot[i - 1]);
  }
done:
  return err;
}

static int check_grid(const mill_library *lib, const mill_arm *arm, const char *where)
{
  int err = MILL_OK;
  const mill_spline_grid *grid = &arm->emulator.grid;
  if (lib->n_label > MILL_MAX_GRID_AXIS)
    MILL_FAIL(MILL_ERR_LIBRARY,
              "%s: the emulator of arm %s is a grid of %d labels, this program takes 1 to %d",
              where, arm->name, lib->n_label, MILL_MAX_GRID_AXIS);
  if (grid->n_axis != lib->n_label)
    MILL_FAIL(MILL_ERR_LIBRARY, "%s: the grid of arm %s has %d labels, the library %d", where,
              arm->name, grid->n_axis, lib->n_label);
  if (arm->emulator.n_layer != 1)
    MILL_FAIL(MILL_ERR_LIBRARY, "%s: the grid of arm %s is followed by %d layers, expected 1",
              where, arm->name, arm->emulator.n_layer);
  if (grid->n_out < 1 || grid->n_out > MILL_MAX_WIDTH)
    MILL_FAIL(MILL_ERR_LIBRARY,
              "%s: the grid of arm %s has %d components, this program takes 1 to %d", where,
              arm->name, grid->n_out, MILL_MAX_WIDTH);
  size_t size = (size_t)grid->n_out;
  for (int i = 0; i < grid->n_axis; i++) {
    if (grid->n_node[i] < 4 || grid->n_node[i] > MILL_MAX_GRID_NODE || !grid->knot[i])
      MILL_FAIL(MILL_ERR_LIBRARY,
                "%s: the grid of arm %s has %d nodes of label %s, this program takes 4 to %d",
                where, arm->name, grid->n_node[i], lib->label[i].name, MILL_MAX_GRID_NODE);
    MILL_TRY(check_knots(arm, lib->label[i].name, grid->n_node[i], grid->knot[i], where));
    size *= (size_t)grid->n_node[i];
    if (size > MILL_MAX_GRID_COEF)
      MILL_FAIL(MILL_ERR_LIBRARY,
                "%s: the grid of arm %s has more than %d coefficients, the most that this program "
                "takes",
                where, arm->name, MILL_MAX_GRID_COEF);
  }
  if (!grid->coef || !all_finite_f32(size, grid->coef))
    MILL_FAIL(MILL_ERR_LIBRARY, "%s: the grid of arm %s has a coefficient that is not finite",
              where, arm->name);
done:
  return err;
}

static int check_rbf(const mill_library *lib, const mill_arm *arm, const char *where)
{
  int err = MILL_OK;
  const mill_rbf *rbf = &arm->emulator.rbf;
  if (lib->n_label > MILL_MAX_GRID_AXIS)
    MILL_FAIL(MILL_ERR_LIBRARY,
              "%s: the radial functions of arm %s depend on %d labels, this program takes 1 to %d",
              where, arm->name, lib->n_label, MILL_MAX_GRID_AXIS);
  if (rbf->n_axis != lib->n_label)
    MILL_FAIL(MILL_ERR_LIBRARY, "%s: the radial functions of arm %s have %d labels, the library %d",
              where, arm->name, rbf->n_axis, lib->n_label);
  if (arm->emulator.n_layer != 1)
    MILL_FAIL(MILL_ERR_LIBRARY,
              "%s: the radial functions of arm %s are followed by %d layers, expected 1", where,
              arm->name, arm->emulator.n_layer);
  if (rbf->n_out < 1 || rbf->n_out > MILL_MAX_WIDTH)
    MILL_FAIL(MILL_ERR_LIBRARY,
              "%s: the radial functions of arm %s have %d components, this program takes 1 to %d",
              where, arm->name, rbf->n_out, MILL_MAX_WIDTH);
  if (rbf->n_center < 1 || rbf->n_center > MILL_MAX_RBF_CENTER)
    MILL_FAIL(MILL_ERR_LIBRARY, "%s: arm %s has %d centers, this program takes 1 to %d", where,
              arm->name, rbf->n_center, MILL_MAX_RBF_CENTER);
  /* |x|^3 needs a linear polynomial beside it to be well posed, but not to be evaluated */
  if (rbf->degree < 0 || rbf->degree > MILL_MAX_RBF_DEGREE)
    MILL_FAIL(MILL_ERR_LIBRARY,
              "%s: the polynomial of arm %s has degree %d, this program takes 0 to %d", where,
              arm->name, rbf->degree, MILL_MAX_RBF_DEGREE);
  if (rbf->n_poly != mill_rbf_n_poly(rbf->n_axis, rbf->degree))
    MILL_FAIL(MILL_ERR_LIBRARY,
              "%s: the polynomial of arm %s has %d terms, one of degree %d has %d", where,
              arm->name, rbf->n_poly, rbf->degree, mill_rbf_n_poly(rbf->n_axis, rbf->degree));
  for (int i = 0; i < rbf->n_axis; i++)
    if (!isfinite(rbf->length[i]) || !(rbf->length[i] > 0))
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: the length %g of label %s of arm %s is not above 0", where,
                rbf->length[i], lib->label[i].name, arm->name);
  if (!rbf->center || !all_finite_f64((size_t)rbf->n_center * (size_t)rbf->n_axis, rbf->center))
    MILL_FAIL(MILL_ERR_LIBRARY, "%s: arm %s has a center that is not finite", where, arm->name);
  if (rbf_size(rbf) > MILL_MAX_RBF_COEF)
    MILL_FAIL(MILL_ERR_LIBRARY,
              "%s: the radial functions of arm %s have more than %d coefficients, the most that "
              "this program takes",
              where, arm->name, MILL_MAX_RBF_COEF);
  if (!rbf->coef || !all_finite_f32(rbf_size(rbf), rbf->coef))
    MILL_FAIL(MILL_ERR_LIBRARY,
              "%s: the radial functions of arm %s have a coefficient that is not finite", where,
              arm->name);
done:
  return err;
}

static int check_emulator(const mill_library *lib, const mill_arm *arm, const char *where)
{
  int err = MILL_OK;
  const mill_emulator *net = &arm->emulator;
  const char *before = "the labels";
  int n_before = lib->n_label;
  if (net->kind < 0 || net->kind >= N_KIND)
    MILL_FAIL(MILL_ERR_LIBRARY,
              "%s: the emulator of arm %s is of kind %d, this program knows 0 to %d", where,
              arm->name, net->kind, N_KIND - 1);
  if (net->kind == MILL_EMULATOR_GRID) {
    MILL_TRY(check_grid(lib, arm, where));
    before = "components of the grid";
    n_before = net->grid.n_out;
  }
  if (net->kind == MILL_EMULATOR_RBF) {
    MILL_TRY(check_rbf(lib, arm, where));
    before = "components of the radial functions";
    n_before = net->rbf.n_out;
  }
  if (net->n_layer < 1 || net->n_layer > MILL_MAX_LAYER)
    MILL_FAIL(MILL_ERR_LIBRARY,
              "%s: the emulator of arm %s has %d layers, this program takes 1 to "
              "%d",
              where, arm->name, net->n_layer, MILL_MAX_LAYER);
  if (net->log_flux != 0 && net->log_flux != 1)
    MILL_FAIL(MILL_ERR_LIBRARY, "%s: log_flux of arm %s is %d, expected 0 or 1", where, arm->name,
              net->log_flux);
  for (int i = 0; i < net->n_layer; i++) {
    const int is_last = i == net->n_layer - 1;
    if (net->n_in[i] != n_before)
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: layer %d of arm %s takes %d inputs, expected %d (%s)", where,
                i, arm->name, net->n_in[i], n_before, before);
    if (is_last && net->n_out[i] != arm->n_pix)
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: the last layer of arm %s gives %d pixels, expected %d",
                where, arm->name, net->n_out[i], arm->n_pix);
    if (!is_last && (net->n_out[i] < 1 || net->n_out[i] > MILL_MAX_WIDTH))
      MILL_FAIL(MILL_ERR_LIBRARY,
                "%s: layer %d of arm %s has %d neurons, this program takes 1 to %d", where, i,
                arm->name, net->n_out[i], MILL_MAX_WIDTH);
    const size_t n_out = (size_t)net->n_out[i];
    if (!net->weight[i] || !net->bias[i] ||
        !all_finite_f32(n_out * (size_t)net->n_in[i], net->weight[i]) ||
        !all_finite_f32(n_out, net->bias[i]))
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: layer %d of arm %s has a weight or bias that is not finite",
                where, i, arm->name);
    before = "outputs of the layer before";
    n_before = net->n_out[i];
  }
done:
  return err;
}

static int check_arms(const mill_library *lib, const char *where)
{
  int err = MILL_OK;
  if (lib->n_arm < 1 || lib->n_arm > MILL_MAX_ARM)
    MILL_FAIL(MILL_ERR_LIBRARY, "%s: has %d arms, this program takes 1 to %d", where, lib->n_arm,
              MILL_MAX_ARM);
  for (int i = 0; i < lib->n_arm; i++) {
    const mill_arm *arm = &lib->arm[i];
    if (!is_name(arm->name))
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: the name of arm %d is not made of letters, digits and _",
                where, i);
    for (const char *c = arm->name; *c; c++)
      if (isupper((unsigned char)*c))
        MILL_FAIL(MILL_ERR_LIBRARY, "%s: the name of arm %s is not in lower case", where,
                  arm->name);
    for (int j = 0; j < i; j++)
      if (strcmp(arm->name, lib->arm[j].name) == 0)
        MILL_FAIL(MILL_ERR_LIBRARY, "%s: two arms are called %s", where, arm->name);
    if (!is_printable(arm->setup) || !is_printable(arm->sigma_origin) ||
        !is_printable(arm->source) || !is_printable(arm->revision))
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: a text of arm %s has unprintable characters", where,
                arm->name);
    if (arm->n_pix < MIN_PIX || arm->n_pix > MAX_PIX || !arm->wave_aa)
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: arm %s has %d pixels, this program takes %d to %d", where,
                arm->name, arm->n_pix, MIN_PIX, MAX_PIX);
    if (!isfinite(arm->ln_wave0) || !isfinite(arm->ln_step) || !(arm->ln_step > 0))
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: the step of arm %s in ln wavelength is %g, expected above 0",
                where, arm->name, arm->ln_step);
    for (int j = 0; j < arm->n_pix; j++)
      if (!(fabs(log(arm->wave_aa[j]) - (arm->ln_wave0 + j * arm->ln_step)) <= 1e-6 * arm->ln_step))
        MILL_FAIL(MILL_ERR_LIBRARY,
                  "%s: the wavelengths of arm %s are not uniform in ln wavelength "
                  "(pixel %d at %.9g A, expected %.9g)",
                  where, arm->name, j, arm->wave_aa[j], exp(arm->ln_wave0 + j * arm->ln_step));
    if (!isfinite(arm->template_sigma_aa))
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: the template sigma of arm %s is not finite", where,
                arm->name);
    const double width_aa = arm->wave_aa[arm->n_pix - 1] - arm->wave_aa[0];
    if (arm->template_sigma_aa > MILL_MAX_SIGMA_WIDTH * width_aa)
      MILL_FAIL(MILL_ERR_LIBRARY,
                "%s: the templates of arm %s have a sigma of %g A, which is no resolution for its "
                "%.6g A; give it in Angstrom, at most %.3g",
                where, arm->name, arm->template_sigma_aa, width_aa,
                MILL_MAX_SIGMA_WIDTH * width_aa);
    MILL_TRY(check_emulator(lib, arm, where));
  }
done:
  return err;
}

static int check_guess(const mill_library *lib, const char *where)
{
  int err = MILL_OK;
  if (lib->n_guess < 1 || lib->n_guess > MAX_GUESS || !lib->guess_label)
    MILL_FAIL(MILL_ERR_LIBRARY,
              "%s: has %d templates for the initial guess, this program takes 1 to "
              "%d",
              where, lib->n_guess, MAX_GUESS);
  for (int i = 0; i < lib->n_guess; i++) {
    const double *label = lib->guess_label + (size_t)i * (size_t)lib->n_label;
    /* the tolerance is for points on a facet, whose labels were rounded */
    if (!all_finite_f64((size_t)lib->n_label, label) ||
        !(mill_library_hull_distance(lib, label) <= 1e-9))
      MILL_FAIL(MILL_ERR_LIBRARY,
                "%s: template %d of the initial guess is not finite or outside the "
                "hulls",
                where, i);
  }
  if (lib->n_guess_vsini < 1 || lib->n_guess_vsini > MAX_GUESS_VSINI)
    MILL_FAIL(MILL_ERR_LIBRARY,
              "%s: has %d rotations for the initial guess, this program takes 1 to "
              "%d",
              where, lib->n_guess_vsini, MAX_GUESS_VSINI);
  for (int i = 0; i < lib->n_guess_vsini; i++)
    if (!isfinite(lib->guess_vsini_km_s[i]) || !(lib->guess_vsini_km_s[i] >= 0))
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: v sin i %d of the initial guess is %g km/s", where, i,
                lib->guess_vsini_km_s[i]);
done:
  return err;
}

int mill_library_check(const mill_library *lib, const char *where)
{
  int err = MILL_OK;
  mill_columns columns;
  if (!is_printable(lib->name))
    MILL_FAIL(MILL_ERR_LIBRARY, "%s: the library's name has unprintable characters", where);
  MILL_TRY(check_labels(lib, where));
  MILL_TRY(check_hulls(lib, where));
  MILL_TRY(check_arms(lib, where));
  MILL_TRY(check_guess(lib, where));
  /* else a fit would be the first to refuse it */
  MILL_TRY(mill_columns_fits(lib, where, &columns));
done:
  return err;
}

double mill_library_hull_distance(const mill_library *lib, const double *label)
{
  double x[MILL_MAX_LABEL];
  for (int i = 0; i < lib->n_label; i++)
    x[i] = mill_label_map(&lib->label[i], label[i]);
  return mill_hull_distance(lib->n_hull, lib->hull, x);
}

/* ---- digest ------------------------------------------------------------------------------ */

static void digest_u64(mill_sha256 *sha, uint64_t x)
{
  unsigned char byte[8];
  for (int i = 0; i < 8; i++)
    byte[i] = (unsigned char)(x >> (8 * i));
  mill_sha256_update(sha, byte, sizeof byte);
}

static void digest_text(mill_sha256 *sha, const char *text)
{
  const size_t n = strlen(text);
  digest_u64(sha, n);
  mill_sha256_update(sha, text, n);
}

static void digest_f64(mill_sha256 *sha, size_t n, const double *x)
{
  for (size_t i = 0; i < n; i++) {
    uint64_t bits;
    memcpy(&bits, &x[i], sizeof bits);
    digest_u64(sha, bits);
  }
}

static void digest_f32(mill_sha256 *sha, size_t n, const float *x)
{
  unsigned char byte[1024];
  for (size_t i = 0; i < n;) {
    size_t n_byte = 0;
    for (; i < n && n_byte < sizeof byte; i++) {
      uint32_t bits;
      memcpy(&bits, &x[i], sizeof bits);
      for (int j = 0; j < 4; j++)
        byte[n_byte++] = (unsigned char)(bits >> (8 * j));
    }
    mill_sha256_update(sha, byte, n_byte);
  }
}

static void digest_grid(mill_sha256 *sha, const mill_spline_grid *grid)
{
  digest_u64(sha, (uint64_t)grid->n_axis);
  for (int i = 0; i < grid->n_axis; i++) {
    digest_u64(sha, (uint64_t)grid->n_node[i]);
    digest_f64(sha, (size_t)grid->n_node[i] + 4, grid->knot[i]);
  }
  digest_u64(sha, (uint64_t)grid->n_out);
  digest_f32(sha, grid_size(grid), grid->coef);
}

static void digest_rbf(mill_sha256 *sha, const mill_rbf *rbf)
{
  digest_u64(sha, (uint64_t)rbf->n_axis);
  digest_u64(sha, (uint64_t)rbf->n_center);
  digest_u64(sha, (uint64_t)rbf->degree);
  digest_f64(sha, (size_t)rbf->n_axis, rbf->length);
  digest_f64(sha, (size_t)rbf->n_center * (size_t)rbf->n_axis, rbf->center);
  digest_u64(sha, (uint64_t)rbf->n_out);
  digest_f32(sha, rbf_size(rbf), rbf->coef);
}

void mill_library_digest(const mill_library *lib, char hex[65])
{
  mill_sha256 sha;
  const int format = format_of(lib);
  mill_sha256_init(&sha);
  digest_text(&sha, format == FORMAT_KINDS ? "starmill library contents 2"
                                           : "starmill library contents 1");
  digest_u64(&sha, (uint64_t)lib->n_label);
  for (int i = 0; i < lib->n_label; i++) {
    const mill_label *label = &lib->label[i];
    const double number[] = {label->mean, label->std, label->min, label->max, label->scale};
    digest_text(&sha, label->name);
    digest_text(&sha, label->column);
    digest_text(&sha, label->unit);
    digest_u64(&sha, (uint64_t)label->mapping);
    digest_f64(&sha, sizeof number / sizeof *number, number);
  }
  digest_u64(&sha, (uint64_t)lib->n_hull);
  for (int i = 0; i < lib->n_hull; i++) {
    const mill_hull *hull = &lib->hull[i];
    digest_u64(&sha, (uint64_t)hull->n_label);
    for (int j = 0; j < hull->n_label; j++)
      digest_u64(&sha, (uint64_t)hull->label[j]);
    digest_u64(&sha, (uint64_t)hull->n_facet);
    digest_f64(&sha, (size_t)hull->n_facet * (size_t)(hull->n_label + 1), hull->facet);
  }
  digest_u64(&sha, (uint64_t)lib->n_arm);
  for (int i = 0; i < lib->n_arm; i++) {
    const mill_arm *arm = &lib->arm[i];
    const mill_emulator *net = &arm->emulator;
    const double number[] = {arm->ln_wave0, arm->ln_step, arm->template_sigma_aa};
    digest_text(&sha, arm->name);
    digest_text(&sha, arm->setup);
    digest_u64(&sha, (uint64_t)arm->n_pix);
    digest_f64(&sha, sizeof number / sizeof *number, number);
    digest_f64(&sha, (size_t)arm->n_pix, arm->wave_aa);
    digest_u64(&sha, (uint64_t)net->log_flux);
    if (format == FORMAT_KINDS)
      digest_u64(&sha, (uint64_t)net->kind);
    if (net->kind == MILL_EMULATOR_GRID)
      digest_grid(&sha, &net->grid);
    if (net->kind == MILL_EMULATOR_RBF)
      digest_rbf(&sha, &net->rbf);
    digest_u64(&sha, (uint64_t)net->n_layer);
    for (int j = 0; j < net->n_layer; j++) {
      digest_u64(&sha, (uint64_t)net->n_in[j]);
      digest_u64(&sha, (uint64_t)net->n_out[j]);
      digest_f32(&sha, (size_t)net->n_out[j] * (size_t)net->n_in[j], net->weight[j]);
      digest_f32(&sha, (size_t)net->n_out[j], net->bias[j]);
    }
  }
  digest_u64(&sha, (uint64_t)lib->n_guess);
  digest_f64(&sha, (size_t)lib->n_guess * (size_t)lib->n_label, lib->guess_label);
  digest_u64(&sha, (uint64_t)lib->n_guess_vsini);
  digest_f64(&sha, (size_t)lib->n_guess_vsini, lib->guess_vsini_km_s);
  mill_sha256_final(&sha, hex);
}

/* ---- reading ----------------------------------------------------------------------------- */

/* An attribute that counts groups or sizes, refused beyond the limit of this program. */
static int read_count(const mill_h5_file *file, const char *object, const char *name, int max,
                      int *out)
{
  int err = MILL_OK;
  MILL_TRY(mill_h5_read_attr_int(file, object, name, out));
  if (*out < 1 || *out > max)
    MILL_FAIL(file->code, "%s: attribute %s of %s is %d, this program takes 1 to %d", file->path,
              name, object, *out, max);
done:
  return err;
}

static int read_format(const mill_h5_file *file, int *out)
{
  int err = MILL_OK;
  char text[64];
  int version = 0;
  if (!mill_h5_has_attr(file, "/", "format")) {
    if (mill_h5_exists(file, "lam") && mill_h5_exists(file, "layer0"))
      MILL_FAIL(file->code,
                "%s: is one arm's emulator, not a library; make one with starmill "
                "library import",
                file->path);
    MILL_FAIL(file->code, "%s: is not a starmill library (no attribute format)", file->path);
  }
  MILL_TRY(mill_h5_read_attr_text(file, "/", "format", text, sizeof text));
  if (strcmp(text, FORMAT_NAME) != 0)
    MILL_FAIL(file->code, "%s: is not a starmill library (its attribute format is not '%s')",
              file->path, FORMAT_NAME);
  MILL_TRY(mill_h5_read_attr_int(file, "/", "format_version", &version));
  if (version > MILL_LIBRARY_FORMAT) {
    if (mill_h5_read_attr_text(file, "/", "reader_version", text, sizeof text) != MILL_OK ||
        !is_printable(text))
      snprintf(text, sizeof text, "a newer version");
    MILL_FAIL(file->code,
              "%s: library format %d is newer than %d, the newest that this program "
              "reads; use starmill %s or later",
              file->path, version, MILL_LIBRARY_FORMAT, text);
  }
  if (version < 1)
    MILL_FAIL(file->code, "%s: library format %d does not exist", file->path, version);
  *out = version;
done:
  return err;
}

static int read_label(const mill_h5_file *file, int i_label, mill_label *label)
{
  int err = MILL_OK;
  char at[64];
  snprintf(at, sizeof at, "labels/label%d", i_label);
  MILL_TRY(mill_h5_read_attr_text(file, at, "name", label->name, sizeof label->name));
  MILL_TRY(mill_h5_read_attr_text(file, at, "column", label->column, sizeof label->column));
  MILL_TRY(mill_h5_read_attr_text(file, at, "unit", label->unit, sizeof label->unit));
  MILL_TRY(mill_h5_read_attr_int(file, at, "mapping", &label->mapping));
  MILL_TRY(mill_h5_read_attr_double(file, at, "mean", &label->mean));
  MILL_TRY(mill_h5_read_attr_double(file, at, "std", &label->std));
  MILL_TRY(mill_h5_read_attr_double(file, at, "min", &label->min));
  MILL_TRY(mill_h5_read_attr_double(file, at, "max", &label->max));
  MILL_TRY(mill_h5_read_attr_double(file, at, "scale", &label->scale));
done:
  return err;
}

static int read_hull(const mill_h5_file *file, int i_hull, mill_hull *hull)
{
  int err = MILL_OK;
  char at[64];
  size_t dim[2];
  snprintf(at, sizeof at, "hulls/hull%d/labels", i_hull);
  MILL_TRY(mill_h5_shape(file, at, 1, dim));
  if (dim[0] < 1 || dim[0] > MILL_MAX_LABEL)
    MILL_FAIL(file->code, "%s: hull %d spans %zu labels, this program takes 1 to %d", file->path,
              i_hull, dim[0], MILL_MAX_LABEL);
  hull->n_label = (int)dim[0];
  MILL_TRY(mill_h5_read(file, at, H5T_NATIVE_INT, 1, dim, hull->label));
  snprintf(at, sizeof at, "hulls/hull%d/facets", i_hull);
  MILL_TRY(mill_h5_shape(file, at, 2, dim));
  if (dim[0] > MAX_FACET || dim[1] != (size_t)hull->n_label + 1)
    MILL_FAIL(file->code,
              "%s: dataset /%s has the shape [%zu][%zu], expected at most %d facets of "
              "%d numbers",
              file->path, at, dim[0], dim[1], MAX_FACET, hull->n_label + 1);
  hull->n_facet = (int)dim[0];
  MILL_TRY(MILL_ALLOC(dim[0] * dim[1], &hull->facet));
  MILL_TRY(mill_h5_read(file, at, H5T_NATIVE_DOUBLE, 2, dim, hull->facet));
done:
  return err;
}

static int read_layer(const mill_h5_file *file, int i_arm, int i_layer, int n_pix,
                      mill_emulator *net)
{
  int err = MILL_OK;
  char at[64];
  size_t dim[2];
  snprintf(at, sizeof at, "arms/arm%d/layer%d/weight", i_arm, i_layer);
  MILL_TRY(mill_h5_shape(file, at, 2, dim));
  const size_t max_out = i_layer == net->n_layer - 1 ? (size_t)n_pix : MILL_MAX_WIDTH;
  if (dim[0] > max_out || dim[1] > MILL_MAX_WIDTH)
    MILL_FAIL(file->code,
              "%s: dataset /%s has the shape [%zu][%zu], this program takes at most "
              "[%zu][%d]",
              file->path, at, dim[0], dim[1], max_out, MILL_MAX_WIDTH);
  net->n_out[i_layer] = (int)dim[0];
  net->n_in[i_layer] = (int)dim[1];
  MILL_TRY(MILL_ALLOC(dim[0] * dim[1], &net->weight[i_layer]));
  MILL_TRY(mill_h5_read(file, at, H5T_NATIVE_FLOAT, 2, dim, net->weight[i_layer]));
  snprintf(at, sizeof at, "arms/arm%d/layer%d/bias", i_arm, i_layer);
  MILL_TRY(MILL_ALLOC(dim[0], &net->bias[i_layer]));
  MILL_TRY(mill_h5_read(file, at, H5T_NATIVE_FLOAT, 1, dim, net->bias[i_layer]));
done:
  return err;
}

/* Kind of an arm's emulator, and of a perceptron its activation. */
static int read_kind(const mill_h5_file *file, int format, const char *at, mill_arm *arm)
{
  int err = MILL_OK;
  char text[64] = "mlp";
  if (format >= FORMAT_KINDS)
    MILL_TRY(mill_h5_read_attr_text(file, at, "emulator", text, sizeof text));
  int kind = 0;
  while (kind < N_KIND && strcmp(text, kind_name[kind]) != 0)
    kind++;
  if (kind == N_KIND)
    MILL_FAIL(file->code,
              "%s: the emulator of arm %s is of none of the kinds that this program knows (mlp, "
              "grid, rbf)",
              file->path, arm->name);
  arm->emulator.kind = kind;
  if (kind != MILL_EMULATOR_MLP)
    return MILL_OK;
  MILL_TRY(mill_h5_read_attr_text(file, at, "activation", text, sizeof text));
  if (strcmp(text, "silu") != 0)
    MILL_FAIL(file->code, "%s: the activation of arm %s is none that this program knows (silu)",
              file->path, arm->name);
done:
  return err;
}

static int read_grid(const mill_h5_file *file, int i_arm, int n_label, mill_spline_grid *grid)
{
  int err = MILL_OK;
  char at[64];
  size_t dim[MILL_MAX_GRID_AXIS + 1], n_knot = 0, size = 1;
  if (n_label > MILL_MAX_GRID_AXIS)
    MILL_FAIL(file->code,
              "%s: the emulator of arm %d is a grid of %d labels, this program takes 1 to %d",
              file->path, i_arm, n_label, MILL_MAX_GRID_AXIS);
  grid->n_axis = n_label;
  snprintf(at, sizeof at, "arms/arm%d/grid/coefficients", i_arm);
  MILL_TRY(mill_h5_shape(file, at, n_label + 1, dim));
  for (int i = 0; i < n_label; i++)
    if (dim[i] < 4 || dim[i] > MILL_MAX_GRID_NODE)
      MILL_FAIL(file->code, "%s: dataset /%s has %zu nodes of label %d, this program takes 4 to %d",
                file->path, at, dim[i], i, MILL_MAX_GRID_NODE);
  if (dim[n_label] < 1 || dim[n_label] > MILL_MAX_WIDTH)
    MILL_FAIL(file->code, "%s: dataset /%s has %zu components, this program takes 1 to %d",
              file->path, at, dim[n_label], MILL_MAX_WIDTH);
  for (int i = 0; i <= n_label; i++) {
    size *= dim[i];
    if (size > MILL_MAX_GRID_COEF)
      MILL_FAIL(file->code,
                "%s: dataset /%s has more than %d numbers, the most that this program "
                "takes",
                file->path, at, MILL_MAX_GRID_COEF);
  }
  for (int i = 0; i < n_label; i++)
    grid->n_node[i] = (int)dim[i];
  grid->n_out = (int)dim[n_label];
  MILL_TRY(MILL_ALLOC(size, &grid->coef));
  MILL_TRY(mill_h5_read(file, at, H5T_NATIVE_FLOAT, n_label + 1, dim, grid->coef));
  for (int i = 0; i < n_label; i++) {
    n_knot = (size_t)grid->n_node[i] + 4;
    snprintf(at, sizeof at, "arms/arm%d/grid/knots%d", i_arm, i);
    MILL_TRY(MILL_ALLOC(n_knot, &grid->knot[i]));
    MILL_TRY(mill_h5_read(file, at, H5T_NATIVE_DOUBLE, 1, &n_knot, grid->knot[i]));
  }
done:
  return err;
}

static int read_rbf(const mill_h5_file *file, int i_arm, int n_label, mill_rbf *rbf)
{
  int err = MILL_OK;
  char at[64];
  size_t dim[2], n_axis = (size_t)n_label;
  if (n_label > MILL_MAX_GRID_AXIS)
    MILL_FAIL(file->code,
              "%s: the radial functions of arm %d depend on %d labels, this program takes 1 to %d",
              file->path, i_arm, n_label, MILL_MAX_GRID_AXIS);
  rbf->n_axis = n_label;
  snprintf(at, sizeof at, "arms/arm%d/rbf", i_arm);
  MILL_TRY(mill_h5_read_attr_int(file, at, "degree", &rbf->degree));
  if (rbf->degree < 0 || rbf->degree > MILL_MAX_RBF_DEGREE)
    MILL_FAIL(file->code, "%s: attribute degree of %s is %d, this program takes 0 to %d",
              file->path, at, rbf->degree, MILL_MAX_RBF_DEGREE);
  rbf->n_poly = mill_rbf_n_poly(n_label, rbf->degree);
  snprintf(at, sizeof at, "arms/arm%d/rbf/lengths", i_arm);
  MILL_TRY(mill_h5_read(file, at, H5T_NATIVE_DOUBLE, 1, &n_axis, rbf->length));
  snprintf(at, sizeof at, "arms/arm%d/rbf/centers", i_arm);
  MILL_TRY(mill_h5_shape(file, at, 2, dim));
  if (dim[0] < 1 || dim[0] > MILL_MAX_RBF_CENTER || dim[1] != n_axis)
    MILL_FAIL(file->code,
              "%s: dataset /%s has the shape [%zu][%zu], expected 1 to %d centers of %d labels",
              file->path, at, dim[0], dim[1], MILL_MAX_RBF_CENTER, n_label);
  rbf->n_center = (int)dim[0];
  MILL_TRY(MILL_ALLOC(dim[0] * dim[1], &rbf->center));
  MILL_TRY(mill_h5_read(file, at, H5T_NATIVE_DOUBLE, 2, dim, rbf->center));
  snprintf(at, sizeof at, "arms/arm%d/rbf/coefficients", i_arm);
  MILL_TRY(mill_h5_shape(file, at, 2, dim));
  const size_t n_row = (size_t)rbf->n_center + (size_t)rbf->n_poly;
  if (dim[0] != n_row || dim[1] < 1 || dim[1] > MILL_MAX_WIDTH)
    MILL_FAIL(file->code,
              "%s: dataset /%s has the shape [%zu][%zu], expected %zu rows (centers, then terms of "
              "the polynomial) of 1 to %d components",
              file->path, at, dim[0], dim[1], n_row, MILL_MAX_WIDTH);
  rbf->n_out = (int)dim[1];
  MILL_TRY(MILL_ALLOC(dim[0] * dim[1], &rbf->coef));
  MILL_TRY(mill_h5_read(file, at, H5T_NATIVE_FLOAT, 2, dim, rbf->coef));
done:
  return err;
}

static int read_arm(const mill_h5_file *file, int format, int i_arm, int n_label, mill_arm *arm)
{
  int err = MILL_OK;
  char at[64];
  size_t dim[1];
  snprintf(at, sizeof at, "arms/arm%d", i_arm);
  MILL_TRY(mill_h5_read_attr_text(file, at, "name", arm->name, sizeof arm->name));
  MILL_TRY(mill_h5_read_attr_text(file, at, "setup", arm->setup, sizeof arm->setup));
  MILL_TRY(mill_h5_read_attr_double(file, at, "ln_wave0", &arm->ln_wave0));
  MILL_TRY(mill_h5_read_attr_double(file, at, "ln_step", &arm->ln_step));
  MILL_TRY(mill_h5_read_attr_double(file, at, "template_sigma", &arm->template_sigma_aa));
  MILL_TRY(mill_h5_read_attr_text(file, at, "template_sigma_origin", arm->sigma_origin,
                                  sizeof arm->sigma_origin));
  MILL_TRY(mill_h5_read_attr_text(file, at, "source", arm->source, sizeof arm->source));
  MILL_TRY(mill_h5_read_attr_text(file, at, "revision", arm->revision, sizeof arm->revision));
  MILL_TRY(read_kind(file, format, at, arm));
  MILL_TRY(mill_h5_read_attr_int(file, at, "log_flux", &arm->emulator.log_flux));
  MILL_TRY(read_count(file, at, "n_layer", MILL_MAX_LAYER, &arm->emulator.n_layer));
  snprintf(at, sizeof at, "arms/arm%d/wavelength", i_arm);
  MILL_TRY(mill_h5_shape(file, at, 1, dim));
  if (dim[0] < MIN_PIX || dim[0] > MAX_PIX)
    MILL_FAIL(file->code, "%s: arm %s has %zu pixels, this program takes %d to %d", file->path,
              arm->name, dim[0], MIN_PIX, MAX_PIX);
  arm->n_pix = (int)dim[0];
  MILL_TRY(MILL_ALLOC(dim[0], &arm->wave_aa));
  MILL_TRY(mill_h5_read(file, at, H5T_NATIVE_DOUBLE, 1, dim, arm->wave_aa));
  if (arm->emulator.kind == MILL_EMULATOR_GRID)
    MILL_TRY(read_grid(file, i_arm, n_label, &arm->emulator.grid));
  if (arm->emulator.kind == MILL_EMULATOR_RBF)
    MILL_TRY(read_rbf(file, i_arm, n_label, &arm->emulator.rbf));
  for (int i = 0; i < arm->emulator.n_layer; i++)
    MILL_TRY(read_layer(file, i_arm, i, arm->n_pix, &arm->emulator));
done:
  return err;
}

static int read_guess(const mill_h5_file *file, mill_library *lib)
{
  int err = MILL_OK;
  size_t dim[2];
  MILL_TRY(mill_h5_shape(file, "guess/labels", 2, dim));
  if (dim[0] > MAX_GUESS || dim[1] != (size_t)lib->n_label)
    MILL_FAIL(file->code,
              "%s: dataset /guess/labels has the shape [%zu][%zu], expected at most %d "
              "templates of %d labels",
              file->path, dim[0], dim[1], MAX_GUESS, lib->n_label);
  lib->n_guess = (int)dim[0];
  MILL_TRY(MILL_ALLOC(dim[0] * dim[1], &lib->guess_label));
  MILL_TRY(mill_h5_read(file, "guess/labels", H5T_NATIVE_DOUBLE, 2, dim, lib->guess_label));
  MILL_TRY(mill_h5_shape(file, "guess/vsini", 1, dim));
  if (dim[0] > MAX_GUESS_VSINI)
    MILL_FAIL(file->code, "%s: dataset /guess/vsini has %zu rotations, this program takes 1 to %d",
              file->path, dim[0], MAX_GUESS_VSINI);
  lib->n_guess_vsini = (int)dim[0];
  MILL_TRY(mill_h5_read(file, "guess/vsini", H5T_NATIVE_DOUBLE, 1, dim, lib->guess_vsini_km_s));
done:
  return err;
}

int mill_library_read(const char *path, mill_library *lib)
{
  int err = MILL_OK;
  mill_h5_file file = {.id = H5I_INVALID_HID};
  char stored[65];
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
  for (int i = 0; i < lib->n_label; i++)
    MILL_TRY(read_label(&file, i, &lib->label[i]));
  MILL_TRY(read_count(&file, "hulls", "n_hull", MILL_MAX_HULL, &lib->n_hull));
  for (int i = 0; i < lib->n_hull; i++)
    MILL_TRY(read_hull(&file, i, &lib->hull[i]));
  MILL_TRY(read_count(&file, "arms", "n_arm", MILL_MAX_ARM, &lib->n_arm));
  for (int i = 0; i < lib->n_arm; i++)
    MILL_TRY(read_arm(&file, format, i, lib->n_label, &lib->arm[i]));
  MILL_TRY(read_guess(&file, lib));
  MILL_TRY(mill_library_check(lib, path));
  MILL_TRY(mill_h5_read_attr_text(&file, "/", "hash", stored, sizeof stored));
  mill_library_digest(lib, lib->hash);
  if (strcmp(stored, lib->hash) != 0)
    MILL_FAIL(MILL_ERR_LIBRARY,
              "%s: its contents do not match its attribute hash, so it was damaged "
              "or changed; make it again",
              path);
  snprintf(lib->path, sizeof lib->path, "%s", path);
done:
  mill_h5_close(&file);
  if (err != MILL_OK)
    mill_library_clear(lib);
  return err;
}

/* ---- writing ----------------------------------------------------------------------------- */

static int write_label(const mill_h5_file *file, int i_label, const mill_label *label)
{
  int err = MILL_OK;
  char at[64];
  snprintf(at, sizeof at, "labels/label%d", i_label);
  MILL_TRY(mill_h5_write_group(file, at));
  MILL_TRY(mill_h5_write_attr_text(file, at, "name", label->name));
  MILL_TRY(mill_h5_write_attr_text(file, at, "column", label->column));
  MILL_TRY(mill_h5_write_attr_text(file, at, "unit", label->unit));
  MILL_TRY(mill_h5_write_attr_int(file, at, "mapping", label->mapping));
  MILL_TRY(mill_h5_write_attr_double(file, at, "mean", label->mean));
  MILL_TRY(mill_h5_write_attr_double(file, at, "std", label->std));
  MILL_TRY(mill_h5_write_attr_double(file, at, "min", label->min));
  MILL_TRY(mill_h5_write_attr_double(file, at, "max", label->max));
  MILL_TRY(mill_h5_write_attr_double(file, at, "scale", label->scale));
done:
  return err;
}

static int write_hull(const mill_h5_file *file, int i_hull, const mill_hull *hull)
{
  int err = MILL_OK;
  char at[64];
  const size_t dim[2] = {(size_t)hull->n_facet, (size_t)hull->n_label + 1};
  const size_t n_label = (size_t)hull->n_label;
  snprintf(at, sizeof at, "hulls/hull%d", i_hull);
  MILL_TRY(mill_h5_write_group(file, at));
  snprintf(at, sizeof at, "hulls/hull%d/labels", i_hull);
  MILL_TRY(mill_h5_write(file, at, H5T_STD_I32LE, H5T_NATIVE_INT, 1, &n_label, hull->label, NULL,
                         "indices of the labels that this hull spans"));
  snprintf(at, sizeof at, "hulls/hull%d/facets", i_hull);
  MILL_TRY(mill_h5_write(file, at, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 2, dim, hull->facet, NULL,
                         "unit normals and offsets in mapped labels, inside: a.x + b <= 0"));
done:
  return err;
}

static int write_grid(const mill_h5_file *file, int i_arm, const mill_spline_grid *grid)
{
  int err = MILL_OK;
  char at[64];
  size_t dim[MILL_MAX_GRID_AXIS + 1];
  snprintf(at, sizeof at, "arms/arm%d/grid", i_arm);
  MILL_TRY(mill_h5_write_group(file, at));
  for (int i = 0; i < grid->n_axis; i++) {
    const size_t n_knot = (size_t)grid->n_node[i] + 4;
    dim[i] = (size_t)grid->n_node[i];
    snprintf(at, sizeof at, "arms/arm%d/grid/knots%d", i_arm, i);
    MILL_TRY(mill_h5_write(file, at, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, &n_knot, grid->knot[i],
                           NULL, "knots of the cubic splines over this label, mapped"));
  }
  dim[grid->n_axis] = (size_t)grid->n_out;
  snprintf(at, sizeof at, "arms/arm%d/grid/coefficients", i_arm);
  MILL_TRY(mill_h5_write(file, at, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, grid->n_axis + 1, dim,
                         grid->coef, NULL,
                         "spline coefficients, by label in their order and then by component"));
done:
  return err;
}

static int write_rbf(const mill_h5_file *file, int i_arm, const mill_rbf *rbf)
{
  int err = MILL_OK;
  char at[64];
  const size_t n_axis = (size_t)rbf->n_axis;
  const size_t center[2] = {(size_t)rbf->n_center, n_axis};
  const size_t coef[2] = {(size_t)rbf->n_center + (size_t)rbf->n_poly, (size_t)rbf->n_out};
  snprintf(at, sizeof at, "arms/arm%d/rbf", i_arm);
  MILL_TRY(mill_h5_write_group(file, at));
  MILL_TRY(mill_h5_write_attr_int(file, at, "degree", rbf->degree));
  snprintf(at, sizeof at, "arms/arm%d/rbf/lengths", i_arm);
  MILL_TRY(mill_h5_write(file, at, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, &n_axis, rbf->length, NULL,
                         "units of the mapped labels in which distances are measured"));
  snprintf(at, sizeof at, "arms/arm%d/rbf/centers", i_arm);
  MILL_TRY(mill_h5_write(file, at, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 2, center, rbf->center, NULL,
                         "mapped labels of the radial functions' centers"));
  snprintf(at, sizeof at, "arms/arm%d/rbf/coefficients", i_arm);
  MILL_TRY(mill_h5_write(file, at, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, coef, rbf->coef, NULL,
                         "of the centers, then of the polynomial's terms, by component"));
done:
  return err;
}

static int write_arm(const mill_h5_file *file, int format, int i_arm, const mill_arm *arm)
{
  int err = MILL_OK;
  char at[64];
  const mill_emulator *net = &arm->emulator;
  const size_t n_pix = (size_t)arm->n_pix;
  snprintf(at, sizeof at, "arms/arm%d", i_arm);
  MILL_TRY(mill_h5_write_group(file, at));
  MILL_TRY(mill_h5_write_attr_text(file, at, "name", arm->name));
  MILL_TRY(mill_h5_write_attr_text(file, at, "setup", arm->setup));
  MILL_TRY(mill_h5_write_attr_double(file, at, "ln_wave0", arm->ln_wave0));
  MILL_TRY(mill_h5_write_attr_double(file, at, "ln_step", arm->ln_step));
  MILL_TRY(mill_h5_write_attr_double(file, at, "template_sigma", arm->template_sigma_aa));
  MILL_TRY(mill_h5_write_attr_text(file, at, "template_sigma_origin", arm->sigma_origin));
  MILL_TRY(mill_h5_write_attr_text(file, at, "source", arm->source));
  MILL_TRY(mill_h5_write_attr_text(file, at, "revision", arm->revision));
  if (format >= FORMAT_KINDS)
    MILL_TRY(mill_h5_write_attr_text(file, at, "emulator", kind_name[net->kind]));
  if (net->kind == MILL_EMULATOR_MLP)
    MILL_TRY(mill_h5_write_attr_text(file, at, "activation", "silu"));
  MILL_TRY(mill_h5_write_attr_int(file, at, "log_flux", net->log_flux));
  MILL_TRY(mill_h5_write_attr_int(file, at, "n_layer", net->n_layer));
  snprintf(at, sizeof at, "arms/arm%d/wavelength", i_arm);
  MILL_TRY(mill_h5_write(file, at, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, &n_pix, arm->wave_aa,
                         "Angstrom", "vacuum wavelength, uniform in its logarithm"));
  if (net->kind == MILL_EMULATOR_GRID)
    MILL_TRY(write_grid(file, i_arm, &net->grid));
  if (net->kind == MILL_EMULATOR_RBF)
    MILL_TRY(write_rbf(file, i_arm, &net->rbf));
  for (int i = 0; i < net->n_layer; i++) {
    const size_t dim[2] = {(size_t)net->n_out[i], (size_t)net->n_in[i]};
    snprintf(at, sizeof at, "arms/arm%d/layer%d", i_arm, i);
    MILL_TRY(mill_h5_write_group(file, at));
    snprintf(at, sizeof at, "arms/arm%d/layer%d/weight", i_arm, i);
    MILL_TRY(mill_h5_write(file, at, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, dim, net->weight[i], NULL,
                           "weights, one row per output"));
    snprintf(at, sizeof at, "arms/arm%d/layer%d/bias", i_arm, i);
    MILL_TRY(mill_h5_write(file, at, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, dim, net->bias[i], NULL,
                           "biases, one per output"));
  }
done:
  return err;
}

static int write_guess(const mill_h5_file *file, const mill_library *lib)
{
  int err = MILL_OK;
  const size_t dim[2] = {(size_t)lib->n_guess, (size_t)lib->n_label};
  const size_t n_vsini = (size_t)lib->n_guess_vsini;
  MILL_TRY(mill_h5_write_group(file, "guess"));
  MILL_TRY(mill_h5_write(file, "guess/labels", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 2, dim,
                         lib->guess_label, NULL,
                         "labels of the templates of the initial guess, in the labels' units"));
  MILL_TRY(mill_h5_write(file, "guess/vsini", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, &n_vsini,
                         lib->guess_vsini_km_s, "km s**-1",
                         "v sin i at which each template is tried"));
done:
  return err;
}

/* The whole file as bytes: HDF5 leaves a file that it cannot write in an undefined state, so it
   never writes to the disk itself. */
static int make_image(const char *name, const mill_library *lib, void **image, size_t *n_byte)
{
  int err = MILL_OK;
  char hash[65], program[128];
  mill_h5_file file = {.id = H5I_INVALID_HID};
  const int format = format_of(lib);
  snprintf(program, sizeof program, "starmill %s (%s)", mill_version(), mill_version_revision());
  MILL_TRY(mill_h5_create_image(name, MILL_ERR_OUTPUT, &file));
  mill_library_digest(lib, hash);
  MILL_TRY(mill_h5_write_attr_text(&file, "/", "format", FORMAT_NAME));
  MILL_TRY(mill_h5_write_attr_int(&file, "/", "format_version", format));
  MILL_TRY(mill_h5_write_attr_text(&file, "/", "reader_version", format_reader[format]));
  MILL_TRY(mill_h5_write_attr_text(&file, "/", "written_by", program));
  MILL_TRY(mill_h5_write_attr_text(&file, "/", "name", lib->name));
  MILL_TRY(mill_h5_write_attr_text(&file, "/", "hash", hash));
  MILL_TRY(mill_h5_write_group(&file, "labels"));
  MILL_TRY(mill_h5_write_attr_int(&file, "labels", "n_label", lib->n_label));
  for (int i = 0; i < lib->n_label; i++)
    MILL_TRY(write_label(&file, i, &lib->label[i]));
  MILL_TRY(mill_h5_write_group(&file, "hulls"));
  MILL_TRY(mill_h5_write_attr_int(&file, "hulls", "n_hull", lib->n_hull));
  for (int i = 0; i < lib->n_hull; i++)
    MILL_TRY(write_hull(&file, i, &lib->hull[i]));
  MILL_TRY(mill_h5_write_group(&file, "arms"));
  MILL_TRY(mill_h5_write_attr_int(&file, "arms", "n_arm", lib->n_arm));
  for (int i = 0; i < lib->n_arm; i++)
    MILL_TRY(write_arm(&file, format, i, &lib->arm[i]));
  MILL_TRY(write_guess(&file, lib));
  MILL_TRY(mill_h5_get_image(&file, image, n_byte));
done:
  mill_h5_close(&file);
  return err;
}

static int write_bytes(const char *path, const char *data, size_t n_byte)
{
  int err = MILL_OK;
  const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0)
    return mill_error_set(MILL_ERR_OUTPUT, __FILE__, __LINE__, "%s: cannot be created: %s", path,
                          strerror(errno));
  for (size_t n_done = 0; n_done < n_byte;) {
    const ssize_t n = write(fd, data + n_done, n_byte - n_done);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot be written: %s", path,
                strerror(n < 0 ? errno : ENOSPC));
    n_done += (size_t)n;
  }
  /* some file systems report a full disk only here */
  if (fsync(fd) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot be written: %s", path, strerror(errno));
done:
  if (close(fd) != 0 && err == MILL_OK)
    err = mill_error_set(MILL_ERR_OUTPUT, __FILE__, __LINE__, "%s: cannot be written: %s", path,
                         strerror(errno));
  if (err != MILL_OK)
    unlink(path);
  return err;
}

int mill_library_write(const char *path, const mill_library *lib, int overwrite)
{
  int err = MILL_OK;
  char temporary[1100];
  void *image = NULL;
  size_t n_byte = 0;
  struct stat status;
  if (strlen(path) >= sizeof lib->path)
    MILL_FAIL(MILL_ERR_OUTPUT, "the output's path is longer than %zu bytes: %.80s...",
              sizeof lib->path - 1, path);
  MILL_TRY(mill_library_check(lib, path));
  if (stat(path, &status) == 0) {
    if (!S_ISREG(status.st_mode))
      MILL_FAIL(MILL_ERR_OUTPUT, "%s: exists and is not a regular file", path);
    if (!overwrite)
      MILL_FAIL(MILL_ERR_OUTPUT, "%s: exists; give another name or --overwrite", path);
  }
  snprintf(temporary, sizeof temporary, "%s.tmp-%ld", path, (long)getpid());
  MILL_TRY(make_image(temporary, lib, &image, &n_byte));
  MILL_TRY(write_bytes(temporary, image, n_byte));
  if (rename(temporary, path) != 0) {
    const int reason = errno;
    unlink(temporary);
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot be renamed to %s: %s", temporary, path,
              strerror(reason));
  }
done:
  mill_free(image);
  return err;
}

/* ---- printing ---------------------------------------------------------------------------- */

static void print_label(const mill_label *label, FILE *out)
{
  fprintf(out, "  %-8s %-8s %g to %g%s%s, typical error %g; mapped by %s%.9g, / %.9g\n",
          label->name, label->column, label->min, label->max, *label->unit ? " " : "", label->unit,
          label->scale, label->mapping == MILL_MAP_LOG10 ? "log10, - " : "- ", label->mean,
          label->std);
}

/* Nodes of each label with the range that they span, in the label's unit. */
static void print_grid(const mill_library *lib, const mill_spline_grid *grid, FILE *out)
{
  fprintf(out, "    nodes");
  for (int i = 0; i < grid->n_axis; i++) {
    const mill_label *label = &lib->label[i];
    fprintf(out, "%s %s %d from %.6g to %.6g", i ? "," : "", label->name, grid->n_node[i],
            mill_label_unmap(label, grid->knot[i][0]),
            mill_label_unmap(label, grid->knot[i][grid->n_node[i]]));
  }
  fprintf(out, "; %d components\n", grid->n_out);
}

/* Range of the centers in each label and the length along it, in mapped units. */
static void print_rbf(const mill_library *lib, const mill_rbf *rbf, FILE *out)
{
  fprintf(out, "    centers");
  for (int i = 0; i < rbf->n_axis; i++) {
    double low = INFINITY, high = -INFINITY;
    for (int j = 0; j < rbf->n_center; j++) {
      const double x = rbf->center[(size_t)j * (size_t)rbf->n_axis + (size_t)i];
      low = fmin(low, x);
      high = fmax(high, x);
    }
    fprintf(out, "%s %s from %.6g to %.6g (length %.4g)", i ? "," : "", lib->label[i].name,
            mill_label_unmap(&lib->label[i], low), mill_label_unmap(&lib->label[i], high),
            rbf->length[i]);
  }
  fprintf(out, "; polynomial of degree %d; %d components\n", rbf->degree, rbf->n_out);
}

static void print_arm(const mill_library *lib, const mill_arm *arm, FILE *out)
{
  const mill_emulator *net = &arm->emulator;
  fprintf(out, "  %s (%s): %.3f to %.3f A, %d pixels of %.4f km/s\n", arm->name, arm->setup,
          arm->wave_aa[0], arm->wave_aa[arm->n_pix - 1], arm->n_pix, MILL_C_KM_S * arm->ln_step);
  if (arm->template_sigma_aa < 0)
    fprintf(out, "    templates at the instrument's resolution");
  else
    fprintf(out, "    templates at sigma %g A, for spectra with a resolution matrix",
            arm->template_sigma_aa);
  fprintf(out, "%s%s\n", *arm->sigma_origin ? ": " : "", arm->sigma_origin);
  static const char *const kind_text[N_KIND] = {[MILL_EMULATOR_MLP] = "SiLU",
                                                [MILL_EMULATOR_GRID] = "cubic splines",
                                                [MILL_EMULATOR_RBF] = "radial functions"};
  const int is_grid = net->kind == MILL_EMULATOR_GRID, is_rbf = net->kind == MILL_EMULATOR_RBF;
  size_t n_number = is_grid ? grid_size(&net->grid) : (is_rbf ? rbf_size(&net->rbf) : 0);
  fprintf(out, "    emulator ");
  for (int i = 0; is_grid && i < net->grid.n_axis; i++)
    fprintf(out, "%s%d", i ? "x" : "grid ", net->grid.n_node[i]);
  if (is_rbf)
    fprintf(out, "rbf %d+%d", net->rbf.n_center, net->rbf.n_poly);
  fprintf(out, "%s%d", is_grid || is_rbf ? "-" : "", net->n_in[0]);
  for (int i = 0; i < net->n_layer; i++) {
    fprintf(out, "-%d", net->n_out[i]);
    n_number += (size_t)net->n_out[i] * (size_t)(net->n_in[i] + 1);
  }
  fprintf(out, ", %s, %s, %zu parameters\n", kind_text[net->kind],
          net->log_flux ? "log flux" : "flux", n_number);
  if (is_grid)
    print_grid(lib, &net->grid, out);
  if (is_rbf)
    print_rbf(lib, &net->rbf, out);
  if (*arm->source)
    fprintf(out, "    from %s, revision %s\n", arm->source,
            *arm->revision ? arm->revision : "none");
}

int mill_library_print(const mill_library *lib, FILE *out)
{
  int err = MILL_OK;
  fprintf(out, "library %s\n", *lib->name ? lib->name : "(no name)");
  if (*lib->path)
    fprintf(out, "file    %s\n", lib->path);
  fprintf(out, "format  %d\nhash    %s\n", format_of(lib), lib->hash);
  fprintf(out, "labels  %d\n", lib->n_label);
  for (int i = 0; i < lib->n_label; i++)
    print_label(&lib->label[i], out);
  fprintf(out, "hulls   %d\n", lib->n_hull);
  for (int i = 0; i < lib->n_hull; i++) {
    const mill_hull *hull = &lib->hull[i];
    fprintf(out, "  ");
    for (int j = 0; j < hull->n_label; j++)
      fprintf(out, "%s%s", j ? ", " : "", lib->label[hull->label[j]].name);
    fprintf(out, ": %d facets\n", hull->n_facet);
  }
  fprintf(out, "arms    %d\n", lib->n_arm);
  for (int i = 0; i < lib->n_arm; i++)
    print_arm(lib, &lib->arm[i], out);
  fprintf(out, "guess   %d templates, v sin i", lib->n_guess);
  for (int i = 0; i < lib->n_guess_vsini; i++)
    fprintf(out, "%s %g", i ? "," : "", lib->guess_vsini_km_s[i]);
  fprintf(out, " km/s\n");
  if (fflush(out) != 0 || ferror(out))
    MILL_FAIL(MILL_ERR_OUTPUT, "the description of the library cannot be printed: %s",
              strerror(errno));
done:
  return err;
}
