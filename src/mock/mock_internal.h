/* SPDX-License-Identifier: BSD-3-Clause */
/** Shared declarations of the mock survey (src/mock/); no other file includes it. */
#ifndef MILL_MOCK_INTERNAL_H
#define MILL_MOCK_INTERNAL_H

#include "src/mock/mock_survey.h"

/** Bits of desispec's spectral pixel mask (desispec.maskbits.specmask). */
#define MILL_MOCK_MASK_ALLBAD (1 << 1)
#define MILL_MOCK_MASK_COSMIC (1 << 2)

/** Largest |velocity| at which the templates must reach a pixel, km/s: the default of a fit. */
#define MILL_MOCK_MAX_VEL 1000.0

/** Streams of random numbers of one index. */
enum {
  MILL_MOCK_RANDOM_STAR = 1,     /**< labels, velocity, rotation */
  MILL_MOCK_RANDOM_OBSERVED = 3, /**< S/N, place */
  MILL_MOCK_RANDOM_TILE,         /**< centre of a tile */
  MILL_MOCK_RANDOM_NOISE,        /**< of the pixels */
  MILL_MOCK_RANDOM_DEFECT,       /**< distortion, cosmics, dead pixels, pathological rows */
  MILL_MOCK_RANDOM_SHARE,        /**< of the model error's components */
  MILL_MOCK_RANDOM_REST          /**< of the model error, one stream an arm from here on */
};

/** Wavelengths, noise and resolution of the instrument. */
typedef struct mill_mock_instrument {
  double *wave_aa[MILL_MOCK_N_ARM]; /**< [n_pix] */
  /** Variance of a pixel = gain flux + background, in units of the flux. */
  float *gain[MILL_MOCK_N_ARM];                        /**< [n_pix] */
  float *background[MILL_MOCK_N_LSF][MILL_MOCK_N_ARM]; /**< [n_pix] sky and read noise */
  float *resolution[MILL_MOCK_N_LSF][MILL_MOCK_N_ARM]; /**< [MILL_MOCK_N_DIAG][n_pix] */
  double gain_r, background_r[MILL_MOCK_N_LSF];        /**< medians of arm r */
} mill_mock_instrument;

int mill_mock_instrument_create(mill_mock_instrument *instrument);
void mill_mock_instrument_clear(mill_mock_instrument *instrument);

struct mill_mock_survey {
  mill_mock_settings set;
  const mill_library *lib;
  int arm_of[MILL_MOCK_N_ARM];                      /**< arm of lib */
  int begin[MILL_MOCK_N_ARM], end[MILL_MOCK_N_ARM]; /**< pixels that its templates reach */
  mill_mock_instrument instrument;
  /** Rows of the resolution matrix as the fit prepares them, [n_pix][MILL_MOCK_N_DIAG];
   *  NULL where templates are at the instrument's resolution. */
  double *rows[MILL_MOCK_N_LSF][MILL_MOCK_N_ARM];
  int n_pix, first[MILL_MOCK_N_ARM]; /**< pixels of all arms; an arm's first one */
};

struct mill_mock_work {
  double *grid[3];               /**< [largest n_pix of the library] spectra on an arm's own grid */
  double *flux[MILL_MOCK_N_ARM]; /**< [n_pix of the arm] */
  double *pixel;                 /**< [largest n_pix] */
  float *ideal, *sigma, *noise;  /**< [n_pix of all arms] */
  float *sorted;                 /**< [largest n_pix] */
};

/** Noise-free flux at the pixels of every arm, any scale (mock_forward.c). */
int mill_mock_forward(const mill_mock_survey *survey, const mill_mock_star *star,
                      mill_mock_work *work, double *flux[MILL_MOCK_N_ARM]);

/** Fill survey->rows of a library whose templates are sharper than the instrument. */
int mill_mock_forward_rows(mill_mock_survey *survey);

/** Check that labels can be drawn inside the hulls. */
int mill_mock_draw_check(const mill_mock_survey *survey);

/** Median of x [n], n >= 1, which is reordered; the mean of the middle two for even n. */
double mill_mock_median(int n, float *x);

#endif
