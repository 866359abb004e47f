/** A small file in DESI's layout: five rows, arms b and r. */
#ifndef MILL_TEST_DESI_MAKER_H
#define MILL_TEST_DESI_MAKER_H

#include "tests/io/fits/fits_maker.h"

enum { MAKER_N_SPEC = 5, MAKER_N_PIX = 4, MAKER_N_DIAG = 3 };

/** What differs from the usual file; zero is the usual file. */
typedef struct desi_options {
  int spectra; /**< EXPID and FIBERSTATUS, repeated targets */
  int exp_fibermap;
  const char *leave; /**< an HDU to leave out */
  const char *table; /**< an HDU made a table */
  int wide_flux;     /**< B_FLUX one pixel too wide */
  int short_flux;    /**< B_FLUX one row too short */
  int diag;          /**< diagonals, 0: MAKER_N_DIAG */
  int double_flux;   /**< B_FLUX in float64 */
  int scaled_flux;   /**< B_FLUX with BSCALE and BZERO: 1 in int16, 2 in float32 */
  int mask_bits;     /**< 0: 32; -32 stands for unsigned 32, -64 for unsigned 64 */
  int bad_wave;      /**< 1: not ascending, 2: NaN */
  int no_status, no_optional;
  int scores_z; /**< SCORES with a column of arm Z */
} desi_options;

static const int64_t desi_target[MAKER_N_SPEC] = {30, 10, 30, 20, 10};
static const int64_t desi_unique[MAKER_N_SPEC] = {30, 10, -5, 20, 40};
static const int32_t desi_exp_id[MAKER_N_SPEC] = {101, 102, 103, 104, 105};

static inline int desi_wants(const desi_options *o, const char *name)
{
  return !o->leave || strcmp(o->leave, name) != 0;
}

static inline void desi_fibermap(fits_maker *m, const desi_options *o)
{
  static const int32_t status[MAKER_N_SPEC] = {0, 8, 1 << 20, 0, 8 | 1 << 20};
  static const int32_t fiber[MAKER_N_SPEC] = {7, 8, 9, 10, 11};
  static const double ra[MAKER_N_SPEC] = {1.5, 2.5, 3.5, 4.5, 5.5};
  static const int64_t ref_id[MAKER_N_SPEC] = {1, 2, 3, 4, 5};
  maker_column column[16];
  int n = 0;
  column[n++] = (maker_column){"TARGETID", "K", o->spectra ? desi_target : desi_unique};
  column[n++] = (maker_column){"OBJTYPE", "3A", "TGTTGTTGTTGTTGT"};
  if (!o->no_status)
    column[n++] = (maker_column){o->spectra ? "FIBERSTATUS" : "COADD_FIBERSTATUS", "J", status};
  if (o->spectra)
    column[n++] = (maker_column){"EXPID", "J", desi_exp_id};
  if (!o->no_optional) {
    column[n++] = (maker_column){"FIBER", "J", fiber};
    column[n++] = (maker_column){"TARGET_RA", "D", ra};
    column[n++] = (maker_column){"TARGET_DEC", "D", ra};
    column[n++] = (maker_column){"REF_ID", "K", ref_id};
    column[n++] = (maker_column){"REF_CAT", "2A", "G2G2G2  G2"};
  }
  maker_table(m, "FIBERMAP", MAKER_N_SPEC, n, column);
}

/** Pixel value of an image: 100 row + pixel, 1000 more for arm r. */
static inline float desi_value(int arm, int i_row, int i_pix)
{
  return 1000.0f * (float)arm + 100.0f * (float)i_row + (float)i_pix;
}

static inline void desi_arm(fits_maker *m, const desi_options *o, int arm)
{
  static const char letter[] = "BR";
  char name[32];
  double wave[MAKER_N_PIX];
  float pixel[MAKER_N_SPEC * MAKER_N_PIX];
  double wide[MAKER_N_SPEC * (MAKER_N_PIX + 1)] = {0};
  int16_t scaled[MAKER_N_SPEC * MAKER_N_PIX];
  int32_t mask[MAKER_N_SPEC * MAKER_N_PIX];
  int64_t mask64[MAKER_N_SPEC * MAKER_N_PIX];
  const long plane[2] = {MAKER_N_PIX, MAKER_N_SPEC};
  for (int i = 0; i < MAKER_N_PIX; i++)
    wave[i] = 4000.0 + 1000.0 * arm + i;
  if (o->bad_wave == 1)
    wave[2] = wave[1];
  if (o->bad_wave == 2)
    wave[3] = NAN;
  for (int i = 0; i < MAKER_N_SPEC * MAKER_N_PIX; i++) {
    pixel[i] = desi_value(arm, i / MAKER_N_PIX, i % MAKER_N_PIX);
    scaled[i] = (int16_t)(pixel[i] * 2.0f - 10.0f); /* BSCALE 0.5, BZERO 5 */
    wide[i] = (double)pixel[i];
    mask[i] = i % 3;
    mask64[i] = i % 3 == 1 ? (int64_t)1 << 40 : i % 3;
  }
  /* what a reader must not change */
  pixel[0] = NAN;
  pixel[1] = INFINITY;
  pixel[2] = -INFINITY;
  pixel[3] = 1e-42f; /* subnormal */
  wide[0] = NAN;
  wide[1] = INFINITY;
  wide[2] = -1e300;

  snprintf(name, sizeof name, "%c_WAVELENGTH", letter[arm]);
  if (desi_wants(o, name))
    maker_image(m, name, -64, 1, plane, wave, NULL);
  snprintf(name, sizeof name, "%c_FLUX", letter[arm]);
  if (o->table && strcmp(o->table, name) == 0)
    maker_table(m, name, MAKER_N_SPEC, 1, (const maker_column[]){{"X", "K", desi_target}});
  else if (arm == 0 && o->wide_flux)
    maker_image(m, name, -64, 2, (const long[]){MAKER_N_PIX + 1, MAKER_N_SPEC}, wide, NULL);
  else if (arm == 0 && o->short_flux)
    maker_image(m, name, -32, 2, (const long[]){MAKER_N_PIX, MAKER_N_SPEC - 1}, pixel, NULL);
  else if (arm == 0 && o->double_flux)
    maker_image(m, name, -64, 2, plane, wide, NULL);
  else if (arm == 0 && o->scaled_flux == 2)
    maker_image(m, name, -32, 2, plane, pixel, "BSCALE  = 0.5\nBZERO   = 5.0");
  else if (arm == 0 && o->scaled_flux)
    maker_image(m, name, 16, 2, plane, scaled, "BSCALE  = 0.5\nBZERO   = 5.0\nBLANK   = -10");
  else if (desi_wants(o, name))
    maker_image(m, name, -32, 2, plane, pixel, NULL);
  snprintf(name, sizeof name, "%c_IVAR", letter[arm]);
  if (desi_wants(o, name))
    maker_image(m, name, -32, 2, plane, pixel, NULL);
  snprintf(name, sizeof name, "%c_MASK", letter[arm]);
  if (desi_wants(o, name)) {
    if (o->mask_bits == 64)
      maker_image(m, name, 64, 2, plane, mask64, NULL);
    else if (o->mask_bits == -32) {
      for (int i = 0; i < MAKER_N_SPEC * MAKER_N_PIX; i++)
        mask[i] = (int32_t)((uint32_t)(i % 3 == 2 ? 0x80000001u : (uint32_t)mask[i]) ^ 0x80000000u);
      maker_image(m, name, 32, 2, plane, mask, "BZERO   = 2147483648");
    } else if (o->mask_bits == -64) {
      for (int i = 0; i < MAKER_N_SPEC * MAKER_N_PIX; i++)
        mask64[i] = (int64_t)((uint64_t)(i % 3 == 2 ? UINT64_MAX : (uint64_t)mask64[i]) ^
                              ((uint64_t)1 << 63));
      maker_image(m, name, 64, 2, plane, mask64, "BZERO   = 9223372036854775808");
    } else if (o->mask_bits == 1) /* floats, which no mask is made of */
      maker_image(m, name, -32, 2, plane, pixel, NULL);
    else
      maker_image(m, name, 32, 2, plane, mask, NULL);
  }
  const int n_diag = o->diag ? o->diag : MAKER_N_DIAG;
  const long cube[3] = {MAKER_N_PIX, n_diag, MAKER_N_SPEC};
  float *resolution = calloc((size_t)(MAKER_N_SPEC * n_diag * MAKER_N_PIX), sizeof(float));
  assert_non_null(resolution);
  for (int i = 0; i < MAKER_N_SPEC * n_diag * MAKER_N_PIX; i++)
    resolution[i] = (float)(10000 * arm + i);
  snprintf(name, sizeof name, "%c_RESOLUTION", letter[arm]);
  if (desi_wants(o, name))
    maker_image(m, name, -32, 3, cube, resolution, NULL);
  free(resolution);
}

static inline fits_maker desi_make(const desi_options *o)
{
  fits_maker m = {0};
  maker_primary(&m);
  if (desi_wants(o, "FIBERMAP"))
    desi_fibermap(&m, o);
  if (o->exp_fibermap) {
    static const int64_t target[4] = {10, 30, 10, 20};
    static const int32_t exp_id[4] = {201, 202, 203, 204};
    maker_table(&m, "EXP_FIBERMAP", 4, 2,
                (const maker_column[]){{"TARGETID", "K", target}, {"EXPID", "J", exp_id}});
  }
  if (o->scores_z)
    maker_table(&m, "SCORES", MAKER_N_SPEC, 1,
                (const maker_column[]){{"MEDIAN_COADD_SNR_Z", "K", desi_target}});
  desi_arm(&m, o, 0);
  desi_arm(&m, o, 1);
  return m;
}

#endif
