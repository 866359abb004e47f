# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the tool that computes grids: its plan, its bookkeeping and one run.  Also tests of the
shipped library's recipe and validation, with made-up models for the grid and made-up MILES stars.

Packages that the tool fetches are not needed: small made-up files replace their files, and a
script with known spectra replaces Turbospectrum."""

import copy
import gzip
import importlib.util
import types
from unittest import mock

from base import *  # noqa: F403

sys.dont_write_bytecode = True
from starmill.grids import atmospheres as a, lines, plan, real_grid, synthesis  # noqa: E402
from starmill.templates.library_data import hull_distance  # noqa: E402

# This script replaces both programs of Turbospectrum.  It writes a falling continuum and, every
# 10 A, a Gaussian line of depth 0.5 and sigma 0.2 A.  At 6000 K it exits with 0, but no spectrum.
FAKE = """#!%s
import re, sys
import numpy as np
text = sys.stdin.read()
key = dict(re.findall(r"'([^']+):'\\s+'([^']*)'", text))
if "RESULTFILE" not in key:
    teff = [float(x.split()[1]) for x in open("model").readlines()[1:]][0]
    open("opac", "w").write("%%g" %% teff)
    sys.exit(0)
teff = float(open("opac").read())
if abs(teff - 6000) < 1:
    print("wrong line data")
    sys.exit(0)
first, last, step = (float(key["LAMBDA_" + x]) for x in ("MIN", "MAX", "STEP"))
w = first + step * np.arange(round((last - first) / step) + 1)
c = 0.55 * 5.6704e-5 * teff**4 / 6470 * (6700 / w)
n = 1 - 0.5 * np.exp(-0.5 * ((w - 10 * np.rint(w / 10)) / 0.2) ** 2)
np.savetxt("spectrum", np.stack([w, n, n * c], axis=1), fmt=["%%.3f", "%%.5f", "%%.5e"])
"""


class Plan(unittest.TestCase):
    def test_corners_come_first_and_labels_are_in_range(self):
        models = plan.plan(400)
        self.assertEqual(plan.plan(40), models[:40])
        self.assertEqual([{m[i] for m in models[:16]} for i in range(4)],
                         [{4000.0, 7250.0}, {0.5, 2.0, 5.0}, {-2.5, 0.5}, {-0.1, 0.5}])
        self.assertEqual(len(set(models)), 400)
        for teff, logg, feh, alpha in models:
            self.assertTrue(4000 <= teff <= 7250 and -2.5 <= feh <= 0.5 and -0.1 <= alpha <= 0.5)
            self.assertTrue(plan.FGK.lowest_logg(teff) - 0.005 <= logg <= 5)
        self.assertEqual(len({plan.name_of(m) for m in models}), 400)
        self.assertEqual(plan.name_of((4000, 0.5, -2.5, -0.1)), "t4000_g+0.50_m-2.50_a-0.10")
        hot = plan.plan(100, plan.OBA)
        self.assertEqual([{m[i] for m in hot[:16]} for i in range(4)],
                         [{7000.0, 15000.0}, {2.0, 2.5, 5.0}, {-2.5, 0.5}, {0.0, 0.4}])
        self.assertEqual(len({plan.name_of(m) for m in hot}), 100)

    def test_abundances_are_drawn_beside_the_labels(self):
        models = plan.plan(400, plan.FGK_ELEMENTS)
        self.assertEqual([m[:4] for m in models], plan.plan(400))
        drawn = np.array(models)
        for k, (card, _, _, is_alpha, (low, high)) in enumerate(plan.ELEMENTS):
            x = drawn[:, 4 + k] - is_alpha * drawn[:, 3]
            share = np.histogram(x, 4, (low - 0.01, high + 0.01))[0] / 400
            self.assertLess(np.abs(share - 0.25).max(), 0.02, card)  # chance alone: 0.06
            self.assertLess(abs(np.corrcoef(x, drawn[:, 2])[0, 1]), 0.1, card)  # 2 sigma of chance
        # the Sun by Grevesse, Asplund & Sauval 2007: C 8.39, Ni 6.23; as Turbospectrum reads them
        text = synthesis.control(*synthesis.composition((5000.0, 4, -0.5, 0.2) + 8 * (0.1,) + (1,)))
        self.assertIn("'ALPHA/Fe:'  '0.200'\n", text)
        self.assertIn("'INDIVIDUAL ABUNDANCES:'  '8'\n6\n7.990\n7\n7.380\n", text)
        self.assertTrue(text.endswith("\n28\n5.830\n"))
        self.assertNotIn("INDIVIDUAL", synthesis.control(*synthesis.composition((5000.0, 4, 0, 0))))

    def test_any_first_models_fill_all_of_the_space(self):
        # Each eighth of a label's range has n / 25 models or more.  With 100 random models a given
        # eighth (12.5 expected) would have fewer than 4 with a chance of 1 in 300.
        for n in (100, 200, 400):
            models = plan.plan(n)
            for i, (low, high) in ((0, plan.FGK.TEFF), (3, plan.FGK.ALPHA)):
                count = [0] * 8
                for m in models:
                    count[min(7, int(8 * (m[i] - low) / (high - low)))] += 1
                self.assertGreaterEqual(min(count), n // 25, (n, i, count))
            dense = sum(m[2] >= plan.FGK.FEH_DENSE for m in models) / n
            self.assertTrue(0.55 < dense < 0.75, dense)

    def test_gravity_and_microturbulence(self):
        self.assertEqual([plan.FGK.lowest_logg(t) for t in (4000, 6000, 6250, 7000, 7250)],
                         [0.5, 0.5, 0.75, 1.5, 2.0])
        for labels, km_s in (((5777, 4.44), 1.04), ((4750, 2.5), 1.34), ((4000, 1.0), 1.72)):
            self.assertAlmostEqual(plan.microturbulence(*labels), km_s, delta=0.02)
        self.assertEqual(plan.microturbulence(4000, 4.5), plan.microturbulence(4600, 4.5))
        self.assertEqual([plan.microturbulence(t, 4) for t in (7250, 8250, 12000, 15000)],
                         [1.97, 2.35, 1.0, 1.0])


class Bookkeeping(unittest.TestCase):
    def test_states(self):
        folder = tempfile.mkdtemp(dir=TMP)
        models = plan.plan(4)
        names = [plan.name_of(m) for m in models]
        store = plan.Store(folder, {"sigma_aa": 0.2})
        store.mark_bad(names[0], "killed")
        store.mark_bad(names[2], "did not converge\n")
        store.keep(names[0], put("part", "spectrum"))  # a bad model that is made is good
        self.assertEqual(store.to_do(models), [models[1], models[3]])
        self.assertEqual(store.to_do(models, retry_bad=True), models[1:])
        self.assertEqual(store.counts(models), {"done": 1, "bad": 1, "to do": 2})
        self.assertEqual(store.why(names[2]), "did not converge")
        plan.Store(folder, {"sigma_aa": 0.2})
        with self.assertRaisesRegex(ValueError, "other settings .sigma_aa"):
            plan.Store(folder, {"sigma_aa": 0.5})


class Atmospheres(unittest.TestCase):
    @staticmethod
    def value(teff, logg, feh):
        t, g = teff / 5000, logg - 2
        return 1 + t**3 - 2 * t * g**3 + g * feh**3 + t * g * feh

    def nodes(self):
        return {(t, g, f): np.full((a.N_DEPTH, a.N_COLUMN), self.value(t, g, f))
                for t in np.arange(4000.0, 5751, 250) for g in np.arange(0.5, 5.1, 0.5)
                for f in np.arange(-2.5, 0.51, 0.25)}

    def test_cubics_are_exact_also_at_the_edge(self):
        at = a.Atmospheres(self.nodes())
        for labels in ((4610, 2.2, -0.9), (4001, 0.51, 0.49), (5749, 4.99, -2.49), (4500, 3.3, 0)):
            columns, _ = at.columns(*labels)
            self.assertAlmostEqual(columns[7, 2], self.value(*labels), delta=1e-9)

    def test_a_gap_takes_fewer_nodes_or_none(self):
        nodes = self.nodes()
        del nodes[4250.0, 2.0, -1.0]
        at = a.Atmospheres(nodes)
        self.assertEqual(at.columns(4610, 2.2, -0.9)[1], (2, 4, 4))
        with self.assertRaisesRegex(a.NoAtmosphere, "no atmospheres around"):
            at.columns(4250, 2.2, -0.9)
        with self.assertRaisesRegex(a.NoAtmosphere, "Teff 3999"):
            at.columns(3999, 2.2, -0.9)
        self.assertEqual(a.fill_single_gaps(nodes), 1)
        self.assertIn((4250.0, 2.0, -1.0), nodes)

    def test_atlas_is_read_and_has_an_axis_of_alpha(self):
        layer = " 1.0E-02  %.1f 1.0E+03 1.0E+12 1.0E-01 0. 0. 0. 0. 0.\n"
        labels = [(t, 4.0, 0.0, f) for t in (3500.0, 13000.0, 14000.0, 15000.0) for f in (0.0, 0.4)]
        text = "".join("TEFF %.0f GRAVITY 4 LTE\nREAD DECK6 72 RHOX\n" % x[0] + 72 * (layer % x[0])
                       + "PRADK\n" for x in labels)
        folder = tempfile.mkdtemp(dir=TMP)
        put(os.path.join(folder, "kurucz_data.txt.gz"), gzip.compress(text.encode()))
        index = [dict(zip(("teff", "logg", "metal", "alpha"), x), nlines=75) for x in labels]
        at = a.Atmospheres(a.read_atlas(folder, index, plan.OBA.TEFF))
        self.assertEqual(at.axes[0], [13000, 14000, 15000])
        columns, width = at.columns(13600.0, 4.0, 0.0, 0.1)
        self.assertEqual(width, (3, 1, 1, 2))
        np.testing.assert_allclose(columns[3], [13600, -2, 3, 12, -1])
        path = os.path.join(folder, "model")
        a.write_atlas(path, columns, 4.0)
        self.assertEqual(content(path, "r").splitlines()[1].split()[1:4],
                         ["13600.00", "1.000000e+03", "1.000000e+12"])

    def test_alpha_is_taken_as_metals_of_the_same_mass(self):
        at = a.Atmospheres(self.nodes())
        got, _ = at.atmosphere(5000, 3.0, -1.0, 0.4)
        same, _ = at.columns(5000, 3.0, -1.0 + np.log10(0.638 * 10**0.4 + 0.362))
        self.assertTrue((got == same).all())
        # a little below the lowest metallicity the cubic extrapolates
        low = -2.5 + np.log10(0.638 * 10**-0.1 + 0.362)
        got, _ = at.atmosphere(5000, 3.0, -2.5, -0.1)
        self.assertAlmostEqual(got[0, 0], self.value(5000, 3.0, low), delta=1e-9)
        with self.assertRaisesRegex(a.NoAtmosphere, "Fe/H. -2.6 "):
            at.columns(5000, 3.0, -2.6)


class Lists(unittest.TestCase):
    def test_names_of_molecules(self):
        for moog, name in (("607.01214", "0607.012014"), ("606.01213", "0606.012013"),
                           ("112.00124", "0112.000024"), ("126.0", "0126.000000")):
            self.assertEqual(lines.isotopes(moog), name)

    def test_atoms_of_moog(self):
        folder = tempfile.mkdtemp(dir=TMP)
        put(os.path.join(folder, "moogatom.gz"), gzip.compress(
            b"  3933.663      20.1     0.000     0.134\n  3900.000      26.0     1.000    -1.000\n"
            b"  3835.384       1.0    10.200    -1.300\n  5000.000      26.0     1.000    -1.000\n"
            b"  3901.000      26.2     1.000    -1.000\n"))
        put(os.path.join(folder, "Barklem.dat"), "  3933.660  20.1  -7.760   0.223    1.50E+08\n")
        rows = lines.atoms_of_moog(folder, folder)
        self.assertEqual(set(rows), {("20.000", 2), ("26.000", 1)})
        self.assertEqual(rows["20.000", 2][0][1].split()[:6],
                         ["3933.663", "0.000", "0.134", "-7.760", "1.0", "1.50e+08"])
        self.assertEqual(rows["26.000", 1][0][1].split()[3], "1.400")
        path = os.path.join(folder, "list")
        self.assertEqual(lines.write(path, [rows], 3895, 3905), 1)
        helium = dict(lines.atoms_of_hot_stars()["2.000", 1])  # Turbospectrum's order: width 7th
        self.assertEqual(helium[4471.479].split()[:3] + helium[4471.479].split()[6:7],
                         ["4471.479", "20.964", "-0.007", "-3.60"])
        self.assertEqual(content(path, "r").splitlines()[0].split(), ["'", "26.000'", "1", "1"])


class Checks(unittest.TestCase):
    """A model that is wrong is called bad, with the reason."""

    def test_samples(self):
        first, last, step, _ = plan.FGK.PIECES[1]
        n = round((last - first + 2 * lines.PAD) / step) + 1
        # wavelength, normalised, flux
        wave = first - lines.PAD + step * np.arange(n)
        good = np.stack([wave, np.full(n, 0.99), np.full(n, 2.0)], axis=1)
        bad = {why: good.copy() for why in ("not finite", "not above 0", "flux above the continuum")}
        bad["not finite"][1000, 2] = np.nan
        bad["not above 0"][1000, 2] = 0
        bad["flux above the continuum"][1000, 1] = 1.1
        bad["samples in the place of"] = good[:-5]
        bad["under 2 % of samples"] = good * [1, 0.2, 1]
        path = tmp("spectrum")
        np.savetxt(path, good, fmt="%.5f")
        wave, flux, cont = synthesis.read_spectrum(path, plan.FGK.PIECES[1])
        self.assertEqual((len(wave), flux[0]), (len(cont), 2.0))
        for why, data in bad.items():
            np.savetxt(path, data, fmt="%.5f")
            with self.assertRaisesRegex(synthesis.BadModel, why):
                synthesis.read_spectrum(path, plan.FGK.PIECES[1])

    def test_pieces_that_do_not_meet(self):
        pieces = []
        for first, last, step in lines.PIECES:
            wave = np.arange(first - lines.PAD, last + lines.PAD, step)
            pieces.append((wave, np.ones(len(wave)), np.full(len(wave), 1.1)))
        at, flux, cont = synthesis.join(pieces)
        np.testing.assert_allclose(flux, 1, atol=1e-12)
        np.testing.assert_allclose(cont, 1.1, atol=1e-12)
        for changed in ((1.03, 1), (1, 1.03)):
            other = list(pieces)
            other[1] = (pieces[1][0], pieces[1][1] * changed[0], pieces[1][2] * changed[1])
            says = r"pieces that meet at 4500 A differ by \d\.\d % of the continuum"
            with self.assertRaisesRegex(synthesis.BadModel, says):
                synthesis.join(other)
        with self.assertRaisesRegex(synthesis.BadModel, "do not cover"):
            synthesis.join(pieces[:-1])

    def test_a_star_of_another_temperature(self):
        at = np.arange(3540.0, 10010, plan.FGK.STEP_AA)
        flux = np.full(len(at), 0.55 * synthesis.STEFAN * 5000.0**4 / 6470)
        self.assertAlmostEqual(synthesis.check((5000.0, 4, 0, 0), at, flux, flux), 0.55, delta=0.01)
        with self.assertRaisesRegex(synthesis.BadModel, "of sigma Teff.4"):
            synthesis.check((6500.0, 4, 0, 0), at, flux, flux)


class Run(ProgramTest):
    """`starmill grid compute` with a script in the place of Turbospectrum."""

    def setUp(self):
        self.work = tempfile.mkdtemp(dir=TMP)
        os.makedirs(os.path.join(self.work, "lines"))
        os.makedirs(os.path.join(self.work, "turbospectrum", "DATA"))
        for i in range(len(lines.PIECES)):
            for kind in lines.KINDS:
                put(os.path.join(self.work, "lines", "%s%d.list" % (kind, i)), "a line")
        put(os.path.join(self.work, "lines", "done"), repr((lines.PIECES, lines.KINDS)) + "\n")
        for program in ("babsma_lu", "bsyn_lu"):
            path = os.path.join(self.work, "turbospectrum", program)
            os.chmod(put(path, FAKE % sys.executable), 0o755)
        # layers have their node's Teff; at one corner of the grid 6000 K, so that FAKE fails
        nodes = {}
        for t in np.arange(3750.0, 7501, 250):
            for g in np.arange(0.0, 5.51, 0.5):
                for f in np.arange(-2.5, 1.1, 0.25):
                    column = np.full((a.N_DEPTH, a.N_COLUMN), 1.0)
                    column[:, 0] = 6000 if (t, g) == (7250.0, 2.0) and f < -1 else t
                    nodes[float(t), float(g), float(f)] = column
        a.save(os.path.join(self.work, "atmospheres.npz"), nodes)

    def tool(self, *args, code=0):
        done = self.ends(code, "grid", *args, env={"STARMILL_PYTHON": sys.executable})
        return done.stdout + done.stderr

    def test_interrupt(self):
        with mock.patch("concurrent.futures.Future.result", side_effect=KeyboardInterrupt), \
                self.assertRaisesRegex(Exception, "the same command continues"):
            real_grid.compute(self.work, plan.FGK, 1, 1, False)

    def test_models_are_made_once_and_bad_ones_are_named(self):
        out = self.tool("compute", self.work, "--models", "2", "--workers", "2")
        self.assertIn("ended: 1 good, 1 bad", out)
        self.assertIn("bsyn_lu ended with status 0: wrong line data", out)
        self.assertIn("1 done, 1 bad, 0 to do", self.tool("status", self.work, "--models", "2"))
        self.assertIn("0 of 2 models", self.tool("compute", self.work, "--models", "2"))
        models = os.path.join(self.work, "models-fgk")
        with pyfits.open(os.path.join(models, "t4000_g+0.50_m-2.50_a-0.10.fits")) as f:
            data, head = f[1].data, f[1].header
            self.assertEqual([f[0].header[c] for c in plan.CARDS], [4000.0, 0.5, -2.5, -0.1])
            self.assertEqual(head["TEFF"], 4000.0)
            wave, ratio = data["WAVE"], data["FLUX"] / data["CONTINUUM"]
        # The line is at 5000 A in air (index 1.00027896 by Morton).  Its sigma is 0.2 A, and the
        # grid is smoothed by another 0.2 A.  The measured error is 1e-4.
        expected = 1 - 0.5 * 0.2 / np.hypot(0.2, 0.2) * np.exp(
            -0.5 * ((5001.3948 - wave) / np.hypot(0.2, 0.2)) ** 2)
        self.assertLess(np.abs(ratio - expected)[np.abs(wave - 5001.3948) < 4].max(), 5e-4)
        self.assertTrue((np.abs(np.diff(wave) - 0.125) < 1e-9).all())
        self.assertAlmostEqual(ratio.max(), 1, delta=2e-4)
        hot = np.full((72, 5), 2.0)
        hot[:, 0] = 7000
        a.save(os.path.join(self.work, "atmospheres-oba.npz"), {(7000.0, 2.0, -2.5, 0.0): hot})
        self.assertIn("ended: 1 good", self.tool("compute", self.work, "--plan", "oba",
                                                 "--models", "1"))
        self.assertEqual(sorted(os.listdir(os.path.join(self.work, "models-oba"))),
                         ["settings.json", "t7000_g+2.00_m-2.50_a+0.00.fits"])
        self.assertIn("ended: 1 good", self.tool("compute", self.work, "--plan", "fgk-hr",
                                                 "--models", "1"))
        wave = pyfits.getdata(models + "-hr/t4000_g+0.50_m-2.50_a-0.10.fits", 1)["WAVE"]
        gaps = np.flatnonzero(np.diff(wave) > 1)
        ends = zip(wave[np.r_[0, gaps + 1]], wave[np.r_[gaps, len(wave) - 1]])
        np.testing.assert_allclose(list(ends), plan.FGK_HR.STORED, atol=0.013)
        path = os.path.join(models, "settings.json")
        put(path, json.dumps({**json.loads(content(path)), "sigma_aa": 1.0}))
        self.assertIn("other settings", self.tool("compute", self.work, code=2))


SEED = 18
N_MODEL, N_STAR = 60, 80
SIGMA, SIGMA_STAR = 0.5, 2.5 / 2.3548  # A
LINE = 6100.0  # that the models lack
# labels: lowest, highest
LABELS = {"TEFF": (4500, 6500), "LOGG": (2, 5), "FEH": (-1.5, 0.3), "ALPHAFE": (-0.1, 0.5)}
SETUP = "arms: [{name: opt, min: 3960, max: 7430, ln_step: 5.5e-5}]\n"
rng = np.random.default_rng(SEED)
N_LINE = 80
LINES = dict(at=np.sort(rng.uniform(3970, 7420, N_LINE)), depth=rng.uniform(-2, -0.3, N_LINE),
             slope=rng.normal(size=(4, N_LINE)) * np.array([[0.5], [0.2], [0.3], [0.1]]))


def spectrum(wave, label, sigma, strength=0.0, vel=0.0):
    """Lines that change with the labels, and one more line of strength `strength`."""
    x = [(v - np.mean(r)) / (0.5 * (r[1] - r[0])) for v, r in zip(label, LABELS.values())]
    depth = 1 - np.exp(-np.exp(LINES["depth"] + np.array(x) @ LINES["slope"]))
    flux = np.ones(len(wave))
    for at, d, s in (*zip(LINES["at"], depth, np.full(N_LINE, 0.8)), (LINE, strength, 0.8)):
        width = np.hypot(s, sigma)
        at = at * (1 + vel / 299792.458)
        near = abs(wave - at) < 8 * width
        flux[near] *= 1 - d * s / width * np.exp(-0.5 * ((wave[near] - at) / width) ** 2)
    return flux


def air(wave):
    """Air wavelengths of vacuum ones, A (Morton 2000)."""
    s = (1e4 / wave) ** 2
    return wave / (1 + 8.34254e-5 + 2.406147e-2 / (130 - s) + 1.5998e-4 / (38.9 - s))


def random_labels(n, edges):
    low, high = np.array(list(LABELS.values())).T
    u = rng.uniform(0 if edges else 0.1, 1 if edges else 0.9, (n, 4))
    if edges:
        u[:16] = [[(k >> i) & 1 for i in range(4)] for k in range(16)]
    return low + (high - low) * u


def write_models(folder):
    os.makedirs(folder)
    wave = np.arange(3940, 7450, 0.4)
    for k, label in enumerate(random_labels(N_MODEL, True)):
        flux = 1e6 * spectrum(wave, label, SIGMA)
        table = bintable({"WAVE": wave, "FLUX": ("E", flux), "CONTINUUM": ("E", np.full(len(wave), 1e6))})
        table.header.update({**dict(zip(LABELS, label)), "FWHM": SIGMA * 2.3548,
                             "MEDIUM": "vacuum"})
        table.writeto(os.path.join(folder, f"m{k:03d}.fits"))


def write_miles(path):
    """As MILES is packed; three labels and the velocity of each star."""
    labels = random_labels(N_STAR, False)
    labels = 0.5 * (labels + labels.mean(axis=0))  # so dense that the correction does not fade
    labels[:, 3] = np.clip(-0.4 * labels[:, 2], 0, 0.4)
    wave = np.arange(3945, 7440, 0.1)
    pixels = 3955 + 0.9 * np.arange(3850)
    from scipy.interpolate import CubicSpline
    vrad = 20 + 10 * rng.normal(size=N_STAR)
    flux = [CubicSpline(air(wave), spectrum(wave, label, SIGMA_STAR, *extra))(pixels)
            for label, extra in zip(labels, zip(rng.uniform(0, 0.5, N_STAR), vrad))]
    flux = np.array(flux) * (1 + 0.004 * rng.normal(size=(N_STAR, len(pixels))))
    image = pyfits.PrimaryHDU(flux.astype("f4"))
    image.header.update(CRVAL1=pixels[0], CDELT1=0.9, CRPIX1=1, FWHM=2.5, WAVEFRAM="AIR")
    table = {name: ("E", labels[:, i]) for i, name in enumerate(list(LABELS)[:3])}
    pyfits.HDUList([image, bintable({**table, "NAME": ("8A", [f"s{i}" for i in range(N_STAR)])}, "LABELS")]).writeto(path)
    return np.column_stack([labels[:, :3], vrad])


PYHAMMER = os.path.join(DATA, "real", "cool", "pyhammer-cool.fits.gz")
RECIPE = "-m", "starmill.templates.real_library"
VALIDATION = os.path.join(SOURCE, "campaigns", "validate_library.py"),


def tool(script, *args):
    return ended([sys.executable, "-B", *script, "--starmill", STARMILL, *args], env=PACKAGE)


@unittest.skipUnless(importlib.util.find_spec("scipy"), "no SciPy (Debian: python3-scipy)")
class Elements(unittest.TestCase):
    """Models whose lines respond as written here, on a part of the shipped library."""

    @classmethod
    def setUpClass(cls):
        from starmill.mocks import forward
        from starmill.templates import elements, emulate, library_file
        cls.elements, cls.emulate = elements, emulate
        whole = library_file.read(os.path.join(SOURCE, "libraries", "fgk.h5"))
        cls.library = forward.cut_arms(whole, {"mg": (5100.0, 5250.0)})
        cls.wave = cls.library.arm[0].wave_aa
        models = np.array(plan.plan(150, plan.FGK_ELEMENTS))
        four, alpha = models[:, :4], np.array([e[3] for e in plan.ELEMENTS])
        cls.departure = models[:, 4:12] - alpha * models[:, 3:4]
        continuum = np.full((150, len(cls.wave)), 1.3, "f4")
        flux = emulate.flux(cls.library, 0, four)
        depth = np.maximum(np.log(1.3 / flux), 0)
        flux *= np.exp(sum(depth * cls.share(k) * cls.departure[:, k:k + 1] for k in range(8)))
        grid = types.SimpleNamespace(
            values=models, good=lambda _: np.arange(150),
            flux=lambda _, rows, what="flux": (flux if what == "flux" else continuum)[rows])
        cls.process = elements.Process(elements.Models(grid, cls.library))
        cls.process.run()
        cls.values = four[16:]

    @classmethod
    def share(cls, k):
        """Change of ln flux by 1 dex of element k, as a share of the depth; only Mg and Ni."""
        centre = {"MGFE": 5174, "NIFE": 5220}.get(plan.ELEMENTS[k][0])
        return -0.4 * np.exp(-0.5 * ((cls.wave - centre) / 4) ** 2) if centre else 0 * cls.wave

    def test_lines_have_the_elements_that_the_models_say(self):
        depth = np.maximum(np.log(1.3) - self.emulate.ln_flux(self.library, 0, self.values), 0)
        for k, found in enumerate(self.process.responses(self.values)):
            true = depth * self.share(k)
            lines = abs(true) > 0.1
            self.assertLess(np.median(abs(found - true)), 0.002)
            if lines.any():
                self.assertLess(np.median(abs(found[lines] / true[lines] - 1)), 0.2)

    def test_network_is_that_of_the_library_plus_the_responses(self):
        e, library = self.elements, copy.deepcopy(self.library)
        before = self.emulate.ln_flux(library, 0, self.values)
        e.add_labels(library, np.full(8, 0.05))
        e.join(library, e.parts_of(self.process, self.values), self.values)
        solar = np.hstack([self.values] + [self.values[:, 3:] * x[3] for x in plan.ELEMENTS])
        np.testing.assert_allclose(self.emulate.ln_flux(library, 0, solar), before, atol=1e-5)
        for k, response in enumerate(self.process.responses(self.values)):
            moved = solar.copy()
            moved[:, 4 + k] += 0.2
            change = self.emulate.ln_flux(library, 0, moved) - before
            self.assertLess(abs(change - 0.2 * response).max(), 0.003 + 0.1 * response.std())
        self.assertEqual(library.guess_label.shape[1], 12)
        self.assertLessEqual(hull_distance(library, library.guess_label).max(), 1e-9)
        for moved, out in ((0.19, False), (0.45, True)):  # [Mg/alpha], the range of the models
            self.assertEqual(hull_distance(library, solar[:1] + np.eye(12)[7] * moved)[0] > 0, out)
        self.assertEqual([label.column for label in library.label[4:6]], ["CFE", "NFE"])


@unittest.skipUnless(importlib.util.find_spec("scipy"), "no SciPy (Debian: python3-scipy)")
class RealLibrary(ProgramTest):
    @unittest.skipUnless(os.path.exists(PYHAMMER), "no test data")
    def test_m_dwarfs(self):
        """The recipe makes the shipped library, whose floors cover errors of templates left out."""
        shipped, out = os.path.join(SOURCE, "libraries", "m.h5"), tmp("dwarfs.h5")
        done = tool(("-m", "starmill.templates.m_library"), PYHAMMER, tmp("work-m"), out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, "left out: 1.[0-2] km/s, 7. K, 0.3. dex\n")
        for name in "recipe", "sources", "models":
            with h5py.File(shipped) as a, h5py.File(out) as b:
                self.assertEqual(a.attrs[name], b.attrs[name])
                for at in "labels/label0", "labels/label1":
                    np.testing.assert_allclose(a[at].attrs["floor"], b[at].attrs["floor"], 0.02)

    def test_labels_of_hot_stars_join_those_of_cool_ones(self):
        from starmill.templates import emulate, library_file, real_library
        shipped = [os.path.join(SOURCE, "libraries", name) for name in ("fgk.h5", "oba.h5")]
        shutil.copy(shipped[1], tmp("oba.h5"))
        step = {"TEFF": 90.0, "LOGG": -0.2, "FEH": -0.05}

        def fits(_recipe, _work, library, *_):  # the last star is flagged
            off = np.array([1, 1, 1, 50]) * (library.label[0].max > 9000)
            return {"SUCCESS": np.array([1, 1, 1, 0]), **{k: x * off for k, x in step.items()}}
        miles = None, np.ones((5, 9)), {"TEFF": np.array([7000.0, 7000, 7400, 7600, 9000])}
        with mock.patch.multiple(real_library, fit_miles=fits, read_miles=lambda _: miles):
            real_library.join(
                types.SimpleNamespace(commands=[]), types.SimpleNamespace(
                    base=shipped[0], miles="", work=TMP, starmill=STARMILL), tmp("oba.h5"))
        before, after = (library_file.read(path) for path in (shipped[1], tmp("oba.h5")))
        self.assertIn("shifted by -90 K, 0.2 log(cm s**-2), 0.05 dex (3 stars)", after.report)
        for teff, share in (7100, 1), (14500, 0.0625):
            at = np.array([[teff, g, m] for g in (3.0, 4.0) for m in (-1.0, 0.0)])
            new, old, not_moved = (emulate.ln_flux(*x) for x in (
                (after, 0, at), (before, 0, at + share * np.array(list(step.values()))),
                (before, 0, at)))
            self.assertLess(np.std(new - old), 1e-3 + share * 0.1 * np.std(new - not_moved))

    def test_recipe_and_validation(self):
        write_models(tmp("models"))
        labels = write_miles(tmp("miles.fits"))
        put("setup.yaml", SETUP)
        recipe = ("--miles", tmp("miles.fits"), "--setup", tmp("setup.yaml"), "--train",
                  "--emulator radial --components 12 --left-out 0", tmp("models"), tmp("work"))
        out = tmp("out/fgk.h5")
        done = tool(RECIPE, *recipe, out)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("60 models in", done.stderr)
        # of the plan oba, whose library has no [alpha/Fe]
        done = tool(RECIPE, "--plan", "oba", "--least", 50, "--limit", 0.1,
                    "--no-model-error", *recipe, out)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("bare.h5: 3 labels", done.stdout)
        self.assertIn("--limit", done.stderr)
        self.assertFalse(os.path.exists(out))
        done = tool(RECIPE, "--least", 50, "--rows", "half", *recipe, out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("40 spectra of MILES, 40 with a velocity", done.stdout)
        with h5py.File(out) as f:
            self.assertEqual((f.attrs["models"], f.attrs["name"]), (N_MODEL, b"fgk (MARCS, MILES)"))
            self.assertIn("MILES", f.attrs["sources"])
            self.assertIn("library train --emulator radial", f.attrs["recipe"])
            self.assertNotIn(TMP, f.attrs["recipe"])
            arm = f["arms/arm0"]
            wave, error = arm["wavelength"][:], arm["model_error"]
            size = np.sqrt(np.sum((error["sigmas"][:][:, None] * error["components"][:]) ** 2, axis=0)
                           + error["fraction"][:] ** 2)
        # The correction adds the mean of the line that the models lack.  The spread of the line's
        # depth over the stars stays: 0.144 for uniform depths from 0 to 0.5.  Smoothing broadens the
        # line's sigma from 0.8 to 1.33 A, so the spread becomes 0.087.  40 stars measure it to 11 %.
        self.assertLess(abs(wave[np.argmax(size)] - LINE), 1)
        self.assertAlmostEqual(size.max(), 0.087, delta=0.022)
        self.assertLess(np.median(size), 0.02)
        put("published.csv", "TARGETID,TEFF,LOGG,FEH,VRAD\n" + "".join(
            f"{i + 1},{a:.1f},{b:.3f},{c:.3f},{v:.3f}\n" for i, (a, b, c, v) in enumerate(labels)))
        done = tool(VALIDATION, "--sets", "", "--stars", "made up", tmp("work/miles.yaml"),
                    tmp("published.csv"), tmp("work/miles.fits"), tmp("checks"), "ours=" + out)
        self.assertEqual(done.returncode, 0, done.stderr)
        line = [s for s in done.stdout.splitlines() if s.startswith("| made up: all | ours |")]
        self.assertEqual(len(line), 1, done.stdout)
        cells = [c.strip().replace("−", "-") for c in line[0].split("|")]
        self.assertEqual(cells[3], "40")
        # 60 models in four labels give Teff to 25 K, 1 % of its range
        self.assertLess(abs(float(cells[6].split()[0])), 25)
        # the spectra's mean velocity, 20 km/s, does not become the templates' velocity
        self.assertLess(abs(float(cells[9].split()[0])), 1)
        self.assertLess(float(cells[6].split()[2]), 60)
