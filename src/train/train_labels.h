/* SPDX-License-Identifier: BSD-3-Clause */
/** Labels of models as networks take them. */
#ifndef MILL_TRAIN_LABELS_H
#define MILL_TRAIN_LABELS_H

#include "kernels/data/library.h"

/** Column, mapping (log10 of teff, else linear), range, mean and spread of all labels of a library,
 *  whose names are set, from those of models; starmill/templates/labels.py knows the rest.
 *
 *  value [n][n_label]   in   in the labels' units
 *  mapped [n][n_label]  out
 *  MILL_ERR_INPUT where one does not vary, MILL_ERR_MEMORY. */
int mill_train_labels(int n, const double *value, mill_library *lib, double *mapped);

#endif
