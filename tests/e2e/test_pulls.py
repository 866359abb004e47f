# SPDX-License-Identifier: BSD-3-Clause
"""Fits of simulated stars with the library that they are drawn from have right minima and errors.

1,000 stars are from the small library, which has no model error, and 1,000 from the shipped one,
each with a draw of its model error."""

from base import *  # noqa: F403
import survey_stats
from survey_stats import half_width

N_STAR = 1000
PARAMETERS = ("VRAD", "VSINI", "TEFF", "LOGG", "FEH", "ALPHAFE")
SN_BINS = ((10, 20), (20, 40), (40, 100))
RESOLVED_KM_S = 40  # v sin i of a rotation that DESI's resolution shows at any of these S/N
OUTLIER = 5
WARN_HULL = 256  # kernels/data/result.h
INFO_GIVEN_START = 64


class Survey(survey_stats.Survey):
    """A simulated survey, its fit, and the pulls of its stars."""

    def __init__(self, name, library):
        self.library, self.folder = library, tmp(name)
        run("simulate", "--output", self.folder, "--library", library, "--stars", N_STAR, "--sn",
            "10,100", "--vsini", "2,150", "--seed", 20261121, "--threads", 1, "--quiet",
            timeout=1200)
        self.truth_path = os.path.join(self.folder, "truth.fits")
        self.fitted_to(name + ".h5")
        super().__init__(tmp(name + ".h5"), self.truth_path)
        np.testing.assert_array_equal(self.fit["TARGETID"], self.truth["TARGETID"])
        self.pull = {p: self.delta(p) / self.fit[p + "_ERR"] for p in PARAMETERS}

    def fitted_to(self, out, *more):
        run("fit", "--library", self.library, "--output", tmp(out), "--threads", 1, "--quiet",
            "--catalog", os.path.join(self.folder, "catalog.txt"), *more, timeout=1200)
        return read(tmp(out))

    def stars(self, parameter, low=10, high=101):
        """Mask of stars by S/N, without stars beyond the hulls (non-Gaussian errors)."""
        chosen = (self.sn >= low) & (self.sn < high) & (self.fit["RVS_WARN"] & WARN_HULL == 0)
        if parameter == "VSINI":
            chosen &= self.true["VSINI"] >= RESOLVED_KM_S
        return chosen


class Pulls(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.small = Survey("small", coarse_library())
        cls.shipped = Survey("shipped", os.path.join(SOURCE, "libraries", "fgk.h5"))

    def test_every_star_is_fitted(self):
        for survey in (self.small, self.shipped):
            self.assertTrue((survey.fit["STATUS"] == FITTED).all())
            self.assertGreaterEqual(survey.sn.min(), 10)

    def test_widths(self):
        """The width is 1 within four of its standard errors, 0.96 / sqrt(n) for n pulls, plus 0.05
        for the hulls' edges.  The median is 0 within five of its errors, 1.25 / sqrt(n)."""
        for name, survey in (("none", self.small), ("as fitted", self.shipped)):
            for parameter in PARAMETERS:
                for low, high in ((10, 101), *SN_BINS):
                    pull = survey.pull[parameter][survey.stars(parameter, low, high)]
                    n = len(pull)
                    with self.subTest(error=name, parameter=parameter, low=low, high=high, n=n):
                        self.assertGreaterEqual(n, 50)
                        width, median = half_width(pull), np.median(pull)
                        print(f"model error {name:9s} {parameter:8s} S/N {low:3d}-{high:3d}: "
                              f"{n:4d} stars, median {median:+.2f}, width {width:.2f}")
                        self.assertLess(abs(width - 1), 0.05 + 4 * 0.96 / np.sqrt(n))
                        self.assertLess(abs(median), 5 * 1.25 / np.sqrt(n))

    def test_no_wrong_minimum(self):
        """Fits from the truth reach no lower minimum than fits from the guess.

        99.5 % must agree within 0.1 in -2 ln L, a tenth of what one error of a parameter costs.
        The library has no model error, whose covariance would differ between two solutions."""
        fit, other = self.small.fit, self.small.fitted_to("from-truth.h5", "--start",
                                                          self.small.truth_path)
        np.testing.assert_array_equal(other["TARGETID"], fit["TARGETID"])
        self.assertTrue((other["FIT_INFO"] & INFO_GIVEN_START != 0).all())
        excess = fit["M2LL"] - other["M2LL"]
        print(f"-2 ln L, from the guess minus from the truth: {excess.min():.4f} to "
              f"{excess.max():.4f}, {int((excess > 0.01).sum())} above 0.01")
        for name, above in (("guess", excess), ("truth", -excess)):
            worse = list(fit["TARGETID"][above > 0.1])
            self.assertLessEqual(len(worse), N_STAR // 200, f"from the {name}: {worse}")

    def test_outliers_are_rare(self):
        """Gaussian errors give none of 1,000 pulls beyond 5; a wrong minimum would give some."""
        for survey in (self.small, self.shipped):
            for parameter in PARAMETERS:
                pull = survey.pull[parameter][survey.stars(parameter)]
                self.assertLessEqual(int((np.abs(pull) > OUTLIER).sum()), N_STAR // 500, parameter)
