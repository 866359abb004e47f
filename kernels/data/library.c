/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/data/library.h"

#include <string.h>

#include "kernels/base/memory.h"

void mill_arm_clear(mill_arm *arm)
{
  mill_free(arm->wave_aa);
  for (int j = 0; j < MILL_MAX_LAYER; j++)
    MILL_FREE(arm->emulator.weight[j], arm->emulator.bias[j]);
  mill_spline_grid_clear(&arm->emulator.grid);
  mill_rbf_clear(&arm->emulator.rbf);
  mill_model_error_clear(&arm->error);
  MILL_FREE(arm->sky.wave_aa, arm->sky.component);
  memset(arm, 0, sizeof *arm);
}

void mill_library_clear(mill_library *lib)
{
  if (!lib)
    return;
  for (int i = 0; i < MILL_MAX_HULL; i++)
    mill_free(lib->hull[i].facet);
  for (int i = 0; i < MILL_MAX_ARM; i++)
    mill_arm_clear(&lib->arm[i]);
  MILL_FREE(lib->guess_label, lib->report);
  memset(lib, 0, sizeof *lib);
}

void mill_spline_grid_clear(mill_spline_grid *grid)
{
  if (!grid)
    return;
  for (int i = 0; i < MILL_MAX_GRID_AXIS; i++)
    mill_free(grid->knot[i]);
  mill_free(grid->coef);
  memset(grid, 0, sizeof *grid);
}

void mill_rbf_clear(mill_rbf *rbf)
{
  if (!rbf)
    return;
  MILL_FREE(rbf->center, rbf->coef);
  memset(rbf, 0, sizeof *rbf);
}

void mill_model_error_clear(mill_model_error *error)
{
  if (!error)
    return;
  MILL_FREE(error->fraction, error->component);
  memset(error, 0, sizeof *error);
}

/* edges: rvspecfit's ranges, narrowed by a margin; a label's name must begin with a known name */
void mill_label_set_edges(mill_label *label)
{
  static const struct {
    const char *name;
    double min, max, margin;
  } known[] = {
      {"teff", 2300.0, 15000.0, 10.0}, {"feh", -4.0, 1.0, 0.01}, {"logg", -0.5, 6.5, 0.01}};
  label->edge_min = label->edge_max = 0.0;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strncmp(label->name, known[i].name, strlen(known[i].name)) == 0) {
      label->edge_min = known[i].min + known[i].margin;
      label->edge_max = known[i].max - known[i].margin;
    }
}

int mill_label_is_element(const mill_label *label)
{
  const char *column = label->column; /* AFE: [alpha/Fe] */
  const size_t n = strlen(column);
  return (n == 3 || n == 4) && strcmp(column + n - 2, "FE") == 0 && strcmp(column, "AFE") != 0;
}

int mill_library_find_label(const mill_library *lib, const char *name)
{
  for (int i = 0; i < lib->n_label; i++)
    if (strcmp(lib->label[i].name, name) == 0)
      return i;
  return -1;
}

int mill_library_find_arm(const mill_library *lib, const char *name)
{
  for (int i = 0; i < lib->n_arm; i++)
    if (strcmp(lib->arm[i].name, name) == 0)
      return i;
  return -1;
}

int mill_arm_overlaps(const mill_arm *arm, double min_aa, double max_aa)
{
  return min_aa < exp(arm->ln_wave0 + arm->ln_step * (double)(arm->n_pix - 1)) &&
         max_aa > exp(arm->ln_wave0);
}
