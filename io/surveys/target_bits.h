/* SPDX-License-Identifier: BSD-3-Clause */
/** DESI's target classes: names of the bits in its target columns. */
#pragma once

#include <stdint.h>

#include "src/config/config.h"

/** Return the name of target column i; NULL: i is too large.  The columns are DESI_TARGET,
 *  MWS_TARGET, SCND_TARGET, the same three with SV1_, with SV2_ and with SV3_, and CMX_TARGET. */
const char *mill_target_column(int i);

/** Set *bits to the bits of column i whose names match a target class.  MILL_ERR_CONFIG. */
int mill_target_bits(const mill_selection *select, int i, uint64_t *bits);

/** Fail with MILL_ERR_INPUT if a target class of the selection matches no bit of any column.
 *  path: the file, for the message. */
int mill_target_bits_check(const mill_selection *select, const char *path);
