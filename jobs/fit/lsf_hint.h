/* SPDX-License-Identifier: BSD-3-Clause */
/** Hints that the templates are broader than the line-spread function of most spectra (LSF_NARROW
 *  of FIT_INFO), in numbers, and that a configured width is used nowhere. */
#ifndef MILL_LSF_HINT_H
#define MILL_LSF_HINT_H

#include "io/surveys/spectra.h"
#include "kernels/data/library.h"
#include "src/ranks/mpi_context.h"

/** Of each arm the segments that are narrower than the templates, and the sum of their sigmas; of
 *  all arms the segments looked at. */
typedef struct mill_narrow_widths {
  double n[MILL_MAX_ARM], sum_aa[MILL_MAX_ARM];
  int n_seen;
} mill_narrow_widths;

/** Count a segment that is narrower than the templates of its arm, unless it is one of very
 *  many. */
void mill_narrow_note(mill_narrow_widths *widths, const mill_library *lib,
                      const mill_raw_segment *segment);

/** Segments for which the configuration has a resolving power or FWHM, by whether it is used. */
typedef struct mill_width_use {
  int64_t n_used, n_unused;
} mill_width_use;

void mill_width_note(mill_width_use *use, const mill_config *config, const mill_library *lib,
                     const mill_raw_segment *segment);

/** Collective: say on rank 0 that none is used. */
int mill_width_hint(const mill_mpi *mpi, const mill_config *config, const mill_width_use *mine);

/** Collective: say so on rank 0 when n_narrow are most of n_fitted rows. */
int mill_narrow_hint(const mill_mpi *mpi, const mill_library *lib, const mill_narrow_widths *mine,
                     int64_t n_narrow, int64_t n_fitted);

#endif
