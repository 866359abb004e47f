# SPDX-License-Identifier: BSD-3-Clause
"""Compare real spectra of known labels with an arm's templates: their ratio, the ratio at other
labels, and the shifts of labels and velocity that would explain it (docs/science/numerics.md,
"Correction by real spectra")."""

from dataclasses import dataclass, replace

import numpy as np

from starmill.templates import emulate, residuals
from starmill.templates.model_error import BLOCK, residuals_of, smoother
from starmill.wavelength import C_KM_S

PIXELS_PER_SIGMA = 2.5  # sampling: pixels kept for each sigma of the line-spread function
STEP = 0.5  # of finite differences, in errors of the spectra's labels
CORRELATED = 30  # pixels over which residuals are correlated: they count as one
BEYOND = 0.3  # |ln(spectrum / template)| is clipped here: no star differs by more
CLIP = 4  # residuals of a pixel are clipped at this many robust standard deviations


def mad(x, axis=None):
    """Return the robust standard deviation."""
    return 1.4826 * np.median(np.abs(x - np.median(x, axis=axis, keepdims=True)), axis=axis)


@dataclass
class Calibrators:
    """n spectra at every stride-th pixel of an arm."""

    at: np.ndarray  # [n_pix] which pixels of the arm
    wave: np.ndarray  # [n_pix] A
    x: np.ndarray  # [n, n_pix] ln(spectrum / template) without its continuum, 0 where not known
    known: np.ndarray  # [n, n_pix]
    slope: np.ndarray  # [n_label + 1, n, n_pix] of ln template by label and by km/s, without continuum
    weight: np.ndarray  # [n_pix] of squared residuals: square of measure_scale's, mean 1
    labels: np.ndarray  # [n, n_label]
    mapped: np.ndarray  # [n, n_label]
    errors: np.ndarray  # [n, n_label] of benchmark stars' labels, NaN of other labels
    scale: np.ndarray  # [n_label] errors of the calibrators' labels
    measures: np.ndarray  # [n_pix] 0 to 1: how much spectra may correct templates here
    level: np.ndarray  # [n_pix of the arm] mean template over its mean flux

    def rows(self, which):
        return replace(self, x=self.x[which], known=self.known[which], slope=self.slope[:, which],
                       labels=self.labels[which], mapped=self.mapped[which],
                       errors=self.errors[which])

    def thinned(self, step):
        """Return these spectra at every step-th pixel."""
        at = slice(None, None, step)
        return replace(self, at=self.at[at], wave=self.wave[at], x=self.x[:, at],
                       known=self.known[:, at], slope=self.slope[:, :, at], weight=self.weight[at],
                       measures=self.measures[at])

    def shifts(self, x, scale=None):
        """Estimate from residuals x [n, n_pix] how far each spectrum's labels are off [n, n_label],
        with priors of width `scale`; one residual in CORRELATED counts as independent."""
        scale = self.scale if scale is None else scale
        n_label = len(self.scale)
        out = np.zeros((len(x), n_label))
        for i in range(len(x)):
            slope = self.slope[:n_label, i]
            weight = self.weight * self.known[i] * self.measures
            weight = weight / weight.sum()
            n_free = self.known[i].sum() / CORRELATED
            scaled = slope * (weight * n_free / (weight @ x[i] ** 2))
            out[i] = np.linalg.solve(scaled @ slope.T + np.diag(scale**-2.0), scaled @ x[i])
        return out

    def at_shifts(self, x, shift):
        """Return residuals x [n, n_pix] after the templates' labels moved by shift [n, n_label]."""
        out = x.copy()
        for k in range(shift.shape[1]):
            out -= self.slope[k] * shift[:, k, None]
        return out

    def estimates(self, x, variance, patterns, use):
        """Return the shifts of labels and velocity [n, n_label + 1] that best explain residuals x
        (least squares over the pixels `use`), and the shifts' errors.  Residuals are white noise of
        variance [n_pix] plus patterns [n_pattern, n_pix] times normal random numbers."""
        out, error = np.empty((2, len(x), len(self.slope)))
        small = np.diag(np.append(1e-4 * self.scale**-2.0, 1e-8))
        for i in range(len(x)):
            white = use * self.known[i] / variance
            inner = np.linalg.inv(np.eye(len(patterns)) + (patterns * white) @ patterns.T)
            scaled = self.slope[:, i] * white
            scaled = scaled - (scaled @ patterns.T) @ inner @ (patterns * white)
            inverse = np.linalg.inv(scaled @ self.slope[:, i].T + small)
            out[i], error[i] = inverse @ (scaled @ x[i]), np.sqrt(np.diag(inverse))
        return out, error


def compare(library, i_arm, spectra, sigma_aa, kernel_aa, n_continuum, measures, size, slope=None):
    """Return the Calibrators of an arm.

    sigma_aa   sigma (A) of the spectra's line-spread function
    kernel_aa  sigma (A) with which templates are convolved to that of the spectra
    measures   function of wavelengths, 0 to 1: how much the spectra may correct templates there
    size       [n_label] errors of the spectra's labels
    slope      slope of earlier Calibrators of these spectra; None: compute it
    """
    arm = library.arm[i_arm]
    x, level = residuals_of(library, i_arm, spectra, kernel_aa)
    step = arm.ln_step * arm.wave_aa[arm.n_pix // 2]
    stride = max(1, int(sigma_aa / PIXELS_PER_SIGMA / step)) if np.isfinite(sigma_aa) else 1
    inside = np.flatnonzero(np.isfinite(x).mean(axis=0) > 0.5)
    at = np.arange(inside[0], inside[-1] + 1, stride)
    wave, x = arm.wave_aa[at], x[:, at]
    use = np.isfinite(x).mean(axis=1) > 0.5
    functions = residuals.continuum(2 * (wave - wave[0]) / (wave[-1] - wave[0]) - 1, n_continuum)
    ratio, known, scale = flat(x[use], functions, level[at])
    labels = spectra.labels[use]
    out = Calibrators(at, wave, ratio, known, slope, scale**2 / np.mean(scale**2), labels,
                      library.map(labels), spectra.errors[use], size, measures(wave), level)
    if slope is None:
        out.slope = slopes(library, i_arm, labels, size, kernel_aa, at)
        weighted = functions * out.weight  # fits take the continuum out of the slopes too
        take = np.linalg.solve(weighted @ functions.T, weighted)
        for one in out.slope:
            one -= (one @ take.T) @ functions
    return out


def flat(x, functions, level):
    """Return ln(1 + x) less its continuum, 0 where x is NaN; a mask of finite x; and the factors
    [n_pix] that residuals are multiplied by before they are compared."""
    known, scale = np.isfinite(x), level
    x = np.where(known, x, 0)
    for _ in range(2):
        y = np.where(known, residuals.divide_by_continuum(x, known, functions, scale), 0)
        scale = residuals.measure_scale(level, y)
    y = np.log(np.clip(1 + y, np.exp(-BEYOND), np.exp(BEYOND)))
    return np.where(known, y, 0), known, scale


def slopes(library, i_arm, labels, size, kernel_aa, at):
    """Return d ln template / d label and d km/s [n_label + 1, n, n_pix], smoothed by kernel_aa."""
    arm = library.arm[i_arm]
    cut, inside = smoother(arm, kernel_aa) if kernel_aa > 0 else (None, slice(None))

    def ln_flux(values):
        model = emulate.flux(library, i_arm, values)
        if cut:
            model[:, inside] = [cut.apply(one) for one in model]
        return np.log(np.maximum(model, 1e-30))

    out = np.empty((len(size) + 1, len(labels), len(at)), np.float32)
    for start in range(0, len(labels), BLOCK):
        block = slice(start, start + BLOCK)
        for k in range(len(size)):
            step = np.zeros(len(size))
            step[k] = STEP * size[k]
            both = ln_flux(labels[block] + step) - ln_flux(labels[block] - step)
            out[k, block] = both[:, at] / (2 * step[k])
        by_pixel = np.gradient(ln_flux(labels[block]), axis=1)
        out[-1, block] = by_pixel[:, at] / (arm.ln_step * C_KM_S)
    return out


def clipped(x, known):
    """Return residuals [n, n_pix] clipped at CLIP robust deviations of each pixel."""
    limit = np.array([1.4826 * np.median(np.abs(x[k, i])) if k.any() else 0
                      for i, k in enumerate(known.T)])
    return np.clip(x, -CLIP * limit, CLIP * limit)
