/** How fast a rank fits stars where that was not measured: for estimates and for sizing work,
 *  never for results. */
#ifndef MILL_USUAL_RATE_H
#define MILL_USUAL_RATE_H

/** Stars a second of one core with an imported network of three arms, DESI coadds with their
 *  resolution matrices, on a Xeon with AVX-512 (docs/benchmarks.md).  optimizer: of the settings,
 *  MILL_OPT_HYBRID, ... */
double mill_usual_core_rate(int optimizer);

/** The same of a GPU: what starmill aims at on one H200, not a measurement. */
double mill_usual_gpu_rate(void);

#endif
