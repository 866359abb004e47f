# SPDX-License-Identifier: BSD-3-Clause
"""starmill.templates: radial functions against their definition, the model error of residuals whose
components, rest and noise are known, and the fits of a library's report."""

import re

from base import *  # noqa: F403
from scipy.spatial.distance import cdist

from starmill.cli.basics import Failure
from starmill.templates import emulate, library_file, measure, radial, residuals

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
        # the minimum: weighted residuals are smoothing times coefficients, free of polynomials
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


class ModelError(unittest.TestCase):
    """400 spectra of 600 pixels with patterns of 2 and 1 %, a rest of 0.4 %, and a continuum each:
    their widths are known to 3.5 %."""
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
            error, facts = residuals.measure(self.wave, self.made(noise), 2, noise=noise)
            np.testing.assert_allclose(error.sigma, [0.02, 0.01], rtol=0.1)
            match = np.abs((error.component * self.patterns).mean(axis=1))
            np.testing.assert_allclose(match, 1, atol=0.02)
            rest = np.sqrt((error.fraction**2).mean())
            self.assertAlmostEqual(rest / 0.004, 1, delta=0.1 if noise else 0.03)
            self.assertAlmostEqual(error.correlation, 1, delta=0.15)
            self.assertAlmostEqual(facts.rms / np.sqrt(5.16e-4), 1, delta=0.1)
            self.assertAlmostEqual(facts.left / 0.031, 1, delta=0.2)

    def test_correlation_of_smooth_residuals(self):
        for smooth in (2, 4):  # of a Gaussian: 2 sqrt(pi) sigma; the continuum takes long waves out
            error, _ = residuals.measure(self.wave, self.made(0.005, smooth), 2, noise=0.005)
            expected = 2 * np.sqrt(np.pi) * smooth
            self.assertAlmostEqual(error.correlation / expected, 1, delta=0.05 + expected / 60)

    def test_unknown_pixels(self):
        x = self.made()
        x[:, -50:] = np.nan
        x[(np.arange(self.N)[:, None] + np.arange(self.N_PIX)) % 10 == 0] = np.nan
        error, _ = residuals.measure(self.wave, x, 0)
        self.assertEqual(len(error.sigma), 0)
        self.assertAlmostEqual(np.sqrt((error.fraction**2).mean()) / 0.0227, 1, delta=0.1)
        # beyond all spectra: what the nearest quarter has
        self.assertAlmostEqual(error.fraction[-10] / 0.0227, 1, delta=0.1)

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
        """Spectra of the emulator itself: what is found differs from the truth by the noise alone,
        and from a fit of the emulator's own spectra by nothing."""
        library = library_file.read(coarse_library())
        library.arm = library.arm[1:2]  # two are in test_train_functions.py
        shipped = library_file.read(os.path.join(SOURCE, "libraries", "fgk.h5"))
        labels = shipped.guess_label[:60]
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
        with self.assertRaisesRegex(Failure, "inside the library's hulls"):
            measure.report(library, measure.ModelSet(labels[:1] + [9000, 0, 0, 0], names[:1],
                                                     [f[:1] for f in flux], [None]), 4, "")
