# SPDX-License-Identifier: BSD-3-Clause
"""Puts labelled spectra on the pixels of a library: ln flux without velocity, continuum, level."""

import numpy as np
from scipy.interpolate import CubicSpline

from starmill.cli.basics import INPUT, Failure
from starmill.templates.library_data import Arm
from starmill.wavelength import doppler

LEAST_SPECTRA = 12  # of a library
LEAST_PIX, MOST_PIX = 4 * 28, 1 << 20  # pixels of an arm; the fit's splines need the least
MOST_GAP = 0.2  # bad fraction of pixels: up to here they are filled, above the spectrum is dropped

USED, NO_LABEL, OUTSIDE, BAD_FLUX, OUTLIER = range(5)
FATES = ("used", "a label is not known", "a label is outside the range to keep",
         "more than a fifth of the pixels are not finite or not above 0",
         "unlike the spectra with similar labels")


def is_good(flux):
    with np.errstate(invalid="ignore"):
        return np.isfinite(flux) & (flux > 0)


def legendre(wave, n):
    """Return n polynomials in wavelength [n, n_pix], orthonormal on the pixels."""
    x = (wave - 0.5 * (wave[0] + wave[-1])) / (0.5 * (wave[-1] - wave[0]))
    return np.linalg.qr(np.polynomial.legendre.legvander(x, max(n - 1, 0)))[0].T[:n]


class Grid:
    """The arm of a library, and LabelledSpectra (spectra_files) on it.

    fate [n]            index into FATES, from labels and pixels only
    good_aa             first and last wavelength of the longest range in which no spectrum with
                        usable labels has a bad pixel; None: no such range
    """

    def __init__(self, settings, spectra):
        self.settings, self.spectra = settings, spectra
        inside = (spectra.wave >= settings.range[0]) & (spectra.wave <= settings.range[1])
        if inside.sum() < LEAST_PIX:
            raise Failure(INPUT, f"{inside.sum()} pixels between {settings.range[0]:g} and "
                          f"{settings.range[1]:g} A, at least {LEAST_PIX} are needed; the spectra "
                          f"have {len(inside)} from {spectra.wave[0]:.2f} to "
                          f"{spectra.wave[-1]:.2f} A in vacuum")
        # to remove velocities, pixels beyond the range are needed
        self.use = slice(None) if settings.align else inside
        labels, (low, high) = spectra.labels, settings.limits.T
        bad = np.array([(~is_good(flux[inside])).sum() for flux in spectra.flux])
        with np.errstate(invalid="ignore"):
            outside = ~((labels >= low) & (labels <= high)).all(axis=1)
        self.fate = np.select(
            [~np.isfinite(labels).all(axis=1), outside, bad > MOST_GAP * inside.sum()],
            [NO_LABEL, OUTSIDE, BAD_FLUX], USED)
        self._check_pixels(inside)
        self.arm = self._make_arm(spectra.wave[inside])
        self.basis = legendre(self.arm.wave_aa, settings.continuum + 1)

    def _check_pixels(self, inside):
        """Refuse spectra of which more than half have a bad pixel at the same wavelength."""
        rows = np.flatnonzero((self.fate == USED) | (self.fate == BAD_FLUX))
        bad = np.zeros(len(inside), int)
        for row in rows:
            bad += ~is_good(self.spectra.flux[row])
        self.good_aa = self._longest(bad == 0)
        self._most_aa = self._longest(2 * bad <= len(rows))
        at = np.flatnonzero(inside & (2 * bad > len(rows)))
        if len(at):
            raise Failure(INPUT, f"at {self.spectra.wave[at[0]]:.2f} A {bad[at[0]]} of {len(rows)} "
                          f"spectra have a pixel that is not finite or not above 0{self._help()}")

    def _longest(self, good):
        """Return the ends of the longest run of good pixels (A); None: all are short."""
        runs = np.flatnonzero(np.diff(np.concatenate([[0], good, [0]]))).reshape(-1, 2)
        if not len(runs) or np.diff(runs).max() < LEAST_PIX:
            return None
        first, end = runs[np.diff(runs)[:, 0].argmax()]
        return self.spectra.wave[first], self.spectra.wave[end - 1]

    def _help(self):
        if self.good_aa:
            return "; all pixels are good with --range {:.2f},{:.2f}".format(*self.good_aa)
        if self._most_aa:
            return "; at least half of the spectra are good at each pixel with --range " \
                   "{:.2f},{:.2f}: a narrower one keeps more".format(*self._most_aa)
        return "; no --range helps"

    def _make_arm(self, wave):
        """Return an arm uniform in ln wavelength from the first pixel on, with the input's finest
        step (its mean step if the input is uniform up to rounding)."""
        span, step = np.log(wave[-1] / wave[0]), np.diff(np.log(wave)).min()
        if span / step - (len(wave) - 1) < 0.01:
            step = span / (len(wave) - 1)
        n_pix = np.floor(span / step * (1 + 1e-12)) + 1
        if n_pix > MOST_PIX:
            raise Failure(INPUT, f"the finest step of the wavelengths makes {n_pix:.3g} pixels, at "
                          f"most {MOST_PIX}")
        s, first = self.settings, np.log(wave[0])
        return Arm(s.arm, s.arm, float(first), float(step), np.exp(first + np.arange(n_pix) * step),
                   template_sigma_aa=s.sigma_aa, sigma_origin=s.sigma_origin, source=s.source,
                   revision="spectra1")

    def _one(self, flux, vel_km_s):
        """Shift a spectrum of velocity vel_km_s to rest.  Return its ln flux [n_pix], and gap
        [n_pix]: pixels near bad ones, beyond the ends, or where the spline is not above 0."""
        wave, x = self.spectra.wave[self.use], self.arm.wave_aa
        flux = flux[self.use].astype(float)
        good = is_good(flux)
        level = flux[good].mean()  # avoids overflow in extreme flux units
        index = np.arange(len(flux))
        if not good.all():
            flux = np.interp(index, index[good], flux[good])
        if vel_km_s:
            x = x * doppler(vel_km_s)
        value = CubicSpline(wave, flux / level, bc_type="natural")(x)
        gap = ~(value > 0)
        if not good.all():
            at = np.clip(np.searchsorted(wave, x, side="right") - 1, 0, len(wave) - 2)
            around = np.pad(~good, (1, 2))
            gap |= around[at] | around[at + 1] | around[at + 2] | around[at + 3]
        if vel_km_s:
            gap |= (x < wave[0]) | (x > wave[-1])
        return np.log(np.where(gap, 1, value)), gap

    def _flatten(self, y, gap):
        """Remove continuum and median from each row of y, fitted to its good pixels."""
        whole = ~gap.any(axis=1)
        flat = y[whole]
        flat -= (flat @ self.basis.T) @ self.basis
        y[whole] = flat - np.median(flat, axis=1, keepdims=True)
        for i in np.flatnonzero(~whole):
            row, good = y[i], ~gap[i]
            basis = self.basis[:, good]
            share, _, rank, _ = np.linalg.lstsq(basis.T, row[good], rcond=None)
            if rank < len(basis):
                raise Failure(INPUT, "a spectrum's gaps leave too few pixels for a continuum of "
                              f"degree {len(basis) - 1}; give a lower --continuum")
            row -= share @ self.basis
            row -= np.median(row[good])

    def put(self, velocity):
        """Shift all spectra by their velocities [n] (km/s) to rest.  Return fate [n], the fraction
        of pixels in gaps [n], the rows used, and their ln flux and gaps [n used, n_pix].  A gap
        holds the mean of the spectra good at this pixel."""
        fate, part = self.fate.copy(), np.zeros(len(self.fate))
        rows = np.flatnonzero(fate == USED)
        y = np.empty((len(rows), self.arm.n_pix))
        gap = np.empty(y.shape, bool)
        for i, row in enumerate(rows):
            y[i], gap[i] = self._one(self.spectra.flux[row], velocity[row])
        part[rows] = gap.mean(axis=1)
        bad = part[rows] > MOST_GAP
        if bad.any():
            fate[rows[bad]] = BAD_FLUX
            rows, y, gap = rows[~bad], y[~bad], gap[~bad]
        n = len(rows)
        if n < LEAST_SPECTRA:
            lost = [int((fate == code).sum()) for code in (NO_LABEL, OUTSIDE, BAD_FLUX)]
            raise Failure(INPUT, f"{n} spectra can be used, at least {LEAST_SPECTRA} are needed; "
                          f"of {len(fate)}, {lost[0]} lack a label, {lost[1]} are outside the range "
                          f"to keep, and in {lost[2]} more than a fifth of the pixels are not "
                          f"finite or not above 0{self._help() if lost[2] else ''}")
        self._flatten(y, gap)
        for p in np.flatnonzero(gap.any(axis=0)):
            y[gap[:, p], p] = y[~gap[:, p], p].mean() if not gap[:, p].all() else 0
        return fate, part, rows, y, gap
