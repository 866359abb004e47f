/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/mock/mock_files.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "io/fits/fits_output.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/math/doppler.h"

enum {
  N_FIBER = 5000,         /* of the instrument, 500 a petal */
  STATUS_BROKEN = 1 << 2, /* a forbidden bit of the fiber status */
  STATUS_REACH = 1 << 3,  /* an allowed one: restricted reach */
  MWS_BROAD = 1 << 0,     /* of MWS_TARGET */
  ZWARN_SKY = 1 << 0,     /* bits of redrock */
  ZWARN_DELTACHI2 = 1 << 2,
  ZWARN_NEGATIVE = 1 << 3,
  ZWARN_NODATA = 1 << 9,
  PURPOSE_REDROCK = 0x7272, /* of the random numbers; the stars' own are small */
  FIRST_ARM_HDU = 4,        /* primary, FIBERMAP, EXP_FIBERMAP and SCORES come before */
  N_IMAGE = 5,              /* wavelength, flux, ivar, mask, resolution */
  TRUTH_ROWS = 4096         /* written at once */
};
#define DESI_MWS_ANY    (INT64_C(1) << 61)
#define DESI_SKY        (INT64_C(1) << 32)
#define GAIA_EPOCH      2015.5f
#define GALAXY_Z        0.3
#define MAX_NOISE_Z     1.6
#define NOISE_Z_ERROR   1e-3
#define Z_ERROR_AT_SN10 2e-5 /* 6 km/s */

#define N(array) (int)(sizeof(array) / sizeof *(array))

static int has_no_star(const mill_mock_star *star)
{
  return star->kind == MILL_MOCK_SKY || star->kind == MILL_MOCK_NOISE;
}

/* ---- coadds ------------------------------------------------------------------------------ */

/* A row of FIBERMAP, EXP_FIBERMAP and SCORES. */
typedef struct fibermap_row {
  int64_t target_id, location, ref_id;
  int64_t desi_target, bgs_target, mws_target, scnd_target;
  double ra_deg, dec_deg;
  int32_t fiber, fiber_status, brick_id, exp_id;
  float pm_ra, pm_dec, ref_epoch; /* mas/yr, yr */
  float flux_g, flux_r, flux_z;   /* nanomaggies */
  float median_sn[MILL_MOCK_N_ARM];
  char ref_cat[3], objtype[4];
} fibermap_row;

/* DESI's names, types and units. */
#define COLUMN(name, format, unit, member)                                                         \
  {                                                                                                \
    name, format, unit, offsetof(fibermap_row, member)                                             \
  }
static const mill_output_column fibermap_column[] = {
    COLUMN("TARGETID", "K", NULL, target_id),
    COLUMN("LOCATION", "K", NULL, location),
    COLUMN("FIBER", "J", NULL, fiber),
    COLUMN("COADD_FIBERSTATUS", "J", NULL, fiber_status),
    COLUMN("TARGET_RA", "D", "deg", ra_deg),
    COLUMN("TARGET_DEC", "D", "deg", dec_deg),
    COLUMN("PMRA", "E", "mas yr^-1", pm_ra),
    COLUMN("PMDEC", "E", "mas yr^-1", pm_dec),
    COLUMN("REF_EPOCH", "E", "yr", ref_epoch),
    COLUMN("REF_ID", "K", NULL, ref_id),
    COLUMN("REF_CAT", "2A", NULL, ref_cat),
    COLUMN("OBJTYPE", "3A", NULL, objtype),
    COLUMN("BRICKID", "J", NULL, brick_id),
    COLUMN("DESI_TARGET", "K", NULL, desi_target),
    COLUMN("BGS_TARGET", "K", NULL, bgs_target),
    COLUMN("MWS_TARGET", "K", NULL, mws_target),
    COLUMN("SCND_TARGET", "K", NULL, scnd_target),
    COLUMN("FLUX_G", "E", "nanomaggy", flux_g),
    COLUMN("FLUX_R", "E", "nanomaggy", flux_r),
    COLUMN("FLUX_Z", "E", "nanomaggy", flux_z),
};
static const mill_output_column exp_fibermap_column[] = {
    COLUMN("TARGETID", "K", NULL, target_id),       COLUMN("EXPID", "J", NULL, exp_id),
    COLUMN("LOCATION", "K", NULL, location),        COLUMN("FIBER", "J", NULL, fiber),
    COLUMN("FIBERSTATUS", "J", NULL, fiber_status),
};
static const mill_output_column scores_column[] = {
    COLUMN("TARGETID", "K", NULL, target_id),
    COLUMN("MEDIAN_COADD_SNR_B", "E", NULL, median_sn[0]),
    COLUMN("MEDIAN_COADD_SNR_R", "E", NULL, median_sn[1]),
    COLUMN("MEDIAN_COADD_SNR_Z", "E", NULL, median_sn[2]),
};

/* HDUs 1 to 3. */
static const struct {
  const char *name;
  int n_column;
  const mill_output_column *column;
} row_table[FIRST_ARM_HDU - 1] = {{"FIBERMAP", N(fibermap_column), fibermap_column},
                                  {"EXP_FIBERMAP", N(exp_fibermap_column), exp_fibermap_column},
                                  {"SCORES", N(scores_column), scores_column}};

/* The HDUs of an arm. */
static const struct {
  const char *name, *unit;
  int bitpix, n_axis;
} image[N_IMAGE] = {{"WAVELENGTH", "Angstrom", -64, 1},
                    {"FLUX", "10**-17 erg/(s cm2 Angstrom)", -32, 2},
                    {"IVAR", "10**+34 (s2 cm4 Angstrom2) / erg2", -32, 2},
                    {"MASK", NULL, 32, 2},
                    {"RESOLUTION", NULL, -32, 3}};

struct mill_mock_coadd {
  mill_fits_output *file;
  const mill_mock_survey *survey;
  int64_t n_row, n_done;
  fibermap_row *row; /* [n_row] */
};

static int add_arm(const mill_mock_coadd *coadd, int arm)
{
  char name[40];
  const int64_t n_pix = mill_mock_arm_of[arm].n_pix;
  const int64_t plane[] = {n_pix, coadd->n_row}, cube[] = {n_pix, MILL_MOCK_N_DIAG, coadd->n_row};
  for (int i = 0; i < N_IMAGE; i++) {
    snprintf(name, sizeof name, "%c_%s", "BRZ"[arm], image[i].name);
    MILL_CHECK(mill_fits_output_image(coadd->file, name, image[i].bitpix, image[i].n_axis,
                                      image[i].n_axis == 3 ? cube : plane, image[i].unit));
  }
  return MILL_OK;
}

static int add_hdus(const mill_mock_coadd *coadd)
{
  mill_fits_output *file = coadd->file;
  MILL_CHECK(mill_fits_output_text(file, "SPGRP", "healpix"));
  MILL_CHECK(mill_fits_output_number(file, "SPGRPVAL", 0)); /* a mock survey has no healpix */
  MILL_CHECK(mill_fits_output_number(file, "HPXPIXEL", 0));
  MILL_CHECK(mill_fits_output_number(file, "HPXNSIDE", 64));
  MILL_CHECK(mill_fits_output_flag(file, "HPXNEST", 1));
  MILL_CHECK(mill_fits_output_text(file, "SURVEY", "mock"));
  MILL_CHECK(mill_fits_output_text(file, "PROGRAM", "starmill"));
  for (int i = 0; i < N(row_table); i++)
    MILL_CHECK(mill_fits_output_table(file, row_table[i].name, coadd->n_row, row_table[i].n_column,
                                      row_table[i].column));
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    MILL_CHECK(add_arm(coadd, a));
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    MILL_CHECK(mill_fits_output_pixels(file, FIRST_ARM_HDU + N_IMAGE * a, -64, 0,
                                       mill_mock_arm_of[a].n_pix,
                                       mill_mock_waves(coadd->survey, a)));
  return MILL_OK;
}

int mill_mock_coadd_open(const char *path, const mill_mock_origin *origin,
                         const mill_mock_survey *survey, int64_t n_row, mill_mock_coadd **out)
{
  int err = MILL_OK;
  mill_mock_coadd *coadd = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &coadd));
  coadd->survey = survey;
  coadd->n_row = n_row;
  MILL_TRY(MILL_ALLOC(n_row, &coadd->row));
  MILL_TRY(
      mill_fits_output_open(path, origin->id, origin->n_history, origin->history, &coadd->file));
  MILL_TRY(add_hdus(coadd));
  *out = coadd;
  coadd = NULL;
done:
  mill_mock_coadd_free(coadd);
  return err;
}

static float nanomaggies(double magnitude)
{
  return (float)pow(10.0, 0.4 * (22.5 - magnitude));
}

static void fill_row(const mill_mock_star *star, const mill_mock_row *row, fibermap_row *out)
{
  const int is_sky = star->kind == MILL_MOCK_SKY;
  /* fibers of one group share a line-spread function, as neighbours in a spectrograph do */
  const int n_group_fiber = N_FIBER / MILL_MOCK_N_LSF;
  memset(out, 0, sizeof *out);
  out->target_id = star->target_id;
  out->brick_id = (int32_t)(star->target_id >> 22 & 0xFFFFF);
  out->exp_id = 1;
  out->fiber = star->lsf_group * n_group_fiber + (int32_t)(star->index % n_group_fiber);
  out->location = out->fiber / 500 * 1000 + out->fiber % 500;
  out->fiber_status = star->kind == MILL_MOCK_BAD_FIBER       ? STATUS_BROKEN
                      : star->kind == MILL_MOCK_ALLOWED_FIBER ? STATUS_REACH
                                                              : 0;
  out->ra_deg = star->ra_deg;
  out->dec_deg = star->dec_deg;
  out->ref_epoch = GAIA_EPOCH;
  out->ref_id = is_sky ? -1 : star->index + 1;
  snprintf(out->ref_cat, sizeof out->ref_cat, "%s", is_sky ? "" : "G2");
  snprintf(out->objtype, sizeof out->objtype, "%s", is_sky ? "SKY" : "TGT");
  out->desi_target = is_sky ? DESI_SKY : DESI_MWS_ANY;
  out->mws_target = is_sky ? 0 : MWS_BROAD;
  if (!is_sky) {
    out->flux_g = nanomaggies(star->mag_g);
    out->flux_r = nanomaggies(star->mag_r);
    out->flux_z = nanomaggies(star->mag_z);
  }
  memcpy(out->median_sn, row->median_sn, sizeof out->median_sn);
}

int mill_mock_coadd_rows(mill_mock_coadd *coadd, int n, const mill_mock_star *star,
                         const mill_mock_row *row)
{
  mill_fits_output *file = coadd->file;
  const int64_t first = coadd->n_done;
  if (n > coadd->n_row - first)
    return MILL_ERROR(MILL_ERR_INTERNAL, "%d rows are more than a coadd file has left", n);
  for (int i = 0; i < n; i++)
    fill_row(&star[i], &row[i], &coadd->row[first + i]);
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    const int hdu = FIRST_ARM_HDU + N_IMAGE * a;
    const int64_t n_pix = mill_mock_arm_of[a].n_pix, n_matrix = n_pix * MILL_MOCK_N_DIAG;
    MILL_CHECK(mill_fits_output_pixels(file, hdu + 1, -32, first * n_pix, n * n_pix, row->flux[a]));
    MILL_CHECK(mill_fits_output_pixels(file, hdu + 2, -32, first * n_pix, n * n_pix, row->ivar[a]));
    MILL_CHECK(mill_fits_output_pixels(file, hdu + 3, 32, first * n_pix, n * n_pix, row->mask[a]));
    for (int i = 0; i < n; i++)
      MILL_CHECK(
          mill_fits_output_pixels(file, hdu + 4, -32, (first + i) * n_matrix, n_matrix,
                                  mill_mock_resolution(coadd->survey, star[i].lsf_group, a)));
  }
  coadd->n_done += n;
  return MILL_OK;
}

int mill_mock_coadd_commit(mill_mock_coadd *coadd)
{
  if (coadd->n_done != coadd->n_row)
    return MILL_ERROR(MILL_ERR_INTERNAL, "%lld of %lld rows of a coadd file were written",
                      (long long)coadd->n_done, (long long)coadd->n_row);
  for (int i = 0; i < N(row_table); i++)
    MILL_CHECK(mill_fits_output_rows(coadd->file, 1 + i, row_table[i].n_column, row_table[i].column,
                                     0, coadd->n_row, coadd->row, sizeof *coadd->row));
  return mill_fits_output_commit(coadd->file);
}

void mill_mock_coadd_free(mill_mock_coadd *coadd)
{
  if (!coadd)
    return;
  mill_fits_output_free(coadd->file);
  MILL_FREE(coadd->row, coadd);
}

/* ---- redrock ----------------------------------------------------------------------------- */

typedef struct redrock_row {
  int64_t target_id, zwarn;
  double z, zerr, chi2, delta_chi2;
  char spectype[7], subtype[21];
} redrock_row;

static const char *subtype(double teff_k)
{
  return !(teff_k < 7500.0) ? "A" : teff_k >= 6000.0 ? "F" : teff_k >= 5200.0 ? "G" : "K";
}

static void fill_redrock(const mill_mock_star *star, double teff_k, uint64_t seed, redrock_row *out)
{
  mill_random random;
  int n_pix = 0;
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    n_pix += mill_mock_arm_of[a].n_pix;
  mill_random_begin(&random, seed, (uint64_t)star->index, PURPOSE_REDROCK);
  memset(out, 0, sizeof *out);
  out->target_id = star->target_id;
  out->chi2 = n_pix;
  snprintf(out->spectype, sizeof out->spectype, "GALAXY");
  if (has_no_star(star)) { /* redrock always finds something */
    out->z = MAX_NOISE_Z * mill_random_uniform(&random);
    out->zerr = NOISE_Z_ERROR;
    out->zwarn = ZWARN_DELTACHI2 | (star->kind == MILL_MOCK_SKY ? ZWARN_SKY : 0);
    return;
  }
  out->zerr = Z_ERROR_AT_SN10 * 10.0 / star->sn;
  out->delta_chi2 = n_pix * star->sn * star->sn / 100.0;
  out->z = GALAXY_Z;
  if (star->kind != MILL_MOCK_GALAXY) {
    out->z = expm1(-mill_doppler_ln(star->vrad_km_s)) + out->zerr * mill_random_normal(&random);
    snprintf(out->spectype, sizeof out->spectype, "STAR");
    snprintf(out->subtype, sizeof out->subtype, "%s", isnan(teff_k) ? "" : subtype(teff_k));
  }
  if (star->kind == MILL_MOCK_NEGATIVE)
    out->zwarn = ZWARN_NEGATIVE;
  if (star->kind == MILL_MOCK_NO_ARM) {
    out->zwarn = ZWARN_NODATA;
    out->chi2 = out->delta_chi2 = 0.0;
  }
}

int mill_mock_redrock_write(const char *path, const mill_mock_origin *origin,
                            const mill_mock_survey *survey, uint64_t seed, int64_t first_star,
                            int64_t n_row)
{
  static const mill_output_column column[] = {
      {"TARGETID", "K", NULL, offsetof(redrock_row, target_id)},
      {"Z", "D", NULL, offsetof(redrock_row, z)},
      {"ZERR", "D", NULL, offsetof(redrock_row, zerr)},
      {"ZWARN", "K", NULL, offsetof(redrock_row, zwarn)},
      {"CHI2", "D", NULL, offsetof(redrock_row, chi2)},
      {"SPECTYPE", "6A", NULL, offsetof(redrock_row, spectype)},
      {"SUBTYPE", "20A", NULL, offsetof(redrock_row, subtype)},
      {"DELTACHI2", "D", NULL, offsetof(redrock_row, delta_chi2)}};
  int err = MILL_OK;
  const int i_teff = mill_library_find_label(mill_mock_library(survey), "teff");
  mill_fits_output *file = NULL;
  redrock_row *row = NULL;
  MILL_TRY(MILL_ALLOC(n_row, &row));
  for (int64_t i = 0; i < n_row; i++) {
    mill_mock_star star;
    mill_mock_draw(survey, first_star + i, &star);
    fill_redrock(&star, i_teff >= 0 ? star.label[i_teff] : (double)NAN, seed, &row[i]);
  }
  MILL_TRY(mill_fits_output_open(path, origin->id, origin->n_history, origin->history, &file));
  MILL_TRY(mill_fits_output_table(file, "REDSHIFTS", n_row, N(column), column));
  MILL_TRY(mill_fits_output_rows(file, 1, N(column), column, 0, n_row, row, sizeof *row));
  MILL_TRY(mill_fits_output_commit(file));
done:
  mill_fits_output_free(file);
  mill_free(row);
  return err;
}

/* ---- truth ------------------------------------------------------------------------------- */

typedef struct truth_row {
  mill_mock_star star;
  int32_t file;     /* number of the coadd file */
  int64_t fits_row; /* in it, from 0 */
  char kind[25];
} truth_row;

enum { N_TRUTH_FIXED = 8, MAX_TRUTH = MILL_MAX_LABEL + N_TRUTH_FIXED + MILL_MOCK_N_ARM };

/* Columns of the table; returns how many.  format has room for those that are made here. */
static int truth_columns(const mill_mock_survey *survey, char (*format)[16],
                         mill_output_column *column)
{
#define TRUTH(name, format, unit, member)                                                          \
  {                                                                                                \
    name, format, unit, offsetof(truth_row, member)                                                \
  }
  static const mill_output_column id = TRUTH("TARGETID", "K", NULL, star.target_id);
  static const mill_output_column after[] = {
      TRUTH("VRAD", "D", "km/s", star.vrad_km_s),
      TRUTH("VSINI", "D", "km/s", star.vsini_km_s),
      TRUTH("SN", "D", NULL, star.sn),
      TRUTH("LSF_GROUP", "J", NULL, star.lsf_group),
      TRUTH("FILE", "J", NULL, file),
      TRUTH("FITS_ROW", "K", NULL, fits_row),
      TRUTH("KIND", "24A", NULL, kind),
  };
  static const mill_output_column share[MILL_MOCK_N_ARM] = {
      TRUTH("ERROR_SHARE_B", NULL, NULL, star.share[0]),
      TRUTH("ERROR_SHARE_R", NULL, NULL, star.share[1]),
      TRUTH("ERROR_SHARE_Z", NULL, NULL, star.share[2]),
  };
#undef TRUTH
  static_assert(N(after) + 1 == N_TRUTH_FIXED, "as many columns as there is room for");
  const mill_library *lib = mill_mock_library(survey);
  int n = 0;
  column[n++] = id;
  for (int l = 0; l < lib->n_label; l++) {
    const mill_label *label = &lib->label[l];
    column[n++] =
        (mill_output_column){label->column, "D", *label->unit ? label->unit : NULL,
                             offsetof(truth_row, star.label) + (size_t)l * sizeof(double)};
  }
  memcpy(column + n, after, sizeof after);
  n += N(after);
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    if (mill_mock_n_share(survey, a) > 0) {
      snprintf(format[a], sizeof *format, "%dD", mill_mock_n_share(survey, a));
      column[n] = share[a];
      column[n++].format = format[a];
    }
  return n;
}

static int write_truth(mill_fits_output *file, const mill_mock_survey *survey, int64_t n_star,
                       int per_file, int (*stopped)(void))
{
  int err = MILL_OK;
  char format[MILL_MOCK_N_ARM][16];
  mill_output_column column[MAX_TRUTH];
  truth_row *row = NULL;
  const int n_column = truth_columns(survey, format, column);
  MILL_TRY(MILL_ALLOC(TRUTH_ROWS, &row));
  MILL_TRY(mill_fits_output_table(file, "TRUTH", n_star, n_column, column));
  for (int64_t first = 0; first < n_star; first += TRUTH_ROWS) {
    const int n = n_star - first < TRUTH_ROWS ? (int)(n_star - first) : TRUTH_ROWS;
    if (stopped())
      MILL_FAIL(MILL_ERR_STOPPED, "stopped while the truth table was written; give the same "
                                  "command again to continue");
    for (int i = 0; i < n; i++) {
      mill_mock_draw(survey, first + i, &row[i].star);
      row[i].file = (int32_t)((first + i) / per_file);
      row[i].fits_row = (first + i) % per_file;
      snprintf(row[i].kind, sizeof row[i].kind, "%s", mill_mock_kind_name(row[i].star.kind));
    }
    MILL_TRY(mill_fits_output_rows(file, 1, n_column, column, first, n, row, sizeof *row));
  }
done:
  mill_free(row);
  return err;
}

int mill_mock_truth_write(const char *path, const mill_mock_origin *origin,
                          const mill_mock_survey *survey, int64_t n_star, int per_file, int n_file,
                          const char *const *file, int (*stopped)(void))
{
  enum { NAME = 40 };
  static const mill_output_column name_column = {"FILE", "39A", NULL, 0};
  int err = MILL_OK;
  char(*name)[NAME] = NULL;
  mill_fits_output *out = NULL;
  MILL_TRY(MILL_ALLOC(n_file, &name));
  for (int f = 0; f < n_file; f++)
    snprintf(name[f], NAME, "%s", file[f]);
  MILL_TRY(mill_fits_output_open(path, origin->id, origin->n_history, origin->history, &out));
  MILL_TRY(write_truth(out, survey, n_star, per_file, stopped));
  MILL_TRY(mill_fits_output_table(out, "FILES", n_file, 1, &name_column));
  MILL_TRY(mill_fits_output_rows(out, 2, 1, &name_column, 0, n_file, name, NAME));
  MILL_TRY(mill_fits_output_commit(out));
done:
  mill_fits_output_free(out);
  mill_free(name);
  return err;
}
