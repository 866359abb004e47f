# SPDX-License-Identifier: BSD-3-Clause
"""Priors of each star from a table: what they do to a solution, whose they are, and what is refused."""

from base import *  # noqa: F403

N_STAR, INFO_PRIOR, NEAR_HULL = 16, 1024, 256
NAMES = ["VRAD", "VSINI", "TEFF", "LOGG", "FEH", "ALPHAFE"]
LIBRARY, SURVEY = coarse_survey(N_STAR)
# the brightest stars' priors, by how many errors they differ from the solution without
PRIORS = {"TEFF": 1}, {"LOGG": -1}, {"VRAD": 1}, {"TEFF": 1, "FEH": -1, "VRAD": -1}


def covariance(fits, row):
    full = np.zeros((len(NAMES),) * 2)
    full[np.triu_indices(len(NAMES))] = fits["COVAR"][row]
    return full + np.triu(full, 1).T


class FitPriors(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.free = cls.one_fit("free.h5")
        cls.ids = cls.free["TARGETID"]
        bright = np.argsort(cls.free["SN_B"] - 1e9 * (cls.free["FIT_INFO"] & NEAR_HULL))[::-1]
        cls.priors = dict(zip(bright, PRIORS))
        # one has none, and one row is of no star here
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
            x, p, weight = np.zeros((3, len(NAMES)))
            for j, name in enumerate(NAMES):
                x[j] = self.free[name][star]
                if name in shift:
                    weight[j] = self.free[name + "_ERR"][star] ** -2
                    p[j] = x[j] + shift[name] * weight[j] ** -0.5
            x, p, weight = x[free], p[free], np.diag(weight[free])
            both = np.linalg.inv(data + weight)
            expected, error = both @ (data @ x + weight @ p), np.sqrt(np.diag(both))
            for k, j in enumerate(free):
                with self.subTest(star=star, name=NAMES[j]):
                    if NAMES[j] in shift:  # it moves at all
                        self.assertGreater(abs(expected[k] - x[k]), 0.3 * error[k])
                    if NAMES[j] != "VSINI":  # whose likelihood is no parabola
                        self.assertLess(abs(self.pulled[NAMES[j]][star] - expected[k]), 0.1 * error[k])
                        self.assertAlmostEqual(self.pulled[NAMES[j] + "_ERR"][star] / error[k], 1, delta=0.1)

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
        # data that say less than the prior move a velocity by less than three of its errors
        self.assertLess(abs(read(tmp("faint.h5"), "fits")["VRAD"] - truth["VRAD"]).max(), 15)

    def test_rows_without_priors_keep_their_bits(self):
        has = np.isin(np.arange(N_STAR), list(self.priors))
        np.testing.assert_array_equal(self.pulled["FIT_INFO"] & INFO_PRIOR > 0, has)
        for name, values in self.free.items():
            self.assertEqual(values[~has].tobytes(), self.pulled[name][~has].tobytes(), name)
        self.assertIn(f"4 rows have some in {self.table}, {N_STAR - 4} have none", self.said)

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
        # files of one name have the same identifiers
        os.makedirs(tmp("night"))
        other = shutil.copy(SURVEY, tmp("night"))
        self.assertRefused(tmp("priors.h5"), "IDENTIFIER", other, SURVEY, args=(other,))
        self.one_fit("two.h5", "--prior-table", self.table, other)
        self.assertIn("8 rows have some", self.done.stdout)

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
        args = ("sample", "--fit", tmp("tight.h5"), "--library", LIBRARY, "--targetid", self.ids[star],
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
            (edit(TEFF_ERR=None), ("TEFF without TEFF_ERR",)),
            (edit(LOGG=None), ("LOGG_ERR without LOGG:",)),
            (edit(alpha=0.0, alpha_err=1.0, ALPHAFE=0.0, ALPHAFE_ERR=1.0), ("of one parameter",)),
            (edit(TEFF=5000.0, TEFF_ERR=[1.0, 2, nan, 0, nan, 1]),
             (f"TEFF of TARGETID {self.columns['TARGETID'][3]} is 5000 +- 0",)),
            (edit(TEFF=np.inf, TEFF_ERR=1.0), ("inf",)),
            (edit(TARGETID=[3, 4, 3, 5, 6, 7]), ("two rows of TARGETID 3",)),
            (edit(TARGETID=None), ("no column TARGETID or IDENTIFIER",)),
            (edit(**{name: None for name in self.columns if name != "TARGETID"}), ("no columns NAME",)),
            (edit(TEFF=np.array("hot"), TEFF_ERR=1.0), ("TEFF",)),
        )):
            with self.subTest(parts):
                path = self.save(f"wrong{k}.fits", change)
                self.assertRefused(path, *parts)
        # a number for a missing value is told of, a null of integers is none
        for value, told in (-9999.0, "6 of its values"), (-9999, ""):
            path = self.save("far.fits", edit(TARGETID=np.arange(6), TEFF=value, TEFF_ERR=150.0))
            done = self.assertRefused(path, f"for none of the {N_STAR} rows")
            self.assertEqual(f"far beyond what the fit allows: {told}, the first one TEFF -9999 +- 150 of "
                             "TARGETID 0" in done.stderr, bool(told), done.stderr)
        with self.subTest("fixed"):
            self.assertRefused(self.table, "TEFF, which is fixed", args=("--config", tmp("fixed.yaml")))
        put("log.yaml", "priors: [{param: teff, mean: 3.76, sigma: 0.1}]\n")
        self.assertRefused(None, "TEFF 3.76 +- 0.1", args=("--config", tmp("log.yaml")))
        put("edge.yaml", "priors: [{param: teff, mean: 1000, sigma: 1e6}]\n")
        done = self.assertRefused(tmp("missing.fits"), "cannot be opened", args=("--config", tmp("edge.yaml")))
        self.assertIn("TEFF 1000 +- 1e+06 is outside its range", done.stderr)
        self.assertRefused(tmp("text.txt"), "prior_table")
        self.assertRefused(tmp("missing.fits"), "cannot be opened")
        self.assertRefused(LIBRARY, "at its root")

    def assertRefused(self, path, *parts, args=()):
        table = ("--prior-table", path) if path else ()
        done = starmill("fit", "--library", LIBRARY, "--output", tmp("no.h5"), *args, *table, SURVEY)
        self.assertOneLine(done, *table[1:], *parts, status=2)
        self.assertFalse(os.path.exists(tmp("no.h5")))
        return done
