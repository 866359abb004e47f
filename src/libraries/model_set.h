/* SPDX-License-Identifier: BSD-3-Clause */
/** Spectra of models in memory, on the pixels of a library. */
#ifndef MILL_MODEL_SET_H
#define MILL_MODEL_SET_H

#include "kernels/data/library.h"

/** label      [n][n_label]  in their units
 *  name       [n]           for people
 *  flux       [n_arm] of [n][n_pix]
 *  continuum  [n_arm] of the same; NULL for an arm without
 *
 *  All owned. */
typedef struct mill_model_set {
  int n;
  double *label;
  char (*name)[64];
  float *flux[MILL_MAX_ARM], *continuum[MILL_MAX_ARM];
} mill_model_set;

/** Room for n models on the arms of a library, zeroed.
 *
 *  has_continuum [n_arm]  NULL: none has
 *  set                    zeroed before; cleared by the caller, also on failure
 *  MILL_ERR_MEMORY. */
int mill_model_set_alloc(int n, const mill_library *lib, const int *has_continuum,
                         mill_model_set *set);

void mill_model_set_clear(mill_model_set *set);

#endif
