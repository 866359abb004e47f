/* SPDX-License-Identifier: BSD-3-Clause */
/** A library of libstarmill with three stars, and calls that must succeed or be refused. */
#pragma once

#include "libstarmill/include/starmill/starmill.h"
#include "tests/fit/made_star.h"
#include "tests/library_writer.h"

MILL_CLOSER(starmill_library, starmill_library_close)
MILL_CLOSER(starmill_star, starmill_star_free)
MILL_CLOSER(starmill_table, starmill_table_free)
MILL_CLOSER(starmill_model, starmill_model_free)

enum { N_PAR = 6, N_STAR = 3 };

static const char config[] = "npoly: 5\nmax_vsini: 300\nprecision: float64\n";

static struct {
  mill_library lib;
  mill_fit_settings set;
  char path[64];
  starmill_library *library;
  made_star made[N_STAR];
  double truth[N_STAR][N_PAR];
  starmill_star *star[N_STAR];
  starmill_error error;
} fx;

/* Call starmill_<function>, which works. */
#define check(function, ...)                                                                       \
  do {                                                                                             \
    if (starmill_##function(__VA_ARGS__, &fx.error) != STARMILL_OK)                                \
      fail_msg("%s", fx.error.message);                                                            \
  } while (0)

#define refused(expected, word, function, ...)                                                     \
  do {                                                                                             \
    assert_int_equal(starmill_##function(__VA_ARGS__, &fx.error), expected);                       \
    assert_int_equal(fx.error.code, expected);                                                     \
    if (!strstr(fx.error.message, word))                                                           \
      fail_msg("no '%s' in: %s", word, fx.error.message);                                          \
  } while (0)

static inline starmill_library *open_with(const char *keys)
{
  char text[sizeof config + 60];
  starmill_library *library = NULL;
  snprintf(text, sizeof text, "%s%s", config, keys);
  check(library_open, fx.path, text, &library);
  return library;
}

/** Convert a made star's segments to a caller's spectra; return their number. */
static inline int spectra_of(const made_star *made, starmill_spectrum *spectrum)
{
  for (int i = 0; i < made->n_segment; i++) {
    const made_segment *s = &made->segment[i];
    spectrum[i] = (starmill_spectrum){.name = fx.lib.arm[s->arm].name,
                                      .exposure = s->exposure,
                                      .n_pix = s->n_pix,
                                      .n_diag = s->n_diag,
                                      .wave = s->wave_aa,
                                      .flux = s->flux,
                                      .ivar = s->ivar,
                                      .mask = s->mask,
                                      .resolution = s->n_diag ? s->res : NULL,
                                      .sigma = s->with_sigma ? s->sigma_aa : NULL};
  }
  return made->n_segment;
}

static inline starmill_star *make_star(starmill_library *library, const made_star *made)
{
  starmill_spectrum spectrum[MADE_MAX_SEG];
  starmill_star *star = NULL;
  check(star_create, library, spectrum, spectra_of(made, spectrum), &star);
  return star;
}

/** Put the segments into libstarmill's order, one exposure after the other.  The guess adds them
 *  up in float32, so their order decides the last bits of a row. */
static inline void by_exposure(made_star *made)
{
  for (int i = 1; i < made->n_segment; i++)
    for (int k = i; k > 0 && made->segment[k - 1].exposure > made->segment[k].exposure; k--) {
      const made_segment swap = made->segment[k];
      made->segment[k] = made->segment[k - 1];
      made->segment[k - 1] = swap;
    }
}

/** -2 ln L of n points and, unless penalty is NULL, their penalties. */
static inline void values_of(starmill_library *library, const starmill_star *star, int n,
                             const double *theta, double *m2ll, double *penalty)
{
  check(minus2loglike, library, star, n, theta, m2ll, penalty, NULL, NULL);
}

static inline double m2ll_of(starmill_library *library, const starmill_star *star,
                             const double *theta)
{
  double m2ll = 0;
  values_of(library, star, 1, theta, &m2ll, NULL);
  return m2ll;
}

static inline starmill_table *fit_of(starmill_library *library, starmill_star *const *star, int n)
{
  starmill_table *table = NULL;
  check(fit, library, (const starmill_star *const *)star, n, NULL, 0, &table);
  return table;
}

static inline const void *column_of(starmill_table *table, const char *name)
{
  starmill_column column;
  check(table_column, table, name, &column);
  return column.data;
}

static inline double number_of(starmill_table *table, const char *name)
{
  return *(const double *)column_of(table, name);
}

static inline MILL_FIXTURE(set_up)
{
  uint64_t random = 4711;
  memset(&fx, 0, sizeof fx);
  assert_ok(test_library_make(4, 3, 5, &fx.lib));
  made_settings(&fx.lib, &fx.set);
  fx.set.precision = MILL_FLOAT64;
  snprintf(fx.path, sizeof fx.path, "/tmp/starmill-test-lib-%d.h5", (int)getpid());
  assert_ok(test_library_write(fx.path, &fx.lib));
  check(library_open, fx.path, config, &fx.library);
  for (int i = 0; i < N_STAR; i++) {
    made_star_init(&fx.lib, 1 + i % 2, 0.8, 1, &random, &fx.made[i]);
    made_theta(&fx.lib, 0.5, 150, 60, &random, fx.truth[i]);
    made_star_fill(&fx.lib, fx.truth[i], 40, 1, &random, &fx.made[i]);
    by_exposure(&fx.made[i]);
    fx.made[i].segment[0].mask[20] = 8;
    fx.made[i].segment[0].ivar[40] = 0;
    fx.star[i] = make_star(fx.library, &fx.made[i]);
  }
  return 0;
}

static inline MILL_FIXTURE(tear_down)
{
  starmill_library_close(fx.library); /* before its stars, which is allowed */
  for (int i = 0; i < N_STAR; i++)
    starmill_star_free(fx.star[i]);
  mill_library_clear(&fx.lib);
  unlink(fx.path);
  return 0;
}

static inline void points_of(uint64_t seed, int n, double *theta)
{
  for (int i = 0; i < n; i++)
    made_theta(&fx.lib, 0.9, 300, 150, &seed, theta + i * N_PAR);
}
