/* SPDX-License-Identifier: BSD-3-Clause */
/* The mock survey: who the stars are, and what the instrument does to them. */
#include "tests/src/mock/mock_fixture.h"

#include <omp.h>

/* --- libraries that are refused --- */

static void refuse(const mill_library *from, const char *word)
{
  mill_mock_survey *survey = NULL;
  const mill_mock_settings set = usual_settings();
  assert_int_equal(mill_mock_survey_create(&set, from, &survey), MILL_ERR_LIBRARY);
  assert_null(survey);
  assert_says(word);
}

MILL_TEST(bad_libraries_are_refused)
{
  mill_library other = lib;
  snprintf(other.arm[1].name, sizeof other.arm[1].name, "x");
  refuse(&other, "arm r");
  other = lib;
  other.arm[2].n_pix /= 2;
  refuse(&other, "arm z");
  other = lib;
  double facet[3] = {1, 0, 5}; /* leaves no star */
  other.hull[0].facet = facet;
  refuse(&other, "hulls");
}

/* --- draws --- */

MILL_TEST(stars_are_drawn_as_documented)
{
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
MILL_TEST(target_ids_are_packed_as_desi_does)
{
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

MILL_TEST(pathological_rows_come_evenly_and_in_turn)
{
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
}

MILL_TEST(magnitudes_follow_brightness_and_colour)
{
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
    observe(&v, i, &star);
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

MILL_TEST(resolution_rows_are_the_sampled_gaussian)
{
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

/* The S/N is the drawn one, and noise is white with the variance that ivar says. */
MILL_TEST(noise_is_as_ivar_and_the_drawn_sn_say)
{
  enum { N_STAR = 20 };
  static const double drawn_sn[] = {5, 300};
  static double sn[2][MAX_PIX];
  for (int c = 0; c < 2; c++) {
    mill_mock_settings set = clean_settings();
    mill_mock_star star;
    view noisy, clean;
    set.min_sn = set.max_sn = drawn_sn[c];
    open_view(&set, &noisy);
    set.noiseless = 1;
    open_view(&set, &clean);
    for (int a = 0; a < 3; a++) {
      double n = 0, sum = 0, square = 0, lag = 0;
      for (int64_t i = 0; i < N_STAR; i++) {
        double last = 0;
        int n_good = 0;
        observe(&noisy, i, &star);
        observe(&clean, i, &star);
        for (int p = 0; p < mill_mock_arm_of[a].n_pix; p++) {
          const double ivar = (double)noisy.row.ivar[a][p];
          assert_true(noisy.row.ivar[a][p] == clean.row.ivar[a][p]);
          if (!is_good(&noisy, a, p))
            continue;
          sn[0][n_good] = (double)noisy.row.flux[a][p] * sqrt(ivar);
          sn[1][n_good] = (double)clean.row.flux[a][p] * sqrt(ivar);
          const double x = sn[0][n_good] - sn[1][n_good];
          n_good++;
          n++;
          sum += x;
          square += x * x;
          lag += x * last;
          last = x;
        }
        const double measured = median(n_good, sn[0]);
        assert_close((double)noisy.row.median_sn[a], measured, 1e-6 * measured); /* float32 */
        if (a == 1) /* the 0.1 % of pixels that are dead or cosmics move the median */
          assert_close(median(n_good, sn[1]) / star.sn, 1, 2e-3);
      }
      /* 5 sigma */
      assert_close(sum / n, 0, 5 / sqrt(n));
      assert_close(square / n, 1, 5 * sqrt(2 / n));
      assert_close(lag / n, 0, 5 / sqrt(n));
    }
    close_view(&noisy);
    close_view(&clean);
  }
}

/* docs/science/simulator.md at 6400 A, where no airglow line is near. */
MILL_TEST(noise_follows_its_formula)
{
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
    observe(&v, i, &star);
    if (i == 0)
      assert_int_equal(star.kind, MILL_MOCK_SKY);
    if (star.kind == MILL_MOCK_NAN_ARM || star.kind == MILL_MOCK_NO_ARM)
      continue;
    const double flux = (double)v.row.flux[1][800], variance = 1 / (double)v.row.ivar[1][800];
    /* float32 */
    assert_close(variance / (dark + flux / electrons), 1, 1e-5);
  }
  close_view(&v);
  /* [O I] 5577 lies at 5578.9 A in vacuum, 40 A away there is no line: it stands out of faint stars */
  const int p = (int)((5578.9 - 3600) / 0.8);
  double line[2];
  set.n_pathological = 0;
  for (int bright = 0; bright < 2; bright++) {
    mill_mock_star star;
    set.min_sn = set.max_sn = bright ? 100 : 2;
    open_view(&set, &v);
    observe(&v, 0, &star);
    line[bright] = sqrt((double)(v.row.ivar[0][p + 50] / v.row.ivar[0][p]));
    close_view(&v);
  }
  assert_true(line[0] > 3 && line[1] < 0.7 * line[0]);
}

/* A factor on flux and on noise. */
MILL_TEST(distortion_is_smooth_and_of_the_size_asked_for)
{
  enum { N_STAR = 200 };
  mill_mock_settings set = clean_settings();
  view v, flat;
  double sum = 0, square = 0, worst_bend = 0;
  int n = 0;
  open_view(&set, &flat);
  set.distortion = 0.03;
  open_view(&set, &v);
  for (int64_t i = 0; i < N_STAR; i++) {
    mill_mock_star star;
    observe(&v, i, &star);
    observe(&flat, i, &star);
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
        if (is_good(&v, a, p)) /* float32: 1e-6 of fluxes of up to 100 sigma */
          assert_close((double)v.row.flux[a][p], (1 + off[k]) * (double)flat.row.flux[a][p],
                       1e-4 / sqrt((double)v.row.ivar[a][p]));
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

MILL_TEST(cosmics_and_dead_pixels_have_their_rates)
{
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
    observe(&v, i, &star);
    observe(&clean, i, &star);
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
MILL_TEST(every_kind_has_its_defect)
{
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
    observe(&v, i, &star);
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
  assert_ok(mill_mock_observe(v->survey, &star, v->work, (mill_mock_row *)&v->row));
  for (int a = 0; a < 3; a++) {
    const size_t n = (size_t)mill_mock_arm_of[a].n_pix;
    h = hash_bytes(h, v->row.flux[a], n * sizeof(float));
    h = hash_bytes(h, v->row.ivar[a], n * sizeof(float));
    h = hash_bytes(h, v->row.mask[a], n * sizeof(int32_t));
  }
  return h;
}

MILL_TEST(stars_do_not_depend_on_the_others)
{
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
  assert_ok(mill_mock_survey_create(&set, &lib, &other));
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
  /* nor on the number of stars or of pathological rows */
  uint64_t in_large = 0;
  for (int is_large = 1; is_large >= 0; is_large--) {
    set.n_star = is_large ? 100000 : 1000;
    set.n_pathological = is_large ? 100 : 0; /* rows 9, 19, .. */
    open_view(&set, &v);
    const uint64_t hash = hash_star(&v, 3);
    close_view(&v);
    in_large = is_large ? hash : in_large;
    assert_true(hash == in_large);
  }
}

int main(void)
{
  printf("seed %d\n", SEED);
  return MILL_RUN_TESTS(setup, teardown);
}
