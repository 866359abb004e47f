"""2,000 stars simulated from an emulator and fitted with it: right minima, honest errors.

The library is the coarse demo library: how well its emulator follows the line
model does not matter here, since the stars are made from the emulator itself.
"""

from base import *  # noqa: F403

N_STAR = 2000
PARAMETERS = ("VRAD", "VSINI", "TEFF", "LOGG", "FEH", "ALPHAFE")
SN_BINS = ((10, 20), (20, 40), (40, 100))
RESOLVED_KM_S = 40  # v sin i of a rotation that DESI's resolution shows at any of these S/N
OUTLIER = 5
INFO_GIVEN_START = 64  # kernels/data/result.h


def half_width(x):
    """Half the width of the central 68.27 %: sigma of a Gaussian, deaf to outliers."""
    low, high = np.percentile(x, [15.865, 84.135])
    return 0.5 * (high - low)


class Pulls(ProgramTest):
    @classmethod
    def setUpClass(cls):
        library = coarse_library()
        done = starmill("simulate", "--output", tmp("survey"), "--source", "emulator", "--library",
                        library, "--stars", N_STAR, "--sn", "10,100", "--vsini", "2,150",
                        "--seed", 20261121, "--threads", 1, timeout=1200)
        assert done.returncode == 0, done.stdout + done.stderr
        path = tmp("pulls.h5")
        done = starmill("fit", "--library", library, "--output", path, "--threads", 1,
                        "--catalog", tmp("survey/catalog.txt"), timeout=1200)
        assert done.returncode == 0, done.stdout + done.stderr
        cls.fit = read(path)
        cls.path, cls.truth_path = path, tmp("survey/truth.fits")
        cls.library = library
        truth = pyfits.getdata(tmp("survey/truth.fits"), "TRUTH")
        np.testing.assert_array_equal(cls.fit["TARGETID"], truth["TARGETID"])
        cls.truth = {name: np.asarray(truth[name], dtype=float) for name in PARAMETERS + ("SN",)}
        cls.pull = {p: (cls.fit[p] - cls.truth[p]) / cls.fit[p + "_ERR"] for p in PARAMETERS}

    def stars(self, parameter, low, high):
        sn = self.truth["SN"]
        chosen = (sn >= low) & (sn < high)
        if parameter == "VSINI":
            chosen &= self.truth["VSINI"] >= RESOLVED_KM_S
        return chosen

    def test_every_star_is_fitted(self):
        self.assertEqual(len(self.fit["STATUS"]), N_STAR)
        self.assertTrue((self.fit["STATUS"] == FITTED).all())
        self.assertGreaterEqual(self.truth["SN"].min(), 10)

    def test_widths(self):
        """0.88 to 1.12 over all S/N, 0.8 to 1.2 in every bin.

        The project's target is 0.9 to 1.1 away from the hulls' edges (docs/science/validation.md);
        here all stars count, and the edges make labels' widths smaller.  The width of n
        Gaussian pulls scatters by 0.96 / sqrt(n): 0.02 for all 2,000 stars, 0.04 for the 580
        resolved rotators, 0.04 and 0.07 in a bin.  Medians: 0.1 sigma, the target, is 3.5
        times the error of the median (1.25 / sqrt(n)) of all stars; 0.2 is 4 times that of a
        bin, 0.35 that of the rotators of one.
        """
        for parameter in PARAMETERS:
            for low, high in ((10, 101),) + SN_BINS:
                pull = self.pull[parameter][self.stars(parameter, low, high)]
                with self.subTest(parameter=parameter, low=low, high=high, n=len(pull)):
                    self.assertGreaterEqual(len(pull), 120)
                    width, median = half_width(pull), np.median(pull)
                    print(f"{parameter:8s} S/N {low:3d}-{high:3d}: {len(pull):4d} stars, "
                          f"median {median:+.2f}, width {width:.2f}")
                    reach = 0.12 if high == 101 else 0.2
                    self.assertLess(abs(width - 1), reach, f"width {width:.3f}")
                    limit = 0.35 if len(pull) < 300 else 0.2
                    if high == 101:
                        limit = 0.1 if len(pull) == N_STAR else 0.15
                    self.assertLess(abs(median), limit)

    def test_no_wrong_minimum(self):
        """From the truth no star comes to a lower minimum than from the guess.

        99.5 % within 0.1 is the project's target for -2 ln L; 0.1 is a tenth of what one
        error of a parameter costs.
        """
        path = tmp("from-truth.h5")
        done = starmill("fit", "--library", self.library, "--output", path, "--threads", 1,
                        "--start", self.truth_path, "--catalog", tmp("survey/catalog.txt"),
                        timeout=1200)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        other = read(path)
        np.testing.assert_array_equal(other["TARGETID"], self.fit["TARGETID"])
        self.assertTrue((other["FIT_INFO"] & INFO_GIVEN_START != 0).all())
        excess = self.fit["M2LL"] - other["M2LL"]
        print(f"-2 ln L, from the guess minus from the truth: {excess.min():.4f} to "
              f"{excess.max():.4f}, {int((excess > 0.01).sum())} above 0.01")
        for name, above in (("guess", excess), ("truth", -excess)):
            worse = list(self.fit["TARGETID"][above > 0.1])
            self.assertLessEqual(len(worse), N_STAR // 200, f"from the {name}: {worse}")

    def test_outliers_are_rare(self):
        """Beyond 5 sigma: none of 2,000 for Gaussian errors; a wrong basin would be there."""
        for parameter in PARAMETERS:
            pull = self.pull[parameter][self.stars(parameter, 10, 101)]
            far = int((np.abs(pull) > OUTLIER).sum())
            self.assertLessEqual(far, N_STAR // 1000, parameter)


if __name__ == "__main__":
    main()
