# SPDX-License-Identifier: BSD-3-Clause
"""Fits that start from a table: which stars do, what comes out, and what is refused."""

from base import *  # noqa: F403
from starmill.surveys import generic

INFO_SECOND_START, INFO_GIVEN_START = 2, 64
N_STAR = 12
LABELS = ("TEFF", "LOGG", "FEH", "ALPHAFE")
PARAMETERS = ("VRAD", "VSINI") + LABELS
LIBRARY, SURVEY = coarse_survey(N_STAR)
TRUTH = os.path.join(os.path.dirname(SURVEY), "truth.fits")


TRUE = np.array(pyfits.getdata(TRUTH, "TRUTH"))


def save(name, columns):
    """A FITS table of {name: values}; its path."""
    bintable({key: ("2D", values) if np.ndim(values) == 2 else values for key, values in columns.items()}).writeto(
        tmp(name), overwrite=True)
    return tmp(name)


def table(name, edit=None):
    """The truth as a table of its own, after edit(columns)."""
    columns = {key: np.array(TRUE[key]) for key in ("TARGETID",) + PARAMETERS}
    if edit:
        edit(columns)
    return save(name, columns)


class FitStart(ProgramTest):
    def run_fit(self, out, *args, **how):
        """Fit the stars, give /fits."""
        self.done = self.fit(out, "--optimizer", "levenberg-marquardt", *args, SURVEY, lib=LIBRARY, **how)
        return read(self.path)

    @classmethod
    def setUpClass(cls):
        cls.guessed = cls().run_fit("guessed.h5")
        cls.straight = cls().run_fit("straight.h5", "--start", table("straight.fits"))

    def assertSameSolution(self, a, b):
        """Two fits of the same stars from different starts.

        The polish ends where it promises to gain less than 1e-3 (docs/science/numerics.md), so each is
        within about that of its minimum: 0.01 leaves room for one that promised too little.  A
        parameter may be off by the root of that in its errors, 0.1.
        """
        np.testing.assert_allclose(a["M2LL"], b["M2LL"], rtol=0, atol=0.01)
        for name in ("VRAD",) + LABELS:
            error = b[name + "_ERR"]
            self.assertTrue((error > 0).all(), name)
            self.assertLess(np.max(np.abs(a[name] - b[name]) / error), 0.1, name)

    def test_the_truth_gives_the_same_solution(self):
        guessed, given = self.guessed, self.run_fit("given.h5", "--start", TRUTH)
        self.assertIn(f"all {N_STAR} rows start from {TRUTH}", self.done.stderr)
        self.assertTrue((given["STATUS"] == FITTED).all())
        self.assertTrue((given["FIT_INFO"] & INFO_GIVEN_START).all())
        self.assertFalse((given["FIT_INFO"] & INFO_SECOND_START).any())
        self.assertFalse((guessed["FIT_INFO"] & INFO_GIVEN_START).any())
        self.assertSameSolution(given, guessed)
        # the guess ran all the same, and had farther to go
        np.testing.assert_array_equal(given["VRAD_CCF"], guessed["VRAD_CCF"])
        self.assertLess(given["NEVAL"].sum(), guessed["NEVAL"].sum())

    def test_a_result_as_start_is_where_fits_begin(self):
        # one evaluation of the start, which promises nothing more, one profile, one for the end
        first = shutil.copy(tmp("guessed.h5"), tmp("first.h5"))
        # the same values in a FITS table are the same start, so the same run
        self.run_fit("same.h5", "--start", first)
        values = read(first)
        self.run_fit("same.h5", "--start", save("same.fits", {key: values[key] for key in (
            "TARGETID",) + PARAMETERS}))
        self.assertIn("finished already", self.done.stdout)
        with h5py.File(first, "r+") as f:  # as if it was stopped before it came to the last row
            f["fits/STATUS"][-1] = 0
            f["provenance/FINISHED"][...] = 0
            f["fits/VRAD"][0] += 1.0  # and was damaged
            f["catalog/TARGET_RA"][1] += 1.0  # here too
        again = self.run_fit("again.h5", "--start", first)
        self.assertSameSolution(again, self.guessed)
        self.assertEqual(np.median(again["NJAC"]), 1)
        # with the profile, the models and a round for the velocities of the arms
        self.assertEqual(np.median(again["NEVAL"]), 4)
        given = again["FIT_INFO"] & INFO_GIVEN_START > 0
        self.assertTrue(given[2:-1].all() and not given[:2].any() and not given[-1])
        self.run_fit("first.h5", status=4)
        self.assertIn("CATALOG_CRC", self.done.stderr)

    def test_the_first_table_with_the_columns_counts(self):
        other = table("other.fits", lambda c: c["VRAD"].fill(99.0))
        with pyfits.open(tmp("straight.fits")) as one, pyfits.open(other) as two:
            pyfits.HDUList([pyfits.PrimaryHDU(), pyfits.ImageHDU(np.zeros(2)), pyfits.BinTableHDU.from_columns(
                one[1].columns[:2], name="FIBERMAP"), one[1].copy(), two[1].copy()]
            ).writeto(tmp("several.fits"))
        self.run_fit("straight.h5", "--start", tmp("several.fits"))
        self.assertIn("finished already", self.done.stdout)

    def test_order_and_case_mean_nothing(self):
        def shuffle(columns):
            order = np.random.default_rng(1).permutation(N_STAR)
            for name in list(columns):
                columns[name] = columns[name][order]
            columns["alpha"] = columns.pop("ALPHAFE")
            columns["vRad"] = columns.pop("VRAD")
        shuffled = self.run_fit("shuffled.h5", "--start", table("shuffled.fits", shuffle))
        self.assertEqual(differing(self.straight, shuffled), [])
        # the same values, so the same run: it is finished
        done = run("fit", "--library", LIBRARY, "--optimizer", "levenberg-marquardt",
                   "--output", self.path, "--start", tmp("straight.fits"), SURVEY)
        self.assertIn("finished already", done.stdout)

    def test_stars_without_values_are_guessed(self):
        missing, bad = [3, 9], [5, 10]

        def spoil(columns):
            columns["TEFF"][bad[0]] = np.nan
            columns["VRAD"][bad[1]] = np.inf
            columns["TARGETID"][missing] = [1, 2]
        given = self.run_fit("part.h5", "--start", table("part.fits", spoil), ranks=3)
        self.assertOneLine(self.done, f"{N_STAR - 4} of {N_STAR} rows start from",
                           "2 not found, 2 without finite values", status=0)
        plain = np.zeros(N_STAR, bool)
        plain[missing + bad] = True
        np.testing.assert_array_equal(given["FIT_INFO"] & INFO_GIVEN_START == 0, plain)
        # such a star's row is the one of a fit without a table
        for name in given:
            self.assertEqual(given[name][plain].tobytes(), self.guessed[name][plain].tobytes(), name)

    def test_of_several_rows_the_first_finite_one_counts(self):
        def repeat(columns):
            for name in list(columns):
                values = columns[name]
                columns[name] = np.concatenate([values[:1], values, values])
            columns["LOGG"][0] = np.nan
            columns["VRAD"][N_STAR + 1:] += 500.0
        twice = self.run_fit("twice.h5", "--start", table("twice.fits", repeat))
        self.assertOneLine(self.done, f"{N_STAR + 1} rows of", "repeat a star", status=0)
        self.assertEqual(differing(self.straight, twice), [])

    def test_values_beyond_the_limits_are_brought_within(self):
        def extreme(columns):
            columns["VSINI"][:] = [-5.0, 1e5] * (N_STAR // 2)
            columns["TEFF"][:2] = [1.0, 1e9]
            columns["VRAD"][:] = np.clip(columns["VRAD"], -50, 50)
        def within(columns):
            extreme(columns)
            columns["VSINI"] = np.clip(columns["VSINI"], 0, 500)
            with h5py.File(LIBRARY) as f:
                teff = f["labels/label0"].attrs
                columns["TEFF"] = np.clip(columns["TEFF"], teff["min"], teff["max"])
        outside = self.run_fit("outside.h5", "--start", table("outside.fits", extreme))
        inside = self.run_fit("inside.h5", "--start", table("inside.fits", within))
        self.assertEqual(differing(outside, inside), [])
        self.assertTrue((outside["STATUS"] == FITTED).all())

    def test_fixed_parameters_need_no_column(self):
        put("fixed.yaml", "fix_param: [{param: vsini, value: 3}, {param: alpha, value: 0.1}]\n")
        def drop(columns):
            del columns["VSINI"], columns["ALPHAFE"]
        args = ("--config", tmp("fixed.yaml"))
        given = self.run_fit("fixed.h5", *args, "--start", table("fixed.fits", drop))
        self.assertTrue((given["VSINI"] == 3).all() and (given["ALPHAFE"] == 0.1).all())
        guessed = self.run_fit("fixed-guessed.h5", *args)
        np.testing.assert_allclose(given["M2LL"], guessed["M2LL"], rtol=0, atol=0.01)

    def test_every_optimizer_takes_it(self):
        for optimizer in ("hybrid", "nelder-mead"):
            with self.subTest(optimizer):
                self.fit(f"{optimizer}.h5", "--optimizer", optimizer, "--start", TRUTH,
                         SURVEY, lib=LIBRARY)
                given = read(self.path)
                self.assertTrue((given["FIT_INFO"] & INFO_GIVEN_START).all())
                self.assertSameSolution(given, self.guessed)

    def test_other_values_are_another_run(self):
        path = tmp("straight.h5")
        args = ("fit", "--library", LIBRARY, "--output", path, "--optimizer",
                "levenberg-marquardt", SURVEY)
        def move(columns):
            columns["VRAD"][4] += 1e-6
        for start in (("--start", table("moved.fits", move)), ()):
            done = starmill(*args, *start)
            self.assertOneLine(done, path, "start", status=4)
        # nothing happened to it
        run(*args, "--start", tmp("straight.fits"))

    def test_wrong_tables_are_refused(self):
        def foreign(columns):
            columns["TARGETID"] += 10**15
        def nothing(columns):
            columns["FEH"][:] = np.nan
        def narrow(columns):
            del columns["VSINI"], columns["LOGG"]
        def nameless(columns):
            del columns["TARGETID"]

        def wide(columns):
            columns["VRAD"] = np.stack([columns["VRAD"]] * 2, axis=1)

        def empty(columns):
            for name in columns:
                columns[name] = columns[name][:0]

        def without(name):
            path = shutil.copy(tmp("whole.h5"), tmp(os.path.basename(name) + ".h5"))
            with h5py.File(path, "r+") as f:
                del f[name]
            return path

        put("text.txt", "TARGETID VRAD\n")
        put("hdf5.h5", b"\x89HDF\r\n\x1a\n and no more")
        pyfits.PrimaryHDU().writeto(tmp("primary.fits"))
        self.fit("whole.h5", "--quiet", "--minsn", 1e6, SURVEY, lib=LIBRARY, status=3)
        huge = without("fits/STATUS")
        with h5py.File(huge, "r+") as f:  # no room in the file, and 16 GB were it believed
            f.create_dataset("fits/STATUS", (2 * 10**9,), "i8", chunks=(1,))
        n = N_STAR
        for start, parts in (
            (table("foreign.fits", foreign), ("none of the", f"{n} not found")),
            (table("nothing.fits", nothing), ("none of the", f"{n} without finite")),
            (table("narrow.fits", narrow), ("lacks VSINI LOGG",)),
            (SURVEY, ("lacks VRAD VSINI TEFF LOGG FEH ALPHAFE",)),
            (LIBRARY, ("not a result of starmill",)),
            (tmp("text.txt"), ("start:",)),
            (tmp("missing.fits"), ("cannot be opened",)),
            (tmp("primary.fits"), ("no table",)),
            (table("nameless.fits", nameless), ("lacks TARGETID",)),
            (table("wide.fits", wide), ("column VRAD must hold one number",)),
            (table("empty.fits", empty), ("no rows",)),
            (tmp("hdf5.h5"), ("HDF5",)),
            (huge, ("/fits/STATUS claims 16000000000 bytes",)),
            *((without(name), (name,)) for name in ("fits/TARGETID", "fits/ALPHAFE", "fits/FIT_INFO",
                                                    "catalog/OBJECT")),
        ):
            for ranks in (0, 2) if start == LIBRARY else (0,):
                with self.subTest(start, ranks=ranks):
                    done = starmill("fit", "--library", LIBRARY, "--output", tmp("no.h5"),
                                    "--start", start, SURVEY, ranks=ranks)
                    self.assertOneLine(done, start, *parts, status=2)
                    self.assertFalse(os.path.exists(tmp("no.h5")))


class StartByName(ProgramTest):
    """Spectra without TARGETID are found by name."""

    NAMES = ("star one", "star two", "star three")
    ARGS = ("--optimizer", "levenberg-marquardt", "--config", tmp("generic.yaml"))

    @classmethod
    def setUpClass(cls):
        put("generic.yaml", "lsf: off\nwave_mask: []\n")
        with pyfits.open(SURVEY) as file:
            hdus = {hdu.name: hdu.data for hdu in file if hdu.data is not None}
        cls.input = tmp("generic.fits")
        generic.write(cls.input, [
            {"NAME": star, "ARM": arm, "WAVELENGTH": hdus[arm + "_WAVELENGTH"].astype(float),
             "FLUX": hdus[arm + "_FLUX"][row], "IVAR": hdus[arm + "_IVAR"][row],
             "MASK": hdus[arm + "_MASK"][row].astype("i4")}
            for row, star in enumerate(cls.NAMES) for arm in "BRZ"
        ], "vacuum")

    def fit(self, out, *args, **how):
        return super().fit(out, *self.ARGS, *args, self.input, lib=LIBRARY, **how)

    def columns(self, rows):
        return {key: np.array(TRUE[key])[rows] for key in PARAMETERS}

    def test_a_table_with_names(self):
        # two of the three, in another order
        start = save("names.fits", dict(self.columns([2, 0]),
                                        OBJECT=[self.NAMES[2], self.NAMES[0]]))
        done = self.fit("names.h5", "--start", start)
        self.assertOneLine(done, "2 of 3 rows", "1 not found", status=0)
        fits = read(self.path)
        self.assertTrue((read(self.path, "catalog")["TARGETID"] == -1).all())
        np.testing.assert_array_equal(fits["FIT_INFO"] & INFO_GIVEN_START > 0, [True, False, True])

    def test_a_result_of_the_same_stars(self):
        self.fit("plain.h5")
        first = self.path
        self.fit("by-name.h5", "--start", first)
        once, again = read(first), read(self.path)
        self.assertTrue((again["FIT_INFO"] & INFO_GIVEN_START > 0).all())
        np.testing.assert_allclose(again["M2LL"], once["M2LL"], rtol=0, atol=0.01)
        self.assertTrue((again["NEVAL"] < once["NEVAL"]).all())

    def test_a_table_without_names_is_refused(self):
        start = save("numbers.fits", dict(self.columns([0, 1, 2]), TARGETID=[1, 2, 3]))
        done = starmill("fit", "--library", LIBRARY, "--output", tmp("no.h5"), *self.ARGS,
                        "--start", start, self.input)
        self.assertOneLine(done, start, "none of the 3 rows", status=2)
