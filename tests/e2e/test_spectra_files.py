# SPDX-License-Identifier: BSD-3-Clause
"""Parts that jobs which make libraries share: labelled spectra, and their convolution."""

import io

from base import *  # noqa: F403
from starmill.cli.basics import Failure
from starmill.templates.build import read_setup
from starmill.templates.resample import ArmCut
from starmill.templates.spectra_files import interpolated, read_all
from starmill.templates.spectra_options import Request, labels_of_name, list_files, read_pattern
from scipy.special import erf

NAMES = ["teff", "logg", "feh"]
LABELS = list(zip(NAMES, ("TEFF", "LOGG", "FEH")))
WAVE = {"CRVAL1": 5000.0, "CDELT1": 0.1, "CRPIX1": 1, "CTYPE1": "WAVE"}


class SpectraFiles(unittest.TestCase):
    def test_name_patterns(self):
        for pattern, name, values in (
            ("t{teff}g{logg}z{feh}.fits", "t05777g4.44z+0.0.fits", [5777, 4.44, 0]),
            ("t{teff}g{logg/10}{feh}.fits", "t5000g45m1.50.fits", [5000, 4.5, -1.5]),
            ("lte{teff}-{logg}*_{feh}*.fits", "lte04000-1.50-0.0_p0.5a.fits", [4000, 1.5, 0.5]),
            ("*_{feh}_{teff}_{logg}", "a_1_b_-1_5000_3", [5000, 3, -1]),
            ("t{teff}g{logg}z{feh}.fits", "t5000g4.5z.fits", None),
            ("t{teff}g{logg}z{feh}.fits", "t5000g4.5z1.fits.gz", None),
            ("t{teff}{logg}{feh}", "t5000", None)):
            self.assertEqual(labels_of_name(pattern, NAMES, name), values, pattern)
        for pattern, word in (("{teff}{logg}", "has no {feh}"), ("{teff}{teff}", "appears twice"),
                              ("{teff}{age}", "'{age}' is not"), ("{teff/0}", "'{teff/0}' is not"),
                              ("{teff", "'{' is not")):
            with self.assertRaisesRegex(Failure, word):
                read_pattern(pattern, NAMES)

    def test_bad_files_cost_themselves(self):
        """A label that is no number, files that are no FITS file or no gzip, a file of fewer pixels."""
        os.makedirs(tmp("folder"))
        flux = np.linspace(1, 2, 500, dtype="f4")
        for i, (start, feh) in enumerate(((0, 0.0), (0, "high"), (3, -1.0))):
            image = pyfits.PrimaryHDU(flux[start:])
            image.header.update({**WAVE, "CRVAL1": 5000 + 0.1 * start, "TEFF": 5000 + i,
                                 "LOGG": 4.0, "FEH": feh})
            image.writeto(tmp(f"folder/{i}.fits"))
        put("folder/no.fits", "no FITS file")
        put("folder/zip.fits.gz", b"\x1f\x8b\x08 no gzip")
        request, said = Request(LABELS), io.StringIO()
        with contextlib.redirect_stderr(said):
            got = read_all(*list_files([tmp("folder")], request), request)
        self.assertEqual(got.names, ["0", "1", "2", "no", "zip"])
        np.testing.assert_array_equal(np.isnan(got.labels).all(axis=1), [0, 1, 0, 1, 1])
        np.testing.assert_array_equal(got.flux[0], flux)
        np.testing.assert_allclose(got.flux[2], [np.nan] * 3 + list(flux[3:]))
        self.assertEqual([word in said.getvalue() for word in ("1.fits", "no.fits", "zip.fits.gz")],
                         [True] * 3)
        pyfits.PrimaryHDU(flux[:99], image.header).writeto(tmp("folder/-.fits"))  # the first by name
        with contextlib.redirect_stderr(said):
            read_all(*list_files(2 * [tmp("folder")], request), request)  # each file counts once
        self.assertIn("3 spectra have more pixels than the first one", said.getvalue())
        for i in (*range(3), "-"):
            os.remove(tmp(f"folder/{i}.fits"))
        with self.assertRaisesRegex(Failure, "no.fits: cannot be read"):
            read_all(*list_files([tmp("folder")], request), request)

    def test_holes_in_wavelengths(self):
        """A spline across a hole has bad pixels; an arm that needs these refuses the spectrum."""
        wave = 5000 + np.cumsum(np.r_[0, np.full(400, 0.1), np.full(600, 0.3)])  # grids change their step
        flux, to = 1 + 0.5 * np.sin(wave), np.arange(5001, 5219, 0.25)
        whole, keep = interpolated(wave, flux, to), (wave <= 5100) | (wave >= 5110)
        got = interpolated(wave[keep], flux[keep], to)
        low, high = wave[keep][np.flatnonzero(np.diff(wave[keep]) > 1)[0]:][:2]
        np.testing.assert_array_equal(np.isnan(got), (to >= low) & (to < high))
        # the effect of the spline's end at the hole falls by a factor of 4 a pixel
        far = (to < low - 5) | (to > high + 5)
        np.testing.assert_allclose(got[far], whole[far], rtol=1e-8)
        for first, bad, most in (5120, 0, np.inf), (5080, 1, np.inf), (5120, 1, 0.29):
            cut = ArmCut(500, np.log(first), 1e-5, np.zeros(500), most)
            with self.assertRaisesRegex(Failure, "no pixel between") if bad else contextlib.nullcontext():
                cut.prepare(wave[keep])

    def test_axes_of_a_cube_by_cname(self):
        cube = np.arange(1, 31, dtype="f4").reshape(2, 3, 5)
        image = pyfits.PrimaryHDU(cube)
        image.header.update({**WAVE, "CTYPE2": "LINEAR", "CNAME2": "logg", "CRVAL2": 1.0,
                             "CDELT2": 0.5, "CNAME3": "TEFF", "CRVAL3": 4000.0, "CDELT3": 1000.0})
        image.header["PC3_3"] = 2.0  # FITS standard: the step is CDELT3 x PC3_3
        image.writeto(tmp("cname.fits"))
        got = read_all([tmp("cname.fits")], True, Request(LABELS[:2]))
        np.testing.assert_array_equal(got.flux, cube.reshape(6, 5))
        np.testing.assert_array_equal(got.labels[[0, 1, 5]], [[4000, 1], [4000, 1.5], [6000, 2]])


ARM = "arms:\n  - {name: b, min: 4000, max: 5000, ln_step: 1e-4, "


class ArmSetup(unittest.TestCase):
    def test_points_and_numbers(self):
        b, r, z = read_setup(put("arms.yaml", ARM + """sigma: [[4200, 0.4], [4400, 0.8], [4800, 0.6]]}
  - {name: r, min: 5000, max: 6000, ln_step: 1e-4, resolving_power: 3000, at_instrument: true}
  - {name: z, min: 6000, max: 6001, ln_step: 1e-5}
"""))
        np.testing.assert_allclose(b.sigma_aa(np.array([4000, 4300, 4500, 4800, 5000])),
                                   [0.4, 0.6, 0.75, 0.6, 0.6], rtol=1e-15)
        np.testing.assert_allclose(r.sigma_aa(np.array([6000.0])), 2 / 2.3548200450309493)
        self.assertTrue(r.at_instrument and not b.at_instrument and z.sigma_aa(0) is None)
        for arm in (b, r, z):  # the last pixel is at the end or beyond, by less than a pixel
            beyond = np.log(arm.min / arm.max) + (arm.n_pix - 1) * arm.ln_step
            self.assertTrue(-1e-9 <= beyond < arm.ln_step)

    def test_shipped(self):
        """A sigma has at least 1.2 pixels."""
        shipped = glob.glob(os.path.join(SOURCE, "config/templates/*.yaml"))
        self.assertGreater(len(shipped), 6)
        for path in shipped:
            for arm in read_setup(path):
                wave = np.array([arm.max])
                self.assertGreater(arm.sigma_aa(wave)[0], 1.2 * arm.max * arm.ln_step)

    def test_refusals(self):
        for text, words in (
            ("", "expected a key arms"), ("arms: []", "1 to 8 arms"),
            ("arm: []", ":1: 'arm': only the key arms"), ("arms: [", "is not YAML"),
            ("arms: [b]", ":1: expected an arm"), (ARM + "sigmas: 1}", ":2: 'sigmas' is unknown"),
            (ARM + "sigma: 1, resolving_power: 2}", "one sigma or one resolving_power"),
            (ARM + "sigma: -1}", "sigma: expected a number above 0, got '-1'"),
            (ARM + "sigma: []}", "sigma: expected 1 to 64 points, got 0"),
            (ARM + "sigma: [[4000, 1], [4000, 2]]}", "must ascend"),
            (ARM + "sigma: [[4000, 1, 2]]}", "expected points"),
            (ARM + "at_instrument: 3}", "true or false"),
            (ARM + "sigma: 1}\n  - {name: b, min: 1000, max: 2000, ln_step: 1e-4}",
             ":3: arm b appears twice"),
            ("arms: [{name: b, min: 5000, max: 4000, ln_step: 1e-4}]", "5000 to 4000 A: expected"),
            ("arms: [{name: b, min: 5000, max: 6000, ln_step: 1}]", "makes 0 pixels"),
            ("arms: [{name: b, min: 5000, max: 6000, ln_step: nan}]", "a number above 0"),
            ("arms: [{name: b, min: 5000, ln_step: 1e-4}]", "needs name, min, max"),
            ("arms: [{name: B-x, min: 5000}]", "'B-x': expected small letters")):
            with self.subTest(text), self.assertRaisesRegex(Failure, words):
                read_setup(put("refused.yaml", text))


def scene(ln_step, sigma, n_pix, n_line=60):
    """Gaussian lines on a slope, in closed form: as a function of wavelength, and convolved with
    kernel and averaged over a pixel."""
    i = np.arange(n_line)
    centre = 5000 + 5000 * np.expm1(n_pix * ln_step) * ((0.5 + 0.6180339887 * i) % 1)
    depth = 0.1 + 0.8 * ((0.7548776662 * i) % 1)

    def flux(x):
        return 3 + 1e-3 * (x - 5000) - np.exp(-0.5 * ((x[:, None] - centre) / sigma) ** 2) @ depth

    def pixels(lo, hi, kernel):
        wide = np.sqrt(2) * np.hypot(sigma, kernel)[:, None]
        area = erf((hi[:, None] - centre) / wide) - erf((lo[:, None] - centre) / wide)
        return (3 + 1e-3 * (0.5 * (lo + hi) - 5000)
                - area @ depth * sigma * np.sqrt(np.pi / 2) / (hi - lo))
    return flux, pixels


class Convolution(unittest.TestCase):
    """A cubic spline through a line of depth 1 is off by at most 3 / (384 n^4) for n samples a
    sigma: 2e-4 for 2.5 samples, 1.3e-5 for 5.  6e-7 of a kernel's area is beyond 5 sigma."""

    def largest_error(self, warp, step, line, kernel, ln_step, n_pix=300):
        kernel = np.linspace(*kernel, n_pix)
        cut = ArmCut(n_pix, np.log(5000), ln_step, kernel)
        low, high = cut.min_aa - 3, cut.max_aa + 3
        wave = low + (high - low) * warp(np.linspace(0, 1, int((high - low) / step)), high / low)
        flux, pixels = scene(ln_step, line, n_pix)
        y = flux(wave)
        y[0] = np.nan  # beyond what is needed
        cut.prepare(wave)
        return abs(cut.apply(y) - pixels(cut.edge[:-1], cut.edge[1:], kernel)).max()

    def test_closed_form(self):
        for warp in (lambda u, r: u, lambda u, r: (r**u - 1) / (r - 1),
                     lambda u, r: u + 0.01 * np.sin(20 * u) - 0.01 * np.sin(20) * u):
            for step, line, kernel, ln_step, tolerance in (
                (0.01, 0.05, (0.5, 0.5), 6e-5, 2e-6),  # DESI: from lines of R 100000
                (0.02, 0.06, (0.4, 1.2), 6e-5, 2e-6),  # changes along the arm
                (0.02, 0.1, (0.05, 0.05), 6e-5, 1.5e-5),  # much narrower than a pixel
                (0.05, 0.25, (0.02, 0.04), 6e-5, 1.5e-5),  # below a step of the spectrum
                (0.2, 0.5, (0.5, 0.5), 1e-4, 5e-5),  # 2.5 samples a sigma
                (0.01, 0.05, (0, 0), 6e-5, 1e-5),
                (0.1, 0.5, (0, 0), 1e-5, 2e-5),  # pixels narrower than the spectrum's
                (0.05, 0.25, (0, 0.3), 6e-5, 5e-5),  # none at one end of the arm only
            ):
                with self.subTest(step=step, line=line, kernel=kernel):
                    self.assertLess(self.largest_error(warp, step, line, kernel, ln_step),
                                    tolerance)
