# SPDX-License-Identifier: BSD-3-Clause
"""Compares the draws and spectra of `starmill simulate` with docs/science/simulator.md, to 5 sigma.

Class Emulator compares noise-free pixels with templates (test_library_file.py), blurred and sampled
as in docs/science/numerics.md.  A star's brightness is free, as the drawn S/N sets it.  Class Model
compares noise-free pixels with the fit's own model at the truth."""

from base import *

try:
    import scipy.stats
    from scipy.interpolate import CubicSpline
    from scipy.sparse import dia_array
except ImportError as missing:
    skip(f"{missing} (Debian: python3-scipy)")

import make_blocks
import pair_survey
from starmill.mocks import draw, instrument, observe
from starmill.templates import emulate, library_file
from starmill.templates.library_data import ModelError, inside_hulls

C_KM_S = 299792.458

# Both sides are float64 stored as float32.  The file's resolution matrix rounds once more: 6e-8
# twice (measured: 1.1e-7).
TOLERANCE = 3e-7


class Survey:
    """A survey without noise, one file."""

    def __init__(self, out, *args):
        run("simulate", "--noiseless", "--output", tmp(out), *args)
        self.truth = pyfits.getdata(os.path.join(tmp(out), "truth.fits"), "TRUTH")
        with pyfits.open(os.path.join(tmp(out), "coadd-mock-00000.fits"), memmap=False) as hdus:
            column = {what: {arm: hdus[f"{arm}_{what}"].data for arm in "BRZ"}
                      for what in ("WAVELENGTH", "FLUX", "IVAR", "RESOLUTION")}
        self.wave, self.resolution = column["WAVELENGTH"], column["RESOLUTION"]
        self.flux, self.ivar = column["FLUX"], column["IVAR"]

    def star(self, i):
        """(labels, velocity, v sin i, group) and {arm: pixels}, dead ones NaN."""
        t = self.truth[i]
        row = t["FITS_ROW"]
        pixel = {arm: np.where(self.ivar[arm][row] > 0, self.flux[arm][row].astype(float), np.nan)
                 for arm in "BRZ"}
        labels = [float(t[k]) for k in ("TEFF", "LOGG", "FEH", "ALPHAFE")]
        return (labels, float(t["VRAD"]), float(t["VSINI"]), int(t["LSF_GROUP"])), pixel


def resolution_rows(data, pix_aa, sigma_aa):
    """Rows [pixel][diagonal] of DESI's resolution matrix without the templates' own sigma."""
    n_diag, n_pix = data.shape
    half = n_diag // 2
    rows = np.zeros((n_pix, n_diag))
    column = np.arange(n_pix)[:, None] + np.arange(-half, half + 1)
    on_arm = (column >= 0) & (column < n_pix)
    for d in range(n_diag):  # column i + d - half is on the diagonal of that offset
        rows[on_arm[:, d], d] = data[2 * half - d, column[on_arm[:, d], d]]
    s = sigma_aa / pix_aa
    distance = np.subtract.outer(np.arange(n_diag), np.arange(n_diag))
    gauss = np.exp(-distance**2 / (2 * s * s)) / (s * np.sqrt(2 * np.pi))
    rows = np.linalg.solve(gauss, rows.T).T
    level = np.median(rows.sum(axis=1))
    ends = np.r_[0:half, n_pix - half:n_pix]
    rows[ends] *= on_arm[ends]
    rows[ends] *= (level / rows[ends].sum(axis=1))[:, None]
    return rows, np.where(on_arm, column, 0)


class Emulator(ProgramTest):
    @classmethod
    def setUpClass(cls):
        path = coarse_library()
        cls.library = library_file.read(path)
        cls.arm = {arm.name.upper(): i for i, arm in enumerate(cls.library.arm)}
        cls.survey = Survey("emulated", "--library", path, "--stars", 40, "--seed", 2)

    def expected(self, i):
        (labels, vel, vsini, _), pixel = self.survey.star(i)
        out = {}
        for name in "BRZ":
            arm, wave = self.library.arm[self.arm[name]], self.survey.wave[name]
            flux = emulate.flux(self.library, self.arm[name], [labels])[0]
            r = vsini / (C_KM_S * arm.ln_step)
            w = [make_blocks.smooth_weight(r, k) for k in range(int(np.ceil(r)) + 3)]
            # pixels that count are far from the ends of the grid
            flux = np.convolve(flux, np.concatenate([w[:0:-1], w]), "same")
            rest = CubicSpline(arm.wave_aa, flux, bc_type="natural")(np.clip(
                wave * np.sqrt((C_KM_S - vel) / (C_KM_S + vel)), *arm.wave_aa[[0, -1]]))
            data = self.survey.resolution[name][self.survey.truth["FITS_ROW"][i]].astype(float)
            rows, column = resolution_rows(data, wave[1] - wave[0], arm.template_sigma_aa)
            out[name] = (rows * rest[column]).sum(axis=1)
        return out, pixel

    def test_pixels(self):
        t = self.survey.truth
        order = np.argsort(t["VSINI"])
        chosen = {int(i) for i in (order[0], order[-1], np.argmax(t["TEFF"]), np.argmin(t["TEFF"]),
                                   np.argmax(abs(t["VRAD"])), np.argmin(t["FEH"]))}
        self.assertGreater(t["VSINI"][order[-1]], 50)
        worst = 0
        for i in sorted(chosen):
            expected, pixel = self.expected(i)
            got = np.concatenate([pixel[arm] for arm in "BRZ"])
            alive = np.isfinite(got)
            self.assertGreater(alive.mean(), 0.99)
            ratio = got[alive] / np.concatenate([expected[arm] for arm in "BRZ"])[alive]
            error = abs(ratio / np.median(ratio) - 1)
            print(f"star {i}: {t['TEFF'][i]:.0f} K, v sin i {t['VSINI'][i]:.1f} km/s, "
                  f"{t['VRAD'][i]:.0f} km/s: worst {error.max():.1e}")
            worst = max(worst, error.max())
        self.assertLess(worst, TOLERANCE)


class Model(ProgramTest):
    def test_fit_finds_the_truth(self):
        """Without noise the fit's model at the truth leaves no residual."""
        path = coarse_library()
        run("simulate", "--noiseless", "--library", path, "--stars", 60, "--sn", "3000,10000",
            "--vsini", "20,200", "--seed", 4, "--output", tmp("exact"))
        truth = pyfits.getdata(tmp("exact/truth.fits"), "TRUTH")
        self.fit("exact.h5", "--catalog", tmp("exact/catalog.txt"), "--start",
                 tmp("exact/truth.fits"), lib=path)
        fits = read(self.path)
        self.assertTrue((fits["STATUS"] == FITTED).all())
        n_pix = sum(fits[f"NPIX_{arm}"] for arm in "BRZ")
        print(f"chi-square a pixel: at most {(fits['CHISQ_TOT'] / n_pix).max():.1e}")
        # float32 in the fit is off by 1e-6 of the flux, whose error is at least 1e-4
        self.assertLess((fits["CHISQ_TOT"] / n_pix).max(), 1e-3)
        for name in ("VRAD", "VSINI", "TEFF", "LOGG", "FEH", "ALPHAFE"):
            off = np.abs(fits[name] - truth[name]) / fits[name + "_ERR"]
            self.assertLess(off.max(), 0.1, name)


SMALL = coarse_library("small.h5")


def survey(library=None, **settings):
    made = pair_survey.survey_of(TMP, **{"seed": 4711, "library": SMALL, **settings})
    if library:
        library(made.library)
        made.n_share = [len(arm.error.component) for arm in made.library.arm]
    return made


class Draws(ProgramTest):
    def assertMean(self, x, mean, sigma):
        self.assertLess(abs(np.mean(x) - mean), 5 * sigma / np.sqrt(len(x)))

    def test_stars(self):
        made = survey()
        stars = draw.draw(made, 0, 20000)
        self.assertTrue((stars.kind == "star").all())
        low, high = (np.array([getattr(label, end) for label in made.library.label])
                     for end in ("min", "max"))
        self.assertTrue(((stars.label >= low) & (stars.label <= high)).all())
        self.assertTrue(inside_hulls(made.library, stars.label).all())
        u = np.log(stars.sn / 5) / np.log(20)
        self.assertMean(u, 0.5, np.sqrt(1 / 12))
        self.assertMean(u ** 2, 1 / 3, np.sqrt(4 / 45))
        self.assertMean(stars.vrad_km_s, 0, 200)
        self.assertMean(stars.vrad_km_s ** 2, 4e4, 4e4 * np.sqrt(2))
        self.assertLessEqual(np.abs(stars.vrad_km_s).max(), 900)
        self.assertMean(stars.vsini_km_s < 10, 0.8, 0.4)
        self.assertMean(stars.vsini_km_s > np.sqrt(10 * 150), 0.1, 0.3)
        self.assertTrue((stars.vsini_km_s >= 1).all() and (stars.vsini_km_s <= 150).all())
        self.assertTrue((stars.ra_deg >= 0).all() and (stars.ra_deg < 360).all())
        self.assertLess(np.ptp(stars.dec_deg[:5000]), 3.2)
        # black bodies of 4000 and 7250 K at 4730, 6420 and 9260 A
        g, r, z = stars.magnitude.T
        self.assertTrue((g - r > 0.2).all() and (g - r < 1.25).all())
        self.assertTrue((r - z > -0.1).all() and (r - z < 0.7).all())

    def test_labels_are_uniform_inside_the_hulls(self):
        made = survey()
        drawn = draw.draw(made, 0, 4000).label
        points = draw._points(made.library, np.random.default_rng(1), 40000)
        points = points[inside_hulls(made.library, points)]
        for i, label in enumerate(made.library.label):
            self.assertGreater(scipy.stats.ks_2samp(drawn[:, i], points[:, i]).pvalue, 1e-6, label)

    def test_a_star_does_not_depend_on_the_others(self):
        many, few = draw.draw(survey(), 0, 50), draw.draw(survey(pathological="100"), 43, 1)
        for field in ("label", "vrad_km_s", "sn", "ra_deg", "magnitude"):
            np.testing.assert_array_equal(getattr(many, field)[43], getattr(few, field)[0])

    def test_every_setting_is_in_the_id_of_the_survey(self):
        ids = [survey(**other).origin[0] for other in (
            {}, {"seed": "6"}, {"stars": "23"}, {"per_file": "50"}, {"sn": "5,50"},
            {"vel_sigma": "10"}, {"vsini": "1,2"}, {"model_error": "false"},
            {"distortion": "0.0300000000001"}, {"noiseless": True}, {"pathological": "1"},
            {"redrock": True})]
        self.assertEqual(len(set(ids)), len(ids))

    def test_target_ids_are_packed_as_desi_does(self):
        index = np.array([0, 1, 4194303, 4194304, 4194305, 123456789012])
        packed = draw.target_ids(index)
        for shift, width, value in ((0, 22, index % 4194304), (22, 20, index // 4194304 + 1),
                                    (42, 16, 9010), (58, 6, 1)):
            np.testing.assert_array_equal(packed >> shift & (1 << width) - 1, value)

    def test_defects_come_evenly_and_in_turn(self):
        for per_1000 in (0, 1, 7, 30, 1000):
            kinds = draw.kinds(per_1000, np.arange(15000))
            at = np.flatnonzero(kinds != "star")
            np.testing.assert_array_equal((kinds != "star").reshape(15, 1000).sum(1), per_1000)
            self.assertTrue((np.abs(np.diff(at) * per_1000 - 1000) < per_1000).all())
            for kind in draw.KINDS[1:]:
                self.assertEqual((kinds == kind).sum(), per_1000)


class Instrument(ProgramTest):
    def test_resolution_rows_are_the_sampled_gaussian(self):
        for arm in instrument.arms():
            for group, data in enumerate(arm.resolution):
                sigma = instrument.lsf_sigma(group, arm.wave_aa)
                fwhm = np.sqrt(8 * np.log(2)) * sigma
                self.assertTrue(1.5 < fwhm.min() and fwhm.max() < 1.95)
                weight = np.exp(-0.5 * (np.arange(-5, 6)[:, None] * 0.8 / sigma) ** 2)
                weight /= weight.sum(axis=0)
                matrix = dia_array((data, np.arange(5, -6, -1)), (arm.n_pix, arm.n_pix))
                for k, row in zip(range(-5, 6), weight):
                    got = matrix.diagonal(k)
                    np.testing.assert_allclose(got, row[max(0, -k):][:len(got)], atol=3e-8)

    def test_noise_follows_its_formula(self):
        """At 6400 A, where no airglow line is near."""
        sky = 1.2 + 0.9 * (6400 - 3600) / 6224
        efficiency = 0.34 / (1 + np.exp(-660 / 40)) / (1 + np.exp(-1240 / 40))
        electrons = 1e-17 * 8.66e4 * 1000 * 0.8 * 6400 / 1.98644586e-8 * efficiency
        dark = sky / electrons + 50 / electrons ** 2 + (0.01 * sky) ** 2
        made = survey(noiseless=True, distortion="0")
        pixels, _ = observe.observe(made, draw.draw(made, 0, 20))
        flux, ivar = (pixels[1][what][:, 800].astype(float) for what in range(2))
        np.testing.assert_allclose(1 / ivar, dark + flux / electrons, rtol=1e-5)
        # [O I] 5577 stands out of faint stars
        at = int((5578.9 - 3600) / 0.8)
        contrast = np.sqrt(pixels[0][1][:, at + 50] / pixels[0][1][:, at])
        faint, bright = np.argmin(flux), np.argmax(flux)
        self.assertTrue(contrast[faint] > 2 and contrast[bright] < 0.7 * contrast[faint])

    def test_noise_is_as_ivar_and_sn_say(self):
        noisy, clean = (survey(distortion="0", noiseless=how) for how in (None, True))
        stars = draw.draw(noisy, 0, 20)
        (one, sn), (other, ideal_sn) = (observe.observe(made, stars) for made in (noisy, clean))
        for (flux, ivar, mask), (ideal, _, _) in zip(one, other):
            x = ((flux - ideal) * np.sqrt(ivar))[(mask == 0) & (ivar > 0)]
            self.assertLess(abs(x.mean()), 5 / np.sqrt(len(x)))
            self.assertLess(abs((x ** 2).mean() - 1), 5 * np.sqrt(2 / len(x)))
            self.assertLess(abs((x[1:] * x[:-1]).mean()), 5 / np.sqrt(len(x)))
        # the pixels that are dead or cosmics move the median
        np.testing.assert_allclose(ideal_sn[:, 1], stars.sn, rtol=2e-3)

    def test_distortion_is_smooth_and_of_its_size(self):
        made, flat = survey(noiseless=True), survey(noiseless=True, distortion="0")
        stars = draw.draw(made, 0, 200)
        square = []
        for (_, ivar, _), (_, other, _) in zip(observe.observe(made, stars)[0],
                                               observe.observe(flat, stars)[0]):
            for a, b in zip(ivar, other):
                good = (a > 0) & (b > 0)
                x = np.linspace(-1, 1, len(a))
                off = np.sqrt(b[good] / a[good]) - 1
                fit = np.polyfit(x[good], off, 2)
                self.assertLess(np.abs(off - np.polyval(fit, x[good])).max(), 1e-6)  # float32
                square.append((np.polyval(fit, x) ** 2).mean())
        # three terms of equal rms: the mean square has a relative sigma of sqrt(2 / 3)
        self.assertLess(abs(np.mean(square) / 0.03 ** 2 - 1), 5 * np.sqrt(2 / 3 / len(square)))

    def test_cosmics_and_dead_pixels_have_their_rates(self):
        made = survey(distortion="0")
        pixels, _ = observe.observe(made, draw.draw(made, 0, 100))
        mask, dead, flux = (np.concatenate([part(arm).ravel() for arm in pixels]) for part in (
            lambda arm: arm[2], lambda arm: arm[1] == 0, lambda arm: arm[0]))
        self.assertLessEqual(set(mask), {0, 4})  # desispec's COSMIC is bit 2
        # bad pixels come in runs: their number's variance is 2.33 or 5.1 times Poisson's
        for found, spread in (((mask != 0).sum(), 2.4), (dead.sum(), 5.2)):
            self.assertLess(abs(found - 0.001 * len(mask)), 5 * np.sqrt(spread * 0.001 * len(mask)))
        self.assertFalse(flux[dead].any())
        self.assertGreater((dead[1:] & dead[:-1]).sum(), 0.5 * dead.sum())


class Error(ProgramTest):
    """Model error: two waves, and a fraction that grows over the arm, correlated over 20 pixels."""

    @staticmethod
    def put(library):
        for label in library.label:
            label.floor = 0  # labels are not drawn off the star's
        for arm in library.arm:
            x = np.arange(arm.n_pix)
            arm.error = ModelError((0.01 * (1 + x / arm.n_pix)).astype("f4"), 20.0,
                                   np.sin(x * [[1 / 300], [2 / 300]]).astype("f4"),
                                   np.array([0.02, 0.01]))

    def test_rest(self):
        for how in ("true", "correlated"):
            made, without = (survey(self.put, model_error=error, vel_sigma="0", vsini="1,2")
                             for error in (how, "false"))
            stars = draw.draw(made, 0, 8)
            x = []
            for a, arm in enumerate(made.arms):
                template, error = made.library.arm[a], made.library.arm[a].error
                at = np.clip(np.round((np.log(arm.wave_aa) - template.ln_wave0)
                                      / template.ln_step).astype(int), 0, template.n_pix - 1)
                known = 1 + (stars.share[a] * error.sigma) @ error.component[:, at]
                unit = error.fraction[at]
                if how == "true":
                    unit = unit * np.sqrt(20 * template.ln_step / (0.8 / arm.wave_aa))
                ratio = [observe.noiseless(one, stars)[a] for one in (made, without)]
                rest = ratio[0] / ratio[1] / known
                x.append(((rest / rest.mean(axis=1, keepdims=True) - 1) / unit)[:, 60:-60])
            n = sum(part.size for part in x)
            square = sum((part ** 2).sum() for part in x) / n
            lag = sum((part[:, 1:] * part[:, :-1]).sum() for part in x) / n
            if how == "true":  # white
                self.assertLess(abs(square - 1), 5 * np.sqrt(2 / n))
                self.assertLess(abs(lag), 5 / np.sqrt(n))
            else:  # the line-spread function lowers the variance; neighbours are nearly equal
                self.assertTrue(0.8 < square < 1, square)
                self.assertTrue(0.9 < lag / square < 1, lag / square)

    def test_shares_are_standard_normal(self):
        share = np.hstack(draw.draw(survey(self.put), 0, 2000).share)
        self.assertLess(np.abs(np.corrcoef(share.T) - np.eye(6)).max(), 5 / np.sqrt(2000))
        self.assertLess(np.abs(share.mean(axis=0)).max(), 5 / np.sqrt(2000))
        self.assertLess(np.abs(share.var(axis=0) - 1).max(), 5 * np.sqrt(2 / 2000))
