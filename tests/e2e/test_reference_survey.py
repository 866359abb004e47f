# SPDX-License-Identifier: BSD-3-Clause
"""The reference survey against rvspecfit's likelihoods and results, and the truth: as good or better."""

from common import *  # noqa: F403
import starmill as libstarmill
import validate_survey

WARN_HULL = 256  # kernels/data/result.h


_paths = {}


def survey(kind):
    """The survey fitted with a kind of rotation, once a script."""
    if kind not in _paths:
        data("sim/truth-dev.fits")
        data("sim/reference-rm.fits")
        # with all guess templates, as users have it
        lib, path, config = tmp("nnrm-default.h5"), tmp(f"{kind}.h5"), tmp(f"{kind}.yaml")
        if not os.path.exists(lib):
            emulators = [data(f"emulator/nnrm_desi_{arm}.h5") for arm in "brz"]
            done = starmill("library", "import", "--output", lib, *emulators)
            assert done.returncode == 0, done.stderr
        put(config, f"rotation_kernel: {kind}\n")
        done = starmill("fit", "--library", lib, "--output", path, "--config", config,
                        "--threads", 1, data("sim/coadd-dev.fits.gz"), timeout=2400)
        assert done.returncode == 0, done.stdout + done.stderr
        _paths[kind] = path
    found = validate_survey.Survey(_paths[kind], DATA)
    assert found.setting("rotation_kernel") == kind
    return found


class Likelihood(EndToEnd):
    """-2 ln L at 7 points of 24 stars; the first two of a star are near the truth."""

    def compare(self, kind, path, rotation, precision):
        """-2 ln L [star][point] by us, with rvspecfit's penalty, and by rvspecfit."""
        with open(data(path), encoding="utf-8") as f:
            points = json.load(f)["points"]
        lib = libstarmill.Library(library(kind), format="desi", rotation_kernel=rotation,
                                  precision=precision)
        file, found = lib.open(unpacked("sim/coadd-dev.fits.gz")), []
        for of in points:
            m = libstarmill.model(file[of["row"]], [of[name] for name in (
                "vel", "vsini", "teff", "logg", "feh", "alpha")])
            weight = 30 * sum(piece.wave.size for piece in m.pieces)
            # rvspecfit's distance to the hull is that of labels rounded to float32
            self.assertAlmostEqual(m.penalty / weight, of["outside"], delta=1e-5 * (1 + of["outside"]))
            self.assertEqual([*m.n_pix.values()], of["npix"])
            if rotation == "linear":
                # 3e-6: the data's float32; far away chi-square is large
                np.testing.assert_allclose([*m.chisq.values()], of["chisq"], atol=0.05, rtol=3e-6)
            found.append(m.m2ll + weight * of["outside"])
        return np.reshape(found, (24, 7)), np.reshape([of["minus2logl"] for of in points], (24, 7))

    def test_values_are_those_of_rvspecfit(self):
        """Within 1e-2 + 1e-7 |value| with float64 templates, 1e-3 more for float32 near the truth,
        where float32 is within 1e-3 of float64; of templates at the instrument's resolution one star
        at S/N 100 has 2.1e-3, float32 sums of the last layer.  For the smooth kind of rotation there
        is no reference: points of the linear kind are up to 90 above its minima, and 2e-3 was seen."""
        for kind, path, near in (("nn", "sim/likelihood-nn.json", 3e-3),
                                 ("nnrm", "sim/likelihood-rm.json", 1e-3)):
            wide, theirs = self.compare(kind, path, "linear", "float64")
            narrow, _ = self.compare(kind, path, "linear", "float32")
            limit = 1e-2 + 1e-7 * np.abs(theirs)
            for name, off in (("float64 - reference", wide - theirs), ("float32 - reference", narrow - theirs),
                              ("float32 - float64", narrow - wide)):
                print(kind, name, "largest at each point:", np.abs(off).max(axis=0))
            self.assertTrue((np.abs(wide - theirs) <= limit).all())
            self.assertTrue((np.abs(narrow - theirs) <= limit + 1e-3)[:, :2].all())
            self.assertLess(np.abs(narrow - wide)[:, :2].max(), near)
        smooth = [self.compare(kind, path, "spline", precision)[0] for precision in ("float64", "float32")]
        self.assertLess(np.abs(smooth[1] - smooth[0])[:, :2].max(), 2e-3)
        self.assertGreater(np.abs(smooth[0] - wide).max(), 1)


class ReferenceSurvey(EndToEnd):
    """With rvspecfit's kind of rotation, for which its likelihoods are."""

    def setUp(self):
        self.survey = survey("linear")
        self.assertEqual(self.survey.setting("optimizer"), "hybrid")

    def failed(self):
        """What does not meet its criterion."""
        return [name for name, _, good in validate_survey.criteria(self.survey) if not good]

    def test_criteria(self):
        found = validate_survey.criteria(self.survey)
        for name, value, good in found:
            with self.subTest(name):
                self.assertTrue(good, value)
        # STATUS, fitted and likelihood; five parameters over all stars and in
        # four bins, by two scatters
        self.assertEqual(len(found), 3 + 2 * 5 * (1 + 4))

    def test_likelihood_is_the_best_known(self):
        """The project's target: no worse than rvspecfit (+0.01) and the best known (+0.1)."""
        for column, limit in (("M2LL_FIT", 0.01), ("M2LL_BEST", 0.1)):
            excess = self.survey.excess(column)
            worst = list(self.survey.truth["TARGETID"][~(excess <= limit)])
            good = validate_survey.fraction_below(excess, limit)
            self.assertGreaterEqual(good, 0.995, f"above {column} + {limit}: {worst}")

    def test_shifts_in_resolution_matrices(self):
        """DESI since 2026 moves a fibre to its own barycentric velocity by its matrices' rows, by Fourier
        transforms of the diagonals as stored, so that ends of the arm mix: up to 0.8 km/s.

        VRAD follows by a tenth of its error.  Pixels are coarse for the templates, so that -2 ln L of the
        best spectra feels where lines fall on them.
        """
        with pyfits.open(data("sim/coadd-dev.fits.gz")) as hdus:
            for arm in "BRZ":
                wave = hdus[f"{arm}_WAVELENGTH"].data.astype(float)
                matrix = hdus[f"{arm}_RESOLUTION"].data
                half = matrix.shape[1] // 2
                phase = np.exp(-2j * np.pi * np.fft.fftfreq(matrix.shape[1])[:, None] *
                               0.8 / 299792.458 * wave / np.gradient(wave))
                for one in matrix:
                    rows = np.array([np.roll(row, k - half) for k, row in enumerate(one)])[::-1]
                    rows = np.fft.ifft(np.fft.fft(rows, axis=0) * phase, axis=0).real[::-1]
                    one[:] = [np.roll(row, half - k) for k, row in enumerate(rows)]
                hdus[f"{arm}_RESOLUTION"].data = matrix
            hdus.writeto(tmp("shifted.fits"), overwrite=True)
        self.fit("shifted.h5", "--config", tmp("linear.yaml"), tmp("shifted.fits"), lib=tmp("nnrm-default.h5"))
        moved, usual = read(self.path), read(_paths["linear"])
        off = np.abs(moved["VRAD"] - usual["VRAD"] - 0.8) / usual["VRAD_ERR"]
        worse = moved["M2LL"] - usual["M2LL"]
        print(f"VRAD off by {off.max():.3f} errors at most, -2 ln L by {np.median(worse):.3f}, "
              f"{np.abs(worse).max():.2f} at most")
        self.assertLess(off.max(), 0.1)
        self.assertLess(abs(np.median(worse)), 0.02)
        self.assertLess(np.abs(worse).max(), 2.5)
        # templates of 1.06 A, from which nothing can be taken out: the shift alone stays of a row
        miles, _ = miles_library("miles.h5", data("real/miles/miles_v9.1_packed.fits.gz"))
        put("miles.yaml", "arms: [{name: opt, min: 4500, max: 7300}]\n")
        found = []
        for name in tmp("shifted.fits"), data("sim/coadd-dev.fits.gz"):
            self.fit("broad.h5", "--overwrite", "--config", tmp("miles.yaml"), name, lib=miles)
            found.append(read(self.path))
        self.assertTrue((found[0]["FIT_INFO"] & 16 != 0).all())
        good = found[1]["SN_OPT"] > 20
        self.assertAlmostEqual(np.median((found[0]["VRAD"] - found[1]["VRAD"])[good]), 0.8, delta=0.1)

    def test_rows_are_whole(self):
        table = self.survey.fit
        self.assertWhole(table)
        # clean spectra of stars: labels at a hull are the only thing to warn of
        warned = table["RVS_WARN"] & ~WARN_HULL != 0
        self.assertEqual(list(table["TARGETID"][warned]), [])
        self.assertTrue((table["RVS_WARN"][table["HULL_DIST"] > 0] & WARN_HULL != 0).all())

    def test_errors_are_honest(self):
        """Pulls of velocities are near 1; the labels' also hold the emulator's error."""
        at = self.survey.bin(5, 100)
        for name, low, high in (("VRAD", 0.85, 1.15), ("TEFF", 0.8, 1.6), ("LOGG", 0.8, 1.6),
                                ("FEH", 0.8, 1.6), ("ALPHAFE", 0.8, 1.6)):
            ours, _ = validate_survey.pull(self.survey, name, at)
            self.assertGreater(len(ours), 150)
            width = validate_survey.half_width(ours)
            self.assertTrue(low < width < high, f"{name}: {width:.2f}")

    def test_the_criteria_can_fail(self):
        fit = self.survey.fit
        fit["M2LL"][:7] = self.survey.reference["M2LL_FIT"][:7] + 0.6
        self.assertEqual(len(self.failed()), 1)
        fit["M2LL"][:7] = np.nan
        self.assertEqual(len(self.failed()), 1)
        fit["M2LL"][:7] = self.survey.reference["M2LL_FIT"][:7]
        self.assertEqual(self.failed(), [])
        fit["FEH"] += 0.5 * (fit["FEH"] - self.survey.truth["FEH"])
        failed = self.failed()
        self.assertTrue(failed and all("FEH" in name for name in failed), failed)
        fit["STATUS"][3] = 0
        self.assertIn("every star has a STATUS", self.failed())


class SmoothRotation(EndToEnd):
    """With the default kind of rotation: v sin i is nearer to the truth, all else as good."""

    def setUp(self):
        self.smooth, self.linear = survey("spline"), survey("linear")

    def test_criteria(self):
        """The same as of the linear kind.

        The likelihoods are of different models, but that of the smooth one is higher, so it
        must not be worse than the reference by more than the criterion allows either.
        """
        for name, value, good in validate_survey.criteria(self.smooth):
            with self.subTest(name):
                self.assertTrue(good, value)

    def test_rotation_is_less_biased(self):
        """The median of fitted minus true above a pixel of the templates, 14 to 26 km/s.

        What is left (docs/science/validation.md) is not of the kernel; 9 to 18 stars a bin with a
        scatter of 1 to 5 km/s put the median off by a third of that, which is alike in both.
        """
        true = self.smooth.truth["VSINI"]
        for low, high in ((15, 30), (30, 60), (60, 101)):
            at = (true >= low) & (true < high)
            self.assertGreater(at.sum(), 8)
            smooth, linear = (np.median(s.fit["VSINI"][at] - true[at])
                              for s in (self.smooth, self.linear))
            rvspecfit = np.median(self.smooth.reference["VSINI"][at] - true[at])
            print(f"true v sin i {low}-{high}: smooth {smooth:+.2f}, linear {linear:+.2f}, "
                  f"rvspecfit {rvspecfit:+.2f} km/s")
            self.assertLess(abs(smooth), 0.6 * abs(linear))
            self.assertLess(abs(smooth), 0.6 * abs(rvspecfit))

    def test_rotating_stars_are_more_likely(self):
        """-2 ln L of the 38 stars above 15 km/s; 1 is an error of a parameter of one star."""
        at = self.smooth.truth["VSINI"] >= 15
        gain = self.linear.fit["M2LL"][at] - self.smooth.fit["M2LL"][at]
        print(f"-2 ln L lower by {gain.sum():.1f} for {at.sum()} stars, {gain.min():.2f} to "
              f"{gain.max():.2f} each")
        self.assertGreater(gain.sum(), 100)
        self.assertGreater(gain.min(), -2)

    def test_rows_are_whole(self):
        self.assertWhole(self.smooth.fit)
