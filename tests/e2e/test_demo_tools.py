# SPDX-License-Identifier: BSD-3-Clause
"""The demo's tables and picture of a small survey against NumPy; some rows are spoilt.  The report's
densities of stars against sums of kernels."""

import types

from base import *  # noqa: F403

try:
    import matplotlib.image
    import PIL  # noqa: F401, which the picture needs too
except ImportError as missing:
    skip(f"{missing} (Debian: python3-matplotlib python3-pil)")

TOOLS = os.path.join(SOURCE, "campaigns")
sys.dont_write_bytecode = True
from starmill.products import charts, drawing  # noqa: E402

DIGITS = {"VRAD": 2, "TEFF": 0, "LOGG": 2, "FEH": 2, "ALPHAFE": 2, "VSINI": 1}
BINS = {f"{low}-{high}": (low, high) for low, high in ((5, 10), (10, 20), (20, 40), (40, 100))}
BINS["all"] = (0, np.inf)
BAD_SPECTRUM, HULL = 32, 256


class DemoTools(ProgramTest):
    @classmethod
    def setUpClass(cls):
        library = coarse_library()
        run("simulate", "--library", library, "--output", tmp("demo"), "--stars", 120, "--per-file", 60,
            "--pathological", 200, "--sn", "5,60", "--vsini", "30,150", "--seed", 7, "--quiet")
        # another order in the fit than in the truth
        run("fit", "--library", library, "--output", tmp("fit.h5"), "--quiet",
            *sorted(glob.glob(tmp("demo/coadd*.fits")), reverse=True))
        with pyfits.open(tmp("demo/truth.fits"), "update") as hdus:
            truth = hdus["TRUTH"].data
            truth["SN"][np.argmin(abs(truth["SN"] - 10))] = 10  # the edge of a bin
            cls.truth = truth.copy()
        row_of = {target: i for i, target in enumerate(cls.truth["TARGETID"].tolist())}
        cls.true = cls.truth[[row_of[t] for t in read(tmp("fit.h5"))["TARGETID"].tolist()]]
        cls.clean = cls.true["KIND"] == "star"
        with h5py.File(tmp("fit.h5"), "r+") as f:
            warned, failed = np.split(np.flatnonzero(cls.clean)[:4], [3])
            f["fits/RVS_WARN"][warned] = HULL
            f["fits/RVS_WARN"][failed], f["fits/STATUS"][failed] = BAD_SPECTRUM, NO_ARM
        cls.fits = read(tmp("fit.h5"))
        cls.good = cls.clean & (cls.fits["STATUS"] == FITTED) & (cls.fits["RVS_WARN"] == 0)

    def tool(self, name, *args):
        return ended([sys.executable, "-B", os.path.join(TOOLS, name), *args], cwd=TMP)

    def test_table(self):
        done = self.tool("demo_table.py", "fit.h5", "demo/truth.fits")
        self.assertEqual(done.returncode, 0, done.stderr)
        n_warned = (self.clean & (self.fits["STATUS"] == FITTED) & ~self.good).sum()
        for want in (f"{self.good.sum()} stars without a defect and without a warning",
                     rf"Left out: {n_warned} stars with a warning \(.*HULL",
                     r"Left out: 1 stars that were not fitted \(NO_USABLE_ARM\).$",
                     r"^sky +2  not selected 2 +-  -$",
                     r"^no_arm +\d  NO_USABLE_ARM.* +-  BAD_SPECTRUM"):
            self.assertRegex(done.stdout, f"(?m){want}")
        off = self.fits["VRAD"] - self.true["VRAD"]
        for kind in set(self.truth["KIND"]) - {"star"}:
            right = (self.true["KIND"] == kind) & (self.fits["SUCCESS"] == 1)
            want = "-"
            if right.any():
                want = f"{np.median(off[right]):.2f} ± {np.median(self.fits['VRAD_ERR'][right]):.2f}"
            self.assertRegex(done.stdout, rf"(?m)^{kind} +{(self.truth['KIND'] == kind).sum()}  .* {want}  ")
        self.statistics(done.stdout.splitlines())
        self.ten_stars(done.stdout.split("recovered (true)\n")[1].splitlines()[1:])

    def statistics(self, lines):
        found, name = {}, None
        for line in lines:
            row = re.fullmatch(r"(?:([A-Z]+) \([^)]*\))? +(\S+)  +(\d+)" + 4 * r" +(\S+)", line)
            if row:
                name = row[1] or name
                found[name, row[2]] = row.groups()[2:]
        self.assertEqual(set(found), {(name, of) for name in DIGITS for of in BINS})
        for (name, of), (n, *numbers) in found.items():
            low, high = BINS[of]
            at = self.good & (self.true["SN"] >= low) & (self.true["SN"] < high)
            at &= (name != "VSINI") | (self.true["VSINI"] >= 40)
            self.assertEqual(int(n), at.sum(), (name, of))
            if at.sum() < 5:
                self.assertEqual(numbers, ["-"] * 4)
                continue
            off, error = (self.fits[name] - self.true[name])[at], self.fits[name + "_ERR"][at]
            width, pull = (0.5 * np.diff(np.percentile(x, [15.865, 84.135]))[0] for x in (off, off / error))
            for number, want, digits in zip(numbers, (np.median(off), width, np.median(error), pull),
                                            [DIGITS[name] + 1] * 3 + [2]):
                self.assertAlmostEqual(float(number), want, delta=0.5001 * 10.0 ** -digits, msg=(name, of))

    def ten_stars(self, lines):
        self.assertEqual(len(lines), 10)
        rows = [self.fits["TARGETID"].tolist().index(int(line.split()[0])) for line in lines]
        self.assertTrue(self.good[rows].all() and (np.diff(self.true["SN"][rows]) >= 0).all())
        for row, line in zip(rows, lines):
            words = line.split()
            for name, recovered, true in zip(("VRAD", "TEFF", "LOGG", "FEH", "ALPHAFE", "VSINI"), words[2::2],
                                             words[3::2]):
                for said, of in (recovered, self.fits), (true.strip("()"), self.true):
                    self.assertAlmostEqual(float(said), of[name][row], delta=0.5001 * 10.0 ** -DIGITS[name])

    def test_files_of_another_survey(self):
        with h5py.File(shutil.copy(tmp("fit.h5"), tmp("stray.h5")), "r+") as f:
            f["fits/TARGETID"][7] = 12345
        for tool, *picture in ("demo_table.py",), ("demo_plot.py", "no.png"):
            self.assertOneLine(self.tool(tool, "stray.h5", "demo/truth.fits", *picture),
                               "truth.fits", "stray.h5", "12345", status=1)

    def test_picture(self):
        done = self.tool("demo_plot.py", "fit.h5", "demo/truth.fits", "recovery.png")
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        # points are drawn: green for low S/N, blue for high S/N; the colour bar is cut off
        pixels = 255.0 * matplotlib.image.imread(tmp("recovery.png"))[:, :1100, :3]
        for more, less in (1, 2), (2, 1):
            self.assertGreater((pixels[..., more] - pixels[..., less] > 60.0).sum(), 500, more)

    def test_binned(self):
        wave = np.array([1.0, 2.0, 3.0, 4.0, 5.0])  # the last one fills no bin
        flux, ivar = np.array([2.0, 8.0, 0.0, 0.0, 9.0]), np.array([1.0, 3.0, 0.0, 0.0, 1.0])
        model = np.array([1.0, 2.0, 5.0, 7.0, 9.0])
        wave, flux, weight, model = drawing.binned(wave, flux, ivar, model, 2)
        np.testing.assert_allclose(wave, [1.5, 3.5])
        np.testing.assert_allclose(flux, [6.5, 0.0])
        np.testing.assert_allclose(weight, [4.0, 0.0])
        np.testing.assert_allclose(model, [1.75, 6.0])


class Density(unittest.TestCase):
    def test_a_plane_is_the_sum_of_kernels(self):
        rng = np.random.default_rng(5)
        x, y = rng.normal(5000, 400, 300), rng.normal(4, 0.5, 300)
        n, limits = 200, ((3500, 6500), (2, 6))
        found = charts.plane_density(x, y, *limits, n)
        at = [low + (high - low) * (np.arange(n) + 0.5) / n for low, high in limits]
        kernel = [np.exp(-0.5 * ((a[:, None] - v) / charts.scott(v)) ** 2)
                  / charts.scott(v) / np.sqrt(2 * np.pi) for a, v in zip(at, (x, y))]
        exact = kernel[1] @ kernel[0].T
        # a star moves by at most half a cell, a tenth of the kernel's width
        self.assertLess(np.abs(found - exact).max(), 0.02 * exact.max())

    def test_few_stars_are_points(self):
        for n, n_image in ((1999, 0), (2000, 1)):
            sample = {"TEFF": np.linspace(4000, 6000, n), "LOGG": np.linspace(1, 5, n)}
            figure, axes = charts.plt.subplots()
            charts.kiel_density(axes, types.SimpleNamespace(every=1), sample)
            self.assertEqual((len(axes.images), len(axes.lines)), (n_image, 1 - n_image))
            charts.plt.close(figure)

    def test_the_sky_keeps_its_stars(self):
        rng = np.random.default_rng(6)
        for ra, dec, name in ((rng.normal(0, 1, 5000) % 360, rng.normal(80, 0.5, 5000), "ZEA"),
                              (rng.normal(0, 1, 5000) % 360, rng.normal(-30, 1, 5000), "ZEA"),
                              (rng.uniform(-100, 100, 9000) % 360, rng.uniform(-60, 80, 9000), "MOL")):
            wcs, shape = charts.sky_frame(ra, dec)
            self.assertEqual(wcs.wcs.ctype[0], "RA---" + name)
            x, y = wcs.wcs_world2pix(ra, dec, 0)
            self.assertTrue(((-0.5 < x) & (x < shape[1] - 0.5) & (-0.5 < y) & (y < shape[0] - 0.5)).all())
            found = charts.sky_density(ra, dec, wcs, shape)
            # ends of kernels beyond the map
            self.assertLess(abs(np.nansum(found) * wcs.wcs.cdelt[1] ** 2 / len(ra) - 1), 0.02)
        centre = wcs.wcs_world2pix([[0.0, 0.0]], 0)[0]  # the cut is half a turn from the stars
        self.assertLess(abs(centre[0] - shape[1] / 2), 5)
