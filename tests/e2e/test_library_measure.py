# SPDX-License-Identifier: BSD-3-Clause
"""Tests starmill.templates: radial functions agree with their definition; model errors have
the components that made the residuals; fits scatter as a library's report says.  `starmill library
correct` learns from spectra a line that templates lack, and puts it into every kind of emulator."""

import dataclasses
import types
from unittest import mock

from base import *  # noqa: F403
from scipy.interpolate import CubicSpline
from scipy.ndimage import gaussian_filter1d, uniform_filter1d
from scipy.spatial.distance import cdist
from starmill.cli.basics import Failure
from starmill.templates import (correct, correction, emulate, library_file, measure, model_error, radial,
                                residuals, spectra)
from starmill.templates.correction import Calibrators
from starmill.templates.labels import make_hulls
from starmill.templates.library_data import (Arm, Emulator, Label, Library, Radial, SplineGrid,
                                             wavelengths)
import test_library_spectra as made

SEED = 16
LENGTH = np.array([1.0, 1.3, 0.8])


class RadialFunctions(unittest.TestCase):
    def setUp(self):
        rng = np.random.default_rng(SEED)
        self.x, self.weight = rng.normal(size=(80, 3)), rng.uniform(0.2, 2, 80)
        self.value = np.column_stack([np.sin(self.x[:, 0]) * self.x[:, 1],
                                      self.x[:, 2] ** 2 + 0.1 * rng.normal(size=80)])

    def fit(self, use=slice(None), smooth=0.01, degree=2, tolerance=0):
        return radial.RadialFit(self.x[use], LENGTH, self.weight[use], self.value[use], degree,
                                smooth, tolerance)

    def test_coefficients_solve_the_definition(self):
        fit, u = self.fit(), self.x / LENGTH
        poly = emulate.monomials(u, 2)
        at = np.hstack([cdist(u, u) ** 3, poly]) @ fit.coef
        np.testing.assert_allclose(at + fit.residual, self.value, atol=1e-12)
        # at the minimum weighted residuals are smoothing * coefficients, orthogonal to polynomials
        np.testing.assert_allclose(self.weight[:, None] * fit.residual, fit.smooth * fit.coef[:80],
                                   atol=1e-12)
        np.testing.assert_allclose(poly.T @ fit.coef[:80], 0, atol=1e-11)

    def test_leaving_out_is_fitting_without(self):
        fit = self.fit()
        for i in range(0, 80, 20):
            rest = np.delete(np.arange(80), i)
            other, u = self.fit(rest), self.x / LENGTH
            at = np.hstack([cdist(u[[i]], u[rest]) ** 3, emulate.monomials(u[[i]], 2)])
            at = at @ other.coef
            np.testing.assert_allclose(self.value[i] - at[0], fit.left_out[i], atol=1e-10)

    def test_smoothing_is_chosen_by_leaving_out(self):
        sums = np.array([(self.weight[:, None] * self.fit(smooth=s).left_out**2).sum(axis=0)
                         for s in radial.SMOOTHINGS])
        best = self.fit(smooth=radial.SMOOTHINGS)
        np.testing.assert_array_equal(best.smooth, radial.SMOOTHINGS[sums.argmin(axis=0)])
        wide = self.fit(smooth=radial.SMOOTHINGS, tolerance=1)
        self.assertTrue((wide.smooth >= best.smooth).all())

    def test_degree_falls_to_what_the_points_determine(self):
        self.x[:, 2] = self.x[:, 2] > 0  # two values have no square
        self.assertEqual(self.fit().degree, 1)
        self.x[:, 2] = self.x[:, 0]
        with self.assertRaisesRegex(Failure, "in a plane or on a line"):
            self.fit()


class Smoother(unittest.TestCase):
    def test_a_line_gets_the_kernels_variance(self):
        """Gaussians convolve to a Gaussian.  The spline is wrong by 5e-5 at most; a kernel that
        adds the pixel's variance would be wrong by 2e-3."""
        wave = 4000 * np.exp(1e-4 * np.arange(600))
        arm = types.SimpleNamespace(name="b", n_pix=600, wave_aa=wave, ln_wave0=np.log(4000),
                                    ln_step=1e-4)

        def line(sigma):
            return 1 - 0.5 * 1.2 / sigma * np.exp(-0.5 * ((wave - wave[300]) / sigma) ** 2)
        cut, inside = model_error.smoother(arm, 0.9)
        np.testing.assert_allclose(cut.apply(line(1.2)), line(1.5)[inside], atol=5e-5)


class ModelError(unittest.TestCase):
    """400 residuals, each with two patterns (rms 2 and 1 %), a rest of 0.4 % and a continuum.  Such
    a number of residuals gives an rms to 3.5 %."""
    N, N_PIX = 400, 600
    wave = 4000 * np.exp(1e-4 * np.arange(600))
    patterns = np.sqrt(2) * np.array([np.sin(0.4 * np.arange(600)),
                                      np.cos(0.9 * np.arange(600) + 1)])

    def made(self, noise=0.0, smooth=0):
        rng = np.random.default_rng(SEED)
        x = np.linspace(-1, 1, self.N_PIX)
        rest = rng.normal(size=(self.N, self.N_PIX + 80))
        kernel = np.exp(-0.5 * (np.arange(-40, 41) / smooth) ** 2) if smooth else np.eye(81)[40]
        kernel /= np.linalg.norm(kernel)
        rest = np.array([np.convolve(row, kernel, "valid") for row in rest])
        share = rng.normal(size=(self.N, 2)) * [0.02, 0.01]
        model = 1 + share @ self.patterns + 0.004 * rest + noise * rng.normal(size=rest.shape)
        return model * (1.3 + 0.2 * rng.normal(size=(self.N, 1)) * x - 0.1 * x**2) - 1

    def test_components_and_rest(self):
        for noise in (0, 0.01):
            error, _ = residuals.measure(self.wave, self.made(noise), 2, noise=noise)
            np.testing.assert_allclose(error.sigma, [0.02, 0.01], rtol=0.1)
            match = np.abs((error.component * self.patterns).mean(axis=1))
            np.testing.assert_allclose(match, 1, atol=0.02)
            rest = np.sqrt((error.fraction**2).mean())
            self.assertAlmostEqual(rest / 0.004, 1, delta=0.1 if noise else 0.03)
            self.assertAlmostEqual(error.correlation, 1, delta=0.15)
            rms, left = error.size()
            self.assertAlmostEqual(rms / np.sqrt(5.16e-4), 1, delta=0.1)
            self.assertAlmostEqual(left / 0.031, 1, delta=0.2)
            error, _ = residuals.measure(self.wave, self.made(noise), 2, np.tile([1, 0.25], 200), noise)
            rest = np.sqrt((error.fraction**2).mean() / 0.625)  # the mean weight
            self.assertAlmostEqual(rest / 0.004, 1, delta=0.1 if noise else 0.03)

    def test_correlation_of_smooth_residuals(self):
        for smooth in (2, 4):  # of a Gaussian: 2 sqrt(pi) sigma; the continuum takes long waves out
            error, _ = residuals.measure(self.wave, self.made(0.005, smooth), 2, noise=0.005)
            expected = 2 * np.sqrt(np.pi) * smooth
            self.assertAlmostEqual(error.correlation / expected, 1, delta=0.05 + expected / 60)

    def test_unknown_pixels(self):
        for noise in (0, 0.01):
            x = self.made(noise)
            x[:, -150:] = np.nan
            x[(np.arange(self.N)[:, None] + np.arange(self.N_PIX)) % 10 == 0] = np.nan
            error, _ = residuals.measure(self.wave, x, 0, noise=noise)
            # fraction[-10], beyond all spectra: what the nearest quarter has
            for value in (np.sqrt((error.fraction**2).mean()), error.fraction[-10], error.size()[0]):
                self.assertAlmostEqual(value / 0.0227, 1, delta=0.1)
            self.assertAlmostEqual(error.size()[1], 1)

    def test_cores_of_lines_take_no_component(self):
        x, level = self.made(), np.ones(self.N_PIX)
        level[30::60] = 0.02
        x[:, 30::60] += np.where(np.arange(self.N) % 2, 1, -1)[:, None]
        for given, low, high in ((level, 0.96, 1.04), (None, 0, 0.5)):
            error, _ = residuals.measure(self.wave, x, 2, level=given)
            weighed = error.component[0] * level
            match = np.abs(weighed[level == 1] @ self.patterns[0][level == 1])
            match /= self.N_PIX * np.sqrt((weighed**2).mean())
            self.assertTrue(low <= match <= high, match)
        with self.assertRaisesRegex(Failure, "needs at least 16"):
            residuals.measure(self.wave, self.made()[:15], 8)


class Report(unittest.TestCase):
    def test_fits_have_the_scatter_that_they_say(self):
        """Spectra of the emulator itself: fitted labels scatter as the noise says, and the
        emulator adds no error of its own."""
        library = library_file.read(coarse_library())
        library.arm = library.arm[1:2]  # two are in test_train_functions.py
        shipped = library_file.read(os.path.join(SOURCE, "libraries", "fgk.h5"))
        # away from the hulls, whose penalty would lessen the scatter
        labels = 0.5 * (shipped.guess_label[:60] + np.median(shipped.guess_label, axis=0))
        flux = [emulate.flux(library, 0, labels).astype("f4")]
        names = [f"a{i}" for i in range(60)]
        text, errors = measure.report(library, measure.ModelSet(labels, names, flux, [None]), 4,
                                      "of themselves")
        self.assertIn("report  60 spectra that were left out\nof themselves\n", text)
        self.assertEqual(len(errors[0].sigma), 4)
        rows = re.findall(r"^ +(20|100) +(\S+)" + r" +(\S+)" * 7 + r" %$", text, re.M)
        self.assertEqual(len(rows), 2 * (library.n_label + 1))
        for row in rows:
            bias, scatter, sigma, _, own = map(float, row[2:7])
            self.assertLess(abs(bias), 0.6 * sigma)
            self.assertTrue(0.6 < scatter / sigma < 1.5, row)  # of 60
            self.assertLess(own, 0.01 * sigma)
        flux[0][::2, 700:900] = np.nan  # gaps
        with_gaps = measure.report(library, measure.ModelSet(labels, names, flux, [None]), 4, "")[0]
        self.assertNotIn("did not finish", with_gaps)
        with self.assertRaisesRegex(Failure, "inside the library's hulls"):
            measure.report(library, measure.ModelSet(labels[:1] + [9000, 0, 0, 0], names[:1],
                                                     [f[:1] for f in flux], [None]), 4, "")

    def test_gaps_of_spectra_left_out_are_not_measured(self):
        """Functions fitted to all spectra fill gaps; filled values are no observations."""
        rng, x = np.random.default_rng(SEED), np.linspace(-1, 1, 200)
        label = rng.uniform(-1, 1, (60, 2))
        y = 0.1 * (np.sin(3 * x + label[:, :1]) + label[:, 1:] * x) + rng.normal(0, 0.01, (60, 200))
        gap = (x > rng.uniform(-1, 0.8, (60, 1))) & (rng.random((60, 200)) < 0.15)
        given = types.SimpleNamespace(names=["a", "b"], smoothing=1e-3, components=4, degree=2,
                                      keep_outliers=True, hull="pairs", guess_templates=5)
        functions = spectra.Functions(given, label, np.where(gap, 0, y), gap)
        arm = Arm("opt", "opt", np.log(5000), 1e-4, wavelengths(np.log(5000), 1e-4, 200))
        found = types.SimpleNamespace(functions=functions, library=functions.library(arm)[0])
        rest, left = spectra.leave_out(found, [str(i) for i in range(60)], 0.3, 1)
        rows = [int(name) for name in left.names]
        np.testing.assert_array_equal(left.flux[0], np.where(gap, np.nan, np.exp(y))[rows])
        error = 100 * abs(emulate.flux(rest, 0, left.labels) / np.exp(y[rows]) - 1)
        known = [e[~g] for e, g in zip(error, gap[rows])]
        want = [*np.percentile(np.concatenate(known), (50, 95, 99, 100)), *np.percentile(
            [np.sqrt(np.mean(e**2)) for e in known], (50, 95, 100))]
        lines = [line.split() for line in measure.pixel_lines(rest, left, 2)[0]]
        for name in ("opt", "all"):  # float32, and printed with three or four decimals
            line = next(line for line in lines if line[0] == name and len(line) == 8)
            np.testing.assert_allclose(np.array(line[1:], float), want, atol=6e-4)


LINE, DEPTH = 5003.0, 0.1
CORRECT = "library", "correct", "--medium", "vacuum", "--overwrite", "--spectra-sn", "500", "--output"


def missing(labels):
    """ln of what the templates lack in the middle of the line."""
    return -DEPTH * (1 + 0.5 * (labels[:, 0] - 5500) / 1000)


def edit(flux, labels):
    wave = made.FIRST + made.STEP * np.arange(made.N_PIX)
    flux *= np.exp(missing(labels)[:, None] * np.exp(-0.5 * ((wave - LINE) / 1.2) ** 2))


def emulators(rng, n_pix):
    """One of each kind, of three labels in -1...1."""
    def layer(n_out, n_in):
        return rng.normal(size=(n_out, n_in)).astype("f4") / np.float32(np.sqrt(n_in))

    def grid(degree):
        node = np.linspace(-1.2, 1.2, 7)
        inner = node[2:-2] if degree == 3 else node[1:-1]
        knot = np.concatenate([[-1.2] * (degree + 1), inner, [1.2] * (degree + 1)])
        return SplineGrid(degree, [knot] * 3, np.zeros((7, 7, 7, 2), "f4"))

    centers = rng.uniform(-1.2, 1.2, (80, 3))
    zero = np.zeros(n_pix, "f4")
    yield "network", Emulator([layer(60, 3), layer(80, 60), 1e-2 * layer(n_pix, 80)],
                              [rng.normal(size=n).astype("f4") for n in (60, 80)] + [zero])
    for name, front in (("radial", Radial(2, np.ones(3), centers, np.zeros((90, 2), "f4"))),
                        ("splines", grid(3)), ("linear", grid(1))):
        yield name, Emulator([layer(n_pix, 2)], [zero], front)


class LibraryCorrect(ProgramTest):
    @classmethod
    def setUpClass(cls):
        run("library", "spectra", "--output", tmp("bare.h5"), *made.GIVEN, "--left-out", 0,
            made.write("plain.fits"))

    def test_job(self):
        correct = *CORRECT, tmp("corrected.h5"), tmp("bare.h5")
        done = run(*correct, "--spectra", made.write("other.fits", edit=edit))
        self.assertIn("correction of arm opt: 160 spectra", done.stdout)
        self.assertIn("errors of labels are at least", starmill("library", "info",
                                                                tmp("corrected.h5")).stdout)
        labels = made.make_labels(made.N_STAR)
        inside = labels[(abs(labels - [5500, 3.5, -0.7]) < [800, 1.2, 0.8]).all(axis=1)]
        wave, after = made.emulate(tmp("corrected.h5"), inside)
        change = np.log(after / made.emulate(tmp("bare.h5"), inside)[1])
        at = np.argmin(abs(wave - LINE))
        # spectra of S/N 500 give the strength to 1 %; the correction falls to 0 where stars are few
        wrong = change[:, at] - missing(inside)
        self.assertLess(np.sqrt(np.mean(wrong**2) / np.mean(missing(inside) ** 2)), 0.1)
        # elsewhere only the smooth continuum changes, which the spectra lack
        rough = change - uniform_filter1d(change, 61, axis=1)
        far = (abs(wave - LINE) > 20) & (wave > wave[0] + 20) & (wave < wave[-1] - 20)
        self.assertLess(np.sqrt(np.mean(rough[:, far] ** 2)), 0.002)
        with h5py.File(tmp("corrected.h5")) as f:
            # only noise is left; without the correction this would be the line's spread, 3 %
            self.assertLess(f["arms/arm0/model_error/fraction"][at], 0.01)
        for name, value, words in (
                ("--assumed", "mass", "teff, logg"), ("--assumed", "teff,logg,feh", "leave one out"),
                ("--mask", "5140:5100", "MIN:MAX"), ("--range", "8000,9000", "no pixel of arm opt")):
            self.assertOneLine(starmill(*correct, "--spectra", tmp("other.fits"), name, value), name, words, status=2)
        for words, change in (("no labels are inside", lambda flux, labels: labels.fill(9000)),
                              ("expected 2 pixels or", lambda flux, labels: flux[:99].fill(0))):
            self.assertOneLine(starmill(*correct, "--spectra", made.write("no.fits", edit=change)), words, status=3)

    def test_far_from_calibrators_nothing_is_corrected_nor_claimed(self):
        done = run(*CORRECT, tmp("far.h5"), "--spectra", made.write("far.fits", edit=edit), "--degree", 1,
                   "--label-errors", "1,0.001,0.001", tmp("bare.h5"))
        self.assertIn("half of the spectra get at most 0 % of the correction", done.stderr)
        size, before, rest = re.search(r"5000- *5500 +(\S+) +(\S+) +(\S+)", done.stdout).groups()
        self.assertEqual((size, rest), ("0.00", before))
        with h5py.File(tmp("far.h5")) as f:
            error = f["arms/arm0/model_error"]
            at = np.argmin(abs(f["arms/arm0/wavelength"][...] - LINE))
            patterns = error["sigmas"][...]**2 @ error["components"][:, at]**2
            self.assertGreater(error["fraction"][at]**2 + patterns, 0.02**2)

    def test_gaps_of_all_spectra_and_a_star_outside_the_range(self):
        path = made.write("gaps.fits", edit=lambda flux, _: [
            part.fill(np.nan) for part in (flux[:, 1200:1206], flux[1, 880:])])
        run(*CORRECT[:-3], "--output", tmp("gaps.h5"), "--degree", "1", "--range", "5020,5175", "--mask",
            "5095:5105", "--spectra", path, tmp("bare.h5"))
        with h5py.File(tmp("gaps.h5")) as f:
            self.assertGreater(f["arms/arm0/model_error/fraction"][1245:1270].min(), 1e-4)

    def test_noise_is_told_from_model_error(self):
        """Spectra of S/N 80 are templates with a smooth error of 0.4 %, on other pixels.  In their
        residuals is less noise than in a pixel, since these are resampled and flattened."""
        def injected(flux, labels):
            error, noise = np.random.default_rng(SEED).normal(size=(2, *flux.shape))
            error = gaussian_filter1d(error, 2, axis=1)
            wave, model = made.emulate(tmp("bare.h5"), labels)
            model = CubicSpline(wave, model, axis=1)(made.FIRST + made.STEP * np.arange(made.N_PIX))
            flux[:] = model * (1 + 0.004 * error / error.std()) * (1 + noise / 80)
        path = made.write("injected.fits", edit=injected)
        last = "--spectra-sn", 80, "--overwrite", "--output", tmp("injected.h5")
        for job in (("model-error", "--components", 0, "--spectra", path, tmp("bare.h5")),
                    ("correct", "--degree", 0, "--components", 0, "--spectra", path, tmp("bare.h5")),
                    ("spectra", "--model-error", 0, "--sigma", made.SIGMA, "--left-out", 0, path)):
            done = run("library", job[0], "--medium", "vacuum", *last, *job[1:])
            found = re.search(r"model error of arm opt: (\S+) %.*; 0 components leave 100.0 %", done.stdout)
            self.assertAlmostEqual(float(found[1]) / 0.4, 1, delta=0.1, msg=job[0])

    def test_spectra_must_be_at_rest(self):
        first = ("CRVAL1", made.FIRST * (1 + 15 / 299792.458))
        path = made.write("moved.fits", cards=[first, ("CDELT1", made.STEP * first[1] / made.FIRST)])
        for job in "correct", "model-error":
            self.assertOneLine(
                starmill("library", job, *CORRECT[2:], tmp("moved.h5"), "--spectra", path, tmp("bare.h5")),
                "moved.fits: at 1", "km/s relative to the templates", "bring them to rest", status=3)

    def test_missing_pixels_and_errors(self):
        """Only known pixels count.  Labels without errors are shifted to benchmark stars' scale."""
        wave = np.arange(5000.0, 5100)
        one = types.SimpleNamespace(wave=wave, measures=wave, known=wave[None] < 5025, name="b",
                                    x=np.where(wave < 5025, 0.01, 9)[None], degree=1, use=[], ridge=0.1)
        self.assertEqual(correct.describe(one, [], one, one, one.x, one.x)[-1].split()[-3:], 3 * ["1.00"])
        stars = types.SimpleNamespace(labels=np.zeros((2, 2)), rows=lambda use: None, label=[],
                                      errors=np.array([[1, np.nan], [np.nan, np.nan]]), map=np.copy)
        with mock.patch.multiple(correction, compare=lambda *_: stars, scale_of=lambda *_: (
                lambda labels: labels + 1, [""])), mock.patch.object(correct, "take_out"):
            correct.onto_scale(stars, 0, None, [stars], [None])
        np.testing.assert_array_equal(stars.labels, [[0, -1], [-1, -1]])

    def test_rough_labels(self):
        def rough(flux, labels):
            edit(flux, labels)
            labels[:, 0] += 200 * np.random.default_rng(3).normal(size=len(labels))
        correct = *CORRECT, tmp("rough.h5"), "--degree", "0", "--spectra", made.write("rough.fits", edit=rough)
        run(*correct, "--label-errors", "90,0.1,0.1", tmp("bare.h5"))
        inside = np.array([[5000, 3.5, -0.7], [6000, 3.5, -0.7]])
        wave, after = made.emulate(tmp("rough.h5"), inside)
        change = np.log(after / made.emulate(tmp("bare.h5"), inside)[1])
        # A correction of degree 0 is the mean star's, -DEPTH, at all labels (true: -0.075 at
        # 5000 K, -0.125 at 6000 K).  Radial functions miss it slightly between their centers.
        change = change[:, np.argmin(abs(wave - LINE))]
        self.assertAlmostEqual(change[0], change[1], delta=0.005)
        self.assertAlmostEqual(change[0], -DEPTH, delta=0.1 * DEPTH)
        with h5py.File(tmp("rough.h5")) as f:
            # floor: scatter of the labels beyond their stated errors; 150 stars give a MAD to 9 %
            self.assertAlmostEqual(f["labels/label0"].attrs["floor"], np.sqrt(200**2 - 90**2),
                                   delta=50)
            self.assertLess(f["labels/label1"].attrs["floor"], 0.05)
        self.assertOneLine(starmill(*correct, "--label-errors", "90,0.1", tmp("bare.h5")),
                           "--label-errors 90,0.1", "3 numbers", status=2)

    def test_scale_of_benchmark_stars(self):
        own = np.arange(made.N_STAR) % 8 == 0  # stars with right labels; the others' are 150 K too high
        path = made.write("scale.fits", edit=lambda _, labels: labels.__iadd__(
            np.outer(~own, [150, 0, 0])))
        with pyfits.open(path) as hdus:
            error = {f"E{i}": ("E", np.where(own, x, np.nan)) for i, x in enumerate((20, 0.05, 0.05))}
            hdus[1] = pyfits.BinTableHDU.from_columns(hdus[1].columns + bintable(error).columns)
            hdus.writeto(tmp("benchmarks.fits"))
        labels, change = np.array([[5000, 3.5, -0.7], [5900, 3.5, -0.7]]), []
        correct = *CORRECT, tmp("scaled.h5"), "--degree", "1", "--spectra", tmp("benchmarks.fits")
        for extra in ((), ("--error-columns", "E0,E1,E2")):
            done = run(*correct, *extra, tmp("bare.h5"))
            before, after = (made.emulate(tmp(name), labels)[1]
                             for name in ("bare.h5", "scaled.h5"))
            ratio = np.log(after / before)
            change.append(np.std(ratio - uniform_filter1d(ratio, 61, axis=1)))
        # benchmark stars show that the others' Teff is 150 K too high, so no false line is learned
        self.assertLess(change[1], 0.2 * change[0], done.stdout)
        self.assertRegex(done.stdout, r"teff +off by (1[34]\d|15\d) K")
        twins = library_file.read(tmp("bare.h5"))
        twins.arm.append(dataclasses.replace(twins.arm[0], name="twin"))
        library_file.write(tmp("twins.h5"), twins, False, STARMILL)
        off = re.findall("teff +off by .*", run(*correct, *extra, tmp("twins.h5")).stdout)
        self.assertEqual(off, 2 * re.findall("teff +off by .*", done.stdout))  # both arms alike
        self.assertOneLine(starmill(*correct, "--error-columns", "E0,E1", tmp("bare.h5")),
                           "--error-columns gives 2 names for 3 labels", status=2)
        self.assertOneLine(starmill(*correct, "--error-columns", "E0,E1,FEH", tmp("bare.h5")),
                           "benchmarks.fits: an error in --error-columns is not above 0", status=3)

    def test_scale_where_no_benchmark_star_is(self):
        rng = np.random.default_rng(7)
        line = np.linspace(-1, 1, 20)[:, None] * [1, 1, 0] + 0.1 * rng.normal(size=(20, 3))
        shift = 30 + 60 * rng.normal(size=(20, 3))
        stars = types.SimpleNamespace(mapped=line, x=None, errors=np.full((20, 3), 20.0),
                                      scale=np.full(3, 60.0), shifts=lambda *_: shift)
        scale, _ = correction.scale_of(stars, [0, 1, 2], [Label(n, unit="K") for n in "abc"])
        self.assertLess(abs(scale(line.mean(axis=0)[None]) - 30).max(), 40)
        # stars on a line do not give the slope across it: without a prior the scale is off by 200 K
        self.assertLess(abs(scale(np.array([[1.0, -1, 0], [-1, 1, 0]])) - 30).max(), 100)

    def test_every_emulator_takes_it(self):
        rng = np.random.default_rng(5)
        n_pix, n_star = 400, 200
        wave = wavelengths(np.log(5000), 1e-4, n_pix)
        mapped = rng.uniform(-0.9, 0.9, (n_star, 3))
        label = [Label(name, min=-1.0, max=1.0, scale=0.2) for name in "abc"]
        every = np.ones(n_pix)
        stars = Calibrators(np.arange(n_pix), wave, None, None, None, every, mapped, mapped, None,
                            np.full(3, 0.2), np.full(3, 0.2 * correction.REACH), every, every)
        learned = correction.Correction([0, 1, 2], 2, 0, 0.02 * rng.normal(size=(13, n_pix)), None)
        expected = learned.terms(mapped) @ learned.coef
        # An emulator takes the correction with at most this relative rms error.  Splines round to
        # float32.  Linear cells, 0.4 wide, lack quadratic terms.  80 inputs or centers are few.
        limit = {"network": 0.05, "radial": 0.03, "splines": 1e-4, "linear": 0.15}
        for kind, emulator in emulators(rng, n_pix):
            library = Library(label, make_hulls(label, mapped, "pairs"),
                              [Arm("opt", "opt", np.log(5000), 1e-4, wave, emulator)])
            before = emulate.ln_flux(library, 0, mapped)
            correction.apply(library, 0, stars, learned)
            change = emulate.ln_flux(library, 0, mapped) - before
            error = np.sqrt(np.mean((change - expected) ** 2) / np.mean(expected**2))
            self.assertLess(error, limit[kind], kind)


class Sky(ProgramTest):
    """Sky residuals in the spectra of 40 stars are learned from 20 sky fibres.  In the file "lines"
    sky lines beyond 9000 A remain; in "over" too much continuum and lines was subtracted."""

    N_STAR, N_SKY = 40, 20

    @classmethod
    def setUpClass(cls):
        cls.library, folder = coarse_library(), tmp("sky")
        run("simulate", "--stars", cls.N_STAR + cls.N_SKY, "--library", cls.library, "--sn", "8,25", "--vel-sigma",
            80, "--seed", 5, "--quiet", "--output", folder)
        cls.truth = pyfits.getdata(os.path.join(folder, "truth.fits"), "TRUTH")[:cls.N_STAR]
        cls.files = {kind: cls.write(folder, kind) for kind in ("clean", "lines", "over")}

    @staticmethod
    def pattern(wave):
        """Return the flux of the sky's lines, and its change when they shift."""
        rng = np.random.default_rng(3)
        x = (wave - rng.uniform(9000, 9800, (60, 1))) / 0.75
        line = rng.lognormal(0.5, 0.8, (60, 1)) * np.exp(-0.5 * x**2)
        return np.array([line.sum(axis=0), (x * line).sum(axis=0)])

    @classmethod
    def write(cls, folder, kind):
        """Write a file whose last rows are sky fibres; residuals are in units of the noise."""
        rng, path = np.random.default_rng(4), tmp(f"sky-{kind}.fits")
        random = rng.normal(size=(cls.N_STAR + cls.N_SKY, 3))
        with pyfits.open(os.path.join(folder, "coadd-mock-00000.fits")) as file:
            file["FIBERMAP"].data["OBJTYPE"][cls.N_STAR:] = "SKY"
            for arm in "BRZ":
                flux, ivar = file[f"{arm}_FLUX"].data, file[f"{arm}_IVAR"].data
                sigma, sky = np.sqrt(1 / np.median(ivar)), slice(cls.N_STAR, None)
                # the fibres' noise differs by up to a factor of 2, as their throughput does
                own = (sigma * np.geomspace(2**-0.5, 2**0.5, cls.N_SKY)[:, None])**-2
                ivar[sky] *= own / np.median(ivar[sky], axis=1, keepdims=True)
                flux[sky] = rng.normal(size=flux[sky].shape) / np.sqrt(np.maximum(ivar[sky], 1e-9))
                lines = cls.pattern(file[f"{arm}_WAVELENGTH"].data)
                flux += sigma * {"clean": 0, "lines": 3 * random[:, :2] @ lines,
                                 "over": -np.abs(random[:, 2:]) * (1.5 + 0.5 * lines[0])}[kind]
            file.writeto(path)
        return path

    @classmethod
    @functools.cache
    def components(cls, kind):
        run("library", "sky", "--output", tmp(f"{kind}.h5"), cls.files[kind])
        return tmp(f"{kind}.h5")

    def deviations(self, kind, config, name):
        put("sky.yaml", config)
        self.fit("sky.h5", "--overwrite", "--quiet", "--config", tmp("sky.yaml"), self.files[kind], lib=self.library)
        fit = read(self.path)
        return (fit[name] - self.truth[name]) / fit[name + "_ERR"]

    def test_components_are_the_residuals(self):
        done = starmill("library", "sky", "--output", tmp("none.h5"), self.files["clean"])
        self.assertOneLine(done, self.files["clean"], "nothing but noise", status=3)
        with h5py.File(self.components("lines"), "r") as f:
            self.assertEqual(list(f), ["z"])
            true, found = 3 * self.pattern(f["z/wave"][...]), f["z/components"][...].astype(float)
        self.assertEqual(len(found), 2)
        with pyfits.open(self.files["lines"]) as file:
            true /= np.sqrt(np.median(file["Z_IVAR"].data[:self.N_STAR]))
        # 20 fibres know the variance of an amplitude to 30 %
        self.assertLess(abs(np.log((found**2).sum() / (true**2).sum())), np.log(2))
        true /= np.sqrt((true**2).sum(axis=1, keepdims=True))
        of_found = found / np.sqrt((found**2).sum(axis=1, keepdims=True))
        self.assertGreater(np.linalg.svd(true @ of_found.T, compute_uv=False).min(), 0.97)

    def test_biases(self):
        """Sky components make pulls as small as in clean spectra, and hardly change these fits."""
        for kind, name, arms in ("lines", "VRAD", "z"), ("over", "FEH", "b,r,z"):
            with self.subTest(kind):
                config = f"arms: [{arms}]\n", f"arms: [{arms}]\nsky_components: {self.components(kind)}\n"
                clean, same, biased, good = (
                    self.deviations(of, text, name) for of in ("clean", kind) for text in config)
                self.assertLess(np.abs(clean - same).max(), 1)
                clean, biased, good = (np.sqrt((d**2).mean()) for d in (clean, biased, good))
                self.assertGreater(biased, 2 * clean)
                self.assertLess(good, 1.15 * clean)

    def test_files_that_are_wrong(self):
        wave, rows = np.linspace(9000, 9800, 50), np.ones((2, 50), "f4")
        for parts, wrong in (
                (("such as b:", "(key arms) or the groups"), {"q/wave": wave, "q/components": rows}),
                (("z/wave",), {"z/components": rows}), (("1 to 18",), {"z/wave": wave, "z/components": rows[:, :1]}),
                (("not ascending at pixel 1",), {"z/wave": wave[::-1], "z/components": rows}),
                (("component 1 at pixel 0",), {"z/wave": wave, "z/components": rows * [[1], [np.nan]]}),
                (("z/wave, from 900 to 980, lies outside arm z", "Angstrom"),
                 {"z/wave": wave / 10, "z/components": rows}),  # in nm
                (("arm z has 20", "at most 18"), {"z/wave": wave, "z/components": np.ones((18, 50), "f4")})):
            with self.subTest(parts):
                with h5py.File(tmp("wrong.h5"), "w") as f:
                    for name, value in wrong.items():
                        f[name] = value.astype("f4") if "comp" in name else value
                put("sky.yaml", f"lsf_width_error: 0.1\nsky_components: {tmp('wrong.h5')}\n")
                done = self.fit("no.h5", "--config", tmp("sky.yaml"), self.files["clean"], lib=self.library, status=2)
                self.assertOneLine(done, *parts, status=2)
        with h5py.File(tmp("wrong.h5"), "w") as f:
            f["z/wave"], f["z/components"] = wave, rows * np.float32(0.01)
        put("sky.yaml", f"arms: [b, z]\nsky_components: {tmp('wrong.h5')}\n")
        done = self.fit("no.h5", "--config", tmp("sky.yaml"), self.files["clean"], lib=self.library)
        self.assertEqual(re.findall("no group for arm (.), so the arm is", done.stderr), ["b"])
