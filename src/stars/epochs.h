/* SPDX-License-Identifier: BSD-3-Clause */
/** Epochs of a star: the exposures, or nights, that get a velocity of their own. */
#ifndef MILL_EPOCHS_H
#define MILL_EPOCHS_H

#include "kernels/data/star.h"

/** Number the epochs of a star's segments: its exposures, or their nights; an exposure without a
 *  time is an epoch of its own.  MILL_ERR_MEMORY. */
int mill_star_number_epochs(mill_star *star, int by_night);

#endif
