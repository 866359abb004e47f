/* The mock survey: who the stars are, and what the instrument does to their spectra. */
#include "tests/src/mock/mock_fixture.h"

#include <omp.h>

#include "kernels/math/hull.h"

/* --- settings and libraries that make no sense --- */

static void refuse(const mill_mock_settings *set, const mill_library *from, int code,
                   const char *word)
{
  mill_mock_survey *survey = NULL;
  assert_int_equal(mill_mock_survey_create(set, from, 1, 0, 1, &survey), code);
  assert_null(survey);
  if (!strstr(mill_error_message(), word))
    fail_msg("\"%s\" does not say %s", mill_error_message(), word);
}

static void test_bad_settings_are_refused(void **state)
{
  (void)state;
  mill_mock_settings set;
#define REFUSE(change, word)                                                                       \
  set = emulator_settings();                                                                       \
  change;                                                                                          \
  refuse(&set, &lib, MILL_ERR_RANGE, word)
  REFUSE(set.n_star = 0, "number of stars");
  REFUSE(set.source = 2, "source");
  REFUSE(set.min_sn = 0, "S/N");
  REFUSE(set.min_sn = 200, "S/N");
  REFUSE(set.max_sn = NAN, "S/N");
  REFUSE(set.vel_sigma_km_s = -1, "velocity");
  REFUSE(set.vel_sigma_km_s = NAN, "velocity");
  REFUSE((set.has_vsini_range = 1, set.min_vsini = 0, set.max_vsini = 5), "v sin i");
  REFUSE((set.has_vsini_range = 1, set.min_vsini = 9, set.max_vsini = 5), "v sin i");
  REFUSE((set.has_vsini_range = 1, set.min_vsini = 1, set.max_vsini = 501), "v sin i");
  REFUSE(set.distortion = 0.5, "distortion");
  REFUSE(set.cosmic_rate = -1, "cosmics");
  REFUSE(set.dead_rate = 900, "dead");
  REFUSE(set.n_pathological = 1001, "pathological");
  REFUSE(set.n_template = -1, "templates");
  REFUSE(set.source = MILL_MOCK_LINE_MODEL, "library");
#undef REFUSE
  set = emulator_settings();
  refuse(&set, NULL, MILL_ERR_RANGE, "library");
}

static void test_bad_libraries_are_refused(void **state)
{
  (void)state;
  const mill_mock_settings set = emulator_settings();
  mill_library other = lib;
  snprintf(other.arm[1].name, sizeof other.arm[1].name, "x");
  refuse(&set, &other, MILL_ERR_LIBRARY, "arm r");
  other = lib;
  other.arm[2].n_pix -= 500;
  refuse(&set, &other, MILL_ERR_LIBRARY, "arm z");
  other = lib;
  double facet[3] = {1, 0, 5}; /* nothing is so cool */
  other.hull[0].facet = facet;
  refuse(&set, &other, MILL_ERR_LIBRARY, "hulls");
}

/* --- draws --- */

static void test_stars_are_drawn_as_documented(void **state)
{
  (void)state;
  enum { N = 40000 };
  view v;
  mill_mock_settings set = emulator_settings();
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
    assert_int_equal(star.n_label, N_LABEL);
    assert_int_equal(star.template_index, -1);
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

static void test_settings_of_draws_are_heeded(void **state)
{
  (void)state;
  view v;
  mill_mock_star star, other;
  mill_mock_settings set = emulator_settings();
  set.min_sn = set.max_sn = 30;
  set.vel_sigma_km_s = 0;
  set.has_vsini_range = 1;
  set.min_vsini = 40;
  set.max_vsini = 60;
  open_view(&set, &v);
  for (int64_t i = 0; i < 100; i++) {
    mill_mock_draw(v.survey, i, &star);
    assert_close(star.sn, 30, 1e-12);
    assert_close(star.vrad_km_s, 0, 0);
    assert_true(star.vsini_km_s >= 40 && star.vsini_km_s <= 60);
  }
  close_view(&v);
  set.seed++;
  open_view(&set, &v);
  mill_mock_draw(v.survey, 99, &other);
  assert_true(other.label[0] != star.label[0] && other.vsini_km_s != star.vsini_km_s &&
              other.ra_deg != star.ra_deg);
  close_view(&v);
}

/* desitarget's fields: object 22 bits, brick 20, release 16, then one bit for mocks */
static void test_target_ids_are_packed_as_desi_does(void **state)
{
  (void)state;
  static const int64_t index[] = {0, 1, 4194303, 4194304, 4194305, 123456789012};
  view v;
  mill_mock_settings set = emulator_settings();
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
    mill_mock_settings set = emulator_settings();
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
  mill_mock_settings set = emulator_settings();
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
  const mill_mock_settings set = emulator_settings();
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

static void test_arms_are_those_of_desi(void **state)
{
  (void)state;
  static const double last_aa[] = {5800, 7620, 9824};
  for (int a = 0; a < 3; a++) {
    const mill_mock_arm *arm = &mill_mock_arm_of[a];
    assert_close(arm->wave0_aa + arm->step_aa * (arm->n_pix - 1), last_aa[a], 1e-9);
  }
  /* neighbours overlap */
  assert_true(mill_mock_arm_of[1].wave0_aa < 5800 && mill_mock_arm_of[2].wave0_aa < 7620);
}

static void test_signal_to_noise_is_the_drawn_one(void **state)
{
  (void)state;
  enum { N_STAR = 60 };
  for (int fast = 0; fast < 2; fast++) {
    double ratio = 0, *sn = malloc(MAX_PIX * sizeof *sn);
    assert_non_null(sn);
    view v;
    mill_mock_settings set = clean_settings();
    set.n_template = fast ? 7 : 0;
    const int n_r = mill_mock_arm_of[1].n_pix;
    for (int noiseless = 1; noiseless >= 0; noiseless--) {
      set.noiseless = noiseless;
      open_view(&set, &v);
      for (int64_t i = 0; i < N_STAR; i++) {
        mill_mock_star star;
        mill_mock_draw(v.survey, i, &star);
        assert_int_equal(star.template_index >= 0, fast);
        check(mill_mock_observe(v.survey, &star, v.work, &v.row));
        for (int p = 0; p < n_r; p++)
          sn[p] = (double)v.row.flux[1][p] * sqrt((double)v.row.ivar[1][p]);
        const double measured = median(n_r, sn);
        /* without noise: the solution's 1e-5 or the interpolated levels' 3e-4 */
        if (noiseless)
          assert_close(measured / star.sn, 1, 1e-3);
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
}

/* Flux and noise carry the calibration error alike: sqrt(ivar without / ivar with it). */
static void test_noise_has_the_variance_that_ivar_says(void **state)
{
  (void)state;
  enum { N_STAR = 100 };
  static const double sn[] = {5, 300}, distortion[] = {0, 0.05};
  for (int c = 0; c < 2; c++) {
    mill_mock_settings set = clean_settings();
    view noisy, clean, flat;
    set.n_template = 5;
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
      const double n = (double)N_STAR * n_pix;
      for (int64_t i = 0; i < N_STAR; i++) {
        mill_mock_star star;
        double last = 0;
        mill_mock_draw(noisy.survey, i, &star);
        check(mill_mock_observe(noisy.survey, &star, noisy.work, &noisy.row));
        check(mill_mock_observe(clean.survey, &star, clean.work, &clean.row));
        check(mill_mock_observe(flat.survey, &star, flat.work, &flat.row));
        for (int p = 0; p < n_pix; p++) {
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
          assert_int_equal(noisy.row.mask[a][p], 0);
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

/* Source and sky: between faint and bright, sigma grows, and night-sky lines stand out. */
static void test_noise_comes_from_source_and_sky(void **state)
{
  (void)state;
  mill_mock_settings set = clean_settings();
  double sigma[2][3], line[2];
  set.n_template = 5;
  set.noiseless = 1;
  for (int bright = 0; bright < 2; bright++) {
    view v;
    mill_mock_star star;
    set.min_sn = set.max_sn = bright ? 100 : 2;
    open_view(&set, &v);
    mill_mock_draw(v.survey, 0, &star);
    check(mill_mock_observe(v.survey, &star, v.work, &v.row));
    for (int a = 0; a < 3; a++)
      sigma[bright][a] = 1 / sqrt((double)v.row.ivar[a][1000]);
    /* [O I] 5577 lies at 5578.9 A in vacuum; 40 A away there is none */
    const int p = (int)((5578.9 - 3600) / 0.8);
    line[bright] = sqrt((double)(v.row.ivar[0][p + 50] / v.row.ivar[0][p]));
    close_view(&v);
  }
  for (int a = 0; a < 3; a++)
    assert_true(sigma[1][a] > 2 * sigma[0][a]);
  assert_true(line[0] > 3);
  assert_true(line[1] < 0.7 * line[0]);
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
  set.n_template = 5;
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
  enum { N_STAR = 1000 };
  mill_mock_settings set = clean_settings();
  view v, flat;
  double sum = 0, square = 0, worst_bend = 0;
  int n = 0;
  set.n_template = 5;
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
  enum { N_STAR = 400 };
  mill_mock_settings set = emulator_settings();
  view v, clean;
  double n_cosmic = 0, n_dead = 0, n_run = 0, n = 0, wild = 0;
  set.n_template = 5;
  set.cosmic_rate = 2;
  set.dead_rate = 3;
  set.distortion = 0;
  open_view(&set, &v);
  set.cosmic_rate = set.dead_rate = 0;
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
  assert_close(n_cosmic, 0.002 * n, 5 * sqrt(2.4 * 0.002 * n));
  assert_close(n_dead, 0.003 * n, 5 * sqrt(5.2 * 0.003 * n));
  assert_true(n_run > 0.5 * n_dead);
  /* 10^1.5 to 10^4 sigma: all but those that are dead too */
  assert_true(wild > 0.97 * n_cosmic);
  close_view(&v);
  close_view(&clean);
}

/* --- pathological rows --- */

static void test_every_kind_has_its_defect(void **state)
{
  (void)state;
  mill_mock_settings set = clean_settings();
  view v;
  int seen[MILL_MOCK_N_KIND] = {0};
  set.n_pathological = 1000;
  set.n_template = 5;
  set.min_sn = set.max_sn = 20;
  open_view(&set, &v);
  for (int64_t i = 0; i < MILL_MOCK_N_KIND - 1; i++) {
    mill_mock_star star;
    int n_bad[3] = {0}, n_nan[3] = {0}, n_inf[3] = {0}, n_zero_ivar[3] = {0}, n_huge = 0;
    double sn[3];
    mill_mock_draw(v.survey, i, &star);
    check(mill_mock_observe(v.survey, &star, v.work, &v.row));
    seen[star.kind]++;
    for (int a = 0; a < 3; a++) {
      const int n = mill_mock_arm_of[a].n_pix;
      double *x = malloc((size_t)n * sizeof *x);
      assert_non_null(x);
      for (int p = 0; p < n; p++) {
        const float flux = v.row.flux[a][p];
        n_bad[a] += v.row.mask[a][p] != 0;
        n_nan[a] += isnan(flux);
        n_inf[a] += isinf(flux) && v.row.mask[a][p] == 0 && v.row.ivar[a][p] > 0;
        n_zero_ivar[a] += v.row.ivar[a][p] == 0;
        n_huge += flux == 1e9f && v.row.mask[a][p] == 0;
        x[p] = isfinite(flux) ? (double)flux * sqrt((double)v.row.ivar[a][p]) : 0;
      }
      sn[a] = median(n, x);
      free(x);
      const int kind = star.kind;
      assert_int_equal(n_bad[a], kind == MILL_MOCK_MASKED_ARM && a == 0 ? n
                                 : kind == MILL_MOCK_HALF_MASKED        ? (n + 1) / 2
                                                                        : 0);
      assert_int_equal(n_nan[a], kind == MILL_MOCK_NAN_ARM && a == 1 ? n : 0);
      assert_int_equal(n_inf[a], kind == MILL_MOCK_INF_PIXELS ? 50 : 0);
      assert_int_equal(n_zero_ivar[a],
                       kind == MILL_MOCK_NO_ARM || (kind == MILL_MOCK_ZERO_ARM && a == 2) ? n : 0);
    }
    assert_int_equal(n_huge, star.kind == MILL_MOCK_SPIKE);
    const int empty = star.kind == MILL_MOCK_SKY || star.kind == MILL_MOCK_NOISE;
    if (empty) {
      for (int a = 0; a < 3; a++)
        assert_close(sn[a], 0, 0.15); /* 5 times the error of a median of 2326 */
      assert_true(isnan(star.label[0]) && isnan(star.vrad_km_s) && star.sn == 0);
    } else if (star.kind == MILL_MOCK_NEGATIVE) {
      assert_close(sn[1], -20, 1);
    } else if (star.kind != MILL_MOCK_NAN_ARM && star.kind != MILL_MOCK_NO_ARM) {
      assert_close(sn[1], 20, 1);
    }
    if (star.kind == MILL_MOCK_FAST_ROTATOR)
      assert_close(star.vsini_km_s, 300, 0);
    if (star.kind == MILL_MOCK_HIGH_VELOCITY)
      assert_close(star.vrad_km_s, 900, 0);
  }
  for (int k = 1; k < MILL_MOCK_N_KIND; k++)
    assert_int_equal(seen[k], 1);
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
  h = hash_bytes(h, star.label, sizeof *star.label * (size_t)star.n_label);
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

static void test_stars_do_not_depend_on_order_share_or_threads(void **state)
{
  (void)state;
  enum { N_STAR = 30, N_TEMPLATE = 7 };
  for (int fast = 0; fast < 2; fast++) {
    mill_mock_settings set = emulator_settings();
    uint64_t forward[N_STAR];
    view v, part[2];
    int64_t n_value, n_other;
    set.n_pathological = 500;
    set.n_template = fast ? N_TEMPLATE : 0;
    open_view(&set, &v);
    for (int i = 0; i < N_STAR; i++)
      forward[i] = hash_star(&v, i);
    for (int i = 1; i < N_STAR; i++)
      assert_true(forward[i] != forward[i - 1]);
    for (int i = N_STAR - 1; i >= 0; i--)
      assert_true(hash_star(&v, i) == forward[i]);

    /* three shares by two threads each, put together */
    mill_mock_survey *whole = NULL;
    check(mill_mock_survey_create(&set, &lib, 2, 0, 3, &whole));
    float *all = mill_mock_survey_templates(whole, &n_value);
    assert_int_equal(all != NULL, fast);
    for (int share = 1; share < 3; share++) {
      mill_mock_survey *other = NULL;
      check(mill_mock_survey_create(&set, &lib, 2, share, 3, &other));
      const float *from = mill_mock_survey_templates(other, &n_other);
      assert_int_equal(n_value, n_other);
      for (int t = share; fast && t < N_TEMPLATE; t += 3)
        memcpy(all + t * n_value, from + t * n_value, (size_t)n_value * sizeof *all);
      mill_mock_survey_destroy(other);
    }
    for (int k = 0; k < 2; k++)
      view_init(&part[k], whole);
    uint64_t threaded[N_STAR];
#pragma omp parallel for num_threads(2) schedule(dynamic, 1)
    for (int i = 0; i < N_STAR; i++)
      threaded[i] = hash_star(&part[omp_get_thread_num()], i);
    assert_memory_equal(threaded, forward, sizeof forward);
    for (int k = 0; k < 2; k++)
      view_free(&part[k]);
    mill_mock_survey_destroy(whole);
    close_view(&v);
  }
}

/* The number of stars or of pathological rows changes no other star. */
static void test_stars_stay_when_the_survey_grows(void **state)
{
  (void)state;
  mill_mock_settings set = emulator_settings();
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
      cmocka_unit_test(test_bad_settings_are_refused),
      cmocka_unit_test(test_bad_libraries_are_refused),
      cmocka_unit_test(test_stars_are_drawn_as_documented),
      cmocka_unit_test(test_settings_of_draws_are_heeded),
      cmocka_unit_test(test_target_ids_are_packed_as_desi_does),
      cmocka_unit_test(test_pathological_rows_come_evenly_and_in_turn),
      cmocka_unit_test(test_magnitudes_follow_brightness_and_colour),
      cmocka_unit_test(test_resolution_rows_are_the_sampled_gaussian),
      cmocka_unit_test(test_arms_are_those_of_desi),
      cmocka_unit_test(test_signal_to_noise_is_the_drawn_one),
      cmocka_unit_test(test_noise_has_the_variance_that_ivar_says),
      cmocka_unit_test(test_noise_comes_from_source_and_sky),
      cmocka_unit_test(test_noise_follows_its_formula),
      cmocka_unit_test(test_distortion_is_smooth_and_of_the_size_asked_for),
      cmocka_unit_test(test_cosmics_and_dead_pixels_have_their_rates),
      cmocka_unit_test(test_every_kind_has_its_defect),
      cmocka_unit_test(test_stars_do_not_depend_on_order_share_or_threads),
      cmocka_unit_test(test_stars_stay_when_the_survey_grows),
  };
  printf("seed %d\n", SEED);
  return cmocka_run_group_tests(tests, setup, teardown);
}
