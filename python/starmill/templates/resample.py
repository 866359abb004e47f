# SPDX-License-Identifier: BSD-3-Clause
"""Cuts a spectrum into an arm: convolves it with a Gaussian whose width varies along the arm,
averages it over pixels of uniform ln wavelength, and gives the level to divide it by.

Pixel p spans [lo, hi] = exp(ln_wave0 + (p -+ 1/2) ln_step), and gets

    F_p = int f(x) [Phi((hi - x) / s_p) - Phi((lo - x) / s_p)] dx / (hi - lo),

the mean of the smoothed spectrum over the pixel.  f: natural cubic spline through the spectrum;
s_p: sigma of the pixel's Gaussian, which ends at 5 sigma; Phi: cumulative normal distribution.
If no s_p is above 0, F_p is the mean of the spline itself.

The integral is a sum over equal steps in ln wavelength: a sparse matrix times the values of the
spline.  The steps are at most those of the spectrum and s_p / 2.5.
"""

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.ndimage import median_filter
from scipy.optimize import brentq
from scipy.sparse import csr_matrix
from scipy.special import erfc

from starmill.cli.basics import INPUT, need

KERNEL_SIGMA = 5.0
STEP_OF_SIGMA = 2.5
MIN_KERNEL = 0.01  # pixels; narrower kernels change flux by less than 5e-5 of a line's depth
MAX_WEIGHT = 1 << 26  # matrix elements, 800 MB
BLOCK = 1 << 18  # weights computed at once
MARGIN = 16  # samples beyond the arm, so that the spline's end conditions have no effect
STEP_QUANTILE = 20  # the shortest 1 / 20 of a spectrum's steps do not count
HOLE, NEAR = 4, 33  # a step above 4 times the median of 33 is a hole, which no spline may bridge
MEDIAN_WIDTH = 0.1  # of the smooth median, in ln flux: 0 would be the median, infinity the mean


def holes(wave):
    """Return a mask of the steps [n_pix - 1] between wavelengths that are holes."""
    step = np.diff(wave)
    return step > HOLE * median_filter(step, NEAR, mode="nearest")


class ArmCut:
    """Cuts spectra into one arm; they must cover min_aa to max_aa.  kernel_aa [n_pix]: sigma (A) of
    the Gaussian; if it is below MIN_KERNEL pixels everywhere, spectra are not convolved.  most_step
    (A): spectra with a longer step are refused, like those with a hole longer than a pixel."""

    def __init__(self, n_pix, ln_wave0, ln_step, kernel_aa, most_step=np.inf):
        self.n_pix, self.ln_wave0 = n_pix, ln_wave0
        self.ln_step, self.most_step = ln_step, most_step
        self.edge = np.exp(ln_wave0 + (np.arange(n_pix + 1) - 0.5) * ln_step)
        least = MIN_KERNEL * ln_step * np.exp(ln_wave0 + np.arange(n_pix) * ln_step)
        self.kernel = np.maximum(kernel_aa, least) if (kernel_aa >= least).any() else None
        reach = 0 if self.kernel is None else KERNEL_SIGMA * self.kernel
        self.low, self.high = self.edge[:-1] - reach, self.edge[1:] + reach
        self.min_aa, self.max_aa = self.low.min(), self.high.max()
        self._wave, self._n_sub = None, 0

    def prepare(self, wave):
        """Prepare for ascending wavelengths (A); do nothing if wave is the last call's array."""
        if wave is self._wave:
            return
        need(len(wave) >= 4 and wave[0] <= self.min_aa and wave[-1] >= self.max_aa, INPUT,
             f"its wavelengths, {wave[0]:.6g} to {wave[-1]:.6g} A, do not cover "
             f"{self.min_aa:.6g} to {self.max_aa:.6g} A")
        first = np.searchsorted(wave, self.min_aa, side="right") - 1 - MARGIN
        last = np.searchsorted(wave, self.max_aa, side="right") + 1 + MARGIN
        self._used = slice(max(first, 0), min(last, len(wave)))
        x = wave[self._used]
        step = np.diff(x)
        lost = holes(x) & (step > self.ln_step * x[1:]) | (step > self.most_step)
        i = np.argmax(lost := lost & (x[1:] > self.min_aa) & (x[:-1] < self.max_aa))
        need(not lost[i], INPUT, f"it has no pixel between {x[i]:.7g} and {x[i + 1]:.7g} A, which "
             "an arm needs: give finer wavelengths, or arms that leave this range out")
        if self.kernel is not None:
            step = np.sort(step / x[:-1])[(len(x) - 1) // STEP_QUANTILE]
            step = min(step, (self.kernel / (STEP_OF_SIGMA * self.edge[:-1])).min())
            n_sub = np.ceil(self.ln_step / step * (1 - 1e-9))
            if n_sub != self._n_sub:
                self._make_weights(n_sub)
        self._wave = wave

    def _make_weights(self, n_sub):
        """Make the matrix: a row per pixel, a column per step of ln_step / n_sub; rows sum to 1."""
        self._n_sub = 0
        step = self.ln_step / n_sub
        first = np.ceil((np.log(self.low) - self.ln_wave0) / step)
        n = np.floor((np.log(self.high) - self.ln_wave0) / step) - first + 1
        need(n.sum() < MAX_WEIGHT, INPUT,
             f"resampling it to pixels of {self.ln_step * self.edge[0]:.3g} A needs {n.sum():.0f} "
             f"weights, expected under {MAX_WEIGHT}: give coarser input or finer output pixels")
        first, n, start = first.astype(int), n.astype(int), first.min()
        at = np.concatenate([[0], np.cumsum(n)])  # where each pixel's weights begin
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
            # subtract small tails (erfc), which keeps digits; x turns d ln x into dx
            weight[part] = x * np.where(low < 0, erfc(-low) - erfc(-high), erfc(high) - erfc(low))
        weight /= np.repeat(np.add.reduceat(weight, at[:-1]), n)
        self._weights = csr_matrix((weight, column, at), shape=(self.n_pix, len(self._fine)))
        self._n_sub = n_sub

    def apply(self, flux):
        """Return the flux [n_pix] in the arm's pixels.  flux: samples at the wavelengths of
        prepare(); samples below min_aa or above max_aa may be bad."""
        x, y = self._wave[self._used], flux[self._used]
        lost = ~np.isfinite(y)
        below = np.flatnonzero(lost[:-1] & (x[1:] <= self.min_aa))
        beyond = np.flatnonzero(lost[1:] & (x[:-1] >= self.max_aa)) + 1
        part = slice(below[-1] + 1 if len(below) else 0, beyond[0] if len(beyond) else len(x))
        x, y, lost = x[part], y[part], lost[part]  # without bad samples at the ends
        bad = lost | (~(y > 0) & (x >= self.edge[0]) & (x <= self.edge[-1]))
        i = np.argmax(bad)
        need(not bad[i], INPUT, f"its flux is {y[i]:g} at {x[i]:.7g} A, expected above 0")
        spline = CubicSpline(x, y, bc_type="natural")
        if self.kernel is None:
            return np.diff(spline.antiderivative()(self.edge)) / np.diff(self.edge)
        return self._weights @ spline(self._fine)


def level_of(flux, how):
    """Return the level by which an arm's flux is divided.  how: "none" (level 1), "median", or
    "smooth-median": exp(m), where z = (ln flux - m) / MEDIAN_WIDTH and sum z / sqrt(1 + z^2) = 0.
    A plain median has kinks along the labels, which no emulator could follow."""
    if how != "smooth-median":
        return np.median(flux) if how == "median" else 1.0
    y = np.log(flux)

    def value(m):
        z = (y - m) / MEDIAN_WIDTH
        return (z / np.sqrt(1 + z * z)).sum()
    return np.exp(brentq(value, y.min(), y.max(), xtol=1e-13))
