/* SPDX-License-Identifier: BSD-3-Clause */
/** Spectra drawn at random, as a file of each survey and as its reader must hand them over. */
#ifndef MILL_TEST_SAMPLES_H
#define MILL_TEST_SAMPLES_H

#include <float.h>

#include "io/surveys/sdss.h"
#include "tests/io/surveys/one_format.h"
#include "tests/io/surveys/recipe.h"

enum { SAMPLE_ROWS = 5, SAMPLE_SPECTRA = 12, SAMPLE_PIX = 16, SAMPLE_DIAG = 3 };

typedef struct sample_spectrum {
  int exposure, arm, n_pix, has_mask, n_diag, has_sigma;
  double wave[SAMPLE_PIX]; /* as the file has them, in A, vacuum */
  float flux[SAMPLE_PIX], ivar[SAMPLE_PIX], sigma[SAMPLE_PIX];
  float matrix[SAMPLE_DIAG * SAMPLE_PIX];
  int32_t mask[SAMPLE_PIX];
} sample_spectrum;

typedef struct sample {
  recipe file;
  int frame, n_row, n_spectrum;
  mill_catalog_row row[SAMPLE_ROWS];
  sample_spectrum spectrum[SAMPLE_SPECTRA]; /* by exposure, then arm */
} sample;

/* ---- numbers ---- */

static uint64_t sample_state;

static inline uint64_t sample_bits(void)
{
  uint64_t z = sample_state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static inline int sample_below(int n)
{
  return (int)(sample_bits() % (uint64_t)n);
}

static inline double sample_between(double low, double high)
{
  return low + (high - low) * (double)(sample_bits() >> 11) * 0x1p-53;
}

/** Also what no reader may change. */
static inline float sample_float(void)
{
  static const float odd[] = {0.0f, NAN, INFINITY, -INFINITY, 1e-42f, -2.25f, FLT_MAX};
  return sample_below(4) ? (float)sample_between(-10.0, 100.0)
                         : odd[sample_below(sizeof odd / sizeof *odd)];
}

/** Flux and ivar at random, for n_pix pixels. */
static inline sample_spectrum *sample_add(sample *s, int exposure, int arm, int n_pix)
{
  sample_spectrum *p = &s->spectrum[s->n_spectrum++];
  assert_true(s->n_spectrum <= SAMPLE_SPECTRA && n_pix <= SAMPLE_PIX);
  memset(p, 0, sizeof *p);
  p->exposure = exposure;
  p->arm = arm;
  p->n_pix = n_pix;
  for (int i = 0; i < n_pix; i++) {
    p->flux[i] = sample_float();
    p->ivar[i] = sample_float();
    p->mask[i] = (int32_t)(sample_below(2) ? sample_bits() : 0);
  }
  return p;
}

static inline void sample_ascending(double *wave, int n, double first, double step)
{
  for (int i = 0; i < n; i++)
    wave[i] = (i > 0 ? wave[i - 1] : first) + step * sample_between(0.5, 1.5);
}

static inline mill_catalog_row *sample_row(sample *s)
{
  mill_catalog_row *row = &s->row[s->n_row];
  mill_catalog_row_init(row);
  row->fits_row = s->n_row++;
  row->target_ra = sample_between(0.0, 360.0);
  row->target_dec = sample_between(-90.0, 90.0);
  row->fiber = sample_below(5000);
  row->n_exposure = 1;
  return row;
}

/* One number of all rows. */
#define SAMPLE_COLUMN(s, type, field, out)                                                         \
  for (int k_ = 0; k_ < (s)->n_row; k_++)                                                          \
  (out)[k_] = (type)(s)->row[k_].field

/* ---- DESI: five rows, arms b and r, at HDU 2 FIBERMAP ---- */

static inline void sample_desi(sample *s)
{
  int64_t target[SAMPLE_ROWS];
  int32_t status[SAMPLE_ROWS] = {0, 8, 1 << 20, 0, 8 | 1 << 20}, fiber[SAMPLE_ROWS];
  double ra[SAMPLE_ROWS], dec[SAMPLE_ROWS], wave[SAMPLE_PIX];
  s->frame = MILL_FRAME_BARYCENTRIC;
  for (int i = 0; i < SAMPLE_ROWS; i++)
    sample_row(s)->target_id = ((const int64_t[]){30, 10, -5, 20, 40})[i];
  SAMPLE_COLUMN(s, int64_t, target_id, target);
  SAMPLE_COLUMN(s, int32_t, fiber, fiber);
  SAMPLE_COLUMN(s, double, target_ra, ra);
  SAMPLE_COLUMN(s, double, target_dec, dec);
  recipe_add(&s->file, "", 0);
  recipe_table(&s->file, "FIBERMAP", SAMPLE_ROWS);
  recipe_column_add(&s->file, "TARGETID", "K", "", target);
  recipe_column_add(&s->file, "OBJTYPE", "3A", "", "TGTTGTTGTTGTTGT");
  recipe_column_add(&s->file, "COADD_FIBERSTATUS", "J", "", status);
  recipe_column_add(&s->file, "FIBER", "J", "", fiber);
  recipe_column_add(&s->file, "TARGET_RA", "D", "", ra);
  recipe_column_add(&s->file, "TARGET_DEC", "D", "", dec);
  recipe_column_add(&s->file, "REF_CAT", "2A", "", "G2G2G2  G2");
  for (int i = 0; i < SAMPLE_ROWS; i++)
    snprintf(s->row[i].ref_cat, sizeof s->row[i].ref_cat, "%s", i == 3 ? "" : "G2");
  const int n_pix[2] = {4, 4 + sample_below(8)};
  for (int i = 0; i < SAMPLE_ROWS; i++)
    for (int a = 0; a < 2; a++) {
      sample_spectrum *p = sample_add(s, i, a == 0 ? ONE_B : ONE_R, n_pix[a]);
      p->has_mask = 1;
      p->n_diag = SAMPLE_DIAG;
      for (int k = 0; k < SAMPLE_DIAG * p->n_pix; k++)
        p->matrix[k] = sample_float();
    }
  for (int a = 0; a < 2; a++) {
    const long n = n_pix[a], axis[3] = {n, SAMPLE_ROWS}, cube[3] = {n, SAMPLE_DIAG, SAMPLE_ROWS};
    float flux[SAMPLE_ROWS * SAMPLE_PIX], ivar[SAMPLE_ROWS * SAMPLE_PIX];
    float matrix[SAMPLE_ROWS * SAMPLE_DIAG * SAMPLE_PIX];
    int32_t mask[SAMPLE_ROWS * SAMPLE_PIX];
    char name[32];
    sample_ascending(wave, (int)n, 4000.0 + 1000.0 * a, 1.0);
    for (int i = 0; i < SAMPLE_ROWS; i++) {
      sample_spectrum *p = &s->spectrum[2 * i + a];
      memcpy(p->wave, wave, sizeof wave);
      memcpy(flux + i * n, p->flux, (size_t)n * 4);
      memcpy(ivar + i * n, p->ivar, (size_t)n * 4);
      memcpy(mask + i * n, p->mask, (size_t)n * 4);
      memcpy(matrix + i * SAMPLE_DIAG * n, p->matrix, (size_t)(SAMPLE_DIAG * n) * 4);
    }
#define SAMPLE_IMAGE(end, form, n_axis, axes, values)                                              \
  snprintf(name, sizeof name, "%c_" end, "BR"[a]);                                                 \
  recipe_image(&s->file, name, form, n_axis, axes, values)
    SAMPLE_IMAGE("WAVELENGTH", "D", 1, axis, wave);
    SAMPLE_IMAGE("FLUX", "E", 2, axis, flux);
    SAMPLE_IMAGE("IVAR", "E", 2, axis, ivar);
    SAMPLE_IMAGE("MASK", "J", 2, axis, mask);
    SAMPLE_IMAGE("RESOLUTION", "E", 3, cube, matrix);
  }
}

/* ---- SDSS: COADD at HDU 2, SPECOBJ, then exposures 7 (red, blue) and 5 (blue) ---- */

static inline void sample_sdss_pixels(sample *s, const char *name, const char *mask, int n,
                                      double first, sample_spectrum *p)
{
  float loglam[SAMPLE_PIX], wdisp[SAMPLE_PIX];
  double log10_wave[SAMPLE_PIX];
  sample_ascending(log10_wave, n, first, 1e-3);
  for (int i = 0; i < n; i++) {
    loglam[i] = (float)log10_wave[i];
    wdisp[i] = (float)sample_between(0.5, 10.0);
    p->wave[i] = pow(10.0, (double)loglam[i]);
    p->sigma[i] = (float)((double)wdisp[i] * 1e-4 * M_LN10 * p->wave[i]);
  }
  recipe_table(&s->file, name, n);
  recipe_column_add(&s->file, "flux", "E", "", p->flux);
  recipe_column_add(&s->file, "LogLam", "E", "", loglam);
  recipe_column_add(&s->file, "ivar", "E", "", p->ivar);
  recipe_column_add(&s->file, mask, "J", "", p->mask);
  recipe_column_add(&s->file, "wdisp", "E", "", wdisp);
  for (int i = 0; i < n; i++)
    p->mask[i] &= MILL_SDSS_BAD;
  p->has_mask = p->has_sigma = 1;
}

static inline void sample_sdss(sample *s)
{
  const int32_t plate = 266, mjd = 51602;
  const double z = -3.5e-5;
  mill_catalog_row *row = sample_row(s);
  s->frame = MILL_FRAME_HELIOCENTRIC;
  row->z = z;
  row->fiber = 31;
  row->fits_row = 1; /* the HDU */
  strcpy(row->object, "spec-0266-51602-0031");
  strcpy(row->identifier, "sdss 0266-51602-0031");
  strcpy(row->spectype, "STAR");
  strcpy(row->subtype, "WD");
  recipe_add(&s->file, "", 0);
  recipe_card(&s->file, "HELIO_RV=        4.97393101991");
  const int n = 6 + sample_below(8);
  sample_sdss_pixels(s, "COADD", "AND_MASK", n, 3.6, sample_add(s, 0, ONE_COADD, n));
  recipe_table(&s->file, "SPECOBJ", 1);
  recipe_column_add(&s->file, "PLATE", "J", "", &plate);
  recipe_column_add(&s->file, "MJD", "J", "", &mjd);
  recipe_column_add(&s->file, "FIBERID", "J", "", &row->fiber);
  recipe_column_add(&s->file, "PLUG_RA", "D", "", &row->target_ra);
  recipe_column_add(&s->file, "PLUG_DEC", "D", "", &row->target_dec);
  recipe_column_add(&s->file, "Z", "D", "", &z);
  recipe_column_add(&s->file, "CLASS", "6A", "", "STAR  ");
  recipe_column_add(&s->file, "SUBCLASS", "21A", "", "WD                   ");
  recipe_column_add(&s->file, "OBJTYPE", "16A", "", "QSO             ");
  static const char *const name[] = {"R1-00000007-00000001-00000002",
                                     "B1-00000007-00000001-00000002",
                                     "B1-00000005-00000001-00000002"};
  for (int i = 0; i < 3; i++) {
    sample_spectrum *p = sample_add(s, 0, 0, 4 + i);
    sample_sdss_pixels(s, name[i], "mask", 4 + i, 3.6, p);
    recipe_card(&s->file, "HELIO_RV=        4.9");
    s->n_spectrum--; /* not of the coadd, but kept behind it */
    s->spectrum[SAMPLE_SPECTRA - 3 + i] = *p;
  }
}

/* ---- LAMOST: COADD at HDU 2, or the image of the primary ---- */

static inline void sample_lamost(sample *s, int is_image)
{
  static const char *const name[] = {"flux", "IVAR", "WAVELENGTH", "ANDMASK", "ORMASK"};
  mill_catalog_row *row = sample_row(s);
  const int n = 5 + sample_below(8);
  float value[5][SAMPLE_PIX];
  double wave[SAMPLE_PIX];
  char text[81], form[12];
  sample_spectrum *p = sample_add(s, 0, ONE_COADD, n);
  s->frame = MILL_FRAME_HELIOCENTRIC;
  p->has_mask = 1;
  sample_ascending(wave, n, 3700.0, 1.0);
  for (int i = 0; i < n; i++) {
    p->mask[i] &= 0xffff; /* masks are floats here */
    value[0][i] = p->flux[i];
    value[1][i] = p->ivar[i];
    value[2][i] = (float)wave[i];
    value[3][i] = (float)p->mask[i];
    value[4][i] = 1.0f;
    p->wave[i] = (double)value[2][i];
  }
  row->fiber = 110;
  row->exp_id = 3703110;
  row->fits_row = is_image ? 0 : 1; /* the HDU */
  row->z = -0.00005617;
  strcpy(row->object, "LAMOST J091219.42+275336.4");
  strcpy(row->identifier, "lamost 55877-B7708-03-110");
  strcpy(row->spectype, "STAR");
  strcpy(row->subtype, "K7");
  recipe_add(&s->file, "", 0);
  recipe_card(&s->file, "TELESCOP= 'LAMOST  '\nHELIO   =                    T\n"
                        "FILENAME= 'spec-55877-B7708_sp03-110.fits'\n"
                        "OBSID   =              3703110\nDESIG   = 'LAMOST J091219.42+275336.4'\n"
                        "FIBERID =                  110\nLMJD    =                55877\n"
                        "PLANID  = 'B7708   '\nSPID    =                    3\n"
                        "FIB_TYPE= 'Obj     '\nCLASS   = 'STAR    '\nSUBCLASS= 'K7      '\n"
                        "Z       =          -0.00005617");
  snprintf(text, sizeof text, "RA      = %.17g", row->target_ra);
  recipe_card(&s->file, text);
  snprintf(text, sizeof text, "DEC     = %.17g", row->target_dec);
  recipe_card(&s->file, text);
  if (is_image) {
    float packed[5 * SAMPLE_PIX];
    for (int i = 0; i < 5; i++)
      memcpy(packed + i * n, value[i], (size_t)n * 4);
    recipe_hdu *hdu = &s->file.hdu[0];
    hdu->n_axis = 2;
    hdu->axis[0] = n;
    hdu->axis[1] = 5;
    recipe_put(hdu, "", "E", "", packed, 5 * n);
    return;
  }
  /* left over from the older layout, as real files have it */
  recipe_card(&s->file, "NAXIS1  =                 3909 /\nNAXIS2  =                    5 /");
  snprintf(form, sizeof form, "%dE", n);
  recipe_table(&s->file, "COADD", 1);
  for (int i = 0; i < 5; i++)
    recipe_column_add(&s->file, name[i], form, "", value[i]);
}

static inline void sample_lamost_table(sample *s)
{
  sample_lamost(s, 0);
}

static inline void sample_lamost_image(sample *s)
{
  sample_lamost(s, 1);
}

/* ---- WEAVE: BLUE_DATA at HDU 2; the last fibre is parked, the one before it is a sky ---- */

static inline void sample_weave(sample *s)
{
  enum { N = SAMPLE_ROWS, N_BLUE = 4, N_RED = 3, N_KEPT = 3 };
  static const char blue_wcs[] = "CRVAL1  =               3650.0\nCD1_1   =                 0.25\n"
                                 "CRPIX1  =                  1.0\nCTYPE1  = 'AWAV'\n"
                                 "CUNIT1  = 'Angstrom'";
  static const char red_wcs[] = "CRVAL1  =                579.0\nCDELT1  =                 0.05\n"
                                "CRPIX1  =                  2.0\nCTYPE1  = 'WAVE'\n"
                                "CUNIT1  = 'nm'\nSPECSYS = 'BARYCENT'";
  static const float no_sens[] = {0.0f, NAN, -1.0f, INFINITY};
  const long blue[2] = {N_BLUE, N}, red[2] = {N_RED, N};
  float data[2][N * N_BLUE], ivar[2][N * N_BLUE], blue_sens[N * N_BLUE], red_sens[N_RED];
  char name[20 * N + 1] = "";
  int32_t fiber[N];
  double ra[N], dec[N];
  for (int i = 0; i < N; i++) {
    mill_catalog_row *row = sample_row(s);
    fiber[i] = row->fiber;
    ra[i] = row->target_ra;
    dec[i] = row->target_dec;
    snprintf(row->object, sizeof row->object, "WVE_00%06d-%07d", sample_below(1000000), i);
    snprintf(name + 20 * i, 21, "%-20s", row->object);
  }
  s->n_row = N_KEPT;
  s->frame = MILL_FRAME_UNKNOWN; /* blue does not say */
  for (int i = 0; i < N * N_BLUE; i++)
    blue_sens[i] = sample_below(3) ? (float)sample_between(0.1, 9.0) : no_sens[sample_below(4)];
  blue_sens[0] = 0.5f; /* no physical unit */
  for (int i = 0; i < N_RED; i++)
    red_sens[i] = (float)sample_between(1e-18, 1e-16);
  for (int i = 0; i < N; i++)
    for (int a = 0; a < 2; a++) {
      sample_spectrum *p = sample_add(s, i, a == 0 ? ONE_BLUE : ONE_RED, a == 0 ? N_BLUE : N_RED);
      for (int k = 0; k < p->n_pix; k++) {
        const int at = i * p->n_pix + k;
        const double sens = a == 0 ? (double)blue_sens[at] : (double)red_sens[k] * 1e17;
        const int good = isfinite(sens) && sens > 0.0;
        data[a][at] = p->flux[k];
        ivar[a][at] = p->ivar[k];
        p->flux[k] = good ? (float)((double)p->flux[k] * sens) : p->flux[k];
        p->ivar[k] = good ? (float)((double)p->ivar[k] / (sens * sens)) : 0.0f;
        p->wave[k] =
            a == 0 ? mill_air_to_vacuum(3650.0 + k * 0.25) : (579.0 + (k - 1) * 0.05) * 10.0;
      }
    }
  s->n_spectrum = 2 * N_KEPT;
  recipe_add(&s->file, "", 0);
  recipe_image(&s->file, "BLUE_DATA", "E", 2, blue, data[0]);
  recipe_card(&s->file, blue_wcs);
  recipe_image(&s->file, "BLUE_IVAR", "E", 2, blue, ivar[0]);
  recipe_image(&s->file, "BLUE_DATA_NOSS", "E", 2, blue, ivar[0]);
  recipe_image(&s->file, "BLUE_SENSFUNC", "E", 2, blue, blue_sens);
  recipe_image(&s->file, "RED_DATA", "E", 2, red, data[1]);
  recipe_card(&s->file, red_wcs);
  recipe_image(&s->file, "RED_IVAR", "E", 2, red, ivar[1]);
  recipe_image(&s->file, "RED_SENSFUNC", "E", 1, red, red_sens);
  recipe_table(&s->file, "FIBTABLE", N);
  recipe_column_add(&s->file, "FIBREID", "J", "", fiber);
  recipe_column_add(&s->file, "CNAME", "20A", "", name);
  recipe_column_add(&s->file, "TARGRA", "D", "", ra);
  recipe_column_add(&s->file, "TARGDEC", "D", "", dec);
  recipe_column_add(&s->file, "Status", "1A", "", "AaAAP");
  recipe_column_add(&s->file, "TARGUSE", "1A", "", "TCTST");
}

/* ---- generic: SPECTRA at HDU 2, of any types ---- */

/** variety 0: vectors of one length, of the plainest types; else as it comes. */
static inline void sample_generic_of(sample *s, int variety)
{
  enum { N = 3 };
  static const struct {
    const char *unit;
    double to_aa;
  } unit[] = {{"Angstrom", 1.0}, {"angstrom", 1.0}, {"AA", 1.0}, {"nm", 10.0}, {"um", 1e4}};
  static int length[N];
  const int variable = variety & 1, is_error = variety >> 1 & 1, is_double = variety >> 2 & 1;
  const int n_unit = variety ? sample_below(5) : 0, n_fixed = variety ? 4 + sample_below(8) : 4;
  double wave[N * SAMPLE_PIX], wide[N * SAMPLE_PIX], error[N * SAMPLE_PIX], ra[N], dec[N];
  float flux[N * SAMPLE_PIX], ivar[N * SAMPLE_PIX], sigma[N * SAMPLE_PIX];
  int32_t mask[N * SAMPLE_PIX];
  int64_t target[N];
  char form[3][12];
  int n = 0;
  s->frame = MILL_FRAME_BARYCENTRIC;
  for (int i = 0; i < N; i++) {
    mill_catalog_row *row = sample_row(s);
    length[i] = variable ? 2 + sample_below(SAMPLE_PIX - 2) : n_fixed;
    sample_spectrum *p = sample_add(s, i, ONE_SPECTRUM, length[i]);
    row->fiber = -1;
    row->target_id = target[i] = (int64_t)(sample_bits() >> 2);
    snprintf(row->object, sizeof row->object, "star_%c", 'a' + i);
    ra[i] = row->target_ra;
    dec[i] = row->target_dec;
    p->has_mask = p->has_sigma = 1;
    sample_ascending(wave + n, p->n_pix, 4000.0, 1.0);
    for (int k = 0; k < p->n_pix; k++, n++) {
      error[n] = sample_between(0.01, 5.0);
      if (is_error)
        p->ivar[k] = (float)(1.0 / (error[n] * error[n]));
      flux[n] = p->flux[k];
      wide[n] = (double)p->flux[k];
      ivar[n] = p->ivar[k];
      mask[n] = p->mask[k];
      sigma[n] = (float)sample_between(0.5, 2.0);
      p->wave[k] = wave[n] * unit[n_unit].to_aa;
      p->sigma[k] = (float)((double)sigma[n] * unit[n_unit].to_aa);
    }
  }
  recipe_add(&s->file, "", 0);
  recipe_table(&s->file, "SPECTRA", N);
  recipe_card(&s->file, "MEDIUM  = 'vacuum'\nFRAME   = 'barycentric'");
  recipe_column_add(&s->file, "NAME", "6A", "", "star_astar_bstar_c");
  for (int i = 0; i < 3; i++)
    snprintf(form[i], sizeof form[i], variable ? "1P%c(16)" : "4%c", "DEJ"[i]);
  for (int i = 0; i < 3 && !variable; i++)
    snprintf(form[i], sizeof form[i], "%d%c", n_fixed, "DEJ"[i]);
  const struct {
    const char *name, *form, *unit;
    const void *values;
  } vector[] = {
      {"WAVELENGTH", form[0], unit[n_unit].unit, wave},
      {"FLUX", form[!is_double], "", is_double ? (const void *)wide : flux},
      {is_error ? "ERROR" : "IVAR", form[!is_error], "", is_error ? (const void *)error : ivar},
      {"MASK", form[2], "", mask},
      {"LSF_SIGMA", form[1], unit[n_unit].unit, sigma}};
  for (int i = 0; i < 5; i++)
    if (variable)
      recipe_vectors_add(&s->file, vector[i].name, vector[i].form, vector[i].unit, vector[i].values,
                         length);
    else
      recipe_column_add(&s->file, vector[i].name, vector[i].form, vector[i].unit, vector[i].values);
  recipe_column_add(&s->file, "TARGETID", "K", "", target);
  recipe_column_add(&s->file, "RA", "D", "deg", ra);
  recipe_column_add(&s->file, "DEC", "D", "deg", dec);
}

static inline void sample_generic(sample *s)
{
  sample_generic_of(s, 0);
}

static inline void sample_generic_any(sample *s)
{
  sample_generic_of(s, 1 + sample_below(7));
}

/* ---- all of them ---- */

typedef struct sample_kind {
  const char *name;
  const mill_format *format;
  void (*draw)(sample *s);
  int has_lsf; /* the file knows the line-spread function */
} sample_kind;

enum { DESI, SDSS, LAMOST, LAMOST_IMAGE, WEAVE, GENERIC, GENERIC_ANY, N_SAMPLE_KIND };
static const sample_kind sample_kinds[N_SAMPLE_KIND] = {
    {"desi", &mill_format_desi, sample_desi, 1},
    {"sdss", &mill_format_sdss, sample_sdss, 1},
    {"lamost table", &mill_format_lamost, sample_lamost_table, 0},
    {"lamost image", &mill_format_lamost, sample_lamost_image, 0},
    {"weave", &mill_format_weave, sample_weave, 0},
    {"generic", &mill_format_generic, sample_generic, 1},
    {"generic, any types", &mill_format_generic, sample_generic_any, 1}};

/** Draw a sample; equal seeds draw the same. */
static inline void sample_draw(sample *s, int kind, uint64_t seed)
{
  memset(s, 0, sizeof *s);
  sample_state = seed;
  sample_kinds[kind].draw(s);
}

/* ---- what tests share: a sample, changed and read ---- */

static one_format one;
static sample s;

static inline int begin(void **state)
{
  (void)state;
  one_begin(&one, &mill_format_generic, 1);
  one.config.select.fiberstatus_allowed = UINT64_MAX;
  return 0;
}

static inline int end(void **state)
{
  (void)state;
  recipe_clear(&s.file);
  one_end(&one);
  return 0;
}

/** A new sample, changed by edits that follow one another with ';'. */
static inline void draw_sample(int kind, uint64_t seed, const char *edits)
{
  char edit[256];
  recipe_clear(&s.file);
  sample_draw(&s, kind, seed);
  for (; *edits; edits += strcspn(edits, ";") + (strchr(edits, ';') != NULL)) {
    snprintf(edit, sizeof edit, "%.*s", (int)strcspn(edits, ";"), edits);
    recipe_edit(&s.file, edit);
  }
  one.format = sample_kinds[kind].format;
  for (int a = 0; a < ONE_N_ARM; a++)
    one.lib.arm[a].template_sigma_aa = sample_kinds[kind].has_lsf ? 0.0 : -1.0;
}

/** The same at one.path. */
static inline void write_sample(int kind, uint64_t seed, const char *edits)
{
  draw_sample(kind, seed, edits);
  recipe_save(&s.file, one.path);
}

static inline one_file read_sample(int kind, const char *edits)
{
  write_sample(kind, 1, edits);
  return one_file_open(&one, one.path);
}

#endif
