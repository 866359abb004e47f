"""tools/pulls_plot.py on made-up results whose pulls are known exactly."""

import os
import re
import shutil
import tempfile
import unittest

import test_demo_tools as made
from test_demo_tools import h5py, np

UNRESOLVED, DROPPED = 1, 8
LINE = re.compile(r"\| ([A-Z]+) \| (\S+) \| (\d+) \| (\S+) ± (\S+) \| (\S+) ± (\S+) \| (\d+) \|")


class PullsPlot(unittest.TestCase):
    tool, assertFails = made.DemoTools.tool, made.DemoTools.assertFails

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="starmill-pulls-plot.")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
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

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder, name)

    def table(self, *args):
        done = self.tool("pulls_plot.py", "fit.h5", "truth.fits", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, {(m[1], m[2]): (int(m[3]), *map(float, m.groups()[3:7]), int(m[8]))
                             for m in map(LINE.fullmatch, done.stdout.splitlines()) if m}

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
                want[name, label] = (len(pull), np.median(pull), 1.253 * width / root, width,
                                     0.962 * width / root, int((abs(pull) > 5).sum()))
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

    def test_bins(self):
        # the stars are at S/N 5, 10 and 39.9; the edges belong to the bin above
        _, found = self.table("--bins", "6,10,39.9,40", "--leave-out-warn", "all")
        n = {label: n for (name, label), (n, *_) in found.items() if name == "TEFF"}
        self.assertEqual(n, {"10-39.9": made.N_BIN, "39.9-40": made.N_BIN, "all": 3 * made.N_BIN})

    def test_errors_that_are_none_do_not_count(self):
        shutil.copy(self.path("fit.h5"), self.path("pinned.h5"))
        with h5py.File(self.path("pinned.h5"), "a") as file:
            for i, value in zip(self.dropped, [0.0, np.nan] * len(self.dropped)):
                file["fits/FEH_ERR"][i] = value
            info = file["fits/FIT_INFO"][...]
            info[self.dropped] = UNRESOLVED
            file["fits/FIT_INFO"][...] = info
        done = self.tool("pulls_plot.py", "pinned.h5", "truth.fits")
        self.assertEqual(done.returncode, 0, done.stderr)
        n = {m[1]: int(m[3]) for m in map(LINE.fullmatch, done.stdout.splitlines())
             if m and m[2] == "5-10"}
        self.assertEqual(n["FEH"], n["TEFF"] - len(self.dropped))
        self.assertEqual(n["VSINI"], n["TEFF"] - len(self.dropped))

    @unittest.skipIf(made.matplotlib is None, "matplotlib or Pillow is missing")
    def test_figure(self):
        self.table("--figure", "pulls.png")
        image = made.matplotlib.image.imread(self.path("pulls.png"))
        self.assertGreater(image.shape[1], 600)
        # histograms and curves: more than one colour beside the background
        self.assertGreater(len(np.unique(image.reshape(-1, image.shape[2]), axis=0)), 10)

    def test_mistakes_are_one_line(self):
        for args, part in ((("--leave-out-warn", "HULLS"), "HULLS"),
                           (("--leave-out-info", "X"), "VSINI_UNRESOLVED"),
                           (("--bins", "5,a"), "--bins"), (("--bins", "9"), "--bins"),
                           (("--bins", "9,5"), "ascending")):
            with self.subTest(args):
                self.assertFails(self.tool("pulls_plot.py", "fit.h5", "truth.fits", *args), part)
        self.assertFails(self.tool("pulls_plot.py", "none.h5", "truth.fits"), "none.h5")
        self.assertFails(self.tool("pulls_plot.py", "fit.h5", "fit.h5"), "fit.h5")


if __name__ == "__main__":
    unittest.main(verbosity=2)
