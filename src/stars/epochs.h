/* SPDX-License-Identifier: BSD-3-Clause */
/** Epochs of a star: exposures, or nights, with a velocity of their own. */
#pragma once

#include "kernels/data/star.h"

/** Number the epochs of a star's segments: an epoch is an exposure or, with by_night, a night.  An
 *  exposure without a time is always an epoch of its own.  Arms of one exposure that come in
 *  several files (times within 9 s, other wavelengths) are one epoch.  MILL_ERR_MEMORY. */
int mill_star_number_epochs(mill_star *star, int by_night);
