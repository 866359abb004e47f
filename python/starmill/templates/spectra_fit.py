# SPDX-License-Identifier: BSD-3-Clause
"""A library from labelled spectra: principal components of ln flux as smooth functions of the
labels (docs/use/libraries.md, "Labelled spectra")."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from starmill.cli.basics import INPUT, Failure
from starmill.templates import residuals
from starmill.templates.guess import spread
from starmill.templates.hulls import make_hulls
from starmill.templates.labels import make_labels
from starmill.templates.library_data import Emulator, Library, Radial
from starmill.templates.measure import MAX_SPECTRA, ModelSet, robust
from starmill.templates.radial import SMOOTHINGS, RadialFit
from starmill.templates.spectra_grid import LEAST_SPECTRA, OUTLIER, Grid
from starmill.wavelength import C_KM_S

N_REWEIGHT = N_FILL = 3
N_NEIGHBOUR = 40  # with similar labels, that a spectrum is compared with
TOLERANCE = 1.0  # of the smoothings: the one-standard-error rule
STIFF = 1e8  # a smoothing that leaves the polynomial
# residuals in units of those of spectra with similar labels: beyond the first a spectrum counts
# less, beyond the second not at all
DOUBT, REJECT = 1.5, 5.0
MAX_ALIGN = 4  # rounds of a stage; three are enough
MAX_VELOCITY, SMALL_CHANGE = 600.0, 0.2  # km/s: looked for, and what ends the search
BLOCK = 1000  # spectra whose neighbours are found at once


class Functions:
    """Of the labels, through spectra y [n, n_pix] with labels values [n, n_label], gaps (bool) and
    weights [n].

    Components: mean [n_pix], pattern [q, n_pix] orthonormal, score [n, q]; lost [n]: mean square
    over pixels that they do not carry.  fit: scores of the labels.
    aligning: while spectra have velocities none is rejected.  stiff: functions that follow single
    spectra follow their velocities too, so the first rounds have the polynomials alone.
    used [n_before]: which are not rejected.
    """

    def __init__(self, settings, values, y, gap, weight=None, aligning=False, stiff=False):
        self.settings, self.values, self.y, self.gap = settings, values, y, gap
        self.weight = np.ones(len(y)) if weight is None else weight
        self.smooth = (STIFF if stiff else SMOOTHINGS if settings.smoothing is None
                       else settings.smoothing)
        self.used = np.ones(len(y), bool)
        self._make()
        if settings.keep_outliers or weight is not None:
            return
        near = self._neighbours()
        for i in range(N_REWEIGHT):
            ratio = self._doubt(near)
            self.weight = np.where(ratio > DOUBT, (DOUBT / np.maximum(ratio, DOUBT)) ** 2, 1)
            if aligning or i < N_REWEIGHT - 1:
                self._fit_scores()
        if not aligning:
            self._reject(ratio)

    def _make(self):
        self.labels, self.mapped = make_labels(self.settings.names, self.values)
        self.length = np.ones(len(self.labels))
        self._find_components()
        self._fit_scores()
        rows = self.gap.any(axis=1)
        for _ in range(N_FILL if rows.any() else 0):
            # the change falls by the part of the pixels that are gaps, or faster
            smooth = self.mean + (self.score - self.fit.residual)[rows] @ self.pattern
            self.y[rows] = np.where(self.gap[rows], smooth, self.y[rows])
            self._find_components()
            self._fit_scores(same=self.fit)

    def _find_components(self):
        n, n_pix = self.y.shape
        self.mean = self.y.mean(axis=0)
        centred = self.y - self.mean
        gram = centred @ centred.T
        own = np.diag(gram).copy()
        q = min(self.settings.n_component, n - 1, n_pix)
        variance, vector = eigh(gram, subset_by_index=[n - q, n - 1], overwrite_a=True,
                                check_finite=False)
        if not variance[-1] > 0:
            raise Failure(INPUT, f"the {n} spectra in use are all the same")
        # components that are nothing but rounding would be divided by it
        use = variance >= 1e-13 * variance[-1]
        variance, vector = variance[use][::-1], vector[:, use][:, ::-1]
        self.score = vector * np.sqrt(variance)
        self.pattern = (vector / np.sqrt(variance)).T @ centred
        self.lost = np.maximum(own - (self.score**2).sum(axis=1), 0) / n_pix
        self.kept = variance.sum() / own.sum()

    def _fit_scores(self, same=None):
        s = self.settings
        self.fit = RadialFit(self.mapped, self.length, self.weight, self.score, s.degree,
                             self.smooth, TOLERANCE, same)

    def _neighbours(self):
        """[n, N_NEIGHBOUR] spectra with the most similar labels."""
        u, out = self.mapped, []
        for first in range(0, len(u), BLOCK):
            far = sum((a[first:first + BLOCK, None] - a) ** 2 for a in u.T)
            far[np.arange(len(far)), first + np.arange(len(far))] = -1  # itself
            out.append(np.argsort(far, axis=1, kind="stable")[:, 1:N_NEIGHBOUR + 1])
        return np.concatenate(out)

    def _doubt(self, near):
        """[n] residuals in units of the median of those with similar labels.  A spectrum's residual
        is the geometric mean of those with and without it in the fit: of equal expected size
        whatever its share in its own fit."""
        square = np.abs(self.fit.left_out * self.fit.residual).sum(axis=1) / self.y.shape[1]
        residual = np.sqrt(square + self.lost)
        # no spectrum is doubtful if the functions fit to rounding
        return residual / np.maximum(np.median(residual[near], axis=1), 1e-4)

    def _reject(self, ratio):
        self.used = use = ratio <= REJECT
        self.values, self.weight = self.values[use], self.weight[use]
        self.y, self.gap = self.y[use], self.gap[use]
        if len(self.y) < LEAST_SPECTRA:
            raise Failure(INPUT, f"all but {len(self.y)} spectra are unlike those with similar "
                          "labels; check that the labels belong to them")
        self._make()

    def left_out(self):
        """[n, n_pix] what functions made without each spectrum give for it."""
        return self.mean + (self.score - self.fit.left_out) @ self.pattern

    def library(self, arm):
        """A library of one arm, and which spectra are outside its hulls [n]."""
        s, rms = self.settings, np.sqrt((self.score**2).mean(axis=0))
        library = Library(self.labels, make_hulls(self.labels, self.mapped, s.hull), [arm])
        outside = spread(library, self.values, s.n_guess)
        # scores of unit mean square, as all of them go through the fit in float32 together
        arm.emulator = Emulator(
            [(self.pattern.T * rms).astype("f4")], [self.mean.astype("f4")],
            Radial(self.fit.degree, self.length, self.mapped, (self.fit.coef / rms).astype("f4")))
        return library, outside

    def model_error(self, arm):
        """ModelError and its Facts, from spectra left out in turn."""
        s = self.settings
        x = np.where(self.gap, np.nan, np.expm1(self.y - self.left_out()))
        return residuals.measure(arm.wave_aa, x, s.n_error, self.weight, 1 / s.error_sn)


# ---- velocities of the spectra ----

def find_velocities(functions, ln_step):
    """[n] km/s of each spectrum against the functions without it: the least misfit among shifts by
    whole pixels, and a parabola through its neighbours, which is exact at zero velocity.  NaN: at
    the end of the range."""
    y, good = functions.y, ~functions.gap
    model = functions.left_out()
    n, n_pix = y.shape
    most = min(int(np.ceil(MAX_VELOCITY / (C_KM_S * ln_step))), n_pix // 8)
    model = model[:, most:n_pix - most]  # all shifts compare the same pixels of the model
    y, square, count = np.where(good, y, 0), model**2, good.astype(float)
    before = np.pad(np.cumsum(y**2, axis=1), ((0, 0), (1, 0)))  # all pixels before
    misfit = np.empty((2 * most + 1, n))
    for i in range(2 * most + 1):
        part = slice(i, i + model.shape[1])
        total = (before[:, part.stop] - before[:, i] - 2 * np.einsum("ij,ij->i", y[:, part], model)
                 + np.einsum("ij,ij->i", count[:, part], square))
        n_good = count[:, part].sum(axis=1)
        misfit[i] = np.where(n_good > 0, total / np.maximum(n_good, 1), np.inf)
    at = misfit.argmin(axis=0)
    inner, column = np.clip(at, 1, 2 * most - 1), np.arange(n)
    left, best, right = (misfit[inner + k, column] for k in (-1, 0, 1))
    bend = left - 2 * best + right
    pixels = at - most + np.where(bend > 0, 0.5 * (left - right) / np.where(bend > 0, bend, 1), 0)
    return np.where(at == inner, C_KM_S * np.tanh(pixels * ln_step), np.nan)


def align(functions, ln_step, velocity, rows):
    """Adds to the velocities [n_spectrum] what is left of them in the spectra in use; the robust
    scatter of the changes.  Comparing spectra with each other leaves their common velocity open:
    its median is 0."""
    found = find_velocities(functions, ln_step)
    good = np.isfinite(found)
    at = rows[good]
    velocity[at] = C_KM_S * np.tanh(np.arctanh(velocity[at] / C_KM_S)
                                    + np.arctanh(found[good] / C_KM_S))
    velocity[rows] -= np.median(velocity[rows])
    return robust(found[good])[1] if good.any() else np.nan


# ---- all of it ----

@dataclass
class Made:
    """A library of labelled spectra; of the n spectra given: fate, gap (part of the pixels),
    velocity (km/s, taken out) and weight; outside: rows in use outside of the hulls; rounds of
    align, and the scatter of the last one's changes."""
    library: Library
    functions: Functions
    rows: np.ndarray
    fate: np.ndarray
    gap: np.ndarray
    velocity: np.ndarray
    outside: np.ndarray
    good_aa: tuple
    n_align: int
    align_step: float
    error_facts: residuals.Facts


def build(settings, spectra):
    grid = Grid(settings, spectra)
    velocity, n_align, step = np.zeros(len(spectra.flux)), 0, np.nan

    def make(**how):
        fate, gap, rows, y, bad = grid.put(velocity)
        return fate, gap, rows, Functions(settings, spectra.labels[rows], y, bad, **how)

    for stiff in (True, False) if settings.align else ():
        for _ in range(MAX_ALIGN):
            _, _, rows, functions = make(aligning=True, stiff=stiff)
            step = align(functions, grid.arm.ln_step, velocity, rows)
            n_align += 1
            if not step > SMALL_CHANGE:
                break
    fate, gap, rows, functions = make()
    fate[rows[~functions.used]] = OUTLIER
    rows = rows[functions.used]
    library, outside = functions.library(grid.arm)
    facts = None
    if settings.n_error is not None:
        grid.arm.error, facts = functions.model_error(grid.arm)
    return Made(library, functions, rows, fate, gap, velocity, rows[outside], grid.good_aa, n_align,
                step, facts)


def leave_out(made, names, part, seed):
    """A library made with the same settings and weights from a part of the spectra, and a ModelSet
    of the others, which these lie around: none is at the end of a label of three values or more.
    None where there is none such."""
    functions, arm = made.functions, made.library.arm[0]
    values = functions.values
    between = (values > values.min(axis=0)) & (values < values.max(axis=0))
    fits = (between | ~between.any(axis=0)).all(axis=1)
    order = np.random.default_rng(seed).permutation(len(values))
    most = min(int(part * len(values) + 0.5), MAX_SPECTRA)
    out = np.zeros(len(values), bool)
    out[order[fits[order]][:most]] = True
    if not out.any():
        return None
    if (~out).sum() < LEAST_SPECTRA:
        raise Failure(INPUT, f"{(~out).sum()} spectra would be left, at least {LEAST_SPECTRA} are "
                      "needed")
    rest = Functions(functions.settings, values[~out], functions.y[~out],
                     np.zeros_like(functions.gap[~out]), functions.weight[~out])
    library, _ = rest.library(type(arm)(**{**vars(arm), "error": None}))
    left = ModelSet(values[out], [name for name, is_out in zip(names, out) if is_out],
                    [np.exp(functions.y[out])], [None])
    return library, left
