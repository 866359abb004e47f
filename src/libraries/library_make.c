/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/library_make.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/math/hull.h"
#include "src/libraries/limits.h"
#include "src/libraries/point_hull.h"
#include "src/libraries/whole_hull.h"

/* Properties of the labels of synthetic libraries. */
static const struct {
  const char *name, *column, *unit;
  double scale;
} known_label[] = {{"teff", "TEFF", "K", 60},
                   {"logg", "LOGG", "log(cm s**-2)", 0.15},
                   {"feh", "FEH", "dex", 0.1},
                   {"alpha", "ALPHAFE", "dex", 0.05}};

void mill_label_describe(mill_label *label)
{
  for (size_t i = 0; i < sizeof known_label / sizeof *known_label; i++)
    if (strcmp(label->name, known_label[i].name) == 0) {
      snprintf(label->column, sizeof label->column, "%s", known_label[i].column);
      snprintf(label->unit, sizeof label->unit, "%s", known_label[i].unit);
      label->scale = known_label[i].scale;
      return;
    }
  for (size_t i = 0; label->name[i]; i++) {
    const unsigned char c = (unsigned char)label->name[i];
    label->column[i] = (char)(isalnum(c) ? toupper(c) : '_');
  }
}

int mill_label_measure(int n, const double *value, mill_label *label)
{
  double sum = 0, square = 0;
  mill_label_describe(label);
  label->min = INFINITY;
  label->max = -INFINITY;
  for (int i = 0; i < n; i++) {
    label->min = fmin(label->min, value[i]);
    label->max = fmax(label->max, value[i]);
  }
  const int is_teff = strcmp(label->name, "teff") == 0;
  if (is_teff && !(label->min > 0))
    return MILL_ERROR(MILL_ERR_INPUT, "label teff goes down to %g; it must be above 0", label->min);
  label->mapping = is_teff ? MILL_MAP_LOG10 : MILL_MAP_LINEAR;
  label->mean = 0;
  label->std = 1;
  for (int i = 0; i < n; i++)
    sum += mill_label_map(label, value[i]);
  label->mean = sum / n;
  for (int i = 0; i < n; i++)
    square += pow(mill_label_map(label, value[i]), 2);
  const double std = sqrt(square / n);
  if (!(std > 1e-9 * (1 + fabs(label->mean))))
    return MILL_ERROR(MILL_ERR_INPUT,
                      "label %s is %g in all %d spectra in use; leave it out or keep a wider range",
                      label->name, label->min, n);
  label->std = std;
  if (!(label->scale > 0)) /* of a label that is not known */
    label->scale = 0.1 * (label->max - label->min) / sqrt(12);
  return MILL_OK;
}

/* One hull of all labels. */
static int make_whole_hull(int n, const double *mapped, mill_library *lib)
{
  mill_hull *hull = &lib->hull[lib->n_hull++];
  hull->n_label = lib->n_label;
  for (int l = 0; l < lib->n_label; l++)
    hull->label[l] = l;
  MILL_CHECK(mill_whole_hull(n, lib->n_label, mapped, &hull->n_facet, &hull->facet));
  if (hull->n_facet > MILL_MAX_FACET)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "the hull of %d labels of %d models has %d facets, at most %d: use hulls of pairs",
        lib->n_label, n, hull->n_facet, MILL_MAX_FACET);
  return MILL_OK;
}

int mill_library_make_hulls(int n, const double *mapped, int kind, mill_library *lib)
{
  int err = MILL_OK;
  double *x = NULL;
  const int n_label = lib->n_label;
  if (n_label == 1) {
    mill_hull *hull = &lib->hull[lib->n_hull++];
    hull->n_label = 1;
    hull->n_facet = 2;
    MILL_TRY(MILL_ALLOC(4, &hull->facet));
    hull->facet[0] = -1;
    hull->facet[1] = mill_label_map(&lib->label[0], lib->label[0].min);
    hull->facet[2] = 1;
    hull->facet[3] = -mill_label_map(&lib->label[0], lib->label[0].max);
    return MILL_OK;
  }
  if (kind == MILL_HULLS_WHOLE && n_label > 2)
    return make_whole_hull(n, mapped, lib);
  if (n_label * (n_label - 1) / 2 > MILL_MAX_HULL)
    MILL_FAIL(MILL_ERR_INPUT, "%d labels have more pairs than the %d hulls of a library", n_label,
              MILL_MAX_HULL);
  MILL_TRY(MILL_ALLOC(2 * n, &x));
  for (int a = 0; a < n_label; a++)
    for (int b = a + 1; b < n_label; b++) {
      mill_hull *hull = &lib->hull[lib->n_hull++];
      hull->n_label = 2;
      hull->label[0] = a;
      hull->label[1] = b;
      for (int i = 0; i < n; i++) {
        x[2 * i] = mapped[i * n_label + a];
        x[2 * i + 1] = mapped[i * n_label + b];
      }
      if (mill_hull_of_points(n, x, kind != MILL_HULLS_DENSE, &hull->n_facet, &hull->facet) !=
          MILL_OK)
        MILL_FAIL(MILL_ERR_INPUT, "labels %s and %s are not independent: %s", lib->label[a].name,
                  lib->label[b].name, mill_error_message());
    }
done:
  mill_free(x);
  return err;
}

static void set_rotations(mill_library *lib)
{
  lib->n_guess_vsini = 2;
  lib->guess_vsini_km_s[0] = 0;
  lib->guess_vsini_km_s[1] = 100;
}

int mill_arm_make_waves(mill_arm *arm)
{
  MILL_CHECK(MILL_ALLOC(arm->n_pix, &arm->wave_aa));
  for (int i = 0; i < arm->n_pix; i++)
    arm->wave_aa[i] = exp(arm->ln_wave0 + i * arm->ln_step);
  return MILL_OK;
}

int mill_library_make_labels(int n, const double *value, mill_library *lib, double *mapped)
{
  int err = MILL_OK;
  const size_t n_label = (size_t)lib->n_label;
  double *one = NULL;
  MILL_TRY(MILL_ALLOC(n, &one));
  for (size_t l = 0; l < n_label; l++) {
    for (size_t i = 0; i < (size_t)n; i++)
      one[i] = value[i * n_label + l];
    MILL_TRY(mill_label_measure(n, one, &lib->label[l]));
    for (size_t i = 0; i < (size_t)n; i++)
      mapped[i * n_label + l] = mill_label_map(&lib->label[l], one[i]);
  }
done:
  mill_free(one);
  return err;
}

static double distance2(int n_label, const double *a, const double *b, const double *length)
{
  double sum = 0;
  for (int l = 0; l < n_label; l++) {
    const double d = length ? (a[l] - b[l]) / length[l] : a[l] - b[l];
    sum += d * d;
  }
  return sum;
}

int mill_library_spread_guess(int n, const double *value, const double *mapped,
                              const double *length, int n_guess, mill_library *lib,
                              unsigned char *outside)
{
  int err = MILL_OK;
  double *free2 = NULL, nearest = INFINITY; /* squared distance from the nearest one taken */
  const size_t n_label = (size_t)lib->n_label;
  const int most = n_guess < n ? n_guess : n;
  int next = -1;
  MILL_TRY(MILL_ALLOC(n, &free2));
  MILL_TRY(MILL_ALLOC((size_t)most * n_label, &lib->guess_label));
  for (int i = 0; i < n; i++) {
    const double *x = mapped + (size_t)i * n_label;
    double r2 = 0;
    for (size_t l = 0; l < n_label; l++)
      r2 += x[l] * x[l];
    const int inside = mill_hull_distance(lib->n_hull, lib->hull, x) <= 1e-10;
    free2[i] = inside ? INFINITY : -1;
    if (outside)
      outside[i] = (unsigned char)!inside;
    if (inside && r2 < nearest) { /* begin in the middle */
      nearest = r2;
      next = i;
    }
  }
  while (next >= 0 && lib->n_guess < most) {
    const double *last = mapped + (size_t)next * n_label;
    memcpy(lib->guess_label + (size_t)lib->n_guess++ * n_label, value + (size_t)next * n_label,
           n_label * sizeof *value);
    next = -1;
    for (int i = 0; i < n; i++) {
      free2[i] =
          fmin(free2[i], distance2(lib->n_label, mapped + (size_t)i * n_label, last, length));
      /* two spectra of the same labels are one template */
      if (free2[i] > 1e-12 && (next < 0 || free2[i] > free2[next]))
        next = i;
    }
  }
  if (lib->n_guess == 0)
    MILL_FAIL(MILL_ERR_INPUT, "no spectrum lies inside the hulls of its labels");
  set_rotations(lib);
done:
  mill_free(free2);
  return err;
}

int mill_library_make_check(int n_component, double smoothing, int n_guess, int n_thread)
{
  MILL_CHECK(mill_expect_within(MILL_ERR_RANGE, "principal components (0: the default)",
                                n_component, 0, MILL_MAX_WIDTH));
  if (!(smoothing >= 0) || !isfinite(smoothing))
    return MILL_ERROR(MILL_ERR_RANGE, "a smoothing of %g; it must be above 0, or 0 for the best",
                      smoothing);
  if (n_guess < 1 || n_thread < 1)
    return MILL_ERROR(MILL_ERR_RANGE,
                      "%d templates for the initial guess and %d threads; at least one is needed",
                      n_guess, n_thread);
  return MILL_OK;
}
