/* SPDX-License-Identifier: BSD-3-Clause */
/* The tests of posteriors with five fibers in the place of a block's threads.  The fibers' order
 * differs in each run, and one test compares the bits of two runs. */
#include "tests/fiber/fiber.h"

static int five_fibers(void **state)
{
  (void)state;
  mill_fiber_configure(5, 1);
  return 0;
}

#define SET_UP five_fibers
#include "tests/kernels/star/test_sample.c"
