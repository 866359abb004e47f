/* SPDX-License-Identifier: BSD-3-Clause */
/** Check that settings are within limits, with one form of message. */
#ifndef MILL_LIBRARIES_LIMITS_H
#define MILL_LIBRARIES_LIMITS_H

#include "kernels/base/error.h"

/** code with "WHAT: expected LOW to HIGH, got VALUE", or MILL_OK. */
int mill_expect_within(int code, const char *what, long long value, long long low, long long high);

/** The same for a finite number above 0. */
int mill_expect_above_0(int code, const char *what, double value);

#endif
