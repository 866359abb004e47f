# SPDX-License-Identifier: BSD-3-Clause
"""Bad input: one clear line, a STATUS or an entry of /catalog/files, and nothing else is lost."""

from scipy.interpolate import CubicSpline

from common import *  # noqa: F403
from starmill.templates import emulate, library_file


class BadFiles(EndToEnd):
    """Files that are bad or odd; test_hostile_files.py has many of them among good files."""

    @classmethod
    def setUpClass(cls):
        cls.good = cut("good.fits", [3, 100])
        run("fit", "--library", library(), "--output", tmp("good.h5"), cls.good)
        cls.expected = read(tmp("good.h5"))

    def test_one_bad_file_alone(self):
        done = self.fit("one.h5", self.good, tmp("nowhere.fits"), status=3)
        self.assertOneLine(done, "nowhere.fits", "No such file", status=3)
        self.assertEqual(differing(read(self.path), self.expected), [])
        # the finished run says the same again
        again = self.fit("one.h5", self.good, tmp("nowhere.fits"), status=3)
        self.assertIn("finished already", again.stdout)

    def test_cut_after_a_whole_arm(self):
        # only the columns of SCORES distinguish this cut file from a file of one arm
        done = self.fit("few9.h5", few_hdus(self.good, 9))
        self.assertIn("few9.fits", done.stderr)
        self.assertIn("truncated", done.stderr)
        self.assertEqual(list(read(self.path)["STATUS"]), [FITTED] * 2)

    def test_a_resolution_matrix_that_moves_light_is_told_of(self):
        def roll(hdus):
            hdus["R_RESOLUTION"].data = np.roll(hdus["R_RESOLUTION"].data, 2, axis=1)
        for name, edit, n in ("rolled", roll, 1), ("straight", None, 0):
            done = self.fit(f"{name}.h5", cut(f"{name}.fits", [3, 100], edit))
            self.assertEqual(done.stderr.count("moves light by 2.0 pixels"), n, done.stderr)

    def test_resolution_that_is_not_finite_costs_pixels(self):
        def last(table):
            return {name: values[1:] for name, values in table.items()}

        def spoil(*places):
            def edit(hdus):
                for arm, index in places:
                    hdus[f"{arm}_RESOLUTION"].data[index] = np.nan
            return edit
        # RESOLUTION stores diagonals: its (5, j) is in row j of the matrix, its (3, j) in row j - 2
        some = cut("some.fits", [3, 100], spoil(("B", (0, 5, 700)), ("Z", (0, 3, 900))))
        no_ivar = cut("no-ivar.fits", [3, 100])
        with pyfits.open(no_ivar, "update") as hdus:
            hdus["B_IVAR"].data[0, 700] = hdus["Z_IVAR"].data[0, 898] = 0
        self.fit("no-ivar.h5", no_ivar)
        expected = read(self.path)
        self.fit("some.h5", some)
        found = read(self.path)
        self.assertEqual(list(found["STATUS"]), [FITTED] * 2)
        self.assertEqual(differing(last(found), last(self.expected)), [])
        for column in ("NPIX_B", "NPIX_R", "NPIX_Z"):
            self.assertEqual(list(found[column]), list(expected[column]), column)
        # not the same bits: the flux of such a pixel is not interpolated
        for column in ("VRAD", "TEFF", "LOGG", "FEH"):
            step = abs(found[column] - expected[column]) / expected[column + "_ERR"]
            self.assertLess(step[0], 0.05, column)
        # an arm without a single row of numbers has no good pixel
        done = self.fit("arm.h5", cut("arm.fits", [3, 100], spoil(("B", 0))))
        found = read(self.path)
        self.assertEqual(list(found["STATUS"]), [FITTED] * 2, done.stderr)
        self.assertEqual(found["NPIX_B"][0], 0)
        self.assertEqual(differing(last(found), last(self.expected)), [])

    def test_columns_that_a_coadd_left_out(self):
        def mask(hdus, is_left_out=False):
            for arm in "BRZ":
                hdus[arm + "_MASK"].data[0, 300:1800:30] = 1
                if is_left_out:
                    hdus[arm + "_RESOLUTION"].data[0, :, 300:1800:30] = 0
        self.fit("masked.h5", cut("masked.fits", [3, 100], mask))
        expected = read(self.path)
        done = self.fit("left.h5", cut("left.fits", [3, 100], lambda hdus: mask(hdus, True)))
        self.assertIn("LSF_SCALED       1", done.stdout)
        found = read(self.path)
        self.assertEqual(list(found["FIT_INFO"] - expected["FIT_INFO"]), [16384, 0])
        for column in ("VRAD", "TEFF", "LOGG", "FEH"):
            step = abs(found[column] - expected[column]) / expected[column + "_ERR"]
            self.assertLess(step[0], 0.1, column)
            self.assertEqual(step[1], 0, column)
        # with both shipped libraries the second meets rows that the first has scaled
        done = run("fit", "--output", tmp("two.h5"), tmp("left.fits"))
        self.assertIn("LSF_SCALED       1", done.stdout)

    def test_pixels_even_in_log10_of_wavelength(self):
        templates = library_file.read(library())
        truth = {"TEFF": 5800, "LOGG": 4.2, "FEH": -0.5, "VSINI": 0, "VRAD": 0}

        def resample(hdus):
            u = np.linspace(-5, 5, 101)[:, None]
            for i, arm in enumerate("BRZ"):
                first, last = np.log10(hdus[arm + "_WAVELENGTH"].data[[0, -1]])
                wave = 10 ** np.arange(first, last, 1e-4)
                flux = CubicSpline(templates.arm[i].wave_aa,
                                   emulate.flux(templates, i, [5800, 4.2, -0.5, 0.2])[0])
                lack = np.sqrt((2.1e-4 * wave) ** 2 - 0.25)  # sigma of 0.91 pixels
                flux = np.average(flux(wave + u * lack), axis=0, weights=np.exp(-u[:, 0] ** 2 / 2))
                row = np.exp(-0.5 * (np.arange(-5, 6) * 1e-4 * np.log(10) / 2.1e-4) ** 2)
                for name, values in (
                        ("WAVELENGTH", wave), ("FLUX", flux[None]), ("MASK", 0 * flux[None]),
                        ("IVAR", (100 / flux[None]) ** 2),
                        ("RESOLUTION", np.repeat(row[None, :, None] / row.sum(), len(wave), 2))):
                    old = hdus[f"{arm}_{name}"]
                    old.data = values.astype(old.data.dtype)
        self.fit("log10.h5", cut("log10.fits", [3], resample))
        found = read(self.path)
        # Spectra have no noise, but resample() convolves unlike the program.  Labels are off by up
        # to 0.9 of their errors at S/N 100, and the velocity by 0.02 of its error.
        for column, value in truth.items():
            most = (0.1 if column == "VRAD" else 1) * found[column + "_ERR"][0]
            self.assertLess(abs(found[column][0] - value), most, column)

    def test_texts_of_the_catalog(self):
        names = ["GAIA-DR3", "a reference catalog of ours"]

        def rename(hdus):
            columns = [c for c in hdus["FIBERMAP"].data.columns if c.name != "REF_CAT"]
            columns.append(pyfits.Column("REF_CAT", "27A", array=names))
            hdus["FIBERMAP"] = pyfits.BinTableHDU.from_columns(columns, name="FIBERMAP")
        done = self.fit("texts.h5", cut("texts.fits", [3, 100], rename))
        kept = [text.decode() for text in read(self.path, "catalog")["REF_CAT"]]
        self.assertEqual(kept, [name[:15] for name in names])
        self.assertRegex(done.stderr, f"texts.fits: REF_CAT '{names[1]}' is too long: only its first 15 bytes")
        self.assertNotIn(names[0], done.stderr)

    def test_all_files_are_bad(self):
        models = ("--models", tmp("none-models.h5"))
        done = self.fit("none.h5", *models, tmp("x.fits"), tmp("y.fits"), ranks=2, status=3)
        self.assertIn("2 of 2 files", done.stdout)
        self.assertEqual(len(read(self.path)["STATUS"]), 0)
        # a run with the right files or other settings replaces this result, as it has no rows
        self.fit("none.h5", *models, "--minsn", 1e6, self.good, status=3)
        self.fit("none.h5", *models, self.good, says=["none.h5", "no fitted row: it is replaced"])
        self.assertEqual(differing(read(self.path), self.expected), [])
        self.fit("none.h5", *models, "--npoly", 9, self.good, status=4)

    def test_spectra_without_fibermap(self):
        for lacking, says in ((["FIBERMAP"], "TARGETID is taken from SCORES"),
                              (["FIBERMAP", "SCORES"], "no TARGETID")):
            done = self.fit("bare.h5", "--overwrite", cut("bare.fits", [3, 100], without(*lacking)))
            self.assertRegex(done.stderr, f"bare.fits: has no FIBERMAP: .*{says}")
            self.assertEqual(done.stderr.count("has no FIBERMAP"), 1)
            table, catalog = read(self.path), read(self.path, "catalog")
            if len(lacking) == 1:
                self.assertEqual(differing(table, self.expected), [])
            self.assertEqual(table["VRAD"].tobytes(), self.expected["VRAD"].tobytes())
            self.assertEqual(list(catalog["IDENTIFIER"]), [b"bare.fits:0", b"bare.fits:1"])
        self.assertEqual(list(table["TARGETID"]), [-1, -1])


class BadArms(EndToEnd):
    """A bad arm costs that arm, or the row if no other is left."""

    def fit_shifted(self, out, arms):
        def shift(hdus):
            for arm in arms:
                hdus[arm + "_WAVELENGTH"].data += 5000
        status = 3 if arms == ARMS else 0  # nothing could be fitted
        done = self.fit(out + ".h5", cut(out + ".fits", [3, 100], shift), status=status)
        names = ", ".join(arm.lower() for arm in arms)
        self.assertOneLine(done, out + ".fits", "cannot fit", "arm " + names, status=status)
        return read(self.path)

    def test_arm_outside_the_library(self):
        table = self.fit_shifted("one-arm-out", ["Z"])
        self.assertEqual(list(table["STATUS"]), [FITTED] * 2)
        self.assertTrue(np.isnan(table["CHISQ_Z"]).all())
        self.assertTrue((table["NPIX_Z"] == 0).all())
        self.assertWhole(table)
        self.assertEqual(list(self.fit_shifted("all-arms-out", ARMS)["STATUS"]), [OUTSIDE] * 2)

    def test_no_resolution_matrix(self):
        stars = cut("no-matrix.fits", [3, 100], without(*(arm + "_RESOLUTION" for arm in ARMS)))
        done = self.fit("no-matrix.h5", stars, status=3)
        self.assertOneLine(done, "no-matrix.fits", "arm b, r, z", "resolution matrix", status=3)
        self.assertEqual(list(read(self.path)["STATUS"]), [NO_RESOLUTION] * 2)
        self.assertIn("NO_RESOLUTION", done.stdout)
        self.fit("no-matrix-false.h5", "--lsf", "off", stars)
        self.assertEqual(list(read(self.path)["STATUS"]), [FITTED] * 2)
        # templates at the instrument's resolution need none
        self.fit("no-matrix-nn.h5", stars, lib=library("nn"))
        self.assertEqual(list(read(self.path)["STATUS"]), [FITTED] * 2)

    def test_subset_of_arms(self):
        self.fit("rz.h5", cut("rz.fits", [3], without(*("B_" + hdu for hdu in HDUS))))
        table = read(self.path)
        self.assertEqual(list(table["STATUS"]), [FITTED])
        put("arms.yaml", "arms: [r, z]\n")
        self.fit("rz-config.h5", "--config", tmp("arms.yaml"), cut("brz.fits", [3]))
        self.assertEqual(differing(read(self.path), table), [])


class BadPixels(EndToEnd):
    def test_bad_pixels_are_left_out(self):
        """NaN, infinite, zero and negative ivar, masked: all alike, none touches the fit."""
        bad = slice(500, 560)
        # Infinite ivar and bad flux enter the medians that give S/N and the errors of bad pixels,
        # as in rvspecfit.  So only the first three cases have the same bits.
        cases = (("R_IVAR", 0, True), ("R_IVAR", -1, True), ("R_IVAR", np.nan, True),
                 ("R_IVAR", np.inf, False), ("R_FLUX", np.nan, False), ("R_FLUX", -np.inf, False),
                 ("R_FLUX", 3e38, False), ("R_FLUX", -1e15, False))

        def spoil(hdus):
            hdus["R_MASK"].data[0, bad] |= 4
            for row, (name, value, _) in enumerate(cases, 1):
                hdus[name].data[row, bad] = value
        self.fit("bad-pixels.h5", cut("bad-pixels.fits", [100] * 9, spoil))
        table = read(self.path)
        self.assertEqual(list(table["STATUS"]), [FITTED] * 9)
        for row, (name, value, exact) in enumerate(cases, 1):
            with self.subTest(name=name, value=value):
                for column, values in table.items():
                    if exact or column in ("RVS_WARN", "NPIX_TOT"):
                        self.assertEqual(values[row].tobytes(), values[0].tobytes(), column)
                np.testing.assert_allclose(*table["CHISQ_TOT"][[row, 0]], rtol=1e-5)
                for label in ("VRAD", "TEFF", "LOGG", "FEH", "ALPHAFE"):
                    shift = abs(table[label][row] - table[label][0]) / table[label + "_ERR"][0]
                    self.assertLess(shift, 0.02, label)
