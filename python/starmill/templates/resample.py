# SPDX-License-Identifier: BSD-3-Clause
"""Cuts a spectrum into an arm: convolves it with a Gaussian whose width varies along the arm,
averages it over pixels of uniform ln wavelength, and gives the level to divide it by.

Pixel p spans [lo, hi] = exp(ln_wave0 + (p -+ 1/2) ln_step), and gets

    F_p = int f(x) [Phi((hi - x) / s_p) - Phi((lo - x) / s_p)] dx / (hi - lo),

the flux density of the smoothed spectrum, averaged over the pixel.  Phi is the normal distribution,
s_p the sigma of the pixel's kernel, f the natural cubic spline through the spectrum.  If s_p is 0,
F_p is the average of the spline itself.

The integral is a sum over equal steps in ln wavelength, so a sparse matrix multiplies the spline's
values.  Steps are at most those of the spectrum and s_p / 2.5, where the sum is exact to 1e-9.
Gaussians end at 5 sigma (6e-7 of the area).
"""

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq
from scipy.sparse import csr_matrix
from scipy.special import erfc

from starmill.cli.basics import INPUT, Failure, need

KERNEL_SIGMA = 5.0
STEP_OF_SIGMA = 2.5
MIN_KERNEL = 0.01  # pixels; narrower kernels change flux by less than 5e-5 of a line's depth
MAX_WEIGHT = 1 << 26  # matrix elements, 800 MB
BLOCK = 1 << 18  # weights computed at once
MARGIN = 16  # samples beyond the arm, so that the spline's end conditions have no effect
STEP_QUANTILE = 20  # the shortest 1 / 20 of a spectrum's steps do not count
MEDIAN_WIDTH = 0.1  # of the smooth median, in ln flux: 0 would be the median, infinity the mean


class ArmCut:
    """Cuts spectra into one arm.  kernel_aa [n_pix]: Gaussian sigma (A) of the convolution,
    raised to at least 0.01 pixels; if all are below, spectra are not convolved.  A spectrum must
    cover min_aa to max_aa (A)."""

    def __init__(self, n_pix, ln_wave0, ln_step, kernel_aa):
        self.n_pix, self.ln_wave0, self.ln_step = n_pix, ln_wave0, ln_step
        self.edge = np.exp(ln_wave0 + (np.arange(n_pix + 1) - 0.5) * ln_step)
        least = MIN_KERNEL * ln_step * np.exp(ln_wave0 + np.arange(n_pix) * ln_step)
        self.kernel = np.maximum(kernel_aa, least) if (kernel_aa >= least).any() else None
        reach = 0 if self.kernel is None else KERNEL_SIGMA * self.kernel
        self.low, self.high = self.edge[:-1] - reach, self.edge[1:] + reach
        self.min_aa, self.max_aa = self.low.min(), self.high.max()
        self._wave, self._n_sub = None, 0

    def prepare(self, wave):
        """Prepare for spectra at ascending wavelengths wave (A); do nothing for the same array."""
        if wave is self._wave:
            return
        if len(wave) < 4 or not wave[0] <= self.min_aa or not wave[-1] >= self.max_aa:
            raise Failure(INPUT, f"its wavelengths, {wave[0]:.6g} to {wave[-1]:.6g} A, do not "
                                 f"cover {self.min_aa:.6g} to {self.max_aa:.6g} A")
        first = np.searchsorted(wave, self.min_aa, side="right") - 1 - MARGIN
        last = np.searchsorted(wave, self.max_aa, side="right") + 1 + MARGIN
        self._used = slice(max(first, 0), min(last, len(wave)))
        if self.kernel is not None:
            x = wave[self._used]
            step = np.sort(np.diff(x) / x[:-1])[(len(x) - 1) // STEP_QUANTILE]
            step = min(step, (self.kernel / (STEP_OF_SIGMA * self.edge[:-1])).min())
            n_sub = np.ceil(self.ln_step / step * (1 - 1e-9))
            if n_sub != self._n_sub:
                self._make_weights(n_sub)
        self._wave = wave

    def _make_weights(self, n_sub):
        """Make the matrix: one row per pixel, one column per step; each row sums to 1."""
        self._n_sub = 0
        step = self.ln_step / n_sub
        first = np.ceil((np.log(self.low) - self.ln_wave0) / step)
        n = np.floor((np.log(self.high) - self.ln_wave0) / step) - first + 1
        need(n.sum() < MAX_WEIGHT, INPUT,
             f"resampling it to pixels of {self.ln_step * self.edge[0]:.3g} A needs {n.sum():.0f} "
             "weights, too many: give coarser input wavelengths or finer output pixels")
        first, n, start = first.astype(int), n.astype(int), first.min()
        at = np.concatenate([[0], np.cumsum(n)])
        self._fine = np.exp(self.ln_wave0 + np.arange(start, (first + n).max()) * step)
        column, weight = np.empty(at[-1], "i4"), np.empty(at[-1])
        for p in np.split(np.arange(self.n_pix),
                          np.searchsorted(at, np.arange(BLOCK, at[-1], BLOCK))):
            if len(p) == 0:
                continue
            part = slice(at[p[0]], at[p[-1] + 1])
            row = np.repeat(p, n[p])
            column[part] = np.arange(part.start, part.stop) - (at[:-1] - first + int(start))[row]
            x = self._fine[column[part]]
            low, high = ((x - edge[row]) / (np.sqrt(2) * self.kernel[row])
                         for edge in (self.edge[:-1], self.edge[1:]))
            # subtract small tails of erfc, since numbers near 1 would lose digits; multiply by x,
            # since a step spans an interval proportional to its wavelength
            weight[part] = x * np.where(low < 0, erfc(-low) - erfc(-high), erfc(high) - erfc(low))
        weight /= np.repeat(np.add.reduceat(weight, at[:-1]), n)
        self._weights = csr_matrix((weight, column, at), shape=(self.n_pix, len(self._fine)))
        self._n_sub = n_sub

    def apply(self, flux):
        """Return a spectrum's flux density in the arm's pixels [n_pix], in flux's unit.  flux:
        samples at the wavelengths of prepare(); those beyond min_aa and max_aa may be bad."""
        x, y = self._wave[self._used], flux[self._used]
        lost = ~np.isfinite(y)
        below = np.flatnonzero(lost[:-1] & (x[1:] <= self.min_aa))
        beyond = np.flatnonzero(lost[1:] & (x[:-1] >= self.max_aa)) + 1
        part = slice(below[-1] + 1 if len(below) else 0, beyond[0] if len(beyond) else len(x))
        x, y, lost = x[part], y[part], lost[part]
        bad = lost | (~(y > 0) & (x >= self.edge[0]) & (x <= self.edge[-1]))
        if bad.any():
            i = np.argmax(bad)
            raise Failure(INPUT, f"its flux is {y[i]:g} at {x[i]:.7g} A")
        spline = CubicSpline(x, y, bc_type="natural")
        if self.kernel is None:
            return np.diff(spline.antiderivative()(self.edge)) / np.diff(self.edge)
        return self._weights @ spline(self._fine)


def smooth_median(y):
    """Return the m where sum z / sqrt(1 + z^2) = 0, z = (y - m) / MEDIAN_WIDTH.  A median has kinks
    where another y becomes the middle one, which no emulator can follow; m has none."""
    def value(m):
        z = (y - m) / MEDIAN_WIDTH
        return (z / np.sqrt(1 + z * z)).sum()
    return brentq(value, y.min(), y.max(), xtol=1e-13)


def level_of(flux, how):
    """Return the level by which an arm's flux is divided.  how: "none" (1), "median", or
    "smooth-median" (exp of the smooth median of ln flux)."""
    if how == "none":
        return 1.0
    return np.median(flux) if how == "median" else np.exp(smooth_median(np.log(flux)))
