/* SPDX-License-Identifier: BSD-3-Clause */
/** Mock survey: its stars, and their spectra as an instrument sees them.
 *
 *  A star is a pure function of the settings, its index and the seed, so ranks share files without
 *  messages.  No file formats here (io/mock/mock_files.h).  The instrument is DESI-like: three
 *  arms, vacuum wavelengths in steps of 0.8 A, resolution matrices of 11 diagonals.
 *  docs/science/simulator.md describes the distributions and the noise.
 */
#ifndef MILL_MOCK_SURVEY_H
#define MILL_MOCK_SURVEY_H

#include "kernels/data/library.h"
#include "src/system/random.h"

/** Incremented with every change of a survey's contents at given settings, so that a survey made by
 *  an older program does not count as complete. */
enum { MILL_MOCK_CONTENTS = 3 };

enum { MILL_MOCK_N_ARM = 3, MILL_MOCK_N_DIAG = 11, MILL_MOCK_N_LSF = 5 };

/** One arm of the instrument. */
typedef struct mill_mock_arm {
  const char *name; /**< b, r, z */
  double wave0_aa, step_aa;
  int n_pix;
} mill_mock_arm;
extern const mill_mock_arm mill_mock_arm_of[MILL_MOCK_N_ARM];

/** Gaussian sigma in A of the line-spread function at a wavelength, which includes
 *  the pixel; lsf_group 0 .. MILL_MOCK_N_LSF - 1. */
double mill_mock_lsf_sigma(int lsf_group, double wave_aa);

/** Defects of rows; X(code, name in the truth table, what it is). */
#define MILL_MOCK_KIND_LIST(X)                                                                     \
  X(MILL_MOCK_STAR, "star", "a clean star")                                                        \
  X(MILL_MOCK_SKY, "sky", "OBJTYPE SKY, sky residuals only")                                       \
  X(MILL_MOCK_BAD_FIBER, "bad_fiber", "fiber status with a forbidden bit")                         \
  X(MILL_MOCK_ALLOWED_FIBER, "allowed_fiber", "fiber status with an allowed bit, fitted")          \
  X(MILL_MOCK_MASKED_ARM, "masked_arm", "every pixel of arm b masked")                             \
  X(MILL_MOCK_NAN_ARM, "nan_arm", "arm r all NaN")                                                 \
  X(MILL_MOCK_ZERO_ARM, "zero_arm", "flux and ivar of arm z zero")                                 \
  X(MILL_MOCK_NO_ARM, "no_arm", "ivar zero in all arms")                                           \
  X(MILL_MOCK_INF_PIXELS, "inf_pixels", "infinite flux in 50 unmasked pixels of each arm")         \
  X(MILL_MOCK_NOISE, "noise", "noise without a star")                                              \
  X(MILL_MOCK_NEGATIVE, "negative", "a star with its sign turned")                                 \
  X(MILL_MOCK_SPIKE, "spike", "one unmasked pixel of 1e9")                                         \
  X(MILL_MOCK_HALF_MASKED, "half_masked", "every second pixel masked")                             \
  X(MILL_MOCK_FAST_ROTATOR, "fast_rotator", "v sin i of 300 km/s")                                 \
  X(MILL_MOCK_HIGH_VELOCITY, "high_velocity", "900 km/s")                                          \
  X(MILL_MOCK_GALAXY, "galaxy", "a star that redrock calls a GALAXY")

#define MILL_MOCK_KIND_ENUM(code, name, text) code,
enum mill_mock_kind { MILL_MOCK_KIND_LIST(MILL_MOCK_KIND_ENUM) MILL_MOCK_N_KIND };
#undef MILL_MOCK_KIND_ENUM

const char *mill_mock_kind_name(int kind);

/** Draws of the library's model error; the components are in both. */
enum mill_mock_error {
  MILL_MOCK_ERROR_NONE = 0,
  MILL_MOCK_ERROR_AS_FITTED, /**< what they leave is white noise in the pixels, as a fit counts it
                              */
  MILL_MOCK_ERROR_CORRELATED /**< ... is correlated noise of the templates, as it was measured */
};

/** Limits of the settings, which the command line checks. */
#define MILL_MOCK_MIN_SN         0.1
#define MILL_MOCK_MAX_SN         1e5
#define MILL_MOCK_VEL_CUT        900.0 /**< km/s: velocities beyond are drawn again */
#define MILL_MOCK_MIN_VSINI      0.01  /**< km/s */
#define MILL_MOCK_MAX_VSINI      500.0
#define MILL_MOCK_MAX_DISTORTION 0.1

typedef struct mill_mock_settings {
  uint64_t seed;
  int64_t n_star;
  double min_sn, max_sn;       /**< median S/N of a pixel of arm r, log-uniform */
  double vel_sigma_km_s;       /**< normal around 0, cut at MILL_MOCK_VEL_CUT */
  double min_vsini, max_vsini; /**< km/s, log-uniform between them; both 0: the default mixture,
                                    most below 10, a tail to 150 */
  int model_error;             /**< enum mill_mock_error, where the library has one */
  double distortion;           /**< rms of the smooth calibration error */
  int noiseless;               /**< no noise, cosmics and distortion; ivar as with them */
  int n_pathological;          /**< of every 1000 rows, in turn of the kinds above */
} mill_mock_settings;

/** Those of `starmill simulate` without options. */
#define MILL_MOCK_USUAL                                                                            \
  {                                                                                                \
    .seed = 1, .n_star = 1000, .min_sn = 5.0, .max_sn = 100.0, .vel_sigma_km_s = 200.0,            \
    .model_error = MILL_MOCK_ERROR_AS_FITTED, .distortion = 0.03                                   \
  }

/** One row of the truth table. */
typedef struct mill_mock_star {
  int64_t index;                /**< in the survey, from 0 */
  int64_t target_id;            /**< unique, positive, as DESI packs them */
  int kind;                     /**< enum mill_mock_kind */
  double label[MILL_MAX_LABEL]; /**< in the units and order of the library */
  double vrad_km_s, vsini_km_s;
  /** Shares of the model error's components, in their standard deviations. */
  double share[MILL_MOCK_N_ARM][MILL_MAX_ERROR];
  double sn; /**< expected median S/N of arm r */
  int lsf_group;
  double ra_deg, dec_deg;
  double mag_g, mag_r, mag_z;
} mill_mock_star;

/** A survey's instrument and library; read-only once made, shared by threads. */
typedef struct mill_mock_survey mill_mock_survey;

/** Cut the only arm of a library into the instrument's arms, as a fit cuts it
 *  (mill_config_cut_arms); a library that has them stays as it is.  MILL_ERR_CONFIG,
 *  MILL_ERR_MEMORY. */
int mill_mock_cut_arms(mill_library *lib);

/** lib has the arms b, r, z, and is borrowed until destroy; its hulls bound the labels.  Pixels
 *  that its templates do not reach at every velocity are dead.  MILL_ERR_LIBRARY, MILL_ERR_MEMORY. */
int mill_mock_survey_create(const mill_mock_settings *settings, const mill_library *lib,
                            mill_mock_survey **out);
void mill_mock_survey_destroy(mill_mock_survey *survey);

/** The library that the stars are drawn from, and the arm of it for each of the instrument. */
const mill_library *mill_mock_library(const mill_mock_survey *survey);
const mill_arm *mill_mock_library_arm(const mill_mock_survey *survey, int arm);

/** Components of the model error that a star of this survey has shares of. */
int mill_mock_n_share(const mill_mock_survey *survey, int arm);

/** The truth of a star. Cheap. */
void mill_mock_draw(const mill_mock_survey *survey, int64_t index, mill_mock_star *star);

/** Noise-free flux of a row with a star at the pixels of each arm [n_pix] through the line-spread function of
 *  its group, float64, divided by its median over arm r. */
typedef struct mill_mock_work mill_mock_work; /**< memory of a thread */
int mill_mock_work_create(const mill_mock_survey *survey, mill_mock_work **out);
void mill_mock_work_destroy(mill_mock_work *work);
int mill_mock_noiseless(const mill_mock_survey *survey, const mill_mock_star *star,
                        mill_mock_work *work, double *flux[MILL_MOCK_N_ARM]);

/** A row as it goes into a file. */
typedef struct mill_mock_row {
  float *flux[MILL_MOCK_N_ARM];     /**< [n_pix] 1e-17 erg / (s cm2 A), owned by the caller */
  float *ivar[MILL_MOCK_N_ARM];     /**< [n_pix] */
  int32_t *mask[MILL_MOCK_N_ARM];   /**< [n_pix] 0 good; bits as desispec's spectral mask */
  float median_sn[MILL_MOCK_N_ARM]; /**< of good pixels; 0 without any */
} mill_mock_row;

/** Observe the star: instrument, noise, defects.  Thread-safe with its own work. */
int mill_mock_observe(const mill_mock_survey *survey, const mill_mock_star *star,
                      mill_mock_work *work, mill_mock_row *row);

/** Wavelengths of an arm [n_pix] in A; owned by the survey. */
const double *mill_mock_waves(const mill_mock_survey *survey, int arm);

/** Resolution matrix of a group in one arm, [MILL_MOCK_N_DIAG][n_pix] as DESI stores it
 *  (scipy's dia layout, offsets +5 .. -5); owned by the survey. */
const float *mill_mock_resolution(const mill_mock_survey *survey, int lsf_group, int arm);

#endif
