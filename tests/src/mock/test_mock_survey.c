/* The mock survey: who the stars are, their spectra against the fit's own model, and what the
 * instrument does to them. */
#include "tests/src/mock/mock_fixture.h"

#include <omp.h>

#include "kernels/math/hull.h"
#include "src/config/config.h"
#include "src/pipeline/pipeline.h"

/* --- libraries that do not do --- */

static void refuse(const mill_library *from, const char *word)
{
  mill_mock_survey *survey = NULL;
  const mill_mock_settings set = usual_settings();
  assert_int_equal(mill_mock_survey_create(&set, from, &survey), MILL_ERR_LIBRARY);
  assert_null(survey);
  if (!strstr(mill_error_message(), word))
    fail_msg("\"%s\" does not say %s", mill_error_message(), word);
}

static void test_bad_libraries_are_refused(void **state)
{
  (void)state;
  mill_library other = lib;
  snprintf(other.arm[1].name, sizeof other.arm[1].name, "x");
  refuse(&other, "arm r");
  other = lib;
  other.arm[2].n_pix /= 2;
  refuse(&other, "arm z");
  other = lib;
  double facet[3] = {1, 0, 5}; /* nothing is so cool */
  other.hull[0].facet = facet;
  refuse(&other, "hulls");
}

/* --- draws --- */

static void test_stars_are_drawn_as_documented(void **state)
{
  (void)state;
  enum { N = 40000 };
  view v;
  mill_mock_settings set = usual_settings();
  set.n_pathological = 0;
  open_view(&set, &v);
  double sum_v = 0, sum_v2 = 0, sum_sn = 0, sum_sn2 = 0, slow = 0, fast = 0, cut = 0;
  double label_sum[N_LABEL] = {0};
  for (int64_t i = 0; i < N; i++) {
    mill_mock_star star;
    double x[N_LABEL];
    mill_mock_draw(v.survey, i, &star);
    assert_int_equal(star.index, i);
    assert_int_equal(star.kind, MILL_MOCK_STAR);
    assert_int_equal(star.lsf_group, i % MILL_MOCK_N_LSF);
    for (int l = 0; l < N_LABEL; l++) {
      assert_true(star.label[l] >= lib.label[l].min && star.label[l] <= lib.label[l].max);
      x[l] = mill_label_map(&lib.label[l], star.label[l]);
      label_sum[l] += star.label[l];
    }
    assert_true(x[0] + x[1] <= sqrt(2));
    cut += x[0] + x[1] > 1.2;
    assert_true(star.sn >= 5 && star.sn <= 100);
    assert_true(fabs(star.vrad_km_s) <= 900);
    assert_true(star.vsini_km_s >= 1 && star.vsini_km_s <= 150);
    assert_true(star.ra_deg >= 0 && star.ra_deg < 360);
    assert_true(star.dec_deg > -22 && star.dec_deg < 82);
    const double u = log(star.sn / 5) / log(20);
    sum_sn += u;
    sum_sn2 += u * u;
    sum_v += star.vrad_km_s;
    sum_v2 += star.vrad_km_s * star.vrad_km_s;
    slow += star.vsini_km_s < 10;
    fast += star.vsini_km_s > sqrt(10 * 150);
  }
  /* 5 sigma of the means; the variance's is 2 sigma^4 / N, uniform u^2 has 4 / 45 */
  assert_close(sum_sn / N, 0.5, 5 * sqrt(1.0 / 12 / N));
  assert_close(sum_sn2 / N, 1.0 / 3, 5 * sqrt(4.0 / 45 / N));
  assert_close(sum_v / N, 0, 5 * 200 / sqrt(N));
  assert_close(sum_v2 / N, 4e4, 5 * 4e4 * sqrt(2.0 / N));
  assert_close(slow / N, 0.8, 5 * sqrt(0.16 / N));
  assert_close(fast / N, 0.1, 5 * sqrt(0.09 / N));
  assert_true(cut > 0); /* stars come close to the hull's facet */
  /* feh stands alone: uniform */
  const double width = lib.label[2].max - lib.label[2].min;
  assert_close(label_sum[2] / N, 0.5 * (lib.label[2].max + lib.label[2].min),
               5 * width / sqrt(12.0 * N));
  close_view(&v);
}

/* desitarget's fields: object 22 bits, brick 20, release 16, then one bit for mocks */
static void test_target_ids_are_packed_as_desi_does(void **state)
{
  (void)state;
  static const int64_t index[] = {0, 1, 4194303, 4194304, 4194305, 123456789012};
  view v;
  mill_mock_settings set = usual_settings();
  set.n_star = (int64_t)1 << 42;
  open_view(&set, &v);
  int64_t id[6];
  for (int i = 0; i < 6; i++) {
    mill_mock_star star;
    mill_mock_draw(v.survey, index[i], &star);
    id[i] = star.target_id;
    assert_true(id[i] > 0);
    for (int k = 0; k < i; k++)
      assert_true(id[i] != id[k]);
    assert_int_equal(id[i] & 0x3fffff, index[i] % 4194304);
    assert_int_equal(id[i] >> 22 & 0xfffff, index[i] / 4194304 + 1);
    assert_int_equal(id[i] >> 42 & 0xffff, 9010);
    assert_int_equal(id[i] >> 58, 1);
  }
  close_view(&v);
}

static void test_pathological_rows_come_evenly_and_in_turn(void **state)
{
  (void)state;
  static const int per_1000[] = {0, 1, 7, 30, 1000};
  for (int c = 0; c < 5; c++) {
    view v;
    mill_mock_settings set = usual_settings();
    set.n_pathological = per_1000[c];
    open_view(&set, &v);
    int n[MILL_MOCK_N_KIND] = {0}, in_block = 0;
    int64_t last = -1;
    for (int64_t i = 0; i < 15000; i++) {
      mill_mock_star star;
      mill_mock_draw(v.survey, i, &star);
      n[star.kind]++;
      in_block += star.kind != MILL_MOCK_STAR;
      if (star.kind != MILL_MOCK_STAR) {
        if (last >= 0)
          assert_true(llabs((i - last) * per_1000[c] - 1000) < per_1000[c]);
        last = i;
      }
      if (i % 1000 == 999) {
        assert_int_equal(in_block, per_1000[c]);
        in_block = 0;
      }
    }
    /* 15 kinds in turn */
    for (int k = 1; k < MILL_MOCK_N_KIND; k++)
      assert_int_equal(n[k], per_1000[c]);
    close_view(&v);
  }
  assert_string_equal(mill_mock_kind_name(MILL_MOCK_STAR), "star");
  assert_string_equal(mill_mock_kind_name(MILL_MOCK_GALAXY), "galaxy");
}

static void test_magnitudes_follow_brightness_and_colour(void **state)
{
  (void)state;
  view v;
  mill_mock_settings set = usual_settings();
  open_view(&set, &v);
  for (int64_t i = 0; i < 2000; i++) {
    mill_mock_star star;
    mill_mock_draw(v.survey, i, &star);
    /* S/N 5 to 100 in 1000 s */
    assert_true(star.mag_r > 14 && star.mag_r < 21.5);
    /* black bodies of 4300 and 7000 K at 4730 and 6420 A, by hand: g - r 1.031
     * and 0.278, and with 9260 A r - z 0.566 and -0.048 */
    assert_true(star.mag_g - star.mag_r > 0.277 && star.mag_g - star.mag_r < 1.032);
    assert_true(star.mag_r - star.mag_z > -0.049 && star.mag_r - star.mag_z < 0.567);
  }
  /* and the magnitude is that of the flux around 6420 A */
  set = clean_settings();
  set.noiseless = 1;
  close_view(&v);
  open_view(&set, &v);
  for (int64_t i = 0; i < 20; i++) {
    mill_mock_star star;
    double near[201];
    mill_mock_draw(v.survey, i, &star);
    check(mill_mock_observe(v.survey, &star, v.work, &v.row));
    for (int k = 0; k < 201; k++)
      near[k] = (double)v.row.flux[1][825 - 100 + k];
    /* 1e-17 erg / (s cm2 A) times lambda^2 / c in Hz A: AB's zero is 3631 Jy */
    const double jansky = median(201, near) * 1e-17 * 6420 * 6420 / 2.99792458e18 * 1e23;
    /* the magnitude is for a pixel of median noise, the spectrum slopes: a tenth */
    assert_close(star.mag_r, -2.5 * log10(jansky / 3631), 0.1);
  }
  close_view(&v);
}

/* --- the instrument --- */

static void test_resolution_rows_are_the_sampled_gaussian(void **state)
{
  (void)state;
  view v;
  const mill_mock_settings set = usual_settings();
  double least = 1e9, most = 0;
  open_view(&set, &v);
  for (int g = 0; g < MILL_MOCK_N_LSF; g++)
    for (int a = 0; a < 3; a++) {
      const mill_mock_arm *arm = &mill_mock_arm_of[a];
      const float *res = mill_mock_resolution(v.survey, g, a);
      for (int i = 0; i < arm->n_pix; i++) {
        const double sigma_aa = mill_mock_lsf_sigma(g, arm->wave0_aa + arm->step_aa * i);
        const double fwhm_aa = 2 * sqrt(2 * log(2)) * sigma_aa;
        double sum = 0, norm = 0;
        least = fmin(least, fwhm_aa);
        most = fmax(most, fwhm_aa);
        for (int k = -5; k <= 5; k++)
          norm += exp(-0.5 * pow(k * 0.8 / sigma_aa, 2));
        for (int k = -5; k <= 5; k++) {
          const int j = i + k;
          if (j < 0 || j >= arm->n_pix)
            continue;
          /* scipy.sparse.dia_matrix((data, offsets)): data[q, j] = R[j - offset_q, j],
           * offsets 5, 4, .. -5; and offset = j - i = k */
          const double value = (double)res[(5 - k) * arm->n_pix + j];
          sum += value;
          /* float32 */
          assert_close(value, exp(-0.5 * pow(k * 0.8 / sigma_aa, 2)) / norm, 3e-8);
        }
        if (i >= 5 && i < arm->n_pix - 5)
          assert_close(sum, 1, 3e-7);
      }
    }
  assert_true(least > 1.5 && most < 1.95);
  assert_true(mill_mock_lsf_sigma(4, 6000) > 1.05 * mill_mock_lsf_sigma(0, 6000));
  close_view(&v);
}

static void test_signal_to_noise_is_the_drawn_one(void **state)
{
  (void)state;
  enum { N_STAR = 60 };
  double ratio = 0, *sn = malloc(MAX_PIX * sizeof *sn);
  assert_non_null(sn);
  view v;
  mill_mock_settings set = clean_settings();
  const int n_r = mill_mock_arm_of[1].n_pix;
  for (int noiseless = 1; noiseless >= 0; noiseless--) {
    set.noiseless = noiseless;
    open_view(&set, &v);
    for (int64_t i = 0; i < N_STAR; i++) {
      mill_mock_star star;
      mill_mock_draw(v.survey, i, &star);
      check(mill_mock_observe(v.survey, &star, v.work, &v.row));
      int n = 0;
      for (int p = 0; p < n_r; p++)
        if (is_good(&v, 1, p))
          sn[n++] = (double)v.row.flux[1][p] * sqrt((double)v.row.ivar[1][p]);
      const double measured = median(n, sn);
      assert_close((double)v.row.median_sn[1], measured, 1e-6 * measured); /* float32 */
      /* without noise: the 0.1 % of pixels that are dead move the median */
      if (noiseless)
        assert_close(measured / star.sn, 1, 2e-3);
      else
        ratio += measured / star.sn / N_STAR;
    }
    close_view(&v);
  }
  /* a median of 2326 pixels errs by 0.026 / (S/N), 60 of them average that out; noise
   * moves a median of skew values by a per cent at S/N 5 */
  assert_close(ratio, 1, 0.02);
  free(sn);
}

/* Flux and noise carry the calibration error alike: sqrt(ivar without / ivar with it). */
static void test_noise_has_the_variance_that_ivar_says(void **state)
{
  (void)state;
  enum { N_STAR = 20 };
  static const double sn[] = {5, 300}, distortion[] = {0, 0.05};
  for (int c = 0; c < 2; c++) {
    mill_mock_settings set = clean_settings();
    view noisy, clean, flat;
    set.min_sn = set.max_sn = sn[c];
    set.distortion = distortion[c];
    open_view(&set, &noisy);
    set.noiseless = 1;
    open_view(&set, &clean);
    set.distortion = 0;
    open_view(&set, &flat);
    for (int a = 0; a < 3; a++) {
      double sum = 0, square = 0, lag = 0, off = 0;
      const int n_pix = mill_mock_arm_of[a].n_pix;
      double n = 0;
      for (int64_t i = 0; i < N_STAR; i++) {
        mill_mock_star star;
        double last = 0;
        mill_mock_draw(noisy.survey, i, &star);
        check(mill_mock_observe(noisy.survey, &star, noisy.work, &noisy.row));
        check(mill_mock_observe(clean.survey, &star, clean.work, &clean.row));
        check(mill_mock_observe(flat.survey, &star, flat.work, &flat.row));
        for (int p = 0; p < n_pix; p++) {
          if (!is_good(&noisy, a, p))
            continue;
          n++;
          const double ivar = (double)noisy.row.ivar[a][p];
          const double factor = sqrt((double)flat.row.ivar[a][p] / ivar);
          const double x =
              ((double)noisy.row.flux[a][p] - factor * (double)clean.row.flux[a][p]) * sqrt(ivar);
          sum += x;
          square += x * x;
          lag += x * last;
          last = x;
          off = fmax(off, fabs(factor - 1));
          assert_true(noisy.row.ivar[a][p] == clean.row.ivar[a][p]);
          assert_true(flat.row.flux[a][p] == clean.row.flux[a][p]);
        }
      }
      /* 5 sigma */
      assert_close(sum / n, 0, 5 / sqrt(n));
      assert_close(square / n, 1, 5 * sqrt(2 / n));
      assert_close(lag / n, 0, 5 / sqrt(n));
      assert_true(c ? off > 0.05 : off == 0);
    }
    close_view(&noisy);
    close_view(&clean);
    close_view(&flat);
  }
}

/* docs/science/simulator.md at 6400 A, where no airglow line is near. */
static void test_noise_follows_its_formula(void **state)
{
  (void)state;
  const double wave_aa = 6400, sky = 1.2 + 0.9 * (wave_aa - 3600) / 6224;
  const double efficiency =
      0.34 / (1 + exp(-(wave_aa - 5740) / 40)) / (1 + exp(-(7640 - wave_aa) / 40));
  /* cm2, s, A, erg / (s cm2 A) over erg: h c = 1.98644586e-8 erg A */
  const double electrons = 1e-17 * 8.66e4 * 1000 * 0.8 * wave_aa / 1.98644586e-8 * efficiency;
  const double dark = sky / electrons + 50 / pow(electrons, 2) + pow(0.01 * sky, 2);
  mill_mock_settings set = clean_settings();
  set.noiseless = 1;
  set.n_pathological = 1000;
  view v;
  open_view(&set, &v);
  for (int64_t i = 0; i < 8; i++) {
    mill_mock_star star;
    mill_mock_draw(v.survey, i, &star);
    check(mill_mock_observe(v.survey, &star, v.work, &v.row));
    if (i == 0)
      assert_int_equal(star.kind, MILL_MOCK_SKY);
    if (star.kind == MILL_MOCK_NAN_ARM || star.kind == MILL_MOCK_NO_ARM)
      continue;
    const double flux = (double)v.row.flux[1][800], variance = 1 / (double)v.row.ivar[1][800];
    /* float32 */
    assert_close(variance / (dark + flux / electrons), 1, 1e-5);
  }
  close_view(&v);
}

/* The factor on flux and noise stands in ivar (test_noise_has_the_variance_that_ivar_says). */
static void test_distortion_is_smooth_and_of_the_size_asked_for(void **state)
{
  (void)state;
  enum { N_STAR = 200 };
  mill_mock_settings set = clean_settings();
  view v, flat;
  double sum = 0, square = 0, worst_bend = 0;
  int n = 0;
  set.noiseless = 1;
  open_view(&set, &flat);
  set.distortion = 0.03;
  open_view(&set, &v);
  for (int64_t i = 0; i < N_STAR; i++) {
    mill_mock_star star;
    mill_mock_draw(v.survey, i, &star);
    check(mill_mock_observe(v.survey, &star, v.work, &v.row));
    check(mill_mock_observe(flat.survey, &star, flat.work, &flat.row));
    for (int a = 0; a < 3; a++) {
      double off[5];
      const int step = (mill_mock_arm_of[a].n_pix - 1) / 4;
      int alive = 1;
      for (int k = 0; k < 5; k++)
        alive = alive && v.row.ivar[a][k * step] > 0;
      if (!alive)
        continue;
      for (int k = 0; k < 5; k++, n++) {
        const int p = k * step;
        off[k] = sqrt((double)flat.row.ivar[a][p] / (double)v.row.ivar[a][p]) - 1;
        sum += off[k];
        square += off[k] * off[k];
      }
      /* quadratic: no third difference */
      for (int k = 0; k < 2; k++)
        worst_bend = fmax(worst_bend, fabs(off[k] - 3 * off[k + 1] + 3 * off[k + 2] - off[k + 3]));
    }
  }
  /* Legendre polynomials P_k, k = 0, 1, 2, with variances 0.03^2 (2 k + 1) / 3.  The mean of
   * P_k^2 over x = -1, -1/2, 0, 1/2, 1 is 1, 1/2 and 0.45625 (by hand). */
  const double expected = 0.03 * sqrt((1 + 3 * 0.5 + 5 * 0.45625) / 3);
  /* 5 sigma: 3000 arms with three terms, of relative weights 0.21, 0.31, 0.48 in the mean
   * square, sqrt(2 x 0.37 / 3000); half of that in the rms; the mean has variance
   * 0.03^2 (1 + 5 / 16) / 3 in an arm */
  assert_close(sqrt(square / n) / expected, 1, 5 * 0.5 * sqrt(2 * 0.37 / (3 * N_STAR)));
  assert_close(sum / n, 0, 5 * 0.03 * sqrt((1 + 5 / 16.0) / 3 / (3 * N_STAR)));
  /* float32 */
  assert_true(worst_bend < 3e-6);
  close_view(&v);
  close_view(&flat);
}

static void test_cosmics_and_dead_pixels_have_their_rates(void **state)
{
  (void)state;
  enum { N_STAR = 100 };
  mill_mock_settings set = usual_settings();
  view v, clean;
  double n_cosmic = 0, n_dead = 0, n_run = 0, n = 0, wild = 0;
  set.distortion = 0;
  open_view(&set, &v);
  set.noiseless = 1;
  open_view(&set, &clean);
  for (int64_t i = 0; i < N_STAR; i++) {
    mill_mock_star star;
    mill_mock_draw(v.survey, i, &star);
    check(mill_mock_observe(v.survey, &star, v.work, &v.row));
    check(mill_mock_observe(clean.survey, &star, clean.work, &clean.row));
    for (int a = 0; a < 3; a++)
      for (int p = 0; p < mill_mock_arm_of[a].n_pix; p++, n++) {
        const int mask = v.row.mask[a][p], dead = v.row.ivar[a][p] == 0;
        assert_true(mask == 0 || mask == 4); /* desispec's COSMIC is bit 2 */
        n_cosmic += mask != 0;
        n_dead += dead;
        n_run += dead && p > 0 && v.row.ivar[a][p - 1] == 0;
        if (dead)
          assert_true(v.row.flux[a][p] == 0);
        else if (mask)
          wild +=
              (double)(v.row.flux[a][p] - clean.row.flux[a][p]) * sqrt((double)v.row.ivar[a][p]) >
              25;
      }
  }
  /* counts of runs of mean square over mean 2.33 and 5.1 pixels: 5 sigma */
  assert_close(n_cosmic, 0.001 * n, 5 * sqrt(2.4 * 0.001 * n));
  assert_close(n_dead, 0.001 * n, 5 * sqrt(5.2 * 0.001 * n));
  assert_true(n_run > 0.5 * n_dead);
  /* 10^1.5 to 10^4 sigma: all but those that are dead too */
  assert_true(wild > 0.97 * n_cosmic);
  close_view(&v);
  close_view(&clean);
}

/* --- pathological rows --- */

/* Without noise there are no cosmics, and dead pixels are a thousandth: 1 % at most. */
static void test_every_kind_has_its_defect(void **state)
{
  (void)state;
  mill_mock_settings set = clean_settings();
  view v;
  int seen[MILL_MOCK_N_KIND] = {0};
  set.n_pathological = 1000;
  set.noiseless = 1;
  set.min_sn = set.max_sn = 20;
  open_view(&set, &v);
  for (int64_t i = 0; i < MILL_MOCK_N_KIND - 1; i++) {
    mill_mock_star star;
    int n_huge = 0;
    mill_mock_draw(v.survey, i, &star);
    check(mill_mock_observe(v.survey, &star, v.work, &v.row));
    const int kind = star.kind;
    seen[kind]++;
    for (int a = 0; a < 3; a++) {
      const int n = mill_mock_arm_of[a].n_pix;
      int n_masked = 0, n_nan = 0, n_inf = 0, n_dead = 0;
      for (int p = 0; p < n; p++) {
        const float flux = v.row.flux[a][p];
        n_masked += v.row.mask[a][p] != 0;
        n_nan += isnan(flux);
        n_inf += isinf(flux) && v.row.mask[a][p] == 0;
        n_dead += v.row.ivar[a][p] == 0;
        n_huge += flux == 1e9f && v.row.mask[a][p] == 0;
      }
      assert_int_equal(n_masked, kind == MILL_MOCK_MASKED_ARM && a == 0 ? n
                                 : kind == MILL_MOCK_HALF_MASKED        ? (n + 1) / 2
                                                                        : 0);
      assert_int_equal(n_nan, kind == MILL_MOCK_NAN_ARM && a == 1 ? n : 0);
      assert_int_equal(n_inf, kind == MILL_MOCK_INF_PIXELS ? 50 : 0);
      if (kind == MILL_MOCK_NO_ARM || (kind == MILL_MOCK_ZERO_ARM && a == 2))
        assert_int_equal(n_dead, n);
      else
        assert_in_range(n_dead, 0, n / 100);
    }
    assert_int_equal(n_huge, kind == MILL_MOCK_SPIKE);
    if (kind == MILL_MOCK_SKY || kind == MILL_MOCK_NOISE)
      assert_true(isnan(star.label[0]) && isnan(star.vrad_km_s) && star.sn == 0);
    else if (kind != MILL_MOCK_NAN_ARM && kind != MILL_MOCK_NO_ARM)
      assert_close((double)v.row.median_sn[1], kind == MILL_MOCK_NEGATIVE ? -20 : 20, 1);
    if (kind == MILL_MOCK_FAST_ROTATOR)
      assert_close(star.vsini_km_s, 300, 0);
    if (kind == MILL_MOCK_HIGH_VELOCITY)
      assert_close(star.vrad_km_s, 900, 0);
  }
  for (int k = 1; k < MILL_MOCK_N_KIND; k++)
    assert_int_equal(seen[k], 1);
  close_view(&v);
}

/* --- the emulator's spectra against the fit's own model --- */

typedef struct residual {
  double chisq[3];
  int n_pix[3];
} residual;

/* -2 ln L's residual part of a star's data at the truth. */
static residual residual_at_truth(const mill_mock_settings *set, const mill_library *from,
                                  double vrad_km_s, double vsini_km_s, int with_matrix)
{
  mill_mock_survey *survey = NULL;
  mill_mock_star star;
  view v;
  residual out = {{0}, {0}};
  check(mill_mock_survey_create(set, from, &survey));
  view_init(&v, survey);
  mill_mock_draw(survey, 2, &star);
  star.vrad_km_s = vrad_km_s;
  star.vsini_km_s = vsini_km_s;
  check(mill_mock_observe(survey, &star, v.work, &v.row));

  mill_config config;
  mill_config_default(&config);
  check(mill_config_bind(&config, from));
  mill_fit_settings fit = config.fit;
  fit.precision = MILL_FLOAT64;
  fit.edge_pix = 0; /* the ends have a rule of their own */
  fit.resolution = with_matrix ? MILL_RES_MATRIX : MILL_RES_NONE;
  mill_pipeline *pipeline = NULL;
  check(mill_pipeline_create(from, &fit, mill_backend_cpu(NULL), 1, 1, 0, &pipeline));
  mill_raw_segment segment[3];
  memset(segment, 0, sizeof segment);
  for (int a = 0; a < 3; a++) {
    const mill_mock_arm *arm = &mill_mock_arm_of[a];
    double wave_aa[MAX_PIX];
    for (int i = 0; i < arm->n_pix; i++)
      wave_aa[i] = arm->wave0_aa + arm->step_aa * i;
    segment[a].arm = a;
    check(mill_pipeline_waveset(pipeline, a, arm->n_pix, wave_aa, &segment[a].waveset));
    segment[a].n_pix = arm->n_pix;
    segment[a].flux = v.row.flux[a];
    segment[a].ivar = v.row.ivar[a];
    segment[a].mask = v.row.mask[a];
    segment[a].n_diag = with_matrix ? MILL_MOCK_N_DIAG : 0;
    segment[a].resolution = with_matrix ? mill_mock_resolution(survey, star.lsf_group, a) : NULL;
    out.n_pix[a] = arm->n_pix;
  }
  const mill_star raw = {.row = 0, .n_segment = 3, .segment = segment};
  double theta[2 + N_LABEL] = {star.vrad_km_s, star.vsini_km_s};
  memcpy(theta + 2, star.label, N_LABEL * sizeof *theta);
  mill_eval eval;
  mill_fit_result prepared;
  check(mill_pipeline_evaluate(pipeline, &raw, MILL_REQ_FINAL, 1, theta, &eval, &prepared));
  assert_int_equal(prepared.status, MILL_STATUS_NOT_DONE);
  for (int a = 0; a < 3; a++)
    out.chisq[a] = eval.chisq[a];
  mill_pipeline_destroy(pipeline);
  mill_config_clear(&config);
  view_free(&v);
  mill_mock_survey_destroy(survey);
  return out;
}

static mill_mock_settings noiseless_settings(void)
{
  mill_mock_settings set = clean_settings();
  set.noiseless = 1;
  set.min_sn = set.max_sn = 1e4;
  return set;
}

static void test_fit_finds_no_residual_in_the_emulators_stars(void **state)
{
  (void)state;
  const mill_mock_settings set = noiseless_settings();
  static const double vrad_km_s[] = {0, 123.4, -900, 900}, vsini_km_s[] = {0, 7, 85, 300};
  for (int c = 0; c < 4; c++) {
    const residual r = residual_at_truth(&set, &lib, vrad_km_s[c], vsini_km_s[c], 1);
    for (int a = 0; a < 3; a++) {
      /* S/N 1e4: float32 flux and resolution rows err by 1e-7, 1e-3 sigma */
      printf("v %6.1f v sin i %5.1f arm %d: chi2 per pixel %.2e\n", vrad_km_s[c], vsini_km_s[c], a,
             r.chisq[a] / r.n_pix[a]);
      assert_true(r.chisq[a] < 1e-3 * r.n_pix[a]);
      assert_true(r.chisq[a] > 0);
    }
  }
}

static void test_library_at_the_instruments_resolution_needs_no_matrix(void **state)
{
  (void)state;
  const mill_mock_settings set = noiseless_settings();
  mill_library own = lib;
  for (int a = 0; a < 3; a++)
    own.arm[a].template_sigma_aa = -1;
  const residual r = residual_at_truth(&set, &own, 55.5, 20, 0);
  for (int a = 0; a < 3; a++)
    assert_true(r.chisq[a] < 1e-3 * r.n_pix[a]);
}

/* The default continuum functions follow the calibration error, and the noise is what
 * ivar says, cosmics and dead pixels left out: chi-square is the number of pixels. */
static void test_fit_at_the_truth_sees_noise_only(void **state)
{
  (void)state;
  mill_mock_settings set = usual_settings();
  set.min_sn = set.max_sn = 300;
  const residual r = residual_at_truth(&set, &lib, -123, 12, 1);
  for (int a = 0; a < 3; a++) {
    /* less 187 of the dichroic in arm b, 10 continuum functions, and some masked or dead
     * ones: 5 sigma and 3 per cent for those */
    const double expected = r.n_pix[a] - 10 - (a == 0 ? 187 : 0);
    assert_close(r.chisq[a], expected, 5 * sqrt(2 * expected) + 0.03 * expected);
  }
}

/* --- model error --- */

enum { N_COMPONENT = 2 };

/* The library with a model error: two waves, and a fraction that grows over the arm. */
static void with_error(mill_library *to, float *memory[3])
{
  *to = lib;
  for (int a = 0; a < 3; a++) {
    const int n = lib.arm[a].n_pix;
    check(MILL_ALLOC((1 + N_COMPONENT) * n, &memory[a]));
    to->arm[a].error = (mill_model_error){.fraction = memory[a],
                                          .n_component = N_COMPONENT,
                                          .component = memory[a] + n,
                                          .sigma = {0.02, 0.01},
                                          .correlation = 20};
    for (int i = 0; i < n; i++) {
      memory[a][i] = 0.01f * (1 + (float)i / (float)n);
      for (int k = 0; k < N_COMPONENT; k++)
        memory[a][(k + 1) * n + i] = (float)sin(i * (k + 1) / 300.0);
    }
  }
}

/* Sums over the pixels of a star at rest: what its flux has beside a star's without the error and
 * the components, in units of the fraction, squared and times that of the pixel before. */
static double sum_rest(const mill_library *from, int how, int64_t index, double *square,
                       double *lag)
{
  static double rest[3 * MAX_PIX], unit[3 * MAX_PIX];
  mill_mock_settings set = clean_settings();
  mill_mock_survey *survey = NULL;
  mill_mock_star star;
  view with, without;
  double mean = 0;
  int n = 0;
  set.vel_sigma_km_s = 0;
  set.model_error = how;
  check(mill_mock_survey_create(&set, from, &survey));
  view_init(&with, survey);
  mill_mock_draw(survey, index, &star);
  check(mill_mock_noiseless(survey, &star, with.work, with.flux));
  set.model_error = MILL_MOCK_ERROR_NONE;
  open_view(&set, &without);
  check(mill_mock_noiseless(without.survey, &star, without.work, without.flux));
  for (int a = 0; a < 3; a++)
    for (int p = 50; p < mill_mock_arm_of[a].n_pix - 50; p++, n++) {
      const mill_arm *arm = &from->arm[a];
      const double wave_aa = mill_mock_arm_of[a].wave0_aa + 0.8 * p;
      const int g = (int)lround((log(wave_aa) - arm->ln_wave0) / arm->ln_step);
      double known = 1;
      for (int k = 0; k < N_COMPONENT; k++)
        known += star.share[a][k] * arm->error.sigma[k] *
                 (double)arm->error.component[k * arm->n_pix + g];
      rest[n] = with.flux[a][p] / without.flux[a][p] / known;
      unit[n] = (double)arm->error.fraction[g];
      if (how == MILL_MOCK_ERROR_AS_FITTED) { /* L of the library's steps over those of the pixel */
        unit[n] *= sqrt(20 * arm->ln_step / (0.8 / wave_aa));
      } else {
        /* what a Gaussian leaves of exp(-|x| / reach): the line-spread function without the
         * templates' own 0.5 A, over 1 / ln((20 + 1) / (20 - 1)) steps */
        const double sigma = mill_mock_lsf_sigma(star.lsf_group, wave_aa);
        const double reach = wave_aa * arm->ln_step / log(21.0 / 19.0);
        const double s = sqrt(sigma * sigma - 0.25) / reach;
        unit[n] *= sqrt(exp(s * s) * erfc(s));
      }
      mean += rest[n];
    }
  mean /= n; /* 1 but for the medians of both spectra */
  for (int i = 0; i < n; i++) {
    const double x = (rest[i] / mean - 1) / unit[i];
    *square += x * x;
    *lag += i > 0 ? x * (rest[i - 1] / mean - 1) / unit[i - 1] : 0;
  }
  close_view(&with);
  close_view(&without);
  return n;
}

static void test_model_error_is_what_was_asked_for(void **state)
{
  (void)state;
  enum { N_STAR = 8, N_DRAW = 2000 };
  float *memory[3];
  mill_library own;
  view v;
  double sum = 0, sum2 = 0, product = 0;
  with_error(&own, memory);
  for (int how = MILL_MOCK_ERROR_AS_FITTED; how <= MILL_MOCK_ERROR_CORRELATED; how++) {
    double square = 0, lag = 0, n = 0;
    for (int64_t i = 0; i < N_STAR; i++)
      n += sum_rest(&own, how, i, &square, &lag);
    if (how == MILL_MOCK_ERROR_AS_FITTED) { /* 5 sigma; white */
      assert_close(square / n, 1, 5 * sqrt(2 / n));
      assert_close(lag / n, 0, 5 / sqrt(n));
    } else {
      /* 5 sigma: five pixels know as much as one does; neighbours are nearly alike */
      assert_close(square / n, 1, 5 * sqrt(2 * 5 / n));
      assert_close(lag / square, 0.91, 0.06);
    }
  }
  const mill_mock_settings set = usual_settings();
  mill_mock_survey *survey = NULL;
  check(mill_mock_survey_create(&set, &own, &survey));
  for (int64_t i = 0; i < N_DRAW; i++) {
    mill_mock_star star;
    mill_mock_draw(survey, i, &star);
    sum += star.share[1][0];
    sum2 += star.share[1][0] * star.share[1][0];
    product += star.share[1][0] * star.share[2][0];
  }
  assert_close(sum / N_DRAW, 0, 5 / sqrt(N_DRAW));
  assert_close(sum2 / N_DRAW, 1, 5 * sqrt(2.0 / N_DRAW));
  assert_close(product / N_DRAW, 0, 5 / sqrt(N_DRAW));
  mill_mock_survey_destroy(survey);
  /* without one nothing is drawn, and the truth has no shares */
  open_view(&set, &v);
  assert_int_equal(mill_mock_n_share(v.survey, 0), 0);
  close_view(&v);
  for (int a = 0; a < 3; a++)
    mill_free(memory[a]);
}

/* Templates that begin at 3650 A: at 1000 km/s away from us they reach pixels from 3662.2 A. */
static void test_pixels_beyond_the_templates_are_dead(void **state)
{
  (void)state;
  mill_library other = lib;
  mill_arm *arm = &other.arm[0];
  const int skip = (int)ceil((log(3650) - arm->ln_wave0) / arm->ln_step);
  const mill_mock_settings set = clean_settings();
  mill_mock_survey *survey = NULL;
  mill_mock_star star;
  view v;
  arm->ln_wave0 += skip * arm->ln_step;
  arm->wave_aa += skip;
  arm->emulator.weight[1] += skip * N_HIDDEN;
  arm->emulator.bias[1] += skip;
  arm->n_pix = arm->emulator.n_out[1] = arm->n_pix - skip;
  check(mill_mock_survey_create(&set, &other, &survey));
  view_init(&v, survey);
  mill_mock_draw(survey, 0, &star);
  check(mill_mock_observe(survey, &star, v.work, &v.row));
  const int first = (int)ceil((arm->wave_aa[0] * exp(atanh(1000 / 299792.458)) - 3600) / 0.8);
  assert_in_range(first, 77, 79);
  for (int p = 0; p < first; p++)
    assert_true(v.row.ivar[0][p] == 0 && v.row.flux[0][p] == 0 && v.row.mask[0][p] != 0);
  assert_true(is_good(&v, 0, first) || is_good(&v, 0, first + 1));
  close_view(&v);
}

/* --- the same star whatever comes before it --- */

static uint64_t hash_bytes(uint64_t h, const void *data, size_t n)
{
  for (size_t i = 0; i < n; i++)
    h = (h ^ ((const unsigned char *)data)[i]) * 1099511628211ull;
  return h;
}

static uint64_t hash_star(const view *v, int64_t index)
{
  mill_mock_star star;
  uint64_t h = 14695981039346656037ull;
  mill_mock_draw(v->survey, index, &star);
  h = hash_bytes(h, star.label, sizeof *star.label * N_LABEL);
  h = hash_bytes(h, &star.vrad_km_s, sizeof star.vrad_km_s);
  h = hash_bytes(h, &star.mag_g, sizeof star.mag_g);
  check(mill_mock_observe(v->survey, &star, v->work, (mill_mock_row *)&v->row));
  for (int a = 0; a < 3; a++) {
    const size_t n = (size_t)mill_mock_arm_of[a].n_pix;
    h = hash_bytes(h, v->row.flux[a], n * sizeof(float));
    h = hash_bytes(h, v->row.ivar[a], n * sizeof(float));
    h = hash_bytes(h, v->row.mask[a], n * sizeof(int32_t));
  }
  return h;
}

static void test_stars_do_not_depend_on_order_or_threads(void **state)
{
  (void)state;
  enum { N_STAR = 30 };
  mill_mock_settings set = usual_settings();
  uint64_t forward[N_STAR], threaded[N_STAR];
  view v, part[2];
  mill_mock_survey *other = NULL;
  set.n_pathological = 500;
  open_view(&set, &v);
  for (int i = 0; i < N_STAR; i++)
    forward[i] = hash_star(&v, i);
  for (int i = 1; i < N_STAR; i++)
    assert_true(forward[i] != forward[i - 1]);
  check(mill_mock_survey_create(&set, &lib, &other));
  for (int k = 0; k < 2; k++)
    view_init(&part[k], other);
#pragma omp parallel for num_threads(2) schedule(dynamic, 1)
  for (int i = N_STAR - 1; i >= 0; i--)
    threaded[i] = hash_star(&part[omp_get_thread_num()], i);
  assert_memory_equal(threaded, forward, sizeof forward);
  for (int k = 0; k < 2; k++)
    view_free(&part[k]);
  mill_mock_survey_destroy(other);
  close_view(&v);
}

/* The number of stars or of pathological rows changes no other star. */
static void test_stars_stay_when_the_survey_grows(void **state)
{
  (void)state;
  mill_mock_settings set = usual_settings();
  view v;
  open_view(&set, &v);
  const uint64_t before = hash_star(&v, 3);
  close_view(&v);
  set.n_star = 100000;
  set.n_pathological = 100; /* rows 9, 19, .. */
  open_view(&set, &v);
  assert_true(hash_star(&v, 3) == before);
  close_view(&v);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bad_libraries_are_refused),
      cmocka_unit_test(test_stars_are_drawn_as_documented),
      cmocka_unit_test(test_target_ids_are_packed_as_desi_does),
      cmocka_unit_test(test_pathological_rows_come_evenly_and_in_turn),
      cmocka_unit_test(test_magnitudes_follow_brightness_and_colour),
      cmocka_unit_test(test_resolution_rows_are_the_sampled_gaussian),
      cmocka_unit_test(test_signal_to_noise_is_the_drawn_one),
      cmocka_unit_test(test_noise_has_the_variance_that_ivar_says),
      cmocka_unit_test(test_noise_follows_its_formula),
      cmocka_unit_test(test_distortion_is_smooth_and_of_the_size_asked_for),
      cmocka_unit_test(test_cosmics_and_dead_pixels_have_their_rates),
      cmocka_unit_test(test_every_kind_has_its_defect),
      cmocka_unit_test(test_fit_finds_no_residual_in_the_emulators_stars),
      cmocka_unit_test(test_library_at_the_instruments_resolution_needs_no_matrix),
      cmocka_unit_test(test_fit_at_the_truth_sees_noise_only),
      cmocka_unit_test(test_model_error_is_what_was_asked_for),
      cmocka_unit_test(test_pixels_beyond_the_templates_are_dead),
      cmocka_unit_test(test_stars_do_not_depend_on_order_or_threads),
      cmocka_unit_test(test_stars_stay_when_the_survey_grows),
  };
  printf("seed %d\n", SEED);
  return cmocka_run_group_tests(tests, setup, teardown);
}
