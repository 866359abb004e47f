/* SPDX-License-Identifier: BSD-3-Clause */
/** Default fitting rates, for estimates and sizes of chunks only. */
#ifndef MILL_USUAL_RATE_H
#define MILL_USUAL_RATE_H

#include "kernels/data/settings.h"

/** Stars/s of one core: DESI coadds, three arms with resolution matrices, on a Xeon with AVX-512
 *  (docs/develop/performance.md).  optimizer: MILL_OPT_HYBRID, ... */
static inline double mill_usual_core_rate(int optimizer)
{
  /* hybrid and levenberg-marquardt agree within 2 % */
  return optimizer == MILL_OPT_NELDER_MEAD ? 40.0 : 127.0;
}

/** Stars/s of a GPU: the aim for one H200, not a measurement. */
static inline double mill_usual_gpu_rate(void)
{
  return 10000.0;
}

#endif
