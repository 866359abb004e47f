/* SPDX-License-Identifier: BSD-3-Clause */
/** MAX_STAR stars of a made survey, and rows of up to four fits of them.  The includer defines
 *  SEED, MAX_STAR, and what made_survey.h asks for. */
#pragma once

#include "tests/fit/made_survey.h"

static made_star star[MAX_STAR];
static double truth[MAX_STAR][N_PAR];
static mill_fit_result result[4][MAX_STAR];

/** n stars with resolution matrix on even ones, and settings by default. */
static void make_stars(int n, double sn, double vsini)
{
  uint64_t random = SEED;
  made_settings(&lib, &set);
  for (int i = 0; i < n; i++) {
    made_star_init(&lib, 1 + i % 2, i % 2 ? 0.45 : 0.8, i % 2 == 0, &random, &star[i]);
    made_theta(&lib, 0.6, 300, vsini, &random, truth[i]);
    made_star_fill(&lib, truth[i], sn, 1, &random, &star[i]);
  }
}

/** Make the spectra of the first n stars again, after a change of `truth`. */
static inline void fill_again(int n, double sn)
{
  uint64_t random = SEED;
  for (int i = 0; i < n; i++)
    made_star_fill(&lib, truth[i], sn, 1, &random, &star[i]);
}

static void fit(int n, mill_fit_result *out)
{
  made_fit(&lib, &set, mill_backend_cpu(NULL), 8, 1, n, star, NULL, out, NULL);
}
