/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/columns.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "io/result/result_file.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "CRC is defined over little-endian values");

static_assert(sizeof(mill_epoch_result) == 5 * sizeof(double) + 2 * sizeof(int32_t),
              "mill_epoch_result must have no padding, as /epochs stores its bytes");

/* Which runs have a line's columns, and how often: once, or per label or arm. */
enum scope {
  ONCE,
  LABEL,   /* once per label */
  ELEMENT, /* once per label that is an element */
  ARM,     /* once per arm */
  OFFSET,  /* once per arm, with velocity_offsets */
  MIXED,   /* ranks use several kinds of backend */
  SEVERAL, /* fitted with several libraries */
  EPOCH,   /* with the key epochs */
  PAIR,    /* with the key binaries */
  PAIR_LABEL,
  PAIR_ARM,
  POST /* in a sample */
};

/* Values of line.n_value for columns whose length the run sets: made_for.length[-n_value]. */
enum length { MODE_LENGTH = -6, MODES_LENGTH, GRID_LENGTH, DRAWS_LENGTH, PAR_LENGTH, COVAR_LENGTH };
enum { ERROR_LENGTH = -5, FRAME_LENGTH, FORMAT_LENGTH, REDROCK_LENGTH, PATH_LENGTH };
enum { WAVE_LENGTH = -2, FLUX_LENGTH };

/* A line of a table: a column, or one per label or arm; "%s" is the label's or arm's name. */
typedef struct line {
  enum scope scope;
  const char *name;
  int type, n_value, source;
  size_t field;
  double missing;
  const char *unit, *text;
} line;

#define R(member)       MILL_FROM_RESULT, offsetof(mill_fit_result, member)
#define C(member)       MILL_FROM_CATALOG, offsetof(mill_catalog_row, member)
#define F64             MILL_TYPE_F64
#define I64             MILL_TYPE_I64
#define I32             MILL_TYPE_I32
#define P(member)       MILL_FROM_POSTERIOR, offsetof(mill_posterior, member)
#define REAL(from)      F64, 1, from, NAN
#define EACH_REAL(from) F64, PAR_LENGTH, from, NAN
#define NO_SN           (-1e9)

/* Columns of /fits.  Adjacent lines of one scope form a block, repeated for each label or arm. */
static const line fits_line[] = {
    {ONCE, "TARGETID", I64, 1, MILL_FROM_TARGET, 0, -1, "",
     "target identifier, -1 when there is none"},
    {ONCE, "VRAD", REAL(R(vrad_km_s)), "km/s", "radial velocity, positive when receding"},
    {ONCE, "VRAD_ERR", REAL(R(vrad_err_km_s)), "km/s",
     "standard deviation of the velocity's likelihood, times ERR_SCALE, plus vrad_floor in "
     "quadrature"},
    {ONCE, "VRAD_ERR_FORMAL", REAL(R(vrad_err_formal_km_s)), "km/s",
     "VRAD_ERR without ERR_SCALE and vrad_floor"},
    {ONCE, "VRAD_SKEW", REAL(R(vrad_skew)), "", "skewness of the velocity's likelihood"},
    {ONCE, "VRAD_KURT", REAL(R(vrad_kurt)), "", "kurtosis of the velocity's likelihood"},
    {ONCE, "VRAD_CCF", REAL(R(vrad_guess_km_s)), "km/s", "velocity of the initial guess"},
    {ONCE, "VSINI", REAL(R(vsini_km_s)), "km/s", "projected rotation velocity"},
    {ONCE, "VSINI_ERR", REAL(R(vsini_err_km_s)), "km/s",
     "error of VSINI, times ERR_SCALE; with VSINI at its lower limit, VSINI + VSINI_ERR is a "
     "1-sigma upper limit"},
    {ONCE, "VSINI_ERR_FORMAL", REAL(R(vsini_err_formal_km_s)), "km/s",
     "VSINI_ERR without ERR_SCALE"},
    {LABEL, "%s", REAL(R(label)), "%s", "%s of the best fit"},
    {LABEL, "%s_ERR", REAL(R(label_err)), "%s",
     "error of %s, times ERR_SCALE except for the library's floor"},
    {LABEL, "%s_ERR_FORMAL", REAL(R(label_err_formal)), "%s", "error of %s without ERR_SCALE"},
    {ELEMENT, "%s_FLAG", I32, 1, R(label_flag), MILL_ELEMENT_NONE, "",
     "warning bits: why not to use %s; listed in the attributes"},
    {ONCE, "COVAR", F64, COVAR_LENGTH, R(covar), NAN, "product of the units of the parameters",
     "covariance of the parameters named by attribute ORDER, scaled as their errors, without "
     "vrad_floor, upper triangle row by row; zero where fixed or at a limit"},
    {ONCE, "ERR_SCALE", REAL(R(err_scale)), "",
     "factor on the errors: 1, or with rescale_errors the square root of RCHISQ_TOT if above 1"},
    {ONCE, "CHISQ_TOT", REAL(R(chisq_tot)), "", "chi-square of all arms over good pixels"},
    {ONCE, "CHISQ_C_TOT", REAL(R(chisq_c_tot)), "",
     "chi-square of the continuum alone over good pixels"},
    {ONCE, "RCHISQ_TOT", REAL(R(rchisq_tot)), "",
     "CHISQ_TOT per degree of freedom (good pixels - continuum functions - free parameters)"},
    {ONCE, "CHISQ_DATA", REAL(R(chisq_data)), "",
     "chi-square of the best-fit template without model error, with the continuum fitted again"},
    {ONCE, "CHISQ_C_DATA", REAL(R(chisq_c_data)), "", "CHISQ_C_TOT without model error"},
    {ONCE, "CHISQ_NOISE", REAL(R(chisq_noise)), "",
     "chi-square expected from noise, by differences of residuals 3 pixels apart; includes "
     "template errors of few pixels"},
    {ONCE, "NPIX_TOT", I64, 1, R(n_pix_tot), 0, "", "good pixels of all arms"},
    {ONCE, "M2LL", REAL(R(m2ll)), "", "-2 ln L with priors and hull penalty at the solution"},
    {ONCE, "HULL_DIST", REAL(R(hull_dist)), "",
     "distance outside the library's hulls, in labels scaled for the emulator; 0 inside"},
    {ARM, "CHISQ_%s", REAL(R(chisq)), "", "chi-square of arm %s over good pixels"},
    {ARM, "CHISQ_C_%s", REAL(R(chisq_c)), "", "chi-square of the continuum alone in arm %s"},
    {ARM, "RCHISQ_%s", REAL(R(rchisq)), "",
     "chi-square of arm %s per degree of freedom (good pixels - continuum functions)"},
    {ARM, "STIFF_%s", REAL(R(stiff)), "",
     "fraction of arm %s's chi-square in slow variations of the residuals, which more continuum "
     "functions would fit"},
    {ARM, "VRAD_%s", REAL(R(vrad_arm_km_s)), "km/s",
     "radial velocity of arm %s alone, other parameters held at the solution"},
    {ARM, "VRAD_%s_ERR", REAL(R(vrad_arm_err_km_s)), "km/s",
     "error of the velocity of arm %s; with rescale_errors multiplied by the square root of the "
     "arm's RCHISQ, if this is above 1"},
    {ARM, "NPIX_%s", I64, 1, R(n_pix), 0, "", "good pixels of arm %s"},
    {ARM, "SN_%s", F64, 1, R(sn), NO_SN, "", "median signal-to-noise of a usable pixel of arm %s"},
    {ONCE, "VRAD_ARMS_PVAL", REAL(R(vrad_arms_pval)), "",
     "probability that errors alone make the arms' velocities differ by more than they do; errors "
     "include 3 km/s for zero points, vrad_floor and, with velocity_offsets, "
     "velocity_offset_sigma; NaN with fewer than two arms"},
    {OFFSET, "VRAD_OFFSET_%s", REAL(R(vrad_offset_km_s)), "km/s",
     "velocity of arm %s minus VRAD; only with velocity_offsets; 0 in the first arm"},
    {OFFSET, "VRAD_OFFSET_%s_ERR", REAL(R(vrad_offset_err_km_s)), "km/s",
     "error of the velocity offset of arm %s, times ERR_SCALE; 0 in the first arm"},
    {ONCE, "NEVAL", I32, 1, R(n_eval), 0, "",
     "likelihood evaluations; a Jacobian, a velocity profile or a step of the search for "
     "velocities of arms or epochs counts once"},
    {ONCE, "NJAC", I32, 1, R(n_jac), 0, "", "Jacobians that NEVAL counts"},
    {ONCE, "RVS_WARN", I64, 1, R(warn), 0, "", "warning bits, listed in the attributes"},
    {ONCE, "FIT_INFO", I32, 1, R(info), 0, "", "information bits, listed in the attributes"},
    {ONCE, "VRAD_GOOD", MILL_TYPE_U8, 1, MILL_FROM_VRAD_GOOD, 0, 0, "",
     "1 if STATUS is FITTED and no warning concerns the velocity; labels may have warnings"},
    {ONCE, "SUCCESS", MILL_TYPE_U8, 1, MILL_FROM_SUCCESS, 0, 0, "",
     "1 when STATUS is FITTED and RVS_WARN is 0"},
    {EPOCH, "N_EPOCH", I64, 1, R(n_epoch), 0, "",
     "number of epochs whose velocities VRAD_CHI2 compares"},
    {EPOCH, "VRAD_CHI2", REAL(R(vrad_chi2)), "",
     "chi-square of a constant velocity; epochs' errors include epoch_floor, in quadrature"},
    {EPOCH, "VRAD_PVAL", REAL(R(vrad_pval)), "",
     "probability of a larger VRAD_CHI2 if the velocity is constant; NaN below two epochs"},
    {EPOCH, "VRAD_RANGE", REAL(R(vrad_range_km_s)), "km/s",
     "largest minus smallest velocity of the epochs"},
    {EPOCH, "EPOCH_CRC", MILL_TYPE_U32, 1, R(epoch_crc), 0, "",
     "CRC-32 of the row's exposures in /epochs, one after another, values in the order VRAD, "
     "VRAD_ERR, VRAD_2, VRAD_2_ERR, SN, EPOCH, EPOCH_FLAG"},
    {PAIR, "SB2", I32, 1, R(pair), 0, "",
     "1 if the row was fitted as two stars; columns without _2 then hold the brighter star; exists "
     "only with the key binaries"},
    {PAIR, "SB2_PEAK", REAL(R(pair_peak)), "",
     "significance of a second star's lines in the residuals of the fit of one star"},
    {PAIR, "SB2_GAIN", REAL(R(pair_gain)), "",
     "decrease of -2 ln L by the second star; NaN without two stars"},
    {PAIR, "VRAD_2", REAL(R(pair_vrad_km_s)), "km/s", "velocity of the second star"},
    {PAIR, "VRAD_2_ERR", REAL(R(pair_vrad_err_km_s)), "km/s",
     "error of VRAD_2, times ERR_SCALE, plus vrad_floor in quadrature"},
    {PAIR, "VSINI_2", REAL(R(pair_vsini_km_s)), "km/s",
     "projected rotation velocity of the second star"},
    {PAIR, "VSINI_2_ERR", REAL(R(pair_vsini_err_km_s)), "km/s",
     "error of VSINI_2, times ERR_SCALE"},
    {PAIR_LABEL, "%s_2", REAL(R(pair_label)), "%s", "%s of the second star"},
    {PAIR_LABEL, "%s_2_ERR", REAL(R(pair_label_err)), "%s",
     "error of the second star's %s, times ERR_SCALE except for the library's floor"},
    {PAIR_ARM, "FLUX_RATIO_%s", REAL(R(flux_ratio)), "",
     "flux of the second star over flux of the first star in arm %s"},
    {PAIR_ARM, "FLUX_RATIO_%s_ERR", REAL(R(flux_ratio_err)), "",
     "error of the flux ratio in arm %s, times ERR_SCALE"},
    {POST, "POST_MEAN", EACH_REAL(P(mean)), "of each parameter",
     "posterior mean of each parameter (order: attribute ORDER); of a fixed parameter its value"},
    {POST, "POST_COVAR", F64, COVAR_LENGTH, P(covar), NAN, "product of the units of the parameters",
     "posterior covariance, packed as COVAR, without ERR_SCALE"},
    {POST, "POST_P2_5", EACH_REAL(P(percentile[0])), "of each parameter",
     "percentile 2.5 of the posterior"},
    {POST, "POST_P16", EACH_REAL(P(percentile[1])), "of each parameter",
     "percentile 16 of the posterior"},
    {POST, "POST_P50", EACH_REAL(P(percentile[2])), "of each parameter", "median of the posterior"},
    {POST, "POST_P84", EACH_REAL(P(percentile[3])), "of each parameter",
     "percentile 84 of the posterior"},
    {POST, "POST_P97_5", EACH_REAL(P(percentile[4])), "of each parameter",
     "percentile 97.5 of the posterior"},
    {POST, "POST_ESS", EACH_REAL(P(ess)), "",
     "effective sample size of each parameter; NaN for a fixed parameter"},
    {POST, "POST_M2LL_MIN", REAL(P(m2ll_least)), "",
     "lowest -2 ln L of all samples, with priors and hull penalty"},
    {POST, "POST_LN_EVIDENCE", REAL(P(ln_evidence)), "",
     "ln of the marginal likelihood: the likelihood averaged over the priors; hulls count as "
     "priors; NaN if a label has neither a hull nor a prior, or joint exposures share a model or "
     "width error"},
    {POST, "POST_LN_EVIDENCE_ERR", REAL(P(ln_evidence_err)), "", "error of ln evidence"},
    {POST, "POST_PARETO_K", REAL(P(pareto)), "",
     "Pareto k of the importance weights; above 0.7 do not trust the posterior"},
    {POST, "POST_NEVAL", I32, 1, P(n_eval), 0, "", "likelihood evaluations of the sample"},
    {POST, "POST_FLAG", I32, 1, P(flag), 0, "",
     "bits about the quality of the posterior, listed in the attributes"},
    {POST, "POST_DENSITY", F64, GRID_LENGTH, P(density), NAN, "1 / that of each parameter",
     "marginal density of each parameter (order: attribute ORDER) at 64 evenly spaced points from "
     "POST_DENSITY_LOW to POST_DENSITY_HIGH; NaN for a fixed parameter"},
    {POST, "POST_DENSITY_LOW", EACH_REAL(P(density_low)), "of each parameter",
     "first point of the marginal density"},
    {POST, "POST_DENSITY_HIGH", EACH_REAL(P(density_high)), "of each parameter",
     "last point of the marginal density"},
    {POST, "POST_NMODE", I64, 1, P(n_mode), 0, "", "number of modes of the posterior, at most 4"},
    {POST, "POST_MODE_WEIGHT", F64, MODE_LENGTH, P(mode_weight), NAN, "",
     "fraction of the samples in each mode, the largest first; NaN beyond the last mode"},
    {POST, "POST_MODE_MEAN", F64, MODES_LENGTH, P(mode_mean), NAN, "of each parameter",
     "mean of each mode's samples, mode after mode (order of parameters: attribute ORDER)"},
    {POST, "POST_MODE_SIGMA", F64, MODES_LENGTH, P(mode_sigma), NAN, "of each parameter",
     "standard deviation of each mode's samples, in the order of POST_MODE_MEAN"},
    {POST, "POST_DRAWS", F64, DRAWS_LENGTH, MILL_FROM_DRAWS, 0, NAN, "of each parameter",
     "posterior samples (--draws), sample after sample (order of parameters: attribute ORDER)"},
    {MIXED, "BACKEND", MILL_TYPE_U8, 1, MILL_FROM_BACKEND, 0, MILL_ROW_BACKEND_NONE, "",
     "backend that fitted the row; only with --backend cuda+cpu; codes in the attributes"},
    {SEVERAL, "LIBRARY", MILL_TYPE_U8, 1, R(library), 0, "",
     "library that the row was fitted with; only with several libraries; codes in the attributes"},
    {ONCE, "CRC", MILL_TYPE_U32, 1, MILL_FROM_CRC, 0, 0, "",
     "CRC-32 of the row's values in column order, without CRC and STATUS"},
    {ONCE, "STATUS", I32, 1, R(status), 0, "",
     "0: not done; 1: fitted; other values: why the row was not fitted; codes in the attributes"},
};

#define TEXT(member) MILL_TYPE_TEXT, (int)sizeof(((mill_catalog_row *)0)->member), C(member)

static const line catalog_line[] = {
    {ONCE, "FITS_ROW", I64, 1, C(fits_row), -1, "",
     "number of the row's first exposure in its file; DESI: 0-based row of FIBERMAP"},
    {ONCE, "N_EXPOSURE", I32, 1, C(n_exposure), 0, "", "exposures fitted jointly"},
    {ONCE, "TARGETID", I64, 1, C(target_id), -1, "", "target identifier"},
    {ONCE, "TARGET_RA", REAL(C(target_ra)), "deg", "right ascension"},
    {ONCE, "TARGET_DEC", REAL(C(target_dec)), "deg", "declination"},
    {ONCE, "FIBER", I32, 1, C(fiber), -1, "", "fiber"},
    {ONCE, "EXPID", I32, 1, C(exp_id), -1, "", "exposure"},
    {ONCE, "REF_ID", I64, 1, C(ref_id), -1, "", "identifier in REF_CAT"},
    {ONCE, "REF_CAT", TEXT(ref_cat), 0, "", "reference catalog"},
    {ONCE, "Z", REAL(C(kind.z)), "", "redshift of redrock"},
    {ONCE, "SPECTYPE", TEXT(kind.spectype), 0, "", "spectral type of redrock"},
    {ONCE, "SUBTYPE", TEXT(kind.subtype), 0, "", "spectral subtype of redrock"},
    {ONCE, "HEALPIX", I32, 1, C(healpix), -1, "",
     "HEALPix pixel of the file; DESI: nside 64, nested"},
    {ONCE, "UNIQPIX", I32, 1, C(uniqpix), -1, "",
     "HEALPix pixel and nside of the file in one number: pixel + 4 nside^2"},
    {ONCE, "SURVEY", TEXT(survey), 0, "", "part of the survey: main, sv3, ..."},
    {ONCE, "PROGRAM", TEXT(program), 0, "", "observing program: dark, bright, backup, ..."},
    {ONCE, "TILEID", I32, 1, C(tile_id), -1, "", "tile, if all exposures share it"},
    {ONCE, "NIGHT", I32, 1, C(night), -1, "", "night, YYYYMMDD, if all exposures share it"},
    {ONCE, "PMRA", REAL(C(pmra)), "mas/yr",
     "proper motion in right ascension, times cos(declination), as the input has it"},
    {ONCE, "PMDEC", REAL(C(pmdec)), "mas/yr", "proper motion in declination, as the input has it"},
    {ONCE, "PARALLAX", REAL(C(parallax)), "mas", "parallax, as the input has it"},
    {ONCE, "GAIA_PHOT_G_MEAN_MAG", REAL(C(gaia_g)), "mag", "Gaia G, as the input has it"},
    {ONCE, "GAIA_PHOT_BP_MEAN_MAG", REAL(C(gaia_bp)), "mag", "Gaia BP, as the input has it"},
    {ONCE, "GAIA_PHOT_RP_MEAN_MAG", REAL(C(gaia_rp)), "mag", "Gaia RP, as the input has it"},
    {ONCE, "OBJECT", TEXT(object), 0, "", "name of the object"},
    {ONCE, "IDENTIFIER", TEXT(identifier), 0, "",
     "name of the spectrum in the survey; else file name (without folder) and FITS_ROW"},
    {ONCE, "CATALOG_CRC", MILL_TYPE_U32, 1, MILL_FROM_CRC, 0, 0, "",
     "CRC-32 of the row's values, in the order of the attribute COLUMNS"},
    /* after the CRC, since merge changes them */
    {ONCE, "FILE", I32, 1, MILL_FROM_FILE, 0, -1, "", "index into /catalog/files"},
    {ONCE, "FIRST_EXPOSURE", I64, 1, MILL_FROM_OFFSET, offsetof(mill_catalog_row, first_exposure),
     -1, "", "index into /catalog/exposures"},
};

#define E(member) MILL_FROM_RESULT, offsetof(mill_epoch_result, member)

static const line epoch_line[] = {
    {ONCE, "VRAD", REAL(E(vrad_km_s)), "km/s", "radial velocity of the exposure's epoch"},
    {ONCE, "VRAD_ERR", REAL(E(vrad_err_km_s)), "km/s",
     "error of VRAD at fixed labels and v sin i, without model error, times ERR_SCALE"},
    {ONCE, "VRAD_2", REAL(E(pair_vrad_km_s)), "km/s",
     "radial velocity of the second star in the exposure's epoch, if SB2 is 1"},
    {ONCE, "VRAD_2_ERR", REAL(E(pair_vrad_err_km_s)), "km/s",
     "error of VRAD_2; if SB2 is 1, both errors include model error, and labels are free"},
    {ONCE, "SN", F64, 1, E(sn), NO_SN, "", "largest median signal-to-noise of the epoch's arms"},
    {ONCE, "EPOCH", I32, 1, E(epoch), -1, "", "which epoch of the row: 0, 1, ..."},
    {ONCE, "EPOCH_FLAG", I32, 1, E(flag), 0, "",
     "bits: why the epoch has no velocity or uncertain velocities; listed in the attributes"},
};

#define X(type, member) MILL_TYPE_##type, 1, MILL_FROM_RESULT, offsetof(mill_file_index, member)

static const line exposure_line[] = {
    {ONCE, "FITS_ROW", X(I64, exposure_row), -1, "",
     "number of the exposure in its file, as the format counts; DESI: 0-based row of FIBERMAP"},
    {ONCE, "EXPID", X(I32, exposure_id), -1, "", "exposure, -1 when the file has none"},
    {ONCE, "FILE", X(I32, exposure_file), -1, "", "index into /catalog/files"},
    {ONCE, "MJD", X(F64, exposure_mjd), NAN, "d",
     "modified Julian date of the exposure, as the input has it"},
};

#define S(source, member) MILL_FROM_##source, offsetof(mill_input_file, member)
#define SINCE_1970        "time of last change, since 1970-01-01 UTC"

static const line file_line[] = {
    {ONCE, "PATH", MILL_TYPE_TEXT, PATH_LENGTH, S(TEXT, path), 0, "", "input file as given"},
    {ONCE, "REDROCK", MILL_TYPE_TEXT, REDROCK_LENGTH, S(TEXT, redrock), 0, "",
     "redrock file from which Z and SPECTYPE were read; empty if there is none"},
    {ONCE, "FORMAT", MILL_TYPE_TEXT, FORMAT_LENGTH, S(RESULT, format), 0, "",
     "format of the file; empty if the file could not be read"},
    {ONCE, "FRAME", MILL_TYPE_TEXT, FRAME_LENGTH, S(RESULT, frame), 0, "",
     "frame of the file's wavelengths, and so of its stars' velocities"},
    {ONCE, "ERROR", MILL_TYPE_TEXT, ERROR_LENGTH, S(TEXT, error), 0, "",
     "why the file could not be read; empty if it was read"},
    {ONCE, "SIZE", I64, 1, S(RESULT, size), 0, "byte", "size"},
    {ONCE, "MTIME", F64, 1, S(RESULT, mtime), 0, "s", SINCE_1970},
    {ONCE, "REDROCK_SIZE", I64, 1, S(RESULT, redrock_size), 0, "byte", "size of REDROCK, else 0"},
    {ONCE, "REDROCK_MTIME", F64, 1, S(RESULT, redrock_mtime), 0, "s", SINCE_1970 " of REDROCK"},
    {ONCE, "ROW_START", I64, 1, S(RESULT, row_start), 0, "", "first row of the file"},
    {ONCE, "N_ROW", I64, 1, S(RESULT, n_row), 0, "", "rows of the file"},
    {ONCE, "ROWS_HASH", I64, 1, S(RESULT, rows_hash), 0, "",
     "digest of targets, names and exposures of the file's rows, before stars are joined"},
};

static const line model_line[] = {
    {ONCE, "fits_row", I64, 1, MILL_FROM_RESULT, 0, -1, "", "row of /fits in the result file"},
    {ONCE, "exposure", I32, 1, MILL_FROM_RESULT, 0, -1, "", "exposure of the row, counted from 0"},
    {ONCE, "TARGETID", I64, 1, MILL_FROM_RESULT, 0, -1, "",
     "target identifier, -1 when there is none"},
    {ONCE, "IDENTIFIER", TEXT(identifier), 0, "", "IDENTIFIER in /catalog of the result file"},
};

static const line arm_line[] = {
    {ONCE, "wavelength", F64, WAVE_LENGTH, MILL_FROM_RESULT, 0, NAN, "Angstrom",
     "vacuum wavelength of each row's pixels; NaN beyond its last pixel and where not fitted"},
    {ONCE, "flux", MILL_TYPE_F32, FLUX_LENGTH, MILL_FROM_RESULT, 0, NAN, "as the input",
     "best-fit model with its continuum; NaN where not fitted"},
};

size_t mill_column_type_size(int type)
{
  static const size_t size[] = {
      [MILL_TYPE_F64] = 8, [MILL_TYPE_I64] = 8,  [MILL_TYPE_I32] = 4, [MILL_TYPE_U32] = 4,
      [MILL_TYPE_U8] = 1,  [MILL_TYPE_TEXT] = 1, [MILL_TYPE_F32] = 4};
  return size[type];
}

int64_t mill_column_integer(const mill_column *column, const char *row)
{
  int64_t value = 0; /* little-endian: low bytes come first */
  memcpy(&value, row + column->at, mill_column_type_size(column->type));
  return column->type == MILL_TYPE_I32 ? (int32_t)value : value;
}

/* Copy pattern to out [size], with name in place of %s. */
static void fill_in(const char *pattern, const char *name, char *out, size_t size)
{
  const char *at = strstr(pattern, "%s");
  if (at)
    snprintf(out, size, "%.*s%s%s", (int)(at - pattern), pattern, name, at + 2);
  else
    snprintf(out, size, "%s", pattern);
}

/* Facts of the run that set a table's columns. */
typedef struct made_for {
  int n_label, n_arm, with;
  int length[1 - MODE_LENGTH]; /* [-n_value]: values per row; 0: no such column */
} made_for;

/* For how many labels or arms a table line of this scope is repeated; 1: for none; 0: the run has
 * no such columns.  mill_columns_fits skips the labels that are no ELEMENT. */
static int n_repeat(enum scope scope, const made_for *m)
{
  const struct {
    int needs, n; /* needs: a bit of enum mill_columns_with, 0: always */
  } of[] = {[ONCE] = {0, 1},
            [LABEL] = {0, m->n_label},
            [ELEMENT] = {0, m->n_label},
            [ARM] = {0, m->n_arm},
            [OFFSET] = {MILL_WITH_OFFSETS, m->n_arm},
            [MIXED] = {MILL_WITH_BACKEND, 1},
            [SEVERAL] = {MILL_WITH_LIBRARY, 1},
            [EPOCH] = {MILL_WITH_EPOCHS, 1},
            [PAIR] = {MILL_WITH_BINARIES, 1},
            [PAIR_LABEL] = {MILL_WITH_BINARIES, m->n_label},
            [PAIR_ARM] = {MILL_WITH_BINARIES, m->n_arm},
            [POST] = {MILL_WITH_POSTERIOR, 1}};
  return of[scope].needs && !(m->with & of[scope].needs) ? 0 : of[scope].n;
}

int mill_columns_find(const mill_columns *columns, const char *name)
{
  for (int i = 0; i < columns->n_column; i++)
    if (strcmp(columns->column[i].name, name) == 0)
      return i;
  return -1;
}

/* Replacements of "%s" in a column's name (name), unit (unit) and description (of). */
typedef struct owner {
  char name[MILL_MAX_NAME];
  const char *unit, *of;
} owner;

/* Set *o to the texts that replace "%s" in columns of label k, or of arm k for scopes of arms. */
static void take_owner(const mill_library *lib, enum scope scope, int k, owner *o)
{
  *o = (owner){.unit = "", .of = ""};
  if (scope == LABEL || scope == ELEMENT || scope == PAIR_LABEL) {
    memcpy(o->name, lib->label[k].column, sizeof o->name);
    o->unit = lib->label[k].unit;
    o->of = lib->label[k].name;
  } else if (scope == ARM || scope == OFFSET || scope == PAIR_ARM) {
    o->of = lib->arm[k].name;
    for (size_t c = 0; c + 1 < sizeof o->name && o->of[c]; c++)
      o->name[c] = (char)toupper((unsigned char)o->of[c]);
  }
}

mill_column *mill_columns_add(mill_columns *columns, const char *name, int type, int n_value)
{
  const int i = columns->n_column++;
  mill_column *c = &columns->column[i];
  *c = (mill_column){.type = type, .n_value = n_value, .at = columns->row_size};
  snprintf(c->name, sizeof c->name, "%s", name);
  c->n_byte = mill_column_type_size(type) * (size_t)n_value;
  columns->row_size += c->n_byte;
  if (strcmp(name, "TARGETID") == 0)
    columns->i_target = i;
  else if (strcmp(name, "CRC") == 0 || strcmp(name, "CATALOG_CRC") == 0)
    columns->i_crc = i; /* no table has both */
  else if (strcmp(name, "STATUS") == 0)
    columns->i_status = i;
  return c;
}

/* Append a line's column.  i_value: index of label or arm in the struct's array; 0 if no array.
 * A line whose n_value is negative, an enum length, has m->length[-n_value] values per row. */
static void add(mill_columns *columns, const line *from, const owner *o, size_t i_value,
                const made_for *m)
{
  char name[sizeof columns->column->name];
  const int n_value = from->n_value < 0 ? m->length[-from->n_value] : from->n_value;
  if (n_value == 0)
    return; /* the run has no such column */
  fill_in(from->name, o->name, name, sizeof name);
  mill_column *c = mill_columns_add(columns, name, from->type, n_value);
  fill_in(from->unit, o->unit, c->unit, sizeof c->unit);
  snprintf(c->of, sizeof c->of, "%s", o->of);
  c->text = from->text;
  c->vector = from->n_value < 0 && from->type != MILL_TYPE_TEXT;
  c->source = from->source;
  c->missing = from->missing;
  c->field = from->field + i_value * c->n_byte;
}

/* Refuse the last column's name if another column has it or HDF5 does not allow it. */
static int check_name(const mill_columns *columns, const char *where)
{
  const int last = columns->n_column - 1;
  const char *name = columns->column[last].name, *of = columns->column[last].of;
  if (mill_columns_find(columns, name) != last)
    return MILL_ERROR(MILL_ERR_LIBRARY,
                      "%s: two columns of the result would be named %s; give the label or arm %s "
                      "another name (arms: --arm-names of library import)",
                      where, name, of);
  if (strchr(name, '/') || !name[0] || name[0] == '.')
    return MILL_ERROR(MILL_ERR_LIBRARY,
                      "%s: \"%s\" cannot name a column (it is empty, begins with a dot or has "
                      "a slash); give the label or arm %s another name",
                      where, name, of);
  return MILL_OK;
}

int mill_columns_fits(const mill_library *lib, const char *where, int with, mill_columns *columns)
{
  const int n_par = lib->n_label + 2, n_draw = with / MILL_WITH_DRAWS(1); /* upper bits */
  const made_for m = {.n_label = lib->n_label,
                      .n_arm = lib->n_arm,
                      .with = with,
                      .length = {[-COVAR_LENGTH] = n_par * (n_par + 1) / 2, /* codes are negative */
                                 [-PAR_LENGTH] = n_par,
                                 [-DRAWS_LENGTH] = n_draw * n_par,
                                 [-GRID_LENGTH] = MILL_N_DENSITY * n_par,
                                 [-MODES_LENGTH] = MILL_MAX_MODE * n_par,
                                 [-MODE_LENGTH] = MILL_MAX_MODE}};
  memset(columns, 0, sizeof *columns);
  const int n_line = (int)(sizeof fits_line / sizeof fits_line[0]);
  for (int i = 0, j; i < n_line; i = j) { /* lines [i, j) form a block */
    const enum scope scope = fits_line[i].scope;
    for (j = i; j < n_line && fits_line[j].scope == scope;)
      j++;
    for (int k = 0; k < n_repeat(scope, &m); k++) {
      owner o;
      if (scope == ELEMENT && !mill_label_is_element(&lib->label[k]))
        continue;
      take_owner(lib, scope, k, &o);
      for (int l = i; l < j; l++) {
        add(columns, &fits_line[l], &o, (size_t)k, &m);
        MILL_CHECK(check_name(columns, where));
      }
    }
  }
  return MILL_OK;
}

void mill_columns_of(enum mill_table_kind kind, const int *length, mill_columns *columns)
{
#define N(lines) lines, (int)(sizeof lines / sizeof *lines)
  static const struct {
    const line *line;
    int n_line;
  } table[] = {
      [MILL_TABLE_CATALOG] = {N(catalog_line)}, [MILL_TABLE_EXPOSURES] = {N(exposure_line)},
      [MILL_TABLE_FILES] = {N(file_line)},      [MILL_TABLE_EPOCHS] = {N(epoch_line)},
      [MILL_TABLE_MODELS] = {N(model_line)},    [MILL_TABLE_ARM] = {N(arm_line)}};
#undef N
  const int n_length = kind == MILL_TABLE_FILES ? MILL_N_FILE_TEXT : kind == MILL_TABLE_ARM ? 2 : 0;
  made_for m = {.with = 0};
  for (int i = 0; i < n_length; i++)
    m.length[1 + i] = length[i]; /* for lines whose n_value is -(1 + i): see add */
  memset(columns, 0, sizeof *columns);
  for (int i = 0; i < table[kind].n_line; i++)
    add(columns, &table[kind].line[i], &(owner){.unit = "", .of = ""}, 0, &m);
}

/* Copy a column's values, giving all NaNs the same bits.  from NULL: write the missing value of
 * reals, and nothing for other types. */
static void pack_values(const mill_column *c, const char *from, char *to)
{
  if (from)
    memcpy(to, from, c->n_byte);
  for (int k = 0; c->type == MILL_TYPE_F64 && k < c->n_value; k++) {
    double value = c->missing;
    if (from)
      memcpy(&value, from + 8 * k, sizeof value);
    value = isnan(value) ? NAN : value;
    memcpy(to + 8 * k, &value, sizeof value);
  }
}

static void pack(const mill_columns *columns, const void *const source[MILL_N_SOURCE], char *row)
{
  for (int i = 0; i < columns->n_column; i++) {
    const mill_column *c = &columns->column[i];
    const char *from = source[c->source];
    pack_values(c, from ? from + c->field : NULL, row + c->at);
  }
}

void mill_columns_pack(const mill_columns *columns, const mill_fit_result *result, char *row)
{
  const int is_fitted = result->status == MILL_STATUS_FITTED;
  const uint8_t is_good = is_fitted && (result->warn & MILL_WARN_VELOCITY) == 0;
  const uint8_t success = is_fitted && result->warn == 0;
  const mill_posterior *posterior = result->posterior;
  const void *const source[MILL_N_SOURCE] = {[MILL_FROM_RESULT] = result,
                                             [MILL_FROM_VRAD_GOOD] = &is_good,
                                             [MILL_FROM_SUCCESS] = &success,
                                             [MILL_FROM_BACKEND] = &columns->backend,
                                             [MILL_FROM_POSTERIOR] = posterior,
                                             [MILL_FROM_DRAWS] =
                                                 posterior ? mill_posterior_draw(posterior) : NULL};
  pack(columns, source, row);
}

void mill_columns_pack_epoch(const mill_columns *columns, const mill_epoch_result *epoch, char *row)
{
  pack(columns, (const void *const[MILL_N_SOURCE]){[MILL_FROM_RESULT] = epoch}, row);
}

uint32_t mill_columns_crc(const mill_columns *columns, const char *row)
{
  const size_t n_byte = columns->column[columns->i_crc].at;
  return (uint32_t)crc32(crc32(0L, Z_NULL, 0), (const Bytef *)row, (uInt)n_byte);
}

void mill_columns_set_crc(const mill_columns *columns, char *row)
{
  const uint32_t crc = mill_columns_crc(columns, row);
  memcpy(row + columns->column[columns->i_crc].at, &crc, sizeof crc);
}

void mill_column_description(const mill_column *column, char *out, size_t size)
{
  fill_in(column->text, column->of, out, size);
}
