/* The median of SCORES against sorting, and redrock's rows. */
#include "tests/mill_test.h"

#include <string.h>

#include "jobs/simulate/simulate_rows.h"

enum { MAX_PIX = 2881 };

static int compare_floats(const void *a, const void *b)
{
  const float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

static float sorted_median(int n_pix, const float *flux, const float *ivar, const int32_t *mask)
{
  static float good[MAX_PIX];
  int n = 0;
  for (int i = 0; i < n_pix; i++)
    if (mask[i] == 0 && isfinite(flux[i]) && isfinite(ivar[i]) && ivar[i] > 0)
      good[n++] = flux[i] * sqrtf(ivar[i]);
  qsort(good, (size_t)n, sizeof *good, compare_floats);
  return n == 0 ? 0.0f : 0.5f * (good[(n - 1) / 2] + good[n / 2]);
}

/* Pixels of the kinds that a selection by a sample may stumble over. */
static float made_flux(int kind, int i, int n)
{
  switch (kind) {
  case 0:
    return (float)drand48();
  case 1: /* ascending */
    return (float)i;
  case 2: /* descending */
    return (float)(n - i);
  case 3: /* all alike */
    return 3.0f;
  case 4: /* with the sample's stride */
    return i % (n / 64 + 1) == 0 ? 1e9f : (float)drand48();
  case 5: /* two values */
    return (float)(i % 2);
  case 6: /* half of it zero */
    return i < n / 2 ? 0.0f : (float)drand48() - 0.5f;
  default: /* not a number, infinite */
    return i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : (float)drand48();
  }
}

static void test_median_is_the_sorted_one(void **state)
{
  (void)state;
  static float flux[MAX_PIX], ivar[MAX_PIX], scratch[2 * MAX_PIX];
  static int32_t mask[MAX_PIX];
  srand48(20260101);
  for (int n = 0; n <= MAX_PIX; n += n < 70 ? 1 : 173)
    for (int kind = 0; kind < 8; kind++)
      for (int rate = 0; rate <= 100; rate += 50) {
        for (int i = 0; i < n; i++) {
          flux[i] = made_flux(kind, i, n);
          ivar[i] = i % 17 == 0 ? 0.0f : i % 17 == 1 ? INFINITY : (float)drand48();
          mask[i] = drand48() * 100 < rate ? 1 << 30 : 0;
        }
        const float expected = sorted_median(n, flux, ivar, mask);
        const float found = mill_simulate_median_snr(n, flux, ivar, mask, scratch);
        /* the same float32 arithmetic, so the same value */
        if (!(found == expected))
          fail_msg("%d pixels of kind %d, %d %% masked: %.9g, sorted %.9g", n, kind, rate,
                   (double)found, (double)expected);
      }
}

/* The bits are those of desispec's fibermask and desitarget's desi_mask and mws_mask. */
static void test_fibermap_has_desis_bits(void **state)
{
  (void)state;
  enum { RESTRICTED = 3, BROKENFIBER = 2, DESI_SKY_BIT = 32, MWS_ANY = 61, MWS_BROAD_BIT = 0 };
  static float flux[MAX_PIX], ivar[MAX_PIX], scratch[2 * MAX_PIX];
  static int32_t mask[MAX_PIX];
  const mill_mock_row row = {{flux, flux, flux}, {ivar, ivar, ivar}, {mask, mask, mask}};
  mill_mock_star star;
  mill_fibermap_row out;
  memset(&star, 0, sizeof star);
  mill_simulate_fibermap_row(&star, &row, scratch, &out);
  assert_int_equal(out.fiber_status, 0);
  assert_int_equal(out.desi_target, INT64_C(1) << MWS_ANY);
  assert_int_equal(out.mws_target, INT64_C(1) << MWS_BROAD_BIT);
  assert_string_equal(out.objtype, "TGT");
  star.kind = MILL_MOCK_BAD_FIBER;
  mill_simulate_fibermap_row(&star, &row, scratch, &out);
  assert_int_equal(out.fiber_status, 1 << BROKENFIBER);
  star.kind = MILL_MOCK_ALLOWED_FIBER;
  mill_simulate_fibermap_row(&star, &row, scratch, &out);
  assert_int_equal(out.fiber_status, 1 << RESTRICTED);
  star.kind = MILL_MOCK_SKY;
  mill_simulate_fibermap_row(&star, &row, scratch, &out);
  assert_int_equal(out.desi_target, INT64_C(1) << DESI_SKY_BIT);
  assert_int_equal(out.mws_target, 0);
  assert_string_equal(out.objtype, "SKY");
}

static mill_redrock_row redrock_of(int kind, double teff_k)
{
  mill_mock_star star;
  mill_redrock_row row;
  memset(&star, 0, sizeof star);
  star.index = 12;
  star.target_id = 34;
  star.kind = kind;
  star.sn = 20.0;
  star.vrad_km_s = 150.0;
  mill_simulate_redrock_row(&star, teff_k, 5, &row);
  assert_int_equal(row.target_id, 34);
  return row;
}

static void test_redrock_knows_the_type(void **state)
{
  (void)state;
  static const struct {
    double teff_k;
    const char *subtype;
  } expected[] = {{4000, "K"}, {5199, "K"}, {5200, "G"}, {5999, "G"},
                  {6000, "F"}, {7499, "F"}, {7500, "A"}, {NAN, ""}};
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
    const mill_redrock_row row = redrock_of(MILL_MOCK_STAR, expected[i].teff_k);
    assert_string_equal(row.spectype, "STAR");
    assert_string_equal(row.subtype, expected[i].subtype);
    assert_int_equal(row.zwarn, 0);
    assert_close(row.z * 299792.458, 150.0, 5 * row.zerr * 299792.458);
  }
  /* nothing of a star that is none may come from its NaN truth */
  const mill_redrock_row sky = redrock_of(MILL_MOCK_SKY, NAN);
  assert_string_equal(sky.spectype, "GALAXY");
  assert_int_equal(sky.zwarn, 5); /* SKY and SMALL_DELTA_CHI2 */
  assert_true(sky.z > 0.0 && sky.z < 1.6 && isfinite(sky.zerr) && sky.delta_chi2 == 0.0);
}

/* 1 + z is the ratio of wavelengths; at 900 km/s z differs from v / c by 1.4 km/s. */
static void test_redrock_has_the_redshift_of_the_velocity(void **state)
{
  (void)state;
  mill_mock_star star;
  mill_redrock_row row;
  memset(&star, 0, sizeof star);
  star.sn = 1e5; /* the error is then 0.6 m/s */
  for (int sign = -1; sign <= 1; sign += 2) {
    star.vrad_km_s = sign * 900.0;
    mill_simulate_redrock_row(&star, 5000, 5, &row);
    const double beta = star.vrad_km_s / 299792.458;
    assert_close(row.z, sqrt((1 + beta) / (1 - beta)) - 1, 6 * row.zerr);
  }
}

static void test_truth_row_finds_its_file(void **state)
{
  (void)state;
  mill_mock_star star;
  mill_truth_row row;
  memset(&star, 0, sizeof star);
  star.index = 1499;
  star.kind = MILL_MOCK_SPIKE;
  star.template_index = -1;
  mill_simulate_truth_row(&star, 500, &row);
  assert_int_equal(row.file, 2);
  assert_int_equal(row.fits_row, 499);
  assert_int_equal(row.template_index, -1);
  assert_string_equal(row.kind, "spike");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_median_is_the_sorted_one),
      cmocka_unit_test(test_fibermap_has_desis_bits),
      cmocka_unit_test(test_redrock_knows_the_type),
      cmocka_unit_test(test_redrock_has_the_redshift_of_the_velocity),
      cmocka_unit_test(test_truth_row_finds_its_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
