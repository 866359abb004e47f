/* SPDX-License-Identifier: BSD-3-Clause */
/** A hint that wavelengths in air may have been taken for vacuum, or the other way round: then all
 *  velocities are shifted by the refraction of air. */
#ifndef MILL_MEDIUM_HINT_H
#define MILL_MEDIUM_HINT_H

#include "kernels/data/result.h"
#include "src/ranks/mpi_context.h"

enum { MILL_HINT_BINS = 402 };

/** Good velocities by km/s from -200 to 200; the first and the last count what is beyond. */
typedef struct mill_velocity_counts {
  int64_t n[MILL_HINT_BINS];
} mill_velocity_counts;

/** Count a row if its velocity is good. */
void mill_velocity_count(mill_velocity_counts *counts, const mill_fit_result *result);

/** The sign of a median velocity that is about what a confusion of air and vacuum gives, and known
 *  well enough to tell: -1 air taken for vacuum, 1 vacuum taken for air, 0 neither.  Also the
 *  median and the number of velocities. */
int mill_medium_shift(const mill_velocity_counts *counts, double *median_km_s, int64_t *n);

/** Collective: say so on rank 0, for the rows of this run. */
int mill_medium_hint(const mill_mpi *mpi, const mill_velocity_counts *mine);

#endif
