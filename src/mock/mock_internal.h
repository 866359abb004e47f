/** What the files of the mock survey share (src/mock/); no other file includes it. */
#ifndef MILL_MOCK_INTERNAL_H
#define MILL_MOCK_INTERNAL_H

#include "src/mock/mock_survey.h"

/** Bits of desispec's spectral pixel mask (desispec.maskbits.specmask). */
#define MILL_MOCK_MASK_ALLBAD (1 << 1)
#define MILL_MOCK_MASK_COSMIC (1 << 2)

/** Largest |velocity| of a star, km/s, and some more: the templates must reach so far. */
#define MILL_MOCK_MAX_VEL 1000.0

/** The Gaussian line-spread function is cut here, in sigma: 4e-8 of it lies outside. */
#define MILL_MOCK_LSF_REACH 5.5

/** Streams of random numbers of one index. */
enum {
  MILL_MOCK_RANDOM_STAR = 1, /**< labels, velocity, rotation of a star of its own */
  MILL_MOCK_RANDOM_TEMPLATE, /**< the same of a prepared template */
  MILL_MOCK_RANDOM_OBSERVED, /**< S/N, place, template */
  MILL_MOCK_RANDOM_TILE,     /**< centre of a tile */
  MILL_MOCK_RANDOM_NOISE,    /**< of the pixels */
  MILL_MOCK_RANDOM_DEFECT    /**< distortion, cosmics, dead pixels, pathological rows */
};

enum {
  MILL_MOCK_TILE = 5000, /**< stars of a tile */
  /** Values of S/N against amplitude that are kept with a prepared template. */
  MILL_MOCK_N_LEVEL = 32
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
  const mill_library *lib;              /**< labels and hulls: the caller's or frame */
  mill_library frame;                   /**< of the demo library, line model only */
  int label_of_line[MILL_LINE_N_LABEL]; /**< label of lib for each label of the line model */
  mill_line_model *line;
  int arm_of[MILL_MOCK_N_ARM]; /**< arm of lib, emulator only */
  mill_mock_instrument instrument;
  /** Rows of the resolution matrix as the fit prepares them, [n_pix][MILL_MOCK_N_DIAG];
   *  NULL where templates are at the instrument's resolution. */
  double *rows[MILL_MOCK_N_LSF][MILL_MOCK_N_ARM];
  int n_pix, first[MILL_MOCK_N_ARM]; /**< pixels of all arms; an arm's first one */
  int64_t n_value;                   /**< of one template: pixels, then the levels */
  float *template_flux;              /**< [n_template][n_value] */
};

struct mill_mock_work {
  int n_grid;
  double *grid[3];               /**< [n_grid] spectrum on the source's own grid, work space */
  double *flux[MILL_MOCK_N_ARM]; /**< [n_pix of the arm] */
  double *pixel;                 /**< [largest n_pix] */
  float *ideal, *sigma, *noise;  /**< [n_pix of all arms] */
  float *sorted;                 /**< [n_pix of arm r] */
};

/** Noise-free flux at the pixels of every arm, any scale (mock_forward.c). */
int mill_mock_forward_line(const mill_mock_survey *survey, const mill_mock_star *star,
                           mill_mock_work *work, double *flux[MILL_MOCK_N_ARM]);
int mill_mock_forward_emulator(const mill_mock_survey *survey, const mill_mock_star *star,
                               mill_mock_work *work, double *flux[MILL_MOCK_N_ARM]);

/** Fill survey->rows of a library whose templates are sharper than the instrument. */
int mill_mock_forward_rows(mill_mock_survey *survey);

/** Grid that the source needs: elements of work->grid. */
int mill_mock_forward_grid(const mill_mock_survey *survey);

/** The line model on a grid that serves these arms and limits: survey->line. */
int mill_mock_forward_line_create(mill_mock_survey *survey);

/** Labels, velocity and rotation of a template of the fast mode (mock_draw.c). */
void mill_mock_draw_template(const mill_mock_survey *survey, int i_template, mill_mock_star *star);

/** Check that labels can be drawn inside the hulls. */
int mill_mock_draw_check(const mill_mock_survey *survey);

/** Median of x [n], n >= 1, which is reordered; the mean of the middle two for even n. */
double mill_mock_median(int n, float *x);

#endif
