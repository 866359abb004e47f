# SPDX-License-Identifier: BSD-3-Clause
"""The demo's tables and pictures from made-up results whose errors are known exactly: results, truth
and spectra are written here."""

import re

from base import *  # noqa: F403

try:
    import matplotlib.image
    import PIL  # noqa: F401, which the pictures need too
except ImportError as missing:
    skip(f"{missing} (Debian: python3-matplotlib python3-pil)")

TOOLS = os.path.join(SOURCE, "tests", "campaigns")
sys.dont_write_bytecode = True
import demo_plot  # noqa: E402
from starmill.products import drawing  # noqa: E402

NAMES = ("VRAD", "TEFF", "LOGG", "FEH", "ALPHAFE", "VSINI")
NO_USABLE_ARM = 3
CHISQ, BAD_SPECTRUM, HULL = 1, 32, 256

# Errors of a bin of S/N are offset + width * u, u = -1 ... 1 in equal steps: then the
# median is the offset, and the central 68.27 % end at u = -+(1 - 2 * 0.15865).
N_BIN = 101
U = np.linspace(-1.0, 1.0, N_BIN)
HALF = 1.0 - 2.0 * 0.15865
BINS = {"5-10": 5.0, "10-20": 10.0, "20-40": 39.9}  # an S/N in each; 10 is the edge itself
# of bin i: offset (i + 1) OFFSET, width WIDTH / (i + 1), stated error ERROR in all
OFFSET = {"VRAD": 0.5, "TEFF": -20.0, "LOGG": 0.05, "FEH": -0.03, "ALPHAFE": 0.02, "VSINI": 2.0}
WIDTH = {"VRAD": 3.0, "TEFF": 60.0, "LOGG": 0.3, "FEH": 0.2, "ALPHAFE": 0.1, "VSINI": 9.0}
ERROR = {"VRAD": 1.5, "TEFF": 40.0, "LOGG": 0.25, "FEH": 0.1, "ALPHAFE": 0.05, "VSINI": 5.0}
TRUE = {"VRAD": -120.0, "TEFF": 5700.0, "LOGG": 4.4, "FEH": -0.5, "ALPHAFE": 0.2, "VSINI": 50.0}
ABSURD = {"VRAD": 300.0, "TEFF": 900.0, "LOGG": 2.0, "FEH": 1.5, "ALPHAFE": 0.9, "VSINI": 90.0}


def stars():
    """The survey as one dictionary a star."""
    found = []
    for i, sn in enumerate(BINS.values()):
        for u in U:
            star = dict(SN=sn, KIND="star", STATUS=FITTED, RVS_WARN=0)
            star["true"] = dict(TRUE, TEFF=TRUE["TEFF"] + 900.0 * (i - 1))
            star["delta"] = {k: (i + 1) * OFFSET[k] + WIDTH[k] / (i + 1) * u for k in NAMES}
            if sn == BINS["20-40"]:  # not resolved: must not count for VSINI
                star["true"]["VSINI"], star["delta"]["VSINI"] = 39.9, ABSURD["VSINI"]
            found.append(star)
    wrong = dict(SN=7.0, true=dict(TRUE), delta=dict(ABSURD), STATUS=FITTED, RVS_WARN=0)
    found += [dict(wrong, KIND="star", RVS_WARN=HULL) for _ in range(3)]
    found += [dict(wrong, KIND="star", STATUS=NO_USABLE_ARM, RVS_WARN=BAD_SPECTRUM)]
    found += [dict(wrong, KIND="sky", STATUS=None), dict(wrong, KIND="sky", STATUS=None)]
    found += [dict(wrong, KIND="no_arm", STATUS=NO_USABLE_ARM, RVS_WARN=BAD_SPECTRUM)]
    found += [dict(wrong, KIND="noise", RVS_WARN=CHISQ | HULL)]
    found += [dict(wrong, KIND="half_masked", delta=dict(ABSURD, VRAD=-0.5))]
    for i, star in enumerate(found):
        star["TARGETID"] = 39627000000000000 + 7 * i
    return found


def write_truth(path, table):
    columns = {"TARGETID": ("K", [s["TARGETID"] for s in table]),
               **{k: ("D", [s["true"][k] for s in table]) for k in NAMES},
               "SN": ("D", [s["SN"] for s in table]), "KIND": ("24A", [s["KIND"] for s in table])}
    pyfits.HDUList([pyfits.PrimaryHDU(), bintable({"FILE": ("16A", ["coadd-0.fits"])}, "FILES"),
                    bintable(columns, "TRUTH")]).writeto(path)


def write_fit(path, table):
    """/fits of the rows as a fit writes it."""
    with h5py.File(path, "w") as file:
        fits = file.create_group("fits")
        for name, type_ in ("TARGETID", "i8"), ("STATUS", "i4"), ("RVS_WARN", "i8"):
            fits[name] = np.array([s[name] for s in table], dtype=type_)
        done = fits["STATUS"][...] == FITTED
        fits["FIT_INFO"] = np.zeros(len(table), dtype="i4")
        fits["SUCCESS"] = (done & (fits["RVS_WARN"][...] == 0)).astype("u1")
        for k in NAMES:
            fits[k] = np.where(done, [s["true"][k] + s["delta"][k] for s in table], np.nan)
            fits[k + "_ERR"] = np.where(done, ERROR[k], np.nan)
        for name, values, of, names in (
                ("STATUS", "CODES", [0, FITTED, NO_USABLE_ARM], [b"NOT_DONE", b"FITTED", b"NO_USABLE_ARM"]),
                ("RVS_WARN", "BITS", [CHISQ, BAD_SPECTRUM, HULL], [b"CHISQ", b"BAD_SPECTRUM", b"HULL"])):
            fits[name].attrs.update({values: of, "NAMES": np.array(names)})


class DemoTools(ProgramTest):
    @classmethod
    def setUpClass(cls):
        table = stars()
        # another order in the fit than in the truth
        cls.rows = [s for s in table if s["STATUS"] is not None]
        np.random.default_rng(1).shuffle(cls.rows)
        write_truth(tmp("truth.fits"), table)
        write_fit(tmp("fit.h5"), cls.rows)
        for name, seed in ("a", 1), ("b", 2):  # real fits, whose spectra are drawn
            run("simulate", "--output", tmp(name), "--stars", 20, "--sn", "20,80", "--seed", seed)
            run("fit", "--library", os.path.join(SOURCE, "libraries/fgk.h5"), "--output",
                tmp(name + ".h5"), "--models", tmp(name + "-models.h5"), "--catalog",
                tmp(name + "/catalog.txt"))
        os.mkdir(tmp("pictures"))

    def tool(self, name, *args):
        return ended([sys.executable, "-B", os.path.join(TOOLS, name), *args], cwd=TMP)

    def test_table(self):
        done = self.tool("demo_table.py", "fit.h5", "truth.fits")
        self.assertEqual(done.returncode, 0, done.stderr)
        for want in (f"{3 * N_BIN} stars without a defect and without a warning",
                     r"Left out: 3 stars with a warning \(HULL 3\).$",
                     r"Left out: 1 stars that were not fitted \(NO_USABLE_ARM\).$",
                     r"^sky +2  not selected 2 +-  -$",
                     r"^no_arm +1  NO_USABLE_ARM +-  BAD_SPECTRUM$",
                     r"^noise +1  FITTED +-  CHISQ, HULL$",
                     r"^half_masked +1  FITTED +-0\.50 ± 1\.50  -$"):
            self.assertRegex(done.stdout, f"(?m){want}")
        self.statistics(done.stdout.splitlines())
        self.ten_stars([line.split() for line in done.stdout.splitlines()
                        if line.lstrip().startswith("39627")])

    def statistics(self, lines):
        found, name = {}, None
        for line in lines:
            row = re.fullmatch(r"(?:([A-Z]+) \([^)]*\))? +(\S+)  +(\d+)" + 4 * r" +(\S+)", line)
            if row:
                name = row[1] or name
                found[name, row[2]] = (int(row[3]), *(float(v) for v in row.groups()[3:]))
        want = {}
        for k in NAMES:
            bins = list(BINS)[: 2 if k == "VSINI" else 3]
            deltas = []
            for i, label in enumerate(bins):
                deltas.append((i + 1) * OFFSET[k] + WIDTH[k] / (i + 1) * U)
                width = HALF * WIDTH[k] / (i + 1)
                want[k, label] = (N_BIN, (i + 1) * OFFSET[k], width, ERROR[k], width / ERROR[k])
            deltas = np.concatenate(deltas)
            width = 0.5 * np.diff(np.percentile(deltas, [15.865, 84.135]))[0]
            want[k, "all"] = (len(deltas), np.median(deltas), width, ERROR[k], width / ERROR[k])
        self.assertEqual(sorted(found), sorted(want))
        digits = {"VRAD": 3, "TEFF": 1, "VSINI": 2}  # that are printed
        for key, numbers in want.items():
            rounding = 0.5001 * 10.0 ** -digits.get(key[0], 3)
            self.assertEqual(found[key][0], numbers[0], key)
            for i in (1, 2, 3):
                self.assertAlmostEqual(found[key][i], numbers[i], delta=rounding, msg=key)
            self.assertAlmostEqual(found[key][4], numbers[4], delta=0.00501, msg=key)

    def ten_stars(self, lines):
        self.assertEqual(len(lines), 10)
        by_id = {s["TARGETID"]: s for s in self.rows}
        sn = [by_id[int(words[0])]["SN"] for words in lines]
        self.assertEqual(sn, sorted(sn))
        for words in lines:
            star = by_id[int(words[0])]
            for k, recovered, true in zip(NAMES, words[2::2], words[3::2]):
                rounding = 0.51 if k == "TEFF" else 0.051 if k == "VSINI" else 0.0051
                self.assertAlmostEqual(float(recovered), star["true"][k] + star["delta"][k],
                                       delta=rounding)
                self.assertAlmostEqual(float(true.strip("()")), star["true"][k], delta=rounding)

    def test_files_of_another_survey(self):
        write_fit(tmp("stray.h5"), self.rows + [dict(self.rows[0], TARGETID=12345)])
        for args, parts in ((("demo_table.py", "stray.h5", "truth.fits"),
                             ("truth.fits", "stray.h5", "12345")),
                            (("demo_plot.py", "a.h5", "b-models.h5", "a/truth.fits", "pictures"),
                             ("b-models.h5", "another result"))):
            self.assertOneLine(self.tool(*args), *parts, status=1)

    def test_pictures(self):
        done = self.tool("demo_plot.py", "a.h5", "a-models.h5", "a/truth.fits", "pictures")
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        # that there are lines and points, by the hues that only they have: model red over blue,
        # residuals blue over red; low S/N green over blue, high S/N blue over green
        red, green, blue = range(3)
        for name, hues in (("spectra.png", ((red, blue), (blue, red))),
                           ("recovery.png", ((green, blue), (blue, green)))):
            # without the colour bar
            pixels = 255.0 * matplotlib.image.imread(tmp("pictures/" + name))[:, :1100, :3]
            for more, less in hues:
                n_pixel = (pixels[..., more] - pixels[..., less] > 60.0).sum()
                self.assertGreater(n_pixel, 500, f"{name}: {more} over {less}")

    def test_stars_to_draw(self):
        survey = demo_plot.Survey(tmp("fit.h5"), tmp("truth.fits"))
        shown = demo_plot.choose(survey)
        self.assertEqual(len(set(shown)), 4)
        self.assertTrue(survey.good[shown].all())
        # 6800 K and S/N 70 are nearest to the third bin, 4400 K and S/N 10 to the first
        self.assertEqual([survey.sn[shown[0]], survey.sn[shown[3]]], [39.9, 5.0])

    def test_binned(self):
        wave = np.array([1.0, 2.0, 3.0, 4.0, 5.0])  # the last one fills no bin
        flux, ivar = np.array([2.0, 8.0, 0.0, 0.0, 9.0]), np.array([1.0, 3.0, 0.0, 0.0, 1.0])
        model = np.array([1.0, 2.0, 5.0, 7.0, 9.0])
        wave, flux, weight, model = drawing.binned(wave, flux, ivar, model, 2)
        np.testing.assert_allclose(wave, [1.5, 3.5])
        np.testing.assert_allclose(flux, [6.5, 0.0])
        np.testing.assert_allclose(weight, [4.0, 0.0])
        np.testing.assert_allclose(model, [1.75, 6.0])
