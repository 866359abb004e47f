"""tests/campaigns/pulls_plot.py and validate_basins.py on made-up results that are known exactly."""

import os
import re
import shutil
import tempfile
import unittest

import test_demo_tools as made
from test_demo_tools import h5py, np

CAMPAIGNS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "campaigns")
PULLS_PLOT = os.path.join(CAMPAIGNS, "pulls_plot.py")
VALIDATE_BASINS = os.path.join(CAMPAIGNS, "validate_basins.py")
UNRESOLVED, DROPPED = 1, 8
# parameter, S/N, stars, median ± its error, mean, width ± its error, MAD, standard deviation,
# stars beyond 3 and 5 errors
LINE = re.compile(r"\| ([A-Z]+) \| (\S+) \| (\d+) \| (\S+) ± (\S+) \| (\S+) \| (\S+) ± (\S+) "
                  r"\| (\S+) \| (\S+) \| (\d+) \| (\d+) \|")


class ToolTest(unittest.TestCase):
    """A folder for made-up results, and the tools run in it."""

    tool, assertFails = made.DemoTools.tool, made.DemoTools.assertFails

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="starmill-pulls.")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder, name)

    @staticmethod
    def lines(text):
        """The table of pulls: {(parameter, S/N): its numbers}."""
        return {(m[1], m[2]): (int(m[3]), *map(float, m.groups()[3:10]), int(m[11]), int(m[12]))
                for m in map(LINE.fullmatch, text.splitlines()) if m}


class PullsPlot(ToolTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        table = made.stars()
        for i, star in enumerate(table):
            star["fits_row"] = i
        cls.rows = [s for s in table if s["STATUS"] is not None]
        np.random.default_rng(1).shuffle(cls.rows)
        made.write_truth(cls.path("truth.fits"), table)
        made.write_fit(cls.path("fit.h5"), cls.rows)
        with h5py.File(cls.path("fit.h5"), "a") as file:
            file["fits/FIT_INFO"].attrs["BITS"] = [UNRESOLVED, DROPPED]
            file["fits/FIT_INFO"].attrs["NAMES"] = np.array([b"VSINI_UNRESOLVED", b"ARM_DROPPED"])
            # every third star of S/N 5 lacks an arm
            faint = [i for i, s in enumerate(cls.rows)
                     if s["SN"] == 5.0 and s["KIND"] == "star" and s["RVS_WARN"] == 0]
            cls.dropped = faint[::3]
            info = file["fits/FIT_INFO"][...]
            info[cls.dropped] = DROPPED
            file["fits/FIT_INFO"][...] = info

    def table(self, *args):
        done = self.tool(PULLS_PLOT, "fit.h5", "truth.fits", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, self.lines(done.stdout)

    def expected(self, keep):
        """What the table must say of the rows (index in the fit) that keep takes."""
        want = {}
        for name in made.NAMES:
            for label, low, high in (("5-10", 5, 10), ("10-20", 10, 20), ("20-40", 20, 40),
                                     ("all", 0, 1e9)):
                pull = np.array([
                    s["delta"][name] / made.ERROR[name] for i, s in enumerate(self.rows)
                    if s["KIND"] == "star" and s["STATUS"] == made.FITTED and keep(i, s)
                    and low <= s["SN"] < high and (name != "VSINI" or s["true"]["VSINI"] >= 40)])
                if len(pull) < 5:
                    continue
                width = 0.5 * np.diff(np.percentile(pull, [15.865, 84.135]))[0]
                root = np.sqrt(len(pull))
                median = np.median(pull)
                want[name, label] = (len(pull), median, 1.253 * width / root, pull.mean(), width,
                                     0.962 * width / root,
                                     1.4826 * np.median(abs(pull - median)), pull.std(),
                                     int((abs(pull) > 3).sum()), int((abs(pull) > 5).sum()))
        return want

    def assertTable(self, found, want):
        self.assertEqual(set(found), set(want))
        for key, values in want.items():
            # the table has two digits
            np.testing.assert_allclose(found[key], values, rtol=0, atol=0.00501, err_msg=str(key))

    def test_pulls(self):
        text, found = self.table()
        # rows with a warning count, and are the outliers
        self.assertTable(found, self.expected(lambda i, s: True))
        self.assertGreater(found["VRAD", "all"][-1], 0)
        self.assertNotIn("Left out", text)

    def test_left_out_by_flags(self):
        text, found = self.table("--leave-out-warn", "HULL,CHISQ")
        self.assertTable(found, self.expected(lambda i, s: s["RVS_WARN"] == 0))
        self.assertEqual(found["VRAD", "all"][-1], 0)
        self.assertIn("Left out for their flags: 3 stars", text)
        _, every = self.table("--leave-out-warn", "all")
        self.assertEqual(every, found)
        text, found = self.table("--leave-out-warn", "all", "--leave-out-info", "ARM_DROPPED")
        self.assertTable(found, self.expected(
            lambda i, s: s["RVS_WARN"] == 0 and i not in self.dropped))
        self.assertIn(f"Left out for their flags: {3 + len(self.dropped)} stars", text)

    def test_errors_that_are_none_do_not_count(self):
        shutil.copy(self.path("fit.h5"), self.path("fixed.h5"))
        with h5py.File(self.path("fixed.h5"), "a") as file:
            for i, value in zip(self.dropped, [0.0, np.nan] * len(self.dropped)):
                file["fits/FEH_ERR"][i] = value
        done = self.tool(PULLS_PLOT, "fixed.h5", "truth.fits")
        self.assertEqual(done.returncode, 0, done.stderr)
        n = {name: values[0] for (name, label), values in self.lines(done.stdout).items()
             if label == "5-10"}
        self.assertEqual(n["FEH"], n["TEFF"] - len(self.dropped))

    def test_unresolved_rotation_of_a_rotator_counts(self):
        """A true rotator that was fitted as none is an outlier, not a star to pass over."""
        shutil.copy(self.path("fit.h5"), self.path("pinned.h5"))
        with h5py.File(self.path("pinned.h5"), "a") as file:
            info = file["fits/FIT_INFO"][...]
            info[self.dropped] = UNRESOLVED
            file["fits/FIT_INFO"][...] = info
            for i in self.dropped:
                file["fits/VSINI"][i] = 0.0
        done = self.tool(PULLS_PLOT, "pinned.h5", "truth.fits")
        self.assertEqual(done.returncode, 0, done.stderr)
        found, before = self.lines(done.stdout), self.table()[1]
        key = ("VSINI", "5-10")
        self.assertEqual(found[key][0], before[key][0])
        # 50 km/s at an error of 5
        self.assertEqual(found[key][-1], before[key][-1] + len(self.dropped))

    @unittest.skipIf(made.matplotlib is None, "matplotlib or Pillow is missing")
    def test_figure(self):
        self.table("--figure", "pulls.png")
        image = made.matplotlib.image.imread(self.path("pulls.png"))
        self.assertGreater(image.shape[1], 600)
        # histograms and curves: more than the background and one colour
        self.assertGreater(len(np.unique(image.reshape(-1, image.shape[2]), axis=0)), 10)

    def test_mistakes_are_one_line(self):
        for args, part in ((("--leave-out-warn", "HULLS"), "HULLS"),
                           (("--leave-out-info", "X"), "VSINI_UNRESOLVED"),
                           (("--bins", "5,a"), "--bins"), (("--bins", "9"), "--bins"),
                           (("--bins", "9,5"), "ascending"), (("--away", "2"), "--library"),
                           (("again.h5",), "truth table"),
                           (("--expected", "a.h5", "b.h5"), "one for each fit")):
            with self.subTest(args):
                self.assertFails(self.tool(PULLS_PLOT, "fit.h5", "truth.fits", *args), part)
        self.assertFails(self.tool(PULLS_PLOT, "none.h5", "truth.fits"), "none.h5")
        self.assertFails(self.tool(PULLS_PLOT, "fit.h5", "fit.h5"), "fit.h5")


class AwayFromHulls(ToolTest):
    """--away: the distance of the truth from the facets, in errors, by hand.

    All stars are at [Fe/H] -0.5 and [alpha/Fe] 0.2, the three bins of S/N at 4800, 5700 and
    6600 K; errors are 40 K, 0.1 and 0.05.
    """

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        table = [s for s in made.stars() if s["STATUS"] == made.FITTED and s["RVS_WARN"] == 0
                 and s["KIND"] == "star"]
        for i, star in enumerate(table):
            star["fits_row"] = i
        made.write_truth(cls.path("truth.fits"), table)
        for name, factor in (("fit.h5", 1.0), ("expected.h5", 2.0)):
            rows = list(table)
            np.random.default_rng(int(factor)).shuffle(rows)
            made.write_fit(cls.path(name), rows)
            with h5py.File(cls.path(name), "a") as file:
                file["fits/FIT_INFO"].attrs["BITS"] = [UNRESOLVED]
                file["fits/FIT_INFO"].attrs["NAMES"] = np.array([b"VSINI_UNRESOLVED"])
                covariance = np.diag([made.ERROR[k] ** 2 for k in
                                      ("VRAD", "VSINI", "TEFF", "LOGG", "FEH", "ALPHAFE")])
                covariance[4, 5] = covariance[5, 4] = -0.00125
                packed = factor**2 * covariance[np.triu_indices(6)]
                file["fits/COVAR"] = np.tile(packed, (len(rows), 1))
                file["fits/VSINI_ERR"][...] = factor * made.ERROR["VSINI"]
        with h5py.File(cls.path("library.h5"), "w") as file:
            file.create_group("labels").attrs["n_label"] = 4
            for i, (column, mapping, mean, std) in enumerate((
                    ("TEFF", 1, 3.7, 0.08), ("LOGG", 0, 3.0, 1.5), ("FEH", 0, -1.0, 2.0),
                    ("ALPHAFE", 0, 0.1, 1.0))):
                file[f"labels/label{i}"] = 0
                file[f"labels/label{i}"].attrs.update(
                    column=np.bytes_(column), mapping=mapping, mean=mean, std=std)
            file.create_group("hulls").attrs["n_hull"] = 2
            # Teff <= 6700 K: the hottest are ln(6700/6600) 6600/40 = 2.481 errors inside
            edge = (np.log10(6700.0) - 3.7) / 0.08
            file["hulls/hull0/labels"] = [0, 1]
            file["hulls/hull0/facets"] = [[1.0, 0.0, -edge]]
            # 0.6 x + 0.8 y <= b in mapped labels x = (feh + 1)/2, y = alpha - 0.1, where all
            # stars have 0.23: its error is that of 0.3 feh + 0.8 alpha,
            # sqrt(0.09 0.01 + 0.64 0.0025 - 0.48 0.00125) = 0.043589; 3 errors to b
            file["hulls/hull1/labels"] = [2, 3]
            file["hulls/hull1/facets"] = [[0.6, 0.8, -(0.23 + 3.0 * 0.043589)]]

    def counts(self, *args):
        done = self.tool(PULLS_PLOT, "fit.h5", "truth.fits", "--library", "library.h5", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {key: values[0] for key, values in self.lines(done.stdout).items()}, done.stdout

    def test_own_errors(self):
        n, text = self.counts("--away", "2.47")
        self.assertEqual(n["TEFF", "all"], 3 * made.N_BIN)
        n, text = self.counts("--away", "2.49")
        self.assertEqual(n["TEFF", "all"], 2 * made.N_BIN)
        self.assertNotIn(("TEFF", "20-40"), n)
        self.assertIn(f"2.49 errors inside the hulls: {made.N_BIN} stars", text)
        n, _ = self.counts("--away", "2.99")
        self.assertEqual(n["TEFF", "all"], 2 * made.N_BIN)
        self.assertFails(self.tool(PULLS_PLOT, "fit.h5", "truth.fits", "--library",
                                   "library.h5", "--away", "3.01"), "inside the hulls")

    def test_expected_errors(self):
        """Twice as large: half the distances; v sin i of 39.9 km/s is 3 errors of 13.3."""
        n, _ = self.counts("--away", "1.23", "--expected", "expected.h5")
        self.assertEqual(n["TEFF", "all"], 3 * made.N_BIN)
        self.assertEqual(n["VSINI", "all"], 3 * made.N_BIN)
        self.assertEqual(self.counts("--away", "1.23")[0]["VSINI", "all"], 2 * made.N_BIN)
        n, _ = self.counts("--away", "1.25", "--expected", "expected.h5")
        self.assertEqual(n["TEFF", "all"], 2 * made.N_BIN)
        n, _ = self.counts("--away", "1.49", "--expected", "expected.h5")
        self.assertEqual(n["TEFF", "all"], 2 * made.N_BIN)
        self.assertFails(self.tool(PULLS_PLOT, "fit.h5", "truth.fits", "--library",
                                   "library.h5", "--away", "1.51", "--expected", "expected.h5"),
                         "inside the hulls")


class Basins(ToolTest):
    """Four fits of 303 stars, of which some are made worse."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.table = [s for s in made.stars() if s["STATUS"] == made.FITTED and s["KIND"] == "star"
                     and s["RVS_WARN"] == 0]
        for i, star in enumerate(cls.table):
            star["fits_row"] = i
        made.write_truth(cls.path("truth.fits"), cls.table)
        for optimizer, start, worse in (
                ("hybrid", "", {0: 0.05}), ("nelder-mead", "", {0: 0.2}),
                ("levenberg-marquardt", "", {1: 0.2, 2: 30.0, 299: np.nan}),
                ("hybrid", "truth.fits", {7: 0.02})):
            name = f"{optimizer}{'-truth' if start else ''}.h5"
            made.write_fit(cls.path(name), cls.table)
            with h5py.File(cls.path(name), "a") as file:
                m2ll = -1e4 - np.arange(len(cls.table), dtype=float)
                for star, by in worse.items():
                    m2ll[star] += by
                file["fits/M2LL"] = m2ll
                file["fits/NEVAL"] = np.full(len(m2ll), 7, dtype="i4")
                file["fits/NJAC"] = np.full(len(m2ll), 4, dtype="i4")
                file["provenance/CONFIG"] = np.bytes_(
                    f'optimizer: {optimizer}\nrotation_kernel: spline\nstart: "{start}"\n')

    def run_tool(self, *names):
        return self.tool(VALIDATE_BASINS, "truth.fits", *(f"{name}.h5" for name in names))

    def test_counts(self):
        done = self.run_tool("hybrid", "nelder-mead", "levenberg-marquardt", "hybrid-truth")
        # 3 of 303 are too many for 99.5 %, one is not
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        rows = [[cell.strip() for cell in line.split("|")[1:-1]]
                for line in done.stdout.splitlines() if line.startswith("|")]
        self.assertIn(["all", "", "303", "0 (0.00 %)", "1 (0.33 %)", "1 (0.33 %)", "1 (0.33 %)",
                       "3 (0.99 %)", "3 (0.99 %)", "0 (0.00 %)", "1 (0.33 %)"], rows)
        # star 299 is at S/N 39.9, the others at 5
        self.assertIn(["S/N", "20 to 40", "101", "0 (0.00 %)", "0 (0.00 %)", "0 (0.00 %)",
                       "0 (0.00 %)", "1 (0.99 %)", "1 (0.99 %)", "0 (0.00 %)", "0 (0.00 %)"], rows)
        self.assertIn("hybrid, from a table: 100.00 % at most", done.stdout)
        self.assertIn("levenberg-marquardt: 99.01 % at most best known + 0.1, NOT MET",
                      done.stdout)
        # every star that is above by 0.01, with the truth and four solutions
        listed = [row[0] for row in rows if row[0].isdigit() and len(row) == 12]
        self.assertEqual(sorted(listed), sorted(
            [str(self.table[i]["TARGETID"]) for i in (0, 1, 2, 7, 299)] * 5))

    def test_good_ones_pass(self):
        done = self.run_tool("hybrid", "nelder-mead", "hybrid-truth")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("NOT MET", done.stdout)

    def test_mistakes_are_one_line(self):
        self.assertFails(self.run_tool("hybrid"), "at least two")
        self.assertFails(self.run_tool("hybrid", "none"), "none.h5")
        made.write_fit(self.path("fewer.h5"), self.table[:-1])
        with h5py.File(self.path("fewer.h5"), "a") as file:
            file["fits/M2LL"] = np.zeros(len(self.table) - 1)
        self.assertFails(self.run_tool("hybrid", "fewer"), "does not hold the stars")


if __name__ == "__main__":
    unittest.main(verbosity=2)
