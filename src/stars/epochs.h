/* SPDX-License-Identifier: BSD-3-Clause */
/** Epochs of a star: exposures, or nights, with a velocity of their own. */
#pragma once

#include "kernels/data/star.h"

/** Number the epochs of a star's segments: each exposure is one, or (by_night) each night.  An
 *  exposure without a time is always one.  MILL_ERR_MEMORY. */
int mill_star_number_epochs(mill_star *star, int by_night);
