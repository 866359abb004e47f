/* SPDX-License-Identifier: BSD-3-Clause */
/** Default rate of a rank where none was measured: for estimates and for sizing work, never for
 *  results. */
#ifndef MILL_USUAL_RATE_H
#define MILL_USUAL_RATE_H

#include "kernels/data/settings.h"

/** Stars a second of one core with an imported network of three arms, DESI coadds with their
 *  resolution matrices, on a Xeon with AVX-512 (docs/develop/performance.md).  optimizer: of the
 *  settings, MILL_OPT_HYBRID, ... */
static inline double mill_usual_core_rate(int optimizer)
{
  /* hybrid and levenberg-marquardt are the same within 2 % */
  return optimizer == MILL_OPT_NELDER_MEAD ? 40.0 : 127.0;
}

/** The same of a GPU: what starmill aims at on one H200, not a measurement. */
static inline double mill_usual_gpu_rate(void)
{
  return 10000.0;
}

#endif
