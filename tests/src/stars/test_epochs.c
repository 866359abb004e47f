/* SPDX-License-Identifier: BSD-3-Clause */
/* Which exposures of a star are one epoch. */
#include "tests/mill_test.h"

#include "kernels/base/error.h"
#include "src/stars/epochs.h"

/* Spectra of several arms at one time are one epoch, in one file or many.  So are spectra of an
 * arm's neighbouring cameras.  A second spectrum of the same wavelengths is another epoch. */
MILL_TEST(arms_at_one_time_are_an_epoch)
{
  enum { N = 4 };
  static const struct {
    int exposure[N], arm[N];
    double mjd[N], first_aa[N];
    int epoch[N], night[N];
  } c[] = {{{0, 0, 1, 1}, {0, 1, 0, 1}, {9, 9, 9.3, 9.3}, {0}, {0, 0, 1, 1}, {0, 0, 0, 0}},
           {{0, 1, 2, 3}, {0, 1, 0, 1}, {9, 9, 9.6, 9.6}, {0}, {0, 0, 1, 1}, {0, 0, 1, 1}},
           {{0, 1, 2, 3}, {0, 0, 1, 1}, {9, 9, 9, 10}, {0}, {0, 1, 0, 2}, {0, 0, 0, 1}},
           {{0, 1, 2, 3}, {0, 0, 1, 1}, {9, 9, 9, 9}, {0}, {0, 1, 0, 1}, {0, 0, 0, 0}},
           {{0, 0, 1, 1}, {0, 1, 1, 0}, {9, 9, 9, 9}, {0}, {0, 0, 1, 1}, {0, 0, 0, 0}},
           {{0, 1, 2, 3}, {0}, {9, 9, 9, 9}, {0, 900, 1800, 400}, {0, 0, 0, 1}, {0, 0, 0, 0}},
           {{0, 1, 2, 3}, {0, 1, 0, 1}, {NAN, NAN, NAN, NAN}, {0}, {0, 1, 2, 3}, {0, 1, 2, 3}}};
  for (size_t i = 0; i < sizeof c / sizeof c[0]; i++)
    for (int by_night = 0; by_night < 2; by_night++) {
      mill_raw_segment segment[N] = {0};
      double wave_aa[N][3];
      mill_star star = {.segment = segment, .n_segment = N};
      for (int k = 0; k < N; k++) {
        for (int p = 0; p < 3; p++)
          wave_aa[k][p] = 4000 + c[i].first_aa[k] + 500 * p;
        segment[k] = (mill_raw_segment){.exposure = c[i].exposure[k],
                                        .arm = c[i].arm[k],
                                        .mjd = c[i].mjd[k],
                                        .n_pix = 3,
                                        .wave_aa = wave_aa[k]};
      }
      assert_ok(mill_star_number_epochs(&star, by_night));
      for (int k = 0; k < N; k++)
        assert_int_equal(segment[k].epoch, by_night ? c[i].night[k] : c[i].epoch[k]);
    }
}

MILL_TEST_MAIN(NULL, NULL)
