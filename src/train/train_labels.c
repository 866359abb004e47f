/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/train/train_labels.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "kernels/base/memory.h"
#include "kernels/math/hull.h"

static void name_column(mill_label *label)
{
  if (strcmp(label->name, "alpha") == 0) {
    snprintf(label->column, sizeof label->column, "ALPHAFE");
    return;
  }
  for (size_t i = 0; label->name[i]; i++) {
    const unsigned char c = (unsigned char)label->name[i];
    label->column[i] = (char)(isalnum(c) ? toupper(c) : '_');
  }
}

/* Set a label's column, range and mapping from its n values; mean and std are of mapped values. */
static int measure(int n, const double *value, mill_label *label)
{
  double sum = 0, square = 0;
  name_column(label);
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
  return MILL_OK;
}

int mill_train_labels(int n, const double *value, mill_library *lib, double *mapped)
{
  const size_t n_label = (size_t)lib->n_label;
  MILL_OWNED double *one = NULL;
  MILL_CHECK(MILL_ALLOC(n, &one));
  for (size_t l = 0; l < n_label; l++) {
    for (size_t i = 0; i < (size_t)n; i++)
      one[i] = value[i * n_label + l];
    MILL_CHECK(measure(n, one, &lib->label[l]));
    for (size_t i = 0; i < (size_t)n; i++)
      mapped[i * n_label + l] = mill_label_map(&lib->label[l], one[i]);
  }
  return MILL_OK;
}
