/* SPDX-License-Identifier: BSD-3-Clause */
#include <ctype.h>
#include <string.h>

#include "io/library/library_parts.h"
#include "io/result/columns.h"
#include "kernels/math/hull.h"
#include "kernels/math/rbf.h"

#define REFUSED(where, format, ...)                                                                \
  MILL_ERROR(MILL_ERR_LIBRARY, "%s: " format "; make the library again", where, ##__VA_ARGS__)

static int all_finite_f32(size_t n, const float *x)
{
  size_t i = 0;
  while (i < n && isfinite(x[i]))
    i++;
  return i == n;
}

static int all_finite_f64(size_t n, const double *x)
{
  size_t i = 0;
  while (i < n && isfinite(x[i]))
    i++;
  return i == n;
}

/* Can this name a configuration key and a column?  Only letters, digits and _ are allowed. */
static int is_name(const char *name)
{
  if (!*name || strlen(name) >= MILL_MAX_NAME)
    return 0;
  for (const char *c = name; *c; c++)
    if (!isascii((unsigned char)*c) || !(isalnum((unsigned char)*c) || *c == '_'))
      return 0;
  return 1;
}

static int is_printable(const char *text)
{
  for (const char *c = text; *c; c++)
    if (!isascii((unsigned char)*c) || !isprint((unsigned char)*c))
      return 0;
  return 1;
}

static int check_labels(const mill_library *lib, const char *where)
{
  for (int i = 0; i < lib->n_label; i++) {
    const mill_label *label = &lib->label[i];
    if (!is_name(label->name) || !is_name(label->column))
      return REFUSED(where, "name or column of label %d is not made of letters, digits and _", i);
    if (!is_printable(label->unit))
      return REFUSED(where, "the unit of label %s has unprintable characters", label->name);
    if (strcmp(label->name, "vrad") == 0 || strcmp(label->name, "vsini") == 0 ||
        strcmp(label->column, "VRAD") == 0 || strcmp(label->column, "VSINI") == 0)
      return REFUSED(
          where, "a label may not be called %s (column %s): every fit already has this parameter",
          label->name, label->column);
    for (int j = 0; j < i; j++)
      if (strcmp(label->name, lib->label[j].name) == 0 ||
          strcmp(label->column, lib->label[j].column) == 0)
        return REFUSED(where, "label %s (column %s) appears twice", label->name, label->column);
    if (label->mapping != MILL_MAP_LINEAR && label->mapping != MILL_MAP_LOG10)
      return REFUSED(where, "label %s has mapping %d, expected 0 (linear) or 1 (log10)",
                     label->name, label->mapping);
    if (!isfinite(label->mean) || !isfinite(label->std) || !(label->std > 0))
      return REFUSED(where, "label %s has mean %g and std %g; they must be finite and std above 0",
                     label->name, label->mean, label->std);
    if (!isfinite(label->min) || !isfinite(label->max) || !(label->min < label->max) ||
        (label->mapping == MILL_MAP_LOG10 && !(label->min > 0)))
      return REFUSED(where, "label %s has the impossible range %g to %g", label->name, label->min,
                     label->max);
    if (!isfinite(label->scale) || !(label->scale > 0))
      return REFUSED(where, "the scale %g of label %s is not above 0", label->scale, label->name);
    if (!isfinite(label->floor) || label->floor < 0)
      return REFUSED(where, "the floor %g of label %s is below 0", label->floor, label->name);
  }
  return MILL_OK;
}

/* Check that hulls name valid labels, have unit normals, and bound every label. */
static int check_hulls(const mill_library *lib, const char *where)
{
  int in_hull[MILL_MAX_LABEL] = {0};
  for (int i = 0; i < lib->n_hull; i++) {
    const mill_hull *hull = &lib->hull[i];
    if (hull->n_label > lib->n_label)
      return REFUSED(where, "hull %d spans %d labels, but the library has %d", i, hull->n_label,
                     lib->n_label);
    for (int j = 0; j < hull->n_label; j++) {
      if (hull->label[j] < 0 || hull->label[j] >= lib->n_label)
        return REFUSED(where, "hull %d names label %d, but there are %d labels", i, hull->label[j],
                       lib->n_label);
      for (int k = 0; k < j; k++)
        if (hull->label[j] == hull->label[k])
          return REFUSED(where, "hull %d names label %d twice", i, hull->label[j]);
      in_hull[hull->label[j]] = 1;
    }
    if (hull->n_facet <= hull->n_label)
      return REFUSED(where, "hull %d over %d labels has %d facets, expected %d or more", i,
                     hull->n_label, hull->n_facet, hull->n_label + 1);
    const int n_col = hull->n_label + 1;
    for (int j = 0; j < hull->n_facet; j++) {
      const double *facet = hull->facet + (size_t)j * (size_t)n_col; /* normal, offset */
      double norm2 = 0;
      for (int k = 0; k < hull->n_label; k++)
        norm2 += facet[k] * facet[k];
      /* NaN fails this test */
      if (!(fabs(sqrt(norm2) - 1) <= 1e-6) || !isfinite(facet[hull->n_label]))
        return REFUSED(where,
                       "facet %d of hull %d has a normal of length %g (expected 1) and the offset "
                       "%g (expected a finite number)",
                       j, i, sqrt(norm2), facet[hull->n_label]);
    }
  }
  for (int i = 0; i < lib->n_label; i++)
    if (!in_hull[i])
      return REFUSED(where, "label %s is in no hull, but each label needs one", lib->label[i].name);
  return MILL_OK;
}

/* Check a clamped knot vector: `order` equal knots at each end, ascending knots between. */
static int check_knots(const mill_arm *arm, const char *label, int n_node, const double *knot,
                       const char *where)
{
  const int order = mill_spline_grid_order(&arm->emulator.grid);
  for (int i = 0; i < n_node + order; i++) {
    if (!isfinite(knot[i]))
      return REFUSED(where, "knot %d of label %s of arm %s is not finite", i, label, arm->name);
    if (i == 0)
      continue;
    const int clamped = i < order || i > n_node;
    if (clamped && knot[i] > knot[i - 1])
      return REFUSED(where,
                     "label %s of arm %s: the first %d knots must be equal, and so must the last "
                     "%d, but knot %d is %.9g after %.9g",
                     label, arm->name, order, order, i, knot[i], knot[i - 1]);
    if (knot[i] < knot[i - 1] || (!clamped && knot[i] <= knot[i - 1]))
      return REFUSED(where,
                     "the knots of label %s of arm %s do not ascend (knot %d is %.9g after %.9g)",
                     label, arm->name, i, knot[i], knot[i - 1]);
  }
  return MILL_OK;
}

int mill_library_check_axes(const mill_arm *arm, int n_label, const char *where)
{
  if (n_label > MILL_MAX_GRID_AXIS)
    return REFUSED(where, "the emulator of arm %s is a %s of %d labels, this program takes 1 to %d",
                   arm->name,
                   arm->emulator.kind == MILL_EMULATOR_GRID ? "grid" : "sum of radial functions",
                   n_label, MILL_MAX_GRID_AXIS);
  return MILL_OK;
}

/* Check the numbers of labels and layers of a grid or of radial functions. */
static int check_front(const mill_library *lib, const mill_arm *arm, const char *where)
{
  const int is_grid = arm->emulator.kind == MILL_EMULATOR_GRID;
  MILL_CHECK(mill_library_check_axes(arm, lib->n_label, where));
  if (arm->emulator.n_layer != 1)
    return REFUSED(where, "the %s of arm %s %s followed by %d network layers, expected 1",
                   is_grid ? "grid" : "radial functions", arm->name, is_grid ? "is" : "are",
                   arm->emulator.n_layer);
  return MILL_OK;
}

static int check_grid(const mill_library *lib, const mill_arm *arm, const char *where)
{
  const mill_spline_grid *grid = &arm->emulator.grid;
  size_t size = (size_t)grid->n_out;
  MILL_CHECK(check_front(lib, arm, where));
  for (int i = 0; i < grid->n_axis; i++) {
    MILL_CHECK(check_knots(arm, lib->label[i].name, grid->n_node[i], grid->knot[i], where));
    size *= (size_t)grid->n_node[i];
  }
  if (!all_finite_f32(size, grid->coef))
    return REFUSED(where, "grid of arm %s: a spline coefficient is not finite", arm->name);
  return MILL_OK;
}

static int check_rbf(const mill_library *lib, const mill_arm *arm, const char *where)
{
  const mill_rbf *rbf = &arm->emulator.rbf;
  const size_t n_coef = ((size_t)rbf->n_center + (size_t)rbf->n_poly) * (size_t)rbf->n_out;
  MILL_CHECK(check_front(lib, arm, where));
  for (int i = 0; i < rbf->n_axis; i++)
    if (!isfinite(rbf->length[i]) || !(rbf->length[i] > 0))
      return REFUSED(where,
                     "length scale %g of label %s in the radial functions of arm %s is not above 0",
                     rbf->length[i], lib->label[i].name, arm->name);
  if (!all_finite_f64((size_t)rbf->n_center * (size_t)rbf->n_axis, rbf->center))
    return REFUSED(where, "arm %s has a radial function whose center is not finite", arm->name);
  if (n_coef > MILL_MAX_RBF_COEF)
    return REFUSED(where,
                   "the radial functions of arm %s have more than %d coefficients, the most that "
                   "this program takes",
                   arm->name, MILL_MAX_RBF_COEF);
  if (!all_finite_f32(n_coef, rbf->coef))
    return REFUSED(where, "the radial functions of arm %s have a coefficient that is not finite",
                   arm->name);
  return MILL_OK;
}

/* Check that each layer takes the outputs of the layer before, and the last gives the pixels. */
static int check_emulator(const mill_library *lib, const mill_arm *arm, const char *where)
{
  const mill_emulator *net = &arm->emulator;
  const char *before = "the labels";
  int n_before = lib->n_label;
  if (net->kind == MILL_EMULATOR_GRID) {
    MILL_CHECK(check_grid(lib, arm, where));
    before = "components of the grid";
    n_before = net->grid.n_out;
  }
  if (net->kind == MILL_EMULATOR_RBF) {
    MILL_CHECK(check_rbf(lib, arm, where));
    before = "components of the radial functions";
    n_before = net->rbf.n_out;
  }
  if (net->log_flux != 0 && net->log_flux != 1)
    return REFUSED(where, "log_flux of arm %s is %d, expected 0 or 1", arm->name, net->log_flux);
  for (int i = 0; i < net->n_layer; i++) {
    if (net->n_in[i] != n_before)
      return REFUSED(where, "layer %d of arm %s takes %d inputs, expected %d (%s)", i, arm->name,
                     net->n_in[i], n_before, before);
    if (i == net->n_layer - 1 && net->n_out[i] != arm->n_pix)
      return REFUSED(where, "the last layer of arm %s gives %d pixels, expected %d", arm->name,
                     net->n_out[i], arm->n_pix);
    const size_t n_out = (size_t)net->n_out[i];
    if (!all_finite_f32(n_out * (size_t)net->n_in[i], net->weight[i]) ||
        !all_finite_f32(n_out, net->bias[i]))
      return REFUSED(where, "layer %d of arm %s has a weight or bias that is not finite", i,
                     arm->name);
    before = "outputs of the layer before";
    n_before = net->n_out[i];
  }
  return MILL_OK;
}

/* Check an arm's model error: its fraction of the flux, correlation and components. */
static int check_error(const mill_arm *arm, const char *where)
{
  const mill_model_error *error = &arm->error;
  const size_t n_pix = (size_t)arm->n_pix;
  if (!error->fraction)
    return MILL_OK;
  for (size_t i = 0; i < n_pix; i++)
    if (!(error->fraction[i] >= 0 && error->fraction[i] <= MILL_LIBRARY_MAX_ERROR))
      return REFUSED(
          where, "the model error of arm %s in pixel %zu is %g times the flux, expected 0 to %g",
          arm->name, i, (double)error->fraction[i], MILL_LIBRARY_MAX_ERROR);
  if (!(error->correlation >= 0 && error->correlation <= (double)n_pix))
    return REFUSED(where,
                   "the model error of arm %s is correlated over %g pixels, expected 0 to %d",
                   arm->name, error->correlation, arm->n_pix);
  for (int j = 0; j < error->n_component; j++)
    if (!(error->sigma[j] >= 0 && error->sigma[j] <= MILL_LIBRARY_MAX_ERROR))
      return REFUSED(where,
                     "component %d of the model error of arm %s has the standard deviation %g, "
                     "expected 0 to %g",
                     j, arm->name, error->sigma[j], MILL_LIBRARY_MAX_ERROR);
  if (!all_finite_f32((size_t)error->n_component * n_pix, error->component))
    return REFUSED(where, "a component of the model error of arm %s is not finite", arm->name);
  return MILL_OK;
}

static int check_arms(const mill_library *lib, const char *where)
{
  for (int i = 0; i < lib->n_arm; i++) {
    const mill_arm *arm = &lib->arm[i];
    if (!is_name(arm->name))
      return REFUSED(where, "the name of arm %d is not made of letters, digits and _", i);
    for (const char *c = arm->name; *c; c++)
      if (isupper((unsigned char)*c))
        return REFUSED(where, "the name of arm %s is not in lower case", arm->name);
    for (int j = 0; j < i; j++)
      if (strcmp(arm->name, lib->arm[j].name) == 0)
        return REFUSED(where, "two arms are called %s", arm->name);
    if (!is_printable(arm->setup) || !is_printable(arm->sigma_origin) ||
        !is_printable(arm->source) || !is_printable(arm->revision))
      return REFUSED(where, "a text of arm %s has unprintable characters", arm->name);
    if (!isfinite(arm->ln_wave0) || !isfinite(arm->ln_step) || !(arm->ln_step > 0))
      return REFUSED(where, "the step of arm %s in ln wavelength is %g, expected above 0",
                     arm->name, arm->ln_step);
    for (int j = 0; j < arm->n_pix; j++)
      if (!(fabs(log(arm->wave_aa[j]) - (arm->ln_wave0 + j * arm->ln_step)) <= 1e-6 * arm->ln_step))
        return REFUSED(where,
                       "the wavelengths of arm %s are not uniform in ln wavelength (pixel %d at "
                       "%.9g A, expected %.9g)",
                       arm->name, j, arm->wave_aa[j], exp(arm->ln_wave0 + j * arm->ln_step));
    if (!isfinite(arm->template_sigma_aa))
      return REFUSED(where, "template_sigma of arm %s is not finite", arm->name);
    const double width_aa = arm->wave_aa[arm->n_pix - 1] - arm->wave_aa[0];
    if (arm->template_sigma_aa > MILL_MAX_SIGMA_WIDTH * width_aa)
      return REFUSED(
          where, "template_sigma of arm %s is %g A, expected at most %.3g A for an arm %.6g A wide",
          arm->name, arm->template_sigma_aa, MILL_MAX_SIGMA_WIDTH * width_aa, width_aa);
    MILL_CHECK(check_emulator(lib, arm, where));
    MILL_CHECK(check_error(arm, where));
  }
  return MILL_OK;
}

/* Check the labels and v sin i of the initial guess's templates. */
static int check_guess(const mill_library *lib, const char *where)
{
  double mapped[MILL_MAX_LABEL];
  for (int i = 0; i < lib->n_guess; i++) {
    const double *label = lib->guess_label + (size_t)i * (size_t)lib->n_label;
    for (int l = 0; l < lib->n_label; l++)
      mapped[l] = mill_label_map(&lib->label[l], label[l]);
    /* tolerance: labels of points on a facet may be rounded */
    if (!all_finite_f64((size_t)lib->n_label, label) ||
        !(mill_hull_distance(lib->n_hull, lib->hull, mapped) <= 1e-9))
      return REFUSED(
          where,
          "the labels of template %d of the initial guess are not finite, or outside the hulls", i);
  }
  for (int i = 0; i < lib->n_guess_vsini; i++)
    if (!isfinite(lib->guess_vsini_km_s[i]) || !(lib->guess_vsini_km_s[i] >= 0))
      return REFUSED(where, "initial guess: v sin i number %d is %g km/s, expected 0 or more", i,
                     lib->guess_vsini_km_s[i]);
  return MILL_OK;
}

int mill_library_check(const mill_library *lib, const char *where)
{
  mill_columns columns;
  if (!is_printable(lib->name))
    return REFUSED(where, "the library's name has unprintable characters");
  MILL_CHECK(check_labels(lib, where));
  MILL_CHECK(check_hulls(lib, where));
  MILL_CHECK(check_arms(lib, where));
  MILL_CHECK(check_guess(lib, where));
  /* refuse column names that a fit would refuse */
  return mill_columns_fits(lib, where, MILL_WITH_ANY_FIT, &columns);
}
