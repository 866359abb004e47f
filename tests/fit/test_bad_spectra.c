/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows of spectra that have unusable pixels or arms, or show no star; flags of elements. */
#include "tests/mill_test.h"

enum { SEED = 31337, MAX_STAR = 30, N_LABEL = 4, N_ARM = 3 };

#include "src/system/order.h"
#include "tests/fit/made_stars.h"

MILL_TEST(an_unusable_arm_is_left_out)
{
  make_stars(2, 30, 60);
  static float model[2 * MADE_MAX_SEG * MADE_MAX_PIX];
  /* in arm 1 star 0 has one exposure, which is masked; star 1 has two, of which one is NaN */
  for (int p = 0; p < star[0].segment[1].n_pix; p++)
    star[0].segment[1].mask[p] = 4;
  for (int p = 0; p < star[1].segment[2].n_pix; p++)
    star[1].segment[2].flux[p] = NAN;
  made_fit(&lib, &set, mill_backend_cpu(NULL), 2, 1, 2, star, NULL, result[0], model);
  for (int i = 0; i < 2; i++) {
    const mill_fit_result *r = &result[0][i];
    assert_int_equal(r->status, MILL_STATUS_FITTED);
    assert_true(r->info & MILL_INFO_ARM_DROPPED);
    assert_int_equal(r->warn & MILL_WARN_NONFINITE, 0);
    for (int j = 0; j < N_PAR; j++)
      if (j != 1)
        assert_close((made_par(r, j) - truth[i][j]) / made_err(r, j), 0, 5);
    assert_true(isnan(model[(i * MADE_MAX_SEG + 1 + i) * MADE_MAX_PIX + 3]));
    assert_true(isfinite(model[i * MADE_MAX_SEG * MADE_MAX_PIX + 3]));
  }
  assert_int_equal(result[0][0].n_pix[1], 0);
  assert_true(isnan(result[0][0].chisq[1]));
  assert_true(result[0][1].n_pix[1] > 0);
}

MILL_TEST(nan_and_infinite_pixels_change_nothing_else)
{
  make_stars(6, 30, 60);
  for (int i = 0; i < 6; i++)
    for (int s = 0; s < star[i].n_segment; s++)
      star[i].segment[s].mask[25] = star[i].segment[s].mask[44] = 1;
  fit(6, result[0]);
  for (int i = 0; i < 6; i++)
    for (int s = 0; s < star[i].n_segment; s++) {
      made_segment *x = &star[i].segment[s];
      x->mask[25] = x->mask[44] = 0;
      x->flux[25] = i % 2 ? NAN : INFINITY;
      x->ivar[44] = i % 3 ? NAN : INFINITY;
    }
  fit(6, result[1]);
  for (int i = 0; i < 6; i++) {
    assert_int_equal(result[1][i].status, MILL_STATUS_FITTED);
    assert_int_equal(result[1][i].warn, result[0][i].warn);
    assert_memory_equal(result[1][i].sn, result[0][i].sn, sizeof result[0][i].sn);
    /* The pixel is bad in both fits, but the fits differ slightly: a bad pixel's error is
     * proportional to a median of flux, which the infinite flux moves. */
    assert_close(made_par(&result[1][i], 0), made_par(&result[0][i], 0),
                 0.05 * result[0][i].vrad_err_km_s);
    assert_close(result[1][i].chisq_tot, result[0][i].chisq_tot, 0.05);
  }
}

enum { WILD, FLIPPED, NOISE, MASKED, NO_FLUX, NO_WEIGHT, N_KIND };

static void spoil(int kind, int i, uint64_t *random)
{
  if (kind == WILD) {
    star[i].segment[i % 2].flux[60] = i % 2 ? -1e9f : 1e9f;
    return;
  }
  for (int s = 0; s < star[i].n_segment; s++) {
    made_segment *x = &star[i].segment[s];
    for (int p = 0; p < x->n_pix; p++) {
      if (kind == FLIPPED)
        x->flux[p] *= -1;
      else if (kind == NOISE)
        x->flux[p] = (float)(made_normal(random) / sqrt((double)x->ivar[p]));
      else if (kind == MASKED)
        x->mask[p] = 1;
      else if (kind == NO_FLUX)
        x->flux[p] = NAN;
      else
        x->ivar[p] = p % 2 ? 0.0f : NAN;
    }
  }
}

/** The first stars are spoilt, the one after them is not. */
MILL_TEST(bad_spectra_are_flagged)
{
  static const struct {
    int n_bad;
    uint64_t warn; /* one of these bits */
  } expected[N_KIND] = {[WILD] = {2, MILL_WARN_OUTLIER | MILL_WARN_POOR_FIT},
                        [FLIPPED] = {2, MILL_WARN_NEGATIVE},
                        /* noise may drop an arm, never the flag */
                        [NOISE] = {5, MILL_WARN_CHISQ | MILL_WARN_BAD_SPECTRUM},
                        [MASKED] = {2, MILL_WARN_BAD_SPECTRUM},
                        [NO_FLUX] = {2, MILL_WARN_BAD_SPECTRUM},
                        [NO_WEIGHT] = {2, MILL_WARN_BAD_SPECTRUM}};
  for (int kind = 0; kind < N_KIND; kind++) {
    const int n_bad = expected[kind].n_bad;
    uint64_t random = SEED;
    make_stars(n_bad + 1, 30, 60);
    for (int i = 0; i < n_bad; i++)
      spoil(kind, i, &random);
    fit(n_bad + 1, result[0]);
    for (int i = 0; i <= n_bad; i++) {
      const mill_fit_result *r = &result[0][i];
      assert_int_equal((r->warn & expected[kind].warn) != 0, i < n_bad);
      if (kind < MASKED || i == n_bad) {
        assert_true(r->status == MILL_STATUS_FITTED || (kind == NOISE && i < n_bad));
        continue;
      }
      assert_int_equal(r->status, MILL_STATUS_NO_ARM);
      assert_true(isnan(r->vrad_km_s) && isnan(r->m2ll));
      assert_int_equal(r->n_pix_tot, 0);
    }
  }
}

MILL_TEST(good_stars_have_no_flags)
{
  make_stars(20, 30, 60);
  for (int i = 0; i < 20; i++)
    for (int l = 0; l < 4; l++) /* well inside the hulls */
      truth[i][2 + l] = test_label_unmap(&lib.label[l], 0.1 * (i % 5 - 2));
  fill_again(20, 100);
  fit(20, result[0]);
  for (int i = 0; i < 20; i++)
    assert_int_equal(result[0][i].warn, 0);
}

/* Add +-n_sigma to the 5 % of pixels where the template depends most on label l. */
static void spoil_lines(made_star *of, double *theta, int l, double n_sigma)
{
  for (int i = 0; i < of->n_segment; i++) {
    made_segment *s = &of->segment[i];
    double low[MADE_MAX_PIX], slope[MADE_MAX_PIX], sorted[MADE_MAX_PIX];
    made_template(&lib, MILL_ROT_SPLINE, s, theta, low);
    theta[2 + l] += 1e-3;
    made_template(&lib, MILL_ROT_SPLINE, s, theta, slope);
    theta[2 + l] -= 1e-3;
    for (int p = 0; p < s->n_pix; p++)
      sorted[p] = slope[p] = fabs(slope[p] - low[p]);
    qsort(sorted, (size_t)s->n_pix, sizeof *sorted, mill_by_double);
    for (int p = 0; p < s->n_pix; p++)
      if (slope[p] > sorted[s->n_pix * 19 / 20])
        s->flux[p] += (float)((p % 2 ? n_sigma : -n_sigma) / sqrt((double)s->ivar[p]));
  }
}

MILL_TEST(elements_have_flags_of_their_own)
{
  enum { MG = 3, N = 4 };
  static const double abundance = 0.3;
  const struct {
    double max_err, prior, outside, misfit; /* prior: sigma; outside: mapped; misfit: in sigma */
    int fixed, flag;
  } row[] = {{.flag = 0},
             {.max_err = 1e-4, .flag = MILL_ELEMENT_WEAK},
             {.prior = 1, .flag = 0},
             {.prior = 1e-4, .flag = MILL_ELEMENT_WEAK},
             {.fixed = 1, .flag = MILL_ELEMENT_WEAK},
             {.outside = 1.9, .flag = MILL_ELEMENT_EDGE},
             {.misfit = 1, .flag = 0},
             {.misfit = 6, .flag = MILL_ELEMENT_LINES}};
  for (size_t k = 0; k < sizeof row / sizeof *row; k++)
    for (int is_element = 0; is_element < 2; is_element++) {
      uint64_t random = SEED;
      strcpy(lib.label[MG].column, is_element ? "MGFE" : "AFE");
      make_stars(N, 100, 30);
      set.element_max_err = row[k].max_err > 0 ? row[k].max_err : 0.2;
      set.prior_mean[2 + MG] = set.fixed_value[2 + MG] = abundance;
      set.prior_sigma[2 + MG] = row[k].prior;
      set.fixed[2 + MG] = row[k].fixed;
      for (int i = 0; i < N; i++) {
        truth[i][2 + MG] =
            row[k].outside > 0 ? test_label_unmap(&lib.label[MG], row[k].outside) : abundance;
        made_star_fill(&lib, truth[i], 100, 1, &random, &star[i]);
        spoil_lines(&star[i], truth[i], MG, row[k].misfit);
      }
      fit(N, result[is_element]);
      for (int i = 0; i < N; i++) {
        const mill_fit_result *r = &result[is_element][i];
        /* MG outside the hull moves the other labels by 2 to 6 errors, so the row gets HULL too */
        const int at_hull = row[k].outside > 0;
        assert_int_equal(r->label_flag[MG], is_element ? row[k].flag : MILL_ELEMENT_NONE);
        assert_int_equal(r->warn, at_hull ? MILL_WARN_HULL : 0);
        assert_int_equal(r->info & MILL_INFO_NEAR_HULL, at_hull ? MILL_INFO_NEAR_HULL : 0);
        /* with a prior the guess may differ: two polishes, each of tolerance 1e-2 */
        if (!(row[k].outside > 0))
          assert_close(r->m2ll, result[0][i].m2ll, row[k].prior > 0 ? 0.02 : 0);
      }
    }
  strcpy(lib.label[MG].column, "ALPHAFE");
}

MILL_SEEDED_TEST_MAIN(SEED, set_up, tear_down)
