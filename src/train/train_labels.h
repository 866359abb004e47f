/* SPDX-License-Identifier: BSD-3-Clause */
/** Mapping of the models' labels to inputs of networks. */
#pragma once

#include "kernels/data/library.h"

/** Set column, mapping (log10 for teff, else linear), range, mean and standard deviation of the
 *  labels in lib, from n models.  The labels' names must be set.  starmill/templates/labels.py sets
 *  the other members.
 *
 *  value [n][n_label]   in   in the labels' units
 *  mapped [n][n_label]  out  mapped labels
 *
 *  MILL_ERR_INPUT if a label does not vary or teff is not above 0, MILL_ERR_MEMORY. */
int mill_train_labels(int n, const double *value, mill_library *lib, double *mapped);
