# SPDX-License-Identifier: BSD-3-Clause
"""Observes the stars: brightness, noise, calibration error, defects."""

import numpy as np

from starmill.cli.basics import USAGE, need
from starmill.mocks.draw import DEFECT, NOISE, generator
from starmill.mocks.forward import forward, labels_of_templates
from starmill.surveys.spectra import median_sn
from starmill.templates import emulate

ALLBAD, COSMIC = 1 << 1, 1 << 2  # bits of desispec's spectral pixel mask
COSMIC_SHARE, DEAD_SHARE = 0.001, 0.001  # of all pixels


def noiseless(survey, stars):
    """Return the stars' flux [n][n_pix] of each arm through the line-spread function, divided by
    the star's median flux in arm r; 0 in rows without a star."""
    out = [np.zeros((len(stars.index), arm.n_pix)) for arm in survey.arms]
    there = np.flatnonzero(~stars.is_empty())
    if len(there) == 0:
        return out
    labels = labels_of_templates(survey, stars)[there]
    for a, template in enumerate(survey.templates):
        flux = emulate.flux(survey.library, template.i_arm, labels)
        for row, i in enumerate(there):
            out[a][i] = forward(survey, stars, i, a, flux[row])
    median = np.median(out[1][there], axis=1)
    bad = ~((median > 0) & np.isfinite(median))
    i = bad.argmax()
    need(not bad[i], USAGE, f"star {stars.index[there[i]]}: the median of its template in "
         f"arm r is {median[i]:g}, expected above 0; give another --library")
    for flux in out:
        flux[there] /= median[:, np.newaxis]
    return out


def _amplitude(arm_r, group, ideal, sn):
    """Find by iteration the factor on the ideal flux that gives a median S/N of sn.  S/N grows as
    the factor to a power of 1/2 to 1, so a step removes at least two thirds of the error."""
    ln_a = np.log(sn)
    for _ in range(40):
        flux = np.exp(ln_a) * ideal
        noise = np.sqrt(arm_r.gain * np.maximum(flux, 0.0) + arm_r.background[group])
        step = 4 / 3 * np.log(sn / np.median(flux / noise))
        ln_a += step
        if abs(step) < 1e-5:
            break
    return np.exp(ln_a)


def _distortion(rms, random, n_pix):
    """Return an arm's calibration error [n_pix], a factor: 1 plus Legendre polynomials of degree 0
    to 2 with equal rms.  The continuum of every fit contains these degrees."""
    x = np.linspace(-1.0, 1.0, n_pix)
    a = rms * np.sqrt((2.0 * np.arange(3) + 1.0) / 3.0) * random.standard_normal(3)
    return np.maximum(1.0 + a[0] + a[1] * x + a[2] * (1.5 * x * x - 0.5), 0.1)


def _runs(random, p, length, n):
    """Yield slices of bad pixels among the n pixels of an arm.  p: probability that a slice begins
    at a pixel.  length(u): number of pixels of a slice, from a uniform random number u."""
    i = random.geometric(p) - 1
    while i < n:
        end = i + length(random.random())
        yield slice(i, min(end, n))
        i = end + random.geometric(p) - 1


def _cosmics(random, sigma, flux, mask, is_noiseless):
    """Add cosmic rays: masked runs of one to three pixels with high flux."""
    # p gives COSMIC_SHARE of all pixels, with runs of two pixels on average
    p = COSMIC_SHARE / (2.0 - COSMIC_SHARE)
    for run in _runs(random, p, lambda u: 1 + int(3.0 * u), len(flux)):
        height = 10.0 ** (1.5 + 2.5 * random.random(run.stop - run.start))
        if not is_noiseless:
            flux[run] += height * sigma[run]
            mask[run] |= COSMIC


def _dead(random, flux, ivar):
    """Make dead pixels: flux and ivar 0, no mask.  Half of the runs have 1 pixel, half 2 to 9."""
    mean = 0.5 * 1.0 + 0.5 * 5.5  # pixels per run
    p = DEAD_SHARE / (mean - DEAD_SHARE * (mean - 1.0))
    for run in _runs(random, p, lambda u: 1 if u < 0.5 else 2 + int(16.0 * (u - 0.5)), len(flux)):
        flux[run] = ivar[run] = 0.0


def _defect(kind, random, flux, ivar, mask):
    """Apply the defect of a pathological row to its flux, ivar and mask [arm][n_pix]."""
    for a, n in enumerate(map(len, flux)):
        if kind == "masked_arm" and a == 0:
            mask[a] |= ALLBAD
        elif kind == "nan_arm" and a == 1:
            flux[a][:] = np.nan
        elif kind == "zero_arm" and a == 2:
            flux[a][:] = ivar[a][:] = 0.0
        elif kind == "no_arm":
            ivar[a][:] = 0.0
        elif kind == "half_masked":
            mask[a][::2] |= ALLBAD
        elif kind == "inf_pixels":  # one random pixel in each fiftieth of the arm
            i = ((np.arange(50) + random.random(50)) * n / 50.0).astype(int)
            flux[a][i] = np.where(np.arange(50) % 2, -np.inf, np.inf)
            mask[a][i] = 0
        elif kind == "spike" and a == 1:
            i = random.integers(n)
            flux[a][i], mask[a][i] = 1e9, 0


def _observe_star(survey, stars, i, ideal, out):
    """Observe star i: from the ideal flux [n_pix] of each arm, fill row i of the arm's flux, ivar
    and mask [n][n_pix] in out.  Return the arms' median S/N."""
    settings, group, index = survey.settings, stars.group[i], stars.index[i]
    flux, ivar, mask = ([part[what][i] for part in out] for what in range(3))
    amplitude = _amplitude(survey.arms[1], group, ideal[1], stars.sn[i]) if stars.sn[i] > 0 else 0.0
    if stars.kind[i] == "negative":
        amplitude = -amplitude
    noise = generator(settings.seed, NOISE, index)
    # drawn also with --noiseless, so that dead pixels and ivar are the same
    defect = generator(settings.seed, DEFECT, index)
    for a, arm in enumerate(survey.arms):
        # the calibration error multiplies flux and noise alike, so the variance has its square
        factor = _distortion(settings.distortion, defect, arm.n_pix)
        star = amplitude * ideal[a]
        variance = (arm.gain * np.abs(star) + arm.background[group]) * factor ** 2
        sigma = np.sqrt(variance)
        ivar[a][:] = 1.0 / variance
        flux[a][:] = star if settings.noiseless else (
            star * factor + sigma * noise.standard_normal(arm.n_pix))
        _cosmics(defect, sigma, flux[a], mask[a], settings.noiseless)
        _dead(defect, flux[a], ivar[a])
        beyond = ~survey.templates[a].is_reached
        flux[a][beyond] = ivar[a][beyond] = 0.0
        mask[a][beyond] |= ALLBAD
    _defect(stars.kind[i], defect, flux, ivar, mask)
    sn = [median_sn(f, np.where((m == 0) & np.isfinite(f), v, 0))
          for f, v, m in zip(flux, ivar, mask)]
    return np.where(np.isfinite(sn), sn, 0.0)


def observe(survey, stars):
    """Return each arm's (flux, ivar, mask) [n][n_pix], with flux in 1e-17 erg / (s cm2 A), and the
    median S/N of each arm [n][3]."""
    n = len(stars.index)
    ideal = noiseless(survey, stars)
    out = [tuple(np.zeros((n, arm.n_pix), dtype) for dtype in ("f4", "f4", "i4"))
           for arm in survey.arms]
    median_sn = [_observe_star(survey, stars, i, [arm[i] for arm in ideal], out) for i in range(n)]
    return out, np.array(median_sn, "f4")
