# SPDX-License-Identifier: BSD-3-Clause
"""Tables of starts and of priors: the stars that they apply to, what they do to a solution, what
is written, and what is refused."""

from base import *  # noqa: F403
from starmill.surveys import generic

INFO_SECOND_START, INFO_GIVEN_START = 2, 64
N_STAR = 16
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
    """Write the true parameters as a table, after edit(columns); its path."""
    columns = {key: np.array(TRUE[key]) for key in ("TARGETID",) + PARAMETERS}
    if edit:
        edit(columns)
    return save(name, columns)


class FitStart(ProgramTest):
    def run_fit(self, out, *args, **how):
        self.done = self.fit(out, "--optimizer", "levenberg-marquardt", *args, SURVEY, lib=LIBRARY, **how)
        return read(self.path)

    @classmethod
    def setUpClass(cls):
        cls.guessed = cls().run_fit("guessed.h5")
        cls.straight = cls().run_fit("straight.h5", "--start", table("straight.fits"))

    def assertSameSolution(self, a, b):
        """Check two fits of the same stars from different starts.

        The polish ends when it expects to gain less than 1e-3 in -2 ln L
        (docs/science/numerics.md).  The limit of 0.01 allows for a wrong expectation.  A change
        of 0.01 in -2 ln L moves a parameter by its root, 0.1 errors."""
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
        # the guess ran in both fits; fits from the truth take fewer evaluations
        np.testing.assert_array_equal(given["VRAD_CCF"], guessed["VRAD_CCF"])
        self.assertLess(given["NEVAL"].sum(), guessed["NEVAL"].sum())

    def test_a_result_as_start_is_where_fits_begin(self):
        first = shutil.copy(tmp("guessed.h5"), tmp("first.h5"))
        # the same values in a FITS table are the same start and continue the same run
        self.run_fit("same.h5", "--start", first)
        values = read(first)
        self.run_fit("same.h5", "--start", save("same.fits", {key: values[key] for key in (
            "TARGETID",) + PARAMETERS}))
        self.assertIn("finished already", self.done.stdout)
        unfinish(first, -1)
        with h5py.File(first, "r+") as f:
            f["fits/VRAD"][0] += 1.0  # and was damaged
            f["catalog/TARGET_RA"][1] += 1.0  # here too
        again = self.run_fit("again.h5", "--start", first)
        self.assertSameSolution(again, self.guessed)
        self.assertEqual(np.median(again["NJAC"]), 1)
        # evaluations: start (a step promises no gain), velocity profile, models, velocities of arms
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
        missing, bad = [3, 9], [5, 10, 6, 7, 11]

        def spoil(columns):
            columns["TEFF"][bad[0]] = np.nan
            columns["VRAD"][bad[1]] = np.inf
            columns["TEFF"][bad[2]], columns["VSINI"][bad[3]] = 1e6, 1e5
            for name in PARAMETERS:
                columns[name][bad[4]] = -9999
            columns["TARGETID"][missing] = [1, 2]
        given = self.run_fit("part.h5", "--start", table("part.fits", spoil), ranks=3)
        self.assertOneLine(self.done, f"{N_STAR - 7} of {N_STAR} rows start from",
                           "2 not found, 5 without finite values within the limits", status=0)
        plain = np.zeros(N_STAR, bool)
        plain[missing + bad] = True
        np.testing.assert_array_equal(given["FIT_INFO"] & INFO_GIVEN_START == 0, plain)
        # a star without a usable start has the same row as in a fit without a table
        self.assertEqual(differing(given, self.guessed, plain), [])

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

    def test_a_result_beyond_the_limits_is_not_used(self):
        put("slow.yaml", "max_vsini: 1\n")
        given, plain = (self.run_fit(f"slow-{i}.h5", "--config", tmp("slow.yaml"), *start)
                        for i, start in enumerate((("--start", tmp("guessed.h5")), ())))
        fast = self.guessed["VSINI"] > 1
        self.assertTrue(0 < fast.sum() < N_STAR)
        np.testing.assert_array_equal(given["FIT_INFO"] & INFO_GIVEN_START == 0, fast)
        # a fast star's row equals its row in a fit without a table
        self.assertEqual(differing(given, plain, fast), [])

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
            self.assertOneLine(starmill(*args, *start), path, "start", status=4)
        # nothing happened to it
        run(*args, "--start", tmp("straight.fits"))

    def test_wrong_tables_are_refused(self):
        def narrow(columns):
            del columns["VSINI"], columns["LOGG"]

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
        with h5py.File(huge, "r+") as f:  # more rows than the file can hold: 16 GB if believed
            f.create_dataset("fits/STATUS", (2 * 10**9,), "i8", chunks=(1,))
        twice = content(table("twice.fits", lambda c: c.update(TEFF_2=c["TEFF"])))
        for start, parts in (
            (table("foreign.fits", lambda c: c.update(TARGETID=c["TARGETID"] + 10**15)),
             ("none of the", f"{N_STAR} not found")),
            (table("nothing.fits", lambda c: c["FEH"].fill(np.nan)),
             ("none of the", f"{N_STAR} without finite")),
            (table("narrow.fits", narrow), ("lacks VSINI LOGG",)),
            (SURVEY, ("lacks VRAD VSINI TEFF LOGG FEH ALPHAFE",)),
            (LIBRARY, ("not a result of starmill",)),
            (tmp("text.txt"), ("start:",)),
            (tmp("missing.fits"), ("cannot be opened",)),
            (tmp("primary.fits"), ("no table",)),
            (table("nameless.fits", lambda c: c.pop("TARGETID")), ("lacks TARGETID",)),
            (put("twice.fits", twice.replace(b"TEFF_2", b"TEFF  ")), ("two columns have the name TEFF",)),
            (table("wide.fits", lambda c: c.update(VRAD=np.stack([c["VRAD"]] * 2, axis=1))),
             ("column VRAD must hold one number",)),
            (table("empty.fits", lambda c: c.update({k: v[:0] for k, v in c.items()})), ("no rows",)),
            (tmp("hdf5.h5"), ("HDF5",)),
            (huge, ("/fits/STATUS claims 16000000000 bytes",)),
            *((without(name), (name,)) for name in ("fits/TARGETID", "fits/ALPHAFE", "fits/FIT_INFO",
                                                    "catalog/OBJECT"))):
            for ranks in (0, 2) if start == LIBRARY else (0,):
                with self.subTest(start, ranks=ranks):
                    self.ends(2, "fit", "--library", LIBRARY, "--output", tmp("no.h5"), "--start",
                              start, SURVEY, ranks=ranks, says=[start, *parts])
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
            for row, star in enumerate(cls.NAMES) for arm in "BRZ"], "vacuum")

    def fit(self, out, *args, **how):
        return super().fit(out, *self.ARGS, *args, self.input, lib=LIBRARY, **how)

    def columns(self, rows):
        return {key: np.array(TRUE[key])[rows] for key in PARAMETERS}

    def test_a_table_with_names(self):
        # two of the three, in another order
        for column, names in (("OBJECT", [self.NAMES[2], self.NAMES[0]]),
                              ("IDENTIFIER", ["generic.fits:6", "generic.fits:0"])):
            start = save("names.fits", {**self.columns([2, 0]), column: names})
            self.fit(f"{column}.h5", "--start", start, says=["2 of 3 rows", "1 not found"])
            fits = read(self.path)
            self.assertTrue((read(self.path, "catalog")["TARGETID"] == -1).all())
            np.testing.assert_array_equal(fits["FIT_INFO"] & INFO_GIVEN_START > 0, [True, False, True])
            priors = save("priors.fits", {column: names, "TEFF": [5000.0] * 2, "TEFF_ERR": [100.0] * 2})
            self.assertIn("2 rows have priors", self.fit(f"{column}-priors.h5", "--prior-table", priors).stdout)

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
        self.ends(2, "fit", "--library", LIBRARY, "--output", tmp("no.h5"), *self.ARGS, "--start",
                  start, self.input, says=[start, "none of the 3 rows"])
        # a part of a job array accepts a table whose stars are in other parts
        priors = save("numbers-priors.fits", {"TARGETID": [1, 2, 3], "TEFF": [5000.0] * 3,
                                              "TEFF_ERR": [100.0] * 3})
        self.fit("no-table.h5")
        whole = read(self.path)
        for option, path, says in (("--start", start, "0 of 3 rows start from"),
                                   ("--prior-table", priors, "0 rows have priors")):
            done = self.fit("part-of-array.h5", "--overwrite", option, path, env={"STARMILL_PART": "1"})
            self.assertIn(says, done.stdout + done.stderr)
            self.assertEqual(differing(read(self.path), whole), [])


INFO_PRIOR, NEAR_HULL = 1024, 256
# priors of the brightest stars: how many errors each lies off the solution without prior
PRIORS = {"TEFF": 1}, {"LOGG": -1}, {"VRAD": 1}, {"TEFF": 1, "FEH": -1, "VRAD": -1}


def covariance(fits, row):
    full = np.zeros((len(PARAMETERS),) * 2)
    full[np.triu_indices(len(PARAMETERS))] = fits["COVAR"][row]
    return full + np.triu(full, 1).T


class FitPriors(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.free = cls.one_fit("free.h5")
        cls.ids = cls.free["TARGETID"]
        bright = np.argsort(cls.free["SN_B"] - 1e9 * (cls.free["FIT_INFO"] & NEAR_HULL))[::-1]
        cls.priors = dict(zip(bright, PRIORS))
        # one of the five stars has no prior; TARGETID 7 is no star here
        cls.columns = {"TARGETID": np.append(cls.ids[bright[:5]][::-1], 7)}
        for name in ("TEFF", "LOGG", "FEH", "VRAD"):
            value, error = np.full((2, 6), np.nan)
            for k, (star, shift) in enumerate(cls.priors.items()):
                if name in shift:
                    error[4 - k] = cls.free[name + "_ERR"][star]
                    value[4 - k] = cls.free[name][star] + shift[name] * error[4 - k]
            cls.columns.update({name: value, name + "_ERR": error})
        cls.table = cls.save("priors.fits")
        cls.pulled = cls.one_fit("pulled.h5", "--prior-table", cls.table)
        cls.said = cls.done.stdout

    @classmethod
    def save(cls, name, edit=None):
        """The table of priors after edit(columns): its path."""
        columns = {key: value.copy() for key, value in cls.columns.items()}
        if edit:
            edit(columns)
        pyfits.BinTableHDU.from_columns([
            pyfits.Column(key, {"f": "D", "i": "K"}.get(value.dtype.kind, "64A"), array=value,
                          null=-9999 if value.dtype.kind == "i" else None)
            for key, value in columns.items()]).writeto(tmp(name), overwrite=True)
        return tmp(name)

    @classmethod
    def one_fit(cls, out, *args):
        cls.done = run("fit", "--library", LIBRARY, "--output", tmp(out), *args, SURVEY)
        return read(tmp(out))

    def test_a_prior_moves_the_solution_as_the_algebra_says(self):
        self.assertTrue((self.free["STATUS"] == FITTED).all())
        for star, shift in self.priors.items():
            c = covariance(self.free, star)
            free = np.flatnonzero(np.diag(c))
            data = np.linalg.inv(c[np.ix_(free, free)])
            x, p, weight = np.zeros((3, len(PARAMETERS)))
            for j, name in enumerate(PARAMETERS):
                x[j] = self.free[name][star]
                if name in shift:
                    weight[j] = self.free[name + "_ERR"][star] ** -2
                    p[j] = x[j] + shift[name] * weight[j] ** -0.5
            x, p, weight = x[free], p[free], np.diag(weight[free])
            both = np.linalg.inv(data + weight)
            expected, error = both @ (data @ x + weight @ p), np.sqrt(np.diag(both))
            for k, j in enumerate(free):
                with self.subTest(star=star, name=PARAMETERS[j]):
                    if PARAMETERS[j] in shift:  # it moves at all
                        self.assertGreater(abs(expected[k] - x[k]), 0.3 * error[k])
                    if PARAMETERS[j] != "VSINI":  # whose likelihood is no parabola
                        self.assertLess(abs(self.pulled[PARAMETERS[j]][star] - expected[k]), 0.1 * error[k])
                        self.assertAlmostEqual(self.pulled[PARAMETERS[j] + "_ERR"][star] / error[k], 1, delta=0.1)

    def test_faint_stars_start_near_their_priors(self):
        """At S/N 0.3 to 1.5 noise has deeper minima hundreds of km/s away."""
        run("simulate", "--stars", 12, "--library", LIBRARY, "--sn", "0.3,1.5", "--seed", 3,
            "--pathological", 0, "--quiet", "--output", tmp("faint"))
        truth = pyfits.getdata(tmp("faint/truth.fits"))
        def near(columns):
            columns.clear()
            columns.update(TARGETID=truth["TARGETID"], VRAD=truth["VRAD"], VRAD_ERR=np.full(12, 5.0))
        run("fit", "--library", LIBRARY, "--output", tmp("faint.h5"), "--prior-table",
            self.save("near.fits", near), *glob.glob(tmp("faint/coadd*")))
        # faint spectra: the prior decides, and velocities are within three of its sigmas
        self.assertLess(abs(read(tmp("faint.h5"), "fits")["VRAD"] - truth["VRAD"]).max(), 15)

    def test_rows_without_priors_keep_their_bits(self):
        has = np.isin(np.arange(N_STAR), list(self.priors))
        np.testing.assert_array_equal(self.pulled["FIT_INFO"] & INFO_PRIOR > 0, has)
        self.assertEqual(differing(self.free, self.pulled, ~has), [])
        self.assertIn(f"4 rows have priors in {self.table}, {N_STAR - 4} have none", self.said)

    def test_hdf5_by_identifier_is_the_same(self):
        identifier = dict(zip(self.ids, read(tmp("free.h5"), "catalog")["IDENTIFIER"]))
        with h5py.File(tmp("priors.h5"), "w") as f:
            f["identifier"] = np.array([identifier.get(i, b"").ljust(64) for i in self.columns["TARGETID"]])
            f["TARGETID"] = np.full(6, 7)  # does not count
            for name, value in self.columns.items():
                if name != "TARGETID":
                    f[name.lower()] = value
        again = self.one_fit("hdf5.h5", "--prior-table", tmp("priors.h5"))
        self.assertEqual(differing(self.pulled, again), [])
        # matched by position; refused if two rows are at one position
        catalog = read(tmp("free.h5"), "catalog")
        at = [list(self.ids).index(i) if i in self.ids else -1 for i in self.columns["TARGETID"]]
        def by_place(columns):
            del columns["TARGETID"]
            off = np.resize([0.9, -0.9], 6) / 3600  # less than an arcsec to either side
            columns.update(RA=catalog["TARGET_RA"][at], DEC=catalog["TARGET_DEC"][at] + off)
            columns["DEC"][5] += 1
        def twice(columns):
            by_place(columns)
            for name in "RA", "DEC":
                columns[name][5] = columns[name][2]
        again = self.one_fit("place.h5", "--prior-table", self.save("place.fits", by_place))
        self.assertEqual(differing(self.pulled, again), [])
        self.assertRefused(self.save("twice.fits", twice), "rows 2 and 5", "within 1 arcsec", f"{catalog['TARGET_RA'][at[2]]:.6f}")
        # files of one name have the same identifiers
        os.makedirs(tmp("night"))
        other = shutil.copy(SURVEY, tmp("night"))
        self.assertRefused(tmp("priors.h5"), "IDENTIFIER", other, SURVEY, args=(other,))
        ids = self.ids[0], read(tmp("free.h5"), "catalog")["IDENTIFIER"][0].decode()
        for by_name in 0, 1:  # as a list of rows does
            done = run("fit", "--library", LIBRARY, "--plan", "--object", ids[by_name], "--output", tmp("no.h5"), SURVEY,
                       other)
            self.assertEqual("have the same name" in done.stderr, by_name)
        self.one_fit("two.h5", "--prior-table", self.table, other)
        self.assertIn("8 rows have priors", self.done.stdout)

    def test_another_table_is_another_run(self):
        def shuffle(columns):
            columns["teff"] = columns.pop("TEFF")
            columns["SOURCE_ID"] = np.arange(6)
            for name in columns:
                columns[name] = columns[name][::-1]
        def move(columns):
            columns["TEFF_ERR"][4] += 1
        self.one_fit("pulled.h5", "--prior-table", self.save("same.fits", shuffle))
        self.assertIn("finished already", FitPriors.done.stdout)
        for args in ("--prior-table", self.save("moved.fits", move)), ():
            done = starmill("fit", "--library", LIBRARY, "--output", tmp("pulled.h5"), *args, SURVEY)
            self.assertOneLine(done, "pulled.h5", "prior_table", status=4)

    def test_a_sample_has_the_priors_of_its_fit(self):
        def tight(columns):
            columns["TEFF"] += 30
            columns["TEFF_ERR"][:] = 1
        star = next(iter(self.priors))
        table = self.save("tight.fits", tight)
        fit = self.one_fit("tight.h5", "--prior-table", table)
        args = ("sample", "--fit", tmp("tight.h5"), "--library", LIBRARY, "--object", self.ids[star],
                "--ess", 100, SURVEY)
        run(*args, "--output", tmp("post.h5"))
        post = read(tmp("post.h5"))
        self.assertTrue((post["FIT_INFO"] & INFO_PRIOR).all())
        self.assertLess(abs(post["POST_MEAN"][0][2] - fit["TEFF"][star]), 1)
        self.save("tight.fits")
        self.assertOneLine(starmill(*args, "--output", tmp("no.h5")), table, "has changed since", status=2)
        done = starmill(*args, "--output", tmp("post.h5"), "--prior-table", table)
        self.assertOneLine(done, "post.h5", "prior_table", status=4)

    def test_wrong_tables_are_refused(self):
        def edit(**columns):
            def change(table):
                for name, value in columns.items():
                    if value is None:
                        del table[name]
                    else:
                        table[name] = np.broadcast_to(value, 6)
            return change
        put("fixed.yaml", "fix_param: [{param: teff, value: 5000}]\n")
        put("text.txt", "TARGETID TEFF TEFF_ERR\n")
        nan = np.nan
        for k, (change, parts) in enumerate((
            (edit(VMIC=1.0, VMIC_ERR=1.0), ("VMIC and VMIC_ERR", "VRAD VSINI TEFF LOGG FEH ALPHAFE")),
            (edit(TEFF_ERR=None), ("TEFF but no column TEFF_ERR",)),
            (edit(LOGG=None), ("LOGG_ERR but no column LOGG;",)),
            (edit(alpha=0.0, alpha_err=1.0, ALPHAFE=0.0, ALPHAFE_ERR=1.0), ("of one parameter",)),
            (edit(TEFF=5000.0, TEFF_ERR=[1.0, 2, nan, 0, nan, 1]),
             (f"TEFF of TARGETID {self.columns['TARGETID'][3]} is 5000 +- 0",)),
            (edit(TEFF=np.inf, TEFF_ERR=1.0), ("inf",)),
            (edit(TARGETID=[3, 4, 3, 5, 6, 7]), ("two rows of TARGETID 3",)),
            (edit(TARGETID=None), ("no column TARGETID, OBJECT or IDENTIFIER",)),
            (edit(**{name: None for name in self.columns if name != "TARGETID"}), ("no pair of columns",)),
            (edit(TEFF=np.array("hot"), TEFF_ERR=1.0), ("TEFF",)))):
            with self.subTest(parts):
                self.assertRefused(self.save(f"wrong{k}.fits", change), *parts)
        # the result's unit in any spelling, or no unit
        for column, unit, is_right in (("TEFF", "kK", 0), ("TEFF", "Kelvin", 1), ("TEFF_ERR", "m/s", 0), ("VRAD", "m/s", 0),
                                       ("VRAD", "km.s**-1", 1), ("VRAD_ERR", "m s-1", 0), ("LOGG", "log(cm/s2)", 1)):
            path = self.save("unit.fits", edit(VRAD=0.0, VRAD_ERR=1.0, LOGG_ERR=np.inf))
            with pyfits.open(path, mode="update") as hdus:
                hdus[1].columns[column].unit = unit
            with self.subTest(column=column, unit=unit):
                self.assertRefused(path, "LOGG" if is_right else f"{column} is in {unit}; convert")
        # -9999 in a float column is reported; in an integer column it is the null, so no value
        for value, is_number in (-9999.0, True), (-9999, False):
            path = self.save("far.fits", edit(TARGETID=np.arange(6), TEFF=value, TEFF_ERR=150.0))
            done = self.assertRefused(path, f"for none of the {N_STAR} rows")
            self.assertEqual("6 values are far beyond the fit's limits, the first is TEFF -9999 +- "
                             "150 of TARGETID 0" in done.stderr, is_number, done.stderr)
        with self.subTest("fixed"):
            self.assertRefused(self.table, "TEFF, which is fixed", args=("--config", tmp("fixed.yaml")))
        put("log.yaml", "priors: [{param: teff, mean: 3.76, sigma: 0.1}]\n")
        self.assertRefused(None, "TEFF 3.76 +- 0.1", args=("--config", tmp("log.yaml")))
        put("edge.yaml", "priors: [{param: teff, mean: 1000, sigma: 1e6}]\n")
        done = self.assertRefused(tmp("missing.fits"), "cannot be opened", args=("--config", tmp("edge.yaml")))
        self.assertIn("TEFF 1000 +- 1e+06 is centred outside its range", done.stderr)
        self.assertRefused(tmp("text.txt"), "prior_table")
        self.assertRefused(tmp("missing.fits"), "cannot be opened")
        self.assertRefused(LIBRARY, "at its root")

    def assertRefused(self, path, *parts, args=()):
        table = ("--prior-table", path) if path else ()
        done = starmill("fit", "--library", LIBRARY, "--output", tmp("no.h5"), *args, *table, SURVEY)
        self.assertOneLine(done, *table[1:], *parts, status=2)
        self.assertFalse(os.path.exists(tmp("no.h5")))
        return done
