# SPDX-License-Identifier: BSD-3-Clause
"""A few stars, fitted by one rank and by two, have the same rows bit for bit, near the truth.  For
daily work (./run tests --fast); needs no test data."""

from base import *  # noqa: F403

N_STAR = 4


class Small(ProgramTest):
    def test_one_and_two_ranks(self):
        library, stars = coarse_survey(N_STAR)
        self.fit("one.h5", "--threads", 1, stars, lib=library)
        one, catalog = read(self.path), read(self.path, "catalog")
        self.assertWhole(one)
        self.assertEqual(list(one["STATUS"]), [FITTED] * N_STAR)
        truth = pyfits.getdata(os.path.join(os.path.dirname(stars), "truth.fits"), "TRUTH")
        np.testing.assert_array_equal(one["TARGETID"], truth["TARGETID"])
        self.assertLess(np.abs((one["VRAD"] - truth["VRAD"]) / one["VRAD_ERR"]).max(), 6)
        self.fit("two.h5", "--threads", 1, stars, lib=library, ranks=2)
        self.assertEqual(differing(read(self.path), one), [])
        self.assertEqual(differing(read(self.path, "catalog"), catalog), [])
