# SPDX-License-Identifier: BSD-3-Clause
"""starmill library correct: a line that the templates lack, stronger in hotter stars, is learned
from spectra and put into every kind of emulator."""

import test_library_spectra as made
from base import *  # noqa: F403
from scipy.ndimage import uniform_filter1d

from starmill.templates import correction, emulate
from starmill.templates.calibrators import Calibrators
from starmill.templates.hulls import make_hulls
from starmill.templates.library_data import (Arm, Emulator, Label, Library, Radial, SplineGrid,
                                             wavelengths)

LINE, DEPTH = 5003.0, 0.1


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
    def test_job(self):
        run("library", "spectra", "--output", tmp("bare.h5"), *made.GIVEN, "--left-out", 0,
            made.write("plain.fits"))
        correct = ("library", "correct", "--medium", "vacuum", "--spectra-sn", "500", "--output",
                   tmp("corrected.h5"), tmp("bare.h5"))
        done = run(*correct, "--spectra", made.write("other.fits", edit=edit))
        self.assertRegex(done.stdout, "correction of arm opt: 15[14] spectra")  # by BLAS's kernels
        self.assertIn("errors of labels are at least", starmill("library", "info",
                                                                tmp("corrected.h5")).stdout)
        labels = made.make_labels(made.N_STAR)
        inside = labels[(abs(labels - [5500, 3.5, -0.7]) < [800, 1.2, 0.8]).all(axis=1)]
        wave, after = made.emulate(tmp("corrected.h5"), inside)
        change = np.log(after / made.emulate(tmp("bare.h5"), inside)[1])
        at = np.argmin(abs(wave - LINE))
        # spectra of S/N 500 know the strength to 1 %; where stars are few it runs to 0, as it should
        wrong = change[:, at] - missing(inside)
        self.assertLess(np.sqrt(np.mean(wrong**2) / np.mean(missing(inside) ** 2)), 0.1)
        # elsewhere nothing but the smooth continuum, which the library has and the spectra lack
        rough = change - uniform_filter1d(change, 61, axis=1)
        far = (abs(wave - LINE) > 20) & (wave > wave[0] + 20) & (wave < wave[-1] - 20)
        self.assertLess(np.sqrt(np.mean(rough[:, far] ** 2)), 0.002)
        with h5py.File(tmp("corrected.h5")) as f:
            # what is left is noise: the line would be 3 % (its spread over the stars)
            self.assertLess(f["arms/arm0/model_error/fraction"][at], 0.01)
        self.assertOneLine(starmill(*correct, "--overwrite", "--spectra", tmp("other.fits"),
                                    "--assumed", "mass"), "--assumed mass", "teff, logg", status=2)

    def test_rough_labels(self):
        run("library", "spectra", "--output", tmp("exact.h5"), *made.GIVEN, "--left-out", 0,
            made.write("exact.fits"))

        def rough(flux, labels):
            edit(flux, labels)
            labels[:, 0] += 200 * np.random.default_rng(3).normal(size=len(labels))
        correct = ("library", "correct", "--medium", "vacuum", "--spectra-sn", "500", "--degree", "0",
                   "--spectra", made.write("rough.fits", edit=rough), "--output", tmp("rough.h5"))
        run(*correct, "--label-errors", "90,0.1,0.1", tmp("exact.h5"))
        inside = np.array([[5000, 3.5, -0.7], [6000, 3.5, -0.7]])
        wave, after = made.emulate(tmp("rough.h5"), inside)
        change = np.log(after / made.emulate(tmp("exact.h5"), inside)[1])
        # one change at all labels, but for radial functions between centers, that of the mean star:
        # by the labels it would be -0.075 and -0.125
        change = change[:, np.argmin(abs(wave - LINE))]
        self.assertAlmostEqual(change[0], change[1], delta=0.005)
        self.assertAlmostEqual(change[0], -DEPTH, delta=0.1 * DEPTH)
        with h5py.File(tmp("rough.h5")) as f:
            # what the labels' errors leave of their scatter, which 150 stars know to 9 % (MAD)
            self.assertAlmostEqual(f["labels/label0"].attrs["floor"], np.sqrt(200**2 - 90**2),
                                   delta=50)
            self.assertLess(f["labels/label1"].attrs["floor"], 0.05)
        self.assertOneLine(starmill(*correct, "--label-errors", "90,0.1", "--overwrite",
                                    tmp("exact.h5")), "--label-errors 90,0.1", "3 numbers", status=2)

    def test_scale_of_benchmark_stars(self):
        run("library", "spectra", "--output", tmp("own.h5"), *made.GIVEN, "--left-out", 0,
            made.write("own.fits"))
        own = np.arange(made.N_STAR) % 8 == 0  # whose labels are right; the others' are 150 K too high
        path = made.write("scale.fits", edit=lambda _, labels: labels.__iadd__(
            np.outer(~own, [150, 0, 0])))
        with pyfits.open(path) as hdus:
            error = {f"E{i}": ("E", np.where(own, x, np.nan)) for i, x in enumerate((20, 0.05, 0.05))}
            hdus[1] = pyfits.BinTableHDU.from_columns(hdus[1].columns + bintable(error).columns)
            hdus.writeto(tmp("benchmarks.fits"))
        labels, change = np.array([[5000, 3.5, -0.7], [5900, 3.5, -0.7]]), []
        correct = ("library", "correct", "--medium", "vacuum", "--spectra-sn", "500", "--degree", "1",
                   "--spectra", tmp("benchmarks.fits"), "--overwrite", "--output", tmp("scaled.h5"))
        for extra in ((), ("--error-columns", "E0,E1,E2")):
            done = run(*correct, *extra, tmp("own.h5"))
            before, after = (made.emulate(tmp(name), labels)[1] for name in ("own.h5", "scaled.h5"))
            ratio = np.log(after / before)
            change.append(np.std(ratio - uniform_filter1d(ratio, 61, axis=1)))
        # of 150 K the benchmark stars' own share in the correction is left
        self.assertLess(change[1], 0.2 * change[0], done.stdout)
        self.assertRegex(done.stdout, r"teff +off by (1[34]\d|15\d) K")
        self.assertOneLine(starmill(*correct, "--error-columns", "E0,E1", tmp("own.h5")),
                           "--error-columns gives 2 names for 3 labels", status=2)
        self.assertOneLine(starmill(*correct, "--error-columns", "E0,E1,FEH", tmp("own.h5")),
                           "benchmarks.fits: an error of --error-columns is not above 0", status=3)

    def test_every_emulator_takes_it(self):
        rng = np.random.default_rng(5)
        n_pix, n_star = 400, 200
        wave = wavelengths(np.log(5000), 1e-4, n_pix)
        mapped = rng.uniform(-0.9, 0.9, (n_star, 3))
        label = [Label(name, min=-1.0, max=1.0, scale=0.2) for name in "abc"]
        every = np.ones(n_pix)
        stars = Calibrators(np.arange(n_pix), wave, None, None, None, every, mapped, mapped, None,
                            np.full(3, 0.2), every, every)
        learned = correction.Correction([0, 1, 2], 2, 0, 0.02 * rng.normal(size=(10, n_pix)), None)
        expected = learned.terms(mapped) @ learned.coef
        # within float32, what linear interpolation leaves of a quadratic in cells of 0.4 (0.02 of
        # its scale in each label), and what 80 inputs of a layer cannot follow
        limit = {"network": 0.05, "radial": 2e-4, "splines": 1e-4, "linear": 0.15}
        for kind, emulator in emulators(rng, n_pix):
            library = Library(label, make_hulls(label, mapped, "pairs"),
                              [Arm("opt", "opt", np.log(5000), 1e-4, wave, emulator)])
            before = emulate.ln_flux(library, 0, mapped)
            correction.apply(library, 0, stars, learned)
            change = emulate.ln_flux(library, 0, mapped) - before
            error = np.sqrt(np.mean((change - expected) ** 2) / np.mean(expected**2))
            self.assertLess(error, limit[kind], kind)
