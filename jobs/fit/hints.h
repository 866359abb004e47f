/* SPDX-License-Identifier: BSD-3-Clause */
/** Warnings at the end of a fit about settings that are probably wrong for all its stars: medium of
 *  the wavelengths, templates broader than the spectra, a resolving power without effect, epochs
 *  without times. */
#pragma once

#include "io/surveys/spectra.h"
#include "kernels/data/result.h"
#include "src/ranks/mpi_context.h"

/** Segments whose line-spread function is narrower than their arm's templates. */
typedef struct mill_narrow_widths {
  double n[MILL_MAX_ARM], sum_aa[MILL_MAX_ARM]; /**< their number and sum of sigmas (A), by arm */
  int n_seen;                                   /**< segments examined, in all arms */
} mill_narrow_widths;

/** Count a segment if its line-spread function is narrower than its arm's templates.  Only a
 *  rank's first 1000 segments are examined. */
void mill_narrow_note(mill_narrow_widths *widths, const mill_fit_settings *set,
                      const mill_library *lib, const mill_raw_segment *segment);

/** If more than half of n_fitted rows have the flag LSF_NARROW, warn on rank 0 and name the widths
 *  of templates and spectra.  n_narrow: number of rows with the flag.  Collective. */
int mill_narrow_hint(const mill_mpi *mpi, const mill_library *lib, const mill_narrow_widths *mine,
                     int64_t n_narrow, int64_t n_fitted);

/** Numbers of segments; all members are int64_t. */
typedef struct mill_segment_counts {
  int64_t n_used, n_unused; /**< whose arm has a resolving power or FWHM: used, not used */
  int64_t n_coarse;         /**< with a resolution matrix in an arm of a thinned grid */
  int64_t n_untimed;        /**< without a time, of stars with several exposures and epochs */
} mill_segment_counts;

void mill_segment_note(mill_segment_counts *counts, const mill_config *config,
                       const mill_library *lib, const mill_raw_segment *segment);

/** Warn on rank 0 if this run took all rows (is_whole) but no segment used the configured resolving
 *  power or FWHM, or if n_coarse or n_untimed is not 0.  mine: this rank's counts.  Collective. */
int mill_segment_hint(const mill_mpi *mpi, const mill_config *config,
                      const mill_segment_counts *mine, int is_whole);

enum { MILL_HINT_BINS = 402 };

/** Histogram of good velocities in bins of 1 km/s from -200 to 200 km/s.  The first and last
 *  bins count all velocities below and above this range. */
typedef struct mill_velocity_counts {
  int64_t n[MILL_HINT_BINS];
} mill_velocity_counts;

/** Count a row if its velocity is good. */
void mill_velocity_count(mill_velocity_counts *counts, const mill_fit_result *result);

/** Does the median velocity show a mistaken medium, which shifts velocities by +-83 km/s?  Returns
 *  -1: air was taken for vacuum; 1: vacuum for air; 0: no.  *n: number of velocities. */
int mill_medium_shift(const mill_velocity_counts *counts, double *median_km_s, int64_t *n);

/** Warn on rank 0 if all ranks' rows show a mistaken medium (mill_medium_shift).  Collective. */
int mill_medium_hint(const mill_mpi *mpi, const mill_velocity_counts *mine);
