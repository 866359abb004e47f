"""2,000 stars simulated from an emulator and fitted with it: the errors are honest.

The library is the coarse demo library: how well its emulator follows the line
model does not matter here, since the stars are made from the emulator itself.
"""

from base import *  # noqa: F403

N_STAR = 2000
PARAMETERS = ("VRAD", "VSINI", "TEFF", "LOGG", "FEH", "ALPHAFE")
SN_BINS = ((10, 20), (20, 40), (40, 100))
RESOLVED_KM_S = 40  # v sin i of a rotation that DESI's resolution shows at any of these S/N
OUTLIER = 5


def half_width(x):
    """Half the width of the central 68.27 %: sigma of a Gaussian, deaf to outliers."""
    low, high = np.percentile(x, [15.865, 84.135])
    return 0.5 * (high - low)


class Pulls(ProgramTest):
    @classmethod
    def setUpClass(cls):
        library = tmp("library.h5")
        done = starmill("library", "demo", "--coarse", "--output", library, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        done = starmill("simulate", "--output", tmp("survey"), "--source", "emulator", "--library",
                        library, "--stars", N_STAR, "--sn", "10,100", "--vsini", "2,150",
                        "--seed", 20261121, ranks=2, timeout=1200)
        assert done.returncode == 0, done.stdout + done.stderr
        path = tmp("pulls.h5")
        done = starmill("fit", "--library", library, "--output", path, "--threads", 1,
                        "--catalog", tmp("survey/catalog.txt"), ranks=2, timeout=1200)
        assert done.returncode == 0, done.stdout + done.stderr
        cls.fit = read(path)
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
        """0.8 to 1.2 over all and in every bin of S/N.

        The width of n Gaussian pulls scatters by 1.2 / sqrt(2 n): 0.06 for the 200
        resolved rotators of a bin, 0.03 for its 650 stars; 0.8 to 1.2 is what the
        survey asks for.  Medians: 0.2 sigma is 4 times the error of the median
        (1.25 / sqrt(n)) in the smallest group and 4 in the others.
        """
        for parameter in PARAMETERS:
            for low, high in ((10, 101),) + SN_BINS:
                pull = self.pull[parameter][self.stars(parameter, low, high)]
                with self.subTest(parameter=parameter, low=low, high=high, n=len(pull)):
                    self.assertGreaterEqual(len(pull), 120)
                    width, median = half_width(pull), np.median(pull)
                    print(f"{parameter:8s} S/N {low:3d}-{high:3d}: {len(pull):4d} stars, "
                          f"median {median:+.2f}, width {width:.2f}")
                    self.assertTrue(0.8 <= width <= 1.2, f"width {width:.3f}")
                    self.assertLess(abs(median), 0.35 if len(pull) < 300 else 0.2)

    def test_outliers_are_rare(self):
        """Beyond 5 sigma: none of 2,000 for Gaussian errors; a wrong basin would be there."""
        for parameter in PARAMETERS:
            pull = self.pull[parameter][self.stars(parameter, 10, 101)]
            far = int((np.abs(pull) > OUTLIER).sum())
            self.assertLessEqual(far, N_STAR // 1000, parameter)


if __name__ == "__main__":
    main()
