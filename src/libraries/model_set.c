/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/model_set.h"

#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"

int mill_model_set_alloc(int n, const mill_library *lib, const int *has_continuum,
                         mill_model_set *set)
{
  set->n = n;
  MILL_CHECK(MILL_ALLOC((size_t)n * (size_t)lib->n_label, &set->label));
  MILL_CHECK(MILL_ALLOC(n, &set->name));
  for (int a = 0; a < lib->n_arm; a++) {
    const size_t size = (size_t)n * (size_t)lib->arm[a].n_pix;
    MILL_CHECK(MILL_ALLOC(size, &set->flux[a]));
    if (has_continuum && has_continuum[a])
      MILL_CHECK(MILL_ALLOC(size, &set->continuum[a]));
  }
  return MILL_OK;
}

void mill_model_set_clear(mill_model_set *set)
{
  MILL_FREE(set->label, set->name);
  for (int a = 0; a < MILL_MAX_ARM; a++)
    MILL_FREE(set->flux[a], set->continuum[a]);
  memset(set, 0, sizeof *set);
}
