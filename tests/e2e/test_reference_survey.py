"""The reference survey against rvspecfit's results and the truth: as good or better."""

from common import *  # noqa: F403

sys.path.insert(0, os.path.join(SOURCE, "tools"))
import validate_survey  # noqa: E402

WARN_HULL = 256  # kernels/result.h


class ReferenceSurvey(EndToEnd):
    @classmethod
    def setUpClass(cls):
        data("sim/truth-dev.fits")
        data("sim/reference-rm.fits")
        # with all guess templates, as users have it
        lib = tmp("nnrm-default.h5")
        emulators = [data(f"emulator/nnrm_desi_{arm}.h5") for arm in "brz"]
        done = starmill("library", "import", "--output", lib, *emulators)
        assert done.returncode == 0, done.stderr
        cls.path = tmp("survey.h5")
        done = starmill("fit", "--library", lib, "--output", cls.path, "--threads", 1,
                        data("sim/coadd-dev.fits.gz"), ranks=2, timeout=2400)
        assert done.returncode == 0, done.stdout + done.stderr

    def setUp(self):
        self.survey = validate_survey.Survey(self.path, DATA)
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


if __name__ == "__main__":
    main()
