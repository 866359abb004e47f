/** Rows of the tables of a mock survey: from a star to FIBERMAP, redrock and truth. */
#ifndef MILL_SIMULATE_ROWS_H
#define MILL_SIMULATE_ROWS_H

#include "io/mock/desi_write.h"
#include "src/mock/mock_survey.h"

/** FIBERMAP and SCORES of a star whose spectra are in row.
 *  scratch [twice the largest n_pix of the arms] is for the medians. */
void mill_simulate_fibermap_row(const mill_mock_star *star, const mill_mock_row *row,
                                float *scratch, mill_fibermap_row *out);

/** What redrock would find: the star's velocity with an error of its own, the type by
 *  Teff; pathological rows as their kind says.  teff_k may be NaN when the labels have none.
 *  Nothing is fitted: CHI2 and DELTACHI2 are rough expectations. */
void mill_simulate_redrock_row(const mill_mock_star *star, double teff_k, uint64_t seed,
                               mill_redrock_row *out);

/** Row of the truth table of a star in files of per_file rows. */
void mill_simulate_truth_row(const mill_mock_star *star, int per_file, mill_truth_row *out);

/** Median of flux sqrt(ivar) over good pixels (mask 0, finite flux, positive finite ivar);
 *  0 when there is none.  scratch [2 n_pix]. */
float mill_simulate_median_snr(int n_pix, const float *flux, const float *ivar, const int32_t *mask,
                               float *scratch);

#endif
