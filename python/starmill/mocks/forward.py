# SPDX-License-Identifier: BSD-3-Clause
"""Noise-free spectra at the instrument's pixels: the fit's model (docs/science/numerics.md) in
float64, coded independently of the fit."""

import dataclasses
import functools

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.interpolate import CubicSpline
from scipy.linalg import solve_banded
from scipy.ndimage import correlate1d

from starmill.cli.basics import USAGE, Failure, need
from starmill.mocks.draw import FLOOR, REST, generator
from starmill.mocks.instrument import HALF, N_DIAG
from starmill.wavelength import C_KM_S, doppler

MAX_VEL_KM_S, MAX_VSINI_KM_S = 1000.0, 500.0  # of a fit, by default
MIN_PIX = 200  # least grid points of a part of an arm; shorter parts are left out
SPLINE_MARGIN = 64  # grid points added at each end, where a spline's end condition has effect
LIMB_DARKENING = 0.6
# v sin i in grid points: below MOMENTS rotation_weights takes moment weights, above QUINTIC
# quintic weights, and between these limits a blend of both weights
MOMENTS, QUINTIC = 1.5, 2.5
# weights that give the 2nd, 4th and 6th difference (rows) from seven points: of the middle point,
# and of the points 1, 2 and 3 from it on either side (columns)
DIFFERENCE = np.array([[-49 / 18, 3 / 2, -3 / 20, 1 / 90], [28 / 3, -13 / 2, 2, -1 / 6],
                       [-20, 15, -6, 1]])
# cardinal function of the quintic spline: row i has the coefficients of s^0 to s^5 at |y| = i + s
PIECE = np.array([[1, 0, -5 / 4, -35 / 12, 21 / 4, -25 / 12],
                  [0, -2 / 3, 2 / 3, 13 / 8, -8 / 3, 25 / 24],
                  [0, 1 / 12, -1 / 24, -3 / 8, 13 / 24, -5 / 24], np.zeros(6)])


def cut_arms(library, ranges):
    """Cut a library's only arm into several, as a fit does.  ranges: {arm: (first, last wavelength
    in A)}.  A library with several arms, or whose arm is in ranges, is returned unchanged."""
    whole = library.arm[0]
    if len(library.arm) != 1 or whole.name in ranges:
        return library
    margin = np.arctanh(MAX_VEL_KM_S / C_KM_S) + np.arctanh(MAX_VSINI_KM_S / C_KM_S)
    parts = []
    for name, (first_aa, last_aa) in ranges.items():
        low, high = (np.log([first_aa, last_aa]) + [-margin, margin] - whole.ln_wave0) / \
            whole.ln_step
        part = slice(max(int(np.floor(low)) - SPLINE_MARGIN, 0),
                     max(int(np.ceil(high)) + SPLINE_MARGIN + 1, 0))
        if len(whole.wave_aa[part]) >= MIN_PIX:
            parts.append(_part(whole, name, part))
    return dataclasses.replace(library, arm=parts)


def _part(whole, name, part):
    emulator, error = whole.emulator, whole.error
    if error is not None:
        component = None if error.component is None else error.component[:, part]
        error = dataclasses.replace(error, fraction=error.fraction[part], component=component)
    return dataclasses.replace(
        whole, name=name, ln_wave0=whole.ln_wave0 + whole.ln_step * part.start,
        wave_aa=whole.wave_aa[part], error=error,
        emulator=dataclasses.replace(
            emulator, weight=[*emulator.weight[:-1], emulator.weight[-1][part]],
            bias=[*emulator.bias[:-1], emulator.bias[-1][part]]))


class Template:
    """An arm of the instrument, and the library's arm of the same name."""

    def __init__(self, library, instrument):
        names = [arm.name for arm in library.arm]
        need(instrument.name in names, USAGE, f"{library.path} has no arm {instrument.name}; "
             "simulated stars need the arms b, r and z, or one arm over all of them")
        self.i_arm = names.index(instrument.name)
        self.arm, self.instrument = library.arm[self.i_arm], instrument
        wave_aa, reach = instrument.wave_aa, np.exp(np.arctanh(MAX_VEL_KM_S / C_KM_S))
        first_aa, last_aa = self.arm.wave_aa[[0, -1]]
        # [n_pix] pixels inside the template at every velocity up to MAX_VEL_KM_S
        self.is_reached = (wave_aa >= first_aa * reach) & (wave_aa <= last_aa / reach)
        need(self.is_reached.sum() >= len(wave_aa) // 2, USAGE,
             f"{library.path}: arm {instrument.name} has {first_aa:.1f} to {last_aa:.1f} A; even "
             f"when shifted by {MAX_VEL_KM_S:g} km/s it must cover half of the instrument's "
             f"{wave_aa[0]:.1f} to {wave_aa[-1]:.1f} A: give a library of a wider range")
        # rows of each group's resolution matrix; None: templates at the instrument's resolution
        self.rows = None if self.arm.template_sigma_aa < 0 else [
            resolution_rows(of_group.astype(float), self.arm.template_sigma_aa / instrument.step_aa)
            for of_group in instrument.resolution]


def resolution_rows(resolution, sigma_pix):
    """Deconvolve DESI's resolution matrix [N_DIAG][n_pix] by the templates' sigma (pixels); return
    its rows [n_pix][N_DIAG].  Rows cut by the arm's ends are rescaled to the median row's sum."""
    n_pix = resolution.shape[1]
    i, k = np.mgrid[:n_pix, :N_DIAG]
    column = i - HALF + k  # of element k of row i
    inside = (column >= 0) & (column < n_pix)
    rows = np.where(inside, resolution[N_DIAG - 1 - k, column % n_pix], 0.0)
    if sigma_pix > 0:
        distance = np.subtract.outer(np.arange(N_DIAG), np.arange(N_DIAG))
        gauss = np.exp(-0.5 * (distance / sigma_pix) ** 2) / (sigma_pix * np.sqrt(2.0 * np.pi))
        try:
            np.linalg.cholesky(gauss)
        except np.linalg.LinAlgError as error:
            raise Failure(USAGE, f"the templates' sigma, {sigma_pix:.3g} pixels, is too large for "
                                 "the resolution matrix: give a library of lower sigma") from error
        rows = np.linalg.solve(gauss, rows.T).T
    level = np.median(rows.sum(axis=1))
    ends = ~inside.all(axis=1)
    rows[ends] *= inside[ends]
    rows[ends] *= level / rows[ends].sum(axis=1, keepdims=True)
    return rows


def _profile(n):
    """Return n points x and the weights K(x) dx for integrals over Gray's rotation profile,
    K(x) = c1 sqrt(1 - x^2) + c2 (1 - x^2) with x = velocity / v sin i."""
    cosine, x = (function((np.arange(n) + 0.5) * np.pi / n - np.pi / 2)
                 for function in (np.cos, np.sin))
    norm = 1.0 - LIMB_DARKENING / 3.0
    c1, c2 = 2.0 * (1.0 - LIMB_DARKENING) / norm / n, 0.5 * np.pi * LIMB_DARKENING / norm / n
    return x, (c1 + c2 * cosine) * cosine ** 2


def _moment_weights(r):
    """Return the weights of the pixels 0 to 3 from the middle.  Their moments 0 to 6 equal the
    moments of the rotation profile for a v sin i of r pixels."""
    power, (x, k_dx) = np.array([2, 4, 6]), _profile(1000)
    moments = k_dx @ x[:, np.newaxis] ** power
    weight = (r ** power * moments / [2, 24, 720]) @ DIFFERENCE
    weight[0] += 1.0
    return weight


def _quintic_weights(r):
    """Return the weights of pixels k = 0, 1, ... from the middle: integrals of K(x) L(k - r x) dx.
    r: v sin i in pixels; K: rotation profile; L: cardinal function of a quintic spline (PIECE)."""
    x, k_dx = _profile(150 * int(np.ceil(r)))  # good to 1e-8
    k = (np.floor(r * x) + np.arange(-2, 4)[:, np.newaxis]).ravel()
    y = np.abs(k - np.tile(r * x, 6))
    i = np.minimum(y.astype(int), 3)
    cardinal = np.einsum("ij,ij->i", PIECE[i], np.vander(y - i, 6, increasing=True))
    n = int(np.ceil(r)) + 3
    return np.bincount(k.astype(int) + n, np.tile(k_dx, 6) * cardinal, 2 * n + 1)[n:2 * n]


@functools.lru_cache(maxsize=8)
def rotation_weights(r):
    """Return the weights (sum 1) of the grid points around a pixel that broaden a spectrum by a
    v sin i of r points, as a fit with rotation_kernel spline does."""
    weight = _moment_weights(r) if r < QUINTIC else _quintic_weights(r)
    if MOMENTS < r < QUINTIC:
        s = (r - MOMENTS) / (QUINTIC - MOMENTS)
        quintic = _quintic_weights(r)
        weight = np.pad(weight, (0, len(quintic) - len(weight)))
        weight += s ** 3 * (10.0 + s * (-15.0 + s * 6.0)) * (quintic - weight)
    weight = np.r_[weight[:0:-1], weight]
    return weight / weight.sum()


def _error(error, share, is_correlated, random):
    """Return the template's relative error [n_pix] for a ModelError.  share [n_component]: the
    star's amplitudes of the components, in units of their sigmas.  is_correlated: add the error
    outside the components, a Gaussian AR(1) process.  Its rms is error.fraction; the sum of its
    correlations over all lags is error.correlation."""
    out = np.zeros(len(error.fraction))
    if error.component is not None:
        out += (share * error.sigma) @ error.component
    if is_correlated:
        factor = max(error.correlation - 1.0, 0.0) / (error.correlation + 1.0)
        rest = random.standard_normal(len(out))
        rest[1:] *= np.sqrt(1.0 - factor * factor)
        # solve rest_i - factor rest_{i-1} = drawn_i
        bands = np.array([np.ones(len(rest)), np.full(len(rest), -factor)])
        out += error.fraction * solve_banded((1, 0), bands, rest)
    return out


def labels_of_templates(survey, stars):
    """Return the labels [n, n_label] of the stars' templates: the stars' labels and, with model
    error, Gaussian errors, whose sigmas are the floors of the library's labels."""
    if survey.settings.model_error == "false" or all(t.arm.error is None for t in survey.templates):
        return stars.label
    floor = np.array([label.floor for label in survey.library.label])
    return stars.label + floor * np.array([
        generator(survey.settings.seed, FLOOR, i).standard_normal(len(floor)) for i in stars.index])


def forward(survey, stars, i, a, flux):
    """Return star i's flux [n_pix] in arm a of the instrument, in arbitrary units: the template's
    `flux` after rotation, model error, Doppler shift and line-spread function."""
    template = survey.templates[a]
    arm, wave_aa = template.arm, template.instrument.wave_aa
    how = survey.settings.model_error if arm.error is not None else "false"
    random = generator(survey.settings.seed, REST + a, stars.index[i])
    weights = rotation_weights(stars.vsini_km_s[i] / (C_KM_S * arm.ln_step))
    flux = correlate1d(flux, weights, mode="nearest")
    if how != "false":
        flux *= 1.0 + _error(arm.error, stars.share[a][i], how == "correlated", random)
    shift = doppler(-stars.vrad_km_s[i])
    spline = CubicSpline(arm.wave_aa, flux, bc_type="natural")
    pixel = spline(np.clip(wave_aa * shift, arm.wave_aa[0], arm.wave_aa[-1]))
    if template.rows is not None:
        windows = sliding_window_view(np.pad(pixel, HALF), N_DIAG)
        pixel = np.einsum("ij,ij->i", template.rows[stars.group[i]], windows)
    if how == "true":  # the error outside the components is white noise, as fits assume
        rms = arm.white_error(wave_aa * shift, template.instrument.step_aa / wave_aa)
        pixel *= 1.0 + rms * random.standard_normal(len(wave_aa))
    return pixel
