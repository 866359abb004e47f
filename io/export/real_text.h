/** Numbers as text: what printf writes, in a tenth of its time. */
#ifndef MILL_REAL_TEXT_H
#define MILL_REAL_TEXT_H

#include <stddef.h>
#include <stdint.h>

enum { MILL_NUMBER_SIZE = 32 /**< bytes that hold any number and its end */ };

/** x as "%.15g" where that reads back as x, else as "%.17g"; returns its length.
 *
 *  From 1e-8 to 1e17 the digits come from exact integers of 128 bits, x 10^k = m 5^k 2^(e+k) with m
 *  of 53 bits, and are rounded as glibc rounds them, halves to even; others are printf's. */
size_t mill_real_text(double x, char out[MILL_NUMBER_SIZE]);

/** x as "%lld". */
size_t mill_integer_text(int64_t x, char out[MILL_NUMBER_SIZE]);

#endif
