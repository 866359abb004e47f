/* SPDX-License-Identifier: BSD-3-Clause */
/* Test libstarmill through its public header, against the second implementation in made_star.h.
 * test_library_fit.c tests fits. */
#include "tests/mill_test.h"

#include <hdf5.h>
#include <pthread.h>

#include "libstarmill/handle.h"
#include "src/pipeline/pipeline_parts.h"
#include "tests/libstarmill/library_case.h"

MILL_TEST(a_library_says_what_it_is)
{
  starmill_parameter parameter;
  starmill_arm arm;
  assert_int_equal(starmill_library_n_par(fx.library), N_PAR);
  assert_int_equal(starmill_library_n_label(fx.library), 4);
  assert_int_equal(starmill_library_n_arm(fx.library), 3);
  assert_non_null(strstr(starmill_library_backend(fx.library), "cpu"));
  char hash[65];
  mill_library_digest(&fx.lib, hash);
  assert_string_equal(starmill_library_hash(fx.library), hash);
  check(library_parameter, fx.library, 1, &parameter);
  assert_string_equal(parameter.column, "VSINI");
  assert_true(parameter.max == 300);
  check(library_parameter, fx.library, 2, &parameter);
  assert_string_equal(parameter.name, fx.lib.label[0].name);
  assert_true(parameter.min == fx.lib.label[0].min);
  check(library_arm, fx.library, 0, &arm);
  assert_true(arm.min_wave > fx.lib.arm[0].wave_aa[0]);
  assert_true(arm.max_wave < fx.lib.arm[0].wave_aa[fx.lib.arm[0].n_pix - 1]);
  refused(STARMILL_USAGE, "arm 3", library_arm, fx.library, 3, &arm);
  refused(STARMILL_USAGE, "parameter -1", library_parameter, fx.library, -1, &parameter);
}

MILL_TEST(values_are_those_of_least_squares)
{
  enum { N = 40 };
  static made_answer expected;
  double theta[N * N_PAR], m2ll[N], penalty[N], alone, alone_penalty;
  points_of(99, N, theta);
  /* a scan of velocities, which share templates */
  for (int k = 6; k < 30; k++)
    memcpy(theta + k * N_PAR + 1, theta + 5 * N_PAR + 1, (N_PAR - 1) * sizeof *theta);
  for (int i = 0; i < N_STAR; i++) {
    values_of(fx.library, fx.star[i], N, theta, m2ll, penalty);
    for (int k = 0; k < N; k++) {
      const double *at = theta + k * N_PAR;
      double chisq = 0;
      if (k < 4) {
        made_evaluate(&fx.lib, &fx.set, &fx.made[i], at, &expected);
        for (int a = 0; a < 3; a++)
          chisq += expected.chisq[a];
        /* tests/fit/test_gradient.c says why */
        assert_close(m2ll[k], expected.f,
                     4 * 2 * sqrt(2 * chisq) * 1.1e-6 + 1e-9 * fabs(expected.f));
        assert_close(penalty[k], made_penalty(&fx.lib, &fx.set, &fx.made[i], at),
                     1e-9 * fabs(penalty[k]) + 1e-12);
      }
      values_of(fx.library, fx.star[i], 1, at, &alone, &alone_penalty);
      assert_true(alone == m2ll[k] && alone_penalty == penalty[k]);
    }
  }
}

MILL_TEST(points_beyond_the_limits_are_infinite)
{
  enum { N = 6 };
  double theta[N * N_PAR], m2ll[N], penalty[N], gradient[N * N_PAR], one;
  points_of(7, N, theta);
  theta[1 * N_PAR] = 1001;
  theta[2 * N_PAR + 1] = 301;
  theta[4 * N_PAR + 3] = NAN;
  check(minus2loglike, fx.library, fx.star[0], N, theta, m2ll, penalty, gradient, NULL);
  for (int k = 0; k < N; k++) {
    if (k == 1 || k == 2 || k == 4) {
      assert_true(isinf(m2ll[k]) && m2ll[k] > 0 && isnan(gradient[k * N_PAR]));
      continue;
    }
    check(minus2loglike, fx.library, fx.star[0], 1, theta + k * N_PAR, &one, NULL,
          gradient + k * N_PAR, NULL);
    assert_true(one == m2ll[k]);
  }
}

/** Compute -2 ln L at theta, then with parameter j moved by -step, step, -step / 2, step / 2. */
static void around(const starmill_star *star, const double *theta, int j, double step,
                   double value[5])
{
  static const double at[5] = {0, -1, 1, -0.5, 0.5};
  double x[5 * N_PAR];
  for (int k = 0; k < 5; k++) {
    memcpy(x + k * N_PAR, theta, N_PAR * sizeof *x);
    x[k * N_PAR + j] += step * at[k];
  }
  values_of(fx.library, star, 5, x, value, NULL);
}

MILL_TEST(gradient_and_curvature_match_differences)
{
  double gradient[N_PAR], curvature[N_PAR * N_PAR], m2ll, value[5];
  double *theta = fx.truth[0];
  uint64_t random = 8;
  made_star clean = fx.made[0];
  theta[1] = 47.3; /* between the corners of the kernel's kinds */
  made_star_fill(&fx.lib, theta, 300, 0, &random, &clean);
  MILL_AT_END(starmill_star_free_at) starmill_star *star = make_star(fx.library, &clean);
  check(minus2loglike, fx.library, fx.star[0], 1, theta, &m2ll, NULL, gradient, curvature);
  for (int j = 0; j < N_PAR; j++) {
    const double c = curvature[j * N_PAR + j], step = 0.1 / sqrt(c);
    around(fx.star[0], theta, j, step, value);
    const double wide = (value[2] - value[1]) / (2 * step), near = (value[4] - value[3]) / step;
    const double unit = fmax(sqrt(c), fabs(gradient[j]));
    /* With steps of 0.1 sigma rounding is only 1e-8; (4 near - wide) / 3 is off by step^4. */
    assert_close(gradient[j] / unit, (4 * near - wide) / 3 / unit, 1e-4);
  }
  /* At high S/N and without residuals the Gauss-Newton curvature lacks only the determinant's
   * part, which is small. */
  check(minus2loglike, fx.library, star, 1, theta, &m2ll, NULL, NULL, curvature);
  for (int j = 0; j < N_PAR; j++) {
    const double c = curvature[j * N_PAR + j], step = 0.3 / sqrt(c);
    around(star, theta, j, step, value);
    const double second = (value[1] + value[2] - 2 * value[0]) / (2 * step * step);
    assert_close(second / c, 1, 0.01);
    for (int k = 0; k < N_PAR; k++)
      assert_true(curvature[j * N_PAR + k] == curvature[k * N_PAR + j]);
  }
}

MILL_TEST(a_systematic_error_is_added_in_quadrature)
{
  static float systematic[MADE_MAX_PIX];
  starmill_spectrum spectrum[MADE_MAX_SEG];
  fx.made[0].segment[0].ivar[30] = -1e3f; /* bad, although 1 / (1 / ivar + e^2) is positive */
  made_star noisier = fx.made[0];
  MILL_AT_END(starmill_star_free_at) starmill_star *by_hand = NULL, *with = NULL;
  const int n = spectra_of(&fx.made[0], spectrum);
  for (int p = 0; p < MADE_MAX_PIX; p++)
    systematic[p] = 0.25f + 0.001f * (float)p;
  for (int i = 0; i < n; i++) {
    spectrum[i].systematic = systematic;
    made_segment *s = &noisier.segment[i];
    for (int p = 0; p < s->n_pix; p++) {
      const double v = (double)s->ivar[p], e = (double)systematic[p];
      s->ivar[p] = (float)(v > 0 ? 1 / (1 / v + e * e) : 0);
    }
  }
  check(star_create, fx.library, spectrum, n, &with);
  by_hand = make_star(fx.library, &noisier);
  const double a = m2ll_of(fx.library, with, fx.truth[0]),
               b = m2ll_of(fx.library, by_hand, fx.truth[0]),
               plain = m2ll_of(fx.library, fx.star[0], fx.truth[0]);
  /* two roundings of ivar to float32 */
  assert_close(a, b, 1e-6 * fabs(b));
  assert_true(fabs(a - plain) > 1);
}

/** Keys that correct wavelengths or line spreads of files do not change a caller's arrays. */
MILL_TEST(keys_of_files_do_not_change_arrays)
{
  static const char *const key[] = {"medium: air\nlsf_factor: 2\n", "medium: vacuum\n"};
  static float sigma[MADE_MAX_PIX];
  starmill_spectrum spectrum[MADE_MAX_SEG];
  double value[2];
  const int n = spectra_of(&fx.made[0], spectrum);
  for (int p = 0; p < MADE_MAX_PIX; p++)
    sigma[p] = 1.2f;
  for (int air = 0; air < 2; air++) {
    MILL_AT_END(starmill_library_close_at) starmill_library *library = open_with(key[air]);
    MILL_AT_END(starmill_star_free_at) starmill_star *star = NULL, *plain = NULL;
    for (int i = 0; i < n; i++) { /* shorter, so that air wavelengths are within the library, too */
      spectrum[i].n_pix = 100;
      spectrum[i].air = air;
      spectrum[i].resolution = NULL;
      spectrum[i].sigma = sigma;
    }
    check(star_create, library, spectrum, n, &star);
    check(star_create, fx.library, spectrum, n, &plain);
    value[air] = m2ll_of(fx.library, plain, fx.truth[0]);
    assert_true(m2ll_of(library, star, fx.truth[0]) == value[air]);
  }
  assert_true(fabs(value[0] - value[1]) > 1);
}

/** Wavelength sets in memory; n_idle: those that the held star does not use. */
static mill_waveset_stats sets(int *n_idle)
{
  mill_waveset_stats now;
  mill_pipeline_waveset_stats(fx.library->pipeline, &now);
  *n_idle = now.n_set - now.n_held;
  return now;
}

/** Each star has its own wavelengths.  With the limit 0 only wavelength sets in use are kept. */
MILL_TEST(memory_does_not_grow_with_the_number_of_stars)
{
  int n_idle;
  double value[N_STAR];
  for (int i = 0; i < N_STAR; i++)
    value[i] = m2ll_of(fx.library, fx.star[i], fx.truth[i]);
  mill_waveset_cache_limit(fx.library->pipeline->member[0].waveset, 0);
  for (int i = 0; i < N_STAR; i++) {
    assert_true(m2ll_of(fx.library, fx.star[i], fx.truth[i]) == value[i]);
    assert_int_equal(sets(&n_idle).n_held, starmill_star_n_piece(fx.star[i]));
    assert_int_equal(n_idle, 0);
  }
  for (int i = 0; i < N_STAR - 1; i++) { /* a new star needs its sets until it is evaluated */
    MILL_AT_END(starmill_star_free_at) starmill_star *star = make_star(fx.library, &fx.made[i]);
    assert_int_equal(sets(&n_idle).n_held, starmill_star_n_piece(fx.star[N_STAR - 1]));
    assert_int_equal(n_idle, starmill_star_n_piece(star));
  }
  assert_true(m2ll_of(fx.library, fx.star[N_STAR - 1], fx.truth[N_STAR - 1]) == value[N_STAR - 1]);
}

MILL_TEST(a_model_is_its_template_times_its_continuum)
{
  static made_answer expected;
  static float alone[MADE_MAX_PIX];
  double templ[MADE_MAX_PIX];
  starmill_spectrum spectrum[MADE_MAX_SEG];
  for (int i = 0; i < N_STAR; i++) {
    MILL_AT_END(starmill_model_free_at) starmill_model *model = NULL;
    starmill_piece piece;
    starmill_model_arm arm;
    made_evaluate(&fx.lib, &fx.set, &fx.made[i], fx.truth[i], &expected);
    int n_good[3] = {0};
    check(model_create, fx.library, fx.star[i], fx.truth[i], &model);
    assert_true(starmill_model_m2ll(model) == m2ll_of(fx.library, fx.star[i], fx.truth[i]));
    const int n = spectra_of(&fx.made[i], spectrum);
    assert_int_equal(starmill_star_n_piece(fx.star[i]), n);
    for (int a = 0; a < 3; a++) {
      check(model_get_arm, model, a, &arm);
      assert_close(arm.chisq, expected.chisq[a], 1e-4 + 1e-6 * expected.chisq[a]);
      assert_close(arm.chisq_c, expected.chisq_c[a], 1e-4 + 1e-6 * expected.chisq_c[a]);
      assert_int_equal(arm.n_pix, expected.n_good[a]);
    }
    for (int k = 0; k < n; k++) {
      check(model_get_piece, model, k, &piece);
      const made_segment *s = &fx.made[i].segment[piece.i_spectrum];
      assert_int_equal(piece.n_pix, s->n_pix);
      assert_int_equal(piece.i_arm, s->arm);
      assert_int_equal(piece.exposure, s->exposure);
      assert_true(piece.used && piece.first == 0);
      assert_int_equal(piece.n_continuum, fx.set.n_cont);
      made_template(&fx.lib, fx.set.rotation, s, fx.truth[i], templ);
      check(template, fx.library, &spectrum[piece.i_spectrum], fx.truth[i], alone);
      for (int p = 0; p < piece.n_pix; p++) {
        const double flux = (double)piece.flux[p], t = (double)piece.template_flux[p];
        assert_true(piece.wave[p] == s->wave_aa[p]);
        assert_true(piece.data[p] == s->flux[p] || isnan(s->flux[p]));
        assert_true(piece.ivar[p] == 0.0f || piece.ivar[p] == s->ivar[p]);
        n_good[s->arm] += piece.ivar[p] > 0.0f; /* not at the edges of a matrix, either */
        /* float32: the continuum functions, the position in a grid interval, and the output */
        assert_close(t * piece.continuum[p], flux, 2e-6 * fabs(flux));
        assert_close(flux, expected.model[piece.i_spectrum][p], 2e-6 * fabs(flux));
        assert_close(t, templ[p], 2e-6 * fabs(templ[p]));
        assert_true(alone[p] == piece.template_flux[p]);
      }
    }
    for (int a = 0; a < 3; a++)
      assert_int_equal(n_good[a], expected.n_good[a]);
  }
}

/** With the model error fixed at theta, -2 ln L equals the fit's; without it, it differs. */
MILL_TEST(model_error_counts_where_it_is_fixed)
{
  char path[80];
  MILL_AT_END(starmill_library_close_at) starmill_library *library = NULL;
  starmill_star *star[2];
  double theta[N_PAR], with, penalty;
  assert_ok(test_library_add_error(3, &fx.lib));
  snprintf(path, sizeof path, "%s.error.h5", fx.path);
  assert_ok(test_library_write(path, &fx.lib));
  check(library_open, path, config, &library);
  unlink(path);
  for (int i = 0; i < 2; i++)
    star[i] = make_star(library, &fx.made[i]);
  MILL_AT_END(starmill_table_free_at) starmill_table *table = fit_of(library, star, 1);
  check(table_theta, library, table, 0, theta);
  const double without = m2ll_of(library, star[0], theta);
  check(fix_model_error, library, star[0], theta);
  values_of(library, star[0], 1, theta, &with, &penalty);
  /* The fit takes its model error at the last Jacobian, 0.1 errors off, which moves F by 0.01. */
  assert_close(with + penalty, number_of(table, "M2LL"), 0.02);
  assert_true(fabs(with - without) > 1);
  (void)m2ll_of(library, star[1], theta); /* another star in between */
  assert_true(m2ll_of(library, star[0], theta) == with);
  check(fix_model_error, library, star[0], NULL);
  assert_true(m2ll_of(library, star[0], theta) == without);
  theta[0] = NAN;
  refused(STARMILL_RANGE, "not finite", fix_model_error, library, star[0], theta);
  starmill_star_free(star[0]);
  starmill_star_free(star[1]);
}

MILL_TEST(a_spectrum_of_no_arm_is_cut_by_wavelength)
{
  enum { N = 800 };
  static double wave[N];
  static float flux[N], ivar[N], sigma[N], out[N], cut[N];
  starmill_arm arm[3];
  MILL_AT_END(starmill_star_free_at) starmill_star *star = NULL;
  double low = INFINITY, high = 0;
  for (int a = 0; a < 3; a++) {
    check(library_arm, fx.library, a, &arm[a]);
    low = fmin(low, arm[a].min_wave);
    high = fmax(high, arm[a].max_wave);
  }
  for (int p = 0; p < N; p++) {
    wave[p] = low - 20 + (high - low + 40) * p / (N - 1);
    flux[p] = ivar[p] = 1;
    sigma[p] = 1.5f;
  }
  starmill_spectrum spectrum = {
      .n_pix = N, .wave = wave, .flux = flux, .ivar = ivar, .sigma = sigma};
  check(star_create, fx.library, &spectrum, 1, &star);
  assert_true(starmill_star_n_piece(star) >= 2);
  check(template, fx.library, &spectrum, fx.truth[0], out);
  assert_true(isnan(out[0]) && isnan(out[N - 1]));
  /* what the arm itself gives for its pixels */
  int first = 0, n = 0;
  while (!isfinite(out[first]))
    first++;
  while (wave[first + n] <= arm[0].max_wave && wave[first + n] < arm[1].min_wave)
    n++;
  spectrum.wave += first;
  spectrum.sigma += first;
  spectrum.n_pix = n;
  spectrum.name = arm[0].name;
  check(template, fx.library, &spectrum, fx.truth[0], cut);
  for (int p = 0; p < n - 40; p++) /* at its end the piece may go on */
    assert_close(cut[p], out[first + p], 1e-5 * fabs((double)cut[p]));
  /* a template is no star that minsn could refuse */
  MILL_AT_END(starmill_library_close_at) starmill_library *strict = open_with("minsn: 50\n");
  check(template, strict, &spectrum, fx.truth[0], out);
  assert_memory_equal(out, cut, (size_t)n * sizeof *out);
}

MILL_TEST(a_guess_is_where_a_fit_starts)
{
  double theta[5 * N_PAR], chisq[5];
  int n = 0;
  check(guess, fx.library, fx.star[0], 5, theta, chisq, &n);
  assert_true(n > 0 && n <= 5);
  for (int i = 1; i < n; i++)
    assert_true(chisq[i] >= chisq[i - 1]);
  MILL_AT_END(starmill_table_free_at) starmill_table *table = fit_of(fx.library, fx.star, 1);
  assert_true(number_of(table, "VRAD_CCF") == theta[0]);
}

MILL_TEST(wrong_arguments_are_named)
{
  starmill_library *other = NULL;
  starmill_spectrum spectrum[MADE_MAX_SEG];
  starmill_star *star = NULL;
  starmill_table *table = NULL;
  starmill_model *model = NULL;
  double m2ll, theta[N_PAR];
  refused(STARMILL_LIBRARY, "/tmp/no such file", library_open, "/tmp/no such file", NULL, &other);
  refused(STARMILL_CONFIG, "npolly", library_open, fx.path, "npolly: 3\n", &other);
  refused(STARMILL_CONFIG, "cuda+cpu", library_open, fx.path, "backend: cuda+cpu\n", &other);
  assert_null(other);
  const hid_t file = H5Fopen(fx.path, H5F_ACC_RDONLY, H5P_DEFAULT); /* old HDF5 shares the file */
  if (starmill_library_open(fx.path, NULL, &other, &fx.error) != STARMILL_OK)
    assert_non_null(strstr(fx.error.message, "this process has the file open"));
  starmill_library_close(other);
  H5Fclose(file);
  check(library_open, fx.path, config, &other);
  refused(STARMILL_USAGE, "another library", minus2loglike, other, fx.star[0], 1, fx.truth[0],
          &m2ll, NULL, NULL, NULL);
  starmill_library_close(other);
  spectra_of(&fx.made[0], spectrum);
  spectrum[0].n_diag = 0;
  refused(STARMILL_USAGE, "n_diag is 0", star_create, fx.library, spectrum, 1, &star);
  spectrum[0].n_diag = 4;
  refused(STARMILL_INPUT, "odd number", star_create, fx.library, spectrum, 1, &star);
  spectrum[0].exposure = -1;
  refused(STARMILL_USAGE, "exposure -1", star_create, fx.library, spectrum, 1, &star);
  spectrum[0].exposure = 0;
  spectrum[0].flux = NULL;
  refused(STARMILL_USAGE, "flux", star_create, fx.library, spectrum, 1, &star);
  refused(STARMILL_USAGE, "n is -1", star_create, fx.library, spectrum, -1, &star);
  refused(STARMILL_USAGE, "NULL", star_create, fx.library, NULL, 1, &star);
  assert_null(star);
  refused(STARMILL_USAGE, "NULL", minus2loglike, fx.library, fx.star[0], 1, NULL, &m2ll, NULL, NULL,
          NULL);
  memcpy(theta, fx.truth[0], sizeof theta);
  theta[0] = 2000;
  refused(STARMILL_RANGE, "max_vel", model_create, fx.library, fx.star[0], theta, &model);
  refused(STARMILL_INPUT, "fits", table_open, fx.path, &table);
  assert_int_equal(starmill_table_open("/tmp/no such file", &table, NULL), STARMILL_INPUT);
}

typedef struct worker {
  starmill_library *library;
  const starmill_star *star;
  const double *theta;
  int n, code;
  double *m2ll;
} worker;

static void *work(void *context)
{
  worker *w = context;
  for (int i = 0; i < w->n && w->code == 0; i++) {
    w->code = starmill_library_constrain(w->library, NULL, NULL, NULL, NULL);
    w->code |= starmill_minus2loglike(w->library, w->star, 1, w->theta + i * N_PAR, &w->m2ll[i],
                                      NULL, NULL, NULL, NULL);
  }
  return NULL;
}

MILL_TEST(threads_share_a_library)
{
  enum { N = 30 };
  double theta[N * N_PAR], m2ll[3][N], alone[N];
  pthread_t thread[3];
  worker w[3];
  points_of(5, N, theta);
  for (int t = 0; t < 3; t++) {
    w[t] = (worker){fx.library, fx.star[t % 2], theta, N, 0, m2ll[t]};
    assert_int_equal(pthread_create(&thread[t], NULL, work, &w[t]), 0);
  }
  for (int i = 0; i < 1000; i++)
    assert_int_equal(starmill_library_n_par(fx.library), N_PAR);
  for (int t = 0; t < 3; t++) {
    pthread_join(thread[t], NULL);
    assert_int_equal(w[t].code, 0);
    values_of(fx.library, fx.star[t % 2], N, theta, alone, NULL);
    assert_memory_equal(alone, m2ll[t], sizeof alone);
  }
}

/** Read VRAD by 160 different paths.  Each path adds a column to the table. */
static void *read_columns(void *table)
{
  char slash[81] = {0};
  starmill_column column;
  for (int i = 0; i < 160; i++) {
    char name[100];
    slash[i / 2] = '/';
    snprintf(name, sizeof name, "%s%sVRAD", i % 2 ? "fits" : "same", slash);
    if (starmill_table_column(table, name, &column, NULL) != STARMILL_OK)
      return NULL;
  }
  return table;
}

/** ./run tests --threads detects reads without the lock. */
MILL_TEST(threads_share_a_table)
{
  char path[80];
  const hsize_t n_row = 2;
  MILL_AT_END(starmill_table_free_at) starmill_table *table = NULL;
  starmill_column column;
  pthread_t thread;
  void *done = NULL;
  snprintf(path, sizeof path, "%s.table.h5", fx.path);
  const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t fits = H5Gcreate2(file, "fits", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(1, &n_row, NULL);
  H5Dclose(
      H5Dcreate2(fits, "VRAD", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Lcreate_hard(file, "fits", file, "same", H5P_DEFAULT, H5P_DEFAULT);
  H5Sclose(space);
  H5Gclose(fits);
  H5Fclose(file);
  check(table_open, path, &table);
  assert_int_equal(pthread_create(&thread, NULL, read_columns, table), 0);
  for (int i = 0; i < 1000; i++) {
    check(table_column_at, table, 0, &column);
    assert_string_equal(column.name, "VRAD");
  }
  pthread_join(thread, &done);
  assert_ptr_equal(done, table);
  unlink(path);
}

MILL_EACH_TEST_MAIN(set_up, tear_down)
